"""The symmetric dual program against exact optima, dense programs and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

import dualplan as dp
from dualplan.dual import symmetric
from dualplan.evaluation.visits import visited
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.mixed import Mixed
from dualplan.policies.tables import random_policy
from dualplan.values.basis import (
    LinearValues,
    between,
    hinge,
    indicators,
    monomials,
    of_sum,
    power,
    products,
)

CRITERIA = {"average": dp.Average(), "discounted": dp.Discounted(0.9)}


def four_states() -> dp.Model:
    """Two actions, full laws."""
    rng = np.random.default_rng(3)
    laws = rng.dirichlet(np.ones(4), (2, 4))
    return dp.TabularModel(laws, rng.random((4, 2)), name="four states")


MODELS = {
    "garnet": lambda: dp.load("garnet", states=20),
    "forest": lambda: dp.load("forest"),
    "four states": four_states,
    "lost sales": lambda: dp.load("lost-sales", lead_time=2, demand=2.0),
}


def everywhere(model: dp.Model, criterion: dp.Average | dp.Discounted, basis=None):
    """The reference with all pairs, each of the same mass."""
    states = model.box.states(np.arange(model.box.count))
    basis = indicators(model) if basis is None else basis
    return symmetric.make_reference(basis, states, random_policy(model), criterion)


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
@pytest.mark.parametrize("name", MODELS)
def test_with_all_pairs_and_all_indicators_the_optimum_is_exact(name, criterion) -> None:
    model = MODELS[name]()
    found = symmetric.solve_columns(everywhere(model, criterion))
    exact = dp.solve_exact(model, criterion, tol=1e-9)
    factor = 1.0 if isinstance(criterion, dp.Average) else 1 - criterion.gamma
    assert found.objective == pytest.approx(factor * exact.cost, abs=1e-6)
    assert found.flow <= 1e-7
    greedy = GreedyPolicy(model, found.values, criterion.gamma)
    own = dp.evaluate_exact(model, greedy, criterion)
    assert own.cost == pytest.approx(exact.cost, abs=1e-5)


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_with_other_columns_and_functions_it_is_the_dense_program(criterion) -> None:
    model = dp.load("garnet", states=20)
    basis = monomials(model, 3)
    reference = everywhere(model, criterion, basis)
    tiles = np.arange(reference.pairs) // 3
    found = symmetric.solve_columns(reference, tiles)
    # the same written out, with laws as matrices
    matrix = np.zeros((reference.pairs, 20))
    for k, (row, a) in enumerate(zip(reference.rows, reference.actions, strict=True)):
        law = model.forward(reference.states[row], int(a))
        matrix[k, [model.box.index(y) for y in law.states]] = law.probabilities
    psi = basis(reference.states)
    flow = criterion.gamma * matrix @ psi - psi[reference.rows]
    start = np.zeros(psi.shape[1])
    if isinstance(criterion, dp.Discounted):
        start = (1 - criterion.gamma) * basis(model.start[None, :])[0]
    phi = np.zeros((tiles.max() + 1, reference.pairs))
    phi[tiles, np.arange(reference.pairs)] = reference.masses
    phi /= phi.sum(axis=1, keepdims=True)
    left = np.vstack([(phi @ flow).T, np.ones(len(phi))])
    dense = linprog(phi @ reference.losses, A_eq=left, b_eq=np.r_[-start, 1.0])
    assert dense.success
    assert found.objective == pytest.approx(dense.fun, abs=1e-7)
    # values: every column's averaged Bellman inequality holds, and the optimum is reached
    slack = phi @ reference.residuals(found.values)
    assert slack.min() + start @ found.values.weights == pytest.approx(dense.fun, abs=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_the_entropy_form_is_the_program_written_over_occupancies(criterion) -> None:
    model = four_states()
    basis = products(model, [[between(0, k, k)] for k in (0, 1)])
    reference = everywhere(model, criterion, basis)
    eta = 3.0
    found = symmetric.solve_entropy(reference, eta, ridge=1e-12)

    def primal(u: np.ndarray) -> float:
        return float(u @ reference.losses + u @ np.log(u / reference.masses) / eta)

    flow = {"type": "eq", "fun": lambda u: u @ reference.differences + reference.start}
    whole = {"type": "eq", "fun": lambda u: u.sum() - 1}
    solved = minimize(
        primal,
        reference.masses,
        method="SLSQP",
        bounds=[(1e-9, 1)] * reference.pairs,
        constraints=[flow, whole],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert solved.success
    assert found.objective + found.distance / eta == pytest.approx(solved.fun, abs=1e-7)
    assert found.occupancy == pytest.approx(solved.x, abs=1e-4)
    assert abs(found.gap) < 1e-8
    assert found.flow < 1e-6


def test_for_large_rates_the_entropy_form_comes_to_the_linear_program() -> None:
    model = dp.load("garnet", states=20)
    reference = everywhere(model, dp.Average())
    optimum = dp.solve_exact(model, tol=1e-9).cost
    found = symmetric.solve_entropy(reference, 200.0, ridge=1e-9)
    # KL is at most the log of one over the least mass, so the objective is that near
    most = np.log(reference.pairs) / 200
    assert optimum - 1e-6 <= found.objective <= optimum + most
    greedy = GreedyPolicy(model, found.values)
    assert dp.evaluate_exact(model, greedy).cost == pytest.approx(optimum, abs=1e-6)


def test_the_wanted_distance_is_reached_and_grows_with_the_rate() -> None:
    reference = everywhere(dp.load("garnet", states=20), dp.Average())
    near = None
    rates = []
    for distance in (0.1, 0.4, 1.0):
        near = symmetric.solve_at_distance(reference, distance, near=near)
        assert near.distance == pytest.approx(distance, rel=0.1)
        rates.append(near.eta)
    assert rates == sorted(rates)


def test_differences_are_those_of_listed_laws() -> None:
    model = dp.load("four-queue", buffers=9)
    seen = visited(model, model.policy("lbfs"), samples=50, every=20)
    basis = symmetric.state_functions(model, seen, 100)
    behaviour = Mixed([model.policy("lbfs"), random_policy(model)], [0.9, 0.1])
    reference = symmetric.make_reference(basis, seen, behaviour, dp.Discounted(0.95))
    for k in (0, 7, 33):
        x = seen[reference.rows[k]]
        a = int(reference.actions[k])
        law = model.forward(x, a)
        wanted = 0.95 * law.probabilities @ basis(law.states) - basis(x[None, :])[0]
        assert reference.differences[k] == pytest.approx(wanted, abs=1e-12)
        assert reference.masses[k] == pytest.approx(behaviour(x)[a] / 50)
        assert reference.losses[k] == pytest.approx(model.loss(x, a))


def test_centred_numbers_have_no_mean_within_a_state() -> None:
    reference = everywhere(dp.load("forest"), dp.Average())
    centred = reference.centred(reference.differences)
    for row in range(len(reference.states)):
        assert centred[reference.rows == row].mean(axis=0) == pytest.approx(0, abs=1e-12)
    assert reference.centred(reference.losses) == pytest.approx(
        [
            loss - reference.losses[reference.rows == row].mean()
            for loss, row in zip(reference.losses, reference.rows, strict=True)
        ]
    )


def test_fresh_pairs_estimate_the_same_occupancy() -> None:
    """Intervals at 95% over 40 seeds: fewer than 32 that cover have probability 3e-3."""
    model = dp.load("garnet", states=20)
    criterion = dp.Average()
    behaviour = random_policy(model)
    whole = everywhere(model, criterion)
    law = dp.evaluate_exact(model, behaviour, criterion).occupancy
    states = whole.states
    exact = symmetric.make_reference(whole.basis, states, behaviour, criterion, weights=law)
    found = symmetric.solve_at_distance(exact, 0.5)
    covered = 0
    for seed in range(40):
        chosen = np.random.default_rng(seed).choice(len(states), 2_000, p=law / law.sum())
        fresh = symmetric.make_reference(whole.basis, states[chosen], behaviour, criterion)
        again = symmetric.estimate_again(found, fresh)
        covered += again.objective.lower <= found.objective <= again.objective.upper
        assert again.distance.value == pytest.approx(found.distance, rel=0.3)
        assert again.effective_share == pytest.approx(found.effective_share, rel=0.5)
    assert covered >= 32


# -- functions -------------------------------------------------------------------------------------


def test_a_pipeline_is_read_by_partial_sums() -> None:
    model = dp.load("lost-sales")
    seen = visited(model, model.policy("base-stock"), samples=2_000)
    basis = symmetric.state_functions(model, seen)
    assert set(basis.readings) == {(0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)}


def test_a_network_is_read_by_its_coordinates() -> None:
    model = dp.load("criss-cross")
    seen = visited(model, model.policy("c-mu"), samples=2_000)
    basis = symmetric.state_functions(model, seen, 60)
    assert set(basis.readings) == {(0,), (1,), (2,)}
    assert len(basis) <= 60


def test_functions_are_no_more_than_wanted_and_differ() -> None:
    model = dp.load("four-queue", buffers=9)
    seen = visited(model, model.policy("lbfs"), samples=2_000)
    sizes = [len(symmetric.state_functions(model, seen, most)) for most in (60, 150, 300)]
    assert sizes[0] <= 60
    assert sizes[0] < sizes[1] < sizes[2] <= 300
    values = symmetric.state_functions(model, seen, 300)(seen)
    assert np.linalg.matrix_rank(values - values.mean(axis=0)) == sizes[2]


def test_sums_and_tables_give_the_values_of_the_functions() -> None:
    model = dp.load("lost-sales")
    total = of_sum(power(0, 1), 1, 2)
    beyond = of_sum(hinge(0, 7), 1, 2, 3)
    basis = products(
        model,
        [[total], [total, total], [beyond], [total, beyond], [beyond, beyond], [power(0, 1)], []],
    )
    rng = np.random.default_rng(0)
    states = np.stack([rng.integers(0, [37, 16, 16, 16]) for _ in range(300)])
    sums = states[:, :3].sum(axis=1)
    hinges = np.maximum(states.sum(axis=1) - 7, 0)
    wanted = np.stack(
        [sums, sums**2, hinges, sums * hinges, hinges**2, states[:, 0], np.ones(300)], axis=1
    )
    assert basis(states) == pytest.approx(wanted)
    weights = rng.standard_normal(7)
    code = LinearValues(basis, weights).code
    assert code is not None
    assert basis.tables is not None
    assert (states.sum(axis=1) >= basis.tables.ints[2]).any()  # some lie beyond the tables
    room = np.zeros(code.room)
    got = [code.value(code.ints, code.floats, x, room) for x in states]
    assert got == pytest.approx(wanted @ weights)


def test_laws_of_pairs_agree_between_models_with_and_without_tables() -> None:
    """Greedy policies choose the same whether values are tables or functions."""
    model = dp.load("four-queue", buffers=9)
    seen = visited(model, model.policy("lbfs"), samples=500)
    basis = symmetric.state_functions(model, seen, 150)
    weights = np.random.default_rng(1).standard_normal(len(basis))
    tabled = GreedyPolicy(model, LinearValues(basis, weights))
    rows, actions = allowed_rows(model, seen)
    law = transitions(model, np.ascontiguousarray(seen[rows]), actions)
    q = law.losses + law.mean(basis.combine(weights, law.states))
    table = np.full((len(seen), len(model.actions)), np.inf)
    table[rows, actions] = q
    chosen = table[np.arange(len(seen)), tabled.rows(seen).argmax(axis=1)]
    assert chosen == pytest.approx(table.min(axis=1), abs=1e-9)
