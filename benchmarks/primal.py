"""Approximate linear programs on values: costs of greedy policies and lower bounds on the average
cost.

python benchmarks/primal.py            four-queue, buffers 9 (10⁴ states), uniformized, block
python benchmarks/primal.py soft       the same network: violations at a price, and constraints over
                                       several steps
python benchmarks/primal.py mixed      the same network: mixtures of constraints, and restarts
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import dualplan as dp
from dualplan import primal

DISCOUNTED = dp.Discounted(0.99)


def row(name: str, solve: Callable[[], Any], cost: bool, expected: str = "") -> None:
    """Solve, evaluate exactly and prove the bound; print one line."""
    started = time.perf_counter()
    solution = solve()
    if isinstance(solution, primal.Iterated):
        policy, solution = solution.policy, solution.best
    else:
        policy = solution.policy()
    seconds = time.perf_counter() - started
    figure = f"{dp.evaluate_exact(solution.model, policy).cost:8.4f}" if cost else " " * 8
    bound = (
        f"{solution.lower_bound.value:8.4f}"
        if isinstance(solution.criterion, dp.Average)
        else " " * 8
    )
    size = (
        f"{len(solution.basis):4d} functions, {solution.constraints:6,d} constraints, "
        f"{solution.rounds:3d} rounds"
    )
    print(
        f"{name:44s} cost {figure}  bound {bound}  {seconds:6.2f} s  {size}  {solution.status}  "
        f"{expected}",
        flush=True,
    )


def ten_thousand() -> None:
    """The rows of the reference table, and bounds with more functions."""
    model = dp.load("four-queue", buffers=9)
    law = primal.geometric(model, 0.9)
    primal.alp(model, primal.constant(model), DISCOUNTED).policy()(model.start)  # compiles
    mono = {d: primal.monomials(model, d) for d in range(2, 7)}
    edges = {d: primal.concat(mono[3], primal.boundaries(model, d)) for d in range(4)}
    row(
        "alp, quadratic",
        lambda: primal.alp(model, mono[2], DISCOUNTED, relevance=law),
        True,
        "8.7995",
    )
    row("alp, cubic", lambda: primal.alp(model, mono[3], DISCOUNTED, relevance=law), True, "8.2087")
    everything = {"relevance": law, "constraints": "all"}
    row(
        "alp, cubic, all constraints",
        lambda: primal.alp(model, mono[3], DISCOUNTED, **everything),
        True,
        "8.2087",
    )
    row("alp, quartic", lambda: primal.alp(model, mono[4], DISCOUNTED, relevance=law), True)
    row(
        "iterated alp, cubic",
        lambda: primal.iterated_alp(model, mono[3], DISCOUNTED, cost=dp.Average()),
        True,
    )
    row(
        "average, two stages, cubic", lambda: primal.average_alp(model, mono[3]), True, "bound 6.45"
    )
    row(
        "average, two stages, quartic",
        lambda: primal.average_alp(model, mono[4]),
        True,
        "bound 7.36",
    )
    row("iterated average, cubic", lambda: primal.iterated_average_alp(model, mono[3]), True)
    row("bound, quadratic", lambda: primal.average_bound(model, mono[2]), False, "3.39")
    for d, basis in edges.items():
        row(
            f"bound, cubic + empty, full × degree {d}",
            lambda b=basis: primal.average_bound(model, b),
            False,
            "7.35",
        )
    row("bound, degree 5", lambda: primal.average_bound(model, mono[5]), False)
    row("bound, degree 6", lambda: primal.average_bound(model, mono[6]), False)
    most = primal.concat(mono[6], primal.boundaries(model, 3))
    row(
        "bound, degree 6 + empty, full × degree 3",
        lambda: primal.average_bound(model, most),
        False,
        "at most 400",
    )


def soft() -> None:
    """Programs that allow violations, and those with constraints over several steps."""
    model = dp.load("four-queue", buffers=9)
    law, lbfs = primal.geometric(model, 0.9), model.policy("lbfs")
    there = primal.occupancy(model, lbfs)
    primal.alp(model, primal.constant(model), DISCOUNTED).policy()(model.start)  # compiles
    mono = {d: primal.monomials(model, d) for d in (2, 3, 4)}
    for d, steps in ((2, 2), (2, 3), (2, 10), (3, 2), (3, 3), (3, 10), (4, 3)):
        row(
            f"expanded alp, degree {d}, {steps} steps",
            lambda b=mono[d], t=steps: primal.expanded_alp(
                model, b, DISCOUNTED, relevance=law, steps=t
            ),
            True,
        )
    both = {"relevance": there, "weights": there}
    row(
        "relaxed alp, cubic, LBFS visits",
        lambda: primal.relaxed_alp(model, mono[3], DISCOUNTED, **both),
        True,
    )
    row(
        "smoothed alp, cubic, LBFS visits",
        lambda: primal.smoothed_alp(model, mono[3], DISCOUNTED, **both),
        True,
    )
    drawn = {"relevance": there, "sample": lbfs}
    row("the same, sampled", lambda: primal.smoothed_alp(model, mono[3], DISCOUNTED, **drawn), True)
    row(
        "relaxed alp, cubic",
        lambda: primal.relaxed_alp(model, mono[3], DISCOUNTED, relevance=law),
        True,
    )
    for budget in (0.001, 0.01):
        row(
            f"smoothed alp, cubic, budget {budget}",
            lambda t=budget: primal.smoothed_alp(
                model, mono[3], DISCOUNTED, relevance=law, budget=t
            ),
            True,
        )
    row(
        "smoothed alp, cubic",
        lambda: primal.smoothed_alp(model, mono[3], DISCOUNTED, relevance=law),
        True,
    )


def mixed() -> None:
    """Mixtures of constraints, and the average criterion with restarts; cubic monomials."""
    model = dp.load("four-queue", buffers=9)
    law, basis = primal.geometric(model, 0.9), primal.monomials(model, 3)
    primal.alp(model, primal.constant(model), DISCOUNTED).policy()(model.start)  # compiles
    for columns, pairs in ((4_000, 1), (4_000, 2), (4_000, 5), (20_000, 2)):
        mixtures = primal.Mixtures(columns, pairs)
        row(
            f"aggregated alp, {columns:,} mixtures of {pairs}",
            lambda w=mixtures: primal.aggregated_alp(
                model, basis, DISCOUNTED, weights=w, relevance=law
            ),
            True,
        )
    cuts = primal.boxes(model, [[(k, k + 1) for k in range(0, 10, 2)]] * 4)
    row(
        "aggregated alp, boxes of two",
        lambda: primal.aggregated_alp(model, basis, DISCOUNTED, weights=cuts, relevance=law),
        True,
    )
    for gamma in (0.9, 0.98, 0.99, 0.999):
        row(
            f"restarts, gamma {gamma}",
            lambda g=gamma: primal.perturbed_alp(model, basis, gamma=g, restarts=law),
            True,
        )


if __name__ == "__main__":
    {"mixed": mixed, "soft": soft}.get("".join(sys.argv[1:]), ten_thousand)()
