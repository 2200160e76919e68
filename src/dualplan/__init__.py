"""Planning in Markov decision processes that are fully specified but too large to enumerate.

The flow, one plain object an arrow: model -> features -> sampling -> surrogate -> solver -> policy
-> evaluation and certificate.
"""

from dualplan import policies, primal
from dualplan.core.errors import (
    DualplanError,
    InputError,
    MissingError,
    ModelError,
    PolicyError,
    RunError,
)
from dualplan.core.intervals import Interval
from dualplan.core.runs import Run
from dualplan.core.status import Status
from dualplan.dual import features, solvers, theorems
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
from dualplan.evaluation.evaluate import compare, evaluate
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.lower_bounds import LowerBound, lower_bound
from dualplan.evaluation.marginals import Marginal, marginals
from dualplan.evaluation.results import Comparison, Evaluation
from dualplan.evaluation.sensitivity import Sensitivity, sensitivity
from dualplan.exact import (
    ExactEvaluation,
    ExactSolution,
    LinearSolution,
    evaluate_exact,
    solve_exact,
    solve_lp,
)
from dualplan.models.check import CheckReport, check_model
from dualplan.models.contract import Box, Model
from dualplan.models.criteria import Average, Discounted
from dualplan.models.event import EventModel
from dualplan.models.factored import FactoredAction, FactoredModel
from dualplan.models.limits import Limit
from dualplan.models.load import load
from dualplan.models.queueing import QueueClass, QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.models.tabular import TabularModel
from dualplan.policies.contract import Policy
from dualplan.policies.saved import load_policy, save_policy
from dualplan.primal.best_bound import best_bound
from dualplan.report import figures
from dualplan.report.policy_maps import PolicyMap, by_server, policy_map
from dualplan.report.rules import Rule, readable
from dualplan.search import SearchResult, improve
from dualplan.search.lattice import LatticeSolution, lattice_plan, make_lattice, solve_lattice
from dualplan.search.plans import Plan, run_plan
from dualplan.search.rollouts import (
    Differences,
    RolloutFit,
    coupled_differences,
    rollout_step,
    rollout_values,
)
from dualplan.values import test_functions

__version__ = "0.1.0"

__all__ = [
    "Average",
    "Box",
    "Certificate",
    "CheckReport",
    "Combined",
    "Comparison",
    "Differences",
    "Discounted",
    "DualALP",
    "DualplanError",
    "Evaluation",
    "EventModel",
    "ExactEvaluation",
    "ExactSolution",
    "FactoredAction",
    "FactoredModel",
    "InputError",
    "Interval",
    "Judge",
    "LatticeSolution",
    "Limit",
    "LinearSolution",
    "LowerBound",
    "Marginal",
    "MetaSolution",
    "MissingError",
    "Model",
    "ModelError",
    "Plan",
    "Policy",
    "PolicyError",
    "PolicyMap",
    "QueueClass",
    "QueueingNetwork",
    "RolloutFit",
    "Rule",
    "Run",
    "RunError",
    "SearchResult",
    "Sensitivity",
    "SimulatedALP",
    "SimulatedSolution",
    "SimulatorModel",
    "Solution",
    "Status",
    "TabularModel",
    "Violations",
    "best_bound",
    "by_server",
    "certify",
    "check_model",
    "combine",
    "compare",
    "coupled_differences",
    "evaluate",
    "evaluate_exact",
    "features",
    "figures",
    "fitted_potential",
    "improve",
    "lattice_plan",
    "load",
    "load_policy",
    "lower_bound",
    "make_lattice",
    "marginals",
    "measure_violations",
    "policies",
    "policy_map",
    "primal",
    "readable",
    "rollout_step",
    "rollout_values",
    "run_plan",
    "save_policy",
    "sensitivity",
    "solve",
    "solve_exact",
    "solve_lattice",
    "solve_lp",
    "solve_meta",
    "solve_simulated",
    "solvers",
    "test_functions",
    "theorems",
]
