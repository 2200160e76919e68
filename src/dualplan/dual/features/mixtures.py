"""Mixtures of features: ψ_k = Σ_j W_kj·φ_j with W >= 0 and rows that sum to 1.

    ℓᵀψ = W·(ℓᵀφ),        standard errors <= W·(those of ℓᵀφ)

whatever the dependence of the estimates. Mixtures of mixtures are mixtures, with the product of the
weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels.features import MIXTURES
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.dual.features.contract import Block, Features


def mixtures(features: Features, weights: Any, names: Sequence[str] | None = None) -> Features:
    """One mixture for each row of the weights, which have a column for each feature."""
    given = _checked(features, weights)
    if names is None:
        labels = tuple(f"mixture {k}" for k in range(given.shape[0]))
    else:
        labels = tuple(names)
    if len(labels) != given.shape[0]:
        raise InputError(f"{given.shape[0]} mixtures need as many names, got {len(labels)}.")
    mixed, matrix = _unmixed(features, given)
    ints, floats, most = _fields(mixed, matrix)
    losses = given @ features.losses
    errors = given @ features.errors
    widest = most + mixed.widest
    block = Block(
        MIXTURES,
        ints,
        floats,
        labels,
        widest,
        losses,
        errors,
        mixed.room,
        mixed,
        matrix,
        mixed.user,
    )
    return Features(features.model, [block])


def _checked(features: Features, weights: Any) -> sp.csr_array:
    matrix = sp.csr_array(weights, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] == 0 or matrix.shape[1] != len(features):
        raise InputError(
            f"the weights of mixtures need {len(features)} columns, got the shape {matrix.shape}."
        )
    matrix.sum_duplicates()
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= 1e-9))
    if wrong.size:
        raise InputError(f"the weights of mixture {wrong[0]} sum to {sums[wrong[0]]:.9g}, not 1.")
    if matrix.data.min() < 0:
        raise InputError("the weights of mixtures must not be negative.")
    matrix.eliminate_zeros()
    return matrix


def _unmixed(features: Features, weights: sp.csr_array) -> tuple[Features, sp.csr_array]:
    """The same mixtures over a set that has none."""
    blocks = list[Block]()
    columns = list[Any]()
    ends = np.cumsum([0, *(len(block.names) for block in features.blocks)])
    for block, (first, last) in zip(features.blocks, itertools.pairwise(ends), strict=True):
        part = sp.csc_array(weights)[:, first:last]
        blocks += [block] if block.mixed is None else block.mixed.blocks
        columns.append(part if block.weights is None else part @ block.weights)
    return Features(features.model, blocks), sp.csr_array(sp.hstack(columns))


def _fields(mixed: Features, matrix: sp.csr_array) -> tuple[Ints, Floats, int]:
    """The compiled form, and how many mixtures can be positive at a pair."""
    rows = sp.csr_array(matrix)
    columns = sp.csc_array(matrix)
    rows.sort_indices()
    columns.sort_indices()
    largest = np.sort(np.diff(columns.indptr))[-mixed.widest :]
    most = min(rows.shape[0], int(largest.sum()))
    cumulative = np.concatenate(
        [np.cumsum(rows.data[a:b]) for a, b in itertools.pairwise(rows.indptr)]
    )
    head = np.array([*rows.shape, rows.nnz, most])
    inner = mixed.code
    parts = [head, columns.indptr, columns.indices, rows.indptr, rows.indices, inner.ints]
    return (
        np.concatenate(parts).astype(np.int64),
        np.concatenate([columns.data, cumulative, inner.floats]),
        most,
    )
