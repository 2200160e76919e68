"""Functions of states as Python knows them: they take states, one a row, and give a number for
each.

Tables over all states, sums, linear combinations; and how the values of a user's function are asked
for and checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model

StateFunction = Callable[[Ints], Any]  # of states, one a row: a number for each
STATES_AT_ONCE = 2**18  # states whose values are computed at once


@dataclass(frozen=True, eq=False)
class StateTable:
    """A function of states, one a row, from its values at all of them in the order of their
    numbers.
    """

    lower: Ints
    strides: Ints
    values: Floats

    def __call__(self, states: Ints) -> Floats:
        """The values at these states."""
        return np.asarray(self.values[(states - self.lower) @ self.strides])


@dataclass(frozen=True, eq=False)
class StateSum:
    """A sum of functions of states, one a row."""

    parts: tuple[StateFunction, ...]

    def __call__(self, states: Ints) -> Floats:
        """The values at these states."""
        return np.asarray(
            sum(
                (np.asarray(part(states), np.float64) for part in self.parts), np.zeros(len(states))
            )
        )


@dataclass(frozen=True, eq=False)
class Combination:
    """Σ_k w_k y_k of functions that give a row of numbers, dense or sparse, for each state."""

    functions: Callable[[Ints], Any]
    weights: Floats

    def __call__(self, states: Ints) -> Floats:
        """The values at these states."""
        return np.asarray(self.functions(states) @ self.weights)


def state_function(model: Model, values: Floats) -> StateFunction:
    """Values over all states of an enumerable model as a function of states."""
    if values.shape != (model.box.count,):
        raise InputError(
            f"values over all states are {model.box.count} numbers, got the shape {values.shape}."
        )
    return StateTable(model.box.lower, model.box.strides, values)


def state_values(function: StateFunction, states: Ints, what: str) -> Floats:
    """The values of a function of the user at states, one a row, checked.

    `what` is its name in messages.
    """
    values = np.asarray(function(states), np.float64)
    if values.shape != (len(states),) or not np.isfinite(values).all():
        raise InputError(f"the {what} must give one finite number for each row of states.")
    return values


def everywhere(model: Model, function: StateFunction) -> Floats:
    """A function of states at all of them, in the order of their numbers."""
    if isinstance(function, StateTable):
        return function.values
    values = np.empty(int(model.box.count or 0))
    for first in range(0, values.size, STATES_AT_ONCE):
        numbers = np.arange(first, min(first + STATES_AT_ONCE, values.size))
        values[numbers] = function(model.box.states(numbers))
    return values
