"""Folders of runs: whole files or none, no pickle, no mix-ups."""

import json
import os

import numpy as np
import pytest

import dualplan as dp
from dualplan.core import runs


def test_files_are_as_readable_as_any_other(tmp_path):
    (tmp_path / "plain").write_text("x")
    runs.write_bytes(tmp_path / "whole", b"x")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_in_use_is_refused_and_settings_must_agree(tmp_path):
    folder = tmp_path / "run"
    dp.core.runs.Run(folder, {"seed": 1, "budget": 10})
    with pytest.raises(dp.errors.RunError, match="already holds a run"):
        dp.core.runs.Run(folder, {"seed": 1, "budget": 10})
    dp.core.runs.Run(folder, {"seed": 1, "budget": 99}, resume=True)
    with pytest.raises(dp.errors.RunError, match="another 'seed'"):
        dp.core.runs.Run(folder, {"seed": 2, "budget": 10}, resume=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.txt").write_text("keep me")
    with pytest.raises(dp.errors.RunError, match="holds no run"):
        dp.core.runs.Run(other, {})
    with pytest.raises(dp.errors.RunError, match="holds no run"):
        dp.core.runs.Run(other / "precious.txt", {})
    with pytest.raises(dp.errors.RunError, match="cannot be written to"):
        dp.core.runs.Run(other / "precious.txt" / "run", {})


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    run = dp.core.runs.Run(tmp_path / "run", {})
    run.save_checkpoint({"a": np.arange(3)})

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        run.save_checkpoint({"a": np.arange(5)})
    monkeypatch.undo()
    assert run.checkpoint()["a"].tolist() == [0, 1, 2]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "checkpoint.npz",
        "settings.json",
    ]


def test_pickles_are_refused(tmp_path):
    run = dp.core.runs.Run(tmp_path / "run", {})
    np.savez(tmp_path / "run" / "checkpoint.npz", a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(dp.errors.RunError, match="cannot be read"):
        run.checkpoint()
    run.save_checkpoint({"a": np.arange(1000)})
    whole = (tmp_path / "run" / "checkpoint.npz").read_bytes()
    for damaged in (b"not a zip file", whole[: len(whole) // 2]):
        (tmp_path / "run" / "checkpoint.npz").write_bytes(damaged)
        with pytest.raises(dp.errors.RunError, match="cannot be read"):
            run.checkpoint()


def test_files_are_plain_json(tmp_path):
    run = dp.core.runs.Run(
        tmp_path / "run", {"array": np.arange(2), "infinite": np.inf, "flag": np.bool_(True)}
    )
    run.trace({"steps": np.int64(3), "value": np.nan})
    run.save_result({"cost": np.float64(1.5)})
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["settings"] == {"array": [0, 1], "infinite": "Infinity", "flag": True}
    assert settings["versions"]["dualplan"] == dp.__version__
    assert json.loads((tmp_path / "run" / "trace.jsonl").read_text()) == {
        "steps": 3,
        "value": "NaN",
    }
    assert runs.read_json(tmp_path / "run" / "result.json") == {"cost": 1.5}
