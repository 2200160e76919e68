"""Rows of the constraints u >= 0 and of the flow, drawn from sampling distributions or for all
states.

A pair (x, a) gives the row Φ_(x,a). A state y gives the row of the flow residual,

    F_y = s_B·Σ_a Φ_(y,a) + s_P·Σ_(x,a) P(y|x,a)·Φ_(x,a),

with (s_B, s_P) = (−1, 1) for the average and (1, −γ) for the discounted criterion. With φ̄ the mean
of the features low, ..., high − 1, the sampling distributions are q1 = φ̄ and the mixture of α
(weight `from_start`), Bᵀφ̄ and Pᵀφ̄ in the ratio 1 : |s_P|. Their values come with the rows:
φ̄(x,a) is the sum of a row's entries over their number.

The features are looked up once at y; at its predecessors, which differ from y in a few coordinates,
only what these change is looked up (`features.py`). A row and its density come in one unit e^m,
which is 1 unless densities are so small that they would underflow: only their ratio means anything.
The largest entry that was seen of a row lies between TINY and HUGE in its unit: m goes down for the
first entries, if they are smaller, and up whenever there are larger ones, with what was summed
before. What then underflows is below 1e-150 of the row.

Sample k depends on (seed, stream, k) alone. Rows have `width` places each; what a row does not use
stays unused.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    ALLOWED,
    ANCHOR,
    CHANGES,
    DRAW,
    FLOAT,
    FLOATS,
    FORWARD,
    INT,
    INTS,
    LOSS,
    NEAR,
    PREDECESSORS,
    RNG,
    ROWS,
    STATES,
    STEP,
    copy,
    function_type,
    helper,
    kernel,
)
from dualplan._kernels.features import feature_count, rescale
from dualplan._kernels.layouts import BOUNDS, TALLIES
from dualplan._kernels.philox import seek, uniform
from dualplan._kernels.sweep import first_state, next_state, sums_of

_ALLOWED, _STEP, _PREDECESSORS, _CHANGES = (
    function_type(t) for t in (ALLOWED, STEP, PREDECESSORS, CHANGES)
)
_ANCHOR, _NEAR, _DRAW = (function_type(t) for t in (ANCHOR, NEAR, DRAW))
# room to work: states (4 rows), whole predecessors, coordinates and values that change, their
# numbers, actions and probabilities, a row's indices and values, sums over the features, features
# touched, and what the features need
_ROOM = (STATES, STATES, STATES, STATES, INTS, INTS, FLOATS, INTS, FLOATS, FLOATS, INTS, FLOATS)

# of a row's largest entry, in its unit
TINY = 1e-150
HUGE = 1e150
# by which a unit's logarithm moves; less than from TINY to HUGE, so that it cannot miss
SHIFT = 600.0
LEAST = -1e6  # logarithm of the smallest unit
NOTED = 1e-300  # a sum that is 0 all the same, but whose feature is noted


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


@helper
def largest(values, count):
    result = 0.0
    for k in range(count):
        result = max(result, values[k])
    return result


@helper
def fitting_near(near, fi, ff, y, x, coords, changed, m, seen, a, indices, values, work):
    """`near` with a unit in which its largest value fits, if none was `seen` before: its count, m,
    the largest.
    """
    count = near(fi, ff, y, x, coords, changed, m, a, indices, values, work)
    top = largest(values, count)
    while top > HUGE and m < 0.0:
        m = min(m + SHIFT, 0.0)
        count = near(fi, ff, y, x, coords, changed, m, a, indices, values, work)
        top = largest(values, count)
    while count > 0 and seen == 0.0 and top < TINY and m > LEAST:
        m -= SHIFT
        count = near(fi, ff, y, x, coords, changed, m, a, indices, values, work)
        top = largest(values, count)
    return count, m, top


@kernel(types.void(_DRAW, INTS, FLOATS, INT, RNG, INT, STATES, INTS, FLOATS))
def draw_feature(draw, fi, ff, j, rng, first, states, actions, work):
    """The draws first, first + 1, ... of a feature."""
    for k in range(actions.size):
        seek(rng, first + k)
        actions[k] = draw(fi, ff, j, rng, states[k], work)


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


@kernel(types.void(TALLIES, STATES, INTS, ROWS))
def sums_at(tallies, states, actions, out):
    """What a step from each of the given pairs adds to the model's columns, in expectation."""
    for k in range(actions.size):
        sums_of(tallies, states[k], actions[k], out[k])


