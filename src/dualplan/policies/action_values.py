"""Policies by values of actions: the allowed action of least q_a(x) = Ψ(x)·v_a, ties to the lowest.

For models whose next states cannot be listed: to look one step ahead would need them, to compare
numbers does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualplan.core.errors import PolicyError
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy
from dualplan.policies.saved import Parts, saved_as
from dualplan.values.basis import Basis, LinearValues
from dualplan.values.saved import value_parts, values_of


@saved_as("action-values")
class ActionValuesPolicy(Policy):
    """The allowed action whose value is least."""

    def __init__(
        self, model: Model, basis: Basis, weights: ArrayLike, *, name: str = "action values"
    ) -> None:
        given = np.ascontiguousarray(weights, np.float64)
        if given.shape != (len(model.actions), len(basis)) or not np.isfinite(given).all():
            raise PolicyError(
                f"{len(model.actions)} actions valued by {len(basis)} functions need a finite "
                f"weight for each of both, got an array of shape {given.shape}."
            )
        self.basis = basis
        self.weights = given
        super().__init__(model, name, None)

    def probabilities(self, x: Ints) -> Floats:
        """1 for the action of least value."""
        values = np.where(self.model.allowed(x), self.weights @ self.basis(x[None, :])[0], np.inf)
        out = np.zeros(len(self.model.actions))
        out[int(np.argmin(values))] = 1.0
        return out

    def rows(self, states: Ints) -> Floats:
        """The same in each of many states."""
        values = self.basis(states) @ self.weights.T
        may = np.array([self.model.allowed(x) for x in states], bool).reshape(values.shape)
        out = np.zeros(values.shape)
        out[np.arange(len(states)), np.argmin(np.where(may, values, np.inf), axis=1)] = 1.0
        return out

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self.model.digest, *self.basis.identity, self.weights)

    def to_parts(self) -> Parts:
        """The functions, and the weights of all actions."""
        header, arrays = value_parts(LinearValues(self.basis, self.weights[0]))
        return Parts(header, {**arrays, "actions": self.weights})

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> ActionValuesPolicy:
        """From the same."""
        values = values_of(model, parts.header, parts.arrays)
        if not isinstance(values, LinearValues):
            raise ValueError("values of actions are weights of functions")
        return cls(model, values.basis, parts.arrays["actions"], name=parts.name)
