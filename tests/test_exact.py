"""Exact planning and evaluation against enumeration, closed forms and published figures."""

import itertools
import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dualplan as dp
from bank import admission_events, average_cost, chain, discounted_cost, matrix, mm1k, mm1k_law, networks
from dualplan import cli, policies
from dualplan.exact.iteration import METHODS
from dualplan.exact.operators import Sweeper

GAMMA = 0.9


def best_of_all(model, criterion):
    """The least cost of all deterministic policies, by enumeration (tiny models)."""
    count = model.box.count
    may = [np.flatnonzero(model.allowed(model.box.state(i))) for i in range(count)]
    costs = []
    for actions in itertools.product(*may):
        policy = policies.TablePolicy(model, np.array(actions))
        if isinstance(criterion, dp.Discounted):
            costs.append(discounted_cost(model, policy, criterion.gamma))
        else:
            costs.append(average_cost(model, policy))
    return min(costs)


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([dp.Average(), dp.Discounted(GAMMA)]))
def test_every_method_brackets_the_best_of_all_policies(seed, criterion):
    model = dp.load("garnet", states=5, actions=2, branching=3, seed=seed)
    truth = best_of_all(model, criterion)
    for method in METHODS:
        if method == "gauss-seidel" and isinstance(criterion, dp.Average):
            continue
        solution = dp.solve_exact(model, criterion, method=method, tol=1e-7)
        assert solution.status is dp.Status.SOLVED
        assert solution.lower - 1e-9 <= truth <= solution.upper + 1e-9


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(GAMMA)])
def test_all_representations_have_one_optimum(criterion):
    """The gate as functions and as a table; admission's optimal policy costs what the bounds say."""
    gate = admission_events()
    rows, losses = matrix(gate)
    table = dp.TabularModel(rows, losses)
    a, b = (dp.solve_exact(m, criterion, tol=1e-8) for m in (gate, table))
    assert a.value == pytest.approx(b.value, abs=1e-7)
    assert dp.evaluate_exact(gate, a.policy, criterion).cost == pytest.approx(a.value, abs=1e-7)
    assert a.value == pytest.approx(best_of_all(gate, criterion), abs=1e-7)


@given(
    networks(dynamics="uniformized", decisions="joint", discipline="preemptive", max_classes=3, largest=5),
    st.floats(0.5, 1.0),
    st.integers(0, 10**6),
)
def test_sweeps_split_by_server_are_the_bellman_operator(net, gamma, seed):
    """The row-wise kernel of networks against the operator from the dense matrix; both of its ways through a row."""
    sweeper = Sweeper(net, 2)
    assert sweeper.separable
    values = np.random.default_rng(seed).normal(0, 10, sweeper.states)
    rows, losses = matrix(net)
    q = losses + gamma * (rows @ values).reshape(losses.shape)
    best = np.zeros(sweeper.states, np.int64)
    sweep = sweeper.optimal(values, gamma, damping=0.5)
    difference = q.min(axis=1) - values
    assert np.abs(sweep.values - values - 0.5 * difference).max() < 1e-11
    assert (sweep.low, sweep.high) == pytest.approx((difference.min(), difference.max()), abs=1e-11)
    assert np.abs(sweeper.optimal(values, gamma, best=best).values - q.min(axis=1)).max() < 1e-11
    assert np.abs(q[np.arange(sweeper.states), best] - q.min(axis=1)).max() < 1e-11


def test_forest():
    forest = dp.load("forest")
    assert -dp.solve_exact(forest, tol=1e-8).value == pytest.approx(3.24, abs=1e-7)
    values = [
        -dp.solve_exact(forest, dp.Discounted(GAMMA, start=(x,)), tol=1e-8).value for x in range(3)
    ]  # from each age
    assert values == pytest.approx([26.244, 29.484, 33.484], abs=1e-6)


def test_bounds_hold_at_every_sweep():
    """Not only at the end: each look brackets the optimum."""
    gate = admission_events()
    truth = best_of_all(gate, dp.Average())
    looks = []
    dp.solve_exact(gate, tol=1e-9, progress=lambda sweeps, low, high: looks.append((low, high)))
    assert len(looks) > 5
    assert all(low - 1e-9 <= truth <= high + 1e-9 for low, high in looks)


