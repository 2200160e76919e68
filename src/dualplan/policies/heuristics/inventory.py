"""Rules for inventory with lost sales."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dualplan.models.contract import register_heuristics
from dualplan.models.instances.inventory import LostSales, poisson_quantile
from dualplan.policies.contract import Policy
from dualplan.policies.tables import FunctionPolicy


def base_stock(model: LostSales, level: int | None = None) -> Policy:
    """Order up to `level`, counted over stock and pipeline.

    The default level is the critical fractile of demand over lead time plus one period, optimal
    were unmet demand kept instead of lost.
    """
    return _up_to(model, _level(model) if level is None else level, model.max_order, "base-stock")


def capped_base_stock(model: LostSales, level: int | None = None, cap: int | None = None) -> Policy:
    """Order up to `level`, but at most `cap` at once; by default the mean demand rounded up."""
    if cap is None:
        most = int(np.ceil(model.demand))
    else:
        most = cap
    return _up_to(model, _level(model) if level is None else level, most, "capped-base-stock")


def _level(model: LostSales) -> int:
    return poisson_quantile(model.demand * (model.lead_time + 1), min(model.fractile, 0.9999))


def _up_to(model: LostSales, level: int, cap: int, name: str) -> Policy:
    capacity = model.capacity
    most = min(cap, model.max_order)

    def rule(x):  # type: ignore[no-untyped-def]
        position = x.sum()
        return max(0, min(level - position, most, capacity - position))

    return FunctionPolicy(model, rule, name=name)


def myopic(model: LostSales) -> Policy:
    """Order what minimises the expected cost of the period in which the order arrives (Morton
    1971).

    With I the stock left when the order arrives, that is the least order z with P(D <= I + z)
    >= p/(p + h).
    """
    pmf = model.pmf
    capacity = model.capacity
    most = model.max_order
    lead = model.lead_time
    fractile = model.fractile
    cdf = np.cumsum(pmf)

    def rule(x):  # type: ignore[no-untyped-def]
        stock = np.zeros(capacity + 1)
        stock[x[0]] = 1.0
        for k in range(1, lead + 1):
            following = np.zeros(capacity + 1)
            if k < lead:
                arriving = x[k]
            else:
                arriving = 0
            for i in range(capacity + 1):
                if stock[i] > 0.0:
                    for d in range(pmf.size):
                        following[min(max(i - d, 0) + arriving, capacity)] += stock[i] * pmf[d]
            stock = following
        limit = max(0, min(most, capacity - x.sum()))
        for z in range(limit):
            served = 0.0
            for i in range(capacity + 1):
                served += stock[i] * cdf[min(i + z, cdf.size - 1)]
            if served >= fractile:
                return z
        return limit

    return FunctionPolicy(model, rule, name="myopic")


INVENTORY_HEURISTICS: dict[str, Callable[[LostSales], Policy]] = {
    "base-stock": base_stock,
    "capped-base-stock": capped_base_stock,
    "myopic": myopic,
}
register_heuristics(LostSales, INVENTORY_HEURISTICS)
