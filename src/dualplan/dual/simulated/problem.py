"""The dual program from simulated transitions alone: no density, no predecessors, no list of
states.

A reference policy with the occupancy M·μ is simulated (μ a probability on pairs; M = 1, or 1/(1−γ)
for the discounted criterion, where the trajectory begins anew after each step with probability 1 −
γ). Candidates are u = M·μ·g with g = Σ_j θ_j r_j (`dual/features/ratios.py`). With a transition (x,
a, ℓ, x') of the reference and E its mean over time,

    ℓᵀu = M·E[g ℓ],    V_neg = M·E[max(−g, 0)],    residual(y) = M·E[g (γ y(x') − y(x))] + αᵀy,

γ = 1 and α = 0 for the average criterion: residual(y) is fᵀy (average) or −fᵀy (discounted). One
simulated next state serves all test functions y, and the maximum of |residual(y)| over a family
(`values/test_functions.py`) is a lower bound of V_flow. The mass is right where E[g] = 1. The
surrogate

    c(θ) = ℓᵀu + residual(h) + H_neg·V_neg + H_flow·max_y residual(y)

is a lower bound of the one in `dual/problem.py`, whose maximum is over all |y| <= 1. A potential h
shapes the loss to ℓ + γ h(x') − h(x); for u >= 0 and h the bias of u's own policy, ℓᵀu
+ residual(h) is that policy's exact cost.

Where episodes of a simulator end under the discounted criterion, nothing follows: γ is 0 at that
transition, M is 1/E[1 − γ], and the mass is right where M·E[g (1 − γ)] = 1, the residual of y = 1.

The sum |residual(y)| over cells is too large on a sample, since noise has a sign too. So signs are
chosen on one half of the trajectories and the residual taken from the other, and vice versa: its
mean is that of a lower bound.

*An anchor* is a partition on each of whose cells u must have the mass that the reference has there,
E[g 1{x in cell}] = P(cell): the candidates are then changes of what is done in the cells, near
where the reference goes. With ratios of a portfolio on the same cells, h the bias of the reference
and small H that is a step of policy improvement, cell by cell.

*Where next states can be listed* (`expected`), every state that was visited counts with all its
actions, weighed by the reference's probabilities, and with means over next states instead of the
one that was drawn. Only the noise of where the reference goes is left, which for potentials that
vary much from step to step is a small part.

*How much is known of g*: the effective sample size is (E|g|)²/E[g²] of the sample. Where it is
small, a few transitions decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from dualplan.core.checks import (
    require_counts,
    require_inside,
    require_positive,
    require_seed,
    require_threads,
    require_whole,
)
from dualplan.core.errors import InputError
from dualplan.core.intervals import mean_interval
from dualplan.core.streams import FIRST_REFERENCE_REPLICA
from dualplan.core.threads import in_parallel
from dualplan.core.types import Floats, Ints
from dualplan.dual.features.ratios import Ratios, finite_weights
from dualplan.dual.problem import Penalty, penalties
from dualplan.dual.simulated.moments import (
    PIECES_OF_A_TRAJECTORY,
    TRANSITIONS_AT_ONCE,
    Estimates,
    Moments,
    Sample,
    Sums,
    residuals,
)
from dualplan.evaluation.simulation import REPLICAS, Engine, Recorded, Replica, Restarts, engine
from dualplan.models.contract import Model, require_made_for
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.models.simulator import SimulatorModel
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.values.functions import StateFunction, state_values
from dualplan.values.partitions import Partition
from dualplan.values.test_functions import Cells, Witnesses


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Pairs with weights, and what follows them: pair i leads to state k of `following` with
    probability `mean[i, k]`.

    `owners` are the numbers of the visited states that the pairs belong to.
    """

    owners: Ints
    weights: Floats
    states: Ints
    actions: Ints
    losses: Floats
    gammas: Floats
    following: Ints
    mean: sp.csr_array


