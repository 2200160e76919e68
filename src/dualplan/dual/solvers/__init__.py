"""Ways to minimise the surrogate: from a problem and a penalty to weights θ."""

from dualplan.dual.policy import MixturePolicy
from dualplan.dual.solvers.contract import Solution
from dualplan.dual.solvers.linear_program import solve_listed, solve_sampled
from dualplan.dual.solvers.solve import SOLVERS, solve
from dualplan.dual.solvers.subgradient import (
    Theory,
    solve_adaptive,
    solve_by_theory,
    solve_subgradient,
    theory,
)

__all__ = [
    "SOLVERS",
    "MixturePolicy",
    "Solution",
    "Theory",
    "solve",
    "solve_adaptive",
    "solve_by_theory",
    "solve_listed",
    "solve_sampled",
    "solve_subgradient",
    "theory",
]
