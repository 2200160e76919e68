"""Factored models and programs, against networks and programs written out densely."""

import itertools
from functools import cache

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dualplan as dp
from dualplan import primal
from dualplan._kernels import philox
from dualplan.models.factored import MOST_FACTORED_OUTCOMES
from dualplan.primal import elimination, factored
from dualplan.primal.elimination import Elimination, elimination_order

GAMMA = 0.9
DISCOUNTED = dp.Discounted(GAMMA)
WAYS = ("eliminated", "generated")


# -- truths ----------------------------------------------------------------------------------------


def random_network(seed):
    """What a user would give: variables, laws, losses and actions; scopes in no order."""
    rng = np.random.default_rng(seed)
    sizes = {"a": 2, "b": 3, "c": 2, "d": 2, "e": 3}
    names = list(sizes)

    def scope(most):
        return tuple(str(v) for v in rng.permutation(names)[: rng.integers(0, most + 1)])

    def law(variable):
        parents = scope(2)
        table = rng.random((*(sizes[v] for v in parents), sizes[variable])) ** 3
        table[..., 0] *= rng.random() < 0.7  # some values are impossible
        return parents, table / table.sum(axis=-1, keepdims=True)

    def loss():
        over = scope(2)
        return over, rng.normal(size=tuple(sizes[v] for v in over))

    laws = {v: law(v) for v in names}
    losses = [loss() for _ in range(4)]
    actions = {
        "none": dp.FactoredAction(),
        "one": dp.FactoredAction(0.3, {"b": law("b")}, [loss()]),
        "two": dp.FactoredAction(-0.2, {"d": law("d"), "a": law("a")}, [loss(), loss()]),
    }
    return sizes, laws, losses, actions


def dense(sizes, laws, losses, actions):
    """All states, P with a row for each pair, and ℓ, by loops over what was given."""
    states = list(itertools.product(*(range(size) for size in sizes.values())))
    place = {v: k for k, v in enumerate(sizes)}
    rows, costs = [], []
    for x in states:
        for action in actions.values():
            of = [{**laws, **action.laws}[v] for v in sizes]
            ps = [np.asarray(table)[tuple(x[place[v]] for v in parents)] for parents, table in of]
            rows.append(
                [np.prod([p[value] for p, value in zip(ps, y, strict=True)]) for y in states]
            )
            terms = [
                np.asarray(t)[tuple(x[place[v]] for v in over)]
                for over, t in [*losses, *action.losses]
            ]
            costs.append(action.cost + sum(terms))
    return np.array(states), np.array(rows), np.array(costs)


def sysadmin_dense(machines, topology, stays=0.95, recovers=0.05, contagion=0.5, cost=0.5):
    """The text of the model, state by state."""
    states = np.array(list(itertools.product((0, 1), repeat=machines)))
    rows, losses = [], []
    for x in states:
        for a in range(machines + 1):
            p = np.empty(machines)
            for i in range(machines):
                other = x[i - 1] if topology == "ring" else x[0]
                p[i] = (stays if x[i] else recovers) * (
                    1.0 if other or (topology == "star" and i == 0) else 1 - contagion
                )
            if a > 0:
                p[a - 1] = 1.0
            rows.append(np.prod(np.where(states == 1, p, 1 - p), axis=1))
            losses.append((x == 0).sum() + (cost if a > 0 else 0.0))
    return states, np.array(rows), np.array(losses)


def make(seed):
    sizes, laws, losses, actions = random_network(seed)
    return dp.FactoredModel(sizes, laws, losses, actions, name=f"random {seed}")


def some_functions(model, seed, count=7):
    """Random tables over one to three variables, and the constant."""
    rng = np.random.default_rng(seed)
    tables = [((), 1.0)]
    for _ in range(count):
        scope = rng.permutation(len(model.sizes))[: rng.integers(1, 4)].tolist()
        tables.append((scope, rng.normal(size=[model.sizes[i] for i in scope])))
    return primal.local_tables(model, tables)


