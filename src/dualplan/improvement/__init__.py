"""Policies improved step by step: what a step may propose, how proposals are judged, and the loop around both."""

from dualplan.improvement.contract import Attempt, Candidate, Improved
from dualplan.improvement.loop import improve
from dualplan.improvement.steps import STEPS

__all__ = ["STEPS", "Attempt", "Candidate", "Improved", "improve"]
