"""Features written as plain functions.

    def row(x, a, indices, values): ...   # which features are positive at (x, a)
    def draw(j, u, x): ...                # a pair from feature j

`row` writes the numbers of the features that are positive at the pair to `indices` and their
densities to `values`, each once and in any order, and returns how many; so a set of many features
costs no more than those that are there. Both arrays have `widest` places. `draw` writes a state to
x and returns the action; u holds `uniforms` independent numbers, uniform on [0, 1), and is all the
chance there is.

The functions are compiled with Numba: numbers, arrays, tuples, loops and conditions; constants and
arrays may come from outside, and are taken as they are at that time. x in `row` and u must not be
changed.

A set is checked when it is made: draws must lie in the box, at allowed actions, where the feature's
density is positive; densities of actions that are not allowed must be 0. Where the states are few,
densities must sum to 1 and draws follow them (a chi-square test that errs about once in 10¹²), and
the expected losses are sums. On larger models losses are estimated, and a density that does not sum
to 1, or is not the law of the draws, makes wrong numbers that nothing here can find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
import scipy.special
from numba.core.errors import NumbaError

from dualplan._kernels.compiler import FLOATS, INTS, READ_ONLY_INTS, user_function
from dualplan._kernels.features import USER
from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.dual.features.compiled import UserFunctions
from dualplan.dual.features.contract import Block, Features, estimated_losses
from dualplan.models.contract import Model, read_only, vector

MOST_CHECKED_STATES = 5_000  # that are listed for a check
CHECK_DRAWS = 20_000  # for a check, of all features together
FEATURE_CHECK_SIGNIFICANCE = 1e-12
_UNIFORMS = numba.types.Array(numba.float64, 1, "C", readonly=True)
_SIGNATURES = {
    "row": (READ_ONLY_INTS, numba.int64, INTS, FLOATS),
    "draw": (numba.int64, _UNIFORMS, INTS),
}


def user_defined(
    model: Model,
    row: Callable[..., int],
    draw: Callable[..., int],
    count: int,
    *,
    widest: int | None = None,
    uniforms: int | None = None,
    names: Sequence[str] | None = None,
) -> Features:
    """`count` features from `row` and `draw`, of which at most `widest` are positive at a pair
    (all, if not given).

    A draw has `uniforms` numbers, by default one for each coordinate and one more.
    """
    if widest is None:
        most = count
    else:
        most = widest
    if uniforms is None:
        numbers = model.box.dim + 1
    else:
        numbers = uniforms
    if not all(map(is_whole, (most, count, numbers))) or not 1 <= most <= count or numbers < 0:
        raise InputError(
            f"user-defined features need 1 <= widest <= count and uniforms >= 0, got {most} and "
            f"{count}."
        )
    if not callable(draw):
        raise InputError(
            "a density without a draw is no feature, as constraints are drawn from features; give "
            "`draw`."
        )
    if names is None:
        labels = tuple(f"user {j}" for j in range(count))
    else:
        labels = tuple(names)
    if len(labels) != count:
        raise InputError(f"{count} user-defined features need as many names, got {len(labels)}.")
    functions = UserFunctions(_compiled("row", row), _compiled("draw", draw))
    head = [
        count,
        most,
        numbers,
        model.box.dim,
        len(model.actions),
        *model.box.lower,
        *model.box.upper,
    ]
    unknown = np.full(count, np.nan)
    none = np.zeros(0)
    block = Block(
        USER, np.array(head, np.int64), none, labels, most, unknown, unknown, user=(functions,)
    )
    features = Features(model, [block])
    listed = model.box.count is not None and model.box.count <= MOST_CHECKED_STATES
    density, losses = _listed(features) if listed else (None, None)
    _check_draws(features, density)
    if losses is None:
        return Features(model, [estimated_losses(model, block)])
    return Features(model, [replace(block, losses=losses, errors=np.zeros(count))])


def _compiled(word: str, function: Callable[..., Any]) -> Any:
    """The function as machine code."""
    plain = getattr(function, "py_func", function)
    try:
        compiled = user_function(plain, _SIGNATURES[word])
    except NumbaError as error:
        reason = next(
            (line.strip() for line in str(error).splitlines()[1:] if line.strip()), str(error)
        )
        raise InputError(
            f"`{word}` of user-defined features uses something that cannot be compiled to machine "
            f"code: {reason} Keep to numbers, arrays, tuples, loops and conditions."
        ) from error
    result = compiled.nopython_signatures[0].return_type
    if not isinstance(result, numba.types.Integer):
        raise InputError(
            f"`{word}` of user-defined features must return an integer; it returns {result}."
        )
    return compiled


def _look_up(features: Features, x: Ints, a: int) -> tuple[Ints, Floats]:
    """One row, where mistakes can be named."""
    size = features.widest
    where = f"`row` at x={vector(x)}, a={a}"
    indices = np.full(size, -1)
    values = np.full(size, np.nan)
    functions = features.user[0]
    if not isinstance(functions, UserFunctions):
        raise InputError("these features are not functions of the user.")
    try:
        count = functions.row(read_only(x), a, indices, values)
    except Exception as error:  # whatever the user's function does is reported in the user's terms
        raise InputError(
            f"{where} raised {type(error).__name__}: {error}; rows have {size} places."
        ) from error
    if not 0 <= count <= size:
        raise InputError(f"{where} returns {count}, not a number of features from 0 to {size}.")
    indices = indices[:count]
    values = values[:count]
    if not ((indices >= 0) & (indices < len(features))).all() or np.unique(indices).size != count:
        raise InputError(
            f"{where} must name features 0 to {len(features) - 1}, each once; it names "
            f"{vector(indices)}."
        )
    wrong = np.flatnonzero(~((values >= 0) & (values < np.inf)))
    if wrong.size:
        name = features.names[indices[wrong[0]]]
        raise InputError(f"{where} gives feature {name!r} the density {values[wrong[0]]:.6g}.")
    model = features.model
    code = features.model.code
    if (values > 0).any() and not code.allowed(code.ints, code.floats, x, a):
        raise InputError(
            f"{where} gives weight to an action that {model.name!r} does not allow there."
        )
    return indices, values


def _listed(features: Features) -> tuple[sp.csc_array, Floats]:
    """Densities at all pairs x·A + a, which must sum to 1, and the expected losses."""
    model = features.model
    code = features.model.code
    states = int(model.box.count or 0)
    actions = len(model.actions)
    rows = []
    losses = np.zeros(len(features))
    for i in range(states):
        x = model.box.state(i)
        for a in range(actions):
            indices, values = _look_up(features, x, a)
            if values.size and values.max() > 0:
                rows.append((np.full(indices.size, i * actions + a), indices, values))
                losses[indices] += values * code.loss(code.ints, code.floats, x, a)
    if not rows:
        raise InputError("`row` of user-defined features says that all densities are 0.")
    pairs, indices, values = (np.concatenate(part) for part in zip(*rows, strict=True))
    density = sp.csc_array((values, (pairs, indices)), shape=(states * actions, len(features)))
    sums: Floats = np.asarray(density.sum(axis=0)).ravel()
    wrong = np.flatnonzero(np.abs(sums - 1) > 1e-9)
    if wrong.size:
        name = features.names[wrong[0]]
        raise InputError(f"feature {name!r} sums to {sums[wrong[0]]:.9g} over all pairs, not 1.")
    return density, losses


def _check_draws(features: Features, density: sp.csc_array | None) -> None:
    """Draws are pairs at which the feature is positive.

    Where densities are listed, draws follow them.
    """
    model = features.model
    code = features.model.code
    each = min(max(CHECK_DRAWS // len(features), 20), 1_000)
    for j, name in enumerate(features.names):
        states, actions = features.draw(j, each)
        for x, a in zip(states, actions, strict=True):
            where = f"`draw` of feature {name!r} gives x={vector(x)}, a={a}"
            if not code.allowed(code.ints, code.floats, x, a):
                raise InputError(f"{where}, an action that {model.name!r} does not allow there.")
            indices, values = [_look_up(features, x, b) for b in range(len(model.actions))][a]
            if not values[indices == j].sum() > 0:
                raise InputError(f"{where}, where `row` says that its density is 0.")
        if density is not None:
            pairs = (states - model.box.lower) @ model.box.strides * len(model.actions) + actions
            expected = each * density[:, [j]].toarray().ravel()
            if (
                _tail(np.bincount(pairs, minlength=expected.size), expected)
                < FEATURE_CHECK_SIGNIFICANCE
            ):
                raise InputError(
                    f"`draw` of feature {name!r} does not follow the densities of `row` ({each} "
                    "draws)."
                )


def _tail(seen: Ints, expected: Floats) -> float:
    """The p-value of Pearson's test; places that expect fewer than 5 count as one."""
    common = expected >= 5
    observed = np.append(seen[common], seen[~common].sum())
    mean = np.append(expected[common], expected[~common].sum())
    used = mean >= 5
    statistic = float(((observed[used] - mean[used]) ** 2 / mean[used]).sum())
    if used.sum() > 1:
        return float(scipy.special.chdtrc(used.sum() - 1, statistic))
    return 1.0
