"""A rule that people can read, and that is a compiled policy: a small tree for each decision.

A node tests whether a sum of coordinates with whole weights reaches a threshold; a leaf is an order
of choices, of which the first that can be made is made. Networks have a tree for each server, whose
choices are the places of its classes in the network's order (one number more: idle beside waiting
customers); with single leaves this is a table of priorities. Other models have one tree, whose
choices are the actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dualplan._kernels.rules import LEAF_HEADER_SIZE, TEST_HEADER_SIZE, network_tree_rule, tree_rule
from dualplan.core.encoding import encoded
from dualplan.core.errors import PolicyError
from dualplan.core.intervals import Interval
from dualplan.core.status import COMPUTED, Status
from dualplan.core.types import Floats, Ints, Json
from dualplan.models.contract import Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy, PolicyCode
from dualplan.policies.rule_words import written
from dualplan.policies.saved import Parts, saved_as

Terms = tuple[tuple[int, int], ...]  # (coordinate, weight)


@dataclass(frozen=True)
class Node:
    """A test, Σ weight·x over `terms` >= `threshold`, that leads to node `yes` or `no`.

    Or a leaf with an order.
    """

    terms: Terms = ()
    threshold: int = 0
    yes: int = 0
    no: int = 0
    order: tuple[int, ...] = ()


Tree = tuple[Node, ...]  # the first node is the root; children come after their parents


@dataclass(frozen=True)
class Simplification:
    """What a rule costs more than the policy that it stands for.

    `difference` is rule − policy, by a paired comparison on random numbers that the rule was not
    chosen by, or over all states where they are few (`known` says which). `agreement` is the share
    of the decisions, where the policy goes (states that the rule was not fitted to, unless it is
    over all), in which the rule does what the policy does most likely. `status` is that of the
    comparison: the difference of a run that is too short says nothing for sure.
    """

    policy: str
    policy_cost: float
    cost: float
    difference: Interval
    known: str
    agreement: float
    tolerance: float
    status: Status

    @property
    def relative(self) -> float:
        """The difference as a part of the policy's cost."""
        if self.policy_cost:
            return self.difference.value / abs(self.policy_cost)
        return self.difference.value

    @property
    def within(self) -> bool:
        """Whether the whole interval lies within the tolerance.

        Over all states, the difference up to rounding.
        """
        far = self.tolerance * abs(self.policy_cost)
        d = self.difference
        if self.status is Status.SOLVED:
            return bool(abs(d.value) <= far + (d.upper - d.lower))
        return bool(trusted(self.status) and -far <= d.lower and d.upper <= far)

    @property
    def exact(self) -> bool:
        """Whether the costs are over all states, so that the interval is only rounding."""
        return self.known == COMPUTED

    def to_json(self) -> Json:
        """As plain values."""
        return {
            **asdict(self),
            "status": str(self.status),
            "relative": self.relative,
            "within": self.within,
        }

    @staticmethod
    def of(data: Json) -> Simplification:
        """From plain values."""
        given = data["difference"]
        # files of earlier versions do not say how long the run was, so nothing is claimed for it
        if data["known"] == COMPUTED:
            unsaid = Status.SOLVED
        else:
            unsaid = Status.TOO_SHORT
        return Simplification(
            data["policy"],
            float(data["policy_cost"]),
            float(data["cost"]),
            Interval.from_json(given, float(given["confidence"])),
            data["known"],
            data["agreement"],
            data["tolerance"],
            Status(data.get("status", unsaid)),
        )

    def __str__(self) -> str:
        d = self.difference
        if not np.isfinite(d.value):
            return (
                "nothing is known of the difference: the policy or the rule is unstable or has no "
                f"one cost; {self.agreement:.1%} of the decisions agree"
            )
        if self.exact:
            how = "over all states"
        else:
            how = f"{d.confidence:.0%} paired interval"
        if self.status.good:
            doubt = ""
        else:
            doubt = f"; {self.status.advice}"
        agree = f"{self.relative:+.2%}; {self.agreement:.1%} of the decisions agree{doubt}"
        apart = f"{d.value:.4g} [{d.lower:.4g}, {d.upper:.4g}]"
        if self.exact:
            both = f"cost {self.cost:.6g}, that of the policy {self.policy_cost:.6g}"
            return f"{both}; difference {apart} ({how}), {agree}"
        return f"costs {apart} more than the policy ({how}), {agree}"


def trusted(status: Status) -> bool:
    """Whether a difference with this status holds.

    Bounds over all states do, also where they are wide.
    """
    return status.good or status is Status.WIDE


