"""Families of policies, and the search over them on the simulated cost."""

from __future__ import annotations

import numpy as np
import pytest

import dualplan as dp
from dualplan.core.errors import InputError, MissingError, PolicyError
from dualplan.dual.policy import MixturePolicy
from dualplan.models import instances as zoo
from dualplan.models.queueing import QueueClass, QueueingNetwork
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.heuristics.network import LinearIndexPolicy, linear_index, priority
from dualplan.primal import LinearValues, monomials
from dualplan.search import families
from dualplan.search.policy_search import Searched, _Strategy, cost_gradient, search


def one_server(buffers: int | None = 12) -> QueueingNetwork:
    """Two classes, one server, holding costs 1 and 3: the cμ rule (class 2 first) is optimal
    without losses.
    """
    return QueueingNetwork(
        [
            QueueClass("1", "S", 0.35, 0.08, buffers, holding=1.0),
            QueueClass("2", "S", 0.35, 0.08, buffers, holding=3.0),
        ]
    )


def states_of(network: QueueingNetwork, count: int, seed: int) -> np.ndarray:
    """States that are reached, under the random policy."""
    return dp.evaluation.simulation.CompiledEngine(
        network, network.policy("random"), seed, False
    ).visits(dp.evaluation.simulation.Replica(0, network.start.copy(), np.zeros(2), 0), count, 37)


def chances(
    network: QueueingNetwork, policy: LinearIndexPolicy, x: np.ndarray, s: int
) -> dict[int, float]:
    """The probabilities of the classes of one server, written out."""
    n = len(network.classes)
    mine = [c for c in range(n) if network.server_of[c] == s]
    served = -1
    if network.nonpreemptive and x[n + s] > 0:
        served = mine[x[n + s] - 1]
    waiting = [c for c in mine if x[c] - (c == served) > 0]
    if not waiting or (network.nonpreemptive and served < 0):
        return {mine[0]: 1.0}
    v = {c: policy.alpha[c] + policy.slopes[c] @ x[:n] for c in waiting}
    if policy.temperature == 0:
        return {max(waiting, key=lambda c: (v[c], -c)): 1.0}
    mass = {c: np.exp((v[c] - max(v.values())) / policy.temperature) for c in waiting}
    return {c: w / sum(mass.values()) for c, w in mass.items()}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(
    "options",
    [{}, {"decisions": "per-server"}, {"discipline": "nonpreemptive"}],
    ids=["joint", "own", "nonpreemptive"],
)
def test_linear_indices_are_what_their_formula_says(
    options: dict[str, str], temperature: float
) -> None:
    network = zoo.six_class(stations=2, **options)
    rng = np.random.default_rng(5)
    policy = LinearIndexPolicy(
        network, "p", rng.normal(size=6), rng.normal(size=(6, 6)), temperature=temperature
    )
    for x in states_of(network, 60, 3):
        found = policy(x)
        if network.per_server:
            expected = np.zeros(3)
            if x[-1] == 0:
                expected[0] = 1
            else:
                for c, p in chances(network, policy, x, x[-1] - 1).items():
                    expected[c % 3] = p
        else:
            expected = np.zeros(9)
            for a, p in chances(network, policy, x, 0).items():
                for b, q in chances(network, policy, x, 1).items():
                    expected[3 * a + b - 3] = p * q
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["lbfs", "c-mu", "longer-first"])
def test_an_index_rule_as_a_linear_index_chooses_the_same(name: str) -> None:
    network = zoo.six_class(stations=3, decisions="per-server")
    rule = network.policy(name)
    same = linear_index(rule)
    for x in states_of(network, 200, 4):
        if x[-1] and x[:-1][network.server_of == x[-1] - 1].any():
            np.testing.assert_array_equal(rule(x), same(x))


def test_max_pressure_as_a_linear_index_differs_in_ties_only() -> None:
    network = zoo.eight_queue(decisions="per-server")
    rule, same = network.policy("max-pressure"), linear_index(network.policy("max-pressure"))
    compared = 0
    for x in states_of(network, 300, 4):
        indices = [
            same.alpha[c] + same.slopes[c] @ x[:8]
            for c in range(8)
            if network.server_of[c] == x[-1] - 1 and x[c] > 0
        ]
        if len(indices) > 1 and np.diff(np.sort(indices))[-1] > 1e-9:
            np.testing.assert_array_equal(rule(x), same(x))
            compared += 1
    assert compared > 30


def test_quadratic_indices_are_one_look_ahead() -> None:
    network = zoo.six_class(stations=2, decisions="per-server")
    rng = np.random.default_rng(2)
    half = rng.normal(size=(6, 6)) + 3 * np.eye(6)
    linear, matrix = rng.normal(size=6), half + half.T
    basis = monomials(network, 2, scale=1.0, coordinates=range(6))
    products = [
        tuple(int(p.coordinate) for p in pieces for _ in range(int(p.p)))
        for pieces in basis.products
    ]
    weights = [
        0.0 if not k else linear[k[0]] if len(k) == 1 else matrix[k] / (2 if k[0] == k[1] else 1)
        for k in products
    ]
    ahead = GreedyPolicy(network, LinearValues(basis, np.array(weights)))
    rule = families.quadratic_index(network, linear, matrix)
    compared = 0
    for x in states_of(network, 400, 6):
        if x[-1] == 0:
            continue
        mine = [c for c in range(6) if network.server_of[c] == x[-1] - 1 and x[c] > 0]
        # else looking ahead idles
        if mine and max(rule.alpha[c] + rule.slopes[c] @ x[:6] for c in mine) > 1e-6:
            np.testing.assert_array_equal(ahead(x), rule(x))
            compared += 1
    assert compared > 50


