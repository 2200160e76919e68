"""Feature sets as data: one set of compiled functions for all of them.

A feature is a probability distribution on pairs (x, a). Features come in blocks of one kind; a
block answers

    draw    a pair from one of its features
    anchor  what it needs to know of a state y
    near    which of its features are positive at (x, a), and how large, for a state x that differs
            from y in a few
            coordinates; by look-up, and without going through the coordinates that are the same

Values are in units of e^m, where `anchor` proposes m: 0, unless all densities that are positive at
y are so small that they would underflow. Near y, or at one action, larger or smaller ones may be
what there is; who makes a row of them moves m to its largest entry (`constraints.py`). What is made
of them are ratios to a sampling density in the same units.

Blocks of all kinds lie one after the other in two flat arrays. The header of `ints` is the number
of blocks, then for each block its kind, the number of its first feature, where its fields start in
`ints` and `floats`, the number of its first function of the user and where its room to work starts;
last the number of features, the places that a row needs and the room to work that the set needs.

TABLE   any distributions on the pairs of a bounded box, from a sparse matrix
        ints: dim, actions, pairs, features, lower[dim], strides[dim], row starts, features by row,
        column starts, pairs by column floats: values by row, cumulative sums by column
BOXES   uniform on a product of intervals, one a coordinate, times an action
        ints: dim, actions, number of intervals in all, and of each coordinate[dim], where each
        coordinate's start[dim], strides of the coordinates in the number of a box[dim], lows, highs
        floats: logarithms of the intervals' lengths work: coordinates outside, number of the box,
        logarithm of the density
BANDS   uniform on the states whose weighted sum of coordinates lies in an interval, times a choice
        of the action
        ints: dim, actions, bands, largest sum V, where the choices start, weights[dim], tops[dim],
        band of each sum 0..V or -1, lows, highs, choices (`choices.py`) floats: the number of ways
        in which the coordinates i, ..., dim − 1 make each sum 0..V, for i = 0..dim; the number of
        states of each band work: coordinates above their tops, the sum, a place for each action
        under each choice
TREES   laws that factor along a tree (`trees.py`), times a choice of the action
        ints: dim, actions, laws, features, where the choices start, where each law starts, the
        first feature of each law and the end, the choice of each feature; choices; laws work: for
        each law the logarithm of its density and the number of terms that are 0, a place for each
        action under each choice
MIXTURES  mixtures of the features of another set, which has no mixtures itself: W of K mixtures and
          d features, sparse
        ints: K, d, entries of W, most mixtures positive at a pair, column starts, mixtures by
        column, row starts, features by row, the ints of the other set floats: values by column,
        cumulative sums by row, the floats of the other set A row of the other set is written behind
        the places of the block's own, which are merged from it.
USER    functions of the user, which `dual/features/user.py` puts in
        ints: features, most positive at a pair, uniform numbers a draw, dim, actions, lower[dim],
        upper[dim]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dualplan._kernels.choices import (
    FIXED_CHOICE,
    chance_of,
    choice_count,
    choice_kind,
    choice_value,
    draw_choice,
    write_chances,
    write_choice,
    write_rule,
)
from dualplan._kernels.compiler import (
    ANCHOR_SIGNATURE,
    DRAW_SIGNATURE,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NEAR_SIGNATURE,
    RNG_WORDS,
    Kernel,
    function_type,
    group,
    helper,
    inlined_helper,
    kernel,
)
from dualplan._kernels.layouts import Arrays
from dualplan._kernels.philox import uniform
from dualplan._kernels.trees import draw_states, log_density, log_ratio
from dualplan.core.types import Floats, Ints

TABLE, BOXES, BANDS, TREES, MIXTURES, USER = range(6)
# What a block has in the header: its kind, its first feature, where its fields start in the two
# arrays, its first function of the user, and where its room to work starts.
KIND, FIRST, INTS_AT, FLOATS_AT, SLOT, ROOM_AT, BLOCK_RECORD_SIZE = range(7)
# logarithm of the largest density at a state from which on values are plain
PLAIN_LOG_DENSITY = -300.0
# of the sum of absolute terms: what rounding leaves where terms cancel is no decision
ROUNDING_SHARE = 1e-12


class FeatureSet(NamedTuple):
    """The functions of a feature set and the arrays that they read."""

    anchor: Kernel
    near: Kernel
    draw: Kernel
    ints: Ints
    floats: Floats


class Row(NamedTuple):
    """Where a row is written to: features, and their values."""

    indices: Ints
    values: Floats


class Spot(NamedTuple):
    """A pair (x, a) near the state y where the features are anchored, and the unit e^m of values.

    x differs from y at the first `changed` of `coords`; −1 says that x = y, and that the call
    before was for the same state.
    """

    y: Ints
    x: Ints
    coords: Ints
    changed: int
    m: float
    a: int


class Block(NamedTuple):
    """One block of a set: the set's arrays, its kind, its first feature, where its fields start in
    the two arrays (o, f), and where its room to work starts (w).
    """

    ints: Ints
    floats: Floats
    kind: int
    first: int
    o: int
    f: int
    w: int


FEATURE_SET = group(
    FeatureSet,
    function_type(ANCHOR_SIGNATURE),
    function_type(NEAR_SIGNATURE),
    function_type(DRAW_SIGNATURE),
    INTS,
    FLOATS,
)
ROW = group(Row, INTS, FLOATS)
# of groups that are made by kernels, and never handed over by Python
BLOCK_TYPE = types.NamedTuple([INTS, FLOATS, INT, INT, INT, INT, INT], Block)
SPOT_TYPE = types.NamedTuple([INTS, INTS, INTS, INT, FLOAT, INT], Spot)
ROW_TYPE = types.NamedTuple([INTS, FLOATS], Row)


@helper
def feature_count(ints):
    return ints[1 + BLOCK_RECORD_SIZE * ints[0]]


@helper
def row_places(ints):
    return ints[2 + BLOCK_RECORD_SIZE * ints[0]]


@helper
def work_places(ints):
    return ints[3 + BLOCK_RECORD_SIZE * ints[0]]


@helper
def rescale(values, first, last, exponent):
    factor = np.exp(exponent)
    for k in range(first, last):
        values[k] *= factor


@helper
def first_above(sums, low, high, u):
    """The first place from low to high whose cumulative sum exceeds u."""
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > u:
            high = middle
        else:
            low = middle + 1
    return low


@helper
def table_row(block, x, a, row, count):
    ints = block.ints
    o = block.o
    dim = ints[o]
    actions = ints[o + 1]
    pairs = ints[o + 2]
    pair = np.int64(0)
    for i in range(dim):
        pair += (x[i] - ints[o + 4 + i]) * ints[o + 4 + dim + i]
    pair = pair * actions + a
    starts = o + 4 + 2 * dim
    features = starts + pairs + 1
    for k in range(ints[starts + pair], ints[starts + pair + 1]):
        row.indices[count] = block.first + ints[features + k]
        row.values[count] = block.floats[block.f + k]
        count += 1
    return count


@helper
def table_draw(block, j, rng, x):
    ints = block.ints
    floats = block.floats
    o = block.o
    dim = ints[o]
    actions = ints[o + 1]
    pairs = ints[o + 2]
    size = ints[o + 3]
    starts = o + 4 + 2 * dim
    entries = ints[starts + pairs]
    columns = starts + pairs + 1 + entries
    low = ints[columns + j]
    high = ints[columns + j + 1] - 1
    sums = block.f + entries
    place = first_above(floats, sums + low, sums + high, uniform(rng) * floats[sums + high]) - sums
    pair = ints[columns + size + 1 + place]
    state = pair // actions
    for i in range(dim):
        x[i] = ints[o + 4 + i] + state // ints[o + 4 + dim + i]
        state %= ints[o + 4 + dim + i]
    return pair % actions


@helper
def interval_of(ints, lows, number, total, value):
    """Which of a coordinate's intervals has the value; −1: none."""
    for k in range(number):
        if ints[lows + k] <= value <= ints[lows + total + k]:
            return np.int64(k)
    return np.int64(-1)


