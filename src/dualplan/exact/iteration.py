"""Optimal costs by iteration over all states, with certified bounds.

Average criterion. For every vector V and D = L V − V,

    min_x D(x)  <=  λ*  <=  max_x D(x),

since V + n·min D <= Lⁿ V; the policy that is greedy for V costs at most max D. Lower bounds of all
sweeps hold, so the best is kept; the upper bound is that of the last sweep, whose greedy policy is
the one returned.

Discounted criterion (MacQueen 1966). With D = L V − V,

    L V + γ/(1−γ)·min D  <=  J*  <=  L V + γ/(1−γ)·max D.

It ends when the two sides of one sweep are as near as was asked: then the middle of them is J*
within half of that in every state, which a lower bound of an earlier sweep would not say.

The methods differ in how they come by the next V, and the bounds hold whatever it is:

value iteration              V ← V + τ·D. With τ < 1 the chain is aperiodic. Where every pair stays
                             put with probability
                             q or more, τ < 1/(1−q) is as safe and faster: the chain watched when it
                             moves.
modified policy iteration    sweeps of the greedy policy's own operator, which look at one action
                             instead of all,
                             between two sweeps of L (Puterman & Shin 1978).
policy iteration             V solves the equations of the greedy policy, by GMRES on its operator,
                             without a matrix.
Gauss–Seidel                 discounted: a sweep uses the new values of the states it has passed, G
                             below. G is monotone
                             and G(V + c) <= G V + γ·c for c >= 0, so with D = G V − V the bounds
                             are G V + γ/(1−γ)·min(min D, 0) <= J* <= G V + γ/(1−γ)·max(max D, 0).

The first two are slow along a few smooth directions. Every `SWEEPS_BETWEEN_MIXINGS` sweeps they
take the combination of the last images F(V) of a period whose residual F(V) − V is least (Anderson
mixing), unless that made matters worse before.

Rounding counts: a computed D is off by at most about ε = `ROUNDING_FACTOR`·2⁻⁵³·(outcomes +
4)·(max|V| + max|D|), and the bounds are those of D ∓ ε. So values that have run away give wide
bounds, never wrong ones. Where D is as flat as ε, or the bounds are within some ε and have stopped
to approach each other, no sweep brings more: the answer is as near as rounding allows.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse.linalg as linear

from dualplan.core.budgets import Clock, seconds
from dualplan.core.checks import require_counts, require_positive, require_threads
from dualplan.core.deadlines import time_is_over
from dualplan.core.errors import InputError, unknown
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Floats, Ints, Json
from dualplan.exact.classes import require_one_cost
from dualplan.exact.operators import Sweep, Sweeper
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.policies.tables import TablePolicy

VALUE_ITERATION_DAMPING = 0.98  # τ, before laziness is taken into account
INNER_SWEEPS = 20  # sweeps of modified policy iteration between two of L
ROUNDING_FACTOR = 4.0
# sweeps of L without progress after which bounds within so many ε are as near as rounding allows
ROUNDING_STALL_SWEEPS = 50
ROUNDING_STALL_WIDTHS = 100.0
# sweeps between mixings, and how far these look back
SWEEPS_BETWEEN_MIXINGS = 30
MIXING_DEPTH = 2
# mixing must narrow the bounds by this factor, and not extrapolate farther than that
MIXING_PROGRESS = 0.95
LARGEST_MIXING_WEIGHT = 1e3
# GMRES in policy iteration: correction until the residual fell so far
POLICY_GMRES_RESTART = 30
POLICY_GMRES_RESTARTS = 20
POLICY_GMRES_REDUCTION = 1e-3
WARM_UP_SWEEPS = 20  # sweeps of value iteration before policy iteration
# look for several recurrent classes if the width fell by less than this in so many sweeps
STALL_SWEEPS = 500
STALLED_WIDTH_RATIO = 0.9
# told the sweeps and the bounds so far; True ends the work, as the time does
Progress = Callable[[int, float, float], bool | None]


@dataclass(frozen=True, eq=False, repr=False)
class ExactSolution(Shown):
    """The optimal cost between two bounds, and a policy that reaches the upper one.

    `table` has an action for each state. `values` are J* within the width of the last sweep's
    bounds, so within `tol` once solved (discounted), or the relative values of the last sweep, up
    to a constant (average).
    """

    model: Model
    lower: float
    upper: float
    values: Floats
    table: Ints
    status: Status
    method: str
    sweeps: int
    seconds: float

    @property
    def value(self) -> float:
        """The middle of the bounds."""
        return (self.lower + self.upper) / 2

    @property
    def cost(self) -> float:
        """What the policy costs, within the bounds."""
        return self.value

    @cached_property
    def policy(self) -> TablePolicy:
        """The greedy policy of the last sweep; its cost lies between the bounds."""
        return TablePolicy(self.model, self.table, name="optimal")

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        return {
            "status": str(self.status),
            "advice": self.status.advice,
            "lower": self.lower,
            "upper": self.upper,
            "states": int(self.values.size),
            "method": self.method,
            "seconds": round(self.seconds, 3),
            "peak_mb": peak_mb(),
            "sweeps": self.sweeps,
        }


def solve_exact(
    model: Model,
    criterion: Criterion | None = None,
    *,
    method: str | None = None,
    tol: float = 1e-4,
    relative_tol: float | None = None,
    sweeps: int = 200_000,
    time: str | float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ExactSolution:
    """The optimal cost within `tol`, or `relative_tol` of it, over all states of a bounded box.

    The default method is modified policy iteration, or value iteration where a sweep over all
    actions costs no more than one over the greedy policy's. When the `time` is over, or `progress`
    returns True, the bounds and the policy are those of the last sweep.
    """
    criterion = require_criterion(criterion)
    if method is not None and method not in ITERATION_METHODS:
        raise unknown("exact method", method, ITERATION_METHODS)
    require_positive(tol=tol)
    if relative_tol is not None:
        require_positive(relative_tol=relative_tol)
    require_counts(sweeps=sweeps)
    require_threads(threads)
    clock = Clock(math.inf if time is None else seconds(time))
    sweeper = Sweeper(model, threads)
    method = method or ("value-iteration" if sweeper.swift else "modified-policy-iteration")
    search = Search(
        sweeper, criterion, tol, sweeps, progress, relative_tol=relative_tol or 0.0, clock=clock
    )
    before, after = ITERATION_METHODS[method](search)
    best = np.zeros(sweeper.states, np.int64)
    sweeper.optimal(before, search.gamma, best=best)
    return ExactSolution(
        model,
        search.lower,
        search.upper,
        after + search.shift,
        best,
        search.status,
        method,
        search.sweeps,
        clock.spent,
    )


def seconds_for(sweeper: Sweeper, sweeps: int) -> float:
    """About how long so many sweeps of the default method take: most of them look at one action, if
    those of L look at all, one after the other.
    """
    if sweeper.swift:
        return sweeper.seconds_for(sweeps)
    share = (1 + INNER_SWEEPS / len(sweeper.model.actions)) / (1 + INNER_SWEEPS)
    return sweeper.seconds_for(math.ceil(share * sweeps))


def peak_mb() -> float:
    """The most memory that the process has held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def rounding(largest: float, outcomes: int) -> float:
    """How far a computed entry of L V − V may be off, for values up to `largest`."""
    return ROUNDING_FACTOR * 2.0**-53 * (outcomes + 4) * largest


