"""Parallel servers: classes of customers, each of whom any of several servers can serve, at rates
of their own.

Class k arrives at rate λ_k and waits in its own queue; server s completes customers of class k at
rate μ_sk, 0 if it cannot. Service is preemptive, and servers may work on one customer together. The
pending event is part of the state (0: an arrival; 1 + s: a potential completion of server s, whose
choice the action is), so that the number of actions is that of classes, whatever the number of
servers. With Λ = Σ λ_k + Σ_s max_k μ_sk,

    event 0 (probability Σλ/Λ)           a customer of class k comes with probability λ_k/Σλ
    event 1 + s (max_k μ_sk/Λ)   a customer of the chosen class leaves with probability μ_sk/max μ_s

and the next event is drawn independently of all else. Losses are Σ h_k·x_k per unit of time;
customers who find their queue full are lost.

The N- and W-models are those of Harrison (1998) and Bell & Williams (2001).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import UNBOUNDED
from dualplan.models.event import EventModel


class ParallelServers(EventModel):
    """Queues in parallel and servers that choose among them."""

    def __init__(
        self,
        *,
        arrivals: Sequence[float] = (0.6, 0.6),
        services: Sequence[Sequence[float]] = ((1.0, 0.0), (0.5, 1.0)),
        holding: Sequence[float] | None = None,
        buffers: int | None = None,
        name: str = "parallel-servers",
    ) -> None:
        """`services` has a row for each server and a column for each class.

        The default is an N-model.
        """
        try:
            lam = np.array(arrivals, np.float64)
            mu = np.atleast_2d(np.array(services, np.float64))
            if holding is None:
                costs = np.ones(lam.size)
            else:
                costs = np.array(holding, np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                "parallel servers need numbers: arrivals and costs one a class, services a row of "
                "them for each server."
            ) from error
        if lam.ndim != 1 or mu.ndim != 2 or mu.shape[1] != lam.size or costs.shape != lam.shape:
            raise InputError(
                f"parallel servers need a service rate and a cost for each of {lam.size} classes."
            )
        if not (
            (lam > 0).all()
            and (mu >= 0).all()
            and (costs >= 0).all()
            and (mu.max(axis=1) > 0).all()
        ):
            raise InputError(
                "parallel servers need positive arrivals, costs and services that are not negative."
            )
        if not all(np.isfinite(numbers).all() for numbers in (lam, mu, costs)):
            raise InputError("parallel servers need finite arrivals, services and costs.")
        if buffers is not None and not (is_whole(buffers) and buffers >= 1):
            raise InputError(
                f"buffers must be a positive integer, or None for no limit, got {buffers!r}."
            )
        if not (mu.max(axis=0) > 0).all():
            raise InputError(f"class {int(np.argmin(mu.max(axis=0))) + 1} has no server.")
        self.arrivals = lam
        self.services = mu
        self.holding = costs
        self.rate = float(lam.sum() + mu.max(axis=1).sum())
        self._build(buffers, name)

    def _build(self, buffers: int | None, name: str) -> None:
        lam = self.arrivals
        mu = self.services
        costs = self.holding
        classes = lam.size
        servers = len(mu)
        peak = mu.max(axis=1)
        law = np.append(lam.sum(), peak) / self.rate
        coming = lam / lam.sum()
        going = mu / peak[:, None]
        if buffers is None:
            room = UNBOUNDED
        else:
            room = buffers

        def probability(x, a, e):  # type: ignore[no-untyped-def]
            what = e // (servers + 1)
            after = e % (servers + 1)
            event = x[classes]
            if event == 0:
                if what < classes:
                    return law[after] * coming[what]
                return 0.0
            if x[a] > 0:
                leaves = going[event - 1, a]
            else:
                leaves = 0.0
            if what == 0:
                return law[after] * leaves
            if what == classes:
                return law[after] * (1.0 - leaves)
            return 0.0

        def move(x, a, e):  # type: ignore[no-untyped-def]
            what = e // (servers + 1)
            y = x.copy()
            if x[classes] == 0:
                if y[what] < room:
                    y[what] += 1
            elif what == 0:
                y[a] -= 1
            y[classes] = e % (servers + 1)
            return y

        def loss(x, a):  # type: ignore[no-untyped-def]
            total = 0.0
            for k in range(classes):
                total += costs[k] * x[k]
            return total

        def allowed(x, a):  # type: ignore[no-untyped-def]
            if x[classes] == 0:
                return a == 0
            return mu[x[classes] - 1, a] > 0.0

        def predecessors(y):  # type: ignore[no-untyped-def]
            for event in range(servers + 1):
                for k in range(classes):
                    for change in range(2):
                        pair = np.empty(y.size + 1, np.int64)
                        for i in range(y.size):
                            pair[i] = y[i]
                        pair[classes] = event
                        pair[k] += change * (1 if event > 0 else -1)
                        if event > 0:
                            pair[classes + 1] = k
                        else:
                            pair[classes + 1] = 0
                        yield pair

        super().__init__(
            lower=[0] * (classes + 1),
            upper=[*[buffers] * classes, servers],
            actions=[f"class {k + 1}" for k in range(classes)],
            events=(classes + 1) * (servers + 1),
            probability=probability,
            move=move,
            loss=loss,
            allowed=allowed,
            predecessors=predecessors,
            max_predecessors=2 * classes * (servers + 1),
            loss_bounds=None if buffers is None else (0.0, float(costs.sum()) * buffers),
            coordinates=[*(str(k + 1) for k in range(classes)), "event"],
            name=name,
        )

    @property
    def least_loss(self) -> float:
        """That of empty queues."""
        return 0.0

    @property
    def loss_parts(self) -> Sequence[Callable[[Ints], Floats]]:
        """Holding costs of the classes."""
        return [partial(np.multiply, float(cost)) for cost in (*self.holding, 0.0)]