def dense_program(psi, rows, losses, gamma, c, level=False, less=0.0):
    """max cᵀΨw (+ λ) over all pairs."""
    here = np.repeat(psi, len(rows) // len(psi), axis=0)
    matrix = here - gamma * rows @ psi
    costs = -c
    if level:
        matrix, costs = np.hstack([matrix, np.ones((len(matrix), 1))]), np.append(costs, -1.0)
    done = scipy.optimize.linprog(costs, matrix, losses - less, bounds=(None, None))
    assert done.status == 0
    return -done.fun


def optimal_values(rows, losses, states, gamma=GAMMA):
    values = np.zeros(len(states))
    for _ in range(int(np.log(1e-13) / np.log(gamma))):
        values = (losses + gamma * rows @ values).reshape(len(states), -1).min(axis=1)
    return values


def drawn(model, x, a, count, seed=0):
    """Next states from the simulator."""
    code, rng, out = model.code, philox.generator(seed, 5, 0), np.empty((count, len(x)), np.int64)
    for t in range(count):
        philox.seek(rng, t)
        code.step(code.ints, code.floats, np.asarray(x, np.int64), a, rng, out[t], np.zeros(0))
    return out


# -- the model -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_model_is_the_network_that_was_given(seed):
    model, given_ = make(seed), random_network(seed)
    states, rows, losses = dense(*given_)
    low, high = model.loss_bounds
    assert low - 1e-12 <= losses.min()
    assert losses.max() <= high + 1e-12
    for k, (x, a) in enumerate(itertools.product(states, range(3))):
        law = model.forward(x, a)
        row = np.zeros(len(states))
        row[[model.box.index(y) for y in law.states]] = law.probabilities
        assert np.abs(row - rows[k]).max() < 1e-12
        assert (law.probabilities > 0).all()
        assert abs(model.loss(x, a) - losses[k]) < 1e-12
    for k in range(0, len(states), 7):
        before = model.predecessors(states[k])
        column = np.zeros(len(rows))
        column[
            [model.box.index(x) * 3 + a for x, a in zip(before.states, before.actions, strict=True)]
        ] = before.probabilities
        assert np.abs(column - rows[:, k]).max() < 1e-12


@pytest.mark.parametrize("topology", ["ring", "star"])
def test_sysadmin_is_its_text(topology):
    model = dp.load("sysadmin", machines=5, topology=topology)
    states, rows, losses = sysadmin_dense(5, topology)
    for k, (x, a) in enumerate(itertools.product(states, range(6))):
        law = model.forward(x, a)
        row = np.zeros(len(states))
        row[[model.box.index(y) for y in law.states]] = law.probabilities
        assert np.abs(row - rows[k]).max() < 1e-12
        assert abs(model.loss(x, a) - losses[k]) < 1e-12


def test_check_model_looks_at_all_of_it():
    model = dp.load("sysadmin", machines=3, weights=[1.0, 2.0, 3.0])
    report = dp.check_model(model)
    assert report.ok, report.problem
    assert {"forward law", "predecessors", "simulator"} <= set(report.checked)
    assert report.simulator_p_value > 1e-3


def test_the_simulator_draws_from_the_law():
    """Chi-square over all outcomes; p above 1e-3, with a fixed seed."""
    model, (_, rows, _) = make(1), dense(*random_network(1))
    for x, a in (([0, 2, 1, 0, 1], 0), ([1, 0, 1, 1, 2], 2)):
        draws, law = drawn(model, x, a, 5_000), rows[model.box.index(x) * 3 + a]
        seen = np.bincount([model.box.index(y) for y in draws], minlength=len(law))
        assert (seen[law == 0] == 0).all()
        likely = law * 5_000 >= 5
        observed, expected = (
            np.append(seen[likely], seen[~likely].sum()),
            np.append(law[likely], law[~likely].sum()),
        )
        keep = expected > 0
        assert stats.chisquare(observed[keep], 5_000 * expected[keep]).pvalue > 1e-3


def test_the_simulator_without_a_list_of_outcomes():
    """Every machine of thirty by itself, and neighbours together: chi-squares with p above 1e-3
    after Bonferroni.
    """
    model = dp.load("sysadmin", machines=30)
    x = np.array([1, 1, 0] * 10)
    draws = drawn(model, x, 4, 4_000)
    p = np.where(x == 1, 0.95, 0.05) * np.where(np.roll(x, 1) == 1, 1.0, 0.5)
    p[3] = 1.0
    counts = draws.sum(axis=0)
    assert counts[3] == 4_000
    rest = np.delete(np.arange(30), 3)
    scores = (counts[rest] - 4_000 * p[rest]) ** 2 / (4_000 * p[rest] * (1 - p[rest]))
    assert stats.chi2.sf(scores.max(), 1) > 1e-3 / 29
    pairs = 2 * draws[:, 4:-1] + draws[:, 5:]  # given the state, neighbours are independent
    for k, column in enumerate(pairs.T):
        q, r = p[4 + k], p[5 + k]
        law = np.array([(1 - q) * (1 - r), (1 - q) * r, q * (1 - r), q * r])
        assert stats.chisquare(np.bincount(column, minlength=4), 4_000 * law).pvalue > 1e-3 / 25


@pytest.mark.parametrize("machines", [10, 30, 100])
def test_sysadmin_loads_at_any_size(machines):
    model = dp.load("sysadmin", machines=machines, topology="star")
    assert model.box.count == 2**machines
    assert len(model.actions) == machines + 1
    assert model.has_forward == (2**machines <= MOST_FACTORED_OUTCOMES)
    assert model.code.floats.size < 20 * machines
    assert len(model.describe()["parents"][f"machine {machines}"]) == 2
    assert dp.check_model(model, pairs=10).ok
    if machines > 12:
        with pytest.raises(dp.errors.MissingError, match="outcomes, and at most 4,096 are listed"):
            model.forward(model.start, 0)
    with pytest.raises(dp.errors.MissingError, match="pairs can lead to a state"):
        model.predecessors(model.start)


def test_fingerprints_tell_models_apart():
    digests = {
        dp.load("sysadmin", machines=4, **options).digest
        for options in (
            {},
            {"topology": "star"},
            {"stays": 0.9},
            {"reboot_cost": 0.1},
            {"weights": 2.0},
        )
    }
    assert len(digests) == 5
    assert dp.load("sysadmin", machines=4).digest == dp.load("sysadmin", machines=4).digest


def test_administrators():
    model = dp.load("sysadmin", machines=5, topology="star")
    x = [0, 1, 0, 1, 0]
    chosen = {
        name: int(np.argmax(model.policy(name)(x))) for name in model.policies if name != "random"
    }
    assert chosen == {
        "first-failed": 1,
        "most-neighbours": 1,
        "most-exposed": 1,
        "best-supported": 1,
        "nothing": 0,
    }
    assert model.policy("random")(x).tolist() == [1 / 6] * 6
    ring = dp.load("sysadmin", machines=6)
    x = [0, 0, 1, 0, 1, 1]  # machine 1 depends on a working one; 2 and 4 endanger one each
    assert int(np.argmax(ring.policy("best-supported")(x))) == 1
    assert int(np.argmax(ring.policy("most-exposed")(x))) == 2
    assert all(
        int(np.argmax(ring.policy(name)(ring.start))) == 0
        for name in ("first-failed", "best-supported")
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"variables": {}}, "at least one variable"),
        ({"variables": {"a": 0}}, "'a' takes 0 values"),
        ({"laws": {}}, "'a' has no law"),
        ({"laws": {"a": (("a",), [[0.5, 0.5]])}}, r"has shape \(1, 2\); expected \(2, 2\)"),
        ({"laws": {"a": ((), [0.5, 0.4])}}, "sums to 0.9"),
        ({"laws": {"a": ((), [1.5, -0.5])}}, "negative entry"),
        ({"laws": {"a": (("z",), [0.5, 0.5])}}, "unknown variable"),
        ({"laws": {"a": (("a", "a"), np.full((2, 2, 2), 0.5))}}, "names a variable twice"),
        ({"losses": [(("a",), [0.0, np.inf])]}, "not finite"),
        ({"losses": [(("a",), [[0.0], [1.0, 2.0]])]}, "no table of numbers"),
        ({"actions": {"go": dp.FactoredAction(cost=np.nan)}}, "cost of action 'go'"),
    ],
)
def test_mistakes_in_a_network(change, words):
    given_ = {
        "variables": {"a": 2},
        "laws": {"a": ((), [0.5, 0.5])},
        "losses": [],
        "actions": {"go": dp.FactoredAction()},
    }
    with pytest.raises(dp.errors.InputError, match=words):
        dp.FactoredModel(**{**given_, **change})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"machines": 1}, "at least 2"),
        ({"topology": "rng"}, "did you mean 'ring'"),
        ({"stays": 1.2}, "stays must be a number from 0 to 1"),
        ({"weights": [1.0]}, "one for each of 10 machines"),
    ],
)
def test_mistakes_in_sysadmin(options, words):
    with pytest.raises(dp.errors.InputError, match=words):
        dp.load("sysadmin", **options)


