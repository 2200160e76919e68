"""Partitions of the states into cells, as data: where a portfolio switches, and where a test
function is constant.

Chosen coordinates are cut at given numbers: cuts 1, 3 make the cells v < 1, 1 <= v < 3 and v >= 3,
the last without an end. A function of the user may cut further, at given levels of its values
(bands). Cells are all combinations, numbered with the last part fastest. Outside `where`, intervals
of coordinates, a state lies in no cell (−1).

The compiled look-up reads a flat array: the number of parts, then for each its coordinate, the
interval, the number of cuts and the cuts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np

from dualplan._kernels.compiler import COMPILATION_ERRORS, READ_ONLY_INTS, user_function
from dualplan.core.checks import is_number, is_whole
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import UNBOUNDED, Model, coordinate_of, read_only, vector

LOWEST_INTEGER = int(np.iinfo(np.int64).min)
# by functions of the user
USER_FUNCTION_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)
SEQUENCE_TYPES = (list, tuple, range, np.ndarray)


@dataclass(frozen=True)
class Part:
    """A coordinate, the interval that counts, and its cuts."""

    coordinate: int
    low: int
    high: int
    cuts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Partition:
    """Cells of the states of a model.

    Call it with states, one a row, for the numbers of their cells.
    """

    model: Model
    parts: tuple[Part, ...]
    function: Callable[[Ints], float] | None = None
    levels: tuple[float, ...] = ()

    def __len__(self) -> int:
        return math.prod(len(part.cuts) + 1 for part in self.parts) * (len(self.levels) + 1)

    def __call__(self, states: Ints) -> Ints:
        """The cell of each state, −1 for none."""
        cells = np.zeros(len(states), np.int64)
        inside = np.ones(len(states), bool)
        for part in self.parts:
            v = states[:, part.coordinate]
            inside &= (part.low <= v) & (v <= part.high)
            cells = cells * (len(part.cuts) + 1) + np.searchsorted(
                np.array(part.cuts, np.int64), v, side="right"
            )
        if self.function is not None:
            level = np.searchsorted(np.array(self.levels), self._values(states), side="right")
            cells = cells * (len(self.levels) + 1) + level
        return np.where(inside, cells, -1)

    def _values(self, states: Ints) -> Floats:
        values = np.empty(len(states))
        if self.compiled is None:
            for k, x in enumerate(states):
                values[k] = self._value(x)
        else:
            self._compiled_values(np.require(states, np.int64, ["C", "W"]), values)
        wrong = np.flatnonzero(np.isnan(values))
        if wrong.size:
            raise InputError(
                f"the function of a partition is not a number at state {vector(states[wrong[0]])}."
            )
        return values

    def _compiled_values(self, states: Ints, values: Floats) -> None:
        values[:] = np.nan  # what is not written is where the function raised
        try:
            _all_values(self.compiled, states, values)
        except USER_FUNCTION_ERRORS as error:
            raise _failed(states[np.isnan(values)][0], error) from error

    def _value(self, x: Ints) -> float:
        try:
            if self.function is None:
                value = None
            else:
                value = self.function(read_only(x))
        except USER_FUNCTION_ERRORS as error:
            raise _failed(x, error) from error
        if not is_number(value):
            raise InputError(
                f"the function of a partition must give a number, got {value!r} at state "
                f"{vector(x)}."
            )
        return float(value)  # type: ignore[arg-type]

    @cached_property
    def compiled(self) -> Any:
        """The function of the user as machine code, or None where Numba cannot."""
        if self.function is None:
            return None
        try:
            return user_function(self.function, (READ_ONLY_INTS,))
        except COMPILATION_ERRORS:
            return None

    @property
    def ints(self) -> Ints:
        """The parts as kernels read them."""
        flat = [(p.coordinate, p.low, p.high, len(p.cuts), *p.cuts) for p in self.parts]
        return np.array([len(self.parts), *itertools.chain.from_iterable(flat)], np.int64)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the cells are called."""
        choices = [
            _part_names(self.model.coordinates[p.coordinate], p.low, p.high, p.cuts)
            for p in self.parts
        ]
        if self.function is not None:
            label = str(getattr(self.function, "__name__", "level"))
            choices.append(_part_names(label, -math.inf, math.inf, self.levels))
        found = tuple(", ".join(names) or "everywhere" for names in itertools.product(*choices))
        if len(found) != len(self):
            raise ArithmeticError(f"a partition of {len(self)} cells has {len(found)} names.")
        return found


