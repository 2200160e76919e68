"""Queueing networks as data: one set of compiled functions for all of them.

A step of a network is an *outcome*: which classes receive a customer from outside, and which class
each server completes and along which route. An outcome maps a state to the next one (`apply`), so

- ``forward`` lists the outcomes that are possible at (x, a) and applies them,
- ``step`` draws one of them,
- ``predecessors`` (in `network_backward`) goes through all outcomes and inverts the map.

The state is the number of customers in each class; with non-preemptive service then, for each
server, 0 or 1 + the place of the class in service among those of the server; with decisions per
server, last, the pending event: 0 (not a server's) or 1 + the server whose potential completion it
is. A customer in service counts in his class.
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels.compiler import (
    ALLOWED_SIGNATURE,
    COUNTS_SIGNATURE,
    FORWARD_SIGNATURE,
    LOSS_SIGNATURE,
    STEP_SIGNATURE,
    allocating_helper,
    copy,
    helper,
    kernel,
)
from dualplan._kernels.philox import uniform

# Positions in the header of `ints`. Numbers and switches:
CLASSES, SERVERS, BERNOULLI, PHANTOM, LOSE, NONPREEMPTIVE, PER_SERVER, ACTIONS, PENALISED = range(9)
# Where the integer fields start (each ends where the next one starts):
CHOICE_PTR, CHOICE, STRIDE, SERVER, BUFFER, ARRIVAL, ROUTE_PTR, ROUTE_DEST, ORDER, INT_END = range(
    9, 19
)
# Where the fields of `floats` start:
LAM, MU, ROUTE_PROB, LINEAR, QUADRATIC, EXCESS, LEVEL, PENALTY, PEAK, SCALE, QUIET, FLOAT_END = (
    range(19, 31)
)
NETWORK_HEADER_SIZE = 31

INT_FIELDS = (
    "CHOICE_PTR",
    "CHOICE",
    "STRIDE",
    "SERVER",
    "BUFFER",
    "ARRIVAL",
    "ROUTE_PTR",
    "ROUTE_DEST",
    "ORDER",
)
FLOAT_FIELDS = (
    "LAM",
    "MU",
    "ROUTE_PROB",
    "LINEAR",
    "QUADRATIC",
    "EXCESS",
    "LEVEL",
    "PENALTY",
    "PEAK",
    "SCALE",
    "QUIET",
)

SERVICE_EMPTY = 0
SERVICE_BLOCKED = 1
SERVICE_DONE = 2


# A field is read as ints[ints[FIELD] + i].


@helper
def chosen(ints, x, a, s):
    """The class that server s would serve (non-preemptive: serve next) under action a; -1: none."""
    ptr = ints[ints[CHOICE_PTR] + s]
    if ints[PER_SERVER]:
        if x[x.size - 1] != s + 1:
            return np.int64(-1)
        return ints[ints[CHOICE] + ptr + a]
    options = ints[ints[CHOICE_PTR] + s + 1] - ptr
    return ints[ints[CHOICE] + ptr + (a // ints[ints[STRIDE] + s]) % options]


@helper
def in_service(ints, x, s):
    """Non-preemptive: the class that server s is at; -1: none."""
    place = x[ints[CLASSES] + s]
    if place > 0:
        return ints[ints[CHOICE] + ints[ints[CHOICE_PTR] + s] + place - 1]
    return np.int64(-1)


@helper
def place_of(ints, c):
    """1 + the place of class c among those of its server."""
    first = ints[ints[CHOICE_PTR] + ints[ints[SERVER] + c]]
    place = 1
    while ints[ints[CHOICE] + first + place - 1] != c:
        place += 1
    return place


@helper
def active(ints, x, a, s):
    """The class that server s works at in state x under action a; -1: none."""
    if ints[NONPREEMPTIVE]:
        if ints[PER_SERVER] and x[x.size - 1] != s + 1:
            return np.int64(-1)
        return in_service(ints, x, s)
    return chosen(ints, x, a, s)


@helper
def tally(counts, position):
    if counts.size > 0:
        counts[position] += 1.0


@helper
def arrive(ints, out, c, counts):
    """A customer comes to class c from outside."""
    tally(counts, c)
    if ints[LOSE] == 0 and out[c] >= ints[ints[BUFFER] + c]:
        tally(counts, ints[CLASSES] + c)
        return
    # where full queues lose, `clip` turns the surplus away once departures have counted
    out[c] += 1


@helper
def serve(ints, x, out, c, d, counts):
    """Class c completes a customer, who goes on to class d (-1: leaves)."""
    if x[c] == 0 and ints[PHANTOM] == 0:
        return SERVICE_EMPTY
    out[c] -= 1
    if d >= 0:
        if ints[LOSE] == 0 and out[d] >= ints[ints[BUFFER] + d]:
            out[c] += 1
            tally(counts, 3 * ints[CLASSES] + c)
            return SERVICE_BLOCKED
        out[d] += 1
    if x[c] > 0:
        tally(counts, 2 * ints[CLASSES] + c)
    return SERVICE_DONE


@helper
def clip(ints, out, c, counts):
    """Bring class c back between 0 and its buffer."""
    surplus = out[c] - ints[ints[BUFFER] + c]
    if surplus > 0:
        out[c] -= surplus
        if counts.size > 0:
            counts[ints[CLASSES] + c] += surplus
    elif out[c] < 0:
        out[c] = 0


@helper
def next_service(ints, x, a, out, c):
    """Non-preemptive: the server of class c, done with it, takes up what it chose, if somebody
    waits there.
    """
    s = ints[ints[SERVER] + c]
    k = chosen(ints, x, a, s)
    out[ints[CLASSES] + s] = 0
    if k >= 0 and x[k] - (1 if k == c else 0) > 0:
        out[ints[CLASSES] + s] = place_of(ints, k)


@helper
def wake(ints, out, c):
    """Non-preemptive: a customer came to class c.

    Its server, if idle, starts its first waiting class.
    """
    s = ints[ints[SERVER] + c]
    if out[ints[CLASSES] + s] == 0:
        first = ints[ints[CHOICE_PTR] + s]
        last = ints[ints[CHOICE_PTR] + s + 1]
        for j in range(first, last):
            if out[ints[ints[CHOICE] + j]] > 0:
                out[ints[CLASSES] + s] = j - first + 1
                return


@helper
def receive(ints, out, c, counts):
    """One arrival from outside as the only event of a step."""
    arrive(ints, out, c, counts)
    clip(ints, out, c, counts)
    if ints[NONPREEMPTIVE]:
        wake(ints, out, c)


@helper
def complete(ints, x, a, out, c, d, counts):
    """One completion as the only event of a step."""
    result = serve(ints, x, out, c, d, counts)
    clip(ints, out, c, counts)
    if d >= 0:
        clip(ints, out, d, counts)
    if ints[NONPREEMPTIVE]:
        if result != SERVICE_BLOCKED:
            next_service(ints, x, a, out, c)
            wake(ints, out, c)
        if d >= 0:
            wake(ints, out, d)


@helper
def apply(ints, x, a, arrived, done, out, counts):
    """The next state for an outcome: `arrived[c]` is 0 or 1, `done[c]` is a slot of the routes or
    -1.

    Completions count downstream first, then arrivals from outside; where full queues lose
    customers, the surplus is turned away at the end. Whether a queue is empty is read from the
    state before the step.
    """
    copy(out, x)
    dest = ints[ROUTE_DEST]
    for k in range(ints[ORDER], ints[ORDER + 1]):
        c = ints[k]
        if done[c] >= 0:
            result = serve(ints, x, out, c, ints[dest + done[c]], counts)
            if ints[NONPREEMPTIVE] and result != SERVICE_BLOCKED:
                next_service(ints, x, a, out, c)
    for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
        c = ints[k]
        if arrived[c]:
            arrive(ints, out, c, counts)
    for c in range(ints[CLASSES]):
        clip(ints, out, c, counts)
    if ints[NONPREEMPTIVE]:
        for c in range(ints[CLASSES]):
            if arrived[c]:
                wake(ints, out, c)
            if done[c] >= 0:
                wake(ints, out, c)
                if ints[dest + done[c]] >= 0:
                    wake(ints, out, ints[dest + done[c]])


@helper
def allowed_of(ints, x, a):
    if ints[PER_SERVER] and x[x.size - 1] == 0:
        return a == 0
    first = np.int64(0)
    last = ints[SERVERS]
    if ints[PER_SERVER]:
        first = x[x.size - 1] - 1
        last = x[x.size - 1]
        if a >= ints[ints[CHOICE_PTR] + last] - ints[ints[CHOICE_PTR] + first]:
            return False
    if ints[NONPREEMPTIVE] == 0:
        return True
    for s in range(first, last):
        # A busy server chooses among the classes where somebody else waits; where nobody does, and
        # for an idle server, its first choice stands for "none".
        b = in_service(ints, x, s)
        ptr = ints[ints[CHOICE_PTR] + s]
        k = chosen(ints, x, a, s)
        waiting = b >= 0 and x[k] - (1 if k == b else 0) > 0
        if not waiting:
            if k != ints[ints[CHOICE] + ptr]:
                return False
            if b >= 0:
                for j in range(ptr, ints[ints[CHOICE_PTR] + s + 1]):
                    other = ints[ints[CHOICE] + j]
                    if x[other] - (1 if other == b else 0) > 0:
                        return False
    return True


@kernel(ALLOWED_SIGNATURE)
def allowed(ints, floats, x, a):
    return allowed_of(ints, x, a)


@helper
def limits_of(ints, x, a, limits):
    """How many ways each arrival and each server has in the outcomes possible at (x, a).

    Their number.
    """
    arrivals = ints[ARRIVAL + 1] - ints[ARRIVAL]
    number = 1
    for i in range(arrivals):
        limits[i] = 2
        number *= 2
    for s in range(ints[SERVERS]):
        c = active(ints, x, a, s)
        limits[arrivals + s] = 1
        if c >= 0:
            limits[arrivals + s] += ints[ints[ROUTE_PTR] + c + 1] - ints[ints[ROUTE_PTR] + c]
        number *= limits[arrivals + s]
    return number


@helper
def bernoulli_outcome(ints, floats, x, a, number, limits, arrived, done):
    """Write outcome `number` (in mixed radix) of those possible at (x, a); its probability."""
    lam = ints[LAM]
    mu = ints[MU]
    route_prob = ints[ROUTE_PROB]
    arrivals = ints[ARRIVAL + 1] - ints[ARRIVAL]
    p = 1.0
    for i in range(arrivals):
        c = ints[ints[ARRIVAL] + i]
        digit = number % 2
        number //= 2
        arrived[c] = digit
        p *= floats[lam + c] if digit else 1.0 - floats[lam + c]
    done[:] = -1
    for s in range(ints[SERVERS]):
        digit = number % limits[arrivals + s]
        number //= limits[arrivals + s]
        c = active(ints, x, a, s)
        if c < 0:
            continue
        if digit == 0:
            p *= 1.0 - floats[mu + c]
        else:
            done[c] = ints[ints[ROUTE_PTR] + c] + digit - 1
            p *= floats[mu + c] * floats[route_prob + done[c]]
    return p


@helper
def holding(ints, floats, x):
    linear = ints[LINEAR]
    quadratic = ints[QUADRATIC]
    excess = ints[EXCESS]
    level = ints[LEVEL]
    total = 0.0
    for c in range(ints[CLASSES]):
        v = float(x[c])
        total += (floats[linear + c] + floats[quadratic + c] * v) * v
        if floats[excess + c] > 0.0 and v > floats[level + c]:
            total += floats[excess + c] * (v - floats[level + c])
    return total


@helper
def arrival_penalty(ints, floats, x, c):
    """What an arrival to class c that would be lost costs, times its probability."""
    if x[c] >= ints[ints[BUFFER] + c]:
        return floats[ints[LAM] + c] * floats[ints[PENALTY] + c]
    return 0.0


@helper
def completion_penalty(ints, floats, x, c):
    """Where full queues lose: the same for customers that class c sends on."""
    if x[c] == 0 and ints[PHANTOM] == 0:
        return 0.0
    total = 0.0
    for r in range(ints[ints[ROUTE_PTR] + c], ints[ints[ROUTE_PTR] + c + 1]):
        d = ints[ints[ROUTE_DEST] + r]
        if d >= 0 and d != c and x[d] >= ints[ints[BUFFER] + d]:
            total += floats[ints[MU] + c] * floats[ints[ROUTE_PROB] + r] * floats[ints[PENALTY] + d]
    return total


@helper
def expected_penalty(ints, floats, x, a):
    """The penalties for customers lost in this step, in expectation, where at most one event
    happens.
    """
    if ints[PER_SERVER]:
        event = x[x.size - 1]
    else:
        event = np.int64(-1)
    total = 0.0
    if event <= 0:
        if event == 0:
            scale = 1.0 / floats[ints[QUIET]]
        else:
            scale = 1.0
        for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
            total += scale * arrival_penalty(ints, floats, x, ints[k])
    if ints[LOSE]:
        for s in range(ints[SERVERS]):
            c = active(ints, x, a, s)
            if c >= 0:
                if ints[PER_SERVER]:
                    scale = 1.0 / floats[ints[PEAK] + s]
                else:
                    scale = 1.0
                total += scale * completion_penalty(ints, floats, x, c)
    return total


@allocating_helper
def expected_penalty_bernoulli(ints, floats, x, a):
    n = ints[CLASSES]
    limits = np.empty(n + ints[SERVERS], np.int64)
    arrived = np.zeros(n, np.int64)
    done = np.empty(n, np.int64)
    out = np.empty(x.size, np.int64)
    counts = np.empty(counters(ints), np.float64)
    total = 0.0
    for number in range(limits_of(ints, x, a, limits)):
        p = bernoulli_outcome(ints, floats, x, a, number, limits, arrived, done)
        counts[:] = 0.0
        apply(ints, x, a, arrived, done, out, counts)
        for c in range(n):
            total += p * floats[ints[PENALTY] + c] * counts[n + c]
    return total


@helper
def counters(ints):
    """Per class: offered, lost, completed, blocked; per server: busy, observed."""
    return 4 * ints[CLASSES] + 2 * ints[SERVERS]


@helper
def loss_one_event(ints, floats, x, a):
    total = holding(ints, floats, x)
    if ints[PENALISED]:
        total += floats[ints[SCALE]] * expected_penalty(ints, floats, x, a)
    return total


@allocating_helper
def loss_bernoulli_of(ints, floats, x, a):
    total = holding(ints, floats, x)
    if ints[PENALISED]:
        total += expected_penalty_bernoulli(ints, floats, x, a)
    return total


@kernel(LOSS_SIGNATURE)
def loss(ints, floats, x, a):
    return loss_one_event(ints, floats, x, a)


@kernel(LOSS_SIGNATURE, allocates=True)
def loss_bernoulli(ints, floats, x, a):
    return loss_bernoulli_of(ints, floats, x, a)


@kernel(FORWARD_SIGNATURE, allocates=True)
def forward_bernoulli(ints, floats, x, a, states, probabilities):
    n = ints[CLASSES]
    limits = np.empty(n + ints[SERVERS], np.int64)
    arrived = np.zeros(n, np.int64)
    done = np.empty(n, np.int64)
    nothing = floats[:0]
    count = 0
    for number in range(limits_of(ints, x, a, limits)):
        p = bernoulli_outcome(ints, floats, x, a, number, limits, arrived, done)
        if p > 0.0:
            apply(ints, x, a, arrived, done, states[count], nothing)
            probabilities[count] = p
            count += 1
    return count


@helper
def forward_one_event(ints, floats, x, a, states, probabilities, tallies):
    """The outcomes; what each of them counts goes to a row of `tallies`, unless it has none."""
    lam = ints[LAM]
    mu = ints[MU]
    route_prob = ints[ROUTE_PROB]
    dest = ints[ROUTE_DEST]
    if ints[PER_SERVER]:
        event = x[x.size - 1]
    else:
        event = np.int64(-1)
    nothing = floats[:0]
    counted = tallies.shape[0] > 0
    count = 0
    rest = 1.0
    if event <= 0:
        if event == 0:
            scale = 1.0 / floats[ints[QUIET]]
        else:
            scale = 1.0
        for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
            c = ints[k]
            copy(states[count], x)
            receive(ints, states[count], c, tallies[count] if counted else nothing)
            probabilities[count] = scale * floats[lam + c]
            rest -= probabilities[count]
            count += 1
    if event != 0:
        for s in range(ints[SERVERS]):
            c = active(ints, x, a, s)
            if c < 0:
                continue
            if ints[PER_SERVER]:
                scale = 1.0 / floats[ints[PEAK] + s]
            else:
                scale = 1.0
            for r in range(ints[ints[ROUTE_PTR] + c], ints[ints[ROUTE_PTR] + c + 1]):
                copy(states[count], x)
                if counted:
                    tally_to = tallies[count]
                else:
                    tally_to = nothing
                complete(ints, x, a, states[count], c, ints[dest + r], tally_to)
                probabilities[count] = scale * floats[mu + c] * floats[route_prob + r]
                rest -= probabilities[count]
                count += 1
    if rest > 1e-14:
        copy(states[count], x)
        probabilities[count] = rest
        count += 1
    return count


@kernel(FORWARD_SIGNATURE)
def forward(ints, floats, x, a, states, probabilities):
    count = forward_one_event(ints, floats, x, a, states, probabilities, floats[:0].reshape(0, 1))
    if ints[PER_SERVER] == 0:
        return count
    # The next pending event is drawn independently of everything else.
    events = ints[SERVERS] + 1
    for i in range(count - 1, -1, -1):
        p = probabilities[i]
        for event in range(events - 1, -1, -1):
            k = i * events + event
            copy(states[k], states[i])
            states[k, x.size - 1] = event
            probabilities[k] = p * (
                floats[ints[QUIET]] if event == 0 else floats[ints[PEAK] + event - 1]
            )
    return count * events


@helper
def route_at(ints, floats, c, u):
    """The slot of the route of class c at u in [0, 1)."""
    r = ints[ints[ROUTE_PTR] + c]
    last = ints[ints[ROUTE_PTR] + c + 1] - 1
    while r < last:
        u -= floats[ints[ROUTE_PROB] + r]
        if u < 0.0:
            break
        r += 1
    return r


@helper
def observe_servers(ints, x, a, counts):
    if counts.size == 0:
        return
    n = ints[CLASSES]
    servers = ints[SERVERS]
    for s in range(servers):
        if ints[PER_SERVER] and x[x.size - 1] != s + 1:
            continue
        c = active(ints, x, a, s)
        if c >= 0 and x[c] > 0:
            counts[4 * n + s] += 1.0
        counts[4 * n + servers + s] += 1.0


@helper
def next_event(ints, floats, u):
    """The event at u in [0, 1): 0, or 1 + the server whose potential completion it is."""
    u -= floats[ints[QUIET]]
    event = 0
    while u >= 0.0 and event < ints[SERVERS]:
        u -= floats[ints[PEAK] + event]
        event += 1
    return event


@helper
def step_one_event(ints, floats, x, a, rng, out, counts):
    """Arrivals and potential completions have fixed places in [0, 1), so that coupled chains see
    the same events.
    """
    if ints[PER_SERVER]:
        event = x[x.size - 1]
    else:
        event = np.int64(-1)
    u = uniform(rng)
    if event <= 0:
        if event == 0:
            u *= floats[ints[QUIET]]
        for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
            c = ints[k]
            u -= floats[ints[LAM] + c]
            if u < 0.0:
                receive(ints, out, c, counts)
                return
        if event == 0:
            return
    for s in range(ints[SERVERS]):
        if event > 0:
            if s != event - 1:
                continue
            u *= floats[ints[PEAK] + s]
        if u < floats[ints[PEAK] + s]:
            c = active(ints, x, a, s)
            if c >= 0 and u < floats[ints[MU] + c]:
                d = ints[ints[ROUTE_DEST] + route_at(ints, floats, c, uniform(rng))]
                complete(ints, x, a, out, c, d, counts)
            return
        u -= floats[ints[PEAK] + s]


@helper
def add_tallies(probabilities, tallies, count, counts):
    for k in range(count):
        for i in range(counts.size):
            counts[i] += probabilities[k] * tallies[k, i]


@kernel(COUNTS_SIGNATURE, allocates=True)
def expected_counts(ints, floats, x, a, counts):
    """What a step counts, in expectation."""
    most = ints[ARRIVAL + 1] - ints[ARRIVAL] + ints[ROUTE_DEST + 1] - ints[ROUTE_DEST] + 1
    states = np.empty((most, x.size), np.int64)
    probabilities = np.empty(most, np.float64)
    tallies = np.zeros((most, counts.size), np.float64)
    count = forward_one_event(ints, floats, x, a, states, probabilities, tallies)
    counts[:] = 0.0
    observe_servers(ints, x, a, counts)
    add_tallies(probabilities, tallies, count, counts)


@kernel(COUNTS_SIGNATURE, allocates=True)
def expected_counts_bernoulli(ints, floats, x, a, counts):
    n = ints[CLASSES]
    limits = np.empty(n + ints[SERVERS], np.int64)
    arrived = np.zeros(n, np.int64)
    done = np.empty(n, np.int64)
    out = np.empty(x.size, np.int64)
    tallies = np.empty((1, counts.size), np.float64)
    p = np.empty(1, np.float64)
    counts[:] = 0.0
    observe_servers(ints, x, a, counts)
    for number in range(limits_of(ints, x, a, limits)):
        p[0] = bernoulli_outcome(ints, floats, x, a, number, limits, arrived, done)
        tallies[:] = 0.0
        apply(ints, x, a, arrived, done, out, tallies[0])
        add_tallies(p, tallies, 1, counts)


@kernel(STEP_SIGNATURE)
def step(ints, floats, x, a, rng, out, counts):
    copy(out, x)
    observe_servers(ints, x, a, counts)
    # first: coupled chains see the same event next
    if ints[PER_SERVER]:
        u = uniform(rng)
    else:
        u = 0.0
    step_one_event(ints, floats, x, a, rng, out, counts)
    if ints[PER_SERVER]:
        out[x.size - 1] = next_event(ints, floats, u)
    return loss_one_event(ints, floats, x, a)


@kernel(STEP_SIGNATURE, allocates=True)
def step_bernoulli(ints, floats, x, a, rng, out, counts):
    n = ints[CLASSES]
    arrived = np.zeros(n, np.int64)
    done = np.full(n, -1, np.int64)
    observe_servers(ints, x, a, counts)
    for k in range(ints[ARRIVAL], ints[ARRIVAL + 1]):
        arrived[ints[k]] = uniform(rng) < floats[ints[LAM] + ints[k]]
    for s in range(ints[SERVERS]):
        c = active(ints, x, a, s)
        u = uniform(rng)
        v = uniform(rng)
        if c >= 0 and u < floats[ints[MU] + c]:
            done[c] = route_at(ints, floats, c, v)
    apply(ints, x, a, arrived, done, out, counts)
    return loss_bernoulli_of(ints, floats, x, a)
