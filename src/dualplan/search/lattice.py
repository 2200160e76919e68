"""Near-optimal policies from a small problem on a lattice of states (Markov chain approximation).

Choose knots for each coordinate; nodes are all vectors of knots. Each next state y of a node is
replaced by a random corner of its cell, with the weights c_z(y) of multilinear interpolation, whose
mean is y (Kushner & Dupuis 2001; such operators are the averagers of Gordon 1995):

    P̂(z|x,a)  =  Σ_y P(y|x,a)·c_z(y),         v(x) + λ  =  min_a [ ℓ(x,a) + Σ_z P̂(z|x,a)·v(z) ].

That is a decision problem on the nodes, sparse and with nonnegative weights, solved by policy
iteration (`exact/sparse.py`). But the random corner brings variance that the model does not have,
(y_i − left)(right − y_i) along each coordinate, which a convex v pays for. So the problem is solved
again with what the function V of `values/interpolation.py`, which has curvature taken off, and the
multilinear function of the last v disagree in:

    ℓ'(x,a)  =  ℓ(x,a) + Σ_y P(y|x,a)·[ V(y) − Σ_z c_z(y)·v(z) ].

A fixed point of these corrections solves v + λ = min_a [ ℓ + P V ] at the nodes, with V exact on
products of linear functions and on quadratic functions of single coordinates; in between, each
solution is that of a true decision problem. A few corrections are made, not until they end. Where
all integers are knots there is nothing to correct.

A next state beyond the last knot of a coordinate goes to that knot. Were that free, the problem
would learn to lose customers there. The first solution charges `penalty` for each unit, by default
far more than a unit is worth; the corrections charge what V, going on beyond the last knot, says
that it is worth, never less than 0.

The policy looks one step ahead with V in the real model: it is compiled, needs no table of states,
and is defined beyond the lattice. Nothing here is proved: the cost on the lattice is no bound, and
the policy must be evaluated. Discounted: the same with γ. Prices on measures, for side constraints,
change ℓ into ℓ + Σ_k p_k·(n_k − b_k·d_k).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import lattice as kernels
from dualplan._kernels.layouts import Tallies
from dualplan._kernels.sweep import PairList, no_counts
from dualplan.core.checks import (
    is_number,
    require_counts,
    require_nonnegative,
    require_positive,
    require_seed,
    require_whole,
)
from dualplan.core.deadlines import require_time
from dualplan.core.errors import InputError
from dualplan.core.shown import Shown
from dualplan.core.status import ASSUMED, Status
from dualplan.core.types import Floats, Ints, Json
from dualplan.evaluation.visits import visited
from dualplan.exact.sparse import Table, policy_iteration
from dualplan.models.contract import Model, require_made_for
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.models.limits import Limit
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.transitions import allowed_pairs, tallies_of, transitions
from dualplan.policies.contract import Policy, require_policies
from dualplan.policies.greedy import GreedyPolicy
from dualplan.values.interpolation import Lattice, LatticeValues

LATTICE_NODES = 40_000
# simulated states that knots are fitted to, and the steps between two of them
KNOT_VISITS = 10_000
STEPS_BETWEEN_KNOT_VISITS = 20
# a coordinate goes to so many times this quantile of the visits
REACH_QUANTILE = 0.9999
REACH_FACTOR = 1.5
# an upper limit within so many times that is where it goes: good policies may go farther than
# heuristics
NEAR_LIMIT_FACTOR = 3.0
SKETCH_NODES_DIVISOR = 8  # so many times fewer nodes of a lattice that shows where its policy goes
LEAST_REACH_VALUES = 8  # the least reach, in values
MOST_VALUES_ALL_KEPT = 4  # a coordinate with so many values keeps them all
GAP_POWER = 1.0  # gaps between knots grow like this power of the distance from the ends
MOST_CORRECTIONS = 3
# default penalty, in units of (loss at the last knots)·(1 + their number): see `_penalty`
PENALTY_FACTOR = 40.0
CHAIN_ENTRIES_AT_ONCE = 2**22  # of the chain's matrix, written at once


# -- where the nodes are ---------------------------------------------------------------------------


def make_lattice(
    model: Model,
    given: Sequence[Policy] | Policy | Ints | None = None,
    *,
    nodes: int = LATTICE_NODES,
    seed: int = 0,
) -> Lattice:
    """A lattice of at most so many nodes, as far out as policies go, or as given states lie (one a
    row).

    Of several policies the one that costs least in a short simulation counts; by default they are
    the model's own. Coordinates of few values, and those that are no quantities (the pending event
    of a network), keep all values. The others have knots that are dense near the lower end and near
    an upper end within reach.
    """
    require_whole("nodes", nodes, least=2)
    require_seed(seed)
    states = _given_states(model, given, seed)
    box = model.box
    far = np.quantile(states, REACH_QUANTILE, axis=0) - box.lower
    reach = box.lower + np.maximum(np.ceil(REACH_FACTOR * far), LEAST_REACH_VALUES).astype(np.int64)
    near = box.upper - box.lower <= NEAR_LIMIT_FACTOR * (reach - box.lower)
    ends = np.where(near, box.upper, np.minimum(reach, box.upper))
    whole = _kept_whole(model)
    ends[whole] = box.upper[whole]
    return Lattice(model, _knots(box.lower, ends, ends == box.upper, whole, nodes, model.name))


def truncation(model: Model, *, nodes: int = LATTICE_NODES) -> Lattice:
    """All states up to the same distance from the lower limits, as many as the nodes allow."""
    require_whole("nodes", nodes, least=2)
    box = model.box
    whole = _kept_whole(model)
    length = 1
    while True:
        ends = np.where(whole, box.upper, np.minimum(box.lower + length + 1, box.upper))
        if (
            np.log((ends - box.lower + 1).astype(np.float64)).sum() > np.log(nodes)
            or length > nodes
        ):
            break
        length += 1
    ends = np.where(whole, box.upper, np.minimum(box.lower + length, box.upper))
    return Lattice(model, tuple(np.arange(a, b + 1) for a, b in zip(box.lower, ends, strict=True)))


def _given_states(model: Model, given: Sequence[Policy] | Policy | Ints | None, seed: int) -> Ints:
    if isinstance(given, np.ndarray):
        if given.ndim != 2 or given.shape[1] != model.box.dim or len(given) == 0:
            raise InputError(
                f"states of {model.name!r} are rows of {model.box.dim} integers, at least one."
            )
        return given
    policies = [model.policy(name) for name in model.policies] if given is None else given
    policies = require_policies(model, policies)
    if not policies:
        raise InputError("a lattice needs policies or visited states to be fitted to.")
    found: list[tuple[float, Ints]] = []
    for policy in policies:
        states = visited(
            model, policy, samples=KNOT_VISITS, seed=seed, every=STEPS_BETWEEN_KNOT_VISITS
        )
        found.append((_mean_loss(model, policy, states), states))
    return min(found, key=lambda one: one[0])[1]


def _mean_loss(model: Model, policy: Policy, states: Ints) -> float:
    """Over some of the states, under the policy's own actions."""
    some = states[:: max(1, len(states) // 1000)]
    total = 0.0
    for x in some:
        chances = policy.probabilities(x)
        total += sum(chances[a] * model.loss(x, int(a)) for a in np.flatnonzero(chances))
    return total / len(some)


def _kept_whole(model: Model) -> Any:
    few = model.box.upper < model.box.lower + MOST_VALUES_ALL_KEPT
    if isinstance(model, QueueingNetwork):
        few[len(model.classes) :] = True
    return few


def _knots(
    lower: Ints, ends: Ints, bounded: Any, whole: Any, nodes: int, name: str
) -> tuple[Ints, ...]:
    """Knots whose gaps grow at one rate for all coordinates, the least at which there are few
    enough nodes.
    """

    def made(rate: float) -> tuple[Ints, ...]:
        rates = np.where(whole, 0.0, rate)
        return tuple(
            spaced(int(a), int(b), float(r), bool(both))
            for a, b, r, both in zip(lower, ends, rates, bounded, strict=True)
        )

    def size(rate: float) -> float:
        return float(np.prod([float(k.size) for k in made(rate)]))

    low = 0.0
    high = float(2 * (ends - lower).max() + 2)
    if (
        float(np.prod((ends[whole] - lower[whole] + 1).astype(float)))
        * 2.0 ** np.count_nonzero(~whole)
        > nodes
    ):
        raise InputError(
            f"the states of {name!r} have too many coordinates for a lattice of {nodes:,} nodes."
        )
    if np.log(np.maximum(ends - lower + 1, 1).astype(float)).sum() <= np.log(nodes):
        return made(0.0)
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if size(middle) <= nodes else (middle, high)
    return made(high)


def spaced(low: int, high: int, rate: float, both: bool) -> Ints:
    """Integers from `low` to `high` whose gaps grow with the distance from `low`, and from `high`
    if `both`.
    """
    knots = [low]
    while knots[-1] < high:
        v = knots[-1]
        gap = max(1, int(rate * float(v - low) ** GAP_POWER))
        if both:  # no gap larger than one that starts at the other end could be
            while gap > 1 and gap > rate * float(max(high - v - gap, 0)) ** GAP_POWER:
                gap -= 1
        knots.append(min(v + gap, high))
    return np.array(knots, np.int64)


# -- the problem on the nodes ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NodeTable:
    """The pairs of the nodes as a table, and by how much their next states lie beyond the last
    knots, on average.
    """

    lattice: Lattice
    table: Table
    beyond: Floats

    def corrections(self, values: LatticeValues) -> Floats:
        """Σ_y P(y|x,a)·[V(y) − Σ_z c_z(y)·v(z)] of each pair, never below 0 where next states lie
        beyond.
        """
        table = self.table
        out = np.empty(table.states.size)
        pairs = PairList(table.states, table.actions)
        law = self.lattice.model.forward_law
        kernels.expected_values(law, self.lattice.ints, values.floats, pairs, out)
        out -= table.matrix @ values.values
        return np.where(self.beyond > 0, np.maximum(out, 0.0), out)


def node_table(lattice: Lattice, prices: Floats | None = None) -> NodeTable:
    """P̂ and ℓ at the nodes, with prices on the model's columns."""
    model = lattice.model
    law = model.forward_law
    if prices is None:
        charged = np.zeros(0)
    else:
        charged = prices
    if charged.size:
        tallies = tallies_of(model)
    else:
        tallies = Tallies(law.loss, no_counts, law.ints, law.floats)
    place = np.full(lattice.nodes, -1, np.int64)
    room = max(
        CHAIN_ENTRIES_AT_ONCE, law.actions * min(lattice.nodes, law.outcomes << model.box.dim)
    )
    most = min(room, lattice.nodes * law.actions) + 1
    rows = kernels.NodeRows(
        np.empty(room, np.int64),
        np.empty(room),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most),
        np.empty(most),
    )
    node = 0
    blocks = []
    found = []
    while node < lattice.nodes:
        require_time()
        node = int(
            kernels.node_rows(
                law, tallies, model.box.bounds, lattice.ints, charged, place, node, rows
            )
        )
        if node < 0:
            transitions(
                model, *allowed_pairs(model, lattice.states[[-1 - node]])
            )  # raises, and says why
        count = int(rows.nodes[-1])
        size = int(rows.ends[count - 1])
        pointer = np.concatenate([[0], rows.ends[:count]])
        blocks.append(
            sp.csr_array(
                (rows.entries[:size].copy(), rows.columns[:size].copy(), pointer),
                shape=(count, lattice.nodes),
            )
        )
        parts = (rows.nodes, rows.actions, rows.losses, rows.beyond)
        found.append([part[:count].copy() for part in parts])
    nodes, chosen, costs, over = (np.concatenate(part) for part in zip(*found, strict=True))
    if len(blocks) == 1:
        matrix = blocks[0]
    else:
        matrix = sp.csr_array(sp.vstack(blocks))
    return NodeTable(lattice, Table(nodes, chosen, matrix, costs), over)


# -- solutions -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class LatticeSolution(Shown):
    """Values of a problem on a lattice, and the policy that is greedy for them in the real model.

    `cost` is the optimal cost of the last problem on the nodes, an approximation that bounds
    nothing (`known`).
    """

    lattice: Lattice
    criterion: Criterion
    values: LatticeValues
    cost: float
    status: Status
    rounds: int
    seconds: float
    prices: Floats = field(default_factory=lambda: np.zeros(0))
    known: str = ASSUMED

    @property
    def model(self) -> Model:
        """The model of the lattice."""
        return self.lattice.model

    @property
    def gamma(self) -> float:
        """The discount factor, 1 for the average criterion."""
        return self.criterion.gamma

    def policy(self, *, clip: bool = False, name: str = "lattice") -> GreedyPolicy:
        """One step ahead with the values, compiled.

        With `clip`, beyond the last knots what is done at these.
        """
        if self.prices.size:
            prices = self.prices
        else:
            prices = None
        if clip:
            last = self.lattice.last
        else:
            last = None
        return GreedyPolicy(
            self.model, self.values, self.gamma, prices=prices, clip=last, name=name
        )

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        return {
            "nodes": self.lattice.nodes,
            "knots": [k.tolist() for k in self.lattice.knots],
            "cost": self.cost,
            "known": self.known,
            "status": str(self.status),
            "advice": self.status.advice,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 3),
        }


