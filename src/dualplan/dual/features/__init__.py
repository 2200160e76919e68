"""Candidate occupancies: distributions on pairs that can be evaluated, drawn from, and whose
expected loss is known.
"""

from dualplan.dual.features.contract import Features, concat
from dualplan.dual.features.families import (
    PAPER_BANDS,
    PAPER_INTERVALS,
    bands,
    boxes,
    occupancies,
    paper,
    table,
    tiles,
)
from dualplan.dual.features.mixtures import mixtures
from dualplan.dual.features.products import Empirical, Geometric, Truncated, products
from dualplan.dual.features.ratios import RatioPolicy, Ratios, concat_ratios, portfolio, user_ratios
from dualplan.dual.features.tree_fits import chow_liu, fit_product, fit_tree
from dualplan.dual.features.tree_laws import Node, Tree
from dualplan.dual.features.trees import trees
from dualplan.dual.features.user import user_defined
from dualplan.values.partitions import Partition, cells, levels, whole

__all__ = [
    "PAPER_BANDS",
    "PAPER_INTERVALS",
    "Empirical",
    "Features",
    "Geometric",
    "Node",
    "Partition",
    "RatioPolicy",
    "Ratios",
    "Tree",
    "Truncated",
    "bands",
    "boxes",
    "cells",
    "chow_liu",
    "concat",
    "concat_ratios",
    "fit_product",
    "fit_tree",
    "levels",
    "mixtures",
    "occupancies",
    "paper",
    "portfolio",
    "products",
    "table",
    "tiles",
    "trees",
    "user_defined",
    "user_ratios",
    "whole",
]
