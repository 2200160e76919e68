"""The smoothed approximate linear program of the discounted criterion (Desai, Farias & Moallemi
2012).

    maximise  cᵀΨw − p·Σ_x π(x) s(x)     subject to   Ψw(x) <= ℓ(x,a) + γ Σ_y P(y|x,a) Ψw(y) + s(x),
              s >= 0,

or, with a *budget* θ in place of the penalty p, maximise cᵀΨw subject to the same and Σ_x π(x) s(x)
<= θ. The program without s asks for every constraint, also where no policy goes, and there a few
constraints can spoil the values everywhere; here they may be violated where that is cheap. The two
are one family: the multiplier of the budget is a penalty. In the dual, the sum over actions of the
multipliers of a state is at most p·π(x).

*Why p = 2/(1−γ).* Let π be the discounted occupancy of an optimal policy from c, times 1−γ. Ψw
<= TΨw + s gives Ψw <= J* + (I − γP*)⁻¹ s, so that cᵀ[Ψw − J*]₊ <= πᵀs/(1−γ), and as |v| = v
+ 2[−v]₊,

    ‖J* − Ψw‖_{1,c}  <=  cᵀ(J* − Ψw) + 2/(1−γ)·πᵀs ,

which the penalised program minimises over w and s. With s = [Ψr − TΨr]₊ <= (1+γ)·‖J* − Ψr‖_∞ on the
right, for any r,

    ‖J* − Ψw‖_{1,c}  <=  (3+γ)/(1−γ) · min_r ‖J* − Ψr‖_∞ .

No constant function is needed. For ψ > 0 and β = max_(x,a) Σ_y P(y|x,a)ψ(y)/ψ(x) the same steps
give, with ‖v‖_{∞,1/ψ} = max |v|/ψ, the factor cᵀψ + 2/(1−γ)·(1+γβ)·πᵀψ on min_r ‖J* − Ψr‖_{∞,1/ψ}:
what counts is ψ averaged over c and π, not the worst state.

*Assumptions.* π above is not known; any other (a good policy's visits, or c) gives a program whose
value is still compared with the programs here, but not this bound. With a constant function the
penalised program is bounded only if p >= 1/(1−γ) (the multipliers sum to 1/(1−γ)), and it equals
the program without s once p·π(x) is at least 1/(1−γ) at all x. Of states drawn from π each counts
as often as it was drawn; all actions of a drawn state are taken.

Values may exceed J*: the objective bounds nothing. `solution.lower_bound` is proved by its own
sweep all the same.
"""

from __future__ import annotations

import time
from typing import Unpack

import numpy as np

from dualplan.core.checks import require_nonnegative
from dualplan.core.errors import InputError
from dualplan.core.status import Status
from dualplan.models.contract import Model
from dualplan.models.criteria import Discounted, require_discounted
from dualplan.policies.contract import Policy
from dualplan.primal.relevance import Relevance
from dualplan.primal.settings import SAMPLED_CONSTRAINTS, Settings, SettingsKeywords, check
from dualplan.primal.soft import maximise_softly, price_of, soft_program
from dualplan.primal.solution import PrimalSolution, Slacks
from dualplan.values.basis import Basis


def smoothed_alp(
    model: Model,
    basis: Basis,
    criterion: Discounted,
    *,
    relevance: Relevance | Policy | None = None,
    weights: Relevance | Policy | None = None,
    penalty: float | None = None,
    budget: float | None = None,
    **settings: Unpack[SettingsKeywords],
) -> PrimalSolution:
    """Solve the penalised program, with penalty 2/(1−γ) if none is given, or the budgeted one if
    `budget` is.

    `relevance` is c, by default geometric with ratio 0.9, and `weights` is π, by default c; a
    policy stands for its discounted occupancy. `settings` are the fields of `Settings`; constraints
    are all listed or sampled (π is then the law of the sample). `slacks` of the solution are s, its
    `violation` the largest of all states.
    """
    started = time.monotonic()
    wanted = Settings.of(settings)
    check(model, basis)
    require_discounted(criterion, "smoothed_alp")
    if penalty is not None and budget is not None:
        raise InputError("violations have a penalty or a budget, not both; leave one of them out.")
    if budget is not None:
        require_nonnegative(budget=budget)
    price = price_of(penalty, criterion)
    program, rows = soft_program(basis, criterion, relevance, weights, wanted)
    w = maximise_softly(
        program, rows, rows.numbers, rows.weights * (1.0 if budget is not None else price), budget
    )
    s = np.zeros(len(rows.states))
    np.maximum.at(s, rows.numbers, rows.excess(w))
    slacks = Slacks(rows.states, rows.weights, s)
    over = budget is not None and slacks.mean > budget + wanted.tol
    if rows.way == SAMPLED_CONSTRAINTS:
        finished = Status.SAMPLED
    else:
        finished = Status.SOLVED
    return PrimalSolution(
        basis,
        criterion,
        f"smoothed alp, {'penalised' if budget is None else 'budgeted'}, {rows.way}",
        w,
        float(program.objective @ w) - (price * slacks.mean if budget is None else 0.0),
        Status.VIOLATED if over else finished,
        rows.right.size,
        1,
        time.monotonic() - started,
        wanted.seed,
        violation=None if rows.way == SAMPLED_CONSTRAINTS else float(s.max()),
        slacks=slacks,
    )
