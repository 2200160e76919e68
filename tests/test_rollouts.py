"""Coupled rollouts against exact values: differences, fits, and what their greedy policies cost."""

import numpy as np
import pytest

import dualplan as dp
from bank import load
from dualplan.policies.tables import FunctionPolicy
from dualplan.primal import LinearValues, constant, indicators, monomials
from dualplan.search.rollouts import (
    coupled_differences,
    fit_values,
    rollout_sample,
    rollout_step,
    rollout_values,
)
from dualplan.search.rollouts.alternatives import alternatives, working
from dualplan.search.rollouts.fit import _regression
from dualplan.search.rollouts.step import _between

AVERAGE, DISCOUNTED = dp.Average(), dp.Discounted(0.95)


@pytest.fixture(scope="module")
def small():
    return dp.load("four-queue", buffers=3)


def exact_values(model, policy, criterion=AVERAGE):
    return dp.evaluate_exact(model, policy, criterion, everywhere=True).values


def random_pairs(model, count, seed=0):
    rng = np.random.default_rng(seed)
    states = model.box.states(rng.integers(model.box.count, size=2 * count))
    return states[:count], states[count:]


def numbers(model, states):
    return (states - model.box.lower) @ model.box.strides


# -- differences -----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [AVERAGE, DISCOUNTED])
@pytest.mark.parametrize(
    ("instance", "options", "heuristic"),
    [
        ("four-queue", {"buffers": 3}, "lbfs"),
        ("four-queue", {"buffers": 3}, "random"),
        ("four-queue", {"buffers": 2, "decisions": "per-server"}, "max-weight"),
        ("four-queue", {"buffers": 2, "discipline": "nonpreemptive"}, "lbfs"),
        ("admission", {}, None),
    ],
)
def test_differences_are_those_of_the_exact_values(instance, options, heuristic, criterion):
    model = load(instance, **options)
    policy = model.policy(heuristic or next(iter(model.policies)))
    exact = dp.evaluate_exact(model, policy, criterion)
    first, second = np.random.default_rng(0).integers(exact.reached.size, size=(2, 30))
    states = model.box.states(exact.reached)
    found = coupled_differences(
        model,
        policy,
        states[first],
        states[second],
        criterion,
        repetitions=400,
        horizon=20_000,
        seed=1,
    )
    truth = exact.values[first] - exact.values[second]
    if criterion is AVERAGE:
        assert (found.met == 1).all()
    scores = (found.means - truth) / np.maximum(found.errors, 1e-9)
    # 30 scores, p < 1e-3 for the sum of their squares if errors are as stated; single ones stay
    # below 5
    assert np.sum(scores**2) < 65
    assert np.abs(scores).max() < 5


def test_a_control_variate_leaves_means_and_cuts_errors(small):
    policy = small.policy("lbfs")
    h = exact_values(small, policy)
    first, second = random_pairs(small, 20)
    truth = h[numbers(small, first)] - h[numbers(small, second)]
    plain = coupled_differences(small, policy, first, second, repetitions=50, seed=3)
    rough = LinearValues(
        monomials(small, 2),
        np.linalg.lstsq(monomials(small, 2)(small.box.states(np.arange(h.size))), h, rcond=None)[0],
    )
    better = coupled_differences(
        small, policy, first, second, repetitions=50, control=rough, seed=3
    )
    assert np.sum(((better.means - truth) / better.errors) ** 2) < 50  # 20 scores, p < 1e-3
    assert better.errors.mean() < 0.9 * plain.errors.mean()
    exact = LinearValues(indicators(small), h)
    perfect = coupled_differences(
        small, policy, first, second, repetitions=2, control=exact, horizon=5_000, seed=3
    )
    assert perfect.means == pytest.approx(truth, abs=1e-6 * np.abs(h).max())


def test_one_step_of_a_horizon_is_the_difference_of_losses(small):
    first, second = random_pairs(small, 10)
    found = coupled_differences(
        small, small.policy("lbfs"), first, second, repetitions=1, horizon=1
    )
    assert found.means == pytest.approx(first.sum(axis=1) - second.sum(axis=1))
    assert np.isnan(found.errors).all()


def test_differences_are_antisymmetric_and_vanish_for_equal_states(small):
    policy, (first, second) = small.policy("longer"), random_pairs(small, 20)
    one = coupled_differences(small, policy, first, second, repetitions=3, seed=4)
    other = coupled_differences(small, policy, second, first, repetitions=3, seed=4)
    same = coupled_differences(small, policy, first, first, repetitions=3, seed=4)
    assert (one.means == -other.means).all()
    assert (one.met == other.met).all()
    assert (same.means == 0).all()
    assert (same.met == 1).all()
    assert same.steps == 0


def test_threads_change_nothing(small):
    policy, (first, second) = small.policy("random"), random_pairs(small, 50)
    one, two = (
        coupled_differences(small, policy, first, second, repetitions=2, seed=5, threads=k)
        for k in (1, 2)
    )
    assert (one.means == two.means).all()
    assert one.steps == two.steps


