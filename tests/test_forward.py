"""The forward-only problem: means over simulated transitions against exact occupancies, programs
against dense ones.

Intervals are at 99.99%, over 8 independent trajectories, so that one of them misses by chance once
in ten thousand.
"""

import itertools

import numpy as np
import pytest
from scipy import optimize, stats

import dualplan as dp
from bank import matrix, mm1, occupancy_and_values, positive_part_policy
from dualplan.dual.features import (
    RatioPolicy,
    Ratios,
    cells,
    concat_ratios,
    levels,
    portfolio,
    user_ratios,
)
from dualplan.dual.features.ratios import Portfolio
from dualplan.dual.simulated import SimulatedALP, fitted_potential, residuals, solve_simulated
from dualplan.policies import FunctionPolicy, Mixed, TablePolicy, exploring
from dualplan.policies.contract import PolicyCode
from dualplan.values import test_functions as tests
from dualplan.values.functions import state_function

SURE = 0.9999
CRITERIA = [
    dp.Average(),
    dp.Discounted(0.9),
    dp.Discounted(0.8, start=[((0, 1, 0, 0), 0.25), ((2, 2, 1, 0), 0.75)]),
]


def single(x, a, indices, values):
    """A ratio for every pair of a model with two actions: θ is u/μ, since the scale of a ratio is
    free.
    """
    indices[0], values[0] = 2 * x[0] + a, 1.0
    return 1


def customers(x):
    return x[0] + x[1] + x[2] + x[3]


def own(x, a, indices, values):
    indices[0], values[0] = a % 2, 0.5 + 0.25 * x[0] - 0.3 * a
    return 1


@pytest.fixture(scope="module")
def reference(net):
    return exploring(net.policy("lbfs"), 0.3)


@pytest.fixture(scope="module")
def ratios(net, reference):
    policies = [net.policy(name) for name in ("lbfs", "longer", "c-mu")]
    return concat_ratios(
        portfolio(reference, policies, cells(net, {"1": [1], "4": [1, 2]})),
        portfolio(reference, [reference], levels(net, customers, [2, 5], cells(net, {"2": [1]}))),
        user_ratios(reference, own, 2, widest=1),
    )


@pytest.fixture(scope="module")
def families(net):
    return tests.concat(
        tests.cells(cells(net, {"1": [1], "2": [1, 2]})),
        tests.polynomials(net, 2),
        tests.functions(net, lambda x: np.cos(x[:, 0]) - x[:, 3], "wave"),
    )


def every(model):
    return model.box.states(np.arange(model.box.count))


def table(policy):
    return np.array([policy(x) for x in every(policy.model)])


def dense_ratios(ratios):
    """r_j at every pair x·A + a that the reference may choose, written out from the definition of
    each block.
    """
    model, law = ratios.model, table(ratios.reference)
    dense = np.zeros((*law.shape, len(ratios)))
    for (i, x), a in itertools.product(enumerate(every(model)), range(law.shape[1])):
        if law[i, a] > 0:
            indices, values = ratios.row(x, a)
            dense[i, a, indices] = values
    return dense.reshape(-1, len(ratios)), law


