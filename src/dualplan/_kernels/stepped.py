"""One step of many trajectories, under probabilities of actions that were computed before it.

For policies that are no compiled functions: they are asked for all trajectories at once, and the
rest of the step is compiled. The draws are those of `simulate`.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import types

from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    FLOAT_ROWS,
    FLOATS,
    INT_ROWS,
    INTS,
    copy,
    group,
    kernel,
)
from dualplan._kernels.layouts import PROCESS
from dualplan._kernels.simulate import NO_FAULT, one_step, step_room
from dualplan.core.types import Ints, Words

WORD_ROWS = types.uint64[:, ::1]


class Walkers(NamedTuple):
    """Trajectories, one a row: their states, which are updated, their random numbers, the actions
    taken last, and where (x, a, next x) a fault is described.
    """

    states: Ints
    rngs: Words
    actions: Ints
    where: Ints


WALKERS = group(Walkers, INT_ROWS, WORD_ROWS, INTS, INTS)


@kernel(ACT_SIGNATURE)
def given_row(ints, floats, x, out):
    """The row number ints[0] of `floats`."""
    first = ints[0] * out.size
    for a in range(out.size):
        out[a] = floats[first + a]


# A generator, whose arguments are taken over once: handing functions to a kernel takes far longer
# than a step (335 µs against 11 µs for eight trajectories).
@kernel((PROCESS, WALKERS, INTS, FLOATS, FLOAT_ROWS), allocates=True)
def steps_together(process, walkers, clock, losses, counts):
    """Each time it is asked, step number clock[0] of every trajectory, and a fault code: the loss
    of each, and what it adds to the counters.

    The rule of the process is `given_row`, whose rows are those of the trajectories.
    """
    while True:
        fault = NO_FAULT
        for k in range(losses.size):
            x = walkers.states[k]
            room = step_room(process, walkers.rngs[k], walkers.where)
            process.rule.ints[0] = k
            loss, fault = one_step(process, x, clock[0], counts[k], room)
            if fault != NO_FAULT:
                break
            losses[k] = loss
            walkers.actions[k] = walkers.where[x.size]
            copy(x, room.out)
        yield fault
