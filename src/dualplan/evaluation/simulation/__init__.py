"""Trajectories of a model under a policy, in chunks.

`REPLICAS` independent trajectories start from one state and advance in chunks of fixed length; the
random numbers of a step depend on (seed, replica, step) alone. Chunks are simulated on all cores
and put together in a fixed order, so neither the number of threads nor an interruption changes a
result.

With a control h, a function of states, every step's loss is replaced by ℓ(x,a) + Σ_y P(y|x,a) h(y)
− h(x). Under a stationary law with E|h| finite the two have the same mean, since E[Ph] = E[h]; the
nearer h is to the bias of the policy, the less the second varies (with the bias itself, not at all:
Poisson's equation). This is the approximating martingale of Henderson & Glynn (2002), and it also
takes away what the start leaves: the sum over n steps differs from that of ℓ by a martingale and
h(x_n) − h(x_0). The losses themselves are in one more column, by which warm-up and the intervals of
other measures are judged.
"""

from __future__ import annotations

from dualplan.core.errors import InputError
from dualplan.evaluation.simulation.alternating import AlternatingEngine
from dualplan.evaluation.simulation.compiled import CompiledEngine
from dualplan.evaluation.simulation.contract import (
    REPLICAS,
    Chunks,
    Control,
    Copies,
    Engine,
    Recorded,
    Replica,
    Restarts,
)
from dualplan.evaluation.simulation.python import PythonEngine
from dualplan.evaluation.simulation.stepped import SteppedEngine
from dualplan.models.contract import Model
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.alternating import Alternating
from dualplan.policies.contract import Policy

__all__ = [
    "REPLICAS",
    "Chunks",
    "CompiledEngine",
    "Control",
    "Copies",
    "Engine",
    "PythonEngine",
    "Recorded",
    "Replica",
    "Restarts",
    "SteppedEngine",
    "engine",
]


def engine(
    model: Model,
    policy: Policy,
    seed: int,
    *,
    regenerate: bool = False,
    control: Control | None = None,
) -> Engine:
    """The loop for this model and policy: compiled where both are, and the control; step by step
    where one of them is not, and all in Python where the model is a simulator. Policies in turn
    have one each.
    """
    if isinstance(policy, Alternating):
        if regenerate:
            raise InputError(
                f"policy {policy.name!r} follows several policies in turn, whose cycles differ; "
                "use method 'batch-means'."
            )
        engines = [engine(model, part, seed, control=control) for part in policy.policies]
        return AlternatingEngine(policy, engines)
    code = getattr(control, "code", None)
    if isinstance(model, SimulatorModel):
        return PythonEngine(model, policy, seed, regenerate, control)
    if policy.code is None or (control is not None and code is None):
        return SteppedEngine(model, policy, seed, regenerate, control)
    return CompiledEngine(model, policy, seed, regenerate, code)
