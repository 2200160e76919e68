"""Certificates and the theorems' numbers, against occupancies and values from dense linear
systems.
"""

import math

import numpy as np
import pytest
from scipy import optimize

import dualplan as dp
from bank import (
    SPEEDS,
    dense,
    matrix,
    mixed_features,
    occupancy_and_values,
    positive_part_policy,
    random_features,
    random_tables,
)
from dualplan.core.status import Status
from dualplan.dual import features as families
from dualplan.dual import theorems
from dualplan.dual.certificates import certify, loss_range
from dualplan.dual.features import Truncated, products, user_defined
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers import Solution, solve_listed
from dualplan.dual.violations import measure_violations
from dualplan.models.load import load
from dualplan.policies import TablePolicy

GAMMAS = [None, 0.6, 0.95]
BOTH = [dp.Average(), dp.Discounted(0.9)]


class Case:
    """A random model with random features: its arrays, and the library's problem made of them."""

    def __init__(self, seed, speed, gamma, *, based=False):
        self.rng = rng = np.random.default_rng(
            [seed, SPEEDS.index(speed), int(100 * (gamma or 0)), based]
        )
        states, actions = int(rng.integers(3, 13)), int(rng.integers(2, 4))
        self.gamma = gamma
        self.transitions, self.losses = tables = random_tables(rng, speed, states, actions)
        self.alpha = np.eye(states)[0] if gamma is not None else None
        phi = random_features(rng, tables, int(rng.integers(4, 9)), gamma, self.alpha)
        self.model = dp.TabularModel(self.transitions.reshape(-1, states), self.losses)
        self.mass = 1.0 if gamma is None else 1 / (1 - gamma)
        self.base = phi[:, 3] * self.mass if based else np.zeros(len(phi))
        self.phi = phi[:, np.arange(phi.shape[1]) != 3] if based else phi
        self.problem = DualALP(
            self.model,
            families.table(self.model, self.phi),
            dp.Average() if gamma is None else dp.Discounted(gamma),
            base=families.table(self.model, phi[:, [3]]) if based else None,
            radius=float(rng.choice([1.5, 4.0, 20.0])) * self.mass,
        )
        self.loss_range = float(np.ptp(self.losses))

    def weights(self, count):
        """θ in Θ: from the middle to the rim, and single features, the exact occupancies among
        them.
        """
        d = self.phi.shape[1]
        sizes = self.problem.radius * self.rng.choice([0.0, 1e-3, 0.1, 0.4, 3.0], size=(count, 1))
        some = [self.problem.project(row) for row in sizes * self.rng.normal(size=(count, d))]
        mass = self.problem.mass
        mixed = mass * self.rng.dirichlet(np.full(d, 0.3), size=4)
        alone = [row for row in mass * np.eye(d)[:3] if np.linalg.norm(row) <= self.problem.radius]
        return np.array(
            [*some, *alone, *(row for row in mixed if np.linalg.norm(row) <= self.problem.radius)]
        )

    def quantities(self, thetas, fallback=None):
        """Of each θ: u, its policy's occupancy, values and cost, the flow residual, V_neg and
        V_flow.
        """
        shape = (-1, *self.losses.shape)
        u = (thetas @ self.phi.T + self.base).reshape(shape)
        uniform = np.full(self.losses.shape, 1 / self.losses.shape[1])
        policies = positive_part_policy(u, uniform if fallback is None else fallback)
        laws, values, costs = occupancy_and_values(
            self.transitions, self.losses, policies, self.gamma, self.alpha
        )
        into, out = np.einsum("kxa,xay->ky", u, self.transitions), u.sum(axis=2)
        f = into - out if self.gamma is None else out - self.gamma * into - self.alpha
        return (
            u,
            policies,
            laws,
            values,
            costs,
            f,
            np.maximum(-u, 0).sum(axis=(1, 2)),
            np.abs(f).sum(axis=1),
        )


def cases(count, gammas=GAMMAS):
    return [
        Case(seed, speed, gamma, based=seed % 2 == 1)
        for seed in range(count)
        for speed in SPEEDS
        for gamma in gammas
    ]


def one_step(chain):
    """δ(P): half the largest distance of two rows."""
    return np.abs(chain[:, :, None] - chain[:, None]).sum(axis=-1).max(axis=(1, 2)) / 2


def given(problem, theta, penalty=1.0):
    """Any weights as a solution."""
    theta = np.asarray(theta, float)
    parts = problem.value(theta, penalty, problem.enumerate())
    return Solution(problem, "given", (penalty, penalty), theta, parts, Status.SOLVED, 0, 0, 0.0)


# -- the identity, the interval and the distances --------------------------------------------------


