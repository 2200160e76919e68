"""Candidate occupancies: distributions on pairs that can be evaluated, drawn from, and whose expected loss is known."""

from dualplan.features.contract import Features, concat
from dualplan.features.families import PAPER_BANDS, PAPER_INTERVALS, bands, boxes, occupancies, paper, table, tiles
from dualplan.features.mixtures import mixtures
from dualplan.features.products import Empirical, Geometric, Truncated, products
from dualplan.features.user import user_defined

__all__ = [
    "PAPER_BANDS",
    "PAPER_INTERVALS",
    "Empirical",
    "Features",
    "Geometric",
    "Truncated",
    "bands",
    "boxes",
    "concat",
    "mixtures",
    "occupancies",
    "paper",
    "products",
    "table",
    "tiles",
    "user_defined",
]
