"""The predecessors of a state of a queueing network: the maps of `network`, inverted.

An outcome that brings `in_i` customers to class i and takes `out_i` away has y_i - in_i <= x_i
<= y_i + out_i, whatever was empty, blocked, lost or clipped. So the few vectors within these limits
are all the candidates there are, and the map itself confirms them.

With independent events an outcome may touch every class, and `predecessors_bernoulli` writes whole
states. With one event a step, `changes` writes only what differs from y: no more than the classes
that the event touches, the services of their servers and the pending event. So a list of
predecessors costs as much as it is long, whatever the number of coordinates; `predecessors` puts
the differences into y for those who want whole states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualplan._kernels.compiler import (
    CHANGES_SIGNATURE,
    PREDECESSORS_SIGNATURE,
    allocating_helper,
    copy,
    helper,
    kernel,
)
from dualplan._kernels.network import (
    ACTIONS,
    ARRIVAL,
    BUFFER,
    CLASSES,
    LAM,
    MU,
    NONPREEMPTIVE,
    PEAK,
    PER_SERVER,
    QUIET,
    ROUTE_DEST,
    ROUTE_PROB,
    ROUTE_PTR,
    SERVER,
    SERVERS,
    active,
    allowed_of,
    apply,
    complete,
    place_of,
    receive,
)
from dualplan.core.types import Floats, Ints

# coordinates that one event changes: two classes, two services, the pending event
MOST_CHANGED_COORDINATES = 5


class Pairs(NamedTuple):
    """Where the pairs that lead to a state are listed: states, actions, probabilities."""

    states: Ints
    actions: Ints
    probabilities: Floats


class Outcome(NamedTuple):
    """An outcome, the classes that it involves, the limits of their queues before it, and two
    states to work on.
    """

    arrived: Ints
    done: Ints
    touched: Ints
    low: Ints
    span: Ints
    x: Ints
    out: Ints


class ChangeList(NamedTuple):
    """Where the pairs that lead to y are listed as changes: coordinates, their values and number;
    actions and probabilities.

    x and out are copies of y to work on; `near` has the coordinates that the event at hand can
    change.
    """

    y: Ints
    coords: Ints
    news: Ints
    sizes: Ints
    actions: Ints
    probabilities: Floats
    x: Ints
    out: Ints
    near: Ints


# -- independent events ----------------------------------------------------------------------------


@helper
def outcome_probability(ints, floats, x, a, arrived, done):
    """The probability of an outcome of independent events at (x, a)."""
    lam = ints[LAM]
    mu = ints[MU]
    route_prob = ints[ROUTE_PROB]
    p = 1.0
    for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
        c = ints[k]
        p *= floats[lam + c] if arrived[c] else 1.0 - floats[lam + c]
    for c in range(ints[CLASSES]):
        working = active(ints, x, a, ints[ints[SERVER] + c]) == c
        if done[c] >= 0:
            p *= floats[mu + c] * floats[route_prob + done[c]] if working else 0.0
        elif working:
            p *= 1.0 - floats[mu + c]
    return p


@helper
def same(x, y, size):
    for i in range(size):  # noqa: SIM110 - compiled code has no generators here
        if x[i] != y[i]:
            return False
    return True


@allocating_helper
def no_outcome(ints, dim):
    n = ints[CLASSES]
    return Outcome(
        np.zeros(n, np.int64),
        np.full(n, -1, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(dim, np.int64),
        np.empty(dim, np.int64),
    )


@helper
def invert(ints, floats, y, outcome, size, pairs, count):
    """Append the (x, a) from which an outcome of independent events leads to y.

    `touched[:size]` are the classes it involves.
    """
    arrived = outcome.arrived
    done = outcome.done
    touched = outcome.touched
    low = outcome.low
    span = outcome.span
    x = outcome.x
    out = outcome.out
    dest = ints[ROUTE_DEST]
    nothing = floats[:0]
    candidates = 1
    for i in range(size):
        c = touched[i]
        gain = arrived[c]
        for j in range(size):
            if done[touched[j]] >= 0 and ints[dest + done[touched[j]]] == c:
                gain += 1
        low[i] = max(np.int64(0), y[c] - gain)
        span[i] = min(ints[ints[BUFFER] + c], y[c] + (1 if done[c] >= 0 else 0)) - low[i] + 1
        candidates *= span[i]
    # An idle server may have been woken by whoever came to it, so two histories of its service are
    # possible.
    if ints[NONPREEMPTIVE]:
        histories = 1 << size
    else:
        histories = 1
    for history in range(histories):
        copy(x, y)
        if ints[NONPREEMPTIVE] and not rewind_services(ints, x, done, touched, size, history):
            continue
        for number in range(candidates):
            digits = number
            for i in range(size):
                x[touched[i]] = low[i] + digits % span[i]
                digits //= span[i]
            mapped = False
            for a in range(ints[ACTIONS]):
                if not allowed_of(ints, x, a):
                    continue
                p = outcome_probability(ints, floats, x, a, arrived, done)
                if p == 0.0:
                    continue
                if not mapped or ints[NONPREEMPTIVE]:
                    apply(ints, x, a, arrived, done, out, nothing)
                    mapped = True
                if not same(out, y, y.size):
                    continue
                if count >= pairs.actions.size:
                    return np.int64(-1)
                copy(pairs.states[count], x)
                pairs.actions[count] = a
                pairs.probabilities[count] = p
                count += 1
    return count


@helper
def rewind_services(ints, x, done, touched, size, history):
    """Set the services before the step for one history of idle servers.

    False if it repeats another one.
    """
    n = ints[CLASSES]
    for i in range(size):
        c = touched[i]
        s = ints[ints[SERVER] + c]
        completed = np.int64(-1)
        first = True
        for j in range(size):
            if ints[ints[SERVER] + touched[j]] == s:
                if done[touched[j]] >= 0:
                    completed = touched[j]
                if j < i:
                    first = False
        woken = (history >> i) & 1
        if completed >= 0:
            if woken:
                return False
            x[n + s] = place_of(ints, completed)
        elif woken:
            if not first or x[n + s] == 0:
                return False
            x[n + s] = 0
    return True


@helper
def touch(touched, size, c):
    for i in range(size):
        if touched[i] == c:
            return size
    touched[size] = c
    return size + 1


@helper
def ways_of_server(ints, s):
    ways = 1
    for c in range(ints[CLASSES]):
        if ints[ints[SERVER] + c] == s:
            ways += ints[ints[ROUTE_PTR] + c + 1] - ints[ints[ROUTE_PTR] + c]
    return ways


@kernel(PREDECESSORS_SIGNATURE, allocates=True)
def predecessors_bernoulli(ints, floats, y, states, actions, probabilities):
    """The predecessors of y, with independent events, as whole states; −1 if there are too many."""
    dest = ints[ROUTE_DEST]
    pairs = Pairs(states, actions, probabilities)
    outcome = no_outcome(ints, y.size)
    arrived = outcome.arrived
    done = outcome.done
    touched = outcome.touched
    outcomes = 1 << (ints[ARRIVAL + 1] - ints[ARRIVAL])
    for s in range(ints[SERVERS]):
        outcomes *= ways_of_server(ints, s)
    count = np.int64(0)
    for number in range(outcomes):
        digits = number
        size = 0
        arrived[:] = 0
        done[:] = -1
        for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
            c = ints[k]
            if digits % 2:
                arrived[c] = 1
                size = touch(touched, size, c)
            digits //= 2
        for s in range(ints[SERVERS]):
            ways = ways_of_server(ints, s)
            way = digits % ways - 1
            digits //= ways
            for c in range(ints[CLASSES]):
                if ints[ints[SERVER] + c] != s:
                    continue
                slots = ints[ints[ROUTE_PTR] + c + 1] - ints[ints[ROUTE_PTR] + c]
                if 0 <= way < slots:
                    done[c] = ints[ints[ROUTE_PTR] + c] + way
                    size = touch(touched, size, c)
                    if ints[dest + done[c]] >= 0:
                        size = touch(touched, size, ints[dest + done[c]])
                way -= slots
        count = invert(ints, floats, y, outcome, size, pairs, count)
        if count < 0:
            return count
    return count


# -- one event a step ------------------------------------------------------------------------------


@helper
def note(ints, listed, size, a, p, count):
    """Append the pair (x, a): what differs from y at the coordinates near[:size] and in the pending
    event.
    """
    if count >= listed.actions.size:
        return np.int64(-1)
    x = listed.x
    y = listed.y
    changed = 0
    for k in range(size):
        i = listed.near[k]
        if x[i] != y[i]:
            listed.coords[count, changed] = i
            listed.news[count, changed] = x[i]
            changed += 1
    last = y.size - 1
    if ints[PER_SERVER] and x[last] != y[last]:
        listed.coords[count, changed] = last
        listed.news[count, changed] = x[last]
        changed += 1
    listed.sizes[count] = changed
    listed.actions[count] = a
    listed.probabilities[count] = p
    return count + 1


@helper
def unchanged(ints, floats, factor, listed, count):
    """Append the pairs from which nothing happens, with decisions per server."""
    x = listed.x
    last = x.size - 1
    for event in range(ints[SERVERS] + 1):
        x[last] = event
        for a in range(ints[ACTIONS]):
            if count < 0 or not allowed_of(ints, x, a):
                continue
            rest = 1.0
            if event == 0:
                for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
                    rest -= floats[ints[LAM] + ints[k]] / floats[ints[QUIET]]
            else:
                c = active(ints, x, a, event - 1)
                if c >= 0:
                    rest -= floats[ints[MU] + c] / floats[ints[PEAK] + event - 1]
            if rest > 1e-14:
                count = note(ints, listed, 0, a, rest * factor, count)
    x[last] = listed.y[last]
    return count


@helper
def one_event_probability(ints, floats, x, a, c, route):
    """The probability of an arrival to class c (route −1), or of its completion along a route, at
    (x, a).
    """
    if route < 0:
        if ints[PER_SERVER]:
            return floats[ints[LAM] + c] / floats[ints[QUIET]]
        return floats[ints[LAM] + c]
    s = ints[ints[SERVER] + c]
    if active(ints, x, a, s) != c:
        return 0.0
    p = floats[ints[MU] + c] * floats[ints[ROUTE_PROB] + route]
    if ints[PER_SERVER]:
        return p / floats[ints[PEAK] + s]
    return p


@helper
def rewind_one(ints, y, x, c, d, route, history):
    """Set the services before an event at classes c and d for one history of idle servers.

    False if there is none.
    """
    n = ints[CLASSES]
    for i in range(1 if d < 0 or d == c else 2):
        s = ints[ints[SERVER] + (c if i == 0 else d)]
        woken = (history >> i) & 1
        if route >= 0 and s == ints[ints[SERVER] + c]:
            if woken:
                return False
            x[n + s] = place_of(ints, c)
        elif woken:
            if y[n + s] == 0:
                return False
            x[n + s] = 0
        else:
            x[n + s] = y[n + s]
    return True


@helper
def invert_one(ints, floats, c, route, factor, listed, count):
    """Append the pairs from which an arrival to class c (route −1), or its completion along a
    route, leads to y.
    """
    y = listed.y
    x = listed.x
    near = listed.near
    n = ints[CLASSES]
    buffer = ints[BUFFER]
    last = y.size - 1
    if route >= 0:
        d = ints[ints[ROUTE_DEST] + route]
    else:
        d = np.int64(-1)
    if d != c:
        other = d
    else:
        other = np.int64(-1)
    near[0] = c
    size = 1
    if other >= 0:
        near[1] = other
        size = 2
    classes = size
    if ints[NONPREEMPTIVE]:
        near[size] = n + ints[ints[SERVER] + c]
        size += 1
        if other >= 0 and ints[ints[SERVER] + other] != ints[ints[SERVER] + c]:
            near[size] = n + ints[ints[SERVER] + other]
            size += 1
    if route < 0 or d == c:
        gain = np.int64(1)
    else:
        gain = np.int64(0)
    low = max(np.int64(0), y[c] - gain)
    span = min(ints[buffer + c], y[c] + (1 if route >= 0 else 0)) - low + 1
    low_other = np.int64(0)
    span_other = np.int64(1)
    if other >= 0:
        low_other = max(np.int64(0), y[other] - 1)
        span_other = y[other] - low_other + 1
    if route < 0:
        event = np.int64(0)
    else:
        event = ints[ints[SERVER] + c] + 1
    for history in range(1 << classes if ints[NONPREEMPTIVE] else 1):
        if ints[NONPREEMPTIVE] and not rewind_one(ints, y, x, c, other, route, history):
            continue
        for number in range(span * span_other):
            x[c] = low + number % span
            if other >= 0:
                x[other] = low_other + number // span
            if ints[PER_SERVER]:
                x[last] = event
            mapped = False
            same_map = False
            for a in range(ints[ACTIONS]):
                if count < 0 or not allowed_of(ints, x, a):
                    continue
                p = one_event_probability(ints, floats, x, a, c, route)
                if p == 0.0:
                    continue
                if not mapped or ints[NONPREEMPTIVE]:
                    same_map = leads_to(ints, floats, listed, a, c, d, route, size)
                    mapped = True
                if same_map:
                    count = note(ints, listed, size, a, p * factor, count)
    for k in range(size):
        x[near[k]] = y[near[k]]
        listed.out[near[k]] = y[near[k]]
    if ints[PER_SERVER]:
        x[last] = y[last]
    return count


@helper
def leads_to(ints, floats, listed, a, c, d, route, size):
    """Whether the event takes x to y, which differ at near[:size] alone."""
    x = listed.x
    y = listed.y
    out = listed.out
    near = listed.near
    for k in range(size):
        out[near[k]] = x[near[k]]
    if route < 0:
        receive(ints, out, c, floats[:0])
    else:
        complete(ints, x, a, out, c, d, floats[:0])
    for k in range(size):  # noqa: SIM110 - compiled code has no generators here
        if out[near[k]] != y[near[k]]:
            return False
    return True


@helper
def list_changes(ints, floats, y, coords, news, sizes, actions, probabilities, x, out):
    # the last row is room to work
    near = coords[coords.shape[0] - 1]
    listed = ChangeList(y, coords, news, sizes, actions, probabilities, x, out, near)
    count = np.int64(0)
    factor = 1.0
    if ints[PER_SERVER]:
        event = y[y.size - 1]
        if event == 0:
            factor = floats[ints[QUIET]]
        else:
            factor = floats[ints[PEAK] + event - 1]
        count = unchanged(ints, floats, factor, listed, count)
    else:
        for a in range(ints[ACTIONS]):
            if count >= 0 and allowed_of(ints, x, a):
                rest = 1.0
                for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
                    rest -= floats[ints[LAM] + ints[k]]
                for s in range(ints[SERVERS]):
                    c = active(ints, x, a, s)
                    if c >= 0:
                        rest -= floats[ints[MU] + c]
                if rest > 1e-14:
                    count = note(ints, listed, 0, a, rest, count)
    for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
        if count >= 0:
            count = invert_one(ints, floats, ints[k], np.int64(-1), factor, listed, count)
    for c in range(ints[CLASSES]):
        for r in range(ints[ints[ROUTE_PTR] + c], ints[ints[ROUTE_PTR] + c + 1]):
            if count >= 0:
                count = invert_one(ints, floats, c, r, factor, listed, count)
    return count


@kernel(CHANGES_SIGNATURE)
def changes(ints, floats, y, coords, news, sizes, actions, probabilities, x, out):
    """The predecessors of y, with one event a step: for each what differs from y; −1 if there are
    too many.

    x and out equal y before and after.
    """
    return list_changes(ints, floats, y, coords, news, sizes, actions, probabilities, x, out)


@kernel(PREDECESSORS_SIGNATURE, allocates=True)
def predecessors(ints, floats, y, states, actions, probabilities):
    """The predecessors of y, with one event a step, as whole states: y with what differs."""
    most = actions.size
    coords = np.empty((most + 1, MOST_CHANGED_COORDINATES), np.int64)
    news = np.empty((most + 1, MOST_CHANGED_COORDINATES), np.int64)
    sizes = np.empty(most, np.int64)
    x = y.copy()
    out = y.copy()
    count = list_changes(ints, floats, y, coords, news, sizes, actions, probabilities, x, out)
    for k in range(count):
        copy(states[k], y)
        for j in range(sizes[k]):
            states[k, coords[k, j]] = news[k, j]
    return count