def test_families_begin_where_they_should() -> None:
    network = zoo.four_queue(buffers=4)
    start = linear_index(network.policy("max-pressure"))
    for reach, size in (("next", 4 + 6), ("all", 4 + 16)):
        family = families.indices(network.policy("max-pressure"), reach)
        assert family.start.size == size
        assert family.make(family.start).digest == start.digest
        assert family.tried(family.start).model.per_server
    mixed = families.mixing([network.policy("lbfs"), network.policy("c-mu")], [0.25, 0.75])
    np.testing.assert_allclose(mixed.make(mixed.start).weights, [0.25, 0.75])


def test_trials_are_the_same_process() -> None:
    network = zoo.four_queue(buffers=4)
    family = families.indices(network.policy("max-pressure"))
    theta = family.start + family.scales * np.random.default_rng(0).normal(size=family.start.size)
    made, tried = family.make(theta), family.tried(theta)
    assert dp.evaluate_exact(network, made).cost == pytest.approx(
        dp.evaluate_exact(tried.model, tried).cost, rel=1e-6
    )


def test_the_strategy_finds_the_minimum_of_a_turned_quadratic() -> None:
    rng = np.random.default_rng(1)
    turn, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    widths, minimum = np.logspace(0, 2, 6), rng.normal(size=6)
    strategy = _Strategy(6, 0.5, seed=3)
    for _ in range(400):
        z = (strategy.ask() - minimum) @ turn
        strategy.tell((z**2 * widths).sum(axis=1))
    np.testing.assert_allclose(strategy.mean, minimum, atol=1e-6)


def test_the_gradient_is_that_of_the_exact_cost() -> None:
    network = zoo.four_queue(buffers=3)
    family = families.mixing(
        [network.policy(n) for n in ("longer", "lbfs", "c-mu")], [0.3, 0.3, 0.4]
    )

    def exact(theta: np.ndarray) -> float:
        return dp.evaluate_exact(network, family.make(theta)).cost

    found = cost_gradient(family, width=0.5, steps=3_000_000, seed=7, confidence=0.999)
    for i, slope in enumerate(found):
        e = np.eye(3)[i]
        quotient = exact(family.start + 0.5 * e) - exact(family.start - 0.5 * e)
        derivative = (exact(family.start + 1e-3 * e) - exact(family.start - 1e-3 * e)) / 2e-3
        assert slope.lower <= quotient <= slope.upper
        assert abs(derivative - quotient) < 0.2 * abs(derivative)
        assert slope.value == pytest.approx(derivative, rel=0.5)


def test_search_finds_the_optimum_where_the_family_holds_it() -> None:
    network = one_server()
    worst = priority(network, ["1", "2"])
    optimum = dp.evaluate_exact(network, priority(network, ["2", "1"])).cost
    before = dp.evaluate_exact(network, worst).cost
    found = search(families.indices(worst), steps=4_000_000, seed=1, confidence=0.99)
    after = dp.evaluate_exact(network, found.policy).cost
    assert found.improved
    assert before > 1.1 * optimum
    assert after <= 1.002 * optimum
    # the interval is statistical at 99%; the seed is fixed
    assert found.gain.lower <= before - after <= found.gain.upper
    assert found.steps <= 4_200_000


def test_search_depends_on_the_seed_alone() -> None:
    family = families.indices(zoo.criss_cross(load="medium").policy("longer-first"))
    first, again, other = (
        search(family, steps=1_500_000, seed=s, threads=t) for s, t in ((4, 1), (4, 2), (5, 2))
    )
    np.testing.assert_array_equal(first.theta, again.theta)
    np.testing.assert_array_equal(first.trace, again.trace)
    assert first.comparison.difference == again.comparison.difference
    assert not np.array_equal(first.trace, other.trace)


def test_what_cannot_be_improved_is_given_back() -> None:
    network = one_server()
    found = search(families.indices(priority(network, ["2", "1"])), steps=1_000_000, seed=2)
    assert not found.improved
    assert found.comparison.difference.upper >= 0
    np.testing.assert_array_equal(found.theta, found.family.start)
    assert found.policy.digest == found.family.make(found.family.start).digest


def test_an_unstable_start_is_left() -> None:
    network = zoo.four_queue(buffers=None, services=(0.28, 0.14, 0.28, 0.14))
    found: Searched = search(families.indices(network.policy("lbfs")), steps=2_500_000, seed=0)
    assert found.comparison.second.status is dp.Status.UNSTABLE
    assert found.improved
    alone = families.deciding_alone(network)
    judged = dp.evaluate(alone, found.family.tried(found.theta), steps=2_000_000, seed=9)
    assert judged.status is not dp.Status.UNSTABLE


