"""Sampling distributions, the base measure, weights over states, potentials and limits, against
dense matrices.
"""

import functools

import numpy as np
import pytest
from scipy import optimize

import dualplan as dp
from bank import CRITERIA, dense, dense_flow, four_queue_events, load, matrix, tabular
from dualplan.dual import features as families
from dualplan.dual.problem import DualALP
from dualplan.dual.sampling import SAMPLING_SCHEMES
from dualplan.dual.solvers import (
    solve_adaptive,
    solve_listed,
    solve_sampled,
    solve_subgradient,
    theory,
)
from dualplan.values.functions import state_function


@pytest.fixture(scope="module")
def products(net):
    """Laws that are positive everywhere, as in the paper's third scenario."""
    return families.products(net, [[families.Truncated(r)] * 4 for r in (0.5, 0.9)])


def everything(net, mixed, criterion, sampling):
    """A problem with all that the surrogate can have."""
    base = families.occupancies(net, [net.policy("lbfs")])
    return DualALP(
        net,
        mixed,
        criterion,
        base=base,
        sampling=sampling,
        weights=lambda x: 1.0 + x.sum(axis=1),
        potential=lambda x: 0.3 * (x * x).sum(axis=1),
        limit_penalty=7.0,
        limits=[dp.Limit("length 1", 0.9), dp.Limit("lost fraction", 0.1)],
    )


def dense_value(problem, theta, penalty):
    """c(θ) and a subgradient from dense matrices and the definition of the shaped loss."""
    net, phi, total = problem.model, dense(problem.features), problem.total
    base = np.zeros(len(phi)) if problem.base is None else total * dense(problem.base)[:, 0]
    flow, alpha = dense_flow(net, problem.criterion, phi)
    base_flow, _ = dense_flow(net, problem.criterion, base[:, None])
    rows, losses = matrix(net)
    states = np.array([net.box.state(i) for i in range(net.box.count)])
    w = np.ones(len(states)) if problem.weights is None else problem.weights(states)
    h = np.zeros(len(states)) if problem.potential is None else problem.potential(states)
    b = np.kron(np.eye(len(states)), np.ones((losses.shape[1], 1)))
    shaped = losses.ravel() + problem.gamma * rows @ h - b @ h
    u, f = base + phi @ theta, flow @ theta + base_flow[:, 0] - alpha
    pair_w = np.repeat(w, losses.shape[1])
    (on_negative, on_flow), g = penalty, limit_rows(net, problem.limits)
    over = g @ u > 0
    value = (
        shaped @ u + alpha @ h + on_negative * pair_w @ np.maximum(-u, 0) + on_flow * w @ np.abs(f)
    )
    slope = (
        phi.T @ shaped
        - on_negative * phi.T @ (pair_w * (u < 0))
        + on_flow * flow.T @ (w * np.sign(f))
    )
    prices = problem.limit_penalty
    return value + prices @ np.maximum(g @ u, 0), slope + phi.T @ (g.T @ (prices * over))


