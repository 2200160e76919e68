"""Lower bounds from potentials against optima, dense algebra and exact fractions."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dualplan as dp
from bank import (
    Made,
    admission_events,
    average_cost,
    discounted_cost,
    load,
    matrix,
    mm1,
    mm1k,
    mm1k_law,
    networks,
)
from dualplan import policies
from dualplan.evaluation import lower_bounds
from dualplan.evaluation.lower_bounds import gap, largest_gap
from dualplan.exact.operators import Sweeper

MODELS = Made(
    {
        "four queues": lambda: dp.load("four-queue", buffers=2),
        "criss-cross": lambda: dp.load("criss-cross", buffers=3),
        "independent events": lambda: dp.load(
            "four-queue", buffers=2, dynamics="bernoulli", full="lose", penalty=3.0
        ),
        "per server": lambda: dp.load("criss-cross", buffers=2, decisions="per-server"),
        "mm1k": lambda: mm1k(),
        "admission": lambda: load("admission", room=8),
        "gate": lambda: admission_events(),
        "garnet": lambda: dp.load("garnet", states=30, actions=3, branching=4),
        "lost sales": lambda: load("lost-sales", lead_time=2, demand=1.0, capacity=6),
    }
)
SPREAD = dp.Discounted(0.8, start=[((0, 1, 0, 0), 0.25), ((2, 2, 1, 0), 0.75)])
CASES = [(name, criterion) for name in MODELS for criterion in (dp.Average(), dp.Discounted(0.9))]
CASES.append(("four queues", SPREAD))
ids = [f"{name}-{type(criterion).__name__}" for name, criterion in CASES[:-1]] + [
    "four queues-spread"
]
cases = pytest.mark.parametrize(("name", "criterion"), CASES, ids=ids)
LAWS = Made({name: lambda name=name: matrix(MODELS[name]) for name in MODELS})


def shaped(model, criterion, h, law=None):
    """min_a ℓ_h(x, a) of all states, by dense algebra."""
    rows, losses = law or matrix(model)
    gamma = criterion.gamma
    allowed = rows.sum(axis=1).reshape(losses.shape) > 0
    return (
        np.where(allowed, losses + gamma * (rows @ h).reshape(losses.shape), np.inf).min(axis=1) - h
    )


def dense_bound(model, criterion, h, law=None):
    """The bound of a potential, by dense algebra."""
    least = shaped(model, criterion, h, law).min()
    if isinstance(criterion, dp.Average):
        return least
    starts, alpha = criterion.start_distribution(model)
    return alpha @ h[[model.box.index(x) for x in starts]] + least / (1 - criterion.gamma)


def random_potential(model, seed, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=model.box.count)


def close(a, b):
    return abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))


@cases
def test_no_potential_gives_more_than_the_optimum(name, criterion):
    model = MODELS[name]
    optimum = dp.solve_exact(model, criterion, tol=1e-7)
    for seed, scale in enumerate((0.0, 0.1, 3.0, 1e6)):
        h = random_potential(model, seed, scale)
        bound = dp.lower_bound(model, criterion, potential=h)
        assert (bound.kind, bound.assumed, bound.missed, bound.samples) == ("proved", "", None, 0)
        assert bound.value <= optimum.lower + 1e-9
        assert close(bound.value, dense_bound(model, criterion, h, LAWS[name]))
        values = shaped(model, criterion, h, LAWS[name])
        assert close(values[model.box.index(bound.worst)], values.min())


@cases
def test_the_optimal_values_prove_the_optimum(name, criterion):
    model = MODELS[name]
    optimum = dp.solve_exact(model, criterion, tol=1e-8)
    bound = dp.lower_bound(model, criterion, potential=optimum.values)
    assert optimum.lower - 1e-6 <= bound.value <= optimum.upper


@pytest.mark.parametrize("criterion", [dp.Average(), SPREAD])
def test_the_linear_programs_values_prove_its_optimum(criterion):
    model = MODELS["four queues"]
    program = dp.solve_lp(model, criterion)
    assert (
        program.lower - 1e-6
        <= dp.lower_bound(model, criterion, potential=program.values).value
        <= program.upper + 1e-9
    )


@cases
def test_sweeps_only_raise_the_bound(name, criterion):
    model = MODELS[name]
    h = random_potential(model, 5, 4.0)
    bounds = [
        dp.lower_bound(model, criterion, potential=h, sweeps=k, threads=1)
        for k in (0, 1, 2, 3, 10, 100, 1000)
    ]
    for before, after in itertools.pairwise(bounds):
        assert after.value >= before.value - 1e-10 * max(1.0, abs(before.value))
        assert close(dp.lower_bound(model, criterion, potential=after.potential).value, after.value)
    optimum = dp.solve_exact(model, criterion, tol=1e-7)
    assert bounds[0].potential is None
    assert optimum.lower - 1e-4 <= bounds[-1].value <= optimum.upper


@settings(max_examples=40)
@given(st.data())
def test_each_sweep_raises_the_bound_of_every_potential(data):
    """Written out with the dense law, and with steps as long as laziness allows."""
    model = data.draw(networks(max_classes=3))
    criterion = data.draw(st.sampled_from([dp.Average(), dp.Discounted(0.7)]))
    law = matrix(model)
    h, gamma = random_potential(model, data.draw(st.integers(0, 10**6)), 2.0), criterion.gamma
    longest = 1 / (1 - gamma * Sweeper(model).laziness)
    for tau in (0.5, 1.0, longest):
        after = h + tau * shaped(model, criterion, h, law)
        assert (
            dense_bound(model, criterion, after, law)
            >= dense_bound(model, criterion, h, law) - 1e-9
        )


@settings(max_examples=40)
@given(
    networks(max_classes=3),
    st.integers(0, 10**6),
    st.sampled_from([0.1, 1.0, 30.0]),
    st.sampled_from([None, 0.9]),
)
def test_bounds_of_random_networks(model, seed, scale, gamma):
    criterion = dp.Average() if gamma is None else dp.Discounted(gamma)
    h = random_potential(model, seed, scale)
    bound, swept = (
        dp.lower_bound(model, criterion, potential=h, sweeps=k, threads=1).value for k in (0, 30)
    )
    assert close(bound, dense_bound(model, criterion, h))
    assert swept >= bound - 1e-9 * max(1.0, abs(bound))
    for policy in (policies.random_policy(model), model.policy("longer")):
        cost = (
            average_cost(model, policy) if gamma is None else discounted_cost(model, policy, gamma)
        )
        assert swept <= cost + 1e-6


@settings(max_examples=30)
@given(
    st.integers(0, 10**6), st.sampled_from([1.0, 1e8, 1e14]), st.sampled_from([1e-13, 1.0, 1e13])
)
def test_rounding_never_lifts_the_bound_above_the_truth(seed, scale, loss_scale):
    """Against m(h) in exact fractions."""
    model = dp.load("garnet", states=6, actions=2, branching=3, seed=seed)
    rows, losses = matrix(model)
    model = dp.TabularModel(rows, losses * loss_scale)
    rows, losses = matrix(model)
    h = random_potential(model, seed, scale)
    exact = [Fraction(v) for v in h]
    for criterion in (dp.Average(), dp.Discounted(0.99)):
        gamma = Fraction(criterion.gamma)
        least = []
        for i, row in enumerate(rows):
            chances = [Fraction(p) for p in row]
            mean = sum(p * v for p, v in zip(chances, exact, strict=True)) / sum(chances)
            least.append(Fraction(losses.ravel()[i]) + gamma * mean - exact[i // 2])
        truth = (
            min(least) if isinstance(criterion, dp.Average) else exact[0] + min(least) / (1 - gamma)
        )
        assert Fraction(dp.lower_bound(model, criterion, potential=h).value) <= truth


def test_costs_per_unit_of_time():
    """The queue's length in continuous time, known in closed form.

    No choice, so the bound is the cost.
    """
    model, truth = mm1k(), mm1k_law() @ np.arange(6)
    assert dp.lower_bound(model, sweeps=2000).value == pytest.approx(truth, abs=1e-6)
    exact = dp.evaluate_exact(model, model.policy("longer"))
    assert dp.lower_bound(model, potential=exact.values).value == pytest.approx(
        exact.cost, abs=1e-9
    )


def test_a_chain_with_a_period():
    model = dp.TabularModel(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.0], [1.0]]))
    assert dp.lower_bound(model, sweeps=600).value == pytest.approx(0.5, abs=1e-4)


def test_the_average_bound_holds_from_every_start():
    """Two classes that never meet: the bound is the cheaper one's cost."""
    model = dp.TabularModel(np.eye(2), np.array([[1.0], [3.0]]))
    assert dp.lower_bound(model, potential=[0.0, 50.0], sweeps=10).value == pytest.approx(1.0)


