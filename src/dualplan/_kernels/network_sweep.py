"""The Bellman operator of a network with one event a step, preemptive service and joint decisions.

At most one thing happens in a step, so with δ_e V(x) = γ·(V(T_e x) − V(x)) the operator splits into servers,

    (L V)(x) = h(x) + γ·V(x) + Σ_c λ_c δ_c V(x) + Σ_s min_{c of s} μ_c Σ_r p_cr δ_cr V(x)   (plus penalties),

and the minimum over joint actions costs no more than the sum over the classes. States that differ only in the last
class lie side by side; but for the two ends of such a row, an event shifts all of them by the same offset, so a row is
worked event by event in loops that the processor runs several states at a time.
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
    leaves = strides[c] if x[c] > 0 else np.int64(0)
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
        least, choice = np.inf, np.int64(0)
        first = ints[ints[CHOICE_PTR] + s]
        for j in range(first, ints[ints[CHOICE_PTR] + s + 1]):
            c = ints[ints[CHOICE] + j]
            q = 0.0
            if c >= 0:
                for r in range(ints[ints[ROUTE_PTR] + c], ints[ints[ROUTE_PTR] + c + 1]):
                    shift, penalty = route_effect(ints, floats, x, strides, c, ints[ints[ROUTE_DEST] + r])
                    p = floats[ints[MU] + c] * floats[ints[ROUTE_PROB] + r]
                    q += p * (gamma * (values[i + shift] - v) + penalty)
            if q < least:
                least, choice = q, j - first
        total += least
        action += choice * ints[ints[STRIDE] + s]
    return total, action


# The loops below run over views, so that their index is known not to be negative and several states go at a time.


@helper
def add_event(values, i, shift, weight, constant, width, out):
    """out[k] += weight·(V[i + k + shift] − V[i + k]) + constant along the inner part of a row."""
    here, there, sums = values[i + 1 : i + width - 1], values[i + 1 + shift : i + shift + width - 1], out[1 : width - 1]
    for k in range(width - 2):
        sums[k] += weight * (there[k] - here[k]) + constant


@helper
def least_event(values, i, shift, weight, constant, width, first, least):
    """least[k] = min(least[k], weight·(V[i + k + shift] − V[i + k]) + constant), the first time without the minimum."""
    here, there, ends = (
        values[i + 1 : i + width - 1],
        values[i + 1 + shift : i + shift + width - 1],
        least[1 : width - 1],
    )
    if first:
        for k in range(width - 2):
            ends[k] = weight * (there[k] - here[k]) + constant
    else:
        for k in range(width - 2):
            q = weight * (there[k] - here[k]) + constant
            ends[k] = q if q < ends[k] else ends[k]


@helper
def least_choice(ints, floats, x, strides, gamma, values, i, width, c, first, least, q):
    """Bring the choice to serve class c into the minimum of its server."""
    if c < 0:
        least_event(values, i, 0, 0.0, 0.0, width, first, least)
        return
    routes = ints[ints[ROUTE_PTR] + c + 1] - ints[ints[ROUTE_PTR] + c]
    if routes > 1:
        for k in range(1, width - 1):
            q[k] = 0.0
    for r in range(ints[ints[ROUTE_PTR] + c], ints[ints[ROUTE_PTR] + c + 1]):
        shift, penalty = route_effect(ints, floats, x, strides, c, ints[ints[ROUTE_DEST] + r])
        rate = floats[ints[MU] + c] * floats[ints[ROUTE_PROB] + r]
        if routes == 1:
            least_event(values, i, shift, rate * gamma, rate * penalty, width, first, least)
        else:
            add_event(values, i, shift, rate * gamma, rate * penalty, width, q)
    if routes > 1:
        for k in range(1, width - 1):
            least[k] = q[k] if first or q[k] < least[k] else least[k]


@helper
def inner_row(ints, floats, x, strides, gamma, values, i, width, total, least, q):
    """L V for the states of a row but its ends; x has 1 as its last coordinate."""
    last = ints[N] - 1
    x[last] = 0
    rest = holding(ints, floats, x)
    x[last] = 1
    linear, quadratic = floats[ints[LINEAR] + last], floats[ints[QUADRATIC] + last]
    excess, level = floats[ints[EXCESS] + last], floats[ints[LEVEL] + last]
    here = values[i : i + width]
    for k in range(1, width - 1):
        total[k] = rest + (linear + quadratic * k) * k + excess * max(0.0, k - level) + gamma * here[k]
    for e in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
        c = ints[e]
        shift, penalty = arrival_effect(ints, floats, x, strides, c)
        rate = floats[ints[LAM] + c]
        add_event(values, i, shift, rate * gamma, rate * penalty, width, total)
    for s in range(ints[S]):
        first = ints[ints[CHOICE_PTR] + s]
        for j in range(first, ints[ints[CHOICE_PTR] + s + 1]):
            c = ints[ints[CHOICE] + j]
            least_choice(ints, floats, x, strides, gamma, values, i, width, c, j == first, least, q)
        for k in range(1, width - 1):
            total[k] += least[k]


@helper
def relax(values, damping, i, width, total, out, low, high):
    """out = V + τ·(L V − V) along a row, and the ends of L V − V, one pair for each place in a row."""
    here, there = values[i : i + width], out[i : i + width]
    for k in range(width):
        difference = total[k] - here[k]
        there[k] = here[k] + damping * difference
        low[k] = difference if difference < low[k] else low[k]
        high[k] = difference if difference > high[k] else high[k]


@kernel(INT(INTS, FLOATS, INTS, INTS, FLOAT, FLOAT, FLOATS, FLOATS, INTS, FLOATS, INT, INT), allocates=True)
def optimal(ints, floats, upper, strides, gamma, damping, values, out, best, ends, first, last):
    """Sweep the rows first, ..., last − 1 as `sweep.optimal` does."""
    n = ints[N]
    width = upper[n - 1] + 1
    x = np.zeros(n, np.int64)
    total = np.empty(width, np.float64)
    least, q = np.empty(width, np.float64), np.empty(width, np.float64)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    for row in range(first, last):
        rest = row
        for c in range(n - 2, -1, -1):
            x[c] = rest % (upper[c] + 1)
            rest //= upper[c] + 1
        i = row * width
        for k in range(width) if best.size > 0 else range(0, width, max(width - 1, 1)):
            x[n - 1] = k
            total[k], action = one_state(ints, floats, x, strides, gamma, values, i + k)
            if best.size > 0:
                best[i + k] = action
        if best.size == 0 and width > 2:
            x[n - 1] = 1
            inner_row(ints, floats, x, strides, gamma, values, i, width, total, least, q)
        relax(values, damping, i, width, total, out, low, high)
    ends[0], ends[1] = low.min(), high.max()
    return np.int64(-1)
