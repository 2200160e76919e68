"""What a policy does on two coordinates, the others fixed.

The map of a policy π over coordinates i (across) and j (up) is, for each pair of values, the action
of largest probability in the state that has these values at i and j and the `levels` elsewhere, and
that probability. Where the state is none, no action is shown: in a network without preemption, a
server cannot be busy with nobody nor stand idle beside a customer.

In a network with joint actions `by_server` sums the probabilities of all joint actions in which the
server serves a class, and shows the class of largest sum. A class that is served with nobody in it
is idling; without preemption, where the decision is whom to take next, it means that nobody else
waits.

Compiled policies are asked by one compiled loop over the plane; nothing is longer than the number
of its cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dualplan.core.checks import is_whole, require_seed
from dualplan.core.errors import InputError
from dualplan.core.types import Bools, Floats, Ints
from dualplan.evaluation.visits import visited
from dualplan.models.contract import Box, Model, coordinate_of
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy, check_probabilities, require_policy_of

MAP_VALUES = 31  # values of a coordinate, from its lowest on
# states by which typical values are judged, and the steps between them
TYPICAL_VALUE_VISITS = 4_000
STEPS_BETWEEN_TYPICAL_VISITS = 100
PROBABILITIES_AT_ONCE = 2**22  # probabilities held at once
NO_ACTION = -1
# of servers that can be interrupted, and of those that go on
IDLE_WORD = "idle"
NOBODY_WAITS_WORD = "nobody waits"

Coordinate = str | int


@dataclass(frozen=True, eq=False)
class PolicyMap:
    """Most likely actions over two coordinates: `actions[k, l]` belongs to `up_values[k]` and
    `across_values[l]`.

    `labels` are the words for the actions, and -1 marks cells without a state; `levels` are the
    values of the other coordinates, by name. `server` is the server whose classes the labels are,
    for maps `by_server`.
    """

    model: Model
    policy: Policy
    across: str
    up: str
    across_values: Ints
    up_values: Ints
    levels: dict[str, int]
    actions: Ints
    chance: Floats
    labels: tuple[str, ...]
    server: str | None = None

    def label(self, across: int, up: int) -> str | None:
        """The word for what is done at these values of the two coordinates.

        None where there is no state.
        """
        cell = np.flatnonzero(self.up_values == up), np.flatnonzero(self.across_values == across)
        if not all(place.size for place in cell):
            raise InputError(f"the map has no cell at {self.across} = {across}, {self.up} = {up}.")
        action = int(self.actions[cell[0][0], cell[1][0]])
        if action == NO_ACTION:
            return None
        return self.labels[action]


def policy_map(
    model: Model,
    policy: Policy,
    across: Coordinate,
    up: Coordinate,
    levels: Mapping[Coordinate, int] | None = None,
    *,
    size: int | tuple[int, int] = MAP_VALUES,
    seed: int = 0,
) -> PolicyMap:
    """What a policy does on two coordinates, by name or number, the others at `levels`.

    Coordinates without a level are at the median of the states that the policy visits; servers of a
    network without preemption, at what they are mostly busy with. `size` is how many values are
    shown, across and up.
    """
    require_policy_of(model, policy)
    require_seed(seed)
    plane = coordinate_of(model, across), coordinate_of(model, up)
    if plane[0] == plane[1]:
        raise InputError(f"a map needs two coordinates, got {model.coordinates[plane[0]]!r} twice.")
    lower, upper = _slice(model, policy, plane, levels or {}, _sizes(size), seed)
    rows, states = _rows(policy, lower, upper)
    actions = np.where(_exists(model, states), rows.argmax(axis=1), NO_ACTION)
    view = _View(plane, lower, upper)
    return _map(model, policy, view, actions, rows.max(axis=1), model.actions, None)


def by_server(found: PolicyMap) -> list[PolicyMap]:
    """One map for each server: the class it serves (without preemption: next), or that there is
    nobody to serve.
    """
    network = found.model
    if not isinstance(network, QueueingNetwork):
        raise InputError(f"model {network.name!r} is no queueing network, so it has no servers.")
    if found.server is not None:
        raise InputError(f"the map is already that of server {found.server!r}.")
    return [_server_map(found, network, s) for s in range(len(network.servers))]


def _server_map(found: PolicyMap, network: QueueingNetwork, s: int) -> PolicyMap:
    plane = coordinate_of(network, found.across), coordinate_of(network, found.up)
    lower, upper = _corners(found, network, plane)
    if network.per_server:  # who serves whom is decided at the server's own event
        event = network.box.dim - 1
        if event in plane:
            raise InputError(
                "a map over the pending event belongs to all servers; choose two queues."
            )
        lower[event] = upper[event] = s + 1
    rows, states = _rows(found.policy, lower, upper)
    sums = _class_sums(network, rows, s)
    choices = np.array(network.choices[s])
    served = choices[sums.argmax(axis=1)]
    labels = (*network.class_names, NOBODY_WAITS_WORD if network.nonpreemptive else IDLE_WORD)
    actions = np.where(_busy(network, states, served, s), served, len(labels) - 1)
    actions = np.where(_exists(network, states), actions, NO_ACTION)
    chance = np.where(
        actions == len(labels) - 1, _idling(network, states, sums, choices, s), sums.max(axis=1)
    )
    view = _View(plane, lower, upper)
    return _map(network, found.policy, view, actions, chance, labels, network.servers[s])


def _class_sums(network: QueueingNetwork, rows: Floats, s: int) -> Floats:
    """The probabilities of the choices of server s."""
    sizes = [len(c) for c in network.choices]
    if network.per_server:
        return rows[:, : sizes[s]]
    others = tuple(1 + k for k in range(len(sizes)) if k != s)
    return np.asarray(rows.reshape(len(rows), *sizes).sum(axis=others))


def _waiting(network: QueueingNetwork, states: Ints, c: int, s: int) -> Bools:
    """Whether a customer of class c is there for server s to take (without preemption: next)."""
    here = states[:, c].copy()
    if network.nonpreemptive:
        here -= states[:, len(network.classes) + s] == network.choices[s].index(c) + 1
    return np.asarray(here > 0)


def _busy(network: QueueingNetwork, states: Ints, served: Ints, s: int) -> Bools:
    """Whether the choice means that somebody is served.

    Customers out of nothing are served as well.
    """
    busy = np.zeros(len(states), bool)
    for c in (c for c in network.choices[s] if c >= 0):
        busy |= (served == c) & (_waiting(network, states, c, s) | bool(network.options["phantom"]))
    return busy


def _idling(network: QueueingNetwork, states: Ints, sums: Floats, choices: Ints, s: int) -> Floats:
    """The probability that nobody is served."""
    idle = np.zeros(len(states))
    for k, c in enumerate(choices.tolist()):
        idle += np.where(_busy(network, states, np.full(len(states), c), s), 0.0, sums[:, k])
    return idle


# -- the plane -------------------------------------------------------------------------------------


def _sizes(size: int | tuple[int, int]) -> tuple[int, int]:
    if isinstance(size, tuple):
        both = size
    else:
        both = (size, size)
    if len(both) != 2 or not all(is_whole(n) and n >= 1 for n in both):
        raise InputError(
            f"the size of a map is a whole number, or two of them, at least 1, got {size!r}."
        )
    return both


def _slice(
    model: Model,
    policy: Policy,
    plane: tuple[int, int],
    levels: Mapping[Coordinate, int],
    sizes: tuple[int, int],
    seed: int,
) -> tuple[Ints, Ints]:
    """The box of the cells: a single value at all coordinates but two."""
    given = {coordinate_of(model, coordinate): value for coordinate, value in levels.items()}
    for i in plane:
        if i in given:
            raise InputError(
                f"{model.coordinates[i]!r} is a side of the map; leave it out of the levels."
            )
    lower = model.box.lower.copy()
    if set(range(model.box.dim)) - set(given) - set(plane):
        lower = typical(
            model,
            visited(
                model,
                policy,
                samples=TYPICAL_VALUE_VISITS,
                seed=seed,
                every=STEPS_BETWEEN_TYPICAL_VISITS if policy.code is not None else 1,
            ),
        )
    for i, value in given.items():
        lower[i] = _level(model, i, value)
    upper = lower.copy()
    for i, size in zip(plane, sizes, strict=True):
        lower[i] = model.box.lower[i]
        upper[i] = lower[i] + min(int(model.box.upper[i]) - int(lower[i]), size - 1)
    return lower, upper


def _level(model: Model, i: int, value: int) -> int:
    low = int(model.box.lower[i])
    high = int(model.box.upper[i])
    if not is_whole(value) or not low <= value <= high:
        raise InputError(
            f"the level of {model.coordinates[i]!r} lies between {low} and {high}, got {value!r}."
        )
    return int(value)


def typical(model: Model, states: Ints) -> Ints:
    """The medians of visited states (rows).

    Where servers finish whom they serve, what they are mostly busy with.
    """
    middle = np.sort(states, axis=0)[(len(states) - 1) // 2]
    if not isinstance(model, QueueingNetwork):
        return np.asarray(middle, np.int64)
    n = len(model.classes)
    if model.nonpreemptive:
        for s, choices in enumerate(model.choices):
            middle[n + s] = 1 + np.bincount(states[:, n + s], minlength=2)[1:].argmax()
            served = choices[int(middle[n + s]) - 1]
            middle[served] = max(middle[served], 1)
    if model.per_server:
        middle[-1] = 1
    return np.asarray(middle, np.int64)


def _exists(model: Model, states: Ints) -> Bools:
    """Which cells are states that the process can be in, as far as a network's own rules say."""
    exists = np.ones(len(states), bool)
    if not isinstance(model, QueueingNetwork) or not model.nonpreemptive:
        return exists
    n = len(model.classes)
    for s, choices in enumerate(model.choices):
        position = states[:, n + s]
        for k, c in enumerate(choices):
            exists &= ~((position == k + 1) & (states[:, c] == 0)) & ~(
                (position == 0) & (states[:, c] > 0)
            )
    return exists


