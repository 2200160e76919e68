"""Rules for admission control."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dualplan.core.errors import PolicyError
from dualplan.models.contract import register_heuristics
from dualplan.models.instances.admission import AdmissionControl
from dualplan.policies.contract import Policy
from dualplan.policies.tables import FunctionPolicy


def threshold(
    model: AdmissionControl, levels: Sequence[int] | None = None, *, name: str = "threshold"
) -> Policy:
    """Admit class k while fewer than levels[k] customers are in the system.

    By default while a server is free.
    """
    if levels is None:
        limits = np.full(model.classes, model.servers)
    else:
        limits = np.array(levels, np.int64)
    if limits.shape != (model.classes,):
        raise PolicyError(
            f"policy {name!r} needs {model.classes} levels, one a class, got {limits.size}."
        )
    limits = np.minimum(limits, model.room)

    def rule(x):  # type: ignore[no-untyped-def]
        if x[1] > 0 and x[0] < limits[x[1] - 1]:
            return 1
        return 0

    return FunctionPolicy(model, rule, name=name)


ADMISSION_HEURISTICS: dict[str, Callable[[AdmissionControl], Policy]] = {
    "threshold": threshold,
    "admit-all": lambda model: threshold(model, [model.room] * model.classes, name="admit-all"),
    "reject-all": lambda model: threshold(model, [0] * model.classes, name="reject-all"),
}
register_heuristics(AdmissionControl, ADMISSION_HEURISTICS)
