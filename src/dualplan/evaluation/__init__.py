"""What a policy costs, and what any policy costs at least.

simulation      trajectories in chunks
experiments     long runs, many runs, and when they are long enough
evaluate        evaluate, compare
judge           exactly where states are few, otherwise by simulation
results         what comes of it
compared        policies beside one, in rows that agree with each other
lower_bounds    what any policy costs at least
visits, lstd    where a policy goes, and what its states are worth
marginals       stationary laws of coordinates
sensitivity     costs of fixed policies under changed rates
"""

from dualplan.evaluation.judge import Judge
from dualplan.evaluation.lower_bounds import LowerBound
from dualplan.evaluation.marginals import Marginal, marginals
from dualplan.evaluation.sensitivity import Sensitivity, sensitivity

__all__ = ["Judge", "LowerBound", "Marginal", "Sensitivity", "marginals", "sensitivity"]
