"""The symmetric dual program over columns: a linear program.

Let the columns φ_j be distributions over pairs, θ >= 0 their weights, and let the flow vanish
against functions Ψ of states only:

    minimise   Σ_j θ_j φ_jᵀℓ     subject to    Σ_j θ_j φ_jᵀD + c = 0,    Σ_j θ_j = 1.

(c = (1 − γ)αᵀΨ for the discounted criterion, 0 for the average one.) Its multipliers (w, λ) solve

    maximise   λ + cᵀw           subject to    λ <= φ_jᵀ(ℓ + Dw)      for every column j:

Bellman inequalities averaged over columns, so that Ψw are values (Dolgov & Durfee 2006 call the
pair of programs symmetric). With single pairs as columns and indicators of states as Ψ it is the
dual linear program itself. Fewer Ψ relax it, fewer columns restrict it: the optimum is no bound
unless one of the two is complete. Flow that no mixture of the columns can balance is paid for: each
function's imbalance has a price, which is raised until the optimum pays none, as far as that is
possible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dualplan.core.errors import DualplanError
from dualplan.core.lp import minimise
from dualplan.core.types import Floats, Ints
from dualplan.dual.symmetric.reference import Reference
from dualplan.values.basis import LinearValues

FLOW_TOLERANCE = 1e-7  # of the scaled flow that counts as none
FIRST_FLOW_PRICE = 1e3  # in units of the spread of the losses
FLOW_PRICE_FACTOR = 1e2
MOST_FLOW_PRICES = 3


@dataclass(frozen=True, eq=False)
class ColumnSolution:
    """Weights θ of the columns, the occupancy Σ θ_j φ_j over the pairs of the reference, values Ψw,
    the optimum, and the largest imbalance of the flow, in units of the root mean square of D.
    """

    reference: Reference
    theta: Floats
    occupancy: Floats
    values: LinearValues
    objective: float
    flow: float


def solve_columns(reference: Reference, columns: Ints | None = None) -> ColumnSolution:
    """The program whose column j is the reference within the pairs numbered j by `columns`; by
    default every pair is a column.

    Pairs numbered −1 are in none.
    """
    if columns is None:
        columns = np.arange(reference.pairs)
    phi = _columns(reference, columns)
    losses = np.asarray(phi @ reference.losses)
    size = np.sqrt((reference.differences**2).mean(axis=0))
    scale = np.where(size > 0, size, 1.0)
    flows = np.asarray(phi @ (reference.differences / scale))
    start = reference.start / scale
    spread = float(np.ptp(losses)) or 1.0
    price = FIRST_FLOW_PRICE * spread
    for _ in range(MOST_FLOW_PRICES):
        theta, w, flow = _priced(losses, flows, start, price)
        if flow <= FLOW_TOLERANCE:
            break
        price *= FLOW_PRICE_FACTOR
    occupancy = np.asarray(phi.T @ theta)
    values = LinearValues(reference.basis, w / scale)
    return ColumnSolution(reference, theta, occupancy, values, float(theta @ losses), flow)


def _columns(reference: Reference, columns: Ints) -> sp.csr_array:
    """φ, a row for each column; a column without mass in the reference is uniform."""
    used = np.flatnonzero(columns >= 0)
    count = int(columns.max()) + 1
    masses = reference.masses[used]
    totals = np.bincount(columns[used], masses, count)
    empty = totals[columns[used]] == 0
    masses = np.where(empty, 1.0, masses)
    totals = np.bincount(columns[used], masses, count)
    shares = masses / totals[columns[used]]
    return sp.csr_array((shares, (columns[used], used)), shape=(count, reference.pairs))


def _priced(
    losses: Floats, flows: Floats, start: Floats, price: float
) -> tuple[Floats, Floats, float]:
    """θ, w and the largest imbalance, with imbalances at a price."""
    count, functions = flows.shape
    matrix = sp.vstack(
        [
            sp.hstack([sp.csr_array(flows.T), sp.eye_array(functions), -sp.eye_array(functions)]),
            sp.csr_array(np.r_[np.ones(count), np.zeros(2 * functions)][None, :]),
        ]
    )
    right = np.r_[-start, 1.0]
    costs = np.r_[losses, np.full(2 * functions, price)]
    free = np.full(costs.size, np.inf)
    found = minimise(costs, matrix, (right, right), (np.zeros(costs.size), free), feasible=True)
    if not found.found:
        raise DualplanError(f"the program over columns was not solved: {found.word}.")
    theta = np.maximum(found.x[:count], 0.0)
    imbalance = np.abs(found.x[count : count + functions] - found.x[count + functions :])
    # the multiplier of a row is the derivative of the optimum by its right-hand side
    return theta / theta.sum(), -found.y[:functions], float(imbalance.max(initial=0.0))
