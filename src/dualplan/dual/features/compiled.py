"""The compiled functions of a feature set.

Sets of built-in kinds share their functions, which are cached. A set with functions of the user, or
with policies that are such functions, has functions that close over them; sets with the same
functions share them. What the user's features give is checked at every call: a density that is
negative or not a number, or a state outside the box, ends the call with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from dualplan._kernels.choices import (
    FIXED_CHOICE,
    OTHER_CHOICE,
    choice_count,
    choice_kind,
    choice_places,
    choice_value,
    draw_choice,
)
from dualplan._kernels.compiler import (
    DRAW_SIGNATURE,
    NEAR_SIGNATURE,
    Kernel,
    made_once,
    user_kernel,
)
from dualplan._kernels.features import (
    MIXTURES,
    USER,
    Row,
    Spot,
    anchor_of,
    block_at,
    block_of,
    chances_of,
    choice_of_feature,
    choices_at,
    draw_of,
    has_choices,
    mixed_set,
    mixtures_part,
    mixtures_row,
    near_in_block,
    near_of,
    rescale,
    rule_of_choice,
    spare_row,
    state_in_block,
    user_slot,
)
from dualplan._kernels.layouts import Arrays
from dualplan._kernels.philox import uniform
from dualplan.core.errors import InputError

_inner = numba.njit(nogil=True, error_model="numpy")
# Functions of the user may allocate arrays, so the code around them counts references; what hands
# arrays on to it must count them too, which helpers of kernels do not.
_block_at = _inner(block_at.py_func)
_mixed_set = _inner(mixed_set.py_func)
_spare_row = _inner(spare_row.py_func)


@dataclass(frozen=True, eq=False)
class UserFunctions:
    """The user's look-up and draw, compiled."""

    row: Any
    draw: Any

    @property
    def sources(self) -> tuple[Callable[..., Any], ...]:
        """The Python functions."""
        return self.row.py_func, self.draw.py_func


@dataclass(frozen=True, eq=False)
class UserRule:
    """The compiled rule of a policy that is a choice of the action, and the policy's
    fingerprint.
    """

    act: Kernel
    digest: str

    @property
    def sources(self) -> tuple[str, ...]:
        """What tells it from others."""
        return (self.digest,)


def compiled_set(
    user: tuple[UserFunctions | UserRule, ...], *, others: bool, mixed: bool
) -> tuple[Kernel, Kernel, Kernel]:
    """Draw, anchor and near of all sets that have these functions of the user, with `others` of
    built-in kinds or not.

    Functions of the user alone compile several times as fast; so do sets without mixtures.
    """
    if not user:
        return draw_of, anchor_of, near_of
    rows = tuple(u.row if isinstance(u, UserFunctions) else _no_row for u in user)
    draws = tuple(u.draw if isinstance(u, UserFunctions) else _no_draw for u in user)
    acts = tuple(u.act if isinstance(u, UserRule) else _no_act for u in user)
    return _draw(draws, acts, others, mixed), anchor_of, _near(rows, acts, others, mixed)


# One function calls the next, since their types differ.


@_inner
def _no_row(x, a, indices, values):  # type: ignore[no-untyped-def]
    return np.int64(-1)


@_inner
def _no_draw(j, u, x):  # type: ignore[no-untyped-def]
    return np.int64(-1)


@_inner
def _no_act(ints, floats, x, out):  # type: ignore[no-untyped-def]
    out[:] = np.nan


@_inner
def _last_row(slot, x, a, indices, values):  # type: ignore[no-untyped-def]
    return np.int64(-1)


@_inner
def _last_draw(slot, j, u, x):  # type: ignore[no-untyped-def]
    return np.int64(-1)


@_inner
def _last_act(slot, ints, floats, x, out):  # type: ignore[no-untyped-def]
    out[:] = np.nan


def chosen_row(functions: Sequence[Any], place: int = 0) -> Any:
    """The row of the user's function of a number; -1 if there is none."""
    if not functions:
        return _last_row
    first = functions[0]
    others = chosen_row(functions[1:], place + 1)

    @_inner
    def chosen(slot, x, a, indices, values):  # type: ignore[no-untyped-def]
        if slot == place:
            return np.int64(first(x, a, indices, values))
        return others(slot, x, a, indices, values)

    return chosen


