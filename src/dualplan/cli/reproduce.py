"""``dualplan reproduce``."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli.command import stop_if_interrupted
from dualplan.cli.inputs import parameters_from
from dualplan.cli.options import CriterionOption, GammaOption, JsonOption, SetOption
from dualplan.cli.output import bar, print_json
from dualplan.cli.tables import print_curves, print_figures
from dualplan.criteria import make_criterion
from dualplan.errors import InputError, unknown
from dualplan.reproduce import EXPERIMENTS
from dualplan.reproduce.dual_mixing import dual_mixing
from dualplan.reproduce.figure_3 import STEPS as STEPS_OF_FIGURE
from dualplan.reproduce.figure_3 import figure_3
from dualplan.reproduce.four_queue import STEPS as STEPS_OF_TABLE
from dualplan.reproduce.four_queue import four_queue
from dualplan.reproduce.rows import Row
from dualplan.status import Status


def reproduce(
    name: Annotated[str, typer.Argument(help=" or ".join(EXPERIMENTS), metavar="NAME")],
    settings: SetOption = None,
    out: Annotated[str | None, typer.Option(help="file of the figure (figure-3)")] = None,
    features: Annotated[int, typer.Option(help="366 or 372 (figure-3)")] = 372,
    iterations: Annotated[
        int, typer.Option(min=1, help="steps of the subgradient method (figure-3)")
    ] = STEPS_OF_FIGURE,
    radius: Annotated[float | None, typer.Option(help="S (figure-3)")] = None,
    criterion: CriterionOption = "average",
    gamma: GammaOption = None,
    steps: Annotated[int | None, typer.Option(min=1, help="of each simulation (four-queue)")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the random numbers")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a published experiment again, and show our figures beside the published ones."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    parameters = parameters_from(settings)
    if name != "four-queue" and (criterion, gamma, steps) != ("average", None, None):
        raise InputError(f"--criterion, --gamma and --steps are for four-queue, not for {name}.")
    if name == "figure-3":
        with bar("figure-3") as update:
            result = figure_3(out or "figure-3.png", count=features, steps=iterations, radius=radius, seed=seed,
                              progress=update, parameters=parameters)  # fmt: skip
        if as_json:
            print_json(result)
        else:
            print_curves(result)
        return
    if out is not None or (features, iterations, radius) != (372, STEPS_OF_FIGURE, None):
        raise InputError(
            f"{name} is a table and no figure: --out, --features, --iterations and --radius are not for it."
        )
    if name != "four-queue" and parameters:
        raise InputError(f"{name} is one network: it takes --seed and --json only.")
    status, rows = Status.COMPLETED, list[Row]()
    with bar(name) as update:
        try:
            if name == "four-queue":
                four_queue(
                    parameters=parameters, criterion=make_criterion(criterion, gamma), steps=steps or STEPS_OF_TABLE,
                    seed=seed, progress=update, rows=rows,
                )  # fmt: skip
            else:
                dual_mixing(seed=seed, progress=update, rows=rows)
        except KeyboardInterrupt:
            if not rows:
                raise
            status = Status.INTERRUPTED
    if as_json:
        print_json({"experiment": name, "status": str(status), "rows": [row.to_json() for row in rows]})
    else:
        print_figures(rows)
    stop_if_interrupted(status, resumable=False)
