"""Functions of few variables of a factored model, whose weighted sums stand for values: h(x) = Σ_k
w_k ψ_k(x_S(k)).

What such a sum is expected to be after a step needs no list of next states. Given the state the
variables move independently, so that the *backprojection*

    g_k(x, a) = E[ψ_k(x') | x, a] = Σ_{y over S(k)} ψ_k(y) Π_{i in S(k)} P_i(y_i | x_parents(i), a)

depends on the parents of S(k) alone (Koller & Parr 1999). An action that changes none of the laws
of S(k) shares g_k with those that do not either. The mean of ψ_k under independent variables is a
sum over S(k).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualplan._kernels.compiler import Data
from dualplan.core.checks import require_counts
from dualplan.core.errors import InputError
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.models.factored import MOST_TABLE_ENTRIES, FactoredModel, Given, Local
from dualplan.values.basis import Basis


@dataclass(frozen=True, eq=False)
class LocalBasis:
    """Functions of few variables each, of one factored model."""

    model: FactoredModel
    functions: tuple[Local, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_factored(self.model)
        if not self.functions or len(self.names) != len(self.functions):
            raise InputError(
                f"a basis needs functions, and as many names; got {len(self.functions)}, "
                f"{len(self.names)}."
            )

    def __len__(self) -> int:
        return len(self.functions)

    def __call__(self, states: ArrayLike) -> Floats:
        """ψ of states, one a row: a row of numbers for each."""
        rows = np.asarray(states, np.int64)
        if rows.ndim != 2 or rows.shape[1] != self.model.box.dim:
            raise InputError(
                f"states of {self.model.name!r} are rows of {self.model.box.dim} integers."
            )
        return np.stack([psi(rows) for psi in self.functions], axis=1)

    def __add__(self, other: LocalBasis) -> LocalBasis:
        """The functions of both; those of one scope with the same table count once."""
        if other.model is not self.model and other.model.digest != self.model.digest:
            raise InputError(
                f"the bases belong to {self.model.name!r} and {other.model.name!r}, not to one "
                "model."
            )
        both = zip(self.functions + other.functions, self.names + other.names, strict=True)
        seen = {
            (psi.scope, psi.values.tobytes()): (psi, name) for psi, name in reversed(list(both))
        }
        kept = list(reversed(seen.values()))
        return LocalBasis(
            self.model, tuple(psi for psi, _ in kept), tuple(name for _, name in kept)
        )


@dataclass(frozen=True, eq=False)
class LocalValues(Data):
    """Σ_k w_k ψ_k, a function of states, one a row."""

    basis: LocalBasis
    weights: Floats

    def __call__(self, states: Ints) -> Floats:
        """The values at these states."""
        return np.asarray(self.basis(states) @ self.weights)

    @property
    def size(self) -> float:
        """Σ_k |w_k| max|ψ_k|: no value is larger."""
        return math.fsum(
            abs(w) * psi.largest for w, psi in zip(self.weights, self.basis.functions, strict=True)
        )


def _require_factored(model: object) -> None:
    if not isinstance(model, FactoredModel):
        raise InputError(
            f"functions of few variables need a FactoredModel, got {type(model).__name__}."
        )


# -- families --------------------------------------------------------------------------------------


def indicator_products(model: FactoredModel, scopes: Iterable[Sequence[str | int]]) -> LocalBasis:
    """For each scope the indicators of all its values other than 0; the empty scope is the
    constant.

    With all subsets of a scope among the scopes, they span all functions of it.
    """
    _require_factored(model)
    functions = []
    names = []
    for given in dict.fromkeys(tuple(scope) for scope in scopes):
        scope = sorted(model.variable(v) for v in given)
        sizes = [model.sizes[i] for i in scope]
        for values in itertools.product(*(range(1, size) for size in sizes)):
            table = np.zeros(sizes)
            table[values] = 1.0
            functions.append(model.local((scope, table), "an indicator"))
            words = (
                model.coordinates[i] + (f"={v}" if model.sizes[i] > 2 else "")
                for i, v in zip(scope, values, strict=True)
            )
            names.append("·".join(f"[{word}]" for word in words) or "1")
    return LocalBasis(model, tuple(functions), tuple(names))


def single_indicators(model: FactoredModel) -> LocalBasis:
    """The constant, and for each variable the indicators of its values other than 0."""
    _require_factored(model)
    return indicator_products(model, [(), *((i,) for i in range(len(model.sizes)))])


def pair_indicators(
    model: FactoredModel, edges: Iterable[Sequence[str | int]] | None = None
) -> LocalBasis:
    """Single indicators, and their products along edges, by default from each parent to each
    child.
    """
    _require_factored(model)
    pairs = [
        tuple(sorted(model.variable(v) for v in edge))
        for edge in (model.edges if edges is None else edges)
    ]
    varied = [
        pair for pair in pairs if all(model.sizes[i] > 1 for i in pair)
    ]  # a variable of one value is a constant
    if varied:
        return single_indicators(model) + indicator_products(model, varied)
    return single_indicators(model)


def chain_indicators(model: FactoredModel, length: int) -> LocalBasis:
    """Products of indicators of any variables on a chain parent → child → ... of at most `length`
    variables.

    Of length 1 these are the single indicators, of length 2 the pairs along edges.
    """
    _require_factored(model)
    require_counts(length=length)
    children: dict[int, list[int]] = {}
    for j, i in model.edges:
        children.setdefault(j, []).append(i)
    chains: list[tuple[int, ...]] = [(i,) for i in range(len(model.sizes))]
    scopes: set[tuple[int, ...]] = {()}
    for _ in range(length):
        scopes.update(tuple(sorted(part)) for chain in chains for part in _subsets(chain))
        chains = [
            (*chain, i) for chain in chains for i in children.get(chain[-1], ()) if i not in chain
        ]
    return indicator_products(model, sorted(scopes, key=lambda scope: (len(scope), scope)))


def _subsets(chain: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    """Those that hold the last variable; the others are on a shorter chain."""
    return (
        (*part, chain[-1])
        for size in range(len(chain))
        for part in itertools.combinations(chain[:-1], size)
    )


def local_tables(
    model: FactoredModel, tables: Sequence[Given], names: Sequence[str] | None = None
) -> LocalBasis:
    """Functions of the user: (scope, table) each."""
    _require_factored(model)
    made = tuple(model.local(given, f"function {k}") for k, given in enumerate(tables))
    return LocalBasis(
        model,
        made,
        tuple(names) if names is not None else tuple(f"table {k}" for k in range(len(made))),
    )


def local_basis(model: FactoredModel, basis: Basis) -> LocalBasis:
    """Products of pieces as tables over the coordinates of their pieces."""
    _require_factored(model)
    if basis.user:
        raise InputError(
            "functions of the user depend on all variables; give tables (local_tables)."
        )
    made = []
    for k, product in enumerate(basis.products):
        scope = tuple(sorted({i for piece in product for i in piece.coordinates}))
        sizes = tuple(model.sizes[i] for i in scope)
        states = np.zeros((math.prod(sizes), len(model.sizes)), np.int64)
        for i, values in zip(scope, np.indices(sizes), strict=True):
            states[:, i] = values.ravel()
        one = Basis(basis.model, (product,), (basis.labels[k],))
        made.append(model.local((scope, one(states)[:, 0].reshape(sizes)), basis.labels[k]))
    return LocalBasis(model, tuple(made), basis.labels)


# -- expectations ----------------------------------------------------------------------------------


def backprojection(model: FactoredModel, psi: Local, a: int | None = None) -> Local:
    """E[ψ(x') | x, a] as a function of the parents of ψ's scope; without an action by the laws that
    none changes.

    Next values are summed out one variable after another, each against its law.
    """
    laws = [model.laws[i] if a is None else model.law(i, a) for i in psi.scope]
    parents = tuple(sorted(set().union(*(law.scope for law in laws))))
    number = {i: k for k, i in enumerate(parents)}
    axes = [len(parents) + k for k in range(len(psi.scope))]
    values = psi.values
    for k, law in enumerate(laws):
        here = [number[j] for j in law.scope]
        left = sorted({*axes, *here} - {len(parents) + k})
        _require_small(
            psi, left, [*(model.sizes[j] for j in parents), *(model.sizes[i] for i in psi.scope)]
        )
        values = _contracted(values, axes, law.values, [*here, len(parents) + k], left)
        axes = left
    return Local(parents, values)


def _contracted(
    first: Floats, axes: list[int], second: Floats, others: list[int], left: list[int]
) -> Floats:
    """The sum of products over the axes that are not left."""
    label = {axis: k for k, axis in enumerate(sorted({*axes, *others}))}  # einsum knows few labels
    operands: list[Any] = [first, [label[k] for k in axes], second, [label[k] for k in others]]
    return np.asarray(np.einsum(*operands, [label[k] for k in left]))


def _require_small(psi: Local, axes: Sequence[int], sizes: Sequence[int]) -> None:
    entries = math.prod(sizes[k] for k in axes)
    if entries > MOST_TABLE_ENTRIES:
        raise InputError(
            f"what a function of {len(psi.scope)} variables leads to depends on {len(axes)} others "
            f"({entries:.2g} values, more than {MOST_TABLE_ENTRIES:,}); use functions of smaller "
            "scope, "
            "or a model with fewer parents."
        )


def combined(model: FactoredModel, tables: Sequence[Local]) -> Local:
    """The sum of functions as one table over all their variables."""
    scope = tuple(sorted(set().union(*(table.scope for table in tables))))
    total = np.zeros([model.sizes[i] for i in scope])
    for table in tables:
        total += table.values.reshape([model.sizes[i] if i in table.scope else 1 for i in scope])
    return Local(scope, total)


def independent_mean(psi: Local, laws: Sequence[Floats]) -> float:
    """E ψ(x) for independent variables with these laws."""
    value = psi.values
    for i in reversed(psi.scope):
        value = value[..., : laws[i].size] @ laws[i]  # geometric laws leave out what is negligible
    return float(value)
