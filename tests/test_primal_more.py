"""Mixtures of constraints, and restarts, against exact answers and the same programs written out
densely.
"""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

import dualplan as dp
from dualplan import primal
from test_primal import DISCOUNTED, GAMMA, SMALL, all_states, look_ahead, optimal_values, pairs

STAY = 0.95


@pytest.fixture(scope="module", params=SMALL)
def small(request):
    return SMALL[request.param]()


def some_basis(model):
    return primal.concat(primal.monomials(model, 2), primal.boundaries(model))


def geometric_law(model, ratio=0.9):
    c = ratio ** (all_states(model) - model.box.lower).sum(axis=1)
    return c / c.sum()


def dense(costs, matrix, right, bounds=(None, None)):
    done = scipy.optimize.linprog(-costs, matrix, right, bounds=bounds)
    assert done.status == 0
    return done


# -- mixtures of constraints -----------------------------------------------------------------------


def by_action(model):
    """Actions of all allowed pairs, in their order."""
    return np.concatenate([np.flatnonzero(model.allowed(x)) for x in all_states(model)])


def rows_of(model, basis):
    states, rows, losses = pairs(model)
    psi = basis(all_states(model))
    return psi[states] - GAMMA * rows @ psi, losses


def test_no_mixing_is_the_program_itself(small):
    basis = some_basis(small)
    whole = primal.alp(small, basis, DISCOUNTED, constraints="all")
    count = len(by_action(small))
    for weights in (
        sp.eye_array(count),
        3.0 * sp.eye_array(count, format="csc"),
        primal.indicators(small),
    ):
        found = primal.aggregated_alp(small, basis, DISCOUNTED, weights=weights)
        assert found.objective == pytest.approx(whole.objective, abs=1e-6)
        assert found.status is dp.Status.SOLVED
        assert found.violation <= 1e-6
        assert found.constraints == count


def test_identity_gives_the_optimum_discounted(small):
    basis, values = primal.indicators(small), optimal_values(small)
    found = primal.aggregated_alp(
        small, basis, DISCOUNTED, weights=basis, relevance=primal.uniform(small)
    )
    assert found.weights == pytest.approx(values, abs=1e-5)
    exact = dp.solve_exact(small, DISCOUNTED, tol=1e-7)
    assert dp.evaluate_exact(small, found.policy(), DISCOUNTED).cost == pytest.approx(
        exact.value, abs=1e-5
    )


def test_mixed_program_equals_the_dense_one(small):
    basis, c = some_basis(small), geometric_law(small)
    matrix, losses = rows_of(small, basis)
    costs, rng = c @ basis(all_states(small)), np.random.default_rng(2)
    whole, exact = dense(costs, matrix, losses), optimal_values(small)
    given = sp.random_array((losses.size, 80), density=0.04, rng=rng, format="csr")
    states = pairs(small)[0]
    halves = primal.functions(
        small, lambda x: np.stack([x[:, 0] % 2 == 0, x[:, 0] % 2 == 1], axis=1), ["even", "odd"]
    )
    cells = primal.tensor(halves, primal.monomials(small, 2))  # nonnegative functions
    spread = np.zeros((losses.size, len(small.actions) * len(cells)))
    for row, (x, a) in enumerate(zip(all_states(small)[states], by_action(small), strict=True)):
        spread[row, a * len(cells) : (a + 1) * len(cells)] = cells(x[None, :])[0]
    for weights, table, bound in (
        (given, given.toarray(), 1e3),
        (cells, spread, 1e3),
        (given.toarray(), given.toarray(), 5.0),
    ):
        found = primal.aggregated_alp(small, basis, DISCOUNTED, weights=weights, weight_bound=bound)
        scale = np.where(table.sum(axis=0) > 0, table.sum(axis=0), 1.0)
        same = dense(costs, (table / scale).T @ matrix, (table / scale).T @ losses, (-bound, bound))
        assert found.objective == pytest.approx(-same.fun, rel=1e-6, abs=1e-6)
        assert found.violation == pytest.approx(
            (matrix @ found.weights - losses).max(), rel=1e-6, abs=1e-6
        )
        assert found.status is dp.Status.RELAXED
        if bound > np.abs(whole.x).max():
            assert found.objective >= -whole.fun - 1e-6  # a relaxation
            error = c @ np.abs(exact - found.values(all_states(small)))
            bare = c @ np.abs(exact - basis(all_states(small)) @ whole.x)
            assert error <= bare + 2 * max(found.violation, 0.0) / (1 - GAMMA) + 1e-6


