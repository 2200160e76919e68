"""Rows as a figure: a line for each, our cost as a dot with its interval beside the one from
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualplan.cli.experiments.rows import PUBLISHED_SOURCE, Outcome, Row
from dualplan.report.figures import blank, save

# inches of a line, and of a figure
LINE_HEIGHT_INCHES = 0.32
LEAST_HEIGHT_INCHES = 3.5
# ratio of the largest to the smallest cost from which on the axis is logarithmic
LOGARITHMIC_AXIS_RATIO = 5.0
OUR_COLOUR = "tab:blue"
THEIR_COLOUR = "tab:orange"


def draw_rows(outcome: Outcome, path: Path) -> None:
    """A panel for each network, the optimum as a line across it."""
    networks = list(dict.fromkeys(row.network for row in outcome.rows))
    figure, panels = blank(len(networks))
    lines = 0
    for panel, network in zip(np.atleast_1d(panels), networks, strict=True):
        rows = [
            row for row in outcome.rows if row.network == network and (row.ours or row.published)
        ]
        _panel(panel, rows, network)
        lines = max(lines, len(rows))
    figure.set_size_inches(13, max(LEAST_HEIGHT_INCHES, 1.2 + LINE_HEIGHT_INCHES * lines))
    figure.suptitle(outcome.title)
    save(figure, path)


def _panel(panel: Any, rows: Sequence[Row], title: str) -> None:
    places = np.arange(len(rows))[::-1]
    ours = [
        (row.ours, *row.interval, y)
        for row, y in zip(rows, places, strict=True)
        if row.ours is not None
    ]
    theirs = [
        (row.published, y) for row, y in zip(rows, places, strict=True) if row.published is not None
    ]
    if ours:
        cost, lower, upper, y = (np.array(column) for column in zip(*ours, strict=True))
        panel.errorbar(
            cost,
            y + 0.1,
            xerr=[cost - lower, upper - cost],
            fmt="o",
            color=OUR_COLOUR,
            capsize=2,
            label="ours",
        )
    if theirs:
        cost, error = (
            np.array([getattr(known, key) or 0.0 for known, _ in theirs])
            for key in ("value", "error")
        )
        sources = ", ".join(dict.fromkeys(known.source for known, _ in theirs)) or PUBLISHED_SOURCE
        panel.errorbar(
            cost,
            np.array([y for _, y in theirs]) - 0.1,
            xerr=error,
            fmt="D",
            color=THEIR_COLOUR,
            mfc="none",
            capsize=2,
            label=sources,
        )
    for value in dict.fromkeys(row.optimum for row in rows if row.optimum is not None):
        panel.axvline(
            value, color="black", linewidth=1, linestyle="--", label=f"optimum {value:.4g}"
        )
    panel.set(title=title, xlabel="cost", ylim=(-0.7, len(rows) - 0.3))
    panel.set_yticks(places, [row.name for row in rows], fontsize="small")
    costs = [c for c, *_ in ours] + [known.value for known, _ in theirs]
    if min(costs) > 0 and max(costs) > LOGARITHMIC_AXIS_RATIO * min(costs):
        panel.set_xscale("log")
    panel.legend(fontsize="small")
