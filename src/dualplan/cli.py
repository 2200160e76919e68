"""The command line: ``dualplan models | check | evaluate | exact | solve | show | reproduce``.

Results go to stdout, everything else to stderr. With --json, stdout holds one JSON object and nothing else. Bad input
ends with one sentence on stderr and exit status 2, and so does a check that finds something wrong.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from dualplan.criteria import Criterion, make_criterion
from dualplan.errors import DualplanError, InputError, unknown
from dualplan.evaluation import compare
from dualplan.evaluation import evaluate as evaluate_policy
from dualplan.exact import evaluate_exact, solve_exact, solve_lp
from dualplan.exact.iteration import METHODS as ITERATIONS
from dualplan.exact.programs import FORMS
from dualplan.figures import draw_curve, require_drawable
from dualplan.grids import GRIDS
from dualplan.intervals import Interval
from dualplan.known import PROVED
from dualplan.limits import Limit
from dualplan.meta import CHOICES
from dualplan.models.check import check_model
from dualplan.models.contract import Model
from dualplan.models.load import load, load_object
from dualplan.models.queueing import OPTIONS
from dualplan.models.zoo import INSTANCES
from dualplan.plans import NAMED, override, read_plan, run_plan
from dualplan.policies.contract import Policy
from dualplan.policies.tables import FunctionPolicy
from dualplan.reproduce import EXPERIMENTS
from dualplan.reproduce.dual_mixing import dual_mixing
from dualplan.reproduce.figure_3 import STEPS as STEPS_OF_FIGURE
from dualplan.reproduce.figure_3 import figure_3
from dualplan.reproduce.four_queue import STEPS as STEPS_OF_TABLE
from dualplan.reproduce.four_queue import four_queue
from dualplan.reproduce.rows import Row
from dualplan.results import Comparison, Evaluation
from dualplan.runs import plain, read_result
from dualplan.sampling import SCHEMES
from dualplan.saved import load_policy
from dualplan.solvers import SOLVERS
from dualplan.status import Status

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Plan in Markov decision processes of any size.")
err = Console(stderr=True)
LINEAR = tuple(f"{form}-lp" for form in FORMS)
EXACT_METHODS = (*ITERATIONS, *LINEAR)
STEPS, SWEEPS = 20_000_000, 200_000  # budgets, unless others are given
PROGRESS_AFTER = 2.0  # seconds

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
        _print_json({"models": rows})
        return
    table = Table(title="Named instances", show_lines=True)
    for column in ("name", "what it is", "parameters and defaults (change with --set KEY=VALUE)"):
        table.add_column(column)
    for row in rows:
        table.add_row(row["name"], row["summary"], ", ".join(f"{k}={v}" for k, v in row["parameters"].items()))
    _out().print(table)


@app.command()
def check(
    model: ModelArgument,
    settings: SetOption = None,
    pairs: Annotated[int, typer.Option(min=1, help="how many pairs (x, a) to try on a large model")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="of the random pairs")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Check that a model keeps its contract; exit status 2 and one sentence if it does not."""
    loaded = _load(model, settings)
    with _bar("checking") as update:
        report = check_model(loaded, pairs=pairs, seed=seed, progress=lambda done, total: update(done, total, ""))
    if as_json:
        _print_json({**report.to_json(), "description": loaded.describe()})
    else:
        _print_report(loaded, report)
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
    loaded = _load(model, settings)
    chosen = [_policy(loaded, name) for name in policy]
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
    with _bar("simulating") as update:
        options["progress"] = lambda done, total, interval: update(done, total, _words(interval))
        result: Evaluation | Comparison
        if len(chosen) == 2:
            result = compare(loaded, chosen[0], chosen[1], make_criterion(criterion, gamma), **options)
        else:
            result = evaluate_policy(loaded, chosen[0], make_criterion(criterion, gamma), **options)
    if as_json:
        _print_json(result.to_json())
    else:
        _print_evaluation(result, out)


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
    loaded, chosen = _load(model, settings), make_criterion(criterion, gamma)
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
        with _bar("sweeping") as update:
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
        _print_json(result)
        return
    _print_rows(result)