def limit_rows(net, limits):
    """n − limit·d at each pair, for mean lengths of a queue and for the fraction of arrivals that
    are lost.
    """
    rows = np.zeros((len(limits), net.box.count * len(net.actions)))
    for k, limit in enumerate(limits):
        for i in range(net.box.count):
            x = net.box.state(i)
            if limit.measure == "length 1":
                value = x[0] - limit.at_most
            else:  # with blocking, customers are lost at arrival to a full first or third queue; rates are .08
                value = 0.08 * (int(x[0] == 2) + int(x[2] == 2)) - limit.at_most * 0.16
            rows[k, 4 * i : 4 * i + 4] = value
    return rows


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_the_whole_surrogate_is_the_dense_one(net, mixed, criterion):
    problem, rng = everything(net, mixed, criterion, "features"), np.random.default_rng(1)
    listed = problem.enumerate()
    assert problem.project(np.ones(len(mixed))).sum() == pytest.approx(0.0, abs=1e-12)
    for _ in range(5):
        theta = problem.project(rng.normal(size=len(mixed)))
        value, slope = dense_value(problem, theta, (3.0, 7.0))
        assert problem.value(theta, (3.0, 7.0), listed).total == pytest.approx(value, rel=1e-9)
        assert problem.subgradient(theta, (3.0, 7.0), listed) == pytest.approx(
            slope, rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize("sampling", [*SAMPLING_SCHEMES, "features", "products"])
@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_every_sampling_scheme_is_unbiased(net, mixed, products, criterion, sampling):
    """300 samples of 100 constraints, for the whole surrogate: each mean within 5.5 standard errors
    of the exact value.

    Two-sided p = 4e-8 for one of the 3 + d means, so below 4e-6 for any of them. The look-ahead
    scheme must refuse where a state is entered that carries no feature of its own.
    """
    given = products if sampling == "products" else sampling
    if sampling == "look-ahead":
        with pytest.raises(dp.errors.InputError, match="never drawn"):
            everything(net, families.boxes(net, [[(0, 1)]] * 4), criterion, given)
        mixed = families.concat(mixed, families.boxes(net, [[(0, 2)]] * 4))
    problem = everything(net, mixed, criterion, given)
    listed = problem.enumerate()
    theta = problem.project(np.random.default_rng(2).normal(size=len(mixed)))
    exact, slope = problem.value(theta, 2.0, listed), problem.subgradient(theta, 2.0, listed)
    looks = []
    for k in range(300):
        drawn = problem.draw(100, seed=9, first=100 * k)
        value = problem.value(theta, 2.0, drawn)
        looks.append(
            [value.negative, value.flow, value.total, *problem.subgradient(theta, 2.0, drawn)]
        )
    means, errors = np.mean(looks, axis=0), np.std(looks, axis=0) / np.sqrt(300)
    assert (
        np.abs(means - [exact.negative, exact.flow, exact.total, *slope]) <= 5.5 * errors + 1e-9
    ).all()
    assert errors[2] > 0


@pytest.mark.parametrize("sampling", [*SAMPLING_SCHEMES, "features", "products"])
@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_constants_bound_the_rows_drawn_and_are_reached(net, products, criterion, sampling):
    """‖row‖/q <= C on 20,000 draws.

    Computed constants are the largest ratio over all pairs and states.
    """
    features = families.concat(
        families.boxes(net, [[(0, 2)]] * 4), families.bands(net, [(0, 4), (5, 8)])
    )
    problem = DualALP(
        net, features, criterion, sampling=products if sampling == "products" else sampling
    )
    drawn, constants = problem.draw(20_000, seed=3), problem.constants
    pairs = np.sqrt(drawn.pairs.multiply(drawn.pairs).sum(axis=1)) * drawn.pair_weights * 20_000
    flows = np.sqrt(drawn.flows.multiply(drawn.flows).sum(axis=1)) * drawn.flow_weights * 20_000
    assert pairs.max() <= constants.negative * (1 + 1e-9)
    assert flows.max() <= constants.flow * (1 + 1e-9)
    assert constants.known == ("proved" if sampling == "features" else "computed")
    if sampling == "row-norms":
        phi = dense(features)
        assert constants.negative == pytest.approx(np.linalg.norm(phi, axis=1).sum())
        flow, alpha = dense_flow(net, criterion, phi)
        if not alpha.any():
            assert constants.flow == pytest.approx(np.linalg.norm(flow, axis=1).sum())
    if constants.known == "computed":
        assert pairs.max() == pytest.approx(constants.negative)


def test_the_corrected_bounds_of_the_uniform_scenario(net):
    """C1 <= √d·C' and C2 <= √d·C'·(N + A)/A, with C' the largest density over the uniform one."""
    features = families.boxes(net, [[(0, 2)], [(0, 2)], [(0, 1), (2, 2)], [(0, 2)]])
    problem, phi = DualALP(net, features, sampling="uniform"), dense(features)
    largest, root = phi.max() * phi.shape[0], np.sqrt(len(features))
    entering = max(
        len(net.predecessors(net.box.state(i)).probabilities) for i in range(net.box.count)
    )
    assert problem.constants.negative <= root * largest
    assert problem.constants.flow <= root * largest * (entering + 4) / 4


def test_sampling_that_misses_features_is_an_error(net, mixed):
    corner = families.boxes(net, [[(0, 1)]] * 4)
    with pytest.raises(dp.errors.InputError, match="pairs that carry features are never drawn"):
        DualALP(net, mixed, sampling=corner).draw(10)
    large = dp.load("four-queue", buffers=40)
    wide = families.boxes(large, [[(0, 40)]] * 4)
    with pytest.raises(dp.errors.InputError, match="never drawn"):
        DualALP(large, wide, sampling=families.boxes(large, [[(0, 30)]] * 4)).draw(10)
    with pytest.raises(dp.errors.InputError, match="did you mean 'uniform'"):
        DualALP(net, mixed, sampling="unifrom")
    estimated = DualALP(large, families.boxes(large, [[(0, 30)]] * 4), sampling=wide)
    assert estimated.constants.known == "estimated"


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_the_program_of_the_whole_surrogate_is_the_least_value(net, mixed, criterion):
    """Against SciPy on the primal form in dense matrices; multipliers of the flow are within H."""
    problem = everything(net, mixed, criterion, "features")
    problem.radius = 500.0
    phi, total = dense(mixed), problem.total
    base = total * dense(problem.base)[:, 0]
    flow, alpha = dense_flow(net, criterion, phi)
    base_flow = dense_flow(net, criterion, base[:, None])[0][:, 0]
    states = np.array([net.box.state(i) for i in range(net.box.count)])
    w, h = problem.weights(states), problem.potential(states)
    rows, losses = matrix(net)
    b = np.kron(np.eye(len(states)), np.ones((4, 1)))
    shaped = losses.ravel() + problem.gamma * rows @ h - b @ h
    g, d, pairs, count = limit_rows(net, problem.limits), len(mixed), len(phi), len(states)
    costs = np.concatenate(
        [phi.T @ shaped, 30 * np.repeat(w, 4), 60 * w, 60 * w, problem.limit_penalty]
    )
    upper = np.block(
        [
            [-phi, -np.eye(pairs), np.zeros((pairs, 2 * count + 2))],
            [g @ phi, np.zeros((2, pairs + 2 * count)), -np.eye(2)],
        ]
    )
    equal = np.block(
        [
            [flow, np.zeros((count, pairs)), -np.eye(count), np.eye(count), np.zeros((count, 2))],
            [np.ones((1, d)), np.zeros((1, pairs + 2 * count + 2))],
        ]
    )
    bounds = [(-500, 500)] * d + [(0, None)] * (pairs + 2 * count + 2)
    truth = (
        optimize.linprog(
            costs,
            upper,
            np.append(base, -g @ base),
            equal,
            np.append(alpha - base_flow, 0.0),
            bounds,
        ).fun
        + shaped @ base
        + alpha @ h
    )
    found = solve_listed(problem, (30.0, 60.0))
    assert found.value == pytest.approx(truth, rel=1e-6, abs=1e-6)
    assert problem.value(found.theta, (30.0, 60.0), problem.enumerate()).total == pytest.approx(
        truth, rel=1e-5
    )
    assert (np.abs(found.potential) <= 60.0 * w * (1 + 1e-9)).all()


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_steps_on_the_whole_surrogate_are_those_of_a_plain_loop(net, mixed, criterion):
    problem = everything(net, mixed, criterion, "features")
    found = solve_subgradient(
        problem, (2.0, 3.0), iterations=40, step_size=lambda t: 0.02 / (1 + t), batch=3, seed=8
    )
    theta, total = problem.project(np.zeros(len(mixed))), np.zeros(len(mixed))
    for t in range(40):
        total += theta
        batch = problem.draw(3, seed=8, first=3 * t)
        theta = problem.project(
            theta - 0.02 / (1 + t) * problem.subgradient(theta, (2.0, 3.0), batch)
        )
    assert found.theta == pytest.approx(total / 40, abs=1e-9)
    with pytest.raises(dp.errors.InputError, match="without weights over states and limits"):
        theory(problem, 2.0, epsilon=1.0, delta=0.1)


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.95)], ids=str)
def test_with_the_exact_values_as_potential_the_shaped_objective_is_the_cost(net, mixed, criterion):
    """NOTES of docs/dual.md: for u >= 0, ℓᵀu + s·fᵀh is the cost of π_u if h is π_u's bias or
    cost-to-go.
    """
    rng = np.random.default_rng(4)
    theta = rng.dirichlet(np.ones(len(mixed)))
    policy = dp.dual.solvers.MixturePolicy(mixed, theta)
    result = dp.evaluate_exact(net, policy, criterion)
    assert result.reached.size == net.box.count
    problem = DualALP(net, mixed, criterion, potential=state_function(net, result.values))
    value = problem.value(problem.total * theta, 1.0, problem.enumerate())
    assert value.flow > 0.01
    assert value.objective + value.shaping == pytest.approx(result.cost, rel=1e-8)


