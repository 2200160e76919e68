"""Kinds of values that keys of a plan and of its features take, with the words for when a value is
of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dualplan.core.checks import (
    is_interval,
    is_list,
    is_number,
    is_positive,
    is_seed,
    is_table,
    is_text,
    is_whole,
)
from dualplan.core.errors import InputError, unknown


@dataclass(frozen=True)
class Kind:
    """Which values there are, and the words for when one is none of them.

    `typed` is what an option of the command line is read as, None if only a file can say it. If
    there are `names`, a text must be one of them.
    """

    fits: Callable[[Any], bool]
    words: str
    typed: Any = None
    names: tuple[str, ...] = ()

    def check(self, key: str, value: Any, of: str = "") -> None:
        """Raise one sentence unless the value is of this kind."""
        if not self.fits(value):
            raise InputError(f"{key}{of} must be {self.words}, got {value!r}.", at=(key,))
        texts = [value] if is_text(value) else value if _are_texts(value) else ()
        for text in texts if self.names else ():
            if text not in self.names:
                raise unknown(key, text, self.names, at=(key,))


def one_of(names: Iterable[str]) -> Kind:
    """One of a list of names."""
    return Kind(is_text, "a name", str, names=tuple(names))


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 < value < 1


def _is_count(value: Any) -> bool:
    return is_whole(value) and value > 0


def _are_texts(value: Any) -> bool:
    return value == () or is_list(is_text)(value)


NAME = Kind(is_text, "a name", str)
NUMBER = Kind(is_number, "a number", float)
POSITIVE = Kind(is_positive, "a positive number", float)
NOT_NEGATIVE = Kind(lambda v: is_number(v) and v >= 0, "a number of at least 0", float)
BELOW_ONE = Kind(is_number, "a number below 1", float)
BETWEEN_0_AND_1 = Kind(_is_share, "a number between 0 and 1", float)
COUNT = Kind(_is_count, "a positive integer", int)
FROM_0 = Kind(lambda v: is_whole(v) and v >= 0, "an integer of at least 0", int)
SEED = Kind(is_seed, "a whole number from 0 to 2^63 - 1", int)
INTEGER = Kind(is_whole, "an integer", int)
TRUTH = Kind(lambda v: isinstance(v, bool), "true or false", bool)
TIME = Kind(lambda v: is_text(v) or is_positive(v), "a time such as '90s' or '2m'", str)
SHARE = Kind(lambda v: is_text(v) or is_number(v), "a share such as '2%' or 0.02", str)
METHODS = Kind(
    lambda v: is_text(v) or _are_texts(v), "the name of a method, or a list of them", list[str]
)
LIMITS = Kind(_are_texts, "a list of texts like 'lost fraction <= 0.1'", list[str])
POLICIES = Kind(_are_texts, "a list of heuristics or files of saved policies", list[str])
PENALTIES = Kind(
    lambda v: is_positive(v) or is_list(is_positive)(v),
    "a positive number, or a list of them",
    list[float],
)
PARAMETERS = Kind(is_table, "a table of parameters", list[str])
WEIGHTS = Kind(
    lambda v: is_text(v) or (is_table(v) and all(is_number(w) for w in v.values())),
    "'loss', 'values of POLICY', FILE.py:FUNCTION, or a table of numbers by coordinate",
    str,
)
TABLE = Kind(is_table, "a table")
START = Kind(lambda v: isinstance(v, (list, tuple)), "a state, or a list of [state, probability]")
NAMES = Kind(is_list(is_text), "a list of names")
INTEGERS = Kind(is_list(is_whole), "a list of integers")
INTERVALS = Kind(is_list(is_interval), "a list of intervals [low, high]")
CUTS = Kind(is_list(is_list(is_interval)), "a list of intervals [low, high] for each coordinate")
CUTS_BY_COORDINATE = Kind(
    lambda v: is_table(v) and all(is_list(is_whole)(w) for w in v.values()),
    "a table of coordinates with the integers at which each is cut",
)
RATIOS = Kind(is_list(is_list(is_number)), "lists of numbers, one for each coordinate")


def features_of(names: Iterable[str]) -> Kind:
    """The name of a set of features, or tables that each name a family."""
    return Kind(
        lambda v: is_text(v) or is_list(is_table)(v),
        "a name, or tables that each name a family",
        str,
        names=tuple(names),
    )
