"""Several policies side by side, and their mixtures π(a|x) = Σ_k w_k π_k(a|x).

A mixture with exploration, (1 − ε)π + ε·(random or other policies), visits what π alone would not,
so that ratios of other policies against it stay below 1/ε.

A `Bank` holds the compiled rules of several policies in one pair of arrays. Its kernel writes a
table with a row of probabilities for each policy; banks whose policies have the same rules share
it, whatever the policies' data.

    ints     policies, then for each the number of its rule and where its ints and floats begin and
             end; the ints
    floats   the floats
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    FLOAT_ROWS,
    FLOATS,
    INTS,
    Data,
    Kernel,
    made_once,
    user_kernel,
)
from dualplan.core.checks import require_probabilities
from dualplan.core.errors import InputError, PolicyError
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy, PolicyCode, require_policy, require_policy_of
from dualplan.policies.saved import Parts, inner, outer, saved_as
from dualplan.policies.tables import random_policy

TABLE_SIGNATURE = numba.types.void(INTS, FLOATS, INTS, FLOAT_ROWS)
MEMBER_RECORD_SIZE = 5


@dataclass(frozen=True, eq=False)
class Bank(Data):
    """The compiled rules of several policies.

    `fill(ints, floats, x, table)` writes their probabilities.
    """

    ints: Ints
    floats: Floats
    fill: Kernel


def bank(policies: Sequence[Policy]) -> Bank | None:
    """The policies side by side, or None if one of them is not compiled."""
    codes = [policy.code for policy in policies if policy.code is not None]
    if len(codes) < len(policies):
        return None
    rules = list(dict.fromkeys(code.act for code in codes))
    ends = 1 + MEMBER_RECORD_SIZE * len(codes) + np.cumsum([0, *(code.ints.size for code in codes)])
    float_ends = np.cumsum([0, *(code.floats.size for code in codes)])
    records = [
        (rules.index(code.act), ends[k], ends[k + 1], float_ends[k], float_ends[k + 1])
        for k, code in enumerate(codes)
    ]
    ints = np.concatenate([[len(codes)], np.ravel(records), *(code.ints for code in codes)]).astype(
        np.int64
    )
    return Bank(ints, np.concatenate([code.floats for code in codes]), _fill(*rules))


@made_once
def _fill(*rules: Kernel) -> Kernel:
    chosen = _chosen([rule.address for rule in rules])

    @user_kernel(TABLE_SIGNATURE)
    def fill(ints, floats, x, table):  # type: ignore[no-untyped-def]
        for k in range(ints[0]):
            o = 1 + MEMBER_RECORD_SIZE * k
            chosen(
                ints[o],
                ints[ints[o + 1] : ints[o + 2]],
                floats[ints[o + 3] : ints[o + 4]],
                x,
                table[k],
            )

    return fill


def _chosen(rules: Sequence[Any], place: int = 0) -> Any:
    """The rule of a number: one function calls the next, since their types differ."""
    if not rules:

        @numba.njit(nogil=True)
        def none(slot, ints, floats, x, out):  # type: ignore[no-untyped-def]
            return

        return none
    first = rules[0]
    others = _chosen(rules[1:], place + 1)

    @numba.njit(nogil=True, error_model="numpy")
    def chosen(slot, ints, floats, x, out):  # type: ignore[no-untyped-def]
        if slot == place:
            first(ints, floats, x, out)
        else:
            others(slot, ints, floats, x, out)

    return chosen


@saved_as("mixed")
class Mixed(Policy):
    """Σ_k w_k π_k: in every state, the choice of policy k with probability w_k."""

    def __init__(
        self, policies: Sequence[Policy], weights: ArrayLike, *, name: str | None = None
    ) -> None:
        try:
            shares = np.asarray(weights, np.float64)
        except (TypeError, ValueError) as error:
            raise PolicyError(
                f"the weights of a mixture must be probabilities, got {weights!r}."
            ) from error
        if not policies or shares.shape != (len(policies),):
            raise PolicyError(
                f"a mixture of {len(policies)} policies needs as many weights, got {shares.size}."
            )
        if not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-9:
            raise PolicyError(f"the weights of a mixture must be probabilities, got {weights!r}.")
        for policy in policies:
            require_policy(policy)
            require_policy_of(policies[0].model, policy)
        model = policies[0].model
        self.policies = tuple(policies)
        self.weights = shares
        found = bank(policies)
        code = None
        if found is not None:
            head = [found.ints.size, len(model.actions)]
            ints = np.concatenate([np.array(head, np.int64), found.ints])
            code = PolicyCode(ints, np.concatenate([shares, found.floats]), _mixture(found.fill))
        label = " + ".join(f"{w:g} {p.name}" for w, p in zip(shares, policies, strict=True))
        super().__init__(model, label if name is None else name, code)

    def probabilities(self, x: Ints) -> Floats:
        """The weighted sum."""
        if self.code is not None:
            return super().probabilities(x)
        return np.asarray(
            sum(w * p.probabilities(x) for w, p in zip(self.weights, self.policies, strict=True))
        )

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self.weights, *(policy.digest for policy in self.policies))

    def to_parts(self) -> Parts:
        """The policies and their shares."""
        return Parts(arrays={"shares": self.weights}) | inner(self.policies)

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> Mixed:
        """From the policies and their shares."""
        return cls(outer(model, parts), parts.arrays["shares"], name=parts.name)


@made_once
def _mixture(fill: Kernel) -> Kernel:
    table_of = fill.address

    @user_kernel(ACT_SIGNATURE)
    def act(ints, floats, x, out):  # type: ignore[no-untyped-def]
        count = ints[2]
        table = np.empty((count, ints[1]), np.float64)
        table_of(ints[2:], floats[count:], x, table)
        for a in range(out.size):
            out[a] = 0.0
            for k in range(count):
                out[a] += floats[k] * table[k, a]

    return act


def exploring(
    policy: Policy,
    epsilon: float,
    others: Sequence[Policy] | None = None,
    *,
    name: str | None = None,
) -> Mixed:
    """(1 − ε)π + ε·(the others in equal parts), by default ε of all allowed actions equally
    likely.
    """
    require_policy(policy)
    require_probabilities(epsilon=epsilon)
    model: Model = policy.model
    if others is None:
        rest = [random_policy(model)]
    else:
        rest = list(others)
    if not rest:
        raise InputError(
            "exploring needs at least one other policy, or none named for a random one."
        )
    weights = [1.0 - epsilon, *[epsilon / len(rest)] * len(rest)]
    return Mixed(
        [policy, *rest], weights, name=f"exploring {policy.name}" if name is None else name
    )
