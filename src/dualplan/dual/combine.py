"""A portfolio of policies, combined cell by cell by the forward-only dual program: one candidate
for each H.

Policies π_0 (the incumbent), …, π_K and the cells t of a partition make the ratios of u
(`features/ratios.py`) against the reference π_ref = (1−ε)π_0 + (ε/K)·Σ_{k>=1} π_k. Anchored on the
cells, u has the reference's mass P(t) on each of them, so for θ >= 0 the policy of u is in cell t
the mixture Σ_k θ_tk π_k, and the program (`simulated/`) is

    min  Σ_t Σ_k θ_tk E[q_k(x) 1_t(x)] + H·V,        q_k(x) = Σ_a π_k(a|x) (ℓ(x,a) + γ Σ_y P(y|x,a)
         h(y) − h(x)),

with V the flow violation that the indicators of the cells see. *Why*: for h_0 the bias of the
incumbent and λ_0 its cost, cost(π) − λ_0 = Σ_x μ_π(x) (Σ_k θ_tk q_k(x) − λ_0) (average; alike
discounted). The program has μ_ref for μ_π, and pays H for a flow that does not balance: H is the
radius of a trust region, about the reference for large H; for H near 0 each cell takes the policy
of least E[q_k 1_t] (`hard`). *Assumed*: h is near h_0, and μ_π near μ_ref within cells. Nothing is
proved of a candidate's cost: which H is right, and whether any candidate is better than the
incumbent, is told by evaluating them on common random numbers. What is certain: a candidate chooses
as a mixture of its portfolio does, wherever θ >= 0, and does what the incumbent does in cells that
no transition came to.

*The potential* is given, or fitted by least-squares temporal differences to one half of the
trajectories of the incumbent. On the others, with δ = ℓ − λ + γ h(x') − h(x) and cells t,

    R² = 1 − Σ_t P(t) (E[δ|t] − E δ)² / Σ_t P(t) (E[ℓ|t] − E ℓ)²,

each square as the mean of products over different trajectories, so that noise adds nothing to it on
average (and R² may come out above 1). A constant h has R² = 0; a fitted one that is not above it by
two standard errors (leaving out one trajectory after the other) is refused: h = 0, and the status
says so. The cells are cut where means of ℓ differ most; means over cells, because single
transitions of a good potential are noisy too.

*The partition*, unless given, grows from one cell: each coordinate may be cut at its lowest number,
then also at the median of where the incumbent is beyond, then at the quartiles. Of all next cuts
that is made which adds most to

    G = −Σ_t E[(q_{k(t)} − q_0) 1_t],        k(t) the policy of least E[q_k 1_t] on the other half
                                             of the trajectories,

until the cells are too many for the sample; of all partitions on the way that of the largest G is
taken. So coordinates are cut along which policies differ in advantage, not merely in their choices.
Without q (no potential, or next states that cannot be listed) G is Σ_t P(t)·|v(t) − v| with v what
is at stake at a state: how far the policies are apart (the largest total variation) times the loss.
A coordinate called `event`, which says who decides, is cut at every number first.

*Greedy alone*: beside the candidates of the program stands the policy that is greedy among the
portfolio for h in every state (`policies/among.py`): what the program adds to h shows in the
difference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dualplan.core.checks import is_number, is_positive, require_counts
from dualplan.core.errors import InputError
from dualplan.core.status import ESTIMATED, STATISTICAL, Status
from dualplan.core.types import Bools, Floats, Ints, Json
from dualplan.dual.features.ratios import RatioPolicy, Ratios
from dualplan.dual.features.ratios import portfolio as ratios_of
from dualplan.dual.simulated import (
    SimulatedALP,
    SimulatedSolution,
    solve_simulated,
    temporal_differences,
    visits,
)
from dualplan.evaluation.simulation import REPLICAS, Recorded
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.models.criteria import Criterion
from dualplan.models.simulator import SimulatorModel
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.policies.among import GreedyAmong
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.policies.mixed import exploring
from dualplan.values.basis import Basis, monomials
from dualplan.values.functions import StateFunction, state_values
from dualplan.values.partitions import Partition, cells
from dualplan.values.test_functions import Cells, Witnesses

PENALTY_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # of the loss scale: H
NEGATIVE_PART_FACTOR = 1_000.0  # of the loss scale: the penalty of the negative part
# samples and steps between them, with means over next states and without
SAMPLES_AND_SPACING_WITH_MEANS = (24_000, 20)
SAMPLES_AND_SPACING_WITHOUT_MEANS = (200_000, 1)
# with means over next states, where ratios bring no noise, and without
EXPLORATION_SHARES = (0.1, 0.3)
MOST_PARTITION_CELLS = 243
LEAST_SAMPLES_A_CELL = 50  # samples for each cell, at least
PARTITION_STATES = 16_000  # states of the incumbent by which the partition is chosen
MOST_POTENTIAL_FUNCTIONS = 300  # of the basis that a potential is fitted with
NEGLIGIBLE_R_SQUARED = 1e-6  # R² that is rounding
SURE_STANDARD_ERRORS = 2.0  # standard errors by which R² must exceed it
EVENT_COORDINATE = (
    "event"  # the coordinate that says who decides, in models with decisions per server
)
DUAL_CANDIDATE = "dual"
HARD_CHOICE_CANDIDATE = "hard"
GREEDY_CANDIDATE = "greedy"
Cuts = dict[str | int, list[int]]  # of coordinates


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy made from the portfolio: `dual` by the program at one H, `hard` in each cell,
    `greedy` in each state.
    """

    kind: str
    policy: Policy
    penalty: float | None = None
    solution: SimulatedSolution | None = None

    def to_json(self) -> Json:
        """The policy's name, and what the program found."""
        if self.solution is None:
            found = None
        else:
            found = self.solution.to_json()
        return {
            "kind": self.kind,
            "policy": self.policy.describe(),
            "penalty": self.penalty,
            "solution": found,
        }


