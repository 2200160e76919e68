"""Factored models: a state is a value of each of many variables, and each moves by a law that few
of them enter.

    P(x'|x,a) = Π_i P_i(x'_i | x_parents(i), a),        ℓ(x,a) = Σ_j ℓ_j(x_S(j)) + cost(a) + Σ_j
                                                        ℓ_j^a(x_S(j))

(a dynamic Bayesian network; Boutilier, Dearden & Goldszmidt 1995; Guestrin, Koller, Parr &
Venkataraman 2003). All of it is data: a law is a table over the parents with one more axis for the
next value, a loss a table over its scope. The laws are given once, and an action names the
variables whose law it changes, so that a hundred machines with a hundred and one actions stay
small. Given the state, the variables move independently of each other. Every action is allowed in
every state.

A step has up to Π_i |values of i| outcomes. They are listed where there are at most
`MOST_FACTORED_OUTCOMES` of them, and predecessors, which are as many times the actions, up to
`MOST_FACTORED_PREDECESSORS`; simulation needs neither, nor do the programs in `primal/factored.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dualplan._kernels import factored as kernels
from dualplan.core.checks import is_number, is_whole
from dualplan.core.errors import InputError, ModelError, unknown
from dualplan.core.types import ArrayLike, Floats, Ints, Json
from dualplan.models.contract import Box, Code, Model

MOST_FACTORED_OUTCOMES = 2**12
MOST_FACTORED_PREDECESSORS = 2**9
MOST_TABLE_ENTRIES = 2**20  # of one table
LAW_SUM_TOLERANCE = 1e-9  # how far the sum of a law may be from 1

Scope = tuple[int, ...]
Given = tuple[Sequence[str | int], ArrayLike]  # a scope by names or numbers, and a table


@dataclass(frozen=True, eq=False)
class Local:
    """A function of a few variables: `values` has an axis for each of `scope`, in ascending order.

    The table of a law has one axis more, the last, for the next value.
    """

    scope: Scope
    values: Floats

    def __call__(self, states: Ints) -> Floats:
        """At states, one a row."""
        return np.asarray(
            self.values[tuple(states[:, i] for i in self.scope)] + np.zeros(len(states))
        )

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return float(np.abs(self.values).max())


@dataclass(frozen=True, eq=False)
class FactoredAction:
    """What an action changes: a cost, laws of some variables, and losses that are added to those of
    all actions.
    """

    cost: float = 0.0
    laws: Mapping[str | int, Given] = field(default_factory=dict)
    losses: Sequence[Given] = ()


class FactoredModel(Model):
    """A dynamic Bayesian network with actions.

    `variables` maps names to numbers of values 0, 1, ...; `laws` maps each name to (parents,
    table), the table's last axis being the next value; `losses` lists (scope, table); `actions`
    maps names to `FactoredAction`.
    """

    def __init__(
        self,
        variables: Mapping[str, int],
        laws: Mapping[str | int, Given],
        losses: Sequence[Given],
        actions: Mapping[str, FactoredAction],
        *,
        start: ArrayLike | None = None,
        name: str = "factored",
    ) -> None:
        self.name = name
        self.coordinates = tuple(variables)
        self.actions = tuple(actions)
        if not variables or not actions:
            raise InputError(f"model {name!r} needs at least one variable and one action.")
        for variable, size in variables.items():
            if not is_whole(size) or size < 1:
                raise InputError(
                    f"model {name!r}: {variable!r} takes {size!r} values; give a whole number, at "
                    "least 1."
                )
        self.sizes = tuple(int(size) for size in variables.values())
        self.laws = self._all_laws(laws)
        self.changes = tuple(
            {i: self._law(i, given, label) for i, given in self._numbered(action.laws)}
            for label, action in actions.items()
        )
        self.losses = tuple(self._loss(given, "the losses") for given in losses)
        self.own_losses = tuple(
            tuple(self._loss(g, label) for g in action.losses) for label, action in actions.items()
        )
        self.costs = np.array([self._cost(label, action.cost) for label, action in actions.items()])
        self.box = Box.of([0] * len(self.sizes), [size - 1 for size in self.sizes])
        if start is None:
            self.start = self.box.lower.copy()
        else:
            self.start = self.state(start)

    # -- what was given ----------------------------------------------------------------------------

    def variable(self, given: str | int) -> int:
        """The number of a variable, by name or number."""
        if is_whole(given) and 0 <= int(given) < len(self.sizes):
            return int(given)
        if given not in self.coordinates:
            raise unknown(f"variable of {self.name!r}", str(given), self.coordinates)
        return self.coordinates.index(str(given))

    def local(self, given: Given, what: str, following: tuple[int, ...] = ()) -> Local:
        """A table over some variables (and a last axis of this length), with its scope put in
        ascending order.
        """
        names, table = given
        scope = [self.variable(v) for v in names]
        where = f"model {self.name!r}: {what} over ({', '.join(str(v) for v in names)})"
        if len(set(scope)) < len(scope):
            raise InputError(f"{where} names a variable twice.")
        shape = (*(self.sizes[i] for i in scope), *following)
        if math.prod(shape) > MOST_TABLE_ENTRIES:
            raise InputError(
                f"{where} has {math.prod(shape):.3g} entries, more than {MOST_TABLE_ENTRIES:,}; "
                "use "
                "fewer variables."
            )
        try:
            values = np.array(table, np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{where} is no table of numbers.") from error
        if values.shape != shape:
            raise InputError(f"{where} has shape {values.shape}; expected {shape}.")
        if not np.isfinite(values).all():
            raise InputError(f"{where} has entries that are not finite.")
        order = np.argsort(scope)
        axes = (*order.tolist(), *range(len(scope), values.ndim))
        return Local(tuple(sorted(scope)), values.transpose(axes).copy(order="C"))

    def _numbered(self, laws: Mapping[str | int, Given]) -> list[tuple[int, Given]]:
        return sorted(
            ((self.variable(v), given) for v, given in laws.items()), key=lambda pair: pair[0]
        )

    def _all_laws(self, laws: Mapping[str | int, Given]) -> tuple[Local, ...]:
        given = dict(self._numbered(laws))
        for i, variable in enumerate(self.coordinates):
            if i not in given:
                raise InputError(f"model {self.name!r}: variable {variable!r} has no law.")
        return tuple(self._law(i, given[i], "every action") for i in range(len(self.sizes)))

    def _law(self, i: int, given: Given, action: str) -> Local:
        what = f"the law of {self.coordinates[i]!r} under {action}"
        law = self.local(given, what, (self.sizes[i],))
        sums = law.values.sum(axis=-1)
        if (law.values < 0).any() or (np.abs(sums - 1) > LAW_SUM_TOLERANCE).any():
            wrong = sums.ravel()[np.argmax(np.abs(sums - 1))]
            raise ModelError(
                f"model {self.name!r}: {what} has a row that sums to {wrong:.9g} or a negative "
                "entry; rows are probabilities."
            )
        return Local(law.scope, law.values / sums[..., None])

    def _loss(self, given: Given, what: str) -> Local:
        return self.local(given, f"the loss of {what}" if what in self.actions else what)

    def _cost(self, label: str, cost: float) -> float:
        if not is_number(cost):
            raise InputError(
                f"model {self.name!r}: the cost of action {label!r} must be a number, got {cost!r}."
            )
        return float(cost)

    # -- what there is -----------------------------------------------------------------------------

    @property
    def outcomes(self) -> int:
        """How many next states a pair can have at most: the number of states."""
        return math.prod(self.sizes)

    @property
    def why_no_forward(self) -> str:  # type: ignore[override]
        """Lists are as long as the number of states."""
        return (
            f"a step has about {self.outcomes:.2g} outcomes, and at most "
            f"{MOST_FACTORED_OUTCOMES:,} are "
            "listed"
        )

    @property
    def why_no_predecessors(self) -> str:  # type: ignore[override]
        """Every pair can lead to every state."""
        pairs = self.outcomes * len(self.actions)
        return (
            f"all of about {pairs:.2g} pairs can lead to a state, and at most "
            f"{MOST_FACTORED_PREDECESSORS:,} are listed"
        )

    def law(self, i: int, a: int) -> Local:
        """P(x'_i | parents, a)."""
        return self.changes[a].get(i, self.laws[i])

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The (parent, child) of the laws without an action's changes, loops left out."""
        return tuple((j, i) for i, law in enumerate(self.laws) for j in law.scope if j != i)

    @property
    def loss_bounds(self) -> tuple[float, float]:
        """Sums of the ends of all tables; the worst action's cost."""
        own = [[(t.values.min(), t.values.max()) for t in tables] for tables in self.own_losses]
        low = min(
            c + sum(least for least, _ in ends) for c, ends in zip(self.costs, own, strict=True)
        )
        high = max(
            c + sum(most for _, most in ends) for c, ends in zip(self.costs, own, strict=True)
        )
        shared = [(t.values.min(), t.values.max()) for t in self.losses]
        return float(low + sum(least for least, _ in shared)), float(
            high + sum(most for _, most in shared)
        )

    def describe(self) -> Json:
        """Parents, scopes and what each action changes; the tables are in the digest."""
        names = self.coordinates
        return {
            **super().describe(),
            "values": list(self.sizes),
            "parents": {names[i]: [names[j] for j in law.scope] for i, law in enumerate(self.laws)},
            "losses": [[names[j] for j in table.scope] for table in self.losses],
            "changes": {
                a: [names[i] for i in laws]
                for a, laws in zip(self.actions, self.changes, strict=True)
            },
            "costs": self.costs.tolist(),
        }

    # -- the compiled form -------------------------------------------------------------------------

    @cached_property
    def code(self) -> Code:
        """All tables as flat arrays, for the kernels in `_kernels/factored.py`."""
        tables = [*self.laws]
        changes = []
        loss_lists = []
        for laws in self.changes:
            changes.append([(i, len(tables) + k) for k, i in enumerate(laws)])
            tables += laws.values()
        for own in (self.losses, *self.own_losses):
            loss_lists.append(range(len(tables), len(tables) + len(own)))
            tables += own
        table, place, values = packed(tables, len(self.actions))
        fields = [
            np.array(self.sizes),
            table,
            place,
            np.cumsum([0, *map(len, changes)]),
            np.array([pair for own in changes for pair in own]).reshape(-1),
            np.cumsum([0, *map(len, loss_lists)]),
            np.concatenate([np.array(own, np.int64) for own in loss_lists]),
        ]
        starts = kernels.FACTORED_HEADER_SIZE + np.cumsum([0, *(f.size for f in fields)])[:-1]
        head = np.concatenate([[len(self.sizes), len(self.actions)], starts, [0]])
        listed = self.outcomes <= MOST_FACTORED_OUTCOMES
        pairs = self.outcomes * len(self.actions)
        backward = listed and pairs <= MOST_FACTORED_PREDECESSORS
        return Code(
            np.concatenate([head, *fields]).astype(np.int64),
            np.concatenate([self.costs, values]),
            kernels.allowed,
            kernels.loss,
            kernels.step,
            kernels.forward if listed else None,
            kernels.predecessors if backward else None,
            self.outcomes if listed else 0,
            pairs + 1 if backward else 0,  # one row to try the next state in
        )


def packed(tables: Sequence[Local], start: int) -> tuple[Ints, Ints, Floats]:
    """Tables as kernels read them: (first place, places, start), (coordinate, stride), and the
    entries.

    `start` is where the entries will lie. An axis beyond the scope, that of a law, is read from its
    beginning.
    """
    rows = []
    places = []
    entries = []
    at = start
    count = 0
    for table in tables:
        steps = [
            step // table.values.itemsize for step in np.ascontiguousarray(table.values).strides
        ]
        places += list(zip(table.scope, steps, strict=False))  # a law has an axis more
        rows.append((count, len(table.scope), at))
        entries.append(np.ascontiguousarray(table.values).ravel())
        at = at + entries[-1].size
        count = count + len(table.scope)
    if entries:
        flat = np.concatenate(entries)
    else:
        flat = np.zeros(0)
    return np.array(rows, np.int64).reshape(-1), np.array(places, np.int64).reshape(-1), flat
