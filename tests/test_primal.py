"""Approximate linear programs on values, against exact answers and the same programs written out
densely.
"""

import itertools

import joblib
import numpy as np
import pytest
import scipy.optimize

import dualplan as dp
from bank import discounted_cost, load, matrix
from dualplan import primal
from dualplan.core import lp as highs
from dualplan.policies.tables import TablePolicy
from dualplan.primal.program import Program, maximise, maximise_in_parts

GAMMA = 0.9
DISCOUNTED = dp.Discounted(GAMMA)
SMALL = {
    "four-queue": lambda: load("four-queue", buffers=2),
    "garnet": lambda: load("garnet", states=40, actions=3, seed=3),
    "admission": lambda: load("admission", servers=2, room=6),
    "criss-cross": lambda: load("criss-cross", buffers=3),
}


@pytest.fixture(scope="module", params=SMALL)
def small(request):
    return SMALL[request.param]()


def all_states(model):
    return model.box.states(np.arange(model.box.count))


def pairs(model):
    """Numbers of states, rows of P and losses of all allowed pairs, from single questions."""
    rows, losses = matrix(model)
    may = np.array([model.allowed(x) for x in all_states(model)])
    states = np.repeat(np.arange(model.box.count), len(model.actions))[may.ravel()]
    return states, rows[may.ravel()], losses.ravel()[may.ravel()]


def dense_alp(model, basis, gamma, c):
    """max cᵀΨw, written out."""
    states, rows, losses = pairs(model)
    psi = basis(all_states(model))
    done = scipy.optimize.linprog(
        -(c @ psi), psi[states] - gamma * rows @ psi, losses, bounds=(None, None)
    )
    assert done.status == 0
    return -done.fun


def optimal_values(model, gamma=GAMMA):
    states, rows, losses = pairs(model)
    values = np.zeros(model.box.count)
    for _ in range(int(np.log(1e-13) / np.log(gamma))):
        values = np.minimum.reduceat(
            losses + gamma * rows @ values, np.flatnonzero(np.diff(states, prepend=-1))
        )
    return values


def look_ahead(model, values, gamma, x):
    """The lowest action within rounding of the least, in plain Python."""
    costs = {}
    for a in np.flatnonzero(model.allowed(x)):
        law = model.forward(x, int(a))
        costs[int(a)] = model.loss(x, int(a)) + gamma * float(
            law.probabilities @ values(law.states)
        )
    return min(
        a
        for a, q in costs.items()
        if q <= min(costs.values()) + 1e-11 * (1 + abs(min(costs.values())))
    )


# -- functions -------------------------------------------------------------------------------------


def test_pieces_and_products():
    model = dp.load("four-queue", buffers=(4, 3, None, 2))
    basis = primal.products(
        model,
        [
            [],
            [primal.power(0, 3, shift=1.0, scale=2.0), primal.between(1, 1, 2)],
            [primal.hinge(2, 5, scale=4.0), primal.capped(2, 7), primal.power(3, 0)],
        ],
    )
    states = np.random.default_rng(0).integers(0, [5, 4, 30, 3], (200, 4))
    v = states.T.astype(float)
    expected = np.stack(
        [
            np.ones(200),
            ((v[0] - 1) / 2) ** 3 * ((v[1] >= 1) & (v[1] <= 2)),
            np.maximum(v[2] - 5, 0) / 4 * np.minimum(v[2], 7),
        ],
        axis=1,
    )
    assert basis(states) == pytest.approx(expected, abs=1e-12)
    weights = np.array([1.0, -2.0, 0.5])
    assert primal.LinearValues(basis, weights)(states) == pytest.approx(
        expected @ weights, abs=1e-12
    )


