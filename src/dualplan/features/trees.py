"""Laws of the states that factor along a tree, times a choice of the action: known densities at any scale.

    P(x) = Π_i P_i(x_i | x_p(i)),        φ(x, a) = P(x)·1{a = A}    or    P(x)·π(a|x)

A coordinate lists its first values; those from the last one on are one class for its children, and go on with
P(last + k) in proportion to r^k, for ever or up to the coordinate's limit. Draws go from parents to children. The law
of each coordinate follows from its parent's,

    P_i(v) = Σ_c P_i(v | c)·P_p(i)(c),

so that the expectation of a loss that is a sum over the coordinates is exact. A tree cut to a product of intervals, and
normalised, is a tree again: with β_i(v) = 1{v in I_i}·Π_children Σ_u P_c(u|v)·β_c(u), its conditional laws are in
proportion to P_i(v|c)·β_i(v). These are *tiles* without enumeration.

*Chow–Liu* (1968): among all trees, the one whose edges have the largest sum of mutual information
I(x_i; x_j) = Σ P(u, v)·log[P(u, v)/(P(u)·P(v))], with the conditional laws of the data, maximises the likelihood, that
is, minimises the Kullback–Leibler distance from the empirical law. `fit_tree` takes the states that a policy visits,
with values beyond the listed ones as one class, and finds the maximum spanning tree; edges of less than `least` nats
are left out. Conditional laws are smoothed, (N(c,v) + s·P(v))/(N(c) + s) with P(v) = (N(v) + s/K)/(N + s), so that the
density is positive in the whole box. `fit_product` has no edges. The pending event of decisions per server is
independent of all else, with a known law: it is not fitted. The pairs of coordinates are the one thing here that grows
with the square of their number; the time is that of `visits` look-ups for each.

How close a fitted law is to stationary is not known; the surrogate's flow violation measures it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dualplan._kernels.features import TREES
from dualplan._kernels.fitting import mutual_information
from dualplan.errors import InputError
from dualplan.features.choices import Choices
from dualplan.features.contract import Block, Features, estimated_losses
from dualplan.features.losses import check_allowed
from dualplan.kinds import is_number, is_positive, is_whole
from dualplan.models.contract import UNBOUNDED, Box, Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.simulation import REPLICAS, engine
from dualplan.types import Bools, Floats, Ints

Interval = tuple[int, int | None]
MOST_TERMS = 1_000_000  # of a tail, for an exact mean
LISTED = 24  # values of a coordinate that a fit lists
VISITS = 20_000
EVERY = 20  # steps from one visit to the next
PIECE = 2_000  # visits held as whole states at once


@dataclass(frozen=True, eq=False)
class Node:
    """The law of a coordinate: values from `low` on, a row of probabilities for each class of its parent.

    With a `ratio`, the last value stands for itself and what lies beyond, up to `most`.
    """

    low: int
    table: Floats
    ratio: float | None = None
    most: int = UNBOUNDED

    def __post_init__(self) -> None:
        table = np.asarray(self.table)
        if table.ndim != 2 or not table.size or table.dtype.kind not in "iuf":
            raise InputError(f"a node needs a table of probabilities, one row a class, got the shape {table.shape}.")
        object.__setattr__(self, "table", table)
        if self.ratio is not None and not (is_number(self.ratio) and 0 < self.ratio < 1):
            raise InputError(f"the ratio of a node's tail must lie between 0 and 1, got {self.ratio!r}.")
        if not is_whole(self.low) or not is_whole(self.most) or (self.ratio is not None and self.most < self.high):
            raise InputError(f"a node's limits are integers, the last one listed or later, got {self.most!r}.")

    @property
    def size(self) -> int:
        """How many values are listed."""
        return int(self.table.shape[1])

    @property
    def high(self) -> int:
        """The last value that is listed."""
        return self.low + self.size - 1

    @property
    def last(self) -> int:
        """The largest value there is."""
        return self.high if self.ratio is None else self.most

    @property
    def tail(self) -> tuple[float, float]:
        """log r, and the logarithm of the tail's first probability."""
        if self.ratio is None:
            return 0.0, 0.0
        rate = math.log(self.ratio)
        return rate, math.log1p(-self.ratio) - math.log1p(-math.exp(rate * self._length))

    @property
    def _length(self) -> float:
        return math.inf if self.most == UNBOUNDED else float(self.most - self.high + 1)

    def classes(self, values: Ints) -> Ints:
        """The places of values among those listed."""
        return np.asarray(np.clip(values, self.low, self.high) - self.low)

    def log_terms(self, values: Ints, classes: Ints) -> Floats:
        """log P(value | class of the parent)."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.table)[classes, self.classes(values)]
        rate, first = self.tail
        if self.ratio is not None:
            logs = logs + np.where(values >= self.high, first + rate * (values - self.high), 0.0)
        return np.where((values < self.low) | (values > self.last), -np.inf, logs)

    @property
    def terms(self) -> float:
        """How many values of the tail matter: what is left of a quadratic loss is below 1e-22 of it."""
        return 0.0 if self.ratio is None else min(math.ceil(60 / -math.log(self.ratio)) + 2, self._length)

    def spread(self, probabilities: Floats) -> tuple[Ints, Floats]:
        """Values and their probabilities, given those of the listed ones."""
        if self.ratio is None:
            return np.arange(self.low, self.high + 1), probabilities
        rate, first = self.tail
        steps = np.arange(int(self.terms))
        beyond = probabilities[-1] * np.exp(first + rate * steps)
        values = np.arange(self.low, self.high + steps.size)
        return values, np.concatenate([probabilities[:-1], beyond])

    def until(self, most: int) -> tuple[Node, float]:
        """The law whose tail ends at `most`, and how much of the tail that leaves."""
        if self.ratio is None or most >= self.most:
            return self, 1.0
        if most < self.high:
            return replace(self, ratio=None), 0.0
        shorter = replace(self, most=most)
        rate = math.log(self.ratio)
        left = -math.expm1(rate * shorter._length) / -math.expm1(rate * self._length)
        return (replace(self, ratio=None) if most == self.high else shorter), left


@dataclass(frozen=True, eq=False)
class Tree:
    """A law of the states: a node for each coordinate, and the coordinate it depends on (−1: none)."""

    nodes: tuple[Node, ...]
    parents: tuple[int, ...]
    name: str = "tree"

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.nodes) or not self.nodes:
            raise InputError("a tree needs a parent, or -1, for each of its coordinates.")
        if any(not is_whole(p) or not -1 <= p < len(self.nodes) for p in self.parents):
            raise InputError(f"the parents of a tree are coordinates 0 to {len(self.nodes) - 1}, or -1 for none.")
        for i, (node, p) in enumerate(zip(self.nodes, self.parents, strict=True)):
            rows = 1 if p < 0 else self.nodes[p].size
            sums = node.table.sum(axis=1)
            if node.table.shape[0] != rows or (node.table < 0).any() or not np.allclose(sums, 1, atol=1e-9):
                raise InputError(f"coordinate {i} of a tree needs {rows} rows of probabilities, one for each class.")
        self.order  # noqa: B018 - raises on a cycle

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Coordinates, parents first."""
        children = self.children
        order = [i for i, p in enumerate(self.parents) if p < 0]
        for i in order:
            order.extend(children[i])
        if len(order) != len(self.nodes):
            raise InputError("the parents of a tree must not form a cycle.")
        return tuple(order)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The coordinates that depend on each coordinate."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for i, p in enumerate(self.parents):
            if p >= 0:
                found[p].append(i)
        return tuple(map(tuple, found))

    def log_density(self, states: Ints) -> Floats:
        """log P(x) of states, one a row."""
        total = np.zeros(len(states))
        for i, (node, p) in enumerate(zip(self.nodes, self.parents, strict=True)):
            none = np.zeros(len(states), np.int64)
            total += node.log_terms(states[:, i], none if p < 0 else self.nodes[p].classes(states[:, p]))
        return total

    @cached_property
    def class_laws(self) -> tuple[Floats, ...]:
        """The law of each coordinate over its listed values, the last with all that lies beyond."""
        laws: dict[int, Floats] = {}
        for i in self.order:
            p = self.parents[i]
            laws[i] = self.nodes[i].table[0] if p < 0 else laws[p] @ self.nodes[i].table
        return tuple(laws[i] for i in range(len(self.nodes)))

    @property
    def marginals(self) -> list[tuple[Ints, Floats]] | None:
        """Values and probabilities of each coordinate; None if a tail has too many."""
        if any(node.terms > MOST_TERMS for node in self.nodes):
            return None
        return [node.spread(law) for node, law in zip(self.nodes, self.class_laws, strict=True)]

    def within(self, cuts: Mapping[int, Interval], name: str | None = None) -> Tree | None:
        """The law given that some coordinates lie in intervals (no upper end: None); None if that has no chance."""
        nodes, masks = list(self.nodes), [np.ones(node.size) for node in self.nodes]
        for i, (low, high) in cuts.items():
            top = nodes[i].last if high is None else high
            if nodes[i].ratio is not None and nodes[i].high < low <= min(top, nodes[i].most):
                nodes[i] = _from(nodes[i], low, top)
                masks[i] = np.ones(1)
                for c in self.children[i]:  # all of the tail is one class to them
                    nodes[c] = replace(nodes[c], table=nodes[c].table[-1:])
                continue
            nodes[i], left = nodes[i].until(top)
            values = np.arange(nodes[i].low, nodes[i].high + 1)
            masks[i] = ((values >= low) & (values <= top)).astype(np.float64)
            masks[i][-1] *= left
        return self._masked(nodes, masks, name or f"{self.name} in {dict(cuts)}")

    def among(self, i: int, allowed: Bools, name: str | None = None) -> Tree | None:
        """The law given that coordinate i is one of its listed values that are allowed; None if that has no chance."""
        if allowed.all():
            return self
        masks = [np.ones(node.size) for node in self.nodes]
        masks[i] = allowed.astype(np.float64)
        return self._masked(list(self.nodes), masks, name or self.name)

    def _masked(self, nodes: list[Node], masks: list[Floats], name: str) -> Tree | None:
        """The law in proportion to P(x)·Π masks, by messages from the leaves up."""
        weights = [mask.copy() for mask in masks]
        for i in reversed(self.order):
            if (weights[i] == 1).all() and nodes[i].size == self.nodes[i].size:
                continue
            sums = nodes[i].table @ weights[i]
            if self.parents[i] >= 0:
                weights[self.parents[i]] *= sums / (sums.max() or 1.0)  # in proportion, so that many do not underflow
            elif not sums[0] > 0:
                return None
            table = nodes[i].table * weights[i] / np.where(sums > 0, sums, 1.0)[:, None]
            table[~(sums > 0)] = 1 / nodes[i].size  # of a class that never occurs
            nodes[i] = replace(nodes[i], table=table)
        return Tree(tuple(nodes), self.parents, name)


