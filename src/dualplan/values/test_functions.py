"""Test functions y of states, |y| <= 1, that witness violations of the flow.

For a residual f of the flow, V_flow = ‖f‖₁ is the maximum of fᵀy over all |y| <= 1. Over a family
of such functions the maximum is a lower bound of it:

cells       constant on the cells of a partition: the maximum is Σ_cells |f(cell)|; single states
            give V_flow itself
functions   finitely many functions y_k and their mixtures Σ η_k y_k with Σ|η_k| <= 1: the maximum
            is max_k |fᵀy_k|
concat      families side by side: the largest of their maxima

Functions that are not bounded, such as polynomials, are scaled to [−1, 1] by their range on a
sample of states and cut off beyond it, so that |y| <= 1 holds everywhere and the bound is one
whatever the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model
from dualplan.values.basis import Basis, monomials
from dualplan.values.basis import functions as user_functions
from dualplan.values.partitions import Partition


@dataclass(frozen=True, eq=False)
class Cells:
    """Functions that are constant on the cells of a partition, and 0 where there is none."""

    partition: Partition
    adds = True  # the maximum over the family is the sum of |fᵀy_k|, otherwise the largest

    @property
    def model(self) -> Model:
        """The model whose states they are functions of."""
        return self.partition.model

    @property
    def names(self) -> tuple[str, ...]:
        """What the indicators are called."""
        return self.partition.names

    def __call__(self, states: Ints) -> sp.csr_array:
        """The indicators of the cells at states, one a row."""
        cells = self.partition(states)
        inside = np.flatnonzero(cells >= 0)
        ends = np.concatenate([[0], np.cumsum(cells >= 0)])
        return sp.csr_array(
            (np.ones(inside.size), cells[inside], ends), shape=(len(states), len(self.partition))
        )

    def scaled(self, states: Ints) -> Cells:  # noqa: ARG002 - indicators are bounded as they are
        """Themselves."""
        return self


@dataclass(frozen=True, eq=False)
class Functions:
    """Functions of a basis, scaled to [−1, 1] between `low` and `high` and cut off beyond."""

    basis: Basis
    low: Floats | None = None
    high: Floats | None = None
    adds = False

    @property
    def model(self) -> Model:
        """The model whose states they are functions of."""
        return self.basis.model

    @property
    def names(self) -> tuple[str, ...]:
        """What the functions are called."""
        return self.basis.names

    def __call__(self, states: Ints) -> sp.csr_array:
        """Their values at states, one a row."""
        if self.low is None or self.high is None:
            raise InputError(
                "these test functions have no scale yet; `scaled(states)` gives them one."
            )
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        return sp.csr_array(np.clip(2 * (self.basis(states) - self.low) / width - 1, -1.0, 1.0))

    def scaled(self, states: Ints) -> Functions:
        """With the range that they have on these states, unless they have one."""
        if self.low is not None:
            return self
        values = self.basis(states)
        return replace(self, low=values.min(axis=0), high=values.max(axis=0))


Group = Cells | Functions


@dataclass(frozen=True, eq=False)
class Witnesses:
    """Families of test functions side by side."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        if not self.groups or len({group.model.digest for group in self.groups}) != 1:
            raise InputError("test functions are at least one family, all of one model.")

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def model(self) -> Model:
        """The model whose states they are functions of."""
        return self.groups[0].model

    @property
    def names(self) -> tuple[str, ...]:
        """What the functions are called."""
        return tuple(name for group in self.groups for name in group.names)

    @property
    def ends(self) -> Ints:
        """Where each group begins and ends."""
        return np.cumsum([0, *(len(group.names) for group in self.groups)])

    @property
    def adds(self) -> tuple[bool, ...]:
        """For each group, whether its maximum is a sum."""
        return tuple(group.adds for group in self.groups)

    def __call__(self, states: Ints) -> sp.csr_array:
        """All functions at states, one a row."""
        return sp.csr_array(sp.hstack([group(states) for group in self.groups], format="csr"))

    def scaled(self, states: Ints) -> Witnesses:
        """The families with the ranges that they have on these states."""
        return Witnesses(tuple(group.scaled(states) for group in self.groups))

    def maximiser(self, residuals: Floats) -> Floats:
        """The weights η of the mixture Σ η_k y_k that has the largest fᵀy, given all fᵀy_k."""
        eta = np.zeros(len(self))
        best = -1.0
        for group, low, high in zip(self.groups, self.ends[:-1], self.ends[1:], strict=True):
            part = residuals[low:high]
            own = np.sign(part)
            if not group.adds:
                own = np.where(np.arange(part.size) == np.argmax(np.abs(part)), own, 0.0)
            if float(own @ part) > best:
                best = float(own @ part)
                eta[:] = 0.0
                eta[low:high] = own
        return eta

    def bound(self, residuals: Floats) -> float:
        """max fᵀy over the families, given all fᵀy_k."""
        return float(self.maximiser(residuals) @ residuals)


def cells(partition: Partition) -> Witnesses:
    """Functions that are constant on the cells of a partition."""
    if not isinstance(partition, Partition):
        raise InputError(
            f"cells are those of a partition (features.cells, features.levels), got {partition!r}."
        )
    return Witnesses((Cells(partition),))


def polynomials(
    model: Model, degree: int, *, coordinates: Sequence[int] | None = None
) -> Witnesses:
    """Monomials up to a degree, without the constant, for which fᵀy is 0 or the violation of the
    mass.
    """
    basis = monomials(model, degree, coordinates=coordinates)
    if len(basis) < 2:
        raise InputError(f"polynomials need a degree of at least 1, got {degree!r}.")
    return Witnesses(
        (Functions(replace(basis, products=basis.products[1:], labels=basis.labels[1:])),)
    )


def functions(
    model: Model, given: Basis | Callable[[Ints], Any], names: str | Sequence[str] | None = None
) -> Witnesses:
    """A basis (`dualplan.primal`), or a function of states, one a row, that gives one or more
    numbers for each.
    """
    return Witnesses(
        (Functions(given if isinstance(given, Basis) else user_functions(model, given, names)),)
    )


def concat(*families: Witnesses) -> Witnesses:
    """Several families side by side."""
    return Witnesses(tuple(group for family in families for group in family.groups))
