"""Ways to minimise the surrogate: from a problem and a penalty to weights θ."""

from dualplan.solvers.linear_program import ProgramSolution, solve_listed, solve_sampled

__all__ = ["ProgramSolution", "solve_listed", "solve_sampled"]
