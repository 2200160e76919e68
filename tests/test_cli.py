"""The command line: what goes where, and one sentence for every mistake."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dualplan as dp
from dualplan import cli

NETWORK = """
name = "two stations"
time = "continuous"
[[class]]
name = "parts"
server = "press"
arrival = 0.8
service = 1.0
route = "paint"
[[class]]
name = "paint"
server = "booth"
service = 1.2
buffer = 10
"""

MODEL = """
import dualplan as dp

def probability(x, a, e):
    return 0.5

def move(x, a, e):
    return (min(x[0] + 1, 3),) if e == 0 else (max(x[0] - 1, 0),)

def loss(x, a):
    return float(x[0])

def make(top=3):
    return dp.EventModel(
        lower=[0], upper=[top], actions=["stay"], events=2, probability=probability, move=move, loss=loss
    )

model = make()

def stay(x):
    return 0

def sloppy(x):
    return (0.7,)

def raises(x):
    return {}[int(x[0])]
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "net.toml").write_text(NETWORK)
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


def test_models_lists_instances_with_their_parameters(run):
    status, out, _ = run("models", "--json")
    assert status == 0
    listed = {m["name"]: m for m in json.loads(out)["models"]}
    assert {
        "four-queue",
        "criss-cross",
        "six-class",
        "eight-queue",
        "lost-sales",
        "admission",
        "forest",
        "garnet",
    } <= (listed.keys())
    assert listed["four-queue"]["parameters"]["buffers"] == "38,25,25,38"
    assert run("models")[0] == 0


def test_check_prints_a_report_and_json(run, files):
    status, out, _ = run("check", "four-queue", "--set", "buffers=2,2,2,2", "--json")
    data = json.loads(out)
    assert status == 0
    assert data["ok"]
    assert data["exhaustive"]
    assert data["pairs"] == 81 * 4
    status, out, _ = run("check", files / "net.toml")
    assert status == 0
    assert "load of press: 0.8" in out
    assert run("check", f"{files}/mine.py:model")[0] == 0
    status, out, err = run("check", f"{files}/mine.py:make", "--set", "top=2", "--json")
    assert status == 2
    assert not json.loads(out)["ok"]
    assert "leaves the box: x'=(3)" in err


def test_evaluate_json_has_what_was_promised(run):
    status, out, err = run(
        "evaluate", "four-queue", "-p", "lbfs", "--set", "buffers=9", "--steps", 400_000, "--json"
    )
    data = json.loads(out)
    assert status == 0
    assert err == ""
    assert out.count("\n") == 1
    assert {
        "cost",
        "lower",
        "upper",
        "confidence",
        "method",
        "status",
        "steps",
        "seconds",
    } <= data.keys()
    assert data["lower"] <= data["cost"] <= data["upper"]


def test_evaluate_compares_saves_and_resumes(run, tmp_path):
    folder = tmp_path / "run"
    command = [
        "evaluate",
        "four-queue",
        "-p",
        "lbfs",
        "-p",
        "longer",
        "--set",
        "buffers=4",
        "--out",
        folder,
    ]
    status, out, _ = run(*command, "--steps", 400_000)
    assert status == 0
    assert "lbfs − longer" in out
    assert json.loads((folder / "result.json").read_text())["difference"]["value"] < 0
    status, _, err = run(*command, "--steps", 400_000)
    assert status == 2
    assert "already holds a run" in err
    assert run(*command, "--steps", 800_000, "--resume")[0] == 0


