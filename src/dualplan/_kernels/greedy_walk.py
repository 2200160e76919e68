"""Trajectories of policies that are greedy for a function h of states, with h as their control.

    a(x)  =  argmin_a q(x,a),       q(x,a) = ℓ(x,a) + Σ_y P(y|x,a) h(y),  ties to the lowest a

A step needs q for all actions in order to choose, and q(x, a(x)) − h(x) is the shaped loss, whose
mean in the long run is that of the losses and which varies little where h is near the bias of the
policy: the control costs nothing. While the state stays as it is, so do the action and its shaped
loss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualplan._kernels.compiler import (
    FLOAT_ROWS,
    INT,
    INTS,
    STEP_SIGNATURE,
    Kernel,
    function_type,
    group,
    helper,
    kernel,
)
from dualplan._kernels.index_walk import WALKS
from dualplan._kernels.layouts import CONTROL, LAW
from dualplan._kernels.look_ahead import ROUNDING_SHARE, Memory, memory_for, remember, remembered
from dualplan._kernels.philox import seek, uniform
from dualplan.core.types import Floats, Ints


class Draw(NamedTuple):
    """How the model draws a next state, which coordinates h sees, and how many counters there
    are.
    """

    step: Kernel
    seen: Ints
    counters: int


class LookRoom(NamedTuple):
    """What a look-ahead works with: the outcomes of one action, and those that were valued."""

    states: Ints
    chances: Floats
    scratch: Floats
    memory: Memory


DRAW = group(Draw, function_type(STEP_SIGNATURE), INTS, INT)


@helper
def _valued(draw, h, y, held, room):
    """The place of h(y) among what is remembered, and how much that is now."""
    k, key, slot = remembered(draw.seen, y, room.memory)
    if k >= 0:
        return k, held
    k, held = remember(y, key, slot, held, room.memory)
    room.memory.values[k] = h.value(h.ints, h.floats, y, room.scratch)
    room.memory.terms[k] = room.scratch[0]
    return k, held


@helper
def _least(law, draw, h, x, room):
    """The greedy action in x and its q − h(x); −1 where none is allowed or has a law."""
    held = 0
    room.memory.slots[:] = -1
    least = np.inf
    action = -1
    for a in range(law.actions):
        if law.allowed(law.ints, law.floats, x, a):
            count = law.forward(law.ints, law.floats, x, a, room.states, room.chances)
            total = 0.0
            size = 0.0
            mass = 0.0
            for n in range(count):
                k, held = _valued(draw, h, room.states[n], held, room)
                total += room.chances[n] * room.memory.values[k]
                size += room.chances[n] * room.memory.terms[k]
                mass += room.chances[n]
            if abs(mass - 1.0) <= 1e-9:
                q = law.loss(law.ints, law.floats, x, a) + total / mass
                slack = ROUNDING_SHARE * (abs(q) + size)
                if action < 0 or q < least - slack:
                    least = q
                    action = a
    k, held = _valued(draw, h, x, held, room)
    return action, least - room.memory.values[k]


@kernel(INT(LAW, DRAW, CONTROL, WALKS, INT, FLOAT_ROWS), allocates=True)
def walk(law, draw, h, walks, length, sums):
    """Go on along the trajectories by `length` steps; Σℓ and Σ(ℓ + Ph − h) of each, and how many
    could go on to the end.
    """
    dim = walks.states.shape[1]
    most, slots = memory_for(1 + law.outcomes * law.actions)
    room = LookRoom(
        np.empty((law.outcomes, dim), np.int64),
        np.empty(law.outcomes, np.float64),
        np.empty(h.room, np.float64),
        Memory(
            np.empty((most, dim), np.int64),
            np.empty(most, np.int64),
            np.empty(most, np.float64),
            np.empty(most, np.float64),
            np.empty(slots, np.int64),
        ),
    )
    out = np.empty(dim, np.int64)
    counts = np.zeros(draw.counters, np.float64)
    ended = 0
    for k in range(walks.states.shape[0]):
        x = walks.states[k]
        rng = walks.rngs[k]
        sums[k, 0] = 0.0
        sums[k, 1] = 0.0
        action = -1
        shaped = 0.0
        moved = True
        t = 0
        while t < length:
            if moved:
                action, shaped = _least(law, draw, h, x, room)
                if action < 0:
                    break
            seek(rng, walks.t0 + t)
            uniform(rng)  # by which `simulate` picks the action
            sums[k, 0] += draw.step(law.ints, law.floats, x, action, rng, out, counts)
            sums[k, 1] += shaped
            moved = False
            for i in range(dim):
                if out[i] != x[i]:
                    moved = True
                    x[i] = out[i]
            t += 1
        if t == length:
            ended += 1
    return ended
