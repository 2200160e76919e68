"""Problems on lattices of states: what is exact about them, and how good their policies are."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import dualplan as dp
from bank import Made, load
from dualplan.exact.operators import Sweeper
from dualplan.exact.sparse import Table, policy_iteration
from dualplan.primal import GreedyPolicy, Lattice, LatticeValues
from dualplan.search.lattice import column_prices, node_table, spaced


def whole(model):
    """Every state a node."""
    box = model.box
    return Lattice(
        model, tuple(np.arange(a, b + 1) for a, b in zip(box.lower, box.upper, strict=True))
    )


def uneven():
    classes = [
        dp.QueueClass("1", "S", 0.3, 0.1, 3, route={"2": 0.7}),
        dp.QueueClass("2", "S", 0.4, 0.0, 5, holding=2.0),
        dp.QueueClass("3", "T", 0.2, 0.1, 2),
    ]
    return dp.QueueingNetwork(classes, name="uneven")


MODELS = Made(
    {
        "network": lambda: dp.load("four-queue", buffers=3),
        "uneven": uneven,
        "per server": lambda: dp.load("criss-cross", buffers=3, decisions="per-server"),
        "lost sales": lambda: load("lost-sales", lead_time=2, demand=2.0, capacity=8),
        "admission": lambda: load("admission"),
    }
)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "criterion", [dp.Average(), dp.Discounted(0.95)], ids=["average", "discounted"]
)
def test_with_every_state_a_node_the_solution_is_exact(name, criterion):
    model = MODELS[name]
    found = dp.search.solve_lattice(model, whole(model), criterion, tol=1e-9)
    exact = dp.solve_exact(model, criterion, tol=1e-8)
    assert found.status is dp.Status.SOLVED
    assert found.cost == pytest.approx(exact.value, rel=1e-6)
    assert found.known == "assumed"
    difference = found.values.values - exact.values
    if isinstance(criterion, dp.Average):
        difference -= difference[0]
    assert np.abs(difference).max() <= 1e-4 * np.abs(exact.values).max()
    assert dp.evaluate_exact(model, found.policy(), criterion).cost == pytest.approx(
        exact.value, rel=1e-6
    )


@pytest.fixture(scope="module")
def net():
    return dp.load("four-queue", buffers=None)


@pytest.fixture(scope="module")
def lattice(net):
    return Lattice(
        net,
        (
            np.array([0, 1, 3, 7, 20]),
            np.array([0, 4, 9]),
            np.array([0, 1, 2, 10]),
            np.array([0, 6]),
        ),
    )


def test_products_of_linear_functions_are_reproduced_everywhere(net, lattice):
    """Inside and beyond the last knots, with and without curvature."""

    def f(x):
        return (1 + 2 * x[:, 0]) * (3 - x[:, 1]) * (x[:, 2] + 0.5) * (1 + x[:, 3]) + 4.0 * x[:, 1]

    states = np.random.default_rng(0).integers(0, 40, (500, 4))
    for curved in (False, True):
        values = LatticeValues(lattice, f(lattice.states), curved)(states)
        assert np.allclose(values, f(states), rtol=1e-10, atol=1e-8)


def test_squares_are_reproduced_with_curvature_and_overestimated_without(net, lattice):
    def f(x):
        return (
            2.0 * x[:, 0] ** 2 + x[:, 1] ** 2 * 0.5 + 3 * x[:, 2] ** 2 - x[:, 0] * x[:, 2] + x[:, 3]
        )

    states = np.random.default_rng(1).integers(0, 30, (500, 4))
    assert np.allclose(
        LatticeValues(lattice, f(lattice.states))(states), f(states), rtol=1e-10, atol=1e-8
    )
    inner = np.minimum(states, lattice.last)
    straight = LatticeValues(lattice, f(lattice.states), False)(inner)
    assert (straight >= f(inner) - 1e-9).all()
    # between 7 and 20 the line through 2·7² and 2·20² is off by 2·(x−7)(20−x)
    x = np.array([[12, 0, 0, 0]])
    assert LatticeValues(lattice, f(lattice.states), False)(x)[0] - f(x)[0] == pytest.approx(
        2 * 5 * 8
    )


def test_the_chain_is_a_law_that_keeps_means(net, lattice):
    table = node_table(lattice).table
    assert (table.matrix.data >= 0).all()
    assert np.allclose(table.matrix.sum(axis=1), 1.0)
    means = table.matrix @ lattice.states
    for p in range(0, table.states.size, 7):
        x, a = lattice.states[table.states[p]], int(table.actions[p])
        law = net.forward(x, a)
        clipped = np.minimum(law.states, lattice.last)
        assert np.allclose(means[p], law.probabilities @ clipped)
        assert table.losses[p] == pytest.approx(net.loss(x, a))


def test_rows_against_weights_by_hand(net, lattice):
    """Each row is Σ_y P(y|x,a) Π_i of the weights along the coordinates."""
    table = node_table(lattice).table
    shape = [k.size for k in lattice.knots]
    for p in range(0, table.states.size, 41):
        law = net.forward(lattice.states[table.states[p]], int(table.actions[p]))
        row = np.zeros(lattice.nodes)
        for y, chance in zip(law.states, law.probabilities, strict=True):
            along = [
                [np.interp(min(v, k[-1]), k, np.eye(k.size)[j]) for j in range(k.size)]
                for v, k in zip(y, lattice.knots, strict=True)
            ]
            for corner in itertools.product(*map(range, shape)):
                weight = np.prod([w[j] for w, j in zip(along, corner, strict=True)])
                row[np.ravel_multi_index(corner, shape)] += chance * weight
        assert np.allclose(table.matrix[[p]].toarray().ravel(), row)


def test_the_policy_is_a_plain_look_ahead(net, lattice):
    """Compiled against the values asked in Python, inside and beyond the lattice, with and without
    discount.
    """
    values = LatticeValues(lattice, np.random.default_rng(2).normal(size=lattice.nodes) * 10)
    for gamma in (1.0, 0.9):
        policy = GreedyPolicy(net, values, gamma)
        plain = GreedyPolicy(net, lambda states: values(states), gamma)
        for x in np.random.default_rng(3).integers(0, 30, (300, 4)):
            assert (policy(x) == plain(x)).all()


def test_the_optimal_cost_of_a_table_by_linear_programming():
    """Policy iteration against max λ subject to λ + h(x) <= ℓ + P h."""
    rng = np.random.default_rng(4)
    model = dp.load("garnet", states=30, actions=3, branching=4, seed=5)
    pairs = Sweeper(model).pairs
    found = policy_iteration(
        Table(pairs.states, pairs.actions, pairs.matrix, pairs.losses), 1.0, 1e-9
    )
    marginal = np.eye(30)[pairs.states]
    rows = np.column_stack([np.ones(90), marginal - pairs.matrix.toarray()])
    best = linprog(np.append(-1.0, np.zeros(30)), rows, pairs.losses, bounds=(None, None))
    assert found.reached
    assert (found.lower + found.upper) / 2 == pytest.approx(-best.fun, abs=1e-8)
    start = rng.normal(size=30)
    again = policy_iteration(
        Table(pairs.states, pairs.actions, pairs.matrix, pairs.losses), 1.0, 1e-9, start=start
    )
    assert again.lower == pytest.approx(found.lower, abs=1e-7)


def test_an_end_that_costs_nothing_teaches_to_lose():
    """M/M/1 without end, cut at 12: the first solution is that of M/M/1/12 with a penalty for each
    loss.
    """
    queue = dp.QueueingNetwork([dp.QueueClass("1", "S", 1.0, 0.8)], time="continuous", name="mm1")
    lattice = Lattice(queue, (np.arange(13),))
    weights = 0.8 ** np.arange(13)
    law = weights / weights.sum()
    for penalty in (0.0, 50.0):
        found = dp.search.solve_lattice(queue, lattice, penalty=penalty, corrections=0, tol=1e-9)
        arrival = 0.8 / 1.8  # the probability of a step
        assert found.cost == pytest.approx(
            law @ np.arange(13) + penalty * arrival * law[-1], rel=1e-7
        )
    # charged far more than a customer is worth, and then what the values say: the true cost is
    # ρ/(1−ρ) = 4
    steep = dp.search.solve_lattice(queue, lattice, penalty=260.0, corrections=0, tol=1e-9)
    corrected = dp.search.solve_lattice(queue, lattice, penalty=260.0, corrections=30, tol=1e-9)
    assert 4.0 < corrected.cost < 4.3 < steep.cost
    assert (
        dp.search.solve_lattice(queue, lattice, corrections=0, tol=1e-9).cost > steep.cost
    )  # so is the default


def test_curvature_takes_most_of_the_error_off():
    """One queue on few knots: the cost on the lattice nears ρ/(1−ρ) with corrections, and is far
    above without.
    """
    queue = dp.QueueingNetwork([dp.QueueClass("1", "S", 1.0, 0.8)], time="continuous", name="mm1")
    lattice = Lattice(queue, (np.array([0, 1, 2, 4, 7, 11, 16, 22, 30, 40, 60, 90]),))
    plain = dp.search.solve_lattice(queue, lattice, penalty=1000.0, corrections=0)
    corrected = dp.search.solve_lattice(queue, lattice, penalty=1000.0, corrections=10)
    assert plain.cost > 4.4
    assert abs(corrected.cost - 4.0) < 0.4 * (plain.cost - 4.0)


def test_prices_are_lagrange_multipliers():
    """The priced cost is the Lagrangian of the program with the limit, by a linear program written
    out here.
    """
    model = dp.load("criss-cross", load="heavy", buffers=3, idling=True)
    limit, price = dp.Limit("lost fraction", 0.05), 30.0
    pairs = Sweeper(model).pairs
    n, d = limit.weights(model, model.box.states(pairs.states), pairs.actions, pairs.sums)
    losses = pairs.losses + price * (n - 0.05 * d)
    flow = (np.eye(int(model.box.count))[pairs.states] - pairs.matrix.toarray()).T
    rows = np.vstack([flow, np.ones(losses.size)])
    best = linprog(losses, A_eq=rows, b_eq=np.append(np.zeros(len(flow)), 1.0))
    found = dp.search.solve_lattice(model, whole(model), prices=[(limit, price)], tol=1e-9)
    assert found.cost == pytest.approx(best.fun, rel=1e-6)
    policy = found.policy()
    exact = dp.evaluate_exact(model, policy)
    sums = Sweeper(model).sums(policy, exact.reached, exact.occupancy)
    lagrangian = exact.cost + column_prices(model, [(limit, price)]) @ sums
    assert lagrangian == pytest.approx(best.fun, rel=1e-6)
    free = dp.evaluate_exact(model, dp.search.solve_lattice(model, whole(model), tol=1e-9).policy())
    assert exact.measures["lost fraction"] < free.measures["lost fraction"]


def test_fewer_nodes_than_states_come_near_the_optimum():
    model = dp.load("four-queue", buffers=9)
    found = dp.search.solve_lattice(model, Lattice(model, (np.array([0, 1, 2, 4, 6, 8, 9]),) * 4))
    assert dp.evaluate_exact(model, found.policy()).cost <= 8.146  # the optimum is 8.1053
    straight = dp.search.solve_lattice(model, found.lattice, corrections=0)
    plain = GreedyPolicy(model, LatticeValues(found.lattice, straight.values.values, False))
    assert dp.evaluate_exact(model, plain).cost > dp.evaluate_exact(model, found.policy()).cost


def test_knots_are_dense_at_the_ends_and_stay_below_the_number_of_nodes():
    assert spaced(0, 9, 0.0, False).tolist() == list(range(10))
    knots = spaced(0, 100, 1.0, True)
    assert knots[0] == 0
    assert knots[-1] == 100
    gaps = np.diff(knots)
    assert gaps[0] == gaps[-1] == 1
    assert gaps.max() > 5
    net = dp.load("four-queue", buffers=None)
    states = np.random.default_rng(0).integers(0, 50, (1000, 4))
    for nodes in (300, 5000):
        assert nodes / 8 < dp.search.make_lattice(net, states, nodes=nodes).nodes <= nodes
    one, again = (
        dp.search.make_lattice(net, net.policy("longer"), nodes=3000, seed=1) for _ in range(2)
    )
    assert (one.ints == again.ints).all()
    events = dp.load("criss-cross", decisions="per-server")
    assert (
        dp.search.make_lattice(events, events.policy("longer"), nodes=3000).knots[-1].size
        == events.box.upper[-1] + 1
    )


def test_a_plan_without_end_is_stable_far_outside():
    """From a start far beyond the lattice the policy drains the network."""
    model = dp.load("criss-cross", load="heavy")
    found = dp.search.lattice_plan(model, nodes=2000)
    policy = found.policy()
    evaluation = dp.evaluate(model, policy, steps=400_000, seed=3)
    assert evaluation.status is not dp.Status.UNSTABLE
    x, rng = 6 * found.lattice.last, np.random.default_rng(0)
    before = x.sum()
    for _ in range(20_000):
        law = model.forward(x, int(np.argmax(policy(x))))
        x = law.states[rng.choice(len(law.states), p=law.probabilities)]
    assert x.sum() < before / 2


def test_a_policy_on_a_lattice_is_saved(tmp_path):
    model = dp.load("criss-cross", load="heavy", buffers=6, idling=True)
    lattice = Lattice(model, (np.array([0, 1, 3, 6]),) * 3)
    for prices in (None, [(dp.Limit("lost fraction", 0.01), 20.0)]):
        policy = dp.search.solve_lattice(model, lattice, dp.Discounted(0.99), prices=prices).policy(
            name="small"
        )
        dp.save_policy(policy, tmp_path / "p.npz")
        loaded = dp.load_policy(tmp_path / "p.npz", model)
        assert (loaded.name, loaded.digest) == ("small", policy.digest)
        assert all(
            (loaded(model.box.state(i)) == policy(model.box.state(i))).all() for i in range(343)
        )
    with np.load(tmp_path / "p.npz") as file:
        arrays = dict(file)
    for broken in (
        {"values": arrays["values"] * 2},
        {"values": arrays["values"][:5]},
        {"knots": arrays["knots"][::-1]},
        {"ends": arrays["ends"][:1]},
        {"prices": arrays["prices"][:2]},
    ):
        np.savez(tmp_path / "b.npz", **{**arrays, **broken})
        with pytest.raises(dp.errors.RunError, match="holds no saved policy"):
            dp.load_policy(tmp_path / "b.npz", model)
    with pytest.raises(dp.errors.InputError, match="was made for"):
        dp.load_policy(tmp_path / "p.npz", dp.load("criss-cross"))


def test_errors(net, lattice):
    ones = (np.array([0, 1]),) * 4
    for knots, words in (
        (ones[:3], "each of its 4 coordinates"),
        ((np.array([1, 2]), *ones[1:]), "must start at 0"),
        ((np.array([0, 2, 2]), *ones[1:]), "must increase"),
        ((np.array([0.5, 2]), *ones[1:]), "list of integers"),
        ((np.array([0]), *ones[1:]), "two knots"),
        ((np.arange(300),) * 4, "too large"),
    ):
        with pytest.raises(dp.errors.InputError, match=words):
            Lattice(net, knots)
    other = dp.load("four-queue", buffers=9)
    with pytest.raises(dp.errors.InputError, match="belongs to"):
        dp.search.solve_lattice(other, lattice)
    with pytest.raises(dp.errors.InputError, match="belongs to"):
        GreedyPolicy(other, LatticeValues(lattice, np.zeros(lattice.nodes)))
    with pytest.raises(dp.errors.InputError, match="as many finite values"):
        LatticeValues(lattice, np.zeros(3))
    with pytest.raises(dp.errors.InputError, match="a finite number for each"):
        GreedyPolicy(net, lambda states: states.sum(axis=1), prices=np.zeros(3))
    with pytest.raises(dp.errors.InputError, match="each of its"):
        GreedyPolicy(net, LatticeValues(lattice, np.zeros(lattice.nodes)), prices=np.ones(2))
    with pytest.raises(dp.errors.InputError, match="function of yours"):
        dp.search.solve_lattice(net, lattice, prices=[(dp.Limit(lambda x, a: 1.0, 0.5), 1.0)])
    with pytest.raises(dp.errors.InputError, match="penalty must be"):
        dp.search.solve_lattice(net, lattice, penalty=-1.0)
    with pytest.raises(dp.errors.InputError, match="tol must be a positive number"):
        dp.search.solve_lattice(net, lattice, tol=0.0)
    with pytest.raises(dp.errors.InputError, match="at least 2"):
        dp.search.make_lattice(net, nodes=1)
    with pytest.raises(dp.errors.InputError, match="too many coordinates"):
        dp.search.make_lattice(dp.load("tandem"), np.zeros((1, 101), np.int64), nodes=1000)
    with pytest.raises(dp.errors.InputError, match="policies or visited states"):
        dp.search.make_lattice(net, [])
