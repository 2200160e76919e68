"""Rows of the constraints u >= 0 and of the flow, drawn from sampling distributions or for all states.

A pair (x, a) gives the row Φ_(x,a). A state y gives the row of the flow residual,

    F_y = s_B·Σ_a Φ_(y,a) + s_P·Σ_(x,a) P(y|x,a)·Φ_(x,a),

with (s_B, s_P) = (−1, 1) for the average and (1, −γ) for the discounted criterion. With φ̄ the mean of
the features low, ..., high − 1, the sampling distributions are q1 = φ̄ and the mixture of α (weight `from_start`), Bᵀφ̄
and Pᵀφ̄ in the ratio 1 : |s_P|. Their values come with the rows: φ̄(x,a) is the sum of a row's entries over their number.

Sample k depends on (seed, stream, k) alone. Rows have `width` places each; what a row does not use stays unused.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    ALLOWED,
    COUNTS,
    DRAW,
    FLOAT,
    FLOATS,
    FORWARD,
    INT,
    INTS,
    LOSS,
    PREDECESSORS,
    RNG,
    ROW,
    ROWS,
    STATES,
    STEP,
    function_type,
    helper,
    kernel,
)
from dualplan._kernels.features import feature_count
from dualplan._kernels.philox import seek, uniform
from dualplan._kernels.sweep import first_state, next_state, sums_of

_ALLOWED, _STEP, _PREDECESSORS, _ROW, _DRAW = (function_type(t) for t in (ALLOWED, STEP, PREDECESSORS, ROW, DRAW))


@helper
def one_of(rng, low, high):
    return min(low + np.int64(uniform(rng) * (high - low)), high - 1)


@helper
def total(indices, values, count, low, high):
    """The sum of a row over the features low, ..., high − 1."""
    result = 0.0
    for k in range(count):
        if low <= indices[k] < high:
            result += values[k]
    return result


@kernel(types.void(_DRAW, INTS, FLOATS, INT, RNG, STATES, INTS))
def draw_feature(draw, fi, ff, j, rng, states, actions):
    for k in range(actions.size):
        seek(rng, k)
        actions[k] = draw(fi, ff, j, rng, states[k])


@kernel(types.void(function_type(LOSS), INTS, FLOATS, STATES, INTS, FLOATS))
def losses_at(loss, mi, mf, states, actions, out):
    for k in range(actions.size):
        out[k] = loss(mi, mf, states[k], actions[k])


@kernel(types.void(_ALLOWED, INTS, FLOATS, STATES, STATES))
def allowed_at(allowed, mi, mf, states, out):
    """Whether each action is allowed, 0 or 1, a row for each of the given states."""
    for k in range(out.shape[0]):
        for a in range(out.shape[1]):
            out[k, a] = allowed(mi, mf, states[k], a)


@kernel(types.void(function_type(LOSS), function_type(COUNTS), INTS, FLOATS, STATES, INTS, ROWS))
def sums_at(loss, counts, mi, mf, states, actions, out):
    """What a step from each of the given pairs adds to the model's columns, in expectation."""
    for k in range(actions.size):
        sums_of(loss, counts, mi, mf, states[k], actions[k], out[k])


@kernel(types.void(function_type(FORWARD), INTS, FLOATS, STATES, INTS, STATES, ROWS, INTS))
def laws_at(forward, mi, mf, states, actions, after, chances, counts):
    """The next states and their probabilities from given pairs; each has as many places as `chances` has columns."""
    most = chances.shape[1]
    for k in range(actions.size):
        counts[k] = forward(mi, mf, states[k], actions[k], after[k * most : (k + 1) * most], chances[k])


@kernel(types.void(RNG, INT, FLOATS))
def uniforms(rng, first, out):
    """The first number of each of the samples first, first + 1, ..."""
    for k in range(out.size):
        seek(rng, first + k)
        out[k] = uniform(rng)


