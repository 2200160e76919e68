"""Tables, event models, simulators and the named instances, against each other and against closed
forms.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import dualplan as dp
from bank import admission_events, average_cost, discounted_cost, matrix
from dualplan.models.check import check_model
from dualplan.models.instances import INSTANCES

# -- tables ----------------------------------------------------------------------------------------


@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 10**6))
def test_tables_in_all_shapes_are_one_model(states, actions, seed):
    rng = np.random.default_rng(seed)
    dense = rng.random((actions, states, states)) * (rng.random((actions, states, states)) < 0.6)
    dense[:, :, 0] += 0.1
    dense /= dense.sum(axis=2, keepdims=True)
    loss = rng.random((states, actions))
    by_pair = dense.transpose(1, 0, 2).reshape(states * actions, states)
    for form in (dense, [sp.csr_array(d) for d in dense], by_pair, sp.coo_array(by_pair)):
        model = dp.TabularModel(form, loss)
        rows, losses = matrix(model)
        assert np.abs(rows - by_pair).max() < 1e-12
        assert np.array_equal(losses, loss)
        for y in range(states):
            before = model.predecessors([y])
            column = np.zeros(states * actions)
            column[before.states[:, 0] * actions + before.actions] = before.probabilities
            assert np.abs(column - by_pair[:, y]).max() < 1e-12


def test_garnet_and_forest_are_tables_of_known_value():
    forest = dp.load("forest")
    wait = dp.policies.TablePolicy(forest, np.zeros(3, int))
    assert -average_cost(forest, wait) == pytest.approx(3.24, abs=1e-9)
    values = [
        -discounted_cost(dp.TabularModel(forest.matrix, forest.losses, start=x), wait, 0.9)
        for x in range(3)
    ]  # start matters
    assert values == pytest.approx([26.244, 29.484, 33.484], abs=1e-9)
    garnet = dp.load("garnet", states=20, actions=3, branching=4, seed=5)
    rows, _ = matrix(garnet)
    assert ((rows > 0).sum(axis=1) == 4).all()
    assert np.abs(rows.sum(axis=1) - 1).max() < 1e-12


@pytest.mark.parametrize(
    ("transitions", "loss", "words"),
    [
        ([np.array([[0.5, 0.4], [0, 1]])], [0, 0], r"x=0, a=0 sums to 0.9, not 1"),
        ([np.array([[-0.1, 1.1], [0, 1]])], [0, 0], r"x=0, a=0, x'=0 the probability -0.1"),
        ([np.eye(2)], [0, -np.inf], r"loss at x=1, a=0 is not finite"),
        ([np.eye(2)], [0, 0, 0], r"shape \(3,\); expected \(2, 1\)"),
        ([np.eye(2), np.eye(3)], [0, 0], "square matrices of one size"),
        ([np.array([[0.0, 0.0], [0, 1]])], [0, 0], "at least one allowed action"),
    ],
)
def test_wrong_tables(transitions, loss, words):
    with pytest.raises(dp.errors.InputError, match=words):
        dp.TabularModel(transitions, loss)


# -- event models ----------------------------------------------------------------------------------


def test_event_model_queue_and_table_are_one_process():
    """The gate that always admits is an M/M/1/K queue in discrete time."""
    gate = admission_events(room=6)
    queue = dp.QueueingNetwork([dp.QueueClass("1", "S", 0.3, 0.5, 6)])
    always = dp.policies.FunctionPolicy(gate, lambda x: 1)
    rows, losses = matrix(gate)
    table = dp.TabularModel(rows, losses)
    ones = dp.policies.TablePolicy(table, np.ones(7, int))
    law = (0.5 / 0.3) ** np.arange(7)
    expected = law @ np.arange(7) / law.sum()
    assert average_cost(gate, always) == pytest.approx(expected, abs=1e-9)
    assert average_cost(table, ones) == pytest.approx(expected, abs=1e-9)
    assert average_cost(queue, queue.policy("longer")) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("room", [2, 7])
def test_jumps_given_and_derived_agree(room):
    given_jumps = admission_events(room)
    f = given_jumps.functions
    derived = dp.EventModel(
        lower=[0],
        upper=[room],
        actions=2,
        events=3,
        probability=f["probability"],
        move=f["move"],
        loss=f["loss"],
        jumps="derive",
    )
    assert derived.jumps.tolist() == [[-1], [0], [1]]
    assert not derived.jumps_are_sampled
    for y in range(room + 1):
        a, b = given_jumps.predecessors([y]), derived.predecessors([y])
        assert np.array_equal(a.states, b.states)
        assert np.array_equal(a.probabilities, b.probabilities)


def test_candidates_of_the_user_are_confirmed_by_the_forward_law():
    """A reset, whose predecessors no jump can name; wrong and repeated candidates do no harm."""

    def probability(x, a, e):
        return 0.25 if e == 0 else 0.75

    def move(x, a, e):
        return 0 if e == 0 else min(x[0] + 1, 4)

    def loss(x, a):
        return float(x[0])

    def predecessors(y):
        for x in range(-1, 6):
            yield (x, 0)
            yield (x, 0)
            yield (x, 7)

    model = dp.EventModel(
        lower=[0],
        upper=[4],
        actions=1,
        events=2,
        probability=probability,
        move=move,
        loss=loss,
        predecessors=predecessors,
    )
    assert model.predecessors([0]).probabilities.tolist() == [0.25] * 5
    assert model.predecessors([4]).states.ravel().tolist() == [3, 4]
    assert check_model(model).ok


def broken(**changes):
    gate = admission_events()
    parts = {
        **gate.functions,
        "lower": [0],
        "upper": [6],
        "actions": 2,
        "events": 3,
        "name": "gate",
        **changes,
    }
    return dp.EventModel(**parts)


def test_mistakes_at_the_start_are_found_at_once():
    cases = {
        "probability": (
            lambda x, a, e: 1.1,
            r"`probability` at x=\(0\), a=0, event 0 is 1.1, not in \[0, 1\]",
        ),
        "move": (
            lambda x, a, e: (x[0], 0),
            r"`move` at x=\(0\), a=0, event 0 gives 2 coordinates; a state has 1",
        ),
        "loss": (lambda x, a: float("nan"), r"`loss` at x=\(0\), a=0 is nan, not a finite number"),
        "allowed": (lambda x, a: False, r"`allowed` leaves no action in state x=\(0\)"),
    }
    for name, (function, words) in cases.items():
        with pytest.raises(dp.errors.ModelError, match=words) as caught:
            broken(**{name: function})
        assert "\n" not in str(caught.value)
    with pytest.raises(
        dp.errors.ModelError, match=r"`move` at x=\(0\), a=0, event 0 leaves the box: x'=\(-1\)"
    ):
        broken(move=lambda x, a, e: (x[0] - 1,))
    with pytest.raises(
        dp.errors.ModelError, match=r"`loss` at x=\(0\), a=0 raised ZeroDivisionError"
    ):
        broken(loss=lambda x, a: 1 / int(x[0]))
    with pytest.raises(dp.errors.ModelError, match=r"sums to 0.9 over the events"):
        broken(probability=lambda x, a, e: 0.3, move=lambda x, a, e: (x[0],))


def test_mistakes_further_out_are_found_by_check_and_by_simulation():
    def out_of_the_box(x, a, e):
        if e == 0:
            return (x[0] + 1,)
        return (max(x[0] - 1, 0),)

    def improbable(x, a, e):
        return 0.5 + (0.6 if x[0] > 2 else 0.0) if e == 0 else 0.5

    for changes, words in (
        (
            {"move": out_of_the_box, "probability": lambda x, a, e: 0.5},
            r"`move` at x=\(6\).*leaves the box: x'=\(7\)",
        ),
        (
            {"move": lambda x, a, e: (min(x[0] + 1, 6),), "probability": improbable},
            r"`probability` at x=\(\d\), a=\d, event 0 is 1.1",
        ),
    ):
        model = broken(events=2, **changes)
        report = check_model(model)
        assert not report.ok
        with pytest.raises(dp.errors.ModelError, match=words):
            raise dp.errors.ModelError(report.problem)
        with pytest.raises(dp.errors.ModelError, match=words):
            dp.evaluate(model, model.policy("random"), steps=100_000)


def test_what_cannot_be_compiled_is_named():
    import json

    model = broken(loss=lambda x, a: float(len(json.dumps([1]))))
    with pytest.raises(dp.errors.ModelError, match=r"`loss` .* cannot be compiled") as caught:
        model.loss([0], 0)
    assert "\n" not in str(caught.value)
    mixed = broken(move=lambda x, a, e: (x[0] * 1.0,) if e == 5 else (x[0],))
    with pytest.raises(dp.errors.ModelError, match="`move`"):
        mixed.forward([0], 0)


# -- checks find what is wrong ---------------------------------------------------------------------


def test_check_finds_predecessors_that_are_not_the_transpose():
    f = admission_events().functions
    model = dp.EventModel(
        lower=[0],
        upper=[6],
        actions=2,
        events=3,
        probability=f["probability"],
        move=f["move"],
        loss=f["loss"],
        jumps=[(1,), (0,)],
        name="gate",
    )
    assert (
        "leads to x'=(0) with probability 0.3 by the forward law but 0 by the predecessors"
        in str(check_model(model).problem)
    )


def test_check_finds_a_simulator_that_draws_from_another_law():
    """Swap the tables of the simulator and the forward law: the chi-square test must see it (p <
    1e-6).
    """
    one = dp.TabularModel([np.array([[0.5, 0.5], [0.5, 0.5]])], [0, 1])
    other = dp.TabularModel([np.array([[0.7, 0.3], [0.3, 0.7]])], [0, 1])

    class Swapped(dp.TabularModel):
        @property
        def code(self):
            return one.code

        def forward(self, x, a):
            return other.forward(x, a)

        def predecessors(self, y):
            return other.predecessors(y)

    report = check_model(Swapped([np.eye(2)], [0, 1], name="swapped"))
    assert "does not draw from the forward law" in str(report.problem)


# -- simulators ------------------------------------------------------------------------------------


def walk(x, a, rng):
    up = rng.random() < (0.4 if a == 0 else 0.3)
    return min(max(x[0] + (1 if up else -1), 0), 10), float(x[0])


def test_simulator_model_checks_and_reports_mistakes():
    model = dp.SimulatorModel(lower=[0], upper=[10], actions=2, step=walk, name="walk")
    report = check_model(model)
    assert report.ok
    assert report.checked == ("simulator",)
    for step, words in (
        (lambda x, a, rng: (x[0] - 1, 0.0), r"leaves the box: x'=\(-1\)"),
        (lambda x, a, rng: x, r"must return \(next state, loss\)"),
        (lambda x, a, rng: ((1, 2), 0.0), "a state has 1 integer coordinates"),
        (lambda x, a, rng: (x, float("inf")), "not a finite number"),
    ):
        problem = check_model(
            dp.SimulatorModel(lower=[0], upper=[10], actions=2, step=step)
        ).problem
        with pytest.raises(dp.errors.ModelError, match=words):
            raise dp.errors.ModelError(problem)


def test_gymnasium_environment_gives_the_same_law_as_its_table():
    """FrozenLake's own table against episodes of the environment: expected discounted cost from the
    start.
    """
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("FrozenLake-v1", is_slippery=True)
    table = env.unwrapped.P
    states, actions = len(table), len(table[0])
    rows, losses = np.zeros((states * actions, states)), np.zeros((states, actions))
    for x in range(states):
        for a in range(actions):
            for p, y, reward, _ in table[x][a]:
                rows[x * actions + a, y] += p
                losses[x, a] -= p * reward
    tabular = dp.TabularModel(rows, losses)
    exact = discounted_cost(tabular, tabular.policy("random"), 0.95)
    model = dp.SimulatorModel.from_gymnasium("FrozenLake-v1", is_slippery=True)
    result = dp.evaluate(
        model,
        model.policy("random"),
        dp.Discounted(0.95),
        steps=60_000,
        confidence=0.999,
        method="stopped",
    )
    assert result.lower <= exact <= result.upper
    assert result.half_width < 0.02
    with pytest.raises(dp.errors.InputError, match="only Discrete and MultiDiscrete"):
        dp.SimulatorModel.from_gymnasium("CartPole-v1")


# -- instances -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(INSTANCES))
def test_every_instance_keeps_the_contract(name):
    report = check_model(dp.load(name), pairs=60)
    assert report.ok, report.problem


def test_lost_sales_predecessors_everywhere():
    """Exhaustively on a small instance, including the states that are never reached."""
    model = dp.load("lost-sales", lead_time=2, demand=1.0, capacity=5, max_order=3)
    rows, _ = matrix(model)
    actions = len(model.actions)
    for i in range(model.box.count):
        before = model.predecessors(model.box.state(i))
        column = np.zeros(len(rows))
        for x, a, p in zip(before.states, before.actions, before.probabilities, strict=True):
            column[model.box.index(x) * actions + a] = p
        assert np.abs(column - rows[:, i]).max() < 1e-12


def test_six_class_routes():
    net = dp.load("six-class")
    assert {c.name: dict(c.route) for c in net.classes} == {
        "1": {"4": 1.0},
        "4": {"2": 1.0},
        "2": {"5": 1.0},
        "5": {},
        "3": {"6": 1.0},
        "6": {},
    }
    four = dp.load("six-class", stations=4)
    assert four.classes[9].route == {"2": 1.0}
    assert len(four.classes) == 12
