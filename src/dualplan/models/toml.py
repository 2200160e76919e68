"""Networks in TOML files, and where in a file a mistake stands.

A network::

    name = "two stations"
    time = "continuous"        # or "discrete"; the options of QueueingNetwork, all of them optional
    servers = ["press", "booth"]   # optional: then no class may name another one, and each must
                                   have a class

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

    [policies]                     # optional: heuristics of this network, by name
    by-hand = "parts > paint"      # an order of classes, as in priorities.py

Every mistake is one sentence that begins with FILE:LINE. Whoever finds a mistake says which key it
is about (`at` of the error), and `Document.explained` looks the line up. A key that is missing has
the line of the table that lacks it, and one that is missing at the top the first line.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from dualplan.core import checks
from dualplan.core.errors import InputError, unknown, within
from dualplan.core.types import Json
from dualplan.models import positions
from dualplan.models.queueing import NETWORK_OPTIONS, QueueClass, QueueingNetwork

KEYS_OF_NETWORK = ("name", "servers", "class", "policies", *NETWORK_OPTIONS)
KEYS_OF_CLASS = tuple(f.name for f in fields(QueueClass))
KEYS_WITH_NAMES = ("name", "server")
NEEDED_KEYS_OF_CLASS = ("name", "server", "service")
KEYS_IN_VAIN = {"level": "excess", "penalty": "buffer"}  # the second says what the first is about
KEYS_OF_SEVERAL_SERVERS = (
    "servers",
    "count",
    "number",
    "machines",
)  # what several servers of a queue would be called

Place = positions.Path
_plan_keys: set[str] = set()  # which plans register


def register_plan_keys(names: Collection[str]) -> None:
    """Plans have these keys: a file with one of them is no network."""
    _plan_keys.update(names)


@dataclass(frozen=True)
class Document:
    """What a TOML file holds, and in which line."""

    file: str
    data: Json
    lines: Mapping[positions.Path, int]

    @staticmethod
    def nowhere() -> Document:
        """For what was not in a file."""
        return Document("", {}, {})

    def without(self, keys: Collection[str]) -> Document:
        """The same, for errors about anything but these keys, which came from elsewhere."""
        return replace(
            self, lines={path: line for path, line in self.lines.items() if path[0] not in keys}
        )

    def line(self, at: positions.Path) -> int:
        """The line of a key, or of the innermost table that lacks it."""
        return next((self.lines[at[:k]] for k in range(len(at), 0, -1) if at[:k] in self.lines), 1)

    @contextmanager
    def explained(self, changed: Collection[Place] = ()) -> Iterator[None]:
        """Errors raised inside begin with the file and the line.

        An error that names no key is about the key that its words name first. One about a place
        that was `changed` is about what was set, not about the file.
        """
        try:
            yield
        except InputError as error:
            if any(place == error.at[: len(place)] for place in changed):
                error.at = ("set", *error.at)
            at = error.at or self._named(str(error))
            if self.file and not error.located and not (changed and at[:1] == ("set",)):
                error.locate(f"{self.file}:{self.line(at)}" if at else self.file)
            raise

    def _named(self, words: str) -> positions.Path:
        """The key in the file that comes first in a text; one in quotes before others."""
        found = []
        for path in self.lines:
            hit = re.search(rf"(?<!\w)(')?{re.escape(str(path[-1]))}(?(1)'|(?!\w))", words)
            if hit is not None and isinstance(path[-1], str):
                found.append((hit[1] is None, hit.start(), -len(path), path))
        if found:
            return min(found, key=lambda one: one[:3])[3]
        return ()


def read(path: Path) -> Document:
    """A TOML file, or one sentence about what is wrong with it."""
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError as error:
        raise InputError(f"there is no file {str(path)!r}.") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path}:{line}: there is a character that is not UTF-8; save the file as UTF-8."
        ) from error
    except IsADirectoryError as error:
        raise InputError(f"{str(path)!r} is a folder; name a file in it.") from error
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(path, text, str(error)) from error
    if not data:
        raise InputError(
            f"{path}:1: the file is empty; describe a network by [[class]] tables, or write model "
            "= ... for a plan."
        )
    return Document(str(path), data, positions.lines_of(text))


def _syntax(path: Path, text: str, words: str) -> InputError:
    """The parser's words, with the line in front and what is often the cause behind."""
    place = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)", words)
    if place and place[1]:
        line = int(place[1])
    else:
        line = max(1, len(text.rstrip().splitlines()))
    if place and place[2]:
        column = f", column {place[2]}"
    else:
        column = ""
    if place is None:
        said = words
    else:
        said = words[: place.start()]
    remedy = next(
        (r for sign, r in REMEDIES_BY_TOML_ERROR.items() if sign in said),
        "write key = value, or [[class]] alone in a line",
    )
    if "(at end of document)" in words:
        remedy = "close what is open, by ] or } or a quote"
    written = text.splitlines()
    if any(quote in written[min(line, len(written)) - 1].partition("#")[0] for quote in "“”„‘’"):
        remedy = "use straight quotes, \" or '"
    single = next(
        (k for k, row in enumerate(written) if re.fullmatch(r"\s*\[\s*class\s*\]\s*(#.*)?", row)),
        None,
    )
    if single is not None and said.startswith(
        ("Cannot declare", "Cannot overwrite", "Cannot mutate")
    ):
        return InputError(
            f"{path}:{single + 1}: write [[class]], with two brackets, for each class."
        )
    return InputError(f"{path}:{line}: {str(path)!r} is not valid TOML: {said}{column}; {remedy}.")


