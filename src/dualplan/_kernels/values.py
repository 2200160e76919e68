"""Value functions that are sums of products of one-dimensional pieces, and policies that are greedy for them.

A basis of K functions over P pieces is two flat arrays,

    ints     [K, P, M, coordinate of each piece, its kind, K + 1 places in the list of members, M members]
    floats   three parameters (p, q, s) for each piece

and function k is the product of the pieces that are its members (none: the constant 1). A piece at v is

    POWER     ((v − q)/s)^p              BETWEEN   1 if p <= v <= q, else 0
    HINGE     max(v − p, 0)/s            CAPPED    min(v, p)/s
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from dualplan._kernels.compiler import (
    ACT,
    FLOATS,
    INTS,
    ROWS,
    STATES,
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


@helper
def expected_value(bi, bf, weights, states, probabilities, count, pieces):
    """Σ P(y) V(y) and Σ P(y) Σ_k |w_k Ψ_k(y)|; not a number where the law does not sum to 1."""
    total, size, mass = 0.0, 0.0, 0.0
    for n in range(count):
        piece_values(bi, bf, states[n], pieces)
        value, terms = weighted(bi, weights, pieces)
        total += probabilities[n] * value
        size += probabilities[n] * terms
        mass += probabilities[n]
    if not abs(mass - 1.0) <= 1e-9:
        return np.nan, np.nan
    return total / mass, size / mass


@made_once
def look_ahead(allowed: Kernel, loss: Kernel, forward: Kernel) -> Any:
    """Writes ℓ(x,a) + γ Σ P(y|x,a) V(y) of every allowed action and the size of the sum's terms; infinite elsewhere.

    Arrays as for `greedy_rule`.
    """
    may, cost, law = allowed.compiled, loss.compiled, forward.compiled

    @njit(nogil=True, error_model="numpy")
    def looked(ints, floats, x, costs, sizes):
        outcomes, first = ints[0], 3 + ints[1]
        mi, bi = ints[3:first], ints[first:]
        gamma, weights, last = floats[0], floats[1 : 1 + bi[0]], 1 + bi[0] + ints[2]
        mf, bf = floats[1 + bi[0] : last], floats[last:]
        states, probabilities = np.empty((outcomes, x.size), np.int64), np.empty(outcomes, np.float64)
        pieces = np.empty(bi[1], np.float64)
        for a in range(costs.size):
            costs[a], sizes[a] = np.inf, 0.0
            if may(mi, mf, x, a):
                count = law(mi, mf, x, a, states, probabilities)
                value, size = expected_value(bi, bf, weights, states, probabilities, count, pieces)
                q = cost(mi, mf, x, a) + gamma * value
                costs[a], sizes[a] = q, abs(q) + size

    return looked


@made_once
def greedy_rule(allowed: Kernel, loss: Kernel, forward: Kernel) -> Kernel:
    """One look-ahead around the functions of a model, whatever the basis and the weights.

    ints: outcomes at most, sizes of the model's two arrays, the model's ints, the basis's;
    floats: γ, the weights, the model's floats, the basis's.
    """
    looked = look_ahead(allowed, loss, forward)

    @user_kernel(ACT)
    def greedy(ints, floats, x, out):
        costs, sizes = np.empty(out.size, np.float64), np.empty(out.size, np.float64)
        looked(ints, floats, x, costs, sizes)
        least, action = np.inf, -1
        for a in range(out.size):
            out[a] = 0.0
            if costs[a] < least - (NOISE * sizes[a] if action >= 0 else 0.0):
                least, action = costs[a], a
        if action >= 0:  # otherwise the row sums to 0, which the loops report
            out[action] = 1.0

    return greedy


@made_once
def among_rule(allowed: Kernel, loss: Kernel, forward: Kernel, fill: Kernel) -> Kernel:
    """The probabilities of the policy, of several, whose look-ahead costs least, ties to the first.

    ints: sizes of the look-ahead's two arrays, its ints, the policies'; floats: its floats, the policies'.
    """
    looked, table_of = look_ahead(allowed, loss, forward), fill.compiled

    @user_kernel(ACT)
    def among(ints, floats, x, out):
        first, bank = 2 + ints[0], ints[2 + ints[0] :]
        costs, sizes = np.empty(out.size, np.float64), np.empty(out.size, np.float64)
        looked(ints[2:first], floats[: ints[1]], x, costs, sizes)
        table = np.empty((bank[0], out.size), np.float64)
        table_of(bank, floats[ints[1] :], x, table)
        least, chosen = np.inf, 0
        for k in range(bank[0]):
            total, size = 0.0, 0.0
            for a in range(out.size):
                if table[k, a] > 0.0:
                    total += table[k, a] * costs[a]
                    size += table[k, a] * sizes[a]
            if total < least - (NOISE * size if k > 0 else 0.0):
                least, chosen = total, k
        out[:] = table[chosen]

    return among
