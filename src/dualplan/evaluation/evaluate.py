"""What a policy costs, by simulation, with an interval.

An experiment (see `experiments`) grows until the half-width is reached or the budget is spent.
Looks at the interval are spaced geometrically, so that stopping at the first narrow one costs
little coverage. Two policies are compared on common random numbers. A control, a function of states
near the bias of the policies, makes intervals of average costs narrower (`simulation/`); it does
not change what they are about, if its mean under the policies is finite, which is assumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from dualplan.core.deadlines import deadline
from dualplan.core.errors import InputError, OutOfTimeError, unknown
from dualplan.core.intervals import Interval
from dualplan.core.runs import Run
from dualplan.core.status import Status
from dualplan.evaluation.compared import Compared, paired
from dualplan.evaluation.experiments import LongRun, ManyRuns
from dualplan.evaluation.results import Comparison, Evaluation, Settings, SettingsKeywords
from dualplan.evaluation.simulation import Control
from dualplan.models.contract import Model
from dualplan.models.criteria import Average, Criterion, Discounted, require_criterion
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy, require_policy_of

INTERVAL_METHODS = {Average: ("batch-means", "regenerative"), Discounted: ("truncated", "stopped")}
LOOK_RATIO = 1.4
CHECKPOINT_SECONDS = 5.0  # seconds between checkpoints
# of the time of a policy beside others, for all of them together
TOGETHER_TIME_SHARE = 0.5
LEAST_SECONDS_ALONE = 1e-3

Experiment = LongRun | ManyRuns
Progress = Callable[[int, int, Interval | None], None]


def evaluate(
    model: Model,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    control: Control | None = None,
    folder: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **settings: Unpack[SettingsKeywords],
) -> Evaluation:
    """Estimate the cost of a policy by simulation; `settings` are the fields of `Settings`.

    With a `folder` the run is saved there, and can be resumed after an interruption or with a
    larger budget.
    """
    criterion = require_criterion(criterion)
    wanted = _settings(model, criterion, settings)
    controls = () if control is None else (control,)
    _check_controls(model, criterion, wanted, controls, folder)
    run = _open(folder, resume, model, [policy], criterion, wanted)
    result = _evaluate(model, [policy], criterion, wanted, run, progress, controls)[0][0]
    if run is not None:
        run.save_result(result.to_json())
    return result


def compare(
    model: Model,
    first: Policy,
    second: Policy,
    criterion: Criterion | None = None,
    *,
    control: Control | tuple[Control, Control] | None = None,
    folder: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **settings: Unpack[SettingsKeywords],
) -> Comparison:
    """Evaluate two policies on common random numbers; a half-width asked for is that of the
    difference.

    A control is for both policies, or one for each.
    """
    criterion = require_criterion(criterion)
    wanted = _settings(model, criterion, settings)
    if wanted.method == "regenerative":
        raise InputError(
            "two policies have no cycles in common; compare them with method 'batch-means'."
        )
    controls: tuple[Control, ...] = ()
    if isinstance(control, tuple):
        controls = control
    elif control is not None:
        controls = (control, control)
    _check_controls(model, criterion, wanted, controls, folder)
    run = _open(folder, resume, model, [first, second], criterion, wanted)
    (a, b), difference, reached = _evaluate(
        model, [first, second], criterion, wanted, run, progress, controls
    )
    status = reached
    for complaint in (Status.TOO_SHORT, Status.UNSTABLE):
        if complaint in (a.status, b.status):
            status = complaint
    if status is Status.UNSTABLE:
        difference = Interval(math.nan, -math.inf, math.inf, wanted.confidence)
    result = Comparison(a, b, difference, status, _notes_on_losses(model, a, b, difference))
    if run is not None:
        run.save_result(result.to_json())
    return result


def evaluate_beside(
    model: Model,
    first: Policy,
    others: Sequence[Policy],
    criterion: Criterion | None = None,
    *,
    controls: Sequence[Control] = (),
    known: Evaluation | None = None,
    **settings: Unpack[SettingsKeywords],
) -> tuple[Evaluation, list[Compared]]:
    """Evaluate a policy, and others beside it on the same random numbers.

    A half-width asked for is that of the first one's cost. Half of the time at most goes into all
    of them together; then the first goes on alone. If its cost is `known` exactly, the half-width
    is that of the differences, and all of the time goes into these. Controls are one for each.
    """
    criterion = require_criterion(criterion)
    wanted = _settings(model, criterion, settings)
    _check_controls(model, criterion, wanted, controls, None)
    policies = [first, *others]
    for policy in policies:
        require_policy_of(model, policy)
    started = time.monotonic()
    record = _record(model, policies, criterion, wanted, controls, leading=known is None)
    status = _drive(record, _together(wanted, len(policies), known))
    together = record.evaluations(_own_status(status, known), time.monotonic() - started)
    apart = record.differences()
    size = record.size
    if known is not None:
        found = known
    elif others and status in (Status.TIME, Status.BUDGET, Status.COMPLETED):
        record.go_on_alone()
        found = _alone(record, wanted, started)
    else:
        found = together[0]
    rows = [
        paired(own, gap, found, together=known is None and record.size == size)
        for own, gap in zip(together[1:], apart, strict=True)
    ]
    return found, rows


def _together(wanted: Settings, count: int, known: Evaluation | None) -> Settings:
    """What is asked of so many policies together; steps that are asked of each count for all."""
    every = replace(wanted, least=count * wanted.least)
    if known is not None or count == 1 or wanted.seconds is None:
        return every
    return replace(every, time=TOGETHER_TIME_SHARE * wanted.seconds)


def _own_status(status: Status, known: Evaluation | None) -> Status:
    """That of each policy: a half-width that was asked for may be that of differences."""
    if known is None or status is Status.INTERRUPTED:
        return status
    return Status.COMPLETED


def _alone(record: Experiment, wanted: Settings, started: float) -> Evaluation:
    """The first policy in the time that is left."""
    left = None
    if wanted.seconds is not None:
        left = max(wanted.seconds - (time.monotonic() - started), LEAST_SECONDS_ALONE)
    status = _drive(record, replace(wanted, time=left))
    return record.evaluations(status, time.monotonic() - started)[0]


def _settings(model: Model, criterion: Criterion, given: SettingsKeywords) -> Settings:
    known = Settings.__dataclass_fields__
    for key in given:
        if key not in known:
            raise unknown("setting", key, known)
    settings = Settings(**given)
    methods = INTERVAL_METHODS[type(criterion)]
    method = settings.method
    if method is None:
        method = methods[0]
        if isinstance(criterion, Discounted) and model.loss_bounds is None:
            method = "stopped"
    hidden = isinstance(model, SimulatorModel) and not model.resumable
    if hidden and isinstance(criterion, Discounted) and criterion.start is not None:
        raise InputError(
            f"model {model.name!r} keeps its state to itself, so it cannot be started from a given "
            "one."
        )
    if method not in methods:
        raise unknown(
            f"method for the {criterion.describe()['criterion']} criterion", method, methods
        )
    if method == "truncated" and model.loss_bounds is None:
        raise InputError(
            f"method 'truncated' needs bounds on the loss, and model {model.name!r} has none; use "
            "'stopped'."
        )
    return replace(settings, method=method)


def _check_controls(
    model: Model,
    criterion: Criterion,
    wanted: Settings,
    controls: Sequence[Control],
    folder: str | None,
) -> None:
    if not controls:
        return
    for control in controls:
        other = getattr(control, "model", model)
        if other is not model and other.digest != model.digest:
            raise InputError(f"the control belongs to {other.name!r}, not to {model.name!r}.")
    if isinstance(criterion, Discounted) or wanted.method != "batch-means":
        raise InputError(
            "a control is for the average criterion with method 'batch-means'; leave it out."
        )
    if model.code.forward is None:
        model.forward(model.start, 0)  # raises, and says why
    if folder is not None:
        raise InputError(
            "a run with a control is not saved: it cannot be described in settings; leave out one "
            "of both."
        )


def _open(
    folder: str | None,
    resume: bool,
    model: Model,
    policies: Sequence[Policy],
    criterion: Criterion,
    wanted: Settings,
) -> Run | None:
    if folder is None:
        return None
    described = {
        "task": "evaluate",
        "model": model.describe(),
        "policies": [p.describe() for p in policies],
        "criterion": criterion.describe(),
        "method": wanted.method,
        "confidence": wanted.confidence,
        "seed": wanted.seed,
        "budget": {"steps": wanted.steps, "tol": wanted.tol, "relative_tol": wanted.relative_tol},
    }
    return Run(folder, described, resume=resume)


def _evaluate(
    model: Model,
    policies: Sequence[Policy],
    criterion: Criterion,
    wanted: Settings,
    run: Run | None,
    progress: Any,
    controls: Sequence[Control],
) -> tuple[list[Evaluation], Interval, Status]:
    started = time.monotonic()
    for policy in policies:
        require_policy_of(model, policy)
    record = _record(model, policies, criterion, wanted, controls)
    _restore(record, run)
    status = _drive(record, wanted, run, progress)
    # of two policies, a half-width that was asked for is that of the difference
    if len(policies) == 1 or status is Status.INTERRUPTED:
        own = status
    else:
        own = Status.COMPLETED
        status = record.complaint_of_difference() or status
    return record.evaluations(own, time.monotonic() - started), record.interval(), status


def _record(
    model: Model,
    policies: Sequence[Policy],
    criterion: Criterion,
    wanted: Settings,
    controls: Sequence[Control],
    *,
    leading: bool = False,
) -> Experiment:
    if isinstance(criterion, Discounted):
        return ManyRuns(model, policies, criterion, wanted, leading=leading)
    return LongRun(model, policies, wanted, controls, leading=leading)


def _restore(record: Experiment, run: Run | None) -> None:
    if run is not None:
        arrays = run.checkpoint()
    else:
        arrays = None
    if arrays is not None:
        record.load(arrays)


def _drive(
    record: Experiment, wanted: Settings, run: Run | None = None, progress: Progress | None = None
) -> Status:
    """Advance, look, and stop: the loop of every evaluation.

    A look happens at fixed amounts of work.
    """
    started = saved = time.monotonic()

    def save(force: bool) -> None:
        nonlocal saved
        if (
            run is not None
            and record.resumable
            and (force or time.monotonic() - saved > CHECKPOINT_SECONDS)
        ):
            run.save_checkpoint(record.arrays())
            saved = time.monotonic()

    try:
        while True:
            done = record.size >= record.limit
            if record.size >= record.next_look or done:
                interval = record.interval()
                if progress is not None:
                    progress(record.steps, wanted.steps, interval)
                if run is not None:
                    run.trace({"steps": record.steps, **interval.to_json()})
                if (
                    (done or record.steps >= wanted.least)
                    and wanted.satisfied(interval)
                    and record.sound()
                ):
                    save(force=True)
                    return Status.REACHED
                if done:
                    save(force=True)
                    if wanted.wants_width:
                        return Status.BUDGET
                    return Status.COMPLETED
                record.next_look = max(
                    record.next_look + 1, math.ceil(record.next_look * LOOK_RATIO)
                )
            left = deadline().left
            if wanted.seconds is not None:
                left = min(left, wanted.seconds - (time.monotonic() - started))
            if left <= 0 and record.size:
                save(force=True)
                return Status.TIME
            try:
                record.advance(left)
            except OutOfTimeError:
                if record.size:
                    continue
                raise
            if progress is not None:
                progress(record.steps, wanted.steps, None)
            save(force=False)
    except KeyboardInterrupt:
        if record.size == 0:
            raise
        save(force=True)
        return Status.INTERRUPTED


def _notes_on_losses(
    model: Model, a: Evaluation, b: Evaluation, difference: Interval
) -> tuple[str, ...]:
    """Flag an advantage that goes with losing more customers."""
    lost_a = a.measures.get("lost fraction")
    lost_b = b.measures.get("lost fraction")
    if (
        lost_a is None
        or lost_b is None
        or not isinstance(model, QueueingNetwork)
        or not model.losses_unpunished
    ):
        return ()
    cheaper, lost, other = (a, lost_a, lost_b) if difference.value < 0 else (b, lost_b, lost_a)
    if lost.lower > other.upper:
        return (
            f"{cheaper.policy} is cheaper but loses {lost.value:.2%} of its customers against "
            f"{other.value:.2%}: its advantage may come from losing them.",
        )
    return ()
