"""One linear program after the other, with a limit on one measure at falling or rising levels.

All programs are over the same pairs, so occupancies that one of them has found are columns of the
others (`decomposition`), and so are those of policies that bring the measure down.

*Bounds serve all levels.* For a limit (n − b·d)ᵀu <= 0, any values h and any price w >= 0,

    λ(h, w; b) = min over pairs of  ℓ + w·(n − b·d) + P h − B h

is a lower bound at b (discounted: with its further terms), so the values and the price of a level
that was solved bound each other level, too, though less closely.

*Slopes.* With the optimal u at b and the price w, the least cost falls by w·dᵀu where b rises by 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dualplan.core.budgets import Clock
from dualplan.core.status import Status
from dualplan.core.types import Floats
from dualplan.exact.decomposition import Priced, best_response
from dualplan.exact.operators import Pairs
from dualplan.exact.programs import (
    LinearSolution,
    Program,
    least_measure,
    measure_ratio,
    solve_program,
)
from dualplan.models.criteria import Criterion
from dualplan.models.limits import Limit

# how near bounds shall come, of the cost: where programs are solved whole, and where decomposed
WHOLE_PROGRAM_GAP = 1e-6
DECOMPOSED_PROGRAM_GAP = 1e-5
# of the range of levels, by which the tightest lies above the least measure: there the only
# policies that keep the limit are those of the least measure, up to rounding
TIGHTEST_LEVEL_SHARE = 1e-4


@dataclass(frozen=True, eq=False)
class SolvedLevel:
    """A level, its solution, and by how much the least cost falls where the level rises by 1."""

    at_most: float
    solution: LinearSolution
    price: float

    @property
    def kept(self) -> bool:
        """Whether the policy keeps the limit."""
        return self.solution.limits[0].met


class Levels:
    """The least cost against a limit on one measure, level by level."""

    def __init__(
        self, pairs: Pairs, criterion: Criterion, measure: str, columns: list[Priced], clock: Clock
    ) -> None:
        self.pairs = pairs
        self.criterion = criterion
        self.measure = measure
        self.columns = columns
        self.clock = clock
        self.proofs: list[tuple[Floats, float]] = []  # values, and the price in units of the loss

    def ends(self) -> tuple[float, float]:
        """The tightest level, and the measure of a policy of the least cost."""
        program = self._program(0.0)
        n, d = program.measures[0]
        high = measure_ratio(n, d, self._cheapest().occupancy)
        least, found = least_measure(self.pairs, self.criterion, n, d, self.clock)
        self.columns += found
        if not high > least:
            return least, least
        return least + TIGHTEST_LEVEL_SHARE * (high - least), high

    def _cheapest(self) -> Priced:
        """The best policy without a limit, which begins the columns."""
        if not self.columns:
            tol = WHOLE_PROGRAM_GAP * float(np.abs(self.pairs.losses).max())
            losses = self.pairs.losses
            found = best_response(self.pairs, losses, self.criterion, tol, None, self.clock)
            self.columns.append(found)
        costs = [float(self.pairs.losses @ one.occupancy) for one in self.columns]
        return self.columns[int(np.argmin(costs))]

    def solve(self, at_most: float) -> SolvedLevel:
        """The program at a level."""
        program = self._program(at_most)
        cost = abs(float(self.pairs.losses @ self._cheapest().occupancy))
        gap = WHOLE_PROGRAM_GAP if program.whole else DECOMPOSED_PROGRAM_GAP
        found = solve_program(
            program,
            self.criterion,
            tol=max(gap * cost, 1e-12),
            clock=self.clock,
            columns=self.columns,
        )
        price = found.limits[0].multiplier
        self.proofs.append((found.values, price))
        lower = max([found.lower, *(self._bound(program, *proof) for proof in self.proofs)])
        if lower > found.lower and found.status is not Status.SOLVED:
            found = replace(found, lower=min(lower, found.upper))
        _, d = program.measures[0]
        return SolvedLevel(at_most, found, price * float(d @ found.occupancy))

    @property
    def weights(self) -> tuple[Floats, Floats]:
        """n and d of the measure, on all pairs."""
        return self._program(0.0).measures[0]

    def _program(self, at_most: float) -> Program:
        return Program(self.pairs, self.criterion, (Limit(self.measure, at_most),))

    def _bound(self, program: Program, values: Floats, price: float) -> float:
        """What the values and the price of another level prove at this one."""
        return program.lower_bound(values, np.array([price * program.scales[0]]))