@app.command()
def solve(
    model: Annotated[str, typer.Argument(help="a model as elsewhere, or a plan in TOML", metavar="MODEL|CONFIG.toml")],
    settings: SetOption = None,
    criterion: Annotated[str | None, typer.Option(help="average or discounted")] = None,
    gamma: GammaOption = None,
    features: Annotated[str | None, typer.Option(help=", ".join(NAMED) + "; others in a plan")] = None,
    sampling: Annotated[str | None, typer.Option(help=", ".join(["features", *SCHEMES]))] = None,
    solver: Annotated[str | None, typer.Option(help=", ".join(SOLVERS))] = None,
    penalty: Annotated[
        list[float] | None, typer.Option("--penalty", "-H", help="H; of several the best by evaluation")
    ] = None,
    radius: Annotated[float | None, typer.Option(help="S, the largest norm of the weights")] = None,
    potential: Annotated[str | None, typer.Option(help="a heuristic whose values shape the loss, or best")] = None,
    fallback: Annotated[str | None, typer.Option(help="a heuristic for states without a feature")] = None,
    limit: Annotated[list[str] | None, typer.Option(help="a side constraint", metavar="MEASURE<=NUMBER")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="constraints of each kind that may be drawn")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the random numbers")] = None,
    evaluation: Annotated[str | None, typer.Option(help="exact or simulation, of the policies found")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="simulated steps, if it is simulation")] = None,
    span: Annotated[float | None, typer.Option(help="of the policy's bias at most, for the certificate")] = None,
    sweeps: Annotated[int | None, typer.Option(min=0, help="of value iteration, for the lower bound")] = None,
    grid: Annotated[str | None, typer.Option(help=f"of H by theory: {' or '.join(GRIDS)}")] = None,
    epsilon: Annotated[float | None, typer.Option(help="error that matters: prints the theorems as numbers")] = None,
    beta: Annotated[float | None, typer.Option(help="coefficient of 1/H in F (with --epsilon)")] = None,
    choice: Annotated[str | None, typer.Option(help=f"of H: by {' or '.join(CHOICES)} (with --grid)")] = None,
    jobs: Annotated[int | None, typer.Option(help="processes that share the penalties; -1: one a core")] = None,
    figure: Annotated[str | None, typer.Option(help="file for the curve of costs and violations against H")] = None,
    out: Annotated[str | None, typer.Option(help="folder to save the run and the policy in")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    as_json: JsonOption = False,
) -> None:
    """Search the dual program over a family of occupancies, and evaluate the policy of the best one."""
    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    parameters = _parameters_from(settings)
    plan = read_plan(model)
    plan = override(
        plan, set={**plan.set, **parameters} if parameters else None, criterion=criterion, gamma=gamma,
        features=features, sampling=sampling, solver=solver, penalty=penalty, radius=radius, potential=potential,
        fallback=fallback, limits=tuple(limit) if limit else None, budget=budget, seed=seed, evaluation=evaluation,
        steps=steps, span=span, sweeps=sweeps, grid=grid, epsilon=epsilon, beta=beta, choice=choice,
    )  # fmt: skip
    if figure is not None:
        require_drawable(figure)
    with _bar("solving") as update:
        result = run_plan(plan, folder=out, resume=resume, jobs=jobs, progress=update).to_json()
    if figure is not None:
        _draw(result, figure)
    if as_json:
        _print_json(result)
        return
    _print_planned(plain(result))
    if out is not None:
        _out().print(f"saved in {out}: dualplan evaluate MODEL -p {out}/policy.npz", highlight=False)


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
    solved = "tried" in result
    if figure is not None:
        if not solved:
            raise InputError(f"the run in {folder!r} has no penalties to draw a curve of; leave --figure out.")
        _draw(result, figure)
    if as_json:
        _print_json(result)
    elif solved:
        _print_planned(result)
    else:
        _print_rows(result)


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
    parameters = _parameters_from(settings)
    if name != "four-queue" and (criterion, gamma, steps) != ("average", None, None):
        raise InputError(f"--criterion, --gamma and --steps are for four-queue, not for {name}.")
    if name == "figure-3":
        with _bar("figure-3") as update:
            result = figure_3(out or "figure-3.png", count=features, steps=iterations, radius=radius, seed=seed,
                              progress=update, parameters=parameters)  # fmt: skip
        if as_json:
            _print_json(result)
        else:
            _print_curves(result)
        return
    if out is not None or (features, iterations, radius) != (372, STEPS_OF_FIGURE, None):
        raise InputError(
            f"{name} is a table and no figure: --out, --features, --iterations and --radius are not for it."
        )
    with _bar(name) as update:
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
        _print_json({"experiment": name, "rows": [row.to_json() for row in rows]})
    else:
        _print_figures(rows)


