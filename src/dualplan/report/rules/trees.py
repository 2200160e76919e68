"""Small trees for decisions that cost different amounts: cost-sensitive classification.

Given rows n with numbers f_nj (what tests look at) and costs c_nk >= 0 of choosing k there, a tree
T of tests f_j >= t chooses k_T(n), one k a leaf. Wanted are trees with few leaves and a small

    c(T) = Σ_n c_n,k_T(n).

*Growth.* From a single leaf on, the leaf and the test that save most are split next. A test is
judged by what it saves together with the best test in each of the two parts that it makes, among
the best threshold of each number (where no test helps by itself, among several of each), so that a
test which helps only together with the next one is found as well. Growth ends where every leaf
costs nothing, or at `GROWN_LEAVES_FACTOR` times the number of leaves that was asked for.

*Pruning.* Then, one by one, the two neighbouring leaves are put together whose union costs least
more (Breiman et al. 1984). So there is a tree of every size, each of them a part of the next, and c
never rises with the number of leaves.

Nothing is said about trees that are not found this way: the smallest tree is hard to find (Hyafil &
Rivest 1976).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dualplan.core.types import Floats, Ints

GROWN_LEAVES_FACTOR = 3  # so many times the leaves that were asked for
SPREAD_THRESHOLDS = 8  # thresholds of each number that are tried where none helps by itself
NUMBERS_LOOKED_AT = 6  # numbers whose best thresholds are judged with the tests that follow


@dataclass(frozen=True)
class Split:
    """The test f_column >= threshold, and what the two parts cost together."""

    column: int
    threshold: int
    cost: float


@dataclass(eq=False)
class Branch:
    """A node while a tree is fitted: its rows, the best choice in them and what it costs.

    Children once it is split.
    """

    rows: Ints
    choice: int
    cost: float
    split: Split | None = None
    yes: Branch | None = None
    no: Branch | None = None
    wanted: tuple[float, Split] | None = field(default=None, repr=False)

    @property
    def leaves(self) -> int:
        """Of the tree below."""
        if self.yes is None or self.no is None:
            return 1
        return self.yes.leaves + self.no.leaves

    @property
    def total(self) -> float:
        """c of the tree below."""
        if self.yes is None or self.no is None:
            return self.cost
        return self.yes.total + self.no.total


@dataclass(frozen=True, eq=False)
class Sample:
    """Numbers that tests look at, and the cost of each choice, one row a state."""

    numbers: Ints
    costs: Floats

    def branch(self, rows: Ints) -> Branch:
        """A leaf for these rows."""
        sums = self.costs[rows].sum(axis=0)
        best = int(np.argmin(sums))
        return Branch(rows, best, float(sums[best]))

    def parts(self, rows: Ints, split: Split) -> tuple[Ints, Ints]:
        """The rows that pass the test, and the others."""
        passed = self.numbers[rows, split.column] >= split.threshold
        return rows[passed], rows[~passed]

    def splits(self, rows: Ints) -> list[Split]:
        """The best threshold of each number that differs among the rows, the cheapest first."""
        found = [
            split for j in range(self.numbers.shape[1]) for split in self._thresholds(rows, j)[:1]
        ]
        return sorted(
            found, key=lambda s: s.cost
        )  # stable: of equals the number that is named first

    def _thresholds(self, rows: Ints, column: int) -> list[Split]:
        """Tests of one number: the best, and then others spread over its values."""
        values = self.numbers[rows, column]
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        ends = np.flatnonzero(np.diff(ordered))
        if ends.size == 0:
            return []
        costs = self.costs[rows[order]]
        below = np.cumsum(costs, axis=0)[ends]
        above = np.cumsum(costs[::-1], axis=0)[::-1][
            ends + 1
        ]  # not total − below: what is 0 shall be 0
        sums = below.min(axis=1) + above.min(axis=1)
        spread = np.unique(
            np.linspace(0, ends.size - 1, SPREAD_THRESHOLDS).round().astype(np.int64)
        )
        middles = (ordered[ends] + ordered[ends + 1]) // 2 + 1
        return [
            Split(column, int(middles[k]), float(sums[k]))
            for k in (int(np.argmin(sums)), *spread.tolist())
        ]

    def best_split(self, rows: Ints) -> Split | None:
        """The test that costs least together with the best test in each of its parts.

        Where no test saves anything by itself, all numbers are looked at, with thresholds spread
        over their values.
        """
        candidates = self.splits(rows)
        if len(candidates) < 1 or candidates[0].cost == 0.0:
            if candidates:
                return candidates[0]
            return None
        looked = candidates[:NUMBERS_LOOKED_AT]
        if candidates[0].cost >= (1 - 1e-9) * self.branch(rows).cost:
            looked = [
                split for j in range(self.numbers.shape[1]) for split in self._thresholds(rows, j)
            ]
        return min(looked, key=lambda s: (self._followed(rows, s), s.cost))

    def _followed(self, rows: Ints, split: Split) -> float:
        total = 0.0
        for part in self.parts(rows, split):
            own = self.branch(part).cost
            if own > 0:
                more = self.splits(part)
            else:
                more = []
            total += min(own, more[0].cost) if more else own
        return total


def grow(sample: Sample, leaves: int) -> Branch:
    """A tree with at most `leaves` leaves, in each of which nothing is left to save if there are
    fewer.
    """
    root = sample.branch(np.arange(len(sample.costs)))
    open_leaves = [root]
    count = 1
    while count < leaves:
        for leaf in open_leaves:
            if leaf.wanted is None and (split := _worthwhile(sample, leaf)) is not None:
                leaf.wanted = leaf.cost - sample._followed(leaf.rows, split), split
        ready = [leaf for leaf in open_leaves if leaf.wanted is not None]
        if not ready:
            break
        leaf = max(ready, key=lambda b: b.wanted[0] if b.wanted is not None else 0.0)
        _divide(sample, leaf)
        # leaves without a test would be looked at again and again
        open_leaves = [b for b in ready if b is not leaf]
        open_leaves += [b for b in (leaf.yes, leaf.no) if b is not None]
        count += 1
    return root


def _worthwhile(sample: Sample, leaf: Branch) -> Split | None:
    if leaf.cost == 0.0:
        return None
    return sample.best_split(leaf.rows)


def _divide(sample: Sample, leaf: Branch) -> None:
    if leaf.wanted is None:
        return
    leaf.split = leaf.wanted[1]
    yes, no = sample.parts(leaf.rows, leaf.split)
    leaf.yes = sample.branch(yes)
    leaf.no = sample.branch(no)


def prune(roots: list[Branch], wanted: int) -> None:
    """Put neighbouring leaves together, those whose union costs least more first, until `wanted`
    leaves are left.
    """
    while sum(root.leaves for root in roots) > wanted:
        weakest = min((b for root in roots for b in _pairs(root)), key=_rise)
        weakest.yes = weakest.no = weakest.split = None


def _pairs(branch: Branch) -> list[Branch]:
    """Nodes whose two children are leaves."""
    if branch.yes is None or branch.no is None:
        return []
    below = _pairs(branch.yes) + _pairs(branch.no)
    return below or [branch]


def _rise(branch: Branch) -> float:
    return branch.cost - branch.total
