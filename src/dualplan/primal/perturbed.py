"""The average criterion with restarts (after de Farias & Van Roy 2006, "A cost-shaping linear
program").

In the *perturbed* model each step restarts with probability 1−γ from a distribution c: P_γ = γP
+ (1−γ)·1cᵀ. Solved is

    maximise  λ − η·s   subject to   λ + Ψw(x)  <=  ℓ(x,a) + s·ψ(x) + γ Σ_y P(y|x,a) Ψw(y) + (1−γ)
              cᵀΨw,    s >= 0,

the program of its average cost λ, in which s·ψ *shapes* the losses: it lifts the constraints where
ψ is large, at the price η. Without ψ, s = 0. With λ' = λ − (1−γ)cᵀΨw as the unknown these are rows
of a discounted program with a level:

    maximise  λ' + (1−γ)cᵀΨw − η·s   subject to   λ' + Ψw(x) <= ℓ(x,a) + s·ψ(x) + γ Σ_y P(y|x,a)
              Ψw(y),    s >= 0.

*Without shaping it is the discounted ALP.* V = Ψw + λ'/(1−γ) keeps the ALP's constraints and
(1−γ)cᵀV = λ: λ is (1−γ) times the optimum of the ALP with a constant among Ψ and c as relevance,
and the greedy policies (with γ) are the same. So λ <= λ*_γ = (1−γ)cᵀJ*_γ, the optimal cost of the
perturbed model, with equality if J*_γ is in the span of Ψ and 1.

*The perturbed and the true cost.* Let λ* + h = min_a [ℓ + Ph] for all x. From Ph = γPh + (1−γ)Ph
and Ph <= max h the pair (λ* − (1−γ)(max h − cᵀh), h) is feasible for the perturbed model's program
with all functions; and under an optimal policy Ph >= min h bounds its perturbed cost from above. So

    −(1−γ)·(max h − cᵀh)  <=  λ*_γ − λ*  <=  (1−γ)·(cᵀh − min h),

which vanishes as γ → 1. λ is thus no lower bound on λ* unless cᵀh = min h, as with restarts at a
state of least h; `solution.lower_bound` sweeps the potential Ψw in the true model and holds always,
but may be poor.

*Shaping.* Average the constraints over the stationary law μ of a policy in the perturbed model: λ
− s·μᵀψ <= its cost.

    η >= μᵀψ for an optimal policy   gives   (λ without shaping)  <=  λ − η·s  <=  λ*_γ,

so a budget η for the mean of ψ that an optimal policy keeps can only improve the bound on λ*_γ. The
dual says the same: η limits μᵀψ of the measures. If η is less than all of these the program is
unbounded, if it is large s = 0. The paper takes a ψ that grows like the losses, and bounds the
policy's cost by how well Ψ fits the perturbed differential costs; its constants need the chain, and
the bound is not computed here.

Sampled constraints give a λ that may exceed λ*_γ.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from dualplan.core.checks import is_positive, require_inside
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Ints
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.models.criteria import Average, Discounted
from dualplan.policies.contract import Policy
from dualplan.primal.program import Program
from dualplan.primal.relevance import Relevance
from dualplan.primal.settings import Settings, SettingsKeywords, check, relevant
from dualplan.primal.solution import PrimalSolution
from dualplan.values.basis import Basis
from dualplan.values.functions import everywhere

PERTURBED_GAMMA = 0.99


@dataclass(frozen=True, eq=False)
class PerturbedSolution(PrimalSolution):
    """`objective` is λ − η·s, `level` is λ, `shift` is s.

    Steps go on with probability `stay`, γ above.
    """

    stay: float = PERTURBED_GAMMA
    shift: float = 0.0

    @property
    def gamma(self) -> float:
        """What the greedy policy discounts by: it looks ahead in the perturbed model."""
        return self.stay


def perturbed_alp(
    model: Model,
    basis: Basis,
    *,
    gamma: float = PERTURBED_GAMMA,
    restarts: Relevance | Policy | None = None,
    shaping: Basis | None = None,
    budget: float | None = None,
    **settings: Unpack[SettingsKeywords],
) -> PerturbedSolution:
    """Solve the program with restarts; `settings` are the fields of `Settings`.

    `restarts` is c, by default geometric with ratio 0.9; a policy stands for its discounted
    occupancy. `shaping` is ψ, a basis of one function, and `budget` its price η, the mean of ψ that
    is allowed for.
    """
    started = time.monotonic()
    wanted = Settings.of(settings)
    check(model, basis)
    require_inside(gamma=gamma)
    moments = (1 - gamma) * relevant(model, restarts, Discounted(gamma), wanted.seed).moments(basis)
    program = Program(basis, gamma, moments, level=True, weight_bound=wanted.weight_bound)
    if shaping is not None or budget is not None:
        program = _shaped(program, shaping, budget)
    way = wanted.way(model, program.width)
    found = wanted.solve(program)
    weights = found.weights[: len(basis)]
    shift = float(found.weights[len(basis) :].sum())
    return PerturbedSolution(
        basis,
        Average(),
        f"perturbed alp, {way}",
        weights,
        found.value,
        found.status,
        found.constraints,
        found.rounds,
        time.monotonic() - started,
        wanted.seed,
        found.level + float(moments @ weights),
        found.violation,
        stay=float(gamma),
        shift=shift,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Shaped(Program):
    """With s as one more weight, after those of the functions."""

    shape: Basis

    @property
    def width(self) -> int:
        """The functions, s and λ'."""
        return len(self.basis) + 2

    def rows(self, states: Ints, actions: Ints) -> tuple[Floats, Floats]:
        """A, −ψ and a column of ones; the last row is −s <= 0."""
        matrix, right = Program(self.basis, self.gamma, self.objective[:-1]).rows(states, actions)
        wide = np.hstack([matrix, -self.shape(states), np.ones((actions.size, 1))])
        sign = np.zeros((1, self.width))
        sign[0, len(self.basis)] = -1.0
        return np.vstack([wide, sign]), np.append(right, 0.0)

    def excess(self, sweeper: Sweeper, weights: Floats, level: float = 0.0) -> tuple[Floats, Ints]:
        """Less s·ψ."""
        violation, best = super().excess(sweeper, weights[:-1], level)
        return violation - weights[-1] * everywhere(self.model, lambda x: self.shape(x)[:, 0]), best


def _shaped(program: Program, shape: Basis | None, budget: float | None) -> Shaped:
    if shape is None or budget is None or not is_positive(budget):
        raise InputError(
            f"shaping needs a basis of one function and a positive budget, got {shape!r} and "
            f"{budget!r}."
        )
    check(program.model, shape)
    if len(shape) != 1:
        raise InputError(f"losses are shaped by a basis of one function, not of {len(shape)}.")
    costs = np.append(program.objective, -float(budget))
    return Shaped(program.basis, program.gamma, costs, True, 0.0, program.weight_bound, shape=shape)
