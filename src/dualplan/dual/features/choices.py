"""How a feature chooses the action: always the same one, or as a policy does, φ(x, a)
= P(x)·π(a|x).

Policies may be heuristics, tables, or compiled functions; with decisions per server a policy is
each server's own rule, so that the number of features does not grow with the number of servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualplan._kernels import choices as kernels
from dualplan._kernels.policies import action_rule, network_rule, table_rule
from dualplan.core.errors import PolicyError
from dualplan.core.types import Floats, Ints
from dualplan.dual.features.compiled import UserRule
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy
from dualplan.policies.tables import AnyPolicy, as_policy, tabulated

KINDS_OF_RULES = {
    network_rule: kernels.NETWORK_CHOICE,
    table_rule: kernels.TABLED_CHOICE,
    action_rule: kernels.DECIDED_CHOICE,
}


@dataclass(frozen=True, eq=False)
class Choices:
    """Ways to choose the action: their names, the policies (none: an action each), and functions of
    the user.
    """

    names: tuple[str, ...]
    policies: tuple[Policy, ...]
    user: tuple[UserRule, ...]

    @staticmethod
    def of(model: Model, given: Sequence[AnyPolicy] | None) -> Choices:
        """Each action, or each policy's own choice."""
        if given is None:
            return Choices(model.actions, (), ())
        policies = [tabulated(as_policy(model, policy)) for policy in given]
        if not policies:
            raise PolicyError(
                "choices need at least one policy; without choices there is a feature for each "
                "action."
            )
        for policy in policies:
            if policy.code is None:
                raise PolicyError(
                    f"policy {policy.name!r} cannot be compiled, so it cannot be part of a feature."
                )
        others = [p for p in policies if p.code is not None and p.code.act not in KINDS_OF_RULES]
        user = tuple(UserRule(p.code.act, p.digest) for p in others if p.code is not None)
        return Choices(tuple(p.name for p in policies), tuple(policies), user)

    def __len__(self) -> int:
        return len(self.names)

    def fields(self, ints_at: int, floats_at: int) -> tuple[Ints, Floats]:
        """The compiled form, which starts at these places of its block."""
        if not self.policies:
            rows = [(kernels.FIXED_CHOICE, a, 0, 0, 0, 0) for a in range(len(self))]
            return np.array([len(self), *np.ravel(rows)], np.int64), np.zeros(0)
        records = list[tuple[int, ...]]()
        ints = list[Ints]()
        floats = list[Floats]()
        slot = 0
        at = ints_at + 1 + kernels.CHOICE_RECORD_SIZE * len(self)
        to = floats_at
        for policy in self.policies:
            code = policy.code
            if code is None:  # `of` has refused it
                continue
            kind = KINDS_OF_RULES.get(code.act, kernels.OTHER_CHOICE)
            records.append((kind, slot, at, at + code.ints.size, to, to + code.floats.size))
            slot += kind == kernels.OTHER_CHOICE
            at = at + code.ints.size
            to = to + code.floats.size
            ints.append(code.ints)
            floats.append(code.floats)
        head = np.array([len(self), *np.ravel(records)], np.int64)
        return np.concatenate([head, *ints]), np.concatenate(floats)
