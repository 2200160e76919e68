"""What is minimised: the average loss a step, or the discounted sum of losses from a start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualplan.core.checks import is_number, require_inside
from dualplan.core.errors import InputError, unknown
from dualplan.core.types import Floats, Ints, Json
from dualplan.models.contract import Model


@dataclass(frozen=True)
class Average:
    """The long-run average loss; per unit of time for models in continuous time."""

    gamma: ClassVar[float] = 1.0  # in formulas for both criteria
    words: ClassVar[str] = "average"

    def describe(self) -> Json:
        """For saved runs."""
        return {"criterion": "average"}


@dataclass(frozen=True)
class Discounted:
    """Σ_t γ^t ℓ(x_t, a_t) from `start`: a state, or pairs (state, probability).

    By default the model's own start.
    """

    gamma: float
    start: Any = None

    def __post_init__(self) -> None:
        require_inside(gamma=self.gamma)

    @property
    def words(self) -> str:
        """For tables."""
        return f"discounted, gamma {self.gamma:g}"

    def start_distribution(self, model: Model) -> tuple[Ints, Floats]:
        """The start states and their probabilities."""
        if self.start is None:
            return model.start[None, :].copy(), np.ones(1)
        several = (
            isinstance(self.start, (list, tuple))
            and self.start
            and isinstance(self.start[0], (list, tuple))
        )
        try:
            if several:
                given = [(x, float(p)) for x, p in self.start]
            else:
                given = [(self.start, 1.0)]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"a start is a state or a list of (state, probability), got {self.start!r}."
            ) from error
        pairs = [(model.state(x), p) for x, p in given]
        weights = np.array([p for _, p in pairs])
        if not ((weights >= 0).all() and abs(weights.sum() - 1) <= 1e-9):
            raise InputError(f"the start distribution sums to {weights.sum():.9g}, not 1.")
        return np.array([x for x, _ in pairs]), weights

    def describe(self) -> Json:
        """For saved runs."""
        return {"criterion": "discounted", "gamma": self.gamma, "start": self.start}


Criterion = Average | Discounted


def require_criterion(given: Criterion | None) -> Criterion:
    """The criterion, by default the average one; raise if this is none."""
    if given is None:
        return Average()
    if not isinstance(given, (Average, Discounted)):
        raise InputError(
            "the criterion must be dp.Average() or dp.Discounted(gamma), got "
            f"{given!r}; {_instead(given)}."
        )
    return given


def _instead(given: Any) -> str:
    """What was probably meant."""
    if is_number(given) and 0 < given < 1:
        return f"pass dp.Discounted({given!r})"
    if given is Average or (isinstance(given, str) and given == "average"):
        return "pass dp.Average()"
    return "pass one of these two, or leave it out for the average"


def require_discounted(given: Discounted, method: str, otherwise: str = "") -> Discounted:
    """The criterion, for a method that is for discounted costs only; `otherwise` is the one for
    average costs.
    """
    found = require_criterion(given)
    if isinstance(found, Discounted):
        return found
    remedy = "pass dp.Discounted(gamma)"
    if otherwise:
        remedy = f"for the average criterion use {otherwise}"
    raise InputError(f"{method} is for the discounted criterion, got {given!r}; {remedy}.")


def make_criterion(name: str, gamma: float | None = None, start: Any = None) -> Criterion:
    """A criterion by name, from files and the command line."""
    if name == "average":
        if gamma is not None or start is not None:
            raise InputError("gamma and start belong to criterion 'discounted'.")
        return Average()
    if name != "discounted":
        raise unknown("criterion", name, ["average", "discounted"])
    if gamma is None:
        raise InputError("criterion 'discounted' needs gamma, a number below 1.")
    return Discounted(gamma, start)
