"""Laws of the states that factor along a tree: known densities at any scale.

    P(x) = Π_i P_i(x_i | x_p(i))

A coordinate lists its first values; those from the last one on are one class for its children, and
go on with P(last + k) in proportion to r^k, for ever or up to the coordinate's limit. Draws go from
parents to children. The law of each coordinate follows from its parent's,

    P_i(v) = Σ_c P_i(v | c)·P_p(i)(c),

so that the expectation of a loss that is a sum over the coordinates is exact. A tree cut to a
product of intervals, and normalised, is a tree again: with β_i(v) = 1{v in I_i}·Π_children Σ_u
P_c(u|v)·β_c(u), its conditional laws are in proportion to P_i(v|c)·β_i(v). These are *tiles*
without enumeration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dualplan.core.checks import is_whole, require_inside
from dualplan.core.errors import InputError
from dualplan.core.types import Bools, Floats, Ints
from dualplan.models.contract import UNBOUNDED

Interval = tuple[int, int | None]
MOST_TAIL_TERMS = 1_000_000  # of a tail, for an exact mean


@dataclass(frozen=True, eq=False)
class Node:
    """The law of a coordinate: values from `low` on, a row of probabilities for each class of its
    parent.

    With a `ratio`, the last value stands for itself and what lies beyond, up to `most`.
    """

    low: int
    table: Floats
    ratio: float | None = None
    most: int = UNBOUNDED

    def __post_init__(self) -> None:
        table = np.asarray(self.table)
        if table.ndim != 2 or not table.size or table.dtype.kind not in "iuf":
            raise InputError(
                "a node needs a table of probabilities, one row a class, got the shape "
                f"{table.shape}."
            )
        object.__setattr__(self, "table", table)
        if self.ratio is not None:
            require_inside(ratio=self.ratio)
        if (
            not is_whole(self.low)
            or not is_whole(self.most)
            or (self.ratio is not None and self.most < self.high)
        ):
            raise InputError(
                f"a node's limits are integers, the last one listed or later, got {self.most!r}."
            )

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
        if self.ratio is None:
            return self.high
        return self.most

    @property
    def tail(self) -> tuple[float, float]:
        """log r, and the logarithm of the tail's first probability."""
        if self.ratio is None:
            return 0.0, 0.0
        rate = math.log(self.ratio)
        return rate, math.log1p(-self.ratio) - math.log1p(-math.exp(rate * self._length))

    @property
    def _length(self) -> float:
        if self.most == UNBOUNDED:
            return math.inf
        return float(self.most - self.high + 1)

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
        """How many values of the tail matter: what is left of a quadratic loss is below 1e-22 of
        it.
        """
        if self.ratio is None:
            return 0.0
        return min(math.ceil(60 / -math.log(self.ratio)) + 2, self._length)

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
    """A law of the states: a node for each coordinate, and the coordinate it depends on (−1:
    none).
    """

    nodes: tuple[Node, ...]
    parents: tuple[int, ...]
    name: str = "tree"

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.nodes) or not self.nodes:
            raise InputError("a tree needs a parent, or -1, for each of its coordinates.")
        if any(not is_whole(p) or not -1 <= p < len(self.nodes) for p in self.parents):
            raise InputError(
                f"the parents of a tree are coordinates 0 to {len(self.nodes) - 1}, or -1 for none."
            )
        for i, (node, p) in enumerate(zip(self.nodes, self.parents, strict=True)):
            if p < 0:
                rows = 1
            else:
                rows = self.nodes[p].size
            sums = node.table.sum(axis=1)
            if (
                node.table.shape[0] != rows
                or (node.table < 0).any()
                or not np.allclose(sums, 1, atol=1e-9)
            ):
                raise InputError(
                    f"coordinate {i} of a tree needs {rows} rows of probabilities, one for each "
                    "class."
                )
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
            total += node.log_terms(
                states[:, i], none if p < 0 else self.nodes[p].classes(states[:, p])
            )
        return total

    @cached_property
    def class_laws(self) -> tuple[Floats, ...]:
        """The law of each coordinate over its listed values, the last with all that lies beyond."""
        laws: dict[int, Floats] = {}
        for i in self.order:
            p = self.parents[i]
            if p < 0:
                laws[i] = self.nodes[i].table[0]
            else:
                laws[i] = laws[p] @ self.nodes[i].table
        return tuple(laws[i] for i in range(len(self.nodes)))

    @property
    def marginals(self) -> list[tuple[Ints, Floats]] | None:
        """Values and probabilities of each coordinate; None if a tail has too many."""
        if any(node.terms > MOST_TAIL_TERMS for node in self.nodes):
            return None
        return [node.spread(law) for node, law in zip(self.nodes, self.class_laws, strict=True)]

    def within(self, cuts: Mapping[int, Interval], name: str | None = None) -> Tree | None:
        """The law given that some coordinates lie in intervals (no upper end: None).

        None if that has no chance.
        """
        nodes = list(self.nodes)
        masks = [np.ones(node.size) for node in self.nodes]
        for i, (low, high) in cuts.items():
            if high is None:
                top = nodes[i].last
            else:
                top = high
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
        """The law given that coordinate i is one of its listed values that are allowed.

        None if that has no chance.
        """
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
                weights[self.parents[i]] *= sums / (
                    sums.max() or 1.0
                )  # in proportion, so that many do not underflow
            elif not sums[0] > 0:
                return None
            table = nodes[i].table * weights[i] / np.where(sums > 0, sums, 1.0)[:, None]
            table[~(sums > 0)] = 1 / nodes[i].size  # of a class that never occurs
            nodes[i] = replace(nodes[i], table=table)
        return Tree(tuple(nodes), self.parents, name)


def _from(node: Node, low: int, top: int) -> Node:
    """A law that begins at `low` within the tail: r^(low − high) of the tail is left, and it goes
    on as before.

    That share is the same for all classes of the parent, so that the probabilities of the tail
    stand for what is left.
    """
    most = min(top, node.most)
    return Node(low, node.table[:, -1:], node.ratio if most > low else None, most)
