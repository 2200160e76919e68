"""The dual program from simulated transitions alone (the forward-only form).

`moments.py` has means over transitions, `problem.py` the program that they make, `potentials.py`
potentials from the same transitions, `solve.py` solvers.
"""

from dualplan.dual.simulated.moments import residuals
from dualplan.dual.simulated.potentials import fitted_potential, temporal_differences, visits
from dualplan.dual.simulated.problem import SimulatedALP
from dualplan.dual.simulated.solve import SimulatedSolution, solve_simulated

__all__ = [
    "SimulatedALP",
    "SimulatedSolution",
    "fitted_potential",
    "residuals",
    "solve_simulated",
    "temporal_differences",
    "visits",
]
