"""The standard features, for a model of which nothing else is said.

*Where pairs are few*, each pair (x, a) that can be reached is a feature of its own, u = θ, and the
program is the linear program of the model itself: with an H at which the penalties are exact, its
minimum is the optimum.

*Otherwise* tiles: where the best heuristic goes, cut into cells, and the occupancies of the four
best ones. Where states are few the law is exact, and tiles are multiplied with the actions; beyond,
the law is that of a tree fitted to simulated visits, and tiles are multiplied with what the
heuristics choose. Cells are first cut at medians of the visits, the heaviest cell along the
coordinate that varies most, and then where the program asks for it. Let λ, z, y be its multipliers
over drawn constraints. A half t of a cell, with the choice k, has the reduced cost

    r_tk = L_tk − R_tkᵀz + F_tkᵀy − λ,

by which the value changes for each unit of mass that is moved there. In a whole cell it is 0 or
more; halves disagree if one of them lies below, and a cut is worth

    P(cell)·Σ_halves P(half | cell)·max_k max(−r_tk, 0).

In each round every cell is halved at the median of each coordinate, the cuts that are worth most
are made, and the program is solved again, until the features are some hundreds or no cut is worth
anything. Only the cells depend on the draws: the features are what they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan.core.errors import ModelError
from dualplan.core.status import Status
from dualplan.core.streams import FIXED_SEED
from dualplan.core.types import Bools, Floats, Ints
from dualplan.dual import features as families
from dualplan.dual.combine import EVENT_COORDINATE
from dualplan.dual.features.contract import Features, concat
from dualplan.dual.features.tree_fits import fitted_law
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers.linear_program import minimum
from dualplan.evaluation.evaluate import evaluate
from dualplan.evaluation.visits import Visits, Weighted, weighted_visits
from dualplan.exact.operators import Sweeper
from dualplan.exact.policy import evaluate_exact, reachable
from dualplan.models.contract import UNBOUNDED, Model, few_states
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.policies.contract import Policy
from dualplan.policies.tables import random_policy
from dualplan.values.functions import StateFunction, state_function

MOST_PAIR_FEATURES = 5_000  # pairs that are all features
MOST_LISTED_PAIRS = 50_000  # of the whole box, up to which those that can be reached are counted
MOST_TILE_FEATURES = 300  # where laws are exact
MOST_FITTED_TILE_FEATURES = 120  # of trees, each of which is asked at each constraint
MOST_ACTIONS_OF_TILES = 32  # beyond which tiles take the choices of policies
FIRST_TILES = 8
LEAST_TILES = 4
MOST_CUT_COORDINATES = 6  # of a cell, those that vary most
CUT_SHARE = 0.5  # of the cells that are cut in a round, where laws are exact; all otherwise
MOST_CUT_ROUNDS = 8
WORTHLESS_CUT_SHARE = 1e-6  # of the largest loss: what rounding makes
MOST_OCCUPANCIES = 4  # of the best heuristics, whole
CUT_VISITS = 20_000  # simulated states of the best heuristic
RANKING_STEPS = 200_000  # of simulation, by which heuristics are ranked where states are many
CUT_CONSTRAINTS = 8_000  # drawn constraints of each kind, by which cells are cut
CUT_PENALTY_FACTOR = 3.0  # of the largest loss of a feature: H of the programs that cut


def standard(model: Model, criterion: Criterion | None = None) -> Features:
    """All pairs where they are few, otherwise tiles that are cut by reduced costs."""
    criterion = require_criterion(criterion)
    pairs = few_pairs(model, criterion)
    if pairs is not None:
        return _all_pairs(model, *pairs)
    return _Tiling(model, criterion).features()


# -- all pairs -------------------------------------------------------------------------------------


def few_pairs(model: Model, criterion: Criterion) -> tuple[Ints, Ints] | None:
    """The states and actions of all pairs that can be reached, where these are few."""
    count = model.box.count
    if not few_states(model) or count is None or count * len(model.actions) > MOST_LISTED_PAIRS:
        return None
    pairs = Sweeper(model).pairs
    numbers = sp.csr_array(
        (np.ones(pairs.states.size), (pairs.states, np.arange(pairs.states.size))),
        shape=(count, pairs.states.size),
    )
    seen = reachable(sp.csr_array(numbers @ pairs.matrix), _starts(model, criterion))
    met = np.isin(pairs.states, seen)
    if np.count_nonzero(met) > MOST_PAIR_FEATURES:
        return None
    return pairs.states[met], pairs.actions[met]


def _starts(model: Model, criterion: Criterion) -> Ints:
    """The numbers of the states that a trajectory begins in."""
    if not isinstance(criterion, Discounted):
        return np.array([model.box.index(model.start)])
    states, weights = criterion.start_distribution(model)
    return np.array([model.box.index(x) for x in states[weights > 0]])


def _all_pairs(model: Model, states: Ints, actions: Ints) -> Features:
    rows = states * len(model.actions) + actions
    count = rows.size
    shape = (int(model.box.count or 0) * len(model.actions), count)
    matrix = sp.csc_array((np.ones(count), (rows, np.arange(count))), shape=shape)
    names = [f"state {x}, {model.actions[a]}" for x, a in zip(states, actions, strict=True)]
    return families.table(model, matrix, names)


# -- heuristics ------------------------------------------------------------------------------------


def ranked(model: Model, criterion: Criterion | None = None) -> list[Policy]:
    """The heuristics of a model that have one cost, the cheapest first; the random policy, if there
    is no other.
    """
    criterion = require_criterion(criterion)
    known = [model.policy(name) for name in model.policies]
    for policies in (known, [random_policy(model)]):
        costs = {policy: _cost(model, policy, criterion) for policy in policies}
        able = [policy for policy in policies if math.isfinite(costs[policy])]
        if able:
            return sorted(able, key=lambda policy: costs[policy])
    raise ModelError(
        f"no heuristic of {model.name!r} has one average cost, nor has the random policy: they "
        "come to rest in several classes of states, or grow without end; start elsewhere, use the "
        "discounted criterion, or name features in the plan."
    )


def _cost(model: Model, policy: Policy, criterion: Criterion) -> float:
    """What a heuristic costs, infinite if that cannot be said."""
    if few_states(model):
        try:
            return evaluate_exact(model, policy, criterion).cost
        except ModelError:  # several recurrent classes
            return math.inf
    found = evaluate(model, policy, criterion, steps=RANKING_STEPS, seed=FIXED_SEED)
    if found.status is Status.UNSTABLE or not math.isfinite(found.cost):
        return math.inf
    return found.cost


def values_of(model: Model, policy: Policy, criterion: Criterion) -> StateFunction:
    """The bias or cost-to-go of a policy over all states; the largest, which warns, where it never
    goes.
    """
    result = evaluate_exact(model, policy, criterion)
    values = np.full(int(model.box.count or 0), float(result.values.max()))
    values[result.reached] = result.values
    return state_function(model, values)


# -- cells -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cell:
    """Intervals of all coordinates, and how much of the law lies there."""

    low: Ints
    high: Ints
    mass: float

    def holds(self, states: Ints) -> Bools:
        """Which of the states lie in it."""
        return np.asarray(((self.low <= states) & (states <= self.high)).all(axis=1))

    @property
    def name(self) -> str:
        """Its intervals in words."""
        ends = [str(v).replace(str(UNBOUNDED), "") for v in self.high]
        return " × ".join(f"{a}-{b}" for a, b in zip(self.low, ends, strict=True))


class _Tiling:
    """Cells of where the best heuristic of a model goes, and the features that they make."""

    def __init__(self, model: Model, criterion: Criterion) -> None:
        self.model = model
        self.criterion = criterion
        self.exact = few_states(model)
        self.ranked = ranked(model, criterion)
        self.best = self.ranked[0]
        self.seen = self._seen()
        self.ways = self._ways()

    def _seen(self) -> Weighted:
        """The states of the best heuristic with their weights: all, or those of a simulation."""
        model = self.model
        if self.exact:
            found = evaluate_exact(model, self.best, self.criterion)
            weights = found.occupancy / found.occupancy.sum()
            return Weighted(model, model.box.states(found.reached), weights)
        visits = Visits(model, self.best, self.criterion, CUT_VISITS, FIXED_SEED)
        return weighted_visits(model, visits.draw(CUT_VISITS, FIXED_SEED))

    def _ways(self) -> list[Policy] | None:
        """The choices that tiles are multiplied with; none stands for the actions.

        Without an end of states a tile may have none either, where one action alone, or one that is
        not allowed, would do harm: there the choices are those of heuristics.
        """
        model = self.model
        if self.exact and len(model.actions) <= MOST_ACTIONS_OF_TILES:
            return None
        able = [p for p in self.ranked[:MOST_OCCUPANCIES] if p.code is not None]
        if len(able) < 2:
            able.append(random_policy(model))
        return able

    @cached_property
    def _law(self) -> Any:
        """Of the best heuristic, as a tree."""
        return fitted_law(self.model, self.best, self.criterion, samples=CUT_VISITS)

    @cached_property
    def _chances(self) -> list[tuple[str, Floats]]:
        """For each way to choose, the probabilities of the actions in the states seen."""
        model = self.model
        if self.ways is None:
            may = np.array([model.allowed(x) for x in self.seen.states], np.float64)
            each = np.eye(len(model.actions))
            return [(name, may * each[a]) for a, name in enumerate(model.actions)]
        return [(policy.name, policy.rows(self.seen.states)) for policy in self.ways]

    # -- features ----------------------------------------------------------------------------------

    def features(self) -> Features:
        """The tiles and the occupancies of the next heuristics."""
        cells = self._refined()
        whole = self.ranked[:MOST_OCCUPANCIES]
        if not self.exact:
            whole = [policy for policy in whole if policy.code is not None]
        made = [self._tiles(cells)[0]]
        if whole:
            made.append(families.occupancies(self.model, whole, self.criterion))
        return concat(*made)

    def _tiles(self, cells: Sequence[Cell]) -> tuple[Features, Ints]:
        """Tiles times ways to choose, and the number of the cell of each."""
        if self.exact:
            return self._tables(cells)
        laws = []
        owners: list[int] = []
        for number, cell in enumerate(cells):
            law = self._law.within(self._intervals(cell), name=cell.name)
            if law is not None:
                laws.append(law)
                owners.append(number)
        made = families.trees(self.model, laws, choices=self.ways)
        by_name = {law.name: owner for law, owner in zip(laws, owners, strict=True)}
        return made, np.array([by_name[name.partition(", ")[0]] for name in made.names], np.int64)

    def _intervals(self, cell: Cell) -> dict[int, tuple[int, int | None]]:
        """Those that cut."""
        box = self.model.box
        cut = np.flatnonzero((cell.low > box.lower) | (cell.high < box.upper))
        return {
            int(i): (int(cell.low[i]), None if cell.high[i] == UNBOUNDED else int(cell.high[i]))
            for i in cut
        }

    def _tables(self, cells: Sequence[Cell]) -> tuple[Features, Ints]:
        model = self.model
        actions = len(model.actions)
        numbers = (self.seen.states - model.box.lower) @ model.box.strides
        shape = (int(model.box.count or 0) * actions, 1)
        rows = numbers[:, None] * actions + np.arange(actions)
        columns = []
        names = []
        owners = []
        for number, cell in enumerate(cells):
            inside = np.where(cell.holds(self.seen.states), self.seen.weights, 0.0)
            for name, chances in self._chances:
                part = inside[:, None] * chances
                if part.sum() > 0:
                    kept = part > 0
                    where = rows[kept], np.zeros(np.count_nonzero(kept), np.int64)
                    columns.append(sp.csc_array((part[kept] / part.sum(), where), shape=shape))
                    names.append(f"{cell.name}, {name}")
                    owners.append(number)
        return families.table(model, sp.hstack(columns), names), np.array(owners, np.int64)

    # -- cuts --------------------------------------------------------------------------------------

    @property
    def _most_cells(self) -> int:
        if self.ways is None:
            ways = len(self.model.actions)
        else:
            ways = len(self.ways)
        if self.exact:
            return max(LEAST_TILES, MOST_TILE_FEATURES // ways)
        return max(LEAST_TILES, MOST_FITTED_TILE_FEATURES // ways)

    def _first_cells(self) -> list[Cell]:
        """Cut at medians, the heaviest cell first."""
        box = self.model.box
        done: list[Cell] = []
        cells = [Cell(box.lower.copy(), box.upper.copy(), 1.0)]
        while cells and len(cells) + len(done) < min(FIRST_TILES, self._most_cells):
            heaviest = max(cells, key=lambda cell: cell.mass)
            cells.remove(heaviest)
            halves = next(iter(self._halvings(heaviest)), None)
            if halves is None:
                done.append(heaviest)
            else:
                cells += halves
        return [*done, *cells]

    def _halvings(self, cell: Cell) -> list[tuple[Cell, Cell]]:
        """The cell halved at the median of each coordinate, of those that vary most first."""
        inside = cell.holds(self.seen.states)
        states = self.seen.states[inside]
        weights = self.seen.weights[inside]
        if not len(states):
            return []
        overall = np.sqrt(self._spreads(self.seen.states, self.seen.weights))
        spreads = np.sqrt(self._spreads(states, weights)) / np.maximum(overall, 1e-12)
        order = np.argsort(-spreads, kind="stable")
        found = []
        for i in order[:MOST_CUT_COORDINATES]:
            varies = states[:, i].min() < states[:, i].max()
            if varies and self.model.coordinates[i] != EVENT_COORDINATE:
                found += self._cuts(cell, int(i), states[:, i], weights)
        return found

    @staticmethod
    def _spreads(states: Ints, weights: Floats) -> Floats:
        """The variances of the coordinates."""
        shares = weights / weights.sum()
        return np.asarray(shares @ (states - shares @ states) ** 2)

    def _cuts(self, cell: Cell, i: int, values: Ints, weights: Floats) -> list[tuple[Cell, Cell]]:
        """Cut where the mass of the lower part is nearest to a half, and behind the lowest
        value.
        """
        levels, places = np.unique(values, return_inverse=True)
        below = np.cumsum(np.bincount(places.ravel(), weights))[:-1] / weights.sum()
        median = int(np.argmin(np.abs(below - 0.5)))
        return [
            self._cut(cell, i, int(levels[k]), float(below[k])) for k in sorted({median, 0})[::-1]
        ]

    @staticmethod
    def _cut(cell: Cell, i: int, last: int, share: float) -> tuple[Cell, Cell]:
        """A cell without what lies beyond a value of a coordinate, and what lies there."""
        high = cell.high.copy()
        high[i] = last
        low = cell.low.copy()
        low[i] = last + 1
        return (
            replace(cell, high=high, mass=cell.mass * share),
            replace(cell, low=low, mass=cell.mass * (1 - share)),
        )

    def _refined(self) -> list[Cell]:
        """Cut further where reduced costs disagree."""
        cells = self._first_cells()
        where = self._tiles(cells)[0]
        for _ in range(MOST_CUT_ROUNDS):
            room = self._most_cells - len(cells)
            if room <= 0:
                break
            best = self._best_cuts(cells, where)
            share = CUT_SHARE if self.exact else 1.0
            made = dict(list(best.items())[: min(room, max(1, int(share * len(cells))))])
            if not made:
                break
            cells = [part for k, cell in enumerate(cells) for part in made.get(k, (cell,))]
        return cells

    def _best_cuts(self, cells: Sequence[Cell], where: Features) -> dict[int, tuple[Cell, Cell]]:
        """For each cell that is worth cutting its best halves, those that are worth most first."""
        halvings = [(k, halves) for k, cell in enumerate(cells) for halves in self._halvings(cell)]
        if not halvings:
            return {}
        parts = [part for _, halves in halvings for part in halves]
        prices, unit = self._reduced_costs(cells, parts, where)
        masses = np.array([part.mass for part in parts])
        worth = (np.maximum(-prices, 0.0) * masses).reshape(-1, 2).sum(axis=1)
        found: dict[int, tuple[Cell, Cell]] = {}
        for n in np.argsort(-worth, kind="stable"):
            number, halves = halvings[n]
            if worth[n] > WORTHLESS_CUT_SHARE * unit and number not in found:
                found[number] = halves
        return found

    def _reduced_costs(
        self, cells: Sequence[Cell], parts: Sequence[Cell], where: Features
    ) -> tuple[Floats, float]:
        """The least reduced cost of each part, at constraints drawn from `where`, and the unit of
        the losses.
        """
        features = self._tiles(cells)[0]
        problem = self._problem(features, where)
        unit = max(float(np.abs(features.losses).max()), 1e-12)
        rows = problem.draw(CUT_CONSTRAINTS, seed=FIXED_SEED)
        solution = minimum(problem, CUT_PENALTY_FACTOR * unit, rows)
        assert solution.multipliers is not None
        candidates, owners = self._tiles(parts)
        others = self._problem(candidates, where)
        same = others.draw(CUT_CONSTRAINTS, seed=FIXED_SEED)
        found = solution.multipliers.reduced_costs(others, same)
        least = np.zeros(len(parts))
        np.minimum.at(least, owners, found)
        return least, unit

    def _problem(self, features: Features, where: Features) -> DualALP:
        return DualALP(
            self.model, features, self.criterion, sampling=where, potential=self._potential
        )

    @cached_property
    def _potential(self) -> StateFunction | None:
        if not self.exact:
            return None
        return values_of(self.model, self.best, self.criterion)
