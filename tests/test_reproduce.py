"""`dualplan reproduce`: the rule for the exit status, the published figures, and every experiment
end to end.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

import dualplan as dp
from dualplan.cli.experiments import catalogue as experiments
from dualplan.cli.experiments import dual_mixing, eight_queue, lost_sales, measure, six_class
from dualplan.cli.experiments.four_queue import four_queue
from dualplan.cli.experiments.picture import draw_rows
from dualplan.cli.experiments.rows import (
    Figure,
    Outcome,
    Row,
    agreeing,
    below,
    failure,
    missed,
    verdict,
)
from dualplan.cli.tables import print_outcome
from dualplan.dual import features as families
from dualplan.primal.best_bound import best_bound
from dualplan.search import solve

EXACT, SIMULATED = Figure(4.73, 2, deterministic=True), Figure(21.78, 2, 0.16)
PNG = b"\x89PNG"


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "words", "fails"),
    [
        (Row("the same to two decimals", 4.7285, EXACT, 4.7284, 4.7286), "agrees", False),
        (Row("on the edge of rounding", 4.725, EXACT, 4.725, 4.725), "agrees", False),
        (Row("beyond the edge", 4.7249, EXACT, 4.7248, 4.72499), "missed by -0.01", True),
        (Row("above", 4.75, EXACT, 4.74, 4.76), "missed by +0.02", True),
        (Row("wide", 4.9, EXACT, 4.7, 5.1), "our interval is too wide to tell", False),
        (Row("without an interval", 4.8, EXACT), "missed by +0.07", True),
        (Row("intervals meet", 22.0, SIMULATED, 21.9, 22.1), "agrees", False),
        (Row("intervals do not meet", 22.1, SIMULATED, 22.0, 22.2), "differs by +0.32", False),
        (
            Row("intervals meet as ours is wide", 22.0, SIMULATED, 20.0, 24.0),
            "our interval is too wide to tell",
            False,
        ),
        (
            Row("a printed figure without error", 13.10, Figure(13.0, 1), 13.05, 13.15),
            "agrees",
            False,
        ),
        (
            Row(
                "known not to be reproducible",
                12.3,
                Figure(21.8, 1, reproducible=False),
                12.2,
                12.4,
            ),
            "not reproduced, differs by -9.5",
            False,
        ),
        (
            Row("too short and apart", 4.75, EXACT, 4.74, 4.76, trusted=False),
            "our run is too short to tell",
            False,
        ),
        (
            Row("too short and alike", 4.73, EXACT, 4.729, 4.731, trusted=False),
            "our run is too short to tell",
            False,
        ),
        (
            Row("too short beside a simulated figure", 30.0, SIMULATED, 29.9, 30.1, trusted=False),
            "our run is too short to tell",
            False,
        ),
        (Row("nothing of ours", published=EXACT), "", False),
        (Row("nothing from elsewhere", 1.0), "", False),
    ],
)
def test_what_agrees_and_what_is_missed(row, words, fails):
    assert verdict(row) == words
    assert missed(row) is fails


def test_one_sentence_about_all_that_is_missed():
    """None if nothing is; figures that were simulated elsewhere never fail."""
    good, bad = Row("a", 4.73, EXACT), Row("b", 5.0, EXACT, exact=True)
    assert failure([good, Row("c", 30.0, SIMULATED, 29.0, 31.0)]) is None
    sentence = failure([good, bad])
    assert (
        sentence
        == "a figure that is exact elsewhere was missed: b is 5.0000 exact, elsewhere 4.73."
    )
    assert failure([bad, good, bad]).startswith(
        "2 exact figures were missed: b is 5.0000 exact, elsewhere 4.73; b is"
    )


def test_how_a_cost_stands_to_another_method():
    for ours, word in ((21.0, "below"), (23.0, "above"), (21.9, "not to be told from")):
        row = Row("a", ours, None, ours - 0.1, ours + 0.1)
        assert below(row, SIMULATED) == word
        assert below(replace(row, trusted=False), SIMULATED) == "not to be told from"


def test_how_many_agree_and_why_others_cannot_be_told():
    rows = [
        Row("a", 4.73, EXACT),
        Row("b", 4.9, EXACT, 4.7, 5.1),
        Row("c", 4.73, EXACT, trusted=False),
        Row("d", 1.0),
    ]
    assert agreeing(rows) == (
        "1 of 3 figures that can be compared agree, and 1 cannot be told at the width of our "
        "intervals, and 1 cannot be told since our run is too short."
    )
    assert failure([Row("c", 9.0, EXACT, trusted=False)]) is None
    assert (
        Outcome("made-up", "made up", tuple(rows), (), {}).to_json()["rows"][2]["trusted"] is False
    )


@pytest.mark.parametrize("status", [dp.Status.TOO_SHORT, dp.Status.COMPLETED])
def test_rows_are_trusted_by_the_status_of_the_evaluation(monkeypatch, status):
    """Not by that of the search, which says why it has ended."""
    model, good = dp.load("four-queue", buffers=2), status is dp.Status.COMPLETED

    def run(*args, **more):
        return replace(dp.evaluate(*args, **more), status=status)

    def search(*args, **more):
        found = solve(model, policies=[model.policy("lbfs")], method=(), time=0.1)
        return replace(
            found, status=dp.Status.TIME, evaluation="simulated", evaluation_status=status
        )

    monkeypatch.setattr(measure, "evaluate", run)
    monkeypatch.setattr(measure, "improve", search)
    row = measure.simulated(
        "lbfs", model, model.policy("lbfs"), steps=20_000, seed=0, published=EXACT
    )
    found = measure.searched(model, time="1s", seed=0, published=EXACT)
    for each in (row, found):
        assert each.trusted is good
        assert (verdict(each) == "our run is too short to tell") is not good
        assert missed(each) is good
        assert ("too-short" in each.note) is not good
    assert measure.exactly("lbfs", model, model.policy("lbfs")).trusted


def test_the_column_of_ours_claims_no_interval_for_exact_figures(capsys, tmp_path):
    rows = (Row("a", 4.73, EXACT, 4.73, 4.73, exact=True), Row("b", 4.9, EXACT, 4.7, 5.1))
    print_outcome(Outcome("made-up", "made up", rows, (), {}), tmp_path)
    out = capsys.readouterr().out
    assert "95%" not in out
    assert "4.7300 exact" in out
    assert "4.90 [4.70, 5.10]" in out


def test_a_figure_for_a_table_of_any_shape(tmp_path):
    """Rows without a figure of ours, without one from elsewhere, and several networks."""
    rows = (
        Row("a", 1.0, EXACT, 0.9, 1.2, network="x", optimum=0.9),
        Row("b", 30.0, network="x"),
        Row("c", published=SIMULATED, network="y"),
        Row("bound", network="y", lower_bound=1.0),
    )
    draw_rows(Outcome("made-up", "made up", rows, (), {}), tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes()[:4] == PNG


# -- the experiments -------------------------------------------------------------------------------


@pytest.fixture
def brief(monkeypatch):
    """Searches that only judge one policy that they begin with and take the first bound: the search
    itself has tests of its own.
    """

    def first_bound(*args, **more):
        return best_bound(*args, **{**more, "time": 0.1})

    def judge(model, policies=(), **more):
        return solve(model, policies=[model.policy(next(iter(model.policies)))], method=(), **more)

    monkeypatch.setattr("dualplan.search.loop.best_bound", first_bound)
    monkeypatch.setattr("dualplan.cli.experiments.measure.solve", judge)


def rows_of(run, folder, name, *options):
    """Run a command with --json: what it prints is what it saves, and there is a picture."""
    status, out, err = run("reproduce", name, *options, "--out", folder, "--json")
    assert status == 0, err
    result = json.loads(out)
    assert result == json.loads((folder / "result.json").read_text())
    assert (folder / result["figure"]).read_bytes()[:4] == PNG
    assert result["experiment"] == name
    assert result["words"]
    assert not result["missed"]
    for row in result["rows"]:
        if row["ours"] is not None:
            assert row["lower"] <= row["ours"] <= row["upper"]
    return {(row["network"], row["name"]): row for row in result["rows"]}


@pytest.fixture(scope="module")
def mixing():
    """The experiment with one H."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dual_mixing, "DUAL_MIXING_PENALTIES", (10.0,))
        return dual_mixing.dual_mixing()


