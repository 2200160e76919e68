"""Plans in TOML and `dualplan solve`."""

import json
from dataclasses import replace

import numpy as np
import pytest

import dualplan as dp
from dualplan import primal
from dualplan.core.words import at_most
from dualplan.dual import features as families
from dualplan.dual.meta import solve_along
from dualplan.dual.solvers import MixturePolicy, solve
from dualplan.report.figures import curve
from dualplan.search.plans import Plan, make_features, run_plan
from dualplan.search.plans.standard import ranked
from dualplan.search.plans.weights import make_weights
from dualplan.values import test_functions

PLAN = """
model = "four-queue"
criterion = "discounted"
gamma = 0.9
penalty = [5.0, 60.0]
method = "{method}"
seed = 3
{more}

[set]
buffers = 2

[[features]]
family = "occupancies"
policies = ["longer", "lbfs"]

[[features]]
family = "boxes"
cuts = [[[0, 1], [2, 2]], [[0, 2]], [[0, 2]], [[0, 2]]]

[[features]]
family = "bands"
intervals = [[0, 2], [3, 8]]

[[features]]
family = "products"
ratios = [[0.5, 0.5, 0.5, 0.5]]
"""


def written(tmp_path, method="listed-lp", more=""):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(method=method, more=more))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["listed-lp", "sampled-lp", "adaptive", "paper"])
def test_a_plan_is_solved_and_its_policies_are_evaluated(tmp_path, run, solver):
    """Every field of the issue; violations and cost against the problem put together by hand."""
    status, out, err = run(
        "solve",
        written(tmp_path, solver, "" if solver == "listed-lp" else "samples = 20000"),
        "--json",
    )
    assert (status, err) == (0, "")
    found = json.loads(out)
    net = dp.load("four-queue", buffers=2)
    criterion = dp.Discounted(0.9)
    heuristics = [net.policy("longer"), net.policy("lbfs")]
    features = families.concat(
        families.occupancies(net, heuristics, criterion),
        families.boxes(net, [[(0, 1), (2, 2)], [(0, 2)], [(0, 2)], [(0, 2)]]),
        families.bands(net, [(0, 2), (3, 8)]),
        families.products(net, [[families.Truncated(0.5)] * 4]),
    )
    problem = dp.dual.DualALP(net, features, criterion)
    listed = problem.enumerate()
    assert found["features"] == len(features)
    assert found["cost"] == min(row["cost"] for row in found["tried"])
    assert [row["penalty"] for row in found["tried"]] == [5.0, 60.0]
    samples = {} if solver == "listed-lp" else {"samples": 20_000}
    solutions = solve_along(problem, [5.0, 60.0], method=solver, seed=3, **samples)
    for row, again in zip(found["tried"], solutions, strict=True):
        exact = problem.value(again.theta, row["penalty"], listed)
        assert row["objective"] == pytest.approx(exact.objective, rel=1e-9)
        assert (
            abs(row["violation_negative"] - exact.negative)
            <= 5 * row["violation_negative_error"] + 1e-9
        )
        assert abs(row["violation_flow"] - exact.flow) <= 5 * row["violation_flow_error"] + 1e-9
        assert row["samples"] == 0 if solver == "listed-lp" else 20_000
        cost = dp.evaluate_exact(net, MixturePolicy(features, again.theta), criterion)
        assert row["cost_lower"] <= cost.cost <= row["cost_upper"]
    assert {"status", "seconds", "seed"} <= set(found)


def test_a_saved_run_has_its_policy_and_is_not_done_again(tmp_path, run, monkeypatch):
    folder, plan = tmp_path / "run", written(tmp_path)
    status, out, _ = run("solve", plan, "--out", str(folder), "--json")
    assert status == 0
    first = json.loads(out)
    assert json.loads((folder / "result.json").read_text())["cost"] == first["cost"]
    assert len((folder / "trace.jsonl").read_text().splitlines()) == 2
    with monkeypatch.context() as patch:
        patch.setattr("dualplan.dual.meta.solve", None)  # whatever is solved again fails
        status, out, _ = run("solve", plan, "--out", str(folder), "--resume", "--json")
    assert status == 0
    assert len((folder / "trace.jsonl").read_text().splitlines()) == 2
    assert run("solve", plan, "--out", str(folder), "--resume", "--seed", "4")[0] == 2
    again = json.loads(out)
    changing = {"evaluation_seconds"}
    assert {k: v for k, v in again["tried"][0].items() if k not in changing} == {
        k: v for k, v in first["tried"][0].items() if k not in changing
    }
    assert run("solve", plan, "--out", str(folder))[0] == 2
    status, out, _ = run(
        "evaluate",
        "four-queue",
        "--set",
        "buffers=2",
        "-p",
        str(folder / "policy.npz"),
        "--criterion",
        "discounted",
        "--gamma",
        "0.9",
        "--method",
        "exact",
        "--json",
    )
    assert json.loads(out)["cost"] == pytest.approx(first["cost"], rel=1e-12)


