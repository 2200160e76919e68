"""Functions of states: bases, interpolants, partitions, tables, and test functions of the flow."""

from dualplan.values import test_functions
from dualplan.values.partitions import Partition, cells, levels, whole

__all__ = ["Partition", "cells", "levels", "test_functions", "whole"]
