"""Figures, drawn without a display and saved whole or not at all; the only place that imports
Matplotlib.

Every function here draws data that others computed and returns a Matplotlib figure: `save` writes
it to a file, `as_svg` makes an element for a page, `theme` chooses the colours.
"""

from dualplan.report.figures.canvas import (
    DARK_THEME,
    LIGHT_THEME,
    Theme,
    as_svg,
    blank,
    require_drawable,
    save,
    theme,
)
from dualplan.report.figures.curves import curve
from dualplan.report.figures.diagrams import diagram
from dualplan.report.figures.laws import marginals
from dualplan.report.figures.maps import policy_maps
from dualplan.report.figures.progress import convergence, costs, read_trace
from dualplan.report.figures.rates import sensitivity
from dualplan.report.figures.tradeoffs import tradeoff

__all__ = [
    "DARK_THEME",
    "LIGHT_THEME",
    "Theme",
    "as_svg",
    "blank",
    "convergence",
    "costs",
    "curve",
    "diagram",
    "marginals",
    "policy_maps",
    "read_trace",
    "require_drawable",
    "save",
    "sensitivity",
    "theme",
    "tradeoff",
]
