"""The compiled look-up and draw of a feature set.

Sets of built-in kinds share one pair of functions, which is cached. A set with functions of the user has a pair that
closes over them; sets with the same functions share it. What those functions give is checked at every call: a density
that is negative or not a number, or a state outside the box, ends the call with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from dualplan._kernels.compiler import DRAW, ROW, Kernel, made_once, user_kernel
from dualplan._kernels.features import (
    MIXTURES,
    USER,
    block_draw,
    block_of,
    block_row,
    draw_of,
    mixed_set,
    mixtures_part,
    mixtures_row,
    record,
    row_of,
    user_slot,
)
from dualplan._kernels.philox import uniform
from dualplan.errors import InputError

_inner = numba.njit(nogil=True, error_model="numpy")


@dataclass(frozen=True, eq=False)
class UserFunctions:
    """The user's look-up and draw, compiled."""

    row: Any
    draw: Any

    @property
    def sources(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The Python functions."""
        return self.row.py_func, self.draw.py_func


def compiled_pair(user: tuple[UserFunctions, ...]) -> tuple[Kernel, Kernel]:
    """Look-up and draw of all sets that have these functions of the user."""
    if not user:
        return row_of, draw_of
    return _row(*(u.row for u in user)), _draw(*(u.draw for u in user))


# One function calls the next, since their types differ.


@_inner
def _no_row(slot, x, a, indices, values):  # type: ignore[no-untyped-def]
    return np.int64(-1)


@_inner
def _no_draw(slot, j, u, x):  # type: ignore[no-untyped-def]
    return np.int64(-1)


def _chosen_row(functions: Sequence[Any], place: int = 0) -> Any:
    if not functions:
        return _no_row
    first, others = functions[0], _chosen_row(functions[1:], place + 1)

    @_inner
    def chosen(slot, x, a, indices, values):  # type: ignore[no-untyped-def]
        if slot == place:
            return np.int64(first(x, a, indices, values))
        return others(slot, x, a, indices, values)

    return chosen


def _chosen_draw(functions: Sequence[Any], place: int = 0) -> Any:
    if not functions:
        return _no_draw
    first, others = functions[0], _chosen_draw(functions[1:], place + 1)

    @_inner
    def chosen(slot, j, u, x):  # type: ignore[no-untyped-def]
        if slot == place:
            return np.int64(first(j, u, x))
        return others(slot, j, u, x)

    return chosen


@_inner
def _checked_row(features, widest, first, indices, values, count, number):  # type: ignore[no-untyped-def]
    """Number the features in the whole set, and drop those that are 0."""
    if not 0 <= number <= widest:
        raise InputError("`row` of user-defined features must return how many it names, at most `widest`.")
    end = count
    for k in range(count, count + number):
        j, value = indices[k], values[k]
        if not 0 <= j < features:
            raise InputError("`row` of user-defined features names a feature that is not there.")
        if not 0.0 <= value < np.inf:
            raise InputError("`row` of user-defined features gives a density that is negative or not finite.")
        if value > 0.0:
            indices[end], values[end] = first + j, value
            end += 1
    return end


@_inner
def _check_pair(ints, o, x, a):  # type: ignore[no-untyped-def]
    dim, actions = ints[o + 3], ints[o + 4]
    inside = 0 <= a < actions
    for i in range(dim):
        inside = inside and ints[o + 5 + i] <= x[i] <= ints[o + 5 + dim + i]
    if not inside:
        raise InputError("`draw` of user-defined features gives a state or an action that the model does not have.")


def _any_row(functions: Sequence[Any]) -> Any:
    """`block_row` for every kind but mixtures."""
    chosen = _chosen_row(functions)

    @_inner
    def any_row(kind, slot, ints, floats, o, f, first, x, a, indices, values, count):  # type: ignore[no-untyped-def]
        if kind != USER:
            return block_row(kind, ints, floats, o, f, first, x, a, indices, values, count)
        end = count + ints[o + 1]
        values[count:end] = np.nan  # what `row` counts but does not write must not pass
        number = chosen(slot, x, a, indices[count:end], values[count:end])
        return _checked_row(ints[o], ints[o + 1], first, indices, values, count, number)

    return any_row


def _any_draw(functions: Sequence[Any]) -> Any:
    """`block_draw` for every kind but mixtures."""
    chosen = _chosen_draw(functions)

    @_inner
    def any_draw(kind, slot, ints, floats, o, f, j, rng, x):  # type: ignore[no-untyped-def]
        if kind != USER:
            return block_draw(kind, ints, floats, o, f, j, rng, x)
        u = np.empty(ints[o + 2], np.float64)
        for i in range(u.size):
            u[i] = uniform(rng)
        a = chosen(slot, j, u, x)
        _check_pair(ints, o, x, a)
        return a

    return any_draw


@made_once
def _row(*functions: Any) -> Kernel:
    any_row = _any_row(functions)

    @_inner
    def unmixed_row(ints, floats, base, x, a, indices, values):  # type: ignore[no-untyped-def]
        count = np.int64(0)
        for b in range(ints[0]):
            kind, first, o, f = record(ints, b)
            slot = base + user_slot(ints, b)
            count = any_row(kind, slot, ints, floats, o, f, first, x, a, indices, values, count)
        return count

    @user_kernel(ROW)
    def row(ints, floats, x, a, indices, values):  # type: ignore[no-untyped-def]
        count = np.int64(0)
        for b in range(ints[0]):
            kind, first, o, f = record(ints, b)
            slot = user_slot(ints, b)
            if kind == MIXTURES:
                spare = count + ints[o + 3]
                i, k = mixed_set(ints, o, f)
                number = unmixed_row(ints[i:], floats[k:], slot, x, a, indices[spare:], values[spare:])
                count = mixtures_row(ints, floats, o, f, first, indices, values, count, spare, number)
            else:
                count = any_row(kind, slot, ints, floats, o, f, first, x, a, indices, values, count)
        return count

    return row


@made_once
def _draw(*functions: Any) -> Kernel:
    any_draw = _any_draw(functions)

    @_inner
    def unmixed_draw(ints, floats, base, j, rng, x):  # type: ignore[no-untyped-def]
        b = block_of(ints, j)
        kind, first, o, f = record(ints, b)
        return any_draw(kind, base + user_slot(ints, b), ints, floats, o, f, j - first, rng, x)

    @user_kernel(DRAW)
    def draw(ints, floats, j, rng, x):  # type: ignore[no-untyped-def]
        b = block_of(ints, j)
        kind, first, o, f = record(ints, b)
        if kind == MIXTURES:
            part = mixtures_part(ints, floats, o, f, j - first, rng)
            i, k = mixed_set(ints, o, f)
            return unmixed_draw(ints[i:], floats[k:], user_slot(ints, b), part, rng, x)
        return any_draw(kind, user_slot(ints, b), ints, floats, o, f, j - first, rng, x)

    return draw
