"""The relaxed approximate linear program of the discounted criterion (Petrik & Zilberstein 2009).

    maximise  cᵀΨw − Σ_(x,a) d(x,a)·[ Ψw(x) − ℓ(x,a) − γ Σ_y P(y|x,a) Ψw(y) ]₊ ,    d(x,a) = p·π(x):

an exact (non-smooth) penalty in place of the constraints, one for each pair. Without it few
constraints, often those of states that seem to lead back to themselves because the functions cannot
tell them from their successors, hold down the values everywhere. In the dual each multiplier is
bounded, u(x,a) <= d(x,a): no pair weighs more than d in the program.

*Assumptions and guarantee.* With a constant function among Ψ the multipliers of the program without
penalties sum to 1/(1−γ); so it is unbounded if Σd < 1/(1−γ), and

    d(x,a) >= u*(x,a) for all pairs, for one optimal u*, in particular d >= 1/(1−γ),     gives the
        optimum without them.

A relaxed program differs from the smoothed one (`smoothed.py`) in that violations of all actions of
a state add up, where there the largest counts: its objective is no larger at the same p and π, and
no smaller than that of the program without violations. As the sum is at least the largest, with π
the discounted occupancy of an optimal policy from c, times 1−γ, and p = 2/(1−γ), the argument given
there holds with a factor A, the number of actions, on the last term:

    ‖J* − Ψw‖_{1,c}  <=  (1 + 2A(1+γ)/(1−γ)) · min_r ‖J* − Ψr‖_∞ .

The paper's other method, constraints over several steps, is `expanded.py`. Its choice of d from
rolled-out samples is not here: d is p·π(x) for the π that is given. Values may exceed J*, and the
objective bounds nothing.
"""

from __future__ import annotations

import time
from typing import Unpack

import numpy as np

from dualplan.core.status import Status
from dualplan.models.contract import Model
from dualplan.models.criteria import Discounted, require_discounted
from dualplan.policies.contract import Policy
from dualplan.primal.relevance import Relevance
from dualplan.primal.settings import SAMPLED_CONSTRAINTS, Settings, SettingsKeywords, check
from dualplan.primal.soft import maximise_softly, price_of, soft_program
from dualplan.primal.solution import PrimalSolution, Slacks
from dualplan.values.basis import Basis


def relaxed_alp(
    model: Model,
    basis: Basis,
    criterion: Discounted,
    *,
    relevance: Relevance | Policy | None = None,
    weights: Relevance | Policy | None = None,
    penalty: float | None = None,
    **settings: Unpack[SettingsKeywords],
) -> PrimalSolution:
    """Solve the relaxed program with d(x,a) = penalty·π(x); the penalty is 2/(1−γ) if none is
    given.

    `relevance` is c, by default geometric with ratio 0.9, and `weights` is π, by default c; a
    policy stands for its discounted occupancy. `settings` are the fields of `Settings`; constraints
    are all listed or sampled (π is then the law of the sample). `slacks` of the solution are sums
    of violations over actions, its `violation` the largest one.
    """
    started = time.monotonic()
    wanted = Settings.of(settings)
    check(model, basis)
    require_discounted(criterion, "relaxed_alp")
    price = price_of(penalty, criterion)
    program, rows = soft_program(basis, criterion, relevance, weights, wanted)
    w = maximise_softly(
        program, rows, np.arange(rows.right.size), price * rows.weights[rows.numbers]
    )
    excess = rows.excess(w)
    sums = np.bincount(rows.numbers, excess, minlength=len(rows.states)).astype(np.float64)
    slacks = Slacks(rows.states, rows.weights, sums)
    sampled = rows.way == SAMPLED_CONSTRAINTS
    return PrimalSolution(
        basis,
        criterion,
        f"relaxed alp, {rows.way}",
        w,
        float(program.objective @ w) - price * slacks.mean,
        Status.SAMPLED if sampled else Status.SOLVED,
        rows.right.size,
        1,
        time.monotonic() - started,
        wanted.seed,
        violation=None if sampled else float(excess.max()),
        slacks=slacks,
    )
