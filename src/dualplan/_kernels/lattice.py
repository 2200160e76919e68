"""Functions that are multilinear between the nodes of a lattice, the chain on its nodes, and policies greedy for them.

A lattice of D coordinates is one flat array,

    [D, number of knots of each coordinate, stride of each, place of its first knot, knots]

and nodes are numbered with the last coordinate fastest. A state lies in a cell of it, and is a combination of the
corners: along each coordinate with weights 1 − t and t, t the part of the way from one knot to the next. Beyond the
last knot t is more than 1, which goes on linearly, or is cut to 1 in a chain, whose weights are probabilities.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    ACT,
    ALLOWED,
    COUNTS,
    FLOAT,
    FLOATS,
    FORWARD,
    INT,
    INTS,
    LOSS,
    STATES,
    Kernel,
    function_type,
    helper,
    kernel,
    made_once,
    user_kernel,
)
from dualplan._kernels.sweep import sums_of
from dualplan._kernels.values import NOISE, expected_value, piece_values, weighted

_ALLOWED, _LOSS, _FORWARD, _COUNTS = (function_type(t) for t in (ALLOWED, LOSS, FORWARD, COUNTS))


@helper
def cell(li, i, v):
    """The number of the interval of coordinate i that v lies in, or the last one."""
    first, low, high = li[1 + 2 * li[0] + i], 0, li[1 + i] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if li[first + middle] <= v:
            low = middle
        else:
            high = middle
    return low


@helper
def corners(li, x, clip, nodes, weights):
    """Write the corners of the cell around x that have weight, and their weights; how many."""
    dim, base, count = li[0], 0, 1
    nodes[0], weights[0] = 0, 1.0
    for i in range(dim):
        if li[1 + i] == 1:
            continue
        j, stride = cell(li, i, x[i]), li[1 + dim + i]
        left = li[li[1 + 2 * dim + i] + j]
        t = (x[i] - left) / (li[li[1 + 2 * dim + i] + j + 1] - left)
        if clip and t > 1.0:
            t = 1.0
        base += j * stride
        if t == 1.0:
            base += stride
        elif t != 0.0:
            for c in range(count):
                nodes[count + c] = nodes[c] + stride
                weights[count + c] = t * weights[c]
                weights[c] *= 1.0 - t
            count *= 2
    for c in range(count):
        nodes[c] += base
    return count


@helper
def interpolated(li, lf, x, nodes, weights):
    """The function at x, and the sum of its absolute terms."""
    total, size = 0.0, 0.0
    for c in range(corners(li, x, False, nodes, weights)):
        term = weights[c] * lf[nodes[c]]
        total += term
        size += abs(term)
    return total, size


@kernel(types.void(INTS, FLOATS, STATES, FLOATS), allocates=True)
def interpolate(li, lf, states, out):
    """The function at the given states."""
    nodes, weights = np.empty(1 << li[0], np.int64), np.empty(1 << li[0], np.float64)
    for n in range(out.size):
        out[n] = interpolated(li, lf, states[n], nodes, weights)[0]


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
def beyond(li, x, penalties):
    """What it costs to lie beyond the last knots."""
    dim, total = li[0], 0.0
    for i in range(dim):
        excess = x[i] - li[li[1 + 2 * dim + i] + li[1 + i] - 1]
        if excess > 0:
            total += penalties[i] * excess
    return total


@helper
def outside(x, lower, upper):
    faults = 0
    for i in range(lower.size):
        faults += x[i] < lower[i] or x[i] > upper[i]
    return faults > 0


@kernel(INT(_ALLOWED, _LOSS, _FORWARD, _COUNTS, INTS, FLOATS, INTS, FLOATS, FLOATS, INTS, INTS, INTS, FLOATS, FLOATS,
            INT, INT, FLOAT, INT, INT, INTS, INTS, FLOATS, INTS, INTS, INTS, FLOATS), allocates=True)  # fmt: skip
def node_rows(
    allowed, loss, forward, counts, mi, mf, bi, bf, bw, li, lower, upper, prices, penalties, actions, outcomes, gamma,
    first, last, place, columns, entries, ends, nodes_of, actions_of, losses,
):  # fmt: skip
    """Write the pairs of the nodes first, first + 1, ... as far as there is room: rows of the chain, and their losses.

    `place` holds for each node where it stands in the row at hand, or something less. The next node is returned, or
    −1 − the node at which no action is allowed, a law leaves the box or does not sum to 1, or a loss is not finite.
    With functions, losses are ℓ + γPΨw − Ψw. The number of pairs is written to nodes_of[-1].
    """
    dim = li[0]
    x, states = np.empty(dim, np.int64), np.empty((outcomes, dim), np.int64)
    probabilities, pieces, sums = np.empty(outcomes), np.empty(bi[1]), np.zeros(prices.size)
    near, weights = np.empty(1 << dim, np.int64), np.empty(1 << dim, np.float64)
    row_size = min(place.size, outcomes << dim)
    pairs, filled = 0, 0
    for node in range(first, last):
        if pairs + actions >= nodes_of.size or filled + actions * row_size > entries.size:
            nodes_of[nodes_of.size - 1] = pairs
            return node
        node_state(li, node, x)
        piece_values(bi, bf, x, pieces)
        here, any_action = weighted(bi, bw, pieces)[0], False
        for a in range(actions):
            if not allowed(mi, mf, x, a):
                continue
            any_action, start = True, filled
            count = forward(mi, mf, x, a, states, probabilities)
            total = priced(loss, counts, mi, mf, x, a, prices, sums) - here
            total += gamma * expected_value(bi, bf, bw, states, probabilities, count, pieces)[0]
            for n in range(count):
                if outside(states[n], lower, upper):
                    return -1 - node
                total += probabilities[n] * beyond(li, states[n], penalties)
                for c in range(corners(li, states[n], True, near, weights)):
                    if place[near[c]] < start:
                        place[near[c]] = filled
                        columns[filled], entries[filled] = near[c], 0.0
                        filled += 1
                    entries[place[near[c]]] += probabilities[n] * weights[c]
            if not np.isfinite(total):
                return -1 - node
            for k in range(start, filled):
                place[columns[k]] = -1
            nodes_of[pairs], actions_of[pairs], losses[pairs], ends[pairs] = node, a, total, filled
            pairs += 1
        if not any_action:
            return -1 - node
    nodes_of[nodes_of.size - 1] = pairs
    return last


@made_once
def lattice_rule(allowed: Kernel, loss: Kernel, forward: Kernel, counts: Kernel) -> Kernel:
    """One look-ahead around the functions of a model, whatever the lattice, the values and the prices.

    ints: outcomes at most, sizes of the model's two arrays, of the basis's ints, of the prices; the model's ints, the
    basis's, the lattice's; floats: γ, the prices, the weights, the model's floats, the basis's, values of the nodes.
    """
    may, cost, law, count_of = allowed.compiled, loss.compiled, forward.compiled, counts.compiled

    @user_kernel(ACT)
    def greedy(ints, floats, x, out):
        outcomes, priced_columns = ints[0], ints[4]
        b = 5 + ints[1]
        mi, bi, li = ints[5:b], ints[b : b + ints[3]], ints[b + ints[3] :]
        w = 1 + priced_columns
        m = w + bi[0]
        f = m + ints[2]
        v = f + 3 * bi[1]
        prices, bw, mf, bf, lf = floats[1:w], floats[w:m], floats[m:f], floats[f:v], floats[v:]
        corner_count = 1 << x.size
        states, near = np.empty((outcomes, x.size), np.int64), np.empty(corner_count, np.int64)
        work = np.zeros(outcomes + bi[1] + priced_columns + corner_count, np.float64)
        probabilities, pieces = work[:outcomes], work[outcomes : outcomes + bi[1]]
        sums, weights = work[outcomes + bi[1] : work.size - corner_count], work[work.size - corner_count :]
        least, action = np.inf, -1
        for a in range(out.size):
            out[a] = 0.0
            if may(mi, mf, x, a):
                count = law(mi, mf, x, a, states, probabilities)
                value, size = expected_value(bi, bf, bw, states, probabilities, count, pieces)
                for n in range(count):
                    term, terms = interpolated(li, lf, states[n], near, weights)
                    value += probabilities[n] * term
                    size += probabilities[n] * terms
                q = priced(cost, count_of, mi, mf, x, a, prices, sums) + floats[0] * value
                if q < least - (NOISE * (abs(q) + size) if action >= 0 else 0.0):
                    least, action = q, a
        if action >= 0:  # otherwise the row sums to 0, which the loops report
            out[action] = 1.0

    return greedy
