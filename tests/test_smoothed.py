"""Programs on values that allow violations, against exact answers and the same programs written out
densely.
"""

import numpy as np
import pytest
import scipy.optimize

import dualplan as dp
from bank import matrix
from dualplan import primal
from test_primal import look_ahead

GAMMA = 0.9
DISCOUNTED = dp.Discounted(GAMMA)
SMALL = {
    "four-queue": lambda: dp.load("four-queue", buffers=2),
    "garnet": lambda: dp.load("garnet", states=40, actions=3, seed=3),
}


@pytest.fixture(scope="module", params=SMALL)
def small(request):
    return SMALL[request.param]()


@pytest.fixture(scope="module")
def basis(small):
    return primal.monomials(small, 2)


def all_states(model):
    return model.box.states(np.arange(model.box.count))


def geometric(model, ratio):
    c = ratio ** (all_states(model) - model.box.lower).sum(axis=1).astype(float)
    return c / c.sum()


def pairs(model):
    """Numbers of states, rows of P and losses of all allowed pairs, from single questions."""
    rows, losses = matrix(model)
    may = np.array([model.allowed(x) for x in all_states(model)]).ravel()
    states = np.repeat(np.arange(model.box.count), len(model.actions))[may]
    return states, rows[may], losses.ravel()[may]


def dense(model, basis, prices, groups, budget=None):
    """The soft program with violations as unknowns of their own; `groups` has one for each pair."""
    states, rows, losses = pairs(model)
    psi, c = basis(all_states(model)), geometric(model, 0.9)
    allowed = np.zeros((losses.size, prices.size))
    allowed[np.arange(losses.size), groups] = -1.0
    wide = np.hstack([psi[states] - GAMMA * rows @ psi, allowed])
    costs, right = np.append(-(c @ psi), prices), losses
    if budget is not None:
        costs = np.append(-(c @ psi), np.zeros(prices.size))
        wide, right = (
            np.vstack([wide, np.append(np.zeros(len(basis)), prices)]),
            np.append(right, budget),
        )
    bounds = [(None, None)] * len(basis) + [(0, None)] * prices.size
    done = scipy.optimize.linprog(costs, wide, right, bounds=bounds)
    assert done.status in (0, 3)
    return np.inf if done.status == 3 else -done.fun


def optimal_values(model):
    states, rows, losses = pairs(model)
    values, first = np.zeros(model.box.count), np.flatnonzero(np.diff(states, prepend=-1))
    for _ in range(int(np.log(1e-13) / np.log(GAMMA))):
        values = np.minimum.reduceat(losses + GAMMA * rows @ values, first)
    return values


def test_identity_gives_the_optimum(small):
    """The law that has π >= (1−γ)c everywhere makes 2/(1−γ)·π large enough for the multipliers of
    the optimum.
    """
    identity, law, values = primal.indicators(small), primal.uniform(small), optimal_values(small)
    best = dp.solve_exact(small, DISCOUNTED, tol=1e-8).policy
    starts = all_states(small)
    from_c = dp.Discounted(GAMMA, start=[(tuple(x), 1 / len(starts)) for x in starts.tolist()])
    run = dp.evaluate_exact(small, best, from_c)
    visits = primal.weighted(small, small.box.states(run.reached), run.occupancy)
    for solution in (
        primal.smoothed_alp(small, identity, DISCOUNTED, relevance=law, weights=visits),
        primal.smoothed_alp(small, identity, DISCOUNTED, relevance=law, budget=0.0),
        primal.relaxed_alp(small, identity, DISCOUNTED, relevance=law, weights=visits),
    ):
        assert solution.status is dp.Status.SOLVED
        assert solution.objective == pytest.approx(values.mean(), abs=1e-5)
        assert solution.weights == pytest.approx(values, abs=1e-4)