def solve_lattice(
    model: Model,
    lattice: Lattice,
    criterion: Criterion | None = None,
    *,
    penalty: float | None = None,
    prices: Sequence[tuple[Limit, float]] | None = None,
    tol: float = 1e-3,
    corrections: int = MOST_CORRECTIONS,
    start: LatticeValues | None = None,
) -> LatticeSolution:
    """Solve on the nodes within a relative `tol`, and again with each of the corrections.

    `penalty` is charged in the first solution for each unit that a next state lies beyond the last
    knots. `prices` are pairs of a limit on one of the model's measures and its price. `start` are
    values to begin with.
    """
    criterion = require_criterion(criterion)
    began = time.monotonic()
    require_made_for(model, lattice.model, "lattice")
    require_positive(tol=tol)
    require_whole("corrections", corrections)
    if penalty is not None:
        require_nonnegative(penalty=penalty)
    charged = column_prices(model, prices or ())
    gamma = criterion.gamma
    nodes = node_table(lattice, charged)
    table = nodes.table
    curved = any((np.diff(k) > 1).any() for k in lattice.knots) or nodes.beyond.any()
    losses = table.losses + (_penalty(nodes) if penalty is None else penalty) * nodes.beyond
    if start is None:
        values = None
    else:
        values = start(lattice.states)
    if values is not None:
        losses = table.losses + gamma * nodes.corrections(LatticeValues(lattice, values))
    rounds = 0
    origin = lattice.node(model.start)
    for _ in range((corrections if curved else 0) + 1):
        found = policy_iteration(
            Table(table.states, table.actions, table.matrix, losses),
            gamma,
            tol,
            origin=origin,
            start=values,
        )
        values = found.values
        rounds = rounds + found.rounds
        function = LatticeValues(lattice, values)
        losses = table.losses + gamma * nodes.corrections(function)
    cost = (found.lower + found.upper) / 2
    if isinstance(criterion, Discounted):
        states, weights = criterion.start_distribution(model)
        cost = float(function(states) @ weights)
    if found.reached:
        status = Status.SOLVED
    else:
        status = Status.WIDE
    return LatticeSolution(
        lattice, criterion, function, cost, status, rounds, time.monotonic() - began, charged
    )


