"""The folder of a plan's run: settings, and the solutions that were found so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from dualplan.core.encoding import encoded
from dualplan.core.runs import Run
from dualplan.core.status import Status
from dualplan.core.types import Json
from dualplan.dual.problem import DualALP, Value
from dualplan.dual.solvers.contract import Solution
from dualplan.models.contract import Model
from dualplan.search.plans.plan import FORMER, KEYS, Plan
from dualplan.search.plans.problem import both_penalties

KEPT = ("theta", "parts", "status")


def open_run(plan: Plan, model: Model, folder: str | None, resume: bool) -> Run | None:
    """The run's folder, new or gone on with."""
    if folder is None:
        return None
    settings = {name: value for name, value in plan.keys.items() if KEYS[name].identifies}
    return Run(folder, encoded(settings | {"digest": model.digest}), resume=resume)


def keys_from(settings: Json) -> Json:
    """The keys of a plan from the settings of its run, also of one of an earlier version."""
    names = {"constraints": FORMER["budget"], **FORMER}
    kept = {names.get(name, name): value for name, value in settings.items()}
    return {name: value for name, value in kept.items() if name in KEYS}


def _key(what: str, penalty: float) -> str:
    return f"{what} {penalty!r}"


def as_arrays(solution: Solution) -> dict[str, Any]:
    """A solution, as a checkpoint holds it."""
    h = solution.penalty[1]
    parts = solution.parts
    numbers = [getattr(parts, f.name) for f in fields(parts) if f.name != "excess"]
    work = [float(solution.samples), solution.seconds]
    return {
        _key("theta", h): solution.theta,
        _key("parts", h): np.array([*numbers, *work, *parts.excess]),
        _key("status", h): np.array(str(solution.status)),
    }


def known_solutions(
    plan: Plan, problem: DualALP, grid: Sequence[float], kept: Mapping[str, Any]
) -> dict[int, Solution]:
    """The solutions that a checkpoint holds, by their place in the grid."""
    whole = [k for k, h in enumerate(grid) if all(_key(what, h) in kept for what in KEPT)]
    return {k: _from_arrays(plan, problem, grid[k], kept) for k in whole}


def _from_arrays(plan: Plan, problem: DualALP, penalty: float, kept: Mapping[str, Any]) -> Solution:
    numbers = kept[_key("parts", penalty)].tolist()
    names = [f.name for f in fields(Value) if f.name != "excess"]
    parts = Value(
        **dict(zip(names, numbers, strict=False)), excess=tuple(numbers[len(names) + 2 :])
    )
    status = Status(str(kept[_key("status", penalty)]))
    return Solution(
        problem,
        str(plan.method),
        both_penalties(plan, penalty),
        kept[_key("theta", penalty)],
        parts,
        status,
        int(numbers[len(names)]),
        plan.seed,
        numbers[len(names) + 1],
    )
