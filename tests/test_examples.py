"""The examples run, and what they print is the truth: optima from linear programs written out
here.
"""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog
from scipy.sparse import csr_array

import dualplan as dp

EXAMPLES = Path(__file__).parents[1] / "examples"
TOLERANCE = 1e-4  # HiGHS keeps each of some hundred constraints to 1e-7


def example(name):
    """What the file defines, without running it."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")


def least(pairs, states, limit=None):
    """The least average cost over stationary occupancies: min ℓᵀu, u >= 0, flow in = flow out, mass
    1, gᵀu <= 0.

    `pairs` is a list of (state, next states and probabilities, loss), `limit` a list of g.
    """
    rows, columns, entries = [], [], []
    for j, (x, law, _) in enumerate(pairs):
        for y, p in [*law, (x, -1.0)]:
            rows.append(states[y]), columns.append(j), entries.append(p)
    rows += [len(states)] * len(pairs)
    flow = csr_array((entries + [1.0] * len(pairs), (rows, [*columns, *range(len(pairs))])))
    right = np.append(np.zeros(len(states)), 1.0)
    inequality = {} if limit is None else {"A_ub": np.array([limit]), "b_ub": [0.0]}
    found = linprog([loss for _, _, loss in pairs], A_eq=flow, b_eq=right, **inequality)
    assert found.status == 0
    return found.fun


def from_functions(law, upper, actions, events):
    """All pairs of a model that is given as an example's plain functions."""
    box = list(itertools.product(*(range(u + 1) for u in upper)))
    pairs = []
    for x in box:
        for a in range(actions):
            chances = [(e, law["probability"](np.array(x), a, e)) for e in range(events)]
            nexts = [
                (tuple(int(v) for v in law["move"](np.array(x), a, e)), p)
                for e, p in chances
                if p > 0
            ]
            pairs.append((x, nexts, law["loss"](np.array(x), a)))
    return pairs, {x: i for i, x in enumerate(box)}


def test_machine_maintenance():
    """The policy found costs the optimum, and each rule more."""
    given = example("machine_maintenance")
    costs = given["main"]("2s")
    optimum = least(*from_functions(given, [4] * 4, 5, 6))
    assert costs["optimum"] == pytest.approx(optimum, abs=TOLERANCE)
    rules = [cost for name, cost in costs.items() if name.startswith("from stage")]
    assert len(rules) == 4
    assert min(rules) > 1.02 * optimum
    assert costs["optimal"] == pytest.approx(optimum, abs=2 * TOLERANCE)


def test_priority_queue():
    """Both priorities are beaten, and few states in a lattice come near the optimum."""
    given = example("priority_queue")
    costs = given["main"]()
    optimum = least(*from_functions(given, [24, 24], 2, 5))
    assert costs["optimum"] == pytest.approx(optimum, abs=TOLERANCE)
    rules = costs["class 1 first"], costs["class 2 first"]
    found = next(cost for name, cost in costs.items() if name.startswith("lattice"))
    assert optimum - TOLERANCE <= found < 1.002 * optimum < 1.005 * optimum < min(rules)


def lost_sales(capacity, most, demand, penalty):
    """Lead time 2: (on hand, arriving next period), an order of what the capacity allows."""
    tail = stats.poisson(demand).pmf(np.arange(60))
    box = list(itertools.product(range(capacity + 1), range(most + 1)))
    pairs = []
    for x in box:
        loss = sum(p * (max(x[0] - d, 0) + penalty * max(d - x[0], 0)) for d, p in enumerate(tail))
        for a in range(most + 1):
            if a == 0 or a + sum(x) <= capacity:
                nexts = [
                    ((min(max(x[0] - d, 0) + x[1], capacity), a), p) for d, p in enumerate(tail)
                ]
                pairs.append((x, nexts, loss))
    return pairs, {x: i for i, x in enumerate(box)}


def test_inventory_lead_time():
    """The optimum of lead time 2; rules are above it, and the cap helps."""
    given = example("inventory_lead_time")
    rows = given["main"]()
    capacity = dp.load("lost-sales", lead_time=2, demand=2.0, penalty=4.0, max_order=5).capacity
    assert rows[0]["optimum"] == pytest.approx(
        least(*lost_sales(capacity, 5, 2.0, 4.0)), abs=TOLERANCE
    )
    for row in rows:
        assert row["optimum"] - 1e-6 <= row["capped"] < row["base-stock"]


def admission(at_most):
    """Five servers, room for twenty, arrivals 2 and 3, service 1; rejecting class 2 costs 2.

    Rejections 1 limited.
    """
    total, pairs, limit = 2.0 + 3.0 + 5.0, [], []
    for n, k in itertools.product(range(21), range(3)):
        for a in range(2):
            if a == 1 and (k == 0 or n == 20):
                continue
            m = n + a
            busy = min(m, 5) / total
            nexts = [
                ((m, 0), 0.5 - busy),
                ((m, 1), 2.0 / total),
                ((m, 2), 3.0 / total),
                ((m - 1, 0), busy),
            ]
            pairs.append(
                (
                    (n, k),
                    [(y, p) for y, p in nexts if p > 0],
                    m + (2.0 * total if k == 2 and a == 0 else 0.0),
                )
            )
            limit.append((k == 1) * ((a == 0) - at_most))
    return least(pairs, {x: i for i, x in enumerate(itertools.product(range(21), range(3)))}, limit)


def test_admission_with_limit():
    """The optimum under each limit, which its policy keeps.

    The price is the slope between neighbouring limits.
    """
    given = example("admission_with_limit")
    found = given["main"]()
    for at_most, solution in zip(given["LIMITS"], found, strict=True):
        assert solution.upper == pytest.approx(admission(at_most), abs=TOLERANCE)
        assert solution.limits[0].value <= at_most + 1e-9
    # relaxing the limit by ε moves gᵀu by ε times the share of steps with a customer of class 1 at
    # the door, 0.2
    saved = (admission(0.05) - admission(0.05 + 1e-4)) / 1e-4 / 0.2
    assert found[1].limits[0].multiplier == pytest.approx(saved, rel=0.01)