def exact_parts(model, ratios, theta, criterion, families):
    """ℓᵀu, the mass, V_neg, and fᵀy signed as in the module, from dense matrices and the exact
    occupancy.
    """
    phi, law = dense_ratios(ratios)
    rows, losses = matrix(model)
    count, actions = losses.shape
    gamma, alpha = 1.0, np.zeros(count)
    if isinstance(criterion, dp.Discounted):
        gamma = criterion.gamma
        for x, p in zip(*criterion.start_distribution(model), strict=True):
            alpha[model.box.index(x)] += p
        mu, _, _ = occupancy_and_values(
            rows.reshape(count, actions, count), losses, law, gamma, alpha
        )
    else:
        evaluation = dp.evaluate_exact(model, ratios.reference)
        state = np.zeros(count)
        state[evaluation.reached] = evaluation.occupancy
        mu = state[:, None] * law
    u = mu.ravel() * (phi @ theta)
    inflow = gamma * rows.T @ u - u.reshape(count, actions).sum(axis=1) + alpha
    y = families(every(model)).toarray()
    return (
        float(losses.ravel() @ u),
        u.sum() / mu.sum(),
        np.maximum(-u, 0).sum(),
        y.T @ inflow,
        np.abs(inflow).sum(),
    )


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_means_over_transitions_are_those_of_the_exact_occupancy(net, ratios, families, criterion):
    problem = SimulatedALP(ratios, families, criterion, samples=200_000, seed=4)
    theta = np.random.default_rng(1).normal(0.4, 1.0, len(ratios))
    parts = problem.estimates(theta, 1.0, confidence=SURE)
    objective, mass, negative, flow, violation = exact_parts(
        net, ratios, theta, criterion, problem.tests
    )
    for found, truth in (
        (parts.objective, objective),
        (parts.mass, mass),
        (parts.negative, negative),
    ):
        assert found.lower <= truth <= found.upper
        assert found.half_width < 0.25 * abs(objective)
    seen = residuals(problem.moments(fresh=True), theta)
    errors = seen.std(axis=0, ddof=1) / np.sqrt(len(seen))
    assert (
        np.abs(seen.mean(axis=0) - flow) <= 9 * errors + 1e-12
    ).all()  # t with 7 degrees: p < 5e-5 each
    assert (
        parts.flow.lower <= problem.tests.bound(flow) <= violation + 1e-9
    )  # a lower bound of a lower bound


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_means_over_next_states_have_the_same_expectations_and_less_noise(
    net, ratios, families, criterion
):
    potential = state_function(net, 10 * every(net).sum(axis=1).astype(float) ** 2)
    theta = np.random.default_rng(1).normal(0.4, 1.0, len(ratios))
    drawn, listed = (
        SimulatedALP(
            ratios,
            families,
            criterion,
            samples=4_000,
            every=5,
            seed=4,
            expected=way,
            potential=potential,
        )
        for way in (False, True)
    )
    parts = listed.estimates(theta, 1.0, confidence=SURE)
    objective, mass, negative, flow, _ = exact_parts(net, ratios, theta, criterion, listed.tests)
    for found, truth in (
        (parts.objective, objective),
        (parts.mass, mass),
        (parts.negative, negative),
    ):
        assert found.lower <= truth <= found.upper
    seen = residuals(listed.moments(fresh=True), theta)
    errors = seen.std(axis=0, ddof=1) / np.sqrt(len(seen))
    assert (np.abs(seen.mean(axis=0) - flow) <= 9 * errors + 1e-12).all()
    assert (
        parts.shaped.half_width
        < 0.7 * drawn.estimates(theta, 1.0, confidence=SURE).shaped.half_width
    )


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_the_bound_is_below_the_violation_and_equal_to_it_for_single_states(net, ratios, criterion):
    theta = np.random.default_rng(7).normal(0.4, 1.0, len(ratios))
    states = tests.cells(cells(net, {c: [1, 2] for c in net.coordinates}))
    problem = SimulatedALP(ratios, states, criterion, samples=160_000, seed=2)
    _, _, _, flow, violation = exact_parts(net, ratios, theta, criterion, states)
    assert states.bound(flow) == pytest.approx(violation, rel=1e-12)
    parts = problem.estimates(theta, 1.0)
    assert parts.flow.value == pytest.approx(violation, rel=0.08)
    assert parts.flow_seen == pytest.approx(violation, rel=0.08)
    coarse = tests.cells(cells(net, {"1": [1]}))
    assert coarse.bound(exact_parts(net, ratios, theta, criterion, coarse)[3]) <= violation


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_a_potential_makes_the_objective_the_exact_cost_of_the_policy(
    net, ratios, families, criterion
):
    """ℓᵀu + residual(h) with u >= 0 and h the values of u's own policy."""
    theta = np.abs(np.random.default_rng(3).normal(1.0, 1.0, len(ratios)))
    theta[-2:] = 0.0  # the user's own have negative values
    policy = RatioPolicy(ratios, theta)
    exact = dp.evaluate_exact(net, policy, criterion, everywhere=True)
    values = state_function(net, exact.values)
    problem = SimulatedALP(ratios, families, criterion, potential=values, samples=100_000, seed=6)
    mass = exact_parts(net, ratios, theta, criterion, problem.tests)[1]
    if isinstance(criterion, dp.Discounted):
        # the potential's own residual is the rest, whatever the mass
        assert problem.estimates(theta, 1.0, confidence=SURE).shaped.lower <= exact.cost
        assert problem.estimates(theta, 1.0, confidence=SURE).shaped.upper >= exact.cost
    shaped = problem.estimates(theta / mass, 1.0, confidence=SURE).shaped
    assert shaped.lower <= exact.cost <= shaped.upper
    assert shaped.half_width < 0.15 * exact.cost


