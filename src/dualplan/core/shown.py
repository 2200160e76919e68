"""Results that print as a few lines, and as a table in notebooks.

What they show is what their JSON says in single words and numbers, without the arrays.
"""

from __future__ import annotations

import html

from dualplan.core.types import Json
from dualplan.core.words import number


class Shown:
    """A result that has `to_json`."""

    def to_json(self) -> Json:
        """As plain values."""
        raise TypeError(f"{type(self).__name__} has no plain values of its own.")

    def shown(self) -> dict[str, str]:
        """What is told of it, by name: numbers, words and yes or no."""
        found = {}
        for name, value in self.to_json().items():
            if isinstance(value, bool):
                found[name] = "yes" if value else "no"
            elif isinstance(value, int):
                found[name] = f"{value:,}"
            elif isinstance(value, float):
                found[name] = number(value, 7)
            elif isinstance(value, str) and value:
                found[name] = value
        return found

    def __str__(self) -> str:
        rows = [f"{name}: {value}" for name, value in self.shown().items()]
        return "\n".join([type(self).__name__, *(f"  {row}" for row in rows)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """A table, which notebooks show."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self.shown().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"
