"""Laws along trees (`tree_laws.py`) times a choice of the action, as features.

φ(x, a) = P(x)·1{a = A}    or    P(x)·π(a|x)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dualplan._kernels.features import TREES
from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.dual.features.choices import Choices
from dualplan.dual.features.contract import Block, Features, check_allowed, estimated_losses
from dualplan.dual.features.tree_laws import Interval, Node, Tree
from dualplan.models.contract import UNBOUNDED, Model, coordinate_of
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.tables import AnyPolicy


def trees(
    model: Model,
    laws: Sequence[Tree],
    *,
    choices: Sequence[AnyPolicy] | None = None,
    cuts: Mapping[int | str, Sequence[Interval]] | None = None,
) -> Features:
    """Laws of the states times each action, or each policy's own choice; with `cuts`, each law cut
    into tiles.

    `cuts` has intervals for some coordinates, by number or name. With decisions per server and no
    choices, an action is taken at the events of those servers that have it.
    """
    for law in laws:
        _check_law(model, law)
    for key, intervals in (cuts or {}).items():
        check_pairs(f"the cuts of coordinate {key!r}", intervals)
    tiled = [tile for law in laws for tile in _tiles(model, law, cuts or {})]
    if not tiled:
        raise InputError("trees need at least one law, and tiles that have a chance.")
    ways = Choices.of(model, choices)
    pairs = [pair for law in tiled for pair in _with_choices(model, law, ways)]
    return factored(model, pairs, ways)


def check_pairs(what: str, intervals: Sequence[Interval]) -> None:
    """Raise unless these are pairs of integers, the second of which may be None."""
    listed = isinstance(intervals, (list, tuple, np.ndarray))
    if not listed or not all(
        isinstance(v, (list, tuple, np.ndarray)) and len(v) == 2 for v in intervals
    ):
        raise InputError(f"{what} must be a list of pairs (low, high), got {intervals!r}.")
    if not all(is_whole(low) and (high is None or is_whole(high)) for low, high in intervals):
        raise InputError(f"{what} must have integers as limits, got {intervals!r}.")


def _check_law(model: Model, law: Tree) -> None:
    if not isinstance(law, Tree):
        raise InputError(f"a law of the states is a Tree, as fit_tree makes one, got {law!r}.")
    if len(law.nodes) != model.box.dim:
        raise InputError(
            f"a tree for {model.name!r} needs {model.box.dim} coordinates, got {len(law.nodes)}."
        )
    for i, node in enumerate(law.nodes):
        low = int(model.box.lower[i])
        high = int(model.box.upper[i])
        if node.low < low or node.last > high:
            if node.last == UNBOUNDED:
                limit = "without end"
            else:
                limit = f"to {node.last}"
            raise InputError(
                f"the law of coordinate {i} ({model.coordinates[i]}) reaches from {node.low} "
                f"{limit}, beyond the box, which ends at {high}; give it a limit."
            )


def _tiles(model: Model, law: Tree, cuts: Mapping[int | str, Sequence[Interval]]) -> list[Tree]:
    if not cuts:
        return [law]
    places = [coordinate_of(model, key) for key in cuts]
    tiles = (
        law.within(dict(zip(places, tile, strict=True)))
        for tile in itertools.product(*cuts.values())
    )
    return [tile for tile in tiles if tile is not None]


def _with_choices(model: Model, law: Tree, ways: Choices) -> list[tuple[Tree, int]]:
    """The law with each choice; with decisions per server, an action only where there is one."""
    if ways.policies or not isinstance(model, QueueingNetwork) or not model.per_server:
        return [(law, k) for k in range(len(ways))]
    event = model.box.dim - 1
    node = law.nodes[-1]
    numbers = np.array([1, *(len(c) for c in model.choices)])[node.low : node.high + 1]
    found = [(law.among(event, numbers > a), a) for a in range(len(ways))]
    return [(part, a) for part, a in found if part is not None]


def factored(model: Model, pairs: Sequence[tuple[Tree, int]], ways: Choices) -> Features:
    """A block of laws, each with one of the choices."""
    laws = list({id(law): law for law, _ in pairs}.values())
    by_law = {id(law): [k for other, k in pairs if other is law] for law in laws}
    counts = [len(by_law[id(law)]) for law in laws]
    chosen = [k for law in laws for k in by_law[id(law)]]
    ints, floats = _fields(model, laws, counts, chosen, ways)
    names = tuple(f"{law.name}, {ways.names[k]}" for law in laws for k in by_law[id(law)])
    if ways.policies:
        widest = len(names)
    else:
        widest = max(np.bincount(chosen))
    unknown = np.full(len(names), np.nan)
    room = 2 * len(laws) + len(model.actions) * len(ways)
    block = Block(TREES, ints, floats, names, int(widest), unknown, unknown, room, user=ways.user)
    check_allowed(Features(model, [block]))
    means = [_mean_loss(model, law) for law in laws]
    if any(mean is None for mean in means):
        return Features(model, [estimated_losses(model, block)])
    exact = np.repeat(np.array(means, np.float64), counts)
    return Features(model, [replace(block, losses=exact, errors=np.zeros(exact.size))])


def _mean_loss(model: Model, law: Tree) -> float | None:
    """The expectation of a loss that is a sum over the coordinates, if it is one."""
    parts = model.loss_parts
    marginals = law.marginals
    if parts is None or marginals is None:
        return None
    return float(sum(p @ part(v) for part, (v, p) in zip(parts, marginals, strict=True)))


def _fields(
    model: Model, laws: Sequence[Tree], counts: Sequence[int], chosen: Sequence[int], ways: Choices
) -> tuple[Ints, Floats]:
    """The compiled form; tables that laws share are there once."""
    dim = model.box.dim
    head = 5 + 2 * len(laws) + 1 + len(chosen)
    choice_ints, choice_floats = ways.fields(head, 0)
    places = dict[int, int]()
    tables = [choice_floats]
    at = choice_floats.size
    for law in laws:
        for node in law.nodes:
            if id(node) not in places:
                places[id(node)] = at
                tables.append(_table(node))
                at += tables[-1].size
    starts = list[int]()
    records = list[Ints]()
    end = head + choice_ints.size
    for law in laws:
        starts.append(end)
        records.append(_law(law, places))
        end += records[-1].size
    ends = np.cumsum([0, *counts])
    numbers = [dim, len(model.actions), len(laws), len(chosen), head, *starts, *ends, *chosen]
    return np.concatenate([np.array(numbers, np.int64), choice_ints, *records]), np.concatenate(
        tables
    )


def _table(node: Node) -> Floats:
    with np.errstate(divide="ignore"):
        logs = np.log(node.table)
    return np.concatenate([logs.ravel(), np.cumsum(node.table, axis=1).ravel(), node.tail])


def _law(law: Tree, places: Mapping[int, int]) -> Ints:
    """Nodes, the order, and the lists of children."""
    numbers = list[int]()
    lists = list[int]()
    at = 9 * len(law.nodes)
    for node, parent, children in zip(law.nodes, law.parents, law.children, strict=True):
        rows = node.table.shape[0]
        numbers += [
            node.low,
            node.high,
            node.last,
            parent,
            places[id(node)],
            rows,
            at + len(lists),
            len(children),
        ]
        lists += children
    return np.array([*numbers, *law.order, *lists], np.int64)
