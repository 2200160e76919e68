"""The command line: ``dualplan models | check | evaluate | exact | solve | show | reproduce``.

Results go to stdout, everything else to stderr. With --json, stdout holds one JSON object and nothing else. Bad input
ends with one sentence on stderr and exit status 2, and so does a check that finds something wrong.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer
from rich.table import Table

from dualplan.cli import output
from dualplan.cli.inputs import load_model, parameters_from
from dualplan.cli.output import bar, out_console, print_json, words_of
from dualplan.cli.tables import (
    draw,
    print_curves,
    print_evaluation,
    print_figures,
    print_improved,
    print_planned,
    print_report,
    print_rows,
)
from dualplan.criteria import Criterion, make_criterion
from dualplan.errors import DualplanError, InputError, unknown
from dualplan.evaluation import compare
from dualplan.evaluation import evaluate as evaluate_policy
from dualplan.exact import evaluate_exact, solve_exact, solve_lp
from dualplan.exact.iteration import METHODS as ITERATIONS
from dualplan.exact.programs import FORMS
from dualplan.figures import require_drawable
from dualplan.grids import GRIDS
from dualplan.improvement.loop import TIME
from dualplan.limits import Limit
from dualplan.meta import CHOICES
from dualplan.models.check import check_model
from dualplan.models.contract import Model
from dualplan.models.queueing import OPTIONS
from dualplan.models.zoo import INSTANCES
from dualplan.plans import NAMED, improve_by, override, read_plan, run_plan
from dualplan.policies.contract import Policy
from dualplan.reproduce import EXPERIMENTS
from dualplan.reproduce.dual_mixing import dual_mixing
from dualplan.reproduce.figure_3 import STEPS as STEPS_OF_FIGURE
from dualplan.reproduce.figure_3 import figure_3
from dualplan.reproduce.four_queue import STEPS as STEPS_OF_TABLE
from dualplan.reproduce.four_queue import four_queue
from dualplan.results import Comparison, Evaluation
from dualplan.runs import plain, read_result
from dualplan.sampling import SCHEMES
from dualplan.saved import named_policy
from dualplan.solvers import SOLVERS

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Plan in Markov decision processes of any size.")
LINEAR = tuple(f"{form}-lp" for form in FORMS)
EXACT_METHODS = (*ITERATIONS, *LINEAR)
STEPS, SWEEPS = 20_000_000, 200_000  # budgets, unless others are given

_of_dual = partial(typer.Option, rich_help_panel="Of the dual program")
ModelArgument = Annotated[str, typer.Argument(help="an instance name, FILE.toml, or FILE.py:OBJECT", metavar="MODEL")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="change a parameter of the model", metavar="KEY=VALUE")
]
CriterionOption = Annotated[str, typer.Option(help="average or discounted")]
GammaOption = Annotated[float | None, typer.Option(help="discount factor of the discounted criterion")]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="default: all cores; results do not depend on it")]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]


@app.command()
def models(as_json: JsonOption = False) -> None:
    """List the named instances and their parameters."""
    rows: list[dict[str, Any]] = [
        {"name": n, "summary": _summary(make), "parameters": _parameters(make)} for n, make in INSTANCES.items()
    ]
    if as_json:
        print_json({"models": rows})
        return
    table = Table(title="Named instances", show_lines=True)
    for column in ("name", "what it is", "parameters and defaults (change with --set KEY=VALUE)"):
        table.add_column(column)
    for row in rows:
        table.add_row(row["name"], row["summary"], ", ".join(f"{k}={v}" for k, v in row["parameters"].items()))
    out_console().print(table)


@app.command()
def check(
    model: ModelArgument,
    settings: SetOption = None,
    pairs: Annotated[int, typer.Option(min=1, help="how many pairs (x, a) to try on a large model")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="of the random pairs")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Check that a model keeps its contract; exit status 2 and one sentence if it does not."""
    loaded = load_model(model, settings)
    with bar("checking") as update:
        report = check_model(loaded, pairs=pairs, seed=seed, progress=lambda done, total: update(done, total, ""))
    if as_json:
        print_json({**report.to_json(), "description": loaded.describe()})
    else:
        print_report(loaded, report)
    if report.problem is not None:
        raise InputError(report.problem)


