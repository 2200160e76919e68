"""Plans: what `dualplan solve` is asked for, and what comes of it."""

from dualplan.search.plans.families import NAMED_FEATURE_SETS, make_features
from dualplan.search.plans.keys import Key, Part
from dualplan.search.plans.plan import (
    FORMER_PLAN_KEYS,
    PLAN_KEYS,
    Plan,
    override,
    read_plan,
    table_of_keys,
)
from dualplan.search.plans.run import Planned, run_plan, solve_by
from dualplan.search.plans.settings import keys_from

__all__ = [
    "FORMER_PLAN_KEYS",
    "NAMED_FEATURE_SETS",
    "PLAN_KEYS",
    "Key",
    "Part",
    "Plan",
    "Planned",
    "keys_from",
    "make_features",
    "override",
    "read_plan",
    "run_plan",
    "solve_by",
    "table_of_keys",
]
