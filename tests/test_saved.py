"""Saved policies: the same when they come back, refused when they are not whole."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import dualplan as dp
from dualplan import primal
from dualplan.dual import features as families
from dualplan.dual.solvers import MixturePolicy
from dualplan.policies.heuristics.network import LinearIndexPolicy, NetworkPolicy, soft_longer
from dualplan.policies.saved import load_policy, save_policy


@pytest.mark.parametrize("fallback", [None, "lbfs"])
def test_a_saved_policy_is_the_same_in_every_state(tmp_path, fallback):
    net = dp.load("four-queue", buffers=2)
    features = families.concat(
        families.boxes(net, [[(0, 1)], [(0, 1)], [(0, 2)], [(0, 2)]]),
        families.mixtures(families.bands(net, [(0, 2), (3, 4)]), np.full((1, 8), 1 / 8)),
        families.products(net, [[families.Truncated(0.7)] * 4]),
        families.tiles(net, net.policy("lbfs"), [[(0, 2)]] * 4),
    )
    theta = np.random.default_rng(0).normal(size=len(features))
    policy = MixturePolicy(
        features, theta, fallback=None if fallback is None else net.policy(fallback)
    )
    save_policy(policy, tmp_path / "p.npz")
    loaded = load_policy(tmp_path / "p.npz", net)
    for i in range(net.box.count):
        assert (loaded(net.box.state(i)) == policy(net.box.state(i))).all()
    assert loaded.digest == policy.digest
    with pytest.raises(dp.errors.InputError, match="was made for"):
        load_policy(tmp_path / "p.npz", dp.load("four-queue", buffers=3))
    whole = (tmp_path / "p.npz").read_bytes()
    for damaged in (
        b"no archive",
        whole[:-30],
        whole.replace(b"theta", b"thera"),
        whole[:900] + b"@" + whole[901:],
    ):
        (tmp_path / "q.npz").write_bytes(damaged)
        with pytest.raises(dp.errors.RunError, match="holds no saved policy"):
            load_policy(tmp_path / "q.npz", net)
    with pytest.raises(dp.errors.RunError, match="cannot be written"):
        save_policy(policy, tmp_path / "nowhere" / "p.npz")
    table = dp.policies.TablePolicy(net, np.zeros(81, np.int64))
    with pytest.raises(dp.errors.MissingError, match="cannot be saved"):
        save_policy(MixturePolicy(features, theta, fallback=table), tmp_path / "r.npz")


def test_every_kind_of_policy_is_saved(tmp_path):
    """Greedy policies of any model, tables and heuristics come back the same.

    Functions of the user do not.
    """
    net = dp.load("four-queue", buffers=None)
    basis = primal.concat(
        primal.monomials(net, 3),
        primal.boundaries(net, 1),
        primal.piecewise_linear(net, [[2, 5]] * 4),
    )
    weights = np.random.default_rng(1).normal(size=len(basis))
    look = primal.greedy(net, primal.LinearValues(basis, weights), 0.97, name="look")
    states = np.random.default_rng(2).integers(0, 30, (200, 4))
    machines = dp.load("sysadmin", machines=4)
    local = primal.factored_alp(
        machines, primal.pair_indicators(machines), dp.Discounted(0.9)
    ).policy()
    for policy in (look, net.policy("lbfs"), soft_longer(net, (0.8, 0.6)), local):
        dp.save_policy(policy, tmp_path / "p.npz")
        loaded = dp.load_policy(tmp_path / "p.npz", policy.model)
        assert loaded.name == policy.name
        assert loaded.digest == policy.digest
        assert all(
            (loaded(x) == policy(x)).all() for x in (states if policy is not local else states % 2)
        )
    with np.load(tmp_path / "p.npz") as file:
        arrays = dict(file)
    for broken in (
        {"ints": arrays["ints"][:1]},
        {"floats": arrays["floats"] * 2},
        {"ints": arrays["ints"].astype("U9")},
    ):
        np.savez(tmp_path / "b.npz", **{**arrays, **broken})
        with pytest.raises(dp.errors.RunError, match="holds no saved policy"):
            dp.load_policy(tmp_path / "b.npz", machines)
    small = dp.load("four-queue", buffers=2)
    dp.save_policy(dp.policies.random_policy(small), tmp_path / "u.npz")
    assert (
        dp.load_policy(tmp_path / "u.npz", small).digest == dp.policies.random_policy(small).digest
    )
    for rows in (np.arange(81) % 4, np.full((81, 4), 0.25)):
        dp.save_policy(dp.policies.TablePolicy(small, rows, name="rows"), tmp_path / "t.npz")
        assert (dp.load_policy(tmp_path / "t.npz", small).table == rows).all()
    with pytest.raises(dp.errors.MissingError, match="function of yours"):
        dp.save_policy(dp.policies.FunctionPolicy(small, lambda x: 0), tmp_path / "f.npz")
    user = primal.functions(net, lambda x: x.sum(axis=1), "sum")
    with pytest.raises(dp.errors.MissingError, match="functions of yours"):
        dp.save_policy(
            primal.greedy(net, primal.LinearValues(user, np.ones(1))), tmp_path / "f.npz"
        )


def test_rules_come_back_as_what_they_are(tmp_path):
    """With their numbers and a loop of their own: a run that goes on searches from there."""
    net = dp.load("six-class")
    rules = (
        NetworkPolicy(net, "own", [3.0, 1, 4, 1, 5, 9], [0.5, 0, 0, 1, 0, 2], ties="first"),
        NetworkPolicy(net, "pressed", 1.0, [1.0, 2, 3, 4, 5, 6], kappa=0.5, probability=(0.9, 0.8)),
        LinearIndexPolicy(net, "linear", np.arange(6.0), np.eye(6)[::-1]),
    )
    for policy in rules:
        dp.save_policy(policy, tmp_path / "p.npz")
        loaded = dp.load_policy(tmp_path / "p.npz", net)
        assert type(loaded) is type(policy)
        assert loaded.describe() == policy.describe()
        assert (loaded.code.loop is None) == (policy.name == "pressed")


@pytest.mark.parametrize(
    ("spec", "parameters", "policy"),
    [
        ("four-queue", {"buffers": (3, 2, 2, 3), "phantom": True}, "lbfs"),
        ("criss-cross", {"buffers": None}, "c-mu"),
        ("criss-cross", {"penalty": 2.0}, "c-mu"),
        ("four-queue", {"buffers": (None, 9, 9, 9), "penalty": 2.0}, "lbfs"),
        ("net.toml", {}, "longer"),
        ("lost-sales", {"lead_time": 2}, "myopic"),
        ("forest", {"ages": 5}, "random"),
    ],
)
def test_a_saved_policy_brings_its_model(spec, parameters, policy, tmp_path, monkeypatch):
    """Three lines: import, load, act."""
    monkeypatch.chdir(tmp_path)
    Path("net.toml").write_text(
        'time = "continuous"\n[[class]]\nname = "a"\nserver = "s"\nservice = 1.0\narrival = '
        "0.5\nbuffer = 3\n"
    )
    model = dp.load(spec, **parameters)
    dp.save_policy(model.policy(policy), "p.npz")
    monkeypatch.chdir("/")
    loaded = dp.load_policy(tmp_path / "p.npz")
    assert loaded.model.digest == model.digest
    x = model.start
    assert loaded.probabilities(x).tolist() == model.policy(policy).probabilities(x).tolist()


def test_the_folder_of_a_run_stands_for_its_policy(tmp_path, run):
    model = dp.load("four-queue", buffers=2)
    (tmp_path / "run").mkdir()
    dp.save_policy(model.policy("lbfs"), tmp_path / "run" / "policy.npz")
    call = ("evaluate", "four-queue", "--set", "buffers=2", "--method", "exact", "--json", "-p")
    costs = [json.loads(run(*call, spec)[1])["cost"] for spec in (tmp_path / "run", "lbfs")]
    assert costs[0] == costs[1]
    status, _, err = run(*call, tmp_path / "none.npz")
    assert (status, err) == (2, f"dualplan: there is no file '{tmp_path}/none.npz'.\n")


def test_loading_a_policy_runs_no_file(tmp_path):
    """Neither the one that made the model, nor one that somebody has written into the policy."""
    lines = [
        "import dualplan as dp",
        "def make(ages=3):",
        "    return dp.load('forest', ages=ages)",
    ]
    (tmp_path / "own.py").write_text("\n".join(lines))
    model = dp.load(f"{tmp_path}/own.py:make", ages=4)
    path = tmp_path / "p.npz"
    dp.save_policy(model.policy("random"), path)
    with pytest.raises(dp.errors.InputError, match="was made in Python; load it and give it"):
        dp.load_policy(path)
    assert dp.load_policy(path, model).model is model
    with np.load(path) as file:
        arrays = dict(file)
    recipe = {
        "model": f"{os.__file__}:system",
        "parameters": {"command": f"touch {tmp_path}/touched"},
    }
    header = json.loads(str(arrays["header"])) | {"recipe": recipe}
    np.savez(path, **{**arrays, "header": np.array(json.dumps(header))})
    with pytest.raises(dp.errors.InputError, match="load it and give it with the policy"):
        dp.load_policy(path)
    assert not (tmp_path / "touched").exists()


def test_a_policy_of_a_model_made_in_python_asks_for_it(tmp_path):
    model = dp.TabularModel.from_rewards(
        [np.eye(2), np.eye(2)[::-1]], np.array([[1.0, 0.0], [0.0, 1.0]])
    )
    dp.save_policy(model.policy("random"), tmp_path / "p.npz")
    with pytest.raises(dp.errors.InputError, match="was made in Python; load it and give it"):
        dp.load_policy(tmp_path / "p.npz")
    assert dp.load_policy(tmp_path / "p.npz", model).digest == model.policy("random").digest
