"""The least cost against a limit: curves with their bands, heuristics, and what is proved below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualplan.core.encoding import is_known
from dualplan.core.types import Floats, Json
from dualplan.core.words import number
from dualplan.report.figures.canvas import current, drawn, empty

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL_WIDTH_INCHES = 7.4
PANEL_HEIGHT_INCHES = 5.2
LEGEND_BELOW = -0.12  # of the panel's height
MOST_NAMES = 4  # of policies that are not shown
MOST_PRICES = 4  # that are written at a curve
# of the range of costs on the curve: heuristics farther above are named at the upper edge
ROOM_ABOVE_SHARE = 1.0
ROOM_BELOW_SHARE = 0.12
ROOM_FOR_BOUNDS = 1.5  # of the range of costs: bounds farther below are not drawn, but said
ROOM_ASIDE_SHARE = 0.06
# points of a panel's height, and of a line of words; names nearer than this share of the width may
# cover each other
PANEL_POINTS = 260.0
LINE_POINTS = 11.0
NEAR_SHARE = 0.3
# of the range of the curve, by which heuristics may lie to the right of it and be shown
ROOM_BEYOND_SHARE = 0.6


@drawn
def tradeoff(result: Any) -> Figure:
    """A panel for each curve of a trade-off (or of its JSON): cost against the limit with its band,
    prices as slopes, the policies to begin with as dots, and the largest of the proved lines.
    """
    found: Json = result if isinstance(result, dict) else result.to_json()
    curves = found["curves"]
    figure = empty(PANEL_WIDTH_INCHES * len(curves), PANEL_HEIGHT_INCHES)
    panels = figure.subplots(1, len(curves), squeeze=False).ravel()
    for panel, curve in zip(panels, curves, strict=True):
        _draw(panel, curve, found["start"])
    panels[0].set_ylabel(f"{found['criterion']} cost")
    figure.suptitle(f"{found['model']}: least cost against a limit")
    return figure


def _draw(panel: Any, curve: Json, start: Sequence[Json]) -> None:
    points = curve["points"]
    levels = np.array([point["at_most"] for point in points])
    costs = np.array([point["cost"]["value"] for point in points])
    window = _window(curve, start, levels, costs)
    panel.set_xlim(*window[0])
    panel.set_ylim(*window[1])
    _draw_curve(panel, curve, levels, costs)
    _draw_below(panel, curve, levels)
    _draw_prices(panel, points, levels, costs, window)
    _draw_start(panel, curve["measure"], start, window)
    panel.set_xlabel(f"{curve['measure']}, at most")
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, LEGEND_BELOW), ncols=2)


def _window(
    curve: Json, start: Sequence[Json], levels: Floats, costs: Floats
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The curve, the bound below it where that is near, and heuristics that are not far off."""
    wide = float(np.ptp(levels)) or max(abs(float(levels[0])), 1.0)
    high = float(np.ptp(costs)) or max(0.1 * abs(float(costs[0])), 1e-9)
    right = float(levels.max())
    top = float(costs.max())
    for row in start:
        x = row["measures"][curve["measure"]]["value"]
        y = row["cost"]["value"]
        near = x <= levels.max() + ROOM_BEYOND_SHARE * wide
        if is_known(x) and is_known(y) and near and y <= costs.max() + ROOM_ABOVE_SHARE * high:
            right = max(right, x)
            top = max(top, y)
    below = _least_bound(curve)
    bottom = float(costs.min())
    if is_known(below) and below > bottom - ROOM_FOR_BOUNDS * (top - bottom):
        bottom = min(below, bottom)
    room = ROOM_BELOW_SHARE * (top - bottom)
    aside = ROOM_ASIDE_SHARE * (right - float(levels.min())) or 0.5 * wide
    left = float(levels.min()) - aside
    if levels.min() >= 0:
        left = max(left, -0.3 * aside)
    return (left, right + 2 * aside), (bottom - room, top + 1.5 * room)


def _least_bound(curve: Json) -> float:
    """The lower bound where it is least; not a number if there is none."""
    known = [point["lower_bound"] for point in curve["points"]]
    return min((bound for bound in known if is_known(bound)), default=math.nan)


def _draw_curve(panel: Any, curve: Json, levels: Floats, costs: Floats) -> None:
    colour = current().palette[0]
    words = "least cost" if curve["exact"] else "least cost found"
    panel.plot(levels, costs, color=colour, marker=".", markersize=6, label=words, zorder=3)
    if not curve["exact"]:
        ends = [
            np.array([point["cost"][end] for point in curve["points"]])
            for end in ("lower", "upper")
        ]
        panel.fill_between(
            levels, *ends, color=colour, alpha=0.22, linewidth=0, label="its interval"
        )


