"""Policies beside the one that was found: rows that agree with exact costs and with each other."""

import json
import math

import numpy as np
import pytest
from scipy import stats

import dualplan as dp
from dualplan import primal
from dualplan.core.intervals import Interval
from dualplan.core.streams import Place
from dualplan.core.words import more_by
from dualplan.evaluation.compared import rows_of, same_policy, unpaired
from dualplan.evaluation.evaluate import evaluate_beside
from dualplan.evaluation.judge import Judge, exact_evaluation
from dualplan.policies.tables import TablePolicy
from dualplan.search.contract import Candidate, Search
from dualplan.search.duels import screen
from dualplan.search.last_evaluation import last_evaluation

STEPS = 600_000
# a 99.9% interval instead of the 95% that are reported: a truth outside of it has p = 0.001
WIDER = stats.norm.ppf(0.9995) / stats.norm.ppf(0.975)
OTHERS = ("c-mu", "fbfs", "longer")


@pytest.fixture(scope="module")
def net():
    return dp.load("four-queue", buffers=3)


@pytest.fixture(scope="module")
def exact(net):
    return {name: dp.evaluate_exact(net, net.policy(name)).cost for name in net.policies}


def holds(interval, truth):
    return abs(interval.value - truth) <= WIDER * interval.half_width + 1e-9


def test_rows_agree_with_exact_costs_and_with_each_other(net, exact):
    others = [net.policy(name) for name in OTHERS]
    found, rows = evaluate_beside(net, net.policy("lbfs"), others, steps=STEPS, seed=1)
    assert holds(found.interval, exact["lbfs"])
    for name, row in zip(OTHERS, rows, strict=True):
        assert row.how == "paired"
        assert row.evaluation.policy == name
        assert row.evaluation.cost == found.cost + row.difference.value
        assert holds(row.evaluation.interval, exact[name])
        assert holds(row.difference, exact[name] - exact["lbfs"])


def test_the_first_goes_on_alone(net):
    """Others take a part of the steps, and their ends are the sums of both ends."""
    others = [net.policy(name) for name in OTHERS]
    found, rows = evaluate_beside(net, net.policy("lbfs"), others, steps=STEPS, seed=1)
    assert found.steps == pytest.approx(STEPS, rel=0.01)
    for row in rows:
        assert row.evaluation.steps == pytest.approx(STEPS / 4, rel=0.01)
        assert row.evaluation.lower == found.lower + row.difference.lower
        assert row.evaluation.upper == found.upper + row.difference.upper


def test_a_width_that_is_reached_together(net):
    """All took the same steps: the others' own intervals serve, and costs still add up."""
    own = net.policy("lbfs")
    settings = {"relative_tol": 0.05, "steps": STEPS, "seed": 2}
    found, (row,) = evaluate_beside(net, own, [net.policy("fbfs")], **settings)
    assert found.status is dp.Status.REACHED
    assert found.steps == row.evaluation.steps < STEPS
    assert row.evaluation.cost == found.cost + row.difference.value
    alone = dp.evaluate(net, net.policy("fbfs"), steps=found.steps, seed=2)
    assert row.evaluation.half_width == pytest.approx(alone.half_width, rel=0.3)


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)])
def test_a_difference_is_that_of_compare(net, criterion):
    """With the first one's cost known, to the last bit; the row is that cost plus the difference."""
    a = net.policy("fbfs")
    b = net.policy("lbfs")
    known = exact_evaluation(net, dp.evaluate_exact(net, b, criterion))
    found, (row,) = evaluate_beside(net, b, [a], criterion, known=known, steps=60_000, seed=5)
    pair = dp.compare(net, a, b, criterion, steps=60_000, seed=5)
    assert found is known
    assert (
        row.difference.value
        == -dp.compare(net, b, a, criterion, steps=60_000, seed=5).difference.value
    )
    assert row.difference == pair.difference
    assert row.evaluation.cost == known.cost + row.difference.value
    assert row.evaluation.lower == known.lower + row.difference.lower


