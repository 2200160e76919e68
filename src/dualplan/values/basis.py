"""Functions of states whose weighted sums stand for values: Ψw(x) = Σ_k w_k Ψ_k(x).

A function is a product of one-dimensional pieces, each of one number v that is read off the state,
a coordinate or the sum of several (`Piece.others`):

    power      ((v − shift)/scale)^p
    between    1 if low <= v <= high, else 0       (an empty buffer is [0, 0], a full one [upper,
               upper])
    hinge      max(v − knot, 0)/scale
    capped     min(v, cap)/scale

So a basis is data, and evaluated by compiled code on states of any number (`_kernels/values.py`).
The mean of a product of functions of single coordinates under a law with independent coordinates is
the product of their means, so averages over such laws need no list of states either
(`primal/relevance.py`).

Functions of the user (`functions`) come after the products. They are Python functions on arrays of
states; a policy that is greedy for them is not compiled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dualplan._kernels import values as kernels
from dualplan._kernels.compiler import Data
from dualplan.core.checks import (
    is_number,
    is_whole,
    require_counts,
    require_numbers,
    require_positive,
    require_whole,
)
from dualplan.core.errors import InputError
from dualplan.core.types import ArrayLike, Bools, Floats, Ints
from dualplan.models.contract import UNBOUNDED, Model, coordinate_of, read_only, vector
from dualplan.values.contract import ValueCode
from dualplan.values.pair_tables import Layout, PairTables, pair_tables

UNBOUNDED_SCALE = 10.0  # of monomials in a coordinate without an upper limit
MOST_BASIS_FUNCTIONS = 200_000


@dataclass(frozen=True)
class Piece:
    """A function of one coordinate; make it with `power`, `between`, `hinge` or `capped`.

    With `others` it is a function of the sum of the coordinate and these; `of_sum` makes it.
    """

    coordinate: int
    kind: int
    p: float
    q: float = 0.0
    s: float = 1.0
    others: tuple[int, ...] = ()

    @property
    def coordinates(self) -> tuple[int, ...]:
        """Those that it reads."""
        return (self.coordinate, *self.others)


def of_sum(piece: Piece, *others: int) -> Piece:
    """The same function of the sum of the piece's coordinate and others."""
    return replace(piece, others=others)


def least_squares(
    matrix: Floats,
    right: Floats,
    scale: Floats | None = None,
    used: Bools | None = None,
    singular: float | None = None,
) -> Floats:
    """The weights w of functions from M·v = r, v_k = scale_k·w_k for those in use and 0 for others.

    M and r are of the functions in use, over their scales. Where M is singular, v has the least
    norm; singular values below the part `singular` of the largest count as 0.
    """
    found = np.asarray(np.linalg.lstsq(matrix, right, singular)[0], np.float64)
    if scale is None or used is None:
        return found
    weights = np.zeros(used.size)
    weights[used] = found / scale[used]
    return weights


def power(coordinate: int, exponent: int, *, shift: float = 0.0, scale: float = 1.0) -> Piece:
    """((v − shift)/scale)^exponent."""
    if not is_whole(exponent) or exponent < 0 or not is_number(scale) or scale == 0:
        raise InputError(
            f"a power needs a whole exponent >= 0 and a scale other than 0, got {exponent!r}, "
            f"{scale!r}."
        )
    return Piece(coordinate, kernels.POWER_PIECE, float(exponent), float(shift), float(scale))


def between(coordinate: int, low: float, high: float) -> Piece:
    """1 where low <= v <= high."""
    if not low <= high or low == np.inf:
        raise InputError(f"an interval needs low <= high, got [{low!r}, {high!r}].")
    return Piece(coordinate, kernels.BETWEEN_PIECE, float(low), float(high))


def hinge(coordinate: int, knot: float, *, scale: float = 1.0) -> Piece:
    """max(v − knot, 0)/scale."""
    require_numbers(knot=knot)
    return Piece(coordinate, kernels.HINGE_PIECE, float(knot), 0.0, float(scale))


