"""Policies in files: arrays and JSON in one .npz, readable without this library; no pickle.

header          JSON: the model's name and fingerprint, the policy's name, kind and fingerprint, and what the kind needs

mixture         the policy of a dual solution. theta: its weights; ints_k, floats_k, losses_k, errors_k: the compiled
                fields of block k of the features; header: their kinds and names, and the fallback policy
greedy          looks one step ahead. prices: of the model's columns, or none; clip: up to which numbers it looks;
                header: γ, and the kind of the values:
                linear, Ψw: weights: w; pieces: a row (coordinate, kind, p, q, s) for each piece; ends: after which
                piece each function ends; header: the names of the functions
                lattice: knots, ends: the knots of all coordinates, and after which one each coordinate ends; values: at
                the nodes; header: whether curvature is taken off
                and, inside, the policy within whose actions it stays, if there is one
table           table: an action, or a probability for each action, for every state
heuristic       one of the model's own, by name; random: every allowed action equally likely
rule            a compiled rule of the library. ints, floats: the arrays it reads; header: which rule
trees           a readable rule. header: its trees, and what it costs more than the policy it stands for
mixed           a mixture of policies. shares: their weights
ratios          the policy of ratios against a reference. theta: their weights; cells_k: the parts of the partition of
                block k, members_k: which of the policies it has, the reference being the first; header: names
among           of several policies the one that is greedy for values, which are saved as for greedy

Policies inside policies are saved alike: a header for each under "policies", and "policies.k." before the names of the
arrays of the k-th.
"""

from __future__ import annotations

import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualplan._kernels.factored import local_rule
from dualplan._kernels.linear_index import linear_index_rule
from dualplan._kernels.policies import network_rule
from dualplan.errors import InputError, MissingError, RunError
from dualplan.features.contract import Block, Features
from dualplan.features.partitions import partition_of
from dualplan.features.ratios import Portfolio, RatioPolicy, Ratios
from dualplan.models.contract import Model
from dualplan.models.load import load_object, remake
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy, PolicyCode
from dualplan.policies.mixed import Mixed
from dualplan.policies.network import TIES, LinearIndexPolicy, NetworkPolicy
from dualplan.policies.tables import FunctionPolicy, TablePolicy, random_policy
from dualplan.primal.among import GreedyAmong
from dualplan.primal.basis import Basis, LinearValues, Piece
from dualplan.primal.greedy import GreedyPolicy
from dualplan.primal.interpolation import Lattice, LatticeValues
from dualplan.rules import Rule, Simplification
from dualplan.rules.policy import trees_from_json, trees_to_json
from dualplan.runs import plain, write_bytes
from dualplan.solvers.mixture import MixturePolicy
from dualplan.types import Floats, Json

POLICY = "policy.npz"  # in the folder of a run
FORMAT = "dualplan policy 3"
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
    header, arrays = _written(policy)
    header |= {"format": FORMAT, "model": model.name, "digest": model.digest, "recipe": plain(model.recipe)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, header=np.array(json.dumps(header)), **arrays)
    try:
        write_bytes(Path(path), buffer.getvalue())
    except OSError as error:
        raise RunError(f"{str(path)!r} cannot be written to: {error}.") from error


def load_policy(path: str | Path, model: Model | None = None) -> Policy:
    """The policy in a file, for the model it was made for; networks and named models need not be given."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays["header"]))
        if header["format"] != FORMAT:
            raise ValueError(f"the format is {header['format']!r}")
        digest, made_for, recipe = header["digest"], header["model"], header.get("recipe")
    except FileNotFoundError as error:
        raise RunError(f"there is no file {str(path)!r}.") from error
    except UNREADABLE as error:
        raise RunError(f"{str(path)!r} holds no saved policy ({error}).") from error
    if model is None and recipe is None:
        raise InputError(
            f"the model {made_for!r} of the policy in {str(path)!r} was made in Python; load it and give it."
        )
    model = remake(recipe) if model is None else model
    if digest != model.digest:
        raise InputError(f"the policy in {str(path)!r} was made for {made_for!r} as it was, not {model.name!r}.")
    try:
        return _read(model, header, arrays)
    except UNREADABLE as error:
        raise RunError(f"{str(path)!r} holds no saved policy ({error}).") from error


def named_policy(model: Model, spec: str) -> Policy:
    """A heuristic by name, a saved policy or the folder of its run, or a policy or function from a file."""
    if spec not in model.policies and (Path(spec) / POLICY).is_file():
        return load_policy(Path(spec) / POLICY, model)
    if spec.endswith(".npz"):
        return load_policy(spec, model)
    if ".py:" not in spec:
        return model.policy(spec)
    found = load_object(spec)
    if isinstance(found, Policy):
        return found
    if not callable(found):
        raise InputError(f"{spec!r} is neither a policy nor a function of the state.")
    return FunctionPolicy(model, found, name=spec.rpartition(":")[2])


def _written(policy: Policy) -> tuple[Json, Arrays]:
    """A policy's header and its arrays."""
    kind, header, arrays = _parts(policy)
    return {**header, "kind": kind, "name": policy.name, "policy": policy.digest}, arrays


