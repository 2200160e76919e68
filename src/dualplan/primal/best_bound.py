"""The best lower bound on the optimal cost that some time allows, and what gave it.

Where states can be listed, sweeps of value iteration from the potentials at hand and from 0
(`evaluation/lower_bounds.py`): for some million states a proof within reach, after the search and
never in it. In networks beyond, potentials on cells that hold at every state (`primal/orthant.py`),
in families that grow: squares of the queue lengths; with them indicators of empty queues; products
of capped lengths, of rising degree. In factored models the program with all constraints, by
variable elimination. Elsewhere the least loss that the model declares, which is proved and mostly
0.

Families are taken in turn as long as the last one took less than a fraction of the time that is
left. All of these bounds are proved, and so is the largest. Where not even the least loss is known,
the bound is statistical.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from dualplan import primal
from dualplan.core.budgets import MOST_LISTED_STATES, Clock, seconds
from dualplan.core.checks import require_seed, require_whole
from dualplan.core.deadlines import until
from dualplan.core.errors import InputError, MissingError, OutOfTimeError
from dualplan.core.status import PROVED, UNKNOWN
from dualplan.evaluation.lower_bounds import LowerBound, lower_bound
from dualplan.exact.operators import Sweeper
from dualplan.models.contract import Model
from dualplan.models.criteria import Average, Criterion, Discounted, require_criterion
from dualplan.models.factored import FactoredModel
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.values.functions import StateFunction

# of value iteration: at most so many; outcomes a second where they are not compiled
MOST_BOUND_SWEEPS = 1_000
OUTCOMES_A_SECOND = 1.5e7
SWEEP_SECONDS_BEYOND = 1.5  # the time, that a first sweep may take
# squares need 2^classes cells; where these are many, the tolerance is larger
MOST_SQUARE_CELLS = 4_096
FEW_SQUARE_CELLS = 256
CAPPED_FAMILIES = ((20, 4), (20, 5), (20, 6))  # capped at, up to degree: four classes or fewer
FAMILY_TIME_GROWTH = 4.0  # the next family takes about so many times as long as the last

Proof = Callable[[], LowerBound]


def sweeps_for(model: Model, seconds: float) -> int:
    """So many as are quick, or take so long: sweeps that are not compiled go through all outcomes
    of all pairs.
    """
    if Sweeper(model).swift:
        return MOST_BOUND_SWEEPS
    outcomes = int(model.box.count or 0) * len(model.actions) * model.code.max_outcomes
    return max(1, min(MOST_BOUND_SWEEPS, int(seconds * OUTCOMES_A_SECOND / outcomes)))


def best_bound(
    model: Model,
    criterion: Criterion | None = None,
    *,
    potentials: Sequence[StateFunction | None] = (),
    time: str | float = 10.0,
    sweeps: int | None = None,
    seed: int = 0,
) -> LowerBound:
    """The largest lower bound of all families that are tried.

    `functions` of it says what it came from.
    """
    allowed = seconds(time)
    clock = Clock(allowed)
    criterion = require_criterion(criterion)
    require_seed(seed)
    if sweeps is not None:
        require_whole("sweeps", sweeps)
    listed = not isinstance(model, SimulatorModel) and model.has_forward
    if not listed and not isinstance(model, FactoredModel):
        return LowerBound(
            -math.inf, UNKNOWN, "", (), functions="nothing: the model does not list its next states"
        )
    if listed and _listable(model) and sweeps is None and not _has_time(model, allowed):
        return _declared(model, criterion) or LowerBound(
            -math.inf, UNKNOWN, "", (), functions="nothing: a sweep over all states takes longer"
        )
    if _listable(model) or not listed:
        least = None
    else:
        least = lower_bound(model, criterion, potential=None, seed=seed)
    if least is not None and least.kind == PROVED:
        best = least
    else:
        best = None
    last = 0.0
    for name, prove in _families(model, criterion, potentials, sweeps, allowed):
        if best is not None and FAMILY_TIME_GROWTH * last > clock.left:
            break
        before = clock.spent
        try:
            with until(clock):
                found = prove()
        except (InputError, MissingError):
            # such functions are not for this model, or need more room than there is
            continue
        except OutOfTimeError:
            break
        last = clock.spent - before
        if (
            found.kind == PROVED
            and not found.assumed
            and (best is None or found.value > best.value)
        ):
            best = replace(found, functions=name)
    if best is None and not listed:
        return LowerBound(-math.inf, UNKNOWN, "", (), functions="nothing")
    declared = _declared(model, criterion)
    if best is not None and declared is not None and declared.value > best.value:
        return declared
    if best is None:  # nothing is proved: what drawn states say, labelled as such
        if least is None:
            best = lower_bound(model, criterion, potential=None, seed=seed)
        else:
            best = least
    return best


def _listable(model: Model) -> bool:
    few = model.box.count is not None and model.box.count <= MOST_LISTED_STATES
    return few and model.has_forward


def _has_time(model: Model, seconds: float) -> bool:
    """Whether a first sweep ends in so many seconds, or soon after."""
    try:
        return Sweeper(model).seconds_of_one <= seconds + SWEEP_SECONDS_BEYOND
    except (InputError, MissingError):  # which a sweep says again
        return True


def _declared(model: Model, criterion: Criterion) -> LowerBound | None:
    """The least loss that the model declares, for ever."""
    if model.least_loss is None:
        return None
    gamma = criterion.gamma if isinstance(criterion, Discounted) else 0.0
    start = tuple(model.start.tolist())
    least = model.least_loss / (1 - gamma)
    return LowerBound(least, PROVED, criterion.words, start, functions="the least loss")


def _families(
    model: Model,
    criterion: Criterion,
    potentials: Sequence[StateFunction | None],
    sweeps: int | None,
    seconds: float,
) -> Iterator[tuple[str, Proof]]:
    """Names and proofs, the quickest first."""
    if _listable(model):
        if sweeps is None:
            count = sweeps_for(model, seconds)
        else:
            count = sweeps
        starts: list[StateFunction | None] = [None, *(h for h in potentials if h is not None)]
        for h in starts[::-1]:
            name = f"{count:,} sweeps of value iteration from " + (
                "0" if h is None else "the policy's values"
            )
            yield name, partial(lower_bound, model, criterion, potential=h, sweeps=count)
    elif primal.has_cells(model):
        for name, basis in _on_cells(model):
            yield (
                f"a linear program with {name}, {len(basis)} functions on cells",
                partial(_orthant, model, basis, criterion),
            )
    elif isinstance(model, FactoredModel) and isinstance(criterion, Average):
        local = {
            "single variables": primal.single_indicators(model),
            "pairs": primal.pair_indicators(model),
        }
        for name, functions in local.items():
            yield (
                f"a linear program with indicators of {name}, {len(functions)} functions",
                partial(_factored, model, functions),
            )


def _on_cells(model: QueueingNetwork) -> Iterator[tuple[str, primal.Basis]]:
    """Functions of the queue lengths; families with more cuts are for networks of few classes."""
    classes = range(len(model.classes))
    squares = primal.monomials(model, 2, coordinates=classes)
    cells = 2 ** len(classes)
    if FEW_SQUARE_CELLS < cells <= MOST_SQUARE_CELLS:
        apart = [
            [i for i in classes if model.classes[i].server == server] for server in model.servers
        ]
        own = [primal.monomials(model, 2, coordinates=one) for one in apart]
        yield "squares within stations", primal.concat(*own)
    if cells <= MOST_SQUARE_CELLS:
        yield "squares", squares
    # such indicators are of all coordinates, the event too
    if cells <= FEW_SQUARE_CELLS and not model.per_server:
        empty = primal.boundaries(model, 1 if cells <= 64 else 0)
        yield "squares and empty queues", primal.concat(squares, empty)
    for cap, degree in CAPPED_FAMILIES if len(classes) <= 4 else ((3, 3),) if cells <= 64 else ():
        capped = primal.capped_monomials(model, degree, cap, coordinates=classes)
        yield f"squares and min(x, {cap}) to degree {degree}", primal.concat(squares, capped)


def _orthant(model: Model, basis: primal.Basis, criterion: Criterion) -> LowerBound:
    many = primal.has_cells(model) and 2 ** len(model.classes) > FEW_SQUARE_CELLS
    return primal.orthant_bound(model, basis, criterion, tol=1e-2 if many else 1e-3).lower_bound


def _factored(model: FactoredModel, basis: primal.LocalBasis) -> LowerBound:
    return primal.factored_average_bound(model, basis).lower_bound
