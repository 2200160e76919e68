"""Policies improved step by step: what a step may propose, how proposals are judged, and the loop
around both.
"""

from dualplan.search.contract import Attempt, Candidate, SearchResult
from dualplan.search.loop import improve
from dualplan.search.steps import STEPS

__all__ = ["STEPS", "Attempt", "Candidate", "SearchResult", "improve"]
