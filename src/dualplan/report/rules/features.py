"""What the tests of a readable rule look at: sums of a few coordinates with weights 1 and −1, which
people understand.

Networks: the length of each queue, how much longer one queue is than another, the customers of each
server, and all customers. Other models: each coordinate; coordinates that have the same range are
also compared and added up.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError
from dualplan.core.types import Ints
from dualplan.models.contract import Model, coordinate_of
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.rules import Terms

MOST_COMPARED_COORDINATES = 12  # coordinates up to which all are compared with all


def features_of(model: Model, given: Sequence[Mapping[str, int]] | None) -> list[Terms]:
    """The sums that tests may look at, simple ones first.

    Of the user, weights by the names of coordinates.
    """
    if given is not None:
        return [_of_user(model, weights) for weights in given]
    if isinstance(model, QueueingNetwork):
        return _of_network(model)
    groups: dict[tuple[int, int], list[int]] = {}
    for i, (low, high) in enumerate(
        zip(model.box.lower.tolist(), model.box.upper.tolist(), strict=True)
    ):
        groups.setdefault((low, high), []).append(i)
    alike = [g for g in groups.values() if 2 <= len(g) <= MOST_COMPARED_COORDINATES]
    found: list[Terms] = [((i, 1),) for i in range(model.box.dim)]
    for g in alike:
        found += [((i, 1), (j, -1)) for i, j in itertools.combinations(g, 2)]
    return found + [tuple((i, 1) for i in g) for g in alike]


def _of_network(network: QueueingNetwork) -> list[Terms]:
    n = len(network.classes)
    server_of = network.server_of
    found: list[Terms] = [((i, 1),) for i in range(network.box.dim - network.per_server)]
    near = {
        frozenset((i, d)) for i, routes in enumerate(network.routes) for d, _ in routes if d >= 0
    }
    for i, j in itertools.combinations(range(n), 2):
        if (
            n <= MOST_COMPARED_COORDINATES
            or server_of[i] == server_of[j]
            or frozenset((i, j)) in near
        ):
            found.append(((i, 1), (j, -1)))
    sums = [np.flatnonzero(server_of == s).tolist() for s in range(len(network.servers))]
    sums = [s for s in [*sums, list(range(n))] if len(s) > 1]
    return list(dict.fromkeys(found + [tuple((i, 1) for i in s) for s in sums]))


def _of_user(model: Model, weights: Mapping[str, int]) -> Terms:
    if not weights:
        raise InputError("a feature of a rule needs at least one coordinate, with a whole weight.")
    for name, weight in weights.items():
        coordinate_of(model, name)  # raises, if there is none
        if not is_whole(weight) or weight == 0:
            raise InputError(
                f"the weight of coordinate {name!r} in a feature must be a whole number, got "
                f"{weight!r}."
            )
    return tuple((coordinate_of(model, name), int(weight)) for name, weight in weights.items())


def numbers_at(features: Sequence[Terms], states: Ints) -> Ints:
    """The sums at states, one a row."""
    return np.stack(
        [
            sum((w * states[:, i] for i, w in terms), np.zeros(len(states), np.int64))
            for terms in features
        ],
        axis=1,
    )
