"""Which step improves a policy most per second: each alone, once, in its smallest size, from the
model's heuristics.

python benchmarks/steps.py [NAME ...] [--seed 0]
"""

import argparse

import dualplan as dp
from dualplan.core.budgets import Clock
from dualplan.search import STEPS_BY_NAME
from dualplan.search.contract import Search
from dualplan.search.loop import Loop
from solve import CASES

NAMES = ("ten-thousand", "million", "unbounded", "six-class", "twelve-class", "lost-sales")


def main() -> None:
    """A line for each network and step: what it proposed, the paired gain, the seconds, the gain
    per second.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.names or NAMES:
        case = CASES[name]
        model = dp.load(case.model, **case.parameters)
        begin = [model.policy(policy) for policy in case.begin]
        for step in STEPS_BY_NAME:
            search = Search(model, dp.Average(), (), options.seed)
            loop = Loop(search, Clock(3600.0), None, None, lambda *_: None)
            loop.begin(begin)
            best = search.incumbent.run.cost
            if STEPS_BY_NAME[step].applies(search):
                loop.attempt(STEPS_BY_NAME[step], 0)
            for a in search.attempts:
                gain = (
                    ""
                    if a.gain is None
                    else f"{a.gain.value:8.3f} [{a.gain.lower:8.3f}, {a.gain.upper:8.3f}]"
                )
                rate = 0.0 if a.gain is None or not a.accepted else a.gain.value / best / a.seconds
                print(
                    f"{name:14s} from {best:7.3f}  {step:9s} {a.policy[:44]:44s} {gain}  "
                    f"{a.seconds:6.1f} s  {rate:8.3%} of the cost a second  {a.note}",
                    flush=True,
                )
            if not search.attempts:
                print(f"{name:14s} from {best:7.3f}  {step:9s} not for this model", flush=True)


if __name__ == "__main__":
    main()
