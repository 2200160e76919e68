"""The curve of least cost against a limit: dense linear programs, slopes, lines below, what a search
finds beside the exact curve, runs that go on.
"""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import linprog

import dualplan as dp
from dualplan.core.budgets import Clock
from dualplan.core.errors import DualplanError
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.results import Evaluation
from dualplan.exact import decomposition, programs
from dualplan.exact.levels import Levels
from dualplan.exact.operators import Sweeper
from dualplan.policies import Alternating
from dualplan.policies.saved import load_policy
from dualplan.search.contract import Candidate, Member, Search
from dualplan.search.limited.curves import Curve, Line, Point, cost_at, mixed
from dualplan.search.limited.listed_curves import halving
from dualplan.search.limited.lower_lines import priced_bound, under
from dualplan.search.limited.searched_curves import SearchedCurves
from dualplan.search.limited.step import Columns

GAMMA = 0.95
MEASURE = "rejected fraction 1"


@pytest.fixture(scope="module")
def door():
    return dp.load("admission", servers=2, room=6, arrivals=(1.0, 1.4), rejection=(0.0, 2.0))


@pytest.fixture(scope="module")
def small():
    return dp.load("four-queue", buffers=2)


class Dense:
    """The program of all pairs with dense matrices, as `solve_lp` does not make them."""

    def __init__(self, model, measure, gamma=1.0):
        states = [model.box.state(k) for k in range(model.box.count)]
        pairs = [(k, a) for k, x in enumerate(states) for a in np.flatnonzero(model.allowed(x))]
        start = np.zeros(len(states))
        start[model.box.index(model.start)] = 1.0
        balance = np.zeros((len(states), len(pairs)))
        self.losses = np.zeros(len(pairs))
        known = model.measure(measure)
        sums = Sweeper(model).pairs
        order = {
            (int(x), int(a)): k
            for k, (x, a) in enumerate(zip(sums.states, sums.actions, strict=True))
        }
        self.n = np.zeros(len(pairs))
        self.d = np.zeros(len(pairs))
        for j, (k, a) in enumerate(pairs):
            following = model.forward(states[k], int(a))
            balance[k, j] += 1.0
            for y, p in zip(following.states, following.probabilities, strict=True):
                balance[model.box.index(y), j] -= gamma * p
            self.losses[j] = model.loss(states[k], int(a))
            self.n[j] = sums.sums[order[k, int(a)]] @ known.numerator
            self.d[j] = sums.sums[order[k, int(a)]] @ known.denominator
        if gamma == 1.0:
            self.rows = np.vstack([balance, np.ones(len(pairs))])
            self.right = np.append(np.zeros(len(states)), 1.0)
        else:
            self.rows = balance
            self.right = start

    def least_cost(self, at_most):
        found = linprog(
            self.losses,
            A_ub=(self.n - at_most * self.d)[None],
            b_ub=[0.0],
            A_eq=self.rows,
            b_eq=self.right,
        )
        assert found.status == 0
        return found.fun

    def least_measure(self):
        """min nᵀu / dᵀu, with y = u·t and dᵀy = 1 (Charnes and Cooper)."""
        count = self.losses.size
        rows = np.hstack([self.rows, -self.right[:, None]])
        found = linprog(
            np.append(self.n, 0.0),
            A_eq=np.vstack([rows, np.append(self.d, 0.0)]),
            b_eq=np.append(np.zeros(len(rows)), 1.0),
            bounds=[(0, None)] * (count + 1),
        )
        assert found.status == 0
        return found.fun


