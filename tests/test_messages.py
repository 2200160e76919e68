"""What users meet first: folders in the place of models, absurd rates, lists, help, models that a
saved run does not hold.
"""

import numpy as np
import pytest
import scipy.sparse as sp
import typer

import dualplan as dp
from dualplan.cli.app import app
from dualplan.models.contract import _distinct
from dualplan.policies.rules import Node
from dualplan.report.rules.readable import _frozen
from dualplan.report.rules.trees import Branch, Split

SHOP = """
import numpy as np

import dualplan as dp

FAST = 0.4

def make(start=0):
    law = np.zeros((2, 10, 10))
    for a, done in enumerate((0.2, FAST)):
        for x in range(10):
            law[a, x, min(x + 1, 9)] += 0.3
            law[a, x, max(x - 1, 0)] += done
            law[a, x, x] += 0.7 - done
    loss = np.arange(10)[:, None] + np.array([0.0, 2.0])
    return dp.TabularModel(law, loss, start=start, name="shop", actions=["slow", "fast"])
"""


def test_a_folder_is_no_model(run, tmp_path):
    (tmp_path / "net.toml").write_text("")
    (tmp_path / "shop.py").write_text(SHOP)
    for command in ("check", "solve", "exact"):
        status, _, err = run(command, tmp_path)
        assert status == 2
        assert f"is a folder and no model; name a file in it, such as {tmp_path}/net.toml" in err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "is a folder without models" in run("check", empty)[2]


