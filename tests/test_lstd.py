"""Values of a policy by least squares: exact where its functions can say the bias, and what they
save in simulation.
"""

import numpy as np
import pytest
from scipy import stats

import dualplan as dp
from bank import mm1
from dualplan import primal
from dualplan.evaluation.outskirts import outskirts
from dualplan.exact.operators import Sweeper
from dualplan.policies.heuristics.network import soft_longer
from dualplan.search import duels
from dualplan.search.contract import Candidate, Member, Search


def test_the_bias_of_a_single_queue_is_quadratic():
    """Λ x(x + 1)/(2(μ − λ)), Λ = λ + μ: found from any visits, since the equation holds in each of
    them.
    """
    net = mm1(0.8)
    found = primal.policy_values(
        net, net.policy("longer"), primal.monomials(net, 2, scale=1.0), samples=50, seed=3
    )
    assert found.weights[1:] == pytest.approx([4.5, 4.5], rel=1e-8)


def test_with_a_function_for_each_state_it_is_the_bias():
    """A randomised policy, so that several actions of a state count.

    States it never enters stay without a value.
    """
    net = dp.load("four-queue", buffers=1)
    policy = soft_longer(net, (0.8, 0.6))
    exact = dp.evaluate_exact(net, policy)
    reached = exact.reached
    found = primal.policy_values(net, policy, primal.indicators(net), samples=4_000, every=7)
    values = found(net.box.states(reached))
    bias = exact.values[reached] if exact.values.size == net.box.count else exact.values
    assert values - values[0] == pytest.approx(bias - bias[0], abs=1e-6)


def test_controls_for_each_policy_leave_nothing_to_chance():
    net = dp.load("four-queue", buffers=1)
    both = net.policy("c-mu"), net.policy("lbfs")  # which leave no action to chance
    exact = [dp.evaluate_exact(net, p).cost for p in both]
    controls = tuple(
        primal.policy_values(net, p, primal.indicators(net), samples=4_000) for p in both
    )
    found = dp.compare(net, *both, steps=20_000, control=controls)
    assert found.difference.half_width < 1e-6
    assert found.difference.value == pytest.approx(exact[0] - exact[1], abs=1e-6)
    shared = dp.compare(net, *both, steps=20_000, control=controls[0])
    assert shared.difference.half_width > 1e-3


def test_a_fit_with_the_seed_of_the_evaluation_leaves_its_interval_honest():
    """With functions for all states and few visits.

    Of 80 intervals at 95% fewer than this many cover with p = .001.
    """
    net = dp.load("four-queue", buffers=3)
    policy, basis = net.policy("c-mu"), primal.indicators(net)
    exact, hits = dp.evaluate_exact(net, policy).cost, 0
    for seed in range(80):
        control = primal.policy_values(net, policy, basis, samples=4_000, every=5, seed=seed)
        found = dp.evaluate(net, policy, steps=20_000, seed=seed, control=control)
        hits += found.lower <= exact <= found.upper
    assert hits >= stats.binom.ppf(0.001, 80, 0.95)


def small_network():
    """81 states, all of which c-mu reaches, some of them once in thousands of steps."""
    net = dp.load("four-queue", buffers=2)
    return net, net.policy("c-mu"), primal.indicators(net)


def test_what_neither_the_fit_nor_the_run_has_met_is_in_the_interval():
    """A fit to visits is exact there, so that hardly any noise is left, and far off elsewhere.

    Of 20 intervals at 95% fewer than 15 cover with p = .001; 12 did when nothing was added to them.
    """
    net, policy, basis = small_network()
    exact = dp.evaluate_exact(net, policy).cost
    found = []
    for seed in range(20):
        control = primal.policy_values(net, policy, basis, samples=8_000, every=5, seed=seed)
        found.append(dp.evaluate(net, policy, steps=20_000, seed=seed, control=control))
    hits = sum(run.lower <= exact <= run.upper for run in found)
    assert hits >= stats.binom.ppf(0.001, 20, 0.95)
    # the control still pays: half-widths are about .15 without one
    assert np.median([run.half_width for run in found]) < 0.02


def test_differences_of_two_fits_have_what_may_have_been_missed():
    """Of 20 intervals at 95% fewer than 15 cover with p = .001; 12 did when nothing was added."""
    net, policy, basis = small_network()
    both = policy, net.policy("lbfs")
    exact = [dp.evaluate_exact(net, p).cost for p in both]
    hits = 0
    for seed in range(20):
        control = tuple(
            primal.policy_values(net, p, basis, samples=8_000, every=5, seed=seed) for p in both
        )
        found = dp.compare(net, *both, steps=40_000, seed=seed, control=control).difference
        hits += found.lower <= exact[0] - exact[1] <= found.upper
    assert hits >= stats.binom.ppf(0.001, 20, 0.95)