def test_families():
    model = dp.load("four-queue", buffers=(4, 3, None, 2))
    states = np.random.default_rng(1).integers(0, [5, 4, 30, 3], (100, 4))
    cubic = primal.monomials(model, 3)
    assert len(cubic) == 35
    assert len(set(cubic.names)) == 35
    scaled = states / np.array([4.0, 3.0, 10.0, 2.0])
    every = [
        np.prod(scaled**e, axis=1) for e in itertools.product(range(4), repeat=4) if sum(e) <= 3
    ]
    assert np.sort(cubic(states).sum(axis=1)) == pytest.approx(np.sort(np.sum(every, axis=0)))
    ends = primal.boundaries(model)
    assert len(ends) == 7  # queue 3 is never full
    assert ends(states)[:, 0].tolist() == (states[:, 0] == 0).astype(float).tolist()
    assert ends(states)[:, 1].tolist() == (states[:, 0] == 4).astype(float).tolist()
    assert len(primal.boundaries(model, 1)) == 7 * 4
    both = primal.tensor(ends, primal.monomials(model, 1))
    assert both(states) == pytest.approx(
        (ends(states)[:, :, None] * primal.monomials(model, 1)(states)[:, None, :]).reshape(100, -1)
    )
    assert len(primal.concat(cubic, primal.constant(model), ends)) == 42
    hinges = primal.piecewise_linear(model, [[1, 2], [], [5.5], [1]])
    assert hinges(states)[:, 1] == pytest.approx(np.maximum(states[:, 0] - 1, 0) / 4)
    assert len(hinges) == 8
    tiles = primal.boxes(model, [[(0, 1), (2, 4)], [(0, 3)], [(0, 9), (10, 99)], [(0, 2)]])
    assert tiles(states).sum(axis=1).tolist() == [1.0] * 100


def test_identity(small):
    assert np.array_equal(primal.indicators(small)(all_states(small)), np.eye(small.box.count))


def test_user_functions(net):
    basis = primal.concat(
        primal.functions(net, lambda x: np.exp(-x.sum(axis=1)), "decay"),
        primal.monomials(net, 1),
        primal.functions(net, lambda x: np.sqrt(x[:, :2]), ["root 1", "root 2"]),
    )
    assert basis.names[-3:] == ("decay", "root 1", "root 2")
    assert not basis.compiled
    states = all_states(net)
    assert basis(states)[:, -1] == pytest.approx(np.sqrt(states[:, 1]))
    assert primal.tensor(basis, primal.constant(net))(states) == pytest.approx(basis(states))
    solution = primal.alp(net, basis, DISCOUNTED)
    table = solution.policy()
    python = primal.GreedyPolicy(net, solution.values, GAMMA)
    assert python.code is None
    assert isinstance(table, TablePolicy)
    for x in states[::7]:
        a = look_ahead(net, solution.values, GAMMA, x)
        assert table(x)[a] == 1
        assert python(x)[a] == 1


# -- greedy policies -------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [GAMMA, 1.0])
def test_greedy_against_plain_look_ahead(small, gamma):
    rng = np.random.default_rng(5)
    basis = primal.concat(primal.monomials(small, 2), primal.boundaries(small))
    values = primal.LinearValues(basis, rng.normal(size=len(basis)) * 10)
    policy = primal.GreedyPolicy(small, values, gamma)
    table = primal.greedy(small, values(all_states(small)), gamma)
    python = primal.GreedyPolicy(small, lambda x: values(x), gamma)
    for x in all_states(small):
        a = look_ahead(small, values, gamma, x)
        assert policy(x)[a] == 1
        assert python(x)[a] == 1
        law = {int(np.argmax(table(x))), a}  # a sweep may see a tie otherwise
        if len(law) == 2:
            costs = [small.loss(x, b) + gamma * values_ahead(small, values, x, b) for b in law]
            assert costs[0] == pytest.approx(costs[1], abs=1e-9)


def values_ahead(model, values, x, a):
    law = model.forward(x, a)
    return float(law.probabilities @ values(law.states))


def test_ties_go_to_the_lowest_action(net):
    zero = primal.LinearValues(primal.constant(net), np.array([3.0]))
    policy = primal.GreedyPolicy(net, zero, 0.5)
    assert all(policy(x)[0] == 1 for x in all_states(net))


def test_greedy_policies_work_like_others(net):
    basis = primal.monomials(net, 2)
    one, two = (
        primal.GreedyPolicy(net, primal.LinearValues(basis, np.full(15, w)), 1.0)
        for w in (1.0, 2.0)
    )
    assert one.digest != two.digest
    assert one.digest == primal.GreedyPolicy(net, primal.LinearValues(basis, np.ones(15))).digest
    assert (
        one.digest != primal.GreedyPolicy(net, primal.LinearValues(basis, np.ones(15)), 0.9).digest
    )
    assert one.code.act is two.code.act
    exact, run = dp.evaluate_exact(net, one), dp.evaluate(net, one, steps=400_000, confidence=0.999)
    assert run.lower <= exact.cost <= run.upper


