"""Policy iteration on a table of pairs, for chains that mix slowly.

The pairs (x, a) are the rows of a sparse matrix P, with losses ℓ, those of a state one after the
other. With D = L V − V the optimal cost lies in [min D, max D] (average), or J* in V + [min D, max
D]/(1−γ) (discounted), for any V. The next V is V + δ, where δ solves the equations of the greedy
policy,

    (I − γP)δ = D     (discounted),          (I − P)δ + ε1 = D,  δ(o) = 0     (average),

by BiCGSTAB with the diagonal as preconditioner, only as far as it pays: in the average case ε takes
the place of δ(o) among the unknowns, and starts as the mean of D. A few sweeps of value iteration
follow, which smooth what is left, and more of them if the bounds did not narrow: a greedy policy
may have several recurrent classes, and then no solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as linear

from dualplan.core.deadlines import require_time, time_is_over
from dualplan.core.errors import OutOfTimeError
from dualplan.core.types import Floats, Ints

SPARSE_DAMPING = 0.9  # of value iteration, which makes periodic chains aperiodic
# sweeps before policy iteration (the greedy policy of V = 0 may be absurd), and after it
SPARSE_WARM_UP_SWEEPS = 50
SMOOTHING_SWEEPS = 20
# of the residual in one solution, and the steps that it may take
RESIDUAL_REDUCTION = 1e-3
MOST_SOLUTION_STEPS = 300
MOST_POLICY_ROUNDS = 60


@dataclass(frozen=True, eq=False)
class Table:
    """Pairs of a state and an action, state by state: the number of each row's state, its action, P
    and ℓ.
    """

    states: Ints
    actions: Ints
    matrix: Any
    losses: Floats

    @cached_property
    def first(self) -> Ints:
        """The first row of each state."""
        return np.flatnonzero(np.diff(self.states, prepend=-1))

    def optimal(self, values: Floats, gamma: float) -> tuple[Floats, Ints]:
        """L V, and the rows of the minimising pairs, ties to the first."""
        q = self.losses + gamma * (self.matrix @ values)
        least = np.minimum.reduceat(q, self.first)
        rows = np.flatnonzero(q == least[self.states])[::-1]
        best = np.empty(least.size, np.int64)
        best[self.states[rows]] = rows  # the last one written is the first
        return least, best


@dataclass(frozen=True, eq=False)
class TableSolution:
    """Bounds on the optimal cost (average) or on J* − V (discounted), V, the rows of the greedy
    pairs, the rounds.
    """

    lower: float
    upper: float
    values: Floats
    best: Ints
    rounds: int
    reached: bool


def policy_iteration(
    table: Table,
    gamma: float,
    tol: float,
    *,
    origin: int = 0,
    start: Floats | None = None,
    rounds: int = MOST_POLICY_ROUNDS,
) -> TableSolution:
    """Until the bounds are within `tol`, relative to the cost.

    γ = 1: the average criterion, with V = 0 at `origin`.
    """
    if start is None:
        values = np.zeros(table.first.size)
    else:
        values = start.copy()
    sweeps = SPARSE_WARM_UP_SWEEPS
    width = np.inf
    for count in range(1, rounds + 1):
        for _ in range(sweeps):
            if time_is_over():
                break
            values += SPARSE_DAMPING * (table.optimal(values, gamma)[0] - values)
        image, best = table.optimal(values, gamma)
        difference = image - values
        low, high = (
            float(end) / (1.0 if gamma == 1 else 1 - gamma)
            for end in (difference.min(), difference.max())
        )
        if gamma == 1:
            size = abs(low + high) / 2
        else:
            size = float(np.abs(image).mean())
        reached = high - low <= tol * size
        if reached or count == rounds or time_is_over():
            break
        if high - low < width:
            sweeps = SMOOTHING_SWEEPS
        else:
            sweeps = 4 * SMOOTHING_SWEEPS
        width = min(width, high - low)
        try:
            values = values + _correction(table.matrix[best], difference, gamma, origin)
        except OutOfTimeError:
            break
    if gamma == 1:
        shift = float(values[origin])
    else:
        shift = -(low + high) / 2
    return TableSolution(low, high, values - shift, best, count, reached)


def _correction(chain: Any, difference: Floats, gamma: float, origin: int) -> Floats:
    size = difference.size
    if gamma < 1:
        return _solved(sp.eye_array(size, format="csr") - gamma * chain, difference)
    keep = np.ones(size)
    keep[origin] = 0.0
    ones = sp.csr_array(
        (np.ones(size), (np.arange(size), np.full(size, origin))), shape=(size, size)
    )
    system = (sp.eye_array(size, format="csr") - chain) @ sp.diags_array(keep) + ones
    delta = _solved(system, difference - difference.mean())
    delta[origin] = 0.0
    return delta


def _solved(system: Any, right: Floats) -> Floats:
    diagonal = system.diagonal()
    diagonal[diagonal == 0] = 1.0

    def divided(x: Floats) -> Floats:
        require_time()
        return np.asarray(x / diagonal)

    scaled = linear.LinearOperator(system.shape, matvec=divided, dtype=np.float64)
    x, _ = linear.bicgstab(
        sp.csr_array(system), right, M=scaled, rtol=RESIDUAL_REDUCTION, maxiter=MOST_SOLUTION_STEPS
    )
    if np.isfinite(x).all():
        return np.asarray(x)
    return np.zeros_like(right)
