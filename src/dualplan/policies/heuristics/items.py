"""Rules for many items that share a machine: each item has a level up to which it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dualplan.core.types import Floats
from dualplan.models.contract import register_heuristics
from dualplan.models.instances.items import MultiItem
from dualplan.policies.contract import Policy
from dualplan.policies.tables import FunctionPolicy


def base_stock(model: MultiItem, levels: Sequence[int] | None = None) -> Policy:
    """The item furthest below its level, ties to the first."""
    return _up_to(model, levels, np.ones(model.box.dim), "base-stock")


def cost_first(model: MultiItem, levels: Sequence[int] | None = None) -> Policy:
    """The item whose shortfall times backlog cost times service rate is largest (in the manner of
    the bμ rule).
    """
    return _up_to(model, levels, model.backlog * model.services, "b-mu")


def _levels(model: MultiItem) -> list[int]:
    """The newsvendor's level of a geometric shortfall, whose ratio is the share of the machine's
    load: r/(r + rest).
    """
    work = model.demand / model.services
    ratios = np.minimum(work / np.maximum(1 - work.sum() + work, 1e-3), 0.999)
    fractiles = model.holding / (model.holding + model.backlog)
    return [
        min(model.most_stock, max(0, math.floor(math.log(f) / math.log(r)))) if 0 < f < 1 else 0
        for f, r in zip(fractiles, ratios, strict=True)
    ]


def _up_to(model: MultiItem, levels: Sequence[int] | None, weights: Floats, name: str) -> Policy:
    goal = np.array(_levels(model) if levels is None else levels, np.int64)
    items = model.box.dim
    top = model.most_stock
    capacity = model.capacity

    def rule(x):  # type: ignore[no-untyped-def]
        stored = 0
        for i in range(items):
            stored += max(x[i], 0)
        best = 0
        most = 0.0
        for i in range(items):
            need = weights[i] * (goal[i] - x[i])
            if need > most and x[i] < top and (x[i] < 0 or stored < capacity):
                best = i + 1
                most = need
        return best

    return FunctionPolicy(model, rule, name=name)


ITEM_HEURISTICS: dict[str, Callable[[MultiItem], Policy]] = {
    "base-stock": base_stock,
    "b-mu": cost_first,
}
register_heuristics(MultiItem, ITEM_HEURISTICS)