def _from(node: Node, low: int, top: int) -> Node:
    """A law that begins at `low` within the tail: r^(low − high) of the tail is left, and it goes on as before.

    That share is the same for all classes of the parent, so that the probabilities of the tail stand for what is left.
    """
    most = min(top, node.most)
    return Node(low, node.table[:, -1:], node.ratio if most > low else None, most)


# -- features ---------------------------------------------------------------------------------------------------------


def trees(
    model: Model,
    laws: Sequence[Tree],
    *,
    choices: Sequence[Policy] | None = None,
    cuts: Mapping[int | str, Sequence[Interval]] | None = None,
) -> Features:
    """Laws of the states times each action, or each policy's own choice; with `cuts`, each law cut into tiles.

    `cuts` has intervals for some coordinates, by number or name. With decisions per server and no choices, an action is
    taken at the events of those servers that have it.
    """
    for law in laws:
        _check_law(model, law)
    for key, intervals in (cuts or {}).items():
        check_pairs(f"the cuts of coordinate {key!r}", intervals)
    tiled = [tile for law in laws for tile in _tiles(model, law, cuts or {})]
    if not tiled:
        raise InputError("trees need at least one law, and tiles that have a chance.")
    ways = Choices.of(model, choices)
    pairs = [pair for law in tiled for pair in _with_choices(model, law, ways)]
    return factored(model, pairs, ways)