def test_identity_interval_and_distances_hold_for_thousands_of_weights():
    """Both criteria, four speeds of mixing, with and without a base measure, uniform and other
    fallbacks.
    """
    seen, empty, exact, contracting = 0, 0, 0, 0
    for case in cases(10):
        thetas = case.weights(40)
        fallback = (
            None
            if case.rng.random() < 0.5
            else case.rng.dirichlet(np.ones(case.losses.shape[1]), len(case.losses))
        )
        u, policies, laws, values, costs, f, negative, flow = case.quantities(thetas, fallback)
        g, sign = (1.0, 1.0) if case.gamma is None else (case.gamma, -1.0)
        ahead = np.einsum("xay,ky->kxa", case.transitions, values)
        advantage = case.losses + g * ahead - values[:, :, None]
        advantage -= costs[:, None, None] if case.gamma is None else 0.0
        objective = (u * case.losses).sum(axis=(1, 2))
        size = 1 + np.abs(thetas).sum(axis=1) * np.abs(values).max(axis=1)
        identity = (
            objective
            + sign * (f * values).sum(axis=1)
            + (np.maximum(-u, 0) * advantage).sum(axis=(1, 2))
        )
        assert (np.abs(identity - costs) <= 1e-10 * size).all()

        spans = np.ptp(values, axis=1)
        if case.gamma is not None:
            assert (spans <= case.loss_range / (1 - case.gamma) + 1e-9).all()
            spans[:] = case.loss_range / (1 - case.gamma)
        for k in range(len(thetas)):
            on_negative, on_flow = theorems.price(case.loss_range, spans[k], g)
            assert (
                abs(costs[k] - objective[k])
                <= on_negative * negative[k] + on_flow * flow[k] + 1e-10 * size[k]
            )

        distances = np.abs(laws - u).sum(axis=(1, 2))
        chains = np.einsum("kxa,xay->kxy", policies, case.transitions)
        deltas = one_step(chains)
        for k in range(len(thetas)):
            slack = 1e-10 * size[k]
            if case.gamma is not None:
                ours = theorems.distance_discounted(negative[k], flow[k], case.gamma)
                assert distances[k] <= ours + slack
                assert (
                    ours
                    <= theorems.printed_distance_discounted(negative[k], flow[k], case.gamma)
                    + slack
                )
            elif 0 < deltas[k] < 1 - 1e-9:
                tau = -1 / math.log(deltas[k])
                assert distances[k] <= theorems.distance_average(negative[k], flow[k], tau) + slack
                bound = theorems.span_from_mixing(
                    np.ptp((policies[k] * case.losses).sum(axis=1)), tau
                )
                assert np.ptp(values[k]) <= bound + slack
                contracting += 1
        seen += len(thetas)
        empty += (np.maximum(u, 0).sum(axis=2) == 0).any(axis=1).sum()
        exact += ((negative == 0) & (flow <= 1e-9)).sum()
    assert seen > 4_500
    assert contracting > 1_000
    assert empty > 500
    assert exact > 100


def test_the_interval_is_attained_by_the_flow():
    """u >= 0 whose residual goes from where h is least to where it is largest: cost − ℓᵀu =
    ½·span(h)·V_flow.
    """
    for seed, speed in enumerate(SPEEDS):
        rng = np.random.default_rng(seed)
        transitions, losses = random_tables(rng, speed, 6, 2)
        policy = rng.dirichlet(np.ones(2), size=6)
        (law, values, cost), chain = (
            occupancy_and_values(transitions, losses, policy),
            policy[:, :, None] * transitions,
        )
        residual = np.zeros(6)
        residual[[values.argmax(), values.argmin()]] = 1e-3, -1e-3
        # ρ(P − I) = f with total 1
        states = np.linalg.lstsq(
            np.vstack([chain.sum(axis=1).T - np.eye(6), np.ones(6)]), np.append(residual, 1.0)
        )[0]
        u = states[:, None] * policy
        assert u.min() > 0
        assert np.ptp(values) > 0
        bound = (
            theorems.price(float(np.ptp(losses)), float(np.ptp(values)))[1] * np.abs(residual).sum()
        )
        assert cost - (u * losses).sum() == pytest.approx(bound, rel=1e-9)
        assert law.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("gamma", [0.3, 0.9, 0.99])
def test_both_prices_are_attained_in_the_discounted_criterion(gamma):
    """Two absorbing states, of losses 0 and 3: κ/2 for the flow.

    And a bad action given up for κ·V_neg.
    """
    mass, kappa = 1 / (1 - gamma), 3 / (1 - gamma)
    model = dp.TabularModel(
        [np.eye(2), np.array([[0.0, 1.0], [0.0, 1.0]])], [[0.0, 3.0], [3.0, 3.0]]
    )
    problem = DualALP(
        model,
        families.table(model, np.eye(4)),
        dp.Discounted(gamma, start=[((0,), 0.5), ((1,), 0.5)]),
    )
    t = 0.1
    flow = given(problem, mass * np.array([0.5 + t, 0.0, 0.5 - t, 0.0]))
    found = certify(problem, flow)
    assert found["flow"].value == pytest.approx(2 * t)
    assert found.cost.value == pytest.approx(kappa * (0.5 - t))
    assert found.cost.upper == pytest.approx(kappa / 2)  # the cost itself
    t *= 1 - gamma
    negative = given(problem, [mass * (0.5 + t), -t, mass * (0.5 - gamma * t), 0.0])
    found = certify(problem, negative)
    assert found["flow"].value == pytest.approx(0.0, abs=1e-12)
    assert found["negative part"].value == pytest.approx(t)
    assert found.cost.upper == pytest.approx(kappa / 2)
    assert discounted_cost_from(model, negative.policy(), problem) == pytest.approx(kappa / 2)
    # so is the distance: ν is M/2 in each state, by the first action
    assert np.abs(negative.theta - mass * np.array([0.5, 0.0, 0.5, 0.0])).sum() == pytest.approx(
        2 * t / (1 - gamma)
    )
    assert found["distance"].value == pytest.approx(2 * t / (1 - gamma))


