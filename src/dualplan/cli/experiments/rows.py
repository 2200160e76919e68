"""Figures of ours beside those from elsewhere, and the rule by which an experiment fails.

A figure from elsewhere is printed to so many decimals. Where it is exact, ours must be the same to
these decimals: it is *missed* if our whole interval lies more than half a unit of the last one
away. Where it was simulated or read off a plot it has an error of its own, or none that is known,
and the two are compared by their intervals: they agree, or they differ by so much, and nothing
fails. An interval of ours that is too wide agrees with nothing, and of a run that is too short to
be trusted nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dualplan.core.types import Json

Progress = Callable[[int, int, str], None]
PUBLISHED_SOURCE = "published"
COMPUTED_ELSEWHERE_SOURCE = "computed elsewhere"
DIGITISED_SOURCE = "read off a plot"
AGREES_VERDICT = "agrees"
TOO_WIDE_VERDICT = "our interval is too wide to tell"
TOO_SHORT_VERDICT = "our run is too short to tell"
DECIMAL_ROUNDING = 1e-9  # of decimals in floating point
# half of an interval of ours, as a part of a simulated figure, from which on it tells nothing
WIDE_HALF_WIDTH_SHARE = 0.03
NARROW_BOUNDS_SHARE = 2e-4  # between exact bounds that go as one figure


@dataclass(frozen=True)
class Figure:
    """A figure from elsewhere: its printed decimals, its error if one is printed, and where it
    comes from.

    `deterministic` is for figures that follow from the model, without simulation or random search;
    `reproducible` is False for those that no reading of their source is known to give.
    """

    value: float
    digits: int
    error: float | None = None
    deterministic: bool = False
    source: str = PUBLISHED_SOURCE
    reproducible: bool = True

    @property
    def slack(self) -> float:
        """How far it may be from what it stands for: its error, at least half a unit of its last
        decimal.
        """
        return max(self.error or 0.0, 0.5 * 10.0**-self.digits) + DECIMAL_ROUNDING

    def __str__(self) -> str:
        if self.error is None:
            error = ""
        else:
            error = f" ± {self.error:.{self.digits}f}"
        return f"{self.value:.{self.digits}f}{error}" + (
            "" if self.source == PUBLISHED_SOURCE else f" ({self.source})"
        )


@dataclass(frozen=True)
class Row:
    """A cost of ours with its bounds or interval, one from elsewhere and the optimum; None is what
    is not known.

    `exact` says that the bounds are proved; otherwise they are a 95% interval. `seconds` are those
    of the method, or of the evaluation of a policy that needs no other work; `lower_bound` is what
    the method proves of the optimum. `trusted` says that the status of the evaluation is good, so
    that the interval is one.
    """

    name: str
    ours: float | None = None
    published: Figure | None = None
    lower: float | None = None
    upper: float | None = None
    exact: bool = False
    note: str = ""
    optimum: float | None = None
    lower_bound: float | None = None
    seconds: float | None = None
    network: str = ""
    trusted: bool = True

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of our interval; a figure without one is its own."""
        if self.ours is None:
            ours = float("nan")
        else:
            ours = self.ours
        return (
            ours if self.lower is None else self.lower,
            ours if self.upper is None else self.upper,
        )

    @property
    def shown(self) -> str:
        """Our figure in words: exact, or with its interval (or proved bounds that are wide)."""
        if self.ours is None:
            return ""
        lower, upper = self.interval
        if self.exact and upper - lower < NARROW_BOUNDS_SHARE:
            return f"{self.ours:.4f} exact"
        if upper - lower < 0.02:
            digits = 4
        elif upper - lower < 0.2:
            digits = 3
        else:
            digits = 2
        return f"{self.ours:.{digits}f} [{lower:.{digits}f}, {upper:.{digits}f}]"

    def to_json(self) -> Json:
        """As plain values."""
        if self.published is None:
            known = None
        else:
            known = vars(self.published)
        return {**vars(self), "published": known, "verdict": verdict(self)}


def _apart(row: Row, known: Figure) -> bool:
    lower, upper = row.interval
    return bool(upper < known.value - known.slack or lower > known.value + known.slack)


def missed(row: Row) -> bool:
    """Whether a figure that is exact elsewhere lies outside of our interval, to its printed
    decimals.
    """
    known = row.published
    if known is None or row.ours is None or not row.trusted:
        return False
    return known.deterministic and _apart(row, known)


def verdict(row: Row) -> str:
    """How ours compares with the figure from elsewhere, in a word or two.

    Nothing where one of them is not there.
    """
    known = row.published
    if known is None or row.ours is None:
        return ""
    if not row.trusted:
        return TOO_SHORT_VERDICT
    if _apart(row, known):
        if known.deterministic:
            how = "missed"
        elif known.reproducible:
            how = "differs"
        else:
            how = "not reproduced, differs"
        return f"{how} by {row.ours - known.value:+.{known.digits}f}"
    lower, upper = row.interval
    inside = known.value - known.slack <= lower and upper <= known.value + known.slack
    if known.deterministic:
        told = inside
    else:
        told = inside or upper - lower <= 2 * WIDE_HALF_WIDTH_SHARE * abs(known.value)
    if told:
        return AGREES_VERDICT
    return TOO_WIDE_VERDICT


def failure(rows: Iterable[Row]) -> str | None:
    """One sentence about the exact figures that were missed, or None: what decides the exit
    status.
    """
    which = [f"{row.name} is {row.shown}, elsewhere {row.published}" for row in rows if missed(row)]
    if not which:
        return None
    if len(which) == 1:
        figures = "a figure that is exact elsewhere was"
    else:
        figures = f"{len(which)} exact figures were"
    return f"{figures} missed: {'; '.join(which)}."


def below(row: Row, known: Figure) -> str:
    """How our cost stands to that of another method: below it, above it, or not to be told
    from it.
    """
    lower, upper = row.interval
    if row.trusted and upper < known.value - known.slack:
        return "below"
    if row.trusted and lower > known.value + known.slack:
        return "above"
    return "not to be told from"


def agreeing(rows: Iterable[Row]) -> str:
    """How many figures agree, in words."""
    told = [word for word in map(verdict, rows) if word]
    if not told:
        return "There is no figure from elsewhere for these settings."
    reasons = {
        TOO_WIDE_VERDICT: "at the width of our intervals",
        TOO_SHORT_VERDICT: "since our run is too short",
    }
    open_ones = [
        f", and {told.count(word)} cannot be told {why}"
        for word, why in reasons.items()
        if word in told
    ]
    return (
        f"{told.count(AGREES_VERDICT)} of {len(told)} figures that can be compared "
        f"agree{''.join(open_ones)}."
    )


@dataclass(frozen=True, eq=False)
class Outcome:
    """An experiment that was run again: its rows, what they say in words, its settings, and curves
    where it has any.
    """

    experiment: str
    title: str
    rows: tuple[Row, ...]
    words: tuple[str, ...]
    settings: Json
    curves: tuple[Any, ...] = ()
    more: Json = field(default_factory=dict)

    def to_json(self) -> Json:
        """Everything as plain values."""
        if self.curves:
            curves = {"curves": [vars(curve) for curve in self.curves]}
        else:
            curves = {}
        return {
            "experiment": self.experiment,
            "title": self.title,
            "settings": self.settings,
            "rows": [row.to_json() for row in self.rows],
            "words": list(self.words),
            "missed": [row.name for row in self.rows if missed(row)],
            **curves,
            **self.more,
        }
