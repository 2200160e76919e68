"""Policies beside one of them, so that the rows of a table do not contradict each other.

With F the cost of the first policy and D the difference of another one's cost from it, known from
the same random numbers, the other one costs F + D. Where F was known before (exactly, or since the
first policy went on alone for longer), the interval of F + D reaches from the sum of the lower ends
to the sum of the upper ends: the standard deviation of a sum is at most the sum of theirs, however
F and D depend on each other. Where both policies took the same steps, F + D is the other one's own
average, and its own interval serves.

A difference is *exact* if both costs are, *paired* if both policies met the same random numbers,
*unpaired* if it comes of two runs that have nothing in common; then it reaches from end to end.
Policies that do the same have the difference 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dualplan.core.intervals import Interval
from dualplan.core.shown import Shown
from dualplan.core.types import Json
from dualplan.evaluation.results import Evaluation, cost_from_json
from dualplan.models.contract import Model, few_states
from dualplan.policies.contract import Policy

EXACT_DIFFERENCE = "exact"
PAIRED_DIFFERENCE = "paired"
UNPAIRED_DIFFERENCE = "unpaired"
NO_DIFFERENCE = "the same"
STATES_AT_ONCE = 4_096  # whose actions are compared
SAME_PROBABILITIES = 1e-12  # up to which two policies do the same


@dataclass(frozen=True, repr=False)
class Compared(Shown):
    """A policy beside another: what it costs, that cost minus the other's, and how the difference
    is known.
    """

    evaluation: Evaluation
    difference: Interval
    how: str

    @property
    def told_apart(self) -> bool:
        """Whether the interval of the difference excludes 0, and may be believed."""
        away = self.difference.lower > 0 or self.difference.upper < 0
        return away and self.evaluation.status.good

    @property
    def same(self) -> bool:
        """Whether the two do the same, wherever they went."""
        return self.how == NO_DIFFERENCE

    def to_json(self) -> Json:
        """As plain values, beginning with those of the cost."""
        known = self.evaluation
        return {
            "policy": known.policy,
            "cost": known.cost,
            "cost_lower": known.lower,
            "cost_upper": known.upper,
            "evaluation": known.method,
            "status": str(known.status),
            "difference": {
                **self.difference.to_json(),
                "confidence": self.difference.confidence,
                "how": self.how,
            },
            "measures": {name: one.to_json() for name, one in known.measures.items()},
        }


def rows_of(result: Json) -> list[Compared]:
    """The policies that a search began with, as its result has saved them."""
    found = cost_from_json(result["policy"], result)
    return [_row(saved, found) for saved in result["start"]]


def _row(saved: Json, found: Evaluation) -> Compared:
    as_result = {**saved, "cost_status": saved["status"], "measures": saved.get("measures", {})}
    own = cost_from_json(saved["policy"], as_result)
    if "difference" not in saved:  # of an earlier version
        return unpaired(own, found)
    apart = saved["difference"]
    return Compared(own, Interval.from_json(apart, apart["confidence"]), apart["how"])


def difference(own: Evaluation, other: Evaluation) -> Interval:
    """The difference of two costs that are known apart from each other, from end to end."""
    return Interval(
        own.cost - other.cost,
        own.lower - other.upper,
        own.upper - other.lower,
        min(own.confidence, other.confidence),
    )


def unpaired(own: Evaluation, first: Evaluation) -> Compared:
    """A policy that is known by itself beside another: exactly, if both are."""
    if own.exact and first.exact:
        how = EXACT_DIFFERENCE
    else:
        how = UNPAIRED_DIFFERENCE
    return Compared(own, difference(own, first), how)


def alike(name: str, first: Evaluation) -> Compared:
    """A policy that does what the first one does, by its own name."""
    nothing = Interval(0.0, 0.0, 0.0, 1.0)
    return Compared(replace(first, policy=name), nothing, NO_DIFFERENCE)


def paired(own: Evaluation, apart: Interval, first: Evaluation, *, together: bool) -> Compared:
    """A policy that met the same random numbers as the first; `together` if in as many steps."""
    if apart.lower == apart.upper == 0:
        return Compared(alike(own.policy, first).evaluation, apart, NO_DIFFERENCE)
    if not (math.isfinite(own.cost) and math.isfinite(first.cost)):
        unknown = Interval(math.nan, -math.inf, math.inf, apart.confidence)
        return Compared(own, unknown, PAIRED_DIFFERENCE)
    cost = first.cost + apart.value
    if together:
        lower = own.lower + cost - own.cost
        upper = own.upper + cost - own.cost
    else:
        lower = first.lower + apart.lower
        upper = first.upper + apart.upper
    return Compared(replace(own, cost=cost, lower=lower, upper=upper), apart, PAIRED_DIFFERENCE)


def same_policy(model: Model, one: Policy, other: Policy) -> bool:
    """Whether two policies are known to do the same: by their fingerprints, or in every state where
    these are few.
    """
    if one is other:
        return True
    if one.code is None or other.code is None:
        return False
    if one.digest == other.digest:
        return True
    if not few_states(model):
        return False
    count = model.box.count or 0
    for first in range(0, count, STATES_AT_ONCE):
        numbers = np.arange(first, min(first + STATES_AT_ONCE, count))
        states = model.box.states(numbers)
        if np.abs(one.rows(states) - other.rows(states)).max() > SAME_PROBABILITIES:
            return False
    return True
