"""Sweeps over all states of a bounded box: Bellman operators without a table of transitions.

A sweep covers the states first, ..., last − 1 in the order of `Box.index`, so that threads can
share one. It reads the values V of all states, and with D = L V − V, or D = L_π V − V, where

    optimal   (L V)(x) = min_a [ ℓ(x,a) + γ Σ_x' P(x'|x,a) V(x') ]
    fixed     (L_π V)(x) = Σ_a π(a|x) [ ℓ(x,a) + γ Σ_x' P(x'|x,a) V(x') ]

it writes V + τ·D to `out` and the least and the greatest entry of D to `ends`. `chain_rows` writes
the rows of P_π, for methods that need the chain as a sparse matrix, `pair_rows` those of P.
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
    ROWS,
    function_type,
    helper,
    kernel,
)

_LOSS, _ALLOWED, _FORWARD, _ACT, _COUNTS = (
    function_type(t) for t in (LOSS, ALLOWED, FORWARD, ACT, COUNTS)
)


@helper
def first_state(lower, upper, index, x):
    for i in range(x.size - 1, -1, -1):
        width = upper[i] - lower[i] + 1
        x[i] = lower[i] + index % width
        index //= width


@helper
def next_state(lower, upper, x):
    for i in range(x.size - 1, -1, -1):
        if x[i] < upper[i]:
            x[i] += 1
            return
        x[i] = lower[i]


@helper
def number_of(x, lower, upper, strides):
    """The number of a state, or −1 if it lies outside the box."""
    index = np.int64(0)
    for i in range(lower.size):
        if x[i] < lower[i] or x[i] > upper[i]:
            return np.int64(-1)
        index += (x[i] - lower[i]) * strides[i]
    return index


# A law that leaves the box or does not sum to 1, or a loss that is not finite, makes a value that
# is not finite, and a sweep stops at such a state; sums within rounding of 1 are divided out.


@helper
def expected(states, probabilities, count, lower, upper, strides, values):
    total = 0.0
    mass = 0.0
    for k in range(count):
        index = number_of(states[k], lower, upper, strides)
        if index < 0:
            return np.nan
        total += probabilities[k] * values[index]
        mass += probabilities[k]
    if abs(mass - 1.0) <= 1e-9:
        return total / mass
    return np.nan


@helper
def note(ends, difference):
    ends[0] = min(ends[0], difference)
    ends[1] = max(ends[1], difference)


@kernel(
    INT(
        _ALLOWED,
        _LOSS,
        _FORWARD,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INTS,
        INT,
        INT,
        FLOAT,
        FLOAT,
        FLOATS,
        FLOATS,
        INTS,
        FLOATS,
        INT,
        INT,
    ),
    allocates=True,
)
def optimal(
    allowed,
    loss,
    forward,
    mi,
    mf,
    lower,
    upper,
    strides,
    actions,
    outcomes,
    gamma,
    damping,
    values,
    out,
    best,
    ends,
    first,
    last,
):
    """Sweep with L; minimising actions go to `best` unless it is empty.

    -1, or the number of a state with no action.
    """
    x = np.empty(lower.size, np.int64)
    states = np.empty((outcomes, lower.size), np.int64)
    probabilities = np.empty(outcomes, np.float64)
    first_state(lower, upper, first, x)
    for index in range(first, last):
        least = np.inf
        action = np.int64(-1)
        for a in range(actions):
            if allowed(mi, mf, x, a):
                count = forward(mi, mf, x, a, states, probabilities)
                q = loss(mi, mf, x, a) + gamma * expected(
                    states, probabilities, count, lower, upper, strides, values
                )
                if not np.isfinite(q):
                    return index
                if q < least:
                    least = q
                    action = a
        if action < 0:
            return index
        difference = least - values[index]
        out[index] = values[index] + damping * difference
        note(ends, difference)
        if best.size > 0:
            best[index] = action
        next_state(lower, upper, x)
    return np.int64(-1)


@helper
def expected_new(states, probabilities, count, lower, upper, strides, values, out, first, index):
    """As `expected`, with the new values of the states first, ..., index − 1."""
    total = 0.0
    mass = 0.0
    for k in range(count):
        target = number_of(states[k], lower, upper, strides)
        if target < 0:
            return np.nan
        total += probabilities[k] * (out[target] if first <= target < index else values[target])
        mass += probabilities[k]
    if abs(mass - 1.0) <= 1e-9:
        return total / mass
    return np.nan


@kernel(
    INT(
        _ALLOWED,
        _LOSS,
        _FORWARD,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INTS,
        INT,
        INT,
        FLOAT,
        FLOATS,
        FLOATS,
        FLOATS,
        INT,
        INT,
    ),
    allocates=True,
)
def gauss_seidel(
    allowed,
    loss,
    forward,
    mi,
    mf,
    lower,
    upper,
    strides,
    actions,
    outcomes,
    gamma,
    values,
    out,
    ends,
    first,
    last,
):
    """Sweep with L where each state sees the new values of those before it, from `first` on.

    Otherwise as `optimal`.
    """
    x = np.empty(lower.size, np.int64)
    states = np.empty((outcomes, lower.size), np.int64)
    probabilities = np.empty(outcomes, np.float64)
    first_state(lower, upper, first, x)
    for index in range(first, last):
        least = np.inf
        for a in range(actions):
            if allowed(mi, mf, x, a):
                count = forward(mi, mf, x, a, states, probabilities)
                value = expected_new(
                    states, probabilities, count, lower, upper, strides, values, out, first, index
                )
                q = loss(mi, mf, x, a) + gamma * value
                if not np.isfinite(q):
                    return index
                least = min(least, q)
        if least == np.inf:
            return index
        out[index] = least
        note(ends, least - values[index])
        next_state(lower, upper, x)
    return np.int64(-1)


@kernel(
    INT(
        _ACT,
        _ALLOWED,
        _LOSS,
        _FORWARD,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INTS,
        INT,
        INT,
        FLOAT,
        FLOAT,
        FLOATS,
        FLOATS,
        FLOATS,
        INT,
        INT,
    ),
    allocates=True,
)
def fixed(
    act,
    allowed,
    loss,
    forward,
    mi,
    mf,
    pi,
    pf,
    lower,
    upper,
    strides,
    actions,
    outcomes,
    gamma,
    damping,
    values,
    out,
    ends,
    first,
    last,
):
    """Sweep with L_π; -1, or the number of a state where π is no distribution."""
    x = np.empty(lower.size, np.int64)
    states = np.empty((outcomes, lower.size), np.int64)
    probabilities = np.empty(outcomes, np.float64)
    row = np.empty(actions, np.float64)
    first_state(lower, upper, first, x)
    for index in range(first, last):
        act(pi, pf, x, row)
        total = 0.0
        mass = 0.0
        for a in range(actions):
            if not row[a] >= 0.0 or (row[a] > 0.0 and not allowed(mi, mf, x, a)):
                return index
            mass += row[a]
            if row[a] > 0.0:
                count = forward(mi, mf, x, a, states, probabilities)
                q = loss(mi, mf, x, a) + gamma * expected(
                    states, probabilities, count, lower, upper, strides, values
                )
                total += row[a] * q
        if abs(mass - 1.0) > 1e-9 or not np.isfinite(total):
            return index
        difference = total / mass - values[index]
        out[index] = values[index] + damping * difference
        note(ends, difference)
        next_state(lower, upper, x)
    return np.int64(-1)


@kernel(
    INT(
        _ACT,
        _ALLOWED,
        _LOSS,
        _FORWARD,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INTS,
        INT,
        INT,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INT,
        INT,
    ),
    allocates=True,
)
def chain_rows(
    act,
    allowed,
    loss,
    forward,
    mi,
    mf,
    pi,
    pf,
    lower,
    upper,
    strides,
    actions,
    outcomes,
    columns,
    entries,
    ends,
    losses,
    first,
    last,
):
    """Write the rows first, ..., last − 1 of P_π, one after the other, and their losses.

    -1, or a state at fault.
    """
    x = np.empty(lower.size, np.int64)
    states = np.empty((outcomes, lower.size), np.int64)
    probabilities = np.empty(outcomes, np.float64)
    row = np.empty(actions, np.float64)
    first_state(lower, upper, first, x)
    filled = 0
    for index in range(first, last):
        act(pi, pf, x, row)
        total = 0.0
        mass = 0.0
        start = filled
        for a in range(actions):
            if not row[a] >= 0.0 or (row[a] > 0.0 and not allowed(mi, mf, x, a)):
                return index
            if row[a] > 0.0:
                total += row[a] * loss(mi, mf, x, a)
                count = forward(mi, mf, x, a, states, probabilities)
                sum_of_law = 0.0
                for k in range(count):
                    columns[filled] = number_of(states[k], lower, upper, strides)
                    if columns[filled] < 0:
                        return index
                    entries[filled] = row[a] * probabilities[k]
                    sum_of_law += probabilities[k]
                    filled += 1
                if abs(sum_of_law - 1.0) > 1e-9:
                    return index
                mass += row[a]
        if abs(mass - 1.0) > 1e-9 or not np.isfinite(total):
            return index
        whole = 0.0
        for k in range(start, filled):
            whole += entries[k]
        for k in range(start, filled):
            entries[k] /= whole
        losses[index - first] = total / mass
        ends[index - first] = filled
        next_state(lower, upper, x)
    return np.int64(-1)


@kernel(
    INT(
        _ALLOWED,
        _LOSS,
        _FORWARD,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INTS,
        INT,
        INT,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INTS,
        FLOATS,
        INT,
        INT,
    ),
    allocates=True,
)
def pair_rows(
    allowed,
    loss,
    forward,
    mi,
    mf,
    lower,
    upper,
    strides,
    actions,
    outcomes,
    columns,
    entries,
    ends,
    states_of,
    actions_of,
    losses,
    first,
    last,
):
    """Write the rows of P of the pairs of the states first, ..., last − 1.

    Their number, or −1 − a state at fault.
    """
    x = np.empty(lower.size, np.int64)
    states = np.empty((outcomes, lower.size), np.int64)
    probabilities = np.empty(outcomes, np.float64)
    first_state(lower, upper, first, x)
    pairs = 0
    filled = 0
    for index in range(first, last):
        for a in range(actions):
            if not allowed(mi, mf, x, a):
                continue
            count = forward(mi, mf, x, a, states, probabilities)
            mass = 0.0
            for k in range(count):
                columns[filled + k] = number_of(states[k], lower, upper, strides)
                mass += probabilities[k]
                if columns[filled + k] < 0:
                    return -1 - index
            losses[pairs] = loss(mi, mf, x, a)
            if abs(mass - 1.0) > 1e-9 or not np.isfinite(losses[pairs]):
                return -1 - index
            for k in range(count):
                entries[filled + k] = probabilities[k] / mass
            filled += count
            states_of[pairs] = index
            actions_of[pairs] = a
            ends[pairs] = filled
            pairs += 1
        if pairs == 0 or states_of[pairs - 1] != index:
            return -1 - index
        next_state(lower, upper, x)
    return pairs


@helper
def sums_of(loss, counts, mi, mf, x, a, out):
    """What a simulation would add up in one step from (x, a), in expectation: step, loss,
    coordinates, counters.
    """
    n = x.size
    out[0] = 1.0
    out[1] = loss(mi, mf, x, a)
    for i in range(n):
        out[2 + i] = x[i]
    if out.size > 2 + n:
        counts(mi, mf, x, a, out[2 + n :])


@kernel(types.void(_LOSS, _COUNTS, INTS, FLOATS, INTS, INTS, INTS, INTS, ROWS), allocates=True)
def pair_sums(loss, counts, mi, mf, lower, upper, states_of, actions_of, out):
    """`sums_of` each pair, in a row of its own."""
    x = np.empty(lower.size, np.int64)
    for p in range(states_of.size):
        first_state(lower, upper, states_of[p], x)
        sums_of(loss, counts, mi, mf, x, actions_of[p], out[p])


@kernel(
    types.void(
        _ACT, _LOSS, _COUNTS, INTS, FLOATS, INTS, FLOATS, INTS, INTS, INT, INTS, FLOATS, FLOATS
    ),
    allocates=True,
)
def policy_sums(act, loss, counts, mi, mf, pi, pf, lower, upper, actions, states_of, weights, out):
    """Σ weight(x)·π(a|x)·`sums_of` (x, a)."""
    x = np.empty(lower.size, np.int64)
    row = np.empty(actions, np.float64)
    sums = np.zeros(out.size, np.float64)
    for k in range(states_of.size):
        first_state(lower, upper, states_of[k], x)
        act(pi, pf, x, row)
        for a in range(actions):
            if row[a] > 0.0:
                sums_of(loss, counts, mi, mf, x, a, sums)
                for i in range(out.size):
                    out[i] += weights[k] * row[a] * sums[i]


@kernel(types.void(_ACT, INTS, FLOATS, INTS, INTS, INTS, ROWS), allocates=True)
def policy_rows(act, pi, pf, lower, upper, states_of, out):
    """π(·|x) of each state, in a row of its own."""
    x = np.empty(lower.size, np.int64)
    for k in range(states_of.size):
        first_state(lower, upper, states_of[k], x)
        act(pi, pf, x, out[k])


@kernel(types.void(_ALLOWED, _LOSS, INTS, FLOATS, INTS, INTS, ROWS), allocates=True)
def all_losses(allowed, loss, mi, mf, lower, upper, out):
    """ℓ(x, a) of all states, one a row; not a number where the action is not allowed."""
    x = np.empty(lower.size, np.int64)
    first_state(lower, upper, np.int64(0), x)
    for k in range(out.shape[0]):
        for a in range(out.shape[1]):
            if allowed(mi, mf, x, a):
                out[k, a] = loss(mi, mf, x, a)
            else:
                out[k, a] = np.nan
        next_state(lower, upper, x)


@kernel(COUNTS)
def no_counts(mi, mf, x, a, out):
    return
