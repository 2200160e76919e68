"""Functions of states that are compiled: potentials and values that simulation and policies look up in their loops.

A function of states takes states, one a row, and gives a number for each. One that has `code` is also a function over
two flat arrays that a compiled loop calls state by state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dualplan._kernels.compiler import Data, Kernel
from dualplan.models.contract import Model
from dualplan.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class ValueCode(Data):
    """The compiled function, the arrays it reads, the room it needs to work in, and which coordinates it sees."""

    ints: Ints
    floats: Floats
    room: int
    value: Kernel
    seen: Ints


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