def discounted_cost_from(model, policy, problem):
    """αᵀJ for any start distribution."""
    count = model.box.count
    table = np.array([policy(model.box.state(i)) for i in range(count)])
    transitions = model.matrix.toarray().reshape(count, -1, count)
    alpha = np.zeros(count)
    for x, p in zip(problem.starts, problem.alpha, strict=True):
        alpha[model.box.index(x)] += p
    return occupancy_and_values(transitions, model.losses, table, problem.gamma, alpha)[2]


def test_the_papers_average_distance_fails_for_fast_mixing_and_says_nothing_at_zero():
    """Two states whose rows hardly differ: distance 2.2, the printed bound 1.1.

    And many among random models.
    """
    transitions = np.array([[[0.0, 1.0]], [[0.001, 0.999]]])
    u = np.array([[1.1], [-0.1]])
    law = occupancy_and_values(transitions, np.zeros((2, 1)), np.ones((2, 1)))[0]
    flow = np.abs((u[:, 0] @ transitions[:, 0]) - u[:, 0]).sum()
    tau = -1 / math.log(one_step(transitions[None, :, 0])[0])
    distance = np.abs(law - u).sum()
    assert distance == pytest.approx(2.2, abs=0.01)
    assert theorems.printed_distance_average(0.1, flow, tau) < 1.2
    assert distance <= theorems.distance_average(0.1, flow, tau)
    worst = 0.0
    for case in [Case(seed, "fast", None) for seed in range(12)]:
        u, policies, laws, _, _, _, negative, flow = case.quantities(case.weights(40))
        chains = np.einsum("kxa,xay->kxy", policies, case.transitions)
        for k, delta in enumerate(one_step(chains)):
            if negative[k] > 0:
                printed = theorems.printed_distance_average(
                    negative[k], flow[k], -1 / math.log(delta)
                )
                worst = max(worst, np.abs(laws[k] - u[k]).sum() / printed) if printed > 0 else worst
    assert worst > 1.5
    assert theorems.printed_distance_average(0.0, 0.3, 5.0) == math.inf


# -- V_max and D -----------------------------------------------------------------------------------


def test_the_papers_bound_on_the_flow_fails_for_weights_of_both_signs():
    """d = 9, S = 3: V2 = 18 > 2 + 2S = 8, and V_max is attained but for what the mass takes from
    V_neg.
    """
    rows = np.zeros((11, 11))
    rows[:5, 9] = rows[5:9, 10] = 1.0
    rows[9:, 0] = 1.0
    model = dp.TabularModel([rows], np.zeros(11))
    problem = DualALP(model, families.table(model, np.eye(11)[:, :9]), radius=3.0)
    theta = np.where(np.arange(9) < 5, 1.0, -1.0)
    value = problem.value(theta, 1.0, problem.enumerate())
    assert (np.linalg.norm(theta), theta.sum()) == (3.0, 1.0)
    assert value.flow == pytest.approx(18.0)
    assert value.negative == pytest.approx(4.0)
    assert theorems.largest_violation(problem) == pytest.approx(22.0)


def test_no_weights_exceed_the_largest_violation_or_the_spread():
    for case in cases(6):
        problem, thetas = case.problem, case.weights(60)
        negative, flow = case.quantities(thetas)[-2:]
        assert (negative + flow <= theorems.largest_violation(problem) + 1e-9).all()
        objectives = thetas @ (case.phi.T @ case.losses.ravel())
        largest = theorems.spread(problem)
        assert np.ptp(objectives) <= largest * (1 + 1e-12) + 1e-9
        ends = [problem.project(sign * 1e9 * problem.losses) for sign in (1, -1)]
        assert problem.losses @ (ends[0] - ends[1]) == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("based", [False, True])
def test_the_spread_is_the_maximum_that_an_optimiser_finds(based):
    problem = Case(3, "random", 0.6, based=based).problem
    start = problem.project(np.ones(len(problem.features)))
    found = [
        optimize.minimize(
            lambda t, s=sign: s * (problem.losses @ t),
            start,
            method="SLSQP",
            constraints=[
                {"type": "eq", "fun": lambda t: t.sum() - problem.mass},
                {"type": "ineq", "fun": lambda t: problem.radius**2 - t @ t},
            ],
            options={"ftol": 1e-12, "maxiter": 500},
        ).fun
        for sign in (1, -1)
    ]
    assert -sum(found) == pytest.approx(theorems.spread(problem), rel=1e-5)


# -- excess loss -----------------------------------------------------------------------------------


