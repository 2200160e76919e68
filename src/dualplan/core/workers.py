"""Independent tasks, on this machine or on a cluster.

joblib decides where tasks run, and the code that calls `in_order` does not change with the place:

    with joblib.parallel_config(n_jobs=4): ...        # four processes of this machine

    client = distributed.Client("tcp://scheduler:8786")
    with joblib.parallel_config(backend="dask"): ...  # all workers of a Dask cluster

    ray.util.joblib.register_ray()
    with joblib.parallel_config(backend="ray"): ...   # all workers of a Ray cluster

Problems, solutions and functions travel by value, the library's own compiled code by name. A task
must draw all its randomness from a seed that it is given; then results depend neither on where it
runs nor on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import joblib

from dualplan.core.checks import is_whole
from dualplan.core.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def check_workers(workers: int | None) -> None:
    """Raise unless this is a number of workers."""
    if workers is not None and (not is_whole(workers) or workers == 0):
        raise InputError(
            f"the number of workers must be whole, or -1 for one a core, got {workers!r}."
        )


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> list[Result]:
    """function(item) for every item, in the order of the items.

    `workers` is the number of workers (−1: one for each core); None is what the surrounding
    `joblib.parallel_config` says, and without one the tasks run one after another in this process.
    For a cluster, put the call into

        with distributed.Client("tcp://scheduler:8786"), joblib.parallel_config(backend="dask"):
            results = in_order(function, items)

    and likewise for Ray, after `ray.util.joblib.register_ray()`, with backend="ray". What large
    arrays a worker is given it shares with the others until it writes to them.
    """
    check_workers(workers)
    parallel = joblib.Parallel(n_jobs=workers, mmap_mode="c")
    return list(parallel(joblib.delayed(function)(item) for item in items))
