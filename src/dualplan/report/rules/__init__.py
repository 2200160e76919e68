"""Policies as rules that people can read."""

from dualplan.policies.rules import Node, Rule, Simplification
from dualplan.report.rules.readable import readable

__all__ = ["Node", "Rule", "Simplification", "readable"]