def minimiser(problem, penalty):
    """A point of Θ, and b: how far it is above the least value of the cube that holds Θ, at
    most.
    """
    found = solve_listed(problem, penalty)
    theta = problem.project(found.theta)
    value = problem.value(theta, penalty, problem.enumerate()).total
    return theta, value, max(value - found.value, 0.0) + 1e-7 * (1 + abs(value))


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_main_theorem_holds_below_and_above_kappa(gamma):
    """Minimisers and worse points, against a hundred θ each; several penalties.

    b is known from a linear program.
    """
    closest = math.inf
    for case in cases(2, [gamma]):
        problem, thetas = case.problem, case.weights(100)
        _, _, _, values, costs, _, negative, flow = case.quantities(thetas)
        spans = np.ptp(values, axis=1)
        # of all policies that the test meets, so that one κ serves for all penalties
        sigma = case.loss_range / (1 - gamma) if gamma is not None else float(spans.max())
        kappa = case.loss_range + (gamma or 1.0) * sigma
        for penalty in (0.05 * kappa, 0.4 * kappa, 0.99 * kappa, kappa, 4 * kappa):
            best, value, error = minimiser(problem, penalty)
            c = (thetas @ problem.losses + problem.base_loss) + penalty * (negative + flow)
            for theta, b in [(best, error), *((thetas[k], c[k] - value + error) for k in range(3))]:
                _, _, _, own, cost, _, _, _ = case.quantities(theta[None])
                span = None if gamma is not None else max(sigma, float(np.ptp(own[0])))
                for k in range(len(thetas)):
                    found = theorems.main_theorem(
                        problem,
                        penalty,
                        loss_range=case.loss_range,
                        cost=costs[k],
                        violation=negative[k] + flow[k],
                        error=b,
                        span=span,
                        known="measured",
                    )
                    assert cost[0] <= found.bound + 1e-7 * (1 + abs(found.bound))
                    closest = min(closest, found.bound - cost[0])
                    assert found.label == ("measured" if gamma is None else "proved")
    assert closest < 1.0


def test_the_main_theorem_is_attained_at_kappa():
    """θ in the middle loses κ/2·V_flow by its policy, and θ̂ is feasible with c(θ̂) = c(θ) + b."""
    gamma, t = 0.9, 0.1
    mass, kappa = 10.0, 30.0 * (1 + 1e-12)
    model = dp.TabularModel([np.eye(2)], [0.0, 3.0])
    problem = DualALP(
        model,
        families.table(model, np.eye(2)),
        dp.Discounted(gamma, start=[((0,), 0.5), ((1,), 0.5)]),
    )
    theta, exact = mass * np.array([0.5 - t, 0.5 + t]), mass * np.array([0.5, 0.5])
    listed = problem.enumerate()
    for penalty in (kappa, 2 * kappa):
        b = (
            problem.value(exact, penalty, listed).total
            - problem.value(theta, penalty, listed).total
        )
        found = theorems.main_theorem(
            problem, penalty, loss_range=3.0, cost=15.0, violation=2 * t, error=b
        )
        assert found.bound - 15.0 == pytest.approx(
            kappa / 2 * 2 * t
        )  # what κ/2 for the flow alone would save
        assert set(found.terms) == {"cost of θ", "violations", "b"}
    short = theorems.main_theorem(
        problem, kappa / 2, loss_range=3.0, cost=15.0, violation=0.2, error=0.5
    )
    assert short.terms["violations"] == pytest.approx(2 * kappa * 0.2)
    assert short.terms["1/H"] == pytest.approx(theorems.spread(problem))
    assert short.terms["b"] == pytest.approx(1.0)
    assert short.constants["beta"] == pytest.approx(kappa * theorems.spread(problem))


def test_a_small_penalty_can_cost_what_the_spread_says():
    """θ̂ sits where losses are 0 and nothing flows, and its policy pays κ; the bound is 2.2·κ."""
    gamma, kappa, tiny = 0.9, 10.0, 1e-9
    for penalty in (0.05, 0.5, 2.0):
        stay, leave = np.eye(3), np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        loss = 2.2 * penalty * (1 - gamma)
        model = dp.TabularModel([stay, leave], [[loss, 1.0], [1.0, 1.0], [0.0, 0.0]])
        phi = np.array([[1.0, 0], [0, tiny], [0, 0], [0, 0], [0, 1 - tiny], [0, 0]])
        problem = DualALP(
            model, families.table(model, phi), dp.Discounted(gamma), radius=1 / (1 - gamma)
        )
        theta, _, error = minimiser(problem, penalty)
        assert theta == pytest.approx([0.0, 10.0], abs=1e-6)
        cost = dp.evaluate_exact(
            model, given(problem, [0.0, 10.0]).policy(), dp.Discounted(gamma)
        ).cost
        assert cost == pytest.approx(kappa)
        found = theorems.main_theorem(
            problem, penalty, loss_range=1.0, cost=2.2 * penalty, violation=0.0, error=error + 1e-6
        )
        assert found.terms["1/H"] == pytest.approx((kappa / penalty - 1) * 2.2 * penalty, rel=1e-6)
        assert found.bound - found.terms["1/H"] < cost <= found.bound <= 2.21 * cost


