"""What a set of features is.

Each feature φ_j is a probability distribution on the pairs (x, a) of a model. A set answers,
without listing states,

    row(x, a)     the features that are positive at a pair and their values
    draw(j, ...)  pairs drawn from one feature
    losses        ℓᵀφ_j, exactly or as an estimate with its standard error

A feature without a draw cannot be in a set: constraints are drawn from the features themselves.

Sets are made of blocks of one kind (`families.py`) and can be put together (`concat`). The compiled
form (`Code`) is in `_kernels/features.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import constraints as kernels
from dualplan._kernels.compiler import Data, Kernel
from dualplan._kernels.features import BLOCK_RECORD_SIZE, USER, FeatureSet, Row, row_of
from dualplan._kernels.philox import generator
from dualplan.core.errors import InputError
from dualplan.core.streams import Stream
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.dual.features.compiled import UserFunctions, UserRule, compiled_set
from dualplan.models.contract import Model

EXPECTED_LOSS_DRAWS = 20_000
NUMBERS_A_PIECE = 2_000_000  # numbers that a piece of draws may hold


# draws of each feature at which actions must be allowed; solving looks at all that it meets
DRAWS_CHECKED_FOR_ACTIONS = 10


@dataclass(frozen=True, eq=False)
class Block:
    """Features of one kind: its compiled fields, names, how many can be positive at a pair, and the
    expected losses.

    `errors` are the standard errors of the losses: 0 where they are exact. `widest` counts places
    that a row needs in between, `room` those that its look-ups work in. Mixtures have the set that
    they mix, and their weights. `user` are functions of the user that it needs.
    """

    kind: int
    ints: Ints
    floats: Floats
    names: tuple[str, ...]
    widest: int
    losses: Floats
    errors: Floats
    room: int = 0
    mixed: Features | None = None
    weights: sp.csr_array | None = None
    user: tuple[UserFunctions | UserRule, ...] = ()


@dataclass(frozen=True, eq=False)
class Code(Data):
    """The compiled functions of a feature set and the arrays they read."""

    ints: Ints
    floats: Floats
    draw: Kernel
    anchor: Kernel
    near: Kernel

    @property
    def packed(self) -> FeatureSet:
        """All of it, as kernels take it."""
        return FeatureSet(self.anchor, self.near, self.draw, self.ints, self.floats)


class Features:
    """A set of features of one model."""

    def __init__(self, model: Model, blocks: Sequence[Block]) -> None:
        if not blocks or not all(block.names for block in blocks):
            raise InputError("a feature set needs at least one feature.")
        for block in blocks:
            if not len(block.names) == block.losses.size == block.errors.size:
                raise InputError(
                    f"{block.losses.size} features need as many names, got {len(block.names)}."
                )
        self.model = model
        self.blocks = tuple(blocks)
        self.names = tuple(name for block in blocks for name in block.names)
        self.widest = sum(block.widest for block in blocks)
        self.losses = np.concatenate([block.losses for block in blocks])
        self.errors = np.concatenate([block.errors for block in blocks])
        self.user = tuple(functions for block in blocks for functions in block.user)
        self.room = sum(block.room for block in blocks)
        single = [
            part
            for block in blocks
            for part in ([block] if block.mixed is None else block.mixed.blocks)
        ]
        others = any(part.kind != USER for part in single)
        mixed = any(block.mixed is not None for block in blocks)
        self.code = Code(*_flat(self.blocks), *compiled_set(self.user, others=others, mixed=mixed))

    def __len__(self) -> int:
        return len(self.names)

    def row(self, x: ArrayLike, a: int) -> tuple[Ints, Floats]:
        """The features that are positive at (x, a), and their values there."""
        state, action = self.model.pair(x, a)
        row = Row(np.empty(self.widest, np.int64), np.empty(self.widest))
        count = np.zeros(1, np.int64)
        row_of(self.code.packed, state, action, row, self.work(), count)
        return row.indices[: count[0]], row.values[: count[0]]

    def work(self) -> Floats:
        """Room for the compiled functions to work in, one for each thread."""
        return np.zeros(self.room)

    def draw(self, j: int, count: int, seed: int = 0, *, first: int = 0) -> tuple[Ints, Ints]:
        """States and actions drawn from feature j, the draws numbered from `first`."""
        if not 0 <= j < len(self):
            raise InputError(f"features are numbered 0 to {len(self) - 1}, got {j!r}.")
        states = np.empty((count, self.model.box.dim), np.int64)
        actions = np.empty(count, np.int64)
        rng = generator(seed, Stream.FEATURE_DRAWS, j)
        kernels.draw_feature(self.code.packed, j, rng, first, states, actions, self.work())
        return states, actions

    def pieces(self, j: int, count: int, width: int = 1) -> Iterator[tuple[Ints, Ints]]:
        """The first draws of feature j, in pieces that fit into memory where each makes `width`
        states of work.
        """
        size = max(1, NUMBERS_A_PIECE // (self.model.box.dim * width))
        for first in range(0, count, size):
            yield self.draw(j, min(size, count - first), first=first)


def concat(*sets: Features) -> Features:
    """All features of several sets of one model."""
    if len({s.model.digest for s in sets}) != 1:
        raise InputError("feature sets that are put together must belong to one model.")
    return Features(sets[0].model, [block for s in sets for block in s.blocks])


def estimated_losses(model: Model, block: Block) -> Block:
    """The block with expected losses estimated by draws."""
    lone = Features(model, [block])
    means = np.empty(len(lone))
    errors = np.empty(len(lone))
    for j in range(len(lone)):
        losses = np.concatenate(
            [_losses(model, *piece) for piece in lone.pieces(j, EXPECTED_LOSS_DRAWS)]
        )
        means[j] = losses.mean()
        errors[j] = losses.std() / np.sqrt(EXPECTED_LOSS_DRAWS)
    return replace(block, losses=means, errors=errors)


def _losses(model: Model, states: Ints, actions: Ints) -> Floats:
    code = model.code
    losses = np.empty(actions.size)
    kernels.losses_at(code.loss, code.ints, code.floats, states, actions, losses)
    return losses


def _flat(blocks: Sequence[Block]) -> tuple[Ints, Floats]:
    header = 4 + BLOCK_RECORD_SIZE * len(blocks)
    ints_at = header + np.cumsum([0, *(b.ints.size for b in blocks)])
    floats_at, rooms = (
        np.cumsum([0, *sizes])
        for sizes in ([b.floats.size for b in blocks], [b.room for b in blocks])
    )
    first = np.cumsum([0, *(len(b.names) for b in blocks)])
    slots = np.cumsum([0, *(len(b.user) for b in blocks)])
    records = [
        (b.kind, first[i], ints_at[i], floats_at[i], slots[i], rooms[i])
        for i, b in enumerate(blocks)
    ]
    head = np.concatenate(
        [[len(blocks)], np.ravel(records), [first[-1], sum(b.widest for b in blocks), rooms[-1]]]
    )
    ints = np.concatenate([head, *(b.ints for b in blocks)]).astype(np.int64)
    return ints, np.concatenate([b.floats for b in blocks]).astype(np.float64)


def check_allowed(features: Features) -> None:
    """Raise if a feature draws an action that is not allowed."""
    model = features.model
    for j in range(len(features)):
        for x, a in zip(*features.draw(j, DRAWS_CHECKED_FOR_ACTIONS), strict=True):
            if not model.allowed(x)[a]:
                raise InputError(
                    f"feature {features.names[j]!r} gives weight to an action that {model.name!r} "
                    f"does not allow in state {tuple(x.tolist())}; use tiles or a table, or name "
                    "policies as choices."
                )
