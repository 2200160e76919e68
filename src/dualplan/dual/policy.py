"""The policy of a candidate occupancy: π_θ(a|x) = [u(x,a)]₊ / Σ_a' [u(x,a')]₊ with u = Φθ.

Where u has no positive part, a fallback policy decides; by default it is uniform over the allowed
actions, as in the paper. Features are looked up by the compiled code, so the policy works on a
state at a time, on models of any size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualplan._kernels.compiler import ACT_SIGNATURE, Kernel, made_once, user_kernel
from dualplan._kernels.features import feature_count, positive_part
from dualplan.core.errors import InputError, MissingError, PolicyError
from dualplan.core.types import ArrayLike
from dualplan.dual.features.contract import Block, Features
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy, PolicyCode, require_policy_of
from dualplan.policies.saved import Parts, saved_as
from dualplan.policies.tables import random_policy

UNIFORM_FALLBACK = "uniform"  # in files: the fallback where none was named
SAVED_BLOCK_FIELDS = ("ints", "floats", "losses", "errors")  # of a block of features, in files


@saved_as("mixture")
class MixturePolicy(Policy):
    """π_θ of a feature set and weights."""

    def __init__(
        self,
        features: Features,
        theta: ArrayLike,
        *,
        fallback: Policy | None = None,
        name: str = "dual",
    ) -> None:
        weights = np.asarray(theta, np.float64)
        if weights.shape != (len(features),) or not np.isfinite(weights).all():
            raise InputError(f"a policy of {len(features)} features needs as many finite weights.")
        self.features = features
        self.theta = weights
        if fallback is None:
            self.fallback = random_policy(features.model)
        else:
            require_policy_of(features.model, fallback)
            self.fallback = fallback
        other = self.fallback.code
        if other is None:
            raise PolicyError(
                f"the fallback policy {self.fallback.name!r} cannot be compiled; choose another "
                "one."
            )
        code = features.code
        ints = np.concatenate([[code.ints.size, code.floats.size], code.ints, other.ints]).astype(
            np.int64
        )
        floats = np.concatenate([weights, code.floats, other.floats])
        super().__init__(
            features.model, name, PolicyCode(ints, floats, _rule(code.anchor, code.near, other.act))
        )

    def _defining_parts(self) -> tuple[Any, ...]:
        code = self.features.code
        user = [functions.sources for functions in self.features.user]
        return (code.ints, code.floats, *user, self.theta, self.fallback.digest)

    def to_parts(self) -> Parts:
        """The weights, the compiled fields of the features, and the name of the fallback policy."""
        blocks = self.features.blocks
        if any(block.user for block in blocks):
            raise MissingError(
                "features or choices that are functions of yours cannot be saved; save θ, and make "
                "them again from it."
            )
        arrays = {"theta": self.theta}
        for k, block in enumerate(blocks):
            arrays |= {f"{field}_{k}": getattr(block, field) for field in SAVED_BLOCK_FIELDS}
        named = [
            {"kind": b.kind, "names": list(b.names), "widest": b.widest, "room": b.room}
            for b in blocks
        ]
        return Parts({"fallback": self._fallback_name(), "blocks": named}, arrays)

    def _fallback_name(self) -> str:
        model = self.model
        fallback = self.fallback
        if fallback.digest == random_policy(model).digest:
            return UNIFORM_FALLBACK
        if (
            fallback.name not in model.policies
            or model.policy(fallback.name).digest != fallback.digest
        ):
            raise MissingError(
                f"the fallback policy {fallback.name!r} is none of the model's heuristics, so it "
                "cannot be saved."
            )
        return fallback.name

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> MixturePolicy:
        """From the same."""
        arrays = parts.arrays
        blocks = [
            Block(
                kind=b["kind"],
                ints=arrays[f"ints_{k}"],
                floats=arrays[f"floats_{k}"],
                names=tuple(b["names"]),
                widest=b["widest"],
                losses=arrays[f"losses_{k}"],
                errors=arrays[f"errors_{k}"],
                room=b["room"],
            )
            for k, b in enumerate(parts.header["blocks"])
        ]
        named = parts.header["fallback"]
        if named == UNIFORM_FALLBACK:
            fallback = None
        else:
            fallback = model.policy(named)
        return cls(Features(model, blocks), arrays["theta"], fallback=fallback, name=parts.name)


@made_once
def _rule(anchor: Kernel, near: Kernel, fallback: Kernel) -> Kernel:
    """The compiled rule around the functions of a feature set and a fallback, whatever the
    weights.
    """
    anchored = anchor.address
    looked_up = near.address
    positive = positive_part.address
    other = fallback.address

    @user_kernel(ACT_SIGNATURE)
    def rule(ints, floats, x, out):  # type: ignore[no-untyped-def]
        # ints: sizes of the features' two arrays, their ints, the fallback's; floats: θ, theirs,
        # the fallback's
        first = 2 + ints[0]
        d = feature_count(ints[2:first])
        own = floats[d : d + ints[1]]
        if not positive(anchored, looked_up, ints[2:first], own, floats[:d], x, out):
            other(ints[first:], floats[d + ints[1] :], x, out)

    return rule
