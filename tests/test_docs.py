"""Every Python block and every command in README, CONTRIBUTING and docs runs, and every public name
is in the reference.

A block that begins with `# file: NAME` stands for that file: commands of the same page find it in
their folder, and blocks that begin with `# after: NAME` continue it.
"""

import functools
import importlib
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dualplan import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PUBLIC = (
    "dualplan",
    *(f"dualplan.{name}" for name in ("dual.features", "policies", "primal", "dual.solvers")),
)


def blocks(language):
    return [
        pytest.param(page, match.group(1), id=f"{page.stem}-{i}")
        for page in PAGES
        for i, match in enumerate(
            re.finditer(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)
        )
    ]


def files(page):
    """The files that a page shows: names and contents."""
    found = re.findall(r"^```\w+\n(# file: (\S+)\n.*?)^```", page.read_text(), re.M | re.S)
    return {name: contents for contents, name in found}


def show(page, folder):
    """Write the files of a page."""
    for name, contents in files(page).items():
        (folder / name).write_text(contents)


@functools.cache
def ran(page, name):
    """What a file of a page defines."""
    names = {"__name__": "__main__"}
    exec(compile(files(page)[name], name, "exec"), names)
    return names


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_blocks_run(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    show(page, tmp_path)
    before = re.match(r"# after: (\S+)\n", code)
    exec(
        compile(code, str(page), "exec"),
        dict(ran(page, before[1])) if before else {"__name__": "__main__"},
    )


@pytest.mark.parametrize(("page", "code"), blocks("console"))
def test_commands_run(page, code, tmp_path, monkeypatch, run):
    """Lines `$ dualplan ...` run, in a folder with the page's files and the TOML of two others, and
    with a clock of two seconds: those of README by the program, others in this process.
    """
    monkeypatch.chdir(tmp_path)
    for name, source in (("net.toml", "models.md"), ("plan.toml", "dual.md")):
        toml = re.search(r"^```toml\n(.*?)^```", (ROOT / "docs" / source).read_text(), re.M | re.S)
        (tmp_path / name).write_text(toml.group(1))
    show(page, tmp_path)
    commands = [line[2:] for line in code.splitlines() if line.startswith("$ dualplan")]
    assert commands
    for command in commands:
        words = shlex.split(re.sub(r"--time \S+", "--time 2s", command))
        if page.name == "README.md":
            program = str(Path(sys.executable).with_name("dualplan"))
            done = subprocess.run(
                [program, *words[1:]], capture_output=True, text=True, check=False
            )
            status, error = done.returncode, done.stderr
        else:
            status, _, error = run(*words[1:])
        assert status == 0, error


def test_the_example_of_a_simulator(capsys):
    """The policy found beats the random one by an interval that excludes 0."""
    pytest.importorskip("gymnasium")
    runpy.run_path(str(ROOT / "examples" / "only_a_simulator.py"), run_name="__main__")
    upper = re.search(r"interval \[-[\d.]+, (-?[\d.]+)\]", capsys.readouterr().out)
    assert float(upper.group(1)) < 0


def test_every_public_name_is_in_the_reference():
    """Once, and by the path of the very object.

    Add a line `::: module.name` to a page of docs/reference.
    """
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    paths = re.findall(r"^::: (\S+)$", pages, re.M)
    places = [path.rpartition(".") for path in paths]
    objects = [getattr(importlib.import_module(module), name) for module, _, name in places]
    listed = {id(found) for found in objects}
    for module in map(importlib.import_module, PUBLIC):
        missing = [name for name in module.__all__ if id(getattr(module, name)) not in listed]
        modules = [name for name in missing if type(getattr(module, name)) is type(module)]
        assert sorted(missing) == sorted(modules), f"{module.__name__}: not in docs/reference"
    assert len(set(paths)) == len(paths)


def long_commands():
    """Lines of `sh` blocks that start with dualplan: too long to be run here."""
    return [
        pytest.param(line.split("#")[0], id=f"{page.stem}-{line.split('#')[0].strip()}")
        for page in PAGES
        for block in re.finditer(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S)
        for line in block.group(1).splitlines()
        if line.startswith("dualplan ")
    ]


@pytest.mark.parametrize("line", long_commands())
def test_long_commands_are_understood(line):
    """Their options are those of the command: unknown ones raise."""
    name, *words = shlex.split(line)[1:]
    context = typer.main.get_command(cli.app).commands[name].make_context(name, words)
    assert context.args == []
