"""Where a policy goes: states with weights, from its law where states are few, else from simulated
visits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dualplan.core.checks import require_counts, require_seed
from dualplan.core.errors import InputError
from dualplan.core.threads import in_parallel
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.evaluation.results import EXACT_EVALUATION, require_known_method
from dualplan.evaluation.simulation import REPLICAS, Replica, engine
from dualplan.exact.policy import evaluate_exact
from dualplan.models.contract import Model, few_states
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.policies.tables import tabulated
from dualplan.values.basis import Basis

STEPS_BETWEEN_VISITS = 10  # steps between two visits
LEFT_OUT_DISCOUNTED_SHARE = 1e-4  # of the discounted mass that simulated runs leave out


@dataclass(frozen=True, eq=False)
class Weighted:
    """States, one a row, with weights that sum to 1."""

    model: Model
    states: Ints
    weights: Floats

    def moments(self, basis: Basis) -> Floats:
        """Sums over the states."""
        return np.asarray(self.weights @ basis(self.states))

    def draw(self, count: int, seed: int = 0) -> Ints:
        """With replacement."""
        chosen = np.random.default_rng(seed).choice(self.weights.size, count, p=self.weights)
        return np.ascontiguousarray(self.states[chosen])

    def masses(self, states: Ints) -> Floats:
        """Weights of states listed twice are added."""
        where = np.unique(np.vstack([self.states, states]), axis=0, return_inverse=True)[1].ravel()
        own = where[: len(self.states)]
        sums = np.bincount(own, self.weights, minlength=int(where.max()) + 1)
        return np.asarray(sums[where[len(self.states) :]], np.float64)


def weighted(model: Model, states: ArrayLike, weights: ArrayLike | None = None) -> Weighted:
    """States, one a row, with weights that need not sum to 1 (equal, if not given)."""
    rows = np.array([model.state(x) for x in np.atleast_2d(np.asarray(states))])
    if weights is None:
        given = np.ones(len(rows))
    else:
        given = np.asarray(weights, np.float64)
    if (
        given.shape != (len(rows),)
        or not np.isfinite(given).all()
        or (given < 0).any()
        or not given.sum() > 0
    ):
        raise InputError(f"{len(rows)} states need as many weights >= 0, not all of them 0.")
    return Weighted(model, rows, given / given.sum())


@dataclass(frozen=True, eq=False)
class Visits:
    """Simulated visits of a policy: its stationary law, or its discounted one from the start.

    Never over all states.
    """

    model: Model
    policy: Policy
    criterion: Criterion
    samples: int
    seed: int

    @cached_property
    def _states(self) -> Weighted:
        if isinstance(self.criterion, Discounted):
            return _discounted_visits(
                self.model, self.policy, self.criterion, self.samples, self.seed
            )
        return weighted_visits(
            self.model, visited(self.model, self.policy, samples=self.samples, seed=self.seed)
        )

    def moments(self, basis: Basis) -> Floats:
        """Means over the visits."""
        return self._states.moments(basis)

    def draw(self, count: int, seed: int = 0) -> Ints:
        """Visits of fresh runs (average), or a draw from those at hand (discounted)."""
        if isinstance(self.criterion, Discounted):
            return self._states.draw(count, seed)
        return visited(self.model, self.policy, samples=count, seed=seed)

    def masses(self, states: Ints) -> Floats:
        """Frequencies among the visits."""
        return self._states.masses(states)


def occupancy(
    model: Model,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    samples: int = 100_000,
    seed: int = 0,
    method: str | None = None,
) -> Weighted | Visits:
    """Where a policy goes.

    Exactly where states are few or `method` is "exact", otherwise by simulation.
    """
    require_policy_of(model, policy)
    require_known_method(method)
    criterion = require_criterion(criterion)
    require_seed(seed)
    require_counts(samples=samples)
    few = few_states(model) and tabulated(policy).code is not None
    if method == EXACT_EVALUATION or (method is None and few):
        found = evaluate_exact(model, policy, criterion)
        return Weighted(
            model, model.box.states(found.reached), found.occupancy / found.occupancy.sum()
        )
    return Visits(model, policy, criterion, samples, seed)


def weighted_visits(model: Model, states: Ints) -> Weighted:
    """Visits, each of the same weight; states visited often are listed once."""
    rows, counts = np.unique(states, axis=0, return_counts=True)
    return Weighted(model, rows, counts / counts.sum())


def visited(
    model: Model, policy: Policy, *, samples: int, seed: int = 0, every: int = STEPS_BETWEEN_VISITS
) -> Ints:
    """States that a policy visits from the model's start, one every so many steps of several
    trajectories.
    """
    require_policy_of(model, policy)
    require_counts(samples=samples, every=every)
    require_seed(seed)
    run = engine(model, policy, seed)
    replicas = [Replica(k, model.start.copy(), np.zeros(2), 0) for k in range(REPLICAS)]
    each = -(-samples // REPLICAS)
    found = in_parallel(
        [partial(run.visits, r, each, every) for r in replicas], None if run.fast else 1
    )
    return np.concatenate(found)[:samples]


def visited_from(
    model: Model, policy: Policy, starts: Ints, *, samples: int, seed: int = 0, every: int
) -> Ints:
    """States that a policy visits on its way from each of the starts: these, and so many more of
    each, one every so many steps.
    """
    require_policy_of(model, policy)
    require_counts(samples=samples, every=every)
    require_seed(seed)
    run = engine(model, policy, seed)
    replicas = [Replica(k, x.copy(), np.zeros(2), 0) for k, x in enumerate(starts)]
    found = in_parallel(
        [partial(run.visits, r, samples, every) for r in replicas], None if run.fast else 1
    )
    return np.concatenate([starts, *found])


def _discounted_visits(
    model: Model, policy: Policy, criterion: Discounted, samples: int, seed: int
) -> Weighted:
    """Independent runs from the start with weights γ^t, cut where `LEFT_OUT_DISCOUNTED_SHARE` of
    the mass is left.
    """
    starts, alpha = criterion.start_distribution(model)
    length = max(1, math.ceil(math.log(LEFT_OUT_DISCOUNTED_SHARE) / math.log(criterion.gamma)))
    runs = max(REPLICAS, samples // length)
    chosen = np.random.default_rng(seed).choice(alpha.size, runs, p=alpha / alpha.sum())
    run = engine(model, policy, seed)
    replicas = [Replica(k, starts[s].copy(), np.zeros(2), 0) for k, s in enumerate(chosen)]
    tasks = [partial(run.visits, r, length, 1) for r in replicas]
    states = np.concatenate(
        [
            np.concatenate([starts[s][None, :], path[:-1]])
            for s, path in zip(chosen, in_parallel(tasks, None if run.fast else 1), strict=True)
        ]
    )
    weights = np.tile(criterion.gamma ** np.arange(length), runs)
    rows, where = np.unique(states, axis=0, return_inverse=True)
    masses = np.bincount(where.ravel(), weights)
    return Weighted(model, rows, masses / masses.sum())
