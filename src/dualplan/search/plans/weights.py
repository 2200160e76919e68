"""Weights over states from a plan: w(x) > 0, by which the violations at x are multiplied.

"loss"                      1 + |ℓ(x)|, the mean over the actions that are allowed
"values of POLICY"          1 + |h(x) − h(start)|, its bias or cost-to-go where states can be
                            listed: about the size that the multiplier of the flow has at x
"FILE.py:FUNCTION"          a function of states, one a row, with a number for each; or of one
                            state
{constant = 1, queue = 2}   1 + 2·queue: a number for each of some coordinates, by their names
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan.core.errors import InputError, unknown, within
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model, coordinate_of
from dualplan.models.criteria import Criterion, Discounted
from dualplan.models.load import load_object
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.policies.named import named_policy
from dualplan.search.plans.standard import values_of
from dualplan.values.functions import StateFunction

LOSS_WEIGHTS = "loss"
VALUES_PREFIX = "values of "
CONSTANT = "constant"


@dataclass(frozen=True, eq=False)
class LossWeights:
    """1 + |ℓ(x)|."""

    model: Model

    def __call__(self, states: Ints) -> Floats:
        """At states, one a row."""
        rows = np.ascontiguousarray(states)
        owners, actions = allowed_rows(self.model, rows)
        found = transitions(self.model, np.ascontiguousarray(rows[owners]), actions).losses
        counts = np.bincount(owners, minlength=len(rows))
        means = np.bincount(owners, found, minlength=len(rows)) / counts
        return np.asarray(1.0 + np.abs(means))


@dataclass(frozen=True, eq=False)
class ValueWeights:
    """1 + |h(x) − h(start)|."""

    values: StateFunction
    middle: float

    def __call__(self, states: Ints) -> Floats:
        """At states, one a row."""
        return np.asarray(1.0 + np.abs(self.values(states) - self.middle))


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """A constant and a multiple of each coordinate."""

    constant: float
    slopes: Floats

    def __call__(self, states: Ints) -> Floats:
        """At states, one a row."""
        return np.asarray(self.constant + states @ self.slopes)


@dataclass(frozen=True, eq=False)
class OwnWeights:
    """A function of the user, asked for all states at once or, if it takes one, for each."""

    name: str
    function: Any
    together: bool

    def __call__(self, states: Ints) -> Any:
        """At states, one a row."""
        if self.together:
            return self.function(states)
        return np.array([float(self.function(x)) for x in states])


def make_weights(given: Any, model: Model, criterion: Criterion) -> StateFunction | None:
    """What a plan says about weights, as a function of states."""
    if given is None:
        return None
    with within("weights"):
        if isinstance(given, Mapping):
            return _linear(given, model)
        if given.startswith(VALUES_PREFIX):
            return _values(named_policy(model, given.removeprefix(VALUES_PREFIX)), model, criterion)
        if ".py:" in given:
            return _own(given, model)
        if given == LOSS_WEIGHTS:
            return LossWeights(model)
    known = [LOSS_WEIGHTS, f"{VALUES_PREFIX}POLICY", "FILE.py:FUNCTION"]
    raise unknown("weights over states", given, known, at=("weights",))


def _values(policy: Any, model: Model, criterion: Criterion) -> ValueWeights:
    values = values_of(model, policy, criterion)
    starts = model.start[None, :]
    if isinstance(criterion, Discounted):
        starts = criterion.start_distribution(model)[0]
    return ValueWeights(values, float(np.mean(values(starts))))


def _linear(given: Mapping[str, Any], model: Model) -> LinearWeights:
    slopes = np.zeros(model.box.dim)
    for name, value in given.items():
        if name != CONSTANT:
            slopes[coordinate_of(model, name)] = value
    constant = float(given.get(CONSTANT, 1.0))
    lower = np.where(slopes >= 0, model.box.lower, model.box.upper.astype(np.float64))
    least = constant + float(slopes @ lower)
    if least <= 0:
        raise InputError(
            f"the weights over states must be positive, and these are {least:g} somewhere; raise "
            "the constant."
        )
    return LinearWeights(constant, slopes)


def _own(name: str, model: Model) -> OwnWeights:
    function = load_object(name)
    if not callable(function):
        raise InputError(f"{name!r} is no function of states.")
    several = np.repeat(model.start[None, :], model.box.dim + 2, axis=0)
    for states, together in ((several, True), (model.start, False)):
        try:
            found = np.asarray(function(states), np.float64)
        except Exception:  # the function is of the user, and may not take states in this form
            continue
        if found.shape == (len(several),) * together:
            return OwnWeights(name, function, together)
    raise InputError(
        f"{name!r} must give one number for each row of an array of states, or for one state."
    )