def test_the_model_of_a_run_is_found_again(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    status, _, err = run(
        "solve", "shop.py:make", "--set", "start=1", "--time", "2s", "--out", "found"
    )
    assert status == 0, err
    for words in (
        ["report", "found"],
        ["show", "found", "--rules"],
        ["compare", "found", "random"],
    ):
        status, _, err = run(*words)
        assert status == 2
        told = err.partition("if you name it: ")[2].split()
        assert told == ["dualplan", *words, "--model", "shop.py:make", "--set", "start=1"]
        status, _, err = run(*told[1:])
        assert status == 0, err
    page = (tmp_path / "found" / "report.html").read_text()
    assert "dualplan solve shop.py:make --set start=1" in page
    # the digest tells a model that has changed
    path.write_text(SHOP.replace("FAST = 0.4", "FAST = 0.5"))
    status, _, err = run(*told[1:])
    assert status == 2
    assert "has changed since" in err
    status, _, err = run("report", "found", "--set", "start=1")
    assert status == 2
    assert "name the model as well" in err


def test_a_function_that_was_found_best_is_named(run, tmp_path, monkeypatch):
    """It is not saved where states are many, and must be the one that the run began with."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "words = {'zero': 0}\n"
        "def mine(x):\n"
        "    return words['zero'] + (np.asarray(x)[..., 0] < np.asarray(x)[..., 3])\n"
        "def other(x):\n"
        "    return words['zero']\n"
    )
    begin = ("-p", "mine.py:mine", "--gap", "100%", "--time", "1s")  # ends at once
    status, out, err = run("solve", "four-queue", *begin, "--out", "found")
    assert status == 0, err
    assert "--policy FILE.py:mine" in out
    assert "--policy FILE.py:FUNCTION" in run("report", "found")[2]
    status, out, err = run("show", "found", "--state", "1,0,0,2", "-p", "mine.py:mine")
    assert status == 0, err
    status, _, err = run("show", "found", "--state", "1,0,0,2", "-p", "mine.py:other")
    assert status == 2
    assert "is not the policy of the run" in err


def test_absurd_loads_are_said(run, tmp_path):
    path = tmp_path / "net.toml"
    path.write_text(
        'time = "continuous"\n[[class]]\nname = "a"\nserver = "s"\narrival = 1260\nservice = 1\n'
        "buffer = 5\n"
    )
    status, _, err = run("check", path)
    assert status == 0
    assert "server 's' is offered 1,260 times what it can serve" in err
    model = dp.load(str(path))
    assert "units" in dp.evaluate(model, model.policy("longer"), steps=2_000).notes[0]
    calm = dp.load(str(path), **{"a.arrival": 9.0})
    assert calm.notes_on_loads == []
    for key, value in (("service", 1e30), ("holding", 1e300)):
        with pytest.raises(dp.errors.InputError, match="too large to calculate with"):
            dp.load(str(path), **{f"a.{key}": value})


def test_models_fit_into_80_columns(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = run("models")
    assert status == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "parallel-servers" in out
    status, out, _ = run("models", "tandem")
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "queues" in out
    status, _, err = run("models", "tandm")
    assert status == 2
    assert "did you mean 'tandem'" in err


def test_every_option_says_what_holds_without_it():
    for name, command in typer.main.get_command(app).commands.items():
        for option in command.params:
            hidden = getattr(option, "hidden", False)
            if option.param_type_name != "option" or hidden or option.required or option.is_flag:
                continue
            shown = option.default not in (None, [], ()) and option.show_default
            assert shown or "default" in option.help, (name, option.opts)


def test_100_queues_are_checked_in_seconds():
    """Of long lists some are compared in each pair, in other pairs others."""
    report = dp.check_model(dp.load("tandem"), pairs=20)
    assert report.ok
    assert "predecessors" in report.checked


def test_a_wrong_neighbour_is_met_in_some_turn():
    """All places of a list come up, whatever its length."""
    from dualplan.models.check import NEIGHBOURS_A_PAIR, _in_turn

    for count in (0, 1, 7, 8, 9, 100, 906):
        seen = [k for turn in range(200) for k in _in_turn(count, turn)]
        assert set(seen) == set(range(count))
        assert len(_in_turn(count, 3)) <= 2 * NEIGHBOURS_A_PAIR
        assert list(_in_turn(count, None)) == list(range(count))


def test_rows_are_told_apart_by_their_bytes():
    """As NumPy does, negative and very large numbers included."""
    rng = np.random.default_rng(5)
    for low, high, shape in ((-2, 3, (60, 3)), (0, 2, (40, 20)), (-(2**62), 2**62, (8, 2))):
        rows = rng.integers(low, high, shape, endpoint=True)
        rows[::2] = rows[1::2]
        expected, places = np.unique(rows, axis=0, return_inverse=True)
        found, where = _distinct(rows)
        assert np.array_equal(found, expected)
        assert np.array_equal(where.ravel(), places.ravel())


def test_leaves_that_say_the_same_are_one():
    model = dp.load("forest")
    orders = [(0, 1), (1, 0)]
    rows = np.arange(2)

    def leaf(choice):
        return Branch(rows, choice, 0.0)

    same = Branch(rows, 1, 0.0, Split(0, 1, 0.0), leaf(1), leaf(1))
    root = Branch(rows, 0, 0.0, Split(0, 2, 0.0), same, leaf(0))
    test = ((0, 1),)
    tree = _frozen(model, 0, root, [test], orders)
    assert tree == (Node(test, 2, 1, 2), Node(order=(1, 0)), Node(order=(0, 1)))
    assert _frozen(model, 0, same, [test], orders) == (Node(order=(1, 0)),)


# -- tables from other libraries -------------------------------------------------------------------


def test_losses_by_next_state_are_means():
    rng = np.random.default_rng(3)
    law = rng.dirichlet(np.ones(4) / 2, size=(2, 4))
    law[0, 1] = [0, 1, 0, 0]
    rewards = rng.normal(size=(2, 4, 4))
    expected = [[sum(law[a, x] * rewards[a, x]) for a in range(2)] for x in range(4)]
    dense = dp.TabularModel.from_rewards(law, rewards)
    sparse = dp.TabularModel.from_rewards(
        [sp.csr_array(p) for p in law], [sp.csr_array(r) for r in rewards]
    )
    by_pair = dp.TabularModel(sp.csr_array(law.swapaxes(0, 1).reshape(8, 4)), -rewards)
    for model in (dense, sparse, by_pair):
        assert np.allclose(model.losses, -np.array(expected), atol=1e-14)


def test_infinite_losses_are_not_allowed():
    law = np.full((2, 3, 3), 1 / 3)
    rewards = np.array([[1.0, -np.inf], [0.0, 2.0], [-np.inf, 1.0]])
    model = dp.TabularModel.from_rewards(law, rewards)
    assert model.allowed([0]).tolist() == [True, False]
    assert model.allowed([2]).tolist() == [False, True]
    assert dp.solve_exact(model).value == pytest.approx(-4 / 3, abs=1e-4)
    # by next states: what cannot happen does not count, and what can forbids the action
    law[0, 0] = [1, 0, 0]
    full = np.zeros((2, 3, 3))
    full[0, 0, 1] = -np.inf
    full[1, 1, 2] = -np.inf
    model = dp.TabularModel.from_rewards(law, full)
    assert model.allowed([0]).tolist() == [True, True]
    assert model.allowed([1]).tolist() == [True, False]
    with pytest.raises(dp.errors.ModelError, match="is not finite"):
        dp.TabularModel.from_rewards(law, -rewards)
    with pytest.raises(dp.errors.ModelError, match="at least one allowed action"):
        dp.TabularModel.from_rewards(law, np.full((3, 2), -np.inf))
    with pytest.raises(dp.errors.InputError, match="by action, state and next state"):
        dp.TabularModel(law, np.zeros((3, 2, 3)))
