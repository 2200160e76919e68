"""Decisions of policies on slices of the states, for a map that a reader can turn.

A slice fixes all coordinates but two. For each pair (i, j) of the coordinates that can be chosen
and each combination of levels of the others that can be chosen, the decisions at all (x_i, x_j) are
tabulated; every other coordinate stays at the median of the states that the policy visits. So a map
has

    Σ_{i<j} n_i·n_j·Π_{k≠i,j} m_k

cells, n the values along an axis and m the levels on a slider. Which ones:

*axes*      all values of a coordinate if they are at most `LONGEST_AXIS`; otherwise those between
            the quantiles .001 and .999 of the visits, evenly spaced where even these are more. So
            coordinates without end have one.
*levels*    all values of the axis, if cells allow it; otherwise quantiles of the visits, filled up
            evenly.
*chosen*    all coordinates if there are at most `MOST_CHOSEN_COORDINATES`; otherwise the busiest,
            by their mean over the visits. Fewer, if otherwise fewer than `LEAST_LEVELS` levels
            would be left.

A state may be on several slices; policies are asked once for each. Decisions are numbered, 0 being
a state that cannot occur (no action is allowed, or a server without a customer is at work), and the
numbers run-length encoded. Cells hold what `Policy.probabilities` answers, in whole percents, or
more coarsely where too many decisions differ.
"""

from __future__ import annotations

import base64
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dualplan._kernels.constraints import allowed_at
from dualplan.core.streams import FIXED_SEED
from dualplan.core.types import Bools, Ints, Json
from dualplan.models.contract import Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy
from dualplan.report.policy_maps import typical

# values along an axis, and how far one without end goes at least
LONGEST_AXIS = 48
SHORTEST_UNBOUNDED_AXIS = 12
# coordinates that can be chosen, and levels that each of them has at least
MOST_CHOSEN_COORDINATES = 6
LEAST_LEVELS = 3
# of all layers together, and of each at least
MOST_CELLS_OF_LAYERS = 2_000_000
LEAST_CELLS_A_LAYER = 1_000
STATES_ASKED_AT_ONCE = 100_000  # states of which a policy is asked at once
AXIS_QUANTILES = 0.001, 0.999  # quantiles of the visits between which a long axis lies
TIMED_STATES = 200  # states at which the time of a policy is taken
IMPOSSIBLE_STATE = 0  # the number of a state that cannot occur
CERTAIN_ACTION_PROBABILITY = 0.995  # probability from which an action is all that is shown
ROUNDING_PERCENTS = (
    1,
    5,
    10,
    25,
    50,
)  # percents to which probabilities are rounded: the first that leaves few enough decisions
MOST_TOLD_DECISIONS = 4_096  # of a policy that are told apart
# cells times actions, of which it is asked whether they are allowed
MOST_ALLOWED_ANSWERS = 20_000_000


Decision = tuple[tuple[int, int], ...]  # actions and percents
Percents = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


@dataclass(frozen=True, eq=False)
class Axis:
    """A coordinate that can be chosen: the values along an axis, and the places of those that are
    levels.
    """

    coordinate: int
    values: Ints
    levels: Ints
    start: int  # place, among the levels, of the one to begin with
    along: bool = True  # whether it can be an axis; the pending event of a network cannot

    def whole(self, model: Model) -> bool:
        """Whether all values of the coordinate are there."""
        low = int(model.box.lower[self.coordinate])
        high = int(model.box.upper[self.coordinate])
        return (
            int(self.values[0]) == low
            and int(self.values[-1]) == high
            and self.values.size == high - low + 1
        )


@dataclass(frozen=True, eq=False)
class Slices:
    """Which cells there are: the axes, the pairs of them that span a map, and where the other
    coordinates stay.
    """

    axes: tuple[Axis, ...]
    pairs: tuple[tuple[int, int], ...]
    fixed: Ints

    @property
    def cells(self) -> int:
        """The number of cells of one policy."""
        return sum(math.prod(self._shape(pair)) for pair in self.pairs)

    def others(self, pair: tuple[int, int]) -> list[int]:
        """The axes that have a level while two of them span the map."""
        return [k for k in range(len(self.axes)) if k not in pair]

    def _shape(self, pair: tuple[int, int]) -> list[int]:
        sizes = [self.axes[k].levels.size for k in self.others(pair)]
        return [*sizes, *(self.axes[k].values.size for k in reversed(pair) if k >= 0)]

    def places(self) -> Ints:
        """For each cell the place of each axis's value, a row a cell: levels, then up, then
        across.
        """
        return np.concatenate([self._places(pair) for pair in self.pairs])

    def _places(self, pair: tuple[int, int]) -> Ints:
        order = [*self.others(pair), *(k for k in reversed(pair) if k >= 0)]
        lists = [
            self.axes[k].levels if k not in pair else np.arange(self.axes[k].values.size)
            for k in order
        ]
        grid = np.meshgrid(*lists, indexing="ij")
        rows = np.empty((grid[0].size, len(self.axes)), np.int64)
        for k, column in zip(order, grid, strict=True):
            rows[:, k] = column.ravel()
        return rows

    def states(self, places: Ints) -> Ints:
        """The states at such places."""
        states = np.tile(self.fixed, (len(places), 1))
        for k, axis in enumerate(self.axes):
            states[:, axis.coordinate] = axis.values[places[:, k]]
        return states


