"""What direct search gains on networks too large for grids, and at what price.

    python benchmarks/policy_search.py [INSTANCE] [FAMILY] [STEPS] [SEED]

prints the start, what was found, the paired difference on fresh random numbers, and the gain per second.
"""

from __future__ import annotations

import sys

import dualplan as dp
from dualplan.models import zoo
from dualplan.models.queueing import QueueingNetwork
from dualplan.policy_families import Family, deciding_alone, indices, quadratic_indices
from dualplan.policy_search import search

INSTANCES = {
    "six-class-4": (lambda: zoo.six_class(stations=4), "max-pressure"),
    "six-class-2": (lambda: zoo.six_class(stations=2), "lbfs"),
    "eight-queue": (zoo.eight_queue, "lbfs"),
    "four-queue": (lambda: zoo.four_queue(buffers=None), "c-mu"),
    "four-queue-9": (lambda: zoo.four_queue(buffers=9), "max-pressure"),
}


def family(model: QueueingNetwork, start: str, kind: str) -> Family:
    """The family of a name."""
    return quadratic_indices(model) if kind == "quadratic" else indices(model.policy(start), kind)


def main(instance: str, kind: str, steps: int, seed: int, start: str | None = None) -> None:
    """One search, judged again on yet other random numbers against the heuristic that it began from."""
    make, named = INSTANCES[instance]
    model = make()
    chosen = family(model, start or named, kind)
    found = search(chosen, steps=steps, seed=seed)
    alone = deciding_alone(model)
    trial = chosen.tried(found.theta)
    again = dp.compare(trial.model, trial, alone.policy(start or named), steps=steps // 4, seed=seed + 1000)
    gain = -again.difference.value
    print(f"{instance}, {chosen.name}, {chosen.start.size} parameters, {found.steps:,} steps, seed {seed}")
    print(f"  {again.first}\n  {again.second}\n  {again}\n  {found.seconds:.0f} s, gain {gain / found.seconds:.4f}/s")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    main(given.get(0, "six-class-4"), given.get(1, "next"), int(given.get(2, "200_000_000")), int(given.get(3, "0")),
         given.get(4))  # fmt: skip