REMEDIES_BY_TOML_ERROR = {
    "Cannot overwrite": "a key may be given once: delete one of the two",
    "Cannot declare": (
        "a table may be opened once: write [[class]], with two brackets, for each class"
    ),
    "Cannot mutate": (
        "a table may be opened once: write [[class]], with two brackets, for each class"
    ),
    "Duplicate inline table key": "a key may be given once: delete one of the two",
    "Invalid value": "put text in quotes, and write numbers as 0.5, true and false as such",
    "Unclosed": "close it by ] or }",
    "Illegal character": "close the text by the quote that it begins with",
    "Expected newline or end of document": (
        "put text in quotes, write a number as 0.125, with a point and nothing "
        "behind it, and each key in a line of its own"
    ),
    "Invalid initial character for a key part": (
        "write { ... } in one line, key = value, or [[class]] alone in a line"
    ),
}


def read_network(document: Document, parameters: Mapping[str, Any]) -> QueueingNetwork:
    """The network of a file, of which also what makes no sense is refused.

    `parameters` replace its options, and keys of its classes (`class_settings`).
    """
    options, settings = split_settings(parameters)
    changed = [(key,) for key in options]
    with document.explained(changed):
        _require_network(document)
    places = class_settings(document.data, settings)
    data = changed_classes(document.data, places)
    with document.explained([*changed, *places]):
        network = network_from_data(data, options, Path(document.file).stem)
        _check_names(data)
        _check_effects(data["class"])
        _check_reached(network)
        return network


# -- keys of classes that are set from outside, such as routine.arrival ----------------------------


def split_settings(parameters: Mapping[str, Any]) -> tuple[Json, Json]:
    """Parameters of the network, and those of its classes, which have a dot in them."""
    options = {key: value for key, value in parameters.items() if "." not in key}
    settings = {key: value for key, value in parameters.items() if "." in key}
    return options, settings


