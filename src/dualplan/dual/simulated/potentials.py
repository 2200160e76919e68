"""Potentials from simulated transitions.

h = Ψw solves E[ψ(x)(ℓ − λ + γ h(x') − h(x))] = 0 for every ψ of a basis (least-squares temporal
differences; λ the mean loss, 0 for the discounted criterion). It is not the bias, only a projection
of it, and no bound rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan.core.types import Floats
from dualplan.dual.features.ratios import portfolio
from dualplan.dual.simulated.problem import SimulatedALP
from dualplan.evaluation.simulation import REPLICAS, Recorded
from dualplan.models.criteria import Criterion, Discounted
from dualplan.policies.contract import Policy, require_policy
from dualplan.values.basis import Basis, LinearValues, least_squares
from dualplan.values.partitions import whole
from dualplan.values.test_functions import Cells, Witnesses


def fitted_potential(
    reference: Policy,
    basis: Basis,
    criterion: Criterion | None = None,
    *,
    samples: int = 400_000,
    every: int = 1,
    warm_up: int | None = None,
    expected: bool = False,
    seed: int = 0,
    threads: int | None = None,
) -> LinearValues:
    """Ψw by least-squares temporal differences from simulated transitions of a policy.

    An estimate without a bound.
    """
    problem = visits(
        reference,
        criterion,
        samples=samples,
        every=every,
        warm_up=warm_up,
        expected=expected,
        seed=seed,
        threads=threads,
    )
    return temporal_differences(problem, basis).fitted(range(REPLICAS))


def visits(policy: Policy, criterion: Criterion | None = None, **options: Any) -> SimulatedALP:
    """The problem of a policy alone, for its transitions; `options` are those of `SimulatedALP`."""
    require_policy(policy)
    tests = Witnesses((Cells(whole(policy.model)),))
    return SimulatedALP(portfolio(policy, [policy]), tests, criterion, **options)


@dataclass(frozen=True, eq=False)
class TemporalDifferences:
    """Sums over the transitions of each trajectory, along the first axis: all that least squares
    need.

    `matrix` of ψ(x)(ψ(x) − γψ(x'))ᵀ, `right` of ψ(x)ℓ, `sums` of ψ(x), `losses` of ℓ, and `counts`.
    """

    basis: Basis
    discounted: bool
    matrix: Floats
    right: Floats
    sums: Floats
    losses: Floats
    counts: Floats

    def level(self, chosen: Sequence[int]) -> float:
        """λ: the mean loss of the chosen trajectories, 0 for the discounted criterion."""
        own = list(chosen)
        if self.discounted:
            return 0.0
        return float(self.losses[own].sum() / self.counts[own].sum())

    def fitted(self, chosen: Sequence[int]) -> LinearValues:
        """Ψw from the chosen trajectories; the constant is left free: least norm sets it."""
        own = list(chosen)
        count = float(self.counts[list(chosen)].sum())
        right = self.right[own].sum(axis=0) - self.level(own) * self.sums[own].sum(axis=0)
        weights = least_squares(self.matrix[own].sum(axis=0) / count, right / count)
        return LinearValues(self.basis, weights)


def temporal_differences(
    problem: SimulatedALP, basis: Basis, recorded: Iterable[list[Recorded]] | None = None
) -> TemporalDifferences:
    """The sums of a basis over the problem's transitions, which may have been recorded already."""
    size = len(basis)
    matrix, right, sums = (
        np.zeros((REPLICAS, *shape)) for shape in ((size, size), (size,), (size,))
    )
    losses = np.zeros(REPLICAS)
    counts = np.zeros(REPLICAS)
    for chunk in problem.transitions() if recorded is None else recorded:
        for r, o in enumerate(map(problem.outcomes, chunk)):
            here = basis(o.states)
            weighted = o.weights[:, None] * here
            matrix[r] += weighted.T @ (here - o.gammas[:, None] * (o.mean @ basis(o.following)))
            right[r] += weighted.T @ o.losses
            sums[r] += weighted.sum(axis=0)
            losses[r] += float(o.losses @ o.weights)
            counts[r] += float(o.weights.sum())
    return TemporalDifferences(
        basis, isinstance(problem.criterion, Discounted), matrix, right, sums, losses, counts
    )
