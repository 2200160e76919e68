"""Deadlines for work whose loops lie deep inside other work.

A search gives each of its steps a time. What takes long in a step, a simulation, a linear program,
sweeps over a lattice, is many calls away and knows nothing of it. So the deadline is set around the
step, `with until(clock):`, and loops ask for it where they can stop:

- those that have something to hand over break off when `time_is_over()`;
- the others call `require_time()`, which raises `OutOfTimeError`. Tasks of threads (`threads.py`)
  and linear programs (`lp.py`) do so by themselves.

Deadlines can lie inside each other; the earliest counts. Without one nothing is ever over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dualplan.core.budgets import Clock
from dualplan.core.errors import OutOfTimeError

_deadline: ContextVar[tuple[Clock, ...]] = ContextVar("deadline", default=())


@contextmanager
def until(clock: Clock) -> Iterator[None]:
    """What runs inside must end when the clock's time is over."""
    token = _deadline.set((*_deadline.get(), clock))
    try:
        yield
    finally:
        _deadline.reset(token)


def deadline() -> Clock:
    """The clock that stops first; one without end where there is none."""
    return min(_deadline.get(), key=lambda clock: clock.left, default=Clock(math.inf))


def time_is_over() -> bool:
    """Whether work should hand over what it has."""
    return deadline().over


def require_time() -> None:
    """Raise if the time is over."""
    if time_is_over():
        raise OutOfTimeError