def test_a_policy_in_python_gives_the_same_numbers(small):
    compiled, (first, second) = small.policy("random"), random_pairs(small, 4)
    python = FunctionPolicy(
        small, lambda x: compiled.probabilities(x.copy()), name="python"
    )  # Numba cannot compile it
    for criterion in (AVERAGE, DISCOUNTED):
        fast, slow = (
            coupled_differences(
                small, p, first, second, criterion, repetitions=2, horizon=60, seed=6
            )
            for p in (compiled, python)
        )
        assert slow.means == pytest.approx(fast.means, rel=1e-12)
        assert (slow.met == fast.met).all()
        assert slow.steps == fast.steps


def test_copies_with_decisions_per_server_see_the_same_events():
    model = dp.load("six-class", decisions="per-server")
    states = np.array([[1, 2, 0, 3, 1, 0, 1], [4, 0, 2, 1, 1, 5, 2]])
    more = states + np.array([1, 0, 0, 0, 0, 0, 0])
    joint = dp.load("six-class")
    found = coupled_differences(
        model, model.policy("lbfs"), more, states, repetitions=200, horizon=50_000, seed=7
    )
    other = coupled_differences(
        joint,
        joint.policy("lbfs"),
        more[:, :-1],
        states[:, :-1],
        repetitions=200,
        horizon=50_000,
        seed=8,
    )
    assert found.met.mean() > 0.99
    assert found.steps < 1.5 * other.steps  # a broken coupling takes several times as long


# -- alternatives and fits -------------------------------------------------------------------------


@pytest.mark.parametrize("decisions", ["joint", "per-server"])
def test_alternatives_are_the_differences_of_q(decisions):
    model = dp.load("four-queue", buffers=2, decisions=decisions)
    policy = model.policy("lbfs")
    h = exact_values(model, policy)
    # the alternatives stand for one event, so take values that do not depend on it
    if decisions == "per-server":
        h = h.reshape(-1, model.event_law.size).mean(axis=1).repeat(model.event_law.size)
    states = model.box.states(np.arange(model.box.count))
    found = alternatives(model, policy, states)
    assert 0 < len(found) <= len(states)
    for own in found:
        values = h[numbers(model, own.outcomes)]
        fitted = own.qualities(values - values[0], 1.0)
        for a, q in zip(own.actions[1:], fitted[1:], strict=True):
            truth = _quality(model, own.state, a, h) - _quality(model, own.state, own.actions[0], h)
            assert q - fitted[0] == pytest.approx(truth, abs=1e-9 * np.abs(h).max())


def _quality(model, x, a, h):
    after, chances = (lambda law: (law.states, law.probabilities))(model.forward(x, a))
    return model.loss(x, a) + chances @ h[numbers(model, after)]


def test_servers_work_if_somebody_waits(small):
    states = small.box.states(np.arange(small.box.count))
    for own in alternatives(small, small.policy("lbfs"), states, within=working(small)):
        served = [small.actions[a].split("+") for a in own.actions]
        for classes in served:
            for c in classes:
                mates = [
                    k
                    for k, q in enumerate(small.classes)
                    if q.server == small.classes[int(c) - 1].server
                ]
                assert own.state[int(c) - 1] > 0 or not own.state[mates].any()


def test_a_fit_of_exact_differences_is_the_bias(small):
    """With the exact bias as control variate totals have no noise, so the fit of all functions
    finds it again.
    """
    policy = small.policy("lbfs")
    h = exact_values(small, policy)
    control = LinearValues(indicators(small), h)
    sample = rollout_sample(small, policy, states=500, horizon=3_000, control=control, seed=1)
    outcomes = np.concatenate([a.outcomes for a in sample.alternatives])
    truth = h[numbers(small, outcomes)]
    weights = _regression(sample, indicators(small)).solve(1e-10)
    fitted = LinearValues(indicators(small), weights)(outcomes)
    assert fitted - fitted[sample.bases] == pytest.approx(
        truth - truth[sample.bases], abs=1e-4 * np.abs(truth).max()
    )
    fit = fit_values(
        sample, monomials(small, 2)
    )  # a smaller basis, checked at states that it has not seen
    assert 0.8 < fit.r_squared < 1
    assert fit.agreement > 0.8


