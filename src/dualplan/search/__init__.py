"""Propose, judge, keep: the headline `solve`, its steps, and plans of the dual program.

loop            the search: what is better takes the place of the best
contract        what it passes around
steps           ways to propose policies
duels           how proposals are judged
last_evaluation what was found, and the policies to begin with beside it
limited         limits by prices, and the curve of cost against a limit
lattice, policy_search, rollouts    where proposals come from
plans           what a TOML file may ask for
"""

from dualplan.search.contract import Attempt, Candidate, SearchResult
from dualplan.search.headline import solve
from dualplan.search.lattice import LatticeSolution, lattice_plan, make_lattice, solve_lattice
from dualplan.search.limited.curves import Tradeoff
from dualplan.search.limited.tradeoff import tradeoff
from dualplan.search.plans import Plan, run_plan
from dualplan.search.rollouts import (
    Differences,
    RolloutFit,
    coupled_differences,
    rollout_step,
    rollout_values,
)
from dualplan.search.steps import STEPS_BY_NAME

__all__ = [
    "STEPS_BY_NAME",
    "Attempt",
    "Candidate",
    "Differences",
    "LatticeSolution",
    "Plan",
    "RolloutFit",
    "SearchResult",
    "Tradeoff",
    "coupled_differences",
    "lattice_plan",
    "make_lattice",
    "rollout_step",
    "rollout_values",
    "run_plan",
    "solve",
    "solve_lattice",
    "tradeoff",
]