def test_limits_hold_at_the_minimum_and_cost_what_they_should(net):
    """Mixtures of occupancies: under a limit that binds, the policy keeps it and costs what the
    surrogate says.
    """
    rng = np.random.default_rng(3)
    tables = [
        dp.policies.TablePolicy(net, rng.dirichlet(np.full(4, 0.2), size=net.box.count))
        for _ in range(60)
    ]
    features = families.occupancies(net, [*tables, net.policy("lbfs"), net.policy("longer")])
    free = solve_listed(DualALP(net, features, radius=1e4), 1e4)
    losing, keeping = (
        dp.evaluate_exact(net, net.policy(name)).measures["lost fraction"]
        for name in ("lbfs", "longer")
    )
    assert losing > keeping + 0.01
    level = (losing + keeping) / 2
    limit = dp.Limit("lost fraction", level)
    bound = solve_listed(DualALP(net, features, limits=[limit], radius=1e4), 1e4)
    assert free.parts.objective < bound.parts.objective - 1e-4
    assert max(bound.parts.excess) <= 1e-6
    result = dp.evaluate_exact(net, dp.dual.solvers.MixturePolicy(features, bound.theta))
    assert result.measures["lost fraction"] == pytest.approx(level, abs=1e-5)
    assert result.cost == pytest.approx(bound.parts.objective, abs=1e-5)
    assert dp.solve_lp(net, limits=[limit]).lower <= result.cost + 1e-5


