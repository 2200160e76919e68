"""The approximate linear program with constraints over several steps (Petrik & Zilberstein 2009),
where states are few.

    maximise  cᵀΨw     subject to     Ψw  <=  T_{μ1} T_{μ2} … T_{μt} Ψw    for all rules μ1, …, μt ,

with (T_μ v)(x) = ℓ(x,μ(x)) + γ Σ_y P(y|x,μ(x)) v(y); in one line Ψw <= TᵗΨw. A constraint of one
step lets a state hold down the values by leading back to states that the functions cannot tell from
it; over t steps such loops count γᵗ.

*Assumptions and guarantee.* T is monotone, so constraints of one step imply those of t: the program
is larger than that of one step, and the values still never exceed J*, as v <= Tᵗv <= T²ᵗv <= … The
proof for one step (de Farias & Van Roy 2003, theorem 2) needs only a contraction, and Tᵗ is one by
γᵗ: with a constant function among Ψ

    ‖J* − Ψw‖_{1,c}  <=  2/(1−γᵗ) · min_r ‖J* − Ψr‖_∞ .

Rules may look at the state they meet (closed loop). Fixed sequences of actions, the same whatever
happens on the way, are fewer constraints, but where moves are random they can admit values above J*
even with all functions, and are not here. Nor is the choice of single constraints to expand by
their multipliers, which serves where not all can be.

*How.* There are far too many rules to list. t sweeps give TᵗΨw at all states and rules that attain
it; constraints of states where Ψw is above are added, from the rows of

    Ψ − γᵗ P_{μ1}…P_{μt} Ψ   and      ℓ_{μ1} + γ P_{μ1} ℓ_{μ2} + … + γᵗ⁻¹ P_{μ1}…P_{μ(t−1)} ℓ_{μt} ,

and the program is solved again, until max_x (Ψw − TᵗΨw) is within the tolerance. So t is any
number, but the model must have few enough states for a sparse matrix of its moves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import scipy.sparse as sp

from dualplan.core.checks import require_counts
from dualplan.core.errors import InputError, MissingError
from dualplan.core.status import Status
from dualplan.core.types import Floats, Ints
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.models.criteria import Discounted, require_discounted
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.policies.contract import Policy
from dualplan.primal.program import MOST_LISTED_ENTRIES, Relaxed, UnboundedError, to_add
from dualplan.primal.relevance import Relevance
from dualplan.primal.settings import (
    GENERATED_CONSTRAINTS,
    Settings,
    SettingsKeywords,
    check,
    relevant,
)
from dualplan.primal.solution import PrimalSolution
from dualplan.values.basis import Basis

# random rules to start from, and states for each function, four times as many while unbounded
RANDOM_START_RULES = 3
FIRST_STATES_A_FUNCTION = 2


def expanded_alp(
    model: Model,
    basis: Basis,
    criterion: Discounted,
    *,
    steps: int = 2,
    relevance: Relevance | Policy | None = None,
    **settings: Unpack[SettingsKeywords],
) -> PrimalSolution:
    """Solve the program with constraints over `steps` steps; `settings` are the fields of
    `Settings`.

    `relevance` is c, by default geometric with ratio 0.9; a policy stands for its discounted
    occupancy. Constraints are generated; `violation` of the solution is the largest of Ψw − TᵗΨw.
    """
    started = time.monotonic()
    wanted = Settings.of(settings)
    check(model, basis)
    require_discounted(criterion, "expanded_alp")
    require_counts(steps=steps)
    if wanted.constraints not in (None, GENERATED_CONSTRAINTS) or wanted.sample is not None:
        raise InputError(
            "constraints over several steps are generated; leave constraints= and sample= out."
        )
    count = model.box.count
    if count is None or count * max(len(basis), model.code.max_outcomes) > MOST_LISTED_ENTRIES:
        raise MissingError(
            f"model {model.name!r} has too many states for constraints over several steps; use alp."
        )
    moments = relevant(model, relevance, criterion, wanted.seed).moments(basis)
    ahead = _Ahead(model, basis(model.box.states(np.arange(count))), criterion.gamma, steps)
    w, status, size, rounds, violation = _solve(ahead, moments, basis.names, wanted)
    return PrimalSolution(
        basis,
        criterion,
        f"expanded alp, {steps} steps",
        w,
        float(moments @ w),
        status,
        size,
        rounds,
        time.monotonic() - started,
        wanted.seed,
        violation=violation,
    )


@dataclass(frozen=True, eq=False)
class _Ahead:
    """Rules over t steps: the best for given values, and the constraints of given ones."""

    model: Model
    psi: Floats
    gamma: float
    steps: int

    def best(self, sweeper: Sweeper, w: Floats) -> tuple[Floats, list[Ints]]:
        """TᵗΨw at all states, and rules that attain it, the first step first."""
        values = self.psi @ w
        rules: list[Ints] = []
        for _ in range(self.steps):
            rule = np.zeros(values.size, np.int64)
            values = sweeper.optimal(values, self.gamma, best=rule).values
            rules.insert(0, rule)
        return values, rules

    def rows(self, rules: list[Ints], numbers: Ints) -> tuple[Floats, Floats]:
        """The constraints of given states."""
        after = self.psi
        losses = np.zeros(len(self.psi))
        for rule in reversed(rules):
            moves, now = self._moves(rule)
            after = self.gamma * (moves @ after)
            losses = now + self.gamma * (moves @ losses)
        return self.psi[numbers] - after[numbers], losses[numbers]

    def random(self, rng: np.random.Generator) -> list[Ints]:
        """One allowed action for each state, at random, in all steps."""
        rows, actions = allowed_rows(self.model, self.model.box.states(np.arange(len(self.psi))))
        order = rng.permutation(rows.size)
        rule = np.zeros(len(self.psi), np.int64)
        rule[rows[order]] = actions[order]
        return [rule] * self.steps

    def _moves(self, rule: Ints) -> tuple[sp.csr_array, Floats]:
        """P_μ and ℓ_μ."""
        box = self.model.box
        count = rule.size
        law = transitions(self.model, box.states(np.arange(count)), rule)
        places = (law.states - box.lower) @ box.strides
        return sp.csr_array((law.probabilities, (law.pairs, places)), (count, count)), law.losses


def _solve(
    ahead: _Ahead, moments: Floats, names: tuple[str, ...], wanted: Settings
) -> tuple[Floats, Status, int, int, float]:
    """Weights, how it ended, constraints, rounds and the largest violation."""
    sweeper = Sweeper(ahead.model, wanted.threads)
    rng = np.random.default_rng(wanted.seed)
    relaxed, w = _first(ahead, moments, names, wanted, rng)
    for done in range(1, wanted.rounds + 1):
        values, rules = ahead.best(sweeper, w)
        excess = ahead.psi @ w - values
        violation = float(excess.max())
        numbers = to_add(excess, wanted.tol / 2, moments.size, rng)
        if violation <= wanted.tol or done == wanted.rounds:
            break
        relaxed.add(*ahead.rows(rules, numbers))
        last = w
        w = relaxed.solve()
        if np.array_equal(last, w):  # rounding in the solver
            break
    return (
        w,
        Status.SOLVED if violation <= wanted.tol else Status.VIOLATED,
        relaxed.size,
        done,
        violation,
    )


def _first(
    ahead: _Ahead,
    moments: Floats,
    names: tuple[str, ...],
    wanted: Settings,
    rng: np.random.Generator,
) -> tuple[Relaxed, Floats]:
    """The program over random rules at random states, as many as it takes to bound it.

    One rule at all states does.
    """
    count = len(ahead.psi)
    taken = min(FIRST_STATES_A_FUNCTION * moments.size, count)
    while True:
        numbers = rng.choice(count, taken, replace=False)
        rules = [ahead.random(rng) for _ in range(RANDOM_START_RULES)]
        rows = [ahead.rows(rule, numbers) for rule in rules]
        relaxed = Relaxed(
            moments,
            np.vstack([a for a, _ in rows]),
            np.concatenate([r for _, r in rows]),
            wanted.weight_bound,
            names,
        )
        try:
            return relaxed, relaxed.solve()
        except UnboundedError:
            if taken == count:
                raise
            taken = min(4 * taken, count)
