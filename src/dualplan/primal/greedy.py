"""Policies that look one step ahead with given values: argmin_a ℓ(x,a) + γ Σ_y P(y|x,a) V(y), ties to the lowest a.

With V = Ψw the look-ahead is compiled and needs no table, so it works on models of any size. Values over all states of
an enumerable model make a table by one sweep; other functions of states are asked in Python, state by state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan._kernels.compiler import Data
from dualplan._kernels.values import NOISE, greedy_rule, greedy_within_rule
from dualplan.errors import InputError
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy, PolicyCode, require_policy_of
from dualplan.policies.tables import TablePolicy
from dualplan.primal.basis import Basis
from dualplan.surrogate import StateFunction, StateTable, state_function
from dualplan.transitions import allowed_pairs, transitions
from dualplan.types import ArrayLike, Floats, Ints


@dataclass(frozen=True, eq=False)
class LinearValues(Data):
    """Ψw, a function of states, one a row."""

    basis: Basis
    weights: Floats

    def __post_init__(self) -> None:
        weights = np.ascontiguousarray(self.weights, np.float64)
        if weights.shape != (len(self.basis),) or not np.isfinite(weights).all():
            raise InputError(f"a basis of {len(self.basis)} functions needs as many finite weights.")
        object.__setattr__(self, "weights", weights)  # the class is frozen

    def __call__(self, states: Ints) -> Floats:
        """The values at these states."""
        return self.basis.combine(self.weights, states)


class GreedyPolicy(Policy):
    """The action of least ℓ + γPV; γ is 1 for the average criterion.

    With `within`, only actions that this policy takes with positive probability are compared: values that are wrong
    cannot lead to what it would never do (a server that idles beside waiting customers, say).
    """

    def __init__(
        self,
        model: Model,
        values: LinearValues | StateFunction,
        gamma: float = 1.0,
        *,
        name: str = "greedy",
        within: Policy | None = None,
    ) -> None:
        if not 0 <= gamma <= 1:
            raise InputError(f"gamma must lie between 0 and 1, got {gamma!r}.")
        if not callable(values):
            raise InputError("values are Ψw or a function of states; for an array over all states use `greedy`.")
        if model.code.forward is None:
            model.forward(model.start, 0)  # raises, and says why
        if within is not None:
            require_policy_of(model, within)
        self.values, self.gamma, self.within = values, float(gamma), within
        code = None
        if isinstance(values, LinearValues):
            if values.basis.model is not model and values.basis.model.digest != model.digest:
                raise InputError(f"the basis belongs to {values.basis.model.name!r}, not to {model.name!r}.")
            known = within is None or within.code is not None
            code = _code(model, values, self.gamma, within) if values.basis.compiled and known else None
        super().__init__(model, name, code)

    def probabilities(self, x: Ints) -> Floats:
        """1 for the greedy action, by compiled code or by asking the values."""
        if self.code is not None:
            return super().probabilities(x)
        states, actions = allowed_pairs(self.model, x[None, :])
        if self.within is not None:
            taken = self.within.probabilities(x)[actions] > 0
            states, actions = states[taken], actions[taken]
        law = transitions(self.model, states, actions)
        costs = law.losses + self.gamma * law.mean(np.asarray(self.values(law.states), np.float64))
        out = np.zeros(len(self.model.actions))
        ties = costs <= costs.min() + NOISE * (abs(costs.min()) + np.abs(costs).max())
        out[actions[np.argmax(ties)]] = 1.0
        return out

    def _defining_parts(self) -> tuple[Any, ...]:
        return (*self._own_parts(), *(() if self.within is None else (self.within.digest,)))

    def _own_parts(self) -> tuple[Any, ...]:
        given = self.values
        if isinstance(given, LinearValues):
            user = [block.function for block in given.basis.user]
            return (self.model.digest, given.basis.ints, given.basis.floats, given.weights, self.gamma, *user)
        table = (given.values,) if isinstance(given, StateTable) else (given,)
        return (self.model.digest, *table, self.gamma)


def _code(model: Model, values: LinearValues, gamma: float, within: Policy | None) -> PolicyCode:
    code, basis = model.code, values.basis
    assert code.forward is not None
    head = [code.max_outcomes, code.ints.size, code.floats.size]
    ints = np.concatenate([np.array(head, np.int64), code.ints, basis.ints])
    floats = np.concatenate([[gamma], values.weights, code.floats, basis.floats])
    if within is None or within.code is None:
        return PolicyCode(ints, floats, greedy_rule(code.allowed, code.loss, code.forward))
    rule = within.code
    ints = np.concatenate([np.array([rule.ints.size, rule.floats.size], np.int64), rule.ints, ints])
    floats = np.concatenate([rule.floats, floats])
    return PolicyCode(ints, floats, greedy_within_rule(rule.act, code.loss, code.forward))


def greedy(
    model: Model, values: StateFunction | ArrayLike, gamma: float = 1.0, *, name: str = "greedy", table: bool = False
) -> Policy:
    """The greedy policy of Ψw, of a function of states, or of numbers for all states.

    Numbers for all states, or any values if `table` asks for it, make a table of actions by one sweep.
    """
    if callable(values) and not table and not isinstance(values, StateTable):
        return GreedyPolicy(model, values, gamma, name=name)
    sweeper = Sweeper(model)
    function = values if callable(values) else state_function(model, np.asarray(values, np.float64))
    best = np.zeros(sweeper.states, np.int64)
    sweeper.optimal(everywhere(model, function), gamma, best=best)
    return TablePolicy(model, best, name=name)


CHUNK = 2**18  # states whose values are computed at once


def everywhere(model: Model, function: StateFunction) -> Floats:
    """A function of states at all of them, in the order of their numbers."""
    if isinstance(function, StateTable):
        return function.values
    values = np.empty(int(model.box.count or 0))
    for first in range(0, values.size, CHUNK):
        numbers = np.arange(first, min(first + CHUNK, values.size))
        values[numbers] = function(model.box.states(numbers))
    return values
