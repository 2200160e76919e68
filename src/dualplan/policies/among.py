"""Of several policies, in every state the one whose look-ahead with given values costs least.

With values V and q(x,a) = ℓ(x,a) + γ Σ_y P(y|x,a) V(y), the policy is π_k(·|x) with

    k = argmin_k Σ_a π_k(a|x) q(x,a),        ties to the first.

With single actions as policies it is the greedy policy. For V the bias (discounted: the cost-to-go)
of a policy that is among the π_k, it costs no more than that policy (policy improvement); for other
V nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualplan._kernels.look_ahead import ROUNDING_SHARE, among_rule
from dualplan._kernels.sweep import no_counts
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy, PolicyCode, require_policy, require_policy_of
from dualplan.policies.greedy import GreedyPolicy, looked_ahead
from dualplan.policies.mixed import bank
from dualplan.policies.saved import Parts, inner, outer, saved_as
from dualplan.values.basis import LinearValues
from dualplan.values.functions import StateFunction
from dualplan.values.interpolation import LatticeValues
from dualplan.values.saved import value_parts, values_of


@saved_as("among")
class GreedyAmong(Policy):
    """The policy of least Σ_a π_k(a|x) q(x,a) in each state; γ is 1 for the average criterion."""

    def __init__(
        self,
        policies: Sequence[Policy],
        values: LinearValues | LatticeValues | StateFunction,
        gamma: float = 1.0,
        *,
        name: str = "greedy among policies",
    ) -> None:
        if not policies:
            raise InputError("to be greedy among policies takes at least one.")
        require_policy(policies[0])
        model = policies[0].model
        for policy in policies:
            require_policy_of(model, policy)
        single = GreedyPolicy(model, values, gamma)
        found = bank(policies)
        self.policies = tuple(policies)
        self.values = values
        self.gamma = single.gamma
        self._single = single
        code = None
        own = single.code
        if (
            isinstance(values, (LinearValues, LatticeValues))
            and own is not None
            and found is not None
        ):
            ints = np.concatenate(
                [np.array([own.ints.size, own.floats.size], np.int64), own.ints, found.ints]
            )
            law = model.code
            valued = values.code
            assert law.forward is not None
            assert valued is not None, "the look-ahead is compiled"
            rule = among_rule(
                law.allowed, law.loss, law.forward, no_counts, valued.value, found.fill
            )
            code = PolicyCode(ints, np.concatenate([own.floats, found.floats]), rule)
        super().__init__(model, name, code)

    def probabilities(self, x: Ints) -> Floats:
        """Those of the policy chosen, by compiled code or by asking all."""
        if self.code is not None:
            return super().probabilities(x)
        actions, costs = looked_ahead(self.model, self.values, self.gamma, x)
        table = np.array([policy.probabilities(x) for policy in self.policies])
        means = table[:, actions] @ costs
        ties = means <= means.min() + ROUNDING_SHARE * (abs(means.min()) + np.abs(means).max())
        return np.asarray(table[np.argmax(ties)])

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self._single.digest, *(policy.digest for policy in self.policies))

    def to_parts(self) -> Parts:
        """The policies and the values that choose among them."""
        return (
            Parts({"gamma": self.gamma}) | inner(self.policies) | Parts(*value_parts(self.values))
        )

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> GreedyAmong:
        """From the policies and the values."""
        values = values_of(model, parts.header, parts.arrays)
        return cls(outer(model, parts), values, parts.header["gamma"], name=parts.name)
