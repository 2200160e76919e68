import sys

import hypothesis
import pytest

import dualplan as dp
import longer
from bank import mixed_features
from dualplan import cli
from dualplan.cli import output

hypothesis.settings.register_profile(
    "dualplan", deadline=None, derandomize=True, max_examples=60, print_blob=True
)
hypothesis.settings.load_profile("dualplan")


def pytest_collection_modifyitems(items):
    """Mark the tests of `make quick`: all but those of tests/longer.txt, which took longer than
    a third of a second when `make durations` was last run. A new test is quick until then.
    """
    left_out = longer.listed()
    for item in items:
        if f"{item.path.name}::{item.originalname}" not in left_out:
            item.add_marker(pytest.mark.quick)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path_factory):
    """Run a command in this process: exit status, stdout, stderr."""
    monkeypatch.delenv("COLUMNS", raising=False)  # which workers of tests have
    monkeypatch.setenv("DUALPLAN_RUNS", str(tmp_path_factory.mktemp("runs")))

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["dualplan", *map(str, args)])
        monkeypatch.setattr(output, "err", output.Console(stderr=True, width=200))
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


@pytest.fixture(scope="session")
def net():
    return dp.load("four-queue", buffers=2)


@pytest.fixture(scope="session")
def mixed(net):
    return mixed_features(net)
