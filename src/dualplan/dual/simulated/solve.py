"""Solvers of the forward-only problem (`problem.py`), and what they return.

lp       over the means of all transitions, with the different rows r_i of ratios, their shares p_i
         and the residuals
         ρ_k(θ) = G_kθ + a_k of the test functions:

             min  ℓ_hᵀθ + H_neg·M·Σ p_i s_i + H_flow·t      subject to  mᵀθ = 1,  |θ| <= S,  s_i >=
                  −r_iθ,  s_i >= 0,
                  t >= Σ_k v_k over each family of cells,  t >= v_k for each function,  v_k >=
                                                           ±ρ_k(θ),
                  and with an anchor the reference's mass on each of its cells

         With p_k, n_k >= 0 the multipliers of v_k >= ±ρ_k(θ), those of the families sum to H_flow,
         so that the function y = Σ (p_k − n_k)·y_k of all states has |y| <= H_flow; by strong
         duality the minimum is that of the program without t and with the potential h + y
         (`dual_potential`)

saddle   stochastic steps of θ and of the mixture of test functions over batches of transitions
         (`_kernels/saddle.py`):
         its memory is that of the transitions' sparse rows, and a step costs what a batch has
         entries. Walks with several reaches go from the reference and from the middle; the means
         over all transitions choose among their averages, and a second round sets out from the
         best.

Both minimise the same function of θ (`SimulatedALP.value`). Its minimum is too low on average,
since θ was chosen on the transitions that it is judged by; `parts` are estimates on fresh ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import saddle as kernels
from dualplan._kernels.layouts import sparse_rows
from dualplan.core.checks import require_counts, require_inside
from dualplan.core.errors import InputError, unknown
from dualplan.core.lp import minimise
from dualplan.core.shown import Shown
from dualplan.core.status import ASSUMED, STATISTICAL, Status
from dualplan.core.types import Bools, Floats, Json
from dualplan.dual.features.ratios import RatioPolicy
from dualplan.dual.problem import Penalty, penalties
from dualplan.dual.simulated.moments import Estimates, Moments, Sample
from dualplan.dual.simulated.problem import SimulatedALP
from dualplan.values.functions import Combination, StateFunction, StateSum

SMALL_SAMPLE_SHARE = 0.05  # effective share of the sample below which the status says so
NEGLIGIBLE_WEIGHT_SHARE = 1e-7  # relative: weights that a solver's tolerance made
SADDLE_WALK_SCALES = (0.03, 0.3, 3.0)  # reaches of the walks, relative to the reference's weight
SADDLE_BATCH = 100
SADDLE_PASSES = 10
MOST_HELD_TRANSITIONS = 2_000_000  # transitions that are held at once for a saddle point


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedSolution(Shown):
    """Weights found for one penalty.

    `value` is the surrogate that was minimised, on the solver's own transitions: too low on
    average. `parts` are estimates on fresh transitions; `parts.flow` is a lower bound of V_flow,
    over the test functions only. `known` says how each number is known.
    """

    problem: SimulatedALP
    method: str
    penalty: tuple[float, float]
    theta: Floats
    value: float
    parts: Estimates
    status: Status
    samples: int
    seed: int
    seconds: float
    multipliers: Floats | None = None

    def dual_potential(self) -> StateFunction:
        """The multipliers of the flow times their test functions, on top of the problem's
        potential.
        """
        if self.multipliers is None:
            raise InputError(f"method {self.method!r} has no multipliers; use 'lp'.")
        own = Combination(self.problem.tests, self.multipliers)
        if self.problem.potential is None:
            return own
        return StateSum((self.problem.potential, own))

    @property
    def effective(self) -> float:
        """The effective share of the fresh transitions."""
        return self.parts.effective

    @property
    def known(self) -> dict[str, str]:
        """How the numbers are known."""
        return {
            "objective": STATISTICAL,
            "negative": STATISTICAL,
            "flow": f"{STATISTICAL}: a lower bound, by the test functions only",
            "total": f"{STATISTICAL}: a lower bound of the surrogate",
            "occupancy": f"{ASSUMED}: trajectories forget their start within the warm-up",
        }

    def policy(self, name: str = "forward") -> RatioPolicy:
        """π(a|x) ∝ π_ref(a|x)·[Σ_j θ_j r_j(x,a)]₊."""
        return RatioPolicy(self.problem.ratios, self.theta, name=name)

    def to_json(self) -> Json:
        """Everything but θ, as plain values."""
        negative, flow = self.penalty
        parts = {
            name: getattr(self.parts, name).to_json()
            for name in ("objective", "shaped", "mass", "negative", "flow", "total")
        }
        return {
            "method": self.method,
            "status": str(self.status),
            "advice": self.status.advice,
            "penalty": negative if negative == flow else [negative, flow],
            "value": self.value,
            **parts,
            "flow_seen": self.parts.flow_seen,
            "effective": self.effective,
            "confidence": self.parts.total.confidence,
            "known": self.known,
            "samples": self.samples,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
        }


def solve_simulated(
    problem: SimulatedALP,
    penalty: Penalty,
    *,
    method: str = "lp",
    passes: int = SADDLE_PASSES,
    batch: int = SADDLE_BATCH,
    confidence: float = 0.95,
) -> SimulatedSolution:
    """Minimise the surrogate over simulated transitions.

    `passes` and `batch` are those of the saddle point.
    """
    if method not in SIMULATED_METHODS:
        raise unknown("method", str(method), SIMULATED_METHODS)
    require_counts(passes=passes, batch=batch)
    require_inside(confidence=confidence)
    started = time.monotonic()
    weights = penalties(penalty)
    multipliers = None
    moments = problem.moments()
    if method == "saddle" and (problem.anchor is not None or problem.expected):
        raise InputError("an anchor, or means over next states, need method 'lp'.")
    if method == "lp":
        theta, multipliers = _linear_program(problem, weights, moments)
    else:
        theta = _saddle_point(problem, weights, moments, passes=passes, batch=batch)
    parts = problem.estimates(theta, penalty, confidence=confidence)
    return SimulatedSolution(
        problem,
        method,
        weights,
        theta,
        problem.value(theta, penalty, moments),
        parts,
        _status(problem, method, theta, parts, moments),
        moments.samples,
        problem.seed,
        time.monotonic() - started,
        multipliers,
    )


SIMULATED_METHODS = ("lp", "saddle")


def _status(
    problem: SimulatedALP, method: str, theta: Floats, parts: Estimates, moments: Moments
) -> Status:
    """The worst that there is to say."""
    if moments.status is not Status.COMPLETED:
        return moments.status
    if parts.effective < SMALL_SAMPLE_SHARE:
        return Status.FEW_EFFECTIVE
    if (np.abs(theta) >= problem.radius * (1 - 1e-6)).any():
        return Status.RADIUS
    if method == "lp":
        return Status.SAMPLED
    return Status.COMPLETED


def _seen(moments: Moments) -> Floats:
    """The mass of each ratio, and which of them occurred at all."""
    mass: Floats = moments.mass.mean(axis=0)
    if not (np.abs(mass) > 0).any():
        raise InputError(
            "no ratio was positive at any transition; let the cells cover where the reference goes."
        )
    return mass


# -- linear program --------------------------------------------------------------------------------


def _linear_program(
    problem: SimulatedALP, weights: tuple[float, float], m: Moments
) -> tuple[Floats, Floats]:
    """θ, and the multipliers of the test functions."""
    on_negative, on_flow = weights
    mass = _seen(m)
    d = len(problem.ratios)
    u = m.rows.shape[0]
    k = len(problem.tests)
    slope = m.total * m.shaped.mean(axis=0)
    prices = on_negative * m.total * m.shares.mean(axis=0)
    flows = sp.csr_array(m.total * sum(m.flows[1:], m.flows[0]) / len(m.flows))
    scale = max(1.0, on_flow, float(np.abs(slope).max()))
    costs = np.concatenate([slope, prices, np.zeros(k), [on_flow]]) / scale
    groups = _families(problem)
    none = sp.csr_array
    eye = sp.eye_array
    kept = m.anchored > 0  # the mass of cells where the reference was not cannot be set
    fixed = _anchored(problem, m, kept)
    blocks: Any = [
        [sp.csr_array(mass[None, :]), none((1, u)), none((1, k)), none((1, 1))],
        [m.rows, eye(u), None, None],
        [-flows, None, eye(k), None],
        [flows, None, eye(k), None],
        [None, None, -groups, none(np.ones((groups.shape[0], 1)))],
        [fixed, None, None, None],
    ]
    matrix = sp.block_array(blocks, format="csc")
    starts = m.starts.mean(axis=0)
    low = np.concatenate(
        [[1.0], np.zeros(u), starts, -starts, np.zeros(groups.shape[0]), m.anchored[kept]]
    )
    high = np.concatenate([[1.0], np.full(u + 2 * k + groups.shape[0], np.inf), m.anchored[kept]])
    occurred = np.asarray(abs(m.rows).sum(axis=0)).ravel() > 0
    box = np.where(occurred, problem.radius, 0.0)
    rest = np.full(u + k + 1, np.inf)
    columns = np.concatenate([-box, np.zeros(rest.size)]), np.concatenate([box, rest])
    found = minimise(costs, matrix, (low, high), columns, feasible=True)
    if not found.found:
        if problem.anchor is None:
            other = " or another penalty"
        else:
            other = ", or leave the anchor out"
        raise InputError(
            f"HiGHS stopped without a solution ({found.word}); try a larger radius{other}."
        )
    prices_of = scale * found.y[1 + u : 1 + u + 2 * k]
    return _cleaned(problem, weights, m, found.x[:d]), prices_of[:k] - prices_of[k:]


def _anchored(problem: SimulatedALP, m: Moments, kept: Bools) -> sp.csr_array:
    """The rows of the anchor's cells that the reference visits, once each has ratios."""
    lacking = np.flatnonzero(kept & (np.asarray(abs(m.anchors).sum(axis=1)).ravel() == 0))
    if problem.anchor is not None and lacking.size:
        raise InputError(
            f"no ratio was other than 0 on the anchor's cell {problem.anchor.names[lacking[0]]!r}, "
            "so its mass cannot be the reference's; let the ratios cover the anchor's cells."
        )
    return sp.csr_array(m.anchors[kept])


