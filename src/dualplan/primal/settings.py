"""How a program comes by its constraints, and how well it keeps them: the settings that all primal
methods share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from dualplan.core.budgets import MOST_LISTED_STATES
from dualplan.core.checks import require_counts, require_positive, require_seed, require_threads
from dualplan.core.errors import InputError, MissingError, unknown
from dualplan.core.types import Ints
from dualplan.evaluation.visits import occupancy
from dualplan.models.contract import Model, require_made_for
from dualplan.models.criteria import Criterion
from dualplan.policies.contract import Policy
from dualplan.primal.program import MOST_LISTED_ENTRIES, Found, Pairs, Program, sampled_pairs
from dualplan.primal.relevance import Relevance, geometric
from dualplan.values.basis import Basis

ALL_CONSTRAINTS, GENERATED_CONSTRAINTS, SAMPLED_CONSTRAINTS = WAYS_TO_CONSTRAIN = (
    "all",
    "generated",
    "sampled",
)
# pairs up to which all constraints are listed unless told otherwise
MOST_PAIRS_LISTED_BY_DEFAULT = 10_000
DEFAULT_WEIGHTS_RATIO = 0.9  # of the geometric weights that stand for c if none are given


class SettingsKeywords(TypedDict, total=False):
    """The fields of `Settings`, as keywords of the programs."""

    constraints: str | None
    sample: Relevance | Policy | None
    samples: int
    tol: float
    rounds: int
    weight_bound: float | None
    seed: int
    threads: int | None


@dataclass(frozen=True, eq=False)
class Settings:
    """Constraints are "all" pairs, "generated" by sweeps over all states, or "sampled".

    Without a word: all where they are few, generated where states can be swept, sampled where
    `sample` is given. Generated ones are added until none is violated by more than `tol`, in
    `rounds` rounds at most. Sampled ones are those of `samples` states from `sample`: a policy's
    visits, or a distribution on states. `weight_bound` bounds |w|.
    """

    constraints: str | None = None
    sample: Relevance | Policy | None = None
    samples: int = 10_000
    tol: float = 1e-6
    rounds: int = 200
    weight_bound: float | None = None
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.constraints is not None and self.constraints not in WAYS_TO_CONSTRAIN:
            raise unknown("way to constraints", str(self.constraints), WAYS_TO_CONSTRAIN)
        if self.sample is not None and self.constraints not in (None, SAMPLED_CONSTRAINTS):
            raise InputError(
                f"a sample of states is for constraints 'sampled', not {self.constraints!r}."
            )
        if self.sample is None and self.constraints == SAMPLED_CONSTRAINTS:
            raise InputError(
                "sampled constraints need sample=, a policy or a distribution on states."
            )
        require_positive(tol=self.tol)
        require_counts(rounds=self.rounds, samples=self.samples)
        if self.weight_bound is not None:
            require_positive(weight_bound=self.weight_bound)
        require_seed(self.seed)
        require_threads(self.threads)

    @staticmethod
    def of(given: SettingsKeywords) -> Settings:
        """From keyword arguments."""
        for key in given:
            if key not in Settings.__dataclass_fields__:
                raise unknown("setting", key, Settings.__dataclass_fields__)
        return Settings(**given)

    def way(self, model: Model, width: int) -> str:
        """How the constraints are come by."""
        if self.constraints is not None:
            return self.constraints
        if self.sample is not None:
            return SAMPLED_CONSTRAINTS
        count = model.box.count
        if count is None or count > MOST_LISTED_STATES:
            raise MissingError(
                f"model {model.name!r} has too many states to look at all constraints; say where "
                "to draw them, as sample=policy or sample=primal.geometric(model, ratio)."
            )
        pairs = count * len(model.actions)
        if pairs <= MOST_PAIRS_LISTED_BY_DEFAULT and pairs * width <= MOST_LISTED_ENTRIES:
            return ALL_CONSTRAINTS
        return GENERATED_CONSTRAINTS

    def solve(self, program: Program, start: Pairs | None = None) -> Found:
        """The program over its constraints; generated ones begin with `start` if it is given."""
        way = self.way(program.model, program.width)
        if way == ALL_CONSTRAINTS:
            return program.over_all(self.tol)
        if way == GENERATED_CONSTRAINTS:
            return program.generated(self.tol, self.rounds, self.seed, start, self.threads)
        return program.over(sampled_pairs(program.model, self.drawn(program.model)))

    def drawn(self, model: Model) -> Ints:
        """The sampled states, and the model's start."""
        source = self.sample
        if isinstance(source, Policy):
            source = occupancy(
                model, source, samples=self.samples, seed=self.seed, method="simulation"
            )
        if source is None:
            raise InputError(
                "sampled constraints need sample=, a policy or a distribution on states."
            )
        return np.vstack([model.start, source.draw(self.samples, self.seed)])


def check(model: Model, basis: Basis) -> None:
    """Raise unless the basis belongs to the model and the model has what a program needs."""
    if not isinstance(basis, Basis):
        raise InputError(f"a basis is made by dualplan.primal, got {basis!r}.")
    require_made_for(model, basis.model, "basis")
    if model.code.forward is None:
        model.forward(model.start, 0)  # raises, and says why


def relevant(
    model: Model, given: Relevance | Policy | None, criterion: Criterion, seed: int
) -> Relevance:
    """c from what was given for it: a policy stands for its occupancy, nothing for geometric
    weights.
    """
    if given is None:
        return geometric(model, DEFAULT_WEIGHTS_RATIO)
    if isinstance(given, Policy):
        return occupancy(model, given, criterion, seed=seed)
    return given