@dataclass(frozen=True, eq=False)
class Combined:
    """Candidates to be judged by evaluation, the potential and the partition that they were made
    with.

    `explained` is R² of a fitted potential, with its standard error, None for one that was given;
    `scale` the mean size of the loss, in whose multiples H was chosen.
    """

    incumbent: Policy
    portfolio: tuple[Policy, ...]
    candidates: tuple[Candidate, ...]
    problem: SimulatedALP
    partition: Partition
    potential: StateFunction | None
    explained: float | None
    explained_error: float | None
    scale: float
    status: Status
    seconds: float

    @property
    def policies(self) -> list[Policy]:
        """Those of the candidates."""
        return [candidate.policy for candidate in self.candidates]

    @property
    def known(self) -> dict[str, str]:
        """How the numbers are known."""
        return {
            "explained": f"{ESTIMATED}: on trajectories that the potential was not fitted to",
            "candidates": (
                f"{STATISTICAL}: programs over one sample; their costs are for evaluation to tell"
            ),
        }

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        return {
            "incumbent": self.incumbent.name,
            "portfolio": [policy.name for policy in self.portfolio],
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "cells": len(self.partition),
            "explained": self.explained,
            "explained_error": self.explained_error,
            "scale": self.scale,
            "status": str(self.status),
            "advice": self.status.advice,
            "known": self.known,
            "seconds": round(self.seconds, 3),
        }


