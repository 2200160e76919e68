"""The approximate linear program of the average criterion, in two stages (de Farias & Van Roy, NIPS 2002/2003).

    stage 1   maximise λ       subject to   λ + Ψw(x) <= ℓ(x,a) + Σ_y P(y|x,a) Ψw(y)         for all (x, a)
    stage 2   maximise cᵀΨw    subject to   λ₂ + Ψw(x) <= ℓ(x,a) + Σ_y P(y|x,a) Ψw(y),  Ψw(o) = 0

(the paper's appendix prints the inequality of stage 1 the wrong way round.) Stage 1 is the best lower bound on the
optimal average cost that a potential in the span of Ψ can prove: for any h, min_(x,a) [ℓ + Ph − h] <= λ*. Its weights
say little elsewhere than where the constraints bind, so stage 2 takes λ₂ at or a little below the λ found and asks for
the largest potential where c says; for every λ₂ <= λ* the largest feasible one is the optimal cost of reaching o, the
model's start, under losses ℓ − λ₂. The policy is greedy for stage 2.

A constant among Ψ drops out of all constraints, and is left at weight 0. Where stage 2 is unbounded or has no solution
(too few sampled constraints, or λ₂ = λ leaves no room for rounding), the error says so.

The bound: `solution.lower_bound` takes the potential of stage 1 and sweeps all states, rounding included; it needs
nothing of what the solver said. Where states cannot be listed it is statistical. Sampled constraints give a λ that may
exceed the optimum, and `level` then bounds nothing.
"""

from __future__ import annotations

import time

import numpy as np

from dualplan.criteria import Average, Criterion
from dualplan.errors import InputError
from dualplan.kinds import is_number, is_whole
from dualplan.models.contract import Model
from dualplan.outcomes import Judge
from dualplan.policies.contract import Policy
from dualplan.primal.alp import ROUNDS, SAMPLES, TOL, Iterated, Settings, check, chosen, relevant
from dualplan.primal.basis import Basis
from dualplan.primal.program import Found, Program
from dualplan.primal.relevance import Relevance
from dualplan.primal.solution import PrimalSolution
from dualplan.status import Status
from dualplan.types import Floats

SLACK = 1e-3  # λ₂ is so much below λ, relative to 1 + |λ|


def average_alp(
    model: Model,
    basis: Basis,
    *,
    relevance: Relevance | Policy | None = None,
    slack: float = SLACK,
    level: float | None = None,
    constraints: str | None = None,
    sample: Relevance | Policy | None = None,
    samples: int = SAMPLES,
    tol: float = TOL,
    rounds: int = ROUNDS,
    weight_bound: float | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> PrimalSolution:
    """Solve both stages; λ₂ is `level`, or λ − slack·(1 + |λ|). `level` of the solution is λ of stage 1.

    The other arguments are those of `alp`; a policy given for `relevance` stands for its stationary law.
    """
    started = time.monotonic()
    check(model, basis)
    if not is_number(slack) or slack < 0:
        raise InputError(f"slack must be a number of at least 0, got {slack!r}.")
    settings = Settings(constraints, sample, samples, tol, rounds, weight_bound, seed, threads)
    moments = relevant(model, relevance, Average(), seed).moments(basis) - basis(model.start[None, :])[0]
    first, way = settings.solve(_first(basis, weight_bound))
    at = first.level - slack * (1 + abs(first.level)) if level is None else float(level)
    program = Program(basis, 1.0, moments, less=at, weight_bound=weight_bound)
    second, _ = settings.solve(program, first.pairs if first.pairs[1].size else None)
    return _solution(basis, f"average alp, {way}", (first, second), seed, time.monotonic() - started)


def average_bound(
    model: Model,
    basis: Basis,
    *,
    constraints: str | None = None,
    sample: Relevance | Policy | None = None,
    samples: int = SAMPLES,
    tol: float = TOL,
    rounds: int = ROUNDS,
    weight_bound: float | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> PrimalSolution:
    """Stage 1 alone: the best lower bound on the optimal average cost from the span of the basis."""
    started = time.monotonic()
    check(model, basis)
    settings = Settings(constraints, sample, samples, tol, rounds, weight_bound, seed, threads)
    found, way = settings.solve(_first(basis, weight_bound))
    return _solution(basis, f"average bound, {way}", (found, found), seed, time.monotonic() - started)


def _first(basis: Basis, weight_bound: float | None) -> Program:
    return Program(basis, 1.0, np.zeros(len(basis)), level=True, weight_bound=weight_bound)


def _solution(
    basis: Basis, method: str, stages: tuple[Found, Found], seed: int, seconds: float
) -> PrimalSolution:
    first, second = stages
    status = first.status if first.status is Status.VIOLATED else second.status
    return PrimalSolution(
        basis, Average(), method, second.weights, second.value, status, max(first.constraints, second.constraints),
        first.rounds + (second.rounds if second is not first else 0), seconds, seed, first.level,
        _larger(first.violation, second.violation), _bounding(first.weights),
    )  # fmt: skip


def _bounding(weights: Floats) -> Floats:
    return weights.copy()


def _larger(one: float | None, two: float | None) -> float | None:
    return None if one is None or two is None else max(one, two)


def iterated_average_alp(
    model: Model,
    basis: Basis,
    *,
    relevance: Relevance | Policy | None = None,
    iterations: int = 3,
    judge: Judge | None = None,
    **options: object,
) -> Iterated:
    """`iterations` programs, each with c the stationary law of the last greedy policy, and the best of them."""
    if not is_whole(iterations) or iterations < 1:
        raise InputError(f"iterations must be a whole number, at least 1, got {iterations!r}.")
    solutions: list[PrimalSolution] = []
    policies: list[Policy] = []
    weights: Relevance | Policy | None = relevance
    criterion: Criterion = Average()
    for _ in range(iterations):
        solutions.append(average_alp(model, basis, relevance=weights, **options))  # type: ignore[arg-type]
        policies.append(solutions[-1].policy(name=f"average alp, iteration {len(solutions)}"))
        weights = policies[-1]
    return chosen(solutions, policies, criterion, judge or Judge())
