"""Families of features.

table        any distributions on the pairs of a model that can be enumerated
occupancies  of policies, computed exactly; whole, or split by action. Where states are too many
             to list, the law of a tree fitted to simulated visits takes the place of μ
tiles        a policy's occupancy cut into tiles of the states, times an action or the choice of
             other policies:
             μ(x)·1{x in tile}·1{a = A} or μ(x)·1{x in tile}·π_k(a|x), each normalised
boxes        uniform on products of intervals, times an action, or the choice of a policy
bands        uniform on the states whose weighted sum of coordinates lies in an interval, times an
             action, or the choice
             of a policy; such states are counted and drawn by dynamic programming over the
             coordinates: N_i(v) = Σ_k N_{i+1}(v − w_i·k)
paper        the 366 or 372 features of the paper's experiment

Products of laws are in `products.py`, laws that factor along trees, and their tiles at any scale,
in `trees.py`, mixtures of features in `mixtures.py`, the user's own in `user.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels.features import BANDS, BOXES, TABLE
from dualplan.core.budgets import MOST_LISTED_STATES
from dualplan.core.checks import is_number
from dualplan.core.errors import InputError, MissingError, PolicyError
from dualplan.core.types import Floats, Ints
from dualplan.dual.features.choices import Choices
from dualplan.dual.features.contract import Block, Features, check_allowed, concat, estimated_losses
from dualplan.dual.features.tree_fits import fitted_law
from dualplan.dual.features.tree_laws import Node, Tree
from dualplan.dual.features.trees import check_pairs, trees
from dualplan.exact.operators import Sweeper
from dualplan.exact.policy import evaluate_exact
from dualplan.models.contract import UNBOUNDED, Model, few_states
from dualplan.models.criteria import Criterion, require_criterion
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy
from dualplan.policies.tables import AnyPolicy, as_policy

Interval = tuple[int, int]
MOST_TILED_STATES = 2**31  # that can be numbered for tiles
PAPER_BANDS = tuple((low + 1, low + 5) for low in range(0, 50, 5))
PAPER_INTERVALS = ((0, 10), (11, 20), (21, 25))


# -- tables of enumerable models -------------------------------------------------------------------


def table(model: Model, matrix: Any, names: Sequence[str] | None = None) -> Features:
    """One column for each feature, one row for each pair x·A + a in the order of `Box.index`."""
    losses = Sweeper(model).losses.ravel()
    columns = sp.csc_array(matrix)
    count = int(model.box.count or 0)
    actions = len(model.actions)
    if columns.shape[0] != count * actions or columns.shape[1] == 0:
        raise InputError(
            f"a table of features has {count * actions} rows, got the shape {columns.shape}."
        )
    _check_columns(model, columns, ~np.isnan(losses))
    columns.sort_indices()
    columns.eliminate_zeros()
    rows = sp.csr_array(columns)
    cumulative = np.concatenate(
        [np.cumsum(columns.data[a:b]) for a, b in itertools.pairwise(columns.indptr)]
    )  # each column for itself
    head = [
        model.box.dim,
        actions,
        count * actions,
        columns.shape[1],
        *model.box.lower,
        *model.box.strides,
    ]
    ints = np.concatenate(
        [head, rows.indptr, rows.indices, columns.indptr, columns.indices]
    ).astype(np.int64)
    if names is None:
        labels = tuple(f"feature {j}" for j in range(columns.shape[1]))
    else:
        labels = tuple(names)
    if len(labels) != columns.shape[1]:
        raise InputError(f"{columns.shape[1]} features need as many names, got {len(labels)}.")
    widest = int(np.diff(rows.indptr).max())
    expected = np.asarray(columns.T @ np.nan_to_num(losses))
    block = Block(
        TABLE,
        ints,
        np.concatenate([rows.data, cumulative]),
        labels,
        widest,
        expected,
        np.zeros(len(labels)),
    )
    return Features(model, [block])


def _check_columns(model: Model, columns: Any, allowed: Any) -> None:
    sums = np.asarray(columns.sum(axis=0)).ravel()
    bad = np.flatnonzero((np.abs(sums - 1) > 1e-9) | ~np.isfinite(sums))
    if bad.size:
        raise InputError(
            f"feature {bad[0]} sums to {sums[bad[0]]:.9g}, not 1; features are distributions on "
            "pairs."
        )
    if columns.nnz and columns.data.min() < 0:
        raise InputError("features are distributions on pairs; an entry is negative.")
    if not allowed[columns.indices[columns.data > 0]].all():
        raise InputError(f"a feature gives weight to an action that {model.name!r} does not allow.")


def occupancies(
    model: Model,
    policies: Sequence[AnyPolicy],
    criterion: Criterion | None = None,
    *,
    by_action: bool = False,
) -> Features:
    """The occupancies of policies or functions of the state, normalised to 1: exact where states
    can be listed.

    With `by_action`, one feature for each action of each. Where states are too many to list, each
    is the law of a tree fitted to simulated visits times what the policy does there, and its flow
    violation measures how far that is from the truth.
    """
    columns = []
    names = []
    if not policies:
        raise InputError("occupancies need at least one policy.")
    chosen = [as_policy(model, policy) for policy in policies]
    if not few_states(model, MOST_LISTED_STATES):
        return _simulated(model, chosen, criterion, by_action=by_action)
    for policy in chosen:
        occupancy = _occupancy(model, policy, criterion)
        for a in range(len(model.actions)) if by_action else [None]:
            if a is None:
                part = occupancy
            else:
                part = np.where(np.arange(occupancy.shape[1]) == a, occupancy, 0.0)
            if part.sum() > 0:
                columns.append(sp.csc_array((part / part.sum()).reshape(-1, 1)))
                names.append(policy.name if a is None else f"{policy.name}, {model.actions[a]}")
    return table(model, sp.hstack(columns), names)


def _simulated(
    model: Model, policies: Sequence[Policy], criterion: Criterion | None, *, by_action: bool
) -> Features:
    """Laws of trees fitted to where policies go, times what they do."""
    if by_action:
        raise InputError(
            f"occupancies split by action are exact ones, and {model.name!r} has too many states; "
            "use trees, whose laws are fitted to simulated visits, times the actions."
        )
    for policy in policies:
        if policy.code is None:
            raise PolicyError(
                f"policy {policy.name!r} cannot be compiled and the states of {model.name!r} "
                "cannot be listed, so its occupancy is no feature; use it in ratios "
                "(features.portfolio), which only simulate it."
            )
    laws = [fitted_law(model, policy, criterion) for policy in policies]
    alone = [trees(model, [law], choices=[p]) for law, p in zip(laws, policies, strict=True)]
    return concat(*alone)


def tiles(
    model: Model,
    policy: AnyPolicy,
    cuts: Sequence[Sequence[Interval]],
    *,
    choices: Sequence[AnyPolicy] | None = None,
    criterion: Criterion | None = None,
) -> Features:
    """A policy's stationary law cut into products of intervals, times each action, or each policy's
    own choice.
    """
    if model.box.count is None or model.box.count >= MOST_TILED_STATES:
        raise MissingError(
            f"tiles cut an exact stationary law, and {model.name!r} has too many states for one; "
            "use trees(model, [fit_tree(model, policy)], cuts=...)."
        )
    if len(cuts) != model.box.dim:
        raise InputError(
            f"tiles need intervals for each of {model.box.dim} coordinates, got {len(cuts)}."
        )
    law_of = as_policy(model, policy)
    mu = _occupancy(model, law_of, criterion).sum(axis=1)
    every = model.box.states(np.arange(mu.size))
    if choices is None:
        laws = _actions(model)
    else:
        chosen = [as_policy(model, choice) for choice in choices]
        laws = [(p.name, _table_of(model, p)) for p in chosen]
    columns = []
    names = []
    for tile in itertools.product(*cuts):
        inside = np.all(
            [(low <= every[:, i]) & (every[:, i] <= high) for i, (low, high) in enumerate(tile)],
            axis=0,
        )
        for name, law in laws:
            part = np.where(inside[:, None], mu[:, None] * law, 0.0)
            if part.sum() > 0:
                columns.append(sp.csc_array((part / part.sum()).reshape(-1, 1)))
                names.append(f"{tile}, {name}")
    if not columns:
        raise InputError(f"policy {law_of.name!r} is never in any of the tiles.")
    return table(model, sp.hstack(columns), names)


def _actions(model: Model) -> list[tuple[str, Floats]]:
    allowed = ~np.isnan(Sweeper(model).losses)
    return [
        (name, allowed * (np.arange(allowed.shape[1]) == a)) for a, name in enumerate(model.actions)
    ]


def _table_of(model: Model, policy: Policy) -> Floats:
    return Sweeper(model).probabilities(policy, np.arange(int(model.box.count or 0)))


def _occupancy(model: Model, policy: Policy, criterion: Criterion | None) -> Floats:
    """μ(x)·π(a|x) as a table of states and actions, which sums to 1."""
    result = evaluate_exact(model, policy, criterion)
    full = np.zeros((int(model.box.count or 0), len(model.actions)))
    full[result.reached] = result.occupancy[:, None] * Sweeper(model).probabilities(
        policy, result.reached
    )
    return np.asarray(full / full.sum())


# -- closed forms at any scale ---------------------------------------------------------------------


def boxes(
    model: Model, cuts: Sequence[Sequence[Interval]], *, choices: Sequence[AnyPolicy] | None = None
) -> Features:
    """Uniform on each product of intervals, one from `cuts[i]` for each coordinate i, times each
    action or choice.
    """
    if len(cuts) != model.box.dim:
        raise InputError(
            f"boxes need intervals for each of {model.box.dim} coordinates, got {len(cuts)}."
        )
    for i, intervals in enumerate(cuts):
        _check_intervals(model, i, intervals)
    products = list(itertools.product(*cuts))
    if choices is not None or (isinstance(model, QueueingNetwork) and model.per_server):
        laws = [_uniform_law(product) for product in products]
        return trees(model, laws, choices=choices)
    flat = [interval for intervals in cuts for interval in intervals]
    sizes = [len(c) for c in cuts]
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    head = [
        model.box.dim,
        len(model.actions),
        len(flat),
        *sizes,
        *np.cumsum([0, *sizes[:-1]]),
        *strides,
    ]
    ints = np.array([*head, *(low for low, _ in flat), *(high for _, high in flat)], np.int64)
    names = tuple(f"box {product}, {action}" for product in products for action in model.actions)
    spread = (
        [
            (np.arange(low, high + 1), np.full(high - low + 1, 1 / (high - low + 1)))
            for low, high in product
        ]
        for product in products
    )
    lengths = np.log([high - low + 1.0 for low, high in flat])
    unknown = np.full(len(names), np.nan)
    block = Block(BOXES, ints, lengths, names, 1, unknown, unknown, 3)
    return closed_form(model, block, spread, Choices.of(model, None))


def _check_intervals(model: Model, i: int, intervals: Sequence[Interval]) -> None:
    check_pairs(f"the intervals of coordinate {i}", intervals)
    if any(high is None for _, high in intervals):
        raise InputError(
            f"a box needs an end in coordinate {i}; use products or trees, whose laws may have a "
            "tail."
        )
    ends = [int(model.box.lower[i]) - 1, *(v for interval in sorted(intervals) for v in interval)]
    if not intervals or any(
        b < a + (k % 2 == 0) for k, (a, b) in enumerate(itertools.pairwise(ends))
    ):
        raise InputError(
            f"the intervals of coordinate {i} must not be empty, overlap, or start below the box."
        )
    if ends[-1] > model.box.upper[i]:
        raise InputError(
            f"an interval of coordinate {i} ends at {ends[-1]}, above its limit "
            f"{model.box.upper[i]}."
        )


def _uniform_law(product: Sequence[Interval]) -> Tree:
    nodes = tuple(
        Node(low, np.full((1, high - low + 1), 1 / (high - low + 1))) for low, high in product
    )
    return Tree(nodes, (-1,) * len(nodes), f"box {tuple(product)}")


def bands(
    model: Model,
    intervals: Sequence[Interval],
    weights: Sequence[int] | None = None,
    *,
    choices: Sequence[AnyPolicy] | None = None,
) -> Features:
    """Uniform on the states with low <= Σ w_i·x_i <= high for each (low, high), times each action
    or choice.

    Weights are 1 by default, and 0 for what does not count customers in a network (services, the
    pending event). A coordinate of weight 0 must have a limit.
    """
    w = _band_weights(model, weights)
    check_pairs("the limits of bands", intervals)
    if not len(intervals):
        raise InputError("bands need at least one interval.")
    if any(high is None for _, high in intervals):
        raise InputError("a band needs an end; use products or trees, whose laws may have a tail.")
    if any(not 0 <= low <= high for low, high in intervals):
        raise InputError("the limits of a band must be integers with 0 <= low <= high.")
    most = _largest_sum(model, w, max(high for _, high in intervals))
    limits = [(low, min(high, most)) for low, high in intervals]
    if any(low > high for low, high in limits):
        raise InputError(f"the band {next(i for i in intervals if i[0] > most)} holds no state.")
    band_of = np.full(most + 1, -1)
    for band, (low, high) in enumerate(intervals):
        if (band_of[low : high + 1] >= 0).any():
            raise InputError(f"the band ({low}, {high}) overlaps another one.")
        band_of[low : high + 1] = band
    top = np.minimum(model.box.upper, np.where(w > 0, most // np.maximum(w, 1), UNBOUNDED))
    with np.errstate(over="ignore"):
        ways = _ways(w, top, most)
        sizes = np.array([ways[0, low : high + 1].sum() for low, high in limits])
    if not np.isfinite(ways).all() or not np.isfinite(sizes).all():
        raise InputError("a band holds more than 10^308 states; use narrower bands, or products.")
    if (sizes == 0).any():
        raise InputError(f"the band {intervals[int(np.argmin(sizes))]} holds no state.")
    given = Choices.of(model, choices)
    head = [model.box.dim, len(model.actions), len(intervals), most, 0, *w, *top, *band_of]
    fields = [*head, *(low for low, _ in limits), *(high for _, high in limits)]
    counts = np.concatenate([ways.ravel(), sizes])
    choice_ints, choice_floats = given.fields(len(fields), counts.size)
    fields[4] = len(fields)
    ints = np.concatenate([np.array(fields, np.int64), choice_ints])
    names = tuple(f"band {interval}, {way}" for interval in intervals for way in given.names)
    laws = _band_marginals(w, top, most, limits)
    if given.policies:
        widest = len(given)
    else:
        widest = 1
    room = 2 + len(model.actions) * len(given)
    floats = np.concatenate([counts, choice_floats])
    unknown = np.full(len(names), np.nan)
    block = Block(BANDS, ints, floats, names, widest, unknown, unknown, room, user=given.user)
    return closed_form(model, block, laws, given)


def _band_weights(model: Model, weights: Sequence[int] | None) -> Ints:
    dim = model.box.dim
    if isinstance(model, QueueingNetwork):
        counted = len(model.classes)
    else:
        counted = dim
    given = np.array(
        [1] * counted + [0] * (dim - counted) if weights is None else weights, dtype=object
    )
    whole = given.shape == (dim,) and all(is_number(v) and v == int(v) for v in given)
    if whole:
        w = given.astype(np.int64)
    else:
        w = np.zeros(dim, np.int64)
    if (w < 0).any() or not w.any() or (model.box.lower != 0).any():
        raise InputError(
            "bands need an integer weight for each coordinate, none negative and not all 0, and "
            "coordinates that start at 0."
        )
    endless = np.flatnonzero((w == 0) & (model.box.upper == UNBOUNDED))
    if endless.size:
        raise InputError(
            f"coordinate {endless[0]} has no limit, so that a band needs a positive weight for it."
        )
    return w


def _largest_sum(model: Model, weights: Ints, high: int) -> int:
    """The largest weighted sum that the box has, and at most `high`."""
    ends = [int(v) for v in model.box.upper[weights > 0]]
    if max(ends) == UNBOUNDED:
        return high
    return min(high, sum(int(w) * v for w, v in zip(weights[weights > 0], ends, strict=True)))


def _ways(weights: Ints, top: Ints, most: int) -> Floats:
    """N_i(v): in how many ways the coordinates from i on make the sum v."""
    ways = np.zeros((weights.size + 1, most + 1))
    ways[-1, 0] = 1.0
    for i in range(weights.size - 1, -1, -1):
        ways[i] = _joined_by(ways[i + 1], (int(weights[i]), int(top[i])))
    return ways


def _joined_by(ways: Floats, kind: tuple[int, int]) -> Floats:
    """Σ_(k = 0..top) ways(v − w·k) for all v, given (w, top): one more coordinate.

    A window over two blocks is the end of one and the beginning of the next: time in proportion to
    the sums, and nothing is subtracted, so that small counts beside large ones are exact.
    """
    weight, top = kind
    if weight == 0:
        return ways * (top + 1)
    rows = -(-ways.size // weight)
    width = min(top + 1, rows)
    blocks = np.zeros((-(-rows // width), width, weight))
    blocks.reshape(-1)[: ways.size] = ways
    begun = np.cumsum(blocks, axis=1).reshape(-1, weight)
    ended = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1].copy()
    ended[:, 0] = 0.0  # a whole block is counted in `begun`
    begun[width:] += ended.reshape(-1, weight)[1 : len(begun) - width + 1]
    return begun.reshape(-1)[: ways.size]


def _all_but_one(kinds: Sequence[tuple[int, int]], ways: Floats) -> Iterator[Floats]:
    """The ways of all coordinates but each one, half of them joined at a time."""
    if len(kinds) == 1:
        yield ways
        return
    left = kinds[: len(kinds) // 2]
    right = kinds[len(kinds) // 2 :]
    yield from _all_but_one(left, reduce(_joined_by, right, ways))
    yield from _all_but_one(right, reduce(_joined_by, left, ways))


def _band_marginals(
    weights: Ints, top: Ints, most: int, intervals: Sequence[Interval]
) -> list[list[tuple[Ints, Floats]]]:
    """The law of each coordinate under the uniform law of each band, from the ways of all other
    coordinates.
    """
    kinds = list(zip(weights.tolist(), top.tolist(), strict=True))
    none = np.zeros(most + 1)
    none[0] = 1.0
    laws: list[list[tuple[Ints, Floats]]] = [[] for _ in intervals]
    for (weight, last), others in zip(kinds, _all_but_one(kinds, none), strict=True):
        for law, (low, high) in zip(laws, intervals, strict=True):
            values = np.arange(min(last, high // weight if weight else last) + 1)
            counts = _joined_by(others, (1, high - low))[high - values * weight]
            law.append((values, counts / counts.sum()))
    return laws


def closed_form(model: Model, block: Block, laws: Any, choices: Choices) -> Features:
    """A block of laws, each with all choices, whose losses are not known yet; those that are sums
    over the coordinates are exact.

    `laws` are the values and probabilities of each coordinate for each law.
    """
    check_allowed(Features(model, [block]))
    parts = model.loss_parts
    if parts is None:
        return Features(model, [estimated_losses(model, block)])
    means = [sum(p @ part(v) for part, (v, p) in zip(parts, law, strict=True)) for law in laws]
    exact = np.repeat(np.array(means, np.float64), len(choices))
    return Features(model, [replace(block, losses=exact, errors=np.zeros(exact.size))])


def paper(model: Model, count: int = 372, criterion: Criterion | None = None) -> Features:
    """The features of the paper's experiment on the four-queue network: 366 by its text, 372 by its
    count.

    LONGER and LBFS (372: each split by action), ten bands of the loss and 3⁴ boxes, times the
    actions. A part that is empty is left out: from an empty network without phantoms LBFS never has
    both last queues to serve, so there 372 is 371. Under the discounted criterion the heuristics'
    occupancies are the discounted ones.
    """
    criterion = require_criterion(criterion)
    if count not in (366, 372):
        raise InputError(f"the paper's features are 366 or 372, got {count}.")
    top = int(min(model.box.upper.min(), UNBOUNDED))
    if model.box.dim != 4 or len(model.actions) != 4 or top < PAPER_INTERVALS[-1][1]:
        raise InputError(
            "the paper's features are for a network of four queues with buffers of at least 25."
        )
    heuristics = [model.policy("longer"), model.policy("lbfs")]
    return concat(
        occupancies(model, heuristics, criterion, by_action=count == 372),
        bands(model, PAPER_BANDS),
        boxes(model, [PAPER_INTERVALS] * 4),
    )