COLUMNS = {"ours": "cost", "lower": "from", "upper": "to", "published": "published", "optimum": "optimum",
           "lower_bound": "lower bound, proved", "seconds": "seconds", "note": "how"}  # fmt: skip


def _print_figures(rows: list[Row]) -> None:
    """A table of the columns in which there is something."""
    dicts = [row.to_json() for row in rows]
    used = [key for key in COLUMNS if any(row[key] not in (None, "") for row in dicts)]
    table = Table("", *(COLUMNS[key] for key in used))
    for row in dicts:
        table.add_row(row["name"], *(_cell(row[key]) for key in used))
    _out().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


# -- input ----------------------------------------------------------------------------------------------------------


def parse_value(text: str) -> Any:
    """A value from the command line: numbers, true, false, none, inf, lists with commas, otherwise text."""
    if "," in text:
        return tuple(parse_value(part) for part in text.split(",") if part.strip())
    word = text.strip()
    if word.lower() in ("none", "inf", "infinity", "unbounded"):
        return None
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _parameters_from(settings: list[str] | None) -> dict[str, Any]:
    parameters = {}
    for setting in settings or []:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise InputError(f"--set takes KEY=VALUE, got {setting!r}.")
        parameters[key.strip().replace("-", "_")] = parse_value(value)
    return parameters


def _load(spec: str, settings: list[str] | None) -> Model:
    return load(spec, **_parameters_from(settings))


def _policy(model: Model, spec: str) -> Policy:
    """A heuristic by name, a saved policy, or a policy or function from a file."""
    if spec.endswith(".npz"):
        return load_policy(spec, model)
    if ".py:" not in spec:
        return model.policy(spec)
    found = load_object(spec)
    if isinstance(found, Policy):
        return found
    if not callable(found):
        raise InputError(f"{spec!r} is neither a policy nor a function of the state.")
    return FunctionPolicy(model, found, name=spec.rpartition(":")[2])


def _evaluate_exactly(
    model: Model, chosen: list[Policy], criterion: Criterion, threads: int | None, mixing: bool, as_json: bool
) -> None:
    results = [evaluate_exact(model, policy, criterion, threads=threads) for policy in chosen]
    rows = [r.to_json() | ({"mixing": asdict(r.mixing)} if mixing else {}) for r in results]
    if as_json:
        _print_json(rows[0] if len(rows) == 1 else {"rows": rows})
        return
    table = Table("policy", "cost", "bounds", "status", "states", "seconds")
    for r in results:
        table.add_row(r.policy, f"{r.cost:.8g}", f"{r.lower:.10g} – {r.upper:.10g}", str(r.status),
                      f"{r.reached.size:,}", f"{r.seconds:.1f}")  # fmt: skip
    _out().print(table)
    measures = Table("measure", *(r.policy for r in results), title="measures, exactly")
    for name in results[0].measures:
        measures.add_row(name, *(f"{r.measures[name]:.6g}" for r in results))
    if mixing:
        for what in ("tau", "constant", "one_step", "relaxation"):
            measures.add_row(what, *(str(getattr(r.mixing, what)) for r in results))
    _out().print(measures)


def _print_planned(result: dict[str, Any]) -> None:
    """What a plan came to: a row for each penalty, the best with its certificate, and what any policy could save."""
    out, status = _out(), Status(result["cost_status"])
    out.print(_outcomes(result))
    cost, low, high = (_number(result[key], 6) for key in ("cost", "cost_lower", "cost_upper"))
    out.print(f"best: H = {_penalty(result)}, cost {cost} ({low} – {high}, {result['evaluation']}); {status.advice}",
              highlight=False)  # fmt: skip
    if result.get("advantage") is not None:
        gain = result["advantage"]
        value, low, high = (_number(gain[key], 4) for key in ("value", "lower", "upper"))
        out.print(f"cost minus that of the runner-up: {value}, paired interval {low} – {high}", highlight=False)
    if any(not limit["kept"] for limit in result["limits"]):
        out.print("no policy that was found keeps the limits; this one comes nearest.", highlight=False)
    if "certificate" not in result:
        out.print("the run was saved by an earlier version, without a certificate and a lower bound.", highlight=False)
        return
    out.print(_certificate(result["certificate"]))
    if result["theory"] is not None:
        _print_theory(result["theory"])
    gap = "unknown" if result["gap"] is None else f"at most {result['gap']:.2%} of the cost"
    bound, proved = _number(result["lower_bound"], 6), result["lower_bound_kind"] == PROVED
    words = f"no policy costs less than {bound} (proved)" if proved else (
        f"{bound} is a lower bound by the states that were looked at ({result['lower_bound_kind']}, not a proof)"
    )  # fmt: skip
    out.print(f"{words}; the gap is {gap}.", highlight=False)