@pytest.mark.parametrize("weights", [None, (0.8, 0.6)])
def test_states_around_the_visited_ones_have_their_shaped_losses(weights):
    """Against matrices over all states, for a wrong control and for the bias, where nothing is
    missed; the second policy leaves actions to chance.
    """
    net, policy, basis = small_network()
    if weights is not None:
        policy = soft_longer(net, weights)
    exact = dp.evaluate_exact(net, policy)
    sweeper = Sweeper(net, threads=1)
    chain, losses = sweeper.chain(policy)
    wrong = np.random.default_rng(2).normal(size=net.box.count)
    shaped = losses + chain @ wrong - wrong
    expected = np.abs(shaped - exact.cost) / (1 - chain.diagonal())
    found = outskirts(net, policy, primal.LinearValues(basis, wrong), steps=1e9, seed=1)
    assert found.losses.size == exact.reached.size
    assert found.dearest(exact.cost) == pytest.approx(expected[exact.reached].max(), rel=1e-9)
    bias = outskirts(net, policy, primal.LinearValues(basis, exact.values), steps=1e9, seed=1)
    assert bias.dearest(exact.cost) < 1e-8


def test_the_bias_as_control_keeps_its_narrow_interval():
    net, policy, basis = small_network()
    exact = dp.evaluate_exact(net, policy)
    control = primal.LinearValues(basis, exact.values)
    found = dp.evaluate(net, policy, steps=20_000, seed=15, control=control)
    assert found.half_width < 1e-9
    assert found.lower <= exact.cost <= found.upper


@pytest.mark.parametrize("far_off", [1e7, np.inf])
def test_a_control_that_is_far_off_at_a_rare_state_is_left_out(far_off):
    """The run does not come near that state: its shaped losses are constant."""
    net, policy, _ = small_network()
    values = dp.evaluate_exact(net, policy).values.copy()
    values[net.box.index(np.array([0, 1, 2, 2]))] = far_off
    control = dp.values.functions.state_function(net, values)
    found = dp.evaluate(net, policy, steps=2_000, seed=1, control=control)
    plain = dp.evaluate(net, policy, steps=2_000, seed=1)
    assert found.half_width == pytest.approx(plain.half_width, rel=0.3)  # other chunks
    assert found.cost == pytest.approx(plain.cost, abs=plain.half_width)


def test_measures_of_a_controlled_run_are_judged_by_themselves():
    """M/M/1 at load .99 with its bias as control: the cost is known at once, queue lengths and
    losses are not.
    """
    net = mm1(0.99)
    control = primal.policy_values(
        net, net.policy("longer"), primal.monomials(net, 2, scale=1.0), samples=50
    )
    found = dp.evaluate(net, net.policy("longer"), steps=20_000, control=control)
    assert found.lower <= 99.0 <= found.upper
    assert found.half_width < 1e-6
    assert all(not np.isfinite(m.half_width) for m in found.measures.values())
    assert "too short for the measures" in found.notes[0]


def test_many_states_at_once():
    net = dp.load("four-queue", buffers=3)
    states = net.box.states(np.arange(net.box.count))
    values = primal.LinearValues(primal.monomials(net, 1), np.arange(5.0))
    plain = dp.policies.FunctionPolicy(net, lambda x: int(x[0] > x[3]))
    for policy in (soft_longer(net, (0.8, 0.6)), primal.greedy(net, values), plain):
        assert (policy.rows(states[:200]) == [policy.probabilities(x) for x in states[:200]]).all()


def test_index_rules_are_judged_with_fitted_controls_where_these_help():
    """On a heavily loaded network the interval is several times narrower in the same time.

    a huge one is left alone.
    """
    net = dp.load("four-queue", buffers=None)
    search = Search(net, dp.Average(), (), 0)
    candidate = Candidate(net.policy("c-mu"), "test")
    plain = dp.evaluate(net, candidate.policy, steps=400_000, seed=1)
    member = duels.controlled(search, Member(candidate, plain))
    shaped = dp.evaluate(net, candidate.policy, steps=400_000, seed=1, control=member.control)
    assert shaped.half_width < plain.half_width / 3
    assert (
        duels.controlled(search, Member(candidate, plain)).control is member.control
    )  # fitted once
    line = dp.load("tandem", queues=100)
    many = Candidate(line.policy("lbfs"), "test")
    assert duels.controlled(Search(line, dp.Average(), (), 0), Member(many, plain)).control is None


def test_bad_questions():
    net, other = mm1(0.5), mm1(0.6)
    with pytest.raises(dp.errors.InputError, match="the basis belongs to"):
        primal.policy_values(net, net.policy("longer"), primal.monomials(dp.load("criss-cross"), 2))
    with pytest.raises(dp.errors.InputError, match="samples must be"):
        primal.policy_values(net, net.policy("longer"), primal.monomials(net, 2), samples=0)
    with pytest.raises(dp.errors.PolicyError, match="another model"):
        primal.policy_values(net, other.policy("longer"), primal.monomials(net, 2))
