"""Functions of states on cells: polynomials there, and their coefficients in bases that are nowhere
negative.

Each coordinate's range is cut at *cuts* into spans: every cut c is a span {c} of its own, and what
lies between two cuts, or beyond the last, is one span, [a, b] or [a, ∞). A cell is a product of
spans, one for each coordinate.

*Reach.* A step moves a coordinate by at most one. So if every function is a polynomial in
coordinate i on [a − 1, b + 1], whatever span [a, b] of more than one value, then h(x + v) is a
polynomial on the cell for every move v. Which cuts this asks for: the place t of a kink (hinge,
capped) must be a cut (both neighbours, if t is no integer), and of a jump between t and t + 1
(between) both t and t + 1 must be. For the indicator of an empty queue these are 0 and 1, so that
its first long span is [2, ∞).

*Bases.* On [a, ∞) with v = a + z the polynomials C(z, j), and on [a, b], m = b − a, for polynomials
of degree d <= m

    B_k(z) = C(z, k) C(m − z, d − k),   k = 0, …, d,

are not negative at any integer of the span. So a polynomial whose coefficients in products of such
functions are all >= 0 is >= 0 at all states of the cell. If its degree in each coordinate is 1 or
less and it has no products of them, this is necessary as well: the coefficients are its values at
the corners, and its slopes along the rays. In general they become less strict as spans are cut. The
coefficients: in C(z, j), the iterated differences Δʲf(0); and as k marked among d drawn of m, z of
them marked, has E C(k, j) = C(d, j) C(z, j)/C(m, j), Σ_j c_j C(z, j) is, up to the positive factor
that turns B_k into probabilities,

    Σ_k B_k(z) Σ_j c_j C(m, j) C(k, j)/C(d, j).

The coefficients of a product of functions of single coordinates are products of the coefficients,
so a table for single coordinates is all that is computed. It is in integers: kinks and shifts are
rational, and common denominators, like the scales of the pieces, go into one number for each
function (`units`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dualplan._kernels import values as kinds
from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import LARGEST_COORDINATE, UNBOUNDED, Box
from dualplan.values.basis import Piece, Product

MOST_CUTS = 1_000  # of one coordinate, given as a number
MOST_CELL_COEFFICIENTS = 4_000_000  # coefficients over all cells
CELL_SHIFTS = (-1, 0, 1)

Factor = tuple[Piece, ...]  # the pieces of a product on one coordinate
Cuts = int | Sequence[int | Sequence[int] | None] | None


@dataclass(frozen=True)
class Span:
    """The values low, …, high; no end if `high` is None."""

    low: int
    high: int | None

    @property
    def single(self) -> bool:
        """Whether it is one value."""
        return self.low == self.high

    @property
    def ray(self) -> bool:
        """Whether it has no end."""
        return self.high is None


@dataclass(frozen=True, eq=False)
class Cells:
    """The table of single coordinates, and a row for each coefficient on each cell.

    `table[i, f, e, 1 + s]` is coefficient e of factor f of coordinate i, moved by s; `factors[k,
    i]` the factor of function k there; `units[k]` times what the table says is the function. A row
    holds one e for each coordinate, and `spans[i][e]` is where it belongs, `exponents[i][e]` its
    power along a ray.
    """

    table: Floats
    factors: Ints
    units: Floats
    rows: Ints
    spans: tuple[tuple[Span, ...], ...]
    exponents: tuple[Ints, ...]

    @property
    def count(self) -> int:
        """The number of cells."""
        return math.prod(len(set(spans)) for spans in self.spans)

    def states(self, rows: Ints) -> Ints:
        """The lowest states of the cells of some rows."""
        lows = [[span.low for span in spans] for spans in self.spans]
        return np.column_stack([np.array(low, np.int64)[rows[:, i]] for i, low in enumerate(lows)])


# -- pieces ----------------------------------------------------------------------------------------


def breaks(piece: Piece, low: int, high: float) -> set[int]:
    """The cuts between low and high that a piece asks for."""
    if piece.kind == kinds.POWER_PIECE:
        return set()
    if piece.kind == kinds.BETWEEN_PIECE:
        first = math.ceil(max(piece.p, low))
        if piece.q < high:
            last = math.floor(min(piece.q, high))
        else:
            last = None
        if first > low:
            places = {first - 1, first}
        else:
            places = set()
        places |= {last, last + 1} if last is not None else set()
    elif math.isfinite(piece.p):
        places = {math.floor(piece.p), math.ceil(piece.p)}
    else:
        places = set()
    return {v for v in places if low <= v <= high}


def degree(piece: Piece, span: Span) -> int:
    """Of the polynomial that a piece is on a span between its breaks."""
    if piece.kind == kinds.POWER_PIECE:
        return int(piece.p)
    if piece.kind == kinds.BETWEEN_PIECE:
        return 0
    beyond = span.low >= piece.p
    if piece.kind == kinds.HINGE_PIECE:
        return int(beyond)
    return int(not beyond)


def value(piece: Piece, v: int) -> Fraction:
    """A piece without its scale, exactly."""
    if piece.kind == kinds.BETWEEN_PIECE:
        return Fraction(int(piece.p <= v <= piece.q))
    if piece.kind == kinds.HINGE_PIECE:
        return max(v - Fraction(piece.p), Fraction(0))
    if piece.kind == kinds.CAPPED_PIECE:
        if math.isfinite(piece.p):
            return min(Fraction(v), Fraction(piece.p))
        return Fraction(v)
    return Fraction(v - Fraction(piece.q)) ** int(piece.p)


def scale(piece: Piece) -> float:
    """What a piece without its scale is to be multiplied by."""
    if piece.kind == kinds.POWER_PIECE:
        return piece.s ** -int(piece.p)
    return 1.0 / piece.s


# -- cuts ------------------------------------------------------------------------------------------


def cuts_of(
    box: Box, dim: int, factors: Sequence[Sequence[Factor]], given: Cuts, names: Sequence[str]
) -> list[set[int]]:
    """The cuts of each coordinate: those given, or the fewest that the functions ask for.

    An error if too few.
    """
    wanted: list[Any] = [given] * dim if given is None or is_whole(given) else []
    if isinstance(given, (list, tuple)):
        wanted = list(given)
    if len(wanted) != dim:
        raise InputError(
            f"cells is a number, or a number or a list of cuts for each of {dim} queues, got "
            f"{given!r}."
        )
    found = []
    for i, cuts in enumerate(wanted):
        low = int(box.lower[i])
        if box.upper[i] == UNBOUNDED:
            high = math.inf
        else:
            high = int(box.upper[i])
        ends = {low} | ({int(high)} if high < math.inf else set())
        needed = set().union(
            *(breaks(piece, low, high) for factor in factors[i] for piece in factor)
        )
        have = ends | (needed if cuts is None else _listed(cuts, low, high))
        if needed - have:
            raise InputError(
                f"a function bends or jumps at {names[i]} = {min(needed - have)}, inside a cell; "
                f"take cells={max(needed) - low + 1} or more, or leave cells out."
            )
        found.append(have)
    return found


def _listed(cuts: Any, low: int, high: float) -> set[int]:
    """The lowest values (and the highest, where there is an end), or those listed."""
    if is_whole(cuts):
        if not 1 <= cuts <= MOST_CUTS:
            raise InputError(
                "cells must be at least 1, since an empty queue differs from others, and at most "
                f"{MOST_CUTS:,}, got {cuts!r}."
            )
        lowest = set(range(low, low + int(cuts)))
        if high < math.inf:
            highest = {int(high) - j for j in range(int(cuts))}
        else:
            highest = set()
        return {v for v in lowest | highest if low <= v <= high}
    last = min(high, LARGEST_COORDINATE)
    if not isinstance(cuts, (list, tuple)) or not all(
        is_whole(c) and low <= c <= last for c in cuts
    ):
        raise InputError(f"cuts are whole numbers between {low} and {last}, got {cuts!r}.")
    return set(cuts)


def spans_of(cuts: set[int], bounded: bool, most: int) -> list[Span]:
    """The cuts and what lies between them.

    Spans too short for polynomials of degree `most` become single values.
    """
    places = sorted(cuts)
    found = []
    for c, following in itertools.zip_longest(places, places[1:]):
        found.append(Span(c, c))
        if following is None:
            found += [] if bounded else [Span(c + 1, None)]
        elif following - c - 2 >= max(most, 1):
            found.append(Span(c + 1, following - 1))
        else:
            found += [Span(v, v) for v in range(c + 1, following)]
    return found


# -- coefficients ----------------------------------------------------------------------------------


def coefficients(factor: Factor, span: Span, shift: int, d: int) -> list[Fraction]:
    """Of a factor, moved, on a span: its value, or d + 1 coefficients in the basis of the span."""
    if span.single:
        count = 1
    else:
        count = d + 1
    column = [
        math.prod((value(p, span.low + shift + z) for p in factor), start=Fraction(1))
        for z in range(count)
    ]
    newton = []
    while column:
        newton.append(column[0])
        column = [b - a for a, b in itertools.pairwise(column)]
    if span.high is None or span.single:
        return newton
    m = span.high - span.low
    common = math.lcm(*(math.comb(d, j) for j in range(d + 1)))
    share = [c * math.comb(m, j) * (common // math.comb(d, j)) for j, c in enumerate(newton)]
    return [
        sum((share[j] * math.comb(k, j) for j in range(k + 1)), Fraction(0)) for k in range(d + 1)
    ]


def make_cells(
    box: Box, dim: int, functions: Sequence[Product], given: Cuts, names: Sequence[str]
) -> Cells:
    """Cells of the first `dim` coordinates, and the coefficients of functions on them."""
    split = [
        [tuple(p for p in product if p.coordinate == i) for i in range(dim)]
        for product in functions
    ]
    factors: list[list[Factor]] = [
        list(dict.fromkeys([(), *(row[i] for row in split)])) for i in range(dim)
    ]
    number = [{factor: f for f, factor in enumerate(listed)} for listed in factors]
    chosen = [[number[i][row[i]] for i in range(dim)] for row in split]
    cuts = cuts_of(box, dim, factors, given, names)
    lines = [_line(factors[i], cuts[i], bool(box.upper[i] < UNBOUNDED)) for i in range(dim)]
    tops = {tuple(lines[i].degrees[f] for i, f in enumerate(row)) for row in chosen}
    units = [
        math.prod(map(scale, product)) / math.prod(lines[i].multiples[f] for i, f in enumerate(row))
        for product, row in zip(functions, chosen, strict=True)
    ]
    exponents = tuple(line.exponents for line in lines)
    return Cells(
        _padded([line.table for line in lines]),
        np.array(chosen, np.int64),
        np.array(units),
        _rows([e.tolist() for e in exponents], tops),
        tuple(line.spans for line in lines),
        exponents,
    )


@dataclass(frozen=True, eq=False)
class _Line:
    """One coordinate: coefficients e of its factors, where they belong, and what they were
    multiplied by.
    """

    table: Floats  # factor, e, shift
    spans: tuple[Span, ...]
    exponents: Ints
    multiples: list[int]
    degrees: list[int]  # of the factors along the ray, 0 if there is none


def _line(factors: Sequence[Factor], cuts: set[int], bounded: bool) -> _Line:
    most = max(
        sum(int(p.p) if p.kind == kinds.POWER_PIECE else 1 for p in factor) for factor in factors
    )
    entries: list[tuple[Span, int]] = []
    lists: list[list[list[Fraction]]] = [
        [[] for _ in CELL_SHIFTS] for _ in factors
    ]  # factor, shift, e
    for span in spans_of(cuts, bounded, most):
        if span.single:
            d = 0
        else:
            d = max(_degree(factor, span) for factor in factors)
        entries += [(span, e if span.ray else 0) for e in range(d + 1)]
        for of, factor in zip(lists, factors, strict=True):
            for column, shift in zip(of, CELL_SHIFTS, strict=True):
                column += coefficients(factor, span, shift, d)
    multiples = [math.lcm(*(x.denominator for column in of for x in column)) for of in lists]
    whole = [
        [[float(int(x * q)) for x in column] for column in of]
        for of, q in zip(lists, multiples, strict=True)
    ]
    last = entries[-1][0]
    return _Line(
        np.array(whole).transpose(0, 2, 1),
        tuple(span for span, _ in entries),
        np.array([e for _, e in entries], np.int64),
        multiples,
        [_degree(factor, last) if last.ray else 0 for factor in factors],
    )


def _degree(factor: Factor, span: Span) -> int:
    return sum(degree(piece, span) for piece in factor)


def _padded(tables: Sequence[Floats]) -> Floats:
    table = np.zeros(
        (
            len(tables),
            max(t.shape[0] for t in tables),
            max(t.shape[1] for t in tables),
            len(CELL_SHIFTS),
        )
    )
    for i, t in enumerate(tables):
        table[i, : t.shape[0], : t.shape[1]] = t
    return table


def _rows(exponents: Sequence[Sequence[int]], tops: set[tuple[int, ...]]) -> Ints:
    """All rows whose exponents along rays occur in a function; those below a top do."""
    below = sorted({j for top in tops for j in itertools.product(*(range(e + 1) for e in top))})
    level = [[e for e, power in enumerate(listed) if power == 0] for listed in exponents]
    size = sum(math.prod(1 if p else len(level[i]) for i, p in enumerate(j)) for j in below)
    if size > MOST_CELL_COEFFICIENTS:
        raise InputError(
            f"{size:,} coefficients on cells are too many; take fewer cells or functions of lower "
            "degree."
        )
    blocks = []
    for j in below:
        choices = [[exponents[i].index(p)] if p else level[i] for i, p in enumerate(j)]
        grids = np.meshgrid(*(np.array(c, np.int64) for c in choices), indexing="ij")
        blocks.append(np.stack([g.ravel() for g in grids], axis=1))
    return np.ascontiguousarray(np.concatenate(blocks))
