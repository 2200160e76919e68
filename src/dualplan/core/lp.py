"""Linear programs through HiGHS: the one place that talks to it.

``min costsᵀx  subject to  row_low <= A x <= row_high,  low <= x <= high``. Infinite limits are
               `numpy.inf`. The duals y
of the rows have the sign of the derivative of the optimum with respect to the row's active limit.

`Growing` is a program to which columns are added, as constraint and column generation do; each
solve starts from the basis of the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan.core.deadlines import deadline
from dualplan.core.errors import OutOfTimeError
from dualplan.core.types import Floats

# Interior points without crossover first: where solutions are not unique they give one in the
# middle, which is accurate also where a basic solution is merely feasible. Then what is slower but
# surer.
SOLVER_ATTEMPTS: tuple[dict[str, Any], ...] = (
    {
        "solver": "ipm",
        "run_crossover": "off",
        "primal_feasibility_tolerance": 1e-9,
        "dual_feasibility_tolerance": 1e-9,
    },
    {"solver": "ipm"},
    {"solver": "simplex"},
)


TIME_LIMIT_WORD = "Time limit reached"


@dataclass(frozen=True, eq=False)
class Optimum:
    """A solution x and the duals y of the rows; without one, both are empty and `word` says why."""

    word: str
    x: Floats
    y: Floats

    @property
    def found(self) -> bool:
        """Whether there is a solution."""
        return self.word == "Optimal"


def minimise(
    costs: Floats,
    matrix: Any,
    rows: tuple[Floats, Floats],
    columns: tuple[Floats, Floats],
    *,
    feasible: bool = False,
) -> Optimum:
    """Solve a linear program.

    One known to be `feasible` is tried again where interior points say otherwise.
    """
    import highspy  # here, since it cannot share a process with OR-Tools

    sparse = sp.csc_array(matrix)
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = sparse.shape
    lp.col_cost_, (lp.col_lower_, lp.col_upper_), (lp.row_lower_, lp.row_upper_) = (
        costs,
        columns,
        rows,
    )
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = sparse.indptr
    lp.a_matrix_.index_ = sparse.indices
    lp.a_matrix_.value_ = sparse.data
    clock = deadline()
    for attempt in SOLVER_ATTEMPTS:
        if clock.over:
            raise OutOfTimeError
        solver = highspy.Highs()
        for option, value in {"output_flag": False, **attempt}.items():
            solver.setOptionValue(option, value)
        if math.isfinite(clock.left):
            solver.setOptionValue("time_limit", clock.left)
        solver.passModel(lp)
        solver.run()
        word = solver.modelStatusToString(solver.getModelStatus())
        if word == "Optimal":
            solution = solver.getSolution()
            return Optimum(word, np.array(solution.col_value), np.array(solution.row_dual))
        if word == TIME_LIMIT_WORD:
            raise OutOfTimeError
        if word == "Infeasible" and not feasible:
            break
    return Optimum(word, np.zeros(0), np.zeros(0))


WARM_START_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "solver": "simplex",
    # dual, although the last basis is feasible for the primal one: on these programs that stalls,
    # and takes three times as long (210 rows, 4,828 columns)
    "simplex_strategy": 1,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


class Growing:
    """``min costsᵀx  subject to  A x = right,  x >= 0``, by the simplex method, column after
    column.
    """

    def __init__(self, right: Floats) -> None:
        import highspy  # here, since it cannot share a process with OR-Tools

        self._solver = highspy.Highs()
        for option, value in WARM_START_OPTIONS.items():
            self._solver.setOptionValue(option, value)
        none = np.zeros(0, np.int32)
        starts = np.zeros(right.size, np.int32)
        self._solver.addRows(right.size, right, right, 0, starts, none, np.zeros(0))

    def add(self, costs: Floats, columns: Any) -> None:
        """Add columns of A with their costs."""
        sparse = sp.csc_array(columns)
        count = costs.size
        starts = sparse.indptr[:-1].astype(np.int32)
        indices = sparse.indices.astype(np.int32)
        limits = np.zeros(count), np.full(count, np.inf)
        self._solver.addCols(count, costs, *limits, sparse.nnz, starts, indices, sparse.data)

    def solve(self, *, timed: bool = True) -> Optimum:
        """Over the columns so far.

        A solution that was not found may still exist (`minimise` tries harder). Without `timed` it
        takes its time whatever the deadline, which is for programs of few rows and columns.
        """
        clock = deadline()
        if timed and math.isfinite(clock.left):
            # HiGHS counts from its first run
            spent = self._solver.getRunTime()
            self._solver.setOptionValue("time_limit", spent + clock.left)
        self._solver.run()
        word = self._solver.modelStatusToString(self._solver.getModelStatus())
        if word == TIME_LIMIT_WORD:
            raise OutOfTimeError
        if word != "Optimal":
            return Optimum(word, np.zeros(0), np.zeros(0))
        solution = self._solver.getSolution()
        return Optimum(word, np.array(solution.col_value), np.array(solution.row_dual))
