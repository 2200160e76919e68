"""The constraints of the dual program as sparse rows: one for each pair, u(x,a) >= 0, and one for
each state, the flow.

    pair (x, a)     Φ_(x,a)
    state y         F_y = Σ_(x,a) P(y|x,a)·Φ_(x,a) − Σ_a Φ_(y,a)            (average)
                    F_y = Σ_a Φ_(y,a) − γ·Σ_(x,a) P(y|x,a)·Φ_(x,a)          (discounted)

Rows are looked up through the predecessors of a state, never by listing. They can be drawn from the
mean φ̄ of the features with the numbers low, ..., high − 1,

    pairs from φ̄,    states from ½(Bᵀφ̄ + Pᵀφ̄)    or    ½α + ½(Bᵀφ̄ + γPᵀφ̄)/(1+γ),

with the value of the density at each; or listed for all pairs and states where these can be
enumerated.

A row that is drawn and its density share a unit: 1, unless densities are so small that they would
underflow, as those of many coordinates do. Whatever is made of them is a ratio. States are not
kept; what is asked of them (prices) is computed chunk by chunk, so that the memory for n rows does
not grow with the number of coordinates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import constraints as kernels
from dualplan._kernels import listed
from dualplan._kernels.compiler import Kernel
from dualplan._kernels.features import Row
from dualplan._kernels.network_backward import changes as network_changes
from dualplan._kernels.philox import generator
from dualplan.core.budgets import MOST_LISTED_STATES
from dualplan.core.errors import InputError, MissingError
from dualplan.core.streams import Stream
from dualplan.core.threads import in_parallel
from dualplan.core.types import Floats, Ints
from dualplan.dual.features.contract import EXPECTED_LOSS_DRAWS, Features
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model, few_states, vector
from dualplan.models.criteria import Criterion, Discounted
from dualplan.models.limits import Limit
from dualplan.models.transitions import tallies_of

ROWS_AT_ONCE = 4_096  # rows drawn or listed at once
MOST_SUMMED_STATES = 200_000  # states up to which expectations are sums over all pairs

Prices = Callable[[Ints], Floats]  # of states, one a row


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rows, the prices of their states and the densities they were drawn with.

    Those of pairs and those of states.
    """

    pairs: sp.csr_array
    pair_prices: Floats
    pair_densities: Floats
    flows: sp.csr_array
    flow_prices: Floats
    flow_densities: Floats
    masses: Floats  # α at the states of the flow rows
    states: Ints  # of the flow rows


@dataclass(frozen=True, eq=False)
class Listed:
    """All rows: of the pairs x·A + a, and of the states."""

    pairs: sp.csr_array
    flows: sp.csr_array
    masses: Floats


@dataclass(frozen=True, eq=False)
class Before:
    """How the predecessors of a state are found: a function, the arrays that it reads with the
    model's other functions, and how many there are at most.
    """

    function: Kernel
    ints: Ints
    floats: Floats
    most: int

    @staticmethod
    def of(model: Model) -> Before:
        """The model's own, and where it has none those of a list of all transitions, if its states
        are few.
        """
        code = model.code
        if code.predecessors is not None:
            return Before(code.predecessors, code.ints, code.floats, code.max_predecessors)
        if not few_states(model):
            raise MissingError(
                f"model {model.name!r} has no predecessors: {model.why_no_predecessors}; the "
                "forward-only form (form = 'simulated') needs none."
            )
        return _listed_before(model)


def _listed_before(model: Model) -> Before:
    """From a list of all transitions."""
    code = model.code
    pairs = Sweeper(model).pairs
    back = sp.csc_array(pairs.matrix)
    box = model.box
    head = np.concatenate([[box.dim], box.lower, box.strides, box.upper - box.lower + 1])
    fields = [head, back.indptr, pairs.states[back.indices], pairs.actions[back.indices]]
    ends = [back.nnz, code.floats.size, code.ints.size]
    ints = np.concatenate([code.ints, *fields, ends]).astype(np.int64)
    floats = np.concatenate([code.floats, back.data])
    most = max(1, int(np.diff(back.indptr).max()))
    return Before(listed.predecessors, ints, floats, most)


