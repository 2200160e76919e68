"""How close the solvers come to the minimum of the surrogate by default settings, where all constraints can be listed.

In every setting the minimum lies at least 5% below each single feature, so that features must be combined.
"""

import numpy as np
import pytest

import dualplan as dp
from dualplan import features as families
from dualplan.solvers import solve_adaptive, solve_listed, solve_sampled


def groups():
    """Garnet, states in twenty groups, times the actions."""
    model = dp.load("garnet")
    return dp.DualALP(model, families.boxes(model, [[(k, k + 4) for k in range(0, 100, 5)]]), radius=10.0)


def switching():
    """Tiles of two heuristics' occupancies, times the choice of either."""
    model = dp.load("four-queue", buffers=3)
    both = [model.policy("lbfs"), model.policy("longer")]
    parts = [families.tiles(model, p, [[(0, 0), (1, 3)]] * 4, choices=both) for p in both]
    return dp.DualALP(model, families.concat(*parts), dp.Discounted(0.95), radius=200.0)


@pytest.mark.parametrize(("make", "penalty"), [(groups, 1.0), (switching, 50.0)], ids=["garnet", "four-queue"])
def test_solvers_come_close_where_features_must_be_combined(make, penalty):
    """The sampled program within 1%, the adaptive method within 5%."""
    problem = make()
    listed, best = problem.enumerate(), solve_listed(problem, penalty)
    assert best.status is dp.Status.SOLVED
    alone = [problem.value(problem.mass * e, penalty, listed).total for e in np.eye(len(problem.features))]
    assert best.value <= 0.95 * min(alone)
    for solver, seed, limit in ((solve_sampled, 0, 0.01), (solve_sampled, 1, 0.01), (solve_adaptive, 0, 0.05)):
        total = problem.value(solver(problem, penalty, seed=seed).theta, penalty, listed).total
        assert best.value * (1 - 1e-6) <= total <= best.value * (1 + limit)


def test_samples_grow_until_two_of_them_agree():
    """A feature for each pair, H = .7: those of small samples differ by far more than 1%; over large ones less."""
    model = dp.load("garnet", states=20, actions=2)
    problem = dp.DualALP(model, families.table(model, np.eye(40)), radius=10.0)
    listed, best = problem.enumerate(), solve_listed(problem, 0.7)
    once = solve_sampled(problem, 0.7, samples=500, enlarge=0)
    more = solve_sampled(problem, 0.7, samples=500, enlarge=3)
    assert once.samples == 1_000
    assert more.samples in (4_000, 16_000, 64_000)
    assert -1e-9 <= problem.value(more.theta, 0.7, listed).total - best.value <= 0.01 * best.value
    assert once.value < best.value  # a sampled minimum is too low
    assert len(more.potential) == more.samples
    assert solve_sampled(problem, 0.7, samples=500, enlarge=0, tolerance=1e9).theta == pytest.approx(once.theta)