def _corners(found: PolicyMap, model: Model, plane: tuple[int, int]) -> tuple[Ints, Ints]:
    lower = np.array([found.levels.get(name, 0) for name in model.coordinates], np.int64)
    upper = lower.copy()
    for i, values in zip(plane, (found.across_values, found.up_values), strict=True):
        lower[i] = values[0]
        upper[i] = values[-1]
    return lower, upper


def _rows(policy: Policy, lower: Ints, upper: Ints) -> tuple[Floats, Ints]:
    """π(·|x) of all states between two corners, one a row, and the states.

    The last coordinate runs fastest.
    """
    count = int(np.prod(upper - lower + 1))
    actions = len(policy.model.actions)
    if count * actions > PROBABILITIES_AT_ONCE:
        raise InputError(
            f"a map of {count} cells with {actions} actions is too large; ask for a smaller size."
        )
    states = Box(lower, upper).states(np.arange(count))
    rows = policy.rows(states)
    wrong = np.flatnonzero(~(np.abs(rows.sum(axis=1) - 1) <= 1e-9) & _exists(policy.model, states))
    if wrong.size:
        check_probabilities(policy, states[wrong[0]], rows[wrong[0]])
    return rows, states


@dataclass(frozen=True, eq=False)
class _View:
    """The two coordinates of a map, across and up, and the corners of the states that it shows."""

    plane: tuple[int, int]
    lower: Ints
    upper: Ints


def _map(
    model: Model,
    policy: Policy,
    view: _View,
    actions: Ints,
    chance: Floats,
    labels: tuple[str, ...],
    server: str | None,
) -> PolicyMap:
    plane = view.plane
    lower = view.lower
    upper = view.upper
    across, up = plane
    values = [np.arange(lower[i], upper[i] + 1) for i in plane]
    first, second = sorted(plane)
    shape = int(upper[first] - lower[first] + 1), int(upper[second] - lower[second] + 1)
    grids = [np.asarray(cells).reshape(shape) for cells in (actions, chance)]
    if across < up:  # rows of a map go up
        grids = [grid.T for grid in grids]
    levels = {name: int(lower[i]) for i, name in enumerate(model.coordinates) if i not in plane}
    return PolicyMap(
        model,
        policy,
        model.coordinates[across],
        model.coordinates[up],
        values[0],
        values[1],
        levels,
        np.ascontiguousarray(grids[0], np.int64),
        np.ascontiguousarray(grids[1]),
        labels,
        server,
    )
