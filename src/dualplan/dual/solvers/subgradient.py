"""Projected stochastic subgradient methods on the surrogate.

*The paper's*: θ ← Π_Θ(θ − η·g) from the projection of 0, and the average of the iterates. With G
= ‖Φᵀℓ‖ + H_neg·C1 + H_flow·C2, which bounds every subgradient estimate, and the constant step η
= S/(G√T), with probability 1 − δ

    c(θ̂) − min c  <=  (S·G/√T)·(1 + 4√(2 ln(1/δ))),     so        T = (S·G/ε)²·(1 + 4√(2 ln(1/δ)))²

steps suffice for ε. (The paper prints η = G·S/√T, which its proof does not use, and a deviation
term without G, which is false: by Azuma's inequality the noise enters through its bound.) This T is
astronomical for most problems of any interest; it is computed, and refused when it exceeds the
budget.

*Adaptive*: a step size for each weight, its reach over the root of the sum of its squared
subgradients (in the manner of AdaGrad with distances over gradients). The reach r_j is how far the
weight has come, and at the start

    r_j = σ·max(|θ_j|, M/d),        but at least 10⁻³·M/√d.

A large σ gets away from a poor start, a small one has little noise near the minimum, and which is
right depends on the problem. So walks with σ = 0, .03 and .3 take their steps side by side on the
same rows, which cost more to draw than to use: for half of the samples from the best single feature
and from the middle of Θ, then again from the best that was found. A walk stands for the average of
its second half, and the least value on constraints held out for the purpose decides. Nothing need
be tuned. Weights found for a neighbouring penalty may take the place of the middle of Θ; they too
are among what the constraints held out choose from, so that on these the result is no worse than
the start. (To begin at the middle as well was tried: on the network of 10⁴ states it changed
nothing.)

Constraints are drawn on all cores, chunk by chunk; the steps then follow one another in one
compiled loop. The value of a solution is estimated on fresh constraints, never on those it was
found with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dualplan._kernels import subgradient as kernels
from dualplan._kernels.layouts import sparse_rows
from dualplan.core.checks import require_counts, require_inside, require_positive, require_seed
from dualplan.core.errors import InputError
from dualplan.core.status import Status
from dualplan.core.types import Floats
from dualplan.dual.problem import Constraints, DualALP, Penalty, penalties
from dualplan.dual.solvers.contract import Solution

SAMPLES_AT_ONCE = 200_000  # samples drawn at once
JUDGING_SAMPLES = 200_000  # samples that judge the result
MOST_CHOOSING_SAMPLES = 100_000  # samples that choose among walks, at most
FIRST_REACH_SHARE = 1e-3  # of M/√d, the distance each weight counts as having come at the start
WALK_SCALES = (0.0, 0.03, 0.3)  # of a weight's size, likewise


@dataclass(frozen=True, eq=False)
class Theory:
    """What the corrected theorem asks for: the bound G on subgradients, the number of steps T and
    the step size.
    """

    gradient: float
    steps: float
    step_size: float


def gradient_bound(problem: DualALP, penalty: Penalty) -> float:
    """G = ‖Φᵀℓ_h‖ + H_neg·C1 + H_flow·C2, which bounds every subgradient estimate of the surrogate
    as it is drawn.
    """
    if problem.weights is not None or problem.limits:
        raise InputError(
            "the theorem is about the surrogate without weights over states and limits; give a "
            "step size."
        )
    (on_negative, on_flow), c = penalties(penalty), problem.constants
    return float(np.linalg.norm(problem.slope)) + on_negative * c.negative + on_flow * c.flow


def theory(problem: DualALP, penalty: Penalty, *, epsilon: float, delta: float) -> Theory:
    """The steps after which the paper's method is within ε of the minimum with probability 1
    − δ.
    """
    require_positive(epsilon=epsilon)
    require_inside(delta=delta)
    gradient = gradient_bound(problem, penalty)
    scale = problem.radius * gradient / epsilon * (1 + 4 * math.sqrt(2 * math.log(1 / delta)))
    if scale < 1e150:
        steps = scale**2
    else:
        steps = math.inf
    return Theory(gradient, steps, problem.radius / (gradient * math.sqrt(steps)))


def halving(first: float, every: int) -> Callable[[int], float]:
    """A step size that is halved every so many steps."""
    return lambda t: first * 0.5 ** (t // every)


def solve_by_theory(
    problem: DualALP,
    penalty: Penalty,
    *,
    epsilon: float,
    delta: float,
    samples: int = 10_000_000,
    seed: int = 0,
) -> Solution:
    """The paper's method with the step and the number of steps of the theorem, if they are within
    the samples allowed.
    """
    asked = theory(problem, penalty, epsilon=epsilon, delta=delta)
    if asked.steps > samples:
        raise InputError(
            f"the theorem asks for {asked.steps:.3g} steps (G = {asked.gradient:.3g}, S = "
            f"{problem.radius:.3g}), more than the {samples:,} samples allowed; use "
            "solve_adaptive, or solve_subgradient with a step size of your own."
        )
    return solve_subgradient(
        problem, penalty, iterations=math.ceil(asked.steps), step_size=asked.step_size, seed=seed
    )


def solve_subgradient(
    problem: DualALP,
    penalty: Penalty,
    *,
    iterations: int,
    step_size: float | Callable[[int], float],
    batch: int = 1,
    seed: int = 0,
    start: Floats | None = None,
    threads: int | None = None,
    fresh: int = JUDGING_SAMPLES,
    watch: Callable[[int, Floats], None] | None = None,
) -> Solution:
    """The paper's method: a step size, or one for each step from 0 on; each step has `batch`
    samples of its own.

    A `start` takes the place of 0, whose projection onto Θ is where the steps begin. `watch` is
    shown the number of steps and the average of the iterates from time to time.
    """
    require_counts(iterations=iterations, batch=batch)
    require_seed(seed)
    if not callable(step_size):
        require_positive(step_size=step_size)
    started = time.monotonic()
    theta = problem.starting_point(np.zeros(len(problem.features)) if start is None else start)
    total = np.zeros_like(theta)
    gradient = np.empty_like(theta)
    done = 0
    while done < iterations:
        count = min(max(SAMPLES_AT_ONCE // batch, 1), iterations - done)
        sizes = np.array(
            [step_size(t) if callable(step_size) else step_size for t in range(done, done + count)]
        )
        rows = problem.draw(count * batch, seed=seed, first=done * batch, threads=threads)
        settings = _settings(problem, penalty, batch)
        kernels.plain(_surrogate(problem, rows), settings, sizes, theta, total, gradient)
        done += count
        if watch is not None:
            watch(done, total / done)
    samples = iterations * batch
    rows = problem.draw(fresh, seed=seed, first=samples, threads=threads)
    work = _Work("paper", samples, seed, started)
    return _judged(problem, penalty, total / iterations, work, rows)


def solve_adaptive(
    problem: DualALP,
    penalty: Penalty,
    *,
    samples: int = 2_000_000,
    batch: int = 10,
    seed: int = 0,
    start: Floats | None = None,
    threads: int | None = None,
    fresh: int = JUDGING_SAMPLES,
    watch: Callable[[int, Sequence[Floats]], None] | None = None,
) -> Solution:
    """The adaptive method; `samples` of each kind of constraint are its budget, with a few more
    held out to choose.

    A `start` takes the place of the middle of Θ, and is itself among what is chosen from. `fresh`
    constraints judge the result. `watch` is shown the number of samples and the averages of the
    walks from time to time.
    """
    require_counts(samples=samples, batch=batch)
    require_seed(seed)
    if samples < 2 * batch:
        raise InputError(
            f"samples must be at least two batches, got {samples!r} and batch {batch!r}."
        )
    started = time.monotonic()
    chunk = max(batch, min(SAMPLES_AT_ONCE, samples // 4) // batch * batch)
    chunks = samples // chunk
    held = problem.draw(
        min(MOST_CHOOSING_SAMPLES, chunks * chunk), seed=seed, first=chunks * chunk, threads=threads
    )
    first = first_point(problem, penalty, held)
    second = problem.starting_point(np.zeros_like(first) if start is None else start)
    origins = [first, second]
    if start is None:
        known = [first]
    else:
        known = [first, second]
    for low, high in ((0, chunks // 2), (chunks // 2, chunks)):
        walks = [_Walk.begin(problem, origin, scale) for origin in origins for scale in WALK_SCALES]
        for k in range(low, high):
            rows = problem.draw(chunk, seed=seed, first=k * chunk, threads=threads)
            _walk(problem, penalty, rows, batch, walks, forget=k == (low + high) // 2)
            if watch is not None:
                watch((k + 1) * chunk, [walk.total / walk.weight[0] for walk in walks])
        found = [*known, *(walk.total / walk.weight[0] for walk in walks)]
        origins = known = [min(found, key=lambda theta: problem.value(theta, penalty, held).total)]
    samples = chunks * chunk
    first_fresh = samples + held.masses.size
    rows = problem.draw(fresh, seed=seed, first=first_fresh, threads=threads)
    return _judged(problem, penalty, origins[0], _Work("adaptive", samples, seed, started), rows)


@dataclass(frozen=True, eq=False)
class _Walk:
    """Where a walk began and is, its reach and squared subgradients, and a weighted sum of its
    points.
    """

    origin: Floats
    theta: Floats
    reach: Floats
    squares: Floats
    total: Floats
    weight: Floats

    @classmethod
    def begin(cls, problem: DualALP, origin: Floats, scale: float) -> _Walk:
        d = origin.size
        reach = np.maximum(
            scale * np.maximum(np.abs(origin), problem.total / d),
            FIRST_REACH_SHARE * problem.total / d**0.5,
        )
        return cls(origin, origin.copy(), reach, np.zeros(d), np.zeros(d), np.zeros(1))


def _walk(
    problem: DualALP,
    penalty: Penalty,
    rows: Constraints,
    batch: int,
    walks: list[_Walk],
    *,
    forget: bool,
) -> None:
    """Every walk's steps over the rows; if asked, their averages begin here."""
    surrogate = _surrogate(problem, rows)
    settings = _settings(problem, penalty, batch)
    batches = rows.masses.size // batch
    gradient = np.empty(len(problem.features))
    for walk in walks:
        if forget:
            walk.total[:] = 0.0
            walk.weight[:] = 0.0
        moved = kernels.AdaptiveWalk(
            walk.theta, walk.origin, walk.reach, walk.squares, walk.total, walk.weight
        )
        kernels.adaptive(surrogate, settings, batches, moved, gradient)


