"""The dual program as a method: values from the symmetric program, and a search over their weights.

*A round* (`dual/symmetric/`). The best policy so far, with some of its actions drawn at random, is
the reference; its visits are few thousand, far apart. Outposts are states that random actions lead
to, and those that candidates of earlier rounds went to, where values would otherwise be anything.
For several distances from the reference the program gives weights w'. With w the weights that the
best policy is greedy for, if it is, candidates are greedy for Ψ(w + t(w' − w)), t from a small
number to 1: a whole step uses values where they were not fitted, a part of one seldom does. All are
tried on common random numbers beside the best, with their own values as control
(`search/trials.py`), and the cheapest is the next reference.

*Jams.* A greedy policy may do well for long and then, once, come to a state that it does not leave.
So no candidate is taken that does not come back: it is started at outposts, beside the best policy,
and after a while nowhere may it still pay more than that one does anywhere, by half. Where it does
not come back from is an outpost of the next round.

*A search* goes on from there in the directions of w that change decisions most
(`directions.py`), by the evolution strategy of `policy_search.py`, some trajectories beginning at
outposts, so that a policy which stays there is seen to.

Nothing is listed but the next states of visited ones.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from dualplan.core.deadlines import deadline, until
from dualplan.core.errors import OutOfTimeError
from dualplan.core.streams import DualWord, Place, own_seed
from dualplan.core.threads import cores
from dualplan.core.types import Floats, Ints
from dualplan.dual import symmetric
from dualplan.dual.symmetric import EntropySolution, Outposts, Reference
from dualplan.evaluation.visits import Visits, visited, visited_from
from dualplan.models.criteria import Discounted
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.mixed import Mixed
from dualplan.policies.tables import random_policy
from dualplan.search.contract import Candidate, Search
from dualplan.search.dual_simulated import simulated_rounds
from dualplan.search.families import Family
from dualplan.search.policy_search import propose
from dualplan.search.trials import Budget, late_costs, make_trials
from dualplan.values.basis import Basis, LinearValues

ATTEMPTS = 8  # each goes on from the best policy, with outposts and random numbers of its own
# functions of states and knots of each reading, by size
FUNCTIONS_BY_SIZE = (300, 300, 400)
KNOTS_BY_SIZE = (3, 3, 4)
EXPLORING_SHARE = 0.1  # of the reference's actions that are drawn at random
FAR_EXPLORING_SHARE = 0.5  # and of the policy that leads to outposts
REFERENCE_VISITS = 4_500
MOST_REFERENCE_NUMBERS = 2**25  # differences of functions that are held, at most
STEPS_BETWEEN_REFERENCE_VISITS = 500
OUTPOST_STARTS = 160  # outposts from which the way back is followed
VISITS_OF_A_RETURN = 8  # states on each way
STEPS_OF_A_RETURN = 2_000
STEPS_BETWEEN_RANDOM_VISITS = 20  # of random actions: these lead away quickly
POOL_VISITS = 1_000  # states that a candidate visits, and of how many candidates they are kept
POOL_PARTS = 8
STEPS_BETWEEN_POOL_VISITS = 100
FIRST_DISTANCES = (0.3, 0.6, 1.2)  # KL from the reference, where there are no weights to go on from
DISTANCES = (0.3, 1.0)
STEP_PARTS = (0.06, 0.12, 0.25, 0.5, 1.0)  # t
TRIED_STEPS = 2**20  # simulated steps of a candidate
ROUND_TIME_SHARE = 0.12  # of the time, that the trials of a round may take
REFERENCE_TIME_SHARE = 0.04  # and the visits of its reference
MOST_ROUNDS = 12
IDLE_ROUNDS = 2  # rounds without a gain that end them
SEARCH_TIME_SHARE = 0.4  # of the time that is kept for the search
SEARCHED_STEPS = 50_000_000  # of the search, where there is no end of time
SEARCH_SCALE = 0.1  # of a direction: the part of typical differences by which decisions differ
RETURN_STARTS = 48  # outposts from which a policy must come back
# steps in which it does, and for which it is watched then; the part of the time that this takes
RETURN_STEPS = 2**16
RETURN_TIME_SHARE = 0.03
RETURN_RESERVE_SHARE = 0.3  # of what is left, when a search begins, to watch what it found
MOST_RETURNING = 3  # candidates of a round that are watched
JAM_SLACK = 1e-9
JAM_FACTOR = 1.5  # of the largest that the best policy pays then
TAKEN_BACK_PARTS = (1.0, 0.5, 0.25)  # of what the search found, where that does not come back
COMPILING_STEPS = 2**8
PACE_STEPS = 2**14  # by which the pace of greedy policies is known
FEWEST_RETURN_STEPS = 2**10
FEWEST_STEPS = 2**13


@dataclass(frozen=True)
class DualProgram:
    """Greedy for values of the symmetric dual program, and for others near them."""

    name: str = "dual"
    elastic: bool = True
    sizes: int = ATTEMPTS
    grows: float = 1.0
    needs: str = "no limits"

    def leads(self, search: Search) -> bool:
        """On all models but networks, for which indices are searched in less time."""
        return not isinstance(search.model, QueueingNetwork)

    def applies(self, search: Search) -> bool:
        """Wherever there are none; side constraints are not in this program."""
        return not search.limits

    def propose(self, search: Search, size: int) -> list[Candidate]:
        """The best of all rounds, and what a search found from there."""
        if not search.listed:
            return simulated_rounds(search)
        return _Rounds(search, size).candidates()


@dataclass(eq=False)
class _Rounds:
    """Rounds from the best policy of a search on.

    `best` is the policy of the reference and `cost` what it costs; `greedy` are the best values so
    far, `pool` the states that candidates visited.
    """

    search: Search
    size: int
    best: Policy = field(init=False)
    cost: float = field(init=False)
    greedy: GreedyPolicy | None = None
    basis: Basis | None = None
    reference: Reference | None = None
    far: Ints | None = None
    last: Ints = field(init=False)
    pool: list[Ints] = field(default_factory=list)
    pace: float = math.inf  # steps a second of greedy policies
    highest: float | None = None  # that the best policy pays some time after it was at an outpost

    def __post_init__(self) -> None:
        member = self.search.incumbent
        self.model = self.search.model
        self.criterion = self.search.criterion
        self.best = member.policy
        self.cost = member.run.cost
        self.seed = self.search.fresh(Place.PROPOSAL)
        self.clock = deadline()
        self.allowed = self.clock.left
        if _searchable(self.best):
            assert isinstance(self.best, GreedyPolicy)
            self.greedy = self.best
            self.basis = _linear(self.best).basis

    def candidates(self) -> list[Candidate]:
        """What the rounds and the search found; what there is when the time is over."""
        found: list[Candidate] = []
        try:
            self._all_rounds()
        except OutOfTimeError:
            if self.greedy is None:
                raise
        if self.greedy is None:
            return found
        if self.greedy is not self.search.incumbent.policy:
            found.append(self._candidate(self.greedy, "dual"))
        if self.reference is not None and self.clock.left > 0:
            with suppress(OutOfTimeError):
                searched = self._searched(self.greedy, self.reference)
                if searched is not None:
                    found.append(self._candidate(searched, "dual, searched"))
        return found

    def _candidate(self, policy: GreedyPolicy, source: str) -> Candidate:
        values = _linear(policy)
        return Candidate(policy, f"{source}, {len(values.basis)} functions", values)

    def _all_rounds(self) -> None:
        idle = 0
        for k in range(MOST_ROUNDS):
            if self.clock.left < SEARCH_TIME_SHARE * self.allowed and k > 0:
                break
            gained = self._round(own_seed(self.seed, DualWord.ROUND + k))
            idle = 0 if gained else idle + 1
            if idle == IDLE_ROUNDS:
                break

    # -- a round -----------------------------------------------------------------------------------

    def _round(self, seed: int) -> bool:
        """Whether another policy is the best now."""
        explored = Mixed(
            [self.best, random_policy(self.model)], [1 - EXPLORING_SHARE, EXPLORING_SHARE]
        )
        seen = self._visits(explored, own_seed(seed, DualWord.REFERENCE))
        self.far = self._outposts(seed)
        ways = visited_from(
            self.model,
            self.best,
            self.far,
            samples=VISITS_OF_A_RETURN,
            seed=own_seed(seed, DualWord.RETURNS),
            every=max(
                1, self._steps_apart(self.best) * STEPS_OF_A_RETURN // (500 * VISITS_OF_A_RETURN)
            ),
        )
        if self.basis is None:
            self.basis = symmetric.state_functions(
                self.model,
                np.concatenate([seen, ways]),
                FUNCTIONS_BY_SIZE[min(self.size, len(FUNCTIONS_BY_SIZE) - 1)],
                knots=KNOTS_BY_SIZE[min(self.size, len(KNOTS_BY_SIZE) - 1)],
            )
        room = MOST_REFERENCE_NUMBERS // (len(self.basis) * len(self.model.actions))
        seen = seen[: max(1, room)]
        self.reference = symmetric.make_reference(self.basis, seen, explored, self.criterion)
        outposts = self._equations(ways[: max(1, room)])
        tried = self._steps_from(self.reference, outposts)
        if math.isinf(self.pace):
            self._measure_pace(tried[-1], seed)
        self._remember(tried[-1], seed)
        return self._choose(tried, own_seed(seed, DualWord.TRIALS))

    def _steps_apart(self, policy: Policy) -> int:
        """Steps between two visits: fewer where simulation is slow."""
        run = self.search.incumbent.run
        pace = run.steps / max(run.seconds, 1e-3)
        if isinstance(policy, GreedyPolicy) and math.isfinite(self.pace):
            pace = self.pace
        if not math.isfinite(self.allowed) or not math.isfinite(pace) or pace <= 0:
            return STEPS_BETWEEN_REFERENCE_VISITS
        room = REFERENCE_TIME_SHARE * self.allowed * pace / REFERENCE_VISITS
        return max(1, min(STEPS_BETWEEN_REFERENCE_VISITS, _power_of_two(room)))

    def _visits(self, policy: Policy, seed: int) -> Ints:
        """Of the stationary law, or of the discounted one."""
        every = self._steps_apart(self.best)
        if isinstance(self.criterion, Discounted):
            samples = every * REFERENCE_VISITS
            law = Visits(self.model, policy, self.criterion, samples, seed)
            return law.draw(REFERENCE_VISITS, seed)
        return visited(self.model, policy, samples=REFERENCE_VISITS, seed=seed, every=every)

    def _outposts(self, seed: int) -> Ints:
        """States that random actions lead to, and that candidates went to."""
        own = own_seed(seed, DualWord.OUTPOSTS)
        chance = random_policy(self.model)
        half = Mixed([self.best, chance], [1 - FAR_EXPLORING_SHARE, FAR_EXPLORING_SHARE])
        every = STEPS_BETWEEN_RANDOM_VISITS
        found = [
            visited(self.model, chance, samples=OUTPOST_STARTS, seed=own, every=every),
            visited(self.model, half, samples=OUTPOST_STARTS, seed=own, every=every),
        ]
        rng = np.random.default_rng(own)
        apart = np.concatenate(found)
        if not self.pool:
            return apart[rng.choice(len(apart), OUTPOST_STARTS)]
        known = np.concatenate(self.pool)
        half_of_them = OUTPOST_STARTS // 2
        return np.concatenate(
            [
                apart[rng.choice(len(apart), half_of_them)],
                known[rng.choice(len(known), half_of_them)],
            ]
        )

    def _equations(self, states: Ints) -> Outposts | None:
        """The best policy's own, at outposts and on the way back; none where its cost is not
        known.
        """
        assert self.basis is not None
        if not math.isfinite(self.cost):
            return None
        return symmetric.make_outposts(
            self.basis, states, self.best, self.criterion, cost=self.cost
        )

    def _steps_from(self, reference: Reference, outposts: Outposts | None) -> list[GreedyPolicy]:
        """Candidates of all distances, the one that goes farthest last."""
        near: EntropySolution | None = None
        tried: list[GreedyPolicy] = []
        for distance in FIRST_DISTANCES if self.greedy is None else DISTANCES:
            near = symmetric.solve_at_distance(reference, distance, outposts=outposts, near=near)
            tried += [self._greedy_for(w) for w in self._along(near.values.weights)]
        return tried

    def _along(self, weights: Floats) -> list[Floats]:
        """From the weights so far to new ones."""
        if self.greedy is None:
            return [weights]
        now = _linear(self.greedy).weights
        return [now + t * (weights - now) for t in STEP_PARTS]

    def _greedy_for(self, weights: Floats) -> GreedyPolicy:
        assert self.basis is not None
        values = LinearValues(self.basis, weights)
        return GreedyPolicy(self.model, values, self.criterion.gamma, name="dual")

    def _remember(self, policy: GreedyPolicy, seed: int) -> None:
        """Where a candidate goes that was not judged yet."""
        seen = visited(
            self.model,
            policy,
            samples=POOL_VISITS,
            seed=own_seed(seed, DualWord.POOL),
            every=min(STEPS_BETWEEN_POOL_VISITS, self._steps_apart(policy)),
        )
        self.pool = [*self.pool, seen][-POOL_PARTS:]

    def _choose(self, tried: list[GreedyPolicy], seed: int) -> bool:
        """Try all beside the best values so far; whether one of them is better."""
        before = self.greedy
        policies = [*tried, *([] if before is None else [before])]
        costs = self._costs(policies, seed)
        highest = self._highest(seed)
        for k in np.argsort(costs, kind="stable")[:MOST_RETURNING]:
            if policies[k] is before:
                return False
            if math.isfinite(costs[k]) and self._comes_back(policies[k], highest, seed):
                self.greedy = policies[k]
                if self.best is before or costs[k] < self.cost:
                    self.best = policies[k]
                    self.cost = float(costs[k])
                    self.highest = None
                return True
        return False

    def _highest(self, seed: int) -> float:
        """What the best policy pays at most, some time after it was at an outpost."""
        if self.highest is None:
            self.highest = float(self._late_costs(self.best, seed).max())
        return self.highest

    def _comes_back(self, policy: GreedyPolicy, highest: float, seed: int) -> bool:
        """Whether it pays nowhere much more than the best policy, some time after it was at an
        outpost; where it does is an outpost from now on.
        """
        late = self._late_costs(policy, seed)
        stays = late > JAM_FACTOR * max(highest, 0.0) + JAM_SLACK
        if not stays.any():
            return True
        self.pool = [*self.pool, self.last[stays]][-POOL_PARTS:]
        return False

    def _late_costs(self, policy: Policy, seed: int) -> Floats:
        """What each trajectory from outposts pays a step when it had time to come back; `last` are
        the states where they are then.
        """
        if isinstance(self.criterion, Discounted):
            return np.zeros(1)
        assert self.far is not None
        starts = self.far[:: max(1, len(self.far) // RETURN_STARTS)]
        steps = float(RETURN_STEPS)
        if math.isfinite(self.allowed) and math.isfinite(self.pace):
            steps = min(steps, RETURN_TIME_SHARE * self.allowed * self.pace / (2 * len(starts)))
        each = max(FEWEST_RETURN_STEPS, _power_of_two(steps))
        late, self.last = late_costs(policy, starts, each, own_seed(seed, DualWord.LATE))
        return late

    def _costs(self, policies: list[GreedyPolicy], seed: int) -> Floats:
        """On common random numbers, as long as the time allows."""
        steps = TRIED_STEPS * len(policies)
        if math.isfinite(self.allowed):
            steps = min(steps, int(ROUND_TIME_SHARE * self.allowed * self.pace))
        each = max(FEWEST_STEPS, _power_of_two(steps / len(policies)))
        budget = Budget(each * len(policies), len(policies), seed, None, 1, self.far)
        return make_trials(policies[-1], self.criterion, budget).costs(policies)

    def _measure_pace(self, policy: GreedyPolicy, seed: int) -> None:
        """Steps a second of all threads, once everything is compiled."""
        several = [policy] * cores()
        for steps in (COMPILING_STEPS, PACE_STEPS):
            budget = Budget(steps * len(several), len(several), seed, None, 1)
            started = time.monotonic()
            trials = make_trials(policy, self.criterion, budget)
            trials.costs(several)
            self.pace = trials.steps / max(time.monotonic() - started, 1e-3)

    # -- the search --------------------------------------------------------------------------------

    def _searched(self, policy: GreedyPolicy, reference: Reference) -> GreedyPolicy | None:
        """In the directions that change decisions; none where what is found does not come back."""
        values = _linear(policy)
        directions = symmetric.decision_directions(reference, values)
        count = directions.shape[1]
        family = Family(
            "greedy for Ψw along decisions",
            lambda z: self._greedy_for(values.weights + directions @ z),
            np.zeros(count),
            np.full(count, SEARCH_SCALE),
            outposts=self.far,
        )
        seed = own_seed(self.seed, DualWord.SEARCH)
        highest = self._highest(seed)
        allowed = (1 - RETURN_RESERVE_SHARE) * self.clock.left  # or what is found is not watched
        steps = SEARCHED_STEPS
        if math.isfinite(self.allowed) and math.isfinite(self.pace):
            steps = max(FEWEST_STEPS, int(self.pace * allowed))
        with until(self.clock.part(allowed)):
            found = propose(family, self.criterion, steps=steps, seed=seed)
        for part in TAKEN_BACK_PARTS:
            searched = self._greedy_for(values.weights + directions @ (part * found.average))
            if self._comes_back(searched, highest, seed):
                return searched
        return None


def _linear(policy: GreedyPolicy) -> LinearValues:
    """The values that it is greedy for."""
    assert isinstance(policy.values, LinearValues)
    return policy.values


def _searchable(policy: Policy) -> bool:
    """Whether it is greedy for compiled Ψw and nothing else."""
    return (
        isinstance(policy, GreedyPolicy)
        and isinstance(policy.values, LinearValues)
        and policy.values.basis.compiled
        and policy.within is None
        and not policy.prices.size
    )


def _power_of_two(number: float) -> int:
    """The largest that is no larger."""
    return int(2 ** math.floor(math.log2(max(number, 1.0))))
