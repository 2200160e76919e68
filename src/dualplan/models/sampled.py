"""States of a model of any size to try something at: on random walks, anywhere in the box, and at
its faces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from dualplan._kernels import philox
from dualplan.core.errors import ModelError
from dualplan.core.streams import CheckStream
from dualplan.core.types import Ints
from dualplan.models.contract import UNBOUNDED, Model, vector

UNBOUNDED_REACH = 1_000  # how far out random states go in unbounded coordinates


@runtime_checkable
class StepsInPython(Protocol):
    """A model that takes single steps in Python, so that mistakes are named and nothing is compiled
    yet.
    """

    def random_step(self, x: Ints, rng: np.random.Generator) -> Ints:
        """A next state under a random action."""


def allowed_in(model: Model, x: Ints) -> Ints:
    """The numbers of the actions that are allowed in x, of which there must be one."""
    may = np.flatnonzero(model.allowed(x))
    if may.size == 0:
        raise ModelError(f"model {model.name!r}: no action is allowed in state x={vector(x)}.")
    return may


def sampled_states(model: Model, count: int, seed: int) -> Iterator[Ints]:
    """States to try: half on random walks from the start, half anywhere in the box, its faces
    included.
    """
    rng = np.random.default_rng(seed)
    for x in _wander(model, count - count // 2, rng):
        yield x
    lower = model.box.lower
    upper = model.box.upper
    top = np.where(upper == UNBOUNDED, lower + UNBOUNDED_REACH, upper)
    for _ in range(count // 2):
        x = rng.integers(lower, top, endpoint=True)
        face = rng.random(x.size)
        x = np.where(face < 0.25, lower, np.where(face > 0.75, top, x))
        # steps beside the faces are where buffers fill and empty
        yield np.clip(x + rng.integers(-1, 2, x.size), lower, top).astype(np.int64)


def _wander(model: Model, count: int, rng: np.random.Generator) -> Iterator[Ints]:
    x = model.start
    for _ in range(count):
        yield x
        for _ in range(5):
            if isinstance(model, StepsInPython):
                x = model.random_step(x, rng)
            elif model.has_forward:
                row = model.forward(x, int(rng.choice(allowed_in(model, x))))
                x = row.states[
                    rng.choice(len(row.states), p=row.probabilities / row.probabilities.sum())
                ]
            else:
                code = model.code
                out = np.empty_like(x)
                words = philox.generator(int(rng.integers(2**63)), CheckStream.MODEL_STEPS, 0)
                a = int(rng.choice(allowed_in(model, x)))
                code.step(code.ints, code.floats, x, a, words, out, np.zeros(len(code.counters)))
                x = out
