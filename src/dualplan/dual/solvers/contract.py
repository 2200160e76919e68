"""What a solver returns, whichever it is: weights θ, the surrogate at them, and the policy they
stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Floats, Ints, Json
from dualplan.dual.features.contract import concat
from dualplan.dual.policy import MixturePolicy
from dualplan.dual.problem import Constraints, DualALP, Value
from dualplan.policies.contract import Policy
from dualplan.values.functions import Combination, StateFunction, StateSum, state_function


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Those of a linear program: λ of the mass, z of the pairs, y of the flows and v of the limits,
    with the weights of the constraints in them.
    """

    mass: float
    pairs: Floats
    flows: Floats
    limits: Floats

    def reduced_costs(self, others: DualALP, constraints: Constraints) -> Floats:
        """L − Rᵀz + Fᵀy + Gᵀv − λ of other features, whose rows at the same constraints these are.

        Mass that is moved to a feature changes the program's value by this much for each unit, to
        first order.
        """
        c = constraints
        rows = np.asarray(c.flows.T @ self.flows - c.pairs.T @ self.pairs)
        return np.asarray(others.slope + rows + others.limit_rows.T @ self.limits - self.mass)


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Shown):
    """Weights found for one penalty.

    `parts` are the surrogate and its violations, over all constraints or on fresh ones that the
    solver has not seen. Linear programs also have their own optimal `value` (over drawn constraints
    it is too low on average) and the `potential` at the states of their flow rows, signed as in the
    average criterion's Lagrangian; `states` are those of drawn rows.
    `multipliers` are those of all constraints of one program.
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
    states: Ints | None = None
    multipliers: Multipliers | None = None

    def policy(self, fallback: Policy | None = None, name: str = "dual") -> MixturePolicy:
        """π_θ, with the base measure where there is one."""
        problem = self.problem
        if problem.base is None:
            return MixturePolicy(problem.features, self.theta, fallback=fallback, name=name)
        return MixturePolicy(
            concat(problem.features, problem.base),
            np.append(self.theta, problem.total),
            fallback=fallback,
            name=name,
        )

    def dual_potential(self, basis: Callable[[Ints], Any] | None = None) -> StateFunction:
        """The multipliers of the flow on top of the problem's potential, as a function of all
        states.

        Over all constraints it is a table. Drawn constraints know the multipliers at drawn states
        only, most of them at one of the limits ±H: there they are fitted by functions of yours,
        least squares, and nothing is known of the error elsewhere.
        """
        if self.potential is None:
            raise InputError(
                f"solver {self.solver!r} has no multipliers; use 'listed-lp' or 'sampled-lp'."
            )
        problem = self.problem
        # α is that of the discounted criterion
        if problem.alpha.size:
            signed = -self.potential
        else:
            signed = self.potential
        if self.states is None:
            own: StateFunction = state_function(problem.model, signed)
        elif basis is None:
            raise InputError(
                "multipliers of drawn constraints are known at drawn states only; give a basis to "
                "fit."
            )
        else:
            rows = np.asarray(basis(self.states), np.float64)
            own = Combination(basis, np.asarray(np.linalg.lstsq(rows, signed, rcond=None)[0]))
        if problem.potential is None:
            return own
        return StateSum((problem.potential, own))

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
            "effective_negative": self.parts.negative_effective,
            "effective_flow": self.parts.flow_effective,
            "warning": self.warning,
            "samples": self.samples,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
        }
