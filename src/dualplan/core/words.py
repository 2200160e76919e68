"""Numbers, intervals and counts as people read them: the same in tables, sentences and figures.

What machines read is JSON, which has all digits.
"""

from __future__ import annotations

import math

from dualplan.core.intervals import Interval
from dualplan.core.status import UNKNOWN


def number(value: float | None, digits: int = 5) -> str:
    """A number with so many digits that count; None is one that is not known."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        if value > 0:
            return "∞"
        return "−∞"
    text = f"{value:.{digits}g}"
    if "e" in text and 1 <= abs(value) < 1e9:
        text = f"{value:,.0f}"
    return _with_minus(text)


def percent(share: float) -> str:
    """A share as a percentage, never rounded down to nothing: small ones keep their sign and one
    digit.
    """
    if 0 < abs(share) < 5e-5:
        return f"{number(100 * share, 1)}%"
    return _with_minus(f"{100 * share + 0.0:.{_decimals(abs(share))}f}%")


def at_most(share: float) -> str:
    """A share as a percentage, rounded up."""
    digits = 4 if 0 < share < 5e-5 else _decimals(share)
    return f"{math.ceil(share * 10 ** (2 + digits) * (1 - 1e-9)) / 10**digits:.{digits}f}%"


def more_than(value: float, other: float) -> str:
    """By how much a number exceeds another, in percent of the other's size; nothing where that is
    not known.
    """
    if other != 0:
        share = (value - other) / abs(other)
    else:
        share = math.nan
    if not math.isfinite(share):
        return ""
    if abs(share) < 5e-4:
        return "0.0%"
    return _with_minus(f"{100 * share:+.1f}%")


def more_by(difference: Interval, other: float) -> str:
    """A difference of two costs in percent of the other's size, with half the width of its
    interval; words where the interval says no more.
    """
    if not math.isfinite(difference.value):
        return ""
    if difference.lower == difference.upper == 0:
        return "the same"
    if difference.confidence == 1 or not math.isfinite(difference.half_width):
        return more_than(other + difference.value, other)
    if difference.lower <= 0 <= difference.upper:
        return "within error"
    if other == 0:
        return plus_minus(difference.value, difference.half_width, 3)
    share = 100 * difference.value / abs(other)
    half = 100 * difference.half_width / abs(other)
    digits = min(3, max(1, math.ceil(-math.log10(half)))) if half > 0 else 1
    return _with_minus(f"{share:+.{digits}f}% ± {half:.{digits}f}%")


def between(lower: float, upper: float, digits: int = 5) -> str:
    """The ends of an interval in a sentence; nothing where they are the same to all digits that are
    shown.
    """
    low = number(lower, digits)
    high = number(upper, digits)
    if low == high:
        return ""
    return f"{low} to {high}"


def ends(lower: float | None, upper: float | None, digits: int = 5) -> str:
    """The ends of an interval in a table."""
    return f"{number(lower, digits)} – {number(upper, digits)}"


def plus_minus(value: float, half_width: float, digits: int = 5) -> str:
    """A number and how far off it may be; alone where it is exact."""
    if half_width == 0:
        return number(value, digits)
    return f"{number(value, digits)} ± {number(half_width, 2)}"


def estimate(interval: Interval | None) -> str:
    """An interval beside a progress bar; nothing where there is none yet."""
    if interval is None:
        return ""
    return plus_minus(interval.value, interval.half_width)


def plural(count: int, word: str) -> str:
    """So many of a thing."""
    if count == 1:
        return f"{count} {word}"
    if word.endswith("y"):
        return f"{count:,} {word[:-1]}ies"
    return f"{count:,} {word}s"


def states_of(described: int | str | None) -> str:
    """How many states a model has, by its description: a number, a power of ten, or None."""
    if described is None:
        return "infinitely many states"
    if isinstance(described, int):
        return f"{described:,} states"
    return f"{described} states"


def _decimals(share: float) -> int:
    """Digits after the point of a percentage."""
    if share >= 0.1:
        return 1
    return 2


def _with_minus(text: str) -> str:
    """With a minus sign for a hyphen."""
    return text.replace("-", "−")
