"""Compilation of kernels at first use, the signatures that models and policies share, and how both
reach workers.

A kernel of a module travels to another process by its name, so that the worker has its own compiled
copy from its disk cache. A kernel that closes over functions of the user travels as the call that
made it (`made_once`): the name of the function that makes it, and the user's functions by value.
Numba gives a function that arrives a second time the copy that is there already, so the kernel too
is made and compiled once in each process, however many tasks bring it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Any, ParamSpec

import numba
import numpy as np
from numba import types
from numba.core import cgutils, event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.imputils import lower_cast, lower_constant
from numba.core.typeconv.castgraph import Conversion
from numba.experimental.function_type import FunctionModel
from numba.extending import models, register_model, typeof_impl
from numba.np.numpy_support import as_dtype

from dualplan._kernels import disk

INT = types.int64
FLOAT = types.float64
INTS = types.int64[::1]
FLOATS = types.float64[::1]
READ_ONLY_INTS = types.Array(
    types.int64, 1, "C", readonly=True
)  # a state, as functions of the user see it
INT_ROWS = types.int64[:, ::1]
FLOAT_ROWS = types.float64[:, ::1]
RNG_WORDS = types.uint64[::1]

# The compiled contract of a model; `ints` and `floats` are its data. See models/contract.py for the
# words.
ALLOWED_SIGNATURE = types.boolean(INTS, FLOATS, INTS, INT)
LOSS_SIGNATURE = FLOAT(INTS, FLOATS, INTS, INT)
FORWARD_SIGNATURE = INT(INTS, FLOATS, INTS, INT, INT_ROWS, FLOATS)
STEP_SIGNATURE = FLOAT(INTS, FLOATS, INTS, INT, RNG_WORDS, INTS, FLOATS)
PREDECESSORS_SIGNATURE = INT(INTS, FLOATS, INTS, INT_ROWS, INTS, FLOATS)
# The same list as changes: coordinates, their values and number for each pair; two copies of the
# state to work on.
CHANGES_SIGNATURE = INT(INTS, FLOATS, INTS, INT_ROWS, INT_ROWS, INTS, INTS, FLOATS, INTS, INTS)
COUNTS_SIGNATURE = types.void(INTS, FLOATS, INTS, INT, FLOATS)
# The compiled contract of a policy: writes one probability for each action.
ACT_SIGNATURE = types.void(INTS, FLOATS, INTS, FLOATS)
# The compiled contract of a function of states; its last argument is room to work in, and gets
# first the sum of the absolute terms that the value is a sum of, by which rounding is judged.
VALUE_SIGNATURE = FLOAT(INTS, FLOATS, INTS, FLOATS)
# The compiled contract of a feature set, whose last argument is room to work in: a pair drawn from
# one feature; what is known at a state; from there the features positive at a pair near it, and
# their values.
DRAW_SIGNATURE = INT(INTS, FLOATS, INT, RNG_WORDS, INTS, FLOATS)
ANCHOR_SIGNATURE = FLOAT(INTS, FLOATS, INTS, FLOATS)
NEAR_SIGNATURE = INT(INTS, FLOATS, INTS, INTS, INTS, INT, FLOAT, INT, INTS, FLOATS, FLOATS)
# The compiled contract of a set of ratios: those other than 0 at a pair, and their values.
ROW_SIGNATURE = INT(INTS, FLOATS, INTS, INT, INTS, FLOATS)


# What Numba raises for a function of the user that it has no code for.
COMPILATION_ERRORS = (NumbaError, TypeError, ValueError, NotImplementedError)


P = ParamSpec("P")


class Kernel:
    """A function compiled, with a fixed signature, when it is first called or handed to another
    kernel.
    """

    def __init__(
        self, function: Callable[..., Any], signature: Any, options: dict[str, Any]
    ) -> None:
        self.function = function
        self.signature = signature
        self.options = options
        self._compiled: Any = None
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.origin: tuple[Callable[..., Kernel], tuple[Any, ...]] | None = None

    @property
    def compiled(self) -> Any:
        if self._compiled is None:
            with global_compiler_lock:  # or each thread of a simulation would compile its own
                if self._compiled is None:
                    self._compiled = self._compile()
        return self._compiled

    def _compile(self) -> Any:
        if self.options.get("cache"):
            return numba.njit(self.signature, **self.options)(self.function)
        compiled = disk.cached(numba.njit(**self.options)(self.function))
        compiled.compile(self.signature)
        compiled.disable_compile()
        return compiled

    @property
    def address(self) -> Any:
        """The compiled function, for kernels that are made around it."""
        return Address(self.compiled)

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function; kernels among the arguments, or in groups among these, are
        passed as function values.
        """
        return self.compiled(*map(_with_function_values, args))

    def __reduce__(self) -> Any:
        """By the call that made it, or else (a plain string says so to pickle) by its name in its
        module.
        """
        if self.origin is None:
            return self.__name__
        return self.origin


