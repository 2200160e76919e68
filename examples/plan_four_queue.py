"""The four-queue network with 10⁴ states: heuristics, the dual program, the best found, and the
optimum beside them.
"""

from rich.console import Console
from rich.table import Table

import dualplan as dp


def main() -> None:
    """Print one table; all costs are exact, and the optimum is computed after the search."""
    console = Console()
    model = dp.load("four-queue", buffers=9)
    rows = [(name, dp.evaluate_exact(model, model.policy(name))) for name in model.policies]
    console.print(
        "the dual program (dualplan solve four-queue --set buffers=9 --features standard)",
        highlight=False,
    )
    planned = dp.search.run_plan(dp.search.Plan("four-queue", {"buffers": 9}))
    rows.append(
        (
            f"dual, H = {planned.best.solution.penalty[1]:g}",
            dp.evaluate_exact(model, planned.best.policy),
        )
    )
    console.print(
        "the best policy in 20 s (dualplan solve four-queue --set buffers=9 --time 20s)",
        highlight=False,
    )
    found = dp.solve(model, time="20s")
    rows.append((f"best found: {found.source}", dp.evaluate_exact(model, found.policy)))
    optimum = dp.solve_exact(model)
    rows.append(("optimum", dp.evaluate_exact(model, optimum.policy)))
    table = Table(title="Four-queue network, buffers 9: average number of customers, exactly")
    for column in ("policy", "cost", "customers lost"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for name, result in rows:
        table.add_row(name, f"{result.cost:.4f}", f"{result.measures['lost fraction']:.1%}")
    console.print(table)
    console.print(
        f"no policy costs less than {found.bound.value:.4f} ({found.bound.kind}, by "
        f"{found.bound.functions}): the best found is within {found.gap:.2%} of the optimum.",
        highlight=False,
    )
    console.print(
        f"optimum between {optimum.lower:.4f} and {optimum.upper:.4f}; the network rewards turning "
        "customers away.",
        highlight=False,
    )


if __name__ == "__main__":
    main()
