"""Products of one law for each coordinate, times an action or a policy's choice: trees without
edges (`trees.py`).

    φ(x, a) = 1{a = A}·Π_i P_i(x_i)    or    π(a|x)·Π_i P_i(x_i)

Geometric    P(k) = (1 − r)·r^(k − low) from the coordinate's lower limit on; drawn by inversion, k
             = ⌊log(1 − u)/log r⌋
Truncated    P(k) ∝ r^k between two limits, by default those of the coordinate; r may exceed 1
Empirical    any finite law on integers

Where the loss is a sum over the coordinates, its expectation is a sum over each law's values; a
geometric law is summed until r^n = e^(−60), where what is left of a quadratic loss is below 1e-22
of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualplan.core.checks import is_whole, require_inside, require_positive
from dualplan.core.errors import InputError
from dualplan.core.types import ArrayLike, Floats
from dualplan.dual.features.contract import Features
from dualplan.dual.features.tree_laws import Node, Tree
from dualplan.dual.features.trees import trees
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.policies.contract import Policy

MOST_LAW_VALUES = 1_000_000  # that a law may list


@dataclass(frozen=True)
class Geometric:
    """P(k) = (1 − ratio)·ratio^(k − low) on a coordinate that has no upper limit."""

    ratio: float

    def __post_init__(self) -> None:
        require_inside(ratio=self.ratio)


@dataclass(frozen=True)
class Truncated:
    """P(k) ∝ ratio^k for low <= k <= high.

    Limits that are not given are those of the coordinate.
    """

    ratio: float
    low: int | None = None
    high: int | None = None

    def __post_init__(self) -> None:
        require_positive(ratio=self.ratio)
        if any(v is not None and not is_whole(v) for v in (self.low, self.high)):
            raise InputError(
                f"the limits of a truncated law are integers, got {self.low!r} and {self.high!r}."
            )


@dataclass(frozen=True)
class Empirical:
    """P(values[k]) ∝ weights[k]."""

    values: Sequence[int]
    weights: Sequence[float]

    def __post_init__(self) -> None:
        try:
            given, weights = (
                np.ravel(np.asarray(v, np.float64)) for v in (self.values, self.weights)
            )
        except (TypeError, ValueError) as error:
            raise InputError(
                "an empirical law needs integers and as many weights, at least one."
            ) from error
        if (
            given.size != weights.size
            or given.size == 0
            or not (np.abs(given) < 2**53).all()
            or (given % 1).any()
        ):
            raise InputError("an empirical law needs integers and as many weights, at least one.")
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise InputError("the weights of an empirical law must be nonnegative, and not all 0.")
        object.__setattr__(
            self, "values", tuple(int(v) for v in given)
        )  # so that laws can be compared
        object.__setattr__(self, "weights", tuple(weights.tolist()))

    @classmethod
    def of(cls, samples: ArrayLike) -> Empirical:
        """The law of a draw from the samples."""
        values, counts = np.unique(np.ravel(samples), return_counts=True)
        return cls(values.tolist(), counts.tolist())

    def __str__(self) -> str:
        return f"Empirical({len(self.values)} values)"


Law = Geometric | Truncated | Empirical


def products(
    model: Model, laws: Sequence[Sequence[Law]], *, choices: Sequence[Policy] | None = None
) -> Features:
    """One law for each coordinate, for each product; times each action, or each policy's own
    choice.

    With decisions per server and no choices, an action is taken at the events of those servers that
    have it.
    """
    dim = model.box.dim
    rows = [tuple(row) if isinstance(row, Sequence) else () for row in laws]
    if not rows or any(len(row) != dim for row in rows):
        raise InputError(f"a product needs a law for each of {dim} coordinates.")
    for law in itertools.chain(*rows):
        if not isinstance(law, Law):
            raise InputError(f"a law is Geometric, Truncated or Empirical, got {law!r}.")
    limits = list(zip(model.box.lower.tolist(), model.box.upper.tolist(), strict=True))
    nodes = {}  # coordinates with the same limits share their laws
    for row in rows:
        for i, law in enumerate(row):
            if (law, limits[i]) not in nodes:
                nodes[law, limits[i]] = _node(model, law, i)
    made = [
        Tree(
            tuple(nodes[law, limits[i]] for i, law in enumerate(row)),
            (-1,) * dim,
            f"product ({_words(row)})",
        )
        for row in rows
    ]
    return trees(model, made, choices=choices)


def _words(row: Sequence[Law]) -> str:
    """The laws of a product, at most eight of them."""
    words = [str(law) for law in row]
    return ", ".join(words if len(words) <= 8 else [*words[:6], "...", words[-1]])


def _node(model: Model, law: Law, i: int) -> Node:
    """The law of coordinate i."""
    low = int(model.box.lower[i])
    high = int(model.box.upper[i])
    if isinstance(law, Geometric):
        if high < UNBOUNDED:
            raise InputError(
                f"coordinate {i} ends at {high}, where a geometric law does not; use Truncated."
            )
        return Node(low, np.ones((1, 1)), law.ratio)
    if isinstance(law, Truncated):
        if law.low is None:
            first = low
        else:
            first = law.low
        if law.high is None:
            last = high
        else:
            last = law.high
    else:
        used = [v for v, w in zip(law.values, law.weights, strict=True) if w > 0]
        first = min(used)
        last = max(used)
    if last == UNBOUNDED:
        raise InputError(
            f"coordinate {i} has no upper limit; give {law} one with high=..., or use Geometric."
        )
    if not low <= first <= last <= high:
        raise InputError(
            f"{law} reaches from {first} to {last}, which is no interval within coordinate {i}."
        )
    if last - first >= MOST_LAW_VALUES:
        raise InputError(
            f"{law} reaches from {first} to {last}, which are more than {MOST_LAW_VALUES:,} values."
        )
    return Node(first, _probabilities(law, first, last)[None, :])


def _probabilities(law: Truncated | Empirical, first: int, last: int) -> Floats:
    weights = np.zeros(last - first + 1)
    if isinstance(law, Truncated):
        exponents = np.arange(weights.size) * math.log(law.ratio)
        weights = np.exp(exponents - exponents.max())
    else:
        used = np.array(law.weights) > 0
        np.add.at(weights, np.array(law.values)[used] - first, np.array(law.weights)[used])
    return np.asarray(weights / weights.sum())