def test_greedy_without_a_table():
    model = dp.load("tandem", queues=100, servers=50)  # no upper limits
    values = primal.LinearValues(primal.monomials(model, 1), np.ones(102))
    run = dp.evaluate(model, primal.GreedyPolicy(model, values), steps=2_000)
    assert run.steps > 1_900
    assert np.isfinite(run.cost)


# -- relevance -------------------------------------------------------------------------------------


def test_moments_of_geometric_weights(net):
    largest = primal.functions(net, lambda x: x.max(axis=1), "largest")
    basis = primal.concat(primal.monomials(net, 3), primal.boundaries(net, 1), largest)
    states = all_states(net)
    c = 0.7 ** states.sum(axis=1)
    law = primal.geometric(net, 0.7)
    assert law.moments(basis) == pytest.approx(c @ basis(states) / c.sum())
    assert primal.uniform(net).moments(basis) == pytest.approx(basis(states).mean(axis=0))
    listed = primal.weighted(net, states, c)
    assert listed.moments(basis) == pytest.approx(law.moments(basis))
    draws = law.draw(40_000, seed=2)
    assert (
        np.abs(basis(draws).mean(axis=0) - law.moments(basis)).max() < 0.02
    )  # more than 4 standard errors


def test_moments_on_a_huge_model():
    model = dp.load("tandem", queues=100, servers=50)
    law, basis = primal.geometric(model, 0.5), primal.monomials(model, 1)
    assert law.moments(basis)[1:101] == pytest.approx(
        np.full(100, 1.0 / 10)
    )  # mean 1, scaled by 10


@pytest.mark.parametrize("criterion", [DISCOUNTED, dp.Average()])
def test_occupancies_exact_and_simulated(net, criterion):
    basis, policy = primal.monomials(net, 2), net.policy("lbfs")
    exact = primal.occupancy(net, policy, criterion).moments(basis)
    simulated = primal.occupancy(
        net, policy, criterion, samples=400_000, method="simulation"
    ).moments(basis)
    assert simulated == pytest.approx(exact, abs=0.02)


# -- programs --------------------------------------------------------------------------------------


def test_identity_gives_the_optimum_discounted(small):
    basis, values = primal.indicators(small), optimal_values(small)
    solution = primal.alp(small, basis, DISCOUNTED, relevance=primal.uniform(small))
    assert solution.weights == pytest.approx(values, abs=1e-5)
    assert solution.objective == pytest.approx(values.mean(), abs=1e-6)
    exact = dp.solve_exact(small, DISCOUNTED, tol=1e-7)
    assert dp.evaluate_exact(small, solution.policy(), DISCOUNTED).cost == pytest.approx(
        exact.value, abs=1e-5
    )
    assert solution.lower_bound.value == pytest.approx(exact.value, abs=1e-4)
    assert solution.lower_bound.value <= exact.upper


def test_identity_gives_the_optimum_average(small):
    exact = dp.solve_exact(small, tol=1e-7)
    solution = primal.average_alp(
        small, primal.indicators(small), relevance=primal.uniform(small), slack=0.0
    )
    assert solution.level == pytest.approx(exact.value, abs=1e-5)
    assert solution.lower_bound.kind == "proved"
    assert exact.upper >= solution.lower_bound.value >= exact.lower - 1e-5
    assert dp.evaluate_exact(small, solution.policy()).cost == pytest.approx(exact.value, abs=1e-4)


def test_program_equals_the_dense_one(small):
    basis = primal.concat(primal.monomials(small, 2), primal.boundaries(small))
    c = 0.8 ** (all_states(small) - small.box.lower).sum(axis=1)
    expected = dense_alp(small, basis, GAMMA, c / c.sum())
    law = primal.geometric(small, 0.8)
    whole = primal.alp(small, basis, DISCOUNTED, relevance=law, constraints="all")
    made = primal.alp(small, basis, DISCOUNTED, relevance=law, constraints="generated")
    for solution in (whole, made):
        assert solution.objective == pytest.approx(expected, abs=1e-5)
        assert solution.status is dp.Status.SOLVED
        assert solution.violation <= 1e-6
    optimum = dp.solve_exact(small, DISCOUNTED, tol=1e-6)
    assert whole.lower_bound.value <= optimum.upper
    assert made.constraints < whole.constraints or small.name != "four-queue"