# -- where states can be listed --------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(GAMMA)])
def test_the_exact_curve_is_that_of_dense_programs(door, criterion):
    gamma = 1.0 if isinstance(criterion, dp.Average) else GAMMA
    dense = Dense(door, MEASURE, gamma)
    found = dp.tradeoff(door, MEASURE, criterion, time=20)
    assert found.status is Status.SOLVED
    points = found.points
    assert len(points) == 13
    low = dense.least_measure()
    high = points[-1].at_most
    assert points[0].at_most == pytest.approx(low + 1e-4 * (high - low), rel=1e-5)
    for point in points[:: 1 if gamma == 1 else 4]:
        least = dense.least_cost(point.at_most)
        assert point.cost.value == pytest.approx(least, rel=3e-6)
        assert point.lower_bound <= least * (1 + 1e-9) + 1e-9
        assert point.measure.value <= point.at_most * (1 + 1e-5) + 1e-9
        own = dp.evaluate_exact(door, point.policy, criterion)
        assert own.cost == pytest.approx(point.cost.value, rel=1e-6)
        assert own.measures[MEASURE] == pytest.approx(point.measure.value, rel=1e-9)
    # without a limit nothing is cheaper than the last
    free = linprog(dense.losses, A_eq=dense.rows, b_eq=dense.right).fun
    assert points[-1].cost.value == pytest.approx(free, rel=3e-6)


def test_prices_are_slopes(door):
    """The curve is convex here (what is offered is the same for all policies), so a price lies
    between the slopes of the chords on both sides.
    """
    points = dp.tradeoff(door, MEASURE, time=20).points
    levels = np.array([point.at_most for point in points])
    costs = np.array([point.cost.value for point in points])
    slopes = -np.diff(costs) / np.diff(levels)
    assert (np.diff(slopes) < 1e-4 * slopes[0]).all()
    for k in range(1, len(points) - 1):
        assert slopes[k] * (1 - 1e-3) <= points[k].price <= slopes[k - 1] * (1 + 1e-3)


def test_a_decomposed_curve_is_the_same_and_its_levels_share_policies(small, monkeypatch):
    pairs = Sweeper(small).pairs
    level_costs = {}
    asked = []
    best_response = decomposition.best_response

    def counted(*given, **more):
        asked.append(1)
        return best_response(*given, **more)

    monkeypatch.setattr(decomposition, "best_response", counted)
    for most in (programs.MOST_WHOLE_PROGRAM_PAIRS, 0):
        monkeypatch.setattr(programs, "MOST_WHOLE_PROGRAM_PAIRS", most)
        levels = Levels(pairs, dp.Average(), "length 1", [], Clock(60.0))
        low, high = levels.ends()
        ends = np.linspace(low, high, 5)
        level_costs[most] = [levels.solve(level).solution for level in ends]
    whole, parts = level_costs.values()
    for one, other in zip(whole, parts, strict=True):
        assert other.method == "decomposed-lp"
        assert other.value == pytest.approx(one.value, rel=2e-5)
        assert other.lower <= one.upper + 1e-9
    shared = len(asked)
    asked.clear()
    for level in ends:
        programs.solve_lp(small, limits=[dp.Limit("length 1", float(level))], tol=5e-5)
    assert shared < len(asked)


def test_the_values_of_one_level_bound_the_others(small):
    levels = Levels(Sweeper(small).pairs, dp.Average(), "length 1", [], Clock(60.0))
    low, high = levels.ends()
    solved = levels.solve((low + high) / 2)
    proof = (solved.solution.values, solved.solution.limits[0].multiplier)
    for level in np.linspace(low, high, 6):
        bound = levels._bound(levels._program(float(level)), *proof)
        exact = dp.solve_lp(small, limits=[dp.Limit("length 1", float(level))])
        assert bound <= exact.upper + 1e-9
    assert levels._bound(levels._program(solved.at_most), *proof) == pytest.approx(
        solved.solution.lower, abs=1e-9
    )


def test_a_measure_that_cannot_be_changed_is_one_point():
    """One action: nothing to decide, nothing to trade. The law is (2/3, 1/3)."""
    chain = np.array([[[0.5, 0.5], [1.0, 0.0]]])
    model = dp.TabularModel(chain, np.array([[1.0], [4.0]]))
    (measure,) = [one.name for one in model.measures]
    (point,) = dp.tradeoff(model, measure, time=5).points
    assert point.at_most == pytest.approx(1 / 3)
    assert point.cost.value == pytest.approx(2.0)


