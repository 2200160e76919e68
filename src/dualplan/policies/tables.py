"""Policies from a table, from a function of the state, and the uniformly random one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numba
import numpy as np

from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    READ_ONLY_INTS,
    Kernel,
    made_once,
    user_function,
    user_kernel,
)
from dualplan._kernels.policies import action_rule, table_rule
from dualplan.core.errors import ModelError, PolicyError
from dualplan.core.streams import FIXED_SEED
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.models.contract import Model, few_states, read_only, register_heuristics, vector
from dualplan.models.sampled import sampled_states
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy, PolicyCode, require_policy_of
from dualplan.policies.saved import Parts, register_recognised, saved_as

# states at which a function is tried out, and how far its answers may differ by rounding
FEWEST_PROBES = 11
PROBE_TOLERANCE = 1e-9
STATES_AT_ONCE = 65_536  # of a table, asked together

AnyPolicy = Policy | Callable[[Ints], Any]  # or a plain function of the state

# the tables of policies, which take long to make, and the policies that have none
_tables: WeakKeyDictionary[Policy, TablePolicy] = WeakKeyDictionary()
_without_tables: WeakSet[Policy] = WeakSet()


@saved_as("table")
class TablePolicy(Policy):
    """One row for each state of a bounded box, in the order of `Box.index`: actions, or
    probabilities of actions.
    """

    def __init__(self, model: Model, table: ArrayLike, *, name: str = "table") -> None:
        rows = np.asarray(table)
        expected = (model.box.count, len(model.actions))
        if rows.shape not in (expected, expected[:1]):
            raise PolicyError(
                f"policy {name!r}: the table has shape {rows.shape}; expected {expected} or "
                f"{expected[:1]}."
            )
        self.table = rows
        head = np.concatenate([model.box.lower, model.box.strides])
        if rows.ndim == 1:
            if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= expected[1]:
                raise PolicyError(
                    f"policy {name!r}: a table of actions holds integers from 0 to "
                    f"{expected[1] - 1}."
                )
            code = PolicyCode(
                np.concatenate([head, rows.astype(np.int64)]), np.zeros(0), action_rule
            )
        else:
            _check_rows(model, rows, name)
            code = PolicyCode(head, rows.astype(np.float64).ravel(), table_rule)
        super().__init__(model, name, code)

    def to_parts(self) -> Parts:
        """The table."""
        return Parts(arrays={"table": self.table})

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> TablePolicy:
        """From the table."""
        return cls(model, parts.arrays["table"], name=parts.name)


def _check_rows(model: Model, rows: Floats, name: str) -> None:
    sums = rows.sum(axis=1)
    bad = np.flatnonzero((np.abs(sums - 1) > 1e-9) | (rows < 0).any(axis=1) | ~np.isfinite(sums))
    if bad.size:
        x = model.box.state(int(bad[0]))
        raise PolicyError(
            f"policy {name!r} at state {vector(x)} gives probabilities that sum to "
            f"{sums[bad[0]]:.9g} or lie outside [0, 1]; each row must be a distribution."
        )


class FunctionPolicy(Policy):
    """A plain function of the state: returns an action, or a probability for each action.

    It is compiled if it can be; otherwise it is called in Python, which is slow but works for
    anything that maps a state to probabilities. A function that takes an array of states, one a
    row, and returns as many actions or rows of probabilities, is asked for many states at once:
    `batched` says whether it is one. By default that is found out: its answers for a few states
    together must be those that it gives for each.
    """

    def __init__(
        self,
        model: Model,
        function: Callable[[Ints], Any],
        *,
        name: str | None = None,
        batched: bool | None = None,
    ) -> None:
        self.function = function
        if name is not None:
            label = name
        else:
            label = str(getattr(function, "__name__", "function"))
        super().__init__(model, label, None)
        self._alone = batched is not True and self._answers_alone(batched)
        kernel = None
        if self._alone and not isinstance(model, SimulatorModel):
            kernel = _compile(function)
        if kernel is not None:
            self.code = PolicyCode(np.zeros(0, np.int64), np.zeros(0), kernel)
        if batched is None and self._alone:
            self.batched = kernel is None and self._answers_together()
        else:
            self.batched = not self._alone

    def _answers_alone(self, batched: bool | None) -> bool:
        """Whether the function takes one state; if it takes neither one nor an array of one, what
        it says of one is raised.
        """
        try:
            self._row(self.model.start)
        except PolicyError:
            if batched is False:
                raise
            try:
                self._rows(self.model.start[None])
            except PolicyError:
                pass
            else:
                return False
            raise
        return True

    def _answers_together(self) -> bool:
        """Whether the function says the same of several states together as of each."""
        states = self._tried
        try:
            alone = np.array([self._row(x) for x in states])
            return bool(np.allclose(self._rows(states), alone, rtol=0, atol=PROBE_TOLERANCE))
        except PolicyError:
            return False

    @cached_property
    def _tried(self) -> Ints:
        """States at which the function is tried out; as many as nothing else has of."""
        count = FEWEST_PROBES
        while count in (self.model.box.dim, len(self.model.actions)):
            count += 1
        if isinstance(self.model, SimulatorModel):
            return _simulated_states(self.model, count)
        return np.array(list(sampled_states(self.model, count, FIXED_SEED)))

    def _defining_parts(self) -> tuple[Any, ...]:
        if self.code is not None:
            return (self.function,)
        # what it refers to may be objects of which nothing can be told but what they answer
        return (self.function, self.rows(self._tried))

    def probabilities(self, x: Ints) -> Floats:
        """The function's answer as probabilities."""
        if self.code is not None:
            return super().probabilities(x)
        if self._alone:
            return self._row(x)
        return np.asarray(self._rows(x[None])[0])

    def rows(self, states: Ints) -> Floats:
        """In one call, where the function takes an array of states."""
        if self.code is not None or not self.batched:
            return super().rows(states)
        return self._rows(states)

    def _row(self, x: Ints) -> Floats:
        actions = len(self.model.actions)
        answer = self._answer(x, x)
        if answer.ndim == 0:
            if answer.dtype.kind not in "iu" or not 0 <= answer < actions:
                raise PolicyError(
                    f"policy {self.name!r} at state {vector(x)} gives {answer!r}; actions are "
                    f"numbered 0 to {actions - 1}."
                )
            row = np.zeros(actions)
            row[int(answer)] = 1.0
            return row
        if answer.shape != (actions,):
            raise PolicyError(
                f"policy {self.name!r} at state {vector(x)} gives {answer.size} numbers for "
                f"{actions} actions."
            )
        return np.asarray(answer, np.float64)

    def _rows(self, states: Ints) -> Floats:
        count = len(states)
        actions = len(self.model.actions)
        answer = self._answer(states, states[0])
        if answer.shape == (count, actions):
            return np.asarray(answer, np.float64)
        if answer.shape != (count,):
            raise PolicyError(
                f"policy {self.name!r} gives an array of shape {answer.shape} for {count} states; "
                f"it must give {count} actions, or {count} rows of {actions} probabilities."
            )
        wrong = np.flatnonzero((answer < 0) | (answer >= actions))
        if answer.dtype.kind not in "iu" or wrong.size:
            k = int(wrong[0]) if wrong.size else 0
            raise PolicyError(
                f"policy {self.name!r} at state {vector(states[k])} gives {answer[k]!r}; actions "
                f"are numbered 0 to {actions - 1}."
            )
        rows = np.zeros((count, actions))
        rows[np.arange(count), answer] = 1.0
        return rows

    def _answer(self, given: Ints, x: Ints) -> Any:
        """What the function returns, as an array; x is the state that mistakes are told at."""
        try:
            return np.asarray(self.function(read_only(given)))
        except Exception as error:
            # whatever the user's function does is reported in the user's terms
            raise PolicyError(
                f"policy {self.name!r} at state {vector(x)} raised {type(error).__name__}: {error}."
            ) from error