def test_the_published_mixing_experiment(mixing, monkeypatch, run, tmp_path):
    """Base policies to four decimals; their θ to two.

    The signed mixture below the published 13.00.
    """
    monkeypatch.setitem(experiments.EXPERIMENTS, "dual-mixing", lambda progress: mixing)
    rows = rows_of(run, tmp_path, "dual-mixing")
    base = [row for (_, name), row in rows.items() if name.startswith("soft longer")]
    assert [round(row["ours"], 4) for row in base] == [16.2950, 17.3926, 15.1535, 13.6525, 14.3266]
    assert rows["", "dual mixture, their θ"]["verdict"] == "agrees"
    assert rows["", "dual mixture, subgradient"]["upper"] <= 13.00
    assert round(rows["", "optimum"]["ours"], 4) == 8.1053


def test_a_wrong_published_figure_is_missed(mixing, monkeypatch, run, tmp_path):
    """Exit status 1, one sentence on stderr, and the results are saved all the same."""
    wrong = Figure(15.1536, 4, deterministic=True)
    rows = tuple(
        replace(r, published=wrong) if r.name == "soft longer (0.8, 0.8)" else r
        for r in mixing.rows
    )
    monkeypatch.setitem(
        experiments.EXPERIMENTS, "dual-mixing", lambda progress: replace(mixing, rows=rows)
    )
    status, out, err = run("reproduce", "dual-mixing", "--out", tmp_path)
    assert status == 1
    assert "missed by -0.0001" in " ".join(out.split())
    assert err.strip().endswith(
        "missed: soft longer (0.8, 0.8) is 15.1535 exact, elsewhere 15.1536."
    )
    assert json.loads((tmp_path / "result.json").read_text())["missed"] == [
        "soft longer (0.8, 0.8)"
    ]


