"""The symmetric dual program for simulators alone: what is seen, fitted laws, values of actions."""

import numpy as np
import pytest

import dualplan as dp
from dualplan.core.errors import DualplanError
from dualplan.dual.symmetric import make_reference, solve_entropy
from dualplan.dual.symmetric.seen import (
    Seen,
    fit_laws,
    fitted_reference,
    simulator_functions,
    try_all,
    watch,
)
from dualplan.policies import TablePolicy, random_policy
from dualplan.policies.saved import load_policy, save_policy
from dualplan.search import dual_simulated
from dualplan.search.contract import Candidate, Member, Search

ACTIONS = 2
RIGHT = (0.7, 0.2)  # the chance to go up one, by action


def _step(x, a, rng):
    """A walk on 0 … 4; being up costs, and so does the second action."""
    up = rng.random() < RIGHT[a]
    y = min(4, x[0] + 1) if up else max(0, x[0] - 1)
    return (y,), float(x[0]) + 0.5 * a


def _tables():
    """The same walk as tables."""
    chain = np.zeros((5, ACTIONS, 5))
    losses = np.zeros((5, ACTIONS))
    for x in range(5):
        for a, up in enumerate(RIGHT):
            chain[x, a, min(4, x + 1)] += up
            chain[x, a, max(0, x - 1)] += 1 - up
            losses[x, a] = x + 0.5 * a
    return chain, losses


@pytest.fixture(scope="module")
def walk():
    return dp.SimulatorModel(lower=[0], upper=[4], actions=ACTIONS, step=_step, name="walk")


@pytest.fixture(scope="module")
def seen(walk):
    return watch(walk, random_policy(walk), steps=20_000, exploring=0.2, seed=3)


def test_with_indicators_laws_are_what_was_counted(walk, seen):
    """Frequencies and means by hand, but for a small ridge."""
    laws = fit_laws(simulator_functions(walk, seen.states), seen)
    basis = laws.basis
    for a in range(ACTIONS):
        for x in range(5):
            own = (seen.actions == a) & (seen.states[:, 0] == x)
            here = basis(np.array([[x]]))[0]
            assert here @ laws.losses[a] == pytest.approx(seen.losses[own].mean(), abs=2e-3)
            after = basis(seen.following[own]).mean(axis=0)
            assert here @ laws.following[a] == pytest.approx(after, abs=2e-3)


def test_an_episode_that_ended_pays_nothing_more_under_a_discount(walk):
    """One state, whose episodes end with chance a half: Ê[Ψ(y)] is a half of what begins again."""
    rng = np.random.default_rng(1)
    count = 40_000
    ended = rng.random(count) < 0.5
    states = np.zeros((count, 1), np.int64)
    what = Seen(states, np.zeros(count, np.int64), np.ones(count), states, ended)
    basis = simulator_functions(walk, states)
    long_run = fit_laws(basis, what)
    discounted = fit_laws(basis, what, dp.Discounted(0.9))
    constant = basis.names.index("1")
    here = basis(np.array([[0]]))[0]
    assert here @ long_run.following[0][:, constant] == pytest.approx(1.0, abs=1e-3)
    assert here @ discounted.following[0][:, constant] == pytest.approx(1 - ended.mean(), abs=1e-3)


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)], ids=["average", "disc"])
def test_the_program_on_fitted_laws_is_that_of_the_table(walk, criterion):
    """Weights, objective and decisions of the table's own program, with laws seen often; the
    chance of a difference in a decision is that of frequencies off by a tenth, below 1e-9.
    """
    chain, losses = _tables()
    table = dp.TabularModel(chain.reshape(-1, 5), losses)
    much = watch(walk, random_policy(walk), criterion, steps=40_000, exploring=1.0, seed=5)
    laws = fit_laws(simulator_functions(walk, much.states), much, criterion)
    states = np.arange(5)[:, None]
    fitted = fitted_reference(laws, states, random_policy(walk), 0.5)
    exact = make_reference(
        simulator_functions(table, states), states, random_policy(table), criterion
    )
    own = solve_entropy(fitted, 0.3)
    true = solve_entropy(exact, 0.3)
    assert own.objective == pytest.approx(true.objective, rel=0.03)
    policy = laws.action_values(own.values.weights)
    values = exact.basis(states) @ true.values.weights
    best = (losses + criterion.gamma * (chain @ values)).argmin(axis=1)
    assert np.array_equal(policy.rows(states).argmax(axis=1), best)
    assert [policy.act(x) for x in states] == [walk.actions[a] for a in best]


def test_laws_need_the_constant(walk, seen):
    basis = dp.primal.monomials(walk, 2)
    one = simulator_functions(walk, seen.states)
    without = type(one)(walk, one.products[1:], one.labels[1:])
    assert len(basis) > 0
    with pytest.raises(DualplanError, match="constant 1"):
        fit_laws(without, seen)


def test_values_of_actions_are_saved(walk, seen, tmp_path):
    laws = fit_laws(simulator_functions(walk, seen.states), seen)
    policy = laws.action_values(np.arange(5.0))
    path = tmp_path / "policy.npz"
    save_policy(policy, path)
    again = load_policy(path, walk)
    assert again.digest == policy.digest
    states = np.arange(5)[:, None]
    assert np.array_equal(again.rows(states), policy.rows(states))
    with pytest.raises(DualplanError, match="finite weight"):
        type(policy)(walk, policy.basis, np.zeros((3, 5)))


def test_a_round_finds_the_best_policy_of_a_simulator(walk, monkeypatch):
    """Exact costs, over the walk as a table."""
    monkeypatch.setattr(dual_simulated, "ROUNDS", 1)
    monkeypatch.setattr(dual_simulated, "WATCHED_STEPS", 4_000)
    chain, losses = _tables()
    table = dp.TabularModel(chain.reshape(-1, 5), losses)
    search = Search(walk, dp.Average(), (), 2)
    begin = Candidate(random_policy(walk), "random")
    search.best = Member(begin, dp.evaluate(walk, begin.policy, steps=2_000))
    found = dual_simulated.simulated_rounds(search)
    assert len(found) >= 3
    states = np.arange(5)[:, None]
    costs = [
        dp.evaluate_exact(table, TablePolicy(table, one.policy.rows(states))).cost for one in found
    ]
    assert min(costs) == pytest.approx(dp.solve_exact(table).value, abs=1e-4)


def test_tried_actions_of_a_state_share_their_random_numbers(walk):
    """The walk goes up under the first action wherever it does under the second, and laws that are
    fitted to so few tries give the difference of the two exactly as often as it was seen.
    """
    states = np.repeat(np.arange(5), 40)[:, None]
    tried, shares = try_all(walk, states, tries=3, seed=1)
    assert len(tried) == len(states) * 3 * ACTIONS
    assert shares == pytest.approx(1 / ACTIONS)
    first = tried.following[tried.actions == 0]
    second = tried.following[tried.actions == 1]
    assert (first >= second).all()
    laws = fit_laws(simulator_functions(walk, states), tried, shares=shares)
    for x in range(5):
        here = laws.basis(np.array([[x]]))[0]
        apart = here @ (laws.losses[1] - laws.losses[0])
        assert apart == pytest.approx(0.5, abs=1e-2)
