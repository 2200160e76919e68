"""The surrogate of the dual linear program: a convex function of a few weights, as a sum over
constraints.

Candidates are u = μ0 + Φθ: mixtures of d features with weights of any sign, on top of a base
measure μ0 = M·φ_0 if one is given. u must sum to M = 1 (average) or 1/(1−γ) (discounted), so θ sums
to M without a base and to 0 with one. With the flow residual

    f = (P − B)ᵀu                 (average),        f = (B − γP)ᵀu − α        (discounted)

and the violations V_neg = ‖[u]₋‖₁ = Σ max(−u, 0) and V_flow = ‖f‖₁ (the paper's V1, V2 and V3, V4),
the surrogate is

    c(θ) = ℓᵀu + H_neg·V_neg(θ) + H_flow·V_flow(θ),        θ in Θ = {1ᵀθ = M or 0, ‖θ‖ <= S}.

H is in units of loss times mixing time: the flow penalty is exact from about half the span of the
bias on.

*Weights over states* w(x) > 0 replace |f(x)| by w(x)·|f(x)|, and [u(x,a)]₋ likewise: the right
weight of a flow violation at x is about |h(x)|, which grows fast in a queueing network.

*A potential* h replaces ℓ by ℓ_h = ℓ + Ph − Bh (discounted: ℓ + γPh − Bh, and αᵀh is added), which
changes nothing where f = 0: with s = 1 (average) or −1 (discounted),

    c(θ) = ℓ_hᵀu (+ αᵀh) + H_neg·V_neg + H_flow·V_flow = ℓᵀu + s·fᵀh + H_neg·V_neg + H_flow·V_flow.

ℓ_hᵀφ_j is computed once, exactly where states can be listed and otherwise from draws, where
differences of h along single steps make for small errors (s·fᵀh from drawn flow rows would have
errors of the size of h).

For u >= 0 and h the bias of π_u (discounted: its cost-to-go), ℓᵀu + s·fᵀh is the exact cost of π_u.
In the dual of this program the multiplier of the flow at x is at most H from s·h(x): H is the
radius of a trust region about h. With y those multipliers, |y| <= H, the potential h' = h + s·y
(`Solution.dual_potential`) replaces the flow's penalty: by strong duality min c = min ℓ_h'ᵀu (+
αᵀh') + H_neg·V_neg.

*Limits* on measures, rows g with gᵀu <= 0 (`models/limits.py`), add ρ·max(gᵀu, 0) each, exact once
ρ exceeds the multiplier.

Both violations are sums over constraints, of pairs and of states, of a function of a sparse row
(`constraints.py`). `Constraints` holds such rows with weights: all of them with weight 1 where
states can be enumerated, or n rows drawn from a sampling distribution q (`sampling.py`) with
weights 1/(n·q), so that every sum is estimated without bias, and so are its subgradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan.core.checks import (
    is_positive,
    require_counts,
    require_numbers,
    require_positive,
    require_seed,
    require_whole,
)
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.dual.constraints import Rows
from dualplan.dual.features.contract import Features, concat
from dualplan.dual.sampling import Constants, Mixture, Sampling, table
from dualplan.models.contract import Model, require_made_for
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.models.limits import Limit, require_limits
from dualplan.values.functions import StateFunction, state_values

Penalty = float | tuple[float, float]
FEW_VIOLATED_TERMS = 50  # terms that carry a sampled violation, below which it is not to be trusted
NEGLIGIBLE_VIOLATION = 1e-9  # violation that rounding makes
KEPT_CONSTRAINT_SETS = 5  # sets of constraints: two samples, two larger ones, and one that judges


@dataclass(frozen=True, eq=False)
class Constraints:
    """Rows of both kinds with weights; `sampled` says whether sums over them are estimates.

    A pair's u is its row times θ plus `base`, a state's f its row times θ minus `masses`. `prices`
    are the weights over states. `states` are those of drawn flow rows; listed ones are those of all
    states, in order.
    """

    pairs: sp.csr_array
    pair_weights: Floats
    pair_prices: Floats
    base: Floats
    flows: sp.csr_array
    flow_weights: Floats
    flow_prices: Floats
    masses: Floats
    sampled: bool
    states: Ints | None = None


@dataclass(frozen=True, eq=False)
class Value:
    """The parts of the surrogate at a point: ℓᵀu, V_neg, V_flow, s·fᵀh, the limits' excess, and c.

    Standard errors are 0 for what is exact: violations over all constraints, losses in closed form.
    With terms t_i of a sampled violation, (Σt)²/Σt² is how many of them carry it; infinite where it
    is exact or 0.
    """

    objective: float
    negative: float
    flow: float
    total: float
    negative_error: float
    flow_error: float
    total_error: float
    objective_error: float
    shaping: float
    excess: tuple[float, ...]
    negative_effective: float = np.inf
    flow_effective: float = np.inf

    @property
    def warning(self) -> str | None:
        """Said where a few heavy constraints carry an estimate, so that neither it nor its error
        can be trusted.
        """
        for what, number, size in (
            ("negative part", self.negative_effective, self.negative),
            ("flow violation", self.flow_effective, self.flow),
        ):
            if number < FEW_VIOLATED_TERMS and size > NEGLIGIBLE_VIOLATION:
                return (
                    f"about {number:.0f} of the drawn constraints carry the {what}: its estimate "
                    "and standard error may be far off; draw more, or sample from a set of "
                    "features nearer to the problem's own."
                )
        return None


class DualALP:
    """The surrogate of a model, a feature set and a criterion."""

    def __init__(
        self,
        model: Model,
        features: Features,
        criterion: Criterion | None = None,
        *,
        base: Features | None = None,
        sampling: str | Features = "features",
        radius: float | None = None,
        weights: StateFunction | None = None,
        potential: StateFunction | None = None,
        limits: Sequence[Limit | str] = (),
        limit_penalty: float | None = None,
    ) -> None:
        """`base` is a set of one feature; `sampling` a name (`sampling.py`) or a set of features to
        draw from.

        `weights` and `potential` take states, one a row, and give a number for each. `radius` is S,
        by default 10·M. `limit_penalty` is ρ, by default a hundred times the largest expected loss
        over the size of a limit's row.
        """
        if not isinstance(features, Features):
            raise InputError(f"features are made by dualplan.dual.features, got {features!r}.")
        criterion = require_criterion(criterion)
        others = [given for given in (base, sampling) if isinstance(given, Features)]
        for given in (features, *others):
            require_made_for(model, given.model, "set of features")
        if base is not None and len(base) != 1:
            raise InputError(f"the base measure is a single feature, got {len(base)}.")
        self.model = model
        self.features = features
        self.criterion = criterion
        self.base = base
        self._scheme = sampling
        self.rows = Rows(model, concat(features, *others), self.criterion)
        self.gamma, self.starts, self.alpha = self.rows.gamma, self.rows.starts, self.rows.alpha
        if isinstance(self.criterion, Discounted):
            self.total = 1 / (1 - self.gamma)
        else:
            self.total = 1.0
        if base is None:
            self.mass = self.total
        else:
            self.mass = 0.0
        self.radius = self._radius(radius)
        self.weights = weights
        self.potential = potential
        self.slope, self.intercept, self.slope_errors = self._shaped()
        self._kept: dict[tuple[int | None, int, int], Constraints] = {}
        self.limits = require_limits(limits)
        self.limit_rows, self.limit_base, self.limit_errors = self._limit_rows()
        self.limit_penalty = self._limit_penalty(limit_penalty)
        if not isinstance(sampling, Features) and sampling != "features":
            self.sampling  # noqa: B018 - whatever is wrong with it is said before any work

    def _radius(self, radius: float | None) -> float:
        least = self.mass / np.sqrt(len(self.features))
        if radius is None:
            value = 10.0 * self.total
        else:
            value = radius
        require_numbers(radius=value)
        if not value >= least or value <= 0:
            raise InputError(
                f"no θ has norm at most {value:g} and sum {self.mass:g}; radius must be >= "
                f"{least:.6g}."
            )
        return float(value)

    @property
    def losses(self) -> Floats:
        """ℓᵀφ_j."""
        return self.features.losses

    def _shaped(self) -> tuple[Floats, float, Floats]:
        """ℓ_hᵀφ_j, the rest of the objective at θ = 0, and the standard errors of the former."""
        d = len(self.features)
        potential = self.potential
        changes = np.zeros(d + 1)
        errors = np.zeros(d)
        constant = 0.0
        if potential is not None:
            found, spread = self.rows.shaping(lambda x: state_values(potential, x, "potential"))
            changes = found[: d + 1]
            errors = spread[:d]
            if self.alpha.size:
                constant = float(self.alpha @ state_values(potential, self.starts, "potential"))
            else:
                constant = 0.0
        if self.base is not None:
            constant += self.total * (float(self.base.losses[0]) + float(changes[d]))
        return self.losses + changes[:d], constant, self.features.errors + errors

    @property
    def base_loss(self) -> float:
        """ℓᵀμ0."""
        if self.base is None:
            return 0.0
        return self.total * float(self.base.losses[0])

    # -- sampling ----------------------------------------------------------------------------------

    @cached_property
    def sampling(self) -> Sampling:
        """Where constraints are drawn from."""
        own = len(self.features) + (self.base is not None)
        if isinstance(self._scheme, Features):
            return Mixture(self.rows, own, own + len(self._scheme), own)
        if self._scheme == "features":
            return Mixture(self.rows, 0, own, own)
        return table(self.rows, self._scheme)

    @property
    def constants(self) -> Constants:
        """(C1, C2) or (C3, C4)."""
        return self.sampling.constants

    # -- Θ -----------------------------------------------------------------------------------------

    def starting_point(self, theta: Floats) -> Floats:
        """The point of Θ nearest to weights from elsewhere, such as those found for another
        penalty.
        """
        try:
            weights = np.asarray(theta, np.float64)
        except (TypeError, ValueError):
            weights = np.full(0, np.nan)
        if weights.shape != (len(self.features),) or not np.isfinite(weights).all():
            raise InputError(
                f"a start is a θ with a finite weight for each of {len(self.features)} features."
            )
        return self.project(weights)

    def project(self, theta: Floats) -> Floats:
        """The point of Θ nearest to θ: onto the plane, then towards its point nearest to 0, which
        is exact.
        """
        centre = self.mass / theta.size
        offset = theta - theta.mean()
        room = np.sqrt(max(self.radius**2 - theta.size * centre**2, 0.0))
        length = float(np.linalg.norm(offset))
        return np.asarray(centre + offset * (min(1.0, room / length) if length > 0 else 1.0))

    # -- constraints -------------------------------------------------------------------------------

    def draw(
        self, count: int, *, seed: int = 0, first: int = 0, threads: int | None = None
    ) -> Constraints:
        """`count` constraints of each kind, numbered from `first`.

        a number always gives the same constraint.
        """
        require_counts(count=count)
        require_whole("first", first)
        require_seed(seed)
        if self.weights is None:
            prices = None
        else:
            prices = self._prices
        drawn = self.sampling.draw(count, seed=seed, first=first, threads=threads, prices=prices)
        weights = 1 / (count * drawn.pair_densities), 1 / (count * drawn.flow_densities)
        found = drawn.pair_prices, drawn.flow_prices
        return self._constraints(
            drawn.pairs, drawn.flows, drawn.masses, weights, found, drawn.states
        )

    def _prices(self, states: Ints) -> Floats:
        """The weights over states, which must be positive."""
        if self.weights is None:
            prices = np.ones(len(states))
        else:
            prices = state_values(self.weights, states, "weights")
        if (prices <= 0).any():
            raise InputError("the weights over states must be positive.")
        return prices

    def enumerate(self, threads: int | None = None) -> Constraints:
        """All constraints of a model whose states can be enumerated."""
        every = self.rows.every(threads=threads)
        kept = np.flatnonzero(np.diff(every.pairs.indptr))  # other pairs cannot be negative
        pairs = sp.csr_array(every.pairs[kept])
        count = every.masses.size
        numbers = kept // len(self.model.actions), np.arange(count)
        weights = np.ones(kept.size), np.ones(count)
        prices = weights
        if self.weights is not None:
            prices = (
                self._prices(self.model.box.states(numbers[0])),
                self._prices(self.model.box.states(numbers[1])),
            )
        return self._constraints(pairs, every.flows, every.masses, weights, prices)

    def kept(self, count: int | None = None, *, seed: int = 0, first: int = 0) -> Constraints:
        """All constraints, or `count` drawn ones, kept for the next penalty: none of them depends
        on it.
        """
        key = count, seed, first
        if key not in self._kept:
            if count is None:
                rows = self.enumerate()
            else:
                rows = self.draw(count, seed=seed, first=first)
            self._kept = dict([*self._kept.items(), (key, rows)][-KEPT_CONSTRAINT_SETS:])
        return self._kept[key]

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_kept": {},
        }  # a worker draws for itself, which is faster than sending

    def _constraints(
        self,
        pairs: sp.csr_array,
        flows: sp.csr_array,
        masses: Floats,
        weights: tuple[Floats, Floats],
        prices: tuple[Floats, Floats],
        drawn: Ints | None = None,
    ) -> Constraints:
        """The rows of the features themselves, with what the base measure and the weights make of
        them.
        """
        d = len(self.features)
        base = np.zeros(weights[0].size)
        if self.base is not None:
            base = self.total * pairs[:, [d]].toarray().ravel()
            masses = masses - self.total * flows[:, [d]].toarray().ravel()
        if pairs.shape[1] > d:
            pairs = sp.csr_array(pairs[:, :d])
            flows = sp.csr_array(flows[:, :d])
        return Constraints(
            pairs,
            weights[0],
            prices[0],
            base,
            flows,
            weights[1],
            prices[1],
            masses,
            drawn is not None,
            drawn,
        )

    # -- limits ------------------------------------------------------------------------------------

    def _limit_rows(self) -> tuple[Floats, Floats, Floats]:
        """gᵀφ_j a limit and a feature, gᵀμ0, and the standard errors of the former."""
        rows, errors = self.rows.limits(self.limits)
        d = len(self.features)
        if self.base is None:
            base = np.zeros(len(self.limits))
        else:
            base = self.total * rows[:, d]
        return rows[:, :d], base, errors[:, :d]

    def _limit_penalty(self, given: float | None) -> Floats:
        if given is not None:
            require_positive(limit_penalty=given)
        sizes = np.abs(self.limit_rows).max(axis=1, initial=0.0)
        unit = float(np.abs(self.losses).max()) or 1.0
        automatic = 100 * unit / np.where(sizes > 0, sizes, 1.0)
        if given is None:
            return automatic
        return np.full(len(self.limits), float(given))

    # -- c(θ) --------------------------------------------------------------------------------------

    def value(self, theta: Floats, penalty: Penalty, constraints: Constraints) -> Value:
        """c(θ) and its parts, over all constraints or estimated from a sample."""
        on_negative, on_flow = penalties(penalty)
        c = constraints
        theta = self.checked(theta)
        negative = np.maximum(-(c.pairs @ theta + c.base), 0.0) * c.pair_weights
        flow = np.abs(c.flows @ theta - c.masses) * c.flow_weights
        priced = on_negative * negative * c.pair_prices, on_flow * flow * c.flow_prices
        errors = [
            float(terms.std() * np.sqrt(terms.size)) if c.sampled else 0.0
            for terms in (negative, flow, *priced)
        ]
        objective = float(self.losses @ theta) + self.base_loss
        excess = np.maximum(self.limit_rows @ theta + self.limit_base, 0.0)
        shaped = float(self.slope @ theta) + self.intercept
        total = shaped + float(priced[0].sum() + priced[1].sum() + self.limit_penalty @ excess)
        # expected losses and limits that were estimated may all err to the same side
        sizes = np.abs(theta)
        linear = float(self.slope_errors @ sizes + self.limit_penalty @ (self.limit_errors @ sizes))
        return Value(
            objective,
            float(negative.sum()),
            float(flow.sum()),
            total,
            errors[0],
            errors[1],
            float(np.hypot(errors[2], errors[3])) + linear,
            float(self.features.errors @ sizes),
            shaped - objective,
            tuple(excess.tolist()),
            *(_effective(terms) if c.sampled else np.inf for terms in (negative, flow)),
        )

    def checked(self, theta: Floats) -> Floats:
        """θ, if it has a finite weight for each feature."""
        weights = np.asarray(theta, np.float64)
        if weights.shape != (len(self.features),) or not np.isfinite(weights).all():
            raise InputError(f"θ has a finite weight for each of {len(self.features)} features.")
        return weights

    def subgradient(self, theta: Floats, penalty: Penalty, constraints: Constraints) -> Floats:
        """A subgradient of c at θ, or an unbiased estimate of one (0 where a term has a kink)."""
        on_negative, on_flow = penalties(penalty)
        c = constraints
        theta = self.checked(theta)
        below = (c.pairs @ theta + c.base < 0) * c.pair_weights * c.pair_prices
        signs = np.sign(c.flows @ theta - c.masses) * c.flow_weights * c.flow_prices
        over = (self.limit_rows @ theta + self.limit_base > 0) * self.limit_penalty
        return np.asarray(
            self.slope
            - on_negative * (c.pairs.T @ below)
            + on_flow * (c.flows.T @ signs)
            + self.limit_rows.T @ over
        )


def _effective(terms: Floats) -> float:
    """How many equal terms would have the same relative variance."""
    largest = float(terms.max(initial=0.0))
    if not largest > 0:
        return np.inf
    scaled = terms / largest
    return float(scaled.sum() ** 2 / (scaled * scaled).sum())


def penalties(penalty: Penalty) -> tuple[float, float]:
    """H of the negative part and of the flow."""
    if isinstance(penalty, (tuple, list)):
        pair = tuple(penalty)
    else:
        pair = (penalty, penalty)
    if len(pair) != 2 or not all(map(is_positive, pair)):
        raise InputError(
            f"the penalty H must be positive, or two positive numbers, got {penalty!r}."
        )
    return float(pair[0]), float(pair[1])
