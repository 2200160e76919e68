"""F along a grid of penalties: which H to try, and what F is at a solution.

With H₀ >= 0 fixed, V = V_neg + V_flow and β > 0,

    c(H) = min_θ ℓᵀu + (H + H₀)·V,        F(H) = c(H) + β/H,

and c is non-decreasing and concave. β is the coefficient of 1/H in the bound on the excess loss,
κ·D (`theorems.py`), and H₀ = κ wherever κ is known: always in the discounted criterion; in the
average one if a span is given, otherwise 0, as in the paper. All penalties are in units of loss
times mixing time (or 1/(1−γ)).

The grid is the paper's or a geometric one (`grids.py`). Between neighbours of the paper's F varies
by at most ε'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualplan.core.budgets import MOST_LISTED_STATES
from dualplan.core.checks import is_number, is_positive
from dualplan.core.errors import InputError, unknown
from dualplan.core.intervals import Interval
from dualplan.core.status import ASSUMED, MEASURED, PROVED
from dualplan.core.types import Json
from dualplan.dual import theorems
from dualplan.dual.certificates import CERTAIN_STANDARD_ERRORS, loss_range
from dualplan.dual.grids import PENALTY_GRIDS, geometric_grid, paper_grid
from dualplan.dual.outcomes import Outcome
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers.contract import Solution
from dualplan.dual.violations import Violations, measure_violations
from dualplan.exact.policy import evaluate_exact
from dualplan.models.criteria import Discounted
from dualplan.policies.tables import random_policy


@dataclass(frozen=True, eq=False)
class Point:
    """What was found at one H: the solution for the weight H + H₀, its violations, and F̂ with an
    interval.
    """

    penalty: float
    weight: float
    solution: Solution
    violations: Violations
    estimate: Interval
    outcome: Outcome | None = None

    def to_json(self) -> Json:
        """As plain values."""
        return {
            **(self.solution if self.outcome is None else self.outcome).to_json(),
            "penalty": self.penalty,
            "weight": self.weight,
            "violations": self.violations.to_json(),
            "F": self.estimate.value,
            "F_lower": self.estimate.lower,
            "F_upper": self.estimate.upper,
        }


@dataclass(frozen=True, eq=False)
class Scheme:
    """The penalties H_k to try, and what F is made of; `beta_known` says how β is known."""

    penalties: tuple[float, ...]
    grid: str
    beta: float
    beta_known: str
    offset: float
    v_max: float
    epsilon: float
    delta: float

    @property
    def weights(self) -> list[float]:
        """H_k + H₀: what the surrogate is minimised with."""
        return [h + self.offset for h in self.penalties]

    @property
    def failure(self) -> float:
        """The probability that one point may fail with, in its solution or in its V̂."""
        return self.delta / (2 * len(self.penalties))

    def look(self, k: int, solution: Solution, *, rule: str, draws: int, seed: int) -> Point:
        """V̂ such that (H + H₀)·V̂ is within ε/4, and F̂."""
        problem = solution.problem
        penalty = self.penalties[k]
        weight = self.weights[k]
        found = measure_violations(
            problem,
            solution.theta,
            rule=rule,
            within=self.epsilon / 4 / weight,
            confidence=1 - self.failure,
            samples=draws,
            seed=seed,
        )
        rest = float(problem.slope @ solution.theta) + problem.intercept + self.beta / penalty
        if problem.base is None:
            base_error = 0.0
        else:
            base_error = problem.total * float(problem.base.errors[0])
        errors = CERTAIN_STANDARD_ERRORS * (
            float(problem.slope_errors @ np.abs(solution.theta)) + base_error
        )
        v = found.total
        estimate = Interval(
            rest + weight * v.value,
            rest + weight * v.lower - errors,
            rest + weight * v.upper + errors,
            v.confidence,
        )
        return Point(penalty, weight, solution, found, estimate)

    def to_json(self) -> Json:
        """As plain values, without the penalties."""
        names = ("grid", "beta", "beta_known", "offset", "v_max", "epsilon", "delta")
        return {name: getattr(self, name) for name in names}


def make_scheme(
    problem: DualALP,
    *,
    epsilon: float,
    delta: float = 0.05,
    beta: float | None = None,
    span: float | None = None,
    grid: str | Sequence[float] = "geometric",
    ratio: float = 2.0,
) -> Scheme:
    """`grid` is `geometric`, `paper`, or numbers; β is by default κ·D (`default_beta`)."""
    if isinstance(grid, str) and grid not in PENALTY_GRIDS:
        raise unknown("grid", grid, PENALTY_GRIDS)
    if not is_positive(epsilon) or not is_positive(delta) or delta >= 1:
        raise InputError(
            f"epsilon must be positive and delta between 0 and 1, got {epsilon!r} and {delta!r}."
        )
    if beta is not None and not is_positive(beta):
        raise InputError(f"beta must be a positive number, got {beta!r}.")
    if span is not None and (not is_number(span) or span < 0):
        raise InputError(f"span must be a finite number of at least 0, got {span!r}.")
    theorems.require_plain(problem)  # F is that of the theorems, whatever β
    found, known = (float(beta), ASSUMED) if beta is not None else default_beta(problem, span)
    v_max = theorems.largest_violation(problem)
    if grid == "geometric":
        points = geometric_grid(found, v_max, epsilon, ratio)
    elif grid == "paper":
        points = paper_grid(found, v_max, epsilon, epsilon / 4)
    else:
        if not all(map(is_positive, grid)) or not len(grid):
            raise InputError(f"a grid is a list of positive penalties, got {grid!r}.")
        points = sorted(float(h) for h in grid)
    if isinstance(grid, str):
        name = grid
    else:
        name = "given"
    return Scheme(tuple(points), name, found, known, _offset(problem, span), v_max, epsilon, delta)


def default_beta(problem: DualALP, span: float | None = None) -> tuple[float, str]:
    """β = κ·D, κ = L + γσ, and how it is known: σ is L/(1−γ), the given span, or that of a
    heuristic's bias.
    """
    theorems.require_plain(problem)
    losses = loss_range(problem.model)
    if isinstance(problem.criterion, Discounted):
        known = PROVED
    else:
        known = ASSUMED
    if not math.isfinite(losses):
        raise InputError(
            f"the losses of {problem.model.name!r} have no known bounds, so β has no default; give "
            "beta."
        )
    if isinstance(problem.criterion, Discounted):
        if span is None:
            span = losses / (1 - problem.gamma)
    elif span is None:
        span = _measured_span(problem)
        known = MEASURED
    if known == PROVED and theorems.estimated(problem):
        known = MEASURED
    return theorems.price(losses, span, problem.gamma)[0] * theorems.spread(problem), known


def _measured_span(problem: DualALP) -> float:
    """The span of the bias of the model's first heuristic, or without one of choosing evenly."""
    model = problem.model
    if model.box.count is None or model.box.count > MOST_LISTED_STATES:
        raise InputError(
            f"model {model.name!r} has too many states to measure the span of a bias, from which β "
            "has its default; give beta or span."
        )
    names = list(model.policies)
    if names:
        policy = model.policy(names[0])
    else:
        policy = random_policy(model)
    return evaluate_exact(model, policy, problem.criterion).span


def _offset(problem: DualALP, span: float | None) -> float:
    """H₀ = κ where it is known: nothing is where losses have no bounds."""
    losses = loss_range(problem.model)
    if not math.isfinite(losses) or (
        span is None and not isinstance(problem.criterion, Discounted)
    ):
        return 0.0
    return theorems.exact_penalty(problem, losses, span)
