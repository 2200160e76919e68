"""What all commands share: how much they say on stderr (-q, -v), and what Ctrl-C does.

The first Ctrl-C ends the work after the piece that is being done: what was found is saved if there
is a folder, printed with the status "interrupted", and the exit status is 130. The second one ends
the process at once; files are written whole or not at all, so that nothing is lost but the last
piece.
"""

from __future__ import annotations

import inspect
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dualplan.cli import output
from dualplan.core.errors import InputError
from dualplan.core.runs import SETTINGS_FILE
from dualplan.core.status import Status

INTERRUPTED_EXIT_STATUS = 130  # the exit status that shells give to what Ctrl-C has ended
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="nothing on stderr but errors")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="a line on stderr for each event")
]


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with --quiet and --verbose, and an end in order on Ctrl-C."""
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def run(*, quiet: bool = False, verbose: bool = False, **given: Any) -> None:
        if quiet and verbose:
            raise InputError("--quiet and --verbose contradict each other; leave one of them out.")
        if quiet:
            output.loudness = output.QUIET_OUTPUT
        elif verbose:
            output.loudness = output.VERBOSE_OUTPUT
        else:
            output.loudness = output.NORMAL_OUTPUT
        with _interrupts():
            try:
                command(**given)
            except KeyboardInterrupt:
                _stop(
                    "interrupted before there was anything to "
                    f"show{_go_on(given.get('out'), 'resume' in given)}"
                )

    more = {"quiet": QuietOption, "verbose": VerboseOption}
    options = [
        inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=v)
        for k, v in more.items()
    ]
    parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature.parameters.values()
    ]
    vars(run)["__signature__"] = signature.replace(parameters=[*parameters, *options])
    run.__annotations__ = {p.name: p.annotation for p in [*parameters, *options]}
    return run


def stop_if_interrupted(
    status: Status | str, out: str | None = None, *, resumable: bool = True
) -> None:
    """After the result of an interrupted run was printed: say how to go on, and end with exit
    status 130.
    """
    if status == Status.INTERRUPTED:
        _stop(f"interrupted{_go_on(out, resumable)}")


def _go_on(out: Any, resumable: bool) -> str:
    """The command that goes on, where there is one."""
    if out is not None and not (Path(out) / SETTINGS_FILE).exists():
        return "; nothing was saved."
    if out is None or not resumable:
        return "; nothing was saved" + (
            ", name a folder by --out to be able to go on." if resumable else "."
        )
    words = [word for word in sys.argv[1:] if word != "--resume"]
    return f"; go on with: {shlex.join(['dualplan', *words, '--resume'])}"


def _stop(words: str) -> None:
    output.note(words)
    raise typer.Exit(INTERRUPTED_EXIT_STATUS)


@contextmanager
def _interrupts() -> Iterator[None]:
    """The first Ctrl-C raises KeyboardInterrupt, the second ends the process."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # whoever has set something else wants it
        return
    pressed = 0

    def handle(*_: Any) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            output.err.show_cursor()  # which a progress bar has hidden
            os._exit(INTERRUPTED_EXIT_STATUS)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
