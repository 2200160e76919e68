"""Policies from lattices: nodes, seconds, and what the policy costs, on networks and inventories.

python benchmarks/lattice.py                    all of them
python benchmarks/lattice.py four-queue-9 ...   some of them; --steps N: of a simulation; --json:
                                                one object a line

Costs are exact up to `EXACT` states, otherwise simulated with a 95% interval.
"""

import argparse
import json
import time
from typing import Any

import dualplan as dp

EXACT = 20_000
PAPER = {"dynamics": "bernoulli", "full": "lose", "phantom": True}
CASES: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "four-queue-9": ("four-queue", {"buffers": 9}, 2_500, "optimum 8.1053"),
    "four-queue": ("four-queue", {}, 40_000, "optimum 18.144"),
    "four-queue-paper": ("four-queue", PAPER, 40_000, "optimum 16.753"),
    "four-queue-unbounded": ("four-queue", {"buffers": None}, 40_000, "best known about 31.6"),
    "criss-cross": ("criss-cross", {}, 20_000, "optimum .671"),
    "criss-cross-balanced": ("criss-cross", {"balanced": True}, 20_000, "optimum .843"),
    "six-class": ("six-class", {}, 50_000, "lifted truncation 13.88"),
    "lost-sales": ("lost-sales", {}, 20_000, "optimum 4.7285"),
    "eight-queue": ("eight-queue", {}, 65_536, "heuristics 11 to 12"),
}


def measured(case: str, steps: int) -> dict[str, Any]:
    name, options, nodes, reference = CASES[case]
    model = dp.load(name, **options)
    started = time.perf_counter()
    solution = dp.search.lattice_plan(model, nodes=nodes)
    seconds = time.perf_counter() - started
    policy, count = solution.policy(), model.box.count
    exact = count is not None and count <= EXACT
    found = dp.evaluate_exact(model, policy) if exact else dp.evaluate(model, policy, steps=steps)
    return {
        "case": case,
        "nodes": solution.lattice.nodes,
        "solve_seconds": round(solution.seconds, 2),
        "plan_seconds": round(seconds, 2),
        "cost": found.cost,
        "lower": found.lower,
        "upper": found.upper,
        "cost_on_lattice": solution.cost,
        "status": str(found.status),
        "reference": reference,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for case in options.cases:
        row = measured(case, options.steps)
        print(json.dumps(row) if options.json else line(row), flush=True)


def line(row: dict[str, Any]) -> str:
    interval = f"{row['cost']:.4f} [{row['lower']:.4f}, {row['upper']:.4f}]"
    times = f"{row['solve_seconds']:.2f} s (plan {row['plan_seconds']:.1f} s)"
    return (
        f"{row['case']:22s} {row['nodes']:7,d} nodes  {times}  cost {interval}  {row['reference']}"
    )


if __name__ == "__main__":
    main()
