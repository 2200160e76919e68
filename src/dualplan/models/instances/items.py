"""Inventory of many items that share a machine and a store (a make-to-stock queue; Wein 1992, Ha
1997).

One machine makes an item at a time, at rate μ_i; customers ask for one of item i at rate d_i. What
is not in stock is owed, down to a limit beyond which demand is lost. The store holds `capacity` of
all items together. Per unit of time

    loss = Σ_i h_i·x_i⁺ + b_i·x_i⁻ + lost_i·d_i·1{x_i at its limit},

a sum over the items. The action is which item to make, or none; what is begun may be given up for
another item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.event import EventModel


class MultiItem(EventModel):
    """Items that share a machine and a store; rates are per unit of time."""

    def __init__(
        self,
        *,
        items: int = 5,
        load: float = 0.8,
        demand: Sequence[float] | None = None,
        services: float | Sequence[float] = 1.0,
        holding: float | Sequence[float] = 1.0,
        backlog: float | Sequence[float] = 10.0,
        lost: float | Sequence[float] = 100.0,
        capacity: int | None = None,
        most_stock: int = 10,
        most_backlog: int = 10,
    ) -> None:
        """Without `demand`, all items have the same, and together the `load`."""
        if items < 1 or most_stock < 1 or most_backlog < 0 or not load > 0:
            raise InputError(
                "multi-item inventory needs items >= 1, most_stock >= 1, most_backlog >= 0 and a "
                "load."
            )
        self.services = _each("services", services, items)
        if demand is None:
            self.demand = load * self.services / items
        else:
            self.demand = _each("demand", demand, items)
        self.holding, self.backlog, self.lost = (
            _each(word, given, items)
            for word, given in (("holding", holding), ("backlog", backlog), ("lost", lost))
        )
        if capacity is not None and not is_whole(capacity):
            raise InputError(f"capacity must be an integer, got {capacity!r}.")
        if capacity is None:
            self.capacity = most_stock * items
        else:
            self.capacity = capacity
        if not ((self.demand > 0).all() and (self.services > 0).all()) or self.capacity < 1:
            raise InputError(
                "multi-item inventory needs positive rates and a capacity of at least 1."
            )
        self.most_stock = most_stock
        self.most_backlog = most_backlog
        self.rate = float(self.demand.sum() + self.services.max())
        self._build(items)

    def _build(self, items: int) -> None:
        demand = self.demand / self.rate
        made = self.services / self.rate
        h = self.holding
        b = self.backlog
        penalty = self.lost * self.demand
        top = self.most_stock
        bottom = -self.most_backlog
        capacity = self.capacity

        def probability(x, a, e):  # type: ignore[no-untyped-def]
            if e < items:
                return demand[e]
            if a > 0:
                completes = made[a - 1]
            else:
                completes = 0.0
            if e == items:
                return completes
            return 1.0 - demand.sum() - completes

        def move(x, a, e):  # type: ignore[no-untyped-def]
            y = x.copy()
            if e < items:
                if y[e] > bottom:
                    y[e] -= 1
            elif e == items:
                y[a - 1] += 1
            return y

        def loss(x, a):  # type: ignore[no-untyped-def]
            total = 0.0
            for i in range(items):
                total += (
                    h[i] * max(x[i], 0)
                    + b[i] * max(-x[i], 0)
                    + (penalty[i] if x[i] == bottom else 0.0)
                )
            return total

        def allowed(x, a):  # type: ignore[no-untyped-def]
            if a == 0:
                return True
            stored = 0
            for i in range(items):
                stored += max(x[i], 0)
            return x[a - 1] < top and (x[a - 1] < 0 or stored < capacity)

        unit = np.eye(items, dtype=np.int64)
        worst = np.maximum(h * top, b * self.most_backlog + penalty)
        super().__init__(
            lower=[bottom] * items,
            upper=[top] * items,
            actions=["idle", *(f"item {i + 1}" for i in range(items))],
            events=items + 2,
            probability=probability,
            move=move,
            loss=loss,
            allowed=allowed,
            jumps=[*unit.tolist(), *(-unit).tolist(), [0] * items],
            loss_bounds=(0.0, float(worst.sum())),
            start=[0] * items,
            coordinates=[f"item {i + 1}" for i in range(items)],
            name="multi-item",
        )

    @property
    def loss_parts(self) -> Sequence[Callable[[Ints], Floats]]:
        """The cost of each item."""
        rows = zip(self.holding, self.backlog, self.lost * self.demand, strict=True)
        return [partial(_cost, row, -self.most_backlog) for row in rows]


def _cost(row: tuple[float, float, float], bottom: int, stock: Ints) -> Floats:
    holding, backlog, penalty = row
    return np.asarray(
        holding * stock.clip(0) - backlog * stock.clip(max=0) + penalty * (stock == bottom)
    )


def _each(name: str, given: float | Sequence[float], items: int) -> Floats:
    values = np.asarray(given, np.float64)
    if values.ndim > 1 or (values.ndim == 1 and values.size != items) or not (values >= 0).all():
        raise InputError(
            f"{name} needs one number or {items} of them, none negative, got {given!r}."
        )
    return np.broadcast_to(values, (items,)).copy()
