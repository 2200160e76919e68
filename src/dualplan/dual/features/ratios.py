"""Features as ratios against the occupancy of a simulated reference policy.

Let μ be the occupancy of a reference policy π_ref, which nobody knows, but from which pairs come by
simulation. A candidate occupancy is

    u(x,a) = M·μ(x,a)·g(x,a),        g = Σ_j θ_j r_j(x,a),

with M its total mass. The ratios r_j are looked up, a few at a pair; they need no density, no
normalisation and no predecessors. u stands for the policy

    π(a|x) ∝ π_ref(a|x)·[g(x,a)]₊,

and where that is 0 everywhere for the reference. Families:

portfolio    r_{t,k}(x,a) = π_k(a|x)/π_ref(a|x)·1{x in cell t} for policies π_k and cells of a
             partition: within cell t,
             u has the states of the reference and the choices of π_k. π_k = π_ref gives the
             indicator of the cell.
user_ratios  functions of yours

A ratio exists where π_ref(a|x) = 0 only if π_k(a|x) = 0 too: the reference must explore
(`policies.exploring`). That is checked in every state at which a ratio is looked up.

The compiled form is in two flat arrays. ints: blocks, ratios, places a row needs, actions, where
the bank of policies begins; for each block its kind, first ratio, policies, the number of its
function of the user and where its fields begin; the fields (portfolio: numbers of policies in the
bank, the partition; user: places, ratios). floats: those of the bank. The bank
(`policies/mixed.py`) begins with the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp

from dualplan._kernels import ratios as kernels
from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    COMPILATION_ERRORS,
    FLOATS,
    INTS,
    READ_ONLY_INTS,
    ROW_SIGNATURE,
    Data,
    Kernel,
    made_once,
    user_function,
    user_kernel,
)
from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError, MissingError
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.dual.features.compiled import chosen_row
from dualplan.models.contract import Model, read_only, require_made_for, vector
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy, PolicyCode, require_policy
from dualplan.policies.mixed import bank
from dualplan.policies.saved import Parts, inner, outer, saved_as
from dualplan.policies.tables import AnyPolicy, as_policy
from dualplan.values.partitions import USER_FUNCTION_ERRORS, Partition, partition_of, whole

PORTFOLIO_RATIOS, USER_RATIOS = range(2)
RATIOS_HEADER_SIZE = 5
RATIOS_RECORD_SIZE = 5
# of the sum of absolute terms: what rounding leaves where terms cancel is no decision
ROUNDING_SHARE = 1e-12
UNSUPPORTED_ROW = -1  # less the action: what a row returns where the reference lacks support
UNDEFINED_ROW = -(2**62)  # what it returns where the function of a partition is not a number
UNSET_COUNT = 2**62  # a count that was not written, since a function of the user raised
UNSUPPORTED_FAULT = (
    "in a state that a policy of ratios came to, the reference never chooses an action that its "
    "portfolio does, or the function of a partition is not a number; let the reference explore "
    "(policies.exploring)"
)  # no full stop: simulation puts the state before it and one after it
_inner = numba.njit(nogil=True, error_model="numpy")


@dataclass(frozen=True, eq=False)
class Portfolio:
    """π_k/π_ref on the cells of a partition."""

    policies: tuple[Policy, ...]
    partition: Partition
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.partition) * len(self.policies):
            raise InputError("a portfolio has a name for each policy on each cell.")

    @property
    def widest(self) -> int:
        """The most ratios that are not 0 at a pair."""
        return len(self.policies)


@dataclass(frozen=True, eq=False)
class UserRatios:
    """Ratios that a function of the user writes."""

    function: Callable[..., int]
    names: tuple[str, ...]
    widest: int
    compiled: Any


Block = Portfolio | UserRatios


@dataclass(frozen=True, eq=False)
class RatioCode(Data):
    """The compiled look-up, the compiled policy, and the arrays they read."""

    ints: Ints
    floats: Floats
    row: Kernel
    act: Kernel


class Ratios:
    """Ratios against one reference policy."""

    def __init__(self, reference: Policy, blocks: Sequence[Block]) -> None:
        require_policy(reference)
        if not blocks or not all(block.names for block in blocks):
            raise InputError("a set of ratios needs at least one.")
        self.model: Model = reference.model
        self.reference = reference
        self.blocks = tuple(blocks)
        self.names = tuple(name for block in blocks for name in block.names)
        self.widest = sum(block.widest for block in blocks)
        self.first = np.cumsum([0, *(len(block.names) for block in blocks)])
        policies = [reference, *(p for b in blocks if isinstance(b, Portfolio) for p in b.policies)]
        # by identity: fingerprints of policies that are objects of some library tell only their
        # kind
        self.policies = list({id(policy): policy for policy in policies}.values())
        self._numbers = {id(policy): k for k, policy in enumerate(self.policies)}

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def code(self) -> RatioCode | None:
        """The compiled form, or None where the model, a policy or a function is Python only."""
        if isinstance(self.model, SimulatorModel):
            found = None
        else:
            found = bank(self.policies)
        lack = any(
            (b.partition.function is not None and b.partition.compiled is None)
            if isinstance(b, Portfolio)
            else b.compiled is None
            for b in self.blocks
        )
        if found is None or lack:
            return None
        portfolios = [b for b in self.blocks if isinstance(b, Portfolio)]
        cutting = [
            _levels(p.partition.compiled, p.partition.levels)
            for p in portfolios
            if p.partition.levels
        ]
        writing = [b.compiled for b in self.blocks if isinstance(b, UserRatios)]
        ints = self._ints(found.ints)
        row = _row(found.fill, len(cutting), *cutting, *writing)
        act = _act(found.fill, len(cutting), *cutting, *writing)
        return RatioCode(ints, found.floats, row, act)

    def _ints(self, bank_ints: Ints) -> Ints:
        records = []
        fields = []
        at = RATIOS_HEADER_SIZE + RATIOS_RECORD_SIZE * len(self.blocks)
        cutting = 0
        writing = 0
        for block, first in zip(self.blocks, self.first, strict=False):
            if isinstance(block, Portfolio):
                if block.partition.levels:
                    slot = cutting
                else:
                    slot = -1
                cutting += bool(block.partition.levels)
                own = [self._numbers[id(p)] for p in block.policies]
                field = np.concatenate(
                    [own, [len(block.partition.levels)], block.partition.ints]
                ).astype(np.int64)
                records.append((PORTFOLIO_RATIOS, first, len(own), slot, at))
            else:
                field = np.array([block.widest, len(block.names)], np.int64)
                records.append((USER_RATIOS, first, 0, writing, at))
                writing += 1
            fields.append(field)
            at += field.size
        head = [len(self.blocks), len(self), self.widest, len(self.model.actions), at]
        return np.concatenate([head, np.ravel(records), *fields, bank_ints]).astype(np.int64)

    # -- look-ups ----------------------------------------------------------------------------------

    def row(self, x: ArrayLike, a: int) -> tuple[Ints, Floats]:
        """The ratios that are not 0 at (x, a), and their values there."""
        state = self.model.state(x)
        if (
            not is_whole(a)
            or not 0 <= a < len(self.model.actions)
            or not self.model.allowed(state)[a]
        ):
            raise InputError(
                f"action {a!r} is not allowed in state {vector(state)} of {self.model.name!r}."
            )
        found = self.rows(state[None, :], np.array([a], np.int64))
        return found.indices.astype(np.int64), found.data

    def rows(self, states: Ints, actions: Ints) -> sp.csr_array:
        """The ratios at pairs that the reference visits, a row for each."""
        count = len(states)
        code = self.code
        indices = np.zeros((count, self.widest), np.int64)
        values = np.zeros((count, self.widest))
        counts = np.full(count, UNSET_COUNT, np.int64)
        if code is None:
            self._python_rows(states, actions, counts, indices, values)
        else:
            self._compiled_rows(
                code, np.require(states, np.int64, ["C", "W"]), actions, counts, indices, values
            )
        kept = np.arange(self.widest) < counts[:, None]
        ends = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_array((values[kept], indices[kept], ends), shape=(count, len(self)))

    def _compiled_rows(
        self,
        code: RatioCode,
        states: Ints,
        actions: Ints,
        counts: Ints,
        indices: Ints,
        values: Floats,
    ) -> None:
        try:
            fault = kernels.rows_at(
                code.row, code.ints, code.floats, states, actions, counts, indices, values
            )
        except USER_FUNCTION_ERRORS as error:
            k = int(np.argmax(counts == UNSET_COUNT))
            raise _failed(states[k], int(actions[k]), error) from error
        if fault >= 0 and counts[fault] == UNDEFINED_ROW:
            raise InputError(
                f"the function of a partition is not a number at state {vector(states[fault])}."
            )
        if fault >= 0:
            raise self._unsupported(states[fault], UNSUPPORTED_ROW - int(counts[fault]))

    def _python_rows(
        self, states: Ints, actions: Ints, counts: Ints, indices: Ints, values: Floats
    ) -> None:
        """One look-up for each different pair."""
        pairs, where = np.unique(np.column_stack([states, actions]), axis=0, return_inverse=True)
        own_counts = np.zeros(len(pairs), np.int64)
        own_indices = np.zeros((len(pairs), self.widest), np.int64)
        own_values = np.zeros((len(pairs), self.widest))
        for k, pair in enumerate(pairs):
            found, numbers = self._python_row(pair[:-1], int(pair[-1]))
            own_counts[k] = found.size
            own_indices[k, : found.size] = found
            own_values[k, : found.size] = numbers
        places = where.ravel()
        counts[:] = own_counts[places]
        indices[:] = own_indices[places]
        values[:] = own_values[places]

    def scores(self, x: Ints, theta: Floats) -> Floats:
        """π_ref(a|x)·Σ_j θ_j r_j(x,a) of every action, in Python; 0 where only rounding is left."""
        out = np.zeros(len(self.model.actions))
        table = np.array([policy.probabilities(x) for policy in self.policies])
        for a in np.flatnonzero(table[0] > 0):
            indices, values = self._python_row(x, int(a), table)
            terms = values * theta[indices]
            if abs(terms.sum()) > ROUNDING_SHARE * np.abs(terms).sum():
                out[a] = table[0, a] * terms.sum()
            else:
                out[a] = 0.0
        return out

    def _python_row(self, x: Ints, a: int, table: Floats | None = None) -> tuple[Ints, Floats]:
        if table is None:
            table = np.array([policy.probabilities(x) for policy in self.policies])
        indices = []
        values = []
        for block, first in zip(self.blocks, self.first, strict=False):
            if isinstance(block, UserRatios):
                own, given = _written(block, x, a)
                indices += (first + own).tolist()
                values += given.tolist()
                continue
            cell = int(block.partition(x[None, :])[0])
            for k, policy in enumerate(block.policies if cell >= 0 else ()):
                law = table[self._numbers[id(policy)]]
                lacking = np.flatnonzero((table[0] == 0) & (law > 0))
                if lacking.size:
                    raise self._unsupported(x, int(lacking[0]))
                if law[a] > 0:
                    indices.append(first + cell * len(block.policies) + k)
                    values.append(law[a] / table[0, a])
        return np.array(indices, np.int64), np.array(values)

    def _unsupported(self, x: Ints, a: int) -> InputError:
        return InputError(
            f"the reference {self.reference.name!r} never chooses action {a} "
            f"({self.model.actions[a]}) in state {vector(x)}, but a policy of the portfolio does, "
            "so their ratio is infinite; let the reference explore (policies.exploring)."
        )


def _failed(x: Ints, a: int, error: Exception) -> InputError:
    return InputError(
        f"the ratios at x={vector(x)}, a={a} could not be looked up: {str(error).rstrip('.')}."
    )


def finite_weights(theta: ArrayLike, count: int) -> Floats:
    """θ, if it has a finite weight for each of `count` ratios."""
    try:
        weights = np.asarray(theta, np.float64)
    except (TypeError, ValueError):
        weights = np.full(0, np.nan)
    if weights.shape != (count,) or not np.isfinite(weights).all():
        raise InputError(f"θ has a finite weight for each of {count} ratios.")
    return weights


def _written(block: UserRatios, x: Ints, a: int) -> tuple[Ints, Floats]:
    indices = np.full(block.widest, -1, np.int64)
    values = np.full(block.widest, np.nan)
    try:
        count = block.function(read_only(x), a, indices, values)
    except USER_FUNCTION_ERRORS as error:
        raise _failed(x, a, error) from error
    good = is_whole(count) and 0 <= count <= block.widest
    if not good or not ((indices[:count] >= 0) & (indices[:count] < len(block.names))).all():
        raise InputError(
            f"the ratios at x={vector(x)}, a={a} name one that is not there, or too many."
        )
    if not np.isfinite(values[:count]).all():
        raise InputError(f"a ratio at x={vector(x)}, a={a} is not a finite number.")
    return indices[:count], values[:count]


@saved_as("ratios")
class RatioPolicy(Policy):
    """π(a|x) ∝ π_ref(a|x)·[Σ_j θ_j r_j(x,a)]₊, and the reference where that is 0 for every
    action.
    """

    def __init__(self, ratios: Ratios, theta: ArrayLike, *, name: str = "ratios") -> None:
        weights = finite_weights(theta, len(ratios))
        self.ratios = ratios
        self.theta = weights
        made = ratios.code
        if made is None:
            code = None
        else:
            code = PolicyCode(made.ints, np.concatenate([weights, made.floats]), made.act)
        super().__init__(ratios.model, name, code)

    def probabilities(self, x: Ints) -> Floats:
        """By compiled code, or in Python."""
        if self.code is not None:
            try:
                return super().probabilities(x)
            except USER_FUNCTION_ERRORS:
                self.ratios.scores(x, self.theta)  # raises too, and names the state
                raise
        part = np.maximum(self.ratios.scores(x, self.theta), 0.0)
        if part.sum() > 0:
            return np.asarray(part / part.sum())
        return self.ratios.reference.probabilities(x)

    def _defining_parts(self) -> tuple[Any, ...]:
        blocks = [
            (b.function, b.widest)
            if isinstance(b, UserRatios)
            else (
                b.partition.ints,
                b.partition.function,
                b.partition.levels,
                [p.digest for p in b.policies],
            )
            for b in self.ratios.blocks
        ]
        return (self.theta, self.ratios.reference.digest, *blocks)

    def to_parts(self) -> Parts:
        """The weights, the policies, and the partition of each block."""
        ratios = self.ratios
        arrays: dict[str, Any] = {"theta": self.theta}
        numbers = {id(p): k for k, p in enumerate(ratios.policies)}
        for k, block in enumerate(ratios.blocks):
            if not isinstance(block, Portfolio) or block.partition.function is not None:
                raise MissingError(
                    "ratios or bands that are functions of yours cannot be saved; save θ, and make "
                    "them again."
                )
            arrays[f"cells_{k}"] = block.partition.ints
            arrays[f"members_{k}"] = np.array([numbers[id(p)] for p in block.policies], np.int64)
        return inner(ratios.policies) | Parts(
            {"blocks": [list(block.names) for block in ratios.blocks]}, arrays
        )

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> RatioPolicy:
        """From the same."""
        arrays = parts.arrays
        policies = outer(model, parts)
        blocks = [
            Portfolio(
                tuple(policies[n] for n in arrays[f"members_{k}"].tolist()),
                partition_of(model, arrays[f"cells_{k}"]),
                tuple(names),
            )
            for k, names in enumerate(parts.header["blocks"])
        ]
        return cls(Ratios(policies[0], blocks), arrays["theta"], name=parts.name)


# -- families --------------------------------------------------------------------------------------


def _model_of(reference: Policy) -> Model:
    require_policy(reference)
    return reference.model


def portfolio(
    reference: Policy, policies: Sequence[AnyPolicy], partition: Partition | None = None
) -> Ratios:
    """π_k/π_ref for each policy, or function of the state, on each cell of the partition, by
    default on all states.
    """
    model = _model_of(reference)
    if not isinstance(policies, (list, tuple)) or not policies:
        raise InputError(
            "a portfolio needs a list of at least one policy, such as the reference, got "
            f"{policies!r}."
        )
    chosen = [as_policy(model, policy) for policy in policies]
    if partition is None:
        given = whole(model)
    else:
        given = partition
    if not isinstance(given, Partition):
        raise InputError(f"a partition is needed (features.cells, features.levels), got {given!r}.")
    require_made_for(model, given.model, "partition")
    names = tuple(f"{cell}: {policy.name}" for cell in given.names for policy in chosen)
    return Ratios(reference, [Portfolio(tuple(chosen), given, names)])


def user_ratios(
    reference: Policy,
    row: Callable[..., int],
    count: int,
    *,
    widest: int,
    names: Sequence[str] | None = None,
) -> Ratios:
    """Ratios of yours: ``row(x, a, indices, values)`` writes those that are not 0 at a pair and
    returns how many.

    Values may have any sign. The function is compiled if it can be, and called in Python otherwise.
    """
    if not is_whole(count) or not is_whole(widest) or not 0 < widest <= count:
        raise InputError(
            f"ratios need 0 < widest <= count, whole numbers, got widest={widest!r}, "
            f"count={count!r}."
        )
    if names is None:
        labels = tuple(f"ratio {j}" for j in range(count))
    else:
        labels = tuple(names)
    if len(labels) != count:
        raise InputError(f"{count} ratios need as many names, got {len(labels)}.")
    if not callable(row):
        raise InputError(f"ratios of yours are a function row(x, a, indices, values), got {row!r}.")
    model = _model_of(reference)
    block = UserRatios(row, labels, int(widest), None)
    for a in np.flatnonzero(model.allowed(model.start)):
        _written(block, model.start, int(a))  # raises, if it is wrong
    if isinstance(model, SimulatorModel):
        compiled = None
    else:
        compiled = _compile(row)
    return Ratios(reference, [UserRatios(row, labels, int(widest), compiled)])


def concat_ratios(*sets: Ratios) -> Ratios:
    """All ratios of several sets against one reference."""
    if not sets or any(s.reference is not sets[0].reference for s in sets):
        raise InputError("sets of ratios that are put together must have one reference.")
    return Ratios(sets[0].reference, [block for s in sets for block in s.blocks])


def _compile(function: Callable[..., int]) -> Any:
    try:
        return user_function(function, (READ_ONLY_INTS, numba.int64, INTS, FLOATS))
    except COMPILATION_ERRORS:
        return None


# -- compiled --------------------------------------------------------------------------------------
# One function calls the next, since their types differ.


_COMPILED_LEVELS: dict[
    tuple[Any, tuple[float, ...]], Any
] = {}  # so that what closes over one of them is compiled once


def _levels(function: Any, edges: tuple[float, ...]) -> Any:
    """The band of a state: how many edges the function reaches, −1 if it is not a number."""
    if (function, edges) not in _COMPILED_LEVELS:
        limits = np.array(edges)

        @_inner
        def level(x):  # type: ignore[no-untyped-def]
            value = function(x)
            place = 0
            if np.isnan(value):
                return -1
            while place < limits.size and limits[place] <= value:
                place += 1
            return place

        _COMPILED_LEVELS[function, edges] = level
    return _COMPILED_LEVELS[function, edges]


def _chosen_level(functions: Sequence[Any], place: int = 0) -> Any:
    if not functions:

        @_inner
        def none(slot, x):  # type: ignore[no-untyped-def]
            return 0

        return none
    first = functions[0]
    others = _chosen_level(functions[1:], place + 1)

    @_inner
    def chosen(slot, x):  # type: ignore[no-untyped-def]
        if slot == place:
            return first(x)
        return others(slot, x)

    return chosen


def _entries(cutting: int, functions: Sequence[Any]) -> Any:
    """Writes the ratios at a pair from the table of all policies; their number, or a fault."""
    level = _chosen_level(functions[:cutting])
    written = chosen_row(functions[cutting:])

    @_inner
    def entries(ints, table, x, a, indices, values):  # type: ignore[no-untyped-def]
        count = np.int64(0)
        for b in range(ints[0]):
            o = RATIOS_HEADER_SIZE + RATIOS_RECORD_SIZE * b
            kind = ints[o]
            first = ints[o + 1]
            size = ints[o + 2]
            slot = ints[o + 3]
            at = ints[o + 4]
            if kind == USER_RATIOS:
                end = count + ints[at]
                indices[count:end] = -1
                values[count:end] = np.nan  # what is counted but not written must not pass
                number = written(slot, x, a, indices[count:end], values[count:end])
                if not 0 <= number <= ints[at]:
                    raise InputError(
                        "a function of ratios must return how many it names, at most `widest`."
                    )
                for k in range(count, count + number):
                    if not 0 <= indices[k] < ints[at + 1]:
                        raise InputError("a function of ratios names one that is not there.")
                    if not np.isfinite(values[k]):
                        raise InputError(
                            "a function of ratios gives one that is not a finite number."
                        )
                    indices[k] += first
                count += number
                continue
            cell = kernels.cell_of(ints, at + size + 1, x)
            if cell < 0:
                continue
            if slot >= 0:
                band = level(slot, x)
                if band < 0:
                    return np.int64(UNDEFINED_ROW)
                cell = cell * (ints[at + size] + 1) + band
            if first + (cell + 1) * size > ints[1]:
                raise InputError("a cell of a partition has no ratios.")  # never write beyond θ
            for k in range(size):
                p = ints[at + k]
                for other in range(table.shape[1]):
                    if table[0, other] == 0.0 and table[p, other] > 0.0:
                        return np.int64(UNSUPPORTED_ROW - other)
                if table[p, a] > 0.0:
                    indices[count] = first + cell * size + k
                    values[count] = table[p, a] / table[0, a]
                    count += 1
        return count

    return entries


@made_once
def _row(fill: Kernel, cutting: int, *functions: Any) -> Kernel:
    table_of = fill.address
    entries = _entries(cutting, functions)

    @user_kernel(ROW_SIGNATURE)
    def row(ints, floats, x, a, indices, values):  # type: ignore[no-untyped-def]
        bank_ints = ints[ints[4] :]
        table = np.empty((bank_ints[0], ints[3]), np.float64)
        table_of(bank_ints, floats, x, table)
        return entries(ints, table, x, a, indices, values)

    return row


@made_once
def _act(fill: Kernel, cutting: int, *functions: Any) -> Kernel:
    table_of = fill.address
    entries = _entries(cutting, functions)

    @user_kernel(ACT_SIGNATURE)
    def act(ints, floats, x, out):  # type: ignore[no-untyped-def]
        bank_ints = ints[ints[4] :]
        d = ints[1]
        table = np.empty((bank_ints[0], ints[3]), np.float64)
        table_of(bank_ints, floats[d:], x, table)
        indices = np.empty(ints[2], np.int64)
        values = np.empty(ints[2], np.float64)
        total = 0.0
        for a in range(out.size):
            g = 0.0
            size = 0.0
            if table[0, a] > 0.0:
                count = entries(ints, table, x, a, indices, values)
            else:
                count = 0
            if count < 0:
                raise InputError(UNSUPPORTED_FAULT)
            for k in range(count):
                g += values[k] * floats[indices[k]]
                size += abs(values[k] * floats[indices[k]])
            if g > ROUNDING_SHARE * size:
                out[a] = table[0, a] * g
            else:
                out[a] = 0.0
            total += out[a]
        for a in range(out.size):
            if total > 0.0:
                out[a] = out[a] / total
            else:
                out[a] = table[0, a]

    return act
