"""Differences of the values of a policy by copies of the model that meet.

*Coupled copies.* Two copies of the model start at y and y', both under π and driven by the same
random numbers, until they are in the same state, where they stay together. With T the time of the
meeting (assumed finite, and such that the sums below have a mean)

    E Σ_{t<T} γ^t (ℓ(X_t, A_t) − ℓ(X'_t, A'_t)) = h(y) − h(y').

Where a horizon N < T cuts the sum, γ^N (h(X_N) − h(X'_N)) is missing from its mean; `met` says how
often that happens. All outcomes of one state share their random numbers, so that errors common to
them cancel in differences of Q.

*A control variate.* For any potential g, Σ_t γ^(t+1) (E[g(X_{t+1}) | X_t, A_t] − g(X_{t+1})) has
mean 0. Added to the sum of losses it makes

    g(y) − g(y') + Σ_{t<T} γ^t (r(X_t, A_t) − r(X'_t, A'_t)),        r(x,a) = ℓ(x,a) + γ Σ_y
        P(y|x,a) g(y) − g(x),

which has the same mean h(y) − h(y'), and no variance at all for g = h and a policy that does not
draw its actions, since r is constant then. A step costs one look-ahead more. With a horizon N, only
γ^N times the difference of h − g at the end is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dualplan.core.checks import require_counts, require_seed
from dualplan.core.errors import InputError
from dualplan.core.threads import in_parallel
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.evaluation.simulation import Copies, engine
from dualplan.models.contract import Model, require_made_for
from dualplan.models.criteria import Criterion, require_criterion
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.values.contract import CompiledValues, ValueCode

MOST_COUPLED_STEPS = 5_000  # steps of a pair of copies at most
STATES_A_TASK = 16  # states whose copies are simulated in one task


@dataclass(frozen=True, eq=False)
class Differences:
    """Estimates of h(first) − h(second), pair by pair; how they are known: statistical, but for the
    horizon.

    `errors` are standard errors of the means (NaN for one repetition), `met` the share of
    repetitions in which the two copies met before the horizon, `steps` the steps of all copies.
    """

    means: Floats
    errors: Floats
    met: Floats
    steps: int
    repetitions: int
    horizon: int
    seed: int


def coupled_differences(
    model: Model,
    policy: Policy,
    first: ArrayLike,
    second: ArrayLike,
    criterion: Criterion | None = None,
    *,
    repetitions: int = 16,
    horizon: int = MOST_COUPLED_STEPS,
    control: CompiledValues | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Differences:
    """Differences of the bias (discounted: the cost-to-go) of a policy between pairs of states, one
    a row.

    A potential `control` near them makes for smaller errors and longer steps; it leaves means as
    they are.
    """
    require_policy_of(model, policy)
    require_counts(repetitions=repetitions, horizon=horizon)
    require_seed(seed)
    gamma = require_criterion(criterion).gamma
    rows, others = (
        np.array([model.state(x) for x in np.atleast_2d(np.asarray(s))]) for s in (first, second)
    )
    if rows.shape != others.shape:
        raise InputError(
            f"differences need as many second states as first ones, got {len(others)} and "
            f"{len(rows)}."
        )
    copies = np.stack([others, rows], axis=1).reshape(-1, model.box.dim)
    places = np.arange(0, len(copies) + 1, 2)
    coupling = Coupling(gamma, repetitions, horizon, control, seed)
    found = simulate_copies(model, policy, places, copies, coupling, threads)
    totals = found.totals[1::2]
    if repetitions > 1:
        errors = totals.std(axis=1, ddof=1) / np.sqrt(repetitions)
    else:
        errors = np.full(len(rows), np.nan)
    met = found.met[1::2] / repetitions
    return Differences(totals.mean(axis=1), errors, met, found.steps, repetitions, horizon, seed)


@dataclass(frozen=True, eq=False)
class Coupling:
    """How copies are simulated: losses count γ^t until the copies meet, or up to the horizon, in so
    many repetitions; shaped by a control, if there is one.
    """

    gamma: float
    repetitions: int
    horizon: int
    control: CompiledValues | None
    seed: int


def simulate_copies(
    model: Model,
    policy: Policy,
    places: Ints,
    states: Ints,
    coupling: Coupling,
    threads: int | None = None,
) -> Copies:
    """All groups, in tasks of fixed size, so that threads change nothing."""
    run = engine(model, policy, coupling.seed)
    control = coupling.control
    if control is None:
        potential = None
    else:
        potential = _potential(model, control)
    tasks = []
    for g in range(0, places.size - 1, STATES_A_TASK):
        part = places[g : g + STATES_A_TASK + 1]
        own = np.ascontiguousarray(states[part[0] : part[-1]])
        tasks.append(
            partial(
                run.coupled,
                part - part[0],
                own,
                g,
                coupling.repetitions,
                coupling.gamma,
                coupling.horizon,
                potential,
            )
        )
    found = in_parallel(tasks, threads if run.fast else 1)
    totals, met = (np.concatenate([getattr(c, name) for c in found]) for name in ("totals", "met"))
    if control is not None:
        start = control(states)
        totals += (start - start[np.repeat(places[:-1], np.diff(places))])[:, None]
    return Copies(totals, met, sum(c.steps for c in found))


def _potential(model: Model, control: CompiledValues) -> ValueCode:
    if not isinstance(control, CompiledValues) or control.code is None:
        raise InputError(
            "a control variate runs in compiled code; use a basis without functions of the user."
        )
    require_made_for(model, control.model, "control variate")
    if model.code.forward is None:
        model.forward(model.start, 0)  # raises, and says why
    return control.code
