"""Where values should be good: state-relevance weights c, a distribution on states.

The objective of a primal program is cᵀΨw, so all that it needs of c are its `moments` cᵀΨ. Three kinds:

    weighted      states with weights
    geometric     c(x) ∝ Π_i r_i^(x_i − lower_i) over the box; coordinates are independent, so moments of products of
                  pieces are products of sums over single coordinates, at any number of states; uniform is r = 1
    occupancy     where a policy goes: its discounted or stationary law, exact where states are few, else from
                  simulated visits

States drawn from c also serve as a sample of constraints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from dualplan.criteria import Average, Criterion, Discounted
from dualplan.errors import InputError
from dualplan.exact.policy import evaluate_exact
from dualplan.kinds import require_counts
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.primal.basis import Basis, Piece, products
from dualplan.simulation import REPLICAS, Replica, engine
from dualplan.sizes import EXACTLY
from dualplan.threads import in_parallel
from dualplan.types import ArrayLike, Floats, Ints

LONGEST = 1_000_000  # values of a coordinate over which a law is summed
NEGLIGIBLE = 1e-18  # geometric weights below it are left out
LISTED, DRAWN = 2**18, 50_000  # functions of the user: states up to which all are summed, and draws beyond
SPACING = 10  # steps between two visits
TAIL = 1e-4  # of the discounted mass that simulated runs leave out


class Relevance(Protocol):
    """A distribution on states, through its means and its draws."""

    @property
    def model(self) -> Model:
        """The model of the states."""

    def moments(self, basis: Basis) -> Floats:
        """cᵀΨ, one number for each function."""

    def draw(self, count: int, seed: int = 0) -> Ints:
        """Independent states from c (or visits of a policy), one a row."""

    def masses(self, states: Ints) -> Floats:
        """c(x) of given states, one a row."""


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
    given = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
    if given.shape != (len(rows),) or not np.isfinite(given).all() or (given < 0).any() or not given.sum() > 0:
        raise InputError(f"{len(rows)} states need as many weights >= 0, not all of them 0.")
    return Weighted(model, rows, given / given.sum())


@dataclass(frozen=True, eq=False)
class Independent:
    """Independent coordinates: the law of coordinate i gives `laws[i][k]` to lower_i + k."""

    model: Model
    laws: tuple[Floats, ...]

    def moments(self, basis: Basis) -> Floats:
        """Products of sums over single coordinates; functions of the user over all states, or drawn ones if many."""
        means, tables = np.ones(len(basis.products)), self._tables(basis)
        known: dict[tuple[Piece, ...], float] = {}
        for k, product in enumerate(basis.products):
            for i in {piece.coordinate for piece in product}:
                own = tuple(piece for piece in product if piece.coordinate == i)
                if own not in known:
                    known[own] = float(self.laws[i] @ math.prod((tables[piece] for piece in own), start=1.0))
                means[k] *= known[own]
        return np.concatenate([means, *self._user_moments(basis)])

    def _tables(self, basis: Basis) -> dict[Piece, Floats]:
        """Each piece at all values of its coordinate."""
        found = {}
        for piece in basis.pieces:
            states = np.tile(self.model.box.lower, (self.laws[piece.coordinate].size, 1))
            states[:, piece.coordinate] += np.arange(len(states))
            found[piece] = products(self.model, [[piece]])(states)[:, 0]
        return found

    def _user_moments(self, basis: Basis) -> list[Floats]:
        if not basis.user:
            return []
        if math.prod(law.size for law in self.laws) > LISTED:
            return [block(self.draw(DRAWN)).mean(axis=0) for block in basis.user]
        grid = np.meshgrid(*(np.arange(law.size) for law in self.laws), indexing="ij")
        states = self.model.box.lower + np.stack([axis.ravel() for axis in grid], axis=1)
        weights = math.prod((law[axis.ravel()] for law, axis in zip(self.laws, grid, strict=True)), start=1.0)
        return [np.asarray(weights @ block(states)) for block in basis.user]

    def draw(self, count: int, seed: int = 0) -> Ints:
        """Coordinate by coordinate."""
        rng = np.random.default_rng(seed)
        return self.model.box.lower + np.stack([rng.choice(law.size, count, p=law) for law in self.laws], axis=1)

    def masses(self, states: Ints) -> Floats:
        """Products over coordinates."""
        found = np.ones(len(states))
        for law, values in zip(self.laws, (states - self.model.box.lower).T, strict=True):
            found *= np.where(values < law.size, law[np.minimum(values, law.size - 1)], 0.0)
        return found


def geometric(model: Model, ratio: float | Sequence[float]) -> Independent:
    """c(x) ∝ Π_i ratio_i^(x_i − lower_i) over the box, with one ratio or one for each coordinate."""
    ratios = [float(ratio)] * model.box.dim if isinstance(ratio, (int, float)) else [float(r) for r in ratio]
    if len(ratios) != model.box.dim or not all(0 < r <= 1 for r in ratios):
        raise InputError(
            f"ratios lie above 0 and at most at 1, one for each of {model.box.dim} coordinates, got {ratio}."
        )
    return Independent(model, tuple(_geometric(model, i, r) for i, r in enumerate(ratios)))


def _geometric(model: Model, i: int, ratio: float) -> Floats:
    upper = int(model.box.upper[i])
    width = math.inf if upper == UNBOUNDED else upper - int(model.box.lower[i]) + 1
    length = width if ratio == 1 else min(width, math.ceil(math.log(NEGLIGIBLE) / math.log(ratio)) + 1)
    if length > LONGEST:
        raise InputError(
            f"coordinate {i} of {model.name!r} takes too many values for the ratio {ratio}; choose a smaller one."
        )
    law = ratio ** np.arange(int(length), dtype=np.float64)
    return np.asarray(law / law.sum())


def independent(model: Model, laws: Sequence[ArrayLike]) -> Independent:
    """Independent coordinates, each with a law of its own: probabilities of its values from the lowest on."""
    given = tuple(np.array(law, np.float64) for law in laws)
    if len(given) != model.box.dim:
        raise InputError(
            f"states of {model.name!r} have {model.box.dim} coordinates, so as many laws, not {len(given)}."
        )
    for i, law in enumerate(given):
        most = int(model.box.upper[i]) - int(model.box.lower[i]) + 1
        if law.ndim != 1 or not 1 <= law.size <= most or not (law >= 0).all() or not abs(law.sum() - 1) <= 1e-9:
            raise InputError(f"the law of coordinate {i} is a list of at most {most} probabilities that sum to 1.")
    return Independent(model, given)


def uniform(model: Model) -> Independent:
    """All states of a bounded box alike."""
    if not model.box.bounded:
        raise InputError(f"model {model.name!r} has infinitely many states; use geometric weights.")
    return geometric(model, 1.0)


@dataclass(frozen=True, eq=False)
class Visits:
    """Simulated visits of a policy: its stationary law, or its discounted one from the start; never over all states."""

    model: Model
    policy: Policy
    criterion: Criterion
    samples: int
    seed: int

    @cached_property
    def _states(self) -> Weighted:
        if isinstance(self.criterion, Discounted):
            return _discounted_visits(self.model, self.policy, self.criterion, self.samples, self.seed)
        return weighted_visits(self.model, visited(self.model, self.policy, self.samples, self.seed))

    def moments(self, basis: Basis) -> Floats:
        """Means over the visits."""
        return self._states.moments(basis)

    def draw(self, count: int, seed: int = 0) -> Ints:
        """Visits of fresh runs (average), or a draw from those at hand (discounted)."""
        if isinstance(self.criterion, Discounted):
            return self._states.draw(count, seed)
        return visited(self.model, self.policy, count, seed)

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
    exact: bool | None = None,
) -> Weighted | Visits:
    """Where a policy goes: exactly where there are at most `EXACTLY` states or it is asked for, else by simulation."""
    require_policy_of(model, policy)
    criterion = criterion or Average()
    require_counts(samples=samples)
    few = model.box.count is not None and model.box.count <= EXACTLY and policy.code is not None
    if exact or (exact is None and few):
        found = evaluate_exact(model, policy, criterion)
        return Weighted(model, model.box.states(found.reached), found.occupancy / found.occupancy.sum())
    return Visits(model, policy, criterion, samples, seed)


def weighted_visits(model: Model, states: Ints) -> Weighted:
    """Visits, each of the same weight; states visited often are listed once."""
    rows, counts = np.unique(states, axis=0, return_counts=True)
    return Weighted(model, rows, counts / counts.sum())


def visited(model: Model, policy: Policy, count: int, seed: int = 0, every: int = SPACING) -> Ints:
    """States that a policy visits from the model's start, one every so many steps of several trajectories."""
    run = engine(model, policy, seed)
    replicas = [Replica(k, model.start.copy(), np.zeros(2), 0) for k in range(REPLICAS)]
    each = -(-count // REPLICAS)
    found = in_parallel([partial(run.visits, r, each, every) for r in replicas], None if run.fast else 1)
    return np.concatenate(found)[:count]


def _discounted_visits(model: Model, policy: Policy, criterion: Discounted, samples: int, seed: int) -> Weighted:
    """Independent runs from the start with weights γ^t, cut where `TAIL` of the mass is left."""
    starts, alpha = criterion.start_distribution(model)
    length = max(1, math.ceil(math.log(TAIL) / math.log(criterion.gamma)))
    runs = max(REPLICAS, samples // length)
    chosen = np.random.default_rng(seed).choice(alpha.size, runs, p=alpha / alpha.sum())
    run = engine(model, policy, seed)
    replicas = [Replica(k, starts[s].copy(), np.zeros(2), 0) for k, s in enumerate(chosen)]
    tasks = [partial(run.visits, r, length, 1) for r in replicas]
    states = np.concatenate([
        np.concatenate([starts[s][None, :], path[:-1]])
        for s, path in zip(chosen, in_parallel(tasks, None if run.fast else 1), strict=True)
    ])  # fmt: skip
    weights = np.tile(criterion.gamma ** np.arange(length), runs)
    rows, where = np.unique(states, axis=0, return_inverse=True)
    masses = np.bincount(where.ravel(), weights)
    return Weighted(model, rows, masses / masses.sum())
