"""The linearly relaxed approximate linear program (Lakshminarayanan, Bhatnagar & Szepesvári 2018),
discounted.

    maximise  cᵀΨw   subject to   Wᵀ A w <= Wᵀ ℓ,      A = BΨ − γPΨ with a row for each pair (x, a),

W >= 0 with a row for each pair and m columns: m mixtures of constraints in place of all of them.
Three ways to W:

    Mixtures(m, k)   each column a random mixture of k pairs (weights uniform on the simplex), drawn
                     from all pairs, or
                     from those of sampled states; k = 1 is constraint sampling
    a basis φ >= 0   W((x,a), (j,b)) = φ_j(x)·1{a = b}: with `boxes`, the constraints of a box of
                     states are added up,
                     action by action; over all states, or over those sampled
    a matrix         sparse or not, with a row for each allowed pair of an enumerable model: states
                     in the order of
                     their numbers, for each its allowed actions

Scaling a column changes nothing, so columns are made to sum to 1; columns of zeros are left out.

*What holds.* Every w that keeps all constraints keeps their mixtures: this is a relaxation, its
optimum is at least the ALP's, values may exceed J*, and **the optimum bounds nothing**; W
= identity is the ALP. The dual is the ALP's with measures u = Wv, v >= 0. So the program is bounded
if and only if some u in the cone of the columns has Aᵀu = Ψᵀc (given a feasible w), and it has the
ALP's optimum if and only if the cone holds an optimal u of the ALP's dual: columns should look like
occupancies of good policies, and W spread over many pairs tends to leave the program unbounded.

With v >= 0 at least the largest violation of single constraints, Ψw − v/(1−γ) is feasible for the
ALP with a constant added to Ψ, thus below J*; as cᵀΨw is at least that of the ALP's solution w°,

    ‖J* − Ψw‖_{1,c}  <=  ‖J* − Ψw°‖_{1,c} + 2v/(1−γ).

`violation` is the largest one, by a sweep, unless constraints were sampled. (The paper bounds the
error beforehand, by quantities that need J*; these are not computed.) `solution.lower_bound` sweeps
the potential and holds whatever W was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp

from dualplan.core.checks import require_counts
from dualplan.core.errors import InputError
from dualplan.core.status import Status
from dualplan.core.streams import MixtureWord
from dualplan.core.types import Floats, Ints
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.models.criteria import Discounted, require_discounted
from dualplan.models.transitions import allowed_pairs, allowed_rows
from dualplan.policies.contract import Policy
from dualplan.primal.program import ROW_NUMBERS_AT_ONCE, Pairs, Program, maximise_in_parts
from dualplan.primal.relevance import Relevance
from dualplan.primal.settings import (
    GENERATED_CONSTRAINTS,
    SAMPLED_CONSTRAINTS,
    Settings,
    SettingsKeywords,
    check,
    relevant,
)
from dualplan.primal.solution import PrimalSolution
from dualplan.values.basis import Basis

Part = tuple[Pairs, sp.csr_array]  # some pairs and their rows of W


@dataclass(frozen=True)
class Mixtures:
    """Random mixtures of constraints: so many, each of so many pairs."""

    columns: int
    pairs: int = 1

    def __post_init__(self) -> None:
        require_counts(columns=self.columns, pairs=self.pairs)


def aggregated_alp(
    model: Model,
    basis: Basis,
    criterion: Discounted,
    *,
    weights: Mixtures | Basis | Any,
    relevance: Relevance | Policy | None = None,
    **settings: Unpack[SettingsKeywords],
) -> PrimalSolution:
    """Solve the linearly relaxed program; `weights` is W as above, `settings` are the fields of
    `Settings`.

    Pairs are all of an enumerable model, or those of states drawn from `sample`; constraints are
    never generated. `relevance` is c, by default geometric with ratio 0.9; a policy stands for its
    discounted occupancy.
    """
    started = time.monotonic()
    wanted = Settings.of(settings)
    check(model, basis)
    require_discounted(criterion, "aggregated_alp")
    if wanted.constraints == GENERATED_CONSTRAINTS:
        raise InputError(
            "mixtures of constraints are of all or of sampled ones, not of generated ones."
        )
    drawn = wanted.way(model, len(basis)) == SAMPLED_CONSTRAINTS
    moments = relevant(model, relevance, criterion, wanted.seed).moments(basis)
    program = Program(basis, criterion.gamma, moments, weight_bound=wanted.weight_bound)
    matrix, right = _mixed(program, weights, wanted, wanted.drawn(model) if drawn else None)
    found = maximise_in_parts(moments, matrix, right, wanted.weight_bound, basis.names)
    if drawn:
        violation = None
    else:
        violation = float(program.excess(Sweeper(model, wanted.threads), found)[0].max())
    if drawn:
        status = Status.SAMPLED
    else:
        status = Status.RELAXED
    if violation is not None and violation <= wanted.tol:
        status = Status.SOLVED
    return PrimalSolution(
        basis,
        criterion,
        f"aggregated alp, {_word(weights)}",
        found,
        float(moments @ found),
        status,
        right.size,
        1,
        time.monotonic() - started,
        wanted.seed,
        violation=violation,
    )


def _word(weights: object) -> str:
    if isinstance(weights, Mixtures):
        return "mixtures"
    if isinstance(weights, Basis):
        return "functions"
    return "matrix"


def _mixed(
    program: Program, weights: Any, wanted: Settings, drawn: Ints | None
) -> tuple[Floats, Floats]:
    """WᵀA and Wᵀℓ, added up over parts of the pairs; columns of W sum to 1."""
    matrix = np.zeros((0, program.width))
    right = np.zeros(0)
    masses = np.zeros(0)
    for (states, actions), part in _parts(program, weights, wanted.seed, drawn):
        if part.data.size and part.data.min() < 0:
            raise InputError("mixtures of constraints need weights >= 0; one is negative.")
        rows, losses = program.rows(states, actions)
        if not masses.size:
            matrix, right, masses = (
                np.zeros((part.shape[1], program.width)),
                *np.zeros((2, part.shape[1])),
            )
        matrix += part.T @ rows
        right += part.T @ losses
        masses += part.sum(axis=0)
    seen = masses > 0
    if not seen.any():
        raise InputError(
            "all weights of the mixtures are 0 at the pairs at hand, so there is no constraint."
        )
    return matrix[seen] / masses[seen, None], right[seen] / masses[seen]


def _parts(program: Program, weights: Any, seed: int, drawn: Ints | None) -> Iterator[Part]:
    """Pairs, and their rows of W; as many at once as fit."""
    model = program.model
    if isinstance(weights, Mixtures):
        return _split(
            program,
            _random_pairs(model, weights.columns * weights.pairs, seed, drawn),
            _random(weights, seed),
        )
    if isinstance(weights, Basis):
        check(model, weights)
        return _by_function(program, weights, drawn)
    if drawn is not None:
        raise InputError(
            "a matrix of weights has rows for all pairs; for sampled ones take Mixtures or a basis."
        )
    pairs = allowed_pairs(model, model.box.states(np.arange(Sweeper(model).states)))
    return _split(program, pairs, _checked(weights, pairs[1].size))


def _checked(given: Any, count: int) -> sp.csr_array:
    matrix_like = isinstance(given, (np.ndarray, sp.sparray, sp.spmatrix))
    if not matrix_like or np.dtype(given.dtype).kind not in "biuf":
        raise InputError(
            f"weights are Mixtures(columns, pairs), a basis, or a matrix over pairs, got {given!r}."
        )
    if given.ndim != 2 or given.shape[0] != count or given.shape[1] < 1:
        raise InputError(
            f"a matrix of weights needs a row for each of {count:,} pairs, got the shape "
            f"{given.shape}."
        )
    matrix = sp.csr_array(given, dtype=np.float64)
    if not np.isfinite(matrix.data).all():
        raise InputError("mixtures of constraints need finite weights.")
    return matrix


def _split(program: Program, pairs: Pairs, matrix: sp.csr_array) -> Iterator[Part]:
    """The pairs with weights, in parts."""
    used = np.flatnonzero(np.diff(matrix.indptr))
    size = max(1, ROW_NUMBERS_AT_ONCE // program.width)
    for first in range(0, used.size, size):
        piece = used[first : first + size]
        yield (np.ascontiguousarray(pairs[0][piece]), pairs[1][piece]), matrix[piece]


def _by_function(program: Program, functions: Basis, drawn: Ints | None) -> Iterator[Part]:
    """Function j and action b make column b·J + j."""
    model = program.model
    width = len(functions)
    if drawn is None:
        rows = None
    else:
        rows = np.unique(drawn, axis=0)
    if rows is None:
        count = Sweeper(model).states
    else:
        count = len(rows)
    size = max(1, ROW_NUMBERS_AT_ONCE // ((program.width + width) * len(model.actions)))
    for first in range(0, count, size):
        numbers = np.arange(first, min(first + size, count))
        if rows is None:
            states = model.box.states(numbers)
        else:
            states = rows[numbers]
        where, actions = allowed_rows(model, states)
        values = functions(states)[where]
        at, j = np.nonzero(values)
        entries = values[at, j], (at, actions[at] * width + j)
        part = sp.csr_array(entries, shape=(actions.size, len(model.actions) * width))
        yield (np.ascontiguousarray(states[where]), actions), part


def _random(wanted: Mixtures, seed: int) -> sp.csr_array:
    """Pairs one after the other, `pairs` of them to each column, with weights uniform on the
    simplex.
    """
    count = wanted.columns * wanted.pairs
    shares = np.random.default_rng([seed, MixtureWord.SHARES]).exponential(size=count)
    return sp.csr_array(
        (shares, np.arange(count) // wanted.pairs, np.arange(count + 1)), (count, wanted.columns)
    )


def _random_pairs(model: Model, count: int, seed: int, drawn: Ints | None) -> Pairs:
    """States at random, all alike or among those drawn, and an allowed action of each."""
    rng = np.random.default_rng([seed, MixtureWord.PAIRS])
    if drawn is None:
        of = Sweeper(model).states
    else:
        of = len(drawn)
    chosen = rng.integers(of, size=count)
    states = np.ascontiguousarray(model.box.states(chosen) if drawn is None else drawn[chosen])
    rows, actions = allowed_rows(model, states)
    many = np.bincount(rows, minlength=count)
    return states, actions[np.cumsum(many) - many + rng.integers(many)]