def check_pairs(what: str, intervals: Sequence[Interval]) -> None:
    """Raise unless these are pairs of integers, the second of which may be None."""
    listed = isinstance(intervals, (list, tuple, np.ndarray))
    if not listed or not all(isinstance(v, (list, tuple, np.ndarray)) and len(v) == 2 for v in intervals):
        raise InputError(f"{what} must be a list of pairs (low, high), got {intervals!r}.")
    if not all(is_whole(low) and (high is None or is_whole(high)) for low, high in intervals):
        raise InputError(f"{what} must have integers as limits, got {intervals!r}.")


def _check_law(model: Model, law: Tree) -> None:
    if not isinstance(law, Tree):
        raise InputError(f"a law of the states is a Tree, as fit_tree makes one, got {law!r}.")
    if len(law.nodes) != model.box.dim:
        raise InputError(f"a tree for {model.name!r} needs {model.box.dim} coordinates, got {len(law.nodes)}.")
    for i, node in enumerate(law.nodes):
        low, high = int(model.box.lower[i]), int(model.box.upper[i])
        if node.low < low or node.last > high:
            limit = "without end" if node.last == UNBOUNDED else f"to {node.last}"
            raise InputError(
                f"the law of coordinate {i} ({model.coordinates[i]}) reaches from {node.low} {limit}, beyond the box, "
                f"which ends at {high}; give it a limit."
            )