def column_prices(model: Model, prices: Sequence[tuple[Limit, float]]) -> Floats:
    """Σ_k p_k·(n_k − b_k·d_k) as weights of the model's columns.

    Nothing where there are no prices.
    """
    total = np.zeros(len(model.columns))
    for limit, price in prices:
        if not isinstance(limit.measure, str):
            raise InputError(
                f"the limit on {limit.name!r} is a function of yours; prices are for the model's "
                "measures."
            )
        if not is_number(price) or price < 0:
            raise InputError(
                f"the price of the limit on {limit.name!r} is a number >= 0, got {price!r}."
            )
        measure = model.measure(limit.measure)
        total += price * (measure.numerator - limit.at_most * measure.denominator)
    if total.any():
        return total
    return np.zeros(0)


def _penalty(nodes: NodeTable) -> float:
    """Far more than a unit beyond the last knots is worth.

    A unit more at x is there until a queue of x has drained, and costs loss by loss meanwhile:
    about ℓ·x/drift in all, at the farthest node ℓ·Σx/drift.
    """
    lattice = nodes.lattice
    length = float((lattice.last - lattice.model.box.lower).max())
    worst = float(np.abs(nodes.table.losses).max()) / max(
        1.0, float((lattice.last - lattice.model.box.lower).sum())
    )
    return PENALTY_FACTOR * worst * (1 + length)