@helper
def boxes_anchor(block, y, work):
    """The largest density at y as a logarithm."""
    ints = block.ints
    o = block.o
    w = block.w
    dim = ints[o]
    total = ints[o + 2]
    lows = o + 3 + 3 * dim
    outside = 0
    box = np.int64(0)
    density = 0.0
    for i in range(dim):
        at = ints[o + 3 + dim + i]
        place = interval_of(ints, lows + at, ints[o + 3 + i], total, y[i])
        if place < 0:
            outside += 1
        else:
            box += ints[o + 3 + 2 * dim + i] * place
            density -= block.floats[block.f + at + place]
    work[w] = outside
    work[w + 1] = box
    work[w + 2] = density
    if outside == 0:
        return density
    return -np.inf


@helper
def boxes_near(block, spot, row, count, work):
    ints = block.ints
    floats = block.floats
    o = block.o
    f = block.f
    w = block.w
    dim = ints[o]
    total = ints[o + 2]
    lows = o + 3 + 3 * dim
    outside = np.int64(work[w])
    box = np.int64(work[w + 1])
    density = work[w + 2]
    for k in range(spot.changed):
        i = spot.coords[k]
        number = ints[o + 3 + i]
        at = ints[o + 3 + dim + i]
        stride = ints[o + 3 + 2 * dim + i]
        old = interval_of(ints, lows + at, number, total, spot.y[i])
        new = interval_of(ints, lows + at, number, total, spot.x[i])
        outside += np.int64(new < 0) - np.int64(old < 0)
        if old >= 0:
            box -= stride * old
            density += floats[f + at + old]
        if new >= 0:
            box += stride * new
            density -= floats[f + at + new]
    if outside > 0:
        return count
    row.indices[count] = block.first + box * ints[o + 1] + spot.a
    row.values[count] = np.exp(density - spot.m)
    return count + 1