def test_criss_cross(run, tmp_path, brief):
    """Both optima to three decimals, on two truncations; no policy below them, no bound above."""
    rows = rows_of(run, tmp_path, "criss-cross", "--time", "1s")
    for network, figure in (("imbalanced", 0.671), ("balanced", 0.843)):
        near, far = (rows[network, f"optimum, queues up to {n}"]["ours"] for n in (20, 30))
        assert round(far, 3) == figure
        assert abs(near - far) < 1e-5
        found = rows[network, "improve, 1s"]
        assert found["lower_bound"] <= far <= found["upper"]
        assert all(rows[network, name]["ours"] > far for name in ("lbfs", "c-mu", "max-pressure"))
        # served in turn without regard to class: two M/M/1 queues for server 1 together, then one
        assert rows[network, "c-mu"]["ours"] == pytest.approx(
            0.6 / 1.4 + 0.3 / ((1.0 if network == "balanced" else 1.5) - 0.3), abs=1e-4
        )


def test_six_class(run, tmp_path, brief):
    """Both disciplines; published figures beside the discipline that they are for."""
    rows = rows_of(run, tmp_path, "six-class", "--steps", 200_000, "--time", "1s")
    assert rows["nonpreemptive", "lbfs"]["published"]["value"] == 15.749
    assert rows["preemptive", "PPO"]["published"]["error"] == 0.208
    assert rows["preemptive", "PPO"]["ours"] is None
    assert rows["preemptive", "improve, 1s"]["ours"] > 9.93


def test_six_class_has_published_figures_for_its_parameters_only():
    assert six_class.known_for({"stations": 4})["preemptive"]["PPO"].value == 32.171
    assert six_class.known_for({})["nonpreemptive"]["lbfs"].value == 15.749
    assert six_class.known_for({"stations": 3}) == six_class.known_for({"arrival": 0.03}) == {}


def test_eight_queue(run, tmp_path, brief, monkeypatch):
    """One of the base policies: figures that are not reproduced are said to be so."""
    monkeypatch.setattr(
        eight_queue, "BASE_POLICY_COSTS", dict([*eight_queue.BASE_POLICY_COSTS.items()][:1])
    )
    rows = rows_of(run, tmp_path, "eight-queue", "--steps", 400_000, "--time", "1s")
    for p in eight_queue.BASE_POLICY_COSTS:
        assert rows["", f"{p}, reading 1"]["verdict"].startswith("not reproduced")
    assert rows["", "primal mixture of the three"]["published"]["value"] == 19.14


def test_what_is_said_of_the_readings_follows_from_the_rows():
    """Refuted, found, or too short to tell."""

    def said(*readings):
        rows = [
            Row(
                "p",
                figure.value + off,
                figure,
                figure.value + off - half,
                figure.value + off + half,
            )
            for off, half in readings
            for figure in eight_queue.BASE_POLICY_COSTS.values()
        ]
        return eight_queue.words_of([*rows, Row("improve", 7.0)])[0]

    refuted = said((-9.0, 0.1), (20.0, 0.1), (1.0, 0.1))
    assert (
        "cannot be reproduced under any reading tried; reading 3 comes nearest and contradicts"
        in refuted
    )
    assert "follow from reading 2; reading 2 comes nearest." in said(
        (-9.0, 0.1), (0.0, 0.1), (1.0, 0.1)
    )
    assert "too short to tell" in said((-9.0, 0.1), (3.0, 5.0), (1.0, 0.1))


