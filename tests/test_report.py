"""The report page: what it says against exact costs, what its map holds against policies, one file
that is whole.
"""

import base64
import itertools
import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import dualplan as dp
from dualplan.cli.inputs import parameters_from
from dualplan.core.errors import InputError, ModelError
from dualplan.core.intervals import Interval
from dualplan.core.runs import Run, read_json, write_json
from dualplan.core.status import PROVED, Status
from dualplan.core.words import at_most, percent
from dualplan.evaluation.compared import unpaired
from dualplan.evaluation.judge import exact_evaluation
from dualplan.evaluation.lower_bounds import LowerBound
from dualplan.evaluation.visits import visited
from dualplan.models.criteria import Average
from dualplan.models.load import load
from dualplan.policies.saved import save_policy
from dualplan.policies.tables import TablePolicy, random_policy
from dualplan.report import write_report
from dualplan.report.figures.progress import cost_rows
from dualplan.report.gather import judge_heuristics, read_run
from dualplan.report.page import comparison, map_notes, measures, render
from dualplan.report.pictures import with_heuristics
from dualplan.report.repeat import NETWORK_FILE, PLAN_FILE, repeat
from dualplan.report.slices import MOST_CELLS_OF_LAYERS, make_slices, packed, tabulate
from dualplan.report.words import bound_words, certificate, facts, heuristic_words, warnings
from dualplan.search.contract import Attempt, Candidate, Member, SearchResult
from dualplan.search.plans import Plan, override, run_plan
from dualplan.search.steps import STEPS_BY_NAME

ODD = """
name = "<b>bold</b> & 'co' \\"x\\""
[[class]]
name = "</script><script>alert(1)</script>"
server = "<i>"
arrival = 0.2
service = 0.4
buffer = 2
[[class]]
name = "b&w"
server = "<i>"
arrival = 0.1
service = 0.4
buffer = 2
"""


def save_search(folder, model):
    """A run as a search saves it: the optimal policy of a small model, with exact costs and a
    proved bound.
    """
    best = dp.solve_exact(model, tol=1e-6)
    exact = dp.evaluate_exact(model, best.policy)
    known = replace(exact_evaluation(model, exact), notes=())
    start = exact_evaluation(model, dp.evaluate_exact(model, model.policy("random")))
    found = SearchResult(
        model=model,
        criterion=Average(),
        policy=best.policy,
        source="the best",
        evaluation=known,
        limits=(),
        start=(Member(Candidate(model.policy("random"), "heuristic"), start, None),),
        beside=(unpaired(start, known),),
        attempts=(
            Attempt(
                "lattice", 0, 1, "the best", exact.cost, Interval(1.0, 0.9, 1.1, 0.95), True, 1.5
            ),
        ),
        bound=LowerBound(best.lower, PROVED, "average", (), functions="value iteration"),
        wanted_gap=None,
        status=Status.TIME,
        values=None,
        seed=0,
        seconds=2.0,
    )
    settings = {
        "task": "solve",
        "model": model.describe(),
        "criterion": {"criterion": "average"},
        "limits": [],
        "policies": [],
        "steps": list(STEPS_BY_NAME),
        "seed": 0,
        "budget": {"seconds": 90.0},
    }
    Run(folder, settings).save_result(found.to_json())
    save_policy(best.policy, folder / "policy.npz")
    return folder


@pytest.fixture(scope="session")
def searched(tmp_path_factory):
    """A search on 81 states."""
    return save_search(
        tmp_path_factory.mktemp("runs") / "searched", dp.load("four-queue", buffers=2)
    )


@pytest.fixture(scope="session")
def planned(tmp_path_factory):
    """The dual program on the same states."""
    folder = tmp_path_factory.mktemp("runs") / "planned"
    run_plan(
        Plan("four-queue", set={"buffers": 2}, penalty=[10.0, 100.0], seed=3), folder=str(folder)
    )
    return folder


@pytest.fixture
def altered(searched, tmp_path):
    """The search with another policy, or another result."""

    def make(policy=None, **changes):
        folder = tmp_path / "altered"
        shutil.copytree(searched, folder)
        if policy is not None:
            save_policy(policy, folder / "policy.npz")
        write_json(folder / "result.json", {**read_json(folder / "result.json"), **changes})
        return folder

    return make


def judged(folder):
    run = read_run(folder)
    return run, judge_heuristics(run, 600.0, lambda _: None)  # as long as the steps take


