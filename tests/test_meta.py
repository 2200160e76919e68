"""Choosing H: grids, the rule, warm starts along strands, workers, and the curve."""

import json
import math

import joblib
import numpy as np
import pytest

import dualplan as dp
from bank import mixed_features
from dualplan.core.errors import InputError
from dualplan.dual import meta, theorems
from dualplan.dual.grids import geometric_grid, grid_size, paper_grid
from dualplan.dual.meta import solve_along, solve_meta
from dualplan.dual.outcomes import choose, judged
from dualplan.dual.scheme import default_beta, make_scheme
from dualplan.dual.solvers.linear_program import minimum, solve_listed
from dualplan.evaluation.judge import Judge
from dualplan.policies.tables import TablePolicy, random_policy
from dualplan.report import figures

CRITERIA = [dp.Average(), dp.Discounted(0.2)]


def tiny(criterion, **more):
    """Two states, two actions, two policies: small enough for the theory's own numbers of steps and
    draws.
    """
    model = dp.TabularModel(
        [np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[0.2, 0.8], [0.9, 0.1]])],
        np.array([[0.0, 0.05], [0.1, 0.02]]),
    )
    policies = [TablePolicy(model, np.array(choices)) for choices in ([0, 0], [1, 0])]
    features = dp.dual.features.occupancies(model, policies, criterion)
    total = 1.0 if isinstance(criterion, dp.Average) else 1 / (1 - criterion.gamma)
    return dp.dual.DualALP(
        model, features, criterion, sampling="row-norms", radius=0.72 * total, **more
    )


def curve(problem, penalties, beta, offset=0.0):
    """F over a list of penalties, each minimum by a linear program over all constraints."""
    rows = problem.enumerate()
    return np.array([minimum(problem, h + offset, rows).parts.total + beta / h for h in penalties])


def small_problems():
    net = dp.load("four-queue", buffers=2)
    yield dp.dual.DualALP(net, mixed_features(net), radius=2.0), 30.0
    yield dp.dual.DualALP(net, mixed_features(net), dp.Discounted(0.9), radius=20.0), 300.0
    for criterion in CRITERIA:
        yield tiny(criterion), 0.02


# -- grids -----------------------------------------------------------------------------------------


def test_grids_begin_where_the_terms_balance_and_end_where_the_second_is_small():
    for beta, v_max, epsilon in ((1.0, 15.0, 0.1), (0.02, 4.5, 0.06), (70.0, 33.0, 2.0)):
        fine, coarse = paper_grid(beta, v_max, epsilon), geometric_grid(beta, v_max, epsilon, 1.5)
        for grid in (fine, coarse):
            assert grid[0] * v_max == pytest.approx(beta / grid[0], rel=1e-12)
            assert beta / grid[-1] <= epsilon / 2 * (1 + 1e-12) < beta / grid[-2]
        steps = np.diff(fine)
        # what F can change by between neighbours: c by its slope, at most V_max, and β/H by itself
        changes = v_max * steps + beta / np.array(fine[:-1]) - beta / np.array(fine[1:])
        assert (changes <= epsilon * (1 + 1e-9)).all()
        assert (changes > 0.4 * epsilon).all()
        assert np.allclose(np.array(coarse[1:]) / coarse[:-1], 1.5)


def test_the_papers_grid_is_not_logarithmic():
    """β = 1, V_max = 15, ε = .1: 3,000 points; a tenth of ε a hundred times as many."""
    assert (
        len(paper_grid(1.0, 15.0, 0.1))
        == grid_size(1.0, 15.0, 0.1)
        == pytest.approx(3000, rel=0.03)
    )
    assert grid_size(1.0, 15.0, 0.01) == pytest.approx(300_000, rel=0.03)
    assert len(geometric_grid(1.0, 15.0, 0.01)) == 11
    with pytest.raises(InputError, match="take grid 'geometric'"):
        paper_grid(1.0, 15.0, 0.01)


def test_neighbours_bound_the_curve_between_them():
    """F(H_k) <= F(H) + (ρ−1)β/H on computed curves, and c non-decreasing and concave.

    The paper's cells hold ε.
    """
    for problem, beta in small_problems():
        scheme = make_scheme(problem, epsilon=beta / 5, beta=beta, ratio=2.0)
        for h in scheme.penalties[:5]:
            inside = np.linspace(h, 2 * h, 6)
            values = curve(problem, inside, beta, scheme.offset)
            assert (values[0] <= values + beta / inside + 1e-7 * abs(values)).all()
        penalties = np.linspace(scheme.penalties[0], scheme.penalties[-1], 12)
        c = curve(problem, penalties, beta, scheme.offset) - beta / penalties
        slack = 1e-7 * np.abs(c).max()
        assert (np.diff(c) >= -slack).all()
        assert (np.diff(c, 2) <= slack).all()


