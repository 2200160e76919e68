"""Tests of what users hand in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dualplan.core.errors import InputError


def is_text(value: Any) -> bool:
    """Text."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """A finite number."""
    return (
        isinstance(value, (int, float, np.number))
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def is_positive(value: Any) -> bool:
    """A finite number above 0."""
    return is_number(value) and value > 0


def is_whole(value: Any) -> bool:
    """An integer."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_interval(value: Any) -> bool:
    """Two integers, the first no larger than the second."""
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(map(is_whole, value))
        and value[0] <= value[1]
    )


def is_table(value: Any) -> bool:
    """Names and values."""
    return isinstance(value, Mapping)


def is_list(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A list, not empty, of things of one kind."""
    return lambda value: (
        isinstance(value, (list, tuple)) and len(value) > 0 and all(map(kind, value))
    )


def require_counts(**counts: Any) -> None:
    """Whole numbers, each at least 1."""
    for name, value in counts.items():
        if not is_whole(value) or value < 1:
            raise InputError(f"{name} must be a whole number, at least 1, got {value!r}.")