def test_average_program_equals_the_dense_one(small):
    basis = primal.concat(primal.monomials(small, 2), primal.boundaries(small))
    states, rows, losses = pairs(small)
    psi = basis(all_states(small))
    wide = np.hstack([psi[states] - rows @ psi, np.ones((losses.size, 1))])
    dense = scipy.optimize.linprog(
        np.append(np.zeros(len(basis)), -1.0), wide, losses, bounds=(None, None)
    )
    for way in ("all", "generated"):
        first = primal.average_bound(small, basis, constraints=way)
        assert first.level == pytest.approx(-dense.fun, abs=1e-5)
        assert first.lower_bound.value == pytest.approx(-dense.fun, abs=1e-5)
        assert first.lower_bound.value <= dp.solve_exact(small, tol=1e-6).upper
    start = small.box.index(small.start)
    anchored, level = psi - psi[start], first.level - 0.05
    c = 0.9 ** (all_states(small) - small.box.lower).sum(axis=1)
    second = scipy.optimize.linprog(
        -(c / c.sum()) @ anchored,
        anchored[states] - rows @ anchored,
        losses - level,
        bounds=(None, None),
    )
    both = primal.average_alp(small, basis, level=level)
    assert both.objective == pytest.approx(-second.fun, abs=1e-4)


def test_published_error_bound(small):
    """‖J* − Ψw‖_{1,c} <= 2/(1−γ)·min_r ‖J* − Ψr‖_∞, the minimum by a linear program."""
    values, states = optimal_values(small), all_states(small)
    for degree, ratio in itertools.product((0, 1, 2), (0.5, 1.0)):
        basis = primal.monomials(small, degree)
        psi = basis(states)
        ones = np.ones((len(psi), 1))
        best = scipy.optimize.linprog(
            np.append(np.zeros(psi.shape[1]), 1.0),
            np.vstack([np.hstack([psi, -ones]), np.hstack([-psi, -ones])]),
            np.append(values, -values),
            bounds=[(None, None)] * psi.shape[1] + [(0, None)],
        )
        c = ratio ** (states - small.box.lower).sum(axis=1).astype(float)
        solution = primal.alp(small, basis, DISCOUNTED, relevance=primal.geometric(small, ratio))
        gap = values - psi @ solution.weights
        assert gap.min() >= -1e-6  # feasible values lie below J*
        assert c @ np.abs(gap) / c.sum() <= 2 / (1 - GAMMA) * best.fun + 1e-6


def test_published_bound_on_the_greedy_policy(small):
    """αᵀ(J_π − J*) <= ‖J* − Ψw‖_{1,μ}/(1−γ), μ the policy's own discounted occupancy, times 1−γ."""
    values = optimal_values(small)
    start = small.box.index(small.start)
    for degree in (1, 2):
        solution = primal.alp(small, primal.monomials(small, degree), DISCOUNTED)
        policy = solution.policy()
        run = dp.evaluate_exact(small, policy, DISCOUNTED)
        gap = values[run.reached] - solution.values(small.box.states(run.reached))
        assert (
            run.cost - values[start] <= run.occupancy @ np.abs(gap) + 1e-6
        )  # occupancy sums to 1/(1−γ)


def test_published_bound_on_the_greedy_policy_of_the_average_program(small):
    """λ_π − λ* <= ‖h* − Ψw‖_{1,μ} for Ψw <= h*, μ the policy's stationary law (de Farias & Van Roy,
    NIPS 2002).

    h* is moved by a constant so that it lies above Ψw, and touches it.
    """
    states, rows, losses = pairs(small)
    first = np.flatnonzero(np.diff(states, prepend=-1))
    bias, optimum = np.zeros(small.box.count), dp.solve_exact(small, tol=1e-9).value
    for _ in range(20_000):  # relative value iteration, damped: models may be periodic
        ahead = np.minimum.reduceat(losses + rows @ bias, first)
        bias += 0.5 * (ahead - ahead[0] - bias)
    assert np.ptp(np.minimum.reduceat(losses + rows @ bias, first) - bias) < 1e-7
    for degree in (1, 2):
        solution = primal.average_alp(small, primal.monomials(small, degree))
        run = dp.evaluate_exact(small, solution.policy())
        gap = bias - solution.values(all_states(small))
        gap -= gap.min()
        assert run.cost - optimum <= run.occupancy @ gap[run.reached] + 1e-6


