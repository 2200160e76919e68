"""The forward-only form of the dual program from a plan: `form = "simulated"`.

Features are ratios against a reference that is simulated (`dual/simulated/`): no densities, no
predecessors and no list of states, so it is for every model. The reference is a policy that takes a
part of its actions from the others (`explore`), so that all ratios exist. The standard ones are

    π_k/π_ref on cells        π_k the cheapest heuristics and the random policy, cells cut at the
                              medians of the coordinates that vary most where the first one goes

and others are tables of the family `ratios`, each with policies and cuts of coordinates. The cells
of the first table are those of the test functions, and of the anchor. What is known of a solution
are estimates on transitions that no solver has seen; the policies are judged as all others. With
the standard ratios the first heuristic's values are the potential: exact where states are few, and
otherwise quadratic, fitted to its transitions, a projection that may mislead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualplan.core.errors import InputError, ModelError, unknown, within
from dualplan.core.intervals import Interval
from dualplan.core.runs import Run
from dualplan.core.shown import Shown
from dualplan.core.status import ASSUMED, STATISTICAL, Status
from dualplan.core.streams import FIXED_SEED, SeedBit
from dualplan.core.types import Floats, Json
from dualplan.dual.combine import EVENT_COORDINATE, NEGATIVE_PART_FACTOR, PENALTY_FACTORS
from dualplan.dual.features.ratios import Ratios, concat_ratios, portfolio
from dualplan.dual.ledger import Progress
from dualplan.dual.simulated import (
    SimulatedALP,
    SimulatedSolution,
    fitted_potential,
    solve_simulated,
)
from dualplan.evaluation.evaluate import compare
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.lower_bounds import LowerBound, largest_gap
from dualplan.evaluation.results import Evaluation
from dualplan.evaluation.visits import Visits
from dualplan.models.contract import Model, few_states
from dualplan.models.criteria import Criterion
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy
from dualplan.policies.mixed import exploring
from dualplan.policies.named import named_policy
from dualplan.policies.saved import POLICY_FILE, save_policy
from dualplan.policies.tables import random_policy
from dualplan.primal.best_bound import best_bound
from dualplan.search.loop import NO_BOUND
from dualplan.search.plans import kinds
from dualplan.search.plans.families import BEST_HEURISTIC, STANDARD_FEATURES
from dualplan.search.plans.plan import (
    ANCHORED,
    MEANS,
    SIMULATED_LP,
    SIMULATED_SADDLE,
    TESTS_BY_NAME,
    Plan,
    asked,
)
from dualplan.search.plans.settings import open_run
from dualplan.search.plans.standard import ranked, values_of
from dualplan.values.basis import monomials
from dualplan.values.functions import StateFunction
from dualplan.values.partitions import Partition, cells
from dualplan.values.test_functions import Witnesses, concat, polynomials
from dualplan.values.test_functions import cells as on_cells

RATIOS_FAMILY = "ratios"
MOST_PORTFOLIO = 4  # heuristics of the standard ratios, beside the random policy
MOST_MEDIANS = 5  # coordinates that are cut at their medians
CELL_VISITS = 20_000  # simulated states by which they are
FITTED_DEGREE = 2  # of the monomials that a potential is fitted with
MOST_FITTED_FUNCTIONS = 300
FITTED_SAMPLES = 100_000
METHODS_OF_FORM = {SIMULATED_LP: "lp", SIMULATED_SADDLE: "saddle"}
OF_THE_OTHER_FORM = ("base", "weights", "limits", "grid", "epsilon", "beta", "fallback")


# -- the problem -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Parts:
    """Policies and the cells on which each of them has a ratio."""

    policies: list[Policy]
    partition: Partition


def make_simulated(plan: Plan, model: Model, criterion: Criterion) -> SimulatedALP:
    """The ratios, the test functions and the reference of a plan."""
    if plan.features == STANDARD_FEATURES:
        parts = [_standard(model, criterion)]
    else:
        parts = _given(plan.features, model)
    reference = _reference(plan, model, criterion, parts)
    ratios: Ratios = concat_ratios(
        *(portfolio(reference, part.policies, part.partition) for part in parts)
    )
    first = parts[0].partition
    means = plan.outcomes == MEANS
    if plan.outcomes is None:
        means = _lists_next(model)
    more: dict[str, Any] = {}
    if plan.samples is not None:
        more["samples"] = plan.samples
    if plan.radius is not None:
        more["radius"] = plan.radius
    return SimulatedALP(
        ratios,
        _tests(plan, model, first),
        criterion,
        every=plan.every,
        warm_up=plan.warm_up,
        potential=_potential(plan, model, criterion),
        anchor=first if plan.anchor == ANCHORED else None,
        expected=means,
        seed=plan.seed,
        **more,
    )


def _lists_next(model: Model) -> bool:
    return not isinstance(model, SimulatorModel) and model.has_forward


def _tests(plan: Plan, model: Model, partition: Partition) -> Witnesses:
    """Functions that are constant on the cells, and polynomials if they are asked for."""
    degree = TESTS_BY_NAME[plan.tests]
    if degree == 0:
        return on_cells(partition)
    return concat(on_cells(partition), polynomials(model, degree))


def _potential(plan: Plan, model: Model, criterion: Criterion) -> StateFunction | None:
    """The values of a policy: over all states, or, with the standard ratios where these are not
    few, fitted to its transitions.
    """
    if plan.potential is None and plan.features != STANDARD_FEATURES:
        return None
    with within("potential"):
        if plan.potential in (None, BEST_HEURISTIC):
            policy = ranked(model, criterion)[0]
        else:
            policy = named_policy(model, str(plan.potential))
        if few_states(model):
            return _values(plan, model, policy, criterion)
    return _fitted(plan, model, policy, criterion)


def _values(plan: Plan, model: Model, policy: Policy, criterion: Criterion) -> StateFunction | None:
    try:
        return values_of(model, policy, criterion)
    except ModelError:  # several recurrent classes
        if plan.potential is None:
            return None
        raise


def _fitted(plan: Plan, model: Model, policy: Policy, criterion: Criterion) -> StateFunction | None:
    """By least-squares temporal differences, if the functions are few enough."""
    basis = monomials(model, FITTED_DEGREE)
    if len(basis) > MOST_FITTED_FUNCTIONS:
        return None
    return fitted_potential(
        policy,
        basis,
        criterion,
        samples=FITTED_SAMPLES,
        expected=_lists_next(model),
        seed=plan.seed,
    )


def _reference(plan: Plan, model: Model, criterion: Criterion, parts: Sequence[_Parts]) -> Policy:
    """The policy that is named, or the cheapest heuristic, with a share of what the others do."""
    with within("reference"):
        if plan.reference is None:
            own = ranked(model, criterion)[0]
        else:
            own = named_policy(model, plan.reference)
    others = list({p.digest: p for part in parts for p in part.policies}.values())
    return exploring(own, plan.explore, [p for p in others if p.digest != own.digest] or None)


def _standard(model: Model, criterion: Criterion) -> _Parts:
    """The cheapest heuristics and the random policy, on cells cut at medians."""
    chosen = ranked(model, criterion)[:MOST_PORTFOLIO]
    chance = random_policy(model)
    if all(policy.digest != chance.digest for policy in chosen):
        chosen.append(chance)
    visits = Visits(model, chosen[0], criterion, CELL_VISITS, FIXED_SEED)
    return _Parts(chosen, _cut_at_medians(model, visits.draw(CELL_VISITS, FIXED_SEED)))


def _cut_at_medians(model: Model, states: Any) -> Partition:
    """Coordinates that vary most, each cut where the share of what lies below is nearest to a
    half.
    """
    spreads = states.std(axis=0) / np.maximum(np.abs(states).max(axis=0), 1)
    cuts: dict[str | int, list[int]] = {}
    for i in np.argsort(-spreads, kind="stable")[:MOST_MEDIANS]:
        levels, counts = np.unique(states[:, i], return_counts=True)
        if levels.size > 1 and model.coordinates[i] != EVENT_COORDINATE:
            below = np.cumsum(counts)[:-1] / counts.sum()
            cuts[int(i)] = [int(levels[1 + int(np.argmin(np.abs(below - 0.5)))])]
    return cells(model, cuts)


def _given(tables: Any, model: Model) -> list[_Parts]:
    """Tables of the family `ratios`."""
    if isinstance(tables, str):
        raise InputError(
            f"the simulated form has ratios for features; write {STANDARD_FEATURES!r}, or tables "
            f"of the family {RATIOS_FAMILY!r}.",
            at=("features",),
        )
    found = []
    for k, table in enumerate(tables):
        with within("features", k):
            found.append(_table(dict(table), model))
    return found


def _table(entry: dict[str, Any], model: Model) -> _Parts:
    name = entry.pop("family", None)
    if name != RATIOS_FAMILY:
        raise InputError(
            f"the simulated form has features of the family {RATIOS_FAMILY!r}, got {name!r}.",
            at=("family",),
        )
    known = {"policies": kinds.NAMES, "cuts": kinds.CUTS_BY_COORDINATE}
    for key, value in entry.items():
        if key not in known:
            raise unknown(f"key of features {RATIOS_FAMILY!r}", key, known, at=(key,))
        known[key].check(key, value, of=f" of features {RATIOS_FAMILY!r}")
    if "policies" not in entry:
        raise InputError(f"features {RATIOS_FAMILY!r} lack 'policies'; add it.", at=("policies",))
    with within("policies"):
        policies = [named_policy(model, policy) for policy in entry["policies"]]
    with within("cuts"):
        return _Parts(policies, cells(model, entry.get("cuts", {})))


def check_simulated(plan: Plan) -> None:
    """Whatever can be seen to be wrong before any long work."""
    for name in OF_THE_OTHER_FORM:
        if getattr(plan, name):
            raise InputError(
                f"{name} belongs to the form with densities; leave it or form = 'simulated' out.",
                at=(name,),
            )
    if plan.sampling != "features":
        raise InputError(
            "the simulated form draws transitions of its reference and no constraints; leave "
            "sampling out.",
            at=("sampling",),
        )
    if plan.solver is not None and plan.solver not in METHODS_OF_FORM:
        raise InputError(
            f"method {plan.solver!r} belongs to the form with densities; the simulated form has "
            f"{' and '.join(METHODS_OF_FORM)}.",
            at=("method",),
        )
    known = ("passes", "batch") if plan.solver == SIMULATED_SADDLE else ()
    for name in plan.options:
        if name not in known:
            raise unknown(
                f"option of method {plan.solver or SIMULATED_LP!r}", name, known, at=("options",)
            )


# -- what comes of it ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SimulatedOutcome:
    """A solution, its policy, and what the policy costs."""

    solution: SimulatedSolution
    policy: Policy
    evaluation: Evaluation
    seconds: float

    @property
    def cost(self) -> float:
        """What the policy costs."""
        return self.evaluation.cost

    def to_json(self) -> Json:
        """As plain values, by the names of the other form."""
        found = self.solution
        parts = found.parts
        negative, flow = found.penalty
        return {
            "solver": {v: k for k, v in METHODS_OF_FORM.items()}[found.method],
            "status": str(found.status),
            "advice": found.status.advice,
            "penalty": negative if negative == flow else [negative, flow],
            **_told("objective", parts.objective),
            **_told("violation_negative", parts.negative),
            **_told("violation_flow", parts.flow),
            **_told("surrogate", parts.total),
            "mass": parts.mass.to_json(),
            "effective": found.effective,
            "excess": [],
            "warning": None,
            "samples": found.samples,
            "seed": found.seed,
            "seconds": round(found.seconds, 3),
            **self.evaluation.cost_to_json(),
            "evaluation_seconds": round(self.seconds, 3),
            "limits": [],
        }


def _told(name: str, interval: Interval) -> Json:
    """An estimate and half the length of its interval."""
    return {name: interval.value, f"{name}_error": interval.half_width}


@dataclass(frozen=True, eq=False, repr=False)
class PlannedSimulated(Shown):
    """What came of a plan in the simulated form: an outcome for each penalty, and the best.

    Where policies were compared by simulation the best is simulated again, beside the runner-up.
    """

    plan: Plan
    problem: SimulatedALP
    outcomes: tuple[SimulatedOutcome, ...]
    chosen: int
    best: SimulatedOutcome
    advantage: Interval | None
    bound: LowerBound
    seconds: float
    interrupted: bool = False

    @property
    def gap(self) -> float:
        """The largest part of the cost that another policy could save."""
        known = self.best.evaluation
        return largest_gap(known.lower, known.upper, self.bound.value)

    def to_json(self) -> Json:
        """The best outcome, with all that were tried."""
        problem = self.problem
        return {
            "model": problem.model.name,
            **problem.criterion.describe(),
            "form": "simulated",
            "features": len(problem.ratios),
            "tests": len(problem.tests),
            "reference": problem.ratios.reference.name,
            "radius": problem.radius,
            **self.best.to_json(),
            "chosen": self.chosen,
            "advantage": None if self.advantage is None else self.advantage.to_json(),
            "lower_bound": self.bound.value,
            "lower_bound_kind": self.bound.kind,
            "lower_bound_sweeps": self.bound.sweeps,
            "lower_bound_functions": self.bound.functions,
            "lower_bound_assumed": self.bound.assumed,
            "gap": self.gap,
            "certificate": {"entries": dict(_known(self.best.solution))},
            "theory": None,
            "seconds": round(self.seconds, 3),
            **(_interrupted(self) if self.interrupted else {}),
            "tried": [tried.to_json() for tried in self.outcomes],
        }


def _known(solution: SimulatedSolution) -> list[tuple[str, Json]]:
    """What is known of a solution, on transitions that it was not found by."""
    parts = solution.parts
    seen = "on fresh transitions of the reference"
    found = [
        ("mass", parts.mass, f"of u over that of an occupancy, {seen}"),
        ("negative part", parts.negative, seen),
        ("flow", parts.flow, f"a lower bound, by the test functions only, {seen}"),
        ("surrogate", parts.total, f"a lower bound, {seen}"),
    ]
    rows = [
        (name, {**interval.to_json(), "label": STATISTICAL, "note": note})
        for name, interval, note in found
    ]
    share = solution.effective
    note = "(E|g|)² / E[g²]: the part of the transitions that carries the weights"
    rows.append(
        (
            "effective",
            {"value": share, "lower": share, "upper": share, "label": STATISTICAL} | {"note": note},
        )
    )
    if solution.problem.warm_up:
        steps = float(solution.problem.warm_up)
        note = "steps of each trajectory after which it has forgotten its start"
        entry = {"value": steps, "lower": steps, "upper": steps, "label": ASSUMED, "note": note}
        rows.append(("warm-up", entry))
    return rows


def _interrupted(planned: PlannedSimulated) -> Json:
    tried = {outcome.solution.penalty[1] for outcome in planned.outcomes}
    return {
        "status": str(Status.INTERRUPTED),
        "advice": Status.INTERRUPTED.advice,
        "penalties_left": [h for h in planned.plan.penalty if h not in tried],
    }


# -- running it ------------------------------------------------------------------------------------


def run_simulated(
    plan: Plan, *, folder: str | None, resume: bool, progress: Progress | None
) -> PlannedSimulated:
    """Solve and evaluate for each penalty; with a folder, what is done is not done again."""
    started = time.monotonic()
    check_simulated(plan)
    criterion, model = asked(plan)
    judge = Judge(plan.evaluation, plan.steps, plan.confidence, plan.seed)
    problem = make_simulated(plan, model, criterion)
    plan = _with_defaults(plan, problem)
    run = open_run(plan, model, folder, resume)
    outcomes: list[SimulatedOutcome] = []
    tell = progress or (lambda *_: None)
    interrupted = False
    for k, penalty in enumerate(plan.penalty):
        tell(k, len(plan.penalty), f"H = {penalty:.3g} in work")
        try:
            outcomes.append(_outcome(plan, problem, penalty, judge, run))
        except KeyboardInterrupt:
            if not outcomes:
                raise
            interrupted = True
            break
    chosen, best, advantage = _chosen(outcomes, judge, cut=interrupted)
    bound = NO_BOUND
    if not interrupted and _lists_next(model):
        tell(len(plan.penalty), len(plan.penalty), "lower bound")
        bound = best_bound(
            model, criterion, potentials=[problem.potential], sweeps=plan.sweeps, seed=plan.seed
        )
    result = PlannedSimulated(
        plan,
        problem,
        tuple(outcomes),
        chosen,
        best,
        advantage,
        bound,
        time.monotonic() - started,
        interrupted,
    )
    if run is not None:
        save_policy(result.best.policy, run.folder / POLICY_FILE)
        run.save_result(result.to_json())
    return result


def _with_defaults(plan: Plan, problem: SimulatedALP) -> Plan:
    """The plan with its method and penalties, in units of the reference's mean loss."""
    scale = max(abs(float(problem.moments().reference.mean())), 1e-12)
    given = plan.penalty
    if isinstance(given, (int, float)):
        given = [given]
    return replace(
        plan,
        method=(plan.solver or SIMULATED_LP,),
        penalty=given or [float(f"{scale * factor:.3g}") for factor in PENALTY_FACTORS],
        penalty_negative=plan.penalty_negative or NEGATIVE_PART_FACTOR * scale,
    )


