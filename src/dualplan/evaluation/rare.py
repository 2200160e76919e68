"""What a run may have missed: losses that it could have met and met too seldom to count them.

An event that did not happen in n independent trials has, with confidence 95%, a probability of at
most 3/n (the rule of three: (1 − 3/n)^n ≈ 5%). Where a policy's states and losses can be listed,
the dearest event is known: a stay in the state x, of 1/(1 − γ·P(x,x)) steps on average, costs
|ℓ(x,a) − c| a step more or less than the usual c. Three such stays in a run of n steps (average
criterion), or in n runs (discounted), would move the estimate by

    3/n · max_{x,a} |ℓ(x,a) − c| / (1 − γ·P(x,x)),

the maximum over the states that the policy reaches and the actions it takes there. A run for which
this exceeds the half-width is too short: had the event been seen often enough, the interval would
be wider. Where it was seen K times, that is for K < 3.

This is for tables (`TabularModel`). In a network the dearest state is a full one, which is many
steps away from all that was seen, and a bound on losses that a user gives may be one that no policy
meets; there what is judged is what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualplan.core.intervals import Interval
from dualplan.core.types import Floats, Ints
from dualplan.exact.operators import Sweeper
from dualplan.exact.policy import reachable
from dualplan.models.contract import Model, few_states
from dualplan.models.tabular import TabularModel
from dualplan.policies.contract import Policy

UNSEEN_EVENTS = 3.0  # that may have been expected where none was seen


@dataclass(frozen=True, eq=False)
class ReachedLosses:
    """Losses of the pairs that a policy reaches, and how many steps it stays in their states."""

    losses: Floats
    stays: Floats

    def dearest(self, usual: float) -> float:
        """The most by which a stay differs from as many steps at the usual loss."""
        return float((np.abs(self.losses - usual) * self.stays).max(initial=0.0))


def reached_losses(
    model: Model, policy: Policy, gamma: float, starts: Ints | None = None
) -> ReachedLosses | None:
    """What a policy can meet in a table; None for other models."""
    if not isinstance(model, TabularModel) or policy.code is None or not few_states(model):
        return None
    if starts is None:
        starts = model.start[None, :]
    sweeper = Sweeper(model, threads=1)
    chain, _ = sweeper.chain(policy)
    states = reachable(chain, np.array([model.box.index(x) for x in starts]))
    staying = chain.diagonal()[states]
    taken = sweeper.probabilities(policy, states) > 0
    with np.errstate(divide="ignore"):
        stays = 1 / (1 - gamma * staying)
    pairs = np.nonzero(taken & np.isfinite(stays)[:, None])
    return ReachedLosses(model.losses[states][pairs], stays[pairs[0]])


def may_have_missed(
    reached: ReachedLosses | None, interval: Interval, usual: float, trials: int
) -> bool:
    """Whether an event that was not seen in so many trials could lie outside the interval."""
    if reached is None or reached.losses.size == 0:
        return False
    return UNSEEN_EVENTS / trials * reached.dearest(usual) > interval.half_width
