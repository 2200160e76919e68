"""What comes of a plan.

For each penalty: solve, turn θ into a policy, evaluate the policy (exactly where states are few,
otherwise by simulation). Then, and only then, the certificate of the best, and a lower bound on
what any policy costs: by sweeps of value iteration from the potential where states can be listed,
on cells with quadratic functions in networks beyond, and otherwise from the least loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dualplan.core.errors import within
from dualplan.core.runs import Run
from dualplan.core.status import Status
from dualplan.core.types import Json
from dualplan.core.workers import check_jobs
from dualplan.dual.certificates import MEASURED_SPAN, Certificate, certify
from dualplan.dual.guarantees import Guarantees, guarantees
from dualplan.dual.meta import RULE, Point, Progress, Scheme, least, solve_along
from dualplan.dual.outcomes import Choice, Outcome, choose, judged
from dualplan.dual.problem import DualALP, Value
from dualplan.dual.solvers.contract import Solution
from dualplan.dual.solvers.solve import BUDGET
from dualplan.dual.violations import BERNSTEIN
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.lower_bounds import LowerBound, largest_gap
from dualplan.models.criteria import Discounted
from dualplan.policies.contract import Policy
from dualplan.policies.named import named_policy
from dualplan.policies.saved import POLICY, save_policy
from dualplan.primal.best_bound import best_bound
from dualplan.search.contract import SearchResult
from dualplan.search.loop import NO_BOUND, TIME, solve
from dualplan.search.plans.checkpoint import as_arrays, known_solutions, open_run
from dualplan.search.plans.families import STANDARD
from dualplan.search.plans.plan import Plan, asked
from dualplan.search.plans.problem import (
    both_penalties,
    check,
    make_problem,
    scheme_of,
    with_defaults,
)

DRAWS = 200_000  # constraints of each kind for the certificate
SHORT = 200_000  # steps of simulation that are still taken when a run was interrupted
FEW = 20_000  # and constraints that are still drawn


def improve_by(
    plan: Plan, *, folder: str | None = None, resume: bool = False, progress: Any = None
) -> SearchResult:
    """The best policy in the plan's time."""
    with plan.source.explained():
        criterion, model = asked(plan)
        policies = []
        for k, name in enumerate(plan.policies):
            with within("policies", k):
                policies.append(named_policy(model, name))
        return solve(
            model,
            criterion,
            policies=policies,
            limits=plan.limits,
            time=TIME if plan.time is None else plan.time,
            gap=plan.gap,
            seed=plan.seed,
            folder=folder,
            resume=resume,
            progress=progress,
        )


@dataclass(frozen=True, eq=False)
class Planned:
    """What came of a plan: an outcome for each penalty, and the best.

    The best is the one whose policy costs least, as evaluated, among those that keep the limits or
    come nearest. Where it was chosen by simulation, it is simulated again with other random
    numbers, beside the runner-up: `outcomes.py`.
    """

    plan: Plan
    problem: DualALP
    outcomes: tuple[Outcome, ...]
    choice: Choice
    certificate: Certificate
    bound: LowerBound
    scheme: Scheme | None
    points: tuple[Point, ...]
    theory: Guarantees | None
    seconds: float
    interrupted: bool = False

    @property
    def best(self) -> Outcome:
        """What was chosen."""
        return self.choice.best

    @property
    def gap(self) -> float:
        """The largest part of the cost that another policy could save."""
        known = self.best.evaluation
        return largest_gap(known.lower, known.upper, self.bound.value)

    def to_json(self) -> Json:
        """The best outcome, with all that were tried."""
        constants = self.problem.constants
        return {
            "model": self.problem.model.name,
            **self.problem.criterion.describe(),
            "features": len(self.problem.features),
            "sampling": self.plan.sampling,
            "constants": [constants.negative, constants.flow],
            "constants_known": constants.known,
            "radius": self.problem.radius,
            **self.best.to_json(),
            **({"penalty": self.points[self.choice.chosen].penalty} if self.points else {}),
            "chosen": self.choice.chosen,
            "advantage": None if self.choice.advantage is None else self.choice.advantage.to_json(),
            "lower_bound": self.bound.value,
            "lower_bound_kind": self.bound.kind,
            "lower_bound_sweeps": self.bound.sweeps,
            "lower_bound_functions": self.bound.functions,
            "lower_bound_assumed": self.bound.assumed,
            "gap": self.gap,
            "certificate": self.certificate.to_json(),
            "theory": None if self.theory is None else self.theory.to_json(),
            "seconds": round(self.seconds, 3),
            **(self._interrupted() if self.interrupted else {}),
            **(
                {} if self.scheme is None else {"choice": self.plan.choice, **self.scheme.to_json()}
            ),
            "tried": [tried.to_json() for tried in self.points or self.outcomes],
        }

    def _interrupted(self) -> Json:
        """The best of what there is; nothing is said of the penalties that are left."""
        tried = {outcome.solution.penalty[1] for outcome in self.outcomes}
        return {
            "status": str(Status.INTERRUPTED),
            "advice": Status.INTERRUPTED.advice,
            "penalties_left": [
                h for h in self.plan.penalty if both_penalties(self.plan, h)[1] not in tried
            ],
        }