@pytest.mark.parametrize("gamma", [None, 0.8])
def test_the_meta_theorem_holds_for_the_minimiser_over_a_fine_grid(gamma):
    """F by linear programs on a fine grid from √(β/V_max) to 2β/ε.

    Ε is what the grid and the programs leave.
    """
    for case in [
        Case(seed, speed, gamma) for seed, speed in ((0, "random"), (1, "fast"), (2, "lazy"))
    ]:
        problem, thetas = case.problem, case.weights(150)
        _, _, _, values, costs, _, negative, flow = case.quantities(thetas)
        sigma = (
            case.loss_range / (1 - gamma)
            if gamma is not None
            else float(np.ptp(values, axis=1).max())
        )
        kappa = case.loss_range + (gamma or 1.0) * sigma
        for beta in (kappa * theorems.spread(problem), 0.3):
            epsilon = 0.02 * kappa + 0.01 * beta
            low, high = math.sqrt(beta / theorems.largest_violation(problem)), 2 * beta / epsilon
            ratio = 1 + epsilon / 2 / math.sqrt(beta * theorems.largest_violation(problem))
            steps = min(60, max(2, math.ceil(math.log(max(high / low, 1.01)) / math.log(ratio))))
            grid = low * (high / low) ** np.linspace(0, 1, steps + 1)
            found = [(minimiser(problem, h + kappa), h) for h in grid]
            scores = [value + beta / h for (_, value, _), h in found]
            chosen = int(np.argmin(scores))
            # F(H_k) <= F(H) + (ρ − 1)·β/H for H in [H_k, ρ·H_k]
            loose = (grid[1] / grid[0] - 1) * beta / low + max(error for (_, _, error), _ in found)
            best = case.quantities(found[chosen][0][0][None])
            span = None if gamma is not None else max(sigma, float(np.ptp(best[3][0])))
            for k in range(len(thetas)):
                bound = theorems.meta_theorem(
                    problem,
                    loss_range=case.loss_range,
                    cost=costs[k],
                    violation=negative[k] + flow[k],
                    epsilon=max(epsilon, loose),
                    beta=beta,
                    span=span,
                    known="measured",
                )
                assert best[4][0] <= bound.bound + 1e-9
            assert bound.label == ("measured" if gamma is None else "proved")


def test_the_meta_theorem_needs_its_root():
    """Of two features one is feasible and costs .65, the other's policy costs 0 at V = .02; κ = 10
    and β = 2.

    F is least at the first, and without 2√(βV) = .4 the bound would be .42.
    """
    gamma, kappa, beta, epsilon, s = 0.9, 10.0, 2.0, 0.01, 0.1
    stay, absorbed = np.eye(2), np.eye(2)
    model = dp.TabularModel([stay, absorbed], [[0.0, 0.065], [1.0, 1.0]])
    phi = np.array([[1 - s / 10, 0], [0, 1.0], [s / 10, 0], [0, 0]])
    problem = DualALP(model, families.table(model, phi), dp.Discounted(gamma), radius=10.0)
    near = given(problem, [10.0, 0.0])
    violation = near.parts.negative + near.parts.flow
    assert violation == pytest.approx(0.02)
    assert near.parts.objective == pytest.approx(kappa / 2 * violation)
    grid = np.geomspace(
        math.sqrt(beta / theorems.largest_violation(problem)), 2 * beta / epsilon, 60
    )
    scores = [(minimiser(problem, h + kappa)[1] + beta / h, h) for h in grid]
    theta, _, _ = minimiser(problem, min(scores)[1] + kappa)
    assert theta == pytest.approx([0.0, 10.0], abs=1e-6)
    cost = discounted_cost_from(model, given(problem, theta).policy(), problem)
    assert cost == pytest.approx(0.65)
    found = theorems.meta_theorem(
        problem, loss_range=1.0, cost=0.0, violation=violation, epsilon=epsilon, beta=beta
    )
    assert found.bound - found.terms["root"] < cost <= found.bound
    assert found.bound == pytest.approx(0.4 + 0.4 + epsilon)


def test_the_corollary_holds_for_features_near_the_optimum():
    """ν* from policy iteration by dense solves, features at known distances from it.

    The distance is exact.
    """
    for seed, speed in enumerate(SPEEDS):
        for gamma in (0.5, 0.9):
            rng = np.random.default_rng(seed)
            transitions, losses = random_tables(rng, speed, 6, 2)
            alpha = np.eye(6)[0]
            policy = np.eye(2)[np.zeros(6, int)]
            for _ in range(30):
                law, values, optimum = occupancy_and_values(
                    transitions, losses, policy, gamma, alpha
                )
                policy = np.eye(2)[np.argmin(losses + gamma * transitions @ values, axis=1)]
            model = dp.TabularModel(transitions.reshape(-1, 6), losses)
            noise = rng.dirichlet(np.full(12, 0.3), size=5).T
            phi = np.hstack(
                [(1 - gamma) * law.reshape(-1, 1) * 0.98 + 0.02 * noise[:, :1], noise[:, 1:]]
            )
            problem = DualALP(model, families.table(model, phi), dp.Discounted(gamma))
            near = problem.mass * np.eye(5)[0]
            distance = np.abs(phi @ near - law.ravel()).sum()
            kappa = np.ptp(losses) / (1 - gamma)
            parts = problem.value(near, 1.0, problem.enumerate())
            assert parts.negative <= distance / 2 + 1e-12
            assert parts.flow <= (1 + gamma) * distance + 1e-12
            assert abs(parts.objective - optimum) <= np.ptp(losses) * distance / 2 + 1e-9
            for penalty in (0.2 * kappa, kappa, 3 * kappa):
                theta, _, error = minimiser(problem, penalty)
                table = positive_part_policy((phi @ theta).reshape(6, 2), 0.5)
                cost = occupancy_and_values(transitions, losses, table, gamma, alpha)[2]
                found = theorems.error_bound(
                    problem,
                    penalty,
                    loss_range=float(np.ptp(losses)),
                    optimum=optimum,
                    distance=distance,
                    error=error,
                )
                assert optimum - 1e-9 <= cost <= found.bound + 1e-9
                if penalty >= kappa:
                    right = (
                        optimum + (np.ptp(losses) / 2 + (1.5 + gamma) * penalty) * distance + error
                    )
                    assert found.bound == pytest.approx(right)
    with pytest.raises(
        dp.errors.InputError, match="the corollary is about the discounted criterion"
    ):
        theorems.error_bound(
            Case(0, "fast", None).problem, 1.0, loss_range=1, optimum=0, distance=1, error=0
        )


