"""Laws of the states that factor along a tree, in log space.

    log P(x) = Σ_i log P_i(x_i | class of x_p(i))

with p(i) the parent of coordinate i, if it has one. A coordinate lists values low..high; the class
of a value is its place among them, and all values from `high` on are one class. Beyond `high` a law
may go on, to a limit or for ever, with P(high + k | high or more) in proportion to r^k. Products of
laws are trees without parents.

From y to a state x that differs in a few coordinates only the terms of these and of their children
change:

    P(x) = P(y)·exp(Σ_changed [log P_i(x_i|·) − log P_i(y_i|·)]),

so that the density of a state costs one pass over the coordinates, and that of each of its
predecessors a few look-ups. Terms that are log 0 are counted apart from the sum of the others.

A node is NODE_RECORD_SIZE numbers: low, high, the largest value, parent or −1, where its table
starts in `floats`, the number of classes of its parent, where its children are listed (from the law
on), their number. A law is its nodes, an order in which parents come first, and the lists of
children. A table is the logarithms by class and value, the cumulative sums by class and value, then
log r and the logarithm of the tail's first probability.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOAT_ROWS, FLOATS, INTS, helper, inlined_helper, kernel
from dualplan._kernels.philox import uniform

NODE_RECORD_SIZE = 8
BYTE_ROWS = types.uint8[:, ::1]


@inlined_helper
def class_of(ints, node, value):
    """The place of a value among those that a node lists."""
    return min(max(value, ints[node]), ints[node + 1]) - ints[node]


@helper
def term(ints, floats, law, f, x, i):
    """log P_i(x_i | its parent's class); −inf where it is 0."""
    node = law + NODE_RECORD_SIZE * i
    value = x[i]
    low = ints[node]
    high = ints[node + 1]
    most = ints[node + 2]
    if value < low or value > most:
        return -np.inf
    parent = ints[node + 3]
    size = high - low + 1
    kind = np.int64(0)
    if parent >= 0:
        kind = class_of(ints, law + NODE_RECORD_SIZE * parent, x[parent])
    table = f + ints[node + 4]
    if value < high or most == high:
        return floats[table + kind * size + value - low]
    tail = table + 2 * ints[node + 5] * size
    return floats[table + kind * size + size - 1] + floats[tail + 1] + (value - high) * floats[tail]


@helper
def log_density(ints, floats, law, f, x, dim):
    """The sum of the terms that are finite, and the number of the others."""
    total = 0.0
    zeros = 0
    for i in range(dim):
        t = term(ints, floats, law, f, x, i)
        if t == -np.inf:
            zeros += 1
        else:
            total += t
    return total, zeros


@helper
def is_among(coords, changed, i):
    for k in range(changed):  # noqa: SIM110 - compiled code has no generators here
        if coords[k] == i:
            return True
    return False


@helper
def log_ratio(ints, floats, law, f, y, x, coords, changed):
    """log P(x) − log P(y) over the finite terms, and by how many more terms are not finite at x."""
    total = 0.0
    zeros = 0
    for k in range(changed):
        i = coords[k]
        old = term(ints, floats, law, f, y, i)
        new = term(ints, floats, law, f, x, i)
        if old == -np.inf:
            zeros -= 1
        else:
            total -= old
        if new == -np.inf:
            zeros += 1
        else:
            total += new
        node = law + NODE_RECORD_SIZE * i
        if ints[node + 7] == 0 or class_of(ints, node, x[i]) == class_of(ints, node, y[i]):
            continue
        for j in range(law + ints[node + 6], law + ints[node + 6] + ints[node + 7]):
            child = ints[j]
            if is_among(coords, changed, child):
                continue
            old = term(ints, floats, law, f, y, child)
            new = term(ints, floats, law, f, x, child)
            if old == -np.inf:
                zeros -= 1
            else:
                total -= old
            if new == -np.inf:
                zeros += 1
            else:
                total += new
    return total, zeros


@helper
def draw_states(ints, floats, law, f, dim, rng, x):
    """Write a state drawn from the law, parents first."""
    for k in range(law + NODE_RECORD_SIZE * dim, law + NODE_RECORD_SIZE * dim + dim):
        i = ints[k]
        node = law + NODE_RECORD_SIZE * i
        low = ints[node]
        high = ints[node + 1]
        most = ints[node + 2]
        parent = ints[node + 3]
        size = high - low + 1
        kind = np.int64(0)
        if parent >= 0:
            kind = class_of(ints, law + NODE_RECORD_SIZE * parent, x[parent])
        table = f + ints[node + 4]
        sums = table + (ints[node + 5] + kind) * size
        place = sums
        last = sums + size - 1
        if size > 1:
            u = uniform(rng) * floats[last]
        else:
            u = 0.0
        while last - place > 8:
            middle = (place + last) // 2
            if floats[middle] > u:
                last = middle
            else:
                place = middle + 1
        while place < last and floats[place] <= u:
            place += 1
        value = low + place - sums
        if value == high and most > high:
            rate = floats[table + 2 * ints[node + 5] * size]
            whole = 1.0 - np.exp(
                rate * (np.float64(most) - np.float64(high) + 1.0)
            )  # 1, where there is no end
            value = min(value + np.int64(np.log(1.0 - uniform(rng) * whole) / rate), most)
        x[i] = value


# -- fitting a tree: which coordinates say most of each other --------------------------------------


@kernel(types.void(BYTE_ROWS, INTS, FLOATS, FLOAT_ROWS))
def mutual_information(codes, sizes, counts, out):
    """I(i; j) in nats; a row of codes 0, ..., size − 1 for each coordinate. `counts` has room for
    two sizes' product.

    With N samples, N·I = Σ n(u,v)·log n(u,v) − Σ n(u)·log n(u) − Σ n(v)·log n(v) + N·log N.
    """
    dim, samples = codes.shape
    for i in range(dim):  # the diagonal is the entropy, from which the others are made
        counts[: sizes[i]] = 0.0
        for k in range(samples):
            counts[codes[i, k]] += 1.0
        out[i, i] = samples * np.log(samples)
        for u in range(sizes[i]):
            if counts[u] > 0.0:
                out[i, i] -= counts[u] * np.log(counts[u])
    for i in range(dim):
        for j in range(i):
            counts[: sizes[i] * sizes[j]] = 0.0
            width = sizes[j]
            for k in range(samples):
                counts[codes[i, k] * width + codes[j, k]] += 1.0
            joint = samples * np.log(samples)
            for u in range(sizes[i] * sizes[j]):
                if counts[u] > 0.0:
                    joint -= counts[u] * np.log(counts[u])
            out[i, j] = max((out[i, i] + out[j, j] - joint) / samples, 0.0)
            out[j, i] = out[i, j]
    for i in range(dim):
        out[i, i] /= samples
