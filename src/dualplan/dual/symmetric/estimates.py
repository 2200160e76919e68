"""What a symmetric program found, looked at again with pairs that it was not fitted to.

On a fresh reference r' of independent visits, u' ∝ r'·exp(−η(ℓ + Dw)) is the same occupancy up to
sampling. With v = u'/r' (the weights of pairs, of mean 1 under r'),

    objective      Σ u' ℓ
    distance       KL(u' ‖ r')
    residual       the root mean square under u' of ℓ + Dw less its mean: Bellman residuals, which a
                   richer Ψ makes smaller
    flow           Σ u' D_χ + c_χ for held-out functions χ of states, in units of the root mean
                   square of D_χ: whether u' is stationary against what it was not fitted to
    effective      1/Σ(u'²/r'), the share of the visits that carry it

each a ratio of sums over states, so with intervals by the jackknife over blocks of visits
(statistical).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from dualplan.core.intervals import Interval
from dualplan.core.types import Floats
from dualplan.dual.symmetric.entropy import EntropySolution
from dualplan.dual.symmetric.reference import Reference

JACKKNIFE_BLOCKS = 20


@dataclass(frozen=True, eq=False)
class Estimates:
    """Objective, distance, residual and the largest flow against held-out functions, with their
    intervals, and the share of visits that carry them.
    """

    objective: Interval
    distance: Interval
    residual: Interval
    flow: Interval
    effective_share: float


def estimate_again(
    found: EntropySolution, fresh: Reference, *, confidence: float = 0.95
) -> Estimates:
    """The same occupancy on a fresh reference.

    Its basis may have more functions after those of the solution; these are the held-out ones.
    """
    own = len(found.values.basis)
    exponents = -found.eta * (fresh.losses + fresh.differences[:, :own] @ found.values.weights)
    tilt = np.exp(exponents - exponents.max())
    held_out = fresh.differences[:, own:]
    size = np.sqrt(fresh.masses @ held_out**2)
    held_out = held_out / np.where(size > 0, size, 1.0)
    start = fresh.start[own:] / np.where(size > 0, size, 1.0)
    residuals = fresh.losses + fresh.differences[:, :own] @ found.values.weights
    block = fresh.rows * JACKKNIFE_BLOCKS // len(fresh.states)

    def numbers(kept: Floats) -> tuple[float, float, float, Floats, float]:
        masses = fresh.masses * kept
        masses = masses / masses.sum()
        u = masses * tilt
        u = u / u.sum()
        used = u > 0
        distance = float(u[used] @ np.log(u[used] / masses[used]))
        mean = float(u @ residuals)
        residual = float(np.sqrt(max(u @ (residuals - mean) ** 2, 0.0)))
        share = float(1 / np.sum(u[used] ** 2 / masses[used]))
        return float(u @ fresh.losses), distance, residual, u @ held_out + start, share

    objective, distance, residual, flows, share = numbers(np.ones(fresh.pairs))
    without = [numbers((block != b).astype(np.float64)) for b in range(JACKKNIFE_BLOCKS)]
    worst = int(np.abs(flows).argmax()) if flows.size else -1
    flow = float(flows[worst]) if flows.size else 0.0
    flow_without = [float(row[3][worst]) if flows.size else 0.0 for row in without]
    return Estimates(
        _jackknife(objective, [row[0] for row in without], confidence),
        _jackknife(distance, [row[1] for row in without], confidence),
        _jackknife(residual, [row[2] for row in without], confidence),
        _jackknife(flow, flow_without, confidence),
        share,
    )


def _jackknife(value: float, without: list[float], confidence: float) -> Interval:
    """The interval of a ratio from its values without one block each."""
    blocks = len(without)
    variance = (blocks - 1) / blocks * float(np.sum((np.array(without) - np.mean(without)) ** 2))
    half = float(special.stdtrit(blocks - 1, (1 + confidence) / 2)) * variance**0.5
    return Interval(value, value - half, value + half, confidence)
