"""How candidates are judged: all of them briefly, then the best against the best policy so far, on
the same events.

*Where states are few* every policy that is compiled is evaluated exactly, and a duel compares two
numbers. What follows is for the others.

*Screening.* Every candidate is simulated for the same short while on the same random numbers, and,
where it brings values, once more with these as control variate (`evaluation/simulation/`); the
narrower of the two intervals counts. The best three are then simulated four times as long.

Policies to begin with are simulated until their cost is known within 1%, in 15% of the time at
most, since all that follows rests on the best of them. Index rules and tables, which are quick,
four times, what runs in Python a twentieth, and policies that look ahead at many outcomes less in
proportion.

*Controls.* An index rule brings no values. Before a duel and before the last evaluation, values are
fitted to its visits (`evaluation/lstd.py`), and they serve as control variate if they make its
interval narrower: quadratic ones where the rule has a loop of its own, which takes them at no loss
of time, and otherwise only against a policy that looks ahead, if intervals are half as wide in the
same time. On the four-queue network without end the variance of c-mu's cost falls by two orders of
magnitude.

*A duel.* The best candidate and the best policy so far are simulated side by side on random numbers
that neither was chosen by. It is looked at up to four times, each look four times as long as the
one before, at a confidence of 1 − .05/4 each, so that the probability to take a policy that is
worse is at most 2.5% a duel, by the intervals. The candidate wins if the interval of the difference
lies below 0; the duel ends early if it lies above −.1% of the cost. A look that is too short to
forget the start counts only if it is the last. With limits, a candidate must keep them with its
whole intervals, and wins at once if the best so far breaks one with its whole interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dualplan import primal
from dualplan._kernels.linear_index import linear_index_rule
from dualplan._kernels.policies import network_rule
from dualplan.core.deadlines import deadline, time_is_over, until
from dualplan.core.errors import ModelError, OutOfTimeError, PolicyError
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.core.streams import Place
from dualplan.evaluation.evaluate import compare
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.lstd import MOST_QUADRATIC_CLASSES, loop_values, quadratic_values
from dualplan.evaluation.results import Comparison, Evaluation
from dualplan.evaluation.visits import visited
from dualplan.models.criteria import Average, Discounted
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.alternating import Alternating
from dualplan.policies.contract import OwnLoop, Policy
from dualplan.policies.tables import TablePolicy
from dualplan.search.contract import Candidate, Member, Search
from dualplan.values.functions import StateFunction

# steps of a screening; how much longer the best few are looked at
SCREENING_STEPS = 100_000
FINALIST_STEPS_FACTOR = 4
SCREENED_FINALISTS = 3
FIRST_LOOK_TIME_SHARE = 0.6  # of the time of a screening, for all; the rest for the best few
# so many times as many steps: of what is not compiled, and of rules and tables
SLOW_PACE = 0.05
QUICK_PACE = 4.0
# outcomes of all actions up to which a look-ahead counts as one step; with more, fewer steps are
# taken
OUTCOMES_OF_ONE_STEP = 60
LEAST_DISCOUNTED_RUNS = 20  # of the discounted criterion, at least
# of the policies to begin with, since all that follows rests on the best of them: steps at most,
# and the relative half-width that is enough
BEGINNING_STEPS = 10_000_000
BEGINNING_RELATIVE_WIDTH = 0.01
DUEL_LOOKS_STEPS: tuple[int, ...] = (400_000, 1_600_000, 6_400_000)
LAST_LOOK_STEPS = 25_600_000  # one more where both policies are quick
DUEL_CONFIDENCE = 1 - 0.05 / 4
# of the polynomials that controls are fitted with, and how many functions at most
CONTROL_DEGREES = (3, 2)
MOST_CONTROL_FUNCTIONS = 60
# visits that they are fitted to, and the steps between two of them
CONTROL_VISITS = 20_000
STEPS_BETWEEN_CONTROL_VISITS = 50
# so many times narrower intervals, in the same time, make up for a last look that is left out
WORTHWHILE_NARROWING = 2.0
WORTHWHILE_GAIN_SHARE = 1e-3  # of the cost: smaller gains are not worth more steps


def screen(
    search: Search,
    candidates: Sequence[Candidate],
    steps: int = SCREENING_STEPS,
    *,
    relative_tol: float | None = None,
    place: int = Place.SCREENING,
) -> list[Member]:
    """The candidates simulated, the cheapest first; those that cannot be simulated are left out.

    With a `relative_tol` each is simulated until its interval is as narrow, for at most so many
    steps.
    """
    seed = search.fresh(place)
    clock = deadline()
    began = clock.left
    room = FIRST_LOOK_TIME_SHARE * began
    looked = []
    for k, candidate in enumerate(candidates):
        # what is left of the time is shared out, so that a slow one does not take it all
        used = began - clock.left if math.isfinite(began) else 0.0
        with until(clock.part((room - used) / (len(candidates) - k))):
            member = _screened(search, candidate, Look(steps, seed, relative_tol))
        if member is not None:
            looked.append(member)
    looked.sort(key=lambda m: m.rank(search.limits))
    again = [
        m
        if m.run.exact or relative_tol is not None or time_is_over()
        else _looked_again(search, m, Look(FINALIST_STEPS_FACTOR * steps, seed))
        for m in looked[:SCREENED_FINALISTS]
    ]
    again.sort(key=lambda m: m.rank(search.limits))
    return [*again, *looked[SCREENED_FINALISTS:]]


@dataclass(frozen=True)
class Look:
    """How long a policy is simulated: steps, at the pace of one that looks ahead, their seed, and
    the relative half-width at which they may end.
    """

    steps: int
    seed: int
    relative_tol: float | None = None


def _looked_again(search: Search, member: Member, look: Look) -> Member:
    return replace(member, run=_run(search, member.candidate, member.control, look))


def _screened(search: Search, candidate: Candidate, look: Look) -> Member | None:
    controls: list[StateFunction | None] = [None]
    exactly = Judge().exactly(search.model, candidate.policy)
    if candidate.values is not None and controllable(search) and not exactly:
        controls.append(candidate.values)
    try:
        runs = [_run(search, candidate, h, look) for h in controls]
    except (ModelError, PolicyError, OutOfTimeError):
        # a policy that leads where the model has no law, does what is not allowed, or is too slow
        return None
    k = min(range(len(runs)), key=lambda i: (runs[i].upper - runs[i].lower, i))
    return Member(candidate, runs[k], controls[k])


def _run(
    search: Search, candidate: Candidate, control: StateFunction | None, look: Look
) -> Evaluation:
    many = max(1, int(look.steps * pace(search, candidate, control)))
    judge = Judge(
        steps=max(many, least_steps(search)), seed=look.seed, relative_tol=look.relative_tol
    )
    run = judge(search.model, candidate.policy, search.criterion, control=control)
    go_on(run)
    return run


def go_on(*runs: Evaluation) -> None:
    """An interruption during a run ends the search too.

    What was simulated till then says too little.
    """
    if any(run.status is Status.INTERRUPTED for run in runs):
        raise KeyboardInterrupt


def least_steps(search: Search) -> int:
    """Steps below which the discounted criterion has too few runs."""
    if not isinstance(search.criterion, Discounted):
        return 1
    return math.ceil(LEAST_DISCOUNTED_RUNS * math.log(1e-6) / math.log(search.criterion.gamma))


def pace(search: Search, candidate: Candidate, control: StateFunction | None = None) -> float:
    """How many times as many steps as of a policy that looks ahead; what is quick is known by its
    kind.

    With a control all next states are listed in each step, and nothing is quick but a policy's own
    loop.
    """
    if isinstance(candidate.policy, Alternating):
        parts = [replace(candidate, policy=part) for part in candidate.policy.policies]
        return min(pace(search, part, control) for part in parts) / len(parts)
    code = candidate.policy.code
    if code is None or isinstance(search.model, SimulatorModel):
        return SLOW_PACE
    if isinstance(candidate.policy, TablePolicy) or code.act in (network_rule, linear_index_rule):
        if control is None or _in_loop(candidate, control):
            return QUICK_PACE
        return 1.0
    outcomes = max(1, search.model.code.max_outcomes)  # none are listed where they are too many
    return min(1.0, OUTCOMES_OF_ONE_STEP / (len(search.model.actions) * outcomes))


def _in_loop(candidate: Candidate, control: StateFunction) -> bool:
    """Whether the policy's own loop takes the control."""
    loop = _loop(candidate.policy)
    h = getattr(control, "code", None)
    return loop is not None and h is not None and h.quadratic_in(loop.coordinates) is not None