def _tiles(model: Model, law: Tree, cuts: Mapping[int | str, Sequence[Interval]]) -> list[Tree]:
    if not cuts:
        return [law]
    places = [_coordinate(model, key) for key in cuts]
    tiles = (law.within(dict(zip(places, tile, strict=True))) for tile in itertools.product(*cuts.values()))
    return [tile for tile in tiles if tile is not None]


def _coordinate(model: Model, key: int | str) -> int:
    if isinstance(key, str) and key in model.coordinates:
        return model.coordinates.index(key)
    if is_whole(key) and 0 <= int(key) < model.box.dim:
        return int(key)
    raise InputError(f"model {model.name!r} has no coordinate {key!r}.")


def _with_choices(model: Model, law: Tree, ways: Choices) -> list[tuple[Tree, int]]:
    """The law with each choice; with decisions per server, an action only where there is one."""
    if ways.policies or not isinstance(model, QueueingNetwork) or not model.per_server:
        return [(law, k) for k in range(len(ways))]
    event, node = model.box.dim - 1, law.nodes[-1]
    numbers = np.array([1, *(len(c) for c in model.choices)])[node.low : node.high + 1]
    found = [(law.among(event, numbers > a), a) for a in range(len(ways))]
    return [(part, a) for part, a in found if part is not None]


def factored(model: Model, pairs: Sequence[tuple[Tree, int]], ways: Choices) -> Features:
    """A block of laws, each with one of the choices."""
    laws = list({id(law): law for law, _ in pairs}.values())
    by_law = {id(law): [k for other, k in pairs if other is law] for law in laws}
    counts = [len(by_law[id(law)]) for law in laws]
    chosen = [k for law in laws for k in by_law[id(law)]]
    ints, floats = _fields(model, laws, counts, chosen, ways)
    names = tuple(f"{law.name}, {ways.names[k]}" for law in laws for k in by_law[id(law)])
    widest = len(names) if ways.policies else max(np.bincount(chosen))
    unknown, room = np.full(len(names), np.nan), 2 * len(laws) + len(model.actions) * len(ways)
    block = Block(TREES, ints, floats, names, int(widest), unknown, unknown, room, user=ways.user)
    check_allowed(Features(model, [block]))
    means = [_mean_loss(model, law) for law in laws]
    if any(mean is None for mean in means):
        return Features(model, [estimated_losses(model, block)])
    exact = np.repeat(np.array(means, np.float64), counts)
    return Features(model, [replace(block, losses=exact, errors=np.zeros(exact.size))])


def _mean_loss(model: Model, law: Tree) -> float | None:
    """The expectation of a loss that is a sum over the coordinates, if it is one."""
    parts, marginals = model.loss_parts, law.marginals
    if parts is None or marginals is None:
        return None
    return float(sum(p @ part(v) for part, (v, p) in zip(parts, marginals, strict=True)))


def _fields(
    model: Model, laws: Sequence[Tree], counts: Sequence[int], chosen: Sequence[int], ways: Choices
) -> tuple[Ints, Floats]:
    """The compiled form; tables that laws share are there once."""
    dim, head = model.box.dim, 5 + 2 * len(laws) + 1 + len(chosen)
    choice_ints, choice_floats = ways.fields(head, 0)
    places, tables, at = dict[int, int](), [choice_floats], choice_floats.size
    for law in laws:
        for node in law.nodes:
            if id(node) not in places:
                places[id(node)] = at
                tables.append(_table(node))
                at += tables[-1].size
    starts, records, end = list[int](), list[Ints](), head + choice_ints.size
    for law in laws:
        starts.append(end)
        records.append(_law(law, places))
        end += records[-1].size
    ends = np.cumsum([0, *counts])
    numbers = [dim, len(model.actions), len(laws), len(chosen), head, *starts, *ends, *chosen]
    return np.concatenate([np.array(numbers, np.int64), choice_ints, *records]), np.concatenate(tables)


