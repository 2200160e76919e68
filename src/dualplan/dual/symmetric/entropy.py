"""The symmetric dual program with a distance to its reference.

Over occupancies u on the pairs of a reference r (`reference.py`), total mass 1,

    minimise   ℓᵀu + (1/η)·KL(u ‖ r)     subject to     Σ u(x,a) D(x,a) + c = 0,

KL(u‖r) = Σ u log(u/r). With multipliers w of the flow its Lagrangian dual is smooth, convex and
unconstrained: minimise over w

    F(w)  =  (1/η)·log Σ r(x,a)·exp(−η(ℓ + Dw)(x,a))  −  cᵀw  +  ½ρ‖w‖²_S,
    ∇F    =  −(Σ u D + c) + ρSw,       u(x,a) ∝ r(x,a)·exp(−η(ℓ + Dw)(x,a)),
    ∇²F   =  η·Cov_u(D) + ρS,

where S has the mean squares of the columns of D on its diagonal, so that the small ridge ρ does not
depend on the scales of Ψ. Newton's method with halved steps solves it, the sums being over pairs
and the system as large as Ψ is rich. At its end −F(w) = ℓᵀu + KL/η up to the ridge: the duality
gap of the answer, which `gap` has.

*Outposts.* Values are fitted where u has mass. Elsewhere the inequality ℓ + Dw >= λ, which is all
that the program asks of them, leaves them too low, and a greedy policy is drawn there and may stay.
So states ν away from the reference, and those on the reference policy's way back from them, can ask
for that policy's own Bellman equation, by least squares:

    F(w)  +  ½ηβ·Σ ν(x)·[ℓ_π(x) + D_π(x)w + cᵀw − g]²,      g the policy's cost (times 1 − γ)

which is what (1/η)·log Σ r·exp(−η·) is for small η, up to the weight β.

What it says: u is a policy's occupancy as far as Ψ tells, with π_u(a|x) ∝ p(a|x)·exp(−η(ℓ + Dw))
its policy, and Ψw the values (the bias, for the average criterion) whose Bellman residuals the
exponent has. For η → 0 w is the least squares fit of the reference's own Bellman equation, for
η → ∞ the program is a linear one over all pairs of the reference. In between η is a trust region:
the values are used where they are fitted. `solve_at_distance` finds η for a wanted KL.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg

from dualplan.core.checks import require_positive
from dualplan.core.deadlines import require_time
from dualplan.core.threads import in_parallel, single_threaded_algebra
from dualplan.core.types import Floats, Ints
from dualplan.dual.symmetric.reference import Reference, make_reference
from dualplan.models.criteria import Criterion, Discounted
from dualplan.policies.contract import Policy
from dualplan.values.basis import Basis, LinearValues

RIDGE = 1e-6
OUTPOSTS_WEIGHT = 0.1
NEWTON_STEPS = 60
ARMIJO_SHARE = 1e-4  # of the decrease that the slope promises
LEAST_STEP = 2.0**-12
# more ridge, in units of the mean diagonal of the Hessian, where no step gains
LEAST_DAMPING = 1e-8
LARGEST_DAMPING = 1e2
DAMPING_FACTOR = 10.0
PATH_FACTOR = 4.0  # between one η and the next on the way to a large one
PAIRS_AT_ONCE = 4_096  # whose second moments a thread adds up
LIGHT_MASS = 1e-14  # of all: such pairs are left out of the Hessian
DONE_SHARE = 1e-12  # of |F|: smaller decreases end it
# of a wanted distance, and how many η are tried for it
DISTANCE_SHARE = 0.1
MOST_RATES = 24


@dataclass(frozen=True, eq=False)
class Outposts:
    """States away from a reference as a policy leaves them: its losses and its differences of Ψ,
    the cost g that it has in the long run, and the weight β of their equations.
    """

    losses: Floats
    differences: Floats
    cost: float
    weight: float = OUTPOSTS_WEIGHT


def make_outposts(
    basis: Basis, states: Ints, policy: Policy, criterion: Criterion | None = None, *, cost: float
) -> Outposts:
    """What the policy does at these states; `cost` is its average cost, or its discounted one."""
    pairs = make_reference(basis, states, policy, criterion)
    first = np.flatnonzero(np.diff(pairs.rows, prepend=-1))
    chances = pairs.masses * len(states)
    level = cost
    if isinstance(pairs.criterion, Discounted):
        level = (1 - pairs.criterion.gamma) * cost
    return Outposts(
        np.add.reduceat(chances * pairs.losses, first),
        np.add.reduceat(chances[:, None] * pairs.differences, first, axis=0) + pairs.start,
        level,
    )


@dataclass(frozen=True, eq=False)
class EntropySolution:
    """Values Ψw and the occupancy u over the pairs of the reference, for one η.

    `objective` is ℓᵀu, `distance` KL(u‖r), `flow` the largest |Σ u D + c| over Ψ in units of the
    root mean square of D, `gap` what the duality gap is, `steps` how many of Newton's were taken.
    """

    reference: Reference
    values: LinearValues
    occupancy: Floats
    eta: float
    objective: float
    distance: float
    flow: float
    gap: float
    steps: int

    @property
    def effective_share(self) -> float:
        """1/Σ(u²/r): the share of the reference's sample that would say as much with equal
        weights.
        """
        masses = self.reference.masses
        used = masses > 0
        return float(1 / np.sum(self.occupancy[used] ** 2 / masses[used]))


def solve_entropy(
    reference: Reference,
    eta: float,
    *,
    ridge: float = RIDGE,
    outposts: Outposts | None = None,
    start: Floats | None = None,
) -> EntropySolution:
    """The solution for one η, from the weights `start` on; without them by way of smaller η."""
    require_positive(eta=eta, ridge=ridge)
    rate = eta
    if start is None:
        least = _first_rate(reference)
        while rate > least:
            rate /= PATH_FACTOR
    with single_threaded_algebra():
        found = _newton(_Scaled(reference, rate, ridge, outposts), start)
        while rate < eta:
            rate = min(eta, PATH_FACTOR * rate)
            found = _newton(_Scaled(reference, rate, ridge, outposts), found.values.weights)
    return found


def _newton(problem: _Scaled, start: Floats | None) -> EntropySolution:
    """Newton's method with halved steps; where none of these gains, with a larger ridge."""
    w = np.zeros(problem.scale.size) if start is None else start * problem.scale
    value, u = problem.value(w)
    damping = 0.0
    steps = 0
    while steps < NEWTON_STEPS:
        require_time()
        steps += 1
        gradient = problem.gradient(w, u)
        direction = problem.direction(gradient, u, damping)
        if direction is None:
            damping = max(DAMPING_FACTOR * damping, LEAST_DAMPING)
            continue
        slope = float(gradient @ direction)
        next_value, next_u = problem.value(w + direction)
        # twice what a whole step would gain: values do not tell any more, slopes still do
        if damping == 0 and -slope <= DONE_SHARE * max(1.0, abs(value)):
            left = problem.gradient(w + direction, next_u)
            if np.abs(left).max() < np.abs(gradient).max():
                w, value, u = w + direction, next_value, next_u
            break
        size = 1.0
        while next_value > value + ARMIJO_SHARE * size * slope and size > LEAST_STEP:
            size /= 2
            next_value, next_u = problem.value(w + size * direction)
        if not next_value < value:
            if damping > LARGEST_DAMPING:
                break
            damping = max(DAMPING_FACTOR * damping, LEAST_DAMPING)
            continue
        damping /= DAMPING_FACTOR
        done = value - next_value <= DONE_SHARE * max(1.0, abs(next_value))
        w, value, u = w + size * direction, next_value, next_u
        if done:
            break
    return problem.solution(w, value, u, steps)


