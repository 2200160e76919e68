"""``dualplan compare``: policies side by side.

All intervals, those of n costs and of n − 1 differences from the first, are made at the level 1
− (1 − c)/(2n − 1), so that they hold together with probability c (Bonferroni). Each difference is
that of `dualplan.compare` with the same seed: the same random numbers for both policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dualplan.cli.folders import (
    OwnModelOption,
    Source,
    common_criterion,
    given_model,
    others_of,
    sources_of,
)
from dualplan.cli.options import GammaOption, JsonOption, SetOption, ThreadsOption
from dualplan.cli.output import bar, print_json
from dualplan.cli.run_tables import draw_compared, print_compared
from dualplan.core.errors import InputError, ModelError
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.core.types import Json
from dualplan.core.words import estimate
from dualplan.evaluation.evaluate import compare as compare_two
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.results import EXACT_EVALUATION, Evaluation
from dualplan.models.contract import few_states
from dualplan.models.criteria import Criterion, make_criterion
from dualplan.policies.tables import tabulated
from dualplan.report.figures import require_drawable

COMPARISON_STEPS = 8_000_000  # of each comparison, unless others are given


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="folders of runs, files of policies, heuristics of the first one's model",
            metavar="DIR...",
        ),
    ],
    model: OwnModelOption = None,
    settings: SetOption = None,
    criterion: Annotated[
        str | None, typer.Option(help="average or discounted; default: that of the runs")
    ] = None,
    gamma: GammaOption = None,
    steps: Annotated[
        int, typer.Option(min=1, help="simulated steps of each comparison with the first")
    ] = COMPARISON_STEPS,
    confidence: Annotated[float, typer.Option(help="that all intervals hold together")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="of the random numbers")] = 0,
    simulate: Annotated[bool, typer.Option("--simulate", help="even where states are few")] = False,
    threads: ThreadsOption = None,
    figure: Annotated[
        str | None, typer.Option(help="file for costs and differences; default: none")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare policies of saved runs on the same random numbers; exactly where states are few."""
    if figure is not None:
        require_drawable(figure)
    if not 0 < confidence < 1:
        raise InputError(f"--confidence must lie strictly between 0 and 1, got {confidence!r}.")
    sources = sources_of(runs[0], given_model(model, settings))
    for spec in runs[1:]:
        sources += others_of(spec, sources[0].policy.model)
    if len(sources) < 2:
        raise InputError(
            f"compare needs two policies at least, and {runs[0]!r} is one; name another."
        )
    if criterion is not None:
        wanted = make_criterion(criterion, gamma)
    else:
        wanted = common_criterion(sources)
    if simulate:
        found = None
    else:
        found = exactly(sources, wanted, threads)
    if found is None:
        with bar("simulating") as update:
            found = simulated(
                sources,
                wanted,
                confidence=confidence,
                steps=steps,
                seed=seed,
                threads=threads,
                progress=lambda done, total, interval: update(done, total, estimate(interval)),
            )
    result = {"model": sources[0].policy.model.name, **wanted.describe(), **found}
    if figure is not None:
        draw_compared(result, figure)
    if as_json:
        print_json(result)
    else:
        print_compared(result)


def exactly(
    sources: Sequence[Source], criterion: Criterion, threads: int | None = None
) -> Json | None:
    """Over all states; None where they are many, or a policy has no one cost."""
    model = sources[0].policy.model
    if not few_states(model) or any(tabulated(s.policy).code is None for s in sources):
        return None
    judge = Judge(EXACT_EVALUATION, threads=threads)
    try:
        found = [judge(model, s.policy, criterion) for s in sources]
    except ModelError:
        # several recurrent classes: the cost depends on chance, and simulation says so
        return None
    rows = [_row(s, e, _apart(e, found[0])) for s, e in zip(sources, found, strict=True)]
    rows[0]["difference"] = None
    notes = [f"{s.label}: {note}" for s, e in zip(sources, found, strict=True) for note in e.notes]
    return {
        "method": "exact",
        "states": model.box.count,
        "confidence": 1.0,
        "level": 1.0,
        "rows": rows,
        "notes": notes,
    }


def _apart(own: Evaluation, first: Evaluation) -> Interval:
    """The difference of two costs that are known between bounds."""
    lower = own.lower - first.upper
    upper = own.upper - first.lower
    return Interval(own.cost - first.cost, lower, upper, 1.0)


def simulated(
    sources: Sequence[Source], criterion: Criterion, *, confidence: float = 0.95, **settings: Any
) -> Json:
    """Every policy beside the first; `settings` are those of `dualplan.compare`."""
    first = sources[0].policy
    model = sources[0].policy.model
    level = 1 - (1 - confidence) / (2 * len(sources) - 1)
    pairs = []
    for source in sources[1:]:
        pairs.append(
            compare_two(model, source.policy, first, criterion, confidence=level, **settings)
        )
        # the others are missing, so no table of all can be made
        if pairs[-1].status is Status.INTERRUPTED:
            raise KeyboardInterrupt
    rows = [_row(sources[0], pairs[0].second, None)]
    rows += [
        _row(s, pair.first, pair.difference) for s, pair in zip(sources[1:], pairs, strict=True)
    ]
    own = [
        (sources[0].label, pairs[0].second),
        *((s.label, p.first) for s, p in zip(sources[1:], pairs, strict=True)),
    ]
    notes = [f"{label}: {note}" for label, run in own for note in run.notes]
    notes += [
        f"{s.label}: {note}"
        for s, pair in zip(sources[1:], pairs, strict=True)
        for note in pair.notes
    ]
    method = pairs[0].first.method
    return {
        "method": method,
        "states": None,
        "confidence": confidence,
        "level": level,
        "rows": rows,
        "notes": notes,
    }


def _row(source: Source, own: Evaluation, difference: Interval | None) -> Json:
    data = own.to_json()
    keys = ["policy", "cost", "lower", "upper", "measures", "status"]
    if not own.exact:
        keys += ["steps", "seed"]
    return {
        "name": source.label,
        **{key: data[key] for key in keys},
        "difference": None if difference is None else difference.to_json(),
    }