def make_slices(model: Model, visits: Ints, cells: int) -> Slices:
    """The slices for at most about so many cells, by states that a policy visits."""
    if isinstance(model, QueueingNetwork) and model.per_server:
        event = model.box.dim - 1
    else:
        event = -1
    names = [i for i in _busiest(visits) if i != event]
    many = min(MOST_CHOSEN_COORDINATES, len(names))
    while True:
        chosen = sorted(names[:many])
        found = _slices(model, visits, chosen, event, cells)
        if many <= 2 or (found.cells <= cells and _levelled(found)):
            return found
        many -= 1


def _levelled(slices: Slices) -> bool:
    """Whether every coordinate has the levels that it should have at least, or all its values."""
    return all(axis.levels.size >= min(LEAST_LEVELS, axis.values.size) for axis in slices.axes)


def _busiest(visits: Ints) -> list[int]:
    """Coordinates by their mean, the largest first; of equal ones the first."""
    return [int(i) for i in np.argsort(-visits.mean(axis=0), kind="stable")]


def _slices(model: Model, visits: Ints, chosen: Sequence[int], event: int, cells: int) -> Slices:
    """With as many levels as the cells allow."""
    axes = [_axis(model, i, visits[:, i]) for i in chosen]
    if event >= 0:
        extra = [_events(model, chosen)]
    else:
        extra = []
    pairs = tuple(itertools.combinations(range(len(axes)), 2)) or ((0, -1),)
    middle = typical(model, visits)
    for count in range(max(axis.values.size for axis in axes), 0, -1):
        levelled = (_with_levels(axis, visits[:, axis.coordinate], middle, count) for axis in axes)
        found = Slices((*levelled, *extra), pairs, middle)
        if found.cells <= cells:
            break
    return found


def _axis(model: Model, i: int, visited: Ints) -> Axis:
    low = int(model.box.lower[i])
    high = int(model.box.upper[i])
    if high - low >= LONGEST_AXIS:
        ends = np.quantile(visited, AXIS_QUANTILES)
        low = max(low, math.floor(ends[0]))
        high = min(high, max(math.ceil(ends[1]), math.floor(ends[0]) + SHORTEST_UNBOUNDED_AXIS))
    values = np.unique(
        np.linspace(low, high, min(LONGEST_AXIS, high - low + 1)).round().astype(np.int64)
    )
    return Axis(i, values, np.arange(values.size), 0)


def _with_levels(axis: Axis, visited: Ints, middle: Ints, count: int) -> Axis:
    """The levels: all places, or where quantiles of the visits are, filled up evenly."""
    size = axis.values.size
    near = np.abs(
        axis.values[None, :] - np.quantile(visited, np.linspace(0, 0.99, count))[:, None]
    ).argmin(axis=1)
    wanted = dict.fromkeys(range(size) if count >= size else near.tolist())
    for place in (
        np.linspace(0, near.max(), count).round().astype(int).tolist() if count < size else ()
    ):
        if len(wanted) < count:
            wanted[place] = None
    levels = np.array(sorted(wanted), np.int64)
    start = np.abs(axis.values[levels] - middle[axis.coordinate]).argmin()
    return replace(axis, levels=levels, start=int(start))


def _events(model: Model, chosen: Sequence[int]) -> Axis:
    """The servers at whose events somebody decides about a class that can be chosen."""
    assert isinstance(model, QueueingNetwork)
    classes = [i for i in chosen if i < len(model.classes)] or [0]
    servers = np.unique(model.server_of[classes]) + 1
    return Axis(model.box.dim - 1, servers, np.arange(servers.size), 0, along=False)


# -- decisions -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Layer:
    """What a policy decides in each cell: numbers into `decisions`, each a list of (action,
    percent).
    """

    name: str
    decisions: tuple[Decision, ...]
    numbers: Ints
    grain: int  # what percents were rounded to

    def to_json(self) -> Json:
        """Decisions as lists, numbers packed."""
        return {
            "name": self.name,
            "decisions": self.decisions,
            "grain": self.grain,
            "cells": packed(self.numbers),
        }