def test_levels_halve_the_widest_gap():
    assert halving(5) == [0, 1, 0.5, 0.25, 0.75]
    assert sorted(halving(13)) == pytest.approx(np.linspace(0, 1, 13))


def test_what_the_clock_cuts_off_is_a_coarser_curve(small, monkeypatch):
    """Every point that is there is exact."""
    solve = Levels.solve
    count = []

    def slow(levels, at_most):
        count.append(1)
        if len(count) > 4:
            levels.clock.__dict__["allowed"] = 0.0
        return solve(levels, at_most)

    monkeypatch.setattr(Levels, "solve", slow)
    found = dp.tradeoff(small, "length 1", time=30)
    assert found.status is Status.TIME
    assert 4 <= len(found.points) <= 5
    for point in found.points:
        exact = dp.solve_lp(small, limits=[dp.Limit("length 1", point.at_most)])
        assert point.cost.value == pytest.approx(exact.value, rel=1e-5)


# -- the program over measured policies ------------------------------------------------------------


def _run(name, cost, measure, half=0.0, denominator=1.0):
    known = {"m": Interval(measure, measure - half, measure + half, 0.95)}
    return Evaluation(
        name, cost, cost - 10 * half, cost + 10 * half, 0.95, "simulation", Status.TIME,
        measures=known, denominators={"m": denominator},
    )  # fmt: skip


def _curves(runs):
    """A search that has measured policies with these runs."""
    model = SimpleNamespace(name="none", policies=())
    search = Search(model, dp.Average(), (), 0)
    policies = [SimpleNamespace(digest=run.policy, name=run.policy) for run in runs]
    search.columns = {
        p.digest: Member(Candidate(p, "given"), run) for p, run in zip(policies, runs, strict=True)
    }
    curves = SearchedCurves(search, ["m"], None, None, lambda _: None)
    curves.columns = Columns(search, 0)
    curves.named = curves._with_names(curves._members())
    curves._in_turn = lambda *_: None
    return curves


def test_points_are_mixtures_of_neighbouring_corners():
    """Three corners and a policy above the curve: costs by hand."""
    runs = [_run("a", 10.0, 1.0), _run("b", 6.0, 2.0), _run("c", 5.0, 4.0), _run("d", 9.0, 2.0)]
    curve = _curves(runs)._named_curves()[0]
    corners = [(1.0, 10.0), (2.0, 6.0), (4.0, 5.0)]
    for point in curve.points:
        by_hand = np.interp(point.at_most, *zip(*corners, strict=True))
        assert point.cost.value == pytest.approx(by_hand, abs=1e-9)
        assert point.measure.value == pytest.approx(point.at_most, abs=1e-9)
        assert "d" not in point.shares
        assert sum(point.shares.values()) == pytest.approx(1.0)
    assert [point.price for point in curve.points[:-1]] == pytest.approx([4.0] * 4 + [0.5] * 8)
    assert curve.points[-1].price == 0


def test_a_ratio_whose_denominator_differs_is_weighed_by_it():
    """Shares of time θ have the measure Σθn/Σθd."""
    runs = [_run("a", 10.0, 1.0, denominator=2.0), _run("b", 6.0, 2.0)]
    for point in _curves(runs)._named_curves()[0].points:
        share = point.shares.get("a", 0.0)
        measure = (2 * share + 2 * (1 - share)) / (2 * share + 1 - share)
        assert point.measure.value == pytest.approx(measure)
        assert measure <= point.at_most + 1e-9


def test_intervals_of_a_mixture_reach_from_end_to_end():
    runs = [_run("a", 10.0, 1.0, half=0.1), _run("b", 6.0, 2.0, half=0.02)]
    curve = _curves(runs)._named_curves()[0]
    for point in curve.points:
        assert point.measure.upper <= point.at_most + 1e-9  # the whole interval keeps the limit
        share = point.shares.get("a", 0.0)
        half = 10 * (0.1 * share + 0.02 * (1 - share))
        assert point.cost.half_width == pytest.approx(half)
    found = mixed([Interval(1.0, 0.5, 2.0, 0.9), Interval(3.0, 2.0, 3.5, 0.95)], [0.25, 0.75])
    assert (found.value, found.lower, found.upper) == pytest.approx((2.5, 1.625, 3.125))
    assert found.confidence == 0.9


