"""A plan: what `dualplan solve` is asked for, from a TOML file or the command line, and what comes of it.

Without a word about the dual program, the best policy that the library finds (`improvement/`):

    model = "four-queue"                 # an instance, FILE.toml of a network, or FILE.py:OBJECT
    time = "2m"                          # how long to search
    gap = "2%"                           # stop when the cost is proved to be this near the optimum
    limits = ["lost fraction <= 0.01"]   # side constraints
    policies = ["lbfs", "mine.npz"]      # what to begin with; by default the model's heuristics
    overloaded = true                    # go on even if no policy keeps the queues of a network finite

With a key of the dual program, that program alone:

    model = "four-queue"                 # an instance, FILE.toml of a network, or FILE.py:OBJECT
    criterion = "discounted"             # or "average", the default
    gamma = 0.99
    penalty = [30.0, 100.0, 300.0]       # H; of several the one whose policy costs least is chosen
    solver = "sampled-lp"                # sampled-lp, adaptive, paper, listed-lp (the default where states are few)
    budget = 20_000                      # constraints of each kind that may be drawn
    seed = 0

    [set]                                # parameters of the model
    buffers = 9

    [[features]]                         # any number; without them the standard set
    family = "occupancies"
    policies = ["longer", "lbfs"]

The standard set is for models whose states can be enumerated: where the best heuristic goes, cut into tiles at 0 of
each coordinate, times the actions, and the occupancies of the next three. Unless another potential is named,
the best heuristic's values are the potential, so that H is the radius of a trust region about them.

For each penalty: solve, turn θ into a policy, evaluate the policy (exactly where states are few, otherwise by
simulation). Then, and only then, the certificate of the best, and a lower bound on what any policy costs: by sweeps of
value iteration from the potential where states can be listed, on cells with quadratic functions in networks beyond, and
otherwise from the least loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualplan import features as families
from dualplan import kinds
from dualplan.bounds import best_bound
from dualplan.certificates import MEASURED_SPAN, Certificate, certify, loss_range, measurable
from dualplan.criteria import Criterion, Discounted, make_criterion
from dualplan.errors import InputError, ModelError, unknown, within
from dualplan.exact.policy import evaluate_exact
from dualplan.features.contract import Features, concat
from dualplan.grids import GRIDS
from dualplan.guarantees import Guarantees, guarantees
from dualplan.improvement import Improved, improve
from dualplan.improvement.loop import NO_BOUND, TIME
from dualplan.intervals import finite
from dualplan.kinds import is_number
from dualplan.limits import Limit
from dualplan.lower_bounds import LowerBound, largest_gap
from dualplan.meta import (
    POLICIES,
    RULE,
    Point,
    Progress,
    Scheme,
    check_choice,
    least,
    make_scheme,
    solve_along,
)
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.models.load import load, require_stable
from dualplan.models.toml import Document, is_network, read
from dualplan.outcomes import EXACT, STEPS, Choice, Judge, Outcome, choose, judged
from dualplan.parallel import check_jobs
from dualplan.policies.contract import Policy
from dualplan.runs import Run, plain, require_free
from dualplan.saved import named_policy, save_policy
from dualplan.sizes import EXACTLY, LISTABLE
from dualplan.solvers.contract import Solution
from dualplan.solvers.solve import check_solver
from dualplan.status import Status
from dualplan.surrogate import DualALP, StateFunction, Value, state_function
from dualplan.theorems import NOT_PLAIN
from dualplan.types import Json
from dualplan.violations import BERNSTEIN

DRAWS = 200_000  # constraints of each kind for the certificate
SHORT = 200_000  # steps of simulation that are still taken when a run was interrupted
FEW = 20_000  # and constraints that are still drawn
GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # default penalties, in units of the largest loss of a feature
STANDARD = "standard"  # the features if none are named
BEST = "best"  # the heuristic that costs least


@dataclass(frozen=True)
class Plan:
    """Everything that a run is told; the names are the keys of the TOML file."""

    model: str
    set: dict[str, Any] = field(default_factory=dict)
    criterion: str = "average"
    gamma: float | None = None
    start: Any = None
    features: Any = None
    base: str | None = None
    potential: str | None = None
    sampling: str = "features"
    limits: tuple[str, ...] = ()
    radius: float | None = None
    penalty: Any = None
    penalty_negative: float | None = None
    solver: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    budget: int | None = None
    seed: int = 0
    fallback: str | None = None
    evaluation: str | None = None
    steps: int = STEPS
    confidence: float = 0.95
    span: float | None = None
    sweeps: int | None = None
    grid: str | None = None
    epsilon: float | None = None
    delta: float = 0.05
    beta: float | None = None
    choice: str = POLICIES
    time: str | float | None = None
    gap: str | float | None = None
    policies: tuple[str, ...] = ()
    overloaded: bool = False
    given: frozenset[str] = frozenset()  # the keys that were written down, even with their default values
    source: Document = field(default_factory=Document.nowhere, compare=False, repr=False)  # where they were

    @property
    def dual(self) -> bool:
        """Whether a key of the dual program is there."""
        changed = any(getattr(self, f.name) not in (f.default, {}) for f in fields(self) if f.name in DUAL)
        return changed or bool(self.given & DUAL)

    @staticmethod
    def read(path: str | Path) -> Plan:
        """From a TOML file."""
        document = read(Path(path))
        with document.explained():
            return Plan._of(document)

    @staticmethod
    def _of(document: Document) -> Plan:
        data, file = document.data, document.file
        if is_network(data):
            raise InputError(f"this is a network and no plan; name it as the model: Plan({file!r}).", at=("class",))
        for key in data:
            if key not in kinds.PLAN:
                raise unknown(f"key of {file!r}", key, kinds.PLAN, at=(key,))
        if "model" not in data:
            raise InputError(f'{file!r} names no model; write model = "..." into it.', at=("model",))
        lists = {key: tuple(data[key]) for key in ("limits", "policies") if isinstance(data.get(key), list)}
        return Plan(**{**data, **lists}, given=frozenset(data), source=document)

    @property
    def keys(self) -> Json:
        """What was asked for, by key."""
        return {key: getattr(self, key) for key in kinds.PLAN}

    def __post_init__(self) -> None:
        """Every value is of the kind that its key asks for."""
        for key, (kind, words) in kinds.PLAN.items():
            value = getattr(self, key)
            if value is not None and not kind(value):
                raise InputError(f"{key} must be {words}, got {value!r}.", at=(key,))


# keys of the dual program; the others are for both
DUAL = {
    "features", "base", "potential", "sampling", "radius", "penalty", "penalty_negative", "solver", "options", "budget",
    "fallback", "evaluation", "steps", "confidence", "span", "sweeps", "grid", "epsilon", "delta", "beta", "choice",
}  # fmt: skip


def improve_by(plan: Plan, *, folder: str | None = None, resume: bool = False, progress: Any = None) -> Improved:
    """The best policy in the plan's time."""
    with plan.source.explained():
        criterion, model = _asked(plan)
        policies = []
        for k, name in enumerate(plan.policies):
            with within("policies", k):
                policies.append(named_policy(model, name))
        return improve(
            model, policies, criterion, limits=plan.limits, time=TIME if plan.time is None else plan.time,
            gap=plan.gap, seed=plan.seed, folder=folder, resume=resume, progress=progress,
        )  # fmt: skip


