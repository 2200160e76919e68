"""Policies for a priced loss ℓ + Σ_k p_k (n_k − b_k d_k): what a limit costs at its price, charged
in every step.

*Networks.* Where only lengths and lost customers are priced, the priced problem is the same network
with other holding costs and penalties: whatever searches networks searches this one, and an index
rule that it finds is the same rule on the network that was given. (Terms that no policy can change,
the limits themselves and what is offered to the network, are left out.) Its heuristics that know
costs, c-mu above all, are rules for the price at once.

*Models of few coordinates*: the values of a lattice with the priced loss, and the policy that is
greedy for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dualplan.core.types import Floats
from dualplan.models.contract import Model
from dualplan.models.limits import Limit
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy
from dualplan.policies.heuristics.network import LinearIndexPolicy, NetworkPolicy, linear_index
from dualplan.search.contract import Candidate, Member, Search
from dualplan.search.lattice import column_prices
from dualplan.search.limited.program import priced_cost

COST_RULES = ("c-mu", "max-weight", "max-pressure")  # heuristics that know costs


@dataclass(frozen=True, eq=False)
class Priced:
    """A network with prices: the network, and what it leaves out of the priced loss of a step,
    which no policy changes.
    """

    network: QueueingNetwork
    constant: float | None  # None where what is left out depends on the policy


def priced_network(model: Model, prices: Sequence[tuple[Limit, float]]) -> Priced | None:
    """The network with prices on lengths and lost customers; None if others are priced, or it is
    no network.
    """
    if not isinstance(model, QueueingNetwork):
        return None
    weights = column_prices(model, prices)
    if not weights.size:
        return Priced(model, 0.0)
    count = len(model.classes)
    first = 2 + model.box.dim
    held = weights[2 : 2 + count]
    offered = weights[first : first + count]
    lost = weights[first + count : first + 2 * count] / model.rate
    others = weights.copy()
    others[0] = 0.0
    others[2 : 2 + count] = 0.0
    others[first : first + 2 * count] = 0.0
    if others.any() or (held < 0).any() or (lost < 0).any():
        return None
    classes = [
        replace(c, holding=c.holding + float(held[i]), penalty=c.penalty + float(lost[i]))
        for i, c in enumerate(model.classes)
    ]
    options: dict[str, Any] = dict(model.options)
    network = QueueingNetwork(classes, name=model.name, policies=model.written, **options)
    return Priced(network, None if offered.any() else float(weights[0]))


def _as_index(policy: Policy, network: QueueingNetwork) -> LinearIndexPolicy | None:
    """The same rule on a network with other costs; None if it is no index."""
    if isinstance(policy, NetworkPolicy):
        policy = linear_index(policy)
    if not isinstance(policy, LinearIndexPolicy):
        return None
    return LinearIndexPolicy(
        network, policy.name, policy.alpha, policy.slopes, temperature=policy.temperature
    )


def cost_rules(search: Search, priced: Priced) -> list[Candidate]:
    """Heuristics for the prices, as rules of the network that was given."""
    model = search.model
    assert isinstance(model, QueueingNetwork)
    names = [name for name in COST_RULES if name in priced.network.policies]
    found = [_as_index(priced.network.policy(name), model) for name in names]
    return [Candidate(p, f"{p.name} with prices") for p in found if p is not None]


def searched(
    search: Search,
    priced: Priced,
    columns: Sequence[Member],
    prices: Floats,
    propose: Callable[[Search], list[Candidate]],
) -> list[Candidate]:
    """What a step finds for the priced network, from the policies that are cheapest there."""
    model = search.model
    assert isinstance(model, QueueingNetwork)
    ranked = sorted(columns, key=lambda m: priced_cost(m.run, search.limits, prices))
    members = []
    for member in ranked:
        rule = _as_index(member.policy, priced.network)
        if rule is not None:
            cost = priced_cost(member.run, search.limits, prices)
            run = replace(member.run, cost=cost)
            members.append(Member(Candidate(rule, member.candidate.source), run))
    if not members:
        return []
    inner = replace(
        search, model=priced.network, limits=(), members=members, best=members[0], fitted={}
    )
    found = [(c, _as_index(c.policy, model)) for c in propose(inner)]
    words = ", ".join(f"{p:.3g}" for p in prices)
    return [Candidate(p, f"{c.source}, price {words}") for c, p in found if p is not None]
