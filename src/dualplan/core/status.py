"""How a computation ended, in words that say what to do next; and how a number is known, in one
word.
"""

from __future__ import annotations

from enum import StrEnum

# how a number is known
PROVED = "proved"  # follows from the model; where draws are in it, with the stated probability
COMPUTED = "computed"  # over all states or pairs
MEASURED = "measured"  # computed or simulated for the very policy in question
ESTIMATED = "estimated"  # from draws, without an interval
STATISTICAL = "statistical"  # of what was looked at, which is not everything
ASSUMED = "assumed"  # rests on what the user gave
UNKNOWN = "unknown"


class Status(StrEnum):
    """The end of a computation; `advice` says what it means for the user."""

    REACHED = "reached"
    BUDGET = "budget"
    COMPLETED = "completed"
    TOO_SHORT = "too-short"
    UNSTABLE = "unstable"
    FEW_CYCLES = "few-cycles"
    INTERRUPTED = "interrupted"
    SOLVED = "solved"
    ROUNDING = "rounding"
    WIDE = "wide"
    RADIUS = "radius"
    SAMPLED = "sampled"
    VIOLATED = "violated"
    RELAXED = "relaxed"
    FEW_EFFECTIVE = "few-effective"
    TIME = "time"
    SETTLED = "settled"
    GAP = "gap-reached"
    OPTIMAL = "optimal"
    NO_POTENTIAL = "no-potential"

    @property
    def advice(self) -> str:
        """What happened and what to do next."""
        return _ADVICE_BY_STATUS[self]

    @property
    def good(self) -> bool:
        """Of an evaluation: whether its interval is what it is said to be, however wide."""
        return self in _GOOD_STATUSES


_GOOD_STATUSES = (
    Status.SOLVED,
    Status.ROUNDING,
    Status.REACHED,
    Status.COMPLETED,
    Status.BUDGET,
    Status.TIME,
)

_ADVICE_BY_STATUS = {
    Status.REACHED: "the interval is as narrow as you asked",
    Status.BUDGET: (
        "all steps were taken before the interval was as narrow as you asked; allow more steps"
    ),
    Status.COMPLETED: "all the work you asked for is done; the interval says how much is known",
    Status.TOO_SHORT: (
        "the run is too short to forget its start, or to have seen often enough what is rare, so "
        "the interval may miss; allow more steps"
    ),
    Status.UNSTABLE: (
        "the state keeps growing: the average cost is infinite, or the run is far too short to tell"
    ),
    Status.FEW_CYCLES: (
        "the run returned to its start too seldom for an interval; allow more steps or use method "
        "'batch-means'"
    ),
    Status.SOLVED: "the bounds are as close as you asked",
    Status.ROUNDING: (
        "the bounds are as near as rounding allows, though not as close as you asked; a larger tol "
        "is reached"
    ),
    Status.WIDE: (
        "the bounds hold but are wider than you asked; allow more sweeps or a larger tol"
    ),
    Status.RADIUS: (
        "the best weights lie outside the ball of radius S, so the value is only a lower bound; "
        "raise the radius or H"
    ),
    Status.SAMPLED: (
        "optimal over the constraints that were drawn; others may be violated, so the values are "
        "no bounds"
    ),
    Status.VIOLATED: (
        "constraints are violated by more than you asked; allow more rounds or a larger tol"
    ),
    Status.RELAXED: (
        "optimal over mixtures of constraints; single ones may be violated, so the values are no "
        "bounds"
    ),
    Status.FEW_EFFECTIVE: (
        "a few of the sampled transitions carry all the weight, so estimates may be far off; let "
        "the reference explore more, allow more samples, or raise H"
    ),
    Status.TIME: "stopped by the clock; allow more time",
    Status.SETTLED: "no step finds a policy that is better for sure, so the search has ended",
    Status.OPTIMAL: "no policy costs less, up to the accuracy of the arithmetic",
    Status.GAP: "the policy is proved to be as near the optimum as you asked",
    Status.NO_POTENTIAL: (
        "the fitted potential explains losses no better than a constant on trajectories that it "
        "was not fitted to, so it was left out; give a potential, more samples or a richer basis"
    ),
    Status.INTERRUPTED: (
        "interrupted; the interval holds for what was done, and a run that was saved can be resumed"
    ),
}
