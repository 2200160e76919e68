"""Approximate linear programs of factored models, with all of their constraints.

    discounted   maximise cᵀΨw   subject to   Σ_k w_k (ψ_k − γ g_k^a)(x) − ℓ(x,a)      <= 0     for
                 all (x, a)
    average      maximise λ      subject to   Σ_k w_k (ψ_k −   g_k^a)(x) − ℓ(x,a) + λ  <= 0     for
                 all (x, a)

with ψ_k of few variables and g_k^a their backprojections (`values/local.py`). There are as many
constraints as pairs, but for an action a they say that one number, the maximum over x of a sum of
functions of few variables, is at most 0. Two ways:

*Elimination in the program* (Guestrin, Koller & Parr 2001; Guestrin, Koller, Parr & Venkataraman
2003). The maximum is taken by eliminating variables (`elimination.py`) with w still unknown: each
value of each function e_i on the way is an unknown u of the program, and

    u_i(z)  >=  Σ_{f met by i} f(z, v)      for all values v and z,        Σ of what is left in the
            end  <=  0.

A w is feasible with some u if and only if it keeps all constraints, so nothing is approximated; the
program is as large as the tables of the elimination. Actions share the u of what they have in
common.

*Generated constraints* (Schuurmans & Patrascu 2002). The program on some pairs is solved, and for
each action the pair that w violates most is found by elimination with numbers and added, until none
is violated by more than the tolerance. Few constraints do not bound the weights, so bounds of their
own do, which are raised until they no longer matter.

The average criterion has two stages as in `average.py`: the weights of the first prove the bound,
those of the second, at a λ a little lower, make the policy.

*The bound is proved, whatever the solver did.* With m = −max_(x,a) [Σ_k w_k (ψ_k − γ g_k^a) − ℓ],
found by elimination with the weights at hand, λ* >= m, and αᵀJ* >= αᵀΨw + m/(1−γ) from the start α,
cᵀJ* >= cᵀΨw + m/(1−γ) for c. Rounding: every number added up is known to about q·ε of its size (q
= 2 + the terms of the longest backprojection, ε = 2⁻⁵³; laws themselves sum to 1 up to rounding),
and n functions and p eliminations are added in some order, whose error is at most (n + p)·ε times
the sum of their sizes; the maximum of rounded numbers is off by no more than the worst of them.
Twice (q + n + p + 8)·ε·Σ sizes is taken off.

*Errors* (de Farias & Van Roy 2003): with the constant among ψ, ‖J* − Ψw‖_{1,c} <= 2/(1−γ)·min_r ‖J*
− Ψr‖_∞.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypedDict, Unpack

import numpy as np

from dualplan.core.checks import (
    require_counts,
    require_nonnegative,
    require_numbers,
    require_positive,
    require_seed,
)
from dualplan.core.errors import InputError, unknown
from dualplan.core.lp import minimise
from dualplan.core.status import PROVED, Status
from dualplan.core.types import Floats, Ints, Json
from dualplan.evaluation.lower_bounds import LowerBound
from dualplan.evaluation.visits import occupancy
from dualplan.models.contract import require_made_for
from dualplan.models.criteria import Average, Criterion, Discounted, require_discounted
from dualplan.models.factored import FactoredModel
from dualplan.policies.contract import Policy
from dualplan.policies.local_greedy import local_greedy
from dualplan.primal.average import SECOND_LAMBDA_SLACK
from dualplan.primal.factored_constraints import HALF_ULP, FactoredConstraints
from dualplan.primal.program import FIRST_RANDOM_STATES_A_FUNCTION, Relaxed, UnboundedError, cleaned
from dualplan.primal.relevance import Independent, Relevance, uniform
from dualplan.primal.solution import policy_name
from dualplan.values.basis import Basis
from dualplan.values.local import LocalBasis, LocalValues, independent_mean, local_basis

ELIMINATED_CONSTRAINTS, GENERATED_CONSTRAINTS = WAYS_TO_CONSTRAIN_FACTORED = (
    "eliminated",
    "generated",
)
MOST_ELIMINATION_ROWS = 2**21  # of the program with the elimination in it
# of the weights of generated programs to begin with, in losses of a discounted lifetime
FIRST_WEIGHT_BOUND = 1e2
LARGEST_WEIGHT_BOUND = 1e12  # the last of these bounds
NO_SECOND_STAGE_MESSAGE = (
    "the second stage does not bound the values, as where the model never comes back to its start; "
    "take another start or relevance, or factored_average_bound for the bound alone."
)
UNCHANGED_OPTIMUM_SHARE = 1e-9  # of such a loss: an optimum that did not change


@dataclass(frozen=True, eq=False)
class FactoredSolution:
    """Weights of functions of few variables, found by a program with all constraints.

    `objective` is the program's optimum, `level` the λ of the average criterion; `violation` is the
    largest over all pairs, by elimination. `bounding` are the weights that prove the lower bound,
    by default the weights themselves. `width` is that of the elimination, `unknowns` those of the
    program (with `constraints` generated: the weights).
    """

    basis: LocalBasis
    criterion: Criterion
    method: str
    weights: Floats
    objective: float
    status: Status
    constraints: int
    unknowns: int
    rounds: int
    width: int
    violation: float
    moments: Floats
    seconds: float
    seed: int = 0
    level: float | None = None
    bounding: Floats | None = None

    @property
    def model(self) -> FactoredModel:
        """The model of the basis."""
        return self.basis.model

    @property
    def gamma(self) -> float:
        """The discount factor, 1 for the average criterion."""
        return self.criterion.gamma

    @cached_property
    def values(self) -> LocalValues:
        """Ψw, a function of states."""
        return LocalValues(self.basis, self.weights)

    @cached_property
    def lower_bound(self) -> LowerBound:
        """Proved for the optimal cost from the start, whatever the program did.

        See the module's text.
        """
        started = time.monotonic()
        if self.bounding is None:
            weights = self.weights
        else:
            weights = self.bounding
        least, worst = least_shaped_loss(self.basis, weights, self.gamma)
        value = least
        words = "average"
        if isinstance(self.criterion, Discounted):
            words = f"discounted, gamma {self.gamma:g}"
            states, alpha = self.criterion.start_distribution(self.model)
            value = self._discounted(weights, least, alpha @ self.basis(states))
        return LowerBound(
            value, PROVED, words, tuple(worst.tolist()), seconds=time.monotonic() - started
        )

    @cached_property
    def objective_bound(self) -> float:
        """A number that cᵀJ* is proved not to lie below.

        For the average criterion that of `lower_bound`.
        """
        if not isinstance(self.criterion, Discounted):
            return self.lower_bound.value
        least, _ = least_shaped_loss(self.basis, self.weights, self.gamma)
        return self._discounted(self.weights, least, self.moments)

    def _discounted(self, weights: Floats, least: float, means: Floats) -> float:
        """αᵀΨw + m/(1−γ), less what rounding can do to both."""
        size = LocalValues(self.basis, weights).size + abs(least) / (1 - self.gamma)
        terms = 2 * len(self.basis) + max(psi.values.size for psi in self.basis.functions) + 8
        return math.fsum(weights * means) + least / (1 - self.gamma) - terms * HALF_ULP * size

    def policy(self, *, name: str | None = None, unfinished: bool = False) -> Policy:
        """The greedy policy of the values.

        Of a program that stopped early only if `unfinished` asks for it.
        """
        label = policy_name(name or self.method, self.status, unfinished)
        return local_greedy(self.values, self.gamma, name=label)

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        return {
            "method": self.method,
            "functions": len(self.basis),
            "objective": self.objective,
            "level": self.level,
            "status": str(self.status),
            "advice": self.status.advice,
            "constraints": self.constraints,
            "unknowns": self.unknowns,
            "rounds": self.rounds,
            "width": self.width,
            "violation": self.violation,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
        }


def least_shaped_loss(basis: LocalBasis, weights: Floats, gamma: float) -> tuple[float, Ints]:
    """A number proved to lie below ℓ + γPΨw − Ψw at all pairs, and the state that attains it up to
    rounding.
    """
    constraints = FactoredConstraints(basis, gamma)
    excess, maxima = constraints.excess(weights)
    a = int(np.argmax(excess))
    return -float(excess[a]) - constraints.rounding(weights), maxima.maximiser(a)


# -- the programs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FactoredSettings:
    """Constraints are "eliminated" (all, exactly) or "generated" until none is violated by more
    than `tol`.
    """

    constraints: str = ELIMINATED_CONSTRAINTS
    tol: float = 1e-6
    rounds: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if self.constraints not in WAYS_TO_CONSTRAIN_FACTORED:
            raise unknown("way to constraints", str(self.constraints), WAYS_TO_CONSTRAIN_FACTORED)
        require_positive(tol=self.tol)
        require_counts(rounds=self.rounds)
        require_seed(self.seed)


class FactoredKeywords(TypedDict, total=False):
    """The fields of `FactoredSettings`, as keywords of the programs."""

    constraints: str
    tol: float
    rounds: int
    seed: int


def factored_alp(
    model: FactoredModel,
    basis: LocalBasis | Basis,
    criterion: Discounted,
    *,
    relevance: Relevance | Policy | None = None,
    **settings: Unpack[FactoredKeywords],
) -> FactoredSolution:
    """Solve the discounted program; `settings` are the fields of `FactoredSettings`.

    `relevance` is c, by default uniform; a policy stands for its discounted occupancy.
    """
    started = time.monotonic()
    wanted = _settings(settings)
    functions = _checked(model, basis)
    require_discounted(criterion, "factored_alp", otherwise="factored_average_alp")
    moments = _moments(functions, relevance, criterion, wanted.seed)
    found = _Program(FactoredConstraints(functions, criterion.gamma), moments).solve(wanted)
    return _solution(functions, criterion, "factored alp", (found,), moments, wanted, started)


def factored_average_alp(
    model: FactoredModel,
    basis: LocalBasis | Basis,
    *,
    relevance: Relevance | Policy | None = None,
    slack: float = SECOND_LAMBDA_SLACK,
    level: float | None = None,
    **settings: Unpack[FactoredKeywords],
) -> FactoredSolution:
    """Solve both stages; λ of the second is `level`, or λ − slack·(1 + |λ|). `level` of the
    solution is λ of the first.

    `relevance` is c, by default uniform; a policy stands for its stationary law. `settings` are the
    fields of `FactoredSettings`.
    """
    started = time.monotonic()
    wanted = _settings(settings)
    functions = _checked(model, basis)
    require_nonnegative(slack=slack)
    if level is not None:
        require_numbers(level=level)
    means = _moments(functions, relevance, Average(), wanted.seed)
    moments = cleaned(
        means - functions(model.start[None, :])[0]
    )  # that of a constant is 0, also after rounding
    constraints = FactoredConstraints(functions, 1.0)
    first = _Program(constraints, np.zeros(len(functions)), level=True).solve(wanted)
    if level is None:
        at = first.level - slack * (1 + abs(first.level))
    else:
        at = float(level)
    second = _Program(constraints, moments, less=at).solve(wanted, first.pairs)
    if float(np.abs(second.weights).max()) > LARGEST_WEIGHT_BOUND:
        raise UnboundedError(NO_SECOND_STAGE_MESSAGE)
    return _solution(
        functions, Average(), "factored average alp", (first, second), moments, wanted, started
    )


def factored_average_bound(
    model: FactoredModel, basis: LocalBasis | Basis, **settings: Unpack[FactoredKeywords]
) -> FactoredSolution:
    """The first stage alone: the best lower bound on the optimal average cost from the span of the
    basis.
    """
    started = time.monotonic()
    wanted = _settings(settings)
    functions = _checked(model, basis)
    none = np.zeros(len(functions))
    first = _Program(FactoredConstraints(functions, 1.0), none, level=True).solve(wanted)
    return _solution(
        functions, Average(), "factored average bound", (first,), none, wanted, started
    )


Pairs = tuple[Ints, Ints]


@dataclass(frozen=True, eq=False)
class _Found:
    weights: Floats
    level: float
    value: float
    violation: float
    constraints: int
    unknowns: int
    width: int
    rounds: int = 1
    pairs: Pairs | None = None


@dataclass(frozen=True, eq=False)
class _Program:
    """Constraints and b of maximise bᵀw (+ λ), with losses less by κ."""

    constraints: FactoredConstraints
    objective: Floats
    level: bool = False
    less: float = 0.0

    @property
    def basis(self) -> LocalBasis:
        return self.constraints.basis

    @property
    def width(self) -> int:
        return len(self.basis) + self.level

    def solve(self, wanted: FactoredSettings, start: Pairs | None = None) -> _Found:
        if wanted.constraints == ELIMINATED_CONSTRAINTS:
            return self.eliminated()
        return self.generated(wanted, start)

    def _costs(self) -> Floats:
        if self.level:
            return np.append(self.objective, 1.0)
        return self.objective

    def _found(self, x: Floats, constraints: int, unknowns: int) -> _Found:
        weights, level = (x[:-1], float(x[-1])) if self.level else (x, 0.0)
        weights = np.where(self.constraints.seen, weights, 0.0)
        width = self.constraints.elimination.width
        return _Found(
            weights, level, float(self._costs() @ x), math.nan, constraints, unknowns, width
        )

    def _violation(self, found: _Found) -> tuple[Floats, Any]:
        excess, maxima = self.constraints.excess(found.weights)
        return excess + found.level + self.less, maxima

    def eliminated(self) -> _Found:
        """With the values of the elimination as unknowns."""
        entries = self.constraints.elimination.entries
        if entries > MOST_ELIMINATION_ROWS:
            raise InputError(
                f"the elimination has width {self.constraints.elimination.width} and makes a "
                f"program of {entries:.2g} rows, more than {MOST_ELIMINATION_ROWS:,}; take "
                "constraints='generated', or functions of smaller scope."
            )
        matrix, right = self.constraints.program(self.level, self.less)
        rows, columns = matrix.shape
        costs = np.append(-self._costs(), np.zeros(columns - self.width))
        free = np.full(columns, np.inf)
        found = minimise(costs, matrix, (np.full(rows, -np.inf), right), (-free, free))
        if not found.found and self.less != 0.0 and found.word == "Unbounded":
            raise UnboundedError(NO_SECOND_STAGE_MESSAGE)
        if not found.found:
            raise InputError(
                f"no weights keep all constraints of {self.basis.model.name!r}, or none are best "
                f"({found.word}); add the constant function to the basis (discounted criterion), "
                "or lower the level (average)."
            )
        made = self._found(found.x[: self.width], rows, columns)
        return replace(made, violation=float(self._violation(made)[0].max()))

    def generated(self, wanted: FactoredSettings, start: Pairs | None) -> _Found:
        """Within bounds on the weights, which are raised until they no longer matter.

        The optimum within |w| <= B is concave and does not fall in B: once it stays the same it
        stays so for good.
        """
        model = self.basis.model
        gamma = self.constraints.gamma
        loss = max(1.0, *map(abs, model.loss_bounds)) / (1 - gamma if gamma < 1 else 1.0)
        bound = FIRST_WEIGHT_BOUND * loss
        last = math.nan
        done = 0
        pairs = start or self._random(
            np.random.default_rng(wanted.seed), FIRST_RANDOM_STATES_A_FUNCTION * self.width
        )
        while True:
            found = self._within(bound, pairs, wanted.tol, wanted.rounds - done)
            done += found.rounds
            inside = float(np.abs(found.weights).max()) < 0.999 * bound
            if (
                inside
                or abs(found.value - last) <= UNCHANGED_OPTIMUM_SHARE * loss
                or found.violation > wanted.tol
                or bound > LARGEST_WEIGHT_BOUND
            ):
                return replace(found, rounds=done)
            last = found.value
            bound = 10 * bound
            pairs = found.pairs or pairs

    def _within(self, bound: float, pairs: Pairs, tol: float, rounds: int) -> _Found:
        """Each round adds the worst pair of every action where it is violated."""
        relaxed = Relaxed(self._costs(), *self._rows(pairs), bound, self.basis.names)
        there: set[tuple[bytes, int]] = set()
        for done in range(1, max(rounds, 1) + 1):
            found = self._found(relaxed.solve(), relaxed.size, self.width)
            violation, maxima = self._violation(found)
            found = replace(found, rounds=done, violation=float(violation.max()), pairs=pairs)
            worst = [(maxima.maximiser(a), a) for a in np.flatnonzero(violation > tol / 2).tolist()]
            new = [(x, a) for x, a in worst if (x.tobytes(), a) not in there]
            # none is new: the solver's rounding is all that is left
            if found.violation <= tol or not new:
                break
            there.update((x.tobytes(), a) for x, a in new)
            added = np.array([x for x, _ in new]), np.array([a for _, a in new])
            relaxed.add(*self._rows(added))
            pairs = np.vstack([pairs[0], added[0]]), np.append(pairs[1], added[1])
        return found

    def _random(self, rng: np.random.Generator, count: int) -> Pairs:
        model = self.basis.model
        return rng.integers(0, model.sizes, (count, len(model.sizes))), rng.integers(
            0, len(model.actions), count
        )

    def _rows(self, pairs: Pairs) -> tuple[Floats, Floats]:
        matrix, right = self.constraints.rows(*pairs)
        return np.hstack(
            [matrix, np.ones((len(matrix), 1))]
        ) if self.level else matrix, right - self.less


def _settings(given: FactoredKeywords) -> FactoredSettings:
    for key in given:
        if key not in FactoredSettings.__dataclass_fields__:
            raise unknown("setting", key, FactoredSettings.__dataclass_fields__)
    return FactoredSettings(**given)


def _checked(model: FactoredModel, basis: LocalBasis | Basis) -> LocalBasis:
    if not isinstance(model, FactoredModel):
        raise InputError(
            f"a factored program needs a FactoredModel, got {type(model).__name__}; others have "
            "`alp`."
        )
    if not isinstance(basis, (LocalBasis, Basis)):
        raise InputError(f"a basis is made by dualplan.primal, got {basis!r}.")
    require_made_for(model, basis.model, "basis")
    if isinstance(basis, Basis):
        return local_basis(model, basis)
    return basis


def _moments(
    basis: LocalBasis, given: Relevance | Policy | None, criterion: Criterion, seed: int
) -> Floats:
    """cᵀψ_k: exact for independent variables and for listed states."""
    law: Any = uniform(basis.model) if given is None else given
    if isinstance(law, Policy):
        law = occupancy(basis.model, law, criterion, seed=seed)
    if isinstance(law, Independent):
        return np.array([independent_mean(psi, law.laws) for psi in basis.functions])
    return np.asarray(law.moments(basis))


def _solution(
    basis: LocalBasis,
    criterion: Criterion,
    method: str,
    stages: tuple[_Found, ...],
    moments: Floats,
    wanted: FactoredSettings,
    started: float,
) -> FactoredSolution:
    """The last stage's weights make the policy, the first stage's the bound."""
    first = stages[0]
    last = stages[-1]
    violation = max(stage.violation for stage in stages)
    return FactoredSolution(
        basis,
        criterion,
        f"{method}, {wanted.constraints}",
        last.weights,
        last.value,
        Status.SOLVED if violation <= wanted.tol else Status.VIOLATED,
        max(stage.constraints for stage in stages),
        max(stage.unknowns for stage in stages),
        sum(stage.rounds for stage in stages),
        first.width,
        violation,
        moments,
        time.monotonic() - started,
        wanted.seed,
        first.level if len(stages) > 1 else None,
        first.weights if len(stages) > 1 else None,
    )
