"""The dual program over whole policies: as many rows as limits, whatever the number of states.

The columns are occupancies u_j of policies that were simulated (or evaluated exactly), of which
only numbers are known: the cost c_j, and of limit k, Σ n·u <= b·Σ d·u, the excess a_jk = Σ(n −
b·d)·u_j, a step's denominator times what the measure lies above the limit. Over shares θ of the
time

    min Σ_j θ_j c_j + M·Σ_k s_k    subject to    Σ_j θ_j a_jk <= s_k,   Σ_j θ_j = 1,   θ, s >= 0,

with M so large that limits are broken only if no shares keep them. A basic solution follows at most
one policy more than there are limits that bind. The multipliers p_k are *prices*: by LP duality no
mixture costs less than

    λ = min_j [ c_j + Σ_k p_k a_jk ] ,

so a policy helps only if it costs less than λ by the priced loss ℓ + Σ_k p_k (n_k − b_k d_k): a
plain problem without limits, which any search is for. That is column generation. Over all policies,
λ at any prices is a lower bound on what keeping the limits costs (Lagrange).

Measures are known by intervals. What enters a_jk is the upper end of the interval, moved up by
another half width: so the mixture, measured afresh, keeps its limits with the whole interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.lp import Growing
from dualplan.core.types import Floats
from dualplan.evaluation.results import Evaluation
from dualplan.models.limits import Limit

EXCESS_PRICE_FACTOR = 1e2  # M, in units of the largest cost over the largest excess
NEGLIGIBLE_SHARE = 1e-6  # of the time: such a policy is left out
NEGLIGIBLE_EXCESS = 1e-9
CAUTIOUS_HALF_WIDTHS = 2.0  # by how many half widths a measure counts as larger than it is


@dataclass(frozen=True, eq=False)
class Shares:
    """A solution: the shares of the policies, the prices of the limits, the cost, and by how much
    limits are exceeded in sum.
    """

    theta: Floats
    prices: Floats
    cost: float
    excess: float

    @property
    def feasible(self) -> bool:
        """Whether the limits are kept."""
        return self.excess <= NEGLIGIBLE_EXCESS

    @property
    def followed(self) -> list[int]:
        """The policies that have a share."""
        return [int(j) for j in np.flatnonzero(self.theta > 0)]


def excesses(
    run: Evaluation, limits: Sequence[Limit], half_widths: float = CAUTIOUS_HALF_WIDTHS
) -> Floats:
    """a_jk of a policy: what a step adds to the sum above each limit."""
    found = []
    for limit in limits:
        measure = run.measures[limit.name]
        value = measure.value + half_widths * (measure.upper - measure.value)
        found.append(run.denominators[limit.name] * (value - limit.at_most))
    return np.array(found)


def best_shares(
    runs: Sequence[Evaluation], limits: Sequence[Limit], half_widths: float = CAUTIOUS_HALF_WIDTHS
) -> Shares:
    """The cheapest shares of the time among policies, of which costs and measures are known, that
    keep the limits.
    """
    if not runs:
        raise InputError("shares of the time are among policies, and there is none.")
    costs = np.array([run.cost for run in runs])
    over = np.stack([excesses(run, limits, half_widths) for run in runs])  # [policy, limit]
    units = np.maximum(np.abs(over).max(axis=0), 1e-12)
    dear = EXCESS_PRICE_FACTOR * max(1.0, float(np.abs(costs).max()))
    count = len(limits)
    program = Growing(np.append(np.zeros(count), 1.0))
    program.add(costs, np.vstack([(over / units).T, np.ones((1, costs.size))]))
    unit = np.vstack([np.eye(count), np.zeros((1, count))])
    program.add(np.zeros(count), unit)  # what is left below a limit
    program.add(np.full(count, dear), -unit)  # what is above it
    found = program.solve(timed=False)
    if not found.found:
        raise InputError(f"the program over {costs.size} policies was not solved: {found.word}.")
    theta = np.maximum(found.x[: costs.size], 0.0)
    theta[theta < NEGLIGIBLE_SHARE] = 0.0
    theta /= theta.sum()
    prices = np.maximum(-found.y[:count], 0.0) / units
    above = float(found.x[costs.size + count :] @ units)
    return Shares(theta, prices, float(theta @ costs), above)


def priced_cost(run: Evaluation, limits: Sequence[Limit], prices: Floats) -> float:
    """What a policy costs by the priced loss."""
    return float(run.cost + prices @ excesses(run, limits, 0.0))
