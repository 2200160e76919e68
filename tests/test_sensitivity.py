"""Stationary laws and changed rates against closed forms and exact occupancies."""

import math

import numpy as np
import pytest

import dualplan as dp
from dualplan.core.errors import InputError
from dualplan.policies.tables import FunctionPolicy


def single_queue(arrival=0.3, service=0.5, buffer=None, **options):
    return dp.QueueingNetwork(
        [dp.QueueClass("q", "s", service, arrival, buffer)], name="single queue", **options
    )


# -- stationary laws -------------------------------------------------------------------------------


def test_a_queue_without_end_is_geometric():
    """M/M/1 with load ρ = .6: P(n) = (1 − ρ)ρⁿ, mean 1.5; at confidence .999 all of ten values lie
    in their intervals.

    (Ten intervals at .999 miss one with probability at most 1%.)
    """
    net, rho = single_queue(), 0.6
    (law,) = dp.evaluation.marginals(net, net.policy("longer"), seed=1, confidence=0.999)
    assert law.known == "measured"
    assert law.status is dp.Status.COMPLETED
    expected = (1 - rho) * rho ** np.arange(10)
    assert law.values[:10].tolist() == list(range(10))
    assert (law.lower[:10] <= expected).all()
    assert (expected <= law.upper[:10]).all()
    assert (law.upper - law.lower)[:10].max() < 0.02
    assert law.mean.lower <= rho / (1 - rho) <= law.mean.upper
    assert law.probabilities.sum() == pytest.approx(1.0)
    assert law.tail[0] == pytest.approx(1.0)


def test_computed_laws():
    """M/M/1/4: P(n) ∝ ρⁿ exactly; and the sums of a network's occupancy, state by state."""
    net, rho = single_queue(buffer=4), 0.6
    (law,) = dp.evaluation.marginals(net, net.policy("longer"))
    assert law.known == "computed"
    assert law.probabilities == pytest.approx(
        rho ** np.arange(5) / (rho ** np.arange(5)).sum(), abs=1e-9
    )
    four = dp.load("four-queue", buffers=(3, 2, 2, 3))
    run = dp.evaluate_exact(four, four.policy("lbfs"))
    found = dp.evaluation.marginals(four, [four.policy("lbfs")])
    assert [m.coordinate for m in found] == ["1", "2", "3", "4"]
    for i, m in enumerate(found):
        sums = dict.fromkeys(m.values.tolist(), 0.0)
        for number, mass in zip(run.reached, run.occupancy, strict=True):
            sums[int(four.box.state(int(number))[i])] += mass
        assert m.probabilities == pytest.approx(list(sums.values()), abs=1e-12)
        assert (m.lower == m.upper).all()
        assert m.mean.value == pytest.approx(run.measures[f"length {m.coordinate}"], abs=1e-8)


def test_measured_against_computed():
    """The same laws by simulation: of 28 intervals at .9999, all hold (they miss one with
    probability at most .28%).
    """
    net = dp.load("four-queue", buffers=(3, 2, 2, 3))
    policies = [net.policy("longer"), net.policy("max-pressure")]
    exact = dp.evaluation.marginals(net, policies)
    measured = dp.evaluation.marginals(
        net, policies, method="simulation", seed=3, steps=2_000_000, confidence=0.9999
    )
    for true, seen in zip(exact, measured, strict=True):
        assert (true.policy, true.coordinate) == (seen.policy, seen.coordinate)
        assert seen.values.tolist() == true.values.tolist()
        assert (seen.lower <= true.probabilities).all()
        assert (true.probabilities <= seen.upper).all()
        assert np.abs(seen.probabilities - true.probabilities).max() < 0.02


def test_wide_coordinates_are_counted_in_bins():
    """A queue of load .99 up to 1,000 customers: bins of 3, whose sums are those of the closed
    form.
    """
    net, rho = single_queue(0.396, 0.4, 1_000), 0.99
    (law,) = dp.evaluation.marginals(net, net.policy("longer"))
    assert law.width == 3
    weights = rho ** np.arange(1_001)
    expected = np.add.reduceat(weights / weights.sum(), np.arange(0, 1_001, 3))
    assert law.probabilities == pytest.approx(expected, abs=1e-8)


def test_no_law_of_what_grows():
    net = single_queue(0.5, 0.4)
    (law,) = dp.evaluation.marginals(net, net.policy("longer"), steps=500_000)
    assert law.status is dp.Status.UNSTABLE


def test_policies_that_are_not_compiled():
    net = single_queue(buffer=3)
    words = {"go": 0}
    policy = FunctionPolicy(net, lambda x: words["go"])
    assert policy.code is None
    (law,) = dp.evaluation.marginals(
        net, policy, steps=10_000, confidence=0.9999, method="simulation"
    )
    expected = 0.6 ** np.arange(4) / (0.6 ** np.arange(4)).sum()
    assert (law.lower <= expected).all()
    assert (expected <= law.upper).all()


