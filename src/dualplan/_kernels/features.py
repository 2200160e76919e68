"""Feature sets as data: one set of compiled functions for all of them.

A feature is a probability distribution on pairs (x, a). Features come in blocks of one kind; a block answers

    row    which of its features are positive at (x, a), and how large, by look-up
    draw   a pair from one of its features

Blocks of all kinds lie one after the other in two flat arrays. The header of `ints` is the number of blocks, then for
each block its kind, the number of its first feature, where its fields start in `ints` and `floats`, and the number of
its first function of the user; last the number of features and the places that a row needs.

TABLE   any distributions on the pairs of a bounded box, from a sparse matrix
        ints: dim, actions, pairs, features, lower[dim], strides[dim], row starts, features by row, column starts,
        pairs by column
        floats: values by row, cumulative sums by column
BOXES   uniform on a product of intervals, one a coordinate, times an action
        ints: dim, actions, number of intervals[dim], lows, highs
BANDS   uniform on the states whose weighted sum of coordinates lies in an interval, times an action
        ints: dim, actions, bands, largest sum V, weights[dim], tops[dim], band of each sum 0..V or -1, lows, highs
        floats: the number of ways in which the coordinates i, ..., dim − 1 make each sum 0..V, for i = 0..dim; the
        number of states of each band
PRODUCTS  one law for each coordinate, times an action
        ints: dim, actions, products, where the law of each coordinate of each product starts, from here; a law: low,
        high (below low: geometric), where its numbers start in `floats`
        floats: of a geometric law its ratio, of others the probabilities of low..high and their cumulative sums
MIXTURES  mixtures of the features of another set, which has no mixtures itself: W of K mixtures and d features, sparse
        ints: K, d, entries of W, most mixtures positive at a pair, column starts, mixtures by column, row starts,
        features by row, the ints of the other set
        floats: values by column, cumulative sums by row, the floats of the other set
        A row of the other set is written behind the places of the block's own, which are merged from it.
USER    functions of the user, which `features/user.py` puts in
        ints: features, most positive at a pair, uniform numbers a draw, dim, actions, lower[dim], upper[dim]
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels.compiler import DRAW, ROW, helper, inlined_helper, kernel
from dualplan._kernels.philox import uniform

TABLE, BOXES, BANDS, PRODUCTS, MIXTURES, USER = range(6)
RECORD = 5  # numbers a block has in the header


@helper
def feature_count(ints):
    return ints[1 + RECORD * ints[0]]


@helper
def row_places(ints):
    return ints[2 + RECORD * ints[0]]


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
    dim, actions, pairs = ints[o], ints[o + 1], ints[o + 2]
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
    dim, actions, pairs, size = ints[o], ints[o + 1], ints[o + 2], ints[o + 3]
    starts = o + 4 + 2 * dim
    entries = ints[starts + pairs]
    columns = starts + pairs + 1 + entries
    low, high = ints[columns + j], ints[columns + j + 1] - 1
    sums = f + entries
    place = first_above(floats, sums + low, sums + high, uniform(rng) * floats[sums + high]) - sums
    pair = ints[columns + size + 1 + place]
    state = pair // actions
    for i in range(dim):
        x[i] = ints[o + 4 + i] + state // ints[o + 4 + dim + i]
        state %= ints[o + 4 + dim + i]
    return pair % actions


@helper
def boxes_row(ints, o, first, x, a, indices, values, count):
    dim, actions = ints[o], ints[o + 1]
    lows = o + 2 + dim
    total = np.int64(0)
    for i in range(dim):
        total += ints[o + 2 + i]
    box, density = np.int64(0), 1.0
    for i in range(dim):
        number = ints[o + 2 + i]
        place = np.int64(-1)
        for k in range(number):
            if ints[lows + k] <= x[i] <= ints[lows + total + k]:
                place = k
        if place < 0:
            return count
        box = box * number + place
        density /= ints[lows + total + place] - ints[lows + place] + 1
        lows += number
    indices[count], values[count] = first + box * actions + a, density
    return count + 1


@helper
def boxes_draw(ints, o, j, rng, x):
    dim, actions = ints[o], ints[o + 1]
    lows, total = o + 2 + dim, np.int64(0)
    for i in range(dim):
        total += ints[o + 2 + i]
    box = j // actions
    lows += total
    for i in range(dim - 1, -1, -1):
        number = ints[o + 2 + i]
        lows -= number
        place = box % number
        box //= number
        low, high = ints[lows + place], ints[lows + total + place]
        x[i] = low + np.int64(uniform(rng) * (high - low + 1))
    return j % actions


@helper
def bands_row(ints, floats, o, f, first, x, a, indices, values, count):
    dim, actions, most = ints[o], ints[o + 1], ints[o + 3]
    total = np.int64(0)
    for i in range(dim):
        if x[i] > ints[o + 4 + dim + i]:
            return count
        total += ints[o + 4 + i] * x[i]
    if total > most:
        return count
    band = ints[o + 4 + 2 * dim + total]
    if band < 0:
        return count
    indices[count] = first + band * actions + a
    values[count] = 1.0 / floats[f + (dim + 1) * (most + 1) + band]
    return count + 1


@helper
def bands_draw(ints, floats, o, f, j, rng, x):
    dim, actions, bands, most = ints[o], ints[o + 1], ints[o + 2], ints[o + 3]
    band = j // actions
    low = ints[o + 4 + 2 * dim + most + 1 + band]
    high = ints[o + 4 + 2 * dim + most + 1 + bands + band]
    u = uniform(rng) * floats[f + (dim + 1) * (most + 1) + band]
    rest = low
    while rest < high and u >= floats[f + rest]:
        u -= floats[f + rest]
        rest += 1
    for i in range(dim):
        weight, ways = ints[o + 4 + i], f + (i + 1) * (most + 1)
        u = uniform(rng) * floats[f + i * (most + 1) + rest]
        value, last = np.int64(0), np.int64(0)
        while value <= ints[o + 4 + dim + i] and value * weight <= rest:
            here = floats[ways + rest - value * weight]
            if here > 0.0:
                last = value
                if u < here:
                    break
                u -= here
            value += 1
        x[i] = last
        rest -= last * weight
    return j % actions


@helper
def law_density(ints, floats, law, f, value):
    low, high, at = ints[law], ints[law + 1], f + ints[law + 2]
    if value < low:
        return 0.0
    if high < low:
        return (1.0 - floats[at]) * floats[at] ** np.float64(value - low)
    return floats[at + value - low] if value <= high else 0.0


@helper
def law_draw(ints, floats, law, f, rng):
    low, high, at = ints[law], ints[law + 1], f + ints[law + 2]
    u = uniform(rng)
    if high < low:
        return low + np.int64(np.log(1.0 - u) / np.log(floats[at]))
    at += high - low + 1
    return low + first_above(floats, at, at + high - low, u * floats[at + high - low]) - at


@helper
def products_row(ints, floats, o, f, first, x, a, indices, values, count):
    dim, actions, products = ints[o], ints[o + 1], ints[o + 2]
    for p in range(products):
        density = 1.0
        for i in range(dim):
            density *= law_density(ints, floats, o + ints[o + 3 + p * dim + i], f, x[i])
            if density == 0.0:
                break
        if density > 0.0:
            indices[count], values[count] = first + p * actions + a, density
            count += 1
    return count


@helper
def products_draw(ints, floats, o, f, j, rng, x):
    dim, actions = ints[o], ints[o + 1]
    for i in range(dim):
        x[i] = law_draw(ints, floats, o + ints[o + 3 + j // actions * dim + i], f, rng)
    return j % actions


@helper
def add_column(ints, floats, rows, f, low, high, first, factor, indices, values, begin, end):
    """Merge the entries low..high − 1 of a column, times a factor, into sorted places begin..end − 1; the new end."""
    fresh, i = 0, begin
    for p in range(low, high):
        while i < end and indices[i] < first + ints[rows + p]:
            i += 1
        if i == end or indices[i] != first + ints[rows + p]:
            fresh += 1
    i, place = end - 1, end + fresh - 1
    for p in range(high - 1, low - 1, -1):
        k, value = first + ints[rows + p], factor * floats[f + p]
        while i >= begin and indices[i] > k:
            indices[place], values[place] = indices[i], values[i]
            i, place = i - 1, place - 1
        if i >= begin and indices[i] == k:
            value += values[i]
            i -= 1
        indices[place], values[place] = k, value
        place -= 1
    return end + fresh


@helper
def mixtures_row(ints, floats, o, f, first, indices, values, count, spare, number):
    """Mix the row of the other set that lies in the places from `spare` on."""
    starts = o + 4
    rows, end = starts + ints[o + 1] + 1, count
    for k in range(spare, spare + number):
        low, high = ints[starts + indices[k]], ints[starts + indices[k] + 1]
        end = add_column(ints, floats, rows, f, low, high, first, values[k], indices, values, count, end)
    return end


@helper
def mixtures_part(ints, floats, o, f, j, rng):
    """The feature of the other set that a draw of mixture j is from."""
    entries = ints[o + 2]
    starts = o + 4 + ints[o + 1] + 1 + entries
    low, high = ints[starts + j], ints[starts + j + 1] - 1
    sums = f + entries
    place = first_above(floats, sums + low, sums + high, uniform(rng) * floats[sums + high]) - sums
    return ints[starts + ints[o] + 1 + place]


@helper
def mixed_set(ints, o, f):
    """Where the arrays of the other set start."""
    return o + 4 + ints[o + 1] + 1 + ints[o] + 1 + 2 * ints[o + 2], f + 2 * ints[o + 2]


@inlined_helper
def block_row(kind, ints, floats, o, f, first, x, a, indices, values, count):
    """Write behind `count` places; their new number."""
    if kind == TABLE:
        return table_row(ints, floats, o, f, first, x, a, indices, values, count)
    if kind == BOXES:
        return boxes_row(ints, o, first, x, a, indices, values, count)
    if kind == BANDS:
        return bands_row(ints, floats, o, f, first, x, a, indices, values, count)
    return products_row(ints, floats, o, f, first, x, a, indices, values, count)


@helper
def block_draw(kind, ints, floats, o, f, j, rng, x):
    if kind == TABLE:
        return table_draw(ints, floats, o, f, j, rng, x)
    if kind == BOXES:
        return boxes_draw(ints, o, j, rng, x)
    if kind == BANDS:
        return bands_draw(ints, floats, o, f, j, rng, x)
    return products_draw(ints, floats, o, f, j, rng, x)


@inlined_helper
def record(ints, b):
    """Kind, first feature and places of a block."""
    h = 1 + RECORD * b
    return ints[h], ints[h + 1], ints[h + 2], ints[h + 3]


@helper
def user_slot(ints, b):
    return ints[1 + RECORD * b + 4]


@helper
def block_of(ints, j):
    """The block that has feature j."""
    b = ints[0] - 1
    while ints[1 + RECORD * b + 1] > j:
        b -= 1
    return b


@helper
def unmixed_row(ints, floats, x, a, indices, values):
    """`row_of` for a set that has no mixtures."""
    count = np.int64(0)
    for b in range(ints[0]):
        kind, first, o, f = record(ints, b)
        count = block_row(kind, ints, floats, o, f, first, x, a, indices, values, count)
    return count


@helper
def unmixed_draw(ints, floats, j, rng, x):
    """`draw_of` for a set that has no mixtures."""
    kind, first, o, f = record(ints, block_of(ints, j))
    return block_draw(kind, ints, floats, o, f, j - first, rng, x)


@kernel(ROW)
def row_of(ints, floats, x, a, indices, values):
    """Write the features that are positive at (x, a) and their values; their number."""
    count = np.int64(0)
    for b in range(ints[0]):
        kind, first, o, f = record(ints, b)
        if kind == MIXTURES:
            spare = count + ints[o + 3]
            inner_ints, inner_floats = mixed_set(ints, o, f)
            number = unmixed_row(ints[inner_ints:], floats[inner_floats:], x, a, indices[spare:], values[spare:])
            count = mixtures_row(ints, floats, o, f, first, indices, values, count, spare, number)
        else:
            count = block_row(kind, ints, floats, o, f, first, x, a, indices, values, count)
    return count


@kernel(DRAW)
def draw_of(ints, floats, j, rng, x):
    """Write a state drawn from feature j to x; its action."""
    kind, first, o, f = record(ints, block_of(ints, j))
    if kind == MIXTURES:
        part = mixtures_part(ints, floats, o, f, j - first, rng)
        inner_ints, inner_floats = mixed_set(ints, o, f)
        return unmixed_draw(ints[inner_ints:], floats[inner_floats:], part, rng, x)
    return block_draw(kind, ints, floats, o, f, j - first, rng, x)