@dataclass(eq=False)
class Search:
    """What all methods share: the operator, the bounds so far, and when to stop."""

    sweeper: Any
    criterion: Criterion
    tol: float
    max_sweeps: int
    progress: Progress | None
    relative_tol: float = 0.0
    clock: Clock = field(default_factory=lambda: Clock(math.inf))
    sweeps: int = 0
    lower: float = -np.inf
    upper: float = np.inf
    width: float = np.inf  # how far the bounds of the last sweep are apart
    shift: float = 0.0  # what L V lacks to be in the middle of them
    status: Status = Status.WIDE
    stopped: bool = False
    _stall: tuple[int, float] = field(default=(STALL_SWEEPS, np.inf))
    _progress: tuple[int, float] = (0, np.inf)  # sweeps of L since the width last fell, and it

    def __post_init__(self) -> None:
        self.gamma = 1.0
        self._starts = np.zeros(0, np.int64)
        self._weights = np.zeros(0)
        if isinstance(self.criterion, Discounted):
            model = self.sweeper.model
            states, self._weights = self.criterion.start_distribution(model)
            self.gamma = self.criterion.gamma
            self._starts = np.array([model.box.index(x) for x in states])

    @property
    def average(self) -> bool:
        """Whether the criterion is the average cost."""
        return not isinstance(self.criterion, Discounted)

    @property
    def wanted(self) -> float:
        """How far they may be apart."""
        return max(self.tol, self.relative_tol * min(abs(self.lower), abs(self.upper)))

    @property
    def damping(self) -> float:
        """The step τ along D."""
        return float(VALUE_ITERATION_DAMPING / (1 - self.sweeper.laziness))

    def bounded(self, values: Floats, sweep: Sweep, damping: float) -> bool:
        """Take the bounds of a sweep of L; whether to stop."""
        slack = self.rounding(values, sweep)
        if self.average:
            return self._note(sweep.low - slack, sweep.high + slack, slack, values)
        here = values[self._starts]
        following = float((here + (sweep.values[self._starts] - here) / damping) @ self._weights)
        factor = self.gamma / (1 - self.gamma)
        self.shift = factor * (sweep.low + sweep.high) / 2
        low = following + factor * sweep.low
        high = following + factor * sweep.high
        return self._note(low, high, slack * (1 + factor))

    def bounded_in_place(self, sweep: Sweep) -> bool:
        """The same for a Gauss–Seidel sweep."""
        slack = self.rounding(sweep.values, sweep)
        following = float(sweep.values[self._starts] @ self._weights)
        factor = self.gamma / (1 - self.gamma)
        low = min(sweep.low, 0.0)
        high = max(sweep.high, 0.0)
        self.shift = factor * (low + high) / 2
        return self._note(following + factor * low, following + factor * high, slack * (1 + factor))

    def rounding(self, values: Floats, sweep: Sweep) -> float:
        """How far a computed entry of D may be off."""
        largest = max(float(values.max()), -float(values.min()))
        difference = max(abs(sweep.low), abs(sweep.high))
        return rounding(largest + difference, self.sweeper.model.code.max_outcomes)

    def require_one_cost(self, values: Floats) -> None:
        """Raise if the values prove that the average cost depends on the start."""
        if self.average:
            everywhere, greedy, difference = self.sweeper.graphs(values)
            require_one_cost(self.sweeper.model, everywhere, greedy, difference, values)

    def _note(self, low: float, high: float, slack: float, values: Floats | None = None) -> bool:
        """Take the bounds of a sweep, which rounding widens by the slack on both sides."""
        self.sweeps += 1
        # lower bounds of all sweeps hold, so one above the last upper bound differs from it by
        # rounding only
        self.lower = max(self.lower, low - slack)
        self.upper = high + slack
        self.lower = min(self.lower, self.upper)
        # values in all states need both bounds from one sweep; a single cost does not
        if self.average:
            self.width = self.upper - self.lower
        else:
            self.width = high - low + 2 * slack
        if self.progress is not None and self.progress(self.sweeps, self.lower, self.upper):
            self.stopped = True
        if self._ended(high - low, slack):
            return True
        sweeps, width = self._stall
        if self.average and values is not None and self.sweeps >= sweeps:
            if self.width > STALLED_WIDTH_RATIO * width:
                self.require_one_cost(values)
            self._stall = self.sweeps + STALL_SWEEPS, self.width
        return False

    def _ended(self, computed: float, slack: float) -> bool:
        """Whether to stop, and why."""
        if self.width <= self.wanted:
            self.status = Status.SOLVED
        elif computed <= slack or self._stalled(slack):
            self.status = Status.ROUNDING
        elif self.sweeps >= self.max_sweeps:
            self.status = Status.WIDE
        elif self.stopped or self.out_of_time:
            self.status = Status.TIME
        else:
            return False
        return True

    def _stalled(self, slack: float) -> bool:
        """Whether the bounds are within some roundings and no longer approach each other."""
        count, width = self._progress
        if self.width < 0.9 * width:
            self._progress = 0, self.width
        else:
            self._progress = count + 1, width
        near = self.width <= ROUNDING_STALL_WIDTHS * slack
        return near and self._progress[0] >= ROUNDING_STALL_SWEEPS

    @property
    def out_of_time(self) -> bool:
        """Whether the clock says so, or a deadline."""
        return self.clock.over or time_is_over()


