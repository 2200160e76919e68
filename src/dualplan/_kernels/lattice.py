"""Functions of the values at the nodes of a lattice, the chain on the nodes, and policies greedy
for such functions.

A lattice of D coordinates is one flat array,

    [D, number of knots of each coordinate, stride of each, place of its first knot, knots]

and nodes are numbered with the last coordinate fastest. A state lies in a cell of it, and is a
combination of the corners: along each coordinate with weights 1 − t and t, t the part of the way
from one knot to the next. Beyond the last knot t is more than 1, or is cut to 1 in a chain, whose
weights are probabilities. A function has 1 + D numbers for each node, its value and its second
derivative along each coordinate, and is, with c the weights of the corners,

    V(x)  =  Σ_z c_z(x)·[ v(z) − ½ Σ_i (x_i − left_i)·(right_i − x_i)·d_i(z) ].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    FLOATS,
    INT,
    INT_ROWS,
    INTS,
    VALUE_SIGNATURE,
    allocating_helper,
    group,
    helper,
    kernel,
)
from dualplan._kernels.layouts import BOUNDS, LAW, TALLIES
from dualplan._kernels.sweep import PAIR_LIST, law_room, list_law, sums_of
from dualplan.core.types import Floats, Ints


class NodeRows(NamedTuple):
    """Rows of the chain on the nodes one after the other, where each ends, the node and the action
    of each, its loss, and the mean distance by which the next state lies beyond the last knots.
    """

    columns: Ints
    entries: Floats
    ends: Ints
    nodes: Ints
    actions: Ints
    losses: Floats
    beyond: Floats


class Corners(NamedTuple):
    """The corners of a cell that have weight, their weights, and the bends along the
    coordinates.
    """

    nodes: Ints
    weights: Floats
    bends: Floats


NODE_ROWS = group(NodeRows, INTS, FLOATS, INTS, INTS, INTS, FLOATS, FLOATS)


@allocating_helper
def corner_room(dim):
    return Corners(np.empty(1 << dim, np.int64), np.empty(1 << dim), np.empty(dim))


@helper
def cell(li, i, v):
    """The number of the interval of coordinate i that v lies in, or the last one."""
    first = li[1 + 2 * li[0] + i]
    low = 0
    high = li[1 + i] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if li[first + middle] <= v:
            low = middle
        else:
            high = middle
    return low


@helper
def corners(li, x, clip, room):
    """Write the corners of the cell around x that have weight, and their weights; how many.

    `bends` gets ½ (x_i − left_i)(right_i − x_i) of each coordinate.
    """
    nodes = room.nodes
    weights = room.weights
    bends = room.bends
    dim = li[0]
    base = 0
    count = 1
    nodes[0] = 0
    weights[0] = 1.0
    for i in range(dim):
        bends[i] = 0.0
        if li[1 + i] == 1:
            continue
        j = cell(li, i, x[i])
        stride = li[1 + dim + i]
        place = li[1 + 2 * dim + i] + j
        left = li[place]
        right = li[place + 1]
        base += j * stride
        if x[i] == right or (clip and x[i] > right):
            base += stride
        elif x[i] != left:
            bends[i] = 0.5 * (x[i] - left) * (right - x[i])
            t = (x[i] - left) / (right - left)
            for c in range(count):
                nodes[count + c] = nodes[c] + stride
                weights[count + c] = t * weights[c]
                weights[c] *= 1.0 - t
            count *= 2
    for c in range(count):
        nodes[c] += base
    return count


@helper
def valued(li, lf, x, room):
    """V at x, and the sum of its absolute terms."""
    nodes = room.nodes
    weights = room.weights
    bends = room.bends
    dim = li[0]
    total = 0.0
    size = 0.0
    for c in range(corners(li, x, False, room)):
        first = (1 + dim) * nodes[c]
        value = lf[first]
        for i in range(dim):
            if bends[i] != 0.0:
                value -= bends[i] * lf[first + 1 + i]
        total += weights[c] * value
        size += abs(weights[c] * value)
    return total, size


@kernel(types.void(INTS, FLOATS, INT_ROWS, FLOATS), allocates=True)
def values_at(li, lf, states, out):
    """The function at the given states."""
    room = corner_room(li[0])
    for n in range(out.size):
        out[n] = valued(li, lf, states[n], room)[0]


@kernel(VALUE_SIGNATURE, allocates=True)
def lattice_value(li, lf, x, room):
    """The function at one state.

    Room: one, and a number for each coordinate and each corner of a cell.
    """
    dim = li[0]
    nodes = np.empty(1 << dim, np.int64)
    total, room[0] = valued(li, lf, x, Corners(nodes, room[1 + dim :], room[1 : 1 + dim]))
    return total


@helper
def node_state(li, node, x):
    dim = li[0]
    for i in range(dim):
        x[i] = li[li[1 + 2 * dim + i] + node // li[1 + dim + i] % li[1 + i]]


@helper
def priced(tallies, x, a, prices, sums):
    """ℓ(x,a), and prices on what the step adds to the columns."""
    if prices.size == 0:
        return tallies.loss(tallies.ints, tallies.floats, x, a)
    sums_of(tallies, x, a, sums)
    total = sums[1]
    for j in range(prices.size):
        total += prices[j] * sums[j]
    return total


@helper
def distance_beyond(li, x):
    dim = li[0]
    total = 0
    for i in range(dim):
        total += max(0, x[i] - li[li[1 + 2 * dim + i] + li[1 + i] - 1])
    return total


@helper
def outside(x, box):
    faults = 0
    for i in range(box.lower.size):
        faults += x[i] < box.lower[i] or x[i] > box.upper[i]
    return faults > 0


@kernel(INT(LAW, TALLIES, BOUNDS, INTS, FLOATS, INTS, INT, NODE_ROWS), allocates=True)
def node_rows(law, tallies, box, li, prices, place, first, rows):
    """Write the pairs of the nodes first, first + 1, ... as far as there is room: rows of the
    chain, and their losses.

    `place` holds for each node where it stands in the row at hand, or −1. The next node is
    returned, or −1 − the node at which no action is allowed, a law leaves the box or does not sum
    to 1, or a loss is not finite. The number of pairs is written to rows.nodes[-1].
    """
    dim = li[0]
    room = law_room(law, dim)
    x = room.x
    near = corner_room(dim)
    columns = rows.columns
    entries = rows.entries
    sums = np.zeros(prices.size)
    row_size = min(place.size, law.outcomes << dim)
    pairs = 0
    filled = 0
    for node in range(first, place.size):
        rows.nodes[rows.nodes.size - 1] = pairs
        if pairs + law.actions >= rows.nodes.size or filled + law.actions * row_size > entries.size:
            return node
        node_state(li, node, x)
        for a in range(law.actions):
            if not law.allowed(law.ints, law.floats, x, a):
                continue
            count = list_law(law, room, a)
            start = filled
            mass = 0.0
            excess = 0.0
            for n in range(count):
                if outside(room.states[n], box):
                    return -1 - node
                chance = room.probabilities[n]
                mass += chance
                excess += chance * distance_beyond(li, room.states[n])
                for c in range(corners(li, room.states[n], True, near)):
                    corner = near.nodes[c]
                    if place[corner] < 0:
                        place[corner] = filled
                        columns[filled] = corner
                        entries[filled] = 0.0
                        filled += 1
                    entries[place[corner]] += chance * near.weights[c]
            rows.losses[pairs] = priced(tallies, x, a, prices, sums)
            if not (np.isfinite(rows.losses[pairs]) and abs(mass - 1.0) <= 1e-9):
                return -1 - node
            for k in range(start, filled):
                place[columns[k]] = -1
                entries[k] /= mass
            rows.nodes[pairs] = node
            rows.actions[pairs] = a
            rows.ends[pairs] = filled
            rows.beyond[pairs] = excess
            pairs += 1
        if pairs == 0 or rows.nodes[pairs - 1] != node:
            return -1 - node
    rows.nodes[rows.nodes.size - 1] = pairs
    return place.size


@kernel(types.void(LAW, INTS, FLOATS, PAIR_LIST, FLOATS), allocates=True)
def expected_values(law, li, lf, pairs, out):
    """Σ_y P(y|x,a) V(y) of pairs of a node and an action."""
    dim = li[0]
    room = law_room(law, dim)
    near = corner_room(dim)
    for p in range(out.size):
        node_state(li, pairs.states[p], room.x)
        total = 0.0
        mass = 0.0
        for n in range(list_law(law, room, pairs.actions[p])):
            total += room.probabilities[n] * valued(li, lf, room.states[n], near)[0]
            mass += room.probabilities[n]
        out[p] = total / mass
