"""Inventory with lost sales and a lead time (Zipkin 2008).

The state is (on hand, arriving next period, ..., arriving in L − 1 periods); an order arrives after
L periods. In a period an order is placed, demand D comes, what cannot be served is lost, and

    loss = holding·E[(x₁ − D)⁺] + penalty·E[(D − x₁)⁺],    x' = ((x₁ − D)⁺ + x₂, x₃, …, x_L, order).

Orders are limited so that stock and pipeline together never exceed `capacity`, which keeps the box
finite and cuts nothing off: states beyond it are in the box but never reached, and only there stock
is clipped. Demand beyond its 1 − 10⁻¹² quantile counts as that quantile.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from dualplan.core.errors import InputError
from dualplan.core.types import Floats
from dualplan.models.event import EventModel


def poisson_quantile(mean: float, probability: float) -> int:
    """The least k with P(N <= k) >= probability, of N with the Poisson law of this mean."""
    k = int(special.pdtrik(probability, mean))
    while special.pdtr(k, mean) < probability:
        k += 1
    while k > 0 and special.pdtr(k - 1, mean) >= probability:
        k -= 1
    return k


class LostSales(EventModel):
    """Inventory with lost sales, Poisson demand and a lead time (Zipkin 2008)."""

    def __init__(
        self,
        *,
        lead_time: int = 4,
        demand: float = 5.0,
        holding: float = 1.0,
        penalty: float = 4.0,
        capacity: int | None = None,
        max_order: int | None = None,
    ) -> None:
        if not (
            lead_time >= 2
            and 0 < demand < 1e6
            and holding >= 0
            and penalty >= 0
            and holding + penalty > 0
        ):
            raise InputError(
                "lost sales need lead_time >= 2, a positive demand, and costs that are not "
                "negative nor both 0."
            )
        self.lead_time = lead_time
        self.demand = demand
        self.holding = holding
        self.penalty = penalty
        most = poisson_quantile(demand, 1 - 1e-12)
        sizes = np.arange(most + 1)
        self.pmf = np.exp(sizes * np.log(demand) - special.gammaln(sizes + 1) - demand)
        self.pmf[-1] = 1 - self.pmf[:-1].sum()
        # the critical fractile of demand over the lead time bounds sensible positions; a quarter
        # more is generous
        self.fractile = penalty / (penalty + holding)
        newsvendor = poisson_quantile(demand * (lead_time + 1), min(self.fractile, 0.99))
        if capacity is None:
            self.capacity = int(1.25 * newsvendor)
        else:
            self.capacity = int(capacity)
        if max_order is None:
            self.max_order = min(self.capacity, poisson_quantile(demand, 1 - 1e-4))
        else:
            self.max_order = int(max_order)
        if self.capacity < 1 or not 1 <= self.max_order <= self.capacity:
            raise InputError(
                f"lost sales need 1 <= max_order <= capacity, got {self.max_order} and "
                f"{self.capacity}."
            )
        self.cost = _newsvendor_cost(self.pmf, self.capacity, holding, penalty)
        self._build(most + 1)

    def _build(self, events: int) -> None:
        pmf = self.pmf
        cost = self.cost
        limit = self.capacity
        last = self.lead_time - 1
        most_order = self.max_order

        def probability(x, a, e):  # type: ignore[no-untyped-def]
            return pmf[e]

        def move(x, a, e):  # type: ignore[no-untyped-def]
            y = np.empty_like(x)
            y[0] = min(max(x[0] - e, 0) + x[1], limit)
            for i in range(1, last):  # Numba takes two seconds to compile an assignment of slices
                y[i] = x[i + 1]
            y[last] = a
            return y

        def loss(x, a):  # type: ignore[no-untyped-def]
            return cost[x[0]]

        def allowed(x, a):  # type: ignore[no-untyped-def]
            return a + x.sum() <= limit or a == 0

        def predecessors(y):  # type: ignore[no-untyped-def]
            # the pipeline shifts: only what was on hand and what was arriving is open
            for arriving in range(most_order + 1 if y[0] == limit else min(y[0], most_order) + 1):
                for on_hand in range(max(y[0] - arriving, 0), limit + 1):
                    pair = np.empty(y.size + 1, np.int64)
                    pair[0] = on_hand
                    pair[1] = arriving
                    for i in range(1, last + 1):
                        pair[i + 1] = y[i]
                    yield pair

        super().__init__(
            lower=[0] * self.lead_time,
            upper=[self.capacity] + [self.max_order] * last,
            actions=[f"order {a}" for a in range(self.max_order + 1)],
            events=events,
            probability=probability,
            move=move,
            loss=loss,
            allowed=allowed,
            predecessors=predecessors,
            max_predecessors=(self.capacity + 1) * (self.max_order + 1),
            loss_bounds=(float(cost.min()), float(cost.max())),
            coordinates=["on hand", *(f"in {k}" for k in range(1, self.lead_time))],
            name="lost-sales",
        )


def _newsvendor_cost(pmf: Floats, most: int, holding: float, penalty: float) -> Floats:
    """The expected cost of a period that starts with each stock from 0 to `most`."""
    demand = np.arange(pmf.size)
    surplus = np.arange(most + 1)[:, None] - demand[None, :]
    return np.asarray((holding * surplus.clip(0) - penalty * surplus.clip(max=0)) @ pmf)
