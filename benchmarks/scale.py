"""What a sample costs on networks from 10^4 to more than 10^100 states: the whole way from features
to a policy's cost.

A line of machines, each holding up to `--buffer` jobs, and a server for every three of them: each
server chooses which of its machines to run, at its own events (a re-entrant line). Everything is
the same at all sizes: laws along trees and products fitted to simulated visits of three heuristics,
times two heuristics' own choices (d = 12 features), the samples of the adaptive solver and of the
value on fresh constraints, and the steps of the evaluation. H grows with the number of queues, as
costs do.

Each row is a process of its own. The first round, which compiles or loads machine code, is not
counted; of the others the median is. Seconds are processor seconds of one thread, since the machine
may have other work; samples are drawn constraints of each kind (searched with, held out, and fresh
ones). `seconds_per_million_per_coordinate` is the whole way over samples and coordinates,
`solver_...` the solver's part; `peak_mb` is the process's largest resident memory.
"""

import argparse
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import time

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
QUEUES = {1: (12, 27, 60, 135, 330), 2: (9, 21, 42, 84, 210), 9: (6, 12, 24, 48, 99)}


def chain(queues, buffer, samples, steps):
    """Processor seconds of each part, once through, and what came out."""
    import dualplan as dp
    from dualplan.dual import features as families
    from dualplan.dual.solvers import solve_adaptive

    clock, marks = time.process_time, [time.process_time()]
    net = dp.load("tandem", queues=queues, servers=queues // 3, buffers=buffer, arrival=0.5)
    rules = [net.policy(name) for name in ("longer", "lbfs", "fbfs")]
    settings = {"visits": 1_000, "every": 2 * queues}
    laws = [
        fit(net, rule, **settings)
        for rule in rules
        for fit in (families.fit_tree, families.fit_product)
    ]
    features = families.trees(net, laws, choices=rules[:2])
    marks.append(clock())
    problem = dp.dual.DualALP(net, features)
    solution = solve_adaptive(problem, 10.0 * queues, samples=samples, fresh=samples)
    marks.append(clock())
    result = dp.evaluate(net, solution.policy(fallback=rules[1]), steps=steps)
    marks.append(clock())
    parts = [b - a for a, b in itertools.pairwise(marks)]
    drawn = 3 * samples  # searched with, held out and fresh
    return {
        "log10_states": round(math.log10(net.box.count), 1),
        "coordinates": net.box.dim,
        "features": len(features),
        "samples": drawn,
        "parts": parts,
        "surrogate": solution.parts.total,
        "surrogate_error": solution.parts.total_error,
        "effective_flow": solution.parts.flow_effective,
        "cost": result.cost,
    }


def row(queues, buffer, samples, steps, repeats):
    """The median of several rounds after a first one, in this process."""
    chain(queues, buffer, max(samples // 10, 1_000), steps // 10)
    rounds = [chain(queues, buffer, samples, steps) for _ in range(repeats)]
    rounds.sort(key=lambda r: sum(r["parts"]))
    found = rounds[repeats // 2]
    scale = 1e6 / found["samples"] / found["coordinates"]
    names = ("features_seconds", "solver_seconds", "evaluation_seconds")
    parts = dict(zip(names, (round(p, 3) for p in found.pop("parts")), strict=True))
    return {
        **found,
        **parts,
        "seconds_per_million_per_coordinate": round(scale * sum(parts.values()), 4),
        "solver_per_million_per_coordinate": round(scale * parts["solver_seconds"], 4),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def alone(queues, words):
    """A row in a process of its own."""
    command = [sys.executable, __file__, f"--queues={queues}", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | ONE_THREAD
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--buffer", type=int, choices=QUEUES, default=1)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--queues", type=int, help="one row, in this process")
    arguments = parser.parse_args()
    settings = [arguments.buffer, arguments.samples, arguments.steps, arguments.repeats]
    if arguments.queues is not None:
        json.dump(row(arguments.queues, *settings), sys.stdout)
        return
    words = [
        f"--{word}={value}"
        for word, value in zip(("buffer", "samples", "steps", "repeats"), settings, strict=True)
    ]
    rows = []
    for k, queues in enumerate(QUEUES[arguments.buffer]):
        if k == 0:  # so that no row compiles what the disk cache keeps
            alone(
                queues,
                [f"--buffer={arguments.buffer}", "--samples=1000", "--steps=1000", "--repeats=1"],
            )
        rows.append(alone(queues, words))
        if not arguments.json:
            r = rows[-1]
            print(
                f"10^{r['log10_states']:<6} {r['coordinates']:>4} coordinates {r['features']} "
                f"features  {r['seconds_per_million_per_coordinate']:.3f} s per million and "
                f"coordinate ({r['features_seconds']} + {r['solver_seconds']} + "
                f"{r['evaluation_seconds']} s)  {r['peak_mb']} MB",
                flush=True,
            )
    spans = {
        key: max(r[key] for r in rows) / min(r[key] for r in rows)
        for key in (
            "seconds_per_million_per_coordinate",
            "solver_per_million_per_coordinate",
            "peak_mb",
        )
    }
    if arguments.json:
        json.dump({"rows": rows, "largest_over_smallest": spans}, sys.stdout)
    else:
        print(
            ", ".join(f"{key}: largest over smallest {value:.2f}" for key, value in spans.items())
        )


if __name__ == "__main__":
    main()
