"""Policies in files: arrays and JSON in one .npz, readable without this library; no pickle.

header          JSON: the model's name and fingerprint, the policy's name, kind and fingerprint, and
                what the kind needs

mixture         the policy of a dual solution. theta: its weights; ints_k, floats_k, losses_k,
                errors_k: the compiled
                fields of block k of the features; header: their kinds and names, and the fallback
                policy
greedy          looks one step ahead. prices: of the model's columns, or none; clip: up to which
                numbers it looks;
                header: γ, and the kind of the values: linear, Ψw: weights: w; pieces: a row
                (coordinate, kind, p, q, s) for each piece; ends: after which piece each function
                ends; header: the names of the functions lattice: knots, ends: the knots of all
                coordinates, and after which one each coordinate ends; values: at the nodes; header:
                whether curvature is taken off and, inside, the policy within whose actions it
                stays, if there is one
table           table: an action, or a probability for each action, for every state
heuristic       one of the model's own, by name; random: every allowed action equally likely
rule           a compiled rule of the library. ints, floats: the arrays it reads; header: which rule
trees       a readable rule. header: its trees, and what it costs more than the policy it stands for
mixed           a mixture of policies. shares: their weights
alternating     policies in turn. shares: of the time; home: the state where they change
ratios          the policy of ratios against a reference. theta: their weights; cells_k: the parts
                of the partition of
                block k, members_k: which of the policies it has, the reference being the first;
                header: names
among           of several policies the one that is greedy for values, which are saved as for greedy

Policies inside policies are saved alike: a header for each under "policies", and "policies.k."
before the names of the arrays of the k-th.

Each kind of policy saves and loads itself: a class marked `saved_as(kind)` has `to_parts` and
`from_parts`. Policies that have no class of their own are recognised: heuristics by their names,
others by what they register here.
"""

from __future__ import annotations

import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from dualplan._kernels.compiler import Kernel
from dualplan.core.encoding import decoded, encoded
from dualplan.core.errors import InputError, MissingError, RunError
from dualplan.core.runs import write_bytes
from dualplan.core.types import Floats, Ints, Json
from dualplan.models.contract import Model, heuristics_of
from dualplan.models.load import remake
from dualplan.policies.contract import Policy, PolicyCode, require_policy

POLICY_FILE = "policy.npz"  # in the folder of a run
POLICY_FILE_FORMAT = "dualplan policy 3"
# what reading a damaged archive, or one of another kind, can raise
READING_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    RuntimeError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
    SyntaxError,
)


@dataclass(frozen=True)
class Parts:
    """What a file holds of a policy: a header of plain values, and arrays by name."""

    header: Json = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    def __or__(self, other: Parts) -> Parts:
        """Both, in one file."""
        return Parts({**self.header, **other.header}, {**self.arrays, **other.arrays})

    @property
    def name(self) -> str:
        """What the policy is called."""
        return str(self.header["name"])


@runtime_checkable
class SavedPolicy(Protocol):
    """A class of policies that saves and loads itself."""

    def to_parts(self) -> Parts:
        """All that it takes to make the policy again."""

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> Self:
        """The policy of these parts."""


Reader = Callable[[Model, Parts], Policy]
RuleReader = Callable[[Model, str, Ints, Floats], Policy]
Recogniser = Callable[[Policy], Parts | None]
PolicyClass = TypeVar("PolicyClass", bound=type[SavedPolicy])
_readers: dict[str, Reader] = {}
_kinds: dict[type, str] = {}
_recognisers: dict[str, Recogniser] = {}
_rules: dict[str, tuple[Kernel, RuleReader | None]] = {}


# -- who saves what --------------------------------------------------------------------------------


def saved_as(kind: str) -> Callable[[PolicyClass], PolicyClass]:
    """Mark a class of policies that saves and loads itself, under the word for it in files."""

    def register(cls: PolicyClass) -> PolicyClass:
        _kinds[cls] = kind
        # only policies are marked
        _readers[kind] = cls.from_parts  # type: ignore[assignment]
        return cls

    return register


def register_recognised(kind: str, recognise: Recogniser, read: Reader) -> None:
    """Policies without a class of their own: `recognise` gives their parts, or None if it is
    another policy.
    """
    _recognisers[kind] = recognise
    _readers[kind] = read


def register_rule(rule: str, act: Kernel, read: RuleReader | None = None) -> None:
    """A compiled rule over two arrays: `read(model, name, ints, floats)` makes its policy, by
    default a plain one.
    """
    _rules[rule] = (act, read)


def _heuristic(policy: Policy) -> Parts | None:
    known = heuristics_of(type(policy.model))
    if policy.name in known and known[policy.name](policy.model).digest == policy.digest:
        return Parts()
    return None


def _compiled_rule(policy: Policy) -> Parts | None:
    for rule, (act, _) in _rules.items():
        if policy.code is not None and policy.code.act is act:
            return Parts({"rule": rule}, {"ints": policy.code.ints, "floats": policy.code.floats})
    return None


