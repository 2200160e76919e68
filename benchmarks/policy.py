"""Microseconds that the policy of a mixture takes for a state: the paper's bands and boxes with
LBFS's occupancy.

python benchmarks/policy.py
"""

import time

import numpy as np

import dualplan as dp
from dualplan.exact.operators import Sweeper

CALLS = 20_000


def main() -> None:
    """Time single calls from Python, and a compiled loop over all 1,028,196 states."""
    model = dp.load("four-queue", buffers=(38, 25, 25, 38))
    features = dp.dual.features.concat(
        dp.dual.features.occupancies(model, [model.policy("lbfs")]),
        dp.dual.features.bands(model, dp.dual.features.PAPER_BANDS),
        dp.dual.features.boxes(model, [dp.dual.features.PAPER_INTERVALS] * 4),
    )
    theta = np.random.default_rng(0).normal(size=len(features))
    policy = dp.dual.solvers.MixturePolicy(features, theta, fallback=model.policy("lbfs"))
    sweeper, states = Sweeper(model), np.arange(int(model.box.count or 0))
    sweeper.probabilities(policy, states[:10])  # compiles
    x, started = np.array([3, 2, 1, 0]), time.perf_counter()
    for _ in range(CALLS):
        policy.probabilities(x)
    single, started = (time.perf_counter() - started) / CALLS, time.perf_counter()
    sweeper.probabilities(policy, states)
    compiled = (time.perf_counter() - started) / states.size
    print(
        f"{len(features)} features: {single * 1e6:.2f} µs a call, {compiled * 1e6:.2f} µs a state "
        "compiled"
    )


if __name__ == "__main__":
    main()