def test_programs_equal_the_dense_ones(small, basis):
    states, _, losses = pairs(small)
    pi, law = geometric(small, 0.95), primal.geometric(small, 0.95)
    for penalty in (None, 30.0, 200.0):
        price = penalty or 2 / (1 - GAMMA)
        smooth = primal.smoothed_alp(small, basis, DISCOUNTED, weights=law, penalty=penalty)
        assert smooth.objective == pytest.approx(dense(small, basis, price * pi, states), abs=1e-5)
        relaxed = primal.relaxed_alp(small, basis, DISCOUNTED, weights=law, penalty=penalty)
        each = np.arange(losses.size)
        assert relaxed.objective == pytest.approx(
            dense(small, basis, price * pi[states], each), abs=1e-5
        )
        assert smooth.objective >= relaxed.objective - 1e-6
    for budget in (0.0, 1e-3, 0.05, 2.0):
        smooth = primal.smoothed_alp(small, basis, DISCOUNTED, weights=law, budget=budget)
        assert smooth.objective == pytest.approx(dense(small, basis, pi, states, budget), abs=1e-5)
        assert smooth.slacks.mean <= budget + 1e-6


def test_cheap_violations_are_unbounded(small, basis):
    """A constant asks for a penalty of at least 1/(1−γ).

    Weights far from those of the objective for more.
    """
    states = pairs(small)[0]
    for penalty, ratio in ((9.9, 0.9), (20.0, 0.5)):
        assert dense(small, basis, penalty * geometric(small, ratio), states) == np.inf
        with pytest.raises(dp.errors.InputError, match="too cheap"):
            primal.smoothed_alp(
                small, basis, DISCOUNTED, weights=primal.geometric(small, ratio), penalty=penalty
            )


def test_slacks_are_the_violations(small, basis):
    states, rows, losses = pairs(small)
    psi = basis(all_states(small))
    smooth = primal.smoothed_alp(small, basis, DISCOUNTED, budget=0.1)
    relaxed = primal.relaxed_alp(small, basis, DISCOUNTED, penalty=12.0)
    over = np.maximum((psi[states] - GAMMA * rows @ psi) @ smooth.weights - losses, 0)
    largest = np.maximum.reduceat(over, np.flatnonzero(np.diff(states, prepend=-1)))
    assert smooth.slacks.values == pytest.approx(largest, abs=1e-9)
    assert smooth.violation == pytest.approx(largest.max(), abs=1e-9)
    assert smooth.to_json()["slack"] == pytest.approx(geometric(small, 0.9) @ largest)
    over = np.maximum((psi[states] - GAMMA * rows @ psi) @ relaxed.weights - losses, 0)
    assert relaxed.slacks.values == pytest.approx(np.bincount(states, over), abs=1e-9)
    assert relaxed.violation == pytest.approx(over.max(), abs=1e-9)
    optimum = dp.solve_exact(small, DISCOUNTED, tol=1e-6)
    for solution in (smooth, relaxed):
        assert solution.lower_bound.value <= optimum.upper  # proved, whatever the program did


def test_no_violations_give_the_program_without(small, basis):
    hard = primal.alp(small, basis, DISCOUNTED, constraints="all")
    for solution in (
        primal.smoothed_alp(small, basis, DISCOUNTED, weights=primal.uniform(small), penalty=1e4),
        primal.relaxed_alp(small, basis, DISCOUNTED, weights=primal.uniform(small), penalty=1e4),
        primal.smoothed_alp(small, basis, DISCOUNTED, budget=0.0),
    ):
        assert solution.objective == pytest.approx(hard.objective, abs=1e-5)
        assert solution.violation <= 1e-5
    last = hard.objective
    for budget in (1e-3, 1e-2, 1e-1):
        value = primal.smoothed_alp(small, basis, DISCOUNTED, budget=budget).objective
        assert value >= last - 1e-6
        last = value
    for soft in (primal.smoothed_alp, primal.relaxed_alp):
        assert soft(small, basis, DISCOUNTED).objective >= hard.objective - 1e-6


