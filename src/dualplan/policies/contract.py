"""What a policy is: probabilities of the actions for each state.

A compiled policy is a function over data, like a model (`Code`), and runs inside the simulation
loops. A policy that cannot be compiled (a network from another library, say) has `code` None and is
asked state by state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan._kernels.compiler import Data, Kernel
from dualplan._kernels.layouts import Rule
from dualplan._kernels.policies import rows_at
from dualplan.core.errors import PolicyError
from dualplan.core.identity import digest
from dualplan.core.types import ArrayLike, Floats, Ints, Json
from dualplan.models.contract import Model, vector


@dataclass(frozen=True, eq=False)
class OwnLoop(Data):
    """A loop that simulates the model under this policy, with the same draws and sums as that for
    all, but faster.

    It takes quadratic controls, of the first `coordinates` of a state; with one, sums are those of
    ℓ + Ph − h for an h that does not see the other coordinates, and Ph may be over these too.
    `moments` are those of one step.
    """

    ints: Ints
    floats: Floats
    run: Kernel
    moments: Kernel
    coordinates: int


@dataclass(frozen=True, eq=False)
class PolicyCode(Data):
    """The compiled function of a policy and the arrays it reads.

    The loop that simulates it, if it has its own.
    """

    ints: Ints
    floats: Floats
    act: Kernel
    loop: OwnLoop | None = None

    @property
    def rule(self) -> Rule:
        """The policy as kernels take it."""
        return Rule(self.act, self.ints, self.floats)


class Policy:
    """Maps a state of `model` to probabilities of its actions."""

    def __init__(self, model: Model, name: str, code: PolicyCode | None) -> None:
        self.model = model
        self.name = name
        self.code = code

    def __call__(self, x: ArrayLike) -> Floats:
        """The probabilities of the actions in state x."""
        probabilities = self.probabilities(self.model.state(x))
        check_probabilities(self, np.asarray(x, np.int64), probabilities)
        return probabilities

    def act(self, x: ArrayLike) -> str:
        """The label of the most likely action in state x, ties to the lowest."""
        return self.model.actions[int(np.argmax(self(x)))]

    def probabilities(self, x: Ints) -> Floats:
        """The probabilities in a state known to be one, unchecked."""
        if self.code is None:
            raise PolicyError(f"policy {self.name!r} has neither compiled code nor a function.")
        out = np.empty(len(self.model.actions))
        self.code.act(self.code.ints, self.code.floats, x, out)
        return out

    def rows(self, states: Ints) -> Floats:
        """The probabilities in each of many states known to be such, one a row, unchecked."""
        out = np.empty((len(states), len(self.model.actions)))
        if self.code is None:
            for k, x in enumerate(states):
                out[k] = self.probabilities(x)
        else:
            rows_at(
                self.code.act, self.code.ints, self.code.floats, np.ascontiguousarray(states), out
            )
        return out

    def describe(self) -> Json:
        """The policy in words and numbers, for reports and saved runs."""
        return {"name": self.name, "kind": type(self).__name__, "digest": self.digest}

    @property
    def digest(self) -> str:
        """A fingerprint of all that defines the policy."""
        return digest(*self._defining_parts())

    def _defining_parts(self) -> tuple[Any, ...]:
        if self.code is None:
            return ()
        return (self.code.act.function, self.code.ints, self.code.floats)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.model.name!r}>"


def require_policy(policy: Policy) -> None:
    """Raise unless this is a policy."""
    if isinstance(policy, Policy):
        return
    if isinstance(policy, str):
        remedy = f"heuristics are model.policy(name), so pass model.policy({policy!r})"
    elif callable(policy):
        remedy = "pass dp.policies.FunctionPolicy(model, function) for a function of states"
    else:
        remedy = "heuristics are model.policy(name)"
    raise PolicyError(f"a policy is needed, got {policy!r}; {remedy}.")


def require_policies(model: Model, policies: Policy | Sequence[Policy]) -> list[Policy]:
    """A policy or several, as a list; raise unless all of them were made for this model."""
    if isinstance(policies, (list, tuple)):
        chosen = list(policies)
    else:
        chosen = [policies]
    for policy in chosen:
        require_policy_of(model, policy)
    return chosen


def require_policy_of(model: Model, policy: Policy) -> None:
    """Raise unless the policy was made for this model, or for one with the same fingerprint."""
    require_policy(policy)
    if policy.model is not model and policy.model.digest != model.digest:
        raise PolicyError(f"policy {policy.name!r} was made for another model than {model.name!r}.")


def check_probabilities(policy: Policy, x: Ints, probabilities: Floats) -> None:
    """Raise if these are no probabilities of allowed actions."""
    where = f"policy {policy.name!r} at state {vector(x)}"
    if probabilities.shape != (len(policy.model.actions),):
        raise PolicyError(
            f"{where} gives {probabilities.size} numbers for {len(policy.model.actions)} actions."
        )
    if not np.all(probabilities >= 0):
        raise PolicyError(f"{where} gives a probability of {np.min(probabilities):.6g}.")
    if abs(probabilities.sum() - 1) > 1e-9:
        raise PolicyError(
            f"{where} gives probabilities that sum to {probabilities.sum():.9g}, not 1."
        )
    forbidden = np.flatnonzero((probabilities > 0) & ~policy.model.allowed(x))
    if forbidden.size:
        a = int(forbidden[0])
        raise PolicyError(
            f"{where} chooses action {a} ({policy.model.actions[a]}), which is not allowed there."
        )
