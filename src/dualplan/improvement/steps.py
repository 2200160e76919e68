"""The steps that propose policies, in the order in which a round takes them.

values      greedy for primal programs over drawn constraints: monomials of degree 2, 3 and 4 (`primal/`)
lattice     greedy for the values of a small problem on a lattice of states (`lattice.py`); with limits, for several
            prices on them, and mixtures
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan import primal
from dualplan.criteria import Average, Discounted
from dualplan.errors import InputError, ModelError
from dualplan.evaluation import evaluate
from dualplan.improvement.contract import Candidate, Member, Search, Step, excess
from dualplan.lattice import make_lattice, solve_lattice
from dualplan.limits import Limit
from dualplan.policies.mixed import Mixed
from dualplan.primal.relevance import Independent, visited

FUNCTIONS = 150  # of a basis at most
DRAWN = 20_000  # states whose constraints are taken
SEEN = 20_000  # visits by which the laws of drawn states are fitted
WIDER = 2.0  # drawn states are so many times as far out as those that the policy visits
SPACING = 20  # steps between two of these visits
NODES = (2_500, 20_000, 100_000)  # of a lattice, by size
PRICES, PRICED = 8, 400_000  # prices of limits that are tried, and the steps by which each is judged
MIXED = (0.25, 0.5, 0.75)  # shares of a policy that breaks a limit
GAMMA = 0.99  # of the discounted program whose policy is judged by its average cost


def _law(search: Search) -> Independent:
    """Geometric laws of the coordinates, wider than where the best policy goes."""
    model, place = search.model, 8
    seen = visited(model, search.incumbent.policy, SEEN, search.fresh(place)) - model.box.lower
    means = WIDER * seen.mean(axis=0) + 0.5
    return primal.geometric(model, (means / (1 + means)).tolist())


@dataclass(frozen=True)
class Values:
    """Greedy for values of linear programs with few functions."""

    name: str = "values"
    sizes: int = 1

    def applies(self, search: Search) -> bool:
        """Wherever next states can be listed; side constraints are not in these programs."""
        return search.model.code.forward is not None and not search.limits

    def propose(self, search: Search, size: int) -> list[Candidate]:  # noqa: ARG002 - there is one size
        """One for each degree, as long as the functions are few."""
        law, seed, found = _law(search), search.fresh(9), []
        for degree in (2, 3, 4):
            basis = primal.monomials(search.model, degree)
            if len(basis) > FUNCTIONS:
                break
            try:
                found += self._solved(search, basis, law, seed)
            except InputError:  # the constraints that were drawn do not bound the program
                continue
        return found

    def _solved(self, search: Search, basis: primal.Basis, law: Independent, seed: int) -> list[Candidate]:
        drawn: dict[str, Any] = {"relevance": law, "sample": law, "samples": DRAWN, "seed": seed}
        gamma = search.criterion if isinstance(search.criterion, Discounted) else Discounted(GAMMA)
        programs = [primal.alp(search.model, basis, gamma, **drawn)]
        if isinstance(search.criterion, Average):
            programs.append(primal.average_alp(search.model, basis, **drawn))
        return [
            Candidate(p.policy(), f"{p.method}, {len(basis)} functions", primal.LinearValues(basis, p.weights))
            for p in programs
        ]


@dataclass(frozen=True)
class OnLattice:
    """Greedy for the values of a small problem on a lattice, fitted to where the best policies go."""

    name: str = "lattice"
    sizes: int = len(NODES)

    def applies(self, search: Search) -> bool:
        """Where a lattice has room for three knots a coordinate."""
        model = search.model
        few = np.minimum(model.box.upper - model.box.lower, 2).astype(np.float64) + 1
        return model.code.forward is not None and bool(np.log(few).sum() <= math.log(NODES[-1]))

    def propose(self, search: Search, size: int) -> list[Candidate]:
        """One without prices; with limits, several prices, and mixtures of two that lie on both sides of them."""
        if search.limits:
            return self._priced(search, size)
        found = self._solved(search, NODES[size], ())
        return [] if found is None else [found]

    def _solved(self, search: Search, nodes: int, prices: Sequence[tuple[Limit, float]]) -> Candidate | None:
        seen = np.concatenate([visited(search.model, m.policy, SEEN, search.fresh(8), SPACING) for m in _near(search)])
        try:
            lattice = make_lattice(search.model, seen, nodes=nodes, seed=search.fresh(9))
            found = solve_lattice(search.model, lattice, search.criterion, prices=prices)
        except (InputError, ModelError):  # too many coordinates for so few nodes
            return None
        name = f"lattice, {lattice.nodes:,} nodes"
        # with prices, values are of another loss: no control variates for this one
        return Candidate(found.policy(name=name), name, None if prices else found.values)

    def _priced(self, search: Search, size: int) -> list[Candidate]:
        """Prices by bisection on the logarithm, until a limit is kept and another price breaks it by little."""
        found, low, high = [], 0.0, math.inf
        price = max(1.0, abs(search.incumbent.run.cost))
        for _ in range(PRICES):
            one = self._solved(search, NODES[min(size, 1)], [(limit, price) for limit in search.limits])
            if one is None:
                break
            one = Candidate(one.policy, f"{one.source}, price {price:.3g}")
            run = evaluate(search.model, one.policy, search.criterion, steps=PRICED, seed=search.fresh(10))
            found.append((excess(run, search.limits), one))
            low, high = (low, price) if found[-1][0] == 0 else (price, high)
            price = 4 * price if math.isinf(high) else price / 4 if low == 0 else math.sqrt(low * high)
        kept, broken = [c for e, c in found if e == 0], [c for e, c in found if e > 0]
        made = [c for _, c in found]
        if kept and broken:  # the dearest price that is not enough, and the least that is
            made += [
                Candidate(Mixed([kept[-1].policy, broken[-1].policy], [1 - w, w]), f"mixture, {w:g} of the cheaper")
                for w in MIXED
            ]
        return made


def _near(search: Search) -> list[Member]:
    """The best policy, and the two next best that come near it."""
    cost = search.incumbent.run.cost
    others = [m for m in search.members if m is not search.incumbent and m.run.cost <= cost + 0.1 * abs(cost)]
    return [search.incumbent, *others[:2]]


STEPS: dict[str, Step] = {step.name: step for step in (Values(), OnLattice())}