@helper
def boxes_draw(ints, o, j, rng, x):
    dim = ints[o]
    actions = ints[o + 1]
    total = ints[o + 2]
    for i in range(dim):
        place = (
            o
            + 3
            + 3 * dim
            + ints[o + 3 + dim + i]
            + j // actions // ints[o + 3 + 2 * dim + i] % ints[o + 3 + i]
        )
        low = ints[place]
        high = ints[total + place]
        x[i] = low + np.int64(uniform(rng) * (high - low + 1))
    return j % actions


@helper
def bands_anchor(block, y, work):
    """The largest density at y as a logarithm."""
    ints = block.ints
    o = block.o
    w = block.w
    dim = ints[o]
    most = ints[o + 3]
    total = np.int64(0)
    above = 0
    for i in range(dim):
        above += y[i] > ints[o + 5 + dim + i]
        total += ints[o + 5 + i] * min(y[i], ints[o + 5 + dim + i])
    work[w] = above
    work[w + 1] = total
    if above > 0 or total > most:
        return -np.inf
    band = ints[o + 5 + 2 * dim + total]
    if band >= 0:
        return -np.log(block.floats[block.f + (dim + 1) * (most + 1) + band])
    return -np.inf


@helper
def bands_place(block, spot, work):
    """The band of x, or −1."""
    ints = block.ints
    o = block.o
    dim = ints[o]
    most = ints[o + 3]
    above = np.int64(work[block.w])
    total = np.int64(work[block.w + 1])
    for k in range(spot.changed):
        i = spot.coords[k]
        x = spot.x[i]
        y = spot.y[i]
        top = ints[o + 5 + dim + i]
        above += np.int64(x > top) - np.int64(y > top)
        total += ints[o + 5 + i] * (min(x, top) - min(y, top))
    if above == 0 and total <= most:
        return ints[o + 5 + 2 * dim + total]
    return np.int64(-1)


@helper
def bands_row(block, band, spot, row, count, chances):
    """The features of a band, given the chances of the actions under each choice."""
    ints = block.ints
    o = block.o
    dim = ints[o]
    most = ints[o + 3]
    c = o + ints[o + 4]
    density = 1.0 / block.floats[block.f + (dim + 1) * (most + 1) + band]
    if spot.m != 0.0:
        density = np.exp(np.log(density) - spot.m)
    number = choice_count(ints, c)
    for k in range(number):
        chance = chance_of(ints, c, k, spot.a, chances)
        if chance > 0.0:
            row.indices[count] = block.first + band * number + k
            row.values[count] = density * chance
            count += 1
    return count


@helper
def bands_draw(block, band, rng, x):
    ints = block.ints
    floats = block.floats
    o = block.o
    f = block.f
    dim = ints[o]
    bands = ints[o + 2]
    most = ints[o + 3]
    low = ints[o + 5 + 2 * dim + most + 1 + band]
    high = ints[o + 5 + 2 * dim + most + 1 + bands + band]
    u = uniform(rng) * floats[f + (dim + 1) * (most + 1) + band]
    rest = low
    while rest < high and u >= floats[f + rest]:
        u -= floats[f + rest]
        rest += 1
    for i in range(dim):
        weight = ints[o + 5 + i]
        ways = f + (i + 1) * (most + 1)
        u = uniform(rng) * floats[f + i * (most + 1) + rest]
        value = np.int64(0)
        last = np.int64(0)
        while value <= ints[o + 5 + dim + i] and value * weight <= rest:
            here = floats[ways + rest - value * weight]
            if here > 0.0:
                last = value
                if u < here:
                    break
                u -= here
            value += 1
        x[i] = last
        rest -= last * weight


