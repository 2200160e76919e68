"""Where output goes: results to stdout, everything else to stderr; numbers, and progress on a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dualplan.intervals import Interval
from dualplan.runs import plain

err = Console(stderr=True)
PROGRESS_AFTER = 2.0  # seconds


def out_console() -> Console:
    """Standard output; wide enough for tables where it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def print_json(value: dict[str, Any]) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(plain(value), allow_nan=False) + "\n")


def number(value: float | None, digits: int = 5) -> str:
    """A number in a table; JSON has None for one that is infinite or unknown."""
    return "unknown" if value is None else "∞" if value == float("inf") else f"{value:.{digits}g}"


def words_of(interval: Interval | None) -> str:
    """An interval as it is shown beside a bar."""
    return "" if interval is None else f"{interval.value:.5g} ± {interval.half_width:.2g}"


@contextmanager
def bar(title: str) -> Iterator[Any]:
    """A progress bar on a terminal, once two seconds have passed; nothing otherwise."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn(),
               TimeRemainingColumn())  # fmt: skip
    bar = Progress(*columns, console=err, transient=True)
    task = bar.add_task(title, total=None, words="")
    started, shown, latest = time.monotonic(), False, ""

    def update(done: int, total: int, words: str) -> None:
        nonlocal shown, latest
        latest = words or latest
        if not shown and err.is_terminal and time.monotonic() - started > PROGRESS_AFTER:
            bar.start()
            shown = True
        bar.update(task, completed=min(done, total), total=total, words=latest)

    try:
        yield update
    finally:
        if shown:
            bar.stop()
