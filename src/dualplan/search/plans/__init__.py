"""Plans: what `dualplan solve` is asked for, and what comes of it."""

from dualplan.search.plans.families import NAMED, make_features
from dualplan.search.plans.plan import Plan, override, read_plan
from dualplan.search.plans.run import Planned, improve_by, run_plan

__all__ = [
    "NAMED",
    "Plan",
    "Planned",
    "improve_by",
    "make_features",
    "override",
    "read_plan",
    "run_plan",
]