@kernel(INT(_ALLOWED, _ROW, _DRAW, INTS, FLOATS, INTS, FLOATS, INT, INT, RNG, STATES, INTS, STATES, ROWS, INTS, FLOATS,
            INT, INT))  # fmt: skip
def draw_pairs(
    allowed, row, draw, mi, mf, fi, ff, low, high, rng, states, actions, indices, values, counts, densities, first, last
):
    """Draw the samples first, ..., last − 1 from q1: pairs, their rows and q1; −1, or a sample at fault.

    At fault is a sample at an action that is not allowed, or without a density.
    """
    for k in range(first, last):
        r = k - first
        seek(rng, k)
        actions[r] = draw(fi, ff, one_of(rng, low, high), rng, states[r])
        counts[r] = row(fi, ff, states[r], actions[r], indices[r], values[r])
        densities[r] = total(indices[r], values[r], counts[r], low, high) / (high - low)
        if not densities[r] > 0.0 or not allowed(mi, mf, states[r], actions[r]):
            return k
    return np.int64(-1)


@helper
def add_row(row, fi, ff, low, high, x, a, weight, indices, values, sums, touched, number):
    """sums += weight·Φ_(x,a); the features touched first are noted. The number noted, and the row's sum."""
    count = row(fi, ff, x, a, indices, values)
    for k in range(count):
        j = indices[k]
        if sums[j] == 0.0:
            touched[number] = j
            number += 1
        sums[j] += weight * values[k]
        if sums[j] == 0.0:  # a cancellation must not be noted twice
            sums[j] = 1e-300
    return number, total(indices, values, count, low, high)


@helper
def flow_row(
    allowed, predecessors, row, mi, mf, fi, ff, low, high, actions, y, on_b, on_p, before, acted, chances, indices,
    values, sums, touched, out_indices, out_values,
):  # fmt: skip
    """Write F_y; its length (−1: too many predecessors), Σ_j (Bᵀφ_j)(y) and Σ_j (Pᵀφ_j)(y) over low <= j < high."""
    number, here, there = 0, 0.0, 0.0
    for a in range(actions):
        if allowed(mi, mf, y, a):
            number, mass = add_row(row, fi, ff, low, high, y, a, on_b, indices, values, sums, touched, number)
            here += mass
    count = predecessors(mi, mf, y, before, acted, chances)
    if count < 0:
        return np.int64(-1), here, there
    for k in range(count):
        number, mass = add_row(
            row, fi, ff, low, high, before[k], acted[k], on_p * chances[k], indices, values, sums, touched, number
        )
        there += chances[k] * mass
    for k in range(number):
        j = touched[k]
        out_indices[k] = j
        out_values[k] = sums[j]
        sums[j] = 0.0
    return np.int64(number), here, there


@helper
def start_mass(starts, alpha, y):
    """α(y)."""
    mass = 0.0
    for s in range(alpha.size):
        same = True
        for i in range(y.size):
            if starts[s, i] != y[i]:
                same = False
        if same:
            mass += alpha[s]
    return mass


@helper
def draw_state(allowed, step, draw, mi, mf, fi, ff, low, high, starts, alpha, from_start, stay, rng, x, counts, y):
    """Write a state drawn from the mixture of α, Bᵀφ̄ and Pᵀφ̄ to y; whether the action drawn for it is allowed."""
    if uniform(rng) < from_start:
        u, s = uniform(rng), 0
        while s < alpha.size - 1 and u >= alpha[s]:
            u -= alpha[s]
            s += 1
        for i in range(y.size):
            y[i] = starts[s, i]
        return True
    a = draw(fi, ff, one_of(rng, low, high), rng, x)
    if uniform(rng) < stay or not allowed(mi, mf, x, a):
        for i in range(y.size):
            y[i] = x[i]
        return allowed(mi, mf, x, a)
    step(mi, mf, x, a, rng, y, counts)
    return True