def test_penalties_without_a_point_are_not_solved_again_either(tmp_path, monkeypatch):
    plan = Plan("four-queue", {"buffers": 1}, penalty=[5, 60])
    first = run_plan(plan, folder=str(tmp_path / "run"))
    monkeypatch.setattr("dualplan.dual.meta.solve", None)
    again = run_plan(plan, folder=str(tmp_path / "run"), resume=True)
    assert again.best.cost == first.best.cost


def test_the_standard_plan_beats_every_heuristic():
    """Four-queue, buffers 4: the policy found costs less than the best heuristic, and no less than
    the optimum.
    """
    result = run_plan(Plan("four-queue", {"buffers": 4}))
    net = result.problem.model
    heuristics = [dp.evaluate_exact(net, net.policy(name)).cost for name in net.policies]
    assert result.best.cost < min(heuristics) - 1e-3
    assert result.best.evaluation.upper >= dp.solve_exact(net).lower
    assert result.plan.solver == "listed-lp"


def test_options_of_the_command_replace_those_of_the_plan(tmp_path, run):
    status, out, _ = run(
        "solve",
        written(tmp_path),
        "--set",
        "buffers=2",
        "-H",
        "7",
        "--method",
        "sampled-lp",
        "--samples",
        "3000",
        "--seed",
        "5",
        "--sampling",
        "uniform",
        "--evaluation",
        "simulation",
        "--steps",
        "20000",
        "--fallback",
        "lbfs",
        "--json",
    )
    found = json.loads(out)
    assert status == 0
    assert [
        found[key] for key in ("solver", "penalty", "samples", "seed", "sampling", "evaluation")
    ] == ["sampled-lp", 7.0, 3000, 5, "uniform", "truncated"]
    assert found["constants_known"] == "computed"
    assert found["cost_lower"] < found["cost"] < found["cost_upper"]


def test_the_table_names_the_best_penalty(tmp_path, run):
    status, out, _ = run("solve", written(tmp_path))
    assert status == 0
    assert "best: H =" in out
    assert out.count(" *") == 1