def test_many_constraints_are_taken_in_parts():
    rng = np.random.default_rng(4)
    matrix, right = rng.normal(size=(3_000, 8)), rng.uniform(0.5, 1.5, 3_000)
    costs = rng.normal(size=8)
    names = tuple("abcdefgh")
    dense = scipy.optimize.linprog(-costs, matrix, right, bounds=(None, None))
    assert costs @ maximise_in_parts(costs, matrix, right, None, names) == pytest.approx(
        -dense.fun, abs=1e-8
    )
    assert costs @ maximise(costs, matrix, right, None, names) == pytest.approx(
        -dense.fun, abs=1e-7
    )
    tight = 0.5 * np.abs(dense.x).max()
    dense = scipy.optimize.linprog(-costs, matrix, right, bounds=(-tight, tight))
    assert costs @ maximise_in_parts(costs, matrix, right, tight, names) == pytest.approx(
        -dense.fun, abs=1e-8
    )
    assert costs @ maximise(costs, matrix, right, tight, names) == pytest.approx(
        -dense.fun, abs=1e-7
    )
    assert costs @ maximise(costs, matrix[:5], right[:5], tight, names) >= -dense.fun


def test_programs_grow_from_their_last_basis():
    rng = np.random.default_rng(6)
    matrix, costs, right = rng.random((4, 30)), rng.random(30), rng.random(4)
    growing = highs.Growing(right)
    growing.add(np.full(4, 50.0), np.eye(4))
    for columns in (slice(0, 10), slice(10, 30)):
        growing.add(costs[columns], matrix[:, columns])
        found = growing.solve()
    dense = scipy.optimize.linprog(
        np.append(np.full(4, 50.0), costs), A_eq=np.hstack([np.eye(4), matrix]), b_eq=right
    )
    assert found.y @ right == pytest.approx(dense.fun)
    assert found.x @ np.append(np.full(4, 50.0), costs) == pytest.approx(dense.fun)
    never = highs.Growing(-right)
    never.add(costs, matrix)
    assert not never.solve().found


def test_reference_figures():
    """The rows of the ten-thousand-state network: costs to ±.005, lower bounds at least as
    printed.
    """
    model = dp.load("four-queue", buffers=9)
    law, optimum = primal.geometric(model, 0.9), 8.1054
    for degree, cost in ((2, 8.80), (3, 8.209)):
        solution = primal.alp(
            model, primal.monomials(model, degree), dp.Discounted(0.99), relevance=law
        )
        assert dp.evaluate_exact(model, solution.policy()).cost == pytest.approx(cost, abs=0.005)
    for basis, bound in (
        (primal.monomials(model, 3), 6.44),
        (primal.monomials(model, 4), 7.36),
        (primal.concat(primal.monomials(model, 3), primal.boundaries(model, 2)), 7.33),
    ):
        solution = primal.average_bound(model, basis)
        assert bound <= solution.lower_bound.value <= optimum
        assert solution.lower_bound.value == pytest.approx(solution.level, abs=1e-5)


def test_sampled_constraints_tend_to_all(net):
    basis, law = primal.monomials(net, 2), primal.uniform(net)
    whole = primal.alp(net, basis, DISCOUNTED, relevance=law, constraints="all")
    gaps = []
    for samples in (40, 80, 5_000):
        drawn = primal.alp(
            net, basis, DISCOUNTED, relevance=law, sample=law, samples=samples, weight_bound=1e4
        )
        assert drawn.status is dp.Status.SAMPLED
        assert drawn.violation is None
        gaps.append(drawn.objective - whole.objective)
    assert gaps[0] >= gaps[2] - 1e-6
    assert min(gaps) >= -1e-5  # fewer constraints cannot lower a maximum
    assert gaps[2] == pytest.approx(0.0, abs=1e-5)  # 81 states are all drawn
    visits = primal.alp(
        net,
        basis,
        DISCOUNTED,
        relevance=law,
        sample=net.policy("lbfs"),
        samples=20_000,
        weight_bound=1e4,
    )
    assert visits.objective >= whole.objective - 1e-5


