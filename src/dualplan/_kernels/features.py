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

import numpy as np
from numba import types

from dualplan._kernels.choices import (
    FIXED,
    chance_of,
    choice_count,
    choice_kind,
    choice_value,
    draw_choice,
    write_chances,
    write_choice,
)
from dualplan._kernels.compiler import (
    ANCHOR,
    DRAW,
    FLOATS,
    INT,
    INTS,
    NEAR,
    function_type,
    helper,
    inlined_helper,
    kernel,
)
from dualplan._kernels.philox import uniform
from dualplan._kernels.trees import draw_states, log_density, log_ratio

TABLE, BOXES, BANDS, TREES, MIXTURES, USER = range(6)
RECORD = 6  # numbers a block has in the header
PLAIN = -300.0  # logarithm of the largest density at a state from which on values are plain


@helper
def feature_count(ints):
    return ints[1 + RECORD * ints[0]]


@helper
def row_places(ints):
    return ints[2 + RECORD * ints[0]]


@helper
def work_places(ints):
    return ints[3 + RECORD * ints[0]]


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
def table_row(ints, floats, o, f, first, x, a, indices, values, count):
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
        indices[count] = first + ints[features + k]
        values[count] = floats[f + k]
        count += 1
    return count


@helper
def table_draw(ints, floats, o, f, j, rng, x):
    dim = ints[o]
    actions = ints[o + 1]
    pairs = ints[o + 2]
    size = ints[o + 3]
    starts = o + 4 + 2 * dim
    entries = ints[starts + pairs]
    columns = starts + pairs + 1 + entries
    low = ints[columns + j]
    high = ints[columns + j + 1] - 1
    sums = f + entries
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
def boxes_anchor(ints, floats, o, f, y, work, w):
    """The largest density at y as a logarithm."""
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
            density -= floats[f + at + place]
    work[w] = outside
    work[w + 1] = box
    work[w + 2] = density
    if outside == 0:
        return density
    return -np.inf


@helper
def boxes_near(
    ints, floats, o, f, first, y, x, coords, changed, m, a, indices, values, count, work, w
):
    dim = ints[o]
    total = ints[o + 2]
    lows = o + 3 + 3 * dim
    outside = np.int64(work[w])
    box = np.int64(work[w + 1])
    density = work[w + 2]
    for k in range(changed):
        i = coords[k]
        number = ints[o + 3 + i]
        at = ints[o + 3 + dim + i]
        stride = ints[o + 3 + 2 * dim + i]
        old = interval_of(ints, lows + at, number, total, y[i])
        new = interval_of(ints, lows + at, number, total, x[i])
        outside += np.int64(new < 0) - np.int64(old < 0)
        if old >= 0:
            box -= stride * old
            density += floats[f + at + old]
        if new >= 0:
            box += stride * new
            density -= floats[f + at + new]
    if outside > 0:
        return count
    indices[count] = first + box * ints[o + 1] + a
    values[count] = np.exp(density - m)
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
def bands_anchor(ints, floats, o, f, y, work, w):
    """The largest density at y as a logarithm."""
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
        return -np.log(floats[f + (dim + 1) * (most + 1) + band])
    return -np.inf


@helper
def bands_place(ints, o, y, x, coords, changed, work, w):
    """The band of x, or −1."""
    dim = ints[o]
    most = ints[o + 3]
    above = np.int64(work[w])
    total = np.int64(work[w + 1])
    for k in range(changed):
        i = coords[k]
        top = ints[o + 5 + dim + i]
        above += np.int64(x[i] > top) - np.int64(y[i] > top)
        total += ints[o + 5 + i] * (min(x[i], top) - min(y[i], top))
    if above == 0 and total <= most:
        return ints[o + 5 + 2 * dim + total]
    return np.int64(-1)


@helper
def bands_row(ints, floats, o, f, first, band, m, a, indices, values, count, chances):
    """The features of a band, given the chances of the actions under each choice."""
    dim = ints[o]
    most = ints[o + 3]
    c = o + ints[o + 4]
    density = 1.0 / floats[f + (dim + 1) * (most + 1) + band]
    if m != 0.0:
        density = np.exp(np.log(density) - m)
    number = choice_count(ints, c)
    for k in range(number):
        chance = chance_of(ints, c, k, a, chances)
        if chance > 0.0:
            indices[count] = first + band * number + k
            values[count] = density * chance
            count += 1
    return count


