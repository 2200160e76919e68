"""The curve of least cost against a limit where states can be listed: the linear programs of
`exact/levels.py` at one level after the other, against the clock.

First come the two ends: the least measure that any policy can have, and that of the cheapest
policy; then levels between them, each halving the widest gap that is left. So a curve that the
clock cuts off is a coarser one, of which every point is exact. All policies that were found on the
way are kept (`checkpoint.npz`), and a run that goes on begins with them.

The policy of a point is π_u of the optimal occupancy u. Where a program is decomposed, u mixes
occupancies of policies that may hardly meet; then the chain of π_u nearly falls apart, and its cost
is not known well. With the average criterion the same u is had by these policies in turn
(`policies/alternating.py`), each of which is known well. A level whose cost and lower bound are far
apart even so is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from dualplan.core.budgets import Clock
from dualplan.core.deadlines import until
from dualplan.core.errors import InputError, MissingError, ModelError, OutOfTimeError
from dualplan.core.intervals import Interval
from dualplan.core.runs import Run
from dualplan.core.status import Status
from dualplan.core.types import Floats
from dualplan.evaluation.judge import Judge, exact_evaluation
from dualplan.evaluation.results import EXACT_EVALUATION, Evaluation
from dualplan.exact.decomposition import PairSweeper, Priced, occupancy_of
from dualplan.exact.levels import Levels, SolvedLevel
from dualplan.exact.operators import Pairs, Sweeper
from dualplan.exact.policy import evaluate_exact
from dualplan.exact.programs import MOST_WHOLE_PROGRAM_PAIRS, measure_ratio
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted
from dualplan.models.limits import Limit
from dualplan.policies.alternating import Alternating
from dualplan.policies.contract import Policy
from dualplan.policies.tables import TablePolicy, tabulated
from dualplan.search.contract import Search
from dualplan.search.limited.curves import Curve, Point, followed
from dualplan.search.limited.program import best_shares

LEVELS_OF_A_CURVE = 13
# of the time, which the two ends of all curves may take; if they need more, levels would be few,
# and the time is left to a search
ENDS_TIME_SHARE = 0.3
POINT_GAP = 1e-3  # of the cost: how far its bounds may be apart for a point
LEAST_MEETING_SHARE = (
    1e-9  # of the time that each of several policies is in a state where they meet
)
LEAST_RESPONSES = 15  # policies that a curve needs, each of them a matter of so many sweeps
LEAST_SWEEPS = 200
LISTED_TIME_SHARE = 0.85  # of the time, for all of it
START_TIME_SHARE = 0.1  # of the time, for the policies to begin with
LEAST_START_SECONDS = 0.5
CHECKPOINT_ACTIONS = "actions"  # a row for each policy, an action for each state

Tell = Callable[[str], None]


class ListedCurves:
    """Curves over all states, one for each measure, with shared columns."""

    def __init__(
        self, search: Search, measures: Sequence[str], run: Run | None, tell: Tell
    ) -> None:
        self.search = search
        self.model: Model = search.model
        self.criterion: Criterion = search.criterion
        self.measures = tuple(measures)
        self.run = run
        self.tell = tell
        self.columns: list[Priced] = []
        self.points: dict[str, list[Point]] = {name: [] for name in measures}
        self.status = Status.SOLVED

    def found(self, may_give_up: bool) -> list[Curve] | None:
        """All curves; None if the time is too short for them, or the model has none.

        Where it may give up, it does so when the ends take so long that levels would be few.
        """
        clock = self.search.clock
        try:
            with until(clock.part(LISTED_TIME_SHARE * clock.left)):
                if not self._solve(clock.part(LISTED_TIME_SHARE * clock.left), may_give_up):
                    return None
        except (MissingError, InputError, OutOfTimeError):
            # too large a table, or costs that depend on the start: a search can do without
            return None
        except KeyboardInterrupt:
            if not all(self.points.values()):
                raise
            self.status = Status.INTERRUPTED
        self._keep()
        return [self._curve(name) for name in self.measures]

    def _solve(self, clock: Clock, may_give_up: bool) -> bool:
        """Level after level; whether there is time for more than the ends."""
        pairs = Sweeper(self.model).pairs
        gives_up = may_give_up and not isinstance(self.criterion, Discounted)
        if gives_up and _least_seconds(pairs) > clock.left:
            return False
        self._load(pairs)
        every = {
            name: Levels(pairs, self.criterion, name, self.columns, clock) for name in self.measures
        }
        ends: dict[str, tuple[float, float]] = {}
        for name, levels in every.items():
            self.tell(f"the ends of the curve of {name}")
            ends[name] = levels.ends()
            if gives_up and clock.spent > ENDS_TIME_SHARE * clock.allowed:
                return False
        for share in halving(LEVELS_OF_A_CURVE):
            for name, levels in every.items():
                low, high = ends[name]
                if share < 1 and not high > low:
                    continue
                if not self._solve_level(levels, low + share * (high - low), clock):
                    self.status = Status.TIME
                    return all(self.points.values())
        return True

    def _solve_level(self, levels: Levels, at_most: float, clock: Clock) -> bool:
        """One level; whether there was time for it."""
        if clock.over:
            return False
        self.tell(f"{levels.measure} at most {at_most:.4g}, {len(self.columns)} policies")
        try:
            found = levels.solve(at_most)
        except (OutOfTimeError, MissingError, ModelError):
            self.status = Status.TIME
            return not clock.over
        point = self._point(levels, found)
        if point is not None:
            self.points[levels.measure].append(point)
        else:
            self.status = Status.TIME
        if self.run is not None:
            known = {"measure": levels.measure, **found.solution.to_json()}
            self.run.trace(known)
        return True

    def _curve(self, measure: str) -> Curve:
        """The points in the order of their levels."""
        points = sorted(self.points[measure], key=lambda one: one.at_most)
        return Curve(measure, tuple(points), (), exact=True)

    def _point(self, levels: Levels, one: SolvedLevel) -> Point | None:
        """The point of a level; None if its bounds are far apart."""
        found = one.solution
        if one.kept and _near(found.lower, found.upper):
            value = found.limits[0].value
            shares = {found.policy.name: 1.0}
            cost = Interval(found.upper, found.lower, found.upper, 1.0)
            measure = Interval(value, value, value, 1.0)
            policy: Policy = found.policy
            return Point(one.at_most, policy, shares, cost, measure, found.lower, one.price)
        if isinstance(self.criterion, Discounted):
            return None
        return self._in_turn(levels, one)

    def _in_turn(self, levels: Levels, one: SolvedLevel) -> Point | None:
        """The point of a level with policies in turn."""
        pairs = levels.pairs
        n, d = levels.weights
        name = levels.measure
        runs = [_of_occupancy(name, pairs.losses, n, d, column) for column in self.columns]
        shares = best_shares(runs, [Limit(name, one.at_most)], 0.0)
        if not shares.feasible:
            return None
        chosen = [self.columns[j] for j in shares.followed]
        common = np.min([pairs.marginal(column.occupancy) for column in chosen], axis=0)
        if common.max() <= LEAST_MEETING_SHARE:
            return None
        parts = [
            TablePolicy(self.model, column.actions, name=f"optimal {k + 1}")
            for k, column in enumerate(chosen)
        ]
        theta = shares.theta[shares.followed]
        words = {part.name: float(t) for part, t in zip(parts, theta, strict=True)}
        home = self.model.box.state(int(np.argmax(common)))
        policy = Alternating(parts, theta / theta.sum(), home, name=followed(words))
        known = Judge(method=EXACT_EVALUATION)(self.model, policy, self.criterion)
        if not _near(one.solution.lower, known.upper):
            return None
        cost = Interval(known.cost, known.lower, known.upper, 1.0)
        lower = min(one.solution.lower, known.upper)
        return Point(one.at_most, policy, words, cost, known.measures[name], lower, one.price)

    # -- the columns of a run that goes on ---------------------------------------------------------

    def _load(self, pairs: Pairs) -> None:
        saved = None if self.run is None else self.run.checkpoint()
        if saved is None:
            return
        self.tell("the policies of the run before")
        for actions in saved[CHECKPOINT_ACTIONS].astype(np.int64):
            occupancy = occupancy_of(pairs, actions, self.criterion)
            values = np.zeros(actions.size)
            self.columns.append(Priced(actions, occupancy, values, -np.inf))

    def _keep(self) -> None:
        if self.run is not None:
            actions = np.unique([one.actions for one in self.columns], axis=0)
            self.run.save_checkpoint({CHECKPOINT_ACTIONS: actions.astype(np.int32)})


def _near(lower: float, upper: float) -> bool:
    """Whether the bounds of a level are near enough for a point."""
    return upper - lower <= POINT_GAP * max(abs(lower), abs(upper))


def _of_occupancy(name: str, losses: Floats, n: Floats, d: Floats, column: Priced) -> Evaluation:
    """What a policy costs, by its occupancy."""
    u = column.occupancy
    cost = float(losses @ u)
    value = measure_ratio(n, d, u)
    return Evaluation(
        policy="",
        cost=cost,
        lower=cost,
        upper=cost,
        confidence=1.0,
        method=EXACT_EVALUATION,
        status=Status.SOLVED,
        measures={name: Interval(value, value, value, 1.0)},
        denominators={name: float(d @ u)},
    )


def _least_seconds(pairs: Pairs) -> float:
    """What a curve takes at least, by what a sweep over its pairs takes; nothing for programs that
    are solved whole.
    """
    if pairs.losses.size <= MOST_WHOLE_PROGRAM_PAIRS:
        return 0.0
    sweeper = PairSweeper(pairs, pairs.losses)
    values = np.zeros(sweeper.states)
    started = time.monotonic()
    sweeper.optimal(values, 1.0, out=np.empty(sweeper.states))
    return (time.monotonic() - started) * LEAST_SWEEPS * LEAST_RESPONSES


def halving(count: int) -> list[float]:
    """So many shares from 0 to 1: the ends, and then always the middle of a widest gap."""
    steps = count - 1
    order = [0, steps]
    while len(order) < count:
        known = sorted(order)
        widths = np.diff(known)
        k = int(np.argmax(widths))
        order.append(known[k] + int(widths[k]) // 2)
    return [place / steps for place in order]


def exact_start(search: Search, policies: Sequence[Policy]) -> tuple[Evaluation, ...]:
    """What the policies to begin with cost over all states, as far as there is time."""
    found = []
    allowed = min(START_TIME_SHARE * search.clock.allowed, search.clock.left)
    clock = search.clock.another(max(allowed, LEAST_START_SECONDS))
    for policy in policies:
        if clock.over:
            break
        try:
            with until(clock):
                exact = evaluate_exact(search.model, tabulated(policy), search.criterion)
        except (ModelError, OutOfTimeError, InputError):
            continue  # several recurrent classes, or what it does is not allowed
        found.append(exact_evaluation(search.model, exact))
    return tuple(found)
