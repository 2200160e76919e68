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

import numpy as np
from numba import types

from dualplan._kernels.compiler import FLOAT, FLOATS, INT, INTS, helper, kernel


@helper
def _mix(families, adds, eta, share, zeta):
    for m in range(adds.size):
        for k in range(families[m], families[m + 1]):
            zeta[k] = share[m] * eta[k]


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
def _slopes(
    rp,
    ri,
    rv,
    dp,
    di,
    dv,
    shaped,
    total,
    on_negative,
    on_flow,
    first,
    last,
    theta,
    zeta,
    slope,
    pull,
):
    """Add the slopes of a batch in θ to `slope` and in ζ to `pull`."""
    scale = total / (last - first)
    for n in range(first, last):
        g = 0.0
        flow = 0.0
        for k in range(rp[n], rp[n + 1]):
            g += rv[k] * theta[ri[k]]
        for k in range(dp[n], dp[n + 1]):
            flow += dv[k] * zeta[di[k]]
            pull[di[k]] += scale * g * dv[k]
        weight = scale * (shaped[n] + on_flow * flow - (on_negative if g < 0.0 else 0.0))
        for k in range(rp[n], rp[n + 1]):
            slope[ri[k]] += weight * rv[k]


@helper
def _move(theta, slope, squares, reach, origin, mass, radius):
    """One step of θ, back to the plane in its own metric, and into the box."""
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
        reach[j] = max(reach[j], abs(theta[j] - origin[j]))


@helper
def _answer(families, adds, pull, squares, sums, largest, payoffs, most, eta, share):
    """One step of every family's η, and of the shares."""
    worst = 0.0
    for m in range(adds.size):
        low = families[m]
        high = families[m + 1]
        gain = 0.0
        top = 0.0
        for k in range(low, high):
            gain += eta[k] * pull[k]
            top = max(top, abs(pull[k]))
        payoffs[m] += gain
        worst = max(worst, abs(gain))
        if adds[m]:
            for k in range(low, high):
                squares[k] += pull[k] * pull[k]
                if squares[k] > 0.0:
                    eta[k] = min(max(eta[k] + pull[k] / np.sqrt(squares[k]), -1.0), 1.0)
        else:
            largest[m] += top * top
            for k in range(low, high):
                sums[k] += pull[k]
            _exponential(sums, largest[m], low, high, eta)
    most[0] += worst * worst
    _shares(payoffs, most[0], share)


@kernel(
    types.void(
        INTS,
        INTS,
        FLOATS,
        INTS,
        INTS,
        FLOATS,
        FLOATS,
        INTS,
        INTS,
        FLOATS,
        FLOATS,
        FLOAT,
        FLOAT,
        FLOAT,
        INT,
        FLOAT,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
        FLOATS,
    )
)
def saddle(
    rp,
    ri,
    rv,
    dp,
    di,
    dv,
    shaped,
    families,
    adds,
    starts,
    mass,
    total,
    on_negative,
    on_flow,
    batch,
    radius,
    theta,
    origin,
    reach,
    squares,
    eta,
    share,
    dual_squares,
    sums,
    largest,
    payoffs,
    most,
    zeta,
    slope,
    pull,
    average,
):
    """One pass over the transitions.

    Iterates of θ are added to `average`, weighted by their reach.
    """
    for first in range(0, shaped.size - batch + 1, batch):
        _mix(families, adds, eta, share, zeta)
        slope[:] = 0.0
        for k in range(pull.size):
            pull[k] = starts[k]
        _slopes(
            rp,
            ri,
            rv,
            dp,
            di,
            dv,
            shaped,
            total,
            on_negative,
            on_flow,
            first,
            first + batch,
            theta,
            zeta,
            slope,
            pull,
        )
        weight = 0.0
        for j in range(theta.size):
            weight += reach[j]
        for j in range(theta.size):
            average[j] += weight * theta[j]
        average[theta.size] += weight
        _move(theta, slope, squares, reach, origin, mass, radius)
        _answer(families, adds, pull, dual_squares, sums, largest, payoffs, most, eta, share)
