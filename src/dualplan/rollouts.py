"""Improvement of a policy by coupled rollouts: differences of its values, estimated where it goes, and a fit to them.

For a policy π with bias h (average criterion; γ = 1) or cost-to-go h (discounted), the quality of two actions at x
differs by

    Q(x,a) − Q(x,b) = ℓ(x,a) − ℓ(x,b) + γ Σ_y (P(y|x,a) − P(y|x,b)) h(y),

so only differences of h between the outcomes of one state matter, and of those only the ones whose probability depends
on the action: in a network with one event a step, arrivals cancel, and the outcomes of the choices of each server are
those of single changes, however many joint actions there are.

*Coupled copies.* Two copies of the model start at y and y', both under π and driven by the same random numbers, until
they are in the same state, where they stay together. With T the time of the meeting (assumed finite, and such that the
sums below have a mean)

    E Σ_{t<T} γ^t (ℓ(X_t, A_t) − ℓ(X'_t, A'_t)) = h(y) − h(y').

Where a horizon N < T cuts the sum, γ^N (h(X_N) − h(X'_N)) is missing from its mean: `Differences.met` says how often.
All outcomes of one state share their random numbers, so that errors common to them cancel in differences of Q.

*Fit.* h ≈ Ψw by least squares on differences. With z = Ψ(y) − Ψ(y') at the start of a pair of copies, z_N the same at
its end (0 if they met), D its sum of losses and c its weight, w solves

    Σ c z (z − γ^N z_N)ᵀ w + ρ·diag(Σ c zzᵀ) w = Σ c z D.

Without cut sums this is weighted ridge regression of D on z. With them it is least-squares temporal differences over N
steps, and what is beyond the horizon comes from Ψw itself. c is one over the mean squared error of pairs of like size,
from a first fit with c = 1. The ridge ρ has the least error at states that were held out from the fit; R² and the
agreement of signs are measured at other states that had no part in it: these are fresh estimates, without bias but for
the horizon.

*What is known.* The greedy policy of the exact h is no worse than π (policy improvement). That of a fit need not be:
`gain` estimates E[Q(x, π) − Q(x, greedy)] over held-out states with a standard error, which is the first-order change
where π goes, not where the new policy goes. Judge candidates by their own cost (`compare`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dualplan.criteria import Average, Criterion, Discounted
from dualplan.errors import InputError
from dualplan.kinds import is_whole
from dualplan.models.contract import Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.policies.mixed import exploring
from dualplan.primal.basis import Basis, boundaries, concat, monomials
from dualplan.primal.greedy import GreedyPolicy, LinearValues
from dualplan.primal.relevance import occupancy, visited
from dualplan.simulation import Control, Copies, engine, in_parallel
from dualplan.transitions import allowed_rows, transitions
from dualplan.types import ArrayLike, Floats, Ints, Json

HORIZON = 5_000  # steps of a pair of copies at most
GROUPS = 16  # states whose copies are simulated in one task
SPACING, WARM_UP = 100, 200  # steps between visits, and visits of each trajectory that are left out
EXPLORING, NEIGHBOURS = 0.1, 0.25  # random actions of the exploring policy; the share of states one random step away
LISTED = 128  # states whose outcomes are listed at once
SHARES = (0.15, 0.15)  # of the states that choose the ridge, and that check the fit
RIDGES = tuple(10.0**k for k in range(-6, 2))
BINS = 10  # of pairs of like size
SAME = 1e-12  # probabilities that differ by no more are equal


# -- differences of values ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Differences:
    """Estimates of h(first) − h(second), pair by pair; how they are known: statistical, but for the horizon.

    `errors` are standard errors of the means (NaN for one repetition), `met` the share of repetitions in which the two
    copies met before the horizon, `steps` the steps of all copies.
    """

    means: Floats
    errors: Floats
    met: Floats
    steps: int
    repetitions: int
    horizon: int
    seed: int


def coupled_differences(
    model: Model,
    policy: Policy,
    first: ArrayLike,
    second: ArrayLike,
    criterion: Criterion | None = None,
    *,
    repetitions: int = 16,
    horizon: int = HORIZON,
    control: LinearValues | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Differences:
    """Differences of the bias (discounted: the cost-to-go) of a policy between pairs of states, one a row.

    A potential `control` near them makes for smaller errors and longer steps; it leaves means as they are.
    """
    require_policy_of(model, policy)
    _check_counts(repetitions=repetitions, horizon=horizon)
    rows, others = (np.array([model.state(x) for x in np.atleast_2d(np.asarray(s))]) for s in (first, second))
    if rows.shape != others.shape:
        raise InputError(f"differences need as many second states as first ones, got {len(others)} and {len(rows)}.")
    copies = np.stack([others, rows], axis=1).reshape(-1, model.box.dim)
    places = np.arange(0, len(copies) + 1, 2)
    found = _simulate(model, policy, places, copies, _gamma(criterion), repetitions, horizon, control, seed, threads)
    totals = found.totals[1::2]
    if control is not None:
        totals = totals + (control(rows) - control(others))[:, None]
    errors = totals.std(axis=1, ddof=1) / np.sqrt(repetitions) if repetitions > 1 else np.full(len(rows), np.nan)
    met = found.met[1::2] / repetitions
    return Differences(totals.mean(axis=1), errors, met, found.steps, repetitions, horizon, seed)


def _simulate(
    model: Model,
    policy: Policy,
    places: Ints,
    states: Ints,
    gamma: float,
    repetitions: int,
    horizon: int,
    control: LinearValues | None,
    seed: int,
    threads: int | None = None,
) -> Copies:
    """All groups, in tasks of fixed size, so that threads change nothing."""
    run, potential = engine(model, policy, seed), None if control is None else _potential(model, control)
    tasks = []
    for g in range(0, places.size - 1, GROUPS):
        part = places[g : g + GROUPS + 1]
        own = np.ascontiguousarray(states[part[0] : part[-1]])
        tasks.append(partial(run.coupled, part - part[0], own, g, repetitions, gamma, horizon, potential))
    found = in_parallel(tasks, threads if run.fast else 1)
    parts = (np.concatenate([getattr(c, name) for c in found]) for name in ("totals", "ends", "met"))
    return Copies(*parts, sum(c.steps for c in found))


def _potential(model: Model, control: LinearValues) -> Control:
    basis = control.basis
    if basis.model is not model and basis.model.digest != model.digest:
        raise InputError(f"the control variate belongs to {basis.model.name!r}, not to {model.name!r}.")
    if not basis.compiled:
        raise InputError("a control variate runs in compiled code; use a basis without functions of the user.")
    if model.code.forward is None:
        model.forward(model.start, 0)  # raises, and says why
    return basis.ints, basis.floats, control.weights


# -- states, and the alternatives there ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Alternatives:
    """What can be done at a state: actions, their losses, the outcomes whose probability depends on the action.

    `chances` has a row for each action; the rows have the same sum. The first outcome is the one that others are
    compared with. `chosen` are the policy's probabilities of the actions.
    """

    state: Ints
    actions: Ints
    chosen: Floats
    losses: Floats
    outcomes: Ints
    chances: Floats

    def qualities(self, differences: Floats, gamma: float) -> Floats:
        """Q of the actions up to a constant, from h at the outcomes minus h at the first."""
        return np.asarray(self.losses + gamma * (self.chances @ differences))

    @property
    def spread(self) -> Floats:
        """How much each outcome's probability depends on the action."""
        return np.asarray(np.ptp(self.chances, axis=0))


