"""The loop: propose, judge, keep what is better; at any time there is a best policy, and it never
gets worse.

With limits the search begins without them, so that a limit that does not bind changes nothing. They
count once a step has gained, or a quarter of the time has passed, and the best policy may exceed
one: the best of the portfolio that keeps them takes its place, and all steps are taken again.

Begin with a portfolio: the policies given, or the model's heuristics. Where the states can be
listed in the time, the exact answer comes next (`listed.py`); if it is optimal, that is all. Then
steps in turn
(`steps.py`). Each proposes candidates; they are screened, and the best of them meets the best
policy so far in a duel (`duels.py`). It takes its place only if the paired interval of the
difference says so. Candidates that did not win stay in the portfolio if they come near, since other
steps combine its policies. Steps take turns, swift ones before slow ones, each in its next size
when its turn comes again, and all are worth another turn once the best policy is another one. Those
that pay most often are taken in all their sizes before the others.

It ends when the gap that was asked for is proved, when no step in its largest size gains, or when
the time is spent. Time decides only which steps are still taken: each of them does the same work
whatever the clock says, with random numbers keyed by its number, so that a run with as many
attempts finds the same policy. How long it is evaluated in the end, and how good a bound is proved,
is a matter of the time that is left.

In the end the best policy is evaluated on random numbers that nothing was chosen by (exactly where
states are few), and what time is left goes into a lower bound on what any policy costs
(`primal/best_bound.py`).
"""

from __future__ import annotations

import math
import time as timer
from collections.abc import Callable, Sequence
from dataclasses import replace

from dualplan._kernels.compiler import compiling
from dualplan.core.deadlines import until
from dualplan.core.errors import DualplanError, InputError, MissingError, OutOfTimeError
from dualplan.core.intervals import Interval
from dualplan.core.runs import Run
from dualplan.core.status import PROVED, UNKNOWN, Status
from dualplan.core.streams import Place
from dualplan.evaluation.compared import Compared
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.lower_bounds import LowerBound, largest_gap
from dualplan.evaluation.results import Evaluation
from dualplan.policies.contract import Policy
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.saved import POLICY_FILE, load_policy, save_policy
from dualplan.policies.tables import random_policy, tabulated
from dualplan.primal.best_bound import best_bound
from dualplan.search.contract import (
    JUDGING_TIME_SHARE,
    Attempt,
    Candidate,
    Member,
    Search,
    SearchResult,
    Step,
)
from dualplan.search.duels import BEGINNING_RELATIVE_WIDTH, BEGINNING_STEPS, duel, screen
from dualplan.search.last_evaluation import FINAL_EVALUATION_STEPS, beside_exact, last_evaluation
from dualplan.search.limited.lower_lines import priced_bound
from dualplan.search.listed import EXACT, OPTIMAL_GAP, solve_listed
from dualplan.search.steps import swiftest_first
from dualplan.values.functions import StateFunction

SAVED_SOURCE = "saved"  # the source of the best policy of a run that goes on
PORTFOLIO_SIZE = 8  # policies that are kept
PORTFOLIO_COST_SHARE = 0.3  # of the best cost: candidates that are not this near are not kept
BEGINNING_TIME_SHARE = 0.15  # of the time, that the policies to begin with take at most
PROPOSING_TIME_SHARE = 0.6  # of what is left, that a step may propose for; the rest is to judge it
SHARED_PROPOSING_TIME_SHARE = 0.45  # the same, where other steps are waiting for their turn
LEAST_BOUND_SECONDS = 0.5
# up to which steps begin with their smallest size
SHORT_TIME_SECONDS = 30.0
UNTRIED_STEP_TIME_SHARE = 0.05  # of the time must be left for a step that was not tried yet
ELASTIC_TIME_FACTOR = 2.0  # times that, for a step that does less where time is short
# seconds of the last evaluation of a search that was interrupted
INTERRUPTED_EVALUATION_SECONDS = 2.0
# of the time, after which limits count even if no step has gained
FREE_TIME_SHARE = 0.25
# of the time, for a run that tells whether a policy keeps a limit, where a duel did not
LIMITS_TIME_SHARE = 0.03
LEAST_LIMITS_SECONDS = 0.2
# how often the last evaluation may find that the best policy is not the best, and the part of what
# is left that the evaluation of another takes
MOST_DEMOTIONS = 3
DEMOTED_TIME_SHARE = 0.5
PRICED_BOUND_TIME_SHARE = 0.6  # of that of the bound, for one with prices on limits
NO_BOUND = LowerBound(-math.inf, UNKNOWN, "", ())

