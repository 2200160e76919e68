"""What a run with a control may have missed: states around those that the policy visits.

With a control h the loss of a step is s(x) = ℓ_π(x) + (P_πh)(x) − h(x), whose mean under the
stationary law is the cost c for every h. If h was fitted to visits, s may be as good as constant
where the fit has been and far from c elsewhere: a run that meets no such state sees no noise, and
its interval, of width 0, misses c by Σ_x π(x)·(s(x) − c) over the states that it did not meet.

An event that did not happen in n steps has, with confidence 1 − δ, a probability of at most
−ln(δ)/n (3/n for 95%; compare `rare`). The event is a stay in a state x, of 1/(1 − P_π(x,x)) steps
on average. So an interval at the level 1 − δ is widened by

    −ln(δ)/n · max_x |s(x) − c| / (1 − P_π(x,x)).

The maximum is over states that may well be met in n steps. It begins with some thousand visits,
whose frequencies f(x) stand for π(x), and goes on from state to state: as π(y) >= π(x)·P_π(y|x), a
state y that is found gets f(y) = Σ_x f(x)·P_π(y|x), over the states from which it was found. From
states with n·f(x) below `LEAST_EXPECTED_VISITS` it does not go on. The likeliest states come first,
and their number is bounded, as is the number of outcomes listed: nothing is enumerated.

The bias of the policy has s = c everywhere, and an interval with it stays as narrow as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualplan.core.types import Floats, Ints
from dualplan.evaluation.rare import ReachedLosses
from dualplan.evaluation.simulation import Control
from dualplan.evaluation.visits import STEPS_BETWEEN_VISITS, visited
from dualplan.models.contract import Model
from dualplan.models.transitions import transitions
from dualplan.policies.contract import Policy

FIRST_VISITS = 2_000
SLOW_FIRST_VISITS = 250  # of policies that are asked in Python
LEAST_EXPECTED_VISITS = 0.1  # in the run, of a state from which others are looked for
# states that are looked at: as many as have so many outcomes, but neither fewer nor more than these
LISTED_OUTCOMES = 50_000
FEWEST_STATES = 100
MOST_STATES = 5_000
CONTROLLED_STATES_AT_ONCE = 1_000  # states whose control is computed at once


def unseen_events(confidence: float) -> float:
    """How many events may have been expected, with this confidence, where none was seen."""
    return -math.log(1 - confidence)


def outskirts(
    model: Model, policy: Policy, control: Control, steps: float, seed: int
) -> ReachedLosses:
    """Shaped losses, with mean stays, of states that the policy may well meet in so many steps."""
    slow = policy.code is None
    count = SLOW_FIRST_VISITS if slow else FIRST_VISITS
    visits = visited(model, policy, samples=count, seed=seed, every=STEPS_BETWEEN_VISITS)
    states, counts = np.unique(visits, axis=0, return_counts=True)
    frequencies = counts / count
    room = _room(model)
    known = np.empty((0, model.box.dim), np.int64)
    found = []
    while len(states) and room > len(known):
        likeliest = np.argsort(-frequencies, kind="stable")[: room - len(known)]
        states = np.ascontiguousarray(states[likeliest])
        frequencies = frequencies[likeliest]
        known = np.vstack([known, states])
        ahead = _one_step(model, policy, states)
        found.append(ahead.shaped(control))
        going_on = steps * frequencies[ahead.rows] >= LEAST_EXPECTED_VISITS
        flows = frequencies[ahead.rows] * ahead.chances
        states, frequencies = _new_states(known, ahead.following[going_on], flows[going_on])
    losses = np.concatenate([part.losses for part in found])
    stays = np.concatenate([part.stays for part in found])
    return ReachedLosses(losses, stays)


def _room(model: Model) -> int:
    """How many states are looked at."""
    width = max(model.code.max_outcomes, len(model.actions))
    return min(max(LISTED_OUTCOMES // width, FEWEST_STATES), MOST_STATES)


def _new_states(known: Ints, following: Ints, flows: Floats) -> tuple[Ints, Floats]:
    """The next states that are not known yet, each once, with the sums of their flows."""
    states, where = np.unique(np.vstack([known, following]), axis=0, return_inverse=True)
    place = where.ravel()
    sums = np.bincount(place[len(known) :], flows, minlength=len(states)).astype(np.float64)
    sums[place[: len(known)]] = 0.0
    new = np.flatnonzero(sums)
    return states[new], sums[new]


@dataclass(frozen=True, eq=False)
class _Ahead:
    """One step of a policy from states: outcome k, of state `rows[k]`, is `following[k]`, with
    probability `chances[k]`.
    """

    states: Ints
    losses: Floats
    rows: Ints
    following: Ints
    chances: Floats

    def shaped(self, control: Control) -> ReachedLosses:
        """ℓ_π + P_πh − h of each state, and the mean number of steps of a stay.

        A control that has no number at a state says nothing there: that counts as infinite.
        """
        count = len(self.states)
        every, where = np.unique(
            np.vstack([self.states, self.following]), axis=0, return_inverse=True
        )
        values = _values(control, every)[where.ravel()]
        after = np.bincount(self.rows, self.chances * values[count:], minlength=count)
        losses = self.losses + after - values[:count]
        staying = (self.following == self.states[self.rows]).all(axis=1)
        remain = np.bincount(self.rows, self.chances * staying, minlength=count)
        left = remain < 1  # a state that is never left is no event
        return ReachedLosses(
            np.where(np.isfinite(losses), losses, np.inf)[left], 1 / (1 - remain[left])
        )


def _values(control: Control, states: Ints) -> Floats:
    """The control at states, NaN where it is no number."""
    parts = [
        np.asarray(control(states[k : k + CONTROLLED_STATES_AT_ONCE]), np.float64)
        for k in range(0, len(states), CONTROLLED_STATES_AT_ONCE)
    ]
    values = np.concatenate(parts)
    return np.where(np.isfinite(values), values, np.nan)


def _one_step(model: Model, policy: Policy, states: Ints) -> _Ahead:
    chances = policy.rows(states)
    rows, actions = (part.copy() for part in np.nonzero(chances))
    laws = transitions(model, np.ascontiguousarray(states[rows]), actions)
    share = chances[rows, actions]
    return _Ahead(
        states,
        np.bincount(rows, share * laws.losses, minlength=len(states)).astype(np.float64),
        rows[laws.pairs],
        laws.states,
        share[laws.pairs] * laws.probabilities,
    )
