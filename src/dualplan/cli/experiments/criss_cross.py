"""The criss-cross network with light traffic, imbalanced and balanced: Dai & Gluzman (2022),
*Queueing network controls via deep reinforcement learning*.

Their networks have no bounds. The optimum and the heuristics are computed on truncations that turn
away customers at full queues, with queues up to `TRUNCATIONS`; that the optimum no longer moves
from one to the next is what stands for the network without bounds, and is measured, not proved. The
search runs on the network without bounds.
"""

from __future__ import annotations

from dualplan.cli.experiments.measure import exactly, searched
from dualplan.cli.experiments.rows import Figure, Outcome, Progress, Row, agreeing
from dualplan.core.errors import InputError
from dualplan.core.types import Json
from dualplan.exact.iteration import ExactSolution, solve_exact
from dualplan.models import instances as zoo
from dualplan.models.contract import Model
from dualplan.models.load import build

TRUNCATIONS = (20, 30)
CRISS_CROSS_TOLERANCE = 1e-6
CRISS_CROSS_HEURISTICS = ("lbfs", "c-mu", "max-pressure")
CRISS_CROSS_OPTIMUM = {
    False: Figure(0.671, 3, deterministic=True),
    True: Figure(0.843, 3, deterministic=True),
}
FLUID_POLICY_COSTS = {False: Figure(0.677, 3), True: Figure(0.855, 3)}
PPO_COSTS = {False: Figure(0.671, 3), True: Figure(0.844, 3)}
CRISS_CROSS_TIME = "30s"


def criss_cross(
    *,
    time: str = CRISS_CROSS_TIME,
    parameters: Json | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """Both networks: the optimum on two truncations, heuristics on the smaller one, and what a
    search finds.
    """
    given = parameters or {}
    for key in ("balanced", "buffers"):
        if key in given:
            raise InputError(
                f"criss-cross runs both networks on truncations of its own; leave {key!r} out."
            )
    rows: list[Row] = []
    words = []
    published = given in ({}, {"load": "light"})
    for k, balanced in enumerate((False, True)):
        if balanced:
            network = "balanced"
        else:
            network = "imbalanced"
        if progress is not None:
            progress(k, 2, network)
        found, moved = _network(balanced, given, time, seed, published)
        rows += found
        words.append(
            f"{network}: from queues up to {TRUNCATIONS[0]} to {TRUNCATIONS[1]} the optimum moves "
            f"by {moved:.1e}"
        )
    settings = {
        "time": time,
        "seed": seed,
        "parameters": given,
        "truncations": TRUNCATIONS,
        "tolerance": CRISS_CROSS_TOLERANCE,
    }
    said = (
        agreeing(rows),
        f"Where queues end no longer matters ({'; '.join(words)}), which is measured, not proved.",
    )
    load = given.get("load", "light")
    return Outcome(
        "criss-cross", f"criss-cross, {load} traffic: number in system", tuple(rows), said, settings
    )


def _network(
    balanced: bool, given: Json, time: str, seed: int, published: bool
) -> tuple[list[Row], float]:
    if balanced:
        network = "balanced"
    else:
        network = "imbalanced"
    cut = [_make(given, balanced, size) for size in TRUNCATIONS]
    near, far = (solve_exact(model, tol=CRISS_CROSS_TOLERANCE) for model in cut)
    optimum = far.value
    common: Json = {"network": network, "optimum": optimum}
    rows = [
        _optimum(f"optimum, queues up to {TRUNCATIONS[0]}", near, None, common),
        _optimum(
            f"optimum, queues up to {TRUNCATIONS[1]}",
            far,
            CRISS_CROSS_OPTIMUM[balanced] if published else None,
            common,
        ),
    ]
    rows += [
        exactly(name, cut[0], cut[0].policy(name), note="on the smaller truncation", **common)
        for name in CRISS_CROSS_HEURISTICS
    ]
    if published:
        rows += [Row("robust fluid policy", published=FLUID_POLICY_COSTS[balanced], **common)]
        rows += [Row("PPO", published=PPO_COSTS[balanced], **common)]
    rows.append(searched(_make(given, balanced, None), time=time, seed=seed, **common))
    return rows, abs(far.value - near.value)


def _make(given: Json, balanced: bool, buffers: int | None) -> Model:
    return build(
        "criss-cross", zoo.criss_cross, {**given, "balanced": balanced, "buffers": buffers}
    )


def _optimum(name: str, found: ExactSolution, figure: Figure | None, common: Json) -> Row:
    return Row(
        name,
        found.value,
        figure,
        found.lower,
        found.upper,
        exact=True,
        seconds=found.seconds,
        note=f"{found.values.size:,} states",
        **common,
    )
