"""Saved runs, rules and comparisons of several policies as tables, sentences and a figure."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from dualplan.cli.output import out_console, styled
from dualplan.cli.tables import print_evaluation
from dualplan.core.encoding import is_known
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.core.words import ends, number, percent
from dualplan.evaluation.results import Comparison, Evaluation
from dualplan.report.figures import blank, save
from dualplan.report.rules import Rule

RATES_AMONG_COSTS = (
    "lost fraction",
    "rejected fraction",
)  # in the table of costs; what is lost of each class has its own


def print_evaluated(result: dict[str, Any]) -> None:
    """What came of an evaluation, as when it was run."""
    if "first" not in result:
        print_evaluation(_evaluation(result), None)
        return
    first, second = (_evaluation(result[key]) for key in ("first", "second"))
    difference = Interval.from_json(result["difference"], result["difference"]["confidence"])
    notes = tuple(result["notes"])
    print_evaluation(Comparison(first, second, difference, Status(result["status"]), notes), None)


def _evaluation(data: dict[str, Any]) -> Evaluation:
    level = data["confidence"]
    cost = Interval.from_json({"value": data["cost"], **data}, level)
    return Evaluation(
        data["policy"],
        cost.value,
        cost.lower,
        cost.upper,
        level,
        data["method"],
        Status(data["status"]),
        data["steps"],
        data["seconds"],
        data["seed"],
        data["warm_up_steps"],
        {name: Interval.from_json(measure, level) for name, measure in data["measures"].items()},
        tuple(data["notes"]),
    )


def print_rule(rule: Rule) -> None:
    """A rule in words, and what it costs more than the policy that it stands for."""
    out = out_console()
    known = rule.simplification
    out.print(f"\n{rule.name} ({rule.leaves} leaves)")
    out.print(rule.text(), soft_wrap=True)
    if known is not None:
        out.print(str(known), soft_wrap=True)
        if not known.within:
            out.print(
                f"the rule is not within {percent(known.tolerance)} of the cost with its whole "
                "interval; allow more leaves, a larger tolerance, or more steps.",
                soft_wrap=True,
            )


def print_action(label: str, state: str, actions: list[dict[str, Any]]) -> None:
    """What a policy does in a state."""
    words = "; ".join(
        a["does"]
        if a["probability"] == 1
        else f"{a['does']} with probability {a['probability']:.4g}"
        for a in actions
    )
    out_console().print(f"{label} in {state}: {words}", soft_wrap=True)


# -- several policies ------------------------------------------------------------------------------


def print_compared(result: dict[str, Any]) -> None:
    """A row for each policy: its cost, and how much more than the first."""
    out = out_console()
    rows = result["rows"]
    rates = [name for name in RATES_AMONG_COSTS if any(name in row["measures"] for row in rows)]
    table = Table("policy", "cost", "interval", "minus the first", "interval", *rates, "status")
    for row in rows:
        difference = row["difference"]
        if difference is None:
            cells = ["", ""]
        else:
            cells = [
                number(difference["value"], 4),
                ends(difference["lower"], difference["upper"], 4),
            ]
        shares = [_share(row["measures"].get(name)) for name in rates]
        interval = ends(row["lower"], row["upper"], 6)
        table.add_row(row["name"], number(row["cost"], 6), interval, *cells, *shares, row["status"])
    out.print(table)
    _print_losses(rows)
    out.print(_how(result), soft_wrap=True)
    for note in result["notes"]:
        out.print(styled("yellow", "note", f" {note}"), soft_wrap=True)


def _how(result: dict[str, Any]) -> str:
    if result["method"] == "exact":
        return (
            f"computed over all {result['states']:,} states; the intervals are what rounding "
            "leaves open."
        )
    return (
        f"all intervals hold together with probability {result['confidence']:.0%} (each with "
        f"{result['level']:.2%}); differences are paired, on the same random numbers "
        f"({result['method']})."
    )


def _share(measure: dict[str, Any] | None) -> str:
    if measure is None or not is_known(measure["value"]):
        return ""
    return percent(measure["value"])


def _print_losses(rows: list[dict[str, Any]]) -> None:
    """What is lost of each class, if anything is."""
    names = [name for name in rows[0]["measures"] if name.startswith("loss rate")]
    lost = [
        name
        for name in names
        if any((row["measures"].get(name) or {}).get("value") for row in rows)
    ]
    if not lost:
        return
    table = Table("policy", *lost)
    for row in rows:
        table.add_row(
            row["name"],
            *(number((row["measures"].get(n) or {"value": None})["value"], 4) for n in lost),
        )
    out_console().print(table)


def draw_compared(result: dict[str, Any], path: str) -> None:
    """Costs and differences from the first policy, dots with intervals."""
    figure, panels = blank(2)
    rows = result["rows"]
    _dots(panels[0], [(row["name"], row["cost"], row["lower"], row["upper"]) for row in rows])
    differences = [
        (row["name"], *(row["difference"][key] for key in ("value", "lower", "upper")))
        for row in rows[1:]
    ]
    _dots(panels[1], differences)
    panels[1].axvline(0.0, color="black", linewidth=1, linestyle="--")
    panels[0].set(title="cost", xlabel="cost")
    panels[1].set(title=f"cost minus that of {rows[0]['name']}", xlabel="difference")
    if result["method"] == "exact":
        how = "exact"
    else:
        how = f"{result['confidence']:.0%} simultaneous intervals"
    figure.suptitle(f"{result['model']}, {how}")
    save(figure, path)


def _dots(panel: Any, rows: list[tuple[str, float, float, float]]) -> None:
    """A dot with its interval for each row whose numbers are known; the first on top."""
    for k, (_, value, lower, upper) in enumerate(rows):
        if not all(map(is_known, (value, lower, upper))):
            panel.annotate("unknown", (0.5, k), xycoords=("axes fraction", "data"))
        else:
            panel.errorbar(
                [value],
                [k],
                xerr=[[value - lower], [upper - value]],
                marker="o",
                capsize=3,
                color="C0",
            )
    panel.set_yticks(range(len(rows)), [row[0] for row in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
