"""In which line of a TOML text each key stands.

`tomllib` parses a text but does not say where things are. This is the other half: the path of every
key, table and entry of an array, and the line that it begins in. A path is a tuple of keys and of
indices into arrays,

    [[class]]                   ("class",), ("class", 0)
    name = "paint"              ("class", 0, "name")
    route.press = 0.5           ("class", 0, "route"), ("class", 0, "route", "press")
    limits = [
      "loss <= 1",              ("class", 0, "limits", 0)
    ]

The text must be valid, which `tomllib` has said before; nothing is checked here, and values are
passed over, not read. A table that is mentioned before its own header has the line of the header.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
# by how they open; the quotes of a multi-line string may be followed by one or two that belong to
# it
_STRINGS = {
    '"""': re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.S),
    "'''": re.compile(r"'''.*?'{3,5}", re.S),
    '"': re.compile(r'"(?:\\.|[^"\\])*"'),
    "'": re.compile(r"'[^']*'"),
}
_SCALAR = re.compile(r"[^,\]}#\n]*")


def lines_of(text: str) -> dict[Path, int]:
    """The line, counted from 1, of every path in a valid TOML text."""
    return _Scan(text).lines


class _Scan:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.lines: dict[Path, int] = {}
        self.entries: dict[Path, int] = {}  # of arrays of tables: how many there are so far
        table: Path = ()
        self.skip(_BLANK)
        while self.at < len(text):
            if text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)
            self.skip(_BLANK)

    @property
    def line(self) -> int:
        return bisect_right(self.starts, self.at)

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Pass over what matches, which must be there."""
        found = pattern.match(self.text, self.at)
        if found is None:
            raise ValueError(f"line {self.line} is not valid TOML.")
        self.at = found.end()
        return found.group()

    def header(self) -> Path:
        """[table] or [[entry of an array]]: its path, which the keys below it continue."""
        line = self.line
        double = self.text.startswith("[[", self.at)
        self.at += 2 if double else 1
        *before, last = self.keys()
        self.at += 2 if double else 1
        path: Path = ()
        for key in before:
            path = self.inside((*path, key), line)
        path = (*path, last)
        if not double:
            self.lines[path] = line
            return path
        self.lines.setdefault(path, line)
        self.entries[path] = self.entries.get(path, 0) + 1
        path = (*path, self.entries[path] - 1)
        self.lines[path] = line
        return path

    def inside(self, path: Path, line: int) -> Path:
        """The table at a path, which is the last entry where it is an array."""
        self.lines.setdefault(path, line)
        if path in self.entries:
            return (*path, self.entries[path] - 1)
        return path

    def keys(self) -> list[str]:
        """A key and the dots in it."""
        parts = []
        while True:
            self.skip(_SPACE)
            quote = self.text[self.at]
            parts.append(
                _unquoted(self.skip(_STRINGS[quote])) if quote in _STRINGS else self.skip(_BARE)
            )
            self.skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def pair(self, table: Path) -> None:
        """key = value."""
        line = self.line
        path = table
        for key in self.keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.at += 1  # =
        self.skip(_SPACE)
        self.value(path)

    def value(self, path: Path) -> None:
        """Whatever a value is: its entries have lines too."""
        first = self.text[self.at]
        if first in "[{":
            self.at += 1
            self.listed(path, "]" if first == "[" else "}")
        elif first in "\"'":
            triple = self.text[self.at : self.at + 3]
            self.skip(_STRINGS[triple if triple in _STRINGS else first])
        else:
            self.skip(_SCALAR)

    def listed(self, path: Path, end: str) -> None:
        """The entries of an array or of a table in one line, up to its end."""
        count = 0
        while True:
            self.skip(_BLANK)
            if self.text[self.at] == end:
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
            elif end == "}":
                self.pair(path)
            else:
                self.lines[(*path, count)] = self.line
                self.value((*path, count))
                count += 1


def _unquoted(text: str) -> str:
    return str(tomllib.loads(f"key = {text}")["key"])