# -- elimination -----------------------------------------------------------------------------------


@given(st.integers(0, 10_000))
def test_elimination_finds_the_maxima(seed):
    """Several sums that share functions, on random factor graphs, against enumeration."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, rng.integers(1, 7)).tolist()
    scopes = [
        tuple(sorted(rng.permutation(len(sizes))[: rng.integers(0, 4)].tolist()))
        for _ in range(rng.integers(1, 9))
    ]
    tables = [rng.normal(size=[sizes[i] for i in scope]) for scope in scopes]
    sums = [np.flatnonzero(rng.random(len(scopes)) < 0.8).tolist() for _ in range(3)]
    plan = Elimination.of(sizes, scopes, sums)
    maxima = plan.maxima(tables)
    states = list(itertools.product(*(range(size) for size in sizes)))
    for k, members in enumerate(sums):
        totals = {
            x: sum(float(tables[m][tuple(x[i] for i in scopes[m])]) for m in members)
            for x in states
        }
        assert abs(maxima.values[k] - max(totals.values())) < 1e-12
        assert abs(totals[tuple(maxima.maximiser(k).tolist())] - max(totals.values())) < 1e-12


def test_orders_and_widths():
    ring = [tuple(sorted((i, (i + 1) % 20))) for i in range(20)]
    star = [(0, i) for i in range(1, 20)]
    tree = [((i - 1) // 2, i) for i in range(1, 20)]
    grid = [(4 * r + c, 4 * r + c + 1) for r in range(4) for c in range(3)]
    grid += [(4 * r + c, 4 * r + c + 4) for r in range(3) for c in range(4)]
    widths = [
        Elimination.of([2] * n, s, [range(len(s))]).width
        for n, s in ((20, ring), (20, star), (20, tree), (16, grid))
    ]
    assert widths == [2, 1, 1, 4]
    assert sorted(elimination_order(20, ring)) == list(range(20))


def test_sums_that_differ_in_one_function_share_their_eliminations():
    """A ring of 64 and 64 changes of one function: about log₂ 64 new steps each, not 64."""
    count = 64
    scopes = [tuple(sorted((i, (i + 1) % count))) for i in range(count)] * 2
    sums = [[count + i if i == k else i for i in range(count)] for k in range(count)]
    plan = Elimination.of([2] * count, scopes, [range(count), *sums])
    assert len(plan.steps) < 12 * count


# -- functions -------------------------------------------------------------------------------------


def test_backprojections_are_expectations():
    model, (states, rows, _) = make(2), dense(*random_network(2))
    basis = some_functions(model, 5)
    expected = rows @ basis(states)
    for a, (k, psi) in itertools.product(range(3), enumerate(basis.functions)):
        assert (
            np.abs(primal.backprojection(model, psi, a)(states) - expected[a::3, k]).max() < 1e-12
        )


def test_families():
    model = dp.load("sysadmin", machines=4)
    assert primal.single_indicators(model).names == (
        "1",
        "[machine 1]",
        "[machine 2]",
        "[machine 3]",
        "[machine 4]",
    )
    pairs = primal.pair_indicators(model)
    assert len(pairs) == 9
    assert primal.chain_indicators(model, 2).names == pairs.names[:5] + tuple(
        sorted(pairs.names[5:])
    )
    full = primal.indicator_products(
        model, [s for r in range(5) for s in itertools.combinations(range(4), r)]
    )
    states = model.box.states(np.arange(16))
    assert np.linalg.matrix_rank(full(states)) == 16
    assert sorted(primal.chain_indicators(model, 4).names) == sorted(full.names)
    six = dp.load("sysadmin", machines=6)
    assert (
        len(primal.chain_indicators(six, 3)) == 1 + 4 * 6
    )  # {i}, {i, i+1}, {i, i+2} and {i, i+1, i+2}
    three = make(0)
    assert len(primal.single_indicators(three)) == 1 + 1 + 2 + 1 + 1 + 2
    assert (pairs + pairs).names == pairs.names
    products = primal.monomials(model, 2)
    assert np.abs(primal.local_basis(model, products)(states) - products(states)).max() < 1e-15


def test_means_under_independent_variables():
    model = make(0)
    rng = np.random.default_rng(4)
    laws = [rng.dirichlet(np.ones(size)) for size in model.sizes]
    basis, states = some_functions(model, 6), model.box.states(np.arange(model.box.count))
    weights = np.array([np.prod([law[v] for law, v in zip(laws, x, strict=True)]) for x in states])
    found = factored._moments(basis, primal.independent(model, laws), DISCOUNTED, 0)
    assert np.abs(found - weights @ basis(states)).max() < 1e-12
    assert (
        np.abs(factored._moments(basis, None, DISCOUNTED, 0) - basis(states).mean(axis=0)).max()
        < 1e-12
    )


# -- programs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("machines", "topology", "length"), [(8, "ring", 1), (6, "ring", 3), (7, "star", 2)]
)
def test_programs_are_those_over_all_pairs(machines, topology, length, way):
    model = dp.load("sysadmin", machines=machines, topology=topology)
    states, rows, losses = sysadmin_dense(machines, topology)
    basis = primal.chain_indicators(model, length)
    psi, c = basis(states), np.full(len(states), 1 / len(states))
    found = primal.factored_alp(model, basis, DISCOUNTED, constraints=way)
    expected = dense_program(psi, rows, losses, GAMMA, c @ psi)
    assert found.status is dp.Status.SOLVED
    assert abs(found.objective - expected) < 1e-5
    assert abs(found.objective_bound - expected) < 1e-5
    average = primal.factored_average_alp(model, basis, constraints=way)
    level = dense_program(psi[:, 1:], rows, losses, 1.0, np.zeros(psi.shape[1] - 1), level=True)
    assert abs(average.level - level) < 1e-6
    assert abs(average.lower_bound.value - level) < 1e-5
    less = average.level - 0.01 * (1 + average.level)
    second = dense_program(
        psi[:, 1:], rows, losses, 1.0, (c @ psi - basis(model.start[None, :])[0])[1:], less=less
    )
    assert abs(average.objective - second) < 1e-4


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_programs_of_random_networks(seed, way):
    """Losses of actions, variables of three values, actions that change several laws, any
    relevance.
    """
    model, (states, rows, losses) = make(seed), dense(*random_network(seed))
    basis = some_functions(model, seed)
    psi, rng = basis(states), np.random.default_rng(seed)
    laws = [rng.dirichlet(np.ones(size)) for size in model.sizes]
    c = np.array([np.prod([law[v] for law, v in zip(laws, x, strict=True)]) for x in states])
    found = primal.factored_alp(
        model, basis, DISCOUNTED, relevance=primal.independent(model, laws), constraints=way
    )
    assert abs(found.objective - dense_program(psi, rows, losses, GAMMA, c @ psi)) < 1e-6
    average = primal.factored_average_alp(model, basis, constraints=way)
    zero = np.zeros(psi.shape[1] - 1)
    assert (
        abs(average.level - dense_program(psi[:, 1:], rows, losses, 1.0, zero, level=True)) < 1e-6
    )


@pytest.mark.parametrize("way", WAYS)
def test_relevance_from_states_and_policies(way):
    """Weights that sum to 1 only up to rounding must not make the constant count in the average
    program.
    """
    model = dp.load("sysadmin", machines=5)
    basis, (states, rows, losses) = primal.chain_indicators(model, 2), sysadmin_dense(5, "ring")
    c = np.random.default_rng(0).random(32)
    found = primal.factored_average_alp(
        model, basis, relevance=primal.weighted(model, states, c), constraints=way
    )
    moments = (c / c.sum()) @ basis(states) - basis(model.start[None, :])[0]
    less = found.level - 0.01 * (1 + found.level)
    expected = dense_program(basis(states)[:, 1:], rows, losses, 1.0, moments[1:], less=less)
    assert abs(found.objective - expected) < 1e-4
    policy = model.policy("best-supported")
    visits = dp.evaluate_exact(model, policy, DISCOUNTED).occupancy
    visited = primal.factored_alp(model, basis, DISCOUNTED, relevance=policy, constraints=way)
    expected = dense_program(
        basis(states), rows, losses, GAMMA, visits @ basis(states) / visits.sum()
    )
    assert abs(visited.objective - expected) < 1e-5


@pytest.mark.parametrize("topology", ["ring", "star"])
def test_with_all_products_nothing_is_approximated(topology):
    model = dp.load("sysadmin", machines=5, topology=topology)
    basis = primal.indicator_products(
        model, [s for r in range(6) for s in itertools.combinations(range(5), r)]
    )
    from_start = primal.weighted(model, [model.start])
    found = primal.factored_alp(model, basis, DISCOUNTED, relevance=from_start)
    optimum = dp.solve_exact(model, DISCOUNTED, tol=1e-9).value
    assert abs(found.objective - optimum) < 1e-6
    assert optimum - 1e-6 < found.lower_bound.value <= optimum + 1e-9
    everywhere = primal.factored_alp(model, basis, DISCOUNTED)
    assert abs(dp.evaluate_exact(model, everywhere.policy(), DISCOUNTED).cost - optimum) < 1e-6
    average = primal.factored_average_alp(model, basis)
    exact = dp.solve_exact(model, tol=1e-9).value
    assert exact - 1e-6 < average.lower_bound.value <= exact + 1e-9


@pytest.mark.parametrize(("topology", "length"), [("ring", 3), ("star", 2)])
def test_ten_machines_lie_between_bound_and_cost(topology, length):
    model = dp.load("sysadmin", machines=10, topology=topology)
    found = primal.factored_average_alp(model, primal.chain_indicators(model, length))
    optimum, cost = dp.solve_exact(model, tol=1e-4), dp.evaluate_exact(model, found.policy()).cost
    assert found.lower_bound.kind == "proved"
    assert found.lower_bound.value <= optimum.value <= cost + 1e-4
    assert found.lower_bound.value > 0.3 * optimum.value
    simulated = dp.evaluate(model, found.policy(), steps=200_000, confidence=0.999)
    assert simulated.lower <= cost <= simulated.upper


def test_error_bound_of_de_farias_and_van_roy():
    """‖J* − Ψw‖_{1,c} <= 2/(1−γ)·min_r ‖J* − Ψr‖_∞, both sides by enumeration."""
    for machines, topology, length in ((6, "ring", 1), (6, "ring", 2), (6, "star", 1)):
        model = dp.load("sysadmin", machines=machines, topology=topology)
        states, rows, losses = sysadmin_dense(machines, topology)
        basis = primal.chain_indicators(model, length)
        best, psi = optimal_values(rows, losses, states), basis(states)
        found = primal.factored_alp(model, basis, DISCOUNTED)
        values = found.values(states)
        assert (values <= best + 1e-6).all()
        error = np.abs(best - values).mean()
        one = np.ones((len(states), 1))
        fit = scipy.optimize.linprog(
            np.append(np.zeros(psi.shape[1]), 1.0),
            np.block([[psi, -one], [-psi, -one]]),
            np.append(best, -best),
            bounds=(None, None),
        )
        assert fit.status == 0
        assert 0 < fit.fun <= np.abs(best - values).max() + 1e-9
        assert error <= 2 / (1 - GAMMA) * fit.fun
        assert abs(best.mean() - found.objective - error) < 1e-6


@cache
def truth():
    return dense(*random_network(0))


def test_bounds_by_elimination_are_those_of_sweeps():
    """The same potentials, through the library's own sweep over all states."""
    model = dp.load("sysadmin", machines=7)
    basis = primal.chain_indicators(model, 2)
    found, average = (
        primal.factored_alp(model, basis, DISCOUNTED),
        primal.factored_average_alp(model, basis),
    )
    assert (
        abs(
            found.lower_bound.value
            - dp.lower_bound(model, DISCOUNTED, potential=found.values).value
        )
        < 1e-9
    )
    potential = primal.LocalValues(basis, average.bounding)
    assert abs(average.lower_bound.value - dp.lower_bound(model, potential=potential).value) < 1e-9
    assert average.lower_bound.kind == dp.lower_bound(model, potential=potential).kind == "proved"