def test_wrong_laws():
    net = single_queue()
    with pytest.raises(InputError, match="unknown coordinate"):
        dp.evaluation.marginals(net, net.policy("longer"), coordinates=["p"])
    with pytest.raises(InputError, match="steps"):
        dp.evaluation.marginals(net, net.policy("longer"), steps=3)
    with pytest.raises(InputError, match="confidence"):
        dp.evaluation.marginals(net, net.policy("longer"), confidence=2.0)


# -- changed rates ---------------------------------------------------------------------------------


def by_factor(found):
    return {point.factor: point for point in found.points}


def test_a_queue_with_other_rates():
    """M/M/1: the cost is ρ/(1 − ρ) at ρ = f·λ/μ or λ/(f·μ); changes are paired, and 1 changes
    nothing.

    Ten intervals at .999 miss one with probability at most 1%.
    """
    net = single_queue()
    found = dp.evaluation.sensitivity(
        net, net.policy("longer"), factors=(0.9, 1.0, 1.1), steps=800_000, seed=2, confidence=0.999
    )
    assert [s.rate for s in found] == ["arrival q", "service q"]
    for s, rho in zip(found, (lambda f: 0.6 * f, lambda f: 0.6 / f), strict=True):
        for f, point in by_factor(s).items():
            expected = rho(f) / (1 - rho(f))
            assert point.known == "measured"
            assert point.lower <= expected <= point.upper
            assert point.change.lower - 1e-12 <= expected - 1.5 <= point.change.upper + 1e-12
            assert point.upper - point.lower < 0.4
        assert by_factor(s)[1.0].change.half_width == 0.0
        assert s.base == by_factor(s)[1.0].cost
        assert s.effect == max(abs(p.change.value) for p in s.points)  # the paired change


def test_a_bounded_queue_is_computed():
    """M/M/1/4 with factor f: mean of P(n) ∝ ρⁿ, n up to 4.

    Rates that no longer fit into a step are no obstacle.
    """
    net = single_queue(0.35, 0.6, 4)
    (found,) = dp.evaluation.sensitivity(
        net, net.policy("longer"), ["arrival q"], factors=(0.5, 1.0, 2.0)
    )
    for f, point in by_factor(found).items():
        law = (f * 0.35 / 0.6) ** np.arange(5)
        expected = np.arange(5) @ law / law.sum()
        assert point.known == "computed"
        assert point.cost == pytest.approx(expected, abs=1e-8)
        assert point.lower <= expected + 1e-9
        assert point.upper >= expected - 1e-9


def test_too_much_work_is_unstable():
    net = single_queue(0.3, 0.32)
    (found,) = dp.evaluation.sensitivity(
        net, net.policy("longer"), ["arrival q"], factors=(1.0, 1.1), steps=200_000
    )
    last = by_factor(found)[1.1]
    assert last.status is dp.Status.UNSTABLE
    assert last.cost == np.inf
    assert found.effect == np.inf
    assert not math.isfinite(found.to_json()["points"][1]["cost"])


def test_too_much_work_beside_a_bounded_queue():
    """A buffer elsewhere does not help a queue without end: if its customers cost something, the
    cost is infinite.
    """

    def two(holding):
        return dp.QueueingNetwork(
            [
                dp.QueueClass("a", "s", 0.32, 0.3, holding=holding),
                dp.QueueClass("b", "t", 0.2, 0.1, 3),
            ]
        )

    (found,) = dp.evaluation.sensitivity(
        two(1.0), two(1.0).policy("longer"), ["arrival a"], factors=(1.2,), steps=100_000
    )
    assert (found.points[0].cost, found.points[0].known) == (np.inf, "computed")
    (found,) = dp.evaluation.sensitivity(
        two(0.0), two(0.0).policy("longer"), ["arrival a"], factors=(1.2,), steps=100_000
    )
    assert found.points[0].known == "measured"
    (found,) = dp.evaluation.sensitivity(
        two(1.0), two(1.0).policy("longer"), ["arrival b"], factors=(3.0,), steps=100_000
    )
    assert np.isfinite(found.points[0].cost)  # b turns them away


def test_no_change_is_known_against_an_infinite_cost():
    """The unchanged queue has a load of 1.1.

    At half the arrivals the cost is finite, and the change unknown.
    """
    net = single_queue(0.33, 0.3)
    (found,) = dp.evaluation.sensitivity(
        net, net.policy("longer"), ["arrival q"], factors=(0.5, 1.0), steps=100_000
    )
    assert np.isfinite(found.points[0].cost)
    assert np.isnan(found.points[0].change.value)
    assert found.effect == np.inf


