"""The policies of saved runs: from their folders, from files, or by the name of a heuristic."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dualplan.core.errors import InputError, RunError
from dualplan.core.runs import SETTINGS_FILE, read_json
from dualplan.core.types import Json
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, make_criterion
from dualplan.models.instances import INSTANCES
from dualplan.models.load import load, remake
from dualplan.policies.contract import Policy
from dualplan.policies.named import named_policy
from dualplan.policies.saved import POLICY_FILE, load_policy

RUNS_VARIABLE = "DUALPLAN_RUNS"  # names the folder of runs that were given none
DEFAULT_RUNS = "runs"
MOST_RUNS_A_SECOND = 1_000


def new_folder(model: str) -> str | None:
    """A new folder by the model's name and the time; None where nothing can be written."""
    name = Path(model.partition(":")[0]).stem
    name = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    place = Path(os.environ.get(RUNS_VARIABLE, DEFAULT_RUNS))
    for k in range(1, MOST_RUNS_A_SECOND):
        folder = place / (name if k == 1 else f"{name}-{k}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.exists():  # a file stands where the folder of runs should be
                return None
            continue
        except OSError:
            return None
        return str(folder)
    return None


@dataclass(frozen=True, eq=False)
class Source:
    """A policy, what the user called it, and the criterion of its run, if it comes from one."""

    label: str
    policy: Policy
    criterion: Criterion | None = None


def sources_of(spec: str, model: Model | None = None) -> list[Source]:
    """The policies of a run's folder (two where two were compared) or of a file.

    `model` where they bring none.
    """
    path = Path(spec)
    if spec.endswith(".npz"):
        return [Source(spec, _loaded(path, model))]
    if not (path / SETTINGS_FILE).exists():
        raise RunError(
            f"{spec!r} is neither the folder of a run that was saved with --out nor a saved policy."
        )
    settings = read_json(path / SETTINGS_FILE).get("settings", {})
    criterion = _criterion(settings)
    if (path / POLICY_FILE).exists():
        return [Source(spec, _loaded(path / POLICY_FILE, model), criterion)]
    if settings.get("task") != "evaluate":
        raise RunError(f"the run in {spec!r} has no policy yet; go on with it by --resume.")
    made = _model_of(spec, settings["model"], model)
    found = [_heuristic(spec, made, described) for described in settings["policies"]]
    if len(found) == 1:
        labels = [spec]
    else:
        labels = [f"{spec} ({policy.name})" for policy in found]
    return [Source(label, policy, criterion) for label, policy in zip(labels, found, strict=True)]


def others_of(spec: str, first: Model) -> list[Source]:
    """As `sources_of`, or a heuristic of the first policy's model by its name.

    The model must be the same.
    """
    if not spec.endswith(".npz") and not Path(spec).is_dir():
        return [Source(spec, named_policy(first, spec))]
    try:
        found = sources_of(spec)
    except InputError:  # it brings no model of its own, so it must be for this one
        found = sources_of(spec, first)
    for source in found:
        require_same_model(first, source.policy.model, spec)
    return found


def _loaded(path: Path, model: Model | None) -> Policy:
    if not path.is_file():
        raise RunError(f"there is no file {str(path)!r}.")
    return load_policy(path, model)


def _criterion(settings: Json) -> Criterion:
    given = settings.get("criterion", "average")
    if isinstance(
        given, dict
    ):  # of evaluations and searches; plans have its parts among their keys
        return make_criterion(given["criterion"], given.get("gamma"), given.get("start"))
    return make_criterion(given, settings.get("gamma"), settings.get("start"))


def _model_of(spec: str, described: Json, given: Model | None) -> Model:
    """The model of an evaluation, which saves what it is called and its fingerprint.

    Networks are there as a whole.
    """
    made = given
    if made is None and "classes" in described:
        made = remake(
            {
                "network": {
                    "name": described["name"],
                    **described["options"],
                    **_policies_in(described),
                    "class": described["classes"],
                }
            }
        )
    elif made is None and described["name"] in INSTANCES:
        made = load(described["name"])
    if made is None or made.digest != described["digest"]:
        raise InputError(
            f"the folder {spec!r} does not hold its model {described['name']!r}; give it by "
            "--model and --set."
        )
    return made


def _policies_in(described: Json) -> Json:
    """What was written down with a network."""
    return {key: described[key] for key in ("policies",) if key in described}


def _heuristic(spec: str, model: Model, described: Json) -> Policy:
    """A policy that was evaluated, if it is one of the model's own."""
    name = described["name"]
    if name in model.policies:
        found = model.policy(name)
    else:
        found = None
    if found is None or found.digest != described["digest"]:
        raise InputError(
            f"the folder {spec!r} holds what its policy {name!r} cost, not the policy; name the "
            "file it was saved in."
        )
    return found


# -- the same model --------------------------------------------------------------------------------


def require_same_model(first: Model, other: Model, spec: str) -> None:
    """Raise unless the two are the same, and say what differs."""
    if first.digest != other.digest:
        raise InputError(
            f"the model of {spec!r} is not that of the first policy: {_what_differs(first, other)}."
        )


def _what_differs(first: Model, other: Model) -> str:
    for what in ("name", "kind", "coordinates", "actions", "options", "classes", "states"):
        one = first.describe().get(what)
        two = other.describe().get(what)
        if one != two:
            return _between(what, one, two)
    return f"both are called {first.name!r}, but their numbers differ"


def _between(what: str, one: Any, two: Any) -> str:
    """The first difference of two descriptions, down to a single value."""
    if isinstance(one, dict) and isinstance(two, dict):
        key = next(k for k in [*one, *two] if one.get(k) != two.get(k))
        if what == "classes" and one.get("name") == two.get("name"):
            name = f"class {one['name']!r}, "
        else:
            name = ""
        return _between(f"{name}{key}", one.get(key), two.get(key))
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        k = next(k for k in range(len(one)) if one[k] != two[k])
        return _between(what, one[k], two[k])
    return f"{what} is {two!r}, not {one!r}"


def common_criterion(sources: list[Source]) -> Criterion:
    """The criterion of the runs, which must be one; average where there is no run."""
    found = [s for s in sources if s.criterion is not None]
    for source in found[1:]:
        if source.criterion != found[0].criterion:
            raise InputError(
                f"{found[0].label!r} and {source.label!r} were run for different criteria; say "
                "which by --criterion."
            )
    if not found or found[0].criterion is None:
        return make_criterion("average")
    return found[0].criterion
