"""Exact planning on the paper's network with 1,028,196 states.

Seconds a sweep beside a loop written by hand for this network, and the four optima.
"""

import argparse
import json
import sys
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numba
import numpy as np

import dualplan as dp
from dualplan.exact.operators import Sweeper

ROWS = {
    "uniformized, block": ({"full": "block"}, 18.144),
    "uniformized, lose": ({"full": "lose"}, 17.938),
    "bernoulli, lose": ({"dynamics": "bernoulli", "full": "lose"}, 16.896),
    "bernoulli, lose, phantom": (
        {"dynamics": "bernoulli", "full": "lose", "phantom": True},
        16.753,
    ),
}


@numba.njit(nogil=True)
def by_hand(v, out, b1, b2, b3, b4):
    """One sweep of the uniformized network that blocks, every offset written out."""
    s3 = b4 + 1
    s2 = s3 * (b3 + 1)
    s1 = s2 * (b2 + 1)
    for x1 in range(b1 + 1):
        for x2 in range(b2 + 1):
            for x3 in range(b3 + 1):
                for x4 in range(b4 + 1):
                    i = x1 * s1 + x2 * s2 + x3 * s3 + x4
                    w = v[i]
                    t = x1 + x2 + x3 + x4 + w
                    if x1 < b1:
                        t += 0.08 * (v[i + s1] - w)
                    if x3 < b3:
                        t += 0.08 * (v[i + s3] - w)
                    one = 0.12 * (v[i - s1 + s2] - w) if x1 > 0 and x2 < b2 else 0.0
                    four = 0.28 * (v[i - 1] - w) if x4 > 0 else 0.0
                    two = 0.12 * (v[i - s2] - w) if x2 > 0 else 0.0
                    three = 0.28 * (v[i - s3 + 1] - w) if x3 > 0 and x4 < b4 else 0.0
                    out[i] = t + min(one, four) + min(two, three)


def seconds_per_sweep(function, repeats=20):
    function()
    started = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - started) / repeats


def solve(name, tol):
    """One optimum, and the memory that its arrays took."""
    options, optimum = ROWS[name]
    tracemalloc.start()
    row = {
        "name": name,
        "optimum": optimum,
        **dp.solve_exact(dp.load("four-queue", **options), tol=tol).to_json(),
    }
    return row | {"bytes_per_state": tracemalloc.get_traced_memory()[1] / row["states"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tol", type=float, default=1e-2)
    arguments = parser.parse_args()
    model = dp.load("four-queue")
    values, out = np.random.default_rng(0).normal(size=model.box.count), np.empty(model.box.count)
    single = Sweeper(model, 1)
    by_hand(values, out, 38, 25, 25, 38)
    error = float(np.abs(single.optimal(values).values - out).max())
    hand = seconds_per_sweep(lambda: by_hand(values, out, 38, 25, 25, 38))
    ours = seconds_per_sweep(lambda: single.optimal(values))
    result = {
        "by_hand": hand,
        "ours": ours,
        "ratio": ours / hand,
        "largest_difference": error,
        "rows": [],
    }
    if not arguments.json:
        print(
            f"seconds a sweep on one core: by hand {hand:.4f}, ours {ours:.4f}, ratio "
            f"{ours / hand:.2f}",
            flush=True,
        )
    for name in ROWS:
        with ProcessPoolExecutor(
            1, get_context("spawn")
        ) as fresh:  # so that the peak is the row's own
            row = fresh.submit(solve, name, arguments.tol).result()
        result["rows"].append(row)
        if not arguments.json:
            print(
                f"{name:<26} {row['lower']:.4f} – {row['upper']:.4f}  (elsewhere {row['optimum']}) "
                f" {row['status']}, {row['sweeps']} sweeps, {row['seconds']:.1f} s, "
                f"{row['bytes_per_state']:.0f} bytes a state",
                flush=True,
            )
    if arguments.json:
        json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
