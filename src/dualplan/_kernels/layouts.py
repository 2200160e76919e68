"""Groups of arrays and functions that always travel together, as kernels take them.

A group is a NamedTuple, which costs nothing in compiled code; its type, in capitals, stands in the
signatures of kernels. Groups that only one module knows are defined there.
"""

from __future__ import annotations

from typing import NamedTuple

from dualplan._kernels.compiler import (
    ACT,
    ALLOWED,
    FLOATS,
    FORWARD,
    INT,
    INTS,
    RNG,
    STEP,
    VALUE,
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


RULE = group(Rule, function_type(ACT), INTS, FLOATS)
DYNAMICS = group(Dynamics, function_type(STEP), function_type(ALLOWED), INTS, FLOATS)
BOUNDS = group(Bounds, INTS, INTS)
PROCESS = group(Process, DYNAMICS, RULE, BOUNDS, INT)
TRAJECTORY = group(Trajectory, INTS, RNG, INTS)
CONTROL = group(Control, function_type(FORWARD), INT, function_type(VALUE), INTS, FLOATS, INT)
