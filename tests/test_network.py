"""Networks in every dynamics against a second, plain implementation, and the laws that tie their
parts together.
"""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dualplan as dp
from bank import average_cost, chain, networks
from dualplan.models.check import _check_transpose, check_model

# -- a second implementation, from the words of models/queueing.py, in dictionaries and recursion --


def clip(value, buffer):
    return max(0, min(value, buffer))


def plain_law(net, x, a):
    """The law of the next state of a preemptive network with joint decisions."""
    o = net.options
    rate = net.rate if o["time"] == "continuous" else 1.0
    classes, names = net.classes, list(net.class_names)
    served = net.actions[a].split("+")
    served = [None if c == "-" else names.index(c) for c in served]
    buffers = [np.inf if c.buffer is None else c.buffer for c in classes]
    routes = []
    for c in classes:
        listed = [(names.index(t), p) for t, p in c.route.items()]
        routes.append([*listed, (None, 1 - sum(p for _, p in listed))])

    def settle(arrived, moves):
        """moves: (class, destination); departures before admissions downstream, or sum and clip."""
        y = list(x)
        for c, d in moves:
            if x[c] == 0 and not o["phantom"]:
                continue
            if o["full"] == "block" and d is not None and y[d] - (d == c) >= buffers[d]:
                continue
            y[c] -= 1
            if d is not None:
                y[d] += 1
        for c in arrived:
            if o["full"] == "lose" or y[c] < buffers[c]:
                y[c] += 1
        return tuple(clip(v, b) for v, b in zip(y, buffers, strict=True))

    law = defaultdict(float)
    if o["dynamics"] == "uniformized":
        rest = 1.0
        for c, k in enumerate(classes):
            if k.arrival:
                law[settle([c], [])] += k.arrival / rate
                rest -= k.arrival / rate
        for c in served:
            if c is not None:
                for d, p in routes[c]:
                    law[settle([], [(c, d)])] += classes[c].service / rate * p
                    rest -= classes[c].service / rate * p
        law[x] += rest
        return law
    order = downstream_first(routes)
    sources = [c for c, k in enumerate(classes) if k.arrival]
    options = [
        [(None, 1 - classes[c].service), *((d, classes[c].service * p) for d, p in routes[c])]
        if c is not None
        else [(None, 1.0)]
        for c in served
    ]
    for bits in itertools.product([0, 1], repeat=len(sources)):
        p0 = np.prod(
            [
                classes[c].arrival if b else 1 - classes[c].arrival
                for c, b in zip(sources, bits, strict=True)
            ]
        )
        for picks in itertools.product(*(range(len(q)) for q in options)):
            p = p0 * np.prod([q[i][1] for q, i in zip(options, picks, strict=True)])
            moves = [(c, q[i][0]) for c, q, i in zip(served, options, picks, strict=True) if i > 0]
            moves.sort(key=lambda m: order.index(m[0]))
            law[settle([c for c, b in zip(sources, bits, strict=True) if b], moves)] += p
    return law


def downstream_first(routes):
    left, order = list(range(len(routes))), []
    while left:
        ready = [
            i
            for i in left
            if all(d is None or p <= 0 or d == i or d not in left for d, p in routes[i])
        ]
        order.append(ready[0] if ready else left[-1])
        left.remove(order[-1])
    return order


@given(networks(discipline="preemptive", decisions="joint"))
def test_forward_is_the_plain_law(net):
    for i in range(net.box.count):
        x = net.box.state(i)
        for a in range(len(net.actions)):
            expected = {
                y: p for y, p in plain_law(net, tuple(int(v) for v in x), a).items() if p > 1e-13
            }
            row = net.forward(x, a)
            found = {
                tuple(y): p for y, p in zip(row.states.tolist(), row.probabilities, strict=True)
            }
            assert found.keys() == expected.keys()
            assert all(abs(found[y] - p) < 1e-12 for y, p in expected.items())


