"""What is known about a solution: each number with the word for how it is known.

    proved     holds for every model that is what it says it is; if it rests on draws, with the
               stated probability
    measured   rests on something computed or simulated for this very policy (the span of its bias,
               its mixing)
    assumed    rests on a number that the user gave
    unknown    what cannot be said, and why

`theorems.py` has the mathematics. The interval of the cost is

    ℓᵀu ± [(L + γσ)·V_neg + ½σ·V_flow + max|ℓ|·|mass of u − M|]

with the upper ends of the violations' intervals. Discounted: σ = L/(1−γ), proved. Average: σ is
measured where states are few, and otherwise must be given; without it there is no interval, and the
certificate says so. Measured is the span of a computed bias h with l <= ℓ_π + P_π h − h <= u
everywhere: the identity behind the interval then holds but for (1 + 2V_neg)·(u − l), which is
added. If the problem has a potential g, fᵀh = fᵀg + fᵀ(h − g), and

    ℓᵀu + fᵀg ± [(L + σ)·V_neg + ½·span(h − g)·V_flow + ...]

is shorter the closer g is to h.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dualplan._kernels.features import ROUNDING_SHARE
from dualplan.core.checks import require_nonnegative
from dualplan.core.errors import InputError, MissingError, ModelError
from dualplan.core.status import ASSUMED, MEASURED, PROVED, UNKNOWN
from dualplan.core.types import Floats, Json
from dualplan.dual import theorems
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers.contract import Solution
from dualplan.dual.violations import Violations, measure_violations
from dualplan.exact.operators import Sweeper
from dualplan.exact.policy import ExactEvaluation, evaluate_exact
from dualplan.models.contract import Model, few_states
from dualplan.models.criteria import Discounted
from dualplan.policies.contract import Policy, require_policy_of

CERTAIN_STANDARD_ERRORS = 5.0  # standard errors of an estimated objective that count as certain
OBJECTIVE_ROUNDING = 2.0**-45
LOSS_ROUNDING = 1e-9  # by which a loss may be outside of declared bounds
MEASURED_SPAN = "span, measured"
SPAN_FROM_POTENTIAL = "span, from the potential"
LABELS_BY_STRENGTH = (PROVED, MEASURED, ASSUMED)


@dataclass(frozen=True)
class Entry:
    """One number: a value, or an interval, how it is known, and why."""

    name: str
    value: float
    lower: float
    upper: float
    label: str
    note: str

    def to_json(self) -> Json:
        """As plain values; infinite ones become None."""
        numbers = {"value": self.value, "lower": self.lower, "upper": self.upper}
        return {**numbers, "label": self.label, "note": self.note}


@dataclass(frozen=True, eq=False)
class Certificate:
    """Everything that is known of a solution.

    The entry `cost` is the interval for the cost of its policy.
    """

    entries: tuple[Entry, ...]
    violations: Violations
    confidence: float

    def __getitem__(self, name: str) -> Entry:
        """An entry by its name."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise InputError(
            f"the certificate has no entry {name!r}; it has "
            f"{', '.join(e.name for e in self.entries)}."
        )

    def __contains__(self, name: object) -> bool:
        return any(entry.name == name for entry in self.entries)

    @property
    def cost(self) -> Entry:
        """The interval for the cost of the policy."""
        return self["cost"]

    def to_json(self) -> Json:
        """As plain values."""
        return {
            "confidence": self.confidence,
            "violations": self.violations.to_json(),
            "entries": {entry.name: entry.to_json() for entry in self.entries},
        }


def certify(
    problem: DualALP,
    solution: Solution,
    *,
    fallback: Policy | None = None,
    span: float | None = None,
    measure: bool | None = None,
    violations: Violations | None = None,
    confidence: float = 0.95,
    samples: int = 2_000_000,
    seed: int | None = None,
) -> Certificate:
    """The certificate of a solution's policy.

    `span` is a bound on the span of the policy's bias or cost-to-go that you vouch for. `measure`
    asks, in the average criterion, for the span to be computed over all states, which by default is
    done where they are few. `violations` and `samples` are for the constraints
    (`measure_violations`).
    """
    if fallback is not None:
        require_policy_of(problem.model, fallback)
    if span is not None:
        require_nonnegative(span=span)
    if seed is None:
        draws = solution.seed
    else:
        draws = seed
    found = violations or measure_violations(
        problem, solution.theta, confidence=confidence, samples=samples, seed=draws
    )
    losses = _loss_bounds(problem.model)
    entries = list[Entry]()
    entries.append(_loss_entry(losses))
    entries += _violation_entries(found)
    exact, trouble = _measured(problem, solution.policy(fallback), measure)
    if isinstance(trouble, ModelError):
        spans = []
    else:
        spans = _spans(problem, losses, span, exact)
    entries += [*spans, *_distances(problem, found, exact)]
    entries.append(_cost(problem, solution, found, losses, spans, exact, str(trouble)))
    return Certificate(tuple(entries), found, found.total.confidence)


