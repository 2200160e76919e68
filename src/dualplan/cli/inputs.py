"""What users type: options that several commands share, parameters, models."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dualplan.core.errors import InputError
from dualplan.models.contract import Model
from dualplan.models.load import load

ModelArgument = Annotated[
    str, typer.Argument(help="an instance name, FILE.toml, or FILE.py:OBJECT", metavar="MODEL")
]


def parse_value(text: str) -> Any:
    """A value from the command line: numbers, true, false, none, inf, lists with commas, otherwise
    text.
    """
    if "," in text:
        return tuple(parse_value(part) for part in text.split(",") if part.strip())
    word = text.strip()
    if word.lower() in ("none", "inf", "infinity", "unbounded"):
        return None
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def parameters_from(settings: list[str] | None) -> dict[str, Any]:
    """The parameters of a model from KEY=VALUE."""
    parameters = {}
    for setting in settings or []:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise InputError(f"--set takes KEY=VALUE, got {setting!r}.")
        name = key.strip()
        if "." not in name:  # which is CLASS.KEY, and classes are called what they are called
            name = name.replace("-", "_")
        parameters[name] = parse_value(value)
    return parameters


def load_model(spec: str, settings: list[str] | None) -> Model:
    """A model with parameters changed."""
    return load(spec, **parameters_from(settings))
