"""The loop of coupled copies: several trajectories of one model under one policy, driven by the same random numbers."""

from __future__ import annotations

import numpy as np

from dualplan._kernels.compiler import (
    FLOAT,
    FLOATS,
    FORWARD,
    INT,
    INTS,
    RNG,
    ROWS,
    STATES,
    copy,
    function_type,
    helper,
    kernel,
)
from dualplan._kernels.simulate import FINE, FUNCTIONS, one_step
from dualplan._kernels.values import MEMORY, expected_value, note_seen, piece_values, remembered, weighted


@kernel(FORWARD)
def no_forward(ints, floats, x, a, states, probabilities):
    """Stands for the law of a model that has none, where there is no control variate."""
    return 0


@helper
def _same(x, y):
    i = 0
    while i < x.size and x[i] == y[i]:
        i += 1
    return i == x.size


@helper
def _begin(states, x, live):
    """Put the copies at their starts; list those that differ from the first one, and count them."""
    count = 0
    for j in range(states.shape[0]):
        copy(x[j], states[j])
        if j > 0 and not _same(x[j], x[0]):
            live[count] = j
            count += 1
    return count


@helper
def _drift(forward, mi, mf, bi, bf, weights, x, a, gamma, after, chances, pieces, seen, known, keys, notes):
    """γ Σ_y P(y|x,a) g(y) − g(x) for g = Ψw; 0 if there is no basis."""
    if bi.size == 0:
        return 0.0
    count = forward(mi, mf, x, a, after, chances)
    piece_values(bi, bf, x, pieces)
    notes[0, 0], notes[0, 1] = weighted(bi, weights, pieces)
    copy(known[0], x)  # mostly an outcome itself
    keys[0] = remembered(seen, x, known, keys, 0)[1]
    ahead = expected_value(bi, bf, weights, after, chances, count, pieces, seen, known, keys, notes, 1)[0]
    return gamma * ahead - notes[0, 0]


@kernel(INT(*FUNCTIONS, INTS, FLOATS, INTS, FLOATS, INTS, INTS, INT, function_type(FORWARD), INT, INTS, FLOATS, FLOATS,
            INTS, STATES, INT, RNG, FLOAT, INT, ROWS, FLOATS, INTS, INTS), allocates=True)  # fmt: skip
def coupled(
    step, allowed, act, mi, mf, pi, pf, lower, upper, actions, forward, outcomes, bi, bf, weights, places, states,
    first, rng, gamma, horizon, totals, met, steps, where,
):  # fmt: skip
    """Σ_t γ^t (r of a copy − r of the first of its group), until the two meet; a column for each repetition.

    r(x, a) = ℓ(x, a) + γ E[g(x')] − g(x), for g = Ψw or 0. Group g is the rows places[g], ..., places[g + 1] − 1 of
    `states`; repetition k of it is the replica of number (first + g)·repetitions + k. `met` counts for each copy the
    repetitions in which it met the first one.
    """
    dim, repetitions, widest = lower.size, totals.shape[1], 0
    for g in range(places.size - 1):
        widest = max(widest, places[g + 1] - places[g])
    x, live = np.empty((widest, dim), np.int64), np.empty(widest, np.int64)
    probabilities, out, nothing = np.empty(actions, np.float64), np.empty(dim, np.int64), np.empty(0, np.float64)
    after, chances = np.empty((outcomes, dim), np.int64), np.empty(outcomes, np.float64)
    pieces, seen = np.empty(bi[1] if bi.size > 0 else 0, np.float64), np.empty(dim, np.int64)
    known, keys = np.empty((MEMORY, dim), np.int64), np.empty(MEMORY, np.int64)
    notes = np.empty((MEMORY, 2), np.float64)
    if bi.size > 0:
        note_seen(bi, seen)
    for g in range(places.size - 1):
        low, high = places[g], places[g + 1]
        for k in range(repetitions):
            rng[4] = np.uint64((first + g) * repetitions + k)
            for j in range(low, high):
                totals[j, k] = 0.0
                met[j] += 1.0
            count = _begin(states[low:high], x, live)
            t, factor = 0, 1.0
            while count > 0 and t < horizon:
                base, fault = one_step(
                    step, allowed, act, mi, mf, pi, pf, lower, upper, x[0], rng, t, probabilities, out, nothing, where
                )
                if fault != FINE:
                    return fault
                base += _drift(forward, mi, mf, bi, bf, weights, x[0], where[dim], gamma, after, chances, pieces,
                               seen, known, keys, notes)  # fmt: skip
                copy(x[0], out)
                steps[0] += 1 + count
                i = 0
                while i < count:
                    j = live[i]
                    loss, fault = one_step(
                        step, allowed, act, mi, mf, pi, pf, lower, upper, x[j], rng, t, probabilities, out, nothing,
                        where,
                    )  # fmt: skip
                    if fault != FINE:
                        return fault
                    loss += _drift(forward, mi, mf, bi, bf, weights, x[j], where[dim], gamma, after, chances, pieces,
                                   seen, known, keys, notes)  # fmt: skip
                    totals[low + j, k] += factor * (loss - base)
                    copy(x[j], out)
                    if _same(x[j], x[0]):  # from here on they stay together
                        count -= 1
                        live[i] = live[count]
                    else:
                        i += 1
                factor *= gamma
                t += 1
            for i in range(count):
                met[low + live[i]] -= 1.0
    return FINE
