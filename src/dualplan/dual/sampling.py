"""Where constraints are drawn from, and the constants C1 >= ‖Φ_(x,a)‖/q1(x,a) and C2 >= ‖F_y‖/q2(y)
(C3, C4).

*A mixture of features* (default: those of the problem, with the base measure μ0 among them). With
ψ̄ the mean of m distributions, q1 = ψ̄ and q2 = ½(Bᵀψ̄ + Pᵀψ̄), or ½α + ½(Bᵀψ̄ + γPᵀψ̄)/(1+γ). If
the mixture is that of the problem's own features, C1 = m and C2 = 2m, or 2(1+γ)m, are **proved**: a
row's norm is at most the sum of its entries, Σ_j φ_j(x,a) = m·ψ̄(x,a), and |F_y| is in sum at most
m times (Bᵀψ̄ + γPᵀψ̄)(y). Any other set of features may serve, such as products of geometric laws
for features of exponential decay (the paper's third scenario); its constants are **computed** where
states can be enumerated and otherwise **estimated**, as the largest ratios that were seen.

*Tables* over all pairs and states, where these can be enumerated; constants are **computed**. The
paper's scenarios, as corrected, are

    uniform      q1 and q2 uniform (sparse P). If φ_j <= C'/(XA) and N pairs lead to a state, C1 <=
                 √d·C' and
                 C2 <= √d·C'·(N + A)/A; the paper lacks the √d and the 1/A.
    largest      in proportion to the largest entry of a row (stationary features; the paper's
                 *smallest* entry is 0
                 wherever one feature is)
    look-ahead   q1 ∝ ‖Φ_(x,a)‖ and q2 ∝ ‖(BᵀΦ)_y‖
    row-norms    q1 ∝ ‖Φ_(x,a)‖ and q2 ∝ ‖F_y‖, the best there is: C1 and C2 are the sums of the
                 norms

A row that is not 0 where q is 0 would be a bias, and is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels.constraints import uniforms
from dualplan._kernels.philox import generator
from dualplan.core.errors import InputError, unknown
from dualplan.core.status import COMPUTED, ESTIMATED, PROVED
from dualplan.core.streams import FIXED_SEED, Stream
from dualplan.core.types import Floats, Ints
from dualplan.dual.constraints import MOST_SUMMED_STATES, Drawn, Listed, Prices, Rows

# rows drawn to estimate constants, and to see that sampling overlaps with the features
CHECKED_ROWS = 20_000


@dataclass(frozen=True)
class Constants:
    """Bounds on ‖row‖/q for pairs and for states, how they are known, and one on α/q4."""

    negative: float
    flow: float
    known: str
    start: float


class Mixture:
    """Drawing from the features low, ..., high − 1 of the rows.

    `own` are those that the constants are about.
    """

    def __init__(self, rows: Rows, low: int, high: int, own: int) -> None:
        self.rows = rows
        self.low = low
        self.high = high
        self.own = own
        if low >= own:
            self._check_overlap()

    def draw(
        self,
        count: int,
        *,
        seed: int,
        first: int,
        threads: int | None,
        prices: Prices | None = None,
    ) -> Drawn:
        """Rows of both kinds."""
        return self.rows.draw(
            count, self.low, self.high, seed=seed, first=first, threads=threads, prices=prices
        )

    @cached_property
    def constants(self) -> Constants:
        """Proved where the features are the problem's own."""
        discounted = self.rows.alpha.size > 0
        m = self.high - self.low
        if discounted:
            start = 2.0
        else:
            start = 0.0
        if self.low < self.own:
            return Constants(
                float(m), 2.0 * (1 + self.rows.gamma) * m if discounted else 2.0 * m, PROVED, start
            )
        if self._small:
            q1, q2, every = self._densities
            pairs = every.pairs[:, : self.own]
            flows = every.flows[:, : self.own]
            return Constants(
                _largest_ratio(_norms(pairs), q1),
                _largest_ratio(_norms(flows), q2),
                COMPUTED,
                start,
            )
        drawn = self.draw(CHECKED_ROWS, seed=FIXED_SEED, first=0, threads=None)
        return Constants(
            _largest_ratio(_norms(drawn.pairs[:, : self.own]), drawn.pair_densities),
            _largest_ratio(_norms(drawn.flows[:, : self.own]), drawn.flow_densities),
            ESTIMATED,
            start,
        )

    @property
    def _small(self) -> bool:
        return self.rows.enumerable and int(self.rows.model.box.count or 0) <= MOST_SUMMED_STATES

    @cached_property
    def _densities(self) -> tuple[Floats, Floats, Listed]:
        """q1 of all pairs, q2 of all states, and all rows."""
        rows = self.rows
        m = self.high - self.low
        every = rows.every()
        g = rows.gamma
        inflow = rows.every(signs=(1.0, g)).flows[:, self.low : self.high].sum(axis=1) / (
            m * (1 + g)
        )
        if rows.alpha.size:
            q2 = (every.masses + inflow) / 2
        else:
            q2 = inflow
        return every.pairs[:, self.low : self.high].sum(axis=1) / m, q2, every

    def _check_overlap(self) -> None:
        """Every pair and state that carries features must be drawn: all of them, or those that the
        features draw.
        """
        if self._small:
            q1, q2, every = self._densities
            _require_overlap(_norms(every.pairs[:, : self.own]), q1, "pair")
            _require_overlap(
                np.hypot(_norms(every.flows[:, : self.own]), every.masses), q2, "state"
            )
            return
        drawn = self.rows.draw(CHECKED_ROWS, 0, self.own)
        mass = np.asarray(drawn.pairs[:, self.low : self.high].sum(axis=1), np.float64)
        _require_overlap(np.ones(CHECKED_ROWS), mass, "pair")
        inflow = np.asarray(abs(drawn.flows[:, self.low : self.high]).sum(axis=1), np.float64)
        _require_overlap(np.ones(CHECKED_ROWS), inflow + drawn.masses, "state")


