"""How large the violations of a given θ are: over all constraints, or as intervals from drawn ones.

Once θ is known, u = M·μ0 + Φθ is a mixture of at most three distributions, whatever the number of
features: the features with positive weights, those with negative weights, and the base measure,

    u = m₊·ψ₊ − m₋·ψ₋ + M·μ0,        ψ± = Σ_j [±θ_j]₊·φ_j / m±,        m± = Σ_j [±θ_j]₊.

Drawn from the mean of these m distributions (`sampling.py`), one term of V̂ is bounded by masses
alone. With w their weights in u, and since q1 = ψ̄ and q2 = ½(Bᵀψ̄ + Pᵀψ̄) or ½α + ½(Bᵀψ̄
+ γPᵀψ̄)/(1+γ),

    [u]₋/q1 <= m·max[w]₋ =: R_neg,        |f|/q2 <= 2m·max|w|  or  max(2, 2(1+γ)m·max|w|) =: R_flow.

(The paper bounds a term by S(C1+1) + S·C2, where C1 and C2 are of the order of the number of
features; here θ is that of a solution, not any of Θ.) With R = R_neg + R_flow, n pairs of draws and
their mean V̂, with probability 1 − δ

    |V̂ − V| <= R·√(ln(2/δ)/(2n))                                                     (Hoeffding)
    |V̂ − V| <= √(2·s²·ln(4/δ)/n) + 7R·ln(4/δ)/(3(n−1)),  s² the sample variance      (Maurer and
                                                          Pontil 2009)

so that Hoeffding needs n = ½(R/r)²·ln(2/δ) for an error r. The second rule looks at the interval
when n has doubled, with δ/2·1/((k+1)(k+2)) at look k, and stops when it is as short as was asked;
at the latest when n is Hoeffding's for the other δ/2, or when the budget ends, with all that is
left of δ. Whatever it sees, the interval that it returns covers with probability 1 − δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualplan.core.checks import require_inside, require_positive, require_seed, require_whole
from dualplan.core.errors import unknown
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.core.streams import SeedBit
from dualplan.core.types import Floats, Json
from dualplan.dual.features.mixtures import mixtures
from dualplan.dual.problem import DualALP

LISTED_RULE = "listed"
BERNSTEIN_RULE = "bernstein"
HOEFFDING_RULE = "hoeffding"
VIOLATION_RULES = (LISTED_RULE, BERNSTEIN_RULE, HOEFFDING_RULE)
# states up to which all constraints are listed unless a rule is named
MOST_LISTED_STATES_BY_DEFAULT = 200_000
FIRST_LOOK_DRAWS = 1_000  # draws at the first look
DRAWS_AT_ONCE = 200_000  # draws at once
VIOLATION_BUDGET = 2_000_000
VIOLATION_ROUNDING = 2.0**-44


@dataclass(frozen=True, eq=False)
class Violations:
    """V_neg and V_flow, whose intervals hold together, and their sum V, whose interval holds by
    itself.

    `rule` is `listed` if all constraints were summed (the intervals then are for rounding),
    otherwise how the number of draws was found. `range` is R. `mass` is that of u, where all of it
    was summed: features are distributions but for rounding, whoever wrote them down.
    """

    negative: Interval
    flow: Interval
    total: Interval
    rule: str
    samples: int
    range: float
    status: Status
    mass: float | None = None

    @property
    def exact(self) -> bool:
        """Whether nothing was drawn."""
        return self.rule == LISTED_RULE

    def to_json(self) -> Json:
        """As plain values."""
        return {
            "negative": self.negative.to_json(),
            "flow": self.flow.to_json(),
            "total": self.total.to_json(),
            "confidence": self.total.confidence,
            "rule": self.rule,
            "samples": self.samples,
            "range": self.range,
            "status": str(self.status),
        }


def measure_violations(
    problem: DualALP,
    theta: Floats,
    *,
    rule: str | None = None,
    within: float | None = None,
    confidence: float = 0.95,
    samples: int = VIOLATION_BUDGET,
    seed: int = 0,
    threads: int | None = None,
) -> Violations:
    """The violations at θ.

    Without a `rule` all constraints are listed where states are few, and otherwise drawn. With
    `within` the interval of V is made that short to either side, if the samples allows; without,
    the whole samples is drawn.
    """
    _check(rule, within, confidence, samples)
    require_seed(seed)
    count = problem.model.box.count
    if rule == LISTED_RULE or (
        rule is None and count is not None and count <= MOST_LISTED_STATES_BY_DEFAULT
    ):
        return _listed(problem, theta)
    few, weights = collected(problem, theta)
    ranges = _ranges(few, weights)
    looks = _looks(rule or BERNSTEIN_RULE, sum(ranges), within, 1 - confidence, samples)
    sums = np.zeros((3, 2))
    done = 0
    for n, failure, by_variance in looks:
        sums += _terms(few, weights, done, n, seed ^ SeedBit.VIOLATIONS, threads)
        done = n
        total = _interval(sums[2], n, sum(ranges), failure, by_variance, confidence)
        if within is not None and _reach(total) <= within:
            break
    # one that cannot be violated leaves all the doubt to the other
    if min(ranges) > 0:
        share = failure / 2
    else:
        share = failure
    negative, flow = (
        _interval(sums[i], n, ranges[i], share, by_variance, confidence) for i in range(2)
    )
    short = within is None or _reach(total) <= within
    if short:
        if within is None:
            status = Status.COMPLETED
        else:
            status = Status.REACHED
    else:
        status = Status.BUDGET
    return Violations(negative, flow, total, rule or BERNSTEIN_RULE, done, sum(ranges), status)


def hoeffding_size(span: float, within: float, failure: float) -> float:
    """How many terms of range `span` have a mean within so much of V, but for a probability of
    `failure`.
    """
    ratio = span / within
    return 0.5 * ratio * ratio * math.log(2 / failure)


def collected(problem: DualALP, theta: Floats) -> tuple[DualALP, Floats]:
    """The same u over at most two features: those of positive and those of negative weight, put
    together.
    """
    theta = problem.checked(theta)
    parts = [part for part in (np.maximum(theta, 0.0), np.maximum(-theta, 0.0)) if part.any()]
    signs = [1.0 if (part @ theta) > 0 else -1.0 for part in parts]
    masses = [float(part.sum()) for part in parts]
    if not parts:  # the base measure alone
        parts = [np.eye(theta.size)[0]]
        signs = [0.0]
        masses = [1.0]
    rows = np.array([part / mass for part, mass in zip(parts, masses, strict=True)])
    weights = np.array(signs) * np.array(masses)
    features = mixtures(problem.features, rows / rows.sum(axis=1, keepdims=True))
    radius = max(2 * float(np.linalg.norm(weights)), problem.radius)
    return DualALP(
        problem.model, features, problem.criterion, base=problem.base, radius=radius
    ), weights


def _check(rule: str | None, within: float | None, confidence: float, budget: int) -> None:
    if rule is not None and rule not in VIOLATION_RULES:
        raise unknown("rule", str(rule), VIOLATION_RULES)
    if within is not None:
        require_positive(within=within)
    require_inside(confidence=confidence)
    require_whole("samples", budget, least=2)


def _listed(problem: DualALP, theta: Floats) -> Violations:
    rows = problem.enumerate()
    parts = problem.value(theta, 1.0, rows)
    mass = float((rows.pairs @ theta).sum() + rows.base.sum())
    # rows are sums of products that may cancel, so what rounding leaves is by the size of what was
    # added up
    size = float(np.abs(problem.checked(theta)).sum()) + (
        problem.total if problem.base is not None else 0.0
    )
    off_pairs = VIOLATION_ROUNDING * size
    off_flows = VIOLATION_ROUNDING * ((1 + problem.gamma) * size + 1)
    found = (
        (parts.negative, off_pairs),
        (parts.flow, off_flows),
        (parts.negative + parts.flow, off_pairs + off_flows),
    )
    negative, flow, total = (Interval(v, max(v - off, 0.0), v + off, 1.0) for v, off in found)
    return Violations(negative, flow, total, LISTED_RULE, 0, 0.0, Status.SOLVED, mass)


def _ranges(few: DualALP, weights: Floats) -> tuple[float, float]:
    """R_neg and R_flow."""
    if few.base is None:
        w = weights
    else:
        w = np.append(weights, few.total)
    negative = w.size * max(0.0, -float(w.min()))
    flow = 2 * w.size * float(np.abs(w).max())
    return negative, max(2.0, (1 + few.gamma) * flow) if few.alpha.size else flow


def _looks(
    rule: str, span: float, within: float | None, failure: float, budget: int
) -> list[tuple[int, float, bool]]:
    """When to look: the number of draws, the probability that the look may fail with, and whether
    by the variance.
    """
    if within is None:
        return [(budget, failure, rule == BERNSTEIN_RULE)]
    fixed = hoeffding_size(span, within, failure)
    if rule == HOEFFDING_RULE or fixed <= min(
        FIRST_LOOK_DRAWS, budget
    ):  # fewer than a first look takes
        return [(max(2, math.ceil(min(fixed, budget))), failure, False)]
    last = max(2, math.ceil(min(hoeffding_size(span, within, failure / 2), budget)))
    looks = list[tuple[int, float, bool]]()
    k = 0
    while FIRST_LOOK_DRAWS * 2**k < last:
        looks.append((FIRST_LOOK_DRAWS * 2**k, failure / 2 / ((k + 1) * (k + 2)), True))
        k += 1
    # where the budget ends it all, a look by the variance is worth more than Hoeffding's, and has
    # its δ/2 too
    spent = last >= budget
    return [*looks, (last, failure / 2 * (1 + 1 / (k + 1)) if spent else failure / 2, spent)]


def _terms(
    few: DualALP, weights: Floats, first: int, last: int, seed: int, threads: int | None
) -> Floats:
    """Sums and sums of squares of the terms of V_neg, V_flow and V, of the draws first, ..., last −
    1.
    """
    sums = np.zeros((3, 2))
    for start in range(first, last, DRAWS_AT_ONCE):
        count = min(DRAWS_AT_ONCE, last - start)
        rows = few.draw(count, seed=seed, first=start, threads=threads)
        negative = np.maximum(-(rows.pairs @ weights + rows.base), 0.0) * rows.pair_weights * count
        flow = np.abs(rows.flows @ weights - rows.masses) * rows.flow_weights * count
        sums += [(float(t.sum()), float(t @ t)) for t in (negative, flow, negative + flow)]
    return sums


def _reach(interval: Interval) -> float:
    """How far V may be from its estimate; an interval that ends at 0 is shorter to that side."""
    return max(interval.upper - interval.value, interval.value - interval.lower)


def _interval(
    sums: Floats, n: int, span: float, failure: float, by_variance: bool, confidence: float
) -> Interval:
    mean = float(sums[0]) / n
    if by_variance:
        variance = max(float(sums[1]) - n * mean**2, 0.0) / (n - 1)
        log = math.log(4 / failure)
        half = math.sqrt(2 * variance * log / n) + 7 * span * log / (3 * (n - 1))
    else:
        half = span * math.sqrt(math.log(2 / failure) / (2 * n))
    return Interval(mean, max(mean - half, 0.0), min(mean + half, span), confidence)
