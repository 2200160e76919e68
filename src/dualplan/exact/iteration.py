"""Optimal costs by value iteration, with certified bounds.

Average criterion. For every vector V and D = L V − V,

    min_x D(x)  <=  λ*  <=  max_x D(x),

since V + n·min D <= Lⁿ V. The iteration is V ← V + τ·D with τ < 1, which has the same fixed points and makes every
chain aperiodic; V is kept near 0 by subtracting a constant. If several recurrent classes have different optimal costs
the two bounds cannot meet, and the status says so.

Discounted criterion (MacQueen 1966). With V' = L V and D = V' − V,

    V' + γ/(1−γ)·min D  <=  J*  <=  V' + γ/(1−γ)·max D.

*Modified policy iteration* (Puterman & Shin 1978) puts sweeps of the greedy policy's own operator, which look at one
action instead of all, between two sweeps of L; the bounds are taken at the latter and hold as they stand.

Bounds are exact up to rounding: about 10⁻¹⁵ times the largest |V|.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualplan.criteria import Average, Criterion, Discounted
from dualplan.errors import InputError, unknown
from dualplan.exact.operators import Sweep, Sweeper
from dualplan.models.contract import Model
from dualplan.policies.tables import TablePolicy
from dualplan.status import Status
from dualplan.types import Floats, Ints, Json

METHODS = {"modified-policy-iteration": 20, "value-iteration": 0}  # and their inner sweeps
DAMPING = 0.98  # τ
RECENTRE = 64  # sweeps after which a constant is taken off the values
Progress = Callable[[int, float, float], None]


@dataclass(frozen=True, eq=False)
class ExactSolution:
    """The optimal cost between two bounds, and a policy that reaches the upper one."""

    model: Model
    lower: float
    upper: float
    values: Floats
    actions: Ints
    status: Status
    method: str
    sweeps: int
    seconds: float

    @property
    def value(self) -> float:
        """The middle of the bounds."""
        return (self.lower + self.upper) / 2

    @cached_property
    def policy(self) -> TablePolicy:
        """The greedy policy of the last sweep; its cost lies between the bounds."""
        return TablePolicy(self.model, self.actions, name="optimal")

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        return {
            "status": str(self.status),
            "advice": self.status.advice,
            "lower": self.lower,
            "upper": self.upper,
            "states": int(self.values.size),
            "method": self.method,
            "seconds": round(self.seconds, 3),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "sweeps": self.sweeps,
        }


def solve_exact(
    model: Model,
    criterion: Criterion | None = None,
    *,
    method: str | None = None,
    tol: float = 1e-4,
    max_sweeps: int = 200_000,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ExactSolution:
    """The optimal cost within `tol`, over all states of a bounded box.

    The default method is modified policy iteration, or value iteration where a sweep over all actions costs no more
    than one over the greedy policy's.
    """
    criterion = criterion or Average()
    if method is not None and method not in METHODS:
        raise unknown("exact method", method, METHODS)
    if not tol > 0 or max_sweeps < 1:
        raise InputError(f"tol must be positive and max_sweeps at least 1, got {tol!r} and {max_sweeps!r}.")
    started = time.monotonic()
    sweeper = Sweeper(model, threads)
    method = method or ("value-iteration" if sweeper.separable else "modified-policy-iteration")
    inner = METHODS[method]
    values, best = np.zeros(sweeper.states), np.zeros(sweeper.states, np.int64)
    gamma, damping = _gamma(criterion), 1.0 if isinstance(criterion, Discounted) else DAMPING
    weights = _start_weights(model, criterion)
    sweeps = 0
    while True:
        sweep = sweeper.optimal(values, gamma, damping=damping, best=best if inner else None)
        sweeps += 1
        lower, upper = _bounds(criterion, sweep, weights)
        if progress is not None:
            progress(sweeps, lower, upper)
        if upper - lower <= tol or sweeps >= max_sweeps:
            break
        values = sweep.values
        if inner:
            policy = TablePolicy(model, best)
            for _ in range(min(inner, max_sweeps - sweeps - 1)):
                values = sweeper.fixed(policy, values, gamma, damping=damping).values
                sweeps += 1
        if isinstance(criterion, Average) and sweeps % RECENTRE == 0:
            values -= values[0]
    sweeper.optimal(values, gamma, best=best)
    status = Status.SOLVED if upper - lower <= tol else Status.WIDE
    seconds = time.monotonic() - started
    return ExactSolution(model, lower, upper, sweep.values, best, status, method, sweeps, seconds)


def _gamma(criterion: Criterion) -> float:
    return criterion.gamma if isinstance(criterion, Discounted) else 1.0


def _start_weights(model: Model, criterion: Criterion) -> tuple[Ints, Floats] | None:
    if not isinstance(criterion, Discounted):
        return None
    starts, weights = criterion.start_distribution(model)
    return np.array([model.box.index(x) for x in starts]), weights


def _bounds(criterion: Criterion, sweep: Sweep, weights: tuple[Ints, Floats] | None) -> tuple[float, float]:
    if not isinstance(criterion, Discounted) or weights is None:
        return sweep.low, sweep.high
    at_start = float(sweep.values[weights[0]] @ weights[1])
    factor = criterion.gamma / (1 - criterion.gamma)
    return at_start + factor * sweep.low, at_start + factor * sweep.high
