"""Rules, tests and actions in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dualplan.core.types import Floats, Ints
from dualplan.models.contract import UNBOUNDED, Model, vector
from dualplan.models.queueing import QueueingNetwork

RULE_INDENT = "    "


class Tested(Protocol):
    """A node of a tree, as far as words need it."""

    @property
    def terms(self) -> tuple[tuple[int, int], ...]:
        """(coordinate, weight); none for a leaf."""

    @property
    def threshold(self) -> int:
        """That the sum must reach."""

    @property
    def yes(self) -> int:
        """The node if it does."""

    @property
    def no(self) -> int:
        """The node if it does not."""

    @property
    def order(self) -> tuple[int, ...]:
        """Of choices, in a leaf."""


def written(model: Model, trees: Sequence[Sequence[Tested]]) -> str:
    """The trees, one test or leaf a line."""
    lines: list[str] = []
    for t, tree in enumerate(trees):
        start = ""
        if isinstance(model, QueueingNetwork):
            lines.append(f"{model.servers[t]}:")
            start = RULE_INDENT
        lines += _lines(model, tree, t, tree[0], start)
    if not isinstance(model, QueueingNetwork) and len(model.actions) > 1:
        lines.append(f"(where that is not allowed: {_otherwise(model, trees[0])})")
    return "\n".join(lines)


def _otherwise(model: Model, tree: Sequence[Tested]) -> str:
    """What is done where a leaf's first action is not allowed.

    All leaves share the order of the others.
    """
    if len(model.actions) == 2:
        return "the other action"
    leaf = next(node for node in tree if not node.terms)
    names = [model.actions[a] for a in leaf.order[1:6]]
    return "the first that is, of " + ", ".join(names) + (", ..." if len(leaf.order) > 6 else "")


def _lines(model: Model, tree: Sequence[Tested], t: int, node: Tested, indent: str) -> list[str]:
    if not node.terms:
        return [indent + leaf_words(model, t, node.order)]
    lines = []
    for words, child in (
        (f"if {test_words(model, node)}:", tree[node.yes]),
        ("otherwise:", tree[node.no]),
    ):
        if child.terms:
            lines += [indent + words, *_lines(model, tree, t, child, indent + RULE_INDENT)]
        else:
            lines.append(f"{indent}{words} {leaf_words(model, t, child.order)}")
    return lines


def leaf_words(model: Model, t: int, order: Sequence[int]) -> str:
    """What is done in a leaf."""
    if not isinstance(model, QueueingNetwork):
        return model.actions[order[0]]
    options = [*(None if c < 0 else model.class_names[c] for c in model.choices[t]), None]
    if len(options) == 2 and options[0] is not None:
        return f"serve {options[0]}"
    beside = len(options) - 1  # idling beside waiting customers, which is to choose an empty class
    # where that is not allowed, or is not idling
    if model.nonpreemptive or model.options["phantom"]:
        order = [k for k in order if k != beside]
    # with no class empty, the next one has customers
    if order[0] == beside and options[order[1]] is not None:
        return f"idle if one of its queues is empty, else serve {options[order[1]]}"
    names = [options[k] for k in order]
    if model.options["phantom"]:
        names = names[:1]
    if None in names:  # after a class that is empty idling is possible, so nothing comes after it
        names = names[: names.index(None) + 1]
    if names[-1] is None and len(names) > len(options) - options.count(None):
        names = names[:-1]
    words = [name if name is not None else "idle" for name in names]
    return ("serve " if names[0] is not None else "") + ", else ".join(words)


def test_words(model: Model, node: Tested) -> str:
    """A test."""
    names = {i: coordinate_words(model, i) for i, _ in node.terms}
    plus, minus = ([names[i] for i, w in node.terms if w == sign] for sign in (1, -1))
    t = node.threshold
    if len(plus) + len(minus) < len(node.terms):
        return " + ".join(f"{w} × {names[i]}" for i, w in node.terms) + f" >= {t}"
    if len(plus) == 1 and not minus:
        return _single(model, node.terms[0][0], t)
    if len(plus) == 1 and len(minus) == 1:
        return _comparison(plus[0], minus[0], t)
    return " − ".join([" + ".join(plus) or "0", *minus]) + f" >= {t}"


def _comparison(left: str, right: str, t: int) -> str:
    """left − right >= t."""
    if t in (0, 1):
        return f"{left} {'>=' if t == 0 else '>'} {right}"
    if t > 0:
        return f"{left} >= {right} + {t}"
    return f"{left} + {-t} >= {right}"


def _single(model: Model, i: int, t: int) -> str:
    name = coordinate_words(model, i)
    queue = isinstance(model, QueueingNetwork) and i < len(model.classes)
    if queue and t == 1:
        return f"{name} is not empty"
    if t == model.box.upper[i] < UNBOUNDED:
        if queue:
            return f"{name} is full"
        return f"{name} = {t}"
    return f"{name} >= {t}"


def coordinate_words(model: Model, i: int) -> str:
    """A coordinate; classes of networks are queues."""
    if isinstance(model, QueueingNetwork) and i < len(model.classes):
        return f"queue {model.class_names[i]}"
    return model.coordinates[i]


def action_words(model: Model, x: Ints, a: int) -> str:
    """What action a does in state x: for networks, what every server does that decides there."""
    if not isinstance(model, QueueingNetwork):
        return model.actions[a]
    if model.per_server:
        event = int(x[-1])
        if event == 0:
            return "nobody decides"
        return _server_words(model, x, event - 1, a)
    words = []
    stride = len(model.actions)
    for s, options in enumerate(model.choices):
        stride //= len(options)
        words.append(_server_words(model, x, s, a // stride % len(options)))
    return ", ".join(words)


def _server_words(network: QueueingNetwork, x: Ints, s: int, j: int) -> str:
    c = network.choices[s][j]
    server = network.servers[s]
    if network.nonpreemptive:
        at = int(x[len(network.classes) + s])
        waits = at > 0 and int(x[c]) - (at == j + 1) > 0
        if waits:
            return f"{server} takes {network.class_names[c]} next"
        return f"{server} has nobody to choose"
    if c < 0 or (x[c] == 0 and not network.options["phantom"]):
        return f"{server} idles"
    return f"{server} serves {network.class_names[c]}"


def state_words(model: Model, x: Ints, chances: Floats) -> list[tuple[str, float]]:
    """What a policy with these probabilities does in a state, the likeliest first.

    What is the same is added up.
    """
    found: dict[str, float] = {}
    for a, p in enumerate(chances):
        if p > 0:
            words = action_words(model, x, a)
            found[words] = found.get(words, 0.0) + float(p)
    return sorted(found.items(), key=lambda item: -item[1]) or [(f"nothing in {vector(x)}", 0.0)]