@helper
def bands_draw(ints, floats, o, f, band, rng, x):
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
def trees_anchor(ints, floats, o, f, y, work, w):
    """The largest density at y as a logarithm, over the laws that are positive there."""
    dim = ints[o]
    laws = ints[o + 2]
    largest = -np.inf
    for law in range(laws):
        total, zeros = log_density(ints, floats, o + ints[o + 5 + law], f, y, dim)
        work[w + 2 * law] = total
        work[w + 2 * law + 1] = zeros
        if zeros == 0:
            largest = max(largest, total)
    return largest


@helper
def trees_row(
    ints, floats, o, f, first, y, x, coords, changed, m, a, indices, values, count, work, w, chances
):
    laws = ints[o + 2]
    c = o + ints[o + 4]
    starts = o + 5 + laws
    choice = starts + laws + 1
    for law in range(laws):
        log = work[w + 2 * law]
        zeros = np.int64(work[w + 2 * law + 1])
        if changed > 0:
            change, more = log_ratio(ints, floats, o + ints[o + 5 + law], f, y, x, coords, changed)
            log = log + change
            zeros = zeros + more
        if zeros > 0:
            continue
        density = np.exp(log - m)
        for j in range(ints[starts + law], ints[starts + law + 1]):
            chance = chance_of(ints, c, ints[choice + j], a, chances)
            if chance > 0.0:
                indices[count] = first + j
                values[count] = density * chance
                count += 1
    return count


@helper
def law_of_feature(ints, o, j):
    """Where the law of a feature starts."""
    laws = ints[o + 2]
    law = np.int64(0)
    while ints[o + 5 + laws + law + 1] <= j:
        law += 1
    return o + ints[o + 5 + law]


@helper
def choice_of_feature(ints, kind, o, j):
    """Which of the block's choices feature j has."""
    if kind == TREES:
        return ints[o + 5 + 2 * ints[o + 2] + 1 + j]
    return j % choice_count(ints, o + ints[o + 4])


@inlined_helper
def chances_of(ints, kind, o, w):
    """From where to where a block with choices has a place for each action under each choice."""
    at = w + (2 * ints[o + 2] if kind == TREES else 2)
    return at, at + ints[o + 1] * choice_count(ints, o + ints[o + 4])


@helper
def add_column(ints, floats, rows, f, low, high, first, factor, indices, values, begin, end):
    """Merge the entries low..high − 1 of a column, times a factor, into sorted places begin..end −
    1; the new end.
    """
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
        value = factor * floats[f + p]
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
def mixtures_row(ints, floats, o, f, first, indices, values, count, spare, number):
    """Mix the row of the other set that lies in the places from `spare` on."""
    starts = o + 4
    rows = starts + ints[o + 1] + 1
    end = count
    for k in range(spare, spare + number):
        low = ints[starts + indices[k]]
        high = ints[starts + indices[k] + 1]
        end = add_column(
            ints, floats, rows, f, low, high, first, values[k], indices, values, count, end
        )
    return end


@helper
def mixtures_part(ints, floats, o, f, j, rng):
    """The feature of the other set that a draw of mixture j is from."""
    entries = ints[o + 2]
    starts = o + 4 + ints[o + 1] + 1 + entries
    low = ints[starts + j]
    high = ints[starts + j + 1] - 1
    sums = f + entries
    place = first_above(floats, sums + low, sums + high, uniform(rng) * floats[sums + high]) - sums
    return ints[starts + ints[o] + 1 + place]


@helper
def mixed_set(ints, o, f):
    """Where the arrays of the other set start."""
    return o + 4 + ints[o + 1] + 1 + ints[o] + 1 + 2 * ints[o + 2], f + 2 * ints[o + 2]


