"""Models written as plain Python functions.

The user says what may happen (`events`), how likely (`probability`), what then (`move`) and what it
costs (`loss`):

    def probability(x, a, e): ...   # of event e in state x under action a
    def move(x, a, e): ...          # the next state, a tuple of integers
    def loss(x, a): ...
    def allowed(x, a): ...          # optional

Beside the loss, `counters` may name functions of (x, a) that are added up, and `measures` the
ratios to report, such as ``{"rejected fraction": ("rejected", "arrived")}``; the second name is a
counter, a coordinate or "steps".

x is an array of integers, which must not be changed; a and e are integers. The functions are
compiled with Numba when they are first needed, so they must stay within numbers, arrays, tuples,
loops and conditions; constants and arrays may come from outside.

Predecessors come from one of

`jumps`         the differences x' − x that can occur, as a list of vectors, or "derive" to collect
                them from states
                that are enumerated (small boxes) or sampled: then y − δ are the candidates, and
                `probability` and `move` confirm each of them
`predecessors`  a generator of candidates (x₁, …, x_n, a) for a state y, which are confirmed
                likewise
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError

from dualplan._kernels.compiler import (
    ALLOWED_SIGNATURE,
    COUNTS_SIGNATURE,
    FORWARD_SIGNATURE,
    LOSS_SIGNATURE,
    PREDECESSORS_SIGNATURE,
    READ_ONLY_INTS,
    STEP_SIGNATURE,
    Kernel,
    copy,
    made_once,
    same,
    user_function,
    user_kernel,
)
from dualplan._kernels.philox import uniform
from dualplan.core.errors import InputError, ModelError, unknown
from dualplan.core.streams import FIXED_SEED
from dualplan.core.types import ArrayLike, Ints
from dualplan.models.contract import (
    LARGEST_COORDINATE,
    Box,
    Code,
    Measure,
    Model,
    read_only,
    vector,
)
from dualplan.models.sampled import sampled_states

MOST_ENUMERATED_PAIRS = 200_000
MOST_JUMPS = 4_096
EVENT_LAW_TOLERANCE = 1e-9


class EventModel(Model):
    """A model over a box from plain functions; see the module's text."""

    why_no_predecessors = "give jumps=[...], jumps='derive' or predecessors=..., see EventModel"

    def __init__(
        self,
        *,
        lower: Sequence[int],
        upper: Sequence[int | float | None],
        actions: Sequence[str] | int,
        events: int,
        probability: Callable[..., float],
        move: Callable[..., Any],
        loss: Callable[..., float],
        allowed: Callable[..., bool] | None = None,
        jumps: Sequence[Sequence[int]] | str | None = None,
        predecessors: Callable[..., Any] | None = None,
        max_predecessors: int = 10_000,
        loss_bounds: tuple[float, float] | None = None,
        counters: Mapping[str, Callable[..., float]] | None = None,
        measures: Mapping[str, tuple[str, str]] | None = None,
        coordinates: Sequence[str] | None = None,
        start: ArrayLike | None = None,
        name: str = "events",
    ) -> None:
        self.name = name
        self.box = Box.of(lower, upper)
        if isinstance(actions, int):
            self.actions = tuple(f"action {a}" for a in range(actions))
        else:
            self.actions = tuple(actions)
        self.events = events
        self.coordinates = tuple(coordinates or (f"x{i + 1}" for i in range(self.box.dim)))
        if events < 1 or not self.actions or len(self.coordinates) != self.box.dim:
            raise InputError(
                f"model {name!r} needs at least one event, one action and a name for each "
                "coordinate."
            )
        self.functions: dict[str, Callable[..., Any]] = {
            "probability": probability,
            "move": move,
            "loss": loss,
            "allowed": allowed or _always,
        }
        self._counters = dict(counters or {})
        self._measures = {
            str(key): (top, bottom) for key, (top, bottom) in (measures or {}).items()
        }
        self._candidates = predecessors
        self._jumps = jumps
        self._max_predecessors = max_predecessors
        self._loss_bounds = loss_bounds
        self.start = self.state(self.box.lower if start is None else start)
        for counted in (word for pair in self._measures.values() for word in pair):
            if counted not in self.columns:
                raise unknown(f"column in the measures of {name!r}", counted, self.columns)
        self._try_out(self.start)

    @property
    def columns(self) -> tuple[str, ...]:
        """What a simulation adds up."""
        return ("steps", "loss", *self.coordinates, *self._counters)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The mean of each coordinate, and the user's ratios."""
        unit = dict(zip(self.columns, np.eye(len(self.columns)), strict=True))
        ratios = (
            Measure(key, unit[top], unit[bottom]) for key, (top, bottom) in self._measures.items()
        )
        return (*super().measures, *ratios)

    @property
    def loss_bounds(self) -> tuple[float, float] | None:
        """As given by the user."""
        return self._loss_bounds

    # -- faults, in Python, where they can be named ------------------------------------------------

    def _try_out(self, x: Ints) -> None:
        """Call every function once, uncompiled, so that a mistake shows at once and by name."""
        may = [a for a in range(len(self.actions)) if self.call("allowed", x, a)]
        if not may:
            raise ModelError(
                f"model {self.name!r}: `allowed` leaves no action in state x={vector(x)}."
            )
        for a in may:
            self.diagnose(x, a)

    def random_step(self, x: Ints, rng: np.random.Generator) -> Ints:
        """A next state under a random action, in Python: mistakes are named, and nothing is
        compiled.
        """
        may = [a for a in range(len(self.actions)) if self.call("allowed", x, a)]
        if not may:
            raise ModelError(f"model {self.name!r}: no action is allowed in state x={vector(x)}.")
        a = int(rng.choice(may))
        self.diagnose(x, a)
        weights = np.array(
            [self.call("probability", x, a, e) for e in range(self.events)], np.float64
        ).clip(0)
        event = int(rng.choice(self.events, p=weights / weights.sum()))
        return np.atleast_1d(np.asarray(self.call("move", x, a, event), np.int64))

    def diagnose(self, x: Ints, a: int) -> None:
        """Raise if the functions break the contract at (x, a), naming the function."""
        where = f"at x={vector(x)}, a={a}"
        value = self.call("loss", x, a)
        if not _is_number(value) or not np.isfinite(value):
            raise ModelError(
                f"model {self.name!r}: `loss` {where} is {value!r}, not a finite number."
            )
        total = 0.0
        for e in range(self.events):
            p = self.call("probability", x, a, e)
            if not _is_number(p) or not -EVENT_LAW_TOLERANCE <= p <= 1 + EVENT_LAW_TOLERANCE:
                raise ModelError(
                    f"model {self.name!r}: `probability` {where}, event {e} is {p!r}, not in [0, "
                    "1]."
                )
            total += p
            if p > 0:
                self._check_move(x, a, e, where)
        if abs(total - 1) > EVENT_LAW_TOLERANCE:
            raise ModelError(
                f"model {self.name!r}: `probability` {where} sums to {total:.9g} over the events, "
                "not 1."
            )

    def _check_move(self, x: Ints, a: int, e: int, where: str) -> None:
        raw = self.call("move", x, a, e)
        y = np.atleast_1d(np.asarray(raw))
        if y.shape != (self.box.dim,):
            raise ModelError(
                f"model {self.name!r}: `move` {where}, event {e} gives {y.size} coordinates; a "
                f"state has {self.box.dim}."
            )
        if y.dtype.kind not in "iub":
            raise ModelError(
                f"model {self.name!r}: `move` {where}, event {e} gives {raw!r}; coordinates are "
                "integers."
            )
        if not self.box.contains(y) or np.abs(y).max() > LARGEST_COORDINATE:
            raise ModelError(
                f"model {self.name!r}: `move` {where}, event {e} leaves the box: x'={vector(y)}."
            )

    def call(self, function: str, x: Ints, *args: int) -> Any:
        """Call one of the user's functions in Python."""
        try:
            return self.functions[function](read_only(x), *args)
        except Exception as error:
            # whatever the user's function does is reported in the user's terms
            raise ModelError(
                f"model {self.name!r}: `{function}` at x={vector(x)}, {_arguments(args)} raised "
                f"{type(error).__name__}: {error}."
            ) from error

    def _defining_parts(self) -> tuple[Any, ...]:
        if self._jumps is None:
            jumps = None
        else:
            jumps = list(self._jumps)
        counted = (*self._counters, *self._counters.values(), *self._measures.items())
        return (self.events, *self.functions.values(), self._candidates, jumps, *counted)

    # -- the compiled form -------------------------------------------------------------------------

    @cached_property
    def code(self) -> Code:
        """Loops over the user's functions, compiled when first called."""
        f = {key: _compile(self, key, function) for key, function in self.functions.items()}
        law = f["probability"], f["move"], self.events
        count = _count(
            [_compile(self, "counters", function) for function in self._counters.values()]
        )
        jumps = self.jumps
        backward = None
        longest = 0
        if self._candidates is not None:
            candidates = _compile(self, "predecessors", self._candidates)
            backward = _confirmed_candidates(*law, f["allowed"], candidates)
            longest = self._max_predecessors
        elif jumps is not None:
            backward = _local_jumps(*law, f["allowed"])
            longest = len(jumps) * len(self.actions)
        if jumps is None:
            flat = np.zeros(0, np.int64)
        else:
            flat = jumps.ravel()
        head = np.concatenate([[len(self.actions)], self.box.lower, self.box.upper, flat])
        return Code(
            head.astype(np.int64),
            np.zeros(0),
            _allowed(f["allowed"]),
            _loss(f["loss"]),
            _step(*law, f["loss"], count),
            _forward(*law),
            backward,
            self.events,
            longest,
            tuple(self._counters),
            _counts(count),
        )

    @cached_property
    def jumps(self) -> Ints | None:
        """The differences x' − x that can occur, if the model has them."""
        if self._jumps is None:
            return None
        if isinstance(self._jumps, str):
            if self._jumps != "derive":
                raise InputError(
                    f"jumps must be a list of vectors or 'derive', got {self._jumps!r}."
                )
            return _derive_jumps(self)
        jumps = np.unique(np.array(self._jumps, np.int64), axis=0)
        if jumps.ndim != 2 or jumps.shape[1] != self.box.dim:
            raise InputError(f"model {self.name!r}: each jump needs {self.box.dim} coordinates.")
        return jumps

    @property
    def jumps_are_sampled(self) -> bool:
        """Whether the jumps were collected from a sample of states, not from all of them."""
        count = self.box.count
        return self._jumps == "derive" and (
            count is None or count * len(self.actions) > MOST_ENUMERATED_PAIRS
        )


