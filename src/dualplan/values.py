"""Functions of states that are compiled: potentials and values that simulation and policies look up in their loops.

A function of states takes states, one a row, and gives a number for each. One that has `code` is also a function over
two flat arrays that a compiled loop calls state by state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dualplan._kernels.compiler import Data, Kernel
from dualplan.models.contract import Model
from dualplan.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class ValueCode(Data):
    """The compiled function, the arrays it reads, the room it needs to work in, and which coordinates it sees.

    `quadratic` are g, then H row by row, where it is gᵀx + ½xᵀHx and a constant.
    """

    ints: Ints
    floats: Floats
    room: int
    value: Kernel
    seen: Ints
    quadratic: Floats | None = None

    def quadratic_in(self, first: int) -> Floats | None:
        """g and H of the first coordinates, if it is quadratic and sees no others."""
        if self.quadratic is None or self.seen[first:].any():
            return None
        dim = self.seen.size
        matrix = self.quadratic[dim:].reshape(dim, dim)
        return np.concatenate([self.quadratic[:first], matrix[:first, :first].ravel()])


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