def test_controls_of_all(net, exact):
    """Fitted values of the first as control of each: narrower, and still about the costs."""
    own = net.policy("lbfs")
    control = primal.policy_values(
        net, own, primal.monomials(net, 2), samples=4_000, every=10, seed=7
    )
    others = [net.policy(name) for name in OTHERS]
    settings = {"steps": 400_000, "seed": 3}
    plain, _ = evaluate_beside(net, own, others, **settings)
    found, rows = evaluate_beside(net, own, others, controls=[control] * 4, **settings)
    assert found.half_width < plain.half_width
    for name, row in zip(OTHERS, rows, strict=True):
        assert holds(row.difference, exact[name] - exact["lbfs"])


def test_policies_that_do_the_same(net):
    """By their fingerprints, by their actions in all states, or by what they did."""
    own = net.policy("lbfs")
    table = TablePolicy(net, own.rows(net.box.states(np.arange(net.box.count))), name="listed")
    assert table.digest != own.digest
    assert same_policy(net, own, table)
    assert same_policy(net, own, net.policy("lbfs"))
    assert not same_policy(net, own, net.policy("fbfs"))
    _, (row,) = evaluate_beside(net, own, [table], steps=20_000)
    assert row.same
    assert (row.difference.value, row.difference.half_width) == (0.0, 0.0)


def test_functions_of_the_user_are_not_taken_for_each_other(net):
    one, other = (
        dp.policies.FunctionPolicy(
            net, lambda x, k=k: [float(a == k) for a in range(4)], name=str(k)
        )
        for k in (0, 1)
    )
    assert not same_policy(net, one, other)


# -- in a search -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(net, exact):
    """The last evaluation of a search that simulates, on a network whose costs are known."""
    patch = pytest.MonkeyPatch()
    patch.setattr("dualplan.core.budgets.MOST_EXACT_STATES", 0)
    patch.setattr("dualplan.search.last_evaluation.LEAST_FINAL_STEPS", 200_000)
    best = dp.solve_exact(net).policy
    try:
        search = Search(net, dp.Average(), (), 1)
        begin = [Candidate(net.policy(name), "heuristic") for name in net.policies]
        start = screen(search, begin, 20_000, place=Place.BEGINNING)
        search.best = screen(search, [Candidate(best, "found")])[0]
        known = last_evaluation(search, start, 60.0)
    finally:
        patch.undo()
    return known, dp.evaluate_exact(net, best).cost


def test_a_search_ends_with_rows_that_agree(ended, exact):
    known, own = ended
    assert holds(known.found.interval, own)
    assert {row.evaluation.policy for row in known.beside} == set(exact)
    for row in known.beside:
        truth = exact[row.evaluation.policy]
        assert holds(row.evaluation.interval, truth)
        assert holds(row.difference, truth - own)
    paired = [row for row in known.beside if row.how == "paired"]
    cheapest = sorted(exact, key=exact.get)[:3]
    assert {row.evaluation.policy for row in paired} == set(cheapest)
    for row in paired:
        assert row.evaluation.cost == known.found.cost + row.difference.value


def test_rows_are_read_as_they_were_written(ended):
    known, _ = ended
    result = {
        "policy": "found",
        **known.found.cost_to_json(),
        "start": [row.to_json() for row in known.beside],
    }
    for row, again in zip(known.beside, rows_of(json.loads(json.dumps(result))), strict=True):
        assert again.difference == row.difference
        assert (again.evaluation.cost, again.how) == (row.evaluation.cost, row.how)
        assert again.evaluation.measures.keys() == row.evaluation.measures.keys()


