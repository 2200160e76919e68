"""A round of the symmetric dual program where only a simulator is known.

Steps of the best policy, a part of its actions drawn evenly, are watched for some of the time; laws
of next states are fitted to them (`dual/symmetric/seen.py`), and for several distances from the
reference the program gives values of actions. Later attempts watch longer, from the policy that is
best by then. Candidates are judged as all others are.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from dualplan.core.budgets import MOST_EXACT_STATES
from dualplan.core.deadlines import deadline, until
from dualplan.core.errors import OutOfTimeError
from dualplan.core.streams import DualWord, Place, own_seed
from dualplan.dual import symmetric
from dualplan.dual.symmetric.seen import fit_laws, fitted_reference, simulator_functions, watch
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy
from dualplan.policies.tables import as_table
from dualplan.search.contract import Candidate, Search

WATCHED_STEPS = 20_000  # in the first attempt; each next one watches twice as many
WATCHING_TIME_SHARE = 0.4
EXPLORING_SHARE = 0.3
DISTANCES = (0.3, 1.0, 3.0)  # KL from the reference
REFERENCE_STATES = 3_000


def simulated_round(search: Search, size: int) -> list[Candidate]:
    """A policy for each distance; those that there was time for."""
    model = search.model
    assert isinstance(model, SimulatorModel)
    best = search.incumbent.policy
    seed = search.fresh(Place.PROPOSAL)
    with until(deadline().part(WATCHING_TIME_SHARE * deadline().left)):
        seen = watch(
            model,
            best,
            search.criterion,
            steps=WATCHED_STEPS * 2**size,
            exploring=EXPLORING_SHARE,
            seed=own_seed(seed, DualWord.REFERENCE),
        )
    basis = simulator_functions(model, seen.states)
    laws = fit_laws(basis, seen, search.criterion)
    rng = np.random.default_rng(own_seed(seed, DualWord.POOL))
    chosen = rng.choice(len(seen), min(len(seen), REFERENCE_STATES), replace=False)
    reference = fitted_reference(laws, seen.states[np.sort(chosen)], best, EXPLORING_SHARE)
    found = []
    near = None
    with suppress(OutOfTimeError):
        for distance in DISTANCES:
            near = symmetric.solve_at_distance(reference, distance, near=near)
            policy: Policy = laws.action_values(near.values.weights, name="dual")
            if model.box.count is not None and model.box.count <= MOST_EXACT_STATES:
                policy = as_table(policy)
            found.append(Candidate(policy, f"dual, {len(basis)} functions"))
    return found
