"""A plan: what `dualplan solve` is asked for, from a TOML file, the command line or Python.

Without a word about the dual program, the best policy that the library finds
(`search/headline.py`):

    model = "four-queue"                 # an instance, FILE.toml of a network, or FILE.py:OBJECT
    time = "2m"                          # how long to search
    gap = "2%"                           # stop when the cost is proved to be this near the optimum
    limits = ["lost fraction <= 0.01"]   # side constraints
    policies = ["lbfs", "mine.npz"]      # what to begin with; by default the model's heuristics

With a key of the dual program, that program alone:

    model = "four-queue"
    criterion = "discounted"             # or "average", the default
    gamma = 0.99
    penalty = [30.0, 100.0, 300.0]       # H; of several the one whose policy costs least is chosen
    method = "sampled-lp"
    samples = 20_000                     # constraints of each kind that may be drawn
    seed = 0

    [set]                                # parameters of the model
    buffers = 9

    [[features]]                         # any number; without them the standard set
    family = "occupancies"
    policies = ["longer", "lbfs"]

Each key is declared below, and nowhere else: see `keys.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from dualplan.core.errors import InputError, unknown, within
from dualplan.core.types import Json
from dualplan.dual.grids import PENALTY_GRIDS
from dualplan.dual.meta import CHOICE_BY_POLICIES, WAYS_TO_CHOOSE
from dualplan.dual.sampling import SAMPLING_SCHEMES
from dualplan.dual.solvers import SOLVERS
from dualplan.evaluation.judge import JUDGING_STEPS
from dualplan.evaluation.results import EXACT_EVALUATION, SIMULATED_EVALUATION
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion, Discounted, make_criterion
from dualplan.models.limits import Limit
from dualplan.models.load import load, require_stable
from dualplan.models.toml import Document, is_network, read, register_plan_keys
from dualplan.search.headline import DEFAULT_SEARCH_TIME
from dualplan.search.listed import EXACT
from dualplan.search.plans import kinds
from dualplan.search.plans.families import NAMED_FEATURE_SETS, STANDARD_FEATURES
from dualplan.search.plans.keys import Key, Part, as_markdown, keys_of
from dualplan.search.steps import all_steps

FORMS = ("densities", "simulated")
MEANS = "means"
ANCHORED = "cells"
TESTS_BY_NAME = {"cells": 0, "quadratic": 2, "cubic": 3}  # degrees of the polynomials
SIMULATED_LP, SIMULATED_SADDLE = SIMULATED_SOLVERS = ("simulated-lp", "simulated-saddle")
DUAL_METHODS = (*SOLVERS, *SIMULATED_SOLVERS)

_of_search = partial(Key, part=Part.SEARCH)
_of_dual = partial(Key, part=Part.DUAL)


@dataclass(frozen=True)
class Plan:
    """Everything that a run is told; the names are the keys of the TOML file."""

    model: Annotated[str, Key(kinds.NAME, "an instance, FILE.toml of a network, or FILE.py:OBJECT")]
    set: Annotated[
        dict[str, Any],
        Key(
            kinds.PARAMETERS,
            "change a parameter of the model, or CLASS.KEY of a network",
            without="as the model has it",
            flags=("--set",),
            metavar="KEY=VALUE",
        ),
    ] = field(default_factory=dict)
    criterion: Annotated[str, Key(kinds.one_of(["average", "discounted"]), "what is minimised")] = (
        "average"
    )
    gamma: Annotated[
        float | None,
        Key(kinds.BELOW_ONE, "discount factor of the discounted criterion", without="none"),
    ] = None
    start: Annotated[
        Any, Key(kinds.START, "where discounted costs begin", without="the model's start")
    ] = None
    policies: Annotated[
        tuple[str, ...],
        _of_search(
            kinds.POLICIES,
            "to begin with: a heuristic, priorities 'a > b', a saved policy, FILE.py:FUNCTION",
            metavar="POLICY",
            without="the model's heuristics",
            flags=("--policy", "-p"),
        ),
    ] = ()
    limits: Annotated[
        tuple[str, ...],
        Key(
            kinds.LIMITS,
            "a side constraint",
            without="none",
            flags=("--limit",),
            metavar="MEASURE<=NUMBER",
        ),
    ] = ()
    time: Annotated[
        str | float | None,
        _of_search(kinds.TIME, "how long to search, such as 90s", without=DEFAULT_SEARCH_TIME),
    ] = None
    gap: Annotated[
        str | float | None,
        _of_search(
            kinds.SHARE,
            "stop when the cost is proved to be this near, such as 2%",
            without="the accuracy of the arithmetic",
        ),
    ] = None
    method: Annotated[
        tuple[str, ...],
        Key(
            replace(kinds.METHODS, names=(EXACT, *all_steps(), *DUAL_METHODS)),
            "one method or several",
            without="all that are for the model",
            flags=("--method",),
            metavar="METHOD",
            formerly="solver",
        ),
    ] = ()
    seed: Annotated[int, Key(kinds.SEED, "of the random numbers")] = 0
    overloaded: Annotated[
        bool,
        Key(
            kinds.TRUTH,
            "go on even if no policy keeps the queues of a network finite",
            identifies=False,
        ),
    ] = False
    form: Annotated[
        str | None,
        _of_dual(
            kinds.one_of(FORMS),
            "whether features are densities, or ratios against a policy that is simulated",
            without="densities, where the model has predecessors or few states",
        ),
    ] = None
    features: Annotated[
        Any,
        _of_dual(
            kinds.features_of(NAMED_FEATURE_SETS),
            "what occupancies are mixed from",
            without=STANDARD_FEATURES,
        ),
    ] = None
    base: Annotated[
        str | None,
        _of_dual(kinds.NAME, "a policy whose occupancy the mixture is added to", without="none"),
    ] = None
    potential: Annotated[
        str | None,
        _of_dual(
            kinds.NAME,
            "a policy whose values shape the loss, or best",
            without="best, with the standard features",
        ),
    ] = None
    sampling: Annotated[
        Any,
        _of_dual(
            kinds.features_of(["features", *SAMPLING_SCHEMES, *NAMED_FEATURE_SETS]),
            "where constraints are drawn from: the features, a scheme, or another set of features",
        ),
    ] = "features"
    weights: Annotated[
        Any,
        _of_dual(
            kinds.WEIGHTS,
            "over states, by which violations are multiplied",
            without="all 1",
            metavar="WEIGHTS",
        ),
    ] = None
    samples: Annotated[
        int | None,
        _of_dual(
            kinds.COUNT,
            "constraints of each kind that may be drawn",
            without="what the method needs",
            formerly="budget",
        ),
    ] = None
    penalty: Annotated[
        Any,
        _of_dual(
            kinds.PENALTIES,
            "H; of several the one whose policy costs least",
            metavar="H",
            without="eight, by the losses",
            flags=("--penalty", "-H"),
        ),
    ] = None
    penalty_negative: Annotated[
        float | None,
        _of_dual(
            kinds.POSITIVE,
            "H of the negative part, if it is to differ",
            metavar="H",
            without="the same; large, with a potential",
        ),
    ] = None
    radius: Annotated[
        float | None,
        _of_dual(kinds.NUMBER, "S, the largest norm of the weights", without="ten times the mass"),
    ] = None
    options: Annotated[dict[str, Any], _of_dual(kinds.TABLE, "of the method")] = field(
        default_factory=dict
    )
    reference: Annotated[
        str | None,
        _of_dual(
            kinds.NAME, "the policy that the simulated form simulates", without="the best heuristic"
        ),
    ] = None
    explore: Annotated[
        float,
        _of_dual(
            kinds.BETWEEN_0_AND_1, "share of its actions that are those of the other policies"
        ),
    ] = 0.3
    outcomes: Annotated[
        str | None,
        _of_dual(
            kinds.one_of([MEANS, "drawn"]),
            "of its steps: means over next states, or those that were drawn",
            without="means where next states can be listed",
        ),
    ] = None
    tests: Annotated[
        str,
        _of_dual(
            kinds.one_of(TESTS_BY_NAME),
            "functions that see its flow: constant on cells, or polynomials as well",
        ),
    ] = "cells"
    anchor: Annotated[
        str,
        _of_dual(
            kinds.one_of([ANCHORED, "none"]),
            "where its mass must be the reference's: on each cell, or only in sum",
        ),
    ] = ANCHORED
    every: Annotated[
        int, _of_dual(kinds.COUNT, "steps from one recorded transition to the next")
    ] = 1
    warm_up: Annotated[
        int | None,
        _of_dual(
            kinds.FROM_0, "steps of each trajectory that are left out", without="a fifth of them"
        ),
    ] = None
    fallback: Annotated[
        str | None,
        _of_dual(kinds.NAME, "a policy for states without a feature", without="all actions evenly"),
    ] = None
    evaluation: Annotated[
        str | None,
        _of_dual(
            kinds.one_of([EXACT_EVALUATION, SIMULATED_EVALUATION]),
            "of the policies found",
            without="exact where states are few",
        ),
    ] = None
    steps: Annotated[int, _of_dual(kinds.COUNT, "simulated steps, if evaluation is simulation")] = (
        JUDGING_STEPS
    )
    confidence: Annotated[
        float, _of_dual(kinds.BETWEEN_0_AND_1, "of the intervals and of the certificate")
    ] = 0.95
    span: Annotated[
        float | None,
        _of_dual(
            kinds.NOT_NEGATIVE,
            "of the policy's bias at most, for the certificate",
            without="measured where states are few",
        ),
    ] = None
    sweeps: Annotated[
        int | None,
        _of_dual(
            kinds.FROM_0, "of value iteration, for the lower bound", without="as many as are quick"
        ),
    ] = None
    grid: Annotated[
        str | None, _of_dual(kinds.one_of(PENALTY_GRIDS), "penalties by theory", without="none")
    ] = None
    epsilon: Annotated[
        float | None,
        _of_dual(
            kinds.POSITIVE, "error that matters: prints the theorems as numbers", without="none"
        ),
    ] = None
    delta: Annotated[
        float, _of_dual(kinds.BETWEEN_0_AND_1, "probability that theory may fail with")
    ] = 0.05
    beta: Annotated[
        float | None,
        _of_dual(
            kinds.POSITIVE, "coefficient of 1/H in F (with epsilon)", without="by the theorem"
        ),
    ] = None
    choice: Annotated[
        str,
        _of_dual(
            kinds.one_of(WAYS_TO_CHOOSE),
            "of H by what the policies cost, or by the rule of theory (with grid)",
        ),
    ] = CHOICE_BY_POLICIES
    # the keys that were written down, even with their default values
    given: frozenset[str] = frozenset()
    # where they were
    source: Document = field(default_factory=Document.nowhere, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Every value is of the kind that its key asks for."""
        if isinstance(self.method, str):
            object.__setattr__(self, "method", (self.method,))
        for said in PLAN_KEYS.values():
            said.check(getattr(self, said.name))

    @property
    def keys(self) -> Json:
        """What was asked for, by key."""
        return {name: getattr(self, name) for name in PLAN_KEYS}

    @property
    def dual(self) -> bool:
        """Whether a key of the dual program is there."""
        plain = Plan(self.model)
        return self.solver is not None or any(
            name in self.given or getattr(self, name) != getattr(plain, name)
            for name in keys_about(Part.DUAL)
        )

    @property
    def solver(self) -> str | None:
        """The method that solves the dual program, if one was named."""
        named = [name for name in self.method if name in DUAL_METHODS]
        if not named:
            return None
        if len(self.method) > 1:
            raise InputError(
                f"method {named[0]!r} solves the dual program alone; name no other beside it.",
                at=("method",),
            )
        return named[0]

    @staticmethod
    def read(path: str | Path) -> Plan:
        """From a TOML file."""
        document = read(Path(path))
        with document.explained():
            return _from_document(document)


