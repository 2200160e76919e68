"""Several policies in turn, each along a trajectory of its own.

Cycles of one part, put one after the other, are a trajectory of that part alone, so the sums over
many steps of policies in turn are the sums of the parts, each weighted by its share of the time. A
chunk of so many steps is simulated for every part, and the rows are added up with the shares as
weights: means, and what varies about them, are those of the shares, whatever the lengths of cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualplan._kernels.simulate import CYCLE_SUMS
from dualplan.core.errors import InputError
from dualplan.core.types import Bools, Floats, Ints
from dualplan.evaluation.simulation.contract import (
    Chunks,
    Copies,
    Engine,
    Recorded,
    Replica,
    Restarts,
)
from dualplan.policies.alternating import Alternating


class AlternatingEngine:
    """Simulates every part by its own engine."""

    def __init__(self, policy: Alternating, engines: Sequence[Engine]) -> None:
        self.policy = policy
        self.engines = tuple(engines)
        self.columns = engines[0].columns
        self.resumable = all(e.resumable for e in engines)
        self.fast = all(e.fast for e in engines)
        self.together = False

    def first(self, number: int) -> Replica:
        """Every part before its first step."""
        return self._joined([e.first(number) for e in self.engines])

    def _joined(self, parts: Sequence[Replica]) -> Replica:
        """Where all parts stand, side by side."""
        return Replica(
            parts[0].number,
            np.concatenate([part.x for part in parts]),
            np.concatenate([part.cycle for part in parts]),
            parts[0].steps,
        )

    def _apart(self, replica: Replica) -> list[Replica]:
        """Where each part stands; all at the same state if that is all that is given."""
        count = len(self.engines)
        dim = self.policy.model.box.dim
        places = np.resize(replica.x, (count, dim))
        cycles = np.resize(replica.cycle, (count, replica.cycle.size * dim // replica.x.size))
        return [
            Replica(replica.number, x.copy(), cycle.copy(), replica.steps)
            for x, cycle in zip(places, cycles, strict=True)
        ]

    def advance(self, replica: Replica, chunks: int, length: int) -> Chunks:
        """Each part, its rows weighted by its share."""
        found = [
            e.advance(part, chunks, length)
            for e, part in zip(self.engines, self._apart(replica), strict=True)
        ]
        rows = np.tensordot(self.policy.shares, np.stack([f.rows for f in found]), 1)
        return Chunks(self._joined([f.replica for f in found]), rows, np.zeros(CYCLE_SUMS))

    def advance_all(self, replicas: Sequence[Replica], chunks: int, length: int) -> list[Chunks]:
        """One after the other."""
        return [self.advance(replica, chunks, length) for replica in replicas]

    def _counts(self, count: int) -> Ints:
        """So many, shared out among the parts."""
        ends = np.rint(count * np.cumsum(self.policy.shares)).astype(np.int64)
        return np.diff(ends, prepend=0)

    def visits(self, replica: Replica, count: int, every: int) -> Ints:
        """Those of the parts, in their shares."""
        parts = zip(self.engines, self._apart(replica), self._counts(count), strict=True)
        return np.concatenate([e.visits(part, int(n), every) for e, part, n in parts if n])

    def record(self, replica: Replica, count: int, every: int, restarts: Restarts) -> Recorded:
        """Transitions of the parts, in their shares."""
        apart = self._apart(replica)
        found = {
            k: e.record(apart[k], int(n), every, restarts)
            for k, (e, n) in enumerate(zip(self.engines, self._counts(count), strict=True))
            if n
        }
        after = [found[k].replica if k in found else part for k, part in enumerate(apart)]

        def all_of(name: str) -> Any:
            return np.concatenate([getattr(one, name) for one in found.values()])

        states: Ints = all_of("states")
        actions: Ints = all_of("actions")
        losses: Floats = all_of("losses")
        following: Ints = all_of("following")
        alive: Bools = all_of("alive")
        first: Ints = all_of("first")
        joined = self._joined(after)
        return Recorded(joined, states, actions, losses, following, alive, first)

    def discounted(self, *_: Any) -> Any:
        """Raise: shares of the time are for the average criterion."""
        raise InputError(
            f"policy {self.policy.name!r} follows several policies in turn, each in its share of "
            "the time, which is for the average criterion."
        )

    def coupled(self, *_: Any) -> Copies:
        """Raise: copies of it would be in the middle of cycles."""
        raise InputError(
            f"policy {self.policy.name!r} follows several policies in turn; roll out one of them."
        )
