"""Models of which only a simulator is known: a function of the user's, or a Gymnasium environment.

Methods that look at single states and next states are out of reach here and say so; simulation and
everything built on it works. These models run in Python, one step at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from dualplan.core.errors import InputError, MissingError, ModelError
from dualplan.core.types import ArrayLike, Bools, Ints
from dualplan.models.contract import LARGEST_COORDINATE, Box, Code, Model, read_only, vector

Generator = np.random.Generator


class Session(Protocol):
    """One simulated trajectory in progress."""

    def reset(self, rng: Generator) -> Ints:
        """Start anew; the first state."""

    def step(self, x: Ints, a: int, rng: Generator) -> tuple[Any, float, bool]:
        """The next state, the loss, and whether the episode has ended."""


class SimulatorModel(Model):
    """A model from ``step(x, a, rng) -> (next state, loss)``, with `rng` a NumPy generator.

    All randomness must come from `rng`: each step gets its own place in a counter-based stream, so
    that results can be repeated and policies compared on the same random numbers. A third returned
    value, if true, ends an episode: under the average criterion the next one then starts from
    `start`; under the discounted one no more losses follow.
    """

    def __init__(
        self,
        *,
        lower: Sequence[int],
        upper: Sequence[int | float | None],
        actions: Sequence[str] | int,
        step: Callable[..., Any] | None = None,
        session: Callable[[], Session] | None = None,
        allowed: Callable[[Ints, int], bool] | None = None,
        start: ArrayLike | None = None,
        loss_bounds: tuple[float, float] | None = None,
        coordinates: Sequence[str] | None = None,
        name: str = "simulator",
    ) -> None:
        if (step is None) == (session is None):
            raise InputError("a SimulatorModel needs either step=... or session=...")
        self.name = name
        self.box = Box.of(lower, upper)
        if isinstance(actions, int):
            self.actions = tuple(f"action {a}" for a in range(actions))
        else:
            self.actions = tuple(actions)
        self.coordinates = tuple(coordinates or (f"x{i + 1}" for i in range(self.box.dim)))
        self.start = self.state(self.box.lower if start is None else start)
        self._step = step
        self._session = session
        self._allowed = allowed
        self._loss_bounds = loss_bounds

    @staticmethod
    def from_gymnasium(environment: Any, **options: Any) -> SimulatorModel:
        """A Gymnasium environment with discrete observations and actions.

        Losses are negative rewards.
        """
        return _from_gymnasium(environment, **options)

    @property
    def code(self) -> Code:
        """There is none: the simulator is Python."""
        raise MissingError(
            f"model {self.name!r} is only a simulator: it has no losses, next states or "
            "predecessors to look up, and methods that need them do not work on it."
        )

    @property
    def has_forward(self) -> bool:
        """Never."""
        return False

    @property
    def has_predecessors(self) -> bool:
        """Never."""
        return False

    @property
    def columns(self) -> tuple[str, ...]:
        """What a simulation adds up."""
        return ("steps", "loss", *self.coordinates)

    @property
    def loss_bounds(self) -> tuple[float, float] | None:
        """As given by the user, and 0, which is the loss after an episode has ended."""
        if self._loss_bounds is None:
            return None
        return min(self._loss_bounds[0], 0.0), max(self._loss_bounds[1], 0.0)

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self._step, self._session, self._allowed)

    @property
    def resumable(self) -> bool:
        """Whether the state vector is all there is, so that an interrupted simulation can go on."""
        return self._session is None

    def allowed(self, x: ArrayLike) -> Bools:
        """Which actions may be chosen in x."""
        if self._allowed is None:
            return np.ones(len(self.actions), bool)
        state = self.state(x)
        return np.array([bool(self._allowed(state, a)) for a in range(len(self.actions))])

    def session(self) -> Session:
        """Begin a trajectory."""
        if self._session is not None:
            return self._session()
        return _FunctionSession(self, self._step)

    def checked(self, result: Any, x: Ints, a: int) -> tuple[Ints, float, bool]:
        """A simulator's answer as (state, loss, ended), or an error that names what is wrong."""
        where = f"model {self.name!r}: `step` at x={vector(x)}, a={a}"
        if not isinstance(result, tuple) or len(result) not in (2, 3):
            raise ModelError(
                f"{where} must return (next state, loss) or (next state, loss, ended), got "
                f"{result!r}."
            )
        y = np.atleast_1d(np.asarray(result[0]))
        if y.shape != (self.box.dim,) or y.dtype.kind not in "iub":
            raise ModelError(
                f"{where} gives the state {result[0]!r}; a state has {self.box.dim} integer "
                "coordinates."
            )
        if not self.box.contains(y) or np.abs(y).max() > LARGEST_COORDINATE:
            raise ModelError(f"{where} leaves the box: x'={vector(y)}.")
        if not np.isfinite(result[1]):
            raise ModelError(f"{where} gives the loss {result[1]!r}, not a finite number.")
        return y.astype(np.int64), float(result[1]), bool(result[2]) if len(result) == 3 else False


