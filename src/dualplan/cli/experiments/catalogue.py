"""The experiments by name, the options that each of them takes, and the folder that results are
saved in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from dualplan.cli.experiments.criss_cross import criss_cross
from dualplan.cli.experiments.dual_mixing import dual_mixing
from dualplan.cli.experiments.eight_queue import eight_queue
from dualplan.cli.experiments.figure_3 import draw_curves, figure_3
from dualplan.cli.experiments.four_queue import four_queue
from dualplan.cli.experiments.lost_sales import lost_sales
from dualplan.cli.experiments.picture import draw_rows
from dualplan.cli.experiments.rows import Outcome, Progress
from dualplan.cli.experiments.six_class import six_class
from dualplan.core.errors import InputError, RunError, unknown
from dualplan.core.runs import write_json
from dualplan.core.types import Json

EXPERIMENTS: dict[str, Callable[..., Outcome]] = {
    "figure-3": figure_3,
    "dual-mixing": dual_mixing,
    "four-queue": four_queue,
    "criss-cross": criss_cross,
    "six-class": six_class,
    "eight-queue": eight_queue,
    "lost-sales": lost_sales,
}
EXPERIMENTS_FOLDER = "runs/reproduce"
FIGURE_FILE = "figure.png"
EXPERIMENT_RESULT_FILE = "result.json"
_FLAGS_OF_ARGUMENTS = {"parameters": "--set"}  # where the option is not called like the argument


def options_of(name: str) -> list[str]:
    """The arguments of an experiment that a user may give."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return [key for key in inspect.signature(EXPERIMENTS[name]).parameters if key != "progress"]


def run_again(
    name: str, given: Json, *, out: str | Path | None = None, progress: Progress | None = None
) -> tuple[Outcome, Path]:
    """Run an experiment with the options `given`.

    Its figure and its result are saved in the folder.
    """
    accepted = options_of(name)
    for option in given:
        if option not in accepted:
            flags = ", ".join(_flag(key) for key in accepted)
            raise InputError(
                f"{_flag(option)} is not for {name}, which takes {flags}, --out and --json."
            )
    folder = _folder(Path(EXPERIMENTS_FOLDER) / name if out is None else Path(out))
    outcome = EXPERIMENTS[name](**given, progress=progress)
    (draw_curves if outcome.curves else draw_rows)(outcome, folder / FIGURE_FILE)
    write_json(folder / EXPERIMENT_RESULT_FILE, {**outcome.to_json(), "figure": FIGURE_FILE})
    return outcome, folder


def _flag(option: str) -> str:
    return _FLAGS_OF_ARGUMENTS.get(option, f"--{option}")


def _folder(path: Path) -> Path:
    """The folder, made before the work so that it is not done in vain."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"folder {str(path)!r} cannot be made for the results: {error.strerror}."
        ) from error
    return path