def _table(node: Node) -> Floats:
    with np.errstate(divide="ignore"):
        logs = np.log(node.table)
    return np.concatenate([logs.ravel(), np.cumsum(node.table, axis=1).ravel(), node.tail])


def _law(law: Tree, places: Mapping[int, int]) -> Ints:
    """Nodes, the order, and the lists of children."""
    numbers, lists = list[int](), list[int]()
    at = 9 * len(law.nodes)
    for node, parent, children in zip(law.nodes, law.parents, law.children, strict=True):
        rows = node.table.shape[0]
        numbers += [node.low, node.high, node.last, parent, places[id(node)], rows, at + len(lists), len(children)]
        lists += children
    return np.array([*numbers, *law.order, *lists], np.int64)


# -- fits -------------------------------------------------------------------------------------------------------------


def fit_tree(
    model: Model,
    policy: Policy,
    *,
    visits: int = VISITS,
    every: int = EVERY,
    listed: int = LISTED,
    smoothing: float = 1.0,
    least: float = 1e-3,
    seed: int = 0,
    name: str | None = None,
) -> Tree:
    """The Chow–Liu tree of the states that a policy visits, `every` so many steps; a tenth more is warm-up."""
    seen = _visited(model, policy, visits, every, listed, seed)
    return _fitted(model, seen, smoothing, least, name or f"tree of {policy.name}")


