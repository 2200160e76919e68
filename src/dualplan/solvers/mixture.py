"""The policy of a candidate occupancy: π_θ(a|x) = [u(x,a)]₊ / Σ_a' [u(x,a')]₊ with u = Φθ.

Where u has no positive part, a fallback policy decides; by default it is uniform over the allowed actions, as in the
paper. Features are looked up by the compiled code, so the policy works on a state at a time, on models of any size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualplan._kernels.compiler import ACT, Kernel, user_kernel
from dualplan._kernels.features import feature_count, mixture_at
from dualplan.errors import InputError, PolicyError
from dualplan.features.contract import Features
from dualplan.policies.contract import Policy, PolicyCode
from dualplan.policies.tables import random_policy
from dualplan.types import ArrayLike

_rules: dict[int, tuple[Kernel, Kernel]] = {}  # by the fallback's function, which is part of the compiled rule


class MixturePolicy(Policy):
    """π_θ of a feature set and weights."""

    def __init__(
        self, features: Features, theta: ArrayLike, *, fallback: Policy | None = None, name: str = "dual"
    ) -> None:
        weights = np.asarray(theta, np.float64)
        if weights.shape != (len(features),) or not np.isfinite(weights).all():
            raise InputError(f"a policy of {len(features)} features needs as many finite weights.")
        self.features, self.theta = features, weights
        self.fallback = random_policy(features.model) if fallback is None else fallback
        other = self.fallback.code
        if other is None:
            raise PolicyError(f"the fallback policy {self.fallback.name!r} cannot be compiled; choose another one.")
        ints = np.concatenate([[features.ints.size, features.floats.size], features.ints, other.ints])
        floats = np.concatenate([weights, features.floats, other.floats])
        super().__init__(features.model, name, PolicyCode(ints.astype(np.int64), floats, _rule(other.act)))

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self.features.ints, self.features.floats, self.theta, self.fallback.digest)


def _rule(fallback: Kernel) -> Kernel:
    """The compiled rule around a fallback's function: one for each, whatever the weights."""
    if id(fallback) not in _rules:
        other = fallback.compiled

        @user_kernel(ACT)
        def rule(ints, floats, x, out):  # type: ignore[no-untyped-def]
            # ints: sizes of the features' two arrays, their ints, the fallback's; floats: θ, theirs, the fallback's
            first = 2 + ints[0]
            d = feature_count(ints[2:first])
            if not mixture_at(ints[2:first], floats[d : d + ints[1]], floats[:d], x, out):
                other(ints[first:], floats[d + ints[1] :], x, out)

        _rules[id(fallback)] = (fallback, rule)  # kept together, so that the key stays its own
    return _rules[id(fallback)][1]
