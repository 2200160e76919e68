"""Where the parts of a queueing network lie in its diagram: numbers only, nothing is drawn here.

Servers stand in columns: along routes that lead back to no server they came through (the others are
*feedback*), a server's column is the longest way to it. After `SERVERS_ABREAST` columns the next
ones begin a new *band* below. A route leaves the right side of its server at a port of its own, and
enters the left side of the next at a port of its own. To the next column it turns once, in a slot
of its own between the columns; any other route takes two slots and a *lane*, above the band if it
goes forward, below it if it goes back or to another band. So no two lines run over each other, and
no line crosses a server.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from dualplan.models.queueing import QueueingNetwork

SERVERS_ABREAST = 5
# width of a server, height of a class, of the name, and below
SERVER_WIDTH = 2.6
CLASS_HEIGHT = 0.95
SERVER_NAME_HEIGHT = 0.5
SERVER_FOOT_HEIGHT = 0.12
SERVERS_APART = 0.45  # between servers of one column
# room for arrows out of the network and into it
EXIT_ARROW_ROOM = 0.95
ENTRY_ARROW_ROOM = 1.0
# between parallel lines
SLOT_WIDTH = 0.2
LANE_WIDTH = 0.26
PORTS_SHARE = 0.62  # part of a class's height over which its ports are spread
# places that are no classes
OUTSIDE_PLACE = -1
ARRIVAL_PLACE = -2

Point = tuple[float, float]
Taken = dict[
    int, list[set[int]]
]  # for each gap between columns and each slot in it, the levels where a line passes


@dataclass(frozen=True)
class Route:
    """A way from class to class with its corners.

    `source` is ARRIVAL_PLACE or `target` OUTSIDE_PLACE where one end is outside.
    """

    source: int
    target: int
    rate: float
    corners: tuple[Point, ...]


@dataclass(frozen=True)
class Layout:
    """The lower left corners of servers, their heights, the heights at which classes stand, the
    routes, the size.
    """

    servers: tuple[Point, ...]
    heights: tuple[float, ...]
    classes: tuple[Point, ...]
    routes: tuple[Route, ...]
    width: float
    height: float


def server_columns(network: QueueingNetwork) -> list[int]:
    """The column of each server: the longest way to it along routes that are no feedback."""
    ahead: dict[int, list[int]] = defaultdict(list)
    for c, routes in enumerate(network.routes):
        s = int(network.server_of[c])
        for t in (int(network.server_of[d]) for d, _ in routes if d >= 0):
            if t != s and t not in ahead[s]:
                ahead[s].append(t)
    order, forward = _without_feedback(network, ahead)
    column = [0] * len(network.servers)
    for s in order:
        for t in forward[s]:
            column[t] = max(column[t], column[s] + 1)
    return column


def _without_feedback(
    network: QueueingNetwork, ahead: dict[int, list[int]]
) -> tuple[list[int], dict[int, list[int]]]:
    """Servers in an order in which routes lead forward, and these routes: what a depth-first search
    does not close.
    """
    begin = [int(network.server_of[i]) for i, c in enumerate(network.classes) if c.arrival > 0]
    finished: list[int] = []
    forward: dict[int, list[int]] = defaultdict(list)
    seen: set[int] = set()
    for root in dict.fromkeys([*begin, *range(len(network.servers))]):
        if root in seen:
            continue
        seen.add(root)
        way = [(root, iter(ahead[root]))]
        open_ = {root}
        while way:
            s, targets = way[-1]
            t = next(targets, None)
            if t is None:
                way.pop()
                open_.remove(s)
                finished.append(s)
            elif t not in open_:
                forward[s].append(t)
                if t not in seen:
                    seen.add(t)
                    open_.add(t)
                    way.append((t, iter(ahead[t])))
    return finished[::-1], forward


@dataclass
class _Edge:
    """A route before its corners are known: where its ends are among the columns, and what it needs
    in between.
    """

    source: int
    target: int
    rate: float
    slots: list[tuple[int, int]] = field(default_factory=list)  # gap between columns, place in it
    lane: tuple[int, int] | None = None  # channel between bands, place in it


def arrange(network: QueueingNetwork) -> Layout:
    """The diagram's places; see the module's text."""
    column = server_columns(network)
    edges = _edges(network)
    taken: Taken = defaultdict(list)
    channels: dict[int, int] = defaultdict(int)
    for edge in edges:
        _reserve(network, column, edge, taken, channels)
    gaps = defaultdict(int, {gap: len(slots) for gap, slots in taken.items()})
    x = _column_starts(column, gaps)
    corners, heights, height = _stack(network, column, channels, x)
    rows = _class_rows(network, corners, heights)
    tops = _channel_tops(column, corners, heights, channels)
    routes = _routes(edges, rows, tops, gaps)
    width = (
        max(x.values())
        + SERVER_WIDTH
        + EXIT_ARROW_ROOM
        + ENTRY_ARROW_ROOM
        + SLOT_WIDTH * gaps[min(max(column), SERVERS_ABREAST - 1) + 1]
    )
    return Layout(tuple(corners), tuple(heights), tuple(rows), tuple(routes), width, height)


def _edges(network: QueueingNetwork) -> list[_Edge]:
    """Arrivals, routes and exits."""
    found = [
        _Edge(ARRIVAL_PLACE, i, c.arrival) for i, c in enumerate(network.classes) if c.arrival > 0
    ]
    return found + [_Edge(i, d, p) for i, routes in enumerate(network.routes) for d, p in routes]


def _place(network: QueueingNetwork, column: list[int], c: int) -> tuple[int, int]:
    """Band and column within the band of a class's server."""
    return divmod(column[int(network.server_of[c])], SERVERS_ABREAST)