def capped(coordinate: int, cap: float, *, scale: float = 1.0) -> Piece:
    """min(v, cap)/scale."""
    return Piece(coordinate, kernels.CAPPED_PIECE, float(cap), 0.0, float(scale))


Product = tuple[Piece, ...]


@dataclass(frozen=True, eq=False)
class UserFunctions:
    """A function of states, one a row, that gives a number, or a row of numbers, for each.

    And their names.
    """

    function: Callable[[Ints], Any]
    names: tuple[str, ...]

    def __call__(self, states: Ints) -> Floats:
        """Its values, a row for each state and a column for each name."""
        values = np.asarray(self.function(read_only(states)), np.float64)
        if values.ndim == 1:
            values = values[:, None]
        if values.shape != (len(states), len(self.names)):
            raise InputError(
                f"the function {self.names[0]!r} gives numbers of shape {values.shape} for "
                f"{len(states)} states; give {len(self.names)} for each row."
            )
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if wrong.size:
            raise InputError(
                f"the function {self.names[0]!r} is not finite at state {vector(states[wrong[0]])}."
            )
        return values


@dataclass(frozen=True, eq=False)
class Basis(Data):
    """Functions of the states of a model: products of pieces, then functions of the user."""

    model: Model
    products: tuple[Product, ...]
    labels: tuple[str, ...]
    user: tuple[UserFunctions, ...] = ()

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.products):
            raise InputError(
                f"{len(self.products)} functions need as many names, got {len(self.labels)}."
            )
        if not self.products and not self.user:
            raise InputError("a basis needs at least one function.")
        if len(self.products) > MOST_BASIS_FUNCTIONS:
            raise InputError(
                f"a basis of {len(self.products):,} functions is too large; keep below "
                f"{MOST_BASIS_FUNCTIONS:,}."
            )
        dim = self.model.box.dim
        for piece in itertools.chain.from_iterable(self.products):
            for i in piece.coordinates:
                if not 0 <= i < dim:
                    raise InputError(
                        f"states of {self.model.name!r} have coordinates 0 to {dim - 1}, not {i}."
                    )

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the functions are called."""
        return self.labels + tuple(name for block in self.user for name in block.names)

    @property
    def compiled(self) -> bool:
        """Whether every function runs inside compiled code."""
        return not self.user

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The different pieces."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.products)))

    @cached_property
    def readings(self) -> tuple[tuple[int, ...], ...]:
        """The numbers that pieces read off a state: the coordinates that each is the sum of."""
        return tuple(dict.fromkeys(piece.coordinates for piece in self.pieces))

    def require_single_coordinates(self, what: str) -> None:
        """Raise where a piece is a function of a sum of coordinates."""
        if any(len(coordinates) > 1 for coordinates in self.readings):
            raise InputError(f"{what} need pieces of single coordinates, not of their sums.")

    @cached_property
    def ints(self) -> Ints:
        """The layout of the products, as kernels read it."""
        number = {piece: j for j, piece in enumerate(self.pieces)}
        members = [number[piece] for product in self.products for piece in product]
        head = [len(self.products), len(self.pieces), len(members), len(self.readings)]
        parts = [
            head,
            [self.readings.index(p.coordinates) for p in self.pieces],
            [p.kind for p in self.pieces],
            np.cumsum([0, *map(len, self.products)]),
            members,
            np.cumsum([0, *map(len, self.readings)]),
            list(itertools.chain.from_iterable(self.readings)),
        ]
        return np.concatenate([np.asarray(part, np.int64) for part in parts])

    @property
    def identity(self) -> tuple[Any, ...]:
        """What fingerprints of values rest on; sums count only where there are some."""
        number = {piece: j for j, piece in enumerate(self.pieces)}
        members = [number[piece] for product in self.products for piece in product]
        parts = [
            [len(self.products), len(self.pieces), len(members)],
            [p.coordinate for p in self.pieces],
            [p.kind for p in self.pieces],
            np.cumsum([0, *map(len, self.products)]),
            members,
        ]
        layout = np.concatenate([np.asarray(part, np.int64) for part in parts])
        sums = [p.others for p in self.pieces]
        return (layout, self.floats, *(sums if any(sums) else ()))

    @cached_property
    def floats(self) -> Floats:
        """The parameters of the pieces."""
        return np.array([(p.p, p.q, p.s) for p in self.pieces], np.float64).ravel()

    @cached_property
    def tables(self) -> PairTables | None:
        """Tables over pairs of readings, where these say the same in less time."""
        number = {coordinates: r for r, coordinates in enumerate(self.readings)}
        scopes = [tuple(sorted({number[p.coordinates] for p in one})) for one in self.products]
        layout = Layout(self.ints, self.floats)
        return pair_tables(self.model.box, scopes, self.readings, layout)

    def __call__(self, states: ArrayLike) -> Floats:
        """Ψ of states, one a row: a row of numbers for each."""
        rows = np.require(states, np.int64, ["C", "W"])  # kernels take no read-only arrays
        if rows.ndim != 2 or rows.shape[1] != self.model.box.dim:
            raise InputError(
                f"states of {self.model.name!r} are rows of {self.model.box.dim} integers."
            )
        values = np.empty((len(rows), len(self.products)))
        kernels.functions_at(self.ints, self.floats, rows, values)
        if self.user:
            return np.hstack([values, *(block(rows) for block in self.user)])
        return values

    def combine(self, weights: Floats, states: Ints) -> Floats:
        """Ψw of states, one a row."""
        count = len(self.products)
        rows = np.require(states, np.int64, ["C", "W"])
        values = np.empty(len(rows))
        kernels.values_at(
            self.ints,
            self.floats,
            np.require(weights[:count], np.float64, ["C", "W"]),
            rows,
            values,
        )
        for block in self.user:
            values += block(rows) @ weights[count : count + len(block.names)]
            count += len(block.names)
        return values


@dataclass(frozen=True, eq=False)
class LinearValues(Data):
    """Ψw, a function of states, one a row."""

    basis: Basis
    weights: Floats

    def __post_init__(self) -> None:
        weights = np.ascontiguousarray(self.weights, np.float64)
        if weights.shape != (len(self.basis),) or not np.isfinite(weights).all():
            raise InputError(
                f"a basis of {len(self.basis)} functions needs as many finite weights."
            )
        object.__setattr__(self, "weights", weights)  # the class is frozen

    def __call__(self, states: Ints) -> Floats:
        """The values at these states."""
        return self.basis.combine(self.weights, states)

    @property
    def model(self) -> Model:
        """The model of the basis."""
        return self.basis.model

    @property
    def code(self) -> ValueCode | None:
        """For compiled loops; None if a function of the user is among the basis."""
        if not self.basis.compiled:
            return None
        basis = self.basis
        seen = np.zeros(basis.model.box.dim, np.int64)
        seen[[i for coordinates in basis.readings for i in coordinates]] = 1
        room = 1 + max(len(basis.pieces), len(basis.readings))
        tables = basis.tables
        if tables is None:
            floats = np.concatenate([self.weights, basis.floats])
            return ValueCode(basis.ints, floats, room, kernels.linear_value, seen, self._terms())
        floats = np.concatenate([tables.cells(self.weights), self.weights, basis.floats])
        return ValueCode(tables.ints, floats, room, kernels.tabled_value, seen, self._terms())

    def _terms(self) -> Floats | None:
        """Rows (i, j, w) of w·x_i·x_j, j = −1 for w·x_i, if there are no others but a constant."""
        rows = []
        for weight, pieces in zip(self.weights, self.basis.products, strict=True):
            places = [
                p.coordinate
                for p in pieces
                if p.kind == kernels.POWER_PIECE
                for _ in range(int(p.p))
            ]
            if len(places) > 2 or any(
                p.kind != kernels.POWER_PIECE or p.q != 0 or p.others for p in pieces
            ):
                return None
            scaled = weight / np.prod([p.s**p.p for p in pieces])
            if places:
                rows.append((*places, -1, scaled) if len(places) == 1 else (*places, scaled))
        return np.array(rows, np.float64).reshape(-1, 3)


# -- families --------------------------------------------------------------------------------------


def products(
    model: Model, functions: Sequence[Sequence[Piece]], names: Sequence[str] | None = None
) -> Basis:
    """Functions that are given piece by piece."""
    made = tuple(tuple(pieces) for pieces in functions)
    return Basis(
        model,
        made,
        tuple(names) if names is not None else tuple(f"product {k}" for k in range(len(made))),
    )


def constant(model: Model) -> Basis:
    """The function 1: with it a discounted program always has a feasible point."""
    return Basis(model, ((),), ("1",))


def monomials(
    model: Model,
    degree: int,
    *,
    scale: float | Sequence[float] | None = None,
    coordinates: Sequence[int] | None = None,
) -> Basis:
    """All monomials up to a degree, with the constant, in coordinates scaled to [0, 1].

    `scale` divides the coordinates, by default their widths (10 where there is no upper limit).
    """
    require_whole("degree", degree)
    chosen = _coordinates(model, coordinates)
    scales = _scales(model, scale)
    made = []
    names = []
    for total in range(degree + 1):
        for combination in itertools.combinations_with_replacement(chosen, total):
            exponents = [(i, combination.count(i)) for i in chosen if i in combination]
            made.append(
                tuple(
                    power(i, e, shift=float(model.box.lower[i]), scale=scales[i])
                    for i, e in exponents
                )
            )
            names.append(
                "·".join(_name(model, i) + (f"^{e}" if e > 1 else "") for i, e in exponents) or "1"
            )
    return Basis(model, tuple(made), tuple(names))


def capped_monomials(
    model: Model, degree: int, cap: float, *, coordinates: Sequence[int] | None = None
) -> Basis:
    """All products of 1 to `degree` factors min(v, cap)/cap: polynomials near the lower limits,
    constant far out.
    """
    require_counts(degree=degree)
    require_positive(cap=cap)
    chosen = _coordinates(model, coordinates)
    lists = [
        c for d in range(1, degree + 1) for c in itertools.combinations_with_replacement(chosen, d)
    ]
    made = tuple(tuple(capped(i, cap, scale=cap) for i in factors) for factors in lists)
    return Basis(
        model, made, tuple("·".join(f"min({_name(model, i)}, {cap:g})" for i in f) for f in lists)
    )


def boundaries(model: Model, degree: int = 0, *, empty: bool = True, full: bool = True) -> Basis:
    """Indicators of coordinates at their limits, times all monomials up to a degree in the other
    coordinates.
    """
    lower = model.box.lower.tolist()
    upper = model.box.upper.tolist()
    made = []
    names = []
    for i in range(model.box.dim):
        rest = [j for j in range(model.box.dim) if j != i]
        if rest:
            factor = monomials(model, degree, coordinates=rest)
        else:
            factor = constant(model)
        sides = ([(lower[i], "empty")] if empty else []) + ([(upper[i], "full")] if full else [])
        for limit, word in sides:
            if limit == UNBOUNDED:
                continue
            made += [(between(i, limit, limit), *pieces) for pieces in factor.products]
            names += [
                f"{_name(model, i)} {word}" + ("" if n == "1" else f"·{n}") for n in factor.labels
            ]
    return Basis(model, tuple(made), tuple(names))


def boxes(model: Model, cuts: Sequence[Sequence[tuple[float, float]]]) -> Basis:
    """Indicators of all boxes that take one interval [low, high] for each coordinate."""
    if len(cuts) != model.box.dim:
        raise InputError(
            f"boxes in {model.box.dim} coordinates need as many lists of intervals, got "
            f"{len(cuts)}."
        )
    choices = [
        [between(i, *interval) for interval in intervals] for i, intervals in enumerate(cuts)
    ]
    made = tuple(itertools.product(*choices))
    names = ("×".join(f"[{p.p:g}, {p.q:g}]" for p in box) for box in made)
    return Basis(model, made, tuple(names))


def indicators(model: Model) -> Basis:
    """The indicator of every single state: values without approximation, where states are few."""
    count = model.box.count
    if count is None or count > MOST_BASIS_FUNCTIONS:
        raise InputError(
            f"model {model.name!r} has too many states for a function each; use fewer functions."
        )
    low = model.box.lower.tolist()
    high = model.box.upper.tolist()
    return boxes(model, [[(v, v) for v in range(a, b + 1)] for a, b in zip(low, high, strict=True)])


def piecewise_linear(model: Model, knots: Sequence[Sequence[float]]) -> Basis:
    """For each coordinate v itself and max(v − knot, 0) for each of its knots: sums of convex and
    concave curves.
    """
    if len(knots) != model.box.dim:
        raise InputError(
            f"knots in {model.box.dim} coordinates need as many lists of numbers, got {len(knots)}."
        )
    scales = _scales(model, None)
    made = []
    names = []
    for i, places in enumerate(knots):
        made += [(power(i, 1, shift=float(model.box.lower[i]), scale=scales[i]),)]
        made += [(hinge(i, knot, scale=scales[i]),) for knot in places]
        names += [_name(model, i), *(f"max({_name(model, i)} − {knot:g}, 0)" for knot in places)]
    return Basis(model, tuple(made), tuple(names))


def tensor(first: Basis, second: Basis) -> Basis:
    """Every function of the first times every function of the second."""
    _require_same_model(first, second)
    if first.user or second.user:
        names = tuple(f"{a}·{b}" for a in first.names for b in second.names)
        both = UserFunctions(
            lambda x: (first(x)[:, :, None] * second(x)[:, None, :]).reshape(len(x), -1), names
        )
        return Basis(first.model, (), (), (both,))
    made = tuple(a + b for a in first.products for b in second.products)
    names = tuple(f"{a}·{b}" for a in first.labels for b in second.labels)
    return Basis(first.model, made, names)


def concat(*bases: Basis) -> Basis:
    """All functions of several bases; products that are the same count once."""
    if not bases:
        raise InputError("concat needs at least one basis.")
    _require_same_model(*bases)
    seen: dict[Any, tuple[Product, str]] = {}
    for basis in bases:
        for product, name in zip(basis.products, basis.labels, strict=True):
            key = tuple(sorted((p.coordinates, p.kind, p.p, p.q, p.s) for p in product))
            seen.setdefault(key, (product, name))
    made = [p for p, _ in seen.values()]
    names = [n for _, n in seen.values()]
    return Basis(
        bases[0].model, tuple(made), tuple(names), tuple(u for basis in bases for u in basis.user)
    )


def functions(
    model: Model, function: Callable[[Ints], Any], names: str | Sequence[str] | None = None
) -> Basis:
    """A function of the user on states, one a row: it gives a number, or one for each name, for
    every row.
    """
    label = str(getattr(function, "__name__", "function")) if names is None else names
    made = UserFunctions(function, (label,) if isinstance(label, str) else tuple(label))
    made(model.start[None, :])  # raises, if it is of the wrong shape
    return Basis(model, (), (), (made,))


def _coordinates(model: Model, given: Sequence[int] | None) -> list[int]:
    if given is None:
        return list(range(model.box.dim))
    return [coordinate_of(model, coordinate) for coordinate in given]


def _scales(model: Model, given: float | Sequence[float] | None) -> list[float]:
    if given is None:
        widths = (model.box.upper - model.box.lower).tolist()
        bounded = (model.box.upper < UNBOUNDED).tolist()
        return [
            max(float(w), 1.0) if b else UNBOUNDED_SCALE
            for w, b in zip(widths, bounded, strict=True)
        ]
    if isinstance(given, (int, float)):
        scales = [float(given)] * model.box.dim
    else:
        scales = [float(s) for s in given]
    if len(scales) != model.box.dim or not all(s > 0 for s in scales):
        raise InputError(
            f"scale is a positive number, or one for each of {model.box.dim} coordinates, got "
            f"{given!r}."
        )
    return scales


def _name(model: Model, coordinate: int) -> str:
    return f"[{model.coordinates[coordinate]}]"


def _require_same_model(*bases: Basis) -> None:
    for basis in bases[1:]:
        if basis.model is not bases[0].model and basis.model.digest != bases[0].model.digest:
            raise InputError(
                f"the bases belong to {bases[0].model.name!r} and {basis.model.name!r}, not to one "
                "model."
            )
