"""What a report says, in sentences: the model, what was found, against heuristics and all policies,
what that rests on.

Every sentence is made of numbers of the run, and says how they are known (the words for that are in
`core/status.py`). `warnings` are what a reader must know before believing them: customers that are
lost for nothing, limits that are broken, runs that were too short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dualplan.core.encoding import is_known
from dualplan.core.intervals import Interval
from dualplan.core.status import (
    ASSUMED,
    COMPUTED,
    ESTIMATED,
    MEASURED,
    PROVED,
    STATISTICAL,
    UNKNOWN,
    Status,
)
from dualplan.core.types import Json
from dualplan.core.words import at_most, between, number, percent, plural, states_of
from dualplan.evaluation.compared import (
    EXACT_DIFFERENCE,
    NO_DIFFERENCE,
    PAIRED_DIFFERENCE,
    UNPAIRED_DIFFERENCE,
)
from dualplan.evaluation.results import LOST_MEASURE, Evaluation
from dualplan.models.criteria import Discounted
from dualplan.models.queueing import QueueingNetwork
from dualplan.report.gather import Beside, SavedRun

SMALL_GAP_SHARE = 0.001  # below which a longer search is not worth its time
DIFFERENCES_IN_WORDS = {
    EXACT_DIFFERENCE: "both over all states",
    PAIRED_DIFFERENCE: "in pairs, on the same random numbers",
    UNPAIRED_DIFFERENCE: "from end to end of the intervals of two separate runs",
    NO_DIFFERENCE: "the two did the same wherever they went",
}
LOST_DIFFERENCE = 0.001  # by which two policies differ in what they lose to be worth a word


@dataclass(frozen=True)
class Fact:
    """A large number at the head of the page: what it is, the number, and a few words on it."""

    name: str
    value: str
    words: str


# -- the model and the policy ----------------------------------------------------------------------


def unit(run: SavedRun) -> str:
    """What the cost is counted in."""
    if isinstance(run.criterion, Discounted):
        return "discounted"
    continuous = (
        isinstance(run.model, QueueingNetwork) and run.model.options["time"] == "continuous"
    )
    if continuous:
        return "per unit of time"
    return "a step"


def model_words(run: SavedRun) -> str:
    """What the model is, and what is minimised."""
    model = run.model
    states = states_of(model.describe()["states"])
    size = (
        f"{plural(model.box.dim, 'coordinate')}, {states}, {plural(len(model.actions), 'action')}"
    )
    kind = "A model"
    if isinstance(model, QueueingNetwork):
        kind = (
            f"A network of {plural(len(model.classes), 'queue')} at "
            f"{plural(len(model.servers), 'server')}"
        )
    aim = "the long-run average cost " + unit(run)
    if isinstance(run.criterion, Discounted):
        aim = f"the discounted cost from its start (γ = {run.criterion.gamma:g})"
    return f"{kind}: {size}. What is minimised is {aim}."


def how_known(judged: Evaluation) -> str:
    """How a cost is known."""
    if judged.exact:
        return "computed over all states"
    if not judged.trusted:
        return f"simulated; {judged.status.advice}"
    return "simulated, 95% interval " + (
        between(judged.lower, judged.upper) or f"±{number(judged.upper - judged.cost, 2)}"
    )


def found_words(run: SavedRun) -> str:
    """What was found, how, and what it costs."""
    found = run.found
    result = run.result
    cost = f"It costs {number(found.cost)} {unit(run)} ({how_known(found)})."
    if run.searched:
        kept = sum(row["accepted"] for row in result["attempts"])
        count = len(result["attempts"])
        tries = f"{plural(count, 'step')}, {kept or 'none'} of them with a gain"
        if count < 2:
            if count:
                tries = f"one step, {'with' if kept else 'without'} a gain"
            else:
                tries = "no step"
        return (
            f"In {result['seconds']:.0f} s the search took {tries}. The best is “{found.policy}”. "
            f"{cost}"
        )
    penalties = plural(len(result["tried"]), "penalty")
    return (
        f"The dual linear program over {plural(result['features'], 'occupancy feature')} was "
        f"solved for {penalties} H; the policy of H = {_flow(result['penalty']):g} is the one "
        f"chosen. {cost}"
    )


def _flow(penalty: float | list[float]) -> float:
    """H of the flow, where the two violations are weighed apart."""
    if isinstance(penalty, list):
        return penalty[1]
    return penalty


# -- against others --------------------------------------------------------------------------------


def saved_share(beside: Beside) -> Interval | None:
    """The saving as a share of the best heuristic's cost, which is an estimate unless it is
    exact.
    """
    if beside.best is None or beside.saved is None or not beside.best.cost > 0:
        return None
    gain = beside.saved
    cost = beside.best.cost
    return Interval(gain.value / cost, gain.lower / cost, gain.upper / cost, gain.confidence)


def _estimated(best: Evaluation) -> str:
    """What a share of the best heuristic's cost is a share of, where that is no exact number."""
    if best.exact:
        return ""
    return " of the estimate"


