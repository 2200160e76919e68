"""Portfolios combined by the dual program, potentials from its multipliers, and policies inside
policies in files.
"""

import numpy as np
import pytest
from scipy import optimize

import dualplan as dp
from bank import dense, dense_flow, matrix, occupancy_and_values
from dualplan import primal
from dualplan.dual import features
from dualplan.dual.combine import _explained, _residuals, _Seen, choose_partition, combine
from dualplan.dual.features import RatioPolicy, cells, concat_ratios, portfolio, user_ratios
from dualplan.dual.problem import DualALP
from dualplan.dual.simulated import SimulatedALP, visits
from dualplan.dual.solvers import solve_adaptive, solve_listed, solve_sampled
from dualplan.policies import FunctionPolicy, Mixed, TablePolicy, exploring
from dualplan.primal import GreedyAmong
from dualplan.values import test_functions as tests
from dualplan.values.functions import state_function

CRITERIA = [dp.Average(), dp.Discounted(0.9)]


def every(model):
    return model.box.states(np.arange(model.box.count))


def rules(policy):
    return np.array([policy(x) for x in every(policy.model)])


def squares(states):
    return 0.3 * (states.astype(float) ** 2).sum(axis=1)


def heuristics(model):
    return [model.policy(name) for name in ("lbfs", "longer", "c-mu")]


def exact(model, policy, criterion=None):
    """The occupancy over pairs, the values and the cost, by dense solves."""
    rows, losses = matrix(model)
    table = rows.reshape(*losses.shape, -1)
    if not isinstance(criterion, dp.Discounted):
        return occupancy_and_values(table, losses, rules(policy))
    alpha = np.zeros(len(losses))
    alpha[model.box.index(model.start)] = 1.0
    return occupancy_and_values(table, losses, rules(policy), criterion.gamma, alpha)


