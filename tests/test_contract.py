"""Boxes, single questions, and what a model says when asked for what it does not have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualplan as dp
from dualplan.models.contract import UNBOUNDED


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4)), min_size=1, max_size=4))
def test_index_and_state_are_inverse(ranges):
    box = dp.models.contract.Box.of(
        [low for low, _ in ranges], [low + width for low, width in ranges]
    )
    states = [tuple(box.state(i)) for i in range(box.count)]
    assert len(set(states)) == box.count
    assert states == sorted(states)
    assert all(box.index(x) == i for i, x in enumerate(states))


def test_counts_beyond_64_bits_are_exact_and_never_numbered():
    box = dp.models.contract.Box.of([0] * 100, [9] * 100)
    assert box.count == 10**100
    with pytest.raises(dp.errors.MissingError, match=r"numbers the states.*10\^100"):
        _ = box.strides
    assert dp.models.contract.Box.of([0], [None]).count is None
    with pytest.raises(dp.errors.MissingError, match="infinitely many"):
        dp.models.contract.Box.of([0], [None]).index([0])


def test_unbounded_means_the_largest_integer():
    assert dp.models.contract.Box.of([0, 0], [3, float("inf")]).upper.tolist() == [3, UNBOUNDED]


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [([1], [0], "coordinate 0 goes from 1 to 0"), ([], [], "at least one coordinate")],
)
def test_impossible_boxes(lower, upper, words):
    with pytest.raises(dp.errors.InputError, match=words):
        dp.models.contract.Box.of(lower, upper)


def test_questions_about_what_is_no_state_or_action():
    model = dp.load("four-queue", buffers=3)
    for x in ([0, 0, 0], [0, 0, 0, 4], [0, 0, 0, 0.5], [-1, 0, 0, 0]):
        with pytest.raises(dp.errors.InputError):
            model.forward(x, 0)
    with pytest.raises(dp.errors.InputError, match="actions 0 to 3, got 4"):
        model.loss([0, 0, 0, 0], 4)


def test_models_without_predecessors_say_why():
    def probability(x, a, e):
        return 0.5

    def move(x, a, e):
        return (e,)

    def loss(x, a):
        return float(x[0])

    model = dp.EventModel(
        lower=[0],
        upper=[1],
        actions=1,
        events=2,
        probability=probability,
        move=move,
        loss=loss,
        name="reset",
    )
    assert not model.has_predecessors
    with pytest.raises(dp.errors.MissingError, match=r"'reset' has no predecessors: give jumps"):
        model.predecessors([0])
    simulator = dp.SimulatorModel(lower=[0], upper=[1], actions=1, step=lambda x, a, rng: (x, 0.0))
    with pytest.raises(dp.errors.MissingError, match="only a simulator"):
        simulator.forward([0], 0)


def test_public_names():
    assert sorted(dp.__all__) == dp.__all__
    assert all(hasattr(dp, name) for name in dp.__all__)
    assert np.all(
        [
            name in dp.__all__
            for name in ("load", "evaluate", "compare", "check_model", "EventModel")
        ]
    )