def _read_rule(model: Model, parts: Parts) -> Policy:
    ints = parts.arrays["ints"]
    floats = parts.arrays["floats"]
    if ints.dtype != np.int64 or floats.dtype != np.float64 or not np.isfinite(floats).all():
        raise ValueError("its arrays are not those of a rule")
    act, read = _rules[parts.header["rule"]]
    if read is None:
        return Policy(model, parts.name, PolicyCode(ints, floats, act))
    return read(model, parts.name, ints, floats)


register_recognised("heuristic", _heuristic, lambda model, parts: model.policy(parts.name))
register_recognised("rule", _compiled_rule, _read_rule)


# -- parts -----------------------------------------------------------------------------------------


def written(policy: Policy) -> Parts:
    """All that it takes to make a policy again."""
    kind, parts = _own_parts(policy)
    return parts | Parts({"kind": kind, "name": policy.name, "policy": policy.digest})


def _own_parts(policy: Policy) -> tuple[str, Parts]:
    for cls, kind in _kinds.items():
        if isinstance(policy, cls) and isinstance(policy, SavedPolicy):
            return kind, policy.to_parts()
    for kind, recognise in _recognisers.items():
        parts = recognise(policy)
        if parts is not None:
            return kind, parts
    raise MissingError(
        f"the policy {policy.name!r} is a function of yours and cannot be saved; save what it is "
        "made from."
    )


def read(model: Model, parts: Parts) -> Policy:
    """The policy of its parts, as it was when it was saved."""
    policy = _readers[parts.header["kind"]](model, parts)
    if policy.digest != parts.header["policy"]:  # compiled rules trust their arrays
        raise ValueError("its arrays are not those that were saved")
    return policy


def inner(policies: Sequence[Policy]) -> Parts:
    """The parts of policies inside a policy."""
    each = [written(policy) for policy in policies]
    arrays = {
        f"policies.{k}.{name}": array
        for k, own in enumerate(each)
        for name, array in own.arrays.items()
    }
    return Parts({"policies": [own.header for own in each]}, arrays)


def outer(model: Model, parts: Parts) -> list[Policy]:
    """The policies inside a policy, from its parts."""
    found = []
    for k, header in enumerate(parts.header["policies"]):
        before = f"policies.{k}."
        own = {
            name.removeprefix(before): array
            for name, array in parts.arrays.items()
            if name.startswith(before)
        }
        found.append(read(model, Parts(header, own)))
    return found


# -- files -----------------------------------------------------------------------------------------


def save_policy(policy: Policy, path: str | Path) -> None:
    """Write the policy to a file, whole or not at all."""
    require_policy(policy)
    model = policy.model
    parts = written(policy)
    made_for = {
        "format": POLICY_FILE_FORMAT,
        "model": model.name,
        "digest": model.digest,
        "recipe": encoded(model.recipe),
    }
    if model.recipe is None:
        made_for["origin"] = encoded(model.origin)
    header = np.array(json.dumps({**parts.header, **made_for}))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, header=header, **parts.arrays)
    try:
        write_bytes(Path(path), buffer.getvalue())
    except OSError as error:
        raise RunError(f"{str(path)!r} cannot be written to: {error}.") from error


def load_policy(path: str | Path, model: Model | None = None) -> Policy:
    """The policy in a file, for the model it was made for.

    Networks and named models need not be given.
    """
    parts = _read_file(path)
    header = parts.header
    made_for = header["model"]
    if model is None and header.get("recipe") is None:
        raise InputError(
            f"the model {made_for!r} of the policy in {str(path)!r} was made in Python; load it "
            "and give it."
        )
    if model is None:
        model = remake(header["recipe"])
    if header["digest"] != model.digest:
        if model.name == made_for:
            other = "which has changed since; give it as it was, or solve it again"
        else:
            other = f"not {model.name!r}"
        raise InputError(
            f"the policy in {str(path)!r} was made for {made_for!r} as it was, {other}."
        )
    try:
        return read(model, parts)
    except READING_ERRORS as error:
        raise RunError(f"{str(path)!r} holds no saved policy ({error}).") from error


def origin_of(path: str | Path) -> Json | None:
    """What `load` was asked for when the model of a saved policy was made by a file of Python.

    Such a file is run only where the user names it. None for models that are made without.
    """
    header = _read_file(path).header
    if header.get("recipe") is not None:
        return None
    return header.get("origin")


def _read_file(path: str | Path) -> Parts:
    """The header and the arrays in a file."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = decoded(json.loads(str(arrays["header"])))
        if header["format"] != POLICY_FILE_FORMAT:
            raise ValueError(f"the format is {header['format']!r}")
        for needed in ("digest", "model"):
            header[needed]
    except FileNotFoundError as error:
        raise RunError(f"there is no file {str(path)!r}.") from error
    except READING_ERRORS as error:
        raise RunError(f"{str(path)!r} holds no saved policy ({error}).") from error
    return Parts(header, arrays)
