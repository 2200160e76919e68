"""The average cost from the start where it depends on the start: the multichain linear program.

A policy may lead to several recurrent classes, and which one is reached depends on the start and on
chance. Its cost from the start distribution α is the expectation αᵀg_π. The least one is the value
of a pair of programs (Denardo & Fox 1968; Hordijk & Kallenberg 1979; Puterman 1994, 9.3):

    min ℓᵀx   subject to   (B − P)ᵀx = 0,   Bᵀx + (B − P)ᵀy = α,   x, y >= 0
    max αᵀg   subject to   B g <= P g,      B g + B h <= ℓ + P h

x is how often pairs are met in the long run, y how often before that. Many y go with one x, also
some that run in circles; so a second program takes, of the pairs that are tight in g and h, those
with the least Σy. The policy follows x where it has mass, else y, and elsewhere the pair that is
best for g, then for h.

*The upper bound* is the policy's own cost, without the solver's word for it: in each recurrent
class by `policy.average_parts`, before that by absorption. On the transient states T the solution g
of g = P g leaves a residual ρ = max|P g − g|, and if w > 0 there has w − P w >= c > 0, its error is
at most (ρ/c)·w.

*The lower bound* repairs g. A maximal end component is a set of states with pairs that do not leave
it and connect it: a policy can stay there forever, and all of it costs the same, so g becomes
constant there (its least). Every other pair leaves for good in the end: there are w >= 0 with
w − P w >= c > 0 on all of them. With δ their greatest g − P g, the function g − (δ/c)·w satisfies
the first row everywhere; and if the second one is missed by at most ε, then αᵀg − (δ/c)·αᵀw − ε is
a lower bound, whatever the solver's tolerances were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as graph

from dualplan.core.lp import minimise
from dualplan.core.types import Bools, Floats, Ints
from dualplan.exact.classes import closed_classes
from dualplan.exact.iteration import rounding
from dualplan.exact.linear import Solver
from dualplan.exact.operators import Pairs
from dualplan.exact.policy import average_parts, reachable
from dualplan.policies.tables import TablePolicy

TIGHT_ROW_SHARE = 1e-6  # of the size of gains and values: slack that counts as none
LIGHT_MASS = 1e-9  # of x or y in a state, below which it counts as none


@dataclass(frozen=True, eq=False)
class MultichainAnswer:
    """The optimum from the start between two bounds; x over pairs, and h."""

    lower: float
    upper: float
    occupancy: Floats
    values: Floats
    policy: TablePolicy
    classes: int


def solve_multichain(pairs: Pairs, start: Floats) -> MultichainAnswer | None:
    """The least expected average cost from a start distribution; None if HiGHS fails."""
    leaving = _leaving(pairs)
    duals = _gains_and_values(pairs, leaving, start)
    if duals is None:
        return None
    gains, values = duals
    masses = _masses(pairs, leaving, start, gains, values)
    if masses is None:
        return None
    x, y = masses
    policy = _policy(pairs, leaving, (x, y), gains, values)
    lower = _lower_bound(pairs, leaving, start, gains, values)
    upper, classes = expected_cost(pairs, policy, start)
    return MultichainAnswer(lower, max(upper, lower), x, values, policy, classes)


def several_ends(pairs: Pairs) -> bool:
    """Whether there is more than one part of the states in which a policy can stay forever."""
    labels, inside = end_components(pairs)
    return bool(np.unique(labels[pairs.states[inside]]).size > 1)


def _visits(pairs: Pairs) -> Any:
    """Bᵀ, states by pairs."""
    count, size = pairs.matrix.shape
    ones = (np.ones(count), (pairs.states, np.arange(count)))
    return sp.csr_array(ones, shape=(size, count))


def _leaving(pairs: Pairs) -> Any:
    """B − P, pairs by states."""
    return sp.csr_array(_visits(pairs).T - pairs.matrix)


def _minimised(
    costs: Floats, pairs: Pairs, leaving: Any, start: Floats, most: Floats
) -> tuple[Floats, Floats] | None:
    """Solve for (x, y) up to `most`; the solution and the duals (h, g)."""
    count, size = pairs.matrix.shape
    matrix = sp.block_array([[leaving.T, None], [_visits(pairs), leaving.T]])
    right = np.append(np.zeros(size), start)
    found = minimise(costs, matrix, (right, right), (np.zeros(2 * count), most), feasible=True)
    if not found.found:
        return None
    return found.x, found.y


def _gains_and_values(pairs: Pairs, leaving: Any, start: Floats) -> tuple[Floats, Floats] | None:
    count, size = pairs.matrix.shape
    scale = max(float(np.abs(pairs.losses).max()), 1e-300)
    costs = np.append(pairs.losses / scale, np.zeros(count))
    found = _minimised(costs, pairs, leaving, start, np.full(2 * count, np.inf))
    if found is None:
        return None
    return scale * found[1][size:], scale * found[1][:size]


def _masses(
    pairs: Pairs, leaving: Any, start: Floats, gains: Floats, values: Floats
) -> tuple[Floats, Floats] | None:
    """x and the least y, on pairs that are tight in the gains and the values."""
    count = pairs.states.size
    size = float(np.abs(gains).max() + np.abs(values).max() + np.abs(pairs.losses).max())
    short = pairs.losses - gains[pairs.states] - leaving @ values
    met = short <= TIGHT_ROW_SHARE * size
    kept = leaving @ gains >= -TIGHT_ROW_SHARE * size
    most = np.where(np.append(met, kept), np.inf, 0.0)
    costs = np.append(np.zeros(count), np.ones(count))
    found = _minimised(costs, pairs, leaving, start, most)
    if found is None:
        return None
    return np.maximum(found[0][:count], 0.0), np.maximum(found[0][count:], 0.0)


def _policy(
    pairs: Pairs, leaving: Any, masses: tuple[Floats, Floats], gains: Floats, values: Floats
) -> TablePolicy:
    table = np.zeros((pairs.matrix.shape[1], len(pairs.model.actions)))
    # by the gain that a pair leads to, in steps of what counts as nothing; then by values
    step = TIGHT_ROW_SHARE * max(float(np.abs(gains).max()), 1e-300)
    to_gains = np.round(-(leaving @ gains) / step)
    to_values = pairs.losses - leaving @ values
    order = np.lexsort((to_values, to_gains, pairs.states))
    states, first = np.unique(pairs.states[order], return_index=True)
    table[states, pairs.actions[order[first]]] = 1.0
    for mass in reversed(masses):  # x where it has mass, else y
        total = pairs.marginal(mass)
        heavy = total > LIGHT_MASS
        here = heavy[pairs.states]
        table[heavy] = 0.0
        table[pairs.states[here], pairs.actions[here]] = mass[here] / total[pairs.states[here]]
    return TablePolicy(pairs.model, table, name="optimal")


# -- the upper bound -------------------------------------------------------------------------------


def expected_cost(pairs: Pairs, policy: TablePolicy, start: Floats) -> tuple[float, int]:
    """An upper bound on the expected average cost of a policy, and its recurrent classes."""
    weights = policy.table[pairs.states, pairs.actions]
    choose = sp.csr_array(
        (weights, (pairs.states, np.arange(weights.size))), shape=pairs.matrix.shape[::-1]
    )
    matrix = sp.csr_array(choose @ pairs.matrix)
    matrix.eliminate_zeros()
    reached = reachable(matrix, np.flatnonzero(start))
    chain = sp.csr_array(matrix[reached][:, reached])
    losses = np.asarray(choose @ pairs.losses)[reached]
    gains = np.zeros(reached.size)
    transient = np.ones(reached.size, bool)
    classes = closed_classes(chain)
    for states in classes:
        gains[states] = average_parts(chain[states][:, states], losses[states], policy)[1]
        transient[states] = False
    return float(start[reached] @ _absorbed(chain, gains, transient)), len(classes)


def _absorbed(chain: Any, gains: Floats, transient: Bools) -> Floats:
    """Gains on transient states, at least the expectation of those where the chain ends."""
    if not transient.any():
        return gains
    inside = np.flatnonzero(transient)
    stay = chain[inside][:, inside]
    enter = chain[inside] @ gains
    solver = Solver(sp.eye_array(inside.size, format="csr") - stay)
    found = solver.solve(enter)
    times = np.maximum(solver.solve(np.ones(inside.size)), 1.0)
    off = float((enter + stay @ found - found).max())
    off += rounding(float(np.abs(gains).max() + np.abs(found).max()), chain.shape[0])
    rate = float((times - stay @ times).min())
    result = gains.copy()
    if rate <= 0:  # nothing is known of these states
        result[inside] = float(gains[~transient].max())
    else:
        result[inside] = found + max(off, 0.0) / rate * times
    return result


# -- the lower bound -------------------------------------------------------------------------------


def end_components(pairs: Pairs) -> tuple[Ints, Bools]:
    """A number for each state, shared within a maximal end component; and the pairs that stay in
    one.
    """
    visits = _visits(pairs)
    reaches = sp.coo_array(pairs.matrix)
    inside = np.ones(pairs.states.size, bool)
    while True:
        edges = sp.csr_array(visits @ sp.diags_array(inside.astype(np.float64)) @ pairs.matrix)
        edges.eliminate_zeros()
        _, labels = graph.connected_components(edges, connection="strong")
        away = (labels[pairs.states[reaches.row]] != labels[reaches.col]) & (reaches.data > 0)
        still = inside.copy()
        still[reaches.row[away]] = False
        if np.array_equal(still, inside):
            return np.asarray(labels), inside
        inside = still


def _lower_bound(pairs: Pairs, leaving: Any, start: Floats, gains: Floats, values: Floats) -> float:
    labels, inside = end_components(pairs)
    least = np.full(int(labels.max()) + 1, np.inf)
    np.minimum.at(least, labels, gains)
    gains = least[labels]
    largest = float(np.abs(gains).max() + np.abs(values).max() + np.abs(pairs.losses).max())
    slack = rounding(largest, pairs.model.code.max_outcomes)
    falls = float((leaving @ gains)[~inside].max(initial=-np.inf)) + slack
    if falls > 0:
        delays = _delays(leaving, labels, inside)
        rate = float((leaving @ delays)[~inside].min())
        if rate <= 0:
            return -np.inf
        gains = gains - falls / rate * delays
    misses = float((gains[pairs.states] + leaving @ values - pairs.losses).max()) + slack
    return float(start @ gains) - max(misses, 0.0)


def _delays(leaving: Any, labels: Ints, inside: Bools) -> Floats:
    """w: the most moves outside of end components that are to be expected; constant in each."""
    count = int(labels.max()) + 1
    members = (np.ones(labels.size), (np.arange(labels.size), labels))
    joined = sp.csr_array(members, shape=(labels.size, count))
    rows = leaving[np.flatnonzero(~inside)] @ joined
    needed = np.ones(rows.shape[0])
    limits = (needed, np.full(needed.size, np.inf))
    found = minimise(
        np.ones(count), rows, limits, (np.zeros(count), np.full(count, np.inf)), feasible=True
    )
    if not found.found:
        return np.zeros(labels.size)
    return np.asarray(np.maximum(found.x, 0.0)[labels])
