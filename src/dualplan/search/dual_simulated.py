"""The symmetric dual program in rounds where only a simulator is known.

Steps of the best policy, some of its actions drawn evenly, are watched, and where the simulator
goes on from any state, every action is tried at some of the states that were met. Laws of next
states are fitted to them (`dual/symmetric/seen.py`), and for several distances from the reference
the program gives values of actions. What costs least of their policies, by short simulations on the
same random numbers, is the reference of the next round, whether or not it is better than the one
before: values are of the policy that they are fitted to, and it takes a few rounds to get away from
a poor one. The policies of all rounds are candidates, judged as all others are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from dualplan.core.budgets import MOST_EXACT_STATES
from dualplan.core.deadlines import deadline, until
from dualplan.core.errors import ModelError, OutOfTimeError, PolicyError
from dualplan.core.streams import DualWord, Place, own_seed
from dualplan.core.types import Ints
from dualplan.dual import symmetric
from dualplan.dual.symmetric import Reference
from dualplan.dual.symmetric.seen import (
    MOST_INDICATORS,
    FittedLaws,
    fit_laws,
    fitted_reference,
    simulator_functions,
    try_all,
    watch,
)
from dualplan.evaluation.judge import Judge
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy
from dualplan.policies.tables import as_table
from dualplan.search.contract import Candidate, Search

ROUNDS = 6
ROUND_TIME_SHARE = 0.4  # of what is left, for one of them
WATCHING_TIME_SHARE = 0.3  # of a round
TRYING_TIME_SHARE = 0.3  # of what is left then
# steps that are watched where there is time for them, and numbers that are held of them
WATCHED_STEPS = 150_000
MOST_WATCHED_NUMBERS = 2**25
MOST_FUNCTIONS = 200
TRIES = 2  # of every action at a state, where the simulator goes on from any
EXPLORING_SHARE = 0.3
EXPLORING_SHARE_WITH_TRIES = 0.1  # where all actions are tried anyway
DISTANCES = (0.3, 1.0, 3.0)  # KL from the reference
REFERENCE_STATES = 3_000
COMPARED_STEPS = 2_000


def simulated_rounds(search: Search) -> list[Candidate]:
    """The best policy of each round that there was time for."""
    found: list[Candidate] = []
    policy = search.incumbent.policy
    seed = search.fresh(Place.PROPOSAL)
    with suppress(OutOfTimeError):
        for k in range(ROUNDS):
            one = _Round(search, policy, own_seed(seed, DualWord.ROUND + k))
            with until(deadline().part(ROUND_TIME_SHARE * deadline().left)):
                made = one.candidates()
                found += made
            if not made:
                break
            policy = one.cheapest([candidate.policy for candidate in made])
    if not found:
        raise OutOfTimeError
    return found


@dataclass(frozen=True, eq=False)
class _Round:
    """A reference around a policy."""

    search: Search
    policy: Policy
    seed: int

    @property
    def model(self) -> SimulatorModel:
        """A simulator."""
        assert isinstance(self.search.model, SimulatorModel)
        return self.search.model

    @property
    def exploring(self) -> float:
        """The share of actions that are drawn."""
        return EXPLORING_SHARE_WITH_TRIES if self.model.resumable else EXPLORING_SHARE

    def candidates(self) -> list[Candidate]:
        """A policy for each distance."""
        reference, laws = self._reference()
        found = []
        near = None
        with suppress(OutOfTimeError):
            for distance in DISTANCES:
                near = symmetric.solve_at_distance(reference, distance, near=near)
                policy = self._quick(laws.action_values(near.values.weights, name="dual"))
                found.append(Candidate(policy, f"dual, {len(laws.basis)} functions"))
        return found

    def cheapest(self, policies: list[Policy]) -> Policy:
        """By short simulations."""
        judge = Judge(
            method="simulation", steps=COMPARED_STEPS, seed=own_seed(self.seed, DualWord.LATE)
        )
        costs = [np.inf] * len(policies)
        for k, policy in enumerate(policies):
            with suppress(ModelError, PolicyError):
                costs[k] = judge(self.model, policy, self.search.criterion).cost
        return policies[int(np.argmin(costs))]

    def _reference(self) -> tuple[Reference, FittedLaws]:
        """What was seen of the policy, and laws that are fitted to it."""
        model = self.model
        criterion = self.search.criterion
        with until(deadline().part(WATCHING_TIME_SHARE * deadline().left)):
            seen = watch(
                model,
                self.policy,
                criterion,
                steps=_most_steps(model),
                exploring=self.exploring,
                seed=own_seed(self.seed, DualWord.REFERENCE),
            )
        basis = simulator_functions(model, seen.states, MOST_FUNCTIONS)
        states = self._drawn(seen.states)
        if not model.resumable:
            laws = fit_laws(basis, seen, criterion)
        else:
            most = _most_steps(model) // (TRIES * len(model.actions))
            with until(deadline().part(TRYING_TIME_SHARE * deadline().left)):
                tried, shares = try_all(
                    model,
                    states[: max(1, most)],
                    tries=TRIES,
                    seed=own_seed(self.seed, DualWord.TRIALS),
                )
            laws = fit_laws(basis, tried, criterion, shares)
        return fitted_reference(laws, states, self.policy, self.exploring), laws

    def _drawn(self, states: Ints) -> Ints:
        rng = np.random.default_rng(own_seed(self.seed, DualWord.POOL))
        chosen = rng.choice(len(states), min(len(states), REFERENCE_STATES), replace=False)
        return np.ascontiguousarray(states[chosen])

    def _quick(self, policy: Policy) -> Policy:
        """As a table, where states are few."""
        count = self.model.box.count
        if count is not None and count <= MOST_EXACT_STATES:
            return as_table(policy)
        return policy


def _most_steps(model: SimulatorModel) -> int:
    """Steps that there is room for, with the functions that states will have."""
    count = model.box.count
    few = count is not None and count <= MOST_INDICATORS
    functions = int(count or 0) if few else MOST_FUNCTIONS
    return min(WATCHED_STEPS, MOST_WATCHED_NUMBERS // max(functions, 1))