def heuristic_words(beside: Beside) -> str:
    """The policy against the best heuristic."""
    best = beside.best
    saved = beside.saved
    if best is None or saved is None:
        return (
            "There is no other policy with a cost that can be trusted, so there is nothing to "
            "compare with."
        )
    count = len(beside.judged)
    cost = f"{number(best.cost)} ({how_known(best)})"
    if len(beside.heuristics) == count:
        others = f"the model's {plural(count, 'heuristic')}"
    else:
        others = plural(count, "other policy")
    intro = f"The best of {others} is {best.policy} at {cost}."
    if count == 1:
        intro = f"Beside it stands {best.policy}, which costs {cost}."
    if beside.same:
        if saved.confidence == 1:
            alike = "is the policy"
        else:
            alike = "and the policy did the same wherever they went"
        return f"{intro} It {alike}: nothing better was found."
    if not math.isfinite(saved.value):
        return f"{intro} The two could not be compared: one of them is unstable in simulation."
    if saved.confidence == 1 and saved.lower <= 0 <= saved.upper:
        return f"{intro} The policy costs the same, to all digits that were computed."
    if beside.doubt:
        doubt = f" That is {beside.doubt}."
    else:
        doubt = ""
    share = saved_share(beside)
    if share is None:
        part = ""
    else:
        part = f"{percent(abs(share.value))}{_estimated(best)}; "
    if saved.lower > 0:
        reason = f"{part}{_how(beside, saved)}"
        return f"{intro} The policy costs {number(saved.value, 4)} less ({reason}).{doubt}"
    if saved.upper < 0:
        if doubt:
            better = ""
        else:
            better = f": {best.policy} is better"
        return (
            f"{intro} The policy costs {number(-saved.value, 4)} more "
            f"({part}{_how(beside, _negated(saved))}){better}.{doubt}"
        )
    return f"{intro} No difference between the two can be told ({_how(beside, saved)}).{doubt}"


def _how(beside: Beside, difference: Interval) -> str:
    """How a difference of two costs is known."""
    if difference.confidence == 1:
        return "exactly"
    reach = between(difference.lower, difference.upper, 3) or f"±{number(difference.half_width, 2)}"
    return f"{beside.how} 95% interval {reach}"


def _negated(interval: Interval) -> Interval:
    return Interval(-interval.value, -interval.upper, -interval.lower, interval.confidence)


def bound_words(run: SavedRun) -> str:
    """The policy against all policies."""
    result = run.result
    bound = result["lower_bound"]
    kind = result["lower_bound_kind"]
    gap = result["gap"]
    if not is_known(bound):
        return (
            "No lower bound on what other policies cost is known, so how far this one is from "
            "optimal is not known."
        )
    if result.get("lower_bound_functions"):
        by = f" by {result['lower_bound_functions']}"
    else:
        by = ""
    if result.get("lower_bound_assumed"):
        of = f", among {result['lower_bound_assumed']}"
    else:
        of = ""
    if kind != PROVED:
        tells = is_known(gap) and gap < 1
        if tells:
            rest = f" If it holds, another policy could save at most {at_most(gap)} of the cost."
        else:
            rest = ""
        return (
            f"By the states that were looked at, no policy costs less than {number(bound)} "
            f"({kind}, not a proof).{rest}"
        )
    rest = ", which is too low to tell how far this one is from optimal."
    if is_known(gap) and gap < 1:
        rest = f", so another policy could save at most {at_most(gap)} of this one's cost."
    return f"It is proved{by} that no policy costs less than {number(bound)}{of}{rest}"


