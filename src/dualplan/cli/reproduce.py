"""``dualplan reproduce``."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli import output
from dualplan.cli.experiments.catalogue import (
    EXPERIMENT_RESULT_FILE,
    EXPERIMENTS,
    EXPERIMENTS_FOLDER,
    run_again,
)
from dualplan.cli.experiments.rows import failure
from dualplan.cli.inputs import parameters_from
from dualplan.cli.options import JsonOption, SetOption
from dualplan.cli.output import bar, print_json
from dualplan.cli.tables import print_curves, print_outcome
from dualplan.core.runs import read_json

OWN_DEFAULT = "default: the experiment's own"


def reproduce(
    name: Annotated[str, typer.Argument(help=", ".join(EXPERIMENTS), metavar="NAME")],
    time: Annotated[
        str | None, typer.Option(help=f"how long each search may take, such as 30s; {OWN_DEFAULT}")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help=f"of each simulation; {OWN_DEFAULT}")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="of the random numbers; default: 0")
    ] = None,
    settings: SetOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            help=f"folder of the figure and the result; default: {EXPERIMENTS_FOLDER}/NAME"
        ),
    ] = None,
    as_json: JsonOption = False,
    features: Annotated[
        int | None, typer.Option(help="366 or 372 (figure-3); default: 372")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help=f"of the subgradient method (figure-3); {OWN_DEFAULT}")
    ] = None,
    radius: Annotated[float | None, typer.Option(help=f"S (figure-3); {OWN_DEFAULT}")] = None,
    criterion: Annotated[
        str | None, typer.Option(help="average or discounted (four-queue); default: average")
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help=f"discount factor (four-queue); {OWN_DEFAULT}")
    ] = None,
) -> None:
    """Run a published experiment again, and show our figures beside the published ones.

    The exit status is 1 if a figure that is exact elsewhere is missed. Options that an experiment
    has not are refused.
    """
    options = {
        "time": time,
        "steps": steps,
        "seed": seed,
        "parameters": parameters_from(settings) or None,
        "features": features,
        "iterations": iterations,
        "radius": radius,
        "criterion": criterion,
        "gamma": gamma,
    }
    given = {key: value for key, value in options.items() if value is not None}
    with bar(name) as update:
        outcome, folder = run_again(name, given, out=out, progress=update)
    if as_json:
        print_json(read_json(folder / EXPERIMENT_RESULT_FILE))
    else:
        print_curves(outcome)
        print_outcome(outcome, folder)
    sentence = failure(outcome.rows)
    if sentence is not None:
        output.err.print(
            f"dualplan: {sentence}", style=None, markup=False, highlight=False, soft_wrap=True
        )
        raise typer.Exit(1)
