"""Products of laws and mixtures, against dense sums, closed forms and counts."""

import numpy as np
import pytest
from scipy import stats

import dualplan as dp
from bank import matrix, mm1
from dualplan import features as families
from dualplan.features import Empirical, Geometric, Truncated
from dualplan.solvers import MixturePolicy
from dualplan.surrogate import DualALP
from test_surrogate import CRITERIA, dense, mixed_features

DRAWS = 4_000


@pytest.fixture(scope="module")
def net():
    return dp.load("four-queue", buffers=2)


def product_laws():
    """Laws of every bounded kind: falling, rising, flat, cut, and arbitrary with a hole."""
    hole = Empirical([2, 0, 2], [1.0, 3.0, 1.0])
    return [
        [Truncated(0.5), Truncated(3.0), Truncated(1.0), hole],
        [Truncated(0.1, 1), Empirical.of([0, 1, 1, 2]), Truncated(2.0, 0, 1), Truncated(0.5)],
        [hole, Truncated(0.5), hole, Empirical([1], [5.0])],
    ]


def assert_drawn_as_dense(features, phi, seed=3):
    """A chi-square test of each feature; p >= 1e-6 for each, and nothing drawn where the density is 0."""
    model = features.model
    for j in range(len(features)):
        states, actions = features.draw(j, DRAWS, seed=seed)
        pairs = (states - model.box.lower) @ model.box.strides * len(model.actions) + actions
        counts = np.bincount(pairs, minlength=len(phi))
        assert not counts[phi[:, j] == 0].any()
        common = DRAWS * phi[:, j] >= 5
        seen = np.append(counts[common], counts[~common].sum())
        expected = np.append(DRAWS * phi[common, j], DRAWS * phi[~common, j].sum())
        if expected[-1] < 5:
            seen[-2], expected[-2] = seen[-2:].sum(), expected[-2:].sum()
            seen, expected = seen[:-1], expected[:-1]
        if seen.size > 1:
            assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue >= 1e-6


def assert_distributions(features, phi):
    assert phi.min() >= 0
    assert phi.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
    assert features.losses == pytest.approx(phi.T @ matrix(features.model)[1].ravel(), abs=1e-12)
    assert not features.errors.any()


def assert_unbiased(problem, samples=300, size=200):
    """Independent samples of constraints: each mean within 5.5 standard errors of the exact value (p < 4e-8 each)."""
    listed = problem.enumerate()
    theta = problem.project(np.random.default_rng(2).normal(size=len(problem.features)))
    exact, slope = problem.value(theta, 2.0, listed), problem.subgradient(theta, 2.0, listed)
    looks = []
    for k in range(samples):
        drawn = problem.draw(size, seed=9, first=size * k)
        value = problem.value(theta, 2.0, drawn)
        looks.append([value.negative, value.flow, *problem.subgradient(theta, 2.0, drawn)])
    means, errors = np.mean(looks, axis=0), np.std(looks, axis=0) / np.sqrt(samples)
    assert (np.abs(means - [exact.negative, exact.flow, *slope]) <= 5.5 * errors + 1e-9).all()


# -- products ---------------------------------------------------------------------------------------------------------


def test_products_are_products_of_their_laws(net):
    products = families.products(net, product_laws())
    phi = dense(products)
    assert_distributions(products, phi)
    assert_drawn_as_dense(products, phi)
    p = [np.array([4, 2, 1]) / 7, np.array([1, 3, 9]) / 13, np.full(3, 1 / 3), np.array([3, 0, 2]) / 5]
    expected = np.einsum("i,j,k,l->ijkl", *p).ravel()
    for a in range(4):
        assert phi.reshape(-1, 4, 12)[:, a, a] == pytest.approx(expected, abs=1e-15)


def test_a_ratio_of_any_size_is_a_law():
    """A box of 5,000: ratio 4 would overflow as a power, 1e-3 is a point mass but for rounding."""
    net = dp.QueueingNetwork([dp.QueueClass("1", "S", 0.5, 0.2, buffer=5_000)])
    steep = families.products(net, [[Truncated(4.0)], [Truncated(1e-3)]])
    actions = len(net.actions)
    assert steep.losses[[0, actions]] == pytest.approx([5_000 - 1 / 3, 1e-3 / (1 - 1e-3)], rel=1e-12)
    assert steep.row([4_999], 0)[1] == pytest.approx([3 / 16])  # the other one is below 1e-308 there
    assert steep.draw(0, 1_000)[0].min() > 4_900


