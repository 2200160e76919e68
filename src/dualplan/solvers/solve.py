"""Solvers by name, with one budget: the number of constraints of each kind that may be drawn.

adaptive     stochastic subgradients with step sizes that adapt; no tuning
paper        the paper's projected method with averaged iterates; a step size (halved every so often if asked), or the
             theorem's for the given number of steps, or, with epsilon and delta, also the theorem's number of steps
sampled-lp   linear programs over two samples of drawn constraints; without a budget, as many as it takes
listed-lp    the linear program over all constraints of a model that can be enumerated
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dualplan.errors import InputError, unknown
from dualplan.solvers.contract import Solution
from dualplan.solvers.linear_program import solve_listed, solve_sampled
from dualplan.solvers.subgradient import solve_adaptive, solve_by_theory, solve_subgradient, theory
from dualplan.surrogate import DualALP, Penalty

BUDGET = 2_000_000  # of the subgradient methods, unless another is given


def solve(
    problem: DualALP,
    penalty: Penalty,
    *,
    solver: str = "adaptive",
    budget: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Solution:
    """Minimise the surrogate for one penalty H by a solver of the list above."""
    if solver not in SOLVERS:
        raise unknown("solver", solver, SOLVERS)
    run = SOLVERS[solver]
    known = [name for name, p in inspect.signature(run).parameters.items() if p.kind is p.KEYWORD_ONLY]
    free = [name for name in known if name not in ("budget", "seed")]
    for name in options:
        if not free:
            raise InputError(f"solver {solver!r} takes no options, got {name!r}.")
        if name not in free:
            raise unknown(f"option of solver {solver!r}", name, free)
    if budget is not None and budget < 1:
        raise InputError(f"budget must be positive, got {budget!r}.")
    if solver == "listed-lp":
        if budget is not None:
            raise InputError("solver 'listed-lp' draws nothing; leave the budget out.")
        return replace(run(problem, penalty), seed=seed)
    return run(problem, penalty, budget=budget, seed=seed, **options)


def _adaptive(problem: DualALP, penalty: Penalty, *, budget: int | None, seed: int, batch: int = 10) -> Solution:
    return solve_adaptive(problem, penalty, samples=budget or BUDGET, batch=batch, seed=seed)


def _paper(
    problem: DualALP,
    penalty: Penalty,
    *,
    budget: int | None,
    seed: int,
    batch: int = 1,
    step_size: float | None = None,
    halve_every: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Solution:
    if (epsilon is None) != (delta is None):
        raise InputError("the theorem needs both epsilon and delta.")
    if epsilon is not None and delta is not None:
        if step_size is not None or batch != 1:
            raise InputError("with epsilon and delta, step size and batch are the theorem's; leave them out.")
        return solve_by_theory(problem, penalty, epsilon=epsilon, delta=delta, budget=budget or BUDGET, seed=seed)
    steps = max((budget or BUDGET) // batch, 1)
    if step_size is None:
        gradient = theory(problem, penalty, epsilon=1.0, delta=0.5).gradient
        step_size = problem.radius / (gradient * steps**0.5)
    first, every = step_size, halve_every or steps
    return solve_subgradient(
        problem, penalty, steps=steps, step_size=lambda t: first * 0.5 ** (t // every), batch=batch, seed=seed
    )


def _sampled(problem: DualALP, penalty: Penalty, *, budget: int | None, seed: int) -> Solution:
    if budget is None:
        return solve_sampled(problem, penalty, seed=seed)
    return solve_sampled(problem, penalty, samples=max(budget // 3, 1), seed=seed, enlarge=0)


SOLVERS: dict[str, Callable[..., Solution]] = {
    "adaptive": _adaptive,
    "paper": _paper,
    "sampled-lp": _sampled,
    "listed-lp": solve_listed,
}
