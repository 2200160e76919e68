"""Lower bounds for networks without end: the linear program over all states, none of them listed.

    maximise λ    subject to    D(x,a) = ℓ(x,a) + Σ_y P(y|x,a) h(y) − h(x)  >=  λ    for all states
                  x and all actions a,

h = Ψw, in a network where at most one event happens in a step. Veatch (Computers & OR 63, 2015)
reduces the constraints to finitely many; with quadratic h the program is dual to those of
Bertsimas, Paschalidis & Tsitsiklis (1994) and Kumar & Kumar (1994). Here states are put into cells
(`values/cells.py`) on which D(·, a) is a polynomial: which queues are empty or full is the same all
over a cell, so the moves are, and h is a polynomial around it. All coefficients of D − λ in a basis
that is nowhere negative are asked to be >= 0. That is enough, and, if D is affine on the cells
(quadratic h, cuts at 0), needed.

*Servers apart.* D is a sum, D = ℓ + Σ_arrivals p Δ_v h + Σ_servers [p Δ_v h of the class served],
and so is each of its coefficients; the worst joint action for a coefficient is the worst choice of
each server. Constraints are generated: the program over some rows, all coefficients for its
solution, rows with negative ones added, until there are none.

*What is proved.* The last step takes the weights as they are and computes all coefficients again,
in integers but for the products with weights and probabilities, whose rounding errors are bounded
by ε·Σ|terms|. A row without λ, such as the slope along a ray, must be >= its rounding error; rows
with λ then give it. Rows without λ are given a margin in the program, so that this succeeds; where
it fails by little, h is shrunk: (1 − t)h has coefficients (1 − t)·(those of D) + t·(those of ℓ),
and ℓ grows along rays. Weights that fail all the same prove nothing, and h = 0 is taken.

*Which policies (average).* Let (x, a) have a stationary law under the policy, with finite cost. h_M
= max(−M, min(h, M)) is bounded, so E[Ph_M − h_M] = 0. |Ph_M − h_M| <= Σ_y P|h(y) − h(x)| <= C(1
+ |x|^q), with q the largest degree of a Δ_v h. If E|x|^q is finite, dominated convergence gives
E[Ph − h] = 0 as M grows, so that E ℓ = E D >= λ. For q <= 1 and holding costs c_i > 0 of all
unbounded queues it is finite because the cost is; for q <= 2 if they are quadratic; otherwise
`assumed` says that it was assumed; and so it does of the stationary law itself if an unbounded
queue costs nothing, since a policy may then let that queue grow for ever. If costs grow along all
rays, the long-run average of any policy, stationary or not, is no less than the cost of a
stationary law: the mean laws over 1, …, n are tight where the average is finite, and a limit of
them is stationary and costs no more.

*Discounted.* αᵀh is maximised subject to D(x,a) = ℓ + γPh − h >= 0. As |x_n| <= |x_0| + n and h is
bounded by a polynomial, γⁿ E h(x_n) vanishes under every policy, so nothing is assumed. Decisions
per server are the same process seen at other times; their bound is that of joint decisions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import numpy as np
import scipy.sparse as sp

from dualplan.core.checks import require_counts, require_positive, require_seed
from dualplan.core.errors import InputError
from dualplan.core.lp import minimise
from dualplan.core.status import PROVED, Status
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.lower_bounds import LowerBound
from dualplan.models.contract import Model
from dualplan.models.criteria import Average, Criterion, Discounted, require_criterion
from dualplan.models.queueing import QueueingNetwork
from dualplan.primal.drift import Coefficients, Drift
from dualplan.primal.program import Relaxed, to_add
from dualplan.primal.settings import check
from dualplan.primal.solution import PrimalSolution
from dualplan.values.basis import Basis
from dualplan.values.cells import Cuts

ROW_MARGIN_SHARE = 1e-7  # of the largest entry of a row without λ and without losses
# of the largest entry of other rows without λ, which shrinking repairs
SMALL_ROW_MARGIN_SHARE = 1e-10
FIRST_ROWS_A_FUNCTION = 10  # rows to start from, for each function
# functions up to which the simplex method is faster (140: 7 s against 20 s; 224: over 100 s against
# 70 s)
MOST_SIMPLEX_FUNCTIONS = 180
MOST_PROOF_WEIGHTS = 6  # weights that are tried, the last of them 0
# rounding errors that rows without λ keep clear of while searching; the proof asks for one
SAFE_ROUNDING_ERRORS = 2.0
MOST_MARGIN_RAISES = 3  # how often the margin of a row is raised, tenfold each time
# bound on weights unless told otherwise: few rows do not bound the program
DEFAULT_WEIGHT_BOUND = 1e7


@dataclass(frozen=True, eq=False)
class OrthantSolution(PrimalSolution):
    """As of any program on values; its lower bound was proved on cells."""

    cells: int = 0
    proved: LowerBound = field(default_factory=lambda: LowerBound(-np.inf, PROVED, "average", ()))

    @property
    def lower_bound(self) -> LowerBound:
        """The bound that was proved, at all states, rounding included."""
        return self.proved


def orthant_bound(
    model: Model,
    basis: Basis,
    criterion: Criterion | None = None,
    *,
    cells: Cuts = None,
    tol: float = 1e-6,
    rounds: int = 200,
    weight_bound: float = DEFAULT_WEIGHT_BOUND,
    seed: int = 0,
) -> OrthantSolution:
    """The best lower bound on the optimal cost that the span of a basis proves on cells, for a
    network of any size.

    `cells` is a number K, which cuts each queue's range into 0, …, K − 1 and the rest; or for each
    queue such a number or a list of cuts; by default the fewest cuts that the functions allow. The
    program is solved to within `tol`, relative to 1 + the bound, in `rounds` rounds at most;
    stopped early, the bound is lower, but proved.
    """
    started = time.monotonic()
    criterion = require_criterion(criterion)
    network = _network(model, basis, criterion)
    require_seed(seed)
    require_positive(tol=tol, weight_bound=weight_bound)
    require_counts(rounds=rounds)
    drift = Drift(network, basis, criterion.gamma, cells)
    search = _Search(drift, network, criterion, weight_bound, seed)
    search.run(tol, rounds)
    proved = search.proved()
    seconds = time.monotonic() - started
    return OrthantSolution(
        basis,
        criterion,
        "orthant bound",
        proved.weights,
        proved.bound.value,
        search.status,
        search.constraints,
        search.rounds,
        seconds,
        seed,
        proved.bound.value if isinstance(criterion, Average) else None,
        cells=drift.cells.count,
        proved=replace(proved.bound, seconds=seconds),
    )


def has_cells(model: Model) -> TypeGuard[QueueingNetwork]:
    """Whether the drift is known to be the same all over a cell."""
    return (
        isinstance(model, QueueingNetwork)
        and model.options["dynamics"] == "uniformized"
        and not model.nonpreemptive
    )


def _network(model: Model, basis: Basis, criterion: Criterion) -> QueueingNetwork:
    """The model, if cells and these functions go together."""
    check(model, basis)
    if not has_cells(model):
        raise InputError(
            f"cells are for preemptive networks with one event a step, which {model.name!r} is "
            "not; use average_bound or lower_bound."
        )
    if basis.user:
        raise InputError(
            f"nothing is known of the function {basis.user[0].names[0]!r} on cells; use products "
            "of pieces."
        )
    basis.require_single_coordinates("cells")
    if any(p.coordinate >= len(model.classes) for p in basis.pieces):
        raise InputError(
            "functions of the pending event are not for cells; give coordinates=range(number of "
            "classes)."
        )
    if isinstance(criterion, Discounted) and model.per_server:
        raise InputError("discounted bounds on cells are for decisions='joint'.")
    return model


class _Search:
    """Constraint generation, and the best weights met."""

    def __init__(
        self,
        drift: Drift,
        network: QueueingNetwork,
        criterion: Criterion,
        weight_bound: float,
        seed: int,
    ) -> None:
        self.drift = drift
        self.network = network
        self.criterion = criterion
        self.average = isinstance(criterion, Average)
        self.width = len(drift.basis)
        self.rng = np.random.default_rng(seed)
        self.tries: dict[tuple[int, ...], int] = {}
        self.status = Status.VIOLATED
        self.rounds = 0
        self.best = np.zeros(self.width)
        self.value = -np.inf
        self.starts = network.start[None, :]
        self.alpha = np.ones(1)
        if isinstance(criterion, Discounted):
            self.starts, self.alpha = criterion.start_distribution(network)
        self.moments = self.alpha @ drift.basis(self.starts)
        self.weight_bound = weight_bound
        self.kept = np.array(
            [float(len(product) > 0 or not self.average) for product in drift.basis.products]
        )
        numbers = self.rng.choice(
            drift.size, min(drift.size, FIRST_ROWS_A_FUNCTION * self.width), replace=False
        )
        nothing = drift.evaluate(self.best)
        self._keep(self.best, nothing)
        self.rows = (numbers, nothing.choices[numbers])
        self.program = self._program()

    def _program(self) -> Relaxed:
        """The program over the rows so far."""
        self.tries.clear()
        if self.average:
            costs = np.append(np.zeros(self.width), 1.0)
        else:
            costs = self.kept * self.moments
        return Relaxed(
            costs, *self._constraints(*self.rows), self.weight_bound, self.drift.basis.names
        )

    @property
    def constraints(self) -> int:
        """The number of rows of the last program."""
        return self.program.size

    def run(self, tol: float, rounds: int) -> None:
        """Until no row is violated, or the rounds are over."""
        for done in range(1, rounds + 1):
            weights, level = self._solved()
            found = self.drift.evaluate(weights)
            self._keep(weights, found)
            if self.average:
                value = level
            else:
                value = float(self.moments @ weights)
            self.rounds = done
            if self.value >= value - tol * (1 + abs(value)):
                self.status = Status.SOLVED
                return
            numbers = self._violated(found, level, tol)
            if not numbers.size:
                return
            added = numbers, found.choices[numbers]
            self.rows = (np.append(self.rows[0], added[0]), np.vstack([self.rows[1], added[1]]))
            self.program.add(*self._constraints(*added))

    def _solved(self) -> tuple[Floats, float]:
        """The weights and λ of the program.

        Of one without interior, once functions were left out.
        """
        for _ in range(self.width + 1):
            try:
                found = self.program.solve(warm=self.width <= MOST_SIMPLEX_FUNCTIONS)
            except InputError as error:
                self._leave_out(error)
                self.program = self._program()
            else:
                if self.average:
                    return (self.kept * found[:-1], float(found[-1]))
                return (self.kept * found, 0.0)
        raise AssertionError("unreachable: each time a function is left out")

    def _leave_out(self, error: InputError) -> None:
        """Leave out the functions of rows that cannot be positive.

        Rows without λ and without losses say that a combination of weights is >= 0. Some may force
        each other to be 0, as the signs of cubes under opposite choices do, which no margin allows
        and no rounding proves. s_j below is 0 for these and can be 1 for all others at once.
        """
        matrix, right = self._constraints(*self.rows)
        rows = sp.csr_array(matrix[right < 0, : self.width])
        count = rows.shape[0]
        if not count:
            raise error
        wide = sp.hstack([rows, sp.eye_array(count)])
        none = np.full(count, -np.inf)
        limits = np.append(np.full(self.width, self.weight_bound), np.ones(count))
        costs = -np.append(np.zeros(self.width), np.ones(count))
        low = np.append(-limits[: self.width], np.zeros(count))
        found = minimise(costs, wide, (none, np.zeros(count)), (low, limits), feasible=True)
        if found.found:
            forced = found.x[self.width :] < 0.5
        else:
            forced = np.ones(count, bool)
        if not forced.any():
            raise error
        self.kept[abs(rows[forced]).sum(axis=0) > 0] = 0.0

    def _violated(self, found: Coefficients, level: float, tol: float) -> Ints:
        """Rows to add: those with λ by how much they miss it, the others by how much of their terms
        they are short.
        """
        free = found.ones == 0
        needed = SAFE_ROUNDING_ERRORS * found.errors
        terms = np.abs(found.values) + found.losses + needed
        short = (needed - found.values) / np.where(terms > 0, terms, 1.0) * (1 + abs(level))
        allowed = 0.1 * tol * (1.0 if self.average else 1 - self.drift.gamma)
        missed = level - found.values / np.where(free, 1.0, found.ones) - allowed
        return to_add(np.where(free, short, missed), 0.0, self.width, self.rng)

    def _constraints(self, numbers: Ints, choices: Ints) -> tuple[Floats, Floats]:
        """Constraints with λ divided by its coefficient, others by their largest entry and with a
        margin.
        """
        matrix, ones, right = self.drift.constraints(numbers, choices)
        matrix *= self.kept
        free = ones == 0
        largest = np.maximum(np.abs(matrix).max(axis=1), np.abs(right))
        scales = np.where(free, np.where(largest > 0, largest, 1.0), ones)
        matrix = matrix / scales[:, None]
        right = right / scales
        for k in np.flatnonzero(free):
            key = (int(numbers[k]), *choices[k].tolist())
            self.tries[key] = self.tries.get(key, 0) + 1
            if right[k] == 0 and largest[k] > 0:
                margin = ROW_MARGIN_SHARE
            else:
                margin = SMALL_ROW_MARGIN_SHARE * right[k]
            right[k] -= margin * 10.0 ** min(self.tries[key] - 1, MOST_MARGIN_RAISES)
        return (np.hstack([matrix, (ones / scales)[:, None]]) if self.average else matrix), right

    def _keep(self, weights: Floats, found: Coefficients) -> None:
        """Keep the weights, shrunk until no row without λ is negative, if they seem to prove more
        than others.
        """
        share = _shrunk(found)
        if share > 0:
            value = _level(
                replace(found, values=found.losses + share * (found.values - found.losses))
            )
            if self.average:
                value = value
            else:
                value = float(share * self.moments @ weights) + value / (1 - self.drift.gamma)
            if value > self.value:
                self.best = share * weights
                self.value = value

    def proved(self) -> Proved:
        """What the best weights prove; if they prove nothing, what h = 0 does."""
        weights = self.best
        for k in range(MOST_PROOF_WEIGHTS):
            bound = certify(self.drift, self.network, self.criterion, weights)
            if bound is not None:
                return Proved(weights, bound)
            self.status = Status.VIOLATED
            if k < MOST_PROOF_WEIGHTS - 2:
                weights = self.best * (1 - 1e-9 * 10.0**k)
            else:
                weights = np.zeros(self.width)
        raise AssertionError("unreachable: losses are never negative")


@dataclass(frozen=True, eq=False)
class Proved:
    """Weights and the bound that they prove."""

    weights: Floats
    bound: LowerBound


def _shrunk(found: Coefficients) -> float:
    """The largest share s <= 1 such that s·h leaves no row without λ near its rounding error.

    0 if there is none.
    """
    needed = SAFE_ROUNDING_ERRORS * found.errors
    bad = (found.ones == 0) & (found.values < needed)
    if not bad.any():
        return 1.0
    room = (found.losses - needed)[bad]
    fall = (found.losses - found.values)[bad]
    if (room > 0).all():
        return float((room / fall).min())
    return 0.0


def _level(found: Coefficients) -> float:
    rows = found.ones > 0
    return float(((found.values - found.errors)[rows] / found.ones[rows]).min())


def certify(
    drift: Drift, network: QueueingNetwork, criterion: Criterion, weights: Floats
) -> LowerBound | None:
    """The bound that weights prove, or None."""
    found = drift.evaluate(weights)
    if (
        not np.isfinite(found.values).all()
        or ((found.ones == 0) & (found.values < found.errors)).any()
    ):
        return None
    level = np.where(
        found.ones > 0,
        (found.values - found.errors) / np.where(found.ones > 0, found.ones, 1.0),
        np.inf,
    )
    worst = drift.cells.states(drift.cells.rows[[int(level.argmin())]])[0]
    value = float(level.min())
    words = "average"
    assumed = ""
    if isinstance(criterion, Discounted):
        starts, alpha = criterion.start_distribution(network)
        terms = alpha @ np.abs(drift.basis(starts)) @ np.abs(weights)
        value = float(
            alpha @ drift.basis(starts) @ weights
            + value / (1 - criterion.gamma)
            - len(weights) * 2.0**-50 * terms
        )
        words = f"discounted, gamma {criterion.gamma:g}"
    else:
        assumed = _assumed(network, drift.growth(weights))
    return LowerBound(value, PROVED, words, tuple(worst.tolist()), assumed=assumed)


def _assumed(network: QueueingNetwork, growth: int) -> str:
    """What must be finite under a policy, beside its cost, for the bound to hold for it."""
    unbounded = [c for c in network.classes if c.buffer is None]
    powers = [2 if c.quadratic > 0 else 1 if max(c.holding, c.excess) > 0 else 0 for c in unbounded]
    free = [c.name for c, power in zip(unbounded, powers, strict=True) if power == 0]
    if free:
        law = f"a stationary law (queue {free[0]} costs nothing and may grow for ever)"
    else:
        law = ""
    if growth > min(powers, default=growth):
        mean = f"a finite mean of |x|^{growth}"
    else:
        mean = ""
    if law or mean:
        return f"policies with {' and '.join(filter(None, (law, mean)))}"
    return ""