@saved_as("trees")
class Rule(Policy):
    """A tree for each server of a network, or one for the actions of another model.

    See the module's text.
    """

    def __init__(
        self,
        model: Model,
        trees: Sequence[Tree],
        *,
        name: str = "rule",
        simplification: Simplification | None = None,
    ) -> None:
        self.trees = tuple(tuple(tree) for tree in trees)
        self.simplification = simplification
        _check(model, self.trees, name)
        self._block = _block(self.trees)
        super().__init__(model, name, _code(model, self._block))

    @property
    def leaves(self) -> int:
        """Of all trees."""
        return sum(not node.terms for tree in self.trees for node in tree)

    def text(self) -> str:
        """The rule in plain words."""
        return written(self.model, self.trees)

    def __str__(self) -> str:
        if self.simplification is None:
            known = ""
        else:
            known = f"\n{self.simplification}"
        return f"{self.name} ({self.leaves} leaves)\n{self.text()}{known}"

    def probabilities(self, x: Ints) -> Floats:
        """1 for the choice of the leaf; simulators are asked what is allowed."""
        if self.code is not None:
            return super().probabilities(x)
        node = self.trees[0][0]
        while node.terms:
            total = sum(weight * int(x[i]) for i, weight in node.terms)
            node = self.trees[0][node.yes if total >= node.threshold else node.no]
        may = self.model.allowed(x)
        out = np.zeros(len(self.model.actions))
        out[next(a for a in node.order if may[a])] = 1.0
        return out

    def describe(self) -> Json:
        """The trees."""
        return {**super().describe(), "trees": trees_to_json(self.trees)}

    def _defining_parts(self) -> tuple[Any, ...]:
        return (self.model.digest, self._block)

    def to_parts(self) -> Parts:
        """The trees, and what the rule costs more than the policy it stands for."""
        if self.simplification is None:
            known = None
        else:
            known = encoded(self.simplification.to_json())
        return Parts({"trees": trees_to_json(self.trees), "simplification": known})

    @classmethod
    def from_parts(cls, model: Model, parts: Parts) -> Rule:
        """From the same."""
        known = parts.header["simplification"]
        if known is None:
            cost = None
        else:
            cost = Simplification.of(known)
        return cls(
            model, trees_from_json(parts.header["trees"]), name=parts.name, simplification=cost
        )


def choice_count(model: Model, tree: int) -> int:
    """How many choices the leaves of a tree are orders of."""
    if not isinstance(model, QueueingNetwork):
        return len(model.actions)
    return len(model.choices[tree]) + 1


def trees_to_json(trees: Sequence[Tree]) -> list[list[Json]]:
    """As plain values."""
    return [[asdict(node) for node in tree] for tree in trees]


def trees_from_json(data: Sequence[Sequence[Json]]) -> list[Tree]:
    """From plain values."""
    return [
        tuple(
            Node(
                tuple((int(i), int(w)) for i, w in n["terms"]),
                int(n["threshold"]),
                int(n["yes"]),
                int(n["no"]),
                tuple(int(k) for k in n["order"]),
            )
            for n in tree
        )
        for tree in data
    ]


def _check(model: Model, trees: Sequence[Tree], name: str) -> None:
    """Kernels trust what they read, so everything is looked at here."""
    if isinstance(model, QueueingNetwork):
        wanted = len(model.servers)
    else:
        wanted = 1
    if len(trees) != wanted or not all(trees):
        raise PolicyError(
            f"rule {name!r} needs {wanted} trees, one for each decision of {model.name!r}."
        )
    for t, tree in enumerate(trees):
        most = choice_count(model, t)
        for k, node in enumerate(tree):
            if node.terms:
                inside = all(0 <= i < model.box.dim for i, _ in node.terms)
                fine = inside and k < node.yes < len(tree) and k < node.no < len(tree)
            else:
                enough = len(node.order) >= (
                    most - 1 if isinstance(model, QueueingNetwork) else most
                )
                fine = (
                    enough
                    and len(set(node.order)) == len(node.order)
                    and all(0 <= c < most for c in node.order)
                )
            if not fine:
                raise PolicyError(
                    f"rule {name!r}: node {k} of tree {t} leads nowhere, tests a coordinate that "
                    "is not there, or is a leaf that does not name every choice once."
                )


def _block(trees: Sequence[Tree]) -> Ints:
    """The trees as the kernels read them."""
    sizes = [
        [
            TEST_HEADER_SIZE + 2 * len(n.terms) if n.terms else LEAF_HEADER_SIZE + len(n.order)
            for n in tree
        ]
        for tree in trees
    ]
    ends = 1 + len(trees) + np.cumsum([0, *(size for own in sizes for size in own)])
    firsts = np.cumsum([0, *(len(tree) for tree in trees)])
    numbers: list[int] = [len(trees), *(int(ends[f]) for f in firsts[:-1])]
    for tree, first in zip(trees, firsts, strict=False):
        for n in tree:
            if n.terms:
                numbers += [
                    len(n.terms),
                    n.threshold,
                    int(ends[first + n.yes]),
                    int(ends[first + n.no]),
                ]
                numbers += [v for term in n.terms for v in term]
            else:
                numbers += [0, len(n.order), *n.order]
    return np.array(numbers, np.int64)


def _code(model: Model, block: Ints) -> PolicyCode | None:
    if isinstance(model, SimulatorModel):
        return None
    code = model.code
    if isinstance(model, QueueingNetwork):
        return PolicyCode(np.concatenate([code.ints, block]), code.floats, network_tree_rule)
    head = np.array([code.ints.size], np.int64)
    return PolicyCode(
        np.concatenate([head, code.ints, block]), code.floats, tree_rule(code.allowed)
    )