def test_sampled_program_without_a_list_of_states():
    model = dp.load("four-queue", buffers=None)
    policy = model.policy("lbfs")
    solution = primal.alp(
        model,
        primal.monomials(model, 2),
        dp.Discounted(0.95),
        sample=policy,
        samples=4_000,
        weight_bound=1e6,
    )
    rule = solution.policy()
    for x in ([0, 0, 0, 0], [3, 0, 2, 1], [40, 7, 0, 12]):
        assert rule(x)[look_ahead(model, solution.values, 0.95, np.array(x))] == 1
    assert solution.lower_bound.kind == "statistical"
    again = primal.alp(
        model,
        primal.monomials(model, 2),
        dp.Discounted(0.95),
        sample=policy,
        samples=4_000,
        weight_bound=1e6,
    )
    assert np.array_equal(solution.weights, again.weights)


def test_sample_size():
    n = primal.sample_size(35, 0.1, 0.05)
    assert n == int(np.ceil(40 * (35 * np.log(120) + np.log(40))))
    assert primal.sample_size_for_error(35, 4, 0.9, 1.0, 0.5, 0.05) == primal.sample_size(
        35, 0.1 * 0.5 / 16, 0.05
    )


def test_sample_size_rule_holds(net):
    """With n by the rule, drawn constraints leave at most ε of the measure violated.

    Δ = 1% in each of 5 runs.
    """
    basis, law, epsilon = primal.monomials(net, 1), primal.uniform(net), 0.3
    n = primal.sample_size(len(basis), epsilon, 0.01)
    states, rows, losses = pairs(net)
    psi = basis(all_states(net))
    for seed in range(5):
        w = primal.alp(net, basis, DISCOUNTED, sample=law, samples=n, seed=seed).weights
        over = (psi[states] - GAMMA * rows @ psi) @ w > losses + 1e-6
        assert over.mean() <= epsilon


def test_iterated_keeps_the_best(net):
    rounds = primal.iterated_alp(net, primal.monomials(net, 2), DISCOUNTED, iterations=3)
    costs = [discounted_cost(net, policy, GAMMA) for policy in rounds.policies]
    assert rounds.costs == pytest.approx(costs)
    assert rounds.costs[rounds.chosen] == rounds.costs.min()
    assert rounds.policy is rounds.policies[rounds.chosen]
    own = primal.occupancy(net, rounds.policies[0], DISCOUNTED)
    again = primal.alp(net, rounds.best.basis, DISCOUNTED, relevance=own)
    assert again.objective == pytest.approx(rounds.solutions[1].objective)
    assert rounds.stopped == ""
    average = primal.iterated_average_alp(net, primal.monomials(net, 3), iterations=2)
    assert average.costs.min() >= average.best.lower_bound.value


def test_a_better_basis_gives_a_better_bound(net):
    bounds = [
        primal.average_bound(net, primal.monomials(net, d)).lower_bound.value for d in (1, 2, 3, 4)
    ]
    assert bounds == sorted(bounds)


def test_policies_travel_to_workers(net):
    policy = primal.alp(net, primal.monomials(net, 2), DISCOUNTED).policy()
    here = dp.evaluate_exact(net, policy).cost
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(_cost)(policy) for _ in range(2)) == [
        here,
        here,
    ]


def _cost(policy):
    return dp.evaluate_exact(policy.model, policy).cost


# -- what goes wrong -------------------------------------------------------------------------------


def test_stopping_early_is_said():
    model = dp.load("four-queue", buffers=4)
    stopped = primal.alp(
        model, primal.monomials(model, 2), dp.Discounted(0.99), constraints="generated", rounds=1
    )
    assert stopped.status is dp.Status.VIOLATED
    assert stopped.violation > 1e-6
    with pytest.raises(dp.errors.InputError, match="stopped early"):
        stopped.policy()
    assert "unfinished" in stopped.policy(unfinished=True).name
    assert stopped.lower_bound.value <= dp.solve_exact(model, dp.Discounted(0.99), tol=1e-4).upper
    assert stopped.to_json()["status"] == "violated"


def test_a_tolerance_beyond_rounding_ends():
    model = dp.load("four-queue", buffers=4)
    basis = primal.monomials(model, 3)
    solution = primal.alp(model, basis, dp.Discounted(0.99), constraints="generated", tol=1e-16)
    assert solution.rounds < 50
    assert solution.violation < 1e-8
    assert (solution.status is dp.Status.SOLVED) == (solution.violation <= 1e-16)


