"""The optimal cost of the four-queue network without end, from exact solutions of ever larger truncations.

Buffers bound the queues; a lost customer costs a penalty. Without a penalty the optimum turns customers away and lies
below that of the unbounded network; with one that is far more than a customer can cost there, above it as soon as the
truncation is large. Where the two meet is the estimate; it is no proof.

python benchmarks/truncations.py [--sizes 9 20 30 38] [--penalties 0 1000 10000] [--tol .05]
"""

import argparse
import time

import dualplan as dp


def main() -> None:
    """Print a row for each truncation and penalty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[9, 20, 30, 38])
    parser.add_argument("--penalties", type=float, nargs="*", default=[0.0, 1_000.0, 10_000.0])
    parser.add_argument("--ratio", type=float, default=25 / 38, help="of the second buffers to the first")
    parser.add_argument("--tol", type=float, default=0.05)
    options = parser.parse_args()
    for size in options.sizes:
        short = max(1, round(options.ratio * size))
        for penalty in options.penalties:
            began = time.monotonic()
            model = dp.load("four-queue", buffers=(size, short, short, size), penalty=penalty)
            found = dp.solve_exact(model, tol=options.tol)
            lost = dp.evaluate(model, found.policy, steps=20_000_000).measures["lost fraction"].value
            print(
                f"buffers {size}, {short}: {model.box.count:,} states, penalty {penalty:g}: {found.lower:.4f} to "
                f"{found.upper:.4f} ({found.status}), loses {lost:.3%}, {time.monotonic() - began:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
