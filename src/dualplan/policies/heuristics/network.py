"""The usual heuristics of queueing networks, all index rules.

The rule is in `_kernels/policies.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dualplan._kernels.index_walk import moments, simulate_indices
from dualplan._kernels.linear_index import linear_index_rule
from dualplan._kernels.policies import network_rule
from dualplan.core.errors import PolicyError, unknown
from dualplan.core.types import ArrayLike, Floats, Ints, Json
from dualplan.models.contract import Model, register_heuristics, register_writing
from dualplan.models.priorities import ranks
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import OwnLoop, Policy, PolicyCode, require_policy
from dualplan.policies.saved import register_rule

WAYS_TO_BREAK_TIES = ("uniform", "first")


class NetworkPolicy(Policy):
    """Each server serves a waiting class c of largest index ``alpha_c + beta_c (x_c - kappa Σ_d
    R_cd x_d)``.

    `probability` (one number, or one for each server) is how often it does; the rest goes to its
    other waiting classes in equal parts, or where none waits to idling. `ties` are shared
    ("uniform") or go to the class that was named first ("first").
    """

    def __init__(
        self,
        network: QueueingNetwork,
        name: str,
        alpha: ArrayLike = 0.0,
        beta: ArrayLike = 0.0,
        *,
        kappa: float = 0.0,
        probability: ArrayLike = 1.0,
        ties: str = "uniform",
    ) -> None:
        if ties not in WAYS_TO_BREAK_TIES:
            raise unknown("rule for ties", ties, WAYS_TO_BREAK_TIES)
        n = len(network.classes)
        servers = len(network.servers)
        self.alpha = _spread(alpha, n, "alpha")
        self.beta = _spread(beta, n, "beta")
        if not (
            np.isfinite(self.alpha).all() and np.isfinite(self.beta).all() and np.isfinite(kappa)
        ):
            raise PolicyError(f"policy {name!r}: alpha, beta and kappa must be finite numbers.")
        self.kappa = kappa
        self.ties = ties
        self.probability = _spread(probability, servers, "probability")
        if not np.all((self.probability >= 0) & (self.probability <= 1)):
            raise PolicyError(
                f"policy {name!r}: probabilities must lie in [0, 1], got {probability!r}."
            )
        code = network.code
        ints = np.append(code.ints, WAYS_TO_BREAK_TIES.index(ties))
        floats = np.concatenate([code.floats, self.alpha, self.beta, self.probability, [kappa]])
        # the same choices as a linear index, but at empty queues, which only phantom services tell
        # apart
        fixed = (
            ties == "first"
            and kappa == 0
            and not network.options["phantom"]
            and (self.probability == 1).all()
        )
        if fixed:
            loop = _loop(network, _index_floats(network, self.alpha, np.diag(self.beta)))
        else:
            loop = None
        super().__init__(network, name, PolicyCode(ints, floats, network_rule, loop))

    def describe(self) -> Json:
        """The numbers of the rule."""
        return {
            **super().describe(),
            "alpha": self.alpha.tolist(),
            "beta": self.beta.tolist(),
            "kappa": self.kappa,
            "probability": self.probability.tolist(),
            "ties": self.ties,
        }


class LinearIndexPolicy(Policy):
    """Each server serves a waiting class c with probability ∝ exp(v_c/τ), ``v_c(x) = alpha_c + Σ_d
    slopes_cd x_d``.

    `temperature` is τ; at 0 the largest index is served, ties to the class named first.
    """

    def __init__(
        self,
        network: QueueingNetwork,
        name: str,
        alpha: ArrayLike,
        slopes: ArrayLike,
        *,
        temperature: float = 0.0,
    ) -> None:
        n = len(network.classes)
        self.alpha = _spread(alpha, n, "alpha")
        self.slopes = np.array(slopes, np.float64)
        if self.slopes.shape != (n, n) or not (
            np.isfinite(self.slopes).all() and np.isfinite(self.alpha).all()
        ):
            raise PolicyError(
                f"policy {name!r}: slopes must be {n} rows of {n} finite numbers, and alpha finite."
            )
        if not (temperature >= 0 and np.isfinite(temperature)):
            raise PolicyError(
                f"policy {name!r}: the temperature must be 0 or more, got {temperature!r}."
            )
        self.network = network
        self.temperature = float(temperature)
        floats = _index_floats(network, self.alpha, self.slopes, self.temperature)
        if self.temperature == 0:
            loop = _loop(network, floats)
        else:
            loop = None
        super().__init__(
            network, name, PolicyCode(network.code.ints.copy(), floats, linear_index_rule, loop)
        )

    def describe(self) -> Json:
        """The numbers of the rule."""
        return {
            **super().describe(),
            "alpha": self.alpha.tolist(),
            "slopes": self.slopes.tolist(),
            "temperature": self.temperature,
        }


def linear_index(policy: NetworkPolicy) -> LinearIndexPolicy:
    """An index rule as a linear index: the same choices but for ties, which go to the class named
    first.
    """
    require_policy(policy)
    network = policy.model
    if not isinstance(network, QueueingNetwork):
        raise PolicyError(f"policy {policy.name!r} belongs to no queueing network.")
    slopes = np.diag(policy.beta)
    for c, routes in enumerate(network.routes):
        for d, p in routes:
            if d >= 0:
                slopes[c, d] -= policy.kappa * policy.beta[c] * p
    return LinearIndexPolicy(network, policy.name, policy.alpha, slopes)


def _index_floats(
    network: QueueingNetwork, alpha: Floats, slopes: Floats, temperature: float = 0.0
) -> Floats:
    """What the rule of linear indices reads."""
    return np.concatenate([network.code.floats, alpha, slopes.ravel(), [temperature]])


def walks(network: QueueingNetwork) -> bool:
    """Whether one event happens a step (uniformized), and servers may choose anew in each
    (preemptive).
    """
    return bool(network.options["dynamics"] == "uniformized") and not network.nonpreemptive


def _loop(network: QueueingNetwork, floats: Floats) -> OwnLoop | None:
    """The loop of linear indices, where the network's losses do not depend on a pending event."""
    pending = network.per_server and any(c.penalty > 0 for c in network.classes)
    if pending or not walks(network):
        return None
    return OwnLoop(network.code.ints, floats, simulate_indices, moments, len(network.classes))


