"""What was found so far along a grid of penalties: kept in the folder of a run, and told to whoever
watches.

A checkpoint holds the weights of each solution, its parts and its status, named by what they are
and by the penalty of the flow. With them and the problem a run goes on, with the penalties that are
left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from dualplan.core.runs import Run
from dualplan.core.status import Status
from dualplan.dual.problem import DualALP, Penalty, Value
from dualplan.dual.problem import penalties as weigh
from dualplan.dual.solvers.contract import Solution
from dualplan.dual.solvers.solve import DEFAULT_SAMPLES

Progress = Callable[[float, int, str], None]
KEPT_OF_A_SOLUTION = ("theta", "parts", "status")


class Ledger:
    """The solutions that are there, by their place in the grid."""

    def __init__(
        self,
        problem: DualALP,
        penalties: Sequence[Penalty],
        *,
        method: str,
        samples: int | None,
        seed: int,
        run: Run | None,
        progress: Progress | None,
    ) -> None:
        """With a run, begin with what its checkpoint holds."""
        self.problem = problem
        self.penalties = [weigh(penalty) for penalty in penalties]
        self.method = method
        self.samples = samples or DEFAULT_SAMPLES
        self.seed = seed
        self.run = run
        self.progress = progress
        self.begun = time.monotonic()
        self.kept: dict[str, Any] = {}
        if run is not None:
            self.kept = run.checkpoint() or {}
        self.found: dict[int, Solution] = {}
        for k, penalty in enumerate(self.penalties):
            if all(_key(what, penalty) in self.kept for what in KEPT_OF_A_SOLUTION):
                self.found[k] = self._from_checkpoint(penalty)

    @property
    def whole(self) -> bool:
        """Whether there is a solution for each penalty."""
        return len(self.found) == len(self.penalties)

    # -- what happens on the way -------------------------------------------------------------------

    def begin(self) -> None:
        """Tell what is in work first."""
        self.tell(self._in_work())

    def done(self, k: int, solution: Solution) -> None:
        """Keep a solution and tell of it."""
        self.found[k] = solution
        if self.run is not None:
            self.kept.update(_as_arrays(solution))
            self.run.save_checkpoint(self.kept)
            self.run.trace(solution.to_json())
        told = [_in_words(solution)]
        if not self.whole:
            told.append(self._in_work())
        self.tell("; ".join(told))
        self.begun = time.monotonic()

    def watch(self, samples: int, parts: Value) -> None:
        """Tell how the penalty in work fares."""
        pace = samples / max(time.monotonic() - self.begun, 1e-9)
        words = f"{self._in_work()}: {_so_far(parts)}, {pace:,.0f} samples/s"
        self.tell(words, more=samples / self.samples)

    def tell(self, words: str, more: float = 0.0) -> None:
        """Tell how many solutions there are, and something in words."""
        if self.progress is not None:
            self.progress(len(self.found) + more, len(self.penalties), words)

    def _in_work(self) -> str:
        """The penalty that comes next; the largest come first."""
        left = [flow for k, (_, flow) in enumerate(self.penalties) if k not in self.found]
        if left:
            return f"H = {max(left):.3g} in work"
        return ""

    # -- checkpoints -------------------------------------------------------------------------------

    def _from_checkpoint(self, penalty: tuple[float, float]) -> Solution:
        numbers = self.kept[_key("parts", penalty)].tolist()
        names = [f.name for f in fields(Value) if f.name != "excess"]
        count = len(names)
        samples = int(numbers[count])
        seconds = numbers[count + 1]
        excess = tuple(numbers[count + 2 :])
        return Solution(
            self.problem,
            self.method,
            penalty,
            self.kept[_key("theta", penalty)],
            Value(**dict(zip(names, numbers[:count], strict=True)), excess=excess),
            Status(str(self.kept[_key("status", penalty)])),
            samples,
            self.seed,
            seconds,
        )


def _key(what: str, penalty: tuple[float, float]) -> str:
    return f"{what} {penalty[1]!r}"


def _as_arrays(solution: Solution) -> Mapping[str, Any]:
    """A solution, as a checkpoint holds it."""
    parts = solution.parts
    numbers = [getattr(parts, f.name) for f in fields(parts) if f.name != "excess"]
    work = [float(solution.samples), solution.seconds]
    return {
        _key("theta", solution.penalty): solution.theta,
        _key("parts", solution.penalty): np.array([*numbers, *work, *parts.excess]),
        _key("status", solution.penalty): np.array(str(solution.status)),
    }


def _in_words(solution: Solution) -> str:
    """A solution in words."""
    words = f"H = {solution.penalty[1]:.3g} {solution.status}: {_so_far(solution.parts)}"
    if not solution.samples:
        return words
    return f"{words}, {solution.samples / max(solution.seconds, 1e-9):,.0f} samples/s"


def _so_far(parts: Value) -> str:
    return f"objective {parts.objective:.5g}, violation {parts.negative + parts.flow:.3g}"