def test_a_bias_in_the_span_is_recovered():
    """Two classes at one server, the first with priority: the bias is quadratic.

    With W = Σ x_i/μ_i and ρ = Σ λ_i/μ_i the generator takes W² + Σ x_i/μ_i² to −2(1 − ρ)W + a
    constant, and x_1² + x_1 to −2(μ_1 − λ_1)x_1 + a constant. The cost is x_1 + x_2 = (1
    − μ_2/μ_1)x_1 + μ_2 W; a step is 1/Λ long.
    """
    lam, mu = np.array([0.4, 0.3]), np.array([2.0, 1.0])
    model = dp.QueueingNetwork(
        [dp.QueueClass(str(i + 1), "S", mu[i], lam[i]) for i in range(2)],
        time="continuous",
        name="priority",
    )
    fit = rollout_values(
        model, model.policy("c-mu"), monomials(model, 2), states=4_000, horizon=20_000, seed=2
    )
    assert fit.met == 1.0
    x = np.array([[0, 0], [1, 0], [0, 1], [2, 1], [1, 3], [3, 3]])
    work = x @ (1 / mu)
    own = (x[:, 0] ** 2 + x[:, 0]) / (2 * (mu[0] - lam[0]))
    all_work = (work**2 + x @ (1 / mu**2)) / (2 * (1 - lam @ (1 / mu)))
    truth = (lam.sum() + mu.max()) * ((1 - mu[1] / mu[0]) * own + mu[1] * all_work)
    assert fit.values(x)[1:] - fit.values(x)[0] == pytest.approx(truth[1:], rel=0.15)


def test_the_greedy_policy_of_a_fit_costs_less(small):
    lbfs = small.policy("lbfs")
    start = dp.evaluate_exact(small, lbfs).cost
    best = dp.solve_exact(small).value
    candidates = rollout_step(small, lbfs, steps=300_000, horizon=500, seed=1)
    costs = [dp.evaluate_exact(small, policy).cost for policy in candidates]
    assert min(costs) < start - 0.2 * (start - best)
    assert all(dp.primal.GreedyPolicy is type(policy) for policy in candidates)


def test_half_way_between_two_values(small):
    rng = np.random.default_rng(0)
    one, two = (
        LinearValues(basis, rng.random(len(basis)))
        for basis in (monomials(small, 2), indicators(small))
    )
    states = small.box.states(np.arange(small.box.count))
    assert _between(one, two)(states) == pytest.approx((one(states) + two(states)) / 2)
    user = LinearValues(dp.primal.functions(small, lambda s: s.sum(axis=1)), np.array([3.0]))
    assert _between(user, one)(states) == pytest.approx((user(states) + one(states)) / 2)


def test_greedy_within_a_policy_is_saved_and_stays_within(small, tmp_path):
    values = LinearValues(
        monomials(small, 1), np.array([0.0, 1.0, 1.0, -3.0, 1.0])
    )  # class 2 seems to gain by waiting
    free = dp.primal.GreedyPolicy(small, values)
    kept = dp.primal.GreedyPolicy(small, values, within=small.policy("random"))
    x = np.array([0, 0, 2, 1])
    assert small.actions[int(free(x).argmax())].split("+")[1] == "2"  # idles, as class 2 is empty
    assert small.actions[int(kept(x).argmax())] == "4+3"
    assert free.digest != kept.digest
    dp.save_policy(kept, tmp_path / "kept.npz")
    assert dp.load_policy(tmp_path / "kept.npz", small).digest == kept.digest
    python = dp.primal.GreedyPolicy(small, lambda s: values(s), within=small.policy("random"))
    for state in small.box.states(np.arange(small.box.count)):
        assert (python(state) == kept(state)).all()


def test_the_same_seed_gives_the_same_fit(small):
    one, two = (
        rollout_values(
            small,
            small.policy("lbfs"),
            None,
            DISCOUNTED,
            states=100,
            horizon=200,
            seed=9,
            threads=k,
        )
        for k in (1, 2)
    )
    assert (one.values.weights == two.values.weights).all()
    assert one.policy().digest == two.policy().digest
    assert one.policy().gamma == 0.95


# -- errors ----------------------------------------------------------------------------------------


def test_errors(small):
    policy, x = small.policy("lbfs"), [[0, 0, 0, 0]]
    other = dp.load("four-queue", buffers=2)
    with pytest.raises(dp.errors.InputError, match="as many second states"):
        coupled_differences(small, policy, x, x * 2)
    with pytest.raises(dp.errors.InputError, match="repetitions must be a whole number"):
        coupled_differences(small, policy, x, x, repetitions=0)
    with pytest.raises(dp.errors.InputError, match="horizon must be a whole number"):
        rollout_values(small, policy, horizon=0.5)
    with pytest.raises(dp.errors.InputError, match="steps must be"):
        rollout_step(small, policy, steps=-1)
    with pytest.raises(dp.errors.PolicyError, match="another model"):
        coupled_differences(other, policy, x, x)
    with pytest.raises(dp.errors.InputError, match="control variate belongs to"):
        coupled_differences(small, policy, x, x, control=LinearValues(constant(other), np.ones(1)))
    user = dp.primal.functions(small, lambda s: s.sum(axis=1))
    with pytest.raises(dp.errors.InputError, match="without functions of the user"):
        coupled_differences(small, policy, x, x, control=LinearValues(user, np.ones(1)))
    line = dp.load("tandem", queues=2, servers=2)
    with pytest.raises(dp.errors.InputError, match="states with a choice"):
        rollout_values(line, line.policy("lbfs"), states=30)
