"""What a simulation is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dualplan.core.types import Bools, Floats, Ints
from dualplan.values.contract import ValueCode

REPLICAS = 8

Control = Callable[[Ints], Any]  # of states, one a row: a number for each


@dataclass(frozen=True, eq=False)
class Replica:
    """Where a trajectory stands: its state, the cycle under way (loss, length), the steps done."""

    number: int
    x: Ints
    cycle: Floats
    steps: int


def sums_of_cycle(loss: float, length: float) -> tuple[float, ...]:
    """What a cycle that has ended adds to the `CYCLE_SUMS` sums."""
    squares = (loss * loss, loss * length, length * length)
    cubes = (loss**3, loss * loss * length, loss * length * length, length**3)
    return (1.0, loss, length, *squares, *cubes)


@dataclass(frozen=True, eq=False)
class Chunks:
    """What a trajectory did: one row of column sums for each chunk, and the sums over finished
    cycles.
    """

    replica: Replica
    rows: Floats
    cycles: Floats


@dataclass(frozen=True, eq=False)
class Restarts:
    """When a recorded trajectory begins anew: after each step with probability 1 − γ, at one of the
    starts.

    Simulators that keep their state to themselves are reset. γ = 1 (average): only where an episode
    ends.
    """

    gamma: float
    starts: Ints
    weights: Floats


@dataclass(frozen=True, eq=False)
class Recorded:
    """Transitions (x, a, ℓ, x'), one a row; `alive` is False where an episode ended and nothing
    followed.

    `first` are the states at which the trajectory began anew, one a row, where only the simulator
    knows its starts.
    """

    replica: Replica
    states: Ints
    actions: Ints
    losses: Floats
    following: Ints
    alive: Bools
    first: Ints


@dataclass(frozen=True, eq=False)
class Copies:
    """What coupled copies did: differences of losses, a row for each copy and a column for each
    repetition.

    `met` is in how many repetitions a copy met the first of its group, `steps` the steps of all
    copies.
    """

    totals: Floats
    met: Floats
    steps: int


class Engine(Protocol):
    """Simulates one policy on one model."""

    columns: int
    resumable: bool
    fast: bool
    together: bool  # whether several replicas take less time together than one after the other

    def first(self, number: int) -> Replica:
        """A replica before its first step."""

    def advance(self, replica: Replica, chunks: int, length: int) -> Chunks:
        """Simulate `chunks` chunks of `length` steps."""

    def advance_all(self, replicas: Sequence[Replica], chunks: int, length: int) -> list[Chunks]:
        """The same for each of several replicas."""

    def visits(self, replica: Replica, count: int, every: int) -> Ints:
        """The states after `every`, 2·`every`, ... steps, one a row."""

    def record(self, replica: Replica, count: int, every: int, restarts: Restarts) -> Recorded:
        """Every `every`-th transition, `count` of them."""

    def discounted(
        self, gamma: float, horizon: int, starts: Ints, weights: Floats, first: int, count: int
    ) -> Any:
        """Totals and lengths of independent runs; see the kernel `simulate_discounted`."""

    def coupled(
        self,
        places: Ints,
        states: Ints,
        first: int,
        repetitions: int,
        gamma: float,
        horizon: int,
        control: ValueCode | None = None,
    ) -> Copies:
        """Groups of copies driven by the same random numbers; see the kernel `coupled`."""
