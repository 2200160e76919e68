"""Runs as folders.

    settings.json     what was asked: model, policy, method, seed, budget; and the versions that ran
    checkpoint.npz    arrays from which the run goes on; replaced whole, never half written
    trace.jsonl       one line for each look at the progress
    result.json       what came out

Everything is JSON or plain arrays, readable without this library; no pickle is ever loaded.
"""

from __future__ import annotations

import io
import json
import os
import platform
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dualplan.core.encoding import decoded, encoded
from dualplan.core.errors import RunError
from dualplan.core.types import Json

SETTINGS_FILE = "settings.json"
CHECKPOINT_FILE = "checkpoint.npz"
TRACE_FILE = "trace.jsonl"
RESULT_FILE = "result.json"


class Run:
    """A folder that a computation writes to and can go on from."""

    def __init__(self, folder: str | Path, settings: Json, *, resume: bool = False) -> None:
        """Open `folder` for a computation with these settings.

        A folder that is in use is refused unless `resume`; then there must be a run, and its
        settings must be the same, but for the budget.
        """
        self.folder = Path(folder)
        path = self.folder / SETTINGS_FILE
        if resume and not path.exists():
            raise RunError(
                f"there is no run in {str(folder)!r} to go on with; begin one, without resuming."
            )
        if not resume:
            require_free(folder)
        else:
            _check_same(read_json(path).get("settings", {}), encoded(settings), str(folder))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(path, {"settings": settings, "versions": versions()})
        except OSError as error:
            raise RunError(f"folder {str(folder)!r} cannot be written to: {error}.") from error

    def save_checkpoint(self, arrays: Mapping[str, Any]) -> None:
        """Replace the checkpoint, whole or not at all."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **dict(arrays))
        write_bytes(self.folder / CHECKPOINT_FILE, buffer.getvalue())

    def checkpoint(self) -> dict[str, Any] | None:
        """The arrays of the last checkpoint, or None before the first."""
        path = self.folder / CHECKPOINT_FILE
        if not path.exists():
            return None
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise RunError(
                f"checkpoint {str(path)!r} cannot be read ({error}); delete it to start again."
            ) from error

    def trace(self, line: Json) -> None:
        """Append one line to the trace."""
        with (self.folder / TRACE_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(encoded(line), allow_nan=False) + "\n")

    @property
    def traced(self) -> int:
        """The number of lines in the trace."""
        path = self.folder / TRACE_FILE
        if path.exists():
            return len(path.read_text(encoding="utf-8").splitlines())
        return 0

    def save_result(self, result: Json) -> None:
        """Write what came out."""
        write_json(self.folder / RESULT_FILE, result)


def require_free(folder: str | Path) -> None:
    """Raise unless a new run may be written to the folder."""
    path = Path(folder)
    if (path / SETTINGS_FILE).exists():
        raise RunError(
            f"folder {str(folder)!r} already holds a run; choose another one, or resume it."
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunError(f"folder {str(folder)!r} is not empty and holds no run; choose another one.")


def versions() -> Json:
    """The versions of what computes."""
    from importlib.metadata import version

    names = ("dualplan", "numpy", "scipy", "numba")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, and keep it through a loss of power."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)  # temporary files are for their owner alone; this one is as any other
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Json) -> None:
    """Write JSON whole or not at all."""
    write_bytes(path, (json.dumps(encoded(value), indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Json:
    """Read a JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{str(path)!r} cannot be read as JSON: {error}.") from error
    if not isinstance(value, dict):
        raise RunError(f"{str(path)!r} holds no JSON object.")
    found: Json = decoded(value)
    return found


def read_result(folder: str | Path) -> Json:
    """What came out of the run in a folder."""
    path = Path(folder)
    if not (path / SETTINGS_FILE).exists():
        raise RunError(f"folder {str(folder)!r} holds no run; name one that was saved with --out.")
    if not (path / RESULT_FILE).exists():
        raise RunError(f"the run in {str(folder)!r} has no result yet; go on with it by --resume.")
    return read_json(path / RESULT_FILE)


def _check_same(old: Json, new: Json, folder: str) -> None:
    for key in {*old, *new} - {"budget"}:
        if old.get(key) != new.get(key):
            raise RunError(
                f"folder {folder!r} holds a run with another {key!r}; choose another folder."
            )
