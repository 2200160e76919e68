"""What went wrong in a loop, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from dualplan._kernels import simulate as kernels
from dualplan.core.errors import ModelError, PolicyError
from dualplan.core.types import Ints
from dualplan.models.contract import Model, vector
from dualplan.policies.contract import Policy, check_probabilities


def explain(model: Model, policy: Policy | None, fault: int, where: Ints) -> NoReturn:
    """Turn a fault of a loop into a sentence."""
    dim = model.box.dim
    x = where[:dim]
    a = int(where[dim])
    y = where[dim + 1 :]
    if fault in (kernels.BAD_POLICY_FAULT, kernels.FORBIDDEN_ACTION_FAULT) and policy is not None:
        check_probabilities(policy, x, policy.probabilities(x))
        raise PolicyError(
            f"policy {policy.name!r} at state {vector(x)} chooses action {a}, which is not allowed "
            "there."
        )
    diagnose(model, x, a)
    if fault == kernels.LEFT_BOX_FAULT:
        raise ModelError(
            f"model {model.name!r} at x={vector(x)}, a={a} leaves its box: x'={vector(y)}."
        )
    raise ModelError(
        f"model {model.name!r} at x={vector(x)}, a={a} has a loss or a law that is not finite."
    )


def diagnose(model: Model, x: Ints, a: int) -> None:
    """Let a model of user's functions say which of them is at fault."""
    diagnose: Callable[[Ints, int], None] | None = getattr(model, "diagnose", None)
    if diagnose is not None:
        diagnose(x, a)
