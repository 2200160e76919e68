"""Features and the surrogate, against dense matrices, enumeration and counts."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dualplan as dp
from bank import matrix
from dualplan import features as families
from dualplan.surrogate import DualALP

CRITERIA = [dp.Average(), dp.Discounted(0.9), dp.Discounted(0.8, start=[((0, 1, 0, 0), 0.25), ((2, 2, 1, 0), 0.75)])]


def mixed_features(model):
    """Every kind of block."""
    return families.concat(
        families.occupancies(model, [model.policy("longer"), model.policy("lbfs")]),
        families.bands(model, [(1, 3), (4, 4), (6, 7)]),
        families.boxes(model, [[(0, 1), (2, 2)], [(0, 2)], [(1, 2)], [(0, 0), (1, 2)]]),
        families.tiles(model, model.policy("lbfs"), [[(0, 1), (2, 2)], [(0, 2)], [(0, 2)], [(0, 2)]]),
    )


@pytest.fixture(scope="module")
def net():
    return dp.load("four-queue", buffers=2)


@pytest.fixture(scope="module")
def mixed(net):
    return mixed_features(net)


def dense(features):
    """Φ from single look-ups, a row for each pair x·A + a."""
    model = features.model
    count, actions = model.box.count, len(model.actions)
    phi = np.zeros((count * actions, len(features)))
    for i, a in itertools.product(range(count), range(actions)):
        if model.allowed(model.box.state(i))[a]:
            indices, values = features.row(model.box.state(i), a)
            np.add.at(phi[i * actions + a], indices, values)
    return phi


def dense_flow(model, criterion, phi):
    """F = (P − B)ᵀΦ or (B − γP)ᵀΦ, and α."""
    rows, losses = matrix(model)
    b = np.kron(np.eye(model.box.count), np.ones((losses.shape[1], 1)))
    if not isinstance(criterion, dp.Discounted):
        return (rows - b).T @ phi, np.zeros(model.box.count)
    alpha = np.zeros(model.box.count)
    for x, p in zip(*criterion.start_distribution(model), strict=True):
        alpha[model.box.index(x)] += p
    return (b - criterion.gamma * rows).T @ phi, alpha


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
            expected, seen = np.append(expected[:-2], expected[-2:].sum()), np.append(seen[:-2], seen[-2:].sum())
        if expected.size > 1:
            assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue >= 1e-6


def test_bands_at_any_scale_are_counted_without_listing():
    """40 unbounded queues: the number of states with sum v is C(v + 39, 39); the mean loss follows."""
    classes = [dp.QueueClass(str(i), f"S{i // 2}", 0.004, 0.001) for i in range(4)]
    with pytest.raises(dp.InputError, match="does not allow"):  # a server decides at its own event only
        families.bands(dp.QueueingNetwork(classes, decisions="per-server"), [(0, 3)])
    joint = dp.QueueingNetwork([dp.QueueClass(str(i), "S", 0.004, 0.001) for i in range(40)])
    bands = families.bands(joint, [(0, 0), (2, 3)])
    ways = [1, 40, 820, 11_480]  # C(v + 39, 39)
    x = np.zeros(40, np.int64)
    x[[3, 17]] = 1, 2
    assert bands.row(x, 5)[1] == pytest.approx([1 / (ways[2] + ways[3])])
    assert bands.losses[40] == pytest.approx((2 * ways[2] + 3 * ways[3]) / (ways[2] + ways[3]))
    states, _ = bands.draw(40, 20_000)
    assert stats.binomtest(int((states.sum(axis=1) == 3).sum()), 20_000, ways[3] / (ways[2] + ways[3])).pvalue > 1e-6


def test_losses_that_have_no_closed_form_are_estimated_and_say_so():
    net = dp.load("four-queue", buffers=2, penalty=4.0)
    boxes = families.boxes(net, [[(0, 2)]] * 4)
    truth = dense(boxes).T @ matrix(net)[1].ravel()
    assert (boxes.errors > 0).all()
    assert (np.abs(boxes.losses - truth) <= 5 * boxes.errors).all()


def test_policy_switch_tiles(net):
    """μ(x)·π_k(a|x) on each tile: with one tile and μ of a policy, that policy's feature is its occupancy."""
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
        assert value.total == pytest.approx(value.objective + 3 * value.negative + 7 * value.flow, abs=1e-9)
        exact = phi.T @ losses - 3 * phi.T @ (u < 0) + 7 * flow.T @ np.sign(residual)
        assert problem.subgradient(theta, (3.0, 7.0), listed) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_sampled_violations_and_subgradients_are_unbiased(net, mixed, criterion):
    """300 independent samples of 200 constraints: each mean within 5.5 standard errors of the exact value.

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
    """The proved C1, C2 or C3, C4 against the largest norm of a row over q, computed densely; and q sums to 1."""
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
    assert (np.linalg.norm(phi, axis=1)[mean > 0] / mean[mean > 0]).max() <= problem.constants[0] + 1e-9
    assert (np.linalg.norm(flow, axis=1)[q > 0] / q[q > 0]).max() <= problem.constants[1] + 1e-9
    drawn = problem.draw(500, seed=1)
    assert np.abs(drawn.flows).sum(axis=1).max() > 0
    sizes = np.sqrt((drawn.flows**2).sum(axis=1)) * drawn.flow_weights * 500
    assert sizes.max() <= problem.constants[1] + 1e-9  # the weights are those of this q
    states = np.bincount([np.abs(flow - row).sum(axis=1).argmin() for row in drawn.flows.toarray()], minlength=len(q))
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
        (lambda m, f: DualALP(dp.load("four-queue", buffers=3), f), "the features belong to"),
        (lambda m, f: DualALP(m, f, dp.Discounted(0.9, start=[((0, 0, 0, 0), 0.5)])), "sums to 0.5, not 1"),
        (lambda m, f: families.table(m, sp.csc_array(np.ones((324, 1)))), "sums to 324, not 1"),
        (lambda m, f: families.table(m, np.ones((3, 1))), "has 324 rows"),
        (lambda m, f: families.boxes(m, [[(0, 1)]]), "each of 4 coordinates"),
        (lambda m, f: families.boxes(m, [[(0, 1), (1, 2)]] * 4), "must not be empty, overlap"),
        (lambda m, f: families.boxes(m, [[(0, 3)]] * 4), "above its limit 2"),
        (lambda m, f: families.bands(m, [(0, 2), (2, 3)]), "overlaps another one"),
        (lambda m, f: families.bands(m, [(9, 12)]), "holds no state"),
        (lambda m, f: families.paper(m), "buffers of at least 25"),
        (lambda m, f: families.concat(f, families.bands(dp.load("four-queue", buffers=3), [(0, 1)])), "one model"),
    ],
)
def test_mistakes(net, mixed, call, words):
    with pytest.raises(dp.InputError, match=words) as caught:
        call(net, mixed)
    assert "\n" not in str(caught.value)