@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.9, 0.999])
def test_geometric_laws_on_an_unbounded_queue(ratio):
    """Mean r/(1−r), second moment r(1+r)/(1−r)², density, and draws against the distribution function."""
    plain = families.products(mm1(), [[Geometric(ratio)]])
    assert plain.losses[0] == pytest.approx(ratio / (1 - ratio), rel=1e-12)
    assert not plain.errors.any()
    squared = dp.QueueingNetwork([dp.QueueClass("1", "S", 0.5, 0.2, holding=0.0, quadratic=1.0)])
    second = families.products(squared, [[Geometric(ratio)]]).losses[0]
    assert second == pytest.approx(ratio * (1 + ratio) / (1 - ratio) ** 2, rel=1e-11)
    assert plain.row([7], 0)[1] == pytest.approx([(1 - ratio) * ratio**7])
    drawn = plain.draw(0, 20_000, seed=1)[0][:, 0]
    for level in stats.geom.ppf([0.1, 0.5, 0.9, 0.999], 1 - ratio) - 1:
        share = stats.geom.cdf(level + 1, 1 - ratio)
        if share < 1:
            assert stats.binomtest(int((drawn <= level).sum()), 20_000, share).pvalue >= 1e-6


def test_a_ratio_next_to_one_is_estimated():
    near = families.products(mm1(), [[Geometric(1 - 1e-7)]])
    assert near.errors[0] > 0
    assert abs(near.losses[0] - (1e7 - 1)) <= 5 * near.errors[0]


def test_products_where_the_loss_is_no_sum_are_estimated():
    net = dp.load("four-queue", buffers=2, penalty=4.0)
    products = families.products(net, product_laws())
    truth = dense(products).T @ matrix(net)[1].ravel()
    assert (products.errors > 0).all()
    assert (np.abs(products.losses - truth) <= 5.5 * products.errors).all()


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_sampled_violations_with_products_are_unbiased(net, criterion):
    every = families.concat(families.products(net, product_laws()), families.bands(net, [(0, 3), (4, 8)]))
    assert_unbiased(DualALP(net, every, criterion))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: Geometric(1.0), "must lie between 0 and 1, got 1.0"),
        (lambda m: Geometric(float("nan")), "must lie between 0 and 1"),
        (lambda m: Truncated(0.0), "must be positive, got 0.0"),
        (lambda m: Truncated(0.5, 0.5), "limits of a truncated law are integers"),
        (lambda m: Empirical([1, 2], [1.0]), "as many weights"),
        (lambda m: Empirical([0.5], [1.0]), "needs integers"),
        (lambda m: Empirical([1], [-1.0]), "must be nonnegative"),
        (lambda m: Empirical([1], [0.0]), "not all 0"),
        (lambda m: families.products(m, []), "a law for each of 4 coordinates"),
        (lambda m: families.products(m, [[Truncated(0.5)]]), "a law for each of 4 coordinates"),
        (lambda m: families.products(m, [[Geometric(0.5)] * 4]), "coordinate 0 ends at 2, .* use Truncated"),
        (lambda m: families.products(m, [[0.5] * 4]), "a law is Geometric, Truncated or Empirical, got 0.5"),
        (lambda m: families.products(m, [[Truncated(0.5, 0, 3)] * 4]), "from 0 to 3, which is no interval within"),
        (lambda m: families.products(m, [[Truncated(0.5, 2, 1)] * 4]), "from 2 to 1, which is no interval within"),
        (lambda m: families.products(m, [[Empirical([-1], [1])] * 4]), "from -1 to -1, which is no interval within"),
        (lambda m: families.products(mm1(), [[Truncated(0.5)]]), "has no upper limit; .* or use Geometric"),
        (lambda m: families.products(mm1(), [[Truncated(0.5, 0, 10**7)]]), "more than 1,000,000 values"),
    ],
)
def test_mistakes_in_products(net, call, words):
    with pytest.raises(dp.InputError, match=words) as caught:
        call(net)
    assert "\n" not in str(caught.value)