def _families(problem: SimulatedALP) -> sp.csr_array:
    """A row for each sum that t must exceed: one for a family of cells, one for each function."""
    rows = []
    for adds, low, high in zip(
        problem.tests.adds, problem.tests.ends[:-1], problem.tests.ends[1:], strict=True
    ):
        block = np.zeros((1 if adds else high - low, len(problem.tests)))
        if adds:
            block[:, low:high] = np.ones((1, high - low))
        else:
            block[:, low:high] = np.eye(high - low)
        rows.append(sp.csr_array(block))
    return sp.csr_array(sp.vstack(rows))


def _cleaned(
    problem: SimulatedALP, weights: tuple[float, float], m: Moments, theta: Floats
) -> Floats:
    """Without weights that only the solver's tolerance made, unless that costs more than the
    tolerance.

    A weight of 10⁻¹⁰ where no other ratio is would decide what the policy does there.
    """
    mass = m.mass.mean(axis=0)
    kept = np.where(np.abs(theta) > NEGLIGIBLE_WEIGHT_SHARE * np.abs(theta).max(), theta, 0.0)
    if float(mass @ kept) > 0:
        kept = kept / float(mass @ kept)
    else:
        kept = theta
    before = problem.value(theta, weights, m)
    after = problem.value(kept, weights, m)
    if after <= before + NEGLIGIBLE_WEIGHT_SHARE * max(1.0, abs(before)):
        return kept
    return theta


