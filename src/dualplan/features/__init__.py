"""Candidate occupancies: distributions on pairs that can be evaluated, drawn from, and whose expected loss is known."""

from dualplan.features.contract import Features, concat
from dualplan.features.families import PAPER_BANDS, PAPER_INTERVALS, bands, boxes, occupancies, paper, table, tiles
from dualplan.features.mixtures import mixtures
from dualplan.features.partitions import Partition, cells, levels, whole
from dualplan.features.products import Empirical, Geometric, Truncated, products
from dualplan.features.ratios import RatioPolicy, Ratios, concat_ratios, portfolio, user_ratios
from dualplan.features.tree_fits import chow_liu, fit_product, fit_tree
from dualplan.features.tree_laws import Node, Tree
from dualplan.features.trees import trees
from dualplan.features.user import user_defined

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
