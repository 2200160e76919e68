"""Side constraints on models whose linear program is too large to be solved whole (Dantzig & Wolfe
1960).

The occupancies are the convex hull of those of deterministic policies. A *master* program mixes the
policies found so far, min Σ θ_k ℓᵀu_k subject to the limits on Σ θ_k u_k; its multipliers w price
the limits, and value iteration finds the best policy for ℓ_w = ℓ + Σ w_i·(n_i − b_i·d_i), which
enters the mixture. Its certified lower bound is one for the limited problem as well, whatever w
>= 0 is, and the mixture is an upper bound: when they meet, it is done. If no mixture keeps the
limits yet, the master minimises the sum of the excesses, each of them scaled to size 1, instead of
the cost; a positive lower bound on that proves that nothing can.

Occupancies of policies do not depend on limits: the columns that one program has found serve the
next one on the same pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dualplan.core.budgets import Clock
from dualplan.core.errors import InputError, MissingError
from dualplan.core.lp import minimise
from dualplan.core.types import Floats, Ints
from dualplan.exact.iteration import Search, value_iteration
from dualplan.exact.operators import Pairs, Sweep
from dualplan.exact.policy import evaluate_exact
from dualplan.models.criteria import Average, Criterion
from dualplan.policies.tables import TablePolicy

if TYPE_CHECKING:
    from dualplan.exact.programs import Program

# the occupancy, the values, the multipliers of the limits, and the certified lower bound
Answer = tuple[Floats, Floats, Floats, float]
MOST_POLICIES = 200
MOST_SWEEPS = 100_000


class PairSweeper:
    """L over a table of pairs with losses of its own: what `value_iteration` asks of a
    `Sweeper`.
    """

    def __init__(self, pairs: Pairs, losses: Floats) -> None:
        self.pairs = pairs
        self.losses = losses
        self.model = pairs.model
        self.states = pairs.matrix.shape[1]
        self.laziness = 0.0
        self._first = np.flatnonzero(np.diff(pairs.states, prepend=-1))

    def graphs(self, values: Floats) -> tuple[Any, Any, Floats]:
        """As `Sweeper.graphs`."""
        best = np.zeros(self.states, np.int64)
        out = np.empty(self.states)
        difference = self.optimal(values, 1.0, best=best, out=out).values - values
        count = self.losses.size
        pairs = self.pairs
        chosen = best[pairs.states] == pairs.actions
        every = sp.csr_array(
            (np.ones(count), (pairs.states, np.arange(count))), shape=(self.states, count)
        )
        return every @ pairs.matrix, sp.csr_array(pairs.matrix[chosen]), difference

    def optimal(
        self,
        values: Floats,
        gamma: float,
        *,
        damping: float = 1.0,
        best: Ints | None = None,
        out: Floats,
    ) -> Sweep:
        """As `Sweeper.optimal`."""
        q = self.losses + gamma * (self.pairs.matrix @ values)
        difference = np.minimum.reduceat(q, self._first) - values
        if best is not None:
            order = np.lexsort((q, self.pairs.states))
            best[:] = self.pairs.actions[order[self._first]]
        np.add(values, damping * difference, out=out)
        return Sweep(out, float(difference.min()), float(difference.max()))


@dataclass(frozen=True, eq=False)
class Priced:
    """The best policy for one set of prices: its actions and occupancy, the values, and the
    certified lower bound.
    """

    actions: Ints
    occupancy: Floats
    values: Floats
    lower: float


def decompose(
    program: Program,
    criterion: Criterion | None,
    tol: float,
    clock: Clock,
    columns: list[Priced] | None = None,
) -> Answer | None:
    """By mixing policies; None if no policy keeps the limits.

    It begins with the `columns`, and appends those that it finds. When the time is over, the
    mixture is the best so far.
    """
    losses = program.losses
    rows = np.reshape(program.rows, (len(program.limits), losses.size))
    found = [] if columns is None else columns
    prices = np.zeros(len(rows))
    feasible = True
    if found:
        _, prices, feasible = _mixed(found, losses, rows)
    best = (-np.inf, np.zeros(0), prices)  # lower bound, values, multipliers
    for _ in range(MOST_POLICIES):
        if feasible:
            goal = losses
        else:
            goal = np.zeros_like(losses)
        if found:
            start = found[-1].values
        else:
            start = None
        priced = best_response(
            program.pairs, goal + prices @ rows, criterion, tol / 10, start, clock
        )
        found.append(priced)
        if feasible and priced.lower > best[0]:
            best = priced.lower, priced.values, prices
        elif not feasible and priced.lower > 1e-9:
            return None
        mixture, prices, feasible = _mixed(found, losses, rows)
        u = sum(t * p.occupancy for t, p in zip(mixture, found, strict=True) if t > 0)
        upper = float(losses @ u)
        if feasible and (upper - best[0] <= tol or clock.left <= 0):
            return np.asarray(u), best[1], best[2], best[0]
        if clock.left <= 0:
            raise MissingError(
                "the time was over before a policy was found that keeps the limits; allow more."
            )
    raise MissingError(
        f"{MOST_POLICIES} policies were not enough to keep the limits within tol={tol:g}; raise it."
    )


def _mixed(found: Sequence[Priced], losses: Floats, rows: Floats) -> tuple[Floats, Floats, bool]:
    """What the master program says of the policies so far."""
    costs = np.array([losses @ p.occupancy for p in found])
    excess = np.array([rows @ p.occupancy for p in found]).T
    return _master(costs, excess)


def best_response(
    pairs: Pairs,
    losses: Floats,
    criterion: Criterion | None,
    tol: float,
    start: Floats | None = None,
    clock: Clock | None = None,
) -> Priced:
    """The best policy for losses on the pairs."""
    sweeper = PairSweeper(pairs, losses)
    search = Search(sweeper, criterion or Average(), tol, MOST_SWEEPS, None)
    if clock is not None:
        search.clock = clock
    before, after = value_iteration(search, start=start)
    best = np.zeros(sweeper.states, np.int64)
    sweeper.optimal(before.copy(), search.gamma, best=best, out=np.empty(sweeper.states))
    occupancy = occupancy_of(pairs, best, criterion)
    return Priced(best, occupancy, after.copy(), search.lower)


def occupancy_of(pairs: Pairs, actions: Ints, criterion: Criterion | None) -> Floats:
    """The occupancy of a policy with one action for each state."""
    evaluation = evaluate_exact(pairs.model, TablePolicy(pairs.model, actions), criterion)
    mu = np.zeros(pairs.matrix.shape[1])
    mu[evaluation.reached] = evaluation.occupancy
    return np.where(actions[pairs.states] == pairs.actions, mu[pairs.states], 0.0)


def _master(costs: Floats, excess: Floats) -> tuple[Floats, Floats, bool]:
    """The best mixture, the prices of the limits, and whether it keeps them."""
    count = costs.size
    limits = excess.shape[0]
    once = np.append(np.ones(count), np.zeros(limits))
    matrix = np.vstack([once, np.hstack([excess, -np.eye(limits)])])
    rows = np.append(1.0, np.full(limits, -np.inf)), np.append(1.0, np.zeros(limits))
    # first with excess at no price but forbidden, then with the excess as the goal
    for goal, most in ((np.append(costs, np.zeros(limits)), 0.0), (1 - once, np.inf)):
        columns = np.zeros(count + limits), np.append(np.full(count, np.inf), np.full(limits, most))
        answer = minimise(goal, matrix, rows, columns)
        if answer.found:
            return answer.x[:count], np.maximum(-answer.y[1:], 0.0), most == 0.0
    raise InputError(
        f"HiGHS stopped without a mixture ({answer.word}); try limits of another scale."
    )
