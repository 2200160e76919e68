"""How the source reads, counted: `python tools/counts.py`, with the walks of `--walks`.

Lines, statements that assign several things at once, conditional expressions, long lines, lines
that the formatter must skip, functions with many parameters, imports between rooms and modules, and
names at the front door. A walk is the number of calls of this library, one inside the other, from
the command line to a model, and to the first simulated step of `solve`. Places to look rather than
a measure of quality; the limits are in tests/test_counts.py.
"""

from __future__ import annotations

import ast
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
WIDTH = 100
PARAMETERS = 8


def trees() -> Iterator[tuple[Path, str, ast.Module]]:
    """Every file of the source, its text and its syntax."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path, text, ast.parse(text)


def is_parallel(node: ast.AST) -> bool:
    """Whether it is `a, b = x, y`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def parameters(node: ast.AST) -> int:
    """How many parameters a function has; 0 for what is none."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return 0
    given = node.args
    return len(given.args) + len(given.kwonlyargs) + len(given.posonlyargs)


def wide_functions() -> list[tuple[str, str, int]]:
    """The functions with more than eight parameters: file, name, how many."""
    return [
        (str(path.relative_to(SOURCE)), node.name, parameters(node))
        for path, _, tree in trees()
        for node in ast.walk(tree)
        if parameters(node) > PARAMETERS and isinstance(node, ast.FunctionDef)
    ]


def reading() -> dict[str, float]:
    """The counts of the text."""
    lines = long = skips = parallel = choices = 0
    for _, text, tree in trees():
        rows = text.splitlines()
        lines += len(rows)
        long += sum(len(row) > WIDTH for row in rows)
        skips += text.count("fmt: skip")
        for node in ast.walk(tree):
            parallel += is_parallel(node)
            choices += isinstance(node, ast.IfExp)
    return {
        "lines": lines,
        "parallel assignments per 1,000 lines": round(1000 * parallel / lines, 1),
        "conditional expressions per 1,000 lines": round(1000 * choices / lines, 1),
        "lines over 100 columns": long,
        "fmt: skip": skips,
        "functions with more than 8 parameters": len(wide_functions()),
    }


def modules() -> dict[str, Path]:
    """Every module by its name; a package goes by its own."""
    found = {}
    for path, _, _ in trees():
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in found.items() if name.startswith("dualplan")}


def imports() -> dict[str, set[str]]:
    """Who imports whom, module by module, inside functions too."""
    known = modules()
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        mine: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dualplan"):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    mine.add(whole if whole in known else str(node.module))
        found[name] = (mine & set(known)) - {name}
    return found


def graph() -> dict[str, float]:
    """The counts of the imports."""
    found = imports()
    depth: dict[str, int] = {}

    def below(module: str, path: tuple[str, ...]) -> int:
        if module in path:
            return 0
        if module not in depth:
            depth[module] = 1 + max((below(m, (*path, module)) for m in found[module]), default=0)
        return depth[module]

    rooms = {
        (one.split(".")[1], other.split(".")[1])
        for one, others in found.items()
        for other in others
        if "." in one and "." in other and one.split(".")[1] != other.split(".")[1]
    }
    entries = [path for path in (SOURCE / "dualplan").iterdir() if path.name != "__pycache__"]
    return {
        "entries in src/dualplan": len(entries),
        "modules": len(found),
        "imports between modules": sum(map(len, found.values())),
        "imports between rooms": len(rooms),
        "longest chain of imports": max(below(module, ()) for module in found),
    }


def walks() -> dict[str, float]:
    """How many calls of this library, one inside the other, lead to a model and to a simulation."""
    from typer.testing import CliRunner

    from dualplan.cli.app import app
    from dualplan.evaluation.simulation.compiled import CompiledEngine
    from dualplan.models.queueing import QueueingNetwork

    seen: dict[str, int] = {}

    def watched(kind: type, name: str, words: str) -> None:
        original = getattr(kind, name)

        def call(*args: object, **given: object) -> object:
            seen.setdefault(words, _calls() + 1)
            return original(*args, **given)

        setattr(kind, name, call)

    watched(QueueingNetwork, "__init__", "calls from the command line to a model")
    # steps are simulated in threads, which begin a stack of their own, so the engine is watched
    watched(CompiledEngine, "__init__", "calls from the command line to the first simulation")
    with tempfile.TemporaryDirectory() as folder:
        words = ["solve", "six-class", "--time", "1s", "-q", "--out", f"{folder}/run"]
        CliRunner().invoke(app, words)
    return dict(seen)


def _calls() -> int:
    """How many functions of this library are being called, one inside the other."""
    frame = sys._getframe(2)
    count = 0
    while frame is not None:
        count += "/dualplan/" in frame.f_code.co_filename and frame.f_code.co_name != "<listcomp>"
        frame = frame.f_back
    return count


def main() -> None:
    """Print all counts, one a line."""
    import dualplan

    counts = {**reading(), **graph(), "names at the top level": len(dualplan.__all__)}
    if "--walks" in sys.argv:
        counts |= walks()
    for words, count in counts.items():
        sys.stdout.write(f"{words}: {count:,}\n")
    if "--wide" in sys.argv:
        for path, name, number in sorted(wide_functions(), key=lambda row: -row[2]):
            sys.stdout.write(f"  {path} {name} {number}\n")


if __name__ == "__main__":
    main()
