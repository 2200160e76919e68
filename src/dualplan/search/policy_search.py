"""Direct search over the parameters of a family of policies, on the true cost.

    minimise over θ   c(π_θ),     c the average or discounted cost, known by simulation only

*The search* is an evolution strategy, CMA-ES (Hansen & Ostermeier 2001; Hansen 2016): with θ = θ₀
+ D·z, D the scales of the family, a generation draws

    z_i = m + σ·y_i,   y_i ~ N(0, C),  i = 1..n,  in mirrored pairs y, −y,

simulates all π_{z_i} *with the same random numbers from the same states* (`trials.py`), ranks them,
and moves

    m ← m + σ Σ_k w_k y_(k)          over the better half, w decreasing, Σ w = 1, μ = 1/Σ w²
    C ← (1 − c₁ − c_μ)C + c₁ p pᵀ + c_μ Σ_k w_k y_(k) y_(k)ᵀ,      p the path of the steps of m
    σ ← σ·exp((c_s/d_s)(‖path of C^(−1/2)-steps‖/E‖N(0, I)‖ − 1)).

Only ranks count, so costs that explode (an unstable candidate) do no more harm than being last. To
first order in σ the step of m is along −C∇c (a natural gradient), the noise of one simulation being
divided by all n of a generation.

*The gradient.* `cost_gradient` is the central difference on common random numbers, with an
interval; it is what the search follows, for those who want to look at it.

*Never worse.* What was found is compared with the start on fresh random numbers, paired
(`compare`); the start is returned unless the interval of the difference lies below 0. With
confidence 1 − δ, a worse policy is returned with probability at most δ/2, as far as the interval's
own assumptions hold (statistical).

Budgets are simulated steps. Results depend on the seed and the budget only, not on threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dualplan.core.checks import require_counts, require_positive, require_seed
from dualplan.core.errors import InputError, OutOfTimeError
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.core.streams import Word, own_seed
from dualplan.core.threads import in_parallel
from dualplan.core.types import Floats
from dualplan.evaluation.evaluate import compare
from dualplan.evaluation.results import Comparison
from dualplan.models.criteria import Average, Criterion, require_criterion
from dualplan.policies.contract import Policy
from dualplan.search.families import Family
from dualplan.search.trials import Budget, make_trials

FIRST_SIGMA = 0.5
AVERAGED_SHARE = 0.25  # of the generations, whose means are averaged
JUDGING_STEPS_SHARE = 0.25  # the part of the budget that the last comparison takes


@dataclass(frozen=True, eq=False)
class Proposed:
    """The last mean of a search, not compared with anything yet.

    `average` is that of the means of the last quarter of the generations, in which much of their
    noise is gone. `trace` is the cost of the mean in each generation on that generation's random
    numbers: too noisy to compare generations by.
    """

    family: Family
    theta: Floats
    trace: Floats
    steps: int
    average: Floats

    @property
    def policy(self) -> Policy:
        """What is proposed."""
        return self.family.make(self.theta)

    @property
    def averaged(self) -> Proposed:
        """The average in the place of the last mean."""
        return replace(self, theta=self.average)


def unsearched(family: Family) -> Proposed:
    """The start of a family, to be compared with what searches propose."""
    return Proposed(family, family.start, np.zeros(0), 0, family.start)


@dataclass(frozen=True, eq=False)
class Searched:
    """What a search found; `policy` is the start's where the gain is not clear, `proposed` the last
    mean's.

    `comparison` is (found − start) on fresh random numbers, `trace` as in `Proposed`.
    """

    family: Family
    theta: Floats
    policy: Policy
    proposed: Policy
    improved: bool
    comparison: Comparison
    trace: Floats
    status: Status
    steps: int
    seconds: float
    seed: int

    @property
    def gain(self) -> Interval:
        """By how much the found policy is cheaper than the start."""
        d = self.comparison.difference
        return Interval(-d.value, -d.upper, -d.lower, d.confidence)


def search(
    family: Family,
    criterion: Criterion | None = None,
    *,
    steps: int = 200_000_000,
    seed: int = 0,
    confidence: float = 0.95,
    sigma: float = FIRST_SIGMA,
    threads: int | None = None,
) -> Searched:
    """Search the family within a budget of simulated steps.

    Never worse than its start, as far as simulation tells.
    """
    started = time.monotonic()
    wanted = require_criterion(criterion)
    _check(steps, seed, sigma)
    found = propose(
        family,
        wanted,
        steps=max(int((1 - JUDGING_STEPS_SHARE) * steps), 1),
        seed=seed,
        sigma=sigma,
        threads=threads,
    )
    last, first = (_maker(family, wanted)(theta) for theta in (found.theta, family.start))
    judged = compare(
        last.model,
        last,
        first,
        wanted,
        steps=max(int(JUDGING_STEPS_SHARE * steps), 1),
        seed=own_seed(seed, Word.SEARCH_CHOICE),
        confidence=confidence,
        threads=threads,
    )
    better = _clearly_better(judged)
    if better:
        theta = found.theta
    else:
        theta = family.start
    return Searched(
        family,
        theta,
        family.make(theta),
        found.policy,
        better,
        judged,
        found.trace,
        Status.COMPLETED,
        found.steps + judged.first.steps + judged.second.steps,
        time.monotonic() - started,
        seed,
    )


def propose(
    family: Family,
    criterion: Criterion | None = None,
    *,
    steps: int = 150_000_000,
    seed: int = 0,
    sigma: float = FIRST_SIGMA,
    threads: int | None = None,
) -> Proposed:
    """Search the family, and leave it to others to judge what was found.

    A deadline ends it after the last whole generation.
    """
    wanted = require_criterion(criterion)
    _check(steps, seed, sigma)
    strategy = _Strategy(family.start.size, sigma, seed)
    made = _maker(family, wanted)
    population = 2 * strategy.weights.size + 1
    budget = Budget(steps, population, seed, threads, outposts=family.outposts)
    trials = make_trials(made(family.start), wanted, budget)
    trace: list[float] = []
    means: list[Floats] = []
    for _ in range(trials.trials):
        thetas = family.start + family.scales * np.vstack([strategy.ask(), strategy.mean])
        try:
            costs = trials.costs([made(theta) for theta in thetas])
        except OutOfTimeError:
            if trace:
                break
            raise
        trace.append(float(costs[-1]))
        strategy.tell(costs[:-1])
        means.append(strategy.mean)
    averaged = max(1, int(AVERAGED_SHARE * len(means)))
    last, average = strategy.mean, np.mean(means[-averaged:], axis=0)
    return Proposed(
        family,
        family.start + family.scales * last,
        np.array(trace),
        trials.steps,
        family.start + family.scales * average,
    )


def best_of(
    found: Sequence[Proposed],
    criterion: Criterion | None = None,
    *,
    steps: int = 10_000_000,
    seed: int = 0,
    threads: int | None = None,
) -> Proposed:
    """The one that costs least in one more trial, each from its own states and with its own
    control.

    Searches end in valleys of different depth. The random numbers are others than those of any
    search.
    """
    wanted = require_criterion(criterion)
    _check(steps, seed, FIRST_SIGMA)
    if not found:
        raise InputError("there is nothing to choose from; give what at least one search proposed.")
    budget = Budget(
        max(steps // len(found), 1), 1, own_seed(seed, Word.SEARCH_CHOICE), threads=1, trials=1
    )
    policies = [_maker(one.family, wanted)(one.theta) for one in found]
    costs = in_parallel([partial(_trial, policy, wanted, budget) for policy in policies], threads)
    return found[int(np.argmin(costs))]


def _trial(policy: Policy, criterion: Criterion, budget: Budget) -> float:
    return float(make_trials(policy, criterion, budget).costs([policy])[0])


def _check(steps: int, seed: int, sigma: float) -> None:
    require_counts(steps=steps)
    require_seed(seed)
    require_positive(sigma=sigma)


def _maker(family: Family, criterion: Criterion) -> Callable[[Floats], Policy]:
    """What is simulated: a trial stands for the policy in the long run, whatever the start."""
    if isinstance(criterion, Average):
        return family.tried
    return family.make


def _clearly_better(judged: Comparison) -> bool:
    """Whether the first is cheaper: the whole interval says so, or only the second is unstable."""
    if Status.UNSTABLE in (judged.first.status, judged.second.status):
        return judged.first.status is not Status.UNSTABLE
    return bool(judged.difference.upper < 0)


# -- the evolution strategy ------------------------------------------------------------------------


class _Strategy:
    """The state of a CMA-ES in d dimensions: mean m, step σ, covariance C, and the two paths."""

    def __init__(self, d: int, sigma: float, seed: int) -> None:
        self.d = d
        self.sigma = sigma
        self.rng = np.random.default_rng(seed)
        self.mean = np.zeros(d)
        self.path = np.zeros(d)
        self.step_path = np.zeros(d)
        self.covariance = np.eye(d)
        self.generation = 0
        half = population_size(d) // 2
        raw = math.log(half + 0.5) - np.log(np.arange(1, half + 1))
        self.weights = raw / raw.sum()
        mu = self.mu = float(1 / np.sum(self.weights**2))
        # the constants of Hansen (2016), table 1
        self.c_step = (mu + 2) / (d + mu + 5)
        self.damping = 1 + self.c_step + 2 * max(0.0, math.sqrt((mu - 1) / (d + 1)) - 1)
        self.c_path = (4 + mu / d) / (d + 4 + 2 * mu / d)
        self.c_one = 2 / ((d + 1.3) ** 2 + mu)
        self.c_mu = min(1 - self.c_one, 2 * (mu - 2 + 1 / mu) / ((d + 2) ** 2 + mu))
        self.length = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))  # E‖N(0, I)‖

    def ask(self) -> Floats:
        """A generation of candidates, one a row, in mirrored pairs."""
        values, self.axes = np.linalg.eigh(self.covariance)
        self.widths = np.sqrt(np.maximum(values, 1e-12))
        half = self.rng.standard_normal((self.weights.size, self.d))
        self.drawn = (np.vstack([half, -half]) * self.widths) @ self.axes.T
        return np.asarray(self.mean + self.sigma * self.drawn)

    def tell(self, costs: Floats) -> None:
        """Move by the better half of the last generation."""
        best = self.drawn[np.argsort(costs, kind="stable")[: self.weights.size]]
        y = self.weights @ best
        self.mean = self.mean + self.sigma * y
        self.generation += 1
        white = self.axes @ ((self.axes.T @ y) / self.widths)
        fade = 1 - self.c_step
        self.step_path = (
            fade * self.step_path + math.sqrt(self.c_step * (2 - self.c_step) * self.mu) * white
        )
        size = float(np.linalg.norm(self.step_path)) / self.length
        slow = size / math.sqrt(1 - fade ** (2 * self.generation)) < 1.4 + 2 / (self.d + 1)
        self.path = (1 - self.c_path) * self.path
        if slow:
            self.path = self.path + math.sqrt(self.c_path * (2 - self.c_path) * self.mu) * y
        self.covariance = (
            (1 - self.c_one - self.c_mu) * self.covariance
            + self.c_one * np.outer(self.path, self.path)
            + self.c_mu * (best.T * self.weights) @ best
        )
        self.sigma *= math.exp(self.c_step / self.damping * (size - 1))


def population_size(d: int) -> int:
    """Candidates a generation, an even number."""
    return 2 * (2 + int(1.5 * math.log(d)))


# -- the gradient ----------------------------------------------------------------------------------


def cost_gradient(
    family: Family,
    criterion: Criterion | None = None,
    *,
    at: Floats | None = None,
    width: float = 0.1,
    steps: int = 20_000_000,
    seed: int = 0,
    confidence: float = 0.95,
    threads: int | None = None,
) -> list[Interval]:
    """∂c/∂θ_i by [c(θ + w s_i e_i) − c(θ − w s_i e_i)]/(2 w s_i), s the scales, each on common
    random numbers.

    The intervals are those of the difference quotient (statistical); that it differs from the
    derivative by a term of order w² is not in them.
    """
    wanted = require_criterion(criterion)
    if at is None:
        theta = family.start
    else:
        theta = np.asarray(at, np.float64)
    _check(steps, seed, width)
    if theta.shape != family.start.shape:
        raise InputError(
            f"family {family.name!r} has {family.start.size} parameters, got {theta.size}."
        )
    made = _maker(family, wanted)
    each = max(steps // theta.size, 1)
    slopes = []
    for i, scale in enumerate(family.scales):
        change = np.zeros(theta.size)
        change[i] = width * scale
        more = made(theta + change)
        less = made(theta - change)
        found = compare(
            more.model,
            more,
            less,
            wanted,
            steps=each,
            seed=seed,
            confidence=confidence,
            threads=threads,
        ).difference
        over = 2 * width * float(scale)
        slopes.append(
            Interval(found.value / over, found.lower / over, found.upper / over, found.confidence)
        )
    return slopes