def _with_function_values(argument: Any) -> Any:
    """The argument as Numba takes it: compiled functions in the place of kernels."""
    if isinstance(argument, Kernel):
        return argument.compiled
    if isinstance(argument, tuple):  # a group
        return type(argument)(*map(_with_function_values, argument))
    return argument


class Address:
    """A compiled function that another one, which closes over it, calls by its address.

    A closure over the compiled function itself would take its machine code in and optimise it once
    more, which for the functions of a feature set takes three seconds.
    """

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled  # alive as long as its address is in use
        self.signature = compiled.nopython_signatures[0]

    def number(self) -> int:
        """Where its machine code begins."""
        result = self.compiled.get_compile_result(self.signature)
        return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


class AddressType(types.FunctionType):
    """The type of an address: that of a function value, which is known when it is compiled."""

    def can_convert_to(self, _: Any, other: Any) -> Any:
        """To an argument that is a function of this signature."""
        if isinstance(other, types.FunctionType) and other.signature == self.signature:
            return Conversion.safe
        return None


register_model(AddressType)(FunctionModel)


@typeof_impl.register(Address)
def _type_of_address(value: Any, _: Any) -> Any:
    return AddressType(value.signature)


@lower_constant(AddressType)
def _constant_address(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    function = cgutils.create_struct_proxy(kind)(context, builder)
    function.jit_addr = context.add_dynamic_addr(builder, value.number(), info=str(kind))
    return function._getvalue()


@lower_cast(AddressType, types.FunctionType)
def _address_as_argument(context: Any, builder: Any, own: Any, wanted: Any, value: Any) -> Any:
    return value


def made_once(make: Callable[P, Kernel]) -> Callable[P, Kernel]:
    """For functions that make a kernel out of functions and numbers: one kernel for each list of
    arguments.
    """

    @lru_cache(maxsize=256)
    @wraps(make)
    def made(*args: Any) -> Kernel:
        kernel = make(*args)  # type: ignore[call-arg]
        kernel.origin = made, args
        return kernel

    return made  # type: ignore[return-value]


class Data:
    """Arrays that kernels read, which arrive writable in a worker.

    joblib maps large arrays into workers as read-only, which the signatures of kernels do not
    accept.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if isinstance(value, np.ndarray):
                writable = np.require(value, requirements="W")
            else:
                writable = value
            object.__setattr__(self, name, writable)  # the classes are frozen


_NUMBA_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
# Without Numba's counting of references, which costs two atomic operations for each array in each
# call (measured on a network's step: 2.0 µs with, 0.2 µs without). The price: such code must not
# allocate arrays, nor return any, alone or in groups, to code that counts.
_UNCOUNTED_OPTIONS: dict[str, Any] = {**_NUMBA_OPTIONS, "cache": True, "_nrt": False}


def kernel(signature: Any, *, allocates: bool = False) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel; say so if it allocates arrays."""
    if allocates:
        options = {**_NUMBA_OPTIONS, "cache": True}
    else:
        options = _UNCOUNTED_OPTIONS
    return lambda function: Kernel(function, signature, options)


def user_kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel that closes over other functions; its machine code is kept on disk by all
    that these refer to (`disk.py`).
    """
    return lambda function: Kernel(function, signature, _NUMBA_OPTIONS)


def user_function(function: Callable[..., Any], argument_types: tuple[Any, ...]) -> Any:
    """A function of the user, compiled for these types only, with its indices checked; kept on disk
    likewise.
    """
    compiled = disk.cached(numba.njit(nogil=True, boundscheck=True)(function))
    compiled.compile(argument_types)
    compiled.disable_compile()
    return compiled


def function_type(signature: Any) -> Any:
    """The type of a kernel as an argument of another kernel."""
    return types.FunctionType(signature)


class GroupType(types.NamedTuple):
    """The type of a group: a NamedTuple whose fields have the types that a signature says.

    Numba by itself gives each compiled function a type of its own, and so each model's functions in
    a NamedTuple; a group of them has one type, and a kernel's machine code serves all models.
    """


register_model(GroupType)(models.TupleModel)


def group(kind: type[Any], *fields: Any) -> GroupType:
    """The type of a NamedTuple as an argument of kernels, by the types of its fields."""
    declared = GroupType(fields, kind)

    @typeof_impl.register(kind)
    def type_of_group(value: Any, context: Any) -> Any:
        if _fits(value, declared):
            return declared
        return typeof_impl.dispatch(tuple)(value, context)  # which Numba then refuses by name

    return declared


def _fits(value: Any, field: Any) -> bool:
    """Whether a value may stand in a field of this type: an array of exactly this kind, a function
    of exactly this signature, a number that converts to it.
    """
    if isinstance(field, types.Array):
        return (
            isinstance(value, np.ndarray)
            and value.ndim == field.ndim
            and value.flags.carray
            and value.dtype == _DTYPES[field.dtype]
        )
    if isinstance(field, types.FunctionType):
        return isinstance(value, Dispatcher) and value.nopython_signatures[0] == field.signature
    if isinstance(field, GroupType):
        return isinstance(value, field.instance_class) and all(map(_fits, value, field))
    if isinstance(field, types.Float):
        return isinstance(value, (int, float, np.integer, np.floating))
    return isinstance(value, (int, np.integer))


_DTYPES = {kind: as_dtype(kind) for kind in (types.int64, types.float64, types.uint64)}


# Functions that kernels call, compiled for the types they are called with; `helper` must not
# allocate.
helper = numba.njit(**_UNCOUNTED_OPTIONS)
allocating_helper = numba.njit(cache=True, **_NUMBA_OPTIONS)
inlined_helper = numba.njit(
    forceinline=True, **_UNCOUNTED_OPTIONS
)  # where a call costs as much as what it does


class _Compilations(event.Listener):
    """Adds up the seconds of compilation, and tells when one begins.

    Of compilations within compilations the outermost counts.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.tell = tell
        self.seconds = 0.0
        self.depth = 0
        self.began = 0.0

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        if self.depth == 0:
            self.tell()
            self.began = time.monotonic()
        self.depth += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.monotonic() - self.began

    def spent(self) -> float:
        """Seconds so far, those of a compilation that goes on included."""
        if self.depth > 0:
            return self.seconds + time.monotonic() - self.began
        return self.seconds


@contextmanager
def compiling(tell: Callable[[], None] = lambda: None) -> Iterator[Callable[[], float]]:
    """How many seconds went into compilation since this was opened: time that the same work does
    not take again.

    `tell` is called when one begins.
    """
    listener = _Compilations(tell)
    with event.install_listener("numba:compile", listener):
        yield listener.spent


@helper
def copy(target, source):
    """target[:] = source, for arrays known not to overlap (Numba's own assignment may allocate, and
    takes two seconds to compile where kernels are not cached).
    """
    for i in range(source.size):
        target[i] = source[i]


@helper
def same(first, second):
    """Whether arrays of one length are equal (np.array_equal takes half a second to compile)."""
    differing = 0
    for i in range(first.size):
        differing += first[i] != second[i]
    return differing == 0