@given(st.integers(0, 10_000))
def test_bounds_are_proved_for_any_weights(seed):
    """The least ℓ + γPΨw − Ψw over all pairs, found by elimination, never above the truth and close
    to it.
    """
    rng, model = np.random.default_rng(seed), make(0)
    states, rows, losses = truth()
    basis, gamma = some_functions(model, seed), float(rng.choice([0.5, 0.9, 1.0]))
    weights = rng.normal(size=len(basis)) * 10.0 ** rng.integers(-3, 6)
    values = basis(states) @ weights
    shaped = losses + gamma * rows @ values - np.repeat(values, 3)
    least, worst = factored.least_shaped_loss(basis, weights, gamma)
    scale = np.abs(values).max() + np.abs(losses).max()
    assert shaped.min() - 1e-11 * scale * len(basis) <= least <= shaped.min()
    k = model.box.index(worst)
    assert shaped[3 * k : 3 * k + 3].min() <= least + 1e-10 * scale * len(basis)


# -- policies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_greedy_is_a_plain_look_ahead(seed):
    """On all states of random networks, with weights that leave no ties and with none."""
    model, (states, rows, losses) = make(seed), dense(*random_network(seed))
    basis, rng = some_functions(model, seed, 12), np.random.default_rng(seed)
    for weights, gamma in (
        (rng.normal(size=13), 0.9),
        (rng.normal(size=13) * 1e3, 1.0),
        (np.zeros(13), 0.9),
    ):
        policy = primal.local_greedy(primal.LocalValues(basis, weights), gamma)
        costs = (losses + gamma * rows @ (basis(states) @ weights)).reshape(-1, 3)
        for x, q in zip(states, costs, strict=True):
            ties = np.flatnonzero(q <= q.min() + 1e-9 * (1 + np.abs(q).max()))
            assert policy(x)[ties[0]] == 1.0