def transitions_of(problem):
    chunks = [chunk for many in problem.samples() for chunk in many]
    return [(recorded, sample) for recorded, sample in chunks]


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_the_linear_program_is_the_one_written_out(net, ratios, families, criterion):
    """A variable for every transition's slack and every test function, by another solver of dense
    matrices.
    """
    problem = SimulatedALP(
        ratios, families, criterion, samples=800, seed=1, potential=customers_rows, radius=5.0
    )
    found = solve_simulated(problem, (30.0, 12.0))
    pairs = transitions_of(problem)
    rows = np.vstack([sample.rows.toarray() for _, sample in pairs])
    x, y = (np.vstack([getattr(r, name) for r, _ in pairs]) for name in ("states", "following"))
    losses = np.concatenate([r.losses for r, _ in pairs])
    gamma, starts = (
        (criterion.gamma, problem.restarts) if criterion != dp.Average() else (1.0, None)
    )
    total = 1.0 if starts is None else 1 / (1 - gamma)
    shaped = losses + gamma * customers_rows(y) - customers_rows(x)
    g = total * (gamma * problem.tests(y) - problem.tests(x)).toarray().T @ rows / len(rows)
    alpha = np.zeros(len(g)) if starts is None else problem.tests(starts.starts).T @ starts.weights
    n, d, k = len(rows), rows.shape[1], len(g)
    costs = np.concatenate(
        [total * shaped @ rows / n, np.full(n, 30.0 * total / n), np.zeros(k), [12.0]]
    )
    above = [np.hstack([-rows, -np.eye(n), np.zeros((n, k + 1))])]
    limits = [np.zeros(n)]
    for sign in (1, -1):
        above.append(np.hstack([sign * g, np.zeros((k, n)), -np.eye(k), np.zeros((k, 1))]))
        limits.append(-sign * alpha)
    for adds, low, high in zip(
        problem.tests.adds, problem.tests.ends[:-1], problem.tests.ends[1:], strict=True
    ):
        for part in [range(low, high)] if adds else [[j] for j in range(low, high)]:
            line = np.zeros(d + n + k + 1)
            line[[d + n + j for j in part]], line[-1] = 1.0, -1.0
            above.append(line[None, :])
            limits.append(np.zeros(1))
    mass = np.concatenate([rows.mean(axis=0), np.zeros(n + k + 1)])[None, :]
    box = [(-5.0, 5.0)] * d + [(0, None)] * (n + k + 1)
    dense = optimize.linprog(costs, np.vstack(above), np.concatenate(limits), mass, [1.0], box)
    constant = 0.0 if starts is None else customers_rows(starts.starts) @ starts.weights
    assert found.value == pytest.approx(dense.fun + constant, rel=1e-6, abs=1e-6)
    assert problem.moments().mass.mean(axis=0) @ found.theta == pytest.approx(1.0, abs=1e-9)


def customers_rows(states):
    return states.sum(axis=1).astype(float)


def test_the_saddle_point_and_the_linear_program_agree(net, ratios, families):
    exact = dp.evaluate_exact(net, ratios.reference, everywhere=True)
    problem = SimulatedALP(
        ratios,
        families,
        samples=40_000,
        seed=3,
        potential=state_function(net, exact.values),
        radius=5.0,
    )
    for penalty in (1.0, 4.0):
        program = solve_simulated(problem, (20.0, penalty))
        saddle = solve_simulated(problem, (20.0, penalty), method="saddle")
        assert program.value - 1e-6 <= saddle.value <= program.value + 0.02 * abs(program.value)
        assert saddle.status in (dp.Status.COMPLETED, dp.Status.TOO_SHORT)
        assert program.value < problem.value(
            reference_weights(problem), (20.0, penalty), problem.moments()
        )


def reference_weights(problem):
    """The reference itself: the indicators of all bands."""
    theta = np.zeros(len(problem.ratios))
    theta[problem.ratios.first[1] : problem.ratios.first[2]] = 1.0
    return theta


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.8)], ids=str)
def test_with_every_pair_and_every_state_the_value_tends_to_the_optimum(criterion):
    model = dp.load("garnet", states=6, actions=2, branching=3, seed=5)
    random = model.policy("random")
    exact = dp.evaluate_exact(model, random, criterion)
    ratios = user_ratios(random, single, 12, widest=1)
    problem = SimulatedALP(
        ratios, tests.cells(cells(model, {0: [1, 2, 3, 4, 5]})), criterion, samples=400_000, seed=8
    )
    optimum = dp.solve_exact(model, criterion)
    found = solve_simulated(problem, 100.0)
    middle = (optimum.lower + optimum.upper) / 2
    assert found.value == pytest.approx(middle, rel=0.015)
    assert found.value < 0.95 * exact.cost
    assert dp.evaluate_exact(model, found.policy(), criterion).cost == pytest.approx(
        middle, rel=0.01
    )
    assert found.parts.flow.upper < 0.05 * exact.occupancy.sum()