# -- saddle point ----------------------------------------------------------------------------------


def _saddle_point(
    problem: SimulatedALP, weights: tuple[float, float], m: Moments, *, passes: int, batch: int
) -> Floats:
    if problem.each * len(m.mass) > MOST_HELD_TRANSITIONS:
        raise InputError(
            f"a saddle point holds at most {MOST_HELD_TRANSITIONS:,} transitions; take fewer "
            "samples, or "
            "method 'lp'."
        )
    mass = _seen(m)
    data = _shuffled(problem)
    if data.shaped.size < batch:
        raise InputError(f"a batch of {batch} exceeds the {data.shaped.size} transitions.")

    def judge(theta: Floats) -> float:
        """What is minimised."""
        return problem.value(theta, weights, m)

    middle = mass / float(mass @ mass)
    origins = [_first(problem, m, judge), middle]
    best = origins[0]
    for _ in range(2):
        found = [
            best,
            *(
                _walk(problem, weights, m, data, origin, scale, passes=passes, batch=batch)
                for origin in origins
                for scale in SADDLE_WALK_SCALES
            ),
        ]
        best = min(found, key=judge)
        origins = [best]
    return best


def _first(problem: SimulatedALP, m: Moments, judge: Callable[[Floats], float]) -> Floats:
    """The best multiple of all ratios together, or of the ratios of one policy of a portfolio."""
    mass = m.mass.mean(axis=0)
    d = len(problem.ratios)
    candidates = [np.ones(d)]
    for block, first in zip(problem.ratios.blocks, problem.ratios.first, strict=False):
        size = block.widest
        for k in range(size if len(block.names) % size == 0 else 0):
            alone = np.zeros(d)
            alone[first + k : first + len(block.names) : size] = 1.0
            candidates.append(alone)
    scaled = [c / float(mass @ c) for c in candidates if abs(float(mass @ c)) > 1e-9]
    return min(scaled or [mass / float(mass @ mass)], key=judge)


