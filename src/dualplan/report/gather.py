"""What a report is about: a saved run, its model and policy, and the model's heuristics beside it.

The cost of the policy is the one that the run saved, and so are those of the policies that a search
began with, which it has compared with its own. The model's other heuristics are evaluated for the
page: over all states where these are few, otherwise by simulation beside the policy, on random
numbers that nothing was chosen by, in the time that the report may take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dualplan.core.errors import InputError
from dualplan.core.intervals import Interval
from dualplan.core.runs import SETTINGS_FILE, read_json, read_result
from dualplan.core.status import Status
from dualplan.core.streams import PAGE_COMPARISON_SEED
from dualplan.core.types import Json
from dualplan.evaluation.compared import Compared, alike, rows_of, same_policy, unpaired
from dualplan.evaluation.evaluate import evaluate_beside
from dualplan.evaluation.experiments import notes_on
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.results import Evaluation, cost_from_json
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, make_criterion
from dualplan.policies.contract import Policy
from dualplan.policies.saved import POLICY_FILE, load_policy

MOST_PAGE_STEPS = 2_000_000  # of each simulation at most

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
    """Policies beside the one that was found, the cheapest first and those that cannot be trusted
    last.

    `policies` are the model's heuristics among them, None for others, of which only the row is
    known; `status` is that of the policy itself, against which all of them are.
    """

    rows: tuple[Compared, ...]
    policies: tuple[Policy | None, ...]
    status: Status = Status.SOLVED

    @property
    def judged(self) -> tuple[Evaluation, ...]:
        """What each of them costs."""
        return tuple(row.evaluation for row in self.rows)

    @property
    def heuristics(self) -> list[Policy]:
        """Those that are heuristics of the model."""
        return [policy for policy in self.policies if policy is not None]

    @property
    def best(self) -> Evaluation | None:
        """The best of them whose cost can be trusted."""
        if self.rows and self.rows[0].evaluation.trusted:
            return self.rows[0].evaluation
        return None

    @property
    def saved(self) -> Interval | None:
        """The cost of the best one minus that of the policy."""
        if self.best is None:
            return None
        return self.rows[0].difference

    @property
    def how(self) -> str:
        """How the saving is known."""
        return self.rows[0].how

    @property
    def same(self) -> bool:
        """Whether the policy is the best one, or did the same wherever they went."""
        return self.best is not None and self.rows[0].same

    @property
    def doubt(self) -> str:
        """Why the saving is not to be trusted; nothing where it is."""
        if self.saved is None or self.status.good:
            return ""
        return f"not to be trusted: {self.status.advice}"


def judge_heuristics(run: SavedRun, seconds: float, tell: Tell) -> Beside:
    """The policies that the run has compared with its own, and the model's other heuristics, which
    are evaluated now.
    """
    rows = _saved_rows(run)
    names = {row.evaluation.policy for row in rows}
    left = [run.model.policy(name) for name in run.model.policies if name not in names]
    if left:
        tell("heuristics beside it")
        rows += _evaluated(run, left, seconds)
    rows.sort(key=_rank)
    policies = tuple(_heuristic(run.model, row.evaluation.policy) for row in rows)
    return Beside(tuple(rows), policies, run.found.status)


def _saved_rows(run: SavedRun) -> list[Compared]:
    """What a search has compared; an earlier version compared nothing, and its rows are of other
    random numbers than the policy's cost, so the model's heuristics are evaluated anew.
    """
    if not run.searched:
        return []
    rows = zip(run.result["start"], rows_of(run.result), strict=True)
    return [
        row
        for saved, row in rows
        if "difference" in saved or row.evaluation.policy not in run.model.policies
    ]


def _heuristic(model: Model, name: str) -> Policy | None:
    if name in model.policies:
        return model.policy(name)
    return None


def _rank(row: Compared) -> tuple[bool, float]:
    cost = row.evaluation.cost
    return not row.evaluation.trusted, cost if math.isfinite(cost) else math.inf


def _evaluated(run: SavedRun, heuristics: Sequence[Policy], seconds: float) -> list[Compared]:
    """Heuristics against the policy: exactly where both can be, otherwise in pairs."""
    found = run.found
    rows = [
        alike(policy.name, found)
        for policy in heuristics
        if same_policy(run.model, policy, run.policy)
    ]
    known = {row.evaluation.policy for row in rows}
    others = [policy for policy in heuristics if policy.name not in known]
    judge = Judge()
    if found.exact and all(judge.exactly(run.model, policy) for policy in others):
        judged = [judge(run.model, policy, run.criterion) for policy in others]
        return rows + [unpaired(own, found) for own in judged]
    _, simulated = evaluate_beside(
        run.model,
        run.policy,
        others,
        run.criterion,
        known=found,
        steps=MOST_PAGE_STEPS * (1 + len(others)),
        seed=PAGE_COMPARISON_SEED,
        time=seconds,
    )
    return rows + simulated
