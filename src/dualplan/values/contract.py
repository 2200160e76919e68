"""Functions of states that are compiled: potentials and values that simulation and policies look up
in their loops.

A function of states takes states, one a row, and gives a number for each. One that has `code` is
also a function over two flat arrays that a compiled loop calls state by state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dualplan._kernels.compiler import Data, Kernel
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model


@dataclass(frozen=True, eq=False)
class ValueCode(Data):
    """The compiled function, the arrays it reads, the room it needs to work in, and which
    coordinates it sees.

    Where it is a sum of w·x_i and w·x_i·x_j and a constant, `terms` has rows (i, j, w), with j = −1
    for w·x_i.
    """

    ints: Ints
    floats: Floats
    room: int
    value: Kernel
    seen: Ints
    terms: Floats | None = None

    def quadratic_in(self, first: int) -> Floats | None:
        """g, then H row by row, if it is gᵀx + ½xᵀHx and a constant, with x the first coordinates
        and no others.
        """
        if self.terms is None or self.seen[first:].any():
            return None
        (i, j), w = self.terms[:, :2].astype(np.int64).T, self.terms[:, 2]
        g = np.zeros(first)
        matrix = np.zeros((first, first))
        linear = j < 0
        np.add.at(g, i[linear], w[linear])
        np.add.at(matrix, (i[~linear], j[~linear]), w[~linear])
        return np.concatenate([g, (matrix + matrix.T).ravel()])


@runtime_checkable
class CompiledValues(Protocol):
    """A function of states with a compiled form; `code` is None where it has none."""

    @property
    def model(self) -> Model:
        """Of which the states are."""

    @property
    def code(self) -> ValueCode | None:
        """The compiled form."""

    def __call__(self, states: Ints) -> Floats:
        """The values at states, one a row."""
