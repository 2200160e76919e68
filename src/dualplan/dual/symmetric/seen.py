"""The reference of a symmetric dual program for a simulator alone: laws are fitted to what is seen.

A simulator lists no next states. Of steps (x_t, a_t, ℓ_t, y_t) under a policy that explores, with Ψ
among whose functions is the constant 1, the losses and the means of Ψ after an action are fitted by

    ℓ̂(x,a) = Ψ(x)·b_a,          Ê[Ψ(y)|x,a] = Ψ(x)·M_a,

least squares first over the steps of all actions together, then, for each action and each target,
of what is left over its own steps. The ridge of the second is that of `RIDGES_STEPS` which predicts
best what it was not fitted to, by leaving out one step at a time,

    e_t/(1 − h_t),       h_t = Ψ(x_t)ᵀ(Σ ΨΨᵀ + κS)⁻¹Ψ(x_t),      e_t the residual with all steps,

and there is no second fit where none predicts better than nothing by a standard error: an action
that was seldom tried, or has nothing to do with a target (restarting one machine of many, and the
others), is taken to do what they do on average. With indicators of all states as Ψ these are nearly
the frequencies that were counted.

*Where the simulator goes on from any state* (a function of state and action, not an environment),
nothing needs to be watched: at visited states every action is tried, all of them with the same
random numbers. What they do together is then the mean over the actions of a state, and what is left
of each has lost the noise that all have in common.

An episode that ended pays nothing more under a discount (Ψ(y) counts as 0), and begins again where
the long-run average counts.

The reference is then as any other (`reference.py`): D̂(x,a) = γΨ(x)M_a − Ψ(x) for all allowed
actions of visited states. And for values Ψw

    q_a(x)  =  ℓ̂(x,a) + γ Ê[Ψ(y)|x,a]·w  =  Ψ(x)·(b_a + γ M_a w)

are values of actions that need no next state (`policies/action_values.py`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from dualplan.core.checks import require_counts, require_probabilities, require_seed
from dualplan.core.deadlines import time_is_over
from dualplan.core.errors import InputError, OutOfTimeError
from dualplan.core.types import Bools, Floats, Ints
from dualplan.dual.symmetric.functions import state_functions
from dualplan.dual.symmetric.reference import Reference, start_of
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.action_values import ActionValuesPolicy
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.values.basis import Basis, Product, between

RIDGES_STEPS = (0.3, 5.0, 80.0)  # that what all actions do together counts as
RIDGE_OF_ALL = 1e-6  # the same for all actions together, in units of the steps
LEAST_OWN = 1e-6  # of 1 − h
MOST_INDICATORS = 600  # states that are functions each, where there are no more


@dataclass(frozen=True, eq=False)
class Seen:
    """Steps of a simulator: states, actions, losses, next states, and whether an episode ended."""

    states: Ints
    actions: Ints
    losses: Floats
    following: Ints
    ended: Bools

    def __len__(self) -> int:
        return len(self.actions)


def watch(
    model: SimulatorModel,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    steps: int,
    exploring: float = 0.3,
    seed: int = 0,
) -> Seen:
    """Steps of one trajectory under the policy, a part of its actions drawn evenly; under a
    discount it begins anew with chance 1 − γ, so that visits have their discounted shares.

    Fewer where the time is over.
    """
    require_policy_of(model, policy)
    require_counts(steps=steps)
    require_seed(seed)
    require_probabilities(exploring=exploring)
    anew = 1 - require_criterion(criterion).gamma
    rng = np.random.default_rng(seed)
    session = model.session()
    x = session.reset(rng)
    rows = []
    for _ in range(steps):
        if time_is_over():
            break
        chances = policy.probabilities(x)
        if rng.random() < exploring:
            may = model.allowed(x)
            chances = may / may.sum()
        a = int(rng.choice(chances.size, p=chances))
        y, loss, ended = model.checked(session.step(x, a, rng), x, a)
        following = session.reset(rng) if ended else y
        rows.append((x, a, loss, following, ended))
        x = following
        if anew > 0 and rng.random() < anew:
            x = session.reset(rng)
    if not rows:
        raise OutOfTimeError
    return _seen(*zip(*rows, strict=True))


def simulator_functions(model: Model, states: Ints, most: int = 200) -> Basis:
    """The constant, and an indicator for each state where these are few; else functions made from
    visits.
    """
    count = model.box.count
    if count is None or count > MOST_INDICATORS:
        made = state_functions(model, states, most)
        return Basis(model, ((), *made.products), ("1", *made.labels))
    ranges = [
        range(int(low), int(high) + 1)
        for low, high in zip(model.box.lower, model.box.upper, strict=True)
    ]
    products: list[Product] = []
    labels = []
    for x in itertools.islice(
        itertools.product(*ranges), 1, None
    ):  # one less than there are, and 1
        products.append(tuple(between(i, v, v) for i, v in enumerate(x)))
        labels.append(f"1(x = {', '.join(map(str, x))})")
    return Basis(model, ((), *products), ("1", *labels))


def try_all(
    model: SimulatorModel, states: Ints, *, tries: int = 4, seed: int = 0
) -> tuple[Seen, Floats]:
    """Every allowed action at each of the states, so many times, all actions of a state with the
    same random numbers; and the weight of each step in the mean over the actions of its state.

    For simulators that go on from any state. Fewer states where the time is over.
    """
    if not model.resumable:
        raise InputError(f"model {model.name!r} goes on from where it is only; watch it.")
    require_counts(tries=tries)
    session = model.session()
    rows = []
    for k, x in enumerate(states):
        if time_is_over():
            break
        may = np.flatnonzero(model.allowed(x))
        for n in range(tries):
            for a in may:
                rng = np.random.default_rng([seed, k, n])
                y, loss, ended = model.checked(session.step(x, int(a), rng), x, int(a))
                after = model.start if ended else y
                rows.append((x, a, loss, after, ended, 1 / may.size))
    if not rows:
        raise OutOfTimeError
    *parts, shares = zip(*rows, strict=True)
    return _seen(*parts), np.array(shares)


def _seen(states: Any, actions: Any, losses: Any, following: Any, ended: Any) -> Seen:
    return Seen(
        np.array(states, np.int64),
        np.array(actions, np.int64),
        np.array(losses, np.float64),
        np.array(following, np.int64),
        np.array(ended, bool),
    )


@dataclass(frozen=True, eq=False)
class FittedLaws:
    """b and M of every action: `losses` has a row for each action, `following` a matrix."""

    basis: Basis
    criterion: Criterion
    losses: Floats
    following: Floats

    def action_values(self, weights: Floats, name: str = "action values") -> ActionValuesPolicy:
        """The policy of least ℓ̂ + γ Ê[Ψ]·w."""
        values = self.losses + self.criterion.gamma * (self.following @ weights)
        return ActionValuesPolicy(self.basis.model, self.basis, values, name=name)


def fit_laws(
    basis: Basis, seen: Seen, criterion: Criterion | None = None, shares: Floats | None = None
) -> FittedLaws:
    """The losses and the means of Ψ after each action; with `shares`, of steps in which all actions
    were tried (`try_all`).
    """
    constant = next((k for k, product in enumerate(basis.products) if not product), None)
    if constant is None:
        raise InputError("laws are fitted with the constant 1 among the functions; add it.")
    criterion = require_criterion(criterion)
    before = basis(seen.states)
    after = basis(seen.following)
    if isinstance(criterion, Discounted):
        after[seen.ended] = 0.0
    targets = np.column_stack([seen.losses, after])
    sizes = (before**2).mean(axis=0) + 1e-12
    count = len(basis.model.actions)
    if shares is None:
        together = _fitted(before, targets, RIDGE_OF_ALL * len(seen) * sizes)
        left = targets - before @ together
    else:
        first = np.flatnonzero(np.diff(seen.actions, prepend=len(basis.model.actions)) < 0)
        means = np.add.reduceat(shares[:, None] * targets, first, axis=0)
        together = _fitted(before[first], means, RIDGE_OF_ALL * len(first) * sizes)
        left = targets - np.repeat(means, np.diff(np.append(first, len(seen))), axis=0)
    found = np.tile(together, (count, 1, 1))
    for a in range(count):
        own = seen.actions == a
        if own.sum() > 1:
            found[a] += _own_part(before[own], left[own], sizes)
    if not (isinstance(criterion, Discounted) and seen.ended.any()):
        # the mean of the constant is the constant, up to the ridge: as a difference that is noise
        found[:, :, 1 + constant] = np.arange(len(basis)) == constant
    return FittedLaws(basis, criterion, found[:, :, 0], found[:, :, 1:])


def _own_part(inputs: Floats, targets: Floats, sizes: Floats) -> Floats:
    """What one action does beside what all do; of each target nothing unless that is seen."""
    found = np.zeros((inputs.shape[1], targets.shape[1]))
    plain = targets**2
    least = np.full(targets.shape[1], np.inf)
    for steps in RIDGES_STEPS:
        scale = np.sqrt(steps * sizes)
        scaled = inputs / scale
        factor = scipy.linalg.cho_factor(scaled.T @ scaled + np.eye(scale.size), overwrite_a=True)
        shares = scipy.linalg.cho_solve(factor, scaled.T)
        weights = shares @ targets
        alone = 1 - np.einsum("tk,kt->t", scaled, shares)
        missed = ((targets - scaled @ weights) / np.maximum(alone, LEAST_OWN)[:, None]) ** 2
        gain = plain - missed
        error = gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
        better = (gain.mean(axis=0) > error) & (missed.mean(axis=0) < least)
        found[:, better] = weights[:, better] / scale[:, None]
        least[better] = missed.mean(axis=0)[better]
    return found


def _fitted(inputs: Floats, targets: Floats, ridge: Floats) -> Floats:
    """Least squares with a ridge for each input."""
    scale = np.sqrt(ridge)
    scaled = inputs / scale
    factor = scipy.linalg.cho_factor(scaled.T @ scaled + np.eye(scale.size), overwrite_a=True)
    return np.asarray(scipy.linalg.cho_solve(factor, scaled.T @ targets) / scale[:, None])


def fitted_reference(laws: FittedLaws, states: Ints, policy: Policy, exploring: float) -> Reference:
    """All allowed pairs of the states, with what the policy that explores does there."""
    basis = laws.basis
    model = basis.model
    may = np.array([model.allowed(x) for x in states], bool)
    rows, actions = np.nonzero(may)
    even = may / may.sum(axis=1, keepdims=True)
    chances = ((1 - exploring) * policy.rows(states) + exploring * even)[rows, actions]
    values = basis(states)
    losses = np.empty(rows.size)
    differences = np.empty((rows.size, len(basis)))
    for a in range(len(model.actions)):
        own = actions == a
        here = values[rows[own]]
        losses[own] = here @ laws.losses[a]
        differences[own] = laws.criterion.gamma * (here @ laws.following[a]) - here
    masses = chances / chances.sum()
    start = start_of(basis, laws.criterion)
    return Reference(
        basis, laws.criterion, states, rows, actions, masses, losses, differences, start
    )
