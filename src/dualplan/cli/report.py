"""``dualplan report``: a saved run as a page."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli.output import bar, out_console
from dualplan.report import write_report
from dualplan.report.page import PAGE_SECONDS


def report(
    folder: Annotated[
        str, typer.Argument(help="of a run that `solve` saved with --out", metavar="DIR")
    ],
    out: Annotated[
        str | None, typer.Option(help="file of the page; DIR/report.html unless told otherwise")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help=f"for what is simulated and tabulated, such as 1m; {PAGE_SECONDS:g}s"),
    ] = None,
) -> None:
    """Write a page about a saved run: what was found, how good it is, what the policy does.

    It opens anywhere.
    """
    with bar("writing the report") as update:
        path = write_report(
            folder,
            out,
            time=PAGE_SECONDS if time is None else time,
            tell=lambda words: update(0, 1, words),
        )
    out_console().print(f"written to {path}", soft_wrap=True)
