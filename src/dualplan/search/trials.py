"""Costs of many policies on common random numbers: what a search over parameters goes by.

A trial simulates all policies of a generation with the same random numbers from the same states.
The last policy of each is the mean of the search; the next trial starts from the states in which
the mean's own trajectories ended, and goes on in the random stream: no warm-up is paid twice, and
no noise is fitted twice.

*Linear indices of networks* with one event a step walk in a loop of their own
(`_kernels/index_walk.py`), with a control: by `evaluation/simulation/`, ℓ + Ph − h has in the long
run the mean of ℓ, and little variance for h near the bias. Here one h serves all candidates, which
are near the mean: a quadratic function, fitted by least squares (`evaluation/lstd.py`) to states
that the mean visited in the trials before. It does more than to lessen noise. A trial is short, and
a policy that lets queues grow has not paid for them when it ends; with h(x_n) − h(x_0) in the sum,
it has, as far as h tells. The control counts where the mean's own cost varies less with it than
without.

*Policies that are greedy for Ψw* have their own values as control, at no cost: a step that chooses
by ℓ + PΨw knows what the shaped loss is (`_kernels/greedy_walk.py`). Values that are wrong where a
candidate goes would flatter it; one whose trajectories cost more than their shaped losses by far is
taken at its plain cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dualplan._kernels import greedy_walk, index_walk, philox
from dualplan._kernels.layouts import Control
from dualplan.core.deadlines import require_time
from dualplan.core.errors import InputError, MissingError
from dualplan.core.streams import Stream, Word, own_seed
from dualplan.core.threads import in_parallel
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.lstd import MOST_QUADRATIC_CLASSES, loop_values
from dualplan.evaluation.simulation import Chunks, CompiledEngine, Replica
from dualplan.models.criteria import Criterion, Discounted
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import OwnLoop, Policy
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.heuristics.network import LinearIndexPolicy, walks
from dualplan.values.basis import LinearValues
from dualplan.values.contract import ValueCode

TRIAL_REPLICAS = 16  # trajectories of each candidate
DEFAULT_TRIALS = 30  # unless the budget is too small for that
CONTROLLED_TRIALS = 200  # trials where they have a control, and can be shorter
LEAST_TRIAL_STEPS = 2_000  # steps of a trajectory in one trial
WARMING_SHARE = 0.05  # the part that brings the first states
CUT_DISCOUNT = 1e-3  # discounted trajectories are cut where γ^t is so small
# states that it is fitted to, and trials between two fits
TRIAL_CONTROL_VISITS = 10_000
TRIALS_BETWEEN_FITS = 5
FLATTERING_ERRORS = 4.0  # standard errors by which plain costs may exceed shaped ones
OUTPOST_REPLICAS = 4  # trajectories from outposts
OUTPOST_SHARE = 0.1  # of a cost: what they count


@dataclass(frozen=True)
class Budget:
    """Steps of all trials together, policies in each, and at most how many trials (by default as
    the kind says).
    """

    steps: int
    policies: int
    seed: int = 0
    threads: int | None = None
    trials: int | None = None
    outposts: Ints | None = None  # states from which greedy policies are tried, too

    @property
    def warming(self) -> int:
        """Steps of each trajectory before the first trial."""
        return max(int(WARMING_SHARE * self.steps / TRIAL_REPLICAS), 1)

    def cut(self, unit: int, least: int, most: int, share: float = 1.0) -> tuple[int, int]:
        """Trials, and units of work that each policy gets in each of them: so many at least, if
        there is room.
        """
        room = int(share * self.steps) // (self.policies * unit)
        trials = max(1, min(most if self.trials is None else self.trials, room // least))
        return trials, max(1, room // trials)


class LongTrials:
    """Average costs of trajectories from the states where those of the last policy of the last
    trial ended.
    """

    def __init__(self, first: Policy, budget: Budget) -> None:
        self.threads = budget.threads
        self.seed = budget.seed
        self.model = first.model
        self.trials, self.length = budget.cut(
            TRIAL_REPLICAS, LEAST_TRIAL_STEPS, DEFAULT_TRIALS, 1 - WARMING_SHARE
        )
        engine = CompiledEngine(self.model, first, self.seed, False)
        self.replicas: list[Replica] = in_parallel(
            [
                partial(_after, engine, engine.first(k), budget.warming)
                for k in range(TRIAL_REPLICAS)
            ],
            self.threads,
        )
        self.steps = budget.warming * TRIAL_REPLICAS

    def costs(self, policies: Sequence[Policy]) -> Floats:
        """The costs on common random numbers, one for each policy."""
        engines = [CompiledEngine(self.model, policy, self.seed, False) for policy in policies]
        ran = in_parallel([partial(self._run, engine) for engine in engines], self.threads)
        self.steps += len(policies) * TRIAL_REPLICAS * self.length
        self.replicas = [chunks.replica for chunks in ran[-1]]
        return np.array(
            [np.mean([chunks.rows[0, 1] for chunks in row]) / self.length for row in ran]
        )

    def _run(self, engine: CompiledEngine) -> list[Chunks]:
        return [engine.advance(replica, 1, self.length) for replica in self.replicas]


def _after(engine: CompiledEngine, replica: Replica, steps: int) -> Replica:
    return engine.advance(replica, 1, steps).replica


class ManyTrials:
    """Discounted costs of runs from the criterion's starts, cut where the discount is small."""

    def __init__(self, first: Policy, criterion: Discounted, budget: Budget) -> None:
        self.threads = budget.threads
        self.seed = budget.seed
        self.model = first.model
        self.gamma = criterion.gamma
        self.horizon = math.ceil(math.log(CUT_DISCOUNT) / math.log(self.gamma))
        self.trials, self.runs = budget.cut(self.horizon, TRIAL_REPLICAS, DEFAULT_TRIALS)
        self.starts, self.weights = criterion.start_distribution(self.model)
        self.first = 0
        self.steps = 0

    def costs(self, policies: Sequence[Policy]) -> Floats:
        """The costs on common random numbers, one for each policy."""
        engines = [CompiledEngine(self.model, policy, self.seed, False) for policy in policies]
        given = (self.gamma, self.horizon, self.starts, self.weights, self.first, self.runs)
        ran = in_parallel([partial(engine.discounted, *given) for engine in engines], self.threads)
        self.first += self.runs
        self.steps += len(policies) * self.runs * self.horizon
        return np.array([totals.mean() for totals, _ in ran])


