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

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOAT, FLOATS, INT, INTS, ROWS, copy, helper, kernel


@helper
def product(ptr, indices, values, row, theta):
    total = 0.0
    for k in range(ptr[row], ptr[row + 1]):
        total += values[k] * theta[indices[k]]
    return total


@helper
def add_rows(
    pp, pi, pv, pw, base, fp, fi, fv, fw, alpha, on_negative, on_flow, first, last, theta, g
):
    """Add the subgradients of both violations over the rows first, ..., last − 1 to g."""
    batch = last - first
    for row in range(first, last):
        if product(pp, pi, pv, row, theta) + base[row] < 0.0:
            weight = on_negative * pw[row] / batch
            for k in range(pp[row], pp[row + 1]):
                g[pi[k]] -= weight * pv[k]
        f = product(fp, fi, fv, row, theta) - alpha[row]
        if f != 0.0:
            weight = (on_flow if f > 0.0 else -on_flow) * fw[row] / batch
            for k in range(fp[row], fp[row + 1]):
                g[fi[k]] += weight * fv[k]


@helper
def add_limits(rows, offsets, prices, theta, g):
    """Add the subgradients of the limits' penalties to g."""
    for k in range(prices.size):
        value = offsets[k]
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


_ROWS = (
    FLOATS,
    INTS,
    INTS,
    FLOATS,
    FLOATS,
    FLOATS,
    INTS,
    INTS,
    FLOATS,
    FLOATS,
    FLOATS,
    ROWS,
    FLOATS,
    FLOATS,
)


@kernel(types.void(*_ROWS, FLOAT, FLOAT, INT, FLOAT, FLOAT, FLOATS, FLOATS, FLOATS, FLOATS))
def plain(
    losses,
    pp,
    pi,
    pv,
    pw,
    base,
    fp,
    fi,
    fv,
    fw,
    alpha,
    limits,
    offsets,
    prices,
    on_negative,
    on_flow,
    batch,
    mass,
    radius,
    steps,
    theta,
    total,
    g,
):
    """One step of each size in `steps`, each on its own batch.

    θ is moved, and the iterates added to `total`.
    """
    d = theta.size
    for t in range(steps.size):
        copy(g, losses)
        first = t * batch
        last = (t + 1) * batch
        add_rows(
            pp, pi, pv, pw, base, fp, fi, fv, fw, alpha, on_negative, on_flow, first, last, theta, g
        )
        add_limits(limits, offsets, prices, theta, g)
        for j in range(d):
            total[j] += theta[j]
            theta[j] -= steps[t] * g[j]
        shift = (theta.sum() - mass) / d
        for j in range(d):
            theta[j] -= shift
        into_ball(theta, mass, radius)


@kernel(
    types.void(
        *_ROWS,
        FLOAT,
        FLOAT,
        INT,
        INT,
        FLOAT,
        FLOAT,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
    )
)
def adaptive(
    losses,
    pp,
    pi,
    pv,
    pw,
    base,
    fp,
    fi,
    fv,
    fw,
    alpha,
    limits,
    offsets,
    prices,
    on_negative,
    on_flow,
    batch,
    batches,
    mass,
    radius,
    theta,
    origin,
    reach,
    squares,
    total,
    weights,
    g,
):
    """`batches` steps with a step size for each weight.

    `total` is a weighted sum of iterates, `weights` of weights.
    """
    d = theta.size
    for t in range(batches):
        copy(g, losses)
        first = t * batch
        last = (t + 1) * batch
        add_rows(
            pp, pi, pv, pw, base, fp, fi, fv, fw, alpha, on_negative, on_flow, first, last, theta, g
        )
        add_limits(limits, offsets, prices, theta, g)
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
        into_ball(theta, mass, radius)
        for j in range(d):
            reach[j] = max(reach[j], abs(theta[j] - origin[j]))