def solve_at_distance(
    reference: Reference,
    distance: float,
    *,
    ridge: float = RIDGE,
    outposts: Outposts | None = None,
    near: EntropySolution | None = None,
) -> EntropySolution:
    """The solution whose KL(u‖r) is the wanted distance, within a tenth: η by bisection on its
    logarithm, from that of a solution nearby on.

    The distance grows with η, up to some number: the last solution counts where it is not reached.
    """
    require_positive(distance=distance)
    eta = _first_rate(reference) if near is None else near.eta
    start = None if near is None else near.values.weights
    low = 0.0
    high = math.inf
    found = solve_entropy(reference, eta, ridge=ridge, outposts=outposts, start=start)
    for _ in range(MOST_RATES):
        if abs(found.distance - distance) <= DISTANCE_SHARE * distance:
            break
        if found.distance < distance:
            low = eta
        else:
            high = eta
        if math.isinf(high):
            eta *= 2
        elif low == 0:
            eta /= 2
        else:
            eta = math.sqrt(low * high)
        weights = found.values.weights
        found = solve_entropy(reference, eta, ridge=ridge, outposts=outposts, start=weights)
    return found


def _first_rate(reference: Reference) -> float:
    """One over the spread of the losses."""
    mean = reference.masses @ reference.losses
    spread = math.sqrt(max(float(reference.masses @ (reference.losses - mean) ** 2), 0.0))
    return 1 / spread if spread > 0 else 1.0


