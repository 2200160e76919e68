"""Means over the transitions of the reference, and how well they are known.

Every mean over transitions is one of ratios times numbers, so all that θ needs are sums over the
transitions, for each of several independent trajectories (`Moments`): their memory does not grow
with the number of transitions. V_neg needs the different rows r(x,a) that occurred and how often.
Standard errors come from the independent trajectories. Where episodes end, M̂ = 1/D̄ is random too,
D̄ the mean over trajectories of their D_r, the mean of 1 − γ: for a mean A_r, the estimate T = Ā/D̄
has the errors of the values M̂·A_r + T·(1 − M̂·D_r), whose mean is T (delta method). Starts that
are only seen are a quotient as well, of what trajectories began with and how often they began, and
are treated alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from dualplan.core.errors import InputError
from dualplan.core.intervals import Interval, growth, too_short
from dualplan.core.status import Status
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.simulation import REPLICAS, Recorded
from dualplan.models.criteria import Discounted
from dualplan.values.functions import state_values

if TYPE_CHECKING:
    from dualplan.dual.simulated.problem import SimulatedALP

TRANSITIONS_AT_ONCE = 20_000  # transitions of one trajectory that are held at once
PIECES_OF_A_TRAJECTORY = 16  # of each trajectory, by which growth is judged


@dataclass(frozen=True, eq=False)
class Sample:
    """Transitions as rows with weights: ratios, γ y(x') − y(x), losses and shaped losses, and 1 −
    γ.
    """

    weights: Floats
    rows: sp.csr_array
    tests: sp.csr_array
    losses: Floats
    shaped: Floats
    leaving: Floats
    anchors: sp.csr_array


@dataclass(frozen=True, eq=False)
class Moments:
    """Means over each of several trajectories of `count` transitions.

    `mass`, `losses` and `shaped` are of ratios, times (1 − γ)·M, ℓ and the shaped ℓ; `flows` of γ
    y(x') − y(x) times ratios, a matrix for each trajectory. `rows` are the different rows of
    ratios, `shares` how often each occurred. `leaving` is M·E[1 − γ], 1 where no episode ends.
    `starts` is αᵀy, a row for each trajectory, and `potential` αᵀh: all alike unless starts are
    estimated. `reference` is the mean loss of the reference. `anchors` are of ratios in each cell
    of the anchor, a row a cell, over all trajectories, and `anchored` the reference's shares of the
    cells.
    """

    count: int
    total: float
    mass: Floats
    losses: Floats
    shaped: Floats
    flows: tuple[sp.csr_array, ...]
    rows: sp.csr_array
    shares: Floats
    leaving: Floats
    starts: Floats
    potential: Floats
    reference: Floats
    status: Status
    anchors: sp.csr_array
    anchored: Floats

    @property
    def samples(self) -> int:
        """All transitions."""
        return self.count * len(self.mass)

    def scaled(self, means: Floats) -> Floats:
        """M times means, one for each trajectory along the first axis, with the error of M in each
        (delta method).
        """
        values = self.total * means
        return np.asarray(values + np.multiply.outer(1.0 - self.leaving, values.mean(axis=0)))


@dataclass(frozen=True, eq=False)
class Estimates:
    """The parts of the surrogate at θ, with intervals over independent trajectories.

    `flow` is a lower bound of V_flow, with signs from other trajectories than the residuals;
    `flow_seen` is the maximum on the sample itself, which is too large on average. `effective` is
    the effective share of the sample.
    """

    objective: Interval
    shaped: Interval
    mass: Interval
    negative: Interval
    flow: Interval
    total: Interval
    flow_seen: float
    effective: float


def residuals(moments: Moments, theta: Floats) -> Floats:
    """M·E[g (γ y(x') − y(x))] + αᵀy, a row for each trajectory, a column for each test function."""
    return moments.scaled(np.array([flow @ theta for flow in moments.flows])) + moments.starts


class Sums:
    """Sums over the transitions of each trajectory so far."""

    def __init__(self, problem: SimulatedALP) -> None:
        d = len(problem.ratios)
        k = len(problem.tests)
        self.problem = problem
        self.mass, self.losses, self.shaped = (np.zeros((REPLICAS, d)) for _ in range(3))
        self.flows = [sp.csr_array((k, d)) for _ in range(REPLICAS)]
        self.reference = np.zeros(REPLICAS)
        self.leaving = np.zeros(REPLICAS)
        self.rows = [sp.csr_array((0, d))]
        self.counts: list[Floats] = [np.zeros((REPLICAS, 0))]
        self.pieces: list[Floats] = []
        self.starts: list[list[Ints]] = [[] for _ in range(REPLICAS)]
        if problem.anchor is None:
            size = 0
        else:
            size = len(problem.anchor)
        self.anchors = sp.csr_array((size, d))
        self.anchored = np.zeros(size)

    def add(self, chunk: list[tuple[Recorded, Sample]]) -> None:
        """The next transitions of every trajectory."""
        discounted = self.problem.restarts.gamma < 1
        counts = []
        rows = []
        for r, (recorded, sample) in enumerate(chunk):
            weighted = sp.csr_array(sp.diags_array(sample.weights) @ sample.rows)
            transposed = weighted.T
            self.mass[r] += transposed @ (
                sample.leaving if discounted else np.ones(sample.losses.size)
            )
            self.losses[r] += transposed @ sample.losses
            self.shaped[r] += transposed @ sample.shaped
            self.flows[r] = sp.csr_array(self.flows[r] + sample.tests.T @ weighted)
            self.anchors = sp.csr_array(self.anchors + sample.anchors.T @ weighted)
            self.anchored += sample.anchors.T @ sample.weights
            self.reference[r] += sample.losses @ sample.weights
            self.leaving[r] += sample.leaving @ sample.weights
            self.starts[r].append(recorded.first)
            different, where = _merged(sample.rows)
            own = np.bincount(where, sample.weights, different.shape[0])
            rows.append(different)
            counts.append(own)
        self.pieces.append(np.stack([_pieces(self.problem, recorded) for recorded, _ in chunk]))
        spread = np.zeros((REPLICAS, sum(c.size for c in counts)))
        places = np.cumsum([0, *(c.size for c in counts)])
        for r, own in enumerate(counts):
            spread[r, places[r] : places[r + 1]] = own
        merged, where = _merged(sp.csr_array(sp.vstack([*self.rows, *rows], format="csr")))
        both = np.hstack([*self.counts, spread])
        total = np.zeros((REPLICAS, merged.shape[0]))
        for r in range(REPLICAS):
            total[r] = np.bincount(where, both[r], merged.shape[0])
        self.rows = [merged]
        self.counts = [total]

    def moments(self) -> Moments:
        """Means, once trajectories have been found to settle."""
        problem = self.problem
        n = self.problem.each
        starts = np.zeros((REPLICAS, len(problem.tests)))
        potential = np.zeros(REPLICAS)
        total = 1.0
        leaving = np.ones(REPLICAS)
        if problem.restarts.gamma < 1:
            total = n * REPLICAS / float(self.leaving.sum())
            leaving = self.leaving * (total / n)
            states, weights = self._start()
            starts = np.asarray((problem.tests(states).T @ weights.T).T)
            if problem.potential is not None:
                potential = weights @ state_values(problem.potential, states, "potential")
        if problem.restarts.gamma < 1:
            mass = self.mass * total
        else:
            mass = self.mass
        return Moments(
            n,
            total,
            mass / n,
            self.losses / n,
            self.shaped / n,
            tuple(sp.csr_array(flow / n) for flow in self.flows),
            self.rows[0],
            self.counts[0] / n,
            leaving,
            starts,
            potential,
            self.reference / n,
            self._status(),
            sp.csr_array(self.anchors / (n * REPLICAS)),
            self.anchored / (n * REPLICAS),
        )

    def _start(self) -> tuple[Ints, Floats]:
        """The law of the starts, a row for each trajectory: as given, or as the simulator drew
        them.
        """
        if not self.problem.hidden:
            return self.problem.restarts.starts, np.tile(
                self.problem.restarts.weights, (REPLICAS, 1)
            )
        found = [np.concatenate(own) for own in self.starts]
        states, where = np.unique(np.concatenate(found), axis=0, return_inverse=True)
        if not len(states):
            raise InputError(
                "no trajectory began anew, so nothing is known of the starts; allow more samples."
            )
        counts = np.zeros((REPLICAS, len(states)))
        np.add.at(
            counts,
            (np.repeat(np.arange(REPLICAS), [len(own) for own in found]), where.ravel()),
            1.0,
        )
        law = counts.sum(axis=0) / counts.sum()
        often = counts.sum(axis=1, keepdims=True)
        return states, law + (counts - often * law) * (REPLICAS / counts.sum())

    def _status(self) -> Status:
        """How the trajectories look; references that are not stable are an error."""
        problem = self.problem
        rows = np.concatenate(self.pieces, axis=1)
        if isinstance(problem.criterion, Discounted):
            return Status.COMPLETED
        drift = growth(rows[:, :, 2] / rows[:, :, 0], int(rows[0, 0, 0]) * problem.every)
        if drift.unstable:
            raise InputError(
                f"under the reference {problem.ratios.reference.name!r} the state grows by about "
                f"{drift.per_step:.3g} a step, so it has no occupancy; choose a stable reference, "
                "or allow a longer warm_up."
            )
        low, high = problem.model.loss_bounds or (-np.inf, np.inf)
        if low < high and too_short(rows, 0, column=1):
            return Status.TOO_SHORT
        return Status.COMPLETED


def _pieces(problem: SimulatedALP, recorded: Recorded) -> Floats:
    """Steps, losses and the size of the state in pieces of a trajectory."""
    count = recorded.losses.size
    length = max(
        1,
        problem.each // PIECES_OF_A_TRAJECTORY
        if problem.each < TRANSITIONS_AT_ONCE
        else TRANSITIONS_AT_ONCE // PIECES_OF_A_TRAJECTORY,
    )
    ends = np.arange(0, count - count % length, length)
    size = recorded.states[:, problem.model.growing].sum(axis=1)
    columns = np.column_stack([np.ones(count), recorded.losses, size])[: count - count % length]
    if ends.size:
        return np.add.reduceat(columns, ends)
    return np.zeros((0, 3))


def _merged(rows: sp.csr_array) -> tuple[sp.csr_array, Ints]:
    """The different rows, and for each row the number of its like: rows are alike if their entries
    are, bit by bit.
    """
    own = rows.copy()
    own.sum_duplicates()  # and sorts
    own.eliminate_zeros()
    sizes = np.diff(own.indptr)
    filled = np.arange(max(1, int(sizes.max(initial=0)))) < sizes[:, None]
    places = np.full(filled.shape, -1, np.int64)
    bits = np.zeros(filled.shape)
    places[filled] = own.indices
    bits[filled] = own.data
    table = np.hstack([places, bits.view(np.int64)])
    keys = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    return sp.csr_array(own[first]), where.ravel()