def test_the_papers_cells_vary_by_at_most_their_step():
    problem, beta, epsilon = tiny(CRITERIA[1]), 0.02, 0.06
    grid = paper_grid(beta, theorems.largest_violation(problem), epsilon)
    rng = np.random.default_rng(0)
    for k in rng.integers(0, len(grid) - 1, 8):
        values = curve(problem, np.linspace(grid[k], grid[k + 1], 5), beta, 0.125)
        assert np.ptp(values) <= epsilon


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA, ids=["average", "discounted"])
@pytest.mark.parametrize("rule", ["hoeffding", "bernstein"])
def test_with_the_theorys_own_numbers_the_chosen_point_minimises_f(criterion, rule):
    """The paper's grid, T and n, for ε and δ; the truth by linear programs over all constraints."""
    problem, beta, epsilon, delta = tiny(criterion), 0.02, 0.15, 0.1
    found = solve_meta(
        problem,
        epsilon=epsilon,
        delta=delta,
        beta=beta,
        grid="paper",
        choice="rule",
        violations=rule,
        method="theory",
        samples=20_000_000,
        violation_samples=10_000_000,
        seed=3,
    )
    scheme, count = found.scheme, len(found.points)
    last = found.points[-1]
    asked = theorems.requirements(problem, last.weight, epsilon=epsilon, delta=delta, points=count)
    assert last.solution.samples == math.ceil(asked.steps)
    rows = problem.enumerate()
    for point in found.points[:: max(1, count // 10)]:  # what the rule rests on
        truth = problem.value(point.solution.theta, point.weight, rows)
        assert (
            point.weight * abs(point.violations.total.value - truth.negative - truth.flow)
            <= epsilon / 4
        )
        assert truth.total <= minimum(problem, point.weight, rows).parts.total + epsilon / 4
    curve_of_f = curve(
        problem,
        np.geomspace(scheme.penalties[0] / 10, 10 * scheme.penalties[-1], 80),
        beta,
        scheme.offset,
    )
    chosen = found.points[found.chosen]
    reached = (
        problem.value(chosen.solution.theta, chosen.weight, rows).total + beta / chosen.penalty
    )
    assert reached <= curve_of_f.min() + epsilon
    assert (
        found.points[0].estimate.value > curve_of_f.min() + epsilon
    )  # a choice that could have failed


def test_beta_has_a_default_and_says_how_it_is_known(net):
    discounted = tiny(dp.Discounted(0.2))
    kappa = 0.1 / 0.8
    assert default_beta(discounted) == (
        pytest.approx(kappa * theorems.spread(discounted)),
        "proved",
    )
    average = tiny(dp.Average())
    beta, known = default_beta(average)
    span = dp.evaluate_exact(average.model, random_policy(average.model)).span
    assert known == "measured"
    assert beta == pytest.approx((0.1 + span) * theorems.spread(average))
    assert default_beta(average, span=2.0) == (
        pytest.approx(2.1 * theorems.spread(average)),
        "assumed",
    )
    endless = dp.load("four-queue", buffers=None)
    with pytest.raises(InputError, match="give beta"):
        default_beta(dp.dual.DualALP(endless, dp.dual.features.bands(endless, [(1, 2)])))
    shaped = dp.dual.DualALP(net, mixed_features(net), potential=lambda x: x.sum(axis=1))
    with pytest.raises(InputError, match="without potential"):
        default_beta(shaped)


def test_given_penalties_and_bad_words(net):
    problem = tiny(dp.Average())
    scheme = make_scheme(problem, epsilon=0.1, beta=1.0, grid=[3.0, 1.0])
    assert scheme.penalties == (1.0, 3.0)
    for more, words in (
        ({"grid": "square"}, "grid"),
        ({"grid": [0.0]}, "positive penalties"),
        ({"ratio": 1.0}, "exceed 1"),
        ({"beta": -1.0}, "beta must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta"),
    ):
        with pytest.raises(InputError, match=words):
            make_scheme(problem, **{"epsilon": 0.1, "beta": 1.0, **more})
    for more, words in (
        ({"choice": "luck"}, "choice"),
        ({"violations": "guess"}, "rule"),
        ({"method": "x"}, "solver"),
    ):
        with pytest.raises(InputError, match=words):
            solve_meta(problem, epsilon=0.1, **more)


# -- along the grid --------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_do_not_change_what_is_found(net):
    """One process, two processes, and a run that goes on from what it has: the same bytes."""
    problem = dp.dual.DualALP(net, mixed_features(net))
    penalties = [2.0 * 1.5**k for k in range(6)]
    settings = {"method": "adaptive", "samples": 4_000, "seed": 5}
    alone = solve_along(problem, penalties, **settings)
    told = []
    together = solve_along(
        problem, penalties, workers=2, done=lambda k, s: told.append((k, s.problem)), **settings
    )
    some = {k: alone[k] for k in (0, 1, 4)}
    seen = []
    resumed = solve_along(
        problem, penalties, known=some, done=lambda k, _: seen.append(k), **settings
    )
    with joblib.parallel_config(n_jobs=2):
        configured = solve_along(problem, penalties, known=some, **settings)
    for others in (together, resumed, configured):
        assert [s.theta.tobytes() for s in others] == [s.theta.tobytes() for s in alone]
        assert [s.parts.total for s in others] == [s.parts.total for s in alone]
    assert told == [(k, problem) for k in (5, 4, 3, 2, 1, 0)]
    assert seen == [5, 3, 2]


@pytest.mark.slow
def test_strands_go_down_from_their_largest_penalty(net):
    """The second largest is what `solve` finds from the largest.

    The first of the next strand starts afresh.
    """
    problem = dp.dual.DualALP(net, mixed_features(net))
    penalties = [2.0 * 1.5**k for k in range(meta.STRAND_LENGTH + 1)]
    found = solve_along(problem, penalties, method="adaptive", samples=4_000)
    warm = dp.dual.solve(
        problem, penalties[-2], method="adaptive", samples=4_000, start=found[-1].theta
    )
    cold = dp.dual.solve(problem, penalties[0], method="adaptive", samples=4_000)
    assert (found[-2].theta == warm.theta).all()
    assert (found[0].theta == cold.theta).all()


# -- by their policies -----------------------------------------------------------------------------


def test_the_cheapest_policy_is_chosen_exactly(net):
    problem = dp.dual.DualALP(net, mixed_features(net))
    found = solve_meta(
        problem,
        epsilon=1.0,
        beta=50.0,
        grid=[1.0, 20.0, 400.0],
        method="listed-lp",
        violations="listed",
        fallback=net.policy("lbfs"),
    )
    costs = [
        dp.evaluate_exact(net, solve_listed(problem, h).policy(net.policy("lbfs"))).cost
        for h in (1.0, 20.0, 400.0)
    ]
    assert found.chosen == int(np.argmin(costs))
    assert found.best.cost == pytest.approx(min(costs), rel=1e-9)
    assert found.advantage is None
    written = json.loads(json.dumps(found.to_json()))
    assert [row["cost"] for row in written["points"]] == pytest.approx(costs, rel=1e-9)
    for point in found.points:  # over all constraints F̂ is F
        assert point.estimate.value == pytest.approx(
            point.solution.parts.total + 50.0 / point.penalty, rel=1e-9
        )


def test_an_interrupted_run_of_the_meta_algorithm_goes_on(net, tmp_path, monkeypatch):
    """The two largest H are solved, then Ctrl-C: the best of them, and later nothing twice."""
    problem = dp.dual.DualALP(net, mixed_features(net))
    settings = {
        "epsilon": 1.0,
        "beta": 50.0,
        "grid": [1, 20, 400],
        "method": "listed-lp",
        "violations": "listed",
    }

    def interrupt(done, total, words):
        if "objective" in words and done == 2:
            raise KeyboardInterrupt

    whole = solve_meta(problem, **settings)
    folder = str(tmp_path / "run")
    cut = solve_meta(problem, folder=folder, progress=interrupt, **settings)
    assert cut.interrupted
    assert [point.penalty for point in cut.points] == [20.0, 400.0]
    assert cut.best.cost == min(point.outcome.cost for point in whole.points[1:])
    real, solved = meta.solve, []
    monkeypatch.setattr(
        meta, "solve", lambda *given, **more: solved.append(given[1]) or real(*given, **more)
    )
    again = solve_meta(problem, folder=folder, resume=True, **settings)
    assert solved == [(1.0, 1.0)]
    assert not again.interrupted
    assert (again.chosen, again.best.cost) == (whole.chosen, whole.best.cost)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["chosen"] == whole.chosen
    fewer = dp.dual.DualALP(net, dp.dual.features.bands(net, [(0, 2), (3, 8)]))
    with pytest.raises(dp.errors.RunError, match="another 'problem'"):
        solve_meta(fewer, folder=folder, resume=True, **settings)


def test_a_simulated_choice_is_paired_with_the_runner_up(net):
    problem = dp.dual.DualALP(net, mixed_features(net))
    judge = Judge("simulation", steps=60_000, seed=2)
    outcomes = [judged(solve_listed(problem, h), judge, net.policy("lbfs")) for h in (0.5, 30.0)]
    choice = choose(outcomes, judge)
    truth = [dp.evaluate_exact(net, o.policy).cost for o in outcomes]
    assert choice.chosen == int(np.argmin(truth))
    assert choice.best.cost != outcomes[choice.chosen].cost  # other random numbers
    paired, gain = choice.advantage, min(truth) - max(truth)
    assert paired.upper < 0
    assert abs(paired.value - gain) <= 5 * paired.half_width
    with pytest.raises(InputError, match="evaluation"):
        Judge("guess")


def test_a_curve_is_drawn(net, tmp_path):
    problem = dp.dual.DualALP(net, mixed_features(net))
    found = solve_meta(
        problem, epsilon=1.0, beta=5.0, grid=[1.0, 10.0], method="listed-lp", violations="listed"
    )
    figures.save(
        figures.curve(found.to_json()["points"], "four queues", {"optimum": 2.0}),
        tmp_path / "curve.svg",
    )
    drawn = (tmp_path / "curve.svg").read_text()
    assert drawn.count('<g id="axes_') == 3
    with pytest.raises(InputError, match="must end in"):
        figures.save(figures.curve(found.to_json()["points"], ""), tmp_path / "curve.txt")
