"""Saved runs: what their policies do, as rules, and side by side."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

import dualplan as dp
from dualplan.cli.compare import simulated
from dualplan.cli.folders import Source

MODEL = ("four-queue", "--set", "buffers=2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of the two kinds of `solve` and of `evaluate`, and files of policies."""
    root = tmp_path_factory.mktemp("runs")
    model = dp.load("four-queue", buffers=2)
    dp.solve(
        model,
        policies=[dp.solve_exact(model).policy],
        time=0.1,
        method=[],
        folder=str(root / "improved"),
    )
    dp.search.run_plan(
        dp.search.Plan("four-queue", set={"buffers": 2}, penalty=(100.0,)),
        folder=str(root / "dual"),
    )
    dp.evaluate(model, model.policy("longer"), steps=20_000, folder=str(root / "evaluated"))
    dp.compare(
        model, model.policy("lbfs"), model.policy("fbfs"), steps=20_000, folder=str(root / "two")
    )
    dp.evaluate(
        model,
        model.policy("longer"),
        dp.Discounted(0.9),
        steps=20_000,
        folder=str(root / "discounted"),
    )
    dp.save_policy(model.policy("c-mu"), root / "c-mu.npz")
    other = dp.load("four-queue", buffers=(2, 3, 2, 2))
    dp.save_policy(other.policy("longer"), root / "wider.npz")
    cross = dp.load("criss-cross")
    dp.save_policy(cross.policy("longer"), root / "cross.npz")
    dp.save_policy(cross.policy("lbfs"), root / "cross-lbfs.npz")
    return root


@pytest.fixture(scope="module")
def model():
    return dp.load("four-queue", buffers=2)


# -- show ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["improved", "dual", "evaluated", "two", "discounted"])
def test_show_prints_every_kind_of_run(run, runs, folder):
    status, out, _ = run("show", runs / folder)
    assert status == 0
    assert "{" not in out
    assert json.loads(run("show", runs / folder, "--json")[1])


@pytest.mark.parametrize("folder", ["improved", "dual", "evaluated"])
def test_show_says_what_a_policy_does(run, runs, model, folder):
    status, out, _ = run("show", runs / folder, "--state", "2,0,1,2", "--json")
    assert status == 0
    told = json.loads(out)["in_state"][0]
    policy = (
        model.policy("longer")
        if folder == "evaluated"
        else dp.load_policy(runs / folder / "policy.npz")
    )
    expected = {
        label: p
        for label, p in zip(model.actions, policy((2, 0, 1, 2)).tolist(), strict=True)
        if p > 0
    }
    assert told["labels"] == expected
    assert sum(a["probability"] for a in told["actions"]) == pytest.approx(1.0)


def test_show_uses_names_of_servers_and_classes(run, runs):
    _, out, _ = run("show", runs / "evaluated", "--state", "2 0 1 1")
    assert out == "longer in (2, 0, 1, 1): S1 serves 1, S2 serves 3\n"
    _, out, _ = run("show", runs / "evaluated", "--state", "2,0,0,2")
    assert (
        "S1 serves 1, S2 idles with probability 0.5; S1 serves 4, S2 idles with probability 0.5"
        in out
    )


@pytest.mark.parametrize("folder", ["improved", "dual", "evaluated", "discounted"])
def test_show_prints_rules(run, runs, folder):
    status, out, _ = run("show", runs / folder, "--rules", "--tol", "0.02")
    assert status == 0
    assert re.search(r"S2:\n.*serve", out)
    assert "of the decisions agree" in out


def test_the_rule_that_is_shown_has_its_cost(run, runs, model):
    told = json.loads(run("show", runs / "improved", "--rules", "--json")[1])["rules"][0]
    known = told["simplification"]
    best = dp.solve_exact(model, tol=1e-9)
    assert known["policy_cost"] == pytest.approx(best.value, abs=1e-6)
    assert 0 <= known["relative"] <= 0.01
    assert known["within"]


# -- compare ---------------------------------------------------------------------------------------


def test_compare_is_exact_where_states_are_few(run, runs, model):
    status, out, _ = run(
        "compare", runs / "improved", runs / "evaluated", runs / "c-mu.npz", "fbfs", "--json"
    )
    assert status == 0
    result = json.loads(out)
    policies = [
        dp.load_policy(runs / "improved" / "policy.npz"),
        *map(model.policy, ("longer", "c-mu", "fbfs")),
    ]
    costs = [dp.evaluate_exact(model, p).cost for p in policies]
    assert result["method"] == "exact"
    assert [row["cost"] for row in result["rows"]] == pytest.approx(costs, abs=1e-9)
    assert [row["difference"]["value"] for row in result["rows"][1:]] == pytest.approx(
        np.array(costs[1:]) - costs[0]
    )
    assert result["rows"][0]["difference"] is None


def test_compare_is_that_of_the_library(run, runs):
    """Three policies: five intervals, each at 1 − .05/5."""
    options = ("--steps", "40000", "--seed", "7", "--simulate")
    result = json.loads(run("compare", runs / "two", "longer", *options, "--json")[1])
    model = dp.load("four-queue", buffers=2)
    first, *others = (model.policy(name) for name in ("lbfs", "fbfs", "longer"))
    assert result["level"] == pytest.approx(0.99)
    for policy, row in zip(others, result["rows"][1:], strict=True):
        pair = dp.compare(model, policy, first, steps=40_000, seed=7, confidence=result["level"])
        assert row["difference"] == pair.difference.to_json()
        assert (row["cost"], row["lower"], row["upper"]) == (
            pair.first.cost,
            pair.first.lower,
            pair.first.upper,
        )
    assert result["rows"][0]["cost"] == pair.second.cost


