"""The loop of coupled copies: several trajectories of one model under one policy, driven by the
same random numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualplan._kernels.compiler import (
    FLOAT,
    FLOAT_ROWS,
    FLOATS,
    FORWARD_SIGNATURE,
    INT,
    INT_ROWS,
    INTS,
    VALUE_SIGNATURE,
    copy,
    group,
    helper,
    inlined_helper,
    kernel,
)
from dualplan._kernels.layouts import CONTROL, PROCESS, TRAJECTORY, Control
from dualplan._kernels.simulate import NO_FAULT, law_room, one_step, shaping, step_room
from dualplan.core.types import Floats, Ints


class Groups(NamedTuple):
    """Copies: group g is the rows places[g], ..., places[g + 1] − 1 of `states`.

    Repetition k of it is the replica (first + g)·repetitions + k.
    """

    places: Ints
    states: Ints
    first: int


class Differences(NamedTuple):
    """What is found of each copy, one a row: the differences of losses, a column for each
    repetition; in how many repetitions it met the first of its group; and the steps of all.
    """

    totals: Floats
    met: Floats
    steps: Ints


GROUPS = group(Groups, INTS, INT_ROWS, INT)
DIFFERENCES = group(Differences, FLOAT_ROWS, FLOATS, INTS)


@kernel(FORWARD_SIGNATURE)
def no_forward(ints, floats, x, a, states, probabilities):
    """Stands for the law of a model that has none, where there is no control variate."""
    return 0


@kernel(VALUE_SIGNATURE)
def no_value(ints, floats, x, room):
    """Stands for the control variate where there is none."""
    return 0.0


NO_CONTROL = Control(no_forward, 0, no_value, np.empty(0, np.int64), np.empty(0), 0)


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


@inlined_helper
def _shaped_step(process, control, x, t, gamma, nothing, room, listed):
    """r(x, a) of a step from x and a fault code."""
    loss, fault = one_step(process, x, t, nothing, room)
    if fault == NO_FAULT and control.room > 0:
        loss += shaping(process.model, control, x, room.where[x.size], gamma, listed)
    return loss, fault


@kernel(INT(PROCESS, TRAJECTORY, CONTROL, GROUPS, FLOAT, INT, DIFFERENCES), allocates=True)
def coupled(process, trajectory, control, groups, gamma, horizon, differences):
    """Σ_t γ^t (r of a copy − r of the first of its group), until the two meet; a column for each
    repetition.

    r(x, a) = ℓ(x, a) + γ E[h(x')] − h(x) for a function h of states; room 0 stands for h = 0. Of
    the trajectory only its random numbers are used, and where faults are described.
    """
    dim = process.box.lower.size
    rng = trajectory.rng
    places = groups.places
    totals = differences.totals
    met = differences.met
    repetitions = totals.shape[1]
    widest = 0
    for g in range(places.size - 1):
        widest = max(widest, places[g + 1] - places[g])
    x = np.empty((widest, dim), np.int64)
    live = np.empty(widest, np.int64)
    nothing = np.empty(0, np.float64)
    room = step_room(process, rng, trajectory.where)
    listed = law_room(control, dim)
    for g in range(places.size - 1):
        low = places[g]
        high = places[g + 1]
        for k in range(repetitions):
            rng[4] = np.uint64((groups.first + g) * repetitions + k)
            for j in range(low, high):
                totals[j, k] = 0.0
                met[j] += 1.0
            count = _begin(groups.states[low:high], x, live)
            t = 0
            factor = 1.0
            while count > 0 and t < horizon:
                base, fault = _shaped_step(process, control, x[0], t, gamma, nothing, room, listed)
                if fault != NO_FAULT:
                    return fault
                copy(x[0], room.out)
                differences.steps[0] += 1 + count
                i = 0
                while i < count:
                    j = live[i]
                    loss, fault = _shaped_step(
                        process, control, x[j], t, gamma, nothing, room, listed
                    )
                    if fault != NO_FAULT:
                        return fault
                    totals[low + j, k] += factor * (loss - base)
                    copy(x[j], room.out)
                    if _same(x[j], x[0]):  # from here on they stay together
                        count -= 1
                        live[i] = live[count]
                    else:
                        i += 1
                factor *= gamma
                t += 1
            for i in range(count):
                met[low + live[i]] -= 1.0
    return NO_FAULT