@dataclass(frozen=True, eq=False)
class Tabulated:
    """Slices and what policies decide there; `may` tells which actions are allowed."""

    model: Model
    slices: Slices
    layers: tuple[Layer, ...]
    may: Layer

    @property
    def begin(self) -> Json:
        """What to show first: two classes of one server if there are such, otherwise the busiest
        coordinates.
        """
        along = [k for k, axis in enumerate(self.slices.axes) if axis.along]
        if isinstance(self.model, QueueingNetwork):
            for s, choices in enumerate(self.model.choices):
                own = [k for k in along if self.slices.axes[k].coordinate in choices]
                if len(own) > 1:
                    return {"across": own[0], "up": own[1], "decider": s}
        return {"across": along[0], "up": along[1] if len(along) > 1 else -1, "decider": 0}

    def levels(self, without: Sequence[str]) -> dict[str | int, int]:
        """The levels to begin with, but for some coordinates."""
        start = self.slices.fixed.copy()
        for axis in self.slices.axes:
            start[axis.coordinate] = axis.values[axis.levels[axis.start]]
        return {
            name: int(v)
            for name, v in zip(self.model.coordinates, start, strict=True)
            if name not in without
        }

    def to_json(self) -> Json:
        """Everything that the page needs to draw maps."""
        return {
            "begin": self.begin,
            "classes": [*self.model.class_names] if isinstance(self.model, QueueingNetwork) else [],
            "axes": [_axis_json(self.model, axis) for axis in self.slices.axes],
            "pairs": [list(pair) for pair in self.slices.pairs],
            "coordinates": list(self.model.coordinates),
            "fixed": self.slices.fixed.tolist(),
            "actions": list(self.model.actions),
            "deciders": deciders(self.model),
            "layers": [layer.to_json() for layer in self.layers],
            "may": self.may.to_json(),
        }


def tabulate(model: Model, policies: Sequence[Policy], visits: Ints, seconds: float) -> Tabulated:
    """What the policies decide on slices.

    As many cells as `MOST_CELLS_OF_LAYERS`, and about so many seconds, allow.
    """
    pace = sum(_pace(policy, visits[:TIMED_STATES]) for policy in policies)
    cells = min(
        MOST_CELLS_OF_LAYERS // (len(policies) + 1),
        MOST_ALLOWED_ANSWERS // len(model.actions),
        int(seconds / pace),
    )
    slices = make_slices(model, visits, max(LEAST_CELLS_A_LAYER, cells))
    places = slices.places()
    radix = np.cumprod([1, *(axis.values.size for axis in slices.axes[:-1])])
    _, first, where = np.unique(places @ radix, return_index=True, return_inverse=True)
    states = np.ascontiguousarray(slices.states(places[first]))
    may = _allowed(model, states)
    layers = tuple(
        _layer(policy.name, _percents(policy, states, may), where) for policy in policies
    )
    return Tabulated(model, slices, layers, _layer("allowed", 100 * may.astype(np.uint8), where))


def _pace(policy: Policy, states: Ints) -> float:
    """Seconds that a policy takes for a state, after the first."""
    policy.probabilities(states[0])
    started = time.perf_counter()
    for x in states:
        policy.probabilities(x)
    return (time.perf_counter() - started) / len(states)