def test_the_largest_of_the_lines_is_the_bound():
    known = Interval(1.0, 1.0, 1.0, 1.0)
    points = tuple(Point(b, None, {}, known, known, -np.inf, 0.0) for b in (0.0, 1.0, 3.0))
    lines = [Line(0.0, 2.0, "proved"), Line(2.0, 5.0, "proved")]
    found = under(Curve("m", points, (), exact=False), lines)
    assert [point.lower_bound for point in found.points] == [5.0, 3.0, 2.0]


def test_a_level_between_points_costs_what_lies_between_them():
    points = [{"at_most": b, "cost": {"value": c}} for b, c in ((1.0, 10.0), (3.0, 4.0))]
    assert cost_at({"points": points}, 2.0) == 7.0
    assert cost_at({"points": points}, 9.0) == 4.0
    assert cost_at({"points": points}, 0.5) is None


def test_a_line_is_below_the_exact_curve_and_touches_it(small):
    """λ(w) − w·b, with w the exact price at one level: equal to the optimum there, below
    elsewhere.
    """
    middle = dp.solve_lp(small, limits=[dp.Limit("length 1", 0.95)])
    price = middle.limits[0].multiplier
    zero = dp.Limit("length 1", 0.0)
    found = priced_bound(small, dp.Average(), [(zero, price)], time=3.0, seed=0)
    line = Line(price, found.value, found.kind)
    assert line.at(0.95) == pytest.approx(middle.value, abs=1e-4)
    for level in (0.88, 1.0, 1.1):
        exact = dp.solve_lp(small, limits=[dp.Limit("length 1", level)])
        assert line.at(level) <= exact.upper + 1e-9


# -- by search -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searched(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched") / "run"
    found = dp.tradeoff(small, "length 1", method="limits", time=25, folder=str(folder), seed=3)
    return folder, found


@pytest.mark.slow
def test_a_search_comes_near_the_exact_curve_and_its_lines_stay_below(small, searched):
    _, found = searched
    assert found.searches > 0
    excess = []
    for point in found.points[::3]:
        exact = dp.solve_lp(small, limits=[dp.Limit("length 1", point.at_most)])
        assert point.lower_bound <= exact.upper + 1e-9
        assert exact.lower <= point.cost.upper + 1e-9
        assert point.measure.upper <= point.at_most + 1e-9
        excess.append(point.cost.value / exact.value - 1)
    assert max(excess[1:]) < 0.05


@pytest.mark.slow
def test_the_policies_of_points_cost_what_is_said(small, searched):
    folder, found = searched
    for point in found.points[::4]:
        saved = load_policy(folder / point.file, small)
        assert saved.digest == point.policy.digest
        known = Judge()(small, saved, dp.Average())
        assert known.cost == pytest.approx(point.cost.value, abs=1e-6)
        assert known.measures["length 1"].value == pytest.approx(point.measure.value, abs=1e-6)
        if isinstance(saved, Alternating):
            assert sorted(point.shares.values()) == pytest.approx(sorted(saved.shares))


@pytest.mark.slow
def test_a_run_that_goes_on_is_never_above_the_one_before(small, searched):
    folder, found = searched
    before = found.to_json()["curves"][0]
    with pytest.raises(DualplanError, match="another 'measures'"):
        dp.tradeoff(
            small, "length 2", method="limits", time=2, folder=str(folder), resume=True, seed=3
        )
    again = dp.tradeoff(
        small, "length 1", method="limits", time=6, folder=str(folder), resume=True, seed=3
    )
    after = again.to_json()["curves"][0]
    for point in before["points"]:
        there = cost_at(after, point["at_most"])
        assert there is not None
        assert there <= point["cost"]["upper"] + 1e-9
    proved = [{(one["price"], one["at_zero"]) for one in run["lines"]} for run in (before, after)]
    assert proved[0] <= proved[1]
    known = {column.policy.digest: column.source for column in again.columns}
    assert known
    for column in found.columns:
        assert known.get(column.policy.digest, column.source) == column.source
    saved = sorted(path.name for path in folder.glob("length-1-*.npz"))
    assert saved == sorted(point.file for point in again.points)