PAPER = """
model = "four-queue"
set = {buffers = 2}
method = "paper"
features = [{family = "bands", intervals = [[0, 8]]}]
[options]
"""
BAD = {
    'penalti = 3.0\nmodel = "four-queue"': "did you mean 'penalty'?",
    "seed = 1": "names no model",
    'model = "four-queue"\npenalty = -1.0': "penalty must be a positive number",
    'model = "four-queue"\npenalty = "high"': "penalty must be a positive number",
    'model = "four-queue"\nmethod = "adaptiv"': "did you mean 'adaptive'?",
    'model = "four-queue"\ncriterion = "discounted"': "needs gamma",
    'model = "four-queue"\ngamma = 0.9': "belong to criterion 'discounted'",
    'model = "four-queue"\nfeatures = "standart"': "did you mean 'standard'?",
    'model = "four-queue"\nset = {buffers = 2}\nradius = 0.001': "radius must be >=",
    'model = "four-queue"\nset = {buffers = 2}\nsampling = "unifrom"': "did you mean 'uniform'?",
    'model = "four-queue"\nset = {buffers = 2}\nsamples = -4': "samples must be a positive integer",
    'model = "four-queue"\nset = {buffers = 2}\nevaluation = "exakt"': "did you mean 'exact'?",
    'model = "four-queue"\nset = {buffers = 2}\nfallback = "lbsf"': "did you mean 'lbfs'?",
    'model = "four-queue"\nset = {buffers = 2}\nlimits = ["lenght 1 <= 3"]': (
        "did you mean 'length 1'?"
    ),
    "model = 3": "model must be a name",
    'model = "four-queue"\nset = [1]': "set must be a table",
    'model = "four-queue"\nlimits = "length 1 <= 3"': "limits must be a list of texts",
    'model = "four-queue"\nseed = 1180591620717411303424': "seed must be a whole number from 0",
    'model = "four-queue"\nconfidence = 2.0': "confidence must be a number between 0 and 1",
    'model = "four-queue"\npenalty_negative = 0': "penalty_negative must be a positive number",
    'model = "four-queue"\nmethod = "paper"\noptions = {batch = 0}': (
        "batch must be a whole number"
    ),
    'model = "four-queue"\nmethod = "paper"\noptions = {step_size = -1.0}': (
        "step_size must be a positive number"
    ),
    'model = "four-queue"\nmethod = "paper"\nsamples = 10\noptions = {batch = 11}': (
        "exceeds the 10 samples allowed"
    ),
    'model = "four-queue"\nmethod = "listed-lp"\nsamples = 10': "draws nothing",
    'model = "four-queue"\nset = {buffers = inf}\nevaluation = "exact"': "infinitely many states",
    'model = "four-queue"\ncriterion = "discounted"\ngamma = 0.9\nstart = [[[0, 0, 0, 0], "a"]]': (
        "a start is a state"
    ),
    'model = "four-queue"\nfeatures = [{family = "bands", intervals = [[3]]}]': (
        "a list of intervals"
    ),
    'model = "four-queue"\nfeatures = [{family = "occupancies", policies = "lbfs"}]': (
        "a list of names"
    ),
    'model = "four-queue"\nfeatures = [{family = "tiles", policy = "lbfs", cuts = [[[0, 2]]]}]': (
        "4 coordinates, got 1"
    ),
    'model = "four-queue"\n[[features]]\nfamily = "boxs"': "did you mean 'boxes'?",
    'model = "four-queue"\n[[features]]\nfamily = "boxes"\ncut = 3': "did you mean 'cuts'?",
    'model = "four-queue"\n[[features]]\nfamily = "tiles"\npolicy = "lbfs"': "lack 'cuts'",
    'model = "four-queue"\nset = {buffers = 2}\n[options]\nbach = 3\n': "takes no options",
    'model = "four-queue"\nset = {buffers = 2}\nmethod = "adaptive"\n[options]\nbach = 3\n': (
        "did you mean 'batch'?"
    ),
    PAPER + "epsilon = 0.1\ndelta = 2.0": "delta must lie strictly between",
    PAPER + "epsilon = 0.1\ndelta = 0.1": "more than the 2,000,000 samples allowed",
    'model = "four-queue"\ncriterion = "discounted"\ngamma = 0.9\nset = {buffers = 2}\n'
    "start = [[[0, 0, 0, 0], 0.4]]": "sums to 0.4, not 1",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_plans_get_one_sentence(tmp_path, run, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    status, out, err = run("solve", str(path), "--json")
    assert (status, out) == (2, "")
    assert BAD[text] in err.replace("\n", " ")
    assert err.startswith("dualplan: ")
    assert err.count("\n") == 1


def test_models_without_end_with_features_of_their_own():
    unbounded = dp.load("four-queue", buffers=None)
    laws = [{"family": "products", "ratios": [[0.9, 0.5, 0.9, 0.5], [0.95, 0.8, 0.95, 0.8]]}]
    features = make_features(unbounded, laws)
    problem = dp.dual.DualALP(unbounded, features)
    solution = solve(problem, 50.0, method="sampled-lp", samples=5_000)
    assert solution.theta.sum() == pytest.approx(1.0, abs=1e-6)
    assert solution.parts.flow_error > 0


def test_a_plan_on_states_beyond_count():
    """10³⁰ states, decisions per server: trees fitted to two heuristics, times their choices.

    a policy and its cost.
    """
    trees = {"family": "trees", "policies": ["longer", "lbfs"], "samples": 300}
    plan = Plan(
        "reentrant",
        {"buffers": 9},
        features=[trees],
        penalty=[100.0],
        method="sampled-lp",
        samples=300,
        steps=30_000,
        fallback="lbfs",
    )
    result = run_plan(plan)
    assert dp.load("reentrant", buffers=9).box.count > 10**30
    assert len(result.problem.features) == 4
    assert result.best.solution.theta.sum() == pytest.approx(1.0, abs=1e-6)
    known = result.best.evaluation
    assert known.lower < known.cost < known.upper
    assert 0 < result.best.cost < 270
    with pytest.raises(
        dp.errors.InputError, match="samples of features 'trees' must be a positive integer"
    ):
        make_features(dp.load("reentrant"), [{**trees, "samples": 0}])


def test_a_plan_without_end_of_states_has_a_proved_bound():
    """Tandem queues: the bound lies below the cost of a policy, and is that of quadratic functions
    on cells.
    """
    laws = [{"family": "products", "ratios": [[0.6, 0.6], [0.8, 0.8]]}]
    given = {"queues": 2, "servers": 1, "decisions": "joint"}
    plan = Plan(
        "tandem",
        given,
        features=laws,
        penalty=20.0,
        method="sampled-lp",
        samples=2_000,
        steps=200_000,
    )
    result = run_plan(plan)
    model = dp.load("tandem", **given)
    same = primal.orthant_bound(model, primal.monomials(model, 2)).lower_bound.value
    assert result.bound.kind == "proved"
    assert 0 < result.bound.value == pytest.approx(same)
    assert result.bound.value < dp.evaluate(model, model.policy("lbfs"), steps=400_000).upper


@pytest.mark.parametrize(
    ("model", "parameters"), [("garnet", {}), ("forest", {}), ("six-class", {"buffers": 1})]
)
def test_the_standard_plan_of_other_models(model, parameters):
    """One heuristic alone, or some that come to rest in several classes: the plan is as good as the
    best at least.
    """
    result = run_plan(Plan(model, parameters, penalty=1e4))
    net = result.problem.model
    costs = []
    for name in net.policies:
        try:
            costs.append(dp.evaluate_exact(net, net.policy(name)).cost)
        except dp.errors.ModelError:  # several recurrent classes
            continue
    assert result.best.cost <= min(costs) + 1e-6


def test_limits_are_looked_at_under_the_policy():
    """Of several penalties one whose policy keeps the limit is the best.

    If none does, that is said.
    """
    net = dp.load("four-queue", buffers=2)
    kept = dp.evaluate_exact(net, net.policy("longer")).measures["lost fraction"]
    plan = Plan(
        "four-queue",
        {"buffers": 2},
        features="standard",
        limits=(f"lost fraction <= {kept + 0.01}",),
    )
    rows = run_plan(plan).to_json()
    assert rows["limits"][0]["kept"] == (rows["limits"][0]["value"] <= kept + 0.01 + 1e-9)
    fine = [row["cost"] for row in rows["tried"] if row["limits"][0]["kept"]]
    assert rows["cost"] == min(fine)
    impossible = run_plan(
        Plan("four-queue", {"buffers": 2}, penalty=50.0, limits=("length 1 <= 0.001",))
    ).to_json()
    assert not impossible["limits"][0]["kept"]


def test_small_budgets_are_kept_and_have_honest_errors():
    net = dp.load("four-queue", buffers=1)
    problem = dp.dual.DualALP(net, families.boxes(net, [[(0, 0), (1, 1)]] * 4))
    listed = problem.enumerate()
    for solver, budget in (("sampled-lp", 6), ("adaptive", 25), ("adaptive", 20_001), ("paper", 7)):
        found = solve(problem, 3.0, method=solver, samples=budget)
        assert found.samples <= budget
        exact = problem.value(found.theta, 3.0, listed)
        assert found.parts.flow_error > 0
        assert abs(found.parts.flow - exact.flow) <= 5 * found.parts.flow_error
        assert abs(found.parts.negative - exact.negative) <= 5 * found.parts.negative_error + 1e-12


def test_a_policy_chosen_by_simulation_is_simulated_again(tmp_path):
    """Other random numbers for what is reported, and intervals for its measures and limits."""
    plan = Plan(
        "four-queue",
        {"buffers": 2},
        penalty=[5.0, 60.0],
        evaluation="simulation",
        steps=40_000,
        limits=("length 1 <= 1.9",),
    )
    result = run_plan(plan)
    tried, best = result.outcomes[result.along.chosen], result.best
    assert tried.cost == min(outcome.cost for outcome in result.outcomes if outcome.excess == 0)
    assert best.solution is tried.solution
    assert best.cost != tried.cost
    row = result.to_json()["limits"][0]
    assert row["lower"] < row["value"] < row["upper"] <= 1.9
    assert row["kept"]
    exact = dp.evaluate_exact(result.problem.model, best.policy)
    assert abs(best.cost - exact.cost) <= 10 * best.evaluation.half_width


def test_a_plan_has_a_certificate_a_lower_bound_and_a_gap(tmp_path, run):
    """Against the exact optimum and cost; `show` prints the same, and draws the curve."""
    folder, net = tmp_path / "run", dp.load("four-queue", buffers=2)
    for criterion, words in (
        (dp.Average(), []),
        (dp.Discounted(0.9), ["--criterion", "discounted", "--gamma", "0.9"]),
    ):
        target = folder / type(criterion).__name__
        status, out, _ = run(
            "solve",
            "four-queue",
            "--set",
            "buffers=2",
            "-H",
            3,
            "-H",
            30,
            *words,
            "--out",
            target,
            "--json",
        )
        assert status == 0
        found, optimum = json.loads(out), dp.solve_exact(net, criterion, tol=1e-8)
        entry = found["certificate"]["entries"]["cost"]
        assert entry["lower"] <= found["cost"] <= entry["upper"]
        assert entry["label"] == ("measured" if isinstance(criterion, dp.Average) else "proved")
        assert found["lower_bound_kind"] == "proved"
        assert found["lower_bound"] <= optimum.upper
        assert found["lower_bound"] == pytest.approx(optimum.value, rel=1e-3)
        assert found["gap"] == pytest.approx(
            (found["cost_upper"] - found["lower_bound"]) / found["cost_upper"]
        )
        fewer = json.loads(
            run(
                "solve",
                "four-queue",
                "--set",
                "buffers=2",
                "-H",
                3,
                *words,
                "--sweeps",
                3,
                "--json",
            )[1]
        )
        assert fewer["lower_bound"] < found["lower_bound"] - 1e-3
        status, out, _ = run("show", target, "--json", "--figure", tmp_path / "curve.png")
        assert json.loads(out) | {"folder": str(target)} == found
        assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
        status, out, _ = run("show", target)
        assert (
            f"no policy costs less than {found['lower_bound']:.6g} (proved, by 1,000 sweeps" in out
        )
        assert f"the gap is at most {at_most(found['gap'])}" in out


def test_a_plan_by_theory(tmp_path, run):
    """A grid from β and ε, the choice by rule, and F beside the costs; the plan from a file too."""
    given = [
        "solve",
        "four-queue",
        "--set",
        "buffers=2",
        "--features",
        "paper-366",
        "--grid",
        "geometric",
        "--json",
    ]
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'model = "four-queue"\nset = {buffers = 2}\n'
        'features = [{family = "occupancies", policies = ["lbfs", "longer"]}]\n'
        'grid = "geometric"\nepsilon = 20.0\nbeta = 100.0\nchoice = "rule"\n'
    )
    status, out, _ = run("solve", plan, "--json")
    assert status == 0
    found = json.loads(out)
    rows = found["tried"]
    assert found["chosen"] == min(range(len(rows)), key=lambda k: rows[k]["F"])
    for row in rows:
        assert row["F_lower"] <= row["surrogate"] + 100 / row["penalty"] <= row["F_upper"]
    assert rows[1]["penalty"] == pytest.approx(2 * rows[0]["penalty"])
    assert 100 / rows[-1]["penalty"] <= 10.0
    assert found["beta"] == 100.0
    for words, sentence in (
        (["--epsilon", 1, "-H", 3], "either a grid or penalties"),
        ([], "needs epsilon"),
        (["--epsilon", 1, "--choice", "luck"], "choice"),
    ):
        status, _, err = run(*given, *words)
        assert status == 2
        assert sentence in err
    alone = ["solve", "four-queue", "--set", "buffers=2"]
    assert "beta belongs to theory" in run(*alone, "--beta", 3)[2]
    assert "without potential" in run(*alone, "--epsilon", 3)[2]
    assert "give grid" in run(*alone, "--choice", "rule")[2]


def test_only_saved_runs_are_shown(tmp_path, run):
    assert "holds no run" in run("show", tmp_path)[2]
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "settings.json").write_text("{}")
    assert "has no result yet" in run("show", tmp_path / "half")[2]
    run(
        "evaluate",
        "four-queue",
        "--set",
        "buffers=2",
        "-p",
        "lbfs",
        "--steps",
        10_000,
        "--out",
        tmp_path / "e",
    )
    status, out, _ = run("show", tmp_path / "e")
    assert status == 0
    assert "lbfs" in out
    assert "no penalties to draw" in run("show", tmp_path / "e", "--figure", tmp_path / "f.png")[2]


