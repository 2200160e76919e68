"""What a set of features is.

Each feature φ_j is a probability distribution on the pairs (x, a) of a model. A set answers, without listing states,

    row(x, a)     the features that are positive at a pair and their values
    draw(j, ...)  pairs drawn from one feature
    losses        ℓᵀφ_j, exactly or as an estimate with its standard error

Sets are made of blocks of one kind (`families.py`) and can be put together (`concat`). The compiled form (`Code`) is in
`_kernels/features.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import constraints as kernels
from dualplan._kernels.compiler import Data, Kernel
from dualplan._kernels.features import RECORD
from dualplan._kernels.philox import generator
from dualplan.errors import InputError
from dualplan.features.compiled import UserFunctions, compiled_pair
from dualplan.models.contract import Model
from dualplan.types import ArrayLike, Floats, Ints

STREAM = 11  # of the random numbers that estimates of expected losses use
DRAWS = 20_000


@dataclass(frozen=True, eq=False)
class Block:
    """Features of one kind: its compiled fields, names, how many can be positive at a pair, and the expected losses.

    `errors` are the standard errors of the losses: 0 where they are exact. `widest` counts places that a row needs in
    between. Mixtures have the set that they mix, and their weights. `user` are functions of the user that it needs.
    """

    kind: int
    ints: Ints
    floats: Floats
    names: tuple[str, ...]
    widest: int
    losses: Floats
    errors: Floats
    mixed: Features | None = None
    weights: sp.csr_array | None = None
    user: tuple[UserFunctions, ...] = ()


@dataclass(frozen=True, eq=False)
class Code(Data):
    """The compiled functions of a feature set and the arrays they read."""

    ints: Ints
    floats: Floats
    row: Kernel
    draw: Kernel


class Features:
    """A set of features of one model."""

    def __init__(self, model: Model, blocks: Sequence[Block]) -> None:
        if not blocks or not all(block.names for block in blocks):
            raise InputError("a feature set needs at least one feature.")
        for block in blocks:
            if not len(block.names) == block.losses.size == block.errors.size:
                raise InputError(f"{block.losses.size} features need as many names, got {len(block.names)}.")
        self.model = model
        self.blocks = tuple(blocks)
        self.names = tuple(name for block in blocks for name in block.names)
        self.widest = sum(block.widest for block in blocks)
        self.losses = np.concatenate([block.losses for block in blocks])
        self.errors = np.concatenate([block.errors for block in blocks])
        self.user = tuple(functions for block in blocks for functions in block.user)
        self.code = Code(*_flat(self.blocks), *compiled_pair(self.user))

    def __len__(self) -> int:
        return len(self.names)

    def row(self, x: ArrayLike, a: int) -> tuple[Ints, Floats]:
        """The features that are positive at (x, a), and their values there."""
        (state, action), code = self.model.pair(x, a), self.code
        indices, values = np.empty(self.widest, np.int64), np.empty(self.widest)
        count = code.row(code.ints, code.floats, state, action, indices, values)
        return indices[:count], values[:count]

    def draw(self, j: int, count: int, seed: int = 0) -> tuple[Ints, Ints]:
        """States and actions drawn from feature j."""
        if not 0 <= j < len(self):
            raise InputError(f"features are numbered 0 to {len(self) - 1}, got {j!r}.")
        states, actions = np.empty((count, self.model.box.dim), np.int64), np.empty(count, np.int64)
        code, rng = self.code, generator(seed, STREAM, j)
        kernels.draw_feature(code.draw, code.ints, code.floats, j, rng, states, actions)
        return states, actions


def concat(*sets: Features) -> Features:
    """All features of several sets of one model."""
    if len({s.model.digest for s in sets}) != 1:
        raise InputError("feature sets that are put together must belong to one model.")
    return Features(sets[0].model, [block for s in sets for block in s.blocks])


def estimated_losses(model: Model, block: Block) -> Block:
    """The block with expected losses estimated by draws."""
    lone = Features(model, [block])
    code, means, errors = model.code, np.empty(len(lone)), np.empty(len(lone))
    for j in range(len(lone)):
        states, actions = lone.draw(j, DRAWS)
        losses = np.empty(DRAWS)
        kernels.losses_at(code.loss, code.ints, code.floats, states, actions, losses)
        means[j], errors[j] = losses.mean(), losses.std() / np.sqrt(DRAWS)
    return replace(block, losses=means, errors=errors)


def _flat(blocks: Sequence[Block]) -> tuple[Ints, Floats]:
    header = 3 + RECORD * len(blocks)
    ints_at = header + np.cumsum([0, *(b.ints.size for b in blocks)])
    floats_at = np.cumsum([0, *(b.floats.size for b in blocks)])
    first = np.cumsum([0, *(len(b.names) for b in blocks)])
    slots = np.cumsum([0, *(len(b.user) for b in blocks)])
    records = [(b.kind, first[i], ints_at[i], floats_at[i], slots[i]) for i, b in enumerate(blocks)]
    head = np.concatenate([[len(blocks)], np.ravel(records), [first[-1], sum(b.widest for b in blocks)]])
    ints = np.concatenate([head, *(b.ints for b in blocks)]).astype(np.int64)
    return ints, np.concatenate([b.floats for b in blocks]).astype(np.float64)