def test_published_error_bounds(small):
    """‖J* − Ψw‖_{1,c} against min_r ‖J* − Ψr‖_∞, with π the exact occupancy of an optimal policy
    from c.
    """
    values, states = optimal_values(small), all_states(small)
    number, rows, losses = pairs(small)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    costs = losses + GAMMA * rows @ values
    best = [
        a + int(np.argmin(costs[a:b]))
        for a, b in zip(first, [*first[1:], losses.size], strict=True)
    ]
    c = geometric(small, 0.9)
    pi = (1 - GAMMA) * np.linalg.solve((np.eye(len(states)) - GAMMA * rows[best]).T, c)
    law, actions = primal.weighted(small, states, pi), len(small.actions)
    for degree in (0, 1, 2):
        basis = primal.monomials(small, degree)
        psi, ones = basis(states), np.ones((len(states), 1))
        nearest = scipy.optimize.linprog(
            np.append(np.zeros(len(basis)), 1.0),
            np.vstack([np.hstack([psi, -ones]), np.hstack([-psi, -ones])]),
            np.append(values, -values),
            bounds=[(None, None)] * len(basis) + [(0, None)],
        ).fun
        for soft, factor in (
            (primal.smoothed_alp, (3 + GAMMA) / (1 - GAMMA)),
            (primal.relaxed_alp, 1 + 2 * actions * (1 + GAMMA) / (1 - GAMMA)),
        ):
            solution = soft(small, basis, DISCOUNTED, weights=law)
            error = c @ np.abs(values - psi @ solution.weights)
            assert error <= c @ values - solution.objective + 1e-5
            assert error <= factor * nearest + 1e-5
        for steps in (2, 3):
            solution = primal.expanded_alp(small, basis, DISCOUNTED, steps=steps)
            error = c @ np.abs(values - psi @ solution.weights)
            assert error <= 2 / (1 - GAMMA**steps) * nearest + 1e-5


def dense_expanded(model, basis, steps):
    """max cᵀΨw with Ψw <= Tz₁, z₁ <= Tz₂, …, z_(t−1) <= TΨw: the largest z are Tᵗ⁻¹Ψw, …, TΨw."""
    number, rows, losses = pairs(model)
    psi, n, k = basis(all_states(model)), model.box.count, len(basis)
    kinds = [psi, *[np.eye(n)] * (steps - 1)]
    wide = np.zeros((steps, losses.size, k + n * (steps - 1)))
    columns = [slice(0, k), *(slice(k + n * i, k + n * (i + 1)) for i in range(steps - 1))]
    for i in range(steps):
        j = (i + 1) % steps
        wide[i][:, columns[i]] += kinds[i][number]
        wide[i][:, columns[j]] -= GAMMA * rows @ kinds[j]
    costs = np.append(-(geometric(model, 0.9) @ psi), np.zeros(n * (steps - 1)))
    done = scipy.optimize.linprog(
        costs, wide.reshape(-1, costs.size), np.tile(losses, steps), bounds=(None, None)
    )
    assert done.status == 0
    return -done.fun


def test_expanded_constraints(small, basis):
    values, psi, c = optimal_values(small), basis(all_states(small)), geometric(small, 0.9)
    hard, last = primal.alp(small, basis, DISCOUNTED).objective, -np.inf
    for steps in (1, 2, 3, 8):
        solution = primal.expanded_alp(small, basis, DISCOUNTED, steps=steps)
        assert solution.status is dp.Status.SOLVED
        assert (psi @ solution.weights <= values + 1e-4).all()
        if steps == 1:
            assert solution.objective == pytest.approx(hard, abs=1e-5)
        elif steps < 4:
            assert solution.objective == pytest.approx(
                dense_expanded(small, basis, steps), abs=1e-5
            )
        assert solution.objective >= hard - 1e-5
        last = max(last, solution.objective)
    assert hard < last <= c @ values + 1e-5
    exact = primal.expanded_alp(small, primal.indicators(small), DISCOUNTED, steps=3)
    assert exact.objective == pytest.approx(c @ values, abs=1e-5)
    assert exact.weights == pytest.approx(values, abs=1e-3)
    early = primal.expanded_alp(small, basis, DISCOUNTED, rounds=1)
    assert early.status is dp.Status.VIOLATED
    with pytest.raises(dp.errors.InputError, match="stopped early"):
        early.policy()


