"""``dualplan solve``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from dualplan.cli.command import stop_if_interrupted
from dualplan.cli.inputs import (
    GammaOption,
    JsonOption,
    OverloadedOption,
    SetOption,
    parameters_from,
)
from dualplan.cli.output import bar, out_console, print_json
from dualplan.cli.tables import draw, print_improved, print_planned
from dualplan.core.errors import InputError
from dualplan.core.runs import plain
from dualplan.dual.grids import GRIDS
from dualplan.dual.meta import CHOICES
from dualplan.dual.sampling import SCHEMES
from dualplan.dual.solvers import SOLVERS
from dualplan.report.figures import require_drawable
from dualplan.search.loop import TIME
from dualplan.search.plans import NAMED, improve_by, override, read_plan, run_plan

_of_dual = partial(typer.Option, rich_help_panel="Of the dual program")


def solve(
    model: Annotated[
        str,
        typer.Argument(help="a model as elsewhere, or a plan in TOML", metavar="MODEL|CONFIG.toml"),
    ],
    settings: SetOption = None,
    criterion: Annotated[str | None, typer.Option(help="average or discounted")] = None,
    gamma: GammaOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="to begin with: a heuristic, or the folder or file of a saved policy",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="a side constraint", metavar="MEASURE<=NUMBER")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help=f"how long to search, such as 90s; {TIME}")
    ] = None,
    gap: Annotated[
        str | None, typer.Option(help="stop when the cost is proved to be this near, such as 2%")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the random numbers")] = None,
    out: Annotated[
        str | None, typer.Option(help="folder to save the run and the policy in")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    overloaded: OverloadedOption = False,
    as_json: JsonOption = False,
    features: Annotated[str | None, _of_dual(help=", ".join(NAMED) + "; others in a plan")] = None,
    sampling: Annotated[str | None, _of_dual(help=", ".join(["features", *SCHEMES]))] = None,
    solver: Annotated[str | None, _of_dual(help=", ".join(SOLVERS))] = None,
    penalty: Annotated[
        list[float] | None, _of_dual("--penalty", "-H", help="H; of several the best by evaluation")
    ] = None,
    radius: Annotated[float | None, _of_dual(help="S, the largest norm of the weights")] = None,
    potential: Annotated[
        str | None, _of_dual(help="a heuristic whose values shape the loss, or best")
    ] = None,
    fallback: Annotated[
        str | None, _of_dual(help="a heuristic for states without a feature")
    ] = None,
    budget: Annotated[
        int | None, _of_dual(min=1, help="constraints of each kind that may be drawn")
    ] = None,
    evaluation: Annotated[
        str | None, _of_dual(help="exact or simulation, of the policies found")
    ] = None,
    steps: Annotated[
        int | None, _of_dual(min=1, help="simulated steps, if it is simulation")
    ] = None,
    span: Annotated[
        float | None, _of_dual(help="of the policy's bias at most, for the certificate")
    ] = None,
    sweeps: Annotated[
        int | None, _of_dual(min=0, help="of value iteration, for the lower bound")
    ] = None,
    grid: Annotated[str | None, _of_dual(help=f"of H by theory: {' or '.join(GRIDS)}")] = None,
    epsilon: Annotated[
        float | None, _of_dual(help="error that matters: prints the theorems as numbers")
    ] = None,
    beta: Annotated[float | None, _of_dual(help="coefficient of 1/H in F (with --epsilon)")] = None,
    choice: Annotated[
        str | None, _of_dual(help=f"of H: by {' or '.join(CHOICES)} (with --grid)")
    ] = None,
    jobs: Annotated[
        int | None, _of_dual(help="processes that share the penalties; -1: one a core")
    ] = None,
    figure: Annotated[
        str | None, _of_dual(help="file for the curve of costs and violations against H")
    ] = None,
) -> None:
    """Find the best policy that a time allows, its interval, a lower bound on any policy's cost,
    and the gap.

    With an option of the dual program, or a plan that has one of its keys: that program over a
    family of occupancies.
    """
    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    parameters = parameters_from(settings)
    plan = read_plan(model)
    plan = override(
        plan,
        set={**plan.set, **parameters} if parameters else None,
        criterion=criterion,
        gamma=gamma,
        policies=tuple(policy) if policy else None,
        limits=tuple(limit) if limit else None,
        time=time,
        gap=gap,
        features=features,
        sampling=sampling,
        solver=solver,
        penalty=penalty,
        radius=radius,
        potential=potential,
        fallback=fallback,
        budget=budget,
        seed=seed,
        evaluation=evaluation,
        steps=steps,
        span=span,
        sweeps=sweeps,
        grid=grid,
        epsilon=epsilon,
        beta=beta,
        choice=choice,
        overloaded=overloaded or None,
    )
    if not plan.dual:
        if figure is not None or jobs is not None:
            raise InputError(
                "--figure and --jobs are for the dual program; name its features or penalties as "
                "well."
            )
        with bar("searching", timed=True) as update:
            improved = improve_by(plan, folder=out, resume=resume, progress=update).to_json()
        _print_solved(improved, print_improved, out, as_json)
        return
    if figure is not None:
        require_drawable(figure)
    with bar("solving") as update:
        result = run_plan(plan, folder=out, resume=resume, jobs=jobs, progress=update).to_json()
    if figure is not None:
        draw(result, figure)
    _print_solved(result, print_planned, out, as_json)


def _print_solved(
    result: dict[str, Any], show: Callable[[dict[str, Any]], None], out: str | None, as_json: bool
) -> None:
    if as_json:
        print_json(result)
    else:
        show(plain(result))
        if out is not None:
            out_console().print(f"saved in {out}; dualplan report {out} writes it as a page")
    stop_if_interrupted(result["status"], out)