def test_evaluate_policies_and_models_from_files(run, files):
    status, out, _ = run(
        "evaluate",
        f"{files}/mine.py:model",
        "-p",
        f"{files}/mine.py:stay",
        "--steps",
        200_000,
        "--json",
    )
    data = json.loads(out)
    assert status == 0
    assert data["lower"] - 0.05 <= 1.5 <= data["upper"] + 0.05  # a fair walk on 0..3
    status, _, err = run(
        "evaluate", f"{files}/mine.py:model", "-p", f"{files}/mine.py:sloppy", "--steps", 1000
    )
    assert status == 2
    assert "probabilities that sum to 0.7, not 1" in err
    assert run("evaluate", files / "net.toml", "-p", "longer", "--steps", 100_000)[0] == 0
    status, out, _ = run(
        "evaluate",
        "four-queue",
        "-p",
        "lbfs",
        "--criterion",
        "discounted",
        "--gamma",
        "0.99",
        "--steps",
        200_000,
    )
    assert status == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("check four-quue", "unknown model 'four-quue'; did you mean 'four-queue'?"),
        (
            "check four-queue --set bufers=3",
            "unknown parameter of 'four-queue' 'bufers'; did you mean 'buffers'?",
        ),
        ("check four-queue --set buffers", "--set takes KEY=VALUE, got 'buffers'"),
        ("check four-queue --set buffers=0,9,9,9", "buffer 0 holds nobody"),
        ("check four-queue --set buffers=9,9", "buffers needs one number or 4 of them, got 2"),
        ("check four-queue --set dynamics=bernouli", "did you mean 'bernoulli'"),
        ("check lost-sales --set lead_time=1", "lead_time >= 2"),
        ("check garnet --set branching=200", "1 <= branching <= states"),
        ("check missing.toml", "there is no file 'missing.toml'"),
        ("check missing.py:model", "there is no file 'missing.py'"),
        ("check broken.toml", "'broken.toml' is not valid TOML:"),
        (
            "check lost.toml",
            "class 'parts' is routed to a class that is missing: unknown class 'pain'; did you "
            "mean 'paint'",
        ),
        ("check typo.toml", "unknown key of class 'parts' 'sevice'; did you mean 'service'?"),
        ("check empty.toml", "needs at least one [[class]]"),
        ("check text.toml", "arrival must be a number, got 'fast'"),
        ("check mine.py", "names a file but no object in it"),
        ("check mine.py:modle", "did you mean 'model'"),
        ("check mine.py:stay", "cannot be made with these parameters"),
        ("check raises.py:model", "'raises.py' raised NameError"),
        ("check four-queue --set arrivals=a,b", "cannot be made with these parameters: ValueError"),
        ("check four-queue --set buffers=nan", "buffer nan is no number"),
        ("check admission --set arrivals=a,b", "cannot be made with these parameters: ValueError"),
        ("check admission --set room=20.7", "limits of a box are integers, got 20.7"),
        ("check admission --set servers=2.5", "whole numbers"),
        ("check garnet --set seed=-1", "cannot be made with these parameters: ValueError"),
        ("check lost-sales --set demand=nan", "a positive demand"),
        ("check route.toml", "the route to 'paint' needs a probability, got ['x']"),
        ("check huge.toml", "buffer 1e+30 is too large"),
        ("check exits.py:model", "'exits.py' raised SystemExit"),
        (
            "evaluate mine.py:model -p mine.py:raises",
            "policy 'raises' at state (0) raised KeyError",
        ),
        ("evaluate four-queue -p lbfs --out net.toml", "holds no run"),
        (
            "evaluate four-queue -p lbfs -p longer --method regenerative",
            "compare them with method 'batch-means'",
        ),
        ("evaluate four-queue -p longest", "did you mean 'longer'"),
        ("evaluate four-queue -p lbfs -p lbfs -p lbfs", "one or two policies, got 3"),
        (
            "evaluate four-queue -p lbfs --gamma 0.9",
            "gamma and start belong to criterion 'discounted'",
        ),
        ("evaluate four-queue -p lbfs --criterion discounted", "needs gamma, a number below 1"),
        (
            "evaluate four-queue -p lbfs --criterion discounted --gamma 1",
            "gamma must lie strictly between 0 and 1",
        ),
        ("evaluate four-queue -p lbfs --criterion total", "unknown criterion 'total'"),
        (
            "evaluate four-queue -p lbfs --confidence 2",
            "confidence must lie strictly between 0 and 1",
        ),
        ("evaluate four-queue -p lbfs --tol -1", "tol must be a positive number"),
        ("evaluate four-queue -p lbfs --resume", "--resume needs --out"),
    ],
)
def test_mistakes_are_one_sentence_on_stderr_and_status_two(
    run, files, monkeypatch, command, words
):
    monkeypatch.chdir(files)
    (files / "broken.toml").write_text("name = [1,\n")
    (files / "lost.toml").write_text(NETWORK.replace('"paint"\n[[', '"pain"\n[['))
    (files / "typo.toml").write_text(NETWORK.replace("service = 1.0", "sevice = 1.0"))
    (files / "empty.toml").write_text('name = "nothing"\n')
    (files / "text.toml").write_text(NETWORK.replace("arrival = 0.8", 'arrival = "fast"'))
    (files / "raises.py").write_text("model = undefined\n")
    (files / "exits.py").write_text("import sys\nsys.exit(3)\n")
    (files / "route.toml").write_text(NETWORK.replace('route = "paint"', 'route = {paint = ["x"]}'))
    (files / "huge.toml").write_text(NETWORK.replace("buffer = 10", "buffer = 1e30"))
    status, out, err = run(*command.split())
    assert status == 2
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


