"""The last evaluation: what the policy that was found costs, and the policies to begin with beside
it, so that all rows of a table rest on the same random numbers.

These are random numbers that nothing was chosen by. Where states are few, every cost is exact.
Otherwise the best three policies to begin with run beside the one that was found (see
`evaluate_beside`). Others keep the figures of their screening: they are dearer, unstable, or much
slower than the policy that was found; their difference from it is then that of two separate runs.
If the cost of the policy is known exactly, the others are simulated beside it all the same, and
what they cost is its exact cost plus the paired difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dualplan.core.deadlines import until
from dualplan.core.errors import ModelError, OutOfTimeError, PolicyError
from dualplan.core.status import Status
from dualplan.core.streams import Place
from dualplan.evaluation.compared import Compared, alike, same_policy, unpaired
from dualplan.evaluation.evaluate import evaluate_beside
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.results import Evaluation, SettingsKeywords
from dualplan.search.contract import Member, Search
from dualplan.search.duels import controlled, pace
from dualplan.values.functions import StateFunction

POLICIES_BESIDE = 3  # of those to begin with
SLOWEST_BESIDE = 0.25  # of the pace of the policy that was found
# steps of the last evaluation, and the half-width at which it stops
FINAL_EVALUATION_STEPS = 1_000_000_000
FINAL_RELATIVE_WIDTH = 0.003
# but not before: of other measures, which have no control, less is known by then
LEAST_FINAL_STEPS = 5_000_000
FITTING_TIME_SHARE = 0.2  # of the last evaluation's, for fitting controls
# of differences from an exact cost, relative to that: the half-width at which they stop
BESIDE_EXACT_RELATIVE_WIDTH = 0.001
BESIDE_EXACT_SECONDS = 5.0  # that they take at most


@dataclass(frozen=True)
class LastEvaluation:
    """The cost of the policy that was found, and each policy to begin with beside it."""

    found: Evaluation
    beside: tuple[Compared, ...]


def last_evaluation(
    search: Search, start: Sequence[Member], seconds: float, fit: bool = True
) -> LastEvaluation:
    """Evaluate the best policy, and those to begin with beside it, in so many seconds.

    Without `fit` no controls are fitted to policies, and none is simulated beside the best.
    """
    best = search.incumbent
    judge = Judge(
        steps=FINAL_EVALUATION_STEPS,
        # measures that are limited have no control: they are known well long after the cost is
        relative_tol=None if search.wanted_limits else FINAL_RELATIVE_WIDTH,
        seed=search.fresh(Place.LAST_EVALUATION),
        time=seconds,
    )
    if judge.exactly(search.model, best.policy):
        found = judge(search.model, best.policy, search.criterion)
        return LastEvaluation(found, against(search, start, found))
    others = _beside(search, start) if fit else []
    controls: list[StateFunction] = []
    if fit:
        with suppress(OutOfTimeError), until(search.clock.part(FITTING_TIME_SHARE * seconds)):
            best = controlled(search, best)
            controls = _controls(search, best, others)
    least = int(LEAST_FINAL_STEPS * pace(search, best.candidate, best.control))
    settings: SettingsKeywords = {
        "steps": judge.steps,
        "relative_tol": judge.relative_tol,
        "seed": judge.seed,
        "time": seconds,
        "least": least,
    }
    if best.control is not None and not controls:
        controls = [best.control] * (1 + len(others))
    found, rows = evaluate_beside(
        search.model,
        best.policy,
        [m.policy for m in others],
        search.criterion,
        controls=controls,
        **settings,
    )
    return LastEvaluation(found, against(search, start, found, others, rows))


def beside_exact(
    search: Search, start: Sequence[Member], found: Evaluation
) -> tuple[Compared, ...]:
    """Policies to begin with beside one whose cost is known exactly."""
    others = [m for m in _beside(search, start) if not m.run.exact]
    if not others or search.clock.left <= 0:
        return against(search, start, found)
    try:
        with until(search.clock.part(BESIDE_EXACT_SECONDS)):
            _, rows = evaluate_beside(
                search.model,
                search.incumbent.policy,
                [m.policy for m in others],
                search.criterion,
                known=found,
                tol=BESIDE_EXACT_RELATIVE_WIDTH * abs(found.cost) or None,
                least=LEAST_FINAL_STEPS,
                steps=FINAL_EVALUATION_STEPS,
                seed=search.fresh(Place.LAST_EVALUATION),
                time=BESIDE_EXACT_SECONDS,
            )
    except (ModelError, PolicyError, OutOfTimeError):
        return against(search, start, found)
    return against(search, start, found, others, rows)


def against(
    search: Search,
    start: Sequence[Member],
    found: Evaluation,
    others: Sequence[Member] = (),
    rows: Sequence[Compared] = (),
) -> tuple[Compared, ...]:
    """Every policy to begin with against the one that was found: by the row of a run beside it, or
    by what is known of it from its screening.
    """
    best = search.incumbent.policy
    simulated = {id(member): row for member, row in zip(others, rows, strict=True)}
    compared = list[Compared]()
    for member in start:
        if same_policy(search.model, member.policy, best):
            compared.append(alike(member.policy.name, found))
        elif id(member) in simulated:
            compared.append(simulated[id(member)])
        else:
            compared.append(unpaired(member.run, found))
    return tuple(compared)


def _beside(search: Search, start: Sequence[Member]) -> list[Member]:
    """The best policies to begin with that are others than the best, and not much slower."""
    best = search.incumbent
    slowest = SLOWEST_BESIDE * pace(search, best.candidate)
    ranked = sorted(start, key=lambda m: m.rank(search.limits))
    others = [
        m
        for m in ranked
        if m.run.status is not Status.UNSTABLE
        and pace(search, m.candidate) >= slowest
        and not same_policy(search.model, m.policy, best.policy)
    ]
    return others[:POLICIES_BESIDE]


def _controls(search: Search, best: Member, others: Sequence[Member]) -> list[StateFunction]:
    """One for each policy, if the best has one: its own, or that of the best."""
    if best.control is None:
        return []
    return [best.control, *(controlled(search, m).control or best.control for m in others)]
