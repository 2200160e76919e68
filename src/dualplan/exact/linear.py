"""Linear systems of chains: I − γP, or I − P without the row and column of a recurrent state, both
M-matrices.

Small systems are factorised. Large ones are solved by GMRES, preconditioned with a multigrid
(`multigrid.py`). A solution need not be perfect: the bounds that are computed from it hold whatever
it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as linear

from dualplan.core.errors import ModelError
from dualplan.core.types import Floats
from dualplan.exact.multigrid import FACTORISED_UNKNOWNS, Multigrid

GMRES_TOLERANCE = 1e-12
GMRES_RESTART = 60
GMRES_RESTARTS = 10
# steps with one estimate of the weights, and how often they are renewed
ROUGH_STEPS = 15
WEIGHT_ROUNDS = 4
LEAST_WEIGHT_SHARE = 1e-12  # of the largest weight


class Solver:
    """Solves A x = b and Aᵀ x = b for one sparse matrix A."""

    def __init__(self, system: Any) -> None:
        self.system = sp.csr_array(system)
        self.size = int(self.system.shape[0])
        self.direct = self.size <= FACTORISED_UNKNOWNS
        if self.size:
            self.factors = self._factorised(np.ones(self.size))

    def _factorised(self, weights: Floats) -> Any:
        """Exact factors, or a multigrid with these weights."""
        try:
            if self.direct:
                return linear.splu(sp.csc_array(self.system))
            return Multigrid(self.system, weights)
        except RuntimeError as error:
            raise ModelError(
                "the equations of the chain are singular in floating point: parts of it hardly "
                "ever meet; use the discounted criterion, or simulate."
            ) from error

    def solve(self, right: Floats, *, transposed: bool = False) -> Floats:
        """x with A x = right, or Aᵀ x = right."""
        if self.size == 0:
            return np.zeros(0)
        if self.direct:
            return np.asarray(self.factors.solve(right, "T" if transposed else "N"))
        return self._gmres(right, transposed, np.zeros(self.size), GMRES_RESTART, GMRES_RESTARTS)

    def occupancy(self, right: Floats) -> Floats:
        """x with Aᵀ x = right >= 0, how often states are visited.

        From then on it serves to solve other systems.
        """
        if self.direct or not right.any():  # an absorbing state is left for nowhere
            return self.solve(right, transposed=True)
        x = np.zeros(self.size)
        for _ in range(WEIGHT_ROUNDS):
            x = self._gmres(right, True, x, ROUGH_STEPS, 1)
            self.factors = self._factorised(
                np.maximum(np.abs(x), LEAST_WEIGHT_SHARE * float(np.abs(x).max()))
            )
        return self._gmres(right, True, x, GMRES_RESTART, GMRES_RESTARTS)

    def _gmres(
        self, right: Floats, transposed: bool, start: Floats, restart: int, restarts: int
    ) -> Floats:
        shape = (self.size, self.size)
        if transposed:
            cycle = self.factors.apply_transposed
        else:
            cycle = self.factors.apply
        guess = linear.LinearOperator(shape, matvec=cycle, dtype=np.float64)
        matrix = self.system.T if transposed else self.system
        x, _ = linear.gmres(
            matrix,
            right,
            x0=start,
            M=guess,
            rtol=GMRES_TOLERANCE,
            restart=restart,
            maxiter=restarts,
        )
        return np.asarray(x)
