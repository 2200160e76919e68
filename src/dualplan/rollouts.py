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

Where a horizon N < T cuts the sum, γ^N (h(X_N) − h(X'_N)) is missing from its mean; `met` says how often that happens.
All outcomes of one state share their random numbers, so that errors common to them cancel in differences of Q.

*A control variate.* For any potential g, Σ_t γ^(t+1) (E[g(X_{t+1}) | X_t, A_t] − g(X_{t+1})) has mean 0. Added to the
sum of losses it makes

    g(y) − g(y') + Σ_{t<T} γ^t (r(X_t, A_t) − r(X'_t, A'_t)),        r(x,a) = ℓ(x,a) + γ Σ_y P(y|x,a) g(y) − g(x),

which has the same mean h(y) − h(y'), and no variance at all for g = h and a policy that does not draw its actions,
since r is constant then. A step costs one look-ahead more. With a horizon N, only γ^N times the difference of h − g at
the end is missing.

*Fit.* h ≈ Ψw by weighted ridge regression on differences: with z = Ψ(y) − Ψ(y'), D the estimate and c its weight,

    min_w Σ c (zᵀw − D)² + ρ wᵀ diag(Σ c zzᵀ) w.

c is how much the probability of y depends on the action, over the mean squared error of pairs of like size in a first
fit. The ridge ρ has the least error at states that were held out from the fit. R² and the agreement of signs are those
at states that had no part in either: there D is a fresh estimate, without bias but for the horizon.

*What is known.* The greedy policy of the exact h is no worse than π (policy improvement). That of a fit need not be:
`gain` estimates the mean of Q(x, π) − Q(x, greedy) over held-out states, with a standard error; that is the change to
first order, where π goes, not where the new policy goes. Judge candidates by their own cost (`compare`).

*Within.* A fit may find that a server had better idle, where the difference is smaller than its error, and a network
that idles is soon unstable. In networks without the choice to idle, alternatives are therefore those of servers that
work if somebody waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeGuard

import numpy as np

from dualplan.criteria import Average, Criterion, Discounted
from dualplan.errors import InputError
from dualplan.kinds import require_counts
from dualplan.models.contract import Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.policies.mixed import exploring
from dualplan.primal.basis import Basis, LinearValues, boundaries, concat, monomials, tensor
from dualplan.primal.greedy import GreedyPolicy
from dualplan.primal.relevance import occupancy, visited
from dualplan.simulation import REPLICAS, Copies, engine
from dualplan.threads import in_parallel
from dualplan.transitions import Laws, allowed_rows, transitions
from dualplan.types import ArrayLike, Bools, Floats, Ints, Json
from dualplan.values import CompiledValues, ValueCode

HORIZON = 5_000  # steps of a pair of copies at most
GROUPS = 16  # states whose copies are simulated in one task
SPACING, WARM_UP = 20, 1_000  # steps between visits, and visits of each trajectory that are left out
EXPLORING, NEIGHBOURS = 0.1, 0.25  # random actions of the exploring policy; the share of states one random step away
LISTED = 128  # states whose outcomes are listed at once
FEWEST = 20  # states with a choice that a fit needs
MOST = 20_000  # and at most: where copies meet at once, states cost more than steps
SHARES = (0.15, 0.15)  # of the states that choose the ridge, and that check the fit
RIDGES = tuple(10.0**k for k in range(-6, 2))
BINS = 10  # of pairs of like size
FIRST_RIDGE = 1e-2
FLOOR = 1e-2  # of the mean squared error: no row counts for more than one over it
ATTEMPTS = 8  # at finding as many states with a choice as were asked for
SAME = 1e-12  # probabilities that differ by no more are equal
MOST_CUBIC = 8  # coordinates up to which there are cubic bases
PILOT, PILOT_STATES, WORTH = 0.25, 40, 4.0  # of a step: see `rollout_step`


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
    control: CompiledValues | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Differences:
    """Differences of the bias (discounted: the cost-to-go) of a policy between pairs of states, one a row.

    A potential `control` near them makes for smaller errors and longer steps; it leaves means as they are.
    """
    require_policy_of(model, policy)
    require_counts(repetitions=repetitions, horizon=horizon)
    rows, others = (np.array([model.state(x) for x in np.atleast_2d(np.asarray(s))]) for s in (first, second))
    if rows.shape != others.shape:
        raise InputError(f"differences need as many second states as first ones, got {len(others)} and {len(rows)}.")
    copies = np.stack([others, rows], axis=1).reshape(-1, model.box.dim)
    places = np.arange(0, len(copies) + 1, 2)
    gamma = (criterion or Average()).gamma
    found = _simulate(model, policy, places, copies, gamma, repetitions, horizon, control, seed, threads)
    totals = found.totals[1::2]
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
    control: CompiledValues | None,
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
    totals, met = (np.concatenate([getattr(c, name) for c in found]) for name in ("totals", "met"))
    if control is not None:
        start = control(states)
        totals += (start - start[np.repeat(places[:-1], np.diff(places))])[:, None]
    return Copies(totals, met, sum(c.steps for c in found))


def _potential(model: Model, control: CompiledValues) -> ValueCode:
    if not isinstance(control, CompiledValues) or control.code is None:
        raise InputError("a control variate runs in compiled code; use a basis without functions of the user.")
    if control.model is not model and control.model.digest != model.digest:
        raise InputError(f"the control variate belongs to {control.model.name!r}, not to {model.name!r}.")
    if model.code.forward is None:
        model.forward(model.start, 0)  # raises, and says why
    return control.code


# -- states, and the alternatives there --------------------------------------------------------------------------------


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


def working(model: Model) -> Policy | None:
    """Within whose actions a policy of this model should stay: in a network, servers work if somebody waits."""
    if isinstance(model, QueueingNetwork) and not model.options["idling"]:
        return model.policy("random")
    return None


def alternatives(
    model: Model, policy: Policy, states: Ints, *, within: Policy | None = None, seed: int = 0
) -> list[Alternatives]:
    """Those of the given states, one a row, at which the action changes the law of the next state."""
    found: list[Alternatives] = []
    rng = np.random.default_rng([seed, 1])
    for first in range(0, len(states), LISTED):
        part = np.ascontiguousarray(states[first : first + LISTED])
        found += _listed(model, policy, part, within, rng)
    return found


def _listed(
    model: Model, policy: Policy, states: Ints, within: Policy | None, rng: np.random.Generator
) -> list[Alternatives]:
    rows, actions = allowed_rows(model, states)
    if within is not None:
        taken = np.array([within.probabilities(x) for x in states])[rows, actions] > 0
        rows, actions = rows[taken], actions[taken]
    law = _one_event(model, transitions(model, np.ascontiguousarray(states[rows]), actions), rows, len(states), rng)
    keys, found = np.unique(np.column_stack([rows[law.pairs], law.states]), axis=0, return_inverse=True)
    where, numbers = found.ravel(), np.arange(len(states) + 1)
    # Outcomes, pairs and their laws all come state by state.
    ends, pairs, laws = (np.searchsorted(k, numbers) for k in (keys[:, 0], rows, rows[law.pairs]))
    made = []
    for k, x in enumerate(states):
        own, here, mine = (slice(e[k], e[k + 1]) for e in (ends, laws, pairs))
        chances = np.zeros((mine.stop - mine.start, own.stop - own.start))
        np.add.at(chances, (law.pairs[here] - mine.start, where[here] - own.start), law.probabilities[here])
        varying = np.flatnonzero(np.ptp(chances, axis=0) > SAME)
        if varying.size:
            order = varying[np.argsort(-chances[:, varying].sum(axis=0), kind="stable")]
            outcomes = np.ascontiguousarray(keys[own][order, 1:])
            chosen = policy.probabilities(x)[actions[mine]]
            made.append(Alternatives(x, actions[mine], chosen, law.losses[mine], outcomes, chances[:, order]))
    return made


def _one_event(model: Model, law: Laws, rows: Ints, count: int, rng: np.random.Generator) -> Laws:
    """With decisions per server, the next event is independent of all else: one draw a state stands for all events."""
    if not _has_event(model):
        return law
    chances = model.event_law
    drawn = rng.choice(chances.size, count, p=chances)[rows[law.pairs]]
    kept = law.states[:, -1] == drawn
    return Laws(law.states[kept], law.pairs[kept], law.probabilities[kept] / chances[drawn[kept]], law.losses)


def _has_event(model: Model) -> TypeGuard[QueueingNetwork]:
    return isinstance(model, QueueingNetwork) and model.per_server


def visited_states(
    model: Model, policy: Policy, criterion: Criterion, count: int, seed: int, others: Sequence[Policy] = ()
) -> Ints:
    """About `count` states in random order: half of them visits of the policy, half of others, some a step away.

    By default the other policy is the same one with some random actions, so that a fit is not blind to what lies
    beside the way of the policy.
    """
    rest = list(others) or [exploring(policy, EXPLORING)]
    each = -(-count // (2 * len(rest)))
    parts = [_visits(model, policy, criterion, -(-count // 2), seed)]
    parts += [_visits(model, p, criterion, each, seed + 1 + k) for k, p in enumerate(rest)]
    rng = np.random.default_rng([seed, 2])
    states = rng.permutation(np.concatenate(parts))
    moved = int(NEIGHBOURS * len(states))
    states[:moved] = _neighbours(model, states[:moved], rng)
    return np.ascontiguousarray(rng.permutation(states))


def _visits(model: Model, policy: Policy, criterion: Criterion, count: int, seed: int) -> Ints:
    if isinstance(criterion, Discounted):
        return occupancy(model, policy, criterion, samples=10 * count, seed=seed, exact=False).draw(count, seed)
    each = WARM_UP - (-count // REPLICAS)
    paths = visited(model, policy, REPLICAS * each, seed, SPACING).reshape(REPLICAS, each, model.box.dim)
    return np.ascontiguousarray(paths[:, WARM_UP:].reshape(-1, model.box.dim)[:count])


def _neighbours(model: Model, states: Ints, rng: np.random.Generator) -> Ints:
    """A random outcome of a random action at each state."""
    rows, actions = allowed_rows(model, states)
    ends = np.searchsorted(rows, np.arange(len(states) + 1))
    law = transitions(model, np.ascontiguousarray(states), actions[rng.integers(ends[:-1], ends[1:])])
    ends = np.searchsorted(law.pairs, np.arange(len(states) + 1))
    return np.asarray(law.states[rng.integers(ends[:-1], ends[1:])])


# -- samples and fits --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RolloutSample:
    """Alternatives at states, and what the copies from their outcomes did: state k has rows places[k], ... of them."""

    model: Model
    policy: Policy
    criterion: Criterion
    within: Policy | None
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
        return self.criterion.gamma

    @cached_property
    def bases(self) -> Ints:
        """For each copy the row of the first of its state."""
        return np.repeat(self.places[:-1], np.diff(self.places))

    @cached_property
    def compared(self) -> Bools:
        """Which copies are not the first of their state."""
        return np.asarray(np.arange(self.bases.size) != self.bases)

    @property
    def met(self) -> float:
        """The share of copies that met the first of their state before the horizon."""
        return float(self.copies.met[self.compared].mean() / self.repetitions)

    @property
    def noise(self) -> float:
        """The mean variance of single repetitions; NaN if there is one only."""
        totals = self.copies.totals[self.compared]
        return float(totals.var(axis=1, ddof=1).mean()) if self.repetitions > 1 else np.nan


def rollout_sample(
    model: Model,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    states: int = 2_000,
    repetitions: int = 1,
    horizon: int = HORIZON,
    others: Sequence[Policy] = (),
    control: CompiledValues | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> RolloutSample:
    """Coupled copies from the outcomes of all alternatives, at states that a policy and others visit."""
    require_policy_of(model, policy)
    require_counts(states=states, repetitions=repetitions, horizon=horizon)
    criterion, within, started = criterion or Average(), working(model), time.monotonic()
    kept: list[Alternatives] = []
    for attempt in range(ATTEMPTS):
        seen = visited_states(model, policy, criterion, 2 * states, seed + attempt, others)
        kept = (kept + alternatives(model, policy, seen, within=within, seed=seed + attempt))[:states]
        if len(kept) == states:
            break
    if len(kept) < FEWEST:
        raise InputError(
            f"policy {policy.name!r} came to {len(kept)} states with a choice, and a fit needs {FEWEST}; ask for more."
        )
    places = np.cumsum([0, *(len(a.outcomes) for a in kept)])
    rows = np.concatenate([a.outcomes for a in kept])
    copies = _simulate(model, policy, places, rows, criterion.gamma, repetitions, horizon, control, seed, threads)
    return RolloutSample(
        model, policy, criterion, within, tuple(kept), places, copies, repetitions, horizon, seed,
        time.monotonic() - started,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class RolloutFit:
    """Ψw fitted to differences, and what held-out states say of it.

    `r_squared` is the share of the (weighted) squares of held-out differences that the fit explains; the noise of
    single rollouts counts against it. `agreement` is the share of held-out states where the action that the fit finds
    best is better than the one it finds worst by the fresh estimate too (ties count half). `gain` is the mean of
    Q(x, π) − Q(x, greedy) there, `gain_error` its standard error. All are statistical.
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
        errors, scale = (self.targets - fitted) ** 2, np.empty(fitted.size)
        floor = FLOOR * (float(errors.mean()) or 1.0)  # a fit without error has rows of equal weight
        for rows in np.array_split(np.argsort(np.abs(fitted), kind="stable"), BINS):
            scale[rows] = max(float(errors[rows].mean()), floor) if rows.size else 1.0
        return _Rows(self.changes, self.targets, self.weights / scale, self.state)

    def solve(self, ridge: float) -> Floats:
        """The weights w of a ridge; functions that never change have weight 0."""
        scaled = self.changes * self.weights[:, None]
        gram = scaled.T @ self.changes
        used = np.diag(gram) > 0
        w = np.zeros(used.size)
        matrix = gram[np.ix_(used, used)]
        size = np.sqrt(np.diag(matrix))
        matrix = matrix / np.outer(size, size) + ridge * np.eye(size.size)
        w[used] = np.linalg.lstsq(matrix, (scaled.T @ self.targets)[used] / size, rcond=None)[0] / size
        return w

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
    """The fit of one basis to a sample; the ridge is chosen on held-out states, the check is on others."""
    started = time.monotonic()
    order = np.random.default_rng([sample.seed, 3]).permutation(len(sample.alternatives))
    choosing, checking = (max(1, int(share * order.size)) for share in SHARES)
    check, choose, learn = np.split(order, [checking, checking + choosing])
    rows = _regression(sample, basis)
    rows = rows.reweighted(rows.part(learn).solve(FIRST_RIDGE))
    learned, chosen = rows.part(learn), rows.part(choose)
    ridge = min(RIDGES, key=lambda r: chosen.error(learned.solve(r)))
    values = LinearValues(basis, rows.part(np.concatenate([learn, choose])).solve(ridge))
    fresh = rows.part(check)
    total = max(float(fresh.weights @ fresh.targets**2), np.finfo(float).tiny)
    agreement, gain, error = _check(sample, values, check)
    return RolloutFit(
        values, sample.criterion, sample.within, 1.0 - fresh.error(values.weights) / total, agreement, gain, error,
        ridge, order.size, sample.met, sample.copies.steps, sample.seconds + time.monotonic() - started, sample.seed,
    )  # fmt: skip


def _check(sample: RolloutSample, values: LinearValues, states: Ints) -> tuple[float, float, float]:
    """The agreement of signs and the gain at held-out states."""
    agree, gains = [], []
    for k in states:
        own, here = sample.alternatives[k], slice(sample.places[k], sample.places[k + 1])
        fresh = own.qualities(sample.copies.totals[here].mean(axis=1), sample.gamma)
        fitted = own.qualities(values(own.outcomes), sample.gamma)
        best, worst = int(np.argmin(fitted)), int(np.argmax(fitted))
        agree.append(0.5 + 0.5 * float(np.sign(fresh[worst] - fresh[best])))
        gains.append(float(own.chosen @ fresh / own.chosen.sum() - fresh[best]) if own.chosen.sum() > 0 else 0.0)
    error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.nan
    return float(np.mean(agree)), float(np.mean(gains)), error


def rollout_values(
    model: Model,
    policy: Policy,
    basis: Basis | None = None,
    criterion: Criterion | None = None,
    *,
    states: int = 2_000,
    repetitions: int = 1,
    horizon: int = HORIZON,
    others: Sequence[Policy] = (),
    control: CompiledValues | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> RolloutFit:
    """Ψw fitted to differences of the values of a policy; by default the first of `default_bases`."""
    sample = rollout_sample(
        model, policy, criterion, states=states, repetitions=repetitions, horizon=horizon, others=others,
        control=control, seed=seed, threads=threads,
    )  # fmt: skip
    return fit_values(sample, basis or default_bases(model)[0])


def default_bases(model: Model) -> list[Basis]:
    """Functions of all coordinates but the pending event, the richest first.

    With few coordinates: cubic, with indicators of limits times quadratic functions and pairs of limits; quadratic,
    with limits times linear functions. With more: quadratic, and sums of squares of single coordinates.
    """
    seen = list(range(model.box.dim - _has_event(model)))
    quadratic = monomials(model, 2, coordinates=seen)
    if len(seen) > MOST_CUBIC:
        single = [monomials(model, 2, coordinates=[i]) for i in seen]
        return [quadratic, concat(*single)]
    limits = _limits(model, 0, seen)
    rich = concat(monomials(model, 3, coordinates=seen), _limits(model, 2, seen), tensor(limits, limits))
    return [rich, concat(quadratic, _limits(model, 1, seen))]


def _limits(model: Model, degree: int, seen: Sequence[int]) -> Basis:
    """Indicators of limits, of the coordinates that are seen."""
    basis = boundaries(model, degree)
    kept = [k for k, p in enumerate(basis.products) if all(piece.coordinate in seen for piece in p)]
    return Basis(model, tuple(basis.products[k] for k in kept), tuple(basis.labels[k] for k in kept))


# -- one step of improvement -------------------------------------------------------------------------------------------


def rollout_step(
    model: Model,
    incumbent: Policy,
    criterion: Criterion | None = None,
    *,
    budget_steps: int = 20_000_000,
    horizon: int = HORIZON,
    bases: Sequence[Basis] | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> list[GreedyPolicy]:
    """Candidates to replace a policy: greedy for fits of several bases, to be judged by their own cost.

    About `budget_steps` steps of copies are simulated, from at most `MOST` states. A quarter of it goes to a first fit.
    It becomes the control variate of the rest if a pilot finds that it cuts the variance by more than `WORTH`, which is
    about what its steps cost more. If the incumbent is greedy for values itself, the half-way points between these and
    the fits are candidates too.
    """
    require_counts(budget_steps=budget_steps)
    tried = default_bases(model) if bases is None else list(bases)
    common: dict[str, Any] = {"horizon": horizon, "threads": threads}
    pilot = rollout_sample(model, incumbent, criterion, states=PILOT_STATES, repetitions=2, seed=seed, **common)
    each = pilot.copies.steps / (2 * len(pilot.alternatives))
    sizes = [min(max(FEWEST, int(share * budget_steps / max(each, 1.0))), MOST) for share in (PILOT, 1 - PILOT)]
    first = rollout_sample(model, incumbent, criterion, states=sizes[0], seed=seed + 1, **common)
    control = fit_values(first, tried[0]).values
    again = rollout_sample(
        model, incumbent, criterion, states=PILOT_STATES, repetitions=2, control=control, seed=seed, **common
    )
    useful = again.noise * WORTH < pilot.noise
    sample = rollout_sample(
        model, incumbent, criterion, states=sizes[1], control=control if useful else None, seed=seed + 2, **common
    )
    return _candidates(incumbent, [fit_values(sample, basis) for basis in tried])


def _candidates(incumbent: Policy, fits: Sequence[RolloutFit]) -> list[GreedyPolicy]:
    found = [fit.policy(f"rollouts, {len(fit.values.basis)} functions") for fit in fits]
    if isinstance(incumbent, GreedyPolicy) and isinstance(incumbent.values, LinearValues):
        old = incumbent.values
        found += [
            GreedyPolicy(p.model, _between(old, fit.values), p.gamma, name=f"{p.name}, half-way", within=p.within)
            for p, fit in zip(list(found), fits, strict=True)
        ]
    return found


def _between(first: LinearValues, second: LinearValues) -> LinearValues:
    """Half of the one plus half of the other."""
    a, b = first.basis, second.basis
    both = Basis(a.model, a.products + b.products, a.labels + b.labels, a.user + b.user)
    split = [np.split(v.weights, [len(v.basis.products)]) for v in (first, second)]
    return LinearValues(both, np.concatenate([split[0][0], split[1][0], split[0][1], split[1][1]]) / 2)
