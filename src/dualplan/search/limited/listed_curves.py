"""The curve of least cost against a limit where states can be listed: the linear programs of
`exact/levels.py` at one level after the other, against the clock.

First come the two ends: the least measure that any policy can have, and that of the cheapest
policy; then levels between them, each halving the widest gap that is left. So a curve that the
clock cuts off is a coarser one, of which every point is exact. All policies that were found on the
way are kept (`checkpoint.npz`), and a run that goes on begins with them.
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
from dualplan.evaluation.judge import exact_evaluation
from dualplan.evaluation.results import Evaluation
from dualplan.exact.decomposition import PairSweeper, Priced, occupancy_of
from dualplan.exact.levels import Levels, SolvedLevel
from dualplan.exact.operators import Pairs, Sweeper
from dualplan.exact.policy import evaluate_exact
from dualplan.exact.programs import MOST_WHOLE_PROGRAM_PAIRS
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted
from dualplan.policies.contract import Policy
from dualplan.policies.tables import tabulated
from dualplan.search.contract import Search
from dualplan.search.limited.curves import Curve, Point

LEVELS_OF_A_CURVE = 13
# of the time, which the two ends of all curves may take; if they need more, levels would be few,
# and the time is left to a search
ENDS_TIME_SHARE = 0.3
LEAST_RESPONSES = 15  # policies that a curve needs, each of them a matter of so many sweeps
LEAST_SWEEPS = 200
LISTED_TIME_SHARE = 0.95  # of the time, for all of it
START_TIME_SHARE = 0.1  # of the time, for the policies to begin with
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
        self.solved: dict[str, list[SolvedLevel]] = {name: [] for name in measures}
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
            if not all(self.solved.values()):
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
                    return all(self.solved.values())
        return True

    def _solve_level(self, levels: Levels, at_most: float, clock: Clock) -> bool:
        """One level; whether there was time for it."""
        if clock.over:
            return False
        self.tell(f"{levels.measure} at most {at_most:.4g}, {len(self.columns)} policies")
        try:
            found = levels.solve(at_most)
        except (OutOfTimeError, MissingError):
            return False
        if found.kept:
            self.solved[levels.measure].append(found)
        if self.run is not None:
            known = {"measure": levels.measure, **found.solution.to_json()}
            self.run.trace(known)
        return True

    def _curve(self, measure: str) -> Curve:
        """The points in the order of their levels."""
        solved = sorted(self.solved[measure], key=lambda one: one.at_most)
        return Curve(measure, tuple(self._point(one) for one in solved), (), exact=True)

    def _point(self, one: SolvedLevel) -> Point:
        found = one.solution
        value = found.limits[0].value
        cost = Interval(found.upper, found.lower, found.upper, 1.0)
        measure = Interval(value, value, value, 1.0)
        shares = {found.policy.name: 1.0}
        return Point(one.at_most, found.policy, shares, cost, measure, found.lower, one.price)

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
    clock = search.clock.another(max(START_TIME_SHARE * search.clock.allowed, 0.5))
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
