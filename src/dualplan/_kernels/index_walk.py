"""Networks with one event a step under linear indices, in one loop: what a search over indices spends its time in.

Service is preemptive. No probabilities of actions are written, and what is known of a state is kept until an event
changes it, which most steps of a uniformized network do not.

`simulate_indices` is `simulate` for such networks and policies: the same draws, states and sums, in a fraction of the
time. `walk` has nothing but losses, and decides for all servers whatever the network says: its states are the classes
alone, without a pending event. Beside the loss ℓ it has ℓ + Ph − h for h(x) = gᵀx + ½xᵀHx. An event changes one or two
coordinates by δ, so

    h(x + δ) − h(x)  =  δᵀ(g + Hx) + ½δᵀHδ,

and Ph − h is the sum over the few events that can happen. `moments` has what least squares need to find such an h.
Data: `ints`, `floats` of the policy, g and H, symmetric, row by row in `weights`, nothing there for h = 0.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels import network as net
from dualplan._kernels.compiler import FLOATS, INT, INTS, RNG, ROWS, STATES, copy, helper, kernel
from dualplan._kernels.linear_index import best_waiting
from dualplan._kernels.philox import seek, uniform

CUBE, PATHS, WORDS = types.float64[:, :, ::1], types.int64[:, :, ::1], types.uint64[:, ::1]


@helper
def _serve(ints, floats, x, served):
    """The class that each server works at: of largest index, its first where nobody waits."""
    for s in range(ints[net.S]):
        _, place = best_waiting(ints, floats, x, s)
        first = ints[ints[net.CHOICE_PTR] + s]
        served[s] = ints[ints[net.CHOICE] + first + max(place, 0)]


@helper
def _slopes(weights, x, n, slopes):
    """g + Hx."""
    for i in range(n):
        v, row = weights[i], n + n * i
        for j in range(n):
            v += weights[row + j] * x[j]
        slopes[i] = v


@helper
def _change(weights, n, slopes, x, out, c, d):
    """h(out) − h(x), where only classes c and d (-1: only c) differ; `out` is x again after it."""
    u = float(out[c] - x[c])
    total = u * (slopes[c] + 0.5 * weights[n + n * c + c] * u)
    out[c] = x[c]
    if d >= 0 and d != c:
        v = float(out[d] - x[d])
        total += v * (slopes[d] + 0.5 * weights[n + n * d + d] * v + weights[n + n * c + d] * u)
        out[d] = x[d]
    return total


@helper
def _drift(ints, floats, weights, x, served, slopes, out):
    """Ph − h."""
    n, nothing, total = ints[net.N], floats[:0], 0.0
    _slopes(weights, x, n, slopes)
    copy(out, x)
    for k in range(ints[net.ARRIVAL], ints[net.ARRIVAL + 1]):
        c = ints[k]
        net.receive(ints, out, c, nothing)
        total += floats[ints[net.LAM] + c] * _change(weights, n, slopes, x, out, c, -1)
    for s in range(ints[net.S]):
        c = served[s]
        for r in range(ints[ints[net.ROUTE_PTR] + c], ints[ints[net.ROUTE_PTR] + c + 1]):
            d = ints[ints[net.ROUTE_DEST] + r]
            net.complete(ints, x, 0, out, c, d, nothing)
            rate = floats[ints[net.MU] + c] * floats[ints[net.ROUTE_PROB] + r]
            total += rate * _change(weights, n, slopes, x, out, c, d)
    return total


@helper
def _loss(ints, floats, x, served):
    """ℓ, with the penalties for customers lost in this step, in expectation."""
    total = 0.0
    if ints[net.PENALISED]:
        for k in range(ints[net.ARRIVAL], ints[net.ARRIVAL + 1]):
            total += net.arrival_penalty(ints, floats, x, ints[k])
        if ints[net.LOSE]:
            for s in range(ints[net.S]):
                total += net.completion_penalty(ints, floats, x, served[s])
        total *= floats[ints[net.SCALE]]
    return net.holding(ints, floats, x) + total


@helper
def _finish(ints, floats, c, u, rng, x, out, counts):
    """A potential completion of a server that works at class c, at u within its place; whether it is one."""
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
    for s in range(ints[net.S]):
        peak = floats[ints[net.PEAK] + s]
        if u < peak:
            return _finish(ints, floats, served[s], u, rng, x, out, counts)
        u -= peak
    return False


@helper
def _happen_pending(ints, floats, served, event, rng, x, out, counts):
    """The same where the event is known to be that of server `event` − 1, or (0) none of a server."""
    u = uniform(rng)
    if event > 0:
        return _finish(ints, floats, served[event - 1], u * floats[ints[net.PEAK] + event - 1], rng, x, out, counts)
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
    n, servers = ints[net.N], ints[net.S]
    for s in range(servers):
        if ints[net.PER_SERVER] == 0 or event == s + 1:
            if x[served[s]] > 0:
                counts[4 * n + s] += 1.0
            counts[4 * n + servers + s] += 1.0


@kernel(types.void(INTS, FLOATS, FLOATS, INTS, RNG, INT, INT, ROWS), allocates=True)
def simulate_indices(ints, floats, weights, x, rng, t0, length, rows):
    """Go on from x, which is updated, by one chunk of `length` steps for each row, as `simulate` does.

    With weights of h, as `simulate_shaped` does; where decisions are made at events, Ph is over these too, which leaves
    the mean as it is.
    """
    n, dim = ints[net.N], x.size
    served, out, slopes = np.empty(ints[net.S], np.int64), np.empty(dim, np.int64), np.empty(n, np.float64)
    loss, shaped, moved, event, ahead, t = 0.0, 0.0, True, 0, 0.0, t0
    for row in range(rows.shape[0]):
        sums = rows[row]
        counts = sums[2 + dim :]
        sums[0] += length
        for _ in range(length):
            if moved:
                _serve(ints, floats, x, served)
                loss = shaped = _loss(ints, floats, x, served)
                if weights.size > 0:
                    shaped += _drift(ints, floats, weights, x, served, slopes, out)
            sums[1] += shaped
            if weights.size > 0:
                sums[sums.size - 1] += loss
            for i in range(dim):
                sums[2 + i] += x[i]
            seek(rng, t)
            uniform(rng)  # by which `simulate` picks the action
            if ints[net.PER_SERVER]:
                event, ahead = x[n], uniform(rng)
            _observe(ints, x, served, event, counts)
            if ints[net.PER_SERVER]:
                moved = _happen_pending(ints, floats, served, event, rng, x, out, counts)
                x[n] = net.next_event(ints, floats, ahead)
            else:
                moved = _happen(ints, floats, served, rng, x, out, counts)
            t += 1


@helper
def _walk(ints, floats, weights, x, rng, t0, length, every, seen, sums, served, slopes, out):
    """One trajectory."""
    loss, shaped, moved = 0.0, 0.0, True
    sums[:] = 0.0
    for t in range(length):
        if moved:  # in most steps nothing happens, and all that is known of the state still holds
            _serve(ints, floats, x, served)
            loss = shaped = _loss(ints, floats, x, served)
            if weights.size > 0:
                shaped += _drift(ints, floats, weights, x, served, slopes, out)
        sums[0] += loss
        sums[1] += shaped
        seek(rng, t0 + t)
        uniform(rng)  # by which `simulate` picks the action
        moved = _happen(ints, floats, served, rng, x, out, floats[:0])
        if (t + 1) % every == 0 and t // every < seen.shape[0]:
            copy(seen[t // every], x)


@kernel(types.void(INTS, FLOATS, FLOATS, STATES, WORDS, INT, INT, INT, PATHS, ROWS), allocates=True)
def walk(ints, floats, weights, states, rngs, t0, length, every, seen, sums):
    """Go on from the states, one for each trajectory and updated, by `length` steps.

    Σℓ and Σ(ℓ + Ph − h) go to a row of `sums`, the states after every so many steps to `seen`, as far as it has room.
    """
    n = ints[net.N]
    served, out = np.empty(ints[net.S], np.int64), np.empty(n, np.int64)
    slopes = np.empty(n, np.float64)
    for k in range(states.shape[0]):
        _walk(ints, floats, weights, states[k], rngs[k], t0, length, every, seen[k], sums[k], served, slopes, out)


@helper
def _note(rate, x, out, c, d, drift, second):
    """Add rate·δ and rate·δδᵀ, where only classes c and d (-1: only c) differ; `out` is x again after it."""
    u = rate * (out[c] - x[c])
    drift[c] += u
    second[c, c] += u * (out[c] - x[c])
    if d >= 0 and d != c:
        v = rate * (out[d] - x[d])
        drift[d] += v
        second[d, d] += v * (out[d] - x[d])
        second[c, d] += u * (out[d] - x[d])
        second[d, c] += u * (out[d] - x[d])
        out[d] = x[d]
    out[c] = x[c]


@kernel(types.void(INTS, FLOATS, STATES, FLOATS, ROWS, CUBE), allocates=True)
def moments(ints, floats, states, losses, drifts, seconds):
    """ℓ, E[δ] and E[δδᵀ] at states, one a row: what a step of the network does to quadratic functions."""
    n, nothing = ints[net.N], floats[:0]
    served, out = np.empty(ints[net.S], np.int64), np.empty(n, np.int64)
    drifts[:] = 0.0
    seconds[:] = 0.0
    for i in range(states.shape[0]):
        x = states[i]
        _serve(ints, floats, x, served)
        losses[i] = _loss(ints, floats, x, served)
        copy(out, x)
        for k in range(ints[net.ARRIVAL], ints[net.ARRIVAL + 1]):
            net.receive(ints, out, ints[k], nothing)
            _note(floats[ints[net.LAM] + ints[k]], x, out, ints[k], -1, drifts[i], seconds[i])
        for s in range(ints[net.S]):
            c = served[s]
            for r in range(ints[ints[net.ROUTE_PTR] + c], ints[ints[net.ROUTE_PTR] + c + 1]):
                d = ints[ints[net.ROUTE_DEST] + r]
                net.complete(ints, x, 0, out, c, d, nothing)
                rate = floats[ints[net.MU] + c] * floats[ints[net.ROUTE_PROB] + r]
                _note(rate, x, out, c, d, drifts[i], seconds[i])
