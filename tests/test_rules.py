"""Readable rules: what is a small tree is found exactly, and what a rule costs is what it costs."""

import itertools
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualplan as dp
from dualplan.core.errors import InputError, PolicyError, RunError
from dualplan.models.instances.admission import AdmissionControl
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.heuristics.admission import threshold
from dualplan.policies.heuristics.network import priority
from dualplan.policies.rule_words import action_words
from dualplan.policies.tables import FunctionPolicy
from dualplan.report.rules import Node, Rule, readable
from dualplan.report.rules.decisions import Looks, choices_of, costs_of, orders_of
from dualplan.report.rules.trees import Sample, grow, prune
from dualplan.values.basis import power
from dualplan.values.functions import state_function

readable_module = sys.modules["dualplan.report.rules.readable"]  # its function has the same name


# -- trees -----------------------------------------------------------------------------------------


def sample(seed, n=60, columns=3, choices=3):
    rng = np.random.default_rng(seed)
    return Sample(rng.integers(0, 6, (n, columns)), rng.exponential(size=(n, choices)))


def cheapest_test(data):
    """Of all tests the one that costs least, by trying all."""
    best = np.inf
    for j in range(data.numbers.shape[1]):
        for t in range(1, 6):
            passed = data.numbers[:, j] >= t
            best = min(
                best,
                sum(data.costs[part].sum(axis=0).min() for part in (passed, ~passed) if part.any()),
            )
    return best


@pytest.mark.parametrize("seed", range(5))
def test_the_best_test_is_found(seed):
    data = sample(seed)
    assert data.splits(np.arange(60))[0].cost == pytest.approx(cheapest_test(data))


@pytest.mark.parametrize("seed", range(5))
def test_more_leaves_never_cost_more(seed):
    data = sample(seed)
    root = grow(data, 24)
    costs = []
    for size in range(24, 0, -1):
        prune([root], size)
        assert root.leaves == size
        costs.append(root.total)
    assert np.all(np.diff(costs) >= -1e-12)
    assert costs[-1] == pytest.approx(data.costs.sum(axis=0).min())


def test_tests_that_help_only_together_are_found():
    grid = np.array(list(itertools.product(range(6), repeat=2)))
    odd = (grid[:, 0] >= 3) ^ (grid[:, 1] >= 3)
    root = grow(Sample(grid, np.column_stack([odd, ~odd]).astype(float)), 12)
    prune([root], 4)
    assert (root.leaves, root.total) == (4, 0.0)


# -- policies that are trees -----------------------------------------------------------------------


def same_where_it_goes(rule, policy):
    """The two do the same in all states that the policy reaches with a positive frequency."""
    model, found = policy.model, dp.evaluate_exact(policy.model, policy)
    seen = model.box.states(found.reached[found.occupancy > 1e-12])
    return all(_does(model, x, rule(x)) == _does(model, x, policy(x)) for x in seen)


def exactly_found(rule, policy):
    known = rule.simplification
    assert known.agreement == pytest.approx(1.0, abs=1e-12)
    assert known.difference.value == pytest.approx(0.0, abs=1e-9)
    assert known.within
    assert known.exact
    return same_where_it_goes(rule, policy)


@pytest.fixture(scope="module")
def gate():
    return AdmissionControl(servers=2, room=8)


@pytest.fixture(scope="module")
def small():
    return dp.load("four-queue", buffers=3)


@pytest.mark.parametrize("levels", [(6, 3), (2, 5), (4, 4)])
def test_thresholds_are_found(gate, levels):
    policy = threshold(gate, levels)
    rule = readable(gate, policy, tol=0.0)
    assert exactly_found(rule, policy)
    assert rule.leaves <= 4
    for level in set(levels):
        assert f"in system >= {level}" in rule.text()


