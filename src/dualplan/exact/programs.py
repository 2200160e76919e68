"""The linear programs of the paper, solved by HiGHS over all pairs, with side constraints.

    dual    min ℓᵀu   subject to   (B − P)ᵀu = 0,  1ᵀu = 1,  u >= 0                    (average)
                                   (B − γP)ᵀu = α,  u >= 0                             (discounted)
    primal  max λ     subject to   λ1 + B h <= ℓ + P h                                 (average)
            max αᵀJ   subject to   B J <= ℓ + γP J                                     (discounted)

Limits are further rows (n_i − b_i·d_i)ᵀu <= 0 of the dual, and in the primal multipliers w_i >= 0
that change ℓ into ℓ_w = ℓ + Σ w_i·(n_i − b_i·d_i). The sum of the flow rows is 0 in the average
case, so the row of one state is left out (h is 0 there). The two programs are one matrix passed in
one of two ways; either solution gives u, the values and w.

Bounds do not rely on the solver's tolerances. For any values and any w >= 0, min(ℓ_w + P h − B h),
respectively αᵀJ + min(ℓ_w + γP J − B J)/(1−γ), is a lower bound. The upper bound is the exactly
evaluated cost of the policy π_u(a|x) = u(x,a)/Σ u(x,·), whose measures are evaluated too; states
that u hardly visits take the action that is best for the values. Beyond a few thousand pairs the
program is decomposed (see `decomposition`). The average programs above are about the cheapest class
of states anywhere; where there are several to end in, and no limits, the multichain program is
solved instead (see `multichain`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan.core.budgets import Clock, seconds
from dualplan.core.checks import require_positive, require_threads
from dualplan.core.errors import InputError, unknown
from dualplan.core.lp import Optimum, minimise
from dualplan.core.shown import Shown
from dualplan.core.status import Status
from dualplan.core.types import Floats, Json
from dualplan.exact.decomposition import Answer, Priced, best_response, decompose
from dualplan.exact.iteration import VALUE_ITERATION_DAMPING, peak_mb, rounding
from dualplan.exact.multichain import MultichainAnswer, several_ends, solve_multichain
from dualplan.exact.operators import Pairs, Sweeper
from dualplan.exact.policy import evaluate_exact
from dualplan.models.contract import Model
from dualplan.models.criteria import Average, Criterion, Discounted, require_criterion
from dualplan.models.limits import Limit, require_limits
from dualplan.policies.tables import TablePolicy

PROGRAM_FORMS = ("dual", "primal")
LIGHT_STATE_SHARE = 1e-6  # of the total mass: states below it take their action from the values
# pairs up to which a program is solved whole; beyond, it is decomposed
MOST_WHOLE_PROGRAM_PAIRS = 8_000
LEAST_RATIO_STEPS = 20  # steps towards the least ratio
MOST_POLISHING_SWEEPS = 20_000  # sweeps of the values at most
LIMIT_SLACK_SHARE = 1e-6  # of a limit, that the evaluated policy may use up


@dataclass(frozen=True, eq=False)
class LimitReport:
    """What became of a limit: the policy's exact measure, the price of the limit, and whether the
    policy keeps it.

    It does if Σ(n − limit·d)·u is at most `LIMIT_SLACK_SHARE` times the greatest |n − limit·d|
    times Σu: rounding in the solver.
    """

    name: str
    at_most: float
    value: float
    multiplier: float
    met: bool


@dataclass(frozen=True, eq=False, repr=False)
class LinearSolution(Shown):
    """The optimal cost between two bounds.

    The occupancy over `pairs`, and its policy, which may be randomised.
    """

    lower: float
    upper: float
    pairs: Pairs
    occupancy: Floats
    values: Floats
    policy: TablePolicy
    limits: tuple[LimitReport, ...]
    status: Status
    method: str
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """The middle of the bounds."""
        return (self.lower + self.upper) / 2

    @property
    def cost(self) -> float:
        """What the policy costs, within the bounds."""
        return self.value

    def to_json(self) -> Json:
        """Everything but the vectors, as plain values."""
        result = {
            "status": str(self.status),
            "advice": self.status.advice,
            "lower": self.lower,
            "upper": self.upper,
            "states": int(self.values.size),
            "pairs": int(self.occupancy.size),
            "method": self.method,
            "seconds": round(self.seconds, 3),
            "peak_mb": peak_mb(),
            "sweeps": 0,
        }
        if self.notes:
            result["notes"] = list(self.notes)
        if self.limits:
            result["limits"] = [
                {
                    "measure": r.name,
                    "at_most": r.at_most,
                    "value": r.value,
                    "multiplier": r.multiplier,
                    "met": r.met,
                }
                for r in self.limits
            ]
        return result


def solve_lp(
    model: Model,
    criterion: Criterion | None = None,
    *,
    limits: Sequence[Limit | str] = (),
    form: str = "dual",
    tol: float = 1e-4,
    time: str | float | None = None,
    threads: int | None = None,
) -> LinearSolution:
    """The optimum under side constraints, over all pairs of a model that can be enumerated."""
    if form not in PROGRAM_FORMS:
        raise unknown("form of the linear program", form, PROGRAM_FORMS)
    criterion = require_criterion(criterion)
    require_positive(tol=tol)
    require_threads(threads)
    limits = require_limits(limits)
    clock = Clock(math.inf if time is None else seconds(time))
    program = Program(Sweeper(model, threads).pairs, criterion, limits)
    if program.whole and not limits and program.average and several_ends(program.pairs):
        several = solve_multichain(program.pairs, program.start)
        if several is not None:
            return _of_several_classes(program, several, tol, clock)
    return solve_program(program, criterion, form=form, tol=tol, clock=clock, threads=threads)


def solve_program(
    program: Program,
    criterion: Criterion,
    *,
    form: str = "dual",
    tol: float,
    clock: Clock,
    threads: int | None = None,
    columns: list[Priced] | None = None,
) -> LinearSolution:
    """The solution of a program, whole or decomposed, with a policy that is evaluated exactly.

    A decomposed one begins with the `columns`, and appends those that it finds.
    """
    whole = program.whole
    if whole:
        answer = program.solve(form, tol)
    else:
        answer = None
    if answer is None:  # large, or HiGHS sees no solution: its word is not proof
        whole = False
        answer = decompose(program, criterion, tol / 2, clock, columns)
    if answer is None:
        raise InputError(_which_is_infeasible(program, criterion))
    u, values, multipliers, lower = answer
    policy = program.policy(u, values, multipliers, LIGHT_STATE_SHARE if whole else 0.0)
    evaluation = evaluate_exact(program.pairs.model, policy, criterion, threads=threads)
    reports = program.reports(evaluation.reached, evaluation.occupancy, policy, multipliers)
    # a policy that uses up rounding in a limit may cost less than the bound; one that breaks a
    # limit bounds nothing
    if all(r.met for r in reports):
        upper = max(evaluation.upper, lower)
    else:
        upper = np.inf
    good = upper - lower <= tol and all(r.met for r in reports)
    if good:
        status = Status.SOLVED
    else:
        status = Status.WIDE
    return LinearSolution(
        lower,
        upper,
        program.pairs,
        u,
        values,
        policy,
        reports,
        status,
        f"{form}-lp" if whole else "decomposed-lp",
        clock.spent,
    )


def _of_several_classes(
    program: Program, found: MultichainAnswer, tol: float, clock: Clock
) -> LinearSolution:
    if found.upper - found.lower <= tol:
        status = Status.SOLVED
    else:
        status = Status.WIDE
    notes: tuple[str, ...] = ()
    if found.classes > 1:
        notes = (
            f"the policy ends in one of {found.classes} recurrent classes, by chance: the cost is "
            "the expectation from the start.",
        )
    return LinearSolution(
        found.lower,
        found.upper,
        program.pairs,
        found.occupancy,
        found.values,
        found.policy,
        (),
        status,
        "multichain-lp",
        clock.spent,
        notes,
    )


class Program:
    """The matrix A with a column for each pair, its right-hand sides, and what its solutions
    mean.
    """

    def __init__(self, pairs: Pairs, criterion: Criterion | None, limits: Sequence[Limit]) -> None:
        model = pairs.model
        self.pairs = pairs
        self.limits = limits
        self.losses = pairs.losses
        self.gamma = (criterion or Average()).gamma
        self.average = not isinstance(criterion, Discounted)
        self.start = np.zeros(pairs.matrix.shape[1])
        if isinstance(criterion, Discounted):
            for x, p in zip(*criterion.start_distribution(model), strict=True):
                self.start[model.box.index(x)] += p
        else:
            self.start[model.box.index(model.start)] = 1.0
        widths = model.box.upper - model.box.lower + 1
        if limits:
            states = model.box.lower + pairs.states[:, None] // model.box.strides % widths
        else:
            states = np.zeros((0, 0), np.int64)
        if any(isinstance(limit.measure, str) for limit in limits):
            sums = pairs.sums
        else:
            sums = np.zeros((0, 0))
        self.measures = [limit.weights(model, states, pairs.actions, sums) for limit in limits]
        for limit, (_, d) in zip(limits, self.measures, strict=True):
            if d.min() < 0:
                raise InputError(
                    f"the denominator of the limit on {limit.name!r} is negative somewhere."
                )
        rows = [n - limit.at_most * d for limit, (n, d) in zip(limits, self.measures, strict=True)]
        self.scales = np.array([max(float(np.abs(row).max()), 1e-300) for row in rows])
        self.rows = [row / scale for row, scale in zip(rows, self.scales, strict=True)]
        if self.average:
            self._left_out = int(np.argmax(self.start))
        else:
            self._left_out = -1

    @property
    def whole(self) -> bool:
        """Whether it is small enough to be solved as it is."""
        return self.losses.size <= MOST_WHOLE_PROGRAM_PAIRS

    @cached_property
    def flow(self) -> Any:
        """B − γP, pairs by states."""
        count, size = self.pairs.matrix.shape
        b = sp.csr_array(
            (np.ones(count), (np.arange(count), self.pairs.states)), shape=(count, size)
        )
        return b - self.gamma * self.pairs.matrix

    @cached_property
    def _matrix(self) -> tuple[Any, Floats, Floats]:
        """A without the limits, its right-hand side, and the limits."""
        size = self.start.size
        count = self.losses.size
        if not self.average:
            return sp.csc_array(self.flow).T, self.start, np.reshape(self.rows, (-1, count))
        kept = np.delete(np.arange(size), self._left_out)
        matrix = sp.vstack([sp.csc_array(self.flow)[:, kept].T, sp.csr_array(np.ones((1, count)))])
        return matrix, np.append(np.zeros(size - 1), 1.0), np.reshape(self.rows, (-1, count))

    def solve(self, form: str, tol: float) -> Answer | None:
        """By HiGHS; None if it finds no solution."""
        found, u, y = self._dual() if form == "dual" else self._primal()
        if not found.found:
            return None
        values, multipliers = self._potential(y)
        values = self._polished(values, multipliers, tol)
        return u, values, multipliers, self.lower_bound(values, multipliers)

    def _dual(self) -> tuple[Optimum, Floats, Floats]:
        """Solve for u: the answer, u and the multipliers of all rows."""
        flow, right, limits = self._matrix
        high = np.append(right, np.zeros(len(limits)))
        low = np.append(right, np.full(len(limits), -np.inf))
        everywhere = np.zeros(self.losses.size), np.full(self.losses.size, np.inf)
        found = minimise(
            self.losses, sp.vstack([flow, sp.csr_array(limits)]), (low, high), everywhere
        )
        return found, found.x, found.y

    def _primal(self) -> tuple[Optimum, Floats, Floats]:
        """Solve for the values and the multipliers; what is returned is the same."""
        flow, right, limits = self._matrix
        free = np.full(right.size, np.inf)
        count = len(limits)
        columns = np.append(-free, np.full(count, -np.inf)), np.append(free, np.zeros(count))
        rows = np.full(self.losses.size, -np.inf), self.losses
        matrix = sp.csr_array(sp.vstack([flow, sp.csr_array(limits)])).T
        found = minimise(np.append(-right, np.zeros(count)), matrix, rows, columns)
        return found, -found.y, found.x

    def _potential(self, y: Floats) -> tuple[Floats, Floats]:
        """The values over all states and the multipliers of the limits, from those of A's rows."""
        size = self.start.size
        if not self.average:
            return y[:size], np.maximum(-y[size:], 0.0)
        return np.insert(y[: size - 1], self._left_out, 0.0), np.maximum(-y[size:], 0.0)

    def shaped(self, values: Floats, multipliers: Floats) -> Floats:
        """ℓ_w + γP h − B h on all pairs."""
        return np.asarray(self.priced(multipliers) - self.flow @ values)

    def priced(self, multipliers: Floats) -> Floats:
        """ℓ_w on all pairs."""
        prices = sum(w * row for w, row in zip(multipliers, self.rows, strict=True))
        return np.asarray(self.losses + prices)

    def lower_bound(self, values: Floats, multipliers: Floats) -> float:
        """Valid for any values and any multipliers that are not negative."""
        losses = self.priced(multipliers)
        largest = float(np.abs(values).max(initial=0.0) + np.abs(losses).max())
        least = float((losses - self.flow @ values).min())
        # limits are further terms of a sum, and were added up as the outcomes are
        least -= rounding(largest, self.pairs.model.code.max_outcomes + 2 * len(self.limits))
        if self.average:
            return least
        return float(self.start @ values) + least / (1 - self.gamma)

    def _polished(self, values: Floats, multipliers: Floats, tol: float) -> Floats:
        """The values after sweeps, until L V − V is nearly constant.

        A solution of the program need not satisfy the optimality equation in states without mass,
        where the policy takes its action from the values.
        """
        shaped = self.shaped(values, multipliers)
        first = np.flatnonzero(np.diff(self.pairs.states, prepend=-1))
        for _ in range(MOST_POLISHING_SWEEPS):
            difference = np.minimum.reduceat(shaped, first)
            if np.ptp(difference) <= tol / 10:
                break
            values = values + VALUE_ITERATION_DAMPING * (
                difference - difference[self._left_out] if self.average else difference
            )
            shaped = self.shaped(values, multipliers)
        return values

    def policy(self, u: Floats, values: Floats, multipliers: Floats, light: float) -> TablePolicy:
        """π_u, completed where u has hardly any mass."""
        pairs = self.pairs
        u = np.maximum(u, 0.0)
        mass = pairs.marginal(u)
        heavy = mass > light * mass.sum()
        table = np.zeros((mass.size, len(pairs.model.actions)))
        visited = heavy[pairs.states]
        table[pairs.states[visited], pairs.actions[visited]] = (
            u[visited] / mass[pairs.states[visited]]
        )
        _choose(table, pairs, ~heavy, self.shaped(values, multipliers))
        return TablePolicy(pairs.model, table, name="optimal")

    def reports(
        self, reached: Any, occupancy: Floats, policy: TablePolicy, multipliers: Floats
    ) -> tuple[LimitReport, ...]:
        """What became of the limits under a policy, from its exact occupancy."""
        mu = np.zeros(self.start.size)
        mu[reached] = occupancy
        u = mu[self.pairs.states] * policy.table[self.pairs.states, self.pairs.actions]
        met = [float(row @ u) <= LIMIT_SLACK_SHARE * float(u.sum()) for row in self.rows]
        values = [measure_ratio(n, d, u) for n, d in self.measures]
        prices = (multipliers / self.scales).tolist()
        return tuple(
            LimitReport(limit.name, limit.at_most, *rest)
            for limit, *rest in zip(self.limits, values, prices, met, strict=True)
        )


