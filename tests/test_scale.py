"""Nothing grows with the number of states: a hundred queues without bounds."""

import tracemalloc

import numpy as np
import pytest

import dualplan as dp
from dualplan.models.check import check_model


def test_a_hundred_unbounded_queues_check_simulate_and_answer():
    net = dp.load("tandem", queues=100, servers=50)
    assert net.box.count is None
    assert len(net.actions) == 2
    report = check_model(net, pairs=30)
    assert report.ok, report.problem
    assert {"forward law", "predecessors", "simulator"} <= set(report.checked)
    result = dp.evaluate(net, net.policy("lbfs"), steps=400_000)
    assert result.status is not dp.Status.UNSTABLE
    y = np.zeros(101, np.int64)
    y[3] = 2
    before = net.predecessors(y)
    total = sum(
        net.forward(x, int(a)).probabilities[(net.forward(x, int(a)).states == y).all(axis=1)].sum()
        for x, a in zip(before.states, before.actions, strict=True)
    )
    assert abs(total - before.probabilities.sum()) < 1e-9


def test_memory_does_not_depend_on_the_number_of_states():
    """3·10^4, 3·10^8 and 3·10^60 states: the same peak within 20%, after a first run that
    compiles.
    """
    peaks = []
    for queues, buffer in ((4, 9), (4, 99), (4, 10**15 - 1)):
        net = dp.load("tandem", queues=queues, servers=2, buffers=buffer)
        policy = net.policy("longer")
        dp.evaluate(net, policy, steps=20_000)
        tracemalloc.start()
        dp.evaluate(net, policy, steps=200_000)
        net.predecessors(net.start)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 1.2 * min(peaks)
    assert dp.load("tandem", queues=200, servers=2, buffers=9).box.count == 3 * 10**200


def test_coordinates_near_the_largest_integer_are_caught():
    """A coordinate beyond 2^62 stops the loop instead of overflowing."""

    def probability(x, a, e):
        return 1.0

    def move(x, a, e):
        return (x[0] * 4 + 1,)

    def loss(x, a):
        return 0.0

    model = dp.EventModel(
        lower=[0],
        upper=[None],
        actions=1,
        events=1,
        probability=probability,
        move=move,
        loss=loss,
        name="explosion",
    )
    with pytest.raises(dp.errors.ModelError, match="leaves"):
        dp.evaluate(model, model.policy("random"), steps=10_000)
