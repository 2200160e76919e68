"""What the search for a better policy passes around: candidates, members of the portfolio,
attempts, the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dualplan.core.budgets import Clock
from dualplan.core.intervals import Interval
from dualplan.core.shown import Shown
from dualplan.core.status import PROVED, Status
from dualplan.core.streams import own_seed
from dualplan.core.types import Json
from dualplan.evaluation.compared import Compared
from dualplan.evaluation.lower_bounds import LowerBound, largest_gap
from dualplan.evaluation.results import Evaluation
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion
from dualplan.models.limits import Limit
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy
from dualplan.values.functions import StateFunction

# shares of the time that are kept for the last evaluation and the bound
JUDGING_TIME_SHARE = 0.2
BOUND_TIME_SHARE = 0.15
FINISHING_TIME_SHARE = JUDGING_TIME_SHARE + BOUND_TIME_SHARE


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy that a step proposes, and the values that it was made from, if any: they serve as
    control variates.
    """

    policy: Policy
    source: str
    values: StateFunction | None = None


@dataclass(frozen=True, eq=False)
class Member:
    """A candidate that was simulated.

    `control` is the function of states that made its interval narrowest.
    """

    candidate: Candidate
    run: Evaluation
    control: StateFunction | None = None

    @property
    def policy(self) -> Policy:
        """The candidate's policy."""
        return self.candidate.policy

    def rank(self, limits: Sequence[Limit]) -> tuple[float, float]:
        """By how much limits are exceeded, and the cost: what is sorted by.

        Of a run that is too short it is the upper end: little is known, and it may be far off.
        """
        cost = self.run.upper if self.run.status is Status.TOO_SHORT else self.run.cost
        return self.run.excess(limits), cost if math.isfinite(cost) else math.inf


@dataclass(frozen=True)
class Attempt:
    """One step: how many candidates it made, the best of them against the best policy so far, and
    what came of it.

    `gain` is the paired interval of the old cost minus the new one.
    """

    step: str
    size: int
    made: int
    policy: str = ""
    cost: float | None = None
    gain: Interval | None = None
    accepted: bool = False
    seconds: float = 0.0
    note: str = ""

    def to_json(self) -> Json:
        """As plain values."""
        return {
            "step": self.step,
            "size": self.size,
            "candidates": self.made,
            "policy": self.policy,
            "cost": None if self.cost is None else self.cost,
            "gain": None if self.gain is None else self.gain.to_json(),
            "accepted": bool(self.accepted),
            "seconds": round(self.seconds, 3),
            "note": self.note,
        }


@dataclass(eq=False)
class Search:
    """Where the search stands: the portfolio, the cheapest first among `members`, and the best
    policy so far.

    `limits` are those that policies are judged by now: none, as long as the best policy without
    limits keeps those that were asked for (`wanted_limits`).
    """

    model: Model
    criterion: Criterion
    limits: tuple[Limit, ...]
    seed: int
    members: list[Member] = field(default_factory=list)
    best: Member | None = None
    attempts: list[Attempt] = field(default_factory=list)
    clock: Clock = field(default_factory=lambda: Clock(math.inf))
    wanted_gap: float | None = None
    wanted_limits: tuple[Limit, ...] = ()
    before: int = 0  # attempts of a run that goes on
    fitted: dict[str, StateFunction | None] = field(
        default_factory=dict
    )  # controls of policies that bring no values
    # policies whose measures are known, by their fingerprints: where limits are kept by prices
    columns: dict[str, Member] = field(default_factory=dict)
    prices: tuple[tuple[Limit, float], ...] = ()  # of the limits, as far as they are known

    @property
    def incumbent(self) -> Member:
        """The best policy so far."""
        assert self.best is not None, "the search begins with a policy"
        return self.best

    @property
    def listed(self) -> bool:
        """Whether the model lists its next states; simulators do not."""
        return not isinstance(self.model, SimulatorModel) and self.model.has_forward

    @property
    def left(self) -> float:
        """Seconds left for steps: the rest is for the last evaluation, unless costs are computed at
        once, and the bound.
        """
        exact = self.best is not None and self.best.run.exact
        kept = BOUND_TIME_SHARE if exact else FINISHING_TIME_SHARE
        return max(0.0, self.clock.left - kept * self.clock.allowed)

    def fresh(self, place: int) -> int:
        """A seed of its own for each attempt, and each place in it."""
        return own_seed(self.seed, self.before + len(self.attempts), place)


