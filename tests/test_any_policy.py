"""Policies of plain Python: functions that cannot be compiled, asked alone or in batches."""

from itertools import pairwise

import numpy as np
import pytest

import dualplan as dp
from dualplan.evaluation.simulation import PythonEngine, SteppedEngine
from dualplan.policies import FunctionPolicy
from dualplan.policies.tables import TablePolicy, as_table, tabulated


class Network:
    """Two hidden layers of 64; takes one state, or an array with a state a row."""

    def __init__(self, dim, actions, seed):
        rng = np.random.default_rng(seed)
        sizes = [dim, 64, 64, actions]
        self.weights = [rng.normal(size=pair) / 4 for pair in pairwise(sizes)]

    def __call__(self, x):
        last = np.asarray(x, float)
        for weights in self.weights[:-1]:
            last = np.tanh(last @ weights)
        scores = last @ self.weights[-1]
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def network():
    return Network(4, 4, seed=1)


@pytest.fixture(scope="module")
def large():
    return dp.load("four-queue")


def test_batches_are_found_out(large, network):
    def alone(x):
        return int(np.argmax(network(x)))

    def together(x):
        return np.argmax(network(x), axis=-1)

    def arrays_only(x):
        return np.argmax(network(x), axis=1)

    assert not FunctionPolicy(large, alone).batched
    for function in (network, together, arrays_only):
        policy = FunctionPolicy(large, function)
        assert policy.batched
        assert policy.code is None
    assert not FunctionPolicy(large, network, batched=False).batched
    states = np.arange(40).reshape(10, 4)
    expected = np.eye(4)[np.argmax(network(states), axis=1)]
    for function in (alone, together, arrays_only):
        policy = FunctionPolicy(large, function)
        assert np.array_equal(policy.rows(states), expected)
        assert np.array_equal(policy(states[3]), expected[3])


def test_a_function_that_only_looks_like_a_batch_is_none(large):
    """Of an array of states x[0] is a state and no queue: what comes out has another shape, or is
    not what single states give.
    """

    plain = {"zero": 0}  # which is not compiled

    def columns(x):
        return plain["zero"] + np.asarray([0, 1, 2, 3])[np.minimum(np.asarray(x), 3)].tolist()[0]

    def sums(x):  # a row for each state of an array, but not the same row
        totals = plain["zero"] + np.add.accumulate(np.atleast_2d(x).sum(axis=-1)) % 4
        return np.squeeze(np.eye(4)[totals.tolist()])

    for function in (columns, sums):
        assert not FunctionPolicy(large, function).batched


def test_the_same_results_with_and_without_batches(large, network):
    """The random numbers are those of the step-by-step engine, whatever is advanced together."""
    loose = FunctionPolicy(large, network, batched=False)
    batched = FunctionPolicy(large, network)
    found = []
    for engine, policy in ((PythonEngine, loose), (SteppedEngine, loose), (SteppedEngine, batched)):
        run = engine(large, policy, 7, True)
        chunks = run.advance_all([run.first(r) for r in range(3)], 2, 20)
        many = [
            run.discounted(0.8, horizon, large.start[None], np.ones(1), 5, 6) for horizon in (0, 9)
        ]
        found.append((chunks, many))
    for chunks, many in found[1:]:
        for one, other in zip(found[0][0], chunks, strict=True):
            assert np.array_equal(one.rows, other.rows)
            assert np.array_equal(one.cycles, other.cycles)
            assert np.array_equal(one.replica.x, other.replica.x)
            assert np.array_equal(one.replica.cycle, other.replica.cycle)
        for one, other in zip(found[0][1], many, strict=True):
            assert np.allclose(one[0], other[0], rtol=1e-14)
            assert np.array_equal(one[1], other[1])
    costs = [dp.evaluate(large, policy, steps=2_000).cost for policy in (loose, batched)]
    assert costs[0] == costs[1]


def test_batches_and_compiled_code_agree(large):
    """The longer queue of each server, compiled and as a function of arrays."""

    def compiled(x):
        return 2 * int(x[1] < x[2]) + int(x[0] < x[3])

    def arrays(x):
        return 2 * (x[..., 1] < x[..., 2]) + (x[..., 0] < x[..., 3])

    fast = FunctionPolicy(large, compiled)
    slow = FunctionPolicy(large, lambda x: arrays(np.asarray(x)) + int(str(0)))
    assert fast.code is not None
    assert slow.code is None
    assert slow.batched
    # as many steps in a chunk, of which there are fewer for slow policies
    one, other = (dp.evaluate(large, policy, steps=8_000) for policy in (fast, slow))
    assert one.cost == other.cost
    gamma = dp.Discounted(0.9)
    one, other = (dp.evaluate(large, policy, gamma, steps=8_000) for policy in (fast, slow))
    assert one.cost == pytest.approx(other.cost, rel=1e-12)


