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
The largest entry that was seen of a row lies between SMALLEST_TOP_ENTRY and LARGEST_TOP_ENTRY in
its unit: m goes down for the first entries, if they are smaller, and up whenever there are larger
ones, with what was summed before. What then underflows is below 1e-150 of the row.

Sample k depends on (seed, stream, k) alone. Rows have `width` places each; what a row does not use
stays unused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    ALLOWED_SIGNATURE,
    CHANGES_SIGNATURE,
    FLOAT,
    FLOAT_ROWS,
    FLOATS,
    FORWARD_SIGNATURE,
    INT,
    INT_ROWS,
    INTS,
    LOSS_SIGNATURE,
    PREDECESSORS_SIGNATURE,
    RNG_WORDS,
    STEP_SIGNATURE,
    Kernel,
    copy,
    function_type,
    group,
    helper,
    inlined_helper,
    kernel,
)
from dualplan._kernels.features import FEATURE_SET, ROW, Row, Spot, feature_count, rescale
from dualplan._kernels.layouts import BOUNDS, DYNAMICS, TALLIES
from dualplan._kernels.philox import seek, uniform
from dualplan._kernels.sweep import first_state, next_state, sums_of
from dualplan.core.types import Floats, Ints


class Backward(NamedTuple):
    """What rows of the flow ask of a model.

    Where predecessors are known as changes (`local` 1), `changes` is asked for them.
    """

    allowed: Kernel
    step: Kernel
    predecessors: Kernel
    changes: Kernel
    ints: Ints
    floats: Floats
    actions: int
    local: int


class Flow(NamedTuple):
    """The factors of B and P in the flow, the weight of α in the sampling distribution, and α: the
    states where it is positive, one a row, and its values.
    """

    on_b: float
    on_p: float
    from_start: float
    starts: Ints
    alpha: Floats


class Span(NamedTuple):
    """The features low, ..., high − 1, whose mean rows are drawn from."""

    low: int
    high: int


class PredecessorRoom(NamedTuple):
    """Where the predecessors of a state are listed: whole, or the coordinates that change, their
    values and numbers; their actions and probabilities.
    """

    whole: Ints
    coords: Ints
    news: Ints
    sizes: Ints
    actions: Ints
    chances: Floats


class RowRoom(NamedTuple):
    """Room to work: four states, predecessors, a row at a pair, sums over the features, features
    touched, and what the features need.
    """

    states: Ints
    listed: PredecessorRoom
    row: Row
    sums: Floats
    touched: Ints
    work: Floats


class PairRows(NamedTuple):
    """Samples of pairs: states, actions, rows (indices, values and their numbers) and densities."""

    states: Ints
    actions: Ints
    indices: Ints
    values: Floats
    counts: Ints
    densities: Floats


class FlowRows(NamedTuple):
    """Samples of states: rows (indices, values and their numbers), α and densities."""

    states: Ints
    indices: Ints
    values: Floats
    counts: Ints
    masses: Floats
    densities: Floats


class AllRows(NamedTuple):
    """Rows one after the other and where each ends, of all pairs and of all states; α."""

    pairs: Row
    pair_ends: Ints
    flows: Row
    flow_ends: Ints
    masses: Floats


class FlowSum(NamedTuple):
    """A row of the flow: its length (−1: too many predecessors), Σ_j (Bᵀφ_j)(y) and Σ_j (Pᵀφ_j)(y)
    over the features of a span, and the logarithm m of the unit that all are in.
    """

    length: int
    here: float
    there: float
    m: float


BACKWARD = group(
    Backward,
    function_type(ALLOWED_SIGNATURE),
    function_type(STEP_SIGNATURE),
    function_type(PREDECESSORS_SIGNATURE),
    function_type(CHANGES_SIGNATURE),
    INTS,
    FLOATS,
    INT,
    INT,
)
FLOW = group(Flow, FLOAT, FLOAT, FLOAT, INT_ROWS, FLOATS)
SPAN = group(Span, INT, INT)
PREDECESSOR_ROOM = group(PredecessorRoom, INT_ROWS, INT_ROWS, INT_ROWS, INTS, INTS, FLOATS)
ROW_ROOM = group(RowRoom, INT_ROWS, PREDECESSOR_ROOM, ROW, FLOATS, INTS, FLOATS)
PAIR_ROWS = group(PairRows, INT_ROWS, INTS, INT_ROWS, FLOAT_ROWS, INTS, FLOATS)
FLOW_ROWS = group(FlowRows, INT_ROWS, INT_ROWS, FLOAT_ROWS, INTS, FLOATS, FLOATS)
ALL_ROWS = group(AllRows, ROW, INTS, ROW, INTS, FLOATS)