def test_theorems_refuse_what_they_are_not_about(net, mixed):
    shaped = DualALP(net, mixed, potential=lambda x: x.sum(axis=1))
    with pytest.raises(
        dp.errors.InputError, match="without potential, weights over states and limits"
    ):
        theorems.main_theorem(
            shaped, 1.0, loss_range=8.0, cost=1.0, violation=0.1, error=0.1, span=3.0
        )
    with pytest.raises(dp.errors.InputError, match="give span"):
        theorems.meta_theorem(
            DualALP(net, mixed), loss_range=8.0, cost=1.0, violation=0.1, epsilon=0.1
        )


@pytest.mark.parametrize("sampling", ["features", "uniform", "row-norms"])
def test_work_by_theory_rests_on_ranges_that_no_term_exceeds(net, mixed, sampling):
    """n of Hoeffding with the largest weighted term, here over thousands of draws and θ on the rim
    of Θ.
    """
    rng = np.random.default_rng(4)
    for criterion in BOTH:
        problem = DualALP(net, mixed, criterion, radius=30.0, sampling=sampling)
        asked = theorems.requirements(problem, (2.0, 5.0), epsilon=0.4, delta=0.1, points=3)
        span = math.sqrt(asked.draws * 2 / math.log(2 * 2 * 3 / 0.1)) * 0.1
        drawn = problem.draw(4_000, seed=3)
        for _ in range(20):
            theta = problem.project(1e3 * rng.normal(size=len(mixed)))
            negative = np.maximum(-(drawn.pairs @ theta), 0) * drawn.pair_weights * 4_000
            flow = np.abs(drawn.flows @ theta - drawn.masses) * drawn.flow_weights * 4_000
            assert 2.0 * negative.max() + 5.0 * flow.max() <= span
        alpha = drawn.masses * drawn.flow_weights * 4_000
        assert alpha.max() <= problem.constants.start + 1e-9
        assert asked.points == 3
        assert asked.to_json()["penalty"] == [2.0, 5.0]
        assert theorems.optimisation_error(
            problem, (2.0, 5.0), asked.steps, 0.1 / 6
        ) == pytest.approx(0.1)
    tiny = theorems.requirements(problem, 5.0, epsilon=1e-200, delta=0.1)
    assert tiny.to_json() == {"penalty": 5.0, "T": None, "n": None, "K": 1}


# -- certify ---------------------------------------------------------------------------------------


def test_certificates_of_random_models_hold_the_exact_cost():
    """Several hundred, by the library from θ to interval; costs by dense solves."""
    seen = 0
    for case in cases(4):
        fallback = case.rng.dirichlet(np.ones(case.losses.shape[1]), len(case.losses))
        named = TablePolicy(case.model, fallback, name="other")
        for theta in case.weights(4):
            _, _, laws, values, costs, _, negative, flow = case.quantities(theta[None], fallback)
            found = certify(case.problem, given(case.problem, theta), fallback=named)
            assert found.cost.lower - 1e-12 <= costs[0] <= found.cost.upper + 1e-12
            assert found.cost.label == ("measured" if case.gamma is None else "proved")
            assert found["negative part"].value == pytest.approx(negative[0], abs=1e-10)
            assert found["flow"].value == pytest.approx(flow[0], abs=1e-10)
            assert found["loss range"].value == pytest.approx(case.loss_range)
            u = (case.phi @ theta + case.base).reshape(case.losses.shape)
            assert np.abs(laws[0] - u).sum() <= found["distance"].value + 1e-9
            if case.gamma is None:
                assert found["span, measured"].value == pytest.approx(np.ptp(values[0]), abs=1e-9)
                assert np.ptp(values[0]) <= found["span, from tau"].value + 1e-9
            assert found.confidence == 1.0
            seen += 1
    assert seen > 300


