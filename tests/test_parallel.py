"""Problems solved in other processes: the same bytes, wherever a task runs.

Run as a program, this file solves the tasks on a Dask cluster of its own and prints what it found.
"""

import json
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor

import dualplan as dp
from bank import four_queue_events, mixed_features
from dualplan.core.threads import cores
from dualplan.core.workers import in_order
from dualplan.dual import features as families
from dualplan.policies import FunctionPolicy
from dualplan.values.functions import state_function

SECONDS = 400  # after which a cluster is taken to hang


def network():
    """Blocks of every kind, a potential, weights, a limit and a base measure."""
    net = dp.load("four-queue", buffers=2)
    blocks = mixed_features(net)
    laws = families.products(net, [[families.Truncated(0.5)] * 4, [families.Truncated(0.8)] * 4])
    mixed = families.mixtures(blocks, np.eye(len(blocks))[:3] / 2 + np.eye(len(blocks))[3:6] / 2)
    return dp.dual.DualALP(
        net,
        families.concat(blocks, laws, mixed),
        dp.Discounted(0.9),
        base=families.occupancies(net, [net.policy("c-mu")]),
        potential=state_function(net, np.arange(81.0)),
        weights=lambda x: 1.0 + x.sum(axis=1),
        limits=[dp.Limit(lambda x, a: x[0] * (a + 1.0), 4.0)],
    )


def functions():
    """A model and features that are functions, which close over numbers and arrays."""
    model, weights = four_queue_events(jumps="derive"), np.array([0.25, 4.0])

    def row(x, a, indices, values):
        indices[0], values[0] = a, weights[0] * weights[1] / 81
        return 1

    def draw(j, u, x):
        for i in range(4):
            x[i] = int(3 * u[i])
        return j

    own = families.user_defined(model, row, draw, 4, widest=1)
    parts = families.concat(
        own,
        families.mixtures(own, [[0.5, 0.5, 0, 0]]),
        families.boxes(model, [[(0, 1), (2, 2)]] * 4),
    )
    return dp.dual.DualALP(model, parts, radius=20.0, sampling="row-norms")


def tables():
    """Garnet, states in groups."""
    model = dp.load("garnet", states=40)
    return dp.dual.DualALP(
        model, families.boxes(model, [[(k, k + 4) for k in range(0, 40, 5)]]), radius=10.0
    )


SOLVERS = (
    ("adaptive", {"samples": 2_000}),
    ("paper", {"samples": 2_000, "step_size": 1e-3}),
    ("sampled-lp", {"samples": 2_000}),
    ("listed-lp", {}),
)


def tasks():
    return [
        (problem, *solver) for problem in (network(), functions(), tables()) for solver in SOLVERS
    ]


def solved(task):
    problem, solver, options = task
    return dp.dual.solve(problem, 20.0, method=solver, seed=3, **options).theta.tobytes().hex()


def along_a_grid():
    """Six penalties in two strands, with starts from neighbours and V̂ of each: the whole of the
    meta-algorithm.
    """
    found = dp.dual.solve_meta(
        tables(),
        epsilon=2.0,
        beta=5.0,
        grid=[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        choice="rule",
        method="adaptive",
        samples=2_000,
        violation_samples=2_000,
        seed=3,
    )
    return [found.chosen, *(point.solution.theta.tobytes().hex() for point in found.points)]


def everything():
    return in_order(solved, tasks()) + along_a_grid()


@pytest.fixture(scope="module")
def here():
    return everything()


@pytest.fixture(scope="module", autouse=True)
def workers():
    """joblib keeps its workers for later; here they end with the tests."""
    yield
    get_reusable_executor().shutdown(wait=True)


@pytest.mark.slow
def test_two_processes_find_the_same_bytes(here):
    with joblib.parallel_config(n_jobs=2):
        assert everything() == here


@pytest.mark.slow
def test_a_dask_cluster_finds_the_same_bytes(here, tmp_path):
    """In a process of its own, which can be given up, and whose files and warnings are its own."""
    pytest.importorskip("distributed", reason="needs Dask: pip install dualplan[dask]")
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == here


def on_a_cluster(folder):
    from distributed import Client, LocalCluster

    options = {
        "processes": True,
        "n_workers": 2,
        "threads_per_worker": 1,
        "dashboard_address": None,
    }
    with (
        LocalCluster(local_directory=folder, **options) as cluster,
        Client(cluster, timeout=60),
        joblib.parallel_config(backend="dask"),
    ):
        return everything()


def test_one_process_is_the_default_and_order_is_kept():
    where = {}
    assert in_order(lambda k: where.setdefault(k, -k), iter(range(5))) == [0, -1, -2, -3, -4]
    assert list(where) == list(range(5))
    for workers in (0, 1.5, "two", True):
        with pytest.raises(dp.errors.InputError, match="number of workers"):
            in_order(abs, [1], workers=workers)


@pytest.mark.slow
def test_threads_of_a_worker_keep_to_their_share():
    with joblib.parallel_config(backend="loky", n_jobs=2, inner_max_num_threads=1):
        assert in_order(lambda _: cores(), range(2)) == [1, 1]


def test_kernels_of_modules_travel_by_name_and_others_are_made_once():
    net, gate = dp.load("four-queue", buffers=2), four_queue_events(jumps="derive")
    assert pickle.loads(pickle.dumps(net.code.step)) is net.code.step
    assert len(pickle.dumps(net.code.step)) < 100
    rule = FunctionPolicy(net, lambda x: 0 if x[0] > x[3] else 1).code.act
    parts = families.boxes(gate, [[(0, 1), (2, 2)]] * 4)
    uniform = (
        dp.dual.solve(dp.dual.DualALP(gate, parts, radius=20.0), 20.0, method="listed-lp")
        .policy()
        .code.act
    )
    for kernel in (gate.code.step, gate.code.predecessors, rule, uniform):
        assert pickle.loads(pickle.dumps(kernel)) is kernel


@pytest.mark.slow
def test_arrays_that_joblib_maps_into_workers_are_writable_where_kernels_need_it():
    """Above a megabyte, joblib by default hands out views that are read-only."""
    model = dp.load("garnet", states=8_000, actions=1, branching=2)
    laws = np.random.default_rng(0).random((8_000, 10))
    problem = dp.dual.DualALP(model, families.table(model, laws / laws.sum(axis=0)), radius=10.0)
    assert problem.features.code.floats.nbytes > 2**20
    task = problem, "sampled-lp", {"samples": 200}
    assert joblib.Parallel(n_jobs=2)([joblib.delayed(solved)(task)] * 2) == [solved(task)] * 2
    assert in_order(solved, [task] * 2, workers=2) == [solved(task)] * 2


if __name__ == "__main__":
    print(json.dumps(on_a_cluster(sys.argv[1])))