def test_mixtures_that_hold_an_optimal_measure_lose_nothing(small):
    basis = some_basis(small)
    matrix, losses = rows_of(small, basis)
    whole = dense(geometric_law(small) @ basis(all_states(small)), matrix, losses)
    measure = np.maximum(-whole.ineqlin.marginals, 0.0)
    rest = np.random.default_rng(3).random((losses.size, 4))
    weights = np.hstack([measure[:, None], rest])
    found = primal.aggregated_alp(small, basis, DISCOUNTED, weights=weights, weight_bound=1e4)
    assert found.objective == pytest.approx(-whole.fun, rel=1e-6, abs=1e-5)


def test_random_mixtures(net):
    basis, law = primal.monomials(net, 2), primal.uniform(net)
    whole = primal.alp(net, basis, DISCOUNTED, relevance=law)
    values = []
    for mixed in (primal.Mixtures(20_000), primal.Mixtures(400, 2), primal.Mixtures(400, 5)):
        found = primal.aggregated_alp(
            net, basis, DISCOUNTED, weights=mixed, relevance=law, weight_bound=1e4
        )
        again = primal.aggregated_alp(
            net, basis, DISCOUNTED, weights=mixed, relevance=law, weight_bound=1e4
        )
        assert np.array_equal(found.weights, again.weights)
        assert found.constraints == mixed.columns
        values.append(found.objective - whole.objective)
    assert values[0] == pytest.approx(0.0, abs=1e-5)  # all pairs are drawn
    assert min(values) >= -1e-5
    assert found.status is dp.Status.RELAXED
    assert "no bounds" in found.status.advice
    assert found.lower_bound.value <= dp.solve_exact(net, DISCOUNTED, tol=1e-6).upper


def test_mixtures_without_a_list_of_states():
    model = dp.load("four-queue", buffers=None)
    policy, basis = model.policy("lbfs"), primal.monomials(model, 2)
    cells = primal.boxes(model, [[(0, 0), (1, 3), (4, 1e6)]] * 4)
    for weights in (primal.Mixtures(500, 3), cells):
        found = primal.aggregated_alp(
            model,
            basis,
            DISCOUNTED,
            weights=weights,
            sample=policy,
            samples=2_000,
            weight_bound=1e5,
        )
        assert found.status is dp.Status.SAMPLED
        assert found.violation is None
        x = np.array([3, 0, 2, 1])
        assert found.policy()(x)[look_ahead(model, found.values, GAMMA, x)] == 1


# -- restarts --------------------------------------------------------------------------------------


def perturbed(model, c, gamma):
    """Numbers of states, rows of γP + (1−γ)1cᵀ and losses."""
    states, rows, losses = pairs(model)
    return states, gamma * rows + (1 - gamma) * c, losses


def optimal_average(states, rows, losses, tol=1e-11):
    """The optimal average cost and differential costs, by relative value iteration."""
    first, h = np.flatnonzero(np.diff(states, prepend=-1)), np.zeros(rows.shape[1])
    for _ in range(200_000):
        new = (
            np.minimum.reduceat(losses + rows @ h, first) + h
        ) / 2  # a lazy step, against periods
        step = new - h
        if np.ptp(step) < tol:
            return 2 * step.mean(), h
        h = new - new[0]
    raise AssertionError("no convergence")