def test_greedy_for_a_hub_that_touches_all_functions():
    """On a star with pairs, against a look-ahead over listed outcomes.

    Symmetric legs tie, and the lowest is taken.
    """
    model = dp.load("sysadmin", machines=8, topology="star", weights=[1, 2, 2, 1, 1, 1, 1, 1])
    found = primal.factored_alp(model, primal.pair_indicators(model), DISCOUNTED)
    states, rows, _ = sysadmin_dense(8, "star")
    losses = np.repeat((1 - states) @ [1, 2, 2, 1, 1, 1, 1, 1], 9) + np.tile([0.0] + [0.5] * 8, 256)
    costs, own = (losses + GAMMA * rows @ found.values(states)).reshape(-1, 9), found.policy()
    for x, q in zip(states, costs, strict=True):
        assert own(x)[np.flatnonzero(q <= q.min() + 1e-11)[0]] == 1.0


def test_thirty_and_a_hundred_machines():
    """More states than can be listed: programs, proved bounds and simulated policies.

    Both ways to one level.
    """
    ring = dp.load("sysadmin", machines=30, stays=0.99, contagion=0.3)
    levels = [
        primal.factored_average_alp(ring, primal.single_indicators(ring), constraints=way)
        for way in WAYS
    ]
    assert abs(levels[0].level - levels[1].level) < 1e-6
    assert all(0 < found.lower_bound.value <= found.level + 1e-6 for found in levels)
    star = dp.load("sysadmin", machines=100, topology="star", stays=0.997, contagion=0.3)
    found = primal.factored_average_alp(star, primal.pair_indicators(star))
    assert found.width == 1
    cost = dp.evaluate(star, found.policy(), steps=50_000)
    assert 0 < found.lower_bound.value < cost.lower
    assert cost.upper < dp.evaluate(star, star.policy("nothing"), steps=50_000).lower


