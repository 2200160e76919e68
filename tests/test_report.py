"""The report page: what it says against exact costs, what its map holds against policies, one file that is whole."""

import base64
import itertools
import json
import re
import shlex
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

import dualplan as dp
from dualplan.cli.inputs import parameters_from
from dualplan.errors import InputError
from dualplan.improvement import improve
from dualplan.intervals import Interval
from dualplan.models.load import load
from dualplan.plans import Plan, run_plan
from dualplan.policies.tables import TablePolicy, random_policy
from dualplan.primal.relevance import visited
from dualplan.report import write_report
from dualplan.report.gather import judge_heuristics, read_run
from dualplan.report.page import comparison, map_notes, render
from dualplan.report.repeat import NETWORK, PLAN, as_toml, repeat
from dualplan.report.slices import CELLS, make_slices, packed, tabulate
from dualplan.report.words import at_most, bound_words, certificate, facts, heuristic_words, percent, warnings
from dualplan.runs import read_json, write_json
from dualplan.saved import save_policy
from dualplan.status import Status

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


@pytest.fixture(scope="session")
def searched(tmp_path_factory):
    """A search on 81 states."""
    folder = tmp_path_factory.mktemp("runs") / "searched"
    improve(dp.load("four-queue", buffers=2), time=1, steps=["lattice"], folder=str(folder))
    return folder


@pytest.fixture(scope="session")
def planned(tmp_path_factory):
    """The dual program on the same states."""
    folder = tmp_path_factory.mktemp("runs") / "planned"
    run_plan(Plan("four-queue", set={"buffers": 2}, penalty=[10.0, 100.0], seed=3), folder=str(folder))
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
    return run, judge_heuristics(run, 1.0, lambda _: None)


# -- the map ----------------------------------------------------------------------------------------------------------


def unpack(text):
    """As the page does: runs of 16-bit pairs."""
    raw = base64.b64decode(text)
    pairs = [int.from_bytes(raw[k : k + 2], "little") for k in range(0, len(raw), 2)]
    return list(
        itertools.chain.from_iterable(itertools.repeat(v, n) for v, n in zip(pairs[::2], pairs[1::2], strict=True))
    )


def cells_of(data):
    """The states in the order of the cells, from what is in the page and nothing else."""
    axes = data["axes"]
    for i, j in data["pairs"]:
        others = [k for k in range(len(axes)) if k not in (i, j)]
        levels = itertools.product(*([axes[k]["values"][p] for p in axes[k]["levels"]] for k in others))
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
    """Sampled cells of every layer against `probabilities`, and allowed actions against the model."""
    model = dp.load(name, **parameters)
    policies = [model.policy(n) for n in [*model.policies][:2]] + [random_policy(model)]
    visits = visited(model, policies[0], 500, 1)
    data = json.loads(re.search(r'id="map-data">(.*?)</script>', text, re.S).group(1))
    assert data["classes"][0] == "</script><script>alert(1)</script>"


# -- the command line -------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page(run, searched, tmp_path):
    status, out, _ = run("report", searched, "--time", "1s")
    assert (status, (searched / "report.html").exists()) == (0, True)
    assert "report.html" in out
    status, _, _ = run("report", searched, "--out", tmp_path / "p.html", "--time", "1s")
    assert status == 0
    assert (tmp_path / "p.html").read_text().startswith("<!DOCTYPE html>")


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
        write_report(searched, seconds=0)
