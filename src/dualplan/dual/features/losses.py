"""What families of closed form share: expected losses as sums over coordinates, and a look at a few
draws.
"""

from __future__ import annotations

from dualplan.core.errors import InputError
from dualplan.dual.features.contract import Features

# draws of each feature at which actions must be allowed; solving looks at all that it meets
CHECKED = 10


def check_allowed(features: Features) -> None:
    """Raise if a feature draws an action that is not allowed."""
    model = features.model
    for j in range(len(features)):
        for x, a in zip(*features.draw(j, CHECKED), strict=True):
            if not model.allowed(x)[a]:
                raise InputError(
                    f"feature {features.names[j]!r} gives weight to an action that {model.name!r} "
                    f"does not allow in state {tuple(x.tolist())}; use tiles or a table, or name "
                    "policies as choices."
                )