def _settings(problem: DualALP, penalty: Penalty, batch: int) -> kernels.Settings:
    return kernels.Settings(*penalties(penalty), batch, problem.mass, problem.radius)


def _surrogate(problem: DualALP, rows: Constraints) -> kernels.Surrogate:
    """What the loops read of the problem and the rows drawn for it."""
    count = rows.masses.size
    return kernels.Surrogate(
        problem.slope,
        sparse_rows(rows.pairs),
        count * rows.pair_weights * rows.pair_prices,
        rows.base,
        sparse_rows(rows.flows),
        count * rows.flow_weights * rows.flow_prices,
        rows.masses,
        np.ascontiguousarray(problem.limit_rows),
        problem.limit_base,
        problem.limit_penalty,
    )


def first_point(problem: DualALP, penalty: Penalty, rows: Constraints) -> Floats:
    """The base measure alone, or all mass on the feature with the least surrogate, as estimated.

    A single feature is nowhere negative.
    """
    theta = np.zeros(len(problem.features))
    if problem.base is not None:
        return theta
    on_flow = penalties(penalty)[1]
    flows = rows.flows.tocsc()
    prices = on_flow * rows.flow_prices * rows.flow_weights
    values = problem.mass * problem.slope
    for j in range(
        values.size
    ):  # relative to all weights 0: what changes is in the rows that the feature touches
        entries = slice(flows.indptr[j], flows.indptr[j + 1])
        touched = flows.indices[entries]
        change = problem.mass * flows.data[entries]
        alpha = rows.masses[touched]
        values[j] += ((np.abs(change - alpha) - np.abs(alpha)) * prices[touched]).sum()
    values += problem.limit_penalty @ np.maximum(problem.mass * problem.limit_rows, 0.0)
    theta[int(np.argmin(values))] = problem.mass
    if np.linalg.norm(theta) <= problem.radius:
        return theta
    return problem.project(theta)


@dataclass(frozen=True, eq=False)
class _Work:
    """Which solver drew how many samples with which seed, and when it began."""

    solver: str
    samples: int
    seed: int
    started: float


def _judged(
    problem: DualALP, penalty: Penalty, theta: Floats, work: _Work, rows: Constraints
) -> Solution:
    """The surrogate on constraints that θ was not found by."""
    parts = problem.value(theta, penalty, rows)
    seconds = time.monotonic() - work.started
    return Solution(
        problem,
        work.solver,
        penalties(penalty),
        theta,
        parts,
        Status.COMPLETED,
        work.samples,
        work.seed,
        seconds,
    )
