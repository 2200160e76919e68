"""draft"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualplan._kernels import lattice as kernels
from dualplan._kernels.sweep import no_counts
from dualplan.criteria import Average, Criterion, Discounted
from dualplan.errors import InputError
from dualplan.exact.operators import expected_counts
from dualplan.exact.sparse import Table, policy_iteration
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy
from dualplan.primal.basis import LinearValues, monomials
from dualplan.primal.greedy import GreedyPolicy
from dualplan.primal.interpolation import Lattice, LatticeValues
from dualplan.primal.relevance import visited
from dualplan.status import Status
from dualplan.transitions import allowed_pairs, transitions
from dualplan.types import Floats, Ints, Json

ENTRIES = 2**22


def table_of(lattice, prices=None):
    model, code = lattice.model, lattice.model.code
    prices = np.zeros(0) if prices is None else prices
    counts = expected_counts(model) if prices.size else no_counts
    actions, place = len(model.actions), np.full(lattice.nodes, -1, np.int64)
    room = max(ENTRIES, actions * min(lattice.nodes, code.max_outcomes << model.box.dim))
    columns, entries = np.empty(room, np.int64), np.empty(room)
    pairs = min(room // 2, lattice.nodes * actions) + 1
    ends, nodes_of, actions_of, losses, beyond = *np.empty((3, pairs), np.int64), np.empty(pairs), np.empty(pairs)
    node, blocks, found = 0, [], []
    while node < lattice.nodes:
        node = kernels.node_rows(
            code.allowed, code.loss, code.forward, counts, code.ints, code.floats,
            lattice.ints, model.box.lower, model.box.upper, prices, actions, code.max_outcomes,
            node, lattice.nodes, place, columns, entries, ends, nodes_of, actions_of, losses, beyond
        )
        if node < 0:
            states, chosen = allowed_pairs(model, lattice.states[[-1 - node]])
            transitions(model, states, chosen)
        count = int(nodes_of[-1])
        size = int(ends[count - 1])
        pointer = np.concatenate([[0], ends[:count]])
        blocks.append(sp.csr_array((entries[:size].copy(), columns[:size].astype(np.int32), pointer.astype(np.int32)), shape=(count, lattice.nodes)))
        found.append((nodes_of[:count].copy(), actions_of[:count].copy(), losses[:count].copy(), beyond[:count].copy()))
    nodes, acts, costs, over = (np.concatenate(part) for part in zip(*found, strict=True))
    return Table(nodes, acts, sp.csr_array(sp.vstack(blocks)) if len(blocks) > 1 else blocks[0], costs), over

def expected(table, v):
    code=v.model.code; out=np.empty(table.states.size)
    kernels.expected_values(code.forward, code.ints, code.floats, v.lattice.ints, v.floats, code.max_outcomes, table.states, table.actions, out)
    return out


def knots_of(low, high, upper_dense, ratio):
    """Gaps grow with the distance from the ends."""
    knots = [low]
    while knots[-1] < high:
        v = knots[-1]
        d = v - low
        if upper_dense:
            # gap g such that g <= max(1, ratio*(high - v - g))
            d = min(d, (high - v) / (1 + ratio))
        knots.append(min(high, v + max(1, int(ratio * d))))
    return np.array(knots)


def fit_knots(model, ends, dense, keep, nodes):
    lo = model.box.lower
    def make(ratio):
        return [knots_of(int(lo[i]), int(ends[i]), bool(dense[i]), 0.0 if keep[i] else ratio) for i in range(model.box.dim)]
    def size(r): return np.prod([float(k.size) for k in make(r)])
    a, b = 0.0, 64.0
    if size(a) <= nodes: return tuple(make(a))
    for _ in range(40):
        m = (a + b) / 2
        if size(m) <= nodes: b = m
        else: a = m
    return tuple(make(b))
