"""Exact planning and evaluation against enumeration, closed forms and published figures."""

import itertools
import json
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import splu

import dualplan as dp
from bank import (
    Made,
    admission_events,
    average_cost,
    chain,
    discounted_cost,
    four_queue_events,
    load,
    matrix,
    mm1k,
    mm1k_law,
    networks,
    tabular,
)
from dualplan import cli, policies
from dualplan.exact import operators
from dualplan.exact.iteration import ITERATION_METHODS, Mixing
from dualplan.exact.mixing import mixing as measure_mixing
from dualplan.exact.operators import GAUSS_SEIDEL_BLOCKS, Sweeper

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
    for method in ITERATION_METHODS:
        if method == "gauss-seidel" and isinstance(criterion, dp.Average):
            continue
        solution = dp.solve_exact(model, criterion, method=method, tol=1e-7)
        assert solution.status is dp.Status.SOLVED
        assert solution.lower - 1e-9 <= truth <= solution.upper + 1e-9


SAME = Made(
    {
        "gate": lambda: with_table(admission_events()),
        "four queues": lambda: [
            *with_table(dp.load("four-queue", buffers=2)),
            four_queue_events(2),
        ],
        "independent events": lambda: with_table(
            dp.load("four-queue", buffers=2, dynamics="bernoulli", full="lose", penalty=3.0)
        ),
        "admission": lambda: with_table(load("admission", room=8)),
        "non-preemptive": lambda: with_table(
            dp.load("criss-cross", buffers=2, discipline="nonpreemptive")
        ),
    }
)


def with_table(model):
    return [model, tabular(model)]


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(GAMMA)])
@pytest.mark.parametrize("name", SAME)
def test_every_method_on_every_representation_has_one_optimum(name, criterion):
    """Bounds of all methods and representations overlap, and each policy costs what its
    bounds say.
    """
    lower, upper = -np.inf, np.inf
    for model in SAME[name]:
        for method in ITERATION_METHODS:
            if method == "gauss-seidel" and isinstance(criterion, dp.Average):
                continue
            solution = dp.solve_exact(model, criterion, method=method, tol=1e-7)
            assert solution.status is dp.Status.SOLVED
            lower, upper = max(lower, solution.lower), min(upper, solution.upper)
            cost = dp.evaluate_exact(model, solution.policy, criterion).cost
            assert solution.lower - 1e-8 <= cost <= solution.upper + 1e-8
        programs = [dp.solve_lp(model, criterion, form=form) for form in ("dual", "primal")]
        lower, upper = (
            max(lower, *(p.lower for p in programs)),
            min(upper, *(p.upper for p in programs)),
        )
    assert lower <= upper + 1e-8
    if name == "gate":
        assert lower - 1e-8 <= best_of_all(SAME[name][0], criterion) <= upper + 1e-8


class ByCase(Sweeper):
    """By the kernel for few laws, also where the operator splits by server."""

    separable = False


def check_operator(sweeper, net, gamma, seed):
    """A sweep against the operator from the dense matrix, with and without actions."""
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


@given(
    networks(
        dynamics="uniformized", decisions="joint", discipline="preemptive", max_classes=3, largest=5
    ),
    st.floats(0.5, 1.0),
    st.integers(0, 10**6),
)
def test_sweeps_split_by_server_are_the_bellman_operator(net, gamma, seed):
    """The row-wise kernel of networks against the operator from the dense matrix.

    Both of its ways through a row.
    """
    sweeper = Sweeper(net, 2)
    assert sweeper.separable
    check_operator(sweeper, net, gamma, seed)


@settings(max_examples=40)
@given(
    networks(decisions="joint", discipline="preemptive", max_classes=3, largest=5),
    st.floats(0.5, 1.0),
    st.integers(0, 10**6),
)
def test_sweeps_by_case_are_the_bellman_operator(net, gamma, seed):
    """The kernel for few laws against the operator from the dense matrix.

    With and without actions.
    """
    sweeper = ByCase(net, 2)
    assert sweeper.laws.ptr.size == np.prod(sweeper.laws.cases) * len(net.actions) + 1
    check_operator(sweeper, net, gamma, seed)


