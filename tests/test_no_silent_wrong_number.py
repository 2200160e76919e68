"""Inputs that could return a wrong number in silence, and must not."""

import math

import numpy as np
import pytest
from scipy import stats

import dualplan as dp
from bank import admission_events, mm1
from dualplan import policies
from dualplan.core.identity import digest
from dualplan.evaluation import experiments


@pytest.mark.slow
def test_resuming_with_another_model_or_policy_is_refused(tmp_path):
    """Each pair has the same names and shapes and differs in one number."""

    def threshold(level):
        return lambda x: 1 if x[0] < level else 0

    gate = admission_events()
    cases = [
        (dp.load("admission"), dp.load("admission", holding=1.3), "threshold", "threshold"),
        (dp.load("forest"), dp.load("forest", fire=0.9), "random", "random"),
        (dp.load("garnet"), dp.load("garnet", seed=1), "random", "random"),
        (admission_events(arrival=0.5), admission_events(arrival=0.4), "random", "random"),
        (gate, gate, threshold(2), threshold(3)),
    ]
    for i, (first, second, a, b) in enumerate(cases):
        folder = str(tmp_path / str(i))
        one = first.policy(a) if isinstance(a, str) else policies.FunctionPolicy(first, a, name="t")
        two = (
            second.policy(b) if isinstance(b, str) else policies.FunctionPolicy(second, b, name="t")
        )
        dp.evaluate(first, one, steps=20_000, folder=folder)
        with pytest.raises(dp.errors.RunError, match=r"another '(model|policies)'"):
            dp.evaluate(second, two, steps=40_000, folder=folder, resume=True)
        dp.evaluate(first, one, steps=40_000, folder=folder, resume=True)


def test_fingerprints_follow_what_functions_refer_to():
    def make(value):
        return lambda x: x + value

    assert digest(make(1)) == digest(make(1))
    assert digest(make(1)) != digest(make(2))
    assert digest(make(np.arange(3))) != digest(make(np.arange(4)))
    assert digest(make(make(1))) != digest(make(make(2)))


def test_functions_that_change_the_state_are_refused():
    def move(x, a, e):
        x[0] = e
        return x

    with pytest.raises(
        dp.errors.ModelError,
        match=r"`move` at x=.* raised ValueError: assignment destination is read-only",
    ):
        dp.EventModel(
            lower=[0],
            upper=[1],
            actions=2,
            events=2,
            probability=lambda x, a, e: 0.5,
            move=move,
            loss=lambda x, a: 0.0,
        )

    def sneaky(x, a, e):
        if x[0] > 0:  # not at the start
            x[0] = 0
        return (e,)

    model = dp.EventModel(
        lower=[0],
        upper=[1],
        actions=2,
        events=2,
        probability=lambda x, a, e: 0.5,
        move=sneaky,
        loss=lambda x, a: 0.0,
    )
    with pytest.raises(dp.errors.ModelError, match="`move`"):
        dp.evaluate(model, model.policy("random"), steps=1_000)

    def rule(x):
        x.sort()
        return 0

    net = dp.load("four-queue", buffers=3)
    with pytest.raises(dp.errors.PolicyError, match="read-only"):
        policies.FunctionPolicy(net, rule)


def test_rare_events_that_have_not_happened_are_not_ruled_out():
    """Two states that swap once in 10^7 steps: the average is 1/2, the simulation sees nothing but
    0.
    """
    model = dp.TabularModel([[[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]]], [0, 1])
    policy = policies.TablePolicy(model, np.zeros(2, int))
    for method in ("batch-means", "regenerative"):
        result = dp.evaluate(model, policy, tol=0.01, steps=100_000, method=method)
        assert result.status in (dp.Status.TOO_SHORT, dp.Status.FEW_CYCLES)
    for method in ("truncated", "stopped"):
        result = dp.evaluate(
            model, policy, dp.Discounted(0.9), tol=0.01, steps=100_000, method=method
        )
        assert result.status is dp.Status.TOO_SHORT
    constant = dp.TabularModel([np.eye(2)], [3, 3])
    policy = policies.TablePolicy(constant, np.zeros(2, int))
    assert dp.evaluate(constant, policy, steps=10_000).status is dp.Status.COMPLETED


def test_a_policy_of_another_model_is_refused():
    small, large = dp.load("forest"), dp.load("forest", ages=50)
    for judge in (dp.evaluate, dp.evaluate_exact):
        with pytest.raises(dp.errors.PolicyError, match="made for another model"):
            judge(large, policies.TablePolicy(small, np.zeros(3, int)))
    with pytest.raises(dp.errors.PolicyError, match=r"heuristics are model.policy\(name\)"):
        dp.evaluate(small, "random")
    same = dp.load("forest")
    assert dp.evaluate(same, small.policy("random"), steps=10_000).cost < 0


@pytest.mark.parametrize("buffer", [True, float("nan"), 1e30, 0.5, -1])
def test_buffers_are_whole_numbers_of_customers(buffer):
    with pytest.raises(dp.errors.InputError, match="buffer"):
        dp.QueueClass("1", "S", 0.5, 0.2, buffer)


