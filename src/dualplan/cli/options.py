"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(help="an instance name, FILE.toml, or FILE.py:OBJECT", metavar="MODEL")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="change a parameter of the model", metavar="KEY=VALUE"),
]
CriterionOption = Annotated[str, typer.Option(help="average or discounted")]
GammaOption = Annotated[
    float | None, typer.Option(help="discount factor of the discounted criterion")
]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, help="default: all cores; results do not depend on it")
]
OverloadedOption = Annotated[
    bool,
    typer.Option(
        "--overloaded", help="go on even if no policy keeps the queues of a network finite"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]
