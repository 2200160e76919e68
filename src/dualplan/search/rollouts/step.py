"""One step of improvement: candidates to replace a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualplan.core.checks import require_counts, require_seed
from dualplan.core.streams import RolloutShift
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, require_criterion
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.policies.greedy import GreedyPolicy
from dualplan.search.rollouts.coupled import MOST_COUPLED_STEPS
from dualplan.search.rollouts.fit import RolloutFit, default_bases, fit_values
from dualplan.search.rollouts.sample import LEAST_STATES_WITH_CHOICE, rollout_sample
from dualplan.values.basis import Basis, LinearValues

MOST_ROLLOUT_STATES = 20_000  # states: where copies meet at once, these cost more than steps
# of a step: see `rollout_step`
CONTROL_STEPS_SHARE = 0.25
PILOT_STATES = 40
WORTHWHILE_NOISE_RATIO = 4.0


def rollout_step(
    model: Model,
    incumbent: Policy,
    criterion: Criterion | None = None,
    *,
    steps: int = 20_000_000,
    horizon: int = MOST_COUPLED_STEPS,
    bases: Sequence[Basis] | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> list[GreedyPolicy]:
    """Candidates to replace a policy: greedy for fits of several bases, to be judged by their own
    cost.

    About `steps` steps of copies are simulated, from at most `MOST_ROLLOUT_STATES` states. A
    quarter of it goes to a first fit. It becomes the control variate of the rest if a pilot finds
    that it cuts the variance by more than `WORTHWHILE_NOISE_RATIO`, which is about what its steps
    cost more. If the incumbent is greedy for values itself, the half-way points between these and
    the fits are candidates too.
    """
    require_policy_of(model, incumbent)
    require_criterion(criterion)
    require_counts(steps=steps)
    require_seed(seed)
    if bases is None:
        tried = default_bases(model)
    else:
        tried = list(bases)
    common: dict[str, Any] = {"horizon": horizon, "threads": threads}
    pilot = rollout_sample(
        model, incumbent, criterion, states=PILOT_STATES, repetitions=2, seed=seed, **common
    )
    each = pilot.copies.steps / (2 * len(pilot.alternatives))
    sizes = [
        min(max(LEAST_STATES_WITH_CHOICE, int(share * steps / max(each, 1.0))), MOST_ROLLOUT_STATES)
        for share in (CONTROL_STEPS_SHARE, 1 - CONTROL_STEPS_SHARE)
    ]
    first = rollout_sample(
        model, incumbent, criterion, states=sizes[0], seed=seed + RolloutShift.CONTROL, **common
    )
    control = fit_values(first, tried[0]).values
    again = rollout_sample(
        model,
        incumbent,
        criterion,
        states=PILOT_STATES,
        repetitions=2,
        control=control,
        seed=seed,
        **common,
    )
    useful = again.noise * WORTHWHILE_NOISE_RATIO < pilot.noise
    sample = rollout_sample(
        model,
        incumbent,
        criterion,
        states=sizes[1],
        control=control if useful else None,
        seed=seed + RolloutShift.CANDIDATES,
        **common,
    )
    return _candidates(incumbent, [fit_values(sample, basis) for basis in tried])


def _candidates(incumbent: Policy, fits: Sequence[RolloutFit]) -> list[GreedyPolicy]:
    found = [fit.policy(f"rollouts, {len(fit.values.basis)} functions") for fit in fits]
    if isinstance(incumbent, GreedyPolicy) and isinstance(incumbent.values, LinearValues):
        old = incumbent.values
        found += [
            GreedyPolicy(
                p.model,
                _between(old, fit.values),
                p.gamma,
                name=f"{p.name}, half-way",
                within=p.within,
            )
            for p, fit in zip(list(found), fits, strict=True)
        ]
    return found


def _between(first: LinearValues, second: LinearValues) -> LinearValues:
    """Half of the one plus half of the other."""
    a = first.basis
    b = second.basis
    both = Basis(a.model, a.products + b.products, a.labels + b.labels, a.user + b.user)
    split = [np.split(v.weights, [len(v.basis.products)]) for v in (first, second)]
    return LinearValues(
        both, np.concatenate([split[0][0], split[1][0], split[0][1], split[1][1]]) / 2
    )
