"""The paper's bounds as numbers, corrected where their proofs ask for it, with every constant they
contain.

**The identity.** Let u have mass M = 1 (average, γ = 1) or 1/(1−γ) (discounted), flow residual f,
negative part [u]₋; let π be its policy, h the bias or cost-to-go of π, and A(x,a) = ℓ + γPh − h(x)
(average: − λ) the advantage of a in x. Since Σ_a [u(x,a)]₊·A(x,a) = 0 in every x, whatever π does
where u has no positive part,

    cost(π) = ℓᵀu + s·fᵀh + Σ [u]₋·A,        s = 1 (average) or −1 (discounted).

f sums to 0, so |fᵀh| <= ½·span(h)·V_flow; and A = ℓ − ℓ_π + γ(P − P_π)h, so |A| <= L + γ·span(h), L
the range of the losses. Hence

    |cost(π) − ℓᵀu| <= (L + γσ)·V_neg + ½σ·V_flow,        σ >= span(h).                (certificate)

Discounted: σ = L/(1−γ) always, so the right-hand side is κ·(V_neg + ½V_flow) with κ = L/(1−γ),
**proved** from V3 and V4 alone (the paper: (3V3 + V4)/(1−γ) for L = 1). Average: nothing is proved
until σ is known of this very policy, or a contraction C·e^(−k/τ), which gives σ <= C·L/(1
− e^(−1/τ)).

**Distances.** Average: with r the residual of [u]₊/(1+V1), of total mass 0 and ‖r‖₁ <= (2V1
+ V2)/(1 + V1),

    ‖μ_π − u‖₁ <= C/(1 − e^(−1/τ))·(2V1 + V2)/(1 + V1) + 2V1        (printed: τ·ln(1/V1)·(2V1 + V2)
        + 3V1, which is
                                                                     false for fast mixing and
                                                                     infinite at V1 = 0)
    ‖ν_π − u‖₁ <= (2V3 + V4)/(1 − γ)                                (printed: (3V3 + V4)/(1 − γ)).

The second: ν_π − [u]₊ = −Σ γᵗ(f + (B−γP)ᵀ[u]₋)P_πᵗ, of norm at most (V4 + (1+γ)V3)/(1−γ), and ‖[u]₊
− u‖ = V3. Neither is ever more than 2M + 2V_neg, the sum of the two norms.

**Excess loss.** Let V = V_neg + V_flow, κ >= L + γσ for the policies in question, D the largest
difference of ℓᵀu over Θ, and c(θ̂) <= min c + b. If H >= κ, the surrogate is an upper bound of the
cost of its own policy, so for every θ

    cost(θ̂) <= c(θ̂) <= c(θ) + b <= cost(θ) + (κ + H)·V(θ) + b;                     (exact penalty)

for H <= κ, cost(θ̂) <= c(θ̂) + (κ − H)·V(θ̂), and V(θ̂) <= V(θ) + (D + b)/H gives the form of the
paper's theorems,

    cost(θ̂) <= cost(θ) + 2κ·V(θ) + (κ/H − 1)·D + κ/H·b.

The paper has (2κ + H)·V(θ) + κ·D/H + (1 + κ/H)·b, with 6/(1−γ) for 2κ and 2√d·C·S for D, and bounds
|ℓᵀu| by 1 + S in the average case, which is false for weights of both signs. Here D = 2ρ·‖slope
− its mean‖, ρ² = S² − M²/d, exactly. So β, the coefficient of 1/H, is κ·D.

**The meta-algorithm** minimises F(H) = min_θ ℓᵀu + (H + κ)V + β/H within ε (`meta.py`). As the
weight of V is at least κ, cost(θ̂) <= F, and F(√(β/V(θ))) <= cost(θ) + 2κV(θ) + 2√(βV(θ)): the
paper's conclusion holds, with constants,

    cost(θ̂) <= cost(θ) + 2κ·V(θ) + max(2√(β·V(θ)), ε) + ε                for every θ.

(The paper's own step, |β/H_k̂ − β/H*| <= ε, does not follow from what precedes it.) Discounted this
is proved; in the average case κ must be assumed or measured. β may be any positive number here; the
smaller, the better the bound.

**Distance to the optimum.** If ‖u_θ − ν*‖₁ = e then V3(θ) <= ½e, V4(θ) <= (1+γ)e and ℓᵀu_θ <= αᵀJ*
+ ½L·e. So, for
H >= κ,  αᵀJ_θ̂ − αᵀJ* <= (½L + (3/2 + γ)H)·e + b, and for H <= κ at most (½L + (3/2 + γ)κ)·e + (κ/H
         − 1)·D + κ/H·b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.status import MEASURED, PROVED
from dualplan.core.types import Json
from dualplan.dual.problem import DualALP, Penalty, penalties
from dualplan.dual.solvers.subgradient import gradient_bound, theory
from dualplan.dual.violations import hoeffding_size
from dualplan.models.criteria import Discounted

NOT_PLAIN_MESSAGE = (
    "the theorems are about the surrogate without potential, weights over states and limits; leave "
    "them or epsilon out, and name features of your own instead of the standard ones."
)


@dataclass(frozen=True, eq=False)
class Statement:
    """A bound as the sum of its terms, the constants in it, and whether it is proved, measured or
    assumed.
    """

    name: str
    terms: dict[str, float]
    constants: dict[str, float]
    label: str

    @property
    def bound(self) -> float:
        """The right-hand side."""
        return sum(self.terms.values())

    def to_json(self) -> Json:
        """As plain values."""
        return {
            "bound": self.bound,
            "label": self.label,
            "terms": self.terms,
            "constants": self.constants,
        }


# -- distances and intervals -----------------------------------------------------------------------


def distance_average(negative: float, flow: float, tau: float, constant: float = 1.0) -> float:
    """‖μ_π − u‖₁ at most, for a chain that contracts by constant·e^(−k/τ) in k steps."""
    return (
        min(constant / -math.expm1(-1 / tau) * (2 * negative + flow) / (1 + negative), 2.0)
        + 2 * negative
    )


def printed_distance_average(negative: float, flow: float, tau: float) -> float:
    """The paper's bound, for a chain that contracts by e^(−1/τ) in every step."""
    if negative == 0:
        return math.inf
    return tau * math.log(1 / negative) * (2 * negative + flow) + 3 * negative


