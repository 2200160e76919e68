"""Models by name: an instance, a TOML file that describes a network, or ``file.py:object``.

A network in TOML::

    name = "two stations"
    time = "continuous"            # or "discrete"; the options of QueueingNetwork, all of them optional

    [[class]]
    name = "parts"
    server = "press"
    arrival = 0.8
    service = 1.0
    route = "paint"                # or { paint = 0.9, scrap = 0.1 }; what is left leaves

    [[class]]
    name = "paint"
    server = "booth"
    service = 1.2
    buffer = 10                    # without it the queue is unbounded
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from dualplan.errors import DualplanError, InputError, ModelError, unknown
from dualplan.models.contract import Model
from dualplan.models.queueing import OPTIONS, QueueClass, QueueingNetwork
from dualplan.models.zoo import INSTANCES
from dualplan.types import Json


def load(spec: str, **parameters: Any) -> Model:
    """The model that `spec` names, with parameters changed."""
    model = _load(spec, parameters)
    path, _, attribute = spec.partition(":")
    here = f"{Path(path).resolve()}:{attribute}" if path.endswith(".py") else spec
    model.origin = {"model": here, "parameters": parameters}
    return model


def remake(recipe: Json) -> Model:
    """The model of a recipe that was saved with a policy."""
    if "network" in recipe:
        network = recipe["network"]
        classes = [{k: v for k, v in entry.items() if v is not None} for entry in network["class"]]
        return network_from_dict({**network, "class": classes}, {}, str(network["name"]))
    parameters = {k: tuple(v) if isinstance(v, list) else v for k, v in recipe["parameters"].items()}
    return load(recipe["model"], **parameters)


def _load(spec: str, parameters: Mapping[str, Any]) -> Model:
    if spec in INSTANCES:
        return build(spec, INSTANCES[spec], parameters)
    path, _, attribute = spec.partition(":")
    if path.endswith(".py"):
        made = load_object(spec)
        if isinstance(made, Model):
            if parameters:
                raise InputError(f"{spec!r} is a finished model; parameters need a function that makes one.")
            return made
        return build(attribute, made, parameters)
    if path.endswith(".toml"):
        return network_from_dict(read_toml(Path(path)), parameters, Path(path).stem)
    raise unknown("model", spec, [*INSTANCES, "FILE.toml", "FILE.py:OBJECT"])


def build(name: str, make: Any, parameters: Mapping[str, Any]) -> Model:
    """Call a function that makes a model, after a look at the names of its parameters."""
    if not callable(make):
        raise InputError(f"{name!r} is neither a model nor a function that makes one.")
    signature = inspect.signature(make).parameters
    takes_options = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.values())
    known = [p.name for p in signature.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    known += list(OPTIONS) if takes_options else []
    for key in parameters:
        if key not in known:
            raise unknown(f"parameter of {name!r}", key, known)
    try:
        model = make(**parameters)
    except DualplanError:
        raise
    except Exception as error:  # whatever the function does with the parameters is reported in the user's terms
        raise InputError(
            f"model {name!r} cannot be made with these parameters: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(model, Model):
        raise ModelError(f"{name!r} makes a {type(model).__name__}, not a model.")
    return model


def load_object(spec: str) -> Any:
    """The object that ``file.py:object`` names."""
    path, _, attribute = spec.partition(":")
    if not attribute:
        raise InputError(f"{spec!r} names a file but no object in it; write {path}:NAME.")
    if not Path(path).is_file():
        raise InputError(f"there is no file {path!r}.")
    name = f"dualplan_user_{Path(path).stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise InputError(f"{path!r} cannot be read as Python.")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    _by_value(module)
    try:
        found.loader.exec_module(module)
    except DualplanError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's file does is reported in the user's terms
        raise InputError(f"{path!r} raised {type(error).__name__}: {error}.") from error
    if not hasattr(module, attribute):
        raise unknown(f"object in {path!r}", attribute, [n for n in vars(module) if not n.startswith("_")])
    return getattr(module, attribute)


def _by_value(module: ModuleType) -> None:
    """What the module defines travels to other processes as a whole: they cannot import it by its name."""
    # of processes here, of compiled functions, of a Dask cluster
    for pickler in ("joblib.externals.cloudpickle", "numba.cloudpickle", "cloudpickle"):
        try:
            importlib.import_module(pickler).register_pickle_by_value(module)
        except ImportError:
            continue


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, or one sentence about what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"there is no file {str(path)!r}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{str(path)!r} is not valid TOML: {error}.") from error


def network_from_dict(data: Mapping[str, Any], parameters: Mapping[str, Any], name: str) -> QueueingNetwork:
    """A network from the contents of a TOML file; `parameters` replace its options."""
    known = ["name", "class", *OPTIONS]
    for key in data:
        if key not in known:
            raise unknown(f"key of network {name!r}", key, known)
    for key in parameters:
        if key not in OPTIONS:
            raise unknown(f"parameter of network {name!r}", key, OPTIONS)
    entries = data.get("class")
    if not isinstance(entries, list) or not entries:
        raise InputError(f"network {name!r} needs at least one [[class]].")
    classes = [_class(entry, name, i) for i, entry in enumerate(entries)]
    options = {**{k: v for k, v in data.items() if k in OPTIONS}, **parameters}
    return QueueingNetwork(classes, name=str(data.get("name", name)), **options)


def _class(entry: Any, network: str, position: int) -> QueueClass:
    where = f"class {entry.get('name', position + 1) if isinstance(entry, Mapping) else position + 1!r}"
    if not isinstance(entry, Mapping):
        raise InputError(f"network {network!r}: {where} is not a table.")
    known = [f.name for f in fields(QueueClass)]
    for key in entry:
        if key not in known:
            raise unknown(f"key of {where}", key, known)
    for key in ("name", "server", "service"):
        if key not in entry:
            raise InputError(f"network {network!r}: {where} lacks {key!r}.")
    values = {**entry, "name": str(entry["name"]), "server": str(entry["server"])}
    for key, value in values.items():
        if key not in ("name", "server", "route") and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise InputError(f"network {network!r}: {where}: {key} must be a number, got {value!r}.")
    route = values.get("route", {})
    if not isinstance(route, Mapping):
        route = {str(route): 1.0}
    for target, p in route.items():
        if isinstance(p, bool) or not isinstance(p, (int, float)):
            raise InputError(f"network {network!r}: {where}: the route to {target!r} needs a probability, got {p!r}.")
    values["route"] = {str(k): float(v) for k, v in route.items()}
    if values.get("buffer") == float("inf"):
        values["buffer"] = None
    return QueueClass(**values)
