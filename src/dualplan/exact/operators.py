"""The operators of an enumerable model, swept on all cores.

The first sweeps ask the model for its transitions. From then on they are read from a table, where
it fits into memory and no sweep is compiled for the model: one that does without is as fast.

Arrays over all states are allocated here and nowhere else in the library: 8 bytes a state for each
vector.
"""

from __future__ import annotations

import os
import time as timer
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import law_sweep, network_sweep, table_sweep
from dualplan._kernels import sweep as kernels
from dualplan._kernels.layouts import Arrays
from dualplan.core.errors import MissingError, ModelError
from dualplan.core.threads import cores, in_parallel
from dualplan.core.types import Floats, Ints
from dualplan.exact.laws import laws_of
from dualplan.models.contract import Model, vector
from dualplan.models.event import EventModel
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.transitions import tallies_of
from dualplan.policies.contract import Policy, PolicyCode
from dualplan.policies.tables import TablePolicy, as_table, random_policy

BYTES_PER_STATE = 100  # of the vectors that the methods here keep; 95 were measured
GAUSS_SEIDEL_BLOCKS = 8
# states below which a sweep takes less time than threads take to begin
LEAST_SHARED_STATES = 5_000
# a table of transitions: its size at most, and how many sweeps come before it
MOST_TABLE_BYTES = 2**31
SWEEPS_WITHOUT_TABLE = 2
# states by which the time of a sweep is estimated, and next states of all of them at most
TIMED_STATES = 20_000
TIMED_OUTCOMES = 2_000_000
TIMED_SWEEPS = 3
CHAIN_ENTRIES_AT_ONCE = 2**22  # of a chain's matrix, assembled at once


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep leaves behind: the next values, and the ends of the difference that it saw."""

    values: Floats
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs (x, a) of a model, state by state: the numbers of the states, the actions, P
    and ℓ.
    """

    model: Model
    states: Ints
    actions: Ints
    matrix: sp.csr_array
    losses: Floats

    @cached_property
    def sums(self) -> Floats:
        """What a step from each pair adds to each of the model's `columns`, in expectation."""
        out = np.zeros((self.states.size, len(self.model.columns)))
        pairs = kernels.PairList(self.states, self.actions)
        kernels.pair_sums(tallies_of(self.model), self.model.box.bounds, pairs, out)
        return out

    def marginal(self, weights: Floats) -> Floats:
        """Bᵀu: the sum over the actions of each state."""
        return np.asarray(
            np.bincount(self.states, weights, minlength=self.matrix.shape[1]), np.float64
        )