def distance_discounted(negative: float, flow: float, gamma: float) -> float:
    """‖ν_π − u‖₁ at most."""
    return min((2 * negative + flow) / (1 - gamma), 2 / (1 - gamma) + 2 * negative)


def printed_distance_discounted(negative: float, flow: float, gamma: float) -> float:
    """The paper's bound."""
    return (3 * negative + flow) / (1 - gamma)


def span_from_mixing(loss_range: float, tau: float, constant: float = 1.0) -> float:
    """The span of the bias at most, for a chain that contracts by constant·e^(−k/τ) in k steps."""
    return constant * loss_range / -math.expm1(-1 / tau)


def price(loss_range: float, span: float, gamma: float = 1.0) -> tuple[float, float]:
    """What a unit of V_neg and one of V_flow can cost: L + γσ and ½σ."""
    return loss_range + gamma * span, span / 2


# -- excess loss -----------------------------------------------------------------------------------


def spread(problem: DualALP) -> float:
    """D: the largest difference of the objective over Θ."""
    d = len(problem.features)
    room = math.sqrt(max(problem.radius**2 - problem.mass**2 / d, 0.0))
    return 2 * room * float(np.linalg.norm(problem.slope - problem.slope.mean()))


def largest_violation(problem: DualALP) -> float:
    """V_max: ‖θ‖₁ <= √d·S, so V_neg <= ½(√d·S − M) and V_flow <= (1+γ)·√d·S, with that of α and the
    base measure.

    (The paper's V2 <= 2 + 2S is false for weights of both signs.)
    """
    size = math.sqrt(len(problem.features)) * problem.radius
    gamma = problem.gamma
    if problem.base is not None:
        base = problem.total
    else:
        base = 0.0
    return (
        (size - problem.mass) / 2
        + (1 + gamma) * (size + base)
        + (1.0 if problem.alpha.size else 0.0)
    )


def optimisation_error(problem: DualALP, penalty: Penalty, steps: float, delta: float) -> float:
    """b: how far the paper's method may be above the minimum after so many steps, but for a
    probability of δ.
    """
    gradient = gradient_bound(problem, penalty)
    return (
        problem.radius * gradient / math.sqrt(steps) * (1 + 4 * math.sqrt(2 * math.log(1 / delta)))
    )


def main_theorem(
    problem: DualALP,
    penalty: float,
    *,
    loss_range: float,
    cost: float,
    violation: float,
    error: float,
    span: float | None = None,
    known: str = PROVED,
) -> Statement:
    """`thm:main_average` or `thm:main_discounted`: what θ̂ costs at most, given the cost and V(θ)
    of some θ.

    `error` is b, such as `optimisation_error`. In the average case `span` must bound the span of
    the bias of both policies, and `known` says how it is known.
    """
    kappa = exact_penalty(problem, loss_range, span)
    largest = spread(problem)
    terms = {"cost of θ": cost, "violations": (kappa + max(penalty, kappa)) * violation}
    terms |= _short_of(kappa, penalty, largest, error)
    constants = {
        "H": penalty,
        "kappa": kappa,
        "beta": kappa * largest,
        "D": largest,
        "L": loss_range,
        "S": problem.radius,
        "d": float(len(problem.features)),
        "V": violation,
        "b": error,
    }
    return Statement(_name(problem, "main"), terms, constants, _label(problem, span, known))


