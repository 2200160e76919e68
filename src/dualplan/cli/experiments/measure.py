"""Rows by simulation, by exact evaluation and by search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dualplan.cli.experiments.rows import Row
from dualplan.core.status import PROVED, Status
from dualplan.evaluation.evaluate import evaluate
from dualplan.evaluation.judge import exact_evaluation
from dualplan.evaluation.results import Evaluation
from dualplan.exact.policy import evaluate_exact
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy
from dualplan.search.headline import solve

SEARCH_ROW = "solve"  # the name of the row of a search


def unless_interrupted(status: Status) -> None:
    """An interruption of one row ends the table.

    What was found for it till then says too little.
    """
    if status is Status.INTERRUPTED:
        raise KeyboardInterrupt


def row_of(name: str, evaluation: Evaluation, note: str | None = None, **more: Any) -> Row:
    """The cost of a policy as a row; one that is unstable has none."""
    unless_interrupted(evaluation.status)
    if evaluation.exact:
        said = "exact"
    else:
        said = f"simulated, {evaluation.status}"
    if not math.isfinite(evaluation.cost):
        return Row(name, note=str(evaluation.status), trusted=False, **more)
    return Row(
        name,
        evaluation.cost,
        lower=evaluation.lower,
        upper=evaluation.upper,
        exact=evaluation.exact,
        note=said if note is None else note,
        trusted=evaluation.exact or evaluation.status.good,
        **more,
    )


def simulated(
    name: str, model: Model, policy: Policy, *, steps: int, seed: int, **more: Any
) -> Row:
    """The simulated cost of a policy."""
    run = evaluate(model, policy, steps=steps, seed=seed)
    return row_of(name, run, seconds=run.seconds, **more)


def exactly(name: str, model: Model, policy: Policy, *, note: str = "", **more: Any) -> Row:
    """The exact cost of a policy, over all states."""
    found = exact_evaluation(model, evaluate_exact(model, policy))
    return row_of(name, found, note=note, seconds=found.seconds, **more)


def searched(
    model: Model, policies: Sequence[Policy] = (), *, time: str, seed: int, **more: Any
) -> Row:
    """What `solve` finds in a time, and what it proves that any policy costs."""
    found = solve(model, policies=policies, time=time, seed=seed)
    unless_interrupted(found.status)
    judged = found.evaluation
    doubt = "" if judged.exact or judged.status.good else f"; evaluation {judged.status}"
    proved = found.bound.kind == PROVED and not found.bound.assumed
    bounded = proved and found.bound.value > 0  # costs are never below
    return row_of(
        f"{SEARCH_ROW}, {time}",
        judged,
        note=f"{found.source}; {found.status}{doubt}",
        lower_bound=found.bound.value if bounded else None,
        seconds=found.seconds,
        **more,
    )