MODEL_FILE = """
import dualplan as dp


def probability(x, a, e):
    return 0.4 if e == 0 else 0.6


def move(x, a, e):
    return (min(x[0] + 1, 4),) if e == 0 else (max(x[0] - 1 - a, 0),)


def loss(x, a):
    return x[0] + 2.0 * a


def make(**more):
    return dp.EventModel(lower=[0], upper=[4], actions=2, events=2, probability=probability, move=move, loss=loss,
                         jumps=[(1,), (0,), (-1,), (-2,)], name="file", **more)


queue = make()
wrong = make(loss_bounds=(0.0, 1.0))
"""


@pytest.mark.slow
def test_models_from_files_travel_to_workers(tmp_path, run):
    path = tmp_path / "own.py"
    path.write_text(MODEL_FILE)
    here, there = (
        run("solve", f"{path}:queue", "-H", "1", "-H", "10", "--json", *more)
        for more in ((), ("--workers", "2"))
    )
    assert here[0] == there[0] == 0
    assert json.loads(here[1])["cost"] == json.loads(there[1])["cost"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["forest", "-H", "1", "--workers", "0"], "number of workers"),
        (["four-queue", "--grid", "fine", "--epsilon", "1"], "unknown grid 'fine'"),
        (
            ["four-queue", "--grid", "paper", "--epsilon", "1"],
            "the theorems are about the surrogate without potential",
        ),
    ],
)
def test_what_theory_and_workers_cannot_do_is_said_at_once(run, monkeypatch, arguments, words):
    monkeypatch.setattr(
        "dualplan.search.plans.run.make_problem", lambda *_: pytest.fail("work was begun")
    )
    status, _, err = run("solve", *arguments)
    assert status == 2
    assert words in err


