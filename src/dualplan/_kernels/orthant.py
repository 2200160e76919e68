"""Coefficients of the drift of products of functions of single coordinates, on cells (see
values/cells.py).

`table[i, f, e, 1 + s]` is coefficient e of factor f of coordinate i, moved by s ∈ {−1, 0, 1}. A row
is one coefficient e_i for each coordinate, and the coefficient of a product is the product of those
of its factors. `down` and `up` are the coordinates that a move takes one from and adds one to, −1
for none.

All entries are integers, so a product below 2^53 is exact; `sizes` add up what rounding may touch.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOAT_ROWS, FLOATS, INT_ROWS, helper, kernel

FLOAT_TABLE = types.float64[:, :, :, ::1]
FLOAT_CUBE = types.float64[:, :, ::1]
LARGEST_EXACT_INTEGER = 2.0**53


@helper
def contrast(table, factors, row, k, down, up):
    """The coefficients of function k after a move and before it."""
    before = 1.0
    after = 1.0
    for i in range(row.size):
        f = factors[k, i]
        e = row[i]
        stays = table[i, f, e, 1]
        before *= stays
        if i == down:
            after *= table[i, f, e, 0]
        elif i == up:
            after *= table[i, f, e, 2]
        elif stays == 0.0:
            return 0.0, 0.0
        else:
            after *= stays
    return after, before


@helper
def rounded(after, before):
    """What rounding may touch of their difference."""
    if abs(after) + abs(before) >= LARGEST_EXACT_INTEGER:
        return abs(after) + abs(before)
    return 0.0


@helper
def parts(table, factors, row, k):
    """The product of the coefficients of function k other than 0, how many are 0, and two places of
    these (or −1).
    """
    product = 1.0
    zeros = 0
    first = -1
    second = -1
    for i in range(row.size):
        entry = table[i, factors[k, i], row[i], 1]
        if entry != 0.0:
            product *= entry
        else:
            zeros, first, second = zeros + 1, i, first
    return product, zeros, first, second


@helper
def replaced(table, factors, row, k, i, s):
    """What a factor other than 0 is divided by, and what it is multiplied with, when coordinate i
    moves by s.
    """
    if i < 0:
        return 1.0, 1.0
    entries = table[i, factors[k, i], row[i]]
    return entries[1] if entries[1] != 0.0 else 1.0, entries[1 + s]


@kernel(
    types.void(FLOAT_TABLE, INT_ROWS, INT_ROWS, INT_ROWS, INT_ROWS, FLOATS, FLOAT_ROWS, FLOAT_ROWS)
)
def drifts(table, factors, rows, down, up, weights, out, sizes):
    """Σ_k w_k (Ψ_k after − Ψ_k before) of every row and move, and the sum of the absolute terms."""
    for r in range(rows.shape[0]):
        for m in range(out.shape[1]):
            out[r, m] = 0.0
            sizes[r, m] = 0.0
        for k in range(weights.size):
            product, zeros, first, second = parts(table, factors, rows[r], k)
            if weights[k] == 0.0 or zeros > 2:  # no move changes three coordinates
                continue
            if zeros == 0:
                before = product
            else:
                before = 0.0
            for m in range(out.shape[1]):
                i = down[r, m]
                j = up[r, m]
                if (first >= 0 and first != i and first != j) or (
                    second >= 0 and second != i and second != j
                ):
                    continue
                less, by = replaced(table, factors, rows[r], k, i, -1)
                fewer, times = replaced(table, factors, rows[r], k, j, 1)
                after = product / (less * fewer) * (by * times)  # integers divided without rest
                if after != before:
                    out[r, m] += weights[k] * (after - before)
                    sizes[r, m] += abs(weights[k]) * abs(after - before)
                sizes[r, m] += abs(weights[k]) * rounded(after, before)


@kernel(types.void(FLOAT_TABLE, INT_ROWS, INT_ROWS, INT_ROWS, INT_ROWS, FLOAT_CUBE))
def contrasts(table, factors, rows, down, up, out):
    """Ψ_k after − Ψ_k before, of every row, move and function."""
    for r in range(rows.shape[0]):
        for m in range(out.shape[1]):
            for k in range(out.shape[2]):
                out[r, m, k] = 0.0
                if down[r, m] >= 0 or up[r, m] >= 0:
                    after, before = contrast(table, factors, rows[r], k, down[r, m], up[r, m])
                    out[r, m, k] = after - before


@kernel(types.void(FLOAT_TABLE, INT_ROWS, INT_ROWS, FLOAT_ROWS))
def products(table, factors, rows, out):
    """Ψ_k itself, of every row and function."""
    for r in range(rows.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] = contrast(table, factors, rows[r], k, np.int64(-1), np.int64(-1))[1]
