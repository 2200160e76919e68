"""How close the solvers of the surrogate come to its minimum, on models whose constraints can all
be listed.

First table: min c over all constraints by (d), the best single feature, and how far (c) and (b) end
above min c by default settings, in percent, a figure for each seed; c is over all constraints.
Second table: the paper's method (a) with the theorem's step S/(G√T), its error against T and the
exponent fitted to it, and a problem on which the corrected bound says something.

Features are cuts of the states or of a heuristic's occupancy, so that no single one is nearly
stationary and a minimum must combine many. H lies between where the minimum runs out of the ball
and where the penalty is exact; the radius only has to contain the minimiser.
"""

import argparse
import json
import sys
import time

import numpy as np

import dualplan as dp
from dualplan.dual import features as families
from dualplan.dual.solvers import (
    solve_adaptive,
    solve_listed,
    solve_sampled,
    solve_subgradient,
    theory,
)


def garnet():
    """Every pair its own feature: the plain dual program, with d = 400."""
    model = dp.load("garnet")
    return model, families.table(model, np.eye(400))


def aggregated():
    """Garnet, states in twenty groups: the flow cannot vanish, so that c stays far from the
    optimum.
    """
    model = dp.load("garnet")
    return model, families.boxes(model, [[(k, k + 4) for k in range(0, 100, 5)]])


def four_queue(buffers, low):
    """Tiles of LBFS's and LONGER's occupancies, short and long queues, times the choice of
    either.
    """
    model = dp.load("four-queue", buffers=buffers)
    both = [model.policy("lbfs"), model.policy("longer")]
    cuts = [[(0, low), (low + 1, buffers)]] * 4
    return model, families.concat(*(families.tiles(model, p, cuts, choices=both) for p in both))


def criss_cross():
    """Tiles of the uniform policy's occupancy, times the actions; buffers of 15."""
    model = dp.load("criss-cross", load="heavy", buffers=15)
    return model, families.tiles(model, model.policy("random"), [[(0, 0), (1, 4), (5, 15)]] * 3)


def lost_sales():
    """Tiles of the base-stock rule's occupancy, times the orders.

    Small demand, since rows have many predecessors.
    """
    model = dp.load("lost-sales", lead_time=3, demand=1.0, capacity=5, max_order=3)
    return model, families.tiles(
        model, model.policy("base-stock"), [[(0, 0), (1, 1), (2, 5)], *[[(0, 0), (1, 3)]] * 2]
    )


# name: features, H and radius of the average criterion, γ, H and radius of the discounted one
SETTINGS = {
    "garnet": (garnet, 1.0, 10.0, 0.9, 1.0, 100.0),
    "garnet, exact H": (garnet, 5.0, 10.0, 0.9, 5.0, 100.0),
    "garnet, groups": (aggregated, 1.0, 10.0, 0.9, 3.0, 100.0),
    "four-queue, 3": (lambda: four_queue(3, 0), 20.0, 100.0, 0.95, 50.0, 200.0),
    "four-queue, 9": (lambda: four_queue(9, 1), 40.0, 100.0, 0.98, 100.0, 500.0),
    "criss-cross": (criss_cross, 20.0, 10.0, 0.98, 100.0, 500.0),
    "lost-sales": (lost_sales, 3.0, 10.0, 0.95, 10.0, 200.0),
}


def compare(name, seeds):
    """Both criteria of a setting, a row each."""
    make, *numbers = SETTINGS[name]
    model, features = make()
    cases = (dp.Average(), *numbers[:2]), (dp.Discounted(numbers[2]), *numbers[3:])
    for criterion, penalty, radius in cases:
        problem = dp.dual.DualALP(model, features, criterion, radius=radius)
        listed, best = problem.enumerate(), solve_listed(problem, penalty)
        row = {
            "model": name,
            "criterion": "average" if criterion == dp.Average() else f"γ = {criterion.gamma}",
            "features": len(features),
            "H": penalty,
            "radius": radius,
            "status": str(best.status),
            "minimum": best.value,
            "single": min(
                problem.value(problem.mass * e, penalty, listed).total
                for e in np.eye(len(features))
            ),
        }
        for key, solver in (("sampled", solve_sampled), ("adaptive", solve_adaptive)):
            started = time.perf_counter()
            found = [solver(problem, penalty, seed=seed) for seed in range(seeds)]
            row[f"{key}_seconds"] = (time.perf_counter() - started) / seeds
            totals = [problem.value(f.theta, penalty, listed).total for f in found]
            row[key] = [100 * (total / best.value - 1) for total in totals]
        yield row