# -- the map ---------------------------------------------------------------------------------------


def unpack(text):
    """As the page does: runs of 16-bit pairs."""
    raw = base64.b64decode(text)
    pairs = [int.from_bytes(raw[k : k + 2], "little") for k in range(0, len(raw), 2)]
    return list(
        itertools.chain.from_iterable(
            itertools.repeat(v, n) for v, n in zip(pairs[::2], pairs[1::2], strict=True)
        )
    )


def cells_of(data):
    """The states in the order of the cells, from what is in the page and nothing else."""
    axes = data["axes"]
    for i, j in data["pairs"]:
        others = [k for k in range(len(axes)) if k not in (i, j)]
        levels = itertools.product(
            *([axes[k]["values"][p] for p in axes[k]["levels"]] for k in others)
        )
        for values in levels:
            for up in axes[j]["values"] if j >= 0 else [None]:
                for across in axes[i]["values"]:
                    state = list(data["fixed"])
                    for k, v in zip(others, values, strict=True):
                        state[axes[k]["coordinate"]] = v
                    state[axes[i]["coordinate"]] = across
                    if j >= 0:
                        state[axes[j]["coordinate"]] = up
                    yield state


MODELS = [
    ("four-queue", {"buffers": (3, 2, 2, 3)}),
    ("criss-cross", {}),
    ("criss-cross", {"decisions": "per-server", "discipline": "nonpreemptive"}),
    ("lost-sales", {}),
    ("admission", {}),
    ("forest", {}),
    ("sysadmin", {}),
    ("tandem", {}),
]


@pytest.mark.parametrize(("name", "parameters"), MODELS)
def test_cells_hold_what_policies_do(name, parameters):
    """Sampled cells of every layer against `probabilities`, and allowed actions against the
    model.
    """
    model = dp.load(name, **parameters)
    policies = [model.policy(n) for n in [*model.policies][:2]] + [random_policy(model)]
    visits = visited(model, policies[0], samples=500, seed=1)
    data = json.loads(json.dumps(tabulate(model, policies, visits, 0.2).to_json()))
    states = list(cells_of(data))
    may = unpack(data["may"]["cells"])
    assert len(may) == len(states)
    assert len(states) * (len(policies) + 1) <= MOST_CELLS_OF_LAYERS
    sample = np.random.default_rng(0).integers(len(states), size=150)
    for layer, policy in zip(data["layers"], policies, strict=True):
        numbers = unpack(layer["cells"])
        assert len(numbers) == len(states)
        for k in sample:
            decision, x = dict(layer["decisions"][numbers[k]]), np.array(states[k])
            allowed = {a for a, _ in data["may"]["decisions"][may[k]]}
            if may[k] == 0:  # cannot occur
                assert decision == {}
                continue
            assert allowed == set(np.flatnonzero(model.allowed(x)))
            assert set(decision) <= allowed
            for a, p in enumerate(policy(x)):
                assert decision.get(a, 0) == pytest.approx(100 * p, abs=layer["grain"] / 2 + 0.5)


def test_states_that_cannot_occur():
    """Without preemption a server is at work exactly where it has customers."""
    model = dp.load("criss-cross", discipline="nonpreemptive", buffers=2)
    data = tabulate(
        model,
        [model.policy("lbfs")],
        visited(model, model.policy("lbfs"), samples=500, seed=1),
        0.2,
    ).to_json()
    numbers, n = unpack(data["may"]["cells"]), len(model.classes)
    for state, number in zip(cells_of(data), numbers, strict=True):
        occurs = True
        for s, choices in enumerate(model.choices):
            at = state[n + s]
            occurs &= all(state[c] == 0 for c in choices) if at == 0 else state[choices[at - 1]] > 0
        assert (number > 0) == occurs


def test_deciders_name_the_classes():
    """Of a joint action of four queues, what each server serves."""
    model = dp.load("four-queue", buffers=2, idling=True)
    data = tabulate(
        model,
        [model.policy("lbfs")],
        visited(model, model.policy("lbfs"), samples=100, seed=1),
        0.1,
    ).to_json()
    for a, label in enumerate(model.actions):
        words = [d["labels"][d["of"][a]].replace("nobody", "-") for d in data["deciders"]]
        assert "+".join(words) == label


