"""Several policies in turn, each for its share of the time: a randomised policy with a memory.

Let every part return again and again to one state x°, its *home*. A cycle from x° to x° under part
k has the mean length T_k and the mean loss C_k, whatever was done before, so long-run sums over
cycles of several parts are sums of what each does alone. If part k is followed in a share w_k of
the *time*, the long-run mean of any function of state and action, with c_k its mean under part k
alone,

    Σ_k w_k c_k ,      since      (n_k T_k / Σ_j n_j T_j)·(C_k / T_k) = w_k c_k   for n_k cycles,

is linear in the shares: costs, and what limits are on. That is what a mixture of occupancies
u = Σ_k w_k u_k is, whose policy π_u(a|x) ∝ Σ_k w_k u_k(x) π_k(a|x) would need densities that nobody
has. A step-by-step mixture Σ_k w_k π_k (`mixed.py`) is another policy, and costs what it costs.

Shares of time need no mean lengths of cycles: at every visit of x° the part follows that is
furthest behind its share (`Follower`). Cycles of finite mean length then keep the shares in the
long run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualplan.core.errors import PolicyError
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.models.contract import Model, vector
from dualplan.policies.contract import Policy, require_policy, require_policy_of
from dualplan.policies.saved import Parts, inner, outer, saved_as


@saved_as("alternating")
class Alternating(Policy):
    """Parts in turn, each in its share of the time; one gives way to the next at `home`."""

    def __init__(
        self,
        policies: Sequence[Policy],
        shares: ArrayLike,
        home: ArrayLike | None = None,
        *,
        name: str | None = None,
    ) -> None:
        given = np.asarray(shares, np.float64)
        if not policies or given.shape != (len(policies),):
            raise PolicyError(
                f"{len(policies)} policies in turn need as many shares, got {given.size}."
            )
        if not (given > 0).all() or abs(given.sum() - 1) > 1e-9:
            raise PolicyError(
                f"the shares of policies in turn must be positive and sum to 1, got {shares!r}."
            )
        for policy in policies:
            require_policy(policy)
            require_policy_of(policies[0].model, policy)
        model = policies[0].model
        self.policies = tuple(policies)
        self.shares = given
        self.home = model.start.copy() if home is None else model.state(home)
        super().__init__(model, self.words if name is None else name, None)

    @property
    def words(self) -> str:
        """What is followed: the part with the largest share, and the others in theirs."""
        order = np.argsort(-self.shares, kind="stable")
        main = self.policies[order[0]].name
        others = [f"{self.policies[k].name} in {self.shares[k]:.3g}" for k in order[1:]]
        return ", ".join([main, *others])

    @property
    def main(self) -> Policy:
        """The part with the largest share."""
        return self.policies[int(np.argmax(self.shares))]

    def probabilities(self, x: Ints) -> Floats:  # noqa: ARG002
        """There are none: what is done in a state depends on which part is followed."""
        raise PolicyError(
            f"policy {self.name!r} follows several policies in turn, so a state alone does not say "
            "what it does; ask one of its `policies`, or its `follower()`."
        )

    def follower(self) -> Follower:
        """What follows the policy step by step, with the memory that it needs."""
        return Follower(self)

    def explained(self) -> str:
        """In a sentence."""
        order = np.argsort(-self.shares, kind="stable")
        rest = [
            f"{self.policies[k].name} in {100 * self.shares[k]:.3g}% of the time" for k in order[1:]
        ]
        if not rest:
            return f"Follow {self.main.name}."
        return (
            f"Follow {self.main.name}, and {', and '.join(rest)}; change at visits of state "
            f"{vector(self.home)}, to the one that is furthest behind its share."
        )

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self.shares, self.home, *(policy.digest for policy in self.policies))

    def to_parts(self) -> Parts:
        """The policies, their shares, and where they change."""
        arrays = {"shares": self.shares, "home": self.home}
        return Parts(arrays=arrays) | inner(self.policies)

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> Alternating:
        """From the policies, their shares, and where they change."""
        arrays = parts.arrays
        return cls(outer(model, parts), arrays["shares"], arrays["home"], name=parts.name)


class Follower:
    """Follows policies in turn: at each visit of home, the one furthest behind its share."""

    def __init__(self, policy: Alternating) -> None:
        self.policy = policy
        self.steps = np.zeros(policy.shares.size, np.int64)  # that each part was followed for
        self.current = int(np.argmax(policy.shares))

    def __call__(self, x: ArrayLike) -> Floats:
        """The probabilities of the actions in the state that comes next."""
        state = self.policy.model.state(x)
        if np.array_equal(state, self.policy.home):
            behind = self.policy.shares * (self.steps.sum() + 1) - self.steps
            self.current = int(np.argmax(behind))
        self.steps[self.current] += 1
        return self.policy.policies[self.current](state)