def _always(x: Ints, a: int) -> bool:
    return True


@numba.njit(nogil=True)
def _nothing(x, a, counts):  # type: ignore[no-untyped-def]
    """Where a model has no counters; one for all models, and so compiled once."""
    return


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iufb"


def _arguments(args: Sequence[int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(("a", "event"), args, strict=False))


def _compile(model: EventModel, key: str, function: Callable[..., Any]) -> Any:
    """The user's function as machine code; what Numba cannot compile is reported with the line."""
    names = ("x", "a", "e")[: {"probability": 3, "move": 3}.get(key, 2)]
    types: list[Any] = [READ_ONLY_INTS, *[numba.int64] * (len(names) - 1)]
    if key == "predecessors":
        types = [READ_ONLY_INTS]
    if function is _always:
        return _COMPILED_ALWAYS
    try:
        compiled = user_function(function, tuple(types))  # states are passed as read-only, always
    except NumbaError as error:
        reason = next(
            (line.strip() for line in str(error).splitlines()[1:] if line.strip()), str(error)
        )
        raise ModelError(
            f"model {model.name!r}: `{key}` ({_place(function)}) uses something that cannot be "
            f"compiled to machine code: {reason} Keep to numbers, arrays, tuples, loops and "
            "conditions."
        ) from error
    if key == "move":
        return _as_vector(model, compiled)
    return compiled


_COMPILED_ALWAYS = numba.njit(nogil=True)(_always)  # one for all models, and so compiled once


def _as_vector(model: EventModel, move: Any) -> Any:
    """Let `move` return a bare integer where a state has one coordinate.

    Refuse tuples of mixed types.
    """
    result = next(iter(move.overloads.values())).signature.return_type
    if isinstance(result, numba.types.Integer):

        @numba.njit(nogil=True)
        def vector_move(x, a, e):  # type: ignore[no-untyped-def]
            return (move(x, a, e),)

        return vector_move
    if not isinstance(getattr(result, "dtype", None), numba.types.Integer):
        raise ModelError(
            f"model {model.name!r}: `move` must return integers, one a coordinate; it returns "
            f"{result}."
        )
    return move


def _place(function: Callable[..., Any]) -> str:
    try:
        return f"{function.__name__}, line {inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return getattr(function, "__name__", "function")


def _derive_jumps(model: EventModel) -> Ints:
    """Collect x' − x over all states of a small box, or over random walks and random states of a
    large one.
    """
    found: set[tuple[int, ...]] = set()
    for x, a in _states_to_look_at(model):
        for e in range(model.events):
            if model.call("probability", x, a, e) > 0:
                found.add(tuple(int(v) for v in np.atleast_1d(model.call("move", x, a, e)) - x))
        if len(found) > MOST_JUMPS:
            raise InputError(
                f"model {model.name!r} moves by more than {MOST_JUMPS} different jumps, so its "
                "predecessors cannot be found by local jumps; give predecessors=... instead."
            )
    return np.array(sorted(found), np.int64)


def _states_to_look_at(model: EventModel) -> Any:
    actions = range(len(model.actions))
    count = model.box.count
    if count is not None and count * len(model.actions) <= MOST_ENUMERATED_PAIRS:
        states: Any = (model.box.state(i) for i in range(count))
    else:
        states = sampled_states(model, 2_000, seed=FIXED_SEED)
    return ((x, a) for x in states for a in actions if model.call("allowed", x, a))


# The loops. Each closes over compiled functions of the user; a loss that is not a number signals a
# broken law, which `EventModel.diagnose` then puts into words.


@made_once
def _allowed(user: Any) -> Kernel:
    @user_kernel(ALLOWED_SIGNATURE)
    def allowed(ints, floats, x, a):  # type: ignore[no-untyped-def]
        return bool(user(x, a))

    return allowed


@made_once
def _loss(user: Any) -> Kernel:
    @user_kernel(LOSS_SIGNATURE)
    def loss(ints, floats, x, a):  # type: ignore[no-untyped-def]
        return float(user(x, a))

    return loss


@made_once
def _forward(probability: Any, move: Any, events: int) -> Kernel:
    @user_kernel(FORWARD_SIGNATURE)
    def forward(ints, floats, x, a, states, probabilities):  # type: ignore[no-untyped-def]
        count = 0
        for e in range(events):
            p = probability(x, a, e)
            if p > 0.0:
                y = move(x, a, e)
                for i in range(x.size):
                    states[count, i] = y[i]
                probabilities[count] = p
                count += 1
        return count

    return forward


def _count(functions: list[Any], place: int = 0) -> Any:
    """Adds what each function gives to its place: one function calls the next, since their types
    differ.
    """
    if not functions:
        return _nothing
    first = functions[0]
    others = _count(functions[1:], place + 1)

    @numba.njit(nogil=True)
    def count(x, a, counts):  # type: ignore[no-untyped-def]
        counts[place] += first(x, a)
        others(x, a, counts)

    return count


@made_once
def _counts(count: Any) -> Kernel:
    @user_kernel(COUNTS_SIGNATURE)
    def counts(ints, floats, x, a, out):  # type: ignore[no-untyped-def]
        out[:] = 0.0
        count(x, a, out)

    return counts


@made_once
def _step(probability: Any, move: Any, events: int, loss: Any, count: Any) -> Kernel:
    @user_kernel(STEP_SIGNATURE)
    def step(ints, floats, x, a, rng, out, counts):  # type: ignore[no-untyped-def]
        u = uniform(rng)
        total = 0.0
        event = -1
        for e in range(events):
            p = probability(x, a, e)
            if not -1e-9 <= p <= 1.0 + 1e-9:
                return np.nan
            total += p
            if event < 0 and u < total:
                event = e
        if abs(total - 1.0) > 1e-9:
            return np.nan
        if event < 0:  # u fell into the rounding error above the total
            event = events - 1
            while probability(x, a, event) <= 0.0:
                event -= 1
        y = move(x, a, event)
        if len(y) != x.size:
            return np.nan
        for i in range(x.size):
            out[i] = y[i]
        if counts.size > 0:
            count(x, a, counts)
        return float(loss(x, a))

    return step


def _confirm(probability: Any, move: Any, events: int) -> Any:
    """The probability that (x, a) leads to y."""

    @numba.njit(nogil=True)
    def confirm(x, a, y):  # type: ignore[no-untyped-def]
        total = 0.0
        for e in range(events):
            p = probability(x, a, e)
            if p > 0.0:
                target = move(x, a, e)
                hit = True
                for i in range(y.size):
                    if target[i] != y[i]:
                        hit = False
                if hit:
                    total += p
        return total

    return confirm


@made_once
def _local_jumps(probability: Any, move: Any, events: int, may: Any) -> Kernel:
    confirm = _confirm(probability, move, events)

    @user_kernel(PREDECESSORS_SIGNATURE)
    def predecessors(  # type: ignore[no-untyped-def]
        ints, floats, y, states, actions, probabilities
    ):
        dim = y.size
        first = 1 + 2 * dim
        x = np.empty(dim, np.int64)
        count = 0
        for j in range((ints.size - first) // dim):
            inside = True
            for i in range(dim):
                x[i] = y[i] - ints[first + j * dim + i]
                if x[i] < ints[1 + i] or x[i] > ints[1 + dim + i]:
                    inside = False
            if not inside:
                continue
            for a in range(ints[0]):
                if not may(x, a):
                    continue
                p = confirm(x, a, y)
                if p > 0.0:
                    copy(states[count], x)
                    actions[count] = a
                    probabilities[count] = p
                    count += 1
        return count

    return predecessors


@made_once
def _confirmed_candidates(
    probability: Any, move: Any, events: int, may: Any, candidates: Any
) -> Kernel:
    confirm = _confirm(probability, move, events)

    @user_kernel(PREDECESSORS_SIGNATURE)
    def predecessors(  # type: ignore[no-untyped-def]
        ints, floats, y, states, actions, probabilities
    ):
        dim = y.size
        x = np.empty(dim, np.int64)
        count = 0
        for candidate in candidates(y):
            inside = True
            for i in range(dim):
                x[i] = candidate[i]
                if x[i] < ints[1 + i] or x[i] > ints[1 + dim + i]:
                    inside = False
            a = candidate[dim]
            if not inside or a < 0 or a >= ints[0] or not may(x, a):
                continue
            seen = False
            for k in range(count):
                if actions[k] == a and same(states[k], x):
                    seen = True
            if seen:
                continue
            p = confirm(x, a, y)
            if p > 0.0:
                if count == actions.size:
                    return -1
                copy(states[count], x)
                actions[count] = a
                probabilities[count] = p
                count += 1
        return count

    return predecessors
