"""The laws of given pairs: where they lead, with what probabilities, and what they cost; checked.

For methods that look at some pairs of a model of any size. Nothing here is longer than the number
of pairs asked for times the number of their outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import constraints as kernels
from dualplan._kernels.compiler import Kernel
from dualplan._kernels.layouts import Tallies
from dualplan._kernels.sweep import no_counts
from dualplan.core.errors import MissingError, ModelError
from dualplan.core.rows import distinct_rows
from dualplan.core.types import Bools, Floats, Ints
from dualplan.models.contract import Model, vector


@dataclass(frozen=True, eq=False)
class Laws:
    """The outcomes of pairs, one after the other: outcome k belongs to pair `pairs[k]`."""

    states: Ints
    pairs: Ints
    probabilities: Floats
    losses: Floats

    def mean(self, values: Floats) -> Floats:
        """Σ_y P(y|x,a)·value for each pair, of a number or a row of numbers for each outcome."""
        weighted = values * (
            self.probabilities if values.ndim == 1 else self.probabilities[:, None]
        )
        first = np.flatnonzero(np.diff(self.pairs, prepend=-1))
        return np.asarray(np.add.reduceat(weighted, first, axis=0))

    def mean_of(self, function: Callable[[Ints], Floats]) -> Floats:
        """Σ_y P(y|x,a)·f(y) for each pair; f is asked once for each different next state."""
        distinct, place = distinct_rows(self.states)
        first = np.flatnonzero(np.diff(self.pairs, prepend=-1))
        ends = np.append(first, self.pairs.size)
        shape = (first.size, len(distinct))
        law = sp.csr_array((self.probabilities, place, ends), shape=shape)
        return np.asarray(law @ function(distinct))


def inside(model: Model, states: Ints) -> Bools:
    """Which rows lie in the box."""
    return np.asarray(((model.box.lower <= states) & (states <= model.box.upper)).all(axis=1))


def allowed_pairs(model: Model, states: Ints) -> tuple[Ints, Ints]:
    """All allowed pairs of states, one a row: their states, state by state, and their actions."""
    rows, actions = allowed_rows(model, states)
    return np.ascontiguousarray(states[rows]), actions


def allowed_rows(model: Model, states: Ints) -> tuple[Ints, Ints]:
    """All allowed pairs of states, one a row: the number of the row, and the action."""
    code = model.code
    may = np.empty((len(states), len(model.actions)), np.int64)
    kernels.allowed_at(code.allowed, code.ints, code.floats, np.ascontiguousarray(states), may)
    stuck = np.flatnonzero(~may.any(axis=1))
    if stuck.size:
        raise ModelError(
            f"model {model.name!r}: no action is allowed in state x={vector(states[stuck[0]])}."
        )
    rows, actions = np.nonzero(may)
    return rows.astype(np.int64), actions.astype(np.int64)


def transitions(model: Model, states: Ints, actions: Ints) -> Laws:
    """The laws and the losses of allowed pairs.

    Probabilities within rounding of 1 are divided out.
    """
    code = model.code
    most = model.code.max_outcomes
    after = np.empty((actions.size * most, model.box.dim), np.int64)
    counts = np.empty(actions.size, np.int64)
    chances = np.empty((actions.size, most))
    losses = np.empty(actions.size)
    kernels.laws_at(code.forward, code.ints, code.floats, states, actions, after, chances, counts)
    kernels.losses_at(code.loss, code.ints, code.floats, states, actions, losses)
    used = np.arange(most) < counts[:, None]
    chances[~used] = 0.0
    kept = after[used.ravel()]
    masses = chances.sum(axis=1)
    pairs = np.nonzero(used)[0]
    wrong = ~(np.abs(masses - 1) <= 1e-9) | ~np.isfinite(losses)
    wrong[pairs[~inside(model, kept)]] = True
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ModelError(
            f"model {model.name!r} at x={vector(states[k])}, a={actions[k]} leaves its box, or has "
            "a law that does not sum to 1 or a loss that is not finite; check_model says more."
        )
    return Laws(kept, pairs, chances[used] / masses[pairs], losses)


def expected_counts(model: Model) -> Kernel:
    """What counts the events of a step in expectation."""
    if model.code.counts is not None:
        return model.code.counts
    if model.code.counters:
        raise MissingError(f"model {model.name!r} does not know what a step counts in expectation.")
    return no_counts


def tallies_of(model: Model) -> Tallies:
    """What a step adds up in expectation, as kernels take it."""
    code = model.code
    return Tallies(code.loss, expected_counts(model), code.ints, code.floats)
