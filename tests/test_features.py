"""Products of laws, mixtures and features of the user, against dense sums, closed forms and
counts.
"""

import math

import numpy as np
import pytest
from scipy import stats

import dualplan as dp
from bank import CRITERIA, admission_events, dense, dense_flow, matrix, mixed_features, mm1
from dualplan.dual import features as families
from dualplan.dual.features import Empirical, Geometric, Truncated
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers import MixturePolicy
from dualplan.policies.tables import random_policy

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
    """A chi-square test of each feature.

    p >= 1e-6 for each, and nothing drawn where the density is 0.
    """
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
    """Independent samples of constraints: each mean within 5.5 standard errors of the exact value
    (p < 4e-8 each).
    """
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


# -- products --------------------------------------------------------------------------------------


def test_products_are_products_of_their_laws(net):
    products = families.products(net, product_laws())
    phi = dense(products)
    assert_distributions(products, phi)
    assert_drawn_as_dense(products, phi)
    p = [
        np.array([4, 2, 1]) / 7,
        np.array([1, 3, 9]) / 13,
        np.full(3, 1 / 3),
        np.array([3, 0, 2]) / 5,
    ]
    expected = np.einsum("i,j,k,l->ijkl", *p).ravel()
    for a in range(4):
        assert phi.reshape(-1, 4, 12)[:, a, a] == pytest.approx(expected, abs=1e-15)


def test_a_ratio_of_any_size_is_a_law():
    """A box of 5,000: ratio 4 would overflow as a power, 1e-3 is a point mass but for rounding."""
    net = dp.QueueingNetwork([dp.QueueClass("1", "S", 0.5, 0.2, buffer=5_000)])
    steep = families.products(net, [[Truncated(4.0)], [Truncated(1e-3)]])
    actions = len(net.actions)
    assert steep.losses[[0, actions]] == pytest.approx(
        [5_000 - 1 / 3, 1e-3 / (1 - 1e-3)], rel=1e-12
    )
    assert steep.row([4_999], 0)[1] == pytest.approx(
        [3 / 16]
    )  # the other one is below 1e-308 there
    assert steep.draw(0, 1_000)[0].min() > 4_900


@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.9, 0.999])
def test_geometric_laws_on_an_unbounded_queue(ratio):
    """Mean r/(1−r), second moment r(1+r)/(1−r)², density, and draws against the distribution
    function.
    """
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
    every = families.concat(
        families.products(net, product_laws()), families.bands(net, [(0, 3), (4, 8)])
    )
    assert_unbiased(DualALP(net, every, criterion))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: Geometric(1.0), "must lie strictly between 0 and 1, got 1.0"),
        (lambda m: Geometric(float("nan")), "must lie strictly between 0 and 1"),
        (lambda m: Truncated(0.0), "must be a positive number, got 0.0"),
        (lambda m: Truncated(0.5, 0.5), "limits of a truncated law are integers"),
        (lambda m: Empirical([1, 2], [1.0]), "as many weights"),
        (lambda m: Empirical([0.5], [1.0]), "needs integers"),
        (lambda m: Empirical([1], [-1.0]), "must be nonnegative"),
        (lambda m: Empirical([1], [0.0]), "not all 0"),
        (lambda m: families.products(m, []), "a law for each of 4 coordinates"),
        (lambda m: families.products(m, [[Truncated(0.5)]]), "a law for each of 4 coordinates"),
        (
            lambda m: families.products(m, [[Geometric(0.5)] * 4]),
            "coordinate 0 ends at 2, .* use Truncated",
        ),
        (
            lambda m: families.products(m, [[0.5] * 4]),
            "a law is Geometric, Truncated or Empirical, got 0.5",
        ),
        (
            lambda m: families.products(m, [[Truncated(0.5, 0, 3)] * 4]),
            "from 0 to 3, which is no interval within",
        ),
        (
            lambda m: families.products(m, [[Truncated(0.5, 2, 1)] * 4]),
            "from 2 to 1, which is no interval within",
        ),
        (
            lambda m: families.products(m, [[Empirical([-1], [1])] * 4]),
            "from -1 to -1, which is no interval within",
        ),
        (
            lambda m: families.products(mm1(), [[Truncated(0.5)]]),
            "has no upper limit; .* or use Geometric",
        ),
        (
            lambda m: families.products(mm1(), [[Truncated(0.5, 0, 10**7)]]),
            "more than 1,000,000 values",
        ),
    ],
)
def test_mistakes_in_products(net, call, words):
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        call(net)
    assert "\n" not in str(caught.value)


