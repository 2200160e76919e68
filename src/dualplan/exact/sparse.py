"""Policy iteration on a table of pairs, for problems that are small but mix slowly.

The pairs (x, a) are the rows of a sparse matrix P, with losses ℓ, those of a state one after the other. With
D = L V − V the cost of an optimal policy lies in [min D, max D] (average; discounted after MacQueen, see
`iteration.py`), whatever V. The next V solves the equations of the greedy policy, (I − γP)δ = ℓ + γP V − V for the
correction δ, by GMRES with a multigrid as preconditioner (`multigrid.py`), only as far as it pays; average: with
δ = 0 in one state, whose equation is left out, after the mean of the residual was taken off. Where such a step does
not narrow the bounds, sweeps of value iteration follow: a greedy policy may have several recurrent classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as linear

from dualplan.exact.multigrid import Multigrid
from dualplan.types import Floats, Ints

DAMPING = 0.9  # of value iteration, which makes periodic chains aperiodic
WARM_UP = 50  # sweeps before policy iteration: the greedy policy of V = 0 may be absurd
REDUCTION = 1e-3  # of the residual by GMRES
RESTART, RESTARTS = 40, 3


@dataclass(frozen=True, eq=False)
class Table:
    """Pairs of a state and an action: the number of the state of each row, P, ℓ."""

    states: Ints
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
    """Bounds on the optimal cost (average), or on J* − V at all states (discounted); V; the work done."""

    lower: float
    upper: float
    values: Floats
    best: Ints
    rounds: int


def policy_iteration(
    table: Table, gamma: float, tol: float, *, origin: int = 0, start: Floats | None = None, most: int = 100
) -> TableSolution:
    """Values within a relative `tol`; average criterion: γ = 1, and values are 0 at `origin`."""
    size = table.first.size
    values = np.zeros(size) if start is None else start.copy()
    warm_up, width = WARM_UP, np.inf
    for rounds in range(1, most + 1):
        for _ in range(warm_up):
            values += DAMPING * (table.optimal(values, gamma)[0] - values)
        image, best = table.optimal(values, gamma)
        difference = image - values
        low, high = _bounds(difference, gamma)
        if high - low <= tol * _scale(low, high, image, gamma) or rounds == most:
            break
        warm_up = 0 if high - low < width else 2 * WARM_UP
        width = min(width, high - low)
        if warm_up == 0:
            values = _corrected(table, best, values, difference, gamma, origin)
    shift = float(values[origin]) if gamma == 1 else 0.0
    return TableSolution(low, high, values - shift, best, rounds)


def _bounds(difference: Floats, gamma: float) -> tuple[float, float]:
    factor = 1.0 if gamma == 1 else 1 / (1 - gamma)
    return factor * float(difference.min()), factor * float(difference.max())


def _scale(low: float, high: float, values: Floats, gamma: float) -> float:
    """What the width of the bounds is compared with: the cost, or the mean value."""
    return abs(low + high) / 2 if gamma == 1 else float(np.abs(values).mean())


def _corrected(table: Table, best: Ints, values: Floats, difference: Floats, gamma: float, origin: int) -> Floats:
    chain = table.matrix[best]
    if gamma < 1:
        system = sp.eye_array(values.size, format="csr") - gamma * chain
        return values + _solved(system, difference)
    others = np.delete(np.arange(values.size), origin)
    inner = sp.eye_array(others.size, format="csr") - chain[others][:, others]
    # δ = x − ε·y with (I−P)x = r and (I−P)y = 1 off the origin; ε makes the equation of the origin hold
    row = chain[[origin]][:, others]
    factors = Multigrid(inner, np.ones(others.size))
    x, y = (_gmres(inner, right, factors) for right in (difference[others], np.ones(others.size)))
    level = float((difference[origin] + (row @ x)[0]) / (1 + (row @ y)[0]))
    corrected = values.copy()
    corrected[others] += x - level * y
    return corrected


def _solved(system: Any, right: Floats) -> Floats:
    return _gmres(system, right, Multigrid(system, np.ones(right.size)))


def _gmres(system: Any, right: Floats, factors: Multigrid) -> Floats:
    guess = linear.LinearOperator(system.shape, matvec=factors.apply, dtype=np.float64)
    x, _ = linear.gmres(system, right, M=guess, rtol=REDUCTION, restart=RESTART, maxiter=RESTARTS)
    return np.asarray(x)
