"""``dualplan models`` and ``dualplan check``."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from rich.table import Table

from dualplan.cli.inputs import ModelArgument, load_model
from dualplan.cli.options import JsonOption, SetOption
from dualplan.cli.output import bar, out_console, print_json
from dualplan.cli.tables import print_report
from dualplan.core.errors import InputError
from dualplan.models.check import check_model
from dualplan.models.instances import INSTANCES
from dualplan.models.queueing import NETWORK_OPTIONS


def models(as_json: JsonOption = False) -> None:
    """List the named instances and their parameters."""
    rows: list[dict[str, Any]] = [
        {"name": n, "summary": _summary(make), "parameters": _parameters(make)}
        for n, make in INSTANCES.items()
    ]
    if as_json:
        print_json({"models": rows})
        return
    table = Table(title="Named instances", show_lines=True)
    for column in ("name", "what it is", "parameters and defaults (change with --set KEY=VALUE)"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row["name"], row["summary"], ", ".join(f"{k}={v}" for k, v in row["parameters"].items())
        )
    out_console().print(table)


def check(
    model: ModelArgument,
    settings: SetOption = None,
    pairs: Annotated[
        int, typer.Option(min=1, help="how many pairs (x, a) to try on a large model")
    ] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="of the random pairs")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Check that a model keeps its contract; exit status 2 and one sentence if it does not."""
    loaded = load_model(model, settings)
    with bar("checking") as update:
        report = check_model(
            loaded, pairs=pairs, seed=seed, progress=lambda done, total: update(done, total, "")
        )
    if as_json:
        print_json({**report.to_json(), "description": loaded.describe()})
    else:
        print_report(loaded, report)
    if report.problem is not None:
        raise InputError(report.problem)


def _summary(make: Any) -> str:
    return (inspect.getdoc(make) or "").split("\n\n")[0].replace("\n", " ")


def _parameters(make: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for p in inspect.signature(make).parameters.values():
        if p.kind is inspect.Parameter.VAR_KEYWORD:
            result |= {
                key: "|".join(str(v).lower() for v in values)
                for key, values in NETWORK_OPTIONS.items()
            }
        else:
            result[p.name] = _show(p.default)
    return result


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(_show(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return str(value).lower()
    return str(value)
