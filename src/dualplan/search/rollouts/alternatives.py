"""States, and what can be done there.

A fit may find that a server had better idle, where the difference is smaller than its error, and a
network that idles is soon unstable. In networks without the choice to idle, alternatives are
therefore those of servers that work if somebody waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from dualplan.core.streams import RolloutWord, VisitShift
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.simulation import REPLICAS
from dualplan.evaluation.visits import occupancy, visited
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.transitions import Laws, allowed_rows, transitions
from dualplan.policies.contract import Policy
from dualplan.policies.mixed import exploring

# steps between visits, and visits of each trajectory that are left out
STEPS_BETWEEN_VISITED_STATES = 20
WARM_UP_VISITS = 1_000
# random actions of the exploring policy; the share of states one random step away
EXPLORING_ACTIONS_SHARE = 0.1
NEIGHBOUR_STATES_SHARE = 0.25
STATES_LISTED_AT_ONCE = 128  # states whose outcomes are listed at once
EQUAL_PROBABILITY_DIFFERENCE = 1e-12  # probabilities that differ by no more are equal


@dataclass(frozen=True, eq=False)
class Alternatives:
    """What can be done at a state: actions, their losses, the outcomes whose probability depends on
    the action.

    `chances` has a row for each action; the rows have the same sum. The first outcome is the one
    that others are compared with. `chosen` are the policy's probabilities of the actions.
    """

    state: Ints
    actions: Ints
    chosen: Floats
    losses: Floats
    outcomes: Ints
    chances: Floats

    def qualities(self, differences: Floats, gamma: float) -> Floats:
        """Q of the actions up to a constant, from h at the outcomes minus h at the first."""
        return np.asarray(self.losses + gamma * (self.chances @ differences))

    @property
    def spread(self) -> Floats:
        """How much each outcome's probability depends on the action."""
        return np.asarray(np.ptp(self.chances, axis=0))


def working(model: Model) -> Policy | None:
    """Within whose actions a policy of this model should stay: in a network, servers work if
    somebody waits.
    """
    if isinstance(model, QueueingNetwork) and not model.options["idling"]:
        return model.policy("random")
    return None


def alternatives(
    model: Model, policy: Policy, states: Ints, *, within: Policy | None = None, seed: int = 0
) -> list[Alternatives]:
    """Those of the given states, one a row, at which the action changes the law of the next
    state.
    """
    found: list[Alternatives] = []
    rng = np.random.default_rng([seed, RolloutWord.EVENTS])
    for first in range(0, len(states), STATES_LISTED_AT_ONCE):
        part = np.ascontiguousarray(states[first : first + STATES_LISTED_AT_ONCE])
        found += _listed(model, policy, part, within, rng)
    return found


def _listed(
    model: Model, policy: Policy, states: Ints, within: Policy | None, rng: np.random.Generator
) -> list[Alternatives]:
    rows, actions = allowed_rows(model, states)
    if within is not None:
        taken = np.array([within.probabilities(x) for x in states])[rows, actions] > 0
        rows = rows[taken]
        actions = actions[taken]
    law = _one_event(
        model,
        transitions(model, np.ascontiguousarray(states[rows]), actions),
        rows,
        len(states),
        rng,
    )
    keys, found = np.unique(
        np.column_stack([rows[law.pairs], law.states]), axis=0, return_inverse=True
    )
    where = found.ravel()
    numbers = np.arange(len(states) + 1)
    # Outcomes, pairs and their laws all come state by state.
    ends, pairs, laws = (np.searchsorted(k, numbers) for k in (keys[:, 0], rows, rows[law.pairs]))
    made = []
    for k, x in enumerate(states):
        own, here, mine = (slice(e[k], e[k + 1]) for e in (ends, laws, pairs))
        chances = np.zeros((mine.stop - mine.start, own.stop - own.start))
        np.add.at(
            chances,
            (law.pairs[here] - mine.start, where[here] - own.start),
            law.probabilities[here],
        )
        varying = np.flatnonzero(np.ptp(chances, axis=0) > EQUAL_PROBABILITY_DIFFERENCE)
        if varying.size:
            order = varying[np.argsort(-chances[:, varying].sum(axis=0), kind="stable")]
            outcomes = np.ascontiguousarray(keys[own][order, 1:])
            chosen = policy.probabilities(x)[actions[mine]]
            made.append(
                Alternatives(
                    x, actions[mine], chosen, law.losses[mine], outcomes, chances[:, order]
                )
            )
    return made


def _one_event(model: Model, law: Laws, rows: Ints, count: int, rng: np.random.Generator) -> Laws:
    """With decisions per server, the next event is independent of all else: one draw a state stands
    for all events.
    """
    if not has_event(model):
        return law
    chances = model.event_law
    drawn = rng.choice(chances.size, count, p=chances)[rows[law.pairs]]
    kept = law.states[:, -1] == drawn
    return Laws(
        law.states[kept],
        law.pairs[kept],
        law.probabilities[kept] / chances[drawn[kept]],
        law.losses,
    )


def has_event(model: Model) -> TypeGuard[QueueingNetwork]:
    """Whether the last coordinate is a pending event."""
    return isinstance(model, QueueingNetwork) and model.per_server


def visited_states(
    model: Model,
    policy: Policy,
    criterion: Criterion,
    count: int,
    seed: int,
    others: Sequence[Policy] = (),
) -> Ints:
    """About `count` states in random order: half of them visits of the policy, half of others, some
    a step away.

    By default the other policy is the same one with some random actions, so that a fit is not blind
    to what lies beside the way of the policy.
    """
    rest = list(others) or [exploring(policy, EXPLORING_ACTIONS_SHARE)]
    each = -(-count // (2 * len(rest)))
    parts = [_visits(model, policy, criterion, -(-count // 2), seed)]
    parts += [
        _visits(model, p, criterion, each, seed + VisitShift.OTHERS + k) for k, p in enumerate(rest)
    ]
    rng = np.random.default_rng([seed, RolloutWord.STATES])
    states = rng.permutation(np.concatenate(parts))
    moved = int(NEIGHBOUR_STATES_SHARE * len(states))
    states[:moved] = _neighbours(model, states[:moved], rng)
    return np.ascontiguousarray(rng.permutation(states))


def _visits(model: Model, policy: Policy, criterion: Criterion, count: int, seed: int) -> Ints:
    if isinstance(criterion, Discounted):
        return occupancy(
            model, policy, criterion, samples=10 * count, seed=seed, method="simulation"
        ).draw(count, seed)
    each = WARM_UP_VISITS - (-count // REPLICAS)
    paths = visited(
        model, policy, samples=REPLICAS * each, seed=seed, every=STEPS_BETWEEN_VISITED_STATES
    ).reshape(REPLICAS, each, model.box.dim)
    return np.ascontiguousarray(paths[:, WARM_UP_VISITS:].reshape(-1, model.box.dim)[:count])


def _neighbours(model: Model, states: Ints, rng: np.random.Generator) -> Ints:
    """A random outcome of a random action at each state."""
    rows, actions = allowed_rows(model, states)
    ends = np.searchsorted(rows, np.arange(len(states) + 1))
    law = transitions(
        model, np.ascontiguousarray(states), actions[rng.integers(ends[:-1], ends[1:])]
    )
    ends = np.searchsorted(law.pairs, np.arange(len(states) + 1))
    return np.asarray(law.states[rng.integers(ends[:-1], ends[1:])])
