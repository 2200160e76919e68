"""Functions of states that are multilinear between the nodes of a lattice, plus Ψw.

Each coordinate i has knots k_0 < k_1 < …, the first one its lower limit; nodes are all vectors of knots. A value v
between two knots is the combination (1−t)·k_j + t·k_(j+1), a state the combination of the corners of its cell with
products of such weights, c(x) below, and

    V(x)  =  Ψw(x) + Σ_z c_z(x)·r(z).

The second part is the only function with the values r at the nodes that is linear along each coordinate between
knots. Beyond the last knot it goes on linearly. The first part, a polynomial say, can carry what is curved, so that
little is left to interpolate: a straight line through two points of a parabola lies above it by up to (gap/2)² times
half its second derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualplan._kernels import lattice as kernels
from dualplan._kernels.compiler import Data
from dualplan.errors import InputError
from dualplan.models.contract import Model
from dualplan.primal.basis import LinearValues
from dualplan.types import ArrayLike, Floats, Ints

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
                f"a lattice of {self.model.name!r} needs knots for each of its {box.dim} coordinates, of which there "
                f"may be {MOST_COORDINATES} at most; got {len(self.knots)} lists."
            )
        checked = tuple(_checked(self.model, i, given) for i, given in enumerate(self.knots))
        object.__setattr__(self, "knots", checked)  # the class is frozen
        if self.nodes > MOST_NODES:
            raise InputError(f"a lattice of {self.nodes:,} nodes is too large; keep below {MOST_NODES:,}.")

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
        return np.concatenate([[counts.size], counts, strides, places, *self.knots]).astype(np.int64)

    @property
    def last(self) -> Ints:
        """The last knot of each coordinate."""
        return np.array([k[-1] for k in self.knots], np.int64)

    @cached_property
    def states(self) -> Ints:
        """The nodes as states, one a row."""
        grids = np.meshgrid(*self.knots, indexing="ij")
        return np.ascontiguousarray(np.stack([g.ravel() for g in grids], axis=1))

    def interpolate(self, values: Floats, states: ArrayLike) -> Floats:
        """Σ_z c_z(x)·value(z) at states, one a row."""
        rows = np.require(states, np.int64, ["C", "W"])
        if rows.ndim != 2 or rows.shape[1] != self.model.box.dim or (rows < self.model.box.lower).any():
            raise InputError(f"states of {self.model.name!r} are rows of {self.model.box.dim} integers in its box.")
        out = np.empty(len(rows))
        kernels.interpolate(self.ints, np.require(values, np.float64, ["C", "W"]), rows, out)
        return out

    def node(self, x: ArrayLike) -> int:
        """The number of the node nearest to a state, coordinate by coordinate."""
        nearest = [int(np.argmin(np.abs(k - v))) for k, v in zip(self.knots, np.ravel(x), strict=True)]
        return int(np.ravel_multi_index(nearest, [k.size for k in self.knots]))


def _checked(model: Model, i: int, given: Sequence[int] | Ints) -> Ints:
    where, low, high = f"coordinate {model.coordinates[i]!r}", int(model.box.lower[i]), int(model.box.upper[i])
    knots = np.asarray(given)
    if knots.ndim != 1 or knots.size == 0 or knots.dtype.kind not in "iu":
        raise InputError(f"the knots of {where} must be a list of integers, got {given!r}.")
    if (np.diff(knots) <= 0).any():
        raise InputError(f"the knots of {where} must increase.")
    if knots[0] != low or knots[-1] > high:
        raise InputError(
            f"the knots of {where} must start at {low} and stay in the box, got {knots[0]} to {knots[-1]}."
        )
    if knots.size == 1 and high > low:
        raise InputError(f"{where} has more than one value and needs two knots at least.")
    return np.ascontiguousarray(knots, np.int64)


@dataclass(frozen=True, eq=False)
class LatticeValues(Data):
    """V(x) = Ψw(x) + Σ_z c_z(x)·r(z): `smooth` is Ψw, or nothing; `remainder` is r over the nodes."""

    lattice: Lattice
    remainder: Floats
    smooth: LinearValues | None = None

    def __post_init__(self) -> None:
        remainder = np.ascontiguousarray(self.remainder, np.float64)
        if remainder.shape != (self.lattice.nodes,) or not np.isfinite(remainder).all():
            raise InputError(f"a lattice of {self.lattice.nodes:,} nodes needs as many finite values.")
        object.__setattr__(self, "remainder", remainder)  # the class is frozen
        if self.smooth is not None and self.smooth.basis.model.digest != self.lattice.model.digest:
            raise InputError("the lattice and the smooth part of its values belong to different models.")

    @property
    def model(self) -> Model:
        """The model of the lattice."""
        return self.lattice.model

    def __call__(self, states: Ints) -> Floats:
        """The values at these states."""
        values = self.lattice.interpolate(self.remainder, states)
        return values if self.smooth is None else values + self.smooth(states)


def smooth_arrays(smooth: LinearValues | None) -> tuple[Ints, Floats, Floats]:
    """The layout, the parameters and the weights of Ψw as kernels read them, where there is none too."""
    if smooth is None:
        return np.zeros(4, np.int64), np.empty(0), np.empty(0)
    if not smooth.basis.compiled:
        raise InputError("the smooth part of values on a lattice must be made of products, not of functions of yours.")
    return smooth.basis.ints, smooth.basis.floats, smooth.weights
