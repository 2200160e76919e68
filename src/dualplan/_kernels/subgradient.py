"""Projected stochastic subgradient steps over rows that were drawn before.

A batch of b pairs and b flows gives, with weights w = price/q,

    g = ℓᵀΦ − (H_neg/b)·Σ w_i·Φ_i·1{Φ_iθ + μ_i < 0} + (H_flow/b)·Σ w_i·F_i·sgn(F_iθ − α_i)
        + Σ_k ρ_k·G_k·1{G_kθ + g_k > 0},

where the last sum is over limits.

`plain` moves by the given step sizes and projects onto Θ. `adaptive` has a step size for each
weight, its reach over the root of the sum of its squared subgradients, so that nothing need be
tuned; the reach is the distance that the weight has come so far, but at least what it was at the
start. It projects onto the plane in its own metric.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOAT, FLOAT_ROWS, FLOATS, INT, copy, group, helper, kernel
from dualplan._kernels.layouts import SPARSE, Sparse
from dualplan.core.types import Floats


class Surrogate(NamedTuple):
    """ℓᵀΦ; the rows of pairs and of states that were drawn, their weights w, and what is added to
    the first (μ) and taken off the second (α); the limits G, g and their prices ρ.
    """

    losses: Floats
    pairs: Sparse
    pair_weights: Floats
    base: Floats
    flows: Sparse
    flow_weights: Floats
    alpha: Floats
    limits: Floats
    offsets: Floats
    prices: Floats


class Settings(NamedTuple):
    """H_neg, H_flow, rows of each kind in a batch, and the mass and the radius of Θ."""

    on_negative: float
    on_flow: float
    batch: int
    mass: float
    radius: float


class AdaptiveWalk(NamedTuple):
    """θ, where it began, the reach and the sum of squared subgradients of each weight; the weighted
    sum of iterates, and the sum of their weights.
    """

    theta: Floats
    origin: Floats
    reach: Floats
    squares: Floats
    total: Floats
    weights: Floats


SURROGATE = group(
    Surrogate, FLOATS, SPARSE, FLOATS, FLOATS, SPARSE, FLOATS, FLOATS, FLOAT_ROWS, FLOATS, FLOATS
)
SETTINGS = group(Settings, FLOAT, FLOAT, INT, FLOAT, FLOAT)
ADAPTIVE_WALK = group(AdaptiveWalk, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS)


@helper
def product(matrix, row, theta):
    total = 0.0
    for k in range(matrix.ptr[row], matrix.ptr[row + 1]):
        total += matrix.values[k] * theta[matrix.columns[k]]
    return total


@helper
def add_rows(surrogate, settings, first, theta, g):
    """Add the subgradients of both violations over the batch that starts at row `first` to g."""
    pairs = surrogate.pairs
    flows = surrogate.flows
    batch = settings.batch
    for row in range(first, first + batch):
        if product(pairs, row, theta) + surrogate.base[row] < 0.0:
            weight = settings.on_negative * surrogate.pair_weights[row] / batch
            for k in range(pairs.ptr[row], pairs.ptr[row + 1]):
                g[pairs.columns[k]] -= weight * pairs.values[k]
        f = product(flows, row, theta) - surrogate.alpha[row]
        if f != 0.0:
            price = settings.on_flow if f > 0.0 else -settings.on_flow
            weight = price * surrogate.flow_weights[row] / batch
            for k in range(flows.ptr[row], flows.ptr[row + 1]):
                g[flows.columns[k]] += weight * flows.values[k]


@helper
def add_limits(surrogate, theta, g):
    """Add the subgradients of the limits' penalties to g."""
    rows = surrogate.limits
    prices = surrogate.prices
    for k in range(prices.size):
        value = surrogate.offsets[k]
        for j in range(theta.size):
            value += rows[k, j] * theta[j]
        if value > 0.0:
            for j in range(theta.size):
                g[j] += prices[k] * rows[k, j]


@helper
def into_ball(theta, mass, radius):
    """Shrink a point of the plane towards the plane's point nearest to 0, into the ball."""
    centre = mass / theta.size
    square = 0.0
    for j in range(theta.size):
        square += (theta[j] - centre) ** 2
    room = max(radius * radius - theta.size * centre * centre, 0.0)
    if square > room:
        factor = np.sqrt(room / square)
        for j in range(theta.size):
            theta[j] = centre + factor * (theta[j] - centre)


@kernel(types.void(SURROGATE, SETTINGS, FLOATS, FLOATS, FLOATS, FLOATS))
def plain(surrogate, settings, steps, theta, total, g):
    """One step of each size in `steps`, each on its own batch.

    θ is moved, and the iterates added to `total`; g is room to work.
    """
    mass = settings.mass
    d = theta.size
    for t in range(steps.size):
        copy(g, surrogate.losses)
        add_rows(surrogate, settings, t * settings.batch, theta, g)
        add_limits(surrogate, theta, g)
        for j in range(d):
            total[j] += theta[j]
            theta[j] -= steps[t] * g[j]
        shift = (theta.sum() - mass) / d
        for j in range(d):
            theta[j] -= shift
        into_ball(theta, mass, settings.radius)


@kernel(types.void(SURROGATE, SETTINGS, INT, ADAPTIVE_WALK, FLOATS))
def adaptive(surrogate, settings, batches, walk, g):
    """`batches` steps with a step size for each weight; g is room to work."""
    theta = walk.theta
    origin = walk.origin
    reach = walk.reach
    squares = walk.squares
    total = walk.total
    weights = walk.weights
    mass = settings.mass
    d = theta.size
    for t in range(batches):
        copy(g, surrogate.losses)
        add_rows(surrogate, settings, t * settings.batch, theta, g)
        add_limits(surrogate, theta, g)
        mean = g.sum() / d  # along the plane
        importance = 0.0
        for j in range(d):
            g[j] -= mean
            squares[j] += g[j] * g[j]
            importance += reach[j]
        weights[0] += importance
        excess = -mass
        give = 0.0
        for j in range(d):
            total[j] += importance * theta[j]
            if squares[j] > 0.0:
                rate = reach[j] / np.sqrt(squares[j])
            else:
                rate = 0.0
            theta[j] -= rate * g[j]
            excess += theta[j]
            give += rate
        for j in range(d):
            if give > 0.0:
                if squares[j] > 0.0:
                    rate = reach[j] / np.sqrt(squares[j])
                else:
                    rate = 0.0
                theta[j] -= excess * rate / give
        into_ball(theta, mass, settings.radius)
        for j in range(d):
            reach[j] = max(reach[j], abs(theta[j] - origin[j]))