def test_evaluation_of_a_queue_in_closed_form():
    law = mm1k_law()
    net = mm1k(penalty=7.0)
    result = dp.evaluate_exact(net, net.policy("longer"))
    assert result.cost == pytest.approx(law @ np.arange(6) + 7.0 * 0.8 * law[-1], abs=1e-10)
    assert result.occupancy == pytest.approx(law, abs=1e-12)
    assert result.upper - result.lower < 1e-10


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_evaluation_agrees_with_dense_algebra(seed):
    model = dp.load("garnet", states=12, actions=3, branching=4, seed=seed)
    policy = policies.TablePolicy(model, np.random.default_rng(seed).dirichlet(np.ones(3), 12))
    transition, losses = chain(model, policy)
    result = dp.evaluate_exact(model, policy, dp.Discounted(GAMMA))
    inverse = np.linalg.inv(np.eye(12) - GAMMA * transition)
    assert result.cost == pytest.approx((inverse @ losses)[0], abs=1e-9)
    occupancy = np.zeros(12)
    occupancy[result.reached] = result.occupancy
    assert occupancy == pytest.approx(inverse[0], abs=1e-9)
    try:
        average = dp.evaluate_exact(model, policy)
    except dp.ModelError:
        return  # several recurrent classes
    assert average.cost == pytest.approx(average_cost(model, policy), abs=1e-8)
    assert average.residual < 1e-12


def test_several_recurrent_classes_are_reported():
    """From state 0 the chain is caught in 1 or in 2, which cost 1 and 3."""
    model = dp.TabularModel([np.array([[0, 0.5, 0.5], [0, 1, 0], [0, 0, 1]])], [0, 1, 3])
    stay = policies.TablePolicy(model, np.zeros(3, int))
    with pytest.raises(dp.ModelError, match="2 recurrent classes"):
        dp.evaluate_exact(model, stay)
    for method in ("value-iteration", "modified-policy-iteration"):
        with pytest.raises(dp.ModelError, match=r"at least 3 from state \(2\) and at most 1 from \(1\)"):
            dp.solve_exact(model, method=method)


def test_four_queue_base_policies_to_all_printed_decimals():
    """Banijamali et al. 2019, and LBFS and LONGER computed elsewhere."""
    net = dp.load("four-queue", buffers=9)
    printed = {
        (0.9, 0.9): 16.2950, (0.9, 0.7): 17.3926, (0.8, 0.8): 15.1535, (0.7, 0.9): 13.6525, (0.7, 0.7): 14.3266,
    }  # fmt: skip
    for p, cost in printed.items():
        result = dp.evaluate_exact(net, policies.soft_longer(net, p))
        assert result.status is dp.Status.SOLVED
        assert round(result.cost, 4) == cost
    assert round(dp.evaluate_exact(net, net.policy("lbfs")).cost, 4) == 10.3586
    assert round(dp.evaluate_exact(net, net.policy("longer")).cost, 4) == 15.5370


def test_lost_sales_myopic_is_zipkins():
    model = dp.load("lost-sales")
    assert round(dp.evaluate_exact(model, model.policy("myopic")).cost, 2) == 5.06


def test_exact_on_the_command_line(monkeypatch, capsys):
    command = (
        "exact four-queue --set buffers=9,9,9,9 --set dynamics=uniformized --set full=block --criterion average --json"
    )
    monkeypatch.setattr(sys, "argv", ["dualplan", *command.split()])
    with pytest.raises(SystemExit):
        cli.main()
    data = json.loads(capsys.readouterr().out)
    assert {"status", "lower", "upper", "states", "method", "seconds", "peak_mb", "sweeps"} <= data.keys()
    assert data["lower"] <= 8.10533 <= data["upper"]
    assert data["upper"] - data["lower"] <= 1e-4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dp.solve_exact(dp.load("four-queue", buffers=None)), "infinitely many states"),
        (
            lambda: dp.solve_exact(dp.load("four-queue", buffers=1000)),
            r"has 1,004,006,004,001 states.*GiB; use simulation",
        ),
        (lambda: dp.solve_exact(dp.load("forest"), method="value-iterations"), "did you mean 'value-iteration'"),
        (lambda: dp.solve_exact(dp.load("forest"), tol=0.0), "tol must be positive"),
        (lambda: dp.solve_exact(dp.load("four-queue", buffers=3), dp.Discounted(1.0)), "strictly between 0 and 1"),
        (lambda: dp.solve_exact(dp.SimulatorModel(lower=[0], upper=[1], actions=1, step=print)), "only a simulator"),
    ],
)
def test_mistakes(call, words):
    with pytest.raises(dp.InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
