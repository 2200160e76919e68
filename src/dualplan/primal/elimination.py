"""Maxima of sums of functions of few variables, by eliminating one variable after another.

    max_x Σ_f f(x_S(f)):   for a variable i, the functions whose scope holds i are added up and
                           maximised over x_i,

        e_i(z) = max_v Σ_{f: i in S(f)} f(z, x_i = v),          z the values of the other variables
            of these functions,

which takes their place (Bertelè & Brioschi 1972; Guestrin, Koller, Parr & Venkataraman 2003). When
no variable is left the sum of what remains is the maximum. A table is as large as the scope of its
e_i, so the cost is exponential in the *width*, the most variables of a z, and not in the number of
variables. A maximiser is read off backwards: the last variable eliminated first, each from the
values of those after it.

*Order.* The variable whose elimination adds the fewest new pairs to scopes (min-fill), or the one
with the fewest neighbours (min-degree); among equals the one that depends on the shortest chain of
eliminations before it. The last rule makes the tree of eliminations shallow (on a ring: every
second variable first), and then sums that share most of their functions, as the constraints of a
hundred actions do, share most of their eliminations: each e_i is kept once for each set of
functions that it comes from. A change of few functions costs a path to the root instead of all
variables. Min-fill tends to smaller tables and min-degree to shallower trees; the one with fewer
entries in all is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.factored import Scope

MOST_ELIMINATION_ENTRIES = 2**20  # of a table on the way
ELIMINATION_RULES = ("fill", "degree")


@dataclass(frozen=True, eq=False)
class Step:
    """e_i: the variable that goes, the functions that it meets, and the scope that is left."""

    variable: int
    members: tuple[int, ...]
    scope: Scope
    full: Scope
    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the members, with an axis for each variable of `full`

    @property
    def axis(self) -> int:
        """Where the variable is among those of the table."""
        return self.full.index(self.variable)


@dataclass(frozen=True, eq=False)
class Elimination:
    """How the maxima of several sums come about.

    Functions are numbered: the given ones, then one for each step. `sums` lists for each sum the
    functions that are left in the end, which depend on nothing.
    """

    sizes: tuple[int, ...]
    given: int
    steps: tuple[Step, ...]
    sums: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(
        sizes: Sequence[int], scopes: Sequence[Scope], sums: Sequence[Sequence[int]]
    ) -> Elimination:
        """For functions with these scopes, and sums of them by number: the better of two orders."""
        made = []
        reason = InputError("")
        for rule in ELIMINATION_RULES:
            try:
                made.append(
                    _in_order(
                        elimination_order(len(sizes), scopes, rule), tuple(sizes), scopes, sums
                    )
                )
            except InputError as error:  # too wide; the other order may not be
                reason = error
        if not made:
            raise reason
        return min(made, key=lambda plan: plan.entries)

    @property
    def width(self) -> int:
        """The most variables that a table depends on, once its own is gone."""
        return max((len(step.scope) for step in self.steps), default=0)

    @property
    def entries(self) -> int:
        """The entries of all tables on the way."""
        return sum(math.prod(step.sizes) for step in self.steps)

    def maxima(self, tables: Sequence[Floats]) -> Maxima:
        """The maxima of the sums, for the values of the given functions."""
        found = list(tables)
        choices = []
        for step in self.steps:
            total = np.zeros(step.sizes)
            for member, shape in zip(step.members, step.shapes, strict=True):
                total += found[member].reshape(shape)
            choices.append(total.argmax(axis=step.axis))
            found.append(total.max(axis=step.axis))
        values = np.array([sum(float(found[m]) for m in members) for members in self.sums])
        return Maxima(self, values, tuple(choices))

    @cached_property
    def _behind(self) -> tuple[tuple[int, ...], ...]:
        """For each sum its steps, the last one first."""
        return tuple(self._reached(members) for members in self.sums)

    def _reached(self, members: Sequence[int]) -> tuple[int, ...]:
        todo = [m - self.given for m in members if m >= self.given]
        seen = set()
        while todo:
            k = todo.pop()
            seen.add(k)
            todo += [m - self.given for m in self.steps[k].members if m >= self.given]
        return tuple(sorted(seen, reverse=True))


@dataclass(frozen=True, eq=False)
class Maxima:
    """The largest value of each sum, and what to choose at each step."""

    elimination: Elimination
    values: Floats
    choices: tuple[Ints, ...]

    def maximiser(self, number: int) -> Ints:
        """A state at which a sum is largest."""
        x = np.zeros(len(self.elimination.sizes), np.int64)
        for k in self.elimination._behind[number]:
            step = self.elimination.steps[k]
            x[step.variable] = self.choices[k][tuple(x[i] for i in step.scope)]
        return x


def _in_order(
    order: Sequence[int],
    sizes: tuple[int, ...],
    scopes: Sequence[Scope],
    sums: Sequence[Sequence[int]],
) -> Elimination:
    steps: list[Step] = []
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    live = list(scopes)
    left = [_eliminate(members, order, sizes, live, steps, known) for members in sums]
    return Elimination(sizes, len(scopes), tuple(steps), tuple(left))


def elimination_order(count: int, scopes: Sequence[Scope], rule: str = "fill") -> list[int]:
    """All variables, in an order of the module's text: by "fill" or by "degree"."""
    near: list[set[int]] = [set() for _ in range(count)]
    for scope in set(scopes):
        for i in scope:
            near[i].update(scope)
    for i in range(count):
        near[i].discard(i)
    depth = [0] * count
    left = set(range(count))
    order = []
    fill = [_fill(near, i) for i in range(count)]
    while left:
        i = min(left, key=lambda v: (fill[v] if rule == "fill" else 0, len(near[v]), depth[v], v))
        order.append(i)
        left.remove(i)
        for j in near[i]:
            near[j] |= near[i]
            near[j] -= {i, j}
            depth[j] = max(depth[j], depth[i] + 1)
        for k in near[i].union(*(near[j] for j in near[i])):
            fill[k] = _fill(near, k)
    return order


