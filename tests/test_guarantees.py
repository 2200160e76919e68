"""The theorems as numbers for a plan: against exact costs, and against the formulas written out."""

import math

import numpy as np
import pytest

import dualplan as dp
from bank import mixed_features
from dualplan.core.errors import InputError
from dualplan.dual import features as families
from dualplan.dual import theorems
from dualplan.dual.guarantees import guarantees
from dualplan.dual.meta import solve_meta
from dualplan.dual.solvers import solve_listed


@pytest.mark.parametrize(
    "criterion", [dp.Average(), dp.Discounted(0.9)], ids=["average", "discounted"]
)
def test_the_right_hand_sides_hold_for_the_minimiser(net, criterion):
    """θ̂ within ε of the minimum costs no more than each theorem says, at penalties below and above
    κ.
    """
    problem = dp.dual.DualALP(net, mixed_features(net), criterion)
    spans, costs, found = [], [], []
    for penalty in (5.0, 100.0, 4000.0):
        solution = solve_listed(problem, penalty)
        policy = solution.policy()
        spans.append(dp.evaluate_exact(net, policy, criterion, everywhere=True).span)
        costs.append(dp.evaluate_exact(net, policy, criterion).cost)
    span = None if isinstance(criterion, dp.Discounted) else 3 * max(spans)
    for penalty, cost in zip((5.0, 100.0, 4000.0), costs, strict=True):
        told = guarantees(problem, penalty, epsilon=0.1, span=span)
        main = told.statements[0]
        assert cost <= main.bound + 1e-6
        assert main.bound == pytest.approx(sum(main.terms.values()))
        assert main.label == ("assumed" if span else "proved")
        found.append(main.bound)
    assert found[0] > found[2]  # far below κ the bound says little


def test_what_theory_asks_for(net):
    """T, n and K by the formulas of the corrected theorems, written out."""
    problem = dp.dual.DualALP(net, mixed_features(net), dp.Discounted(0.9))
    epsilon, delta, penalty, d = 0.5, 0.1, 50.0, len(problem.features)
    told = guarantees(problem, penalty, epsilon=epsilon, delta=delta)
    c1, c2, radius = d, 2 * 1.9 * d, problem.radius
    gradient = np.linalg.norm(problem.losses) + penalty * (c1 + c2)
    log = math.log(2 / delta)
    assert told.requirements["H"].steps == pytest.approx(
        (radius * gradient / (epsilon / 4) * (1 + 4 * math.sqrt(2 * log))) ** 2
    )
    span = radius * (c1 + c2) + 2
    assert told.requirements["H"].draws == pytest.approx(
        8 * (penalty * span / epsilon) ** 2 * math.log(4 / delta)
    )
    beta, v_max = 80 * theorems.spread(problem), theorems.largest_violation(problem)
    assert told.statements[1].constants["beta"] == pytest.approx(beta)
    geometric = told.requirements["geometric grid"].points
    assert geometric == math.ceil(math.log2(2 * beta / epsilon / math.sqrt(beta / v_max))) + 1
    assert told.requirements["paper's grid"].points == pytest.approx(
        8 * beta * v_max / epsilon**2, rel=0.05
    )
    written = told.to_json()
    assert set(written["statements"]) == {
        "thm:main_discounted",
        "thm:H_opt_discounted_cost",
        "cor:discounted_error_bound",
    }
    corollary = written["statements"]["cor:discounted_error_bound"]
    assert corollary["constants"]["per unit of distance"] == pytest.approx(8 / 2 + 80 * 2.4)


def test_the_corollary_bounds_the_distance_to_the_optimum(net):
    """Where ν* itself is among the features the minimiser's policy costs the optimum, but for b."""
    criterion = dp.Discounted(0.9)
    best = dp.solve_exact(net, criterion, tol=1e-9)
    features = dp.dual.features.concat(
        mixed_features(net),
        dp.dual.features.occupancies(net, [best.policy, net.policy("longer")], criterion),
    )
    problem = dp.dual.DualALP(net, features, criterion)
    solution = solve_listed(problem, 100.0)
    cost = dp.evaluate_exact(net, solution.policy(), criterion).cost
    told = theorems.error_bound(
        problem, 100.0, loss_range=8.0, optimum=best.value, distance=0.0, error=1e-6
    )
    assert cost <= told.bound
    assert told.bound == pytest.approx(best.value, rel=1e-5)


def test_what_theory_cannot_say(net):
    endless = dp.load("four-queue", buffers=None)
    with pytest.raises(InputError, match="no known bounds"):
        guarantees(
            dp.dual.DualALP(endless, dp.dual.features.bands(endless, [(1, 2)])), 3.0, epsilon=1.0
        )
    with pytest.raises(InputError, match="give span"):
        guarantees(dp.dual.DualALP(net, mixed_features(net)), 3.0, epsilon=1.0)
    lone = dp.dual.features.occupancies(net, [net.policy("lbfs")])
    with pytest.raises(InputError, match="any H will do"):
        guarantees(dp.dual.DualALP(net, lone), 3.0, epsilon=1.0, span=5.0)


def test_the_meta_theorem_needs_the_offset():
    """A small β without H₀ = κ: F is minimised exactly, and its θ̂ costs more than the theorem
    would say.
    """
    turn, stay = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    model = dp.TabularModel([turn, stay], [[1.0, 1.0], [0.0, 0.0]])
    features = families.table(model, np.array([[0.5, 1.0], [0.0, 0.0], [0.5, 0.0], [0.0, 0.0]]))
    problem = dp.dual.DualALP(model, features, dp.Average(), radius=3.0)
    options = {"epsilon": 0.02, "beta": 1e-3}
    listed = {"choice": "rule", "violations": "listed", "method": "listed-lp"}
    loose = solve_meta(problem, **options, **listed)
    cost = dp.evaluate_exact(model, loose.solution.policy()).cost
    stated = guarantees(problem, loose.solution.penalty[1], span=1.0, **options)
    assert cost > {s.name: s for s in stated.statements}["thm:H_opt_average_cost"].bound + 0.1
    kept = guarantees(
        problem, loose.solution.penalty[1], span=1.0, offset=loose.scheme.offset, **options
    )
    assert [s.name for s in kept.statements] == ["thm:main_average"]
    tight = solve_meta(problem, span=1.0, **options, **listed)
    stated = guarantees(
        problem, tight.solution.penalty[1], span=1.0, offset=tight.scheme.offset, **options
    )
    bound = {s.name: s for s in stated.statements}["thm:H_opt_average_cost"].bound
    assert dp.evaluate_exact(model, tight.solution.policy()).cost <= bound