# of a row's largest entry, in its unit
SMALLEST_TOP_ENTRY = 1e-150
LARGEST_TOP_ENTRY = 1e150
# by which a unit's logarithm moves; less than from SMALLEST_TOP_ENTRY to LARGEST_TOP_ENTRY, so that
# it cannot miss
UNIT_LOG_SHIFT = 600.0
SMALLEST_UNIT_LOG = -1e6  # logarithm of the smallest unit
NOTED_ZERO = 1e-300  # a sum that is 0 all the same, but whose feature is noted


@helper
def one_of(rng, span):
    size = span.high - span.low
    return min(span.low + np.int64(uniform(rng) * size), span.high - 1)


@helper
def total(row, count, span):
    """The sum of a row over the features of a span."""
    result = 0.0
    for k in range(count):
        if span.low <= row.indices[k] < span.high:
            result += row.values[k]
    return result


@helper
def largest(values, count):
    result = 0.0
    for k in range(count):
        result = max(result, values[k])
    return result


@inlined_helper
def near_in(features, spot, m, row, work):
    """The features at a pair in units of e^m, written to the row; their number."""
    return features.near(
        features.ints,
        features.floats,
        spot.y,
        spot.x,
        spot.coords,
        spot.changed,
        m,
        spot.a,
        row.indices,
        row.values,
        work,
    )


@inlined_helper
def fitting_near(features, spot, seen, row, work):
    """`near` with a unit in which its largest value fits, if none was `seen` before: its count, m,
    the largest.
    """
    m = spot.m
    count = near_in(features, spot, m, row, work)
    top = largest(row.values, count)
    while top > LARGEST_TOP_ENTRY and m < 0.0:
        m = min(m + UNIT_LOG_SHIFT, 0.0)
        count = near_in(features, spot, m, row, work)
        top = largest(row.values, count)
    while count > 0 and seen == 0.0 and top < SMALLEST_TOP_ENTRY and m > SMALLEST_UNIT_LOG:
        m -= UNIT_LOG_SHIFT
        count = near_in(features, spot, m, row, work)
        top = largest(row.values, count)
    return count, m, top


@kernel(types.void(FEATURE_SET, INT, RNG_WORDS, INT, INT_ROWS, INTS, FLOATS))
def draw_feature(features, j, rng, first, states, actions, work):
    """The draws first, first + 1, ... of a feature."""
    for k in range(actions.size):
        seek(rng, first + k)
        actions[k] = features.draw(features.ints, features.floats, j, rng, states[k], work)


@kernel(types.void(function_type(LOSS_SIGNATURE), INTS, FLOATS, INT_ROWS, INTS, FLOATS))
def losses_at(loss, mi, mf, states, actions, out):
    for k in range(actions.size):
        out[k] = loss(mi, mf, states[k], actions[k])


@kernel(types.void(function_type(ALLOWED_SIGNATURE), INTS, FLOATS, INT_ROWS, INT_ROWS))
def allowed_at(allowed, mi, mf, states, out):
    """Whether each action is allowed, 0 or 1, a row for each of the given states."""
    for k in range(out.shape[0]):
        for a in range(out.shape[1]):
            out[k, a] = allowed(mi, mf, states[k], a)


@kernel(types.void(TALLIES, INT_ROWS, INTS, FLOAT_ROWS))
def sums_at(tallies, states, actions, out):
    """What a step from each of the given pairs adds to the model's columns, in expectation."""
    for k in range(actions.size):
        sums_of(tallies, states[k], actions[k], out[k])


@kernel(
    types.void(
        function_type(FORWARD_SIGNATURE), INTS, FLOATS, INT_ROWS, INTS, INT_ROWS, FLOAT_ROWS, INTS
    )
)
def laws_at(forward, mi, mf, states, actions, after, chances, counts):
    """The next states and their probabilities from given pairs.

    Each has as many places as `chances` has columns.
    """
    most = chances.shape[1]
    for k in range(actions.size):
        counts[k] = forward(
            mi, mf, states[k], actions[k], after[k * most : (k + 1) * most], chances[k]
        )


@kernel(types.void(RNG_WORDS, INT, FLOATS))
def uniforms(rng, first, out):
    """The first number of each of the samples first, first + 1, ..."""
    for k in range(out.size):
        seek(rng, first + k)
        out[k] = uniform(rng)