def _outcomes(result: dict[str, Any]) -> Table:
    table = Table("H", "objective", "negative part", "flow", "surrogate", "status", "cost of the policy", "seconds")
    for k, row in enumerate(result["tried"]):
        cells = [
            _with_error(row[key], row[f"{key}_error"]) for key in ("violation_negative", "violation_flow", "surrogate")
        ]
        mark = " *" if k == result.get("chosen") else ""
        table.add_row(
            _penalty(row), _number(row["objective"]), *cells, row["status"], f"{_number(row['cost'])}{mark}",
            f"{row['seconds'] + row['evaluation_seconds']:.1f}",
        )  # fmt: skip
    return table


def _penalty(row: dict[str, Any]) -> str:
    """H of the flow, where the two violations are weighed apart."""
    return f"{row['penalty'][1] if isinstance(row['penalty'], list) else row['penalty']:g}"


def _certificate(certificate: dict[str, Any]) -> Table:
    table = Table("", "value", "between", "known", "why", title="certificate")
    for name, entry in certificate["entries"].items():
        ends = entry["lower"], entry["upper"]
        between = "" if ends[0] == ends[1] else " – ".join(_number(end) for end in ends)
        table.add_row(name, _number(entry["value"]), between, entry["label"], entry["note"])
    return table


def _print_theory(theory: dict[str, Any]) -> None:
    """The theorems as numbers, and the work they ask for."""
    title = f"by theory, for ε = {theory['epsilon']:g} and δ = {theory['delta']:g}"
    table = Table("theorem", "at most", "known", "terms", "constants", title=title)
    for name, statement in theory["statements"].items():
        parts = [", ".join(f"{key} {_number(value, 4)}" for key, value in statement[part].items())
                 for part in ("terms", "constants")]  # fmt: skip
        table.add_row(name, _number(statement["bound"]), statement["label"], *parts)
    work = Table("at", "largest H", "T: steps", "n: draws", "K: points")
    for name, asked in theory["requirements"].items():
        work.add_row(name, *(_number(asked[key], 3) for key in ("penalty", "T", "n", "K")))
    _out().print(table)
    _out().print(work)


def _draw(result: dict[str, Any], figure: str) -> None:
    bound = {} if result.get("lower_bound") is None else {"lower bound": result["lower_bound"]}
    draw_curve(result["tried"], figure, f"{result['model']}, {result['features']} features", bound)


def _print_rows(result: dict[str, Any]) -> None:
    """A result as a table of its numbers and words."""
    table = Table("", "", show_header=False)
    for name, value in result.items():
        if name != "limits":
            table.add_row(name, f"{value:.9g}" if isinstance(value, float) else str(value))
    _out().print(table)
    if "limits" in result:
        _out().print(_limits(result["limits"]))


def _print_curves(result: dict[str, Any]) -> None:
    table = Table("H", "steps", "objective", "violation", "average loss of the policy")
    for curve in result["curves"]:
        for k, step in enumerate(curve["steps"]):
            cost = f"{curve['cost'][k]:.2f} ± {curve['half_width'][k]:.2f}"
            table.add_row(f"{curve['penalty']:g}", f"{step:,}", _number(curve["objective"][k]),
                          _number(curve["violation"][k]), cost)  # fmt: skip
    _out().print(table)
    _out().print(", ".join(f"{name} {value:.4g}" for name, value in result["lines"].items()), highlight=False)
    _out().print(f"drawn to {result['figure']}", highlight=False)


def _with_error(value: float, error: float) -> str:
    return f"{value:.4g}" if error == 0 else f"{value:.4g} ± {error:.1g}"


def _limits(rows: list[dict[str, Any]]) -> Table:
    table = Table("measure", "at most", "of the policy", "multiplier", title="limits")
    for row in rows:
        table.add_row(row["measure"], *(f"{row[key]:.6g}" for key in ("at_most", "value", "multiplier")))
    return table


