"""Every instance, small and without end, through every command, with both criteria, and with a limit
where there is something to limit: a status, a cost, and never a traceback.
"""

import json
import math

import pytest

import dualplan as dp

# small settings of each; those without end stay so
SMALL = {
    "four-queue": ["buffers=2"],
    "criss-cross": [],
    "six-class": ["buffers=1"],
    "eight-queue": [],
    "tandem": ["queues=6", "servers=3"],
    "reentrant": ["classes=6", "stations=3"],
    "parallel-servers": [],
    "multi-item": ["items=2"],
    "lost-sales": ["lead_time=2", "demand=1.0"],
    "admission": ["room=12"],
    "forest": [],
    "garnet": ["states=12"],
    "sysadmin": ["machines=4"],
    "sysadmin, many": ["machines=30"],
}
CRITERIA = {"average": [], "discounted": ["--criterion", "discounted", "--gamma", "0.9"]}
SHORT = ["--time", "2s"]
STEPS = ["--steps", "20000"]


def arguments(name, criterion):
    settings = [word for pair in SMALL[name] for word in ("--set", pair)]
    return [name.partition(",")[0], *settings, *CRITERIA[criterion]]


def model_of(name):
    pairs = (pair.split("=") for pair in SMALL[name])
    return dp.load(name.partition(",")[0], **{key: json.loads(value) for key, value in pairs})


def answer(run, *words):
    """The JSON of a command that ended well."""
    status, out, err = run(*words, "--json")
    assert "Traceback" not in err
    assert status == 0, err
    return json.loads(out)


def refused(run, *words):
    """One sentence, and the exit status for wrong input."""
    status, _, err = run(*words, "--json")
    assert "Traceback" not in err
    assert status == 2
    assert err.startswith("dualplan: ")


@pytest.mark.slow
@pytest.mark.parametrize("criterion", sorted(CRITERIA))
@pytest.mark.parametrize("name", sorted(SMALL))
def test_solve_show_and_report(run, tmp_path, name, criterion):
    folder = str(tmp_path / "run")
    found = answer(run, "solve", *arguments(name, criterion), *SHORT, "--out", folder)
    assert dp.Status(found["status"]) is not dp.Status.INTERRUPTED
    assert math.isfinite(found["cost"])
    assert found["cost_lower"] <= found["cost"] <= found["cost_upper"]
    assert float(found["lower_bound"]) <= found["cost_upper"] + 1e-9
    count = model_of(name).box.count
    if count is not None and count <= 1_000:
        assert found["status"] == "optimal"
    assert run("show", folder)[0] == 0
    assert run("report", folder, "--time", "1s")[0] == 0
    assert "<html" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("name", sorted(SMALL))
def test_solve_with_a_limit(run, name):
    """On the first measure, twice what the first heuristic has."""
    model = model_of(name)
    policy = model.policy(next(iter(model.policies)))
    measure = model.measures[0].name
    value = dp.evaluate(model, policy, steps=20_000).measures[measure].upper
    if not math.isfinite(value):
        value = 5.0
    limit = f"{measure} <= {2 * value + 0.1:.6g}"
    found = answer(run, "solve", *arguments(name, "average"), *SHORT, "--limit", limit)
    assert math.isfinite(found["cost"])
    assert [row["measure"] for row in found["limits"]] == [measure]


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
@pytest.mark.parametrize("name", sorted(SMALL))
def test_evaluate_and_compare(run, name, criterion):
    policies = list(model_of(name).policies)
    words = arguments(name, criterion)
    for policy in policies:
        found = answer(run, "evaluate", *words, "-p", policy, *STEPS)
        assert found["status"] in {s.value for s in dp.Status}
        assert math.isfinite(found["cost"]) or found["status"] == "unstable"
    if len(policies) > 1:
        both = ["-p", policies[0], "-p", policies[1]]
        found = answer(run, "evaluate", *words, *both, *STEPS)
        assert found["difference"]["lower"] <= found["difference"]["upper"]


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
@pytest.mark.parametrize("name", sorted(SMALL))
def test_exact_where_states_can_be_listed_and_one_sentence_elsewhere(
    run, tmp_path, name, criterion
):
    model = model_of(name)
    words = ["exact", *arguments(name, criterion)]
    if model.box.count is None or model.box.count > 10**6:
        refused(run, *words)
        return
    folder = str(tmp_path / "run")
    found = answer(run, *words, "--out", folder)
    assert found["status"] == "solved"
    again = answer(run, "evaluate", *words[1:], "-p", folder, "--method", "exact")
    assert again["cost"] == pytest.approx((found["lower"] + found["upper"]) / 2, abs=1e-3)
    assert found["lower"] <= found["upper"] <= found["lower"] + 1e-4 * (1 + abs(found["lower"]))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_check(run, name):
    settings = [word for pair in SMALL[name] for word in ("--set", pair)]
    status, out, err = run("check", name.partition(",")[0], *settings)
    assert status == 0, err
    assert out
