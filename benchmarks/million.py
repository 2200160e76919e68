"""The paper's network with 1,028,196 states and its features, by three solvers, policies evaluated
exactly.

For each number of features, criterion and penalty: the surrogate c, the violations, the exact cost
of the policy, and seconds to solve. Lines appear as they are found; about half an hour on two
cores.

    python benchmarks/million.py [366] [372] [average] [discounted] [paper] [adaptive] [sampled-lp]
"""

import sys
import time

import dualplan as dp

SETTINGS = {
    "average": (dp.Average(), (2.0, 100.0, 10_000.0)),
    "discounted": (dp.Discounted(0.99), (2.0, 100.0, 10_000.0)),
}
SOLVERS = ("paper", "adaptive", "sampled-lp")


def main() -> None:
    """Print the table, in Markdown."""
    counts = [count for count in (366, 372) if str(count) in sys.argv] or [366, 372]
    solvers = [solver for solver in SOLVERS if solver in sys.argv] or SOLVERS
    names = [name for name in SETTINGS if name in sys.argv] or list(SETTINGS)
    model = dp.load("four-queue", buffers=(38, 25, 25, 38))
    print("| features | criterion | H | solver | c | negative part | flow | cost | seconds |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for count in counts:
        for name in names:
            criterion, penalties = SETTINGS[name]
            features = dp.dual.features.paper(model, count, criterion)
            problem = dp.dual.DualALP(model, features, criterion)
            problem.draw(1_000)  # compiles
            for penalty in penalties:
                for solver in solvers:
                    started = time.monotonic()
                    found = dp.dual.solve(problem, penalty, method=solver, seed=0)
                    seconds, parts = time.monotonic() - started, found.parts
                    policy = found.policy(model.policy("lbfs"))
                    cost = dp.evaluate_exact(model, policy, criterion)
                    print(
                        f"| {len(features)} | {name} | {penalty:g} | {solver} | {parts.total:.5g} "
                        f"± {parts.total_error:.2g} | {parts.negative:.3g} | {parts.flow:.3g} | "
                        f"{cost.cost:.4f} | {seconds:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
