"""Trees that are fitted to the states that a policy visits.

*Chow–Liu* (1968): among all trees, the one whose edges have the largest sum of mutual information
I(x_i; x_j) = Σ P(u, v)·log[P(u, v)/(P(u)·P(v))], with the conditional laws of the data, maximises
the likelihood, that is, minimises the Kullback–Leibler distance from the empirical law. `fit_tree`
takes the states that a policy visits, with values beyond the listed ones as one class, and finds
the maximum spanning tree; edges of less than `least` nats are left out. Conditional laws are
smoothed, (N(c,v) + s·P(v))/(N(c) + s) with P(v) = (N(v) + s/K)/(N + s), so that the density is
positive in the whole box. `fit_product` has no edges. The pending event of decisions per server is
independent of all else, with a known law: it is not fitted. The pairs of coordinates are the one
thing here that grows with the square of their number; the time is that of `samples` look-ups for
each.

How close a fitted law is to stationary is not known; the surrogate's flow violation measures it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dualplan._kernels.trees import mutual_information
from dualplan.core.checks import (
    require_counts,
    require_numbers,
    require_positive,
    require_seed,
    require_whole,
)
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.dual.features.tree_laws import Node, Tree
from dualplan.evaluation.simulation import REPLICAS, engine
from dualplan.evaluation.visits import Visits
from dualplan.models.contract import Box, Model
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy, require_policy_of

MOST_FITTED_VALUES = 24  # values of a coordinate that a fit lists
TREE_FIT_VISITS = 20_000
STEPS_BETWEEN_TREE_FIT_VISITS = 20  # steps from one visit to the next
VISITS_AT_ONCE = 2_000  # visits held as whole states at once


def fit_tree(
    model: Model,
    policy: Policy,
    *,
    samples: int = TREE_FIT_VISITS,
    every: int = STEPS_BETWEEN_TREE_FIT_VISITS,
    listed: int = MOST_FITTED_VALUES,
    smoothing: float = 1.0,
    least: float = 1e-3,
    seed: int = 0,
    name: str | None = None,
) -> Tree:
    """The Chow–Liu tree of the states that a policy samples, `every` so many steps.

    a tenth more is warm-up.
    """
    seen = _visited(model, policy, samples, every, listed, seed)
    return _fitted(model, seen, smoothing, least, name or f"tree of {policy.name}")


def fitted_law(
    model: Model,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    samples: int = TREE_FIT_VISITS,
    seed: int = 0,
) -> Tree:
    """The tree of where a policy goes under a criterion: of its stationary law, or of its
    discounted one from the start.
    """
    criterion = require_criterion(criterion)
    if not isinstance(criterion, Discounted):
        return fit_tree(model, policy, samples=samples, seed=seed)
    drawn = Visits(model, policy, criterion, samples, seed).draw(samples, seed)
    seen = Seen.nothing(model.box, samples, MOST_FITTED_VALUES)
    seen.add(drawn, 0)
    return _fitted(model, seen, 1.0, 1e-3, f"tree of {policy.name}")


def fit_product(
    model: Model,
    policy: Policy,
    *,
    samples: int = TREE_FIT_VISITS,
    every: int = STEPS_BETWEEN_TREE_FIT_VISITS,
    listed: int = MOST_FITTED_VALUES,
    smoothing: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Tree:
    """The product of the laws of single coordinates over the states that a policy samples."""
    seen = _visited(model, policy, samples, every, listed, seed)
    return _fitted(model, seen, smoothing, math.inf, name or f"product of {policy.name}")


def chow_liu(
    states: Ints,
    box: Box,
    *,
    listed: int = MOST_FITTED_VALUES,
    smoothing: float = 1.0,
    least: float = 0.0,
    name: str = "tree",
) -> Tree:
    """The Chow–Liu tree of given states, one a row."""
    states = np.asarray(states)
    if (
        states.ndim != 2
        or states.shape[1] != box.dim
        or not len(states)
        or states.dtype.kind not in "iu"
    ):
        raise InputError(
            f"a tree is fitted to states with {box.dim} integer coordinates, one a row, at least "
            "one."
        )
    outside = np.flatnonzero(((states < box.lower) | (states > box.upper)).any(axis=1))
    if outside.size:
        raise InputError(f"state {outside[0]} that a tree is to be fitted to lies outside the box.")
    seen = Seen.nothing(box, len(states), listed)
    seen.add(states, 0)
    return seen.tree(smoothing, least, name)


@dataclass(frozen=True, eq=False)
class Seen:
    """States that were seen: for each coordinate their places among the listed values, and how far
    beyond they were.
    """

    box: Box
    tops: Ints
    codes: np.ndarray[tuple[int, int], np.dtype[np.uint8]]
    beyond: Floats

    @staticmethod
    def nothing(box: Box, count: int, listed: int) -> Seen:
        """Room for `count` states."""
        require_whole("listed", listed, least=2, most=256)
        tops = [
            min(int(high), int(low) + listed - 1)
            for low, high in zip(box.lower, box.upper, strict=True)
        ]
        return Seen(
            box, np.array(tops, np.int64), np.zeros((box.dim, count), np.uint8), np.zeros(box.dim)
        )

    def add(self, states: Ints, first: int) -> None:
        """Write states down from place `first` on."""
        self.codes[:, first : first + len(states)] = (
            np.minimum(states, self.tops) - self.box.lower
        ).T
        self.beyond[:] += np.maximum(states - self.tops, 0).sum(axis=0)

    def tree(self, smoothing: float, least: float, name: str) -> Tree:
        """The law fitted to them, with edges of at least so much mutual information."""
        require_positive(smoothing=smoothing)  # so that the density is
        if least != math.inf:
            require_numbers(least=least)
        sizes = self._sizes()
        if least == math.inf:
            parents = [-1] * len(sizes)
        else:
            parents = _spanning_tree(self.information(sizes), least)
        nodes = tuple(self._node(i, p, sizes, smoothing) for i, p in enumerate(parents))
        return Tree(nodes, tuple(parents), name)

    def without_last(self) -> Seen:
        """The same of all coordinates but the last."""
        box = Box(self.box.lower[:-1], self.box.upper[:-1])
        return Seen(box, self.tops[:-1], self.codes[:-1], self.beyond[:-1])

    def _sizes(self) -> Ints:
        """How many values of each coordinate are listed: as many as were seen, all if there are
        few, at least two.
        """
        room = self.tops - self.box.lower + 1
        return np.asarray(
            np.where(
                self.tops == self.box.upper, room, np.clip(self.codes.max(axis=1) + 1, 2, room)
            )
        )

    def information(self, sizes: Ints) -> Floats:
        """The mutual information of all pairs of coordinates, in nats."""
        out = np.zeros((sizes.size, sizes.size))
        most = int(sizes.max())
        mutual_information(self.codes, sizes.astype(np.int64), np.zeros(most * most), out)
        return out

    def _node(self, i: int, parent: int, sizes: Ints, smoothing: float) -> Node:
        size = int(sizes[i])
        own = self.codes[i].astype(np.int64)
        plain = np.bincount(own, minlength=size)
        law = (plain + smoothing / size) / (own.size + smoothing)
        table = law[None, :]
        if parent >= 0:
            rows = int(sizes[parent])
            joint = np.bincount(
                self.codes[parent] * np.int64(size) + own, minlength=rows * size
            ).reshape(rows, size)
            table = (joint + smoothing * law) / (joint.sum(axis=1, keepdims=True) + smoothing)
        low = int(self.box.lower[i])
        limit = int(self.box.upper[i])
        if low + size - 1 == limit:
            return Node(low, table)
        ratio = (self.beyond[i] + 0.5) / (
            self.beyond[i] + plain[-1] + 1
        )  # of a geometric law, as seen
        return Node(low, table, float(ratio), limit)


def _spanning_tree(information: Floats, least: float) -> list[int]:
    """Parents in the maximum spanning tree (Prim's), or forest of edges of at least `least`.

    Root 0.
    """
    dim = len(information)
    parents = np.full(dim, -1)
    best = np.full(dim, -np.inf)
    left = np.ones(dim, bool)
    for _ in range(dim):
        if not left.all():
            i = int(np.argmax(np.where(left, best, -np.inf)))
        else:
            i = 0
        if not left[i]:
            i = int(np.argmax(left))
        left[i] = False
        closer = left & (information[i] > best)
        best[closer] = information[i][closer]
        parents[closer] = i
    return [int(p) if p >= 0 and information[i, p] >= least else -1 for i, p in enumerate(parents)]


def _visited(
    model: Model, policy: Policy, samples: int, every: int, listed: int, seed: int
) -> Seen:
    """States of several trajectories, in pieces."""
    require_policy_of(model, policy)
    require_whole("samples", samples, least=REPLICAS)
    require_counts(every=every)
    require_seed(seed)
    runner = engine(model, policy, seed)
    each = samples // REPLICAS
    seen = Seen.nothing(model.box, each * REPLICAS, listed)
    for number in range(REPLICAS):
        replica = runner.advance(runner.first(number), 1, max(1, each * every // 10)).replica
        for first in range(0, each, VISITS_AT_ONCE):
            states = runner.visits(replica, min(VISITS_AT_ONCE, each - first), every)
            replica = replace(
                replica, x=states[-1].copy(), steps=replica.steps + len(states) * every
            )
            seen.add(states, number * each + first)
    return seen


def _fitted(model: Model, seen: Seen, smoothing: float, least: float, name: str) -> Tree:
    """With decisions per server the pending event is as it is: independent of all else, with a
    known law.
    """
    if not isinstance(model, QueueingNetwork) or not model.per_server:
        return seen.tree(smoothing, least, name)
    law = seen.without_last().tree(smoothing, least, name)
    return Tree((*law.nodes, Node(0, model.event_law[None, :])), (*law.parents, -1), name)