def test_sampled_states(small, basis):
    law = primal.uniform(small)
    for soft in (primal.smoothed_alp, primal.relaxed_alp):
        solution = soft(small, basis, DISCOUNTED, sample=law, samples=20_000)
        assert solution.status is dp.Status.SAMPLED
        assert solution.violation is None
        assert solution.slacks.weights.sum() == pytest.approx(1.0)
        whole = soft(small, basis, DISCOUNTED, weights=law)
        assert solution.objective == pytest.approx(whole.objective, rel=0.05)
    drawn = primal.smoothed_alp(small, basis, DISCOUNTED, sample=law, samples=20_000, budget=0.01)
    assert drawn.slacks.mean <= 0.01 + 1e-6
    bounded = primal.smoothed_alp(
        small, basis, DISCOUNTED, sample=law, samples=3, weight_bound=50.0
    )
    assert np.abs(bounded.weights).max() <= 50.0 + 1e-6


def test_unbounded_models_are_sampled():
    model = dp.load("four-queue", buffers=None)
    lbfs, quadratic = model.policy("lbfs"), primal.monomials(model, 2)
    solution = primal.smoothed_alp(
        model,
        quadratic,
        dp.Discounted(0.95),
        relevance=lbfs,
        sample=lbfs,
        samples=1_000,
        weight_bound=1e5,
    )
    x = np.array([3, 0, 2, 1])
    assert solution.policy()(x)[look_ahead(model, solution.values, 0.95, x)] == 1
    with pytest.raises(dp.errors.MissingError, match="too many pairs"):
        primal.smoothed_alp(model, quadratic, dp.Discounted(0.95))


def test_masses(small):
    states = all_states(small)
    law = primal.geometric(small, 0.8)
    assert law.masses(states) == pytest.approx(geometric(small, 0.8))
    listed = primal.weighted(small, np.vstack([states[:3], states[:1]]), [1.0, 2.0, 3.0, 4.0])
    assert listed.masses(states[:5]) == pytest.approx([0.5, 0.2, 0.3, 0.0, 0.0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, b: primal.smoothed_alp(m, b, DISCOUNTED, penalty=1.0, budget=1.0), "not both"),
        (lambda m, b: primal.smoothed_alp(m, b, DISCOUNTED, penalty=-1.0), "penalty must be"),
        (lambda m, b: primal.smoothed_alp(m, b, DISCOUNTED, budget=-1.0), "budget must be"),
        (lambda m, b: primal.relaxed_alp(m, b, DISCOUNTED, penalty=0), "penalty must be"),
        (lambda m, b: primal.smoothed_alp(m, b, dp.Average()), "is for the discounted criterion"),
        (lambda m, b: primal.relaxed_alp(m, b, dp.Average()), "is for the discounted criterion"),
        (lambda m, b: primal.expanded_alp(m, b, dp.Average()), "is for the discounted criterion"),
        (lambda m, b: primal.expanded_alp(m, b, DISCOUNTED, steps=0), "steps must be"),
        (lambda m, b: primal.expanded_alp(m, b, DISCOUNTED, constraints="all"), "are generated"),
        (lambda m, b: primal.smoothed_alp(m, b, DISCOUNTED, penalty=5.0), "too cheap"),
        (
            lambda m, b: primal.relaxed_alp(m, b, DISCOUNTED, constraints="generated"),
            "listed constraints",
        ),
        (
            lambda m, b: primal.smoothed_alp(
                m, b, DISCOUNTED, weights=primal.uniform(m), sample=primal.uniform(m)
            ),
            "leave weights= out",
        ),
        (
            lambda m, b: primal.smoothed_alp(
                m, b, DISCOUNTED, sample=primal.weighted(m, m.start[None, :]), samples=3, budget=1.0
            ),
            "do not bound",
        ),
    ],
)
def test_errors_in_one_sentence(small, basis, call, words):
    with pytest.raises(dp.errors.InputError, match=words) as error:
        call(small, basis)
    assert "\n" not in str(error.value)
