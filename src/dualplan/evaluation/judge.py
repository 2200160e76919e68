"""The one judge: a policy's cost exactly where states are few, otherwise by simulation.

Search, report, rules, plans and experiments ask here, so that they agree on what is exact and what
is sampled. A policy whose average cost depends on chance, since it has several recurrent classes,
has no exact cost; it is simulated, and the status says how that went.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dualplan.core.errors import ModelError
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.evaluation.evaluate import evaluate
from dualplan.evaluation.experiments import notes_on
from dualplan.evaluation.results import EXACT_EVALUATION, Evaluation, require_known_method
from dualplan.evaluation.simulation import Control
from dualplan.exact.policy import ExactEvaluation, evaluate_exact
from dualplan.models.contract import Model, few_states
from dualplan.models.criteria import Criterion
from dualplan.policies.alternating import Alternating
from dualplan.policies.contract import Policy
from dualplan.policies.tables import tabulated

JUDGING_STEPS = 5_000_000


def exact_evaluation(model: Model, exact: ExactEvaluation) -> Evaluation:
    """A cost that was computed over all states, as all costs are told."""
    measures = {name: Interval(v, v, v, 1.0) for name, v in exact.measures.items()}
    return Evaluation(
        policy=exact.policy,
        cost=exact.cost,
        lower=exact.lower,
        upper=exact.upper,
        confidence=1.0,
        method=EXACT_EVALUATION,
        status=exact.status,
        seconds=exact.seconds,
        measures=measures,
        notes=notes_on(model, measures),
        denominators=exact.denominators,
    )


def in_turn(model: Model, policy: Alternating, parts: Sequence[Evaluation]) -> Evaluation:
    """What policies in turn cost, from what is known exactly of each: long-run sums are sums over
    the parts, in their shares.
    """
    shares = policy.shares
    lower = float(shares @ [part.lower for part in parts])
    upper = float(shares @ [part.upper for part in parts])
    denominators = {
        m.name: float(shares @ [part.denominators[m.name] for part in parts])
        for m in model.measures
    }
    measures = {}
    for name, denominator in denominators.items():
        sums = [part.measures[name].value * part.denominators[name] for part in parts]
        value = float(shares @ sums) / denominator if denominator else math.nan
        measures[name] = Interval(value, value, value, 1.0)
    return Evaluation(
        policy=policy.name,
        cost=float(shares @ [part.cost for part in parts]),
        lower=lower,
        upper=upper,
        confidence=1.0,
        method=EXACT_EVALUATION,
        status=next((p.status for p in parts if p.status is not Status.SOLVED), Status.SOLVED),
        seconds=sum(part.seconds for part in parts),
        measures=measures,
        notes=notes_on(model, measures),
        denominators=denominators,
    )


@dataclass(frozen=True)
class Judge:
    """How policies are judged: `exact`, `simulation`, or None for exactly where states are few.

    The others are for simulation: steps, confidence and seed, the relative half-width at which it
    may end, though not before `least` steps, and the time.
    """

    method: str | None = None
    steps: int = JUDGING_STEPS
    confidence: float = 0.95
    seed: int = 0
    relative_tol: float | None = None
    least: int = 0
    time: str | float | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        require_known_method(self.method)

    def exactly(self, model: Model, policy: Policy) -> bool:
        """Whether the policy is evaluated over all states; of policies in turn, each of them."""
        if isinstance(policy, Alternating):
            return all(self.exactly(model, part) for part in policy.policies)
        if self.method is None:
            return few_states(model) and tabulated(policy).code is not None
        return self.method == EXACT_EVALUATION

    def __call__(
        self,
        model: Model,
        policy: Policy,
        criterion: Criterion,
        *,
        control: Control | None = None,
        simulate_several: bool = True,
    ) -> Evaluation:
        """What the policy costs.

        Without `simulate_several`, a policy with several recurrent classes is a `ModelError` where
        states are few, and not simulated.
        """
        if isinstance(policy, Alternating) and self.exactly(model, policy):
            parts = [self(model, part, criterion) for part in policy.policies]
            return in_turn(model, policy, parts)
        if self.exactly(model, policy):
            try:
                found = evaluate_exact(model, policy, criterion, threads=self.threads)
                return exact_evaluation(model, found)
            except ModelError:
                if self.method == EXACT_EVALUATION or not simulate_several:
                    raise
        return evaluate(
            model,
            policy,
            criterion,
            control=control,
            steps=self.steps,
            seed=self.seed,
            confidence=self.confidence,
            relative_tol=self.relative_tol,
            least=self.least,
            time=self.time,
            threads=self.threads,
        )
