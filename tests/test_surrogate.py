"""Features and the surrogate, against dense matrices, enumeration and counts."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import dualplan as dp
from bank import CRITERIA, dense, dense_flow, matrix
from dualplan.dual import features as families
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers import (
    MixturePolicy,
    solve_adaptive,
    solve_by_theory,
    solve_listed,
    solve_sampled,
    solve_subgradient,
    theory,
)


def test_features_are_distributions_with_the_losses_they_say(net, mixed):
    phi, (_, losses) = dense(mixed), matrix(net)
    assert phi.min() >= 0
    assert phi.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
    assert mixed.losses == pytest.approx(phi.T @ losses.ravel(), abs=1e-12)
    assert not mixed.errors.any()


def test_draws_follow_the_densities(mixed):
    """A chi-square test for each feature, 4,000 draws; p >= 1e-6 for each."""
    phi, model = dense(mixed), mixed.model
    for j in range(len(mixed)):
        states, actions = mixed.draw(j, 4_000, seed=3)
        pairs = (states - model.box.lower) @ model.box.strides * 4 + actions
        counts = np.bincount(pairs, minlength=len(phi))
        assert not counts[phi[:, j] == 0].any()
        order = np.argsort(-phi[:, j])
        expected, seen = 4_000 * phi[order, j], counts[order]
        common = expected >= 5
        expected = np.append(expected[common], expected[~common].sum())
        seen = np.append(seen[common], seen[~common].sum())
        if expected[-1] < 5:
            expected, seen = (
                np.append(expected[:-2], expected[-2:].sum()),
                np.append(seen[:-2], seen[-2:].sum()),
            )
        if expected.size > 1:
            assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue >= 1e-6


def test_bands_at_any_scale_are_counted_without_listing():
    """40 unbounded queues: the number of states with sum v is C(v + 39, 39).

    The mean loss follows.
    """
    classes = [dp.QueueClass(str(i), f"S{i // 2}", 0.004, 0.001) for i in range(4)]
    with pytest.raises(
        dp.errors.InputError, match="does not allow"
    ):  # a server decides at its own event only
        families.bands(dp.QueueingNetwork(classes, decisions="per-server"), [(0, 3)])
    joint = dp.QueueingNetwork([dp.QueueClass(str(i), "S", 0.004, 0.001) for i in range(40)])
    bands = families.bands(joint, [(0, 0), (2, 3)])
    ways = [1, 40, 820, 11_480]  # C(v + 39, 39)
    x = np.zeros(40, np.int64)
    x[[3, 17]] = 1, 2
    assert bands.row(x, 5)[1] == pytest.approx([1 / (ways[2] + ways[3])])
    assert bands.losses[40] == pytest.approx((2 * ways[2] + 3 * ways[3]) / (ways[2] + ways[3]))
    states, _ = bands.draw(40, 20_000)
    assert (
        stats.binomtest(
            int((states.sum(axis=1) == 3).sum()), 20_000, ways[3] / (ways[2] + ways[3])
        ).pvalue
        > 1e-6
    )


def test_losses_that_have_no_closed_form_are_estimated_and_say_so():
    net = dp.load("four-queue", buffers=2, penalty=4.0)
    boxes = families.boxes(net, [[(0, 2)]] * 4)
    truth = dense(boxes).T @ matrix(net)[1].ravel()
    assert (boxes.errors > 0).all()
    assert (np.abs(boxes.losses - truth) <= 5 * boxes.errors).all()


def test_policy_switch_tiles(net):
    """μ(x)·π_k(a|x) on each tile: with one tile and μ of a policy, that policy's feature is its
    occupancy.
    """
    lbfs, longer = net.policy("lbfs"), net.policy("longer")
    whole = [[(0, 2)]] * 4
    switch = dense(families.tiles(net, lbfs, whole, choices=[lbfs, longer]))
    own = dense(families.occupancies(net, [lbfs]))
    assert switch[:, :1] == pytest.approx(own, abs=1e-12)
    table = np.array([longer(net.box.state(i)) for i in range(net.box.count)])
    mu = own.reshape(-1, 4).sum(axis=1)
    assert switch[:, 1] == pytest.approx((mu[:, None] * table).ravel(), abs=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_all_constraints_are_those_of_the_dense_matrices(net, mixed, criterion):
    problem, phi = DualALP(net, mixed, criterion), dense(mixed)
    flow, alpha = dense_flow(net, criterion, phi)
    listed = problem.enumerate()
    assert listed.flows.toarray() == pytest.approx(flow, abs=1e-12)
    assert listed.masses == pytest.approx(alpha)
    rng = np.random.default_rng(5)
    losses = matrix(net)[1].ravel()
    for _ in range(5):
        theta = problem.project(rng.normal(size=len(mixed)))
        u = phi @ theta
        residual = flow @ theta - alpha
        value = problem.value(theta, (3.0, 7.0), listed)
        assert value.objective == pytest.approx(losses @ u, abs=1e-9)
        assert value.negative == pytest.approx(np.maximum(-u, 0).sum(), abs=1e-9)
        assert value.flow == pytest.approx(np.abs(residual).sum(), abs=1e-9)
        assert value.total == pytest.approx(
            value.objective + 3 * value.negative + 7 * value.flow, abs=1e-9
        )
        exact = phi.T @ losses - 3 * phi.T @ (u < 0) + 7 * flow.T @ np.sign(residual)
        assert problem.subgradient(theta, (3.0, 7.0), listed) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_sampled_violations_and_subgradients_are_unbiased(net, mixed, criterion):
    """300 independent samples of 200 constraints: each mean within 5.5 standard errors of the exact
    value.

    Two-sided p = 4e-8 for one of the 2 + d means, so below 4e-6 for any of them.
    """
    problem = DualALP(net, mixed, criterion)
    listed = problem.enumerate()
    theta = problem.project(np.random.default_rng(2).normal(size=len(mixed)))
    exact, slope = problem.value(theta, 2.0, listed), problem.subgradient(theta, 2.0, listed)
    looks = []
    for k in range(300):
        drawn = problem.draw(200, seed=9, first=200 * k)
        value = problem.value(theta, 2.0, drawn)
        looks.append([value.negative, value.flow, *problem.subgradient(theta, 2.0, drawn)])
    means, errors = np.mean(looks, axis=0), np.std(looks, axis=0) / np.sqrt(300)
    assert (np.abs(means - [exact.negative, exact.flow, *slope]) <= 5.5 * errors + 1e-9).all()


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_sampling_constants_hold_at_every_pair_and_state(net, mixed, criterion):
    """The proved C1, C2 or C3, C4 against the largest norm of a row over q, computed densely.

    And q sums to 1.
    """
    problem, phi = DualALP(net, mixed, criterion), dense(mixed)
    flow, alpha = dense_flow(net, criterion, phi)
    mean = phi.mean(axis=1)
    rows, losses = matrix(net)
    b = np.kron(np.eye(net.box.count), np.ones((losses.shape[1], 1)))
    if isinstance(criterion, dp.Discounted):
        g = criterion.gamma
        q = alpha / 2 + (b.T @ mean + g * rows.T @ mean) / (2 * (1 + g))
    else:
        q = (b.T @ mean + rows.T @ mean) / 2
    assert q.sum() == pytest.approx(1.0)
    assert (
        np.linalg.norm(phi, axis=1)[mean > 0] / mean[mean > 0]
    ).max() <= problem.constants.negative + 1e-9
    assert (np.linalg.norm(flow, axis=1)[q > 0] / q[q > 0]).max() <= problem.constants.flow + 1e-9
    drawn = problem.draw(500, seed=1)
    assert np.abs(drawn.flows).sum(axis=1).max() > 0
    sizes = np.sqrt((drawn.flows**2).sum(axis=1)) * drawn.flow_weights * 500
    assert sizes.max() <= problem.constants.flow + 1e-9  # the weights are those of this q
    states = np.bincount(
        [np.abs(flow - row).sum(axis=1).argmin() for row in drawn.flows.toarray()], minlength=len(q)
    )
    assert not states[q == 0].any()


def test_draws_do_not_depend_on_threads_or_on_how_they_are_asked_for(net, mixed):
    problem = DualALP(net, mixed)
    one, two = problem.draw(10_000, seed=4, threads=1), problem.draw(10_000, seed=4, threads=2)
    part = problem.draw(1_000, seed=4, first=5_000)
    assert (one.flows != two.flows).nnz == (one.pairs != two.pairs).nnz == 0
    assert (one.flows[5_000:6_000] != part.flows).nnz == 0


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 1e9]), st.floats(1.0, 30.0))
def test_projection_is_the_nearest_point(seed, scale, stretch):
    """Argmin property: (θ − Π)ᵀ(z − Π) <= 0 for every z in Θ, at scales 1 and 10⁹."""
    net = dp.load("four-queue", buffers=1)
    features = families.boxes(net, [[(0, 1)], [(0, 1)], [(0, 0), (1, 1)], [(0, 1)]])
    problem = DualALP(net, features, radius=stretch / np.sqrt(len(features)))
    rng = np.random.default_rng(seed)
    theta = scale * rng.normal(size=len(features))
    near = problem.project(theta)
    assert near.sum() == pytest.approx(1.0, abs=1e-9)
    assert np.linalg.norm(near) <= problem.radius * (1 + 1e-12)
    for _ in range(20):
        other = problem.project(rng.normal(size=len(features)) * 10 ** rng.uniform(-2, 2))
        assert (theta - near) @ (other - near) <= 1e-9 * scale


@pytest.mark.parametrize("penalty", [4.0, (30.0, 60.0), 300.0])
@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_the_program_over_all_constraints_is_the_one_written_out(net, mixed, criterion, penalty):
    """Against the primal form in dense matrices, by SciPy.

    The potential is capped by H and prices the flow.
    """
    problem, phi = DualALP(net, mixed, criterion, radius=500.0), dense(mixed)
    flow, alpha = dense_flow(net, criterion, phi)
    on_negative, on_flow = penalty if isinstance(penalty, tuple) else (penalty, penalty)
    d, pairs, states = len(mixed), len(phi), len(flow)
    # θ, s >= −Φθ, p − n = Fθ − α
    costs = np.concatenate(
        [phi.T @ matrix(net)[1].ravel(), np.full(pairs, on_negative), np.full(2 * states, on_flow)]
    )
    upper = np.hstack([-phi, -np.eye(pairs), np.zeros((pairs, 2 * states))])
    equal = np.block(
        [
            [flow, np.zeros((states, pairs)), -np.eye(states), np.eye(states)],
            [np.ones((1, d)), np.zeros((1, pairs + 2 * states))],
        ]
    )
    bounds = [(-500, 500)] * d + [(0, None)] * (pairs + 2 * states)
    right = np.append(alpha, problem.mass)
    truth = optimize.linprog(costs, upper, np.zeros(pairs), equal, right, bounds).fun
    found = solve_listed(problem, penalty)
    assert found.value == pytest.approx(truth, rel=1e-6, abs=1e-6)
    if found.status is dp.Status.SOLVED:
        assert found.parts.total == pytest.approx(truth, rel=1e-5, abs=1e-5)
        assert found.theta.sum() == pytest.approx(problem.mass, abs=1e-6)
    assert np.abs(found.potential).max() <= on_flow * (1 + 1e-9)


def test_a_sampled_program_comes_close(net, mixed):
    problem = DualALP(net, mixed, dp.Discounted(0.9), radius=500.0)
    listed, best = problem.enumerate(), solve_listed(problem, 50.0)
    assert best.value < 0.98 * min(
        problem.value(problem.mass * row, 50.0, listed).total for row in np.eye(len(mixed))
    )
    sampled = solve_sampled(problem, 50.0, samples=20_000, seed=1)
    assert (
        best.value - 1e-6 <= problem.value(sampled.theta, 50.0, listed).total <= 1.01 * best.value
    )


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_the_papers_steps_are_those_of_a_plain_loop(net, mixed, criterion):
    """Fifty steps of batches of three, with a schedule, against NumPy on the same constraints."""
    problem = DualALP(net, mixed, criterion, radius=1.5 * (1 if criterion == dp.Average() else 10))
    found = solve_subgradient(
        problem, (2.0, 3.0), iterations=50, step_size=lambda t: 0.02 / (1 + t), batch=3, seed=8
    )
    theta, total = problem.project(np.zeros(len(mixed))), np.zeros(len(mixed))
    for t in range(50):
        total += theta
        batch = problem.draw(3, seed=8, first=3 * t)
        theta = problem.project(
            theta - 0.02 / (1 + t) * problem.subgradient(theta, (2.0, 3.0), batch)
        )
    assert found.theta == pytest.approx(total / 50, abs=1e-10)
    assert found.samples == 150


@pytest.mark.parametrize(
    ("criterion", "penalty"), [(dp.Average(), 8.0), (dp.Discounted(0.9), 15.0)], ids=str
)
def test_the_adaptive_method_comes_within_five_percent(net, mixed, criterion, penalty):
    problem = DualALP(net, mixed, criterion, radius=500.0)
    listed, best = problem.enumerate(), solve_listed(problem, penalty)
    assert best.status is dp.Status.SOLVED
    found = solve_adaptive(problem, penalty, samples=200_000, seed=2)
    total = problem.value(found.theta, penalty, listed).total
    assert best.value - 1e-6 <= total <= best.value + 0.05 * abs(best.value)
    assert (
        abs(found.parts.flow - problem.value(found.theta, penalty, listed).flow)
        <= 5 * found.parts.flow_error + 1e-9
    )
    again = solve_adaptive(problem, penalty, samples=40_000, seed=2, threads=1)
    assert (
        again.theta == solve_adaptive(problem, penalty, samples=40_000, seed=2, threads=2).theta
    ).all()


def test_the_theorems_bound_holds_where_it_can_be_run():
    """Two states, two features: T and η of the corrected theorem, 20 seeds.

    Each within ε of the minimum (δ = 1e-4).
    """
    model = dp.TabularModel([np.array([[0.5, 0.5], [0.5, 0.5]])], [[0.0], [1.0]])
    features = families.table(model, np.array([[1.0, 0.2], [0.0, 0.8]]))
    problem = DualALP(model, features, radius=1.5)
    asked = theory(problem, 0.5, epsilon=2.0, delta=1e-4)
    assert asked.gradient == pytest.approx(np.hypot(0.0, 0.8) + 0.5 * 2 + 0.5 * 4)
    assert asked.steps == pytest.approx(
        (1.5 * asked.gradient / 2.0 * (1 + 4 * np.sqrt(2 * np.log(1e4)))) ** 2
    )
    assert asked.step_size == pytest.approx(1.5 / (asked.gradient * np.sqrt(asked.steps)))
    best, listed = solve_listed(problem, 0.5), problem.enumerate()
    for seed in range(20):
        found = solve_by_theory(problem, 0.5, epsilon=2.0, delta=1e-4, seed=seed)
        assert problem.value(found.theta, 0.5, listed).total <= best.value + 2.0
    with pytest.raises(
        dp.errors.InputError,
        match=r"asks for .* steps .*more than the 1,000 samples allowed; use solve_adaptive",
    ):
        solve_by_theory(problem, 0.5, epsilon=0.01, delta=0.05, samples=1_000)
    with pytest.raises(dp.errors.InputError, match="delta must lie strictly between 0 and 1"):
        theory(problem, 0.5, epsilon=0.1, delta=1.5)


def test_the_policy_of_weights_is_the_positive_part_of_the_mixture(net, mixed):
    """In every state, against the dense matrix.

    And the fallback where there is no positive part.
    """
    rng = np.random.default_rng(7)
    theta = rng.normal(size=len(mixed)) * (rng.random(len(mixed)) < 0.3)
    theta[:2] = 0.0
    u = np.maximum(dense(mixed) @ theta, 0.0).reshape(-1, 4)
    policy = MixturePolicy(mixed, theta, fallback=net.policy("lbfs"))
    empty = u.sum(axis=1) == 0
    assert 0 < empty.sum() < len(u)
    for i in range(net.box.count):
        x = net.box.state(i)
        expected = net.policy("lbfs")(x) if empty[i] else u[i] / u[i].sum()
        assert policy(x) == pytest.approx(expected, abs=1e-12)
    uniform = MixturePolicy(mixed, theta)
    assert uniform(net.box.state(int(np.flatnonzero(empty)[0]))) == pytest.approx(0.25)
    alone = MixturePolicy(mixed, np.eye(len(mixed))[1])  # the occupancy of LBFS is that of LBFS
    assert dp.evaluate_exact(net, alone).cost == pytest.approx(
        dp.evaluate_exact(net, net.policy("lbfs")).cost, abs=1e-9
    )
    assert policy.digest != uniform.digest != alone.digest


def test_an_exact_penalty_is_never_worse_than_the_better_part(net):
    """Policy-switch tiles of LONGER and LBFS; H above half the span of the biases. Both occupancies
    are mixtures.

    A smaller H need not be safe: at H = 20 the policy costs 3.08, LBFS 2.71.
    """
    lbfs, longer = net.policy("lbfs"), net.policy("longer")
    cuts = [[(0, 0), (1, 2)]] * 4
    switch = families.concat(
        *(families.tiles(net, p, cuts, choices=[lbfs, longer]) for p in (lbfs, longer))
    )
    parts = [dp.evaluate_exact(net, p) for p in (lbfs, longer)]
    problem = DualALP(net, switch, radius=50.0)
    solution = solve_listed(problem, max(p.span for p in parts))
    better = min(p.cost for p in parts)
    assert solution.value <= better + 1e-6
    cost = dp.evaluate_exact(net, MixturePolicy(switch, solution.theta, fallback=lbfs)).cost
    assert dp.solve_exact(net, tol=1e-6).lower <= cost <= better + 1e-5


def test_a_minimum_that_runs_away_says_so(net, mixed):
    """H = .1 pays for leaving the simplex: the cube of radius S stops it, and the ball would
    sooner.
    """
    found = solve_listed(DualALP(net, mixed, radius=10.0), 0.1)
    assert found.status is dp.Status.RADIUS
    assert np.linalg.norm(found.theta) > 10.0


def test_the_papers_features_have_their_count():
    net = dp.load("four-queue", buffers=25)
    assert len(families.PAPER_BANDS) * 4 + len(families.PAPER_INTERVALS) ** 4 * 4 == 364
    bands = families.bands(net, families.PAPER_BANDS)
    x = np.array([10, 11, 21, 3])
    assert bands.names[bands.row(x, 2)[0][0]].startswith("band (41, 45)")
    boxes = families.boxes(net, [families.PAPER_INTERVALS] * 4)
    assert len(bands) + len(boxes) == 364
    assert boxes.row(x, 2)[1] == pytest.approx([1 / (11 * 10 * 5 * 11)])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, f: DualALP(m, f, radius=0.01), "radius must be >= "),
        (lambda m, f: DualALP(m, f).value(np.ones(len(f)), 0.0, None), "H must be positive"),
        (
            lambda m, f: DualALP(dp.load("four-queue", buffers=3), f),
            "the set of features belongs to",
        ),
        (
            lambda m, f: DualALP(m, f, dp.Discounted(0.9, start=[((0, 0, 0, 0), 0.5)])),
            "sums to 0.5, not 1",
        ),
        (lambda m, f: families.table(m, sp.csc_array(np.ones((324, 1)))), "sums to 324, not 1"),
        (lambda m, f: families.table(m, np.ones((3, 1))), "has 324 rows"),
        (lambda m, f: families.boxes(m, [[(0, 1)]]), "each of 4 coordinates"),
        (lambda m, f: families.boxes(m, [[(0, 1), (1, 2)]] * 4), "must not be empty, overlap"),
        (lambda m, f: families.boxes(m, [[(0, 3)]] * 4), "above its limit 2"),
        (lambda m, f: families.bands(m, [(0, 2), (2, 3)]), "overlaps another one"),
        (lambda m, f: families.bands(m, [(9, 12)]), "holds no state"),
        (lambda m, f: families.paper(m), "buffers of at least 25"),
        (
            lambda m, f: families.concat(
                f, families.bands(dp.load("four-queue", buffers=3), [(0, 1)])
            ),
            "one model",
        ),
    ],
)
def test_mistakes(net, mixed, call, words):
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        call(net, mixed)
    assert "\n" not in str(caught.value)