def _draw_below(panel: Any, curve: Json, levels: Floats) -> None:
    """The largest of the lines, between the points too."""
    lines = [line for line in curve["lines"] if is_known(line["at_zero"])]
    if not lines:
        return
    theme = current()
    at = np.linspace(levels.min(), levels.max(), 200)
    most = np.max([line["at_zero"] - line["price"] * at for line in lines], axis=0)
    kinds = ", ".join(sorted({line["kind"] for line in lines}))
    words = f"no policy costs less ({kinds})"
    if most.max() < panel.get_ylim()[0]:
        words = f"no policy costs less than {number(float(most.min()), 4)} ({kinds}), below"
    panel.plot(at, most, color=theme.ink, linestyle="--", linewidth=1.1, label=words)
    panel.fill_between(at, most, panel.get_ylim()[0], color=theme.faint, alpha=0.12, linewidth=0)


def _draw_prices(
    panel: Any, points: Sequence[Json], levels: Floats, costs: Floats, window: Any
) -> None:
    """At some points how much a unit of the limit is worth, with a short piece of the slope."""
    (left, right), (bottom, top) = window
    theme = current()
    inner = [k for k in range(len(points)) if points[k]["price"] > 0][1:]
    if not inner:
        return
    chosen = sorted({inner[round(k)] for k in np.linspace(0, len(inner) - 1, MOST_PRICES)})
    length = 0.07 * (right - left)
    for k in chosen:
        price = points[k]["price"]
        # as long on paper, however steep it is
        steep = price / (top - bottom) * (right - left)
        step = length / math.hypot(1.0, steep)
        at = np.array([levels[k] - step, levels[k] + step])
        panel.plot(
            at, costs[k] - price * (at - levels[k]), color=theme.ink, linewidth=1.4, zorder=4
        )
        panel.annotate(
            f"price {price:.2g}",
            (levels[k], costs[k]),
            xytext=(5, 5),
            textcoords="offset points",
            ha="left",
            va="bottom",
            fontsize="small",
            color=theme.ink,
            bbox={"boxstyle": "round,pad=0.15", "fc": theme.paper, "ec": "none", "alpha": 0.75},
            zorder=5,
        )


def _draw_start(panel: Any, measure: str, start: Sequence[Json], window: Any) -> None:
    """Policies to begin with, by name; those outside are named at the edge."""
    (left, right), (bottom, top) = window
    colour = current().palette[1]
    outside = []
    labelled = False
    seen: list[tuple[float, float, str]] = []
    for row in start:
        x = row["measures"][measure]["value"]
        y = row["cost"]["value"]
        if not is_known(x) or not is_known(y):
            continue
        if not (left <= x <= right and bottom <= y <= top):
            outside.append(row["policy"])
            continue
        words = None if labelled else "policies to begin with"
        labelled = True
        panel.plot([x], [y], "o", color=colour, markersize=6, label=words, zorder=4)
        seen.append((x, y, row["policy"]))
    _name(panel, seen, window)
    if outside:
        words = ", ".join(outside[:MOST_NAMES])
        if len(outside) > MOST_NAMES:
            words += f" and {len(outside) - MOST_NAMES} more"
        panel.set_title(f"farther off: {words}", fontsize="small", loc="left")


def _name(panel: Any, seen: list[tuple[float, float, str]], window: Any) -> None:
    """Names beside dots, from below upwards, each above those that it would cover."""
    (left, right), (bottom, top) = window
    taken: list[tuple[float, float]] = []
    for x, y, name in sorted(seen, key=lambda one: one[1]):
        late = x > left + 0.75 * (right - left)
        at = (y - bottom) / (top - bottom) * PANEL_POINTS
        height = at + 4
        for other, place in sorted(taken, key=lambda one: one[1]):
            beside = abs(x - other) < NEAR_SHARE * (right - left)
            if beside and abs(height - place) < LINE_POINTS:
                height = place + LINE_POINTS
        taken.append((x, height))
        panel.annotate(
            name,
            (x, y),
            xytext=(-7 if late else 7, height - at),
            textcoords="offset points",
            ha="right" if late else "left",
            fontsize="small",
            color=current().palette[1],
            zorder=5,
        )
