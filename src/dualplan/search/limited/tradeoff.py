"""The whole curve of least cost against a limit on a measure, one for each measure.

Where states can be listed in the time the linear programs of all levels are solved
(`listed_curves.py`); otherwise, for the average criterion, policies are searched at the prices of
all levels (`searched_curves.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from dualplan._kernels.compiler import compiling
from dualplan.core.budgets import Clock, seconds
from dualplan.core.checks import require_seed
from dualplan.core.errors import InputError, MissingError, unknown
from dualplan.core.runs import Run
from dualplan.core.threads import single_threaded_algebra
from dualplan.core.types import Json
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.policies.saved import save_policy
from dualplan.search.contract import Search
from dualplan.search.limited.curves import Curve, Point, Tradeoff
from dualplan.search.limited.listed_curves import ListedCurves, exact_start
from dualplan.search.limited.searched_curves import SearchedCurves
from dualplan.search.limited.step import ByPrices
from dualplan.search.listed import EXACT, fits
from dualplan.search.steps import STEPS_BY_NAME

DEFAULT_TRADEOFF_TIME = "5m"
COMPILING_WORDS = "compiling, once for this version of the model; not part of the time"
SEARCHED = ByPrices.name  # the method that searches
TRADEOFF_METHODS = (EXACT, SEARCHED)

Progress = Callable[[int, int, str], None]


def tradeoff(
    model: Model,
    measures: str | Sequence[str],
    criterion: Criterion | None = None,
    *,
    policies: Sequence[Policy] = (),
    time: str | float = DEFAULT_TRADEOFF_TIME,
    method: str | None = None,
    seed: int = 0,
    folder: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Tradeoff:
    """The least cost against a limit on one of the model's measures, a curve for each of them.

    `policies` are what a search begins with (by default the model's heuristics), `method` is
    "exact" over all states, "limits" by search, or None for exactly where that fits into the time.
    With a `folder` the policies are saved there, and a run can be resumed, which refines the
    curves.
    """
    allowed = seconds(time)
    require_seed(seed)
    criterion = require_criterion(criterion)
    names = _measures(model, measures)
    for policy in policies:
        require_policy_of(model, policy)
    if method is not None and method not in TRADEOFF_METHODS:
        raise unknown("method of a trade-off", method, TRADEOFF_METHODS)
    if method == SEARCHED and isinstance(criterion, Discounted):
        raise InputError(_ONLY_EXACT)
    asked = {
        "task": "tradeoff",
        "model": model.describe(),
        "criterion": criterion.describe(),
        "measures": list(names),
        "policies": [policy.describe() for policy in policies],
        "method": method,
        "seed": seed,
        "budget": {"seconds": allowed},
    }
    run = _open(asked, folder, resume)
    telling = progress or (lambda *_: None)
    wait = partial(telling, 0, max(1, int(allowed)), COMPILING_WORDS)
    with single_threaded_algebra(), compiling(wait) as compiled:
        clock = Clock(allowed, compiled)
        search = Search(model, criterion, (), seed, clock=clock)

        def tell(words: str) -> None:
            telling(int(clock.spent), max(1, int(allowed)), words)

        found = None
        if method != SEARCHED:
            found = _listed(search, names, policies, method, run, tell)
        if found is None:
            found = _searched(search, names, policies, run, tell)
        return _ended(found, run)


_ONLY_EXACT = (
    "a search judges by simulated measures, which the discounted criterion has not; allow more "
    "time for the exact curve, or take a model with fewer states."
)


def _measures(model: Model, given: str | Sequence[str]) -> tuple[str, ...]:
    """The measures that were asked for, each of them one of the model's."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise InputError("a trade-off needs a measure; `model.measures` lists those of the model.")
    for name in names:
        model.measure(name)
    if len(set(names)) < len(names):
        raise InputError("each measure of a trade-off is named once.")
    return names


def _open(asked: Json, folder: str | None, resume: bool) -> Run | None:
    if folder is not None:
        return Run(folder, asked, resume=resume)
    if resume:
        raise InputError("only a run that was saved in a folder can be resumed; name its folder.")
    return None


def _listed(
    search: Search,
    names: tuple[str, ...],
    policies: Sequence[Policy],
    method: str | None,
    run: Run | None,
    tell: Callable[[str], None],
) -> Tradeoff | None:
    """The exact curves; None where they are left to a search."""
    if method is None and not fits(search):
        return None
    curves = ListedCurves(search, names, run, tell)
    found = curves.found(may_give_up=method is None)
    if found is None:
        if method == EXACT:
            raise MissingError(
                f"the curve of {search.model.name!r} over all states does not fit into the time or "
                "the memory; allow more time, or leave the method to the library."
            )
        return None
    own = list(policies) or [search.model.policy(name) for name in search.model.policies]
    tell("the policies to begin with beside them")
    return Tradeoff(
        model=search.model,
        criterion=search.criterion,
        curves=tuple(found),
        start=exact_start(search, own),
        columns=(),
        searches=0,
        status=curves.status,
        seed=search.seed,
        seconds=search.clock.spent,
    )


def _searched(
    search: Search,
    names: tuple[str, ...],
    policies: Sequence[Policy],
    run: Run | None,
    tell: Callable[[str], None],
) -> Tradeoff:
    if isinstance(search.criterion, Discounted):
        raise InputError(_ONLY_EXACT)
    step = STEPS_BY_NAME[SEARCHED]
    assert isinstance(step, ByPrices)
    curves = SearchedCurves(search, names, step, run, tell)
    found = curves.found(policies)
    return Tradeoff(
        model=search.model,
        criterion=search.criterion,
        curves=tuple(found),
        start=curves.start,
        columns=curves.named,
        searches=curves.searches,
        status=curves.status,
        seed=search.seed,
        seconds=search.clock.spent,
    )


# -- what is saved ---------------------------------------------------------------------------------


def _ended(found: Tradeoff, run: Run | None) -> Tradeoff:
    """The result, saved in the folder if there is one: a file for the policy of each point."""
    if run is None:
        return found
    curves = tuple(_saved(curve, run) for curve in found.curves)
    found = replace(found, curves=curves)
    run.save_result(found.to_json())
    return found


def _saved(curve: Curve, run: Run) -> Curve:
    slug = re.sub(r"[^a-z0-9]+", "-", curve.measure.lower()).strip("-")
    for path in run.folder.glob(f"{slug}-[0-9][0-9].npz"):
        path.unlink()
    points = [_saved_point(p, f"{slug}-{k + 1:02}.npz", run) for k, p in enumerate(curve.points)]
    return replace(curve, points=tuple(points))


def _saved_point(point: Point, name: str, run: Run) -> Point:
    """The point with the file of its policy, unless that is a function of the user."""
    try:
        save_policy(point.policy, run.folder / name)
    except MissingError:
        return point
    return replace(point, file=name)