def test_beside_an_exact_optimum(monkeypatch):
    """Sweeps give the optimum, and heuristics are simulated beside it: exact cost plus paired
    difference.
    """
    net = dp.load("four-queue", buffers=3)
    truth = {name: dp.evaluate_exact(net, net.policy(name)).cost for name in net.policies}
    monkeypatch.setattr("dualplan.core.budgets.MOST_EXACT_STATES", 0)
    monkeypatch.setattr("dualplan.search.last_evaluation.BESIDE_EXACT_RELATIVE_WIDTH", 0.05)
    monkeypatch.setattr("dualplan.search.last_evaluation.BESIDE_EXACT_SECONDS", 2.0)
    monkeypatch.setattr("dualplan.search.last_evaluation.LEAST_FINAL_STEPS", 50_000)
    monkeypatch.setattr("dualplan.search.loop.BEGINNING_STEPS", 100_000)
    found = dp.solve(net, policies=[net.policy(name) for name in OTHERS], time=10)
    assert found.status is dp.Status.OPTIMAL
    assert found.evaluation.exact
    paired = [row for row in found.beside if row.how == "paired"]
    assert len(paired) == 3
    for row in paired:
        assert holds(row.evaluation.interval, truth[row.evaluation.policy])
        assert row.evaluation.half_width == pytest.approx(row.difference.half_width, rel=1e-3)


def test_where_states_are_few_every_row_is_exact(net, exact):
    found = dp.solve(net, time=5)
    for row in found.beside:
        assert row.evaluation.cost == pytest.approx(exact[row.evaluation.policy], rel=1e-6)
        assert row.how == "exact"
        assert row.difference.value == row.evaluation.cost - found.cost


def test_the_policy_to_begin_with_that_is_found(net):
    """It is the same, with a difference of exactly 0, also by another name."""
    best = dp.solve_exact(net).policy
    again = TablePolicy(net, best.rows(net.box.states(np.arange(net.box.count))), name="mine")
    found = dp.solve(net, policies=[again, net.policy("fbfs")], time=5)
    row = next(row for row in found.beside if row.evaluation.policy == "mine")
    assert row.same
    assert row.difference.value == 0.0
    assert row.evaluation.cost == found.cost


# -- words -----------------------------------------------------------------------------------------


def test_percentages_that_intervals_support():
    def words(value, half, other, confidence=0.95):
        return more_by(Interval(value, value - half, value + half, confidence), other)

    assert words(0.5, 0.1, 10.0) == "+5.0% ± 1.0%"
    assert words(0.05, 0.01, 10.0) == "+0.5% ± 0.1%"
    assert words(-0.005, 0.001, 10.0) == "−0.05% ± 0.01%"
    assert words(0.5, 0.6, 10.0) == "within error"
    assert words(0.5, 0.1, -10.0) == "+5.0% ± 1.0%"  # of a negative cost: dearer all the same
    assert words(0.5, 0.0, -10.0, 1.0) == "+5.0%"
    assert words(0.0, 0.0, 10.0) == "the same"
    assert words(0.5, 0.1, 0.0) == "0.5 ± 0.1"
    assert words(math.inf, 0.0, 10.0) == ""
    assert more_by(Interval(math.nan, -math.inf, math.inf, 0.95), 10.0) == ""


def test_two_runs_with_nothing_in_common(net, exact):
    """From end to end; only both exact are called so."""
    judge = Judge("simulation", steps=100_000)
    one, other = (judge(net, net.policy(n), dp.Average()) for n in ("fbfs", "lbfs"))
    row = unpaired(one, other)
    assert row.how == "unpaired"
    assert row.difference.lower == one.lower - other.upper
    assert holds(row.difference, exact["fbfs"] - exact["lbfs"])


def test_tables_fit_eighty_columns(run, monkeypatch, tmp_path):
    """The table of a search, and of a saved one; negative costs have the right sign."""
    monkeypatch.setenv("COLUMNS", "80")
    for model in (("four-queue", "--set", "buffers=2"), ("forest",)):
        status, out, _ = run("solve", *model, "--time", "2s", "--out", tmp_path / model[0])
        assert status == 0
        tables = [line for line in out.splitlines() if line[:1] in "┃│┏┡└"]
        assert len(tables) > 6
        assert max(map(len, tables)) <= 80
    assert "+77.4%" in out  # −0.73125 against −3.24
    assert run("show", tmp_path / "forest")[0] == 0
