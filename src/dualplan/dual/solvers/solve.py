"""Methods by name, with one measure of their work: `samples`, the number of constraints of each
kind that may be drawn to search with.

Fresh ones beyond these judge the result.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from dualplan.core.checks import require_counts, require_positive, require_seed
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


class SolverOptions(TypedDict, total=False):
    """What the subgradient methods take beside samples and a seed."""

    batch: int
    step_size: float
    halve_every: int
    epsilon: float
    delta: float


SOLVER_OPTIONS: dict[str, type] = {
    "batch": int,
    "step_size": float,
    "halve_every": int,
    "epsilon": float,
    "delta": float,
}
DEFAULT_SAMPLES = 2_000_000  # of the subgradient methods, unless another is given
WATCHED_SOLVERS = ("adaptive", "paper")
# constraints that show how a method fares, far from those it draws
WATCHING_CONSTRAINTS = 20_000

Watch = Callable[[int, Value], None]
Averages = Callable[[int, Sequence[Floats]], None]


def solve(
    problem: DualALP,
    penalty: Penalty,
    *,
    method: str = "adaptive",
    samples: int | None = None,
    seed: int = 0,
    start: Floats | None = None,
    watch: Watch | None = None,
    **options: Unpack[SolverOptions],
) -> Solution:
    """Minimise the surrogate for one penalty H by a solver of the list above.

    A `start` is a θ that was found for a neighbouring penalty. The subgradient methods begin there;
    linear programs find their minimum without. `watch` is told by the subgradient methods how many
    samples were drawn so far, and the surrogate of the best weights, on a few others.
    """
    check_solver(method, samples, options)
    require_seed(seed)
    if start is not None:
        start = problem.starting_point(start)
    if method == "listed-lp":
        return replace(solve_listed(problem, penalty), seed=seed)
    more: dict[str, Any] = {}
    if watch is not None and method in WATCHED_SOLVERS:
        more["watch"] = _shown(problem, penalty, samples or DEFAULT_SAMPLES, seed, watch)
    return SOLVERS[method](
        problem, penalty, samples=samples, seed=seed, start=start, **more, **options
    )


def _shown(problem: DualALP, penalty: Penalty, budget: int, seed: int, watch: Watch) -> Averages:
    """Of averages of iterates the surrogate of the best, on a few constraints of its own."""
    rows = problem.draw(
        max(1, min(WATCHING_CONSTRAINTS, budget // 20)), seed=seed, first=FIRST_WATCHED_SAMPLE
    )
    return lambda samples, thetas: watch(
        samples,
        min(
            (problem.value(theta, penalty, rows) for theta in thetas), key=lambda parts: parts.total
        ),
    )


def check_solver(solver: str, samples: int | None, options: Mapping[str, Any]) -> None:
    """Raise if a solver of this name does not take this samples and these options."""
    if solver not in SOLVERS:
        raise unknown("solver", str(solver), SOLVERS)
    known = [
        name for name in inspect.signature(SOLVERS[solver]).parameters if name in SOLVER_OPTIONS
    ]
    for name, value in options.items():
        if not known:
            raise InputError(f"solver {solver!r} takes no options, got {name!r}.")
        if name not in known:
            raise unknown(f"option of solver {solver!r}", name, known)
        if SOLVER_OPTIONS[name] is int:
            require_counts(**{name: value})
        else:
            require_positive(**{name: value})
    if samples is not None:
        require_counts(samples=samples)
    if samples is not None and solver == "listed-lp":
        raise InputError("solver 'listed-lp' draws nothing; leave samples out.")
    most = samples or DEFAULT_SAMPLES
    if options.get("batch", 1) > most:
        raise InputError(f"a batch of {options['batch']} exceeds the {most} samples allowed.")


def _adaptive(
    problem: DualALP,
    penalty: Penalty,
    *,
    samples: int | None,
    seed: int,
    start: Floats | None,
    batch: int = 10,
    watch: Averages | None = None,
) -> Solution:
    return solve_adaptive(
        problem,
        penalty,
        samples=samples or DEFAULT_SAMPLES,
        batch=batch,
        seed=seed,
        start=start,
        watch=watch,
    )


def _paper(
    problem: DualALP,
    penalty: Penalty,
    *,
    samples: int | None,
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
            problem,
            penalty,
            epsilon=epsilon,
            delta=delta,
            samples=samples or DEFAULT_SAMPLES,
            seed=seed,
        )
    steps = max((samples or DEFAULT_SAMPLES) // batch, 1)
    if step_size is None:
        step_size = problem.radius / (gradient_bound(problem, penalty) * steps**0.5)
    sizes = halving(step_size, halve_every or steps)
    return solve_subgradient(
        problem,
        penalty,
        iterations=steps,
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
    samples: int | None,
    seed: int,
    start: Floats | None,  # noqa: ARG001 - as the others'
) -> Solution:
    if samples is None:
        return solve_sampled(problem, penalty, seed=seed)
    return solve_sampled(problem, penalty, samples=max(samples // 2, 1), seed=seed, enlarge=0)


SOLVERS: dict[str, Callable[..., Solution]] = {
    "adaptive": _adaptive,
    "paper": _paper,
    "sampled-lp": _sampled,
    "listed-lp": solve_listed,
}
