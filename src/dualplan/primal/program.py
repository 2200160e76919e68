"""The linear programs on values: few unknowns, one constraint for each pair of a state and an
action.

    maximise    bᵀw + λ      subject to      Ψw(x) + λ  <=  ℓ(x,a) − κ + γ Σ_y P(y|x,a) Ψw(y)

for the pairs (x, a) that are listed; λ is there or not, κ is a number (usually 0). In matrices A w
+ λ1 <= ℓ − κ with A = BΨ − γPΨ, a row for each pair. As there are far more pairs than functions it
is passed to HiGHS as its dual,

    minimise    (ℓ − κ)ᵀu    subject to      Aᵀu = b,  1ᵀu = 1 (with λ),  u >= 0,

with as many rows as functions; w are the multipliers of the rows. Columns of A are divided by their
largest entry.

*Constraint generation* solves the program on some pairs, sweeps all states for the violation

    v(x) = Ψw(x) + λ + κ − min_a [ ℓ(x,a) + γ P Ψw ],

adds the minimising pairs of states where it is positive, and repeats until max v is within the
tolerance; the simplex method goes on from its last basis. The value is then at least the optimum of
the whole program, and values less max v/(1−γ), or λ less max v, are feasible everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from dualplan.core.deadlines import require_time
from dualplan.core.errors import InputError, MissingError
from dualplan.core.lp import Growing, Optimum, minimise
from dualplan.core.status import Status
from dualplan.core.streams import FIXED_SEED
from dualplan.core.types import Floats, Ints
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.models.transitions import allowed_pairs, allowed_rows, transitions
from dualplan.values.basis import Basis, LinearValues
from dualplan.values.functions import everywhere

ROW_NUMBERS_AT_ONCE = 2**22  # numbers of rows under way held at once
MOST_LISTED_ENTRIES = 2**26  # entries of A up to which all pairs are listed
# random states to start from, for each function, and how often these are doubled
FIRST_RANDOM_STATES_A_FUNCTION = 2
MOST_START_DOUBLINGS = 10
# listed constraints for each function, beyond which they are taken in parts
MOST_DIRECT_ROWS_A_FUNCTION = 10
MOST_ADDED_ROWS_A_FUNCTION = 4  # violated constraints that a round adds at most, for each function
ROUNDED_ZERO_SHARE = 1e-13  # of the largest number of its kind: zero, up to rounding
# of the largest right-hand side: what the solver's tolerance leaves is no contradiction
SOLVER_MARGIN_SHARE = 1e-9


Pairs = tuple[Ints, Ints]  # states, one a row, and actions


@dataclass(frozen=True, eq=False)
class Found:
    """Weights, λ, the optimum, and how they came about.

    `violation` is over all states, or None if not looked at.
    """

    weights: Floats
    level: float
    value: float
    status: Status
    constraints: int
    rounds: int
    violation: float | None
    pairs: Pairs | None = None


@dataclass(frozen=True, eq=False)
class Program:
    """b, γ, κ and whether λ is an unknown; rows are made for the pairs that are asked for."""

    basis: Basis
    gamma: float
    objective: Floats
    level: bool = False
    less: float = 0.0
    weight_bound: float | None = None

    @property
    def model(self) -> Model:
        """The model of the basis."""
        return self.basis.model

    @property
    def width(self) -> int:
        """The number of unknowns."""
        return len(self.basis) + self.level

    def rows(self, states: Ints, actions: Ints) -> tuple[Floats, Floats]:
        """A (with a column of ones for λ) and the right-hand side, for given pairs."""
        size = max(1, ROW_NUMBERS_AT_ONCE // (self.model.code.max_outcomes * self.width))
        matrix = np.ones((actions.size, self.width))
        right = np.empty(actions.size)
        for first in range(0, actions.size, size):
            require_time()
            piece = slice(first, min(first + size, actions.size))
            law = transitions(self.model, states[piece], actions[piece])
            ahead = law.mean(self.basis(law.states))
            matrix[piece, : len(self.basis)] = self.basis(states[piece]) - self.gamma * ahead
            right[piece] = law.losses - self.less
        return matrix, right

    # -- three ways to the constraints -------------------------------------------------------------

    def over(self, pairs: Pairs) -> Found:
        """Over given pairs."""
        return replace(
            self._solved(*self.rows(*pairs)), status=Status.SAMPLED, rounds=1, pairs=pairs
        )

    def over_all(self, tol: float) -> Found:
        """Over all pairs of an enumerable model, listed."""
        model = self.model
        count = Sweeper(self.model).states
        if count * len(model.actions) * self.width > MOST_LISTED_ENTRIES:
            raise MissingError(
                f"model {model.name!r} has too many pairs for {self.width} functions at once; take "
                "constraints='generated', or draw them."
            )
        matrix, right = self.rows(*allowed_pairs(model, model.box.states(np.arange(count))))
        found = self._solved(matrix, right)
        if self.level:
            unknowns = np.append(found.weights, found.level)
        else:
            unknowns = found.weights
        violation = float((matrix @ unknowns - right).max())
        if violation <= tol:
            status = Status.SOLVED
        else:
            status = Status.VIOLATED
        return replace(found, status=status, rounds=1, violation=violation)

    def generated(
        self,
        tol: float,
        rounds: int,
        seed: int = 0,
        start: Pairs | None = None,
        threads: int | None = None,
    ) -> Found:
        """Over the constraints that matter, found by sweeps over all states."""
        sweeper = Sweeper(self.model, threads)
        rng = np.random.default_rng(seed)
        relaxed, found = self._first(sweeper, rng, start)
        for done in range(1, rounds + 1):
            violation, added = self._violated(sweeper, found, rng, tol)
            if violation <= tol:
                status = Status.SOLVED
            else:
                status = Status.VIOLATED
            found = replace(found, status=status, rounds=done, violation=violation)
            # none is new: rounding in the solver
            if status is Status.SOLVED or done == rounds or not added[1].size:
                break
            relaxed.add(*self.rows(*added))
            found = replace(
                self._found(relaxed.solve(), relaxed.size), pairs=_joined(found.pairs, added)
            )
        return found

    def _first(
        self, sweeper: Sweeper, rng: np.random.Generator, start: Pairs | None
    ) -> tuple[Relaxed, Found]:
        """The program over given pairs, or over random states, as many as it takes to bound it."""
        for k in range(MOST_START_DOUBLINGS + 1):
            count = min(FIRST_RANDOM_STATES_A_FUNCTION * self.width * 2**k, sweeper.states)
            if start is not None and k == 0:
                pairs = start
            else:
                pairs = self._random_pairs(sweeper, rng, count)
            relaxed = Relaxed(
                self._costs(), *self.rows(*pairs), self.weight_bound, self.basis.names
            )
            try:
                return relaxed, replace(self._found(relaxed.solve(), relaxed.size), pairs=pairs)
            except UnboundedError:
                if k == MOST_START_DOUBLINGS or count == sweeper.states:
                    raise
        raise AssertionError("unreachable")

    def _random_pairs(self, sweeper: Sweeper, rng: np.random.Generator, count: int) -> Pairs:
        """All pairs of random states and of the model's start."""
        box = self.model.box
        start = self.model.box.index(self.model.start)
        numbers = np.unique(np.append(rng.choice(sweeper.states, count, replace=False), start))
        return allowed_pairs(self.model, box.states(numbers))

    def _solved(self, matrix: Floats, right: Floats) -> Found:
        x = maximise_in_parts(self._costs(), matrix, right, self.weight_bound, self.basis.names)
        return self._found(x, right.size)

    def _found(self, x: Floats, constraints: int) -> Found:
        weights, level = (x[:-1], float(x[-1])) if self.level else (x, 0.0)
        return Found(
            weights, level, float(self._costs() @ x), Status.VIOLATED, constraints, 0, None
        )

    def _violated(
        self, sweeper: Sweeper, found: Found, rng: np.random.Generator, tol: float
    ) -> tuple[float, Pairs]:
        """The largest violation, and pairs to add that are not there yet."""
        violation, best = self.excess(sweeper, found.weights, found.level)
        numbers = to_add(violation, tol / 2, self.width, rng)
        if found.pairs is None:
            there = np.zeros(0, np.int64)
        else:
            there = self._keys(*found.pairs)
        states = self.model.box.states(numbers)
        new = ~np.isin(self._keys(states, best[numbers]), there)
        return float(violation.max()), (states[new], best[numbers][new])

    def excess(self, sweeper: Sweeper, weights: Floats, level: float = 0.0) -> tuple[Floats, Ints]:
        """The violation v(x) at all states, and the actions that attain it."""
        values = everywhere(self.model, LinearValues(self.basis, weights))
        best = np.zeros(sweeper.states, np.int64)
        return values + level + self.less - sweeper.optimal(
            values, self.gamma, best=best
        ).values, best

    def _keys(self, states: Ints, actions: Ints) -> Ints:
        """A number for each pair of an enumerable model."""
        box = self.model.box
        return np.asarray((states - box.lower) @ box.strides * len(self.model.actions) + actions)

    def _costs(self) -> Floats:
        if self.level:
            return np.append(self.objective, 1.0)
        return self.objective