def _chosen_draw(functions: Sequence[Any], place: int = 0) -> Any:
    if not functions:
        return _last_draw
    first = functions[0]
    others = _chosen_draw(functions[1:], place + 1)

    @_inner
    def chosen(slot, j, u, x):  # type: ignore[no-untyped-def]
        if slot == place:
            return np.int64(first(j, u, x))
        return others(slot, j, u, x)

    return chosen


def _chosen_act(functions: Sequence[Any], place: int = 0) -> Any:
    if not functions:
        return _last_act
    first = getattr(functions[0], "address", functions[0])
    others = _chosen_act(functions[1:], place + 1)

    @_inner
    def chosen(slot, ints, floats, x, out):  # type: ignore[no-untyped-def]
        if slot == place:
            first(ints, floats, x, out)
        else:
            others(slot, ints, floats, x, out)

    return chosen


@_inner
def _checked_row(block, row, count, number):  # type: ignore[no-untyped-def]
    """Number the features in the whole set, and drop those that are 0."""
    features = block.ints[block.o]
    widest = block.ints[block.o + 1]
    indices = row.indices
    values = row.values
    if not 0 <= number <= widest:
        raise InputError(
            "`row` of user-defined features must return how many it names, at most `widest`."
        )
    end = count
    for k in range(count, count + number):
        j = indices[k]
        value = values[k]
        if not 0 <= j < features:
            raise InputError("`row` of user-defined features names a feature that is not there.")
        if not 0.0 <= value < np.inf:
            raise InputError(
                "`row` of user-defined features gives a density that is negative or not finite."
            )
        if value > 0.0:
            indices[end] = block.first + j
            values[end] = value
            end += 1
    return end


@_inner
def _check_pair(ints, o, x, a):  # type: ignore[no-untyped-def]
    dim = ints[o + 3]
    actions = ints[o + 4]
    inside = 0 <= a < actions
    for i in range(dim):
        inside = inside and ints[o + 5 + i] <= x[i] <= ints[o + 5 + dim + i]
    if not inside:
        raise InputError(
            "`draw` of user-defined features gives a state or an action that the model does not "
            "have."
        )


def _any_choice(acts: Sequence[Any]) -> Any:
    """The probabilities of all actions under choice k, whatever its kind."""
    chosen = _chosen_act(acts)
    write_rule = rule_of_choice.address

    @_inner
    def any_choice(slot, block, k, x, out):  # type: ignore[no-untyped-def]
        ints = block.ints
        c = choices_at(block)
        kind = choice_kind(ints, c, k)
        if kind == FIXED_CHOICE:
            out[:] = 0.0
            out[choice_value(ints, c, k)] = 1.0
            return
        i, j, p, q = choice_places(ints, c, k)
        own_ints = ints[block.o + i : block.o + j]
        own_floats = block.floats[block.f + p : block.f + q]
        if kind == OTHER_CHOICE:
            chosen(slot + choice_value(ints, c, k), own_ints, own_floats, x, out)
        else:
            write_rule(kind, own_ints, own_floats, x, out)

    return any_choice


def _user_near(rows: Sequence[Any]) -> Any:
    """`choose_and_near` for functions of the user."""
    chosen = chosen_row(rows)

    @_inner
    def user_near(slot, block, spot, row, count, work):  # type: ignore[no-untyped-def]
        indices = row.indices
        values = row.values
        end = count + block.ints[block.o + 1]
        values[count:end] = np.nan  # what `row` counts but does not write must not pass
        number = chosen(slot, spot.x, spot.a, indices[count:end], values[count:end])
        end = _checked_row(block, row, count, number)
        if spot.m != 0.0:
            rescale(values, count, end, -spot.m)
        return end

    return user_near


def _any_near(rows: Sequence[Any], acts: Sequence[Any]) -> Any:
    """`choose_and_near` for every kind but mixtures."""
    user_near = _user_near(rows)
    choice = _any_choice(acts)
    block_near = near_in_block.address

    @_inner
    def any_near(slot, block, spot, row, count, work):  # type: ignore[no-untyped-def]
        if block.kind == USER:
            return user_near(slot, block, spot, row, count, work)
        if has_choices(block.kind) and spot.changed >= 0:
            i, _ = chances_of(block)
            actions = block.ints[block.o + 1]
            for k in range(choice_count(block.ints, choices_at(block))):
                chances = work[i + k * actions : i + (k + 1) * actions]
                choice(slot, block, k, spot.x, chances)
        return block_near(block, spot, row, count, work)

    return any_near