@helper
def block_anchor(kind, ints, floats, o, f, y, work, w):
    """What the block needs to know of y.

    The largest density there as a logarithm, 0 for kinds of plain values.
    """
    if kind == BOXES:
        return boxes_anchor(ints, floats, o, f, y, work, w)
    if kind == BANDS:
        return bands_anchor(ints, floats, o, f, y, work, w)
    if kind == TREES:
        return trees_anchor(ints, floats, o, f, y, work, w)
    return 0.0


@inlined_helper
def has_choices(kind):
    return kind in (TREES, BANDS)


@inlined_helper
def block_near(
    kind, ints, floats, o, f, first, y, x, coords, changed, m, a, indices, values, count, work, w
):
    """Write behind `count` places; their new number. Blocks with choices have their chances in
    place.

    `changed` below 0 says that x = y.
    """
    if kind == TABLE:
        end = table_row(ints, floats, o, f, first, x, a, indices, values, count)
        if m != 0.0:
            rescale(values, count, end, -m)
        return end
    if kind == BOXES:
        return boxes_near(
            ints, floats, o, f, first, y, x, coords, changed, m, a, indices, values, count, work, w
        )
    i, j = chances_of(ints, kind, o, w)
    chances = work[i:j]
    if kind == BANDS:
        band = bands_place(ints, o, y, x, coords, changed, work, w)
        if band >= 0:
            return bands_row(ints, floats, o, f, first, band, m, a, indices, values, count, chances)
        return count
    return trees_row(
        ints,
        floats,
        o,
        f,
        first,
        y,
        x,
        coords,
        changed,
        m,
        a,
        indices,
        values,
        count,
        work,
        w,
        chances,
    )