def _loop(policy: Policy) -> OwnLoop | None:
    if policy.code is None:
        return None
    return policy.code.loop


def controllable(search: Search) -> bool:
    """Whether losses can be shaped: the average criterion, and a model that lists its next
    states.
    """
    return isinstance(search.criterion, Average) and search.listed


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether the challenger won, by how much, and its own run."""

    won: bool
    gain: Interval
    run: Evaluation


def controlled(search: Search, member: Member) -> Member:
    """With a control that is fitted to the policy's visits, if it is quick and brings none, and the
    control helps.
    """
    if (
        member.control is not None
        or not controllable(search)
        or pace(search, member.candidate) < QUICK_PACE
    ):
        return member
    if member.policy.digest not in search.fitted:
        search.fitted[member.policy.digest] = _fitted(search, member.candidate)
    return replace(member, control=search.fitted[member.policy.digest])


def _fitted(search: Search, candidate: Candidate) -> StateFunction | None:
    try:
        values = _values(search, candidate.policy)
    except ModelError:
        # it leads where the model has no law; simulation, which draws, may not have come there
        return None
    if values is None:
        return None
    plain, shaped = (
        _run(search, candidate, control, Look(SCREENING_STEPS, search.fresh(Place.CONTROL_TRIAL)))
        for control in (None, values)
    )
    if _in_loop(candidate, values):
        narrower = 1.0
    else:
        narrower = WORTHWHILE_NARROWING
    if narrower * shaped.half_width < plain.half_width:
        return values
    return None


def _values(search: Search, policy: Policy) -> primal.LinearValues | None:
    """Quadratic where the policy's own loop takes that.

    Otherwise of the largest degree with few enough functions.
    """
    model = search.model
    loop = _loop(policy)
    dim = search.model.box.dim
    seed = search.fresh(Place.CONTROL_FIT)
    if loop is not None:
        if loop.coordinates > MOST_QUADRATIC_CLASSES:
            return None
        weights = loop_values(
            loop,
            visited(
                model, policy, samples=CONTROL_VISITS, seed=seed, every=STEPS_BETWEEN_CONTROL_VISITS
            ),
        )
        if weights.size:
            return quadratic_values(model, weights, loop.coordinates)
        return None
    degree = next(
        (d for d in CONTROL_DEGREES if math.comb(dim + d, d) <= MOST_CONTROL_FUNCTIONS), None
    )
    if degree is None:
        return None
    return primal.policy_values(
        model,
        policy,
        primal.monomials(model, degree),
        samples=CONTROL_VISITS,
        every=STEPS_BETWEEN_CONTROL_VISITS,
        seed=seed,
    )


def duel(search: Search, challenger: Member) -> Verdict:
    """The challenger against the best policy so far."""
    best = search.incumbent
    if challenger.run.exact and best.run.exact:
        return _exact_verdict(search, challenger.run, best.run)
    # of two quick policies many more steps say more about the difference than values that are
    # fitted to each of them, unless these are quick too
    quick = all(pace(search, m.candidate) == QUICK_PACE for m in (challenger, best))
    if not quick or all(_loop(m.policy) for m in (challenger, best)):
        challenger = controlled(search, challenger)
        best = controlled(search, best)
    controls = [m.control for m in (challenger, best) if m.control is not None]
    if not controls:
        control = None
    else:
        control = (controls[0], controls[-1])
    slower = min(
        pace(search, m.candidate, h)
        for m, h in zip((challenger, best), control or (None, None), strict=True)
    )
    looks = [
        int(n * slower)
        for n in (DUEL_LOOKS_STEPS if slower < QUICK_PACE else (*DUEL_LOOKS_STEPS, LAST_LOOK_STEPS))
    ]
    for k, steps in enumerate(looks):
        found = compare(
            search.model,
            challenger.policy,
            best.policy,
            search.criterion,
            steps=max(steps, 2 * least_steps(search)),
            seed=search.fresh(Place.DUEL + k),
            confidence=DUEL_CONFIDENCE,
            control=control,
        )
        go_on(found.first, found.second)
        last = k == len(looks) - 1 or time_is_over()
        verdict = _verdict(search, found, last)
        hopeless = (
            found.difference.lower > -WORTHWHILE_GAIN_SHARE * abs(found.second.cost)
            and not search.limits
        )
        if verdict.won or hopeless or found.status is Status.UNSTABLE or time_is_over():
            break
    return verdict


def _exact_verdict(search: Search, new: Evaluation, old: Evaluation) -> Verdict:
    """Two costs that are known exactly: the lower one wins, where limits are kept."""
    gain = Interval(old.cost - new.cost, old.lower - new.upper, old.upper - new.lower, 1.0)
    if new.excess(search.limits) > 0:
        return Verdict(False, gain, new)
    if old.excess(search.limits) > 0:
        return Verdict(True, gain, new)
    return Verdict(gain.lower > 0, gain, new)


def _verdict(search: Search, found: Comparison, last: bool) -> Verdict:
    """The challenger wins by its cost, or because it keeps limits that the other one breaks for
    sure.

    A look that is too short to forget the start cannot make it win, unless there is no longer one.
    """
    d = found.difference
    gain = Interval(-d.value, -d.upper, -d.lower, d.confidence)
    if not math.isfinite(found.first.cost) or (found.status is Status.TOO_SHORT and not last):
        return Verdict(False, gain, found.first)
    keeps = found.first.excess(search.limits) == 0
    if not math.isfinite(found.second.cost) or any(
        found.second.breaks(limit) for limit in search.limits
    ):
        return Verdict(keeps, gain, found.first)
    return Verdict(bool(keeps and d.upper < 0), gain, found.first)
