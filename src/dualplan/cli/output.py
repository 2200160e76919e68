"""Where output goes: results to stdout, everything else to stderr.

And progress on a terminal.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dualplan.core.encoding import encoded

err = Console(stderr=True)
PROGRESS_AFTER_SECONDS = 2.0  # seconds
QUIET_OUTPUT, NORMAL_OUTPUT, VERBOSE_OUTPUT = range(3)
loudness = NORMAL_OUTPUT  # how much is said on stderr besides errors; each command sets it


class _Out(Console):
    """Names are printed as they are, whatever brackets they have, and tables with all their
    digits.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        width = self.width
        try:
            self.width = max(
                [width, *(_fit(one, width) for one in objects if isinstance(one, Table))]
            )
            super().print(*objects, **options)
        finally:
            self.width = width


def _fit(table: Table, width: int) -> int:
    """Make columns narrower if the table is too wide, the widest first, but none than its longest
    word; what it needs.

    Rich makes columns narrower than that, and cuts numbers. On a terminal that is too narrow the
    terminal breaks lines.
    """
    cells = [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    widths = [max(map(cell_len, own)) for own in cells]
    least = [
        max((cell_len(word) for cell in own for word in cell.split()), default=0) for own in cells
    ]
    around = 3 * len(cells) + 1  # a blank on both sides, and lines
    for k in sorted(range(len(cells)), key=lambda k: -widths[k]):
        more = sum(widths) + around - width
        if more > 0:
            widths[k] = table.columns[k].width = max(least[k], widths[k] - more)
    return sum(widths) + around


def out_console() -> Console:
    """Standard output.

    Where it is not a terminal, as wide as COLUMNS says, or wide enough for most tables.
    """
    told = os.environ.get("COLUMNS", "")
    if sys.stdout.isatty():
        width = None
    elif told.isdecimal() and int(told) > 0:
        width = int(told)
    else:
        width = 140
    return _Out(width=width, markup=False, highlight=False)


def styled(style: str, words: str, rest: str = "") -> Text:
    """Words in a style, and others without."""
    return Text.assemble((words, style), rest)


def print_json(value: dict[str, Any]) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(encoded(value), allow_nan=False) + "\n")


def note(words: str) -> None:
    """One line on stderr, unless nothing is to be said."""
    if loudness == QUIET_OUTPUT:
        return
    if err.is_terminal:  # above the bar, if there is one
        err.print(words, style=None, markup=False, highlight=False, soft_wrap=True)
    else:
        err.file.write(f"{words}\n")
        err.file.flush()


def rate(pace: float, unit: str) -> str:
    """So many of a unit in a second."""
    if pace > 0:
        power = min(3, max(0, math.floor(math.log10(pace) / 3)))
    else:
        power = 0
    return f"{pace / 1000**power:.3g}{('', 'k', 'M', 'G')[power]} {unit}/s"


class _Rate(ProgressColumn):
    """Units a second."""

    def render(self, task: Task) -> Text:
        """Nothing where there is no unit, or not yet a pace."""
        unit = task.fields["unit"]
        pace = task.fields["pace"]
        return Text(rate(pace, unit) if unit and pace > 0 else "")


class _Left(ProgressColumn):
    """Time left, by the pace since the first look.

    Rich's own forgets it whenever the total changes.
    """

    def render(self, task: Task) -> Text:
        """What is measured in seconds goes at the pace of the clock."""
        if task.fields["timed"]:
            pace = 1.0
        else:
            pace = task.fields["pace"]
        if task.total is None or not pace > 0:
            return Text("-:--:--", style="progress.remaining")
        left = int(max(0.0, task.total - task.completed) / pace)
        return Text(
            f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}", style="progress.remaining"
        )


class _Bars(Progress):
    """Bars of which those that are measured in seconds move with the clock."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Called at each refresh."""
        for task in self.tasks:
            if task.fields["timed"] and task.total is not None:
                since = time.monotonic() - task.fields["looked"]
                task.completed = min(task.total, task.fields["done"] + since)
        return super().get_renderables()


class Update(Protocol):
    """Where the work stands.

    Words that are empty leave the last ones, and those of an event are a line of -v.
    """

    def __call__(self, done: float, total: float, words: str, *, event: bool = True) -> None:
        """Tell."""


@contextmanager
def bar(title: str, *, unit: str = "", timed: bool = False) -> Iterator[Update]:
    """A progress bar on a terminal, once two seconds have passed, and with -v a line for each
    event.

    With a `unit`, how many of it are done in a second is shown as well; `timed` work is measured in
    seconds.
    """
    named, told = (
        TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[words]}")
    )
    columns = (named, BarColumn(24), told, _Rate(), TimeElapsedColumn(), _Left())
    bars = _Bars(*columns, console=err, transient=True)
    started = time.monotonic()
    shown = False
    latest = ""
    first: tuple[float, float] | None = None  # when, and how much was done by then
    task = bars.add_task(
        title, total=None, words="", unit=unit, timed=timed, done=0.0, looked=started, pace=0.0
    )

    def update(done: float, total: float, words: str, *, event: bool = True) -> None:
        nonlocal shown, latest, first
        now = time.monotonic()
        new = bool(words) and words != latest
        latest = words or latest
        first = first or (now, done)
        if now > first[0]:
            pace = (done - first[1]) / (now - first[0])
        else:
            pace = 0.0
        if (
            not shown
            and err.is_terminal
            and loudness != QUIET_OUTPUT
            and now - started > PROGRESS_AFTER_SECONDS
        ):
            bars.start()
            shown = True
        bars.update(
            task,
            completed=min(done, total),
            total=total,
            words=latest,
            done=done,
            looked=now,
            pace=pace,
        )
        if loudness == VERBOSE_OUTPUT and new and event:
            if unit and pace > 0:
                quick = f", {rate(pace, unit)}"
            else:
                quick = ""
            note(f"{now - started:8.1f} s  {title}: {words}{quick}")

    try:
        yield update
    finally:
        if shown:
            bars.stop()
