"""Banijamali, Abbasi-Yadkori, Ghavamzadeh & Vlassis (2019), *Optimizing over a restricted policy class in MDPs*.

Five randomised policies on the four-queue network with 10⁴ states, and a signed mixture of their occupancies found by
stochastic subgradients. H is the one of a list whose policy costs least.
"""

from __future__ import annotations

from dualplan import features as families
from dualplan.exact.policy import evaluate_exact
from dualplan.models import zoo
from dualplan.policies.network import soft_longer
from dualplan.reproduce.rows import Progress, Row
from dualplan.solvers.subgradient import solve_adaptive
from dualplan.surrogate import DualALP

MIXED = {(0.9, 0.9): 16.2950, (0.9, 0.7): 17.3926, (0.8, 0.8): 15.1535, (0.7, 0.9): 13.6525, (0.7, 0.7): 14.3266}
MIXTURE = 13.00
PENALTIES = (5.0, 7.0, 10.0, 14.0, 20.0, 40.0)
SAMPLES = 400_000


def dual_mixing(*, seed: int = 0, progress: Progress | None = None, rows: list[Row] | None = None) -> list[Row]:
    """The five base policies, and their signed mixture by stochastic subgradients; `rows` holds them as they come."""
    model = zoo.four_queue(buffers=9)
    policies = [soft_longer(model, p) for p in MIXED]
    rows = [] if rows is None else rows
    for (p, published), policy in zip(MIXED.items(), policies, strict=True):
        result = evaluate_exact(model, policy)
        rows.append(Row(f"soft longer {p}", result.cost, published, result.lower, result.upper, "exact"))
    problem = DualALP(model, families.occupancies(model, policies))
    found = []
    for k, penalty in enumerate(PENALTIES):
        if progress is not None:
            progress(k, len(PENALTIES), f"H = {penalty:g}")
        solution = solve_adaptive(problem, penalty, samples=SAMPLES, seed=seed)
        found.append((evaluate_exact(model, solution.policy()), penalty, solution.theta))
    best, penalty, theta = min(found, key=lambda one: one[0].cost)
    note = f"H = {penalty:g}, θ = ({', '.join(f'{w:.2f}' for w in theta)}); cost exact"
    rows.append(Row("dual mixture (subgradient)", best.cost, MIXTURE, best.lower, best.upper, note))
    return rows
