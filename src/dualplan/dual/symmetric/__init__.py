"""The symmetric dual program: occupancies near a reference, flow against functions of states.

functions    Ψ for a model, made from where a policy goes
reference    the reference occupancy by its pairs: losses, and what a step does to Ψ
entropy      the program with a distance to the reference: Newton's method on its smooth dual
columns      the program over columns: a linear program
directions   changes of the weights that change decisions
estimates    what was found, looked at again with fresh pairs
"""

from dualplan.dual.symmetric.columns import ColumnSolution, solve_columns
from dualplan.dual.symmetric.directions import decision_directions
from dualplan.dual.symmetric.entropy import (
    EntropySolution,
    Outposts,
    make_outposts,
    solve_at_distance,
    solve_entropy,
)
from dualplan.dual.symmetric.estimates import Estimates, estimate_again
from dualplan.dual.symmetric.functions import state_functions
from dualplan.dual.symmetric.reference import Reference, make_reference

__all__ = [
    "ColumnSolution",
    "EntropySolution",
    "Estimates",
    "Outposts",
    "Reference",
    "decision_directions",
    "estimate_again",
    "make_outposts",
    "make_reference",
    "solve_at_distance",
    "solve_columns",
    "solve_entropy",
    "state_functions",
]
