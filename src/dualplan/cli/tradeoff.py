"""``dualplan tradeoff``: the curve of least cost against a limit on a measure."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli.command import stop_if_interrupted
from dualplan.cli.folders import new_folder
from dualplan.cli.inputs import ModelArgument, load_model
from dualplan.cli.options import (
    CriterionOption,
    GammaOption,
    JsonOption,
    OverloadedOption,
    SetOption,
)
from dualplan.cli.output import bar, out_console, print_json
from dualplan.cli.tradeoff_tables import draw_tradeoff, print_tradeoff
from dualplan.core.errors import InputError
from dualplan.core.types import Json
from dualplan.models.criteria import Discounted, make_criterion
from dualplan.models.load import require_stable
from dualplan.policies.named import named_policy
from dualplan.report.figures import require_drawable
from dualplan.search.limited.tradeoff import DEFAULT_TRADEOFF_TIME, TRADEOFF_METHODS
from dualplan.search.limited.tradeoff import tradeoff as find_curves


def tradeoff(
    model: ModelArgument,
    measure: Annotated[
        list[str],
        typer.Option(
            help="what is limited: one of the measures that `evaluate` prints; several for several "
            "curves",
            metavar="MEASURE",
        ),
    ],
    settings: SetOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="what to begin with, as for `evaluate`; default: the model's heuristics",
        ),
    ] = None,
    time: Annotated[str, typer.Option(help="such as 90s, 5m or 1h")] = DEFAULT_TRADEOFF_TIME,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"{' or '.join(TRADEOFF_METHODS)}; default: exactly, where states can be listed "
            "in the time"
        ),
    ] = None,
    criterion: CriterionOption = "average",
    gamma: GammaOption = None,
    seed: Annotated[int, typer.Option(min=0, help="of the random numbers")] = 0,
    out: Annotated[
        str | None,
        typer.Option(
            help="folder to save the run and its policies in; default: a new one in runs/"
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run in --out, and refine its curves")
    ] = False,
    figure: Annotated[
        str | None, typer.Option(help="file for a picture of the curves; default: none")
    ] = None,
    overloaded: OverloadedOption = False,
    as_json: JsonOption = False,
) -> None:
    """The least cost against a limit on a measure: the whole curve, with a policy for each limit.

    Where states can be listed in the time, every point is exact; otherwise policies are searched,
    and simulated.
    """
    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    if figure is not None:
        require_drawable(figure)
    loaded = load_model(model, settings)
    judged_by = make_criterion(criterion, gamma)
    if not overloaded and not isinstance(judged_by, Discounted):
        require_stable(loaded)
    policies = [named_policy(loaded, name) for name in policy or []]
    for name in measure:
        loaded.measure(name)  # before there is a folder
    if out is None:
        out = new_folder(model)
    with bar("searching", timed=True) as update:
        found = find_curves(
            loaded,
            measure,
            judged_by,
            policies=policies,
            time=time,
            method=method,
            seed=seed,
            folder=out,
            resume=resume,
            progress=update,
        )
    result: Json = {**found.to_json(), "folder": out}
    if figure is not None:
        draw_tradeoff(result, figure)
    if as_json:
        print_json(result)
    else:
        print_tradeoff(result)
        if out is not None:
            out_console().print(_saved_words(result, out), soft_wrap=True)
    stop_if_interrupted(result["status"], out)


def _saved_words(result: Json, out: str) -> str:
    """Where the run is, and how to use it."""
    files = [point["file"] for curve in result["curves"] for point in curve["points"]]
    saved = f"saved in {out}; dualplan report {out} writes it as a page"
    if not any(files):
        return saved
    middle = next(name for name in files[len(files) // 2 :] + files if name)
    return f"{saved}, and each line's policy is a file there, such as -p {out}/{middle}"