def test_declared_losses_are_looked_at_before_the_work(tmp_path, run, monkeypatch):
    path = tmp_path / "own.py"
    path.write_text(MODEL_FILE)
    monkeypatch.setattr(
        "dualplan.search.plans.run.make_problem", lambda *_: pytest.fail("work was begun")
    )
    status, _, err = run("solve", f"{path}:wrong", "--features", "standard")
    assert status == 2
    assert "correct its loss_bounds" in err


def test_figures_of_negative_and_of_unknown_costs():
    row = {
        "penalty": 1.0,
        "objective": -2.0,
        "surrogate": -2.0,
        "violation_negative": 0.0,
        "violation_flow": 0.1,
    }
    known = {"cost": -3.0, "cost_lower": -3.1, "cost_upper": -2.9}
    unknown = {"cost": None, "cost_lower": 4.0, "cost_upper": None}
    infinite = {"cost": float("inf"), "cost_lower": 4.0, "cost_upper": float("inf")}
    figure = curve([row | known, {**row, "penalty": 2.0} | unknown], "", {"lower bound": -3.5})
    low, high = figure.axes[2].get_ylim()
    assert low < -3.5 < -3.0 < high
    shown = curve([row | infinite], "").axes[2].lines[0].get_ydata()
    assert np.isnan(shown).all()


