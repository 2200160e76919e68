"""Policies that look one step ahead around the functions of a model, whatever the values that they
look at.

    q(x,a) = ℓ(x,a) + Σ_j p_j·(what the step adds to column j) + γ Σ_y P(y|x,a) V(y)

with V any compiled function of states and prices p on the model's columns, if there are any. States
beyond given numbers are looked at as if they were there. Data of a look-ahead:

    ints   [outcomes at most, sizes of the model's two arrays, number of prices, room of the values,
              1 or 0 for each coordinate that V sees or not, the largest number of each at which to
              look, the model's ints, the values' ints]
    floats   [γ, the prices, the model's floats, the values' floats]

Outcomes of different actions are mostly the same states, so each is valued once: states that V
cannot tell apart are looked up by a key of the coordinates that it sees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    COUNTS_SIGNATURE,
    FLOAT_ROWS,
    FLOATS,
    FORWARD_SIGNATURE,
    INTS,
    LOSS_SIGNATURE,
    VALUE_SIGNATURE,
    Kernel,
    copy,
    function_type,
    helper,
    kernel,
    made_once,
    user_kernel,
)
from dualplan.core.types import Floats, Ints

LOOK_AHEAD_HEADER_SIZE = 5
LOOK_AHEAD_ROWS = 3  # for each action: whether it is looked at, its q, the size of its terms
REMEMBERED_OUTCOMES = 256  # outcomes that a look-ahead remembers at most
# of the sum of absolute terms: actions that differ by no more than rounding are ties
ROUNDING_SHARE = 1e-12


class Memory(NamedTuple):
    """Outcomes of a step that were valued: states, their keys, their values and the sums of
    absolute terms of these; and a table of places among them, found by the key, −1 for none.
    """

    states: Ints
    keys: Ints
    values: Floats
    terms: Floats
    slots: Ints


@helper
def memory_for(outcomes):
    """How many of so many outcomes are remembered, and how many slots find them quickly."""
    room = min(outcomes, REMEMBERED_OUTCOMES)
    slots = 1
    while slots < 2 * room:
        slots *= 2
    return room, slots


@helper
def remembered(seen, x, memory):
    """The place in memory of a state that the values cannot tell from x, or −1; its key; and the
    slot where it is, or would be, found.
    """
    key = 0
    for i in range(x.size):
        if seen[i]:
            key = key * 1_000_003 + x[i]  # overflow wraps around, which a key may
    last = memory.slots.size - 1
    slot = (key ^ (key >> 20) ^ (key >> 40)) & last
    while memory.slots[slot] >= 0:
        k = memory.slots[slot]
        if memory.keys[k] == key:
            differing = 0
            for i in range(x.size):
                differing += seen[i] and memory.states[k, i] != x[i]
            if differing == 0:
                return k, key, slot
        slot = (slot + 1) & last
    return -1, key, slot


@helper
def remember(x, key, slot, held, memory):
    """The place for x in memory, which holds so many, and how many then; beyond what it has room
    for, the last place is used again, and not found.
    """
    k = held
    if held < memory.keys.size:
        memory.slots[slot] = held
        held += 1
    else:
        k = held - 1
    memory.keys[k] = key
    copy(memory.states[k], x)
    return k, held


@kernel(
    types.void(
        function_type(LOSS_SIGNATURE),
        function_type(FORWARD_SIGNATURE),
        function_type(COUNTS_SIGNATURE),
        function_type(VALUE_SIGNATURE),
        INTS,
        FLOATS,
        INTS,
        FLOAT_ROWS,
    ),
    allocates=True,
)
def _look_ahead(cost, law, count_of, valued, ints, floats, x, rows):
    """Writes q(x,a) into the second row and the size of its terms into the third, for the actions
    whose number in the first row is above 0; infinity for the others.
    """
    wanted = rows[0]
    costs = rows[1]
    sizes = rows[2]
    outcomes = ints[0]
    dim = x.size
    actions = wanted.size
    first = LOOK_AHEAD_HEADER_SIZE + 2 * dim
    seen = ints[LOOK_AHEAD_HEADER_SIZE : LOOK_AHEAD_HEADER_SIZE + dim]
    last = first + ints[1]
    f = 1 + ints[3]
    mi = ints[first:last]
    vi = ints[last:]
    gamma = floats[0]
    prices = floats[1:f]
    mf = floats[f : f + ints[2]]
    vf = floats[f + ints[2] :]
    most, slots = memory_for(outcomes * actions)
    table = np.empty((1 + outcomes + most, dim), np.int64)
    states = table[1 : 1 + outcomes]
    places = np.empty(most + slots, np.int64)
    places[most:] = -1
    here = table[0]
    for i in range(dim):
        here[i] = min(x[i], ints[LOOK_AHEAD_HEADER_SIZE + dim + i])
    work = np.zeros(outcomes + 2 * most + prices.size + ints[4], np.float64)
    chances = work[:outcomes]
    sums = work[outcomes + 2 * most :][: prices.size]
    room = work[outcomes + 2 * most + prices.size :]
    memory = Memory(
        table[1 + outcomes :],
        places[:most],
        work[outcomes : outcomes + most],
        work[outcomes + most : outcomes + 2 * most],
        places[most:],
    )
    held = 0
    for a in range(actions):
        costs[a] = np.inf
        sizes[a] = 0.0
        if wanted[a] > 0.0:
            count = law(mi, mf, here, a, states, chances)
            total = 0.0
            size = 0.0
            mass = 0.0
            for n in range(count):
                k, key, slot = remembered(seen, states[n], memory)
                if k < 0:
                    k, held = remember(states[n], key, slot, held, memory)
                    memory.values[k] = valued(vi, vf, states[n], room)
                    memory.terms[k] = room[0]
                total += chances[n] * memory.values[k]
                size += chances[n] * memory.terms[k]
                mass += chances[n]
            if abs(mass - 1.0) <= 1e-9:
                q = cost(mi, mf, here, a) + gamma * total / mass
                if prices.size > 0:  # here and not in a helper: what counts may allocate
                    sums[0] = 1.0
                    sums[1] = cost(mi, mf, here, a)
                    for i in range(dim):
                        sums[2 + i] = here[i]
                    count_of(mi, mf, here, a, sums[2 + dim :])
                    for j in range(prices.size):
                        q += prices[j] * sums[j]
                costs[a] = q
                sizes[a] = abs(q) + size


@made_once
def greedy_rule(
    allowed: Kernel, loss: Kernel, forward: Kernel, counts: Kernel, value: Kernel
) -> Kernel:
    """The allowed action of least q, ties to the lowest; data as above."""
    may = allowed.address
    cost = loss.address
    law = forward.address
    count_of = counts.address
    valued = value.address
    look_ahead = _look_ahead.address

    @user_kernel(ACT_SIGNATURE)
    def greedy(ints, floats, x, out):
        first = LOOK_AHEAD_HEADER_SIZE + 2 * x.size
        f = 1 + ints[3]
        mi = ints[first : first + ints[1]]
        mf = floats[f : f + ints[2]]
        rows = np.empty((LOOK_AHEAD_ROWS, out.size), np.float64)
        for a in range(out.size):
            rows[0, a] = may(mi, mf, x, a)
        look_ahead(cost, law, count_of, valued, ints, floats, x, rows)
        choose_least(rows[1], rows[2], out)

    return greedy


@made_once
def within_rule(
    act: Kernel, loss: Kernel, forward: Kernel, counts: Kernel, value: Kernel
) -> Kernel:
    """The action of least q among those that a policy takes with positive probability.

    ints: the sizes of the policy's two arrays, the policy's ints, those of the look-ahead; floats:
    the policy's, its.
    """
    rule = act.address
    cost = loss.address
    law = forward.address
    count_of = counts.address
    valued = value.address
    look_ahead = _look_ahead.address

    @user_kernel(ACT_SIGNATURE)
    def within(ints, floats, x, out):
        i = 2 + ints[0]
        f = ints[1]
        rule(ints[2:i], floats[:f], x, out)
        rows = np.empty((LOOK_AHEAD_ROWS, out.size), np.float64)
        copy(rows[0], out)
        look_ahead(cost, law, count_of, valued, ints[i:], floats[f:], x, rows)
        choose_least(rows[1], rows[2], out)

    return within


@made_once
def among_rule(
    allowed: Kernel, loss: Kernel, forward: Kernel, counts: Kernel, value: Kernel, fill: Kernel
) -> Kernel:
    """The probabilities of the policy, of several, whose look-ahead costs least, ties to the first.

    ints: sizes of the look-ahead's two arrays, its ints, the policies'; floats: its floats, the
    policies'.
    """
    may = allowed.address
    cost = loss.address
    law = forward.address
    count_of = counts.address
    valued = value.address
    look_ahead = _look_ahead.address
    table_of = fill.address

    @user_kernel(ACT_SIGNATURE)
    def among(ints, floats, x, out):
        own = ints[2 : 2 + ints[0]]
        bank = ints[2 + ints[0] :]
        numbers = floats[: ints[1]]
        first = LOOK_AHEAD_HEADER_SIZE + 2 * x.size
        f = 1 + own[3]
        mi = own[first : first + own[1]]
        mf = numbers[f : f + own[2]]
        rows = np.empty((LOOK_AHEAD_ROWS, out.size), np.float64)
        for a in range(out.size):
            rows[0, a] = may(mi, mf, x, a)
        look_ahead(cost, law, count_of, valued, own, numbers, x, rows)
        table = np.empty((bank[0], out.size), np.float64)
        table_of(bank, floats[ints[1] :], x, table)
        least = np.inf
        chosen = 0
        for k in range(bank[0]):
            total = 0.0
            size = 0.0
            for a in range(out.size):
                if table[k, a] > 0.0:
                    total += table[k, a] * rows[1, a]
                    size += table[k, a] * rows[2, a]
            if total < least - (ROUNDING_SHARE * size if k > 0 else 0.0):
                least = total
                chosen = k
        copy(out, table[chosen])

    return among


@helper
def choose_least(costs, sizes, out):
    """1 for the action of least cost, ties to the lowest.

    Nothing where none has a cost, which the loops report.
    """
    least = np.inf
    action = -1
    for a in range(out.size):
        out[a] = 0.0
        if costs[a] < least - (ROUNDING_SHARE * sizes[a] if action >= 0 else 0.0):
            least = costs[a]
            action = a
    if action >= 0:
        out[action] = 1.0