# -- what can go wrong -----------------------------------------------------------------------------


def test_an_unfinished_program_gives_no_policy_and_still_a_proved_bound():
    model = dp.load("sysadmin", machines=6)
    basis = primal.chain_indicators(model, 3)
    found = primal.factored_alp(model, basis, DISCOUNTED, constraints="generated", rounds=1)
    assert found.status is dp.Status.VIOLATED
    with pytest.raises(dp.errors.InputError, match="stopped early"):
        found.policy()
    assert found.policy(unfinished=True).name.endswith("unfinished")
    assert found.lower_bound.value <= dp.solve_exact(model, DISCOUNTED).upper


def test_losses_below_zero_need_the_constant():
    model = dp.FactoredModel(
        {"a": 2}, {"a": ((), [0.5, 0.5])}, [((), -1.0)], {"go": dp.FactoredAction()}, name="gift"
    )
    lone = primal.indicator_products(model, [("a",)])
    for way in WAYS:
        with pytest.raises(
            dp.errors.InputError, match=r"no weights keep all constraints.*add.*constant function"
        ):
            primal.factored_alp(model, lone, DISCOUNTED, constraints=way)
    found = primal.factored_alp(model, primal.single_indicators(model), DISCOUNTED)
    assert abs(found.objective + 1 / (1 - GAMMA)) < 1e-6


