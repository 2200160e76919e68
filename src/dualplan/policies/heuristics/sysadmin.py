"""What administrators do: reboot a failed machine, chosen by an index.

The rule is in `_kernels/factored.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dualplan._kernels.factored import reboot_rule
from dualplan.core.types import ArrayLike
from dualplan.models.contract import register_heuristics
from dualplan.models.instances.sysadmin import SysAdmin
from dualplan.policies.contract import Policy, PolicyCode
from dualplan.policies.tables import random_policy


def reboot(
    model: SysAdmin,
    index: ArrayLike = 0.0,
    *,
    dependants: float = 0.0,
    supports: float = 0.0,
    name: str = "reboot",
) -> Policy:
    """The failed machine of largest index, the first among equals.

    The index is a number for each machine, plus `dependants` for each working machine that depends
    on it and `supports` for each working one that it depends on itself.
    """
    machines = range(len(model.sizes))
    others = [
        [(i, dependants) for j, i in model.edges if j == k]
        + [(j, supports) for j, i in model.edges if i == k]
        for k in machines
    ]
    pairs = [pair for own in others for pair in own]
    ints = np.concatenate([np.cumsum([0, *map(len, others)]), [i for i, _ in pairs]]).astype(
        np.int64
    )
    base = np.broadcast_to(np.asarray(index, np.float64), (len(others),))
    return Policy(
        model, name, PolicyCode(ints, np.concatenate([base, [w for _, w in pairs]]), reboot_rule)
    )


def first_failed(model: SysAdmin) -> Policy:
    """The failed machine that was named first."""
    return reboot(model, name="first-failed")


def most_neighbours(model: SysAdmin) -> Policy:
    """The failed machine on which most others depend."""
    counts = np.bincount([j for j, _ in model.edges], minlength=len(model.sizes))
    return reboot(model, counts, name="most-neighbours")


def most_exposed(model: SysAdmin) -> Policy:
    """The failed machine on which most working ones depend."""
    return reboot(model, dependants=1.0, name="most-exposed")


def best_supported(model: SysAdmin) -> Policy:
    """The failed machine that depends on most working ones, where a reboot lasts."""
    return reboot(model, supports=1.0, name="best-supported")


def nothing(model: SysAdmin) -> Policy:
    """Never reboot."""
    return reboot(model, -np.inf, name="nothing")


SYSADMIN_HEURISTICS: dict[str, Callable[[SysAdmin], Policy]] = {
    "first-failed": first_failed,
    "most-neighbours": most_neighbours,
    "most-exposed": most_exposed,
    "best-supported": best_supported,
    "nothing": nothing,
    "random": random_policy,
}
register_heuristics(SysAdmin, SYSADMIN_HEURISTICS)
