"""Loops of an algebraic multigrid on sparse matrices by rows: pairing of neighbours and
Gauss–Seidel sweeps.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOATS, INT, INTS, helper, kernel


@helper
def gather(ptr, columns, values, i, group, strength, near, count):
    """Add the couplings of i with partners that are still free to `strength`.

    The number of those noted in `near`.
    """
    for k in range(ptr[i], ptr[i + 1]):
        j = columns[k]
        if j != i and group[j] < 0 and values[k] < 0.0:
            if strength[j] == 0.0:
                near[count] = j
                count += 1
            strength[j] -= values[k]
    return count


@kernel(INT(INTS, INTS, FLOATS, INTS, INTS, FLOATS, INTS, FLOATS, INTS))
def pair_up(ptr, columns, values, back_ptr, back_columns, back_values, group, strength, near):
    """Join every unknown with the free one it is most strongly coupled to, in either direction; the
    number of groups.

    The matrix comes with its transpose. `strength` (zeros) and `near` are scratch of the same
    length as `group`.
    """
    groups = np.int64(0)
    for i in range(group.size):
        group[i] = -1
    for i in range(group.size):
        if group[i] >= 0:
            continue
        count = gather(ptr, columns, values, i, group, strength, near, np.int64(0))
        count = gather(back_ptr, back_columns, back_values, i, group, strength, near, count)
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


@kernel(types.void(INTS, INTS, FLOATS, FLOATS, FLOATS, FLOATS, types.boolean))
def gauss_seidel(ptr, columns, values, diagonal, right, x, forward):
    """One sweep of Gauss–Seidel on A x = right, up or down."""
    for t in range(x.size):
        if forward:
            i = t
        else:
            i = x.size - 1 - t
        rest = right[i]
        for k in range(ptr[i], ptr[i + 1]):
            rest -= values[k] * x[columns[k]]
        x[i] += rest / diagonal[i]