class _Scaled:
    """F with the columns of D scaled to a mean square of 1."""

    def __init__(
        self, reference: Reference, eta: float, ridge: float, outposts: Outposts | None
    ) -> None:
        self.reference = reference
        self.eta = eta
        self.ridge = ridge
        size = np.sqrt(reference.masses @ reference.differences**2)
        self.scale = np.where(size > 0, size, 1.0)
        self.matrix = reference.differences / self.scale
        self.start = reference.start / self.scale
        self.far = np.zeros((0, self.scale.size))
        self.level = np.zeros(0)
        if outposts is not None:
            share = math.sqrt(eta * outposts.weight / outposts.losses.size)
            self.far = share * outposts.differences / self.scale
            self.level = share * (outposts.losses - outposts.cost)
        with np.errstate(divide="ignore"):
            self.logs = np.log(reference.masses)
        pairs = self.logs.size
        self.parts = [slice(k, k + PAIRS_AT_ONCE) for k in range(0, pairs, PAIRS_AT_ONCE)]

    def value(self, w: Floats) -> tuple[float, Floats]:
        """F and u."""
        exponents = self.logs - self.eta * (self.reference.losses + self.matrix @ w)
        largest = exponents.max()
        raised = np.exp(exponents - largest)
        total = raised.sum()
        value = (largest + math.log(total)) / self.eta - self.start @ w + self.ridge / 2 * (w @ w)
        return float(value + self.missed(w) @ self.missed(w) / 2), raised / total

    def missed(self, w: Floats) -> Floats:
        """The equations of the outposts, weighted."""
        return np.asarray(self.level + self.far @ w)

    def flow(self, u: Floats) -> Floats:
        """Σ u D + c."""
        return np.asarray(u @ self.matrix + self.start)

    def gradient(self, w: Floats, u: Floats) -> Floats:
        """∇F."""
        return np.asarray(self.ridge * w - self.flow(u) + self.missed(w) @ self.far)

    def direction(self, gradient: Floats, u: Floats, damping: float) -> Floats | None:
        """Newton's, with more ridge; none where the Hessian is singular but for rounding."""
        mean = u @ self.matrix
        moments = in_parallel([partial(self._moments, u, part) for part in self.parts], None)
        hessian = self.eta * (np.sum(moments, axis=0) - np.outer(mean, mean))
        hessian += self.far.T @ self.far
        diagonal = np.diag_indices_from(hessian)
        hessian[diagonal] += self.ridge + damping * float(hessian[diagonal].mean())
        try:
            factor = scipy.linalg.cho_factor(hessian, overwrite_a=True)
        except scipy.linalg.LinAlgError:
            return None
        return np.asarray(-scipy.linalg.cho_solve(factor, gradient))

    def _moments(self, u: Floats, part: slice) -> Floats:
        """Σ u D Dᵀ over some of the pairs; very light ones say nothing, and their products are no
        normal numbers.
        """
        own = u[part]
        heavy = own > LIGHT_MASS
        weighted = self.matrix[part][heavy] * np.sqrt(own[heavy])[:, None]
        return np.asarray(weighted.T @ weighted)

    def solution(self, w: Floats, value: float, u: Floats, steps: int) -> EntropySolution:
        """What is known at the end."""
        used = u > 0
        objective = float(u @ self.reference.losses)
        distance = max(0.0, float(u[used] @ (np.log(u[used]) - self.logs[used])))
        primal = objective + distance / self.eta
        plain = value - float(self.ridge * (w @ w) + self.missed(w) @ self.missed(w)) / 2
        return EntropySolution(
            self.reference,
            LinearValues(self.reference.basis, w / self.scale),
            u,
            self.eta,
            objective,
            distance,
            float(np.abs(self.flow(u)).max()),
            primal + plain,
            steps,
        )