def _fill(near: Sequence[set[int]], i: int) -> int:
    """How many pairs of neighbours of i are no neighbours of each other, twice."""
    return sum(len(near[i]) - 1 - len(near[i] & near[j]) for j in near[i])


def _eliminate(
    members: Sequence[int],
    order: Sequence[int],
    sizes: tuple[int, ...],
    scopes: list[Scope],
    steps: list[Step],
    known: dict[tuple[int, tuple[int, ...]], int],
) -> tuple[int, ...]:
    """Eliminate all variables from one sum; steps that are there already are taken from `known`."""
    holding: dict[int, set[int]] = {}
    for m in members:
        for i in scopes[m]:
            holding.setdefault(i, set()).add(m)
    left = {m for m in members if not scopes[m]}
    for i in order:
        met = tuple(sorted(holding.pop(i, ())))
        if not met:
            continue
        if (i, met) not in known:
            steps.append(_step(i, met, [scopes[m] for m in met], sizes))
            known[i, met] = len(scopes)
            scopes.append(steps[-1].scope)
        new = known[i, met]
        for j in scopes[new]:
            holding[j] -= set(met)
            holding[j].add(new)
        if not scopes[new]:
            left.add(new)
    return tuple(sorted(left))


def _step(i: int, members: tuple[int, ...], scopes: list[Scope], sizes: tuple[int, ...]) -> Step:
    full = tuple(sorted(set().union(*scopes)))
    shape = tuple(sizes[j] for j in full)
    if math.prod(shape) > MOST_ELIMINATION_ENTRIES:
        raise InputError(
            f"eliminating coordinate {i} needs a table over {len(full)} variables, width "
            f"{len(full) - 1} ({math.prod(shape):.2g} entries, more than "
            f"{MOST_ELIMINATION_ENTRIES:,}); use "
            "functions of smaller scope, or a model with fewer parents."
        )
    shapes = tuple(tuple(sizes[j] if j in scope else 1 for j in full) for scope in scopes)
    return Step(i, members, tuple(j for j in full if j != i), full, shape, shapes)