@given(networks(max_classes=3))
def test_every_pair_is_as_lazy_as_the_network_says(net):
    rows, losses = matrix(net)
    allowed = rows.sum(axis=1) > 0
    stays = rows[np.arange(len(rows)), np.repeat(np.arange(len(losses)), losses.shape[1])]
    assert stays[allowed].min() >= net.laziness - 1e-12


def test_gauss_seidel_is_the_sweep_in_place(monkeypatch):
    """Against a loop over a dense matrix.

    Blocks and results do not depend on the number of threads.
    """
    monkeypatch.setattr(operators, "LEAST_SHARED_STATES", 1)
    gate = load("admission", room=30)
    rows, losses = matrix(gate)
    values = np.random.default_rng(1).normal(size=gate.box.count)
    one, two = (
        Sweeper(gate, k).optimal_in_place(values, GAMMA, np.empty(gate.box.count)) for k in (1, 2)
    )
    assert (one.values == two.values).all()
    edges = np.linspace(0, gate.box.count, GAUSS_SEIDEL_BLOCKS + 1).astype(int)
    for first, last in itertools.pairwise(edges):
        new = values.copy()
        for i in range(first, last):
            q = losses[i] + GAMMA * rows[2 * i : 2 * i + 2] @ new
            new[i] = q[gate.allowed(gate.box.state(i))].min()
        assert one.values[first:last] == pytest.approx(new[first:last], abs=1e-12)


def test_bounds_hold_at_every_gauss_seidel_sweep():
    gate = admission_events()
    truth = best_of_all(gate, dp.Discounted(GAMMA))
    looks = []
    dp.solve_exact(
        gate,
        dp.Discounted(GAMMA),
        method="gauss-seidel",
        tol=1e-9,
        progress=lambda *look: looks.append(look),
    )
    assert len(looks) > 5
    assert all(low - 1e-9 <= truth <= high + 1e-9 for _, low, high in looks)


def test_mixing_of_iterates_stops_when_it_makes_matters_worse():
    """After a failure it pauses, longer each time.

    Weights of residuals are those of the least norm.
    """
    mixing, rng = Mixing(), np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50))
    mixing.next(a.copy(), b.copy(), 1.0)
    c, d = rng.normal(size=(2, 50))
    mixed = mixing.next(c.copy(), d.copy(), 0.9)
    line = np.linspace(-3, 3, 60_001)
    residuals = line[:, None] * (b - a) + (1 - line)[:, None] * (d - c)
    best = line[np.argmin((residuals**2).sum(axis=1))]
    assert mixed == pytest.approx(best * b + (1 - best) * d, abs=1e-3)
    assert (mixing.next(c.copy(), d.copy(), 2.0) == d).all()
    assert mixing.pause == 1


@pytest.mark.parametrize(("balanced", "published"), [(False, 0.671), (True, 0.843)])
def test_criss_cross_optimum(balanced, published):
    """Dai & Gluzman, light traffic; unbounded there, cut at 15 and at 20 customers a class here."""
    near, far = (
        dp.solve_exact(dp.load("criss-cross", balanced=balanced, buffers=size), tol=1e-6).value
        for size in (15, 20)
    )
    assert round(far, 3) == published
    assert near == pytest.approx(far, abs=1e-5)


@pytest.mark.slow
def test_lost_sales_optimum():
    """Zipkin 2008: 4.73."""
    assert (
        round(dp.solve_exact(load("lost-sales", capacity=28, max_order=10), tol=1e-3).value, 2)
        == 4.73
    )


