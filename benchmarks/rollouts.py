"""Rounds of improvement by coupled rollouts (see docs/measurements/rollouts.md): the best
candidate goes on if it is better.

python benchmarks/rollouts.py four-queue|million|six-class|stations [steps of copies a round]
[rounds] [horizon]
"""

import sys
import time

import numpy as np

import dualplan as dp
from dualplan.search.rollouts import rollout_step

CASES = {
    "four-queue": (lambda: dp.load("four-queue", buffers=9), "lbfs", 1_000),
    "million": (lambda: dp.load("four-queue"), "lbfs", 5_000),
    "six-class": (lambda: dp.load("six-class", decisions="per-server"), "lbfs", 10_000),
    "stations": (
        lambda: dp.load("six-class", stations=4, decisions="per-server"),
        "max-pressure",
        10_000,
    ),
}
LISTABLE = 20_000  # states up to which costs are exact
JUDGED = 4_000_000  # simulated steps of a comparison


def change(model, policy, incumbent):
    """The cost of a policy, and the upper end of an interval for how much it exceeds the
    incumbent's.
    """
    if model.box.count is not None and model.box.count <= LISTABLE:
        try:
            costs = [dp.evaluate_exact(model, p).cost for p in (policy, incumbent)]
        except dp.errors.ModelError:  # several recurrent classes: the network can jam
            return np.inf, np.inf
        return costs[0], costs[0] - costs[1]
    found = dp.compare(model, policy, incumbent, steps=JUDGED, seed=17)
    return found.first.cost, found.difference.upper


def main() -> None:
    name, *given = sys.argv[1:]
    make, start, horizon = CASES[name]
    budget, rounds = int(given[0]) if given else 20_000_000, int(given[1]) if len(given) > 1 else 3
    horizon = int(given[2]) if len(given) > 2 else horizon
    model = make()
    incumbent = model.policy(start)
    print(
        f"{name}: {incumbent.name} costs {change(model, incumbent, incumbent)[0]:.4f}", flush=True
    )
    for k in range(rounds):
        began = time.monotonic()
        candidates = rollout_step(model, incumbent, steps=budget, horizon=horizon, seed=100 * k)
        seconds = time.monotonic() - began
        judged = [change(model, policy, incumbent) for policy in candidates]
        for policy, (cost, excess) in zip(candidates, judged, strict=True):
            print(
                f"  round {k + 1} ({seconds:.0f} s): {policy.name}: {cost:.4f}, at most "
                f"{excess:+.4f}",
                flush=True,
            )
        best = int(np.argmin([excess for _, excess in judged]))
        if judged[best][1] < 0:
            incumbent = candidates[best]


if __name__ == "__main__":
    main()
