"""What there is to say about a key of a plan, said once.

A plan (`plan.py`) is a dataclass whose fields are annotated by a `Key`: of which kind its values
are, what it is for, what holds without it, and which option of the command line stands for it. From
these annotations come the check of a TOML file and of a `Plan(...)`, the options and the help of
`dualplan solve`, and the table of keys in the documentation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, fields, replace
from enum import StrEnum
from typing import Any, get_args, get_type_hints

from dualplan.core.checks import is_whole
from dualplan.search.plans.kinds import NAME, Kind


class Part(StrEnum):
    """What a key is about."""

    BOTH = "both"
    SEARCH = "search"
    DUAL = "dual program"


# -- keys ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """One key: its kind, what it is for, and what holds without it, in words.

    `flags` are those of its option, none if only a file can say it. `formerly` is the name that it
    once had. `identifies` says whether a run with another value is another run.
    """

    kind: Kind
    help: str
    without: str = ""
    part: Part = Part.BOTH
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    formerly: str | None = None
    identifies: bool = True
    name: str = ""

    def check(self, value: Any) -> None:
        """Raise one sentence unless the key may have this value; None is none."""
        if value is not None:
            self.kind.check(self.name, value)


def keys_of(plan: type) -> dict[str, Key]:
    """The keys of a dataclass by their names, in order."""
    hints = get_type_hints(plan, include_extras=True)
    found = {}
    for declared in fields(plan):
        for said in get_args(hints[declared.name]):
            if isinstance(said, Key):
                found[declared.name] = _named(declared, said)
    return found


def _named(declared: Field[Any], said: Key) -> Key:
    """A key with its name, the flag that it has by its name, and its default in words."""
    flags = said.flags
    if not flags and said.kind.typed is not None and declared.default is not MISSING:
        flags = (f"--{declared.name.replace('_', '-')}",)
    without = said.without
    if not without and isinstance(declared.default, (int, float, str)):
        without = _as_written(declared.default)
    return replace(said, name=declared.name, flags=flags, without=without)


def _as_written(value: Any) -> str:
    """A default as one writes it down."""
    if isinstance(value, bool):
        return str(value).lower()
    if is_whole(value):
        return f"{value:,}"
    return str(value)


# -- the table of the documentation ----------------------------------------------------------------


def as_markdown(keys: Iterable[Key]) -> str:
    """A table of keys in Markdown."""
    head = ["| key | option | value | without it | |", "|---|---|---|---|---|"]
    return "\n".join([*head, *map(_row, keys)]) + "\n"


def _row(said: Key) -> str:
    option = ", ".join(f"`{flag}`" for flag in said.flags)
    if said.kind.names:
        value = ", ".join(f"`{name}`" for name in said.kind.names)
        if said.kind.words.startswith(f"{NAME.words},"):
            value += said.kind.words.removeprefix(NAME.words)
        elif said.kind.words != NAME.words:
            value += f": {said.kind.words}"
    else:
        value = said.kind.words
    cells = [f"`{said.name}`", option, value, said.without, said.help]
    return f"| {' | '.join(cells)} |"