class Table:
    """Drawing from distributions over all pairs and all states."""

    def __init__(self, rows: Rows, q1: Floats, q2: Floats) -> None:
        self.rows = rows
        self.every = rows.every()
        self.q = (q1 / q1.sum(), q2 / q2.sum())
        self._norms = (_norms(self.every.pairs), _norms(self.every.flows))
        _require_overlap(self._norms[0], self.q[0], "pair")
        _require_overlap(np.hypot(self._norms[1], self.every.masses), self.q[1], "state")
        self._sums = tuple(np.cumsum(q) for q in self.q)

    @cached_property
    def constants(self) -> Constants:
        """The largest ratios."""
        negative, flow = (
            _largest_ratio(norms, q) for norms, q in zip(self._norms, self.q, strict=True)
        )
        return Constants(negative, flow, COMPUTED, _largest_ratio(self.every.masses, self.q[1]))

    def draw(
        self,
        count: int,
        *,
        seed: int,
        first: int,
        threads: int | None,  # noqa: ARG002 - as Mixture's
        prices: Prices | None = None,
    ) -> Drawn:
        """Rows of both kinds."""
        pairs, states = (self._numbers(i, seed, first, count) for i in range(2))
        actions = len(self.rows.model.actions)
        every = self.every
        box = self.rows.model.box
        found = [np.ones(count)] * 2
        if prices is not None:
            found = [prices(box.states(numbers)) for numbers in (pairs // actions, states)]
        return Drawn(
            sp.csr_array(every.pairs[pairs]),
            found[0],
            self.q[0][pairs],
            sp.csr_array(every.flows[states]),
            found[1],
            self.q[1][states],
            every.masses[states],
            box.states(states),
        )

    def _numbers(self, which: int, seed: int, first: int, count: int) -> Ints:
        """Numbers drawn from q, by inversion."""
        u = np.empty(count)
        sums = self._sums[which]
        stream = (Stream.NEGATIVE_CONSTRAINTS, Stream.FLOW_CONSTRAINTS)[which]
        uniforms(generator(seed, stream, 0), first, u)
        return np.asarray(np.searchsorted(sums, u * sums[-1], side="right"))


Sampling = Mixture | Table


def _by_entries(measure: Callable[[Any], Floats]) -> Callable[[Rows], tuple[Floats, Floats]]:
    def densities(rows: Rows) -> tuple[Floats, Floats]:
        every = rows.every()
        q1 = measure(every.pairs)
        q2 = np.hypot(measure(every.flows), every.masses)
        # rounding alone makes a flow row of stationary features differ from 0; one without any
        # draws anywhere
        return q1, q2 if q2.any() else np.ones(q2.size)

    return densities


def _uniform(rows: Rows) -> tuple[Floats, Floats]:
    states = int(rows.model.box.count or 0)
    return np.ones(states * len(rows.model.actions)), np.ones(states)


def _look_ahead(rows: Rows) -> tuple[Floats, Floats]:
    every = rows.every()
    actions = len(rows.model.actions)
    marginal = sp.kron(
        sp.eye_array(every.flows.shape[0], format="csr"), np.ones((1, actions)), format="csr"
    )
    return _norms(every.pairs), np.hypot(_norms(marginal @ every.pairs), every.masses)


def _norms(rows: Any) -> Floats:
    return np.asarray(np.sqrt(rows.multiply(rows).sum(axis=1)), np.float64).ravel()


def _largest_ratio(norms: Floats, q: Floats) -> float:
    some = norms > 0
    return float((norms[some] / q[some]).max(initial=0.0))


def _largest(rows: Any) -> Floats:
    return np.asarray(abs(rows).max(axis=1).toarray(), np.float64).ravel()


SAMPLING_SCHEMES: dict[str, Callable[[Rows], tuple[Floats, Floats]]] = {
    "uniform": _uniform,
    "largest": _by_entries(_largest),
    "look-ahead": _look_ahead,
    "row-norms": _by_entries(_norms),
}


def table(rows: Rows, scheme: str) -> Table:
    """A scheme by name, over all pairs and states."""
    if scheme not in SAMPLING_SCHEMES:
        raise unknown("sampling", scheme, ["features", *SAMPLING_SCHEMES])
    rows.model.box.strides  # noqa: B018 - raises if states cannot be numbered
    return Table(rows, *SAMPLING_SCHEMES[scheme](rows))


def _require_overlap(norms: Floats, q: Floats, what: str) -> None:
    missed = int(np.count_nonzero((norms > 0) & ~(q > 0)))
    if missed:
        raise InputError(
            f"sampling does not overlap with the features: {missed:,} of "
            f"{np.count_nonzero(norms > 0):,} {what}s that carry features are never drawn; use "
            "sampling = 'features', or a wider set."
        )
