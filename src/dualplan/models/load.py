"""Models by name: an instance, a TOML file that describes a network (`toml.py`), or
``file.py:object``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from dualplan.core.errors import DualplanError, InputError, ModelError, unknown
from dualplan.core.runs import SETTINGS_FILE
from dualplan.core.types import Json
from dualplan.models.contract import Model
from dualplan.models.instances import INSTANCES
from dualplan.models.queueing import NETWORK_OPTIONS, QueueingNetwork
from dualplan.models.toml import (
    Document,
    changed_classes,
    class_settings,
    network_from_data,
    read,
    read_network,
    split_settings,
)

MOST_FILES_NAMED = 3  # of a folder, in a message


def load(spec: str, **parameters: Any) -> Model:
    """The model that `spec` names, with parameters changed."""
    model = _load(spec, parameters)
    model.origin = {"model": spec, "parameters": parameters}
    return model


def require_stable(model: Model) -> None:
    """Raise, with the line if the model came from a file, if no policy keeps the queues of a
    network finite.
    """
    if not isinstance(model, QueueingNetwork):
        return
    spec = str((model.origin or {}).get("model", ""))
    if spec.endswith(".toml"):
        document = read(Path(spec))
    else:
        document = Document.nowhere()
    parameters = (model.origin or {}).get("parameters", {})
    changed = class_settings(document.data, split_settings(parameters)[1])
    with document.explained(changed):
        model.require_stable()


def remake(recipe: Json) -> Model:
    """The model of a recipe that was saved with a policy: a network from its data, or a named
    instance.
    """
    if "network" in recipe:
        network = recipe["network"]
        classes = [{k: v for k, v in entry.items() if v is not None} for entry in network["class"]]
        return network_from_data({**network, "class": classes}, {}, str(network["name"]))
    if recipe["model"] not in INSTANCES:  # files that came with the policy are not run
        raise InputError(
            f"the model is made by {recipe['model']!r}; load it and give it with the policy."
        )
    parameters = {
        k: tuple(v) if isinstance(v, list) else v for k, v in recipe["parameters"].items()
    }
    return load(recipe["model"], **parameters)


def _load(spec: str, parameters: Mapping[str, Any]) -> Model:
    path, _, attribute = spec.partition(":")
    if path.endswith(".toml"):
        return read_network(read(Path(path)), parameters)
    own, of_classes = split_settings(parameters)
    if spec in INSTANCES:
        model = build(spec, INSTANCES[spec], own)
    else:
        model = _from_python(spec, path, attribute, own)
    if not of_classes:
        return model
    if not isinstance(model, QueueingNetwork):
        setting = next(iter(of_classes))
        raise InputError(
            f"{setting!r} is a key of a class, and {spec!r} is no queueing network; set a "
            "parameter of its own.",
            at=("set",),
        )
    data = model.recipe["network"]
    changed = changed_classes(data, class_settings(data, of_classes))
    return remake({"network": changed})


def _from_python(spec: str, path: str, attribute: str, parameters: Mapping[str, Any]) -> Model:
    """An object in a file of Python."""
    if path.endswith(".py"):
        made = load_object(spec)
        if isinstance(made, Model):
            if parameters:
                raise InputError(
                    f"{spec!r} is a finished model; parameters need a function that makes one."
                )
            return made
        return build(attribute, made, parameters)
    if Path(f"{spec}.toml").is_file():
        raise InputError(
            f"there is no model {spec!r}; did you mean {spec + '.toml'!r}?", at=("model",)
        )
    if Path(spec).is_dir():
        raise InputError(_about_folder(spec), at=("model",))
    if Path(spec).is_file():
        raise InputError(
            f"{spec!r} is no model; the name of a network's file must end in .toml.", at=("model",)
        )
    raise unknown("model", spec, [*INSTANCES, "FILE.toml", "FILE.py:OBJECT"], at=("model",))


def _about_folder(spec: str) -> str:
    """What to name instead of a folder."""
    folder = Path(spec)
    if (folder / SETTINGS_FILE).is_file():
        return (
            f"{spec!r} is the folder of a run and no model; show it by 'dualplan show {spec}', or "
            f"name its model and give its policy by -p {spec}."
        )
    networks = sorted(str(path) for path in folder.glob("*.toml"))
    files = [f"{path}:OBJECT" for path in sorted(folder.glob("*.py"))]
    shown = [*networks, *files][:MOST_FILES_NAMED]
    if not shown:
        return f"{spec!r} is a folder without models; name a FILE.toml or FILE.py:OBJECT."
    return f"{spec!r} is a folder and no model; name a file in it, such as {', '.join(shown)}."


def build(name: str, make: Any, parameters: Mapping[str, Any]) -> Model:
    """Call a function that makes a model, after a look at the names of its parameters."""
    if not callable(make):
        raise InputError(f"{name!r} is neither a model nor a function that makes one.")
    signature = inspect.signature(make).parameters
    takes_options = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.values())
    known = [p.name for p in signature.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    known += list(NETWORK_OPTIONS) if takes_options else []
    for key in parameters:
        if key not in known:
            raise unknown(f"parameter of {name!r}", key, known, at=("set", key))
    place = ("set" if parameters else "model",)
    try:
        model = make(**parameters)
    except InputError as error:  # about what was set, whatever the function calls it
        error.at = place
        raise
    except DualplanError:
        raise
    except Exception as error:
        # whatever the function does with the parameters is reported in the user's terms
        raise InputError(
            f"model {name!r} cannot be made with these parameters: {type(error).__name__}: "
            f"{error}.",
            at=place,
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
    except (Exception, SystemExit) as error:
        # whatever the user's file does is reported in the user's terms
        raise InputError(f"{path!r} raised {type(error).__name__}: {error}.") from error
    if not hasattr(module, attribute):
        raise unknown(
            f"object in {path!r}", attribute, [n for n in vars(module) if not n.startswith("_")]
        )
    return getattr(module, attribute)


def _by_value(module: ModuleType) -> None:
    """What the module defines travels to other processes as a whole: they cannot import it by its
    name.
    """
    # of processes here, of compiled functions, of a Dask cluster
    for pickler in ("joblib.externals.cloudpickle", "numba.cloudpickle", "cloudpickle"):
        try:
            importlib.import_module(pickler).register_pickle_by_value(module)
        except ImportError:
            continue