def test_an_interrupted_search_hands_over_what_there_is(small):
    told = []

    def interrupt(_done, _total, words):
        told.append(words)
        if "at most" in words and "size" in words:
            raise KeyboardInterrupt

    found = dp.tradeoff(small, "length 1", method="limits", time=30, progress=interrupt)
    assert found.status is Status.INTERRUPTED
    for point in found.points:
        exact = dp.solve_lp(small, limits=[dp.Limit("length 1", point.at_most)])
        assert exact.lower <= point.cost.upper + 1e-9


@pytest.mark.slow
def test_intervals_of_simulated_curves_hold_the_exact_costs_of_their_policies():
    """50,625 states: too many for exact columns, few enough to check some of them."""
    model = dp.load("four-queue", buffers=14)
    found = dp.tradeoff(model, ["length 1", "length 2"], method="limits", time=20)
    checked = 0
    for column in found.columns:
        exact = dp.evaluate_exact(model, column.policy)
        assert column.run.lower <= exact.cost <= column.run.upper
        for name in found.measures:
            known = column.run.measures[name]
            # a queue that is always full has an interval without width, and sums are rounded
            assert known.lower - 1e-9 <= exact.measures[name] <= known.upper + 1e-9
        checked += 1
    assert checked >= 3
    for curve in found.curves:
        for point in curve.points:
            assert point.measure.upper <= point.at_most + 1e-9
            assert point.lower_bound <= point.cost.upper


# -- what is asked for -----------------------------------------------------------------------------


def test_mistakes_are_one_sentence(door, small):
    with pytest.raises(DualplanError, match="rejected fraction"):
        dp.tradeoff(door, "lost")
    with pytest.raises(DualplanError, match="needs a measure"):
        dp.tradeoff(door, [])
    with pytest.raises(DualplanError, match="named once"):
        dp.tradeoff(door, [MEASURE, MEASURE])
    with pytest.raises(DualplanError, match="method of a trade-off"):
        dp.tradeoff(door, MEASURE, method="lattice")
    with pytest.raises(DualplanError, match="discounted criterion"):
        dp.tradeoff(door, MEASURE, dp.Discounted(0.9), method="limits")
    with pytest.raises(DualplanError, match="name its folder"):
        dp.tradeoff(door, MEASURE, resume=True)
    large = dp.load("four-queue")
    with pytest.raises(DualplanError, match="discounted criterion"):
        dp.tradeoff(large, "length 1", dp.Discounted(0.9), time=1)


def test_a_result_is_read_at_a_level_and_shown(door):
    found = dp.tradeoff(door, [MEASURE, "mean in system"], time=20)
    assert found.measures == (MEASURE, "mean in system")
    second = found.curve("mean in system").points
    assert found.at(second[4].at_most * 1.0001, "mean in system") is second[4]
    assert found.at(0.99 * found.points[3].at_most) is found.points[2]
    with pytest.raises(DualplanError, match="the least is"):
        found.at(-1.0)
    with pytest.raises(DualplanError, match="measure of the trade-off"):
        found.curve("mean")
    html = found._repr_html_()
    assert html.count("<table>") == 2
    assert html.count("<tr>") == 2 + 2 * 13
    assert str(found).count("\n") == 2 + 2 * 13
    costs = {run.policy: run.cost for run in found.start}
    assert costs["admit-all"] == pytest.approx(
        dp.evaluate_exact(door, door.policy("admit-all")).cost
    )


# -- the command, the page -------------------------------------------------------------------------

SMALL_DOOR = ("admission", "--set", "servers=2", "--set", "room=6", "--set", "rejection=0,2")


