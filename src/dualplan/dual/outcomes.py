"""What came of a solution: its policy, evaluated, and the best of several.

Policies are evaluated exactly where states are few, and otherwise simulated, all with the same
random numbers, so that their differences are those of paired runs. The one of least cost is then
simulated again with others (the least of several estimates is too low), side by side with the
runner-up: the interval of their difference says whether the choice meant anything.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dualplan.core.intervals import Interval
from dualplan.core.streams import SeedBit
from dualplan.core.types import Json
from dualplan.dual.solvers.contract import Solution
from dualplan.evaluation.evaluate import compare
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.results import Evaluation
from dualplan.models.limits import Limit
from dualplan.policies.contract import Policy


@dataclass(frozen=True, eq=False)
class Outcome:
    """A solution, its policy, what the policy costs, and the limits that it had to keep."""

    solution: Solution
    policy: Policy
    evaluation: Evaluation
    limits: tuple[Limit, ...] = ()
    seconds: float = 0.0

    @property
    def cost(self) -> float:
        """What the policy costs; `evaluation` says how that is known."""
        return self.evaluation.cost

    @property
    def excess(self) -> float:
        """By how much the policy may exceed its limits, in sum; 0 if it keeps them."""
        return self.evaluation.excess(self.limits)

    def to_json(self) -> Json:
        """As plain values."""
        return {
            **self.solution.to_json(),
            **self.evaluation.cost_to_json(),
            "evaluation_seconds": round(self.seconds, 3),
            "limits": self.evaluation.limits_to_json(self.limits),
        }


@dataclass(frozen=True, eq=False)
class Choice:
    """The best of several outcomes, and by how much it beats the runner-up where both were
    simulated.
    """

    chosen: int
    best: Outcome
    advantage: Interval | None


def judged(solution: Solution, judge: Judge, fallback: Policy | None = None) -> Outcome:
    """Evaluate the policy of a solution."""
    started = time.monotonic()
    policy = solution.policy(fallback)
    problem = solution.problem
    evaluation = judge(problem.model, policy, problem.criterion)
    return Outcome(solution, policy, evaluation, problem.limits, time.monotonic() - started)


def choose(outcomes: Sequence[Outcome], judge: Judge) -> Choice:
    """The cheapest among those that keep the limits or come nearest, judged again where that was by
    simulation.
    """
    order = sorted(range(len(outcomes)), key=lambda k: (outcomes[k].excess, *_ranked(outcomes[k])))
    best = outcomes[order[0]]
    if len(outcomes) == 1 or best.evaluation.exact:
        return Choice(order[0], best, None)
    started = time.monotonic()
    rival = outcomes[order[1]]
    problem = best.solution.problem
    again = compare(
        problem.model,
        best.policy,
        rival.policy,
        problem.criterion,
        steps=judge.steps,
        seed=judge.seed ^ SeedBit.SECOND_JUDGEMENT,
        confidence=judge.confidence,
    )
    found = replace(best, evaluation=again.first, seconds=time.monotonic() - started)
    return Choice(order[0], found, again.difference)


def _ranked(outcome: Outcome) -> tuple[float, float]:
    """The cost, and among costs that are infinite or not known the lower end."""
    known = outcome.evaluation
    return known.cost if math.isfinite(known.cost) else math.inf, known.lower
