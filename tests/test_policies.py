"""Heuristics against their definitions written out in plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualplan as dp
from bank import average_cost, load, mm1k
from dualplan import policies
from dualplan.models.instances.parallel import ParallelServers
from dualplan.policies.greedy import GreedyPolicy

LENGTHS = st.lists(st.integers(0, 6), min_size=4, max_size=4)


def four(**options):
    return dp.load("four-queue", buffers=None, **options)


FOUR = four()


def product(first, second):
    """Joint probabilities from those of serving queue 1 (else 4) and queue 2 (else 3)."""
    return np.outer([first, 1 - first], [second, 1 - second]).ravel()


@given(LENGTHS)
def test_longer_with_uniform_ties(x):
    def pick(a, b):
        return 0.5 if a == b else float(a > b)

    assert np.array_equal(policies.longer(FOUR)(x), product(pick(x[0], x[3]), pick(x[1], x[2])))


@given(LENGTHS)
def test_longer_with_ties_to_the_lower_numbered(x):
    expected = product(float(x[0] >= x[3]), float(x[1] >= x[2]))
    assert np.array_equal(policies.longer(FOUR, ties="first")(x), expected)


@given(LENGTHS)
def test_lbfs_serves_four_and_two_unless_they_are_empty(x):
    assert np.array_equal(policies.lbfs(FOUR)(x), product(float(x[3] == 0), float(x[1] > 0)))


@given(LENGTHS)
def test_fbfs_and_c_mu_and_priority(x):
    if x[0] > 0 and x[2] > 0:
        assert np.array_equal(policies.fbfs(FOUR)(x), product(1.0, 0.0))
    if min(x) > 0:  # the fast queues 3 and 4 first
        assert np.array_equal(policies.c_mu(FOUR)(x), product(0.0, 0.0))
        assert np.array_equal(policies.priority(FOUR, ["2", "1"])(x), product(1.0, 1.0))


@given(LENGTHS)
def test_max_weight_and_max_pressure(x):
    if min(x) == 0:
        return
    w = np.array([0.12, 0.12, 0.28, 0.28]) * x
    if w[0] != w[3] and w[1] != w[2]:
        assert np.array_equal(
            policies.max_weight(FOUR)(x), product(float(w[0] > w[3]), float(w[1] > w[2]))
        )
    v = np.array([0.12 * (x[0] - x[1]), 0.12 * x[1], 0.28 * (x[2] - x[3]), 0.28 * x[3]])
    if abs(v[0] - v[3]) > 1e-9 and abs(v[1] - v[2]) > 1e-9:
        assert np.array_equal(
            policies.max_pressure(FOUR)(x), product(float(v[0] > v[3]), float(v[1] > v[2]))
        )


@given(LENGTHS, st.floats(0, 1), st.floats(0, 1))
def test_soft_longer_of_the_four_queue_network(x, p, q):
    """With probability p the longer queue, ties counting 1 and 2 as the longer.

    Else the other, empty or not.
    """
    first = p if x[0] >= x[3] else 1 - p
    second = q if x[1] >= x[2] else 1 - q
    found = policies.soft_longer(FOUR, [p, q])(x)
    if (x[0] or x[3]) and (x[1] or x[2]):
        assert found == pytest.approx(product(first, second))
    else:
        assert found.sum() == pytest.approx(1)


@given(st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_soft_longer_of_a_server_with_three_queues(x):
    net = dp.load("eight-queue", decisions="per-server")
    found = policies.soft_longer(net, [0.8, 0.5, 0.5])([*x, 1])  # server 1: queues 1, 3, 8
    mine = np.array([x[0], x[2], x[7]])
    waiting = np.flatnonzero(mine)
    if waiting.size == 0:
        assert found.sum() == pytest.approx(1)
        return
    best = waiting[np.argmax(mine[waiting])]
    assert found[best] == pytest.approx(0.8)
    others = [j for j in waiting if j != best]
    if others:
        assert found[others] == pytest.approx(0.2 / len(others))
    else:  # the rest is idling: an empty queue is served
        assert found[mine == 0].sum() == pytest.approx(0.2)


def test_no_event_of_a_server_means_no_decision():
    net = four(decisions="per-server")
    assert policies.longer(net)([1, 2, 3, 4, 0]).tolist() == [1.0, 0.0]
    assert policies.longer(net)([1, 2, 3, 4, 1]).tolist() == [0.0, 1.0]
    assert policies.longer(net)([1, 2, 3, 4, 2]).tolist() == [0.0, 1.0]


@given(LENGTHS, st.integers(0, 2), st.integers(0, 2))
def test_nonpreemptive_rules_choose_among_who_waits(x, at_first, at_second):
    net = four(discipline="nonpreemptive")
    state = [*x, at_first, at_second]
    for name in net.policies:
        net.policy(name)(state)  # raises unless these are probabilities of allowed actions


def test_random_policy_is_uniform_over_what_is_allowed():
    gate = load("admission", servers=2, room=3)
    assert gate.policies.keys() == {"threshold", "admit-all", "reject-all"}
    assert policies.random_policy(gate)([1, 1]).tolist() == [0.5, 0.5]
    assert policies.random_policy(gate)([3, 1]).tolist() == [1.0, 0.0]


def test_admission_to_free_servers_only_is_erlangs_loss():
    """Rejections of M/M/c/c: cost = λ·r·B(c, a) + holding·a·(1 − B)."""
    gate = dp.load(
        "admission", servers=3, room=6, arrivals=(1.0, 1.5), rejection=(4.0, 4.0), service=1.0
    )
    a = 2.5
    blocking = (a**3 / 6) / (1 + a + a**2 / 2 + a**3 / 6)
    expected = a * 4.0 * blocking + a * (1 - blocking)
    assert average_cost(gate, gate.policy("threshold")) == pytest.approx(expected, abs=1e-8)


def test_base_stock_orders_up_to_its_level():
    model = load("lost-sales")
    rule = policies.base_stock(model, 20)
    assert int(np.argmax(rule([5, 3, 2, 4]))) == 6
    assert int(np.argmax(rule([20, 3, 2, 4]))) == 0
    capped = policies.capped_base_stock(model, 20, 5)
    assert int(np.argmax(capped([5, 3, 2, 4]))) == 5


def test_myopic_minimises_the_cost_of_the_arrival_period():
    """Against enumeration of the demands of two periods (lead time 2)."""
    model = load("lost-sales", lead_time=2, demand=1.0, capacity=8, max_order=6)
    pmf, demand = model.pmf, np.arange(model.pmf.size)
    for x in ([0, 0], [3, 1], [1, 4]):
        stock = np.zeros(9)
        for d1, p1 in enumerate(pmf):
            for d2, p2 in enumerate(pmf):
                left = max(max(x[0] - d1, 0) + x[1] - d2, 0)
                stock[left] += p1 * p2
        costs = [
            sum(
                q
                * (pmf * (np.maximum(i + z - demand, 0) + 4 * np.maximum(demand - i - z, 0))).sum()
                for i, q in enumerate(stock)
            )
            for z in range(min(6, 8 - sum(x)) + 1)
        ]
        assert int(np.argmax(policies.myopic(model)(x))) == int(np.argmin(costs))


def test_policies_from_tables_and_functions_agree():
    model = mm1k()
    table = policies.TablePolicy(model, np.zeros(6, int))
    function = policies.FunctionPolicy(model, lambda x: 0)
    python = policies.FunctionPolicy(model, lambda x: int(str(0)))  # cannot be compiled
    assert (function.code.ints.size, function.code.floats.size) == (
        0,
        0,
    )  # compiled, with no data of its own
    assert python.code is None
    for x in range(6):
        assert table([x]).tolist() == function([x]).tolist() == python([x]).tolist() == [1.0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda m: policies.TablePolicy(m, np.full((256, 4), 0.2)),
            r"at state \(0, 0, 0, 0\).*sum to 0.8",
        ),
        (
            lambda m: policies.TablePolicy(m, np.zeros(3, int)),
            r"shape \(3,\); expected \(256, 4\) or \(256,\)",
        ),
        (lambda m: policies.TablePolicy(m, np.full(256, 9)), "integers from 0 to 3"),
        (lambda m: policies.FunctionPolicy(m, lambda x: 7), "actions are numbered 0 to 3"),
        (
            lambda m: policies.FunctionPolicy(m, lambda x: [0.5, 0.5]),
            "gives 2 numbers for 4 actions",
        ),
        (
            lambda m: policies.FunctionPolicy(m, lambda x: [0.5, 0.5, 0.5, 0.0])([0, 0, 0, 0]),
            "sum to 1.5, not 1",
        ),
        (lambda m: policies.priority(m, ["9"]), "unknown class '9'"),
        (lambda m: policies.soft_longer(m, 1.5), r"must lie in \[0, 1\], got 1.5"),
        (lambda m: policies.soft_longer(m, [0.5] * 3), "one number or 2 of them, got 3"),
        (lambda m: m.policy("longest"), "did you mean 'longer'"),
    ],
)
def test_mistakes(make, words):
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        make(dp.load("four-queue", buffers=3))
    assert "\n" not in str(caught.value)


def test_a_policy_that_chooses_what_is_not_allowed():
    gate = load("admission")
    with pytest.raises(
        dp.errors.PolicyError, match=r"chooses action 1 \(admit\), which is not allowed there"
    ):
        policies.FunctionPolicy(gate, lambda x: 1)([0, 0])
    with pytest.raises(dp.errors.PolicyError, match="not allowed there"):
        dp.evaluate(gate, policies.FunctionPolicy(gate, lambda x: 1), steps=10_000)
    with pytest.raises(dp.errors.PolicyError, match=r"sum to 1\.5, not 1"):
        dp.evaluate(
            gate, policies.FunctionPolicy(gate, lambda x: np.array([1.0, 0.5])), steps=10_000
        )


def test_rules_of_parallel_servers_by_hand():
    """At its event a server takes, of the classes that it serves and that wait, the longest, the
    one of largest cost times rate, or the one of largest cost times rate times length.
    """
    model = ParallelServers(
        arrivals=[0.5, 0.5], services=[[1.0, 0.6], [0.0, 1.0]], holding=[1.0, 2.0], buffers=9
    )
    chosen = {
        (5, 4, 1): {"longest": 0, "c-mu": 1, "max-weight": 0},
        (3, 4, 1): {"longest": 1, "c-mu": 1, "max-weight": 1},
        (5, 0, 1): {"longest": 0, "c-mu": 0, "max-weight": 0},
        (5, 1, 2): {"longest": 1, "c-mu": 1, "max-weight": 1},
    }
    for x, actions in chosen.items():
        for name, a in actions.items():
            assert model.policy(name).probabilities(np.array(x))[a] == 1.0


def test_a_look_at_more_outcomes_than_are_remembered_is_the_dense_one():
    """Eight hundred outcomes a state, of which 256 are remembered."""
    model = dp.load("lost-sales", lead_time=2, demand=12.0)
    outcomes = model.code.max_outcomes * len(model.actions)
    assert outcomes > 2 * 256
    rng = np.random.default_rng(4)
    values = dp.primal.LinearValues(dp.primal.monomials(model, 3), rng.normal(size=10))
    greedy = GreedyPolicy(model, values, 1.0)
    for x in rng.integers(0, model.box.upper + 1, size=(40, 2)):
        costs = {}
        for a in range(len(model.actions)):
            if model.code.allowed(model.code.ints, model.code.floats, x, a):
                law = model.forward(x, a)
                ahead = float(law.probabilities @ values(np.asarray(law.states)))
                costs[a] = model.loss(x, a) + ahead
        best = min(costs, key=costs.get)
        assert costs[int(np.argmax(greedy(x)))] == pytest.approx(costs[best], rel=1e-9)