def test_frozen_lake_as_a_table():
    """Gymnasium's own table, by every method, against plain value iteration on the dictionary."""
    table = pytest.importorskip("gymnasium").make("FrozenLake-v1", is_slippery=True).unwrapped.P
    rows, losses = np.zeros((64, 16)), np.zeros((16, 4))
    for x, a in itertools.product(range(16), range(4)):
        for p, y, reward, _ in table[x][a]:
            rows[4 * x + a, y] += p
            losses[x, a] -= p * reward
    value = np.zeros(16)
    for _ in range(3_000):
        value = np.array(
            [
                max(
                    sum(p * (r + 0.99 * (not end) * value[y]) for p, y, r, end in table[x][a])
                    for a in range(4)
                )
                for x in range(16)
            ]
        )
    model = dp.TabularModel(rows, losses)
    for method in ITERATION_METHODS:
        solution = dp.solve_exact(model, dp.Discounted(0.99), method=method, tol=1e-7)
        assert -solution.value == pytest.approx(value[0], abs=1e-6)
    assert -dp.solve_lp(model, dp.Discounted(0.99)).value == pytest.approx(value[0], abs=1e-6)
    assert value[0] == pytest.approx(0.542, abs=1e-3)


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
    except dp.errors.ModelError:
        return  # several recurrent classes
    assert average.cost == pytest.approx(average_cost(model, policy), abs=1e-8)
    assert average.residual < 1e-12


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_mixing_bounds_every_power_of_the_chain(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 12))
    transition = (
        rng.dirichlet(np.full(size, 0.3), size) * 0.5 + np.roll(np.eye(size), 1, axis=1) * 0.5
    )
    law = np.linalg.matrix_power(transition, 2**14)[0]
    found = measure_mixing(sp.csr_array(transition), law)
    power = np.eye(size)
    for k in range(1, 120):
        power = power @ transition
        contraction = max(np.abs(p - q).sum() / 2 for p in power for q in power)
        assert contraction <= found.constant * np.exp(-k / found.tau) + 1e-12
        if k == 1:
            assert found.one_step == pytest.approx(contraction, abs=1e-12)


def test_mixing_in_closed_form():
    """Two states shrink distances by |1 − a − b|; a cycle never forgets.

    Far states of a queue share nothing.
    """
    chain_of_two = sp.csr_array([[0.9, 0.1], [0.2, 0.8]])
    found = measure_mixing(chain_of_two, np.array([2 / 3, 1 / 3]))
    assert found.one_step == pytest.approx(0.7)
    assert found.relaxation == pytest.approx(-1 / np.log(0.7))
    line = measure_mixing(
        sp.csr_array(np.array([[0, 1.0, 0], [0, 0, 1], [0, 0, 1]])), np.array([0, 0, 1.0])
    )
    assert (
        line.constant * np.exp(-1 / line.tau) >= 1
    )  # nothing is forgotten in one step, everything in two
    down = sp.diags_array(
        [np.full(59, 0.9), np.append(0.9, np.zeros(59)), np.full(59, 0.1)], offsets=[-1, 0, 1]
    )
    walk_down = sp.csr_array(down + sp.diags_array([np.append(np.zeros(59), 0.1)], offsets=[0]))
    law = (1 / 9.0) ** np.arange(60)
    truth = -1 / np.log(2 * np.sqrt(0.09) * np.cos(np.pi / 60))
    assert measure_mixing(walk_down, law / law.sum()).relaxation == pytest.approx(truth, rel=1e-6)
    cycle = measure_mixing(sp.csr_array(np.roll(np.eye(3), 1, axis=1)), np.full(3, 1 / 3))
    assert cycle.tau == cycle.relaxation == np.inf
    net = dp.load("four-queue", buffers=2)
    result = dp.evaluate_exact(net, net.policy("lbfs"))
    assert result.mixing.one_step == pytest.approx(1.0)
    assert result.mixing.relaxation < result.mixing.tau < np.inf
    large = dp.load("four-queue", buffers=5)
    sparse = dp.evaluate_exact(large, large.policy("longer"))
    assert sparse.reached.size > 1_000
    moduli = np.sort(np.abs(np.linalg.eigvals(sparse.chain.toarray())))
    assert sparse.mixing.relaxation == pytest.approx(-1 / np.log(moduli[-2]), rel=1e-6)


