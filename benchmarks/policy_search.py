"""What direct search gains on networks too large for grids, and at what price.

    python benchmarks/policy_search.py [INSTANCE] [FAMILY] [STEPS] [SEED] [START]

prints the seconds of the search, the paired difference from the heuristic that it began from, and
the cost of what it found with fitted values as control variate, both on random numbers that the
search did not see.
"""

from __future__ import annotations

import sys
import time

import dualplan as dp
from dualplan import primal
from dualplan.models import instances as zoo
from dualplan.models.queueing import QueueingNetwork
from dualplan.search.families import Family, indices, quadratic_indices
from dualplan.search.policy_search import propose

INSTANCES = {
    "six-class-4": (lambda: zoo.six_class(stations=4), "max-pressure"),
    "six-class-2": (lambda: zoo.six_class(stations=2), "lbfs"),
    "eight-queue": (zoo.eight_queue, "lbfs"),
    "four-queue": (lambda: zoo.four_queue(buffers=None), "c-mu"),
    "four-queue-9": (lambda: zoo.four_queue(buffers=9), "max-pressure"),
}

JUDGED, CONTROLLED = (
    40_000_000,
    8_000_000,
)  # steps of the comparison, and of the cost with a control


def family(model: QueueingNetwork, start: str, kind: str) -> Family:
    """The family of a name."""
    return quadratic_indices(model) if kind == "quadratic" else indices(model.policy(start), kind)


def main(instance: str, kind: str, steps: int, seed: int, start: str | None = None) -> None:
    """One search, judged on other random numbers."""
    make, named = INSTANCES[instance]
    model = make()
    chosen, heuristic = family(model, start or named, kind), model.policy(start or named)
    propose(chosen, steps=100_000, seed=seed)  # compiles
    began = time.monotonic()
    found = propose(chosen, steps=steps, seed=seed)
    seconds = time.monotonic() - began
    again = dp.compare(model, found.policy, heuristic, steps=JUDGED, seed=seed + 1000)
    values = primal.policy_values(model, found.policy, primal.monomials(model, 2), seed=seed + 1001)
    run = dp.evaluate(model, found.policy, control=values, steps=CONTROLLED, seed=seed + 1002)
    size = f"{chosen.start.size} parameters, {found.steps:,} steps, seed {seed}"
    print(f"{instance}, {chosen.name}, {size}: {seconds:.1f} s")
    print(f"  {run}\n  {again}", flush=True)


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    main(
        given.get(0, "six-class-4"),
        given.get(1, "next"),
        int(given.get(2, "50_000_000")),
        int(given.get(3, "0")),
        given.get(4),
    )
