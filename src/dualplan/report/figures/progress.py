"""How a search went, and what policies cost beside each other, from results as they are saved.

Both figures take the JSON of a result (or the result, which has `to_json`), so that saved runs can
be drawn without what computed them. What a dot means is said by the words of `known`: heuristics
and the policy found are *measured* by simulation or *computed* over all states; a lower bound is
*proved*, or *statistical*.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dualplan.core.encoding import decoded, is_known
from dualplan.core.errors import InputError
from dualplan.core.runs import TRACE_FILE
from dualplan.core.status import COMPUTED, MEASURED
from dualplan.core.types import Json
from dualplan.core.words import number, plus_minus
from dualplan.report.figures.canvas import current, drawn, empty
from dualplan.report.figures.curves import finite_or_nan, flow_penalty

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS_OF_DOUBT = {"too-short": "run too short", "unstable": "unstable"}


class Result(Protocol):
    """What an improvement or a plan came to."""

    def to_json(self) -> Json:
        """As plain values."""


def _plain(result: Json | Result) -> Json:
    if isinstance(result, dict):
        return result
    return result.to_json()


# -- convergence -----------------------------------------------------------------------------------


@drawn
def convergence(result: Json | Result, folder: str | Path | None = None) -> Figure:
    """The best cost and every attempt of a search against time; of a dual program, its trace in a
    run's folder.

    Bars about an attempt are the paired interval of its gain over the best policy of that time.
    """
    found = _plain(result)
    if "attempts" in found:
        return _search(found)
    if folder is not None:
        rows = read_trace(folder)
    else:
        rows = found.get("tried", [])
    if not rows or "violation_flow" not in rows[0]:
        raise InputError(
            "this result has no attempts and no trace to draw; search, or name the folder of a "
            "plan's run."
        )
    return _trace(found, rows)


def read_trace(folder: str | Path) -> list[Json]:
    """The lines that a run has written about its progress; none where it wrote none."""
    path = Path(folder) / TRACE_FILE
    if path.exists():
        return [decoded(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return []


def _search(found: Json) -> Figure:
    figure = empty(8.5, 4.4)
    panel = figure.subplots()
    theme = current()
    attempts = [row for row in found["attempts"] if is_known(row["cost"])]
    ends = dict(
        zip(
            map(id, found["attempts"]),
            accumulate(row["seconds"] for row in found["attempts"]),
            strict=True,
        )
    )
    last = max(float(found["seconds"]), *ends.values(), 0.0)
    x = [0.0]
    y = [finite_or_nan(found["start"][0]["cost"])]
    for row in attempts:
        if row["accepted"]:
            x = [*x, ends[id(row)]]
            y = [*y, row["cost"]]
    cost = finite_or_nan(found["cost"])
    panel.step(
        [*x, last], [*y, y[-1]], where="post", color=theme.ink, linewidth=1.2, label="best so far"
    )
    _draw_attempts(panel, attempts, [ends[id(row)] for row in attempts])
    _draw_interval(panel, last, cost, found, "D", "the policy found, evaluated afresh")
    _draw_interval(
        panel,
        0.0,
        y[0],
        found["start"][0],
        "s",
        f"best to begin with: {found['start'][0]['policy']}",
    )
    _draw_bound(panel, found)
    kept = [end for row in attempts if row["accepted"] for end in _gain_ends(row)]
    shown = [*y, cost, finite_or_nan(found["lower_bound"]), *kept]
    _limit(panel, shown, attempts, [ends[id(row)] for row in attempts])
    panel.set(
        xlabel="seconds",
        ylabel=_cost_word(found),
        title=f"{found['model']}: search for a better policy",
    )
    figure.legend(loc="outside right upper")
    return figure


def _draw_attempts(panel: Any, attempts: Sequence[Json], ends: Sequence[float]) -> None:
    """Filled where the policy was kept; each step has its colour."""
    steps = list(dict.fromkeys(row["step"] for row in attempts))
    for step, colour in zip(steps, _colours(len(steps)), strict=True):
        own = [(t, row) for t, row in zip(ends, attempts, strict=True) if row["step"] == step]
        reach = np.array([_gain_reach(row) for _, row in own]).T
        times = [t for t, _ in own]
        costs = [row["cost"] for _, row in own]
        panel.errorbar(times, costs, reach, fmt="none", ecolor=colour, elinewidth=1, capsize=2)
        for kept in (True, False):
            here = [(t, row["cost"]) for t, row in own if row["accepted"] == kept]
            if here:
                panel.scatter(
                    *zip(*here, strict=True),
                    s=34,
                    zorder=3,
                    edgecolors=colour,
                    facecolors=colour if kept else current().paper,
                    label=f"{step}, {'kept' if kept else 'not kept'}",
                )


def _gain_ends(row: Json) -> tuple[float, float]:
    below, above = _gain_reach(row)
    return row["cost"] - below, row["cost"] + above


def _gain_reach(row: Json) -> tuple[float, float]:
    """How far the interval of the gain reaches below and above the cost."""
    gain = row["gain"]
    if gain is None or not all(is_known(gain[key]) for key in ("value", "lower", "upper")):
        return 0.0, 0.0
    return gain["upper"] - gain["value"], gain["value"] - gain["lower"]


def _draw_interval(panel: Any, x: float, cost: float, row: Json, marker: str, label: str) -> None:
    low, high = (finite_or_nan(row[key]) for key in ("cost_lower", "cost_upper"))
    reach = np.nan_to_num([[cost - low], [high - cost]])
    panel.errorbar(
        [x],
        [cost],
        reach,
        fmt=marker,
        markersize=5,
        color=current().ink,
        capsize=3,
        label=label,
        zorder=4,
    )


def _draw_bound(panel: Any, found: Json) -> None:
    if is_known(found.get("lower_bound")):
        words = f"lower bound ({found['lower_bound_kind']})"
        panel.axhline(
            found["lower_bound"], linestyle="--", color=current().faint, linewidth=1.2, label=words
        )


def _limit(
    panel: Any, shown: Sequence[float], attempts: Sequence[Json], ends: Sequence[float]
) -> None:
    """The costs that matter fill the panel; attempts far above are marked at its upper edge."""
    finite = [v for v in shown if math.isfinite(v)]
    if not finite:
        return
    room = 0.12 * max(max(finite) - min(finite), 0.02 * max(map(abs, finite)), 1e-9)
    top = max(finite) + room
    panel.set_ylim(min(finite) - room, top)
    beyond = [t for t, row in zip(ends, attempts, strict=True) if row["cost"] > top]
    if beyond:
        panel.scatter(
            beyond,
            [top] * len(beyond),
            marker="^",
            color=current().faint,
            clip_on=False,
            zorder=5,
            label="costs more than is shown",
        )


def _trace(found: Json, rows: Sequence[Json]) -> Figure:
    """Objective and violations along the penalties, in the order in which they were solved."""
    figure = empty(8.5, 3.6)
    left, right = figure.subplots(1, 2)
    done = list(accumulate(row["samples"] for row in rows))
    words = "constraints drawn, in sum"
    if done[-1] == 0:  # over all constraints
        done = list(range(1, len(rows) + 1))
        words = "penalties solved"
    left.plot(done, [row["objective"] for row in rows], marker="o", label="objective ℓᵀu")
    left.plot(done, [row["surrogate"] for row in rows], marker="s", label="surrogate c")
    right.plot(done, [row["violation_flow"] for row in rows], marker="o", label="flow")
    right.plot(done, [row["violation_negative"] for row in rows], marker="s", label="negative part")
    for x, row in zip(done, rows, strict=True):
        left.annotate(
            f"H = {flow_penalty(row['penalty']):g}",
            (x, row["objective"]),
            (0, 6),
            textcoords="offset points",
            fontsize="x-small",
            ha="center",
        )
    left.set(xlabel=words, ylabel=_cost_word(found), title="objective and surrogate")
    right.set(xlabel=words, title="violations")
    right.set_yscale("symlog", linthresh=1e-6)
    right.set_ylim(bottom=0)
    for panel in (left, right):
        panel.legend()
    return figure


# -- costs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dot:
    """One row: a name, a cost with its ends, how it is known, and what is doubtful about it."""

    name: str
    cost: float
    lower: float
    upper: float
    known: str
    doubt: str = ""


@drawn
def costs(result: Json | Result, optimum: float | None = None) -> Figure:
    """Heuristics, the policy found, the lower bound and, if it is given, the optimum: dots with 95%
    intervals.
    """
    found = _plain(result)
    rows = cost_rows(found, optimum)
    figure = empty(8.0, 1.2 + 0.34 * len(rows))
    panel = figure.subplots()
    words = list(dict.fromkeys(row.known for row in rows))
    colours = dict(zip(words, _colours(len(words)), strict=True))
    for known in words:
        own = [
            (k, row) for k, row in enumerate(rows) if row.known == known and math.isfinite(row.cost)
        ]
        centres = [row.cost for _, row in own]
        places = [k for k, _ in own]
        reach = [[row.cost - row.lower for _, row in own], [row.upper - row.cost for _, row in own]]
        if known == MEASURED:
            label = f"{known}, 95% interval"
        else:
            label = known
        panel.errorbar(
            centres, places, xerr=reach, fmt="o", capsize=3, color=colours[known], label=label
        )
    _write_numbers(panel, rows)
    panel.set_yticks(range(len(rows)), [row.name for row in rows])
    panel.set(
        ylim=(len(rows) - 0.4, -0.6), xlabel=_cost_word(found), title=f"{found['model']}: costs"
    )
    panel.grid(visible=False, axis="y")
    shown = [end for row in rows for end in (row.lower, row.upper) if math.isfinite(end)]
    if shown:  # costs that agree to rounding are shown as one
        room = max(0.04 * (max(shown) - min(shown)), 1e-3 * max(map(abs, shown)), 1e-9)
        panel.set_xlim(min(shown) - room, max(shown) + room)
    figure.legend(loc="outside lower center", ncols=max(len(words), 1))
    return figure


def cost_rows(found: Json, optimum: float | None = None) -> list[Dot]:
    """What `costs` draws, from the policy found to the lower bound."""
    if "source" in found:
        name = found["source"]
    else:
        name = f"dual, H = {flow_penalty(found['penalty']):g}"
    if found["evaluation"] == "exact":
        known = COMPUTED
    else:
        known = MEASURED
    rows = [_dot(f"found: {name}", found, known, str(found["cost_status"]))]
    # of a dual program, `start` is the state that discounted costs are counted from
    if "attempts" in found:
        rows += [
            _dot(row["policy"], row, row.get("known", MEASURED), row["status"])
            for row in found["start"]
        ]
    if optimum is not None:
        rows.append(Dot("optimum", float(optimum), float(optimum), float(optimum), COMPUTED))
    if is_known(found.get("lower_bound")):
        bound = float(found["lower_bound"])
        rows.append(Dot("no policy costs less", bound, bound, bound, found["lower_bound_kind"]))
    return rows


def _dot(name: str, row: Json, known: str, status: str) -> Dot:
    cost, low, high = (finite_or_nan(row[key]) for key in ("cost", "cost_lower", "cost_upper"))
    ends = (cost if math.isnan(low) else low, cost if math.isnan(high) else high)
    doubt = WORDS_OF_DOUBT.get(status, "" if math.isfinite(cost) else "unknown")
    return Dot(name, cost, *ends, known, doubt)


def _write_numbers(panel: Any, rows: Sequence[Dot]) -> None:
    """The costs as a column to the right, with what is doubtful about them."""
    for k, row in enumerate(rows):
        if not math.isfinite(row.cost):
            cost = ""
        elif row.known == MEASURED:
            cost = plus_minus(row.cost, (row.upper - row.lower) / 2)
        else:
            cost = number(row.cost)
        if cost and row.doubt:
            words = f"{cost} ({row.doubt})"
        else:
            words = cost or row.doubt
        panel.text(
            1.02, k, words, transform=panel.get_yaxis_transform(), va="center", fontsize="small"
        )


def _cost_word(found: Json) -> str:
    if found.get("criterion") == "discounted":
        if "gamma" in found:
            return f"discounted cost (γ = {found['gamma']:g})"
        return "discounted cost"
    return "average cost"


def _colours(count: int) -> list[str]:
    palette = current().palette
    return [palette[k % len(palette)] for k in range(count)]
