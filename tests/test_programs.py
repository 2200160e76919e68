"""Linear programs, side constraints, occupancies: against closed forms, dense algebra and value
iteration.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import dualplan as dp
from bank import average_cost, chain, load, matrix, mm1k, mm1k_law, networks
from dualplan import policies
from dualplan._kernels import philox
from dualplan.exact import operators, programs

CRITERIA = [dp.Average(), dp.Discounted(0.9)]


def occupancy(model, policy, criterion):
    """ν_π or μ_π on all pairs x·A + a, by dense algebra."""
    transition, _ = chain(model, policy)
    n = len(transition)
    table = np.array([policy(model.box.state(i)) for i in range(n)])
    if isinstance(criterion, dp.Discounted):
        start = np.zeros(n)
        start[model.box.index(model.start)] = 1.0
        mu = np.linalg.solve(np.eye(n) - criterion.gamma * transition.T, start)
    else:
        system = np.vstack([transition.T - np.eye(n), np.ones(n)])
        mu = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)[0]
    return mu[:, None] * table


def policy_of(model, nu):
    mass = nu.sum(axis=1, keepdims=True)
    even = np.full_like(nu, 1 / nu.shape[1])
    return policies.TablePolicy(model, np.where(mass > 1e-13, nu / np.maximum(mass, 1e-300), even))


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(CRITERIA))
def test_puterman_an_occupancy_is_that_of_its_policy(seed, count, criterion):
    """thm:dual-lp-mdp (a): every feasible ν, here a mixture of occupancies, has ν_{π_ν} = ν.

    (b): αᵀJ = ℓᵀν.
    """
    rng = np.random.default_rng(seed)
    model = dp.load("garnet", states=9, actions=3, branching=9, seed=seed)  # all states communicate
    made_of = [policies.TablePolicy(model, rng.dirichlet(np.full(3, 0.4), 9)) for _ in range(count)]
    weights = rng.dirichlet(np.ones(count))
    nu = sum(w * occupancy(model, p, criterion) for w, p in zip(weights, made_of, strict=True))
    rows, losses = matrix(model)
    gamma = criterion.gamma if isinstance(criterion, dp.Discounted) else 1.0
    flow = nu.sum(axis=1) - gamma * rows.T @ nu.ravel()
    start = np.eye(9)[0] if gamma < 1 else np.zeros(9)
    assert np.abs(flow - start).max() < 1e-10  # feasible, as the theorem asks
    policy = policy_of(model, nu)
    result = dp.evaluate_exact(model, policy, criterion)
    again = np.zeros((9, 3))
    again[result.reached] = result.occupancy[:, None] * np.array(
        [policy(x) for x in result.reached[:, None]]
    )
    assert again == pytest.approx(nu, abs=1e-9)
    assert result.cost == pytest.approx(float((losses * nu).sum()), abs=1e-9)


@pytest.mark.parametrize("form", programs.PROGRAM_FORMS)
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(
    "model",
    [
        dp.load("four-queue", buffers=2),
        dp.load("four-queue", buffers=2, dynamics="bernoulli", full="lose"),
        load("admission"),
        dp.load("forest"),
        dp.load("garnet", states=40, branching=6),
    ],
    ids=lambda m: m.name,
)
def test_linear_programs_have_the_optimum_of_value_iteration(model, criterion, form):
    truth = dp.solve_exact(model, criterion, tol=1e-8)
    solution = dp.solve_lp(model, criterion, form=form)
    assert solution.status is dp.Status.SOLVED
    assert solution.upper - solution.lower < 1e-6
    assert solution.lower <= truth.upper
    assert solution.upper >= truth.lower - 1e-9
    pairs, u = solution.pairs, solution.occupancy
    gamma = criterion.gamma if isinstance(criterion, dp.Discounted) else 1.0
    flow = pairs.marginal(u) - gamma * (pairs.matrix.T @ u)
    assert u.min() > -1e-9
    assert u.sum() == pytest.approx(1.0 if gamma == 1 else 1 / (1 - gamma), abs=1e-6)
    assert np.abs(flow).sum() == pytest.approx(0.0 if gamma == 1 else 1.0, abs=1e-6)
    assert pairs.losses @ u == pytest.approx(truth.value, abs=1e-6)


def threshold_queue(arrival, limit):
    """M/M/1, unit service: the least mean number such that at most a fraction `limit` is turned
    away.

    Optimal is to admit below N, with probability p at N, never above (the occupancies are those of
    birth-and-death chains, and turning away at n saves the more the larger n is); the fraction
    turned away falls in N + p.
    """

    def law(level):
        n, p = int(level), level % 1
        weights = np.append(arrival ** np.arange(n + 1.0), p * arrival ** (n + 1.0))
        return weights / weights.sum(), p

    def rejected(level):
        weights, p = law(level)
        return weights[-2] * (1 - p) + weights[-1]

    level = brentq(lambda z: rejected(z) - limit, 0, 60, xtol=1e-13)
    weights, _ = law(level)
    return weights @ np.arange(weights.size), level


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("limit", [0.3, 0.07, 0.01])
def test_a_blocking_limit_in_closed_form(limit, whole, monkeypatch):
    if not whole:
        monkeypatch.setattr(programs, "MOST_WHOLE_PROGRAM_PAIRS", 0)
    model = load("admission", servers=1, room=60, arrivals=(0.8,), rejection=(0.0,))
    cost, level = threshold_queue(0.8, limit)
    solution = dp.solve_lp(model, limits=[dp.Limit("rejected fraction", limit)], tol=1e-6)
    assert solution.status is dp.Status.SOLVED
    assert solution.method == ("dual-lp" if whole else "decomposed-lp")
    assert solution.lower - 1e-6 <= cost <= solution.upper + 1e-6
    assert solution.limits[0].value == pytest.approx(limit, abs=1e-6)
    admits = np.array([solution.policy([n, 1])[1] for n in range(int(level) + 1)])
    assert admits[:-1] == pytest.approx(1.0, abs=1e-4)
    assert admits[-1] == pytest.approx(
        level % 1, abs=1e-3
    )  # randomised in one state, with the right probability


@pytest.mark.parametrize("whole", [True, False])
def test_a_limit_on_the_length_of_one_class(whole, monkeypatch):
    """The four-queue network: the limit binds, the price is the slope of the optimum, and dense
    algebra agrees.
    """
    if not whole:
        monkeypatch.setattr(programs, "MOST_WHOLE_PROGRAM_PAIRS", 0)
    net = dp.load("four-queue", buffers=2)
    free = dp.evaluate_exact(net, dp.solve_exact(net, tol=1e-8).policy).measures["length 1"]
    bound, h = free - 0.1, 1e-3
    low, solution, high = (
        dp.solve_lp(net, limits=[dp.Limit("length 1", bound + d)], tol=1e-7) for d in (-h, 0.0, h)
    )
    report = solution.limits[0]
    assert report.value == pytest.approx(bound, abs=1e-6)
    slope = [(low.value - solution.value) / h, (solution.value - high.value) / h]
    assert slope[1] - 1e-3 <= report.multiplier <= slope[0] + 1e-3
    assert average_cost(net, solution.policy) == pytest.approx(solution.value, abs=1e-6)
    nu = occupancy(net, solution.policy, dp.Average())
    lengths = np.array([net.box.state(i)[0] for i in range(net.box.count)])
    assert nu.sum(axis=1) @ lengths == pytest.approx(bound, abs=1e-6)
    by_function = dp.solve_lp(net, limits=[dp.Limit(lambda x, a: x[0], bound)], tol=1e-7)
    assert by_function.value == pytest.approx(solution.value, abs=1e-6)


def test_limits_under_the_discounted_criterion(monkeypatch):
    """The whole program and the decomposed one; the measure is a ratio of discounted sums."""
    net, criterion = dp.load("four-queue", buffers=2), dp.Discounted(0.95)
    free = dp.evaluate_exact(
        net, dp.solve_exact(net, criterion, tol=1e-8).policy, criterion
    ).measures["length 1"]
    limits = [dp.Limit("length 1", free - 0.005), dp.Limit("lost fraction", 0.2)]
    whole = dp.solve_lp(net, criterion, limits=limits, tol=1e-6)
    monkeypatch.setattr(programs, "MOST_WHOLE_PROGRAM_PAIRS", 0)
    parts = dp.solve_lp(net, criterion, limits=limits, tol=1e-6)
    assert parts.value == pytest.approx(whole.value, abs=2e-6)
    assert whole.limits[0].value == pytest.approx(free - 0.005, abs=1e-6)
    nu = occupancy(net, whole.policy, criterion)
    lengths = np.array([net.box.state(i)[0] for i in range(net.box.count)])
    assert nu.sum(axis=1) @ lengths / nu.sum() == pytest.approx(free - 0.005, abs=1e-6)


# -- several recurrent classes ---------------------------------------------------------------------


def random_multichain(rng):
    """States in random order: two or three closed pairs, absorbing states, others that lead
    anywhere.
    """
    n = int(rng.integers(4, 8))
    actions = 2
    rows = np.zeros((actions, n, n))
    closed = [[0, 1], [2], [n - 1]]
    for x in range(n):
        home = next((c for c in closed if x in c), None)
        for a in range(actions):
            if home is not None and (a == 0 or rng.random() < 0.5):
                targets = np.array(home)
            else:
                targets = rng.choice(n, size=int(rng.integers(1, 4)), replace=False)
            rows[a, x, targets] = rng.dirichlet(np.ones(targets.size))
    order = rng.permutation(n)
    rows = rows[:, order][:, :, order]
    losses = rng.normal(size=(n, actions))
    return dp.TabularModel(list(rows), losses, start=int(rng.integers(n))), rows, losses


def limiting_costs(chains, losses, start):
    """Expected average costs from the start of several chains, one after the other in the arrays.

    Powers of (I + P)/2 tend to the limiting matrix of P: same stationary laws and absorption, no
    periods.
    """
    limit = (np.eye(chains.shape[1]) + chains) / 2
    for _ in range(60):
        limit = limit @ limit
        limit /= limit.sum(axis=2, keepdims=True)
    return np.einsum("ky,ky->k", limit[:, start], losses)


def test_the_optimum_from_the_start_of_multichain_models_is_the_best_of_all_policies():
    """Against the enumeration of deterministic policies, and the policy found against its own
    limiting matrix.
    """
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(20):
        model, rows, losses = random_multichain(rng)
        n = len(losses)
        start = int(model.start[0])
        choices = np.array(list(itertools.product((0, 1), repeat=n)))
        every = np.arange(n)
        best = limiting_costs(rows[choices, every], losses[every, choices], start).min()
        found = dp.solve_lp(model)
        assert found.status is dp.Status.SOLVED
        assert found.lower - 1e-9 <= best <= found.upper + 1e-9
        table = np.array([found.policy([x]) for x in range(n)])
        chain = np.einsum("xa,axy->xy", table, rows)
        own = limiting_costs(chain[None], (table * losses).sum(axis=1)[None], start)[0]
        assert own == pytest.approx(best, abs=1e-6)
        several += bool(found.notes)
    assert several >= 2  # policies whose cost is an expectation, and the notes say so


def test_chance_decides_between_two_classes_and_the_note_says_so():
    """From state 0 a coin leads to 1 or 2, or a dearer action to 2 alone."""
    rows = [
        np.array([[0, 0.5, 0.5], [0, 1, 0], [0, 0, 1]]),
        np.array([[0, 0, 1], [0, 1, 0], [0, 0, 1]]),
    ]
    model = dp.TabularModel(rows, [[0.0, 0.0], [1.0, 1.0], [4.0, 4.0]])
    found = dp.solve_lp(model)
    assert found.lower <= 2.5 <= found.upper
    assert found.upper - found.lower < 1e-6
    assert found.method == "multichain-lp"
    assert "2 recurrent classes" in found.notes[0]
    assert found.to_json()["notes"] == list(found.notes)
    forced = dp.TabularModel([rows[1]], [0.0, 1.0, 4.0])
    assert dp.solve_lp(forced).value == pytest.approx(4.0)


def test_the_cheapest_class_does_not_count_if_the_start_cannot_reach_it():
    model = dp.TabularModel([np.eye(3), np.eye(3)[[1, 0, 2]]], [[5.0, 5.0], [3.0, 3.0], [0.0, 0.0]])
    assert dp.solve_lp(model).value == pytest.approx(3.0)


def one_state(*losses):
    """One state, and an action for each loss."""
    return dp.TabularModel([np.array([[1.0]])] * len(losses), [list(losses)])


def test_limits_of_any_size():
    """A measure of size 10⁻¹⁰ counts as much as one of size 1; so does a limit near 0."""
    small = dp.Limit(lambda x, a: 1e-10 * a, 5e-11)
    assert dp.solve_lp(one_state(1.0, 0.0), limits=[small]).value == pytest.approx(0.5, abs=1e-4)
    with pytest.raises(dp.errors.InputError, match="the nearest has 1e-09"):
        dp.solve_lp(one_state(1.0, 0.0), limits=[dp.Limit(lambda x, a: 1e-9 * (1 + a), 5e-10)])
    model = load("admission", servers=1, room=30, arrivals=(0.3,), rejection=(0.0,))
    strict = dp.solve_lp(model, limits=[dp.Limit("rejected fraction", 1e-9)])
    assert strict.status is dp.Status.SOLVED
    assert strict.limits[0].value <= 2e-6


def test_a_policy_that_breaks_a_limit_bounds_nothing():
    """State 1 would keep the limit but cannot be reached; the optimum from the start is 5."""
    model = dp.TabularModel([np.eye(2), np.eye(2)], [[0, 10], [0, 0]])
    solution = dp.solve_lp(model, limits=[dp.Limit(lambda x, a: float(x[0] == 0 and a == 0), 0.5)])
    assert solution.lower <= 5.0 <= solution.upper
    assert solution.status is dp.Status.WIDE


def test_the_nearest_of_a_ratio_is_the_least_ratio():
    ratio = dp.Limit(lambda x, a: [1.0, 10.0][a], 0.1, per=lambda x, a: [1.0, 20.0][a])
    with pytest.raises(dp.errors.InputError, match=r"the nearest has 0\.5\."):
        dp.solve_lp(one_state(0.0, 0.0), limits=[ratio])


def test_a_denominator_may_vanish_but_not_be_negative():
    empty = dp.Limit(lambda x, a: [1.0, 0.0][a], 0.1, per=lambda x, a: [1.0, 0.0][a])
    assert dp.solve_lp(one_state(1.0, 0.0), limits=[empty]).value == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(dp.errors.InputError, match=r"denominator .* negative"):
        dp.solve_lp(
            one_state(1.0, 0.0), limits=[dp.Limit(lambda x, a: 1.0, 0.1, per=lambda x, a: -1.0)]
        )


def test_large_programs_without_limits_are_decomposed_too(monkeypatch):
    monkeypatch.setattr(programs, "MOST_WHOLE_PROGRAM_PAIRS", 0)
    net = dp.load("four-queue", buffers=2)
    assert dp.solve_lp(net).value == pytest.approx(dp.solve_exact(net, tol=1e-7).value, abs=1e-4)


def test_infeasible_limits_on_several_classes():
    model = dp.TabularModel([np.eye(2)], [0, 0])
    with pytest.raises(dp.errors.InputError):
        dp.solve_lp(model, limits=[dp.Limit(lambda x, a: 1.0 + x[0], 0.5)])


@pytest.mark.parametrize("whole", [True, False])
def test_infeasible_limits_are_named(whole, monkeypatch):
    if not whole:
        monkeypatch.setattr(programs, "MOST_WHOLE_PROGRAM_PAIRS", 0)
    model = load("admission", servers=1, room=6, arrivals=(0.8,), rejection=(0.0,))
    least = mm1k_law(0.8, 1.0, 6)[-1]  # admit everybody
    with pytest.raises(
        dp.errors.InputError, match=rf"limit rejected fraction <= 0.01; the nearest has {least:.4f}"
    ):
        dp.solve_lp(
            model, limits=[dp.Limit("mean in system", 5.0), dp.Limit("rejected fraction", 0.01)]
        )
    with pytest.raises(
        dp.errors.InputError,
        match=r"all of these limits together: mean in system <= 0.5, rejected fraction",
    ):
        dp.solve_lp(
            model, limits=[dp.Limit("mean in system", 0.5), dp.Limit("rejected fraction", 0.2)]
        )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: dp.solve_lp(m, tol=-1.0), "tol must be a positive number"),
        (lambda m: dp.solve_lp(m, form="both"), "unknown form of the linear program 'both'"),
        (lambda m: dp.solve_lp(m, limits=[dp.Limit("lenght 1", 1.0)]), "did you mean 'length 1'"),
        (lambda m: dp.Limit("length 1", float("nan")), "must be a finite number"),
        (lambda m: dp.Limit("length 1", 1.0, per=lambda x, a: 1.0), "has its own denominator"),
        (
            lambda m: dp.solve_lp(m, limits=[dp.Limit(lambda x, a: float("inf"), 1.0)]),
            "no finite number",
        ),
        (lambda m: dp.Limit.parse("length 1 < 3"), "reads 'MEASURE <= NUMBER'"),
        (lambda m: dp.Limit.parse("length 1 <= three"), "must be a number, got 'three'"),
    ],
)
def test_mistakes(call, words):
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        call(dp.load("four-queue", buffers=2))
    assert "\n" not in str(caught.value)


def test_a_table_that_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(operators, "_memory", lambda: 2**20)
    with pytest.raises(
        dp.errors.MissingError,
        match=r"up to 5,184 pairs .* about 0.0 GiB of 0.0 GiB; use value iteration",
    ):
        dp.solve_lp(dp.load("four-queue", buffers=5))


def test_measures_of_a_queue_in_closed_form():
    law, net = mm1k_law(), mm1k()
    measures = dp.evaluate_exact(net, net.policy("longer")).measures
    assert measures["lost fraction"] == pytest.approx(law[-1], abs=1e-12)
    assert measures["throughput 1"] == pytest.approx(0.8 * (1 - law[-1]), abs=1e-12)
    assert measures["loss rate 1"] == pytest.approx(0.8 * law[-1], abs=1e-12)
    assert measures["utilisation S"] == pytest.approx(1 - law[0], abs=1e-12)
    assert measures["length 1"] == pytest.approx(law @ np.arange(6), abs=1e-12)


@settings(max_examples=15)
@given(networks(max_classes=3), st.integers(0, 10**6))
def test_expected_counts_are_the_mean_of_what_steps_count(net, seed):
    """A pair's expected counters against 4,000 draws of the step.

    |z| <= 6 in each counter (p < 1e-8 each).
    """
    rng = np.random.default_rng(seed)
    code = net.code
    x = rng.integers(net.box.lower, net.box.upper + 1)
    may = np.flatnonzero(net.allowed(x))
    if net.nonpreemptive or may.size == 0:
        x, may = net.start, np.flatnonzero(net.allowed(net.start))  # states that are consistent
    a, draws = int(rng.choice(may)), 4_000
    expected, sums, squares = np.zeros(len(code.counters)), 0.0, 0.0
    code.counts(code.ints, code.floats, x, a, expected)
    out = x.copy()
    for k in range(draws):
        counts = np.zeros(expected.size)
        code.step(code.ints, code.floats, x, a, philox.generator(seed + k, 1, 0), out, counts)
        sums, squares = sums + counts, squares + counts**2
    error = np.sqrt(np.maximum(squares / draws - (sums / draws) ** 2, 0.25 / draws) / draws)
    assert (np.abs(sums / draws - expected) <= 6 * error + 1e-12).all()
