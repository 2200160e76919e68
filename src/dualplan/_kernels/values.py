"""Value functions that are sums of products of one-dimensional pieces, and policies that are greedy for them.

A basis of K functions over P pieces is two flat arrays,

    ints     [K, P, M, coordinate of each piece, its kind, K + 1 places in the list of members, M members]
    floats   three parameters (p, q, s) for each piece

and function k is the product of the pieces that are its members (none: the constant 1). A piece at v is

    POWER     ((v − q)/s)^p              BETWEEN   1 if p <= v <= q, else 0
    HINGE     max(v − p, 0)/s            CAPPED    min(v, p)/s
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    ACT,
    FLOATS,
    INTS,
    ROWS,
    STATES,
    VALUE,
    Kernel,
    helper,
    kernel,
    made_once,
    user_kernel,
)

POWER, BETWEEN, HINGE, CAPPED = range(4)
HEAD, PARAMETERS = 3, 3
NOISE = 1e-12  # of the sum of absolute terms: actions that differ by no more than rounding are ties


@helper
def piece_value(kind, p, q, s, v):
    if kind == BETWEEN:
        return 1.0 if p <= v <= q else 0.0
    if kind == HINGE:
        return max(v - p, 0.0) / s
    if kind == CAPPED:
        return min(v, p) / s
    base, power = (v - q) / s, 1.0
    for _ in range(int(p)):
        power *= base
    return power


@helper
def piece_values(bi, bf, x, pieces):
    """Write the value of every piece at x."""
    count = bi[1]
    for j in range(count):
        f = PARAMETERS * j
        v = float(x[bi[HEAD + j]])
        pieces[j] = piece_value(bi[HEAD + count + j], bf[f], bf[f + 1], bf[f + 2], v)


@helper
def product(bi, pieces, k):
    """Ψ_k from the values of the pieces."""
    places = HEAD + 2 * bi[1]
    members = places + bi[0] + 1
    value = 1.0
    for m in range(bi[places + k], bi[places + k + 1]):
        value *= pieces[bi[members + m]]
        if value == 0.0:
            break
    return value


@helper
def weighted(bi, weights, pieces):
    """Σ w_k Ψ_k and Σ |w_k Ψ_k|."""
    total, size = 0.0, 0.0
    for k in range(bi[0]):
        if weights[k] != 0.0:
            term = weights[k] * product(bi, pieces, k)
            total += term
            size += abs(term)
    return total, size


@kernel(types.void(INTS, FLOATS, STATES, ROWS), allocates=True)
def functions_at(bi, bf, states, out):
    """Ψ(x), a row for each of the given states."""
    pieces = np.empty(bi[1], np.float64)
    for n in range(out.shape[0]):
        piece_values(bi, bf, states[n], pieces)
        for k in range(bi[0]):
            out[n, k] = product(bi, pieces, k)


@kernel(types.void(INTS, FLOATS, FLOATS, STATES, FLOATS), allocates=True)
def values_at(bi, bf, weights, states, out):
    """Σ w_k Ψ_k(x) of the given states."""
    pieces = np.empty(bi[1], np.float64)
    for n in range(out.size):
        piece_values(bi, bf, states[n], pieces)
        out[n] = weighted(bi, weights, pieces)[0]


@kernel(VALUE)
def linear_value(ints, floats, x, room):
    """Σ w_k Ψ_k(x); ints: the basis's, floats: the weights, the basis's; room: a number for each piece."""
    piece_values(ints, floats[ints[0] :], x, room)
    return weighted(ints, floats[: ints[0]], room)[0]


@helper
def same(x, y):
    """Whether two states are one."""
    differing = 0
    for i in range(x.size):
        differing += x[i] != y[i]
    return differing == 0


@made_once
def greedy_rule(allowed: Kernel, loss: Kernel, forward: Kernel) -> Kernel:
    """One look-ahead around the functions of a model, whatever the basis and the weights.

    ints: outcomes at most, sizes of the model's two arrays, the model's ints, the basis's;
    floats: γ, the weights, the model's floats, the basis's. Actions often differ in one of their outcomes only, so what
    the last one led to is not valued again.
    """
    may, cost, law = allowed.compiled, loss.compiled, forward.compiled

    @user_kernel(ACT)
    def greedy(ints, floats, x, out):
        outcomes, first = ints[0], 3 + ints[1]
        mi, bi = ints[3:first], ints[first:]
        gamma, weights, last = floats[0], floats[1 : 1 + bi[0]], 1 + bi[0] + ints[2]
        mf, bf = floats[1 + bi[0] : last], floats[last:]
        both, work = np.empty((2 * outcomes, x.size), np.int64), np.empty(3 * outcomes + bi[1], np.float64)
        chances, values, sizes = work[:outcomes], work[outcomes : 2 * outcomes], work[2 * outcomes : 3 * outcomes]
        pieces = work[3 * outcomes :]
        least, action, known, turn = np.inf, -1, 0, 0
        for a in range(out.size):
            out[a] = 0.0
            if may(mi, mf, x, a):
                turn = outcomes - turn
                states, before = both[turn : turn + outcomes], both[outcomes - turn : 2 * outcomes - turn]
                count = law(mi, mf, x, a, states, chances)
                value, size, mass = 0.0, 0.0, 0.0
                for n in range(count):
                    if n >= known or not same(states[n], before[n]):
                        piece_values(bi, bf, states[n], pieces)
                        values[n], sizes[n] = weighted(bi, weights, pieces)
                    value += chances[n] * values[n]
                    size += chances[n] * sizes[n]
                    mass += chances[n]
                known = count
                q = cost(mi, mf, x, a) + gamma * value / mass if abs(mass - 1.0) <= 1e-9 else np.nan
                if q < least - (NOISE * (abs(q) + size) if action >= 0 else 0.0):
                    least, action = q, a
        if action >= 0:  # otherwise the row sums to 0, which the loops report
            out[action] = 1.0

    return greedy
