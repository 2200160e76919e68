"""The optimal cost of the four-queue network without end, from exact solutions of large
truncations.

Buffers bound the queues; a lost customer costs a penalty. Where the penalty is what one more
customer at the end of a buffer costs without bounds, losses cost what they should, and the optimum
of the truncation is that of the unbounded network; a smaller one makes it too small, a larger one
too large, and the less so the larger the truncation. That cost grows about in proportion to the
buffer. So penalties are a multiple of the buffer, and the multiple for which two sizes agree gives
the estimate. It is no proof.

Each optimal policy is also carried over to the unbounded network (greedy for the values of the
truncation; beyond its end what is done there) and simulated: no optimum is larger than that.

python benchmarks/truncations.py [--sizes 27 38] [--multiples 150 200 250] [--tol .05] [--steps
4000000]
"""

import argparse
import time

import numpy as np

import dualplan as dp
from dualplan import primal
from dualplan.primal import Lattice, LatticeValues

RATIO = 25 / 38  # of the second buffers to the first


def main() -> None:
    """Print a row for each truncation and penalty."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=[27, 38])
    parser.add_argument("--multiples", type=float, nargs="*", default=[150.0, 200.0, 250.0])
    parser.add_argument("--tol", type=float, default=0.05)
    parser.add_argument(
        "--steps", type=int, default=4_000_000, help="of the simulation without bounds; 0: none"
    )
    options = parser.parse_args()
    for size in options.sizes:
        short = round(RATIO * size)
        for multiple in options.multiples:
            began = time.monotonic()
            model = dp.load(
                "four-queue", buffers=(size, short, short, size), penalty=multiple * size
            )
            found = dp.solve_exact(model, tol=options.tol)
            print(
                f"buffers {size}, {short}: {model.box.count:,} states, penalty {multiple:g} x "
                f"{size}: {found.lower:.3f} to {found.upper:.3f} "
                f"({found.status}){carried(model, found, options.steps)}, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )


def carried(model: dp.Model, found: dp.exact.ExactSolution, steps: int) -> str:
    """What the policy costs without bounds, in words."""
    if steps == 0:
        return ""
    free = dp.load("four-queue", buffers=None)
    lattice = Lattice(free, tuple(np.arange(b + 1) for b in model.box.upper))
    policy = primal.GreedyPolicy(free, LatticeValues(lattice, found.values), clip=lattice.last)
    control = primal.policy_values(
        free, policy, primal.monomials(free, 3), samples=20_000, every=50, seed=1
    )
    run = dp.evaluate(free, policy, steps=steps, control=control)
    return (
        f"; without bounds its policy costs {run.cost:.3f} [{run.lower:.3f}, {run.upper:.3f}] "
        f"({run.status})"
    )


if __name__ == "__main__":
    main()
