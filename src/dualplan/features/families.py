"""Families of features.

table        any distributions on the pairs of a model that can be enumerated
occupancies  of policies, computed exactly; whole, or split by action
tiles        a policy's occupancy cut into tiles of the states, times an action or the choice of other policies:
             μ(x)·1{x in tile}·1{a = A} or μ(x)·1{x in tile}·π_k(a|x), each normalised
boxes        uniform on products of intervals, times an action
bands        uniform on the states whose weighted sum of coordinates lies in an interval, times an action; such states
             are counted and drawn by dynamic programming over the coordinates:  N_i(v) = Σ_k N_{i+1}(v − w_i·k)
paper        the 366 or 372 features of the paper's experiment

Products of laws are in `products.py`, mixtures of features in `mixtures.py`, the user's own in `user.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels.features import BANDS, BOXES, TABLE
from dualplan.criteria import Average, Criterion
from dualplan.errors import InputError
from dualplan.exact.operators import Sweeper
from dualplan.exact.policy import evaluate_exact
from dualplan.features.contract import Block, Features, concat, estimated_losses
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy
from dualplan.types import Floats, Ints

Interval = tuple[int, int]
CHECKED = 10  # draws of each feature at which actions must be allowed; solving looks at all that it meets
PAPER_BANDS = tuple((low + 1, low + 5) for low in range(0, 50, 5))
PAPER_INTERVALS = ((0, 10), (11, 20), (21, 25))


# -- tables of enumerable models --------------------------------------------------------------------------------------


def table(model: Model, matrix: Any, names: Sequence[str] | None = None) -> Features:
    """One column for each feature, one row for each pair x·A + a in the order of `Box.index`."""
    losses = Sweeper(model).losses.ravel()
    columns = sp.csc_array(matrix)
    count, actions = int(model.box.count or 0), len(model.actions)
    if columns.shape[0] != count * actions or columns.shape[1] == 0:
        raise InputError(f"a table of features has {count * actions} rows, got the shape {columns.shape}.")
    _check_columns(model, columns, ~np.isnan(losses))
    columns.sort_indices()
    columns.eliminate_zeros()
    rows = sp.csr_array(columns)
    cumulative = np.concatenate(
        [np.cumsum(columns.data[a:b]) for a, b in itertools.pairwise(columns.indptr)]
    )  # each column for itself
    head = [model.box.dim, actions, count * actions, columns.shape[1], *model.box.lower, *model.box.strides]
    ints = np.concatenate([head, rows.indptr, rows.indices, columns.indptr, columns.indices]).astype(np.int64)
    labels = tuple(f"feature {j}" for j in range(columns.shape[1])) if names is None else tuple(names)
    if len(labels) != columns.shape[1]:
        raise InputError(f"{columns.shape[1]} features need as many names, got {len(labels)}.")
    widest = int(np.diff(rows.indptr).max())
    expected = np.asarray(columns.T @ np.nan_to_num(losses))
    block = Block(TABLE, ints, np.concatenate([rows.data, cumulative]), labels, widest, expected, np.zeros(len(labels)))
    return Features(model, [block])


def _check_columns(model: Model, columns: Any, allowed: Any) -> None:
    sums = np.asarray(columns.sum(axis=0)).ravel()
    bad = np.flatnonzero((np.abs(sums - 1) > 1e-9) | ~np.isfinite(sums))
    if bad.size:
        raise InputError(f"feature {bad[0]} sums to {sums[bad[0]]:.9g}, not 1; features are distributions on pairs.")
    if columns.nnz and columns.data.min() < 0:
        raise InputError("features are distributions on pairs; an entry is negative.")
    if not allowed[columns.indices[columns.data > 0]].all():
        raise InputError(f"a feature gives weight to an action that {model.name!r} does not allow.")


def occupancies(
    model: Model, policies: Sequence[Policy], criterion: Criterion | None = None, *, by_action: bool = False
) -> Features:
    """The exact occupancies of policies, normalised to 1; with `by_action`, one feature for each action of each."""
    columns, names = [], []
    if not policies:
        raise InputError("occupancies need at least one policy.")
    for policy in policies:
        occupancy = _occupancy(model, policy, criterion)
        for a in range(len(model.actions)) if by_action else [None]:
            part = occupancy if a is None else np.where(np.arange(occupancy.shape[1]) == a, occupancy, 0.0)
            if part.sum() > 0:
                columns.append(sp.csc_array((part / part.sum()).reshape(-1, 1)))
                names.append(policy.name if a is None else f"{policy.name}, {model.actions[a]}")
    return table(model, sp.hstack(columns), names)


def tiles(
    model: Model,
    policy: Policy,
    cuts: Sequence[Sequence[Interval]],
    *,
    choices: Sequence[Policy] | None = None,
    criterion: Criterion | None = None,
) -> Features:
    """A policy's stationary law cut into products of intervals, times each action, or each policy's own choice."""
    if len(cuts) != model.box.dim:
        raise InputError(f"tiles need intervals for each of {model.box.dim} coordinates, got {len(cuts)}.")
    mu = _occupancy(model, policy, criterion).sum(axis=1)
    every = model.box.states(np.arange(mu.size))
    laws = _actions(model) if choices is None else [(p.name, _table_of(model, p)) for p in choices]
    columns, names = [], []
    for tile in itertools.product(*cuts):
        inside = np.all([(low <= every[:, i]) & (every[:, i] <= high) for i, (low, high) in enumerate(tile)], axis=0)
        for name, law in laws:
            part = np.where(inside[:, None], mu[:, None] * law, 0.0)
            if part.sum() > 0:
                columns.append(sp.csc_array((part / part.sum()).reshape(-1, 1)))
                names.append(f"{tile}, {name}")
    if not columns:
        raise InputError(f"policy {policy.name!r} is never in any of the tiles.")
    return table(model, sp.hstack(columns), names)


def _actions(model: Model) -> list[tuple[str, Floats]]:
    allowed = ~np.isnan(Sweeper(model).losses)
    return [(name, allowed * (np.arange(allowed.shape[1]) == a)) for a, name in enumerate(model.actions)]


def _table_of(model: Model, policy: Policy) -> Floats:
    return Sweeper(model).probabilities(policy, np.arange(int(model.box.count or 0)))


def _occupancy(model: Model, policy: Policy, criterion: Criterion | None) -> Floats:
    """μ(x)·π(a|x) as a table of states and actions, which sums to 1."""
    result = evaluate_exact(model, policy, criterion or Average())
    full = np.zeros((int(model.box.count or 0), len(model.actions)))
    full[result.reached] = result.occupancy[:, None] * Sweeper(model).probabilities(policy, result.reached)
    return np.asarray(full / full.sum())


# -- closed forms at any scale ----------------------------------------------------------------------------------------


def boxes(model: Model, cuts: Sequence[Sequence[Interval]]) -> Features:
    """Uniform on each product of intervals, one from `cuts[i]` for each coordinate i, times each action."""
    if len(cuts) != model.box.dim:
        raise InputError(f"boxes need intervals for each of {model.box.dim} coordinates, got {len(cuts)}.")
    for i, intervals in enumerate(cuts):
        ends = [model.box.lower[i] - 1, *(v for interval in sorted(intervals) for v in interval)]
        if not intervals or any(b < a + (k % 2 == 0) for k, (a, b) in enumerate(itertools.pairwise(ends))):
            raise InputError(f"the intervals of coordinate {i} must not be empty, overlap, or start below the box.")
        if ends[-1] > model.box.upper[i]:
            raise InputError(f"an interval of coordinate {i} ends at {ends[-1]}, above its limit {model.box.upper[i]}.")
    flat = [interval for intervals in cuts for interval in intervals]
    head = [model.box.dim, len(model.actions), *(len(c) for c in cuts)]
    ints = np.array([*head, *(low for low, _ in flat), *(high for _, high in flat)], np.int64)
    products = list(itertools.product(*cuts))
    names = tuple(f"box {product}, {action}" for product in products for action in model.actions)
    laws = (
        [(np.arange(low, high + 1), np.full(high - low + 1, 1 / (high - low + 1))) for low, high in product]
        for product in products
    )
    return closed_form(model, BOXES, ints, np.zeros(0), names, laws)


def bands(model: Model, intervals: Sequence[Interval], weights: Sequence[int] | None = None) -> Features:
    """Uniform on the states with low <= Σ w_i·x_i <= high for each (low, high), times each action; weights are 1."""
    given = np.array([1] * model.box.dim if weights is None else weights)
    w = given.astype(np.int64)
    if not np.array_equal(w, given) or w.size != model.box.dim or (w < 1).any() or (model.box.lower != 0).any():
        raise InputError("bands need a positive integer weight for each coordinate, and coordinates that start at 0.")
    if any(not 0 <= low <= high for low, high in intervals):
        raise InputError("the limits of a band must be integers with 0 <= low <= high.")
    most = max(high for _, high in intervals)
    band_of = np.full(most + 1, -1)
    for band, (low, high) in enumerate(intervals):
        if (band_of[low : high + 1] >= 0).any():
            raise InputError(f"the band ({low}, {high}) overlaps another one.")
        band_of[low : high + 1] = band
    top = np.minimum(model.box.upper, most // w)
    ways = _ways(w, top, most)
    sizes = np.array([ways[0, low : high + 1].sum() for low, high in intervals])
    if (sizes == 0).any():
        raise InputError(f"the band {intervals[int(np.argmin(sizes))]} holds no state.")
    head = [model.box.dim, len(model.actions), len(intervals), most, *w, *top, *band_of]
    ints = np.array([*head, *(low for low, _ in intervals), *(high for _, high in intervals)], np.int64)
    names = tuple(f"band {interval}, {action}" for interval in intervals for action in model.actions)
    laws = (_band_marginals(w, top, most, interval) for interval in intervals)
    return closed_form(model, BANDS, ints, np.concatenate([ways.ravel(), sizes]), names, laws)


def _ways(weights: Ints, top: Ints, most: int) -> Floats:
    """N_i(v): in how many ways the coordinates from i on make the sum v."""
    ways = np.zeros((weights.size + 1, most + 1))
    ways[-1, 0] = 1.0
    for i in range(weights.size - 1, -1, -1):
        for k in range(int(top[i]) + 1):
            shift = k * int(weights[i])
            ways[i, shift:] += ways[i + 1, : most + 1 - shift]
    return ways


def _band_marginals(weights: Ints, top: Ints, most: int, interval: Interval) -> list[tuple[Ints, Floats]]:
    """The law of each coordinate under the uniform law of a band."""
    laws = []
    for i in range(weights.size):
        others = _ways(np.delete(weights, i), np.delete(top, i), most)[0]
        values = np.arange(int(top[i]) + 1)
        low, high = interval
        counts = np.array(
            [others[max(low - k * weights[i], 0) : max(high - k * weights[i] + 1, 0)].sum() for k in values]
        )
        laws.append((values, counts / counts.sum()))
    return laws


def closed_form(
    model: Model, kind: int, ints: Ints, floats: Floats, names: tuple[str, ...], laws: Any, widest: int = 1
) -> Features:
    """A block of laws that say nothing of the action; losses that are sums over the coordinates are exact.

    `laws` are the values and probabilities of each coordinate for each law, or None if they are too many to sum.
    """
    actions, unknown = len(model.actions), np.full(len(names), np.nan)
    block = Block(kind, ints, floats, names, widest, unknown, unknown)
    _check_allowed(Features(model, [block]))
    parts = _separable(model)
    if parts is None or laws is None:
        return Features(model, [estimated_losses(model, block)])
    means = [sum(p @ part(v) for part, (v, p) in zip(parts, law, strict=True)) for law in laws]
    exact = np.repeat(np.array(means, np.float64), actions)
    return Features(model, [replace(block, losses=exact, errors=np.zeros(exact.size))])


def _separable(model: Model) -> list[Callable[[Ints], Floats]] | None:
    """The loss as a sum of functions of single coordinates, if it is one."""
    if not isinstance(model, QueueingNetwork) or any(c.penalty > 0 for c in model.classes):
        return None
    extra = model.box.dim - len(model.classes)

    def part(c: Any) -> Callable[[Ints], Floats]:
        return lambda v: c.holding * v + c.quadratic * v * v + c.excess * np.maximum(0.0, v - c.level)

    return [part(c) for c in model.classes] + [lambda v: np.zeros(v.size)] * extra


def _check_allowed(features: Features) -> None:
    model = features.model
    for j in range(len(features)):
        for x, a in zip(*features.draw(j, CHECKED), strict=True):
            if not model.allowed(x)[a]:
                raise InputError(
                    f"feature {features.names[j]!r} gives weight to an action that {model.name!r} does not allow in "
                    f"state {tuple(x.tolist())}; use tiles or a table."
                )


def paper(model: Model, count: int = 372, criterion: Criterion | None = None) -> Features:
    """The features of the paper's experiment on the four-queue network: 366 by its text, 372 by its count.

    LONGER and LBFS (372: each split by action), ten bands of the loss and 3⁴ boxes, times the actions. A part that is
    empty is left out: from an empty network without phantoms LBFS never has both last queues to serve, so there 372 is
    371. Under the discounted criterion the heuristics' occupancies are the discounted ones.
    """
    if count not in (366, 372):
        raise InputError(f"the paper's features are 366 or 372, got {count}.")
    top = int(min(model.box.upper.min(), UNBOUNDED))
    if model.box.dim != 4 or len(model.actions) != 4 or top < PAPER_INTERVALS[-1][1]:
        raise InputError("the paper's features are for a network of four queues with buffers of at least 25.")
    heuristics = [model.policy("longer"), model.policy("lbfs")]
    return concat(
        occupancies(model, heuristics, criterion, by_action=count == 372),
        bands(model, PAPER_BANDS),
        boxes(model, [PAPER_INTERVALS] * 4),
    )
