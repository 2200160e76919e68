"""Threads of one process: compiled loops release the interpreter, so they run side by side.

Linear algebra has threads of its own, as many as there are cores. Beside other work on these
cores they wait for one another: a product of matrices that takes .04 s on one thread was seen to
take .5 s on two. So a search keeps it to one, and what it computes does not depend on the cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import cache
from typing import TypeVar

import joblib
from threadpoolctl import ThreadpoolController

from dualplan.core.checks import require_threads
from dualplan.core.deadlines import deadline
from dualplan.core.errors import OutOfTimeError

T = TypeVar("T")


@cache
def cores() -> int:
    """Threads to run unless a number is given: the cores that this process may use, or
    OMP_NUM_THREADS if it is less.

    joblib, Dask and Ray set that variable in their workers, so that all of them together do not
    exceed the machine.
    """
    usable = int(joblib.cpu_count())
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal():
        return max(1, min(usable, int(told)))
    return usable


@cache
def _linear_algebra() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def single_threaded_algebra() -> Iterator[None]:
    """Linear algebra on one thread."""
    with _linear_algebra().limit(limits=1, user_api="blas"):
        yield


def in_parallel(
    tasks: Iterable[Callable[[], T]], threads: int | None, *, stoppable: bool = True
) -> list[T]:
    """Run tasks on threads; results in the order of the tasks.

    No task begins after a deadline (`deadlines.py`), and each finds it set on its own thread,
    unless they are not `stoppable`.
    """
    require_threads(threads)
    workers = threads or cores()
    clock = deadline()

    def run(task: Callable[[], T]) -> T:
        if stoppable and clock.over:
            raise OutOfTimeError
        return task()

    if workers == 1:
        return [run(task) for task in tasks]
    listed = list(tasks)
    contexts = [copy_context() if stoppable else Context() for _ in listed]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda context, task: context.run(run, task), contexts, listed))