def _failed(x: Ints, error: Exception) -> InputError:
    return InputError(
        f"the function of a partition fails at state {vector(x)}: {str(error).rstrip('.')}."
    )


def _part_names(label: str, low: float, high: float, cuts: Sequence[float]) -> list[str]:
    ends = [None if low in (LOWEST_INTEGER, -math.inf) else low, *cuts, None]
    names = [
        f"{label} < {b:g}"
        if a is None
        else f"{label} >= {a:g}"
        if b is None
        else f"{a:g} <= {label} < {b:g}"
        for a, b in itertools.pairwise(ends)
        if not (a is None and b is None)
    ]
    if not names:
        return [label]
    if low == high and not cuts:
        return [f"{label} = {low:g}"]
    return names


@numba.njit(nogil=True)
def _all_values(function, states, values):  # type: ignore[no-untyped-def]
    for k in range(values.size):
        values[k] = function(states[k])


def partition_of(model: Model, ints: Ints) -> Partition:
    """The partition whose flat array this is."""
    flat = [int(v) for v in ints]
    parts = []
    at = 1
    for _ in range(flat[0]):
        coordinate, low, high, count = flat[at : at + 4]
        cuts = tuple(flat[at + 4 : at + 4 + count])
        if (
            not 0 <= coordinate < model.box.dim
            or len(cuts) != count
            or any(b <= a for a, b in itertools.pairwise(cuts))
        ):
            raise InputError(f"these numbers make no partition of the states of {model.name!r}.")
        parts.append(Part(coordinate, low, high, cuts))
        at += 4 + count
    return Partition(model, tuple(parts))


def whole(model: Model) -> Partition:
    """All states in one cell."""
    return Partition(model, ())


def cells(
    model: Model,
    cuts: Mapping[str | int, Sequence[int]],
    *,
    where: Mapping[str | int, tuple[int, int | None]] | None = None,
) -> Partition:
    """Coordinates, by name or number, cut at the given numbers.

    `where` keeps to intervals of coordinates.
    """
    kept = {} if where is None else where
    for word, given in (("cuts", cuts), ("where", kept)):
        if not isinstance(given, Mapping):
            raise InputError(
                f"{word} is a mapping of coordinates, {word}={{coordinate: ...}}, got {given!r}."
            )
    limits = {coordinate_of(model, key): _interval(key, ends) for key, ends in kept.items()}
    parts = []
    for key, numbers in cuts.items():
        c = coordinate_of(model, key)
        if (
            not isinstance(numbers, SEQUENCE_TYPES)
            or not all(map(is_whole, numbers))
            or any(b <= a for a, b in itertools.pairwise(numbers))
        ):
            raise InputError(
                f"the cuts of coordinate {key!r} are integers in rising order, got {numbers!r}."
            )
        parts.append(
            Part(c, *limits.pop(c, (LOWEST_INTEGER, UNBOUNDED)), tuple(int(v) for v in numbers))
        )
    return Partition(model, (*parts, *(Part(c, *ends, ()) for c, ends in limits.items())))


def levels(
    model: Model,
    function: Callable[[Ints], float],
    edges: Sequence[float],
    within: Partition | None = None,
) -> Partition:
    """Bands of a function of the state, cut at `edges`.

    `within` a partition, each of its cells is cut so.
    """
    if not all(map(is_number, edges)) or any(b <= a for a, b in itertools.pairwise(edges)):
        raise InputError(f"the edges of bands are numbers in rising order, got {edges!r}.")
    if within is None:
        base = whole(model)
    else:
        base = within
    if base.function is not None:
        raise InputError(
            "a partition is cut by one function; let it give a number for each combination."
        )
    made = replace(base, function=function, levels=tuple(float(v) for v in edges))
    made._value(model.start)  # raises, if it gives no number
    return made


def _interval(key: str | int, ends: Any) -> tuple[int, int]:
    low, high = ends if isinstance(ends, SEQUENCE_TYPES) and len(ends) == 2 else (None, ends)
    if high is None:
        high = UNBOUNDED
    if not (is_whole(low) and is_whole(high) and low <= high):
        raise InputError(
            f"the interval of coordinate {key!r} needs integers low <= high, got {ends!r}."
        )
    return int(low), int(high)
