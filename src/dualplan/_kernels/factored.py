"""Factored models as data: tables over few variables, one set of compiled functions for all models.

A table is a stretch of `floats`; where to look in it follows from the values of a few coordinates,

    entry(x) = start + Σ_m stride_m · x[coordinate_m],

and its (coordinate, stride) pairs are *places*. A law of variable i is a table whose entries are
rows of as many probabilities as the variable has values. ints of a model: the header below, then
the fields that it points to,

    SIZES      the number of values of each variable
    TABLES     for each table: its first place, the number of its places, its start in `floats`
    PLACES     the places
    CHANGE_PTR, CHANGE     for each action the (variable, table) whose law it changes, by variable;
                           the other variables
                           have table i
    LOSS_PTR, LOSS         tables of losses: those of all actions, then those of each

and floats: the cost of each action at COST, and the tables.
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    ALLOWED_SIGNATURE,
    FORWARD_SIGNATURE,
    LOSS_SIGNATURE,
    PREDECESSORS_SIGNATURE,
    STEP_SIGNATURE,
    copy,
    helper,
    inlined_helper,
    kernel,
)
from dualplan._kernels.look_ahead import ROUNDING_SHARE
from dualplan._kernels.philox import uniform

COORDINATES, ACTIONS, SIZES, TABLES, PLACES, CHANGE_PTR, CHANGE, LOSS_PTR, LOSSES, COST = range(10)
FACTORED_HEADER_SIZE = 10


@inlined_helper
def entry(ints, table, place, x, t):
    """Where table t is to be read in state x; `table` and `place` are where these fields start."""
    row = table + 3 * t
    at = ints[row + 2]
    for m in range(ints[row], ints[row] + ints[row + 1]):
        at += ints[place + 2 * m + 1] * x[ints[place + 2 * m]]
    return at


@helper
def changes(ints, a):
    """The first of the changes of action a, and the end."""
    ptr = ints[CHANGE_PTR] + a
    return ints[CHANGE] + 2 * ints[ptr], ints[CHANGE] + 2 * ints[ptr + 1]


@helper
def total_loss(ints, floats, x, a):
    cost = floats[ints[COST] + a]
    ptr = ints[LOSS_PTR]
    first = ints[LOSSES]
    table = ints[TABLES]
    place = ints[PLACES]
    for k in range(first, first + ints[ptr + 1]):
        cost += floats[entry(ints, table, place, x, ints[k])]
    for k in range(first + ints[ptr + 1 + a], first + ints[ptr + 2 + a]):
        cost += floats[entry(ints, table, place, x, ints[k])]
    return cost


@kernel(ALLOWED_SIGNATURE)
def allowed(ints, floats, x, a):
    return True


@kernel(LOSS_SIGNATURE)
def loss(ints, floats, x, a):
    return total_loss(ints, floats, x, a)


@kernel(STEP_SIGNATURE)
def step(ints, floats, x, a, rng, out, counts):
    """One draw for each variable, whatever the action, so that policies meet the same draws."""
    k, end = changes(ints, a)
    size = ints[SIZES]
    table = ints[TABLES]
    place = ints[PLACES]
    for i in range(x.size):
        t = i
        if k < end and ints[k] == i:
            t = ints[k + 1]
            k += 2
        row = entry(ints, table, place, x, t)
        last = ints[size + i] - 1
        v = 0
        u = uniform(rng)
        while v < last:
            u -= floats[row + v]
            if u < 0.0:
                break
            v += 1
        out[i] = v
    return total_loss(ints, floats, x, a)


@kernel(FORWARD_SIGNATURE)
def forward(ints, floats, x, a, states, probabilities):
    """Variable by variable, every outcome so far times every value that is possible."""
    k, end = changes(ints, a)
    count = 1
    probabilities[0] = 1.0
    for i in range(ints[COORDINATES]):
        t = i
        if k < end and ints[k] == i:
            t = ints[k + 1]
            k += 2
        row = entry(ints, ints[TABLES], ints[PLACES], x, t)
        first = -1
        copies = count
        for v in range(ints[ints[SIZES] + i]):
            if floats[row + v] > 0.0:
                if first < 0:
                    first = v  # takes the place of the outcomes so far, so it comes last
                    continue
                for m in range(count):
                    copy(states[copies + m, :i], states[m, :i])
                    states[copies + m, i] = v
                    probabilities[copies + m] = probabilities[m] * floats[row + v]
                copies += count
        for m in range(count):
            states[m, i] = first
            probabilities[m] *= floats[row + first]
        count = copies
    return count


@helper
def transition(ints, floats, x, a, y):
    """P(y|x, a)."""
    k, end = changes(ints, a)
    p = 1.0
    for i in range(ints[COORDINATES]):
        t = i
        if k < end and ints[k] == i:
            t = ints[k + 1]
            k += 2
        p *= floats[entry(ints, ints[TABLES], ints[PLACES], x, t) + y[i]]
        if p == 0.0:
            break
    return p


@kernel(PREDECESSORS_SIGNATURE)
def predecessors(ints, floats, y, states, actions, probabilities):
    """All pairs are tried; the row after the last one found holds the state that is tried."""
    count = 0
    n = ints[COORDINATES]
    for i in range(n):
        states[0, i] = 0
    while True:
        for a in range(ints[ACTIONS]):
            x = states[count]
            p = transition(ints, floats, x, a, y)
            if p > 0.0:
                actions[count] = a
                probabilities[count] = p
                count += 1
                copy(states[count], x)
        x = states[count]
        i = n - 1
        while i >= 0 and x[i] == ints[ints[SIZES] + i] - 1:
            x[i] = 0
            i -= 1
        if i < 0:
            return count
        x[i] += 1


# -- policies --------------------------------------------------------------------------------------


@kernel(ACT_SIGNATURE)
def local_rule(ints, floats, x, out):
    """The action of least Σ of its tables, ties to the lowest.

    ints: starts of tables, of places, of pointers and of the actions' tables; floats: for each
    action a number to begin with, then for each the size of what is added up.
    """
    best = np.inf
    action = 0
    for a in range(out.size):
        out[a] = 0.0
        q = floats[a]
        for k in range(ints[ints[2] + a], ints[ints[2] + a + 1]):
            q += floats[entry(ints, ints[0], ints[1], x, ints[ints[3] + k])]
        if a == 0 or q < best - ROUNDING_SHARE * (abs(q) + floats[out.size + a]):
            best = q
            action = a
    out[action] = 1.0


@kernel(ACT_SIGNATURE)
def reboot_rule(ints, floats, x, out):
    """Reboot (action 1 + i) the failed machine i of largest index, the first among equals; nothing
    if none is above −∞.

    The index of i is floats[i], plus a number for each of some other machines if that works. ints:
    n + 1 pointers into the list of the others, then the list; floats: n numbers, then one for each
    of the list.
    """
    n = x.size
    best = -np.inf
    action = 0
    for a in range(out.size):
        out[a] = 0.0
    for i in range(n):
        if x[i] == 0:
            index = floats[i]
            for k in range(ints[i], ints[i + 1]):
                index += floats[n + k] * x[ints[n + 1 + k]]
            if index > best:
                best = index
                action = 1 + i
    out[action] = 1.0
