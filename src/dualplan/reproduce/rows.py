"""A line of a table: a figure of ours beside what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dualplan.types import Json

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Row:
    """A cost of ours with its bounds or interval, the published one and the optimum; None is what is not known.

    `seconds` are those of the method, without the evaluation; `lower_bound` is what the method proves of the optimum.
    """

    name: str
    ours: float | None
    published: float | None = None
    lower: float | None = None
    upper: float | None = None
    note: str = ""
    optimum: float | None = None
    lower_bound: float | None = None
    seconds: float | None = None

    def to_json(self) -> Json:
        """As plain values."""
        return dict(vars(self))
