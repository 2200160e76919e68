"""Value functions that are sums of products of one-dimensional pieces.

A piece is a function of one number v that is read off a state: a coordinate, or a sum of several.
A basis of K functions over P pieces, of R readings with C coordinates in all, is two flat arrays,

    ints     [K, P, M, R, reading of each piece, its kind, K + 1 places in the list of members, M
             members, R + 1 places in the list of coordinates, C coordinates]
    floats   three parameters (p, q, s) for each piece

and function k is the product of the pieces that are its members (none: the constant 1). A piece at
v is

    POWER_PIECE  ((v − q)/s)^p              BETWEEN_PIECE  1 if p <= v <= q, else 0
    HINGE_PIECE  max(v − p, 0)/s            CAPPED_PIECE  min(v, p)/s

*Tables.* Where every function reads at most two numbers, Σ w_k Ψ_k is a sum of tables over pairs of
readings, one for each pair that some function reads. With T tables of W numbers a side, 2·W² cells
each (a value, and the sum of its absolute terms),

    ints     [size of the basis's ints, T, W, lowest number of each reading, first and second
             reading of each table, the basis's ints]
    floats   [cells of all tables, the weights, the basis's floats]

A state with a reading beyond the tables is valued function by function.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import (
    FLOAT_ROWS,
    FLOATS,
    INT_ROWS,
    INTS,
    VALUE_SIGNATURE,
    helper,
    kernel,
)

POWER_PIECE, BETWEEN_PIECE, HINGE_PIECE, CAPPED_PIECE = range(4)
BASIS_HEADER_SIZE = 4
TABLES_HEADER_SIZE = 3
PIECE_PARAMETERS = 3


@helper
def piece_value(kind, p, q, s, v):
    if kind == BETWEEN_PIECE:
        if p <= v <= q:
            return 1.0
        return 0.0
    if kind == HINGE_PIECE:
        return max(v - p, 0.0) / s
    if kind == CAPPED_PIECE:
        return min(v, p) / s
    base = (v - q) / s
    power = 1.0
    for _ in range(int(p)):
        power *= base
    return power


@helper
def reading(bi, x, r):
    """The number that reading r takes off x."""
    places = BASIS_HEADER_SIZE + 2 * bi[1] + bi[0] + 1 + bi[2]
    coordinates = places + bi[3] + 1
    total = 0
    for c in range(bi[places + r], bi[places + r + 1]):
        total += x[bi[coordinates + c]]
    return total


@helper
def piece_values(bi, bf, x, pieces):
    """Write the value of every piece at x."""
    count = bi[1]
    for j in range(count):
        f = PIECE_PARAMETERS * j
        v = float(reading(bi, x, bi[BASIS_HEADER_SIZE + j]))
        pieces[j] = piece_value(bi[BASIS_HEADER_SIZE + count + j], bf[f], bf[f + 1], bf[f + 2], v)


@helper
def product(bi, pieces, k):
    """Ψ_k from the values of the pieces."""
    places = BASIS_HEADER_SIZE + 2 * bi[1]
    members = places + bi[0] + 1
    value = 1.0
    for m in range(bi[places + k], bi[places + k + 1]):
        value *= pieces[bi[members + m]]
        if value == 0.0:
            break
    return value


@helper
def weighted(bi, weights, pieces):
    """Σ w_k Ψ_k and Σ |w_k Ψ_k|."""
    total = 0.0
    size = 0.0
    for k in range(bi[0]):
        if weights[k] != 0.0:
            term = weights[k] * product(bi, pieces, k)
            total += term
            size += abs(term)
    return total, size


@kernel(types.void(INTS, FLOATS, INT_ROWS, FLOAT_ROWS), allocates=True)
def functions_at(bi, bf, states, out):
    """Ψ(x), a row for each of the given states."""
    pieces = np.empty(bi[1], np.float64)
    for n in range(out.shape[0]):
        piece_values(bi, bf, states[n], pieces)
        for k in range(bi[0]):
            out[n, k] = product(bi, pieces, k)


@kernel(types.void(INTS, FLOATS, FLOATS, INT_ROWS, FLOATS), allocates=True)
def values_at(bi, bf, weights, states, out):
    """Σ w_k Ψ_k(x) of the given states."""
    pieces = np.empty(bi[1], np.float64)
    for n in range(out.size):
        piece_values(bi, bf, states[n], pieces)
        out[n] = weighted(bi, weights, pieces)[0]


@kernel(VALUE_SIGNATURE)
def linear_value(ints, floats, x, room):
    """Σ w_k Ψ_k(x); ints: the basis's, floats: the weights, the basis's.

    Room: one and a number for each piece.
    """
    piece_values(ints, floats[ints[0] :], x, room[1:])
    total, room[0] = weighted(ints, floats[: ints[0]], room[1:])
    return total


@kernel(VALUE_SIGNATURE)
def tabled_value(ints, floats, x, room):
    """The same from tables over pairs of readings; room as before, and a number for each
    reading.
    """
    tables = ints[1]
    width = ints[2]
    basis = ints[ints.size - ints[0] :]
    readings = basis[3]
    first = TABLES_HEADER_SIZE + readings
    inside = True
    for r in range(readings):
        place = reading(basis, x, r) - ints[TABLES_HEADER_SIZE + r]
        room[1 + r] = place
        if place < 0 or place >= width:
            inside = False
    cells = 2 * width * width * tables
    if not inside:
        weights = floats[cells : cells + basis[0]]
        piece_values(basis, floats[cells + basis[0] :], x, room[1:])
        total, room[0] = weighted(basis, weights, room[1:])
        return total
    total = 0.0
    size = 0.0
    for t in range(tables):
        row = int(room[1 + ints[first + 2 * t]])
        column = int(room[1 + ints[first + 2 * t + 1]])
        cell = 2 * ((t * width + row) * width + column)
        total += floats[cell]
        size += floats[cell + 1]
    room[0] = size
    return total
