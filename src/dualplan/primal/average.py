"""The approximate linear program of the average criterion, in two stages (de Farias & Van Roy, NIPS
2002/2003).

    stage 1   maximise λ       subject to   λ + Ψw(x) <= ℓ(x,a) + Σ_y P(y|x,a) Ψw(y)         for all
              (x, a)
    stage 2   maximise cᵀΨw    subject to   λ₂ + Ψw(x) <= ℓ(x,a) + Σ_y P(y|x,a) Ψw(y),  Ψw(o) = 0

(the paper's appendix prints the inequality of stage 1 the wrong way round.) Stage 1 is the best
lower bound on the optimal average cost that a potential in the span of Ψ can prove: for any h,
min_(x,a) [ℓ + Ph − h] <= λ*. Its weights say little elsewhere than where the constraints bind, so
stage 2 takes λ₂ at or a little below the λ found and asks for the largest potential where c says;
for every λ₂ <= λ* the largest feasible one is the optimal cost of reaching o, the model's start,
under losses ℓ − λ₂. The policy is greedy for stage 2.

Ψw(o) = 0 only fixes a constant, which no constraint sees: the program maximises cᵀΨw − Ψw(o), and
the values may differ from zero at o. A constant among Ψ drops out of all constraints, and is left
at weight 0. Where stage 2 is unbounded or has no solution (too few sampled constraints, or a λ₂
beyond λ), the error says so.

The bound: `solution.lower_bound` takes the potential of stage 1 and sweeps all states, rounding
included; it needs nothing of what the solver said. Where states cannot be listed it is statistical.
Sampled constraints give a λ that may exceed the optimum, and `level` then bounds nothing.
"""

from __future__ import annotations

import time
from typing import Unpack

import numpy as np

from dualplan.core.checks import require_nonnegative, require_numbers
from dualplan.core.status import Status
from dualplan.evaluation.judge import Judge
from dualplan.models.contract import Model
from dualplan.models.criteria import Average
from dualplan.policies.contract import Policy
from dualplan.primal.iterated import Iterated, iterate
from dualplan.primal.program import Found, Program
from dualplan.primal.relevance import Relevance
from dualplan.primal.settings import Settings, SettingsKeywords, check, relevant
from dualplan.primal.solution import PrimalSolution
from dualplan.values.basis import Basis

SECOND_LAMBDA_SLACK = 1e-2  # λ₂ is so much below λ, relative to 1 + |λ|


class AverageKeywords(SettingsKeywords, total=False):
    """The keywords of `average_alp` beside what matters where."""

    slack: float
    level: float | None


def average_alp(
    model: Model,
    basis: Basis,
    *,
    relevance: Relevance | Policy | None = None,
    slack: float = SECOND_LAMBDA_SLACK,
    level: float | None = None,
    **settings: Unpack[SettingsKeywords],
) -> PrimalSolution:
    """Solve both stages; λ₂ is `level`, or λ − slack·(1 + |λ|). `level` of the solution is λ of
    stage 1.

    `relevance` is c, by default geometric with ratio 0.9; a policy stands for its stationary law.
    `settings` are the fields of `Settings`.
    """
    started = time.monotonic()
    wanted = Settings.of(settings)
    check(model, basis)
    require_nonnegative(slack=slack)
    if level is not None:
        require_numbers(level=level)
    way = wanted.way(model, len(basis) + 1)
    anchor = basis(model.start[None, :])[0]
    moments = relevant(model, relevance, Average(), wanted.seed).moments(basis) - anchor
    first = wanted.solve(_first_stage(basis, wanted))
    if level is None:
        at = first.level - slack * (1 + abs(first.level))
    else:
        at = float(level)
    second = wanted.solve(
        Program(basis, 1.0, moments, less=at, weight_bound=wanted.weight_bound),
        first.pairs if first.pairs else None,
    )
    return _solution(
        basis, f"average alp, {way}", (first, second), wanted.seed, time.monotonic() - started
    )


def average_bound(
    model: Model, basis: Basis, **settings: Unpack[SettingsKeywords]
) -> PrimalSolution:
    """Stage 1 alone: the best lower bound on the optimal average cost from the span of the
    basis.
    """
    started = time.monotonic()
    wanted = Settings.of(settings)
    check(model, basis)
    way = wanted.way(model, len(basis) + 1)
    found = wanted.solve(_first_stage(basis, wanted))
    return _solution(
        basis, f"average bound, {way}", (found,), wanted.seed, time.monotonic() - started
    )


def iterated_average_alp(
    model: Model,
    basis: Basis,
    *,
    relevance: Relevance | Policy | None = None,
    iterations: int = 3,
    judge: Judge | None = None,
    **options: Unpack[AverageKeywords],
) -> Iterated:
    """`iterations` programs, each with c the stationary law of the last greedy policy, and the best
    of them.

    `options` are those of `average_alp`.
    """
    return iterate(
        lambda c: average_alp(model, basis, relevance=c, **options),
        relevance,
        iterations,
        Average(),
        judge or Judge(),
    )


def _first_stage(basis: Basis, wanted: Settings) -> Program:
    return Program(basis, 1.0, np.zeros(len(basis)), level=True, weight_bound=wanted.weight_bound)


def _solution(
    basis: Basis, method: str, stages: tuple[Found, ...], seed: int, seconds: float
) -> PrimalSolution:
    """The last stage's weights make the policy, the first stage's the bound.

    Both must have finished.
    """
    first = stages[0]
    last = stages[-1]
    unfinished = [stage.status for stage in stages if stage.status is Status.VIOLATED]
    violations = [stage.violation for stage in stages if stage.violation is not None]
    return PrimalSolution(
        basis,
        Average(),
        method,
        last.weights,
        last.value,
        unfinished[0] if unfinished else last.status,
        max(stage.constraints for stage in stages),
        sum(stage.rounds for stage in stages),
        seconds,
        seed,
        first.level,
        max(violations) if len(violations) == len(stages) else None,
        first.weights,
    )
