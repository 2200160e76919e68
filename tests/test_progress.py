"""What is said while the library works, and what Ctrl-C leaves."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import dualplan as dp
from dualplan import cli
from dualplan.cli import command, exact, output
from dualplan.cli.evaluate import _Progress
from dualplan.core.intervals import Interval
from dualplan.dual import meta
from dualplan.models.load import load
from dualplan.search import duels, loop
from dualplan.search.plans import Plan, run_plan

# -- bars and lines --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pace", "words"),
    [
        (0, "0 steps/s"),
        (2.5, "2.5 steps/s"),
        (1_500, "1.5k steps/s"),
        (2.5e6, "2.5M steps/s"),
        (0.25, "0.25 steps/s"),
        (7e12, "7e+03G steps/s"),
    ],
)
def test_rates(pace, words):
    assert output.rate(pace, "steps") == words


@pytest.fixture
def screen(monkeypatch):
    """A terminal, on which bars appear at once."""
    console = Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)
    monkeypatch.setattr(output, "err", console)
    monkeypatch.setattr(output, "PROGRESS_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(output, "loudness", output.NORMAL_OUTPUT)
    return console


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when it is told to."""
    now = SimpleNamespace(value=1_000.0)
    monkeypatch.setattr(output, "time", SimpleNamespace(monotonic=lambda: now.value))
    return now


def work(clock, **how):
    """10 of 100 at the first look, then 2.5 a second; at 60 the total becomes 160."""
    with output.bar("simulating", **how) as update:
        clock.value += 3.0
        update(10, 100, "1.5 ± 0.2")
        clock.value += 20.0
        update(60, 160, "")
        clock.value += 8.0
        update(80, 160, "1.4 ± 0.1")


def test_a_terminal_shows_what_is_known_and_nothing_stays(screen, clock):
    work(clock, unit="steps")
    shown = screen.file.getvalue()
    assert "simulating" in shown
    assert "1.4 ± 0.1" in shown
    assert "2.5 steps/s" in shown
    assert "0:00:32" in shown  # 80 more at 2.5 a second
    assert "\x1b[2K" in shown  # erased in the end