def test_several_recurrent_classes_are_reported():
    """From state 0 the chain is caught in 1 or in 2, which cost 1 and 3."""
    model = dp.TabularModel([np.array([[0, 0.5, 0.5], [0, 1, 0], [0, 0, 1]])], [0, 1, 3])
    stay = policies.TablePolicy(model, np.zeros(3, int))
    with pytest.raises(dp.errors.ModelError, match="2 recurrent classes"):
        dp.evaluate_exact(model, stay)
    for method in ("value-iteration", "modified-policy-iteration"):
        with pytest.raises(
            dp.errors.ModelError, match=r"at least 3 from state \(2\) and at most 1 from \(1\)"
        ):
            dp.solve_exact(model, method=method)


MULTICHAIN = [
    (
        [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0.5, 0, 0, 0.5, 0], [0, 0, 0, 0, 1]],
        [1, 0, 0, 0, 2],
        0.25,
        2.0,
    ),
    ([[1, 0], [0, 1]], [0, 1], 0.0, 1.0),
    ([[1, 0], [0, 1]], [-1, 2], -1.0, 2.0),
    ([[0.5, 0.3, 0.2], [0, 1, 0], [0, 0, 1]], [0, 0.3, 0.9], 0.3, 0.9),
    ([[0, 0, 1, 0], [0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]], [0, -1, -1, 1], -0.75, 1.0),
]  # chains, losses, and the least and the greatest gain


@pytest.mark.parametrize(
    "method", ["value-iteration", "modified-policy-iteration", "policy-iteration"]
)
@pytest.mark.parametrize(("chain_of", "losses", "least", "most"), MULTICHAIN)
def test_no_method_bounds_a_cost_that_depends_on_the_start(method, chain_of, losses, least, most):
    """Values run away there, and must not make bounds that meet."""
    model = dp.TabularModel([np.array(chain_of, float)], losses)
    with pytest.raises(dp.errors.ModelError, match="several recurrent classes"):
        dp.solve_exact(model, method=method, sweeps=6_000)
    solution = dp.solve_exact(model, method=method, sweeps=20)  # too few to find out
    assert solution.status is dp.Status.WIDE
    assert solution.lower <= least + 1e-9
    assert solution.upper >= most - 1e-9


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(GAMMA)])
def test_forbidden_actions_are_refused(criterion):
    model = load("admission", servers=1, room=3, arrivals=(0.3,), rejection=(0.0,))
    always = policies.TablePolicy(model, np.ones(model.box.count, int))
    with pytest.raises(
        dp.errors.PolicyError, match=r"chooses action 1 \(admit\), which is not allowed there"
    ):
        dp.evaluate_exact(model, always, criterion)


def walk(**changed):
    """A walk on −2, ..., 2, of which a function is replaced."""
    functions = {
        "probability": lambda x, a, e: 0.5,
        "move": lambda x, a, e: (min(2, x[0] + 1) if e == 0 else max(-2, x[0] - 1),),
        "loss": lambda x, a: float(x[0] ** 2 + a),
    }
    return dp.EventModel(lower=[-2], upper=[2], actions=2, events=2, **{**functions, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"probability": lambda x, a, e: 0.3 if x[0] == 1 else 0.5},
            "`probability` at x=.1., a=0 sums to 0.6",
        ),
        (
            {"move": lambda x, a, e: (x[0] + 1 if e == 0 else max(-2, x[0] - 1),)},
            "`move` at x=.2., a=0.* leaves the box",
        ),
        (
            {"loss": lambda x, a: np.nan if x[0] == 1 and a == 0 else 1.0},
            "`loss` at x=.1., a=0 is nan",
        ),
        ({"allowed": lambda x, a: x[0] != 2}, "no action is allowed in state x=.2."),
    ],
)
@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(GAMMA)])
def test_a_law_that_breaks_far_from_the_start_is_named(changed, words, criterion):
    model = walk(**changed)
    calls = [
        *(
            lambda m=method: dp.solve_exact(model, criterion, method=m)
            for method in ITERATION_METHODS
        ),
        lambda: dp.solve_lp(model, criterion),
        lambda: dp.evaluate_exact(model, policies.TablePolicy(model, np.zeros(5, int)), criterion),
    ]
    for call in calls[: -1 if "allowed" in changed else None]:
        with pytest.raises(dp.errors.InputError, match=f"({words})|gauss-seidel"):
            call()


