"""Loops of an algebraic multigrid on sparse matrices by rows: pairing of neighbours and
Gauss–Seidel sweeps.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOATS, INT, INTS, helper, kernel
from dualplan._kernels.layouts import SPARSE


@helper
def gather(matrix, i, group, strength, near, count):
    """Add the couplings of i with partners that are still free to `strength`.

    The number of those noted in `near`.
    """
    for k in range(matrix.ptr[i], matrix.ptr[i + 1]):
        j = matrix.columns[k]
        if j != i and group[j] < 0 and matrix.values[k] < 0.0:
            if strength[j] == 0.0:
                near[count] = j
                count += 1
            strength[j] -= matrix.values[k]
    return count


@kernel(INT(SPARSE, SPARSE, INTS, FLOATS, INTS))
def pair_up(matrix, transpose, group, strength, near):
    """Join every unknown with the free one it is most strongly coupled to, in either direction; the
    number of groups.

    `strength` (zeros) and `near` are scratch of the same
    length as `group`.
    """
    groups = np.int64(0)
    for i in range(group.size):
        group[i] = -1
    for i in range(group.size):
        if group[i] >= 0:
            continue
        count = gather(matrix, i, group, strength, near, np.int64(0))
        count = gather(transpose, i, group, strength, near, count)
        best = np.int64(-1)
        most = 0.0
        for k in range(count):
            if strength[near[k]] > most:
                best = near[k]
                most = strength[near[k]]
            strength[near[k]] = 0.0
        group[i] = groups
        if best >= 0:
            group[best] = groups
        groups += 1
    return groups


@kernel(types.void(SPARSE, FLOATS, FLOATS, FLOATS, types.boolean))
def gauss_seidel(matrix, diagonal, right, x, forward):
    """One sweep of Gauss–Seidel on A x = right, up or down."""
    for t in range(x.size):
        if forward:
            i = t
        else:
            i = x.size - 1 - t
        rest = right[i]
        for k in range(matrix.ptr[i], matrix.ptr[i + 1]):
            rest -= matrix.values[k] * x[matrix.columns[k]]
        x[i] += rest / diagonal[i]
