"""The approximate linear program of the discounted criterion.

    maximise  cᵀΨw   subject to   Ψw(x) <= ℓ(x,a) + γ Σ_y P(y|x,a) Ψw(y)   for all (x, a)

(Schweitzer & Seidmann 1985; de Farias & Van Roy 2003). Every feasible Ψw lies below the optimal values J*, so that
maximising cᵀΨw is minimising ‖J* − Ψw‖_{1,c}, and with a constant function among Ψ

    ‖J* − Ψw‖_{1,c}  <=  2/(1−γ) · min_r ‖J* − Ψr‖_∞                    (de Farias & Van Roy 2003, theorem 2).

The policy that is greedy for V = Ψw <= J* costs at most 1/(1−γ)·‖J* − V‖_{1,μ} more than the optimum from α, where μ is
its own discounted occupancy times 1−γ (ibid., theorem 1): so c should be what the policy visits, which is not known
beforehand. `iterated_alp` takes the occupancy of the last greedy policy for the next c, and keeps the best policy.

*Constraint sampling* (de Farias & Van Roy 2004). Of n constraints drawn from a distribution ψ,

    n >= (4/ε)·(K ln(12/ε) + ln(2/δ))

suffice so that with probability 1−δ every point that keeps them violates others of ψ-measure at most ε (theorem 2.1; K
unknowns). With bounded weights, ψ the discounted occupancy of an optimal policy times a Lyapunov function, and
θ = (1+γ)/2 · (E_μ V/cᵀJ*) · sup_r ‖J* − Ψr‖_{∞,1/V} over the bounded weights, the sampled optimum is within ε·‖J*‖_{1,c}
of the whole program's error if ε above is replaced by (1−γ)·ε/(4Aθ), A actions a state (theorem 3.1). Such ψ and θ are
not known in practice: the rule says how n grows, not that a given n is enough. All actions of a drawn state are taken,
which only adds constraints. Sampled values may lie above J*.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from dualplan.criteria import Criterion, Discounted
from dualplan.errors import InputError, MissingError, unknown
from dualplan.evaluation import evaluate
from dualplan.exact.policy import evaluate_exact
from dualplan.kinds import is_positive, is_whole
from dualplan.lower_bounds import LISTABLE
from dualplan.models.contract import Model
from dualplan.outcomes import Judge
from dualplan.policies.contract import Policy
from dualplan.primal.basis import Basis
from dualplan.primal.program import WHOLE, Found, Program, sampled_pairs
from dualplan.primal.relevance import Relevance, geometric, occupancy
from dualplan.primal.solution import PrimalSolution
from dualplan.types import Floats, Ints

ALL, GENERATED, SAMPLED = CONSTRAINTS = ("all", "generated", "sampled")
FEW = 10_000  # pairs up to which all constraints are listed unless told otherwise
RATIO = 0.9  # of the geometric weights that stand for c if none are given
TOL, ROUNDS, SAMPLES = 1e-6, 200, 10_000


@dataclass(frozen=True, eq=False)
class Settings:
    """How the constraints are come by, and how well they are kept."""

    constraints: str | None = None
    sample: Relevance | Policy | None = None
    samples: int = SAMPLES
    tol: float = TOL
    rounds: int = ROUNDS
    weight_bound: float | None = None
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.constraints is not None and self.constraints not in CONSTRAINTS:
            raise unknown("way to constraints", str(self.constraints), CONSTRAINTS)
        if self.sample is not None and self.constraints not in (None, SAMPLED):
            raise InputError(f"a sample of states is for constraints 'sampled', not {self.constraints!r}.")
        if not is_positive(self.tol) or not is_whole(self.rounds) or self.rounds < 1:
            raise InputError(f"tol must be positive and rounds at least 1, got {self.tol!r} and {self.rounds!r}.")
        if not is_whole(self.samples) or self.samples < 1:
            raise InputError(f"samples must be a whole number, at least 1, got {self.samples!r}.")
        if self.weight_bound is not None and not is_positive(self.weight_bound):
            raise InputError(f"weight_bound must be positive, got {self.weight_bound!r}.")
        if not is_whole(self.seed) or not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be a whole number from 0 to 2^63 - 1, got {self.seed!r}.")

    def way(self, model: Model, width: int) -> str:
        """All constraints where they are few, generated ones where states can be swept, else drawn ones."""
        if self.constraints is not None:
            return self.constraints
        count = model.box.count
        if self.sample is not None:
            return SAMPLED
        if count is None or count > LISTABLE:
            raise MissingError(
                f"model {model.name!r} has too many states to look at all constraints; say where to draw them, as "
                "sample=policy or sample=primal.geometric(model, ratio)."
            )
        pairs = count * len(model.actions)
        return ALL if pairs <= FEW and pairs * width <= WHOLE else GENERATED

    def solve(self, program: Program, start: tuple[Ints, Ints] | None = None) -> tuple[Found, str]:
        """The program over its constraints, and how these were come by."""
        way = self.way(program.model, program.width)
        if way == ALL:
            return program.over_all(), way
        if way == GENERATED:
            return program.generated(self.tol, self.rounds, self.seed, start, self.threads), way
        return program.over(*sampled_pairs(program.model, self.drawn(program.model))), way

    def drawn(self, model: Model) -> Ints:
        """The sampled states, and the model's start."""
        source = self.sample
        if source is None:
            raise InputError("sampled constraints need sample=, a policy or a distribution on states.")
        if isinstance(source, Policy):
            source = occupancy(model, source, samples=self.samples, seed=self.seed, exact=False)
        return np.vstack([model.start, source.draw(self.samples, self.seed)])