def _asked(plan: Plan) -> tuple[Criterion, Model]:
    """The criterion and the model, after a look at what can be wrong with them and with the limits."""
    criterion = make_criterion(plan.criterion, plan.gamma, plan.start)
    model = load(plan.model, **plan.set)
    if not plan.overloaded and not isinstance(criterion, Discounted):
        require_stable(model)
    for k, text in enumerate(plan.limits):
        with within("limits", k):
            model.measure(Limit.parse(text).name)
    return criterion, model


@dataclass(frozen=True, eq=False)
class Planned:
    """What came of a plan: an outcome for each penalty, and the best.

    The best is the one whose policy costs least, as evaluated, among those that keep the limits or come nearest. Where
    it was chosen by simulation, it is simulated again with other random numbers, beside the runner-up: `outcomes.py`.
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
        return largest_gap(self.best.lower, self.best.upper, self.bound.value)

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
            "lower_bound": finite(self.bound.value),
            "lower_bound_kind": self.bound.kind,
            "lower_bound_sweeps": self.bound.sweeps,
            "lower_bound_functions": self.bound.functions,
            "lower_bound_assumed": self.bound.assumed,
            "gap": finite(self.gap),
            "certificate": self.certificate.to_json(),
            "theory": None if self.theory is None else self.theory.to_json(),
            "seconds": round(self.seconds, 3),
            **(self._interrupted() if self.interrupted else {}),
            **({} if self.scheme is None else {"choice": self.plan.choice, **self.scheme.to_json()}),
            "tried": [tried.to_json() for tried in self.points or self.outcomes],
        }

    def _interrupted(self) -> Json:
        """The best of what there is; nothing is said of the penalties that are left."""
        tried = {outcome.solution.penalty[1] for outcome in self.outcomes}
        return {
            "status": str(Status.INTERRUPTED),
            "advice": Status.INTERRUPTED.advice,
            "penalties_left": [h for h in self.plan.penalty if _both(self.plan, h)[1] not in tried],
        }


def run_plan(
    plan: Plan,
    *,
    folder: str | None = None,
    resume: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Planned:
    """Solve and evaluate for each penalty; with a folder, what is done is kept there and not done again."""
    with plan.source.explained():
        return _run_plan(plan, folder, resume, jobs, progress)


def _run_plan(plan: Plan, folder: str | None, resume: bool, jobs: int | None, progress: Progress | None) -> Planned:
    started, plan = time.monotonic(), replace(plan, features=plan.features or STANDARD)
    criterion, model = _asked(plan)
    judge = Judge(plan.evaluation, plan.steps, plan.confidence, plan.seed)
    _check(plan, model, criterion, folder, resume)
    check_jobs(jobs)
    with within("fallback"):
        fallback = None if plan.fallback is None else model.policy(plan.fallback)
    problem = _problem(plan, model, criterion)
    scheme = _scheme(plan, problem)
    plan = _with_defaults(plan, problem, scheme)
    run, tell = _open(plan, model, folder, resume), progress or (lambda *_: None)
    found, whole = _solutions(plan, problem, run, jobs, tell)
    total = len(plan.penalty)
    if not whole:  # quickly: what was found is to be shown, not to be proved
        judge = replace(judge, steps=min(judge.steps, SHORT))
    outcomes, all_judged = _outcomes(found, judge, fallback, lambda words: tell(len(found), total, words))
    points = _points(plan, scheme, sorted(found), outcomes)
    choice = Choice(k := least(points), outcomes[k], None) if plan.choice == RULE else choose(outcomes, judge)
    whole = whole and all_judged and choice.best.status is not Status.INTERRUPTED
    tell(len(found), total, "certificate and lower bound")
    bound = NO_BOUND
    try:
        certificate = _certify(plan, problem, choice.best.solution, fallback, DRAWS if whole else FEW)
        if whole:
            bound = best_bound(model, criterion, potentials=[problem.potential], sweeps=plan.sweeps, seed=plan.seed)
    except KeyboardInterrupt:
        whole, certificate = False, _certify(plan, problem, choice.best.solution, fallback, FEW)
    result = Planned(
        plan, problem, outcomes, choice, certificate, bound, scheme, points,
        _theory(plan, problem, choice.best.solution, certificate, scheme), time.monotonic() - started, not whole,
    )  # fmt: skip
    if run is not None:
        save_policy(result.best.policy, run.folder / "policy.npz")
        run.save_result(result.to_json())
    return result


def _solutions(
    plan: Plan, problem: DualALP, run: Run | None, jobs: int | None, tell: Progress
) -> tuple[dict[int, Solution], bool]:
    """A solution for each penalty, by its place, and whether they are all there; each is kept once it is found."""
    grid, kept = plan.penalty, {} if run is None else run.checkpoint() or {}
    found = _known(plan, problem, grid, kept)

    def done(k: int, solution: Solution) -> None:
        found[k] = solution
        if run is not None:
            kept.update(_as_arrays(solution))
            run.save_checkpoint(kept)
            run.trace(solution.to_json())
        tell(len(found), len(grid), f"{_solved(solution)}{_in_work(grid, found)}")

    tell(len(found), len(grid), _in_work(grid, found).removeprefix("; "))
    try:
        solve_along(
            problem, [_both(plan, h) for h in grid], solver=str(plan.solver), budget=plan.budget, seed=plan.seed,
            options=plan.options, jobs=jobs, known=dict(found), done=done,
        )  # fmt: skip
    except KeyboardInterrupt:
        if not found:
            raise
    return found, len(found) == len(grid)


def _solved(solution: Solution) -> str:
    """A solution in words."""
    parts, drawn = solution.parts, solution.samples / max(solution.seconds, 1e-9)
    pace = f", {drawn:,.0f} samples/s" if solution.samples else ""
    return (
        f"H = {solution.penalty[1]:.3g} {solution.status}: objective {parts.objective:.5g}, "
        f"violation {parts.negative + parts.flow:.3g}{pace}"
    )


def _in_work(grid: Sequence[float], found: Mapping[int, Solution]) -> str:
    """The penalty that comes next; the largest come first."""
    left = [h for k, h in enumerate(grid) if k not in found]
    return f"; H = {max(left):.3g} in work" if left else ""


def _outcomes(
    found: Mapping[int, Solution], judge: Judge, fallback: Policy | None, tell: Callable[[str], None]
) -> tuple[tuple[Outcome, ...], bool]:
    """What becomes of the policies, and whether all were evaluated in full."""
    outcomes: list[Outcome] = []
    for k in sorted(found):
        tell(f"evaluating the policy of H = {found[k].penalty[1]:.3g}, {len(outcomes) + 1} of {len(found)}")
        try:
            outcomes.append(judged(found[k], judge, fallback))
        except KeyboardInterrupt:
            if not outcomes:
                raise
            return tuple(outcomes), False
        if outcomes[-1].status is Status.INTERRUPTED:
            return tuple(outcomes), False
    return tuple(outcomes), True


def _certify(plan: Plan, problem: DualALP, solution: Solution, fallback: Policy | None, draws: int) -> Certificate:
    return certify(problem, solution, fallback=fallback, span=plan.span, confidence=plan.confidence, budget=draws)


def _points(plan: Plan, scheme: Scheme | None, places: Sequence[int], outcomes: Sequence[Outcome]) -> tuple[Point, ...]:
    """F̂ at each H of a grid made by theory, with what became of its policy."""
    if scheme is None:
        return ()
    both = list(zip(places, outcomes, strict=False))  # of a run that was interrupted there are fewer outcomes
    looks = (scheme.look(k, o.solution, rule=BERNSTEIN, draws=DRAWS, seed=plan.seed) for k, o in both)
    return tuple(replace(point, outcome=o) for point, (_, o) in zip(looks, both, strict=True))


def _theory(
    plan: Plan, problem: DualALP, solution: Solution, certificate: Certificate, scheme: Scheme | None
) -> Guarantees | None:
    """What the theorems say at the chosen H, if the plan names an ε.

    By the span that was measured unless one is given: measured of the one policy, assumed of those it is compared with.
    """
    if plan.epsilon is None:
        return None
    span = plan.span
    if span is None and MEASURED_SPAN in certificate:
        span = certificate[MEASURED_SPAN].value
    if span is None and not isinstance(problem.criterion, Discounted):
        return None  # several recurrent classes: the certificate says so
    return guarantees(
        problem, solution.penalty[1], epsilon=plan.epsilon, delta=plan.delta,
        beta=plan.beta if scheme is None else scheme.beta, span=span,
        offset=None if scheme is None else scheme.offset, seed=plan.seed,
    )  # fmt: skip


# -- the parts of a plan ----------------------------------------------------------------------------------------------


def _problem(plan: Plan, model: Model, criterion: Criterion) -> DualALP:
    chosen = make_features(model, plan.features, criterion)
    with within("base"):
        base = None if plan.base is None else families.occupancies(model, [model.policy(plan.base)], criterion)
    return DualALP(
        model, chosen, criterion, base=base, sampling=plan.sampling, radius=plan.radius,
        potential=_potential(plan, model, criterion), limits=plan.limits,
    )  # fmt: skip


def _potential(plan: Plan, model: Model, criterion: Criterion) -> StateFunction | None:
    """The values of a heuristic over all states, where all can be reached; by default only with the standard set."""
    name = plan.potential or (BEST if plan.features == STANDARD else None)
    if name is None:
        return None
    with within("potential"):
        policy = _ranked(model, criterion)[0] if name == BEST else model.policy(name)
    result = evaluate_exact(model, policy, criterion)
    # states that the policy never sees have no value of its own; there the potential is the largest, which warns
    values = np.full(int(model.box.count or 0), float(result.values.max()))
    values[result.reached] = result.values
    return state_function(model, values)


def make_features(model: Model, given: Any, criterion: Criterion | None = None) -> Features:
    """Features from a plan: 'standard', 'paper-366', 'paper-372', or tables that each name a family."""
    if isinstance(given, str):
        if given not in NAMED:
            raise unknown("feature set", given, NAMED, at=("features",))
        return NAMED[given](model, criterion)
    kind, words = kinds.PLAN["features"]
    if not kind(given):
        raise InputError(f"features must be {words}, got {given!r}.", at=("features",))
    made = []
    for k, entry in enumerate(given):
        with within("features", k):
            made.append(_family(model, dict(entry), criterion))
    return concat(*made)


def standard(model: Model, criterion: Criterion | None = None) -> Features:
    """Tiles of where the best heuristic goes, times the actions, and the occupancies of the next three."""
    ranked = _ranked(model, criterion)
    others = [families.occupancies(model, ranked[1:4], criterion)] if len(ranked) > 1 else []
    cuts = [
        [(low, low), (low + 1, high)] if high > low else [(low, high)]
        for low, high in zip(model.box.lower.tolist(), model.box.upper.tolist(), strict=True)
    ]
    return concat(families.tiles(model, ranked[0], cuts, criterion=criterion), *others)


def _ranked(model: Model, criterion: Criterion | None) -> list[Policy]:
    """The heuristics of a model that have one cost, the cheapest first."""
    count = model.box.count
    if count is None or count > LISTABLE:
        raise InputError(
            f"model {model.name!r} has {'infinitely many' if count is None else f'{count:,}'} states, too many for the "
            "standard features; name some in the plan: trees, boxes, bands or products."
        )
    costs: dict[Policy, float] = {}
    trouble = ModelError(f"model {model.name!r} has no heuristics.")
    for name in model.policies:
        policy = model.policy(name)
        try:
            costs[policy] = evaluate_exact(model, policy, criterion).cost
        except ModelError as error:  # several recurrent classes: such a heuristic is no candidate
            trouble = error
    if not costs:
        raise trouble
    return sorted(costs, key=lambda policy: costs[policy])


NAMED: dict[str, Callable[[Model, Criterion | None], Features]] = {
    STANDARD: standard,
    "paper-366": lambda model, criterion: families.paper(model, 366, criterion),
    "paper-372": lambda model, criterion: families.paper(model, 372, criterion),
}
# what each family takes besides the model, in order: what it must have, and what it may have; policies are named
FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "occupancies": (("policies",), ("by_action",)),
    "tiles": (("policy", "cuts"), ("choices",)),
    "boxes": (("cuts",), ()),
    "bands": (("intervals",), ("weights",)),
    "products": (("ratios",), ()),
    "trees": (("policies",), ("choices", "visits")),
    "paper": ((), ("count",)),
}


def _family(model: Model, entry: dict[str, Any], criterion: Criterion | None) -> Features:
    name = entry.pop("family", None)
    if not isinstance(name, str) or name not in FAMILIES:
        raise unknown("family of features", str(name), FAMILIES, at=("family",))
    needed, more = FAMILIES[name]
    for key, value in entry.items():
        if key not in (*needed, *more):
            raise unknown(f"key of features {name!r}", key, (*needed, *more), at=(key,))
        kind, words = kinds.FEATURES[key]
        if not kind(value):
            raise InputError(f"{key} of features {name!r} must be {words}, got {value!r}.", at=(key,))
    for key in needed:
        if key not in entry:
            raise InputError(f"features {name!r} lack {key!r}; add it.", at=(key,))
    for key in ("policies", "choices"):
        if key in entry:
            entry[key] = [model.policy(p) for p in entry[key]]
    if "policy" in entry:
        entry["policy"] = model.policy(entry["policy"])
    if "cuts" in entry:
        entry["cuts"] = [[tuple(interval) for interval in cuts] for cuts in entry["cuts"]]
    if "intervals" in entry:
        entry["intervals"] = [tuple(interval) for interval in entry["intervals"]]
    if name in ("occupancies", "tiles"):
        entry["criterion"] = criterion
    if name == "trees":  # fitted to where the policies go, times what they would choose
        how = {"visits": entry["visits"]} if "visits" in entry else {}
        laws = [families.fit_tree(model, policy, **how) for policy in entry["policies"]]
        return families.trees(model, laws, choices=entry.get("choices", entry["policies"]))
    if name == "products":
        return families.products(model, [_laws(model, row) for row in entry["ratios"]])
    return getattr(families, name)(model, **entry)  # type: ignore[no-any-return]


def _laws(model: Model, ratios: Sequence[float]) -> list[Any]:
    if len(ratios) != model.box.dim:
        raise InputError(f"a product needs a ratio for each of {model.box.dim} coordinates, got {len(ratios)}.")
    bounded = model.box.upper < UNBOUNDED
    return [families.Truncated(r) if b else families.Geometric(r) for r, b in zip(ratios, bounded, strict=True)]


def _scheme(plan: Plan, problem: DualALP) -> Scheme | None:
    """The grid that theory asks for, if the plan does."""
    if plan.grid is None:
        return None
    return make_scheme(
        problem, epsilon=plan.epsilon or 0.0, delta=plan.delta, beta=plan.beta, span=plan.span, grid=plan.grid
    )


def _with_defaults(plan: Plan, problem: DualALP, scheme: Scheme | None) -> Plan:
    """The plan with what it left open: the solver, and the penalties as a list.

    With a potential the flow's penalty is a trust region and may be small; the negative part's must not be.
    """
    scale = max(float(np.abs(problem.losses).max()), 1e-12)
    given = [plan.penalty] if is_number(plan.penalty) else plan.penalty
    if scheme is not None:
        return replace(plan, solver=_solver(plan, problem.model), penalty=scheme.weights)
    hard = 10 * GRID[-1] * scale if problem.potential is not None else None
    return replace(
        plan,
        solver=_solver(plan, problem.model),
        penalty=given or [float(f"{scale * factor:.3g}") for factor in GRID],
        penalty_negative=plan.penalty_negative or hard,
    )


def _solver(plan: Plan, model: Model) -> str:
    count = model.box.count
    return plan.solver or ("listed-lp" if count is not None and count <= EXACTLY else "sampled-lp")


def _check(plan: Plan, model: Model, criterion: Criterion, folder: str | None, resume: bool) -> None:
    """Whatever can be seen to be wrong before any long work."""
    if plan.time is not None or plan.gap is not None or plan.policies:
        raise InputError("time, gap and policies are for a search without keys of the dual program; leave out either.")
    check_solver(_solver(plan, model), plan.budget, plan.options)
    check_choice(plan.choice, BERNSTEIN)
    if plan.grid is None and plan.choice == RULE:
        raise InputError("the rule chooses from a grid of H made by theory; give grid = 'geometric'.")
    if plan.beta is not None and plan.epsilon is None:
        raise InputError("beta belongs to theory, which also needs epsilon, the error that matters to you.")
    if plan.grid is not None and (plan.penalty is not None or plan.penalty_negative is not None):
        raise InputError("a plan has either a grid or penalties of its own; leave one of them out.")
    if plan.grid is not None and plan.grid not in GRIDS:
        raise unknown("grid", plan.grid, GRIDS)
    if plan.epsilon is not None and plan.penalty_negative is not None:
        raise InputError(
            "the theorems are about one penalty H for both violations; leave penalty_negative or epsilon out."
        )
    if plan.epsilon is not None and (plan.features == STANDARD or plan.potential is not None or plan.limits):
        raise InputError(NOT_PLAIN)
    unmeasured = plan.span is None and not isinstance(criterion, Discounted) and not measurable(model)
    if plan.epsilon is not None and unmeasured:
        raise InputError("with so many states the span of a bias is not measured, and theory needs it; give span.")
    if plan.grid is not None and plan.epsilon is None:
        raise InputError("a grid made by theory needs epsilon, the error in F that matters to you.")
    if measurable(model):
        loss_range(model)  # raises if they are not what the model declares
    if plan.evaluation == EXACT:
        model.box.strides  # noqa: B018 - raises if states cannot be numbered
    if isinstance(criterion, Discounted):
        criterion.start_distribution(model)
    if folder is not None and not resume:
        require_free(folder)


def _both(plan: Plan, penalty: float) -> tuple[float, float]:
    return plan.penalty_negative or penalty, penalty


# -- the folder of a run ----------------------------------------------------------------------------------------------


def _open(plan: Plan, model: Model, folder: str | None, resume: bool) -> Run | None:
    if folder is None:
        return None
    settings = plan.keys | {"digest": model.digest}
    del settings["overloaded"]  # whether to go on, not what with
    settings["constraints"] = settings.pop("budget")  # unlike a simulation's, it cannot be raised when going on
    return Run(folder, plain(settings), resume=resume)


KEPT = ("theta", "parts", "status")


def _key(what: str, penalty: float) -> str:
    return f"{what} {penalty!r}"


def _as_arrays(solution: Solution) -> dict[str, Any]:
    h, parts = solution.penalty[1], solution.parts
    numbers = [getattr(parts, f.name) for f in fields(parts) if f.name != "excess"]
    work = [float(solution.samples), solution.seconds]
    return {
        _key("theta", h): solution.theta,
        _key("parts", h): np.array([*numbers, *work, *parts.excess]),
        _key("status", h): np.array(str(solution.status)),
    }


def _known(plan: Plan, problem: DualALP, grid: Sequence[float], kept: Mapping[str, Any]) -> dict[int, Solution]:
    """The solutions that a checkpoint holds, by their place in the grid."""
    whole = [k for k, h in enumerate(grid) if all(_key(what, h) in kept for what in KEPT)]
    return {k: _from_arrays(plan, problem, grid[k], kept) for k in whole}


def _from_arrays(plan: Plan, problem: DualALP, penalty: float, kept: Mapping[str, Any]) -> Solution:
    numbers = kept[_key("parts", penalty)].tolist()
    names = [f.name for f in fields(Value) if f.name != "excess"]
    parts = Value(**dict(zip(names, numbers, strict=False)), excess=tuple(numbers[len(names) + 2 :]))
    status = Status(str(kept[_key("status", penalty)]))
    return Solution(
        problem, str(plan.solver), _both(plan, penalty), kept[_key("theta", penalty)], parts, status,
        int(numbers[len(names)]), plan.seed, numbers[len(names) + 1],
    )  # fmt: skip


def read_plan(spec: str) -> Plan:
    """A plan from a TOML file that names a model, or the default plan for a model."""
    if spec.endswith(".toml") and not is_network(read(Path(spec)).data):
        return Plan.read(spec)
    return Plan(spec)


def override(plan: Plan, **changes: Any) -> Plan:
    """The plan with whatever was given on the command line."""
    made = {key: value for key, value in changes.items() if value is not None}
    return replace(plan, **made, given=plan.given | frozenset(made), source=plan.source.without(made))
