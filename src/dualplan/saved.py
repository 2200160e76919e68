"""Policies in files: arrays and JSON in one .npz, readable without this library; no pickle.

header          JSON: the model's name and fingerprint, the policy's name, kind and fingerprint, and what the kind needs

mixture         the policy of a dual solution. theta: its weights; ints_k, floats_k, losses_k, errors_k: the compiled
                fields of block k of the features; header: their kinds and names, and the fallback policy
greedy          looks one step ahead with Ψw. weights: w; pieces: a row (coordinate, kind, p, q, s) for each piece;
                ends: after which piece each function ends; header: γ, the names of the functions, and the policy
                within whose actions it chooses
table           table: an action, or a probability for each action, for every state
heuristic       one of the model's own, by name; random: every allowed action equally likely
rule            a compiled rule of the library. ints, floats: the arrays it reads; header: which rule
"""

from __future__ import annotations

import io
import json
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from dualplan._kernels.factored import local_rule
from dualplan._kernels.policies import network_rule
from dualplan.errors import InputError, MissingError, RunError
from dualplan.features.contract import Block, Features
from dualplan.models.contract import Model
from dualplan.policies.contract import Policy, PolicyCode
from dualplan.policies.tables import TablePolicy, random_policy
from dualplan.primal.basis import Basis, Piece
from dualplan.primal.greedy import GreedyPolicy, LinearValues
from dualplan.runs import write_bytes
from dualplan.solvers.mixture import MixturePolicy
from dualplan.types import Json

FORMAT = "dualplan policy 2"
UNIFORM = "uniform"  # the fallback where none was named
# what reading a damaged archive, or one of another kind, can raise
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, IndexError, RuntimeError, EOFError, NotImplementedError,
    zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError,
)  # fmt: skip
FIELDS = ("ints", "floats", "losses", "errors")
Arrays = dict[str, Any]


def save_policy(policy: Policy, path: str | Path) -> None:
    """Write the policy to a file, whole or not at all."""
    model = policy.model
    kind, header, arrays = _parts(policy)
    header |= {"format": FORMAT, "kind": kind, "model": model.name, "digest": model.digest, "name": policy.name}
    header["policy"] = policy.digest
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, header=np.array(json.dumps(header)), **arrays)
    try:
        write_bytes(Path(path), buffer.getvalue())
    except OSError as error:
        raise RunError(f"{str(path)!r} cannot be written to: {error}.") from error