def test_few_levels_where_cells_are_dear():
    """At most as many cells as are asked for.

    Levels are among the values, the busiest coordinates are chosen.
    """
    model = dp.load("four-queue")
    visits = visited(model, model.policy("longer"), samples=1_000, seed=1)
    for cells in (4_000, 40_000):
        found = make_slices(model, visits, cells)
        assert 0 < found.cells <= cells
        assert len(found.places()) == found.cells
        for axis in found.axes:
            assert set(axis.levels) <= set(range(axis.values.size))
    assert all(axis.levels.size >= 3 for axis in make_slices(model, visits, 100_000).axes)
    line = dp.load("tandem", queues=30, servers=30, arrival=0.9)
    visits = visited(line, line.policy("lbfs"), samples=1_000, seed=1)
    busiest = set(np.argsort(-visits.mean(axis=0), kind="stable")[:6].tolist())
    assert {
        axis.coordinate for axis in make_slices(line, visits, 10**6).axes if axis.along
    } <= busiest
    notes = " ".join(map_notes(tabulate(line, [line.policy("lbfs")], visits, 0.2)))
    assert "busiest" in notes
    assert "range of visited states" in notes


def test_runs_longer_than_sixteen_bits():
    numbers = np.repeat([3, 0, 65_535, 1], [70_000, 1, 140_001, 2])
    assert unpack(packed(numbers)) == numbers.tolist()


def test_many_mixtures_are_rounded_more_coarsely():
    """A table of 10,000 different laws: fewer decisions, each within the stated grain."""
    model = dp.load("four-queue", buffers=9)
    rng = np.random.default_rng(0)
    policy = TablePolicy(model, rng.dirichlet(np.ones(4), model.box.count))
    layer = tabulate(model, [policy], visited(model, policy, samples=500, seed=1), 0.5).layers[0]
    assert layer.grain > 1
    assert len(layer.decisions) <= 4_096
    for k in rng.integers(len(layer.numbers), size=50):
        assert sum(p for _, p in layer.decisions[layer.numbers[k]]) == pytest.approx(
            100, abs=2 * layer.grain
        )


# -- what it says ----------------------------------------------------------------------------------


def test_against_the_best_heuristic(searched):
    """Costs are those of exact evaluation, the best is the least, and the saving is their
    difference.
    """
    run, beside = judged(searched)
    model = run.model
    costs = {name: dp.evaluate_exact(model, model.policy(name)).cost for name in model.policies}
    assert {j.policy: j.cost for j in beside.judged} == pytest.approx(costs)
    best, own = min(costs, key=costs.get), dp.evaluate_exact(model, run.policy).cost
    assert beside.best.policy == best
    assert beside.saved.value == pytest.approx(costs[best] - own, abs=1e-8)
    share = (costs[best] - own) / costs[best]
    assert f" less ({percent(share)}; exactly)" in heuristic_words(beside)
    rows = {row.name: row for row in comparison(run, beside).rows}
    assert float(rows[best].cells[0]) == pytest.approx(costs[best], rel=1e-4)
    assert rows[best].cells[1] == f"{100 * (costs[best] / own - 1):+.1f}%"
    assert rows["no policy costs less"].how.startswith("proved")


def test_simulated_against_exact(searched, monkeypatch):
    """Where states are many, the saving is simulated in pairs: the exact one is no farther than the
    whole interval.
    """
    _, beside = judged(searched)
    monkeypatch.setattr("dualplan.core.budgets.MOST_EXACT_STATES", 0)
    monkeypatch.setattr("dualplan.report.gather.MOST_PAGE_STEPS", 100_000)
    _, simulated = judged(searched)
    assert simulated.best.method == "batch-means"
    assert simulated.saved.confidence == 0.95
    assert (
        abs(simulated.saved.value - beside.saved.value)
        < simulated.saved.upper - simulated.saved.lower
    )
    assert "paired" in heuristic_words(simulated)


def with_first(beside, *, saved=None, **changes):
    """Another difference of the best heuristic, or another evaluation."""
    first = beside.rows[0]
    if saved is not None:
        first = replace(first, difference=saved, how="paired")
    first = replace(first, evaluation=replace(first.evaluation, **changes))
    return replace(beside, rows=(first, *beside.rows[1:]))


