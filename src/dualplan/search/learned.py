"""The optimal policy of the model that was seen: for simulators alone, whose states can be listed.

A simulator tells nothing but what happens. So trajectories try actions, and what happened is
counted: n(x, a, y) and the sum of losses make the estimates

    P̂(y|x,a) = n(x,a,y)/n(x,a),        ℓ̂(x,a) = mean of the losses seen there.

Rounds of two kinds take turns. In the first, a pair that was tried fewer than `KNOWN_TRIES` times
is taken for better than all that was seen (optimism in the face of uncertainty; Brafman &
Tennenholtz 2002): the optimal policy of that model goes where little is known. In the second, what
was never seen is not allowed (a state without any action leads back to itself, at the largest loss
seen), and counts grow where good policies go; a part of the actions are those that were tried least
in their state. The last policy of the second kind is the answer. An episode that ends begins again
(average criterion) or costs nothing more (discounted).

Nothing is proved of such a policy; like all others it is judged by simulation.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from dualplan.core.budgets import MOST_EXACT_STATES
from dualplan.core.deadlines import time_is_over
from dualplan.core.errors import ModelError, OutOfTimeError
from dualplan.core.streams import Place
from dualplan.core.types import Ints
from dualplan.exact.iteration import solve_exact
from dualplan.models.criteria import Criterion, Discounted
from dualplan.models.simulator import SimulatorModel
from dualplan.models.tabular import TabularModel
from dualplan.policies.tables import TablePolicy
from dualplan.search.contract import Candidate, Search

TRIED_STEPS_BY_SIZE = (30_000, 150_000, 750_000)
ROUNDS = 6  # of trying and solving with and without optimism, in one attempt
KNOWN_TRIES = 4  # after which a pair counts as known
HOPEFUL_STEPS = 250  # of a trajectory with optimism, until its policy is made anew
LEAST_TRIED_SHARE = 0.3  # of the actions of a trajectory without
SOLUTION_SWEEPS = 2_000
SOLUTION_ACCURACY = 1e-4  # of the estimated cost, which is known far less well
STAND_IN_GAMMA = 0.99  # of the discounted criterion where the average one has no one answer


@dataclass(eq=False)
class Counts:
    """What happened so far, by the numbers of states and actions; the last state is the end."""

    model: SimulatorModel
    allowed: Ints = field(init=False)
    tried: Ints = field(init=False)
    losses: dict[tuple[int, int], float] = field(default_factory=dict)
    seen: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        states = int(self.model.box.count or 0)
        self.tried = np.zeros((states, len(self.model.actions)), np.int64)
        self.allowed = _allowed(self.model)

    @property
    def states(self) -> int:
        """How many there are, without the end."""
        return len(self.tried)

    def note(self, i: int, a: int, j: int, loss: float) -> None:
        """A step from state i to state j."""
        self.tried[i, a] += 1
        self.losses[i, a] = self.losses.get((i, a), 0.0) + loss
        self.seen[i, a, j] = self.seen.get((i, a, j), 0) + 1

    def estimated(self, hoped: float | None = None) -> TabularModel:
        """The model of these counts.

        With `hoped`, a pair that is not known ends the episode at that loss, and all are allowed.
        """
        n = self.states
        actions = self.tried.shape[1]
        known = np.vstack([self.tried > 0, np.zeros((1, actions), bool)])
        losses = np.zeros((n + 1, actions))
        for (i, a), total in self.losses.items():
            losses[i, a] = total / self.tried[i, a]
        worst = float(losses.max(initial=0.0))
        stuck = np.flatnonzero(~known.any(axis=1))
        known[stuck, 0] = True
        losses[stuck, 0] = worst
        losses[n] = 0.0
        keys = np.array(list(self.seen), np.int64).reshape(-1, 3)
        shares = np.array(list(self.seen.values())) / self.tried[keys[:, 0], keys[:, 1]]
        if hoped is not None:
            open_pairs = np.argwhere((self.tried < KNOWN_TRIES) & (self.allowed > 0))
            known[tuple(open_pairs.T)] = True
            losses[tuple(open_pairs.T)] = hoped
            kept = self.tried[keys[:, 0], keys[:, 1]] >= KNOWN_TRIES
            stuck = stuck[stuck == n]
            ends = np.column_stack([open_pairs, np.full(len(open_pairs), n)])
            keys = np.vstack([keys[kept], ends])
            shares = np.concatenate([shares[kept], np.ones(len(open_pairs))])
        matrices = []
        for a in range(actions):
            mine = keys[:, 1] == a
            own = stuck if a == 0 else stuck[:0]
            rows = np.concatenate([keys[mine, 0], own])
            columns = np.concatenate([keys[mine, 2], own])
            entries = np.concatenate([shares[mine], np.ones(own.size)])
            matrices.append(sp.csr_array((entries, (rows, columns)), shape=(n + 1, n + 1)))
        return TabularModel(matrices, losses, allowed=known, start=self._start)

    def hope(self, gamma: float) -> float:
        """A loss below all that was seen, for ever."""
        means = [float(total / self.tried[pair]) for pair, total in self.losses.items()]
        least = min(means) - max(1.0, max(means) - min(means))
        return least + min(0.0, least) * gamma / (1 - gamma)

    @property
    def _start(self) -> int:
        return int(self.model.box.index(self.model.start))


@dataclass(frozen=True)
class Learned:
    """The policy that is optimal for what was seen."""

    name: str = "learned"
    elastic: bool = True
    sizes: int = len(TRIED_STEPS_BY_SIZE)
    grows: float = 5.0
    needs: str = "a simulator with few states, and no limits"

    def leads(self, search: Search) -> bool:  # noqa: ARG002
        """Before the others, on all models."""
        return True

    def applies(self, search: Search) -> bool:
        """Simulators whose states can be listed."""
        count = search.model.box.count
        few = count is not None and count <= MOST_EXACT_STATES
        return isinstance(search.model, SimulatorModel) and few and not search.limits

    def propose(self, search: Search, size: int) -> list[Candidate]:
        """One, from as many steps as there is time for."""
        model = search.model
        assert isinstance(model, SimulatorModel)
        rng = np.random.default_rng(search.fresh(Place.PROPOSAL))
        counts = Counts(model)
        table = counts.allowed.argmax(axis=1)
        episodes = isinstance(search.criterion, Discounted)
        each = TRIED_STEPS_BY_SIZE[size] // (2 * ROUNDS)
        with suppress(OutOfTimeError):  # then the last table is what there is
            for _ in range(ROUNDS):
                for _ in range(each // HOPEFUL_STEPS):
                    hopeful = _hopeful(counts, search.criterion, table)
                    _try(counts, hopeful, HOPEFUL_STEPS, rng, episodes, hoping=True)
                table = _solved(counts, search.criterion, table)
                _try(counts, table, each, rng, episodes)
                table = _solved(counts, search.criterion, table)
        return [Candidate(TablePolicy(model, table, name=self.name), self.name)]


def _allowed(model: SimulatorModel) -> Ints:
    """Which actions are allowed, one state a row."""
    states = model.box.states(np.arange(int(model.box.count or 0)))
    return np.array([model.allowed(x) for x in states], np.int64)


def _try(
    counts: Counts,
    table: Ints,
    steps: int,
    rng: np.random.Generator,
    episodes: bool,
    hoping: bool = False,
) -> None:
    """Steps of one trajectory, most of them with the table's actions.

    `hoping` takes others only where one is not known.
    """
    model = counts.model
    session = model.session()
    x = session.reset(rng)
    for _ in range(steps):
        if time_is_over():
            break
        i = int(model.box.index(x))
        times = np.where(counts.allowed[i] > 0, counts.tried[i], np.iinfo(np.int64).max)
        if hoping:
            trying = times.min() < KNOWN_TRIES
        else:
            trying = rng.random() < LEAST_TRIED_SHARE
        if trying:
            a = int(rng.choice(np.flatnonzero(times == times.min())))
        else:
            a = int(table[i])
        y, loss, ended = model.checked(session.step(x, a, rng), x, a)
        x = session.reset(rng) if ended else y
        j = counts.states if ended and episodes else int(model.box.index(x))
        counts.note(i, a, j, loss)


def _hopeful(counts: Counts, criterion: Criterion, before: Ints) -> Ints:
    """The optimal actions of a model in which all that is not known is best."""
    if not counts.losses:
        return before
    gamma = criterion.gamma if isinstance(criterion, Discounted) else STAND_IN_GAMMA
    model = counts.estimated(counts.hope(gamma))
    found = solve_exact(
        model, Discounted(gamma), relative_tol=SOLUTION_ACCURACY, sweeps=SOLUTION_SWEEPS
    )
    return found.table[: counts.states]


def _solved(counts: Counts, criterion: Criterion, before: Ints) -> Ints:
    """The optimal actions of the estimated model; elsewhere those of before."""
    estimated = counts.estimated()
    gamma = criterion.gamma if isinstance(criterion, Discounted) else STAND_IN_GAMMA
    wanted = [criterion, Discounted(gamma)]
    if isinstance(criterion, Discounted):
        wanted = [Discounted(gamma)]  # the start does not change what is optimal
    for one in wanted:
        try:
            found = solve_exact(
                estimated, one, relative_tol=SOLUTION_ACCURACY, sweeps=SOLUTION_SWEEPS
            )
        except ModelError:
            # the average cost depends on the start in what was seen so far
            continue
        table = found.table[: counts.states]
        return np.where(counts.tried.any(axis=1), table, before)
    return before