def load_policy(path: str | Path, model: Model) -> Policy:
    """The policy in a file, for the model it was made for."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays["header"]))
        if header["format"] != FORMAT:
            raise ValueError(f"the format is {header['format']!r}")
        make = MAKERS[header["kind"]]
        digest, made_for = header["digest"], header["model"]
    except UNREADABLE as error:
        raise RunError(f"{str(path)!r} holds no saved policy ({error}).") from error
    if digest != model.digest:
        raise InputError(f"the policy in {str(path)!r} was made for {made_for!r} as it was, not {model.name!r}.")
    try:
        policy = make(model, header, arrays)
        if policy.digest != header["policy"]:  # compiled rules trust their arrays
            raise ValueError("its arrays are not those that were saved")
        return policy
    except UNREADABLE as error:
        raise RunError(f"{str(path)!r} holds no saved policy ({error}).") from error


def _parts(policy: Policy) -> tuple[str, Json, Arrays]:
    """The kind of a policy, what its header says and its arrays."""
    if isinstance(policy, MixturePolicy):
        return "mixture", *_mixture_parts(policy)
    if isinstance(policy, GreedyPolicy):
        return "greedy", *_greedy_parts(policy)
    if isinstance(policy, TablePolicy):
        return "table", {}, {"table": policy.table}
    if policy.name in policy.model.policies and policy.model.policy(policy.name).digest == policy.digest:
        return "heuristic", {}, {}
    if policy.digest == random_policy(policy.model).digest:
        return "random", {}, {}
    for rule, act in RULES.items():
        if policy.code is not None and policy.code.act is act:
            return "rule", {"rule": rule}, {"ints": policy.code.ints, "floats": policy.code.floats}
    raise MissingError(
        f"the policy {policy.name!r} is a function of yours and cannot be saved; save what it is made from."
    )


# -- mixtures ---------------------------------------------------------------------------------------------------------


def _mixture_parts(policy: MixturePolicy) -> tuple[Json, Arrays]:
    model, blocks = policy.model, policy.features.blocks
    fallback = _named(model, policy.fallback, "fallback")
    if any(block.user for block in blocks):
        raise MissingError(
            "features or choices that are functions of yours cannot be saved; save θ, and make them again from it."
        )
    arrays = {"theta": policy.theta}
    for k, block in enumerate(blocks):
        arrays |= {f"{field}_{k}": getattr(block, field) for field in FIELDS}
    named = [{"kind": b.kind, "names": list(b.names), "widest": b.widest, "room": b.room} for b in blocks]
    return {"fallback": fallback, "blocks": named}, arrays


def _named(model: Model, policy: Policy, role: str) -> str:
    """The name under which a policy that another one needs can be made again."""
    if policy.digest == random_policy(model).digest:
        return UNIFORM
    if policy.name not in model.policies or model.policy(policy.name).digest != policy.digest:
        raise MissingError(
            f"the {role} policy {policy.name!r} is none of the model's heuristics, so it cannot be saved."
        )
    return policy.name


def _policy_named(model: Model, name: str) -> Policy:
    return random_policy(model) if name == UNIFORM else model.policy(name)


def _mixture(model: Model, header: Json, arrays: Arrays) -> Policy:
    blocks = [
        Block(b["kind"], arrays[f"ints_{k}"], arrays[f"floats_{k}"], tuple(b["names"]), b["widest"],
              arrays[f"losses_{k}"], arrays[f"errors_{k}"], b["room"])
        for k, b in enumerate(header["blocks"])
    ]  # fmt: skip
    named = header["fallback"]
    fallback = None if named == UNIFORM else model.policy(named)
    name = header["name"]
    return MixturePolicy(Features(model, blocks), arrays["theta"], fallback=fallback, name=name)


# -- one look ahead ---------------------------------------------------------------------------------------------------


def _greedy_parts(policy: GreedyPolicy) -> tuple[Json, Arrays]:
    if not isinstance(policy.values, LinearValues) or not policy.values.basis.compiled:
        raise MissingError("values that are functions of yours cannot be saved; save the weights, and make them again.")
    basis = policy.values.basis
    pieces = [(q.coordinate, q.kind, q.p, q.q, q.s) for product in basis.products for q in product]
    arrays = {
        "weights": policy.values.weights,
        "pieces": np.array(pieces, np.float64).reshape(-1, 5),
        "ends": np.cumsum([len(product) for product in basis.products]),
    }
    within = None if policy.within is None else _named(policy.model, policy.within, "restricting")
    return {"gamma": policy.gamma, "functions": list(basis.labels), "within": within}, arrays


def _greedy(model: Model, header: Json, arrays: Arrays) -> Policy:
    pieces = [Piece(int(i), int(kind), *map(float, rest)) for i, kind, *rest in arrays["pieces"].tolist()]
    ends = arrays["ends"].tolist()
    products = tuple(tuple(pieces[a:b]) for a, b in zip([0, *ends], ends, strict=False))
    basis = Basis(model, products, tuple(header["functions"]))
    named = header.get("within")
    within = None if named is None else _policy_named(model, named)
    values = LinearValues(basis, arrays["weights"])
    return GreedyPolicy(model, values, header["gamma"], name=header["name"], within=within)


def _table(model: Model, header: Json, arrays: Arrays) -> Policy:
    return TablePolicy(model, arrays["table"], name=header["name"])


def _heuristic(model: Model, header: Json, arrays: Arrays) -> Policy:  # noqa: ARG001 - a name is all there is
    return model.policy(header["name"])


def _rule(model: Model, header: Json, arrays: Arrays) -> Policy:
    ints, floats = arrays["ints"], arrays["floats"]
    if ints.dtype != np.int64 or floats.dtype != np.float64 or not np.isfinite(floats).all():
        raise ValueError("its arrays are not those of a rule")
    return Policy(model, header["name"], PolicyCode(ints, floats, RULES[header["rule"]]))


def _random(model: Model, header: Json, arrays: Arrays) -> Policy:  # noqa: ARG001 - the model is all there is
    return random_policy(model)


RULES = {"network": network_rule, "local greedy": local_rule}
MAKERS = {
    "mixture": _mixture,
    "greedy": _greedy,
    "table": _table,
    "heuristic": _heuristic,
    "random": _random,
    "rule": _rule,
}