def test_decisions_are_kept():
    """The cμ rule serves b first (cost × rate 0.42 against 0.40); with b slower by 10% a rule made
    anew would serve a.

    The kept rule still does as it did: its cost is that of the priority b, a on the changed
    network, computed apart.
    """

    def two(factor):
        return dp.QueueingNetwork(
            [
                dp.QueueClass("a", "s", 0.40, 0.12, 6, holding=1.0, penalty=3.0),
                dp.QueueClass("b", "s", 0.42 * factor, 0.12, 6, holding=1.0, penalty=3.0),
            ]
        )

    net, changed = two(1.0), two(0.9)
    (found,) = dp.evaluation.sensitivity(net, net.policy("c-mu"), ["service b"], factors=(0.9,))
    kept = dp.evaluate_exact(changed, dp.policies.priority(changed, ["b", "a"])).cost
    anew = dp.evaluate_exact(changed, changed.policy("c-mu")).cost
    assert abs(kept - anew) > 1e-3
    assert found.points[0].cost == pytest.approx(kept, abs=1e-8)
    assert found.base == pytest.approx(dp.evaluate_exact(net, net.policy("c-mu")).cost, abs=1e-8)


def test_tables_and_plain_functions_are_kept():
    """An optimal table on a changed network, against the same table made there.

    And a function that is not compiled.
    """
    net = dp.load("four-queue", buffers=3)
    best = dp.solve_exact(net, tol=1e-6).policy
    changed = dp.load("four-queue", buffers=3, arrivals=(0.084, 0.084))
    (found,) = dp.evaluation.sensitivity(net, best, ["arrivals"], factors=(1.05,))
    again = dp.policies.TablePolicy(changed, best.table)
    assert found.points[0].cost == pytest.approx(dp.evaluate_exact(changed, again).cost, abs=1e-8)
    single, words = single_queue(buffer=3), {"go": 0}
    policy = FunctionPolicy(single, lambda x: words["go"])
    (found,) = dp.evaluation.sensitivity(
        single, policy, ["service q"], factors=(1.1,), steps=10_000, confidence=0.9999
    )
    law = (0.6 / 1.1) ** np.arange(4)
    assert found.points[0].known == "measured"
    assert found.points[0].lower <= np.arange(4) @ law / law.sum() <= found.points[0].upper


def test_a_look_ahead_is_kept():
    """A look-ahead goes on with the rates it was made for: the cost is that of the table of its
    decisions.
    """

    def network(factor):
        return dp.QueueingNetwork(
            [
                dp.QueueClass("a", "s", 0.30 * factor, 0.12, 5, holding=1.0, penalty=3.0),
                dp.QueueClass("b", "s", 0.32, 0.12, 5, holding=1.0, penalty=3.0),
            ]
        )

    net, changed = network(1.0), network(1.5)
    basis = dp.primal.monomials(net, 2)
    weights = np.linspace(0.5, 1.5, len(basis))
    policy = dp.primal.GreedyPolicy(net, dp.primal.LinearValues(basis, weights))
    states = [net.box.state(k) for k in range(net.box.count)]
    table = dp.policies.TablePolicy(
        changed, np.array([policy.probabilities(x).argmax() for x in states])
    )
    (found,) = dp.evaluation.sensitivity(net, policy, ["service a"], factors=(1.5,))
    assert found.points[0].cost == pytest.approx(dp.evaluate_exact(changed, table).cost, abs=1e-8)
    anew = dp.primal.GreedyPolicy(
        changed, dp.primal.LinearValues(dp.primal.monomials(changed, 2), weights)
    )
    assert any((anew.probabilities(x) != policy.probabilities(x)).any() for x in states)


def test_common_random_numbers_help():
    """The paired interval of a small change is narrower than that of the cost itself."""
    net = dp.load("criss-cross", load="medium")
    (found,) = dp.evaluation.sensitivity(
        net, net.policy("lbfs"), ["service 3"], factors=(1.02,), steps=400_000
    )
    (point,) = found.points
    assert point.change.half_width < 0.6 * (point.upper - point.lower) / 2


def test_wrong_rates():
    net = single_queue()
    with pytest.raises(InputError, match="unknown rate"):
        dp.evaluation.sensitivity(net, net.policy("longer"), ["arrival p"])
    with pytest.raises(InputError, match="positive"):
        dp.evaluation.sensitivity(net, net.policy("longer"), factors=(0.0, 1.0))
    forest = dp.load("forest")
    with pytest.raises(InputError, match="no queueing network"):
        dp.evaluation.sensitivity(forest, forest.policy("random"))
