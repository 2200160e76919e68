"""How policies are judged: exactly where states are few, otherwise by simulation."""

from __future__ import annotations

from dataclasses import dataclass

from dualplan.core.budgets import EXACTLY
from dualplan.core.errors import unknown
from dualplan.models.contract import Model

EXACT = "exact"
SIMULATION = "simulation"
STEPS = 5_000_000
NEGLIGIBLE = 1e-9  # excess over a limit


@dataclass(frozen=True)
class Judge:
    """How policies are evaluated: `exact`, `simulation`, or None for exactly where states are
    few.
    """

    method: str | None = None
    steps: int = STEPS
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in (None, EXACT, SIMULATION):
            raise unknown("evaluation", str(self.method), [EXACT, SIMULATION])

    def exact(self, model: Model) -> bool:
        """Whether policies of this model are evaluated exactly."""
        few = model.box.count is not None and model.box.count <= EXACTLY
        return self.method == EXACT or (self.method is None and few)
