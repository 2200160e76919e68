"""What a policy that stays as it is costs when the rates of a network change.

A rate (an arrival or service rate of a class, all arrivals, all services) is multiplied by a
factor, and the policy keeps its decisions: the changed network has the same states and actions, so
the decision in each state is that of the original policy, whatever made it. In particular, rules
that were derived from rates (cμ, MaxWeight, a look-ahead) go on with the original rates, as a
controller would whose rates were estimated wrongly.

Where states are few the cost is computed by linear algebra; elsewhere it is simulated, with the
same random numbers for all factors, and the *change* against the unchanged network is a paired
interval. A server whose load from queues without end is 1 or more makes the average cost infinite
under every policy if all who wait in such queues cost something; elsewhere instability is seen by
simulation, as in `evaluate`.

Average costs do not depend on how often a chain of single events is looked at, so where changed
rates no longer fit into the probabilities of one step, all networks are taken in continuous time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dualplan.core.checks import is_list, is_positive
from dualplan.core.errors import InputError, unknown
from dualplan.core.intervals import (
    Interval,
    cut_into_batches,
    dropped_chunks,
    observations,
    ratio_interval,
)
from dualplan.core.status import COMPUTED, MEASURED, Status
from dualplan.core.types import Floats, Ints, Json
from dualplan.evaluation.experiments import LongRun
from dualplan.evaluation.results import EXACT_EVALUATION, Evaluation, Settings, require_known_method
from dualplan.exact.policy import ExactEvaluation, evaluate_exact
from dualplan.models.contract import Model
from dualplan.models.queueing import QueueClass, QueueingNetwork
from dualplan.policies.contract import Policy, require_policies

RATE_FACTORS = (0.9, 0.95, 1.0, 1.05, 1.1)
SENSITIVITY_STEPS = 1_000_000  # of one simulation
MOST_COMPUTED_STATES = 5_000  # up to which costs are computed, for every factor and rate
ALL_ARRIVALS = "arrivals"
ALL_SERVICES = "services"


class KeptPolicy(Policy):
    """The decisions of a policy, taken to a network with other rates."""

    def __init__(self, network: QueueingNetwork, policy: Policy) -> None:
        self.original = policy
        super().__init__(
            network, policy.name, policy.code
        )  # compiled policies carry the data they decide by

    def probabilities(self, x: Ints) -> Floats:
        """Those of the original."""
        return self.original.probabilities(x)

    def rows(self, states: Ints) -> Floats:
        """Those of the original."""
        return self.original.rows(states)

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self.original.digest, self.model.digest)


@dataclass(frozen=True)
class Point:
    """The cost at one factor, and its change against the unchanged network.

    Unstable ones have infinite costs.
    """

    factor: float
    cost: float
    lower: float
    upper: float
    change: Interval
    known: str
    status: Status


@dataclass(frozen=True)
class Sensitivity:
    """The costs of one policy along the factors of one rate.

    `base` is that of the unchanged network.
    """

    policy: str
    rate: str
    base: float
    points: tuple[Point, ...]

    @property
    def effect(self) -> float:
        """The largest change of the cost among all factors, infinite where a cost is."""
        return max(
            math.inf if math.isnan(p.change.value) else abs(p.change.value) for p in self.points
        )

    def to_json(self) -> Json:
        """As plain values."""
        return {
            "policy": self.policy,
            "rate": self.rate,
            "base": self.base,
            "points": [
                {
                    "factor": p.factor,
                    "cost": p.cost,
                    "cost_lower": p.lower,
                    "cost_upper": p.upper,
                    "change": p.change.to_json(),
                    "known": p.known,
                    "status": str(p.status),
                }
                for p in self.points
            ],
        }


def sensitivity(
    model: Model,
    policies: Policy | Sequence[Policy],
    rates: Sequence[str] | None = None,
    *,
    factors: Sequence[float] = RATE_FACTORS,
    steps: int = SENSITIVITY_STEPS,
    seed: int = 0,
    confidence: float = 0.95,
    method: str | None = None,
) -> list[Sensitivity]:
    """The average cost of fixed policies when rates are multiplied by factors, policy by policy and
    rate by rate.

    Rates are called "arrival 1", "service 1" by the class, or "arrivals" and "services" for all
    together; by default each of them alone, and all arrivals.
    """
    require_known_method(method)
    network = _network(model)
    chosen = require_policies(model, policies)
    names = _rates(network, rates)
    _check_factors(factors)
    settings = Settings(method="batch-means", steps=steps, seed=seed, confidence=confidence)
    changed = _changed_networks(network, names, factors)
    few = (
        network.box.count is not None
        and network.box.count <= MOST_COMPUTED_STATES
        and network.has_forward
    )
    found = []
    for policy in chosen:
        computed = method == EXACT_EVALUATION or (
            method is None and few and policy.code is not None
        )
        costs: _Costs = _Exact(policy) if computed else _Simulated(policy, settings)
        base = costs.of(changed[None])
        for name in names:
            runs = [(f, base if f == 1 else costs.of(changed[name, float(f)])) for f in factors]
            points = tuple(costs.point(float(f), run, base) for f, run in runs)
            found.append(Sensitivity(policy.name, name, costs.point(1.0, base, base).cost, points))
    return found


def _network(model: Model) -> QueueingNetwork:
    if not isinstance(model, QueueingNetwork):
        raise InputError(
            f"model {model.name!r} is no queueing network, so it has no rates to change."
        )
    return model


def _rates(network: QueueingNetwork, asked: Sequence[str] | None) -> list[str]:
    single = [f"arrival {c.name}" for c in network.classes if c.arrival > 0]
    known = [*single, *(f"service {c.name}" for c in network.classes), ALL_ARRIVALS, ALL_SERVICES]
    if asked is None:
        return [
            name
            for name in known
            if name != ALL_SERVICES and (name != ALL_ARRIVALS or len(single) > 1)
        ]
    for name in asked:
        if name not in known:
            raise unknown(f"rate of {network.name!r}", name, known)
    return list(asked)


def _check_factors(factors: Sequence[float]) -> None:
    if not is_list(is_positive)(factors):
        raise InputError(f"factors are positive numbers, at least one, got {factors!r}.")


# -- changed networks ------------------------------------------------------------------------------

Key = tuple[str, float] | None


def _changed_networks(
    network: QueueingNetwork, names: Sequence[str], factors: Sequence[float]
) -> Mapping[Key, QueueingNetwork]:
    """The network for each rate and factor, and unchanged under None.

    In continuous time if they do not fit a step.
    """
    options: dict[str, Any] = dict(network.options)
    keys = [(name, float(f)) for name in names for f in factors if f != 1]
    classes = {key: [_with_factor(c, *key) for c in network.classes] for key in keys}
    discrete = options["time"] == "discrete" and options["dynamics"] == "uniformized"
    if discrete and any(_events(network, changed) > 1 for changed in classes.values()):
        options["time"] = "continuous"
    made: dict[Key, QueueingNetwork] = {
        None: QueueingNetwork(network.classes, name=network.name, **options)
    }
    for key, changed in classes.items():
        made[key] = QueueingNetwork(changed, name=network.name, **options)
    return made


def _with_factor(c: QueueClass, name: str, factor: float) -> QueueClass:
    if name in (ALL_ARRIVALS, f"arrival {c.name}"):
        return replace(c, arrival=factor * c.arrival)
    if name in (ALL_SERVICES, f"service {c.name}"):
        return replace(c, service=factor * c.service)
    return c


def _events(network: QueueingNetwork, classes: Sequence[QueueClass]) -> float:
    """Arrivals and the fastest service of each server, in sum."""
    peaks = (max(c.service for c in classes if c.server == s) for s in network.servers)
    return sum(c.arrival for c in classes) + sum(peaks)


def _infinite(network: QueueingNetwork) -> bool:
    """Whether every policy has an infinite cost: no buffer turns the work of a server away, and all
    who wait cost.
    """
    costly = all(
        max(c.holding, c.quadratic, c.excess) > 0 for c in network.classes if c.buffer is None
    )
    return costly and max(network.certain_loads.values()) >= 1


# -- costs -----------------------------------------------------------------------------------------


class _Costs(Protocol):
    """Runs of one policy on networks, and what they say of its cost."""

    def of(self, network: QueueingNetwork) -> Any:
        """A finished run."""

    def point(self, factor: float, one: Any, base: Any) -> Point:
        """The cost of a run, and its change against another."""


class _Exact:
    """Costs by linear algebra."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def of(self, network: QueueingNetwork) -> ExactEvaluation:
        return evaluate_exact(network, KeptPolicy(network, self.policy))

    def point(self, factor: float, one: ExactEvaluation, base: ExactEvaluation) -> Point:
        change = Interval(one.cost - base.cost, one.lower - base.upper, one.upper - base.lower, 1.0)
        return Point(factor, one.cost, one.lower, one.upper, change, COMPUTED, one.status)


