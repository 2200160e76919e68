"""Candidate occupancies: distributions on pairs that can be evaluated, drawn from, and whose expected loss is known."""

from dualplan.features.contract import Features, concat
from dualplan.features.families import PAPER_BANDS, PAPER_INTERVALS, bands, boxes, occupancies, paper, table, tiles

__all__ = [
    "PAPER_BANDS",
    "PAPER_INTERVALS",
    "Features",
    "bands",
    "boxes",
    "concat",
    "occupancies",
    "paper",
    "table",
    "tiles",
]
