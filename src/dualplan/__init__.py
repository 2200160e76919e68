"""Planning in Markov decision processes that are fully specified but too large to enumerate.

`solve` is the headline: the best policy that a time allows, what it costs, and what any policy
costs at least. The rest of this page is what nearly everybody needs; `dual`, `primal`, `search`,
`evaluation`, `exact`, `values`, `policies` and `report` hold what those need who take the methods
apart. Exceptions are in `errors`.
"""

from dualplan import dual, evaluation, exact, policies, primal, report, search, values
from dualplan.core import errors
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.evaluation.evaluate import compare, evaluate
from dualplan.evaluation.lower_bounds import lower_bound
from dualplan.evaluation.results import Comparison, Evaluation
from dualplan.exact import evaluate_exact, solve_exact, solve_lp
from dualplan.models.check import check_model
from dualplan.models.contract import Model
from dualplan.models.criteria import Average, Discounted
from dualplan.models.event import EventModel
from dualplan.models.factored import FactoredAction, FactoredModel
from dualplan.models.instances.parallel import ParallelServers
from dualplan.models.limits import Limit
from dualplan.models.load import load
from dualplan.models.queueing import QueueClass, QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.models.tabular import TabularModel
from dualplan.policies.contract import Policy
from dualplan.policies.saved import load_policy, save_policy
from dualplan.primal.best_bound import best_bound
from dualplan.search import SearchResult, solve, tradeoff

__version__ = "0.1.0"

__all__ = [
    "Average",
    "Comparison",
    "Discounted",
    "Evaluation",
    "EventModel",
    "FactoredAction",
    "FactoredModel",
    "Interval",
    "Limit",
    "Model",
    "ParallelServers",
    "Policy",
    "QueueClass",
    "QueueingNetwork",
    "SearchResult",
    "SimulatorModel",
    "Status",
    "TabularModel",
    "best_bound",
    "check_model",
    "compare",
    "dual",
    "errors",
    "evaluate",
    "evaluate_exact",
    "evaluation",
    "exact",
    "load",
    "load_policy",
    "lower_bound",
    "policies",
    "primal",
    "report",
    "save_policy",
    "search",
    "solve",
    "solve_exact",
    "solve_lp",
    "tradeoff",
    "values",
]