@kernel(INT(_ALLOWED, _STEP, _PREDECESSORS, _ROW, _DRAW, INTS, FLOATS, INTS, FLOATS, INT, INT, INT, INT, INT, FLOAT,
            FLOAT, FLOAT, STATES, FLOATS, RNG, STATES, STATES, ROWS, INTS, FLOATS, FLOATS, INT, INT),
        allocates=True)  # fmt: skip
def draw_flows(
    allowed, step, predecessors, row, draw, mi, mf, fi, ff, low, high, actions, most, widest, on_b, on_p, from_start,
    starts, alpha, rng, states, indices, values, counts, masses, densities, first, last,
):  # fmt: skip
    """Draw the samples first, ..., last − 1 from q2 or q4: states, rows, α and density; −1, or a sample at fault."""
    d, dim = feature_count(fi), states.shape[1]
    before, acted, chances = np.empty((most, dim), np.int64), np.empty(most, np.int64), np.empty(most, np.float64)
    row_indices, row_values = np.empty(widest, np.int64), np.empty(widest, np.float64)
    sums, touched, x = np.zeros(d, np.float64), np.empty(d, np.int64), np.empty(dim, np.int64)
    nothing = np.empty(0, np.float64)
    stay = 1.0 / (1.0 + abs(on_p))
    for k in range(first, last):
        r = k - first
        seek(rng, k)
        good = draw_state(
            allowed, step, draw, mi, mf, fi, ff, low, high, starts, alpha, from_start, stay, rng, x, nothing, states[r]
        )
        counts[r], here, there = flow_row(
            allowed, predecessors, row, mi, mf, fi, ff, low, high, actions, states[r], on_b, on_p, before, acted,
            chances, row_indices, row_values, sums, touched, indices[r], values[r],
        )  # fmt: skip
        masses[r] = start_mass(starts, alpha, states[r])
        densities[r] = from_start * masses[r] + (1 - from_start) * stay * (here + abs(on_p) * there) / (high - low)
        if not good or counts[r] < 0 or not densities[r] > 0.0:
            return k
    return np.int64(-1)


@kernel(INT(_ALLOWED, _PREDECESSORS, _ROW, INTS, FLOATS, INTS, FLOATS, INTS, INTS, INT, INT, INT, FLOAT, FLOAT, STATES,
            FLOATS, INTS, FLOATS, INTS, INTS, FLOATS, INTS, FLOATS, INT, INT), allocates=True)  # fmt: skip
def all_rows(
    allowed, predecessors, row, mi, mf, fi, ff, lower, upper, actions, most, widest, on_b, on_p, starts, alpha,
    pair_indices, pair_values, pair_ends, flow_indices, flow_values, flow_ends, masses, first, last,
):  # fmt: skip
    """Write the rows of all pairs and of the flow of the states first, ..., last − 1; −1, or a state at fault."""
    d, dim = feature_count(fi), lower.size
    before, acted, chances = np.empty((most, dim), np.int64), np.empty(most, np.int64), np.empty(most, np.float64)
    row_indices, row_values = np.empty(widest, np.int64), np.empty(widest, np.float64)
    sums, touched, x = np.zeros(d, np.float64), np.empty(d, np.int64), np.empty(dim, np.int64)
    pair_end, flow_end = np.int64(0), np.int64(0)
    first_state(lower, upper, first, x)
    for index in range(first, last):
        r = index - first
        for a in range(actions):
            if allowed(mi, mf, x, a):
                pair_end += row(fi, ff, x, a, pair_indices[pair_end:], pair_values[pair_end:])
            pair_ends[r * actions + a] = pair_end
        count, _, _ = flow_row(
            allowed, predecessors, row, mi, mf, fi, ff, np.int64(0), d, actions, x, on_b, on_p, before, acted, chances,
            row_indices, row_values, sums, touched, flow_indices[flow_end:], flow_values[flow_end:],
        )  # fmt: skip
        if count < 0:
            return index
        flow_end += count
        flow_ends[r] = flow_end
        masses[r] = start_mass(starts, alpha, x)
        next_state(lower, upper, x)
    return np.int64(-1)
