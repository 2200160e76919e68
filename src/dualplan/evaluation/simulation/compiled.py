"""Compiled models under compiled policies."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualplan._kernels import philox
from dualplan._kernels import rollouts as coupled_kernels
from dualplan._kernels import simulate as kernels
from dualplan._kernels.compiler import Kernel
from dualplan.core.errors import ModelError, PolicyError
from dualplan.core.streams import Stream
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.simulation.contract import Chunks, Copies, Recorded, Replica, Restarts
from dualplan.evaluation.simulation.faults import diagnose, explain
from dualplan.models.contract import Model, vector
from dualplan.policies.contract import OwnLoop, Policy
from dualplan.values.contract import ValueCode


class CompiledEngine:
    """Runs compiled models under compiled policies."""

    fast = True
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
        code = model.code
        rule = policy.code
        box = model.box
        self._head = (
            code.step,
            code.allowed,
            rule.act,
            code.ints,
            code.floats,
            rule.ints,
            rule.floats,
            box.lower,
            box.upper,
            len(model.actions),
        )

    def first(self, number: int) -> Replica:
        """At the model's start."""
        return Replica(number, self.model.start.copy(), np.zeros(2), 0)

    def advance(self, replica: Replica, chunks: int, length: int) -> Chunks:
        """In one compiled call."""
        x = replica.x.copy()
        cycle = replica.cycle.copy()
        t = replica.steps
        rows = np.zeros((chunks, self.columns))
        cycles = np.zeros(6)
        rng = philox.generator(self.seed, Stream.TRAJECTORIES, replica.number)
        where = np.zeros(2 * x.size + 1, np.int64)
        if self.loop is not None and self.weights is not None:
            self.loop.run(self.loop.ints, self.loop.floats, self.weights, x, rng, t, length, rows)
        elif self.control is None:
            self._run(
                kernels.simulate, (x, rng, t, length, self.anchor, cycle, rows, cycles, where)
            )
        else:
            h = self.control
            code = self.model.code
            shape = (code.forward, h.value, h.ints, h.floats, h.room, code.max_outcomes)
            self._run(kernels.simulate_shaped, (*shape, x, rng, t, length, rows, where))
        return Chunks(Replica(replica.number, x, cycle, t + chunks * length), rows, cycles)

    def visits(self, replica: Replica, count: int, every: int) -> Ints:
        """In one compiled call."""
        x = replica.x.copy()
        states = np.empty((count, replica.x.size), np.int64)
        rng = philox.generator(self.seed, Stream.TRAJECTORIES, replica.number)
        where = np.zeros(2 * x.size + 1, np.int64)
        self._run(kernels.visits, (x, rng, replica.steps, every, states, where))
        return states

    def record(self, replica: Replica, count: int, every: int, restarts: Restarts) -> Recorded:
        """In one compiled call."""
        x = replica.x.copy()
        dim = replica.x.size
        states = np.empty((count, dim), np.int64)
        following = np.empty((count, dim), np.int64)
        actions = np.empty(count, np.int64)
        losses = np.empty(count)
        rng, chance = (
            philox.generator(self.seed, stream, replica.number)
            for stream in (Stream.TRAJECTORIES, Stream.RESTARTS)
        )
        where = np.zeros(2 * dim + 1, np.int64)
        self._run(
            kernels.record,
            (
                x,
                rng,
                replica.steps,
                every,
                chance,
                restarts.gamma,
                restarts.starts,
                restarts.weights,
                states,
                actions,
                losses,
                following,
                where,
            ),
        )
        after = Replica(replica.number, x, replica.cycle, replica.steps + count * every)
        return Recorded(
            after,
            states,
            actions,
            losses,
            following,
            np.ones(count, bool),
            np.empty((0, dim), np.int64),
        )

    def discounted(
        self, gamma: float, horizon: int, starts: Ints, weights: Floats, first: int, count: int
    ) -> tuple[Floats, Ints]:
        """In one compiled call."""
        totals = np.empty(count)
        lengths = np.empty(count, np.int64)
        rng = philox.generator(self.seed, Stream.TRAJECTORIES, 0)
        where = np.zeros(2 * self.model.box.dim + 1, np.int64)
        self._run(
            kernels.simulate_discounted,
            (starts, weights, rng, gamma, horizon, first, totals, lengths, where),
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
        totals = np.empty((len(states), repetitions))
        met = np.zeros(len(states))
        steps = np.zeros(1, np.int64)
        rng = philox.generator(self.seed, Stream.COUPLED_COPIES, 0)
        where = np.zeros(2 * self.model.box.dim + 1, np.int64)
        none = (
            coupled_kernels.no_forward,
            coupled_kernels.no_value,
            np.empty(0, np.int64),
            np.empty(0),
            0,
            0,
        )
        code = self.model.code
        h = control
        law: tuple[Any, ...] = none
        if h is not None:
            law = (code.forward, h.value, h.ints, h.floats, h.room, code.max_outcomes)
        self._run(
            coupled_kernels.coupled,
            (*law, places, states, first, rng, gamma, horizon, totals, met, steps, where),
        )
        return Copies(totals, met, int(steps[0]))

    def _run(self, loop: Kernel, arguments: tuple[Any, ...]) -> None:
        """Run a loop.

        Its faults, and whatever the user's functions raise in it, become sentences.
        """
        where: Ints = arguments[-1]
        try:
            fault = loop(*self._head, *arguments)
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
        if fault != kernels.FINE:
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
