"""Where values should be good: state-relevance weights c, a distribution on states.

The objective of a primal program is cᵀΨw, so all that it needs of c are its `moments` cᵀΨ. Three
kinds:

    weighted      states with weights
    geometric     c(x) ∝ Π_i r_i^(x_i − lower_i) over the box; coordinates are independent, so
                  moments of products of
                  pieces are products of sums over single coordinates, at any number of states;
                  uniform is r = 1
    occupancy     where a policy goes: its discounted or stationary law, exact where states are few,
                  else from
                  simulated visits

States drawn from c also serve as a sample of constraints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.values.basis import Basis, Piece, products

MOST_SUMMED_VALUES = 1_000_000  # values of a coordinate over which a law is summed
NEGLIGIBLE_GEOMETRIC_WEIGHT = 1e-18  # geometric weights below it are left out
# functions of the user: states up to which all are summed, and draws beyond
MOST_SUMMED_USER_STATES = 2**18
USER_STATE_DRAWS = 50_000
STEPS_BETWEEN_VISITS = 10  # steps between two visits
LEFT_OUT_DISCOUNTED_SHARE = 1e-4  # of the discounted mass that simulated runs leave out


class Relevance(Protocol):
    """A distribution on states, through its means and its draws."""

    @property
    def model(self) -> Model:
        """The model of the states."""

    def moments(self, basis: Basis) -> Floats:
        """cᵀΨ, one number for each function."""

    def draw(self, count: int, seed: int = 0) -> Ints:
        """Independent states from c (or visits of a policy), one a row."""

    def masses(self, states: Ints) -> Floats:
        """c(x) of given states, one a row."""


@dataclass(frozen=True, eq=False)
class Independent:
    """Independent coordinates: the law of coordinate i gives `laws[i][k]` to lower_i + k."""

    model: Model
    laws: tuple[Floats, ...]

    def moments(self, basis: Basis) -> Floats:
        """Products of sums over single coordinates.

        Functions of the user over all states, or drawn ones if many.
        """
        basis.require_single_coordinates("means under independent coordinates")
        means = np.ones(len(basis.products))
        tables = self._tables(basis)
        known: dict[tuple[Piece, ...], float] = {}
        for k, product in enumerate(basis.products):
            for i in {piece.coordinate for piece in product}:
                own = tuple(piece for piece in product if piece.coordinate == i)
                if own not in known:
                    known[own] = float(
                        self.laws[i] @ math.prod((tables[piece] for piece in own), start=1.0)
                    )
                means[k] *= known[own]
        return np.concatenate([means, *self._user_moments(basis)])

    def _tables(self, basis: Basis) -> dict[Piece, Floats]:
        """Each piece at all values of its coordinate."""
        found = {}
        for piece in basis.pieces:
            states = np.tile(self.model.box.lower, (self.laws[piece.coordinate].size, 1))
            states[:, piece.coordinate] += np.arange(len(states))
            found[piece] = products(self.model, [[piece]])(states)[:, 0]
        return found

    def _user_moments(self, basis: Basis) -> list[Floats]:
        if not basis.user:
            return []
        if math.prod(law.size for law in self.laws) > MOST_SUMMED_USER_STATES:
            return [block(self.draw(USER_STATE_DRAWS)).mean(axis=0) for block in basis.user]
        grid = np.meshgrid(*(np.arange(law.size) for law in self.laws), indexing="ij")
        states = self.model.box.lower + np.stack([axis.ravel() for axis in grid], axis=1)
        weights = math.prod(
            (law[axis.ravel()] for law, axis in zip(self.laws, grid, strict=True)), start=1.0
        )
        return [np.asarray(weights @ block(states)) for block in basis.user]

    def draw(self, count: int, seed: int = 0) -> Ints:
        """Coordinate by coordinate."""
        rng = np.random.default_rng(seed)
        return self.model.box.lower + np.stack(
            [rng.choice(law.size, count, p=law) for law in self.laws], axis=1
        )

    def masses(self, states: Ints) -> Floats:
        """Products over coordinates."""
        found = np.ones(len(states))
        for law, values in zip(self.laws, (states - self.model.box.lower).T, strict=True):
            found *= np.where(values < law.size, law[np.minimum(values, law.size - 1)], 0.0)
        return found


def geometric(model: Model, ratio: float | Sequence[float]) -> Independent:
    """c(x) ∝ Π_i ratio_i^(x_i − lower_i) over the box, with one ratio or one for each
    coordinate.
    """
    if isinstance(ratio, (int, float)):
        ratios = [float(ratio)] * model.box.dim
    else:
        ratios = [float(r) for r in ratio]
    if len(ratios) != model.box.dim or not all(0 < r <= 1 for r in ratios):
        raise InputError(
            f"ratios lie above 0 and at most at 1, one for each of {model.box.dim} coordinates, "
            f"got {ratio}."
        )
    return Independent(model, tuple(_geometric(model, i, r) for i, r in enumerate(ratios)))


def _geometric(model: Model, i: int, ratio: float) -> Floats:
    upper = int(model.box.upper[i])
    if upper == UNBOUNDED:
        width = math.inf
    else:
        width = upper - int(model.box.lower[i]) + 1
    if ratio == 1:
        length = width
    else:
        length = min(width, math.ceil(math.log(NEGLIGIBLE_GEOMETRIC_WEIGHT) / math.log(ratio)) + 1)
    if length > MOST_SUMMED_VALUES:
        raise InputError(
            f"coordinate {i} of {model.name!r} takes too many values for the ratio {ratio}; choose "
            "a smaller one."
        )
    law = ratio ** np.arange(int(length), dtype=np.float64)
    return np.asarray(law / law.sum())


def independent(model: Model, laws: Sequence[ArrayLike]) -> Independent:
    """Independent coordinates, each with a law of its own: probabilities of its values from the
    lowest on.
    """
    given = tuple(np.array(law, np.float64) for law in laws)
    if len(given) != model.box.dim:
        raise InputError(
            f"states of {model.name!r} have {model.box.dim} coordinates, so as many laws, not "
            f"{len(given)}."
        )
    for i, law in enumerate(given):
        most = int(model.box.upper[i]) - int(model.box.lower[i]) + 1
        if (
            law.ndim != 1
            or not 1 <= law.size <= most
            or not (law >= 0).all()
            or not abs(law.sum() - 1) <= 1e-9
        ):
            raise InputError(
                f"the law of coordinate {i} is a list of at most {most} probabilities that sum to "
                "1."
            )
    return Independent(model, given)


def uniform(model: Model) -> Independent:
    """All states of a bounded box alike."""
    if not model.box.bounded:
        raise InputError(f"model {model.name!r} has infinitely many states; use geometric weights.")
    return geometric(model, 1.0)