def class_settings(data: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[Place, Any]:
    """Where in the data of a network CLASS.KEY stands, or CLASS.route.TARGET, with the values."""
    entries = data.get("class", [])
    if not settings or not isinstance(entries, list):
        return {}
    names = [str(entry.get("name")) if isinstance(entry, Mapping) else "" for entry in entries]
    return {_place_of(setting, names): value for setting, value in settings.items()}


def _place_of(setting: str, names: Sequence[str]) -> Place:
    found = [name for name in names if setting.startswith(f"{name}.")]
    if not found:
        raise unknown("class", setting.partition(".")[0], names, at=("set", setting))
    name = max(found, key=len)
    key, _, target = setting.removeprefix(f"{name}.").partition(".")
    if key not in KEYS_OF_CLASS:
        raise unknown(f"key of class {name!r}", key, KEYS_OF_CLASS, at=("set", setting))
    if not target:
        return ("class", names.index(name), key)
    if key != "route":
        raise InputError(f"{setting!r}: {key} has no parts; write {name}.{key}.", at=("set",))
    return ("class", names.index(name), key, target)


def changed_classes(data: Json, places: Mapping[Place, Any]) -> Json:
    """The data of a network with other values at these places; None takes a key away."""
    changed = copy.deepcopy(dict(data))
    for (*way, key), value in places.items():
        table: Any = changed
        for step in way:
            if step == "route" and not isinstance(table.get(step), Mapping):
                table[step] = _as_table_of_routes(table.get(step))
            table = table[step]
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return changed


def _first_class(data: Mapping[str, Any]) -> str:
    """The name of a class, for an example."""
    entries = data.get("class")
    if isinstance(entries, list) and entries and isinstance(entries[0], Mapping):
        return str(entries[0].get("name", "CLASS"))
    return "CLASS"


def _as_table_of_routes(route: Any) -> dict[str, float]:
    if route is None:
        return {}
    return {str(route): 1.0}


def is_network(data: Json) -> bool:
    """Whether a file describes a network: it has classes, or is no plan and has keys of networks
    only.
    """
    if "class" in data or "model" in data:
        return "class" in data
    return not any(key in _plan_keys for key in data) and any(
        key in KEYS_OF_NETWORK for key in data
    )


def _require_network(document: Document) -> None:
    data = document.data
    file = document.file
    if "class" not in data and "model" in data:
        raise InputError(
            f"this is a plan and no network: it names a model; use 'dualplan solve {file}', or "
            "that model.",
            at=("model",),
        )
    for key in data:
        if key not in KEYS_OF_NETWORK and key in _plan_keys:
            raise InputError(
                f"{key!r} is a key of plans, not of networks; put it into a file of its own, with "
                f"model = {file!r}.",
                at=(key,),
            )


def network_from_data(
    data: Mapping[str, Any], parameters: Mapping[str, Any], name: str
) -> QueueingNetwork:
    """A network from the contents of a TOML file or of a recipe.

    `name` is what it is called if it has no name.
    """
    if checks.is_text(data.get("name")):
        name = data["name"]
    for key in data:
        if key not in KEYS_OF_NETWORK:
            raise unknown(f"key of network {name!r}", key, KEYS_OF_NETWORK, at=(key,), near=0.7)
    for key in parameters:
        if key in KEYS_OF_CLASS and key not in NETWORK_OPTIONS:
            raise InputError(
                f"{key!r} is a key of a class: say of which, such as {_first_class(data)}.{key}.",
                at=("set", key),
            )
        if key not in NETWORK_OPTIONS:
            raise unknown(f"parameter of network {name!r}", key, NETWORK_OPTIONS, at=("set", key))
    entries = data.get("class")
    if isinstance(entries, Mapping):
        raise InputError(
            f"network {name!r}: write [[class]] with two brackets, once for each class.",
            at=("class",),
        )
    if not isinstance(entries, list) or not entries:
        raise InputError(f"network {name!r} needs at least one [[class]].", at=("class",))
    classes = []
    named = [str(entry.get("name")) for entry in entries if isinstance(entry, Mapping)]
    for i, entry in enumerate(entries):
        with within("class", i):
            classes.append(_class(entry, name, i, named))
    if "servers" in data:
        _check_servers(data["servers"], classes)
    options = {key: _option(key, value) for key, value in data.items() if key in NETWORK_OPTIONS}
    return QueueingNetwork(
        classes,
        name=_name("name", data.get("name", name)),
        policies=_policies(data.get("policies", {})),
        **{**options, **parameters},
    )


def _policies(table: Any) -> dict[str, str]:
    """Policies that are written down, by name."""
    if not isinstance(table, Mapping):
        raise InputError(
            "policies must be a table of names and orders of classes: write [policies] in a line "
            "of its own, and NAME = 'CLASS > CLASS' below it.",
            at=("policies",),
        )
    return dict(table)


def _name(key: str, value: Any) -> str:
    """Text, or a whole number as text."""
    if not checks.is_text(value) and not checks.is_whole(value):
        raise InputError(f"{key} must be a name in quotes, got {value!r}.", at=(key,))
    return str(value)


def _option(key: str, value: Any) -> Any:
    if isinstance(NETWORK_OPTIONS[key][0], bool) and not isinstance(value, bool):
        raise InputError(f"{key} must be true or false, without quotes, got {value!r}.", at=(key,))
    if not isinstance(NETWORK_OPTIONS[key][0], bool) and not checks.is_text(value):
        raise InputError(
            f"{key} must be one of {', '.join(NETWORK_OPTIONS[key])}, in quotes, got {value!r}.",
            at=(key,),
        )
    return value


def _class(entry: Any, network: str, position: int, named: Collection[str]) -> QueueClass:
    """One class of those that are named; places of errors are below it."""
    if not isinstance(entry, Mapping):
        raise InputError(
            f"network {network!r}: class {position + 1} is not a table; write [[class]] and its "
            "keys."
        )
    where = f"class {entry.get('name', position + 1)!r}"
    for key in entry:
        if key in KEYS_OF_SEVERAL_SERVERS:
            raise InputError(
                f"{where}: {key!r} is no key of a class: a server serves one customer at a time; "
                "several servers of one queue are another model, parallel-servers.",
                at=(key,),
            )
        if key in KEYS_OF_NETWORK and key not in KEYS_OF_CLASS:
            raise InputError(
                f"{where}: {key!r} is a key of the network, not of a class; move it above the "
                "first [[class]].",
                at=(key,),
            )
        if key not in KEYS_OF_CLASS:
            raise unknown(f"key of {where}", key, KEYS_OF_CLASS, at=(key,), near=0.7)
    for key in NEEDED_KEYS_OF_CLASS:
        if key not in entry:
            raise InputError(
                f"network {network!r}: {where} lacks {key!r}; add it, such as "
                f"{_EXAMPLES_OF_KEYS[key]}.",
                at=(key,),
            )
    values = {**entry, **{key: _name(key, entry[key]) for key in KEYS_WITH_NAMES}}
    for key, value in values.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if key not in (*KEYS_WITH_NAMES, "route") and not number:
            if key == "buffer":
                more = ", or leave it out for a queue without end"
            else:
                more = ""
            if checks.is_text(value):
                quotes = " without quotes"
            else:
                quotes = ""
            raise InputError(
                f"network {network!r}: {where}: {key} must be a number, got {_in_toml(value)}; "
                f"write one{quotes}{more}.",
                at=(key,),
            )
    values["route"] = _route(values.get("route", {}), f"network {network!r}: {where}", named)
    if values.get("buffer") == float("inf"):
        values["buffer"] = None
    return QueueClass(**values)


_EXAMPLES_OF_KEYS = {
    "name": "name = 'parts'",
    "server": "server = 'press'",
    "service": "service = 1.0",
}


def _in_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def _route(route: Any, where: str, named: Collection[str]) -> dict[str, float]:
    """The name of a class, or a table of names and probabilities."""
    if checks.is_text(route) or checks.is_whole(route):
        return {str(route): 1.0}
    if not isinstance(route, Mapping):
        raise InputError(
            f"{where}: route must be the name of a class or a table such as {{ paint = 0.9 }}, got "
            f"{route!r}.",
            at=("route",),
        )
    for target, p in route.items():
        if target in KEYS_OF_CLASS and target not in named:
            raise InputError(
                f"{where}: {target!r} is a key of the class, not of its route; move it above the "
                "table of the route.",
                at=("route", target),
            )
        if isinstance(p, bool) or not isinstance(p, (int, float)):
            if checks.is_text(p):
                remedy = "write it without quotes"
            else:
                remedy = f"write {target} = 1.0 for all"
            raise InputError(
                f"{where}: the route to {target!r} needs a probability, got {_in_toml(p)}; "
                f"{remedy}.",
                at=("route", target),
            )
    return {str(target): float(p) for target, p in route.items()}


def _check_servers(servers: Any, classes: Sequence[QueueClass]) -> None:
    """The servers that a file lists are those that its classes name."""
    if not isinstance(servers, list) or not all(
        checks.is_text(s) or checks.is_whole(s) for s in servers
    ):
        raise InputError(
            f"servers must be a list of names such as ['press', 'booth'], got {servers!r}.",
            at=("servers",),
        )
    listed = [str(s) for s in servers]
    named = [c.server for c in classes]
    for i, c in enumerate(classes):
        if c.server not in listed:
            error = unknown("server", c.server, listed)
            raise InputError(
                f"class {c.name!r} has a server that is not listed in servers: {error}",
                at=("class", i, "server"),
            )
    for j, server in enumerate(listed):
        if server not in named:
            raise InputError(
                f"server {server!r} has no class to serve; give it one, or take it off servers.",
                at=("servers", j),
            )
        if server in listed[:j]:
            raise InputError(
                f"servers lists {server!r} twice; delete one of the two.", at=("servers", j)
            )


def _check_names(data: Json) -> None:
    """Names are not empty, and no two servers differ in capital letters alone, unless the file
    lists both.
    """
    if not str(data.get("name", "-")).strip():
        raise InputError("name is empty; give a name.", at=("name",))
    seen: dict[str, str] = {}
    for i, entry in enumerate(data["class"]):
        for key in KEYS_WITH_NAMES:
            if not str(entry[key]).strip():
                raise InputError(
                    f"{key} of class {i + 1} is empty; give a name.", at=("class", i, key)
                )
        server = str(entry["server"])
        other = seen.setdefault(server.casefold(), server)
        if other != server and "servers" not in data:
            raise InputError(
                f"{server!r} and {other!r} are two servers; write the same letters for one, or "
                "list both in servers.",
                at=("class", i, "server"),
            )


def _check_effects(entries: Sequence[Json]) -> None:
    """What is given counts for something."""
    for i, entry in enumerate(entries):
        for key, other in KEYS_IN_VAIN.items():
            if entry.get(key) and other not in entry:
                raise InputError(
                    f"class {entry['name']!r}: {key} does nothing without {other}; give both or "
                    "neither.",
                    at=("class", i, key),
                )


def _check_reached(network: QueueingNetwork) -> None:
    """Somebody comes to every class, from outside or from a class that somebody comes to."""
    reached = {i for i, c in enumerate(network.classes) if c.arrival > 0}
    while more := {d for i in reached for d, _ in network.routes[i] if d >= 0} - reached:
        reached |= more
    for i, c in enumerate(network.classes):
        if i not in reached:
            raise InputError(
                f"nobody ever comes to class {c.name!r}: give it an arrival rate, route another "
                "class to it, or delete it.",
                at=("class", i, "name"),
            )
