"""The loops that simulate: any compiled model under any compiled policy.

Each step starts at its own place in the random stream (see `philox`): the first draw picks the
action, the others belong to the model. Every state is checked against the box, every action against
what is allowed, every row of probabilities against 1; the first fault stops the loop and is
described in `where` = (x, a, next x).
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels.compiler import (
    ACT,
    ALLOWED,
    FLOAT,
    FLOATS,
    FORWARD,
    INT,
    INTS,
    RNG,
    ROWS,
    STATES,
    STEP,
    VALUE,
    copy,
    function_type,
    helper,
    kernel,
)
from dualplan._kernels.philox import seek, uniform

FINE, LEFT_BOX, BAD_POLICY, FORBIDDEN, BAD_LAW = range(5)
_LARGEST = 2**62
FUNCTIONS = (function_type(STEP), function_type(ALLOWED), function_type(ACT))


@helper
def _draw_action(probabilities, u):
    """The action at u; -1 if these are not probabilities."""
    total = 0.0
    action = -1
    for a in range(probabilities.size):
        p = probabilities[a]
        if not p >= 0.0:
            return -1
        total += p
        if action < 0 and u < total:
            action = a
    if abs(total - 1.0) > 1e-9:
        return -1
    if action < 0:  # u fell into the rounding error above the total
        action = probabilities.size - 1
        while probabilities[action] == 0.0:
            action -= 1
    return action


@helper
def one_step(
    step, allowed, act, mi, mf, pi, pf, lower, upper, x, rng, t, probabilities, out, counts, where
):
    """Draw an action and a next state; the loss and a fault code."""
    seek(rng, t)
    copy(where, x)  # before anything of the user's runs, which may raise
    where[x.size] = -1
    act(pi, pf, x, probabilities)
    a = _draw_action(probabilities, uniform(rng))
    where[x.size] = a
    if a < 0:
        return 0.0, BAD_POLICY
    if not allowed(mi, mf, x, a):
        return 0.0, FORBIDDEN
    loss = step(mi, mf, x, a, rng, out, counts)
    if not np.isfinite(loss):
        return 0.0, BAD_LAW
    for i in range(x.size):
        if out[i] < lower[i] or out[i] > upper[i] or out[i] > _LARGEST:
            copy(where[x.size + 1 :], out)
            return 0.0, LEFT_BOX
    return loss, FINE


@helper
def _note_cycle(x, anchor, loss, cycle, cycles):
    """Add a step to the cycle under way.

    If it ended at `anchor`, add (1, y, l, yy, yl, ll) to `cycles`.
    """
    cycle[0] += loss
    cycle[1] += 1.0
    for i in range(x.size):
        if x[i] != anchor[i]:
            return
    y = cycle[0]
    length = cycle[1]
    cycles[0] += 1.0
    cycles[1] += y
    cycles[2] += length
    cycles[3] += y * y
    cycles[4] += y * length
    cycles[5] += length * length
    cycle[:] = 0.0


@kernel(
    INT(
        *FUNCTIONS,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INT,
        INTS,
        RNG,
        INT,
        INT,
        INTS,
        FLOATS,
        ROWS,
        FLOATS,
        INTS,
    ),
    allocates=True,
)
def simulate(
    step,
    allowed,
    act,
    mi,
    mf,
    pi,
    pf,
    lower,
    upper,
    actions,
    x,
    rng,
    t0,
    length,
    anchor,
    cycle,
    rows,
    cycles,
    where,
):
    """Go on from x, which is updated, by one chunk of `length` steps for each row.

    A row gains steps, losses, coordinates and counters. If `anchor` is a state, the loss and length
    of the cycle under way are kept in `cycle`, and the sums over cycles that ended in `cycles`.
    """
    dim = x.size
    probabilities = np.empty(actions, np.float64)
    out = np.empty(dim, np.int64)
    t = t0
    for row in range(rows.shape[0]):
        sums = rows[row]
        counts = sums[2 + dim :]
        sums[0] += length
        for _ in range(length):
            loss, fault = one_step(
                step,
                allowed,
                act,
                mi,
                mf,
                pi,
                pf,
                lower,
                upper,
                x,
                rng,
                t,
                probabilities,
                out,
                counts,
                where,
            )
            if fault != FINE:
                return fault
            t += 1
            sums[1] += loss
            for i in range(dim):
                sums[2 + i] += x[i]
            copy(x, out)
            if anchor.size > 0:
                _note_cycle(x, anchor, loss, cycle, cycles)
    return FINE


@helper
def shaping(forward, value, mi, mf, vi, vf, x, a, gamma, states, chances, room):
    """γ Σ_y P(y|x,a) h(y) − h(x); not a number where the law does not sum to 1."""
    count = forward(mi, mf, x, a, states, chances)
    total = 0.0
    mass = 0.0
    for k in range(count):
        total += chances[k] * value(vi, vf, states[k], room)
        mass += chances[k]
    if not abs(mass - 1.0) <= 1e-9:
        return np.nan
    return gamma * total / mass - value(vi, vf, x, room)


@kernel(
    INT(
        *FUNCTIONS,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INT,
        function_type(FORWARD),
        function_type(VALUE),
        INTS,
        FLOATS,
        INT,
        INT,
        INTS,
        RNG,
        INT,
        INT,
        ROWS,
        INTS,
    ),
    allocates=True,
)
def simulate_shaped(
    step,
    allowed,
    act,
    mi,
    mf,
    pi,
    pf,
    lower,
    upper,
    actions,
    forward,
    value,
    vi,
    vf,
    room,
    outcomes,
    x,
    rng,
    t0,
    length,
    rows,
    where,
):
    """As `simulate`, with ℓ(x,a) + Σ_y P(y|x,a) h(y) − h(x) in the place of losses, and these in a
    last column.
    """
    dim = x.size
    probabilities = np.empty(actions, np.float64)
    out = np.empty(dim, np.int64)
    states = np.empty((outcomes, dim), np.int64)
    chances = np.empty(outcomes, np.float64)
    scratch = np.empty(room, np.float64)
    t = t0
    for row in range(rows.shape[0]):
        sums = rows[row]
        counts = sums[2 + dim : sums.size - 1]
        last = sums.size - 1
        sums[0] += length
        for _ in range(length):
            loss, fault = one_step(
                step,
                allowed,
                act,
                mi,
                mf,
                pi,
                pf,
                lower,
                upper,
                x,
                rng,
                t,
                probabilities,
                out,
                counts,
                where,
            )
            if fault != FINE:
                return fault
            shaped = shaping(
                forward, value, mi, mf, vi, vf, x, where[dim], 1.0, states, chances, scratch
            )
            if not np.isfinite(shaped):
                return BAD_LAW
            t += 1
            sums[1] += loss + shaped
            sums[last] += loss
            for i in range(dim):
                sums[2 + i] += x[i]
            copy(x, out)
    return FINE


@kernel(
    INT(*FUNCTIONS, INTS, FLOATS, INTS, FLOATS, INTS, INTS, INT, INTS, RNG, INT, INT, STATES, INTS),
    allocates=True,
)
def visits(
    step, allowed, act, mi, mf, pi, pf, lower, upper, actions, x, rng, t0, every, states, where
):
    """Go on from x, which is updated, and write down where it is after every so many steps."""
    probabilities = np.empty(actions, np.float64)
    out = np.empty(x.size, np.int64)
    nothing = np.empty(0, np.float64)
    t = t0
    for k in range(states.shape[0]):
        for _ in range(every):
            _, fault = one_step(
                step,
                allowed,
                act,
                mi,
                mf,
                pi,
                pf,
                lower,
                upper,
                x,
                rng,
                t,
                probabilities,
                out,
                nothing,
                where,
            )
            if fault != FINE:
                return fault
            t += 1
            copy(x, out)
        copy(states[k], x)
    return FINE


@helper
def _start(weights, u):
    """The number of a start drawn by u."""
    k = 0
    while k < weights.size - 1 and u >= weights[k]:
        u -= weights[k]
        k += 1
    return k


@kernel(
    INT(
        *FUNCTIONS,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INT,
        INTS,
        RNG,
        INT,
        INT,
        RNG,
        FLOAT,
        STATES,
        FLOATS,
        STATES,
        INTS,
        FLOATS,
        STATES,
        INTS,
    ),
    allocates=True,
)
def record(
    step,
    allowed,
    act,
    mi,
    mf,
    pi,
    pf,
    lower,
    upper,
    actions,
    x,
    rng,
    t0,
    every,
    chance,
    gamma,
    starts,
    weights,
    states,
    chosen,
    losses,
    following,
    where,
):
    """Go on from x, which is updated, and write down every so many-th transition (x, a, ℓ, x').

    After each step, with probability 1 − γ, the trajectory begins anew at a start; `chance` decides
    that.
    """
    probabilities = np.empty(actions, np.float64)
    out = np.empty(x.size, np.int64)
    nothing = np.empty(0, np.float64)
    t = t0
    for k in range(losses.size):
        for j in range(every):
            loss, fault = one_step(
                step,
                allowed,
                act,
                mi,
                mf,
                pi,
                pf,
                lower,
                upper,
                x,
                rng,
                t,
                probabilities,
                out,
                nothing,
                where,
            )
            if fault != FINE:
                return fault
            if j == every - 1:
                copy(states[k], x)
                chosen[k] = where[x.size]
                losses[k] = loss
                copy(following[k], out)
            copy(x, out)
            if gamma < 1.0:
                seek(chance, t)
                if uniform(chance) >= gamma:
                    copy(x, starts[_start(weights, uniform(chance))])
            t += 1
    return FINE


@kernel(
    INT(
        *FUNCTIONS,
        INTS,
        FLOATS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        INT,
        STATES,
        FLOATS,
        RNG,
        FLOAT,
        INT,
        INT,
        FLOATS,
        INTS,
        INTS,
    ),
    allocates=True,
)
def simulate_discounted(
    step,
    allowed,
    act,
    mi,
    mf,
    pi,
    pf,
    lower,
    upper,
    actions,
    starts,
    weights,
    rng,
    gamma,
    horizon,
    first,
    totals,
    lengths,
    where,
):
    """Independent runs number first, first + 1, ...: their totals and lengths.

    With a horizon, losses are discounted and the run is cut there. With horizon 0 they are added
    undiscounted until a geometric time T, P(T >= t) = γ^t, whose expectation is the discounted cost
    exactly.
    """
    dim = lower.size
    probabilities = np.empty(actions, np.float64)
    out = np.empty(dim, np.int64)
    x = np.empty(dim, np.int64)
    nothing = np.empty(0, np.float64)
    for run in range(totals.size):
        rng[4] = np.uint64(first + run)
        seek(rng, np.int64(-1))
        copy(x, starts[_start(weights, uniform(rng))])
        steps = horizon
        if horizon == 0:
            steps = 1 + np.int64(np.log1p(-uniform(rng)) / np.log(gamma))
        total = 0.0
        factor = 1.0
        for t in range(steps):
            loss, fault = one_step(
                step,
                allowed,
                act,
                mi,
                mf,
                pi,
                pf,
                lower,
                upper,
                x,
                rng,
                t,
                probabilities,
                out,
                nothing,
                where,
            )
            if fault != FINE:
                return fault
            total += factor * loss
            if horizon > 0:
                factor *= gamma
            copy(x, out)
        totals[run] = total
        lengths[run] = steps
    return FINE
