"""The Bellman operator of a network whose law depends on the state only through emptiness and
fullness.

A class is empty, or so far from its buffer that all who may come in one step find room, or so many
places below it: a handful of cases, and the *case* of a state is one of their combinations. All
states of a case have the same law: a list of shifts of the state's number and their probabilities,
and an expected penalty, for each action. The lists are few and are made once (`exact/laws.py`).
States that differ only in the last class lie side by side in a row; within a row each case of the
last class is a range of states, worked shift by shift in loops that run several states at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualplan._kernels.compiler import FLOATS, INT, INTS, group, helper, kernel
from dualplan._kernels.layouts import ARRAYS, GRID
from dualplan._kernels.network_sweep import SWEEP_ROOM, holding_row, relax
from dualplan._kernels.sweep import UPDATE
from dualplan.core.types import Floats, Ints

LAW_SWEEP_WORK_ROWS = 4  # rows of numbers that a sweep needs for itself


class CaseLaws(NamedTuple):
    """For each case and action, a stretch of `shifts` and `probabilities`, and an expected
    penalty.
    """

    cases: Ints  # of each class
    weights: Ints  # of the classes in the number of a state's case
    ptr: Ints
    shifts: Ints
    probabilities: Floats
    penalties: Floats
    actions: int


CASE_LAWS = group(CaseLaws, INTS, INTS, INTS, INTS, FLOATS, FLOATS, INT)


@helper
def case_of(value, top, cases):
    """The case of a class: empty, far from full, or one of the last places."""
    if value == 0:
        return np.int64(0)
    return max(np.int64(1), value - (top + 1 - cases))


@helper
def pair_row(update, i, a, b, laws, law, q):
    """q[k] = penalty + γ·E V(next state) for the places a, ..., b − 1 of a row, under one law."""
    out = q[a:b]
    penalty = laws.penalties[law]
    for k in range(b - a):
        out[k] = penalty
    for e in range(laws.ptr[law], laws.ptr[law + 1]):
        weight = update.gamma * laws.probabilities[e]
        shift = laws.shifts[e]
        there = update.values[i + a + shift : i + b + shift]
        for k in range(b - a):
            out[k] += weight * there[k]


@helper
def keep_least(q, a, b, action, i, least, best):
    ends = least[a:b]
    row = q[a:b]
    if best.size > 0:
        actions = best[i + a : i + b]
        for k in range(b - a):
            if action == 0 or row[k] < ends[k]:
                ends[k] = row[k]
                actions[k] = action
    elif action == 0:
        for k in range(b - a):
            ends[k] = row[k]
    else:
        for k in range(b - a):
            if row[k] < ends[k]:
                ends[k] = row[k]


@kernel(INT(ARRAYS, GRID, CASE_LAWS, UPDATE, SWEEP_ROOM, FLOATS, INT, INT))
def optimal(network, grid, laws, update, room, ends, first, last):
    """Sweep the rows first, ..., last − 1 as `sweep.optimal` does."""
    upper = grid.upper
    cases = laws.cases
    weights = laws.weights
    x = room.x
    work = room.work
    n = upper.size
    width = upper[n - 1] + 1
    least = work[:width]
    q = work[width : 2 * width]
    low = work[2 * width : 3 * width]
    high = work[3 * width : 4 * width]
    for k in range(width):
        low[k] = np.inf
        high[k] = -np.inf
    for row in range(first, last):
        rest = row
        base = np.int64(0)
        for c in range(n - 2, -1, -1):
            x[c] = rest % (upper[c] + 1)
            rest //= upper[c] + 1
            base += case_of(x[c], upper[c], cases[c]) * weights[c]
        i = row * width
        for j in range(
            cases[n - 1]
        ):  # the ranges of the last class: empty, far from full, each of the last places
            if j < 2:
                a = np.int64(j)
            else:
                a = width - cases[n - 1] + j
            if j == 1:
                b = width - cases[n - 1] + 2
            else:
                b = a + 1
            law = (base + j * weights[n - 1]) * laws.actions
            for action in range(laws.actions):
                pair_row(update, i, a, b, laws, law + action, q)
                keep_least(q, a, b, action, i, least, update.best)
        holding_row(network, x, q)
        for k in range(width):
            least[k] += q[k]
        relax(update, i, least, low, high)
    for k in range(width):
        ends[0], ends[1] = min(ends[0], low[k]), max(ends[1], high[k])
    return np.int64(-1)