@pytest.mark.parametrize("order", [("4", "3"), ("4", "2"), ("1", "3"), ("1", "2")])
def test_priorities_are_found(small, order):
    policy = priority(small, order)
    rule = readable(small, policy, tol=0.0)
    assert exactly_found(rule, policy)
    last = {"1": "4", "4": "1", "2": "3", "3": "2"}
    first, second = order
    assert (
        rule.text()
        == f"S1:\n    serve {first}, else {last[first]}\nS2:\n    serve {second}, else {last[second]}"
    )


def test_a_comparison_of_queues_is_found(small):
    policy = small.policy("longer-first")
    rule = readable(small, policy, tol=0.0)
    assert exactly_found(rule, policy)
    assert "if queue 1 >= queue 4: serve 1, else 4" in rule.text()
    assert rule.leaves == 4


def test_idling_beside_waiting_customers_is_found():
    """Server 1 holds queue 1 back while there are 2 customers or more at the next queue."""
    model = dp.load("four-queue", buffers=3)

    def held(x):
        first = 2 if x[3] > 0 or x[1] >= 2 else 0  # 4, which is empty, or 1
        return first + (1 if x[2] > 0 else 0)

    policy = FunctionPolicy(model, held)
    rule = readable(model, policy, tol=0.0)
    assert exactly_found(rule, policy)
    assert "if queue 2 >= 2: serve 4, else idle" in rule.text()


def test_decisions_per_server_are_found():
    model = dp.load("four-queue", buffers=2, decisions="per-server")
    rule = readable(model, model.policy("longer-first"), tol=0.0)
    assert exactly_found(rule, model.policy("longer-first"))


def test_without_bounds_by_simulation():
    model = dp.load("criss-cross", load="medium")
    policy = FunctionPolicy(
        model, lambda x: 0 if x[0] > 0 and (x[2] < 2 or x[1] == 0) else 1, name="starving"
    )
    rule = readable(model, policy, tol=0.0, steps=400_000, samples=5_000)
    known = rule.simplification
    assert known.known == "measured"
    assert (known.difference.value, known.agreement) == (0.0, 1.0)
    assert rule.text().splitlines()[1:3] == [
        "    if queue 3 >= 2: serve 2, else 1",
        "    otherwise: serve 1, else 2",
    ]


def test_sixty_queues():
    """About 10^79 states: work does not grow with their number."""
    model = dp.load("six-class", stations=20, decisions="per-server", buffers=20)
    assert model.box.count > 10**75
    policy = model.policy("lbfs")
    rule = readable(model, policy, tol=0.0, steps=1_000_000, samples=8_000)
    assert rule.leaves == 20
    assert rule.simplification.agreement == 1.0
    assert rule.simplification.difference.value == 0.0
    assert rule.text().startswith(
        "S1:\n    serve 2, else 3, else 1\nS2:\n    serve 5, else 6, else 4\n"
    )


def test_a_simulator_has_rules_too():
    def step(x, a, rng):
        up = rng.random() < 0.4
        return x + (1 if up and a == 1 else -1 if not up and x[0] > 0 else 0), float(x[0]) + 3.0 * (
            a == 0
        )

    model = dp.SimulatorModel(
        lower=[0],
        upper=[10],
        actions=["reject", "admit"],
        step=step,
        allowed=lambda x, a: a == 0 or x[0] < 10,
        coordinates=["waiting"],
    )
    rule = readable(
        model, FunctionPolicy(model, lambda x: int(x[0] < 3)), tol=0.0, steps=4_000, samples=400
    )
    assert rule.text().splitlines()[:2] == ["if waiting >= 3: reject", "otherwise: admit"]
    assert rule.simplification.difference.value == 0.0


