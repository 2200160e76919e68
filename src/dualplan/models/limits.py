"""Limits on measures: side constraints on the occupancy.

A measure is the ratio of two sums over steps, of weights n(x,a) and d(x,a): a mean length has d
= 1, the fraction of customers lost has n = lost and d = offered in a step. A limit on it is linear
in the occupancy u,

    Σ n·u  <=  limit · Σ d·u     or     Σ (n − limit·d)·u  <=  0,

whatever u sums to, so it means the same under both criteria: a ratio of long-run averages, or of
discounted sums.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model, read_only

Weight = Callable[[Ints, int], float]


@dataclass(frozen=True)
class Limit:
    """The most that a measure may be: one of the model's by name, or functions of (x, a) for
    numerator and `per`.
    """

    measure: str | Weight
    at_most: float
    per: Weight | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.at_most):
            raise InputError(
                f"the limit on {self.name!r} must be a finite number, got {self.at_most!r}."
            )
        if isinstance(self.measure, str) and self.per is not None:
            raise InputError(
                f"measure {self.measure!r} of the model has its own denominator; leave `per` out."
            )

    @property
    def name(self) -> str:
        """What is limited."""
        if isinstance(self.measure, str):
            given = self.measure
        else:
            given = getattr(self.measure, "__name__", "measure")
        return self.label or given

    @staticmethod
    def parse(text: str) -> Limit:
        """From the command line: "lost fraction <= 0.01", or "lost fraction <= 1%"."""
        found = re.fullmatch(r"\s*(.+?)\s*<=\s*(\S+)\s*", text)
        if found is None:
            raise InputError(f"a limit reads 'MEASURE <= NUMBER', got {text!r}.")
        try:
            if found[2].endswith("%"):
                return Limit(found[1], float(found[2].removesuffix("%")) / 100)
            return Limit(found[1], float(found[2]))
        except ValueError:
            raise InputError(
                f"the limit on {found[1]!r} must be a number, got {found[2]!r}."
            ) from None

    def weights(
        self, model: Model, states: Ints, actions: Ints, sums: Floats
    ) -> tuple[Floats, Floats]:
        """n and d on pairs: states one a row, and what a step from each pair adds to the model's
        columns.
        """
        if isinstance(self.measure, str):
            measure = model.measure(self.measure)
            return sums @ measure.numerator, sums @ measure.denominator
        return self._values(self.measure, states, actions), (
            np.ones(actions.size) if self.per is None else self._values(self.per, states, actions)
        )

    def _values(self, function: Weight, states: Ints, actions: Ints) -> Floats:
        values = np.array(
            [float(function(read_only(x), int(a))) for x, a in zip(states, actions, strict=True)]
        )
        if not np.isfinite(values).all():
            raise InputError(f"the limit on {self.name!r} gives a value that is no finite number.")
        return values


def require_limits(given: Sequence[Limit | str]) -> tuple[Limit, ...]:
    """Limits, some of which may be texts; raise if these are none."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InputError(f"limits must be a list of limits, got {given!r}; {_LIMITS_REMEDY}.")
    limits = []
    for limit in given:
        if isinstance(limit, str):
            limits.append(Limit.parse(limit))
        elif isinstance(limit, Limit):
            limits.append(limit)
        else:
            raise InputError(f"a limit is needed, got {limit!r}; {_LIMITS_REMEDY}.")
    return tuple(limits)


_LIMITS_REMEDY = "pass limits=[dp.Limit(measure, at_most)] or texts like 'lost fraction <= 0.1'"