def _read(model: Model, header: Json, arrays: Arrays) -> Policy:
    """The policy of a header and its arrays, as it was when it was saved."""
    policy = MAKERS[header["kind"]](model, header, arrays)
    if policy.digest != header["policy"]:  # compiled rules trust their arrays
        raise ValueError("its arrays are not those that were saved")
    return policy


def _parts(policy: Policy) -> tuple[str, Json, Arrays]:
    """The kind of a policy, what its header says and its arrays."""
    if isinstance(policy, MixturePolicy):
        return "mixture", *_mixture_parts(policy)
    if isinstance(policy, GreedyPolicy):
        return "greedy", *_greedy_parts(policy)
    if isinstance(policy, RatioPolicy):
        return "ratios", *_ratio_parts(policy)
    if isinstance(policy, Mixed):
        return "mixed", *_mixed_parts(policy)
    if isinstance(policy, GreedyAmong):
        return "among", *_among_parts(policy)
    if isinstance(policy, Rule):
        return "trees", _tree_parts(policy), {}
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
    fallback = policy.fallback.name
    if policy.fallback.digest == random_policy(model).digest:
        fallback = UNIFORM
    elif fallback not in model.policies or model.policy(fallback).digest != policy.fallback.digest:
        raise MissingError(
            f"the fallback policy {fallback!r} is none of the model's heuristics, so it cannot be saved."
        )
    if any(block.user for block in blocks):
        raise MissingError(
            "features or choices that are functions of yours cannot be saved; save θ, and make them again from it."
        )
    arrays = {"theta": policy.theta}
    for k, block in enumerate(blocks):
        arrays |= {f"{field}_{k}": getattr(block, field) for field in FIELDS}
    named = [{"kind": b.kind, "names": list(b.names), "widest": b.widest, "room": b.room} for b in blocks]
    return {"fallback": fallback, "blocks": named}, arrays


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
    header, arrays = _value_parts(policy.values)
    inner = _inner([] if policy.within is None else [policy.within])
    own = {"prices": policy.prices, "clip": policy.clip}
    return {"gamma": policy.gamma, **header, **inner[0]}, {**own, **arrays, **inner[1]}


def _greedy(model: Model, header: Json, arrays: Arrays) -> Policy:
    values, within = _values(model, header, arrays), [*_outer(model, header, arrays), None][0]
    prices = arrays["prices"] if arrays["prices"].size else None
    clip = arrays["clip"]
    return GreedyPolicy(model, values, header["gamma"], prices=prices, within=within, clip=clip, name=header["name"])


def _value_parts(values: Any) -> tuple[Json, Arrays]:
    if isinstance(values, LatticeValues):
        knots = values.lattice.knots
        ends = np.cumsum([k.size for k in knots])
        arrays = {"knots": np.concatenate(knots), "ends": ends, "values": values.values}
        return {"values": "lattice", "curved": values.curved}, arrays
    if not isinstance(values, LinearValues) or not values.basis.compiled:
        raise MissingError("values that are functions of yours cannot be saved; save the weights, and make them again.")
    basis = values.basis
    pieces = [(q.coordinate, q.kind, q.p, q.q, q.s) for product in basis.products for q in product]
    arrays = {
        "weights": values.weights,
        "pieces": np.array(pieces, np.float64).reshape(-1, 5),
        "ends": np.cumsum([len(product) for product in basis.products]),
    }
    return {"values": "linear", "functions": list(basis.labels)}, arrays


def _values(model: Model, header: Json, arrays: Arrays) -> LinearValues | LatticeValues:
    ends = arrays["ends"].tolist()
    try:
        if header["values"] == "lattice":
            knots = tuple(np.split(arrays["knots"], ends[:-1]))
            return LatticeValues(Lattice(model, knots), arrays["values"], bool(header["curved"]))
        pieces = [Piece(int(i), int(kind), *map(float, rest)) for i, kind, *rest in arrays["pieces"].tolist()]
        products = tuple(tuple(pieces[a:b]) for a, b in zip([0, *ends], ends, strict=False))
        return LinearValues(Basis(model, products, tuple(header["functions"])), arrays["weights"])
    except InputError as error:  # the file is at fault, not what the user gave
        raise ValueError(str(error)) from error


# -- policies inside policies -----------------------------------------------------------------------------------------


def _inner(policies: Sequence[Policy]) -> tuple[Json, Arrays]:
    """The headers and the arrays of several policies."""
    parts = [_written(policy) for policy in policies]
    arrays = {f"policies.{k}.{name}": array for k, (_, own) in enumerate(parts) for name, array in own.items()}
    return {"policies": [header for header, _ in parts]}, arrays