def test_an_anchor_keeps_the_mass_of_its_cells(net, ratios, families):
    """With the exact bias, a portfolio on the anchor's cells is improved cell by cell: compared by
    hand.
    """
    reference, partition = ratios.reference, cells(net, {"1": [1], "4": [1]})
    policies = [net.policy(name) for name in ("lbfs", "longer", "c-mu")]
    exact = dp.evaluate_exact(net, reference, everywhere=True)
    problem = SimulatedALP(
        portfolio(reference, policies, partition),
        tests.cells(partition),
        samples=100_000,
        anchor=partition,
        potential=state_function(net, exact.values),
        seed=2,
    )
    found = solve_simulated(problem, (1e4, 1e-6))
    shaped = problem.moments().shaped.mean(axis=0).reshape(4, 3)
    mass = problem.moments().mass.mean(axis=0).reshape(4, 3)
    share = problem.moments().anchored
    by_hand = np.zeros((4, 3))
    best = np.argmin(shaped / mass, axis=1)
    by_hand[range(4), best] = share / mass[range(4), best]
    assert found.value == pytest.approx((shaped * by_hand).sum(), abs=1e-4)
    assert (found.theta.reshape(4, 3) * mass).sum(axis=1) == pytest.approx(share, abs=1e-6)
    assert dp.evaluate_exact(net, found.policy()).cost < exact.cost
    with pytest.raises(dp.errors.InputError, match="need method 'lp'"):
        solve_simulated(problem, 1.0, method="saddle")


@pytest.mark.parametrize("criterion", CRITERIA[:2], ids=str)
def test_a_fitted_potential_of_all_functions_is_the_bias(criterion):
    """With a function for every state least squares have no error but that of the sample."""
    model = dp.load("garnet", states=6, actions=2, branching=3, seed=5)
    random = model.policy("random")
    fitted = fitted_potential(
        random, dp.primal.indicators(model), criterion_of(criterion), samples=200_000, seed=1
    )
    exact = dp.evaluate_exact(model, random, criterion_of(criterion), everywhere=True)
    difference = fitted(every(model)) - exact.values
    if criterion == dp.Average():
        difference -= difference.mean()
    assert np.abs(difference).max() < 0.05 * exact.span


def criterion_of(criterion):
    return criterion if criterion == dp.Average() else dp.Discounted(0.8)


# -- policies and look-ups -------------------------------------------------------------------------


def test_the_policy_is_the_reference_times_the_positive_part(net, ratios):
    phi, law = dense_ratios(ratios)
    for seed in range(3):
        theta = np.random.default_rng(seed).normal(0.0, 1.0, len(ratios))
        u = law * (phi @ theta).reshape(law.shape)
        policy = RatioPolicy(ratios, theta)
        assert isinstance(policy.code, PolicyCode)  # compiled, so that this is what is compared
        assert table(policy) == pytest.approx(positive_part_policy(u, law), abs=1e-9)
    assert table(RatioPolicy(ratios, np.zeros(len(ratios)))) == pytest.approx(
        law, abs=1e-12
    )  # the fallback


def test_rows_are_the_quotients(net, reference, ratios):
    laws = [table(net.policy(name)) for name in ("lbfs", "longer", "c-mu")]
    phi, law = dense_ratios(ratios)
    states = every(net)
    cell = np.where(states[:, 0] >= 1, 3, 0) + np.digitize(states[:, 3], [1, 2])
    band = np.where(states[:, 1] >= 1, 3, 0) + np.digitize(states.sum(axis=1), [2, 5])
    expected = np.zeros((*law.shape, len(ratios)))
    for i, a in itertools.product(range(len(states)), range(4)):
        if law[i, a] > 0:
            for k in range(3):
                expected[i, a, 3 * cell[i] + k] = laws[k][i, a] / law[i, a]
            expected[i, a, 18 + band[i]] = 1.0
            expected[i, a, 24 + a % 2] = 0.5 + 0.25 * states[i, 0] - 0.3 * a
    assert phi == pytest.approx(expected.reshape(phi.shape), abs=1e-12)


def test_python_and_compiled_look_ups_agree(net, reference):
    """A policy that Numba cannot compile forces the look-up in Python."""
    plain = FunctionPolicy(net, lambda x: np.asarray({"p": reference(x)}["p"]), name="plain")
    assert plain.code is None
    longer = net.policy("longer")
    slow = portfolio(plain, [longer, plain], levels(net, customers, [2]))
    fast = portfolio(reference, [longer, reference], levels(net, customers, [2]))
    assert slow.code is None
    assert dense_ratios(slow)[0] == pytest.approx(dense_ratios(fast)[0], abs=1e-12)
    theta = np.array([1.0, -0.5, 0.3, 2.0])
    assert table(RatioPolicy(slow, theta)) == pytest.approx(
        table(RatioPolicy(fast, theta)), abs=1e-12
    )


def test_policies_of_one_kind_are_not_taken_for_one_another(net):
    """Objects that are called like functions have one fingerprint for all of their kind."""

    class Always:
        def __init__(self, action):
            self.action = action

        def __call__(self, x):
            return self.action

    policies = [FunctionPolicy(net, Always(a), name=f"always {a}") for a in range(4)]
    ratios = portfolio(net.policy("random"), policies)
    x = np.array([1, 1, 1, 1])
    assert [ratios.row(x, a)[0].tolist() for a in range(4)] == [[0], [1], [2], [3]]


