"""Inventory with lost sales: Zipkin (2008), *Old and new methods for lost-sales inventory systems*;
by default Poisson demand of mean 5, holding 1, penalty 4, lead time 4.

The optimum and the rules are computed over all states of truncations: stock and pipeline together,
and a single order, are limited to shares (`BASE_STOCK_SHARES`) of the model's own limits. Whatever
a truncated model allows the full one allows, so its optimum is an upper bound; that it no longer
moves from one truncation to the next is measured.

Myopic orders what minimises the expected cost f(x, z) of the period in which the order arrives.
Myopic-2 looks one period further: it minimises f(x, z) + E min_z' f(x', z'). With arrivals a₁, …,
a_k to come,

    f₀(i) = c(i),    f_k(i; a₁, …, a_k) = E f_(k−1)((i − D)⁺ + a₁; a₂, …, a_k),    f = f_L.

The paper's better vector base-stock policy is not in the library; its figure stands alone.
"""

from __future__ import annotations

import numpy as np

from dualplan.cli.experiments.measure import SEARCH_ROW, exactly, searched
from dualplan.cli.experiments.rows import Figure, Outcome, Progress, Row, agreeing, below
from dualplan.core.errors import InputError
from dualplan.core.types import Floats, Json
from dualplan.exact.iteration import solve_exact
from dualplan.models.instances.inventory import LostSales
from dualplan.models.load import build
from dualplan.policies.contract import Policy
from dualplan.policies.tables import TablePolicy

LOST_SALES_OPTIMUM, MYOPIC_COST, MYOPIC_2_COST = (
    Figure(value, 2, deterministic=True) for value in (4.73, 5.06, 4.82)
)
VECTOR_BASE_STOCK_COST = Figure(4.80, 2, deterministic=True)
BASE_STOCK_SHARES = ((0.84, 0.55), (0.92, 0.67))  # of the capacity and of the largest order
LOST_SALES_TOLERANCE = 1e-4
EXACT_SOLUTION_METHOD = "policy-iteration"  # three times as fast as the others here
LOST_SALES_TIME = "60s"


def lost_sales(
    *,
    time: str = LOST_SALES_TIME,
    parameters: Json | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """The optimum on two truncations, rules on the larger one, and what a search finds on the full
    model.
    """
    given = parameters or {}
    tell = progress or (lambda *_: None)
    for key in ("capacity", "max_order"):
        if key in given:
            raise InputError(f"lost-sales is solved on truncations of its own; leave {key!r} out.")
    full = _make(given)
    cut = [_make({**given, **_limits(full, *share)}) for share in BASE_STOCK_SHARES]
    rows: list[Row] = []
    for k, model in enumerate(cut):
        tell(k, 4, f"optimum, {model.box.count:,} states")
        found = solve_exact(model, tol=LOST_SALES_TOLERANCE, method=EXACT_SOLUTION_METHOD)
        rows.append(
            Row(
                f"optimum, {_named(model)}",
                found.value,
                LOST_SALES_OPTIMUM if k and not given else None,
                found.lower,
                found.upper,
                True,
                f"{found.values.size:,} states",
                seconds=found.seconds,
            )
        )
    optimum = rows[-1].ours
    larger = cut[-1]
    tell(2, 4, "rules")
    note = "on the larger truncation"
    for name, policy, figure in (
        ("Myopic", larger.policy("myopic"), MYOPIC_COST),
        ("Myopic-2", myopic_2(larger), MYOPIC_2_COST),
    ):
        rows.append(
            exactly(
                name,
                larger,
                policy,
                published=None if given else figure,
                note=note,
                optimum=optimum,
            )
        )
    if not given:
        rows.append(
            Row("better vector base-stock", published=VECTOR_BASE_STOCK_COST, optimum=optimum)
        )
    tell(3, 4, SEARCH_ROW)
    rows.append(searched(full, time=time, seed=seed, optimum=optimum))
    settings = {
        "time": time,
        "seed": seed,
        "parameters": given,
        "model": full.describe(),
        "tolerance": LOST_SALES_TOLERANCE,
    }
    return Outcome(
        "lost-sales", "lost sales: cost of a period", tuple(rows), _words(rows, not given), settings
    )


def _words(rows: list[Row], published: bool) -> tuple[str, ...]:
    near, far = (row.ours or np.nan for row in rows[:2])
    words = (
        f"{agreeing(rows)} From the first truncation to the second the optimum moves by "
        f"{abs(far - near):.1e}.",
    )
    if not published:
        return words
    stands = below(rows[-1], VECTOR_BASE_STOCK_COST)
    return (
        *words,
        f"What {rows[-1].name} found, {rows[-1].shown}, is {stands} the published better vector "
        f"base-stock policy ({VECTOR_BASE_STOCK_COST}), which is not in the library.",
    )


def _make(parameters: Json) -> LostSales:
    model = build("lost-sales", LostSales, parameters)
    if not isinstance(model, LostSales):
        raise InputError("lost-sales needs the model of lost sales.")
    return model


def _limits(full: LostSales, of_capacity: float, of_order: float) -> Json:
    return {
        "capacity": int(of_capacity * full.capacity),
        "max_order": max(1, int(of_order * full.max_order)),
    }


def _named(model: LostSales) -> str:
    return f"at most {model.capacity} in all, {model.max_order} an order"


def myopic_2(model: LostSales) -> Policy:
    """Order what minimises the expected cost of the two periods from the arrival of the order on,
    over all states.
    """
    orders = model.max_order + 1
    lead = model.lead_time
    arrival = model.cost
    for _ in range(lead):
        arrival = _step_back(model, arrival)
    shape = arrival.shape[:-1]
    position = np.indices(shape).sum(axis=0)[..., None] + np.arange(orders)
    allowed = (position <= model.capacity) | (np.arange(orders) == 0)
    first = np.where(allowed, arrival, np.inf)
    both = np.where(allowed, arrival + _step_back(model, first.min(axis=-1)), np.inf)
    return TablePolicy(model, both.argmin(axis=-1).ravel(), name="myopic-2")


def _step_back(model: LostSales, values: Floats) -> Floats:
    """E values((i − D)⁺ + a, …) as a table over (i, a, …), stock clipped at the capacity."""
    stocks = model.capacity + 1
    orders = model.max_order + 1
    left = np.zeros((stocks, stocks))
    for i in range(stocks):
        np.add.at(left[i], np.maximum(i - np.arange(model.pmf.size), 0), model.pmf)
    following = np.minimum(np.arange(stocks)[:, None] + np.arange(orders), model.capacity)
    return np.asarray(np.tensordot(left, values[following], axes=(1, 0)))
