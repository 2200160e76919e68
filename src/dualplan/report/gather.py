"""What a report is about: a saved run, its model and policy, and the model's heuristics beside it.

The cost of the policy is the one that the run saved. Heuristics are evaluated afresh: over all
states where these are few, otherwise by simulation in the time that the report may take. The policy
is compared with the best of them exactly, or in pairs on random numbers that nothing was chosen by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dualplan.core.errors import InputError
from dualplan.core.intervals import Interval
from dualplan.core.runs import SETTINGS_FILE, read_json, read_result
from dualplan.core.status import Status
from dualplan.core.streams import PAGE_COMPARISON_SEED, PAGE_SIMULATION_SEED
from dualplan.core.types import Json
from dualplan.evaluation.evaluate import compare
from dualplan.evaluation.experiments import notes_on
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.results import Evaluation, cost_from_json
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, make_criterion
from dualplan.policies.contract import Policy
from dualplan.policies.saved import POLICY_FILE, load_policy

MOST_PAGE_STEPS = 2_000_000  # of each simulation at most
SMALLEST_SHOWN_MEASURE = 0.01  # measures below it for most policies are not in the table
# an interval holds whether the run ended by its width, its steps or its time

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A finished run of `dualplan solve`, its model and its policy."""

    folder: Path
    settings: Json
    versions: Json
    result: Json
    policy: Policy
    criterion: Criterion

    @property
    def model(self) -> Model:
        """The model, made again."""
        return self.policy.model

    @property
    def searched(self) -> bool:
        """Whether it was the search; otherwise it was the dual program."""
        return bool(self.result.get("task") == "solve")

    @property
    def found(self) -> Evaluation:
        """The cost of the policy, as the run saved it."""
        saved = cost_from_json(self.policy.name, self.result)
        return replace(saved, notes=saved.notes or notes_on(self.model, saved.measures))


def read_run(
    folder: str | Path, model: Model | None = None, policy: Policy | None = None
) -> SavedRun:
    """The run in a folder, or one sentence about what is missing.

    `model` is for runs whose model a file of Python makes, which is not run unasked, and `policy`
    for those whose policy is a function of the user, which is not saved.
    """
    result = read_result(folder)
    path = Path(folder)
    if result.get("task") != "solve" and "tried" not in result:
        raise InputError(
            f"the run in {str(folder)!r} found no policy; a report is made of one that `solve` has "
            "saved."
        )
    if "measures" not in result or "lower_bound" not in result:
        raise InputError(
            f"the run in {str(folder)!r} was saved by an earlier version; solve again for a report."
        )
    saved = path / POLICY_FILE
    if saved.exists():
        policy = load_policy(saved, model)
    elif policy is None:
        raise InputError(
            f"the run in {str(folder)!r} has no policy.npz (functions of yours are not saved); "
            "name the function by --policy FILE.py:FUNCTION."
        )
    read = read_json(path / SETTINGS_FILE)
    criterion = make_criterion(result["criterion"], result.get("gamma"), _start(read))
    return SavedRun(path, read["settings"], read.get("versions", {}), result, policy, criterion)


def _start(read: Json) -> object:
    """Where a discounted run began; average ones have no start."""
    settings = read["settings"]
    if isinstance(settings["criterion"], dict):
        within = settings["criterion"]
    else:
        within = settings
    return within.get("start")


# -- the policies beside it ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Beside:
    """Heuristics, the cheapest first and those that cannot be trusted last, and the policy against
    the best of them.

    `saved` is the cost of the best one minus that of the policy, and `status` how their comparison
    ended.
    """

    policies: tuple[Policy, ...]
    judged: tuple[Evaluation, ...]
    saved: Interval | None
    same: bool  # whether the policy is that heuristic, or did the same in all of their comparison
    status: Status = Status.SOLVED

    @property
    def best(self) -> Evaluation | None:
        """The best heuristic whose cost can be trusted."""
        if self.judged and self.judged[0].trusted:
            return self.judged[0]
        return None

    @property
    def doubt(self) -> str:
        """Why the saving is not to be trusted; nothing where it is."""
        if self.saved is None or self.status.good:
            return ""
        return f"not to be trusted: {self.status.advice}"


def judge_heuristics(run: SavedRun, seconds: float, tell: Tell) -> Beside:
    """Evaluate the model's heuristics and compare the policy with the best."""
    policies = [run.model.policy(name) for name in run.model.policies]
    share = seconds / (len(policies) + 3)  # the comparison takes as long as three
    found = []
    for k, policy in enumerate(policies):
        tell(f"heuristic {policy.name}")
        found.append((_judge(run, policy, share, PAGE_SIMULATION_SEED + k), policy))
    found.sort(
        key=lambda pair: (
            not pair[0].trusted,
            pair[0].cost if math.isfinite(pair[0].cost) else math.inf,
        )
    )
    judged = tuple(j for j, _ in found)
    ordered = tuple(p for _, p in found)
    if not judged or not judged[0].trusted:
        return Beside(ordered, judged, None, False)
    tell("comparing with the best heuristic")
    if ordered[0].digest == run.policy.digest:
        return Beside(ordered, judged, Interval(0.0, 0.0, 0.0, 1.0), True)
    saved, status = _saving(run, judged[0], ordered[0], 3 * share)
    # wherever the two went, they did the same
    same = saved.confidence < 1 and saved.lower == saved.upper == 0
    return Beside(ordered, judged, saved, same, status)


def _judge(run: SavedRun, policy: Policy, seconds: float, seed: int) -> Evaluation:
    judge = Judge(steps=MOST_PAGE_STEPS, seed=seed, time=seconds)
    return judge(run.model, policy, run.criterion)


def _saving(
    run: SavedRun, best: Evaluation, heuristic: Policy, seconds: float
) -> tuple[Interval, Status]:
    """The cost of the best heuristic minus that of the policy, and how the comparison ended."""
    found = run.found
    if best.exact and found.exact:
        ends = best.lower - found.upper, best.upper - found.lower
        return Interval(best.cost - found.cost, *ends, 1.0), found.status
    pair = compare(
        run.model,
        heuristic,
        run.policy,
        run.criterion,
        steps=2 * MOST_PAGE_STEPS,
        seed=PAGE_COMPARISON_SEED,
        time=seconds,
    )
    return pair.difference, pair.status


def shown_measures(judged: Sequence[Evaluation], most: int = 3) -> list[str]:
    """The measures for a table: what is lost first, then those in which the policies differ most,
    but for tiny ones.
    """
    common = [n for n in judged[0].measures if all(n in j.measures for j in judged)]
    names = [
        n
        for n in common
        if np.median([abs(j.measures[n].value) for j in judged]) >= SMALLEST_SHOWN_MEASURE
    ]
    lost = [n for n in names if n.startswith("lost")]
    others = sorted(
        (n for n in names if not n.startswith("lost")), key=lambda n: -_spread(judged, n)
    )
    return [*lost, *others][:most]


def _spread(judged: Sequence[Evaluation], name: str) -> float:
    """By how much policies differ in a measure, as a share of its mean."""
    values = np.array(list(_finite(j.measures[name].value for j in judged if j.trusted)))
    if values.size and np.abs(values).mean() >= SMALLEST_SHOWN_MEASURE:
        return float(np.ptp(values) / np.abs(values).mean())
    return 0.0


def _finite(values: Iterator[float]) -> Iterator[float]:
    return (v for v in values if math.isfinite(v))
