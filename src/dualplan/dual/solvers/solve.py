"""Solvers by name, with one budget: the number of constraints of each kind that may be drawn to
search with.

Fresh ones beyond the budget judge the result.

adaptive     stochastic subgradients with step sizes that adapt; no tuning
paper        the paper's projected method with averaged iterates; a step size (halved every so often
             if asked), or the
             theorem's for the given number of steps, or, with epsilon and delta, also the theorem's
             number of steps
sampled-lp   linear programs over two samples of drawn constraints; without a budget, as many as it
             takes
listed-lp    the linear program over all constraints of a model that can be enumerated
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dualplan.core.errors import InputError, unknown
from dualplan.core.streams import FIRST_WATCHED_SAMPLE
from dualplan.core.types import Floats
from dualplan.dual.problem import DualALP, Penalty, Value
from dualplan.dual.solvers.contract import Solution
from dualplan.dual.solvers.linear_program import solve_listed, solve_sampled
from dualplan.dual.solvers.subgradient import (
    gradient_bound,
    halving,
    solve_adaptive,
    solve_by_theory,
    solve_subgradient,
)

OPTIONS: dict[str, type] = {
    "batch": int,
    "step_size": float,
    "halve_every": int,
    "epsilon": float,
    "delta": float,
}
BUDGET = 2_000_000  # of the subgradient methods, unless another is given
WATCHED = ("adaptive", "paper")
# constraints that show how a method fares, far from those it draws
SHOWN = 20_000

Watch = Callable[[int, Value], None]
Averages = Callable[[int, Sequence[Floats]], None]


def solve(
    problem: DualALP,
    penalty: Penalty,
    *,
    solver: str = "adaptive",
    budget: int | None = None,
    seed: int = 0,
    start: Floats | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Solution:
    """Minimise the surrogate for one penalty H by a solver of the list above.

    A `start` is a θ that was found for a neighbouring penalty. The subgradient methods begin there;
    linear programs find their minimum without. `watch` is told by the subgradient methods how many
    samples were drawn so far, and the surrogate of the best weights, on a few others.
    """
    check_solver(solver, budget, options)
    if start is not None:
        start = problem.starting_point(start)
    if solver == "listed-lp":
        return replace(solve_listed(problem, penalty), seed=seed)
    more: dict[str, Any] = {}
    if watch is not None and solver in WATCHED:
        more["watch"] = _shown(problem, penalty, budget or BUDGET, seed, watch)
    return SOLVERS[solver](
        problem, penalty, budget=budget, seed=seed, start=start, **more, **options
    )


def _shown(problem: DualALP, penalty: Penalty, budget: int, seed: int, watch: Watch) -> Averages:
    """Of averages of iterates the surrogate of the best, on a few constraints of its own."""
    rows = problem.draw(max(1, min(SHOWN, budget // 20)), seed=seed, first=FIRST_WATCHED_SAMPLE)
    return lambda samples, thetas: watch(
        samples,
        min(
            (problem.value(theta, penalty, rows) for theta in thetas), key=lambda parts: parts.total
        ),
    )


def check_solver(solver: str, budget: int | None, options: Mapping[str, Any]) -> None:
    """Raise if a solver of this name does not take this budget and these options."""
    if solver not in SOLVERS:
        raise unknown("solver", str(solver), SOLVERS)
    known = [name for name in inspect.signature(SOLVERS[solver]).parameters if name in OPTIONS]
    for name, value in options.items():
        if not known:
            raise InputError(f"solver {solver!r} takes no options, got {name!r}.")
        if name not in known:
            raise unknown(f"option of solver {solver!r}", name, known)
        whole = OPTIONS[name] is int
        if whole:
            good = isinstance(value, int)
        else:
            good = isinstance(value, (int, float))
        if isinstance(value, bool) or not good or not 0 < value < math.inf:
            raise InputError(
                f"option {name!r} is a positive {'integer' if whole else 'number'}, got {value!r}."
            )
    if budget is not None and (
        isinstance(budget, bool) or not isinstance(budget, int) or budget < 1
    ):
        raise InputError(f"budget must be a positive integer, got {budget!r}.")
    if budget is not None and solver == "listed-lp":
        raise InputError("solver 'listed-lp' draws nothing; leave the budget out.")
    if options.get("batch", 1) > (budget or BUDGET):
        raise InputError(f"a batch of {options['batch']} exceeds the budget of {budget or BUDGET}.")


def _adaptive(
    problem: DualALP,
    penalty: Penalty,
    *,
    budget: int | None,
    seed: int,
    start: Floats | None,
    batch: int = 10,
    watch: Averages | None = None,
) -> Solution:
    return solve_adaptive(
        problem, penalty, samples=budget or BUDGET, batch=batch, seed=seed, start=start, watch=watch
    )


def _paper(
    problem: DualALP,
    penalty: Penalty,
    *,
    budget: int | None,
    seed: int,
    start: Floats | None,
    batch: int = 1,
    step_size: float | None = None,
    halve_every: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    watch: Averages | None = None,
) -> Solution:
    if (epsilon is None) != (delta is None):
        raise InputError("the theorem needs both epsilon and delta.")
    if epsilon is not None and delta is not None:
        if step_size is not None or batch != 1:
            raise InputError(
                "with epsilon and delta, step size and batch are the theorem's; leave them out."
            )
        if start is not None:
            raise InputError(
                "with epsilon and delta, steps begin at the projection of 0; leave start out."
            )
        return solve_by_theory(
            problem, penalty, epsilon=epsilon, delta=delta, budget=budget or BUDGET, seed=seed
        )
    steps = max((budget or BUDGET) // batch, 1)
    if step_size is None:
        step_size = problem.radius / (gradient_bound(problem, penalty) * steps**0.5)
    sizes = halving(step_size, halve_every or steps)
    return solve_subgradient(
        problem,
        penalty,
        steps=steps,
        step_size=sizes,
        batch=batch,
        seed=seed,
        start=start,
        watch=None if watch is None else lambda done, theta: watch(done * batch, [theta]),
    )


def _sampled(
    problem: DualALP,
    penalty: Penalty,
    *,
    budget: int | None,
    seed: int,
    start: Floats | None,  # noqa: ARG001 - as the others'
) -> Solution:
    if budget is None:
        return solve_sampled(problem, penalty, seed=seed)
    return solve_sampled(problem, penalty, samples=max(budget // 2, 1), seed=seed, enlarge=0)


SOLVERS: dict[str, Callable[..., Solution]] = {
    "adaptive": _adaptive,
    "paper": _paper,
    "sampled-lp": _sampled,
    "listed-lp": solve_listed,
}
