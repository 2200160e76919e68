"""Results as tables and sentences."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.table import Table

from dualplan.cli.experiments.rows import Outcome, Row, verdict
from dualplan.cli.output import out_console, styled
from dualplan.core.encoding import is_known
from dualplan.core.status import PROVED, Status
from dualplan.core.words import (
    at_most,
    ends,
    more_by,
    more_than,
    number,
    percent,
    plural,
    plus_minus,
    states_of,
)
from dualplan.evaluation.compared import (
    NO_DIFFERENCE,
    PAIRED_DIFFERENCE,
    UNPAIRED_DIFFERENCE,
    Compared,
    rows_of,
)
from dualplan.evaluation.results import (
    EXACT_EVALUATION,
    LOST_MEASURE,
    Comparison,
    Evaluation,
    cost_from_json,
)
from dualplan.models.contract import Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.report import figures


def print_outcome(outcome: Outcome, folder: Path) -> None:
    """An experiment that was run again: a line a figure, in the columns that are not empty, and
    what they say.
    """
    cells = [_cells(row) for row in outcome.rows]
    used = [key for key in cells[0] if any(row[key] for row in cells)]
    table = Table(*used)
    for row in cells:
        table.add_row(*(row[key] for key in used))
    out = out_console()
    out.print(table)
    for sentence in outcome.words:
        out.print(sentence)
    out.print(f"saved in {folder}")


def _cells(row: Row) -> dict[str, str]:
    return {
        "network": row.network,
        "what": row.name,
        "ours": row.shown,
        "elsewhere": "" if row.published is None else str(row.published),
        "verdict": verdict(row),
        "optimum": "" if row.optimum is None else f"{row.optimum:.4f}",
        "lower bound, proved": "" if row.lower_bound is None else f"{row.lower_bound:.4f}",
        "seconds": "" if row.seconds is None else f"{row.seconds:.1f}",
        "how": row.note,
    }


def print_planned(result: dict[str, Any]) -> None:
    """What a plan came to: a row for each penalty, the best with its certificate, and what any
    policy could save.
    """
    out = out_console()
    status = Status(result["cost_status"])
    out.print(_outcomes(result))
    out.print(f"best: H = {_penalty(result)}, {_cost_found(result)}; {status.advice}")
    if result.get("advantage") is not None:
        gain = result["advantage"]
        out.print(
            f"cost minus that of the runner-up: {number(gain['value'], 4)}, paired interval "
            f"{ends(gain['lower'], gain['upper'], 4)}"
        )
    if any(not limit["kept"] for limit in result["limits"]):
        out.print("no policy that was found keeps the limits; this one comes nearest.")
    if "certificate" not in result:
        out.print(
            "the run was saved by an earlier version, without a certificate and a lower bound."
        )
        return
    out.print(_certificate(result["certificate"]))
    if result["theory"] is not None:
        _print_theory(result["theory"])
    _print_gap(result)


def print_search(result: dict[str, Any]) -> None:
    """What a search found: where it began, what each step brought, the cost, the bound and
    the gap.
    """
    out = out_console()
    if result["attempts"]:
        out.print(_steps(result["attempts"]))
    out.print(_costs(result))
    _print_legend(result)
    out.print(f"best: {_found(result)}, {_cost_found(result)}")
    if not (status := Status(result["cost_status"])).good:
        out.print(_sentence(status))
    for row in result["attempts"]:
        if row["note"]:
            out.print(f"step {row['step']}: {row['note']}")
    for limit in result["limits"]:
        if limit["kept"]:
            kept = "kept"
        else:
            kept = "not kept; no policy that was found keeps it for sure"
        out.print(
            f"{limit['measure']} {number(limit['value'])} "
            f"({ends(limit['lower'], limit['upper'])}), at most {limit['at_most']:g}: {kept}"
        )
    for note in result["notes"]:
        out.print(styled("yellow", "note", f" {note}"))
    _print_gap(result)
    if result["gap_reached"] is False:
        out.print(f"the gap of {percent(result['gap_wanted'])} that was asked for is not reached.")
    out.print(f"{_sentence(Status(result['status']))} It took {result['seconds']:.0f} s.")


def _steps(attempts: list[dict[str, Any]]) -> Table:
    """What each step of the search tried, and whether its best policy took the place of the last
    one.
    """
    table = Table(
        "step",
        "policies",
        "best of them",
        "its cost",
        "gain, paired interval",
        "kept",
        "seconds",
        title="how the search went",
    )
    for row in attempts:
        gain = row["gain"]
        if not is_known(row["cost"]):
            cost = ""
        else:
            cost = number(row["cost"])
        if gain is None:
            words = ""
        else:
            words = f"{number(gain['value'], 3)} [{ends(gain['lower'], gain['upper'], 3)}]"
        table.add_row(
            row["step"],
            str(row["candidates"]),
            row["policy"],
            cost,
            words,
            "yes" if row["accepted"] else "",
            f"{row['seconds']:.1f}",
        )
    return table


def _costs(result: dict[str, Any]) -> Table:
    """The policies to begin with, what was found, and what no policy undercuts, the dearest
    first.
    """
    found = cost_from_json(result["policy"], result)
    rows = sorted(rows_of(result), key=_dearest_first)
    known = [found, *(row.evaluation for row in rows)]
    losing = any(LOST_MEASURE in one.measures for one in known)
    table = Table(title=f"{result['model']}: what policies cost")
    table.add_column("policy")
    for name in ("cost", "more than found"):
        table.add_column(name, justify="right")
    if losing:
        table.add_column("lost", justify="right")
    table.add_column("how")

    def add(name: str, one: Evaluation, more: str, how: str, style: str = "") -> None:
        lost = [_lost(one)] if losing else []
        cost = plus_minus(one.cost, 0.0 if one.exact else one.half_width)
        table.add_row(name, cost, more, *lost, how, style=style)

    for row in rows:
        one = row.evaluation
        how = row.how if one.status.good else str(one.status)
        add(one.policy, one, _more(row, found), how)
    how = EXACT_EVALUATION if found.exact else "afresh"
    add(f"found: {_found(result)}", found, "", how, "bold")
    if is_known(result["lower_bound"]):
        bound = result["lower_bound"]
        lost = [""] if losing else []
        kind = result["lower_bound_kind"]
        table.add_row(
            "no policy costs less than", number(bound), more_than(bound, found.cost), *lost, kind
        )
    return table


def _dearest_first(row: Compared) -> float:
    if is_known(row.evaluation.cost):
        return -row.evaluation.cost
    return -math.inf


def _more(row: Compared, found: Evaluation) -> str:
    """How much more than the policy that was found: nothing where that cannot be believed."""
    if not row.evaluation.status.good:
        return ""
    return more_by(row.difference, found.cost)


def _lost(one: Evaluation) -> str:
    if LOST_MEASURE not in one.measures or not is_known(one.measures[LOST_MEASURE].value):
        return ""
    return percent(one.measures[LOST_MEASURE].value)


DIFFERENCES_IN_WORDS = {
    PAIRED_DIFFERENCE: (
        "paired: simulated on the same random numbers as the policy that was found, and so is the "
        "difference; ± is half of a 95% interval."
    ),
    UNPAIRED_DIFFERENCE: (
        "unpaired: simulated at the start of the search; the difference reaches from end to end of "
        "two intervals."
    ),
    NO_DIFFERENCE: "the same: it does what the policy that was found does, wherever they went.",
}


def _print_legend(result: dict[str, Any]) -> None:
    """What the words of the last column mean."""
    used = {row.how for row in rows_of(result) if row.evaluation.status.good}
    for how, words in DIFFERENCES_IN_WORDS.items():
        if how in used:
            out_console().print(styled("dim", words))


def _sentence(status: Status) -> str:
    """A status and what to do."""
    if status.advice.startswith(str(status)):
        words = status.advice
    else:
        words = f"{status}: {status.advice}"
    return f"{words}."


def _cost_found(result: dict[str, Any]) -> str:
    """The cost of the policy that was found, its ends, and how they are known."""
    interval = ends(result["cost_lower"], result["cost_upper"], 6)
    return f"cost {number(result['cost'], 6)} ({interval}, {result['evaluation']})"


def _found(result: dict[str, Any]) -> str:
    """The policy by its name, where it is one of those to begin with, or by the step that
    made it.
    """
    return str(result["policy" if _began_with(result, result["policy"]) else "source"])


def _began_with(result: dict[str, Any], name: str) -> bool:
    return name == result["policy"] and any(m["policy"] == name for m in result["start"])


def _print_gap(result: dict[str, Any]) -> None:
    """What no policy undercuts, from where it is known, and the gap."""
    if not is_known(result["gap"]):
        gap = "unknown"
    else:
        gap = f"at most {at_most(result['gap'])} of the cost"
    if is_known(result["gap"]) and result["evaluation"] != EXACT_EVALUATION:
        gap += ", as surely as the cost's interval holds"
    bound = number(result["lower_bound"], 6)
    kind = result["lower_bound_kind"]
    if result.get("lower_bound_functions"):
        how = f", by {result['lower_bound_functions']}"
    else:
        how = ""
    words = f"no policy costs less than {bound} (proved{how})"
    if not is_known(result["lower_bound"]):
        words = "no lower bound is known"
    elif kind != PROVED:
        words = f"{bound} is a lower bound by the states that were looked at ({kind}, not a proof)"
    out_console().print(f"{words}; the gap is {gap}.")


def _outcomes(result: dict[str, Any]) -> Table:
    table = Table(
        "H",
        "objective",
        "negative part",
        "flow",
        "surrogate",
        "status",
        "cost of the policy",
        "seconds",
    )
    for k, row in enumerate(result["tried"]):
        cells = [
            plus_minus(row[key], row[f"{key}_error"])
            for key in ("violation_negative", "violation_flow", "surrogate")
        ]
        if k == result.get("chosen"):
            mark = " *"
        else:
            mark = ""
        table.add_row(
            _penalty(row),
            number(row["objective"]),
            *cells,
            row["status"],
            f"{number(row['cost'])}{mark}",
            f"{row['seconds'] + row['evaluation_seconds']:.1f}",
        )
    return table


def _penalty(row: dict[str, Any]) -> str:
    """H of the flow, where the two violations are weighed apart."""
    return f"{row['penalty'][1] if isinstance(row['penalty'], list) else row['penalty']:g}"


def _certificate(certificate: dict[str, Any]) -> Table:
    table = Table("", "value", "between", "known", "why", title="certificate")
    for name, entry in certificate["entries"].items():
        if entry["lower"] == entry["upper"]:
            interval = ""
        else:
            interval = ends(entry["lower"], entry["upper"])
        table.add_row(name, number(entry["value"]), interval, entry["label"], entry["note"])
    return table


def _print_theory(theory: dict[str, Any]) -> None:
    """The theorems as numbers, and the work they ask for."""
    title = f"by theory, for ε = {theory['epsilon']:g} and δ = {theory['delta']:g}"
    table = Table("theorem", "at most", "known", "terms", "constants", title=title)
    for name, statement in theory["statements"].items():
        parts = [
            ", ".join(f"{key} {number(value, 4)}" for key, value in statement[part].items())
            for part in ("terms", "constants")
        ]
        table.add_row(name, number(statement["bound"]), statement["label"], *parts)
    work = Table("at", "largest H", "T: steps", "n: draws", "K: points")
    for name, asked in theory["requirements"].items():
        work.add_row(name, *(number(asked[key], 3) for key in ("penalty", "T", "n", "K")))
    out_console().print(table)
    out_console().print(work)


def draw(result: dict[str, Any], figure: str) -> None:
    """The curve of costs and violations against H, into a file."""
    if not is_known(result.get("lower_bound")):
        bound = {}
    else:
        bound = {"lower bound": result["lower_bound"]}
    figures.save(
        figures.curve(result["tried"], f"{result['model']}, {result['features']} features", bound),
        figure,
    )


def print_rows(result: dict[str, Any]) -> None:
    """A result as a table of its numbers and words."""
    table = Table("", "", show_header=False)
    for name, value in result.items():
        if name != "limits":
            table.add_row(name, f"{value:.9g}" if isinstance(value, float) else str(value))
    out_console().print(table)
    if "limits" in result:
        out_console().print(_limits(result["limits"]))


def print_curves(outcome: Outcome) -> None:
    """The curves of an experiment as a table, if it has any."""
    if not outcome.curves:
        return
    table = Table("H", "iterations", "objective", "violation", "average loss of the policy")
    for curve in outcome.curves:
        for k, step in enumerate(curve.steps):
            table.add_row(
                f"{curve.penalty:g}",
                f"{step:,}",
                number(curve.objective[k]),
                number(curve.violation[k]),
                f"{curve.cost[k]:.2f} ± {curve.half_width[k]:.2f}",
            )
    out_console().print(table)


def _limits(rows: list[dict[str, Any]]) -> Table:
    table = Table("measure", "at most", "of the policy", "multiplier", title="limits")
    for row in rows:
        table.add_row(
            row["measure"], *(f"{row[key]:.6g}" for key in ("at_most", "value", "multiplier"))
        )
    return table


def print_report(model: Model, report: Any) -> None:
    """What a check of a model found."""
    out = out_console()
    size = (
        f"{plural(model.box.dim, 'coordinate')}, {states_of(model.describe()['states'])}, "
        f"{plural(len(model.actions), 'action')}"
    )
    out.print(styled("bold", model.name, f": {size}"))
    if isinstance(model, QueueingNetwork):
        _print_loads(model)
    if report.exhaustive:
        scope = "all"
    else:
        scope = "sampled"
    for what in report.checked:
        out.print(styled("green", "  ok      ", f"{what} ({report.pairs} {scope} pairs)"))
    for what in report.skipped:
        out.print(styled("yellow", "  skipped ", what))
    if report.simulator_p_value is not None:
        out.print(f"  simulator against forward law: p = {report.simulator_p_value:.3g}")


def _print_loads(network: QueueingNetwork) -> None:
    """What each server is offered, and whether that is too much."""
    for server, load in network.loads.items():
        certain = network.certain_loads[server]
        line = f"  load of {server}: {load:.4g}"
        if certain >= 1:
            warning = (
                f"  ({certain:.4g} of it from queues without end: no policy keeps them finite)"
            )
            out_console().print(styled("", line, ""), styled("yellow", warning), sep="")
        else:
            out_console().print(
                line + ("  (bounded buffers turn a part of it away)" if load >= 1 else "")
            )


def print_evaluation(result: Evaluation | Comparison, folder: str | None) -> None:
    """Costs, measures, notes and advice of one or two policies."""
    out = out_console()
    if isinstance(result, Evaluation):
        evaluations = [result]
    else:
        evaluations = [result.first, result.second]
    table = Table()
    for column in (
        "policy",
        "cost",
        f"{evaluations[0].confidence:.0%} interval",
        "status",
        "steps",
        "seconds",
    ):
        table.add_column(column, justify="left" if column in ("policy", "status") else "right")
    for e in evaluations:
        table.add_row(
            e.policy,
            number(e.cost),
            ends(e.lower, e.upper),
            str(e.status),
            f"{e.steps:,}",
            f"{e.seconds:.1f}",
        )
    out.print(table)
    if isinstance(result, Comparison):
        out.print(f"{result} ({result.status})")
    if any(e.measures for e in evaluations):
        out.print(_measures(evaluations))
    notes = [f"{e.policy}: {note}" for e in evaluations for note in e.notes]
    notes += list(result.notes) if isinstance(result, Comparison) else []
    for note in notes:
        out.print(styled("yellow", "note", f" {note}"))
    statuses = [result.status, *(e.status for e in evaluations)]
    for status in dict.fromkeys(statuses):
        out.print(_sentence(status))
    if folder is not None:
        out.print(f"saved in {folder}")
        if any(e.status is Status.INTERRUPTED for e in evaluations):
            out.print("go on with the same command and --resume")


def _measures(evaluations: list[Evaluation]) -> Table:
    table = Table(title="measures")
    table.add_column("measure")
    for e in evaluations:
        table.add_column(e.policy, justify="right")
        table.add_column("±", justify="right")
    for name in dict.fromkeys(n for e in evaluations for n in e.measures):
        cells: list[str] = []
        for e in evaluations:
            interval = e.measures.get(name)
            cells += (
                ["", ""]
                if interval is None
                else [number(interval.value), number(interval.half_width, 2)]
            )
        table.add_row(name, *cells)
    return table