@pytest.mark.parametrize(
    ("loudness", "lines"),
    [(output.QUIET_OUTPUT, 0), (output.NORMAL_OUTPUT, 0), (output.VERBOSE_OUTPUT, 2)],
)
def test_without_a_terminal_there_are_lines_only_if_asked(
    monkeypatch, capsys, clock, loudness, lines
):
    monkeypatch.setattr(output, "err", Console(stderr=True))
    monkeypatch.setattr(output, "PROGRESS_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(output, "loudness", loudness)
    work(clock, unit="steps")
    out, err = capsys.readouterr()
    said = ["     3.0 s  simulating: 1.5 ± 0.2", "    31.0 s  simulating: 1.4 ± 0.1, 2.5 steps/s"]
    assert out == ""
    assert err.splitlines() == said[:lines]


def test_quiet_is_quiet_on_a_terminal_too(screen, clock, monkeypatch):
    monkeypatch.setattr(output, "loudness", output.QUIET_OUTPUT)
    work(clock)
    output.note("a note")
    assert screen.file.getvalue() == ""


def test_a_bar_of_seconds_moves_with_the_clock(screen, clock):
    """At 10 s of 100 s and 30 s later, 60 s are left."""
    bars = output._Bars(output._Left(), console=screen)
    bars.add_task("searching", total=100.0, timed=True, done=10.0, looked=1_000.0, pace=0.0)
    clock.value += 30.0
    list(bars.get_renderables())
    assert bars.tasks[0].completed == pytest.approx(40.0)
    assert output._Left().render(bars.tasks[0]).plain == "0:01:00"


def test_every_command_knows_quiet_and_verbose(run):
    for registered in cli.app.registered_commands:
        names = command.inspect.signature(registered.callback).parameters
        assert {"quiet", "verbose"} <= set(names)
    status, out, err = run("models", "-q", "-v")
    assert (status, out) == (2, "")
    assert "contradict each other; leave one of them out" in err


def test_the_lines_of_a_simulation_end_in_its_result(run):
    call = [
        "evaluate",
        "four-queue",
        "-p",
        "lbfs",
        "--set",
        "buffers=3",
        "--steps",
        300_000,
        "--json",
    ]
    _, plain, nothing = run(*call, "-q")
    status, out, err = run(*call, "--verbose")
    result = json.loads(out)
    assert (status, nothing) == (0, "")
    assert {k: v for k, v in result.items() if k != "seconds"} == {
        k: v for k, v in json.loads(plain).items() if k != "seconds"
    }
    half = (result["upper"] - result["lower"]) / 2
    assert f"simulating: {result['cost']:.5g} ± {half:.2g}, " in err.splitlines()[-1]


def test_how_many_steps_a_half_width_takes():
    """Four times as many for half the width."""
    totals = []
    tell = _Progress(lambda done, total, words: totals.append(total), 0.5, None)
    tell(1_000, 10**6, Interval(7.0, 6.0, 8.0, 0.95))
    tell(1_500, 10**6, None)
    tell(3_000, 10**6, Interval(7.0, 6.6, 7.4, 0.95))
    assert totals == [4_000, 4_000, 3_000]
    relative = _Progress(lambda done, total, words: totals.append(total), None, 0.05)
    relative(1_000, 3_000, Interval(10.0, 9.0, 11.0, 0.95))
    assert totals[-1] == 3_000  # 4,000 are not allowed


def test_how_many_sweeps_geometric_bounds_take(monkeypatch):
    """Widths 0.9^k reach 0.9^100 at k = 100; lines come when the number of sweeps has doubled."""
    told = []
    looks = exact._Looks(
        lambda done, total, words, event: told.append((done, total, event)), 0.9**100, 10**6
    )
    for k in range(1, 60):
        looks(k, 5.0, 5.0 + 0.9**k)
    assert [total for _, total, _ in told[1:]] == pytest.approx([100.0] * 58)
    assert [k for k, _, event in told if event] == [1, 2, 4, 8, 16, 32]


def test_bounds_of_sweeps_in_lines(run):
    status, out, err = run("exact", "four-queue", "--set", "buffers=3", "--json", "-v")
    assert status == 0
    found = json.loads(out)
    lines = re.findall(r"sweeping: (\S+) – (\S+) after", err.replace("−", "-"))
    lows, highs = np.array(lines, float).T
    assert len(lines) >= 4
    assert (np.diff(lows) >= 0).all()
    assert (lows <= found["upper"] + 1e-4).all()
    assert (highs >= found["lower"] - 1e-4).all()


# -- the search and the dual program ---------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return dp.load("four-queue", buffers=2)


@pytest.fixture
def quick(monkeypatch):
    """Searches that look at policies for a moment only."""
    monkeypatch.setattr(duels, "SCREENING_STEPS", 1_000)
    monkeypatch.setattr(duels, "DUEL_LOOKS_STEPS", (20_000,))
    monkeypatch.setattr(duels, "LAST_LOOK_STEPS", 20_000)


def test_a_search_tells_each_verdict(small, quick):
    told, worst = [], [small.policy("fbfs")]
    found = dp.solve(
        small,
        policies=worst,
        time="100s",
        method=["lattice", "values"],
        progress=lambda *at: told.append(at),
    )
    assert all(total == 100 and 0 <= done <= 100 for done, total, _ in told)
    verdicts = [
        re.search(r"(\d+) of (\d+) steps gained, (\S+) \(size (\d+)\)", words)
        for _, _, words in told
    ]
    verdicts = [hit.groups() for hit in verdicts if hit]
    gains = np.cumsum([a.accepted for a in found.attempts])
    assert verdicts == [
        (str(gains[k]), str(k + 1), a.step, str(a.size)) for k, a in enumerate(found.attempts)
    ]
    assert len(verdicts) >= 2
    assert gains[-1] >= 1
    assert re.search(r"best [\d.]+ ± [\d.e-]+, .*evaluating the policy", told[-2][2])


def test_an_interrupted_search_proves_nothing_more(small, quick, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    def never(*_, **__):
        raise AssertionError("a bound takes time that the user does not want to spend")

    monkeypatch.setattr(loop.Loop, "attempt", stopped)
    monkeypatch.setattr(loop, "best_bound", never)
    found = dp.solve(small, policies=[small.policy("lbfs")], time="100s", method=["lattice"])
    assert found.status is dp.Status.INTERRUPTED
    assert found.cost == pytest.approx(dp.evaluate_exact(small, found.policy).cost)
    assert found.bound.value == -np.inf


def test_an_interruption_while_the_bound_is_sought_keeps_the_cost(small, quick, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "best_bound", stopped)
    found = dp.solve(small, policies=[small.policy("lbfs")], time="100s", method=["lattice"])
    assert found.status is dp.Status.INTERRUPTED
    assert found.cost == pytest.approx(dp.evaluate_exact(small, found.policy).cost)


PLAN = Plan("four-queue", {"buffers": 2}, features="standard", penalty=[1.0, 10.0, 100.0], sweeps=5)


@pytest.fixture(scope="module")
def planned():
    told = []
    return run_plan(PLAN, progress=lambda *look: told.append(look)), told


def test_a_plan_tells_each_penalty(planned):
    result, told = planned
    by_penalty = {o.solution.penalty[1]: o.solution for o in result.outcomes}
    first, lines = told[0], [words for _, _, words in told if "objective" in words]
    assert first == (0, 3, "H = 100 in work")
    assert len(lines) == 3
    for k, (h, after) in enumerate(
        [(100.0, "; H = 10 in work"), (10.0, "; H = 1 in work"), (1.0, "")]
    ):
        parts = by_penalty[h].parts
        ended, violation = by_penalty[h].status, parts.negative + parts.flow
        words = f"H = {h:.3g} {ended}: objective {parts.objective:.5g}, violation {violation:.3g}"
        assert lines[k] == words + after


def interrupting(at):
    """A progress that is interrupted when so many penalties are solved."""

    def progress(done, total, words):
        if "objective" in words and done == at:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_plan_has_the_best_so_far_and_goes_on(planned, tmp_path):
    whole, folder = planned[0].to_json(), tmp_path / "run"
    cut = run_plan(PLAN, folder=str(folder), progress=interrupting(2))
    assert cut.interrupted
    assert [o.solution.penalty[1] for o in cut.outcomes] == [10.0, 100.0]
    saved = json.loads((folder / "result.json").read_text())
    assert (saved["status"], saved["penalties_left"], saved["lower_bound"]) == (
        "interrupted",
        [1.0],
        "-Infinity",
    )
    assert saved["cost"] == pytest.approx(min(row["cost"] for row in whole["tried"][1:]))
    again = run_plan(PLAN, folder=str(folder), resume=True)
    assert not again.interrupted
    same = ("cost", "cost_lower", "cost_upper", "chosen", "penalty", "lower_bound", "status")
    assert {key: again.to_json()[key] for key in same} == {key: whole[key] for key in same}
    with pytest.raises(KeyboardInterrupt):  # nothing was found yet
        run_plan(PLAN, progress=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))


def test_an_interruption_among_the_evaluations(planned, monkeypatch):
    """The second policy's evaluation is cut: the first two count, and nothing is proved."""
    real, seen = meta.judged, []

    def judged(*args):
        seen.append(real(*args))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return seen[-1]

    monkeypatch.setattr(meta, "judged", judged)
    cut = run_plan(PLAN)
    assert cut.interrupted
    assert len(cut.outcomes) == 1
    assert cut.bound.value == -np.inf
    assert cut.to_json()["penalties_left"] == [10.0, 100.0]


# -- Ctrl-C on the command line --------------------------------------------------------------------


def test_the_first_ctrl_c_interrupts_and_the_second_ends_at_once(monkeypatch):
    ended = []
    monkeypatch.setattr(command.os, "_exit", ended.append)
    outside = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells ignore it in what they put behind them
    try:
        _press_twice(ended)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, outside)


