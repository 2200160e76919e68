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
    copy,
    helper,
    kernel,
    made_once,
    user_kernel,
)

POWER, BETWEEN, HINGE, CAPPED = range(4)
HEAD, PARAMETERS = 3, 3
MEMORY = 64  # outcomes whose values a look-ahead remembers
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
def note_seen(bi, seen):
    """Mark the coordinates that the basis sees."""
    for i in range(seen.size):
        seen[i] = 0
    for j in range(bi[1]):
        seen[bi[HEAD + j]] = 1


@helper
def remembered(seen, x, known, keys, count):
    """The place among known states of one that the basis cannot tell from x, or −1; and the key of x."""
    key = 0
    for i in range(x.size):
        if seen[i]:
            key = key * 1_000_003 + x[i]  # overflow wraps around, which a key may
    for k in range(count):
        if keys[k] == key:
            i = 0
            while i < x.size and (not seen[i] or known[k, i] == x[i]):
                i += 1
            if i == x.size:
                return k, key
    return -1, key


@helper
def expected_value(bi, bf, weights, states, probabilities, count, pieces, seen, known, keys, notes, held):
    """Σ P(y) V(y) and Σ P(y) Σ_k |w_k Ψ_k(y)|; not a number where the law does not sum to 1.

    The first `held` rows of `known` are states whose values are in `notes`; new ones are added while there is room,
    since the outcomes of different actions are mostly the same. Their number comes back too.
    """
    total, size, mass = 0.0, 0.0, 0.0
    for n in range(count):
        k, key = remembered(seen, states[n], known, keys, held)
        if k >= 0:
            value, terms = notes[k, 0], notes[k, 1]
        else:
            piece_values(bi, bf, states[n], pieces)
            value, terms = weighted(bi, weights, pieces)
            if held < keys.size:
                copy(known[held], states[n])
                keys[held], notes[held, 0], notes[held, 1] = key, value, terms
                held += 1
        total += probabilities[n] * value
        size += probabilities[n] * terms
        mass += probabilities[n]
    if not abs(mass - 1.0) <= 1e-9:
        return np.nan, np.nan, held
    return total / mass, size / mass, held


def _best_of(loss: Kernel, forward: Kernel) -> Any:
    """The look-ahead around the functions of a model: leaves 1 at the best of the actions with out[a] > 0, else 0."""
    cost, law = loss.compiled, forward.compiled

    @njit(nogil=True, error_model="numpy")
    def best_of(ints, floats, x, out):
        outcomes, first = ints[0], 3 + ints[1]
        mi, bi = ints[3:first], ints[first:]
        gamma, weights, last = floats[0], floats[1 : 1 + bi[0]], 1 + bi[0] + ints[2]
        mf, bf = floats[1 + bi[0] : last], floats[last:]
        states, probabilities = np.empty((outcomes, x.size), np.int64), np.empty(outcomes, np.float64)
        pieces, seen = np.empty(bi[1], np.float64), np.empty(x.size, np.int64)
        known, keys = np.empty((MEMORY, x.size), np.int64), np.empty(MEMORY, np.int64)
        notes, held = np.empty((MEMORY, 2), np.float64), 0
        note_seen(bi, seen)
        least, action = np.inf, -1
        for a in range(out.size):
            if out[a] > 0.0:
                out[a] = 0.0
                count = law(mi, mf, x, a, states, probabilities)
                value, size, held = expected_value(
                    bi, bf, weights, states, probabilities, count, pieces, seen, known, keys, notes, held
                )
                q = cost(mi, mf, x, a) + gamma * value
                if q < least - (NOISE * (abs(q) + size) if action >= 0 else 0.0):
                    least, action = q, a
        if action >= 0:  # otherwise the row sums to 0, which the loops report
            out[action] = 1.0

    return best_of


@made_once
def greedy_rule(allowed: Kernel, loss: Kernel, forward: Kernel) -> Kernel:
    """The best of all allowed actions, whatever the basis and the weights.

    ints: outcomes at most, sizes of the model's two arrays, the model's ints, the basis's;
    floats: γ, the weights, the model's floats, the basis's.
    """
    may, best_of = allowed.compiled, _best_of(loss, forward)

    @user_kernel(ACT)
    def greedy(ints, floats, x, out):
        mi, last = ints[3 : 3 + ints[1]], 1 + ints[3 + ints[1]] + ints[2]
        mf = floats[last - ints[2] : last]
        for a in range(out.size):
            out[a] = 1.0 if may(mi, mf, x, a) else 0.0
        best_of(ints, floats, x, out)

    return greedy


@made_once
def greedy_within_rule(act: Kernel, loss: Kernel, forward: Kernel) -> Kernel:
    """The best of the actions that a policy takes with positive probability.

    ints: the sizes of the policy's two arrays, the policy's ints, those of `greedy_rule`;
    floats: the policy's, those of `greedy_rule`.
    """
    rule, best_of = act.compiled, _best_of(loss, forward)

    @user_kernel(ACT)
    def greedy_within(ints, floats, x, out):
        i, f = 2 + ints[0], ints[1]
        rule(ints[2:i], floats[:f], x, out)
        best_of(ints[i:], floats[f:], x, out)

    return greedy_within
