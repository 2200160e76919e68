"""The curve of least average cost against a limit at any size: one program over measured policies,
searches at its prices.

Over the policies that were measured, C(b) is the value of the program of `program.py`: convex and
falling in b where a step's denominator is the same for all policies, piecewise linear, with the
prices as its slopes. It needs no more policies than it has corners, and they serve all curves.

The search goes over levels between the least measure that any policy reached and that of the
cheapest policy, the tightest first, then without a limit, then from the middle outwards, and at
each asks for policies at its price, as the step `limits` does; levels whose mixture and price were
asked about before are passed over. Then come larger sizes, until the time is over.

*The end.* Every policy that has a share at some level is measured afresh, on random numbers that
nothing was chosen by, and the curve is that of these runs. Shares are chosen by them, too. So
intervals are made wider, until those of all policies hold *together* with the stated probability:
with shares θ, however they were chosen, the cost is then between Σ θ_j lower_j and Σ θ_j upper_j.

What time is left then is for lines below the curves (`lower_lines.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dualplan.core.deadlines import deadline, time_is_over, until
from dualplan.core.errors import InputError, MissingError
from dualplan.core.runs import RESULT_FILE, Run, read_json
from dualplan.core.status import Status
from dualplan.core.streams import Place, PriceWord, own_seed
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.results import SAVED_CONFIDENCE, Evaluation
from dualplan.models.limits import Limit
from dualplan.policies.alternating import Alternating
from dualplan.policies.contract import Policy
from dualplan.policies.saved import load_policy, save_policy
from dualplan.policies.tables import random_policy, tabulated
from dualplan.search.contract import Candidate, Member, Search
from dualplan.search.duels import (
    BEGINNING_RELATIVE_WIDTH,
    BEGINNING_STEPS,
    QUICK_PACE,
    pace,
    screen,
)
from dualplan.search.limited.curves import Column, Curve, Line, Point, followed, mixed
from dualplan.search.limited.lower_lines import with_lines
from dualplan.search.limited.program import Shares, best_shares
from dualplan.search.limited.step import (
    ROUNDS_BY_SIZE,
    ByPrices,
    Columns,
    is_known,
    meeting,
    visit_counts,
)

SEARCHED_LEVELS = 7  # between the ends
SHOWN_LEVELS = 13
CORNER_LEVELS_FACTOR = (
    4  # so many times as many, at which policies are looked for that have a share
)
BEGINNING_TIME_SHARE = 0.1  # of the time, for the policies to begin with
SEARCHING_TIME_SHARE = 0.55  # of the time, until which policies are looked for
MEASURING_TIME_SHARE = 0.75  # of the time, until which they are measured afresh
LEVEL_TIME_SHARE = 1 / 3  # of the time that is left, for a level at most
LEAST_LEVEL_SECONDS = 4.0  # the same, however little is left
LAST_STEPS = 200_000_000  # of a policy that is measured afresh, at most
LEAST_LAST_SECONDS = 0.2
SLOW_TIME_FACTOR = 3.0  # so many times as long, what is not a rule with a loop of its own
INTERRUPTED_SECONDS = 2.0  # for what is measured afresh, once it was interrupted
NEAR_CORNER_SHARE = 0.03  # of the range of levels
STEP_SHARE = 1e-6  # of the range of levels, by which the slope to the right is taken
POINT_HALF_WIDTHS = 1.0  # by how many half widths measures of the last runs count as larger
COLUMN_FILE = "column-{}.npz"  # in the folder of a run
OWN_SOURCES = ("heuristic", "given")  # what a run that goes on has anyway

Tell = Callable[[str], None]


class SearchedCurves:
    """A search for all levels of all curves at once."""

    def __init__(
        self, search: Search, measures: Sequence[str], step: ByPrices, run: Run | None, tell: Tell
    ) -> None:
        self.search = search
        self.measures = tuple(measures)
        self.step = step
        self.run = run
        self.told = tell
        self.searches = 0
        self.start: tuple[Evaluation, ...] = ()
        self.saved: set[str] = set()  # fingerprints of policies in the folder
        self.before: frozenset[str] = frozenset()  # the same, of a run that goes on
        self.homes: dict[str, dict[tuple[int, ...], int]] = {}
        self.named: tuple[Column, ...] = ()
        self.status = Status.SETTLED

    def tell(self, words: str) -> None:
        """Say where it stands."""
        known = len(self.search.columns)
        self.told(f"{known} policies, {self.searches} searches: {words}")

    def found(self, policies: Sequence[Policy], more: Sequence[Policy] = ()) -> list[Curve]:
        """Search, measure afresh, put the curves together, and prove lines below them.

        `more` are policies to begin with besides those that were given.
        """
        clock = self.search.clock
        self._begin(policies, more)
        try:
            with until(clock.part(SEARCHING_TIME_SHARE * clock.allowed - clock.spent)):
                self._search()
                if time_is_over() or self.columns.cut_off:
                    self.status = Status.TIME
        except KeyboardInterrupt:
            self.status = Status.INTERRUPTED
        try:
            self._measure_afresh()
        except KeyboardInterrupt:
            self.status = Status.INTERRUPTED
        self._keep_columns()
        curves = self._named_curves()
        if self.status is Status.INTERRUPTED:
            return curves
        try:
            return with_lines(self.search, curves, _known_lines(self.run), self.tell)
        except KeyboardInterrupt:
            self.status = Status.INTERRUPTED
            return curves

    # -- the policies to begin with ----------------------------------------------------------------

    def _begin(self, policies: Sequence[Policy], more: Sequence[Policy]) -> None:
        """Measure what there is."""
        search = self.search
        model = search.model
        given = [Candidate(tabulated(policy), "given") for policy in policies]
        given = given or [Candidate(model.policy(name), "heuristic") for name in model.policies]
        given = given or [Candidate(random_policy(model), "random")]
        others = [*(Candidate(policy, "exact") for policy in more), *self._saved()]
        self.tell("simulating the policies to begin with")
        with until(search.clock.part(BEGINNING_TIME_SHARE * search.clock.allowed)):
            members = screen(
                search,
                [*given, *others],
                BEGINNING_STEPS,
                relative_tol=BEGINNING_RELATIVE_WIDTH,
                place=Place.BEGINNING,
            )
        # if not even one was simulated in that time, the first, however long it takes
        members = members or screen(search, given[:1], place=Place.BEGINNING)
        members = [m for m in members if is_known(m, self.measures)]
        if not members:
            raise InputError(
                f"none of the policies to begin with can be simulated on model {model.name!r}."
            )
        search.members = members
        search.best = members[0]
        names = {one.policy.digest for one in given}
        self.start = tuple(m.run for m in members if m.policy.digest in names)
        before = 0 if self.run is None else self.run.traced
        self.columns = Columns(search, own_seed(search.seed, PriceWord.CURVE + before))

    def _saved(self) -> list[Candidate]:
        """Policies of a run that goes on."""
        found = []
        if self.run is None:
            return []
        sources = _sources(self.run)
        for path in sorted(self.run.folder.glob(COLUMN_FILE.format("*"))):
            policy = load_policy(path, self.search.model)
            found.append(Candidate(policy, sources.get(policy.digest, "an earlier run")))
            self.saved.add(policy.digest)
        self.before = frozenset(self.saved)
        return found

    # -- the search --------------------------------------------------------------------------------

    def _search(self) -> None:
        """Searches at the prices of all levels, in growing sizes."""
        asked: set[tuple[str, ...]] = set()
        for size in range(len(ROUNDS_BY_SIZE)):
            improved = True
            while improved:
                improved = False
                for measure, level in self._levels():
                    if time_is_over():
                        return
                    shares = self._shares(measure, level)
                    price = f"{shares.prices[0]:.3g}"
                    question = (measure, str(size), price, *self._digests(shares))
                    if question in asked:
                        continue
                    asked.add(question)
                    improved = self._ask(level, shares, size) or improved

    def _levels(self) -> list[tuple[str, float]]:
        """The tightest first, then without a limit, then from the middle outwards: the ends fix
        what lies between.
        """
        runs = [m.run for m in self._members()]
        cheapest = int(np.argmin([run.cost for run in runs]))
        every: list[list[tuple[str, float]]] = []
        for name in self.measures:
            values = [run.measures[name].value for run in runs]
            low = min(values)
            high = values[cheapest]
            inner = np.linspace(low, high, SEARCHED_LEVELS + 2)[1:-1].tolist()
            inner.sort(key=lambda b: abs(b - (low + high) / 2))
            every.append([(name, level) for level in (min(low, 0.0), np.inf, *inner)])
        return [one for turn in zip(*every, strict=True) for one in turn]

    def _members(self) -> list[Member]:
        """The policies of which all measures are known."""
        return [m for m in self.search.columns.values() if is_known(m, self.measures)]

    def _shares(self, measure: str, level: float) -> Shares:
        """The program at a level; without end it is that of the cost alone."""
        at_most = level if np.isfinite(level) else self._beyond(measure)
        self.search.limits = (Limit(measure, at_most),)
        return self.columns.shares()

    def _beyond(self, measure: str) -> float:
        """A level that all policies keep."""
        runs = [m.run for m in self.columns.members]
        return 2 * max(abs(run.measures[measure].upper) for run in runs) + 1.0

    def _digests(self, shares: Shares) -> list[str]:
        return [self.columns.members[j].policy.digest for j in shares.followed]

    def _ask(self, level: float, shares: Shares, size: int) -> bool:
        """Look for policies at the price of a level; whether one helped."""
        limit = self.search.limits[0]
        self.tell(f"{limit.name} at most {level:.4g}, size {size}")
        self.searches += 1
        before = len(self.search.columns)
        # lattices are fitted to where policies at hand go: those that are followed here
        self.search.members = [self.columns.members[j] for j in shares.followed]
        self.search.best = self.search.members[0]
        allowed = max(LEVEL_TIME_SHARE * deadline().left, LEAST_LEVEL_SECONDS)
        with until(deadline().part(allowed)):
            helped = self.step.improve(self.columns, shares, size)
        after = self.columns.shares()
        if self.run is not None:
            line = {
                "measure": limit.name,
                "at_most": level,
                "size": size,
                "cost": after.cost,
                "excess": after.excess,
                "policies": len(self.search.columns) - before,
                "helped": helped,
            }
            self.run.trace(line)
        if helped:
            for j in after.followed:
                self._keep(self.columns.members[j])
        return helped

    # -- what is saved -----------------------------------------------------------------------------

    def _keep(self, member: Member) -> None:
        """Save a policy that a run which goes on would not have."""
        policy = member.policy
        own = member.candidate.source in OWN_SOURCES
        if self.run is None or own or policy.digest in self.saved:
            return
        self.saved.add(policy.digest)
        try:
            save_policy(policy, self._file(policy))
        except MissingError:  # a function of the user
            self.run.trace({"not saved": policy.name})

    def _file(self, policy: Policy) -> Path:
        assert self.run is not None
        return self.run.folder / COLUMN_FILE.format(policy.digest)

    def _keep_columns(self) -> None:
        """Those of the curves, and no others: a run that goes on begins with them."""
        if self.run is None:
            return
        for member in self.columns.members:
            self._keep(member)
        wanted = {self._file(member.policy) for member in self.columns.members}
        for path in self.run.folder.glob(COLUMN_FILE.format("*")):
            if path not in wanted:
                path.unlink()

    # -- the curves --------------------------------------------------------------------------------

    def _measure_afresh(self) -> None:
        """The policies that have a share at some level, in what is left of their time."""
        clock = self.search.clock
        chosen = self._with_shares()
        allowed = MEASURING_TIME_SHARE * clock.allowed - clock.spent
        if self.status is Status.INTERRUPTED:
            allowed = INTERRUPTED_SECONDS
        every = clock.another(max(allowed, LEAST_LAST_SECONDS * len(chosen)))
        # each interval of a cost or a measure holds with so much that all of them do together
        intervals = len(chosen) * (1 + len(self.measures))
        confidence = 1 - (1 - SAVED_CONFIDENCE) / intervals
        known = {member.policy.digest: member for member in chosen}
        self.search.columns = dict(known)
        shares = np.array([self._slowness(member) for member in chosen])
        for k, member in enumerate(chosen):
            self.tell(f"measuring afresh, {k + 1} of {len(chosen)}")
            with until(every.part(every.left * shares[k] / shares[k:].sum())):
                # one that cannot be measured again keeps what is known of it
                self.columns.measure_afresh(member, LAST_STEPS, confidence)

    def _slowness(self, member: Member) -> float:
        """How many times as long a policy is measured as a quick one."""
        if pace(self.search, member.candidate) < QUICK_PACE:
            return SLOW_TIME_FACTOR
        return 1.0

    def _with_shares(self) -> list[Member]:
        """The policies that a curve may need: at the ends, at levels between them, and those that
        it had before.
        """
        members = self._members()
        runs = [m.run for m in members]
        cheapest = int(np.argmin([run.cost for run in runs]))
        wanted = {cheapest}
        wanted |= {k for k, m in enumerate(members) if m.policy.digest in self.before}
        for name in self.measures:
            values = np.array([run.measures[name].value for run in runs])
            wanted.add(int(np.argmin(values)))
            count = CORNER_LEVELS_FACTOR * (SHOWN_LEVELS - 1) + 1
            for level in np.linspace(values.min(), values[cheapest], count):
                wanted |= set(best_shares(runs, [Limit(name, float(level))], 0.0).followed)
        return [members[k] for k in sorted(wanted)]

    def _named_curves(self) -> list[Curve]:
        """All curves, once those policies have names that points follow.

        Levels lie at equal distances, and at the corners, which are those policies themselves.
        """
        self.named = self._with_names(self._members())
        curves = [self._curve(name, ()) for name in self.measures]
        corners = [{name for point in curve.points for name in point.shares} for curve in curves]
        digests = [
            [column.policy.digest for column in self.named if column.name in own] for own in corners
        ]
        used = {digest for own in digests for digest in own}
        self.named = self._with_names([m for m in self._members() if m.policy.digest in used])
        return [self._curve(name, own) for name, own in zip(self.measures, digests, strict=True)]

    def _with_names(self, members: list[Member]) -> tuple[Column, ...]:
        """The policies by the names of heuristics, and numbers for the others, in the order of the
        first measure.
        """
        members.sort(key=lambda m: m.run.measures[self.measures[0]].value)
        found: list[Column] = []
        count = 0
        for member in members:
            source = member.candidate.source
            name = member.policy.name
            if source not in OWN_SOURCES:
                count += 1
                name = f"P{count}"
            found.append(Column(name, source, member.policy, member.run))
        return tuple(found)

    def _curve(self, measure: str, corners: Sequence[str]) -> Curve:
        """Points at levels between the least measure and that of the cheapest policy, and at the
        measures of corners, which are fingerprints of policies.
        """
        runs = [column.run for column in self.named]
        measures = np.array([run.measures[measure].upper for run in runs])
        costs = np.array([run.cost for run in runs])
        ends = measures.min(), measures[int(np.argmin(costs))]
        own = [k for k, one in enumerate(self.named) if one.policy.digest in set(corners)]
        levels = _levels(*ends, measures[own])
        step = STEP_SHARE * (levels[-1] - levels[0])
        points = [self._point(runs, measure, level, step) for level in levels]
        return Curve(measure, tuple(points), (), exact=False)

    def _point(self, runs: list[Evaluation], measure: str, level: float, step: float) -> Point:
        """The cheapest mixture that keeps a level with its whole interval, and the slope to the
        right of it.
        """
        shares = best_shares(runs, [Limit(measure, level)], POINT_HALF_WIDTHS)
        chosen = shares.followed
        theta = shares.theta[chosen]
        theta = theta / theta.sum()
        parts = [runs[j] for j in chosen]
        denominators = np.array([run.denominators[measure] for run in parts])
        a_step = float(theta @ denominators)
        weights = theta * denominators / a_step if a_step else theta
        beyond = best_shares(runs, [Limit(measure, level + step)], POINT_HALF_WIDTHS)
        names = {self.named[j].name: float(shares.theta[j]) for j in chosen}
        return Point(
            at_most=level,
            policy=self._in_turn([self.named[j].policy for j in chosen], theta, names),
            shares=names,
            cost=mixed([run.interval for run in parts], theta.tolist()),
            measure=mixed([run.measures[measure] for run in parts], weights.tolist()),
            lower_bound=-np.inf,
            price=float(beyond.prices[0]) * a_step if step else 0.0,
        )

    def _in_turn(self, policies: list[Policy], theta: Floats, names: dict[str, float]) -> Policy:
        if len(policies) == 1:
            return policies[0]
        return Alternating(policies, theta, self._home(policies), name=followed(names))

    def _home(self, policies: list[Policy]) -> Ints:
        """Where policies meet; the visits of each are counted once."""
        seed = own_seed(self.search.seed, PriceWord.HOME)
        for policy in policies:
            if policy.digest not in self.homes:
                self.homes[policy.digest] = visit_counts(policy, seed)
        return meeting(self.search.model, [self.homes[policy.digest] for policy in policies])


def _levels(low: float, high: float, corners: Floats) -> list[float]:
    """Levels at equal distances; those near a corner give way to it."""
    inner = corners[(corners > low) & (corners < high)]
    near = NEAR_CORNER_SHARE * (high - low)
    kept = [
        level
        for level in np.linspace(low, high, SHOWN_LEVELS)
        if level in (low, high) or np.abs(inner - level).min(initial=np.inf) > near
    ]
    found: list[float] = np.unique([*kept, *inner]).tolist()
    return found


def _sources(run: Run) -> dict[str, str]:
    """Where the policies of a run that goes on came from, by their fingerprints."""
    path = run.folder / RESULT_FILE
    if not path.exists():
        return {}
    return {one["digest"]: one["source"] for one in read_json(path).get("columns", [])}


def _known_lines(run: Run | None) -> dict[str, list[Line]]:
    """Lines that a run which goes on has proved before, by their measures."""
    if run is None or not (run.folder / RESULT_FILE).exists():
        return {}
    curves = read_json(run.folder / RESULT_FILE)["curves"]
    return {curve["measure"]: [Line(**line) for line in curve["lines"]] for curve in curves}