def _shuffled(problem: SimulatedALP) -> kernels.Sampled:
    """The transitions of all trajectories in a random order."""
    samples: list[Sample] = [sample for chunk in problem.samples() for _, sample in chunk]
    order = np.random.default_rng(problem.seed).permutation(sum(s.losses.size for s in samples))
    rows = sp.csr_array(sp.vstack([s.rows for s in samples], format="csr")[order])
    tests = sp.csr_array(sp.vstack([s.tests for s in samples], format="csr")[order])
    shaped = np.concatenate([s.shaped for s in samples])[order]
    return kernels.Sampled(sparse_rows(rows), sparse_rows(tests), shaped)


def _walk(
    problem: SimulatedALP,
    weights: tuple[float, float],
    m: Moments,
    data: kernels.Sampled,
    origin: Floats,
    scale: float,
    *,
    passes: int,
    batch: int,
) -> Floats:
    """The average over the last half of the passes, back on the plane of the right mass."""
    d = origin.size
    k = len(problem.tests)
    mass = m.mass.mean(axis=0)
    adds = np.array(problem.tests.adds, np.int64)
    size = adds.size
    families = kernels.Families(problem.tests.ends.astype(np.int64), adds, m.starts.mean(axis=0))
    settings = kernels.Settings(mass, m.total, *weights, batch, problem.radius)
    walk = kernels.Weights(origin.copy(), origin, np.full(d, scale), np.zeros(d), np.zeros(d))
    mixture = kernels.Mixture(
        eta=np.zeros(k),
        share=np.full(size, 1.0 / size),
        squares=np.zeros(k),
        sums=np.zeros(k),
        zeta=np.zeros(k),
        pull=np.zeros(k),
        largest=np.zeros(size),
        payoffs=np.zeros(size),
        most=np.zeros(1),
    )
    average = np.zeros(d + 1)
    for number in range(passes):
        if number == passes // 2:
            average[:] = 0.0
        kernels.saddle(data, families, settings, walk, mixture, average)
    found = average[:d] / average[d]
    return np.asarray(found + (1.0 - mass @ found) * mass / float(mass @ mass))
