"""Linear indices for queueing networks: each waiting class c of a server has the index

    v_c(x) = α_c + Σ_d B_cd·x_d        (d over all classes),

and is served with probability ∝ exp(v_c/τ) among those that wait; τ = 0 serves the largest, ties to
the class named first. Nobody waits: the server stands at its first class. In non-preemptive service
x is as it stands, and who is in service does not wait. Data follow those of the network: ints
[...], floats [..., α, B row by row, τ].
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels import network as net
from dualplan._kernels.compiler import ACT_SIGNATURE, helper, kernel
from dualplan._kernels.policies import waiting_of


@helper
def index_of(ints, floats, x, c):
    """v_c(x)."""
    n = ints[net.CLASSES]
    base = ints[net.FLOAT_END]
    row = base + n + n * c
    v = floats[base + c]
    for d in range(n):
        v += floats[row + d] * x[d]
    return v


@helper
def best_waiting(ints, floats, x, s):
    """The largest index of a waiting class of server s, and its place; -1 where nobody waits."""
    first = ints[ints[net.CHOICE_PTR] + s]
    last = ints[ints[net.CHOICE_PTR] + s + 1]
    best = -np.inf
    place = -1
    for j in range(first, last):
        c = ints[ints[net.CHOICE] + j]
        if c >= 0 and waiting_of(ints, x, c, s) > 0:
            v = index_of(ints, floats, x, c)
            if place < 0 or v > best:
                best = v
                place = j - first
    return best, place


@helper
def _mass(ints, floats, x, s, best):
    """Σ exp((v_c − best)/τ) over the waiting classes of server s."""
    tau = floats[floats.size - 1]
    total = 0.0
    for j in range(ints[ints[net.CHOICE_PTR] + s], ints[ints[net.CHOICE_PTR] + s + 1]):
        c = ints[ints[net.CHOICE] + j]
        if c >= 0 and waiting_of(ints, x, c, s) > 0:
            total += np.exp((index_of(ints, floats, x, c) - best) / tau)
    return total


@helper
def _write_choices(ints, floats, x, s, stride, out):
    """Multiply `out` by the probabilities of the choices of server s, whose digit in the action has
    this stride.
    """
    first = ints[ints[net.CHOICE_PTR] + s]
    last = ints[ints[net.CHOICE_PTR] + s + 1]
    best, place = best_waiting(ints, floats, x, s)
    tau = floats[floats.size - 1]
    bound = place < 0 or (
        ints[net.NONPREEMPTIVE] and x[ints[net.CLASSES] + s] == 0
    )  # no choice: its first stands for none
    if bound or tau == 0.0:
        total = 1.0
    else:
        total = _mass(ints, floats, x, s, best)
    for j in range(last - first):
        c = ints[ints[net.CHOICE] + first + j]
        if bound:
            if j == 0:
                q = 1.0
            else:
                q = 0.0
        elif tau == 0.0:
            if j == place:
                q = 1.0
            else:
                q = 0.0
        elif c >= 0 and waiting_of(ints, x, c, s) > 0:
            q = np.exp((index_of(ints, floats, x, c) - best) / tau) / total
        else:
            q = 0.0
        for block in range(j * stride, out.size, stride * (last - first)):
            for a in range(block, block + stride):
                out[a] *= q


@kernel(ACT_SIGNATURE)
def linear_index_rule(ints, floats, x, out):
    if ints[net.PER_SERVER]:
        event = x[x.size - 1]
        out[:] = 0.0
        if event == 0:
            out[0] = 1.0
            return
        options = ints[ints[net.CHOICE_PTR] + event] - ints[ints[net.CHOICE_PTR] + event - 1]
        out[:options] = 1.0
        _write_choices(ints, floats, x, event - 1, 1, out[:options])
        return
    out[:] = 1.0
    for s in range(ints[net.SERVERS]):
        _write_choices(ints, floats, x, s, ints[ints[net.STRIDE] + s], out)
