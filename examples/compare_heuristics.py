"""Compare the usual heuristics on the four-queue network, with bounded and with unbounded
buffers.
"""

from rich.console import Console
from rich.table import Table

import dualplan as dp

STEPS = 10_000_000


def row(model: dp.QueueingNetwork, name: str) -> list[str]:
    """One policy: its cost with the interval, the customers it loses, how the simulation ended."""
    result = dp.evaluate(model, model.policy(name), steps=STEPS)
    lost = result.measures.get("lost fraction")
    cost = (
        "∞"
        if result.status is dp.Status.UNSTABLE
        else f"{result.cost:.2f} ± {result.half_width:.2f}"
    )
    return [
        name,
        cost,
        "" if lost is None else f"{lost.value:.1%}",
        f"{result.seconds:.1f}",
        str(result.status),
    ]


def main() -> None:
    """Print one table a network."""
    console = Console()
    for title, buffers in (
        ("1,028,196 states: buffers 38, 25, 25, 38", (38, 25, 25, 38)),
        ("unbounded buffers", None),
    ):
        model = dp.load("four-queue", buffers=buffers)
        table = Table(
            title=f"Four-queue network, {title}: average number of customers, 95% intervals"
        )
        for column in ("policy", "cost", "customers lost", "seconds", "status"):
            table.add_column(column, justify="left" if column in ("policy", "status") else "right")
        for name in model.policies:
            table.add_row(*row(model, name))
        console.print(table)
    console.print(
        "A policy that loses customers at no cost looks cheaper than one that serves them: compare "
        "costs within the unbounded network, or give lost customers a penalty (--set penalty=...).",
        highlight=False,
    )


if __name__ == "__main__":
    main()
