"""Policies that look one step ahead with values of few variables: argmin_a ℓ(x,a) + γ Σ_k w_k
g_k^a(x).

Only what an action changes can tell it from the others. With g_k the backprojection by the laws
that no action changes,

    ℓ(x,a) + γ Σ_k w_k g_k^a(x)  =  [Σ_j ℓ_j(x) + γ Σ_k w_k g_k(x)]
                                    + cost(a) + Σ_j ℓ_j^a(x) + γ Σ_{k touched by a} w_k (g_k^a
                                    − g_k)(x)

and the bracket is the same for all actions, so it is left out: a decision costs a few look-ups for
each action, however many variables there are. Tables of one action are added up as long as the sum
stays small. Ties go to the lowest action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dualplan._kernels.factored import local_rule
from dualplan.models.factored import FactoredModel, Local, packed
from dualplan.policies.contract import Policy, PolicyCode
from dualplan.policies.saved import register_rule
from dualplan.values.local import LocalValues, backprojection, combined

MOST_ADDED_TABLE_ENTRIES = 2**8  # of tables that are added up
LOCAL_GREEDY_HEADER_SIZE = 4


def local_greedy(values: LocalValues, gamma: float = 1.0, *, name: str = "greedy") -> Policy:
    """The compiled greedy policy; γ is 1 for the average criterion."""
    model = values.basis.model
    lists = []
    sizes = []
    for a in range(len(model.actions)):
        tables, size = _changes(values, gamma, a)
        lists.append(_added_up(model, [*tables, *model.own_losses[a]]))
        sizes.append(
            size + abs(model.costs[a]) + sum(table.largest for table in model.own_losses[a])
        )
    floats = np.concatenate([model.costs, sizes])
    table, place, entries = packed([t for tables in lists for t in tables], floats.size)
    pointers = np.cumsum([0, *map(len, lists)])
    fields = [table, place, pointers, np.arange(pointers[-1])]
    starts = LOCAL_GREEDY_HEADER_SIZE + np.cumsum([0, *(f.size for f in fields)])[:-1]
    ints = np.concatenate([starts, *fields]).astype(np.int64)
    return Policy(model, name, PolicyCode(ints, np.concatenate([floats, entries]), local_rule))


def _changes(values: LocalValues, gamma: float, a: int) -> tuple[list[Local], float]:
    """γ w_k (g_k^a − g_k) of the functions that the action touches, and how large what was
    subtracted is.
    """
    model = values.basis.model
    tables = []
    size = 0.0
    for w, psi in zip(values.weights, values.basis.functions, strict=True):
        if w != 0 and any(i in model.changes[a] for i in psi.scope):
            new = backprojection(model, psi, a)
            old = backprojection(model, psi)
            tables.append(
                combined(
                    model,
                    [
                        Local(new.scope, gamma * w * new.values),
                        Local(old.scope, -gamma * w * old.values),
                    ],
                )
            )
            size += 2 * abs(gamma * w) * psi.largest
    return tables, size


def _added_up(model: FactoredModel, tables: Sequence[Local]) -> list[Local]:
    """The same sum from fewer tables: each joins the first that stays small with it."""
    groups: list[tuple[set[int], list[Local]]] = []
    for table in sorted(tables, key=lambda t: (-len(t.scope), t.scope)):
        for scope, members in groups:
            if math.prod(model.sizes[i] for i in scope | set(table.scope)) <= max(
                MOST_ADDED_TABLE_ENTRIES, table.values.size
            ):
                scope.update(table.scope)
                members.append(table)
                break
        else:
            groups.append((set(table.scope), [table]))
    return [combined(model, members) for _, members in groups]


register_rule("local greedy", local_rule)