def test_exactly_where_states_are_few(net, network):
    """The table of a network costs what the network costs, and that is known exactly."""
    policy = FunctionPolicy(net, network)
    table = TablePolicy(net, network(net.box.states(np.arange(net.box.count))))
    expected = dp.evaluate_exact(net, table).cost
    assert dp.evaluate_exact(net, policy).cost == pytest.approx(expected, abs=1e-12)
    judged = dp.evaluation.Judge()(net, policy, dp.Average())
    assert judged.method == "exact"
    assert judged.cost == pytest.approx(expected, abs=1e-12)
    assert tabulated(policy) is as_table(policy)  # made once
    assert FunctionPolicy(net, network, batched=False).rows(net.start[None]).shape == (1, 4)


def test_a_policy_that_fails_where_nobody_comes_is_simulated():
    queue = dp.QueueingNetwork([dp.QueueClass("q", "s", 0.5, arrival=0.3, buffer=3)])

    def careful(x):
        if x[0] > 2:
            raise ValueError("never seen")
        return int(str(0))

    policy = FunctionPolicy(queue, careful)
    assert tabulated(policy) is policy
    with pytest.raises(dp.errors.PolicyError, match="never seen"):
        dp.evaluate_exact(queue, policy)


def test_a_table_of_a_function_is_saved(net, network, tmp_path):
    policy = tabulated(FunctionPolicy(net, network))
    dp.save_policy(policy, tmp_path / "p.npz")
    again = dp.load_policy(tmp_path / "p.npz", net)
    assert np.allclose(again([1, 0, 2, 1]), network(np.array([1, 0, 2, 1])), rtol=1e-12)


def test_fingerprints_tell_objects_apart(large):
    """Of an object of a class nothing can be told but what it answers."""
    policies = [FunctionPolicy(large, Network(4, 4, seed)) for seed in (1, 2, 1)]
    assert policies[0].digest != policies[1].digest
    assert policies[0].digest == policies[2].digest


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: np.zeros((len(x), 3)), r"shape \(1, 3\) for 1 states"),
        (lambda x: np.full(len(x), 9), "numbered 0 to 3"),
        (lambda x: np.zeros(len(x)), "numbered 0 to 3"),
    ],
)
def test_wrong_batches(large, answer, words):
    with pytest.raises(dp.errors.PolicyError, match=words):
        FunctionPolicy(large, answer, batched=True)([0, 0, 0, 0])


def test_wrong_rows_of_batches_are_told_by_state(large):
    policy = FunctionPolicy(large, lambda x: np.full((len(x), 4), 0.5), batched=True)
    with pytest.raises(dp.errors.PolicyError, match="sum to 2, not 1"):
        dp.evaluate(large, policy, steps=1_000)


FILE = """
import numpy as np
rng = np.random.default_rng(0)
first, second = rng.normal(size=(4, 64)), rng.normal(size=(64, 4))

def net(x):
    scores = np.exp(np.tanh(np.asarray(x, float) @ first) @ second / 8)
    return scores / scores.sum(axis=-1, keepdims=True)
"""


def test_functions_in_files_enter_everywhere(run, tmp_path):
    path = tmp_path / "agent.py"
    path.write_text(FILE)
    small = ("four-queue", "--set", "buffers=2")
    spec = f"{path}:net"
    status, out, _ = run("evaluate", *small, "-p", spec, "-p", "lbfs", "--steps", 20_000, "--json")
    assert status == 0
    status, out, _ = run("evaluate", *small, "-p", spec, "--method", "exact", "--json")
    assert status == 0
    assert '"status": "solved"' in out
    folder = tmp_path / "run"
    status, out, err = run(
        "solve", *small, "-p", spec, "--method", "exact", "--time", "1s", "--out", folder
    )
    assert status == 0, err
    assert (folder / "policy.npz").exists()
    status, out, err = run(
        "compare", spec, "lbfs", "--model", "four-queue", "--set", "buffers=2", "--json"
    )
    assert status == 0, err
    assert '"method": "exact"' in out
