"""Stock with lost sales: what the usual rules cost above the optimum, as the lead time grows.

An order arrives after some periods; demand that finds no stock is lost. What is under way is part
of the state.
"""

import numpy as np
from rich.console import Console
from rich.table import Table

import dualplan as dp

LEAD_TIMES = (2, 3)


def up_to(model: dp.Model, level: int, cap: int) -> dp.Policy:
    """Order up to a level, counted over stock and pipeline, but at most a number at once.

    As a table of states.
    """
    position = model.box.states(np.arange(model.box.count)).sum(axis=1)
    orders = np.clip(np.minimum(level, model.capacity) - position, 0, min(cap, model.max_order))
    return dp.policies.TablePolicy(model, orders, name=f"up to {level}, at most {cap}")


def cheapest(model: dp.Model, caps: range) -> tuple[str, float]:
    """The best level and cap by their exact costs: no rule of the kind is cheaper."""
    rules = [up_to(model, level, cap) for level in range(1, model.capacity + 1) for cap in caps]
    costs = [dp.evaluate_exact(model, rule).cost for rule in rules]
    return rules[int(np.argmin(costs))].name, min(costs)


def main() -> list[dict[str, float]]:
    """One row a lead time."""
    table = Table(title="Lost sales, mean demand 2, holding 1, penalty 4: cost a period, exactly")
    for column in (
        "lead time",
        "states",
        "best base-stock",
        "best capped base-stock",
        "optimum",
        "rules above it",
    ):
        table.add_column(column, justify="right")
    rows = []
    for lead_time in LEAD_TIMES:
        model = dp.load("lost-sales", lead_time=lead_time, demand=2.0, penalty=4.0, max_order=5)
        plain = cheapest(model, range(model.max_order, model.max_order + 1))
        capped = cheapest(model, range(1, 4))
        optimum = dp.solve_exact(model, tol=1e-6).value
        above = [f"{cost / optimum - 1:.2%}" for _, cost in (plain, capped)]
        words = [f"{cost:.4f} ({name})" for name, cost in (plain, capped)]
        table.add_row(
            str(lead_time), f"{model.box.count:,}", *words, f"{optimum:.4f}", ", ".join(above)
        )
        rows.append({"base-stock": plain[1], "capped": capped[1], "optimum": optimum})
    Console(highlight=False, width=130).print(table)
    return rows


if __name__ == "__main__":
    main()
