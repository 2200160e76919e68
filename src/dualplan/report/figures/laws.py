"""Stationary laws of coordinates, several policies over each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.status import MEASURED, Status
from dualplan.evaluation.marginals import Marginal
from dualplan.report.figures.canvas import current, drawn, empty

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAW_PANELS_ABREAST = 4
# inches of a panel
LAW_PANEL_WIDTH_INCHES = 3.1
LAW_PANEL_HEIGHT_INCHES = 2.4
NOT_SHOWN_PROBABILITY = 1e-3  # probability that may lie to the right of what is shown


@drawn
def marginals(found: Sequence[Marginal], *, log: bool = False) -> Figure:
    """A panel for each coordinate, a line for each policy, bands where the law was measured.

    The far right is left out where all policies together have a probability of at most 10⁻³; with
    `log` nothing is.
    """
    from matplotlib.ticker import MaxNLocator

    if not found:
        raise InputError("there is no law to draw; make some with marginals.")
    names = list(dict.fromkeys(m.coordinate for m in found))
    policies = list(dict.fromkeys(m.policy for m in found))
    columns = min(len(names), LAW_PANELS_ABREAST)
    rows = -(-len(names) // columns)
    figure = empty(LAW_PANEL_WIDTH_INCHES * columns + 0.4, LAW_PANEL_HEIGHT_INCHES * rows + 0.7)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, name in zip(panels, names, strict=False):
        own = [m for m in found if m.coordinate == name]
        for m in own:
            _draw_law(panel, m, policies.index(m.policy))
        panel.set(title=name, xlabel="value", xlim=_limits(own, log))
        panel.set_yscale("log" if log else "linear")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    for panel in panels[::columns]:
        panel.set_ylabel("probability")
    lines = {line.get_label(): line for panel in panels for line in panel.lines}
    words = [_words([m for m in found if m.policy == policy]) for policy in policies]
    figure.legend(
        [lines[policy] for policy in policies],
        words,
        loc="outside lower center",
        ncols=min(len(words), 4),
    )
    return figure


def _draw_law(panel: Any, m: Marginal, place: int) -> None:
    colour = current().palette[place % len(current().palette)]
    x = np.append(m.values, m.values[-1] + m.width) - 0.5
    panel.step(
        x,
        np.append(m.probabilities, m.probabilities[-1]),
        where="post",
        color=colour,
        label=m.policy,
    )
    if m.known == MEASURED:
        ends = [np.append(values, values[-1]) for values in (m.lower, m.upper)]
        panel.fill_between(x, *ends, step="post", color=colour, alpha=0.25, linewidth=0)


def _words(own: Sequence[Marginal]) -> str:
    """A policy, how its laws are known, and what speaks against them."""
    statuses = {m.status for m in own}
    name = own[0].policy
    if Status.UNSTABLE in statuses:
        return f"{name} (unstable: no stationary law)"
    return f"{name} ({own[0].known}{', too short a run' if Status.TOO_SHORT in statuses else ''})"


def _limits(own: Sequence[Marginal], log: bool) -> tuple[float, float]:
    low = min(int(m.values[0]) for m in own)
    if log:
        return low - 0.5, max(int(m.values[-1]) + m.width for m in own) - 0.5
    return low - 0.5, max(
        int(m.values[m.tail > NOT_SHOWN_PROBABILITY][-1]) + m.width for m in own
    ) - 0.5
