"""Plain values for JSON, and back: one encoder and one reader for all that is printed or saved.

JSON has no word for infinity and for what is not a number. Here they are the texts "Infinity",
"-Infinity" and "NaN", which `float` of Python and `Number` of JavaScript understand; `decoded`
makes numbers of them again, so that nothing is lost between a computation and its page.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

WORDS_FOR_NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def encoded(value: Any) -> Any:
    """As JSON has it: dataclasses by their fields, arrays as lists, enumerations as text."""
    if isinstance(value, Enum):
        return encoded(value.value)
    if isinstance(value, dict):
        return {str(key): encoded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encoded(one) for one in value]
    if isinstance(value, np.ndarray):
        return encoded(value.tolist())
    if isinstance(value, np.generic):
        return encoded(value.item())
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: encoded(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return _word(value)
    return value


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def decoded(value: Any) -> Any:
    """What was encoded, with its infinite numbers."""
    if isinstance(value, dict):
        return {key: decoded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [decoded(one) for one in value]
    if isinstance(value, str):
        return WORDS_FOR_NOT_FINITE.get(value, value)
    return value


def is_known(value: float | None) -> bool:
    """Whether it is there, and a finite number."""
    return value is not None and math.isfinite(value)
