"""Models given as tables: for small problems, for tests, and for what comes in from other
libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import tabular as kernels
from dualplan.core.errors import InputError, ModelError
from dualplan.core.types import ArrayLike, Bools, Floats
from dualplan.models.contract import Box, Code, Model


class TabularModel(Model):
    """A model with states 0..N-1 from sparse tables.

    `transitions` is one N x N matrix for each action (a list of sparse matrices, or an array of
    shape (A, N, N)), or one matrix with a row for each pair, row x·A + a. `loss` has shape (N, A),
    or (N,) if it depends on the state alone; if it depends on the next state, it is laid out as one
    matrix for each action, and its mean is taken over the next states. `allowed` (N, A) says which
    actions may be chosen; by default those whose row is not empty and whose loss is not ∞.
    """

    def __init__(
        self,
        transitions: Any,
        loss: ArrayLike,
        *,
        allowed: ArrayLike | None = None,
        actions: Sequence[str] | None = None,
        start: int = 0,
        name: str = "table",
    ) -> None:
        self.name = name
        matrix, states, n_actions = _one_matrix(transitions)
        self.losses = _losses(loss, matrix, states, n_actions)
        rows = np.diff(matrix.indptr) > 0
        self.may: Bools
        if allowed is None:
            self.may = rows.reshape(states, n_actions) & (self.losses != np.inf)
        else:
            self.may = np.array(allowed, bool).reshape(states, n_actions)
        self.matrix = matrix
        self._check()
        if actions is not None:
            self.actions = tuple(actions)
        else:
            self.actions = tuple(f"action {a}" for a in range(n_actions))
        if len(self.actions) != n_actions:
            raise InputError(
                f"model {name!r} has {n_actions} actions but {len(self.actions)} labels."
            )
        self.coordinates = ("state",)
        self.box = Box.of([0], [states - 1])
        self.start = self.state([start])

    @staticmethod
    def from_rewards(transitions: Any, rewards: Any, **options: Any) -> TabularModel:
        """The same from rewards to be maximised: losses are their negatives.

        An action with a reward of −∞ is not allowed.
        """
        if _are_matrices(rewards):
            losses: Any = [-sp.csr_array(matrix) for matrix in rewards]
        else:
            losses = -np.asarray(rewards, np.float64)
        return TabularModel(transitions, losses, **options)

    def _check(self) -> None:
        n_actions = self.may.shape[1]
        if self.may.shape != self.losses.shape or not self.may.any(axis=1).all():
            raise ModelError(f"model {self.name!r}: every state needs at least one allowed action.")
        wrong = np.flatnonzero(~((self.matrix.data >= 0) & (self.matrix.data <= 1 + 1e-9)))
        if wrong.size:
            entry = int(wrong[0])
            row = int(np.searchsorted(self.matrix.indptr, entry, side="right")) - 1
            raise ModelError(
                f"model {self.name!r}: transitions give x={row // n_actions}, a={row % n_actions}, "
                f"x'={self.matrix.indices[entry]} the probability {self.matrix.data[entry]:.6g}."
            )
        sums = np.asarray(self.matrix.sum(axis=1)).ravel()
        bad = np.flatnonzero(self.may.ravel() & (np.abs(sums - 1) > 1e-9))
        if bad.size:
            row = int(bad[0])
            raise ModelError(
                f"model {self.name!r}: the row x={row // n_actions}, a={row % n_actions} sums to "
                f"{sums[row]:.9g}, not 1."
            )
        bad = np.flatnonzero(self.may.ravel() & ~np.isfinite(self.losses.ravel()))
        if bad.size:
            row = int(bad[0])
            raise ModelError(
                f"model {self.name!r}: the loss at x={row // n_actions}, a={row % n_actions} is "
                "not finite."
            )

    @cached_property
    def code(self) -> Code:
        """The tables as flat arrays, forward and transposed."""
        # a pair that is not allowed leads nowhere, forward or backward
        live = sp.csr_array(sp.diags_array(self.may.ravel().astype(np.float64)) @ self.matrix)
        live.eliminate_zeros()
        live.sum_duplicates()
        back = sp.csc_array(live)
        int_fields: list[Any] = [
            live.indptr,
            live.indices,
            self.may.ravel(),
            back.indptr,
            back.indices,
        ]
        float_fields: list[Floats] = [
            np.where(self.may, self.losses, 0.0).ravel(),
            live.data,
            back.data,
        ]
        int_starts = (
            kernels.TABULAR_HEADER_SIZE + np.cumsum([0, *(f.size for f in int_fields)])[:-1]
        )
        float_starts = np.cumsum([0, *(f.size for f in float_fields)])[:-1]
        header = np.concatenate([self.may.shape, int_starts, float_starts])
        return Code(
            np.concatenate([header, *int_fields]).astype(np.int64),
            np.concatenate(float_fields).astype(np.float64),
            kernels.allowed,
            kernels.loss,
            kernels.step,
            kernels.forward,
            kernels.predecessors,
            max(1, int(np.diff(live.indptr).max())),
            max(1, int(np.diff(back.indptr).max())),
        )

    @property
    def loss_bounds(self) -> tuple[float, float]:
        """The least and the greatest loss of an allowed pair."""
        values = self.losses[self.may]
        return float(values.min()), float(values.max())


def _one_matrix(transitions: Any) -> tuple[Any, int, int]:
    """The matrix with a row for each pair (x, a), the number of states, the number of actions."""
    if sp.issparse(transitions) or (isinstance(transitions, np.ndarray) and transitions.ndim == 2):
        matrix: Any = sp.csr_array(transitions, dtype=np.float64)  # type: ignore[arg-type]
        states = int(matrix.shape[1])
        if states == 0 or matrix.shape[0] % states:
            raise InputError(
                f"transitions of shape {matrix.shape} have no whole number of actions a state."
            )
        return matrix, states, int(matrix.shape[0]) // states
    blocks = [sp.csr_array(block, dtype=np.float64) for block in transitions]
    if not blocks or any(b.shape != (blocks[0].shape[0],) * 2 for b in blocks):
        raise InputError("transitions must be square matrices of one size, one for each action.")
    states = int(blocks[0].shape[0])
    n_actions = len(blocks)
    stacked = sp.csr_array(sp.vstack(blocks))
    order = (np.arange(n_actions)[None, :] * states + np.arange(states)[:, None]).ravel()
    return sp.csr_array(stacked[order]), states, n_actions


def _are_matrices(given: Any) -> bool:
    """Whether these are sparse matrices, one for each action, as some libraries have rewards."""
    return isinstance(given, (list, tuple)) and len(given) > 0 and all(map(sp.issparse, given))


def _losses(loss: Any, matrix: Any, states: int, n_actions: int) -> Floats:
    if _are_matrices(loss):
        losses = np.array([block.toarray() for block in loss], np.float64)
    else:
        losses = np.array(loss, np.float64)
    if losses.shape == (states,):
        losses = np.repeat(losses[:, None], n_actions, axis=1)
    if losses.shape == (n_actions, states, states):
        losses = _mean_losses(losses, matrix)
    if losses.shape != (states, n_actions):
        raise InputError(
            f"the loss has shape {losses.shape}; expected ({states}, {n_actions}) or ({states},), "
            f"or by action, state and next state ({n_actions}, {states}, {states})."
        )
    return losses


def _mean_losses(losses: Floats, matrix: Any) -> Floats:
    """Σ_y P(y|x,a) ℓ(a,x,y); what cannot happen does not count."""
    actions = len(losses)
    pairs = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    met = losses[pairs % actions, pairs // actions, matrix.indices]
    happens = matrix.data > 0
    sums = np.bincount(pairs[happens], (matrix.data * met)[happens], minlength=matrix.shape[0])
    return np.asarray(sums.reshape(-1, actions))