def _percents(policy: Policy, states: Ints, may: Bools) -> Percents:
    """The probabilities in each state in whole percents; nothing in states that cannot occur."""
    percents = np.zeros(may.shape, np.uint8)
    occurring = np.flatnonzero(may.any(axis=1))
    for part in np.array_split(occurring, -(-occurring.size // STATES_ASKED_AT_ONCE) or 1):
        rows = policy.rows(states[part])
        certain = rows.max(axis=1, initial=0.0) > CERTAIN_ACTION_PROBABILITY
        rows[certain] = rows[certain] > CERTAIN_ACTION_PROBABILITY
        percents[part] = np.round(100 * rows)
    return percents


def _layer(name: str, percents: Percents, where: Ints) -> Layer:
    """Decisions numbered.

    Percents rounded more coarsely, as long as there are too many different ones.
    """
    for grain in ROUNDING_PERCENTS:
        if grain == ROUNDING_PERCENTS[0]:
            coarse = percents
        else:
            coarse = _coarsened(percents, grain)
        # the first of all rows is that of a state that cannot occur, and its sum the least, so that
        # its number is 0
        rows = np.concatenate([np.zeros((1, coarse.shape[1]), np.uint8), coarse])
        known, numbers = _distinct(rows)
        if len(known) <= MOST_TOLD_DECISIONS:
            break
    decisions = tuple(tuple((int(a), int(row[a])) for a in np.flatnonzero(row)) for row in known)
    return Layer(name, decisions, np.asarray(numbers[1:][where.ravel()], np.int64), grain)


def _distinct(rows: Percents) -> tuple[Percents, Ints]:
    """The rows that differ, and which of them each row is.

    By random sums, which sort faster than rows, checked.
    """
    weights = np.random.default_rng(FIXED_SEED).random(rows.shape[1])
    _, first, numbers = np.unique(rows @ weights, return_index=True, return_inverse=True)
    if not np.array_equal(rows[first[numbers]], rows):
        known, numbers = np.unique(rows, axis=0, return_inverse=True)
        return known, numbers.ravel()
    return rows[first], numbers


def _coarsened(percents: Percents, grain: int) -> Percents:
    """Rounded to multiples of a grain.

    a state that would have nothing left keeps its likeliest action.
    """
    coarse = (grain * np.round(percents / grain)).astype(np.uint8)
    lost = np.flatnonzero(percents.any(axis=1) & ~coarse.any(axis=1))
    coarse[lost, percents[lost].argmax(axis=1)] = grain
    return np.asarray(coarse)


def _allowed(model: Model, states: Ints) -> Bools:
    """Which actions are allowed, a row for each state; none in a state that cannot occur."""
    if isinstance(model, SimulatorModel):
        return np.array([model.allowed(x) for x in states], bool)
    code = model.code
    out = np.empty((len(states), len(model.actions)), np.int64)
    allowed_at(code.allowed, code.ints, code.floats, states, out)
    may = out > 0
    if isinstance(model, QueueingNetwork) and model.nonpreemptive:
        may[~_consistent(model, states)] = False
    return np.asarray(may)


def _consistent(model: QueueingNetwork, states: Ints) -> Bools:
    """Whether servers are at work exactly where there are customers, for networks without
    preemption.
    """
    good = np.ones(len(states), bool)
    for s, classes in enumerate(model.choices):
        served = states[:, len(model.classes) + s]
        for k, c in enumerate(classes, start=1):
            good &= (served != k) | (states[:, c] > 0)
        good &= (served != 0) | (states[:, classes] == 0).all(axis=1)
    return good


def deciders(model: Model) -> list[Json]:
    """Who decides, with the words for each action: the servers of a network, or one for all."""
    if not isinstance(model, QueueingNetwork):
        return [
            {
                "name": "",
                "labels": list(model.actions),
                "of": list(range(len(model.actions))),
                "classes": None,
            }
        ]
    return [_server(model, s) for s in range(len(model.servers))]


def _server(model: QueueingNetwork, s: int) -> Json:
    choices = model.choices[s]
    after = math.prod(len(c) for c in model.choices[s + 1 :])
    of = range(len(model.actions))
    places = [
        min(a, len(choices) - 1) if model.per_server else a // after % len(choices) for a in of
    ]
    return {
        "name": model.servers[s],
        "labels": ["nobody" if c < 0 else model.class_names[c] for c in choices],
        "of": places,
        # whom it serves, for maps to say that there is nobody; phantoms are served all the same
        "classes": None if model.options["phantom"] else [int(c) for c in choices],
    }


def _axis_json(model: Model, axis: Axis) -> Json:
    i = axis.coordinate
    return {
        "coordinate": i,
        "name": model.coordinates[i],
        "values": axis.values.tolist(),
        "names": _value_names(model, axis),
        "levels": axis.levels.tolist(),
        "start": axis.start,
        "along": axis.along,
    }


def _value_names(model: Model, axis: Axis) -> list[str] | None:
    """Words for values that are no numbers: who is served at a server, and whose event it is."""
    if not isinstance(model, QueueingNetwork) or axis.coordinate < len(model.classes):
        return None
    if axis.along:
        whom = _server(model, axis.coordinate - len(model.classes))["labels"]
    else:
        whom = model.servers
    return [["nobody", *whom][v] for v in axis.values]


def packed(numbers: Ints) -> str:
    """Numbers below 2^16 as runs (number, length), both of 16 bits, the low byte first, in
    base 64.
    """
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    lengths = np.diff(starts, append=numbers.size)
    whole = np.maximum(-(-lengths // 65_535), 1)  # long runs are cut
    runs = np.repeat(
        np.column_stack([numbers[starts], np.full(starts.size, 65_535)]), whole, axis=0
    )
    runs[np.cumsum(whole) - 1, 1] = lengths - (whole - 1) * 65_535
    return base64.b64encode(runs.astype("<u2").tobytes()).decode()
