"""Ways to minimise the surrogate: from a problem and a penalty to weights θ."""

from dualplan.solvers.linear_program import ProgramSolution, solve_listed, solve_sampled
from dualplan.solvers.mixture import MixturePolicy
from dualplan.solvers.subgradient import (
    SubgradientSolution,
    Theory,
    solve_adaptive,
    solve_by_theory,
    solve_subgradient,
    theory,
)

__all__ = [
    "MixturePolicy",
    "ProgramSolution",
    "SubgradientSolution",
    "Theory",
    "solve_adaptive",
    "solve_by_theory",
    "solve_listed",
    "solve_sampled",
    "solve_subgradient",
    "theory",
]
