"""Sweeps over all states by a table of their transitions.

The operators are those of `sweep.py`. There a model's own functions list its law in every sweep,
which needs no memory; here the law was listed once, row after row, so that a sweep only multiplies
and adds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualplan._kernels.compiler import FLOATS, INT, INTS, group, helper, kernel
from dualplan._kernels.sweep import UPDATE, note
from dualplan.core.types import Floats, Ints


class PairTable(NamedTuple):
    """All pairs (x, a), state by state.

    `firsts` has the first pair of each state, and the number of pairs; `rows` the first entry of
    each pair, and the number of entries; `columns` the next states and `entries` their
    probabilities; `losses` and `actions` those of the pairs.
    """

    firsts: Ints
    rows: Ints
    columns: Ints
    entries: Floats
    losses: Floats
    actions: Ints


PAIR_TABLE = group(PairTable, INTS, INTS, INTS, FLOATS, FLOATS, INTS)


@helper
def image(table, gamma, values, pair):
    """ℓ + γ·Σ P V of a pair."""
    total = 0.0
    for k in range(table.rows[pair], table.rows[pair + 1]):
        total += table.entries[k] * values[table.columns[k]]
    return table.losses[pair] + gamma * total


@kernel(INT(PAIR_TABLE, UPDATE, FLOATS, INT, INT))
def optimal(table, update, ends, first, last):
    """Sweep with L.

    -1, or the number of a state whose image is no number.
    """
    values = update.values
    for index in range(first, last):
        least = np.inf
        action = np.int64(-1)
        for pair in range(table.firsts[index], table.firsts[index + 1]):
            q = image(table, update.gamma, values, pair)
            if not np.isfinite(q):
                return index
            if q < least:
                least = q
                action = table.actions[pair]
        difference = least - values[index]
        update.out[index] = values[index] + update.damping * difference
        note(ends, difference)
        if update.best.size > 0:
            update.best[index] = action
    return np.int64(-1)


@kernel(INT(PAIR_TABLE, INTS, UPDATE, FLOATS, INT, INT))
def fixed(table, actions, update, ends, first, last):
    """Sweep with the operator of a table of actions.

    -1, or the number of a state that forbids its action.
    """
    values = update.values
    for index in range(first, last):
        pair = table.firsts[index]
        while pair < table.firsts[index + 1] and table.actions[pair] != actions[index]:
            pair += 1
        if pair == table.firsts[index + 1]:
            return index
        q = image(table, update.gamma, values, pair)
        if not np.isfinite(q):
            return index
        difference = q - values[index]
        update.out[index] = values[index] + update.damping * difference
        note(ends, difference)
    return np.int64(-1)
