"""The page of a trade-off: its curves in pictures, tables and sentences, and its policies in words.

The page of a policy shows the curves, too, where the folder of a trade-off of the same model is
named; then the policy is one of the dots.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dualplan.core.budgets import Clock
from dualplan.core.encoding import is_known
from dualplan.core.errors import InputError
from dualplan.core.intervals import Interval
from dualplan.core.runs import SETTINGS_FILE, read_json, read_result
from dualplan.core.status import Status
from dualplan.core.types import Json
from dualplan.core.words import more_than, number, percent, plural, states_of
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, make_criterion
from dualplan.policies.alternating import Alternating
from dualplan.policies.contract import Policy
from dualplan.policies.saved import load_policy
from dualplan.report import figures
from dualplan.report.gather import SavedRun, Tell
from dualplan.report.page_rule import rule_in_words
from dualplan.report.pictures import Picture, picture
from dualplan.report.repeat import repeat
from dualplan.report.templates import fill, footer
from dualplan.search.limited.curves import cost_at, followed, shown

TRADEOFF_TASK = "tradeoff"
TRADEOFF_SECTIONS = {
    "summary": "Summary",
    "tradeoff": "Cost against a limit",
    "policies": "The policies in words",
    "repeat": "To repeat it",
}
RULE_AND_LIMIT = "The rule itself may miss the limit, and then cost less."
MOST_RULES = 2  # policies that are told as rules


@dataclass(frozen=True, eq=False)
class SavedTradeoff:
    """A finished run of `dualplan tradeoff`, and its model."""

    folder: Path
    settings: Json
    versions: Json
    result: Json
    model: Model
    criterion: Criterion


@dataclass(frozen=True)
class Row:
    """A row of a table: its name, its cells, and the words at its end."""

    name: str
    cells: tuple[str, ...]
    how: str


@dataclass(frozen=True)
class Table:
    """A caption, the words over the columns, those over the last, and rows."""

    caption: str
    columns: tuple[str, ...]
    last: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class ShownCurve:
    """What the page has of a curve."""

    title: str
    sentences: tuple[str, ...]
    picture: Picture
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class PolicyInWords:
    """A policy of the curves: sentences about it, and a rule that comes near it, if there is
    one.
    """

    name: str
    sentences: tuple[str, ...]
    text: str = ""


def policy_file(folder: str | Path) -> Path | None:
    """A file of a policy in the folder of a trade-off; none if all are functions of the user."""
    result = read_result(folder)
    if result.get("task") != TRADEOFF_TASK:
        raise InputError(f"the run in {str(folder)!r} is no trade-off; name one of `tradeoff`.")
    files = [point["file"] for curve in result["curves"] for point in curve["points"]]
    saved = [str(name) for name in files if name]
    if not saved:
        return None
    return Path(folder) / saved[0]


def read_tradeoff(folder: str | Path, model: Model | None = None) -> SavedTradeoff:
    """The trade-off in a folder; `model` is for those whose model a file of Python makes."""
    path = policy_file(folder)
    if path is not None:
        model = load_policy(path, model).model
    if model is None:
        raise InputError(
            f"the trade-off in {str(folder)!r} has saved no policy (functions of yours are not "
            "saved), and so no model; name the model by --model."
        )
    read = read_json(Path(folder) / SETTINGS_FILE)
    result = read_result(folder)
    given = read["settings"]["criterion"]
    criterion = make_criterion(given["criterion"], given.get("gamma"), given.get("start"))
    return SavedTradeoff(
        Path(folder), read["settings"], read.get("versions", {}), result, model, criterion
    )


def require_same(tradeoff: SavedTradeoff, run: SavedRun) -> None:
    """Raise unless the curves are of the model and the criterion of the run."""
    if tradeoff.model.digest != run.model.digest or tradeoff.criterion != run.criterion:
        raise InputError(
            f"the trade-off in {str(tradeoff.folder)!r} is of another model or criterion than the "
            f"run in {str(run.folder)!r}."
        )


def render_tradeoff(saved: SavedTradeoff, allowed: float, tell: Tell) -> str:
    """The page as text; policies are told as rules in so many seconds."""
    tell("pictures")
    curves = curves_of(saved)
    tell("policies as rules")
    return fill(
        "tradeoff.html",
        title=saved.model.name,
        sections=list(TRADEOFF_SECTIONS.items()),
        model_words=_model_words(saved),
        summary=_summary(saved),
        curves=curves,
        policies=_policies(saved, allowed),
        repeat=repeat(saved.model, saved.settings, saved.result),
        settings=json.dumps(saved.settings, indent=2, ensure_ascii=False),
        footer=footer(saved.versions, saved.model),
    )


# -- the curves ------------------------------------------------------------------------------------


def curves_of(saved: SavedTradeoff, run: SavedRun | None = None) -> list[ShownCurve]:
    """Each curve in a picture, sentences and tables; beside a run its policy is one of the dots."""
    result = saved.result
    start = result["start"]
    if run is not None:
        start = [*start, _found_row(run, result["measures"])]
    return [_shown({**result, "start": start, "curves": [one]}, one) for one in result["curves"]]


def _found_row(run: SavedRun, measures: Sequence[str]) -> Json:
    """The policy of a run as one of the policies to begin with."""
    found = run.found
    unknown = Interval(float("nan"), float("nan"), float("nan"), 1.0)
    known = {name: found.measures.get(name, unknown).to_json() for name in measures}
    name = f"found: {found.policy}"
    return {"policy": name, "cost": found.interval.to_json(), "measures": known}


def _shown(result: Json, curve: Json) -> ShownCurve:
    measure = curve["measure"]
    title = f"Against {measure}"
    caption = (
        "The curve is the least cost "
        f"{'' if curve['exact'] else 'that was found '}for each limit, with its interval; short "
        "pieces are its slope, the price of a unit. Dots are the policies to begin with. "
        "Below the broken line no policy is."
    )
    if curve["exact"]:
        caption = (
            "The curve is the least cost for each limit, computed over all states; short pieces "
            "are its slope, the price of a unit. Dots are the policies to begin with."
        )
    tables = [_points(curve), _start(result, curve)]
    if result["columns"]:
        tables.append(_columns(result))
    drawn = picture(title, caption, partial(figures.tradeoff, result))
    return ShownCurve(title, _sentences(curve), drawn, tuple(tables))


def _sentences(curve: Json) -> tuple[str, ...]:
    """The ends, and what half of the measure costs."""
    measure = curve["measure"]
    tight = curve["points"][0]
    free = curve["points"][-1]
    words = (
        f"Without a limit the cost is {shown(_interval(free['cost']))}, with {measure} "
        f"{shown(_interval(free['measure']))}. The tightest limit here, at most "
        f"{number(tight['at_most'], 4)}, costs {shown(_interval(tight['cost']))}."
    )
    half = free["at_most"] / 2
    there = cost_at(curve, half)
    if there is None or not free["at_most"] > 0:
        return (words,)
    more = more_than(there, free["cost"]["value"])
    return words, f"Half of it, at most {number(half, 4)}, costs {number(there)} ({more})."


def _interval(interval: Json) -> Interval:
    return Interval.from_json(interval, 1.0)


def _points(curve: Json) -> Table:
    columns = ("at most", "cost", "measure", "no policy costs less", "price")
    caption = (
        "A limit, a policy that keeps it, and the price: by how much the cost falls where the "
        "limit rises by 1."
    )
    return Table(caption, columns, "follow", tuple(_point(point) for point in curve["points"]))


def _point(point: Json) -> Row:
    bound = point["lower_bound"]
    cells = (
        shown(_interval(point["cost"])),
        shown(_interval(point["measure"])),
        number(bound) if is_known(bound) else "",
        number(point["price"], 3),
    )
    file = f" ({point['file']})" if point["file"] else ""
    return Row(number(point["at_most"], 4), cells, f"{followed(point['shares'])}{file}")


def _start(result: Json, curve: Json) -> Table:
    measure = curve["measure"]
    rows = [_start_row(row, curve) for row in result["start"] if _plotted(row, measure)]
    columns = ("policy", measure, "cost", "the curve there")
    caption = "Policies to begin with, and what the curve costs with no more of the measure."
    return Table(caption, columns, "less", tuple(rows))


def _plotted(row: Json, measure: str) -> bool:
    return is_known(row["cost"]["value"]) and is_known(row["measures"][measure]["value"])


def _start_row(row: Json, curve: Json) -> Row:
    known = _interval(row["measures"][curve["measure"]])
    there = cost_at(curve, known.upper)
    cells = (shown(known), shown(_interval(row["cost"])), "" if there is None else number(there))
    less = "" if there is None else more_than(there, row["cost"]["value"])
    return Row(row["policy"], cells, less)


def _columns(result: Json) -> Table:
    """The policies that points follow."""
    rows = []
    for row in result["columns"]:
        known = [row["measures"][name] for name in result["measures"]]
        cells = tuple(shown(_interval(one)) for one in (row["cost"], *known))
        rows.append(Row(row["name"], cells, row["source"]))
    columns = ("name", "cost", *result["measures"])
    return Table("The policies that are followed, each alone.", columns, "from", tuple(rows))


# -- words -----------------------------------------------------------------------------------------


def _model_words(saved: SavedTradeoff) -> str:
    model = saved.model
    states = states_of(model.describe()["states"])
    return (
        f"{plural(model.box.dim, 'coordinate').capitalize()}, {states}, "
        f"{plural(len(model.actions), 'action')}. How the {saved.criterion.words} cost of the best "
        "policy depends on a limit."
    )


def _summary(saved: SavedTradeoff) -> list[str]:
    result = saved.result
    status = Status(result["status"])
    if all(curve["exact"] for curve in result["curves"]):
        how = "Every point is the solution of a linear program over all states, proved optimal."
    else:
        how = (
            "Policies were searched at the prices of all limits; those of the curve were then "
            "simulated on random numbers that nothing was chosen by. All intervals hold together "
            "with 95%."
        )
    assumed = {line["assumed"] for curve in result["curves"] for line in curve["lines"]}
    words = [
        how,
        f"{str(status).capitalize()}: {status.advice}. It took {result['seconds']:.0f} s.",
    ]
    if any(assumed):
        words.append(f"Lower bounds are of {'; '.join(sorted(one for one in assumed if one))}.")
    return words


def _policies(saved: SavedTradeoff, allowed: float) -> list[PolicyInWords]:
    """The policy in the middle of each curve, and those that it follows as rules."""
    found = []
    told: set[str] = set()
    clock = Clock(allowed)
    for curve in saved.result["curves"]:
        point = curve["points"][len(curve["points"]) // 2]
        if not point["file"]:
            continue
        policy = load_policy(saved.folder / point["file"], saved.model)
        name = f"{curve['measure']} at most {number(point['at_most'], 4)}"
        if isinstance(policy, Alternating):
            found.append(PolicyInWords(name, (_in_turn(policy, list(point["shares"])),)))
        for part, words in _parts(policy, point, name):
            if part.digest in told or len(told) >= MOST_RULES:
                continue
            told.add(part.digest)
            rule = rule_in_words(part, saved.criterion, clock.left / MOST_RULES)
            sentences = tuple(
                s.replace("the map below has", "its file has") for s in rule.sentences
            )
            found.append(PolicyInWords(words, sentences, rule.text))
    return found


def _in_turn(policy: Alternating, names: Sequence[str]) -> str:
    """Policies in turn, by their names on the page, and where they change."""
    shares = dict(zip(names, policy.shares.tolist(), strict=True))
    order = sorted(shares, key=lambda name: -shares[name])
    rest = ", and ".join(f"{name} in {percent(shares[name])} of the time" for name in order[1:])
    home = ", ".join(map(str, policy.home.tolist()))
    return (
        f"Follow {order[0]}, and {rest}; change at visits of state ({home}), to the one that is "
        "furthest behind its share."
    )


def _parts(policy: Policy, point: Json, name: str) -> list[tuple[Policy, str]]:
    """The policies that are followed, by their names on the page."""
    if not isinstance(policy, Alternating):
        return [(policy, name)]
    return list(zip(policy.policies, point["shares"], strict=True))
