"""Policies from a table, from a function of the state, and the uniformly random one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    COMPILATION_ERRORS,
    READ_ONLY_INTS,
    Kernel,
    made_once,
    user_kernel,
)
from dualplan._kernels.policies import action_rule, table_rule
from dualplan.core.errors import PolicyError
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.models.contract import Model, read_only, register_heuristics, vector
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy, PolicyCode
from dualplan.policies.saved import Parts, register_recognised, saved_as


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

    It is compiled if it can be; otherwise it is called in Python, state by state, which is slow but
    works for anything that maps a state to probabilities.
    """

    def __init__(
        self, model: Model, function: Callable[[Ints], Any], *, name: str | None = None
    ) -> None:
        self.function = function
        if name is not None:
            label = name
        else:
            label = str(getattr(function, "__name__", "function"))
        super().__init__(model, label, None)
        self._row(model.start)
        if not isinstance(model, SimulatorModel):
            kernel = _compile(function)
            if kernel is None:
                self.code = None
            else:
                self.code = PolicyCode(np.zeros(0, np.int64), np.zeros(0), kernel)

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self.function,)

    def probabilities(self, x: Ints) -> Floats:
        """The function's answer as probabilities."""
        if self.code is None:
            return self._row(x)
        return super().probabilities(x)

    def _row(self, x: Ints) -> Floats:
        actions = len(self.model.actions)
        try:
            answer = np.asarray(self.function(read_only(x)))
        except Exception as error:
            # whatever the user's function does is reported in the user's terms
            raise PolicyError(
                f"policy {self.name!r} at state {vector(x)} raised {type(error).__name__}: {error}."
            ) from error
        if answer.ndim == 0:
            if answer.dtype.kind not in "iu" or not 0 <= answer < actions:
                raise PolicyError(
                    f"policy {self.name!r} at state {vector(x)} gives {answer!r}; actions are "
                    f"numbered 0 to {actions - 1}."
                )
            return np.asarray(np.eye(actions)[int(answer)])
        if answer.shape != (actions,):
            raise PolicyError(
                f"policy {self.name!r} at state {vector(x)} gives {answer.size} numbers for "
                f"{actions} actions."
            )
        return answer.astype(np.float64)


def _compile(function: Callable[[Ints], Any]) -> Kernel | None:
    """The function as a kernel, or None where Numba cannot."""
    try:
        compiled: Any = numba.njit(nogil=True, boundscheck=True)(function)
        compiled.compile((READ_ONLY_INTS,))
        compiled.disable_compile()
    except COMPILATION_ERRORS:
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