class _Simulated:
    """Costs by simulation, all with the same random numbers."""

    def __init__(self, policy: Policy, settings: Settings) -> None:
        self.policy = policy
        self.settings = settings

    def of(self, network: QueueingNetwork) -> LongRun | None:
        """A finished run; None where the cost is known to be infinite."""
        if _infinite(network):
            return None
        run = LongRun(network, [KeptPolicy(network, self.policy)], self.settings)
        while run.size < run.limit:
            run.advance()
        return run

    def point(self, factor: float, one: LongRun | None, base: LongRun | None) -> Point:
        level = self.settings.confidence
        unknown_change = Interval(math.nan, -math.inf, math.inf, level)
        if one is None:
            return Point(
                factor, math.inf, math.inf, math.inf, unknown_change, COMPUTED, Status.UNSTABLE
            )
        found = _evaluated(one)
        change = unknown_change
        if base is not None and math.isfinite(found.cost) and math.isfinite(_evaluated(base).cost):
            change = _paired(one.rows[0], base.rows[0], level)
        return Point(factor, found.cost, found.lower, found.upper, change, MEASURED, found.status)


def _evaluated(run: LongRun) -> Evaluation:
    return run.evaluations(Status.COMPLETED, 0.0)[0]


def _paired(rows: Floats, base: Floats, confidence: float) -> Interval:
    """The interval of the difference of two costs, from chunks that met the same random numbers."""
    dropped = max(dropped_chunks(r, column=1) for r in (rows, base))
    difference = rows.copy()
    difference[:, :, 1] -= base[:, :, 1]
    batches = cut_into_batches(difference, dropped, column=1)
    worth = observations(difference, dropped, column=1)
    return ratio_interval(batches[:, 1], batches[:, 0], confidence, worth)
