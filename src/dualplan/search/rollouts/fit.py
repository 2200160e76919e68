"""Values that have the differences of a sample.

h ≈ Ψw by weighted ridge regression on differences: with z = Ψ(y) − Ψ(y'), D the estimate and c its
weight,

    min_w Σ c (zᵀw − D)² + ρ wᵀ diag(Σ c zzᵀ) w.

c is how much the probability of y depends on the action, over the mean squared error of pairs of
like size in a first fit. The ridge ρ has the least error at states that were held out from the fit.
R² and the agreement of signs are those at states that had no part in either: there D is a fresh
estimate, without bias but for the horizon.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualplan.core.streams import RolloutWord
from dualplan.core.types import Floats, Ints, Json
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion
from dualplan.policies.contract import Policy
from dualplan.policies.greedy import GreedyPolicy
from dualplan.search.rollouts.alternatives import has_event
from dualplan.search.rollouts.coupled import MOST_COUPLED_STEPS
from dualplan.search.rollouts.sample import RolloutSample, rollout_sample
from dualplan.values.basis import (
    Basis,
    LinearValues,
    boundaries,
    concat,
    least_squares,
    monomials,
    tensor,
)
from dualplan.values.contract import CompiledValues

# of the states that choose the ridge, and that check the fit
CHOOSING_AND_CHECKING_SHARES = (0.15, 0.15)
TRIED_RIDGES = tuple(10.0**k for k in range(-6, 2))
BINS_OF_PAIRS = 10  # of pairs of like size
FIRST_RIDGE = 1e-2
LEAST_ERROR_SHARE = 1e-2  # of the mean squared error: no row counts for more than one over it
MOST_CUBIC_COORDINATES = 8  # coordinates up to which there are cubic bases


@dataclass(frozen=True, eq=False)
class RolloutFit:
    """Ψw fitted to differences, and what held-out states say of it.

    `r_squared` is the share of the (weighted) squares of held-out differences that the fit
    explains; the noise of single rollouts counts against it. `agreement` is the share of held-out
    states where the action that the fit finds best is better than the one it finds worst by the
    fresh estimate too (ties count half). `gain` is the mean of Q(x, π) − Q(x, greedy) there,
    `gain_error` its standard error. All are statistical.
    """

    values: LinearValues
    criterion: Criterion
    within: Policy | None
    r_squared: float
    agreement: float
    gain: float
    gain_error: float
    ridge: float
    states: int
    met: float
    steps: int
    seconds: float
    seed: int

    def policy(self, name: str = "rollouts") -> GreedyPolicy:
        """The greedy policy of the values."""
        model = self.values.basis.model
        return GreedyPolicy(model, self.values, self.criterion.gamma, name=name, within=self.within)

    def to_json(self) -> Json:
        """Everything but the weights, as plain values."""
        return {
            "functions": len(self.values.basis),
            "within": None if self.within is None else self.within.name,
            "r_squared": self.r_squared,
            "agreement": self.agreement,
            "gain": self.gain,
            "gain_error": self.gain_error,
            "ridge": self.ridge,
            "states": self.states,
            "met": self.met,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
        }


@dataclass(frozen=True, eq=False)
class _Rows:
    """The regression: z, D, c and the state of each outcome that is not the first of its state."""

    changes: Floats
    targets: Floats
    weights: Floats
    state: Ints

    def part(self, states: Ints) -> _Rows:
        """The rows of these states."""
        kept = np.isin(self.state, states)
        return _Rows(self.changes[kept], self.targets[kept], self.weights[kept], self.state[kept])

    def reweighted(self, w: Floats) -> _Rows:
        """Weights over the mean squared error of rows of like size."""
        fitted = self.changes @ w
        errors = (self.targets - fitted) ** 2
        scale = np.empty(fitted.size)
        floor = LEAST_ERROR_SHARE * (
            float(errors.mean()) or 1.0
        )  # a fit without error has rows of equal weight
        for rows in np.array_split(np.argsort(np.abs(fitted), kind="stable"), BINS_OF_PAIRS):
            if rows.size:
                scale[rows] = max(float(errors[rows].mean()), floor)
            else:
                scale[rows] = 1.0
        return _Rows(self.changes, self.targets, self.weights / scale, self.state)

    def solve(self, ridge: float) -> Floats:
        """The weights w of a ridge; functions that never change have weight 0."""
        scaled = self.changes * self.weights[:, None]
        gram = scaled.T @ self.changes
        scale = np.sqrt(np.diag(gram))
        used = scale > 0
        size = scale[used]
        matrix = gram[np.ix_(used, used)] / np.outer(size, size) + ridge * np.eye(size.size)
        right = (scaled.T @ self.targets)[used] / size
        return least_squares(matrix, right, scale, used)

    def error(self, w: Floats) -> float:
        """The weighted squares that w leaves."""
        return float(self.weights @ (self.targets - self.changes @ w) ** 2)


def _regression(sample: RolloutSample, basis: Basis) -> _Rows:
    here = basis(np.concatenate([a.outcomes for a in sample.alternatives]))
    kept = sample.compared
    weights = np.concatenate([a.spread for a in sample.alternatives])
    state = np.repeat(np.arange(sample.places.size - 1), np.diff(sample.places))
    targets = sample.copies.totals.mean(axis=1)
    return _Rows((here - here[sample.bases])[kept], targets[kept], weights[kept], state[kept])


def fit_values(sample: RolloutSample, basis: Basis) -> RolloutFit:
    """The fit of one basis to a sample.

    The ridge is chosen on held-out states, the check is on others.
    """
    started = time.monotonic()
    order = np.random.default_rng([sample.seed, RolloutWord.SPLIT]).permutation(
        len(sample.alternatives)
    )
    choosing, checking = (max(1, int(share * order.size)) for share in CHOOSING_AND_CHECKING_SHARES)
    check, choose, learn = np.split(order, [checking, checking + choosing])
    rows = _regression(sample, basis)
    rows = rows.reweighted(rows.part(learn).solve(FIRST_RIDGE))
    learned = rows.part(learn)
    chosen = rows.part(choose)
    ridge = min(TRIED_RIDGES, key=lambda r: chosen.error(learned.solve(r)))
    values = LinearValues(basis, rows.part(np.concatenate([learn, choose])).solve(ridge))
    fresh = rows.part(check)
    total = max(float(fresh.weights @ fresh.targets**2), np.finfo(float).tiny)
    agreement, gain, error = _check(sample, values, check)
    return RolloutFit(
        values,
        sample.criterion,
        sample.within,
        1.0 - fresh.error(values.weights) / total,
        agreement,
        gain,
        error,
        ridge,
        order.size,
        sample.met,
        sample.copies.steps,
        sample.seconds + time.monotonic() - started,
        sample.seed,
    )


def _check(sample: RolloutSample, values: LinearValues, states: Ints) -> tuple[float, float, float]:
    """The agreement of signs and the gain at held-out states."""
    agree = []
    gains = []
    for k in states:
        own = sample.alternatives[k]
        here = slice(sample.places[k], sample.places[k + 1])
        fresh = own.qualities(sample.copies.totals[here].mean(axis=1), sample.gamma)
        fitted = own.qualities(values(own.outcomes), sample.gamma)
        best = int(np.argmin(fitted))
        worst = int(np.argmax(fitted))
        agree.append(0.5 + 0.5 * float(np.sign(fresh[worst] - fresh[best])))
        gains.append(
            float(own.chosen @ fresh / own.chosen.sum() - fresh[best])
            if own.chosen.sum() > 0
            else 0.0
        )
    if len(gains) > 1:
        error = float(np.std(gains, ddof=1) / np.sqrt(len(gains)))
    else:
        error = np.nan
    return float(np.mean(agree)), float(np.mean(gains)), error


def rollout_values(
    model: Model,
    policy: Policy,
    basis: Basis | None = None,
    criterion: Criterion | None = None,
    *,
    states: int = 2_000,
    repetitions: int = 1,
    horizon: int = MOST_COUPLED_STEPS,
    others: Sequence[Policy] = (),
    control: CompiledValues | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> RolloutFit:
    """Ψw fitted to differences of the values of a policy.

    By default the first of `default_bases`.
    """
    sample = rollout_sample(
        model,
        policy,
        criterion,
        states=states,
        repetitions=repetitions,
        horizon=horizon,
        others=others,
        control=control,
        seed=seed,
        threads=threads,
    )
    return fit_values(sample, basis or default_bases(model)[0])


def default_bases(model: Model) -> list[Basis]:
    """Functions of all coordinates but the pending event, the richest first.

    With few coordinates: cubic, with indicators of limits times quadratic functions and pairs of
    limits; quadratic, with limits times linear functions. With more: quadratic, and sums of squares
    of single coordinates.
    """
    seen = list(range(model.box.dim - has_event(model)))
    quadratic = monomials(model, 2, coordinates=seen)
    if len(seen) > MOST_CUBIC_COORDINATES:
        single = [monomials(model, 2, coordinates=[i]) for i in seen]
        return [quadratic, concat(*single)]
    limits = _limits(model, 0, seen)
    rich = concat(
        monomials(model, 3, coordinates=seen), _limits(model, 2, seen), tensor(limits, limits)
    )
    return [rich, concat(quadratic, _limits(model, 1, seen))]


def _limits(model: Model, degree: int, seen: Sequence[int]) -> Basis:
    """Indicators of limits, of the coordinates that are seen."""
    basis = boundaries(model, degree)
    kept = [
        k
        for k, product in enumerate(basis.products)
        if all(i in seen for piece in product for i in piece.coordinates)
    ]
    return Basis(
        model, tuple(basis.products[k] for k in kept), tuple(basis.labels[k] for k in kept)
    )
