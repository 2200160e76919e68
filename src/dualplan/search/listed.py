"""The exact answer, where states can be listed and sweeps over them fit into the time.

What a sweep takes is measured on a few states. Where some hundred sweeps fit into the time,
iteration over all states (`exact/iteration.py`) runs against the clock. It brings a policy and
bounds on both sides at any time, so nothing is lost when it ends early. It goes on only as long as
the bounds approach each other fast enough to meet in time: with width w(t), and the rate

    r = ln(w(t/2)/w(t)) / (t/2),

they meet about ln(w(t)/wanted)/r seconds from now. Otherwise the time is left to the search.

With limits the best policy without them comes first: if it keeps them, it is the answer. If not,
the linear program with these limits is solved (`exact/programs.py`), as long as it has time.

An answer is *optimal* if its cost and the bound are apart by at most a millionth of the cost, or by
what rounding makes; where a larger gap was asked for, that one ends it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from dualplan.core.budgets import Clock
from dualplan.core.deadlines import until
from dualplan.core.errors import InputError, MissingError, ModelError
from dualplan.core.status import PROVED, Status
from dualplan.core.streams import Place
from dualplan.evaluation.judge import Judge, exact_evaluation
from dualplan.evaluation.lower_bounds import LowerBound
from dualplan.evaluation.results import EXACT_EVALUATION, Evaluation
from dualplan.exact.iteration import ExactSolution, seconds_for, solve_exact
from dualplan.exact.operators import Sweeper
from dualplan.exact.policy import evaluate_exact
from dualplan.exact.programs import solve_lp
from dualplan.models.contract import few_states
from dualplan.policies.contract import Policy
from dualplan.search.contract import Candidate, Search
from dualplan.values.functions import StateFunction, state_function

EXACT = "exact"  # the name of the method
OPTIMAL_GAP = 1e-6  # of the cost: the accuracy up to which an answer is optimal
NO_TOLERANCE = 1e-300  # absolute: the relative one counts, and rounding
LEAST_SWEEPS = 200  # that must fit into the time
MOST_OUTCOMES_A_SECOND = 1e9  # of sweeps: where that is not enough, nothing needs to be measured
EXACT_TIME_SHARE = 0.8  # of what is left, at most
LEAST_EXACT_SECONDS = 1.0  # whatever is left: a small model is solved in any time
TRIAL_TIME_SHARE = 0.3  # of what is left, after which the prospect counts
# sweeps of all actions before which nothing can be said of a rate: the first ones take longer
LEAST_RATED_SWEEPS = 4
# of an optimal policy with many states: what its measures may take, of what the solution took
MEASURING_TIME_SHARE = 0.1
LEAST_MEASURING_SECONDS = 1.0
MEASURING_STEPS = 20_000_000


@dataclass(frozen=True, eq=False)
class Listed:
    """What sweeps over all states found: a policy, a bound, the values that prove it, and the
    policy's cost if it is as near the bound as was asked.
    """

    candidate: Candidate
    bound: LowerBound
    potential: StateFunction | None = None
    evaluation: Evaluation | None = None

    @property
    def done(self) -> bool:
        """Whether the policy is as near the bound as was asked."""
        return self.evaluation is not None


def fits(search: Search) -> bool:
    """Whether the states can be listed, in the memory and the time that there are."""
    model = search.model
    if not search.listed or not model.box.bounded:
        return False
    outcomes = float(model.box.count or 0) * len(model.actions) * max(1, model.code.max_outcomes)
    if LEAST_SWEEPS * outcomes / MOST_OUTCOMES_A_SECOND > _exact_seconds(search.clock):
        return False
    try:
        sweeper = Sweeper(model)
    except (MissingError, InputError):
        return False
    return seconds_for(sweeper, LEAST_SWEEPS) <= _exact_seconds(search.clock)


def _exact_seconds(clock: Clock) -> float:
    """How long sweeps over all states may take."""
    return max(EXACT_TIME_SHARE * clock.left, LEAST_EXACT_SECONDS)


def solve_listed(search: Search) -> Listed | None:
    """The exact answer, or what there is when it would take too long.

    None if no policy was found that keeps the limits.
    """
    prospect = _Prospect(search)
    try:
        with until(search.clock.another(_exact_seconds(search.clock))):
            found = solve_exact(
                search.model,
                search.criterion,
                tol=NO_TOLERANCE,
                relative_tol=search.wanted_gap or OPTIMAL_GAP,
                progress=prospect,
            )
    except ModelError:
        # the optimal cost depends on the start: a search from this start goes on
        return None
    candidate = Candidate(found.policy, EXACT)
    bound = LowerBound(
        found.lower,
        PROVED,
        search.criterion.words,
        (),
        sweeps=found.sweeps,
        seconds=found.seconds,
        functions=f"{found.sweeps:,} sweeps over all states",
    )
    potential = state_function(search.model, found.values)
    if found.status not in (Status.SOLVED, Status.ROUNDING):
        return Listed(candidate, bound, potential)
    known = _known(search, found)
    if known.excess(search.wanted_limits) == 0:
        return Listed(candidate, bound, potential, known)
    return _limited(search, bound)


class _Prospect:
    """Watches the bounds of sweeps, and says when they will not meet in time."""

    def __init__(self, search: Search) -> None:
        self.clock = search.clock.another(max(search.clock.left, LEAST_EXACT_SECONDS))
        self.gap = search.wanted_gap or OPTIMAL_GAP
        self.widths: list[tuple[float, float]] = []  # seconds, and the least width till then
        self.half = 0

    def __call__(self, _: int, lower: float, upper: float) -> bool:
        """Whether to stop."""
        now = self.clock.spent
        width = min(upper - lower, self.widths[-1][1] if self.widths else math.inf)
        self.widths.append((now, width))
        wanted = self.gap * min(abs(lower), abs(upper))
        trial = max(TRIAL_TIME_SHARE * self.clock.allowed, LEAST_EXACT_SECONDS)
        if now < trial or width <= wanted or wanted == 0:
            return False
        if len(self.widths) < LEAST_RATED_SWEEPS:
            return False
        while self.widths[self.half + 1][0] < now / 2:
            self.half += 1
        then, before = self.widths[self.half]
        if not before > width:
            return True
        rate = math.log(before / width) / (now - then)
        return now + math.log(width / wanted) / rate > EXACT_TIME_SHARE * self.clock.allowed


def _known(search: Search, found: ExactSolution) -> Evaluation:
    """The cost of the optimal policy, and its measures: exact where states are few."""
    started = time.monotonic()
    if few_states(search.model):
        try:
            return exact_evaluation(
                search.model, evaluate_exact(search.model, found.policy, search.criterion)
            )
        except ModelError:
            # several recurrent classes, all of them with this cost
            return _proved(_simulated(search, found.policy, found.seconds), found, started)
    return _proved(_simulated(search, found.policy, found.seconds), found, started)


def _simulated(search: Search, policy: Policy, spent: float) -> Evaluation:
    """What a short simulation measures."""
    allowed = LEAST_MEASURING_SECONDS + MEASURING_TIME_SHARE * spent
    judge = Judge(
        method="simulation",
        steps=MEASURING_STEPS,
        seed=search.fresh(Place.LAST_EVALUATION),
        time=max(min(allowed, search.clock.left), 0.1),
    )
    return judge(search.model, policy, search.criterion)


def _proved(run: Evaluation, found: ExactSolution, started: float) -> Evaluation:
    """A simulation with the cost that is proved in its place."""
    return replace(
        run,
        cost=found.value,
        lower=found.lower,
        upper=found.upper,
        confidence=1.0,
        method=EXACT_EVALUATION,
        status=Status.SOLVED,
        seconds=time.monotonic() - started,
        notes=(*run.notes, "the cost is exact, other measures were simulated"),
    )


def _limited(search: Search, free: LowerBound) -> Listed | None:
    """The optimum under limits, if its linear program ends in time."""
    try:
        found = solve_lp(
            search.model,
            search.criterion,
            limits=search.wanted_limits,
            tol=(search.wanted_gap or OPTIMAL_GAP) * max(abs(free.value), OPTIMAL_GAP),
            time=_exact_seconds(search.clock),
        )
    except (MissingError, ModelError):
        return None
    bound = replace(
        free,
        value=max(found.lower, free.value),
        sweeps=0,
        functions="the linear program over all states, with the limits",
    )
    candidate = Candidate(found.policy, EXACT)
    if found.status is not Status.SOLVED:
        return Listed(candidate, bound)
    evaluation = exact_evaluation(
        search.model, evaluate_exact(search.model, found.policy, search.criterion)
    )
    return Listed(candidate, bound, None, evaluation)
