"""Machine code on disk of kernels that close over other functions: a user's model, a policy that
looks ahead in it, a mixture of policies.

Numba's own cache knows a function by its file and its byte code. It does not see changes in what
the function refers to, and it takes two closures over compiled functions for different ones in
each process. Here a function is known by a fingerprint of all that its machine code depends on:

    F(function) = hash of its code, its defaults, its closure, and the globals that the code
                  names, each of them again by F if it is a function, compiled or not,

with the options and the types that it is compiled for, the versions of Python, NumPy, Numba and
LLVM, and the kind of processor. Numbers, texts, arrays and tuples count by their contents; modules
of NumPy, Numba and the standard library's `math` by their versions. A function that refers to
anything else has no fingerprint (`NotIdentifiedError`), and is compiled in every process; so is one
that calls others by their addresses (`Address` in `compiler.py`), which takes a fraction of a
second.

Numba tells functions of one name apart by a number, which it counts from 1 in each process, and
machine code is found by name and number. Code of two processes would then meet under one name in a
third, and an address be that of another function: so the count begins at a number drawn by chance.

A file holds one function. The folder holds at most `MOST_FILES` of them: beyond, those that were
not used for the longest time are deleted. A file that cannot be read or written does no harm: the
function is compiled.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import platform
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import serialize
from numba.core.bytecode import FunctionIdentity
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

MOST_FILES = 2_000
FOLDER = "dualplan-functions"
# modules whose functions are known by the versions that are part of every fingerprint
KNOWN_MODULES = ("builtins", "math", "cmath", "operator", "numpy", "numba", "llvmlite")
NAMES_OF_CODE = "numbers by chance"  # files of versions that counted from 1 are left alone
VERSIONS = (sys.version, np.__version__, numba.__version__, llvmlite.__version__, NAMES_OF_CODE)
BYTES_OF_A_NUMBER = 6

FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(BYTES_OF_A_NUMBER)))


class NotIdentifiedError(Exception):
    """A function refers to something of which it cannot be told whether it is the same again."""


def cached(dispatcher: Any) -> Any:
    """The compiled function, which looks on disk before it compiles; as it was, if nothing tells
    what it depends on.
    """
    with suppress(NotIdentifiedError, OSError):
        dispatcher._cache = _Cache(dispatcher)
    return dispatcher


def fingerprint(function: Any) -> str:
    """What the machine code of a function depends on, as a hexadecimal number."""
    sha = hashlib.sha256()
    _Feeder(sha).feed(function)
    return sha.hexdigest()


def folder() -> Path:
    """Where the files are: in Numba's folder, if one is set, else in the user's cache."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / FOLDER
    if platform.system() == "Windows":
        home = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / FOLDER