def test_lost_sales(run, tmp_path, brief):
    """With a short lead time: rules above the optimum, Myopic-2 above it by less than Myopic."""
    rows = rows_of(run, tmp_path, "lost-sales", "--set", "lead_time=2", "--time", "1s")
    costs = {name.partition(",")[0]: row["ours"] for (_, name), row in rows.items()}
    assert costs["optimum"] < costs["Myopic-2"] < costs["Myopic"]
    assert all(row["published"] is None for row in rows.values())


def test_options_that_an_experiment_has_not_are_refused(run, tmp_path):
    """One sentence that says which it has, exit status 2, before any work."""
    for name, option, value in (
        ("dual-mixing", "--time", "3s"),
        ("dual-mixing", "--set", "buffers=2"),
        ("lost-sales", "--steps", 10),
        ("criss-cross", "--iterations", 3),
        ("figure-3", "--time", "3s"),
        ("six-class", "--gamma", 0.9),
    ):
        status, _, err = run("reproduce", name, option, value, "--out", tmp_path)
        assert status == 2
        assert f"{option} is not for {name}, which takes" in err
    for name, setting, word in (
        ("criss-cross", "buffers=3", "truncations of its own"),
        ("six-class", "discipline=preemptive", "both"),
        ("lost-sales", "capacity=9", "truncations of its own"),
    ):
        status, _, err = run("reproduce", name, "--set", setting, "--out", tmp_path)
        assert status == 2
        assert word in err
    assert "did you mean 'figure-3'" in run("reproduce", "figure3")[2]


def test_a_folder_that_cannot_be_made_is_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, err = run("reproduce", "dual-mixing", "--out", tmp_path / "file" / "x")
    assert status == 2
    assert "cannot be made for the results" in err


def test_every_experiment_has_a_command():
    assert set(experiments.EXPERIMENTS) == {
        "figure-3",
        "dual-mixing",
        "four-queue",
        "criss-cross",
        "six-class",
        "eight-queue",
        "lost-sales",
    }


# -- figure 3 --------------------------------------------------------------------------------------


def test_figure_3_in_small(monkeypatch, run, tmp_path):
    """Curves belong to the averaged iterates.

    With other buffers no line of the paper's plot stands beside ours.
    """

    def few(net, count):
        heuristics = families.occupancies(net, [net.policy("longer"), net.policy("lbfs")])
        return families.concat(heuristics, families.boxes(net, [[(0, 1), (2, 3)]] * 4))

    monkeypatch.setattr("dualplan.cli.experiments.figure_3.families.paper", few)
    rows = rows_of(
        run,
        tmp_path,
        "figure-3",
        "--set",
        "buffers=3",
        "--set",
        "dynamics=uniformized",
        "--set",
        "phantom=false",
        "--set",
        "full=block",
        "--iterations",
        400,
        "--steps",
        50_000,
    )
    printed, workable = json.loads((tmp_path / "result.json").read_text())["curves"]
    assert printed["steps"] == workable["steps"] == [0, 200, 400]
    assert printed["objective"][0] == workable["objective"][0]
    assert workable["violation"][-1] < printed["violation"][-1]
    assert all(row["published"] is None for row in rows.values())
    net = dp.load("four-queue", buffers=3)
    assert rows["", "lbfs"]["ours"] == pytest.approx(
        dp.evaluate_exact(net, net.policy("lbfs")).cost
    )
    assert rows["", "optimum"]["ours"] < min(rows["", name]["ours"] for name in ("longer", "lbfs"))


# -- the four-queue network ------------------------------------------------------------------------


def test_programs_on_values_beside_the_others(run, tmp_path):
    """On a small network: no policy below the optimum, no bound above it."""
    rows = {
        name: row
        for (_, name), row in rows_of(run, tmp_path, "four-queue", "--set", "buffers=3").items()
    }
    optimum = dp.solve_exact(dp.load("four-queue", buffers=3)).value
    costs = [
        row["ours"] for name, row in rows.items() if row["ours"] is not None and name != "optimum"
    ]
    bounds = [row["lower_bound"] for row in rows.values() if row["lower_bound"] is not None]
    assert len(costs) == 15
    assert len(bounds) == 5
    assert min(costs) >= optimum - 1e-4
    assert min(costs) == pytest.approx(optimum, rel=0.02)
    assert max(bounds) <= optimum + 1e-4
    assert max(bounds) == pytest.approx(optimum, rel=0.02)
    assert rows["longer"]["ours"] > rows["ALP, cubic"]["ours"]
    assert all(row["published"] is None for row in rows.values())