@app.command()
def evaluate(
    model: ModelArgument,
    policy: Annotated[
        list[str], typer.Option("--policy", "-p", help="a heuristic of the model or FILE.py:FUNCTION; two are compared")
    ],
    settings: SetOption = None,
    criterion: CriterionOption = "average",
    gamma: GammaOption = None,
    method: Annotated[str | None, typer.Option(help="batch-means, regenerative; truncated, stopped; or exact")] = None,
    steps: Annotated[int, typer.Option(min=1, help="budget of simulated steps")] = STEPS,
    half_width: Annotated[float | None, typer.Option(help="stop when the interval is this narrow")] = None,
    relative: Annotated[float | None, typer.Option(help="the same, as a fraction of the cost")] = None,
    confidence: Annotated[float, typer.Option(help="of the interval")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="of the random numbers")] = 0,
    threads: ThreadsOption = None,
    out: Annotated[str | None, typer.Option(help="folder to save the run in")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    mixing: Annotated[bool, typer.Option("--mixing", help="measure how fast the chain mixes (method exact)")] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate one policy, or compare two on the same random numbers."""
    if len(policy) > 2:
        raise InputError(f"evaluate takes one or two policies, got {len(policy)}.")
    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    loaded = load_model(model, settings)
    chosen = [named_policy(loaded, name) for name in policy]
    if method == "exact":
        changed = (out, resume, half_width, relative, confidence, steps) != (None, False, None, None, 0.95, STEPS)
        if changed:
            raise InputError("--method exact has no run to save, no steps and no interval; leave such options out.")
        _evaluate_exactly(loaded, chosen, make_criterion(criterion, gamma), threads, mixing, as_json)
        return
    if mixing:
        raise InputError("--mixing needs --method exact.")
    options: dict[str, Any] = {
        "method": method, "steps": steps, "half_width": half_width, "relative": relative, "confidence": confidence,
        "seed": seed, "threads": threads, "folder": out, "resume": resume,
    }  # fmt: skip
    with bar("simulating") as update:
        options["progress"] = lambda done, total, interval: update(done, total, words_of(interval))
        result: Evaluation | Comparison
        if len(chosen) == 2:
            result = compare(loaded, chosen[0], chosen[1], make_criterion(criterion, gamma), **options)
        else:
            result = evaluate_policy(loaded, chosen[0], make_criterion(criterion, gamma), **options)
    if as_json:
        print_json(result.to_json())
    else:
        print_evaluation(result, out)


@app.command()
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


@app.command()
def solve(
    model: Annotated[str, typer.Argument(help="a model as elsewhere, or a plan in TOML", metavar="MODEL|CONFIG.toml")],
    settings: SetOption = None,
    criterion: Annotated[str | None, typer.Option(help="average or discounted")] = None,
    gamma: GammaOption = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="to begin with: a heuristic or a saved policy")
    ] = None,
    limit: Annotated[list[str] | None, typer.Option(help="a side constraint", metavar="MEASURE<=NUMBER")] = None,
    time: Annotated[str | None, typer.Option(help=f"how long to search, such as 90s; {TIME}")] = None,
    gap: Annotated[str | None, typer.Option(help="stop when the cost is proved to be this near, such as 2%")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the random numbers")] = None,
    out: Annotated[str | None, typer.Option(help="folder to save the run and the policy in")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    as_json: JsonOption = False,
    features: Annotated[str | None, _of_dual(help=", ".join(NAMED) + "; others in a plan")] = None,
    sampling: Annotated[str | None, _of_dual(help=", ".join(["features", *SCHEMES]))] = None,
    solver: Annotated[str | None, _of_dual(help=", ".join(SOLVERS))] = None,
    penalty: Annotated[
        list[float] | None,
        _of_dual("--penalty", "-H", help="H; of several the best by evaluation"),
    ] = None,
    radius: Annotated[float | None, _of_dual(help="S, the largest norm of the weights")] = None,
    potential: Annotated[str | None, _of_dual(help="a heuristic whose values shape the loss, or best")] = None,
    fallback: Annotated[str | None, _of_dual(help="a heuristic for states without a feature")] = None,
    budget: Annotated[int | None, _of_dual(min=1, help="constraints of each kind that may be drawn")] = None,
    evaluation: Annotated[str | None, _of_dual(help="exact or simulation, of the policies found")] = None,
    steps: Annotated[int | None, _of_dual(min=1, help="simulated steps, if it is simulation")] = None,
    span: Annotated[float | None, _of_dual(help="of the policy's bias at most, for the certificate")] = None,
    sweeps: Annotated[int | None, _of_dual(min=0, help="of value iteration, for the lower bound")] = None,
    grid: Annotated[str | None, _of_dual(help=f"of H by theory: {' or '.join(GRIDS)}")] = None,
    epsilon: Annotated[float | None, _of_dual(help="error that matters: prints the theorems as numbers")] = None,
    beta: Annotated[float | None, _of_dual(help="coefficient of 1/H in F (with --epsilon)")] = None,
    choice: Annotated[str | None, _of_dual(help=f"of H: by {' or '.join(CHOICES)} (with --grid)")] = None,
    jobs: Annotated[int | None, _of_dual(help="processes that share the penalties; -1: one a core")] = None,
    figure: Annotated[str | None, _of_dual(help="file for the curve of costs and violations against H")] = None,
) -> None:
    """Find the best policy that a time allows, its interval, a lower bound on any policy's cost, and the gap.

    With an option of the dual program, or a plan that has one of its keys: that program over a family of occupancies.
    """
    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    parameters = parameters_from(settings)
    plan = read_plan(model)
    plan = override(
        plan, set={**plan.set, **parameters} if parameters else None, criterion=criterion, gamma=gamma,
        policies=tuple(policy) if policy else None, limits=tuple(limit) if limit else None, time=time, gap=gap,
        features=features, sampling=sampling, solver=solver, penalty=penalty, radius=radius, potential=potential,
        fallback=fallback, budget=budget, seed=seed, evaluation=evaluation, steps=steps, span=span, sweeps=sweeps,
        grid=grid, epsilon=epsilon, beta=beta, choice=choice,
    )  # fmt: skip
    if not plan.dual:
        if figure is not None or jobs is not None:
            raise InputError("--figure and --jobs are for the dual program; name its features or penalties as well.")
        with bar("searching") as update:
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
        return
    show(plain(result))
    if out is not None:
        out_console().print(f"saved in {out}: dualplan evaluate MODEL -p {out}/policy.npz", highlight=False)


@app.command()
def show(
    folder: Annotated[str, typer.Argument(help="of a run that was saved with --out", metavar="DIR")],
    figure: Annotated[str | None, typer.Option(help="file for the curve of costs and violations against H")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what came of a saved run."""
    if figure is not None:
        require_drawable(figure)
    result = read_result(folder)
    solved, improved = "tried" in result, result.get("task") == "improve"
    if figure is not None:
        if not solved:
            raise InputError(f"the run in {folder!r} has no penalties to draw a curve of; leave --figure out.")
        draw(result, figure)
    if as_json:
        print_json(result)
    elif improved:
        print_improved(result)
    elif solved:
        print_planned(result)
    else:
        print_rows(result)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help=" or ".join(EXPERIMENTS), metavar="NAME")],
    settings: SetOption = None,
    out: Annotated[str | None, typer.Option(help="file of the figure (figure-3)")] = None,
    features: Annotated[int, typer.Option(help="366 or 372 (figure-3)")] = 372,
    iterations: Annotated[
        int, typer.Option(min=1, help="steps of the subgradient method (figure-3)")
    ] = STEPS_OF_FIGURE,
    radius: Annotated[float | None, typer.Option(help="S (figure-3)")] = None,
    criterion: CriterionOption = "average",
    gamma: GammaOption = None,
    steps: Annotated[int | None, typer.Option(min=1, help="of each simulation (four-queue)")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the random numbers")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a published experiment again, and show our figures beside the published ones."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    parameters = parameters_from(settings)
    if name != "four-queue" and (criterion, gamma, steps) != ("average", None, None):
        raise InputError(f"--criterion, --gamma and --steps are for four-queue, not for {name}.")
    if name == "figure-3":
        with bar("figure-3") as update:
            result = figure_3(out or "figure-3.png", count=features, steps=iterations, radius=radius, seed=seed,
                              progress=update, parameters=parameters)  # fmt: skip
        if as_json:
            print_json(result)
        else:
            print_curves(result)
        return
    if out is not None or (features, iterations, radius) != (372, STEPS_OF_FIGURE, None):
        raise InputError(
            f"{name} is a table and no figure: --out, --features, --iterations and --radius are not for it."
        )
    with bar(name) as update:
        if name == "four-queue":
            rows = four_queue(
                parameters=parameters, criterion=make_criterion(criterion, gamma), steps=steps or STEPS_OF_TABLE,
                seed=seed, progress=update,
            )  # fmt: skip
        elif parameters:
            raise InputError(f"{name} is one network: it takes --seed and --json only.")
        else:
            rows = dual_mixing(seed=seed, progress=update)
    if as_json:
        print_json({"experiment": name, "rows": [row.to_json() for row in rows]})
    else:
        print_figures(rows)


def _evaluate_exactly(
    model: Model, chosen: list[Policy], criterion: Criterion, threads: int | None, mixing: bool, as_json: bool
) -> None:
    results = [evaluate_exact(model, policy, criterion, threads=threads) for policy in chosen]
    rows = [r.to_json() | ({"mixing": asdict(r.mixing)} if mixing else {}) for r in results]
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"rows": rows})
        return
    table = Table("policy", "cost", "bounds", "status", "states", "seconds")
    for r in results:
        table.add_row(r.policy, f"{r.cost:.8g}", f"{r.lower:.10g} – {r.upper:.10g}", str(r.status),
                      f"{r.reached.size:,}", f"{r.seconds:.1f}")  # fmt: skip
    out_console().print(table)
    measures = Table("measure", *(r.policy for r in results), title="measures, exactly")
    for name in results[0].measures:
        measures.add_row(name, *(f"{r.measures[name]:.6g}" for r in results))
    if mixing:
        for what in ("tau", "constant", "one_step", "relaxation"):
            measures.add_row(what, *(str(getattr(r.mixing, what)) for r in results))
    out_console().print(measures)


def _summary(make: Any) -> str:
    return (inspect.getdoc(make) or "").split("\n\n")[0].replace("\n", " ")


def _parameters(make: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for p in inspect.signature(make).parameters.values():
        if p.kind is inspect.Parameter.VAR_KEYWORD:
            result |= {key: "|".join(str(v).lower() for v in values) for key, values in OPTIONS.items()}
        else:
            result[p.name] = _show(p.default)
    return result


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(_show(v) for v in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if value is None else str(value)


def main() -> None:
    """Run the command line; what the user did wrong is one sentence and exit status 2."""
    try:
        app(standalone_mode=True)
    except DualplanError as error:
        output.err.print(f"dualplan: {error}", style=None, markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
