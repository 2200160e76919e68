"""Ways to minimise the surrogate: from a problem and a penalty to weights θ."""

from dualplan.solvers.contract import Solution
from dualplan.solvers.forward import SimulatedSolution, solve_simulated
from dualplan.solvers.linear_program import solve_listed, solve_sampled
from dualplan.solvers.mixture import MixturePolicy
from dualplan.solvers.saved import load_policy, save_policy
from dualplan.solvers.solve import SOLVERS, solve
from dualplan.solvers.subgradient import Theory, solve_adaptive, solve_by_theory, solve_subgradient, theory

__all__ = [
    "SOLVERS",
    "MixturePolicy",
    "SimulatedSolution",
    "Solution",
    "Theory",
    "load_policy",
    "save_policy",
    "solve",
    "solve_adaptive",
    "solve_by_theory",
    "solve_listed",
    "solve_sampled",
    "solve_simulated",
    "solve_subgradient",
    "theory",
]
