"""The surrogate over given constraints as a linear program, solved through its dual by HiGHS.

With a_i = H_neg·w_i and b_i = H_flow·w_i, a[−r]₊ = max_{0<=z<=a} −z·r and b|f| = max_{|y|<=b} y·f, so

    min_θ  Lᵀθ + Σ a_i·[−R_iθ − μ_i]₊ + Σ b_i·|F_iθ − α_i| + Σ ρ_k·[G_kθ + g_k]₊
           subject to  1ᵀθ = M,  |θ_j| <= S
  = max    λM − αᵀy − μᵀz + gᵀv − S·1ᵀ(p + n)
           subject to  L − Rᵀz + Fᵀy + Gᵀv − λ1 = p − n,  0 <= z <= a,  |y| <= b,  0 <= v <= ρ,  p, n >= 0,

where L_j = ℓ_hᵀφ_j. The dual has as many rows as there are features, however many constraints; θ are its multipliers.
The multipliers y of the flow, divided by the weights, are a potential capped by H, on top of the one given. The cube
|θ_j| <= S contains the ball of Θ: if the solution lies in the ball it minimises c over Θ, otherwise `value` is a lower
bound on that minimum, and the status says so.

Over all constraints the result is exact up to the solver's tolerances; over a sample it is the minimiser of the sampled
surrogate, and `value` at it is biased downwards: judge it on fresh constraints.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from dualplan.errors import InputError
from dualplan.highs import minimise
from dualplan.solvers.contract import Solution
from dualplan.status import Status
from dualplan.surrogate import Constraints, DualALP, Penalty, penalties


def solve_listed(problem: DualALP, penalty: Penalty) -> Solution:
    """The minimum over all constraints of a model whose states can be enumerated."""
    return minimum(problem, penalty, problem.enumerate())


def solve_sampled(problem: DualALP, penalty: Penalty, *, samples: int = 20_000, seed: int = 0) -> Solution:
    """The minimiser over drawn constraints; `parts` are over as many fresh ones."""
    solution = minimum(problem, penalty, problem.draw(samples, seed=seed))
    fresh = problem.draw(samples, seed=seed, first=samples)
    parts = problem.value(solution.theta, penalty, fresh)
    return replace(solution, solver="sampled-lp", parts=parts, samples=samples, seed=seed)


def minimum(problem: DualALP, penalty: Penalty, constraints: Constraints) -> Solution:
    """Minimise the surrogate over given constraints."""
    started = time.monotonic()
    on_negative, on_flow = penalties(penalty)
    d, pairs, flows = len(problem.features), constraints.pairs, constraints.flows
    c = constraints
    a, b = on_negative * c.pair_weights * c.pair_prices, on_flow * c.flow_weights * c.flow_prices
    scale = max(1.0, float(np.abs(problem.slope).max()))  # of the rows, so that tolerances mean the same everywhere
    # columns: λ, z, y, v, p, n; each in units that make its limits 1 or so
    unit, prices = sp.eye_array(d, format="csc"), problem.limit_penalty
    matrix = sp.hstack([
        sp.csc_array(np.ones((d, 1))), (pairs.T * a) / scale, -(flows.T * b) / scale,
        -sp.csc_array(problem.limit_rows.T * prices) / scale, unit, -unit,
    ])  # fmt: skip
    costs = np.concatenate([
        [-problem.mass], c.base * a / scale, c.masses * b / scale, -problem.limit_base * prices / scale,
        np.full(2 * d, problem.radius),
    ])  # fmt: skip
    many, free = a.size + b.size + prices.size, np.full(2 * d, np.inf)
    low = np.concatenate([[-np.inf], np.zeros(a.size), -np.ones(b.size), np.zeros(prices.size + 2 * d)])
    high = np.concatenate([[np.inf], np.ones(many), free])
    right = problem.slope / scale
    found = minimise(costs, sp.csc_array(matrix), (right, right), (low, high), feasible=True)
    if not found.found:
        raise InputError(f"HiGHS stopped without a solution ({found.word}); try a penalty of another size.")
    theta = -found.y
    parts = problem.value(theta, penalty, constraints)
    inside = np.linalg.norm(theta) <= problem.radius * (1 + 1e-9)
    potential = found.x[1 + a.size : 1 + a.size + b.size] * on_flow * c.flow_prices
    value = problem.intercept - float(costs @ found.x) * scale
    status = Status.SOLVED if inside else Status.RADIUS
    return Solution(
        problem, "listed-lp", (on_negative, on_flow), theta, parts, status, 0, 0, time.monotonic() - started, value,
        potential,
    )  # fmt: skip