def test_bounds_allow_for_rounding_near_gamma_one():
    """Dyadic rows, so that the truth is exact: J solves a system of two equations in fractions."""
    model = dp.TabularModel([np.array([[0.5, 0.5], [0.25, 0.75]])], [1, 3])
    for k in (20, 27, 34):
        g = 1 - Fraction(1, 2**k)
        # J0 = 1 + g(J0 + J1)/2, J1 = 3 + g(J0 + 3 J1)/4
        a, b, c, d = 1 - g / 2, -g / 2, -g / 4, 1 - 3 * g / 4
        truth = float((d * 1 - b * 3) / (a * d - b * c))
        criterion = dp.Discounted(float(g))
        found = [dp.solve_exact(model, criterion, method="policy-iteration", sweeps=2_000)]
        found.append(dp.evaluate_exact(model, policies.TablePolicy(model, [0, 0]), criterion))
        for answer in found:
            assert answer.lower <= truth <= answer.upper


def test_rows_that_sum_to_one_within_rounding_are_divided_out():
    e, d = 1e-6, 9e-10
    model = dp.TabularModel([np.array([[1 - e - d, e], [e, 1 - e]])], [0, 1])
    result = dp.evaluate_exact(model, policies.TablePolicy(model, [0, 0]))
    assert result.cost == pytest.approx(0.5, abs=1e-8)


def test_a_class_that_can_be_left_is_no_other_class():
    """State 1 may stay at cost 3 or go back: one optimal cost for all, though policies with two
    classes exist.
    """
    model = dp.TabularModel([np.eye(2), np.array([[0, 1.0], [1.0, 0]])], [[1.0, 5.0], [3.0, 9.0]])
    for method in ("value-iteration", "modified-policy-iteration"):
        solution = dp.solve_exact(model, method=method, tol=1e-8)
        assert solution.value == pytest.approx(1.0, abs=1e-7)
        assert solution.table.tolist() == [0, 1]


def test_four_queue_base_policies_to_all_printed_decimals():
    """Banijamali et al. 2019, and LBFS and LONGER computed elsewhere."""
    net = dp.load("four-queue", buffers=9)
    printed = {
        (0.9, 0.9): 16.2950,
        (0.9, 0.7): 17.3926,
        (0.8, 0.8): 15.1535,
        (0.7, 0.9): 13.6525,
        (0.7, 0.7): 14.3266,
    }
    for p, cost in printed.items():
        result = dp.evaluate_exact(net, policies.soft_longer(net, p))
        assert result.status is dp.Status.SOLVED
        assert round(result.cost, 4) == cost
    assert round(dp.evaluate_exact(net, net.policy("lbfs")).cost, 4) == 10.3586
    assert round(dp.evaluate_exact(net, net.policy("longer")).cost, 4) == 15.5370


def test_lost_sales_myopic_is_zipkins():
    model = load("lost-sales")
    assert round(dp.evaluate_exact(model, model.policy("myopic")).cost, 2) == 5.06


