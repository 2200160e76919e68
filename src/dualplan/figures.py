"""Figures, drawn without a display and saved whole or not at all."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualplan.errors import InputError
from dualplan.runs import write_bytes
from dualplan.types import Json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")


def require_drawable(out: str | Path) -> Path:
    """Raise unless a figure can be written to this file."""
    path = Path(out)
    if path.suffix[1:] not in FORMATS:
        raise InputError(f"the figure's file must end in .png, .pdf or .svg, got {str(out)!r}.")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r} for the figure.")
    return path


def blank(panels: int) -> tuple[Figure, Any]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure  # half a second, which commands that draw nothing need not spend

    figure = Figure(figsize=(13, 4), layout="constrained")
    return figure, figure.subplots(1, panels)


def save(figure: Figure, path: str | Path) -> None:
    """Save in the format that the name asks for."""
    target, buffer = require_drawable(path), io.BytesIO()
    figure.savefig(buffer, format=target.suffix[1:], dpi=150)
    write_bytes(target, buffer.getvalue())


def draw_curve(rows: Sequence[Json], path: str | Path, title: str, lines: Mapping[str, float] | None = None) -> None:
    """Objective, violations and the cost of the policies against H, from rows with these keys.

    penalty, objective, surrogate, violation_negative, violation_flow, cost, cost_lower and cost_upper; `F` if there is
    one. `lines` are drawn across the costs.
    """
    figure, panels = blank(3)
    penalties = [_flow(row["penalty"]) for row in rows]
    for key, words in (("objective", "objective ℓᵀu"), ("surrogate", "surrogate c"), ("F", "F = c + β/H")):
        if all(row.get(key) is not None for row in rows):
            panels[0].plot(penalties, [row[key] for row in rows], marker=".", label=words)
    for key, words in (("violation_negative", "negative part"), ("violation_flow", "flow")):
        panels[1].plot(penalties, [row[key] for row in rows], marker=".", label=words)
    # an infinite cost, or one that is not known, has no place
    costs, lower, upper = (
        np.array([_finite(row[key]) for row in rows]) for key in ("cost", "cost_lower", "cost_upper")
    )
    reach = np.nan_to_num([costs - lower, upper - costs])
    panels[2].errorbar(penalties, costs, reach, marker=".", capsize=2, label="cost of the policy")
    panels[2].plot(penalties, [row["objective"] for row in rows], linestyle=":", label="objective ℓᵀu, its estimate")
    for style, (name, value) in zip(("--", "-.", (0, (1, 4))), (lines or {}).items(), strict=False):
        panels[2].axhline(value, linestyle=style, color="black", linewidth=1, label=f"{name} {value:.5g}")
    for panel, words in zip(panels, ("LP objective and surrogate", "violations", "cost"), strict=True):
        panel.set(title=words, xlabel="H", xscale="log")
        panel.legend(fontsize="small")
    panels[0].set_yscale("symlog")
    panels[1].set_yscale("symlog", linthresh=1e-6)
    panels[1].set_ylim(bottom=0)
    shown = [*costs[np.isfinite(costs)], *(lines or {}).values()]
    if shown:  # the objective may be far away
        room = 0.1 * max(max(shown) - min(shown), 0.1 * max(map(abs, shown)), 1e-9)
        panels[2].set_ylim(min(shown) - room, max(shown) + room)
    figure.suptitle(title)
    save(figure, path)


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.nan


def _flow(penalty: Any) -> float:
    """H of the flow, where the two violations are weighed apart."""
    return float(penalty[1] if isinstance(penalty, list) else penalty)