@helper
def block_state(kind, ints, floats, o, f, j, rng, x):
    """Write a state of feature j to x; its action, or −1 for a block with choices."""
    if kind == TABLE:
        return table_draw(ints, floats, o, f, j, rng, x)
    if kind == BOXES:
        return boxes_draw(ints, o, j, rng, x)
    if kind == BANDS:
        bands_draw(ints, floats, o, f, j // choice_count(ints, o + ints[o + 4]), rng, x)
    else:
        draw_states(ints, floats, law_of_feature(ints, o, j), f, ints[o], rng, x)
    return np.int64(-1)


@helper
def block_draw(kind, ints, floats, o, f, j, rng, x, work, w):
    a = block_state(kind, ints, floats, o, f, j, rng, x)
    if a >= 0:
        return a
    c = o + ints[o + 4]
    k = choice_of_feature(ints, kind, o, j)
    if choice_kind(ints, c, k) == FIXED:
        return choice_value(ints, c, k)
    i, _ = chances_of(ints, kind, o, w)
    out = work[i : i + ints[o + 1]]
    write_choice(ints, floats, o, f, c, k, x, out)
    return draw_choice(out, rng)


@inlined_helper
def record(ints, b):
    """Kind, first feature and places of a block."""
    h = 1 + RECORD * b
    return ints[h], ints[h + 1], ints[h + 2], ints[h + 3]


@helper
def user_slot(ints, b):
    return ints[1 + RECORD * b + 4]


@inlined_helper
def block_room(ints, b):
    return ints[1 + RECORD * b + 5]


@helper
def block_of(ints, j):
    """The block that has feature j."""
    b = ints[0] - 1
    while ints[1 + RECORD * b + 1] > j:
        b -= 1
    return b


@helper
def unmixed_anchor(ints, floats, y, work, w):
    """The largest density at y as a logarithm, for a set that has no mixtures."""
    largest = -np.inf
    for b in range(ints[0]):
        kind, _, o, f = record(ints, b)
        largest = max(
            largest, block_anchor(kind, ints, floats, o, f, y, work, w + block_room(ints, b))
        )
    return largest


@kernel(ANCHOR)
def anchor_of(ints, floats, y, work):
    """Prepare for rows near y; the logarithm of the unit for those at y."""
    largest = -np.inf
    for b in range(ints[0]):
        kind, _, o, f = record(ints, b)
        w = block_room(ints, b)
        if kind == MIXTURES:
            i, k = mixed_set(ints, o, f)
            largest = max(largest, unmixed_anchor(ints[i:], floats[k:], y, work, w))
        else:
            largest = max(largest, block_anchor(kind, ints, floats, o, f, y, work, w))
    if -np.inf < largest < PLAIN:
        return largest
    return 0.0


@inlined_helper
def choose_and_near(
    kind, ints, floats, o, f, first, y, x, coords, changed, m, a, indices, values, count, work, w
):
    if has_choices(kind) and changed >= 0:
        i, j = chances_of(ints, kind, o, w)
        write_chances(ints, floats, o, f, o + ints[o + 4], x, work[i:j])
    return block_near(
        kind,
        ints,
        floats,
        o,
        f,
        first,
        y,
        x,
        coords,
        changed,
        m,
        a,
        indices,
        values,
        count,
        work,
        w,
    )


@helper
def unmixed_near(ints, floats, y, x, coords, changed, m, a, indices, values, work, w):
    """`near_of` for a set that has no mixtures."""
    count = np.int64(0)
    for b in range(ints[0]):
        kind, first, o, f = record(ints, b)
        count = choose_and_near(
            kind,
            ints,
            floats,
            o,
            f,
            first,
            y,
            x,
            coords,
            changed,
            m,
            a,
            indices,
            values,
            count,
            work,
            w + block_room(ints, b),
        )
    return count


@helper
def unmixed_draw(ints, floats, j, rng, x, work, w):
    """`draw_of` for a set that has no mixtures."""
    b = block_of(ints, j)
    kind, first, o, f = record(ints, b)
    return block_draw(kind, ints, floats, o, f, j - first, rng, x, work, w + block_room(ints, b))


@inlined_helper
def near(ints, floats, y, x, coords, changed, m, a, indices, values, work):
    count = np.int64(0)
    for b in range(ints[0]):
        kind, first, o, f = record(ints, b)
        w = block_room(ints, b)
        if kind == MIXTURES:
            spare = count + ints[o + 3]
            i, k = mixed_set(ints, o, f)
            number = unmixed_near(
                ints[i:],
                floats[k:],
                y,
                x,
                coords,
                changed,
                m,
                a,
                indices[spare:],
                values[spare:],
                work,
                w,
            )
            count = mixtures_row(ints, floats, o, f, first, indices, values, count, spare, number)
        else:
            count = choose_and_near(
                kind,
                ints,
                floats,
                o,
                f,
                first,
                y,
                x,
                coords,
                changed,
                m,
                a,
                indices,
                values,
                count,
                work,
                w,
            )
    return count


@kernel(NEAR)
def near_of(ints, floats, y, x, coords, changed, m, a, indices, values, work):
    """Write the features that are positive at (x, a) and their values in units of e^m; their
    number.

    x differs from y, where the features are anchored, at the first `changed` of the coordinates
    `coords`. −1 says that x = y, and that the call before was for the same state.
    """
    return near(ints, floats, y, x, coords, changed, m, a, indices, values, work)


@kernel(DRAW)
def draw_of(ints, floats, j, rng, x, work):
    """Write a state drawn from feature j to x; its action."""
    b = block_of(ints, j)
    kind, first, o, f = record(ints, b)
    w = block_room(ints, b)
    if kind == MIXTURES:
        part = mixtures_part(ints, floats, o, f, j - first, rng)
        i, k = mixed_set(ints, o, f)
        return unmixed_draw(ints[i:], floats[k:], part, rng, x, work, w)
    return block_draw(kind, ints, floats, o, f, j - first, rng, x, work, w)


@kernel(
    types.void(
        function_type(ANCHOR),
        function_type(NEAR),
        INTS,
        FLOATS,
        INTS,
        INT,
        INTS,
        FLOATS,
        FLOATS,
        INTS,
    )
)
def row_of(anchor, near, ints, floats, x, a, indices, values, work, count):
    """Write the features that are positive at (x, a), their values and their number."""
    m = anchor(ints, floats, x, work)
    count[0] = near(ints, floats, x, x, count, 0, m, a, indices, values, work)
    if m != 0.0:
        rescale(values, 0, count[0], m)
