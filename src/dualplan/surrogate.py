"""The surrogate of the dual linear program: a convex function of a few weights, as a sum over constraints.

Candidates are u = Φθ, mixtures of d features with weights of any sign. With the flow residual

    f = (P − B)ᵀu                 (average),        f = (B − γP)ᵀu − α        (discounted)

and the violations V_neg = ‖[u]₋‖₁ = Σ max(−u, 0) and V_flow = ‖f‖₁ (the paper's V1, V2 and V3, V4), the surrogate is

    c(θ) = ℓᵀΦθ + H_neg·V_neg(θ) + H_flow·V_flow(θ).

H is in units of loss times mixing time: the flow penalty is exact from about half the span of the bias on. θ lies in
Θ = {1ᵀθ = M, ‖θ‖ <= S}, since every feature sums to 1 and u must sum to M = 1 (average) or 1/(1−γ) (discounted).

Both violations are sums over constraints, of pairs and of states, of a function of a sparse row of Φ or of the flow:

    V_neg = Σ_(x,a) max(−Φ_(x,a)θ, 0),        V_flow = Σ_y |F_yθ − α(y)|.

`Constraints` holds such rows with weights: all of them with weight 1 where states can be enumerated, or n rows drawn
from a sampling distribution q with weights 1/(n·q), so that every sum is estimated without bias, and so are its
subgradients. The default q needs no knowledge: with φ̄ = (1/d)Σφ_j,

    q_neg = φ̄,        q_flow = ½(Bᵀφ̄ + Pᵀφ̄)        or        ½α + ½(Bᵀφ̄ + γPᵀφ̄)/(1+γ)

and then ‖Φ_(x,a)‖/q_neg <= d and ‖F_y‖/q_flow <= 2d, or 2(1+γ)d, at every pair and state: a row's norm is at most the
sum of its entries, Σ_j φ_j(x,a) = d·φ̄(x,a), and likewise |F_y| is at most d times (Bᵀφ̄ + γPᵀφ̄)(y) in sum.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import constraints as kernels
from dualplan._kernels.philox import generator
from dualplan.criteria import Average, Criterion, Discounted
from dualplan.errors import InputError, MissingError
from dualplan.features.contract import Features
from dualplan.simulation import in_parallel
from dualplan.types import Floats, Ints

CHUNK = 4_096  # rows drawn or listed at once
NEGATIVE, FLOW = 21, 22  # streams of random numbers


@dataclass(frozen=True, eq=False)
class Constraints:
    """Rows of both kinds of constraints with weights; `sampled` says whether sums over them are estimates."""

    pairs: sp.csr_array
    pair_weights: Floats
    flows: sp.csr_array
    flow_weights: Floats
    masses: Floats  # α at the states of the flow rows
    sampled: bool


@dataclass(frozen=True, eq=False)
class Value:
    """The parts of the surrogate at a point; standard errors are 0 where all constraints were listed."""

    objective: float
    negative: float
    flow: float
    total: float
    negative_error: float
    flow_error: float


class DualALP:
    """The surrogate of a model, a feature set and a criterion."""

    def __init__(
        self, model: Any, features: Features, criterion: Criterion | None = None, *, radius: float | None = None
    ) -> None:
        if features.model.digest != model.digest:
            raise InputError(f"the features belong to {features.model.name!r}, not to {model.name!r}.")
        if not model.has_predecessors:
            raise MissingError(f"model {model.name!r} has no predecessors: {model.why_no_predecessors}.")
        self.model, self.features, self.criterion = model, features, criterion or Average()
        discounted = isinstance(self.criterion, Discounted)
        self.gamma = self.criterion.gamma if isinstance(self.criterion, Discounted) else 1.0
        self.mass = 1 / (1 - self.gamma) if discounted else 1.0
        self.starts: Ints = np.zeros((0, model.box.dim), np.int64)
        self.alpha: Floats = np.zeros(0)
        if isinstance(self.criterion, Discounted):
            self.starts, self.alpha = self.criterion.start_distribution(model)
        least = self.mass / np.sqrt(len(features))
        self.radius = 10.0 * self.mass if radius is None else float(radius)
        if not self.radius >= least:
            raise InputError(
                f"no θ has norm at most {self.radius:g} and sum {self.mass:g}; radius must be >= {least:.6g}."
            )

    @property
    def losses(self) -> Floats:
        """ℓᵀφ_j."""
        return self.features.losses

    @cached_property
    def constants(self) -> tuple[float, float]:
        """Proved bounds on ‖row‖/q for the default sampling distributions: (C1, C2) or (C3, C4)."""
        d = len(self.features)
        return float(d), 2.0 * (1 + self.gamma) * d if self.alpha.size else 2.0 * d

    # -- Θ ----------------------------------------------------------------------------------------------------------

    def project(self, theta: Floats) -> Floats:
        """The point of Θ nearest to θ: onto the plane, then towards its point nearest to 0, which is exact."""
        centre = self.mass / theta.size
        offset = theta - theta.mean()
        room, length = np.sqrt(max(self.radius**2 - theta.size * centre**2, 0.0)), float(np.linalg.norm(offset))
        return np.asarray(centre + offset * (min(1.0, room / length) if length > 0 else 1.0))

    # -- constraints ------------------------------------------------------------------------------------------------

    @property
    def _signs(self) -> tuple[float, float]:
        return (1.0, -self.gamma) if self.alpha.size else (-1.0, 1.0)

    @property
    def _row_width(self) -> int:
        reach = self.model.code.max_predecessors + len(self.model.actions)
        return int(min(len(self.features), reach * self.features.widest))

    def draw(self, count: int, *, seed: int = 0, first: int = 0, threads: int | None = None) -> Constraints:
        """`count` constraints of each kind, numbered from `first`; a number always gives the same constraint."""
        if count < 1:
            raise InputError(f"the number of constraints must be positive, got {count!r}.")
        edges = [*range(first, first + count, CHUNK), first + count]
        ranges = list(itertools.pairwise(edges))
        pairs = in_parallel([partial(self._draw_pairs, seed, a, b) for a, b in ranges], threads)
        flows = in_parallel([partial(self._draw_flows, seed, a, b) for a, b in ranges], threads)
        return Constraints(
            sp.csr_array(sp.vstack([rows for rows, _ in pairs])),
            1 / (count * np.concatenate([q for _, q in pairs])),
            sp.csr_array(sp.vstack([rows for rows, _, _ in flows])),
            1 / (count * np.concatenate([q for _, q, _ in flows])),
            np.concatenate([mass for _, _, mass in flows]),
            True,
        )

    def _draw_pairs(self, seed: int, first: int, last: int) -> tuple[sp.csr_array, Floats]:
        size, width, f = last - first, self.features.widest, self.features.code
        indices, values = np.empty((size, width), np.int64), np.empty((size, width))
        states, actions = np.empty((size, self.model.box.dim), np.int64), np.empty(size, np.int64)
        counts, densities = np.zeros(size, np.int64), np.zeros(size)
        rng = generator(seed, NEGATIVE, 0)
        fault = kernels.draw_pairs(
            f.row, f.draw, f.ints, f.floats, rng, states, actions, indices, values, counts, densities, first, last
        )
        if fault >= 0:
            raise InputError(
                "a pair was drawn at which all features are 0: sampling does not overlap with the features."
            )
        return self._compact(indices, values, counts), densities

    def _draw_flows(self, seed: int, first: int, last: int) -> tuple[sp.csr_array, Floats, Floats]:
        size, width, f, code = last - first, self._row_width, self.features.code, self.model.code
        indices, values = np.empty((size, width), np.int64), np.empty((size, width))
        states, counts = np.empty((size, self.model.box.dim), np.int64), np.zeros(size, np.int64)
        masses, densities = np.zeros(size), np.zeros(size)
        on_b, on_p = self._signs
        fault = kernels.draw_flows(
            code.allowed, code.step, code.predecessors, f.row, f.draw, code.ints, code.floats, f.ints, f.floats,
            len(self.model.actions), code.max_predecessors, self.features.widest, on_b, on_p,
            0.5 if self.alpha.size else 0.0, self.starts, self.alpha, generator(seed, FLOW, 0), states, indices, values,
            counts, masses, densities, first, last,
        )  # fmt: skip
        if fault >= 0:
            self.model.predecessors(states[fault - first])  # raises, if there are too many
            raise InputError("a state was drawn at which sampling does not overlap with the features.")
        return self._compact(indices, values, counts), densities, masses

    def _compact(self, indices: Ints, values: Floats, counts: Ints) -> sp.csr_array:
        used = np.arange(indices.shape[1]) < counts[:, None]
        ends = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_array((values[used], indices[used], ends), shape=(counts.size, len(self.features)))

    def enumerate(self, threads: int | None = None) -> Constraints:
        """All constraints of a model whose states can be enumerated."""
        self.model.box.strides  # noqa: B018 - raises if they cannot
        count = int(self.model.box.count or 0)
        edges = [*range(0, count, CHUNK), count]
        parts = in_parallel([partial(self._all_rows, a, b) for a, b in itertools.pairwise(edges)], threads)
        pairs = sp.csr_array(sp.vstack([rows for rows, _, _ in parts]))
        flows = sp.csr_array(sp.vstack([rows for _, rows, _ in parts]))
        kept = np.diff(pairs.indptr) > 0  # other pairs cannot be negative
        masses = np.concatenate([mass for _, _, mass in parts])
        rows = sp.csr_array(pairs[kept])
        return Constraints(rows, np.ones(rows.shape[0]), flows, np.ones(flows.shape[0]), masses, False)

    def _all_rows(self, first: int, last: int) -> tuple[sp.csr_array, sp.csr_array, Floats]:
        size, f, code, box = last - first, self.features.code, self.model.code, self.model.box
        actions, widest = len(self.model.actions), self.features.widest
        pair_size, flow_size = size * actions * widest + widest, (size + 1) * self._row_width
        pair_indices, pair_values = np.empty(pair_size, np.int64), np.empty(pair_size)
        flow_indices, flow_values = np.empty(flow_size, np.int64), np.empty(flow_size)
        pair_ends, flow_ends, masses = (
            np.zeros(size * actions + 1, np.int64),
            np.zeros(size + 1, np.int64),
            np.zeros(size),
        )
        on_b, on_p = self._signs
        fault = kernels.all_rows(
            code.allowed, code.predecessors, f.row, code.ints, code.floats, f.ints, f.floats, box.lower, box.upper,
            actions, code.max_predecessors, widest, on_b, on_p, self.starts, self.alpha, pair_indices, pair_values,
            pair_ends[1:], flow_indices, flow_values, flow_ends[1:], masses, first, last,
        )  # fmt: skip
        if fault >= 0:
            self.model.predecessors(box.state(int(fault)))
        d = len(self.features)
        pairs = sp.csr_array((pair_values[: pair_ends[-1]], pair_indices[: pair_ends[-1]], pair_ends),
                             shape=(size * actions, d))  # fmt: skip
        flows = sp.csr_array((flow_values[: flow_ends[-1]], flow_indices[: flow_ends[-1]], flow_ends), shape=(size, d))
        return pairs, flows, masses

    # -- c(θ) ---------------------------------------------------------------------------------------------------------

    def value(self, theta: Floats, penalty: float | tuple[float, float], constraints: Constraints) -> Value:
        """c(θ) and its parts, over all constraints or estimated from a sample."""
        on_negative, on_flow = penalties(penalty)
        negative = np.maximum(-(constraints.pairs @ theta), 0.0) * constraints.pair_weights
        flow = np.abs(constraints.flows @ theta - constraints.masses) * constraints.flow_weights
        errors = [
            float(terms.std() * np.sqrt(terms.size)) if constraints.sampled else 0.0 for terms in (negative, flow)
        ]
        objective, v, w = float(self.losses @ theta), float(negative.sum()), float(flow.sum())
        return Value(objective, v, w, objective + on_negative * v + on_flow * w, *errors)

    def subgradient(self, theta: Floats, penalty: float | tuple[float, float], constraints: Constraints) -> Floats:
        """A subgradient of c at θ, or an unbiased estimate of one (0 where a term has a kink)."""
        on_negative, on_flow = penalties(penalty)
        below = (constraints.pairs @ theta < 0) * constraints.pair_weights
        signs = np.sign(constraints.flows @ theta - constraints.masses) * constraints.flow_weights
        return np.asarray(
            self.losses - on_negative * (constraints.pairs.T @ below) + on_flow * (constraints.flows.T @ signs)
        )


def penalties(penalty: float | tuple[float, float]) -> tuple[float, float]:
    """H of the negative part and of the flow."""
    pair = penalty if isinstance(penalty, tuple) else (penalty, penalty)
    if len(pair) != 2 or not all(np.isfinite(h) and h > 0 for h in pair):
        raise InputError(f"the penalty H must be positive, got {penalty!r}.")
    return float(pair[0]), float(pair[1])
