"""The four-queue network with 10⁴ states: heuristics, policies of linear programs, and the optimum beside them."""

from rich.console import Console
from rich.table import Table

import dualplan as dp


def main() -> None:
    """Print one table; all costs are exact, and the optimum is computed after the search."""
    console = Console()
    model = dp.load("four-queue", buffers=9)
    rows = [(name, dp.evaluate_exact(model, model.policy(name))) for name in model.policies]
    console.print("searching the dual program (dualplan solve four-queue --set buffers=9)", highlight=False)
    planned = dp.run_plan(dp.Plan("four-queue", {"buffers": 9}))
    rows.append((f"dual, H = {planned.best.solution.penalty[1]:g}", dp.evaluate_exact(model, planned.best.policy)))
    values = dp.primal.alp(model, dp.primal.monomials(model, 3), dp.Discounted(0.99))
    rows.append(("greedy, cubic values", dp.evaluate_exact(model, values.policy())))
    optimum = dp.solve_exact(model)
    rows.append(("optimum", dp.evaluate_exact(model, optimum.policy)))
    table = Table(title="Four-queue network, buffers 9: average number of customers, exactly")
    for column in ("policy", "cost", "customers lost"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for name, result in rows:
        table.add_row(name, f"{result.cost:.4f}", f"{result.measures['lost fraction']:.1%}")
    console.print(table)
    console.print(
        f"the dual plan's own lower bound: no policy costs less than {planned.bound.value:.4f} ({planned.bound.kind}); "
        f"the gap is at most {planned.gap:.1%} of its cost.",
        highlight=False,
    )
    console.print(
        f"optimum between {optimum.lower:.4f} and {optimum.upper:.4f}; the network rewards turning customers away.",
        highlight=False,
    )


if __name__ == "__main__":
    main()
