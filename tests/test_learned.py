"""Policies from simulators alone, against the optimum of the table that the simulator hides."""

import numpy as np
import pytest

import dualplan as dp
from dualplan.policies import TablePolicy
from dualplan.search import duels, last_evaluation, learned, loop, steps
from dualplan.search.contract import Search
from dualplan.search.learned import Counts, Learned


@pytest.fixture
def by_work(monkeypatch):
    """A search that ends by its work and never by the clock: one size, and short simulations."""
    monkeypatch.setitem(steps.STEPS_BY_NAME, "learned", Learned(sizes=1))
    monkeypatch.setattr(learned, "TRIED_STEPS_BY_SIZE", (9_000,))
    monkeypatch.setattr(duels, "DUEL_LOOKS_STEPS", (400_000, 800_000))
    monkeypatch.setattr(duels, "SCREENING_STEPS", 40_000)
    monkeypatch.setattr(loop, "BEGINNING_STEPS", 100_000)
    monkeypatch.setattr(last_evaluation, "FINAL_EVALUATION_STEPS", 20_000)
    monkeypatch.setattr(last_evaluation, "LEAST_FINAL_STEPS", 0)
    return {"time": "1h", "method": "learned"}


def simulator_of(table, **options):
    """Draws from a table of transitions, and nothing more."""

    def step(x, a, rng):
        law = table.forward(x, a)
        k = rng.choice(len(law.probabilities), p=law.probabilities)
        return law.states[k], table.loss(x, a)

    return dp.SimulatorModel(
        step=step,
        start=table.start,
        lower=table.box.lower,
        upper=table.box.upper,
        actions=len(table.actions),
        **options,
    )


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)], ids=str)
def test_what_is_learned_is_near_the_optimum(monkeypatch, criterion):
    """Of ten states and three actions, after some 700 tries of each pair."""
    table = dp.load("garnet", states=10, actions=3, branching=3, seed=4)
    monkeypatch.setattr("dualplan.search.learned.TRIED_STEPS_BY_SIZE", (20_000,))
    model = simulator_of(table)
    (found,) = Learned().propose(Search(model, criterion, (), 0), 0)
    cost = dp.evaluate_exact(table, TablePolicy(table, found.policy.table), criterion).cost
    optimum = dp.solve_exact(table, criterion).value
    chance = dp.evaluate_exact(table, table.policy("random"), criterion).cost
    assert optimum - 1e-4 <= cost <= optimum + 0.02 * (chance - optimum)


def test_counts_are_the_frequencies_that_were_seen():
    table = dp.load("garnet", states=4, actions=2, branching=2, seed=1)
    counts = Counts(simulator_of(table))
    for i, a, j, loss in [(0, 1, 2, 3.0), (0, 1, 2, 5.0), (0, 1, 3, 1.0), (2, 0, 4, 7.0)]:
        counts.note(i, a, j, loss)
    model = counts.estimated()
    law = model.forward([0], 1)
    assert dict(zip(law.states[:, 0].tolist(), law.probabilities, strict=True)) == {
        2: pytest.approx(2 / 3),
        3: pytest.approx(1 / 3),
    }
    assert model.loss([0], 1) == pytest.approx(3.0)
    assert model.allowed([0]).tolist() == [False, True]
    # the end is kept, at no loss; what was never seen stays where it is, at the largest loss
    assert model.loss([4], 0) == 0.0
    assert model.forward([4], 0).states.tolist() == [[4]]
    assert model.loss([3], 0) == 7.0
    assert model.forward([3], 0).states.tolist() == [[3]]


def test_episodes_end_at_no_further_loss(by_work):
    """Walk along a line to the right end, where a reward of 1 waits, against a wind to the left;
    the left end ends it, too. The optimum is dense algebra on the line.
    """
    n, gamma = 6, 0.95

    def step(x, a, rng):
        i = int(x[0])
        push = 1 if (a == 1) == (rng.random() < 0.8) else -1
        y = min(max(i + push, 0), n - 1)
        return [y], -1.0 if y == n - 1 else 0.0, y in (0, n - 1)

    model = dp.SimulatorModel(step=step, start=[2], lower=[0], upper=[n - 1], actions=2)
    found = dp.solve(model, dp.Discounted(gamma), **by_work)
    rows = np.zeros((n, n))
    gains = np.zeros(n)
    for i in range(1, n - 1):
        for y, p in ((i + 1, 0.8), (i - 1, 0.2)):
            if y == n - 1:
                gains[i] -= p
            elif y > 0:
                rows[i, y] += p
    truth = np.linalg.solve(np.eye(n) - gamma * rows, gains)[2]
    assert found.evaluation.lower - 0.02 <= truth <= found.evaluation.upper + 0.02
    assert {found.policy.act([i]) for i in range(1, n - 1)} == {model.actions[1]}
    assert found.bound.kind == "unknown"


def test_an_environment_as_it_is(by_work):
    """Improves on choosing at random, by an interval that excludes 0."""
    gymnasium = pytest.importorskip("gymnasium")
    lake = dp.SimulatorModel.from_gymnasium(
        gymnasium.make("FrozenLake-v1", is_slippery=False), max_episode_steps=-1
    )
    found = dp.solve(lake, dp.Discounted(0.99), **by_work)
    assert found.attempts[0].accepted
    assert found.attempts[0].gain.lower > 0
    assert found.cost == pytest.approx(-(0.99**5), abs=0.02)


def test_what_is_far_away_is_found():
    """A corridor of 30 states, whose far end pays 1 and whose start pays .001: random actions come
    to the end once in 2^29 episodes or so, hope finds it.
    """
    n = 30

    def step(x, a, rng):
        i = int(x[0])
        if a == 0:
            return [0], -0.001, False
        return [min(i + 1, n - 1)], -1.0 if i == n - 1 else 0.0, False

    model = dp.SimulatorModel(step=step, start=[0], lower=[0], upper=[n - 1], actions=2)
    counts = Search(model, dp.Discounted(0.99), (), 0)
    (found,) = Learned().propose(counts, 0)
    assert [found.policy.act([i]) for i in range(n)] == [model.actions[1]] * n