def _spread(values: ArrayLike, size: int, what: str) -> Floats:
    array = np.asarray(values, np.float64)
    if array.ndim > 1 or (array.ndim == 1 and array.size != size):
        raise PolicyError(f"{what} needs one number or {size} of them, got {array.size}.")
    return np.broadcast_to(array, (size,)).copy()


def longer(network: QueueingNetwork, *, ties: str = "uniform") -> NetworkPolicy:
    """LONGER (LONGEST): the longest queue of each server."""
    if ties == "uniform":
        name = "longer"
    else:
        name = "longer-first"
    return NetworkPolicy(network, name, beta=1.0, ties=ties)


def soft_longer(network: QueueingNetwork, probability: ArrayLike) -> NetworkPolicy:
    """The longest queue with probability p (Banijamali et al. 2019), ties to the class named
    first.
    """
    return NetworkPolicy(network, "soft-longer", beta=1.0, probability=probability, ties="first")


def priority(
    network: QueueingNetwork, order: Sequence[str], *, name: str = "priority"
) -> NetworkPolicy:
    """Classes in fixed order of priority.

    Classes that are not named come last, in the network's order.
    """
    for c in order:
        if c not in network.class_names:
            raise unknown("class", c, network.class_names)
    full = [*dict.fromkeys(order), *(c for c in network.class_names if c not in order)]
    return NetworkPolicy(
        network, name, alpha=[-float(full.index(c)) for c in network.class_names], ties="first"
    )