def _press_twice(ended):
    with command._interrupts():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert ended == []
        with pytest.raises(KeyboardInterrupt):  # only because the end is a list here
            signal.raise_signal(signal.SIGINT)
        assert ended == [130]


def test_sweeps_that_are_interrupted_leave_their_bounds(run, monkeypatch):
    optimum = dp.solve_exact(load("four-queue", buffers=3), tol=1e-6).value
    real = exact.solve_exact

    def cut(*args, progress, **options):
        def look(sweeps, low, high):
            progress(sweeps, low, high)
            if sweeps >= 40:
                raise KeyboardInterrupt

        return real(*args, progress=look, **options)

    monkeypatch.setattr(exact, "solve_exact", cut)
    call = [
        "exact",
        "four-queue",
        "--set",
        "buffers=3",
        "--method",
        "value-iteration",
        "--tol",
        "1e-9",
        "--json",
    ]
    status, out, err = run(*call)
    found = json.loads(out)
    assert (status, found["status"]) == (130, "interrupted")
    assert found["lower"] <= optimum <= found["upper"]
    assert found["upper"] - found["lower"] > 1e-9
    assert err == "interrupted; nothing was saved.\n"


def test_an_interruption_of_a_row_ends_the_table(run, monkeypatch, tmp_path):
    calls = []

    def cut(*args, **options):
        calls.append(args)
        return replace(evaluate(*args, **options), status=dp.Status.INTERRUPTED)

    evaluate = dp.evaluate
    monkeypatch.setattr("dualplan.cli.experiments.measure.evaluate", cut)
    status, out, err = run(
        "reproduce", "eight-queue", "--steps", "1000", "--out", str(tmp_path / "out")
    )
    assert (status, out, len(calls)) == (130, "", 1)
    assert err == "interrupted before there was anything to show; nothing was saved.\n"