@pytest.mark.parametrize(
    ("solver", "options"), [(solve_adaptive, {"samples": 200_000}), (solve_sampled, {})]
)
def test_solvers_take_the_whole_surrogate(net, mixed, solver, options):
    problem = everything(net, mixed, dp.Average(), "features")
    best, listed = solve_listed(problem, 4.0), problem.enumerate()
    found = solver(problem, 4.0, seed=2, **options)
    start = problem.value(np.zeros(len(mixed)), 4.0, listed).total
    reached = problem.value(found.theta, 4.0, listed).total
    assert best.value - 1e-6 <= reached
    assert reached - best.value <= 0.1 * (start - best.value)


def test_bad_parts_of_the_surrogate_are_refused(net, mixed):
    with pytest.raises(dp.errors.InputError, match="single feature, got"):
        DualALP(net, mixed, base=mixed)
    with pytest.raises(dp.errors.InputError, match="one finite number"):
        DualALP(net, mixed, potential=lambda x: x).draw(5)
    with pytest.raises(dp.errors.InputError, match="must be positive"):
        DualALP(net, mixed, weights=lambda x: x[:, 0]).draw(500)
    with pytest.raises(dp.errors.InputError, match="limit_penalty must be a positive number"):
        DualALP(net, mixed, limits=[dp.Limit("length 1", 1.0)], limit_penalty=-1.0)
    with pytest.raises(dp.errors.InputError, match="unknown measure"):
        DualALP(net, mixed, limits=[dp.Limit("lenght 1", 1.0)])
    with pytest.raises(dp.errors.InputError, match="81 numbers"):
        state_function(net, np.zeros(3))


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_shaped_losses_from_draws_are_those_from_lists(net, mixed, criterion, monkeypatch):
    """Each within 5 standard errors (p = 6e-7 for one of them), and errors far below the
    potential's own size.
    """

    def potential(x):
        return 1000.0 + 30.0 * (x * x).sum(axis=1)

    listed = DualALP(net, mixed, criterion, potential=potential)
    monkeypatch.setattr("dualplan.dual.constraints.MOST_LISTED_STATES", 0)
    drawn = DualALP(net, mixed, criterion, potential=potential)
    assert not listed.slope_errors.any()
    assert (np.abs(drawn.slope - listed.slope) <= 5 * drawn.slope_errors).all()
    assert 0 < drawn.slope_errors.max() < 1.0


@functools.cache
def made(form):
    """One model for both criteria, since what is written in Python is compiled for each."""
    if form == "events":
        return four_queue_events(2, jumps="derive")
    if form == "table":
        return tabular(dp.load("four-queue", buffers=1))
    return load("lost-sales", lead_time=2, capacity=4, max_order=3)


@pytest.mark.parametrize("form", ["events", "table", "lost sales"])
@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)], ids=str)
def test_draws_are_unbiased_on_every_kind_of_model(criterion, form):
    """Predecessors derived from jumps, from a table, and by enumeration: 300 samples, 5.5 standard
    errors.
    """
    model = made(form)
    rng, count, actions = np.random.default_rng(7), model.box.count, len(model.actions)
    allowed = np.array([model.allowed(model.box.state(i)) for i in range(count)]).ravel()
    weights = (
        rng.exponential(size=(count * actions, 6))
        * allowed[:, None]
        * (rng.random((count * actions, 6)) < 0.3)
    )
    features = families.table(model, weights / weights.sum(axis=0))
    problem = DualALP(model, features, criterion)
    theta = problem.project(rng.normal(size=6))
    phi = dense(features)
    flow, alpha = dense_flow(model, criterion, phi)
    exact = [np.maximum(-(phi @ theta), 0).sum(), np.abs(flow @ theta - alpha).sum()]
    losses = np.nan_to_num(matrix(model)[1]).ravel()
    slope = (
        phi.T @ losses - 2 * phi.T @ (phi @ theta < 0) + 2 * flow.T @ np.sign(flow @ theta - alpha)
    )
    looks = []
    for k in range(300):
        drawn = problem.draw(100, seed=1, first=100 * k)
        value = problem.value(theta, 2.0, drawn)
        looks.append([value.negative, value.flow, *problem.subgradient(theta, 2.0, drawn)])
    means, errors = np.mean(looks, axis=0), np.std(looks, axis=0) / np.sqrt(300)
    assert (np.abs(means - [*exact, *slope]) <= 5.5 * errors + 1e-9).all()


