"""What a solver returns, whichever it is: weights θ, the surrogate at them, and the policy they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualplan.features.contract import concat
from dualplan.policies.contract import Policy
from dualplan.solvers.mixture import MixturePolicy
from dualplan.status import Status
from dualplan.surrogate import DualALP, Value
from dualplan.types import Floats, Json


@dataclass(frozen=True, eq=False)
class Solution:
    """Weights found for one penalty.

    `parts` are the surrogate and its violations, over all constraints or on fresh ones that the solver has not seen.
    Linear programs also have their own optimal `value` (over drawn constraints it is too low on average) and the
    `potential` at the states of their flow rows, signed as in the average criterion's Lagrangian.
    """

    problem: DualALP
    solver: str
    penalty: tuple[float, float]
    theta: Floats
    parts: Value
    status: Status
    samples: int
    seed: int
    seconds: float
    value: float | None = None
    potential: Floats | None = None

    def policy(self, fallback: Policy | None = None, name: str = "dual") -> MixturePolicy:
        """π_θ, with the base measure where there is one."""
        problem = self.problem
        if problem.base is None:
            return MixturePolicy(problem.features, self.theta, fallback=fallback, name=name)
        return MixturePolicy(
            concat(problem.features, problem.base), np.append(self.theta, problem.total), fallback=fallback, name=name
        )

    @property
    def warning(self) -> str | None:
        """What is doubtful about the sampled parts, if anything."""
        return self.parts.warning

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        negative, flow = self.penalty
        return {
            "solver": self.solver,
            "status": str(self.status),
            "advice": self.status.advice,
            "penalty": negative if negative == flow else [negative, flow],
            "objective": self.parts.objective,
            "objective_error": self.parts.objective_error,
            "violation_negative": self.parts.negative,
            "violation_flow": self.parts.flow,
            "violation_negative_error": self.parts.negative_error,
            "violation_flow_error": self.parts.flow_error,
            "surrogate": self.parts.total,
            "surrogate_error": self.parts.total_error,
            "excess": list(self.parts.excess),
            "effective_negative": _finite(self.parts.negative_effective),
            "effective_flow": _finite(self.parts.flow_effective),
            "warning": self.warning,
            "samples": self.samples,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
        }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
