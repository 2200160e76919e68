"""Exact planning and evaluation where states can be enumerated; every answer has two-sided bounds."""

from dualplan.exact.iteration import ExactSolution, solve_exact
from dualplan.exact.policy import ExactEvaluation, evaluate_exact

__all__ = ["ExactEvaluation", "ExactSolution", "evaluate_exact", "solve_exact"]