def test_functions_arrays_and_nothing_agree(monkeypatch):
    monkeypatch.setattr(lower_bounds, "COORDINATES_AT_ONCE", 50)
    model = MODELS["four queues"]
    states = model.box.states(np.arange(model.box.count))

    def h(x):
        return x[:, 0] ** 2 - 0.5 * x[:, 3]

    whole = h(states)
    for criterion in (dp.Average(), SPREAD):
        for kind in ("proved", "statistical"):
            values = [
                dp.lower_bound(model, criterion, potential=p, kind=kind, samples=500).value
                for p in (h, whole)
            ]
            assert values[0] == values[1]
    strided = np.repeat(whole, 2)[::2]
    assert (
        dp.lower_bound(model, potential=strided).value
        == dp.lower_bound(model, potential=list(whole)).value
    )
    assert (
        dp.lower_bound(model).value
        == dp.lower_bound(model, potential=np.zeros(model.box.count)).value
        == 0.0
    )
    before = whole.copy()
    swept = dp.lower_bound(model, potential=whole, sweeps=5)
    swept.potential[:] = 7.0
    assert (whole == before).all()


@cases
def test_what_is_drawn_never_goes_below_the_truth(name, criterion):
    model = MODELS[name]
    for seed in range(3):
        h = random_potential(model, seed, 3.0)
        proved = dp.lower_bound(model, criterion, potential=h)
        drawn = dp.lower_bound(
            model, criterion, potential=h, kind="statistical", samples=40, seed=seed
        )
        assert drawn.value >= proved.value
        assert (drawn.kind, drawn.samples, drawn.sweeps) == ("statistical", 40, 0)
        assert "not a proof" in drawn.advice
        assert "stand for all" in drawn.assumed
        everywhere = shaped(model, criterion, h, LAWS[name])
        here = dense_bound(model, criterion, h, LAWS[name]) - proved.value
        factor = 1 - criterion.gamma if isinstance(criterion, dp.Discounted) else 1.0
        at_worst = everywhere[model.box.index(drawn.worst)] - everywhere.min()
        assert close(drawn.value - proved.value, at_worst / factor + here)


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.9)])
@pytest.mark.parametrize("name", ["four queues", "admission", "garnet", "mm1k"])
def test_draws_that_cover_all_states_find_the_minimum(name, criterion):
    model = MODELS[name]
    everything = policies.random_policy(model)
    for seed in range(3):
        h = random_potential(model, seed, 3.0)
        drawn = dp.lower_bound(
            model, criterion, potential=h, kind="statistical", policy=everything, seed=seed
        )
        proved = dp.lower_bound(model, criterion, potential=h)
        assert close(drawn.value, proved.value)
        assert drawn.worst == proved.worst


