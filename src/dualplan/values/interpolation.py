"""Functions of states from values at the nodes of a lattice.

Each coordinate i has knots k_0 < k_1 < …, the first one its lower limit; nodes are all vectors of
knots. A number v between two knots is the combination (1−t)·k_j + t·k_(j+1), and a state that of
the corners z of its cell, with products of such weights c_z(x), which sum to 1. With values v at
the nodes,

    V(x)  =  Σ_z c_z(x)·[ v(z) − ½ Σ_i (x_i − left_i)·(right_i − x_i)·d_i(z) ].

Without the second term V is linear along each coordinate between knots, and lies above a convex
function: the line through two points of f is off by ½ (x − left)(right − x)·f″ in between. With
d_i(z) the second divided difference of v along coordinate i this is taken off, so products of
linear functions, and quadratic functions of single coordinates, come out exactly. At the ends of a
coordinate d is that of the next node. Beyond the last knot the same formulas go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualplan._kernels import lattice as kernels
from dualplan._kernels.compiler import Data
from dualplan.core.errors import InputError
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.models.contract import Model
from dualplan.values.contract import ValueCode

MOST_NODES = 2**24
MOST_COORDINATES = 20  # a cell has two corners for each


@dataclass(frozen=True, eq=False)
class Lattice(Data):
    """Nodes of a model: all vectors of the knots of its coordinates."""

    model: Model
    knots: tuple[Ints, ...]

    def __post_init__(self) -> None:
        box = self.model.box
        if len(self.knots) != box.dim or box.dim > MOST_COORDINATES:
            raise InputError(
                f"a lattice of {self.model.name!r} needs knots for each of its {box.dim} "
                f"coordinates, of which there may be {MOST_COORDINATES} at most; got "
                f"{len(self.knots)} lists."
            )
        checked = tuple(_checked(self.model, i, given) for i, given in enumerate(self.knots))
        object.__setattr__(self, "knots", checked)  # the class is frozen
        if self.nodes > MOST_NODES:
            raise InputError(
                f"a lattice of {self.nodes:,} nodes is too large; keep below {MOST_NODES:,}."
            )

    @property
    def nodes(self) -> int:
        """How many there are."""
        return int(np.prod([float(k.size) for k in self.knots]))

    @cached_property
    def ints(self) -> Ints:
        """The layout that kernels read."""
        counts = np.array([k.size for k in self.knots], np.int64)
        strides = np.append(np.cumprod(counts[:0:-1])[::-1], 1)
        places = 1 + 3 * counts.size + np.cumsum(counts) - counts
        return np.concatenate([[counts.size], counts, strides, places, *self.knots]).astype(
            np.int64
        )

    @property
    def last(self) -> Ints:
        """The last knot of each coordinate."""
        return np.array([k[-1] for k in self.knots], np.int64)

    @cached_property
    def states(self) -> Ints:
        """The nodes as states, one a row."""
        grids = np.meshgrid(*self.knots, indexing="ij")
        return np.ascontiguousarray(np.stack([g.ravel() for g in grids], axis=1))

    def with_curvature(self, values: Floats, curved: bool = True) -> Floats:
        """For each node its value and its second divided differences, or zeros, as kernels read
        them.
        """
        shape = [k.size for k in self.knots]
        numbers = np.zeros((*shape, 1 + len(shape)))
        numbers[..., 0] = values.reshape(shape)
        for i, knots in enumerate(self.knots if curved else ()):
            if knots.size > 2:
                numbers[..., 1 + i] = _second(np.moveaxis(numbers[..., 0], i, -1), knots, i)
        return numbers.ravel()

    def node(self, x: ArrayLike) -> int:
        """The number of the node nearest to a state, coordinate by coordinate."""
        nearest = [
            int(np.argmin(np.abs(k - v))) for k, v in zip(self.knots, np.ravel(x), strict=True)
        ]
        return int(np.ravel_multi_index(nearest, [k.size for k in self.knots]))


def _checked(model: Model, i: int, given: Sequence[int] | Ints) -> Ints:
    where = f"coordinate {model.coordinates[i]!r}"
    low = int(model.box.lower[i])
    high = int(model.box.upper[i])
    knots = np.asarray(given)
    if knots.ndim != 1 or knots.size == 0 or knots.dtype.kind not in "iu":
        raise InputError(f"the knots of {where} must be a list of integers, got {given!r}.")
    if (np.diff(knots) <= 0).any():
        raise InputError(f"the knots of {where} must increase.")
    if knots[0] != low or knots[-1] > high:
        raise InputError(
            f"the knots of {where} must start at {low} and stay in the box, got {knots[0]} to "
            f"{knots[-1]}."
        )
    if knots.size == 1 and high > low:
        raise InputError(f"{where} has more than one value and needs two knots at least.")
    return np.ascontiguousarray(knots, np.int64)


def _second(values: Floats, knots: Ints, axis: int) -> Floats:
    """Second divided differences along the last axis, which then goes to its place."""
    slopes = np.diff(values, axis=-1) / np.diff(knots)
    inner = 2 * np.diff(slopes, axis=-1) / (knots[2:] - knots[:-2])
    whole = np.concatenate([inner[..., :1], inner, inner[..., -1:]], axis=-1)
    return np.asarray(np.moveaxis(whole, -1, axis))


@dataclass(frozen=True, eq=False)
class LatticeValues(Data):
    """A function of states, one a row, from `values` at the nodes.

    Without curvature it is multilinear.
    """

    lattice: Lattice
    values: Floats
    curved: bool = True

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, np.float64)
        if values.shape != (self.lattice.nodes,) or not np.isfinite(values).all():
            raise InputError(
                f"a lattice of {self.lattice.nodes:,} nodes needs as many finite values."
            )
        object.__setattr__(self, "values", values)  # the class is frozen

    @property
    def model(self) -> Model:
        """The model of the lattice."""
        return self.lattice.model

    @cached_property
    def floats(self) -> Floats:
        """The numbers that kernels read."""
        return self.lattice.with_curvature(self.values, self.curved)

    @cached_property
    def code(self) -> ValueCode:
        """For compiled loops."""
        dim = self.model.box.dim
        return ValueCode(
            self.lattice.ints,
            self.floats,
            1 + dim + 2**dim,
            kernels.lattice_value,
            np.ones(dim, np.int64),
        )

    def __call__(self, states: ArrayLike) -> Floats:
        """The values at these states."""
        rows = np.require(states, np.int64, ["C", "W"])
        if (
            rows.ndim != 2
            or rows.shape[1] != self.model.box.dim
            or (rows < self.model.box.lower).any()
        ):
            raise InputError(
                f"states of {self.model.name!r} are rows of {self.model.box.dim} integers in its "
                "box."
            )
        out = np.empty(len(rows))
        kernels.values_at(self.lattice.ints, self.floats, rows, out)
        return out
