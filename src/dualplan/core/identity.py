"""Fingerprints of models and policies, so that a saved run is never continued with another one.

Arrays count by their bytes. A function of the user counts by its code and by the values that it
refers to: its closure, and numbers, arrays and functions among its globals. A function of this
library counts by its name and its closure, so that a policy saved today can be loaded after the
library's code has been put in other words.
"""

from __future__ import annotations

import hashlib
import types
from typing import Any

import numpy as np


def digest(*parts: Any) -> str:
    """A short hexadecimal fingerprint of arrays, functions and plain values."""
    sha = hashlib.sha256()
    seen: set[int] = set()
    for part in parts:
        _feed(sha, part, seen)
    return sha.hexdigest()[:16]


def _feed(sha: Any, part: Any, seen: set[int]) -> None:
    if isinstance(part, np.ndarray):
        sha.update(f"array {part.dtype} {part.shape}".encode())
        sha.update(np.ascontiguousarray(part).tobytes())
    elif isinstance(part, types.FunctionType):
        if id(part) in seen:
            return
        seen.add(id(part))
        ours = part.__module__.startswith("dualplan.")
        if ours:
            sha.update(f"function {part.__module__}.{part.__qualname__}".encode())
        else:
            _feed_code(sha, part.__code__, seen)
        for cell in part.__closure__ or ():
            _feed(sha, cell.cell_contents, seen)
        for name in () if ours else part.__code__.co_names:
            value = part.__globals__.get(name)
            if isinstance(value, (int, float, str, tuple, np.ndarray, types.FunctionType)):
                _feed(sha, value, seen)
    elif isinstance(part, types.CodeType):
        _feed_code(sha, part, seen)
    elif isinstance(part, (list, tuple)):
        sha.update(f"sequence {len(part)}".encode())
        for item in part:
            _feed(sha, item, seen)
    elif part is None or isinstance(part, (bool, int, float, str, bytes, np.generic)):
        sha.update(f"{type(part).__name__} {part!r}".encode())
    else:  # an object of some library: its kind is all that can be told
        sha.update(f"object {type(part).__module__}.{type(part).__qualname__}".encode())


def _feed_code(sha: Any, code: types.CodeType, seen: set[int]) -> None:
    sha.update(code.co_code)
    sha.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        _feed(sha, constant, seen)
