"""Compiled policies: probabilities of the actions from data.

`network_rule` is an index rule for queueing networks. Each waiting class c of a server has the
index

    v_c(x) = α_c + β_c·(x_c − κ·Σ_d R_cd·x_d),

R being the routes. The server serves a class with the largest index (ties shared equally, or to the
class named first) with probability p, and the others that wait share 1 − p; where no other waits,
the 1 − p falls on empty classes, which is idling. Where nobody waits the server stands at the class
with the smallest index, which matters only where empty queues in service produce phantom customers.
Its data follow those of the network: ints [..., ties], floats [..., α, β, p, κ].
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels import network as net
from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    FLOAT_ROWS,
    FLOATS,
    INT_ROWS,
    INTS,
    copy,
    helper,
    kernel,
)


@helper
def waiting_of(ints, x, c, s):
    """Customers of class c whom server s could take now (non-preemptive: next)."""
    if ints[net.NONPREEMPTIVE] and net.in_service(ints, x, s) == c:
        return x[c] - 1
    return x[c]


@helper
def _index(ints, floats, x, c, s):
    n = ints[net.CLASSES]
    base = ints[net.FLOAT_END]
    alpha = floats[base + c]
    beta = floats[base + n + c]
    kappa = floats[floats.size - 1]
    v = float(waiting_of(ints, x, c, s))
    if kappa != 0.0:
        for r in range(ints[ints[net.ROUTE_PTR] + c], ints[ints[net.ROUTE_PTR] + c + 1]):
            d = ints[ints[net.ROUTE_DEST] + r]
            if d >= 0:
                v -= kappa * floats[ints[net.ROUTE_PROB] + r] * x[d]
    return alpha + beta * v


@helper
def _survey(ints, floats, x, s):
    """Who waits at server s: the best index (nobody: the smallest), its ties, how many classes wait
    and do not.
    """
    best = -np.inf
    least = np.inf
    ties = 0
    least_ties = 0
    waiting = 0
    empty = 0
    for j in range(ints[ints[net.CHOICE_PTR] + s], ints[ints[net.CHOICE_PTR] + s + 1]):
        c = ints[ints[net.CHOICE] + j]
        if c < 0:
            empty += 1
            continue
        v = _index(ints, floats, x, c, s)
        if waiting_of(ints, x, c, s) > 0:
            waiting += 1
            if v > best:
                best = v
                ties = 0
            ties += v == best
        else:
            empty += 1
            if v < least:
                least = v
                least_ties = 0
            least_ties += v == least
    if waiting == 0:
        return least, least_ties, 0, empty
    return best, ties, waiting, empty


@helper
def _write_rule(ints, floats, x, s, stride, out):
    """Multiply `out` by the probabilities of the choices of server s, whose digit in the action has
    this stride.
    """
    n = ints[net.CLASSES]
    first = ints[ints[net.CHOICE_PTR] + s]
    last = ints[ints[net.CHOICE_PTR] + s + 1]
    best, ties, waiting, empty = _survey(ints, floats, x, s)
    p = floats[ints[net.FLOAT_END] + 2 * n + s]
    if ints[ints[net.INT_END]] == 1:  # ties go to the class named first
        ties = min(ties, 1)
    bound = ints[net.NONPREEMPTIVE] and (
        waiting == 0 or x[n + s] == 0
    )  # no choice: its first stands for none
    if waiting == 0 or (waiting == ties and (empty == 0 or waiting > 1 or ints[net.NONPREEMPTIVE])):
        p = 1.0  # nobody to share the rest with
    left = ties
    for j in range(first, last):
        c = ints[ints[net.CHOICE] + j]
        waits = c >= 0 and waiting_of(ints, x, c, s) > 0
        if bound:
            if j == first:
                q = 1.0
            else:
                q = 0.0
        elif (
            c >= 0
            and left > 0
            and (waits or waiting == 0)
            and _index(ints, floats, x, c, s) == best
        ):
            q = p / ties
            left -= 1
        elif waits:
            q = (1.0 - p) / (waiting - ties)
        elif waiting == ties:
            q = (1.0 - p) / empty
        else:
            q = 0.0
        for block in range((j - first) * stride, out.size, stride * (last - first)):
            for a in range(block, block + stride):
                out[a] *= q


@helper
def write_network_rule(ints, floats, x, out):
    if ints[net.PER_SERVER]:
        event = x[x.size - 1]
        out[:] = 0.0
        if event == 0:
            out[0] = 1.0
            return
        options = ints[ints[net.CHOICE_PTR] + event] - ints[ints[net.CHOICE_PTR] + event - 1]
        out[:options] = 1.0
        _write_rule(ints, floats, x, event - 1, 1, out[:options])
        return
    out[:] = 1.0
    for s in range(ints[net.SERVERS]):
        _write_rule(ints, floats, x, s, ints[ints[net.STRIDE] + s], out)


@kernel(ACT_SIGNATURE)
def network_rule(ints, floats, x, out):
    write_network_rule(ints, floats, x, out)


@helper
def _number(ints, x):
    index = np.int64(0)
    for i in range(x.size):
        index += (x[i] - ints[i]) * ints[x.size + i]
    return index


@helper
def write_action_rule(ints, floats, x, out):
    out[:] = 0.0
    out[ints[2 * x.size + _number(ints, x)]] = 1.0


@kernel(ACT_SIGNATURE)
def action_rule(ints, floats, x, out):
    """ints: [lower..., strides..., one action for each state of a bounded box]."""
    write_action_rule(ints, floats, x, out)


@helper
def write_table_rule(ints, floats, x, out):
    index = _number(ints, x)
    copy(out, floats[index * out.size : (index + 1) * out.size])


@kernel(ACT_SIGNATURE)
def table_rule(ints, floats, x, out):
    """ints: [lower..., strides...].

    Floats: one row of probabilities for each state of a bounded box.
    """
    write_table_rule(ints, floats, x, out)


@kernel(types.void(types.FunctionType(ACT_SIGNATURE), INTS, FLOATS, INT_ROWS, FLOAT_ROWS))
def rows_at(act, ints, floats, states, out):
    """π(·|x) of each state, in a row of its own."""
    for k in range(len(states)):
        act(ints, floats, states[k], out[k])
