"""How fast a chain forgets where it started, measured on the chain itself.

With δ(Q) = ½·max_{x,y} ‖Q(x,·) − Q(y,·)‖₁, two distributions come closer by the factor δ(P) in a
step and by δ(Pᵗ) in t steps. The paper assumes δ(P) = e^(−1/τ) < 1; in queueing networks δ(P) = 1,
since two far states have no next state in common. What holds for every chain that forgets at all is
a contraction in t steps, and from it for *all* k

    ‖(p − q)Pᵏ‖₁  <=  C·e^(−k/τ)·‖p − q‖₁     with     τ = −t/ln δ,  C = δ^(1/t − 1),  δ >= δ(Pᵗ),

since k has ⌊k/t⌋ >= (k − t + 1)/t whole blocks; a single step has C = 1. A δ below e⁻² counts as
e⁻² if t > 1: what it would gain in τ it would lose in C.

Here t is the first power of 2 at which δ(Pᵗ) <= 2·max_x ½‖Pᵗ(x,·) − μ‖₁ <= e⁻¹. This takes the
powers as full matrices. On larger chains only the relaxation time −1/ln|λ₂| is computed, with λ₂
the second largest eigenvalue: the rate in the limit, which bounds nothing at a given k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse.linalg as linear
from scipy.spatial.distance import cdist

from dualplan.core.types import Floats

MOST_FULL_MATRIX_STATES = 1_000  # states up to which powers are full matrices
MOST_DOUBLINGS = 40


@dataclass(frozen=True)
class Mixing:
    """`tau` and `constant` hold for all k (infinite if not found); `one_step` is δ(P).

    `relaxation` is a limit only, and not a number if its computation did not converge.
    """

    tau: float
    constant: float
    steps: int
    one_step: float | None
    relaxation: float


def mixing(chain: Any, stationary: Floats) -> Mixing:
    """Measure a chain with one recurrent class."""
    size = chain.shape[0]
    if size > MOST_FULL_MATRIX_STATES:
        return Mixing(math.inf, math.inf, 0, None, _sparse_relaxation(chain))
    power: Floats = chain.toarray()
    one_step = float(cdist(power, power, "cityblock").max()) / 2
    # similar, and for reversible chains symmetric: eigenvalues of one-sided chains are hard to
    # compute otherwise
    root = np.sqrt(np.maximum(stationary, 1e-280))
    relaxation = _relaxation(np.abs(np.linalg.eigvals(power * root[:, None] / root)))
    steps = 1
    for _ in range(MOST_DOUBLINGS):
        if steps == 1:
            contraction = one_step
        else:
            contraction = min(1.0, float(np.abs(power - stationary).sum(axis=1).max()))
        if contraction <= math.exp(-1):
            contraction = max(contraction, 1e-16 if steps == 1 else math.exp(-2))
            constant = contraction ** (1 / steps - 1)
            return Mixing(-steps / math.log(contraction), constant, steps, one_step, relaxation)
        power = power @ power
        steps = 2 * steps
    return Mixing(math.inf, math.inf, steps, one_step, relaxation)


def _sparse_relaxation(chain: Any) -> float:
    try:
        return _relaxation(np.abs(linear.eigs(chain, k=2, which="LM")[0]))
    except linear.ArpackNoConvergence:
        return math.nan


def _relaxation(moduli: Floats) -> float:
    if moduli.size > 1:
        second = float(np.sort(moduli)[-2])
    else:
        second = 0.0
    if second >= 1 - 1e-12:
        return math.inf
    if second <= 0:
        return 0.0
    return -1 / math.log(second)
