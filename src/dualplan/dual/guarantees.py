"""What the theorems promise before anything is solved: right-hand sides as numbers, and the work
that they ask for.

Each theorem compares θ̂ with some θ of Θ. Here that is the single feature (or the base measure)
with the least surrogate, at mass M: nowhere negative, so V is its flow alone, and its policy costs
at most ℓᵀu + ½σ·V (`theorems.py`). For a θ̂ with c(θ̂) <= min c + ε,

    cost(θ̂) <= right-hand side of the main theorem, at the given H, cost(θ̂) <= right-hand side of
    the meta theorem, if H was chosen from a grid and F minimised within ε, cost(θ̂) <= optimum
    + right-hand side of the corollary + "per unit of distance"·min_θ ‖u_θ − ν*‖₁ (discounted).

The work: T steps and n draws at H itself, and at the largest H of the paper's and of the geometric
grid, where it is most; K is the number of points. These are astronomical on most problems of
interest. They say what would be proved, not what is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dualplan.core.errors import InputError
from dualplan.core.status import ASSUMED
from dualplan.core.types import Json
from dualplan.dual import theorems
from dualplan.dual.certificates import CERTAIN_STANDARD_ERRORS, loss_range, measurable
from dualplan.dual.grids import geometric_grid, grid_size
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers.subgradient import first_point
from dualplan.dual.theorems import Requirements, Statement
from dualplan.dual.violations import measure_violations
from dualplan.models.criteria import Discounted

GUARANTEE_DRAWS = 200_000


@dataclass(frozen=True, eq=False)
class Guarantees:
    """The theorems at one H, for a wanted ε and δ, and the work they ask for."""

    epsilon: float
    delta: float
    statements: tuple[Statement, ...]
    requirements: dict[str, Requirements]

    def to_json(self) -> Json:
        """As plain values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "statements": {statement.name: statement.to_json() for statement in self.statements},
            "requirements": {name: asked.to_json() for name, asked in self.requirements.items()},
        }


def guarantees(
    problem: DualALP,
    penalty: float,
    *,
    epsilon: float,
    delta: float = 0.05,
    beta: float | None = None,
    span: float | None = None,
    known: str = ASSUMED,
    offset: float | None = None,
    seed: int = 0,
) -> Guarantees:
    """The theorems as numbers for a penalty H.

    In the average criterion `span` must bound the span of the bias of the policies in question, and
    `known` says how it is known. β is by default κ·D. `offset` is the H₀ that F was minimised with,
    by default κ. With less the meta theorem says nothing (a θ̂ of small H and large V may cost more
    than its F), and is left out.
    """
    losses = loss_range(problem.model)
    if not math.isfinite(losses):
        raise InputError(
            f"the losses of {problem.model.name!r} have no known bounds, and the theorems need "
            "them."
        )
    kappa = theorems.exact_penalty(problem, losses, span)
    if measurable(problem.model):
        rows = problem.enumerate()
    else:
        rows = problem.draw(GUARANTEE_DRAWS, seed=seed)
    theta = first_point(problem, penalty, rows)
    found = measure_violations(
        problem, theta, confidence=1 - delta, samples=GUARANTEE_DRAWS, seed=seed
    )
    if span is None:
        sigma = losses / (1 - problem.gamma)
    else:
        sigma = span
    on_negative, on_flow = theorems.price(losses, sigma, problem.gamma)
    objective = float(problem.losses @ theta) + problem.base_loss
    errors = CERTAIN_STANDARD_ERRORS * float(problem.features.errors @ abs(theta))
    if problem.base is not None:
        errors += CERTAIN_STANDARD_ERRORS * problem.total * float(problem.base.errors[0])
    cost = objective + errors + on_negative * found.negative.upper + on_flow * found.flow.upper
    if beta is None:
        beta = kappa * theorems.spread(problem)
    beside: dict[str, Any] = {
        "loss_range": losses,
        "cost": cost,
        "violation": found.total.upper,
        "span": span,
        "known": known,
    }
    statements = [theorems.main_theorem(problem, penalty, error=epsilon, **beside)]
    if offset is None or offset >= kappa * (1 - 1e-12):
        statements.append(theorems.meta_theorem(problem, epsilon=epsilon, beta=beta, **beside))
    if isinstance(problem.criterion, Discounted):
        # what is added to the optimum where some θ is at distance 0 from it
        above = theorems.error_bound(
            problem, penalty, loss_range=losses, optimum=0.0, distance=0.0, error=epsilon
        )
        statements.append(above)
    return Guarantees(
        epsilon,
        delta,
        tuple(statements),
        _requirements(problem, penalty, epsilon, delta, beta, kappa),
    )


def _requirements(
    problem: DualALP, penalty: float, epsilon: float, delta: float, beta: float, kappa: float
) -> dict[str, Requirements]:
    if beta == 0:
        raise InputError("β is 0: all features cost the same, and any H will do.")
    v_max = theorems.largest_violation(problem)
    grids = {
        "paper's grid": grid_size(beta, v_max, epsilon, epsilon / 4),
        "geometric grid": float(len(geometric_grid(beta, v_max, epsilon))),
    }
    largest = 2 * beta / epsilon + kappa
    found = {"H": theorems.requirements(problem, penalty, epsilon=epsilon, delta=delta)}
    for name, points in grids.items():
        found[name] = theorems.requirements(
            problem, largest, epsilon=epsilon, delta=delta, points=points
        )
    return found
