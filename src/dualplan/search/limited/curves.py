"""The least cost against a limit, as it is told: points, lines below, one curve for each measure.

A point is a limit b with a policy that keeps it: costs and measures with their intervals, and the
price, by how much the cost falls where b rises by 1. A line is what a bound on the priced problem
proves at every b at once: for a price w no policy with a measure of at most b costs less than

    λ(w) − w·b ,     λ(w) = min over policies of  cost + w·measure ,

where a measure is a mean over steps. The largest of the lines is the lower bound at b.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualplan.core.errors import InputError, unknown
from dualplan.core.intervals import Interval
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Json
from dualplan.core.words import number, plus_minus
from dualplan.evaluation.results import UNKNOWN_MEASURE, Evaluation
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion
from dualplan.policies.contract import Policy

ROUNDING_SHARE = 1e-6  # of a number: narrower intervals are rounding
LEVEL_SLACK_SHARE = 1e-9  # of a level, that one may lie above another and still be it


@dataclass(frozen=True, eq=False)
class Point:
    """A limit, a policy that keeps it, its cost and its measure with their intervals, what any
    such policy costs at least, and the price: by how much the cost falls where the limit rises
    by 1.

    `shares` are of the policies that are followed in turn, by their names in the trade-off, and
    `file` is where the policy was saved, in the folder of the run.
    """

    at_most: float
    policy: Policy
    shares: dict[str, float]
    cost: Interval
    measure: Interval
    lower_bound: float
    price: float
    file: str = ""

    def to_json(self) -> Json:
        """As plain values; the policy is saved apart."""
        return {
            "at_most": self.at_most,
            "policy": self.policy.name,
            "shares": self.shares,
            "cost": self.cost.to_json(),
            "measure": self.measure.to_json(),
            "lower_bound": self.lower_bound,
            "price": self.price,
            "file": self.file,
        }


@dataclass(frozen=True, eq=False)
class Column:
    """One of the policies that points follow: its name in the trade-off, where it came from, and
    what was measured of it.
    """

    name: str
    source: str
    policy: Policy
    run: Evaluation

    def to_json(self, measures: Sequence[str]) -> Json:
        """As plain values."""
        return {
            "name": self.name,
            "source": self.source,
            "digest": self.policy.digest,
            **measured(self.run, measures),
        }


@dataclass(frozen=True)
class Line:
    """No policy with a measure of at most b costs less than `at_zero` − `price`·b.

    `functions` say what proved it, `assumed` of which policies that is.
    """

    price: float
    at_zero: float
    kind: str
    functions: str = ""
    assumed: str = ""

    def at(self, at_most: float) -> float:
        """The line at a level."""
        return self.at_zero - self.price * at_most

    def to_json(self) -> Json:
        """As plain values."""
        return {
            "price": self.price,
            "at_zero": self.at_zero,
            "kind": self.kind,
            "functions": self.functions,
            "assumed": self.assumed,
        }


@dataclass(frozen=True, eq=False)
class Curve:
    """The points of one measure, from the tightest limit to one that does not bind, and the lines
    below them.

    `exact` curves are over all states, and their lower bounds are those of the programs.
    """

    measure: str
    points: tuple[Point, ...]
    lines: tuple[Line, ...]
    exact: bool

    def at(self, at_most: float) -> Point:
        """The point of the largest limit that is no larger."""
        slack = LEVEL_SLACK_SHARE * abs(at_most)
        kept = [point for point in self.points if point.at_most <= at_most + slack]
        if not kept:
            raise InputError(
                f"no policy with {self.measure} at most {at_most:g} is on the curve; the least is "
                f"{self.points[0].at_most:.6g}."
            )
        return kept[-1]

    def to_json(self) -> Json:
        """As plain values."""
        return {
            "measure": self.measure,
            "exact": self.exact,
            "points": [point.to_json() for point in self.points],
            "lines": [line.to_json() for line in self.lines],
        }


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Tradeoff(Shown):
    """The least cost at every limit on a measure, one curve for each measure that was asked for.

    `start` are the policies to begin with as they were measured, `columns` those that points found
    by search follow.
    """

    model: Model
    criterion: Criterion
    curves: tuple[Curve, ...]
    start: tuple[Evaluation, ...]
    columns: tuple[Column, ...]
    searches: int
    status: Status
    seed: int
    seconds: float

    @property
    def measures(self) -> tuple[str, ...]:
        """What the curves are about."""
        return tuple(curve.measure for curve in self.curves)

    @property
    def points(self) -> tuple[Point, ...]:
        """Those of the first curve."""
        return self.curves[0].points

    def curve(self, measure: str) -> Curve:
        """The curve of a measure."""
        for curve in self.curves:
            if curve.measure == measure:
                return curve
        raise unknown("measure of the trade-off", measure, self.measures)

    def at(self, at_most: float, measure: str | None = None) -> Point:
        """The point of the largest limit that is no larger, on the first curve or that of a
        measure.
        """
        return self.curve(self.measures[0] if measure is None else measure).at(at_most)

    def to_json(self) -> Json:
        """Everything as plain values; policies are saved apart."""
        return {
            "task": "tradeoff",
            "model": self.model.name,
            **self.criterion.describe(),
            "measures": list(self.measures),
            "curves": [curve.to_json() for curve in self.curves],
            "start": [{"policy": r.policy, **measured(r, self.measures)} for r in self.start],
            "columns": [column.to_json(self.measures) for column in self.columns],
            "searches": self.searches,
            "status": str(self.status),
            "advice": self.status.advice,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        lines = []
        for curve in self.curves:
            lines.append(f"least cost of {self.model.name} against {curve.measure}:")
            lines += ["  " + "  ".join(row) for row in _rows(curve)]
        return "\n".join([*lines, f"{self.status}: {self.status.advice}"])

    def _repr_html_(self) -> str:
        """A table for each curve, which notebooks show."""
        return "".join(self._table(curve) for curve in self.curves)

    def _table(self, curve: Curve) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in _rows(curve)
        )
        head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
        words = f"least cost of {self.model.name} against {curve.measure}: {self.status}"
        return f"<table><caption>{html.escape(words)}</caption><tr>{head}</tr>{rows}</table>"


COLUMNS = ("at most", "cost", "measure", "no policy costs less", "price", "follow")


def _rows(curve: Curve) -> list[tuple[str, ...]]:
    """The cells of a table."""
    return [
        (
            number(point.at_most),
            shown(point.cost),
            shown(point.measure),
            number(point.lower_bound),
            number(point.price, 3),
            followed(point.shares),
        )
        for point in curve.points
    ]


def cost_at(curve: Json, at_most: float) -> float | None:
    """What a curve (its JSON) costs at a level, straight between its points: with two policies in
    turn. None below the tightest.
    """
    levels = [point["at_most"] for point in curve["points"]]
    if at_most < levels[0] * (1 - LEVEL_SLACK_SHARE):
        return None
    return float(np.interp(at_most, levels, [point["cost"]["value"] for point in curve["points"]]))


def measured(run: Evaluation, measures: Sequence[str]) -> Json:
    """The cost of a policy, and these measures, as plain values."""
    known = {name: run.measures.get(name, UNKNOWN_MEASURE) for name in measures}
    return {
        "cost": run.interval.to_json(),
        "measures": {name: one.to_json() for name, one in known.items()},
    }


def shown(interval: Interval) -> str:
    """A number with half the width of its interval, if that is more than rounding."""
    if interval.half_width <= ROUNDING_SHARE * abs(interval.value):
        return number(interval.value)
    return plus_minus(interval.value, interval.half_width)


def followed(shares: dict[str, float]) -> str:
    """Which policies are followed, in words: A, and B in 12%."""
    (first, _), *rest = sorted(shares.items(), key=lambda one: -one[1])
    return ", and ".join([first, *(f"{name} in {100 * share:.2g}%" for name, share in rest)])


def mixed(parts: Sequence[Interval], shares: Sequence[float]) -> Interval:
    """Shares of intervals: from those of the lower ends to those of the upper ends.

    Where all intervals hold, so does this one, whatever the shares were chosen by.
    """
    weights = np.asarray(shares, np.float64)
    value = float(weights @ [part.value for part in parts])
    lower = float(weights @ [part.lower for part in parts])
    upper = float(weights @ [part.upper for part in parts])
    return Interval(value, lower, upper, min(part.confidence for part in parts))
