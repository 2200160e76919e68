"""Programs in turn, each with c the occupancy of the last greedy policy, and the best of their
policies.

What a greedy policy loses is an error of the values averaged over where this policy goes (de Farias
& Van Roy 2003), so c should be its own occupancy, which is known only afterwards. Nothing says that
the next policy is better than the last, so all are evaluated: exactly where states are few,
otherwise by simulation with the same random numbers. A policy whose average cost depends on chance
(several recurrent classes) counts as infinitely bad and ends the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dualplan.core.checks import require_counts
from dualplan.core.errors import ModelError
from dualplan.core.types import Floats
from dualplan.evaluation.judge import Judge
from dualplan.models.criteria import Criterion
from dualplan.policies.contract import Policy
from dualplan.primal.relevance import Relevance
from dualplan.primal.solution import PrimalSolution


@dataclass(frozen=True, eq=False)
class Iterated:
    """The rounds of an iterated program: their solutions, what their policies cost, and which is
    best.

    `stopped` says why it ended before the last round, if it did.
    """

    solutions: tuple[PrimalSolution, ...]
    policies: tuple[Policy, ...]
    costs: Floats
    half_widths: Floats
    chosen: int
    stopped: str = ""

    @property
    def best(self) -> PrimalSolution:
        """The solution whose policy costs least.

        Where costs were simulated, by estimates that are a bit too low.
        """
        return self.solutions[self.chosen]

    @property
    def policy(self) -> Policy:
        """Its policy."""
        return self.policies[self.chosen]


def iterate(
    solve: Callable[[Relevance | Policy | None], PrimalSolution],
    relevance: Relevance | Policy | None,
    iterations: int,
    cost: Criterion,
    judge: Judge,
) -> Iterated:
    """Solve for c, take the greedy policy for the next c, `iterations` times.

    Judge all policies by `cost`.
    """
    require_counts(iterations=iterations)
    solutions: list[PrimalSolution] = []
    policies: list[Policy] = []
    costs: list[tuple[float, float]] = []
    stopped = ""
    while len(solutions) < iterations and not stopped:
        solutions.append(solve(policies[-1] if policies else relevance))
        policies.append(
            solutions[-1].policy(name=f"{solutions[-1].method}, iteration {len(solutions)}")
        )
        try:
            found = judge(policies[-1].model, policies[-1], cost, simulate_several=False)
            costs.append((found.cost, found.half_width))
        except ModelError as error:
            costs.append((math.inf, math.nan))
            stopped = str(error)
    means, widths = np.array(costs).T
    return Iterated(
        solutions=tuple(solutions),
        policies=tuple(policies),
        costs=means,
        half_widths=widths,
        chosen=int(np.argmin(means)),
        stopped=stopped,
    )