@kernel(types.void(function_type(FORWARD), INTS, FLOATS, STATES, INTS, STATES, ROWS, INTS))
def laws_at(forward, mi, mf, states, actions, after, chances, counts):
    """The next states and their probabilities from given pairs.

    Each has as many places as `chances` has columns.
    """
    most = chances.shape[1]
    for k in range(actions.size):
        counts[k] = forward(
            mi, mf, states[k], actions[k], after[k * most : (k + 1) * most], chances[k]
        )


@kernel(types.void(RNG, INT, FLOATS))
def uniforms(rng, first, out):
    """The first number of each of the samples first, first + 1, ..."""
    for k in range(out.size):
        seek(rng, first + k)
        out[k] = uniform(rng)


@kernel(
    INT(
        _ALLOWED,
        _ANCHOR,
        _NEAR,
        _DRAW,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INT,
        INT,
        RNG,
        STATES,
        INTS,
        STATES,
        ROWS,
        INTS,
        FLOATS,
        FLOATS,
        INT,
        INT,
    )
)
def draw_pairs(
    allowed,
    anchor,
    near,
    draw,
    mi,
    mf,
    fi,
    ff,
    low,
    high,
    rng,
    states,
    actions,
    indices,
    values,
    counts,
    densities,
    work,
    first,
    last,
):
    """Draw the samples first, ..., last − 1 from q1: pairs, their rows and q1; −1, or a sample at
    fault.

    At fault is a sample at an action that is not allowed, or without a density.
    """
    for k in range(first, last):
        r = k - first
        x = states[r]
        seek(rng, k)
        actions[r] = draw(fi, ff, one_of(rng, low, high), rng, x, work)
        m = anchor(fi, ff, x, work)
        counts[r], _, _ = fitting_near(
            near, fi, ff, x, x, counts, 0, m, 0.0, actions[r], indices[r], values[r], work
        )
        densities[r] = total(indices[r], values[r], counts[r], low, high) / (high - low)
        if not 0.0 < densities[r] < np.inf or not allowed(mi, mf, x, actions[r]):
            return k
    return np.int64(-1)


@helper
def add_row(indices, values, count, low, high, weight, sums, touched, number):
    """sums += weight·Φ_(x,a); the features touched first are noted.

    The number noted, and the row's sum.
    """
    for k in range(count):
        j = indices[k]
        if values[k] == 0.0:  # beside what was seen
            continue
        if sums[j] == 0.0:
            touched[number] = j
            number += 1
        sums[j] += weight * values[k]
        if sums[j] == 0.0:  # a cancellation must not be noted twice
            sums[j] = NOTED
    return number, total(indices, values, count, low, high)


@helper
def change_unit(sums, touched, number, exponent):
    """sums·e^exponent; the factor."""
    factor = np.exp(exponent)
    for k in range(number):
        j = touched[k]
        sums[j] *= factor
        if sums[j] == 0.0:
            sums[j] = NOTED
    return factor


@helper
def differences(y, x, coords):
    """Write the coordinates in which x differs from y; their number."""
    changed = 0
    for i in range(y.size):
        if x[i] != y[i]:
            coords[changed] = i
            changed += 1
    return changed


@helper
def patch(x, source, coords, changed):
    """Write the first values of `source` to the coordinates."""
    for i in range(changed):
        x[coords[i]] = source[i]


@helper
def restore(x, y, coords, changed):
    for i in range(changed):
        x[coords[i]] = y[coords[i]]


