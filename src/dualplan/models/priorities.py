"""Priorities of a network, written down: ``urgent > routine; lab > triage``.

Chains of classes, those served first in front, with ``>`` between two classes and ``;`` between two
chains. What a chain says of two classes it says of all between them too, and chains are taken
together: of two classes of one server that are named, the text must say which comes first. Classes
of different servers do not compete, so that one chain over all classes is as good as one for each
server. Classes that are not named come after those of their server that are, in the order in which
the network names them. A name that has ``>`` or ``;`` in it stands in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from dualplan.core.errors import InputError, unknown

PRIORITY_SIGN = ">"
CHAIN_SIGN = ";"
_NAME_AND_SIGN = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^>;]*?))\s*([>;]|$)""")


def are_priorities(text: str) -> bool:
    """Whether a text is meant as priorities, rather than as a name."""
    return any(sign in text for sign in (PRIORITY_SIGN, CHAIN_SIGN, "<"))


def ranks(text: str, servers: Mapping[str, str]) -> list[int]:
    """The place of each class among those of its server, 0 being served first.

    `servers` are those of the classes, by the names of these, in the network's order.
    """
    chains = list(_chains(text, list(servers)))
    before = _closure([pair for chain in chains for pair in pairwise(chain)])
    for name in servers:
        if (name, name) in before:
            raise InputError(f"{text!r} puts class {name!r} before itself; name it once.")
    named = list(dict.fromkeys(name for chain in chains for name in chain))
    for one, other in combinations(named, 2):
        decided = (one, other) in before or (other, one) in before
        if servers[one] == servers[other] and not decided:
            raise InputError(
                f"{text!r} does not say which of {one!r} and {other!r} server {servers[one]!r} "
                f"takes first; write them in one chain, such as '{one} > {other}'."
            )
    return [_rank(name, servers, named, before) for name in servers]


def _rank(
    name: str, servers: Mapping[str, str], named: Sequence[str], before: set[tuple[str, str]]
) -> int:
    """How many classes of its server come before a class."""
    mine = [other for other in servers if servers[other] == servers[name]]
    if name in named:
        return sum((other, name) in before for other in mine)
    unnamed = [other for other in mine if other not in named]
    return len(mine) - len(unnamed) + unnamed.index(name)


def _chains(text: str, known: Sequence[str]) -> Iterator[list[str]]:
    """The chains of a text, of classes that are known."""
    chain: list[str] = []
    for name, sign in _names(text):
        if not name:
            raise InputError(
                f"{text!r} has a place without a class; write names of classes with > between them."
            )
        chain.append(_known(name, known, text))
        if sign != PRIORITY_SIGN:
            yield chain
            chain = []


def _names(text: str) -> Iterator[tuple[str, str]]:
    """Each name, and the sign behind it; none behind the last."""
    rest = text.strip().removesuffix(CHAIN_SIGN)
    while True:
        found = _NAME_AND_SIGN.match(rest)
        assert found is not None  # whatever there is, it may be a name
        double, single, plain, sign = found.groups(default="")
        yield double or single or plain, sign
        if not sign:
            return
        rest = rest[found.end() :]


def _known(name: str, known: Sequence[str], text: str) -> str:
    if name in known:
        return name
    if "<" in name:
        raise InputError(
            f"{text!r} is no order of priorities; write the class that is served first in front, "
            "and > behind it."
        )
    raise unknown("class", name, known)


def _closure(pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """All (one, other) such that one comes before the other, directly or by way of others."""
    found = set(pairs)
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found