BROKEN = """
import dualplan as dp
import numpy as np

def make(fault="none"):
    two = np.array([0.5, 0.5])
    def probability(x, a, e):
        if fault == "improbable" and x[0] == 2 and e == 0:
            return 1.1
        if fault == "sum" and x[0] == 2 and e == 0:
            return 0.4
        return two[e + x[0]] if fault == "index" else 0.5
    def move(x, a, e):
        y = x[0] + 1 if e == 0 else x[0] - 1
        if fault == "length" and x[0] == 2:
            return np.array([y, y])
        if fault == "length":
            return np.array([min(max(y, 0), 3)])
        if fault == "box":
            return np.array([max(y, 0)])
        return np.array([min(max(y, 0), 3)])
    def loss(x, a):
        return np.inf if fault == "loss" and x[0] == 2 else 1.0
    def allowed(x, a):
        return not (fault == "allowed" and x[0] == 2)
    def python(x, a):
        return float(len(str(a)) + hash("a") % 2 + len(set([1]) | {2}) + eval("1"))
    jumps = [(1,), (0,)] if fault == "jumps" else [(1,), (0,), (-1,)]
    return dp.EventModel(lower=[0], upper=[3], actions=1, events=2, probability=probability, move=move,
                         loss=python if fault == "compile" else loss, allowed=allowed, jumps=jumps, name="m")
"""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("improbable", "`probability` at x=(2), a=0, event 0 is 1.1, not in [0, 1]"),
        ("sum", "`probability` at x=(2), a=0 sums to 0.9 over the events, not 1"),
        ("index", "`probability` at x=(1), a=0, event=1 raised IndexError"),
        ("length", "`move` at x=(2), a=0, event 0 gives 2 coordinates; a state has 1"),
        ("box", "`move` at x=(3), a=0, event 0 leaves the box: x'=(4)"),
        ("loss", "`loss` at x=(2), a=0 is inf, not a finite number"),
        ("allowed", "no action is allowed in state x=(2)"),
        ("jumps", "by the forward law but 0 by the predecessors"),
        ("compile", "`loss` (python, line"),
    ],
)
def test_everything_that_check_model_finds_is_one_sentence(run, tmp_path, fault, words):
    (tmp_path / "broken.py").write_text(BROKEN)
    status, _, err = run("check", f"{tmp_path}/broken.py:make", "--set", f"fault={fault}")
    assert status == 2
    assert words in err
    assert err.count("\n") == 1
    if fault not in ("jumps", "compile"):  # the simulation stumbles over the same
        status, out, err = run(
            "evaluate",
            f"{tmp_path}/broken.py:make",
            "--set",
            f"fault={fault}",
            "-p",
            "random",
            "--steps",
            5000,
        )
        assert (status, out) == (2, "")
        assert err.count("\n") == 1


