"""``dualplan models`` and ``dualplan check``."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from rich.table import Table

from dualplan.cli.inputs import ModelArgument, load_model
from dualplan.cli.options import JsonOption, SetOption
from dualplan.cli.output import bar, note, out_console, print_json
from dualplan.cli.tables import print_report
from dualplan.core.errors import InputError, unknown
from dualplan.models.check import check_model
from dualplan.models.instances import INSTANCES
from dualplan.models.queueing import NETWORK_OPTIONS, QueueingNetwork


def models(
    name: Annotated[
        str | None,
        typer.Argument(help="an instance, for its parameters; default: all", metavar="[NAME]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the named instances, or the parameters of one."""
    if name is not None and name not in INSTANCES:
        raise unknown("instance", name, INSTANCES)
    rows: list[dict[str, Any]] = [
        {"name": n, "summary": _summary(make), "parameters": _parameters(make)}
        for n, make in INSTANCES.items()
        if name in (None, n)
    ]
    if as_json:
        print_json({"models": rows})
    elif name is None:
        _print_instances(rows)
    else:
        _print_parameters(rows[0])


def _print_instances(rows: list[dict[str, Any]]) -> None:
    table = Table("name", "what it is")
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(row["name"], row["summary"])
    out_console().print(table)
    out_console().print("dualplan models NAME lists the parameters of one, and their defaults")


def _print_parameters(row: dict[str, Any]) -> None:
    out_console().print(f"{row['name']}: {row['summary']}")
    table = Table("parameter", "default, or the choices")
    table.columns[0].no_wrap = True
    for key, value in row["parameters"].items():
        table.add_row(key, value)
    out_console().print(table)
    example = next(iter(row["parameters"]), "KEY")
    out_console().print(f"changed by --set KEY=VALUE, such as --set {example}=...")


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
    if isinstance(loaded, QueueingNetwork):
        for words in loaded.notes_on_loads:
            note(words)
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
