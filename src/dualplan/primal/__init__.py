"""Approximate linear programs on value functions: few functions of states, and policies that look
one step ahead.
"""

from dualplan.evaluation.lstd import policy_values
from dualplan.evaluation.visits import occupancy, visited, weighted
from dualplan.exact.greedy import greedy
from dualplan.policies.among import GreedyAmong
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.local_greedy import local_greedy
from dualplan.primal.aggregated import Mixtures, aggregated_alp
from dualplan.primal.alp import alp, iterated_alp, sample_size, sample_size_for_error
from dualplan.primal.average import average_alp, average_bound, iterated_average_alp
from dualplan.primal.expanded import expanded_alp
from dualplan.primal.factored import (
    FactoredSettings,
    FactoredSolution,
    factored_alp,
    factored_average_alp,
    factored_average_bound,
)
from dualplan.primal.iterated import Iterated
from dualplan.primal.orthant import OrthantSolution, has_cells, orthant_bound
from dualplan.primal.perturbed import PerturbedSolution, perturbed_alp
from dualplan.primal.relaxed import relaxed_alp
from dualplan.primal.relevance import Relevance, geometric, independent, uniform
from dualplan.primal.settings import Settings
from dualplan.primal.smoothed import smoothed_alp
from dualplan.primal.solution import PrimalSolution, Slacks
from dualplan.values.basis import (
    Basis,
    LinearValues,
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
from dualplan.values.interpolation import Lattice, LatticeValues
from dualplan.values.local import (
    LocalBasis,
    LocalValues,
    backprojection,
    chain_indicators,
    indicator_products,
    local_basis,
    local_tables,
    pair_indicators,
    single_indicators,
)

__all__ = [
    "Basis",
    "FactoredSettings",
    "FactoredSolution",
    "GreedyAmong",
    "GreedyPolicy",
    "Iterated",
    "Lattice",
    "LatticeValues",
    "LinearValues",
    "LocalBasis",
    "LocalValues",
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
    "backprojection",
    "between",
    "boundaries",
    "boxes",
    "capped",
    "capped_monomials",
    "chain_indicators",
    "concat",
    "constant",
    "expanded_alp",
    "factored_alp",
    "factored_average_alp",
    "factored_average_bound",
    "functions",
    "geometric",
    "greedy",
    "has_cells",
    "hinge",
    "independent",
    "indicator_products",
    "indicators",
    "iterated_alp",
    "iterated_average_alp",
    "local_basis",
    "local_greedy",
    "local_tables",
    "monomials",
    "occupancy",
    "orthant_bound",
    "pair_indicators",
    "perturbed_alp",
    "piecewise_linear",
    "policy_values",
    "power",
    "products",
    "relaxed_alp",
    "sample_size",
    "sample_size_for_error",
    "single_indicators",
    "smoothed_alp",
    "tensor",
    "uniform",
    "visited",
    "weighted",
]