def test_mixtures_of_policies(net):
    lbfs, longer = net.policy("lbfs"), net.policy("longer")
    mixed = Mixed([lbfs, longer, net.policy("random")], [0.5, 0.2, 0.3])
    expected = 0.5 * table(lbfs) + 0.2 * table(longer) + 0.3 * table(net.policy("random"))
    assert isinstance(mixed.code, PolicyCode)  # compiled
    assert table(mixed) == pytest.approx(expected, abs=1e-12)
    fixed = TablePolicy(net, np.zeros(net.box.count, np.int64))
    assert table(exploring(lbfs, 0.25, [fixed])) == pytest.approx(
        0.75 * table(lbfs) + 0.25 * table(fixed), abs=1e-12
    )
    with pytest.raises(dp.errors.PolicyError, match="probabilities"):
        Mixed([lbfs, longer], [0.5, 0.6])


def test_cells_cover_all_states_and_the_last_has_no_end():
    model = mm1()
    partition = cells(model, {0: [1, 4]})
    assert partition(np.array([[0], [1], [3], [4], [10**12]])).tolist() == [0, 1, 1, 2, 2]
    assert len(partition) == 3
    part = cells(model, {0: [3]}, where={0: (2, 5)})
    assert part(np.array([[1], [2], [3], [5], [6]])).tolist() == [-1, 0, 1, 1, -1]


def test_a_cut_within_an_interval_of_one_number_has_as_many_names_as_cells(net, reference):
    partition = cells(net, {"1": [1]}, where={"1": (1, 1)})
    assert len(partition.names) == len(partition) == 2
    ratios = portfolio(reference, [net.policy("lbfs"), reference], partition)
    assert len(ratios) == 4
    allowed = np.flatnonzero(reference([1, 0, 0, 0]))
    assert max(ratios.row([1, 0, 0, 0], int(a))[0].max() for a in allowed) == 3
    with pytest.raises(dp.errors.InputError, match="a name for each"):
        Portfolio((reference,), partition, ("one",))


def test_rows_of_very_different_sizes_are_told_apart(net, reference, families):
    def tiny(x, a, indices, values):
        indices[0], values[0] = 0, 1.0
        indices[1], values[1] = 1, np.exp(-40.0 - x[0] - x[1])
        return 2

    problem = SimulatedALP(
        user_ratios(reference, tiny, 2, widest=2), families, samples=1_000, warm_up=100
    )
    rows = problem.moments().rows.toarray()
    assert np.allclose(np.sort(-np.log(rows[:, 1])), [40, 41, 42, 43, 44])
    assert problem.moments().shares.sum(axis=1) == pytest.approx(np.ones(8))


def test_what_is_not_a_number_is_in_no_band(net, reference, families):
    wrong = levels(net, lambda x: np.nan if x[0] == 1 else 1.0 * x[0], [1])
    ratios = portfolio(reference, [reference], wrong)
    assert callable(ratios.code.row)
    with pytest.raises(dp.errors.InputError, match=r"not a number at state \(1, "):
        SimulatedALP(ratios, families, samples=1_000, warm_up=100).moments()
    with pytest.raises(dp.errors.InputError, match=r"not a number at state \(1, 0, 0, 0\)"):
        RatioPolicy(ratios, [1.0, 1.0]).probabilities(np.array([1, 0, 0, 0]))


def test_compiled_policies_refuse_states_where_the_reference_lacks_support(net):
    """As the look-up in Python does."""
    lbfs, longer = net.policy("lbfs"), net.policy("longer")
    policy = RatioPolicy(portfolio(lbfs, [longer]), [1.0])
    assert isinstance(policy.code, PolicyCode)  # compiled, so that this is what is compared
    apart = next(
        x for x in every(net) if ((table_row(lbfs, x) == 0) & (table_row(longer, x) > 0)).any()
    )
    with pytest.raises(dp.errors.InputError, match="let the reference explore"):
        policy(apart)
    with pytest.raises(dp.errors.InputError, match="let the reference explore"):
        dp.evaluate(net, policy, steps=20_000)


def table_row(policy, x):
    return policy.probabilities(np.ascontiguousarray(x))


def test_test_functions_are_bounded_by_one_everywhere(net):
    few = tests.polynomials(net, 3).scaled(every(net)[:20])
    values = few(every(net)).toarray()
    assert np.abs(values).max() <= 1.0
    assert values[:20].max() == pytest.approx(1.0)
    residual = np.array([0.3, -0.5, 0.1, 0.0])
    partition = tests.cells(cells(net, {"1": [1], "2": [1]}))
    best = max(residual @ np.array(signs) for signs in itertools.product((-1, 1), repeat=4))
    assert partition.bound(residual) == pytest.approx(best)


