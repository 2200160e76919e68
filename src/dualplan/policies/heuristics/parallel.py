"""Rules for parallel servers: at its event, a server takes the waiting class of largest index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dualplan.core.types import Floats
from dualplan.models.contract import register_heuristics
from dualplan.models.instances.parallel import ParallelServers
from dualplan.policies.contract import Policy
from dualplan.policies.tables import FunctionPolicy


def longest(model: ParallelServers) -> Policy:
    """The longest of the queues that a server can serve, ties to the class named first."""
    return _index_rule(
        model, "longest", np.zeros_like(model.services), (model.services > 0).astype(np.float64)
    )


def c_mu(model: ParallelServers) -> Policy:
    """The waiting class of largest holding cost times the server's own rate."""
    return _index_rule(model, "c-mu", model.holding * model.services, np.zeros_like(model.services))


def max_weight(model: ParallelServers) -> Policy:
    """The largest holding cost × rate × queue length."""
    return _index_rule(
        model, "max-weight", np.zeros_like(model.services), model.holding * model.services
    )


def _index_rule(model: ParallelServers, name: str, alpha: Floats, beta: Floats) -> Policy:
    """The waiting class of largest α_sk + β_sk·x_k.

    Where nobody waits, the first class that the server has.
    """
    can = model.services > 0
    classes = model.services.shape[1]

    def rule(x):  # type: ignore[no-untyped-def]
        s = x[classes] - 1
        if s < 0:
            return 0
        best = -1
        index = -np.inf
        for k in range(classes):
            if can[s, k]:
                if x[k] > 0:
                    v = alpha[s, k] + beta[s, k] * x[k]
                else:
                    v = -np.inf
                if best < 0 or v > index:
                    best = k
                    index = v
        return best

    return FunctionPolicy(model, rule, name=name)


PARALLEL_HEURISTICS: dict[str, Callable[[ParallelServers], Policy]] = {
    "longest": longest,
    "c-mu": c_mu,
    "max-weight": max_weight,
}
register_heuristics(ParallelServers, PARALLEL_HEURISTICS)
