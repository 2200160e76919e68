"""How many draws an interval for V takes: by Hoeffding, by the variance, and by the paper's formula
before θ is known.

For each problem and each wanted half-width r (of V, and as a share of R, the largest term), at
confidence 0.95: n of Hoeffding's rule, n of the rule that looks at the variance and where it
stopped, their ratio, and n of the paper's range S·(C1 + C2) (`theorems.requirements` with H = 1). V
is an estimate from 200,000 draws.
"""

import argparse
import json
import sys
import time

import numpy as np

import dualplan as dp
from dualplan.dual import DualALP
from dualplan.dual import features as families
from dualplan.dual.solvers import solve_adaptive, solve_listed
from dualplan.dual.theorems import requirements
from dualplan.dual.violations import collected, hoeffding_size, measure_violations

CONFIDENCE = 0.95
WIDTHS = (0.1, 0.03, 0.01, 0.003, 0.001)  # r/R
BUDGET = 10_000_000


def garnet(criterion):
    """States in twenty groups: the flow cannot vanish."""
    model = dp.load("garnet")
    problem = DualALP(
        model, families.boxes(model, [[(k, k + 4) for k in range(0, 100, 5)]]), criterion
    )
    return problem, solve_listed(problem, 5.0 * problem.total).theta


def switch(criterion):
    """Tiles of LBFS's and LONGER's occupancies, 10⁴ states; nearly stationary at a large H."""
    model = dp.load("four-queue", buffers=9)
    both = [model.policy("lbfs"), model.policy("longer")]
    parts = (
        families.tiles(model, p, [[(0, 2), (3, 9)]] * 4, criterion=criterion, choices=both)
        for p in both
    )
    problem = DualALP(model, families.concat(*parts), criterion)
    return problem, solve_listed(problem, 100.0).theta


def bands(criterion):
    """Bands of the paper's kind, 10⁶ states, after a short run of the adaptive method."""
    model = dp.load("four-queue", buffers=31)
    problem = DualALP(model, families.bands(model, families.PAPER_BANDS), criterion)
    return problem, solve_adaptive(problem, 60.0, samples=200_000).theta


PROBLEMS = {"garnet": garnet, "four-queue, tiles": switch, "four-queue, bands": bands}


def rows(name, criterion):
    """One line for each width."""
    problem, theta = PROBLEMS[name](criterion)
    _, weights = collected(problem, theta)
    whole = measure_violations(problem, theta, rule="bernstein", samples=200_000, seed=1)
    for width in WIDTHS:
        within, started = width * whole.range, time.monotonic()
        found = measure_violations(
            problem, theta, rule="bernstein", within=within, samples=BUDGET, seed=2
        )
        asked = hoeffding_size(whole.range, within, 1 - CONFIDENCE)
        theory = requirements(problem, 1.0, epsilon=4 * within, delta=2 * (1 - CONFIDENCE)).draws
        yield {
            "problem": name,
            "criterion": type(criterion).__name__.lower(),
            "V": whole.total.value,
            "R": whole.range,
            "weights": np.abs(weights).tolist(),
            "width": width,
            "within": within,
            "hoeffding": int(np.ceil(asked)),
            "bernstein": found.samples,
            "ratio": asked / found.samples,
            "paper": theory,
            "status": str(found.status),
            "seconds": round(time.monotonic() - started, 2),
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PROBLEMS, help="one problem")
    parser.add_argument("--json", action="store_true", help="one object for each line")
    args = parser.parse_args()
    if not args.json:
        columns = (
            "problem",
            "criterion",
            "V",
            "R",
            "r/R",
            "r",
            "Hoeffding n",
            "Bernstein n",
            "ratio",
            "paper n",
            "s",
        )
        print("| " + " | ".join(columns) + " |")
        print("|---" * len(columns) + "|")
    for name in [args.only] if args.only else PROBLEMS:
        for criterion in (dp.Average(), dp.Discounted(0.95)):
            for row in rows(name, criterion):
                if args.json:
                    print(json.dumps(row))
                else:
                    print(
                        f"| {name} | {row['criterion']} | {row['V']:.3g} | {row['R']:.3g} | "
                        f"{row['width']:g} | {row['within']:.3g} | {row['hoeffding']:,} | "
                        f"{row['bernstein']:,} | {row['ratio']:.2f} | {row['paper']:.2e} | "
                        f"{row['seconds']} |"
                    )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
