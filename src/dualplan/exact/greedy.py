"""The greedy policy of values over all states: a table of actions, by one sweep."""

from __future__ import annotations

import numpy as np

from dualplan.core.types import ArrayLike
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.tables import TablePolicy
from dualplan.values.functions import StateFunction, StateTable, everywhere, state_function


def greedy(
    model: Model,
    values: StateFunction | ArrayLike,
    gamma: float = 1.0,
    *,
    name: str = "greedy",
    table: bool = False,
) -> Policy:
    """The greedy policy of Ψw, of a function of states, or of numbers for all states.

    Numbers for all states, or any values if `table` asks for it, make a table of actions by one
    sweep.
    """
    if callable(values) and not table and not isinstance(values, StateTable):
        return GreedyPolicy(model, values, gamma, name=name)
    sweeper = Sweeper(model)
    if callable(values):
        function = values
    else:
        function = state_function(model, np.asarray(values, np.float64))
    best = np.zeros(sweeper.states, np.int64)
    sweeper.optimal(everywhere(model, function), gamma, best=best)
    return TablePolicy(model, best, name=name)