def measure_ratio(n: Floats, d: Floats, u: Floats) -> float:
    """The measure of an occupancy; not a number where nothing is counted."""
    bottom = float(d @ u)
    if bottom != 0:
        return float(n @ u) / bottom
    return float("nan")


def _choose(table: Floats, pairs: Pairs, where: Any, scores: Floats) -> None:
    """In the states `where`, put all probability on the pair with the least score."""
    order = np.lexsort((scores, pairs.states))
    states, first = np.unique(pairs.states[order], return_index=True)
    best = order[first][where[states]]
    table[pairs.states[best], pairs.actions[best]] = 1.0


def _which_is_infeasible(program: Program, criterion: Criterion | None) -> str:
    """Say which limit cannot be kept, and how far its measure can be brought down."""
    name = program.pairs.model.name
    for limit, row, (n, d) in zip(program.limits, program.rows, program.measures, strict=True):
        if best_response(program.pairs, row, criterion, LIMIT_SLACK_SHARE).lower > 0:
            return (
                f"no policy of {name!r} keeps the limit {limit.name} <= {limit.at_most:g}; the "
                f"nearest has {least_measure(program.pairs, criterion, n, d)[0]:.6g}."
            )
    names = ", ".join(f"{limit.name} <= {limit.at_most:g}" for limit in program.limits)
    return f"no policy of {name!r} keeps all of these limits together: {names}; relax one of them."


def least_measure(
    pairs: Pairs, criterion: Criterion | None, n: Floats, d: Floats, clock: Clock | None = None
) -> tuple[float, list[Priced]]:
    """The least ratio of n to d that a policy can have, and the policies on the way there: minimise
    n − ratio·d, take the ratio it has (Dinkelbach).
    """
    scale = max(float(np.abs(n).max()), 1e-300)
    ratio = float("nan")
    found = [best_response(pairs, n / scale, criterion, LIMIT_SLACK_SHARE, None, clock)]
    for _ in range(LEAST_RATIO_STEPS):
        before = ratio
        ratio = measure_ratio(n, d, found[-1].occupancy)
        if not np.isfinite(ratio) or abs(ratio - before) <= LIMIT_SLACK_SHARE * abs(ratio):
            break
        losses = (n - ratio * d) / scale
        start = found[-1].values
        found.append(best_response(pairs, losses, criterion, LIMIT_SLACK_SHARE, start, clock))
    return ratio, found