def alp(
    model: Model,
    basis: Basis,
    criterion: Discounted,
    *,
    relevance: Relevance | Policy | None = None,
    constraints: str | None = None,
    sample: Relevance | Policy | None = None,
    samples: int = SAMPLES,
    tol: float = TOL,
    rounds: int = ROUNDS,
    weight_bound: float | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> PrimalSolution:
    """Solve the approximate linear program.

    `relevance` is c, by default geometric with ratio 0.9; a policy stands for its discounted occupancy. `constraints`
    are "all" pairs, "generated" by sweeps until none is violated by more than `tol`, or "sampled": those of `samples`
    states drawn from `sample`, a policy's visits or a distribution on states.
    """
    started = time.monotonic()
    check(model, basis)
    if not isinstance(criterion, Discounted):
        raise InputError(f"the criterion of alp is Discounted(gamma), got {criterion!r}; for the average use average_alp.")
    settings = Settings(constraints, sample, samples, tol, rounds, weight_bound, seed, threads)
    weights = relevant(model, relevance, criterion, seed).moments(basis)
    program = Program(basis, criterion.gamma, weights, weight_bound=weight_bound)
    found, way = settings.solve(program)
    return PrimalSolution(
        basis, criterion, f"alp, {way}", found.weights, found.value, found.status, found.constraints, found.rounds,
        time.monotonic() - started, seed, violation=found.violation,
    )  # fmt: skip


def check(model: Model, basis: Basis) -> None:
    """Raise unless the basis belongs to the model and the model has what a program needs."""
    if not isinstance(basis, Basis):
        raise InputError(f"a basis is made by dualplan.primal, got {basis!r}.")
    if basis.model is not model and basis.model.digest != model.digest:
        raise InputError(f"the basis belongs to {basis.model.name!r}, not to {model.name!r}.")
    if model.code.forward is None:
        model.forward(model.start, 0)  # raises, and says why


def relevant(model: Model, given: Relevance | Policy | None, criterion: Criterion, seed: int) -> Relevance:
    """c from what was given for it."""
    if given is None:
        return geometric(model, RATIO)
    return occupancy(model, given, criterion, seed=seed) if isinstance(given, Policy) else given


# -- the sample-size rule -----------------------------------------------------------------------------------------------


def sample_size(functions: int, epsilon: float, delta: float) -> int:
    """Drawn constraints that leave, with probability 1−δ, at most measure ε of the others violated (theorem 2.1)."""
    if not is_whole(functions) or functions < 1 or not 0 < epsilon < 1 or not 0 < delta < 1:
        raise InputError("the sample size needs functions >= 1, and epsilon and delta between 0 and 1.")
    return math.ceil(4 / epsilon * (functions * math.log(12 / epsilon) + math.log(2 / delta)))


def sample_size_for_error(
    functions: int, actions: int, gamma: float, theta: float, epsilon: float, delta: float
) -> int:
    """Drawn constraints for an error of ε·‖J*‖_{1,c} beyond the whole program's, with θ as above (theorem 3.1)."""
    if not is_positive(theta) or not 0 < gamma < 1 or not is_whole(actions) or actions < 1 or not is_positive(epsilon):
        raise InputError("the sample size needs theta and epsilon > 0, actions >= 1 and gamma between 0 and 1.")
    return sample_size(functions, min((1 - gamma) * epsilon / (4 * actions * theta), 0.5), delta)


# -- iterated -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Iterated:
    """The rounds of an iterated program: their solutions, what their policies cost, and the best."""

    solutions: tuple[PrimalSolution, ...]
    policies: tuple[Policy, ...]
    costs: Floats
    half_widths: Floats
    chosen: int

    @property
    def best(self) -> PrimalSolution:
        """The solution whose policy costs least; where costs were simulated, by estimates that are a bit too low."""
        return self.solutions[self.chosen]

    @property
    def policy(self) -> Policy:
        """Its policy."""
        return self.policies[self.chosen]


def iterated_alp(
    model: Model,
    basis: Basis,
    criterion: Discounted,
    *,
    relevance: Relevance | Policy | None = None,
    iterations: int = 3,
    cost: Criterion | None = None,
    judge: Judge | None = None,
    **options: object,
) -> Iterated:
    """`iterations` programs, each with c the discounted occupancy of the last greedy policy, and the best of them.

    Policies are judged by `cost`, by default the criterion itself; `options` are those of `alp`.
    """
    if not is_whole(iterations) or iterations < 1:
        raise InputError(f"iterations must be a whole number, at least 1, got {iterations!r}.")
    solutions: list[PrimalSolution] = []
    policies: list[Policy] = []
    weights: Relevance | Policy | None = relevance
    for _ in range(iterations):
        solutions.append(alp(model, basis, criterion, relevance=weights, **options))  # type: ignore[arg-type]
        policies.append(solutions[-1].policy(name=f"alp, iteration {len(solutions)}"))
        weights = policies[-1]
    return chosen(solutions, policies, cost or criterion, judge or Judge())


def chosen(
    solutions: list[PrimalSolution], policies: list[Policy], criterion: Criterion, judge: Judge
) -> Iterated:
    """The solutions with the costs of their policies: exact where states are few, else simulated alike."""
    costs = np.array([_cost(policy, criterion, judge) for policy in policies])
    best = int(np.argmin(costs[:, 0]))
    return Iterated(tuple(solutions), tuple(policies), costs[:, 0], costs[:, 1], best)


def _cost(policy: Policy, criterion: Criterion, judge: Judge) -> tuple[float, float]:
    if judge.exact(policy.model) and policy.code is not None:
        exact = evaluate_exact(policy.model, policy, criterion)
        return exact.cost, (exact.upper - exact.lower) / 2
    run = evaluate(policy.model, policy, criterion, steps=judge.steps, seed=judge.seed, confidence=judge.confidence)
    return run.cost, (run.upper - run.lower) / 2
