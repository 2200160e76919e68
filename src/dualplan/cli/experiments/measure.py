"""Rows by simulation, by exact evaluation and by search."""

from __future__ import annotations

import math
import time as timer
from collections.abc import Sequence
from typing import Any

from dualplan.cli.experiments.rows import Row
from dualplan.core.status import PROVED, Status
from dualplan.evaluation.evaluate import evaluate
from dualplan.exact.policy import evaluate_exact
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy
from dualplan.search.loop import improve

FOUND = "improve"  # the name of the row of a search


def unless_interrupted(status: Status) -> None:
    """An interruption of one row ends the table.

    What was found for it till then says too little.
    """
    if status is Status.INTERRUPTED:
        raise KeyboardInterrupt


def simulated(
    name: str, model: Model, policy: Policy, *, steps: int, seed: int, **more: Any
) -> Row:
    """The simulated cost of a policy; one that is unstable has none."""
    run = evaluate(model, policy, steps=steps, seed=seed)
    unless_interrupted(run.status)
    if not math.isfinite(run.cost):
        return Row(name, note=str(run.status), seconds=run.seconds, **more)
    return Row(
        name,
        run.cost,
        lower=run.lower,
        upper=run.upper,
        note=f"simulated, {run.status}",
        seconds=run.seconds,
        trusted=run.status.good,
        **more,
    )


def exactly(name: str, model: Model, policy: Policy, **more: Any) -> Row:
    """The exact cost of a policy, over all states."""
    started = timer.monotonic()
    found = evaluate_exact(model, policy)
    return Row(
        name,
        found.cost,
        lower=found.lower,
        upper=found.upper,
        exact=True,
        seconds=timer.monotonic() - started,
        **more,
    )


def searched(
    model: Model, policies: Sequence[Policy] = (), *, time: str, seed: int, **more: Any
) -> Row:
    """What `improve` finds in a time, and what it proves that any policy costs."""
    found = improve(model, policies, time=time, seed=seed)
    unless_interrupted(found.status)
    exact = found.evaluation == "exact"
    judged = found.evaluation_status
    if exact or judged.good:
        doubt = ""
    else:
        doubt = f"; evaluation {judged}"
    proved = (
        found.bound.kind == PROVED and not found.bound.assumed and found.bound.value > 0
    )  # costs are never below
    return Row(
        f"{FOUND}, {time}",
        found.cost,
        lower=found.lower,
        upper=found.upper,
        exact=exact,
        note=f"{found.source}; {found.status}{doubt}",
        lower_bound=found.bound.value if proved else None,
        seconds=found.seconds,
        trusted=exact or judged.good,
        **more,
    )