def _reserve(
    network: QueueingNetwork, column: list[int], edge: _Edge, taken: Taken, channels: dict[int, int]
) -> None:
    """Slots in the gaps (gap k lies left of column k) and lanes in the channels (channel k lies
    above band k).
    """
    if edge.source == ARRIVAL_PLACE or edge.target == OUTSIDE_PLACE:
        return
    (band, at), (to_band, to) = (_place(network, column, c) for c in (edge.source, edge.target))
    if band == to_band and to == at + 1:
        edge.slots.append(_slot(taken, at + 1, {2 * band + 1}))
        return
    if band == to_band and to > at:
        channel = band
    else:
        channel = min(band, to_band) + 1
    edge.lane = channel, channels[channel]
    channels[channel] += 1
    for gap, beside in ((at + 1, band), (to, to_band)):
        edge.slots.append(_slot(taken, gap, _levels(beside, channel)))


def _levels(band: int, channel: int) -> set[int]:
    """What a line between a band and a channel passes: channel k is at level 2k, band k at 2k
    + 1.
    """
    ends = sorted((2 * band + 1, 2 * channel))
    return set(range(ends[0], ends[1] + 1))


def _slot(taken: Taken, gap: int, levels: set[int]) -> tuple[int, int]:
    """The first slot of the gap in which no other line passes these levels."""
    slots = taken[gap]
    free = next((k for k, busy in enumerate(slots) if not busy & levels), len(slots))
    if free == len(slots):
        slots.append(set())
    slots[free] |= levels
    return gap, free


def _column_starts(column: list[int], gaps: dict[int, int]) -> dict[int, float]:
    """Where the columns begin.

    Before the first there is room for arrivals and for what comes back.
    """
    starts = {}
    x = 0.0
    for k in range(min(max(column), SERVERS_ABREAST - 1) + 1):
        x += (EXIT_ARROW_ROOM if k else 0.0) + SLOT_WIDTH * gaps[k] + ENTRY_ARROW_ROOM
        starts[k] = x
        x += SERVER_WIDTH
    return starts


def _height(network: QueueingNetwork, s: int) -> float:
    return (
        SERVER_NAME_HEIGHT
        + SERVER_FOOT_HEIGHT
        + CLASS_HEIGHT * sum(c.server == network.servers[s] for c in network.classes)
    )