def value_iteration(
    search: Search, inner: int = 0, start: Floats | None = None
) -> tuple[Floats, Floats]:
    """V, and L V of the last sweep.

    With `inner` sweeps of the greedy policy between two of L.
    """
    sweeper = search.sweeper
    gamma = search.gamma
    damping = search.damping
    if start is None:
        values = np.zeros(sweeper.states)
    else:
        values = start.copy()
    spare = np.empty(sweeper.states)
    if inner:
        best = np.zeros(sweeper.states, np.int64)
    else:
        best = None
    mixing = Mixing()
    origin = values.copy()
    mixed = 0
    while True:
        sweep = sweeper.optimal(values, gamma, damping=damping, best=best, out=spare)
        if search.bounded(values, sweep, damping):
            return values, values + (sweep.values - values) / damping
        values, spare = spare, values
        if best is not None:
            policy = TablePolicy(sweeper.model, best)
            for _ in range(min(inner, search.max_sweeps - search.sweeps - 1)):
                if search.out_of_time:
                    break
                sweeper.fixed(policy, values, gamma, damping=damping, out=spare)
                values, spare = spare, values
                search.sweeps += 1
        if search.sweeps - mixed >= SWEEPS_BETWEEN_MIXINGS:
            if search.average:
                values -= values[0]
            origin = mixing.next(origin, values, search.width)
            values = origin.copy()
            mixed = search.sweeps