def small_models():
    net = dp.load("four-queue", buffers=2)
    cross = dp.load("criss-cross", buffers=2)
    sales = dp.load("lost-sales", lead_time=2, demand=1.0, capacity=3, max_order=2)
    garnet = dp.load("garnet", states=12, actions=3, branching=3)
    random = np.random.default_rng(1).dirichlet(np.full(36, 0.1), size=6).T
    return [
        (net, mixed_features(net)),
        (cross, families.tiles(cross, cross.policy("random"), [[(0, 0), (1, 2)]] * 3)),
        (sales, families.tiles(sales, sales.policy("base-stock"), [[(0, 0), (1, 3)], [(0, 2)]])),
        (garnet, families.table(garnet, random)),
    ]


@pytest.mark.parametrize(
    "which", range(4), ids=["four-queue", "criss-cross", "lost-sales", "garnet"]
)
def test_certificates_of_named_models(which):
    """Random θ and minimisers, with and without a base measure; violations summed and drawn."""
    model, features = small_models()[which]
    rng, d, (rows, losses) = np.random.default_rng(which), len(features), matrix(model)
    tables, states = (
        rows.reshape(*losses.shape, -1),
        [model.box.state(i) for i in range(model.box.count)],
    )
    start = np.eye(len(states))[model.box.index(model.start)]
    for criterion in BOTH:
        for base in (
            None,
            families.occupancies(model, [dp.policies.random_policy(model)], criterion),
        ):
            problem = DualALP(model, features, criterion, base=base)
            solutions = [
                given(problem, problem.project(rng.normal(size=d) * size))
                for size in (0.0, 0.1, 1.0)
            ]
            solutions.append(solve_listed(problem, 2 * loss_range(model) * problem.total))
            for solution in solutions:
                policy, gamma = (
                    solution.policy(),
                    criterion.gamma if isinstance(criterion, dp.Discounted) else None,
                )
                truth = occupancy_and_values(
                    tables, losses, np.array([policy(x) for x in states]), gamma, start
                )[2]
                drawn = measure_violations(
                    problem,
                    solution.theta,
                    rule="bernstein",
                    samples=2_000,
                    confidence=0.99,
                    seed=which,
                )
                for violations in (None, drawn):
                    found = certify(problem, solution, violations=violations)
                    assert found.cost.lower - 1e-7 <= truth <= found.cost.upper + 1e-7
                    assert found.cost.label == (
                        "measured" if criterion == dp.Average() else "proved"
                    )
                    assert found.confidence == (1.0 if violations is None else 0.99)
    assert set(found.to_json()["entries"]) == {entry.name for entry in found.entries}


def test_without_a_span_the_average_criterion_has_no_interval():
    net = dp.load("four-queue", buffers=(20, 20, 20, 20))
    features = families.bands(net, [(0, 2), (3, 9)])
    problem = DualALP(net, features)
    solution = Solution(
        problem, "given", (1.0, 1.0), np.full(8, 0.125), None, Status.SOLVED, 0, 0, 0.0
    )
    violations = measure_violations(problem, solution.theta, rule="bernstein", samples=5_000)
    found = certify(problem, solution, violations=violations)
    assert (found.cost.lower, found.cost.upper) == (-math.inf, math.inf)
    assert "the span of the policy's bias is not known; give span" in found.cost.note
    assert not math.isfinite(found.cost.to_json()["upper"])
    assert "span, measured" not in found
    with_span = certify(problem, solution, violations=violations, span=1_000.0)
    assert with_span.cost.label == "assumed"
    assert with_span["span, assumed"].value == 1_000.0
    assert math.isfinite(with_span.cost.upper)
    small = dp.load("four-queue", buffers=1)
    problem = DualALP(small, families.boxes(small, [[(0, 1)]] * 4))
    asked = certify(problem, given(problem, np.full(4, 0.25)), measure=False)
    assert "not known; give span" in asked.cost.note


def test_losses_of_unknown_range_have_no_interval():
    net = dp.load("four-queue", buffers=None)
    features = families.bands(net, [(0, 2), (3, 9)])
    problem = DualALP(net, features, dp.Discounted(0.9))
    solution = Solution(
        problem, "given", (1.0, 1.0), np.full(8, 1.25), None, Status.SOLVED, 0, 0, 0.0
    )
    for span in (None, 50.0):
        found = certify(problem, solution, span=span, samples=2_000)
        assert (found.cost.lower, found.cost.upper) == (-math.inf, math.inf)
        assert "the range of the losses is not known" in found.cost.note
    assert loss_range(net) == math.inf


def estimated_products():
    net = dp.load("four-queue", buffers=2, penalty=4.0)
    return products(net, [[Truncated(0.5)] * 4, [Truncated(0.9)] * 4])


def estimated_user_defined():
    net = dp.load("four-queue", buffers=9)  # more states than are listed when features are made

    def row(x, a, indices, values):
        indices[0], values[0] = a, 1 / 10_000
        return 1

    def draw(j, u, x):
        for i in range(4):
            x[i] = int(10 * u[i])
        return j

    return user_defined(net, row, draw, 4, widest=1)