def test_runs_of_earlier_versions_are_shown(tmp_path, run):
    folder = tmp_path / "old"
    assert run("solve", "forest", "-H", "1", "--out", str(folder))[0] == 0
    result = json.loads((folder / "result.json").read_text())
    new = [
        "advantage",
        "lower_bound",
        "lower_bound_kind",
        "lower_bound_sweeps",
        "gap",
        "certificate",
        "theory",
    ]
    for key in (*new, "chosen"):
        del result[key]
    (folder / "result.json").write_text(json.dumps(result))
    status, out, _ = run("show", str(folder), "--figure", str(tmp_path / "a.png"))
    assert status == 0
    assert "earlier version" in out


def test_reference_figures_of_programs_on_values():
    """The 10⁴-state network: greedy policies 8.80 and 8.209 (± .005), bounds at least 6.44 and
    7.36.
    """
    model, gamma = dp.load("four-queue", buffers=9), dp.Discounted(0.99)
    for degree, figure in ((2, 8.80), (3, 8.209)):
        found = primal.alp(
            model, primal.monomials(model, degree), gamma, relevance=primal.geometric(model, 0.9)
        )
        assert dp.evaluate_exact(model, found.policy()).cost == pytest.approx(figure, abs=0.005)
    for degree, figure in ((3, 6.44), (4, 7.36)):
        bound = primal.average_bound(model, primal.monomials(model, degree)).lower_bound
        assert bound.kind == "proved"
        assert figure <= bound.value <= 8.1054


# -- the standard features off networks ------------------------------------------------------------


FOUR_STATES = """
import numpy as np
import dualplan as dp

rng = np.random.default_rng(11)
table = dp.TabularModel(rng.dirichlet(np.ones(4), size=(3, 4)), rng.random((4, 3)), name="four")


def weight(states):
    return 1.0 + states[:, 0]


def of_one(x):
    return 1.0 + float(x[0]) ** 2


def first(x):
    return 0
"""


@pytest.fixture
def four(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(FOUR_STATES)
    return path


@pytest.mark.parametrize("model", ["garnet", "forest", "four"])
@pytest.mark.parametrize("gamma", [None, 0.9])
def test_the_standard_plan_is_exact_where_pairs_are_few(run, four, model, gamma):
    """At an exact H the program over all pairs is the model's own: the optimum to 1e-6."""
    name = f"{four}:table" if model == "four" else model
    words = ["solve", name, "--features", "standard", "--penalty", "1000", "--json"]
    criterion = dp.Average()
    if gamma is not None:
        words += ["--criterion", "discounted", "--gamma", gamma]
        criterion = dp.Discounted(gamma)
    status, out, _ = run(*words)
    found = json.loads(out)
    optimum = dp.solve_exact(dp.load(name), criterion, tol=1e-9).value
    assert status == 0
    assert found["solver"] == "listed-lp"
    assert found["cost"] == pytest.approx(optimum, abs=1e-6)
    assert found["objective"] == pytest.approx(optimum, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("admission", {"servers": 2, "room": 5}),
        ("sysadmin", {"machines": 3}),
        ("lost-sales", {"lead_time": 2, "demand": 2.0, "capacity": 6}),
    ],
)
def test_keys_of_sampling_and_weights(name, parameters, tmp_path):
    """Constraints from a set of features of their own, and violations times weights: the problem is
    that put together by hand.
    """
    first = dp.load(name, **parameters).coordinates[0]
    names = list(dp.load(name, **parameters).policies)[:2]
    tables = [{"family": "occupancies", "policies": names}]
    plan = Plan(
        name,
        parameters,
        features=tables,
        sampling="standard",
        weights={"constant": 2.0, first: 0.5},
        penalty=30.0,
        method="sampled-lp",
        samples=2_000,
    )
    result = run_plan(plan)
    model = result.problem.model
    by_hand = dp.dual.DualALP(
        model,
        families.occupancies(model, [model.policy(policy) for policy in names]),
        sampling=make_features(model, "standard"),
        weights=lambda x: 2.0 + 0.5 * x[:, 0],
    )
    again = solve(by_hand, 30.0, method="sampled-lp", samples=2_000)
    assert result.best.solution.theta == pytest.approx(again.theta, abs=1e-9)
    assert result.best.solution.parts.flow == pytest.approx(again.parts.flow, abs=1e-9)
    everywhere = model.box.states(np.arange(model.box.count))
    means = [
        np.mean([model.loss(x, int(a)) for a in np.flatnonzero(model.allowed(x))])
        for x in everywhere
    ]
    assert make_weights("loss", model, dp.Average())(everywhere) == pytest.approx(
        1.0 + np.abs(means)
    )
    exact = dp.evaluate_exact(model, model.policy(names[0]))
    values = make_weights(f"values of {names[0]}", model, dp.Average())(everywhere)
    start = exact.values[exact.reached == model.box.index(model.start)]
    assert values[exact.reached] == pytest.approx(1.0 + np.abs(exact.values - start))