# -- mixtures ---------------------------------------------------------------------------------------------------------


def weights_of(count, features, seed, density=0.3):
    rng = np.random.default_rng(seed)
    weights = rng.random((count, len(features))) * (rng.random((count, len(features))) < density)
    weights[:, seed] += 0.1
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def every(net):
    return families.concat(mixed_features(net), families.products(net, product_laws()))


@pytest.mark.parametrize("density", [0.05, 0.3, 1.0])
def test_mixtures_are_the_product_of_matrices(every, density):
    weights = weights_of(6, every, 1, density)
    mixtures = families.mixtures(every, weights, list("abcdef"))
    phi = dense(mixtures)
    assert phi == pytest.approx(dense(every) @ weights.T, abs=1e-14)
    assert mixtures.names == tuple("abcdef")
    assert_distributions(mixtures, phi)
    assert_drawn_as_dense(mixtures, phi)
    indices, values = mixtures.row([1, 1, 1, 1], 2)
    assert (np.diff(indices) > 0).all()
    assert (values > 0).all()


def test_mixtures_of_mixtures_beside_other_features(net, every):
    """Two levels in blocks of several kinds; a mixture is a feature like any other."""
    inner = families.mixtures(every, weights_of(5, every, 1))
    beside = families.concat(families.bands(net, [(0, 3)]), inner, families.products(net, product_laws()))
    weights = weights_of(4, beside, 3)
    outer = families.mixtures(beside, weights)
    assert dense(outer) == pytest.approx(dense(beside) @ weights.T, abs=1e-14)
    assert all(block.mixed is None for block in outer.blocks[0].mixed.blocks)
    whole = families.concat(outer, every, inner)
    phi = np.hstack([dense(outer), dense(every), dense(inner)])
    assert dense(whole) == pytest.approx(phi, abs=0)
    assert_distributions(whole, phi)
    assert_drawn_as_dense(whole, phi)
    assert_unbiased(DualALP(net, whole), samples=150)


def test_errors_of_mixtures_are_those_of_the_parts_at_most():
    boxes = families.boxes(dp.load("four-queue", buffers=2, penalty=4.0), [[(0, 2)], [(0, 1)], [(0, 2)], [(1, 2)]])
    weights = weights_of(3, boxes, 0)
    mixtures = families.mixtures(boxes, weights)
    assert mixtures.losses == pytest.approx(weights @ boxes.losses)
    assert mixtures.errors == pytest.approx(weights @ boxes.errors)
    assert (np.abs(mixtures.losses - dense(mixtures).T @ matrix(boxes.model)[1].ravel()) <= 5 * mixtures.errors).all()


def test_the_policy_of_mixtures_is_that_of_their_weights(net, every):
    """θ on mixtures and Wᵀθ on their parts are the same candidate."""
    weights = weights_of(6, every, 1)
    theta = np.array([0.5, -1.0, 0.3, 0.9, -0.4, 0.7])
    one, two = MixturePolicy(families.mixtures(every, weights), theta), MixturePolicy(every, weights.T @ theta)
    for i in range(net.box.count):
        assert one(net.box.state(i)) == pytest.approx(two(net.box.state(i)), abs=1e-9)


@pytest.mark.parametrize(
    ("weights", "names", "words"),
    [
        (np.ones((1, 3)) / 3, None, r"need 8 columns, got the shape \(1, 3\)"),
        (np.ones((2, 8)) / 4, None, "mixture 0 sum to 2, not 1"),
        ([[2.0, -1.0, 0, 0, 0, 0, 0, 0]], None, "must not be negative"),
        ([[np.nan, 1.0, 0, 0, 0, 0, 0, 0]], None, "mixture 0 sum to nan, not 1"),
        (np.eye(8), ["a"], "8 mixtures need as many names, got 1"),
    ],
)
def test_mistakes_in_mixtures(net, weights, names, words):
    with pytest.raises(dp.InputError, match=words) as caught:
        families.mixtures(families.bands(net, [(0, 3), (4, 8)]), weights, names)
    assert "\n" not in str(caught.value)