def facts(run: SavedRun, beside: Beside) -> list[Fact]:
    """The numbers at the head of the page."""
    found = run.found
    result = run.result
    share = saved_share(beside)
    exact = found.exact
    first = Fact(
        f"cost {unit(run)}",
        number(found.cost),
        "computed over all states" if exact else how_known(found),
    )
    against = Fact("against heuristics", "–", "none to compare with")
    if beside.best is not None and beside.saved is not None:
        against = Fact(
            "against the best heuristic", *_against(beside, beside.best, beside.saved, share)
        )
    gap = result["gap"]
    kind = result["lower_bound_kind"]
    value = "unknown"
    note = "no lower bound is known"
    if is_known(gap):
        value = f"≤ {at_most(gap)}"
        note = f"of the cost by another policy; the bound is {kind}"
    if is_known(gap) and gap >= 1:
        value = "unknown"
        note = f"the lower bound, {number(result['lower_bound'])}, is too low to tell"
    return [first, against, Fact("could still be saved", value, note)]


def _against(
    beside: Beside, best: Evaluation, saved: Interval, share: Interval | None
) -> tuple[str, str]:
    if beside.same:
        return (
            "the same",
            f"the policy {'is' if saved.confidence == 1 else 'does the same as'} {best.policy}",
        )
    if not math.isfinite(saved.value):
        return "unknown", f"{best.policy}; one of the two is unstable"
    if share is None:
        value = number(-saved.value, 3)
    else:
        value = percent(-share.value)
    costs = f"{best.policy} costs {number(best.cost)}"
    if beside.doubt:
        doubt = f"; {beside.doubt}"
    else:
        doubt = ""
    includes = saved.lower <= 0 <= saved.upper
    if saved.confidence == 1:
        return "the same" if includes else value, f"{costs}; both exact{doubt}"
    reach = between(-saved.upper, -saved.lower, 3)
    if share is not None:
        reach = f"{percent(-share.upper)} to {percent(-share.lower)}{_estimated(best)}"
    return (
        value,
        f"{costs}; {beside.how} interval {reach}{', which includes 0' if includes else ''}{doubt}",
    )


# -- what must be said -----------------------------------------------------------------------------


def warnings(run: SavedRun, beside: Beside) -> list[str]:
    """What a reader must know before believing the numbers."""
    return list(dict.fromkeys(_warnings(run, beside)))


def _warnings(run: SavedRun, beside: Beside) -> Iterator[str]:
    found = run.found
    result = run.result
    if not found.trusted:
        yield f"The cost of the policy is not to be trusted: {found.status.advice}."
    for note in found.notes:
        yield f"The policy {note}" if note.startswith("loses") else note[:1].upper() + note[1:]
    yield from _lost_by_both(found, beside)
    for limit in result["limits"]:
        if not limit["kept"]:
            yield (
                f"A limit is not kept: {limit['measure']} is {number(limit['value'])} "
                f"({number(limit['lower'])} to {number(limit['upper'])}) and must be at most "
                f"{limit['at_most']:g}; no policy that was found keeps it for sure."
            )
    if result.get("gap_reached") is False:
        yield f"The gap of {percent(result['gap_wanted'])} that was asked for is not reached."
    status = Status(result["status"])
    gap = result["gap"]
    if status is Status.TIME and run.searched and not gap <= SMALL_GAP_SHARE:
        yield "The clock stopped the search: a longer one may find a better policy."
    elif status not in (
        Status.TIME,
        Status.SETTLED,
        Status.GAP,
        Status.SOLVED,
        Status.REACHED,
        Status.COMPLETED,
    ):
        yield (
            f"{'The search' if run.searched else 'The program'} ended with “{status}”: "
            f"{status.advice}."
        )
    best = beside.best
    if best is not None and beside.doubt:
        yield f"The comparison with {best.policy} is {beside.doubt}."
    elif (
        best is not None and not beside.same and beside.saved is not None and beside.saved.upper < 0
    ):
        yield f"{best.policy} is cheaper than the policy that was found."
    for judged in beside.judged:
        if not judged.trusted:
            yield (f"The cost of {judged.policy} is not to be trusted: {judged.status.advice}.")


def _lost_by_both(found: Evaluation, beside: Beside) -> Iterator[str]:
    """Whether the policy, where losses cost nothing, turns more customers away than the
    heuristic.
    """
    best = beside.best
    if best is None or beside.same or not any(note.startswith("loses") for note in found.notes):
        return
    own, other = (judged.measures.get(LOST_MEASURE) for judged in (found, best))
    if own is not None and other is not None and own.value > other.value + LOST_DIFFERENCE:
        yield (
            f"{best.policy} loses only {percent(other.value)} of them: not all of "
            "the saving is gain."
        )


