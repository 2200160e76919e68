"""What a model is.

A state is a vector of integers inside a box, actions are numbered, and a model answers

    allowed(x, a)      may a be chosen in x?
    loss(x, a)         the expected cost of one step (to be minimised)
    forward(x, a)      the next states and their probabilities, a short list
    step(x, a)         one next state drawn from that list
    predecessors(y)    the (x, a, probability) that lead to y, a short list; not every model has it

Each answer is a compiled function over the model's data (`Code`), so that loops run at machine
speed on any model. Lists may name a state more than once: probabilities then add up. Nothing here
is as long as the number of states, which may exceed 2**63 or be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dualplan._kernels.compiler import Data, Kernel
from dualplan._kernels.layouts import Bounds, Dynamics, Grid, Law
from dualplan.core import budgets
from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError, MissingError, unknown
from dualplan.core.identity import digest
from dualplan.core.types import ArrayLike, Bools, Floats, Ints, Json

if TYPE_CHECKING:
    from dualplan.policies.contract import Policy

UNBOUNDED = int(np.iinfo(np.int64).max)
LARGEST_COORDINATE = 2**62  # beyond this, sums of two coordinates could overflow


@dataclass(frozen=True, eq=False)
class Box:
    """All integer vectors between `lower` and `upper`, both included.

    `UNBOUNDED` above means no limit.
    """

    lower: Ints
    upper: Ints

    def __post_init__(self) -> None:
        if self.lower.ndim != 1 or self.lower.shape != self.upper.shape or self.lower.size == 0:
            raise InputError(
                "a box needs as many upper as lower limits, and at least one coordinate."
            )
        wrong = np.flatnonzero(self.upper < self.lower)
        if wrong.size:
            i = int(wrong[0])
            raise InputError(
                f"the box is empty: coordinate {i} goes from {self.lower[i]} to {self.upper[i]}."
            )

    @staticmethod
    def of(lower: ArrayLike, upper: Sequence[int | float | None]) -> Box:
        """A box from numbers, where None or infinity means unbounded."""
        limits = [UNBOUNDED if u is None or u == math.inf else _whole(u) for u in upper]
        return Box(
            np.array([_whole(v) for v in np.ravel(lower).tolist()], np.int64),
            np.array(limits, np.int64),
        )

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        return int(self.lower.size)

    @property
    def bounds(self) -> Bounds:
        """The limits as kernels take them."""
        return Bounds(self.lower, self.upper)

    @property
    def bounded(self) -> bool:
        """Whether every coordinate has an upper limit."""
        return bool(np.all(self.upper < UNBOUNDED))

    @property
    def count(self) -> int | None:
        """The number of states as an exact integer; None if there is no end of them."""
        if not self.bounded:
            return None
        return math.prod(
            int(high) - int(low) + 1 for low, high in zip(self.lower, self.upper, strict=True)
        )

    def contains(self, x: Ints) -> bool:
        """Whether x lies in the box."""
        return bool(np.all((self.lower <= x) & (x <= self.upper)))

    @cached_property
    def strides(self) -> Ints:
        """The weights of the coordinates in a state's index (last coordinate fastest)."""
        count = self.count
        if count is None or count > 2**62:
            if count is None:
                size = "infinitely many states"
            else:
                size = f"about 10^{math.log10(count):.0f} states"
            raise MissingError(
                f"this method numbers the states, but the model has {size}; bound its coordinates, "
                "or simulate it."
            )
        widths = self.upper - self.lower + 1
        return np.concatenate([np.cumprod(widths[:0:-1])[::-1], [1]]).astype(np.int64)

    @property
    def grid(self) -> Grid:
        """The limits and the weights, as kernels take them."""
        return Grid(self.lower, self.upper, self.strides)

    def index(self, x: ArrayLike) -> int:
        """The number of a state in a bounded box."""
        return int((np.asarray(x, np.int64) - self.lower) @ self.strides)

    def state(self, index: int) -> Ints:
        """The state with a number in a bounded box."""
        return np.asarray(self.states(np.array([index]))[0])

    def states(self, numbers: Ints) -> Ints:
        """States by number, one a row."""
        return np.asarray(
            self.lower + numbers[:, None] // self.strides % (self.upper - self.lower + 1)
        )


