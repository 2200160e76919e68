"""Compiled models under policies that are no compiled functions.

The policy is asked once a step for all trajectories (an array of states, where its function takes
one), and the step itself is compiled. The random numbers are those of the other engines, so that
results do not depend on how many trajectories are advanced together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualplan._kernels import philox
from dualplan._kernels import simulate as kernels
from dualplan._kernels.layouts import Process, Rule
from dualplan._kernels.stepped import Walkers, given_row, steps_together
from dualplan.core.errors import ModelError
from dualplan.core.streams import RESET_STEP, Stream
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.simulation.contract import Chunks, Replica, sums_of_cycle
from dualplan.evaluation.simulation.faults import diagnose, explain
from dualplan.evaluation.simulation.python import PythonEngine, chosen_start
from dualplan.models.contract import Model, vector
from dualplan.policies.contract import Policy


class SteppedEngine(PythonEngine):
    """Runs compiled models under policies that are Python objects, many trajectories at a time."""

    together = True

    def advance(self, replica: Replica, chunks: int, length: int) -> Chunks:
        """One trajectory alone."""
        return self.advance_all([replica], chunks, length)[0]

    def advance_all(self, replicas: Sequence[Replica], chunks: int, length: int) -> list[Chunks]:
        """Step by step, all trajectories in each."""
        if self.control is not None or len({replica.steps for replica in replicas}) > 1:
            return [super(SteppedEngine, self).advance(r, chunks, length) for r in replicas]
        walk = _Walk(self.model, self.policy, self.seed, [r.number for r in replicas])
        walk.states[:] = [replica.x for replica in replicas]
        cycle = np.array([replica.cycle for replica in replicas])
        cycles = np.zeros((len(replicas), kernels.CYCLE_SUMS))
        rows = np.zeros((chunks, len(replicas), self.columns))
        first = replicas[0].steps
        coordinates = slice(2, 2 + self.model.box.dim)
        for k, row in enumerate(rows):
            for t in range(first + k * length, first + (k + 1) * length):
                row[:, coordinates] += walk.states
                walk.step(t)
                row[:, 1] += walk.losses
                row[:, 2 + self.model.box.dim :] += walk.counts
                if self.regenerate:
                    _note_cycles(walk, self.model.start, cycle, cycles)
            row[:, 0] += length
        after = [
            Replica(replica.number, x.copy(), own.copy(), first + chunks * length)
            for replica, x, own in zip(replicas, walk.states, cycle, strict=True)
        ]
        return [
            Chunks(replica, rows[:, k].copy(), cycles[k].copy()) for k, replica in enumerate(after)
        ]

    def discounted(
        self, gamma: float, horizon: int, starts: Ints, weights: Floats, first: int, count: int
    ) -> tuple[Floats, Ints]:
        """All runs together, each up to its own end."""
        totals = np.zeros(count)
        lengths = np.empty(count, np.int64)
        walk = _Walk(self.model, self.policy, self.seed, range(first, first + count))
        for run in range(count):
            rng = self._generator(first + run, RESET_STEP)
            walk.states[run] = starts[chosen_start(weights, rng.random())]
            lengths[run] = horizon or 1 + int(np.log1p(-rng.random()) / np.log(gamma))
        factor = 1.0
        running = np.arange(count)
        for t in range(int(lengths.max())):
            going = lengths[running] > t
            if 2 * going.sum() <= running.size:  # those that have ended go on for nothing till then
                running = running[going]
                walk.keep(np.flatnonzero(going))
                going = going[going]
            walk.step(t)
            totals[running[going]] += factor * walk.losses[going]
            factor *= gamma if horizon else 1.0
        return totals, lengths


class _Walk:
    """Trajectories of one policy, stepped together."""

    def __init__(self, model: Model, policy: Policy, seed: int, numbers: Sequence[int]) -> None:
        count = len(numbers)
        dim = model.box.dim
        self.model = model
        self.policy = policy
        self.states = np.empty((count, dim), np.int64)
        self.rngs = np.array([philox.generator(seed, Stream.TRAJECTORIES, n) for n in numbers])
        self.where = np.zeros(2 * dim + 1, np.int64)
        self._room(count)

    def _room(self, count: int) -> None:
        model = self.model
        self.actions = np.empty(count, np.int64)
        self.losses = np.empty(count)
        self.counts = np.zeros((count, len(model.code.counters)))
        self.chances = np.empty(count * len(model.actions))
        self.clock = np.zeros(1, np.int64)
        rule = Rule(given_row, np.zeros(1, np.int64), self.chances)
        process = Process(model.code.dynamics, rule, model.box.bounds, len(model.actions))
        walkers = Walkers(self.states, self.rngs, self.actions, self.where)
        self.steps = steps_together(process, walkers, self.clock, self.losses, self.counts)

    def keep(self, going: Ints) -> None:
        """Go on with some of the trajectories only."""
        self.states = np.ascontiguousarray(self.states[going])
        self.rngs = np.ascontiguousarray(self.rngs[going])
        self._room(len(self.states))

    def step(self, t: int) -> None:
        """Step number t of all trajectories."""
        self.chances[:] = self.policy.rows(self.states).ravel()
        self.counts[:] = 0.0
        self.clock[0] = t
        try:
            fault = next(self.steps)
        except (ArithmeticError, LookupError, ValueError, RuntimeError, TypeError) as error:
            x = self.where[: self.model.box.dim]
            a = int(self.where[self.model.box.dim])
            diagnose(self.model, x, a)
            raise ModelError(
                f"model {self.model.name!r} at x={vector(x)}, a={a} raised "
                f"{type(error).__name__}: {error}."
            ) from error
        if fault != kernels.NO_FAULT:
            explain(self.model, self.policy, fault, self.where)


def _note_cycles(walk: _Walk, anchor: Ints, cycle: Floats, cycles: Floats) -> None:
    """Add a step to the cycles under way, and those that have ended to the sums."""
    cycle[:, 0] += walk.losses
    cycle[:, 1] += 1.0
    for k in np.flatnonzero((walk.states == anchor).all(axis=1)):
        c, n = cycle[k]
        cycles[k] += sums_of_cycle(c, n)
        cycle[k] = 0.0