def combine(
    model: Model,
    portfolio: Sequence[Policy],
    incumbent: Policy,
    criterion: Criterion | None = None,
    *,
    potential: StateFunction | None = None,
    basis: Basis | None = None,
    penalties: Sequence[float] | None = None,
    partition: Partition | None = None,
    most_cells: int = MOST_PARTITION_CELLS,
    epsilon: float | None = None,
    samples: int | None = None,
    every: int | None = None,
    warm_up: int | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Combined:
    """Candidates from a portfolio, a list of policies; `incumbent` is the best so far.

    `penalties` are values of H, by default from .03 to 100 times the mean size of the loss. A
    potential that is not given is fitted with the basis, by default monomials up to degree 3 (2
    where those are many). `samples` states, `every` so many steps, count with means over next
    states where the model lists them, otherwise with what was drawn. `epsilon` is how much the
    reference explores.
    """
    started = time.monotonic()
    members = _members(model, portfolio, incumbent)
    means = not isinstance(model, SimulatorModel) and model.has_forward
    if epsilon is None:
        epsilon = EXPLORATION_SHARES[0 if means else 1]
    _check(penalties, epsilon, most_cells)
    size, steps = SAMPLES_AND_SPACING_WITH_MEANS if means else SAMPLES_AND_SPACING_WITHOUT_MEANS
    if samples is None:
        size = size
    else:
        size = samples
    if every is None:
        steps = steps
    else:
        steps = every
    own = visits(
        incumbent,
        criterion,
        samples=size,
        every=steps,
        warm_up=warm_up,
        expected=means,
        seed=seed,
        threads=threads,
    )
    seen = _Seen(own, members, means)
    shape = potential
    explained = None
    error = None
    status = Status.COMPLETED
    if potential is None:
        shape, explained, error = _fitted(seen, basis or _basis(model))
        if shape is not None:
            status = Status.COMPLETED
        else:
            status = Status.NO_POTENTIAL
    if partition is None:
        partition = choose_partition(
            seen, shape, min(most_cells, max(1, size // LEAST_SAMPLES_A_CELL))
        )
    reference = exploring(incumbent, epsilon, members[1:])
    ratios = ratios_of(reference, members, partition)
    problem = SimulatedALP(
        ratios,
        Witnesses((Cells(partition),)),
        criterion,
        samples=size,
        every=steps,
        warm_up=warm_up,
        potential=shape,
        anchor=partition,
        expected=means,
        seed=seed,
        threads=threads,
    )
    scale = seen.scale
    if penalties is None:
        wanted = [float(f"{factor * scale:.3g}") for factor in PENALTY_FACTORS]
    else:
        wanted = list(penalties)
    found = [_dual(problem, float(h), NEGATIVE_PART_FACTOR * scale) for h in wanted]
    found.append(
        Candidate(HARD_CHOICE_CANDIDATE, RatioPolicy(ratios, _hard(problem), name="hard choice"))
    )
    if shape is not None and means:
        gamma = problem.restarts.gamma
        found.append(
            Candidate(
                GREEDY_CANDIDATE,
                GreedyAmong(members, shape, gamma, name="greedy among the portfolio"),
            )
        )
    return Combined(
        incumbent,
        tuple(members),
        tuple(found),
        problem,
        partition,
        shape,
        explained,
        error,
        scale,
        status,
        time.monotonic() - started,
    )


def _members(model: Model, given: Sequence[Policy], incumbent: Policy) -> list[Policy]:
    """The incumbent, and the others of the portfolio."""
    if not isinstance(given, (list, tuple)):
        raise InputError(f"a portfolio is a list of policies, got {given!r}.")
    for policy in (incumbent, *given):
        require_policy_of(model, policy)
    others = [policy for policy in given if policy is not incumbent]
    if not others:
        raise InputError(
            "there is nothing to combine: the portfolio needs a policy other than the incumbent."
        )
    return [incumbent, *others]


def _check(penalties: Sequence[float] | None, epsilon: float, most_cells: int) -> None:
    if penalties is not None and not (
        isinstance(penalties, (list, tuple)) and all(map(is_positive, penalties))
    ):
        raise InputError(
            f"penalties is a list of positive numbers, values of H, got {penalties!r}."
        )
    if not is_number(epsilon) or not 0 < epsilon <= 1:
        raise InputError(
            "epsilon, how much the reference explores, lies above 0 and is at most 1, got "
            f"{epsilon!r}."
        )
    require_counts(most_cells=most_cells)


# -- candidates ------------------------------------------------------------------------------------


def _dual(problem: SimulatedALP, penalty: float, on_negative: float) -> Candidate:
    solution = solve_simulated(problem, (max(on_negative, penalty), penalty))
    policy = RatioPolicy(
        problem.ratios, _covered(problem.ratios, solution.theta), name=f"combined, H = {penalty:g}"
    )
    return Candidate(DUAL_CANDIDATE, policy, penalty, solution)


def _covered(ratios: Ratios, theta: Floats) -> Floats:
    """θ with the incumbent in cells that have no weights."""
    table = theta.reshape(-1, ratios.widest).copy()
    table[~table.any(axis=1), 0] = 1.0
    return table.ravel()


def _hard(problem: SimulatedALP) -> Floats:
    """In each cell the policy of least E[q_k 1_t], per mass, as weights of 0 and 1."""
    moments = problem.moments()
    size = problem.ratios.widest
    losses, masses = (
        part.mean(axis=0).reshape(-1, size) for part in (moments.shaped, moments.mass)
    )
    rates = np.divide(losses, masses, out=np.full(losses.shape, np.inf), where=masses > 0)
    return np.asarray(np.eye(size)[rates.argmin(axis=1)].ravel())


# -- where the incumbent goes ----------------------------------------------------------------------


class _Seen:
    """States of the incumbent, the trajectories that they come from, and the choices of all
    policies there.
    """

    def __init__(self, problem: SimulatedALP, members: Sequence[Policy], means: bool) -> None:
        self.problem = problem
        self.members = members
        self.means = means
        self.model = problem.model
        apart = max(1, problem.each * REPLICAS // PARTITION_STATES)
        self.chunks: list[list[Recorded]] = list(
            problem.transitions()
        )  # as many as were asked for, and no more
        own = zip(*self.chunks, strict=True)
        parts = [
            [(recorded.states[::apart], recorded.losses[::apart]) for recorded in one]
            for one in own
        ]
        self.states = np.ascontiguousarray(
            np.concatenate([states for one in parts for states, _ in one])
        )
        self.losses = np.concatenate([losses for one in parts for _, losses in one])
        self.numbers = np.repeat(
            np.arange(REPLICAS), [sum(len(states) for states, _ in one) for one in parts]
        )
        self.table = np.array(
            [[policy.probabilities(x) for policy in members] for x in self.states]
        )

    @property
    def scale(self) -> float:
        """The mean size of the loss."""
        return max(float(np.abs(self.losses).mean()), 1e-12)

    def advantages(self, potential: StateFunction) -> Floats:
        """q_k − q_0 at each state, a column for each policy."""
        owners, actions = allowed_rows(self.model, self.states)
        states = np.ascontiguousarray(self.states[owners])
        laws = transitions(self.model, states, actions)
        after = laws.mean(state_values(potential, laws.states, "potential"))
        costs = np.zeros((len(self.states), self.table.shape[2]))
        costs[owners, actions] = laws.losses + self.problem.restarts.gamma * after
        q = np.einsum("nka,na->nk", self.table, costs)
        return np.asarray(q - q[:, :1])

    def stakes(self) -> Floats:
        """The largest total variation between the incumbent's choice and another's, times the loss,
        at each state.
        """
        return np.asarray(
            np.abs(self.table - self.table[:, :1]).sum(axis=2).max(axis=1) / 2 * np.abs(self.losses)
        )


# -- potential -------------------------------------------------------------------------------------


def _basis(model: Model) -> Basis:
    """Monomials of all coordinates but who decides, up to a degree for which they are few."""
    chosen = [i for i, name in enumerate(model.coordinates) if name != EVENT_COORDINATE]
    degrees = [d for d in (3, 2, 1) if math.comb(len(chosen) + d, d) <= MOST_POTENTIAL_FUNCTIONS]
    if not degrees:
        raise InputError(
            f"a state of {model.name!r} has too many coordinates for monomials; give a basis or a "
            "potential."
        )
    return monomials(model, degrees[0], coordinates=chosen)


def _fitted(seen: _Seen, basis: Basis) -> tuple[StateFunction | None, float, float]:
    """A potential fitted to all trajectories if one of the first half explains the others.

    R² and its error.
    """
    differences = temporal_differences(seen.problem, basis, seen.chunks)
    half = REPLICAS // 2
    most = max(
        2, min(MOST_PARTITION_CELLS, seen.problem.each * REPLICAS // LEAST_SAMPLES_A_CELL // 4)
    )
    judged = _grown(seen, {}, most, _Spread(seen.states, seen.losses))
    potential = differences.fitted(range(half))
    level = differences.level(range(half))
    sums = _residuals(seen.problem, seen.chunks, potential, level, judged)[:, half:]
    explained, error = _explained(sums)
    good = explained - SURE_STANDARD_ERRORS * error > NEGLIGIBLE_R_SQUARED
    return (differences.fitted(range(REPLICAS)) if good else None), explained, error


def _residuals(
    problem: SimulatedALP,
    chunks: Iterable[list[Recorded]],
    potential: StateFunction,
    level: float,
    partition: Partition,
) -> Floats:
    """Sums of δ, of ℓ − λ and of 1 over each cell (last axis) on each trajectory (middle)."""
    sums = np.zeros((3, REPLICAS, len(partition)))
    for chunk in chunks:
        for r, o in enumerate(map(problem.outcomes, chunk)):
            change = o.gammas * (o.mean @ state_values(potential, o.following, "potential"))
            delta = o.losses - level + change - state_values(potential, o.states, "potential")
            places = partition(o.states)
            for k, values in enumerate((delta, o.losses - level, np.ones(delta.size))):
                sums[k, r] += np.bincount(places, o.weights * values, len(partition))
    return sums


def _explained(sums: Floats) -> tuple[float, float]:
    """R², and its standard error by leaving out one trajectory after the other."""
    count = sums.shape[1]
    without = [_share_explained(np.delete(sums, r, axis=1)) for r in range(count)]
    return _share_explained(sums), float(np.std(without) * math.sqrt(count - 1))


def _share_explained(sums: Floats) -> float:
    """1 − Σ_t P(t) d_t² / Σ_t P(t) l_t², squares as means of products over different
    trajectories.
    """
    masses = sums[2].sum(axis=0)
    seen = masses > 0
    share = masses[seen] / masses.sum()
    means = sums[:2, :, seen] / sums[2].sum(axis=1)[:, None]  # P(t)·E[·|t] of each trajectory
    means = means - means.sum(axis=2, keepdims=True) * share
    pairs = means.sum(axis=1) ** 2 - (means**2).sum(axis=1)
    left, total = (pairs / share).sum(axis=1)
    if total > 0:
        return float(1.0 - left / total)
    return 0.0


# -- partition -------------------------------------------------------------------------------------


def choose_partition(seen: _Seen, potential: StateFunction | None, most: int) -> Partition:
    """Cuts of the coordinates, one after the other, where they add most to what a choice in each
    cell gains.
    """
    score: _Gain | _Spread = _Spread(seen.states, seen.stakes())
    if potential is not None and seen.means:
        score = _Gain(seen, seen.advantages(potential))
    return _grown(seen, _who_decides(seen.model), most, score)


def _grown(seen: _Seen, cuts: Cuts, most: int, score: _Gain | _Spread) -> Partition:
    """The best partition on the way from the first cuts to the finest that are few enough."""
    model = seen.model
    path = [(score(_cut(seen.model, cuts)), cuts)]
    while True:
        wider = [more for more in _next(seen.states, model, path[-1][1]) if _size(more) <= most]
        if not wider:
            return _cut(
                model, max(path, key=lambda pair: pair[0])[1]
            )  # ties to the first, which has fewer cells
        path.append(
            max(((score(_cut(model, more)), more) for more in wider), key=lambda pair: pair[0])
        )


def _who_decides(model: Model) -> Cuts:
    if EVENT_COORDINATE not in model.coordinates:
        return {}
    c = model.coordinates.index(EVENT_COORDINATE)
    low = int(model.box.lower[c])
    high = int(model.box.upper[c])
    if high < UNBOUNDED:
        return {c: list(range(low + 1, high + 1))}
    return {}


def _next(states: Ints, model: Model, cuts: Cuts) -> Iterator[Cuts]:
    """The cuts with one coordinate cut further."""
    for c, name in enumerate(model.coordinates):
        if name != EVENT_COORDINATE:
            finer = [steps for steps in _steps(states[:, c]) if len(steps) > len(cuts.get(c, []))]
            if finer:
                yield {**cuts, c: finer[0]}


def _steps(values: Ints) -> list[list[int]]:
    """Cuts of a coordinate, ever finer: beyond its lowest number, at the median of the rest, at the
    quartiles.
    """
    low = int(values.min())
    rest = values[values > low]
    if not rest.size:
        return []
    levels = [[], [0.5], [0.25, 0.5, 0.75]]
    found = [sorted({low + 1, *(int(np.quantile(rest, q)) + 1 for q in part)}) for part in levels]
    return [[v for v in part if (values >= v).any()] for part in found]


def _cut(model: Model, cuts: Cuts) -> Partition:
    return cells(model, dict(sorted(cuts.items(), key=lambda item: int(item[0]))))


def _size(cuts: Cuts) -> int:
    return math.prod(len(numbers) + 1 for numbers in cuts.values())


class _Spread:
    """Σ_t P(t)·|v(t) − v| of a function v of states."""

    def __init__(self, states: Ints, values: Floats) -> None:
        self.states = states
        self.values = values - values.mean()

    def __call__(self, partition: Partition) -> float:
        """How far the means over cells are from the mean."""
        return float(
            np.abs(np.bincount(partition(self.states), self.values)).sum() / len(self.states)
        )


class _Gain:
    """G of a partition: what a choice in each cell gains, on the half of the trajectories that it
    was not made by.
    """

    def __init__(self, seen: _Seen, advantages: Floats) -> None:
        self.states = seen.states
        self.advantages = advantages
        self.half: Bools = seen.numbers < REPLICAS // 2

    def __call__(self, partition: Partition) -> float:
        """The mean over both halves."""
        places = partition(self.states)
        gains = np.zeros(len(self.states))
        for learnt in (self.half, ~self.half):
            sums = np.zeros((len(partition), self.advantages.shape[1]))
            np.add.at(sums, places[learnt], self.advantages[learnt])
            gains[~learnt] = -self.advantages[~learnt, sums.argmin(axis=1)[places[~learnt]]]
        return float(gains.mean())