@dataclass(frozen=True, eq=False)
class Code(Data):
    """The compiled functions of a model, the arrays they read, and how long their lists can get."""

    ints: Ints
    floats: Floats
    allowed: Kernel
    loss: Kernel
    step: Kernel
    forward: Kernel | None = None
    predecessors: Kernel | None = None
    max_outcomes: int = 0
    max_predecessors: int = 0
    counters: tuple[str, ...] = ()
    counts: Kernel | None = None  # what a step from (x, a) counts, in expectation
    changes: Kernel | None = None  # the predecessors as what differs from the state
    max_changed: int = 0

    @property
    def dynamics(self) -> Dynamics:
        """What a simulation asks of the model, as kernels take it."""
        return Dynamics(self.step, self.allowed, self.ints, self.floats)


@dataclass(frozen=True, eq=False)
class Transitions:
    """The next states of a pair, each once, with their probabilities."""

    states: Ints
    probabilities: Floats


@dataclass(frozen=True, eq=False)
class Predecessors:
    """The pairs that lead to a state, each once, with the probabilities that they do."""

    states: Ints
    actions: Ints
    probabilities: Floats


@dataclass(frozen=True, eq=False)
class Measure:
    """A long-run measure: the ratio of two sums over steps, each a weighting of the columns of
    `columns`.
    """

    name: str
    numerator: Floats
    denominator: Floats