class _FunctionSession:
    """A trajectory of a user's function, which keeps nothing but the state."""

    def __init__(self, model: SimulatorModel, step: Any) -> None:
        self.model = model
        self._step = step

    def reset(self, rng: Generator) -> Ints:  # noqa: ARG002 - a fixed start needs no randomness
        return self.model.start

    def step(self, x: Ints, a: int, rng: Generator) -> tuple[Any, float, bool]:
        return self._step(read_only(x), a, rng)  # type: ignore[no-any-return]


# -- Gymnasium (an optional extra) -----------------------------------------------------------------


def _from_gymnasium(environment: Any, **options: Any) -> SimulatorModel:
    """Wrap an environment, its id, or a function that makes one; `options` go to
    `gymnasium.make`.

    Limits on the length of an episode are taken off: they would depend on more than the state.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise MissingError(
            "Gymnasium is not installed; run: pip install 'dualplan[gymnasium]'."
        ) from error

    options = {"max_episode_steps": -1, **options}
    make: Callable[[], Any]
    if isinstance(environment, str):
        make = partial(gymnasium.make, environment, **options)
    elif isinstance(environment, gymnasium.Env):
        if environment.spec is not None:
            make = partial(gymnasium.make, environment.spec, **options)
        else:
            make = partial(copy.deepcopy, environment.unwrapped)
    else:
        make = environment
    probe = make()
    name = environment if isinstance(environment, str) else type(probe.unwrapped).__name__
    lower, upper = _box(probe.observation_space, gymnasium.spaces, name)
    if (
        not isinstance(probe.action_space, gymnasium.spaces.Discrete)
        or probe.action_space.start != 0
    ):
        raise InputError(
            f"environment {name!r} has actions {probe.action_space}; only Discrete(n) ones can be "
            "planned."
        )
    actions = int(probe.action_space.n)
    probe.close()
    return SimulatorModel(
        lower=lower, upper=upper, actions=actions, session=lambda: _GymSession(make()), name=name
    )


def _box(space: Any, spaces: Any, name: str) -> tuple[list[int], list[int]]:
    if isinstance(space, spaces.Discrete):
        return [int(space.start)], [int(space.start + space.n - 1)]
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return [int(v) for v in space.start], [
            int(s + n - 1) for s, n in zip(space.start, space.nvec, strict=True)
        ]
    raise InputError(
        f"environment {name!r} observes {space}; only Discrete and MultiDiscrete observations are "
        "states."
    )


class _GymSession:
    """A trajectory of an environment, whose state is hidden in the environment itself."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, rng: Generator) -> Ints:
        observation, _ = self.env.reset(seed=int(rng.integers(2**31)))
        return np.atleast_1d(np.asarray(observation, np.int64))

    def step(self, x: Ints, a: int, rng: Generator) -> tuple[Any, float, bool]:  # noqa: ARG002
        observation, reward, terminated, truncated, _ = self.env.step(a)
        if truncated:
            raise InputError(
                "the environment cut an episode short, which no state explains; make it without a "
                "limit."
            )
        return np.atleast_1d(np.asarray(observation, np.int64)), -float(reward), bool(terminated)
