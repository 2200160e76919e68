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
from dualplan.core.status import Status
from dualplan.core.streams import SeedBit
from dualplan.core.types import Json
from dualplan.dual.solvers.contract import Solution
from dualplan.evaluation.evaluate import compare, evaluate
from dualplan.evaluation.judge import EXACT, NEGLIGIBLE, Judge
from dualplan.evaluation.results import Evaluation
from dualplan.exact.policy import evaluate_exact
from dualplan.models.limits import Limit
from dualplan.policies.contract import Policy


@dataclass(frozen=True, eq=False)
class Outcome:
    """A solution, its policy, what the policy costs, and what became of the limits under it."""

    solution: Solution
    policy: Policy
    cost: float
    lower: float
    upper: float
    status: Status
    method: str
    measures: dict[str, Interval]
    limits: tuple[Limit, ...] = ()
    seconds: float = 0.0

    @property
    def excess(self) -> float:
        """By how much the policy may exceed its limits, in sum.

        0 if it keeps them, with their whole intervals.
        """
        over = [self.measures[limit.name].upper - limit.at_most for limit in self.limits]
        return sum(math.inf if math.isnan(e) else e for e in over if not e <= NEGLIGIBLE)

    def to_json(self) -> Json:
        """As plain values."""
        return {
            **self.solution.to_json(),
            "cost": self.cost,
            "cost_lower": self.lower,
            "cost_upper": self.upper,
            "cost_status": str(self.status),
            "evaluation": self.method,
            "evaluation_seconds": round(self.seconds, 3),
            "measures": {name: interval.to_json() for name, interval in self.measures.items()},
            "limits": [
                {
                    "measure": limit.name,
                    "at_most": limit.at_most,
                    **self.measures[limit.name].to_json(),
                    "kept": self.measures[limit.name].upper <= limit.at_most + NEGLIGIBLE,
                }
                for limit in self.limits
            ],
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
    if judge.exact(problem.model):
        exact = evaluate_exact(problem.model, policy, problem.criterion)
        measures = {
            name: Interval(value, value, value, 1.0) for name, value in exact.measures.items()
        }
        found = Outcome(
            solution, policy, exact.cost, exact.lower, exact.upper, exact.status, EXACT, measures
        )
    else:
        run = evaluate(
            problem.model,
            policy,
            problem.criterion,
            steps=judge.steps,
            seed=judge.seed,
            confidence=judge.confidence,
        )
        found = _simulated(solution, policy, run)
    return replace(found, limits=problem.limits, seconds=time.monotonic() - started)


def choose(outcomes: Sequence[Outcome], judge: Judge) -> Choice:
    """The cheapest among those that keep the limits or come nearest, judged again where that was by
    simulation.
    """
    order = sorted(range(len(outcomes)), key=lambda k: (outcomes[k].excess, *_ranked(outcomes[k])))
    best = outcomes[order[0]]
    if len(outcomes) == 1 or best.method == EXACT:
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
    found = _simulated(best.solution, best.policy, again.first)
    found = replace(found, limits=problem.limits, seconds=time.monotonic() - started)
    return Choice(order[0], found, again.difference)


def _ranked(outcome: Outcome) -> tuple[float, float]:
    """The cost, and among costs that are infinite or not known the lower end."""
    return outcome.cost if math.isfinite(outcome.cost) else math.inf, outcome.lower


def _simulated(solution: Solution, policy: Policy, run: Evaluation) -> Outcome:
    return Outcome(
        solution, policy, run.cost, run.lower, run.upper, run.status, run.method, dict(run.measures)
    )
