"""Options that several commands share, and those that stand for the keys of a plan."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any

import typer

from dualplan.core.errors import InputError
from dualplan.search.plans import FORMER_PLAN_KEYS, PLAN_KEYS, Key, Part


def _with_default(name: str) -> str:
    """What a key of plans is for, and what holds without it."""
    return f"{PLAN_KEYS[name].help}; default: {PLAN_KEYS[name].without}"


ModelArgument = Annotated[
    str, typer.Argument(help="an instance name, FILE.toml, or FILE.py:OBJECT", metavar="MODEL")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help=_with_default("set"), metavar=PLAN_KEYS["set"].metavar),
]
CriterionOption = Annotated[str, typer.Option(help="average or discounted")]
GammaOption = Annotated[float | None, typer.Option(help=_with_default("gamma"))]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, help="default: all cores; results do not depend on it")
]
OverloadedOption = Annotated[bool, typer.Option("--overloaded", help=PLAN_KEYS["overloaded"].help)]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]

PANELS_OF_PARTS = {
    Part.DUAL: "Of the dual program"
}  # keys of other parts are among the options of all
FORMER_OPTIONS = {**FORMER_PLAN_KEYS, "jobs": "workers"}


def with_keys(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with an option for each key of a plan in the place of its parameter `keys`.

    `keys` are those that were given, by name. An option that has another name by now is not shown,
    and answers with the new one.
    """
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def run(**given: Any) -> None:
        for name, new in FORMER_OPTIONS.items():
            if given.pop(name) is not None:
                raise InputError(f"--{name} is called --{new} now; rename it.")
        values = {name: given.pop(name) for name in list(given) if name in options}
        command(keys={name: value for name, value in values.items() if _said(value)}, **given)

    options = {said.name: _option(said) for said in PLAN_KEYS.values() if said.flags}
    former = [_former_option(name) for name in FORMER_OPTIONS]
    own = [p for p in signature.parameters.values() if p.name != "keys"]
    vars(run)["__signature__"] = signature.replace(
        parameters=_keyword_only([*own, *options.values(), *former])
    )
    return run


def _said(value: Any) -> bool:
    """Whether an option was there; without it, it is None, nothing or False."""
    return value is not None and value is not False and value != []


def _keyword_only(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    return [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]


def _option(said: Key) -> inspect.Parameter:
    """The option of a key."""
    truth = said.kind.typed is bool
    words = said.help
    if said.kind.names:
        words = f"{words}: {', '.join(said.kind.names)}"
    if said.without and not truth:
        words = f"{words}; default: {said.without}"
    option = typer.Option(
        *said.flags,
        help=words,
        metavar=said.metavar,
        rich_help_panel=PANELS_OF_PARTS.get(said.part),
    )
    if truth:
        return _parameter(said.name, Annotated[bool, option], False)
    return _parameter(said.name, Annotated[said.kind.typed | None, option], None)


def _former_option(name: str) -> inspect.Parameter:
    return _parameter(name, Annotated[str | None, typer.Option(f"--{name}", hidden=True)], None)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
