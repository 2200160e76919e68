"""Lower bounds on the optimal cost from any potential.

For a function h of states let ℓ_h(x,a) = ℓ(x,a) + γ·Σ_y P(y|x,a) h(y) − h(x), with γ = 1 for the
average criterion, and m(h) = min ℓ_h over all states and the actions allowed in them. Then

    λ* >= m(h), from every start    (average),        αᵀJ* >= αᵀh + m(h)/(1−γ)    (discounted).

Proof: under any policy the sum over t < n of γ^t·E ℓ_h(x_t, a_t) is that of γ^t·E ℓ(x_t, a_t), plus
γⁿ·E h(x_n), minus E h(x_0). In a bounded box h is bounded, so the middle term vanishes as n grows
(average: once divided by n). Where the box has no end this is an assumption on h.

*Sweeps never lower the bound.* L h = min_a (ℓ + γPh) is monotone and L(h + c) = L h + γc. So L h
>= h + m, m = m(h), gives L L h >= L h + γm, that is m(L h) >= γ·m(h): for the average criterion m(L
h) >= m(h), and for the discounted one αᵀL h + m(L h)/(1−γ) >= αᵀh + m + γm/(1−γ) = αᵀh + m/(1−γ).
The same two lines hold for L_τ h = h + τ·(L h − h), whose differences are τ times those of L and
for which L_τ(h + c) = L_τ h + (1 − τ + τγ)c, as long as it is monotone: where every pair stays put
with probability q or more, for τ <= 1/(1 − γq). A τ below that also settles periodic chains.

*Proved.* Where states can be listed, m(h) is a sweep of L over all of them. A computed difference
is off by at most ε = `rounding` of max|h| + |m|, and the bound is that of m − ε.

*Statistical.* Elsewhere states are drawn, by simulating a policy or all heuristics in turn, and the
least ℓ_h seen stands for m(h). This is not a proof. Were the n draws independent, states of
probability p would all be missed with probability (1−p)ⁿ <= e^(−pn), so that with the given
confidence at most a fraction `missed` = ln(1/(1−confidence))/n of such draws lies lower; but states
on one trajectory are not independent, so this is a guide, and how much lower is not said. The
visits of a good policy are the right states to look at: the optimal cost is the mean of ℓ_h over
the visits of an optimal policy, and states that it hardly ever visits hardly count in it. From the
worst states drawn a search goes on by ±1 in a coordinate as long as ℓ_h falls.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dualplan.core.budgets import MOST_LISTED_STATES
from dualplan.core.checks import require_counts, require_inside, require_seed, require_whole
from dualplan.core.deadlines import time_is_over
from dualplan.core.errors import InputError, unknown
from dualplan.core.shown import Shown
from dualplan.core.status import PROVED, STATISTICAL, UNKNOWN
from dualplan.core.threads import in_parallel
from dualplan.core.types import ArrayLike, Floats, Ints, Json
from dualplan.evaluation.simulation import REPLICAS, Replica, engine
from dualplan.exact.iteration import VALUE_ITERATION_DAMPING, rounding
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model, read_only, vector
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.models.transitions import allowed_rows, inside, transitions
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.policies.tables import random_policy
from dualplan.values.functions import StateFunction

KINDS_OF_BOUNDS = (PROVED, STATISTICAL)
COORDINATES_AT_ONCE = 2**22  # coordinates of next states held at once
STEPS_BETWEEN_STATES = 10  # steps between two states drawn from a trajectory
# states from which the search sets out, and its steps at most
WORST_STATES = 32
MOST_WORST_STATE_STEPS = 500


@dataclass(frozen=True, eq=False, repr=False)
class LowerBound(Shown):
    """A number that no policy's cost lies below: proved, or, if `kind` is "statistical", by what
    was looked at.

    `worst` is the state that attains the minimum, `potential` (after sweeps) the one that proves
    the bound, over all states. `missed` bounds the fraction of draws at which the minimum may be
    lower, with the given confidence, counting draws as independent. `functions` says from which
    family of potentials it came, where several were tried.
    """

    value: float
    kind: str
    criterion: str
    worst: tuple[int, ...]
    sweeps: int = 0
    samples: int = 0
    confidence: float | None = None
    missed: float | None = None
    assumed: str = ""
    potential: Floats | None = None
    seconds: float = 0.0
    functions: str = ""

    @property
    def advice(self) -> str:
        """What the number means."""
        if self.kind == UNKNOWN:
            return "no lower bound is known"
        if self.kind == PROVED:
            return "no policy costs less" + (f", of {self.assumed}" if self.assumed else "")
        return (
            f"not a proof: the minimum is over {self.samples:,} states drawn and those that a "
            "search from the worst of them met, and may be lower elsewhere"
        )

    def to_json(self) -> Json:
        """Everything but the potential, as plain values; infinite numbers become None."""
        return {
            "value": self.value,
            "kind": self.kind,
            "advice": self.advice,
            "criterion": self.criterion,
            "sweeps": self.sweeps,
            "samples": self.samples,
            "confidence": self.confidence,
            "missed": self.missed,
            "worst": list(self.worst),
            "assumed": self.assumed,
            "functions": self.functions,
            "seconds": round(self.seconds, 3),
        }


def gap(cost: float, bound: float) -> float:
    """How far a cost is from a lower bound, relative to the cost, as solvers of integer programs
    report it.

    It is 0 if both are 0, and infinite if only the cost is or if a number is not finite.
    """
    if not (math.isfinite(cost) and math.isfinite(bound)):
        return math.inf
    if cost == 0:
        if bound == 0:
            return 0.0
        return math.inf
    return (cost - bound) / abs(cost)


def largest_gap(lower: float, upper: float, bound: float) -> float:
    """The largest gap of a cost that is known between two numbers.

    Infinite if it may be 0 and the bound is not.
    """
    if lower < 0 < upper:
        return math.inf
    return max(gap(lower, bound), gap(upper, bound))


def lower_bound(
    model: Model,
    criterion: Criterion | None = None,
    *,
    potential: StateFunction | ArrayLike | None = None,
    sweeps: int = 0,
    samples: int = 100_000,
    confidence: float = 0.95,
    seed: int = 0,
    threads: int | None = None,
    policy: Policy | None = None,
    kind: str | None = None,
) -> LowerBound:
    """A lower bound on the optimal cost from a potential h: a function of states, numbers for all
    states, or 0.

    The bound is proved, and improved by `sweeps` sweeps of value iteration, where there are at most
    `MOST_LISTED_STATES` states or `kind` asks for it. Beyond, without a potential, it is the least
    loss that the model declares. Otherwise it is statistical, from `samples` states visited by
    `policy`, by default by all the model's heuristics in equal parts: the worst states often lie
    where a single policy never goes.
    """
    started = time.monotonic()
    criterion = require_criterion(criterion)
    _check(model, sweeps, samples, confidence, seed, kind)
    if policy is not None:
        require_policy_of(model, policy)
    shaped = _Shaped(model, criterion, potential)
    few = model.box.count is not None and model.box.count <= MOST_LISTED_STATES
    if kind == PROVED or (kind is None and few):
        found = _proved(shaped, sweeps, threads)
    elif sweeps:
        raise InputError(
            f"sweeps need every state of {model.name!r}; leave them out, or ask for kind='proved'."
        )
    elif potential is None and policy is None and kind is None and model.least_loss is not None:
        least = model.least_loss / (1.0 if shaped.average else 1 - shaped.gamma)
        found = LowerBound(least, PROVED, shaped.words, tuple(model.start.tolist()))
    else:
        if policy is None:
            chosen = _policies(model)
        else:
            chosen = [policy]
        missed = min(1.0, -math.log1p(-confidence) / samples)
        shares = [samples // len(chosen) + (k < samples % len(chosen)) for k in range(len(chosen))]
        states = [_drawn(shaped, p, n, seed, threads) for p, n in zip(chosen, shares, strict=True)]
        found = replace(
            _statistical(shaped, chosen, np.unique(np.concatenate(states), axis=0)),
            samples=samples,
            confidence=confidence,
            missed=missed,
        )
    return replace(found, seconds=time.monotonic() - started)


def _policies(model: Model) -> list[Policy]:
    """The heuristics of a model, or without any choosing evenly."""
    return [model.policy(name) for name in model.policies] or [random_policy(model)]


def _check(
    model: Model, sweeps: int, samples: int, confidence: float, seed: int, kind: str | None
) -> None:
    if model.code.forward is None:
        model.forward(model.start, 0)  # raises, and says why
    if kind is not None and kind not in KINDS_OF_BOUNDS:
        raise unknown("kind of lower bound", str(kind), KINDS_OF_BOUNDS)
    require_whole("sweeps", sweeps)
    require_counts(samples=samples)
    require_inside(confidence=confidence)
    require_seed(seed)


class _Shaped:
    """h, and the losses ℓ_h that it makes."""

    def __init__(
        self, model: Model, criterion: Criterion, potential: StateFunction | ArrayLike | None
    ) -> None:
        self.model = model
        self.gamma = 1.0
        self.starts = model.start[None, :]
        self.alpha = np.ones(1)
        self.average = not isinstance(criterion, Discounted)
        self.words = criterion.words
        if isinstance(criterion, Discounted):
            self.gamma = criterion.gamma
            self.starts, self.alpha = criterion.start_distribution(model)
        self._function = None
        self._table = None
        if callable(potential):
            self._function = potential
        elif potential is not None:
            self._table = _table(model, potential)

    def values(self, states: Ints) -> Floats:
        """h of states, one a row."""
        if self._table is not None:
            return np.asarray(self._table[(states - self.model.box.lower) @ self.model.box.strides])
        if self._function is None:
            return np.zeros(len(states))
        values = _numbers(self._function(read_only(states)))
        if values.shape != (len(states),):
            raise InputError(
                f"the potential gives numbers of shape {values.shape} for {len(states)} states; "
                "give one for each row."
            )
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            raise InputError(
                f"the potential is not finite at state {vector(states[wrong[0]])}; it must be "
                "everywhere."
            )
        return values

    def everywhere(self, count: int) -> Floats:
        """h of all states."""
        if self._table is not None:
            return self._table
        values = np.zeros(count)
        size = max(1, COORDINATES_AT_ONCE // self.model.box.dim)
        for first in range(0, count if self._function is not None else 0, size):
            numbers = np.arange(first, min(first + size, count))
            values[numbers] = self.values(self.model.box.states(numbers))
        return values

    def bound(self, least: float, here: Floats) -> float:
        """The bound that m(h) gives, with h at the starts."""
        if self.average:
            return least
        return math.fsum(self.alpha * (here + least / (1 - self.gamma)))

    # -- ℓ_h at given states -----------------------------------------------------------------------

    def least(self, states: Ints) -> Floats:
        """min_a ℓ_h(x, a) of states, one a row."""
        each = len(self.model.actions) * self.model.code.max_outcomes * self.model.box.dim
        size = max(1, COORDINATES_AT_ONCE // each)
        return np.concatenate(
            [self._least(states[i : i + size]) for i in range(0, len(states), size)]
        )

    def _least(self, states: Ints) -> Floats:
        rows, actions = allowed_rows(self.model, states)
        law = transitions(self.model, np.ascontiguousarray(states[rows]), actions)
        costs = law.losses + self.gamma * law.mean(self.values(law.states))
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        return np.asarray(np.minimum.reduceat(costs, first) - self.values(states))


def _table(model: Model, potential: ArrayLike) -> Floats:
    """Numbers for all states."""
    values = _numbers(potential)
    count = model.box.count
    if count is None:
        raise InputError(
            f"model {model.name!r} has infinitely many states; give the potential as a function of "
            "states."
        )
    if values.shape != (count,):
        raise InputError(
            f"a potential over all states is {count:,} numbers, got the shape {values.shape}."
        )
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise InputError(
            f"the potential is not finite at state {vector(model.box.state(int(wrong[0])))}; it "
            "must be everywhere."
        )
    return values


def _numbers(given: object) -> Floats:
    try:
        return np.asarray(given, np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a potential is a function of states or an array of numbers, got {given!r}."
        ) from error


# -- over all states -------------------------------------------------------------------------------


def _proved(shaped: _Shaped, sweeps: int, threads: int | None) -> LowerBound:
    """The best bound of all sweeps."""
    sweeper = Sweeper(shaped.model, threads)
    model = shaped.model
    gamma = shaped.gamma
    starts = [model.box.index(x) for x in shaped.starts]
    damping = VALUE_ITERATION_DAMPING / (1 - gamma * sweeper.laziness)
    values = shaped.everywhere(sweeper.states)
    value = -math.inf
    best = values
    after = values  # of `best`, up to a constant
    done = 0
    while done == 0 or (done <= sweeps and not time_is_over()):
        done += 1
        sweep = sweeper.optimal(values, gamma, damping=damping)
        largest = max(float(values.max()), -float(values.min())) + abs(sweep.low)
        slack = rounding(largest, model.code.max_outcomes)
        found = shaped.bound(sweep.low - slack, values[starts]) - (0.0 if shaped.average else slack)
        if found > value:
            value = found
            best = values
            after = sweep.values
        values = sweep.values
        if shaped.average:
            values -= values[0]
    worst = model.box.state(int(np.argmin(after - best)))
    if sweeps:
        improved = best.copy()
    else:
        improved = None
    return LowerBound(
        value, PROVED, shaped.words, tuple(worst.tolist()), done - 1, potential=improved
    )


# -- over states that were drawn -------------------------------------------------------------------


def _drawn(shaped: _Shaped, policy: Policy, samples: int, seed: int, threads: int | None) -> Ints:
    """States visited by trajectories of a policy from the starts, and the starts."""
    run = engine(shaped.model, policy, seed)
    weights = shaped.alpha / shaped.alpha.sum()
    chosen = np.random.default_rng(seed).choice(weights.size, REPLICAS, p=weights)
    replicas = [Replica(k, shaped.starts[s].copy(), np.zeros(2), 0) for k, s in enumerate(chosen)]
    each = -(-samples // REPLICAS)
    visits = in_parallel(
        [partial(run.visits, r, each, STEPS_BETWEEN_STATES) for r in replicas],
        threads if run.fast else 1,
    )
    return np.concatenate([shaped.starts, np.concatenate(visits)[:samples]])


def _statistical(shaped: _Shaped, policies: list[Policy], states: Ints) -> LowerBound:
    """The bound of the least ℓ_h that is found from the states drawn."""
    values = shaped.least(states)
    order = np.argsort(values, kind="stable")[:WORST_STATES]
    least, worst, falling = _descend(shaped, states[order], values[order])
    value = shaped.bound(least, shaped.values(shaped.starts))
    assumed = _assumed(shaped, policies, falling)
    return LowerBound(value, STATISTICAL, shaped.words, tuple(worst.tolist()), assumed=assumed)


def _descend(shaped: _Shaped, states: Ints, values: Floats) -> tuple[float, Ints, bool]:
    """The least value met, and where, on the way to the best neighbour while values fall.

    Whether they still do.
    """
    least = float(values[0])
    worst = states[0]
    for _ in range(MOST_WORST_STATE_STEPS):
        near, origins = _neighbours(shaped.model, states)
        if origins.size:
            found = shaped.least(near)
        else:
            found = np.zeros(0)
        order = np.lexsort((found, origins))
        best = order[np.flatnonzero(np.diff(origins[order], prepend=-1))]
        best = best[found[best] < values[origins[best]]]
        if not best.size:
            return least, worst, False
        states, kept = np.unique(near[best], axis=0, return_index=True)
        values = found[best][kept]
        if values.min() < least:
            least = float(values.min())
            worst = states[np.argmin(values)]
    return least, worst, True


def _neighbours(model: Model, states: Ints) -> tuple[Ints, Ints]:
    """The states of the box at ±1 in one coordinate, one a row, and the number of the row that each
    comes from.
    """
    unit = np.eye(model.box.dim, dtype=np.int64)
    near = (states[:, None, :] + np.concatenate([unit, -unit])).reshape(-1, model.box.dim)
    kept = inside(model, near)
    return near[kept], np.repeat(np.arange(len(states)), 2 * model.box.dim)[kept]


def _assumed(shaped: _Shaped, policies: list[Policy], falling: bool) -> str:
    """What the number rests on."""
    names = ", ".join(repr(policy.name) for policy in policies)
    parts = [f"the states that {names} visit stand for all, and count as independent draws"]
    if not shaped.model.box.bounded:
        if shaped.average:
            growth = "E h(x_n)/n tends to 0"
        else:
            growth = "γⁿ·E h(x_n) tends to 0"
        parts.append(f"{growth} under every policy worth comparing")
    if falling:
        parts.append(
            "the search was stopped while the value still fell, so the minimum may be far lower or "
            "not exist"
        )
    return "; ".join(parts)