def to_add(violation: Floats, above: float, width: int, rng: np.random.Generator) -> Ints:
    """Which constraints to add: the worst, and as many others that are violated."""
    numbers = np.flatnonzero(violation > above)
    half = MOST_ADDED_ROWS_A_FUNCTION * width // 2 + 1
    if numbers.size > 2 * half:
        order = np.argsort(-violation[numbers], kind="stable")
        numbers = np.append(
            numbers[order[:half]], rng.choice(numbers[order[half:]], half, replace=False)
        )
    return numbers


def _joined(pairs: Pairs | None, added: Pairs) -> Pairs:
    if pairs is None:
        return added
    return (np.concatenate([pairs[0], added[0]]), np.concatenate([pairs[1], added[1]]))


class UnboundedError(InputError):
    """The constraints at hand do not bound the program."""


class Relaxed:
    """The program over some constraints, to which others are added.

    Each solve starts from the last basis.
    """

    def __init__(
        self,
        costs: Floats,
        matrix: Floats,
        right: Floats,
        bound: float | None,
        names: tuple[str, ...],
    ) -> None:
        self._costs = cleaned(costs)
        self._bound = bound
        self._names = names
        largest = np.abs(matrix).max(axis=0, initial=0.0)
        self._scales = np.where(
            largest > ROUNDED_ZERO_SHARE * largest.max(initial=0.0), largest, 1.0
        )
        self._matrix = np.zeros((0, costs.size))
        self._right = np.zeros(0)
        self._dual = Growing(self._costs / self._scales)
        if bound is not None:
            unit = sp.eye_array(costs.size, format="csc")
            self._dual.add(np.tile(bound * self._scales, 2), sp.hstack([unit, -unit]))
        self.add(matrix, right)

    @property
    def size(self) -> int:
        """The number of constraints."""
        return self._right.size

    def add(self, matrix: Floats, right: Floats) -> None:
        """Add constraints matrix·x <= right."""
        self._matrix, self._right = np.vstack([self._matrix, matrix]), np.append(self._right, right)
        self._dual.add(right, sp.csc_array((matrix / self._scales).T))

    def solve(self, *, warm: bool = True) -> Floats:
        """The maximiser over the constraints so far, from the last basis or by interior points."""
        if warm and (found := self._dual.solve()).found:
            return np.asarray(found.y / self._scales)
        return maximise(
            self._costs, self._matrix, self._right, self._bound, self._names
        )  # tries harder, and explains


