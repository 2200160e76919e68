"""Priorities of a network that are written down, and keys of its classes that are set."""

import itertools
import textwrap

import pytest

import dualplan as dp
from dualplan.models.priorities import ranks
from dualplan.policies.heuristics.network import priority, written_priority
from dualplan.policies.named import named_policy

SERVERS = {"urgent": "doctor", "routine visit": "doctor", "lab": "bench", "triage": "bench"}
CLINIC = textwrap.dedent("""
    name = "clinic"
    time = "continuous"

    [[class]]
    name = "urgent"
    server = "doctor"
    arrival = 0.2
    service = 1.0
    holding = 5.0
    buffer = 3

    [[class]]
    name = "routine visit"
    server = "doctor"
    arrival = 0.4
    service = 1.0
    route = { lab = 0.3 }
    buffer = 3

    [[class]]
    name = "lab"
    server = "bench"
    service = 0.9
    buffer = 2

    [[class]]
    name = "triage"
    server = "bench"
    arrival = 0.2
    service = 2.0
    route = "urgent"
    buffer = 2

    [policies]
    by-hand = "routine visit > urgent; triage > lab"
    """).lstrip()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "clinic.toml"
    path.write_text(CLINIC)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("urgent > routine visit; lab > triage", [0, 1, 0, 1]),
        ("urgent>routine visit", [0, 1, 0, 1]),  # the others in the order of the file
        ("triage > lab > routine visit > urgent", [1, 0, 1, 0]),  # one chain over all
        ("routine visit;", [1, 0, 0, 1]),  # first of its server
        ("'routine visit' > \"urgent\"; triage;", [1, 0, 1, 0]),
        ("urgent > lab > routine visit", [0, 1, 0, 1]),  # by way of another server's class
    ],
)
def test_orders(text, expected):
    assert ranks(text, SERVERS) == expected


def test_every_order_of_one_server():
    names = dict.fromkeys("abcd", "server")
    for order in itertools.permutations(names):
        assert ranks(" > ".join(order), names) == [order.index(name) for name in names]
    assert ranks("c > a", names) == [1, 2, 0, 3]
    assert ranks("a > b; b > c", names) == [0, 1, 2, 3]


def test_names_may_hold_signs():
    assert ranks("'a > b' > it's", {"it's": "s", "a > b": "s"}) == [1, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("urgent > routine", "unknown class 'routine'; did you mean 'routine visit'"),
        ("urgent > > lab", "a place without a class"),
        ("urgent > ", "a place without a class"),
        ("urgent > routine visit > urgent", "puts class 'urgent' before itself"),
        ("urgent > routine visit; routine visit > urgent", "before itself"),
        ("urgent; routine visit", "does not say which of 'urgent' and 'routine visit'"),
        ("urgent < routine visit", "the class that is served first in front"),
    ],
)
def test_mistakes(text, words):
    with pytest.raises(dp.errors.InputError, match=words):
        ranks(text, SERVERS)


def test_they_are_the_priorities_that_they_say(file):
    """As cheap as the same order given as a list, and served so in a state with all queues busy."""
    model = dp.load(str(file))
    policy = named_policy(model, "routine visit > urgent; triage > lab")
    other = priority(model, ["triage", "routine visit", "lab", "urgent"])
    cost = dp.evaluate_exact(model, policy).cost
    assert cost == pytest.approx(dp.evaluate_exact(model, other).cost, abs=1e-9)
    assert cost > 1.2 * dp.evaluate_exact(model, model.policy("c-mu")).cost
    assert policy.act([1, 1, 1, 1]) == other.act([1, 1, 1, 1])
    assert policy.digest == written_priority(model, "routine visit>urgent;triage").digest