def test_a_policy_whose_run_was_too_short(altered):
    """Differences from it are shown with the doubt wherever they stand, and nothing is claimed by
    them.
    """
    run, beside = judged(altered(cost_status="too-short", evaluation="batch-means"))
    assert beside.status is Status.TOO_SHORT
    doubt = "not to be trusted: the run is too short"
    assert doubt in heuristic_words(beside)
    assert doubt in facts(run, beside)[1].words
    assert any(beside.best.policy in w and doubt in w for w in warnings(run, beside))
    entries = {entry.name: entry for _, _, group in certificate(run, beside) for entry in group}
    assert doubt in entries[f"saved against {beside.best.policy}"].note
    worse = with_first(beside, saved=Interval(-2.0, -3.0, -1.0, 0.95))
    assert "is better" not in heuristic_words(worse)
    assert not any("cheaper than the policy" in w for w in warnings(run, worse))
    trusted = replace(worse, status=Status.COMPLETED)
    assert "not to be trusted" not in heuristic_words(trusted) + facts(run, trusted)[1].words
    assert any("cheaper than the policy" in w for w in warnings(run, trusted))


def test_ends_are_those_of_what_is_said(searched):
    """“Costs 2 more” has the interval of how much more.

    Shares are of an estimate where the cost is one.
    """
    run, beside = judged(searched)
    simulated = with_first(beside, cost=50.0, method="batch-means")
    worse = with_first(simulated, saved=Interval(-2.0, -3.0, -1.0, 0.95))
    assert "costs 2 more (4.00% of the estimate; paired 95% interval 1 to 3)" in heuristic_words(
        worse
    )
    assert facts(run, worse)[1].value == "4.00%"
    assert "paired interval 2.00% to 6.00% of the estimate" in facts(run, worse)[1].words
    better = with_first(simulated, saved=Interval(2.0, 1.0, 3.0, 0.95))
    assert "costs 2 less (4.00% of the estimate; paired 95% interval 1 to 3)" in heuristic_words(
        better
    )
    neither = with_first(simulated, saved=Interval(0.5, -1.0, 2.0, 0.95))
    assert (
        "paired interval −4.00% to 2.00% of the estimate, which includes 0"
        in facts(run, neither)[1].words
    )
    assert "estimate" not in heuristic_words(beside) + facts(run, beside)[1].words


def test_measures_in_the_table_have_their_widths(searched):
    """Half the width of the interval where a measure was simulated, nothing where it was
    computed.
    """
    run, beside = judged(searched)
    exact = {row.name: row.cells for row in measures(run, beside).rows}
    assert not any("±" in cell for cells in exact.values() for cell in cells)
    first = beside.judged[0]
    wide = {
        m: Interval(i.value, i.value - 0.25, i.value + 0.25, 0.95)
        for m, i in first.measures.items()
    }
    simulated = with_first(beside, measures=wide, method="batch-means")
    for row in measures(run, simulated).rows:
        assert row.cells[1] == f"{exact[row.name][1]} ± 0.25"
    lost = {row.name: row.cells[2] for row in comparison(run, simulated).rows}
    assert lost[first.policy].endswith(" ± 25.0%")


def test_rows_that_a_search_has_compared_are_taken_from_it(altered, searched):
    """Costs and differences of the page are those of the run, to the last digit; other heuristics
    are evaluated for the page.
    """
    row = read_json(searched / "result.json")["start"][0]
    row = {
        **row,
        "cost": 12.5,
        "cost_lower": 12.4,
        "cost_upper": 12.6,
        "evaluation": "batch-means",
        "difference": {
            "value": 1.5,
            "lower": 1.4,
            "upper": 1.6,
            "confidence": 0.95,
            "how": "paired",
        },
    }
    run, beside = judged(altered(start=[row]))
    assert len(beside.rows) == len(run.model.policies)
    own = next(r for r in beside.rows if r.evaluation.policy == "random")
    assert (own.evaluation.cost, own.difference.value, own.how) == (12.5, 1.5, "paired")
    cells = {r.name: r for r in comparison(run, beside).rows}["random"]
    share = 100 / run.found.cost
    assert cells.cells[:2] == ("12.5 ± 0.1", f"+{1.5 * share:.1f}% ± {0.1 * share:.1f}%")
    assert "same random numbers" in cells.how


def test_rows_of_an_earlier_version_are_evaluated_anew(altered, searched):
    """They were simulated on other random numbers than the policy, and could contradict it."""
    row = read_json(searched / "result.json")["start"][0]
    del row["difference"]
    run, beside = judged(altered(start=[{**row, "cost": 1.0}]))
    own = next(r for r in beside.rows if r.evaluation.policy == "random")
    exact = dp.evaluate_exact(run.model, run.model.policy("random")).cost
    assert own.evaluation.cost == pytest.approx(exact)


