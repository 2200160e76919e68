"""Linear systems of chains: I − γP, or I − P without the row and column of a recurrent state, both M-matrices.

Small systems are factorised. Large ones are solved by GMRES, preconditioned with an incomplete factorisation. A
solution need not be perfect: the bounds that are computed from it hold whatever it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as linear

from dualplan.errors import ModelError
from dualplan.types import Floats

DIRECT = 3_000  # equations up to which systems are factorised
TOLERANCE = 1e-12
RESTART, RESTARTS = 60, 60


class Solver:
    """Solves A x = b and Aᵀ x = b for one sparse matrix A."""

    def __init__(self, system: Any) -> None:
        self.system = sp.csc_array(system)
        self.size = int(self.system.shape[0])
        self.direct = self.size <= DIRECT
        if self.size:
            try:
                self.factors: Any = (
                    linear.splu(self.system)
                    if self.direct
                    else linear.spilu(self.system, drop_tol=1e-3, fill_factor=10.0)
                )
            except RuntimeError as error:
                raise ModelError(
                    "the equations of the chain are singular in floating point: parts of it hardly ever meet; use the "
                    "discounted criterion, or simulate."
                ) from error

    def solve(self, right: Floats, *, transposed: bool = False) -> Floats:
        """x with A x = right, or Aᵀ x = right."""
        if self.size == 0:
            return np.zeros(0)
        way = "T" if transposed else "N"
        if self.direct:
            return np.asarray(self.factors.solve(right, way))
        shape = (self.size, self.size)
        guess = linear.LinearOperator(shape, matvec=lambda b: self.factors.solve(b, way), dtype=np.float64)
        matrix = self.system.T if transposed else self.system
        x, _ = linear.gmres(matrix, right, M=guess, rtol=TOLERANCE, restart=RESTART, maxiter=RESTARTS)
        return np.asarray(x)
