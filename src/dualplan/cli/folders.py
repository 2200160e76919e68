"""The policies of saved runs: from their folders, from files, or by the name of a heuristic."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from dualplan.cli.inputs import load_model
from dualplan.core.errors import InputError, RunError
from dualplan.core.runs import SETTINGS_FILE, read_json, read_result
from dualplan.core.types import Json
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, make_criterion
from dualplan.models.instances import INSTANCES
from dualplan.models.load import load, remake
from dualplan.policies.contract import Policy
from dualplan.policies.named import named_policy
from dualplan.policies.saved import POLICY_FILE, load_policy, origin_of
from dualplan.report.repeat import typed_settings

OwnModelOption = Annotated[
    str | None,
    typer.Option(
        help="the model, where the folder does not hold it: FILE.py:OBJECT; default: the folder's",
        metavar="MODEL",
    ),
]
OwnPolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "-p",
        help="FILE.py:FUNCTION, where the best policy was that one; default: the folder's",
        metavar="POLICY",
    ),
]
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


def sources_of(spec: str, model: Model | None = None, function: str | None = None) -> list[Source]:
    """The policies of a run's folder (two where two were compared) or of a file.

    `model` where they bring none; then also a policy of it by name. `function` is the policy of a
    run that did not save it, since it is a function of the user.
    """
    path = Path(spec)
    if spec.endswith(".npz"):
        return [Source(spec, _loaded(path, model))]
    if model is not None and not path.is_dir():
        return [Source(spec, named_policy(model, spec))]
    if not (path / SETTINGS_FILE).exists():
        raise RunError(
            f"{spec!r} is neither the folder of a run that was saved with --out nor a saved policy."
        )
    settings = read_json(path / SETTINGS_FILE).get("settings", {})
    criterion = _criterion(settings)
    if (path / POLICY_FILE).exists():
        return [Source(spec, _loaded(path / POLICY_FILE, model), criterion)]
    if function is not None:
        own = own_function(spec, function, model)
        return [Source(spec, own, criterion)]
    if settings.get("task") == "tradeoff":
        raise InputError(
            f"the trade-off in {spec!r} has a policy for each limit; name the file of one, as "
            f"`dualplan report {spec}` lists them."
        )
    if settings.get("task") != "evaluate":
        raise RunError(
            f"the run in {spec!r} has saved no policy: go on with it by --resume, or, if its "
            "policy is a function of yours, name that by --policy FILE.py:FUNCTION."
        )
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
    if model is None:
        require_own_model(path)
    return load_policy(path, model)


def require_own_model(path: Path) -> None:
    """Raise if the model of a saved policy is made by a file of Python, and say what to type.

    What a saved run names is not run without the user's word.
    """
    origin = origin_of(path)
    if origin is None:
        return
    words = [*sys.argv[1:], "--model", origin["model"]]
    for setting in typed_settings(origin["parameters"]):
        words += ["--set", setting]
    raise InputError(
        f"the model of {str(path)!r} is made by {origin['model']!r}, which is run only if you name "
        f"it: {shlex.join(['dualplan', *words])}"
    )


def own_function(spec: str, function: str, model: Model | None) -> Policy:
    """The function that a run began with and found nothing better than."""
    settings = read_json(Path(spec) / SETTINGS_FILE)["settings"]
    made = _model_of(spec, settings["model"], model)
    policy = named_policy(made, function)
    described = {given["digest"]: given["name"] for given in settings.get("policies", [])}
    if described.get(policy.digest) != read_result(spec).get("policy"):
        raise InputError(
            f"{function!r} is not the policy of the run in {spec!r}, or has changed since; name "
            f"the function {read_result(spec).get('policy')!r} as it was."
        )
    return policy


def given_model(model: str | None, settings: list[str] | None) -> Model | None:
    """The model that --model and --set name, if they do."""
    if settings and model is None:
        raise InputError("--set changes a parameter of --model; name the model as well.")
    if model is None:
        return None
    return load_model(model, settings)


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
