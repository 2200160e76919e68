"""The page of a run: one HTML file that needs nothing else, of what `gather`, `words`, `slices` and
`pictures` have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dualplan.core.budgets import Clock, seconds
from dualplan.core.encoding import is_known
from dualplan.core.errors import InputError
from dualplan.core.runs import read_result, write_bytes
from dualplan.core.words import more_by, more_than, number, percent, plus_minus
from dualplan.evaluation.compared import (
    EXACT_DIFFERENCE,
    NO_DIFFERENCE,
    PAIRED_DIFFERENCE,
    UNPAIRED_DIFFERENCE,
    Compared,
)
from dualplan.evaluation.results import LOST_MEASURE, Evaluation
from dualplan.evaluation.visits import visited
from dualplan.models.contract import Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy
from dualplan.report import words
from dualplan.report.gather import Beside, SavedRun, Tell, judge_heuristics, read_run
from dualplan.report.page_rule import rule_in_words
from dualplan.report.pictures import LIGHT_PAGE_THEME, pictures
from dualplan.report.repeat import repeat
from dualplan.report.slices import Tabulated, tabulate
from dualplan.report.templates import fill, footer
from dualplan.report.tradeoff_page import (
    TRADEOFF_TASK,
    SavedTradeoff,
    curves_of,
    read_tradeoff,
    render_tradeoff,
    require_same,
)

PAGE_SECONDS = 10.0  # for what is simulated and tabulated
# shares of the time: for maps, and for heuristics that the run has not compared; the rest is for
# the rule in words
MAPS_TIME_SHARE = 0.3
HEURISTICS_TIME_SHARE = 0.35
# states by which ranges and levels of maps are chosen, and the steps between them
MAP_VISITS = 4_000
STEPS_BETWEEN_MAP_VISITS = 20
HEURISTICS_ON_THE_MAP = 3  # on the map


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    time: str | float = PAGE_SECONDS,
    tell: Tell = lambda _: None,
    model: Model | None = None,
    function: Policy | None = None,
    tradeoff: str | Path | None = None,
) -> Path:
    """Write the report of the run in a folder, by default into the folder, and say where.

    `tradeoff` is the folder of curves of the same model, which the page of a policy shows too.

    `model` is for runs whose model a file of Python makes, and `function` for those that
    found nothing better than a function of the user, which is not saved.

    `time` is for what is computed for the page alone: costs of heuristics where they are simulated,
    and maps.
    """
    allowed = seconds(time)
    page = _page_of(folder, model, function, tradeoff)
    if out is None:
        target = Path(folder) / "report.html"
    else:
        target = Path(out)
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {str(target.parent)!r} for the report.")
    if target.is_dir():
        raise InputError(f"{str(target)!r} is a folder; name a file for the report.")
    write_bytes(target, page(allowed, tell).encode())
    return target


def _page_of(
    folder: str | Path, model: Model | None, function: Policy | None, tradeoff: str | Path | None
) -> Callable[[float, Tell], str]:
    """What makes the page of the run in a folder, in so many seconds."""
    if read_result(folder).get("task") == TRADEOFF_TASK:
        if tradeoff is not None:
            raise InputError(f"{str(folder)!r} is a trade-off itself; leave the other folder out.")
        return partial(render_tradeoff, read_tradeoff(folder, model))
    run = read_run(folder, model, function)
    curves = None
    if tradeoff is not None:
        curves = read_tradeoff(tradeoff, model)
        require_same(curves, run)
    return partial(_rendered, run, curves)


def _rendered(run: SavedRun, curves: SavedTradeoff | None, allowed: float, tell: Tell) -> str:
    return render(run, allowed, tell, curves)


def render(
    run: SavedRun,
    allowed: float = PAGE_SECONDS,
    tell: Tell = lambda _: None,
    tradeoff: SavedTradeoff | None = None,
) -> str:
    """The page as text, made in so many seconds."""
    clock = Clock((1 - MAPS_TIME_SHARE) * allowed)
    beside = judge_heuristics(run, HEURISTICS_TIME_SHARE * allowed, tell)
    tell("the policy as a rule")
    rule = rule_in_words(run.policy, run.criterion, clock.left, run.result.get("seed", 0))
    tell("what the policies do")
    others = [policy for policy in beside.heuristics if policy.digest != run.policy.digest]
    policies = [run.policy, *others[:HEURISTICS_ON_THE_MAP]]
    visits = visited(
        run.model,
        run.policy,
        samples=MAP_VISITS,
        seed=run.result.get("seed", 0),
        every=STEPS_BETWEEN_MAP_VISITS if run.policy.code else 1,
    )
    tabulated = tabulate(run.model, policies, visits, MAPS_TIME_SHARE * allowed)
    tell("pictures")
    drawn, left_out = pictures(run, beside, tabulated)
    sections = {
        name: words for name, words in PAGE_SECTIONS.items() if tradeoff or name != "tradeoff"
    }
    return fill(
        "page.html",
        title=run.model.name,
        sections=list(sections.items()),
        curves=[] if tradeoff is None else curves_of(tradeoff, run),
        model_words=words.model_words(run),
        facts=words.facts(run, beside),
        summary=[words.found_words(run), words.heuristic_words(beside), words.bound_words(run)],
        warnings=words.warnings(run, beside),
        comparison=comparison(run, beside),
        measures=measures(run, beside),
        rule=rule,
        map_words=map_words(tabulated),
        map_notes=map_notes(tabulated),
        map_data={**tabulated.to_json(), "palette": len(LIGHT_PAGE_THEME.palette)},
        pictures=drawn,
        left_out=left_out,
        groups=words.certificate(run, beside),
        repeat=repeat(run.model, run.settings, run.result),
        settings=json.dumps(run.settings, indent=2, ensure_ascii=False),
        footer=footer(run.versions, run.model),
    )


PAGE_SECTIONS = {
    "summary": "Summary",
    "comparison": "Against heuristics and bounds",
    "tradeoff": "Cost against a limit",
    "policy": "What the policy does",
    "pictures": "Pictures",
    "certificate": "What is known, and how",
    "repeat": "To repeat it",
}


# -- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A row of a table: its name, its cells, how it is known, and the kind by which it is set
    apart.
    """

    name: str
    cells: tuple[str, ...]
    how: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """A caption, the words over the columns, and rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def comparison(run: SavedRun, beside: Beside) -> Table:
    """The policy, heuristics, policies of the user's own, and the bound."""
    found = run.found
    losing = any(LOST_MEASURE in one.measures for one in (found, *beside.judged))
    columns = ("cost", "more than found", *(["lost"] if losing else []))
    rows = [_found_row(found, losing)]
    rows += [_compared_row(row, found, losing) for row in beside.rows]
    bound = run.result["lower_bound"]
    if is_known(bound):
        cells = (number(bound), more_than(bound, found.cost), *([""] if losing else []))
        by = run.result.get("lower_bound_functions") or ""
        kind = run.result["lower_bound_kind"]
        rows.append(
            Row("no policy costs less", cells, f"{kind}{f', by {by}' if by else ''}", "bound")
        )
    caption = (
        f"Costs are {words.unit(run)}, less is better; ± is half the width of a 95% interval. "
        "Differences are percentages of the cost of the policy that was found."
    )
    return Table(caption, columns, tuple(rows))


