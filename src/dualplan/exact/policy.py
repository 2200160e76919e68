"""The exact cost of a policy, with bounds, and the measures that belong to it.

The chain P_π is restricted to the states that can be reached from the start. Average criterion: if
it has one recurrent class, the bias h and the cost λ solve h + λ1 = ℓ_π + P_π h, h(start) = 0;
whatever the solver returned,

    min_x [ℓ_π + P_π h − h](x)  <=  λ_π  <=  max_x [ℓ_π + P_π h − h](x)

are bounds. The stationary distribution solves μᵀP_π = μᵀ, Σμ = 1. Discounted: J = ℓ_π + γ P_π J,
bounded by MacQueen's extrapolation of one more application, and ν_π solves ν = α + γ P_πᵀ ν.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as graph

from dualplan.core.checks import require_positive, require_threads
from dualplan.core.errors import ModelError
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Floats, Ints, Json
from dualplan.exact.classes import closed_classes
from dualplan.exact.iteration import rounding
from dualplan.exact.linear import Solver
from dualplan.exact.mixing import Mixing, mixing
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.policies.contract import Policy, require_policy_of

# steps of the chain after which a frequent state is picked, unless less than a share moves by then
CENTRING_STEPS = 256
CENTRED_MASS_SHARE = 1e-3
Parts = tuple[float, float, Floats, Floats, float]  # lower, upper, values, occupancy, residual


@dataclass(frozen=True, eq=False, repr=False)
class ExactEvaluation(Shown):
    """The cost of a policy between two bounds.

    `reached` are the numbers of the states that can be reached from the start; `values` (bias or
    discounted cost) and `occupancy` (μ_π, or ν_π of total mass 1/(1−γ)) are over these.
    """

    policy: str
    lower: float
    upper: float
    status: Status
    reached: Ints
    values: Floats
    occupancy: Floats
    residual: float
    measures: dict[str, float]
    denominators: dict[str, float]
    chain: Any
    seconds: float

    @cached_property
    def mixing(self) -> Mixing:
        """How fast the chain, restricted to the states reached, forgets its start.

        For the average criterion.
        """
        return mixing(self.chain, self.occupancy / self.occupancy.sum())

    @property
    def cost(self) -> float:
        """The middle of the bounds."""
        return (self.lower + self.upper) / 2

    @property
    def span(self) -> float:
        """The span of the values: max − min."""
        return float(self.values.max() - self.values.min())

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        return {
            "policy": self.policy,
            "cost": self.cost,
            "lower": self.lower,
            "upper": self.upper,
            "confidence": 1.0,
            "method": "exact",
            "status": str(self.status),
            "advice": self.status.advice,
            "steps": 0,
            "states": int(self.reached.size),
            "occupancy_residual": self.residual,
            "span": self.span,
            "measures": self.measures,
            "seconds": round(self.seconds, 3),
        }


def evaluate_exact(
    model: Model,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    tol: float = 1e-6,
    everywhere: bool = False,
    threads: int | None = None,
) -> ExactEvaluation:
    """The cost of a policy from the start, by linear algebra on its chain.

    Bounds wider than `tol` show in the status. `everywhere` takes all states, not only those that
    can be reached from the start: values then are over the whole box, and the average criterion
    needs one recurrent class in all of it.
    """
    criterion = require_criterion(criterion)
    require_policy_of(model, policy)
    require_positive(tol=tol)
    require_threads(threads)
    started = time.monotonic()
    sweeper = Sweeper(model, threads)
    matrix, losses = sweeper.chain(policy)
    weights = _start_vector(model, criterion, losses.size)
    if everywhere:
        reached = np.arange(losses.size)
    else:
        reached = reachable(matrix, np.flatnonzero(weights))
    chain = sp.csr_array(matrix[reached][:, reached])
    cost = losses[reached]
    start = weights[reached]
    if isinstance(criterion, Discounted):
        lower, upper, values, occupancy, residual = _discounted(chain, cost, start, criterion.gamma)
    else:
        lower, upper, values, occupancy, residual = average_parts(chain, cost, policy)
    sums = sweeper.sums(policy, reached, occupancy)
    measures = {
        m.name: _ratio(float(sums @ m.numerator), float(sums @ m.denominator))
        for m in model.measures
    }
    if upper - lower <= tol:
        status = Status.SOLVED
    else:
        status = Status.WIDE
    seconds = time.monotonic() - started
    return ExactEvaluation(
        policy.name,
        lower,
        upper,
        status,
        reached,
        values,
        occupancy,
        residual,
        measures,
        {m.name: float(sums @ m.denominator) for m in model.measures},
        chain,
        seconds,
    )


def _ratio(numerator: float, denominator: float) -> float:
    if denominator != 0:
        return float(numerator / denominator)
    return float("nan")


def _discounted(chain: Any, cost: Floats, start: Floats, gamma: float) -> Parts:
    solver = Solver(sp.eye_array(cost.size, format="csr") - gamma * chain)
    values = solver.solve(cost)
    occupancy = np.maximum(solver.solve(start, transposed=True), 0.0)
    following = cost + gamma * (chain @ values)
    difference = following - values
    at_start = float(start @ following)
    factor = gamma / (1 - gamma)
    slack = _rounding(chain, values, cost) * (1 + 1 / factor)
    residual = float(np.abs(occupancy - start - gamma * (chain.T @ occupancy)).sum())
    return (
        at_start + factor * (float(difference.min()) - slack),
        at_start + factor * (float(difference.max()) + slack),
        values,
        occupancy,
        residual,
    )


def average_parts(chain: Any, cost: Floats, policy: Policy) -> Parts:
    """Bounds, bias and law of a chain with one recurrent class.

    Eliminate a recurrent state o: with h(o) = 0, h = x − λ·y where (I−P)x = ℓ and (I−P)y = 1 on
    the other states.
    """
    o = _recurrent_state(chain, policy)
    others = np.delete(np.arange(cost.size), o)
    row = chain[[o]][:, others].toarray().ravel()
    solver = Solver(sp.eye_array(others.size, format="csr") - chain[others][:, others])
    values = np.zeros(cost.size)
    occupancy = np.ones(cost.size)
    occupancy[others] = np.maximum(solver.occupancy(row), 0.0)
    occupancy /= occupancy.sum()
    average = float(occupancy @ cost)
    values[others] = solver.solve(cost[others] - average)
    difference = cost + chain @ values - values
    residual = float(np.abs(chain.T @ occupancy - occupancy).sum())
    slack = _rounding(chain, values, cost)
    return (
        float(difference.min()) - slack,
        float(difference.max()) + slack,
        values,
        occupancy,
        residual,
    )


def _rounding(chain: Any, values: Floats, cost: Floats) -> float:
    """How far ℓ + P V − V may be off, as computed."""
    largest = float(np.abs(values).max() + np.abs(cost).max())
    return rounding(largest, int(np.diff(chain.indptr).max()))


def _start_vector(model: Model, criterion: Criterion, size: int) -> Floats:
    result = np.zeros(size)
    if isinstance(criterion, Discounted):
        states, weights = criterion.start_distribution(model)
        for x, p in zip(states, weights, strict=True):
            result[model.box.index(x)] += p
    else:
        result[model.box.index(model.start)] = 1.0
    return result


def reachable(matrix: Any, sources: Ints) -> Ints:
    """The numbers of the states that can be reached, in order."""
    seen = np.zeros(matrix.shape[0], bool)
    for source in sources:
        if not seen[source]:
            seen[graph.breadth_first_order(matrix, int(source), return_predecessors=False)] = True
    return np.flatnonzero(seen)


def _recurrent_state(chain: Any, policy: Policy) -> int:
    """A frequent state of the recurrent class, of which there must be one."""
    closed = closed_classes(chain)
    if len(closed) != 1:
        raise ModelError(
            f"under policy {policy.name!r} the chain has {len(closed)} recurrent classes among the "
            "states that count, so its average cost depends on chance; start elsewhere, or use the "
            "discounted criterion."
        )
    # the more often it is visited the better conditioned are the equations of the others
    mass = np.full(chain.shape[0], 1.0 / chain.shape[0])
    backward = sp.csr_array(chain.T)
    for _ in range(CENTRING_STEPS):
        before = mass
        mass = backward @ before
        if np.abs(mass - before).sum() <= CENTRED_MASS_SHARE:
            break
    return int(closed[0][np.argmax(mass[closed[0]])])
