"""Compiled models under compiled policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualplan._kernels import philox
from dualplan._kernels import rollouts as coupled_kernels
from dualplan._kernels import simulate as kernels
from dualplan._kernels.compiler import Kernel
from dualplan._kernels.layouts import Control, Process, Trajectory
from dualplan.core.deadlines import require_time
from dualplan.core.errors import ModelError, PolicyError
from dualplan.core.streams import Stream
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.simulation.contract import Chunks, Copies, Recorded, Replica, Restarts
from dualplan.evaluation.simulation.faults import diagnose, explain
from dualplan.models.contract import Model, vector
from dualplan.policies.contract import OwnLoop, Policy
from dualplan.values.contract import ValueCode

VISITING_STEPS_AT_ONCE = 5_000  # of a trajectory, between two looks at a deadline


class CompiledEngine:
    """Runs compiled models under compiled policies."""

    fast = True
    together = False
    resumable = True

    def __init__(
        self,
        model: Model,
        policy: Policy,
        seed: int,
        regenerate: bool,
        control: ValueCode | None = None,
    ) -> None:
        if policy.code is None:
            raise PolicyError(f"policy {policy.name!r} is not compiled.")
        self.model = model
        self.policy = policy
        self.seed = seed
        if regenerate:
            self.loop = None
        else:
            self.loop = _own_loop(model, policy)
        self.weights = _loop_weights(self.loop, control)
        self.columns = len(model.columns) + (control is not None)
        self.control = control
        if regenerate:
            self.anchor = model.start.copy()
        else:
            self.anchor = np.empty(0, np.int64)
        self.process = Process(
            model.code.dynamics, policy.code.rule, model.box.bounds, len(model.actions)
        )

    def first(self, number: int) -> Replica:
        """At the model's start."""
        return Replica(number, self.model.start.copy(), np.zeros(2), 0)

    def _trajectory(self, x: Ints, stream: int, number: int) -> Trajectory:
        """A trajectory that goes on from x by the random numbers of a replica."""
        rng = philox.generator(self.seed, stream, number)
        return Trajectory(x, rng, np.zeros(2 * x.size + 1, np.int64))

    def advance(self, replica: Replica, chunks: int, length: int) -> Chunks:
        """In one compiled call."""
        x = replica.x.copy()
        cycles = kernels.Cycles(self.anchor, replica.cycle.copy(), np.zeros(kernels.CYCLE_SUMS))
        t = replica.steps
        rows = np.zeros((chunks, self.columns))
        trajectory = self._trajectory(x, Stream.TRAJECTORIES, replica.number)
        if self.loop is not None and self.weights is not None:
            rng = trajectory.rng
            self.loop.run(self.loop.ints, self.loop.floats, self.weights, x, rng, t, length, rows)
        elif self.control is None:
            self._run(kernels.simulate, trajectory, t, length, cycles, rows)
        else:
            control = self._control(self.control)
            self._run(kernels.simulate_shaped, trajectory, control, t, length, rows)
        after = Replica(replica.number, x, cycles.current, t + chunks * length)
        return Chunks(after, rows, cycles.sums)

    def advance_all(self, replicas: Sequence[Replica], chunks: int, length: int) -> list[Chunks]:
        """One compiled call for each."""
        return [self.advance(replica, chunks, length) for replica in replicas]

    def visits(self, replica: Replica, count: int, every: int) -> Ints:
        """In compiled calls of some steps each: not all policies are quick."""
        states = np.empty((count, replica.x.size), np.int64)
        trajectory = self._trajectory(replica.x.copy(), Stream.TRAJECTORIES, replica.number)
        size = max(1, VISITING_STEPS_AT_ONCE // every)
        for first in range(0, count, size):
            require_time()
            piece = states[first : first + size]
            self._run(kernels.visits, trajectory, replica.steps + first * every, every, piece)
        return states

    def record(self, replica: Replica, count: int, every: int, restarts: Restarts) -> Recorded:
        """In one compiled call."""
        x = replica.x.copy()
        trajectory = self._trajectory(x, Stream.TRAJECTORIES, replica.number)
        beginnings = kernels.Beginnings(
            philox.generator(self.seed, Stream.RESTARTS, replica.number),
            restarts.gamma,
            kernels.Starts(restarts.starts, restarts.weights),
        )
        transitions = kernels.Transitions(
            np.empty((count, x.size), np.int64),
            np.empty(count, np.int64),
            np.empty(count),
            np.empty((count, x.size), np.int64),
        )
        self._run(kernels.record, trajectory, replica.steps, every, beginnings, transitions)
        after = Replica(replica.number, x, replica.cycle, replica.steps + count * every)
        return Recorded(after, *transitions, np.ones(count, bool), np.empty((0, x.size), np.int64))

    def discounted(
        self, gamma: float, horizon: int, starts: Ints, weights: Floats, first: int, count: int
    ) -> tuple[Floats, Ints]:
        """In one compiled call."""
        totals = np.empty(count)
        lengths = np.empty(count, np.int64)
        trajectory = self._trajectory(self.model.start.copy(), Stream.TRAJECTORIES, 0)
        begin = kernels.Starts(starts, weights)
        self._run(
            kernels.simulate_discounted, trajectory, begin, gamma, horizon, first, totals, lengths
        )
        return totals, lengths

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
        """In one compiled call."""
        differences = coupled_kernels.Differences(
            np.empty((len(states), repetitions)), np.zeros(len(states)), np.zeros(1, np.int64)
        )
        trajectory = self._trajectory(self.model.start.copy(), Stream.COUPLED_COPIES, 0)
        groups = coupled_kernels.Groups(places, states, first)
        shaped = coupled_kernels.NO_CONTROL
        if control is not None:
            shaped = self._control(control)
        self._run(coupled_kernels.coupled, trajectory, shaped, groups, gamma, horizon, differences)
        return Copies(differences.totals, differences.met, int(differences.steps[0]))

    def _control(self, function: ValueCode) -> Control:
        """A function of states by which losses are shaped, as kernels take it."""
        law = self.model.forward_law
        return Control(
            law.forward, law.outcomes, function.value, function.ints, function.floats, function.room
        )

    def _run(self, loop: Kernel, trajectory: Trajectory, *arguments: Any) -> None:
        """Run a loop along a trajectory.

        Its faults, and whatever the user's functions raise in it, become sentences.
        """
        where = trajectory.where
        try:
            fault = loop(self.process, trajectory, *arguments)
        except (ArithmeticError, LookupError, ValueError, RuntimeError, TypeError) as error:
            x = where[: self.model.box.dim]
            a = int(where[self.model.box.dim])
            reason = f"raised {type(error).__name__}: {error}."
            if a < 0:
                raise PolicyError(
                    f"policy {self.policy.name!r} at state {vector(x)} {reason}"
                ) from error
            diagnose(self.model, x, a)
            raise ModelError(
                f"model {self.model.name!r} at x={vector(x)}, a={a} {reason}"
            ) from error
        if fault != kernels.NO_FAULT:
            explain(self.model, self.policy, fault, where)


def _own_loop(model: Model, policy: Policy) -> OwnLoop | None:
    """The policy's own loop, if it is for this model: a policy may be taken to one with other
    rates.
    """
    if policy.code is None:
        loop = None
    else:
        loop = policy.code.loop
    code = model.code
    if loop is None or not np.array_equal(loop.ints, code.ints):
        return None
    if np.array_equal(loop.floats[: code.floats.size], code.floats):
        return loop
    return None


def _loop_weights(loop: OwnLoop | None, control: ValueCode | None) -> Floats | None:
    """The control as a policy's own loop reads it; None if it cannot."""
    if loop is None or control is None:
        return np.zeros(0)
    return control.quadratic_in(loop.coordinates)
