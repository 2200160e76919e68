"""``dualplan evaluate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from dualplan.cli.command import stop_if_interrupted
from dualplan.cli.inputs import ModelArgument, load_model
from dualplan.cli.options import (
    CriterionOption,
    GammaOption,
    JsonOption,
    OverloadedOption,
    SetOption,
    ThreadsOption,
)
from dualplan.cli.output import Update, bar, out_console, print_json
from dualplan.cli.tables import print_evaluation
from dualplan.core.errors import InputError
from dualplan.core.intervals import Interval
from dualplan.core.words import ends, estimate, number
from dualplan.evaluation.evaluate import compare
from dualplan.evaluation.evaluate import evaluate as evaluate_policy
from dualplan.evaluation.results import Comparison, Evaluation
from dualplan.exact import evaluate_exact
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, make_criterion
from dualplan.models.load import require_stable
from dualplan.policies.contract import Policy
from dualplan.policies.named import named_policy

EVALUATION_STEPS = 20_000_000  # of simulation, unless others are given


def evaluate(
    model: ModelArgument,
    policy: Annotated[
        list[str],
        typer.Option(
            "--policy",
            "-p",
            help=(
                "a heuristic, an order such as 'a > b', the folder or file of a saved policy, or "
                "FILE.py:FUNCTION; two are compared"
            ),
        ),
    ],
    settings: SetOption = None,
    criterion: CriterionOption = "average",
    gamma: GammaOption = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="average: batch-means (default), regenerative; discounted: truncated (default "
            "where losses are bounded), stopped; either: exact"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="budget of simulated steps")] = EVALUATION_STEPS,
    tol: Annotated[
        float | None, typer.Option(help="stop when the interval is this narrow; default: never")
    ] = None,
    relative_tol: Annotated[
        float | None, typer.Option(help="the same, as a fraction of the cost; default: never")
    ] = None,
    confidence: Annotated[float, typer.Option(help="of the interval")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="of the random numbers")] = 0,
    threads: ThreadsOption = None,
    out: Annotated[
        str | None, typer.Option(help="folder to save the run in; default: none")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    overloaded: OverloadedOption = False,
    mixing: Annotated[
        bool, typer.Option("--mixing", help="measure how fast the chain mixes (method exact)")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate one policy, or compare two on the same random numbers."""
    if len(policy) > 2:
        raise InputError(f"evaluate takes one or two policies, got {len(policy)}.")
    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    loaded = load_model(model, settings)
    judged_by = make_criterion(criterion, gamma)
    if not overloaded and not isinstance(judged_by, Discounted):
        require_stable(loaded)
    chosen = [named_policy(loaded, name) for name in policy]
    if method == "exact":
        changed = (out, resume, tol, relative_tol, confidence, steps) != (
            None,
            False,
            None,
            None,
            0.95,
            EVALUATION_STEPS,
        )
        if changed:
            raise InputError(
                "--method exact has no run to save, no steps and no interval; leave such options "
                "out."
            )
        _evaluate_exactly(loaded, chosen, judged_by, threads, mixing, as_json)
        return
    if mixing:
        raise InputError("--mixing needs --method exact.")
    options: dict[str, Any] = {
        "method": method,
        "steps": steps,
        "tol": tol,
        "relative_tol": relative_tol,
        "confidence": confidence,
        "seed": seed,
        "threads": threads,
        "folder": out,
        "resume": resume,
    }
    with bar("simulating", unit="steps") as update:
        options["progress"] = _Progress(update, tol, relative_tol)
        result: Evaluation | Comparison
        if len(chosen) == 2:
            result = compare(loaded, chosen[0], chosen[1], judged_by, **options)
        else:
            result = evaluate_policy(loaded, chosen[0], judged_by, **options)
    if as_json:
        print_json(result.to_json())
    else:
        print_evaluation(result, out)
    if isinstance(result, Evaluation):
        first = result
    else:
        first = result.first
    stop_if_interrupted(first.status, out)


class _Progress:
    """The interval so far.

    Half-widths shrink as the root of the steps, which says how many a wanted one takes.
    """

    def __init__(self, update: Update, tol: float | None, relative_tol: float | None) -> None:
        self.update = update
        self.tol = tol
        self.relative_tol = relative_tol
        self.expected = float("inf")

    def __call__(self, done: int, total: int, interval: Interval | None) -> None:
        if interval is not None:
            wanted = [
                w
                for w in (self.tol, self.relative_tol and self.relative_tol * abs(interval.value))
                if w
            ]
            self.expected = min(
                [done * (interval.half_width / w) ** 2 for w in wanted], default=float("inf")
            )
        self.update(done, max(done, min(total, self.expected)), estimate(interval))


def _evaluate_exactly(
    model: Model,
    chosen: list[Policy],
    criterion: Criterion,
    threads: int | None,
    mixing: bool,
    as_json: bool,
) -> None:
    results = [evaluate_exact(model, policy, criterion, threads=threads) for policy in chosen]
    rows = [r.to_json() | ({"mixing": asdict(r.mixing)} if mixing else {}) for r in results]
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"rows": rows})
        return
    table = Table("policy", "cost", "bounds", "status", "states", "seconds")
    for r in results:
        table.add_row(
            r.policy,
            number(r.cost, 8),
            ends(r.lower, r.upper, 10),
            str(r.status),
            f"{r.reached.size:,}",
            f"{r.seconds:.1f}",
        )
    out_console().print(table)
    measures = Table("measure", *(r.policy for r in results), title="measures, exactly")
    for name in results[0].measures:
        measures.add_row(name, *(f"{r.measures[name]:.6g}" for r in results))
    if mixing:
        for what in ("tau", "constant", "one_step", "relaxation"):
            measures.add_row(what, *(str(getattr(r.mixing, what)) for r in results))
    out_console().print(measures)