def alternatives(model: Model, policy: Policy, states: Ints, seed: int = 0) -> list[Alternatives]:
    """Those of the given states at which the action changes the law of the next state."""
    found: list[Alternatives] = []
    rng = np.random.default_rng([seed, 1])
    for first in range(0, len(states), LISTED):
        found += _listed(model, policy, np.ascontiguousarray(states[first : first + LISTED]), rng)
    return found


def _listed(model: Model, policy: Policy, states: Ints, rng: np.random.Generator) -> list[Alternatives]:
    rows, actions = allowed_rows(model, states)
    law = transitions(model, np.ascontiguousarray(states[rows]), actions)
    after, pairs, chances = law.states, law.pairs, law.probabilities
    if isinstance(model, QueueingNetwork) and model.per_server:
        # The next event is drawn independently of all else: one draw for each state stands for all events.
        drawn = rng.choice(model.event_law.size, len(states), p=model.event_law)[rows[pairs]]
        kept = after[:, -1] == drawn
        after, pairs, chances = after[kept], pairs[kept], chances[kept] / model.event_law[drawn[kept]]
    keys, where = np.unique(np.column_stack([rows[pairs], after]), axis=0, return_inverse=True)
    ends = np.searchsorted(keys[:, 0], np.arange(len(states) + 1))
    pair_ends = np.searchsorted(rows, np.arange(len(states) + 1))
    law_ends = np.searchsorted(rows[pairs], np.arange(len(states) + 1))
    made = []
    for k, x in enumerate(states):
        own, here = slice(ends[k], ends[k + 1]), slice(law_ends[k], law_ends[k + 1])
        count = pair_ends[k + 1] - pair_ends[k]
        matrix = np.zeros((count, ends[k + 1] - ends[k]))
        np.add.at(matrix, (pairs[here] - pair_ends[k], where.ravel()[here] - ends[k]), chances[here])
        varying = np.flatnonzero(np.ptp(matrix, axis=0) > SAME)
        if varying.size:
            order = varying[np.argsort(-matrix[:, varying].sum(axis=0), kind="stable")]
            chosen = actions[pair_ends[k] : pair_ends[k + 1]]
            made.append(Alternatives(
                x, chosen, policy.probabilities(x)[chosen], law.losses[pair_ends[k] : pair_ends[k + 1]],
                np.ascontiguousarray(keys[own][order, 1:]), matrix[:, order],
            ))  # fmt: skip
    return made


