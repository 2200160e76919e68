"""The signatures of all public functions as a table, for docs/reference/signatures.md.

    python tools/signatures.py > docs/reference/signatures.md

The same word stands for the same thing everywhere; tests/test_signatures.py says which words there
are, and compares this table with the page.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import dualplan

HEAD = """# Signatures

Every public function, with its parameters in their order; those after the star are given by name.
The table is made by `python tools/signatures.py`.

| function | parameters |
|---|---|
"""


def rooms() -> list[ModuleType]:
    """The front door and the modules that it names, and those that these name."""
    found = [dualplan]
    for room in found:
        for name in getattr(room, "__all__", ()):
            thing = getattr(room, name)
            if isinstance(thing, ModuleType) and thing not in found and hasattr(thing, "__all__"):
                found.append(thing)
    return found


def functions() -> dict[str, Callable[..., Any]]:
    """Public functions by the shortest name that they have."""
    found: dict[str, Callable[..., Any]] = {}
    seen: set[int] = set()
    for room in rooms():
        short = room.__name__.replace("dualplan", "dp", 1)
        for name in room.__all__:
            thing = getattr(room, name)
            if inspect.isfunction(thing) and id(thing) not in seen:
                seen.add(id(thing))
                found[f"{short}.{name}"] = thing
    return dict(sorted(found.items()))


def shown(function: Callable[..., Any]) -> Iterator[str]:
    """The parameters of a function, one by one, with a star before those that have names."""
    starred = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "\\*"
        if parameter.kind is parameter.VAR_KEYWORD:
            yield f"\\*\\*{parameter.name}: {parameter.annotation}"
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
            yield f"\\*{parameter.name}"
            continue
        yield f"{parameter.name}{_default(parameter)}"


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return ""
    plain = isinstance(parameter.default, (int, float, str, tuple, type(None)))
    return f" = {parameter.default!r}" if plain else " = …"


def table() -> str:
    """The page."""
    rows = [f"| `{name}` | {', '.join(shown(made))} |" for name, made in functions().items()]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
