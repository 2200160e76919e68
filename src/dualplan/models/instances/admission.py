"""Admission control to a queue with several servers, in continuous time.

Customers of K classes arrive at rates λ_k; each may be admitted, if the system has room, or turned
away at the cost r_k. The state is (customers in the system, class of the customer at the door, 0
for none). With n customers after the decision, the next event is an arrival of class k at rate λ_k
or a completion at rate μ·min(n, servers); uniformization with Λ = Σλ_k + μ·servers makes this a
chain, and losses are per unit of time: holding·n, and Λ·r_k where class k is turned away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualplan.core.errors import InputError
from dualplan.models.event import EventModel


class AdmissionControl(EventModel):
    """Admission of customers of several classes to a queue with several servers."""

    servers: int
    room: int
    classes: int

    def __init__(
        self,
        *,
        servers: int = 5,
        room: int = 20,
        arrivals: Sequence[float] = (2.0, 2.0),
        service: float = 1.0,
        rejection: Sequence[float] = (10.0, 2.0),
        holding: float = 1.0,
    ) -> None:
        rates = np.array(arrivals, np.float64)
        costs = np.array(rejection, np.float64)
        if rates.ndim != 1 or rates.shape != costs.shape or (rates <= 0).any() or (costs < 0).any():
            raise InputError(
                "admission needs as many rejection costs (>= 0) as arrival rates (> 0)."
            )
        if servers != int(servers) or not (1 <= servers <= room and service > 0 and holding >= 0):
            raise InputError(
                "admission needs whole numbers 1 <= servers <= room, service > 0 and holding >= 0."
            )
        self.servers = servers
        self.room = room
        self.classes = int(rates.size)
        self.rate = float(rates.sum() + servers * service)
        super().__init__(
            lower=[0, 0],
            upper=[room, rates.size],
            actions=["reject", "admit"],
            events=rates.size + 2,  # nothing, an arrival of each class, a completion
            **_functions(
                servers, room, rates / self.rate, service / self.rate, costs * self.rate, holding
            ),
            jumps=[(n, k) for n in (-1, 0, 1) for k in range(-rates.size, rates.size + 1)],
            loss_bounds=(0.0, float(holding * room + self.rate * costs.max())),
            coordinates=["in system", "at the door"],
            counters=_counters(rates.size),
            measures=_measures(rates.size),
            name="admission",
        )


def _counters(classes: int) -> dict[str, Any]:
    """Who came to the door and who was turned away, of each class."""

    def came(k: int) -> Any:
        def at_the_door(x, a):  # type: ignore[no-untyped-def]
            if x[1] == k:
                return 1.0
            return 0.0

        return at_the_door

    def went(k: int) -> Any:
        def turned_away(x, a):  # type: ignore[no-untyped-def]
            if x[1] == k and a == 0:
                return 1.0
            return 0.0

        return turned_away

    def anybody(x, a):  # type: ignore[no-untyped-def]
        if x[1] > 0:
            return 1.0
        return 0.0

    def rejected(x, a):  # type: ignore[no-untyped-def]
        if x[1] > 0 and a == 0:
            return 1.0
        return 0.0

    each = range(1, classes + 1)
    named = {f"came {k}": came(k) for k in each} | {f"rejected {k}": went(k) for k in each}
    return {"came": anybody, "rejected": rejected, **named}


def _measures(classes: int) -> dict[str, tuple[str, str]]:
    named = {
        f"rejected fraction {k}": (f"rejected {k}", f"came {k}") for k in range(1, classes + 1)
    }
    return {"rejected fraction": ("rejected", "came"), **named}


def _functions(
    servers: int, room: int, lam: Any, mu: float, costs: Any, holding: float
) -> dict[str, Any]:
    classes = lam.size

    def probability(x, a, e):  # type: ignore[no-untyped-def]
        busy = min(x[0] + a, servers) * mu
        if e == 0:
            return (servers * mu) - busy
        if e <= classes:
            return lam[e - 1]
        return busy

    def move(x, a, e):  # type: ignore[no-untyped-def]
        n = x[0] + a
        if e == 0:
            return (n, 0)
        if e <= classes:
            return (n, e)
        return (n - 1, 0)

    def loss(x, a):  # type: ignore[no-untyped-def]
        if x[1] > 0 and a == 0:
            turned_away = costs[x[1] - 1]
        else:
            turned_away = 0.0
        return holding * (x[0] + a) + turned_away

    def allowed(x, a):  # type: ignore[no-untyped-def]
        return a == 0 or (x[1] > 0 and x[0] < room)

    return {"probability": probability, "move": move, "loss": loss, "allowed": allowed}
