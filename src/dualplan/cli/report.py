"""``dualplan report``: a saved run as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualplan.cli.folders import (
    OwnModelOption,
    OwnPolicyOption,
    given_model,
    own_function,
    require_own_model,
)
from dualplan.cli.options import SetOption
from dualplan.cli.output import bar, out_console
from dualplan.core.runs import read_result
from dualplan.policies.saved import POLICY_FILE
from dualplan.report import write_report
from dualplan.report.page import PAGE_SECONDS
from dualplan.report.tradeoff_page import TRADEOFF_TASK, policy_file


def report(
    folder: Annotated[
        str,
        typer.Argument(help="of a run that `solve` or `tradeoff` saved with --out", metavar="DIR"),
    ],
    out: Annotated[
        str | None, typer.Option(help="file of the page; default: DIR/report.html")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help=f"for what is simulated and tabulated, such as 1m; default: {PAGE_SECONDS:g}s"
        ),
    ] = None,
    tradeoff: Annotated[
        str | None,
        typer.Option(
            help="folder of a trade-off of the same model, whose curves the page shows too; "
            "default: none",
            metavar="DIR",
        ),
    ] = None,
    model: OwnModelOption = None,
    settings: SetOption = None,
    policy: OwnPolicyOption = None,
) -> None:
    """Write a page about a saved run: what was found, how good it is, what the policy does.

    It opens anywhere.
    """
    made = given_model(model, settings)
    if made is None:
        for saved in _saved_policies(folder, tradeoff):
            require_own_model(saved)
    function = None
    if policy is not None:
        function = own_function(folder, policy, made)
    with bar("writing the report") as update:
        path = write_report(
            folder,
            out,
            time=PAGE_SECONDS if time is None else time,
            tell=lambda words: update(0, 1, words),
            model=made,
            function=function,
            tradeoff=tradeoff,
        )
    out_console().print(f"written to {path}", soft_wrap=True)


def _saved_policies(folder: str, tradeoff: str | None) -> list[Path]:
    """Files of policies that the page is made from."""
    found = [Path(folder) / POLICY_FILE]
    if not found[0].is_file() and read_result(folder).get("task") == TRADEOFF_TASK:
        found = [policy_file(folder) or found[0]]
    if tradeoff is not None:
        found.append(policy_file(tradeoff) or found[0])
    return [path for path in found if path.is_file()]