def visited_states(
    model: Model, policy: Policy, criterion: Criterion, count: int, seed: int, others: Sequence[Policy] = ()
) -> Ints:
    """States that a policy visits, in random order, some of them one random step away, some of other policies.

    By default the other policy is the same one with some random actions, so that a fit is not blind to what lies
    beside the way of the policy.
    """
    policies = [policy, *(others or [exploring(policy, EXPLORING)])]
    shares = [0.5, *[0.5 / (len(policies) - 1)] * (len(policies) - 1)]
    parts = [
        _visits(model, p, criterion, -(-int(s * count) // 1), seed + k)
        for k, (p, s) in enumerate(zip(policies, shares, strict=True))
    ]
    rng = np.random.default_rng([seed, 2])
    states = rng.permutation(np.concatenate(parts))
    moved = int(NEIGHBOURS * len(states))
    states[:moved] = _neighbours(model, states[:moved], rng)
    return np.ascontiguousarray(rng.permutation(states))


def _visits(model: Model, policy: Policy, criterion: Criterion, count: int, seed: int) -> Ints:
    if isinstance(criterion, Discounted):
        return occupancy(model, policy, criterion, samples=10 * count, seed=seed, exact=False).draw(count, seed)
    warm, each = 8 * WARM_UP, 8 * (-(-count // 8))
    paths = visited(model, policy, warm + each, seed, SPACING).reshape(8, -1, model.box.dim)
    return np.ascontiguousarray(paths[:, WARM_UP:].reshape(-1, model.box.dim)[:count])


def _neighbours(model: Model, states: Ints, rng: np.random.Generator) -> Ints:
    """A random outcome of a random action at each state."""
    rows, actions = allowed_rows(model, states)
    ends = np.searchsorted(rows, np.arange(len(states) + 1))
    picked = rng.integers(ends[:-1], ends[1:])
    law = transitions(model, np.ascontiguousarray(states), actions[picked])
    ends = np.searchsorted(law.pairs, np.arange(len(states) + 1))
    return np.asarray(law.states[rng.integers(ends[:-1], ends[1:])])


# -- samples and fits --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RolloutSample:
    """Alternatives at states and what the copies from their outcomes did; row k of `totals` is outcome k of all."""

    model: Model
    policy: Policy
    criterion: Criterion
    alternatives: tuple[Alternatives, ...]
    places: Ints
    copies: Copies
    repetitions: int
    horizon: int
    seed: int
    seconds: float

    @property
    def gamma(self) -> float:
        """The discount factor, 1 for the average criterion."""
        return _gamma(self.criterion)

    @property
    def met(self) -> float:
        """The share of copies that met the first of their group."""
        others = np.ones(len(self.copies.met), bool)
        others[self.places[:-1]] = False
        return float(self.copies.met[others].mean() / self.repetitions)


def rollout_sample(
    model: Model,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    states: int = 2_000,
    repetitions: int = 2,
    horizon: int = HORIZON,
    others: Sequence[Policy] = (),
    control: LinearValues | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> RolloutSample:
    """Coupled copies from the outcomes of all actions, at states that a policy visits.

    A potential `control` makes for smaller errors: totals then are estimates with the same mean.
    """
    require_policy_of(model, policy)
    _check_counts(states=states, repetitions=repetitions, horizon=horizon)
    criterion, started = criterion or Average(), time.monotonic()
    found = alternatives(model, policy, visited_states(model, policy, criterion, 2 * states, seed, others), seed)
    if len(found) < 20:
        raise InputError(f"policy {policy.name!r} met {len(found)} states with a choice; 20 are needed, ask for more.")
    kept = tuple(found[:states])
    places = np.cumsum([0, *(len(a.outcomes) for a in kept)])
    rows = np.concatenate([a.outcomes for a in kept])
    gamma = _gamma(criterion)
    copies = _simulate(model, policy, places, rows, gamma, repetitions, horizon, control, seed, threads)
    if control is not None:
        copies = _without_control(copies, places, control(rows), control(copies.ends), gamma**horizon)
    seconds = time.monotonic() - started
    return RolloutSample(model, policy, criterion, kept, places, copies, repetitions, horizon, seed, seconds)


def _without_control(copies: Copies, places: Ints, start: Floats, ends: Floats, beyond: float) -> Copies:
    """Sums of losses from sums of ℓ + γPg − g: Δg at the start is added, γ^N Δg at the end is taken off."""
    base = np.repeat(places[:-1], np.diff(places))
    last = ends.reshape(copies.totals.shape)
    totals = copies.totals + (start - start[base])[:, None] - beyond * (last - last[base])
    return Copies(totals, copies.ends, copies.met, copies.steps)


@dataclass(frozen=True, eq=False)
class RolloutFit:
    """Ψw fitted to differences, and what held-out states say of it.

    `r_squared` is the share of the (weighted) squares of held-out differences that the fit explains; noise of single
    rollouts counts against it. `agreement` is the share of held-out states where the action that the fit finds best is
    better than the one it finds worst by the fresh estimate too. `gain` is the mean of Q(x, π) − Q(x, greedy) there,
    with `gain_error` its standard error. All are statistical.
    """

    values: LinearValues
    criterion: Criterion
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
        return GreedyPolicy(self.values.basis.model, self.values, _gamma(self.criterion), name=name)

    def to_json(self) -> Json:
        """Everything but the weights, as plain values."""
        return {
            "functions": len(self.values.basis),
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
    """The regression: z, z − γ^N z_N, D and c for each outcome that is not the first of its state."""

    here: Floats
    change: Floats
    target: Floats
    weights: Floats
    group: Ints

    def part(self, groups: Ints) -> _Rows:
        kept = np.isin(self.group, groups)
        return _Rows(self.here[kept], self.change[kept], self.target[kept], self.weights[kept], self.group[kept])

    def reweighted(self, w: Floats) -> _Rows:
        """One over the mean squared error of rows of like size, times how much the action matters."""
        size, errors = np.abs(self.here @ w), (self.target - self.change @ w) ** 2
        order = np.array_split(np.argsort(size, kind="stable"), BINS)
        scale = np.empty(size.size)
        for rows in order:
            scale[rows] = max(float(errors[rows].mean()), np.finfo(float).tiny) if rows.size else 1.0
        return _Rows(self.here, self.change, self.target, self.weights / scale, self.group)

    def solve(self, ridge: float) -> Floats:
        scaled = self.here * self.weights[:, None]
        gram = np.einsum("ij,ij->j", scaled, self.here)
        used = gram > 0
        w = np.zeros(gram.size)
        matrix = scaled[:, used].T @ self.change[:, used] + ridge * np.diag(gram[used])
        w[used] = np.linalg.lstsq(matrix, scaled[:, used].T @ self.target, rcond=None)[0]
        return w

    def error(self, w: Floats) -> float:
        return float(self.weights @ (self.target - self.change @ w) ** 2)


def _regression(sample: RolloutSample, basis: Basis) -> _Rows:
    places, reps = sample.places, sample.repetitions
    group = np.repeat(np.arange(places.size - 1), np.diff(places))
    base = places[group]
    start = basis(np.concatenate([a.outcomes for a in sample.alternatives]))
    end = basis(sample.copies.ends).reshape(len(start), reps, -1).mean(axis=1)
    here, there = start - start[base], end - end[base]
    weights = np.concatenate([a.spread for a in sample.alternatives])
    others = np.arange(len(start)) != base
    change = here - sample.gamma**sample.horizon * there
    target = sample.copies.totals.mean(axis=1)
    return _Rows(here[others], change[others], target[others], weights[others], group[others])


def fit_values(sample: RolloutSample, basis: Basis) -> RolloutFit:
    """The fit of one basis to a sample; the ridge is chosen on held-out states, the check is on others."""
    started = time.monotonic()
    order = np.random.default_rng([sample.seed, 3]).permutation(len(sample.alternatives))
    choosing, checking = (max(1, int(share * order.size)) for share in SHARES)
    check, choose, learn = np.split(order, [checking, checking + choosing])
    rows = _regression(sample, basis)
    rows = rows.reweighted(rows.part(learn).solve(RIDGES[len(RIDGES) // 2]))
    learned, chosen = rows.part(learn), rows.part(choose)
    ridge = min(RIDGES, key=lambda r: chosen.error(learned.solve(r)))
    values = LinearValues(basis, rows.part(np.concatenate([learn, choose])).solve(ridge))
    fresh = rows.part(check)
    r_squared = 1.0 - fresh.error(values.weights) / max(float(fresh.weights @ fresh.target**2), np.finfo(float).tiny)
    agreement, gain, error = _check(sample, values, check)
    return RolloutFit(
        values, sample.criterion, r_squared, agreement, gain, error, ridge, order.size, sample.met, sample.copies.steps,
        sample.seconds + time.monotonic() - started, sample.seed,
    )  # fmt: skip


def _check(sample: RolloutSample, values: LinearValues, groups: Ints) -> tuple[float, float, float]:
    """The agreement of signs and the gain at held-out states."""
    agree, gains = [], []
    reps, beyond = sample.repetitions, sample.gamma**sample.horizon
    for g in groups:
        own = sample.alternatives[g]
        here = slice(sample.places[g], sample.places[g + 1])
        ends = values(sample.copies.ends[here.start * reps : here.stop * reps]).reshape(-1, reps).mean(axis=1)
        fresh = own.qualities(sample.copies.totals[here].mean(axis=1) + beyond * (ends - ends[0]), sample.gamma)
        fitted = values(own.outcomes)
        guess = own.qualities(fitted - fitted[0], sample.gamma)
        best, worst = int(np.argmin(guess)), int(np.argmax(guess))
        agree.append(0.5 if fresh[best] == fresh[worst] else float(fresh[best] < fresh[worst]))
        gains.append(float(own.chosen @ fresh - fresh[best]))
    error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.nan
    return float(np.mean(agree)), float(np.mean(gains)), error


def rollout_values(
    model: Model,
    policy: Policy,
    basis: Basis | None = None,
    criterion: Criterion | None = None,
    *,
    states: int = 2_000,
    repetitions: int = 2,
    horizon: int = HORIZON,
    others: Sequence[Policy] = (),
    seed: int = 0,
    threads: int | None = None,
) -> RolloutFit:
    """Ψw fitted to differences of the values of a policy; by default quadratic with pieces at empty coordinates."""
    sample = rollout_sample(
        model, policy, criterion, states=states, repetitions=repetitions, horizon=horizon, others=others, seed=seed,
        threads=threads,
    )  # fmt: skip
    return fit_values(sample, basis or default_bases(model)[0])


def default_bases(model: Model) -> list[Basis]:
    """Bases from small to large: quadratic, with boundary pieces, cubic; the pending event is left out."""
    hidden = isinstance(model, QueueingNetwork) and model.per_server
    seen = list(range(model.box.dim - hidden))
    quadratic = monomials(model, 2, coordinates=seen)
    edged = concat(quadratic, _edges(model, 1, seen))
    if len(seen) > MOST_CUBIC:
        return [edged, quadratic]
    return [edged, concat(monomials(model, 3, coordinates=seen), _edges(model, 1, seen)), quadratic]


MOST_CUBIC = 8  # coordinates up to which there are cubic bases


def _edges(model: Model, degree: int, seen: Sequence[int]) -> Basis:
    basis = boundaries(model, degree)
    kept = [k for k, p in enumerate(basis.products) if all(piece.coordinate in seen for piece in p)]
    return Basis(model, tuple(basis.products[k] for k in kept), tuple(basis.labels[k] for k in kept))


def _gamma(criterion: Criterion | None) -> float:
    return criterion.gamma if isinstance(criterion, Discounted) else 1.0


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if not is_whole(value) or value < 1:
            raise InputError(f"{name} must be a whole number, at least 1, got {value!r}.")
