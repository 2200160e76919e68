"""How often 95% intervals cover, on models whose cost is known, split by the status of the run.

    python benchmarks/interval_coverage.py               all models, 300 seeds: some ten minutes
    python benchmarks/interval_coverage.py rare queue    only these
    python benchmarks/interval_coverage.py --seeds 100 --method regenerative
    python benchmarks/interval_coverage.py --tol 0.1           stop at a relative half-width

A line for each model, method and number of steps: how many runs ended with a good status, how many
of these intervals cover, the same for runs with a complaint (`too-short`, `few-cycles`), the share
of all seeds that are good and miss, which is what a user suffers, and the mean half-width of good
runs relative to the cost. The promise: of the runs with a good status at least 93% cover; where
hardly any run gets one (fewer than a tenth), good ones that miss are at most 1% of all.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import dualplan as dp
from dualplan.models.criteria import Criterion

CONFIDENCE = 0.95
AVERAGE = dp.Average()
# dualplan evaluate examples/hospital.toml -p c-mu --method exact: half a minute
HOSPITAL_COST = 13.5325767316
AVERAGE_METHODS = ("batch-means", "regenerative")
DISCOUNTED_METHODS = ("truncated", "stopped")


@dataclass(frozen=True)
class Case:
    """A model, its policy, its criterion, and the steps that are tried."""

    make: Callable[[], dp.Model]
    policy: str
    steps: tuple[int, ...]
    criterion: Criterion = AVERAGE
    cost: float | None = None  # where computing it takes long

    @property
    def methods(self) -> tuple[str, ...]:
        """How intervals are made under the criterion."""
        if isinstance(self.criterion, dp.Discounted):
            return DISCOUNTED_METHODS
        return AVERAGE_METHODS


def table(transitions: list[list[float]], losses: list[float], name: str) -> dp.TabularModel:
    """A chain: a model with one action."""
    return dp.TabularModel([np.array(transitions)], np.array(losses)[:, None], name=name)


def rare(chance: float = 1e-3, dear: float = 100.0, stay: float = 0.0) -> dp.TabularModel:
    """Two cheap states that mix at once, and a dear one that is seldom met."""
    cheap = [(1 - chance) / 2, (1 - chance) / 2, chance]
    return table(
        [cheap, cheap, [(1 - stay) / 2, (1 - stay) / 2, stay]], [0.0, 1.0, dear], "rare state"
    )


def wells(up: float, down: float, height: float) -> dp.TabularModel:
    """Two pairs of states, each of which mixes at once, and seldom a step from one to the other."""
    return table(
        [
            [0.5 - up, 0.5, up, 0],
            [0.5 - up, 0.5, 0, up],
            [down, 0, 0.5 - down, 0.5],
            [0, down, 0.5, 0.5 - down],
        ],
        [0.0, 1.0, height, height + 1],
        "two wells",
    )


def queue(load: float, room: int) -> dp.QueueingNetwork:
    """M/M/1/K."""
    classes = [dp.QueueClass("1", "S", 1.0, load, room)]
    return dp.QueueingNetwork(classes, time="continuous", name=f"queue at load {load}")


def tandem(load: float) -> dp.QueueingNetwork:
    """Two queues one after the other, with room for 40 each."""
    classes = [
        dp.QueueClass("1", "A", 1.0, load, 40, route="2"),
        dp.QueueClass("2", "B", 1.0, 0.0, 40),
    ]
    return dp.QueueingNetwork(classes, time="continuous", name=f"tandem at load {load}")


def four_queues() -> dp.Model:
    """The four-queue network, small."""
    return dp.load("four-queue", buffers=4)


def hospital() -> dp.Model:
    """762,048 states."""
    return dp.load("examples/hospital.toml")


SHORT = (3_000, 10_000, 30_000, 100_000)
LONGER = (10_000, 30_000, 100_000, 300_000)
DISCOUNTED_STEPS = (3_000, 10_000, 30_000, 100_000)
CASES = {
    "rare": Case(rare, "random", SHORT),
    "rare, dearer": Case(lambda: rare(1e-4, 10_000.0), "random", LONGER),
    "rare, staying": Case(lambda: rare(1e-3, 20.0, 0.9), "random", SHORT),
    "wells": Case(lambda: wells(1e-3, 1e-3, 2.0), "random", LONGER),
    "wells, uneven": Case(lambda: wells(5e-4, 2e-3, 5.0), "random", LONGER),
    "queue .5": Case(lambda: queue(0.5, 60), "longer", SHORT),
    "queue .8": Case(lambda: queue(0.8, 60), "longer", SHORT),
    "queue .9": Case(lambda: queue(0.9, 60), "longer", LONGER),
    "four queues": Case(four_queues, "lbfs", SHORT),
    "tandem .9": Case(lambda: tandem(0.9), "longer", LONGER),
    "rare, discounted": Case(rare, "random", DISCOUNTED_STEPS, dp.Discounted(0.95)),
    "dearer, discounted": Case(lambda: rare(1e-4, 10_000.0), "random", LONGER, dp.Discounted(0.95)),
    "queue .8, discounted": Case(
        lambda: queue(0.8, 60), "longer", DISCOUNTED_STEPS, dp.Discounted(0.99)
    ),
    "four queues, discounted": Case(four_queues, "lbfs", DISCOUNTED_STEPS, dp.Discounted(0.95)),
    "hospital": Case(hospital, "c-mu", (100_000, 300_000), cost=HOSPITAL_COST),
}


@dataclass
class Tally:
    """Runs, and how many of their intervals cover."""

    runs: int = 0
    covering: int = 0

    def add(self, covers: bool) -> None:
        """One run more."""
        self.runs += 1
        self.covering += covers

    def __str__(self) -> str:
        if self.runs == 0:
            return "    0        -"
        return f"{self.runs:5d}   {self.covering / self.runs:6.1%}"


def measure(
    model: dp.Model, case: Case, method: str, steps: int, wanted: argparse.Namespace
) -> str:
    """One line of the table."""
    policy = model.policy(case.policy)
    cost = case.cost
    if cost is None:
        cost = dp.evaluate_exact(model, policy, case.criterion).cost
    good = Tally()
    doubtful = Tally()
    widths = []
    for seed in range(wanted.seeds):
        found = dp.evaluate(
            model,
            policy,
            case.criterion,
            method=method,
            steps=steps,
            seed=seed,
            relative_tol=wanted.tol,
            confidence=CONFIDENCE,
            threads=1,
        )
        covers = found.lower <= cost <= found.upper
        if found.status.good:
            good.add(covers)
            widths.append(found.half_width / abs(cost))
        else:
            doubtful.add(covers)
    missed = (good.runs - good.covering) / wanted.seeds
    width = "-"
    if widths:
        width = f"{np.mean(widths):.1%}"
    return f"{good}   {doubtful}   {missed:6.1%}   {width:>7}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--method", choices=(*AVERAGE_METHODS, *DISCOUNTED_METHODS))
    parser.add_argument("--tol", type=float, help="stop at this relative half-width")
    wanted = parser.parse_args()
    print(
        f"{'model':24s} {'method':13s} {'steps':>8}   good   cover   doubt    cover   "
        "good, missed   half-width"
    )
    for name, case in CASES.items():
        if wanted.models and not any(name.startswith(m) for m in wanted.models):
            continue
        model = case.make()
        for method in case.methods:
            if wanted.method not in (None, method):
                continue
            for steps in case.steps:
                line = measure(model, case, method, steps, wanted)
                print(f"{name:24s} {method:13s} {steps:8,d}   {line}")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
