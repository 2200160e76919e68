"""How the source reads: limits on what tools/counts.py counts."""

import importlib.util
from pathlib import Path

import dualplan as dp

spec = importlib.util.spec_from_file_location(
    "counts", Path(__file__).parents[1] / "tools" / "counts.py"
)
counts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(counts)


def test_the_source_is_written_at_walking_pace():
    found = counts.reading()
    assert found["parallel assignments per 1,000 lines"] <= 6
    assert found["conditional expressions per 1,000 lines"] <= 10
    assert found["lines over 100 columns"] == 0
    assert found["fmt: skip"] <= 20
    # a command has a parameter for each of its options
    assert found["functions with more than 8 parameters"] <= 37


def test_the_front_door_is_narrow():
    assert len(dp.__all__) <= 40
    assert counts.graph()["entries in src/dualplan"] <= 13
