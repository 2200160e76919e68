"""The headline: the best policy that a time allows.

Here a search is asked for: what was said is checked before any work starts, the methods are looked
up by their names, and the exact answer comes first where the states can be listed in the time.
The search itself is in `loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dualplan._kernels.compiler import compiling
from dualplan.core.budgets import Clock, seconds, share
from dualplan.core.checks import require_seed
from dualplan.core.errors import InputError, MissingError, unknown
from dualplan.core.runs import Run
from dualplan.core.threads import single_threaded_algebra
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, require_criterion
from dualplan.models.limits import Limit, require_limits
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.search.contract import Search, SearchResult, Step
from dualplan.search.limited.step import ByPrices
from dualplan.search.listed import EXACT, fits
from dualplan.search.loop import Loop, Progress
from dualplan.search.steps import STEPS_BY_NAME, all_steps

DEFAULT_SEARCH_TIME = "2m"
COMPILING_WORDS = "compiling, once for this version of the model; not part of the time"


def solve(
    model: Model,
    criterion: Criterion | None = None,
    *,
    policies: Sequence[Policy] = (),
    limits: Sequence[Limit | str] = (),
    time: str | float = DEFAULT_SEARCH_TIME,
    gap: str | float | None = None,
    method: str | Sequence[str] | None = None,
    seed: int = 0,
    folder: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> SearchResult:
    """The best policy that the steps find in a time, what it costs, a lower bound, and the gap
    between the two.

    `policies` are what to begin with (anything that maps a state to probabilities; by default the
    model's heuristics), `limits` side constraints such as "lost fraction <= 0.01", `gap` the share
    of the cost at which to stop, `method` the name of a method or several, by default all of them.
    The `time` counts without what it takes to compile the model, which is once for its version.
    With a `folder` the best policy is saved whenever it changes.
    """
    allowed = seconds(time)
    wanted = None if gap is None else share(gap)
    criterion = require_criterion(criterion)
    require_seed(seed)
    methods = _methods([method] if isinstance(method, str) else method)
    for policy in policies:
        require_policy_of(model, policy)
    limited = _limits(model, limits)
    telling = progress or (lambda *_: None)
    wait = partial(telling, 0, max(1, int(allowed)), COMPILING_WORDS)
    with single_threaded_algebra(), compiling(wait) as compiled:
        clock = Clock(allowed, compiled)
        search = Search(
            model, criterion, limited, seed, clock=clock, wanted_gap=wanted, wanted_limits=limited
        )
        steps = all_steps()
        chosen = [steps[name] for name in methods if name != EXACT]
        if method is not None:
            _require_applicable(search, chosen)
            chosen = _with_prices(search, chosen)
        exact_first = EXACT in methods and (not chosen or fits(search))
        if limits and isinstance(criterion, Discounted) and not exact_first:
            raise InputError(
                "limits are judged by simulated measures, which the discounted criterion has not; "
                f"only method {EXACT!r} keeps them, and the model has too many states for it in "
                "this time."
            )
        run = _open(search, policies, methods, allowed, folder, resume)
        search.before = 0 if run is None else run.traced
        search.limits = ()
        loop = Loop(search, run, telling)
        loop.begin(list(policies))
        try:
            if exact_first and loop.exactly():
                return loop.end_exact()
            return loop.search_and_finish(chosen)
        except KeyboardInterrupt:
            return loop.interrupted()


def _limits(model: Model, given: Sequence[Limit | str]) -> tuple[Limit, ...]:
    limits = require_limits(given)
    for limit in limits:
        if not isinstance(limit.measure, str):
            raise InputError(
                f"the limit on {limit.name!r} must be on a measure of the model, by its name."
            )
        model.measure(limit.measure)
    return limits


def _methods(names: Sequence[str] | None) -> list[str]:
    """The methods that were asked for, by default all, in the order in which they are taken."""
    known = [EXACT, *all_steps()]
    for name in names or ():
        if name not in known:
            raise unknown("method", str(name), known)
    if names is None:
        return [EXACT, *STEPS_BY_NAME]
    return [name for name in known if name in names]


def _require_applicable(search: Search, chosen: Sequence[Step]) -> None:
    """Raise for a method that was asked for and is not for this model.

    Limits do not count: a search begins without them.
    """
    free = replace(search, limits=())
    for step in chosen:
        if not step.applies(search) and not step.applies(free):
            raise MissingError(
                f"method {step.name!r} needs {step.needs}, which model {search.model.name!r} and "
                "what you asked for do not have; leave it out."
            )


def _with_prices(search: Search, chosen: list[Step]) -> list[Step]:
    """The steps that were asked for, and what keeps limits once they bind."""
    prices = STEPS_BY_NAME[ByPrices.name]
    if not chosen or prices in chosen or not prices.applies(search):
        return chosen
    return [prices, *chosen]


def _open(
    search: Search,
    policies: Sequence[Policy],
    steps: list[str],
    allowed: float,
    folder: str | None,
    resume: bool,
) -> Run | None:
    if folder is None:
        if resume:
            raise InputError(
                "only a run that was saved in a folder can be resumed; name its folder."
            )
        return None
    settings = {
        "task": "solve",
        "model": search.model.describe(),
        "criterion": search.criterion.describe(),
        "limits": [f"{limit.name} <= {limit.at_most!r}" for limit in search.wanted_limits],
        "policies": [policy.describe() for policy in policies],
        "steps": steps,
        "seed": search.seed,
        "budget": {"seconds": allowed},
    }
    return Run(folder, settings, resume=resume)
