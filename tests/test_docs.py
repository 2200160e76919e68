"""Every Python block and every command in README and docs runs."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language):
    return [
        pytest.param(page, match.group(1), id=f"{page.stem}-{i}")
        for page in PAGES
        for i, match in enumerate(re.finditer(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S))
    ]


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_blocks_run(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("page", "code"), blocks("console"))
def test_commands_run(page, code, tmp_path):
    """Lines that start with `$ dualplan` are run as they stand, in a folder with the TOML of two pages."""
    for name, source in (("net.toml", "models.md"), ("plan.toml", "dual.md")):
        toml = re.search(r"^```toml\n(.*?)^```", (ROOT / "docs" / source).read_text(), re.M | re.S)
        (tmp_path / name).write_text(toml.group(1))
    commands = [line[2:] for line in code.splitlines() if line.startswith("$ dualplan")]
    assert commands
    for command in commands:
        words = shlex.split(command)
        program = str(Path(sys.executable).with_name("dualplan"))
        done = subprocess.run([program, *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_example_of_a_simulator(capsys):
    """The policy found beats the random one by an interval that excludes 0."""
    pytest.importorskip("gymnasium")
    runpy.run_path(str(ROOT / "examples" / "only_a_simulator.py"), run_name="__main__")
    upper = re.search(r"interval \[-[\d.]+, (-?[\d.]+)\]", capsys.readouterr().out)
    assert float(upper.group(1)) < 0
