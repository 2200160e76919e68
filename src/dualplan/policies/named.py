"""Policies as users name them: heuristics, saved policies, folders of runs, functions in files."""

from __future__ import annotations

from pathlib import Path

from dualplan.core.errors import InputError
from dualplan.models.contract import Model
from dualplan.models.load import load_object
from dualplan.policies.contract import Policy
from dualplan.policies.saved import POLICY_FILE, load_policy
from dualplan.policies.tables import FunctionPolicy, tabulated


def named_policy(model: Model, spec: str) -> Policy:
    """A heuristic by name, a saved policy or the folder of its run, or a policy or function from a
    file, which is taken as a table where states are few.
    """
    if spec not in model.policies and (Path(spec) / POLICY_FILE).is_file():
        return load_policy(Path(spec) / POLICY_FILE, model)
    if spec.endswith(".npz"):
        return load_policy(spec, model)
    if ".py:" not in spec:
        return model.policy(spec)
    found = load_object(spec)
    if isinstance(found, Policy):
        return found
    if not callable(found):
        raise InputError(f"{spec!r} is neither a policy nor a function of the state.")
    return tabulated(FunctionPolicy(model, found, name=spec.rpartition(":")[2]))
