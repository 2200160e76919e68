"""The loop of coupled copies: several trajectories of one model under one policy, driven by the
same random numbers.
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels.compiler import (
    FLOAT,
    FLOATS,
    FORWARD,
    INT,
    INTS,
    RNG,
    ROWS,
    STATES,
    VALUE,
    copy,
    function_type,
    helper,
    kernel,
)
from dualplan._kernels.simulate import FINE, FUNCTIONS, one_step, shaping


@kernel(FORWARD)
def no_forward(ints, floats, x, a, states, probabilities):
    """Stands for the law of a model that has none, where there is no control variate."""
    return 0


@kernel(VALUE)
def no_value(ints, floats, x, room):
    """Stands for the control variate where there is none."""
    return 0.0


@helper
def _same(x, y):
    i = 0
    while i < x.size and x[i] == y[i]:
        i += 1
    return i == x.size


@helper
def _begin(states, x, live):
    """Put the copies at their starts; list those that differ from the first one, and count them."""
    count = 0
    for j in range(states.shape[0]):
        copy(x[j], states[j])
        if j > 0 and not _same(x[j], x[0]):
            live[count] = j
            count += 1
    return count


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
        STATES,
        INT,
        RNG,
        FLOAT,
        INT,
        ROWS,
        FLOATS,
        INTS,
        INTS,
    ),
    allocates=True,
)
def coupled(
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
    places,
    states,
    first,
    rng,
    gamma,
    horizon,
    totals,
    met,
    steps,
    where,
):
    """Σ_t γ^t (r of a copy − r of the first of its group), until the two meet; a column for each
    repetition.

    r(x, a) = ℓ(x, a) + γ E[h(x')] − h(x) for a function h of states; room 0 stands for h = 0. Group
    g is the rows places[g], ..., places[g + 1] − 1 of `states`; repetition k of it is the replica
    (first + g)·repetitions + k. `met` counts for each copy the repetitions in which it met the
    first one.
    """
    dim = lower.size
    repetitions = totals.shape[1]
    widest = 0
    for g in range(places.size - 1):
        widest = max(widest, places[g + 1] - places[g])
    x = np.empty((widest, dim), np.int64)
    live = np.empty(widest, np.int64)
    probabilities = np.empty(actions, np.float64)
    out = np.empty(dim, np.int64)
    nothing = np.empty(0, np.float64)
    after = np.empty((outcomes, dim), np.int64)
    chances = np.empty(outcomes, np.float64)
    scratch = np.empty(room, np.float64)
    for g in range(places.size - 1):
        low = places[g]
        high = places[g + 1]
        for k in range(repetitions):
            rng[4] = np.uint64((first + g) * repetitions + k)
            for j in range(low, high):
                totals[j, k] = 0.0
                met[j] += 1.0
            count = _begin(states[low:high], x, live)
            t = 0
            factor = 1.0
            while count > 0 and t < horizon:
                base, fault = one_step(
                    step,
                    allowed,
                    act,
                    mi,
                    mf,
                    pi,
                    pf,
                    lower,
                    upper,
                    x[0],
                    rng,
                    t,
                    probabilities,
                    out,
                    nothing,
                    where,
                )
                if fault != FINE:
                    return fault
                if room > 0:
                    base += shaping(
                        forward,
                        value,
                        mi,
                        mf,
                        vi,
                        vf,
                        x[0],
                        where[dim],
                        gamma,
                        after,
                        chances,
                        scratch,
                    )
                copy(x[0], out)
                steps[0] += 1 + count
                i = 0
                while i < count:
                    j = live[i]
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
                        x[j],
                        rng,
                        t,
                        probabilities,
                        out,
                        nothing,
                        where,
                    )
                    if fault != FINE:
                        return fault
                    if room > 0:
                        loss += shaping(
                            forward,
                            value,
                            mi,
                            mf,
                            vi,
                            vf,
                            x[j],
                            where[dim],
                            gamma,
                            after,
                            chances,
                            scratch,
                        )
                    totals[low + j, k] += factor * (loss - base)
                    copy(x[j], out)
                    if _same(x[j], x[0]):  # from here on they stay together
                        count -= 1
                        live[i] = live[count]
                    else:
                        i += 1
                factor *= gamma
                t += 1
            for i in range(count):
                met[low + live[i]] -= 1.0
    return FINE