def test_a_heuristic_that_is_the_policy(altered, net):
    best = min(net.policies, key=lambda name: dp.evaluate_exact(net, net.policy(name)).cost)
    run, beside = judged(altered(net.policy(best)))
    assert beside.same
    assert "nothing better was found" in heuristic_words(beside)
    assert facts(run, beside)[1].value == "the same"


def test_a_policy_that_is_worse(altered, net):
    worse = net.policy("longer")
    cost = dp.evaluate_exact(net, worse).cost
    run, beside = judged(altered(worse, cost=cost, cost_lower=cost, cost_upper=cost))
    assert f"{beside.best.policy} is better" in heuristic_words(beside)
    assert any("cheaper than the policy" in warning for warning in warnings(run, beside))


def test_what_must_be_said(altered):
    """Broken limits, runs that were too short, gaps not reached, lost customers, bounds that are no
    proofs.
    """
    limit = {
        "measure": "lost fraction",
        "at_most": 0.01,
        "value": 0.2,
        "lower": 0.19,
        "upper": 0.21,
        "kept": False,
    }
    run, beside = judged(
        altered(
            limits=[limit],
            cost_status="too-short",
            evaluation="batch-means",
            gap_wanted=0.01,
            gap_reached=False,
            gap=0.2,
            lower_bound_kind="statistical",
            notes=["loses 20% of its customers at no cost."],
            status="time",
        )
    )
    said = " ".join(warnings(run, beside))
    for words in (
        "limit is not kept: lost fraction is 0.2",
        "too short",
        "1.00% that was asked for",
        "The clock stopped the search",
        "The policy loses 20%",
    ):
        assert words in said
    assert "not a proof" in bound_words(run)
    groups = {
        name: [entry.name for entry in entries] for name, _, entries in certificate(run, beside)
    }
    assert "lower bound on any policy's cost" in groups["Measured"]
    assert "lost fraction" in groups["Measured"]
    assert {"the model", "equilibrium"} <= set(groups["Assumed"])


def test_customers_lost_by_both(searched):
    """Where losing customers costs nothing, it is said who loses more."""
    run, beside = judged(searched)
    own, other = (
        dp.evaluate_exact(run.model, p).measures["lost fraction"]
        for p in (run.policy, beside.policies[0])
    )
    said = f"loses only {percent(other)} of them"
    assert any(said in warning for warning in warnings(run, beside)) == (own > other + 0.001)
    assert any(warning.startswith("The policy loses") for warning in warnings(run, beside)) == (
        own >= 0.001
    )


def test_what_is_proved(searched):
    run, beside = judged(searched)
    groups = {
        name: {entry.name: entry for entry in entries}
        for name, _, entries in certificate(run, beside)
    }
    assert groups["Proved"]["lower bound on any policy's cost"].label == "proved"
    assert groups["Proved"]["cost of the policy"].label == "computed"
    assert not groups["Measured"]
    assert "equilibrium" not in groups["Assumed"]


def test_without_a_bound(altered):
    run, beside = judged(altered(lower_bound=-math.inf, gap=math.inf))
    assert "not known" in bound_words(run)
    assert facts(run, beside)[2].value == "unknown"
    assert "no policy costs less" not in [row.name for row in comparison(run, beside).rows]


def test_a_bound_that_tells_nothing(altered):
    """A gap of all of the cost is no news."""
    run, beside = judged(altered(lower_bound=-1.0, gap=1.3))
    assert "too low" in bound_words(run)
    assert facts(run, beside)[2].value == "unknown"


def test_an_unstable_heuristic_is_not_the_best(searched):
    """A cost that is not to be trusted does not make a heuristic the best, however small."""
    run, beside = judged(searched)
    unstable = with_first(beside, status=Status.UNSTABLE)
    assert unstable.best is None
    assert any("infinite" in w for w in warnings(run, unstable))


def test_no_difference(searched):
    _, beside = judged(searched)
    none = with_first(beside, saved=Interval(0.1, -0.1, 0.3, 0.95))
    assert "No difference" in heuristic_words(none)


def test_numbers_in_words():
    assert at_most(0.12341) == "12.4%"
    assert at_most(0.0) == "0.00%"
    assert at_most(1e-9) == "0.0001%"
    assert percent(-0.0806) == "−8.06%"
    assert (percent(3e-5), percent(-3e-5), percent(-0.0)) == ("0.003%", "−0.003%", "0.00%")