def _found_row(found: Evaluation, losing: bool) -> Row:
    lost = [_lost(found)] if losing else []
    return Row(f"found: {found.policy}", (_cost(found), "", *lost), _known(found), "found")


def _compared_row(row: Compared, found: Evaluation, losing: bool) -> Row:
    judged = row.evaluation
    lost = [_lost(judged)] if losing else []
    more = more_by(row.difference, found.cost) if judged.trusted else ""
    how = _known(judged)
    if judged.trusted and not judged.exact:
        how = f"{how}, {ROWS_IN_WORDS[row.how]}"
    return Row(judged.policy, (_cost(judged), more, *lost), how)


ROWS_IN_WORDS = {
    EXACT_DIFFERENCE: "over all states",
    PAIRED_DIFFERENCE: "on the same random numbers as the policy found",
    UNPAIRED_DIFFERENCE: "in a run of its own",
    NO_DIFFERENCE: "does the same as the policy found",
}


def _cost(judged: Evaluation) -> str:
    if judged.exact or not math.isfinite(judged.cost):
        return number(judged.cost)
    return plus_minus(judged.cost, judged.half_width)


def _lost(judged: Evaluation) -> str:
    """The share of customers who are lost."""
    lost = judged.measures.get(LOST_MEASURE)
    if lost is None or not math.isfinite(lost.value):
        return ""
    if lost.half_width == 0 or not math.isfinite(lost.half_width):
        return percent(lost.value)
    return f"{percent(lost.value)} ± {percent(lost.half_width)}"


