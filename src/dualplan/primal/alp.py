"""The approximate linear program of the discounted criterion.

    maximise  cᵀΨw   subject to   Ψw(x) <= ℓ(x,a) + γ Σ_y P(y|x,a) Ψw(y)   for all (x, a)

(Schweitzer & Seidmann 1985; de Farias & Van Roy 2003). Every feasible Ψw lies below the optimal
values J*, so that maximising cᵀΨw is minimising ‖J* − Ψw‖_{1,c}, and with a constant function among
Ψ

    ‖J* − Ψw‖_{1,c}  <=  2/(1−γ) · min_r ‖J* − Ψr‖_∞          (de Farias & Van Roy 2003, theorem 2).

The policy that is greedy for V = Ψw <= J* costs at most 1/(1−γ)·‖J* − V‖_{1,μ} more than the
optimum from α, where μ is its own discounted occupancy times 1−γ (ibid., theorem 1): so c should be
what the policy visits, which is not known beforehand. `iterated_alp` takes the occupancy of the
last greedy policy for the next c, and keeps the best policy.

*Constraint sampling* (de Farias & Van Roy 2004). Of n constraints drawn from a distribution ψ,

    n >= (4/ε)·(K ln(12/ε) + ln(2/δ))

suffice so that with probability 1−δ every point that keeps them violates others of ψ-measure at
most ε (theorem 2.1; K unknowns). With bounded weights r, μ the discounted occupancy of an optimal
policy, V a Lyapunov function, ψ ∝ μ·V, and θ = (1+γ)/2 · (μᵀV/cᵀJ*) · sup_r ‖J* − Ψr‖_{∞,1/V}, the
sampled optimum is within ε·‖J*‖_{1,c} of the whole program's error if ε above is replaced by
(1−γ)·ε/(4Aθ), A actions a state (theorem 3.1). Such ψ and θ are not known in practice: the rule
says how n grows, not that a given n is enough. All actions of a drawn state are taken, which only
adds constraints. Sampled values may lie above J*.
"""

from __future__ import annotations

import math
import time
from typing import Unpack

from dualplan.core.checks import require_counts, require_inside, require_positive
from dualplan.evaluation.judge import Judge
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, require_discounted
from dualplan.policies.contract import Policy
from dualplan.primal.iterated import Iterated, iterate
from dualplan.primal.program import Program
from dualplan.primal.relevance import Relevance
from dualplan.primal.settings import Settings, SettingsKeywords, check, relevant
from dualplan.primal.solution import PrimalSolution
from dualplan.values.basis import Basis


def alp(
    model: Model,
    basis: Basis,
    criterion: Discounted,
    *,
    relevance: Relevance | Policy | None = None,
    **settings: Unpack[SettingsKeywords],
) -> PrimalSolution:
    """Solve the approximate linear program; `settings` are the fields of `Settings`.

    `relevance` is c, by default geometric with ratio 0.9; a policy stands for its discounted
    occupancy.
    """
    started = time.monotonic()
    wanted = Settings.of(settings)
    check(model, basis)
    require_discounted(criterion, "alp", otherwise="average_alp")
    way = wanted.way(model, len(basis))
    moments = relevant(model, relevance, criterion, wanted.seed).moments(basis)
    found = wanted.solve(Program(basis, criterion.gamma, moments, weight_bound=wanted.weight_bound))
    return PrimalSolution(
        basis,
        criterion,
        f"alp, {way}",
        found.weights,
        found.value,
        found.status,
        found.constraints,
        found.rounds,
        time.monotonic() - started,
        wanted.seed,
        violation=found.violation,
    )


def iterated_alp(
    model: Model,
    basis: Basis,
    criterion: Discounted,
    *,
    relevance: Relevance | Policy | None = None,
    iterations: int = 3,
    cost: Criterion | None = None,
    judge: Judge | None = None,
    **settings: Unpack[SettingsKeywords],
) -> Iterated:
    """`iterations` programs, each with c the discounted occupancy of the last greedy policy, and
    the best of them.

    Policies are judged by `cost`, by default the criterion itself; `settings` are those of `alp`.
    """
    return iterate(
        lambda c: alp(model, basis, criterion, relevance=c, **settings),
        relevance,
        iterations,
        cost or criterion,
        judge or Judge(),
    )


# -- the sample-size rule --------------------------------------------------------------------------


def sample_size(functions: int, epsilon: float, delta: float) -> int:
    """Drawn constraints that leave, with probability 1−δ, at most measure ε of the others violated
    (theorem 2.1).
    """
    require_counts(functions=functions)
    require_inside(epsilon=epsilon, delta=delta)
    return math.ceil(4 / epsilon * (functions * math.log(12 / epsilon) + math.log(2 / delta)))


def sample_size_for_error(
    functions: int, actions: int, gamma: float, theta: float, epsilon: float, delta: float
) -> int:
    """Drawn constraints for an error of ε·‖J*‖_{1,c} beyond the whole program's, with θ as above
    (theorem 3.1).
    """
    require_counts(actions=actions)
    require_inside(gamma=gamma)
    require_positive(theta=theta, epsilon=epsilon)
    return sample_size(functions, min((1 - gamma) * epsilon / (4 * actions * theta), 0.5), delta)