def test_weights_are_functions_of_files(four):
    model = dp.load(f"{four}:table")
    states = np.arange(4)[:, None]
    both = [make_weights(f"{four}:{name}", model, dp.Average()) for name in ("weight", "of_one")]
    assert both[0](states).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert both[1](states).tolist() == [1.0, 2.0, 5.0, 10.0]
    for given, words in (
        ("los", "did you mean 'loss'"),
        (f"{four}:table", "no function of states"),
        (f"values of {four}:frist", "did you mean 'first'"),
        ({"stat": 1.0}, "did you mean 'state'"),
        ({"constant": 1.0, "state": -1.0}, "must be positive"),
    ):
        with pytest.raises(dp.errors.InputError, match=words):
            make_weights(given, model, dp.Average())


def test_policies_of_tables_are_named_as_on_the_command_line(four, tmp_path):
    """A function in a file and a saved policy are occupancies, as by hand."""
    model = dp.load(f"{four}:table")
    saved = tmp_path / "mine.npz"
    mine = dp.policies.TablePolicy(model, np.array([0, 1, 2, 1]), name="mine")
    dp.save_policy(mine, saved)
    names = [f"{four}:first", str(saved), "random"]
    found = make_features(model, [{"family": "occupancies", "policies": names}])
    first = dp.policies.TablePolicy(model, np.zeros(4, int), name="first")
    by_hand = families.occupancies(model, [first, mine, model.policy("random")])
    assert found.losses == pytest.approx(by_hand.losses, abs=1e-12)
    assert found.names == by_hand.names
    with pytest.raises(dp.errors.InputError, match="did you mean"):
        make_features(model, [{"family": "occupancies", "policies": ["randon"]}])


@pytest.mark.parametrize(
    ("name", "parameters", "policies", "cut"),
    [
        ("admission", {"servers": 2, "room": 5}, ["admit-all", "threshold"], 3),
        ("sysadmin", {"machines": 3}, ["nothing", "first-failed"], 1),
        ("lost-sales", {"lead_time": 2, "demand": 2.0, "capacity": 6}, ["myopic", "base-stock"], 2),
    ],
)
def test_the_simulated_form_is_a_plan(name, parameters, policies, cut, tmp_path):
    """Against the problem put together by hand; the cost is that of its policy."""
    model = dp.load(name, **parameters)
    table = {"family": "ratios", "policies": policies, "cuts": {model.coordinates[0]: [cut]}}
    plan = Plan(
        name,
        parameters,
        form="simulated",
        features=[table],
        reference=policies[0],
        explore=0.5,
        tests="quadratic",
        penalty=[3.0, 300.0],
        penalty_negative=1000.0,
        samples=4_000,
        seed=5,
    )
    result = run_plan(plan, folder=str(tmp_path / "run"))
    chosen = [model.policy(policy) for policy in policies]
    partition = families.cells(model, {0: [cut]})
    ratios = families.portfolio(
        dp.policies.exploring(chosen[0], 0.5, chosen[1:]), chosen, partition
    )
    seen = test_functions.concat(
        test_functions.cells(partition), test_functions.polynomials(model, 2)
    )
    problem = dp.dual.SimulatedALP(
        ratios, seen, samples=4_000, anchor=partition, expected=True, seed=5
    )
    for outcome, penalty in zip(result.outcomes, (3.0, 300.0), strict=True):
        again = dp.dual.solve_simulated(problem, (1000.0, penalty))
        assert outcome.solution.value == pytest.approx(again.value, rel=1e-9)
        exact = dp.evaluate_exact(model, again.policy()).cost
        assert outcome.cost == pytest.approx(exact, rel=1e-6)
    told = result.to_json()
    assert told["form"] == "simulated"
    assert told["lower_bound"] <= dp.solve_exact(model).upper
    assert told["cost"] == min(row["cost"] for row in told["tried"])
    assert set(told["certificate"]["entries"]) >= {"flow", "mass", "effective"}
    saved = dp.load_policy(str(tmp_path / "run" / "policy.npz"), model)
    assert dp.evaluate_exact(model, saved).cost == pytest.approx(told["cost"], rel=1e-9)