# -- laws that tie forward, predecessors and simulator together ------------------------------------


@given(networks(), st.integers(0, 2**32 - 1))
def test_rows_sum_to_one_and_predecessors_are_the_transpose(net, seed):
    """On random states of the whole box, in every dynamics, discipline and kind of decision."""
    rng = np.random.default_rng(seed)
    for _ in range(15):
        x = net.box.state(int(rng.integers(net.box.count)))
        may = np.flatnonzero(net.allowed(x))
        assert may.size > 0
        a = int(rng.choice(may))
        assert abs(net.forward(x, a).probabilities.sum() - 1) < 1e-12
        _check_transpose(net, x, a, None)


@given(networks(max_classes=3))
def test_all_predecessors_together_are_all_rows(net):
    """Σ_y over the lists of predecessors = Σ over the rows: nothing is missed on small boxes."""
    if net.box.count * len(net.actions) > 600:
        return
    backward = sum(
        net.predecessors(net.box.state(i)).probabilities.sum() for i in range(net.box.count)
    )
    allowed = sum(int(net.allowed(net.box.state(i)).sum()) for i in range(net.box.count))
    assert backward == pytest.approx(allowed, abs=1e-9)


@settings(max_examples=25)
@given(networks(), st.integers(0, 1000))
def test_simulator_draws_from_the_forward_law(net, seed):
    """check_model's chi-square test at p >= 1e-6 and its check that no draw leaves the list."""
    report = check_model(net, pairs=40, seed=seed)
    assert report.ok, report.problem
    assert report.simulator_p_value >= 1e-6


@settings(max_examples=30)
@given(
    networks(
        dynamics="uniformized",
        decisions="joint",
        discipline="preemptive",
        phantom=False,
        max_classes=3,
    ),
    st.floats(0.2, 1.0),
)
def test_joint_and_per_server_decisions_are_one_process(net, p):
    """The chain of queue lengths under the same rule per server has the same law in both forms."""
    split = dp.QueueingNetwork(net.classes, **{**net.options, "decisions": "per-server"})
    rule = {"beta": 1.0, "probability": p, "ties": "first"}
    joint, _ = chain(net, dp.policies.NetworkPolicy(net, "rule", **rule))
    pairs, _ = chain(split, dp.policies.NetworkPolicy(split, "rule", **rule))
    n, events = net.box.count, len(net.servers) + 1
    scale = net.rate if net.options["time"] == "continuous" else 1.0
    fastest = [max(c.service for c in net.classes if c.server == s) / scale for s in net.servers]
    pending = np.array([1 - sum(fastest), *fastest])  # the law of the pending event
    merged = np.einsum("e,xeyf->xy", pending, pairs.reshape(n, events, n, events))
    assert np.abs(merged - joint).max() < 1e-12


def test_nonpreemptive_joint_and_per_server_have_one_cost():
    """A two-class server with a router, priorities to class 2: exact average costs agree."""
    classes = [
        dp.QueueClass("1", "A", 0.3, 0.12, 3, route={"2": 0.5}),
        dp.QueueClass("2", "A", 0.25, 0.05, 3),
    ]
    costs = []
    for decisions in ("joint", "per-server"):
        net = dp.QueueingNetwork(classes, discipline="nonpreemptive", decisions=decisions)
        costs.append(average_cost(net, dp.policies.priority(net, ["2", "1"])))
    assert costs[0] == pytest.approx(costs[1], abs=1e-9)


# -- closed forms ----------------------------------------------------------------------------------


def test_continuous_time_penalties_are_per_unit_of_time():
    """M/M/1/K: cost = E[x] + penalty·λ·P(full)."""
    from bank import mm1k, mm1k_law

    law = mm1k_law()
    net = mm1k(penalty=7.0)
    expected = law @ np.arange(6) + 7.0 * 0.8 * law[-1]
    assert average_cost(net, net.policy("longer")) == pytest.approx(expected, abs=1e-9)


