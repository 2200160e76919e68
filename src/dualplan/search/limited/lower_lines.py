"""What no policy costs less than, where it keeps limits: bounds at prices, and lines below curves.

By Lagrange, for prices p >= 0 of limits n_k·u <= b_k·d_k·u, a policy that keeps them costs at least
what any policy costs by the priced loss ℓ + Σ_k p_k (n_k − b_k d_k). Where lengths and losses of a
network are priced, that is a network with other costs, whose bounds are proved as any
(`primal/best_bound.py`).

*Lines.* Where a step's denominator is 1 and one limit b has the price w, the priced loss depends on
b by the constant −w·b alone. So one bound λ(w), at b = 0, holds at all levels: λ(w) − w·b.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dualplan.core.status import PROVED
from dualplan.evaluation.lower_bounds import LowerBound
from dualplan.models.contract import Model
from dualplan.models.criteria import Criterion
from dualplan.models.limits import Limit
from dualplan.primal.best_bound import best_bound
from dualplan.search.contract import Search
from dualplan.search.limited.curves import Curve, Line
from dualplan.search.limited.priced import priced_network

KEEPING = "policies that keep the limits"
# prices of a curve of which lines are proved, and the least time that one is worth
MOST_LINES = 5
LEAST_LINE_SECONDS = 0.3
SAME_PRICE_SHARE = 1e-3  # of the largest: prices that are so near give the same line
LINE_TIME_SHARE = 0.75  # of the time that is left, for a line at most

Tell = Callable[[str], None]


def priced_bound(
    model: Model,
    criterion: Criterion,
    prices: Sequence[tuple[Limit, float]],
    *,
    time: float,
    seed: int,
) -> LowerBound | None:
    """What policies that keep the limits cost, by their prices; None where the priced problem is no
    network.
    """
    priced = priced_network(model, prices)
    if priced is None or priced.constant is None:
        return None
    found = best_bound(priced.network, criterion, time=time, seed=seed)
    assumed = f"{found.assumed}, and {KEEPING}" if found.assumed else KEEPING
    return replace(found, value=found.value + priced.constant, assumed=assumed, worst=())


def with_lines(
    search: Search, curves: Sequence[Curve], known: Mapping[str, Sequence[Line]], tell: Tell
) -> list[Curve]:
    """The curves with what is proved below them, in the time that is left; some lines may be known
    by measure.

    First a line at a price in the middle of each curve, then the bound without a price, then lines
    at other prices; each may take a part of what is left, so that where proofs take long there is
    one.
    """
    clock = search.clock
    lines = {curve.measure: list(known.get(curve.measure, ())) for curve in curves}
    prices = {curve.measure: _prices(search.model, curve) for curve in curves}

    def prove(turn: int) -> None:
        for measure, several in prices.items():
            if turn < len(several) and clock.left >= LEAST_LINE_SECONDS:
                tell(f"a lower bound at the price {several[turn]:.3g}")
                allowed = LINE_TIME_SHARE * clock.left
                lines[measure] += _priced_line(search, measure, several[turn], allowed)

    prove(0)
    tell("a lower bound without a price")
    free = _free_line(search, max(LINE_TIME_SHARE * clock.left, LEAST_LINE_SECONDS))
    for turn in range(1, MOST_LINES):
        prove(turn)
    return [under(curve, [free, *lines[curve.measure]]) for curve in curves]


def under(curve: Curve, lines: Sequence[Line]) -> Curve:
    """The curve with the largest of the lines at each of its points."""
    points = [
        replace(point, lower_bound=max(line.at(point.at_most) for line in lines))
        for point in curve.points
    ]
    return replace(curve, points=tuple(points), lines=tuple(lines))


def _free_line(search: Search, allowed: float) -> Line:
    """What any policy costs."""
    found = best_bound(search.model, search.criterion, time=allowed, seed=search.seed)
    return Line(0.0, found.value, found.kind, found.functions, found.assumed)


def _prices(model: Model, curve: Curve) -> list[float]:
    """Prices of the curve whose lines can be proved: the middle one first, then those that are
    farthest from what there is.
    """
    if not _mean_over_steps(model, curve.measure):
        return []
    prices = sorted({point.price for point in curve.points if point.price > 0})
    if not prices or priced_network(model, [(Limit(curve.measure, 0.0), prices[0])]) is None:
        return []
    found = [prices[len(prices) // 2]]
    while len(found) < MOST_LINES:
        far = max(prices, key=lambda p: min(abs(p - one) for one in found))
        if min(abs(far - one) for one in found) <= SAME_PRICE_SHARE * prices[-1]:
            break
        found.append(far)
    return found


def _mean_over_steps(model: Model, measure: str) -> bool:
    """Whether a step's denominator is 1 whatever is done."""
    weights = model.measure(measure).denominator
    return bool(weights[0] == 1 and not weights[1:].any())


def _priced_line(search: Search, measure: str, price: float, allowed: float) -> list[Line]:
    """Lagrange's bound at a price, if it is proved."""
    limit = Limit(measure, 0.0)
    found = priced_bound(
        search.model, search.criterion, [(limit, price)], time=allowed, seed=search.seed
    )
    if found is None or found.kind != PROVED:
        return []
    return [Line(price, found.value, found.kind, found.functions, found.assumed)]