def test_the_search_finds_what_was_not_drawn():
    """One draw near the origin; ℓ_h = 3, 0, −1, −2, ... falls towards the full queue."""
    model = mm1k(arrival=0.5, room=30)

    def h(x):
        return 3.0 * x[:, 0] * (x[:, 0] + 2)

    drawn, proved = (
        dp.lower_bound(model, potential=h, kind=kind, samples=1)
        for kind in ("statistical", "proved")
    )
    assert close(drawn.value, proved.value)
    assert drawn.worst == proved.worst == (30,)


def test_the_fraction_missed():
    model = MODELS["four queues"]
    bound = dp.lower_bound(model, kind="statistical", samples=1000, confidence=0.99)
    assert bound.missed == pytest.approx(math.log(100) / 1000)
    assert (1 - bound.missed) ** 1000 <= 0.01
    assert dp.lower_bound(model, kind="statistical", samples=1).missed == 1.0


def test_draws_depend_on_the_seed_alone(monkeypatch):
    monkeypatch.setattr(lower_bounds, "MOST_WORST_STATE_STEPS", 0)
    model = dp.load("four-queue", buffers=None)

    def h(x):
        return np.sin(x @ np.array([1.0, 2.0, 3.0, 4.0])) * 5

    values = [
        dp.lower_bound(
            model, potential=h, samples=30, policy=model.policy("longer"), seed=s, threads=t
        ).value
        for s, t in ((0, 1), (0, 2), (1, 1))
    ]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.99)])