PLAN_KEYS = keys_of(Plan)
FORMER_PLAN_KEYS = {
    said.formerly: name for name, said in PLAN_KEYS.items() if said.formerly is not None
}
register_plan_keys([*PLAN_KEYS, *FORMER_PLAN_KEYS])


def keys_about(part: Part) -> list[str]:
    """The names of the keys of one part."""
    return [name for name, said in PLAN_KEYS.items() if said.part is part]


def table_of_keys() -> str:
    """All keys of a plan, as a table in Markdown."""
    return as_markdown(PLAN_KEYS.values())


def read_plan(spec: str) -> Plan:
    """A plan from a TOML file that names a model, or the default plan for a model."""
    if spec.endswith(".toml") and not is_network(read(Path(spec)).data):
        return Plan.read(spec)
    return Plan(spec)


def _from_document(document: Document) -> Plan:
    data = document.data
    file = document.file
    if is_network(data):
        raise InputError(
            f"this is a network and no plan; name it as the model: Plan({file!r}).", at=("class",)
        )
    for name in data:
        if name in FORMER_PLAN_KEYS:
            raise InputError(
                f"{name} is called {FORMER_PLAN_KEYS[name]} now; rename it.", at=(name,)
            )
        if name not in PLAN_KEYS:
            raise unknown(f"key of {file!r}", name, PLAN_KEYS, at=(name,))
    if "model" not in data:
        raise InputError(f'{file!r} names no model; write model = "..." into it.', at=("model",))
    return Plan(**_as_fields(data), given=frozenset(data), source=document)


def override(plan: Plan, **changes: Any) -> Plan:
    """The plan with whatever was given on the command line; parameters of the model add up."""
    made = _as_fields({name: value for name, value in changes.items() if value is not None})
    if "set" in made:
        made["set"] = {**plan.set, **made["set"]}
    return replace(
        plan, **made, given=plan.given | frozenset(made), source=plan.source.without(made)
    )


def _as_fields(values: Mapping[str, Any]) -> Json:
    """Values from a file or the command line, as a plan has them: what is () by default is a
    tuple.
    """
    made = dict(values)
    if isinstance(made.get("method"), str):
        made["method"] = [made["method"]]
    for name in ("limits", "policies", "method"):
        if isinstance(made.get(name), list):
            made[name] = tuple(made[name])
    return made


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
