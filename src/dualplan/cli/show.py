"""``dualplan show``: saved runs."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli.options import JsonOption
from dualplan.cli.output import print_json
from dualplan.cli.tables import draw, print_improved, print_planned, print_rows
from dualplan.errors import InputError
from dualplan.figures import require_drawable
from dualplan.runs import read_result


def show(
    folder: Annotated[str, typer.Argument(help="of a run that was saved with --out", metavar="DIR")],
    figure: Annotated[str | None, typer.Option(help="file for the curve of costs and violations against H")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what came of a saved run."""
    if figure is not None:
        require_drawable(figure)
    result = read_result(folder)
    solved, improved = "tried" in result, result.get("task") == "improve"
    if figure is not None:
        if not solved:
            raise InputError(f"the run in {folder!r} has no penalties to draw a curve of; leave --figure out.")
        draw(result, figure)
    if as_json:
        print_json(result)
    elif improved:
        print_improved(result)
    elif solved:
        print_planned(result)
    else:
        print_rows(result)