class Rows:
    """Rows of a model's constraints for a set of features."""

    def __init__(self, model: Model, features: Features, criterion: Criterion) -> None:
        self.before = Before.of(model)
        self.model = model
        self.features = features
        self.gamma = criterion.gamma
        self.starts: Ints = np.zeros((0, model.box.dim), np.int64)
        self.alpha: Floats = np.zeros(0)
        if isinstance(criterion, Discounted):
            self.starts, self.alpha = criterion.start_distribution(model)

    @property
    def signs(self) -> tuple[float, float]:
        """The factors of B and P in the flow."""
        if self.alpha.size:
            return (1.0, -self.gamma)
        return (-1.0, 1.0)

    @property
    def _width(self) -> int:
        reach = self.before.most + len(self.model.actions)
        return int(min(len(self.features), reach * self.features.widest))

    # -- drawn -------------------------------------------------------------------------------------

    def draw(
        self,
        count: int,
        low: int,
        high: int,
        *,
        seed: int = 0,
        first: int = 0,
        threads: int | None = None,
        prices: Prices | None = None,
    ) -> Drawn:
        """`count` rows of each kind, numbered from `first`; a number always gives the same row."""
        edges = [*range(first, first + count, ROWS_AT_ONCE), first + count]
        ranges = list(itertools.pairwise(edges))
        span = kernels.Span(low, high)
        pairs = in_parallel(
            [partial(self._draw_pairs, span, seed, prices, a, b) for a, b in ranges], threads
        )
        flows = in_parallel(
            [partial(self._draw_flows, span, seed, prices, a, b) for a, b in ranges], threads
        )
        return Drawn(*self._joined_rows(pairs), *self._joined_rows(flows))

    def _draw_pairs(
        self, span: kernels.Span, seed: int, prices: Prices | None, first: int, last: int
    ) -> tuple[Any, ...]:
        size = last - first
        width = self.features.widest
        rows = kernels.PairRows(
            np.empty((size, self.model.box.dim), np.int64),
            np.empty(size, np.int64),
            np.empty((size, width), np.int64),
            np.empty((size, width)),
            np.zeros(size, np.int64),
            np.zeros(size),
        )
        rng = generator(seed, Stream.NEGATIVE_CONSTRAINTS, 0)
        model = self.model.code.dynamics
        features = self.features.code.packed
        fault = kernels.draw_pairs(model, features, span, rng, rows, self.features.work(), first)
        if fault >= 0:
            raise self._blamed(rows.states[fault - first])
        return (
            *_compact(rows.indices, rows.values, rows.counts),
            rows.counts,
            _priced(prices, rows.states),
            rows.densities,
        )

    def _draw_flows(
        self, span: kernels.Span, seed: int, prices: Prices | None, first: int, last: int
    ) -> tuple[Any, ...]:
        size = last - first
        width = self._width
        rows = kernels.FlowRows(
            np.empty((size, self.model.box.dim), np.int64),
            np.empty((size, width), np.int64),
            np.empty((size, width)),
            np.zeros(size, np.int64),
            np.zeros(size),
            np.zeros(size),
        )
        fault = kernels.draw_flows(
            self._backward,
            self.features.code.packed,
            self._flow(self.signs),
            span,
            generator(seed, Stream.FLOW_CONSTRAINTS, 0),
            self._room(),
            rows,
            first,
        )
        if fault >= 0:
            state = rows.states[fault - first]
            self.model.predecessors(state)  # raises, if there are too many
            raise self._blamed(state)
        return (
            *_compact(rows.indices, rows.values, rows.counts),
            rows.counts,
            _priced(prices, rows.states),
            rows.densities,
            rows.masses,
            rows.states,
        )

    @property
    def _local(self) -> int:
        """Whether predecessors are known as changes."""
        return int(self.model.code.changes is not None)

    @property
    def _backward(self) -> kernels.Backward:
        """What rows of the flow ask of the model, as kernels take it."""
        code = self.model.code
        changes = code.changes
        if changes is None:
            changes = network_changes  # stands in its place, and is not asked
        return kernels.Backward(
            code.allowed,
            code.step,
            self.before.function,
            changes,
            self.before.ints,
            self.before.floats,
            len(self.model.actions),
            self._local,
        )

    def _flow(self, signs: tuple[float, float]) -> kernels.Flow:
        """The flow with given signs of B and P, as kernels take it."""
        on_b, on_p = signs
        from_start = 0.0
        if self.alpha.size:
            from_start = 0.5
        return kernels.Flow(on_b, on_p, from_start, self.starts, self.alpha)

    def _room(self) -> kernels.RowRoom:
        """Arrays for the kernels to work in."""
        code = self.model.code
        most = self.before.most
        dim = self.model.box.dim
        whole = most
        parts = 1
        if self._local:
            whole = 1
            parts = most + 1
        listed = kernels.PredecessorRoom(
            np.empty((whole, dim), np.int64),
            np.empty((parts, code.max_changed), np.int64),
            np.empty((parts, code.max_changed), np.int64),
            np.empty(parts, np.int64),
            np.empty(most, np.int64),
            np.empty(most),
        )
        widest = self.features.widest
        return kernels.RowRoom(
            np.empty((4, dim), np.int64),
            listed,
            Row(np.empty(widest, np.int64), np.empty(widest)),
            np.zeros(len(self.features)),
            np.empty(len(self.features), np.int64),
            self.features.work(),
        )

    def _blamed(self, x: Ints) -> InputError:
        return InputError(
            f"a feature gives weight to an action that {self.model.name!r} does not allow, or "
            f"draws where it is 0, at or next to state {_in_short(x)}; use tiles or a table."
        )

    def _joined_rows(self, parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """One matrix of the rows of all parts, and what comes with them."""
        values, indices, counts, *others = map(np.concatenate, zip(*parts, strict=True))
        ends = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_array(
            (values, indices, ends), shape=(counts.size, len(self.features))
        ), *others

    # -- listed ------------------------------------------------------------------------------------

    @cached_property
    def enumerable(self) -> bool:
        """Whether the states can be numbered."""
        return self.model.box.count is not None and self.model.box.count < 2**31

    def every(
        self, *, signs: tuple[float, float] | None = None, threads: int | None = None
    ) -> Listed:
        """All rows of a model whose states can be enumerated.

        Other signs of B and P in the flow may be asked for.
        """
        self.model.box.strides  # noqa: B018 - raises if they cannot
        count = int(self.model.box.count or 0)
        edges = [*range(0, count, ROWS_AT_ONCE), count]
        work = [
            partial(self._every, signs or self.signs, a, b) for a, b in itertools.pairwise(edges)
        ]
        every = Listed(*map(_joined, zip(*in_parallel(work, threads), strict=True)))
        sums = np.asarray(every.pairs.sum(axis=0)).ravel()
        short = np.flatnonzero(~(np.abs(sums - 1) <= 1e-6))
        if short.size:
            raise InputError(
                f"feature {self.features.names[short[0]]!r} sums to {sums[short[0]]:.6g} over the "
                f"pairs that {self.model.name!r} allows, not 1; use tiles or a table."
            )
        return every

    def _every(self, signs: tuple[float, float], first: int, last: int) -> tuple[Any, ...]:
        size = last - first
        actions = len(self.model.actions)
        widest = self.features.widest
        pair_size = size * actions * widest + widest
        flow_size = (size + 1) * self._width
        pair_ends = np.zeros(size * actions + 1, np.int64)
        flow_ends = np.zeros(size + 1, np.int64)
        rows = kernels.AllRows(
            Row(np.empty(pair_size, np.int64), np.empty(pair_size)),
            pair_ends[1:],
            Row(np.empty(flow_size, np.int64), np.empty(flow_size)),
            flow_ends[1:],
            np.zeros(size),
        )
        fault = kernels.all_rows(
            self._backward,
            self.features.code.packed,
            self._flow(signs),
            self.model.box.bounds,
            self._room(),
            rows,
            first,
        )
        if fault >= 0:
            self.model.predecessors(self.model.box.state(int(fault)))
        d = len(self.features)
        return (_matrix(rows.pairs, pair_ends, d), _matrix(rows.flows, flow_ends, d), rows.masses)

    # -- limits ------------------------------------------------------------------------------------

    def limits(self, limits: Sequence[Limit]) -> tuple[Floats, Floats]:
        """gᵀφ_j with g = n − limit·d, a row for each limit and a column for each feature; and the
        standard errors.

        Exact where the pairs can be listed, and otherwise means over draws.
        """
        shape = (len(limits), len(self.features))
        if limits and self.enumerable and int(self.model.box.count or 0) <= MOST_SUMMED_STATES:
            pairs = self.every().pairs
            actions = len(self.model.actions)
            numbers = np.flatnonzero(np.diff(pairs.indptr))
            weights = self._weights(
                limits, self.model.box.states(numbers // actions), numbers % actions
            )
            return np.asarray(weights @ pairs[numbers]), np.zeros(shape)
        values = np.empty(shape)
        errors = np.empty(shape)
        width = max(1, len(self.model.columns) // self.model.box.dim)
        for j in range(len(self.features) if limits else 0):
            pieces = self.features.pieces(j, EXPECTED_LOSS_DRAWS, width)
            weights = np.hstack([self._weights(limits, *piece) for piece in pieces])
            values[:, j] = weights.mean(axis=1)
            errors[:, j] = weights.std(axis=1) / np.sqrt(EXPECTED_LOSS_DRAWS)
        return values, errors

    # -- potentials --------------------------------------------------------------------------------

    def shaping(self, potential: Callable[[Ints], Floats]) -> tuple[Floats, Floats]:
        """(γP − B)h in expectation under each feature, and the standard errors: 0 where states can
        be listed.
        """
        d = len(self.features)
        if self.enumerable and int(self.model.box.count or 0) <= MOST_LISTED_STATES:
            every = self.every(signs=(-1.0, self.gamma))
            return np.asarray(
                every.flows.T @ potential(self.model.box.states(np.arange(every.masses.size)))
            ), np.zeros(d)
        values = np.empty(d)
        errors = np.empty(d)
        for j in range(d):
            pieces = self.features.pieces(
                j, EXPECTED_LOSS_DRAWS, max(1, self.model.code.max_outcomes)
            )
            changes = np.concatenate([self._steps(potential, *piece) for piece in pieces])
            values[j] = changes.mean()
            errors[j] = changes.std() / np.sqrt(EXPECTED_LOSS_DRAWS)
        return values, errors

    def _steps(self, potential: Callable[[Ints], Floats], states: Ints, actions: Ints) -> Floats:
        """γ·E[h(next)] − h(x) at given pairs, by the forward law."""
        code = self.model.code
        most = self.model.code.max_outcomes
        if code.forward is None:
            self.model.forward(self.model.start, 0)  # raises, and says why
        after = np.empty((actions.size * most, states.shape[1]), np.int64)
        chances = np.empty((actions.size, most))
        counts = np.empty(actions.size, np.int64)
        kernels.laws_at(
            code.forward, code.ints, code.floats, states, actions, after, chances, counts
        )
        used = np.arange(most) < counts[:, None]
        weighted = np.zeros((actions.size, most))
        weighted[used] = potential(after[used.ravel()]) * chances[used]
        return np.asarray(self.gamma * weighted.sum(axis=1) - potential(states))

    def _weights(self, limits: Sequence[Limit], states: Ints, actions: Ints) -> Floats:
        """g of each limit at given pairs."""
        sums = np.zeros((actions.size, len(self.model.columns)))
        if any(isinstance(limit.measure, str) for limit in limits):
            kernels.sums_at(tallies_of(self.model), states, actions, sums)
        rows = (limit.weights(self.model, states, actions, sums) for limit in limits)
        return np.array([n - limit.at_most * d for limit, (n, d) in zip(limits, rows, strict=True)])


def _in_short(x: Ints) -> str:
    """A state in a message, at most eight numbers of it."""
    if x.size <= 8:
        return vector(x)
    return f"{vector(x[:6])[:-1]}, ..., {int(x[-1])})"


def _compact(indices: Ints, values: Floats, counts: Ints) -> tuple[Floats, Ints]:
    """The values and indices of the places that rows use."""
    used = np.arange(indices.shape[1]) < counts[:, None]
    return values[used], indices[used]


def _priced(prices: Prices | None, states: Ints) -> Floats:
    if prices is None:
        return np.ones(len(states))
    return prices(states)


def _matrix(rows: Row, ends: Ints, columns: int) -> sp.csr_array:
    """Rows one after the other as a sparse matrix."""
    used = ends[-1]
    return sp.csr_array(
        (rows.values[:used], rows.indices[:used], ends), shape=(ends.size - 1, columns)
    )


def _joined(parts: Any) -> Any:
    if sp.issparse(parts[0]):
        return sp.csr_array(sp.vstack(parts))
    return np.concatenate(parts)