# -- simulators ------------------------------------------------------------------------------------


def test_a_simulator_alone_gives_the_same_in_law():
    """A Garnet model as a table and as a function that draws; both against the exact values."""
    model = dp.load("garnet", states=8, actions=2, branching=3, seed=1)
    rows, losses = matrix(model)
    sums = np.cumsum(rows.reshape(8, 2, 8), axis=2)

    def step(x, a, rng):
        return int(np.searchsorted(sums[x[0], a], rng.random(), side="right")), losses[x[0], a]

    simulator = dp.SimulatorModel(lower=[0], upper=[7], actions=2, step=step)
    parts = []
    for given, samples in ((model, 200_000), (simulator, 8_000)):
        reference = FunctionPolicy(given, lambda x: np.array([0.5, 0.5]), name="even")
        first = FunctionPolicy(given, lambda x: 0 if x[0] < 4 else 1, name="first")
        ratios = portfolio(reference, [first, reference], cells(given, {0: [4]}))
        families = tests.cells(cells(given, {0: list(range(1, 8))}))
        problem = SimulatedALP(
            ratios, families, dp.Discounted(0.7), samples=samples, warm_up=50, seed=3
        )
        theta = np.array([1.5, -0.4, 0.7, 0.3])
        truth = exact_parts(model, portfolio_on(model), theta, dp.Discounted(0.7), families)
        parts = problem.estimates(theta, 1.0, confidence=SURE)
        for found, exact in zip((parts.objective, parts.mass, parts.negative), truth, strict=False):
            assert found.lower <= exact <= found.upper
        assert solve_simulated(problem, 50.0).policy().code is None or given is model


def portfolio_on(model):
    reference = FunctionPolicy(model, lambda x: np.array([0.5, 0.5]), name="even")
    first = FunctionPolicy(model, lambda x: 0 if x[0] < 4 else 1, name="first")
    return portfolio(reference, [first, reference], cells(model, {0: [4]}))


def test_episodes_that_end_are_followed_by_nothing():
    """Two states; the second ends with probability 1/2: values and flow from a 2 x 2 system."""

    def step(x, a, rng):
        if x[0] == 0:
            return 1 if a == 1 else 0, 1.0
        return 0, 3.0, rng.random() < 0.5

    model, gamma = dp.SimulatorModel(lower=[0], upper=[1], actions=2, step=step), 0.8
    even = FunctionPolicy(model, lambda x: np.array([0.5, 0.5]), name="even")
    go = FunctionPolicy(model, lambda x: 1, name="go")
    ratios = portfolio(even, [even, go])
    problem = SimulatedALP(
        ratios, tests.cells(cells(model, {0: [1]})), dp.Discounted(gamma), samples=6_000, seed=1
    )
    chain = np.array([[0.5, 0.5], [0.5, 0.0]])
    law = np.linalg.solve(np.eye(2) - gamma * chain.T, [1.0, 0.0])
    parts = problem.estimates(np.array([1.0, 0.0]), 1.0, confidence=SURE)
    assert parts.objective.lower <= law @ [1.0, 3.0] <= parts.objective.upper
    assert parts.mass.value == pytest.approx(
        1.0, abs=1e-9
    )  # by its definition, whatever the sample
    assert parts.mass.half_width < 1e-9
    assert problem.moments().total == pytest.approx(law.sum(), rel=0.03)
    assert parts.flow.lower <= 0.0 <= parts.flow.upper
    parts = problem.estimates(np.array([0.0, 1.0]), 1.0, confidence=SURE)
    inflow = gamma * np.array([[0.0, 1.0], [0.5, 0.0]]).T @ law - law + [1.0, 0.0]
    assert parts.flow.lower <= np.abs(inflow).sum() <= parts.flow.upper


class Session:
    """Two states and starts that only the simulator knows.

    Episodes end with the probabilities of `ENDS`.
    """

    STARTS, ENDS = np.array([0.3, 0.7]), np.array([0.05, 0.4])
    MOVES = np.array(
        [[[0.8, 0.2], [0.1, 0.9]], [[0.5, 0.5], [0.6, 0.4]]]
    )  # state, action, next state
    LOSSES = np.array([[1.0, 2.0], [3.0, 0.5]])

    def reset(self, rng):
        self.x = int(rng.random() < self.STARTS[1])
        return np.array([self.x])

    def step(self, x, a, rng):
        loss, ended = self.LOSSES[self.x, a], rng.random() < self.ENDS[self.x]
        self.x = int(rng.random() < self.MOVES[self.x, a, 1])
        return np.array([self.x]), float(loss), bool(ended)