def _simulated_states(model: SimulatorModel, count: int) -> Ints:
    """States that a simulator meets under random actions, until it does what it must not, which is
    told when the policy is simulated.
    """
    rng = np.random.default_rng(FIXED_SEED)
    session = model.session()
    x = session.reset(rng)
    met: list[Ints] = []
    while len(met) < count:
        met.append(x)
        a = int(rng.choice(np.flatnonzero(model.allowed(x))))
        try:
            x, _, ended = model.checked(session.step(x, a, rng), x, a)
        except ModelError:
            break
        if ended:
            x = session.reset(rng)
    return np.array(met)


def tabulated(policy: Policy) -> Policy:
    """A policy that is no compiled function as a table, where its states are few; else itself.

    Methods that need compiled policies take it then, at their full speed, and it can be saved.
    """
    known = policy.code is not None or isinstance(policy.model, SimulatorModel)
    if known or not few_states(policy.model):
        return policy
    if policy in _without_tables:
        return policy
    try:
        return as_table(policy)
    except PolicyError:  # in a state that may never be met
        _without_tables.add(policy)
        return policy


def as_table(policy: Policy) -> TablePolicy:
    """The policy's answers in all states, of which there must be an end."""
    if policy in _tables:
        return _tables[policy]
    model = policy.model
    strides = model.box.strides  # raises if the states cannot be numbered
    count = int(strides[0] * (model.box.upper[0] - model.box.lower[0] + 1))
    rows = [
        policy.rows(model.box.states(np.arange(first, min(first + STATES_AT_ONCE, count))))
        for first in range(0, count, STATES_AT_ONCE)
    ]
    _tables[policy] = TablePolicy(model, _as_actions(np.concatenate(rows)), name=policy.name)
    return _tables[policy]


