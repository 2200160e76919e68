"""Approximate linear programs on value functions: few functions of states, and policies that look one step ahead."""

from dualplan.primal.aggregated import Mixtures, aggregated_alp
from dualplan.primal.alp import alp, iterated_alp, sample_size, sample_size_for_error
from dualplan.primal.average import average_alp, average_bound, iterated_average_alp
from dualplan.primal.basis import (
    Basis,
    Piece,
    between,
    boundaries,
    boxes,
    capped,
    capped_monomials,
    concat,
    constant,
    functions,
    hinge,
    indicators,
    monomials,
    piecewise_linear,
    power,
    products,
    tensor,
)
from dualplan.primal.expanded import expanded_alp
from dualplan.primal.greedy import GreedyPolicy, LinearValues, greedy
from dualplan.primal.iterated import Iterated
from dualplan.primal.orthant import OrthantSolution, has_cells, orthant_bound
from dualplan.primal.perturbed import PerturbedSolution, perturbed_alp
from dualplan.primal.relaxed import relaxed_alp
from dualplan.primal.relevance import Relevance, geometric, occupancy, uniform, visited, weighted
from dualplan.primal.settings import Settings
from dualplan.primal.smoothed import smoothed_alp
from dualplan.primal.solution import PrimalSolution, Slacks

__all__ = [
    "Basis",
    "GreedyPolicy",
    "Iterated",
    "LinearValues",
    "Mixtures",
    "OrthantSolution",
    "PerturbedSolution",
    "Piece",
    "PrimalSolution",
    "Relevance",
    "Settings",
    "Slacks",
    "aggregated_alp",
    "alp",
    "average_alp",
    "average_bound",
    "between",
    "boundaries",
    "boxes",
    "capped",
    "capped_monomials",
    "concat",
    "constant",
    "expanded_alp",
    "functions",
    "geometric",
    "greedy",
    "has_cells",
    "hinge",
    "indicators",
    "iterated_alp",
    "iterated_average_alp",
    "monomials",
    "occupancy",
    "orthant_bound",
    "perturbed_alp",
    "piecewise_linear",
    "power",
    "products",
    "relaxed_alp",
    "sample_size",
    "sample_size_for_error",
    "smoothed_alp",
    "tensor",
    "uniform",
    "visited",
    "weighted",
]