def _outer(model: Model, header: Json, arrays: Arrays) -> list[Policy]:
    """The policies whose headers and arrays these are."""
    found = []
    for k, own in enumerate(header["policies"]):
        before = f"policies.{k}."
        given = {name.removeprefix(before): array for name, array in arrays.items() if name.startswith(before)}
        found.append(_read(model, own, given))
    return found


def _mixed_parts(policy: Mixed) -> tuple[Json, Arrays]:
    header, arrays = _inner(policy.policies)
    return header, {"shares": policy.weights, **arrays}


def _mixed(model: Model, header: Json, arrays: Arrays) -> Policy:
    return Mixed(_outer(model, header, arrays), arrays["shares"], name=header["name"])


def _among_parts(policy: GreedyAmong) -> tuple[Json, Arrays]:
    inner, values = _inner(policy.policies), _value_parts(policy.values)
    return {"gamma": policy.gamma, **inner[0], **values[0]}, {**inner[1], **values[1]}


def _among(model: Model, header: Json, arrays: Arrays) -> Policy:
    policies, values = _outer(model, header, arrays), _values(model, header, arrays)
    return GreedyAmong(policies, values, header["gamma"], name=header["name"])


def _ratio_parts(policy: RatioPolicy) -> tuple[Json, Arrays]:
    ratios = policy.ratios
    header, arrays = _inner(ratios.policies)
    arrays["theta"] = policy.theta
    numbers = {id(p): k for k, p in enumerate(ratios.policies)}
    for k, block in enumerate(ratios.blocks):
        if not isinstance(block, Portfolio) or block.partition.function is not None:
            raise MissingError(
                "ratios or bands that are functions of yours cannot be saved; save θ, and make them again."
            )
        arrays[f"cells_{k}"] = block.partition.ints
        arrays[f"members_{k}"] = np.array([numbers[id(p)] for p in block.policies], np.int64)
    return {**header, "blocks": [list(block.names) for block in ratios.blocks]}, arrays


def _ratios(model: Model, header: Json, arrays: Arrays) -> Policy:
    policies = _outer(model, header, arrays)
    blocks = [
        Portfolio(
            tuple(policies[n] for n in arrays[f"members_{k}"].tolist()),
            partition_of(model, arrays[f"cells_{k}"]),
            tuple(names),
        )
        for k, names in enumerate(header["blocks"])
    ]
    return RatioPolicy(Ratios(policies[0], blocks), arrays["theta"], name=header["name"])


def _table(model: Model, header: Json, arrays: Arrays) -> Policy:
    return TablePolicy(model, arrays["table"], name=header["name"])


def _heuristic(model: Model, header: Json, arrays: Arrays) -> Policy:  # noqa: ARG001 - a name is all there is
    return model.policy(header["name"])


def _rule(model: Model, header: Json, arrays: Arrays) -> Policy:
    ints, floats = arrays["ints"], arrays["floats"]
    if ints.dtype != np.int64 or floats.dtype != np.float64 or not np.isfinite(floats).all():
        raise ValueError("its arrays are not those of a rule")
    if RULES[header["rule"]] is linear_index_rule and isinstance(model, QueueingNetwork):
        n, own = len(model.classes), model.code.floats.size
        alpha, slopes, temperature = floats[own : own + n], floats[own + n : -1], floats[-1]
        return LinearIndexPolicy(model, header["name"], alpha, slopes.reshape(n, n), temperature=float(temperature))
    if RULES[header["rule"]] is network_rule and isinstance(model, QueueingNetwork):
        return _index_rule(model, header["name"], int(ints[-1]), floats[model.code.floats.size :])
    return Policy(model, header["name"], PolicyCode(ints, floats, RULES[header["rule"]]))


def _index_rule(network: QueueingNetwork, name: str, ties: int, floats: Floats) -> NetworkPolicy:
    n, servers = len(network.classes), len(network.servers)
    alpha, beta, probability, (kappa,) = np.split(floats, [n, 2 * n, 2 * n + servers])
    return NetworkPolicy(network, name, alpha, beta, kappa=float(kappa), probability=probability, ties=TIES[ties])


def _tree_parts(policy: Rule) -> Json:
    known = policy.simplification
    return {"trees": trees_to_json(policy.trees), "simplification": None if known is None else plain(known.to_json())}


def _trees(model: Model, header: Json, arrays: Arrays) -> Policy:  # noqa: ARG001 - trees are JSON
    known = header["simplification"]
    cost = None if known is None else Simplification.of(known)
    return Rule(model, trees_from_json(header["trees"]), name=header["name"], simplification=cost)


def _random(model: Model, header: Json, arrays: Arrays) -> Policy:  # noqa: ARG001 - the model is all there is
    return random_policy(model)


RULES = {"network": network_rule, "linear index": linear_index_rule, "local greedy": local_rule}
MAKERS = {
    "mixture": _mixture,
    "greedy": _greedy,
    "table": _table,
    "heuristic": _heuristic,
    "random": _random,
    "rule": _rule,
    "trees": _trees,
    "mixed": _mixed,
    "among": _among,
    "ratios": _ratios,
}