# -- the criterion ---------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)])
def test_the_criterion_is_the_difference_of_costs(small, criterion):
    """Σ_x μ_T(x) r(x, T(x)) of a rule T against an optimal policy is what T costs more."""
    best = dp.solve_exact(small, criterion, tol=1e-10)
    own = dp.evaluate_exact(small, best.policy, criterion, everywhere=True)
    gamma = criterion.gamma
    rule = Rule(small, [(Node(order=(1, 0)),), (Node(order=(0, 1)),)])
    found = dp.evaluate_exact(small, rule, criterion)
    looks = Looks(state_function(small, own.values), gamma, small.box.upper)
    states = small.box.states(found.reached)
    choices = choices_of(small, best.policy, states, looks)
    total = 0.0
    for server, order in zip(choices, ((1, 0), (0, 1)), strict=True):
        total += costs_of(server, found.occupancy, [order])[1].sum()
    assert found.cost - own.cost > 0.01
    assert total == pytest.approx(found.cost - own.cost, rel=1e-4)


def test_orders_are_all_orders_of_few_classes(small):
    states = small.box.states(np.arange(256))
    choices = choices_of(small, small.policy("longer"), states, None)
    assert sorted(orders_of(choices[0], np.ones(256), True)) == [(0, 1), (1, 0)]


# -- ten thousand states ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    model = dp.load("four-queue", buffers=9)
    return model, dp.solve_exact(model, tol=1e-4)


def chain_cost(policy):
    """The average number of customers under a policy of four-queue with buffers of 9, from the
    words of its text.
    """
    states = np.array(list(itertools.product(range(10), repeat=4)))
    numbers = np.arange(len(states))
    actions = np.array([np.argmax(policy.probabilities(x)) for x in states])
    rows, columns, chances = [], [], []

    def event(chance, fits, step):
        after = numbers + np.where(fits, step, 0)
        (
            rows.append(numbers),
            columns.append(after),
            chances.append(np.broadcast_to(chance, after.shape)),
        )

    event(0.08, states[:, 0] < 9, 1000)
    event(0.08, states[:, 2] < 9, 10)
    first, third = actions < 2, actions % 2 == 1
    moved = np.where(first, (states[:, 0] > 0) & (states[:, 1] < 9), states[:, 3] > 0)
    event(np.where(first, 0.12, 0.28), moved, np.where(first, -1000 + 100, -1))
    moved = np.where(third, (states[:, 2] > 0) & (states[:, 3] < 9), states[:, 1] > 0)
    event(np.where(third, 0.28, 0.12), moved, np.where(third, -10 + 1, -100))
    matrix = sp.csr_array(
        (np.concatenate(chances), (np.concatenate(rows), np.concatenate(columns)))
    )
    matrix = matrix + sp.diags_array(1 - matrix.sum(axis=1))
    law = np.full(len(states), 1 / len(states))
    backward = sp.csr_array(matrix.T)
    for _ in range(20_000):
        law = backward @ law
    assert np.abs(backward @ law - law).sum() < 1e-12
    return float(law @ states.sum(axis=1))


def test_the_optimum_of_ten_thousand_states_as_a_rule(large):
    model, best = large
    rule = readable(model, best.policy, leaves=4)
    known = rule.simplification
    assert rule.leaves <= 4
    assert known.within
    assert known.policy_cost == pytest.approx(8.1053, abs=1e-3)
    truth = chain_cost(rule), chain_cost(best.policy)
    assert known.cost == pytest.approx(truth[0], abs=1e-7)
    assert known.difference.value == pytest.approx(truth[0] - truth[1], abs=1e-7)


def test_a_simulated_difference_covers_the_exact_one(large, monkeypatch):
    model, best = large
    monkeypatch.setattr(readable_module, "few_states", lambda model: False)
    rule = readable(
        model, best.policy, leaves=2, steps=1_000_000, samples=4_000, rounds=1, values=best.values
    )
    known = rule.simplification
    exact = dp.evaluate_exact(model, rule).cost - dp.evaluate_exact(model, best.policy).cost
    assert known.known == "measured"
    assert known.difference.lower <= exact <= known.difference.upper
    assert known.difference.half_width < 0.5
    again = readable(
        model, best.policy, leaves=2, steps=1_000_000, samples=4_000, rounds=1, values=best.values
    )
    assert (again.digest, again.simplification) == (rule.digest, known)


