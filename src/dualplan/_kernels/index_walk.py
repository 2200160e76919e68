"""Networks with one event a step under linear indices, in one loop: what a search over indices
spends its time in.

Service is preemptive. No probabilities of actions are written, and what is known of a state is kept
until an event changes it, which most steps of a uniformized network do not.

`simulate_indices` is `simulate` for such networks and policies: the same draws, states and sums, in
a fraction of the time. `walk` has nothing but losses, and decides for all servers whatever the
network says: its states are the classes alone, without a pending event. Beside the loss ℓ it has ℓ
+ Ph − h for h(x) = gᵀx + ½xᵀHx. An event changes one or two coordinates by δ, so

    h(x + δ) − h(x)  =  δᵀ(g + Hx) + ½δᵀHδ,

and Ph − h is the sum over the few events that can happen. `moments` has what least squares need to
find such an h. Data: `ints`, `floats` of the policy, g and H, symmetric, row by row in `weights`,
nothing there for h = 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dualplan._kernels import network as net
from dualplan._kernels.compiler import (
    FLOAT_ROWS,
    FLOATS,
    INT,
    INT_ROWS,
    INTS,
    RNG_WORDS,
    allocating_helper,
    copy,
    group,
    helper,
    kernel,
)
from dualplan._kernels.linear_index import best_waiting
from dualplan._kernels.philox import seek, uniform
from dualplan.core.types import Floats, Ints, Words

FLOAT_CUBE = types.float64[:, :, ::1]
INT_CUBE = types.int64[:, :, ::1]
WORD_ROWS = types.uint64[:, ::1]


@helper
def _serve(ints, floats, x, served):
    """The class that each server works at: of largest index, its first where nobody waits."""
    for s in range(ints[net.SERVERS]):
        _, place = best_waiting(ints, floats, x, s)
        first = ints[ints[net.CHOICE_PTR] + s]
        served[s] = ints[ints[net.CHOICE] + first + max(place, 0)]


@helper
def _slopes(weights, x, n, slopes):
    """g + Hx."""
    for i in range(n):
        v = weights[i]
        row = n + n * i
        for j in range(n):
            v += weights[row + j] * x[j]
        slopes[i] = v


@helper
def _add(x, out, rate, c, d, k, rates, moves):
    """The k-th event leads from x to `out`, in which only classes c and d (-1: only c) differ.

    `out` is x after it.
    """
    rates[k] = rate
    moves[k, 0] = c
    moves[k, 1] = out[c] - x[c]
    moves[k, 2] = -1
    moves[k, 3] = 0
    out[c] = x[c]
    if d >= 0 and d != c:
        moves[k, 2] = d
        moves[k, 3] = out[d] - x[d]
        out[d] = x[d]
    return k + 1


@helper
def _events(ints, floats, x, served, out, rates, moves):
    """How many events can happen.

    Their rates, and the one or two classes that each changes, with the changes.
    """
    nothing = floats[:0]
    k = 0
    copy(out, x)
    for i in range(ints[net.ARRIVAL], ints[net.ARRIVAL + 1]):
        c = ints[i]
        net.receive(ints, out, c, nothing)
        k = _add(x, out, floats[ints[net.LAM] + c], c, -1, k, rates, moves)
    for s in range(ints[net.SERVERS]):
        c = served[s]
        for r in range(ints[ints[net.ROUTE_PTR] + c], ints[ints[net.ROUTE_PTR] + c + 1]):
            d = ints[ints[net.ROUTE_DEST] + r]
            net.complete(ints, x, 0, out, c, d, nothing)
            k = _add(
                x,
                out,
                floats[ints[net.MU] + c] * floats[ints[net.ROUTE_PROB] + r],
                c,
                d,
                k,
                rates,
                moves,
            )
    return k


class Room(NamedTuple):
    """What the loops write: the class that each server works at, a state, slopes, the rates of the
    events and what they change.
    """

    served: Ints
    out: Ints
    slopes: Floats
    rates: Floats
    moves: Ints


@allocating_helper
def _room(ints):
    n = ints[net.CLASSES]
    most = n + ints[ints[net.ROUTE_PTR] + n]
    return Room(
        np.empty(ints[net.SERVERS], np.int64),
        np.empty(n + 1, np.int64),
        np.empty(n, np.float64),
        np.empty(most, np.float64),
        np.empty((most, 4), np.int64),
    )


@helper
def _drift(ints, floats, weights, x, room):
    """Ph − h."""
    slopes = room.slopes
    moves = room.moves
    n = ints[net.CLASSES]
    total = 0.0
    _slopes(weights, x, n, slopes)
    for k in range(_events(ints, floats, x, room.served, room.out, room.rates, moves)):
        c = moves[k, 0]
        u = float(moves[k, 1])
        d = moves[k, 2]
        v = float(moves[k, 3])
        change = u * (slopes[c] + 0.5 * weights[n + n * c + c] * u)
        if d >= 0:
            change += v * (
                slopes[d] + 0.5 * weights[n + n * d + d] * v + weights[n + n * c + d] * u
            )
        total += room.rates[k] * change
    return total


@helper
def _loss(ints, floats, x, served):
    """ℓ, with the penalties for customers lost in this step, in expectation."""
    total = 0.0
    if ints[net.PENALISED]:
        for k in range(ints[net.ARRIVAL], ints[net.ARRIVAL + 1]):
            total += net.arrival_penalty(ints, floats, x, ints[k])
        if ints[net.LOSE]:
            for s in range(ints[net.SERVERS]):
                total += net.completion_penalty(ints, floats, x, served[s])
        total *= floats[ints[net.SCALE]]
    return net.holding(ints, floats, x) + total


@helper
def _finish(ints, floats, c, u, rng, x, out, counts):
    """A potential completion of a server that works at class c, at u within its place.

    Whether it is one.
    """
    if u >= floats[ints[net.MU] + c]:
        return False
    d = ints[ints[net.ROUTE_DEST] + net.route_at(ints, floats, c, uniform(rng))]
    copy(out, x)
    net.complete(ints, out, 0, x, c, d, counts)
    return True


@helper
def _happen(ints, floats, served, rng, x, out, counts):
    """Draw an event, and whether there was one; places in [0, 1) are those of `network.step`."""
    u = uniform(rng)
    for k in range(ints[net.ARRIVAL], ints[net.ARRIVAL + 1]):
        u -= floats[ints[net.LAM] + ints[k]]
        if u < 0.0:
            net.receive(ints, x, ints[k], counts)
            return True
    for s in range(ints[net.SERVERS]):
        peak = floats[ints[net.PEAK] + s]
        if u < peak:
            return _finish(ints, floats, served[s], u, rng, x, out, counts)
        u -= peak
    return False


@helper
def _happen_pending(ints, floats, served, event, rng, x, out, counts):
    """The same where the event is known to be that of server `event` − 1, or (0) none of a
    server.
    """
    u = uniform(rng)
    if event > 0:
        return _finish(
            ints,
            floats,
            served[event - 1],
            u * floats[ints[net.PEAK] + event - 1],
            rng,
            x,
            out,
            counts,
        )
    u *= floats[ints[net.QUIET]]
    for k in range(ints[net.ARRIVAL], ints[net.ARRIVAL + 1]):
        u -= floats[ints[net.LAM] + ints[k]]
        if u < 0.0:
            net.receive(ints, x, ints[k], counts)
            return True
    return False


@helper
def _observe(ints, x, served, event, counts):
    """Busy servers, and all that are observed: those of all events, or of the pending one."""
    n = ints[net.CLASSES]
    servers = ints[net.SERVERS]
    for s in range(servers):
        if ints[net.PER_SERVER] == 0 or event == s + 1:
            if x[served[s]] > 0:
                counts[4 * n + s] += 1.0
            counts[4 * n + servers + s] += 1.0


@kernel(types.void(INTS, FLOATS, FLOATS, INTS, RNG_WORDS, INT, INT, FLOAT_ROWS), allocates=True)
def simulate_indices(ints, floats, weights, x, rng, t0, length, rows):
    """Go on from x, which is updated, by one chunk of `length` steps for each row, as `simulate`
    does.

    With weights of h, as `simulate_shaped` does; where decisions are made at events, Ph is over
    these too, which leaves the mean as it is.
    """
    n = ints[net.CLASSES]
    dim = x.size
    room = _room(ints)
    served = room.served
    out = room.out
    loss = 0.0
    shaped = 0.0
    moved = True
    event = 0
    ahead = 0.0
    t = t0
    for row in range(rows.shape[0]):
        sums = rows[row]
        counts = sums[2 + dim :]
        sums[0] += length
        for _ in range(length):
            if moved:
                _serve(ints, floats, x, served)
                loss = shaped = _loss(ints, floats, x, served)
                if weights.size > 0:
                    shaped += _drift(ints, floats, weights, x, room)
            sums[1] += shaped
            if weights.size > 0:
                sums[sums.size - 1] += loss
            for i in range(dim):
                sums[2 + i] += x[i]
            seek(rng, t)
            uniform(rng)  # by which `simulate` picks the action
            if ints[net.PER_SERVER]:
                event = x[n]
                ahead = uniform(rng)
            _observe(ints, x, served, event, counts)
            if ints[net.PER_SERVER]:
                moved = _happen_pending(ints, floats, served, event, rng, x, out, counts)
                x[n] = net.next_event(ints, floats, ahead)
            else:
                moved = _happen(ints, floats, served, rng, x, out, counts)
            t += 1


class Walks(NamedTuple):
    """Trajectories, one a row: their states, which are updated, their random numbers, and the
    number of their next step.
    """

    states: Ints
    rngs: Words
    t0: int


class Seen(NamedTuple):
    """What is noted of each trajectory: states after every so many steps, as far as there is room,
    and Σℓ and Σ(ℓ + Ph − h).
    """

    every: int
    states: Ints
    sums: Floats


WALKS = group(Walks, INT_ROWS, WORD_ROWS, INT)
SEEN = group(Seen, INT, INT_CUBE, FLOAT_ROWS)


@kernel(types.void(INTS, FLOATS, FLOATS, WALKS, INT, SEEN), allocates=True)
def walk(ints, floats, weights, walks, length, seen):
    """Go on along the trajectories by `length` steps."""
    room = _room(ints)
    for k in range(walks.states.shape[0]):
        _walk(ints, floats, weights, walks, k, length, seen, room)


@helper
def _walk(ints, floats, weights, walks, k, length, seen, room):
    """One trajectory."""
    x = walks.states[k]
    rng = walks.rngs[k]
    states = seen.states[k]
    sums = seen.sums[k]
    every = seen.every
    served = room.served
    loss = 0.0
    shaped = 0.0
    moved = True
    sums[:] = 0.0
    for t in range(length):
        if moved:  # in most steps nothing happens, and all that is known of the state still holds
            _serve(ints, floats, x, served)
            loss = shaped = _loss(ints, floats, x, served)
            if weights.size > 0:
                shaped += _drift(ints, floats, weights, x, room)
        sums[0] += loss
        sums[1] += shaped
        seek(rng, walks.t0 + t)
        uniform(rng)  # by which `simulate` picks the action
        moved = _happen(ints, floats, served, rng, x, room.out, floats[:0])
        if (t + 1) % every == 0 and t // every < states.shape[0]:
            copy(states[t // every], x)


@kernel(types.void(INTS, FLOATS, INT_ROWS, FLOATS, FLOAT_ROWS, FLOAT_CUBE), allocates=True)
def moments(ints, floats, states, losses, drifts, seconds):
    """ℓ, E[δ] and E[δδᵀ] at states, one a row: what a step of the network does to quadratic
    functions.
    """
    room = _room(ints)
    served = room.served
    out = room.out
    rates = room.rates
    moves = room.moves
    drifts[:] = 0.0
    seconds[:] = 0.0
    for i in range(states.shape[0]):
        x = states[i]
        _serve(ints, floats, x, served)
        losses[i] = _loss(ints, floats, x, served)
        for k in range(_events(ints, floats, x, served, out, rates, moves)):
            c = moves[k, 0]
            u = float(moves[k, 1])
            d = moves[k, 2]
            v = float(moves[k, 3])
            drifts[i, c] += rates[k] * u
            seconds[i, c, c] += rates[k] * u * u
            if d >= 0:
                drifts[i, d] += rates[k] * v
                seconds[i, d, d] += rates[k] * v * v
                seconds[i, c, d] += rates[k] * u * v
                seconds[i, d, c] += rates[k] * u * v
