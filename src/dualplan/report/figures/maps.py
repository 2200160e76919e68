"""Policies as maps over two coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualplan.core.errors import InputError
from dualplan.report.figures.canvas import current, drawn, empty
from dualplan.report.policy_maps import NO_ACTION, PolicyMap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAP_SIDE_INCHES = 3.4  # inches of a map
MAPS_ABREAST = 4
# cells where the policy decides by chance
FADED_CELL_ALPHA = 0.5
CERTAIN_CELL_PROBABILITY = 1 - 1e-9
NAMED_LEVELS = 6
# inches of a column and of a line of the legend
LEGEND_COLUMN_INCHES = 1.35
LEGEND_LINE_INCHES = 0.2
NARROWEST_MAP_INCHES = 4.6


@drawn
def policy_maps(maps: Sequence[PolicyMap], titles: Sequence[str] | None = None) -> Figure:
    """Maps side by side; the same colour is the same action in all of them, lines are where the
    action changes.

    Cells are faded where the policy decides by chance, and empty where there is no state.
    """
    names = _titles(maps, titles)
    shown = sorted(
        {m.labels[a] for m in maps for a in _used(m)}, key=lambda label: _rank(maps, label)
    )
    colours = dict(zip(shown, _colours(len(shown)), strict=True))
    columns = min(len(maps), MAPS_ABREAST)
    rows = -(-len(maps) // columns)
    width = max(MAP_SIDE_INCHES * columns + 0.4, NARROWEST_MAP_INCHES)
    figure = empty(
        width,
        MAP_SIDE_INCHES * rows
        + 0.9
        + LEGEND_LINE_INCHES * -(-(len(shown) + 1) // int(width / LEGEND_COLUMN_INCHES)),
    )
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, found, name in zip(panels, maps, names, strict=False):
        _draw_map(panel, found, colours)
        panel.set(title=name, xlabel=_word(found, found.across), ylabel=_word(found, found.up))
    for panel in panels[len(maps) :]:
        panel.set_axis_off()
    _legend(figure, maps, colours)
    figure.suptitle(_levels(maps), fontsize="medium")
    return figure


def _titles(maps: Sequence[PolicyMap], titles: Sequence[str] | None) -> list[str]:
    if not maps:
        raise InputError("there is no map to draw; make some with policy_map.")
    if titles is None:
        return [m.policy.name if m.server is None else f"{m.policy.name}, {m.server}" for m in maps]
    if len(titles) != len(maps):
        raise InputError(f"{len(maps)} maps need as many titles, got {len(titles)}.")
    return list(titles)


def _word(found: PolicyMap, coordinate: str) -> str:
    """What a coordinate counts."""
    network = found.model
    if coordinate in getattr(network, "class_names", ()):
        return f"class {coordinate}"
    return coordinate


def _used(found: PolicyMap) -> list[int]:
    return [int(a) for a in np.unique(found.actions) if a != NO_ACTION]


def _rank(maps: Sequence[PolicyMap], label: str) -> tuple[int, str]:
    return min(m.labels.index(label) for m in maps if label in m.labels), label


def _colours(count: int) -> list[Any]:
    """The palette, or beyond it steps of a scale that also works with colour blindness."""
    from matplotlib import colormaps

    palette = current().palette
    if count <= len(palette):
        return list(palette[:count])
    return [colormaps["cividis"](k / (count - 1)) for k in range(count)]


def _draw_map(panel: Any, found: PolicyMap, colours: dict[str, Any]) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import BoundaryNorm, ListedColormap

    used = _used(found)
    if used:
        edges = [used[0] - 0.5, *(a + 0.5 for a in used)]
        ends = [
            found.across_values[0] - 0.5,
            found.across_values[-1] + 0.5,
            found.up_values[0] - 0.5,
            found.up_values[-1] + 0.5,
        ]
        panel.imshow(
            np.ma.masked_equal(found.actions, NO_ACTION),
            origin="lower",
            extent=ends,
            aspect="auto",
            zorder=1,
            interpolation="nearest",
            cmap=ListedColormap([colours[found.labels[a]] for a in used]),
            norm=BoundaryNorm(edges, len(used)),
            alpha=np.where(found.chance >= CERTAIN_CELL_PROBABILITY, 1.0, FADED_CELL_ALPHA),
        )
    panel.add_collection(
        LineCollection(switching(found), colors=current().ink, linewidths=1.2, zorder=2)
    )
    panel.grid(visible=False)


def switching(found: PolicyMap) -> list[list[tuple[float, float]]]:
    """The sides of cells across which the action changes, as segments."""
    x = found.across_values
    y = found.up_values
    a = found.actions
    rows, columns = np.nonzero(a[:, 1:] != a[:, :-1])
    upright = [
        [(x[c] + 0.5, y[r] - 0.5), (x[c] + 0.5, y[r] + 0.5)]
        for r, c in zip(rows, columns, strict=True)
    ]
    rows, columns = np.nonzero(a[1:] != a[:-1])
    flat = [
        [(x[c] - 0.5, y[r] + 0.5), (x[c] + 0.5, y[r] + 0.5)]
        for r, c in zip(rows, columns, strict=True)
    ]
    return [[(float(p), float(q)) for p, q in segment] for segment in upright + flat]


def _legend(figure: Any, maps: Sequence[PolicyMap], colours: dict[str, Any]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, label=label) for label, colour in colours.items()]
    if any((m.chance[m.actions != NO_ACTION] < CERTAIN_CELL_PROBABILITY).any() for m in maps):
        handles.append(
            Patch(facecolor=current().faint, alpha=FADED_CELL_ALPHA, label="faded: by chance")
        )
    room = int(figure.get_figwidth() / LEGEND_COLUMN_INCHES)
    if maps[0].server is not None:
        title = "class served"
    else:
        title = "action"
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(len(handles), room), title=title
    )


def _levels(maps: Sequence[PolicyMap]) -> str:
    """The values of the other coordinates, where all maps have the same."""
    agreed = {
        name: v for name, v in maps[0].levels.items() if all(m.levels.get(name) == v for m in maps)
    }
    words = [f"{_word(maps[0], name)} at {value}" for name, value in agreed.items()]
    if not words:
        return ""
    if len(words) > NAMED_LEVELS and len(set(agreed.values())) == 1:
        return f"held fixed: {len(words)} others at {next(iter(agreed.values()))}"
    if len(words) > NAMED_LEVELS:
        more = f", {len(words) - NAMED_LEVELS} more"
    else:
        more = ""
    return "held fixed: " + ", ".join(words[:NAMED_LEVELS]) + more
