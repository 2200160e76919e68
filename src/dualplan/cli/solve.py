"""``dualplan solve``: a plan from a file or for a model, with the options that replace its keys.

The options that stand for keys are made from the keys themselves (`search/plans/plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dualplan.cli.command import stop_if_interrupted
from dualplan.cli.folders import new_folder
from dualplan.cli.inputs import parameters_from
from dualplan.cli.options import with_keys
from dualplan.cli.output import bar, out_console, print_json
from dualplan.cli.tables import draw, print_planned, print_search
from dualplan.core.errors import InputError
from dualplan.core.types import Json
from dualplan.policies.saved import POLICY_FILE
from dualplan.report.figures import require_drawable
from dualplan.search.plans import Plan, override, read_plan, run_plan, solve_by

_of_run = partial(typer.Option, rich_help_panel="Of the run")


@with_keys
def solve(
    model: Annotated[
        str,
        typer.Argument(help="a model as elsewhere, or a plan in TOML", metavar="MODEL|CONFIG.toml"),
    ],
    keys: dict[str, Any],
    out: Annotated[
        str | None,
        _of_run(help="folder to save the run and the policy in; default: a new one in runs/"),
    ] = None,
    resume: Annotated[bool, _of_run("--resume", help="go on with the run in --out")] = False,
    workers: Annotated[
        int | None,
        _of_run(help="processes that share the penalties; -1: one a core; default: this one"),
    ] = None,
    figure: Annotated[
        str | None,
        _of_run(help="file for the curve of costs and violations against H; default: none"),
    ] = None,
    as_json: Annotated[
        bool, _of_run("--json", help="print one JSON object and nothing else")
    ] = False,
) -> None:
    """Find the best policy that a time allows, its interval, a lower bound on any policy's cost,
    and the gap.

    With an option of the dual program, or a plan that has one of its keys: that program over a
    family of occupancies.
    """
    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    if "set" in keys:
        keys["set"] = parameters_from(keys["set"])
    plan = override(read_plan(model), **keys)
    if out is None:
        out = new_folder(plan.model)
    if plan.dual:
        result = _solve_dual(plan, out, resume, workers, figure)
        show = print_planned
    else:
        if figure is not None or workers is not None:
            raise InputError(
                "--figure and --workers are for the dual program; name its features or penalties "
                "as well."
            )
        with bar("searching", timed=True) as update:
            result = solve_by(plan, folder=out, resume=resume, progress=update).to_json()
        show = print_search
    _print_solved({**result, "folder": out}, show, out, as_json)


def _solve_dual(
    plan: Plan, out: str | None, resume: bool, workers: int | None, figure: str | None
) -> Json:
    if figure is not None:
        require_drawable(figure)
    with bar("solving") as update:
        result = run_plan(
            plan, folder=out, resume=resume, workers=workers, progress=update
        ).to_json()
    if figure is not None:
        draw(result, figure)
    return result


def _print_solved(
    result: Json, show: Callable[[Json], None], out: str | None, as_json: bool
) -> None:
    if as_json:
        print_json(result)
    else:
        show(result)
        if out is not None:
            out_console().print(_saved_words(out, result))
    stop_if_interrupted(result["status"], out)


def _saved_words(out: str, result: Json) -> str:
    """Where the run is, and how to use it."""
    if "policy" in result and not (Path(out) / POLICY_FILE).is_file():
        return (
            f"saved in {out}, but for the policy: {result['policy']!r} is a function of yours; "
            f"dualplan report {out} --policy FILE.py:{result['policy']} writes a page"
        )
    return f"saved in {out}; dualplan report {out} writes it as a page, and -p {out} is its policy"