def test_a_float_buffer_beside_an_unbounded_one():
    net = dp.QueueingNetwork(
        [
            dp.QueueClass("1", "A", 0.4, 0.2, None, route={"2": 1.0}),
            dp.QueueClass("2", "B", 0.3, 0.0, 5.0),
        ]
    )
    assert net.forward([0, 0], 0).states.tolist() == [[0, 0], [1, 0]]
    assert net.describe()["classes"][1]["buffer"] == 5


def test_an_interruption_between_two_policies_leaves_a_whole_state(monkeypatch, tmp_path):
    """The interrupt comes while results are put together.

    The resumed run ends at the same numbers.
    """
    net = dp.load("four-queue", buffers=4)
    a, b = net.policy("lbfs"), net.policy("longer")
    whole = dp.compare(net, a, b, steps=600_000)
    calls = 0
    original = np.concatenate

    def interrupting(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 4:  # the second policy of the second look
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    folder = str(tmp_path / "run")
    monkeypatch.setattr(experiments.np, "concatenate", interrupting)
    cut = dp.compare(net, a, b, steps=600_000, folder=folder)
    monkeypatch.undo()
    assert cut.status is dp.Status.INTERRUPTED
    resumed = dp.compare(net, a, b, steps=600_000, folder=folder, resume=True)
    assert resumed.difference == whole.difference
    assert resumed.first.cost == whole.first.cost


def test_sessions_with_hidden_state():
    class Session:
        def reset(self, rng):
            return np.array([0])

        def step(self, x, a, rng):
            return np.array([99]), 1.0, False

    model = dp.SimulatorModel(lower=[0], upper=[5], actions=1, session=Session)
    with pytest.raises(dp.errors.InputError, match="cannot be started from a given one"):
        dp.evaluate(model, model.policy("random"), dp.Discounted(0.9, start=(3,)), steps=1_000)
    with pytest.raises(dp.errors.ModelError, match=r"leaves the box: x'=\(99\)"):
        dp.evaluate(model, model.policy("random"), steps=1_000)


def test_an_ended_episode_costs_nothing_more():
    """One step of loss 1 and then nothing: exactly 1, though the losses lie in [1, 2]."""
    model = dp.SimulatorModel(
        lower=[0],
        upper=[0],
        actions=1,
        step=lambda x, a, rng: ([0], 1.0, True),
        loss_bounds=(1.0, 2.0),
    )
    result = dp.evaluate(
        model, model.policy("random"), dp.Discounted(0.9), steps=2_000, method="truncated"
    )
    assert result.lower <= 1.0 <= result.upper


def test_probabilities_that_are_not_numbers():
    with pytest.raises(dp.errors.ModelError, match="x'=1 the probability nan"):
        dp.TabularModel([[[0.5, np.nan], [0.5, 0.5]]], [0, 1])
    with pytest.raises(dp.errors.InputError, match="start distribution sums to nan"):
        dp.Discounted(0.9, start=[([0], float("nan"))]).start_distribution(dp.load("forest"))


def test_differences_from_an_unstable_policy_are_unknown():
    net = dp.QueueingNetwork(
        [dp.QueueClass("1", "S", 0.3, 0.2), dp.QueueClass("2", "S", 0.3, 0.05)], idling=True
    )
    only_two = policies.FunctionPolicy(net, lambda x: 1, name="only two")
    result = dp.compare(net, only_two, net.policy("longer"), steps=2_000_000)
    assert result.status is dp.Status.UNSTABLE
    assert not math.isfinite(result.to_json()["difference"]["value"])
    assert (result.difference.lower, result.difference.upper) == (-np.inf, np.inf)


def test_budgets_of_discounted_runs_are_kept_or_refused():
    net = mm1(0.5)
    with pytest.raises(
        dp.errors.InputError, match=r"steps=1000 allow 1 runs .* allow at least 10000"
    ):
        dp.evaluate(net, net.policy("longer"), dp.Discounted(0.999), steps=1_000)
    assert dp.evaluate(net, net.policy("longer"), dp.Discounted(0.9), steps=1_000).steps < 2_000


def test_questions_about_forbidden_pairs_and_far_states():
    net = dp.QueueingNetwork(
        [
            dp.QueueClass("1", "A", 0.2, 0.1),
            dp.QueueClass("2", "A", 0.2, 0.1),
            dp.QueueClass("3", "B", 0.2, 0.1),
        ],
        decisions="per-server",
    )
    with pytest.raises(
        dp.errors.InputError, match=r"action 1 \(choice 2\) is not allowed in state \(1, 1, 1, 2\)"
    ):
        net.forward([1, 1, 1, 2], 1)
    with pytest.raises(dp.errors.InputError, match=r"actions 0 to 1, got 0\.9"):
        net.loss([1, 1, 1, 1], 0.9)
    for x in (["a"] * 4, [2**63 - 1] * 4, [0.5] * 4, [float("nan")] * 4):
        with pytest.raises(dp.errors.InputError, match="4 integer coordinates"):
            net.predecessors(x)


def test_penalties_that_would_take_exponential_time_are_refused():
    classes = [dp.QueueClass(str(i), str(i), 0.5, 0.5, 1, penalty=10.0) for i in range(64)]
    with pytest.raises(dp.errors.InputError, match="use dynamics='uniformized'"):
        dp.QueueingNetwork(classes, dynamics="bernoulli")


@pytest.mark.slow
def test_small_networks_with_many_routes_have_predecessors():
    names = [str(i) for i in range(4)]
    route = dict.fromkeys(names, 0.22)
    classes = [dp.QueueClass(n, f"S{i % 2}", 0.3, 0.2, 1, route=route) for i, n in enumerate(names)]
    net = dp.QueueingNetwork(classes, dynamics="bernoulli")
    assert net.has_predecessors
    assert dp.check_model(net, pairs=20).ok


def test_no_action_allowed_is_reported_not_raised():
    def allowed(x, a):
        return x[0] != 2

    f = admission_events().functions
    model = dp.EventModel(lower=[0], upper=[6], actions=2, events=3, **{**f, "allowed": allowed})
    assert "no action is allowed in state x=(2)" in dp.check_model(model).problem


def chain_with_a_dear_state(chance, dear, forbidden=0.0):
    """Two cheap states, a dear one that is seldom met, and an action that nobody takes."""
    cheap = [(1 - chance) / 2, (1 - chance) / 2, chance]
    rows = np.array([cheap, cheap, [0.5, 0.5, 0.0]])
    losses = np.array([[0.0, forbidden], [1.0, forbidden], [dear, forbidden]])
    return dp.TabularModel([rows, rows], losses, name="rare")


@pytest.mark.parametrize(
    ("criterion", "method"),
    [
        (dp.Average(), "batch-means"),
        (dp.Average(), "regenerative"),
        (dp.Discounted(0.9), "truncated"),
        (dp.Discounted(0.9), "stopped"),
    ],
)
def test_a_rare_dear_state_is_covered_or_complained_of(criterion, method):
    """Some 3 visits of the state in a run, 60 seeds: of 95% intervals, those that are good and miss
    are no more than a binomial variable's (p = 0.001), which is 8; by Student's t they are 11 and
    more.
    """
    model = chain_with_a_dear_state(1e-3, 1_000.0)
    policy = policies.TablePolicy(model, np.array([[1.0, 0.0]] * 3))
    cost = dp.evaluate_exact(model, policy, criterion).cost
    steps = {"truncated": 40_000, "stopped": 1_500}.get(method, 3_000)
    found = [
        dp.evaluate(model, policy, criterion, method=method, steps=steps, seed=s) for s in range(60)
    ]
    missing = [r for r in found if r.status.good and not r.lower <= cost <= r.upper]
    assert len(missing) <= stats.binom.ppf(0.999, 60, 0.05)
    assert any(r.status.good for r in found)
    longer = dp.evaluate(model, policy, criterion, method=method, steps=30 * steps)
    assert longer.status is dp.Status.COMPLETED


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)])
def test_losses_that_the_policy_can_meet_count_and_others_do_not(criterion):
    """Some 0.01 visits of the dear state in a run: nothing of it is seen, and the status says so;
    an action that is never taken may cost anything.
    """
    lazy = np.array([[1.0, 0.0]] * 3)
    for dear, forbidden, status in (
        (1e6, 0.0, dp.Status.TOO_SHORT),
        (1.0, 1e9, dp.Status.COMPLETED),
    ):
        model = chain_with_a_dear_state(1e-6, dear, forbidden)
        policy = policies.TablePolicy(model, lazy)
        found = dp.evaluate(model, policy, criterion, steps=10_000)
        assert found.status is status
    randomised = policies.TablePolicy(model, lazy + np.array([-1e-9, 1e-9]))
    assert dp.evaluate(model, randomised, criterion, steps=10_000).status is dp.Status.TOO_SHORT


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)])
def test_a_difference_that_a_few_events_carry_is_too_short(criterion):
    """Two policies that differ in one rare state only."""
    rows = np.array([[0.999, 0.001], [1.0, 0.0]])
    noisy = np.array([[0.0, 0.0], [1.0, 2.0]])
    model = dp.TabularModel([rows, rows], noisy)
    first, second = (
        policies.TablePolicy(model, np.array([[1.0, 0.0], p])) for p in ([1.0, 0.0], [0.0, 1.0])
    )
    few = dp.compare(model, first, second, criterion, steps=3_000, seed=3)
    assert few.status is dp.Status.TOO_SHORT
    many = dp.compare(model, first, second, criterion, steps=2_000_000)
    assert many.status is dp.Status.COMPLETED
    truth = [dp.evaluate_exact(model, p, criterion).cost for p in (first, second)]
    assert many.difference.lower <= truth[0] - truth[1] <= many.difference.upper