class Step(Protocol):
    """A way to propose policies; sizes 0, 1, … ask for more work."""

    @property
    def name(self) -> str:
        """The word for it."""

    @property
    def sizes(self) -> int:
        """How many sizes there are."""

    @property
    def grows(self) -> float:
        """About how many times as long it proposes in its next size."""

    def leads(self, search: Search) -> bool:
        """Whether it is taken before the others, on this model."""

    @property
    def needs(self) -> str:
        """What a model must have for it, in words."""

    @property
    def elastic(self) -> bool:
        """Whether it does less where time is short."""

    def applies(self, search: Search) -> bool:
        """Whether it is for this model and this criterion."""

    def propose(self, search: Search, size: int) -> list[Candidate]:
        """Candidates, to be judged by simulation."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SearchResult(Shown):
    """The best policy that was found, what it costs, what any policy costs at least, and how it
    came about.

    `start` are the policies to begin with as they were screened, `beside` the same against the one
    that was found, in the same order.
    """

    model: Model
    criterion: Criterion
    policy: Policy
    source: str
    evaluation: Evaluation
    limits: tuple[Limit, ...]
    start: tuple[Member, ...]
    beside: tuple[Compared, ...]
    attempts: tuple[Attempt, ...]
    bound: LowerBound
    wanted_gap: float | None
    status: Status
    values: StateFunction | None
    seed: int
    seconds: float

    @property
    def cost(self) -> float:
        """What the policy costs; `evaluation` says how that is known."""
        return self.evaluation.cost

    @property
    def gap(self) -> float:
        """The largest part of the cost that another policy could save."""
        return largest_gap(self.evaluation.lower, self.evaluation.upper, self.bound.value)

    @property
    def gap_reached(self) -> bool | None:
        """Whether the gap that was asked for was reached; None if none was."""
        if self.wanted_gap is None:
            return None
        return bool(self.gap <= self.wanted_gap and self.bound.kind == PROVED and self.kept)

    @property
    def kept(self) -> bool:
        """Whether all limits are kept, with their whole intervals."""
        return all(self.evaluation.keeps(limit) for limit in self.limits)

    def to_json(self) -> Json:
        """Everything as plain values; the policy itself is saved apart."""
        return {
            "task": "solve",
            "model": self.model.name,
            **self.criterion.describe(),
            "policy": self.policy.name,
            "source": self.source,
            **self.evaluation.cost_to_json(),
            "lower_bound": self.bound.value,
            "lower_bound_kind": self.bound.kind,
            "lower_bound_functions": self.bound.functions,
            "lower_bound_assumed": self.bound.assumed,
            "gap": self.gap,
            "gap_wanted": self.wanted_gap,
            "gap_reached": self.gap_reached,
            "status": str(self.status),
            "advice": self.status.advice,
            "limits": self.evaluation.limits_to_json(self.limits),
            "notes": list(self.evaluation.notes),
            "start": [row.to_json() for row in self.beside],
            "attempts": [attempt.to_json() for attempt in self.attempts],
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        known = self.evaluation
        ends = f"[{known.lower:.6g}, {known.upper:.6g}]"
        lines = [
            f"{self.policy.name} ({self.source}): {known.cost:.6g} {ends} ({known.method})",
            f"any policy costs at least {self.bound.value:.6g} ({self.bound.kind}); gap "
            f"{self.gap:.2%}",
            f"{self.status}: {self.status.advice}",
        ]
        return "\n".join(lines)
