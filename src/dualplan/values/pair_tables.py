"""Sums of functions of two numbers each, as tables.

Where every Ψ_k reads at most two numbers off a state, coordinates or sums of them,

    Ψw(x)  =  Σ_t f_t(v_t, v'_t),     one f_t for each pair of readings that some Ψ_k has,

and f_t is linear in w. A table of f_t up to a width makes a value as many look-ups as there are
pairs, however many functions there are: ten times as quick with the 181 functions of four queues,
whose six pairs have thirty functions each. Further out the functions themselves are asked, so the
values are the same everywhere.

    cells of table t at w   =   Ψ_t w[members of t]      Ψ_t: cells × members, made once for a basis
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualplan._kernels import values as kernels
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import UNBOUNDED, Box

MOST_TABLE_CELLS = 2**16  # of all tables together
MOST_TABLE_WIDTH = 64  # of a reading without an upper limit, or with a far one
LEAST_TABLE_WIDTH = 8  # below which states would lie beyond the tables too often
FUNCTIONS_A_TABLE = 3  # so many at least, or the functions themselves are as quick


@dataclass(frozen=True, eq=False)
class Block:
    """One table: its functions, by their numbers, and their values at its cells, a row for each."""

    members: Ints
    functions: Floats


@dataclass(frozen=True, eq=False)
class Layout:
    """The arrays of a basis, as kernels read them."""

    ints: Ints
    floats: Floats

    def at(self, read: Ints) -> Floats:
        """Its functions where the numbers read are given, one row of them for each value."""
        count = int(self.ints[3])
        # a basis of states whose coordinates are the readings themselves
        start = kernels.BASIS_HEADER_SIZE + 2 * int(self.ints[1]) + int(self.ints[0]) + 1
        start += int(self.ints[2])
        plain = np.concatenate([self.ints[:start], np.arange(count + 1), np.arange(count)])
        out = np.empty((len(read), int(self.ints[0])))
        kernels.functions_at(plain, self.floats, read, out)
        return out


@dataclass(frozen=True, eq=False)
class PairTables:
    """The tables of a basis, and their layout as kernels read it."""

    ints: Ints
    blocks: tuple[Block, ...]

    def cells(self, weights: Floats) -> Floats:
        """For given weights: of each cell the value and the sum of its absolute terms."""
        parts = []
        for block in self.blocks:
            own = weights[block.members]
            sizes = np.abs(block.functions) @ np.abs(own)
            parts.append(np.stack([block.functions @ own, sizes], axis=1).ravel())
        return np.concatenate(parts)


def pair_tables(
    box: Box, scopes: Sequence[tuple[int, ...]], readings: Sequence[tuple[int, ...]], basis: Layout
) -> PairTables | None:
    """Tables for functions that have the given scopes of readings; None where they are no gain."""
    if not readings or any(len(scope) > 2 for scope in scopes):
        return None
    pairs = _pairs(scopes, len(readings))
    width = min(_longest(box, readings), math.isqrt(MOST_TABLE_CELLS // len(pairs)))
    whole = width == _longest(box, readings)
    if len(scopes) < FUNCTIONS_A_TABLE * len(pairs) or not (whole or width >= LEAST_TABLE_WIDTH):
        return None
    lowest = [sum(int(box.lower[i]) for i in coordinates) for coordinates in readings]
    head = [basis.ints.size, len(pairs), width]
    ints = np.concatenate([head, lowest, np.ravel(pairs), basis.ints]).astype(np.int64)
    return PairTables(ints, tuple(_blocks(scopes, pairs, width, lowest, basis)))


def _longest(box: Box, readings: Sequence[tuple[int, ...]]) -> int:
    """Numbers that the longest reading can give, as far as tables go."""
    widths = [
        MOST_TABLE_WIDTH
        if any(box.upper[i] == UNBOUNDED for i in coordinates)
        else 1 + sum(int(box.upper[i]) - int(box.lower[i]) for i in coordinates)
        for coordinates in readings
    ]
    return min(max(widths), MOST_TABLE_WIDTH)


def _pairs(scopes: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, int]]:
    """The pairs of readings that functions have; a reading in none of them is one with itself."""
    pairs = list(dict.fromkeys((scope[0], scope[1]) for scope in scopes if len(scope) == 2))
    paired = {r for pair in pairs for r in pair}
    return pairs + [(r, r) for r in range(count) if r not in paired]


def _blocks(
    scopes: Sequence[tuple[int, ...]],
    pairs: list[tuple[int, int]],
    width: int,
    lowest: list[int],
    basis: Layout,
) -> list[Block]:
    """Each function belongs to the first table that has its readings."""
    owner = [next(t for t, pair in enumerate(pairs) if set(scope) <= set(pair)) for scope in scopes]
    row, column = np.divmod(np.arange(width * width), width)
    blocks = []
    for t, (first, second) in enumerate(pairs):
        read = np.tile(np.array(lowest, np.int64), (row.size, 1))
        read[:, first] += row
        if second != first:
            read[:, second] += column
        members = np.flatnonzero(np.array(owner) == t)
        blocks.append(Block(members, np.ascontiguousarray(basis.at(read)[:, members])))
    return blocks