# -- mixtures --------------------------------------------------------------------------------------


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
    beside = families.concat(
        families.bands(net, [(0, 3)]), inner, families.products(net, product_laws())
    )
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
    boxes = families.boxes(
        dp.load("four-queue", buffers=2, penalty=4.0), [[(0, 2)], [(0, 1)], [(0, 2)], [(1, 2)]]
    )
    weights = weights_of(3, boxes, 0)
    mixtures = families.mixtures(boxes, weights)
    assert mixtures.losses == pytest.approx(weights @ boxes.losses)
    assert mixtures.errors == pytest.approx(weights @ boxes.errors)
    assert (
        np.abs(mixtures.losses - dense(mixtures).T @ matrix(boxes.model)[1].ravel())
        <= 5 * mixtures.errors
    ).all()


def test_the_policy_of_mixtures_is_that_of_their_weights(net, every):
    """θ on mixtures and Wᵀθ on their parts are the same candidate."""
    weights = weights_of(6, every, 1)
    theta = np.array([0.5, -1.0, 0.3, 0.9, -0.4, 0.7])
    one, two = (
        MixturePolicy(families.mixtures(every, weights), theta),
        MixturePolicy(every, weights.T @ theta),
    )
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
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        families.mixtures(families.bands(net, [(0, 3), (4, 8)]), weights, names)
    assert "\n" not in str(caught.value)


# -- features of the user --------------------------------------------------------------------------


def slices(model):
    """Uniform on the states with a given first coordinate, times an action: one is positive at a
    pair.
    """

    def row(x, a, indices, values):
        indices[0], values[0] = 4 * x[0] + a, 1 / 27
        return 1

    def draw(j, u, x):
        x[0] = j // 4
        for i in range(3):
            x[1 + i] = int(3 * u[i])
        return j % 4

    return families.user_defined(model, row, draw, 12, widest=1, uniforms=3)


CHANCES = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.0, 0.25, 0.75]])


