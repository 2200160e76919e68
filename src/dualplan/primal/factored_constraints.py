"""The constraints of a factored program: functions of few variables, and how their sums are
maximised.

The mathematics is in `factored.py`. Constraints are kept as functions (`Leaf`), sums of them (one
for each action) and one elimination for all sums, which serves three times: with numbers for the
largest violations, with numbers backwards for the pairs that attain them, and with unknowns for the
program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dualplan.core.types import Bools, Floats, Ints
from dualplan.models.factored import Local
from dualplan.primal.elimination import Elimination, Maxima
from dualplan.primal.program import ROUNDED_ZERO_SHARE
from dualplan.values.local import LocalBasis, backprojection, combined

HALF_ULP = 2.0**-53


@dataclass(frozen=True, eq=False)
class Leaf:
    """A function in the constraints: times w_k, or −ℓ if `weight` is −1.

    `size` bounds what it was computed from.
    """

    table: Local
    weight: int
    size: float


class FactoredConstraints:
    """Σ_k w_k (ψ_k − γ g_k^a)(x) − ℓ(x,a) for all pairs: its functions, and how it is maximised
    over x.
    """

    def __init__(self, basis: LocalBasis, gamma: float) -> None:
        self.basis = basis
        self.gamma = gamma
        self.model = basis.model
        model = self.model
        self.leaves = list[Leaf]()
        first = [self._add(*self._difference(k, None), k) for k in range(len(basis))]
        shared = [self._loss(table) for table in model.losses]
        self.sums: list[list[int]] = []
        self._changed: list[dict[int, int]] = []
        for a, laws in enumerate(model.changes):
            touched = [
                k for k, psi in enumerate(basis.functions) if any(i in laws for i in psi.scope)
            ]
            new = {k: self._add(*self._difference(k, a), k) for k in touched}
            own = [self._loss(table) for table in model.own_losses[a]]
            self._changed.append(new)
            self.sums.append([*(new.get(k, first[k]) for k in range(len(basis))), *shared, *own])
        self.elimination = Elimination.of(
            model.sizes, [leaf.table.scope for leaf in self.leaves], self.sums
        )

    @cached_property
    def seen(self) -> Bools:
        """Which functions any constraint sees: a constant drops out if γ = 1."""
        found = np.zeros(len(self.basis), bool)
        for leaf in self.leaves:
            if leaf.weight >= 0:
                found[leaf.weight] |= leaf.table.largest > ROUNDED_ZERO_SHARE * leaf.size
        return found

    def _add(self, table: Local, size: float, weight: int) -> int:
        self.leaves.append(Leaf(table, weight, size))
        return len(self.leaves) - 1

    def _loss(self, table: Local) -> int:
        return self._add(Local(table.scope, -table.values), table.largest, -1)

    def _difference(self, k: int, a: int | None) -> tuple[Local, float]:
        """ψ_k − γ g_k under an action, or under the laws that none changes."""
        psi = self.basis.functions[k]
        ahead = backprojection(self.model, psi, a)
        table = combined(self.model, [psi, Local(ahead.scope, -self.gamma * ahead.values)])
        return table, (1 + self.gamma) * psi.largest

    # -- with numbers ------------------------------------------------------------------------------

    def excess(self, weights: Floats) -> tuple[Floats, Maxima]:
        """For each action the maximum over x, and where it is."""
        tables = [
            leaf.table.values * (weights[leaf.weight] if leaf.weight >= 0 else 1.0)
            for leaf in self.leaves
        ]
        maxima = self.elimination.maxima(tables)
        return maxima.values - self.model.costs, maxima

    def rounding(self, weights: Floats) -> float:
        """How far a computed maximum may be off."""
        sizes = [
            leaf.size * (abs(weights[leaf.weight]) if leaf.weight >= 0 else 1.0)
            for leaf in self.leaves
        ]
        largest = max(math.fsum(sizes[m] for m in members) for members in self.sums) + float(
            np.abs(self.model.costs).max()
        )
        terms = max(psi.values.size + 2 * len(psi.scope) for psi in self.basis.functions) + 2
        added = max(map(len, self.sums)) + len(self.model.sizes)
        return 2 * (terms + added + 8) * HALF_ULP * largest

    def rows(self, states: Ints, actions: Ints) -> tuple[Floats, Floats]:
        """The coefficients of w, and ℓ, for given pairs."""
        matrix = np.stack([self.leaves[k].table(states) for k in range(len(self.basis))], axis=1)
        right = self.model.costs[actions].copy()
        for a in np.unique(actions).tolist():
            here = np.flatnonzero(actions == a)
            for k, leaf in self._changed[a].items():
                matrix[here, k] = self.leaves[leaf].table(states[here])
            for table in (*self.model.losses, *self.model.own_losses[a]):
                right[here] += table(states[here])
        return matrix, right

    # -- as a program ------------------------------------------------------------------------------

    def program(self, level: bool, less: float = 0.0) -> tuple[sp.csr_array, Floats]:
        """A and b of A (w, λ, u) <= b, where λ is an unknown or not and losses are less by a
        number.
        """
        plan = self.elimination
        width = len(self.basis) + level
        lengths = [math.prod(step.sizes) // step.sizes[step.axis] for step in plan.steps]
        offsets = width + np.cumsum([0, *lengths])
        made = _Rows()
        for k, step in enumerate(plan.steps):
            for member, shape in zip(step.members, step.shapes, strict=True):
                self._enter(made, member, shape, step.sizes, offsets)
            remaining = tuple(
                1 if j == step.variable else size
                for j, size in zip(step.full, step.sizes, strict=True)
            )
            made.unknowns(
                np.arange(offsets[k], offsets[k + 1]).reshape(remaining), -1.0, step.sizes
            )
            made.close(step.sizes)
        for a, members in enumerate(plan.sums):
            made.bound(less - self.model.costs[a], ())
            for member in members:
                self._enter(made, member, (), (), offsets)
            if level:
                made.unknowns(np.array(width - 1), 1.0, ())
            made.close(())
        return made.matrix(int(offsets[-1]))

    def _enter(
        self,
        made: _Rows,
        member: int,
        shape: tuple[int, ...],
        sizes: tuple[int, ...],
        offsets: Ints,
    ) -> None:
        """Add a function to the rows under way: an unknown u, w times a table, or a loss."""
        number = member - self.elimination.given
        if number >= 0:
            made.unknowns(
                np.arange(offsets[number], offsets[number + 1]).reshape(shape), 1.0, sizes
            )
            return
        leaf = self.leaves[member]
        values = leaf.table.values.reshape(shape)
        if leaf.weight < 0:
            made.bound(values, sizes)
        else:  # what is zero up to rounding, as a constant with γ = 1, must not count
            made.unknowns(
                np.array(leaf.weight),
                np.where(np.abs(values) > ROUNDED_ZERO_SHARE * leaf.size, values, 0.0),
                sizes,
            )


class _Rows:
    """Rows of a sparse matrix, a block at a time."""

    def __init__(self) -> None:
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._entries: list[Floats] = []
        self._right: list[Floats] = []
        self._bound: Floats = np.zeros(())
        self._count = 0

    def unknowns(self, columns: Ints, entries: Floats | float, sizes: tuple[int, ...]) -> None:
        """Entries times unknowns, in each row of the block."""
        size = math.prod(sizes)
        self._rows.append(np.arange(self._count, self._count + size))
        self._columns.append(np.broadcast_to(columns, sizes).reshape(size))
        self._entries.append(np.broadcast_to(np.asarray(entries, np.float64), sizes).reshape(size))

    def bound(self, values: Floats | float, sizes: tuple[int, ...]) -> None:
        """Numbers on the left-hand side."""
        self._bound = self._bound + np.broadcast_to(values, sizes)

    def close(self, sizes: tuple[int, ...]) -> None:
        """End the block."""
        self._right.append(np.broadcast_to(-self._bound, sizes).reshape(math.prod(sizes)))
        self._bound, self._count = np.zeros(()), self._count + math.prod(sizes)

    def matrix(self, columns: int) -> tuple[sp.csr_array, Floats]:
        """A and b; entries of one place add up."""
        where = np.concatenate(self._rows), np.concatenate(self._columns)
        made = sp.csr_array(
            sp.coo_array((np.concatenate(self._entries), where), shape=(self._count, columns))
        )
        made.eliminate_zeros()
        return made, np.concatenate(self._right)