def test_nothing_to_show_is_said_too(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dualplan.cli.evaluate.evaluate_policy", stopped)
    call = ["evaluate", "four-queue", "-p", "lbfs", "--set", "buffers=2"]
    status, out, err = run(*call)
    assert (status, out) == (130, "")
    assert err.startswith(
        "interrupted before there was anything to show; nothing was saved, name a folder by --out"
    )
    assert err.count("\n") == 1
    _, _, err = run(*call, "--out", "my run")
    assert err == "interrupted before there was anything to show; nothing was saved.\n"
    Path("my run").mkdir()
    Path("my run/settings.json").touch()
    _, _, err = run(*call, "--out", "my run", "--resume")
    assert err.endswith(
        "go on with: dualplan evaluate four-queue -p lbfs --set buffers=2 --out 'my run' --resume\n"
    )


def start(folder, *args):
    """A process of the command line that hears Ctrl-C, even if these tests do not."""
    return subprocess.Popen(
        [sys.executable, "-m", "dualplan.cli", *map(str, args)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def interrupt(process, after):
    """Send Ctrl-C once a line says that the work has begun; the outcome of the process."""
    for line in process.stderr:
        if after in line:
            break
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
    return process.returncode, out, err


def test_a_simulation_that_ctrl_c_ends_goes_on_to_the_same_result(tmp_path, run, monkeypatch):
    steps = 4_000_000
    call = [
        "evaluate",
        "four-queue",
        "-p",
        "lbfs",
        "--set",
        "buffers=3",
        "--steps",
        steps,
        "--out",
        "run",
        "--json",
    ]
    status, out, err = interrupt(start(tmp_path, *call, "-v"), "simulating:")
    cut = json.loads(out)
    assert (status, cut["status"]) == (130, "interrupted")
    assert cut["steps"] < steps
    words = err.splitlines()[-1]
    expected = " ".join(map(str, call)) + " -v --resume"
    assert words == f"interrupted; go on with: dualplan {expected}"
    monkeypatch.chdir(tmp_path)
    status, out, _ = run(*expected.split())
    whole = dp.evaluate(
        load("four-queue", buffers=3), load("four-queue", buffers=3).policy("lbfs"), steps=steps
    )
    assert status == 0
    assert {key: json.loads(out)[key] for key in ("cost", "lower", "upper", "steps")} == {
        key: whole.to_json()[key] for key in ("cost", "lower", "upper", "steps")
    }


@pytest.mark.slow
def test_a_search_that_ctrl_c_ends_goes_on_from_its_best(tmp_path, quick, monkeypatch):
    call = [
        "solve",
        "four-queue",
        "--set",
        "buffers=2",
        "-p",
        "lbfs",
        "--time",
        "300s",
        "--method",
        "lattice",
        "--out",
        "run",
        "--json",
    ]
    status, out, err = interrupt(start(tmp_path, *call, "-v"), "lattice")
    cut = json.loads(out)
    assert (status, cut["status"], cut["evaluation"]) == (130, "interrupted", "exact")
    assert err.splitlines()[-1].endswith("--json -v --resume")
    monkeypatch.chdir(tmp_path)
    model = load("four-queue", buffers=2)
    assert dp.evaluate_exact(model, dp.load_policy("run/policy.npz", model)).cost == pytest.approx(
        cut["cost"]
    )

    def stop(done, total, words):
        if "(size" in words:
            raise KeyboardInterrupt

    again = dp.solve(
        model,
        policies=[model.policy("lbfs")],
        time="100s",
        method="lattice",
        folder="run",
        resume=True,
        progress=stop,
    )
    assert "saved" in {member.candidate.source for member in again.start}
    assert len(again.attempts) == 1
    assert again.cost <= cut["cost"] + 1e-9