def test_search_of_mixtures_under_discounting() -> None:
    model = zoo.garnet(states=30, actions=3, branching=3, seed=2)
    criterion = dp.Discounted(0.9)
    good = dp.solve_exact(model, criterion).policy
    parts = [dp.policies.random_policy(model), good]
    found = search(families.mixing(parts), criterion, steps=2_000_000, seed=3)
    exact = [dp.evaluate_exact(model, p, criterion).cost for p in (*parts, found.policy)]
    assert found.improved
    assert exact[1] - 1e-9 <= exact[2] < exact[1] + 0.1 * (exact[0] - exact[1])


def test_the_dual_answer_is_finished_on_the_true_cost() -> None:
    network = zoo.four_queue(buffers=3)
    features = dp.dual.features.occupancies(
        network, [network.policy(n) for n in ("longer", "lbfs", "c-mu")]
    )
    start = MixturePolicy(features, np.full(len(features), 1 / len(features)))
    family = families.dual(start)
    assert family.make(family.start).digest == start.digest
    found = search(family, steps=800_000, seed=1)
    assert found.improved
    assert dp.evaluate_exact(network, found.policy).cost < dp.evaluate_exact(network, start).cost


def test_linear_indices_are_saved(tmp_path) -> None:  # type: ignore[no-untyped-def]
    network = zoo.criss_cross()
    policy = families.quadratic_index(network, [1.0, 2.0, 3.0], np.eye(3) + 0.1)
    dp.save_policy(policy, tmp_path / "p.npz")
    again = dp.load_policy(tmp_path / "p.npz", network)
    assert again.digest == policy.digest
    assert isinstance(again, LinearIndexPolicy)  # so that it can be searched further
    np.testing.assert_array_equal(again.slopes, policy.slopes)
    for x in states_of(network, 50, 1):
        np.testing.assert_array_equal(again(x), policy(x))


def test_errors_are_sentences() -> None:
    network = zoo.criss_cross()
    family = families.indices(network.policy("lbfs"))
    for call, wrong in (
        (lambda: search(family, steps=0), "steps must be"),
        (lambda: search(family, seed=-1), "seed must be"),
        (lambda: search(family, sigma=0.0), "sigma must be"),
        (lambda: families.indices(dp.policies.random_policy(network)), "no index rule"),
        (lambda: families.indices(network.policy("lbfs"), "far"), "reach"),
        (lambda: families.mixing([network.policy("lbfs")]), "at least two policies"),
        (lambda: families.quadratic_indices(network, [1.0]), "3 linear weights"),
        (
            lambda: families.Family("f", lambda _: network.policy("lbfs"), np.ones(2), np.zeros(2)),
            "positive",
        ),
        (lambda: cost_gradient(family, at=np.zeros(1)), "parameters, got 1"),
    ):
        with pytest.raises(InputError, match=wrong):
            call()
    with pytest.raises(PolicyError, match="3 rows of 3"):
        LinearIndexPolicy(network, "p", 0.0, np.eye(2))
    with pytest.raises(PolicyError, match="temperature"):
        LinearIndexPolicy(network, "p", 0.0, np.eye(3), temperature=-1.0)
    asked = dp.policies.FunctionPolicy(
        network, lambda x: np.eye(len(network.actions))[0], name="mine"
    )
    if asked.code is None:
        with pytest.raises(MissingError, match="not compiled"):
            search(families.Family("f", lambda _: asked, np.ones(1), np.ones(1)), steps=1_000_000)


def test_shared_indices_are_max_pressure_and_what_is_left_to_do():
    """θ' = (1, 1, 0, 0, 0) serves as MaxPressure does; stages and work of a line are counted by
    hand.
    """
    network = dp.load("six-class", stations=3)
    family = families.shared_indices(network)
    theta = np.zeros(10)
    theta[5:7] = 1.0
    policy, other = family.make(theta), linear_index(network.policy("max-pressure"))
    rng = np.random.default_rng(0)
    for _ in range(200):
        x = network.state([*rng.integers(0, 6, 9).tolist(), *[0] * (network.box.dim - 9)])
        own, theirs = (p.alpha + p.slopes @ x[:9] for p in (policy, other))
        for server in range(3):
            mine = np.flatnonzero((network.server_of == server) & (x[:9] > 0))
            if mine.size:
                assert theirs[mine[own[mine].argmax()]] == pytest.approx(theirs[mine].max())
    constants, _ = families._shared_parts(network)
    # 1→4→7→2→5→8 and 3→6→9, by the names of the classes
    stages = dict(zip("123456789", [6, 3, 3, 5, 2, 2, 4, 1, 1], strict=True))
    names = [c.name for c in network.classes]
    assert constants[1] * 6 == pytest.approx([stages[name] for name in names])
    assert constants[2] == pytest.approx([1 / stages[name] for name in names])