def test_intervals_hold_together():
    """Of 40 comparisons of four policies with known costs, few have a difference outside.

    5% would be two.
    """
    model = dp.load("four-queue", buffers=1)
    sources = [Source(name, model.policy(name)) for name in ("longer", "lbfs", "c-mu", "random")]
    truth = [dp.evaluate_exact(model, s.policy).cost for s in sources]
    missed = 0
    for seed in range(40):
        rows = simulated(sources, dp.Average(), steps=16_000, seed=seed)["rows"]
        ends = [(row["lower"], row["upper"], cost) for row, cost in zip(rows, truth, strict=True)]
        ends += [
            (row["difference"]["lower"], row["difference"]["upper"], cost - truth[0])
            for row, cost in zip(rows[1:], truth[1:], strict=True)
        ]
        missed += any(not low <= value <= high for low, high, value in ends)
    assert missed <= 6  # binomial(40, 5%): more than 6 has probability 0.3%


def test_compare_without_bounds_prints_and_draws(run, runs, tmp_path):
    figure = tmp_path / "compared.png"
    status, out, _ = run(
        "compare",
        runs / "cross.npz",
        runs / "cross-lbfs.npz",
        "c-mu",
        "--steps",
        40_000,
        "--figure",
        figure,
    )
    assert status == 0
    assert "hold together with probability 95% (each with 99.00%)" in out
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_interrupted_pair_ends_the_command(run, runs, monkeypatch, tmp_path, form):
    """Two of the three pairs are not made, so no intervals hold together, and there is nothing to
    show.
    """
    made = []

    def cut(*args, **options):
        made.append(args)
        return replace(dp.compare(*args, **options), status=dp.Status.INTERRUPTED)

    monkeypatch.setattr("dualplan.cli.compare.compare_two", cut)
    figure = tmp_path / "compared.png"
    status, out, err = run(
        "compare",
        runs / "cross.npz",
        "lbfs",
        "c-mu",
        "longer-first",
        "--steps",
        20_000,
        "--figure",
        figure,
        "-q",
        *form,
    )
    assert (status, out, len(made)) == (130, "", 1)
    status, _, err = run("compare", runs / "cross.npz", "lbfs", "--steps", 20_000, *form)
    assert status == 130
    assert "interrupted before there was anything to show; nothing was saved." in err
    assert not figure.exists()


def test_an_interrupted_search_of_a_rule_ends_the_command(run, monkeypatch, tmp_path):
    def cut(*args, **options):
        return replace(
            dp.compare(*args, **options | {"steps": 20_000}), status=dp.Status.INTERRUPTED
        )

    cross = dp.load("criss-cross")
    dp.evaluate(cross, cross.policy("lbfs"), steps=20_000, folder=str(tmp_path / "run"))
    monkeypatch.setattr(sys.modules["dualplan.report.rules.readable"], "compare", cut)
    status, out, err = run("show", tmp_path / "run", "--rules")
    assert (status, out) == (130, "")
    assert "interrupted before there was anything to show; nothing was saved." in err


def test_the_criterion_is_that_of_the_run(run, runs, model):
    result = json.loads(run("compare", runs / "discounted", "lbfs", "--json")[1])
    assert (result["criterion"], result["gamma"]) == ("discounted", 0.9)
    cost = dp.evaluate_exact(model, model.policy("lbfs"), dp.Discounted(0.9)).cost
    assert result["rows"][1]["cost"] == pytest.approx(cost)
    average = json.loads(
        run("compare", runs / "discounted", "lbfs", "--criterion", "average", "--json")[1]
    )
    assert average["rows"][1]["cost"] == pytest.approx(
        dp.evaluate_exact(model, model.policy("lbfs")).cost
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluated",), "compare needs two policies"),
        (("evaluated", "wider.npz"), "class '2', buffer is 3, not 2"),
        (("evaluated", "cross.npz"), "name is 'criss-cross', not 'four-queue'"),
        (("evaluated", "discounted"), "different criteria"),
        (("evaluated", "=lungest"), "did you mean 'longer-first'"),
        (("nowhere", "evaluated"), "neither the folder of a run"),
        (("nothing.npz", "evaluated"), "there is no file"),
        (("evaluated", "=lbfs", "=--set", "=buffers=3"), "name the model as well"),
        (("evaluated", "=lbfs", "=--confidence", "=2"), "strictly between 0 and 1"),
    ],
)
def test_mistakes_of_compare(run, runs, arguments, words):
    given = [a[1:] if a.startswith("=") else str(runs / a) for a in arguments]
    status, out, err = run("compare", *given)
    assert status == 2
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


def test_mistakes_of_show(run, runs, tmp_path):
    for arguments, words in [
        ((runs / "evaluated", "--state", "1,2"), "has 4 integer coordinates"),
        ((runs / "evaluated", "--state", "1,2,3,9"), "outside the box"),
        ((runs / "evaluated", "--state", "one"), "takes whole numbers"),
        ((tmp_path, "--rules"), "holds no run"),
    ]:
        status, out, err = run("show", *arguments)
        assert (status, out) == (2, "")
        assert words in err
        assert err.count("\n") == 1


def test_a_policy_that_was_not_saved_is_named(run, runs, model, tmp_path):
    policy = dp.load_policy(runs / "improved" / "policy.npz")
    dp.evaluate(model, policy, steps=20_000, folder=str(tmp_path / "evaluated"))
    status, _, err = run("show", tmp_path / "evaluated", "--rules")
    assert status == 2
    assert "name the file it was saved in" in err