@helper
def trees_anchor(block, y, work):
    """The largest density at y as a logarithm, over the laws that are positive there."""
    ints = block.ints
    o = block.o
    w = block.w
    dim = ints[o]
    laws = ints[o + 2]
    largest = -np.inf
    for law in range(laws):
        total, zeros = log_density(ints, block.floats, o + ints[o + 5 + law], block.f, y, dim)
        work[w + 2 * law] = total
        work[w + 2 * law + 1] = zeros
        if zeros == 0:
            largest = max(largest, total)
    return largest


@helper
def trees_row(block, spot, row, count, work, chances):
    ints = block.ints
    o = block.o
    w = block.w
    laws = ints[o + 2]
    c = o + ints[o + 4]
    starts = o + 5 + laws
    choice = starts + laws + 1
    for law in range(laws):
        log = work[w + 2 * law]
        zeros = np.int64(work[w + 2 * law + 1])
        if spot.changed > 0:
            at = o + ints[o + 5 + law]
            change, more = log_ratio(
                ints, block.floats, at, block.f, spot.y, spot.x, spot.coords, spot.changed
            )
            log = log + change
            zeros = zeros + more
        if zeros > 0:
            continue
        density = np.exp(log - spot.m)
        for j in range(ints[starts + law], ints[starts + law + 1]):
            chance = chance_of(ints, c, ints[choice + j], spot.a, chances)
            if chance > 0.0:
                row.indices[count] = block.first + j
                row.values[count] = density * chance
                count += 1
    return count


@helper
def law_of_feature(block, j):
    """Where the law of a feature starts."""
    ints = block.ints
    o = block.o
    laws = ints[o + 2]
    law = np.int64(0)
    while ints[o + 5 + laws + law + 1] <= j:
        law += 1
    return o + ints[o + 5 + law]


@inlined_helper
def choices_at(block):
    """Where the choices of a block that has such start."""
    return block.o + block.ints[block.o + 4]


@helper
def choice_of_feature(block, j):
    """Which of the block's choices feature j has."""
    if block.kind == TREES:
        return block.ints[block.o + 5 + 2 * block.ints[block.o + 2] + 1 + j]
    return j % choice_count(block.ints, choices_at(block))


@inlined_helper
def chances_of(block):
    """From where to where a block with choices has a place for each action under each choice."""
    at = block.w + (2 * block.ints[block.o + 2] if block.kind == TREES else 2)
    return at, at + block.ints[block.o + 1] * choice_count(block.ints, choices_at(block))


@helper
def add_column(block, column, factor, row, begin, end):
    """Merge a column of W, times a factor, into the sorted places begin..end − 1 of a row; the new
    end.
    """
    ints = block.ints
    first = block.first
    indices = row.indices
    values = row.values
    starts = block.o + 4
    rows = starts + ints[block.o + 1] + 1
    low = ints[starts + column]
    high = ints[starts + column + 1]
    fresh = 0
    i = begin
    for p in range(low, high):
        while i < end and indices[i] < first + ints[rows + p]:
            i += 1
        if i == end or indices[i] != first + ints[rows + p]:
            fresh += 1
    i = end - 1
    place = end + fresh - 1
    for p in range(high - 1, low - 1, -1):
        k = first + ints[rows + p]
        value = factor * block.floats[block.f + p]
        while i >= begin and indices[i] > k:
            indices[place] = indices[i]
            values[place] = values[i]
            i = i - 1
            place = place - 1
        if i >= begin and indices[i] == k:
            value += values[i]
            i -= 1
        indices[place] = k
        values[place] = value
        place -= 1
    return end + fresh


@helper
def mixtures_row(block, row, count, spare, number):
    """Mix the row of the other set that lies in the places from `spare` on."""
    end = count
    for k in range(spare, spare + number):
        end = add_column(block, row.indices[k], row.values[k], row, count, end)
    return end


@helper
def mixtures_part(block, j, rng):
    """The feature of the other set that a draw of mixture j is from."""
    ints = block.ints
    floats = block.floats
    o = block.o
    entries = ints[o + 2]
    starts = o + 4 + ints[o + 1] + 1 + entries
    low = ints[starts + j]
    high = ints[starts + j + 1] - 1
    sums = block.f + entries
    place = first_above(floats, sums + low, sums + high, uniform(rng) * floats[sums + high]) - sums
    return ints[starts + ints[o] + 1 + place]


