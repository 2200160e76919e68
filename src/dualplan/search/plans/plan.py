"""A plan: what `dualplan solve` is asked for, from a TOML file or the command line, and what comes
of it.

Without a word about the dual program, the best policy that the library finds (`improvement/`):

    model = "four-queue"                 # an instance, FILE.toml of a network, or FILE.py:OBJECT
    time = "2m"                          # how long to search
    gap = "2%"                           # stop when the cost is proved to be this near the optimum
    limits = ["lost fraction <= 0.01"]   # side constraints
    policies = ["lbfs", "mine.npz"]      # what to begin with; by default the model's heuristics
    overloaded = true                 # go on even if no policy keeps the queues of a network finite

With a key of the dual program, that program alone:

    model = "four-queue"                 # an instance, FILE.toml of a network, or FILE.py:OBJECT
    criterion = "discounted"             # or "average", the default
    gamma = 0.99
    penalty = [30.0, 100.0, 300.0]       # H; of several the one whose policy costs least is chosen
    solver = "sampled-lp"                # sampled-lp, adaptive, paper, listed-lp (the default where
                                         states are few)
    budget = 20_000                      # constraints of each kind that may be drawn
    seed = 0

    [set]                                # parameters of the model
    buffers = 9

    [[features]]                         # any number; without them the standard set
    family = "occupancies"
    policies = ["longer", "lbfs"]
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dualplan.core import checks
from dualplan.core.errors import InputError, unknown, within
from dualplan.core.types import Json
from dualplan.dual.meta import POLICIES
from dualplan.evaluation.judge import JUDGING_STEPS
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, make_criterion
from dualplan.models.limits import Limit
from dualplan.models.load import load, require_stable
from dualplan.models.toml import Document, is_network, read


@dataclass(frozen=True)
class Plan:
    """Everything that a run is told; the names are the keys of the TOML file."""

    model: str
    set: dict[str, Any] = field(default_factory=dict)
    criterion: str = "average"
    gamma: float | None = None
    start: Any = None
    features: Any = None
    base: str | None = None
    potential: str | None = None
    sampling: str = "features"
    limits: tuple[str, ...] = ()
    radius: float | None = None
    penalty: Any = None
    penalty_negative: float | None = None
    solver: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    budget: int | None = None
    seed: int = 0
    fallback: str | None = None
    evaluation: str | None = None
    steps: int = JUDGING_STEPS
    confidence: float = 0.95
    span: float | None = None
    sweeps: int | None = None
    grid: str | None = None
    epsilon: float | None = None
    delta: float = 0.05
    beta: float | None = None
    choice: str = POLICIES
    time: str | float | None = None
    gap: str | float | None = None
    policies: tuple[str, ...] = ()
    overloaded: bool = False
    given: frozenset[str] = (
        frozenset()
    )  # the keys that were written down, even with their default values
    source: Document = field(
        default_factory=Document.nowhere, compare=False, repr=False
    )  # where they were

    @property
    def dual(self) -> bool:
        """Whether a key of the dual program is there."""
        changed = any(
            getattr(self, f.name) not in (f.default, {}) for f in fields(self) if f.name in DUAL
        )
        return changed or bool(self.given & DUAL)

    @staticmethod
    def read(path: str | Path) -> Plan:
        """From a TOML file."""
        document = read(Path(path))
        with document.explained():
            return Plan._of(document)

    @staticmethod
    def _of(document: Document) -> Plan:
        data = document.data
        file = document.file
        if is_network(data):
            raise InputError(
                f"this is a network and no plan; name it as the model: Plan({file!r}).",
                at=("class",),
            )
        for key in data:
            if key not in checks.PLAN:
                raise unknown(f"key of {file!r}", key, checks.PLAN, at=(key,))
        if "model" not in data:
            raise InputError(
                f'{file!r} names no model; write model = "..." into it.', at=("model",)
            )
        lists = {
            key: tuple(data[key])
            for key in ("limits", "policies")
            if isinstance(data.get(key), list)
        }
        return Plan(**{**data, **lists}, given=frozenset(data), source=document)

    @property
    def keys(self) -> Json:
        """What was asked for, by key."""
        return {key: getattr(self, key) for key in checks.PLAN}

    def __post_init__(self) -> None:
        """Every value is of the kind that its key asks for."""
        for key, (kind, words) in checks.PLAN.items():
            value = getattr(self, key)
            if value is not None and not kind(value):
                raise InputError(f"{key} must be {words}, got {value!r}.", at=(key,))


# keys of the dual program; the others are for both
DUAL = {
    "features",
    "base",
    "potential",
    "sampling",
    "radius",
    "penalty",
    "penalty_negative",
    "solver",
    "options",
    "budget",
    "fallback",
    "evaluation",
    "steps",
    "confidence",
    "span",
    "sweeps",
    "grid",
    "epsilon",
    "delta",
    "beta",
    "choice",
}


def asked(plan: Plan) -> tuple[Criterion, Model]:
    """The criterion and the model, after a look at what can be wrong with them and with the
    limits.
    """
    criterion = make_criterion(plan.criterion, plan.gamma, plan.start)
    model = load(plan.model, **plan.set)
    if not plan.overloaded and not isinstance(criterion, Discounted):
        require_stable(model)
    for k, text in enumerate(plan.limits):
        with within("limits", k):
            model.measure(Limit.parse(text).name)
    return criterion, model


def read_plan(spec: str) -> Plan:
    """A plan from a TOML file that names a model, or the default plan for a model."""
    if spec.endswith(".toml") and not is_network(read(Path(spec)).data):
        return Plan.read(spec)
    return Plan(spec)


def override(plan: Plan, **changes: Any) -> Plan:
    """The plan with whatever was given on the command line."""
    made = {key: value for key, value in changes.items() if value is not None}
    return replace(
        plan, **made, given=plan.given | frozenset(made), source=plan.source.without(made)
    )
