"""What an evaluation is asked for and what it answers: plain values, nothing computed here.

`Evaluation` carries the cost of a policy from whoever found it, exactly or by simulation, to
tables, JSON and the report; nothing repacks it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from dualplan.core.budgets import seconds
from dualplan.core.checks import (
    require_counts,
    require_inside,
    require_positive,
    require_seed,
    require_threads,
    require_whole,
)
from dualplan.core.errors import unknown
from dualplan.core.intervals import Interval
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Json
from dualplan.models.limits import Limit

EXACT_EVALUATION = "exact"  # the method of what is computed over all states
SIMULATED_EVALUATION = "simulation"
SAVED_CONFIDENCE = 0.95  # of intervals in results of solvers
LOST_MEASURE = "lost fraction"  # of networks with bounded buffers
NEGLIGIBLE_EXCESS = 1e-9  # over a limit
# of a measure under a policy that is unstable
UNKNOWN_MEASURE = Interval(math.nan, -math.inf, math.inf, 1.0)


def require_known_method(method: str | None) -> None:
    """Raise unless it is `exact`, `simulation`, or None for exactly where states are few."""
    if method not in (None, EXACT_EVALUATION, SIMULATED_EVALUATION):
        raise unknown("evaluation", str(method), [EXACT_EVALUATION, SIMULATED_EVALUATION])


@dataclass(frozen=True)
class Settings:
    """How to evaluate: the interval wanted and the work allowed.

    A run ends when the half-width of its interval is at most `tol`, or `relative_tol` times the
    cost, though not before `least` steps; after `steps` steps or the `time` it ends in any case.
    """

    method: str | None = None
    tol: float | None = None
    relative_tol: float | None = None
    steps: int = 20_000_000
    least: int = 0
    confidence: float = 0.95
    seed: int = 0
    threads: int | None = None
    time: str | float | None = None

    def __post_init__(self) -> None:
        require_inside(confidence=self.confidence)
        if self.tol is not None:
            require_positive(tol=self.tol)
        if self.relative_tol is not None:
            require_positive(relative_tol=self.relative_tol)
        if self.time is not None:
            seconds(self.time)  # raises, if it is no time
        require_counts(steps=self.steps)
        require_whole("least", self.least)
        require_seed(self.seed)
        require_threads(self.threads)

    def satisfied(self, interval: Interval) -> bool:
        """Whether the interval is as narrow as was asked."""
        if self.tol is not None and interval.half_width <= self.tol:
            return True
        return self.relative_tol is not None and interval.half_width <= self.relative_tol * abs(
            interval.value
        )

    @property
    def wants_width(self) -> bool:
        """Whether a half-width was asked for."""
        return self.tol is not None or self.relative_tol is not None

    @property
    def seconds(self) -> float | None:
        """The wall clock that is allowed, in seconds."""
        return None if self.time is None else seconds(self.time)


class SettingsKeywords(TypedDict, total=False):
    """The fields of `Settings`, as keywords of `evaluate` and `compare`."""

    method: str | None
    tol: float | None
    relative_tol: float | None
    steps: int
    least: int
    confidence: float
    seed: int
    threads: int | None
    time: str | float | None


@dataclass(frozen=True, repr=False)
class Evaluation(Shown):
    """The cost of a policy: an estimate, its interval, how it was obtained and what else was
    measured.

    Measures are ratios; `denominators` are what a step adds to the lower one of their two sums.
    """

    policy: str
    cost: float
    lower: float
    upper: float
    confidence: float
    method: str
    status: Status
    steps: int = 0
    seconds: float = 0.0
    seed: int = 0
    warm_up: int = 0
    measures: dict[str, Interval] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    denominators: dict[str, float] = field(default_factory=dict)

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.upper - self.lower) / 2

    @property
    def interval(self) -> Interval:
        """The cost with its bounds or its interval."""
        return Interval(self.cost, self.lower, self.upper, self.confidence)

    @property
    def exact(self) -> bool:
        """Whether it was computed over all states rather than simulated."""
        return self.method == EXACT_EVALUATION

    @property
    def trusted(self) -> bool:
        """Whether the cost is one number, and the interval to be believed."""
        return self.status.good and math.isfinite(self.cost)

    # -- limits ------------------------------------------------------------------------------------

    def keeps(self, limit: Limit) -> bool:
        """Whether a limit is kept, with the whole interval of its measure."""
        return self._over(limit) <= NEGLIGIBLE_EXCESS

    def breaks(self, limit: Limit) -> bool:
        """Whether a limit is broken, with the whole interval of its measure."""
        return limit.name in self.measures and self.measures[limit.name].lower > limit.at_most

    def excess(self, limits: Sequence[Limit]) -> float:
        """By how much limits may be exceeded, in sum; 0 if all are kept."""
        return sum(self._over(limit) for limit in limits if not self.keeps(limit))

    def _over(self, limit: Limit) -> float:
        """How far the upper end of a measure lies above its limit; infinite if it is not known."""
        measure = self.measures.get(limit.name, UNKNOWN_MEASURE)
        over = measure.upper - limit.at_most
        return math.inf if math.isnan(over) else over

    # -- plain values ------------------------------------------------------------------------------

    def cost_to_json(self) -> Json:
        """What results of solvers say of their policy's cost; `cost_from_json` reads it."""
        return {
            "cost": self.cost,
            "cost_lower": self.lower,
            "cost_upper": self.upper,
            "cost_status": str(self.status),
            "evaluation": self.method,
            "measures": {name: interval.to_json() for name, interval in self.measures.items()},
        }

    def limits_to_json(self, limits: Sequence[Limit]) -> list[Json]:
        """What became of each limit."""
        return [
            {
                "measure": limit.name,
                "at_most": limit.at_most,
                **self.measures.get(limit.name, UNKNOWN_MEASURE).to_json(),
                "kept": self.keeps(limit),
            }
            for limit in limits
        ]

    def to_json(self) -> Json:
        """Everything as plain values."""
        return {
            "policy": self.policy,
            "cost": self.cost,
            "lower": self.lower,
            "upper": self.upper,
            "confidence": self.confidence,
            "method": self.method,
            "status": str(self.status),
            "advice": self.status.advice,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "warm_up_steps": self.warm_up,
            "measures": {name: interval.to_json() for name, interval in self.measures.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        if self.status is Status.UNSTABLE:
            return f"{self.policy}: unstable ({self.status.advice})"
        if self.exact:
            ends = f"[{self.lower:.6g}, {self.upper:.6g}]"
            return f"{self.policy}: {self.cost:.6g}, exactly {ends} ({self.status.advice})"
        return (
            f"{self.policy}: {self.cost:.6g}, {self.confidence:.0%} interval [{self.lower:.6g}, "
            f"{self.upper:.6g}] ({self.method}, {self.steps:,} steps; {self.status.advice})"
        )


def cost_from_json(policy: str, data: Json) -> Evaluation:
    """The cost of a policy from a result that was saved."""
    exact = data["evaluation"] == EXACT_EVALUATION
    confidence = 1.0 if exact else SAVED_CONFIDENCE
    cost = Interval.from_json(
        {"value": data["cost"], "lower": data["cost_lower"], "upper": data["cost_upper"]},
        confidence,
    )
    measures = {
        name: Interval.from_json(values, confidence) for name, values in data["measures"].items()
    }
    return Evaluation(
        policy=policy,
        cost=cost.value,
        lower=cost.lower,
        upper=cost.upper,
        confidence=confidence,
        method=data["evaluation"],
        status=Status(data["cost_status"]),
        measures=measures,
        notes=tuple(data.get("notes") or ()),
    )


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Two policies on the same random numbers; `difference` is the first one's cost minus the
    second one's.

    `status` is that of the difference: a half-width that was asked for is its own, and nothing is
    known of it where a policy is unstable.
    """

    first: Evaluation
    second: Evaluation
    difference: Interval
    status: Status
    notes: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Everything as plain values."""
        return {
            "first": self.first.to_json(),
            "second": self.second.to_json(),
            "difference": {**self.difference.to_json(), "confidence": self.difference.confidence},
            "status": str(self.status),
            "advice": self.status.advice,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        d = self.difference
        return (
            f"{self.first.policy} − {self.second.policy}: {d.value:.6g}, {d.confidence:.0%} "
            f"interval [{d.lower:.6g}, {d.upper:.6g}]"
        )
