"""The stationary law of each coordinate under a policy.

    μ_i(v) = Σ_{x : x_i = v} μ_π(x),   μ_π the stationary law of the chain that π makes.

Where states are few it is computed from the occupancy over all states that are reached
(`exact/policy.py`). Elsewhere it is measured: independent replicas are simulated in chunks, a state
is kept every so many steps, and the frequency of v is a ratio of sums over chunks. Warm-up, batches
and intervals are those of `core/intervals.py`, judged by the coordinate's own mean; an interval is
about one value, not about all of them at once. With one seed, policies meet the same events.

A coordinate that takes more than `MOST_SHOWN_VALUES` values is counted in bins of equal width.
Nothing on the simulated path is longer than the values that were seen times the number of chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dualplan.core.checks import require_inside, require_seed, require_whole
from dualplan.core.errors import ModelError
from dualplan.core.intervals import (
    Interval,
    cut_into_batches,
    dropped_chunks,
    growth,
    observations,
    ratio_interval,
    too_short,
)
from dualplan.core.status import COMPUTED, MEASURED, Status
from dualplan.core.threads import in_parallel
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.results import EXACT_EVALUATION, SIMULATED_EVALUATION, require_known_method
from dualplan.evaluation.simulation import REPLICAS, Engine, Replica, engine
from dualplan.exact.policy import evaluate_exact
from dualplan.models.contract import Model, coordinate_of, few_states
from dualplan.policies.contract import Policy, require_policies
from dualplan.policies.tables import tabulated

# of all replicas; slow are policies and simulators that are not compiled
MARGINAL_STEPS = 4_000_000
SLOW_MARGINAL_STEPS = 200_000
# chunks of a replica, and states kept of each at most
CHUNKS_A_REPLICA = 64
MOST_STATES_A_CHUNK = 512
MOST_SHOWN_VALUES = 400

Counts = tuple[Ints, Ints]  # values and how often they were seen


@dataclass(frozen=True, eq=False)
class Marginal:
    """The law of one coordinate under one policy: the probability of values[k] … values[k] + width
    − 1.

    `lower` and `upper` are intervals of single probabilities, equal to them where the law was
    computed; `mean` is that of the coordinate. Of a policy that is unstable there is no law: the
    frequencies are those of the run.
    """

    policy: str
    coordinate: str
    values: Ints
    width: int
    probabilities: Floats
    lower: Floats
    upper: Floats
    mean: Interval
    known: str
    status: Status

    @property
    def tail(self) -> Floats:
        """P(X ≥ v) for each of the values."""
        return np.asarray(np.cumsum(self.probabilities[::-1])[::-1])


def marginals(
    model: Model,
    policies: Policy | Sequence[Policy],
    *,
    coordinates: Sequence[str] | None = None,
    steps: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    method: str | None = None,
) -> list[Marginal]:
    """The stationary law of each coordinate under each policy, policy by policy.

    Computed where there are at most `EXACTLY` states or it is asked for, otherwise simulated with
    `steps` steps.
    """
    require_known_method(method)
    chosen = require_policies(model, policies)
    require_inside(confidence=confidence)
    require_seed(seed)
    if steps is not None:
        require_whole("steps", steps, least=REPLICAS * CHUNKS_A_REPLICA)
    places = _places(model, coordinates)
    found: list[Marginal] = []
    for policy in chosen:
        computed = _computed(model, policy, places, method)
        found += (
            _measured(model, policy, places, steps, seed, confidence)
            if computed is None
            else computed
        )
    return found


def _places(model: Model, coordinates: Sequence[str] | None) -> list[int]:
    if coordinates is None:
        return list(range(model.box.dim))
    return [coordinate_of(model, name) for name in coordinates]


# -- over all states -------------------------------------------------------------------------------


def _computed(
    model: Model, policy: Policy, places: Sequence[int], method: str | None
) -> list[Marginal] | None:
    if method == SIMULATED_EVALUATION:
        return None
    if method is None and not (few_states(model) and tabulated(policy).code is not None):
        return None
    try:
        run = evaluate_exact(model, policy)
    except ModelError:  # several recurrent classes: which one is entered is a matter of chance
        if method == EXACT_EVALUATION:
            raise
        return None
    states = model.box.states(run.reached)
    law = run.occupancy / run.occupancy.sum()
    return [_exact_law(model, policy, i, states[:, i], law, run.status) for i in places]


def _exact_law(
    model: Model, policy: Policy, i: int, seen: Ints, law: Floats, status: Status
) -> Marginal:
    low = int(seen.min())
    width = _width(int(seen.min()), int(seen.max()))
    p = np.bincount((seen - low) // width, law).astype(np.float64)
    mean = float(seen @ law)
    return Marginal(
        policy.name,
        model.coordinates[i],
        low + width * np.arange(p.size),
        width,
        p,
        p,
        p,
        Interval(mean, mean, mean, 1.0),
        COMPUTED,
        status,
    )


def _width(low: int, high: int) -> int:
    return -(-(high - low + 1) // MOST_SHOWN_VALUES)


# -- by simulation ---------------------------------------------------------------------------------


def _measured(
    model: Model,
    policy: Policy,
    places: Sequence[int],
    steps: int | None,
    seed: int,
    confidence: float,
) -> list[Marginal]:
    run = engine(model, policy, seed)
    each = (steps or (MARGINAL_STEPS if run.fast else SLOW_MARGINAL_STEPS)) // (
        REPLICAS * CHUNKS_A_REPLICA
    )
    kept = min(MOST_STATES_A_CHUNK, each)
    tasks = [partial(_replica, run, run.first(r), kept, each // kept) for r in range(REPLICAS)]
    counts = in_parallel(tasks, None if run.fast else 1)
    unstable = _unstable(model, counts, kept * (each // kept))
    return [
        _law(model, policy, i, [[chunk[i] for chunk in r] for r in counts], unstable, confidence)
        for i in places
    ]


def _replica(run: Engine, replica: Replica, kept: int, every: int) -> list[list[Counts]]:
    """For each chunk and coordinate, the values that were seen and how often."""
    found = []
    for _ in range(CHUNKS_A_REPLICA):
        states = run.visits(replica, kept, every)
        replica = Replica(
            replica.number, states[-1].copy(), replica.cycle, replica.steps + kept * every
        )
        found.append([np.unique(column, return_counts=True) for column in states.T])
    return found


def _unstable(model: Model, counts: Sequence[Sequence[Sequence[Counts]]], length: int) -> bool:
    if model.growing.size == 0:
        return False
    sizes = np.array(
        [[sum(_mean(chunk[i]) for i in model.growing) for chunk in replica] for replica in counts]
    )
    return growth(sizes, length).unstable


def _mean(counts: Counts) -> float:
    values, times = counts
    return float(values @ times / times.sum())


def _law(
    model: Model,
    policy: Policy,
    i: int,
    counts: Sequence[Sequence[Counts]],
    unstable: bool,
    confidence: float,
) -> Marginal:
    """Frequencies from sums over chunks: a column for each value, then the coordinate and the
    number of states.
    """
    low = min(int(values[0]) for replica in counts for values, _ in replica)
    high = max(int(values[-1]) for replica in counts for values, _ in replica)
    width = _width(low, high)
    bins = (high - low) // width + 1
    rows = np.zeros((len(counts), len(counts[0]), bins + 2))
    for r, replica in enumerate(counts):
        for j, (values, times) in enumerate(replica):
            np.add.at(rows[r, j], (values - low) // width, times)
            rows[r, j, bins:] = values @ times, times.sum()
    dropped = dropped_chunks(rows, column=bins)
    batches = cut_into_batches(rows, dropped, column=bins)
    worth = observations(rows, dropped, column=bins)
    intervals = [
        ratio_interval(batches[:, k], batches[:, -1], confidence, worth) for k in range(bins + 1)
    ]
    p, lower, upper = (
        np.array([getattr(x, end) for x in intervals[:-1]]) for end in ("value", "lower", "upper")
    )
    doubtful = low < high and too_short(rows, dropped, column=bins)
    if unstable:
        status = Status.UNSTABLE
    elif doubtful:
        status = Status.TOO_SHORT
    else:
        status = Status.COMPLETED
    return Marginal(
        policy.name,
        model.coordinates[i],
        low + width * np.arange(bins),
        width,
        p,
        np.maximum(lower, 0.0),
        np.minimum(upper, 1.0),
        intervals[-1],
        MEASURED,
        status,
    )