def test_unbounded_and_infeasible_programs():
    model = dp.load("garnet", states=30, actions=2, seed=1)
    one = primal.weighted(model, model.start[None, :])
    with pytest.raises(dp.errors.InputError, match=r"do not bound.*more constraints"):
        primal.alp(model, primal.monomials(model, 2), DISCOUNTED, sample=one, samples=5)
    costly = dp.TabularModel([np.eye(2), np.eye(2)], -1 - np.arange(4.0).reshape(2, 2))
    slope = primal.products(costly, [[primal.power(0, 1)]])
    with pytest.raises(dp.errors.InputError, match=r"no weights keep.*constant"):
        primal.alp(costly, slope, DISCOUNTED)
    level = primal.average_bound(model, primal.monomials(model, 2)).level
    for way in ("all", "generated"):
        with pytest.raises(dp.errors.InputError, match="lower the level"):
            primal.average_alp(
                model, primal.monomials(model, 2), level=level + 0.1, constraints=way
            )
    with pytest.raises(dp.errors.InputError, match="do not bound"):
        primal.average_bound(model, primal.monomials(model, 2), sample=one, samples=5)
    bound = primal.alp(
        model, primal.monomials(model, 2), DISCOUNTED, sample=one, samples=5, weight_bound=100.0
    )
    assert np.abs(bound.weights).max() <= 100 + 1e-6
    with pytest.raises(dp.errors.InputError, match="no constraint sees"):
        Program(primal.indicators(model), 0.5, np.ones(30)).over(
            (model.start[None, :], np.zeros(1, int))
        )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: primal.monomials(m, -1), "degree"),
        (lambda m: primal.between(0, 2, 1), "low <= high"),
        (lambda m: primal.products(m, [[primal.power(9, 1)]]), "coordinates 0 to 3"),
        (lambda m: primal.boxes(m, [[(0, 1)]]), "as many lists"),
        (lambda m: primal.monomials(m, 1, scale=-1.0), "positive"),
        (lambda m: primal.functions(m, lambda x: x), "shape"),
        (lambda m: primal.functions(m, lambda x: x[:, 0] / 0.0 * np.nan, "bad"), "not finite"),
        (lambda m: primal.geometric(m, 1.5), "ratios"),
        (lambda m: primal.uniform(dp.load("four-queue", buffers=None)), "infinitely many"),
        (lambda m: primal.alp(m, primal.constant(m), dp.Average()), "average_alp"),
        (
            lambda m: primal.alp(m, primal.constant(m), DISCOUNTED, constraints="some"),
            "unknown way",
        ),
        (lambda m: primal.alp(m, primal.constant(m), DISCOUNTED, constraints="sampled"), "sample="),
        (lambda m: primal.alp(m, primal.constant(m), DISCOUNTED, tol=0), "tol"),
        (
            lambda m: primal.alp(m, primal.constant(m), DISCOUNTED, sampels=3),
            "did you mean 'samples'",
        ),
        (lambda m: primal.average_alp(m, primal.constant(m), slack=-1.0), "slack"),
        (
            lambda m: primal.iterated_alp(m, primal.constant(m), DISCOUNTED, iterations=0),
            "iterations",
        ),
        (
            lambda m: primal.alp(dp.load("four-queue", buffers=3), primal.constant(m), DISCOUNTED),
            "belongs to",
        ),
        (
            lambda m: primal.alp(
                *(lambda u: (u, primal.constant(u)))(dp.load("tandem")), DISCOUNTED
            ),
            "too many states",
        ),
        (lambda m: primal.LinearValues(primal.constant(m), np.zeros(2)), "as many finite weights"),
        (lambda m: primal.GreedyPolicy(m, np.zeros(81)), "use `greedy`"),
        (lambda m: primal.sample_size(3, 0.0, 0.1), "between 0 and 1"),
        (lambda m: primal.weighted(m, [[0, 0, 0, 0]], [0.0]), "not all of them 0"),
    ],
)
def test_errors_in_one_sentence(net, call, words):
    with np.errstate(all="ignore"), pytest.raises(dp.errors.InputError, match=words) as error:
        call(net)
    assert "\n" not in str(error.value)
