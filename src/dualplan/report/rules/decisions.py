"""Decisions of a policy, one by one: who decides, between what, and what a wrong decision costs.

In a network every server decides for itself, between its classes and, if the policy ever does so,
idling beside waiting customers. In other models there is one decision, the action. With p the
probabilities of the choices in a state x and q(x,k) = ℓ + γPV of choosing k (all other servers
doing what the policy does most likely),

    r(x,k) = (1 − p_k/max p)·(|q(x,k) − q(x,k*)| + ε),        k* the most likely choice,

is what it costs to choose k there: nothing for the policy's own choice. Without values V the second
factor is 1. ε is 10⁻⁶ of a mean difference, so that among trees of the same cost the one is
preferred that does what the policy does. A decision that looks better than the policy's counts like
one that looks worse: a rule shall be the policy.

With V the policy's own values, one event a step (so that q is a sum over servers) and μ where the
rule T goes, the difference of the two costs is Σ_x μ(x) (q(x,T(x)) − q(x,π(x))) for average costs
(1/(1−γ) times that for discounted ones, with μ a distribution): the performance difference (Kakade
& Langford 2002). So Σ_x μ(x) r(x,T(x)) bounds it for a deterministic policy, and is it, for an
optimal one, up to ε.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dualplan.core.types import Bools, Floats, Ints
from dualplan.models.contract import Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.policies.contract import Policy
from dualplan.values.functions import StateFunction, state_values

SMALL_DIFFERENCE_SHARE = 1e-6  # ε, as a part of a mean difference
PAIRS_AT_ONCE = 2**20  # pairs whose laws are looked at together
# choices up to which all orders are tried, and all pairs of first ones
MOST_CHOICES_IN_ALL_ORDERS = 4
MOST_CHOICES_IN_PAIRS = 12


@dataclass(frozen=True, eq=False)
class Looks:
    """Values to look ahead with: V, γ, and up to which numbers they mean something."""

    values: StateFunction
    gamma: float
    clip: Ints

    def ahead(self, model: Model, states: Ints) -> Floats:
        """ℓ + γPV, one row a state; NaN for actions that are not allowed."""
        seen = np.ascontiguousarray(np.minimum(states, self.clip))
        out = np.full((len(states), len(model.actions)), np.nan)
        rows, actions = allowed_rows(model, seen)
        law = transitions(model, np.ascontiguousarray(seen[rows]), actions)
        out[rows, actions] = law.losses + self.gamma * law.mean(
            state_values(self.values, law.states, "values")
        )
        return out


@dataclass(frozen=True, eq=False)
class Choices:
    """One decider's choices at states, one a row: which it has, how unlike the policy's they are,
    how far apart.
    """

    open: Bools  # whether the choice can be made; no row where there is only one
    unlike: Floats  # 1 − p/max p
    apart: Floats  # |q − q of the policy's|; 1 without values

    @property
    def decides(self) -> Bools:
        """Where there is something to decide."""
        return np.asarray(self.open.sum(axis=1) > 1)


def choices_of(model: Model, policy: Policy, states: Ints, looks: Looks | None) -> list[Choices]:
    """The choices of every decider at the states.

    a few states at a time, since there may be many actions.
    """
    size = max(
        1,
        PAIRS_AT_ONCE
        // (len(model.actions) * max(1, model.code.max_outcomes if looks is not None else 1)),
    )
    found = [
        _choices(model, policy, states[k : k + size], looks) for k in range(0, len(states), size)
    ]
    return [
        Choices(
            *(
                np.concatenate([getattr(c[d], part) for c in found])
                for part in ("open", "unlike", "apart")
            )
        )
        for d in range(len(found[0]))
    ]


def _choices(model: Model, policy: Policy, states: Ints, looks: Looks | None) -> list[Choices]:
    chances = policy.rows(states)
    if looks is None:
        ahead = None
    else:
        ahead = looks.ahead(model, states)
    if isinstance(model, QueueingNetwork):
        return [_of_server(model, s, states, chances, ahead) for s in range(len(model.servers))]
    if isinstance(model, SimulatorModel):
        return [_made(np.array([model.allowed(x) for x in states]), chances, ahead)]
    may = np.zeros(chances.shape, bool)
    may[allowed_rows(model, states)] = True
    return [_made(may, chances, ahead)]


def _made(may: Bools, chances: Floats, ahead: Floats | None) -> Choices:
    most = chances.max(axis=1, keepdims=True)
    unlike = 1.0 - chances / np.where(most > 0, most, 1.0)
    if ahead is None:
        return Choices(may, unlike, np.ones(may.shape))
    own = np.take_along_axis(ahead, chances.argmax(axis=1)[:, None], axis=1)
    return Choices(may, unlike, np.nan_to_num(np.abs(ahead - own)))


# -- servers ---------------------------------------------------------------------------------------


def _of_server(
    network: QueueingNetwork, s: int, states: Ints, chances: Floats, ahead: Floats | None
) -> Choices:
    """The places of server s, and one more for idling beside waiting customers where that is an
    empty class.
    """
    own, other = _own_part(network, s, chances, ahead)
    options = network.choices[s]
    waiting = np.stack([_waiting(network, states, s, j) for j in range(len(options))], axis=1)
    idle = np.array([c < 0 for c in options])
    may = waiting | idle | bool(network.options["phantom"])
    active = np.asarray(waiting.any(axis=1) | bool(network.options["phantom"]))
    if network.per_server:
        active &= states[:, -1] == s + 1
    if network.nonpreemptive:
        active &= states[:, len(network.classes) + s] > 0
    empty = ~may
    silent = empty.any(axis=1) & (not network.nonpreemptive)
    unserved = np.where(empty, own, 0.0).sum(axis=1)
    first = np.argmax(empty, axis=1)[:, None]
    own = np.where(may, own, 0.0)
    if idle.any():  # to serve an empty class is to idle, for which there is a word already
        own[:, idle] += unserved[:, None]
        silent = np.zeros(len(states), bool)
    wide_may = np.column_stack([may, silent]) & active[:, None]
    wide_own = np.column_stack([own, np.where(silent, unserved, 0.0)])
    if other is None:
        return _made(wide_may, wide_own, None)
    return _made(
        wide_may, wide_own, np.column_stack([other, np.take_along_axis(other, first, axis=1)])
    )


def _own_part(
    network: QueueingNetwork, s: int, chances: Floats, ahead: Floats | None
) -> tuple[Floats, Floats | None]:
    """The probabilities of the places of server s, and q of each, the other servers doing what they
    do most likely.
    """
    sizes = [len(c) for c in network.choices]
    if network.per_server:
        return chances[:, : sizes[s]], None if ahead is None else ahead[:, : sizes[s]]
    others = tuple(1 + k for k in range(len(sizes)) if k != s)
    own = chances.reshape(-1, *sizes).sum(axis=others)
    if ahead is None:
        return own, None
    stride = math.prod(sizes[s + 1 :])
    likely = chances.argmax(axis=1)
    base = likely - likely // stride % sizes[s] * stride
    return own, np.take_along_axis(ahead, base[:, None] + stride * np.arange(sizes[s]), axis=1)


def _waiting(network: QueueingNetwork, states: Ints, s: int, j: int) -> Bools:
    """Whether server s could take a customer of its j-th choice now (non-preemptive: next)."""
    c = network.choices[s][j]
    if c < 0:
        return np.zeros(len(states), bool)
    count = states[:, c]
    if network.nonpreemptive:
        count = count - (states[:, len(network.classes) + s] == j + 1)
    return np.asarray(count > 0)


# -- orders ----------------------------------------------------------------------------------------


def orders_of(choices: Choices, weights: Floats, network: bool) -> list[tuple[int, ...]]:
    """Orders of choices that a leaf may have: the first that can be made is made.

    Of few choices all orders; of more all pairs of first ones, or all first ones, and then those
    that the policy makes most often. Other models than networks: all actions that the policy takes
    as first ones. Choices that the policy never makes come last.
    """
    rows = choices.decides
    taken = choices.open[rows] & (choices.unlike[rows] <= 0)
    often = weights[rows] @ taken
    ranked = sorted(range(often.size), key=lambda k: (-often[k], k))
    # the number after the last class stands for idling, which policies mostly do not do
    if network:
        used = [k for k in ranked if often[k] > 0 or k < often.size - 1]
    else:
        used = [k for k in ranked if often[k] > 0] or ranked[:1]
    rest = [k for k in ranked if k not in used and not network]
    heads: Iterator[Sequence[int]]
    if not network or len(used) > MOST_CHOICES_IN_PAIRS:
        heads = itertools.combinations(used, 1)
    else:
        heads = itertools.permutations(
            used, len(used) if len(used) <= MOST_CHOICES_IN_ALL_ORDERS else 2
        )
    return [(*head, *(k for k in used if k not in head), *rest) for head in heads]


def made_by(order: Sequence[int], choices: Choices) -> Ints:
    """The choice that an order makes in each row; the last one where none is open."""
    ranked = choices.open[:, list(order)]
    return np.array(order, np.int64)[
        np.where(ranked.any(axis=1), ranked.argmax(axis=1), len(order) - 1)
    ]


def costs_of(
    choices: Choices, weights: Floats, orders: Sequence[tuple[int, ...]]
) -> tuple[Ints, Floats]:
    """The rows in which there is something to decide, and in them weight·r of the choice that each
    order makes.
    """
    rows = np.flatnonzero(choices.decides & (weights > 0))
    apart = choices.apart[rows]
    unlike = choices.unlike[rows]
    wrong = choices.open[rows] & (unlike > 0)
    if wrong.any():
        mean = float(apart[wrong].mean())
    else:
        mean = 0.0
    prices = (
        weights[rows, None] * unlike * (apart + SMALL_DIFFERENCE_SHARE * mean if mean > 0 else 1.0)
    )
    few = Choices(choices.open[rows], unlike, apart)
    return rows, np.stack(
        [prices[np.arange(rows.size), made_by(order, few)] for order in orders], axis=1
    )