@pytest.mark.parametrize("status", [dp.Status.TOO_SHORT, dp.Status.COMPLETED])
def test_a_run_that_is_too_short_puts_no_rule_within_the_tolerance(monkeypatch, tmp_path, status):
    """Rule and policy are the same, so the difference is 0.

    Of a run that is too short that says nothing.
    """

    def pair(*args, **settings):
        return replace(dp.compare(*args, **settings), status=status)

    model = dp.load("criss-cross", load="medium")
    monkeypatch.setattr(readable_module, "compare", pair)
    rule = readable(model, model.policy("lbfs"), leaves=2, rounds=1, steps=40_000, samples=1_000)
    known, good = rule.simplification, status is dp.Status.COMPLETED
    assert known.difference.value == 0.0
    assert (known.status, known.within) == (status, good)
    assert ("too short to forget its start" in str(known)) is not good
    found = readable_module._Found(rule, known.difference, status)
    assert found.fits(0.01) is good
    assert found.rank(0.01)[0] == (0 if good else 1)
    dp.save_policy(rule, tmp_path / "rule.npz")
    assert dp.load_policy(tmp_path / "rule.npz").simplification == known


def test_a_rule_of_an_unstable_run_does_not_fit(small):
    rule = Rule(small, [(Node(order=(0, 1)),), (Node(order=(0, 1)),)])
    for status in (dp.Status.UNSTABLE, dp.Status.INTERRUPTED, dp.Status.FEW_CYCLES):
        assert not readable_module._Found(rule, dp.Interval(0.0, -0.1, 0.1, 0.95), status).fits(1.0)


def test_an_interrupted_comparison_ends_the_search_of_a_rule(monkeypatch):
    def pair(*args, **settings):
        return replace(dp.compare(*args, **settings), status=dp.Status.INTERRUPTED)

    model = dp.load("criss-cross", load="medium")
    monkeypatch.setattr(readable_module, "compare", pair)
    with pytest.raises(KeyboardInterrupt):
        readable(model, model.policy("lbfs"), leaves=2, rounds=1, steps=20_000, samples=1_000)


# -- rules as policies -----------------------------------------------------------------------------


