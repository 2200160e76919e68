"""What comes of a plan.

For each penalty: solve, turn θ into a policy, evaluate the policy (exactly where states are few,
otherwise by simulation). Then, and only then, the certificate of the best, and a lower bound on
what any policy costs: by sweeps of value iteration from the potential where states can be listed,
on cells with quadratic functions in networks beyond, and otherwise from the least loss.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from dualplan.core.errors import within
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Json
from dualplan.core.workers import check_workers
from dualplan.dual.certificates import MEASURED_SPAN, Certificate, certify
from dualplan.dual.guarantees import Guarantees, guarantees
from dualplan.dual.ledger import Progress
from dualplan.dual.meta import AlongGrid, GridSolution, solve_grid
from dualplan.dual.outcomes import Outcome
from dualplan.dual.problem import DualALP
from dualplan.dual.scheme import Scheme
from dualplan.dual.solvers.contract import Solution
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.lower_bounds import LowerBound, largest_gap
from dualplan.models.criteria import Discounted
from dualplan.policies.contract import Policy
from dualplan.policies.named import named_policy
from dualplan.policies.saved import POLICY_FILE, save_policy
from dualplan.primal.best_bound import best_bound
from dualplan.search.contract import SearchResult
from dualplan.search.headline import DEFAULT_SEARCH_TIME, solve
from dualplan.search.loop import NO_BOUND
from dualplan.search.plans.families import STANDARD_FEATURES
from dualplan.search.plans.plan import Plan, asked
from dualplan.search.plans.problem import (
    both_penalties,
    check,
    check_not_a_search,
    make_problem,
    scheme_of,
    with_defaults,
)
from dualplan.search.plans.settings import open_run
from dualplan.search.plans.simulated import PlannedSimulated, run_simulated, wants_simulation

CERTIFICATE_DRAWS = 200_000  # constraints of each kind for the certificate
DRAWS_IF_INTERRUPTED = 20_000  # of them when a run was interrupted


def solve_by(
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
            time=DEFAULT_SEARCH_TIME if plan.time is None else plan.time,
            gap=plan.gap,
            method=plan.method or None,
            seed=plan.seed,
            folder=folder,
            resume=resume,
            progress=progress,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Planned(Shown):
    """What came of a plan: an outcome for each penalty, and the best.

    The best is the one whose policy costs least, as evaluated, among those that keep the limits or
    come nearest. Where it was chosen by simulation, it is simulated again with other random
    numbers, beside the runner-up: `outcomes.py`.
    """

    plan: Plan
    problem: DualALP
    along: GridSolution
    scheme: Scheme | None
    certificate: Certificate
    bound: LowerBound
    theory: Guarantees | None
    seconds: float
    interrupted: bool = False

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of each penalty."""
        return self.along.outcomes

    @property
    def best(self) -> Outcome:
        """What was chosen."""
        assert self.along.best is not None  # there is a judge
        return self.along.best

    @property
    def gap(self) -> float:
        """The largest part of the cost that another policy could save."""
        known = self.best.evaluation
        return largest_gap(known.lower, known.upper, self.bound.value)

    def to_json(self) -> Json:
        """The best outcome, with all that were tried."""
        constants = self.problem.constants
        points = self.along.points
        chosen = self.along.chosen
        advantage = self.along.advantage
        return {
            "model": self.problem.model.name,
            **self.problem.criterion.describe(),
            "features": len(self.problem.features),
            "sampling": self.plan.sampling,
            "constants": [constants.negative, constants.flow],
            "constants_known": constants.known,
            "radius": self.problem.radius,
            **self.best.to_json(),
            **({"penalty": points[chosen].penalty} if points else {}),
            "chosen": chosen,
            "advantage": None if advantage is None else advantage.to_json(),
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
            "tried": [tried.to_json() for tried in points or self.outcomes],
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
    workers: int | None = None,
    progress: Progress | None = None,
) -> Planned | PlannedSimulated:
    """Solve and evaluate for each penalty, in the form that the plan asks for.

    With a folder, what is done is kept there and not done again.
    """
    with plan.source.explained():
        plan = replace(plan, features=plan.features or STANDARD_FEATURES)
        check_not_a_search(plan)
        if wants_simulation(plan, asked(plan)[1]):
            return run_simulated(plan, folder=folder, resume=resume, progress=progress)
        return _run_plan(plan, folder, resume, workers, progress)


def _run_plan(
    plan: Plan, folder: str | None, resume: bool, workers: int | None, progress: Progress | None
) -> Planned:
    started = time.monotonic()
    criterion, model = asked(plan)
    judge = Judge(plan.evaluation, plan.steps, plan.confidence, plan.seed)
    check(plan, model, criterion, folder, resume)
    check_workers(workers)
    with within("fallback"):
        if plan.fallback is None:
            fallback = None
        else:
            fallback = named_policy(model, plan.fallback)
    problem = make_problem(plan, model, criterion)
    scheme = scheme_of(plan, problem)
    plan = with_defaults(plan, problem, scheme)
    run = open_run(plan, model, folder, resume)
    how = AlongGrid(
        method=str(plan.solver),
        samples=plan.samples,
        options=plan.options,
        seed=plan.seed,
        scheme=scheme,
        violation_samples=CERTIFICATE_DRAWS,
        choice=plan.choice,
        judge=judge,
        fallback=fallback,
    )
    penalties = [both_penalties(plan, h) for h in plan.penalty]
    along = solve_grid(problem, penalties, how, workers=workers, run=run, progress=progress)
    if progress is not None:
        progress(len(along.solutions), len(penalties), "certificate and lower bound")
    certificate, bound, whole = _proofs(plan, problem, along, fallback)
    result = Planned(
        plan,
        problem,
        along,
        scheme,
        certificate,
        bound,
        _theory(plan, problem, along.solutions[along.chosen], certificate, scheme),
        time.monotonic() - started,
        not whole,
    )
    if run is not None:
        save_policy(result.best.policy, run.folder / POLICY_FILE)
        run.save_result(result.to_json())
    return result


def _proofs(
    plan: Plan, problem: DualALP, along: GridSolution, fallback: Policy | None
) -> tuple[Certificate, LowerBound, bool]:
    """The certificate of what was chosen, a lower bound, and whether nothing was interrupted.

    After an interruption a few constraints are all that is looked at.
    """
    solution = along.solutions[along.chosen]
    if along.interrupted:
        return _certify(plan, problem, solution, fallback, DRAWS_IF_INTERRUPTED), NO_BOUND, False
    try:
        certificate = _certify(plan, problem, solution, fallback, CERTIFICATE_DRAWS)
        bound = best_bound(
            problem.model,
            problem.criterion,
            potentials=[problem.potential],
            sweeps=plan.sweeps,
            seed=plan.seed,
        )
    except KeyboardInterrupt:
        return _certify(plan, problem, solution, fallback, DRAWS_IF_INTERRUPTED), NO_BOUND, False
    return certificate, bound, True


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
