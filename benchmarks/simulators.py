"""The dual program where only a simulator is known: FrozenLake of Gymnasium, and SysAdmin with
thirty machines in a ring as a function of Python that draws next states.

    python benchmarks/simulators.py [--time 2m] [--seeds 0 1 2]

For each of them what the method `dual` found, beside the policies that it began with, and the
paired interval of the difference. SysAdmin begins with what one would try: reboot the first
machine that has failed, or nothing.
"""

from __future__ import annotations

import argparse

import numpy as np

import dualplan as dp
from dualplan.policies import FunctionPolicy
from dualplan.policies.contract import Policy

MACHINES = 30


def sysadmin_step(x: np.ndarray, a: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """The law of `dualplan models sysadmin`: a machine that works goes on with chance .95, one that
    has failed recovers with .05, half of that if the one before it has failed; action a > 0 reboots
    machine a, which costs .5.
    """
    works = np.where(x == 1, 0.95, 0.05) * np.where(np.roll(x, 1) == 1, 1.0, 0.5)
    if a > 0:
        works[a - 1] = 1.0
    loss = float(x.size - x.sum()) + 0.5 * (a > 0)
    return (rng.random(x.size) < works).astype(np.int64), loss


def first_failed(x: np.ndarray) -> int:
    """Reboot the first machine that has failed."""
    down = np.flatnonzero(np.asarray(x) == 0)
    return int(down[0]) + 1 if down.size else 0


def cases() -> dict[str, tuple[dp.SimulatorModel, list[Policy]]]:
    """The models, and what to begin with."""
    lake = dp.SimulatorModel.from_gymnasium("FrozenLake-v1", map_name="4x4")
    ring = dp.SimulatorModel(
        lower=[0] * MACHINES,
        upper=[1] * MACHINES,
        actions=MACHINES + 1,
        step=sysadmin_step,
        start=[1] * MACHINES,
        name="sysadmin",
    )
    rules = [
        FunctionPolicy(ring, first_failed, name="first-failed"),
        FunctionPolicy(ring, lambda _: 0, name="nothing"),
    ]
    return {"FrozenLake": (lake, []), "SysAdmin, 30": (ring, rules)}


def main() -> None:
    """A line for each model, seed and policy to begin with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", default="2m")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    options = parser.parse_args()
    for name, (model, begin) in cases().items():
        for seed in options.seeds:
            found = dp.solve(model, policies=begin, method="dual", time=options.time, seed=seed)
            known = found.evaluation
            print(
                f"{name}, seed {seed}: {found.source} costs {known.cost:.5g} "
                f"[{known.lower:.5g}, {known.upper:.5g}], {known.status}, {found.seconds:.0f} s",
                flush=True,
            )
            for row in found.beside:
                print(
                    f"    {row.evaluation.policy}: {row.evaluation.cost:.5g}, more than found "
                    f"{row.difference.value:.4g} [{row.difference.lower:.4g}, "
                    f"{row.difference.upper:.4g}], {row.how}",
                    flush=True,
                )
            for one in found.attempts:
                print(f"    attempt: {one.policy} {one.cost} {one.gain} {one.note}", flush=True)


if __name__ == "__main__":
    main()
