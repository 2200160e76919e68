"""The dual program along its penalties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualplan.core.encoding import is_known
from dualplan.core.types import Json
from dualplan.report.figures.canvas import blank, current, drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE_STYLES = ("--", "-.", (0, (1, 4)))


@drawn
def curve(rows: Sequence[Json], title: str, lines: Mapping[str, float] | None = None) -> Figure:
    """Objective, violations and the cost of the policies against H, from rows with these keys.

    penalty, objective, surrogate, violation_negative, violation_flow, cost, cost_lower and
    cost_upper; `F` if there is one. `lines` are drawn across the costs.
    """
    figure, panels = blank(3)
    penalties = [flow_penalty(row["penalty"]) for row in rows]
    for key, words in (
        ("objective", "objective ℓᵀu"),
        ("surrogate", "surrogate c"),
        ("F", "F = c + β/H"),
    ):
        if all(row.get(key) is not None for row in rows):
            panels[0].plot(penalties, [row[key] for row in rows], marker=".", label=words)
    for key, words in (("violation_negative", "negative part"), ("violation_flow", "flow")):
        panels[1].plot(penalties, [row[key] for row in rows], marker=".", label=words)
    costs = _draw_costs(panels[2], penalties, rows)
    for style, (name, value) in zip(LINE_STYLES, (lines or {}).items(), strict=False):
        panels[2].axhline(
            value, linestyle=style, color=current().ink, linewidth=1, label=f"{name} {value:.5g}"
        )
    for panel, words in zip(
        panels, ("LP objective and surrogate", "violations", "cost"), strict=True
    ):
        panel.set(title=words, xlabel="H", xscale="log")
        panel.legend()
    panels[0].set_yscale("symlog")
    panels[1].set_yscale("symlog", linthresh=1e-6)
    panels[1].set_ylim(bottom=0)
    shown = [*costs[np.isfinite(costs)], *(lines or {}).values()]
    if shown:  # the objective may be far away
        room = 0.1 * max(max(shown) - min(shown), 0.1 * max(map(abs, shown)), 1e-9)
        panels[2].set_ylim(min(shown) - room, max(shown) + room)
    figure.suptitle(title)
    return figure


def _draw_costs(panel: Any, penalties: list[float], rows: Sequence[Json]) -> Any:
    """Costs with their intervals; an infinite cost, or one that is not known, has no place."""
    costs, lower, upper = (
        np.array([finite_or_nan(row[key]) for row in rows])
        for key in ("cost", "cost_lower", "cost_upper")
    )
    reach = np.nan_to_num([costs - lower, upper - costs])
    panel.errorbar(penalties, costs, reach, marker=".", capsize=2, label="cost of the policy")
    panel.plot(
        penalties,
        [row["objective"] for row in rows],
        linestyle=":",
        label="objective ℓᵀu, its estimate",
    )
    return costs


def finite_or_nan(value: float | None) -> float:
    """A number that Matplotlib leaves out where it is not known or infinite."""
    if value is not None and is_known(value):
        return value
    return math.nan


def flow_penalty(penalty: Any) -> float:
    """H of the flow, where the two violations are weighed apart."""
    return float(penalty[1] if isinstance(penalty, list) else penalty)
