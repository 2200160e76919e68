"""Functions Ψ of states for a model of any kind, made from where a policy goes.

*What is read off a state.* Its coordinates. Where a step moves one coordinate into the next, as
orders do in a pipeline, partial sums x_0, x_0 + x_1, x_0 + x_1 + x_2, … in their place: what is on
hand in so many steps if nothing is sold, which is what an order is for. With many like coordinates
also their sum.

*Functions of one reading v*, in the order of their importance,

    v,   1[v at its lowest],   max(v − k, 0) at quantiles k of the visits,   1[v at its highest]

without those that the visits or the box make superfluous, and squares. What is nearly a
combination of others at the visits is left out. *Functions of two readings*
are products of the first m functions of both, with m as large as a wanted number of functions
allows. So Ψ has kinks and jumps where policies have theirs, at the limits of buffers and where
states are crowded, and every function is one of at most two readings: values are tables
(`values/pair_tables.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.linalg

from dualplan.core.checks import require_counts
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.values.basis import Basis, Piece, Product, between, hinge, power

DEFAULT_FUNCTIONS = 300
DEFAULT_KNOTS = 3
CROWDED_SHARE = 0.05  # of visits at the lowest number: knots are at the upper quantiles then
MOVES_STATES = 200  # states whose moves tell pipelines
PIPELINE_CORRELATION = 0.3  # of what comes out of a pipeline with what it flows into
FEWEST_LIKE_COORDINATES = 7  # that a sum of like ones is worth
# functions whose part that others do not have is smaller, in units of the largest, are left out
DEPENDENT_SHARE = 1e-6


def state_functions(
    model: Model, states: Ints, most: int = DEFAULT_FUNCTIONS, *, knots: int = DEFAULT_KNOTS
) -> Basis:
    """Functions of one and two readings, made from states that a policy visits: as many as wanted
    at most, with so many knots each.
    """
    require_counts(most=most, knots=knots)
    readings = _readings(model, states)
    singles = [_single(model, coordinates, states, knots) for coordinates in readings]
    alone: list[Product] = [(piece,) for pieces in singles for piece in pieces]
    alone += [(p, p) for pieces in singles for p in pieces if _curves(p)]
    room = most - len(alone)
    pairs = _pairs(singles, room)
    if not pairs and room > 0 and len(singles) > 1:
        pairs = _strongest(singles, states, room)
    made = _basis(model, alone + pairs)
    kept = _independent(made(states))
    return _basis(model, [made.products[k] for k in kept])


def _basis(model: Model, products: Sequence[Product]) -> Basis:
    labels = tuple("·".join(_label(model, piece) for piece in product) for product in products)
    return Basis(model, tuple(products), labels)


def _independent(values: Floats) -> list[int]:
    """Columns that are not nearly constant or nearly sums of others, by a pivoted factorisation."""
    centred = values - values.mean(axis=0)
    size = np.sqrt((centred**2).mean(axis=0))
    used = np.flatnonzero(size > 0)
    if not used.size:
        return [0]
    scaled = centred[:, used] / size[used]
    triangle, order = scipy.linalg.qr(scaled, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(triangle))
    return sorted(used[order[: diagonal.size][diagonal > DEPENDENT_SHARE * diagonal[0]]].tolist())


# -- what is read off a state ----------------------------------------------------------------------


def _readings(model: Model, visits: Ints) -> list[tuple[int, ...]]:
    """The coordinates that each reading is the sum of."""
    dim = model.box.dim
    pipelines = _pipelines(model, visits)
    piped = {i for line in pipelines for i in line}
    readings: list[tuple[int, ...]] = [
        (i,) for i in range(dim) if i not in piped and _varies(model, i)
    ]
    for line in pipelines:
        readings += [line[: k + 1] for k in range(len(line))]
    limits = [(int(model.box.lower[i]), int(model.box.upper[i])) for i in range(dim)]
    for like in dict.fromkeys(limits):
        members = tuple(i for i in range(dim) if limits[i] == like and i not in piped)
        if len(members) >= FEWEST_LIKE_COORDINATES:
            readings.append(members)
    return readings


def _varies(model: Model, i: int) -> bool:
    return bool(model.box.upper[i] > model.box.lower[i])


def _pipelines(model: Model, visits: Ints) -> list[tuple[int, ...]]:
    """Lines of coordinates, the one that is flowed into first, where each step moves the next
    into the last.
    """
    if not model.has_forward:
        return []
    chosen = np.unique(visits, axis=0)
    chosen = np.ascontiguousarray(chosen[:: max(1, len(chosen) // MOVES_STATES)])
    rows, actions = allowed_rows(model, chosen)
    before = np.ascontiguousarray(chosen[rows])
    law = transitions(model, before, actions)
    here = before[law.pairs]
    fed_by = _shifts(here, law.states)
    lines = []
    for head in fed_by:
        if head not in fed_by.values():
            line = [head]
            while line[-1] in fed_by and fed_by[line[-1]] not in line:
                line.append(fed_by[line[-1]])
            means = law.mean(law.states.astype(np.float64)) - before
            into = _flows_into(before, means, line)
            lines.append((into, *line) if into is not None else tuple(line))
    return lines


def _shifts(here: Ints, there: Ints) -> dict[int, int]:
    """Coordinates that take over the number of another one in every step, and which."""
    found = {}
    for j, k in itertools.permutations(range(here.shape[1]), 2):
        same = (there[:, j] == here[:, k]).all()
        if same and (here[:, j] != here[:, k]).any() and np.ptp(here[:, k]) > 1:
            found[j] = k
    return found


def _flows_into(states: Ints, changes: Floats, line: Sequence[int]) -> int | None:
    """The coordinate outside that grows most like the head of the line."""
    head = states[:, line[0]]
    best = None
    most = PIPELINE_CORRELATION
    for i in range(states.shape[1]):
        if i not in line and np.ptp(changes[:, i]) > 0 and np.ptp(head) > 0:
            together = float(np.corrcoef(changes[:, i], head)[0, 1])
            if together > most:
                best = i
                most = together
    return best


# -- functions of one and two of them --------------------------------------------------------------


def _single(model: Model, coordinates: tuple[int, ...], visits: Ints, count: int) -> list[Piece]:
    """Functions of one reading, the most important first."""
    i, *others = coordinates
    seen = visits[:, list(coordinates)].sum(axis=1)
    low = sum(int(model.box.lower[j]) for j in coordinates)
    ends = [int(model.box.upper[j]) for j in coordinates]
    high = UNBOUNDED if UNBOUNDED in ends else sum(ends)
    scale = max(1.0, float(seen.std()))
    at_low = float((seen == low).mean())
    if at_low > CROWDED_SHARE:
        quantiles = 1 - 0.5 ** (1.4 * np.arange(1, count + 1) - 0.4)
    else:
        quantiles = (np.arange(count + 1) + 0.5) / (count + 1)
    knots = {int(k) for k in np.quantile(seen, quantiles)}
    knots |= {0} if low < 0 < high else set()
    # a hinge at the lowest number is v itself, and so is one beyond the highest but one nothing
    inner = sorted(k for k in knots if low < k < high - 1)
    pieces = [power(i, 1, shift=float(low), scale=scale)]
    if high > low + 1 and at_low > 0:
        pieces.append(between(i, low, low))
    pieces += [hinge(i, k, scale=scale) for k in inner]
    if high < UNBOUNDED and high > low + 2 and (seen == high).any():
        pieces.append(between(i, high, high))
    return [replace(piece, others=tuple(others)) for piece in pieces]


def _curves(piece: Piece) -> bool:
    """Whether its square is another function on the numbers that it is for."""
    return piece.kind not in (between(0, 0, 0).kind,)


def _pairs(singles: Sequence[Sequence[Piece]], room: int) -> list[Product]:
    """Products of the first functions of every two readings, as many of each as there is room
    for.
    """
    found: list[Product] = []
    deepest = max((len(pieces) for pieces in singles), default=0)
    for depth in range(1, deepest + 1):
        more: list[Product] = [
            (a, b)
            for first, second in itertools.combinations(singles, 2)
            for a, b in itertools.product(first[:depth], second[:depth])
        ]
        if len(more) > room:
            break
        found = more
    return found


def _strongest(singles: Sequence[list[Piece]], states: Ints, room: int) -> list[Product]:
    """Products of the first functions of those two readings that go together most, where there is
    no room for every two: as many as there are readings.
    """
    values = np.stack([_at(pieces[0], states) for pieces in singles])
    together = np.abs(np.nan_to_num(np.corrcoef(values)))
    first, second = np.triu_indices(len(singles), 1)
    shared = [
        bool(set(singles[i][0].coordinates) & set(singles[j][0].coordinates))
        for i, j in zip(first.tolist(), second.tolist(), strict=True)
    ]
    together = np.where(shared, 0.0, together[first, second])
    order = np.argsort(-together, kind="stable")[: min(room, len(singles))]
    return [
        (singles[int(first[k])][0], singles[int(second[k])][0]) for k in order if together[k] > 0
    ]


def _at(piece: Piece, states: Ints) -> Floats:
    """What a piece reads."""
    return np.asarray(states[:, list(piece.coordinates)].sum(axis=1), np.float64)


def _label(model: Model, piece: Piece) -> str:
    name = "[" + " + ".join(model.coordinates[i] for i in piece.coordinates) + "]"
    if piece.kind == hinge(0, 0).kind:
        return f"max({name} − {piece.p:g}, 0)"
    if piece.kind == between(0, 0, 0).kind:
        return f"1({name} = {piece.p:g})"
    return name
