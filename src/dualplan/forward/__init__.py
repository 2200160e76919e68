"""The dual program from simulated transitions alone (the forward-only form).

`moments.py` has means over transitions, `problem.py` the program that they make, `potentials.py` potentials from the
same transitions, `solve.py` solvers.
"""

from dualplan.forward.moments import residuals
from dualplan.forward.potentials import fitted_potential, temporal_differences, visits
from dualplan.forward.problem import SimulatedALP
from dualplan.forward.solve import SimulatedSolution, solve_simulated

__all__ = [
    "SimulatedALP", "SimulatedSolution", "fitted_potential", "residuals", "solve_simulated", "temporal_differences",
    "visits",
]  # fmt: skip
