"""The laws of a network by case, for `_kernels/law_sweep.py`."""

from __future__ import annotations

import itertools
import math

import numpy as np

from dualplan._kernels.law_sweep import CaseLaws
from dualplan.models.queueing import QueueingNetwork

MOST_LISTED_LAWS = 20_000  # cases times actions


def laws_of(model: QueueingNetwork) -> CaseLaws | None:
    """The laws of a network with preemptive service and joint decisions, unless they are too
    many.
    """
    if model.nonpreemptive or model.per_server:
        return None
    top = model.box.upper
    into = [d for route in model.routes for d, _ in route]
    comers = np.array([(c.arrival > 0) + into.count(i) for i, c in enumerate(model.classes)])
    cases = np.minimum(top + 1, 2 + comers)
    if math.prod(int(m) for m in cases) * len(model.actions) > MOST_LISTED_LAWS:
        return None
    places = [
        [0, 1, *range(t + 3 - m, t + 1)][:m]
        for t, m in zip(top.tolist(), cases.tolist(), strict=True)
    ]
    shifts = []
    probabilities = []
    penalties = []
    for x in itertools.product(*places):
        for a in range(len(model.actions)):
            law = model.forward(x, a)
            moves, where = np.unique(
                (law.states - np.array(x)) @ model.box.strides, return_inverse=True
            )
            shifts.append(moves)
            probabilities.append(np.bincount(where.ravel(), law.probabilities))
            penalties.append(model.loss(x, a) - model.holding_cost(x))
    ptr = np.cumsum([0, *(len(s) for s in shifts)])
    weights = np.append(np.cumprod(cases[:0:-1])[::-1], 1).astype(np.int64)
    return CaseLaws(
        cases,
        weights,
        ptr,
        np.concatenate(shifts),
        np.concatenate(probabilities),
        np.array(penalties),
        len(model.actions),
    )
