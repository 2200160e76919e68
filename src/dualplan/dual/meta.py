"""Choosing H: the surrogate along a grid of penalties, and one of the solutions.

With H₀ >= 0 fixed, V = V_neg + V_flow and β > 0,

    c(H) = min_θ ℓᵀu + (H + H₀)·V,        F(H) = c(H) + β/H,

and c is non-decreasing and concave. β is the coefficient of 1/H in the bound on the excess loss,
κ·D (`theorems.py`), and H₀ = κ wherever κ is known: always in the discounted criterion; in the
average one if a span is given, otherwise 0, as in the paper. All penalties are in units of loss
times mixing time (or 1/(1−γ)).

The grid is the paper's or a geometric one (`grids.py`). Between neighbours of the paper's F varies
by at most ε'.

*The rule* takes the k with the least F̂_k = ℓᵀu_k + (H_k + H₀)·V̂_k + β/H_k. If each solution is
within ε/4 of c(H_k), each (H_k + H₀)·V̂_k within ε/4 of the truth and ε' = ε/4, all of it with
probability 1 − δ, then the chosen θ has F(θ) <= F̂ + ε/4 <= min F + ε. (The error of V̂ counts
twice: for the one chosen and for the best; and it is multiplied by H, so that n grows like H².)

*By their policies*: evaluate all and take the cheapest (`outcomes.py`). This needs no β, and is
what works in practice: between an H that is too small and one at which the penalty is exact a
minimiser of the surrogate can be worse than everything it was made from, and F does not see it.

The grid is cut into strands of neighbours. Along a strand, from the largest H down, a solver that
can starts from the last solution: what is nearly feasible is a good start for a smaller H, while
the minimiser of a smaller H may have run away (measured: docs/certificates.md). Strands are
independent, and go to the workers of joblib. What comes out does not depend on how many there are.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from dualplan.core.budgets import LISTABLE
from dualplan.core.checks import is_number, is_positive, require_seed
from dualplan.core.errors import InputError, unknown
from dualplan.core.intervals import Interval
from dualplan.core.status import ASSUMED, MEASURED, PROVED
from dualplan.core.types import Floats, Json
from dualplan.core.workers import check_jobs, in_order
from dualplan.dual import theorems
from dualplan.dual.certificates import ERRORS, loss_range
from dualplan.dual.grids import GRIDS, geometric_grid, paper_grid
from dualplan.dual.outcomes import Outcome, choose, judged
from dualplan.dual.problem import DualALP, Penalty
from dualplan.dual.problem import penalties as weigh
from dualplan.dual.solvers.contract import Solution
from dualplan.dual.solvers.solve import BUDGET, Watch, check_solver, solve
from dualplan.dual.solvers.subgradient import solve_by_theory
from dualplan.dual.violations import BERNSTEIN, RULES, Violations, measure_violations
from dualplan.evaluation.judge import Judge
from dualplan.exact.policy import evaluate_exact
from dualplan.models.criteria import Discounted
from dualplan.policies.contract import Policy
from dualplan.policies.tables import random_policy

POLICIES, RULE = CHOICES = ("policies", "rule")
THEORY = "theory"  # the paper's method with the theorem's step and number of steps, for ε/4
WARM = ("adaptive", "paper")  # solvers that can start from another solution
STRAND = 4  # neighbours that are solved one after another
Progress = Callable[[float, int, str], None]


# -- along the grid --------------------------------------------------------------------------------


def solve_along(
    problem: DualALP,
    penalties: Sequence[Penalty],
    *,
    solver: str,
    budget: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    known: Mapping[int, Solution] | None = None,
    done: Callable[[int, Solution], None] | None = None,
    watch: Watch | None = None,
) -> list[Solution]:
    """A solution for each penalty, in order; those `known` are not sought again, and `done` is told
    of the others.

    `watch` is told of the one in work, as by `solve`, if that is in this process.

    `jobs` is the number of workers; None is what the surrounding `joblib.parallel_config` says, or
    this process.
    """
    check_jobs(jobs)
    work = partial(_solved, solver, budget, seed, dict(options or {}))
    found = dict(known or {})
    tell = done or (lambda *_: None)
    order = sorted(range(len(penalties)), key=lambda k: -weigh(penalties[k])[1])
    strands = [order[k : k + STRAND] for k in range(0, len(order), STRAND)]
    if effective_n_jobs(jobs) == 1:
        work = partial(work, watch=watch)
        for strand in strands:
            _along(work, problem, penalties, strand, found, tell)
    else:
        tasks = [(strand, {k: _bare(found[k]) for k in strand if k in found}) for strand in strands]
        parts = in_order(partial(_strand, work, problem, penalties), tasks, jobs)
        for k, solution in ((k, part[k]) for part in parts for k in part if k not in found):
            found[k] = replace(solution, problem=problem)
            tell(k, found[k])
    return [found[k] for k in range(len(penalties))]


def _along(
    work: Callable[..., Solution],
    problem: DualALP,
    penalties: Sequence[Penalty],
    strand: Sequence[int],
    found: dict[int, Solution],
    tell: Callable[[int, Solution], None],
) -> None:
    """Solve the penalties of a strand that are not found yet, each from the one before."""
    for last, k in zip([None, *strand], strand, strict=False):
        if k not in found:
            found[k] = work(problem, penalties[k], None if last is None else found[last].theta)
            tell(k, found[k])


def _strand(
    work: Callable[..., Solution],
    problem: DualALP,
    penalties: Sequence[Penalty],
    task: tuple[Sequence[int], dict[int, Solution]],
) -> dict[int, Solution]:
    """A strand in a worker, which sends back solutions without the problem."""
    strand, found = task
    _along(work, problem, penalties, strand, found, lambda *_: None)
    return {k: _bare(solution) for k, solution in found.items()}


def _bare(solution: Solution) -> Solution:
    return replace(solution, problem=None)  # type: ignore[arg-type]


def _solved(
    solver: str,
    budget: int | None,
    seed: int,
    options: dict[str, Any],
    problem: DualALP,
    penalty: Penalty,
    start: Floats | None,
    watch: Watch | None = None,
) -> Solution:
    if solver == THEORY:
        return solve_by_theory(problem, penalty, samples=budget or BUDGET, seed=seed, **options)
    # the theorem is about walks from the projection of 0
    if solver in WARM and "epsilon" not in options:
        warm = {"start": start}
    else:
        warm = {}
    return solve(
        problem, penalty, method=solver, samples=budget, seed=seed, watch=watch, **warm, **options
    )


# -- the meta-algorithm ----------------------------------------------------------------------------


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
        errors = ERRORS * (float(problem.slope_errors @ np.abs(solution.theta)) + base_error)
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
    if isinstance(grid, str) and grid not in GRIDS:
        raise unknown("grid", grid, GRIDS)
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


@dataclass(frozen=True, eq=False)
class MetaSolution:
    """A solution chosen from a grid, with everything that was found on the way.

    `best` and `advantage` are of the choice by policies: the chosen one evaluated again, and paired
    with the next.
    """

    scheme: Scheme
    points: tuple[Point, ...]
    chosen: int
    choice: str
    best: Outcome | None
    advantage: Interval | None
    seconds: float

    @property
    def solution(self) -> Solution:
        """The chosen one."""
        return self.points[self.chosen].solution

    def to_json(self) -> Json:
        """As plain values."""
        return {
            **self.scheme.to_json(),
            "choice": self.choice,
            "chosen": self.chosen,
            "penalty": self.points[self.chosen].penalty,
            "advantage": None if self.advantage is None else self.advantage.to_json(),
            "seconds": round(self.seconds, 3),
            "points": [point.to_json() for point in self.points],
        }


def solve_meta(
    problem: DualALP,
    *,
    epsilon: float,
    delta: float = 0.05,
    beta: float | None = None,
    span: float | None = None,
    grid: str | Sequence[float] = "geometric",
    ratio: float = 2.0,
    choice: str = POLICIES,
    violations: str = BERNSTEIN,
    solver: str = "adaptive",
    budget: int | None = None,
    options: Mapping[str, Any] | None = None,
    draws: int = 2_000_000,
    judge: Judge | None = None,
    fallback: Policy | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> MetaSolution:
    """Solve along a grid of H, estimate the violations of each solution, and choose one.

    `epsilon`, `delta`, `beta`, `span`, `grid` and `ratio` make the grid (`make_scheme`). `choice`
    is `policies` (the cheapest, as `judge` evaluates them) or `rule` (the least F̂). `violations`
    is how V̂ is found, with at most `draws` draws a point: `bernstein`, `hoeffding` or `listed`.
    The solver `theory` is the paper's method with the steps that ε/4 asks for.
    """
    started = time.monotonic()
    options = dict(options or {})
    check_choice(choice, violations)
    check_jobs(jobs)
    require_seed(seed)
    if solver != THEORY:
        check_solver(solver, budget, options)
    scheme = make_scheme(
        problem, epsilon=epsilon, delta=delta, beta=beta, span=span, grid=grid, ratio=ratio
    )
    if solver == THEORY:
        options |= {"epsilon": epsilon / 4, "delta": scheme.failure}
    solutions = solve_along(
        problem,
        scheme.weights,
        solver=solver,
        budget=budget,
        seed=seed,
        options=options,
        jobs=jobs,
        done=counted(len(scheme.penalties), progress),
    )
    points = [
        scheme.look(k, s, rule=violations, draws=draws, seed=seed) for k, s in enumerate(solutions)
    ]
    chosen = least(points)
    best = None
    advantage = None
    if choice == POLICIES:
        judge = judge or Judge(seed=seed)
        outcomes = [judged(point.solution, judge, fallback) for point in points]
        points = [replace(point, outcome=o) for point, o in zip(points, outcomes, strict=True)]
        picked = choose(outcomes, judge)
        chosen = picked.chosen
        best = picked.best
        advantage = picked.advantage
    return MetaSolution(
        scheme, tuple(points), chosen, choice, best, advantage, time.monotonic() - started
    )


def counted(total: int, progress: Progress | None) -> Callable[[int, Solution], None]:
    """Tell of each solution how many there are by now."""
    numbers = itertools.count(1)

    def tell(_: int, solution: Solution) -> None:
        if progress is not None:
            progress(next(numbers), total, f"H = {solution.penalty[1]:.3g} solved")

    return tell


def least(points: Sequence[Point]) -> int:
    """The rule: where F̂ is least."""
    return min(range(len(points)), key=lambda k: points[k].estimate.value)


def check_choice(choice: str, violations: str) -> None:
    """Raise unless these are a way to choose and a rule for V̂."""
    if choice not in CHOICES:
        raise unknown("choice", str(choice), CHOICES)
    if violations not in RULES:
        raise unknown("rule", str(violations), RULES)


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
    if model.box.count is None or model.box.count > LISTABLE:
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
