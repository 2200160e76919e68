"""The policy of a solution in a file: arrays and JSON in one .npz, readable without this library; no pickle.

header          JSON: the model's name and fingerprint, the policy's name and fallback, and for each block of
                features its kind and names
theta           the weights
ints_k, ...     for block k: its compiled fields, losses and standard errors
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

from dualplan.errors import InputError, MissingError, RunError
from dualplan.features.contract import Block, Features
from dualplan.models.contract import Model
from dualplan.policies.tables import random_policy
from dualplan.runs import write_bytes
from dualplan.solvers.mixture import MixturePolicy

FORMAT = "dualplan policy 2"
UNIFORM = "uniform"  # the fallback where none was named
# what reading a damaged archive, or one of another kind, can raise
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error,
    tokenize.TokenError, SyntaxError,
)  # fmt: skip
FIELDS = ("ints", "floats", "losses", "errors")


def save_policy(policy: MixturePolicy, path: str | Path) -> None:
    """Write the policy to a file, whole or not at all."""
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
    header = {
        "format": FORMAT,
        "model": model.name,
        "digest": model.digest,
        "name": policy.name,
        "fallback": fallback,
        "blocks": [{"kind": b.kind, "names": list(b.names), "widest": b.widest, "room": b.room} for b in blocks],
    }
    arrays: dict[str, Any] = {"theta": policy.theta, "header": np.array(json.dumps(header))}
    for k, block in enumerate(blocks):
        arrays |= {f"{field}_{k}": getattr(block, field) for field in FIELDS}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    try:
        write_bytes(Path(path), buffer.getvalue())
    except OSError as error:
        raise RunError(f"{str(path)!r} cannot be written to: {error}.") from error


def load_policy(path: str | Path, model: Model) -> MixturePolicy:
    """The policy in a file, for the model it was made for."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header, theta = json.loads(str(arrays["header"])), arrays["theta"]
        digest, named = header["digest"], header["fallback"]
        if header["format"] != FORMAT:
            raise ValueError(f"the format is {header['format']!r}")
        blocks = [
            Block(b["kind"], arrays[f"ints_{k}"], arrays[f"floats_{k}"], tuple(b["names"]), b["widest"],
                  arrays[f"losses_{k}"], arrays[f"errors_{k}"], b["room"])
            for k, b in enumerate(header["blocks"])
        ]  # fmt: skip
    except UNREADABLE as error:
        raise RunError(f"{str(path)!r} holds no saved policy ({error}).") from error
    if digest != model.digest:
        raise InputError(f"the policy in {str(path)!r} was made for {header['model']!r} as it was, not {model.name!r}.")
    features = Features(model, blocks)
    fallback = None if named == UNIFORM else model.policy(named)
    return MixturePolicy(features, theta, fallback=fallback, name=str(header.get("name", "dual")))