def test_exact_on_the_command_line(monkeypatch, capsys):
    command = (
        "exact four-queue --set buffers=9,9,9,9 --set dynamics=uniformized --set full=block "
        "--criterion average --json"
    )
    monkeypatch.setattr(sys, "argv", ["dualplan", *command.split()])
    with pytest.raises(SystemExit):
        cli.main()
    data = json.loads(capsys.readouterr().out)
    assert {
        "status",
        "lower",
        "upper",
        "states",
        "method",
        "seconds",
        "peak_mb",
        "sweeps",
    } <= data.keys()
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
        (
            lambda: dp.solve_exact(dp.load("forest"), method="value-iterations"),
            "did you mean 'value-iteration'",
        ),
        (lambda: dp.solve_exact(dp.load("forest"), tol=0.0), "tol must be a positive number"),
        (
            lambda: dp.solve_exact(dp.load("four-queue", buffers=3), dp.Discounted(1.0)),
            "strictly between 0 and 1",
        ),
        (
            lambda: dp.solve_exact(dp.SimulatorModel(lower=[0], upper=[1], actions=1, step=print)),
            "only a simulator",
        ),
    ],
)
def test_mistakes(call, words):
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_large_chain_has_its_product_form():
    """Two queues that do not know of each other, loads .95 and 1.05, 40,401 states: truncated
    geometric laws.

    Too large to be factorised, and so slow to mix that a bad preconditioner would not do.
    """
    lengths = []
    classes = [
        dp.QueueClass(str(i), f"S{i}", 0.2, 0.2 * rho, 200) for i, rho in enumerate((0.95, 1.05))
    ]
    net = dp.QueueingNetwork(classes)
    result = dp.evaluate_exact(net, net.policy("longer"))
    joint = np.ones(1)
    for rho in (0.95, 1.05):
        law = rho ** np.arange(201)
        law /= law.sum()
        lengths.append(law @ np.arange(201))
        joint = np.outer(joint, law).ravel()
    assert result.status is dp.Status.SOLVED
    assert result.lower <= sum(lengths) <= result.upper
    assert result.occupancy == pytest.approx(joint, abs=1e-12)
    assert [result.measures["length 0"], result.measures["length 1"]] == pytest.approx(
        lengths, abs=1e-8
    )


def test_discounted_values_of_a_large_chain_solve_their_equation():
    net = dp.load("four-queue", buffers=8)
    result = dp.evaluate_exact(net, net.policy("longer"), dp.Discounted(0.999))
    transition, losses = Sweeper(net).chain(net.policy("longer"))
    inside, cost = transition[result.reached][:, result.reached], losses[result.reached]
    exact = splu(sp.csc_array(sp.eye_array(cost.size) - 0.999 * inside)).solve(cost)
    assert result.reached.size > 3_000
    assert result.values == pytest.approx(exact, rel=1e-9)
    assert result.lower - 1e-9 <= exact[0] <= result.upper + 1e-9


def test_a_large_chain_that_ends_in_one_state():
    """Under FBFS the four-queue network with blocking comes to a standstill: each server blocks the
    other.
    """
    net = dp.load("four-queue", buffers=9)
    result = dp.evaluate_exact(net, net.policy("fbfs"))
    assert result.reached.size > 3_000
    assert result.status is dp.Status.SOLVED
    assert result.occupancy.max() == pytest.approx(1.0)
    stuck = net.box.state(int(result.reached[result.occupancy.argmax()]))
    assert stuck.tolist() == [9, 9, 9, 9]
    assert result.lower <= 36 <= result.upper


@pytest.mark.parametrize(
    "method", ["value-iteration", "modified-policy-iteration", "policy-iteration", "gauss-seidel"]
)
def test_values_are_the_optimal_ones(method):
    """Discounted values at every state, not only up to a constant: a chain of two states in closed
    form.
    """
    transitions, losses = np.array([[0.5, 0.5], [0.4, 0.6]]), np.array([1.0, 2.0])
    model = dp.TabularModel(transitions, losses[:, None])
    truth = np.linalg.solve(np.eye(2) - 0.95 * transitions, losses)
    found = dp.solve_exact(model, dp.Discounted(0.95), method=method, tol=1e-8)
    assert found.values == pytest.approx(truth, abs=1e-7)