# -- what is known, and how ------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A number, how it is known, and why."""

    name: str
    value: str
    between: str
    label: str
    note: str


GROUPS_OF_LABELS = {
    "Proved": (
        (PROVED, COMPUTED),
        "Follows from the model: by mathematics, or computed over all its states.",
    ),
    "Measured": (
        (MEASURED, ESTIMATED, STATISTICAL),
        "By simulation or from draws; intervals hold with their confidence.",
    ),
    "Assumed": (
        (ASSUMED, UNKNOWN),
        "Nothing here was checked: if it is wrong, so is what rests on it.",
    ),
}


def certificate(run: SavedRun, beside: Beside) -> list[tuple[str, str, list[Known]]]:
    """What is known in three groups, each with what its name means."""
    entries = list(_entries(run, beside))
    return [
        (name, meaning, [e for e in entries if e.label in labels])
        for name, (labels, meaning) in GROUPS_OF_LABELS.items()
    ]


def _entries(run: SavedRun, beside: Beside) -> Iterator[Known]:
    found = run.found
    result = run.result
    exact = found.exact
    how, note = (
        (COMPUTED, "over all states")
        if exact
        else (MEASURED, f"{found.method}; {found.status.advice}")
    )
    yield Known(
        "cost of the policy", number(found.cost, 7), between(found.lower, found.upper, 8), how, note
    )
    yield from _bound_entries(run)
    if beside.best is not None and beside.saved is not None and not beside.same:
        gain = beside.saved
        label, note = (
            (COMPUTED, "both over all states")
            if gain.confidence == 1
            else (MEASURED, DIFFERENCES_IN_WORDS[beside.how])
        )
        note += f"; {beside.doubt}" if beside.doubt else ""
        yield Known(
            f"saved against {beside.best.policy}",
            number(gain.value),
            between(gain.lower, gain.upper),
            label,
            note,
        )
    for limit in result["limits"]:
        ends = between(limit["lower"], limit["upper"])
        kept = f"at most {limit['at_most']:g}: {'kept' if limit['kept'] else 'not kept'}"
        yield Known(
            limit["measure"], number(limit["value"]), ends, COMPUTED if exact else MEASURED, kept
        )
    yield from _certified(result.get("certificate"))
    yield Known(
        "the model",
        "",
        "",
        ASSUMED,
        "It describes what happens and what it costs; nothing here was compared with data.",
    )
    if not exact and not isinstance(run.criterion, Discounted):
        yield Known(
            "equilibrium",
            "",
            "",
            ASSUMED,
            "What was simulated, after a warm-up that is left out, is the long run.",
        )


def _bound_entries(run: SavedRun) -> Iterator[Known]:
    result = run.result
    kind = result["lower_bound_kind"]
    exact = run.found.exact
    if not is_known(result["lower_bound"]):
        yield Known("lower bound", UNKNOWN, "", UNKNOWN, "no policy's cost is bounded from below")
        return
    if result.get("lower_bound_functions"):
        note = f"by {result['lower_bound_functions']}"
    else:
        note = ""
    yield Known(
        "lower bound on any policy's cost", number(result["lower_bound"], 7), "", kind, note
    )
    if is_known(result["gap"]):
        if exact or kind != PROVED:
            label = kind
        else:
            label = MEASURED
        note = "of the cost, at most" + (
            "" if exact else "; the cost in it is the upper end of a 95% interval"
        )
        yield Known("what another policy could save", at_most(result["gap"]), "", label, note)
    if result.get("lower_bound_assumed"):
        yield Known(
            "policies that the bound is about", "", "", ASSUMED, result["lower_bound_assumed"]
        )


def _certified(saved: Json | None) -> Iterator[Known]:
    """The certificate of the dual program."""
    for name, entry in (saved or {"entries": {}})["entries"].items():
        low = entry["lower"]
        high = entry["upper"]
        if low == high:
            shown = ""
        else:
            shown = between(low, high)
        if name == "cost":
            label = "certificate: cost"
        else:
            label = name
        yield Known(label, number(entry["value"]), shown, entry["label"], entry["note"])
