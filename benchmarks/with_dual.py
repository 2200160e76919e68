"""What the dual program adds to a search: with it and without, at equal time.

    python benchmarks/with_dual.py [NAME ...] [--time 1m] [--seeds 0 1 2]

A line for each problem and seed: the cost without the step `dual` and with it, where each policy
came from, and the paired interval of what the one with it costs more than the other, on random
numbers that neither search has seen.
"""

from __future__ import annotations

import argparse

import dualplan as dp
from dualplan.search import STEPS_BY_NAME
from solve import CASES, Case

PROBLEMS = {
    **CASES,
    "lost-sales, penalty 19": Case("lost-sales", {"penalty": 19.0}),
    "lost-sales, lead time 8": Case("lost-sales", {"lead_time": 8}),
    "parallel servers": Case("parallel-servers"),
    "twelve items": Case("multi-item", {"items": 12}),
    "sysadmin, 30": Case("sysadmin", {"machines": 30}),
}
JUDGED_SEED = 1_000_003
JUDGED_STEPS = 4_000_000
JUDGED_TIME = "20s"


def main() -> None:
    """Search twice for each problem and seed, and compare what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--time", default="1m")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    options = parser.parse_args()
    print("| problem | seed | without | by | with | by | with − without |")
    print("|---|---|---|---|---|---|---|")
    every = dict(STEPS_BY_NAME)
    for name in options.names or PROBLEMS:
        case = PROBLEMS[name]
        model = dp.load(case.model, **case.parameters)
        begin = [model.policy(policy) for policy in case.begin]
        for seed in options.seeds:
            found = {}
            for word in ("without", "with"):
                STEPS_BY_NAME.clear()
                STEPS_BY_NAME.update(every)
                if word == "without":
                    del STEPS_BY_NAME["dual"]
                found[word] = dp.solve(model, policies=begin, time=options.time, seed=seed)
            cells = [name, str(seed)]
            for one in found.values():
                known = one.evaluation
                cells += [f"{one.cost:.5g} ± {known.half_width:.2g}", one.source]
            apart = dp.compare(
                model,
                found["with"].policy,
                found["without"].policy,
                steps=JUDGED_STEPS,
                seed=JUDGED_SEED,
                time=JUDGED_TIME,
            ).difference
            cells.append(f"{apart.value:.4g} [{apart.lower:.4g}, {apart.upper:.4g}]")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