def measurable(model: Model) -> bool:
    """Whether the span of a policy's bias is measured unless told otherwise."""
    return few_states(model)


# -- the parts -------------------------------------------------------------------------------------


def loss_range(model: Model) -> float:
    """L: the range of the losses, infinite if it is not known."""
    low, high, _ = _loss_bounds(model)
    return high - low


def _loss_bounds(model: Model) -> tuple[float, float, str]:
    """The least and the largest loss: those that the model declares, or those of all pairs where
    states are few.

    What a model declares is looked at, too, where states are few.
    """
    if model.loss_bounds is not None:
        low, high = model.loss_bounds
        if measurable(model) and model.has_forward:
            _require_within(model, Sweeper(model).losses)
        return low, high, "declared by the model"
    try:
        losses = Sweeper(model).losses
    except (InputError, MissingError):
        return (
            -math.inf,
            math.inf,
            "not known: the model declares no bounds and has too many states to look at all",
        )
    return (
        float(np.nanmin(losses)),
        float(np.nanmax(losses)),
        "the least and the largest of all pairs",
    )


def _require_within(model: Model, losses: Floats) -> None:
    """Raise unless losses lie within what the model declares, but for rounding."""
    low, high = model.loss_bounds or (-math.inf, math.inf)
    least = float(np.nanmin(losses))
    largest = float(np.nanmax(losses))
    slack = LOSS_ROUNDING * max(1.0, abs(least), abs(largest))
    if least < low - slack or largest > high + slack:
        raise ModelError(
            f"model {model.name!r} declares losses from {low:g} to {high:g} but has losses from "
            f"{least:g} to {largest:g}; correct its loss_bounds."
        )


def _loss_entry(losses: tuple[float, float, str]) -> Entry:
    low, high, note = losses
    if math.isfinite(high - low):
        label = PROVED
    else:
        label = UNKNOWN
    return Entry("loss range", high - low, high - low, high - low, label, note)


def _violation_entries(found: Violations) -> Iterable[Entry]:
    if found.exact:
        note = "summed over all constraints"
    else:
        note = (
            f"{found.samples:,} draws of each kind, terms of at most {found.range:.3g}; "
            f"all of it with probability {found.total.confidence:g}"
        )
    for name, interval in (("negative part", found.negative), ("flow", found.flow)):
        yield Entry(name, interval.value, interval.lower, interval.upper, PROVED, note)


def _measured(
    problem: DualALP, policy: Policy, measure: bool | None
) -> tuple[ExactEvaluation | None, str | ModelError]:
    """The policy's chain over all states, if it is asked for, or by default cheap; or why not."""
    if isinstance(problem.criterion, Discounted):
        return None, ""
    if not (measurable(problem.model) if measure is None else measure):
        return None, "the span of the policy's bias is not known; give span, or simulate the policy"
    try:
        return evaluate_exact(problem.model, policy, problem.criterion, everywhere=True), ""
    except ModelError as error:
        # several recurrent classes: no one cost, so none that a span could bound
        return None, error


def _spans(
    problem: DualALP,
    losses: tuple[float, float, str],
    given: float | None,
    exact: ExactEvaluation | None,
) -> list[Entry]:
    """Bounds on the span of the bias or cost-to-go, each with how it is known, the surest first."""
    whole = losses[1] - losses[0]
    found = list[Entry]()
    if isinstance(problem.criterion, Discounted) and math.isfinite(whole):
        found.append(
            _span("span", whole / (1 - problem.gamma), PROVED, "the range of the losses over 1 − γ")
        )
    if exact is not None:
        found.append(
            _span(MEASURED_SPAN, exact.span, MEASURED, "of the policy's bias h, over all states")
        )
        if problem.potential is not None:
            apart = exact.values - problem.potential(problem.model.box.states(exact.reached))
            found.append(
                _span(
                    SPAN_FROM_POTENTIAL,
                    float(np.ptp(apart)),
                    MEASURED,
                    "of h minus the potential, over all states",
                )
            )
        found += _mixing(whole, exact)
    if given is not None:
        found.append(_span("span, assumed", given, ASSUMED, "as given"))
    return found


def _mixing(whole: float, exact: ExactEvaluation) -> list[Entry]:
    if not math.isfinite(exact.mixing.tau):
        return []
    found = exact.mixing
    words = (
        f"C = {found.constant:.3g}: ‖(p − q)Pᵏ‖ <= C·e^(−k/τ)·‖p − q‖ for all k, over all states"
    )
    tau = Entry("tau", found.tau, found.tau, found.tau, MEASURED, words)
    bound = theorems.span_from_mixing(whole, found.tau, found.constant)
    return [tau, _span("span, from tau", bound, MEASURED, "C·L/(1 − e^(−1/τ))")]


