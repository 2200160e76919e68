"""The steps that propose policies, in the order in which a round takes them.

values      greedy for primal programs over drawn constraints: monomials of degree 2, 3 and 4 (`primal/`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dualplan import primal
from dualplan.criteria import Average, Discounted
from dualplan.errors import InputError
from dualplan.improvement.contract import Candidate, Search, Step
from dualplan.primal.relevance import Independent, visited

FUNCTIONS = 150  # of a basis at most
DRAWN = 20_000  # states whose constraints are taken
SEEN = 20_000  # visits by which the laws of drawn states are fitted
WIDER = 2.0  # drawn states are so many times as far out as those that the policy visits
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


STEPS: dict[str, Step] = {step.name: step for step in (Values(),)}
