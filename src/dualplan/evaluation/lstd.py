"""The values of a policy by least squares from its visits: LSTD (Bradtke & Barto 1996), average
criterion.

With μ the law of the visits, g = μᵀℓ_π and Ψ few functions of states, w solves

    Σ_x μ(x)·ψ(x)·[ ℓ_π(x) − g + P_πΨw(x) − Ψw(x) ]  =  0,

the projected Poisson equation. Next states are listed, not drawn: only the visits are random. Ψw is
what its functions can say of the bias of π where π goes. It is no bound.

Where a policy of a network has a loop of its own, and Ψ are the monomials of degree 1 and 2 in the
classes, a step's law is not listed either: it enters by its first two moments (`loop_values`).

Its use is in simulation (Henderson & Glynn 2002): ℓ_π + P_πh − h has the mean cost of π for every
function h with a finite mean, and no variance at all for the bias h. A fit from other random
numbers leaves the estimate as unbiased as without it: `evaluate(..., control=h)`.
"""

from __future__ import annotations

import numpy as np

from dualplan.core.checks import require_counts, require_seed
from dualplan.core.streams import Word, own_seed
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.visits import visited
from dualplan.models.contract import Model, require_made_for
from dualplan.models.transitions import transitions
from dualplan.policies.contract import OwnLoop, Policy, require_policy_of
from dualplan.values.basis import Basis, LinearValues, least_squares, power, products

LSTD_VISITS = 40_000
STEPS_BETWEEN_LSTD_VISITS = 100
MOST_QUADRATIC_CLASSES = 15  # classes up to which quadratic values are worth their fit
FITTED_STATES_AT_ONCE = 5_000  # states whose next states are listed at once
# relative to the largest singular value of functions scaled to variance 1
SINGULAR_VALUE_SHARE = 1e-12


def policy_values(
    model: Model,
    policy: Policy,
    basis: Basis,
    *,
    samples: int = LSTD_VISITS,
    every: int = STEPS_BETWEEN_LSTD_VISITS,
    seed: int = 0,
) -> LinearValues:
    """Ψw for the policy, from so many of its samples, one every so many steps."""
    require_policy_of(model, policy)
    require_made_for(model, basis.model, "basis")
    require_counts(samples=samples, every=every)
    require_seed(seed)
    if model.code.forward is None:
        model.forward(model.start, 0)  # raises, and says why
    # a stream of its own: with the samples of the run that it controls, a fit would make its
    # interval too narrow
    states, where = np.unique(
        visited(model, policy, samples=samples, seed=own_seed(seed, Word.CONTROL_FIT), every=every),
        axis=0,
        return_inverse=True,
    )
    weights = np.bincount(where.ravel()) / samples
    parts = [
        _one_step(model, policy, basis, states[k : k + FITTED_STATES_AT_ONCE])
        for k in range(0, len(states), FITTED_STATES_AT_ONCE)
    ]
    values, drifts, losses = (np.concatenate(part) for part in zip(*parts, strict=True))
    return LinearValues(basis, projected(values, drifts, losses, weights))


def _one_step(
    model: Model, policy: Policy, basis: Basis, states: Ints
) -> tuple[Floats, Floats, Floats]:
    """Ψ, P_πΨ − Ψ and ℓ_π at the states."""
    chances = policy.rows(states)
    values = basis(states)
    rows, actions = (part.copy() for part in np.nonzero(chances))
    laws = transitions(model, np.ascontiguousarray(states[rows]), actions)
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    share = chances[rows, actions]
    after = np.add.reduceat(share[:, None] * laws.mean(basis(laws.states)), first, axis=0)
    return values, after - values, np.add.reduceat(share * laws.losses, first)


def loop_values(loop: OwnLoop, states: Ints) -> Floats:
    """g, then H row by row, of gᵀx + ½xᵀHx for the policy of a loop, from states that it visits; x
    are the classes.

    Where queues grow for ever, nothing is stationary and Poisson's equation has an answer that
    falls as losses rise. As a control it would reward growth; so then there is none, and no number.
    """
    count = len(states)
    n = loop.coordinates
    queues, (i, j) = np.ascontiguousarray(states[:, :n]), np.triu_indices(n)
    losses = np.empty(count)
    drifts = np.empty((count, n))
    seconds = np.empty((count, n, n))
    loop.moments(loop.ints, loop.floats, queues, losses, drifts, seconds)
    x = queues.astype(np.float64)
    values = np.hstack([x, x[:, i] * x[:, j]])
    change = np.hstack([drifts, x[:, i] * drifts[:, j] + x[:, j] * drifts[:, i] + seconds[:, i, j]])
    weights = projected(values, change, losses, np.full(count, 1 / count))
    if not (values @ weights) @ (losses - losses.mean()) > 0:
        return np.zeros(0)
    matrix = np.zeros((n, n))
    matrix[i, j] = weights[n:]
    return np.concatenate([weights[:n], (matrix + matrix.T).ravel()])


def quadratic_values(model: Model, weights: Floats, coordinates: int) -> LinearValues:
    """gᵀx + ½xᵀHx of the first coordinates as a sum of monomials."""
    g = weights[:coordinates]
    matrix = weights[coordinates:].reshape(coordinates, coordinates)
    singles = [(i,) for i in range(coordinates)]
    pairs = [(i, j) for i in range(coordinates) for j in range(i, coordinates)]
    functions = [
        tuple(power(i, places.count(i)) for i in sorted(set(places)))
        for places in (*singles, *pairs)
    ]
    entries = [matrix[i, j] / (2 if i == j else 1) for i, j in pairs]
    return LinearValues(products(model, functions), np.concatenate([g, entries]))


def projected(values: Floats, drifts: Floats, losses: Floats, weights: Floats) -> Floats:
    """w of the projected equation.

    Functions that are constant where the policy goes get no weight.
    """
    centred = values - weights @ values
    scale = np.sqrt(weights @ centred**2)
    used = scale > 1e-9 * (1 + np.abs(values).max(axis=0))
    tests = weights[:, None] * centred[:, used] / scale[used]
    matrix = tests.T @ -(drifts[:, used] / scale[used])
    right = tests.T @ (losses - weights @ losses)
    return least_squares(matrix, right, scale, used, singular=SINGULAR_VALUE_SHARE)