def _known(judged: Evaluation) -> str:
    """How a cost is known."""
    if judged.exact:
        return "over all states"
    if judged.trusted:
        return "simulated"
    return f"simulated; not to be trusted: {judged.status.advice}"


def measures(run: SavedRun, beside: Beside) -> Table:
    """All measures of the policy and of the best heuristics."""
    found = run.found
    others = beside.judged[:HEURISTICS_ON_THE_MAP]
    columns = [f"found: {found.policy}", *(judged.policy for judged in others)]
    rows = [
        Row(name, tuple(_measure(j, name) for j in (found, *others))) for name in found.measures
    ]
    return Table(
        "Long-run measures, with half the width of the interval where they were simulated.",
        tuple(columns),
        tuple(rows),
    )


def _measure(judged: Evaluation, name: str, digits: int = 5) -> str:
    interval = judged.measures.get(name)
    if interval is None:
        return ""
    # a simulated run in which something never happened does not know how rare it is
    if interval.half_width == 0:
        unseen = not judged.exact and interval.value == 0
        return number(interval.value, digits) + (" (never seen)" if unseen else "")
    return plus_minus(interval.value, interval.half_width, digits)


# -- words about the map, and the end of the page --------------------------------------------------


def map_words(tabulated: Tabulated) -> str:
    """What the map shows."""
    if isinstance(tabulated.model, QueueingNetwork):
        what = "the class that the server serves"
    else:
        what = "the action"
    if len(tabulated.layers) > 1:
        side = " First the policy that was found, then a heuristic."
    else:
        side = ""
    return (
        f"Each cell is a state; its colour is {what}. All coordinates but two are held fixed.{side}"
    )


def map_notes(tabulated: Tabulated) -> list[str]:
    """What the map leaves out."""
    model = tabulated.model
    slices = tabulated.slices
    notes = list[str]()
    chosen = {axis.coordinate for axis in slices.axes}
    left = [i for i in range(model.box.dim) if i not in chosen]
    if left:
        held = ", ".join(f"{model.coordinates[i]} = {slices.fixed[i]}" for i in left[:8])
        if len(left) > 8:
            more = f" and {len(left) - 8} more"
        else:
            more = ""
        notes.append(
            "The busiest coordinates can be chosen; the others are held at medians of visited "
            f"states: {held}{more}."
        )
    short = [model.coordinates[a.coordinate] for a in slices.axes if a.along and not a.whole(model)]
    if short:
        notes.append(f"Only the range of visited states is shown of {', '.join(short)}.")
    if any(axis.levels.size < axis.values.size for axis in slices.axes):
        notes.append(
            "Sliders have fewer levels than there are values (quantiles of visited states), to "
            "keep the page small."
        )
    grain = max(layer.grain for layer in tabulated.layers)
    if grain > 1:
        notes.append(f"Probabilities are rounded to {grain}%.")
    cells = slices.cells * len(tabulated.layers)
    notes.append(
        f"{cells:,} decisions of {len(tabulated.layers)} policies were tabulated for this page."
    )
    return notes
