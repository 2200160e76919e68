"""Gymnasium environments as simulator models (optional extra ``gymnasium``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualplan.errors import InputError, MissingError
from dualplan.models.simulator import Generator, SimulatorModel
from dualplan.types import Ints


def simulator_from_gymnasium(environment: str | Callable[[], Any], **options: Any) -> SimulatorModel:
    """Wrap an environment id or a function that makes one; `options` go to `gymnasium.make`.

    Limits on the length of an episode are taken off: they would depend on more than the state.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise MissingError("Gymnasium is not installed; run: pip install 'dualplan[gymnasium]'.") from error

    options = {"max_episode_steps": -1, **options}
    make = (lambda: gymnasium.make(environment, **options)) if isinstance(environment, str) else environment
    probe = make()
    name = environment if isinstance(environment, str) else type(probe.unwrapped).__name__
    lower, upper = _box(probe.observation_space, gymnasium.spaces, name)
    if not isinstance(probe.action_space, gymnasium.spaces.Discrete) or probe.action_space.start != 0:
        raise InputError(
            f"environment {name!r} has actions {probe.action_space}; only Discrete(n) ones can be planned."
        )
    actions = int(probe.action_space.n)
    probe.close()
    return SimulatorModel(lower=lower, upper=upper, actions=actions, session=lambda: _GymSession(make()), name=name)


def _box(space: Any, spaces: Any, name: str) -> tuple[list[int], list[int]]:
    if isinstance(space, spaces.Discrete):
        return [int(space.start)], [int(space.start + space.n - 1)]
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return [int(v) for v in space.start], [int(s + n - 1) for s, n in zip(space.start, space.nvec, strict=True)]
    raise InputError(f"environment {name!r} observes {space}; only Discrete and MultiDiscrete observations are states.")


class _GymSession:
    """A trajectory of an environment, whose state is hidden in the environment itself."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, rng: Generator) -> Ints:
        observation, _ = self.env.reset(seed=int(rng.integers(2**31)))
        return np.atleast_1d(np.asarray(observation, np.int64))

    def step(self, x: Ints, a: int, rng: Generator) -> tuple[Any, float, bool]:  # noqa: ARG002 - it has its own
        observation, reward, terminated, truncated, _ = self.env.step(a)
        if truncated:
            raise InputError("the environment cut an episode short, which no state explains; make it without a limit.")
        return np.atleast_1d(np.asarray(observation, np.int64)), -float(reward), bool(terminated)
