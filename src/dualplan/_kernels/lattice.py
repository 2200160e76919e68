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

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    ALLOWED,
    COUNTS,
    FLOATS,
    FORWARD,
    INT,
    INTS,
    LOSS,
    STATES,
    VALUE,
    function_type,
    helper,
    kernel,
)
from dualplan._kernels.sweep import sums_of

_ALLOWED, _LOSS, _FORWARD, _COUNTS = (function_type(t) for t in (ALLOWED, LOSS, FORWARD, COUNTS))


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
def corners(li, x, clip, nodes, weights, bends):
    """Write the corners of the cell around x that have weight, and their weights; how many.

    `bends` gets ½ (x_i − left_i)(right_i − x_i) of each coordinate.
    """
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
def valued(li, lf, x, nodes, weights, bends):
    """V at x, and the sum of its absolute terms."""
    dim = li[0]
    total = 0.0
    size = 0.0
    for c in range(corners(li, x, False, nodes, weights, bends)):
        first = (1 + dim) * nodes[c]
        value = lf[first]
        for i in range(dim):
            if bends[i] != 0.0:
                value -= bends[i] * lf[first + 1 + i]
        total += weights[c] * value
        size += abs(weights[c] * value)
    return total, size


@kernel(types.void(INTS, FLOATS, STATES, FLOATS), allocates=True)
def values_at(li, lf, states, out):
    """The function at the given states."""
    nodes = np.empty(1 << li[0], np.int64)
    weights = np.empty(1 << li[0])
    bends = np.empty(li[0])
    for n in range(out.size):
        out[n] = valued(li, lf, states[n], nodes, weights, bends)[0]


@kernel(VALUE, allocates=True)
def lattice_value(li, lf, x, room):
    """The function at one state.

    Room: one, and a number for each coordinate and each corner of a cell.
    """
    dim = li[0]
    nodes = np.empty(1 << dim, np.int64)
    total, room[0] = valued(li, lf, x, nodes, room[1 + dim :], room[1 : 1 + dim])
    return total


@helper
def node_state(li, node, x):
    dim = li[0]
    for i in range(dim):
        x[i] = li[li[1 + 2 * dim + i] + node // li[1 + dim + i] % li[1 + i]]


@helper
def priced(loss, counts, mi, mf, x, a, prices, sums):
    """ℓ(x,a), and prices on what the step adds to the columns."""
    if prices.size == 0:
        return loss(mi, mf, x, a)
    sums_of(loss, counts, mi, mf, x, a, sums)
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
def outside(x, lower, upper):
    faults = 0
    for i in range(lower.size):
        faults += x[i] < lower[i] or x[i] > upper[i]
    return faults > 0


@kernel(
    INT(
        _ALLOWED,
        _LOSS,
        _FORWARD,
        _COUNTS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INTS,
        FLOATS,
        INT,
        INT,
        INT,
        INT,
        INTS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INTS,
        FLOATS,
        FLOATS,
    ),
    allocates=True,
)
def node_rows(
    allowed,
    loss,
    forward,
    counts,
    mi,
    mf,
    li,
    lower,
    upper,
    prices,
    actions,
    outcomes,
    first,
    last,
    place,
    columns,
    entries,
    ends,
    nodes_of,
    actions_of,
    losses,
    beyond,
):
    """Write the pairs of the nodes first, first + 1, ... as far as there is room: rows of the
    chain, and their losses.

    `place` holds for each node where it stands in the row at hand, or −1. The next node is
    returned, or −1 − the node at which no action is allowed, a law leaves the box or does not sum
    to 1, or a loss is not finite. `beyond` gets the mean distance by which the next state lies
    beyond the last knots. The number of pairs is written to nodes_of[-1].
    """
    dim = li[0]
    x = np.empty(dim, np.int64)
    states = np.empty((outcomes, dim), np.int64)
    probabilities = np.empty(outcomes)
    near = np.empty(1 << dim, np.int64)
    weights = np.empty(1 << dim)
    bends = np.empty(dim)
    sums = np.zeros(prices.size)
    row_size = min(place.size, outcomes << dim)
    pairs = 0
    filled = 0
    for node in range(first, last):
        nodes_of[nodes_of.size - 1] = pairs
        if pairs + actions >= nodes_of.size or filled + actions * row_size > entries.size:
            return node
        node_state(li, node, x)
        for a in range(actions):
            if not allowed(mi, mf, x, a):
                continue
            count = forward(mi, mf, x, a, states, probabilities)
            start = filled
            mass = 0.0
            excess = 0.0
            for n in range(count):
                if outside(states[n], lower, upper):
                    return -1 - node
                mass += probabilities[n]
                excess += probabilities[n] * distance_beyond(li, states[n])
                for c in range(corners(li, states[n], True, near, weights, bends)):
                    if place[near[c]] < 0:
                        place[near[c]] = filled
                        columns[filled] = near[c]
                        entries[filled] = 0.0
                        filled += 1
                    entries[place[near[c]]] += probabilities[n] * weights[c]
            losses[pairs] = priced(loss, counts, mi, mf, x, a, prices, sums)
            if not (np.isfinite(losses[pairs]) and abs(mass - 1.0) <= 1e-9):
                return -1 - node
            for k in range(start, filled):
                place[columns[k]] = -1
                entries[k] /= mass
            nodes_of[pairs] = node
            actions_of[pairs] = a
            ends[pairs] = filled
            beyond[pairs] = excess
            pairs += 1
        if pairs == 0 or nodes_of[pairs - 1] != node:
            return -1 - node
    nodes_of[nodes_of.size - 1] = pairs
    return last


@kernel(types.void(_FORWARD, INTS, FLOATS, INTS, FLOATS, INT, INTS, INTS, FLOATS), allocates=True)
def expected_values(forward, mi, mf, li, lf, outcomes, nodes_of, actions_of, out):
    """Σ_y P(y|x,a) V(y) of pairs of a node and an action."""
    dim = li[0]
    x = np.empty(dim, np.int64)
    states = np.empty((outcomes, dim), np.int64)
    probabilities = np.empty(outcomes)
    near = np.empty(1 << dim, np.int64)
    weights = np.empty(1 << dim)
    bends = np.empty(dim)
    for p in range(out.size):
        node_state(li, nodes_of[p], x)
        total = 0.0
        mass = 0.0
        for n in range(forward(mi, mf, x, actions_of[p], states, probabilities)):
            total += probabilities[n] * valued(li, lf, states[n], near, weights, bends)[0]
            mass += probabilities[n]
        out[p] = total / mass