def some_forbidden():
    """A hundred states in a circle; the second action is not allowed in the last forty."""
    rows = np.zeros((2, 100, 100))
    for a in range(2):
        rows[a, np.arange(100), (np.arange(100) + 1 + a) % 100] = 0.5
    rows[:, :, 0] += 0.5
    allowed = np.ones((100, 2), bool)
    allowed[60:, 1] = False
    return dp.TabularModel(rows, np.arange(100) / 100, allowed=allowed)


def test_features_at_forbidden_actions_are_refused_wherever_they_are_met():
    model = some_forbidden()
    with pytest.raises(dp.errors.InputError, match="does not allow"):
        families.boxes(model, [[(10 * k, 10 * k + 9) for k in range(10)]])
    rare = families.boxes(model, [[(0, 60)]])  # one state in 61: ten draws do not find it
    problem = DualALP(model, rare)
    with pytest.raises(dp.errors.InputError, match=r"sums to 0.983607 over the pairs"):
        problem.enumerate()
    with pytest.raises(dp.errors.InputError, match="does not allow"):
        problem.draw(5_000)


def test_what_is_no_decision_is_left_to_the_fallback(net):
    """Weights that cancel up to rounding, and weights that only a solver's tolerance made."""
    boxes = families.boxes(net, [[(0, 2)]] * 4)
    twice = families.concat(boxes, boxes)
    theta = np.tile([0.1 + 0.2, 0.0, 0.0, 0.0], 2)
    theta[4] = -0.3  # 0.1 + 0.2 is not 0.3
    policy = dp.dual.solvers.MixturePolicy(twice, theta, fallback=net.policy("lbfs"))
    for i in range(net.box.count):
        assert (policy(net.box.state(i)) == net.policy("lbfs")(net.box.state(i))).all()
    problem = DualALP(net, families.concat(families.occupancies(net, [net.policy("lbfs")]), boxes))
    assert (solve_listed(problem, 1e4).theta == [1.0, 0.0, 0.0, 0.0, 0.0]).all()


def test_estimated_losses_count_in_the_errors():
    costly = dp.load("four-queue", buffers=2, penalty=500.0)
    boxes = families.boxes(costly, [[(0, 2)]] * 4)
    problem = DualALP(costly, boxes)
    theta = np.array([0.7, -0.2, 0.3, 0.2])
    value = problem.value(theta, 1.0, problem.enumerate())
    truth = matrix(costly)[1].ravel() @ dense(boxes) @ theta
    assert value.flow_error == 0
    assert value.objective_error == value.total_error > 0
    assert abs(value.objective - truth) <= 5 * value.objective_error


def test_wrong_arguments_of_a_problem_are_refused(net, mixed):
    for given, words in (
        ((net, "standard"), "made by dualplan.dual.features"),
        ((net, mixed, "discounted"), "the criterion must be"),
    ):
        with pytest.raises(dp.errors.InputError, match=words):
            DualALP(*given)
    problem = DualALP(net, mixed)
    with pytest.raises(dp.errors.InputError, match="finite weight for each"):
        problem.value(np.zeros(3), 1.0, problem.enumerate())
    with pytest.raises(dp.errors.InputError, match="seed must be a whole number"):
        problem.draw(10, seed=-1)
    with pytest.raises(dp.errors.InputError, match="radius must be a finite number"):
        DualALP(net, mixed, radius=np.inf)
    with pytest.raises(dp.errors.InputError, match="as many names"):
        families.table(net, np.full((324, 2), 1 / 324), names=["one"])
    with pytest.raises(dp.errors.InputError, match="4 coordinates, got 3"):
        families.tiles(net, net.policy("lbfs"), [[(0, 2)]] * 3)
    with pytest.raises(dp.errors.InputError, match="integer weight for each coordinate"):
        families.bands(net, [(0, 2)], weights=[1.9, 1, 1, 1])