# -- potentials from multipliers -------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [(30.0, 6.0), (200.0, 60.0)])
@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_the_multipliers_replace_the_penalty_of_the_flow(net, mixed, criterion, penalty):
    """Strong duality, by SciPy on dense matrices: with potential h + s·y and no price on the flow,
    the same minimum.
    """
    problem, phi = DualALP(net, mixed, criterion, potential=squares, radius=500.0), dense(mixed)
    found = solve_listed(problem, penalty)
    h = found.dual_potential()(every(net))
    assert np.abs(h - squares(every(net))).max() <= penalty[1] * (1 + 1e-9)
    rows, losses = matrix(net)
    gamma = criterion.gamma if isinstance(criterion, dp.Discounted) else 1.0
    shaped = losses.ravel() + gamma * rows @ h - np.repeat(h, losses.shape[1])
    _, alpha = dense_flow(net, criterion, phi)
    pairs, d = phi.shape
    costs = np.concatenate([phi.T @ shaped, np.full(pairs, penalty[0])])
    mass = np.append(np.ones(d), np.zeros(pairs))[None, :]
    bounds = [(-500, 500)] * d + [(0, None)] * pairs
    truth = optimize.linprog(
        costs, np.hstack([-phi, -np.eye(pairs)]), np.zeros(pairs), mass, [problem.mass], bounds
    )
    assert truth.fun + alpha @ h == pytest.approx(found.value, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_with_a_feature_for_each_pair_the_multipliers_prove_the_optimum(criterion):
    """ℓ + γPy − y = λ + z with z >= 0: y is a potential whose lower bound is the optimum itself."""
    model = dp.load("garnet", states=12, actions=3, branching=3, seed=4)
    problem = DualALP(model, features.table(model, np.eye(36)), criterion, radius=1000.0)
    found = solve_listed(problem, 1000.0)
    optimum = dp.solve_exact(model, criterion)
    bound = dp.lower_bound(model, criterion, potential=found.dual_potential())
    assert bound.value == pytest.approx(optimum.lower, rel=1e-5)
    assert found.value == pytest.approx(optimum.upper, rel=1e-5)
    again = solve_listed(
        DualALP(model, problem.features, criterion, potential=found.dual_potential()),
        (1000.0, 1e-3),
    )
    assert again.value == pytest.approx(optimum.upper, rel=1e-5)


def test_multipliers_of_drawn_constraints_are_fitted():
    """With an indicator of each state as basis, least squares are the means over the draws of that
    state.
    """
    model = dp.load("garnet", states=8, actions=2, branching=3, seed=1)
    problem = DualALP(model, features.table(model, np.eye(16)), dp.Discounted(0.8), radius=100.0)
    found = solve_sampled(problem, 3.0, samples=400, enlarge=0, seed=2)
    assert found.states.shape == (800, 1)
    single = lambda states: np.eye(8)[states[:, 0]]  # noqa: E731 - a basis
    means = [
        -found.potential[found.states[:, 0] == x].mean() for x in range(8)
    ]  # discounted: the sign is that of −f
    assert found.dual_potential(single)(every(model)) == pytest.approx(np.array(means))
    assert np.abs(found.potential).max() <= 3.0 * (1 + 1e-9)
    with pytest.raises(dp.errors.InputError, match="give a basis"):
        found.dual_potential()
    with pytest.raises(dp.errors.InputError, match="has no multipliers"):
        solve_adaptive(problem, 3.0, samples=200).dual_potential()


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_multipliers_of_test_functions_are_a_potential_of_all_states(net, criterion, anchored):
    """Strong duality in the forward-only form: SciPy's minimum without a price on the flow, on the
    same transitions.
    """
    reference, parts = exploring(net.policy("lbfs"), 0.3), cells(net, {"1": [1], "3": [1, 2]})
    ratios = portfolio(reference, heuristics(net), parts)
    families = tests.concat(
        tests.cells(cells(net, {"1": [1, 2], "2": [1]})), tests.polynomials(net, 2)
    )
    options = {"samples": 4_000, "seed": 3, "radius": 5.0, "anchor": parts if anchored else None}
    found = dp.dual.solve_simulated(
        SimulatedALP(ratios, families, criterion, potential=squares, **options), (40.0, 7.0)
    )
    h = found.dual_potential()
    assert 1e-3 < np.abs(h(every(net)) - squares(every(net))).max() <= 7.0 * (1 + 1e-6)
    problem = SimulatedALP(ratios, families, criterion, potential=h, **options)
    m = problem.moments()
    u, d = m.rows.shape
    costs = np.concatenate(
        [m.total * m.shaped.mean(axis=0), 40.0 * m.total * m.shares.mean(axis=0)]
    )
    equal, right = [m.mass.mean(axis=0)], [1.0]
    if anchored:
        equal, right = [*equal, *m.anchors.toarray()], [*right, *m.anchored]
    equal = np.hstack([np.array(equal), np.zeros((len(right), u))])
    above = np.hstack([-m.rows.toarray(), -np.eye(u)])
    truth = optimize.linprog(
        costs, above, np.zeros(u), equal, right, [(-5, 5)] * d + [(0, None)] * u
    )
    assert truth.fun + m.potential.mean() == pytest.approx(found.value, rel=1e-5, abs=1e-5)


# -- policies inside policies ----------------------------------------------------------------------


def nested(model):
    basis = primal.monomials(model, 2)
    values = primal.LinearValues(basis, np.random.default_rng(0).normal(size=len(basis)))
    policies = heuristics(model)
    among = GreedyAmong(policies, values, 0.9, name="chosen")
    reference = Mixed([policies[0], among, policies[1]], [0.5, 0.3, 0.2])
    ratios = concat_ratios(
        portfolio(
            reference,
            [*policies[:2], among],
            cells(model, {"1": [1], "4": [1, 2]}, where={"2": (0, 1)}),
        ),
        portfolio(reference, [reference]),
    )
    theta = np.random.default_rng(1).normal(size=len(ratios))
    return among, reference, RatioPolicy(ratios, theta, name="a ratio policy")


@pytest.mark.slow
def test_policies_inside_policies_come_back_the_same(net, tmp_path):
    among, reference, ratio = nested(net)
    path = tmp_path / "p.npz"
    for policy in (among, reference, Mixed([ratio, net.policy("longer")], [0.25, 0.75]), ratio):
        dp.save_policy(policy, path)
        loaded = dp.load_policy(path, net)
        assert (type(loaded), loaded.name, loaded.digest) == (
            type(policy),
            policy.name,
            policy.digest,
        )
    assert (rules(loaded) == rules(ratio)).all()
    with np.load(path) as file:
        arrays = dict(file)
    for name, broken in (
        ("theta", arrays["theta"] * 2),
        ("theta", arrays["theta"][:-1]),
        ("cells_0", arrays["cells_0"][:5]),
        ("cells_0", arrays["cells_0"] + 100),
        ("members_0", arrays["members_0"][::-1]),
        ("members_0", arrays["members_0"] + 50),
        ("policies.0.shares", np.array([0.3, 0.5, 0.2])),
    ):
        np.savez(tmp_path / "b.npz", **{**arrays, name: broken})
        with pytest.raises(dp.errors.RunError, match="holds no saved policy"):
            dp.load_policy(tmp_path / "b.npz", net)
    with pytest.raises(dp.errors.InputError, match="made for"):
        dp.load_policy(path, dp.load("four-queue", buffers=3))


def test_functions_of_the_user_inside_policies_cannot_be_saved(net, tmp_path):
    own = FunctionPolicy(net, lambda x: 0, name="mine")
    reference = exploring(net.policy("lbfs"), 0.3)
    bands = features.levels(net, lambda x: x[0] + x[1], [2])
    for policy in (
        Mixed([own, net.policy("lbfs")], [0.5, 0.5]),
        RatioPolicy(portfolio(reference, [reference], bands), [1.0, 1.0]),
        RatioPolicy(user_ratios(reference, one, 1, widest=1), [1.0]),
    ):
        with pytest.raises(dp.errors.MissingError, match="cannot be saved"):
            dp.save_policy(policy, tmp_path / "p.npz")


def one(x, a, indices, values):
    indices[0], values[0] = 0, 1.0
    return 1


# -- greedy among policies -------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_greedy_among_policies_takes_the_best_in_each_state(net, criterion):
    """By hand from dense matrices; compiled and in Python alike.

    With the incumbent's values it is no worse.
    """
    members = [exploring(net.policy("lbfs"), 0.4), net.policy("longer"), net.policy("c-mu")]
    gamma = criterion.gamma if isinstance(criterion, dp.Discounted) else 1.0
    _, values, cost = exact(net, members[0], criterion)
    rows, losses = matrix(net)
    single = lambda states: np.eye(81)[(states - net.box.lower) @ net.box.strides]  # noqa: E731 - a basis
    basis = primal.functions(net, single, [str(i) for i in range(81)])
    smooth = primal.LinearValues(primal.monomials(net, 2), np.random.default_rng(3).normal(size=15))
    for given in (smooth, primal.LinearValues(basis, values), state_function(net, values)):
        policy = GreedyAmong(members, given, gamma)
        assert (policy.code is not None) == (given is smooth)
        q = losses + gamma * (rows @ given(every(net))).reshape(losses.shape)
        means = np.stack([(rules(member) * q).sum(axis=1) for member in members], axis=1)
        chosen = (rules(policy) * q).sum(axis=1)
        assert chosen == pytest.approx(means.min(axis=1), abs=1e-9)
        distances = np.stack(
            [np.abs(rules(policy) - rules(member)).max(axis=1) for member in members]
        )
        assert (distances.min(axis=0) == 0).all()
    assert exact(net, policy, criterion)[2] < cost - 1e-6


# -- combinations ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queues():
    return dp.load("four-queue", buffers=4)


@pytest.fixture(scope="module")
def from_lbfs(queues):
    """LBFS and LONGER with the exact bias of LBFS."""
    lbfs, longer = queues.policy("lbfs"), queues.policy("longer")
    bias = state_function(queues, dp.evaluate_exact(queues, lbfs, everywhere=True).values)
    return combine(
        queues, [longer], lbfs, potential=bias, penalties=[0.1, 3.0, 1e4], samples=16_000, seed=5
    )


def test_without_a_price_each_cell_takes_the_policy_of_least_advantage(queues, from_lbfs):
    """Against exact expectations under the reference: the choice where the gap is clear, and the
    program's value.
    """
    problem, members = from_lbfs.problem, from_lbfs.portfolio
    assert [policy.name for policy in members] == ["lbfs", "longer"]
    occupancy, _, _ = exact(queues, problem.ratios.reference)
    law, h = occupancy.sum(axis=1), from_lbfs.potential(every(queues))
    rows, losses = matrix(queues)
    q = losses + (rows @ h).reshape(losses.shape) - h[:, None]
    places = from_lbfs.partition(every(queues))
    sums = np.array(
        [
            np.bincount(places, law * (rules(p) * q).sum(axis=1), len(from_lbfs.partition))
            for p in members
        ]
    )
    hard = next(c for c in from_lbfs.candidates if c.kind == "hard")
    apart = np.abs(sums[0] - sums[1])
    clear = apart > 0.1 * apart.max()
    assert clear.sum() >= 20
    assert len(set(sums.argmin(axis=0)[clear])) == 2
    assert (
        hard.policy.theta.reshape(-1, 2).argmax(axis=1)[clear] == sums.argmin(axis=0)[clear]
    ).all()
    free = from_lbfs.candidates[0].solution
    assert free.value == pytest.approx(sums.min(axis=0).sum(), rel=0.03)


def test_a_combination_beats_the_best_of_its_portfolio(queues, from_lbfs):
    """Exact costs. A large H leads back to the reference; greedy among the two stands beside."""
    costs = {c.policy.name: exact(queues, c.policy)[2] for c in from_lbfs.candidates}
    alone = [exact(queues, policy)[2] for policy in from_lbfs.portfolio]
    reference = exact(queues, from_lbfs.problem.ratios.reference)[2]
    assert costs["combined, H = 0.1"] < min(alone) - 0.05
    assert costs["combined, H = 0.1"] < costs["combined, H = 3"] < min(alone)
    assert costs["greedy among the portfolio"] < min(alone) - 0.05
    assert costs["combined, H = 10000"] == pytest.approx(reference, rel=0.02)
    assert from_lbfs.explained is None
    assert from_lbfs.status is dp.Status.COMPLETED
    assert [c["kind"] for c in from_lbfs.to_json()["candidates"]] == ["dual"] * 3 + [
        "hard",
        "greedy",
    ]


def test_cells_that_nothing_came_to_are_left_to_the_incumbent():
    """Eight cells from 100 customers on, in a queue that never has as many."""
    model = dp.load("four-queue", buffers=None)
    lbfs, parts = model.policy("lbfs"), cells(model, {"1": [1, 1000], "2": [1000]})
    found = combine(
        model,
        [model.policy("longer")],
        lbfs,
        potential=squares,
        partition=parts,
        penalties=[1.0],
        samples=2_000,
    )
    far = np.array([[2000, 3, 4, 1], [0, 2000, 1, 1], [1500, 1500, 0, 7]])
    for candidate in found.candidates[:2]:
        assert all((candidate.policy(x) == lbfs(x)).all() for x in far)


def test_a_fitted_potential_is_judged_on_other_trajectories(queues):
    """R² of a given function tends to its exact value.

    a constant explains nothing and is refused.
    """
    lbfs = queues.policy("lbfs")
    occupancy, bias, cost = exact(queues, lbfs)
    rows, losses = matrix(queues)
    law, parts = occupancy.sum(axis=1), cells(queues, {"1": [1, 3], "2": [2], "4": [1]})
    places = parts(every(queues))
    problem, choices = visits(lbfs, samples=16_000, every=40, expected=True, seed=2), rules(lbfs)
    recorded = list(problem.transitions())
    for h in (0.7 * bias, squares(every(queues)), bias):
        delta = (choices * (losses + (rows @ h).reshape(losses.shape))).sum(axis=1) - cost - h
        shares = np.bincount(places, law)
        means = [np.bincount(places, law * v) / shares for v in (delta, losses[:, 0] - cost)]
        truth = 1 - (shares @ (means[0] - shares @ means[0]) ** 2) / (shares @ means[1] ** 2)
        sums = _residuals(problem, recorded, state_function(queues, h), cost, parts)
        found, error = _explained(sums)
        assert abs(found - truth) <= 5 * error
        assert found == pytest.approx(truth, abs=0.06 * max(1.0, 1 - truth))
    refused = combine(
        queues,
        [queues.policy("longer")],
        lbfs,
        basis=primal.monomials(queues, 0),
        penalties=[1.0],
        samples=2_000,
    )
    assert refused.status is dp.Status.NO_POTENTIAL
    assert "better than a constant" in refused.to_json()["advice"]
    assert refused.explained == pytest.approx(0.0, abs=1e-9)
    assert refused.potential is None
    assert [c.kind for c in refused.candidates] == ["dual", "hard"]
    fitted = combine(queues, [queues.policy("longer")], lbfs, penalties=[1.0], samples=8_000)
    assert fitted.status is dp.Status.COMPLETED
    assert 0.5 < fitted.explained < 1.0


def test_cuts_are_made_where_advantages_change_sign(queues):
    """A policy that is better than LBFS where queue 3 is empty and worse elsewhere, though it
    differs everywhere.
    """
    lbfs = queues.policy("lbfs")
    _, bias, cost = exact(queues, lbfs)
    rows, losses = matrix(queues)
    q = losses + (rows @ bias).reshape(losses.shape)
    third = every(queues)[:, 2]
    other = TablePolicy(queues, np.where(third == 0, q.argmin(axis=1), q.argmax(axis=1)))
    found = combine(
        queues,
        [other],
        lbfs,
        potential=state_function(queues, bias),
        penalties=[0.1],
        most_cells=2,
        samples=8_000,
        seed=1,
    )
    assert found.partition.names == ("3 < 1", "3 >= 1")
    hard = next(c.policy for c in found.candidates if c.kind == "hard")
    assert hard.theta.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert exact(queues, hard)[2] < cost - 0.01


def test_without_advantages_cuts_are_made_where_policies_are_apart(queues):
    """Two policies that differ where queue 2 is empty only.

    And who decides is always told apart.
    """
    lbfs = queues.policy("lbfs")
    other = np.where(
        (every(queues)[:, 1] == 0)[:, None], np.roll(rules(lbfs), 1, axis=1), rules(lbfs)
    )
    seen = _Seen(visits(lbfs, samples=2_000), [lbfs, TablePolicy(queues, other)], means=True)
    assert choose_partition(seen, None, 3).names == ("2 < 1", "2 >= 1")
    assert len(choose_partition(seen, None, 20)) <= 20
    servers = dp.load("six-class", stations=2, decisions="per-server")
    both = [servers.policy("lbfs"), servers.policy("c-mu")]
    found = choose_partition(_Seen(visits(both[0], samples=2_000), both, means=True), None, 12)
    event = servers.coordinates.index("event")
    assert {part.coordinate: part.cuts for part in found.parts}[event] == (1, 2)
    assert 3 < len(found) <= 12


def test_a_simulator_and_any_function_are_enough():
    """No next states are listed: transitions as drawn, a potential checked all the same, nothing
    greedy.
    """
    table = dp.load("garnet", states=6, actions=2, branching=3, seed=5)

    rows, losses = matrix(table)
    sums = np.cumsum(rows.reshape(6, 2, 6), axis=2)

    def step(x, a, rng):
        return int(np.searchsorted(sums[x[0], a], rng.random(), side="right")), losses[x[0], a]

    model = dp.SimulatorModel(lower=[0], upper=[5], actions=2, step=step)
    members = [FunctionPolicy(model, lambda x, a=a: a, name=f"always {a}") for a in range(2)]
    costs = [dp.evaluate_exact(table, TablePolicy(table, np.full(6, a))).cost for a in range(2)]
    best = int(np.argmin(costs))
    found = combine(
        model,
        members,
        members[best],
        basis=primal.monomials(model, 5),
        partition=cells(model, {0: [1, 2, 3, 4, 5]}),
        penalties=[0.5],
        samples=4_000,
        warm_up=50,
        seed=2,
    )
    assert [c.kind for c in found.candidates] == ["dual", "hard"]
    assert found.explained > 0.5
    chosen = TablePolicy(table, rules(found.candidates[1].policy))
    assert dp.evaluate_exact(table, chosen).cost < costs[best] - 0.01


def test_same_seed_same_candidates(net):
    one, two = (
        combine(
            net,
            heuristics(net),
            heuristics(net)[0],
            penalties=[2.0],
            samples=1_600,
            seed=9,
            threads=k,
        )
        for k in (1, 2)
    )
    assert (one.candidates[0].policy.theta == two.candidates[0].policy.theta).all()
    assert one.explained == two.explained


def test_errors_are_one_sentence(net):
    lbfs, longer = net.policy("lbfs"), net.policy("longer")
    for call, words in (
        (lambda: combine(net, [lbfs], lbfs), "nothing to combine"),
        (lambda: combine(net, lbfs, lbfs), "a list of policies"),
        (lambda: combine(net, ["longer"], lbfs), "a policy is needed"),
        (lambda: combine(net, [longer], lbfs, penalties=[0.0]), "positive numbers"),
        (lambda: combine(net, [longer], lbfs, penalties=3.0), "positive numbers"),
        (lambda: combine(net, [longer], lbfs, epsilon=0), "above 0"),
        (lambda: combine(net, [longer], lbfs, most_cells=0.5), "whole number"),
        (lambda: combine(dp.load("four-queue", buffers=3), [longer], lbfs), "another model"),
        (lambda: GreedyAmong([], squares), "at least one"),
    ):
        with pytest.raises(dp.errors.InputError, match=words) as error:
            call()
        assert str(error.value).count(". ") == 0
