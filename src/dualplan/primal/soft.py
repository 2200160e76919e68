"""Linear programs on values whose constraints may be violated at a price.

    maximise   bᵀw − Σ_g p_g s_g   subject to   A w <= r + s_g (rows i of group g),  s >= 0
               (penalised)
    maximise   bᵀw                 subject to   the same and Σ_g p_g s_g <= θ             (budgeted)

with A and r as in `program.py`. A group is a state (smoothed program) or a single pair (relaxed
program). HiGHS gets the dual, where a price bounds the sum of the multipliers of a group,

    minimise   rᵀu       subject to   Aᵀu = b,   Σ_{i in g} u_i <= p_g,     u >= 0       (penalised)
    minimise   rᵀu + θt  subject to   Aᵀu = b,   Σ_{i in g} u_i <= p_g·t,   u >= 0,  t >= 0
               (budgeted)

and w are the multipliers of the first rows. Groups of price 0 are left out: their violations cost
nothing.

Rows are listed, of all pairs of an enumerable model or of drawn states; HiGHS gets those that
matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dualplan.core.checks import require_positive
from dualplan.core.errors import InputError, MissingError
from dualplan.core.lp import minimise
from dualplan.core.streams import FIXED_SEED
from dualplan.core.types import Floats, Ints
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.models.criteria import Discounted
from dualplan.models.transitions import allowed_rows
from dualplan.policies.contract import Policy
from dualplan.primal.program import (
    MOST_DIRECT_ROWS_A_FUNCTION,
    MOST_LISTED_ENTRIES,
    ROUNDED_ZERO_SHARE,
    SOLVER_MARGIN_SHARE,
    Program,
    UnboundedError,
    maximise_in_parts,
    to_add,
)
from dualplan.primal.relevance import Relevance
from dualplan.primal.settings import (
    ALL_CONSTRAINTS,
    GENERATED_CONSTRAINTS,
    SAMPLED_CONSTRAINTS,
    Settings,
    relevant,
)
from dualplan.values.basis import Basis

SOFT_ROWS_A_FUNCTION = 15  # as many rows in a round as other programs add: each solve starts afresh
UNBOUNDED_ROWS_GROWTH = 4  # rows are so many times more where they do not bound the program


@dataclass(frozen=True, eq=False)
class Rows:
    """Constraints A w <= r of listed states.

    `numbers` says to which of the states a row belongs.
    """

    matrix: Floats
    right: Floats
    numbers: Ints
    states: Ints
    weights: Floats
    way: str

    def excess(self, w: Floats) -> Floats:
        """Violations of single rows."""
        return np.maximum(self.matrix @ w - self.right, 0.0)


def price_of(penalty: float | None, criterion: Discounted) -> float:
    """Of a unit of violation: the penalty, or 2/(1−γ)."""
    if penalty is None:
        return 2 / (1 - criterion.gamma)
    require_positive(penalty=penalty)
    return float(penalty)


def soft_program(
    basis: Basis,
    criterion: Discounted,
    relevance: Relevance | Policy | None,
    weights: Relevance | Policy | None,
    wanted: Settings,
) -> tuple[Program, Rows]:
    """The program for c, and its constraints with weights π, by default c."""
    model = basis.model
    c = relevant(model, relevance, criterion, wanted.seed)
    if weights is None:
        law = c
    else:
        law = relevant(model, weights, criterion, wanted.seed)
    program = Program(basis, criterion.gamma, c.moments(basis), weight_bound=wanted.weight_bound)
    return program, listed(program, wanted, weights, law)


def listed(
    program: Program, wanted: Settings, weights: Relevance | Policy | None, law: Relevance
) -> Rows:
    """Constraints of all states with weights from `law`, or of drawn states, each weighted by how
    often it was drawn.

    `weights` is what the user gave for `law`, and not for drawn states.
    """
    model = program.model
    if wanted.constraints == GENERATED_CONSTRAINTS:
        raise InputError(
            "violations that have a price need listed constraints: constraints='all' or a sample."
        )
    if wanted.sample is not None:
        if weights is not None:
            raise InputError(
                "sampled states weigh as much as they are drawn; leave weights= out, or the sample."
            )
        states, counts = np.unique(wanted.drawn(model), axis=0, return_counts=True)
        return _rows(
            program, np.ascontiguousarray(states), counts / counts.sum(), SAMPLED_CONSTRAINTS
        )
    count = _affordable(model, program.width)
    states = model.box.states(np.arange(count))
    return _rows(program, states, law.masses(states), ALL_CONSTRAINTS)


def _affordable(model: Model, width: int) -> int:
    count = model.box.count
    if count is None or count * len(model.actions) * width > MOST_LISTED_ENTRIES:
        raise MissingError(
            f"model {model.name!r} has too many pairs for {width} functions at once; say where to "
            "draw states, as sample=policy or sample=primal.geometric(model, ratio)."
        )
    return Sweeper(model).states


def _rows(program: Program, states: Ints, weights: Floats, way: str) -> Rows:
    numbers, actions = allowed_rows(program.model, states)
    matrix, right = program.rows(np.ascontiguousarray(states[numbers]), actions)
    return Rows(matrix, right, numbers, states, weights, way)


def maximise_softly(
    program: Program, rows: Rows, groups: Ints, prices: Floats, budget: float | None = None
) -> Floats:
    """The w of the penalised program, or of the budgeted one; `groups` has a number for each row.

    Of very many rows, over those that matter: the worst of each group that exceeds what its group
    is allowed so far is added, until there is none (a fixed seed picks the first).
    """
    counted = np.flatnonzero(prices[groups] > 0)
    if not counted.size:
        raise InputError(
            "violations cost nothing at any state, so nothing bounds the values; give other "
            "weights."
        )
    matrix = rows.matrix[counted]
    right = rows.right[counted]
    groups = groups[counted]
    if budget == 0:
        return maximise_in_parts(
            program.objective, matrix, right, program.weight_bound, program.basis.names
        )
    rng = np.random.default_rng(FIXED_SEED)
    tol = SOLVER_MARGIN_SHARE * max(1.0, float(np.abs(right).max()))
    taken = np.zeros(right.size, bool)
    taken[
        rng.choice(
            right.size,
            min(2 * MOST_DIRECT_ROWS_A_FUNCTION * program.width, right.size),
            replace=False,
        )
    ] = True
    while True:
        try:
            w = _over(program, matrix[taken], right[taken], groups[taken], prices, budget)
        except UnboundedError:
            if taken.all():
                raise
            taken[
                rng.choice(
                    right.size,
                    min(UNBOUNDED_ROWS_GROWTH * int(taken.sum()), right.size),
                    replace=False,
                )
            ] = True
            continue
        excess = matrix @ w - right
        allowed = np.zeros(prices.size)
        worst = np.zeros(prices.size)
        np.maximum.at(allowed, groups[taken], excess[taken])
        beyond = np.where(taken, 0.0, excess - allowed[groups])
        np.maximum.at(worst, groups, beyond)
        new = to_add(
            np.where(beyond >= worst[groups], beyond, 0.0),
            tol,
            SOFT_ROWS_A_FUNCTION * program.width,
            rng,
        )
        if not new.size:
            return w
        taken[new] = True


def _over(
    program: Program,
    matrix: Floats,
    right: Floats,
    groups: Ints,
    prices: Floats,
    budget: float | None,
) -> Floats:
    """The same over all given rows at once."""
    kept, members = np.unique(groups, return_inverse=True)
    costs = program.objective
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    costs = np.where(
        np.abs(costs) > ROUNDED_ZERO_SHARE * np.abs(costs).max(initial=0.0), costs, 0.0
    )
    scales = np.where(largest > ROUNDED_ZERO_SHARE * largest.max(initial=0.0), largest, 1.0)
    count, width = matrix.shape
    single = budget is None and kept.size == count  # prices are then upper limits of columns
    sums = sp.csc_array((np.ones(count), (members.ravel(), np.arange(count))), (kept.size, count))
    top = [sp.csc_array((matrix / scales).T)]
    bottom = [sums]
    spent = [right]
    if budget is not None:
        top.append(sp.csc_array((width, 1)))
        bottom.append(sp.csc_array(-prices[kept][:, None]))
        spent.append(np.array([budget]))
    if program.weight_bound is not None:
        unit = sp.eye_array(width, format="csc")
        top.append(sp.hstack([unit, -unit]))
        bottom.append(sp.csc_array((kept.size, 2 * width)))
        spent.append(np.tile(program.weight_bound * scales, 2))
    b = costs / scales
    if budget is not None:
        limits = np.zeros(kept.size)
    else:
        limits = prices[kept]
    paid = np.concatenate(spent)
    low = b
    high = b
    whole = sp.hstack(top)
    most = np.full(paid.size, np.inf)
    if single:
        most[:count] = prices[groups]
    else:
        low = np.append(b, np.full(kept.size, -np.inf))
        high = np.append(b, limits)
        whole = sp.vstack([whole, sp.hstack(bottom)])
    found = minimise(paid, whole, (low, high), (np.zeros(paid.size), most))
    if not found.found:
        _explain(costs, matrix, right, program, found.word)
    return np.asarray(found.y[:width] / scales)


def _explain(costs: Floats, matrix: Floats, right: Floats, program: Program, word: str) -> None:
    """Raise: where multipliers exist without prices, these are too low.

    Else the constraints do not bound it.
    """
    dual = minimise(
        np.zeros(right.size),
        sp.csc_array(matrix.T),
        (costs - SOLVER_MARGIN_SHARE, costs + SOLVER_MARGIN_SHARE),
        (np.zeros(right.size), np.full(right.size, np.inf)),
    )
    if program.weight_bound is None and not dual.found:
        raise UnboundedError(
            f"{right.size:,} constraints do not bound the value of {costs.size} functions; use "
            "more constraints or fewer functions, or bound the weights (weight_bound)."
        )
    raise UnboundedError(
        f"violations are too cheap to bound the values (HiGHS: {word}); raise the penalty, or "
        "weigh violations more like the relevance weights."
    )
