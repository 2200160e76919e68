"""Rounds of the symmetric dual program as a method, and what keeps them from jams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dualplan as dp
from dualplan.dual import symmetric
from dualplan.evaluation.visits import visited_from
from dualplan.policies.tables import random_policy
from dualplan.search import loop, steps
from dualplan.search.contract import Candidate
from dualplan.search.trials import late_costs
from dualplan.values.basis import indicators, monomials


def everywhere(model: dp.Model):
    """All states."""
    return model.box.states(np.arange(model.box.count))


@pytest.mark.parametrize(
    "criterion", [dp.Average(), dp.Discounted(0.9)], ids=["mean", "discounted"]
)
def test_equations_of_outposts_that_weigh_all_give_the_values_of_their_policy(criterion) -> None:
    """With all indicators the equations have a solution, the bias or the values of the policy."""
    model = dp.load("garnet", states=20)
    policy = dp.solve_exact(dp.load("garnet", states=20), dp.Discounted(0.5)).policy
    basis = indicators(model)
    states = everywhere(model)
    reference = symmetric.make_reference(basis, states, random_policy(model), criterion)
    cost = dp.evaluate_exact(model, policy, criterion).cost
    outposts = symmetric.make_outposts(basis, states, policy, criterion, cost=cost)
    heavy = replace(outposts, weight=1e5)
    found = symmetric.solve_entropy(reference, 1.0, ridge=1e-9, outposts=heavy)
    h = basis(states) @ found.values.weights
    # the policy's law as a matrix
    law = np.zeros((20, 20))
    losses = np.zeros(20)
    for k, x in enumerate(states):
        for a, chance in enumerate(policy.probabilities(x)):
            if chance > 0:
                out = model.forward(x, a)
                losses[k] += chance * model.loss(x, a)
                law[k, [model.box.index(y) for y in out.states]] += chance * out.probabilities
    if isinstance(criterion, dp.Average):
        missed = losses + law @ h - h - cost
    else:
        # values are Ψw less a constant: the start has the cost
        start = h[model.box.index(model.start)]
        shifted = h + (cost - start)
        missed = losses + criterion.gamma * law @ shifted - shifted
    assert np.abs(missed).max() < 1e-4


def test_directions_change_decisions_equally_and_each_for_itself() -> None:
    model = dp.load("four-queue", buffers=3)
    states = everywhere(model)
    reference = symmetric.make_reference(monomials(model, 2), states, random_policy(model))
    values = symmetric.solve_entropy(reference, 0.1).values
    directions = symmetric.decision_directions(reference, values, most=8)
    changes = reference.differences @ directions
    changed = np.empty_like(changes)
    residual = np.empty(reference.pairs)
    plain = reference.residuals(values)
    for row in np.unique(reference.rows):  # less the mean over the actions of a state
        own = reference.rows == row
        share = reference.masses[own] / reference.masses[own].sum()
        changed[own] = changes[own] - share @ changes[own]
        residual[own] = plain[own] - share @ plain[own]
    products = changed.T @ (reference.masses[:, None] * changed)
    typical = np.median(np.abs(residual))
    assert directions.shape[1] == 8
    assert products == pytest.approx(typical**2 * np.eye(8), abs=1e-6 * typical**2)


def test_late_costs_are_those_of_the_long_run() -> None:
    """Four standard errors of 64 independent means: a chance of 6e-5 to fail, once."""
    model = dp.load("four-queue", buffers=3)
    policy = model.policy("lbfs")
    full = np.tile(model.box.upper, (64, 1))
    late, last = late_costs(policy, full, 20_000, seed=1)
    exact = dp.evaluate_exact(model, policy).cost
    assert abs(late.mean() - exact) < 4 * late.std() / np.sqrt(63)
    assert last.shape == full.shape
    assert (last <= model.box.upper).all()


def test_ways_from_starts_begin_there_and_lead_back() -> None:
    model = dp.load("four-queue", buffers=9)
    full = np.tile(model.box.upper, (4, 1))
    seen = visited_from(model, model.policy("lbfs"), full, samples=30, seed=2, every=200)
    assert (seen[:4] == full).all()
    ways = seen[4:].reshape(4, 30, -1)
    assert ways[:, -10:].sum(axis=2).mean() < full[0].sum() / 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_dual_method_comes_near_the_optimum_from_heuristics_alone(seed) -> None:
    model = dp.load("four-queue", buffers=6)
    begin = [model.policy("lbfs"), model.policy("longer")]
    found = dp.solve(model, policies=begin, method="dual", time="40s", seed=seed)
    optimum = dp.solve_exact(model).cost
    first = min(dp.evaluate_exact(model, policy).cost for policy in begin)
    exact = dp.evaluate_exact(model, found.policy).cost
    assert {a.step for a in found.attempts} == {"dual"}
    assert exact - optimum < 0.25 * (first - optimum)


@pytest.mark.slow
def test_the_dual_method_takes_discounted_costs_too() -> None:
    model = dp.load("lost-sales", lead_time=2, demand=2.0)
    criterion = dp.Discounted(0.95)
    begin = [random_policy(model)]
    found = dp.solve(model, criterion, policies=begin, method="dual", time="60s")
    optimum = dp.solve_exact(model, criterion).cost
    first = dp.evaluate_exact(model, begin[0], criterion).cost
    exact = dp.evaluate_exact(model, found.policy, criterion).cost
    assert exact - optimum < 0.1 * (first - optimum)


def test_a_policy_that_only_the_last_evaluation_finds_dear_is_not_the_answer(monkeypatch) -> None:
    """A duel is made to err, as one does that does not see a rare jam."""
    model = dp.load("four-queue", buffers=4)
    fair = loop.duel

    def mistaken(search, best):
        return replace(fair(search, best), won=True)

    def dear(self, search, size):
        return [Candidate(random_policy(search.model), "dear")]

    monkeypatch.setattr(loop, "duel", mistaken)
    monkeypatch.setattr(steps.Searches, "propose", dear)
    begin = [model.policy("lbfs")]
    found = dp.solve(model, policies=begin, method="search", time="4s")
    assert any(a.accepted for a in found.attempts)
    assert found.policy.name == begin[0].name
    assert found.cost == pytest.approx(dp.evaluate_exact(model, begin[0]).cost, rel=0.02)
