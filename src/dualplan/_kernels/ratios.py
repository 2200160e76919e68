"""Ratios against a reference policy: cells of a partition, and rows for many pairs.

`cell_of` reads a partition: the number of parts, then for each its coordinate, the interval that
counts, the number of cuts and the cuts.
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels.compiler import (
    FLOAT_ROWS,
    FLOATS,
    INT,
    INT_ROWS,
    INTS,
    ROW_SIGNATURE,
    function_type,
    helper,
    kernel,
)


@helper
def cell_of(ints, o, x):
    """The cell of x in the partition at o, or −1."""
    cell = np.int64(0)
    at = o + 1
    for _ in range(ints[o]):
        v = x[ints[at]]
        cuts = ints[at + 3]
        if v < ints[at + 1] or v > ints[at + 2]:
            return np.int64(-1)
        place = np.int64(0)
        while place < cuts and ints[at + 4 + place] <= v:
            place += 1
        cell = cell * (cuts + 1) + place
        at += 4 + cuts
    return cell


@kernel(INT(function_type(ROW_SIGNATURE), INTS, FLOATS, INT_ROWS, INTS, INTS, INT_ROWS, FLOAT_ROWS))
def rows_at(row, ints, floats, states, actions, counts, indices, values):
    """The rows of the given pairs.

    The number of the first pair with a fault, which is in its count, or −1.
    """
    for n in range(actions.size):
        counts[n] = row(ints, floats, states[n], actions[n], indices[n], values[n])
        if counts[n] < 0:
            return n
    return -1