@helper
def mixed_set(block):
    """The arrays of the other set."""
    ints = block.ints
    o = block.o
    first = o + 4 + ints[o + 1] + 1 + ints[o] + 1 + 2 * ints[o + 2]
    return Arrays(ints[first:], block.floats[block.f + 2 * ints[o + 2] :])


@inlined_helper
def spare_row(block, row, count):
    """The places of a row behind those that a block of mixtures may need; where they start."""
    spare = count + block.ints[block.o + 3]
    return Row(row.indices[spare:], row.values[spare:]), spare


@helper
def block_anchor(block, y, work):
    """What the block needs to know of y.

    The largest density there as a logarithm, 0 for kinds of plain values.
    """
    if block.kind == BOXES:
        return boxes_anchor(block, y, work)
    if block.kind == BANDS:
        return bands_anchor(block, y, work)
    if block.kind == TREES:
        return trees_anchor(block, y, work)
    return 0.0


@inlined_helper
def has_choices(kind):
    return kind in (TREES, BANDS)


@inlined_helper
def block_near(block, spot, row, count, work):
    """Write behind `count` places; their new number. Blocks with choices have their chances in
    place.
    """
    if block.kind == TABLE:
        end = table_row(block, spot.x, spot.a, row, count)
        if spot.m != 0.0:
            rescale(row.values, count, end, -spot.m)
        return end
    if block.kind == BOXES:
        return boxes_near(block, spot, row, count, work)
    i, j = chances_of(block)
    chances = work[i:j]
    if block.kind == BANDS:
        band = bands_place(block, spot, work)
        if band >= 0:
            return bands_row(block, band, spot, row, count, chances)
        return count
    return trees_row(block, spot, row, count, work, chances)