def independent(model):
    """Three laws of independent coordinates, and an action that is the parity of their sum or its
    complement.
    """

    def row(x, a, indices, values):
        count = 0
        for j in range(6):
            parity = (x[0] + x[1] + x[2] + x[3] + j // 3) % 2
            density = 1.0 if a == parity else 0.0
            for i in range(4):
                density *= CHANCES[j % 3, x[i]]
            if density > 0:
                indices[count], values[count] = j, density
                count += 1
        return count

    def draw(j, u, x):
        for i in range(4):
            v, rest = 0, u[i]
            while v < 2 and rest >= CHANCES[j % 3, v]:
                rest -= CHANCES[j % 3, v]
                v += 1
            x[i] = v
        return (x[0] + x[1] + x[2] + x[3] + j // 3) % 2

    return families.user_defined(model, row, draw, 6, names=[f"law {j}" for j in range(6)])


def as_table(features):
    """The same laws as a matrix."""
    return families.table(features.model, dense(features), features.names)


@pytest.fixture(scope="module")
def own(net):
    return families.concat(slices(net), independent(net))


def test_features_of_the_user_are_those_of_a_table(net, own):
    phi = dense(own)
    assert_distributions(own, phi)
    assert_drawn_as_dense(own, phi)
    uniform = np.zeros((3, 27, 4, 12))
    for j in range(12):
        uniform[j // 4, :, j % 4, j] = 1 / 27
    assert phi[:, :12] == pytest.approx(uniform.reshape(324, 12), abs=1e-15)
    same = as_table(own)
    assert own.losses == pytest.approx(same.losses, abs=1e-12)
    one, two = (
        DualALP(net, own, dp.Discounted(0.9)).enumerate(),
        DualALP(net, same, dp.Discounted(0.9)).enumerate(),
    )
    assert one.flows.toarray() == pytest.approx(two.flows.toarray(), abs=1e-14)
    assert one.pairs.toarray() == pytest.approx(two.pairs.toarray(), abs=1e-14)


@pytest.mark.slow
def test_all_kinds_in_one_set(net, every, own):
    """Built-in blocks around two of the user's, and mixtures of all of them beside mixtures of
    some.
    """
    inner = families.concat(families.bands(net, [(0, 3)]), own, every)
    weights, other = weights_of(5, inner, 2), weights_of(2, own, 0)
    whole = families.concat(
        families.mixtures(inner, weights),
        independent(net),
        every,
        families.mixtures(own, other),
        slices(net),
    )
    parts = [
        dense(inner) @ weights.T,
        dense(own)[:, 12:],
        dense(every),
        dense(own) @ other.T,
        dense(own)[:, :12],
    ]
    phi = dense(whole)
    assert phi == pytest.approx(np.hstack(parts), abs=1e-14)
    assert_distributions(whole, phi)
    assert_drawn_as_dense(whole, phi)
    assert_unbiased(DualALP(net, whole, dp.Discounted(0.9)), samples=150)
    theta = np.random.default_rng(7).normal(size=len(whole))
    u = np.maximum(phi @ theta, 0.0).reshape(-1, 4)
    policy = MixturePolicy(whole, theta)
    for i in range(net.box.count):
        expected = u[i] / u[i].sum() if u[i].any() else np.full(4, 0.25)
        assert policy(net.box.state(i)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_sampled_violations_with_features_of_the_user_are_unbiased(net, own, criterion):
    assert_unbiased(DualALP(net, own, criterion))


def test_policies_of_different_functions_differ(net):
    def made(density):
        def row(x, a, indices, values):
            indices[0], values[0] = 0, density[a]
            return 1

        def draw(j, u, x):
            for i in range(4):
                x[i] = int(3 * u[i])
            return int(4 * u[4])

        return MixturePolicy(families.user_defined(net, row, draw, 1), [1.0])

    law = np.full(4, 1 / 324)
    assert made(law).digest == made(law.copy()).digest != made(law * (1 + 1e-12)).digest


def geometric_by_hand(ratio):
    def row(x, a, indices, values):
        indices[0], values[0] = a, (1 - ratio) * ratio ** x[0]
        return 1

    def draw(j, u, x):
        x[0] = int(math.log(1 - u[0]) / math.log(ratio))
        return j

    return row, draw


def test_features_of_the_user_without_limits():
    """A geometric law written out, on an unbounded queue: estimated losses.

    Rows and draws are those of a product.
    """
    net = mm1()
    count = len(net.actions)
    own = families.user_defined(net, *geometric_by_hand(0.6), count, widest=1, uniforms=1)
    built_in = families.products(net, [[Geometric(0.6)]])
    assert (own.errors > 0).all()
    assert (np.abs(own.losses - 1.5) <= 5 * own.errors).all()
    assert own.row([9], 0)[1] == pytest.approx(built_in.row([9], 0)[1])
    assert (own.draw(0, 1_000)[0] == built_in.draw(0, 1_000)[0]).all()
    both = [DualALP(net, f).draw(500, seed=3) for f in (own, built_in)]
    assert both[0].flows.toarray() == pytest.approx(both[1].flows.toarray(), abs=1e-15)


@pytest.mark.slow
def test_a_fault_that_the_check_did_not_meet_ends_the_work():
    """One state of 10,000 has a density below 0, or none, or too many: nothing is computed
    from it.
    """
    net = dp.load("four-queue", buffers=9)

    def draw(j, u, x):
        for i in range(4):
            x[i] = int(10 * u[i])
        return int(4 * u[4])

    def made(fault, index=0, count=1):
        def row(x, a, indices, values):
            indices[0], values[0] = 0, 1 / 40_000
            if x[0] == 9 and x[1] == 9 and x[2] == 9 and x[3] == 9:
                indices[0], values[0] = index, fault
                return count
            return 1

        return families.user_defined(net, row, draw, 1)

    for features, words in [
        (made(math.nan), "negative or not finite"),
        (made(0.0, index=1), "not there"),
        (made(0.0, count=2), "at most `widest`"),
    ]:
        with pytest.raises(dp.errors.InputError, match=words):
            DualALP(net, features).enumerate()
    with pytest.raises(dp.errors.InputError, match=words):
        MixturePolicy(features, [1.0])([9, 9, 9, 9])

    def astray(j, u, x):
        for i in range(4):
            x[i] = int(10 * u[i])
        if u[0] > 0.9999:
            x[0] = 10
        return 0

    def row(x, a, indices, values):
        indices[0], values[0] = 0, 1 / 10_000 if a == 0 else 0.0
        return 1

    with pytest.raises(
        dp.errors.InputError, match="a state or an action that the model does not have"
    ):
        families.user_defined(net, row, astray, 1).draw(0, 100_000)


def gate(density=None, state=None, action=None, number=1, index=0):
    """Uniform on the seven states of a queue where every customer must be admitted, or a
    mistake.
    """

    def row(x, a, indices, values):
        indices[0], values[0] = index, 1 / 7 if density is None else density
        return number if a == 1 else 0

    def draw(j, u, x):
        x[0] = int(7 * u[0]) if state is None else state
        return 1 if action is None else action

    return row, draw


def strict_gate():
    model = admission_events()
    return dp.EventModel(
        lower=[0],
        upper=[6],
        actions=["reject", "admit"],
        events=3,
        jumps=[(1,), (-1,), (0,)],
        **{k: model.functions[k] for k in ("probability", "move", "loss")},
        allowed=lambda x, a: a == 1,
    )


def writes_too_far(x, a, indices, values):
    indices[1], values[1] = 1, 0.5
    return 2


def says_nothing(x, a, indices, values):
    return 0


def forgets_the_action(x, a, indices, values):
    indices[0], values[0] = 0, 1 / 7
    return 1


def forgets_the_value(x, a, indices, values):
    indices[0] = 0
    return 1


def reads(x, a, indices, values):
    return len(open("file").read())


def gives_a_float(x, a, indices, values):
    return 1.0


def changes_the_state(x, a, indices, values):
    x[0] = 1
    return 0


@pytest.mark.parametrize(
    ("functions", "options", "words"),
    [
        (gate(density=0.1), {}, "feature 'user 0' sums to 0.7 over all pairs, not 1"),
        (gate(density=0.1), {"names": ["mine"]}, "feature 'mine' sums to 0.7"),
        (gate(density=-1.0), {}, r"`row` at x=\(0\), a=1 gives feature 'user 0' the density -1"),
        (gate(density=math.inf), {}, "the density inf"),
        (gate(density=math.nan), {}, "the density nan"),
        (gate(number=2), {}, "returns 2, not a number of features from 0 to 1"),
        (gate(number=-1), {}, "returns -1, not a number"),
        (gate(index=1), {}, r"must name features 0 to 0, each once; it names \(1\)"),
        (gate(state=7), {}, "a state or an action that the model does not have"),
        (gate(action=2), {}, "a state or an action that the model does not have"),
        (gate(action=0), {}, "a=0, an action that 'events' does not allow there"),
        (gate(state=3), {}, "`draw` of feature 'user 0' does not follow the densities"),
        ((says_nothing, gate()[1]), {}, "all densities are 0"),
        (
            (forgets_the_action, gate()[1]),
            {},
            "a=0 gives weight to an action that 'events' does not allow there",
        ),
        ((forgets_the_value, gate()[1]), {}, "the density nan"),
        ((writes_too_far, gate()[1]), {}, "raised IndexError: .*; rows have 1 places"),
        (
            (reads, gate()[1]),
            {},
            "`row` of user-defined features uses something that cannot be compiled",
        ),
        (
            (changes_the_state, gate()[1]),
            {},
            "`row` of user-defined features uses something that cannot be compiled",
        ),
        (
            (gives_a_float, gate()[1]),
            {},
            "`row` of user-defined features must return an integer; it returns float64",
        ),
        (gate(), {"widest": 2}, "1 <= widest <= count"),
        (gate(), {"names": ["a", "b"]}, "need as many names, got 2"),
    ],
)
def test_mistakes_in_features_of_the_user(functions, options, words):
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        families.user_defined(strict_gate(), *functions, 1, **options)
    assert "\n" not in str(caught.value)


def test_a_draw_where_the_density_is_0():
    def row(x, a, indices, values):
        indices[0], values[0] = 0, 0.25 if x[0] < 4 and a == 1 else 0.0
        return 1

    with pytest.raises(dp.errors.InputError, match="where `row` says that its density is 0"):
        families.user_defined(strict_gate(), row, gate()[1], 1)


def test_laws_of_the_wrong_kind_are_refused():
    for make in (
        lambda: families.Geometric("a"),
        lambda: families.Truncated(0.5, float("nan")),
        lambda: families.Truncated(0.5, 0, 2.5),
        lambda: families.Truncated("a"),
        lambda: families.Empirical(["a"], [1.0]),
        lambda: families.Empirical([np.inf], [1.0]),
        lambda: families.Empirical([0.5], [1.0]),
    ):
        with pytest.raises(dp.errors.InputError):
            make()
    assert families.Truncated(np.float64(0.5), np.int64(1)).low == 1


# -- functions of the state as policies ------------------------------------------------------------


SMALL_MODELS = {
    "admission": {"servers": 2, "room": 5},
    "sysadmin": {"machines": 3},
    "lost-sales": {"lead_time": 2, "demand": 2.0, "capacity": 6},
}


class Cautious:
    """An object that is called with a state, which nothing can compile."""

    def __init__(self, model):
        self.model = model

    def __call__(self, x):
        allowed = np.flatnonzero(self.model.allowed(x))
        return int(allowed[int(x.sum()) % len(allowed)])


@pytest.mark.parametrize("name", SMALL_MODELS)
@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.8)], ids=str)
def test_functions_of_the_state_have_occupancies(name, criterion):
    """Against the solution of the balance equations, written densely; the flow of one balances."""
    model = dp.load(name, **SMALL_MODELS[name])
    function = Cautious(model)
    rows, _ = matrix(model)
    actions = len(model.actions)
    count = model.box.count
    chosen = np.array([function(model.box.state(i)) for i in range(count)])
    chain = rows.reshape(count, actions, count)[np.arange(count), chosen]
    start = np.eye(count)[model.box.index(model.start)]
    if isinstance(criterion, dp.Average):
        mu = start @ np.linalg.matrix_power((chain + np.eye(count)) / 2, 2**16)
    else:
        mu = 0.2 * np.linalg.solve(np.eye(count) - 0.8 * chain.T, start)
    expected = np.zeros((count, actions))
    expected[np.arange(count), chosen] = mu
    features = families.occupancies(model, [function], criterion)
    np.testing.assert_allclose(dense(features).reshape(count, actions), expected, atol=1e-8)
    problem = DualALP(model, features, criterion)
    parts = problem.value(np.array([problem.total]), 1.0, problem.enumerate())
    assert parts.flow <= 1e-8
    assert parts.objective == pytest.approx(
        dp.evaluate_exact(model, dp.policies.FunctionPolicy(model, function), criterion).cost
    )


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_functions_of_the_state_have_ratios(name):
    """π_k/π_ref is one over the reference's probability at what the function does, else 0."""
    model = dp.load(name, **SMALL_MODELS[name])
    function = Cautious(model)
    reference = random_policy(model)
    ratios = families.portfolio(reference, [function])
    for i in range(0, model.box.count, 3):
        x = model.box.state(i)
        for a in np.flatnonzero(model.allowed(x)):
            indices, values = ratios.row(x, int(a))
            if a == function(x):
                assert values.tolist() == pytest.approx([model.allowed(x).sum()])
            else:
                assert indices.size == 0


def test_occupancies_without_an_end_of_states_are_fitted():
    """Parallel servers: the law is that of the fitted tree, the choice that of the function; what
    cannot be compiled is refused in one sentence.
    """
    model = dp.load("parallel-servers")

    def longest(x):
        if x[2] == 0:
            return 0
        if x[2] == 2 and x[1] > 0:
            return 1
        return 0

    features = families.occupancies(model, [longest])
    policy = dp.policies.FunctionPolicy(model, longest)
    law = families.fit_tree(model, policy)
    states = np.array([[0, 0, 0], [2, 1, 2], [3, 0, 1], [1, 4, 2]])
    for x, log in zip(states, law.log_density(states), strict=True):
        indices, values = features.row(x, longest(x))
        assert values.tolist() == pytest.approx([math.exp(log)])
        assert indices.tolist() == [0]
    with pytest.raises(dp.errors.PolicyError, match="cannot be compiled"):
        families.occupancies(model, [Cautious(model)])
    with pytest.raises(dp.errors.InputError, match="split by action"):
        families.occupancies(model, [longest], by_action=True)


def test_flows_of_models_without_predecessors_are_listed():
    """SysAdmin has next states only; rows of its flow against dense sums."""
    model = dp.load("sysadmin", machines=7)
    assert not model.has_predecessors
    table = np.random.default_rng(5).dirichlet(np.ones(128 * len(model.actions)), size=3).T
    features = families.table(model, table)
    for criterion in (dp.Average(), dp.Discounted(0.9)):
        problem = DualALP(model, features, criterion)
        expected, alpha = dense_flow(model, criterion, table)
        listed = problem.enumerate()
        np.testing.assert_allclose(listed.flows.toarray(), expected, atol=1e-12)
        np.testing.assert_allclose(listed.masses, alpha, atol=1e-12)
        theta = problem.total * np.array([2.0, -0.5, -0.5])
        drawn = problem.value(theta, 1.0, problem.draw(40_000))
        exact = problem.value(theta, 1.0, listed)
        assert abs(drawn.flow - exact.flow) <= 5 * drawn.flow_error
