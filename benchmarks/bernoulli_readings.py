"""A second program for the four-queue network with independent events, in four readings (see
docs/measurements/figures.md).
"""

import numba
import numpy as np

READINGS = (
    "completion needs a customer",
    "arrivals can be served at once",
    "full buffers block",
    "phantoms",
)


@numba.njit
def average(steps, seed, reading, lbfs):
    """Average number of customers, buffers 38, 25, 25, 38, from empty."""
    np.random.seed(seed)
    x, total = np.zeros(4, np.int64), 0.0
    for _ in range(steps):
        total += x.sum()
        if lbfs:
            first, second = (3 if x[3] > 0 else 0), (1 if x[1] > 0 else 2)
        else:
            first = 0 if x[0] > x[3] or (x[0] == x[3] and np.random.random() < 0.5) else 3
            second = 1 if x[1] > x[2] or (x[1] == x[2] and np.random.random() < 0.5) else 2
        a1, a3 = np.random.random() < 0.08, np.random.random() < 0.08
        u, v = np.random.random(), np.random.random()
        d1, d4 = first == 0 and u < 0.12, first == 3 and u < 0.28
        d2, d3 = second == 1 and v < 0.12, second == 2 and v < 0.28
        if reading == 1:
            d1, d3 = d1 and x[0] + a1 > 0, d3 and x[2] + a3 > 0
            d2, d4 = d2 and x[1] + d1 > 0, d4 and x[3] + d3 > 0
        elif reading != 3:
            d1, d2, d3, d4 = d1 and x[0] > 0, d2 and x[1] > 0, d3 and x[2] > 0, d4 and x[3] > 0
        if reading == 2:
            d1, d3 = d1 and x[1] - d2 < 25, d3 and x[3] - d4 < 38
        x[0] = max(0, min(38, x[0] + a1 - d1))
        x[1] = max(0, min(25, x[1] + d1 - d2))
        x[2] = max(0, min(25, x[2] + a3 - d3))
        x[3] = max(0, min(38, x[3] + d3 - d4))
    return total / steps


def main() -> None:
    for r, reading in enumerate(READINGS):
        for name, lbfs in (("LONGER", False), ("LBFS", True)):
            costs = np.array([average(10_000_000, seed, r, lbfs) for seed in range(4)])
            print(
                f"{reading:<34}{name:<8}{costs.mean():8.2f}  standard error "
                f"{costs.std(ddof=1) / 2:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