def _outcome(
    plan: Plan, problem: SimulatedALP, penalty: float, judge: Judge, run: Run | None
) -> SimulatedOutcome:
    """The solution for one penalty and what its policy costs."""
    negative = max(plan.penalty_negative or 0.0, penalty)
    method = METHODS_OF_FORM[str(plan.solver)]
    found = solve_simulated(
        problem, (negative, penalty), method=method, confidence=plan.confidence, **plan.options
    )
    if run is not None:
        run.trace(found.to_json())
    started = time.monotonic()
    policy = found.policy("dual")
    evaluation = judge(problem.model, policy, problem.criterion)
    return SimulatedOutcome(found, policy, evaluation, time.monotonic() - started)


def _chosen(
    outcomes: Sequence[SimulatedOutcome], judge: Judge, *, cut: bool
) -> tuple[int, SimulatedOutcome, Interval | None]:
    """The cheapest; where that was by simulation it is simulated again, with the runner-up."""
    costs: Floats = np.array([outcome.cost for outcome in outcomes])
    order = np.argsort(np.where(np.isfinite(costs), costs, np.inf), kind="stable")
    best = outcomes[order[0]]
    if len(outcomes) == 1 or best.evaluation.exact or cut:
        return int(order[0]), best, None
    problem = best.solution.problem
    again = compare(
        problem.model,
        best.policy,
        outcomes[order[1]].policy,
        problem.criterion,
        steps=judge.steps,
        seed=judge.seed ^ SeedBit.SECOND_JUDGEMENT,
        confidence=judge.confidence,
    )
    return int(order[0]), replace(best, evaluation=again.first), again.difference


def wants_simulation(plan: Plan, model: Model) -> bool:
    """Whether the plan asks for this form, or says nothing and the model has no other."""
    if plan.form is not None:
        return plan.form == "simulated"
    if plan.solver in METHODS_OF_FORM:
        return True
    if isinstance(model, SimulatorModel):
        return True
    return plan.features == STANDARD_FEATURES and not (model.has_predecessors or few_states(model))
