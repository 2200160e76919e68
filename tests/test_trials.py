"""Linear indices in a loop of their own, their quadratic control, and trials on common random
numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dualplan as dp
from dualplan._kernels import index_walk, philox
from dualplan.core.errors import InputError
from dualplan.core.streams import Stream, Word, own_seed
from dualplan.evaluation.lstd import _one_step, loop_values, projected, quadratic_values
from dualplan.evaluation.simulation import CompiledEngine
from dualplan.evaluation.visits import visited
from dualplan.models import instances as zoo
from dualplan.models.queueing import QueueClass, QueueingNetwork
from dualplan.policies.contract import OwnLoop, Policy
from dualplan.policies.heuristics.network import LinearIndexPolicy, NetworkPolicy
from dualplan.primal import LinearValues, boundaries, capped_monomials, monomials
from dualplan.search import families
from dualplan.search.policy_search import best_of, propose
from dualplan.search.trials import (
    DEFAULT_TRIALS,
    TRIAL_REPLICAS,
    Budget,
    IndexTrials,
    LongTrials,
    ManyTrials,
    make_trials,
)


def rework(**options: Any) -> QueueingNetwork:
    """Two servers, random routes back and to the same class, bounded queues, a price on lost
    customers.
    """
    return QueueingNetwork(
        [
            QueueClass("1", "A", 0.5, 0.15, 5, penalty=20.0, route={"2": 0.7, "3": 0.3}),
            QueueClass(
                "2", "B", 0.6, 0.05, 4, holding=2.0, route={"1": 0.2, "2": 0.1}, penalty=7.0
            ),
            QueueClass("3", "A", 0.4, 0.05, 4, penalty=11.0),
        ],
        time="continuous",
        **options,
    )


NETWORKS: dict[str, Any] = {
    "six classes": lambda: zoo.six_class(),
    "own events": lambda: zoo.six_class(stations=3, decisions="per-server"),
    "blocking": lambda: zoo.four_queue(buffers=4),
    "losing, phantom": lambda: zoo.four_queue(buffers=3, full="lose", phantom=True),
    "penalties": lambda: rework(),
    "penalties, losing": lambda: rework(full="lose"),
    "penalties, losing, idling": lambda: rework(full="lose", idling=True),
    "eight queues": lambda: zoo.eight_queue(),
}


def some_indices(network: QueueingNetwork, seed: int = 0) -> LinearIndexPolicy:
    rng, n = np.random.default_rng(seed), len(network.classes)
    return LinearIndexPolicy(
        network, "some", rng.normal(size=n), 0.3 * rng.normal(size=(n, n)) + np.eye(n)
    )


def loop_of(policy: Policy) -> OwnLoop | None:
    return policy.code.loop  # type: ignore[union-attr]


def least_squares(policy: Policy, states: np.ndarray) -> np.ndarray:
    return loop_values(loop_of(policy), states)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_loop_of_indices_is_the_loop_for_all(name: str) -> None:
    """The same states and the same sums, to the last bit, for linear indices and for fixed
    priorities.
    """
    network = NETWORKS[name]()
    tested = 0
    for policy in (
        some_indices(network),
        *(network.policy(p) for p in ("lbfs", "c-mu", "longer-first")),
    ):
        run = CompiledEngine(network, policy, 3, False)
        if run.loop is None:
            continue
        tested += 1
        own = run.advance(run.first(1), 3, 20_000)
        run.loop = None
        general = run.advance(run.first(1), 3, 20_000)
        np.testing.assert_array_equal(own.rows, general.rows)
        np.testing.assert_array_equal(own.replica.x, general.replica.x)
    assert tested == (1 if "phantom" in name else 4)


def test_what_has_no_loop_of_its_own() -> None:
    six = zoo.six_class()
    assert (
        CompiledEngine(six, six.policy("lbfs"), 0, True).loop is None
    )  # cycles are counted by the other one
    for policy in (
        some_indices(zoo.six_class(discipline="nonpreemptive")),
        some_indices(zoo.four_queue(buffers=3, dynamics="bernoulli")),
        some_indices(rework(decisions="per-server")),
        six.policy("longer"),  # shares ties
        NetworkPolicy(six, "pressed", beta=1.0, kappa=1.0, ties="first"),
        NetworkPolicy(six, "at times", beta=1.0, probability=0.9, ties="first"),
        LinearIndexPolicy(six, "soft", 0.0, np.eye(6), temperature=0.1),
    ):
        assert loop_of(policy) is None
        assert np.isfinite(dp.evaluate(policy.model, policy, steps=20_000).cost)


def quadratic(network: QueueingNetwork, g: np.ndarray, matrix: np.ndarray) -> LinearValues:
    """gᵀx + ½xᵀHx as a sum of monomials."""
    basis = monomials(network, 2, scale=1.0, coordinates=range(len(g)))
    places = [
        tuple(int(p.coordinate) for p in pieces for _ in range(int(p.p)))
        for pieces in basis.products
    ]
    weights = [
        0.0 if not k else g[k[0]] if len(k) == 1 else matrix[k] / (2 if k[0] == k[1] else 1)
        for k in places
    ]
    return LinearValues(basis, np.array(weights))


def test_quadratic_functions_are_known_as_such() -> None:
    network, rng = zoo.six_class(), np.random.default_rng(4)
    basis = monomials(network, 2)  # scaled by 10
    values = LinearValues(basis, rng.normal(size=len(basis)))
    found: np.ndarray = values.code.quadratic_in(6)  # type: ignore[union-attr, assignment]
    g, matrix = found[:6], found[6:].reshape(6, 6)
    states = rng.integers(0, 30, (50, 6))
    formula = states @ g + 0.5 * np.einsum("ki,ij,kj->k", states, matrix, states)
    np.testing.assert_allclose(
        values(states) - values(np.zeros((1, 6), np.int64)), formula, rtol=1e-10
    )
    np.testing.assert_array_equal(matrix, matrix.T)
    for other in (monomials(network, 3), boundaries(network, 1), capped_monomials(network, 2, 5.0)):
        assert LinearValues(other, np.ones(len(other))).code.quadratic_in(6) is None  # type: ignore[union-attr]
    alone = zoo.six_class(decisions="per-server")  # the seventh coordinate is the pending event
    classes, all_seven = monomials(alone, 2, coordinates=range(6)), monomials(alone, 2)
    assert LinearValues(all_seven, np.ones(len(all_seven))).code.quadratic_in(6) is None  # type: ignore[union-attr]
    seen = LinearValues(classes, values.weights).code.quadratic_in(6)  # type: ignore[union-attr]
    np.testing.assert_allclose(seen, found)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "own events"])
def test_the_loop_of_indices_takes_quadratic_controls(name: str) -> None:
    """Sums of ℓ + Ph − h, of ℓ and of all that is counted, as the loop for all has them."""
    network = NETWORKS[name]()
    policy, n = some_indices(network), len(network.classes)
    half = np.random.default_rng(1).normal(size=(n, n))
    code = quadratic(network, half[0], half + half.T).code
    run = CompiledEngine(network, policy, 3, False, code)
    np.testing.assert_allclose(run.weights, np.concatenate([half[0], (half + half.T).ravel()]))  # type: ignore[arg-type]
    own = run.advance(run.first(1), 2, 5_000)
    run.loop = None
    general = run.advance(run.first(1), 2, 5_000)
    np.testing.assert_array_equal(own.replica.x, general.replica.x)
    np.testing.assert_allclose(own.rows, general.rows, rtol=1e-9)
    cubic = monomials(network, 3)
    assert (
        CompiledEngine(
            network, policy, 3, False, LinearValues(cubic, np.ones(len(cubic))).code
        ).weights
        is None
    )


def test_a_control_leaves_the_mean_where_decisions_are_made_at_events() -> None:
    """One server's events, exact cost: each interval (99.9%, fixed seed) holds it, the controlled
    one half as wide.
    """
    network = zoo.four_queue(buffers=4, decisions="per-server")
    policy = some_indices(network)
    exact = dp.evaluate_exact(network, policy).cost
    values = dp.primal.policy_values(
        network, policy, monomials(network, 2, coordinates=range(4)), seed=1
    )
    run = CompiledEngine(network, policy, 4, False, values.code)
    assert run.loop is loop_of(policy)
    assert run.weights.shape == (4 + 16,)  # type: ignore[union-attr]
    runs = [
        dp.evaluate(network, policy, control=h, steps=2_000_000, seed=4, confidence=0.999)
        for h in (None, values)
    ]
    for run in runs:
        assert run.lower <= exact <= run.upper
    assert runs[1].half_width < 0.6 * runs[0].half_width


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "own events"])
def test_a_walk_has_the_losses_and_the_shaped_losses_of_simulation(name: str) -> None:
    network, steps = NETWORKS[name](), 5_000
    policy, n = some_indices(network), len(network.classes)
    rng = np.random.default_rng(1)
    half = rng.normal(size=(n, n))
    g, matrix = rng.normal(size=n), half + half.T
    h = quadratic(network, g, matrix)
    shaped = CompiledEngine(network, policy, 3, False, h.code)
    expected = shaped.advance(shaped.first(2), 1, steps)
    states, sums, seen = (
        network.start[None, :n].copy(),
        np.empty((1, 2)),
        np.empty((1, 50, n), np.int64),
    )
    rngs, weights = (
        philox.generator(3, Stream.TRAJECTORIES, 2)[None, :],
        np.concatenate([g, matrix.ravel()]),
    )
    index_walk.walk(
        policy.code.ints,
        policy.code.floats,
        weights,
        index_walk.Walks(states, rngs, 0),
        steps,
        index_walk.Seen(steps // 50, seen, sums),
    )
    np.testing.assert_array_equal(states[0], expected.replica.x)
    np.testing.assert_array_equal(seen[0, -1], states[0])
    assert sums[0, 0] == pytest.approx(expected.rows[0, -1], rel=1e-12)
    assert sums[0, 1] == pytest.approx(expected.rows[0, 1], rel=1e-9)
    assert abs(sums[0, 1] - sums[0, 0]) > 1  # the two could be told apart


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "own events"])
def test_fitted_quadratics_solve_the_projected_equation(name: str) -> None:
    """The same weights as those of the general least squares, whose next states are listed."""
    network = NETWORKS[name]()
    policy, n = some_indices(network), len(network.classes)
    states = visited(network, policy, samples=2_000, seed=1, every=30)
    basis = monomials(network, 2, scale=1.0)
    values, drifts, losses = _one_step(network, policy, basis, states)
    general = LinearValues(
        basis, projected(values, drifts, losses, np.full(len(states), 1 / len(states)))
    )
    found = least_squares(policy, states)
    own = quadratic(network, found[:n], found[n:].reshape(n, n))
    np.testing.assert_allclose(
        quadratic_values(network, found, n)(states), own(states), rtol=1e-9, atol=1e-9
    )
    difference = own(states) - general(states)
    np.testing.assert_allclose(difference, difference[0], atol=1e-6 * np.ptp(own(states)))


def test_an_unstable_policy_has_no_control() -> None:
    """With queues that grow for ever, least squares find values that fall with the queues."""
    network = zoo.four_queue(buffers=None, services=(0.28, 0.14, 0.28, 0.14))
    policy = families.indices(network.policy("lbfs")).make(
        families.indices(network.policy("lbfs")).start
    )
    assert dp.evaluate(network, policy, steps=500_000).status is dp.Status.UNSTABLE
    assert (
        least_squares(policy, visited(network, policy, samples=4_000, seed=1, every=50)).size == 0
    )


def test_decisions_of_all_servers_cost_what_those_at_events_do() -> None:
    """A walk decides for all servers.

    The exact cost of the network that decides at events lies within 4 errors.
    """
    network = rework(decisions="per-server")
    policy = some_indices(network)
    exact = dp.evaluate_exact(network, policy).cost
    states, sums = np.tile(network.start[:3], (64, 1)), np.empty((64, 2))
    rngs = np.array([philox.generator(5, Stream.TRAJECTORIES, k) for k in range(64)])
    index_walk.walk(
        policy.code.ints,
        policy.code.floats,
        np.zeros(0),
        index_walk.Walks(states, rngs, 0),
        50_000,
        index_walk.Seen(1, np.empty((64, 0, 3), np.int64), sums),
    )
    costs = sums[:, 0] / 50_000
    error = costs.std(ddof=1) / 8
    assert abs(costs.mean() - exact) < 4 * error < 0.02 * exact


def test_trials_cost_what_policies_cost_exactly() -> None:
    """Four policies, twelve fixed seeds: exact costs within four standard errors, which the control
    halves.
    """
    network = zoo.four_queue(buffers=5)
    policies: list[Policy] = [some_indices(network, seed) for seed in range(4)]
    exact = np.array([dp.evaluate_exact(network, policy).cost for policy in policies])
    runs = []
    for seed in range(12):
        trials = make_trials(policies[-1], dp.Average(), Budget(1_000_000, 4, seed, trials=1))
        assert isinstance(trials, IndexTrials)
        runs.append(trials.costs(policies))
    found, error = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / np.sqrt(12)
    assert (np.abs(found - exact) < 4 * error).all()
    assert (error < 0.01 * exact).all()
    plain = [
        LongTrials(policies[-1], Budget(1_000_000, 4, seed, trials=1)).costs(policies)
        for seed in range(12)
    ]
    assert error[-1] < 0.5 * np.std(plain, axis=0, ddof=1)[-1] / np.sqrt(12)


def test_short_trials_know_what_is_left_in_the_queues() -> None:
    """From an empty network 2,000 steps say little of the mean.

    With the end's value a tenth of the error is left.
    """
    network = zoo.six_class()
    policy = network.policy("lbfs")
    family = families.indices(policy)
    start = family.make(family.start)
    trials = make_trials(start, dp.Average(), Budget(10_000_000, 1, 1, trials=1))
    trials.costs([start])
    weights = trials.weights  # type: ignore[union-attr]
    sums, states = np.empty((400, 2)), np.zeros((400, 6), np.int64)
    rngs = np.array([philox.generator(8, Stream.TRAJECTORIES, k) for k in range(400)])
    index_walk.walk(
        start.code.ints,
        start.code.floats,
        weights,
        index_walk.Walks(states, rngs, 0),
        2_000,
        index_walk.Seen(1, np.empty((400, 0, 6), np.int64), sums),
    )
    plain, controlled = sums.mean(axis=0) / 2_000
    assert plain < 11  # LBFS costs 14.29 ± .03
    assert abs(controlled - 14.29) < 0.1 * (14.29 - plain)


def test_kinds_of_trials_and_their_budgets() -> None:
    network = zoo.six_class()
    indices = some_indices(network)
    assert isinstance(make_trials(indices, dp.Average(), Budget(2_000_000, 4)), IndexTrials)
    assert isinstance(
        make_trials(network.policy("longer"), dp.Average(), Budget(2_000_000, 4)), LongTrials
    )
    assert isinstance(make_trials(indices, dp.Discounted(0.9), Budget(2_000_000, 4)), ManyTrials)
    for steps in (100_000, 2_000_000, 8_000_000):
        trials = make_trials(indices, dp.Average(), Budget(steps, 5))
        for _ in range(trials.trials):
            trials.costs([indices] * 5)
        assert 0.9 * steps <= trials.steps <= 1.05 * steps


def test_searches_and_evaluations_have_random_numbers_of_their_own() -> None:
    """With one seed, a trial does not see the trajectories of an evaluation, nor a choice those of
    a search.
    """
    network = zoo.six_class()
    indices, steps = some_indices(network), 50_000
    trials = make_trials(indices, dp.Average(), Budget(TRIAL_REPLICAS * steps, 1, seed=3, trials=1))
    rngs = np.array([philox.generator(3, Stream.TRAJECTORIES, k) for k in range(TRIAL_REPLICAS)])
    states, sums = np.tile(network.start, (TRIAL_REPLICAS, 1)), np.empty((TRIAL_REPLICAS, 2))
    index_walk.walk(
        indices.code.ints,
        indices.code.floats,
        np.zeros(0),
        index_walk.Walks(states, rngs, 0),
        trials.steps // TRIAL_REPLICAS,
        index_walk.Seen(1, np.empty((TRIAL_REPLICAS, 0, 6), np.int64), sums),
    )
    assert not (trials.states == states).all(axis=1).any()  # type: ignore[union-attr]
    assert (
        len(
            {
                own_seed(3, Word.SEARCH_TRIALS),
                own_seed(own_seed(3, Word.SEARCH_CHOICE), Word.SEARCH_TRIALS),
                own_seed(3, Word.SEARCH_CHOICE),
                3,
            }
        )
        == 4
    )


def test_the_deepest_of_several_valleys() -> None:
    """Of what searches proposed the best by exact costs is chosen, in whatever order they come."""
    network = zoo.four_queue(buffers=4)
    found = [
        propose(families.indices(network.policy(p)), steps=s, seed=1)
        for p, s in (("lbfs", 50_000), ("fbfs", 50_000), ("max-pressure", 3_000_000))
    ]
    exact = [dp.evaluate_exact(network, one.policy).cost for one in found]
    assert np.sort(exact)[1] > 1.02 * np.min(exact)
    best = found[int(np.argmin(exact))]
    for order in (found, found[::-1], [found[1], found[2], found[0]]):
        assert best_of(order, steps=3_000_000, seed=2) is best
    assert best_of(found[:1]) is found[0]
    with pytest.raises(InputError, match="nothing to choose"):
        best_of([])


def test_trials_of_indices_take_nothing_else() -> None:
    network = zoo.six_class()
    trials = make_trials(some_indices(network), dp.Average(), Budget(100_000, 2))
    soft = LinearIndexPolicy(network, "soft", 0.0, np.eye(6), temperature=0.1)
    for other in (
        network.policy("lbfs"),
        soft,
        some_indices(zoo.six_class(stations=2, discipline="nonpreemptive")),
    ):
        with pytest.raises(InputError, match="no linear index"):
            trials.costs([other, some_indices(network)])


def test_many_classes_have_long_trials_and_no_control() -> None:
    network = zoo.six_class(stations=6, decisions="per-server")
    policy = some_indices(network)
    trials = make_trials(policy, dp.Average(), Budget(20_000_000, 2))
    assert isinstance(trials, IndexTrials)
    assert (
        trials.trials
        == DEFAULT_TRIALS
        < make_trials(some_indices(zoo.six_class()), dp.Average(), Budget(20_000_000, 2)).trials
    )
    assert np.isfinite(trials.costs([policy, policy])).all()
    assert not trials.weights.size


def test_a_policy_taken_to_another_network_is_simulated_there() -> None:
    """Its own loop holds the rates of the network that it was made for."""
    network = zoo.criss_cross(load="medium")
    for policy in (network.policy("c-mu"), some_indices(network)):
        (found,) = dp.evaluation.sensitivity(
            network, policy, ["arrivals"], factors=(1.1,), steps=400_000
        )
        cost = dp.evaluate(network, policy, steps=400_000).cost
        assert found.points[0].cost > 1.1 * cost
        assert found.points[0].change.lower > 0
