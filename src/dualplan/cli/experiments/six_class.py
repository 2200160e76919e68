"""The re-entrant family with two stations (six classes) or more: Bertsimas, Nasrabadi & Paschalidis
(2015), *Robust fluid processing networks*, and Dai & Gluzman (2022), *Queueing network controls via
deep reinforcement learning*.

The second paper takes over LBFS, FCFS and the fluid policies from the first. These fit service that
is not interrupted (non-preemptive); the second paper's own model, on which PPO was run, is
preemptive. So there are two networks here, and a figure stands beside ours of the same discipline.

FCFS needs the order of arrivals, which queue lengths do not have; the fluid policies come from
programs that are not in the library. Their published figures stand alone.
"""

from __future__ import annotations

from dualplan.cli.experiments.measure import SEARCH_ROW, searched, simulated
from dualplan.cli.experiments.rows import (
    COMPUTED_ELSEWHERE_SOURCE,
    Figure,
    Outcome,
    Progress,
    Row,
    agreeing,
    below,
)
from dualplan.core.errors import InputError
from dualplan.core.types import Json
from dualplan.models import instances as zoo
from dualplan.models.contract import Model
from dualplan.models.load import build

DISCIPLINES = ("nonpreemptive", "preemptive")
SIX_CLASS_HEURISTICS = ("lbfs", "c-mu", "max-weight", "max-pressure")
SIX_CLASS_KNOWN_COSTS: dict[int, dict[str, dict[str, Figure]]] = {  # stations, discipline, policy
    2: {
        "nonpreemptive": {
            "lbfs": Figure(15.749, 3),
            "FCFS": Figure(40.173, 3),
            "fluid policy": Figure(15.422, 3),
            "robust fluid policy": Figure(15.286, 3),
        },
        "preemptive": {
            "lbfs": Figure(14.32, 2, 0.04, source=COMPUTED_ELSEWHERE_SOURCE),
            "PPO": Figure(14.130, 3, 0.208),
            "policy of a truncation": Figure(13.88, 2, 0.07, source=COMPUTED_ELSEWHERE_SOURCE),
        },
    },
    4: {
        "nonpreemptive": {"lbfs": Figure(34.660, 3), "robust fluid policy": Figure(36.857, 3)},
        "preemptive": {"PPO": Figure(32.171, 3, 0.556)},
    },
}
SIX_CLASS_STEPS = 20_000_000  # of each simulation
SIX_CLASS_TIME = "60s"
PER_SERVER_STATIONS = 3  # stations from which on each server decides at its own events


def six_class(
    *,
    time: str = SIX_CLASS_TIME,
    steps: int = SIX_CLASS_STEPS,
    parameters: Json | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """Heuristics in both disciplines, and what a search finds with preemption."""
    given = parameters or {}
    if "discipline" in given:
        raise InputError("six-class runs both disciplines; leave 'discipline' out.")
    tell = progress or (lambda *_: None)
    known = known_for(given)
    rows: list[Row] = []
    for k, discipline in enumerate(DISCIPLINES):
        model = _make(given, discipline)
        figures = known.get(discipline, {})
        for name in SIX_CLASS_HEURISTICS:
            tell(k, 3, f"{discipline}, {name}")
            rows.append(
                simulated(
                    name,
                    model,
                    model.policy(name),
                    steps=steps,
                    seed=seed,
                    network=discipline,
                    published=figures.get(name),
                )
            )
        rows += [
            Row(name, published=f, network=discipline)
            for name, f in figures.items()
            if name not in SIX_CLASS_HEURISTICS
        ]
    tell(2, 3, SEARCH_ROW)
    rows.append(searched(model, time=time, seed=seed, network=discipline))
    settings = {
        "time": time,
        "steps": steps,
        "seed": seed,
        "parameters": given,
        "model": model.describe(),
    }
    classes = model.box.dim
    return Outcome(
        "six-class",
        f"{classes} classes, number in system",
        tuple(rows),
        _words(rows, known.get("preemptive", {})),
        settings,
    )


def known_for(given: Json) -> dict[str, dict[str, Figure]]:
    """The figures from elsewhere for these parameters, by discipline and policy."""
    if set(given) <= {"stations"}:
        return SIX_CLASS_KNOWN_COSTS.get(given.get("stations", 2), {})
    return {}


def _make(given: Json, discipline: str) -> Model:
    if given.get("stations", 2) >= PER_SERVER_STATIONS:
        many = {"decisions": "per-server"}
    else:
        many = {}
    return build("six-class", zoo.six_class, {**many, **given, "discipline": discipline})


def _words(rows: list[Row], known: dict[str, Figure]) -> tuple[str, ...]:
    plain, interrupted = (
        next(r for r in rows if r.name == "lbfs" and r.network == d) for d in DISCIPLINES
    )
    words = [
        f"{agreeing(rows)} LBFS costs {plain.shown} without preemption and {interrupted.shown} "
        "with it: figures of one discipline are not to be set beside the other's, and the "
        "published LBFS and fluid figures are nonpreemptive."
    ]
    if "PPO" in known:
        words.append(
            f"What {rows[-1].name} found, {rows[-1].shown}, is {below(rows[-1], known['PPO'])} "
            f"PPO's {known['PPO']}; both are preemptive."
        )
    return tuple(words)
