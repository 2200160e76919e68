"""Named instances: functions or classes that make models.

`INSTANCES` is the list that the command line shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan.core.checks import require_counts, require_positive
from dualplan.core.errors import InputError, unknown
from dualplan.core.lp import minimise
from dualplan.core.types import Floats
from dualplan.models.contract import Model
from dualplan.models.instances.admission import AdmissionControl
from dualplan.models.instances.inventory import LostSales
from dualplan.models.instances.items import MultiItem
from dualplan.models.instances.parallel import ParallelServers
from dualplan.models.instances.sysadmin import SysAdmin
from dualplan.models.queueing import QueueClass, QueueingNetwork
from dualplan.models.tabular import TabularModel

Buffers = Sequence[int | None] | int | None


def four_queue(
    buffers: Buffers = (38, 25, 25, 38),
    arrivals: Sequence[float] = (0.08, 0.08),
    services: Sequence[float] = (0.12, 0.12, 0.28, 0.28),
    penalty: float = 0.0,
    **options: Any,
) -> QueueingNetwork:
    """The Rybko–Stolyar network of the paper: queues 1→2→out and 3→4→out, servers {1, 4} and {2,
    3}.

    The paper's text to the letter is dynamics=bernoulli, full=lose, phantom=true.
    """
    sizes = _spread("buffers", buffers, 4)
    mu = _numbers("services", services, 4)
    lam = _numbers("arrivals", arrivals, 2)
    classes = [
        QueueClass("1", "S1", mu[0], lam[0], sizes[0], penalty=penalty, route={"2": 1.0}),
        QueueClass("2", "S2", mu[1], 0.0, sizes[1], penalty=penalty),
        QueueClass("3", "S2", mu[2], lam[1], sizes[2], penalty=penalty, route={"4": 1.0}),
        QueueClass("4", "S1", mu[3], 0.0, sizes[3], penalty=penalty),
    ]
    return QueueingNetwork(classes, name="four-queue", **options)


CRISS_CROSS_LOADS = {"light": 0.3, "medium": 0.6, "heavy": 0.9}


def criss_cross(
    load: str = "light",
    balanced: bool = False,
    buffers: Buffers = None,
    penalty: float = 0.0,
    **options: Any,
) -> QueueingNetwork:
    """The criss-cross network (Dai & Gluzman): classes 1 and 2 at server 1, class 1 goes on to
    class 3 at server 2.

    The second server's rate is 1.5, balanced 1. Server 1 has load λ and server 2 λ/1.5 (balanced:
    λ).
    """
    if load not in CRISS_CROSS_LOADS:
        raise unknown("load", str(load), CRISS_CROSS_LOADS)
    rate = CRISS_CROSS_LOADS[load]
    sizes = _spread("buffers", buffers, 3)
    classes = [
        QueueClass("1", "S1", 2.0, rate, sizes[0], penalty=penalty, route={"3": 1.0}),
        QueueClass("2", "S1", 2.0, rate, sizes[1], penalty=penalty),
        QueueClass("3", "S2", 1.0 if balanced else 1.5, 0.0, sizes[2], penalty=penalty),
    ]
    return QueueingNetwork(classes, name="criss-cross", **{"time": "continuous", **options})


def six_class(
    stations: int = 2,
    buffers: Buffers = None,
    penalty: float = 0.0,
    arrival: float = 9 / 140,
    **options: Any,
) -> QueueingNetwork:
    """The re-entrant family (Bertsimas, Nasrabadi & Paschalidis 2015; Dai & Gluzman): L stations of
    three classes.

    The first route passes all stations twice (1→4→…→2→5→…→out), the second once (3→6→…→out). Mean
    service times are 8, 2, 4 at odd stations and 6, 7, 1 at even ones, so each station has load
    0.9.
    """
    require_counts(stations=stations)
    sizes = _spread("buffers", buffers, 3 * stations)
    first = [3 * s + 1 for s in range(stations)] + [3 * s + 2 for s in range(stations)]
    second = [3 * s + 3 for s in range(stations)]
    following = {a: b for route in (first, second) for a, b in pairwise(route)}
    means = (8.0, 2.0, 4.0), (6.0, 7.0, 1.0)
    classes = [
        QueueClass(
            str(c),
            f"S{(c - 1) // 3 + 1}",
            1.0 / means[(c - 1) // 3 % 2][(c - 1) % 3],
            arrival if c in (1, 3) else 0.0,
            sizes[c - 1],
            penalty=penalty,
            route={str(following[c]): 1.0} if c in following else {},
        )
        for c in range(1, 3 * stations + 1)
    ]
    return QueueingNetwork(classes, name="six-class", **{"time": "continuous", **options})


def eight_queue(
    buffers: Buffers = None,
    arrivals: Sequence[float] = (0.1, 0.1),
    services: Sequence[float] = (
        4 / 7.5,
        2 / 7.5,
        3 / 7.5,
        3.1 / 7.5,
        3 / 7.5,
        2.2 / 7.5,
        3 / 7.5,
        2.5 / 7.5,
    ),
    penalty: float = 0.0,
    **options: Any,
) -> QueueingNetwork:
    """Eight queues, servers {1, 3, 8}, {2, 6}, {4, 5, 7}, routes 1→2→3 and 4→5→6→7→8 (Banijamali et
    al. 2019).
    """
    sizes = _spread("buffers", buffers, 8)
    mu = _numbers("services", services, 8)
    lam = _numbers("arrivals", arrivals, 2)
    servers = ["S1", "S2", "S1", "S3", "S3", "S2", "S3", "S1"]
    following = {1: 2, 2: 3, 4: 5, 5: 6, 6: 7, 7: 8}
    classes = [
        QueueClass(
            str(c),
            servers[c - 1],
            mu[c - 1],
            {1: lam[0], 4: lam[1]}.get(c, 0.0),
            sizes[c - 1],
            penalty=penalty,
            route={str(following[c]): 1.0} if c in following else {},
        )
        for c in range(1, 9)
    ]
    return QueueingNetwork(classes, name="eight-queue", **{"time": "continuous", **options})


def tandem(
    queues: int = 100,
    servers: int = 50,
    arrival: float = 0.5,
    service: float = 1.0,
    buffers: Buffers = None,
    **options: Any,
) -> QueueingNetwork:
    """A line of queues, passed by every customer; queue i belongs to server i mod `servers`."""
    if not 1 <= servers <= queues:
        raise InputError(f"tandem needs 1 <= servers <= queues, got {servers} and {queues}.")
    visits = -(-queues // servers)
    sizes = _spread("buffers", buffers, queues)
    classes = [
        QueueClass(
            str(i + 1),
            f"S{i % servers + 1}",
            visits * service,
            arrival if i == 0 else 0.0,
            sizes[i],
            route={str(i + 2): 1.0} if i + 1 < queues else {},
        )
        for i in range(queues)
    ]
    return QueueingNetwork(
        classes, name="tandem", **{"time": "continuous", "decisions": "per-server", **options}
    )


def reentrant(
    classes: int = 30,
    stations: int = 10,
    load: float = 0.8,
    buffers: Buffers = None,
    penalty: float = 0.0,
    **options: Any,
) -> QueueingNetwork:
    """A re-entrant line (Kumar 1993): customers arrive at rate 1 and pass the stations in turn,
    again and again.

    Class k is served by station k mod `stations`; services of one station take equally long, so
    that each station has the `load`. Fluctuation smoothing and buffer priorities (LBFS, FBFS) were
    studied on such lines.
    """
    if not 1 <= stations <= classes:
        raise InputError(f"reentrant needs 1 <= stations <= classes, got {stations} and {classes}.")
    require_positive(load=load)
    sizes = _spread("buffers", buffers, classes)
    visits = [len(range(s, classes, stations)) for s in range(stations)]
    made = [
        QueueClass(
            str(k + 1),
            f"S{k % stations + 1}",
            visits[k % stations] / load,
            1.0 if k == 0 else 0.0,
            sizes[k],
            penalty=penalty,
            route={str(k + 2): 1.0} if k + 1 < classes else {},
        )
        for k in range(classes)
    ]
    return QueueingNetwork(
        made, name="reentrant", **{"time": "continuous", "decisions": "per-server", **options}
    )


PARALLEL_SYSTEMS: dict[str, tuple[Sequence[float], Sequence[Sequence[float]]]] = {
    "N": ((1.0, 1.0), ((1.0, 0.0), (1.0, 2.0))),
    "W": ((0.6, 0.6, 0.6), ((1.0, 1.0, 0.0), (0.0, 1.0, 1.0))),
    "M": ((0.9, 0.9), ((1.0, 0.0), (1.0, 1.0), (0.0, 1.0))),
}


def parallel_servers(
    system: str = "N",
    load: float = 0.9,
    holding: Sequence[float] | None = None,
    buffers: int | None = None,
) -> ParallelServers:
    """Parallel servers of named systems: N (Harrison 1998, Bell & Williams 2001), W or M.

    N: a server for class 1 alone, and one for both classes; W: three classes, two servers with one
    class in common; M: two classes with a server each, and one for both. Arrivals are scaled by
    `load`, 1 being what the rates at hand can just serve.
    """
    if system not in PARALLEL_SYSTEMS:
        raise unknown("system", str(system), PARALLEL_SYSTEMS)
    require_positive(load=load)
    arrivals, services = PARALLEL_SYSTEMS[system]
    scale = load / _heaviest(np.array(arrivals), np.array(services))
    return ParallelServers(
        arrivals=[scale * v for v in arrivals],
        services=services,
        holding=holding,
        buffers=buffers,
        name="parallel-servers",
    )


def _heaviest(arrivals: Floats, services: Floats) -> float:
    """The least share of time at which all servers together can serve the arrivals: the static
    planning problem.
    """
    servers, classes = services.shape
    size = servers * classes
    flow = np.zeros((classes, size + 1))
    work = np.zeros((servers, size + 1))
    for s in range(servers):
        for k in range(classes):
            flow[k, s * classes + k] = -services[s, k]
            work[s, s * classes + k] = 1.0
    work[:, -1] = -1.0
    right = np.append(-arrivals, np.zeros(servers))
    found = minimise(
        np.append(np.zeros(size), 1.0),
        np.vstack([flow, work]),
        (np.full(right.size, -np.inf), right),
        (np.zeros(size + 1), np.full(size + 1, np.inf)),
    )
    return float(found.x[-1])


def forest(ages: int = 3, old: float = 4.0, cut: float = 2.0, fire: float = 0.1) -> TabularModel:
    """Wait or cut: a forest of growing age that may burn (pymdptoolbox's `forest`), its rewards as
    negative losses.
    """
    if ages < 2 or not 0 <= fire <= 1:
        raise InputError("forest needs ages >= 2 and 0 <= fire <= 1.")
    wait = np.zeros((ages, ages))
    chop = np.zeros((ages, ages))
    wait[:, 0] = fire
    for age in range(ages):
        wait[age, min(age + 1, ages - 1)] += 1 - fire
    chop[:, 0] = 1.0
    rewards = np.zeros((ages, 2))
    rewards[1:, 1] = 1.0
    rewards[-1] = old, cut
    return TabularModel.from_rewards([wait, chop], rewards, actions=("wait", "cut"), name="forest")


def garnet(states: int = 100, actions: int = 4, branching: int = 5, seed: int = 0) -> TabularModel:
    """A random model: every pair leads to `branching` random states with random probabilities,
    losses in [0, 1].
    """
    if not 1 <= branching <= states or actions < 1:
        raise InputError("garnet needs 1 <= branching <= states and actions >= 1.")
    rng = np.random.default_rng(seed)
    rows = []
    columns = []
    values = []
    for pair in range(states * actions):
        cuts = np.sort(rng.random(branching - 1))
        rows += [pair] * branching
        columns += rng.choice(states, branching, replace=False).tolist()
        values += np.diff(cuts, prepend=0.0, append=1.0).tolist()
    table = sp.csr_array((values, (rows, columns)), shape=(states * actions, states))
    return TabularModel(table, rng.random((states, actions)), name="garnet")


INSTANCES: dict[str, Callable[..., Model]] = {
    "four-queue": four_queue,
    "criss-cross": criss_cross,
    "six-class": six_class,
    "eight-queue": eight_queue,
    "tandem": tandem,
    "reentrant": reentrant,
    "parallel-servers": parallel_servers,
    "multi-item": MultiItem,
    "lost-sales": LostSales,
    "admission": AdmissionControl,
    "forest": forest,
    "garnet": garnet,
    "sysadmin": SysAdmin,
}


def _spread(name: str, values: Buffers, count: int) -> list[int | None]:
    """One buffer for all classes, or one for each."""
    if values is None or isinstance(values, (int, float)):
        values = [values] * count
    if len(values) != count:
        raise InputError(f"{name} needs one number or {count} of them, got {len(values)}.")
    return [None if v is None or v == np.inf else v for v in values]


def _numbers(name: str, values: Sequence[float], count: int) -> list[float]:
    if not isinstance(values, Sequence) or len(values) != count:
        raise InputError(f"{name} needs {count} numbers, got {values!r}.")
    return [float(v) for v in values]
