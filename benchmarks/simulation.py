"""Steps a second of the generic simulation loop, beside a loop written by hand for the four-queue
network.

Ratios within one run are what counts: machines differ and are noisy.
"""

import argparse
import json
import sys
import time

import numba
import numpy as np

import dualplan as dp


@numba.njit(nogil=True)
def by_hand(steps, seed):
    """The unbounded four-queue network under LONGER, one event a step, nothing counted but the
    loss.
    """
    np.random.seed(seed)
    x = np.zeros(4, np.int64)
    total = 0.0
    for _ in range(steps):
        total += x.sum()
        first = 0 if x[0] > x[3] or (x[0] == x[3] and np.random.random() < 0.5) else 3
        second = 1 if x[1] > x[2] or (x[1] == x[2] and np.random.random() < 0.5) else 2
        u = np.random.random()
        if u < 0.08:
            x[0] += 1
        elif u < 0.16:
            x[2] += 1
        elif u < 0.44:
            if u - 0.16 < (0.12 if first == 0 else 0.28) and x[first] > 0:
                x[first] -= 1
                if first == 0:
                    x[1] += 1
        elif u < 0.72 and u - 0.44 < (0.12 if second == 1 else 0.28) and x[second] > 0:
            x[second] -= 1
            if second == 2:
                x[3] += 1
    return total / steps


def seconds(function):
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--steps", type=int, default=8_000_000)
    steps = parser.parse_args().steps
    by_hand(10, 0)
    rows = [
        {
            "name": "by hand, one thread",
            "ns_per_step": 1e9 * seconds(lambda: by_hand(steps, 1)) / steps,
        }
    ]
    cases = {
        "four-queue": {"buffers": None},
        "four-queue per server": {"buffers": None, "decisions": "per-server"},
        "four-queue bernoulli": {"buffers": None, "dynamics": "bernoulli"},
        "six-class nonpreemptive": {"discipline": "nonpreemptive"},
        "tandem of 100": {},
        "lost-sales": {},
    }
    for label, options in cases.items():
        model = dp.load(label.split(" ")[0], **options)
        policy = model.policy(next(iter(model.policies)))
        dp.evaluate(model, policy, steps=10_000)
        for threads in (1, 2):
            work = steps // 10 if model.box.dim > 50 else steps
            taken = seconds(
                lambda p=policy, m=model, k=threads, n=work: dp.evaluate(m, p, steps=n, threads=k)
            )
            rows.append(
                {"name": f"{label}, {threads} thread(s)", "ns_per_step": 1e9 * taken / work}
            )
    base = rows[0]["ns_per_step"]
    for row in rows:
        row["ratio_to_hand"] = row["ns_per_step"] / base
    if parser.parse_args().json:
        json.dump({"rows": rows}, sys.stdout)
        return
    for row in rows:
        print(
            f"{row['name']:<36} {row['ns_per_step']:8.0f} ns a step   {row['ratio_to_hand']:6.1f} "
            "× by hand"
        )


if __name__ == "__main__":
    main()