def maximise_in_parts(
    costs: Floats, matrix: Floats, right: Floats, bound: float | None, names: tuple[str, ...]
) -> Floats:
    """As `maximise`.

    Of very many constraints, over those that matter (a fixed seed picks the first).
    """
    count, width = matrix.shape
    if count <= MOST_DIRECT_ROWS_A_FUNCTION * width:
        return maximise(costs, matrix, right, bound, names)
    rng = np.random.default_rng(FIXED_SEED)
    kept = np.zeros(count, bool)
    added = rng.choice(count, MOST_DIRECT_ROWS_A_FUNCTION * width, replace=False)
    tol = SOLVER_MARGIN_SHARE * max(1.0, float(np.abs(right).max()))
    relaxed = Relaxed(costs, matrix[added], right[added], bound, names)
    try:
        while True:
            kept[added] = True
            x = relaxed.solve()
            excess = np.where(kept, -np.inf, matrix @ x - right)
            added = to_add(excess, tol, width, rng)
            if not added.size:
                return x
            relaxed.add(matrix[added], right[added])
    except UnboundedError:
        return maximise(costs, matrix, right, bound, names)  # the other constraints may bound it


def cleaned(costs: Floats) -> Floats:
    """What rounding left of zeros, as that of a function that drops out of all constraints, must
    not count.
    """
    return np.where(np.abs(costs) > ROUNDED_ZERO_SHARE * np.abs(costs).max(initial=0.0), costs, 0.0)


