"""A saddle point from transitions, a batch at a time, by adaptive steps of both sides.

With rows r of ratios, D of γ y(x') − y(x) and shaped losses ℓ of a batch, g = rθ and test functions
mixed by ζ,

    slope in θ   M·mean[(ℓ + H_flow·Dζ − H_neg·1{g < 0})·r],      slope in ζ   M·mean[g·D] + αᵀy.

θ keeps to the plane mᵀθ = 1 and the box |θ| <= S; each weight has its own step size, its reach over
the root of the sum of its squared slopes. The mixture ζ has parts λ_m·η_m: of a family of cells η
is in a box and moves like θ, of one of functions Ση is a mixture of ±y_k by exponential weights; λ
are exponential weights over the families. Each of these has no regret against the best in
hindsight, so the averages of θ and ζ tend to a saddle point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOAT, FLOATS, INT, INTS, group, helper, kernel
from dualplan._kernels.layouts import SPARSE, Sparse
from dualplan.core.types import Floats, Ints


class Sampled(NamedTuple):
    """Transitions, one a row: the ratios r, the changes D of the test functions, and the shaped
    losses.
    """

    ratios: Sparse
    tests: Sparse
    shaped: Floats


class Families(NamedTuple):
    """The families of test functions: where each starts and the last one ends, whether it is one
    of cells, and αᵀy of each function.
    """

    ends: Ints
    adds: Ints
    starts: Floats


class Settings(NamedTuple):
    """m of the plane mᵀθ = 1, M, H_neg, H_flow, transitions in a batch, and S."""

    mass: Floats
    total: float
    on_negative: float
    on_flow: float
    batch: int
    radius: float


class Weights(NamedTuple):
    """θ, where it began, the reach and the sum of squared slopes of each weight; its slope."""

    theta: Floats
    origin: Floats
    reach: Floats
    squares: Floats
    slope: Floats


class Mixture(NamedTuple):
    """η, and the shares λ of the families.

    Of each function: the sum of squared slopes, the sum of slopes, ζ and its slope. Of each family:
    the sum of its largest squared slopes, and its payoffs. Last the sum of the families' largest
    squared gains.
    """

    eta: Floats
    share: Floats
    squares: Floats
    sums: Floats
    zeta: Floats
    pull: Floats
    largest: Floats
    payoffs: Floats
    most: Floats


SAMPLED = group(Sampled, SPARSE, SPARSE, FLOATS)
FAMILIES = group(Families, INTS, INTS, FLOATS)
SETTINGS = group(Settings, FLOATS, FLOAT, FLOAT, FLOAT, INT, FLOAT)
WEIGHTS = group(Weights, *[FLOATS] * 5)
MIXTURE = group(Mixture, *[FLOATS] * 9)


@helper
def _mix(families, mixture):
    for m in range(families.adds.size):
        for k in range(families.ends[m], families.ends[m + 1]):
            mixture.zeta[k] = mixture.share[m] * mixture.eta[k]


@helper
def _exponential(sums, largest, low, high, eta):
    """η_k = p_k − q_k of exponential weights over the functions and their negatives."""
    if largest > 0.0:
        rate = np.sqrt(np.log(2.0 * (high - low)) / largest)
    else:
        rate = 0.0
    top = 0.0
    for k in range(low, high):
        top = max(top, abs(sums[k]))
    total = 0.0
    for k in range(low, high):
        up = np.exp(rate * (sums[k] - top))
        down = np.exp(rate * (-sums[k] - top))
        eta[k] = up - down
        total += up + down
    for k in range(low, high):
        eta[k] /= total


@helper
def _shares(payoffs, largest, share):
    if largest > 0.0:
        rate = np.sqrt(np.log(np.float64(share.size)) / largest)
    else:
        rate = 0.0
    top = payoffs[0]
    total = 0.0
    for m in range(share.size):
        top = max(top, payoffs[m])
    for m in range(share.size):
        share[m] = np.exp(rate * (payoffs[m] - top))
        total += share[m]
    for m in range(share.size):
        share[m] /= total


@helper
def _slopes(sampled, settings, first, weights, mixture):
    """Add the slopes of the batch that starts at row `first` in θ and in ζ."""
    ratios = sampled.ratios
    tests = sampled.tests
    pull = mixture.pull
    scale = settings.total / settings.batch
    for n in range(first, first + settings.batch):
        g = 0.0
        flow = 0.0
        for k in range(ratios.ptr[n], ratios.ptr[n + 1]):
            g += ratios.values[k] * weights.theta[ratios.columns[k]]
        for k in range(tests.ptr[n], tests.ptr[n + 1]):
            j = tests.columns[k]
            flow += tests.values[k] * mixture.zeta[j]
            pull[j] += scale * g * tests.values[k]
        price = settings.on_negative if g < 0.0 else 0.0
        weight = scale * (sampled.shaped[n] + settings.on_flow * flow - price)
        for k in range(ratios.ptr[n], ratios.ptr[n + 1]):
            weights.slope[ratios.columns[k]] += weight * ratios.values[k]


@helper
def _move(weights, settings):
    """One step of θ, back to the plane in its own metric, and into the box."""
    theta = weights.theta
    slope = weights.slope
    squares = weights.squares
    reach = weights.reach
    mass = settings.mass
    radius = settings.radius
    excess = -1.0
    give = 0.0
    for j in range(theta.size):
        squares[j] += slope[j] * slope[j]
        if squares[j] > 0.0:
            rate = reach[j] / np.sqrt(squares[j])
        else:
            rate = 0.0
        theta[j] -= rate * slope[j]
        excess += mass[j] * theta[j]
        give += rate * mass[j] * mass[j]
    for j in range(theta.size):
        if squares[j] > 0.0:
            rate = reach[j] / np.sqrt(squares[j])
        else:
            rate = 0.0
        if give > 0.0:
            theta[j] -= excess * rate * mass[j] / give
        theta[j] = min(max(theta[j], -radius), radius)
        reach[j] = max(reach[j], abs(theta[j] - weights.origin[j]))


@helper
def _answer(families, mixture):
    """One step of every family's η, and of the shares."""
    eta = mixture.eta
    pull = mixture.pull
    squares = mixture.squares
    largest = mixture.largest
    worst = 0.0
    for m in range(families.adds.size):
        low = families.ends[m]
        high = families.ends[m + 1]
        gain = 0.0
        top = 0.0
        for k in range(low, high):
            gain += eta[k] * pull[k]
            top = max(top, abs(pull[k]))
        mixture.payoffs[m] += gain
        worst = max(worst, abs(gain))
        if families.adds[m]:
            for k in range(low, high):
                squares[k] += pull[k] * pull[k]
                if squares[k] > 0.0:
                    eta[k] = min(max(eta[k] + pull[k] / np.sqrt(squares[k]), -1.0), 1.0)
        else:
            largest[m] += top * top
            for k in range(low, high):
                mixture.sums[k] += pull[k]
            _exponential(mixture.sums, largest[m], low, high, eta)
    mixture.most[0] += worst * worst
    _shares(mixture.payoffs, mixture.most[0], mixture.share)


@kernel(types.void(SAMPLED, FAMILIES, SETTINGS, WEIGHTS, MIXTURE, FLOATS))
def saddle(sampled, families, settings, weights, mixture, average):
    """One pass over the transitions.

    Iterates of θ are added to `average`, weighted by their reach.
    """
    theta = weights.theta
    batch = settings.batch
    for first in range(0, sampled.shaped.size - batch + 1, batch):
        _mix(families, mixture)
        weights.slope[:] = 0.0
        for k in range(mixture.pull.size):
            mixture.pull[k] = families.starts[k]
        _slopes(sampled, settings, first, weights, mixture)
        weight = 0.0
        for j in range(theta.size):
            weight += weights.reach[j]
        for j in range(theta.size):
            average[j] += weight * theta[j]
        average[theta.size] += weight
        _move(weights, settings)
        _answer(families, mixture)