def test_intervals_include_the_noise_of_the_mass_and_of_the_starts():
    """40 seeds: fewer hits than the bound have probability 10⁻⁴ for each interval.

    Truths are from a 2 x 2 system.
    """
    model, gamma, h = (
        dp.SimulatorModel(lower=[0], upper=[1], actions=2, session=Session),
        0.9,
        np.array([-4.0, 6.0]),
    )
    even = FunctionPolicy(model, lambda x: np.array([0.5, 0.5]), name="even")
    ratios = portfolio(even, [even, FunctionPolicy(model, lambda x: 1, name="one")])
    theta, g = np.array([1.0, -0.7]), np.array([1.0, -0.4])  # g of the two actions
    go_on = (1 - Session.ENDS)[:, None, None] * Session.MOVES
    law = np.linalg.solve(np.eye(2) - gamma * go_on.mean(axis=1).T, Session.STARTS)
    u = law[:, None] * 0.5 * g
    inflow = gamma * np.einsum("ia,iaj->j", u, go_on) - u.sum(axis=1) + Session.STARTS
    truth = {
        "objective": (Session.LOSSES * u).sum(),
        "shaped": (Session.LOSSES * u).sum() + inflow @ h,
        "mass": (u * (1 - gamma * (1 - Session.ENDS))[:, None]).sum(),
        "negative": np.maximum(-u, 0).sum(),
        "flow": np.abs(inflow).sum(),
    }
    truth["total"] = truth["shaped"] + 2 * truth["negative"] + 3 * truth["flow"]
    hits = dict.fromkeys([*truth, "M", "starts"], 0)
    for seed in range(40):
        problem = SimulatedALP(
            ratios,
            tests.cells(cells(model, {0: [1]})),
            dp.Discounted(gamma),
            samples=1_000,
            warm_up=30,
            seed=seed,
            potential=lambda x: h[x[:, 0]],
        )
        parts = problem.estimates(theta, (2.0, 3.0))
        checks = [(name, getattr(parts, name), exact) for name, exact in truth.items()]
        checks.append(
            ("M", problem.estimates([-1.0, 0.0], 1.0).negative, law.sum())
        )  # g = −1: the mass alone
        checks.append(
            ("starts", problem.estimates([0.0, 0.0], 1.0).shaped, Session.STARTS @ h)
        )  # g = 0: αᵀh alone
        for name, found, exact in checks:
            hits[name] += found.lower <= exact <= found.upper
    assert min(hits.values()) >= stats.binom.ppf(1e-4, 40, 0.95), hits


def test_a_gymnasium_environment_is_enough():
    """CliffWalking: a ratio for every pair and a test function for every state.

    Against the random policy, paired.
    """
    pytest.importorskip("gymnasium")
    model, criterion = dp.SimulatorModel.from_gymnasium("CliffWalking-v1"), dp.Discounted(0.8)
    single = cells(model, {0: list(range(1, 48))})
    random = model.policy("random")
    always = [FunctionPolicy(model, lambda x, a=a: a, name=f"always {a}") for a in range(4)]
    problem = SimulatedALP(
        portfolio(random, always, single), tests.cells(single), criterion, samples=4_000, warm_up=20
    )
    found = solve_simulated(problem, 100.0)
    gain = dp.compare(model, found.policy(), random, criterion, steps=4_000, seed=1).difference
    assert gain.upper < 0


# -- promises --------------------------------------------------------------------------------------


def test_results_do_not_depend_on_threads(ratios, families):
    found = [
        SimulatedALP(ratios, families, samples=60_000, seed=2, threads=t).moments() for t in (1, 3)
    ]
    for name in ("mass", "losses", "shaped", "shares"):
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name))
    assert all((a != b).nnz == 0 for a, b in zip(found[0].flows, found[1].flows, strict=True))


def test_fresh_transitions_are_others(ratios, families):
    problem = SimulatedALP(ratios, families, samples=10_000)
    assert not np.allclose(problem.moments().losses, problem.moments(fresh=True).losses)
    found = solve_simulated(problem, 10.0)
    assert found.to_json()["known"]["flow"].startswith("statistical: a lower bound")


def test_few_transitions_that_carry_all_the_weight_show_in_the_status(net):
    """Only where 5 customers or more are, which is rare, is the loss made low, and the flow hardly
    counts.
    """
    reference = exploring(net.policy("lbfs"), 0.3)
    ratios = portfolio(reference, [reference], levels(net, customers, [5]))
    problem = SimulatedALP(
        ratios,
        tests.cells(cells(net, {"1": [1]})),
        dp.Discounted(0.95),
        samples=40_000,
        potential=lambda x: 1e3 * (x.sum(axis=1) >= 5),
        radius=1e6,
    )
    share = problem.moments().mass.mean(axis=0)
    assert 0 < share[1] < 0.04
    found = solve_simulated(problem, (1e6, 1e-3))
    assert found.status == dp.Status.FEW_EFFECTIVE
    assert found.effective == pytest.approx(
        share[1], rel=0.5
    )  # all weight on that share of the transitions
    assert problem.estimates(np.ones(2), 1.0).effective == pytest.approx(1.0)


