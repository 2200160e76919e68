"""What a start from the solution of the next larger H is worth to the subgradient methods.

Usage: python benchmarks/warm_starts.py [--upwards]

For three problems (`surrogate.py`): gaps above the minimum in percent along a grid of H, each
solved with 100,000 samples from a cold start and from the solution of the H before; from the
largest down, or with --upwards from the least up. All constraints are listed for the judgement
only.
"""

import argparse

import dualplan as dp
from dualplan.dual.solvers.linear_program import minimum
from surrogate import aggregated, criss_cross, four_queue

SAMPLES = 100_000
PROBLEMS = {
    "four-queue, buffers 9": (lambda: four_queue(9, 2), [20.0, 40.0, 80.0, 160.0, 320.0]),
    "criss-cross, buffers 15": (criss_cross, [20.0, 40.0, 80.0, 160.0, 320.0]),
    "Garnet in groups": (aggregated, [1.0, 2.0, 4.0, 8.0]),
}


def gaps(problem, rows, grid, solver, seed, warm):
    """Percent above the minimum at each H."""
    found, start = [], None
    for penalty in grid:
        solution = dp.dual.solve(
            problem, penalty, method=solver, samples=SAMPLES, seed=seed, start=start
        )
        start = solution.theta if warm else None
        least = minimum(problem, penalty, rows).parts.total
        found.append(100 * (problem.value(solution.theta, penalty, rows).total / least - 1))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--upwards", action="store_true")
    options = parser.parse_args()
    for name, (build, grid) in PROBLEMS.items():
        model, features = build()
        problem = dp.dual.DualALP(model, features, radius=10.0)
        rows, order = problem.enumerate(), grid if options.upwards else grid[::-1]
        for solver in ("paper", "adaptive"):
            for seed in (0, 1):
                cold, warm = (gaps(problem, rows, order, solver, seed, w) for w in (False, True))
                pairs = ", ".join(
                    f"H = {h:g}: {a:.2f} / {b:.2f}"
                    for h, a, b in zip(order, cold, warm, strict=True)
                )
                print(f"{name}, {solver}, seed {seed}: cold / warm {pairs}", flush=True)


if __name__ == "__main__":
    main()
