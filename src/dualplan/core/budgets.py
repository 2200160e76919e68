"""Budgets: in the user's words, a time such as 90s, 2m or 1h, a share such as 2% or 0.02; and how
many states are few, so that all parts agree on what is exact and what is sampled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dualplan.core.checks import is_number, is_positive
from dualplan.core.errors import InputError

# states up to which a policy's law and cost are computed, unless told otherwise: seconds
MOST_EXACT_STATES = 20_000
MOST_LISTED_STATES = 2_000_000  # states up to which all of them may be gone through at all: minutes
SECONDS_OF_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(given: str | float) -> float:
    """A time in seconds: a positive number, or one with a unit (s, m, h)."""
    if not isinstance(given, str) and is_positive(given):
        return float(given)
    found = None
    if isinstance(given, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", given)
    if found is None or found[2] not in SECONDS_OF_UNITS or float(found[1]) == 0:
        raise InputError(
            f"a time is a positive number with s, m or h, such as 90s or 2m, got {given!r}."
        )
    return float(found[1]) * SECONDS_OF_UNITS[found[2]]


def share(given: str | float) -> float:
    """A share between 0 and 1: 0.02, or 2%."""
    text = str(given) if is_number(given) else given
    if isinstance(text, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    else:
        found = None
    if found is None:
        value = -1.0
    else:
        value = float(found[1]) / (100.0 if found[2] else 1.0)
    if not 0 <= value <= 1:
        raise InputError(f"a gap is a share of the cost, such as 2% or 0.02, got {given!r}.")
    return value


@dataclass(frozen=True)
class Clock:
    """How much of a time is left.

    It decides after which piece of work to stop, never how a piece is done. `paused` says how many
    seconds do not count: those of compilation, which the same work does not take again.
    """

    allowed: float
    paused: Callable[[], float] = lambda: 0.0
    started: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the start that count."""
        return time.monotonic() - self.started - self.paused()

    @property
    def left(self) -> float:
        """Seconds until the time is over, at least 0."""
        return max(0.0, self.allowed - self.spent)

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.left <= 0

    def part(self, seconds: float) -> Clock:
        """A clock that stops after so many seconds from now, or with this one."""
        return self.another(max(0.0, min(seconds, self.left)))

    def another(self, seconds: float) -> Clock:
        """A clock for so many seconds from now, whatever this one says, that pauses with it."""
        return Clock(seconds, self._paused_since(self.paused()))

    def _paused_since(self, before: float) -> Callable[[], float]:
        return lambda: self.paused() - before
