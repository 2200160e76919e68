"""The command line: one command a file.

Results go to stdout, everything else to stderr. With --json, stdout holds one JSON object and
nothing else. Bad input ends with one sentence on stderr and exit status 2, and so does a check that
finds something wrong. Ctrl-C ends with what there is and exit status 130. What all commands share
is in `command.py`.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from dualplan.cli import output
from dualplan.cli.command import shared
from dualplan.cli.compare import compare
from dualplan.cli.evaluate import evaluate
from dualplan.cli.exact import exact
from dualplan.cli.models import check, models
from dualplan.cli.report import report
from dualplan.cli.reproduce import reproduce
from dualplan.cli.show import show
from dualplan.cli.solve import solve
from dualplan.cli.tradeoff import tradeoff
from dualplan.core.errors import DualplanError

VERSION_OPTION = Annotated[
    bool, typer.Option("--version", help="which version this is", is_eager=True)
]
app = typer.Typer(add_completion=False)
COMMANDS = (models, check, evaluate, exact, solve, tradeoff, show, compare, report, reproduce)
for command in COMMANDS:
    app.command()(shared(command))


@app.callback(invoke_without_command=True)
def common(context: typer.Context, version: VERSION_OPTION = False) -> None:
    """Plan in Markov decision processes of any size."""
    if version:
        sys.stdout.write(f"dualplan {metadata.version('dualplan')}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")
        raise typer.Exit


def main() -> None:
    """Run the command line; what the user did wrong is one sentence and exit status 2."""
    try:
        app(standalone_mode=True)
    except DualplanError as error:
        output.err.print(
            f"dualplan: {error}", style=None, markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(2)