def fit_product(
    model: Model,
    policy: Policy,
    *,
    visits: int = VISITS,
    every: int = EVERY,
    listed: int = LISTED,
    smoothing: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Tree:
    """The product of the laws of single coordinates over the states that a policy visits."""
    seen = _visited(model, policy, visits, every, listed, seed)
    return _fitted(model, seen, smoothing, math.inf, name or f"product of {policy.name}")


def chow_liu(
    states: Ints, box: Box, *, listed: int = LISTED, smoothing: float = 1.0, least: float = 0.0, name: str = "tree"
) -> Tree:
    """The Chow–Liu tree of given states, one a row."""
    states = np.asarray(states)
    if states.ndim != 2 or states.shape[1] != box.dim or not len(states) or states.dtype.kind not in "iu":
        raise InputError(f"a tree is fitted to states with {box.dim} integer coordinates, one a row, at least one.")
    outside = np.flatnonzero(((states < box.lower) | (states > box.upper)).any(axis=1))
    if outside.size:
        raise InputError(f"state {outside[0]} that a tree is to be fitted to lies outside the box.")
    seen = Seen.nothing(box, len(states), listed)
    seen.add(states, 0)
    return seen.tree(smoothing, least, name)


@dataclass(frozen=True, eq=False)
class Seen:
    """States that were seen: for each coordinate their places among the listed values, and how far beyond they were."""

    box: Box
    tops: Ints
    codes: np.ndarray[tuple[int, int], np.dtype[np.uint8]]
    beyond: Floats

    @staticmethod
    def nothing(box: Box, count: int, listed: int) -> Seen:
        """Room for `count` states."""
        if not is_whole(listed) or not 2 <= listed <= 256:
            raise InputError(f"listed must be a number of values from 2 to 256, got {listed!r}.")
        tops = [min(int(high), int(low) + listed - 1) for low, high in zip(box.lower, box.upper, strict=True)]
        return Seen(box, np.array(tops, np.int64), np.zeros((box.dim, count), np.uint8), np.zeros(box.dim))

    def add(self, states: Ints, first: int) -> None:
        """Write states down from place `first` on."""
        self.codes[:, first : first + len(states)] = (np.minimum(states, self.tops) - self.box.lower).T
        self.beyond[:] += np.maximum(states - self.tops, 0).sum(axis=0)

    def tree(self, smoothing: float, least: float, name: str) -> Tree:
        """The law fitted to them, with edges of at least so much mutual information."""
        if not is_positive(smoothing):
            raise InputError(f"smoothing must be positive, so that the density is, got {smoothing!r}.")
        if least != math.inf and not is_number(least):
            raise InputError(f"least must be a number, the mutual information that an edge has, got {least!r}.")
        sizes = self._sizes()
        parents = [-1] * len(sizes) if least == math.inf else _spanning_tree(self.information(sizes), least)
        nodes = tuple(self._node(i, p, sizes, smoothing) for i, p in enumerate(parents))
        return Tree(nodes, tuple(parents), name)

    def without_last(self) -> Seen:
        """The same of all coordinates but the last."""
        box = Box(self.box.lower[:-1], self.box.upper[:-1])
        return Seen(box, self.tops[:-1], self.codes[:-1], self.beyond[:-1])

    def _sizes(self) -> Ints:
        """How many values of each coordinate are listed: as many as were seen, all if there are few, at least two."""
        room = self.tops - self.box.lower + 1
        return np.asarray(np.where(self.tops == self.box.upper, room, np.clip(self.codes.max(axis=1) + 1, 2, room)))

    def information(self, sizes: Ints) -> Floats:
        """The mutual information of all pairs of coordinates, in nats."""
        out, most = np.zeros((sizes.size, sizes.size)), int(sizes.max())
        mutual_information(self.codes, sizes.astype(np.int64), np.zeros(most * most), out)
        return out

    def _node(self, i: int, parent: int, sizes: Ints, smoothing: float) -> Node:
        size, own = int(sizes[i]), self.codes[i].astype(np.int64)
        plain = np.bincount(own, minlength=size)
        law = (plain + smoothing / size) / (own.size + smoothing)
        table = law[None, :]
        if parent >= 0:
            rows = int(sizes[parent])
            joint = np.bincount(self.codes[parent] * np.int64(size) + own, minlength=rows * size).reshape(rows, size)
            table = (joint + smoothing * law) / (joint.sum(axis=1, keepdims=True) + smoothing)
        low, limit = int(self.box.lower[i]), int(self.box.upper[i])
        if low + size - 1 == limit:
            return Node(low, table)
        ratio = (self.beyond[i] + 0.5) / (self.beyond[i] + plain[-1] + 1)  # of a geometric law, as seen
        return Node(low, table, float(ratio), limit)


def _spanning_tree(information: Floats, least: float) -> list[int]:
    """Parents in the maximum spanning tree (Prim's), or forest of edges of at least `least`; root 0."""
    dim = len(information)
    parents, best = np.full(dim, -1), np.full(dim, -np.inf)
    left = np.ones(dim, bool)
    for _ in range(dim):
        i = int(np.argmax(np.where(left, best, -np.inf))) if not left.all() else 0
        if not left[i]:
            i = int(np.argmax(left))
        left[i] = False
        closer = left & (information[i] > best)
        best[closer], parents[closer] = information[i][closer], i
    return [int(p) if p >= 0 and information[i, p] >= least else -1 for i, p in enumerate(parents)]


def _visited(model: Model, policy: Policy, visits: int, every: int, listed: int, seed: int) -> Seen:
    """States of several trajectories, in pieces."""
    require_policy_of(model, policy)
    if not (is_whole(visits) and is_whole(every)) or visits < REPLICAS or every < 1:
        raise InputError(f"a fit needs at least {REPLICAS} visits, and every >= 1, got {visits!r} and {every!r}.")
    runner, each = engine(model, policy, seed), visits // REPLICAS
    seen = Seen.nothing(model.box, each * REPLICAS, listed)
    for number in range(REPLICAS):
        replica = runner.advance(runner.first(number), 1, max(1, each * every // 10)).replica
        for first in range(0, each, PIECE):
            states = runner.visits(replica, min(PIECE, each - first), every)
            replica = replace(replica, x=states[-1].copy(), steps=replica.steps + len(states) * every)
            seen.add(states, number * each + first)
    return seen


def _fitted(model: Model, seen: Seen, smoothing: float, least: float, name: str) -> Tree:
    """With decisions per server the pending event is as it is: independent of all else, with a known law."""
    if not isinstance(model, QueueingNetwork) or not model.per_server:
        return seen.tree(smoothing, least, name)
    law = seen.without_last().tree(smoothing, least, name)
    return Tree((*law.nodes, Node(0, model.event_law[None, :])), (*law.parents, -1), name)
