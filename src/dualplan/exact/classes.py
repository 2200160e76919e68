"""Recurrent classes: where the average cost depends on the start, nothing is averaged away.

Let g*(x) be the optimal average cost from x. The states where it is greatest are closed under every
action (from such a state no action leads elsewhere, else its cost would be less), so they contain a
class K that is closed in the graph of all actions. For any V and D = L V − V, n steps from K cost
at least V + n·min_K D, and a class C that is closed under the greedy policy costs at most max_C D.
Hence min_K D > max_C D *proves* that the optimal cost depends on the start; and as D tends to g*
under value iteration, it comes to light whenever it is so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as graph

from dualplan.core.errors import ModelError
from dualplan.core.types import Floats, Ints
from dualplan.models.contract import Model, vector

VALUE_ROUNDING_SHARE = 1e-9  # of the values, beyond which a difference is not rounding


def closed_classes(chain: Any) -> list[Ints]:
    """The classes of states that a chain cannot leave."""
    count, labels = graph.connected_components(chain, connection="strong")
    entries = sp.coo_array(chain)
    leaving = (labels[entries.row] != labels[entries.col]) & (entries.data > 0)
    closed = np.setdiff1d(np.arange(count), labels[entries.row[leaving]])
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], closed)
    last = np.searchsorted(labels[order], closed, side="right")
    return [order[a:b] for a, b in zip(first, last, strict=True)]


def require_one_cost(
    model: Model, everywhere: Any, greedy: Any, difference: Floats, values: Floats
) -> None:
    """Raise if the values prove that the optimal average cost depends on the start.

    `everywhere` is a chain that takes every action, `greedy` the one of the policy that is greedy
    for the values, and `difference` is L V − V.
    """
    dearest = max(closed_classes(everywhere), key=lambda states: float(difference[states].min()))
    cheapest = min(closed_classes(greedy), key=lambda states: float(difference[states].max()))
    least = float(difference[dearest].min())
    most = float(difference[cheapest].max())
    if least - most > VALUE_ROUNDING_SHARE * (1 + float(np.abs(values).max())):
        x, y = (vector(model.box.state(int(states[0]))) for states in (dearest, cheapest))
        raise ModelError(
            f"model {model.name!r} has several recurrent classes with different optimal average "
            f"costs, at least {least:.6g} from state {x} and at most {most:.6g} from {y}; use the "
            "discounted criterion."
        )