def test_scopes_that_are_too_wide(monkeypatch):
    model = dp.load("sysadmin", machines=22)
    with pytest.raises(dp.errors.InputError, match="use fewer variables"):
        primal.local_tables(model, [(range(22), np.zeros(1))])
    monkeypatch.setattr(factored, "MOST_ELIMINATION_ROWS", 100)
    with pytest.raises(dp.errors.InputError, match=r"width 2 .*take constraints='generated'"):
        primal.factored_alp(model, primal.single_indicators(model), DISCOUNTED)
    monkeypatch.setattr(elimination, "MOST_ELIMINATION_ENTRIES", 2**6)
    with pytest.raises(
        dp.errors.InputError,
        match=r"a table over 7 variables, width 6 .*use functions of smaller scope",
    ):
        primal.factored_alp(model, primal.chain_indicators(model, 3), DISCOUNTED)


def test_wide_parents_are_named():
    """A variable with parents of its own for each function: the backprojection is what gets too
    wide.
    """
    sizes = {f"v{i}": 2 for i in range(40)}
    laws = {
        f"v{i}": (tuple(f"v{(i + 3 * j) % 40}" for j in range(5)), np.full((2,) * 6, 0.5))
        for i in range(40)
    }
    model = dp.FactoredModel(sizes, laws, [], {"go": dp.FactoredAction()}, name="tangle")
    function = primal.local_tables(model, [((0, 1, 2, 15, 16, 17), np.ones((2,) * 6))])
    with pytest.raises(
        dp.errors.InputError, match=r"function of 6 variables leads to depends on \d+ others"
    ):
        primal.factored_alp(model, function, DISCOUNTED)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, b: primal.factored_alp(m, b, dp.Average()), "use factored_average_alp"),
        (
            lambda m, b: primal.factored_alp(m, b, DISCOUNTED, constraints="all"),
            "unknown way to constraints 'all'",
        ),
        (lambda m, b: primal.factored_alp(m, b, DISCOUNTED, rond=3), "unknown setting 'rond'"),
        (
            lambda m, b: primal.factored_alp(m, b, DISCOUNTED, tol=0),
            "tol must be a positive number",
        ),
        (lambda m, b: primal.factored_alp(m, [1], DISCOUNTED), "a basis is made by"),
        (lambda m, b: primal.factored_average_alp(m, b, slack=-1), "slack must be"),
        (
            lambda m, b: primal.factored_alp(dp.load("forest"), b, DISCOUNTED),
            "needs a FactoredModel",
        ),
        (
            lambda m, b: primal.factored_alp(dp.load("sysadmin", machines=5), b, DISCOUNTED),
            "belongs to",
        ),
        (lambda m, b: primal.chain_indicators(m, 0), "length must be"),
        (lambda m, b: primal.single_indicators(dp.load("forest")), "FactoredModel"),
        (
            lambda m, b: primal.local_basis(m, primal.functions(m, lambda x: x.sum(axis=1))),
            "depend on all variables",
        ),
        (lambda m, b: primal.independent(m, [[1.0]]), "as many laws"),
        (lambda m, b: primal.independent(m, [[0.5, 0.6]] * 4), "sum to 1"),
        (lambda m, b: b(np.zeros((1, 3))), "rows of 4 integers"),
    ],
)
def test_mistakes(call, words):
    model = dp.load("sysadmin", machines=4)
    with pytest.raises(dp.errors.InputError, match=words):
        call(model, primal.single_indicators(model))


def test_a_start_that_is_left_for_good():
    """The second stage does not bound the values; the first one's bound is there all the same."""
    model = dp.FactoredModel(
        {"x": 3},
        {"x": (["x"], [[0, 0.5, 0.5], [0, 0.5, 0.5], [0, 0.3, 0.7]])},
        [(["x"], [0, 1.0, 2.0])],
        {"a": dp.FactoredAction()},
    )
    basis = primal.single_indicators(model)
    for way in ("eliminated", "generated"):
        with pytest.raises(dp.errors.InputError, match="second stage does not bound"):
            primal.factored_average_alp(model, basis, constraints=way)
        found = primal.factored_average_bound(model, basis, constraints=way)
        assert found.lower_bound.value == pytest.approx(1.625, abs=1e-6)


def test_pairs_with_a_variable_of_one_value():
    model = dp.FactoredModel(
        {"x": 2, "k": 1},
        {"x": (["k", "x"], [[[0.5, 0.5], [0.2, 0.8]]]), "k": ([], [1.0])},
        [(["x"], [0, 1.0])],
        {"a": dp.FactoredAction()},
    )
    assert len(primal.pair_indicators(model)) == len(primal.single_indicators(model))
