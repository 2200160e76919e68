"""Known densities at any scale: trees, products, choices, and rows by ratios, against enumeration
and closed forms.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dualplan as dp
from bank import dense, dense_flow, matrix, networks
from dualplan.dual import features as families
from dualplan.dual.features import Geometric, Node, Tree, Truncated, chow_liu
from dualplan.dual.features.choices import Choices
from dualplan.dual.solvers import MixturePolicy, solve_adaptive, solve_listed
from dualplan.evaluation.simulation import engine
from dualplan.models.check import check_model
from dualplan.models.contract import Box
from dualplan.models.instances.items import MultiItem
from dualplan.models.instances.parallel import ParallelServers
from dualplan.policies.heuristics.items import base_stock
from dualplan.policies.tables import random_policy

DRAWS = 20_000


def random_tree(rng, sizes, parents, name="random"):
    """Conditional laws at random, a few of them 0."""
    nodes = []
    for size, p in zip(sizes, parents, strict=True):
        table = rng.dirichlet(np.full(size, 2.0), size=1 if p < 0 else sizes[p])
        if p >= 0:
            table[rng.random(table.shape) < 0.1] = 0.0
            table[:, 0] += 0.01
        nodes.append(Node(0, table / table.sum(axis=1, keepdims=True)))
    return Tree(tuple(nodes), tuple(parents), name)


def plain_density(tree, x):
    """Π_i P_i(x_i | x_p(i)) read off the tables, without tails."""
    product = 1.0
    for i, (node, p) in enumerate(zip(tree.nodes, tree.parents, strict=True)):
        product *= node.table[0 if p < 0 else x[p] - tree.nodes[p].low, x[i] - node.low]
    return product


@pytest.fixture(scope="module")
def net():
    return dp.load("four-queue", buffers=2)


@pytest.fixture(scope="module")
def laws():
    rng = np.random.default_rng(5)
    return [
        random_tree(rng, (3, 3, 3, 3), (-1, 0, 0, 2), "one"),
        random_tree(rng, (3, 3, 3, 3), (1, 3, 3, -1), "two"),
        random_tree(rng, (3, 2, 3, 1), (-1, -1, 0, -1), "three"),
    ]


# -- densities, draws and means --------------------------------------------------------------------


def test_trees_are_the_products_of_their_tables(net, laws):
    """Sums to 1, equals the tables, draws follow it (p >= 1e-6 for each feature), exact losses."""
    both = [net.policy("longer"), net.policy("lbfs")]
    for choices in (None, both):
        made = families.trees(net, laws, choices=choices)
        phi = dense(made)
        assert phi.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
        assert made.losses == pytest.approx(phi.T @ matrix(net)[1].ravel(), abs=1e-12)
        assert not made.errors.any()
        states = [net.box.state(i) for i in range(net.box.count)]
        ways = (
            np.eye(4)[:, None, :].repeat(81, 1)
            if choices is None
            else [[p(x) for x in states] for p in both]
        )
        expected = [
            [
                plain_density(law, x)
                if x[1] < law.nodes[1].size and x[3] < law.nodes[3].size
                else 0.0
                for x in states
            ]
            for law in laws
        ]
        tables = [np.array(e)[:, None] * np.array(way) for e in expected for way in ways]
        assert phi == pytest.approx(np.array([t.ravel() for t in tables]).T, abs=1e-14)
        for j in range(len(made)):
            drawn, actions = made.draw(j, DRAWS, seed=2)
            seen = np.bincount(drawn @ net.box.strides * 4 + actions, minlength=len(phi))
            assert chi_square(seen, phi[:, j]) >= 1e-6


def chi_square(seen, law):
    """The p-value of Pearson's test, places that expect fewer than 5 as one.

    Nothing may be seen where the law is 0.
    """
    assert not seen[law == 0].any()
    expected = seen.sum() * law
    common = expected >= 5
    observed, mean = (
        np.append(seen[common], seen[~common].sum()),
        np.append(expected[common], expected[~common].sum()),
    )
    used = mean >= 5
    return stats.chi2.sf(((observed[used] - mean[used]) ** 2 / mean[used]).sum(), used.sum() - 1)


def test_tails_without_and_with_an_end():
    """P(high + k) ∝ r^k: sums and means against sums over 4,000 values, draws against the
    distribution function.
    """
    net = dp.QueueingNetwork(
        [dp.QueueClass("1", "S", 0.5, 0.2), dp.QueueClass("2", "S", 0.6, 0.1, buffer=40)]
    )
    table = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    tree = Tree((Node(0, table[:1], 0.9), Node(0, table, 0.95, 40)), (-1, 0))
    made = families.trees(net, [tree])
    first, second = np.arange(4_000), np.arange(41)
    p = np.concatenate([[0.2, 0.3], 0.5 * 0.1 * 0.9 ** np.arange(3_998)])
    tail = 0.95 ** np.arange(39) / (0.95 ** np.arange(39)).sum()
    q = np.hstack([table[:, :2], table[:, 2:] * tail])
    joint = p[:, None] * q[np.minimum(first, 2)]
    assert joint.sum() == pytest.approx(1.0, abs=1e-12)
    assert made.losses == pytest.approx((joint * (first[:, None] + second)).sum(), rel=1e-12)
    for x in ((0, 0), (1, 40), (2, 2), (700, 39)):
        assert made.row(x, 0)[1] == pytest.approx([joint[x]], rel=1e-12)
        assert tree.log_density(np.array([x]))[0] == pytest.approx(math.log(joint[x]), rel=1e-12)
    drawn = made.draw(0, DRAWS)[0]
    for i, law in enumerate((p, joint.sum(axis=0))):
        assert chi_square(np.bincount(drawn[:, i], minlength=law.size), law) >= 1e-6


def test_tiles_of_a_tree_are_its_law_cut_and_normalised(laws):
    """Cut by messages against enumeration, with cuts inside a listed part, inside a tail, and of no
    chance.
    """
    net = dp.load("four-queue", buffers=2)
    states = np.array([net.box.state(i) for i in range(81)])
    for law in laws[:2]:
        whole = np.exp(law.log_density(states))
        for cuts in ({0: (1, 2)}, {1: (0, 1), 3: (2, 2)}, {0: (0, 0), 2: (1, None)}):
            inside = np.all(
                [
                    (states[:, i] >= a) & (states[:, i] <= (2 if b is None else b))
                    for i, (a, b) in cuts.items()
                ],
                axis=0,
            )
            expected = np.where(inside, whole, 0.0) / whole[inside].sum()
            assert np.exp(law.within(cuts).log_density(states)) == pytest.approx(
                expected, abs=1e-13
            )
    tail = Tree(
        (Node(0, np.array([[0.4, 0.6]]), 0.8), Node(0, np.array([[0.5, 0.5], [0.9, 0.1]]))), (-1, 0)
    )
    points = np.array(list(itertools.product(range(60), range(2))))
    whole = np.exp(tail.log_density(points))
    for low, high in ((0, 7), (3, 9), (1, 1), (0, 0)):
        inside = (points[:, 0] >= low) & (points[:, 0] <= high)
        expected = np.where(inside, whole, 0.0) / whole[inside].sum()
        assert np.exp(tail.within({0: (low, high)}).log_density(points)) == pytest.approx(
            expected, abs=1e-13
        )
    never = Tree((Node(0, np.array([[1.0, 0.0]])),), (-1,))
    assert never.within({0: (1, 1)}) is None
    made = families.trees(net, laws[:1], cuts={"1": [(0, 0), (1, 2)], "3": [(0, 1), (2, 2)]})
    assert len(made) == 16
    assert dense(made).sum(axis=0) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("low", [45, 60, 10**9])
@pytest.mark.parametrize("high", [None, 3, 0])
def test_tiles_deep_in_a_tail_are_closed_forms(low, high):
    """P(x_1 >= low | parent) has one factor r^k for all classes: the parent's law is P(c)·P(tail |
    c), normalised.
    """
    table = np.array([[0.3, 0.7], [0.9, 0.1]])
    third = Node(0, np.array([[0.5, 0.5], [0.2, 0.8]]))
    for most in (2**63 - 1, 10**9 + 50):
        tree = Tree((Node(0, np.array([[0.5, 0.5]])), Node(0, table, 0.5, most), third), (-1, 0, 1))
        cut = tree.within({1: (low, None if high is None else low + high), 0: (0, 1)})
        assert cut.class_laws[0] == pytest.approx([0.7 / 0.8, 0.1 / 0.8], rel=1e-12)
        assert cut.class_laws[2] == pytest.approx([0.2, 0.8], rel=1e-12)
        terms = 0.5 ** np.arange(51 if high is None else high + 1)
        points = np.array([[1, low + k, 1] for k in range(3)])
        expected = [
            0.125 * 0.8 * (terms[k] / terms.sum() if k < terms.size else 0.0) for k in range(3)
        ]
        assert np.exp(cut.log_density(points)) == pytest.approx(expected, rel=1e-12)
        assert cut.nodes[1].size == 1
    assert tree.within({1: (10**10, None)}) is None
    assert tree.within({1: (60, 59)}) is None


def test_bands_far_above_the_box_and_of_few_states():
    """Sums that end at 8 under a band to 100,000, against enumeration.

    And the last band of 10^50 states by hand.
    """
    net = dp.load("four-queue", buffers=2)
    for weights in ([1, 1, 1, 1], [2, 0, 1, 3]):
        made = families.bands(net, [(0, 3), (4, 100_000)], weights)
        phi = dense(made)
        assert phi.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
        assert made.losses == pytest.approx(phi.T @ matrix(net)[1].ravel(), rel=1e-12)
        sums = net.box.states(np.arange(81)) @ weights
        assert (phi.reshape(81, 4, 8)[:, 0, 4] > 0).tolist() == (sums >= 4).tolist()
    with pytest.raises(dp.errors.InputError, match="holds no state"):
        families.bands(net, [(0, 3), (9, 12)])
    line = dp.load("tandem", queues=50, servers=25, buffers=9)
    last = families.bands(line, [(449, 450)], choices=[line.policy("lbfs")])
    assert last.losses == pytest.approx((50 * 449 + 450) / 51, rel=1e-12)
    assert set(last.draw(0, 400)[0][:, :-1].sum(axis=1).tolist()) == {449, 450}
    endless = dp.load("four-queue", buffers=None)
    wide = families.bands(endless, [(0, 20_000)])
    assert wide.losses == pytest.approx(
        0.8 * 20_000, rel=1e-12
    )  # of Σ x <= n, each coordinate has the mean n/5


# -- fits ------------------------------------------------------------------------------------------


def test_chow_liu_finds_the_tree_of_the_data():
    """40,000 draws of a tree with strong edges: the same edges, and conditional laws within 5
    standard errors.
    """
    rng = np.random.default_rng(1)
    parents = (-1, 0, 0, 1, 4 - 1, 2)
    tables = [np.array([[0.5, 0.3, 0.2]])] + [
        np.eye(3) * 0.6 + rng.dirichlet(np.ones(3), 3) * 0.4 for _ in range(5)
    ]
    tables = [t / t.sum(axis=1, keepdims=True) for t in tables]
    truth = Tree(tuple(Node(0, t) for t in tables), parents)
    states = np.zeros((40_000, 6), np.int64)
    for i, p in enumerate(parents):
        rows = tables[i][states[:, p] if p >= 0 else np.zeros(len(states), np.int64)].cumsum(axis=1)
        states[:, i] = (rng.random((len(states), 1)) > rows).sum(axis=1)
    found = chow_liu(states, Box.of([0] * 6, [2] * 6))
    edges = [{frozenset(e) for e in enumerate(t.parents) if e[1] >= 0} for t in (truth, found)]
    assert edges[0] == edges[1]
    every = np.array(list(itertools.product(range(3), repeat=6)))
    p, q = (np.exp(t.log_density(every)) for t in (truth, found))
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    for k, values in enumerate(every):
        if p[k] * 40_000 >= 50:
            assert q[k] == pytest.approx(p[k], abs=6 * p[k] * (3 * 6 / (40_000 * p[k])) ** 0.5), (
                values
            )


def spanning_trees(dim):
    """All labelled trees by their Prüfer sequences, as lists of edges."""
    for code in itertools.product(range(dim), repeat=dim - 2):
        degree, edges = [1 + code.count(i) for i in range(dim)], []
        for i in code:
            leaf = min(j for j in range(dim) if degree[j] == 1)
            edges.append((leaf, i))
            degree[leaf] -= 1
            degree[i] -= 1
        edges.append(tuple(j for j in range(dim) if degree[j] == 1))
        yield edges


@pytest.mark.parametrize("seed", range(5))
def test_chow_liu_is_nearest_among_all_spanning_trees(seed):
    """KL(empirical ‖ tree) of all 16 trees on four coordinates, each with the empirical conditional
    laws.
    """
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.full(81, 0.2))
    every = np.array(list(itertools.product(range(3), repeat=4)))
    states = every[rng.choice(81, size=3_000, p=law)]
    empirical = np.bincount(states @ [27, 9, 3, 1], minlength=81) / 3_000
    table = empirical.reshape(3, 3, 3, 3)
    seen = empirical > 0

    def distance(edges):
        logs = np.zeros(81)
        for i in range(4):
            logs += np.log(table.sum(axis=tuple(j for j in range(4) if j != i)) + 1e-300)[
                every[:, i]
            ]
        for i, j in map(sorted, edges):
            both = table.sum(axis=tuple(k for k in range(4) if k not in (i, j)))
            ratio = both / np.maximum(both.sum(axis=1)[:, None] * both.sum(axis=0), 1e-300)
            logs += np.log(ratio + 1e-300)[every[:, i], every[:, j]]
        return float((empirical[seen] * (np.log(empirical[seen]) - logs[seen])).sum())

    found = chow_liu(states, Box.of([0] * 4, [2] * 4), smoothing=1e-9)
    own = [e for e in enumerate(found.parents) if e[1] >= 0]
    best = min(map(distance, spanning_trees(4)))
    assert distance(own) == pytest.approx(best, abs=1e-12)
    logs = found.log_density(every[seen])
    assert float((empirical[seen] * (np.log(empirical[seen]) - logs)).sum()) == pytest.approx(
        best, abs=1e-6
    )


def test_fits_of_a_policy_follow_its_stationary_law():
    """M/M/1 beside M/M/1/8: a fitted product is the two truncated geometric laws, tail and all, up
    to sampling.
    """
    net = dp.QueueingNetwork(
        [dp.QueueClass("1", "A", 1.0, 0.6), dp.QueueClass("2", "B", 1.0, 0.5, buffer=8)],
        time="continuous",
        decisions="per-server",
    )
    policy = net.policy("lbfs")
    for fit in (families.fit_tree, families.fit_product):
        law = fit(net, policy, samples=40_000, every=40, listed=6, seed=3)
        assert law.parents[-1] == -1
        assert law.nodes[-1].table[0] == pytest.approx([1.1 / 3.1, 1 / 3.1, 1 / 3.1])
        assert law.nodes[0].last > 2**62
        assert law.nodes[0].ratio == pytest.approx(0.6, abs=0.06)
        values, p = law.marginals[0]
        assert p == pytest.approx(0.4 * 0.6**values, abs=0.03)
        second = 0.5 ** np.arange(9) / (0.5 ** np.arange(9)).sum()
        assert law.marginals[1][0].tolist() == list(range(9))
        assert law.marginals[1][1] == pytest.approx(second, abs=0.03)
        made = families.trees(net, [law], choices=[policy])
        assert made.losses == pytest.approx(1.5 + second @ np.arange(9), abs=0.2)
    with pytest.raises(dp.errors.InputError, match="samples"):
        families.fit_tree(net, policy, samples=3)
    with pytest.raises(dp.errors.InputError, match="smoothing"):
        families.fit_tree(net, policy, samples=80, smoothing=0.0)


# -- rows by ratios --------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(networks(max_classes=3), st.integers(0, 2**32))
def test_changes_are_the_predecessors(model, number):
    """What differs from y, put into y, gives the pairs and probabilities of the whole list."""
    rng = np.random.default_rng(number)
    code = model.code
    if code.changes is None:
        return
    for _ in range(10):
        y = np.minimum(rng.geometric(0.5, size=model.box.dim) - 1, model.box.upper)
        listed = model.predecessors(y)
        most = code.max_predecessors
        coords, news = (np.zeros((most + 1, code.max_changed), np.int64) for _ in range(2))
        sizes, actions, p = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most)
        x, out = y.copy(), y.copy()
        count = code.changes(code.ints, code.floats, y, coords, news, sizes, actions, p, x, out)
        assert (x == y).all()
        assert (out == y).all()
        found: dict[tuple[int, ...], float] = {}
        for k in range(count):
            z = y.copy()
            assert sizes[k] <= code.max_changed
            z[coords[k, : sizes[k]]] = news[k, : sizes[k]]
            key = (*z.tolist(), int(actions[k]))
            found[key] = found.get(key, 0.0) + p[k]
        expected = {
            (*z.tolist(), int(a)): q
            for z, a, q in zip(listed.states, listed.actions, listed.probabilities, strict=True)
        }
        assert found == pytest.approx(expected, abs=1e-12)


def every_kind(model, laws, policies):
    """All blocks that have a density in closed form, with actions and with policies' choices, and
    mixtures of them.
    """
    trees = families.trees(model, laws, choices=policies)
    some = families.concat(
        families.trees(model, laws, cuts={0: [(0, 0), (1, 2)]}),
        families.bands(model, [(0, 2), (3, 5)]),
        families.bands(model, [(1, 4)], choices=policies),
        families.boxes(model, [[(0, 0), (1, 2)]] * model.box.dim),
        families.boxes(model, [[(0, 2)]] * model.box.dim, choices=policies[:1]),
    )
    weights = np.random.default_rng(3).dirichlet(np.ones(len(trees)), size=2)
    return families.concat(some, trees, families.mixtures(trees, weights))


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)])
@pytest.mark.parametrize("local", [True, False])
def test_rows_by_ratios_equal_the_dense_products(net, laws, criterion, local, monkeypatch):
    """All rows against Φ and (P − B)ᵀΦ multiplied out, with predecessors as changes and as whole
    states.
    """
    features = every_kind(net, laws, [net.policy("longer"), net.policy("random")])
    problem = dp.dual.DualALP(net, features, criterion)
    if not local:
        monkeypatch.setattr(type(problem.rows), "_local", property(lambda _: 0))
    phi = dense(features)
    assert phi.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
    listed = problem.rows.every()
    flow, alpha = dense_flow(net, criterion, phi)
    assert listed.pairs.toarray() == pytest.approx(phi, abs=1e-14)
    assert listed.flows.toarray() == pytest.approx(flow, abs=1e-14)
    assert listed.masses == pytest.approx(alpha)


def by_hand(problem, y):
    """F_y over q2(y) from logarithms of densities at y and its predecessors, shifted by their
    largest.
    """
    model, features = problem.model, problem.features
    laws, policies = features.laws, features.policies
    before = model.predecessors(y)
    states = np.vstack([y[None, :], before.states])
    logs = np.array([law.log_density(states) for law in laws])
    shifted = np.exp(logs - logs.max())
    chances = np.array([[policy.probabilities(x) for policy in policies] for x in states])
    here = (shifted[:, 0, None] * chances[0].sum(axis=1)[None, :]).ravel()
    acted = chances[1:][np.arange(len(before.actions)), :, before.actions]
    there = ((shifted[:, 1:] * before.probabilities) @ acted).ravel()
    return (there - here) / (0.5 * (here + there).mean())


class Named:
    """What `by_hand` needs to know of a problem."""

    def __init__(self, model, features, laws, policies):
        self.model, self.features = model, features
        self.features.laws, self.features.policies = laws, policies


@pytest.mark.parametrize(("queues", "buffer"), [(6, 3), (400, 9)])
def test_ratios_at_any_scale_equal_logarithms_by_hand(queues, buffer):
    """400 queues: 10^400 states and densities below 1e-308, where plain products are 0.

    Rows over q2 all the same.
    """
    net = dp.load("tandem", queues=queues, servers=queues // 2, buffers=buffer, arrival=0.6)
    policies = [net.policy("longer"), net.policy("lbfs")]
    laws = [
        families.fit_tree(net, policies[0], samples=800, every=5),
        families.fit_product(net, policies[1], samples=800, every=5),
        Tree(
            (
                *(Node(0, np.full((1, buffer + 1), 1 / (buffer + 1))),) * queues,
                Node(0, net.event_law[None, :]),
            ),
            (-1,) * (queues + 1),
            "flat",
        ),
    ]
    features = families.trees(net, laws, choices=policies)
    problem = dp.dual.DualALP(net, features)
    kept = []
    drawn = problem.rows.draw(
        12, 0, len(features), seed=4, prices=lambda x: kept.append(x.copy()) or np.ones(len(x))
    )
    assert np.isfinite(drawn.flows.data).all()
    assert (drawn.pair_densities > 0).all()
    rows = drawn.flows.toarray() / drawn.flow_densities[:, None]
    named = Named(net, features, laws, policies)
    for k, y in enumerate(kept[1]):
        assert rows[k] == pytest.approx(by_hand(named, y), rel=1e-8, abs=1e-9)
    sums = np.abs(rows).sum(axis=1)
    assert sums.max() <= problem.constants.flow * (1 + 1e-9)
    if queues == 400:
        assert laws[2].log_density(kept[1])[0] < -900


@pytest.mark.parametrize("queues", [320, 400])
@pytest.mark.parametrize("local", [True, False])
def test_point_masses_beside_wide_laws_equal_logarithms_by_hand(queues, local, monkeypatch):
    """Laws of densities 1 and below 1e-308 in one set: at y one of them or none, at its
    predecessors another.
    """
    net = dp.load("tandem", queues=queues, servers=queues // 2, buffers=9, arrival=0.6)
    policies, event = [net.policy("longer"), net.policy("lbfs")], Node(0, net.event_law[None, :])
    wide, point, sharp = np.full((1, 10), 0.1), np.ones((1, 1)), np.array([[0.999, 0.001]])
    laws = [
        Tree((*(Node(0, t),) * queues, event), (-1,) * (queues + 1)) for t in (wide, point, sharp)
    ]
    features = families.trees(net, laws, choices=policies)
    problem, kept = dp.dual.DualALP(net, features), []
    if not local:
        monkeypatch.setattr(type(problem.rows), "_local", property(lambda _: 0))
    drawn = problem.rows.draw(
        24, 0, len(features), seed=2, prices=lambda x: kept.append(x.copy()) or np.ones(len(x))
    )
    rows = drawn.flows.toarray() / drawn.flow_densities[:, None]
    named = Named(net, features, laws, policies)
    for k, y in enumerate(kept[1]):
        assert rows[k] == pytest.approx(by_hand(named, y), rel=1e-8, abs=1e-9)
    customers = kept[1][:, :-1].sum(axis=1)
    assert {0, 1} <= set(customers.tolist())
    assert customers.max() > 1_000
    pairs = drawn.pairs.toarray() / drawn.pair_densities[:, None]
    assert pairs.sum(axis=1) == pytest.approx(len(features))
    far = kept[0][:, :-1].max(axis=1) > 1
    assert not pairs[far][:, 2:].any()
    assert len(str(problem.rows._blamed(kept[0][0]))) < 250


def test_states_that_only_predecessors_lead_to_equal_logarithms_by_hand():
    """No queue is empty under the law, and one is after a service: there y has density 0, its
    predecessors 1e-381.
    """
    net = dp.load("tandem", queues=400, servers=200, buffers=9, arrival=0.6)
    policies, event = [net.policy("longer")], Node(0, net.event_law[None, :])
    law = Tree((*(Node(1, np.full((1, 9), 1 / 9)),) * 400, event), (-1,) * 401)
    features, kept = families.trees(net, [law], choices=policies), []
    rows = dp.dual.DualALP(net, features).rows
    drawn = rows.draw(100, 0, 1, seed=2, prices=lambda x: kept.append(x.copy()) or np.ones(len(x)))
    found, named = (
        drawn.flows.toarray() / drawn.flow_densities[:, None],
        Named(net, features, [law], policies),
    )
    outside = np.flatnonzero((kept[1][:, :-1] == 0).any(axis=1))
    assert outside.size > 0
    for k in (*outside[:4], 0):
        assert found[k] == pytest.approx(by_hand(named, kept[1][k]), rel=1e-8, abs=1e-9)


def test_a_network_of_more_than_10_to_the_100_states_from_features_to_policy():
    """The whole chain on 120 queues: everything finite, the policy's probabilities too where
    densities underflow.
    """
    net = dp.load("tandem", queues=120, servers=60, buffers=9, arrival=0.6)
    assert net.box.count > 10**120
    policies = [net.policy("longer"), net.policy("fbfs")]
    laws = [families.fit_tree(net, p, samples=800, every=5) for p in policies]
    problem = dp.dual.DualALP(net, families.trees(net, laws, choices=policies))
    solution = solve_adaptive(problem, 20.0, samples=4_000, fresh=2_000)
    assert np.isfinite([solution.parts.total, solution.parts.total_error, *solution.theta]).all()
    assert solution.parts.flow_effective > 100
    assert solution.warning is None
    policy = solution.policy(fallback=policies[0])
    far = np.append(np.full(120, 9), 3)
    assert policy(far).sum() == pytest.approx(1.0)
    assert np.isfinite(dp.evaluate(net, policy, steps=20_000).cost)
    states = engine(net, policy, 0).visits(engine(net, policy, 0).first(0), 5, 100)
    for x in states:
        scores = np.array([[np.exp(law.log_density(x[None, :])[0] - 0.0) for law in laws]]).ravel()
        u = sum(
            solution.theta[2 * i + k] * score / scores.max() * p.probabilities(x)
            for i, score in enumerate(scores)
            for k, p in enumerate(policies)
        )
        if (u > 0).any() and scores.max() > 0:
            assert policy(x) == pytest.approx(np.maximum(u, 0) / np.maximum(u, 0).sum(), abs=1e-9)


# -- decisions per server --------------------------------------------------------------------------


def both_forms(**options):
    """The same network with joint decisions and with decisions per server, and a tree for each."""
    nets = [
        dp.load("four-queue", buffers=2, decisions=d, **options) for d in ("joint", "per-server")
    ]
    rng = np.random.default_rng(8)
    trees = [
        random_tree(rng, (3, 3, 3, 3), (-1, 0, 1, 2)),
        random_tree(rng, (3, 3, 3, 3), (-1, -1, 1, 0)),
    ]
    event = Node(0, nets[1].event_law[None, :])
    wide = [Tree((*t.nodes, event), (*t.parents, -1)) for t in trees]
    return nets, [trees, wide]


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)])
def test_joint_and_per_server_features_have_the_same_surrogate_and_policies_of_the_same_cost(
    criterion,
):
    """With policies as choices, ℓᵀu and both violations agree for all θ.

    For θ >= 0 so do the policies' exact costs.
    """
    nets, laws = both_forms()
    starts = [None, None]
    if isinstance(
        criterion, dp.Discounted
    ):  # the pending event of the first step is drawn from its law
        states = [np.append(nets[0].start, e) for e in range(3)]
        starts[1] = list(zip(map(tuple, states), nets[1].event_law.tolist(), strict=True))
    problems = []
    for net, trees, start in zip(nets, laws, starts, strict=True):
        choices = [net.policy(name) for name in ("longer", "lbfs", "c-mu")]
        own = criterion if start is None else dp.Discounted(criterion.gamma, start=start)
        problems.append(dp.dual.DualALP(net, families.trees(net, trees, choices=choices), own))
    assert problems[0].losses == pytest.approx(problems[1].losses, abs=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(5):
        theta = problems[0].project(rng.dirichlet(np.ones(6)))
        values = [p.value(theta, 3.0, p.enumerate()) for p in problems]
        assert values[0].flow == pytest.approx(values[1].flow, abs=1e-10)
        costs = []
        for problem in problems:
            policy = MixturePolicy(problem.features, theta)
            costs.append(dp.evaluate_exact(problem.model, policy, problem.criterion).cost)
        assert costs[0] == pytest.approx(costs[1], abs=1e-6)
    theta = problems[0].project(rng.normal(size=6))
    flows = [p.value(theta, 3.0, p.enumerate()).flow for p in problems]
    assert flows[0] == pytest.approx(flows[1], abs=1e-10)


def test_per_server_actions_are_taken_where_they_are():
    """Three classes at one server and one at another: no feature has an action at an event without
    it.
    """
    net = dp.load("criss-cross", buffers=2, decisions="per-server")
    flat = families.products(net, [[Truncated(0.5)] * 4])
    phi = dense(flat)
    assert len(flat) == 2
    assert phi.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
    events = net.box.states(np.arange(net.box.count))[:, -1]
    assert not phi.reshape(-1, 2, 2)[events != 1, 1].any()
    assert dp.dual.DualALP(net, flat).enumerate().flows.shape == (net.box.count, 2)
    bands = families.bands(
        net, [(0, 1), (2, 4)], choices=[net.policy("lbfs"), net.policy("longer")]
    )
    assert dense(bands).sum(axis=0) == pytest.approx(1.0, abs=1e-12)
    for j in range(4):
        states, actions = bands.draw(j, DRAWS)
        seen = np.bincount(states @ net.box.strides * 2 + actions, minlength=2 * net.box.count)
        assert chi_square(seen, dense(bands)[:, j]) >= 1e-6


def test_sampled_and_listed_surrogates_agree_on_a_network_that_can_be_enumerated():
    """c(θ) from drawn rows within 5 standard errors of all rows, and the policy that sampling finds
    costs as much.
    """
    net = dp.load("four-queue", buffers=3, decisions="per-server")
    choices = [net.policy(name) for name in ("longer", "lbfs", "c-mu")]
    laws = [families.fit_tree(net, p, samples=16_000) for p in choices]
    problem = dp.dual.DualALP(net, families.trees(net, laws, choices=choices), radius=100.0)
    listed, drawn = problem.enumerate(), problem.draw(60_000, seed=1)
    rng = np.random.default_rng(4)
    for _ in range(5):
        theta = problem.project(rng.normal(size=9))
        exact, sampled = (problem.value(theta, 20.0, rows) for rows in (listed, drawn))
        assert abs(sampled.total - exact.total) <= 5 * sampled.total_error
        assert sampled.flow_effective > 1_000
    best, found = (
        solve_listed(problem, 20.0),
        solve_adaptive(problem, 20.0, samples=100_000, fresh=50_000),
    )
    total = problem.value(found.theta, 20.0, listed).total
    assert best.value - 1e-9 <= total <= 1.02 * best.value
    assert abs(found.parts.total - total) <= 5 * found.parts.total_error
    costs = [dp.evaluate_exact(net, s.policy(fallback=choices[1])).cost for s in (best, found)]
    assert costs[1] == pytest.approx(costs[0], rel=0.05)


# -- instances -------------------------------------------------------------------------------------


def test_reentrant_lines_have_their_load_and_their_predecessors():
    net = dp.load("reentrant")
    assert len(net.classes) == 30
    assert list(net.loads.values()) == pytest.approx([0.8] * 10)
    assert check_model(net, pairs=20).ok
    uneven = dp.load("reentrant", classes=5, stations=2, load=0.5, buffers=2)
    assert list(uneven.loads.values()) == pytest.approx([0.5] * 2)
    assert check_model(uneven).ok


def test_parallel_servers_by_hand():
    """The N-model's static plan by hand: server 1 all of its time and server 2 a quarter on class
    1, a half on class 2.

    So what the rates can just serve is 4/3 of the arrivals (1, 1). One class and one server are
    M/M/1/K.
    """
    n = dp.load("parallel-servers", load=0.75, buffers=3)
    assert n.arrivals == pytest.approx([1.0, 1.0])
    assert check_model(n).ok
    single = ParallelServers(arrivals=[0.8], services=[[1.0]], buffers=5)
    law = 0.8 ** np.arange(6) / (0.8 ** np.arange(6)).sum()
    assert dp.evaluate_exact(single, single.policy("longest")).cost == pytest.approx(
        law @ np.arange(6), abs=1e-6
    )
    with pytest.raises(dp.errors.InputError, match="no server"):
        ParallelServers(arrivals=[1.0, 1.0], services=[[1.0, 0.0]])


def test_items_by_hand_and_choices_that_are_functions():
    """One item made to a level S is a queue: S − x is M/M/1/K.

    Functions as choices, against dense features.
    """
    one = MultiItem(
        items=1, load=0.7, most_stock=3, most_backlog=4, holding=1.0, backlog=5.0, lost=0.0
    )
    law = 0.7 ** np.arange(8) / (0.7 ** np.arange(8)).sum()
    stock = 3 - np.arange(8)
    expected = law @ (np.maximum(stock, 0) + 5 * np.maximum(-stock, 0))
    assert dp.evaluate_exact(one, base_stock(one, [3])).cost == pytest.approx(expected, abs=1e-6)
    two = MultiItem(
        items=2, services=[1.0, 2.0], backlog=[5.0, 9.0], most_stock=2, most_backlog=1, capacity=3
    )
    assert check_model(two).ok
    policies = [two.policy("base-stock"), two.policy("b-mu")]
    tree = families.fit_tree(two, policies[0], samples=800)
    features = families.trees(two, [tree], choices=[*policies, random_policy(two)])
    digests = [
        Choices.of(two, [base_stock(two, levels)]).user[0].sources
        for levels in ([0, 1], [0, 1], [1, 1])
    ]
    assert digests[0] == digests[1] != digests[2]
    phi = dense(features)
    assert phi.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
    assert features.losses == pytest.approx(
        phi.T @ np.nan_to_num(matrix(two)[1]).ravel(), abs=1e-12
    )
    problem = dp.dual.DualALP(two, features)
    assert problem.rows.every().flows.toarray() == pytest.approx(
        dense_flow(two, dp.Average(), phi)[0], abs=1e-14
    )
    drawn, listed = problem.draw(20_000, seed=1), problem.enumerate()
    values = [problem.value(np.array([1.0, -0.5, 0.5]), 3.0, rows) for rows in (drawn, listed)]
    assert abs(values[0].total - values[1].total) <= 5 * values[0].total_error


# -- guards ----------------------------------------------------------------------------------------


def test_heavy_weights_are_told():
    """Sampling from a law that hardly reaches where the features are: few rows carry the sum, and a
    warning says so.
    """
    net = dp.QueueingNetwork([dp.QueueClass("1", "S", 0.5, 0.4)])
    features = families.products(net, [[Geometric(0.9)], [Geometric(0.8)]])
    narrow = families.products(net, [[Geometric(0.3)]])
    problem = dp.dual.DualALP(net, features, sampling=narrow)
    value = problem.value(np.array([0.5, 0.5]), 1.0, problem.draw(5_000, seed=1))
    assert value.flow_effective < 50
    assert "carry the flow" in value.warning
    fair = dp.dual.DualALP(net, features)
    assert fair.value(np.array([0.5, 0.5]), 1.0, fair.draw(5_000, seed=1)).warning is None
    assert fair.value(np.array([0.5, 0.5]), 1.0, fair.draw(5_000)).flow_effective <= 5_000


HALF = np.array([[0.5, 0.5]])
BAD = {
    "ratio 1": (lambda net, law: Node(0, HALF, 1.0), "ratio"),
    "ratio nan": (lambda net, law: Node(0, HALF, math.nan), "ratio"),
    "flat table": (lambda net, law: Node(0, HALF[0]), "table"),
    "parent beyond": (lambda net, law: Tree((Node(0, HALF),), (5,)), "parents"),
    "parent -7": (lambda net, law: Tree((Node(0, HALF),), (-7,)), "parents"),
    "no bands": (lambda net, law: families.bands(net, []), "at least one"),
    "endless band": (lambda net, law: families.bands(net, [(0, None)]), "end"),
    "band of floats": (lambda net, law: families.bands(net, [(0, 1.5)]), "integers"),
    "weights of text": (lambda net, law: families.bands(net, [(0, 2)], "ab"), "weight"),
    "boxes of floats": (lambda net, law: families.boxes(net, [[(0, 1.5)]] * 4), "integers"),
    "boxes of triples": (lambda net, law: families.boxes(net, [[(0, 1, 2)]] * 4), "pairs"),
    "cut 3": (lambda net, law: families.trees(net, [law], cuts={"1": 3}), "pairs"),
    "cut of floats": (
        lambda net, law: families.trees(net, [law], cuts={"1": [(0, 1.5)]}),
        "integers",
    ),
    "law of text": (lambda net, law: families.trees(net, ["a"]), "Tree"),
    "law that is a list": (
        lambda net, law: families.products(net, [[[1], [2], [3], [4]]]),
        "a law is",
    ),
    "states below": (lambda net, law: chow_liu(np.array([[-1, 0, 0, 0]]), net.box), "outside"),
    "states above": (lambda net, law: chow_liu(np.array([[9, 0, 0, 0]]), net.box), "outside"),
    "states of floats": (lambda net, law: chow_liu(np.array([[0.5, 0, 0, 0]]), net.box), "integer"),
    "smoothing": (
        lambda net, law: chow_liu(np.zeros((9, 4), int), net.box, smoothing="a"),
        "smoothing",
    ),
    "least": (lambda net, law: chow_liu(np.zeros((9, 4), int), net.box, least=math.nan), "least"),
    "ragged": (lambda net, law: ParallelServers(services=[[1, 2], [1]]), "numbers"),
    "text": (lambda net, law: ParallelServers(arrivals="ab"), "numbers"),
    "infinite": (lambda net, law: ParallelServers(arrivals=[math.inf, 0.1]), "finite"),
    "buffers 0": (lambda net, law: dp.load("parallel-servers", buffers=0), "buffers"),
    "capacity 2.5": (lambda net, law: dp.load("multi-item", capacity=2.5), "capacity"),
    "load nan": (lambda net, law: dp.load("reentrant", load=math.nan), "load"),
    "load -1": (lambda net, law: dp.load("reentrant", load=-1), "load must"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_values_are_named(net, laws, case):
    made, words = BAD[case]
    with pytest.raises(dp.errors.InputError, match=words):
        made(net, laws[0])


def test_bad_laws_get_one_sentence(net, laws):
    endless = dp.load("four-queue", buffers=None)
    with pytest.raises(dp.errors.InputError, match="no limit"):
        families.bands(endless, [(0, 3)], [1, 1, 1, 0])
    with pytest.raises(dp.errors.InputError, match="end in coordinate 2"):
        families.boxes(endless, [[(0, 1)], [(0, 1)], [(0, None)], [(0, 1)]])
    with pytest.raises(dp.errors.InputError, match="beyond the box"):
        families.trees(net, [Tree((Node(0, np.ones((1, 1)), 0.5),) * 4, (-1,) * 4)])
    with pytest.raises(dp.errors.InputError, match="cycle"):
        Tree((Node(0, np.eye(2)), Node(0, np.eye(2))), (1, 0))
    with pytest.raises(dp.errors.InputError, match="rows of probabilities"):
        Tree((Node(0, np.ones((1, 2))),), (-1,))
    with pytest.raises(dp.errors.InputError, match="coordinates"):
        families.trees(net, [Tree((Node(0, np.ones((1, 1))),), (-1,))])
    with pytest.raises(dp.errors.InputError, match="unknown coordinate"):
        families.trees(net, laws, cuts={"nowhere": [(0, 1)]})
    with pytest.raises(dp.errors.InputError, match="without a draw"):
        families.user_defined(net, lambda x, a, indices, values: 0, None, 1)
    with pytest.raises(dp.errors.MissingError, match="fit_tree"):
        families.tiles(endless, endless.policy("lbfs"), [[(0, 1)]] * 4)
    slow = dp.load("four-queue", buffers=2, discipline="nonpreemptive")
    with pytest.raises(dp.errors.InputError, match="choices"):
        families.boxes(slow, [[(0, 2)]] * 6)
