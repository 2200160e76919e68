"""The Bellman operator of a network with one event a step, preemptive service and joint decisions.

At most one thing happens in a step, so with δ_e V(x) = γ·(V(T_e x) − V(x)) the operator splits into
servers,

    (L V)(x) = h(x) + γ·V(x) + Σ_c λ_c δ_c V(x) + Σ_s min_{c of s} μ_c Σ_r p_cr δ_cr V(x)   (plus
        penalties),

and the minimum over joint actions costs no more than the sum over the classes. States that differ
only in the last two classes lie side by side in a slab, as rows of the last one. An event shifts
all states of a slab by the same offset, but for first and last row or place where it touches these
two classes, so a slab is worked event by event in long loops that the processor runs several states
at a time.
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels.compiler import FLOAT, FLOATS, INT, INTS, helper, kernel
from dualplan._kernels.network import (
    ARRIVAL,
    BUFFER,
    CHOICE,
    CHOICE_PTR,
    EXCESS,
    LAM,
    LEVEL,
    LINEAR,
    LOSE,
    MU,
    PENALTY,
    PHANTOM,
    QUADRATIC,
    ROUTE_DEST,
    ROUTE_PROB,
    ROUTE_PTR,
    SCALE,
    STRIDE,
    N,
    S,
    holding,
)


@helper
def arrival_effect(ints, floats, x, strides, c):
    """The shift of the state's number by an arrival to class c, and its penalty."""
    if x[c] < ints[ints[BUFFER] + c]:
        return strides[c], 0.0
    return np.int64(0), floats[ints[SCALE]] * floats[ints[PENALTY] + c]


@helper
def route_effect(ints, floats, x, strides, c, d):
    """The shift by a completion of class c on its way to d, and its penalty."""
    if x[c] > 0:
        leaves = strides[c]
    else:
        leaves = np.int64(0)
    if x[c] == 0 and ints[PHANTOM] == 0:
        return np.int64(0), 0.0
    if d < 0:
        return -leaves, 0.0
    if d == c:  # who returns fills the place he left
        return np.int64(0), 0.0
    if x[d] < ints[ints[BUFFER] + d]:
        return strides[d] - leaves, 0.0
    if ints[LOSE]:
        return -leaves, floats[ints[SCALE]] * floats[ints[PENALTY] + d]
    return np.int64(0), 0.0


@helper
def one_state(ints, floats, x, strides, gamma, values, i):
    """(L V)(x) and a minimising action."""
    v = values[i]
    total = holding(ints, floats, x) + gamma * v
    for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
        c = ints[k]
        shift, penalty = arrival_effect(ints, floats, x, strides, c)
        total += floats[ints[LAM] + c] * (gamma * (values[i + shift] - v) + penalty)
    action = np.int64(0)
    for s in range(ints[S]):
        least = np.inf
        choice = np.int64(0)
        first = ints[ints[CHOICE_PTR] + s]
        for j in range(first, ints[ints[CHOICE_PTR] + s + 1]):
            c = ints[ints[CHOICE] + j]
            q = 0.0
            if c >= 0:
                for r in range(ints[ints[ROUTE_PTR] + c], ints[ints[ROUTE_PTR] + c + 1]):
                    shift, penalty = route_effect(
                        ints, floats, x, strides, c, ints[ints[ROUTE_DEST] + r]
                    )
                    p = floats[ints[MU] + c] * floats[ints[ROUTE_PROB] + r]
                    q += p * (gamma * (values[i + shift] - v) + penalty)
            if q < least:
                least = q
                choice = j - first
        total += least
        action += choice * ints[ints[STRIDE] + s]
    return total, action


# What an event brings to a slab is added to it, starts it, or is brought into a minimum.
ADD = 0
SET = 1
LEAST = 2


@helper
def along(values, i, a, b, shift, weight, constant, mode, slab):
    """Bring weight·(V[i + k + shift] − V[i + k]) + constant into slab[k], k = a, ..., b − 1."""
    # views, so that the index is known not to be negative and several states go at a time
    here = values[i + a : i + b]
    there = values[i + a + shift : i + b + shift]
    out = slab[a:b]
    if mode == ADD:
        for k in range(b - a):
            out[k] += weight * (there[k] - here[k]) + constant
    elif mode == SET:
        for k in range(b - a):
            out[k] = weight * (there[k] - here[k]) + constant
    else:
        for k in range(b - a):
            q = weight * (there[k] - here[k]) + constant
            if q < out[k]:
                out[k] = q


@helper
def edge(piece, pieces, size):
    """Where a piece starts: all in one, or the two ends as pieces of their own."""
    if piece == 0:
        return 0
    if piece == pieces:
        return size
    if piece == 1:
        return 1
    return max(1, size - 1)