def _user_draw(draws: Sequence[Any]) -> Any:
    """`block_draw` for functions of the user."""
    chosen = _chosen_draw(draws)

    @_inner
    def user_draw(slot, block, j, rng, x, work):  # type: ignore[no-untyped-def]
        u = np.empty(block.ints[block.o + 2], np.float64)
        for i in range(u.size):
            u[i] = uniform(rng)
        a = chosen(slot, j, u, x)
        _check_pair(block.ints, block.o, x, a)
        return a

    return user_draw


def _any_draw(draws: Sequence[Any], acts: Sequence[Any]) -> Any:
    """`block_draw` for every kind but mixtures."""
    user_draw = _user_draw(draws)
    choice = _any_choice(acts)
    block_state = state_in_block.address

    @_inner
    def any_draw(slot, block, j, rng, x, work):  # type: ignore[no-untyped-def]
        if block.kind == USER:
            return user_draw(slot, block, j, rng, x, work)
        a = block_state(block, j, rng, x)
        if a >= 0:
            return a
        c = choices_at(block)
        k = choice_of_feature(block, j)
        if choice_kind(block.ints, c, k) == FIXED_CHOICE:
            return choice_value(block.ints, c, k)
        i, _ = chances_of(block)
        out = work[i : i + block.ints[block.o + 1]]
        choice(slot, block, k, x, out)
        return draw_choice(out, rng)

    return any_draw


@made_once
def _near(rows: tuple[Any, ...], acts: tuple[Any, ...], others: bool, mixed: bool) -> Kernel:
    if others:
        any_near = _any_near(rows, acts)
    else:
        any_near = _user_near(rows)

    @_inner
    def unmixed_near(features, base, spot, row, work, w):  # type: ignore[no-untyped-def]
        count = np.int64(0)
        for b in range(features.ints[0]):
            slot = base + user_slot(features.ints, b)
            count = any_near(slot, _block_at(features, b, w), spot, row, count, work)
        return count

    @user_kernel(NEAR_SIGNATURE)
    def without(  # type: ignore[no-untyped-def]
        ints, floats, y, x, coords, changed, m, a, indices, values, work
    ):
        spot = Spot(y, x, coords, changed, m, a)
        return unmixed_near(Arrays(ints, floats), 0, spot, Row(indices, values), work, 0)

    @user_kernel(NEAR_SIGNATURE)
    def near(  # type: ignore[no-untyped-def]
        ints, floats, y, x, coords, changed, m, a, indices, values, work
    ):
        features = Arrays(ints, floats)
        spot = Spot(y, x, coords, changed, m, a)
        row = Row(indices, values)
        count = np.int64(0)
        for b in range(ints[0]):
            block = _block_at(features, b, 0)
            slot = user_slot(ints, b)
            if block.kind == MIXTURES:
                behind, spare = _spare_row(block, row, count)
                number = unmixed_near(_mixed_set(block), slot, spot, behind, work, block.w)
                count = mixtures_row(block, row, count, spare, number)
            else:
                count = any_near(slot, block, spot, row, count, work)
        return count

    if mixed:
        return near
    return without


@made_once
def _draw(draws: tuple[Any, ...], acts: tuple[Any, ...], others: bool, mixed: bool) -> Kernel:
    if others:
        any_draw = _any_draw(draws, acts)
    else:
        any_draw = _user_draw(draws)

    @_inner
    def unmixed_draw(features, base, j, rng, x, work, w):  # type: ignore[no-untyped-def]
        b = block_of(features.ints, j)
        block = _block_at(features, b, w)
        slot = base + user_slot(features.ints, b)
        return any_draw(slot, block, j - block.first, rng, x, work)

    @user_kernel(DRAW_SIGNATURE)
    def without(ints, floats, j, rng, x, work):  # type: ignore[no-untyped-def]
        return unmixed_draw(Arrays(ints, floats), 0, j, rng, x, work, 0)

    @user_kernel(DRAW_SIGNATURE)
    def draw(ints, floats, j, rng, x, work):  # type: ignore[no-untyped-def]
        b = block_of(ints, j)
        block = _block_at(Arrays(ints, floats), b, 0)
        slot = user_slot(ints, b)
        if block.kind == MIXTURES:
            part = mixtures_part(block, j - block.first, rng)
            return unmixed_draw(_mixed_set(block), slot, part, rng, x, work, block.w)
        return any_draw(slot, block, j - block.first, rng, x, work)

    if mixed:
        return draw
    return without