def test_values_on_the_command_line():
    assert [
        cli.parse_value(v) for v in ("3", "0.5", "true", "none", "inf", "block", "9,9", "1,none")
    ] == [3, 0.5, True, None, None, "block", (9, 9), (1, None)]


def test_the_installed_command_runs():
    """Once for real, in a process of its own."""
    command = Path(sys.executable).with_name("dualplan")
    done = subprocess.run(
        [command, "check", "no-such-model"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dualplan: unknown model 'no-such-model'")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("evaluate forest -p random --method exact --steps 5", "no steps and no interval"),
        ("evaluate forest -p random --method exact --out runs", "no run to save"),
        ("evaluate forest -p random --mixing", "--mixing needs --method exact"),
        ("exact forest --method dual-lp --sweeps 9", "not for linear programs"),
        (
            "exact forest --method value-iteration --limit loss<=1",
            "--limit works with --method dual-lp or primal-lp",
        ),
        ("exact forest --method simplex", "unknown exact method 'simplex'"),
    ],
)
def test_options_that_would_do_nothing_are_refused(command, words, run):
    status, _, err = run(*command.split())
    assert status == 2
    assert words in err


NAMES = """
time = "continuous"
[[class]]
name = "in [icu]"
server = "desk[/]"
service = 1.0
arrival = 0.5
buffer = 5
route = "x[/b]"
[[class]]
name = "x[/b]"
server = "[red]bed"
service = 1.0
buffer = 5
"""


def test_names_are_printed_as_they_are(tmp_path, run):
    (tmp_path / "net.toml").write_text(NAMES)
    net = str(tmp_path / "net.toml")
    status, out, _ = run("check", net)
    assert status == 0
    assert "load of desk[/]: 0.5" in out
    assert "load of [red]bed" in out
    status, out, _ = run("evaluate", net, "-p", "c-mu", "--steps", 20_000)
    assert status == 0
    assert "loss rate in [icu]" in out
    assert "throughput x[/b]" in out
    status, out, _ = run("solve", net, "--time", "1s")
    assert status == 0


def test_tables_keep_all_digits_on_a_narrow_terminal(run, monkeypatch):
    call = (
        "evaluate",
        "four-queue",
        "--set",
        "buffers=3",
        "-p",
        "lbfs",
        "-p",
        "c-mu",
        "--steps",
        50_000,
    )
    monkeypatch.setenv("COLUMNS", "200")
    wide = run(*call)[1]
    monkeypatch.setenv("COLUMNS", "40")
    narrow = run(*call)[1]
    assert max(map(len, narrow.splitlines())) < max(map(len, wide.splitlines()))
    assert "…" not in narrow
    numbers = re.findall(r"\d+\.\d{3,}", wide)  # seconds have fewer digits
    assert len(numbers) > 40
    assert all(number in narrow for number in numbers)


def test_the_version(run):
    assert run("--version")[1] == f"dualplan {dp.__version__}\n"
    assert "Commands" in run()[1]


def test_a_run_that_is_not_there_is_not_resumed(run, tmp_path):
    status, _, err = run(
        "solve", "four-queue", "--time", "1s", "--out", tmp_path / "none", "--resume"
    )
    assert status == 2
    assert "there is no run in" in err
    assert not (tmp_path / "none").exists()


def test_ctrl_c_while_modules_are_loaded(tmp_path):
    """A module that the package loads first waits for Ctrl-C."""
    waiting = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(9)\n"
    (tmp_path / "numpy.py").write_text(waiting)
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from dualplan_command import main; main()",
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 130
    assert found.stderr == "interrupted before there was anything to show.\n"
