"""The settings of a plan's run, as its folder holds them."""

from __future__ import annotations

from dualplan.core.encoding import encoded
from dualplan.core.runs import Run
from dualplan.core.types import Json
from dualplan.models.contract import Model
from dualplan.search.plans.plan import FORMER_PLAN_KEYS, PLAN_KEYS, Plan


def open_run(plan: Plan, model: Model, folder: str | None, resume: bool) -> Run | None:
    """The run's folder, new or gone on with."""
    if folder is None:
        return None
    settings = {name: value for name, value in plan.keys.items() if PLAN_KEYS[name].identifies}
    return Run(folder, encoded(settings | {"digest": model.digest}), resume=resume)


def keys_from(settings: Json) -> Json:
    """The keys of a plan from the settings of its run, also of one of an earlier version."""
    names = {"constraints": FORMER_PLAN_KEYS["budget"], **FORMER_PLAN_KEYS}
    kept = {names.get(name, name): value for name, value in settings.items()}
    return {name: value for name, value in kept.items() if name in PLAN_KEYS}
