"""Eight queues and three servers: Banijamali, Abbasi-Yadkori, Ghavamzadeh & Vlassis (2019),
*Optimizing over a restricted policy class in MDPs*. Their figures are not reproduced.

The text gives arrivals of .1 at queues 1 and 4 and services μ = (4, 2, 3, 3.1, 3, 2.2, 3, 2.5)/7.5,
one event a step. As probabilities these sum to 1.44, so a reading is needed:

by rates        one event a step, in proportion to the rates: the library's `eight-queue`;
in turn         an arrival at 4 with probability .1, or else one at 1 with .1, or else all three
                servers at once, each
                of them done with its own μ.

The rule has readings too. In the text, server i serves the longest of its n > 1 waiting queues with
probability p_i and each other with (1 − p_i)/(n − 1), and a queue that waits alone with probability
p_i. The reading that comes nearest to the figures prefers the *shortest* queue and always serves
one that waits alone, against the text in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualplan.cli.experiments.measure import SEARCH_ROW, searched, simulated
from dualplan.cli.experiments.rows import AGREES_VERDICT, Figure, Outcome, Progress, Row, verdict
from dualplan.models import instances as zoo
from dualplan.models.contract import Model
from dualplan.models.event import EventModel
from dualplan.policies.contract import Policy
from dualplan.policies.heuristics.network import soft_longer
from dualplan.policies.tables import FunctionPolicy

BASE_POLICY_COSTS = {
    (0.8, 0.5, 0.5): Figure(21.78, 2, 0.16, reproducible=False),
    (0.5, 0.8, 0.5): Figure(22.47, 2, 0.08, reproducible=False),
    (0.5, 0.5, 0.8): Figure(22.98, 2, 0.12, reproducible=False),
}
PUBLISHED_MIXTURES = {
    "dual mixture of the three": Figure(20.59, 2),
    "primal mixture of the three": Figure(19.14, 2),
}
# in this order
ARRIVAL_RATE = 0.1
ENTRY_QUEUES = (3, 0)
EIGHT_QUEUE_STEPS = 20_000_000  # of each simulation, twice as many as published
EIGHT_QUEUE_TIME = "60s"


@dataclass(frozen=True)
class Reading:
    """A reading of the text: how events come about, and the two ways in which the rule may depart
    from it.
    """

    name: str
    in_turn: bool
    shortest: bool = False
    alone: bool = False

    def made(self) -> tuple[Model, list[Policy]]:
        """The network and the base policies under this reading."""
        if self.in_turn:
            model = in_turn()
            return model, [
                soft_rule(model, p, self.shortest, self.alone) for p in BASE_POLICY_COSTS
            ]
        network = zoo.eight_queue()
        return network, [soft_longer(network, p) for p in BASE_POLICY_COSTS]


READINGS = (
    Reading("by rates, rule as in the text", False),
    Reading("in turn, rule as in the text", True),
    Reading("in turn, shortest preferred, one alone always served", True, True, True),
)


def eight_queue(
    *,
    time: str = EIGHT_QUEUE_TIME,
    steps: int = EIGHT_QUEUE_STEPS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """The three base policies in three readings, and what a search finds in the first."""
    tell = progress or (lambda *_: None)
    rows: list[Row] = []
    for k, reading in enumerate(READINGS):
        model, policies = reading.made()
        for (p, figure), policy in zip(BASE_POLICY_COSTS.items(), policies, strict=True):
            tell(k, len(READINGS) + 1, f"{reading.name}, {p}")
            rows.append(
                simulated(
                    f"{p}, reading {k + 1}", model, policy, steps=steps, seed=seed, published=figure
                )
            )
    rows += [Row(name, published=figure) for name, figure in PUBLISHED_MIXTURES.items()]
    tell(len(READINGS), len(READINGS) + 1, SEARCH_ROW)
    rows.append(searched(zoo.eight_queue(), time=time, seed=seed))
    settings = {
        "time": time,
        "steps": steps,
        "seed": seed,
        "readings": [reading.name for reading in READINGS],
    }
    return Outcome(
        "eight-queue", "eight queues, number in system", tuple(rows), words_of(rows), settings
    )


def words_of(rows: list[Row]) -> tuple[str, ...]:
    """What the rows say of the readings, a row for each base policy, and of the search in the last
    row.
    """
    size = len(BASE_POLICY_COSTS)
    groups = [rows[size * k : size * (k + 1)] for k in range(len(READINGS))]
    told = [[verdict(row) for row in group] for group in groups]
    agree = [k for k, words in enumerate(told, 1) if all(word == AGREES_VERDICT for word in words)]
    refuted = all(any(word.startswith("not reproduced") for word in words) for words in told)
    off = [
        max(
            abs((row.ours or np.inf) - figure.value)
            for row, figure in zip(group, BASE_POLICY_COSTS.values(), strict=True)
        )
        for group in groups
    ]
    readings = "; ".join(
        f"{k + 1}: {r.name} (off by up to {o:.2f})"
        for k, (r, o) in enumerate(zip(READINGS, off, strict=True))
    )
    nearest = int(np.argmin(off))
    if READINGS[nearest].shortest:
        against = " and contradicts the text twice"
    else:
        against = ""
    said = "The runs are too short to tell whether a reading gives the published costs"
    if agree:
        said = f"The published costs follow from reading {agree[0]}"
    elif refuted:
        said = "The published costs cannot be reproduced under any reading tried"
    return (
        f"Readings: {readings}. {said}; reading {nearest + 1} comes nearest{against}.",
        f"The search works in reading 1, where it finds {rows[-1].shown}, so the published "
        "mixtures are nothing that it can be compared with.",
    )


# -- events in turn --------------------------------------------------------------------------------

_SERVICE_RATES = np.array([4, 2, 3, 3.1, 3, 2.2, 3, 2.5]) / 7.5
_NEXT_QUEUES = np.array([1, 2, -1, 4, 5, 6, 7, -1])
_QUEUES_OF_SERVERS = np.array([[0, 2, 7], [1, 5, -1], [3, 4, 6]])  # of each server; -1: none
_CHOICES_OF_A_SERVER = 4  # of a server: none of its queues, or one of them
_SERVER_COUNT = 3


def in_turn() -> EventModel:
    """An arrival at 4, or else one at 1, or else all servers: events 0, 1, or 2 + a bit for each
    server that is done.

    Action a holds the choice of server s as its digit s to base 4: 0 for none, k for its k-th
    queue.
    """
    mu = _SERVICE_RATES
    following = _NEXT_QUEUES
    queues = _QUEUES_OF_SERVERS
    entries = np.array(ENTRY_QUEUES)

    def probability(x, a, e):  # type: ignore[no-untyped-def]
        if e < 2:
            return ARRIVAL_RATE * (1 - ARRIVAL_RATE) ** e
        p = (1 - ARRIVAL_RATE) ** 2
        for s in range(_SERVER_COUNT):
            k = a // _CHOICES_OF_A_SERVER**s % _CHOICES_OF_A_SERVER
            if k > 0:
                q = queues[s, k - 1]
            else:
                q = -1
            if q >= 0 and x[q] > 0:
                rate = mu[q]
            else:
                rate = 0.0
            p *= rate if (e - 2) >> s & 1 else 1 - rate
        return p

    def move(x, a, e):  # type: ignore[no-untyped-def]
        y = x.copy()
        if e < 2:
            y[entries[e]] += 1
            return y
        for s in range(_SERVER_COUNT):
            k = a // _CHOICES_OF_A_SERVER**s % _CHOICES_OF_A_SERVER
            if k > 0:
                q = queues[s, k - 1]
            else:
                q = -1
            if (e - 2) >> s & 1 and q >= 0 and x[q] > 0:
                y[q] -= 1
                if following[q] >= 0:
                    y[following[q]] += 1
        return y

    def loss(x, a):  # type: ignore[no-untyped-def]  # noqa: ARG001  (a loss is a function of both)
        return float(x.sum())

    return EventModel(
        lower=[0] * 8,
        upper=[None] * 8,
        actions=_CHOICES_OF_A_SERVER**_SERVER_COUNT,
        events=2 + 2**_SERVER_COUNT,
        probability=probability,
        move=move,
        loss=loss,
        coordinates=[f"queue {k}" for k in range(1, 9)],
        name="eight-queue, events in turn",
    )


def soft_rule(model: Model, p: tuple[float, ...], shortest: bool, alone: bool) -> Policy:
    """The base policy of p, each server on its own; ties to the queue named first."""
    queues = _QUEUES_OF_SERVERS
    prefer = np.array(p)
    if shortest:
        sign = -1
    else:
        sign = 1

    def rule(x):  # type: ignore[no-untyped-def]
        shares = np.zeros((_SERVER_COUNT, _CHOICES_OF_A_SERVER))
        for s in range(_SERVER_COUNT):
            best = -1
            waiting = 0
            for k in range(3):
                q = queues[s, k]
                if q >= 0 and x[q] > 0:
                    waiting += 1
                    if best < 0 or sign * x[q] > sign * x[queues[s, best]]:
                        best = k
            if waiting == 1 and alone:
                first = 1.0
            else:
                first = prefer[s]
            if waiting <= 1:
                if waiting == 1:
                    shares[s, 0] = 1.0 - first
                else:
                    shares[s, 0] = 1.0
            for k in range(3):
                q = queues[s, k]
                if q >= 0 and x[q] > 0:
                    if k == best:
                        shares[s, k + 1] = first
                    else:
                        shares[s, k + 1] = (1 - first) / (waiting - 1)
        out = np.empty(_CHOICES_OF_A_SERVER**_SERVER_COUNT)
        for a in range(out.size):
            out[a] = 1.0
            for s in range(_SERVER_COUNT):
                out[a] *= shares[s, a // _CHOICES_OF_A_SERVER**s % _CHOICES_OF_A_SERVER]
        return out

    return FunctionPolicy(model, rule, name=f"soft {'shorter' if shortest else 'longer'}")