def optimal_discounted(transitions, losses, gamma):
    """J* by Howard's policy iteration with dense solves; `transitions` is actions × states × states,
    `losses` states × actions.
    """
    states = np.arange(losses.shape[0])
    chosen = losses.argmin(axis=1)
    while True:
        rows = transitions[chosen, states]
        values = np.linalg.solve(np.eye(states.size) - gamma * rows, losses[states, chosen])
        q = losses + gamma * (transitions @ values).T
        better = q.argmin(axis=1)
        gain = q[states, chosen] - q[states, better]
        if (gain <= 1e-12 * np.abs(q).max()).all():
            return values
        chosen = better


@pytest.mark.parametrize("method", sorted(ITERATION_METHODS))
def test_values_are_right_wherever_the_bounds_meet(method):
    """A lower bound of an early sweep and the upper one of the last may meet while neither sweep
    knows the values: forty random models, sparse rows, losses of all sizes and signs.
    """
    rng = np.random.default_rng(7)
    for _ in range(40):
        states, actions = rng.integers(2, 7), rng.integers(1, 4)
        rows = rng.dirichlet(np.full(states, 0.2), size=(actions, states))
        losses = rng.normal(size=(states, actions)) * 10 ** rng.uniform(-3, 4)
        gamma = float(rng.choice([0.5, 0.9, 0.99]))
        tol = 1e-5 * np.abs(losses).max()
        found = dp.solve_exact(
            dp.TabularModel(rows, losses), dp.Discounted(gamma), method=method, tol=tol
        )
        truth = optimal_discounted(rows, losses, gamma)
        assert found.status is dp.Status.SOLVED
        assert found.values == pytest.approx(truth, abs=tol)
        assert found.lower <= truth[0] <= found.upper


@pytest.mark.parametrize("method", sorted(ITERATION_METHODS))
@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(GAMMA)], ids=str)
def test_a_tolerance_below_rounding_ends(method, criterion):
    if method == "gauss-seidel" and isinstance(criterion, dp.Average):
        pytest.skip("for the discounted criterion only")
    for model in (dp.load("forest"), dp.load("garnet", states=100, actions=10)):
        near = dp.solve_exact(model, criterion, method=method, tol=1e-9)
        nearest = dp.solve_exact(model, criterion, method=method, tol=1e-300)
        assert near.status is dp.Status.SOLVED
        assert nearest.status is dp.Status.ROUNDING
        assert nearest.sweeps < 20_000
        assert max(near.lower, nearest.lower) <= min(near.upper, nearest.upper)


def test_bounds_allow_for_the_rounding_of_losses():
    """Losses that are large beside their differences, and so beside the values: the truth in
    fractions lies between the bounds, for every method.
    """
    rng = np.random.default_rng(3)
    for _ in range(30):
        parts = rng.integers(1, 8, size=(2, 2))
        rows = np.array([[a, 16 - a] for a in parts[0]]) / 16
        losses = 1e8 + rng.normal(size=2)
        a, b = Fraction(rows[0, 1]), Fraction(rows[1, 0])
        truth = (b * Fraction(losses[0]) + a * Fraction(losses[1])) / (a + b)
        model = dp.TabularModel(rows, losses[:, None])
        found = [
            dp.evaluate_exact(model, policies.TablePolicy(model, [0, 0])),
            dp.solve_exact(model, tol=1e-6),
            dp.solve_lp(model, tol=1e-6),
        ]
        for answer in found:
            assert Fraction(answer.lower) <= truth <= Fraction(answer.upper)


def test_time_ends_the_sweeps_with_what_there_is():
    net = dp.load("four-queue", buffers=20)
    found = dp.solve_exact(net, tol=1e-12, time="0.5s")
    assert found.status is dp.Status.TIME
    truth = 12.4
    assert found.lower <= truth <= found.upper