def raising(x, a, indices, values):
    if x[0] == 1:
        raise ValueError("boo")
    indices[0], values[0] = 0, 1.0
    return 1


def test_errors_are_one_sentence(net, reference, families):
    lbfs, longer = net.policy("lbfs"), net.policy("longer")
    unsupported = SimulatedALP(portfolio(lbfs, [longer]), families, samples=1_000)
    with pytest.raises(
        dp.errors.InputError,
        match=r"never chooses action \d .* in state .*let the reference explore",
    ):
        unsupported.moments()
    unstable = mm1(arrival=1.3)
    random = unstable.policy("random")
    growing = SimulatedALP(
        portfolio(random, [random]), tests.cells(cells(unstable, {0: [1]})), samples=20_000
    )
    with pytest.raises(
        dp.errors.InputError, match=r"state grows by about .* choose a stable reference"
    ):
        growing.moments()
    own_ratios = portfolio(reference, [lbfs])
    small = SimulatedALP(own_ratios, families, samples=1_000)
    empty = portfolio(reference, [lbfs], cells(net, {}, where={"1": (0, 0)}))
    anchored = SimulatedALP(empty, families, samples=1_000, anchor=cells(net, {"1": [1]}))
    for wrong, message in (
        (lambda: portfolio(reference, []), "at least one policy"),
        (lambda: Ratios(reference, []), "at least one"),
        (lambda: SimulatedALP(own_ratios, families, samples=5), "at least 128"),
        (lambda: SimulatedALP(own_ratios, families, radius=-1.0), "radius"),
        (lambda: cells(net, {"9": [1]}), "unknown coordinate"),
        (lambda: cells(net, {"1": [2, 1]}), "rising order"),
        (lambda: exploring(lbfs, 1.5), "epsilon must be"),
        (
            lambda: solve_simulated(
                SimulatedALP(own_ratios, families, samples=1_000), 1.0, method="newton"
            ),
            "method",
        ),
        (lambda: concat_ratios(own_ratios, portfolio(longer, [longer])), "one reference"),
        (lambda: tests.polynomials(net, 0), "degree"),
        (lambda: tests.polynomials(net, 2, coordinates=[9]), "0 to 3"),
        (
            lambda: SimulatedALP(own_ratios, families, anchor=cells(mm1(), {0: [1]})),
            "anchor belongs to",
        ),
        (lambda: SimulatedALP(own_ratios, families, radius="a"), "radius"),
        (lambda: SimulatedALP(own_ratios, families, radius=None), "radius"),
        (lambda: SimulatedALP(own_ratios, families, threads=-3), "threads"),
        (lambda: SimulatedALP(own_ratios, families, threads="x"), "threads"),
        (lambda: SimulatedALP(own_ratios, families, potential=3.0), "function of states"),
        (lambda: RatioPolicy(own_ratios, "abc"), "finite weight"),
        (lambda: cells(net, {"1": [1]}, where={"1": 3}), "interval of coordinate '1'"),
        (lambda: cells(net, {"1": None}), "cuts of coordinate '1'"),
        (lambda: cells(net, {"1": 3}), "cuts of coordinate '1'"),
        (lambda: cells(net, [1]), "mapping"),
        (lambda: user_ratios(reference, None, 1, widest=1), "a function row"),
        (lambda: portfolio(reference, lbfs), "a list"),
        (lambda: portfolio("lbfs", [lbfs]), "a policy is needed"),
        (lambda: portfolio(reference, [lbfs], "a"), "partition is needed"),
        (lambda: Mixed(["a"], [1.0]), "a policy is needed"),
        (lambda: Mixed([lbfs], ["a"]), "probabilities"),
        (
            lambda: SimulatedALP(
                user_ratios(reference, raising, 1, widest=1), families, samples=1_000
            ).moments(),
            r"x=\(1, .*a=\d could not be looked up: boo",
        ),
        (lambda: solve_simulated(anchored, 5.0), "anchor's cell '1 >= 1'"),
        *(
            (lambda c=c: solve_simulated(small, 5.0, confidence=c), "confidence must lie")
            for c in (1.5, 0, "a")
        ),
        *(
            (lambda c=c: small.estimates([1.0], 5.0, confidence=c), "confidence must lie")
            for c in (1.5, 0, "a")
        ),
    ):
        with pytest.raises(dp.errors.InputError, match=message) as error:
            wrong()
        assert str(error.value).count(". ") == 0