@pytest.fixture
def saved(run, tmp_path):
    folder = tmp_path / "door"
    status, out, _ = run(
        "tradeoff", *SMALL_DOOR, "--measure", MEASURE, "--time", "9s", "--out", folder,
        "--figure", tmp_path / "door.png",
    )  # fmt: skip
    assert status == 0
    return folder, out


def test_the_command_prints_saves_shows_and_goes_on(run, saved, tmp_path):
    folder, out = saved
    assert "least cost against rejected fraction 1" in out
    assert "no policy costs less" in out
    assert "the curve there" in out
    assert (tmp_path / "door.png").read_bytes().startswith(b"\x89PNG")
    status, shown, _ = run("show", folder)
    assert status == 0
    assert shown.splitlines()[:17] == out.splitlines()[:17]
    status, text, _ = run("show", folder, "--json", "--figure", tmp_path / "again.svg")
    assert status == 0
    data = json.loads(text)
    assert data["task"] == "tradeoff"
    assert (tmp_path / "again.svg").exists()
    point = data["curves"][0]["points"][6]
    file = f"{folder}/{point['file']}"
    status, text, _ = run("evaluate", *SMALL_DOOR, "-p", file, "--method", "exact", "--json")
    assert json.loads(text)["cost"] == pytest.approx(point["cost"]["value"], rel=1e-6)
    status, text, _ = run(
        "tradeoff", *SMALL_DOOR, "--measure", MEASURE, "--time", "9s", "--out", folder,
        "--resume", "--json",
    )  # fmt: skip
    assert status == 0
    again = json.loads(text)["curves"][0]["points"][6]
    assert again["cost"]["value"] == pytest.approx(point["cost"]["value"], rel=1e-6)


@pytest.mark.slow
def test_a_search_prints_what_is_followed(run, searched):
    folder, found = searched
    status, out, _ = run("show", folder)
    assert status == 0
    assert "policies that are followed" in out
    assert re.search(r"P\d+, and P\d+ in [\d.]+%", out)
    assert found.model.name in out


def test_mistakes_of_the_command_are_one_sentence(run, saved, tmp_path):
    folder, _ = saved
    for words, said in (
        (("tradeoff", "admission", "--measure", "lost"), "lost"),
        (("tradeoff", "admission", "--measure", MEASURE, "--resume"), "--resume needs --out"),
        (("tradeoff", "admission", "--measure", MEASURE, "--figure", "a.gif"), ".png, .pdf or"),
        (("tradeoff", "admission", "--measure", MEASURE, "--out", folder), "already holds a run"),
        (("report", folder, "--tradeoff", folder), "leave the other folder out"),
        (("compare", folder, folder), "a policy for each limit"),
    ):
        status, out, err = run(*words)
        assert status == 2
        assert out == ""
        assert said in err
        assert err.count("\n") == 1


def test_the_page_of_a_tradeoff_has_its_curves(run, saved):
    folder, _ = saved
    status, _, _ = run("report", folder, "--time", "1s")
    assert status == 0
    page = (folder / "report.html").read_text()
    data = json.loads((folder / "result.json").read_text())
    assert page.count("<svg") == 2  # light and dark
    assert page.count('<th scope="row">') >= 13 + len(data["start"])
    for point in data["curves"][0]["points"]:
        assert point["file"] in page
    assert "dualplan tradeoff admission" in page
    assert f"--measure &#39;{MEASURE}&#39;" in page
    assert "map-data" not in page.partition("<script>")[0]


def test_the_page_of_a_policy_shows_the_curves_of_its_model(run, saved, tmp_path):
    folder, _ = saved
    found = tmp_path / "found"
    assert run("solve", *SMALL_DOOR, "--time", "2s", "--out", found)[0] == 0
    assert run("report", found, "--time", "1s", "--tradeoff", folder)[0] == 0
    page = (found / "report.html").read_text()
    assert "Cost against a limit" in page
    assert "found: optimal" in page
    other = tmp_path / "other"
    assert run("solve", "admission", "--time", "2s", "--out", other)[0] == 0
    status, _, err = run("report", other, "--time", "1s", "--tradeoff", folder)
    assert status == 2
    assert "another model" in err