def test_without_an_array_over_states(criterion, monkeypatch):
    """No end of states, and 10^40 of them; potentials are asked about few states at a time."""
    monkeypatch.setattr(lower_bounds, "COORDINATES_AT_ONCE", 2**15)
    largest = 0

    def h(x):
        nonlocal largest
        largest = max(largest, len(x))
        return 0.1 * x.sum(axis=1)

    for model in (
        dp.load("four-queue", buffers=None),
        dp.load("tandem", queues=20, servers=10, buffers=99),
    ):
        bound = dp.lower_bound(model, criterion, potential=h, samples=2_000)
        assert bound.kind == "statistical"
        assert math.isfinite(bound.value)
        assert ("tends to 0" in bound.assumed) == (not model.box.bounded)
    assert largest <= 2**15


def test_a_known_bound_without_end():
    """M/M/1: the bias is quadratic, and proves the mean number in the system, 1, at every state."""
    model = mm1()
    bias = dp.lower_bound(model, potential=lambda x: 1.5 * x[:, 0] * (x[:, 0] + 1.0), samples=5_000)
    assert bias.value == pytest.approx(1.0, abs=1e-9)


def test_a_potential_that_falls_for_ever_is_reported():
    model = dp.load("four-queue", buffers=None)
    steep = dp.lower_bound(model, potential=lambda x: 10.0 * x.sum(axis=1) ** 2, samples=500)
    assert "still fell" in steep.assumed
    assert "still fell" not in dp.lower_bound(model, samples=500).assumed


def test_policies_that_are_not_compiled_visit_the_same_states():
    model = MODELS["four queues"]
    table = {
        tuple(model.box.state(i)): model.policy("lbfs")(model.box.state(i))
        for i in range(model.box.count)
    }
    slow = policies.FunctionPolicy(model, lambda x: table[tuple(int(v) for v in x)])
    assert slow.code is None
    h = random_potential(model, 2)
    bounds = [
        dp.lower_bound(model, potential=h, kind="statistical", policy=p, samples=60)
        for p in (slow, model.policy("lbfs"))
    ]
    assert bounds[0].value == bounds[1].value
    assert bounds[0].worst == bounds[1].worst


def test_reports_are_plain_values():
    model = MODELS["four queues"]
    for bound in (
        dp.lower_bound(model, sweeps=3),
        dp.lower_bound(model, kind="statistical", samples=50),
    ):
        report = json.loads(json.dumps(bound.to_json(), allow_nan=False))
        assert report["kind"] == bound.kind
        assert report["worst"] == list(bound.worst)
        assert "potential" not in report
    assert dp.lower_bound(model, criterion=dp.Discounted(0.5)).criterion == "discounted, gamma 0.5"
    assert not math.isfinite(
        dp.evaluation.LowerBound(-math.inf, "proved", "average", (0,)).to_json()["value"]
    )


