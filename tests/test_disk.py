"""Machine code on disk: found again where nothing has changed, and never for a function that has."""

from __future__ import annotations

import os
import subprocess
import sys
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest

import dualplan as dp
from dualplan._kernels import disk
from dualplan._kernels.compiler import user_function

ARGUMENTS = (numba.int64,)
LIBRARY_KERNELS = os.environ.get("NUMBA_CACHE_DIR", "")  # where those of the library are compiled


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


def _compiled(function: Any) -> Any:
    return user_function(function, ARGUMENTS)


def _hits(compiled: Any) -> int:
    return sum(compiled.stats.cache_hits.values())


def _with_globals(text: str, **named: Any) -> Any:
    """The function `f` of a piece of code, whose globals are these."""
    names: dict[str, Any] = dict(named)
    exec(compile(text, "<test>", "exec"), names)
    return names["f"]


def _closure(weight: float, table: np.ndarray[Any, Any]) -> Any:
    def f(n):
        return weight * table[n % table.size]

    return f


def test_a_function_made_again_is_found_and_gives_the_same_number():
    first = _compiled(_closure(2.0, np.arange(5)))
    again = _compiled(_closure(2.0, np.arange(5)))
    assert _hits(first) == 0
    assert _hits(again) == 1
    assert again(3) == first(3) == 6.0


@pytest.mark.parametrize(
    "changed",
    [_closure(3.0, np.arange(5)), _closure(2.0, np.arange(5) + 1), _closure(2.0, np.arange(6.0))],
)
def test_another_number_or_array_in_the_closure_is_another_function(changed):
    _compiled(_closure(2.0, np.arange(5)))
    compiled = _compiled(changed)
    assert _hits(compiled) == 0
    assert compiled(3) == changed(3)


@pytest.mark.parametrize(
    ("before", "after"),
    [({"rate": 1.5}, {"rate": 2.5}), ({"rate": 1}, {"rate": 1.0}), ({"rate": True}, {"rate": 1})],
)
def test_a_changed_global_is_another_function(before, after):
    text = "def f(n):\n    return n * rate\n"
    old = _compiled(_with_globals(text, **before))
    new = _compiled(_with_globals(text, **after))
    assert _hits(new) == 0
    assert old(4) == 4 * before["rate"]
    assert new(4) == 4 * after["rate"]


def test_a_change_in_a_function_that_is_called_two_calls_away_is_seen():
    def inner(text: str) -> Any:
        called = numba.njit(_with_globals(text))
        between = numba.njit(_with_globals("def f(n):\n    return g(n) + 1\n", g=called))
        return _with_globals("def f(n):\n    return 2 * g(n)\n", g=between)

    old = _compiled(inner("def f(n):\n    return n\n"))
    same = _compiled(inner("def f(n):\n    return n\n"))
    new = _compiled(inner("def f(n):\n    return n * n\n"))
    assert [_hits(one) for one in (old, same, new)] == [0, 1, 0]
    assert [one(5) for one in (old, same, new)] == [12, 12, 52]


def test_a_changed_default_is_another_function():
    old = _with_globals("def f(n, by=2):\n    return n * by\n")
    new = FunctionType(old.__code__, old.__globals__, "f", (3,))
    assert disk.fingerprint(old) != disk.fingerprint(new)


def test_globals_named_in_a_function_within_count():
    text = "def f(n):\n    return sum([(lambda k: k * rate)(i) for i in range(n)])\n"
    prints = {disk.fingerprint(_with_globals(text, rate=rate)) for rate in (1.0, 2.0)}
    assert len(prints) == 2


def test_functions_that_call_each_other_have_a_fingerprint():
    names: dict[str, Any] = {}
    text = "def f(n):\n    return g(n - 1) if n else 0\ndef g(n):\n    return f(n)\n"
    exec(compile(text, "<test>", "exec"), names)
    assert disk.fingerprint(names["f"]) != disk.fingerprint(names["g"])


@pytest.mark.parametrize("unknown", [object(), os, {"a": 1}, np.array([None])])
def test_what_cannot_be_told_apart_is_compiled_each_time(unknown):
    function = _with_globals("def f(n):\n    return thing\n", thing=unknown)
    with pytest.raises(disk.NotIdentifiedError):
        disk.fingerprint(function)
    dispatcher = disk.cached(numba.njit(function))
    assert dispatcher.stats.cache_path is None


def test_a_file_that_was_cut_off_or_is_foreign_is_written_anew(tmp_path):
    first = _compiled(_closure(2.0, np.arange(5)))
    (file,) = (tmp_path / disk.FOLDER).glob("*.bin")
    whole = file.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"not machine code"):
        file.write_bytes(broken)
        again = _compiled(_closure(2.0, np.arange(5)))
        assert again(4) == first(4) == 8.0
        assert _hits(again) == 0
        assert len(file.read_bytes()) > len(whole) // 2


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocked))
    assert _compiled(_closure(2.0, np.arange(5)))(4) == 8.0


def test_files_that_were_not_used_for_long_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "MOST_FILES", 4)
    where = tmp_path / "kept"
    for k in range(5):
        path = where / f"{k}.bin"
        disk._write(path, b"x")
        os.utime(path, (k, k))
    assert sorted(path.name for path in where.iterdir()) == ["3.bin", "4.bin"]


PROGRAM = """
import sys
import dualplan as dp
from dualplan._kernels.compiler import compiling

arrivals = float(sys.argv[1])
with compiling() as spent:
    model = dp.load("admission", arrivals=(arrivals, 1.0), room=6)
    found = dp.solve_exact(model)
    greedy = dp.evaluate(model, model.policy("threshold"), steps=20_000)
    print(found.value, greedy.cost, spent() > 0)
"""


def test_a_second_process_compiles_nothing_and_another_model_is_another_one():
    def ran(arrivals: float) -> list[str]:
        words = [sys.executable, "-c", PROGRAM, repr(arrivals)]
        env = {**os.environ, "NUMBA_CACHE_DIR": LIBRARY_KERNELS}
        found = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
        return found.stdout.split()

    unseen = 2.0 + os.getpid() * 1e-7  # not on disk from another run of this test
    first = ran(unseen)
    second = ran(unseen)
    assert first[2] == "True"
    assert second == [*first[:2], "False"]
    other = ran(unseen + 1.0)
    expected = dp.solve_exact(dp.load("admission", arrivals=(unseen + 1.0, 1.0), room=6)).value
    assert float(other[0]) == pytest.approx(expected, rel=1e-12)
    assert other[0] != first[0]


AROUND = """
import sys
import numpy as np
from dualplan._kernels.compiler import ACT_SIGNATURE, user_kernel


def make(value):
    @user_kernel(ACT_SIGNATURE)
    def act(ints, floats, x, out):
        out[:] = value

    return act


def around(kernel):
    other = kernel.address

    @user_kernel(ACT_SIGNATURE)
    def rule(ints, floats, x, out):
        other(ints, floats, x, out)

    return rule


made = [make(float(word)) for word in sys.argv[1:]]
out = np.zeros((len(made), 1))
for kernel, row in zip(made, out):
    kernel(np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.int64), row)
for kernel, row in zip(made, out):
    around(kernel)(np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.int64), row)
print(*out.ravel())
"""


def test_code_of_two_processes_does_not_meet_under_one_name_in_a_third(tmp_path):
    """Functions of one name, compiled first in processes of their own and called by address."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for words in (["1"], ["2"], ["1", "2"], ["2", "3", "1"]):
        command = [sys.executable, "-c", AROUND, *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert [float(v) for v in done.stdout.split()] == [float(word) for word in words]