# -- the command -----------------------------------------------------------------------------------


def parsed(command):
    words = shlex.split(command)
    assert words[:2] == ["dualplan", "solve"]
    return words, parameters_from([b for a, b in itertools.pairwise(words) if a == "--set"])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("four-queue", {"buffers": 4}),
        ("four-queue", {}),
        ("four-queue", {"buffers": (1, 2, 3, None), "idling": True}),
        ("four-queue", {"arrivals": (0.05, 0.05), "buffers": 3}),
        ("criss-cross", {"load": "heavy"}),
        ("lost-sales", {"lead_time": 2}),
        ("forest", {}),
    ],
)
def test_the_command_makes_the_same_model(searched, tmp_path, monkeypatch, name, parameters):
    model, read = load(name, **parameters), read_run(searched)
    told = repeat(model, read.settings, read.result)
    monkeypatch.chdir(tmp_path)
    if told.file:
        assert told.file == NETWORK_FILE
        (tmp_path / NETWORK_FILE).write_text(told.contents)
    words, given = parsed(told.command)
    assert load(words[2], **given).digest == model.digest
    assert words[words.index("--seed") + 1] == "0"


def test_the_time_of_the_command(searched):
    """What the search was allowed.

    What it took, and a note, where an early version saved no budget.
    """
    read = read_run(searched)
    told = repeat(read.model, read.settings, read.result)
    words, _ = parsed(told.command)
    assert words[words.index("--time") + 1] == "90s"
    assert not any("was not saved" in note for note in told.notes)
    early = repeat(
        read.model, {k: v for k, v in read.settings.items() if k != "budget"}, read.result
    )
    words, _ = parsed(early.command)
    assert words[words.index("--time") + 1] == "2s"
    assert any("was not saved" in note for note in early.notes)


def test_the_plan_again(planned, tmp_path):
    """The plan that is printed, with the parameters of the command, is the plan that ran."""
    run = read_run(planned)
    told = repeat(run.model, run.settings, run.result)
    (tmp_path / PLAN_FILE).write_text(told.contents)
    plan, (_, given) = Plan.read(tmp_path / PLAN_FILE), parsed(told.command)
    assert (plan.seed, plan.penalty, plan.solver) == (3, [10.0, 100.0], "listed-lp")
    again = run_plan(override(plan, set=given))
    assert again.best.cost == pytest.approx(run.found.cost)
    assert again.problem.model.digest == run.model.digest


def test_what_has_no_effect_is_written_down_all_the_same(searched, tmp_path):
    """A network made in Python may have a penalty where nobody is lost, and servers that differ in
    capitals alone.
    """
    model = dp.QueueingNetwork(
        [
            dp.QueueClass("a", "s", 1.0, 0.2, penalty=2.0, level=3.0),
            dp.QueueClass("b", "S", 1.0, 0.2, buffer=4),
        ],
        time="continuous",
    )
    read = read_run(searched)
    (tmp_path / "again.toml").write_text(repeat(model, read.settings, read.result).contents)
    assert load(str(tmp_path / "again.toml")).digest == model.digest


def test_networks_with_odd_names_again(searched, tmp_path):
    (tmp_path / "odd.toml").write_text(ODD)
    model, read = load(str(tmp_path / "odd.toml")), read_run(searched)
    (tmp_path / "again.toml").write_text(repeat(model, read.settings, read.result).contents)
    again = load(str(tmp_path / "again.toml"))
    assert (again.digest, again.name, again.class_names) == (
        model.digest,
        model.name,
        model.class_names,
    )


# -- the page --------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.inside = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        if self.inside and tag == self.inside[-1]:
            self.inside.pop()

    def handle_data(self, data):
        if not self.inside:
            self.words.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="session")
def page(searched):
    return render(read_run(searched), 1.0)


def test_the_page_is_whole(page):
    """It refers to nothing outside of itself; ids are its own, and every figure has a name."""
    found = Page(page)
    for tag, attributes in found.tags:
        for key in ("src", "href", "xlink:href", "data", "action"):
            assert attributes.get(key, "#").startswith(("#", "data:image/png;base64,")), (
                tag,
                attributes,
            )
    assert not re.search(r"@import|url\((?!#)", page)
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    svgs = [attributes for tag, attributes in found.tags if tag == "svg"]
    assert len(svgs) == 12  # six pictures, light and dark
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in svgs)
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