def test_gaps():
    assert gap(10.0, 9.0) == pytest.approx(0.1)
    assert gap(-10.0, -11.0) == pytest.approx(0.1)
    assert gap(0.0, 0.0) == 0.0
    assert gap(0.0, -1.0) == math.inf
    assert largest_gap(0.1, 1.0, -1.0) == pytest.approx(
        11.0
    )  # with a negative bound the lower end has the larger gap
    assert largest_gap(9.0, 10.0, 8.0) == pytest.approx(0.2)
    assert largest_gap(-10.0, -9.0, -11.0) == pytest.approx(2 / 9)
    assert largest_gap(-1e-9, 1e-9, -1.0) == math.inf
    assert gap(math.inf, 1.0) == gap(1.0, -math.inf) == gap(math.nan, 1.0) == math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"potential": np.zeros(80)}, "81 numbers"),
        ({"potential": np.full(81, np.nan)}, r"not finite at state \(0, 0, 0, 0\)"),
        ({"potential": "bias"}, "a potential is"),
        ({"potential": dp.Discounted(0.9)}, "a potential is"),
        ({"potential": lambda x: x}, r"shape \(81, 4\) for 81 states"),
        (
            {"potential": lambda x: np.where(x[:, 3] == 2, np.inf, 0.0)},
            r"not finite at state \(0, 0, 0, 2\)",
        ),
        ({"criterion": "average"}, "criterion must be"),
        ({"sweeps": -1}, "sweeps"),
        ({"sweeps": 1.5}, "sweeps"),
        ({"samples": 0}, "samples"),
        ({"confidence": 1.0}, "confidence"),
        ({"seed": -1}, "seed"),
        ({"kind": "prooved"}, "did you mean 'proved'"),
        ({"kind": "statistical", "sweeps": 2}, "sweeps need every state"),
        ({"kind": "statistical", "policy": "longer"}, "a policy is needed"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(dp.errors.InputError, match=message):
        dp.lower_bound(MODELS["four queues"], **arguments)


def test_refusals_of_models():
    simulator = dp.SimulatorModel(lower=[0], upper=[3], actions=1, step=lambda x, a, rng: (x, 0.0))
    with pytest.raises(dp.errors.MissingError, match="only a simulator"):
        dp.lower_bound(simulator)
    endless = dp.load("four-queue", buffers=None)
    with pytest.raises(dp.errors.InputError, match="infinitely many states; give the potential"):
        dp.lower_bound(endless, potential=np.zeros(81))
    with pytest.raises(dp.errors.MissingError, match="infinitely many"):
        dp.lower_bound(endless, kind="proved")
    with pytest.raises(dp.errors.PolicyError, match="another model"):
        dp.lower_bound(endless, policy=MODELS["four queues"].policy("lbfs"))


def test_laws_that_are_wrong_are_named():
    def leak(x, a, e):
        return 0.5 if x[0] < 40 else 0.4

    model = dp.EventModel(
        lower=[0],
        upper=[None],
        actions=1,
        events=2,
        probability=leak,
        move=lambda x, a, e: (max(x[0] - 1 + 2 * e, 0),),
        loss=lambda x, a: -float(x[0]),
        jumps=[(1,), (-1,), (0,)],
    )
    with pytest.raises(dp.errors.ModelError, match=r"x=\(40\)"):
        dp.lower_bound(model, samples=20)


def test_the_least_loss_bounds_models_of_any_size():
    """Without a potential and with too many states to list: proved, from what the model
    declares.
    """
    endless = dp.load("four-queue", buffers=None)
    for criterion in (dp.Average(), dp.Discounted(0.9)):
        bound = dp.lower_bound(endless, criterion, potential=None)
        assert (bound.kind, bound.value) == ("proved", 0.0)
    paid = dp.EventModel(
        lower=[0],
        upper=[None],
        actions=["wait"],
        events=1,
        probability=lambda x, a, e: 1.0,
        move=lambda x, a, e: (x[0],),
        loss=lambda x, a: 2.0,
        jumps=[(0,)],
        loss_bounds=(1.5, 2.0),
        name="paid",
    )
    assert dp.lower_bound(paid).value == 1.5
    assert dp.lower_bound(paid, dp.Discounted(0.9), potential=None).value == pytest.approx(15.0)


def test_a_sweep_that_is_not_worth_waiting_for_gives_way_to_the_declared_loss(monkeypatch):
    """No policy of a network costs less than nothing, and of lost sales no order at all."""
    model = dp.load("lost-sales", lead_time=2, demand=2.0)
    swept = dp.best_bound(model, time=1.0)
    monkeypatch.setattr(Sweeper, "seconds_of_one", 100.0)
    found = dp.best_bound(model, time=1.0)
    assert found.kind == "proved"
    assert found.sweeps == 0
    assert found.value == model.least_loss
    assert found.value <= swept.value
    asked = dp.best_bound(model, time=1.0, sweeps=2)
    assert asked.sweeps == 2
    discounted = dp.best_bound(model, dp.Discounted(0.9), time=1.0)
    assert discounted.value == pytest.approx(10 * model.least_loss)
