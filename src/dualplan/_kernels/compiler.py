"""Compilation of kernels at first use, and the signatures that models and policies share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import types

INT = types.int64
FLOAT = types.float64
INTS = types.int64[::1]
FLOATS = types.float64[::1]
READ_ONLY = types.Array(types.int64, 1, "C", readonly=True)  # a state, as functions of the user see it
STATES = types.int64[:, ::1]
ROWS = types.float64[:, ::1]
RNG = types.uint64[::1]

# The compiled contract of a model; `ints` and `floats` are its data. See models/contract.py for the words.
ALLOWED = types.boolean(INTS, FLOATS, INTS, INT)
LOSS = FLOAT(INTS, FLOATS, INTS, INT)
FORWARD = INT(INTS, FLOATS, INTS, INT, STATES, FLOATS)
STEP = FLOAT(INTS, FLOATS, INTS, INT, RNG, INTS, FLOATS)
PREDECESSORS = INT(INTS, FLOATS, INTS, STATES, INTS, FLOATS)
COUNTS = types.void(INTS, FLOATS, INTS, INT, FLOATS)
# The compiled contract of a policy: writes one probability for each action.
ACT = types.void(INTS, FLOATS, INTS, FLOATS)
# The compiled contract of a feature set: the features positive at a pair and their values; a pair of one feature.
ROW = INT(INTS, FLOATS, INTS, INT, INTS, FLOATS)
DRAW = INT(INTS, FLOATS, INT, RNG, INTS)


class Kernel:
    """A function compiled, with a fixed signature, when it is first called or handed to another kernel."""

    def __init__(self, function: Callable[..., Any], signature: Any, options: dict[str, Any]) -> None:
        self.function = function
        self.signature = signature
        self.options = options
        self._compiled: Any = None
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    @property
    def compiled(self) -> Any:
        if self._compiled is None:
            self._compiled = numba.njit(self.signature, **self.options)(self.function)
        return self._compiled

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function; kernels among the arguments are passed as function values."""
        return self.compiled(*(arg.compiled if isinstance(arg, Kernel) else arg for arg in args))


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
# Without Numba's counting of references, which costs two atomic operations for each array in each call (measured on
# a network's step: 2.0 µs with, 0.2 µs without). The price: such code must not allocate arrays.
_LEAN: dict[str, Any] = {**_OPTIONS, "cache": True, "_nrt": False}


def kernel(signature: Any, *, allocates: bool = False) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel; say so if it allocates arrays."""
    options = {**_OPTIONS, "cache": True} if allocates else _LEAN
    return lambda function: Kernel(function, signature, options)


def user_kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel that closes over functions of the user; its machine code is never cached.

    Numba does not see changes in what such functions refer to, so a cached copy could answer for an older model.
    """
    return lambda function: Kernel(function, signature, _OPTIONS)


def function_type(signature: Any) -> Any:
    """The type of a kernel as an argument of another kernel."""
    return types.FunctionType(signature)


# Functions that kernels call, compiled for the types they are called with; `helper` must not allocate.
helper = numba.njit(**_LEAN)
allocating_helper = numba.njit(cache=True, **_OPTIONS)
inlined_helper = numba.njit(forceinline=True, **_LEAN)  # where a call costs as much as what it does


@helper
def copy(target, source):
    """target[:] = source, for arrays known not to overlap (Numba's own assignment may allocate)."""
    for i in range(source.size):
        target[i] = source[i]