class _Feeder:
    """Feeds a hash with all that a function depends on, each part once."""

    def __init__(self, sha: Any) -> None:
        self.sha = sha
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no number of an object is given again

    def feed(self, part: Any) -> None:
        if part is None or isinstance(part, (bool, int, float, complex, str, bytes)):
            self._words(type(part).__name__, repr(part))
        elif isinstance(part, np.generic):
            self._words("number", str(part.dtype), part.tobytes().hex())
        elif isinstance(part, np.ndarray):
            self._array(part)
        elif isinstance(part, (tuple, list, frozenset)):
            self._sequence(part)
        elif isinstance(part, Dispatcher):
            self._words("compiled", repr(sorted(part.targetoptions.items())))
            self.feed(part.py_func)
        elif isinstance(part, types.FunctionType):
            self._function(part)
        elif isinstance(part, _Intrinsic):
            self._words("intrinsic")
            self.feed(part._defn)
        elif isinstance(part, types.CodeType):
            self._code(part)
        else:
            self._known(part)

    def _words(self, *words: str) -> None:
        for word in words:
            self.sha.update(f"{len(word)} {word};".encode())

    def _array(self, part: np.ndarray[Any, Any]) -> None:
        if part.dtype.hasobject:
            raise NotIdentifiedError
        self._words("array", str(part.dtype), str(part.shape), str(part.flags.c_contiguous))
        self.sha.update(np.ascontiguousarray(part).tobytes())

    def _sequence(self, part: Any) -> None:
        kind = type(part)
        self._words("sequence", kind.__module__, kind.__qualname__, str(len(part)))
        if isinstance(part, frozenset):
            part = sorted(part, key=repr)
        for item in part:
            self.feed(item)

    def _function(self, part: types.FunctionType) -> None:
        if id(part) in self.seen:
            self._words("again", str(self.seen[id(part)]))
            return
        self.seen[id(part)] = len(self.seen)
        self.kept.append(part)
        if _module_known(part.__module__):
            self._words("function", part.__module__, part.__qualname__)
            return
        self._words("function", part.__name__)
        self.feed(part.__code__)
        self.feed(part.__defaults__)
        for cell in part.__closure__ or ():
            self._cell(cell)
        for name in sorted(set(_names(part.__code__))):
            if name in part.__globals__:
                self._words("global", name)
                self.feed(part.__globals__[name])

    def _cell(self, cell: Any) -> None:
        try:
            contents = cell.cell_contents
        except ValueError:  # a variable that has no value yet
            raise NotIdentifiedError from None
        self.feed(contents)

    def _code(self, code: types.CodeType) -> None:
        self.sha.update(code.co_code)
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self._words(repr(names))
        for constant in code.co_consts:
            self.feed(constant)

    def _known(self, part: Any) -> None:
        """A module, something that a known module defines, or the kind of a group."""
        if isinstance(part, type) and hasattr(part, "_fields"):
            self._words("group", part.__module__, part.__qualname__, repr(part._fields))
            return
        if isinstance(part, types.ModuleType):
            name = part.__name__
            module: Any = name
        else:
            name = getattr(part, "__qualname__", None) or getattr(part, "__name__", None) or ""
            module = getattr(part, "__module__", None)
            if isinstance(part, numba.types.Type):
                name = repr(part)
                module = "numba"
        if not name or not _module_known(module):
            raise NotIdentifiedError
        self._words("known", str(module), name)


def _module_known(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in KNOWN_MODULES


def _names(code: types.CodeType) -> Iterator[str]:
    """The globals that code may name, in itself and in functions within."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


class _Cache:
    """What Numba asks for machine code before it compiles, and hands it to afterwards."""

    def __init__(self, dispatcher: Any) -> None:
        self.name = fingerprint(dispatcher)
        self.folder = folder()

    @property
    def cache_path(self) -> str:
        return str(self.folder)

    def enable(self) -> None:
        """Numba asks for it; it is always on."""

    def disable(self) -> None:
        """Numba asks for it; it is always on."""

    def flush(self) -> None:
        """Numba asks for it, to compile anew; the old file is written over then."""

    def _path(self, signature: Any, codegen: Any) -> Path:
        parts = (VERSIONS, str(signature), codegen.magic_tuple())
        sha = hashlib.sha256(repr(parts).encode())
        return self.folder / f"{self.name[:24]}-{sha.hexdigest()[:24]}.bin"

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled function, or None."""
        target.refresh()
        path = self._path(signature, target.codegen())
        try:
            data = path.read_bytes()
            # a pickle, as in Numba's own cache: written by this user, never part of a saved run
            found = CompileResult._rebuild(target, *pickle.loads(data))
            os.utime(path)
        except FileNotFoundError:
            return None
        except Exception:  # a file that was cut off, or of another kind: it is written anew
            return None
        return found

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the function to disk, whole or not at all.

        Generators are known to those who call them by an object of this process only.
        """
        if isinstance(result.signature.return_type, numba.types.Generator):
            return
        if result.library.has_dynamic_globals or any(not one.can_cache for one in result.lifted):
            return
        try:
            data = serialize.dumps(result._reduce())
        except Exception:  # types of Numba that do not travel
            return
        with suppress(OSError):
            _write(self._path(signature, result.codegen), data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    _forget(path.parent)


def _forget(where: Path) -> None:
    """Delete the files that were not used for the longest time, where there are too many."""
    files = list(where.glob("*.bin"))
    if len(files) <= MOST_FILES:
        return

    def last_used(file: Path) -> float:
        try:
            return file.stat().st_mtime
        except OSError:  # another process deleted it
            return 0.0

    for file in sorted(files, key=last_used)[: len(files) - MOST_FILES // 2]:
        file.unlink(missing_ok=True)
