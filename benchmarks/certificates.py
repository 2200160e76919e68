"""How wide a discounted certificate is, against the number of draws.

Usage: python benchmarks/certificates.py [--small] [--json]

The four-queue network (uniformized, blocking) with 10⁴ and with 1,028,196 states, γ = .99 from
empty. For each of four solutions: the exact cost of its policy (computed after the search), and the
interval that follows from V3 and V4 alone, with these drawn or summed over all constraints. Every
interval must contain the cost. H = κ = L/(1−γ) is the penalty from which the surrogate bounds the
cost of its own policy.
"""

import argparse
import json
import time

import dualplan as dp
from dualplan.dual.certificates import certify
from dualplan.dual.violations import measure_violations

GAMMA = 0.99
DRAWS = (10_000, 100_000, 1_000_000)


def solutions(model, top):
    """Problems with a solution each: mixtures that are nearly occupancies, and one that is not."""
    criterion = dp.Discounted(GAMMA)
    heuristics = [model.policy(name) for name in ("longer", "lbfs")]
    third = max(top // 3, 1)
    cuts = [[(0, third - 1), (third, 2 * third - 1), (2 * third, top)]] * model.box.dim
    rough = dp.dual.features.concat(
        dp.dual.features.boxes(model, cuts),
        dp.dual.features.bands(model, [(5 * k + 1, 5 * k + 5) for k in range(6)]),
    )
    exact = dp.dual.features.concat(
        dp.dual.features.occupancies(model, heuristics, criterion), rough
    )
    tiles = dp.dual.features.tiles(
        model,
        heuristics[1],
        [[(0, 0), (1, int(high))] for high in model.box.upper],
        criterion=criterion,
    )
    kappa = (model.loss_bounds[1] - model.loss_bounds[0]) / (1 - GAMMA)
    for name, features, penalty in (
        ("boxes, bands", rough, 100.0),
        ("tiles of LBFS", tiles, 300.0),
        ("tiles of LBFS", tiles, kappa),
        ("occupancies, boxes, bands", exact, 1000.0),
    ):
        problem = dp.dual.DualALP(model, features, criterion, radius=10_000.0)
        yield name, problem, dp.dual.solve(problem, penalty, method="sampled-lp", samples=40_000)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="10⁴ states only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    sizes = [(9, 9)] if options.small else [(9, 9), ((38, 25, 25, 38), 25)]
    for buffers, top in sizes:
        model = dp.load("four-queue", buffers=buffers)
        fallback = model.policy("lbfs")
        for name, problem, solution in solutions(model, top):
            policy = solution.policy(fallback)
            cost = dp.evaluate_exact(model, policy, problem.criterion).cost
            for draws in (*DRAWS, None):
                started = time.monotonic()
                rule = (
                    {"rule": "listed"} if draws is None else {"rule": "bernstein", "budget": draws}
                )
                found = measure_violations(problem, solution.theta, seed=1, **rule)
                entry = certify(problem, solution, fallback=fallback, violations=found).cost
                rows.append(
                    {
                        "states": model.box.count,
                        "features": name,
                        "H": solution.penalty[1],
                        "draws": draws,
                        "negative_upper": found.negative.upper,
                        "flow_lower": found.flow.lower,
                        "flow_upper": found.flow.upper,
                        "objective": entry.value,
                        "lower": entry.lower,
                        "upper": entry.upper,
                        "cost": cost,
                        "surrogate": solution.parts.total,
                        "contains": entry.lower <= cost <= entry.upper,
                        "label": entry.label,
                        "seconds": round(time.monotonic() - started, 1),
                    }
                )
                if not options.json:
                    print(rows[-1], flush=True)
    if options.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