@pytest.mark.parametrize("make", [estimated_products, estimated_user_defined])
def test_losses_that_were_estimated_make_a_measured_interval(make):
    features = make()
    model = features.model
    assert (features.errors > 0).all()
    problem = DualALP(model, features, dp.Discounted(0.5))
    solution = given(problem, np.full(len(features), 2 / len(features)))
    found = certify(problem, solution)
    truth = dp.evaluate_exact(model, solution.policy(), dp.Discounted(0.5)).cost
    assert found.cost.label == "measured"
    assert "standard errors" in found.cost.note
    assert found.cost.lower <= truth <= found.cost.upper


def test_estimated_losses_widen_the_interval_by_five_errors():
    net = dp.load("four-queue", buffers=2, penalty=4.0)
    features = products(net, [[Truncated(0.5)] * 4])
    base = families.occupancies(net, [net.policy("lbfs")], dp.Discounted(0.5))
    problem = DualALP(net, features, dp.Discounted(0.5), base=base)
    found = certify(problem, given(problem, [0.1, -0.1, 0.0, 0.0]))
    negative, flow, kappa = found["negative part"].upper, found["flow"].upper, loss_range(net) / 0.5
    reach = kappa * (negative + flow / 2) + 5 * 0.1 * features.errors[:2].sum()
    assert found.cost.upper < 2 * net.loss_bounds[1]
    assert found.cost.upper - found.cost.value == pytest.approx(reach, rel=1e-9)


def test_several_recurrent_classes_have_no_interval_whatever_is_given():
    model = dp.TabularModel(
        [np.eye(2), np.array([[0.5, 0.5], [0.0, 1.0]])], [[1.0, 2.0], [5.0, 6.0]]
    )
    problem = DualALP(model, families.table(model, np.eye(4)))
    solution = given(problem, [0.5, 0.0, 0.5, 0.0])
    for span in (None, 3.0):
        found = certify(problem, solution, span=span)
        assert (found.cost.lower, found.cost.upper) == (-math.inf, math.inf)
        assert "2 recurrent classes" in found.cost.note
        assert "distance" not in found
    single = certify(
        problem, given(problem, [0.4, 0.1, 0.5, 0.0])
    )  # moves to the second state in the end
    assert single.cost.lower <= 5.0 <= single.cost.upper


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"span": -1.0}, "span must be a finite number of at least 0"),
        ({"span": math.inf}, "span must be a finite number of at least 0"),
        ({"span": math.nan}, "span must be a finite number of at least 0"),
        ({"span": "wide"}, "span must be a finite number of at least 0"),
        ({"confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        ({"confidence": "high"}, "confidence must lie strictly between 0 and 1"),
        ({"samples": 1}, "samples must be a whole number, at least 2"),
        ({"samples": 2.5}, "samples must be a whole number, at least 2"),
    ],
)
def test_mistakes(options, words):
    case = Case(0, "random", 0.6)
    solution = given(case.problem, case.weights(1)[0])
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        certify(case.problem, solution, **options)
    assert "\n" not in str(caught.value)
    with pytest.raises(dp.errors.InputError, match=r"no entry 'price'; it has loss range, "):
        certify(case.problem, solution)["price"]


def test_dense_features_are_those_of_the_cases():
    case = Case(1, "lazy", 0.95, based=True)
    assert dense(case.problem.features) == pytest.approx(case.phi, abs=1e-15)


@pytest.mark.parametrize(
    "criterion", [dp.Average(), dp.Discounted(0.9, start=[((0,), 0.5), ((1,), 0.5)])]
)
def test_features_that_do_not_quite_sum_to_one_are_allowed_for(criterion):
    """Sums are checked to 1e-9 only; losses are large, and nothing else widens the interval."""
    model = dp.TabularModel([np.full((2, 2), 0.5)], [[1000.0], [1001.0]])
    problem = DualALP(model, families.table(model, np.full((2, 1), 0.5 * (1 + 9e-10))), criterion)
    solution = given(problem, [problem.mass])
    found, cost = (
        certify(problem, solution).cost,
        dp.evaluate_exact(model, solution.policy(), criterion),
    )
    assert found.lower <= cost.lower
    assert cost.upper <= found.upper


def test_declared_loss_bounds_are_looked_at():
    class Wrong(dp.TabularModel):
        loss_bounds = (0.0, 1.0)

    model = Wrong([np.full((2, 2), 0.5)], [[0.0], [5.0]])
    problem = DualALP(model, families.table(model, np.eye(2)))
    with pytest.raises(
        dp.errors.ModelError, match="declares losses from 0 to 1 but has losses from 0 to 5"
    ):
        certify(problem, given(problem, [0.5, 0.5]))


def test_without_loss_bounds_a_span_is_not_asked_for():
    """It would not help."""
    model = load("criss-cross")
    problem = DualALP(model, products(model, [[families.Geometric(0.5)] * 3]))
    theta = np.full(len(problem.features), 1 / len(problem.features))
    parts = problem.value(theta, 1.0, problem.draw(100))
    solution = Solution(problem, "given", (1.0, 1.0), theta, parts, Status.SOLVED, 0, 0, 0.0)
    for span in (None, 100.0):
        found = certify(problem, solution, span=span, samples=1_000)
        assert "range of the losses is not known" in found.cost.note
        assert found["loss range"].label == found.cost.label == "unknown"
        assert not math.isfinite(found.cost.to_json()["value"])
