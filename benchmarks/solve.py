"""What `dualplan solve` finds, on every network with a published or exactly known figure; one
setting for all.

python benchmarks/solve.py [NAME ...] [--time 3m] [--seed 0] [--json]
"""

import argparse
import json
from dataclasses import dataclass, field
from typing import Any

import dualplan as dp


@dataclass(frozen=True)
class Case:
    """A model, what to begin with, and the figures that it is compared with."""

    model: str
    parameters: dict[str, Any] = field(default_factory=dict)
    begin: tuple[str, ...] = ()
    wanted: float | None = None
    known: str = ""


LITERAL = {"dynamics": "bernoulli", "full": "lose", "phantom": True}
CASES = {
    "ten-thousand": Case("four-queue", {"buffers": 9}, ("longer", "lbfs"), 8.19, "optimum 8.1053"),
    "unbounded": Case(
        "four-queue", {"buffers": None}, (), 32.3, "ALP 33.37 (de Farias & Van Roy 2003)"
    ),
    "million": Case("four-queue", {}, (), 19.958, "optimum 18.144"),
    "million-literal": Case("four-queue", LITERAL, (), 18.428, "optimum 16.753"),
    "criss-cross": Case("criss-cross", {}, (), 0.67771, "optimum .671, PPO .671"),
    "criss-cross-balanced": Case(
        "criss-cross", {"balanced": True}, (), 0.85143, "optimum .843, PPO .844"
    ),
    "six-class": Case("six-class", {}, (), 13.95, "PPO 14.130 ± .208"),
    "twelve-class": Case(
        "six-class", {"stations": 4, "decisions": "per-server"}, (), 32.171, "PPO 32.171 ± .556"
    ),
    "lost-sales": Case("lost-sales", {}, (), 4.78, "optimum 4.73, better vector base-stock 4.80"),
    "eight-queue": Case("eight-queue", {}, (), 19.14, "primal mixture 19.14"),
}


def solved(name: str, time: str, seed: int) -> dict[str, Any]:
    """One row."""
    case = CASES[name]
    model = dp.load(case.model, **case.parameters)
    begin = [model.policy(policy) for policy in case.begin]
    found = dp.solve(model, policies=begin, time=time, seed=seed)
    lost = found.evaluation.measures.get("lost fraction")
    best = min((m.run.cost, m.policy.name) for m in found.start)
    return {
        "name": name,
        "begin": f"{best[1]} {best[0]:.4g}",
        "cost": found.cost,
        "lower": found.evaluation.lower,
        "upper": found.evaluation.upper,
        "how": found.evaluation.method,
        "lost": None if lost is None else lost.value,
        "wanted": case.wanted,
        "reached": bool(case.wanted is None or found.evaluation.upper <= case.wanted),
        "known": case.known,
        "bound": found.bound.value,
        "functions": found.bound.functions,
        "kind": found.bound.kind,
        "gap": found.gap,
        "source": found.source,
        "status": str(found.status),
        "seconds": found.seconds,
        "attempts": [attempt.to_json() for attempt in found.attempts],
    }


def number(value: float | None) -> float:
    """JSON has None for a number that is infinite or unknown."""
    return float("nan") if value is None else value


def main() -> None:
    """Print a row for each network as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], default=[])
    parser.add_argument("--time", default="3m")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.names or CASES:
        row = solved(name, options.time, options.seed)
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        lost = "" if row["lost"] is None else f", loses {row['lost']:.1%}"
        print(
            f"{name}: {row['cost']:.4f} [{row['lower']:.4f}, {row['upper']:.4f}] "
            f"({row['how']}){lost}, from {row['begin']}, wanted {row['wanted']}, {row['known']}; "
            f"proved {row['bound']:.4f} ({row['functions']}), gap {row['gap']:.1%}; "
            f"{row['source']}; {row['seconds']:.0f} s, {row['status']}",
            flush=True,
        )
        for a in row["attempts"]:
            gain = {
                key: number(value)
                for key, value in (a["gain"] or dict.fromkeys(("value", "lower", "upper"))).items()
            }
            cost = number(a["cost"])
            print(
                f"    {a['step']:10s} {a['size']} {a['candidates']:3d} {a['policy'][:50]:50s} "
                f"{cost:8.4f} {gain['value']:8.4f} [{gain['lower']:8.4f}, {gain['upper']:8.4f}] "
                f"{'*' if a['accepted'] else ' '} {a['seconds']:6.1f} s {a['note']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
