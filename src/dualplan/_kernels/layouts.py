"""Groups of arrays and functions that always travel together, as kernels take them.

A group is a NamedTuple, which costs nothing in compiled code; its type, in capitals, stands in the
signatures of kernels. Groups that only one module knows are defined there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualplan._kernels.compiler import (
    ACT_SIGNATURE,
    ALLOWED_SIGNATURE,
    COUNTS_SIGNATURE,
    FLOATS,
    FORWARD_SIGNATURE,
    INT,
    INTS,
    LOSS_SIGNATURE,
    RNG_WORDS,
    STEP_SIGNATURE,
    VALUE_SIGNATURE,
    Kernel,
    function_type,
    group,
)
from dualplan.core.types import Floats, Ints, Words


class Rule(NamedTuple):
    """A policy: its function and the arrays that it reads."""

    act: Kernel
    ints: Ints
    floats: Floats


class Dynamics(NamedTuple):
    """What a simulation asks of a model."""

    step: Kernel
    allowed: Kernel
    ints: Ints
    floats: Floats


class Bounds(NamedTuple):
    """The box that states lie in."""

    lower: Ints
    upper: Ints


class Grid(NamedTuple):
    """A box whose states are numbered: the weights of the coordinates in a state's number."""

    lower: Ints
    upper: Ints
    strides: Ints


class Law(NamedTuple):
    """What methods that list next states ask of a model."""

    allowed: Kernel
    loss: Kernel
    forward: Kernel
    ints: Ints
    floats: Floats
    actions: int
    outcomes: int  # the most next states that `forward` can list


class Tallies(NamedTuple):
    """What a step adds up in expectation: losses and the model's counters."""

    loss: Kernel
    counts: Kernel
    ints: Ints
    floats: Floats


class Arrays(NamedTuple):
    """The data of a model of a kind that kernels know."""

    ints: Ints
    floats: Floats


class Sparse(NamedTuple):
    """A sparse matrix by rows: row i is the places ptr[i], ..., ptr[i + 1] − 1."""

    ptr: Ints
    columns: Ints
    values: Floats


class Process(NamedTuple):
    """A model under a policy."""

    model: Dynamics
    rule: Rule
    box: Bounds
    actions: int


class Trajectory(NamedTuple):
    """A state that moves on, its random numbers, and where (x, a, next x) a fault is described."""

    x: Ints
    rng: Words
    where: Ints


class Control(NamedTuple):
    """A function of states by which losses are shaped, and the law that its mean is taken over."""

    forward: Kernel
    outcomes: int  # the most that the law can list
    value: Kernel
    ints: Ints
    floats: Floats
    room: int  # numbers that the function needs to work in


RULE = group(Rule, function_type(ACT_SIGNATURE), INTS, FLOATS)
DYNAMICS = group(
    Dynamics, function_type(STEP_SIGNATURE), function_type(ALLOWED_SIGNATURE), INTS, FLOATS
)
BOUNDS = group(Bounds, INTS, INTS)
GRID = group(Grid, INTS, INTS, INTS)
LAW = group(
    Law,
    function_type(ALLOWED_SIGNATURE),
    function_type(LOSS_SIGNATURE),
    function_type(FORWARD_SIGNATURE),
    INTS,
    FLOATS,
    INT,
    INT,
)
TALLIES = group(
    Tallies, function_type(LOSS_SIGNATURE), function_type(COUNTS_SIGNATURE), INTS, FLOATS
)
ARRAYS = group(Arrays, INTS, FLOATS)
SPARSE = group(Sparse, INTS, INTS, FLOATS)
PROCESS = group(Process, DYNAMICS, RULE, BOUNDS, INT)
TRAJECTORY = group(Trajectory, INTS, RNG_WORDS, INTS)
CONTROL = group(
    Control,
    function_type(FORWARD_SIGNATURE),
    INT,
    function_type(VALUE_SIGNATURE),
    INTS,
    FLOATS,
    INT,
)


def sparse_rows(matrix: Any) -> Sparse:
    """A matrix of SciPy by rows, as kernels take it."""
    return Sparse(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