def line(row):
    """A row in print."""
    gaps = [" ".join(f"{gap:6.3f}" for gap in row[key]) for key in ("sampled", "adaptive")]
    return (
        f"{row['model']:<16} {row['criterion']:<9} {row['features']:>4} {row['H']:>6g} "
        f"{row['radius']:>6g} {row['status']:<7} {row['minimum']:>9.4f} {row['single']:>10.4f}   "
        f"{gaps[0]}  {row['sampled_seconds']:>5.1f} s   {gaps[1]}  {row['adaptive_seconds']:>5.1f} "
        "s"
    )


def errors(problem, penalty, steps, seeds):
    """c of the paper's method minus min c, for each seed, with the theorem's step size; min c.

    And G.
    """
    gradient = theory(problem, penalty, epsilon=1.0, delta=0.5).gradient
    size, listed, best = (
        problem.radius / (gradient * steps**0.5),
        problem.enumerate(),
        solve_listed(problem, penalty),
    )
    found = [
        solve_subgradient(problem, penalty, iterations=steps, step_size=size, seed=seed)
        for seed in range(seeds)
    ]
    return (
        [problem.value(f.theta, penalty, listed).total - best.value for f in found],
        best.value,
        gradient,
    )


def two_states():
    """Losses of 9 and 11 and two features: c is large beside G·S, so that the bound is of use."""
    model = dp.TabularModel([np.array([[0.5, 0.5], [0.5, 0.5]])], [[9.0], [11.0]])
    features = families.table(model, np.array([[1.0, 0.2], [0.0, 0.8]]))
    return dp.dual.DualALP(model, features, radius=1.0)


def rate():
    """Table (a): errors against T on Garnet in groups, a mean over five seeds, and the exponent."""
    model, features = aggregated()
    problem = dp.dual.DualALP(model, features, radius=0.5)
    steps = [1_000, 10_000, 100_000, 1_000_000]
    means = [float(np.mean(errors(problem, 1.0, t, 5)[0])) for t in steps]
    slope = float(np.polyfit(np.log(steps), np.log(means), 1)[0])
    return {
        "steps": steps,
        "errors": means,
        "minimum": solve_listed(problem, 1.0).value,
        "exponent": slope,
    }


def bound(penalty=3.0, steps=4_000_000, delta=0.05):
    """The corrected bound beside the worst error of five seeds."""
    problem = two_states()
    worst, best, gradient = errors(problem, penalty, steps, 5)
    limit = problem.radius * gradient / steps**0.5 * (1 + 4 * (2 * np.log(1 / delta)) ** 0.5)
    return {
        "steps": steps,
        "minimum": best,
        "G": gradient,
        "delta": delta,
        "bound": limit,
        "worst": max(worst),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--only", nargs="*", choices=[*SETTINGS, "paper"], default=[*SETTINGS, "paper"]
    )
    arguments = parser.parse_args()
    result = {"rows": [], "rate": None, "bound": None}
    for name in arguments.only:
        if name == "paper":
            result |= {"rate": rate(), "bound": bound()}
            break
        for row in compare(name, arguments.seeds):
            result["rows"].append(row)
            if not arguments.json:
                print(line(row), flush=True)
    if arguments.json:
        json.dump(result, sys.stdout)
    elif result["rate"]:
        print(result["rate"], result["bound"], sep="\n")


if __name__ == "__main__":
    main()