def test_the_simulated_form_of_a_simulator(tmp_path, run):
    """Nothing but a step is known: the standard plan takes this form by itself."""
    path = tmp_path / "own.py"
    path.write_text(
        "import dualplan as dp\n\n\n"
        "def step(x, a, rng):\n"
        "    up = rng.random() < (0.3 if a == 0 else 0.7)\n"
        "    return min(max(x[0] + (1 if up else -1), 0), 4), float(x[0]) + 0.1 * (a == 0)\n\n\n"
        "walk = dp.SimulatorModel(lower=[0], upper=[4], actions=2, step=step)\n"
    )
    status, out, _ = run(
        "solve",
        f"{path}:walk",
        "--features",
        "standard",
        "-H",
        "100",
        "--samples",
        "4000",
        "--steps",
        "20000",
        "--json",
    )
    found = json.loads(out)
    assert status == 0
    assert found["form"] == "simulated"
    assert found["cost_lower"] < found["cost"] < found["cost_upper"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('form = "simulated"\nmethod = "sampled-lp"', "belongs to the form with densities"),
        ('form = "simulated"\nweights = "loss"', "weights belongs to the form with densities"),
        ('form = "simulated"\nsampling = "uniform"', "draws transitions"),
        ('form = "simulated"\nfeatures = "paper-366"', "has ratios for features"),
        ('form = "simulated"\nfeatures = [{family = "boxes"}]', "of the family 'ratios'"),
        ('form = "simulated"\nfeatures = [{family = "ratios", cut = 1}]', "did you mean 'cuts'"),
        ('form = "simulated"\nfeatures = [{family = "ratios"}]', "lack 'policies'"),
        ('form = "simulated"\noptions = {batch = 3}', "unknown option"),
        ('features = [{family = "ratios", policies = ["lbfs"]}]', "need form = 'simulated'"),
        ('features = "standard"\nexplore = 0.5', "explore belongs to form = 'simulated'"),
        ('form = "simulate"', "did you mean 'simulated'"),
        ('sampling = [{family = "bands"}]', "lack 'intervals'"),
        ("weights = 3", "weights must be 'loss'"),
        ('weights = "loss of time"', "unknown weights over states"),
    ],
)
def test_bad_forms_samplings_and_weights_get_one_sentence(tmp_path, run, text, words):
    path = tmp_path / "bad.toml"
    path.write_text(f'model = "four-queue"\nset = {{buffers = 1}}\n{text}\n')
    status, out, err = run("solve", str(path), "--json")
    assert (status, out) == (2, "")
    assert words in err.replace("\n", " ")
    assert err.count("\n") == 1


def test_tiles_are_cut_where_the_program_asks_for_it(monkeypatch):
    """With no room for all pairs: probabilities that cover the best heuristic's law, more of them
    than it began with, and a policy that costs less than every heuristic.
    """
    monkeypatch.setattr("dualplan.search.plans.standard.MOST_PAIR_FEATURES", 10)
    monkeypatch.setattr("dualplan.search.plans.standard.MOST_TILE_FEATURES", 80)
    result = run_plan(Plan("four-queue", {"buffers": 3}))
    model = result.problem.model
    costs = [dp.evaluate_exact(model, model.policy(name)).cost for name in model.policies]
    assert 64 < len(result.problem.features) <= 84
    assert result.best.cost < min(costs) - 1e-3
    assert result.best.evaluation.upper >= dp.solve_exact(model).lower
    sums = np.asarray(result.problem.enumerate().pairs.sum(axis=0)).ravel()
    assert sums == pytest.approx(1.0)


@pytest.mark.slow
def test_the_standard_plan_without_an_end_of_states():
    """Unbounded queues: laws are fitted, and the policy is no worse than twice the best
    heuristic.
    """
    plan = Plan("tandem", {"queues": 2, "servers": 1, "decisions": "joint"}, features="standard")
    result = run_plan(replace(plan, penalty=1000.0, samples=4_000, steps=200_000))
    model = result.problem.model
    least = min(
        dp.evaluate(model, model.policy(name), steps=200_000).cost for name in model.policies
    )
    assert result.best.cost <= 2 * least


def test_heuristics_without_one_cost_get_one_sentence():
    """Two traps, and every policy may fall into either."""
    stay = np.eye(3)
    stay[0] = [0.0, 0.5, 0.5]
    model = dp.TabularModel([stay], np.array([0.0, 1.0, 2.0]), name="traps")
    with pytest.raises(dp.errors.ModelError, match="no heuristic of 'traps' has one average cost"):
        ranked(model)
    assert len(make_features(model, "standard")) == 3
