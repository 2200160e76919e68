"""Whom to admit if only a small part of the important customers may be turned away, and what that
costs.

    python examples/admission_with_limit.py

Five servers, room for twenty, two classes. Turning away class 1 costs nothing: the limit alone
protects it.
"""

import numpy as np
from rich.console import Console
from rich.table import Table

import dualplan as dp

# `dualplan evaluate admission -p admit-all` prints all measures of the model
MEASURE = "rejected fraction 1"
LIMITS = (0.2, 0.05, 0.01, 0.001)


def thresholds(model: dp.Model, one: int, two: int) -> dp.Policy:
    """Admit class k while fewer than its number of customers are in the system."""
    states = model.box.states(np.arange(model.box.count))
    most = np.array([0, one, two])[states[:, 1]]
    return dp.policies.TablePolicy(model, (states[:, 0] < most).astype(int), name=f"{one}, {two}")


def best_thresholds(model: dp.Model, limit: dp.Limit) -> dp.exact.ExactEvaluation:
    """The cheapest pair of thresholds that keeps the limit."""
    tried = [
        dp.evaluate_exact(model, thresholds(model, i, j)) for i in range(3, 16) for j in range(3, 8)
    ]
    return min((e for e in tried if e.measures[limit.name] <= limit.at_most), key=lambda e: e.cost)


def main() -> list[dp.exact.LinearSolution]:
    """One row a limit: the best thresholds, the optimum, its price, and where the optimal policy
    draws lots.
    """
    model = dp.load("admission", servers=5, room=20, arrivals=(2.0, 3.0), rejection=(0.0, 2.0))
    free = dp.solve_exact(model)
    rejected = dp.evaluate_exact(model, free.policy).measures[MEASURE]
    table = Table(title=f"Limits on the {MEASURE}: cost per unit of time, exactly")
    for column in (
        "at most",
        "best thresholds",
        "optimum",
        "lower bound",
        "price",
        "draws lots where n are there",
    ):
        table.add_column(column, justify="right")
    found = []
    for limit in [dp.Limit(MEASURE, at_most) for at_most in LIMITS]:
        best, rule = dp.solve_lp(model, limits=[limit]), best_thresholds(model, limit)
        admits = {(k, n): float(best.policy([n, k])[1]) for k in (1, 2) for n in range(21)}
        lots = ", ".join(
            f"class {k}, n = {n}: {p:.0%}" for (k, n), p in admits.items() if 1e-6 < p < 1 - 1e-6
        )
        price = f"{best.limits[0].multiplier:.2f}"
        table.add_row(
            f"{limit.at_most:.1%}",
            f"{rule.cost:.4f}",
            f"{best.upper:.4f}",
            f"{best.lower:.4f}",
            price,
            lots,
        )
        found.append(best)
    console = Console(highlight=False, width=110)
    console.print(table)
    console.print(
        f"Without a limit the optimum is {free.value:.4f}, and {rejected:.0%} of class 1 are "
        "turned away."
    )
    return found


if __name__ == "__main__":
    main()