def maximise(
    costs: Floats, matrix: Floats, right: Floats, bound: float | None, names: tuple[str, ...]
) -> Floats:
    """The x of largest costsᵀx with matrix·x <= right, and |x| <= bound if given.

    Or an error with its cause.
    """
    costs = cleaned(costs)
    scales = np.abs(matrix).max(axis=0, initial=0.0)
    seen = scales > ROUNDED_ZERO_SHARE * scales.max(initial=0.0)
    unseen = np.flatnonzero(~seen & (costs != 0))
    if unseen.size and bound is None:
        if unseen[0] < len(names):
            name = names[unseen[0]]
        else:
            name = "λ"
        raise UnboundedError(
            f"no constraint sees the function {name!r}, so its weight has no bound; leave it out, "
            "or take more constraints."
        )
    x = np.zeros(costs.size)
    if bound is not None:
        x[unseen] = bound * np.sign(costs[unseen])
    b = costs[seen] / scales[seen]
    a = sp.csr_array(matrix[:, seen] / scales[seen])
    s = scales[seen]
    if bound is None:
        limits = np.full(s.size, np.inf)
    else:
        limits = bound * s
    found, y = (_dual if s.size < right.size else _primal)(b, a, right, limits)
    if not found.found:
        _explain(a, right, limits, found.word)
    x[seen] = y / s
    return x


def _dual(b: Floats, a: sp.csr_array, right: Floats, limits: Floats) -> tuple[Optimum, Floats]:
    """As many rows as unknowns; bounds on these are pairs of columns."""
    blocks = [sp.csc_array(a.T)]
    costs = [right]
    if np.isfinite(limits).all():
        unit = sp.eye_array(b.size, format="csc")
        blocks = [*blocks, unit, -unit]
        costs = [*costs, limits, limits]
    prices = np.concatenate(costs)
    found = minimise(
        prices, sp.hstack(blocks), (b, b), (np.zeros(prices.size), np.full(prices.size, np.inf))
    )
    return found, found.y


def _primal(b: Floats, a: sp.csr_array, right: Floats, limits: Floats) -> tuple[Optimum, Floats]:
    found = minimise(-b, a, (np.full(right.size, -np.inf), right), (-limits, limits))
    return found, found.x


def _explain(a: sp.csr_array, right: Floats, limits: Floats, word: str) -> None:
    """Raise, and say whether the constraints contradict each other or do not bound the program.

    The least t with A x <= right + t is 0 or less for a program that has a solution.
    """
    count, width = a.shape
    wide = sp.csr_array(sp.hstack([a, sp.csr_array(-np.ones((count, 1)))]))
    low = np.append(-limits, 0.0)
    high = np.append(limits, np.inf)
    costs = np.append(np.zeros(width), 1.0)
    least = minimise(costs, wide, (np.full(count, -np.inf), right), (low, high), feasible=True)
    if least.found and least.x[-1] > SOLVER_MARGIN_SHARE * max(1.0, float(np.abs(right).max())):
        raise InputError(
            f"no weights keep all constraints (the best miss one by {least.x[-1]:.3g}); add a "
            "constant function to the basis (discounted criterion), or lower the level (average)."
        )
    if least.found:
        raise UnboundedError(
            f"{count:,} constraints do not bound the value of {width} functions; use more "
            "constraints or fewer functions, or bound the weights (weight_bound)."
        )
    raise InputError(
        f"HiGHS stopped without a solution ({word}); scale the functions or the losses."
    )


def sampled_pairs(model: Model, states: Ints) -> Pairs:
    """All allowed pairs of states, each state once."""
    rows = np.unique(states, axis=0)
    numbers, actions = allowed_rows(model, rows)
    return np.ascontiguousarray(rows[numbers]), actions