class Sweeper:
    """L, L_π and P_π of a model with a bounded box."""

    def __init__(self, model: Model, threads: int | None = None) -> None:
        self.law = model.forward_law
        self.model = model
        self.threads = threads
        self.states = _affordable(model)
        self._begun = 0  # sweeps
        self.grid = model.box.grid

    @property
    def separable(self) -> bool:
        """Whether L splits into servers, so that a sweep of L costs no more than one of a
        policy.
        """
        if not isinstance(self.model, QueueingNetwork):
            return False
        options = self.model.options
        usual = {"dynamics": "uniformized", "discipline": "preemptive", "decisions": "joint"}
        return all(options[key] == value for key, value in usual.items())

    @cached_property
    def laws(self) -> law_sweep.CaseLaws | None:
        """The laws of a network by case, where they are few."""
        if isinstance(self.model, QueueingNetwork):
            return laws_of(self.model)
        return None

    @property
    def swift(self) -> bool:
        """Whether a sweep of L is compiled for the model, so that it costs less than one of a
        policy.
        """
        return self.separable or self.laws is not None

    @property
    def laziness(self) -> float:
        """A probability with which every pair, at least, stays where it is."""
        if not isinstance(self.model, QueueingNetwork):
            return 0.0
        return self.model.laziness

    def optimal(
        self,
        values: Floats,
        gamma: float = 1.0,
        *,
        damping: float = 1.0,
        best: Ints | None = None,
        out: Floats | None = None,
    ) -> Sweep:
        """V + τ·(L V − V), in `out` if it is given, and the ends of L V − V.

        The minimising actions go to `best`.
        """
        if out is None:
            out = np.empty(self.states)
        if best is None:
            actions = np.empty(0, np.int64)
        else:
            actions = best
        update = kernels.Update(gamma, damping, values, out, actions)
        if self._tabled():
            return self._sweep(partial(table_sweep.optimal, self.table, update), out)
        loop, units = self._optimal_loop(update)
        return self._sweep(loop, out, units)

    def _tabled(self) -> bool:
        """Whether this sweep reads the table."""
        self._begun += 1
        return self._begun > SWEEPS_WITHOUT_TABLE and self.tabular

    @cached_property
    def tabular(self) -> bool:
        """Whether a table of transitions is worth its memory."""
        return not self.swift and self._table_bytes <= min(MOST_TABLE_BYTES, _memory() // 4)

    @property
    def _table_bytes(self) -> int:
        most = self.states * len(self.model.actions)
        return int(most * (self.model.code.max_outcomes * 24 + 64))

    @cached_property
    def table(self) -> table_sweep.PairTable:
        """All transitions, row by row."""
        return _table(self.pairs, self.states)

    def _optimal_loop(self, update: kernels.Update) -> tuple[Any, int]:
        """The loop that sweeps L, and the number of units that it counts by."""
        box = self.model.box
        network = Arrays(self.law.ints, self.law.floats)
        if self.separable:
            slab = int(np.prod(box.upper[-2:] + 1))
            loop = partial(network_sweep.optimal, network, self.grid, update)
            room = network_sweep.NETWORK_SWEEP_WORK_SLABS * slab
            return _with_room(loop, box.dim, room), self.states // slab
        if self.laws is not None:
            row = int(box.upper[-1] + 1)
            loop = partial(law_sweep.optimal, network, self.grid, self.laws, update)
            room = law_sweep.LAW_SWEEP_WORK_ROWS * row
            return _with_room(loop, box.dim, room), self.states // row
        return partial(kernels.optimal, self.law, self.grid, update), self.states

    def seconds_for(self, sweeps: int) -> float:
        """About how long so many sweeps of L take, and the table that they read if there is one, by
        some over a part of the states.
        """
        if not self.tabular:
            return sweeps * self.seconds_of_one
        table = _table(self._pairs_of(self._timed), self._timed)
        reading = partial(table_sweep.optimal, table, self._to_nowhere)
        read = self._least_seconds(reading, self._timed)
        # of the first states some have fewer outcomes than there can be
        each = read * self.states * self._most_outcomes / table.entries.size
        return cores() * self.seconds_of_one + sweeps * each

    @cached_property
    def seconds_of_one(self) -> float:
        """About how long a sweep of L takes that does not read the table."""
        loop, units = self._optimal_loop(self._to_nowhere)
        tried = max(1, units * self._timed // self.states)
        self._sweep(loop, self._to_nowhere.values, 1)  # which compiles
        return self._least_seconds(loop, tried) * units / tried

    @cached_property
    def _to_nowhere(self) -> kernels.Update:
        """Of values that nobody reads."""
        values = np.zeros(self.states)
        return kernels.Update(1.0, 1.0, values, values, np.empty(0, np.int64))

    @property
    def _most_outcomes(self) -> int:
        """Of all actions in a state."""
        return len(self.model.actions) * max(1, int(self.model.code.max_outcomes))

    @property
    def _timed(self) -> int:
        """The number of states by which sweeps are timed."""
        return min(self.states, TIMED_STATES, max(1, TIMED_OUTCOMES // self._most_outcomes))

    def _least_seconds(self, loop: Any, count: int) -> float:
        """How long a sweep takes: the least of several is that of an undisturbed one."""
        spent = []
        for _ in range(TIMED_SWEEPS):
            started = timer.monotonic()
            self._sweep(loop, self._to_nowhere.values, count)
            spent.append(timer.monotonic() - started)
        return min(spent)

    def optimal_in_place(self, values: Floats, gamma: float, out: Floats) -> Sweep:
        """A Gauss–Seidel sweep of L: in each of a fixed number of blocks, new values count at
        once.
        """
        blocks = GAUSS_SEIDEL_BLOCKS if self.states >= LEAST_SHARED_STATES else 1
        update = kernels.Update(gamma, 1.0, values, out, np.empty(0, np.int64))
        loop = partial(kernels.gauss_seidel, self.law, self.grid, update)
        return self._sweep(loop, out, pieces=blocks)

    def fixed(
        self,
        policy: Policy,
        values: Floats,
        gamma: float = 1.0,
        *,
        damping: float = 1.0,
        out: Floats | None = None,
    ) -> Sweep:
        """V + τ·(L_π V − V), in `out` if it is given, and the ends of L_π V − V."""
        rule = _compiled(policy).rule
        if out is None:
            out = np.empty(self.states)
        update = kernels.Update(gamma, damping, values, out, np.empty(0, np.int64))
        if isinstance(policy, TablePolicy) and policy.table.ndim == 1 and self._tabled():
            actions = np.ascontiguousarray(policy.table, np.int64)
            return self._sweep(
                partial(table_sweep.fixed, self.table, actions, update), out, policy=policy
            )
        loop = partial(kernels.fixed, self.law, rule, self.grid, update)
        return self._sweep(loop, out, policy=policy)

    def _sweep(
        self,
        loop: Any,
        out: Floats,
        count: int | None = None,
        *,
        pieces: int | None = None,
        policy: Policy | None = None,
    ) -> Sweep:
        """Share `count` units (states if not given) out to the threads, or to a number of
        pieces.
        """
        if count is None:
            units = self.states
        else:
            units = count
        if self.states < LEAST_SHARED_STATES:
            threads = 1
        else:
            threads = self.threads or cores()
        edges = np.linspace(0, units, min(pieces or threads, units) + 1).astype(np.int64)
        ends = np.tile([np.inf, -np.inf], (edges.size - 1, 1))
        ranges = zip(ends, edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        pieces_of_work = [partial(loop, *piece) for piece in ranges]
        # a sweep is short, and who sweeps asks for deadlines between two of them
        faults = in_parallel(pieces_of_work, threads, stoppable=False)
        for index in faults:
            if index >= 0:
                _blame(self.model, int(index), policy)
        return Sweep(out, float(ends[:, 0].min()), float(ends[:, 1].max()))

    @cached_property
    def pairs(self) -> Pairs:
        """All pairs, with P as a sparse matrix: for methods that cannot do without."""
        most = self.states * len(self.model.actions)
        need = self._table_bytes
        have = _memory()
        if need > 0.8 * have:
            raise MissingError(
                f"model {self.model.name!r} has up to {most:,} pairs of a state and an action, "
                f"whose transitions need about {need / 2**30:.1f} GiB of {have / 2**30:.1f} GiB; "
                "use value iteration, which needs no table."
            )
        return self._pairs_of(self.states)

    def _pairs_of(self, states: int) -> Pairs:
        """The pairs of the first so many states."""
        code = self.model.code
        most = states * len(self.model.actions)
        rows = kernels.ChainRows(
            np.empty(most * code.max_outcomes, np.int64),
            np.empty(most * code.max_outcomes),
            np.empty(most, np.int64),
            np.empty(most),
        )
        listed = kernels.PairList(np.empty(most, np.int64), np.empty(most, np.int64))
        count = kernels.pair_rows(self.law, self.grid, rows, listed, 0, states)
        if count < 0:
            _blame(self.model, -1 - int(count))
        ptr = np.concatenate([[0], rows.ends[:count]])
        size = int(ptr[-1])
        matrix = sp.csr_array(
            (rows.entries[:size], rows.columns[:size], ptr), shape=(count, self.states)
        )
        matrix.sum_duplicates()
        return Pairs(
            self.model, listed.states[:count], listed.actions[:count], matrix, rows.losses[:count]
        )

    def graphs(self, values: Floats) -> tuple[Any, Any, Floats]:
        """A chain that takes every action, the greedy policy's, and L V − V: what
        `require_one_cost` asks for.
        """
        best = np.zeros(self.states, np.int64)
        difference = self.optimal(values, best=best).values - values
        return (
            self.chain(random_policy(self.model))[0],
            self.chain(TablePolicy(self.model, best))[0],
            difference,
        )

    def sums(self, policy: Policy, states: Ints, weights: Floats) -> Floats:
        """What a policy adds to each of the model's `columns` in states of given weights, in
        expectation.
        """
        rule = _compiled(policy).rule
        box = self.model.box.bounds
        out = np.zeros(len(self.model.columns))
        actions = len(self.model.actions)
        kernels.policy_sums(tallies_of(self.model), rule, box, actions, states, weights, out)
        return out

    def probabilities(self, policy: Policy, states: Ints) -> Floats:
        """π(·|x) of states by number, one a row."""
        rule = _compiled(policy).rule
        out = np.empty((states.size, len(self.model.actions)))
        kernels.policy_rows(rule, self.model.box.bounds, states, out)
        return out

    @cached_property
    def losses(self) -> Floats:
        """ℓ(x, a), one state a row; not a number where an action is not allowed."""
        out = np.empty((self.states, len(self.model.actions)))
        kernels.all_losses(self.law, self.model.box.bounds, out)
        return out

    def chain(self, policy: Policy) -> tuple[sp.csr_array, Floats]:
        """P_π as a sparse matrix, and the losses ℓ_π."""
        rule = _compiled(policy).rule
        losses = np.empty(self.states)
        width = self.law.outcomes * self.law.actions
        rows_at_once = max(1, min(self.states, CHAIN_ENTRIES_AT_ONCE // width))
        columns = np.empty(rows_at_once * width, np.int64)
        entries = np.empty(rows_at_once * width)
        blocks = []
        for first in range(0, self.states, rows_at_once):
            last = min(first + rows_at_once, self.states)
            ends = np.zeros(last - first + 1, np.int64)
            rows = kernels.ChainRows(columns, entries, ends[1:], losses[first:last])
            fault = kernels.chain_rows(self.law, rule, self.grid, rows, first, last)
            if fault >= 0:
                _blame(self.model, int(fault), policy)
            size = int(ends[-1])
            block = sp.csr_array(
                (entries[:size].copy(), columns[:size].copy(), ends),
                shape=(last - first, self.states),
            )
            block.sum_duplicates()
            blocks.append(block)
        return sp.csr_array(sp.vstack(blocks)), losses


def _table(pairs: Pairs, states: int) -> table_sweep.PairTable:
    """The pairs of the first so many states, as sweeps read them."""
    firsts = np.searchsorted(pairs.states, np.arange(states + 1))
    return table_sweep.PairTable(
        firsts.astype(np.int64),
        pairs.matrix.indptr.astype(np.int64),
        pairs.matrix.indices.astype(np.int64),
        pairs.matrix.data,
        np.ascontiguousarray(pairs.losses),
        np.ascontiguousarray(pairs.actions),
    )


def _with_room(loop: Any, dim: int, size: int) -> Any:
    """The loop with a state and numbers of its own for each thread."""
    return lambda *piece: loop(
        network_sweep.SweepRoom(np.zeros(dim, np.int64), np.empty(size)), *piece
    )


def _blame(model: Model, index: int, policy: Policy | None = None) -> NoReturn:
    """Raise for the state at which a sweep stopped: what the policy or the model did wrong
    there.
    """
    x = model.box.state(index)
    may = model.allowed(x)
    if not may.any():
        raise ModelError(f"model {model.name!r}: no action is allowed in state x={vector(x)}.")
    if policy is not None:
        policy(x)  # raises, if it is the policy
    for a in np.flatnonzero(may).tolist():
        if isinstance(model, EventModel):
            model.diagnose(x, a)
        if not np.isfinite(model.loss(x, a)):
            raise ModelError(
                f"model {model.name!r}: the loss at x={vector(x)}, a={a} is no finite number."
            )
    raise ModelError(
        f"model {model.name!r}: values at x={vector(x)} are beyond the range of numbers; scale the "
        "losses."
    )


def _compiled(policy: Policy) -> PolicyCode:
    """The policy's code, or that of its table."""
    if policy.code is None:
        return _compiled(as_table(policy))
    return policy.code


def _affordable(model: Model) -> int:
    """The number of states, if vectors over them fit into memory."""
    model.box.strides  # noqa: B018 - raises if the states cannot be numbered
    count = int(model.box.count or 0)
    need = count * BYTES_PER_STATE
    have = _memory()
    if need > 0.8 * have:
        raise MissingError(
            f"model {model.name!r} has {count:,} states, for which exact methods need about "
            f"{need / 2**30:.1f} GiB of {have / 2**30:.1f} GiB; use simulation or smaller buffers."
        )
    return count


def _memory() -> int:
    """Bytes of memory that are free for use."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