# -- in one call -----------------------------------------------------------------------------------


def lattice_plan(
    model: Model,
    criterion: Criterion | None = None,
    *,
    policies: Sequence[Policy] | None = None,
    nodes: int = LATTICE_NODES,
    stages: int = 2,
    prices: Sequence[tuple[Limit, float]] | None = None,
    seed: int = 0,
    tol: float = 1e-3,
) -> LatticeSolution:
    """A solution on a lattice that is fitted to where its own kind of policy goes.

    The first of the stages has an eighth of the nodes and is fitted to the policies (by default the
    model's own); each further one to the policy of the stage before too.
    """
    criterion = require_criterion(criterion)
    require_counts(stages=stages)
    require_positive(tol=tol)
    require_seed(seed)
    if policies is None:
        begun = [model.policy(name) for name in model.policies]
    else:
        begun = require_policies(model, policies)
    sketch = max(nodes // SKETCH_NODES_DIVISOR, min(nodes, 2 ** (model.box.dim + 1)))
    found = solve_in_stages(
        model,
        criterion,
        begun,
        [*[sketch] * (stages - 1), nodes],
        lambda fitted_to, size: make_lattice(model, fitted_to, nodes=size, seed=seed),
        prices=prices,
        tol=tol,
    )
    assert found is not None, "every stage has a lattice, or raises"
    return found


def solve_in_stages(
    model: Model,
    criterion: Criterion,
    policies: Sequence[Policy],
    sizes: Sequence[int],
    fit: Callable[[list[Policy], int], Lattice | None],
    *,
    prices: Sequence[tuple[Limit, float]] | None = None,
    tol: float = 1e-3,
) -> LatticeSolution | None:
    """The last solution on lattices of several sizes, each of which `fit` makes for the policies
    and, from the second on, that of the one before.

    Where policies go is seldom where the policy of a lattice does. Sizes for which there is no
    lattice are left out.
    """
    solution: LatticeSolution | None = None
    fitted_to = list(policies)
    for size in sizes:
        lattice = fit(fitted_to, size)
        if lattice is not None:
            solution = solve_lattice(model, lattice, criterion, prices=prices, tol=tol)
            fitted_to = [*policies, solution.policy()]
    return solution