@helper
def block_state(block, j, rng, x):
    """Write a state of feature j to x; its action, or −1 for a block with choices."""
    if block.kind == TABLE:
        return table_draw(block, j, rng, x)
    if block.kind == BOXES:
        return boxes_draw(block.ints, block.o, j, rng, x)
    if block.kind == BANDS:
        bands_draw(block, j // choice_count(block.ints, choices_at(block)), rng, x)
    else:
        law = law_of_feature(block, j)
        draw_states(block.ints, block.floats, law, block.f, block.ints[block.o], rng, x)
    return np.int64(-1)


@helper
def block_draw(block, j, rng, x, work):
    a = block_state(block, j, rng, x)
    if a >= 0:
        return a
    c = choices_at(block)
    k = choice_of_feature(block, j)
    if choice_kind(block.ints, c, k) == FIXED_CHOICE:
        return choice_value(block.ints, c, k)
    i, _ = chances_of(block)
    out = work[i : i + block.ints[block.o + 1]]
    write_choice(block.ints, block.floats, block.o, block.f, c, k, x, out)
    return draw_choice(out, rng)


@inlined_helper
def block_at(features, b, w):
    """Block b of a set whose room starts at w."""
    ints = features.ints
    h = 1 + BLOCK_RECORD_SIZE * b
    return Block(
        ints,
        features.floats,
        ints[h + KIND],
        ints[h + FIRST],
        ints[h + INTS_AT],
        ints[h + FLOATS_AT],
        w + ints[h + ROOM_AT],
    )


@helper
def user_slot(ints, b):
    return ints[1 + BLOCK_RECORD_SIZE * b + SLOT]


@helper
def block_of(ints, j):
    """The block that has feature j."""
    b = ints[0] - 1
    while ints[1 + BLOCK_RECORD_SIZE * b + FIRST] > j:
        b -= 1
    return b


@helper
def unmixed_anchor(features, y, work, w):
    """The largest density at y as a logarithm, for a set that has no mixtures."""
    largest = -np.inf
    for b in range(features.ints[0]):
        largest = max(largest, block_anchor(block_at(features, b, w), y, work))
    return largest


@kernel(ANCHOR_SIGNATURE)
def anchor_of(ints, floats, y, work):
    """Prepare for rows near y; the logarithm of the unit for those at y."""
    features = Arrays(ints, floats)
    largest = -np.inf
    for b in range(ints[0]):
        block = block_at(features, b, 0)
        if block.kind == MIXTURES:
            largest = max(largest, unmixed_anchor(mixed_set(block), y, work, block.w))
        else:
            largest = max(largest, block_anchor(block, y, work))
    if -np.inf < largest < PLAIN_LOG_DENSITY:
        return largest
    return 0.0


@inlined_helper
def choose_and_near(block, spot, row, count, work):
    if has_choices(block.kind) and spot.changed >= 0:
        i, j = chances_of(block)
        c = choices_at(block)
        write_chances(block.ints, block.floats, block.o, block.f, c, spot.x, work[i:j])
    return block_near(block, spot, row, count, work)


@helper
def unmixed_near(features, spot, row, work, w):
    """`near_of` for a set that has no mixtures."""
    count = np.int64(0)
    for b in range(features.ints[0]):
        count = choose_and_near(block_at(features, b, w), spot, row, count, work)
    return count


@helper
def unmixed_draw(features, j, rng, x, work, w):
    """`draw_of` for a set that has no mixtures."""
    block = block_at(features, block_of(features.ints, j), w)
    return block_draw(block, j - block.first, rng, x, work)


@inlined_helper
def near_spot(features, spot, row, work):
    count = np.int64(0)
    for b in range(features.ints[0]):
        block = block_at(features, b, 0)
        if block.kind == MIXTURES:
            behind, spare = spare_row(block, row, count)
            number = unmixed_near(mixed_set(block), spot, behind, work, block.w)
            count = mixtures_row(block, row, count, spare, number)
        else:
            count = choose_and_near(block, spot, row, count, work)
    return count


@kernel(NEAR_SIGNATURE)
def near_of(ints, floats, y, x, coords, changed, m, a, indices, values, work):
    """Write the features that are positive at (x, a) and their values in units of e^m; their
    number.

    See `Spot` for the arguments between.
    """
    spot = Spot(y, x, coords, changed, m, a)
    return near_spot(Arrays(ints, floats), spot, Row(indices, values), work)


@kernel(DRAW_SIGNATURE)
def draw_of(ints, floats, j, rng, x, work):
    """Write a state drawn from feature j to x; its action."""
    block = block_at(Arrays(ints, floats), block_of(ints, j), 0)
    if block.kind == MIXTURES:
        part = mixtures_part(block, j - block.first, rng)
        return unmixed_draw(mixed_set(block), part, rng, x, work, block.w)
    return block_draw(block, j - block.first, rng, x, work)


@kernel(types.void(FEATURE_SET, INTS, INT, ROW, FLOATS, INTS))
def row_of(features, x, a, row, work, count):
    """Write the features that are positive at (x, a), their values and their number."""
    ints = features.ints
    floats = features.floats
    m = features.anchor(ints, floats, x, work)
    count[0] = features.near(ints, floats, x, x, count, 0, m, a, row.indices, row.values, work)
    if m != 0.0:
        rescale(row.values, 0, count[0], m)


@kernel(
    types.boolean(
        function_type(ANCHOR_SIGNATURE),
        function_type(NEAR_SIGNATURE),
        INTS,
        FLOATS,
        FLOATS,
        INTS,
        FLOATS,
    ),
    allocates=True,
)
def positive_part(anchor, near, ints, floats, theta, x, out):
    """Writes [u(x,·)]₊ with u = Φθ, normalised; whether there is any.

    Densities of any size: only ratios count.
    """
    places = row_places(ints)
    indices = np.empty(places, np.int64)
    values = np.empty(places, np.float64)
    work = np.empty(work_places(ints), np.float64)
    unit = anchor(ints, floats, x, work)
    total = 0.0
    for a in range(out.size):
        changed = -1
        if a == 0:
            changed = 0
        u = 0.0
        size = 0.0
        for k in range(near(ints, floats, x, x, indices, changed, unit, a, indices, values, work)):
            term = values[k] * theta[indices[k]]
            u += term
            size += abs(term)
        if u > ROUNDING_SHARE * size:
            out[a] = u
        else:
            out[a] = 0.0
        total += out[a]
    if not total > 0.0:
        return False
    for a in range(out.size):
        out[a] /= total
    return True


# What the functions of the user are put in between (dual/features/compiled.py), by address.


@kernel(INT(BLOCK_TYPE, SPOT_TYPE, ROW_TYPE, INT, FLOATS))
def near_in_block(block, spot, row, count, work):
    return block_near(block, spot, row, count, work)


@kernel(INT(BLOCK_TYPE, INT, RNG_WORDS, INTS))
def state_in_block(block, j, rng, x):
    return block_state(block, j, rng, x)


@kernel(types.void(INT, INTS, FLOATS, INTS, FLOATS))
def rule_of_choice(kind, ints, floats, x, out):
    write_rule(kind, ints, floats, x, out)