Progress = Callable[[int, int, str], None]


def _interval(run: Evaluation) -> str:
    return f"{run.cost:.5g} ± {(run.upper - run.lower) / 2:.2g}"


def _verdict(found: Attempt) -> str:
    """An attempt in words."""
    if found.note:
        return f"{found.step} (size {found.size}) does not apply: {found.note}"
    if found.gain is None:
        return f"{found.step} (size {found.size}) made no policy that can be simulated"
    if found.accepted:
        word = "gained"
    else:
        word = "no gain for sure, difference"
    return (
        f"{found.step} (size {found.size}): {word} {found.gain.value:.3g} "
        f"[{found.gain.lower:.3g}, {found.gain.upper:.3g}], {found.seconds:.1f} s"
    )


def _gain(before: Evaluation, after: Evaluation) -> Interval:
    """What an optimal policy saves, by its exact cost."""
    confidence = min(before.confidence, after.confidence)
    return Interval(
        before.cost - after.cost, before.lower - after.upper, before.upper - after.lower, confidence
    )


class Loop:
    """A search and its folder."""

    def __init__(self, search: Search, run: Run | None, progress: Progress) -> None:
        self.search = search
        self.clock = search.clock
        self.gap = search.wanted_gap
        self.run = run
        self.progress = progress
        self.start: tuple[Member, ...] = ()
        self.beside: tuple[Compared, ...] = ()  # the same, against the best policy in the end
        self.bound: LowerBound | None = None
        self.potential: StateFunction | None = None  # of sweeps over all states that were not done
        self.cut_off = False  # whether a step had too little time
        self.expected: dict[str, float] = {}  # seconds that the next attempt of a step may take

    # -- the portfolio -----------------------------------------------------------------------------

    def begin(self, policies: list[Policy]) -> None:
        """Screen what there is; the cheapest is the best policy so far."""
        search = self.search
        given = [Candidate(tabulated(policy), "given") for policy in policies]
        given += [
            Candidate(search.model.policy(name), "heuristic")
            for name in ([] if given else search.model.policies)
        ]
        saved = self._saved()
        given = [
            one for one in given if all(one.policy.digest != other.policy.digest for other in saved)
        ]
        self.tell("simulating the policies to begin with")
        begin = [*saved, *given] or [Candidate(random_policy(search.model), "random")]
        with until(self.clock.part(BEGINNING_TIME_SHARE * self.clock.allowed)):
            found = screen(
                search,
                begin,
                BEGINNING_STEPS,
                relative_tol=BEGINNING_RELATIVE_WIDTH,
                place=Place.BEGINNING,
            )
        # if not even one was simulated in that time, the first, however long it takes
        self.start = tuple(found or screen(search, begin[:1], place=Place.BEGINNING))
        if not self.start:
            raise InputError(
                "none of the policies to begin with can be simulated on model "
                f"{search.model.name!r}."
            )
        # the best policy of a run that goes on stays the best until another one beats it in a duel
        before = [
            m
            for m in self.start
            if m.candidate.source == SAVED_SOURCE and math.isfinite(m.run.cost)
        ]
        search.members = list(self.start)
        search.best = [*before, self.start[0]][0]
        self.keep()

    def _saved(self) -> list[Candidate]:
        """The best policy of a run that goes on."""
        if self.run is None:
            path = None
        else:
            path = self.run.folder / POLICY_FILE
        if path is None or not path.exists():
            return []
        policy = load_policy(path, self.search.model)
        return [
            Candidate(
                policy, SAVED_SOURCE, policy.values if isinstance(policy, GreedyPolicy) else None
            )
        ]

    def keep(self) -> None:
        """Save the best policy, if there is a folder and the policy is no function of the user."""
        if self.run is not None:
            path = self.run.folder / POLICY_FILE
            try:
                save_policy(self.search.incumbent.policy, path)
            except MissingError as error:  # better none than an older one
                path.unlink(missing_ok=True)
                self.run.trace({"not saved": str(error)})

    def tell(self, words: str) -> None:
        """Say where the search stands: the best cost so far, how often it got better, and what is
        being done.
        """
        best = self.search.best
        tried = len(self.search.attempts)
        if best is None:
            cost = ""
        else:
            cost = f"best {_interval(best.run)}, "
        if tried:
            steps = f"{self.gains} of {tried} steps gained, "
        else:
            steps = ""
        self.progress(int(self.clock.spent), max(1, int(self.clock.allowed)), cost + steps + words)

    # -- the exact answer --------------------------------------------------------------------------

    def exactly(self) -> bool:
        """Sweep over all states; whether that gave the optimum."""
        search = self.search
        started = timer.monotonic()
        self.tell("sweeping over all states")
        found = solve_listed(search)
        if found is None:
            note = "no policy that keeps the limits was found over all states"
            search.attempts.append(Attempt(EXACT, 0, 0, note=note))
            return False
        self.bound = found.bound
        self.potential = found.potential
        attempt = Attempt(EXACT, 0, 1, policy=found.candidate.source)
        if found.evaluation is None:
            attempt = self._judge(screen(search, [found.candidate])[0], attempt)
        else:
            attempt = replace(
                attempt,
                cost=found.evaluation.cost,
                gain=_gain(search.incumbent.run, found.evaluation),
                accepted=True,
            )
            search.best = Member(found.candidate, found.evaluation)
            self.keep()
        self._noted(replace(attempt, seconds=timer.monotonic() - started))
        return found.done

    def end_exact(self) -> SearchResult:
        """What is known over all states needs no further evaluation, and no other bound."""
        status = Status.OPTIMAL if self.gap is None else Status.GAP
        found = self.search.incumbent.run
        self.tell("simulating the policies to begin with beside it")
        self.beside = beside_exact(self.search, self.start, found)
        return self._ended(status, found, NO_BOUND)

    # -- rounds ------------------------------------------------------------------------------------

    def rounds(self, steps: list[Step]) -> Status:
        """Steps in turn, each in its next size, until none is worth another attempt; all of them
        again, under the limits, once these bind.
        """
        applicable = [step for step in steps if step.applies(self.search)]
        if steps and not applicable and self.search.limits != self.search.wanted_limits:
            self._bind_limits()
            return self.rounds(steps)
        usable = swiftest_first(applicable, self.search)
        smallest = 0 if self.clock.allowed <= SHORT_TIME_SECONDS else 1
        size = {step.name: min(smallest, step.sizes - 1) for step in usable}
        tried: dict[
            str, tuple[int, int]
        ] = {}  # the last size, and how many gains there had been before

        def worth(step: Step) -> bool:
            return tried.get(step.name) != (size[step.name], self.gains)

        while any(map(worth, usable)):
            ready = [step for step in usable if worth(step) and self.affordable(step)]
            if not ready:
                break
            # what pays most often comes first, in all its sizes; the others once that is done
            first = [step for step in ready if step.leads(self.search)] or ready
            for k, step in enumerate(first):
                if not self.affordable(step):
                    continue
                if self.reached():
                    return Status.GAP
                tried[step.name] = (size[step.name], self.gains)
                gained = self.attempt(step, size[step.name], waiting=len(first) - k - 1)
                late = self.clock.spent > FREE_TIME_SHARE * self.clock.allowed
                if (gained or late) and self.mind_limits():
                    return self.rounds(steps)
                size[step.name] = min(size[step.name] + 1, step.sizes - 1)
        if self.mind_limits():
            return self.rounds(steps)
        if any(map(worth, usable)):
            return Status.TIME
        # sweeps or steps that the clock stopped would go on in more time
        if self.potential is not None or self.cut_off:
            return Status.TIME
        return Status.SETTLED

    def mind_limits(self) -> bool:
        """Let the limits count from now on if the best policy may exceed one; whether that is
        new.
        """
        search = self.search
        if search.limits == search.wanted_limits or self._keeps_limits(search.incumbent):
            return False
        self._bind_limits()
        return True

    def _keeps_limits(self, member: Member) -> bool:
        """Whether a policy keeps what was asked for; where its run cannot tell, a longer one."""
        limits = self.search.wanted_limits
        run = member.run
        open_question = run.excess(limits) > 0 and not any(map(run.breaks, limits))
        if open_question and not run.exact:
            judge = Judge(
                steps=FINAL_EVALUATION_STEPS,
                seed=self.search.fresh(Place.LIMITS),
                time=max(LIMITS_TIME_SHARE * self.clock.allowed, LEAST_LIMITS_SECONDS),
            )
            run = judge(self.search.model, member.policy, self.search.criterion)
        return run.excess(limits) == 0

    def _bind_limits(self) -> None:
        """Judge by the limits: the best of the portfolio under them takes the first place."""
        search = self.search
        search.limits = search.wanted_limits
        search.members.sort(key=lambda m: m.rank(search.limits))
        search.best = search.members[0]
        self.keep()

    @property
    def gains(self) -> int:
        """How often there was a new best policy."""
        return sum(attempt.accepted for attempt in self.search.attempts)

    def affordable(self, step: Step) -> bool:
        """Whether there is time for the step, as far as its last attempt tells.

        The first of all is always taken, and one that does less where time is short if there is
        some.
        """
        least = UNTRIED_STEP_TIME_SHARE * self.clock.allowed
        if step.elastic:
            needed = ELASTIC_TIME_FACTOR * least
        else:
            needed = self.expected.get(step.name, least)
        return not self.search.attempts or needed <= self.search.left

    def reached(self) -> bool:
        """Whether the gap that was asked for is proved, by the last run of the best policy."""
        if self.gap is None and self.bound is None:
            return False
        if self.bound is None:
            self.tell("a first lower bound")
            self.bound = self._bound(0.1 * self.clock.allowed)
        run = self.search.incumbent.run
        proved = self.bound.kind == PROVED
        wanted = OPTIMAL_GAP if self.gap is None else self.gap
        small = largest_gap(run.lower, run.upper, self.bound.value) <= wanted
        return small and proved and run.excess(self.search.wanted_limits) == 0

    def attempt(self, step: Step, size: int, waiting: int = 0) -> bool:
        """Let a step propose, and judge what it does; whether there is a new best policy.

        Where others are waiting for their turn, it has less of the time that is left.
        """
        search = self.search
        started = timer.monotonic()
        self.tell(step.name)
        with compiling() as compiled:
            found = Attempt(step.name, size, 0)
            proposed = started
            try:
                most = PROPOSING_TIME_SHARE if waiting == 0 else SHARED_PROPOSING_TIME_SHARE
                with until(self.clock.part(most * search.left)):
                    candidates = step.propose(search, size)
                proposed = timer.monotonic() - compiled()
                self.tell(f"{step.name}: judging {len(candidates)} policies")
                found = replace(found, made=len(candidates))
                with until(self.clock.part(search.left)):
                    members = screen(search, candidates)
                    if members:
                        found = self._judge(members[0], found)
                        self._remember(members)
            except DualplanError as error:
                # it is not for this model after all, or had too little time, and the others go on
                found = replace(found, note=str(error))
                self.cut_off = self.cut_off or isinstance(error, OutOfTimeError)
            judged = timer.monotonic() - compiled()
        found = replace(found, seconds=timer.monotonic() - started)
        if size + 1 < step.sizes:
            grows = step.grows
        else:
            grows = 1.0
        self.expected[step.name] = grows * (proposed - started) + judged - proposed
        self._noted(found)
        return found.accepted

    def _noted(self, found: Attempt) -> None:
        self.search.attempts.append(found)
        if self.run is not None:
            self.run.trace(found.to_json())
        self.tell(_verdict(found))

    def _judge(self, best: Member, found: Attempt) -> Attempt:
        search = self.search
        verdict = duel(search, best)
        if verdict.won:
            search.best = Member(best.candidate, verdict.run, best.control)
            self.keep()
        return replace(
            found,
            policy=best.candidate.source,
            cost=verdict.run.cost,
            gain=verdict.gain,
            accepted=verdict.won,
        )

    def _remember(self, members: Sequence[Member]) -> None:
        """Keep the best of each step in the portfolio, if it comes near the best policy."""
        search = self.search
        cost = self.search.incumbent.run.cost
        known = {m.policy.digest for m in search.members}
        near = [
            m
            for m in members[:2]
            if m.run.cost <= cost + PORTFOLIO_COST_SHARE * abs(cost)
            and m.policy.digest not in known
        ]
        search.members = sorted([*search.members, *near], key=lambda m: m.rank(search.limits))[
            :PORTFOLIO_SIZE
        ]

    # -- the end -----------------------------------------------------------------------------------

    def search_and_finish(self, steps: list[Step]) -> SearchResult:
        """Take steps, evaluate the best policy afresh, and prove a bound.

        If only that evaluation shows that a limit binds, what time is left is for a search under
        it.
        """
        search = self.search
        status = self.rounds(steps)
        evaluation = self._judged_in_the_end()
        free = search.limits != search.wanted_limits
        if free and evaluation.excess(search.wanted_limits) > 0:
            self._bind_limits()
            status = self.rounds(steps)
            evaluation = self._judged_in_the_end()
        return self.finish(status, evaluation)

    def _judged_in_the_end(self) -> Evaluation:
        """What the best policy costs; where that is for sure more than another of the portfolio
        does, what that one costs, which is the best then.

        A policy can do well for long and then, once, come to where it does not get away from: no
        duel need have seen that.
        """
        self.tell("evaluating the policy")
        allowed = JUDGING_TIME_SHARE * self.clock.allowed
        evaluation = self.final_evaluation(allowed + self.search.left)
        for _ in range(MOST_DEMOTIONS):
            other = self._surely_cheaper(evaluation)
            if other is None:
                break
            self.search.best = other
            self.keep()
            self.tell("it costs more than the search saw: evaluating the next best")
            left = max(DEMOTED_TIME_SHARE * self.clock.left, INTERRUPTED_EVALUATION_SECONDS)
            evaluation = self.final_evaluation(left)
        return evaluation

    def _surely_cheaper(self, evaluation: Evaluation) -> Member | None:
        """The best of the others, by its rank, that costs less by intervals which do not meet."""
        search = self.search
        best = search.incumbent.policy.digest
        others = [
            m
            for m in [*search.members, *self.start]
            if m.policy.digest != best and m.run.upper < evaluation.lower
        ]
        allowed = [m for m in others if m.run.excess(search.limits) == 0]
        search.members = [m for m in search.members if m.policy.digest != best]
        return min(allowed, key=lambda m: m.rank(search.limits), default=None)

    def finish(self, status: Status, evaluation: Evaluation) -> SearchResult:
        """Prove a bound, and put together what was found."""
        if evaluation.status is Status.INTERRUPTED:
            return self._ended(Status.INTERRUPTED, evaluation, NO_BOUND)
        self.tell("a lower bound")
        try:
            bound = self._bound(max(LEAST_BOUND_SECONDS, self.clock.left))
        except KeyboardInterrupt:  # what was found is worth more than what could be proved of it
            return self._ended(Status.INTERRUPTED, evaluation, NO_BOUND)
        return self._ended(status, evaluation, bound)

    def interrupted(self) -> SearchResult:
        """The best policy so far after a short evaluation, with the bound that there is."""
        self.tell("interrupted: a short evaluation of the policy")
        evaluation = self.final_evaluation(INTERRUPTED_EVALUATION_SECONDS, fit=False)
        return self._ended(Status.INTERRUPTED, evaluation, NO_BOUND)

    def final_evaluation(self, seconds: float, fit: bool = True) -> Evaluation:
        """What the best policy costs, and those to begin with beside it, by random numbers that
        nothing was chosen by.

        `seconds` are for a simulation. Without `fit` it is the best policy alone.
        """
        known = last_evaluation(self.search, self.start, seconds, fit)
        self.beside = known.beside
        return known.found

    def _ended(self, status: Status, evaluation: Evaluation, bound: LowerBound) -> SearchResult:
        search = self.search
        best = search.incumbent
        if self.bound is not None and self.bound.value > bound.value:
            bound = self.bound
        result = SearchResult(
            model=search.model,
            criterion=search.criterion,
            policy=best.policy,
            source=best.candidate.source,
            evaluation=evaluation,
            limits=search.wanted_limits,
            start=self.start,
            beside=self.beside,
            attempts=tuple(search.attempts),
            bound=bound,
            wanted_gap=self.gap,
            status=status,
            values=best.candidate.values,
            seed=search.seed,
            seconds=self.clock.spent,
        )
        if result.gap <= OPTIMAL_GAP and self._proves(result):
            result = replace(result, status=Status.OPTIMAL)
        elif result.gap_reached and status not in (Status.INTERRUPTED, Status.OPTIMAL):
            result = replace(result, status=Status.GAP)
        elif status is Status.GAP:  # by the run of the search, but not by the last evaluation
            result = replace(result, status=Status.TIME)
        if self.run is not None:
            self.run.save_result(result.to_json())
        return result

    def _proves(self, result: SearchResult) -> bool:
        """Whether nothing but the gap is left to ask."""
        exact = result.evaluation.exact and result.bound.kind == PROVED
        return exact and not result.bound.assumed and result.kept

    def _bound(self, allowed: float) -> LowerBound:
        """What any policy costs at least; with limits that have prices, any that keeps them."""
        search = self.search
        priced = self._priced_bound(PRICED_BOUND_TIME_SHARE * allowed)
        if priced is not None:
            allowed = (1 - PRICED_BOUND_TIME_SHARE) * allowed
        potentials = [search.incumbent.candidate.values, self.potential]
        free = best_bound(
            search.model, search.criterion, potentials=potentials, time=allowed, seed=search.seed
        )
        if priced is not None and priced.value > free.value:
            return priced
        return free

    def _priced_bound(self, allowed: float) -> LowerBound | None:
        """Lagrange's: what any policy costs by the priced loss, where that is a network's."""
        search = self.search
        if not search.prices or not search.limits:
            return None
        return priced_bound(
            search.model, search.criterion, search.prices, time=allowed, seed=search.seed
        )
