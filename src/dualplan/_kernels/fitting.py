"""Mutual information of all pairs of coordinates, from counts of small values."""

from __future__ import annotations

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOATS, INTS, ROWS, kernel

CODES = types.uint8[:, ::1]


@kernel(types.void(CODES, INTS, FLOATS, ROWS))
def mutual_information(codes, sizes, counts, out):
    """I(i; j) in nats; a row of codes 0, ..., size − 1 for each coordinate. `counts` has room for
    two sizes' product.

    With N samples, N·I = Σ n(u,v)·log n(u,v) − Σ n(u)·log n(u) − Σ n(v)·log n(v) + N·log N.
    """
    dim, samples = codes.shape
    for i in range(dim):  # the diagonal is the entropy, from which the others are made
        counts[: sizes[i]] = 0.0
        for k in range(samples):
            counts[codes[i, k]] += 1.0
        out[i, i] = samples * np.log(samples)
        for u in range(sizes[i]):
            if counts[u] > 0.0:
                out[i, i] -= counts[u] * np.log(counts[u])
    for i in range(dim):
        for j in range(i):
            counts[: sizes[i] * sizes[j]] = 0.0
            width = sizes[j]
            for k in range(samples):
                counts[codes[i, k] * width + codes[j, k]] += 1.0
            joint = samples * np.log(samples)
            for u in range(sizes[i] * sizes[j]):
                if counts[u] > 0.0:
                    joint -= counts[u] * np.log(counts[u])
            out[i, j] = max((out[i, i] + out[j, j] - joint) / samples, 0.0)
            out[j, i] = out[i, j]
    for i in range(dim):
        out[i, i] /= samples
