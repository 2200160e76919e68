"""Exact planning and evaluation where states can be enumerated.

Every answer has two-sided bounds.
"""

from dualplan.exact.iteration import ExactSolution, solve_exact
from dualplan.exact.policy import ExactEvaluation, evaluate_exact
from dualplan.exact.programs import LinearSolution, solve_lp

__all__ = [
    "ExactEvaluation",
    "ExactSolution",
    "LinearSolution",
    "evaluate_exact",
    "solve_exact",
    "solve_lp",
]
