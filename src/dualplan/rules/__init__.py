"""Policies as rules that people can read."""

from dualplan.rules.policy import Node, Rule, Simplification
from dualplan.rules.readable import readable

__all__ = ["Node", "Rule", "Simplification", "readable"]