def test_convex_holding_costs():
    net = dp.QueueingNetwork(
        [dp.QueueClass("1", "S", 0.5, 0.3, holding=2.0, quadratic=3.0, excess=5.0, level=2.0)]
    )
    assert [net.loss([x], 0) for x in (0, 1, 2, 4)] == [0.0, 5.0, 16.0, 2 * 4 + 3 * 16 + 5 * 2]


def test_bernoulli_penalty_is_the_expected_number_lost():
    """Full queue, arrival .3, service .5: an arrival is lost unless the departure makes room."""
    net = dp.QueueingNetwork(
        [dp.QueueClass("1", "S", 0.5, 0.3, 2, penalty=10.0)], dynamics="bernoulli"
    )
    assert net.loss([2], 0) == pytest.approx(2 + 10 * 0.3 * 0.5)
    assert net.loss([1], 0) == pytest.approx(1)


def test_loads_solve_the_traffic_equations():
    loads = dp.load("four-queue").loads
    assert loads == pytest.approx(
        {"S1": 0.08 / 0.12 + 0.08 / 0.28, "S2": 0.08 / 0.12 + 0.08 / 0.28}
    )
    assert all(v == pytest.approx(0.9) for v in dp.load("six-class", stations=4).loads.values())
    feedback = dp.QueueingNetwork([dp.QueueClass("1", "S", 0.5, 0.2, route={"1": 0.5})])
    assert feedback.loads["S"] == pytest.approx(0.8)


def test_the_papers_text_makes_customers_out_of_nothing():
    net = dp.load("four-queue", buffers=3, dynamics="bernoulli", full="lose", phantom=True)
    row = net.forward([0, 0, 0, 0], 0)  # serves the empty queues 1 and 2
    into_two = row.probabilities[(row.states[:, 1] == 1)].sum()
    assert into_two == pytest.approx(0.12 * 0.88)


# -- mistakes --------------------------------------------------------------------------------------


def one(**changes):
    return dp.QueueClass(**{"name": "1", "server": "S", "service": 0.5, "arrival": 0.2, **changes})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: one(buffer=0), "class '1': buffer 0 holds nobody"),
        (lambda: one(service=0), "class '1': service must be a positive, finite rate, got 0"),
        (lambda: one(arrival=-1), "arrival must be a finite number that is not negative"),
        (lambda: one(route={"2": 0.7, "3": 0.5}), "routes lie in .0, 1. and sum to at most 1"),
        (
            lambda: dp.QueueingNetwork([one(route={"2": 1.0})]),
            "class '1' is routed to a class that is missing",
        ),
        (
            lambda: dp.QueueingNetwork([one(route={"1": 1.0})]),
            "customers of class '1' can never leave",
        ),
        (lambda: dp.QueueingNetwork([one(arrival=0)]), "nobody ever arrives"),
        (lambda: dp.QueueingNetwork([one(), one()]), "two classes share the name '1'"),
        (lambda: dp.QueueingNetwork([]), "at least one class"),
        (
            lambda: dp.QueueingNetwork([one(arrival=0.6)]),
            "sum to at most 1, got 1.1; use time='continuous'",
        ),
        (lambda: dp.QueueingNetwork([one()], dynamics="bernouli"), "did you mean 'bernoulli'"),
        (
            lambda: dp.QueueingNetwork([one()], dynamics="bernoulli", decisions="per-server"),
            "one event a step",
        ),
        (
            lambda: dp.QueueingNetwork([one()], dynamics="bernoulli", time="continuous"),
            "use dynamics='uniformized'",
        ),
        (
            lambda: dp.QueueingNetwork([one()], discipline="nonpreemptive", phantom=True),
            "never does",
        ),
        (
            lambda: dp.load("tandem", queues=60, servers=30, decisions="joint"),
            "use decisions='per-server'",
        ),
    ],
)
def test_mistakes_are_one_sentence(make, words):
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)
