"""Sweeps over all states of a bounded box: Bellman operators without a table of transitions.

A sweep covers the states first, ..., last − 1 in the order of `Box.index`, so that threads can
share one. It reads the values V of all states, and with D = L V − V, or D = L_π V − V, where

    optimal   (L V)(x) = min_a [ ℓ(x,a) + γ Σ_x' P(x'|x,a) V(x') ]
    fixed     (L_π V)(x) = Σ_a π(a|x) [ ℓ(x,a) + γ Σ_x' P(x'|x,a) V(x') ]

it writes V + τ·D to `out` and the least and the greatest entry of D to `ends`. `chain_rows` writes
the rows of P_π, for methods that need the chain as a sparse matrix, `pair_rows` those of P.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    COUNTS_SIGNATURE,
    FLOAT,
    FLOAT_ROWS,
    FLOATS,
    INT,
    INTS,
    allocating_helper,
    group,
    helper,
    kernel,
)
from dualplan._kernels.layouts import BOUNDS, GRID, LAW, RULE, TALLIES
from dualplan.core.types import Floats, Ints


class Update(NamedTuple):
    """γ, τ, the values V that a sweep reads, those that it writes, and the minimising actions
    (empty: not wanted).
    """

    gamma: float
    damping: float
    values: Floats
    out: Floats
    best: Ints


class ChainRows(NamedTuple):
    """Rows of a sparse matrix one after the other, where each ends, and its loss."""

    columns: Ints
    entries: Floats
    ends: Ints
    losses: Floats


class PairList(NamedTuple):
    """The number of the state and the action of each pair."""

    states: Ints
    actions: Ints


class LawRoom(NamedTuple):
    """A state, and where the law at it is listed."""

    x: Ints
    states: Ints
    probabilities: Floats


UPDATE = group(Update, FLOAT, FLOAT, FLOATS, FLOATS, INTS)
CHAIN_ROWS = group(ChainRows, INTS, FLOATS, INTS, FLOATS)
PAIR_LIST = group(PairList, INTS, INTS)


@allocating_helper
def law_room(law, dim):
    return LawRoom(
        np.empty(dim, np.int64),
        np.empty((law.outcomes, dim), np.int64),
        np.empty(law.outcomes, np.float64),
    )


@helper
def first_state(box, index, x):
    for i in range(x.size - 1, -1, -1):
        width = box.upper[i] - box.lower[i] + 1
        x[i] = box.lower[i] + index % width
        index //= width


@helper
def next_state(box, x):
    for i in range(x.size - 1, -1, -1):
        if x[i] < box.upper[i]:
            x[i] += 1
            return
        x[i] = box.lower[i]


@helper
def number_of(x, grid):
    """The number of a state, or −1 if it lies outside the box."""
    index = np.int64(0)
    for i in range(grid.lower.size):
        if x[i] < grid.lower[i] or x[i] > grid.upper[i]:
            return np.int64(-1)
        index += (x[i] - grid.lower[i]) * grid.strides[i]
    return index


# A law that leaves the box or does not sum to 1, or a loss that is not finite, makes a value that
# is not finite, and a sweep stops at such a state; sums within rounding of 1 are divided out.


@helper
def expected(room, count, grid, values):
    total = 0.0
    mass = 0.0
    for k in range(count):
        index = number_of(room.states[k], grid)
        if index < 0:
            return np.nan
        total += room.probabilities[k] * values[index]
        mass += room.probabilities[k]
    if abs(mass - 1.0) <= 1e-9:
        return total / mass
    return np.nan


@helper
def list_law(law, room, a):
    """List the next states under action a; their number."""
    return law.forward(law.ints, law.floats, room.x, a, room.states, room.probabilities)


@helper
def note(ends, difference):
    ends[0] = min(ends[0], difference)
    ends[1] = max(ends[1], difference)


@kernel(INT(LAW, GRID, UPDATE, FLOATS, INT, INT), allocates=True)
def optimal(law, grid, update, ends, first, last):
    """Sweep with L.

    -1, or the number of a state with no action.
    """
    room = law_room(law, grid.lower.size)
    x = room.x
    values = update.values
    first_state(grid, first, x)
    for index in range(first, last):
        least = np.inf
        action = np.int64(-1)
        for a in range(law.actions):
            if law.allowed(law.ints, law.floats, x, a):
                count = list_law(law, room, a)
                q = law.loss(law.ints, law.floats, x, a) + update.gamma * expected(
                    room, count, grid, values
                )
                if not np.isfinite(q):
                    return index
                if q < least:
                    least = q
                    action = a
        if action < 0:
            return index
        difference = least - values[index]
        update.out[index] = values[index] + update.damping * difference
        note(ends, difference)
        if update.best.size > 0:
            update.best[index] = action
        next_state(grid, x)
    return np.int64(-1)


@helper
def expected_new(room, count, grid, update, first, index):
    """As `expected`, with the new values of the states first, ..., index − 1."""
    total = 0.0
    mass = 0.0
    for k in range(count):
        target = number_of(room.states[k], grid)
        if target < 0:
            return np.nan
        if first <= target < index:
            value = update.out[target]
        else:
            value = update.values[target]
        total += room.probabilities[k] * value
        mass += room.probabilities[k]
    if abs(mass - 1.0) <= 1e-9:
        return total / mass
    return np.nan


@kernel(INT(LAW, GRID, UPDATE, FLOATS, INT, INT), allocates=True)
def gauss_seidel(law, grid, update, ends, first, last):
    """Sweep with L where each state sees the new values of those before it, from `first` on.

    Otherwise as `optimal`, undamped and without the actions.
    """
    room = law_room(law, grid.lower.size)
    x = room.x
    first_state(grid, first, x)
    for index in range(first, last):
        least = np.inf
        for a in range(law.actions):
            if law.allowed(law.ints, law.floats, x, a):
                count = list_law(law, room, a)
                value = expected_new(room, count, grid, update, first, index)
                q = law.loss(law.ints, law.floats, x, a) + update.gamma * value
                if not np.isfinite(q):
                    return index
                least = min(least, q)
        if least == np.inf:
            return index
        update.out[index] = least
        note(ends, least - update.values[index])
        next_state(grid, x)
    return np.int64(-1)


@kernel(INT(LAW, RULE, GRID, UPDATE, FLOATS, INT, INT), allocates=True)
def fixed(law, rule, grid, update, ends, first, last):
    """Sweep with L_π; -1, or the number of a state where π is no distribution."""
    room = law_room(law, grid.lower.size)
    x = room.x
    values = update.values
    row = np.empty(law.actions, np.float64)
    first_state(grid, first, x)
    for index in range(first, last):
        rule.act(rule.ints, rule.floats, x, row)
        total = 0.0
        mass = 0.0
        for a in range(law.actions):
            if not may_act(law, x, a, row[a]):
                return index
            mass += row[a]
            if row[a] > 0.0:
                count = list_law(law, room, a)
                q = law.loss(law.ints, law.floats, x, a) + update.gamma * expected(
                    room, count, grid, values
                )
                total += row[a] * q
        if abs(mass - 1.0) > 1e-9 or not np.isfinite(total):
            return index
        difference = total / mass - values[index]
        update.out[index] = values[index] + update.damping * difference
        note(ends, difference)
        next_state(grid, x)
    return np.int64(-1)


@helper
def may_act(law, x, a, chance):
    """Whether an action may have this probability."""
    return chance >= 0.0 and (chance == 0.0 or law.allowed(law.ints, law.floats, x, a))


@kernel(INT(LAW, RULE, GRID, CHAIN_ROWS, INT, INT), allocates=True)
def chain_rows(law, rule, grid, rows, first, last):
    """Write the rows first, ..., last − 1 of P_π, one after the other, and their losses.

    -1, or a state at fault.
    """
    columns = rows.columns
    entries = rows.entries
    room = law_room(law, grid.lower.size)
    x = room.x
    row = np.empty(law.actions, np.float64)
    first_state(grid, first, x)
    filled = 0
    for index in range(first, last):
        rule.act(rule.ints, rule.floats, x, row)
        total = 0.0
        mass = 0.0
        start = filled
        for a in range(law.actions):
            if not may_act(law, x, a, row[a]):
                return index
            if row[a] > 0.0:
                total += row[a] * law.loss(law.ints, law.floats, x, a)
                count = list_law(law, room, a)
                sum_of_law = 0.0
                for k in range(count):
                    columns[filled] = number_of(room.states[k], grid)
                    if columns[filled] < 0:
                        return index
                    entries[filled] = row[a] * room.probabilities[k]
                    sum_of_law += room.probabilities[k]
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
        rows.losses[index - first] = total / mass
        rows.ends[index - first] = filled
        next_state(grid, x)
    return np.int64(-1)


@kernel(INT(LAW, GRID, CHAIN_ROWS, PAIR_LIST, INT, INT), allocates=True)
def pair_rows(law, grid, rows, pairs, first, last):
    """Write the rows of P of the pairs of the states first, ..., last − 1.

    Their number, or −1 − a state at fault.
    """
    columns = rows.columns
    losses = rows.losses
    room = law_room(law, grid.lower.size)
    x = room.x
    first_state(grid, first, x)
    written = 0
    filled = 0
    for index in range(first, last):
        for a in range(law.actions):
            if not law.allowed(law.ints, law.floats, x, a):
                continue
            count = list_law(law, room, a)
            mass = 0.0
            for k in range(count):
                columns[filled + k] = number_of(room.states[k], grid)
                mass += room.probabilities[k]
                if columns[filled + k] < 0:
                    return -1 - index
            losses[written] = law.loss(law.ints, law.floats, x, a)
            if abs(mass - 1.0) > 1e-9 or not np.isfinite(losses[written]):
                return -1 - index
            for k in range(count):
                rows.entries[filled + k] = room.probabilities[k] / mass
            filled += count
            pairs.states[written] = index
            pairs.actions[written] = a
            rows.ends[written] = filled
            written += 1
        if written == 0 or pairs.states[written - 1] != index:
            return -1 - index
        next_state(grid, x)
    return written


@helper
def sums_of(tallies, x, a, out):
    """What a simulation would add up in one step from (x, a), in expectation: step, loss,
    coordinates, counters.
    """
    n = x.size
    out[0] = 1.0
    out[1] = tallies.loss(tallies.ints, tallies.floats, x, a)
    for i in range(n):
        out[2 + i] = x[i]
    if out.size > 2 + n:
        tallies.counts(tallies.ints, tallies.floats, x, a, out[2 + n :])


@kernel(types.void(TALLIES, BOUNDS, PAIR_LIST, FLOAT_ROWS), allocates=True)
def pair_sums(tallies, box, pairs, out):
    """`sums_of` each pair, in a row of its own."""
    x = np.empty(box.lower.size, np.int64)
    for p in range(pairs.states.size):
        first_state(box, pairs.states[p], x)
        sums_of(tallies, x, pairs.actions[p], out[p])


@kernel(types.void(TALLIES, RULE, BOUNDS, INT, INTS, FLOATS, FLOATS), allocates=True)
def policy_sums(tallies, rule, box, actions, states_of, weights, out):
    """Σ weight(x)·π(a|x)·`sums_of` (x, a)."""
    x = np.empty(box.lower.size, np.int64)
    row = np.empty(actions, np.float64)
    sums = np.zeros(out.size, np.float64)
    for k in range(states_of.size):
        first_state(box, states_of[k], x)
        rule.act(rule.ints, rule.floats, x, row)
        for a in range(actions):
            if row[a] > 0.0:
                sums_of(tallies, x, a, sums)
                for i in range(out.size):
                    out[i] += weights[k] * row[a] * sums[i]


@kernel(types.void(RULE, BOUNDS, INTS, FLOAT_ROWS), allocates=True)
def policy_rows(rule, box, states_of, out):
    """π(·|x) of each state, in a row of its own."""
    x = np.empty(box.lower.size, np.int64)
    for k in range(states_of.size):
        first_state(box, states_of[k], x)
        rule.act(rule.ints, rule.floats, x, out[k])


@kernel(types.void(LAW, BOUNDS, FLOAT_ROWS), allocates=True)
def all_losses(law, box, out):
    """ℓ(x, a) of all states, one a row; not a number where the action is not allowed."""
    x = np.empty(box.lower.size, np.int64)
    first_state(box, np.int64(0), x)
    for k in range(out.shape[0]):
        for a in range(out.shape[1]):
            if law.allowed(law.ints, law.floats, x, a):
                out[k, a] = law.loss(law.ints, law.floats, x, a)
            else:
                out[k, a] = np.nan
        next_state(box, x)


@kernel(COUNTS_SIGNATURE)
def no_counts(mi, mf, x, a, out):
    return
