"""Grids of penalties H for the meta-algorithm.

With F(H) = c(H) + β/H, c non-decreasing and of slope at most V_max, grids begin at √(β/V_max),
where the two terms of H·V_max + β/H are equal, and end at 2β/ε or later, where the second is at
most ε/2. (The paper begins at β/√V_max.)

    paper's      H_{k+1} = H_k + ε'/(V_max + β/H_k²): F varies by at most ε' between neighbours. Its
                 steps are at most
                 ε'/V_max, so it has about 2β·V_max/(ε·ε') points, not logarithmically many.
    geometric    H_{k+1} = ρ·H_k: for H_k <= H <= ρ·H_k, c(H_k) <= c(H), so F(H_k) <= F(H) + (ρ −
                 1)·β/H.
"""

from __future__ import annotations

import math

from dualplan.core.checks import require_positive
from dualplan.core.errors import InputError

PENALTY_GRIDS = ("geometric", "paper")
MOST_GRID_POINTS = 10_000  # points


def paper_grid(beta: float, v_max: float, epsilon: float, step: float | None = None) -> list[float]:
    """The paper's grid, with its start corrected.

    Between neighbours F varies by at most `step`, by default ε.
    """
    size = grid_size(beta, v_max, epsilon, step)
    if size > MOST_GRID_POINTS:
        raise InputError(
            f"the paper's grid has about {size:.3g} points for β = {beta:.3g}, V_max = {v_max:.3g} "
            f"and ε = {epsilon:.3g}, more than {MOST_GRID_POINTS:,}; take grid 'geometric', or a "
            "larger "
            "epsilon."
        )
    return _paper_points(beta, v_max, epsilon, step or epsilon)


def grid_size(beta: float, v_max: float, epsilon: float, step: float | None = None) -> float:
    """How many points the paper's grid has: counted up to 10,000, and beyond by ∫ (V_max + β/H²) dH
    / step.
    """
    first = _ends(beta, v_max, epsilon)
    last = 2 * beta / epsilon
    width = step or epsilon
    if first >= last:
        return 1.0
    about = (v_max * (last - first) + beta / first - beta / last) / width
    if about > MOST_GRID_POINTS:
        return about
    return float(len(_paper_points(beta, v_max, epsilon, width)))


def geometric_grid(beta: float, v_max: float, epsilon: float, ratio: float = 2.0) -> list[float]:
    """H_k = ratioᵏ·√(β/V_max), up to the first that is at least 2β/ε."""
    if not 1 < ratio < math.inf:
        raise InputError(f"the ratio of the grid must exceed 1, got {ratio!r}.")
    first = _ends(beta, v_max, epsilon)
    last = 2 * beta / epsilon
    count = max(0, math.ceil(math.log(last / first) / math.log(ratio) - 1e-12)) + 1
    if count > MOST_GRID_POINTS:
        raise InputError(
            f"the grid has {count:,} points, more than {MOST_GRID_POINTS:,}; take a larger ratio."
        )
    return [first * ratio**k for k in range(count)]


def _ends(beta: float, v_max: float, epsilon: float) -> float:
    require_positive(beta=beta, V_max=v_max, epsilon=epsilon)
    return math.sqrt(beta / v_max)


def _paper_points(beta: float, v_max: float, epsilon: float, step: float) -> list[float]:
    points = [_ends(beta, v_max, epsilon)]
    while points[-1] < 2 * beta / epsilon:
        points.append(points[-1] + step / (v_max + beta / points[-1] ** 2))
    return points
