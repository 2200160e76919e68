"""Tests of what users hand in, and the sentences for when a test fails."""

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


def is_seed(value: Any) -> bool:
    """A seed of random numbers, which kernels take as a signed integer."""
    return is_whole(value) and 0 <= value < 2**63


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


# -- arguments: one sentence for each kind, with the name, the value and what it must be -----------


def require_whole(name: str, value: Any, least: int = 0, most: int | None = None) -> None:
    """A whole number, at least `least` and at most `most`."""
    if is_whole(value) and value >= least and (most is None or value <= most):
        return
    if most is None:
        wanted = f"a whole number, at least {least}"
    else:
        wanted = f"a whole number from {least} to {most}"
    raise InputError(f"{name} must be {wanted}, got {value!r}.")


def require_counts(**counts: Any) -> None:
    """Whole numbers, each at least 1."""
    for name, value in counts.items():
        require_whole(name, value, least=1)


def require_numbers(**numbers: Any) -> None:
    """Finite numbers."""
    for name, value in numbers.items():
        if not is_number(value):
            raise InputError(f"{name} must be a finite number, got {value!r}.")


def require_positive(**numbers: Any) -> None:
    """Finite numbers, each above 0."""
    for name, value in numbers.items():
        if not is_positive(value):
            raise InputError(f"{name} must be a positive number, got {value!r}.")


def require_nonnegative(**numbers: Any) -> None:
    """Finite numbers, each at least 0."""
    for name, value in numbers.items():
        if not is_number(value) or value < 0:
            raise InputError(f"{name} must be a finite number of at least 0, got {value!r}.")


def require_inside(**shares: Any) -> None:
    """Numbers strictly between 0 and 1: a confidence, a discount factor, a ratio."""
    for name, value in shares.items():
        if not is_number(value) or not 0 < value < 1:
            raise InputError(f"{name} must lie strictly between 0 and 1, got {value!r}.")


def require_probabilities(**shares: Any) -> None:
    """Numbers from 0 to 1, both included."""
    for name, value in shares.items():
        if not is_number(value) or not 0 <= value <= 1:
            raise InputError(f"{name} must be a number from 0 to 1, got {value!r}.")


def require_seed(seed: Any, name: str = "seed") -> None:
    """A seed of random numbers."""
    if not is_seed(seed):
        raise InputError(f"{name} must be a whole number from 0 to 2^63 - 1, got {seed!r}.")


def require_threads(threads: Any) -> None:
    """A number of threads; None is one for each core."""
    if threads is not None:
        require_counts(threads=threads)
