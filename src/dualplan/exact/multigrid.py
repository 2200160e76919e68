"""An algebraic multigrid for the equations of large chains, as a preconditioner.

The systems are A = I − γP, or I − P without the row and column of a recurrent state. Vectors that A
hardly changes are smooth from the right: nearly constant on groups of states that reach each other
fast. From the left they look like the stationary law μ, which changes by orders of magnitude
between neighbours. So A is scaled to D A with D = diag(μ) (any rough positive estimate will do),
whose rows and columns both nearly sum to 0, and then correction by groups is good from both sides.
Groups are pairs of the most strongly coupled unknowns, three times over (Notay 2012, *Aggregation-
based algebraic multigrid for convection–diffusion equations*); the grouped matrix is again that of
a chain. On each level one sweep of Gauss–Seidel goes up, the correction from the groups is added
twice, each time followed by a sweep down. The transposed cycle, on the transposed matrices, serves
Aᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as linear

from dualplan._kernels.layouts import Sparse
from dualplan._kernels.multigrid import gauss_seidel, pair_up
from dualplan.core.types import Floats, Ints

FACTORISED_UNKNOWNS = 3_000  # unknowns that are left to a direct factorisation
PAIRINGS_A_LEVEL = 3
REGULARISING_SHARE = 1e-12  # of the diagonal, added to it before the factorisation
MOST_KEPT_UNKNOWNS_SHARE = 0.8  # a level that keeps more of its unknowns than this is the last


@dataclass(frozen=True, eq=False)
class Level:
    """A matrix and its transpose by rows, the diagonal, and the group of each unknown."""

    matrices: tuple[Any, Any]
    diagonal: Floats
    group: Ints
    groups: int


class Multigrid:
    """An approximate inverse of a sparse matrix and of its transpose."""

    def __init__(self, system: Any, weights: Floats) -> None:
        """`weights` are the scales of the rows, D."""
        self.weights = weights
        matrix = _by_rows(sp.diags_array(weights) @ system)
        self.levels: list[Level] = []
        while matrix.shape[0] > FACTORISED_UNKNOWNS:
            group, coarse = _grouped(matrix)
            if coarse.shape[0] > MOST_KEPT_UNKNOWNS_SHARE * matrix.shape[0]:
                break
            self.levels.append(
                Level(
                    (matrix, _by_rows(matrix.T)),
                    np.asarray(matrix.diagonal()),
                    group,
                    coarse.shape[0],
                )
            )
            matrix = coarse
        # states that are hardly ever visited may leave no trace in the sums of a group: never
        # singular, if only so
        self.factors: Any = linear.splu(
            sp.csc_array(matrix + REGULARISING_SHARE * sp.diags_array(np.abs(matrix.diagonal())))
        )

    def apply(self, right: Floats) -> Floats:
        """About A⁻¹ right."""
        return self._cycle(self.weights * right, 0, 0)

    def apply_transposed(self, right: Floats) -> Floats:
        """About A⁻ᵀ right."""
        return self.weights * self._cycle(right, 0, 1)

    def _cycle(self, right: Floats, depth: int, side: int) -> Floats:
        if depth == len(self.levels):
            return np.asarray(self.factors.solve(right, "NT"[side]))
        level = self.levels[depth]
        matrix = level.matrices[side]
        rows = _sparse(matrix)
        x = np.zeros(right.size)
        gauss_seidel(rows, level.diagonal, right, x, True)
        for _ in range(2 if depth else 1):
            residual = np.asarray(
                np.bincount(level.group, right - matrix @ x, level.groups), np.float64
            )
            x += self._cycle(residual, depth + 1, side)[level.group]
            gauss_seidel(rows, level.diagonal, right, x, False)
        return x


def _grouped(matrix: Any) -> tuple[Ints, Any]:
    """The group of each unknown after all pairings, and the matrix of the groups."""
    group = np.arange(matrix.shape[0])
    for _ in range(PAIRINGS_A_LEVEL):
        size = matrix.shape[0]
        back = _by_rows(matrix.T)
        pairs = np.empty(size, np.int64)
        scratch = np.zeros(size)
        near = np.empty(size, np.int64)
        groups = pair_up(_sparse(matrix), _sparse(back), pairs, scratch, near)
        entries = matrix.tocoo()
        matrix = _by_rows(
            sp.coo_array(
                (entries.data, (pairs[entries.row], pairs[entries.col])), shape=(groups, groups)
            )
        )
        group = pairs[group]
    return group, matrix


def _sparse(matrix: Any) -> Sparse:
    """The arrays of a matrix by rows, as kernels take them."""
    return Sparse(matrix.indptr, matrix.indices, matrix.data)


def _by_rows(matrix: Any) -> Any:
    """A matrix by rows with long indices, which the kernels take."""
    rows = sp.csr_array(matrix)
    rows.sum_duplicates()
    return sp.csr_array(
        (rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)), shape=rows.shape
    )
