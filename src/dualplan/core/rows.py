"""Rows of whole numbers, told apart: each row once, and where each of the given ones is then.

Where the ranges of the columns allow it a row becomes one number, by places as in a box: sorting
numbers takes a tenth of the time that sorting rows does.
"""

from __future__ import annotations

import math

import numpy as np

from dualplan.core.types import Ints

MOST_PACKED_BITS = 62.0


def distinct_rows(rows: Ints) -> tuple[Ints, Ints]:
    """The different rows in rising order, and the place of each given row among them."""
    if not rows.size:
        found, where = np.unique(rows, axis=0, return_inverse=True)
        return found, where.ravel()
    low = rows.min(axis=0)
    spans = [int(high) - int(least) + 1 for high, least in zip(rows.max(axis=0), low, strict=True)]
    if sum(math.log2(span) for span in spans) > MOST_PACKED_BITS:
        found, where = np.unique(rows, axis=0, return_inverse=True)
        return found, where.ravel()
    strides = np.array([math.prod(spans[i + 1 :]) for i in range(len(spans))], np.int64)
    _, first, where = np.unique((rows - low) @ strides, return_index=True, return_inverse=True)
    return np.ascontiguousarray(rows[first]), where
