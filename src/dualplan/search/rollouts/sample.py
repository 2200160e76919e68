"""Coupled copies from the outcomes of all alternatives, at states that policies visit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualplan.core.checks import require_counts, require_seed
from dualplan.core.errors import InputError
from dualplan.core.types import Bools, Ints
from dualplan.evaluation.simulation import Copies
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, require_criterion
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.search.rollouts.alternatives import (
    Alternatives,
    alternatives,
    visited_states,
    working,
)
from dualplan.search.rollouts.coupled import MOST_COUPLED_STEPS, Coupling, simulate_copies
from dualplan.values.contract import CompiledValues

LEAST_STATES_WITH_CHOICE = 20  # states with a choice that a fit needs
MOST_ATTEMPTS_AT_STATES = 8  # at finding as many states with a choice as were asked for


@dataclass(frozen=True, eq=False)
class RolloutSample:
    """Alternatives at states, and what the copies from their outcomes did: state k has rows
    places[k], ... of them.
    """

    model: Model
    policy: Policy
    criterion: Criterion
    within: Policy | None
    alternatives: tuple[Alternatives, ...]
    places: Ints
    copies: Copies
    repetitions: int
    horizon: int
    seed: int
    seconds: float

    @property
    def gamma(self) -> float:
        """The discount factor, 1 for the average criterion."""
        return self.criterion.gamma

    @cached_property
    def bases(self) -> Ints:
        """For each copy the row of the first of its state."""
        return np.repeat(self.places[:-1], np.diff(self.places))

    @cached_property
    def compared(self) -> Bools:
        """Which copies are not the first of their state."""
        return np.asarray(np.arange(self.bases.size) != self.bases)

    @property
    def met(self) -> float:
        """The share of copies that met the first of their state before the horizon."""
        return float(self.copies.met[self.compared].mean() / self.repetitions)

    @property
    def noise(self) -> float:
        """The mean variance of single repetitions; NaN if there is one only."""
        totals = self.copies.totals[self.compared]
        if self.repetitions > 1:
            return float(totals.var(axis=1, ddof=1).mean())
        return np.nan


def rollout_sample(
    model: Model,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    states: int = 2_000,
    repetitions: int = 1,
    horizon: int = MOST_COUPLED_STEPS,
    others: Sequence[Policy] = (),
    control: CompiledValues | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> RolloutSample:
    """Coupled copies from the outcomes of all alternatives, at states that a policy and others
    visit.
    """
    require_policy_of(model, policy)
    require_counts(states=states, repetitions=repetitions, horizon=horizon)
    require_seed(seed)
    criterion = require_criterion(criterion)
    within = working(model)
    started = time.monotonic()
    kept: list[Alternatives] = []
    for attempt in range(MOST_ATTEMPTS_AT_STATES):
        seen = visited_states(model, policy, criterion, 2 * states, seed + attempt, others)
        kept = (kept + alternatives(model, policy, seen, within=within, seed=seed + attempt))[
            :states
        ]
        if len(kept) == states:
            break
    if len(kept) < LEAST_STATES_WITH_CHOICE:
        raise InputError(
            f"policy {policy.name!r} came to {len(kept)} states with a choice, and a fit needs "
            f"{LEAST_STATES_WITH_CHOICE}; ask for more."
        )
    places = np.cumsum([0, *(len(a.outcomes) for a in kept)])
    rows = np.concatenate([a.outcomes for a in kept])
    coupling = Coupling(criterion.gamma, repetitions, horizon, control, seed)
    copies = simulate_copies(model, policy, places, rows, coupling, threads)
    return RolloutSample(
        model,
        policy,
        criterion,
        within,
        tuple(kept),
        places,
        copies,
        repetitions,
        horizon,
        seed,
        time.monotonic() - started,
    )
