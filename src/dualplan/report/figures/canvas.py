"""What all figures share: colours for light and dark pages, a figure without a display, files and
SVG for pages.

A theme is chosen for a block of code, and every figure drawn in it wears its colours:

    with theme("dark"):
        figure = policy_maps(maps)
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from dualplan.core.errors import InputError, unknown
from dualplan.core.runs import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_FORMATS = ("png", "svg", "pdf")
P = ParamSpec("P")


@dataclass(frozen=True)
class Theme:
    """Colours: of text and lines, of the page, of the grid, of what is in the background, and of
    the data.

    The data's colours can be told apart with the common kinds of colour blindness (Okabe & Ito
    2008; the dark theme has lighter tones of the same hues).
    """

    name: str
    ink: str
    paper: str
    grid: str
    faint: str
    palette: tuple[str, ...]

    def settings(self) -> Any:
        """In Matplotlib's words."""
        from cycler import cycler

        return {
            "figure.facecolor": self.paper,
            "axes.facecolor": self.paper,
            "savefig.facecolor": self.paper,
            "text.color": self.ink,
            "axes.labelcolor": self.ink,
            "axes.edgecolor": self.faint,
            "axes.titlecolor": self.ink,
            "xtick.color": self.ink,
            "ytick.color": self.ink,
            "grid.color": self.grid,
            "grid.linewidth": 0.8,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11,
            "font.size": 10,
            "legend.frameon": False,
            "legend.fontsize": "small",
            "axes.prop_cycle": cycler(color=self.palette),
        }


LIGHT_THEME = Theme(
    "light",
    "#1f2328",
    "#ffffff",
    "#e4e7eb",
    "#8b949e",
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#5e4fa2", "#56b4e9", "#8c6d31"),
)
DARK_THEME = Theme(
    "dark",
    "#e6edf3",
    "#0d1117",
    "#2d333b",
    "#768390",
    ("#56b4e9", "#ff9354", "#3fd0a0", "#e69fc9", "#f0c243", "#b3a6f2", "#b8e0ff", "#d6b46c"),
)
THEMES = {theme.name: theme for theme in (LIGHT_THEME, DARK_THEME)}

_current: ContextVar[Theme] = ContextVar("theme", default=LIGHT_THEME)


def current() -> Theme:
    """The theme that figures are drawn in now."""
    return _current.get()


@contextmanager
def theme(chosen: str | Theme) -> Iterator[Theme]:
    """Draw the figures of a block in "light", "dark" or colours of your own."""
    if isinstance(chosen, str) and chosen not in THEMES:
        raise unknown("theme", chosen, THEMES)
    token = _current.set(THEMES[chosen] if isinstance(chosen, str) else chosen)
    try:
        yield current()
    finally:
        _current.reset(token)


def drawn(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """For functions that draw: in the theme's settings of Matplotlib, and words are no formulas."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Figure:
        from matplotlib import (
            rc_context,
        )  # half a second, which commands that draw nothing need not spend

        with rc_context(current().settings()):
            return _letter_by_letter(draw(*args, **kwargs))

    return wrapped


def _letter_by_letter(figure: Figure) -> Figure:
    """The figure with a `$` in its words as a `$`, for words are names that users gave.

    The numbers along axes are Matplotlib's own, which writes powers of ten as formulas.
    """
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)]
    numbered = [axis for axis in axes if not isinstance(axis.get_major_formatter(), FixedFormatter)]
    numbers = {id(text) for axis in numbered for text in axis.get_ticklabels(which="both")}
    for text in figure.findobj(Text):
        if id(text) not in numbers:
            text.set_parse_math(False)
    return figure


def empty(width: float, height: float) -> Figure:
    """A figure of this size in inches, without a display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def blank(panels: int) -> tuple[Figure, Any]:
    """A figure with panels side by side."""
    figure = empty(13, 4)
    return figure, figure.subplots(1, panels)


def require_drawable(out: str | Path) -> Path:
    """Raise unless a figure can be written to this file."""
    path = Path(out)
    if path.suffix[1:] not in FIGURE_FORMATS:
        raise InputError(f"the figure's file must end in .png, .pdf or .svg, got {str(out)!r}.")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r} for the figure.")
    return path


def save(figure: Figure, path: str | Path, *, dpi: int = 150) -> None:
    """Save in the format that the name asks for, whole or not at all."""
    target = require_drawable(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=target.suffix[1:], dpi=dpi)
    write_bytes(target, buffer.getvalue())


def as_svg(figure: Figure, title: str = "") -> str:
    """An <svg> element for a page: the same drawing gives the same text, and no two figures share
    an id.

    Letters stay letters, so that they can be searched and read aloud. `title` is what a screen
    reader says.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "dualplan", "svg.fonttype": "none"}):
        figure.savefig(
            buffer,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    text = buffer.getvalue()
    return _labelled(_own_ids(_own_style(text[text.index("<svg") :].rstrip())), title)


def _own_style(text: str) -> str:
    """A style sheet inside an element would be one for the whole page."""
    sheet = re.search(r"\s*<defs>\s*<style[^>]*>\*\{([^}]*)\}</style>\s*</defs>", text)
    if sheet is None:
        return text
    return text.replace(sheet.group(0), "", 1).replace(
        "<svg ", f'<svg style="{sheet.group(1)}" ', 1
    )


def _own_ids(text: str) -> str:
    """Matplotlib numbers the parts of each figure from 1 on.

    In a page they need names of their own.
    """
    prefix = "f" + hashlib.sha256(text.encode()).hexdigest()[:10]
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", text)


def _labelled(text: str, title: str) -> str:
    if not title:
        return text.replace("<svg ", '<svg role="img" ', 1)
    from html import escape

    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
