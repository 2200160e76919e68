"""What a primal method returns: weights of functions, their values, a greedy policy, and a lower
bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dualplan.core.budgets import MOST_LISTED_STATES
from dualplan.core.errors import InputError
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Floats, Ints, Json
from dualplan.evaluation.lower_bounds import LowerBound, lower_bound
from dualplan.exact.greedy import greedy
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion
from dualplan.policies.contract import Policy
from dualplan.values.basis import Basis, LinearValues

FINISHED_STATUSES = (Status.SOLVED, Status.SAMPLED, Status.RELAXED)


def policy_name(name: str, status: Status, unfinished: bool) -> str:
    """What to call the policy of a program.

    One that stopped early must be asked for, and is called so.
    """
    if status in FINISHED_STATUSES:
        return name
    if not unfinished:
        raise InputError(
            f"the program stopped early ({status.advice}); policy(unfinished=True) takes what "
            "there is."
        )
    return f"{name}, unfinished"


@dataclass(frozen=True, eq=False)
class Slacks:
    """Violations that a program allowed: `values[k]` of the constraints at `states[k]`, which count
    `weights[k]`.

    The value of a state is the largest violation over its actions (smoothed) or their sum
    (relaxed).
    """

    states: Ints
    weights: Floats
    values: Floats

    @property
    def mean(self) -> float:
        """Σ_x π(x) s(x)."""
        return float(self.weights @ self.values)


@dataclass(frozen=True, eq=False, repr=False)
class PrimalSolution(Shown):
    """Weights found by a linear program on values.

    `objective` is the program's optimum: cᵀΨw (discounted; average, second stage), `level` the λ of
    the average criterion. `violation` is the largest over all states, None if not all were looked
    at. `bounding` are the weights whose potential gives the lower bound, by default the weights
    themselves: what is good for a policy is rarely good for a bound. `slacks` are the violations
    that a smoothed or relaxed program allowed.
    """

    basis: Basis
    criterion: Criterion
    method: str
    weights: Floats
    objective: float
    status: Status
    constraints: int
    rounds: int
    seconds: float
    seed: int = 0
    level: float | None = None
    violation: float | None = None
    bounding: Floats | None = None
    slacks: Slacks | None = None

    @property
    def model(self) -> Model:
        """The model of the basis."""
        return self.basis.model

    @property
    def gamma(self) -> float:
        """The discount factor, 1 for the average criterion."""
        return self.criterion.gamma

    @cached_property
    def values(self) -> LinearValues:
        """Ψw, a function of states."""
        return LinearValues(self.basis, self.weights)

    @cached_property
    def lower_bound(self) -> LowerBound:
        """A lower bound on the optimal cost from the potential, whatever the program did.

        It is proved by a sweep where states can be listed, rounding included; statistical
        elsewhere.
        """
        if self.bounding is None:
            weights = self.weights
        else:
            weights = self.bounding
        return lower_bound(
            self.model, self.criterion, potential=LinearValues(self.basis, weights), seed=self.seed
        )

    def policy(self, *, name: str | None = None, unfinished: bool = False) -> Policy:
        """The greedy policy of the values.

        Of a program that stopped early only if `unfinished` asks for it.
        """
        label = policy_name(name or self.method, self.status, unfinished)
        count = self.model.box.count
        few = count is not None and count <= MOST_LISTED_STATES
        return greedy(
            self.model, self.values, self.gamma, name=label, table=not self.basis.compiled and few
        )

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        return {
            "method": self.method,
            "functions": len(self.basis),
            "objective": self.objective,
            "level": self.level,
            "status": str(self.status),
            "advice": self.status.advice,
            "constraints": self.constraints,
            "rounds": self.rounds,
            "violation": self.violation,
            "slack": None if self.slacks is None else self.slacks.mean,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
        }
