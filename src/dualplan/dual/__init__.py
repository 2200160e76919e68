"""The dual linear program of the paper, in its order.

features        candidate occupancies
constraints     their rows, pair by pair and state by state
sampling        where constraints are looked at
problem         the surrogate: what is minimised over the weights of the features
solvers         from a problem and a penalty to weights and a policy
violations      how far the weights are from an occupancy
certificates    what follows for the cost of the policy; theorems, guarantees
meta            the penalty chosen along a grid
simulated       the form that needs nothing but simulated transitions
symmetric       flow against functions of states, near a simulated reference
combine         a portfolio of policies and an incumbent
"""

from dualplan.dual import features, solvers, symmetric, theorems
from dualplan.dual.certificates import Certificate, certify
from dualplan.dual.combine import Combined, combine
from dualplan.dual.meta import MetaSolution, solve_meta
from dualplan.dual.problem import DualALP
from dualplan.dual.simulated import (
    SimulatedALP,
    SimulatedSolution,
    fitted_potential,
    solve_simulated,
)
from dualplan.dual.solvers import Solution, solve
from dualplan.dual.violations import Violations, measure_violations

__all__ = [
    "Certificate",
    "Combined",
    "DualALP",
    "MetaSolution",
    "SimulatedALP",
    "SimulatedSolution",
    "Solution",
    "Violations",
    "certify",
    "combine",
    "features",
    "fitted_potential",
    "measure_violations",
    "solve",
    "solve_meta",
    "solve_simulated",
    "solvers",
    "symmetric",
    "theorems",
]