def _span(name: str, value: float, label: str, note: str) -> Entry:
    return Entry(name, value, 0.0, value, label, note)


def _distances(
    problem: DualALP, found: Violations, exact: ExactEvaluation | None
) -> Iterable[Entry]:
    """How far u is from the policy's own occupancy, by the paper's bound and by ours."""
    negative = found.negative.upper
    flow = found.flow.upper
    if isinstance(problem.criterion, Discounted):
        gamma = problem.gamma
        yield _distance(
            "distance",
            theorems.distance_discounted(negative, flow, gamma),
            PROVED,
            "(2V3 + V4)/(1 − γ)",
        )
        printed = theorems.printed_distance_discounted(negative, flow, gamma)
        yield _distance("distance, printed", printed, PROVED, "the paper's (3V3 + V4)/(1 − γ)")
    elif exact is not None and math.isfinite(exact.mixing.tau):
        tau = exact.mixing.tau
        constant = exact.mixing.constant
        ours = theorems.distance_average(negative, flow, tau, constant)
        yield _distance("distance", ours, MEASURED, "C/(1 − e^(−1/τ))·(2V1 + V2)/(1 + V1) + 2V1")
        one_step = exact.mixing.one_step
        if one_step is not None and 0 < one_step < 1:
            printed = theorems.printed_distance_average(negative, flow, -1 / math.log(one_step))
            words = "the paper's τ·ln(1/V1)·(2V1 + V2) + 3V1, which does not hold in general"
            yield _distance("distance, printed", printed, ASSUMED, words)


def _distance(name: str, value: float, label: str, note: str) -> Entry:
    return Entry(name, value, 0.0, value, label, note)


def _cost(
    problem: DualALP,
    solution: Solution,
    found: Violations,
    losses: tuple[float, float, str],
    spans: list[Entry],
    exact: ExactEvaluation | None,
    trouble: str,
) -> Entry:
    """ℓᵀu and how far the cost may be from it, by the least span among the surest."""
    theta, (low, high, reason) = solution.theta, losses
    objective = float(problem.losses @ theta) + problem.base_loss
    bounds = {entry.name: entry for entry in spans if entry.name.startswith("span")}
    if not bounds or not math.isfinite(high - low):
        bounded = math.isfinite(high - low)
        words = trouble if bounded else f"the range of the losses is {reason}"
        words = f"no interval: {words}"
        return Entry("cost", math.nan, -math.inf, math.inf, UNKNOWN, words)
    apart = bounds.pop(SPAN_FROM_POTENTIAL, None)
    best = min(
        bounds.values(), key=lambda entry: (LABELS_BY_STRENGTH.index(entry.label), entry.value)
    )
    on_negative, on_flow = theorems.price(high - low, best.value, problem.gamma)
    centre = objective
    words = "ℓᵀu"
    source = best.name
    errors = problem.features.errors
    if apart is not None and apart.value < best.value:
        centre = float(problem.slope @ theta) + problem.intercept
        on_flow = apart.value / 2
        words = "ℓᵀu + fᵀg"
        source = SPAN_FROM_POTENTIAL
        errors = problem.slope_errors
    if found.mass is None:
        off = float(theta.sum()) - problem.mass
    else:
        off = found.mass - problem.total
    mass = abs(off) * max(abs(low), abs(high))
    rounding = OBJECTIVE_ROUNDING * float(
        np.abs(problem.slope) @ np.abs(theta) + abs(problem.intercept)
    )
    # the policy takes what is this small in u for rounding, and for 0
    size = float(np.abs(theta).sum()) + (problem.total if problem.base is not None else 0.0)
    rounding += on_negative * ROUNDING_SHARE * size
    if exact is not None:
        residual = (1 + 2 * found.negative.upper) * (exact.upper - exact.lower)
    else:
        residual = 0.0
    if problem.base is None:
        base_error = 0.0
    else:
        base_error = problem.total * float(problem.base.errors[0])
    estimated = CERTAIN_STANDARD_ERRORS * (float(errors @ np.abs(theta)) + base_error)
    reach = (
        on_negative * found.negative.upper
        + on_flow * found.flow.upper
        + mass
        + rounding
        + residual
        + estimated
    )
    words += f" ± ({on_negative:.4g}·V_neg + {on_flow:.4g}·V_flow), by the {source}"
    if estimated:
        words += f", and {CERTAIN_STANDARD_ERRORS:g} standard errors of the objective"
    if estimated:
        label = max(best.label, MEASURED, key=LABELS_BY_STRENGTH.index)
    else:
        label = best.label
    # no policy costs less than the least loss or more than the largest
    lower = max(centre - reach, low * problem.total)
    upper = min(centre + reach, high * problem.total)
    return Entry("cost", centre, lower, upper, label, words)