def _as_actions(rows: Floats) -> Any:
    """The numbers of the actions, where each state has one."""
    best = rows.argmax(axis=1)
    sure = (rows == 0) | (rows == 1)
    if sure.all() and (rows.sum(axis=1) == 1).all():
        return best
    return rows


def _compile(function: Callable[[Ints], Any]) -> Kernel | None:
    """The function as a kernel, or None where Numba cannot."""
    try:
        compiled = user_function(function, (READ_ONLY_INTS,))
    except Exception:
        # Numba says in many ways that it does not know something, AttributeError among them; what
        # is wrong in the function itself was met when it was called in Python
        return None
    result = next(iter(compiled.overloads.values())).signature.return_type
    if isinstance(result, numba.types.Integer):
        return _single_action(compiled)
    if hasattr(result, "dtype"):
        return _distribution(compiled)
    return None


@made_once
def _single_action(user: Any) -> Kernel:
    @user_kernel(ACT_SIGNATURE)
    def act(ints, floats, x, out):  # type: ignore[no-untyped-def]
        out[:] = 0.0
        a = user(x)
        if 0 <= a < out.size:  # otherwise the row sums to 0, which the loops report
            out[a] = 1.0

    return act


@made_once
def _distribution(user: Any) -> Kernel:
    @user_kernel(ACT_SIGNATURE)
    def act(ints, floats, x, out):  # type: ignore[no-untyped-def]
        row = user(x)
        for a in range(out.size):
            if len(row) == out.size:
                out[a] = row[a]
            else:
                out[a] = np.nan

    return act


def as_policy(model: Model, given: AnyPolicy) -> Policy:
    """A policy of the model as it is, or a plain function of the state; one that cannot be compiled
    as a table where states are few.
    """
    if isinstance(given, Policy) or not callable(given):
        require_policy_of(model, given)
        return given
    return tabulated(FunctionPolicy(model, given))


def random_policy(model: Model) -> Policy:
    """Every allowed action equally likely."""
    if isinstance(model, SimulatorModel):
        return FunctionPolicy(
            model, lambda x: model.allowed(x) / model.allowed(x).sum(), name="random"
        )
    code = model.code
    return Policy(model, "random", PolicyCode(code.ints, code.floats, _uniform(code.allowed)))


@made_once
def _uniform(allowed: Kernel) -> Kernel:
    """One rule for each function that says what is allowed, so that what closes over it is compiled
    once.
    """
    may = allowed.compiled  # the fingerprint of the policy names its kind

    @user_kernel(ACT_SIGNATURE)
    def act(ints, floats, x, out):  # type: ignore[no-untyped-def]
        total = 0
        for a in range(out.size):
            out[a] = may(ints, floats, x, a)
            total += out[a]
        for a in range(out.size):
            out[a] /= total

    return act


register_heuristics(Model, {"random": random_policy})


def _as_random(policy: Policy) -> Parts | None:
    if policy.digest == random_policy(policy.model).digest:
        return Parts()
    return None


register_recognised("random", _as_random, lambda model, _: random_policy(model))