def test_in_the_file_they_are_heuristics(file, tmp_path, run):
    model = dp.load(str(file))
    assert "by-hand" in model.policies
    policy = model.policy("by-hand")
    assert policy.digest == named_policy(model, "routine visit > urgent; triage > lab").digest
    assert dp.load_policy(saved(policy, tmp_path)).digest == policy.digest
    # what is written down does not change what the model is
    plain = tmp_path / "plain.toml"
    plain.write_text(CLINIC.partition("[policies]")[0])
    assert dp.load(str(plain)).digest == model.digest
    assert dp.load_policy(saved(policy, tmp_path), dp.load(str(plain))).digest == policy.digest
    folder = tmp_path / "run"
    status, _, err = run("evaluate", file, "-p", "by-hand", "--steps", 10_000, "--out", folder)
    assert status == 0, err
    status, out, err = run("show", folder, "--state", "1,1,1,1")
    assert status == 0, err
    assert "doctor serves routine visit" in out


def saved(policy, folder):
    path = folder / "policy.npz"
    dp.save_policy(policy, path)
    return path


def test_solve_begins_with_them(file):
    found = dp.solve(dp.load(str(file)), method="exact", time="5s")
    assert "by-hand" in [row["policy"] for row in found.to_json()["start"]]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("routine visit > urgent", "routine > urgent", ":35: unknown class 'routine'; did you"),
        ("by-hand", "c-mu", ":35: policy 'c-mu': networks have a heuristic of that name"),
        ('"routine visit > urgent; triage > lab"', "3", ":35: policy 'by-hand' must be an order"),
        ("[policies]", "[polices]", ":34: unknown key of network 'clinic' 'polices'; did you"),
    ],
)
def test_mistakes_in_files_have_lines(file, before, after, words):
    file.write_text(CLINIC.replace(before, after))
    with pytest.raises(dp.errors.InputError, match=words):
        dp.load(str(file))


def test_mistakes_on_the_command_line(file, run):
    for spec, words in (
        ("urgent", "'urgent' is a class and no policy"),
        ("urgent > rotine visit", "did you mean 'routine visit'"),
        ("by-hnd", "did you mean 'by-hand'"),
    ):
        status, _, err = run("evaluate", file, "-p", spec)
        assert status == 2
        assert words in err
    status, _, err = run("evaluate", "forest", "-p", "a > b")
    assert status == 2
    assert "priorities of classes, which queueing networks have" in err


# -- keys of classes that are set ------------------------------------------------------------------


def test_keys_of_classes_are_set(file):
    model = dp.load(
        str(file),
        **{
            "routine visit.arrival": 0.3,
            "lab.buffer": None,
            "triage.route": "lab",
            "decisions": "per-server",
        },
    )
    assert model.classes[1].arrival == 0.3
    assert model.classes[2].buffer is None
    assert model.classes[3].route == {"lab": 1.0}
    assert model.options["decisions"] == "per-server"
    assert dp.load(str(file)).classes[1].arrival == 0.4
    half = dp.load(str(file), **{"triage.route.urgent": 0.5, "routine visit.route.lab": 0.1})
    assert half.classes[3].route == {"urgent": 0.5}
    assert half.classes[1].route == {"lab": 0.1}


def test_keys_of_classes_of_named_networks_are_set():
    model = dp.load("four-queue", buffers=3, **{"1.arrival": 0.05})
    assert model.classes[0].arrival == 0.05
    assert model.classes[0].buffer == 3
    changed = dp.load("four-queue", buffers=3, arrivals=(0.05, model.classes[2].arrival))
    assert model.digest == changed.digest


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("routine.arrival=3", "unknown class 'routine'; did you mean 'routine visit'"),
        ("urgent.arival=3", "unknown key of class 'urgent' 'arival'; did you mean 'arrival'"),
        ("urgent.arrival=-3", "dualplan: class 'urgent': arrival must be a finite number"),
        ("arrival=3", "say of which, such as urgent.arrival"),
        ("urgent.buffer.x=2", "buffer has no parts"),
        ("tim=discrete", "did you mean 'time'"),
    ],
)
def test_wrong_settings(file, run, setting, words):
    status, _, err = run("check", file, "--set", setting)
    assert status == 2
    assert words in err
    assert "clinic.toml" not in err  # what was set has no line


def test_classes_of_what_has_none(run):
    status, _, err = run("check", "forest", "--set", "a.b=3")
    assert status == 2
    assert "is no queueing network" in err