def test_identity_gives_the_perturbed_optimum(small):
    c, basis = geometric_law(small), primal.indicators(small)
    found = primal.perturbed_alp(small, basis, gamma=STAY)
    states, rows, losses = perturbed(small, c, STAY)
    optimum, h = optimal_average(states, rows, losses)
    assert found.level == pytest.approx(optimum, abs=1e-6)
    assert found.objective == found.level
    values = found.values(all_states(small))
    assert values - values[0] == pytest.approx(h - h[0], abs=1e-4)
    assert found.gamma == STAY
    assert found.shift == 0
    policy = found.policy()
    chosen = (
        np.array([policy(x) for x in all_states(small)])[
            np.array([small.allowed(x) for x in all_states(small)])
        ]
        > 0
    )
    assert optimal_average(states[chosen], rows[chosen], losses[chosen])[0] == pytest.approx(
        optimum, abs=1e-6
    )
    assert found.lower_bound.value <= dp.solve_exact(small, tol=1e-6).upper


def test_perturbed_cost_is_near_the_true_one(small):
    c = geometric_law(small)
    true, h = optimal_average(*pairs(small))
    gaps = []
    for gamma in (0.5, 0.9, 0.99, 0.999):
        found = primal.perturbed_alp(small, primal.indicators(small), gamma=gamma)
        gaps.append(found.level - true)
        assert (
            -(1 - gamma) * (h.max() - c @ h) - 1e-6
            <= gaps[-1]
            <= (1 - gamma) * (c @ h - h.min()) + 1e-6
        )
    assert abs(gaps[-1]) <= abs(gaps[0]) + 1e-6


def test_perturbed_program_equals_the_dense_one(small):
    basis, c = some_basis(small), geometric_law(small)
    states, rows, losses = perturbed(small, c, STAY)
    psi = basis(all_states(small))
    wide = np.hstack([psi[states] - rows @ psi, np.ones((losses.size, 1))])
    same = dense(np.append(np.zeros(len(basis)), 1.0), wide, losses)
    optimum, _ = optimal_average(states, rows, losses)
    for way in ("all", "generated"):
        found = primal.perturbed_alp(small, basis, gamma=STAY, constraints=way)
        assert found.level == pytest.approx(-same.fun, abs=1e-5)
        assert found.status is dp.Status.SOLVED
        assert found.level <= optimum + 1e-6
    discounted = primal.alp(small, basis, dp.Discounted(STAY))  # it has a constant
    assert found.level == pytest.approx((1 - STAY) * discounted.objective, abs=1e-5)


def test_shaped_program_equals_the_dense_one(small):
    basis, c = primal.monomials(small, 1), geometric_law(small)
    states, rows, losses = perturbed(small, c, STAY)
    psi = basis(all_states(small))
    size = 1.0 + (all_states(small) - small.box.lower).sum(axis=1)
    shape = primal.functions(small, lambda x: 1.0 + (x - small.box.lower).sum(axis=1), "size")
    optimum, h = optimal_average(states, rows, losses)
    first = np.flatnonzero(np.diff(states, prepend=-1))
    costs = losses + rows @ h
    best = [
        int(a) + int(np.argmin(costs[a:b]))
        for a, b in zip(first, [*first[1:], costs.size], strict=True)
    ]
    chain = np.vstack([(rows[best] - np.eye(size.size)).T, np.ones(size.size)])
    # of ψ, under an optimal policy
    mean = np.linalg.lstsq(chain, np.append(np.zeros(size.size), 1.0))[0] @ size
    plain = primal.perturbed_alp(small, basis, gamma=STAY)
    wide = np.hstack([psi[states] - rows @ psi, -size[states][:, None], np.ones((losses.size, 1))])
    free = [(None, None)] * len(basis)
    for budget in (mean, 2 * mean, 1e3):
        same = dense(
            np.append(np.zeros(len(basis)), [-budget, 1.0]),
            wide,
            losses,
            [*free, (0, None), (None, None)],
        )
        for way in ("all", "generated"):
            found = primal.perturbed_alp(
                small, basis, gamma=STAY, shaping=shape, budget=budget, constraints=way
            )
            assert found.objective == pytest.approx(-same.fun, abs=1e-5)
            assert found.objective == pytest.approx(found.level - budget * found.shift, abs=1e-6)
            assert found.shift >= -1e-9
            assert found.status is dp.Status.SOLVED
            assert plain.level - 1e-5 <= found.objective <= optimum + 1e-5
    assert found.shift == pytest.approx(0.0, abs=1e-7)  # at a budget beyond any mean
    exactly = primal.perturbed_alp(
        small, primal.indicators(small), gamma=STAY, shaping=shape, budget=mean + 1e-6
    )
    assert exactly.objective == pytest.approx(optimum, abs=1e-5)


