"""Machines that fail, and one administrator who can reboot one of them at a time.

The problem SysAdmin (Guestrin, Koller, Parr & Venkataraman 2003, JAIR 19; with continuous states
Guestrin, Hauskrecht & Kveton 2004, UAI). Machine i works (1) or has failed (0). In a step a machine
works next with probability

    stays      if it works,          times 1 − contagion if a machine that it depends on has failed,
    recovers   if it has failed,       times the same,
    reboots    if it is rebooted, whatever the others do.

Topologies: in a "ring" machine i depends on machine i − 1; in a "star" all others depend on machine
1, which depends on none. The loss of a step is the weight of the failed machines plus the cost of a
reboot. The form is that of the sources; the constants, here and in the defaults, are our choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualplan.core.checks import is_number, require_probabilities, require_whole
from dualplan.core.errors import InputError, unknown
from dualplan.core.types import Floats
from dualplan.models.factored import FactoredAction, FactoredModel

TOPOLOGIES = ("ring", "star")


class SysAdmin(FactoredModel):
    """A network of machines, of which one can be rebooted in a step (Guestrin et al. 2003)."""

    def __init__(
        self,
        *,
        machines: int = 10,
        topology: str = "ring",
        stays: float = 0.95,
        recovers: float = 0.05,
        contagion: float = 0.5,
        reboots: float = 1.0,
        reboot_cost: float = 0.5,
        weights: float | Sequence[float] = 1.0,
    ) -> None:
        require_whole("machines", machines, least=2)
        if topology not in TOPOLOGIES:
            raise unknown("topology", str(topology), TOPOLOGIES)
        require_probabilities(stays=stays, recovers=recovers, contagion=contagion, reboots=reboots)
        each = _weights(weights, machines)
        before = {i: (i - 1) % machines if topology == "ring" else 0 for i in range(machines)}
        works = np.outer([1 - contagion, 1.0], [recovers, stays])  # [the other, itself]
        both = _law(works)
        alone = _law(works[1])
        rebooted = _law(np.array(reboots))
        names = [f"machine {i + 1}" for i in range(machines)]
        super().__init__(
            dict.fromkeys(names, 2),
            {
                i: ((before[i], i), both) if before[i] != i else ((i,), alone)
                for i in range(machines)
            },
            [((i,), (each[i], 0.0)) for i in range(machines)],
            {"nothing": FactoredAction()}
            | {
                f"reboot {i + 1}": FactoredAction(reboot_cost, {i: ((), rebooted)})
                for i in range(machines)
            },
            start=[1] * machines,
            name="sysadmin",
        )


def _law(works: Floats) -> Floats:
    return np.stack([1 - works, works], axis=-1)


def _weights(given: float | Sequence[float], machines: int) -> list[float]:
    if is_number(given):
        each = [float(given)] * machines  # type: ignore[arg-type]
    else:
        each = [float(w) for w in given]  # type: ignore[union-attr]
    if len(each) != machines or not all(is_number(w) and w >= 0 for w in each):
        raise InputError(
            f"weights are a number that is not negative, or one for each of {machines} machines."
        )
    return each
