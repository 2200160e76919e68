"""Families of policies with real parameters: θ ↦ π_θ, a start and a scale for each parameter.

`indices`         linear indices of a network, v_c(x) = α_c + Σ_d B_cd x_d, with the entries of B
                  that are asked for:
                  d = c and the next classes of c ("next"), or all ("all").
`shared_indices`  linear indices whose parameters all classes share: ten, however many classes there
                  are,

                      v_c(x) = μ_c·(Σ_k θ_k a_k(c) + Σ_k θ'_k b_k(c)ᵀx),

                  where a_k(c) are what a completion saves (h_c − Σ_d R_cd h_d), how many stages are
                  left to class c, how much work, and one over each; and b_k(c)ᵀx the costs h·x of
                  the own class, the next one, the next station, its work, and all that comes later
                  on the way. MaxPressure is θ' = (1, −1, 0, 0, 0); the start leans it towards
                  customers that have few stages left. What all classes share is learnt from all of
                  them: with 21 classes a search of 61 parameters drowns in noise, and this one
                  does not.
`quadratic_indices`   the indices that are greedy for h(x) = gᵀx + ½xᵀHx, H symmetric. A completion
                      of class c at
                  rate μ_c changes x by δ = −e_c + e_d (d the next class, none on the way out), so
                  with one event a step

                      greedy(h) serves the c of largest   −μ_c Σ_d R_cd [h(x + δ) − h(x)]
                                                        = −μ_c Σ_d R_cd [gᵀδ + ½δᵀHδ + δᵀHx],

                  which is linear in x: one look-ahead without looking ahead. (Idling and blocked
                  servers excepted.) H = I is MaxPressure but for the constants.
`greedy_for`      the policy that is greedy for Ψw, θ = w: any model with a forward law.
`mixing`          Σ_k w_k π_k with w the softmax of θ.
`dual`            π_θ of the dual program's mixture, θ its weights.

A network with one event a step is the same process whether its servers decide jointly or each at
its own event, and the latter has far fewer actions: policies are *tried* there, and *made* for the
model that was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan.core.errors import InputError, unknown
from dualplan.core.types import ArrayLike, Bools, Floats, Ints
from dualplan.dual.policy import MixturePolicy
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.heuristics.network import LinearIndexPolicy, NetworkPolicy, linear_index
from dualplan.policies.mixed import Mixed
from dualplan.values.basis import LinearValues

REACH_NEXT = "next"
REACH_ALL = "all"
SHARED_FAMILY = "shared indices"
# of shared indices: customers that a constant of 1 weighs as much as, and how much MaxPressure
# leans towards those with few stages left
CONSTANT_CUSTOMERS = 10.0
STAGE_LEANING = 0.3
CONSTANT_SCALE = 3.0  # the scale of α, in customers
SLOPE_SCALE = 0.5  # the scale of a slope of B that the start has, in such slopes; of others less
# of a weight of values: greedy policies follow small differences of large terms
VALUE_WEIGHT_SCALE = 0.2
# customers at which slopes weigh as much as the constants of the start differ
LIKELY_CUSTOMERS = 5.0


@dataclass(frozen=True, eq=False)
class Family:
    """π_θ = make(θ), from `start` on, each parameter in steps of its scale.

    `trial` is π_θ where it is simulated; `outposts` are states from which greedy policies are
    tried, too.
    """

    name: str
    make: Callable[[Floats], Policy]
    start: Floats
    scales: Floats
    trial: Callable[[Floats], Policy] | None = None
    outposts: Ints | None = None

    def __post_init__(self) -> None:
        start = np.asarray(self.start, np.float64)
        scales = np.asarray(self.scales, np.float64)
        if start.ndim != 1 or not start.size or scales.shape != start.shape:
            raise InputError(
                f"family {self.name!r} needs a start of at least one parameter, and as many scales."
            )
        if not np.isfinite(start).all() or not (np.isfinite(scales).all() and (scales > 0).all()):
            raise InputError(
                f"family {self.name!r} needs finite starts and positive, finite scales."
            )

    def tried(self, theta: Floats) -> Policy:
        """The policy as it is simulated."""
        if self.trial is None:
            return self.make(theta)
        return self.trial(theta)


# -- networks --------------------------------------------------------------------------------------


def deciding_alone(network: QueueingNetwork) -> QueueingNetwork:
    """The same process with decisions per server, where at most one event happens a step."""
    if network.per_server or network.options["dynamics"] != "uniformized":
        return network
    options: dict[str, Any] = {**network.options, "decisions": "per-server"}
    return QueueingNetwork(network.classes, name=network.name, **options)


def _network_of(policy: Policy) -> QueueingNetwork:
    if not isinstance(policy, NetworkPolicy | LinearIndexPolicy) or not isinstance(
        policy.model, QueueingNetwork
    ):
        raise InputError(
            f"policy {policy.name!r} is no index rule of a network; start from one of its "
            "heuristics."
        )
    return policy.model


def indices(policy: Policy, reach: str = REACH_NEXT) -> Family:
    """Linear indices from an index rule on; `reach` says which slopes are searched."""
    if reach not in (REACH_NEXT, REACH_ALL):
        raise unknown("reach", str(reach), [REACH_NEXT, REACH_ALL])
    network = _network_of(policy)
    if isinstance(policy, LinearIndexPolicy):
        start = policy
    else:
        start = linear_index(policy)  # type: ignore[arg-type]
    n = len(network.classes)
    near = _near(network)
    if reach == REACH_NEXT:
        free = near | (start.slopes != 0)
    else:
        free = np.ones((n, n), bool)
    units = _units(network, start)
    name = "searched " + policy.name.removeprefix("searched ")

    def built(model: QueueingNetwork, theta: Floats) -> Policy:
        slopes = np.zeros((n, n))
        slopes[free] = theta[n:]
        return LinearIndexPolicy(model, name, theta[:n], slopes)

    steps = np.where(near, SLOPE_SCALE, SLOPE_SCALE / 2.5) * units[:, None]
    twin = deciding_alone(network)
    return Family(
        f"indices ({reach}) from {policy.name}",
        lambda theta: built(network, theta),
        np.concatenate([start.alpha, start.slopes[free]]),
        np.concatenate([CONSTANT_SCALE * units, steps[free]]),
        lambda theta: built(twin, theta),
    )


def _near(network: QueueingNetwork) -> Bools:
    """Which classes an index looks at: its own and the next ones."""
    near = np.eye(len(network.classes), dtype=bool)
    for c, routes in enumerate(network.routes):
        for d, _ in routes:
            if d >= 0:
                near[c, d] = True
    return near


def _units(network: QueueingNetwork, start: LinearIndexPolicy) -> Floats:
    """What a slope is like, for each class: only ratios within a server count."""
    units = np.empty(len(network.classes))
    for s in range(len(network.servers)):
        mine = network.server_of == s
        slope = float(np.abs(start.slopes[mine]).max(axis=1).mean())
        spread = float(np.ptp(start.alpha[mine])) / LIKELY_CUSTOMERS
        units[mine] = max(slope, spread) or 1.0
    return units


def shared_indices(network: QueueingNetwork) -> Family:
    """Linear indices with ten parameters for all classes together."""
    constants, slopes = _shared_parts(network)
    count = len(constants)
    services = np.array([c.service for c in network.classes])

    def built(model: QueueingNetwork, theta: Floats) -> Policy:
        alpha = CONSTANT_CUSTOMERS * services * (theta[:count] @ constants)
        matrix = services[:, None] * np.tensordot(theta[count:], slopes, 1)
        return LinearIndexPolicy(model, "shared indices", alpha, matrix)

    twin = deciding_alone(network)
    start = np.array([0.0, 0.0, STAGE_LEANING, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    return Family(
        SHARED_FAMILY,
        lambda theta: built(network, theta),
        start,
        np.ones(start.size),
        lambda theta: built(twin, theta),
    )


def _shared_parts(network: QueueingNetwork) -> tuple[Floats, Floats]:
    """The constants a_k, one a row, and the slopes b_k, a matrix each."""
    n = len(network.classes)
    routing = np.zeros((n, n))
    for c, routes in enumerate(network.routes):
        for d, p in routes:
            if d >= 0:
                routing[c, d] += p
    costs = np.array([c.holding for c in network.classes])
    unit = float(costs.mean()) or 1.0
    if not costs.any():
        costs = np.ones(n)
    times = np.array([1 / c.service for c in network.classes])
    visits = np.linalg.inv(np.eye(n) - routing)  # to each class, from each on
    stages = visits.sum(axis=1)
    work = visits @ times
    stations = (network.server_of[:, None] == network.server_of[None, :]).astype(np.float64)
    later = visits - np.eye(n)
    constants = np.array(
        [
            costs - routing @ costs,
            unit * stages / stages.max(),
            unit / stages,
            unit * work / work.max(),
            unit * work.min() / work,
        ]
    )
    slopes = np.array(
        [
            np.diag(costs),
            -routing * costs,
            -(routing @ stations) * costs,
            later * costs / np.maximum(later.sum(axis=1, keepdims=True), 1.0),
            -(routing @ stations) * costs * times / times.mean(),
        ]
    )
    return constants, slopes


def quadratic_indices(
    network: QueueingNetwork, linear: ArrayLike | None = None, quadratic: ArrayLike | None = None
) -> Family:
    """The policies that are greedy for gᵀx + ½xᵀHx; by default from MaxPressure (H = I) on."""
    n = len(network.classes)
    if linear is None:
        g = np.zeros(n)
    else:
        g = np.asarray(linear, np.float64)
    if quadratic is None:
        matrix = np.eye(n)
    else:
        matrix = np.asarray(quadratic, np.float64)
    if g.shape != (n,) or matrix.shape != (n, n) or not np.allclose(matrix, matrix.T):
        raise InputError(
            f"quadratic indices of {n} classes need {n} linear weights and a symmetric matrix."
        )
    upper = np.triu_indices(n)
    unit = float(np.abs(np.diag(matrix)).mean()) or 1.0

    def built(model: QueueingNetwork, theta: Floats) -> Policy:
        half = np.zeros((n, n))
        half[upper] = theta[n:]
        return quadratic_index(model, theta[:n], half + np.triu(half, 1).T)

    twin = deciding_alone(network)
    return Family(
        "quadratic indices",
        lambda theta: built(network, theta),
        np.concatenate([g, matrix[upper]]),
        unit
        * np.concatenate(
            [
                np.full(n, CONSTANT_SCALE),
                np.where(upper[0] == upper[1], SLOPE_SCALE, SLOPE_SCALE / 2),
            ]
        ),
        lambda theta: built(twin, theta),
    )


def quadratic_index(
    network: QueueingNetwork, linear: ArrayLike, quadratic: ArrayLike
) -> LinearIndexPolicy:
    """The index rule that is greedy for gᵀx + ½xᵀHx."""
    g = np.asarray(linear, np.float64)
    matrix = np.asarray(quadratic, np.float64)
    n = len(network.classes)
    alpha = np.zeros(n)
    slopes = np.zeros((n, n))
    for c, routes in enumerate(network.routes):
        for d, p in routes:
            change = np.zeros(n)
            change[c] -= 1
            if d >= 0:
                change[d] += 1
            rate = network.classes[c].service * p
            alpha[c] -= rate * (g @ change + change @ matrix @ change / 2)
            slopes[c] -= rate * (change @ matrix)
    return LinearIndexPolicy(network, "searched quadratic", alpha, slopes)


# -- any model -------------------------------------------------------------------------------------


def greedy_for(values: LinearValues, gamma: float = 1.0) -> Family:
    """Greedy for Ψw, from given weights on.

    a weight is changed in parts of itself or of a typical one.
    """
    size = np.abs(values.weights)
    if (size > 0).any():
        typical = float(np.median(size[size > 0]))
    else:
        typical = 1.0
    return Family(
        "greedy for Ψw",
        lambda theta: GreedyPolicy(
            values.basis.model, LinearValues(values.basis, theta), gamma, name="searched greedy"
        ),
        values.weights,
        VALUE_WEIGHT_SCALE * np.maximum(size, typical / 3),
    )


def mixing(policies: Sequence[Policy], weights: ArrayLike | None = None) -> Family:
    """Mixtures of policies; weights start equal, or as given (positive)."""
    if weights is None:
        shares = np.full(len(policies), 1 / max(len(policies), 1))
    else:
        shares = np.asarray(weights, np.float64)
    if len(policies) < 2 or shares.shape != (len(policies),) or not (shares > 0).all():
        raise InputError(
            "a family of mixtures needs at least two policies, and a positive weight for each."
        )

    def made(theta: Floats) -> Policy:
        raised = np.exp(theta - theta.max())
        return Mixed(policies, raised / raised.sum(), name="searched mixture")

    return Family("mixtures", made, np.log(shares), np.ones(len(policies)))


def dual(policy: MixturePolicy) -> Family:
    """The weights of the dual program's answer.

    Only ratios of u count, so steps are in parts of its size.
    """
    size = float(np.sqrt(np.mean(policy.theta**2))) or 1.0
    return Family(
        "dual mixture",
        lambda theta: MixturePolicy(
            policy.features, theta, fallback=policy.fallback, name=f"searched {policy.name}"
        ),
        policy.theta,
        np.maximum(np.abs(policy.theta), size / 10) / 2,
    )