class IndexTrials:
    """Average costs of linear indices of a network, as `LongTrials`, with one quadratic control for
    all.
    """

    def __init__(self, first: LinearIndexPolicy, budget: Budget) -> None:
        self.threads = budget.threads
        self.seed = budget.seed
        self.model = first.model
        self.classes = len(first.network.classes)
        self.controlled = self.classes <= MOST_QUADRATIC_CLASSES
        if self.controlled:
            most = CONTROLLED_TRIALS
        else:
            most = DEFAULT_TRIALS
        self.trials, self.length = budget.cut(
            TRIAL_REPLICAS, LEAST_TRIAL_STEPS, most, 1 - WARMING_SHARE
        )
        self.states = np.tile(first.model.start[: self.classes], (TRIAL_REPLICAS, 1))
        self.weights = np.zeros(0)
        self.at = 0
        self.done = 0
        seen = self._look(first, budget.warming, 2 * TRIAL_CONTROL_VISITS // TRIAL_REPLICAS)[1]
        self.seen = [seen[:, seen.shape[1] // 2 :]]  # before that, the start may still be felt
        self.at = budget.warming
        self.steps = budget.warming * TRIAL_REPLICAS

    def costs(self, policies: Sequence[Policy]) -> Floats:
        """The costs on common random numbers, one for each policy."""
        for policy in policies:
            self._check(policy)
        if self.done % TRIALS_BETWEEN_FITS == 0 and self.controlled:
            states = np.concatenate([part.reshape(-1, self.classes) for part in self.seen])
            self.weights = loop_values(self._loop(policies[-1]), states)
            self.seen = []
        mean = partial(
            self._look,
            policies[-1],
            self.length,
            TRIAL_CONTROL_VISITS // (TRIAL_REPLICAS * TRIALS_BETWEEN_FITS),
        )
        others = [partial(self._walk, policy, self.states.copy()) for policy in policies[:-1]]
        *tried, (ran, seen) = in_parallel([*others, mean], self.threads)
        self.seen.append(seen)
        self.at, self.done = self.at + self.length, self.done + 1
        self.steps += len(policies) * TRIAL_REPLICAS * self.length
        # by the mean's own cost, not by differences from it: in a short trial these vary less
        # without the control, but only since they have not yet come about
        plain, controlled = ran.std(axis=0)
        costs = np.array(
            [*(row for row, _ in tried), ran]
        )  # policy, trajectory, without and with control
        return np.asarray(costs[..., int(controlled <= plain)].mean(axis=1))

    def _loop(self, policy: Policy) -> OwnLoop:
        assert policy.code is not None
        run = index_walk.simulate_indices
        moments = index_walk.moments
        return OwnLoop(policy.code.ints, policy.code.floats, run, moments, self.classes)

    def _check(self, policy: Policy) -> None:
        """The loop reads arrays of linear indices of this network, and of nothing else."""
        linear = isinstance(policy, LinearIndexPolicy) and policy.temperature == 0
        if not linear or not (
            policy.model is self.model or policy.model.digest == self.model.digest
        ):
            raise InputError(
                f"policy {policy.name!r} is no linear index of {self.model.name!r}, as the others "
                "are."
            )

    def _walk(self, policy: Policy, states: Ints) -> tuple[Floats, Ints]:
        return self._go(policy, states, self.length, 0)

    def _look(self, policy: Policy, length: int, count: int) -> tuple[Floats, Ints]:
        """From the states of the trial, which move on."""
        return self._go(policy, self.states, length, min(count, length) if self.controlled else 0)

    def _go(self, policy: Policy, states: Ints, length: int, count: int) -> tuple[Floats, Ints]:
        """The mean losses of each trajectory without and with the control, and so many of the
        states on its way.
        """
        assert policy.code is not None
        costs = np.empty((TRIAL_REPLICAS, 2))
        seen = np.empty((TRIAL_REPLICAS, count, self.classes), np.int64)
        rngs = np.array(
            [philox.generator(self.seed, Stream.TRAJECTORIES, k) for k in range(TRIAL_REPLICAS)]
        )
        every = length // max(count, 1)
        index_walk.walk(
            policy.code.ints,
            policy.code.floats,
            self.weights,
            index_walk.Walks(states, rngs, self.at),
            length,
            index_walk.Seen(every, seen, costs),
        )
        return costs / length, seen


class GreedyTrials:
    """Average costs of policies that are greedy for compiled values, as `LongTrials`, each with its
    own values as control.
    """

    def __init__(self, first: GreedyPolicy, budget: Budget) -> None:
        self.threads = budget.threads
        self.model = first.model
        self.outposts = budget.outposts
        self.far = 0 if budget.outposts is None else OUTPOST_REPLICAS
        self.draws = np.random.default_rng(budget.seed)
        self.trials, self.length = budget.cut(
            TRIAL_REPLICAS + self.far, LEAST_TRIAL_STEPS, CONTROLLED_TRIALS, 1 - WARMING_SHARE
        )
        self.rngs = np.array(
            [
                philox.generator(budget.seed, Stream.TRAJECTORIES, k)
                for k in range(TRIAL_REPLICAS + self.far)
            ]
        )
        self.states = np.tile(first.model.start, (TRIAL_REPLICAS, 1))
        self.at = 0
        self._walk(first, self.states, budget.warming)
        self.at = budget.warming
        self.steps = budget.warming * TRIAL_REPLICAS

    def costs(self, policies: Sequence[Policy]) -> Floats:
        """The costs on common random numbers, one for each policy."""
        require_time()
        begin = self.states
        if self.outposts is not None:
            chosen = self.draws.integers(len(self.outposts), size=self.far)
            begin = np.concatenate([self.states, self.outposts[chosen]])
        places = [begin.copy() for _ in policies]
        ran = in_parallel(
            [
                partial(self._walk, policy, states, self.length)
                for policy, states in zip(policies, places, strict=True)
            ],
            self.threads,
        )
        self.states = places[-1][:TRIAL_REPLICAS].copy()
        self.at += self.length
        self.steps += len(policies) * len(begin) * self.length
        return np.array([_greedy_cost(rows) for rows in ran])

    def _walk(self, policy: Policy, states: Ints, length: int) -> Floats:
        """Mean losses of each trajectory without and with the control; no numbers where one could
        not go on.
        """
        code = walked_values(policy)
        if code is None:
            raise InputError(f"policy {policy.name!r} is not greedy for Ψw alone, as the others.")
        law = self.model.forward_law
        draw = greedy_walk.Draw(self.model.code.step, code.seen, len(self.model.code.counters))
        h = Control(law.forward, law.outcomes, code.value, code.ints, code.floats, code.room)
        sums = np.empty((len(states), 2))
        walks = index_walk.Walks(states, self.rngs[: len(states)].copy(), self.at)
        ended = greedy_walk.walk(law, draw, h, walks, length, sums)
        if ended < len(states):
            return np.full_like(sums, np.inf)
        return sums / length


def late_costs(policy: Policy, starts: Ints, steps: int, seed: int) -> tuple[Floats, Ints]:
    """The mean loss of a trajectory from each of the starts, over so many steps after so many
    steps, and the states where they end.
    """
    engine = CompiledEngine(policy.model, policy, own_seed(seed, Word.SEARCH_TRIALS), False)
    ran = in_parallel(
        [
            partial(engine.advance, Replica(k, x.copy(), np.zeros(2), 0), 2, steps)
            for k, x in enumerate(starts)
        ],
        None,
    )
    late = np.array([chunks.rows[1, 1] / steps for chunks in ran])
    return late, np.array([chunks.replica.x for chunks in ran])


def walked_values(policy: Policy) -> ValueCode | None:
    """The values of a policy that is greedy for compiled values and nothing else, with γ = 1."""
    if not isinstance(policy, GreedyPolicy) or not isinstance(policy.values, LinearValues):
        return None
    plain = policy.within is None and not policy.prices.size and policy.gamma == 1
    everywhere = bool((policy.clip >= policy.model.box.upper).all())
    return policy.values.code if plain and everywhere else None


def _greedy_cost(rows: Floats) -> float:
    """The mean of the shaped losses, or of the plain ones where these are clearly larger.

    Trajectories from outposts count little, but one that stays there counts.
    """
    if not np.isfinite(rows).all():
        return math.inf
    own = rows[:TRIAL_REPLICAS]
    far = rows[TRIAL_REPLICAS:]
    plain, shaped = own.mean(axis=0)
    error = float(np.std(own[:, 0] - own[:, 1])) / math.sqrt(len(own) - 1)
    if plain - shaped > FLATTERING_ERRORS * error or own[:, 1].std() > own[:, 0].std():
        return float(plain)
    if not len(far):
        return float(shaped)
    return float((1 - OUTPOST_SHARE) * shaped + OUTPOST_SHARE * far[:, 1].mean())


def make_trials(first: Policy, criterion: Criterion, budget: Budget) -> Trials:
    """What fits the policies and the criterion."""
    if first.code is None or isinstance(first.model, SimulatorModel):
        raise MissingError(
            f"policy {first.name!r} is not compiled, or its model is not: they cannot be searched."
        )
    budget = replace(budget, seed=own_seed(budget.seed, Word.SEARCH_TRIALS))
    if isinstance(criterion, Discounted):
        return ManyTrials(first, criterion, budget)
    if isinstance(first, LinearIndexPolicy) and first.temperature == 0 and walks(first.network):
        return IndexTrials(first, budget)
    if walked_values(first) is not None:
        assert isinstance(first, GreedyPolicy)
        return GreedyTrials(first, budget)
    return LongTrials(first, budget)


Trials = LongTrials | ManyTrials | IndexTrials | GreedyTrials
