"""Models given as sparse tables: a state is one coordinate, its number.

ints: [states, actions, then forward pointers (states·actions + 1), forward targets, allowed
(states·actions), backward pointers (states + 1), backward pairs], with the start of each field in
ints[2:8]; floats: [losses, forward probabilities, backward probabilities], started in ints[8:11].
"""

from __future__ import annotations

from dualplan._kernels.compiler import (
    ALLOWED_SIGNATURE,
    FORWARD_SIGNATURE,
    LOSS_SIGNATURE,
    PREDECESSORS_SIGNATURE,
    STEP_SIGNATURE,
    copy,
    helper,
    kernel,
)
from dualplan._kernels.philox import uniform

STATES, ACTIONS, PTR, TARGET, MAY_BE_TAKEN, BACK_PTR, BACK_PAIR, LOSSES, PROB, BACK_PROB = range(10)
TABULAR_HEADER_SIZE = 10


@helper
def pair(ints, x, a):
    return x[0] * ints[ACTIONS] + a


@kernel(ALLOWED_SIGNATURE)
def allowed(ints, floats, x, a):
    return ints[ints[MAY_BE_TAKEN] + pair(ints, x, a)] != 0


@kernel(LOSS_SIGNATURE)
def loss(ints, floats, x, a):
    return floats[ints[LOSSES] + pair(ints, x, a)]


@kernel(FORWARD_SIGNATURE)
def forward(ints, floats, x, a, states, probabilities):
    k = ints[PTR] + pair(ints, x, a)
    for i in range(ints[k], ints[k + 1]):
        states[i - ints[k], 0] = ints[ints[TARGET] + i]
        probabilities[i - ints[k]] = floats[ints[PROB] + i]
    return ints[k + 1] - ints[k]


@kernel(STEP_SIGNATURE)
def step(ints, floats, x, a, rng, out, counts):
    k = ints[PTR] + pair(ints, x, a)
    u = uniform(rng)
    i = ints[k]
    last = ints[k + 1] - 1
    while i < last:
        u -= floats[ints[PROB] + i]
        if u < 0.0:
            break
        i += 1
    copy(out, x)
    out[0] = ints[ints[TARGET] + i]
    return floats[ints[LOSSES] + pair(ints, x, a)]


@kernel(PREDECESSORS_SIGNATURE)
def predecessors(ints, floats, y, states, actions, probabilities):
    k = ints[BACK_PTR] + y[0]
    for i in range(ints[k], ints[k + 1]):
        source = ints[ints[BACK_PAIR] + i]
        states[i - ints[k], 0] = source // ints[ACTIONS]
        actions[i - ints[k]] = source % ints[ACTIONS]
        probabilities[i - ints[k]] = floats[ints[BACK_PROB] + i]
    return ints[k + 1] - ints[k]
