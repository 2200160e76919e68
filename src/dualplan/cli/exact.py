"""``dualplan exact``."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli.inputs import load_model
from dualplan.cli.options import CriterionOption, GammaOption, JsonOption, ModelArgument, SetOption, ThreadsOption
from dualplan.cli.output import bar, print_json
from dualplan.cli.tables import print_rows
from dualplan.criteria import make_criterion
from dualplan.errors import InputError, unknown
from dualplan.exact import solve_exact, solve_lp
from dualplan.exact.iteration import METHODS as ITERATIONS
from dualplan.exact.programs import FORMS
from dualplan.limits import Limit

LINEAR = tuple(f"{form}-lp" for form in FORMS)
EXACT_METHODS = (*ITERATIONS, *LINEAR)
SWEEPS = 200_000  # unless others are given


def exact(
    model: ModelArgument,
    settings: SetOption = None,
    criterion: CriterionOption = "average",
    gamma: GammaOption = None,
    method: Annotated[str | None, typer.Option(help=", ".join(EXACT_METHODS))] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(help="a side constraint on a measure (linear programs)", metavar="MEASURE<=NUMBER"),
    ] = None,
    tol: Annotated[float, typer.Option(help="how close the bounds must come")] = 1e-4,
    max_sweeps: Annotated[int, typer.Option(min=1, help="budget of sweeps over all states")] = SWEEPS,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """The optimal cost between two bounds, over all states of a model that can be enumerated."""
    loaded, chosen = load_model(model, settings), make_criterion(criterion, gamma)
    if method is not None and method not in EXACT_METHODS:
        raise unknown("exact method", method, EXACT_METHODS)
    if method in LINEAR or (limit and method is None):
        if max_sweeps != SWEEPS:
            raise InputError("--max-sweeps is for the methods that sweep, not for linear programs.")
        form, limits = (method or LINEAR[0]).removesuffix("-lp"), [Limit.parse(text) for text in limit or []]
        result = solve_lp(loaded, chosen, limits=limits, form=form, tol=tol, threads=threads).to_json()
    elif limit:
        raise InputError(f"--limit works with --method {' or '.join(LINEAR)}, not with {method}.")
    else:
        with bar("sweeping") as update:
            result = solve_exact(
                loaded,
                chosen,
                method=method,
                tol=tol,
                max_sweeps=max_sweeps,
                threads=threads,
                progress=lambda sweeps, low, high: update(sweeps, max_sweeps, f"{low:.6g} – {high:.6g}"),
            ).to_json()
    if as_json:
        print_json(result)
        return
    print_rows(result)
