"""Queueing networks as data.

A network is a list of customer classes. Each class waits in its own buffer, is served by one
server, may receive customers from outside, and sends a completed customer on to another class or
out. Options say what a step is:

`dynamics`    "uniformized": at most one event a step; "bernoulli": independent arrivals and
              completions each step
`time`        "discrete": rates are probabilities a step; "continuous": rates per unit of time, made
              into a chain by
              uniformization with rate Λ = Σ arrivals + Σ_servers (fastest service); losses are per
              unit of time
`full`        a customer who finds the next buffer full "block"s the server (he stays and the
              service is repeated), or
              is lost ("lose"); customers from outside are lost in either case, at the class's
              `penalty`
`phantom`     an empty class in service still feeds the next one: customers out of nothing, which is
              what the paper's
              text says of its experiment
`discipline`  "preemptive", or "nonpreemptive": a server finishes a customer before it chooses again
              and never idles
              beside a waiting one; the action then says whom it takes next, should it complete now
`decisions`   "joint": an action names a class for every server; "per-server": the pending event is
              part of the state
              and only the server whose event it is chooses, so that the number of actions is that
              of one server's classes. With one event a step both describe the same process.
`idling`      adds the choice to serve nobody
`policies`    orders of priority by name, which are heuristics of this network (`priorities.py`)

With `bernoulli` and `block`, completions count downstream first, then arrivals, so a departure
makes room for an admission in the same step. With `lose`, all movements are added up and the sum is
cut to the buffers. With `bernoulli` and `nonpreemptive`, a server that was idle starts the class
named first among those that customers came to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dualplan._kernels import network as kernels
from dualplan._kernels import network_backward as backward
from dualplan.core.checks import is_text
from dualplan.core.errors import InputError, unknown, within
from dualplan.core.types import Floats, Ints, Json
from dualplan.models.contract import (
    LARGEST_COORDINATE,
    UNBOUNDED,
    Box,
    Code,
    Measure,
    Model,
    heuristics_of,
)
from dualplan.models.priorities import ranks

MOST_NETWORK_ACTIONS = 2**16
MOST_NETWORK_OUTCOMES = 2**20
MOST_PENALISED_OUTCOMES = 2**12
MOST_NETWORK_PREDECESSORS = 2**22

NETWORK_OPTIONS: dict[str, tuple[Any, ...]] = {
    "time": ("discrete", "continuous"),
    "dynamics": ("uniformized", "bernoulli"),
    "full": ("block", "lose"),
    "phantom": (False, True),
    "discipline": ("preemptive", "nonpreemptive"),
    "decisions": ("joint", "per-server"),
    "idling": (False, True),
}


HARDLY_MEANT_LOAD = 10.0  # of a server, from which on units are doubted
LARGEST_RATE_OR_COST = 1e15  # of a class, in its units


@dataclass(frozen=True)
class QueueClass:
    """One class of customers; `route` maps names of classes to probabilities, the rest leaves the
    network.

    The holding cost of x customers is ``holding·x + quadratic·x² + excess·max(0, x − level)``.
    """

    name: str
    server: str
    service: float
    arrival: float = 0.0
    buffer: int | None = None
    holding: float = 1.0
    quadratic: float = 0.0
    excess: float = 0.0
    level: float = 0.0
    penalty: float = 0.0
    route: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"class {self.name!r}"
        if not (self.service > 0 and math.isfinite(self.service)):
            raise InputError(
                f"{where}: service must be a positive, finite rate, got {self.service!r}.",
                at=("service",),
            )
        self._require_moderate("service", where)
        for name in ("arrival", "holding", "quadratic", "excess", "level", "penalty"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise InputError(
                    f"{where}: {name} must be a finite number that is not negative, got {value!r}.",
                    at=(name,),
                )
            self._require_moderate(name, where)
        if self.buffer is not None:
            if isinstance(self.buffer, bool) or not 1 <= self.buffer <= LARGEST_COORDINATE:
                if self.buffer < 1:
                    what = "holds nobody"
                elif self.buffer > 1:
                    what = "is too large"
                else:
                    what = "is no number"
                raise InputError(
                    f"{where}: buffer {self.buffer!r} {what}; give 1 or more, or leave it out for "
                    "unbounded.",
                    at=("buffer",),
                )
            if self.buffer != int(self.buffer):
                raise InputError(
                    f"{where}: buffer {self.buffer!r} is no whole number of customers; round it.",
                    at=("buffer",),
                )
            object.__setattr__(self, "buffer", int(self.buffer))
        wrong = [t for t, p in self.route.items() if not 0 <= p <= 1]
        total = sum(self.route.values())
        if wrong or total > 1 + 1e-12:
            if wrong:
                got = f"{self.route[wrong[0]]!r} for {wrong[0]!r}"
            else:
                got = f"a sum of {total:.6g}"
            if total > 1:
                remedy = "lower them, and what is left leaves"
            else:
                remedy = "what is left leaves"
            raise InputError(
                f"{where}: the probabilities of its routes lie in [0, 1] and sum to at most 1, got "
                f"{got}; {remedy}.",
                at=("route", *wrong[:1]),
            )

    def _require_moderate(self, name: str, where: str) -> None:
        """Raise for numbers whose sums and squares would leave the range of floating point."""
        value = getattr(self, name)
        if value > LARGEST_RATE_OR_COST:
            raise InputError(
                f"{where}: {name} {value!r} is too large to calculate with; choose another unit "
                f"of time or money, so that it is at most {LARGEST_RATE_OR_COST:g}.",
                at=(name,),
            )


class QueueingNetwork(Model):
    """A network of queues and servers; see the module's text for the options."""

    why_no_predecessors = "independent events make too many; use dynamics='uniformized'"
    why_no_forward = "independent events have too many outcomes; use dynamics='uniformized'"

    def __init__(
        self,
        classes: Sequence[QueueClass],
        *,
        name: str = "network",
        time: str = "discrete",
        dynamics: str = "uniformized",
        full: str = "block",
        phantom: bool = False,
        discipline: str = "preemptive",
        decisions: str = "joint",
        idling: bool = False,
        policies: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.classes = tuple(classes)
        self.options = {
            "time": time,
            "dynamics": dynamics,
            "full": full,
            "phantom": phantom,
            "discipline": discipline,
            "decisions": decisions,
            "idling": idling,
        }
        _check_options(self.options)
        self.class_names = tuple(c.name for c in self.classes)
        self.servers = tuple(dict.fromkeys(c.server for c in self.classes))
        _check_classes(self.classes, self.class_names)
        self.server_of = np.array([self.servers.index(c.server) for c in self.classes], np.int64)
        self.routes = _routes(self.classes, self.class_names)
        self.written = _checked_policies(policies or {}, self.server_of_class)
        self.rate = self._uniformization_rate()
        self._set_actions()
        self._set_box()
        if any(c.penalty > 0 for c in self.classes) and dynamics == "bernoulli":
            outcomes = self._list_lengths()[0]
            if outcomes > MOST_PENALISED_OUTCOMES:
                raise InputError(
                    f"network {name!r}: penalties with independent events mean adding up "
                    f"{outcomes:.3g} outcomes at each step; use dynamics='uniformized'.",
                    at=("dynamics",),
                )

    # -- shape -------------------------------------------------------------------------------------

    @property
    def server_of_class(self) -> dict[str, str]:
        """The server of each class, by their names."""
        return {c.name: c.server for c in self.classes}

    @property
    def nonpreemptive(self) -> bool:
        """Whether a server finishes a customer before it chooses again."""
        return bool(self.options["discipline"] == "nonpreemptive")

    @property
    def per_server(self) -> bool:
        """Whether decisions are made per server at its own event."""
        return bool(self.options["decisions"] == "per-server")

    def _uniformization_rate(self) -> float:
        """Λ; checks that the probabilities of a discrete step fit into 1."""
        arrivals = sum(c.arrival for c in self.classes)
        total = arrivals + sum(self._peak(s) for s in range(len(self.servers)))
        if self.options["time"] == "continuous":
            return total
        if self.options["dynamics"] == "bernoulli":
            worst = max(max(c.arrival, c.service) for c in self.classes)
            if worst > 1:
                raise InputError(
                    f"network {self.name!r}: {worst} is no probability; use time='continuous' for "
                    "rates.",
                    at=self._largest_rate(),
                )
        elif total > 1 + 1e-12:
            raise InputError(
                f"network {self.name!r}: one event a step needs arrivals plus the fastest service "
                f"of each server to sum to at most 1, got {total:.6g}; use time='continuous' if "
                "these are rates.",
                at=self._largest_rate(),
            )
        return 1.0

    def _largest_rate(self) -> tuple[str | int, ...]:
        """Where the largest arrival or service rate is written."""
        rates = [
            (getattr(c, key), i, key)
            for i, c in enumerate(self.classes)
            for key in ("arrival", "service")
        ]
        _, i, key = max(rates, key=lambda rate: rate[0])
        return "class", i, key

    def _peak(self, s: int) -> float:
        return max(
            c.service for c, server in zip(self.classes, self.server_of, strict=True) if server == s
        )

    def _set_actions(self) -> None:
        if self.options["idling"]:
            idle = [-1]
        else:
            idle = []
        self.choices = [
            [*np.flatnonzero(self.server_of == s).tolist(), *idle] for s in range(len(self.servers))
        ]
        sizes = [len(c) for c in self.choices]
        if self.per_server:
            self.actions = tuple(f"choice {j + 1}" for j in range(max(sizes)))
            return
        if math.prod(sizes) > MOST_NETWORK_ACTIONS:
            raise InputError(
                f"network {self.name!r} has {math.prod(sizes):.3g} joint actions; use "
                "decisions='per-server'.",
                at=("decisions",),
            )
        labels = [""]
        for options in self.choices:
            served = ["-" if c < 0 else self.class_names[c] for c in options]
            labels = [f"{label}+{c}" if label else c for label in labels for c in served]
        self.actions = tuple(labels)

    def _set_box(self) -> None:
        coordinates = list(self.class_names)
        upper = [c.buffer for c in self.classes]
        if self.nonpreemptive:
            coordinates += [f"at {s}" for s in self.servers]
            upper += [len(c) for c in self.choices]
        if self.per_server:
            coordinates.append("event")
            upper.append(len(self.servers))
        self.coordinates = tuple(coordinates)
        self.box = Box.of([0] * len(upper), upper)
        self.start = self.box.lower.copy()

    # -- the compiled form -------------------------------------------------------------------------

    @cached_property
    def code(self) -> Code:
        """The network as arrays for the kernels in `_kernels/network.py`."""
        ints, floats = self._data()
        outcomes, predecessors = self._list_lengths()
        listed = outcomes <= MOST_NETWORK_OUTCOMES
        bernoulli = self.options["dynamics"] == "bernoulli"
        if bernoulli:
            forward = kernels.forward_bernoulli
        else:
            forward = kernels.forward
        if bernoulli:
            inverse = backward.predecessors_bernoulli
        else:
            inverse = backward.predecessors
        return Code(
            ints,
            floats,
            kernels.allowed,
            kernels.loss_bernoulli if bernoulli else kernels.loss,
            kernels.step_bernoulli if bernoulli else kernels.step,
            forward if listed else None,
            inverse if listed and predecessors <= MOST_NETWORK_PREDECESSORS else None,
            outcomes,
            predecessors,
            tuple(
                f"{what} {c}"
                for what in ("offered", "lost", "completed", "blocked")
                for c in self.class_names
            )
            + tuple(f"{what} {s}" for what in ("busy", "observed") for s in self.servers),
            (kernels.expected_counts_bernoulli if bernoulli else kernels.expected_counts)
            if listed
            else None,
            None if bernoulli else backward.changes,
            backward.MOST_CHANGED_COORDINATES,
        )

    def _data(self) -> tuple[Ints, Floats]:
        n = len(self.classes)
        if self.options["time"] == "continuous":
            scale = 1.0 / self.rate
        else:
            scale = 1.0
        sizes = [len(c) for c in self.choices]
        if self.per_server:
            strides = np.ones(len(sizes), np.int64)
        else:
            strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
        lam = np.array([c.arrival for c in self.classes]) * scale
        peak = np.array([self._peak(s) for s in range(len(self.servers))]) * scale
        int_fields = {
            "CHOICE_PTR": np.cumsum([0, *sizes]),
            "CHOICE": np.concatenate(self.choices),
            "STRIDE": strides,
            "SERVER": self.server_of,
            "BUFFER": np.array([UNBOUNDED if c.buffer is None else c.buffer for c in self.classes]),
            "ARRIVAL": np.flatnonzero(lam > 0),
            "ROUTE_PTR": np.cumsum([0, *(len(r) for r in self.routes)]),
            "ROUTE_DEST": np.array([d for r in self.routes for d, _ in r]),
            "ORDER": _downstream_first(self.routes),
        }
        float_fields = {
            "LAM": lam,
            "MU": np.array([c.service for c in self.classes]) * scale,
            "ROUTE_PROB": np.array([p for r in self.routes for _, p in r]),
            "LINEAR": np.array([c.holding for c in self.classes]),
            "QUADRATIC": np.array([c.quadratic for c in self.classes]),
            "EXCESS": np.array([c.excess for c in self.classes]),
            "LEVEL": np.array([c.level for c in self.classes]),
            "PENALTY": np.array([c.penalty for c in self.classes]),
            "PEAK": peak,
            "SCALE": np.array([self.rate]),
            "QUIET": np.array([max(1.0 - peak.sum(), lam.sum())]),
        }
        header = np.zeros(kernels.NETWORK_HEADER_SIZE, np.int64)
        switches: list[int | bool] = [
            n,
            len(self.servers),
            self.options["dynamics"] == "bernoulli",
            bool(self.options["phantom"]),
            self.options["full"] == "lose",
            self.nonpreemptive,
            self.per_server,
            len(self.actions),
            any(c.penalty > 0 for c in self.classes),
        ]
        header[: kernels.CHOICE_PTR] = switches
        ints = [int_fields[f] for f in kernels.INT_FIELDS]
        floats = [float_fields[f] for f in kernels.FLOAT_FIELDS]
        header[kernels.CHOICE_PTR : kernels.LAM] = kernels.NETWORK_HEADER_SIZE + np.cumsum(
            [0, *(len(f) for f in ints)]
        )
        header[kernels.LAM :] = np.cumsum([0, *(len(f) for f in floats)])
        return np.concatenate([header, *(np.asarray(f, np.int64) for f in ints)]), np.concatenate(
            floats
        )

    def _list_lengths(self) -> tuple[int, int]:
        """The longest possible lists of next states and of predecessors."""
        routes = [len(r) for r in self.routes]
        servers = len(self.servers)
        actions = len(self.actions)
        arrivals = sum(c.arrival > 0 for c in self.classes)
        most = [max(routes[c] for c in options if c >= 0) for options in self.choices]
        if self.nonpreemptive:
            histories = 4
        else:
            histories = 1
        if self.options["dynamics"] == "bernoulli":
            outcomes = 2**arrivals * math.prod(1 + m for m in most)
            sources = [
                (c.arrival > 0) + sum(d == i for r in self.routes for d, _ in r)
                for i, c in enumerate(self.classes)
            ]
            if self.nonpreemptive:
                histories = math.prod(1 + len(c) for c in self.choices)
            else:
                histories = 1
            longest = outcomes * actions * histories * math.prod(2 + k for k in sources)
            count = self.box.count
            return outcomes, longest if count is None else min(longest, outcomes * actions * count)
        if self.per_server:
            outcomes = (max(arrivals, *most) + 1) * (servers + 1)
            return outcomes, actions * (servers + 1 + histories * (2 * arrivals + 4 * sum(routes)))
        return arrivals + sum(most) + 1, actions * (
            1 + histories * (2 * arrivals + 4 * sum(routes))
        )

    # -- what is measured --------------------------------------------------------------------------

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Mean length and throughput of each class, use of each server, where buffers are bounded
        losses, and times of customers.

        By Little's law a customer of class i stays for L_i/X_i on average, with L_i the mean number
        of them and X_i how many leave the class per unit of time (steps, in discrete time). Of that
        he is served for (X_i + B_i)/(μ_i X_i), with B_i the rate of services that are repeated
        since the way is blocked; the rest is waiting. Nothing is said of the times where empty
        queues are served (`phantom`), since customers then come out of nothing.
        """
        n = len(self.classes)
        servers = len(self.servers)
        counts = 2 + self.box.dim
        width = counts + 4 * n + 2 * servers

        def columns(*positions: int, weight: float = 1.0) -> Floats:
            row = np.zeros(width)
            row[list(positions)] = weight
            return row

        steps = columns(0)
        result = [
            Measure(f"length {c}", columns(2 + i), steps) for i, c in enumerate(self.class_names)
        ]
        result += [
            Measure(f"throughput {c}", columns(counts + 2 * n + i, weight=self.rate), steps)
            for i, c in enumerate(self.class_names)
        ]
        busy = counts + 4 * n
        result += [
            Measure(f"utilisation {s}", columns(busy + i), columns(busy + servers + i))
            for i, s in enumerate(self.servers)
        ]
        if any(c.buffer is not None for c in self.classes):
            offered = range(counts, counts + n)
            lost = range(counts + n, counts + 2 * n)
            result += [
                Measure(f"loss rate {c}", columns(lost[i], weight=self.rate), steps)
                for i, c in enumerate(self.class_names)
            ]
            result.append(Measure("lost fraction", columns(*lost), columns(*offered)))
            if self.options["full"] == "block":
                result += [
                    Measure(
                        f"blocking rate {c}", columns(counts + 3 * n + i, weight=self.rate), steps
                    )
                    for i, c in enumerate(self.class_names)
                    if any(d >= 0 and self.classes[d].buffer is not None for d, _ in self.routes[i])
                ]
        if not self.options["phantom"]:
            left = [columns(counts + 2 * n + i, weight=self.rate) for i in range(n)]
            result += [
                Measure(f"sojourn {c}", columns(2 + i), left[i])
                for i, c in enumerate(self.class_names)
            ]
            result += [
                Measure(f"waiting {c}", columns(2 + i) - self._in_service(i, columns), left[i])
                for i, c in enumerate(self.class_names)
            ]
        return tuple(result)

    def _in_service(self, i: int, columns: Callable[..., Floats]) -> Floats:
        """The columns whose mean is the probability that a customer of class i is being served:
        services that end, blocked ones too, over the probability that one ends in a step.
        """
        n = len(self.classes)
        completed = 2 + self.box.dim + 2 * n + i
        per_step = self.classes[i].service
        if self.options["time"] == "continuous":
            per_step /= self.rate
        return columns(completed, completed + n, weight=1 / per_step)

    @property
    def event_law(self) -> Floats:
        """The law of the next pending event, with decisions per server."""
        peaks = np.array([self._peak(s) for s in range(len(self.servers))]) / self.rate
        return np.append(1.0 - peaks.sum(), peaks)

    @property
    def loss_parts(self) -> list[Callable[[Ints], Floats]] | None:
        """Holding costs; with penalties the loss is no sum over the classes."""
        if any(c.penalty > 0 for c in self.classes):
            return None

        def part(c: QueueClass) -> Callable[[Ints], Floats]:
            return lambda v: (
                c.holding * v + c.quadratic * v * v + c.excess * np.maximum(0.0, v - c.level)
            )

        return [part(c) for c in self.classes] + [lambda v: np.zeros(v.size)] * (
            self.box.dim - len(self.classes)
        )

    @property
    def laziness(self) -> float:
        """A probability with which nothing happens in a step, whatever the state and the action."""
        if self.per_server:
            return 0.0
        arrivals = [c.arrival / self.rate for c in self.classes]
        peaks = [self._peak(s) / self.rate for s in range(len(self.servers))]
        if self.options["dynamics"] == "bernoulli":
            return math.prod(1 - p for p in (*arrivals, *peaks))
        return max(0.0, 1 - sum(arrivals) - sum(peaks))

    @property
    def losses_unpunished(self) -> bool:
        """Whether customers can be lost at no cost, so that a policy can gain by losing them."""
        return any(c.buffer is not None and c.penalty == 0 for c in self.classes)

    def holding_cost(self, lengths: Sequence[int]) -> float:
        """The cost of the customers that are there, without penalties."""
        return float(
            sum(
                c.holding * x + c.quadratic * x * x + c.excess * max(0.0, x - c.level)
                for c, x in zip(self.classes, lengths, strict=True)
            )
        )

    @property
    def loss_bounds(self) -> tuple[float, float] | None:
        """From an empty network to full buffers, with every possible penalty in one step."""
        if any(
            c.buffer is None and max(c.holding, c.quadratic, c.excess) > 0 for c in self.classes
        ):
            return None
        top = self.holding_cost([0 if c.buffer is None else c.buffer for c in self.classes])
        if self.options["dynamics"] == "bernoulli":
            events = len(self.classes) + len(self.servers)
        else:
            events = 1
        return 0.0, top + self.rate * events * max(c.penalty for c in self.classes)

    @property
    def least_loss(self) -> float:
        """That of an empty network, whether or not buffers have an end."""
        return 0.0

    @cached_property
    def loads(self) -> dict[str, float]:
        """The offered load of each server, of which bounded buffers may turn a part away."""
        return self._loads([True] * len(self.classes))

    @cached_property
    def certain_loads(self) -> dict[str, float]:
        """The part of each server's load that no buffer can turn away: at 1 or more, queues grow
        without end.
        """
        return self._loads([c.buffer is None for c in self.classes])

    def _loads(self, among: Sequence[bool]) -> dict[str, float]:
        """Σ γ_j/μ_j over the classes of each server, with γ_j = λ_j + Σ_i γ_i·p_ij, all of it
        `among` these classes.
        """
        n = len(self.classes)
        matrix = np.zeros((n, n))
        for i, routes in enumerate(self.routes):
            for d, p in routes:
                if d >= 0 and among[i] and among[d]:
                    matrix[i, d] += p
        arrivals = [c.arrival if among[i] else 0.0 for i, c in enumerate(self.classes)]
        flow = np.linalg.solve(np.eye(n) - matrix.T, arrivals)
        work = flow / [c.service for c in self.classes]
        return {name: float(work[self.server_of == s].sum()) for s, name in enumerate(self.servers)}

    @property
    def notes_on_loads(self) -> list[str]:
        """A sentence on a load that is hardly meant, though bounded buffers make it possible."""
        server, load = max(self.loads.items(), key=lambda item: item[1])
        if load < HARDLY_MEANT_LOAD:
            return []
        return [
            f"server {server!r} is offered {load:,.4g} times what it can serve, and nearly all of "
            "it is turned away: look at the units of its arrival and service rates."
        ]

    def require_stable(self) -> None:
        """Raise if no policy keeps the queues finite."""
        server, load = max(self.certain_loads.items(), key=lambda item: item[1])
        if load < 1:
            return
        mine = [i for i, c in enumerate(self.classes) if c.server == server and c.buffer is None]
        names = ", ".join(repr(self.class_names[i]) for i in mine)
        raise InputError(
            f"server {server!r} has a load of {load:.4g} from queues without end ({names}), and no "
            "policy keeps them finite; bound a buffer, lower arrivals, speed up the service, or go "
            "on all the same with --overloaded (in a plan: overloaded = true).",
            at=(
                "class",
                max(mine, key=lambda i: self.classes[i].arrival / self.classes[i].service),
                "arrival",
            ),
        )

    @property
    def recipe(self) -> Json:
        """The network as data, in the words of a TOML file."""
        return {
            "network": {
                "name": self.name,
                **self.options,
                **self._policies_data,
                "class": [_as_data(c) for c in self.classes],
            }
        }

    @property
    def _policies_data(self) -> Json:
        if self.written:
            return {"policies": dict(self.written)}
        return {}

    def describe(self) -> Json:
        """Everything that defines the network."""
        return {
            **super().describe(),
            "options": dict(self.options),
            **self._policies_data,
            "classes": [_as_data(c) for c in self.classes],
            "loads": self.loads,
        }


def _checked_policies(policies: Mapping[str, str], servers: Mapping[str, str]) -> dict[str, str]:
    """Policies that are written down, each an order of priorities with a name of its own."""
    for name, text in policies.items():
        with within("policies", name):
            if name in heuristics_of(QueueingNetwork):
                raise InputError(
                    f"policy {name!r}: networks have a heuristic of that name; choose another one."
                )
            if not is_text(text):
                raise InputError(
                    f"policy {name!r} must be an order of classes in quotes, such as "
                    f"{' > '.join(list(servers)[:2])!r}, got {text!r}."
                )
            ranks(text, servers)  # raises, and says what is wrong
    return dict(policies)


def _as_data(c: QueueClass) -> Json:
    return {**asdict(c), "route": dict(c.route)}


def _check_options(options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        if value not in NETWORK_OPTIONS[key]:
            raise unknown(key, str(value), [str(v) for v in NETWORK_OPTIONS[key]], at=(key,))
    bernoulli = options["dynamics"] == "bernoulli"
    nonpreemptive = options["discipline"] == "nonpreemptive"
    if bernoulli and options["time"] == "continuous":
        raise InputError(
            "time='continuous' has one event at a time; use dynamics='uniformized'.",
            at=("dynamics",),
        )
    if bernoulli and options["decisions"] == "per-server":
        raise InputError(
            "decisions='per-server' needs one event a step; use dynamics='uniformized'.",
            at=("dynamics",),
        )
    if nonpreemptive and options["phantom"]:
        raise InputError(
            "phantom serves empty queues, which discipline='nonpreemptive' never does; leave one "
            "of them out.",
            at=("phantom",),
        )
    if nonpreemptive and options["idling"]:
        raise InputError("idling needs discipline='preemptive'.", at=("idling",))


def _check_classes(classes: Sequence[QueueClass], names: Sequence[str]) -> None:
    if not classes:
        raise InputError("a network needs at least one class.")
    if len(set(names)) < len(names):
        second = next(i for i, name in enumerate(names) if name in names[:i])
        raise InputError(
            f"two classes share the name {names[second]!r}; give one of them another.",
            at=("class", second, "name"),
        )
    if not any(c.arrival > 0 for c in classes):
        raise InputError(
            "nobody ever arrives: give at least one class an arrival rate.", at=("class", 0)
        )


def _routes(classes: Sequence[QueueClass], names: Sequence[str]) -> list[list[tuple[int, float]]]:
    """For each class its (destination, probability) list; -1 is out."""
    routes = []
    for i, c in enumerate(classes):
        for target in c.route:
            if target not in names:
                error = unknown("class", target, names)
                raise InputError(
                    f"class {c.name!r} is routed to a class that is missing: {error}",
                    at=("class", i, "route", target),
                )
        listed = [(names.index(target), float(p)) for target, p in c.route.items() if p > 0]
        out = 1.0 - sum(p for _, p in listed)
        routes.append([*listed, (-1, out)] if out > 1e-12 else listed)
    _check_way_out(classes, routes)
    return routes


def _check_way_out(
    classes: Sequence[QueueClass], routes: Sequence[Sequence[tuple[int, float]]]
) -> None:
    leaves = {i for i, r in enumerate(routes) if any(d < 0 for d, _ in r)}
    while more := {
        i for i, r in enumerate(routes) if i not in leaves and any(d in leaves for d, _ in r)
    }:
        leaves |= more
    for i, c in enumerate(classes):
        if i not in leaves:
            raise InputError(
                f"customers of class {c.name!r} can never leave: no route from it leads out; let a "
                "class on their way send some of them out, by probabilities that sum to less than "
                "1.",
                at=("class", i, "route"),
            )


def _downstream_first(routes: Sequence[Sequence[tuple[int, float]]]) -> Ints:
    """The classes in an order in which destinations come before sources, as far as cycles allow."""
    order: list[int] = []
    left = list(range(len(routes)))
    while left:
        ready = [i for i in left if all(d == i or d not in left for d, _ in routes[i])]
        order.append(ready[0] if ready else left[-1])
        left.remove(order[-1])
    return np.array(order, np.int64)