class Mixing:
    """Anderson mixing of the map F that a period of sweeps is."""

    def __init__(self) -> None:
        self.images: list[Floats] = []  # F(V)
        self.residuals: list[Floats] = []  # F(V) − V
        self.width = np.inf
        self.failures = 0
        self.pause = 0
        self.mixed = False

    def next(self, start: Floats, image: Floats, width: float) -> Floats:
        """Where the next period starts, given how this one went; takes both arrays over."""
        # no good: go on without for a while, longer each time
        if self.mixed and width > MIXING_PROGRESS * self.width:
            self.failures += 1
            self.pause = 2**self.failures
            self.images.clear()
            self.residuals.clear()
        self.width = width
        self.mixed = False
        if self.pause > 0:
            self.pause -= 1
            return image
        self.images, self.residuals = self.images[-MIXING_DEPTH:], self.residuals[-MIXING_DEPTH:]
        self.images.append(image)
        self.residuals.append(np.subtract(image, start, out=start))
        if len(self.images) == 1:
            return image.copy()
        weights = self._weights()
        if np.abs(weights).max() > LARGEST_MIXING_WEIGHT:
            return image.copy()
        self.mixed = True
        return self._combine(weights)

    def _weights(self) -> Floats:
        """w with Σw = 1 and the least ‖Σ w_j r_j‖."""
        gram = np.array([[r @ s for s in self.residuals] for r in self.residuals])
        gram += 1e-10 * np.trace(gram) * np.eye(len(gram))
        if not np.trace(gram) > 0:
            return np.full(len(gram), 1 / len(gram))
        weights = np.linalg.solve(gram / np.trace(gram), np.ones(len(gram)))
        return np.asarray(weights / weights.sum())

    def _combine(self, weights: Floats) -> Floats:
        total = weights[0] * self.images[0]
        for weight, image in zip(weights[1:], self.images[1:], strict=True):
            total += weight * image
        return np.asarray(total)


