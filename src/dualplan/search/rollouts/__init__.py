"""Improvement of a policy by coupled rollouts: differences of its values, estimated where it goes,
and a fit to them.

For a policy π with bias h (average criterion; γ = 1) or cost-to-go h (discounted), the quality of
two actions at x differs by

    Q(x,a) − Q(x,b) = ℓ(x,a) − ℓ(x,b) + γ Σ_y (P(y|x,a) − P(y|x,b)) h(y),

so only differences of h between the outcomes of one state matter, and of those only the ones whose
probability depends on the action: in a network with one event a step, arrivals cancel, and the
outcomes of the choices of each server are those of single changes, however many joint actions there
are.

*What is known.* The greedy policy of the exact h is no worse than π (policy improvement). That of a
fit need not be: `gain` estimates the mean of Q(x, π) − Q(x, greedy) over held-out states, with a
standard error; that is the change to first order, where π goes, not where the new policy goes.
Judge candidates by their own cost (`compare`).

`alternatives.py` says between which states differences matter, `coupled.py` estimates them,
`sample.py` has both for the states that policies visit, `fit.py` finds values with these
differences, `step.py` makes candidates of them.
"""

from dualplan.search.rollouts.coupled import Differences, coupled_differences
from dualplan.search.rollouts.fit import RolloutFit, fit_values, rollout_values
from dualplan.search.rollouts.sample import RolloutSample, rollout_sample
from dualplan.search.rollouts.step import rollout_step

__all__ = [
    "Differences",
    "RolloutFit",
    "RolloutSample",
    "coupled_differences",
    "fit_values",
    "rollout_sample",
    "rollout_step",
    "rollout_values",
]
