"""Costs of fixed policies along the factors of rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.status import COMPUTED, MEASURED, Status
from dualplan.evaluation.sensitivity import Sensitivity
from dualplan.report.figures.canvas import current, drawn, empty

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# panels in a row, and in all
RATE_PANELS_ABREAST = 4
MOST_RATE_PANELS = 12
# inches of a panel
RATE_PANEL_WIDTH_INCHES = 3.0
RATE_PANEL_HEIGHT_INCHES = 2.3


@drawn
def sensitivity(found: Sequence[Sensitivity]) -> Figure:
    """A panel for each rate, the rates that matter most first: cost against factor, a line and a
    band for each policy.

    Crosses at the upper edge are factors at which a policy is unstable. At most twelve rates are
    shown.
    """
    if not found:
        raise InputError("there is nothing to draw; make something with sensitivity.")
    policies = list(dict.fromkeys(s.policy for s in found))
    rates = _by_effect(found)[:MOST_RATE_PANELS]
    columns = min(len(rates), RATE_PANELS_ABREAST)
    rows = -(-len(rates) // columns)
    figure = empty(RATE_PANEL_WIDTH_INCHES * columns + 0.4, RATE_PANEL_HEIGHT_INCHES * rows + 0.8)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for panel, rate in zip(panels, rates, strict=False):
        for s in (s for s in found if s.rate == rate):
            _draw_line(panel, s, policies.index(s.policy))
        panel.axvline(1.0, color=current().faint, linewidth=0.8, linestyle=":")
        panel.set(title=rate, xlabel="factor")
    for panel in panels[: len(rates) : columns]:
        panel.set_ylabel("average cost")
    for panel in panels[len(rates) :]:
        panel.set_axis_off()
    lines = {line.get_label(): line for panel in panels[: len(rates)] for line in panel.lines}
    known = "; ".join(_words(found))
    figure.legend(
        [lines[p] for p in policies],
        policies,
        loc="outside lower center",
        ncols=min(len(policies), 5),
        title=known,
    )
    return figure


def _by_effect(found: Sequence[Sensitivity]) -> list[str]:
    """The rates, those first that change the cost of a policy most."""
    effects: dict[str, float] = {}
    for s in found:
        effects[s.rate] = max(effects.get(s.rate, 0.0), s.effect)
    return sorted(effects, key=lambda rate: -effects[rate])


def _draw_line(panel: Any, s: Sensitivity, place: int) -> None:
    colour = current().palette[place % len(current().palette)]
    factors = np.array([p.factor for p in s.points])
    costs, lower, upper = (
        np.array([value if math.isfinite(value) else math.nan for value in values])
        for values in zip(*((p.cost, p.lower, p.upper) for p in s.points), strict=True)
    )
    panel.plot(factors, costs, marker=".", color=colour, label=s.policy)
    panel.fill_between(factors, lower, upper, color=colour, alpha=0.25, linewidth=0)
    gone = [f for f, c in zip(factors, costs, strict=True) if math.isnan(c)]
    if gone:
        panel.plot(
            gone,
            [0.97] * len(gone),
            "x",
            color=colour,
            transform=panel.get_xaxis_transform(),
            clip_on=False,
            label=f"{s.policy}, unstable",
        )
        if gone[0] < 1:
            inward = 1
        else:
            inward = -1
        panel.annotate(
            "unstable",
            (gone[0], 0.97),
            (6 * inward, 0),
            xycoords=panel.get_xaxis_transform(),
            textcoords="offset points",
            ha="left" if inward > 0 else "right",
            va="center",
            fontsize="x-small",
        )
    short = [(p.factor, p.cost) for p in s.points if p.status is Status.TOO_SHORT]
    if short:
        panel.scatter(
            *zip(*short, strict=True), s=22, facecolors=current().paper, edgecolors=colour, zorder=3
        )


def _words(found: Sequence[Sensitivity]) -> list[str]:
    """How the costs are known, and what hollow dots mean if there are any."""
    points = [p for s in found for p in s.points if math.isfinite(p.cost)]
    bands = {COMPUTED: COMPUTED, MEASURED: "measured, with intervals"}
    words = list(dict.fromkeys(bands[p.known] for p in points))
    if any(p.status is Status.TOO_SHORT for p in points):
        return [*words, "hollow: run too short"]
    return words