def test_programs_on_values_discounted():
    """The same table for the discounted criterion: costs from the start, and bounds on them."""
    outcome = four_queue(parameters={"buffers": 3}, criterion="discounted", gamma=0.95)
    rows = {row.name: row for row in outcome.rows}
    model = dp.load("four-queue", buffers=3)
    optimum = dp.solve_exact(model, dp.Discounted(0.95)).value
    assert not [name for name in rows if "average" in name]
    assert rows["lbfs"].ours == pytest.approx(
        dp.evaluate_exact(model, model.policy("lbfs"), dp.Discounted(0.95)).cost
    )
    for row in rows.values():
        assert row.optimum == pytest.approx(optimum, abs=1e-4)
        assert row.ours >= optimum - 1e-4
        assert row.lower_bound is None or row.lower_bound <= optimum + 1e-4
    assert rows["ALP, quartic"].ours == pytest.approx(optimum, rel=0.02)


def test_programs_on_values_without_end(monkeypatch):
    """Without end of states: drawn constraints, simulated costs.

    What fails says why, and bounds stay below costs.
    """
    monkeypatch.setattr("dualplan.cli.experiments.four_queue.DRAWN_STATES", 2_000)
    monkeypatch.setattr("dualplan.cli.experiments.four_queue.SOFT_PROGRAM_STATES", 300)
    rows = {row.name: row for row in four_queue(parameters={"buffers": None}, steps=60_000).rows}
    assert rows["lbfs"].published.value == 144.1
    assert rows["ALP, cubic"].optimum is None
    assert all(row.note for row in rows.values())
    bounds = [row.lower_bound for row in rows.values() if row.lower_bound is not None]
    assert len(bounds) == 2
    assert 18.55 <= bounds[0] < bounds[1] < 32
    assert sum(row.ours is not None and row.lower < row.ours for row in rows.values()) >= 8


# -- models and rules of the experiments -----------------------------------------------------------


def test_the_rule_of_the_eight_queues_by_hand():
    """Server by server at one state: queues 1, 3 of server 1 wait, none of server 2, queue 5 of
    server 3 alone.
    """
    model, x = eight_queue.in_turn(), np.array([2, 0, 5, 0, 1, 0, 0, 0])
    for shortest, alone, first, third in (
        (False, False, {1: 0.2, 2: 0.8}, {0: 0.4, 2: 0.6}),
        (True, True, {1: 0.8, 2: 0.2}, {2: 1.0}),
    ):
        found = eight_queue.soft_rule(model, (0.8, 0.5, 0.6), shortest, alone).probabilities(x)
        expected = np.zeros(64)
        for a, p in first.items():
            for c, q in third.items():
                expected[a + 16 * c] = p * q
        assert found == pytest.approx(expected)


def test_events_in_turn_are_a_law():
    """An arrival at 4 with .1, else at 1 with .1, else each server on its own: mean changes by
    hand.
    """
    model, x, a = eight_queue.in_turn(), np.array([1, 1, 0, 0, 3, 0, 0, 0]), 1 + 4 * 1 + 16 * 2
    law = model.forward(x, a)
    assert law.probabilities.sum() == pytest.approx(1.0)
    mu1, mu2, mu5 = 0.81 * 4 / 7.5, 0.81 * 2 / 7.5, 0.81 * 3 / 7.5
    drift = [0.09 - mu1, mu1 - mu2, mu2, 0.1, -mu5, mu5, 0, 0]
    assert law.probabilities @ (law.states - x) == pytest.approx(np.array(drift))


def test_myopic_2_by_enumeration():
    """Lead time 2: both costs summed out over all demands, state by state."""
    model = dp.load("lost-sales", lead_time=2, demand=1.5, capacity=6, max_order=3)
    table, pmf, cost = lost_sales.myopic_2(model).table, model.pmf, model.cost

    def left(i, d, a):
        return min(max(i - d, 0) + a, 6)

    def arrival(i, a, z):
        return sum(
            p * q * cost[left(left(i, d, a), e, z)]
            for d, p in enumerate(pmf)
            for e, q in enumerate(pmf)
        )

    def orders(i, a):
        return [z for z in range(4) if z + i + a <= 6 or z == 0]

    cheapest = {
        (i, a): min(arrival(i, a, z) for z in orders(i, a)) for i in range(7) for a in range(4)
    }
    for i, a in cheapest:
        both = [
            arrival(i, a, z) + sum(p * cheapest[left(i, d, a), z] for d, p in enumerate(pmf))
            for z in orders(i, a)
        ]
        chosen = table[model.box.index([i, a])]
        assert both[chosen] == pytest.approx(min(both), rel=1e-12)
