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

from typing import NamedTuple

import numpy as np

from dualplan._kernels.compiler import FLOATS, INT, INTS, group, helper, kernel
from dualplan._kernels.layouts import ARRAYS, GRID
from dualplan._kernels.network import (
    ARRIVAL,
    BUFFER,
    CHOICE,
    CHOICE_PTR,
    CLASSES,
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
    SERVERS,
    STRIDE,
    holding,
)
from dualplan._kernels.sweep import UPDATE
from dualplan.core.types import Floats, Ints


class SweepRoom(NamedTuple):
    """A state and numbers to work with."""

    x: Ints
    work: Floats


class Slab(NamedTuple):
    """The states from number i on that differ only in the last two classes, as rows of the last
    one.

    `x` is a state among them, moved along where effects are looked up.
    """

    ints: Ints
    floats: Floats
    strides: Ints
    gamma: float
    values: Floats
    x: Ints
    i: int
    height: int
    width: int


SWEEP_ROOM = group(SweepRoom, INTS, FLOATS)


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
    for s in range(ints[SERVERS]):
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
ADD_TO_SLAB = 0
START_SLAB = 1
LOWER_SLAB = 2


@helper
def along(here, there, weight, constant, mode, out):
    """Bring weight·(there − here) + constant into a stretch of a slab."""
    if mode == ADD_TO_SLAB:
        for k in range(out.size):
            out[k] += weight * (there[k] - here[k]) + constant
    elif mode == START_SLAB:
        for k in range(out.size):
            out[k] = weight * (there[k] - here[k]) + constant
    else:
        for k in range(out.size):
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
def event(slab, c, r, mode, out):
    """Bring one event into numbers for a slab: an arrival to class c (r < 0), or its completion
    along the route r.
    """
    ints = slab.ints
    floats = slab.floats
    x = slab.x
    height = slab.height
    width = slab.width
    values = slab.values
    last = ints[CLASSES] - 1
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
                shift, penalty = arrival_effect(ints, floats, x, slab.strides, c)
            else:
                shift, penalty = route_effect(ints, floats, x, slab.strides, c, d)
            a = row * width + place
            b = end * width + edge(left + 1, lefts, width)
            # views, so that no index can be negative and several states go at a time
            here = values[slab.i + a : slab.i + b]
            there = values[slab.i + a + shift : slab.i + b + shift]
            along(here, there, rate * slab.gamma, rate * penalty, mode, out[a:b])


@helper
def choice(slab, c, mode, least, q):
    """Bring the choice to serve class c into the minimum of its server."""
    routes_of = slab.ints[ROUTE_PTR]
    first = np.int64(0)
    routes = np.int64(0)
    if c >= 0:
        first = slab.ints[routes_of + c]
        routes = slab.ints[routes_of + c + 1] - first
    if routes == 1:
        event(slab, c, first, mode, least)
        return
    for k in range(slab.height * slab.width):
        q[k] = 0.0
    for r in range(first, first + routes):
        event(slab, c, r, ADD_TO_SLAB, q)
    for k in range(slab.height * slab.width):
        if mode == START_SLAB or q[k] < least[k]:
            least[k] = q[k]


@helper
def holding_row(network, x, row):
    """h(x) along a row of the last class."""
    ints = network.ints
    floats = network.floats
    last = ints[CLASSES] - 1
    linear = floats[ints[LINEAR] + last]
    quadratic = floats[ints[QUADRATIC] + last]
    excess = floats[ints[EXCESS] + last]
    level = floats[ints[LEVEL] + last]
    x[last] = 0
    rest = holding(ints, floats, x)
    for k in range(row.size):
        row[k] = rest + (linear + quadratic * k) * k + excess * max(0.0, k - level)


@helper
def stay(slab, total):
    """h(x) + γ·V(x) in a slab."""
    n = slab.ints[CLASSES]
    width = slab.width
    for row in range(slab.height):
        if n > 1:
            slab.x[n - 2] = row
        here = slab.values[slab.i + row * width : slab.i + (row + 1) * width]
        out = total[row * width : (row + 1) * width]
        holding_row(slab, slab.x, out)
        for k in range(width):
            out[k] += slab.gamma * here[k]


@helper
def operator(slab, total, least, q):
    """L V in a slab."""
    ints = slab.ints
    stay(slab, total)
    for e in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
        event(slab, ints[e], -1, ADD_TO_SLAB, total)
    for s in range(ints[SERVERS]):
        first = ints[ints[CHOICE_PTR] + s]
        for j in range(first, ints[ints[CHOICE_PTR] + s + 1]):
            c = ints[ints[CHOICE] + j]
            if j == first:
                mode = START_SLAB
            else:
                mode = LOWER_SLAB
            choice(slab, c, mode, least, q)
        for k in range(slab.height * slab.width):
            total[k] += least[k]


@helper
def relax(update, i, total, low, high):
    """out = V + τ·(L V − V) in a slab, and the ends of L V − V, one pair for each place (a minimum
    of many is slow).
    """
    damping = update.damping
    here = update.values[i : i + total.size]
    there = update.out[i : i + total.size]
    for k in range(total.size):
        difference = total[k] - here[k]
        there[k] = here[k] + damping * difference
        if difference < low[k]:
            low[k] = difference
        if difference > high[k]:
            high[k] = difference


NETWORK_SWEEP_WORK_SLABS = 5  # slabs of numbers that a sweep needs for itself


@kernel(INT(ARRAYS, GRID, UPDATE, SWEEP_ROOM, FLOATS, INT, INT))
def optimal(network, grid, update, room, ends, first, last):
    """Sweep the slabs first, ..., last − 1 as `sweep.optimal` does."""
    ints = network.ints
    floats = network.floats
    upper = grid.upper
    values = update.values
    x = room.x
    n = ints[CLASSES]
    width = upper[n - 1] + 1
    if n > 1:
        height = upper[n - 2] + 1
    else:
        height = np.int64(1)
    size = width * height
    total = room.work[:size]
    least = room.work[size : 2 * size]
    q = room.work[2 * size : 3 * size]
    low = room.work[3 * size : 4 * size]
    high = room.work[4 * size : 5 * size]
    for k in range(size):
        low[k] = np.inf
        high[k] = -np.inf
    for number in range(first, last):
        rest = number
        for c in range(n - 3, -1, -1):
            x[c] = rest % (upper[c] + 1)
            rest //= upper[c] + 1
        i = number * size
        if update.best.size > 0:
            for k in range(size):
                if n > 1:
                    x[n - 2] = k // width
                x[n - 1] = k % width
                total[k], update.best[i + k] = one_state(
                    ints, floats, x, grid.strides, update.gamma, values, i + k
                )
        else:
            slab = Slab(ints, floats, grid.strides, update.gamma, values, x, i, height, width)
            operator(slab, total, least, q)
        relax(update, i, total, low, high)
    for k in range(size):
        ends[0], ends[1] = min(ends[0], low[k]), max(ends[1], high[k])
    return np.int64(-1)
