"""Queueing networks as diagrams: servers, buffers, arrivals, routes and exits, from the network's
data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualplan.core.errors import InputError
from dualplan.models.queueing import QueueingNetwork
from dualplan.report.figures.canvas import current, drawn
from dualplan.report.figures.layout import (
    ARRIVAL_PLACE,
    OUTSIDE_PLACE,
    SERVER_NAME_HEIGHT,
    SERVER_WIDTH,
    Layout,
    Point,
    Route,
    arrange,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES_A_UNIT = 0.62  # of a unit of the layout
DIAGRAM_MARGIN = 0.3
CAPTION_HEIGHT = 0.8
# from where to where a buffer goes, and half its height
BUFFER_SPAN = (0.22, 1.62)
BUFFER_HALF_HEIGHT = 0.27
# the middle and the radius of the circle that serves
SERVICE_CIRCLE_MIDDLE = 2.1
SERVICE_CIRCLE_RADIUS = 0.36
ROUTE_CORNER_RADIUS = 0.12  # radius of the corners of routes
MOST_FULL_SIZE_LETTERS = 9  # that fit into a buffer at full size


@drawn
def diagram(network: QueueingNetwork) -> Figure:
    """The network: each server a box, each class a buffer (its size, ∞ without limit) and a circle
    with its rate.

    Arrows from nowhere are arrivals with their rates, arrows to nowhere exits; routes have their
    probabilities where these are not 1. Buffers and routes carry ids like `class-0` and
    `route-0-1`, by the numbers of the classes.
    """
    from matplotlib.figure import Figure

    if not isinstance(network, QueueingNetwork):
        raise InputError(f"only queueing networks have a diagram, got {network!r}.")
    places = arrange(network)
    width = places.width + 2 * DIAGRAM_MARGIN
    height = places.height + 2 * DIAGRAM_MARGIN + CAPTION_HEIGHT
    figure = Figure(figsize=(INCHES_A_UNIT * width, INCHES_A_UNIT * height))
    panel = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    panel.set(
        xlim=(-DIAGRAM_MARGIN, width - DIAGRAM_MARGIN),
        ylim=(-DIAGRAM_MARGIN, height - DIAGRAM_MARGIN),
    )
    panel.set_axis_off()
    for s in range(len(network.servers)):
        _draw_server(panel, network, places, s)
    for c in range(len(network.classes)):
        _draw_class(panel, network, c, places.classes[c])
    for route in places.routes:
        _draw_route(panel, route)
    if network.options["time"] == "continuous":
        unit = "unit of time"
    else:
        unit = "step"
    panel.text(
        0.0,
        places.height + CAPTION_HEIGHT / 2,
        f"{network.name}: arrivals and services per {unit}",
        va="center",
    )
    return figure


def _draw_server(panel: Any, network: QueueingNetwork, places: Layout, s: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    (x, y), height = places.servers[s], places.heights[s]
    panel.add_patch(
        FancyBboxPatch(
            (x, y),
            SERVER_WIDTH,
            height,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=current().grid,
            edgecolor=current().faint,
            linewidth=1.0,
            gid=f"server-{s}",
        )
    )
    name = network.servers[s]
    panel.text(
        x + 0.15,
        y + height - SERVER_NAME_HEIGHT / 2,
        _short(name, 14),
        va="center",
        fontweight="bold",
        fontsize=9,
    )
    panel.text(
        x + SERVER_WIDTH - 0.15,
        y + height - SERVER_NAME_HEIGHT / 2,
        f"load {network.loads[name]:.2f}",
        va="center",
        ha="right",
        fontsize=7,
    )


def _draw_class(panel: Any, network: QueueingNetwork, c: int, place: Point) -> None:
    """A buffer open on the left, with the name and the size in it, and the circle that serves."""
    from matplotlib.patches import Circle, Rectangle

    (left, y), theme, own = place, current(), network.classes[c]
    low = left + BUFFER_SPAN[0]
    high = left + BUFFER_SPAN[1]
    panel.add_patch(
        Rectangle(
            (low, y - BUFFER_HALF_HEIGHT),
            high - low,
            2 * BUFFER_HALF_HEIGHT,
            facecolor=theme.paper,
            linewidth=0,
            gid=f"class-{c}",
        )
    )
    panel.plot(
        [low, high, high, low],
        [
            y - BUFFER_HALF_HEIGHT,
            y - BUFFER_HALF_HEIGHT,
            y + BUFFER_HALF_HEIGHT,
            y + BUFFER_HALF_HEIGHT,
        ],
        color=theme.ink,
        linewidth=1.2,
    )
    panel.plot(
        [high, left + SERVICE_CIRCLE_MIDDLE - SERVICE_CIRCLE_RADIUS],
        [y, y],
        color=theme.ink,
        linewidth=1.0,
    )
    panel.add_patch(
        Circle(
            (left + SERVICE_CIRCLE_MIDDLE, y),
            SERVICE_CIRCLE_RADIUS,
            facecolor=theme.paper,
            edgecolor=theme.palette[0],
            linewidth=1.4,
        )
    )
    size = 9 * min(1.0, MOST_FULL_SIZE_LETTERS / len(own.name))
    panel.text(low + 0.1, y, own.name, va="center", fontsize=max(size, 5))
    if own.buffer is None:
        buffer = "∞"
    else:
        buffer = f"≤{own.buffer}"
    panel.text(
        high - 0.06, y - BUFFER_HALF_HEIGHT + 0.04, buffer, va="bottom", ha="right", fontsize=6.5
    )
    panel.text(
        left + SERVICE_CIRCLE_MIDDLE, y, f"{own.service:.3g}", ha="center", va="center", fontsize=7
    )


def _draw_route(panel: Any, route: Route) -> None:
    from matplotlib.patches import FancyArrowPatch

    theme = current()
    if route.source == ARRIVAL_PLACE:
        source = "arrival"
    else:
        source = str(route.source)
    if route.target == OUTSIDE_PLACE:
        target = "out"
    else:
        target = str(route.target)
    if route.source == ARRIVAL_PLACE:
        colour = theme.palette[2]
    elif route.target == OUTSIDE_PLACE:
        colour = theme.palette[1]
    else:
        colour = theme.ink
    panel.add_patch(
        FancyArrowPatch(
            path=_rounded(route.corners),
            arrowstyle="-|>",
            mutation_scale=9,
            linewidth=1.1,
            color=colour,
            fill=False,
            gid=f"route-{source}-{target}",
        )
    )
    (x, y), end = route.corners[0], route.corners[-1]
    words = f"{route.rate:.3g}"
    if route.source == ARRIVAL_PLACE:
        panel.text(x, y + 0.03, words, fontsize=7, va="bottom", color=colour)
    elif route.target == OUTSIDE_PLACE:
        if route.rate > 1 - 1e-9:
            label = "out"
        else:
            label = f"out {words}"
        panel.text(end[0] + 0.03, y, label, fontsize=6, va="center", color=colour)
    elif route.rate < 1 - 1e-9:
        panel.text(
            x + 0.08,
            y,
            words,
            fontsize=6,
            va="center",
            bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 0.4},
        )


def _rounded(corners: tuple[Point, ...]) -> Any:
    """The line through the corners, bent a little before each."""
    from matplotlib.path import Path

    points = [corners[0]]
    codes = [Path.MOVETO]
    for before, corner, after in zip(corners, corners[1:], corners[2:], strict=False):
        points += [_towards(corner, before), corner, _towards(corner, after)]
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    return Path([*points, corners[-1]], [*codes, Path.LINETO])


def _towards(corner: Point, other: Point) -> Point:
    """A point near the corner on the way to another, at most half way."""
    dx = other[0] - corner[0]
    dy = other[1] - corner[1]
    length = max(abs(dx), abs(dy))
    if length > 0:
        part = min(ROUTE_CORNER_RADIUS, length / 2) / length
    else:
        part = 0.0
    return corner[0] + part * dx, corner[1] + part * dy


def _short(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    return f"{name[: most - 1]}…"