class SimulatedALP:
    """The surrogate of ratios and test functions, from simulated transitions of the reference."""

    def __init__(
        self,
        ratios: Ratios,
        tests: Witnesses,
        criterion: Criterion | None = None,
        *,
        samples: int = 200_000,
        every: int = 1,
        warm_up: int | None = None,
        potential: StateFunction | None = None,
        anchor: Partition | None = None,
        expected: bool = False,
        radius: float = 100.0,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        """`samples` transitions are recorded, every `every`-th step of 8 trajectories after
        `warm_up` steps of each.

        By default a fifth of the steps is for warming up. `expected` takes means over actions and
        next states where the model lists them. `radius` bounds each |θ_j|; the reference itself is
        θ = 1.
        """
        criterion = require_criterion(criterion)
        if not isinstance(ratios, Ratios) or not isinstance(tests, Witnesses):
            raise InputError(
                "a simulated problem needs ratios (dualplan.dual.features) and test functions."
            )
        require_made_for(ratios.model, tests.model, "set of test functions")
        require_whole("samples", samples, least=REPLICAS * PIECES_OF_A_TRAJECTORY)
        require_counts(every=every)
        if warm_up is not None:
            require_whole("warm_up", warm_up)
        require_seed(seed)
        require_positive(radius=radius)
        require_threads(threads)
        if potential is not None and not callable(potential):
            raise InputError(f"a potential is a function of states, one a row, got {potential!r}.")
        if anchor is not None and not isinstance(anchor, Partition):
            raise InputError(
                f"an anchor is a partition (features.cells, features.levels), got {anchor!r}."
            )
        if anchor is not None:
            require_made_for(ratios.model, anchor.model, "anchor")
        if expected and not (
            not isinstance(ratios.model, SimulatorModel) and ratios.model.has_forward
        ):
            raise InputError(
                f"model {ratios.model.name!r} cannot list next states; leave `expected` out."
            )
        self.expected = expected
        self.model: Model = ratios.model
        self.ratios = ratios
        self.criterion = criterion
        self.potential = potential
        self.anchor = anchor
        self.each = -(-int(samples) // REPLICAS)
        self.every = int(every)
        self.seed = int(seed)
        self.threads = threads
        if warm_up is None:
            self.warm_up = max(1_000, self.each * self.every // 5)
        else:
            self.warm_up = int(warm_up)
        self.radius = float(radius)
        self.hidden = isinstance(self.model, SimulatorModel) and not self.model.resumable
        self.restarts = self._restarts()
        self.tests = self._scaled(tests)
        self._kept: dict[bool, Moments] = {}

    def _restarts(self) -> Restarts:
        if not isinstance(self.criterion, Discounted):
            return Restarts(1.0, self.model.start[None, :].copy(), np.ones(1))
        if self.hidden and self.criterion.start is not None:
            raise InputError(
                f"model {self.model.name!r} keeps its state to itself, so it cannot be started "
                "elsewhere."
            )
        return Restarts(self.criterion.gamma, *self.criterion.start_distribution(self.model))

    def _scaled(self, tests: Witnesses) -> Witnesses:
        """Test functions that need a scale get it from a trajectory of its own."""
        if all(group.adds for group in tests.groups):
            return tests
        run = engine(self.model, self.ratios.reference, self.seed)
        count = min(self.each, TRANSITIONS_AT_ONCE)
        before = run.record(
            run.first(FIRST_REFERENCE_REPLICA + 2 * REPLICAS), 1, self.warm_up + 1, self.restarts
        )
        return tests.scaled(run.record(before.replica, count, self.every, self.restarts).states)

    # -- simulation --------------------------------------------------------------------------------

    def transitions(self, *, fresh: bool = False) -> Iterator[list[Recorded]]:
        """Chunk after chunk, the transitions of each trajectory.

        `fresh` ones are independent of the others.
        """
        run = engine(self.model, self.ratios.reference, self.seed)
        if run.fast:
            threads = self.threads
        else:
            threads = 1
        first = FIRST_REFERENCE_REPLICA + (REPLICAS if fresh else 0)
        replicas = in_parallel(
            [partial(self._warm, run, first + r) for r in range(REPLICAS)], threads
        )
        for done in range(0, self.each, TRANSITIONS_AT_ONCE):
            count = min(TRANSITIONS_AT_ONCE, self.each - done)
            tasks = [
                partial(run.record, replica, count, self.every, self.restarts)
                for replica in replicas
            ]
            found = in_parallel(tasks, threads)
            replicas = [recorded.replica for recorded in found]
            yield found

    def samples(self, *, fresh: bool = False) -> Iterator[list[tuple[Recorded, Sample]]]:
        """The transitions, and what the surrogate needs of them."""
        if self.ratios.code is not None:
            threads = self.threads
        else:
            threads = 1
        for found in self.transitions(fresh=fresh):
            made = in_parallel([partial(self._sample, recorded) for recorded in found], threads)
            yield list(zip(found, made, strict=True))

    def _warm(self, run: Engine, number: int) -> Replica:
        replica = run.first(number)
        if self.warm_up == 0:
            return replica
        return run.record(replica, 1, self.warm_up, self.restarts).replica

    def outcomes(self, recorded: Recorded) -> Outcomes:
        """What followed the pairs visited, or, if means are asked for, what may follow the states
        visited.
        """
        if not self.expected:
            count = recorded.losses.size
            gammas = self.restarts.gamma * recorded.alive.astype(np.float64)
            return Outcomes(
                np.arange(count),
                np.ones(count),
                recorded.states,
                recorded.actions,
                recorded.losses,
                gammas,
                recorded.following,
                sp.eye_array(count, format="csr"),
            )
        owners, actions = allowed_rows(self.model, recorded.states)
        table = np.array([self.ratios.reference.probabilities(x) for x in recorded.states])
        kept = table[owners, actions] > 0
        owners = owners[kept]
        actions = np.ascontiguousarray(actions[kept])
        states = np.ascontiguousarray(recorded.states[owners])
        laws = transitions(self.model, states, actions)
        mean = sp.csr_array((laws.probabilities, (laws.pairs, np.arange(laws.pairs.size))))
        gammas = np.full(actions.size, self.restarts.gamma)
        return Outcomes(
            owners, table[owners, actions], states, actions, laws.losses, gammas, laws.states, mean
        )

    def _sample(self, recorded: Recorded) -> Sample:
        o = self.outcomes(recorded)
        after = sp.diags_array(o.gammas) @ (o.mean @ self.tests(o.following))
        change = np.zeros(o.gammas.size)
        if self.potential is not None:
            values = [state_values(self.potential, x, "potential") for x in (o.following, o.states)]
            change = o.gammas * (o.mean @ values[0]) - values[1]
        return Sample(
            o.weights,
            self.ratios.rows(o.states, o.actions),
            sp.csr_array(after - self.tests(o.states)),
            o.losses,
            o.losses + change,
            1.0 - o.gammas,
            self._anchors(o.states),
        )

    def _anchors(self, states: Ints) -> sp.csr_array:
        """The indicators of the anchor's cells at states, one a row."""
        if self.anchor is None:
            return sp.csr_array((len(states), 0))
        return Cells(self.anchor)(states)

    def moments(self, *, fresh: bool = False) -> Moments:
        """The sums that everything else is computed from, kept once they are there."""
        if fresh not in self._kept:
            sums = Sums(self)
            for chunk in self.samples(fresh=fresh):
                sums.add(chunk)
            self._kept[fresh] = sums.moments()
        return self._kept[fresh]

    # -- c(θ) --------------------------------------------------------------------------------------

    def checked(self, theta: Floats) -> Floats:
        """θ, if it has a finite weight for each ratio."""
        return finite_weights(theta, len(self.ratios))

    def value(self, theta: Floats, penalty: Penalty, moments: Moments) -> float:
        """c(θ) over these transitions, with the maximum over test functions on them: what solvers
        minimise.
        """
        on_negative, on_flow = penalties(penalty)
        theta = self.checked(theta)
        m = moments
        negative = m.total * float(np.maximum(-(m.rows @ theta), 0.0) @ m.shares.mean(axis=0))
        linear = m.total * float(m.shaped.mean(axis=0) @ theta) + float(m.potential.mean())
        flow = self.tests.bound(residuals(m, theta).mean(axis=0))
        return linear + on_negative * negative + on_flow * flow

    def estimates(
        self,
        theta: Floats,
        penalty: Penalty,
        moments: Moments | None = None,
        *,
        confidence: float = 0.95,
    ) -> Estimates:
        """The parts at θ with intervals, by default from transitions that no solver has seen."""
        require_inside(confidence=confidence)
        on_negative, on_flow = penalties(penalty)
        theta = self.checked(theta)
        if moments is None:
            m = self.moments(fresh=True)
        else:
            m = moments
        g = m.rows @ theta
        found = residuals(m, theta)
        objective = m.scaled(m.losses @ theta)
        shaped = m.scaled(m.shaped @ theta) + m.potential
        negative = m.scaled(m.shares @ np.maximum(-g, 0.0))
        mass = m.scaled(m.mass @ theta / m.total)
        flow = self._crossed(found)
        total = shaped + on_negative * negative + on_flow * flow
        share = m.shares.mean(axis=0)
        squares = float(share @ g**2)
        interval = partial(mean_interval, confidence=confidence)
        return Estimates(
            interval(objective),
            interval(shaped),
            interval(mass),
            interval(negative),
            interval(flow),
            interval(total),
            self.tests.bound(found.mean(axis=0)),
            float(share @ np.abs(g)) ** 2 / squares if squares > 0 else 0.0,
        )

    def _crossed(self, found: Floats) -> Floats:
        """For each trajectory, its residual of the function that is worst on the other half of the
        trajectories.
        """
        half = len(found) // 2
        worst = [self.tests.maximiser(part.mean(axis=0)) for part in (found[half:], found[:half])]
        return np.concatenate([found[:half] @ worst[0], found[half:] @ worst[1]])
