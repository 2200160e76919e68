"""The surrogate over given constraints as a linear program, solved through its dual by HiGHS.

With a_i = H_neg·w_i and b_i = H_flow·w_i, a[−r]₊ = max_{0<=z<=a} −z·r and b|f| = max_{|y|<=b} y·f,
so

    min_θ  Lᵀθ + Σ a_i·[−R_iθ − μ_i]₊ + Σ b_i·|F_iθ − α_i| + Σ ρ_k·[G_kθ + g_k]₊
           subject to  1ᵀθ = M,  |θ_j| <= S
  = max    λM − αᵀy − μᵀz + gᵀv − S·1ᵀ(p + n)
           subject to  L − Rᵀz + Fᵀy + Gᵀv − λ1 = p − n,  0 <= z <= a,  |y| <= b,  0 <= v <= ρ,  p,
                       n >= 0,

where L_j = ℓ_hᵀφ_j. The dual has as many rows as there are features, however many constraints; θ
are its multipliers. The multipliers y of the flow, divided by the weights, are a potential capped
by H, on top of the one given. The cube |θ_j| <= S contains the ball of Θ: if the solution lies in
the ball it minimises c over Θ, otherwise `value` is a lower bound on that minimum, and the status
says so.

Constraints do not depend on H and are kept for the next penalty. A basis is not: on the network of
10⁴ states, with 362 features, simplex from the previous penalty's basis took 3 to 13 times as long
as interior points from nothing.

Over all constraints the result is exact up to the solver's tolerances. Over a sample it is the
minimiser of the sampled surrogate, whose minimum v is too low on average. Two samples of n
constraints each, with surrogates c_1 and c_2 and minimisers θ_1 and θ_2, tell by how much:

    g = ½·(c_2(θ_1) − c_2(θ_2)) + ½·(c_1(θ_2) − c_1(θ_1)) >= 0,        E g = E c(θ_1) − E v >= E
        c(θ_1) − min c.

The result is (θ_1 + θ_2)/2, at which c is at most the mean of c(θ_1) and c(θ_2). (The best of the
three on a third sample was tried: its noise chose a worse one as often as not.) While g exceeds 1%
of the value, and both minimisers lie in the ball, both samples are made four times as large, twice
at most. This is a rule to stop by and no guarantee: g is large enough on average only, and small
where two minimisers happen to agree on a wrong point.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from dualplan.core.checks import require_counts, require_seed, require_whole
from dualplan.core.errors import InputError
from dualplan.core.lp import minimise
from dualplan.core.status import Status
from dualplan.core.types import Floats
from dualplan.dual.problem import Constraints, DualALP, Penalty, Value, penalties
from dualplan.dual.solvers.contract import Multipliers, Solution

SAMPLED_GAP_TOLERANCE = 0.01  # of the value, the gap that a sampled program may have
LEAST_JUDGING_ROWS = 20_000  # rows that judge the result, at least
NEGLIGIBLE_SHARE = 1e-6  # of the largest weight, and of the value
MOST_ENLARGEMENTS = 2  # times that samples may be made four times as large


def solve_listed(problem: DualALP, penalty: Penalty) -> Solution:
    """The minimum over all constraints of a model whose states can be enumerated."""
    return minimum(problem, penalty, problem.kept())


def solve_sampled(
    problem: DualALP,
    penalty: Penalty,
    *,
    samples: int = 20_000,
    seed: int = 0,
    tol: float = SAMPLED_GAP_TOLERANCE,
    enlarge: int = MOST_ENLARGEMENTS,
) -> Solution:
    """The mean of two minimisers over drawn constraints, `samples` for each; `parts` are on fresh
    ones.

    The samples are made four times as large, `enlarge` times at most, until the gap g is within the
    tolerance.
    """
    require_counts(samples=samples)
    require_seed(seed)
    require_whole("enlarge", enlarge)
    started = time.monotonic()
    for k in range(enlarge + 1):
        count = samples * 4**k
        halves = [problem.kept(count, seed=seed, first=i * count) for i in range(2)]
        one, two = (minimum(problem, penalty, half) for half in halves)
        gap = _gap(problem, penalty, (one, two), (halves[0], halves[1]))
        if one.status is Status.SOLVED:
            status = two.status
        else:
            status = one.status
        if status is not Status.SOLVED or gap <= tol * abs(one.parts.total + two.parts.total) / 2:
            break
    theta = (one.theta + two.theta) / 2
    parts = problem.value(
        theta, penalty, problem.kept(max(count, LEAST_JUDGING_ROWS), seed=seed, first=2 * count)
    )
    values = [s.value for s in (one, two) if s.value is not None]
    potentials = [s.potential for s in (one, two) if s.potential is not None]
    return replace(
        one,
        solver="sampled-lp",
        theta=theta,
        parts=parts,
        status=status,
        samples=2 * count,
        seed=seed,
        seconds=time.monotonic() - started,
        value=float(np.mean(values)),
        potential=np.concatenate(potentials),
        states=np.concatenate([half.states for half in halves if half.states is not None]),
        multipliers=None,
    )


def _gap(
    problem: DualALP,
    penalty: Penalty,
    found: tuple[Solution, Solution],
    samples: tuple[Constraints, Constraints],
) -> float:
    """g: how much better each sample's minimiser is on its own sample than the other's, on
    average.
    """
    across = [problem.value(found[1 - i].theta, penalty, samples[i]).total for i in range(2)]
    return (sum(across) - sum(s.parts.total for s in found)) / 2


def minimum(problem: DualALP, penalty: Penalty, constraints: Constraints) -> Solution:
    """Minimise the surrogate over given constraints."""
    started = time.monotonic()
    on_negative, on_flow = penalties(penalty)
    d = len(problem.features)
    pairs = constraints.pairs
    flows = constraints.flows
    c = constraints
    a = on_negative * c.pair_weights * c.pair_prices
    b = on_flow * c.flow_weights * c.flow_prices
    scale = _scale(problem)  # of the rows, so that tolerances mean the same everywhere
    # columns: λ, z, y, v, p, n; each in units that make its limits 1 or so
    unit = sp.eye_array(d, format="csc")
    prices = problem.limit_penalty
    matrix = sp.hstack(
        [
            sp.csc_array(np.ones((d, 1))),
            (pairs.T * a) / scale,
            -(flows.T * b) / scale,
            -sp.csc_array(problem.limit_rows.T * prices) / scale,
            unit,
            -unit,
        ]
    )
    costs = np.concatenate(
        [
            [-problem.mass],
            c.base * a / scale,
            c.masses * b / scale,
            -problem.limit_base * prices / scale,
            np.full(2 * d, problem.radius),
        ]
    )
    many = a.size + b.size + prices.size
    free = np.full(2 * d, np.inf)
    low = np.concatenate(
        [[-np.inf], np.zeros(a.size), -np.ones(b.size), np.zeros(prices.size + 2 * d)]
    )
    high = np.concatenate([[np.inf], np.ones(many), free])
    right = problem.slope / scale
    found = minimise(costs, sp.csc_array(matrix), (right, right), (low, high), feasible=True)
    if not found.found:
        raise InputError(
            f"HiGHS stopped without a solution ({found.word}); try a penalty of another size."
        )
    theta, parts = _cleaned(problem, penalty, constraints, -found.y)
    inside = np.linalg.norm(theta) <= problem.radius * (1 + 1e-9)
    z, y, v = np.split(found.x[1 : 1 + many], [a.size, a.size + b.size])
    potential = y * on_flow * c.flow_prices
    value = problem.intercept - float(costs @ found.x) * scale
    if inside:
        status = Status.SOLVED
    else:
        status = Status.RADIUS
    return Solution(
        problem,
        "listed-lp",
        (on_negative, on_flow),
        theta,
        parts,
        status,
        0,
        0,
        time.monotonic() - started,
        value,
        potential,
        c.states,
        Multipliers(float(found.x[0]) * scale, z * a, y * b, v * prices),
    )


def _cleaned(
    problem: DualALP, penalty: Penalty, constraints: Constraints, theta: Floats
) -> tuple[Floats, Value]:
    """The weights without those that only the solver's tolerance made, unless that costs more than
    the tolerance.

    A weight of 10⁻¹⁰ where no other feature is would decide what the policy does there.
    """
    parts = problem.value(theta, penalty, constraints)
    large = np.abs(theta) > NEGLIGIBLE_SHARE * np.abs(theta).max()
    kept = np.where(
        large, theta + (problem.mass - theta[large].sum()) / np.count_nonzero(large), 0.0
    )
    cleaned = problem.value(kept, penalty, constraints)
    allowance = NEGLIGIBLE_SHARE * max(_scale(problem), abs(parts.total))
    if cleaned.total <= parts.total + allowance:
        return (kept, cleaned)
    return (theta, parts)


def _scale(problem: DualALP) -> float:
    """The largest loss of a feature, which is the unit of the objective."""
    return float(np.abs(problem.slope).max()) or 1.0
