"""Policies that look one step ahead with given values: argmin_a ℓ(x,a) + γ Σ_y P(y|x,a) V(y), ties
to the lowest a.

With V = Ψw, or values on a lattice, the look-ahead is compiled and needs no table, so it works on
models of any size. Values over all states of an enumerable model make a table by one sweep; other
functions of states are asked in Python, state by state. Prices on the model's columns can be part
of the loss (`search/lattice.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualplan._kernels.look_ahead import ROUNDING_SHARE, greedy_rule, within_rule
from dualplan._kernels.sweep import no_counts
from dualplan.core.checks import require_probabilities
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model, require_made_for
from dualplan.models.transitions import allowed_pairs, expected_counts, transitions
from dualplan.policies.contract import Policy, PolicyCode, require_policy_of
from dualplan.policies.saved import Parts, inner, outer, saved_as
from dualplan.values.basis import LinearValues
from dualplan.values.contract import ValueCode
from dualplan.values.functions import StateFunction, StateTable
from dualplan.values.interpolation import LatticeValues
from dualplan.values.saved import value_parts, values_of


@saved_as("greedy")
class GreedyPolicy(Policy):
    """The action of least ℓ + γPV; γ is 1 for the average criterion.

    With `within`, only actions that this policy takes with positive probability are compared:
    values that are wrong cannot lead to what it would never do (a server that idles beside waiting
    customers, say). With `clip`, numbers for the coordinates, the action in a state x beyond them
    is that in min(x, clip), which must allow the same actions: for values that are good up to there
    and mean little beyond.
    """

    def __init__(
        self,
        model: Model,
        values: LinearValues | LatticeValues | StateFunction,
        gamma: float = 1.0,
        *,
        prices: Floats | None = None,
        within: Policy | None = None,
        clip: Ints | None = None,
        name: str = "greedy",
    ) -> None:
        require_probabilities(gamma=gamma)
        if not callable(values):
            raise InputError(
                "values are Ψw or a function of states; for an array over all states use `greedy`."
            )
        if model.code.forward is None:
            model.forward(model.start, 0)  # raises, and says why
        if within is not None:
            require_policy_of(model, within)
        self.values = values
        self.gamma = float(gamma)
        self.within = within
        self.prices = _column_prices(model, prices)
        self.clip = _clip(model, clip)
        valued = _compiled(model, values)
        if self.prices.size and valued is None:
            raise InputError(
                "prices on columns are for compiled values: Ψw, or values on a lattice."
            )
        known = within is None or within.code is not None
        code = None
        if valued is not None and known:
            code = _code(model, valued, self.gamma, self.prices, self.clip, within)
        super().__init__(model, name, code)

    def probabilities(self, x: Ints) -> Floats:
        """1 for the greedy action, by compiled code or by asking the values."""
        if self.code is not None:
            return super().probabilities(x)
        actions, costs = looked_ahead(self.model, self.values, self.gamma, np.minimum(x, self.clip))
        if self.within is not None:
            taken = self.within.probabilities(x)[actions] > 0
            actions = actions[taken]
            costs = costs[taken]
        out = np.zeros(len(self.model.actions))
        ties = costs <= costs.min() + ROUNDING_SHARE * (abs(costs.min()) + np.abs(costs).max())
        out[actions[np.argmax(ties)]] = 1.0
        return out

    def _defining_parts(self) -> tuple[Any, ...]:
        return (*self._own_parts(), *(() if self.within is None else (self.within.digest,)))

    def _own_parts(self) -> tuple[Any, ...]:
        given = self.values
        if isinstance(given, LinearValues):
            user = [block.function for block in given.basis.user]
            parts = (*given.basis.identity, given.weights, self.gamma, *user)
        elif isinstance(given, LatticeValues):
            parts = (given.lattice.ints, given.floats, self.gamma)
        else:
            parts = (given.values if isinstance(given, StateTable) else given, self.gamma)
        prices = (self.prices,) if self.prices.size else ()
        clip = (self.clip,) if (self.clip < self.model.box.upper).any() else ()
        return (self.model.digest, *parts, *prices, *clip)

    def to_parts(self) -> Parts:
        """The values, the prices, the clip, and the policy within whose actions it stays."""
        own = Parts({"gamma": self.gamma}, {"prices": self.prices, "clip": self.clip})
        return (
            own
            | Parts(*value_parts(self.values))
            | inner([] if self.within is None else [self.within])
        )

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> GreedyPolicy:
        """From the same."""
        arrays = parts.arrays
        values = values_of(model, parts.header, arrays)
        if arrays["prices"].size:
            prices = arrays["prices"]
        else:
            prices = None
        within = next(iter(outer(model, parts)), None)
        return cls(
            model,
            values,
            parts.header["gamma"],
            prices=prices,
            within=within,
            clip=arrays["clip"],
            name=parts.name,
        )


def looked_ahead(model: Model, values: StateFunction, gamma: float, x: Ints) -> tuple[Ints, Floats]:
    """The allowed actions in x, and ℓ + γPV of each."""
    states, actions = allowed_pairs(model, x[None, :])
    law = transitions(model, states, actions)
    return actions, law.losses + gamma * law.mean(np.asarray(values(law.states), np.float64))


def _compiled(
    model: Model, values: LinearValues | LatticeValues | StateFunction
) -> ValueCode | None:
    """The compiled form of values that belong to the model, if they have one."""
    if isinstance(values, LinearValues):
        require_made_for(model, values.basis.model, "basis")
    elif isinstance(values, LatticeValues):
        require_made_for(model, values.model, "lattice")
    else:
        return None
    return values.code


def _column_prices(model: Model, given: Floats | None) -> Floats:
    """Prices of the model's columns; none where all are 0."""
    if given is None:
        prices = np.zeros(0)
    else:
        prices = np.ascontiguousarray(given, np.float64)
    if prices.shape not in ((0,), (len(model.columns),)) or not np.isfinite(prices).all():
        raise InputError(
            f"prices of {model.name!r} are a finite number for each of its {len(model.columns)} "
            "columns."
        )
    if prices.any():
        return prices
    return np.zeros(0)


def _clip(model: Model, given: Ints | None) -> Ints:
    """Up to where states are looked at; the ends of the box if nothing is given."""
    if given is None:
        return model.box.upper.copy()
    clip = np.array(given, np.int64)
    if clip.shape != (model.box.dim,) or (clip < model.box.lower).any():
        raise InputError(
            f"a clip of {model.name!r} is a number for each of its {model.box.dim} coordinates."
        )
    return np.minimum(clip, model.box.upper)


def _code(
    model: Model, values: ValueCode, gamma: float, prices: Floats, clip: Ints, within: Policy | None
) -> PolicyCode:
    code = model.code
    assert code.forward is not None
    head = [code.max_outcomes, code.ints.size, code.floats.size, prices.size, values.room]
    ints = np.concatenate([np.array(head, np.int64), values.seen, clip, code.ints, values.ints])
    floats = np.concatenate([[gamma], prices, code.floats, values.floats])
    if prices.size:
        counts = expected_counts(model)
    else:
        counts = no_counts
    if within is None or within.code is None:
        return PolicyCode(
            ints, floats, greedy_rule(code.allowed, code.loss, code.forward, counts, values.value)
        )
    rule = within.code
    ints = np.concatenate([np.array([rule.ints.size, rule.floats.size], np.int64), rule.ints, ints])
    floats = np.concatenate([rule.floats, floats])
    return PolicyCode(
        ints, floats, within_rule(rule.act, code.loss, code.forward, counts, values.value)
    )