def _stack(
    network: QueueingNetwork, column: list[int], channels: dict[int, int], x: dict[int, float]
) -> tuple[list[Point], list[float], float]:
    """Corners and heights of the servers, and the height of all: bands from the top down, columns
    centred in them.
    """
    heights = [_height(network, s) for s in range(len(network.servers))]
    members: dict[int, list[int]] = defaultdict(list)
    for s, k in enumerate(column):
        members[k].append(s)
    tall = {
        k: sum(heights[s] for s in own) + SERVERS_APART * (len(own) - 1)
        for k, own in members.items()
    }
    bands = max(column) // SERVERS_ABREAST + 1
    corners = [(0.0, 0.0)] * len(heights)
    top = 0.0
    for band in range(bands):
        top -= _channel(channels, band)
        own = [k for k in members if k // SERVERS_ABREAST == band]
        deep = max(tall[k] for k in own)
        for k in own:
            y = top - (deep - tall[k]) / 2
            for s in members[k]:
                y -= heights[s]
                corners[s] = x[k % SERVERS_ABREAST], y
                y -= SERVERS_APART
        top -= deep
    bottom = top - _channel(channels, bands)
    return [(left, low - bottom) for left, low in corners], heights, -bottom


def _channel(channels: dict[int, int], k: int) -> float:
    return SERVERS_APART + LANE_WIDTH * channels[k]


def _class_rows(
    network: QueueingNetwork, corners: list[Point], heights: list[float]
) -> list[Point]:
    """The left end and the middle of each class, one below the other in its server."""
    below: dict[int, int] = defaultdict(int)
    rows = []
    for c in range(len(network.classes)):
        s = int(network.server_of[c])
        left, low = corners[s]
        rows.append((left, low + heights[s] - SERVER_NAME_HEIGHT - CLASS_HEIGHT * (below[s] + 0.5)))
        below[s] += 1
    return rows


# -- corners ---------------------------------------------------------------------------------------


def _routes(
    edges: list[_Edge], rows: list[Point], tops: dict[int, float], gaps: dict[int, int]
) -> list[Route]:
    leave = _ports([(edge.source, _direction(edge, rows, tops)) for edge in edges], rows)
    enter = _ports([(edge.target, _direction(edge, rows, tops, back=True)) for edge in edges], rows)
    return [
        Route(edge.source, edge.target, edge.rate, _corners(edge, rows, (out, into), tops, gaps))
        for edge, out, into in zip(edges, leave, enter, strict=True)
    ]


def _channel_tops(
    column: list[int], corners: list[Point], heights: list[float], channels: dict[int, int]
) -> dict[int, float]:
    """The height at which the first lane of each channel lies."""
    tops: dict[int, float] = {}
    for band in range(max(column) // SERVERS_ABREAST + 1):
        own = [s for s, k in enumerate(column) if k // SERVERS_ABREAST == band]
        highest = max(corners[s][1] + heights[s] for s in own)
        tops[band] = highest + _channel(channels, band) - SERVERS_APART / 2
        tops[band + 1] = min(corners[s][1] for s in own) - SERVERS_APART / 2
    return tops


def _lane(edge: _Edge, tops: dict[int, float]) -> float:
    channel, place = edge.lane or (0, 0)
    return tops[channel] - LANE_WIDTH * place


def _direction(
    edge: _Edge, rows: list[Point], tops: dict[int, float], *, back: bool = False
) -> float:
    """Where a line comes from or goes to, as a height: by it ports are ordered, so that fewer lines
    cross.
    """
    if edge.lane is not None:
        return _lane(edge, tops)
    if back:
        other = edge.source
    else:
        other = edge.target
    if back:
        own = edge.target
    else:
        own = edge.source
    if other >= 0:
        return rows[other][1]
    if own >= 0:
        return rows[own][1]
    return 0.0


def _ports(ends: list[tuple[int, float]], rows: list[Point]) -> list[float]:
    """The height of each line at its class: spread about the middle, in the order of where the
    lines go.
    """
    heights = [0.0] * len(ends)
    for c in {c for c, _ in ends if c >= 0}:
        own = sorted((k for k, (end, _) in enumerate(ends) if end == c), key=lambda k: -ends[k][1])
        step = PORTS_SHARE * CLASS_HEIGHT / len(own)
        for place, k in enumerate(own):
            heights[k] = rows[c][1] + step * ((len(own) - 1) / 2 - place)
    return heights


def _corners(
    edge: _Edge,
    rows: list[Point],
    ports: tuple[float, float],
    tops: dict[int, float],
    gaps: dict[int, int],
) -> tuple[Point, ...]:
    out, into = ports
    if edge.source == ARRIVAL_PLACE:
        left = rows[edge.target][0]
        return (left - ENTRY_ARROW_ROOM * 0.8, into), (left, into)
    right = rows[edge.source][0] + SERVER_WIDTH
    if edge.target == OUTSIDE_PLACE:
        return (right, out), (right + EXIT_ARROW_ROOM * 0.5, out)
    first = right + EXIT_ARROW_ROOM + SLOT_WIDTH * (edge.slots[0][1] + 0.5)
    end = rows[edge.target][0]
    if len(edge.slots) == 1:
        return (right, out), (first, out), (first, into), (end, into)
    gap, place = edge.slots[1]
    second = end - ENTRY_ARROW_ROOM - SLOT_WIDTH * (gaps[gap] - place - 0.5)
    lane = _lane(edge, tops)
    return (right, out), (first, out), (first, lane), (second, lane), (second, into), (end, into)
