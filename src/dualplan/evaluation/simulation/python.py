"""What cannot be compiled, one step at a time, with the random numbers that compiled code has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dualplan._kernels import philox
from dualplan._kernels import simulate as kernels
from dualplan.core.deadlines import require_time
from dualplan.core.errors import ModelError, PolicyError
from dualplan.core.streams import RESET_STEP, Stream
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.simulation.contract import (
    Chunks,
    Control,
    Copies,
    Recorded,
    Replica,
    Restarts,
    sums_of_cycle,
)
from dualplan.evaluation.simulation.faults import explain
from dualplan.models.contract import Model
from dualplan.models.simulator import Generator, Session, SimulatorModel
from dualplan.policies.contract import Policy, check_probabilities
from dualplan.values.contract import ValueCode


class PythonEngine:
    """Runs what cannot be compiled, one step at a time: simulators, and policies that are Python
    objects.
    """

    fast = False
    together = False

    def __init__(
        self,
        model: Model,
        policy: Policy,
        seed: int,
        regenerate: bool,
        control: Control | None = None,
    ) -> None:
        self.model = model
        self.policy = policy
        self.seed = seed
        self.regenerate = regenerate
        self.control = control
        self.columns = len(model.columns) + (control is not None)
        self.resumable = not isinstance(model, SimulatorModel) or model.resumable
        self._sessions: dict[int, Session] = {}

    def first(self, number: int) -> Replica:
        """At the start of a session of its own."""
        session = self._new_session()
        self._sessions[number] = session
        return Replica(number, session.reset(self._generator(number, RESET_STEP)), np.zeros(2), 0)

    def _new_session(self) -> Session:
        if isinstance(self.model, SimulatorModel):
            return self.model.session()
        return _CompiledSession(self.model)

    def _generator(self, replica: int, step: int, stream: int = Stream.TRAJECTORIES) -> Generator:
        """The same stream as in compiled code: the draws of one step of one replica."""
        return np.random.Generator(_bits(self.seed, replica, step, stream))

    def _step(
        self, session: Session, x: Ints, replica: int, t: int, stream: int = Stream.TRAJECTORIES
    ) -> tuple[Ints, float, bool, Generator]:
        result, _, rng = self._transition(session, x, replica, t, stream)
        return *result, rng

    def _transition(
        self, session: Session, x: Ints, replica: int, t: int, stream: int = Stream.TRAJECTORIES
    ) -> tuple[tuple[Ints, float, bool], int, Generator]:
        rng = self._generator(replica, t, stream)
        probabilities = self.policy.probabilities(x)
        check_probabilities(self.policy, x, probabilities)
        a = min(
            int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right")),
            probabilities.size - 1,
        )
        while probabilities[a] == 0:  # the draw fell into the rounding error above the total
            a -= 1
        result = session.step(x, a, rng)
        if isinstance(self.model, SimulatorModel):
            result = self.model.checked(result, x, a)
        return result, a, rng

    def advance(self, replica: Replica, chunks: int, length: int) -> Chunks:
        """Step by step."""
        if replica.number not in self._sessions:  # resumed: the state vector is all there is
            self._sessions[replica.number] = self._new_session()
        session = self._sessions[replica.number]
        x = replica.x
        cycle = replica.cycle.copy()
        t = replica.steps
        rows = np.zeros((chunks, self.columns))
        cycles = np.zeros(kernels.CYCLE_SUMS)
        dim = self.model.box.dim
        for row in rows:
            for _ in range(length):
                (y, loss, ended), a, rng = self._transition(session, x, replica.number, t)
                row[0] += 1
                row[1] += loss + self._shaping(x, a)
                if self.control is not None:
                    row[-1] += loss
                row[2 : 2 + dim] += x
                if isinstance(session, _CompiledSession):
                    row[2 + dim : 2 + dim + session.counts.size] += session.counts
                if ended:
                    x = session.reset(rng)
                else:
                    x = y
                t += 1
                if self.regenerate:
                    cycle += (loss, 1.0)
                    if np.array_equal(x, self.model.start):
                        c, n = cycle
                        cycles += sums_of_cycle(c, n)
                        cycle[:] = 0.0
        return Chunks(Replica(replica.number, x, cycle, t), rows, cycles)

    def advance_all(self, replicas: Sequence[Replica], chunks: int, length: int) -> list[Chunks]:
        """One after the other."""
        return [self.advance(replica, chunks, length) for replica in replicas]

    def _shaping(self, x: Ints, a: int) -> float:
        """Σ_y P(y|x,a) h(y) − h(x)."""
        if self.control is None:
            return 0.0
        law = self.model.forward(x, a)
        values = np.asarray(self.control(np.vstack([law.states, x])), np.float64)
        return float(law.probabilities @ values[:-1] - values[-1])

    def visits(self, replica: Replica, count: int, every: int) -> Ints:
        """Step by step."""
        states = np.empty((count, replica.x.size), np.int64)
        for row in states:
            require_time()
            replica = self.advance(replica, 1, every).replica
            row[:] = replica.x
        return states

    def record(self, replica: Replica, count: int, every: int, restarts: Restarts) -> Recorded:
        """Step by step.

        Under γ < 1 nothing follows the end of an episode, otherwise the next one does.
        """
        if replica.number not in self._sessions:
            self._sessions[replica.number] = self._new_session()
        session = self._sessions[replica.number]
        hidden = not self.resumable
        x = replica.x
        t = replica.steps
        dim = replica.x.size
        first = []
        states = np.empty((count, dim), np.int64)
        following = np.empty((count, dim), np.int64)
        actions = np.empty(count, np.int64)
        losses = np.empty(count)
        alive = np.ones(count, bool)
        for step in range(count * every):
            (y, loss, ended), a, rng = self._transition(session, x, replica.number, t)
            chance = self._generator(replica.number, t, Stream.RESTARTS)
            anew = restarts.gamma < 1 and (ended or chance.random() >= restarts.gamma)
            if ended and not anew:
                y = session.reset(rng)
            if (step + 1) % every == 0:
                k = step // every
                states[k] = x
                actions[k] = a
                losses[k] = loss
                following[k] = y
                alive[k] = not (ended and anew)
            x = y
            if anew:
                if hidden:
                    x = session.reset(rng)
                else:
                    x = restarts.starts[chosen_start(restarts.weights, chance.random())]
                first.append(x)
            t += 1
        after = Replica(replica.number, x, replica.cycle, t)
        starts = np.array(first if hidden else [], np.int64).reshape(-1, dim)
        return Recorded(after, states, actions, losses, following, alive, starts)

    def discounted(
        self, gamma: float, horizon: int, starts: Ints, weights: Floats, first: int, count: int
    ) -> tuple[Floats, Ints]:
        """Step by step; an episode that ends brings no more losses."""
        totals = np.zeros(count)
        lengths = np.zeros(count, np.int64)
        hidden = isinstance(self.model, SimulatorModel) and not self.model.resumable
        for run in range(count):
            session = self._new_session()
            rng = self._generator(first + run, RESET_STEP)
            x = starts[chosen_start(weights, rng.random())]
            steps = horizon or 1 + int(np.log1p(-rng.random()) / np.log(gamma))
            if hidden:
                x = session.reset(rng)
            factor = 1.0
            for t in range(steps):
                x, loss, ended, _ = self._step(session, x, first + run, t)
                totals[run] += factor * loss
                factor *= gamma if horizon else 1.0
                lengths[run] += 1
                if ended:
                    break
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
        """Copy by copy, each against the path of the first of its group.

        Nothing follows the end of an episode.
        """
        if not self.resumable:
            raise ModelError(
                f"model {self.model.name!r} keeps its state to itself, so it has no coupled copies."
            )
        if control is not None:
            raise PolicyError(
                f"a control variate needs a compiled policy, and {self.policy.name!r} is not."
            )
        totals = np.zeros((len(states), repetitions))
        met = np.zeros(len(states))
        steps = 0
        for g, (low, high) in enumerate(pairwise(places.tolist())):
            for r in range(repetitions):
                copies = _Path(self, states[low:high], (first + g) * repetitions + r, gamma < 1)
                factor = 1.0
                t = 0
                while copies.live and t < horizon:
                    steps += 1 + len(copies.live)
                    for j, difference in copies.advance(t):
                        totals[low + j, r] += factor * difference
                    factor = factor * gamma
                    t = t + 1
                met[low:high] += 1.0
                met[[low + j for j in copies.live]] -= 1.0
        return Copies(totals, met, steps)


class _Path:
    """Copies of one group, stepped together from Python.

    `live` are those that differ from the first one.
    """

    def __init__(self, run: PythonEngine, states: Ints, replica: int, episodes: bool) -> None:
        self.run = run
        self.replica = replica
        self.episodes = episodes
        self.session = run._new_session()
        self.x: list[Ints | None] = [x.copy() for x in states]  # None: the episode has ended
        self.live = [j for j in range(1, len(states)) if not np.array_equal(states[j], states[0])]

    def advance(self, t: int) -> list[tuple[int, float]]:
        """One step of all copies: the difference of losses from the first one, for each that is
        live.
        """
        base = self._step(0, t)
        found = [(j, self._step(j, t) - base) for j in self.live]
        self.live = [j for j in self.live if not self._together(j)]
        return found

    def _together(self, j: int) -> bool:
        x = self.x[0]
        y = self.x[j]
        if x is None or y is None:
            return x is y
        return np.array_equal(x, y)

    def _step(self, j: int, t: int) -> float:
        x = self.x[j]
        if x is None:
            return 0.0
        y, loss, ended, rng = self.run._step(
            self.session, x, self.replica, t, Stream.COUPLED_COPIES
        )
        if ended:
            if self.episodes:
                self.x[j] = None
            else:
                self.x[j] = self.session.reset(rng)
        else:
            self.x[j] = y
        return loss


class _CompiledSession:
    """A compiled model stepped from Python."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.counts = np.zeros(len(model.code.counters))

    def reset(self, rng: Generator) -> Ints:  # noqa: ARG002 - a fixed start needs no randomness
        return self.model.start

    def step(self, x: Ints, a: int, rng: Generator) -> tuple[Ints, float, bool]:
        """Continue the stream of `rng` inside compiled code, after the draw that picked the
        action.
        """
        code = self.model.code
        words = np.zeros(philox.GENERATOR_WORDS, np.uint64)
        state: Any = rng.bit_generator.state
        words[0:2] = state["state"]["key"]
        words[2:6] = state["state"]["counter"]
        words[6:10] = state["buffer"]
        words[10] = state["buffer_pos"]
        words[2] += 1  # NumPy counts before it computes a block, the kernels after
        out = np.empty_like(x)
        self.counts[:] = 0
        loss = float(code.step(code.ints, code.floats, x, a, words, out, self.counts))
        where = np.concatenate([x, [a], out])
        if not np.isfinite(loss):
            explain(self.model, None, kernels.BAD_LAW_FAULT, where)
        if not self.model.box.contains(out):
            explain(self.model, None, kernels.LEFT_BOX_FAULT, where)
        return out, loss, False


def chosen_start(weights: Floats, u: float) -> int:
    """The number of a start drawn by u."""
    return min(int(np.searchsorted(np.cumsum(weights), u, side="right")), weights.size - 1)


def _bits(seed: int, replica: int, step: int, stream: int) -> np.random.Philox:
    """NumPy's Philox at the place of the kernels' (seed, stream, replica, step)."""
    counter = [0, step, replica, 0]
    number = sum(word << (64 * i) for i, word in enumerate(counter)) - 1
    return np.random.Philox(key=seed + (stream << 64), counter=number % (1 << 256))
