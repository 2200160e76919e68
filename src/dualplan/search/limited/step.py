"""Limits by prices: the program over all measured policies, and policies for its prices.

Each round solves the program of `program.py` over all policies that were measured so far, and asks
for policies that are cheap at its prices (`priced.py`); they are measured and become columns. It
ends when a round finds none that lowers the program's cost by more than is worth it, or the time is
over. What is proposed is the mixture: policies in turn, each in its share of the time
(`policies/alternating.py`), or a single one if that is best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from dualplan.core.deadlines import deadline, time_is_over, until
from dualplan.core.errors import DualplanError, ModelError, OutOfTimeError, PolicyError
from dualplan.core.streams import Place, PriceWord, own_seed
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.visits import visited
from dualplan.models.criteria import Average
from dualplan.models.limits import Limit
from dualplan.policies.alternating import Alternating
from dualplan.policies.contract import Policy
from dualplan.search.contract import Candidate, Member, Search
from dualplan.search.duels import pace
from dualplan.search.limited.priced import cost_rules, priced_network, searched
from dualplan.search.limited.program import Shares, best_shares

ROUNDS_BY_SIZE = (3, 6, 10, 16)
MEASURED_STEPS = 5_000_000  # of a column, at the pace of a policy that looks ahead
MEASURING_TIME_SHARE = 0.05  # of the time that is left, for a column at most
REFINING_TIME_SHARE = 0.15  # the same, for one that has a share in the end
REFINED_STEPS_FACTOR = 10
ROUND_TIME_SHARE = 0.35  # of the time that is left, for the searches of a round
WORTHWHILE_SHARE = 1e-3  # of the cost: what a round must save
HOME_VISITS = 20_000  # of each policy, among which they meet

Prices = Sequence[tuple[Limit, float]]


@dataclass(frozen=True, eq=False)
class ByPrices:
    """Mixtures of policies that keep limits, by searches without limits at prices.

    `search_network` searches a network of any size, `solve_lattice` any model of few coordinates,
    with prices; it gives None where it does not apply.
    """

    search_network: Callable[[Search, int], list[Candidate]]
    solve_lattice: Callable[[Search, Prices, int], Candidate | None]
    name: str = "limits"
    first: bool = True
    elastic: bool = True
    sizes: int = len(ROUNDS_BY_SIZE)
    grows: float = 2.0
    needs: str = "limits, and the average criterion"

    def applies(self, search: Search) -> bool:
        """Wherever there are limits on long-run measures that may bind."""
        return bool(search.limits) and isinstance(search.criterion, Average)

    def propose(self, search: Search, size: int) -> list[Candidate]:
        """The best mixture after some rounds."""
        columns = Columns(search, search.fresh(Place.PRICES))
        for _ in range(ROUNDS_BY_SIZE[size]):
            if not self._improve(columns, columns.shares(), size):
                break
        return [columns.mixture()]

    def _improve(self, columns: Columns, before: Shares, size: int) -> bool:
        """Look for policies at the prices, one way after the other until one of them pays; whether
        one did.
        """
        for made_by in (self._by_rules, self._by_lattice, self._by_search):
            if time_is_over():
                return False
            found: list[Candidate] = []
            part = deadline().part(ROUND_TIME_SHARE * deadline().left)
            with until(part), suppress(DualplanError):  # it may not apply, or take too long
                found = made_by(columns, before.prices, size)
            for candidate in found:
                columns.measure(candidate)
            after = columns.shares()
            least = WORTHWHILE_SHARE * abs(after.cost)
            if before.excess > after.excess or before.cost - after.cost > least:
                return True
        return False

    def _by_rules(
        self,
        columns: Columns,
        prices: Floats,
        size: int,  # noqa: ARG002
    ) -> list[Candidate]:
        """Heuristics of a network that know costs, and so prices."""
        network = priced_network(columns.search.model, columns.priced(prices))
        if network is None:
            return []
        return cost_rules(columns.search, network)

    def _by_lattice(self, columns: Columns, prices: Floats, size: int) -> list[Candidate]:
        """Greedy for values of the priced loss."""
        found = self.solve_lattice(columns.fresh(), columns.priced(prices), size)
        if found is None:
            return []
        return [found]

    def _by_search(self, columns: Columns, prices: Floats, size: int) -> list[Candidate]:
        """A search among rules of a network with prices."""
        network = priced_network(columns.search.model, columns.priced(prices))
        if network is None:
            return []
        return searched(
            columns.fresh(),
            network,
            columns.members,
            prices,
            lambda inner: self.search_network(inner, size),
        )


class Columns:
    """The policies that were measured: columns of the program.

    They stay with the search, for the next attempt.
    """

    def __init__(self, search: Search, seed: int) -> None:
        self.search = search
        self.seed = seed
        self.draws = 0
        for member in [*search.members, search.incumbent]:
            known = all(limit.name in member.run.measures for limit in search.limits)
            if known and not isinstance(member.policy, Alternating):
                search.columns.setdefault(member.policy.digest, member)

    def fresh(self) -> Search:
        """The search with a seed of its own, another each time."""
        self.draws += 1
        return replace(self.search, seed=own_seed(self.seed, PriceWord.ROUND + self.draws))

    def priced(self, prices: Floats) -> list[tuple[Limit, float]]:
        """Each limit with its price."""
        return list(zip(self.search.limits, prices.tolist(), strict=True))

    @property
    def members(self) -> list[Member]:
        """Those of finite cost."""
        return [m for m in self.search.columns.values() if np.isfinite(m.run.cost)]

    def shares(self) -> Shares:
        """The cheapest among them."""
        return best_shares([m.run for m in self.members], self.search.limits)

    def measure(self, candidate: Candidate, factor: int = 1) -> None:
        """Add a policy, unless it is known, or cannot be simulated."""
        known = self.search.columns.get(candidate.policy.digest)
        if known is not None and (factor == 1 or known.run.exact):
            return
        share = MEASURING_TIME_SHARE if factor == 1 else REFINING_TIME_SHARE
        steps = max(1, int(factor * MEASURED_STEPS * pace(self.search, candidate)))
        allowed = share * deadline().left
        judge = Judge(
            steps=steps,
            seed=own_seed(self.seed, PriceWord.MEASURING),
            time=allowed if np.isfinite(allowed) else None,
        )
        with suppress(ModelError, PolicyError, OutOfTimeError):
            run = judge(self.search.model, candidate.policy, self.search.criterion)
            self.search.columns[candidate.policy.digest] = Member(candidate, run)

    def mixture(self) -> Candidate:
        """The cheapest shares, once those that have one were measured for longer."""
        for j in self.shares().followed:
            self.measure(self.members[j].candidate, REFINED_STEPS_FACTOR)
        shares = self.shares()
        self.search.prices = tuple(self.priced(shares.prices))
        members = self.members
        chosen = [members[j] for j in shares.followed]
        if len(chosen) == 1:
            return chosen[0].candidate
        parts = [m.policy for m in chosen]
        home = meeting_state(parts, own_seed(self.seed, PriceWord.HOME))
        weights = shares.theta[shares.followed]
        policy = Alternating(parts, weights / weights.sum(), home)
        words = ", ".join(f"{p:.3g}" for p in shares.prices)
        return Candidate(policy, f"{len(parts)} policies in turn, price {words}")


def meeting_state(policies: Sequence[Policy], seed: int) -> Ints:
    """A state that all of them visit: the start if they do, else the one that the policy which
    visits it least visits most.
    """
    model = policies[0].model
    counts: list[dict[tuple[int, ...], int]] = []
    for policy in policies:
        states = visited(model, policy, samples=HOME_VISITS, seed=seed)
        rows, often = np.unique(states, axis=0, return_counts=True)
        counts.append({tuple(x.tolist()): int(n) for x, n in zip(rows, often, strict=True)})
    common = {x for x in counts[0] if all(x in other for other in counts)}
    start = tuple(model.start.tolist())
    if start in common or not common:
        return model.start.copy()
    best = max(sorted(common), key=lambda x: min(other[x] for other in counts))
    return np.array(best, np.int64)