def run_plan(
    plan: Plan,
    *,
    folder: str | None = None,
    resume: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Planned:
    """Solve and evaluate for each penalty.

    With a folder, what is done is kept there and not done again.
    """
    with plan.source.explained():
        return _run_plan(plan, folder, resume, jobs, progress)


def _run_plan(
    plan: Plan, folder: str | None, resume: bool, jobs: int | None, progress: Progress | None
) -> Planned:
    started = time.monotonic()
    plan = replace(plan, features=plan.features or STANDARD)
    criterion, model = asked(plan)
    judge = Judge(plan.evaluation, plan.steps, plan.confidence, plan.seed)
    check(plan, model, criterion, folder, resume)
    check_jobs(jobs)
    with within("fallback"):
        if plan.fallback is None:
            fallback = None
        else:
            fallback = model.policy(plan.fallback)
    problem = make_problem(plan, model, criterion)
    scheme = scheme_of(plan, problem)
    plan = with_defaults(plan, problem, scheme)
    run = open_run(plan, model, folder, resume)
    tell = progress or (lambda *_: None)
    found, whole = _solutions(plan, problem, run, jobs, tell)
    total = len(plan.penalty)
    if not whole:  # quickly: what was found is to be shown, not to be proved
        judge = replace(judge, steps=min(judge.steps, SHORT))
    outcomes, all_judged = _outcomes(
        found, judge, fallback, lambda words: tell(len(found), total, words)
    )
    points = _points(plan, scheme, sorted(found), outcomes)
    if plan.choice == RULE:
        choice = Choice(k := least(points), outcomes[k], None)
    else:
        choice = choose(outcomes, judge)
    whole = whole and all_judged and choice.best.evaluation.status is not Status.INTERRUPTED
    tell(len(found), total, "certificate and lower bound")
    bound = NO_BOUND
    try:
        certificate = _certify(
            plan, problem, choice.best.solution, fallback, DRAWS if whole else FEW
        )
        if whole:
            bound = best_bound(
                model, criterion, potentials=[problem.potential], sweeps=plan.sweeps, seed=plan.seed
            )
    except KeyboardInterrupt:
        whole = False
        certificate = _certify(plan, problem, choice.best.solution, fallback, FEW)
    result = Planned(
        plan,
        problem,
        outcomes,
        choice,
        certificate,
        bound,
        scheme,
        points,
        _theory(plan, problem, choice.best.solution, certificate, scheme),
        time.monotonic() - started,
        not whole,
    )
    if run is not None:
        save_policy(result.best.policy, run.folder / POLICY)
        run.save_result(result.to_json())
    return result


def _solutions(
    plan: Plan, problem: DualALP, run: Run | None, jobs: int | None, tell: Progress
) -> tuple[dict[int, Solution], bool]:
    """A solution for each penalty, by its place, and whether they are all there.

    Each is kept once it is found.
    """
    grid = plan.penalty
    if run is None:
        kept = {}
    else:
        kept = run.checkpoint() or {}
    found = known_solutions(plan, problem, grid, kept)
    begun = time.monotonic()

    def done(k: int, solution: Solution) -> None:
        nonlocal begun
        found[k] = solution
        if run is not None:
            kept.update(as_arrays(solution))
            run.save_checkpoint(kept)
            run.trace(solution.to_json())
        tell(len(found), len(grid), f"{_solved(solution)}{_in_work(grid, found)}")
        begun = time.monotonic()

    def watch(samples: int, parts: Value) -> None:
        pace = samples / max(time.monotonic() - begun, 1e-9)
        words = (
            f"{_in_work(grid, found).removeprefix('; ')}: {_so_far(parts)}, {pace:,.0f} samples/s"
        )
        tell(len(found) + samples / (plan.samples or BUDGET), len(grid), words)

    tell(len(found), len(grid), _in_work(grid, found).removeprefix("; "))
    try:
        solve_along(
            problem,
            [both_penalties(plan, h) for h in grid],
            solver=str(plan.method),
            budget=plan.samples,
            seed=plan.seed,
            options=plan.options,
            jobs=jobs,
            known=dict(found),
            done=done,
            watch=watch,
        )
    except KeyboardInterrupt:
        if not found:
            raise
    return found, len(found) == len(grid)


def _solved(solution: Solution) -> str:
    """A solution in words."""
    drawn = solution.samples / max(solution.seconds, 1e-9)
    if solution.samples:
        pace = f", {drawn:,.0f} samples/s"
    else:
        pace = ""
    return f"H = {solution.penalty[1]:.3g} {solution.status}: {_so_far(solution.parts)}{pace}"


def _so_far(parts: Value) -> str:
    return f"objective {parts.objective:.5g}, violation {parts.negative + parts.flow:.3g}"


def _in_work(grid: Sequence[float], found: Mapping[int, Solution]) -> str:
    """The penalty that comes next; the largest come first."""
    left = [h for k, h in enumerate(grid) if k not in found]
    if left:
        return f"; H = {max(left):.3g} in work"
    return ""


def _outcomes(
    found: Mapping[int, Solution],
    judge: Judge,
    fallback: Policy | None,
    tell: Callable[[str], None],
) -> tuple[tuple[Outcome, ...], bool]:
    """What becomes of the policies, and whether all were evaluated in full."""
    outcomes: list[Outcome] = []
    for k in sorted(found):
        tell(
            f"evaluating the policy of H = {found[k].penalty[1]:.3g}, {len(outcomes) + 1} of "
            f"{len(found)}"
        )
        try:
            outcomes.append(judged(found[k], judge, fallback))
        except KeyboardInterrupt:
            if not outcomes:
                raise
            return tuple(outcomes), False
        if outcomes[-1].evaluation.status is Status.INTERRUPTED:
            return tuple(outcomes), False
    return tuple(outcomes), True


def _certify(
    plan: Plan, problem: DualALP, solution: Solution, fallback: Policy | None, draws: int
) -> Certificate:
    return certify(
        problem,
        solution,
        fallback=fallback,
        span=plan.span,
        confidence=plan.confidence,
        samples=draws,
    )


def _points(
    plan: Plan, scheme: Scheme | None, places: Sequence[int], outcomes: Sequence[Outcome]
) -> tuple[Point, ...]:
    """F̂ at each H of a grid made by theory, with what became of its policy."""
    if scheme is None:
        return ()
    both = list(
        zip(places, outcomes, strict=False)
    )  # of a run that was interrupted there are fewer outcomes
    looks = (
        scheme.look(k, o.solution, rule=BERNSTEIN, draws=DRAWS, seed=plan.seed) for k, o in both
    )
    return tuple(replace(point, outcome=o) for point, (_, o) in zip(looks, both, strict=True))


def _theory(
    plan: Plan,
    problem: DualALP,
    solution: Solution,
    certificate: Certificate,
    scheme: Scheme | None,
) -> Guarantees | None:
    """What the theorems say at the chosen H, if the plan names an ε.

    By the span that was measured unless one is given: measured of the one policy, assumed of those
    it is compared with.
    """
    if plan.epsilon is None:
        return None
    span = plan.span
    if span is None and MEASURED_SPAN in certificate:
        span = certificate[MEASURED_SPAN].value
    if span is None and not isinstance(problem.criterion, Discounted):
        return None  # several recurrent classes: the certificate says so
    return guarantees(
        problem,
        solution.penalty[1],
        epsilon=plan.epsilon,
        delta=plan.delta,
        beta=plan.beta if scheme is None else scheme.beta,
        span=span,
        offset=None if scheme is None else scheme.offset,
        seed=plan.seed,
    )
