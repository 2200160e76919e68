"""Programs on values, on the four-queue network: one line for each method.

Schweitzer & Seidmann (1985), de Farias & Van Roy (2003) and those after them: approximate linear
programs, beside the heuristics, the dual program and the optimum. Where states are few, all
constraints count and costs are exact. Beyond, constraints are drawn, those of 40,000 states (5,000
where violations are priced) from the law that also weighs them (c), and costs are simulated; bounds
are proved all the same: by sweeps over a million states, by cells where there is no end of states.

The published costs of the network without bounds are de Farias & Van Roy's, simulated. Those of the
one with buffers of 9 were computed elsewhere by an independent program, exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dualplan import primal
from dualplan.cli.experiments.measure import row_of
from dualplan.cli.experiments.rows import (
    COMPUTED_ELSEWHERE_SOURCE,
    Figure,
    Outcome,
    Progress,
    Row,
    agreeing,
)
from dualplan.core.errors import InputError
from dualplan.core.status import PROVED, Status
from dualplan.core.types import Json
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.results import EXACT_EVALUATION, SIMULATED_EVALUATION, Evaluation
from dualplan.exact.iteration import solve_exact
from dualplan.models import instances as zoo
from dualplan.models.contract import Model, few_states
from dualplan.models.criteria import Average, Criterion, Discounted, make_criterion
from dualplan.models.load import build
from dualplan.policies.contract import Policy
from dualplan.search.plans import Plan, run_plan

FOUR_QUEUE_GAMMA = 0.99
# c ∝ ratio^‖x‖₁, where queues are short and where they are long
NEAR_WEIGHTS_RATIO = 0.9
FAR_WEIGHTS_RATIO = 0.98
DRAWN_STATES = 40_000  # states whose constraints are taken where not all can be
SOFT_PROGRAM_STATES = 5_000  # the same where each constraint has a violation of its own, an unknown
FOUR_QUEUE_STEPS = 5_000_000  # of each simulation
FOUR_QUEUE_TOLERANCE = 5e-3  # of the optimum of a million states
FOUR_QUEUE_HEURISTICS = ("longer", "lbfs", "c-mu")
NINE_EACH = {"buffers": 9}
FOUR_QUEUE_KNOWN_COSTS = {  # by buffers
    9: {
        name: Figure(value, 4, deterministic=True, source=COMPUTED_ELSEWHERE_SOURCE)
        for name, value in (
            ("optimum", 8.1053),
            ("longer", 15.5370),
            ("lbfs", 10.3586),
            ("ALP, quadratic", 8.7995),
            ("ALP, cubic", 8.2087),
        )
    },
    None: {"longer": Figure(45.04, 2), "lbfs": Figure(144.1, 1), "ALP, cubic": Figure(33.37, 2)},
}
Work = list[tuple[str, Callable[[], Any]]]


@dataclass(frozen=True)
class _Setting:
    """The network, the criterion, and how costs are found."""

    model: Model
    criterion: Criterion
    steps: int
    seed: int
    known: dict[str, Figure]

    @property
    def endless(self) -> bool:
        """Whether there is no end of states."""
        return self.model.box.count is None

    @property
    def few(self) -> bool:
        """Whether all constraints are looked at and costs are exact."""
        return few_states(self.model)

    @property
    def gamma(self) -> Discounted:
        """The criterion of the discounted programs, whose policies are also judged by their average
        cost.
        """
        if isinstance(self.criterion, Discounted):
            return self.criterion
        return Discounted(FOUR_QUEUE_GAMMA)

    def optimum(self) -> list[Row]:
        """The optimal cost, where states can be listed."""
        if self.endless:
            return []
        found = solve_exact(
            self.model, self.criterion, tol=1e-6 if self.few else FOUR_QUEUE_TOLERANCE
        )
        return [
            Row(
                "optimum",
                found.value,
                self.known.get("optimum"),
                found.lower,
                found.upper,
                exact=True,
                note=str(found.status),
                optimum=found.value,
                seconds=found.seconds,
            )
        ]

    def cost(self, policy: Policy) -> Evaluation:
        """The cost of a policy."""
        method = EXACT_EVALUATION if self.few else SIMULATED_EVALUATION
        judge = Judge(method, steps=self.steps, seed=self.seed)
        return judge(self.model, policy, self.criterion)


def four_queue(
    *,
    parameters: Json | None = None,
    criterion: str = "average",
    gamma: float | None = None,
    steps: int = FOUR_QUEUE_STEPS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """A row for each method, on the network with `parameters` (buffers of 9 unless they say
    otherwise).
    """
    given = {**NINE_EACH, **(parameters or {})}
    wanted = make_criterion(criterion, gamma)
    plainly = isinstance(wanted, Average) and set(given) == {"buffers"}
    if plainly:
        known = FOUR_QUEUE_KNOWN_COSTS.get(given["buffers"], {})
    else:
        known = {}
    setting = _Setting(build("four-queue", zoo.four_queue, given), wanted, steps, seed, known)
    rows = setting.optimum()
    work = _work(setting, given)
    if rows:
        optimum = rows[0].ours
    else:
        optimum = None
    for k, (name, make) in enumerate(work):
        if progress is not None:
            progress(k, len(work), name)
        rows.append(_row(setting, name, make, optimum))
    settings = {**wanted.describe(), "parameters": given, "steps": steps, "seed": seed}
    title = f"four queues, {setting.model.box.count or 'no end of'} states: programs on values"
    return Outcome("four-queue", title, tuple(rows), _words(setting, rows), settings)


def _words(setting: _Setting, rows: list[Row]) -> tuple[str, ...]:
    """What agrees, and the method that comes nearest to the optimum."""
    known = (row for row in rows if row.ours is not None and row.name != "optimum")
    best = min(known, key=lambda row: (not row.trusted, row.ours or 0.0))
    words = [f"The cheapest policy is that of {best.name}: {best.shown}."]
    if setting.known:
        words.insert(0, agreeing(rows))
    if not setting.endless:
        words.append(
            "Customers who find a full queue are turned away at no cost, which a bounded network "
            "rewards."
        )
    return tuple(words)


# -- the methods -----------------------------------------------------------------------------------


def _work(setting: _Setting, given: Json) -> Work:
    model = setting.model
    law = primal.geometric(model, NEAR_WEIGHTS_RATIO if setting.few else FAR_WEIGHTS_RATIO)
    if setting.few:
        drawn = {}
    else:
        drawn = {"sample": law, "samples": DRAWN_STATES, "seed": setting.seed}
    work: Work = [(name, partial(model.policy, name)) for name in FOUR_QUEUE_HEURISTICS]
    if setting.few:
        work.append(("dual program, standard plan", partial(_dual, given, setting.criterion)))
    work += _discounted(model, setting.gamma, law, drawn)
    if isinstance(setting.criterion, Average):
        work += _average(model, law, drawn) + _bounds(setting)
    return work


def _dual(given: Json, criterion: Criterion) -> Policy:
    if isinstance(criterion, Discounted):
        gamma = criterion.gamma
    else:
        gamma = None
    if gamma is None:
        name = "average"
    else:
        name = "discounted"
    return run_plan(Plan("four-queue", given, criterion=name, gamma=gamma)).best.policy


def _bases(model: Model) -> dict[str, primal.Basis]:
    return {
        name: primal.monomials(model, k)
        for k, name in enumerate(("quadratic", "cubic", "quartic"), 2)
    }


def _discounted(model: Model, gamma: Discounted, law: Any, drawn: Json) -> Work:
    """Programs of the discounted criterion."""
    bases = _bases(model)
    cubic = bases["cubic"]
    common = {"relevance": law, **drawn}
    if drawn:
        soft = {**common, "samples": SOFT_PROGRAM_STATES}
    else:
        soft = common
    relaxed = partial(primal.relaxed_alp, model, cubic, gamma, **soft)
    if not drawn:  # with c and penalties over all states it costs 10.07, and takes a while
        there = primal.occupancy(model, model.policy("lbfs"))
        relaxed = partial(primal.relaxed_alp, model, cubic, gamma, relevance=there, weights=there)
    several: Work = [
        ("ALP over 3 steps, cubic", partial(primal.expanded_alp, model, cubic, gamma, steps=3))
    ]
    return [
        *(
            (f"ALP, {name}", partial(primal.alp, model, basis, gamma, **common))
            for name, basis in bases.items()
        ),
        *([] if drawn else several),
        (
            "smoothed ALP, cubic, budget .001",
            partial(primal.smoothed_alp, model, cubic, gamma, budget=1e-3, **soft),
        ),
        ("relaxed ALP, cubic" + ("" if drawn else ", where LBFS goes"), relaxed),
        (
            "linearly relaxed ALP, cubic, 20,000 mixtures of 2",
            partial(
                primal.aggregated_alp,
                model,
                cubic,
                gamma,
                weights=primal.Mixtures(20_000, 2),
                **common,
            ),
        ),
    ]


def _average(model: Model, law: Any, drawn: Json) -> Work:
    """Programs of the average criterion."""
    bases = _bases(model)
    restarts = partial(
        primal.perturbed_alp, model, bases["cubic"], gamma=0.98, restarts=law, **drawn
    )
    return [
        ("ALP with restarts, γ = .98, cubic", restarts),
        *(
            (
                f"average ALP, {name}",
                partial(primal.average_alp, model, basis, relevance=law, **drawn),
            )
            for name, basis in bases.items()
        ),
    ]


def _bounds(setting: _Setting) -> Work:
    """Lower bounds on the average cost, without policies."""
    model = setting.model
    if setting.endless:
        near = primal.concat(primal.monomials(model, 2), primal.capped_monomials(model, 4, 20))
        cells = {
            "squares": primal.monomials(model, 2),
            f"squares and min(x, 20), {len(near)} functions": near,
        }
        return [
            (f"bound, {name}", partial(primal.orthant_bound, model, b, tol=1e-4))
            for name, b in cells.items()
        ]
    wider = primal.concat(primal.monomials(model, 5), primal.boundaries(model, 2))
    if setting.few:
        bases = {f"degree 5 and boundaries, {len(wider)} functions": wider}
    else:
        bases = _bases(model)
    return [
        (f"bound, {name}", partial(primal.average_bound, model, basis))
        for name, basis in bases.items()
    ]


# -- a row -----------------------------------------------------------------------------------------


def _row(setting: _Setting, name: str, make: Callable[[], Any], optimum: float | None) -> Row:
    """Solve, then evaluate the policy; the seconds are those of the solver.

    What a program misses is its note.
    """
    started = time.monotonic()
    bound = None
    status = ""
    try:
        found = make()
    except InputError as error:
        return Row(name, note=str(error), optimum=optimum)
    seconds = round(time.monotonic() - started, 3)
    if isinstance(found, primal.PrimalSolution):
        status = f"{found.status}; "
        looked = found.status is not Status.SAMPLED  # values of drawn constraints prove little
        if looked and type(found.criterion) is type(setting.criterion):
            proved = found.lower_bound.kind == PROVED and not found.lower_bound.assumed
            if proved:
                bound = found.lower_bound.value
            else:
                bound = None
        if name.startswith("bound"):
            return Row(
                name, note=str(found.status), optimum=optimum, lower_bound=bound, seconds=seconds
            )
        found = found.policy()
    row = row_of(
        name,
        setting.cost(found),
        published=setting.known.get(name),
        optimum=optimum,
        lower_bound=bound,
        seconds=seconds,
    )
    return replace(row, note=status + row.note)