def meta_theorem(
    problem: DualALP,
    *,
    loss_range: float,
    cost: float,
    violation: float,
    epsilon: float,
    beta: float | None = None,
    span: float | None = None,
    known: str = PROVED,
) -> Statement:
    """`thm:H_opt_average_cost` or `thm:H_opt_discounted_cost`: what the chosen θ̂ costs at most,
    given some θ.
    """
    kappa = exact_penalty(problem, loss_range, span)
    if beta is None:
        beta = kappa * spread(problem)
    terms = {
        "cost of θ": cost,
        "violations": 2 * kappa * violation,
        "root": max(2 * math.sqrt(beta * violation), epsilon),
        "epsilon": epsilon,
    }
    constants = {
        "kappa": kappa,
        "beta": beta,
        "V": violation,
        "L": loss_range,
        "S": problem.radius,
        "epsilon": epsilon,
    }
    return Statement(_name(problem, "H_opt"), terms, constants, _label(problem, span, known))


def error_bound(
    problem: DualALP,
    penalty: float,
    *,
    loss_range: float,
    optimum: float,
    distance: float,
    error: float,
) -> Statement:
    """`cor:discounted_error_bound`: what θ̂ costs at most if some θ has ‖u_θ − ν*‖₁ = distance."""
    if not isinstance(problem.criterion, Discounted):
        raise InputError("the corollary is about the discounted criterion.")
    kappa = exact_penalty(problem, loss_range)
    gamma = problem.gamma
    on_violations = max(penalty, kappa) * (1.5 + gamma)
    terms = {
        "optimum": optimum,
        "objective": loss_range * distance / 2,
        "violations": on_violations * distance,
    }
    terms |= _short_of(kappa, penalty, spread(problem), error)
    constants = {
        "H": penalty,
        "kappa": kappa,
        "L": loss_range,
        "distance": distance,
        "b": error,
        "per unit of distance": loss_range / 2 + on_violations,
    }
    return Statement("cor:discounted_error_bound", terms, constants, _label(problem, None, PROVED))


def _short_of(kappa: float, penalty: float, largest: float, error: float) -> dict[str, float]:
    """The terms of D and b: b alone once H reaches κ."""
    if penalty >= kappa:
        return {"b": error}
    return {"1/H": (kappa / penalty - 1) * largest, "b": kappa / penalty * error}


def require_plain(problem: DualALP) -> None:
    """Raise unless the surrogate is the one that the theorems are about."""
    if problem.potential is not None or problem.weights is not None or problem.limits:
        raise InputError(NOT_PLAIN_MESSAGE)


def exact_penalty(problem: DualALP, loss_range: float, span: float | None = None) -> float:
    """κ = L + γσ, with σ = L/(1−γ) in the discounted criterion unless a span is given."""
    require_plain(problem)
    if isinstance(problem.criterion, Discounted) and span is None:
        span = loss_range / (1 - problem.gamma)
    if span is None:
        raise InputError("the average criterion needs a bound on the span of the bias; give span.")
    return price(loss_range, span, problem.gamma)[0]


def estimated(problem: DualALP) -> bool:
    """Whether expected losses of features are estimates: then nothing that contains them is
    proved.
    """
    return bool(problem.slope_errors.any()) or (
        problem.base is not None and bool(problem.base.errors.any())
    )


def _label(problem: DualALP, span: float | None, known: str) -> str:
    if isinstance(problem.criterion, Discounted) and span is None:
        found = PROVED
    else:
        found = known
    if found == PROVED and estimated(problem):
        return MEASURED
    return found


def _name(problem: DualALP, which: str) -> str:
    discounted = isinstance(problem.criterion, Discounted)
    if which == "main":
        if discounted:
            return "thm:main_discounted"
        return "thm:main_average"
    if discounted:
        return "thm:H_opt_discounted_cost"
    return "thm:H_opt_average_cost"


# -- what the theory asks for ----------------------------------------------------------------------


@dataclass(frozen=True)
class Requirements:
    """Work for a wanted ε by theory: T steps and n draws at one of K penalties, and in all."""

    penalty: tuple[float, float]
    steps: float
    draws: float
    points: float

    def to_json(self) -> Json:
        """As plain values; infinite ones become None."""
        negative, flow = self.penalty
        values = {"T": self.steps, "n": self.draws, "K": self.points}
        return {"penalty": negative if negative == flow else [negative, flow]} | {
            name: value if math.isfinite(value) else None for name, value in values.items()
        }


def requirements(
    problem: DualALP, penalty: Penalty, *, epsilon: float, delta: float, points: float = 1
) -> Requirements:
    """T for c within ε/4 and n for H·V̂ within ε/4 at one of K penalties, all of them together with
    probability 1 − δ.

    n is before θ is known: a term of V̂ is at most S·(C1 + C2), with a base measure √(S² + M²)·(C1
    + C2), and the largest α/q4 more, which is at most 2 where features are drawn from.
    """
    constants, (on_negative, on_flow) = problem.constants, penalties(penalty)
    size = math.hypot(problem.radius, problem.total if problem.base is not None else 0.0)
    span = on_negative * size * constants.negative + on_flow * (
        size * constants.flow + constants.start
    )
    steps = theory(problem, penalty, epsilon=epsilon / 4, delta=delta / (2 * points)).steps
    draws = hoeffding_size(span, epsilon / 4, delta / (2 * points))
    return Requirements((on_negative, on_flow), steps, draws, points)