@helper
def event(ints, floats, x, strides, gamma, values, i, height, width, c, r, mode, slab):
    """Bring one event into a slab: an arrival to class c (r < 0), or its completion along the route
    r.
    """
    last = ints[N] - 1
    if r >= 0:
        d = ints[ints[ROUTE_DEST] + r]
    else:
        d = c
    if r < 0:
        rate = floats[ints[LAM] + c]
    else:
        rate = floats[ints[MU] + c] * floats[ints[ROUTE_PROB] + r]
    by_place = c == last or d == last
    by_row = not by_place and last > 0 and (c == last - 1 or d == last - 1)
    if by_place:
        tops = height
    elif by_row:
        tops = 3
    else:
        tops = 1
    if by_place:
        lefts = 3
    else:
        lefts = 1
    for top in range(tops):
        if by_place:
            row = top
        else:
            row = edge(top, tops, height)
        if by_place:
            end = top
        else:
            end = edge(top + 1, tops, height) - 1
        if last > 0:
            x[last - 1] = row
        for left in range(lefts):
            place = edge(left, lefts, width)
            x[last] = place
            if r < 0:
                shift, penalty = arrival_effect(ints, floats, x, strides, c)
            else:
                shift, penalty = route_effect(ints, floats, x, strides, c, d)
            a = row * width + place
            b = end * width + edge(left + 1, lefts, width)
            along(values, i, a, b, shift, rate * gamma, rate * penalty, mode, slab)


@helper
def choice(ints, floats, x, strides, gamma, values, i, height, width, c, mode, least, q):
    """Bring the choice to serve class c into the minimum of its server."""
    if c >= 0:
        first = ints[ints[ROUTE_PTR] + c]
    else:
        first = np.int64(0)
    if c >= 0:
        routes = ints[ints[ROUTE_PTR] + c + 1] - first
    else:
        routes = np.int64(0)
    if routes == 1:
        event(ints, floats, x, strides, gamma, values, i, height, width, c, first, mode, least)
        return
    for k in range(height * width):
        q[k] = 0.0
    for r in range(first, first + routes):
        event(ints, floats, x, strides, gamma, values, i, height, width, c, r, ADD, q)
    for k in range(height * width):
        if mode == SET or q[k] < least[k]:
            least[k] = q[k]


@helper
def holding_row(ints, floats, x, row):
    """h(x) along a row of the last class."""
    last = ints[N] - 1
    linear = floats[ints[LINEAR] + last]
    quadratic = floats[ints[QUADRATIC] + last]
    excess = floats[ints[EXCESS] + last]
    level = floats[ints[LEVEL] + last]
    x[last] = 0
    rest = holding(ints, floats, x)
    for k in range(row.size):
        row[k] = rest + (linear + quadratic * k) * k + excess * max(0.0, k - level)


@helper
def stay(ints, floats, x, gamma, values, i, height, width, total):
    """h(x) + γ·V(x) in a slab."""
    for row in range(height):
        if ints[N] > 1:
            x[ints[N] - 2] = row
        here = values[i + row * width : i + (row + 1) * width]
        out = total[row * width : (row + 1) * width]
        holding_row(ints, floats, x, out)
        for k in range(width):
            out[k] += gamma * here[k]


@helper
def operator(ints, floats, x, strides, gamma, values, i, height, width, total, least, q):
    """L V in a slab."""
    stay(ints, floats, x, gamma, values, i, height, width, total)
    for e in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
        event(ints, floats, x, strides, gamma, values, i, height, width, ints[e], -1, ADD, total)
    for s in range(ints[S]):
        first = ints[ints[CHOICE_PTR] + s]
        for j in range(first, ints[ints[CHOICE_PTR] + s + 1]):
            c = ints[ints[CHOICE] + j]
            if j == first:
                mode = SET
            else:
                mode = LEAST
            choice(ints, floats, x, strides, gamma, values, i, height, width, c, mode, least, q)
        for k in range(height * width):
            total[k] += least[k]


@helper
def relax(values, damping, i, total, out, low, high):
    """out = V + τ·(L V − V) in a slab, and the ends of L V − V, one pair for each place (a minimum
    of many is slow).
    """
    here = values[i : i + total.size]
    there = out[i : i + total.size]
    for k in range(total.size):
        difference = total[k] - here[k]
        there[k] = here[k] + damping * difference
        if difference < low[k]:
            low[k] = difference
        if difference > high[k]:
            high[k] = difference


WORK = 5  # slabs of numbers that a sweep needs for itself


@kernel(
    INT(
        INTS, FLOATS, INTS, INTS, FLOAT, FLOAT, FLOATS, FLOATS, INTS, INTS, FLOATS, FLOATS, INT, INT
    )
)
def optimal(
    ints, floats, upper, strides, gamma, damping, values, out, best, x, work, ends, first, last
):
    """Sweep the slabs first, ..., last − 1 as `sweep.optimal` does; x and work are scratch."""
    n = ints[N]
    width = upper[n - 1] + 1
    if n > 1:
        height = upper[n - 2] + 1
    else:
        height = np.int64(1)
    size = width * height
    total = work[:size]
    least = work[size : 2 * size]
    q = work[2 * size : 3 * size]
    low = work[3 * size : 4 * size]
    high = work[4 * size : 5 * size]
    for k in range(size):
        low[k] = np.inf
        high[k] = -np.inf
    for slab in range(first, last):
        rest = slab
        for c in range(n - 3, -1, -1):
            x[c] = rest % (upper[c] + 1)
            rest //= upper[c] + 1
        i = slab * size
        if best.size > 0:
            for k in range(size):
                if n > 1:
                    x[n - 2] = k // width
                x[n - 1] = k % width
                total[k], best[i + k] = one_state(ints, floats, x, strides, gamma, values, i + k)
        else:
            operator(ints, floats, x, strides, gamma, values, i, height, width, total, least, q)
        relax(values, damping, i, total, out, low, high)
    for k in range(size):
        ends[0], ends[1] = min(ends[0], low[k]), max(ends[1], high[k])
    return np.int64(-1)