@helper
def flow_row(
    allowed,
    predecessors,
    changes,
    anchor,
    near,
    mi,
    mf,
    fi,
    ff,
    low,
    high,
    actions,
    local,
    y,
    on_b,
    on_p,
    room,
    before,
    coords,
    news,
    sizes,
    acted,
    chances,
    indices,
    values,
    sums,
    touched,
    work,
    out_indices,
    out_values,
):
    """Write F_y; its length (−1: too many predecessors), Σ_j (Bᵀφ_j)(y) and Σ_j (Pᵀφ_j)(y) over low
    <= j < high.

    All in units of e^m, which is returned last.
    """
    number = 0
    here = 0.0
    there = 0.0
    changed = 0
    seen = 0.0
    m = anchor(fi, ff, y, work)
    for a in range(actions):
        if allowed(mi, mf, y, a):
            count, unit, top = fitting_near(
                near, fi, ff, y, y, sizes, changed, m, seen, a, indices, values, work
            )
            if unit != m:
                here *= change_unit(sums, touched, number, m - unit)
                m = unit
            seen = max(seen, top)
            changed = -1
            number, mass = add_row(indices, values, count, low, high, on_b, sums, touched, number)
            here += mass
    x = room[1]
    spare = room[2]
    copy(x, y)
    if local:
        copy(spare, y)
        listed = changes(mi, mf, y, coords, news, sizes, acted, chances, x, spare)
    else:
        listed = predecessors(mi, mf, y, before, acted, chances)
    if listed < 0:
        return np.int64(-1), here, there, m
    for k in range(listed):
        if local:
            patch(x, news[k], coords[k], sizes[k])
            count, unit, top = fitting_near(
                near, fi, ff, y, x, coords[k], sizes[k], m, seen, acted[k], indices, values, work
            )
            restore(x, y, coords[k], sizes[k])
        else:
            changed = differences(y, before[k], room[3])
            count, unit, top = fitting_near(
                near,
                fi,
                ff,
                y,
                before[k],
                room[3],
                changed,
                m,
                seen,
                acted[k],
                indices,
                values,
                work,
            )
        if unit != m:
            factor = change_unit(sums, touched, number, m - unit)
            here = here * factor
            there = there * factor
            m = unit
        seen = max(seen, top)
        number, mass = add_row(
            indices, values, count, low, high, on_p * chances[k], sums, touched, number
        )
        there += chances[k] * mass
    for k in range(number):
        j = touched[k]
        out_indices[k] = j
        out_values[k] = sums[j]
        sums[j] = 0.0
    return np.int64(number), here, there, m


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
def draw_state(
    allowed,
    step,
    draw,
    mi,
    mf,
    fi,
    ff,
    low,
    high,
    starts,
    alpha,
    from_start,
    stay,
    rng,
    x,
    counts,
    y,
    work,
):
    """Write a state drawn from the mixture of α, Bᵀφ̄ and Pᵀφ̄ to y.

    Whether the action drawn for it is allowed.
    """
    if uniform(rng) < from_start:
        u = uniform(rng)
        s = 0
        while s < alpha.size - 1 and u >= alpha[s]:
            u -= alpha[s]
            s += 1
        copy(y, starts[s])
        return True
    a = draw(fi, ff, one_of(rng, low, high), rng, x, work)
    if uniform(rng) < stay or not allowed(mi, mf, x, a):
        copy(y, x)
        return allowed(mi, mf, x, a)
    step(mi, mf, x, a, rng, y, counts)
    return True


