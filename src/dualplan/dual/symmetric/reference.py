"""The reference of a symmetric dual program: weighted pairs, and what a step from each does to Ψ.

For pairs (x, a) with weights μ(x)·p(a|x), where μ are states that a policy visits and p what it
does there, exploration included,

    losses        ℓ(x,a)
    differences   D(x,a) = γ E[Ψ(x')|x,a] − Ψ(x),         γ = 1 for the average criterion
    start         c = (1 − γ) αᵀΨ,                        0 for the average criterion

An occupancy u, of total mass 1, is stationary against Ψ if Σ u(x,a) D(x,a) + c = 0. Next states
are listed and not drawn, for all actions of a state, so the only randomness is in the states.
Nothing here is longer than the pairs that are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualplan.core.deadlines import require_time
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.values.basis import Basis, LinearValues

OUTCOMES_AT_ONCE = 2**18  # next states that are looked at together; each is valued once


@dataclass(frozen=True, eq=False)
class Reference:
    """Pairs state by state: pair k is in state `states[rows[k]]`, and has the reference's mass
    `masses[k]`; all masses sum to 1.
    """

    basis: Basis
    criterion: Criterion
    states: Ints
    rows: Ints
    actions: Ints
    masses: Floats
    losses: Floats
    differences: Floats
    start: Floats

    @property
    def model(self) -> Model:
        """The model of the basis."""
        return self.basis.model

    @property
    def pairs(self) -> int:
        """How many there are."""
        return int(self.rows.size)

    def residuals(self, values: LinearValues) -> Floats:
        """ℓ + γPΨw − Ψw of every pair."""
        return np.asarray(self.losses + self.differences @ values.weights)

    def centred(self, numbers: Floats) -> Floats:
        """Numbers of pairs, or rows of them, less their mean over the actions of their state."""
        first = np.flatnonzero(np.diff(self.rows, prepend=-1))
        counts = np.diff(np.append(first, self.rows.size))
        sums = np.add.reduceat(numbers, first, axis=0)
        means = sums / (counts if numbers.ndim == 1 else counts[:, None])
        return np.asarray(numbers - np.repeat(means, counts, axis=0))

    def policy_masses(self, policy: Policy) -> Floats:
        """μ(x)·π(a|x) of every pair, for another policy at the same states."""
        first = np.flatnonzero(np.diff(self.rows, prepend=-1))
        state_masses = np.add.reduceat(self.masses, first)
        chances = policy.rows(self.states)[self.rows, self.actions]
        return np.asarray(state_masses[self.rows] * chances)


def make_reference(
    basis: Basis,
    states: Ints,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    weights: Floats | None = None,
) -> Reference:
    """All allowed pairs of the states, with what the policy does there; states have equal weights
    unless others are given.
    """
    model = basis.model
    require_policy_of(model, policy)
    criterion = require_criterion(criterion)
    if not len(states):
        raise InputError("a reference needs at least one state.")
    shares = np.full(len(states), 1.0) if weights is None else np.asarray(weights, np.float64)
    if shares.shape != (len(states),) or not (shares >= 0).all() or not shares.sum() > 0:
        raise InputError(f"{len(states)} states need as many weights >= 0, not all of them 0.")
    rows, actions = allowed_rows(model, states)
    chances = policy.rows(states)[rows, actions]
    losses = np.empty(rows.size)
    differences = np.empty((rows.size, len(basis)))
    values = basis(states)
    gamma = criterion.gamma
    at_once = max(1, OUTCOMES_AT_ONCE // max(1, model.code.max_outcomes))
    for begin in range(0, rows.size, at_once):
        require_time()
        part = slice(begin, begin + at_once)
        law = transitions(model, np.ascontiguousarray(states[rows[part]]), actions[part])
        losses[part] = law.losses
        differences[part] = gamma * law.mean_of(basis) - values[rows[part]]
    masses = (shares / shares.sum())[rows] * chances
    return Reference(
        basis,
        criterion,
        states,
        rows,
        actions,
        masses / masses.sum(),
        losses,
        differences,
        start_of(basis, criterion),
    )


def start_of(basis: Basis, criterion: Criterion) -> Floats:
    """(1 − γ) αᵀΨ."""
    if not isinstance(criterion, Discounted):
        return np.zeros(len(basis))
    states, weights = criterion.start_distribution(basis.model)
    return np.asarray((1 - criterion.gamma) * (weights @ basis(states)))
