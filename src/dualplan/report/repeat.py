"""The command that repeats a run, from what its folder has.

A search over a named network is repeated by its name, if the name and the parameters that are tried
make a model with the same fingerprint; other networks are written out as TOML. The dual program is
repeated by its plan.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dualplan.core.types import Json
from dualplan.models.contract import Model
from dualplan.models.instances import INSTANCES
from dualplan.models.load import load
from dualplan.models.queueing import NETWORK_OPTIONS, QueueingNetwork
from dualplan.search.plans import keys_from
from dualplan.search.steps import STEPS_BY_NAME

NETWORK_FILE = "network.toml"
PLAN_FILE = "plan.toml"
OWN_POLICIES_NOTE = (
    "Policies of your own are named as they call themselves; give their files instead."
)


@dataclass(frozen=True)
class Repeat:
    """A command, the file that it reads if it needs one, and what it cannot say."""

    command: str
    file: str = ""
    contents: str = ""
    notes: tuple[str, ...] = ()


def repeat(model: Model, settings: Json, result: Json) -> Repeat:
    """How to do a saved run again."""
    if result.get("task") == "solve":
        return _search(model, settings, result)
    if result.get("task") == "tradeoff":
        return _tradeoff(model, settings)
    return _plan(settings)


def _tradeoff(model: Model, settings: Json) -> Repeat:
    spec, parameters, contents = _named(model)
    words = [spec, *_set(parameters), *_criterion(settings["criterion"])]
    for measure in settings["measures"]:
        words += ["--measure", measure]
    for policy in settings["policies"]:
        words += ["-p", policy["name"]]
    if settings["method"] is not None:
        words += ["--method", settings["method"]]
    words += ["--time", f"{settings['budget']['seconds']:g}s", "--seed", str(settings["seed"])]
    notes = [
        "Exact curves are the same again. What a search finds depends on how many policies it has "
        "time for; with --out this folder and --resume it goes on where it ended."
    ]
    if any(policy["name"] not in model.policies for policy in settings["policies"]):
        notes.append(OWN_POLICIES_NOTE)
    return Repeat(
        _command(words, "tradeoff"), NETWORK_FILE if contents else "", contents, tuple(notes)
    )


def _search(model: Model, settings: Json, result: Json) -> Repeat:
    spec, parameters, contents = _named(model)
    words = [spec, *_set(parameters), *_criterion(settings["criterion"])]
    for policy in settings["policies"]:
        words += ["-p", policy["name"]]
    for limit in settings["limits"]:
        words += ["--limit", limit]
    allowed = settings.get("budget", {}).get("seconds")
    words += [
        "--time",
        f"{result['seconds'] if allowed is None else allowed:g}s",
        "--seed",
        str(settings["seed"]),
    ]
    if result["gap_wanted"] is not None:
        words += ["--gap", repr(result["gap_wanted"])]
    notes = [
        "The clock decides how many steps are taken; with as many of them the policy is the same. "
        "How well its cost is known, and what is proved, depends on the time that was left."
    ]
    if allowed is None:
        notes.append(
            "The time that it was allowed was not saved; the command has the time that it took."
        )
    if settings["steps"] != list(STEPS_BY_NAME):
        notes.append(f"It was called from Python with steps {', '.join(settings['steps'])} only.")
    if settings["criterion"].get("start") is not None:
        notes.append(
            f"It started from {settings['criterion']['start']}, which only Python or a plan can "
            "say."
        )
    if any(policy["name"] not in model.policies for policy in settings["policies"]):
        notes.append(OWN_POLICIES_NOTE)
    return Repeat(_command(words), NETWORK_FILE if contents else "", contents, tuple(notes))


def _plan(settings: Json) -> Repeat:
    plan = {
        name: value
        for name, value in keys_from(settings).items()
        if name != "set" and value not in (None, {}, [])
    }
    return Repeat(_command([PLAN_FILE, *_set(settings["set"])]), PLAN_FILE, as_toml(plan))


def _command(words: Iterable[str], command: str = "solve") -> str:
    return shlex.join(["dualplan", command, *words, "--out", "again"])


def _criterion(criterion: Json) -> list[str]:
    if criterion["criterion"] == "average":
        return []
    return ["--criterion", criterion["criterion"], "--gamma", repr(criterion["gamma"])]


# -- the model -------------------------------------------------------------------------------------


def _named(model: Model) -> tuple[str, Json, str]:
    """What to call a model on the command line: its name and parameters, or the file to write
    first.
    """
    if not isinstance(model, QueueingNetwork):
        recipe = model.recipe or model.origin or {"model": model.name, "parameters": {}}
        return recipe["model"], recipe["parameters"], ""
    for parameters in _guesses(model) if model.name in INSTANCES else ():
        if load(model.name, **parameters).digest == model.digest:
            return model.name, parameters, ""
    return NETWORK_FILE, {}, as_toml(_as_file(model.recipe["network"]))


def _guesses(model: QueueingNetwork) -> Iterable[Json]:
    """Parameters that a named network may have been made with: none, its options, its buffers,
    both.
    """
    usual = load(model.name)
    assert isinstance(usual, QueueingNetwork)
    options = {
        key: model.options[key]
        for key in NETWORK_OPTIONS
        if model.options[key] != usual.options[key]
    }
    sizes = tuple(c.buffer for c in model.classes)
    if len(sizes) != len(usual.classes):
        return
    buffers = {"buffers": sizes[0] if len(set(sizes)) == 1 else sizes}
    yield from (options, {**buffers, **options})


def _set(parameters: Mapping[str, Any]) -> list[str]:
    return [word for setting in typed_settings(parameters) for word in ("--set", setting)]


def typed_settings(parameters: Mapping[str, Any]) -> list[str]:
    """Parameters as they are typed after --set."""
    return [f"{key}={_typed(value)}" for key, value in parameters.items()]


def _typed(value: Any) -> str:
    """A value as it is typed after --set."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(_typed, value)) + ("," if len(value) == 1 else "")
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


# -- TOML ------------------------------------------------------------------------------------------


def as_toml(data: Mapping[str, Any]) -> str:
    """A TOML file: plain values first, then lists of tables."""
    tables = {key: value for key, value in data.items() if _tables(value)}
    lines = [f"{_key(key)} = {_inline(value)}" for key, value in data.items() if key not in tables]
    for name, rows in tables.items():
        for row in rows:
            lines += [
                "",
                f"[[{_key(name)}]]",
                *(f"{_key(key)} = {_inline(value)}" for key, value in row.items()),
            ]
    return "\n".join(lines) + "\n"


def _tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_key(key)} = {_inline(part)}" for key, part in value.items()) + " }"
        )
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _key(key: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]+", key):
        return key
    return json.dumps(key, ensure_ascii=False)


def _as_file(network: Json) -> Json:
    """TOML has no word for nothing: what is None is left out, but for buffers that have a
    penalty.
    """
    classes = [
        {
            **entry,
            "buffer": math.inf if entry["penalty"] and entry["buffer"] is None else entry["buffer"],
        }
        for entry in network["class"]
    ]
    kept = [{key: value for key, value in entry.items() if value is not None} for entry in classes]
    return {
        **network,
        "servers": list(dict.fromkeys(entry["server"] for entry in kept)),
        "class": kept,
    }
