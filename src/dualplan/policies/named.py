"""Policies as users name them: heuristics, saved policies, folders of runs, functions in files."""

from __future__ import annotations

from pathlib import Path

from dualplan.core.errors import InputError
from dualplan.models.contract import Model
from dualplan.models.load import load_object
from dualplan.models.priorities import are_priorities
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy
from dualplan.policies.heuristics.network import written_priority
from dualplan.policies.saved import POLICY_FILE, load_policy
from dualplan.policies.tables import FunctionPolicy, tabulated


def named_policy(model: Model, spec: str) -> Policy:
    """A heuristic by name, priorities that are written down, a saved policy or the folder of its
    run, or a policy or function from a file, which is taken as a table where states are few.
    """
    if spec not in model.policies and (Path(spec) / POLICY_FILE).is_file():
        return load_policy(Path(spec) / POLICY_FILE, model)
    if spec.endswith(".npz"):
        return load_policy(spec, model)
    if ".py:" not in spec:
        return _own_policy(model, spec)
    found = load_object(spec)
    if isinstance(found, Policy):
        return found
    if not callable(found):
        raise InputError(f"{spec!r} is neither a policy nor a function of the state.")
    return tabulated(FunctionPolicy(model, found, name=spec.rpartition(":")[2]))


def _own_policy(model: Model, spec: str) -> Policy:
    """A heuristic of the model, or priorities that are written down."""
    if spec in model.policies:
        return model.policy(spec)
    if not isinstance(model, QueueingNetwork):
        if are_priorities(spec):
            raise InputError(
                f"{spec!r} reads as priorities of classes, which queueing networks have; "
                f"{model.name!r} is none, and has the policies {', '.join(model.policies)}."
            )
        return model.policy(spec)
    if are_priorities(spec):
        return written_priority(model, spec)
    if spec in model.class_names:
        raise InputError(
            f"{spec!r} is a class and no policy; to serve it first write '{spec};', or an order "
            f"such as {' > '.join(model.class_names[:2])!r}."
        )
    return model.policy(spec)
