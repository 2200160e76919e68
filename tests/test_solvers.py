"""How close the solvers come to the minimum of the surrogate by default settings, where all
constraints can be listed.

In every setting the minimum lies at least 5% below each single feature, so that features must be
combined.
"""

import functools

import numpy as np
import pytest

import dualplan as dp
from dualplan.dual import features as families
from dualplan.dual.solvers import solve, solve_adaptive, solve_listed, solve_sampled


@functools.cache
def groups():
    """Garnet, states in twenty groups, times the actions."""
    model = dp.load("garnet")
    return dp.dual.DualALP(
        model, families.boxes(model, [[(k, k + 4) for k in range(0, 100, 5)]]), radius=10.0
    )


@functools.cache
def switching():
    """Tiles of two heuristics' occupancies, times the choice of either."""
    model = dp.load("four-queue", buffers=3)
    both = [model.policy("lbfs"), model.policy("longer")]
    parts = [families.tiles(model, p, [[(0, 0), (1, 3)]] * 4, choices=both) for p in both]
    return dp.dual.DualALP(model, families.concat(*parts), dp.Discounted(0.95), radius=200.0)


@pytest.mark.parametrize(
    ("make", "penalty"), [(groups, 1.0), (switching, 50.0)], ids=["garnet", "four-queue"]
)
def test_solvers_come_close_where_features_must_be_combined(make, penalty):
    """The sampled program within 1%, the adaptive method within 5%."""
    problem = make()
    listed, best = problem.enumerate(), solve_listed(problem, penalty)
    assert best.status is dp.Status.SOLVED
    alone = [
        problem.value(problem.mass * e, penalty, listed).total
        for e in np.eye(len(problem.features))
    ]
    assert best.value <= 0.95 * min(alone)
    for solver, seed, limit in (
        (solve_sampled, 0, 0.01),
        (solve_sampled, 1, 0.01),
        (solve_adaptive, 0, 0.05),
    ):
        total = problem.value(solver(problem, penalty, seed=seed).theta, penalty, listed).total
        assert best.value * (1 - 1e-6) <= total <= best.value * (1 + limit)


def test_samples_grow_until_two_of_them_agree():
    """A feature for each pair, H = .7: those of small samples differ by far more than 1%.

    Over large ones less.
    """
    model = dp.load("garnet", states=20, actions=2)
    problem = dp.dual.DualALP(model, families.table(model, np.eye(40)), radius=10.0)
    listed, best = problem.enumerate(), solve_listed(problem, 0.7)
    once = solve_sampled(problem, 0.7, samples=500, enlarge=0)
    more = solve_sampled(problem, 0.7, samples=500, enlarge=3)
    assert once.samples == 1_000
    assert more.samples in (4_000, 16_000, 64_000)
    assert -1e-9 <= problem.value(more.theta, 0.7, listed).total - best.value <= 0.01 * best.value
    assert once.value < best.value  # a sampled minimum is too low
    assert len(more.potential) == more.samples
    assert solve_sampled(problem, 0.7, samples=500, enlarge=0, tol=1e9).theta == pytest.approx(
        once.theta
    )


@pytest.mark.parametrize(
    ("make", "penalty"), [(groups, 1.0), (switching, 50.0)], ids=["garnet", "four-queue"]
)
def test_a_start_at_the_minimiser_is_kept_with_a_tenth_of_the_budget(make, penalty):
    """Within 1% of the minimum; the same seed and start give the same bytes."""
    problem = make()
    best = solve_listed(problem, penalty)
    found = [
        dp.dual.solve(problem, penalty, samples=200_000, seed=2, start=best.theta) for _ in range(2)
    ]
    assert found[0].theta.tobytes() == found[1].theta.tobytes()
    assert problem.value(found[0].theta, penalty, problem.enumerate()).total <= 1.01 * best.value


def test_the_papers_steps_begin_at_the_start():
    """Steps of size 0, nearly: the average of the iterates is where they began."""
    problem = groups()
    start = solve_listed(problem, 1.0).theta
    found = dp.dual.solve(problem, 1.0, method="paper", samples=100, step_size=1e-12, start=start)
    assert found.theta == pytest.approx(start, abs=1e-9)
    outside = dp.dual.solve(
        problem, 1.0, method="paper", samples=100, step_size=1e-12, start=start + 1.0
    )
    assert outside.theta == pytest.approx(start, abs=1e-9)  # the nearest point with the right sum
    with pytest.raises(dp.errors.InputError, match="begin at the projection of 0; leave start out"):
        dp.dual.solve(problem, 1.0, method="paper", epsilon=0.1, delta=0.1, start=start)