@kernel(INT(DYNAMICS, FEATURE_SET, SPAN, RNG_WORDS, PAIR_ROWS, FLOATS, INT))
def draw_pairs(model, features, span, rng, rows, work, first):
    """Draw the samples first, first + 1, ... from q1: pairs, their rows and q1; −1, or a sample at
    fault.

    At fault is a sample at an action that is not allowed, or without a density.
    """
    ints = features.ints
    floats = features.floats
    for r in range(rows.counts.size):
        x = rows.states[r]
        row = Row(rows.indices[r], rows.values[r])
        seek(rng, first + r)
        a = features.draw(ints, floats, one_of(rng, span), rng, x, work)
        rows.actions[r] = a
        m = features.anchor(ints, floats, x, work)
        spot = Spot(x, x, rows.counts, 0, m, a)
        rows.counts[r], _, _ = fitting_near(features, spot, 0.0, row, work)
        density = total(row, rows.counts[r], span) / (span.high - span.low)
        rows.densities[r] = density
        if not 0.0 < density < np.inf or not model.allowed(model.ints, model.floats, x, a):
            return first + r
    return np.int64(-1)


@inlined_helper
def add_row(room, count, span, weight, number):
    """sums += weight·Φ_(x,a); the features touched first are noted.

    The number noted, and the row's sum.
    """
    sums = room.sums
    row = room.row
    for k in range(count):
        j = row.indices[k]
        if row.values[k] == 0.0:  # beside what was seen
            continue
        if sums[j] == 0.0:
            room.touched[number] = j
            number += 1
        sums[j] += weight * row.values[k]
        if sums[j] == 0.0:  # a cancellation must not be noted twice
            sums[j] = NOTED_ZERO
    return number, total(row, count, span)


@helper
def change_unit(room, number, exponent):
    """sums·e^exponent; the factor."""
    factor = np.exp(exponent)
    for k in range(number):
        j = room.touched[k]
        room.sums[j] *= factor
        if room.sums[j] == 0.0:
            room.sums[j] = NOTED_ZERO
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


@inlined_helper
def list_predecessors(model, y, room):
    """List the pairs that lead to y; their number, −1 if they are too many.

    A second state of the room is y afterwards where they are listed as changes.
    """
    listed = room.listed
    if not model.local:
        return model.predecessors(
            model.ints, model.floats, y, listed.whole, listed.actions, listed.chances
        )
    x = room.states[1]
    spare = room.states[2]
    copy(x, y)
    copy(spare, y)
    return model.changes(
        model.ints,
        model.floats,
        y,
        listed.coords,
        listed.news,
        listed.sizes,
        listed.actions,
        listed.chances,
        x,
        spare,
    )


@inlined_helper
def near_predecessor(model, features, y, k, m, seen, room):
    """`fitting_near` at the k-th of the pairs that lead to y."""
    listed = room.listed
    a = listed.actions[k]
    if not model.local:
        coords = room.states[3]
        x = listed.whole[k]
        changed = differences(y, x, coords)
        return fitting_near(features, Spot(y, x, coords, changed, m, a), seen, room.row, room.work)
    x = room.states[1]
    coords = listed.coords[k]
    changed = listed.sizes[k]
    patch(x, listed.news[k], coords, changed)
    found = fitting_near(features, Spot(y, x, coords, changed, m, a), seen, room.row, room.work)
    restore(x, y, coords, changed)
    return found


@helper
def flow_row(model, features, flow, span, y, room, out):
    """Write F_y to `out`; see `FlowSum`."""
    listed = room.listed
    number = np.int64(0)
    here = 0.0
    there = 0.0
    changed = np.int64(0)
    seen = 0.0
    m = features.anchor(features.ints, features.floats, y, room.work)
    for a in range(model.actions):
        if model.allowed(model.ints, model.floats, y, a):
            spot = Spot(y, y, listed.sizes, changed, m, a)
            count, unit, top = fitting_near(features, spot, seen, room.row, room.work)
            if unit != m:
                here *= change_unit(room, number, m - unit)
                m = unit
            seen = max(seen, top)
            changed = np.int64(-1)
            number, mass = add_row(room, count, span, flow.on_b, number)
            here += mass
    before = list_predecessors(model, y, room)
    if before < 0:
        return FlowSum(np.int64(-1), here, there, m)
    for k in range(before):
        count, unit, top = near_predecessor(model, features, y, k, m, seen, room)
        if unit != m:
            factor = change_unit(room, number, m - unit)
            here = here * factor
            there = there * factor
            m = unit
        seen = max(seen, top)
        number, mass = add_row(room, count, span, flow.on_p * listed.chances[k], number)
        there += listed.chances[k] * mass
    for k in range(number):
        j = room.touched[k]
        out.indices[k] = j
        out.values[k] = room.sums[j]
        room.sums[j] = 0.0
    return FlowSum(number, here, there, m)