def test_the_page_of_a_dual_program(planned):
    text = " ".join(Page(render(read_run(planned), 1.0)).words)
    for words in (
        "dual linear program",
        "Against the penalty H",
        "loss range",
        "negative part",
        "plan.toml",
    ):
        assert words in text


def test_names_are_escaped(tmp_path):
    (tmp_path / "odd.toml").write_text(ODD)
    model = load(str(tmp_path / "odd.toml"))
    text = render(read_run(save_search(tmp_path / "run", model)), 1.0)
    found = Page(text)
    assert model.name in "".join(found.words)
    assert found.count("b") == found.count("i") == 0
    assert found.count("script") == 2  # the data and the program
    data = json.loads(re.search(r'id="map-data">(.*?)</script>', text, re.S).group(1))
    assert data["classes"][0] == "</script><script>alert(1)</script>"


def test_names_are_no_formulas(tmp_path):
    """A class named like broken mathematics is drawn letter by letter, in every picture."""
    classes = [dp.QueueClass(name, "$s$", 0.4, 0.15, 2) for name in ("a$_$", "$x^")]
    text = render(
        read_run(save_search(tmp_path / "run", dp.QueueingNetwork(classes, name="$^$"))), 1.0
    )
    assert "Left out" not in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.S)
    assert len(drawings) == 12
    for words in ("a$_$", "$x^", "$s$", "$^$: costs", "arrival a$_$"):
        assert any(f">{words}</text>" in drawing for drawing in drawings), words


def test_a_picture_that_fails_is_named(searched, monkeypatch):
    """With its reason, and the others are there."""

    def fail(*_, **__):
        raise ModelError("this law cannot be computed.")

    monkeypatch.setattr("dualplan.report.pictures.marginals", fail)
    found = Page(render(read_run(searched), 1.0))
    assert (
        "Left out: “Where the state is in the long run”, because this law cannot be computed."
        in found.words
    )
    assert found.count("svg") == 10


def test_exact_heuristics_are_drawn_as_computed(searched):
    run, beside = judged(searched)
    known = {row.name: row.known for row in cost_rows(with_heuristics(run, beside))}
    assert known[beside.best.policy] == "computed"
    simulated = with_first(beside, method="batch-means")
    known = {row.name: row.known for row in cost_rows(with_heuristics(run, simulated))}
    assert known[beside.best.policy] == "measured"


# -- the command line ------------------------------------------------------------------------------


def test_the_command_writes_a_page(run, searched, tmp_path, monkeypatch):
    status, out, _ = run("report", searched, "--time", "1s")
    assert (status, (searched / "report.html").exists()) == (0, True)
    assert "report.html" in out
    assert (searched / "report.html").read_text().startswith("<!DOCTYPE html>")
    monkeypatch.setattr(
        "dualplan.report.page.render", lambda run, seconds, *_: f"{run.model.name} in {seconds}"
    )
    status, _, _ = run("report", searched, "--out", tmp_path / "p.html", "--time", "1m")
    assert (status, (tmp_path / "p.html").read_text()) == (0, "four-queue in 60.0")


def refused(run, *args):
    status, out, err = run("report", *args)
    assert (status, out) == (2, "")
    assert err.startswith("dualplan: ")
    assert err.count("\n") == 1
    return err


def test_what_cannot_be_reported(run, searched, altered, tmp_path):
    assert "holds no run" in refused(run, tmp_path)
    assert "no folder" in refused(run, searched, "--out", tmp_path / "none" / "p.html")
    assert "is a folder" in refused(run, searched, "--out", tmp_path)
    folder = altered(task="evaluate")
    assert "found no policy" in refused(run, folder)
    write_json(folder / "result.json", read_json(searched / "result.json"))
    (folder / "policy.npz").unlink()
    assert "no policy.npz" in refused(run, folder)
    (folder / "result.json").unlink()
    assert "no result yet" in refused(run, folder)


def test_a_model_that_cannot_be_made_again(altered, run):
    """Models that only Python can make."""
    model = dp.TabularModel([np.eye(2)[::-1]], [[1.0], [0.0]], name="mine")
    folder = altered(TablePolicy(model, [0, 0]))
    assert "made in Python" in refused(run, folder)


def test_seconds_must_be_positive(searched):
    with pytest.raises(InputError, match="positive"):
        write_report(searched, time=0)
