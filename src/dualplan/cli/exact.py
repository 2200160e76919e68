"""``dualplan exact``."""

from __future__ import annotations

import math
import time
from typing import Annotated

import typer

from dualplan.cli.command import stop_if_interrupted
from dualplan.cli.inputs import ModelArgument, load_model
from dualplan.cli.options import CriterionOption, GammaOption, JsonOption, SetOption, ThreadsOption
from dualplan.cli.output import Update, bar, out_console, print_json
from dualplan.cli.tables import print_rows
from dualplan.core.errors import InputError, unknown
from dualplan.core.runs import Run, require_free
from dualplan.core.status import Status
from dualplan.core.types import Json
from dualplan.core.words import ends
from dualplan.exact import ExactSolution, LinearSolution, solve_exact, solve_lp
from dualplan.exact.iteration import ITERATION_METHODS as ITERATIONS
from dualplan.exact.programs import PROGRAM_FORMS
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, make_criterion
from dualplan.models.limits import Limit
from dualplan.policies.saved import POLICY_FILE, save_policy

LINEAR_PROGRAM_METHODS = tuple(f"{form}-lp" for form in PROGRAM_FORMS)
EXACT_METHODS = (*ITERATIONS, *LINEAR_PROGRAM_METHODS)
DEFAULT_SWEEPS = 200_000  # unless others are given


def exact(
    model: ModelArgument,
    settings: SetOption = None,
    criterion: CriterionOption = "average",
    gamma: GammaOption = None,
    method: Annotated[
        str | None, typer.Option(help=f"{', '.join(EXACT_METHODS)}; default: by the model")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="a side constraint on a measure (linear programs); default: none",
            metavar="MEASURE<=NUMBER",
        ),
    ] = None,
    tol: Annotated[float, typer.Option(help="how close the bounds must come")] = 1e-4,
    sweeps: Annotated[
        int, typer.Option(min=1, help="budget of sweeps over all states")
    ] = DEFAULT_SWEEPS,
    threads: ThreadsOption = None,
    out: Annotated[
        str | None, typer.Option(help="folder to save the result and the policy in; default: none")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The optimal cost between two bounds, over all states of a model that can be enumerated."""
    if out is not None:
        require_free(out)
    loaded = load_model(model, settings)
    chosen = make_criterion(criterion, gamma)
    if method is not None and method not in EXACT_METHODS:
        raise unknown("exact method", method, EXACT_METHODS)
    if method in LINEAR_PROGRAM_METHODS or (limit and method is None):
        if sweeps != DEFAULT_SWEEPS:
            raise InputError("--sweeps is for the methods that sweep, not for linear programs.")
        form = (method or LINEAR_PROGRAM_METHODS[0]).removesuffix("-lp")
        limits = [Limit.parse(text) for text in limit or []]
        found: ExactSolution | LinearSolution | None = solve_lp(
            loaded, chosen, limits=limits, form=form, tol=tol, threads=threads
        )
    elif limit:
        raise InputError(
            f"--limit works with --method {' or '.join(LINEAR_PROGRAM_METHODS)}, not with {method}."
        )
    else:
        with bar("sweeping", unit="sweeps") as update:
            looks = _Looks(update, tol, sweeps)
            try:
                found = solve_exact(
                    loaded,
                    chosen,
                    method=method,
                    tol=tol,
                    sweeps=sweeps,
                    threads=threads,
                    progress=looks,
                )
            except KeyboardInterrupt:
                if looks.sweeps == 0:
                    raise
                found = None
    if found is None:
        result = looks.interrupted()
    else:
        result = found.to_json()
        if out is not None:
            _save(found, result, loaded, chosen, out)
    if as_json:
        print_json(result)
    else:
        print_rows(result)
        if out is not None and found is not None:
            out_console().print(f"saved in {out}; -p {out} is its policy")
    stop_if_interrupted(result["status"], resumable=False)


def _save(
    found: ExactSolution | LinearSolution,
    result: Json,
    model: Model,
    criterion: Criterion,
    folder: str,
) -> None:
    """The policy and the result, as other runs have them."""
    settings = {"task": "exact", "model": model.describe(), **criterion.describe()}
    run = Run(folder, settings)
    run.save_result(result)
    save_policy(found.policy, run.folder / POLICY_FILE)


class _Looks:
    """The bounds so far, which hold whenever the sweeps end; with -v a line each time their number
    has doubled.

    The width shrinks about geometrically, which says how many sweeps are still to come.
    """

    def __init__(self, update: Update, tol: float, most: int) -> None:
        self.update = update
        self.tol = tol
        self.most = most
        self.started = time.monotonic()
        self.sweeps = 0
        self.lower = -math.inf
        self.upper = math.inf
        self.first = (0, math.inf)
        self.next_line = 1

    def __call__(self, sweeps: int, lower: float, upper: float) -> None:
        self.sweeps = sweeps
        self.lower = lower
        self.upper = upper
        if math.isfinite(self.first[1]):
            self.first = self.first
        else:
            self.first = (sweeps, upper - lower)
        if event := sweeps >= self.next_line:
            self.next_line = 2 * sweeps
        words = f"{ends(lower, upper, 6)} after {sweeps:,} sweeps"
        self.update(sweeps, self._expected(), words, event=event)

    def _expected(self) -> float:
        width, (sweeps, first) = self.upper - self.lower, self.first
        if not self.tol < width < first:
            return self.most
        more = (self.sweeps - sweeps) * math.log(first / self.tol) / math.log(first / width)
        return min(self.most, sweeps + more)

    def interrupted(self) -> Json:
        """The bounds of the last sweep as a result."""
        status = Status.INTERRUPTED
        return {
            "status": str(status),
            "advice": "interrupted; the bounds hold, and are as close as they got",
            "lower": self.lower,
            "upper": self.upper,
            "sweeps": self.sweeps,
            "seconds": round(time.monotonic() - self.started, 3),
        }