OPTIONS = [
    {"decisions": "per-server"},
    {"discipline": "nonpreemptive"},
    {"discipline": "nonpreemptive", "decisions": "per-server"},
    {"idling": True},
    {"dynamics": "bernoulli", "full": "lose", "phantom": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_rules_of_all_networks_are_policies(options):
    """In every state the choice is allowed, and is that of the priorities on its side of the
    test.
    """
    model = dp.load("four-queue", buffers=2, **options)
    sizes = [len(c) for c in model.choices]
    up, down = tuple(range(sizes[0])), tuple(range(sizes[0]))[::-1]
    test = Node(((1, 1), (2, -1)), 1, 1, 2)
    rule = Rule(model, [(test, Node(order=up), Node(order=down)), (Node(order=down),)])
    priorities = {}
    if "idling" not in options and "phantom" not in options:
        names = [[model.class_names[c] for c in own] for own in model.choices]
        for passed, first in ((True, names[0]), (False, names[0][::-1])):
            priorities[passed] = priority(model, [*first, *names[1][::-1]])
    for x in itertools.product(*(range(u + 1) for u in model.box.upper)):
        chosen = rule(x)  # raises if it is not allowed
        if priorities and model.box.contains(np.array(x)) and _possible(model, x):
            expected = priorities[x[1] - x[2] >= 1](x)
            assert _does(model, x, chosen) == _does(model, x, expected), x


def _possible(model, x):
    """Non-preemptive: whoever is in service is there."""
    if not model.nonpreemptive:
        return True
    places = x[len(model.classes) : len(model.classes) + len(model.servers)]
    return all(p == 0 or x[model.choices[s][p - 1]] > 0 for s, p in enumerate(places))


def _does(model, x, chances):
    return action_words(model, np.array(x), int(np.argmax(chances)))


def followed(words, lengths, served_empty):
    """What a leaf says in words: the class that is served, or None.

    `lengths` are those of the server's queues.
    """
    first, _, rest = words.partition(" if one of its queues is empty, else ")
    if rest:
        return None if min(lengths.values()) == 0 else followed(rest, lengths, served_empty)
    for name in first.removeprefix("serve ").split(", else "):
        if name == "idle":
            return None
        if lengths[name] > 0 or served_empty:
            return name
    return None


LEAVES = [
    ("four-queue", {"buffers": 2}),
    ("four-queue", {"buffers": 2, "decisions": "per-server"}),
    ("four-queue", {"buffers": 2, "idling": True}),
    ("four-queue", {"buffers": 1, "discipline": "nonpreemptive"}),
    ("four-queue", {"buffers": 2, "dynamics": "bernoulli", "full": "lose", "phantom": True}),
    ("six-class", {"buffers": 1}),
    ("criss-cross", {"buffers": 2}),
]


@pytest.mark.parametrize(("name", "options"), LEAVES)
def test_the_words_of_a_leaf_are_what_is_done(name, options):
    """Every order of choices, idling among them, in all states: whom the words serve, the action
    serves.
    """
    model = dp.load(name, **options)
    wide = max(len(own) for own in model.choices) + 1
    phantom, servers = bool(model.options["phantom"]), len(model.servers)
    states = [
        x
        for x in itertools.product(*(range(u + 1) for u in model.box.upper))
        if _possible(model, x)
    ]
    for ranked in itertools.permutations(range(wide)):
        orders = [tuple(k for k in ranked if k <= len(own)) for own in model.choices]
        rule = Rule(model, [(Node(order=order),) for order in orders])
        words = [line.strip() for line in rule.text().splitlines()[1::2]]
        for x in states:
            done = action_words(model, np.array(x), int(np.argmax(rule(x)))).split(
                ", "
            )  # raises if it is not allowed
            deciding = range(servers) if not model.per_server else [x[-1] - 1] if x[-1] else []
            for does, s in zip(done, deciding, strict=False):
                lengths = {
                    model.class_names[c]: waiting(model, x, s, c)
                    for c in model.choices[s]
                    if c >= 0
                }
                busy = not model.nonpreemptive or x[len(model.classes) + s] > 0
                served = followed(words[s], lengths, phantom) if busy else None
                assert does == f"{model.servers[s]} {_told(model, served)}", (orders, x)


def waiting(model, x, s, c):
    """Customers of class c beside the one in service."""
    inside = model.nonpreemptive and x[len(model.classes) + s] == model.choices[s].index(c) + 1
    return x[c] - inside


def _told(model, served):
    if model.nonpreemptive:
        return "has nobody to choose" if served is None else f"takes {served} next"
    return "idles" if served is None else f"serves {served}"


def test_a_rule_is_saved_as_it_is(small, tmp_path):
    policy = dp.solve_exact(small).policy
    rule = dp.report.readable(small, policy, tol=0.0)
    dp.save_policy(rule, tmp_path / "rule.npz")
    loaded = dp.load_policy(tmp_path / "rule.npz")
    assert isinstance(loaded, dp.report.Rule)
    assert (loaded.digest, str(loaded), loaded.trees) == (rule.digest, str(rule), rule.trees)
    assert loaded.simplification == rule.simplification
    assert all(np.array_equal(loaded(x), rule(x)) for x in small.box.states(np.arange(256)))


def test_a_rule_of_actions_is_saved_as_it_is(gate, tmp_path):
    rule = dp.report.readable(gate, threshold(gate, (5, 2)))
    dp.save_policy(rule, tmp_path / "rule.npz")
    assert dp.load_policy(tmp_path / "rule.npz", gate).digest == rule.digest
    same = dp.compare(gate, rule, dp.load_policy(tmp_path / "rule.npz", gate), steps=50_000)
    assert same.difference.value == 0.0


def test_a_damaged_rule_is_refused(small, tmp_path):
    rule = Rule(small, [(Node(order=(0, 1)),), (Node(order=(0, 1)),)])
    dp.save_policy(rule, tmp_path / "rule.npz")
    with np.load(tmp_path / "rule.npz") as file:
        header = json.loads(str(file["header"]))
    header["trees"][0][0]["order"] = [0, 7]
    np.savez(tmp_path / "bad.npz", header=np.array(json.dumps(header)))
    with pytest.raises(RunError, match="no saved policy"):
        dp.load_policy(tmp_path / "bad.npz")


def test_features_of_the_user(small):
    def weighted(x):
        first = 0 if x[0] > 0 and (x[0] + 2 * x[1] >= 4 or x[3] == 0) else 2
        return first + (0 if x[1] >= x[2] and x[1] > 0 else 1)

    sums = [{"1": 1, "2": 2}, {"2": 1, "3": -1}]
    rule = readable(small, FunctionPolicy(small, weighted), tol=0.0, features=sums)
    assert "if 1 × queue 1 + 2 × queue 2 >= 4: serve 1, else 4" in rule.text()
    assert exactly_found(rule, FunctionPolicy(small, weighted))


def test_values_of_a_greedy_policy_weigh_its_decisions():
    """q of Σx²: to serve class c, of rate μ/Λ, saves (μ/Λ)·(2x_c − 1), and moves a customer to the
    next queue.
    """
    model = dp.load("criss-cross", load="medium")
    squares = dp.primal.products(model, [[power(i, 2)] for i in range(3)])
    policy = GreedyPolicy(model, dp.primal.LinearValues(squares, np.ones(3)))
    judge = readable_module._Judge(model, policy, dp.Average(), 1, 0, None)
    looks = readable_module._looks(model, policy, dp.Average(), None, judge)
    assert looks.values is policy.values
    x = np.array([[3, 2, 1]])
    server = choices_of(model, policy, x, looks)[0]
    serve_first, serve_second = 2.0 * (-5 + 3), 2.0 * -3
    assert server.apart[0, :2] == pytest.approx([(serve_first - serve_second) / model.rate, 0.0])


def test_the_label_of_an_action(small, gate):
    assert priority(small, ["4", "3"]).act((1, 0, 2, 1)) == "4+3"
    assert threshold(gate, (5, 2)).act((3, 2)) == "reject"
    assert threshold(gate, (5, 2)).act((3, 1)) == "admit"
    with pytest.raises(InputError, match="outside the box"):
        small.policy("longer").act((9, 0, 0, 0))


def test_errors_are_one_sentence(small, gate):
    policy = small.policy("longer")
    for arguments, words in [
        ({"leaves": 0}, "leaves must be a whole number"),
        ({"tol": -1}, "tol must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"features": [{"9": 1}]}, "unknown coordinate"),
        ({"features": [{"1": 0.5}]}, "whole number"),
        ({"values": np.zeros(3)}, "values over all states"),
    ]:
        with pytest.raises(InputError, match=words) as error:
            readable(small, policy, **arguments)
        assert str(error.value).count("\n") == 0
    with pytest.raises(PolicyError, match="another model"):
        readable(gate, policy)
    with pytest.raises(PolicyError, match="needs 2 trees"):
        Rule(small, [(Node(order=(0, 1)),)])
    with pytest.raises(PolicyError, match="leads nowhere"):
        Rule(small, [(Node(((0, 1),), 1, 0, 0),), (Node(order=(0, 1)),)])