def written_priority(network: QueueingNetwork, text: str, name: str | None = None) -> NetworkPolicy:
    """Priorities that are written down, such as ``urgent > routine; lab > triage``."""
    alpha = [0.0 - rank for rank in ranks(text, network.server_of_class)]
    label = name or " ".join(text.split())
    return NetworkPolicy(network, label, alpha=alpha, ties="first")


def lbfs(network: QueueingNetwork) -> NetworkPolicy:
    """Last buffer first served: the class with the fewest stages still to go, ties to the class
    named first.
    """
    return NetworkPolicy(network, "lbfs", alpha=-_stages_to_go(network), ties="first")


def fbfs(network: QueueingNetwork) -> NetworkPolicy:
    """First buffer first served: the class with the most stages still to go, ties to the class
    named first.
    """
    return NetworkPolicy(network, "fbfs", alpha=_stages_to_go(network), ties="first")


def c_mu(network: QueueingNetwork) -> NetworkPolicy:
    """The cμ rule: the class with the largest holding cost times service rate."""
    return NetworkPolicy(
        network, "c-mu", alpha=[c.holding * c.service for c in network.classes], ties="first"
    )


def max_weight(network: QueueingNetwork) -> NetworkPolicy:
    """MaxWeight: the largest holding cost × service rate × queue length."""
    return NetworkPolicy(
        network, "max-weight", beta=[c.holding * c.service for c in network.classes]
    )


def max_pressure(network: QueueingNetwork) -> NetworkPolicy:
    """MaxPressure (back-pressure): the largest service rate × (queue length − expected next queue
    length).
    """
    return NetworkPolicy(
        network, "max-pressure", beta=[c.service for c in network.classes], kappa=1.0
    )


def random(network: QueueingNetwork) -> NetworkPolicy:
    """Any waiting class, all equally likely."""
    return NetworkPolicy(network, "random")


NETWORK_HEURISTICS: dict[str, Callable[[QueueingNetwork], Policy]] = {
    "longer": longer,
    "longer-first": lambda network: longer(network, ties="first"),
    "lbfs": lbfs,
    "fbfs": fbfs,
    "c-mu": c_mu,
    "max-weight": max_weight,
    "max-pressure": max_pressure,
    "random": random,
}
register_heuristics(QueueingNetwork, NETWORK_HEURISTICS)
register_writing(QueueingNetwork, written_priority)


def _stages_to_go(network: QueueingNetwork) -> Floats:
    """The expected number of services before a customer of each class leaves."""
    n = len(network.classes)
    matrix = np.eye(n)
    for i, routes in enumerate(network.routes):
        for d, p in routes:
            if d >= 0:
                matrix[i, d] -= p
    stages = np.linalg.solve(matrix, np.ones(n))
    return np.asarray(np.round(stages, 9))


# -- in files --------------------------------------------------------------------------------------


def _read_index(model: Model, name: str, ints: Ints, floats: Floats) -> Policy:
    network = _network(model, name)
    n = len(network.classes)
    numbers = floats[network.code.floats.size :]
    alpha, beta, probability, (kappa,) = np.split(numbers, [n, 2 * n, 2 * n + len(network.servers)])
    ties = WAYS_TO_BREAK_TIES[int(ints[-1])]
    return NetworkPolicy(
        network, name, alpha, beta, kappa=float(kappa), probability=probability, ties=ties
    )


def _read_linear_index(
    model: Model,
    name: str,
    ints: Ints,  # noqa: ARG001 - floats say all
    floats: Floats,
) -> Policy:
    network = _network(model, name)
    n = len(network.classes)
    alpha, slopes, (temperature,) = np.split(floats[network.code.floats.size :], [n, n + n * n])
    return LinearIndexPolicy(
        network, name, alpha, slopes.reshape(n, n), temperature=float(temperature)
    )


def _network(model: Model, name: str) -> QueueingNetwork:
    if not isinstance(model, QueueingNetwork):
        raise ValueError(f"the index rule {name!r} is for networks")
    return model


register_rule("network", network_rule, _read_index)
register_rule("linear index", linear_index_rule, _read_linear_index)
