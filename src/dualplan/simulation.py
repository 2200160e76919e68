"""Trajectories of a model under a policy, in chunks.

`REPLICAS` independent trajectories start from one state and advance in chunks of fixed length; the random numbers
of a step depend on (seed, replica, step) alone. Chunks are simulated on all cores and put together in a fixed order,
so neither the number of threads nor an interruption changes a result.

With a control h, a function of states, every step's loss is replaced by ℓ(x,a) + Σ_y P(y|x,a) h(y) − h(x). Under a
stationary law with E|h| finite the two have the same mean, since E[Ph] = E[h]; the nearer h is to the bias of the
policy, the less the second varies (with the bias itself, not at all: Poisson's equation). This is the approximating
martingale of Henderson & Glynn (2002), and it also takes away what the start leaves: the sum over n steps differs from
that of ℓ by a martingale and h(x_n) − h(x_0). The losses themselves are in one more column, by which warm-up and the
intervals of other measures are judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn, Protocol, TypeVar

import joblib
import numpy as np

from dualplan._kernels import philox
from dualplan._kernels import rollouts as coupled_kernels
from dualplan._kernels import simulate as kernels
from dualplan._kernels.compiler import Kernel
from dualplan.errors import ModelError, PolicyError
from dualplan.models.contract import Model, vector
from dualplan.models.simulator import Generator, Session, SimulatorModel
from dualplan.policies.contract import OwnLoop, Policy, check_probabilities
from dualplan.types import Bools, Floats, Ints
from dualplan.values import ValueCode

REPLICAS = 8
STREAM = 1  # the stream of simulated trajectories; other uses of randomness take others
COUPLED = 3  # the stream of coupled copies
RESTARTS = 2  # the stream that decides where recorded trajectories begin anew
LAST_STEP = 2**64 - 1  # where the draws lie that come before the first step

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Replica:
    """Where a trajectory stands: its state, the cycle under way (loss, length), the steps done."""

    number: int
    x: Ints
    cycle: Floats
    steps: int


@dataclass(frozen=True, eq=False)
class Chunks:
    """What a trajectory did: one row of column sums for each chunk, and the sums over finished cycles."""

    replica: Replica
    rows: Floats
    cycles: Floats


@dataclass(frozen=True, eq=False)
class Restarts:
    """When a recorded trajectory begins anew: after each step with probability 1 − γ, at one of the starts.

    Simulators that keep their state to themselves are reset. γ = 1 (average): only where an episode ends.
    """

    gamma: float
    starts: Ints
    weights: Floats


@dataclass(frozen=True, eq=False)
class Recorded:
    """Transitions (x, a, ℓ, x'), one a row; `alive` is False where an episode ended and nothing followed.

    `first` are the states at which the trajectory began anew, one a row, where only the simulator knows its starts.
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
    """What coupled copies did: differences of losses, a row for each copy and a column for each repetition.

    `met` is in how many repetitions a copy met the first of its group, `steps` the steps of all copies.
    """

    totals: Floats
    met: Floats
    steps: int


class Engine(Protocol):
    """Simulates one policy on one model."""

    columns: int
    resumable: bool
    fast: bool

    def first(self, number: int) -> Replica:
        """A replica before its first step."""

    def advance(self, replica: Replica, chunks: int, length: int) -> Chunks:
        """Simulate `chunks` chunks of `length` steps."""

    def visits(self, replica: Replica, count: int, every: int) -> Ints:
        """The states after `every`, 2·`every`, ... steps, one a row."""

    def record(self, replica: Replica, count: int, every: int, restarts: Restarts) -> Recorded:
        """Every `every`-th transition, `count` of them."""

    def discounted(self, gamma: float, horizon: int, starts: Ints, weights: Floats, first: int, count: int) -> Any:
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


Control = Callable[[Ints], Any]  # of states, one a row: a number for each


def engine(
    model: Model, policy: Policy, seed: int, *, regenerate: bool = False, control: Control | None = None
) -> Engine:
    """The loop for this model and policy: compiled where both are, and the control."""
    code = getattr(control, "code", None)
    if isinstance(model, SimulatorModel) or policy.code is None or (control is not None and code is None):
        return PythonEngine(model, policy, seed, regenerate, control)
    return CompiledEngine(model, policy, seed, regenerate, code)


class CompiledEngine:
    """Runs compiled models under compiled policies."""

    fast = True
    resumable = True

    def __init__(
        self, model: Model, policy: Policy, seed: int, regenerate: bool, control: ValueCode | None = None
    ) -> None:
        if policy.code is None:
            raise PolicyError(f"policy {policy.name!r} is not compiled.")
        self.model, self.policy, self.seed = model, policy, seed
        self.loop = None if regenerate else _own_loop(model, policy)
        self.weights = _loop_weights(self.loop, control)
        self.columns, self.control = len(model.columns) + (control is not None), control
        self.anchor = model.start.copy() if regenerate else np.empty(0, np.int64)
        code, rule, box = model.code, policy.code, model.box
        self._head = (code.step, code.allowed, rule.act, code.ints, code.floats, rule.ints, rule.floats, box.lower,
                      box.upper, len(model.actions))  # fmt: skip

    def first(self, number: int) -> Replica:
        """At the model's start."""
        return Replica(number, self.model.start.copy(), np.zeros(2), 0)

    def advance(self, replica: Replica, chunks: int, length: int) -> Chunks:
        """In one compiled call."""
        x, cycle, t = replica.x.copy(), replica.cycle.copy(), replica.steps
        rows, cycles = np.zeros((chunks, self.columns)), np.zeros(6)
        rng = philox.generator(self.seed, STREAM, replica.number)
        where = np.zeros(2 * x.size + 1, np.int64)
        if self.loop is not None and self.weights is not None:
            self.loop.run(self.loop.ints, self.loop.floats, self.weights, x, rng, t, length, rows)
        elif self.control is None:
            self._run(kernels.simulate, (x, rng, t, length, self.anchor, cycle, rows, cycles, where))
        else:
            h, code = self.control, self.model.code
            shape = (code.forward, h.value, h.ints, h.floats, h.room, code.max_outcomes)
            self._run(kernels.simulate_shaped, (*shape, x, rng, t, length, rows, where))
        return Chunks(Replica(replica.number, x, cycle, t + chunks * length), rows, cycles)

    def visits(self, replica: Replica, count: int, every: int) -> Ints:
        """In one compiled call."""
        x, states = replica.x.copy(), np.empty((count, replica.x.size), np.int64)
        rng = philox.generator(self.seed, STREAM, replica.number)
        where = np.zeros(2 * x.size + 1, np.int64)
        self._run(kernels.visits, (x, rng, replica.steps, every, states, where))
        return states

    def record(self, replica: Replica, count: int, every: int, restarts: Restarts) -> Recorded:
        """In one compiled call."""
        x, dim = replica.x.copy(), replica.x.size
        states, following = np.empty((count, dim), np.int64), np.empty((count, dim), np.int64)
        actions, losses = np.empty(count, np.int64), np.empty(count)
        rng, chance = (philox.generator(self.seed, stream, replica.number) for stream in (STREAM, RESTARTS))
        where = np.zeros(2 * dim + 1, np.int64)
        self._run(kernels.record, (
            x, rng, replica.steps, every, chance, restarts.gamma, restarts.starts, restarts.weights, states, actions,
            losses, following, where,
        ))  # fmt: skip
        after = Replica(replica.number, x, replica.cycle, replica.steps + count * every)
        return Recorded(after, states, actions, losses, following, np.ones(count, bool), np.empty((0, dim), np.int64))

    def discounted(
        self, gamma: float, horizon: int, starts: Ints, weights: Floats, first: int, count: int
    ) -> tuple[Floats, Ints]:
        """In one compiled call."""
        totals, lengths = np.empty(count), np.empty(count, np.int64)
        rng = philox.generator(self.seed, STREAM, 0)
        where = np.zeros(2 * self.model.box.dim + 1, np.int64)
        self._run(kernels.simulate_discounted, (starts, weights, rng, gamma, horizon, first, totals, lengths, where))
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
        totals, met, steps = np.empty((len(states), repetitions)), np.zeros(len(states)), np.zeros(1, np.int64)
        rng = philox.generator(self.seed, COUPLED, 0)
        where = np.zeros(2 * self.model.box.dim + 1, np.int64)
        none = (coupled_kernels.no_forward, coupled_kernels.no_value, np.empty(0, np.int64), np.empty(0), 0, 0)
        code, h = self.model.code, control
        law = none if h is None else (code.forward, h.value, h.ints, h.floats, h.room, code.max_outcomes)
        self._run(
            coupled_kernels.coupled, (*law, places, states, first, rng, gamma, horizon, totals, met, steps, where)
        )
        return Copies(totals, met, int(steps[0]))

    def _run(self, loop: Kernel, arguments: tuple[Any, ...]) -> None:
        """Run a loop; its faults, and whatever the user's functions raise in it, become sentences."""
        where: Ints = arguments[-1]
        try:
            fault = loop(*self._head, *arguments)
        except (ArithmeticError, LookupError, ValueError, RuntimeError, TypeError) as error:
            x, a = where[: self.model.box.dim], int(where[self.model.box.dim])
            reason = f"raised {type(error).__name__}: {error}."
            if a < 0:
                raise PolicyError(f"policy {self.policy.name!r} at state {vector(x)} {reason}") from error
            _diagnose(self.model, x, a)
            raise ModelError(f"model {self.model.name!r} at x={vector(x)}, a={a} {reason}") from error
        if fault != kernels.FINE:
            _explain(self.model, self.policy, fault, where)


def _own_loop(model: Model, policy: Policy) -> OwnLoop | None:
    """The policy's own loop, if it is for this model: a policy may be taken to one with other rates."""
    loop, code = None if policy.code is None else policy.code.loop, model.code
    if loop is None or not np.array_equal(loop.ints, code.ints):
        return None
    return loop if np.array_equal(loop.floats[: code.floats.size], code.floats) else None


def _loop_weights(loop: OwnLoop | None, control: ValueCode | None) -> Floats | None:
    """The control as a policy's own loop reads it; None if it cannot."""
    if loop is None or control is None:
        return np.zeros(0)
    return control.quadratic_in(loop.coordinates)


class PythonEngine:
    """Runs what cannot be compiled, one step at a time: simulators, and policies that are Python objects."""

    fast = False

    def __init__(
        self, model: Model, policy: Policy, seed: int, regenerate: bool, control: Control | None = None
    ) -> None:
        self.model, self.policy, self.seed, self.regenerate = model, policy, seed, regenerate
        self.control = control
        self.columns = len(model.columns) + (control is not None)
        self.resumable = not isinstance(model, SimulatorModel) or model.resumable
        self._sessions: dict[int, Session] = {}

    def first(self, number: int) -> Replica:
        """At the start of a session of its own."""
        session = self._new_session()
        self._sessions[number] = session
        return Replica(number, session.reset(self._generator(number, LAST_STEP)), np.zeros(2), 0)

    def _new_session(self) -> Session:
        return self.model.session() if isinstance(self.model, SimulatorModel) else _CompiledSession(self.model)

    def _generator(self, replica: int, step: int, stream: int = STREAM) -> Generator:
        """The same stream as in compiled code: the draws of one step of one replica."""
        return np.random.Generator(_bits(self.seed, replica, step, stream))

    def _step(
        self, session: Session, x: Ints, replica: int, t: int, stream: int = STREAM
    ) -> tuple[Ints, float, bool, Generator]:
        result, _, rng = self._transition(session, x, replica, t, stream)
        return *result, rng

    def _transition(
        self, session: Session, x: Ints, replica: int, t: int, stream: int = STREAM
    ) -> tuple[tuple[Ints, float, bool], int, Generator]:
        rng = self._generator(replica, t, stream)
        probabilities = self.policy.probabilities(x)
        check_probabilities(self.policy, x, probabilities)
        a = min(int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right")), probabilities.size - 1)
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
        x, cycle, t = replica.x, replica.cycle.copy(), replica.steps
        rows, cycles = np.zeros((chunks, self.columns)), np.zeros(6)
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
                x = session.reset(rng) if ended else y
                t += 1
                if self.regenerate:
                    cycle += (loss, 1.0)
                    if np.array_equal(x, self.model.start):
                        c, n = cycle
                        cycles += (1.0, c, n, c * c, c * n, n * n)
                        cycle[:] = 0.0
        return Chunks(Replica(replica.number, x, cycle, t), rows, cycles)

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
            replica = self.advance(replica, 1, every).replica
            row[:] = replica.x
        return states

    def record(self, replica: Replica, count: int, every: int, restarts: Restarts) -> Recorded:
        """Step by step; under γ < 1 nothing follows the end of an episode, otherwise the next one does."""
        if replica.number not in self._sessions:
            self._sessions[replica.number] = self._new_session()
        session, hidden = self._sessions[replica.number], not self.resumable
        x, t, dim, first = replica.x, replica.steps, replica.x.size, []
        states, following = np.empty((count, dim), np.int64), np.empty((count, dim), np.int64)
        actions, losses, alive = np.empty(count, np.int64), np.empty(count), np.ones(count, bool)
        for step in range(count * every):
            (y, loss, ended), a, rng = self._transition(session, x, replica.number, t)
            chance = self._generator(replica.number, t, RESTARTS)
            anew = restarts.gamma < 1 and (ended or chance.random() >= restarts.gamma)
            if ended and not anew:
                y = session.reset(rng)
            if (step + 1) % every == 0:
                k = step // every
                states[k], actions[k], losses[k], following[k], alive[k] = x, a, loss, y, not (ended and anew)
            x = y
            if anew:
                x = session.reset(rng) if hidden else restarts.starts[_chosen(restarts.weights, chance.random())]
                first.append(x)
            t += 1
        after = Replica(replica.number, x, replica.cycle, t)
        starts = np.array(first if hidden else [], np.int64).reshape(-1, dim)
        return Recorded(after, states, actions, losses, following, alive, starts)

    def discounted(
        self, gamma: float, horizon: int, starts: Ints, weights: Floats, first: int, count: int
    ) -> tuple[Floats, Ints]:
        """Step by step; an episode that ends brings no more losses."""
        totals, lengths = np.zeros(count), np.zeros(count, np.int64)
        hidden = isinstance(self.model, SimulatorModel) and not self.model.resumable
        for run in range(count):
            session = self._new_session()
            rng = self._generator(first + run, LAST_STEP)
            x = starts[_chosen(weights, rng.random())]
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
        """Copy by copy, each against the path of the first of its group; nothing follows the end of an episode."""
        if not self.resumable:
            raise ModelError(f"model {self.model.name!r} keeps its state to itself, so it has no coupled copies.")
        if control is not None:
            raise PolicyError(f"a control variate needs a compiled policy, and {self.policy.name!r} is not.")
        totals, met, steps = np.zeros((len(states), repetitions)), np.zeros(len(states)), 0
        for g, (low, high) in enumerate(pairwise(places.tolist())):
            for r in range(repetitions):
                copies = _Path(self, states[low:high], (first + g) * repetitions + r, gamma < 1)
                factor, t = 1.0, 0
                while copies.live and t < horizon:
                    steps += 1 + len(copies.live)
                    for j, difference in copies.advance(t):
                        totals[low + j, r] += factor * difference
                    factor, t = factor * gamma, t + 1
                met[low:high] += 1.0
                met[[low + j for j in copies.live]] -= 1.0
        return Copies(totals, met, steps)


class _Path:
    """Copies of one group, stepped together from Python; `live` are those that differ from the first one."""

    def __init__(self, run: PythonEngine, states: Ints, replica: int, episodes: bool) -> None:
        self.run, self.replica, self.episodes = run, replica, episodes
        self.session = run._new_session()
        self.x: list[Ints | None] = [x.copy() for x in states]  # None: the episode has ended
        self.live = [j for j in range(1, len(states)) if not np.array_equal(states[j], states[0])]

    def advance(self, t: int) -> list[tuple[int, float]]:
        """One step of all copies: the difference of losses from the first one, for each that is live."""
        base = self._step(0, t)
        found = [(j, self._step(j, t) - base) for j in self.live]
        self.live = [j for j in self.live if not self._together(j)]
        return found

    def _together(self, j: int) -> bool:
        x, y = self.x[0], self.x[j]
        return x is y if x is None or y is None else np.array_equal(x, y)

    def _step(self, j: int, t: int) -> float:
        x = self.x[j]
        if x is None:
            return 0.0
        y, loss, ended, rng = self.run._step(self.session, x, self.replica, t, COUPLED)
        self.x[j] = (None if self.episodes else self.session.reset(rng)) if ended else y
        return loss


class _CompiledSession:
    """A compiled model stepped from Python."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.counts = np.zeros(len(model.code.counters))

    def reset(self, rng: Generator) -> Ints:  # noqa: ARG002 - a fixed start needs no randomness
        return self.model.start

    def step(self, x: Ints, a: int, rng: Generator) -> tuple[Ints, float, bool]:
        """Continue the stream of `rng` inside compiled code, after the draw that picked the action."""
        code = self.model.code
        words = np.zeros(philox.WORDS, np.uint64)
        state: Any = rng.bit_generator.state
        words[0:2], words[2:6] = state["state"]["key"], state["state"]["counter"]
        words[6:10], words[10] = state["buffer"], state["buffer_pos"]
        words[2] += 1  # NumPy counts before it computes a block, the kernels after
        out = np.empty_like(x)
        self.counts[:] = 0
        loss = float(code.step(code.ints, code.floats, x, a, words, out, self.counts))
        where = np.concatenate([x, [a], out])
        if not np.isfinite(loss):
            _explain(self.model, None, kernels.BAD_LAW, where)
        if not self.model.box.contains(out):
            _explain(self.model, None, kernels.LEFT_BOX, where)
        return out, loss, False


def _chosen(weights: Floats, u: float) -> int:
    """The number of a start drawn by u."""
    return min(int(np.searchsorted(np.cumsum(weights), u, side="right")), weights.size - 1)


def _bits(seed: int, replica: int, step: int, stream: int) -> np.random.Philox:
    """NumPy's Philox at the place of the kernels' (seed, stream, replica, step)."""
    counter = [0, step, replica, 0]
    number = sum(word << (64 * i) for i, word in enumerate(counter)) - 1
    return np.random.Philox(key=seed + (stream << 64), counter=number % (1 << 256))


def _explain(model: Model, policy: Policy | None, fault: int, where: Ints) -> NoReturn:
    """Turn a fault of a loop into a sentence."""
    dim = model.box.dim
    x, a, y = where[:dim], int(where[dim]), where[dim + 1 :]
    if fault in (kernels.BAD_POLICY, kernels.FORBIDDEN) and policy is not None:
        check_probabilities(policy, x, policy.probabilities(x))
        raise PolicyError(
            f"policy {policy.name!r} at state {vector(x)} chooses action {a}, which is not allowed there."
        )
    _diagnose(model, x, a)
    if fault == kernels.LEFT_BOX:
        raise ModelError(f"model {model.name!r} at x={vector(x)}, a={a} leaves its box: x'={vector(y)}.")
    raise ModelError(f"model {model.name!r} at x={vector(x)}, a={a} has a loss or a law that is not finite.")


def _diagnose(model: Model, x: Ints, a: int) -> None:
    """Let a model of user's functions say which of them is at fault."""
    diagnose: Callable[[Ints, int], None] | None = getattr(model, "diagnose", None)
    if diagnose is not None:
        diagnose(x, a)


@cache
def cores() -> int:
    """Threads to run unless a number is given: the cores that this process may use, or OMP_NUM_THREADS if it is less.

    joblib, Dask and Ray set that variable in their workers, so that all of them together do not exceed the machine.
    """
    usable, told = int(joblib.cpu_count()), os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(usable, int(told))) if told.isdecimal() else usable


def in_parallel(tasks: Iterable[Callable[[], T]], threads: int | None) -> list[T]:
    """Run tasks on threads (compiled loops release the interpreter); results in the order of the tasks."""
    workers = threads or cores()
    if workers == 1:
        return [task() for task in tasks]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda task: task(), tasks))