@pytest.mark.parametrize("solver", ["adaptive", "paper", "sampled-lp", "listed-lp"])
def test_a_start_is_one_finite_weight_a_feature(solver):
    problem = groups()
    for start in (np.ones(3), np.full(80, np.nan), np.ones((80, 1)), "middle", ["a"] * 80):
        with pytest.raises(dp.errors.InputError, match="a finite weight for each of 80 features"):
            dp.dual.solve(problem, 1.0, method=solver, start=start)


def test_linear_programs_along_a_grid_draw_once(monkeypatch):
    problem, fresh = groups.__wrapped__(), groups.__wrapped__()
    solutions = [
        dp.dual.solve(problem, h, method=s) for s in ("listed-lp", "sampled-lp") for h in (1.0, 2.0)
    ]
    alone = [dp.dual.solve(fresh, 2.0, method=s) for s in ("listed-lp", "sampled-lp")]
    assert [solutions[i].theta.tobytes() for i in (1, 3)] == [s.theta.tobytes() for s in alone]
    monkeypatch.setattr(problem, "draw", None)
    monkeypatch.setattr(problem, "enumerate", None)
    for solver in ("listed-lp", "sampled-lp"):
        dp.dual.solve(problem, 3.0, method=solver, start=solutions[0].theta)


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("adaptive", {"samples": 200_000}),
        ("paper", {"samples": 1_000_000, "batch": 5, "step_size": 1e-3}),
    ],
)
def test_watching_changes_nothing_and_tells_what_is_reached(solver, options):
    """The last that is told is near the result, by other draws.

    Samples are counted up to the budget.
    """
    net = dp.load("four-queue", buffers=3)
    problem = dp.dual.DualALP(
        net,
        dp.dual.features.occupancies(net, [net.policy("lbfs"), net.policy("longer")]),
        radius=5.0,
    )
    told = []
    watched = solve(problem, 5.0, method=solver, watch=lambda *seen: told.append(seen), **options)
    alone = solve(problem, 5.0, method=solver, **options)
    np.testing.assert_array_equal(watched.theta, alone.theta)
    samples = [count for count, _ in told]
    assert samples == sorted(samples)
    assert len(samples) >= 4
    assert samples[-1] == watched.samples
    assert told[-1][1].total == pytest.approx(watched.parts.total, rel=0.1)
    assert told[-1][1].objective == pytest.approx(watched.parts.objective, rel=0.05)


def test_reduced_costs_say_which_features_are_worth_adding():
    """None of the program's own lies below 0; one that does lowers the minimum when it is added,
    and where none does the minimum stays.
    """
    model = dp.load("garnet", states=12, actions=2)
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.full(24, 0.2), size=9).T
    few = families.table(model, table[:, :4])
    more = families.table(model, table[:, 4:])
    problem = dp.dual.DualALP(model, few, radius=1e3)
    listed = problem.enumerate()
    found = solve_listed(problem, 2.0)
    others = dp.dual.DualALP(model, more, radius=1e3)
    own = found.multipliers.reduced_costs(problem, listed)
    assert np.abs(own).max() <= 1e-7  # θ is free, and inside the ball
    costs = found.multipliers.reduced_costs(others, others.enumerate())
    for j, cost in enumerate(costs):
        wider = families.concat(few, families.table(model, table[:, [4 + j]]))
        value = solve_listed(dp.dual.DualALP(model, wider, radius=1e3), 2.0).value
        assert (value < found.value - 1e-9) == (abs(cost) > 1e-7)
        small = 1e-6 * np.sign(-cost)
        theta = np.append(found.theta, 0.0)
        moved = theta + small * np.append(-np.eye(4)[0], 1.0)
        wide = dp.dual.DualALP(model, wider, radius=1e3)
        assert (
            wide.value(moved, 2.0, wide.enumerate()).total
            >= found.value - 1e-6 * abs(cost) * (1 + 1e-6) - 1e-10
        )