class Model:
    """A Markov decision process over a box; see the module's text for the contract.

    Parameters that describe it travel in `describe`, so that a saved run can be repeated.
    """

    name: str
    box: Box
    coordinates: tuple[str, ...]
    actions: tuple[str, ...]
    start: Ints
    origin: Json | None = None  # what `load` was asked for
    written: Mapping[str, str] = MappingProxyType({})  # policies written down with it, by name

    @property
    def code(self) -> Code:
        """The compiled functions and their data."""
        raise MissingError(f"model {self.name!r} has no compiled functions.")

    @property
    def forward_law(self) -> Law:
        """What methods that list next states ask of the model, as kernels take it."""
        code = self.code
        if code.forward is None:
            raise self._no_forward()
        return Law(
            code.allowed,
            code.loss,
            code.forward,
            code.ints,
            code.floats,
            len(self.actions),
            code.max_outcomes,
        )

    # -- questions, one at a time ------------------------------------------------------------------

    def state(self, x: ArrayLike) -> Ints:
        """Check that x is a state and return it as an array."""
        given = np.atleast_1d(np.asarray(x))
        wrong = given.shape != (self.box.dim,) or given.dtype.kind not in "iuf"
        if wrong or not np.all((given == np.round(given)) & (np.abs(given) <= LARGEST_COORDINATE)):
            raise InputError(
                f"a state of {self.name!r} has {self.box.dim} integer coordinates, got {x!r}."
            )
        state: Ints = given.astype(np.int64)
        if not self.box.contains(state):
            i = next(
                k for k, v in enumerate(state) if not self.box.lower[k] <= v <= self.box.upper[k]
            )
            low = self.box.lower[i]
            high = self.box.upper[i]
            if high == UNBOUNDED:
                reach = f"{low} or more"
            else:
                reach = f"{low} to {high}"
            raise InputError(
                f"state {vector(state)} lies outside the box of {self.name!r}: "
                f"{self.coordinates[i]} is {reach}."
            )
        return state

    def pair(self, x: ArrayLike, a: int) -> tuple[Ints, int]:
        """Check that (x, a) is a state and an action allowed in it."""
        state = self.state(x)
        if not isinstance(a, (int, np.integer)) or not 0 <= a < len(self.actions):
            raise InputError(
                f"model {self.name!r} has actions 0 to {len(self.actions) - 1}, got {a!r}."
            )
        if not self.code.allowed(self.code.ints, self.code.floats, state, int(a)):
            raise InputError(
                f"action {a} ({self.actions[a]}) is not allowed in state {vector(state)} of "
                f"{self.name!r}."
            )
        return state, int(a)

    def allowed(self, x: ArrayLike) -> Bools:
        """Which actions may be chosen in x."""
        state = self.state(x)
        code = self.code
        return np.array(
            [code.allowed(code.ints, code.floats, state, a) for a in range(len(self.actions))], bool
        )

    def loss(self, x: ArrayLike, a: int) -> float:
        """The expected cost of choosing a in x."""
        return float(self.code.loss(self.code.ints, self.code.floats, *self.pair(x, a)))

    def forward(self, x: ArrayLike, a: int) -> Transitions:
        """The next states of (x, a) and their probabilities."""
        code = self.code
        if code.forward is None:
            raise self._no_forward()
        states = np.empty((code.max_outcomes, self.box.dim), np.int64)
        probabilities = np.empty(code.max_outcomes)
        count = code.forward(code.ints, code.floats, *self.pair(x, a), states, probabilities)
        merged, where = _distinct(states[:count])
        return Transitions(merged, _sums(where, probabilities[:count], len(merged)))

    def _no_forward(self) -> MissingError:
        return MissingError(
            f"model {self.name!r} has no list of next states: {self.why_no_forward}; methods "
            "that only simulate work on it."
        )

    def predecessors(self, y: ArrayLike) -> Predecessors:
        """The (x, a) that lead to y and the probabilities that they do."""
        code = self.code
        if code.predecessors is None:
            raise MissingError(
                f"model {self.name!r} has no predecessors: {self.why_no_predecessors}."
            )
        size = code.max_predecessors
        states = np.empty((size, self.box.dim), np.int64)
        actions = np.empty(size, np.int64)
        probabilities = np.empty(size)
        count = code.predecessors(
            code.ints, code.floats, self.state(y), states, actions, probabilities
        )
        if count < 0:
            raise MissingError(f"state {vector(np.asarray(y))} has more than {size} predecessors.")
        pairs, where = _distinct(np.column_stack([states[:count], actions[:count]]))
        return Predecessors(
            pairs[:, :-1], pairs[:, -1], _sums(where, probabilities[:count], len(pairs))
        )

    # -- what there is -----------------------------------------------------------------------------

    why_no_forward = "only its simulator is known"
    why_no_predecessors = "they were not given and cannot be derived"

    @property
    def has_forward(self) -> bool:
        """Whether the next states of a pair can be listed."""
        return self.code.forward is not None

    @property
    def has_predecessors(self) -> bool:
        """Whether the pairs that lead to a state can be listed."""
        return self.code.predecessors is not None

    @property
    def loss_bounds(self) -> tuple[float, float] | None:
        """Numbers between which every loss lies, if they are known."""
        return None

    @property
    def least_loss(self) -> float | None:
        """A number that no loss lies below, if one is known."""
        if self.loss_bounds is None:
            return None
        return self.loss_bounds[0]

    @property
    def loss_parts(self) -> Sequence[Callable[[Ints], Floats]] | None:
        """The loss as a sum of functions of single coordinates, whatever the action, if it is
        one.
        """
        return None

    @property
    def growing(self) -> Ints:
        """The coordinates that have no upper limit: where instability would show."""
        return np.flatnonzero(self.box.upper == UNBOUNDED)

    @property
    def columns(self) -> tuple[str, ...]:
        """What a simulation adds up: steps, losses, coordinates, the model's own counters."""
        return ("steps", "loss", *self.coordinates, *self.code.counters)

    def measure(self, name: str) -> Measure:
        """A measure by name."""
        measures = {m.name: m for m in self.measures}
        if name not in measures:
            raise unknown(f"measure of {self.name!r}", name, measures)
        return measures[name]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What an evaluation reports beside the cost: by default the mean of each coordinate."""
        unit = np.eye(len(self.columns))
        return tuple(
            Measure(f"mean {c}", unit[2 + i], unit[0]) for i, c in enumerate(self.coordinates)
        )

    def policy(self, name: str) -> Policy:
        """A heuristic of this model by name."""
        if name not in self.policies:
            raise unknown(f"policy of {self.name!r}", name, self.policies)
        return self.policies[name]()

    @property
    def policies(self) -> Mapping[str, Callable[[], Policy]]:
        """The heuristics of this model: names and functions that make them."""
        makers = heuristics_of(type(self))
        found = {name: partial(make, self) for name, make in makers.items()}
        for name, text in self.written.items():
            found[name] = partial(_writings[type(self)], self, text, name)
        return found

    def describe(self) -> Json:
        """The model in words and numbers, for reports and saved runs."""
        count = self.box.count
        return {
            "name": self.name,
            "kind": type(self).__name__,
            "states": count if count is None or count < 2**63 else f"10^{math.log10(count):.1f}",
            "coordinates": list(self.coordinates),
            "actions": list(self.actions) if len(self.actions) <= 64 else len(self.actions),
            "digest": self.digest,
        }

    @property
    def recipe(self) -> Json | None:
        """What `models.load.remake` makes the model of again.

        None for models that a file of Python makes.
        """
        if self.origin is None or ".py:" in self.origin["model"]:
            return None
        return self.origin

    @cached_property
    def digest(self) -> str:
        """A fingerprint of all that defines the model."""
        return digest(self.box.lower, self.box.upper, self.actions, *self._defining_parts())

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self.code.step.__name__, self.code.ints, self.code.floats)


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """Each row once, in the order of its numbers, and where each row went.

    As `np.unique` along an axis, which is slow for long rows: rows from 0 on, the largest byte
    first, have the order of their bytes.
    """
    if len(rows) == 0:
        return rows, np.zeros(0, np.int64)
    least = rows.min(axis=0)
    above = np.ascontiguousarray(rows - least).view(np.uint64)  # modulo 2**64, so never too large
    ordered = above.astype(">u8")
    keys = ordered.view(np.dtype((np.void, ordered.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], where


def _whole(value: float) -> int:
    if isinstance(value, bool) or not math.isfinite(value) or value != int(value):
        raise InputError(f"the limits of a box are integers, got {value!r}.")
    if abs(value) > LARGEST_COORDINATE:
        raise InputError(
            f"the limits of a box must lie within 2^62, got {value!r}; None means unbounded."
        )
    return int(value)


def _sums(where: Ints, values: Floats, size: int) -> Floats:
    """Sums of the values that share a place."""
    sums = np.zeros(size)
    np.add.at(sums, where.ravel(), values)
    return sums


def read_only(x: Ints) -> Ints:
    """A copy for functions of the user, who must not change a state in place."""
    copy = x.copy()
    copy.flags.writeable = False
    return copy


def coordinate_of(model: Model, given: str | int) -> int:
    """The number of a coordinate, by name or number."""
    if isinstance(given, str):
        if given not in model.coordinates:
            raise unknown(f"coordinate of {model.name!r}", given, model.coordinates)
        return model.coordinates.index(given)
    if not is_whole(given) or not 0 <= given < model.box.dim:
        raise InputError(
            f"model {model.name!r} has no coordinate {given!r}; they have the numbers 0 to "
            f"{model.box.dim - 1}."
        )
    return int(given)


def require_made_for(model: Model, other: Model, what: str) -> None:
    """Raise unless `other`, for which a thing was made, is this model or has its fingerprint."""
    if other is not model and other.digest != model.digest:
        raise InputError(
            f"the {what} belongs to {other.name!r}, not to {model.name!r}; make it for this model."
        )


def vector(x: Ints) -> str:
    """A state as it is written in messages."""
    return "(" + ", ".join(str(int(v)) for v in x) + ")"


_heuristics: dict[type[Model], Mapping[str, Callable[[Any], Policy]]] = {}
_writings: dict[type[Model], Callable[[Any, str, str], Policy]] = {}


def register_heuristics(kind: type[Model], makers: Mapping[str, Callable[[Any], Policy]]) -> None:
    """Give a kind of model its heuristics: names, and functions that make a policy of a model of
    that kind.

    Policies are made from models and not the other way round, so they say themselves which models
    they are for. A kind without heuristics of its own has those of the kind that it is derived
    from.
    """
    _heuristics[kind] = makers


def heuristics_of(kind: type[Model]) -> Mapping[str, Callable[[Any], Policy]]:
    """The heuristics that a kind of model has."""
    return next(_heuristics[one] for one in kind.__mro__ if one in _heuristics)


def register_writing(kind: type[Model], make: Callable[[Any, str, str], Policy]) -> None:
    """Policies of this kind of model can be written down: `make(model, text, name)` reads one."""
    _writings[kind] = make


def few_states(model: Model, most: int | None = None) -> bool:
    """Whether next states are listed, and there are at most so many states (few, if not given)."""
    if most is None:
        most = budgets.MOST_EXACT_STATES
    return model.has_forward and model.box.count is not None and model.box.count <= most