def test_shaping_that_binds(net):
    shape = primal.functions(net, lambda x: (x == 2).sum(axis=1), "full")
    basis, full = primal.monomials(net, 1), (all_states(net) == 2).sum(axis=1)
    states, rows, losses = perturbed(net, geometric_law(net), STAY)
    psi = basis(all_states(net))
    wide = np.hstack([psi[states] - rows @ psi, -full[states][:, None], np.ones((losses.size, 1))])
    same = dense(
        np.append(np.zeros(5), [-0.35, 1.0]),
        wide,
        losses,
        [*[(None, None)] * 5, (0, None), (None, None)],
    )
    for way in ("all", "generated"):
        found = primal.perturbed_alp(
            net, basis, gamma=STAY, shaping=shape, budget=0.35, constraints=way
        )
        assert found.objective == pytest.approx(-same.fun, abs=1e-6)
        assert found.shift > 0.1
        assert found.objective > primal.perturbed_alp(net, basis, gamma=STAY).objective + 1e-3


def test_restarts_without_a_list_of_states():
    model = dp.load("four-queue", buffers=None)
    found = primal.perturbed_alp(
        model,
        primal.monomials(model, 2),
        sample=model.policy("lbfs"),
        samples=2_000,
        weight_bound=1e5,
    )
    assert found.status is dp.Status.SAMPLED
    x = np.array([3, 0, 2, 1])
    assert found.policy()(x)[look_ahead(model, found.values, 0.99, x)] == 1


# -- what goes wrong -------------------------------------------------------------------------------


def mixed(model, weights, **options):
    return primal.aggregated_alp(
        model, primal.monomials(model, 2), DISCOUNTED, weights=weights, **options
    )


def restarted(model, **options):
    return primal.perturbed_alp(model, primal.monomials(model, 1), **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: mixed(m, -sp.eye_array(len(by_action(m)))), "one is negative"),
        (lambda m: mixed(m, primal.functions(m, lambda x: x[:, 0] - 1.0, "f")), "one is negative"),
        (lambda m: mixed(m, np.eye(5)), r"a row for each.*\(5, 5\)"),
        (lambda m: mixed(m, np.full((len(by_action(m)), 1), np.nan)), "finite"),
        (lambda m: mixed(m, np.zeros((len(by_action(m)), 2))), "all weights"),
        (lambda m: mixed(m, "boxes"), "a matrix over pairs"),
        (lambda m: mixed(m, primal.Mixtures(1, 3)), "do not bound"),
        (lambda m: mixed(m, np.ones((len(by_action(m)), 1))), "do not bound"),
        (lambda m: mixed(m, primal.Mixtures(0)), "at least 1"),
        (lambda m: mixed(m, primal.Mixtures(9), constraints="generated"), "not of generated"),
        (lambda m: mixed(m, np.ones((2, 2)), sample=primal.uniform(m)), "rows for all pairs"),
        (lambda m: mixed(dp.load("tandem"), primal.Mixtures(9)), "too many states"),
        (
            lambda m: primal.aggregated_alp(
                m, primal.constant(m), dp.Average(), weights=primal.Mixtures(9)
            ),
            "Discounted",
        ),
        (lambda m: restarted(m, gamma=1.0), "between 0 and 1"),
        (lambda m: restarted(m, shaping=primal.constant(m)), "positive budget"),
        (lambda m: restarted(m, budget=3.0), "one function"),
        (lambda m: restarted(m, shaping=primal.monomials(m, 1), budget=3.0), "one function"),
        (lambda m: restarted(m, shaping=primal.constant(m), budget=0.5), "do not bound"),
        (lambda m: restarted(m, sample=primal.weighted(m, m.start[None, :])), "no bound"),
    ],
)
def test_errors_in_one_sentence(net, call, words):
    with pytest.raises((dp.errors.InputError, dp.errors.MissingError), match=words) as error:
        call(net)
    assert "\n" not in str(error.value)
