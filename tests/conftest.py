import sys

import hypothesis
import pytest

import dualplan as dp
from bank import mixed_features
from dualplan import cli
from dualplan.cli import output

hypothesis.settings.register_profile(
    "dualplan", deadline=None, derandomize=True, max_examples=60, print_blob=True
)
hypothesis.settings.load_profile("dualplan")


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process: exit status, stdout, stderr."""
    monkeypatch.delenv("COLUMNS", raising=False)  # which workers of tests have

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