@helper
def start_mass(flow, y):
    """α(y)."""
    mass = 0.0
    for s in range(flow.alpha.size):
        same = True
        for i in range(y.size):
            if flow.starts[s, i] != y[i]:
                same = False
        if same:
            mass += flow.alpha[s]
    return mass


@helper
def draw_state(model, features, flow, span, rng, y, room):
    """Write a state drawn from the mixture of α, Bᵀφ̄ and Pᵀφ̄ to y.

    Whether the action drawn for it is allowed.
    """
    x = room.states[0]
    if uniform(rng) < flow.from_start:
        u = uniform(rng)
        s = 0
        while s < flow.alpha.size - 1 and u >= flow.alpha[s]:
            u -= flow.alpha[s]
            s += 1
        copy(y, flow.starts[s])
        return True
    a = features.draw(features.ints, features.floats, one_of(rng, span), rng, x, room.work)
    stay = 1.0 / (1.0 + abs(flow.on_p))
    if uniform(rng) < stay or not model.allowed(model.ints, model.floats, x, a):
        copy(y, x)
        return model.allowed(model.ints, model.floats, x, a)
    model.step(model.ints, model.floats, x, a, rng, y, room.sums[:0])
    return True


@kernel(INT(BACKWARD, FEATURE_SET, FLOW, SPAN, RNG_WORDS, ROW_ROOM, FLOW_ROWS, INT))
def draw_flows(model, features, flow, span, rng, room, rows, first):
    """Draw the samples first, first + 1, ... from q2 or q4: states, rows, α and density.

    −1, or a sample at fault.
    """
    size = span.high - span.low
    on_p = abs(flow.on_p)
    stay = 1.0 / (1.0 + on_p)
    for r in range(rows.counts.size):
        y = rows.states[r]
        seek(rng, first + r)
        good = draw_state(model, features, flow, span, rng, y, room)
        out = Row(rows.indices[r], rows.values[r])
        found = flow_row(model, features, flow, span, y, room, out)
        rows.counts[r] = found.length
        here = found.here
        there = found.there
        mass = start_mass(flow, y)
        rows.masses[r] = mass
        if mass > 0.0 and found.m != 0.0:  # beside a mass, densities that small count as they are
            rescale(out.values, 0, found.length, found.m)
            here = here * np.exp(found.m)
            there = there * np.exp(found.m)
        density = (
            flow.from_start * mass + (1 - flow.from_start) * stay * (here + on_p * there) / size
        )
        rows.densities[r] = density
        if not good or found.length < 0 or not 0.0 < density < np.inf:
            return first + r
    return np.int64(-1)


@kernel(INT(BACKWARD, FEATURE_SET, FLOW, BOUNDS, ROW_ROOM, ALL_ROWS, INT))
def all_rows(model, features, flow, box, room, rows, first):
    """Write the rows of all pairs and of the flow of the states first, first + 1, ...

    −1, or a state at fault.
    """
    every = Span(np.int64(0), feature_count(features.ints))
    y = room.states[0]
    pair_end = np.int64(0)
    flow_end = np.int64(0)
    first_state(box, first, y)
    for r in range(rows.masses.size):
        m = features.anchor(features.ints, features.floats, y, room.work)
        for a in range(model.actions):
            if model.allowed(model.ints, model.floats, y, a):
                out = Row(rows.pairs.indices[pair_end:], rows.pairs.values[pair_end:])
                spot = Spot(y, y, room.listed.sizes, 0, m, a)
                count = near_in(features, spot, m, out, room.work)
                rescale(out.values, 0, count, m)
                pair_end += count
            rows.pair_ends[r * model.actions + a] = pair_end
        out = Row(rows.flows.indices[flow_end:], rows.flows.values[flow_end:])
        found = flow_row(model, features, flow, every, y, room, out)
        if found.length < 0:
            return first + r
        rescale(out.values, 0, found.length, found.m)
        flow_end += found.length
        rows.flow_ends[r] = flow_end
        rows.masses[r] = start_mass(flow, y)
        next_state(box, y)
    return np.int64(-1)
