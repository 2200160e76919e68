"""Choosing H: the surrogate along a grid of penalties, and one of the solutions.

`scheme.py` says what is tried, H_1 < H_2 < ..., and what F is: c(H) + β/H with c(H) = min_θ ℓᵀu +
(H + H₀)·V.

*The rule* takes the k with the least F̂_k = ℓᵀu_k + (H_k + H₀)·V̂_k + β/H_k. If each solution is
within ε/4 of c(H_k), each (H_k + H₀)·V̂_k within ε/4 of the truth and ε' = ε/4, all of it with
probability 1 − δ, then the chosen θ has F(θ) <= F̂ + ε/4 <= min F + ε. (The error of V̂ counts
twice: for the one chosen and for the best; and it is multiplied by H, so that n grows like H².)

*By their policies*: evaluate all and take the cheapest (`outcomes.py`). This needs no β, and is
what works in practice: between an H that is too small and one at which the penalty is exact a
minimiser of the surrogate can be worse than everything it was made from, and F does not see it.

The grid is cut into strands of neighbours. Along a strand, from the largest H down, a solver that
can starts from the last solution: what is nearly feasible is a good start for a smaller H, while
the minimiser of a smaller H may have run away (measured: docs/measurements/certificates.md).
Strands are independent, and go to the workers of joblib. What comes out does not depend on how many
there are.

`solve_grid` does all of it, for `solve_meta` and for the plans of `dualplan solve`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from dualplan.core.checks import require_seed
from dualplan.core.errors import unknown
from dualplan.core.identity import digest
from dualplan.core.intervals import Interval
from dualplan.core.runs import Run
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Floats, Json
from dualplan.core.workers import check_workers, in_order
from dualplan.dual.ledger import Ledger, Progress
from dualplan.dual.outcomes import Outcome, choose, judged
from dualplan.dual.problem import DualALP, Penalty
from dualplan.dual.problem import penalties as weigh
from dualplan.dual.scheme import Point, Scheme, make_scheme
from dualplan.dual.solvers.contract import Solution
from dualplan.dual.solvers.solve import DEFAULT_SAMPLES, Watch, check_solver, solve
from dualplan.dual.solvers.subgradient import solve_by_theory
from dualplan.dual.violations import BERNSTEIN_RULE, VIOLATION_RULES
from dualplan.evaluation.judge import Judge
from dualplan.policies.contract import Policy

CHOICE_BY_POLICIES, CHOICE_BY_RULE = WAYS_TO_CHOOSE = ("policies", "rule")
THEORY_SOLVER = "theory"  # the paper's method with the theorem's step and number of steps, for ε/4
WARM_STARTED_SOLVERS = ("adaptive", "paper")  # solvers that can start from another solution
STRAND_LENGTH = 4  # neighbours that are solved one after another
STEPS_IF_INTERRUPTED = 200_000  # of simulation that are still taken
DRAWS_OF_FINGERPRINT = 200  # constraints by which a problem is known again


# -- along the grid --------------------------------------------------------------------------------


def solve_along(
    problem: DualALP,
    penalties: Sequence[Penalty],
    *,
    method: str,
    samples: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    known: Mapping[int, Solution] | None = None,
    done: Callable[[int, Solution], None] | None = None,
    watch: Watch | None = None,
) -> list[Solution]:
    """A solution for each penalty, in order; those `known` are not sought again, and `done` is told
    of the others.

    `watch` is told of the one in work, as by `solve`, if that is in this process.

    `workers` is the number of workers; None is what the surrounding `joblib.parallel_config` says,
    or this process.
    """
    check_workers(workers)
    work = partial(_solved, method, samples, seed, dict(options or {}))
    found = dict(known or {})
    tell = done or (lambda *_: None)
    order = sorted(range(len(penalties)), key=lambda k: -weigh(penalties[k])[1])
    strands = [order[k : k + STRAND_LENGTH] for k in range(0, len(order), STRAND_LENGTH)]
    if effective_n_jobs(workers) == 1:
        work = partial(work, watch=watch)
        for strand in strands:
            _along(work, problem, penalties, strand, found, tell)
    else:
        tasks = [(strand, {k: _bare(found[k]) for k in strand if k in found}) for strand in strands]
        parts = in_order(partial(_strand, work, problem, penalties), tasks, workers)
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
    method: str,
    samples: int | None,
    seed: int,
    options: dict[str, Any],
    problem: DualALP,
    penalty: Penalty,
    start: Floats | None,
    watch: Watch | None = None,
) -> Solution:
    if method == THEORY_SOLVER:
        return solve_by_theory(
            problem, penalty, samples=samples or DEFAULT_SAMPLES, seed=seed, **options
        )
    # the theorem is about walks from the projection of 0
    warm: dict[str, Any] = {}
    if method in WARM_STARTED_SOLVERS and "epsilon" not in options:
        warm["start"] = start
    return solve(
        problem, penalty, method=method, samples=samples, seed=seed, watch=watch, **warm, **options
    )


# -- solve, evaluate, estimate, choose -------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AlongGrid:
    """How to go along a grid: the method, how its solutions are judged, and by what one is chosen.

    With a `scheme` F is estimated at each H, from at most `violation_samples` draws by the rule
    `violations`. Without a `judge` policies are not evaluated, and the choice is by the rule.
    """

    method: str
    samples: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    scheme: Scheme | None = None
    violations: str = BERNSTEIN_RULE
    violation_samples: int = 2_000_000
    choice: str = CHOICE_BY_POLICIES
    judge: Judge | None = None
    fallback: Policy | None = None


@dataclass(frozen=True, eq=False)
class GridSolution:
    """What was found along a grid, in the order of the penalties, and which of it was chosen.

    There are `points` if there is a scheme, and `outcomes` and the `best` if there is a judge. If
    it was `interrupted`, there are fewer of them than penalties.
    """

    solutions: tuple[Solution, ...]
    outcomes: tuple[Outcome, ...]
    points: tuple[Point, ...]
    chosen: int
    best: Outcome | None
    advantage: Interval | None
    interrupted: bool


def solve_grid(
    problem: DualALP,
    penalties: Sequence[Penalty],
    how: AlongGrid,
    *,
    workers: int | None = None,
    run: Run | None = None,
    progress: Progress | None = None,
) -> GridSolution:
    """Solve for each penalty, evaluate the policies, estimate F, and choose one.

    What is solved is kept in the `run` and not solved again. After Ctrl-C the best of what there is
    by then is chosen, by short evaluations; if there is nothing yet, `KeyboardInterrupt` goes on.
    """
    ledger = Ledger(
        problem,
        penalties,
        method=how.method,
        samples=how.samples,
        seed=how.seed,
        run=run,
        progress=progress,
    )
    _solve_all(ledger, how, workers)
    places = sorted(ledger.found)
    judge = how.judge
    whole = ledger.whole
    outcomes: tuple[Outcome, ...] = ()
    if judge is not None:
        if not whole:  # quickly: what was found is to be shown, not to be proved
            judge = replace(judge, steps=min(judge.steps, STEPS_IF_INTERRUPTED))
        outcomes = _evaluate_all(ledger, judge, how.fallback)
        places = places[: len(outcomes)]
    points = _points(how, places, [ledger.found[k] for k in places], outcomes)
    if how.choice == CHOICE_BY_RULE or judge is None:
        chosen = least(points)
        best = outcomes[chosen] if outcomes else None
        advantage = None
    else:
        picked = choose(outcomes, judge)
        chosen = picked.chosen
        best = picked.best
        advantage = picked.advantage
    evaluated = [*outcomes, *([] if best is None else [best])]
    cut = any(outcome.evaluation.status is Status.INTERRUPTED for outcome in evaluated)
    interrupted = cut or len(places) < len(penalties)
    solutions = tuple(ledger.found[k] for k in places)
    return GridSolution(solutions, outcomes, points, chosen, best, advantage, interrupted)


def _solve_all(ledger: Ledger, how: AlongGrid, workers: int | None) -> None:
    """Solve for the penalties that are left, until it is interrupted."""
    ledger.begin()
    try:
        solve_along(
            ledger.problem,
            ledger.penalties,
            method=how.method,
            samples=how.samples,
            seed=how.seed,
            options=how.options,
            workers=workers,
            known=dict(ledger.found),
            done=ledger.done,
            watch=ledger.watch,
        )
    except KeyboardInterrupt:
        if not ledger.found:
            raise


def _evaluate_all(ledger: Ledger, judge: Judge, fallback: Policy | None) -> tuple[Outcome, ...]:
    """What becomes of the policies, until it is interrupted."""
    outcomes: list[Outcome] = []
    for k in sorted(ledger.found):
        solution = ledger.found[k]
        ledger.tell(
            f"evaluating the policy of H = {solution.penalty[1]:.3g}, {len(outcomes) + 1} of "
            f"{len(ledger.found)}"
        )
        try:
            outcomes.append(judged(solution, judge, fallback))
        except KeyboardInterrupt:
            if not outcomes:
                raise
            break
        if outcomes[-1].evaluation.status is Status.INTERRUPTED:
            break
    return tuple(outcomes)


def _points(
    how: AlongGrid,
    places: Sequence[int],
    solutions: Sequence[Solution],
    outcomes: Sequence[Outcome],
) -> tuple[Point, ...]:
    """F̂ at each H of a grid made by theory, with what became of its policy."""
    if how.scheme is None:
        return ()
    points = [
        how.scheme.look(
            k, solution, rule=how.violations, draws=how.violation_samples, seed=how.seed
        )
        for k, solution in zip(places, solutions, strict=True)
    ]
    if not outcomes:
        return tuple(points)
    return tuple(replace(p, outcome=o) for p, o in zip(points, outcomes, strict=True))


def least(points: Sequence[Point]) -> int:
    """The rule: where F̂ is least."""
    return min(range(len(points)), key=lambda k: points[k].estimate.value)


# -- the meta-algorithm ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class MetaSolution(Shown):
    """A solution chosen from a grid, with everything that was found on the way.

    `best` and `advantage` are of the choice by policies: the chosen one evaluated again, and paired
    with the next. If it was `interrupted`, there are fewer points than penalties.
    """

    scheme: Scheme
    points: tuple[Point, ...]
    chosen: int
    choice: str
    best: Outcome | None
    advantage: Interval | None
    seconds: float
    interrupted: bool = False

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
            "interrupted": self.interrupted,
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
    choice: str = CHOICE_BY_POLICIES,
    violations: str = BERNSTEIN_RULE,
    method: str = "adaptive",
    samples: int | None = None,
    options: Mapping[str, Any] | None = None,
    violation_samples: int = 2_000_000,
    judge: Judge | None = None,
    fallback: Policy | None = None,
    seed: int = 0,
    workers: int | None = None,
    folder: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> MetaSolution:
    """Solve along a grid of H, estimate the violations of each solution, and choose one.

    `epsilon`, `delta`, `beta`, `span`, `grid` and `ratio` make the grid (`make_scheme`). `choice`
    is `policies` (the cheapest, as `judge` evaluates them) or `rule` (the least F̂). `violations`
    is how V̂ is found, with at most `violation_samples` draws a point: `bernstein`, `hoeffding` or
    `listed`. The method `theory` is the paper's with the steps that ε/4 asks for. What is solved is
    kept in the `folder`, and with `resume` not solved again.
    """
    started = time.monotonic()
    options = dict(options or {})
    check_choice(choice, violations)
    check_workers(workers)
    require_seed(seed)
    if method != THEORY_SOLVER:
        check_solver(method, samples, options)
    scheme = make_scheme(
        problem, epsilon=epsilon, delta=delta, beta=beta, span=span, grid=grid, ratio=ratio
    )
    if method == THEORY_SOLVER:
        options |= {"epsilon": epsilon / 4, "delta": scheme.failure}
    if choice == CHOICE_BY_RULE:
        judge = None
    elif judge is None:
        judge = Judge(seed=seed)
    how = AlongGrid(
        method,
        samples,
        options,
        seed,
        scheme,
        violations,
        violation_samples,
        choice,
        judge,
        fallback,
    )
    run = None
    if folder is not None:
        run = Run(folder, _settings(problem, how), resume=resume)
    found = solve_grid(problem, scheme.weights, how, workers=workers, run=run, progress=progress)
    result = MetaSolution(
        scheme,
        found.points,
        found.chosen,
        choice,
        found.best,
        found.advantage,
        time.monotonic() - started,
        found.interrupted,
    )
    if run is not None:
        run.save_result(result.to_json())
    return result


def _settings(problem: DualALP, how: AlongGrid) -> Json:
    """What solutions depend on; the problem is known by a few of its constraints."""
    theta = np.linspace(1.0, 2.0, len(problem.features))
    parts = problem.value(theta, 1.0, problem.draw(DRAWS_OF_FINGERPRINT))
    scheme = how.scheme
    assert scheme is not None
    return {
        "task": "meta",
        "digest": problem.model.digest,
        "problem": digest(problem.slope, problem.radius, *astuple(parts)),
        **problem.criterion.describe(),
        "penalty": scheme.weights,
        "method": how.method,
        "options": dict(how.options),
        "samples": how.samples,
        "seed": how.seed,
    }


def check_choice(choice: str, violations: str) -> None:
    """Raise unless these are a way to choose and a rule for V̂."""
    if choice not in WAYS_TO_CHOOSE:
        raise unknown("choice", str(choice), WAYS_TO_CHOOSE)
    if violations not in VIOLATION_RULES:
        raise unknown("rule", str(violations), VIOLATION_RULES)
