"""The loops that simulate: any compiled model under any compiled policy.

Each step starts at its own place in the random stream (see `philox`): the first draw picks the
action, the others belong to the model. Every state is checked against the box, every action against
what is allowed, every row of probabilities against 1; the first fault stops the loop and is
described in `where` = (x, a, next x).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualplan._kernels.compiler import (
    FLOAT,
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
from dualplan._kernels.layouts import CONTROL, PROCESS, TRAJECTORY
from dualplan._kernels.philox import seek, uniform
from dualplan.core.types import Floats, Ints, Words

NO_FAULT, LEFT_BOX_FAULT, BAD_POLICY_FAULT, FORBIDDEN_ACTION_FAULT, BAD_LAW_FAULT = range(5)
_LARGEST_COORDINATE = 2**62
# What a row of sums holds: steps, losses, coordinates, then the model's counters.
STEPS, LOSSES, COORDINATES = range(3)
CYCLE_SUMS = 10  # of 1, y, l, yy, yl, ll, yyy, yyl, yll, lll


class Cycles(NamedTuple):
    """Cycles from one visit of a state to the next: where they end (empty: not watched), loss and
    length of the one under way, and the `CYCLE_SUMS` sums over those that ended.
    """

    anchor: Ints
    current: Floats
    sums: Floats


class Starts(NamedTuple):
    """States, one a row, and the probabilities with which trajectories begin there."""

    states: Ints
    weights: Floats


class Beginnings(NamedTuple):
    """A recorded trajectory begins anew after each step with probability 1 − γ: the random numbers
    that decide it, γ, and the starts.
    """

    rng: Words
    gamma: float
    starts: Starts


class Transitions(NamedTuple):
    """Where transitions (x, a, ℓ, x') are written to, one a row."""

    states: Ints
    actions: Ints
    losses: Floats
    following: Ints


class StepRoom(NamedTuple):
    """What a step works with: random numbers, where faults are described, π(·|x), the next
    state.
    """

    rng: Words
    where: Ints
    probabilities: Floats
    out: Ints


class LawRoom(NamedTuple):
    """Where a law is listed, and room for the function whose mean is taken over it."""

    states: Ints
    chances: Floats
    scratch: Floats


CYCLES = group(Cycles, INTS, FLOATS, FLOATS)
STARTS = group(Starts, INT_ROWS, FLOATS)
BEGINNINGS = group(Beginnings, RNG_WORDS, FLOAT, STARTS)
TRANSITIONS = group(Transitions, INT_ROWS, INTS, FLOATS, INT_ROWS)


@allocating_helper
def step_room(process, rng, where):
    return StepRoom(
        rng,
        where,
        np.empty(process.actions, np.float64),
        np.empty(process.box.lower.size, np.int64),
    )


@allocating_helper
def law_room(control, dim):
    return LawRoom(
        np.empty((control.outcomes, dim), np.int64),
        np.empty(control.outcomes, np.float64),
        np.empty(control.room, np.float64),
    )


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
def one_step(process, x, t, counts, room):
    """Draw an action and a next state, to `room.out`; the loss and a fault code."""
    model = process.model
    rule = process.rule
    box = process.box
    rng = room.rng
    out = room.out
    where = room.where
    seek(rng, t)
    copy(where, x)  # before anything of the user's runs, which may raise
    where[x.size] = -1
    rule.act(rule.ints, rule.floats, x, room.probabilities)
    a = _draw_action(room.probabilities, uniform(rng))
    where[x.size] = a
    if a < 0:
        return 0.0, BAD_POLICY_FAULT
    if not model.allowed(model.ints, model.floats, x, a):
        return 0.0, FORBIDDEN_ACTION_FAULT
    loss = model.step(model.ints, model.floats, x, a, rng, out, counts)
    if not np.isfinite(loss):
        return 0.0, BAD_LAW_FAULT
    for i in range(x.size):
        if out[i] < box.lower[i] or out[i] > box.upper[i] or out[i] > _LARGEST_COORDINATE:
            copy(where[x.size + 1 :], out)
            return 0.0, LEFT_BOX_FAULT
    return loss, NO_FAULT


@helper
def _note_cycle(x, loss, cycles):
    """Add a step to the cycle under way.

    If it ended at the anchor, add (1, y, l, yy, yl, ll, yyy, yyl, yll, lll) to the sums.
    """
    current = cycles.current
    sums = cycles.sums
    current[0] += loss
    current[1] += 1.0
    for i in range(x.size):
        if x[i] != cycles.anchor[i]:
            return
    y = current[0]
    length = current[1]
    sums[0] += 1.0
    sums[1] += y
    sums[2] += length
    sums[3] += y * y
    sums[4] += y * length
    sums[5] += length * length
    sums[6] += y * y * y
    sums[7] += y * y * length
    sums[8] += y * length * length
    sums[9] += length * length * length
    current[:] = 0.0


@kernel(INT(PROCESS, TRAJECTORY, INT, INT, CYCLES, FLOAT_ROWS), allocates=True)
def simulate(process, trajectory, t0, length, cycles, rows):
    """Go on along the trajectory, which is updated, by one chunk of `length` steps for each row.

    A row gains steps, losses, coordinates and counters.
    """
    x = trajectory.x
    dim = x.size
    room = step_room(process, trajectory.rng, trajectory.where)
    t = t0
    for row in range(rows.shape[0]):
        sums = rows[row]
        counts = sums[COORDINATES + dim :]
        sums[STEPS] += length
        for _ in range(length):
            loss, fault = one_step(process, x, t, counts, room)
            if fault != NO_FAULT:
                return fault
            t += 1
            sums[LOSSES] += loss
            for i in range(dim):
                sums[COORDINATES + i] += x[i]
            copy(x, room.out)
            if cycles.anchor.size > 0:
                _note_cycle(x, loss, cycles)
    return NO_FAULT


@helper
def shaping(model, control, x, a, gamma, room):
    """γ Σ_y P(y|x,a) h(y) − h(x); not a number where the law does not sum to 1."""
    states = room.states
    chances = room.chances
    count = control.forward(model.ints, model.floats, x, a, states, chances)
    total = 0.0
    mass = 0.0
    for k in range(count):
        total += chances[k] * control.value(control.ints, control.floats, states[k], room.scratch)
        mass += chances[k]
    if not abs(mass - 1.0) <= 1e-9:
        return np.nan
    return gamma * total / mass - control.value(control.ints, control.floats, x, room.scratch)


@kernel(INT(PROCESS, TRAJECTORY, CONTROL, INT, INT, FLOAT_ROWS), allocates=True)
def simulate_shaped(process, trajectory, control, t0, length, rows):
    """As `simulate`, with ℓ(x,a) + Σ_y P(y|x,a) h(y) − h(x) in the place of losses, and these in a
    last column.
    """
    x = trajectory.x
    dim = x.size
    room = step_room(process, trajectory.rng, trajectory.where)
    listed = law_room(control, dim)
    t = t0
    for row in range(rows.shape[0]):
        sums = rows[row]
        last = sums.size - 1
        counts = sums[COORDINATES + dim : last]
        sums[STEPS] += length
        for _ in range(length):
            loss, fault = one_step(process, x, t, counts, room)
            if fault != NO_FAULT:
                return fault
            shaped = shaping(process.model, control, x, room.where[dim], 1.0, listed)
            if not np.isfinite(shaped):
                return BAD_LAW_FAULT
            t += 1
            sums[LOSSES] += loss + shaped
            sums[last] += loss
            for i in range(dim):
                sums[COORDINATES + i] += x[i]
            copy(x, room.out)
    return NO_FAULT


@kernel(INT(PROCESS, TRAJECTORY, INT, INT, INT_ROWS), allocates=True)
def visits(process, trajectory, t0, every, states):
    """Go on along the trajectory, and write down where it is after every so many steps."""
    x = trajectory.x
    room = step_room(process, trajectory.rng, trajectory.where)
    nothing = np.empty(0, np.float64)
    t = t0
    for k in range(states.shape[0]):
        for _ in range(every):
            _, fault = one_step(process, x, t, nothing, room)
            if fault != NO_FAULT:
                return fault
            t += 1
            copy(x, room.out)
        copy(states[k], x)
    return NO_FAULT


@helper
def _begin(starts, rng, x):
    """Draw a start."""
    u = uniform(rng)
    k = 0
    while k < starts.weights.size - 1 and u >= starts.weights[k]:
        u -= starts.weights[k]
        k += 1
    copy(x, starts.states[k])


@kernel(INT(PROCESS, TRAJECTORY, INT, INT, BEGINNINGS, TRANSITIONS), allocates=True)
def record(process, trajectory, t0, every, beginnings, transitions):
    """Go on along the trajectory, and write down every so many-th transition."""
    x = trajectory.x
    room = step_room(process, trajectory.rng, trajectory.where)
    nothing = np.empty(0, np.float64)
    t = t0
    for k in range(transitions.losses.size):
        for j in range(every):
            loss, fault = one_step(process, x, t, nothing, room)
            if fault != NO_FAULT:
                return fault
            if j == every - 1:
                copy(transitions.states[k], x)
                transitions.actions[k] = room.where[x.size]
                transitions.losses[k] = loss
                copy(transitions.following[k], room.out)
            copy(x, room.out)
            if beginnings.gamma < 1.0:
                seek(beginnings.rng, t)
                if uniform(beginnings.rng) >= beginnings.gamma:
                    _begin(beginnings.starts, beginnings.rng, x)
            t += 1
    return NO_FAULT


@kernel(INT(PROCESS, TRAJECTORY, STARTS, FLOAT, INT, INT, FLOATS, INTS), allocates=True)
def simulate_discounted(process, trajectory, starts, gamma, horizon, first, totals, lengths):
    """Independent runs number first, first + 1, ...: their totals and lengths.

    With a horizon, losses are discounted and the run is cut there. With horizon 0 they are added
    undiscounted until a geometric time T, P(T >= t) = γ^t, whose expectation is the discounted cost
    exactly.
    """
    x = trajectory.x
    rng = trajectory.rng
    room = step_room(process, rng, trajectory.where)
    nothing = np.empty(0, np.float64)
    for run in range(totals.size):
        rng[4] = np.uint64(first + run)
        seek(rng, np.int64(-1))
        _begin(starts, rng, x)
        steps = horizon
        if horizon == 0:
            steps = 1 + np.int64(np.log1p(-uniform(rng)) / np.log(gamma))
        total = 0.0
        factor = 1.0
        for t in range(steps):
            loss, fault = one_step(process, x, t, nothing, room)
            if fault != NO_FAULT:
                return fault
            total += factor * loss
            if horizon > 0:
                factor *= gamma
            copy(x, room.out)
        totals[run] = total
        lengths[run] = steps
    return NO_FAULT