def _modified_policy_iteration(search: Search) -> tuple[Floats, Floats]:
    return value_iteration(search, INNER_SWEEPS)


def _policy_iteration(search: Search) -> tuple[Floats, Floats]:
    sweeper = search.sweeper
    best = np.zeros(search.sweeper.states, np.int64)
    values = np.zeros(sweeper.states)
    good = np.zeros(sweeper.states)
    width = np.inf
    warm_up = WARM_UP_SWEEPS  # the greedy policy of V = 0 may be absurd
    while True:
        for _ in range(warm_up):
            if search.out_of_time:
                break
            values = sweeper.optimal(values, search.gamma, damping=search.damping).values
            search.sweeps += 1
        sweep = sweeper.optimal(values, search.gamma, best=best)
        if search.bounded(values, sweep, 1.0):
            return values, sweep.values
        image = sweep.values - (sweep.values[0] if search.average else 0.0)
        # equations that have no solution: several recurrent classes
        if warm_up == 0 and not search.width < width:
            search.require_one_cost(good)
            values = good
            warm_up = 2 * WARM_UP_SWEEPS
            continue
        good = image
        width = search.width
        warm_up = 0
        values = _corrected(search, TablePolicy(sweeper.model, best), image)


def _corrected(search: Search, policy: TablePolicy, values: Floats) -> Floats:
    """V + δ near the solution of the policy's equations, (I − γP)δ = r with r = ℓ + γPV − V.

    Average criterion: (I − P)δ + ε1 = r − λ1, where λ is the mean of r, and δ(o) = 0 for one state
    o, whose place in the vector of unknowns is taken by ε.
    """
    sweeper = search.sweeper
    gamma = search.gamma
    o = sweeper.model.box.index(sweeper.model.start)
    image = sweeper.fixed(policy, values, gamma).values
    losses = sweeper.fixed(policy, np.zeros_like(values), gamma).values

    def apply(unknowns: Floats) -> Floats:
        delta = np.array(unknowns, np.float64).ravel()
        cost = 0.0
        if search.average:
            delta[o] = 0.0
            cost = float(unknowns.ravel()[o])
        search.sweeps += 1
        return np.asarray(delta - (sweeper.fixed(policy, delta, gamma).values - losses) + cost)

    residual = image - values
    if search.average:
        residual -= residual.mean()
    operator = linear.LinearOperator((values.size, values.size), matvec=apply, dtype=np.float64)
    delta = np.zeros_like(values)
    for _ in range(POLICY_GMRES_RESTARTS):
        delta, unfinished = linear.gmres(
            operator,
            residual,
            x0=delta,
            rtol=POLICY_GMRES_REDUCTION,
            restart=POLICY_GMRES_RESTART,
            maxiter=1,
        )
        if not unfinished or search.out_of_time:
            break
    if search.average:
        delta[o] = 0.0
    return np.asarray(values + delta)


def _gauss_seidel(search: Search) -> tuple[Floats, Floats]:
    if search.average:
        raise InputError(
            "method 'gauss-seidel' is for the discounted criterion; use another one for the "
            "average."
        )
    values = np.zeros(search.sweeper.states)
    spare = np.empty(search.sweeper.states)
    while True:
        sweep = search.sweeper.optimal_in_place(values, search.gamma, out=spare)
        if search.bounded_in_place(sweep):
            return sweep.values, sweep.values
        values, spare = spare, values


ITERATION_METHODS: dict[str, Callable[[Search], tuple[Floats, Floats]]] = {
    "value-iteration": value_iteration,
    "modified-policy-iteration": _modified_policy_iteration,
    "policy-iteration": _policy_iteration,
    "gauss-seidel": _gauss_seidel,
}