@kernel(
    INT(
        _ALLOWED,
        _STEP,
        _PREDECESSORS,
        _CHANGES,
        _ANCHOR,
        _NEAR,
        _DRAW,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INT,
        INT,
        INT,
        INT,
        FLOAT,
        FLOAT,
        FLOAT,
        STATES,
        FLOATS,
        RNG,
        *_ROOM,
        STATES,
        STATES,
        ROWS,
        INTS,
        FLOATS,
        FLOATS,
        INT,
        INT,
    )
)
def draw_flows(
    allowed,
    step,
    predecessors,
    changes,
    anchor,
    near,
    draw,
    mi,
    mf,
    fi,
    ff,
    low,
    high,
    actions,
    local,
    on_b,
    on_p,
    from_start,
    starts,
    alpha,
    rng,
    room,
    before,
    coords,
    news,
    sizes,
    acted,
    chances,
    row_indices,
    row_values,
    sums,
    touched,
    work,
    states,
    indices,
    values,
    counts,
    masses,
    densities,
    first,
    last,
):
    """Draw the samples first, ..., last − 1 from q2 or q4: states, rows, α and density.

    −1, or a sample at fault.
    """
    stay = 1.0 / (1.0 + abs(on_p))
    for k in range(first, last):
        r = k - first
        y = states[r]
        seek(rng, k)
        good = draw_state(
            allowed,
            step,
            draw,
            mi,
            mf,
            fi,
            ff,
            low,
            high,
            starts,
            alpha,
            from_start,
            stay,
            rng,
            room[0],
            sums[:0],
            y,
            work,
        )
        counts[r], here, there, m = flow_row(
            allowed,
            predecessors,
            changes,
            anchor,
            near,
            mi,
            mf,
            fi,
            ff,
            low,
            high,
            actions,
            local,
            y,
            on_b,
            on_p,
            room,
            before,
            coords,
            news,
            sizes,
            acted,
            chances,
            row_indices,
            row_values,
            sums,
            touched,
            work,
            indices[r],
            values[r],
        )
        masses[r] = start_mass(starts, alpha, y)
        if masses[r] > 0.0 and m != 0.0:  # beside a mass, densities that small count as they are
            rescale(values[r], 0, counts[r], m)
            here = here * np.exp(m)
            there = there * np.exp(m)
        densities[r] = from_start * masses[r] + (1 - from_start) * stay * (
            here + abs(on_p) * there
        ) / (high - low)
        if not good or counts[r] < 0 or not 0.0 < densities[r] < np.inf:
            return k
    return np.int64(-1)


@kernel(
    INT(
        _ALLOWED,
        _PREDECESSORS,
        _CHANGES,
        _ANCHOR,
        _NEAR,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        BOUNDS,
        INT,
        INT,
        FLOAT,
        FLOAT,
        STATES,
        FLOATS,
        *_ROOM,
        INTS,
        FLOATS,
        INTS,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INT,
        INT,
    )
)
def all_rows(
    allowed,
    predecessors,
    changes,
    anchor,
    near,
    mi,
    mf,
    fi,
    ff,
    box,
    actions,
    local,
    on_b,
    on_p,
    starts,
    alpha,
    room,
    before,
    coords,
    news,
    sizes,
    acted,
    chances,
    row_indices,
    row_values,
    sums,
    touched,
    work,
    pair_indices,
    pair_values,
    pair_ends,
    flow_indices,
    flow_values,
    flow_ends,
    masses,
    first,
    last,
):
    """Write the rows of all pairs and of the flow of the states first, ..., last − 1.

    −1, or a state at fault.
    """
    d = feature_count(fi)
    y = room[0]
    pair_end = np.int64(0)
    flow_end = np.int64(0)
    first_state(box, first, y)
    for index in range(first, last):
        r = index - first
        m = anchor(fi, ff, y, work)
        for a in range(actions):
            if allowed(mi, mf, y, a):
                count = near(
                    fi,
                    ff,
                    y,
                    y,
                    sizes,
                    0,
                    m,
                    a,
                    pair_indices[pair_end:],
                    pair_values[pair_end:],
                    work,
                )
                rescale(pair_values, pair_end, pair_end + count, m)
                pair_end += count
            pair_ends[r * actions + a] = pair_end
        count, _, _, m = flow_row(
            allowed,
            predecessors,
            changes,
            anchor,
            near,
            mi,
            mf,
            fi,
            ff,
            np.int64(0),
            d,
            actions,
            local,
            y,
            on_b,
            on_p,
            room,
            before,
            coords,
            news,
            sizes,
            acted,
            chances,
            row_indices,
            row_values,
            sums,
            touched,
            work,
            flow_indices[flow_end:],
            flow_values[flow_end:],
        )
        if count < 0:
            return index
        rescale(flow_values, flow_end, flow_end + count, m)
        flow_end += count
        flow_ends[r] = flow_end
        masses[r] = start_mass(starts, alpha, y)
        next_state(box, y)
    return np.int64(-1)