# -- output ---------------------------------------------------------------------------------------------------------


def _out() -> Console:
    """Standard output; wide enough for tables where it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(plain(value), allow_nan=False) + "\n")


def _print_report(model: Model, report: Any) -> None:
    described = model.describe()
    states = described["states"]
    out = _out()
    out.print(f"[bold]{model.name}[/bold]: {model.box.dim} coordinates, "
              f"{'infinitely many' if states is None else states} states, {len(model.actions)} actions")  # fmt: skip
    for server, rho in described.get("loads", {}).items():
        warning = "  [yellow](no policy keeps unbounded queues finite)[/yellow]" if rho >= 1 else ""
        out.print(f"  load of {server}: {rho:.4g}{warning}")
    scope = "all" if report.exhaustive else "sampled"
    for what in report.checked:
        out.print(f"  [green]ok[/green]      {what} ({report.pairs} {scope} pairs)")
    for what in report.skipped:
        out.print(f"  [yellow]skipped[/yellow] {what}")
    if report.simulator_p_value is not None:
        out.print(f"  simulator against forward law: p = {report.simulator_p_value:.3g}")


def _print_evaluation(result: Evaluation | Comparison, folder: str | None) -> None:
    out = _out()
    evaluations = [result] if isinstance(result, Evaluation) else [result.first, result.second]
    table = Table()
    for column in ("policy", "cost", f"{evaluations[0].confidence:.0%} interval", "status", "steps", "seconds"):
        table.add_column(column, justify="left" if column in ("policy", "status") else "right")
    for e in evaluations:
        table.add_row(e.policy, _number(e.cost), f"{_number(e.lower)} – {_number(e.upper)}", str(e.status),
                      f"{e.steps:,}", f"{e.seconds:.1f}")  # fmt: skip
    out.print(table)
    if isinstance(result, Comparison):
        out.print(f"{result} ({result.status})", highlight=False)
    if any(e.measures for e in evaluations):
        out.print(_measures(evaluations))
    notes = [f"{e.policy}: {note}" for e in evaluations for note in e.notes]
    notes += list(result.notes) if isinstance(result, Comparison) else []
    for note in notes:
        out.print(f"[yellow]note[/yellow] {note}", highlight=False)
    statuses = [result.status, *(e.status for e in evaluations)]
    for status in dict.fromkeys(statuses):
        out.print(f"{status}: {status.advice}.", highlight=False)
    if folder is not None:
        out.print(f"saved in {folder}", highlight=False)
        if any(e.status is Status.INTERRUPTED for e in evaluations):
            out.print("go on with the same command and --resume", highlight=False)


def _measures(evaluations: list[Evaluation]) -> Table:
    table = Table(title="measures")
    table.add_column("measure")
    for e in evaluations:
        table.add_column(e.policy, justify="right")
        table.add_column("±", justify="right")
    for name in dict.fromkeys(n for e in evaluations for n in e.measures):
        cells: list[str] = []
        for e in evaluations:
            interval = e.measures.get(name)
            cells += ["", ""] if interval is None else [_number(interval.value), f"{interval.half_width:.2g}"]
        table.add_row(name, *cells)
    return table


def _number(value: float | None, digits: int = 5) -> str:
    """A number in a table; JSON has None for one that is infinite or unknown."""
    return "unknown" if value is None else "∞" if value == float("inf") else f"{value:.{digits}g}"


def _words(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.value:.5g} ± {interval.half_width:.2g}"


@contextmanager
def _bar(title: str) -> Iterator[Any]:
    """A progress bar on a terminal, once two seconds have passed; nothing otherwise."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn(),
               TimeRemainingColumn())  # fmt: skip
    bar = Progress(*columns, console=err, transient=True)
    task = bar.add_task(title, total=None, words="")
    started, shown, latest = time.monotonic(), False, ""

    def update(done: int, total: int, words: str) -> None:
        nonlocal shown, latest
        latest = words or latest
        if not shown and err.is_terminal and time.monotonic() - started > PROGRESS_AFTER:
            bar.start()
            shown = True
        bar.update(task, completed=min(done, total), total=total, words=latest)

    try:
        yield update
    finally:
        if shown:
            bar.stop()


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
        err.print(f"dualplan: {error}", style=None, markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
