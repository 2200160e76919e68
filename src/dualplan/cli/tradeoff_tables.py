"""Curves of least cost against a limit as tables, and as a figure in a file."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from dualplan.cli.output import out_console
from dualplan.core.encoding import is_known
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.core.words import more_than, number, plural
from dualplan.report import figures
from dualplan.search.limited.curves import cost_at, followed, shown

NUMBERED_COLUMNS = ("at most", "cost", "measure", "no policy costs less", "price")


def print_tradeoff(result: dict[str, Any]) -> None:
    """A table for each curve, the policies to begin with beside them, and how it ended."""
    out = out_console()
    for curve in result["curves"]:
        out.print(_curve(curve, result["model"]))
        if result["start"]:
            out.print(_start(result, curve))
    if result["columns"]:
        out.print(_columns(result))
    out.print(_how(result), soft_wrap=True)
    status = Status(result["status"])
    words = status.advice if status.advice.startswith(str(status)) else f"{status}: {status.advice}"
    out.print(f"{words}. It took {result['seconds']:.0f} s.", soft_wrap=True)


def draw_tradeoff(result: dict[str, Any], path: str) -> None:
    """The curves, into a file."""
    figures.save(figures.tradeoff(result), path)


def _curve(curve: dict[str, Any], model: str) -> Table:
    table = Table(title=f"{model}: least cost against {curve['measure']}")
    for name in NUMBERED_COLUMNS:
        table.add_column(name, justify="right")
    mixed = any(len(point["shares"]) > 1 for point in curve["points"])
    if mixed or not curve["exact"]:
        table.add_column("follow")
    for point in curve["points"]:
        cells = [
            number(point["at_most"], 4),
            _interval(point["cost"]),
            _interval(point["measure"]),
            number(point["lower_bound"]) if is_known(point["lower_bound"]) else "",
            number(point["price"], 3),
        ]
        if mixed or not curve["exact"]:
            cells.append(followed(point["shares"]))
        table.add_row(*cells)
    return table


def _interval(interval: dict[str, float]) -> str:
    return shown(Interval.from_json(interval, 1.0))


def _start(result: dict[str, Any], curve: dict[str, Any]) -> Table:
    """What the policies to begin with cost, and what the curve costs with no more of the measure
    than they have.
    """
    name = curve["measure"]
    table = Table(title="policies to begin with")
    table.add_column("policy")
    for words in (name, "cost", "the curve there", "less"):
        table.add_column(words, justify="right")
    for row in sorted(result["start"], key=lambda row: row["measures"][name]["value"]):
        if not is_known(row["cost"]["value"]) or not is_known(row["measures"][name]["value"]):
            continue
        least = cost_at(curve, row["measures"][name]["upper"])
        there = "" if least is None else number(least)
        less = "" if least is None else more_than(least, row["cost"]["value"])
        cells = (_interval(row["measures"][name]), _interval(row["cost"]))
        table.add_row(row["policy"], *cells, there, less)
    return table


def _how(result: dict[str, Any]) -> str:
    """Where the numbers come from."""
    if all(curve["exact"] for curve in result["curves"]):
        return (
            "exact: linear programs over all states. The price is by how much the cost falls where "
            "the limit rises by 1."
        )
    count = plural(result["searches"], "search").replace("searchs", "searches")
    return (
        f"by {count}, measured afresh; ± is half the width of intervals that hold together with "
        "95%. “A, and B in 12%”: in turn, each in its share of the time. The price is by how much "
        "the cost falls where the limit rises by 1."
    )


def _columns(result: dict[str, Any]) -> Table:
    """The policies that points follow."""
    table = Table(title="policies that are followed")
    for name in ("name", "from"):
        table.add_column(name)
    for name in ("cost", *result["measures"]):
        table.add_column(name, justify="right")
    for row in result["columns"]:
        known = [row["measures"][name] for name in result["measures"]]
        cells = [_interval(one) for one in (row["cost"], *known)]
        table.add_row(row["name"], row["source"], *cells)
    return table
