"""The house: twelve rooms in the order in which data passes them; a room imports from itself and
from those above it.

python tests/test_architecture.py      print the table of docs/architecture.md
"""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "dualplan"
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"
# The one list: each room and what belongs into it. docs/architecture.md shows it as a table.
ROOMS = {
    "core": (
        "words that all use: errors, statuses, types, checks, streams, budgets, intervals, runs, "
        "workers, LPs"
    ),
    "_kernels": "compiled loops: arrays in, arrays out",
    "models": (
        "what can happen and what is minimised: the kinds of model, instances, criteria, limits, "
        "transitions"
    ),
    "values": "functions of states: bases, interpolants, partitions, tables",
    "policies": (
        "what to do in a state: heuristics, greedy policies, tables, mixtures, rules; each kind "
        "saves itself"
    ),
    "exact": "all states listed: iteration, evaluation, linear programs",
    "evaluation": (
        "what a policy costs, and what any policy costs at least: simulation, judge, results, "
        "bounds"
    ),
    "dual": (
        "the paper, in its order: features, constraints, sampling, problem, solvers, violations, "
        "certificates"
    ),
    "primal": "approximate linear programs on values",
    "search": "propose, judge, keep: lattices, policy search, rounds of the dual program, limits by prices, rollouts, plans",
    "report": "show it: figures, maps, rules in words, the page",
    "cli": "commands, and the published experiments",
}
ORDER = {room: place for place, room in enumerate(ROOMS)}


def modules():
    """Every module with its file; a package goes by its own name."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def runs(node):
    """The nodes that are run some time: all but those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from runs(child)


def imported(path, known):
    """The modules of dualplan that a file imports, inside functions too."""
    found = set()
    for node in runs(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dualplan":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "dualplan"}
    return found


def edges():
    """Who imports whom, module by module."""
    known = modules()
    return {name: imported(path, known) - {name} for name, path in known.items()}


def room(module):
    """The room of a module; the front door, `dualplan` itself, has none."""
    return module.split(".")[1] if "." in module else None


def test_every_room_is_in_the_list_and_nothing_else_is():
    entries = {path.name for path in SOURCE.iterdir()} - {"__pycache__"}
    assert entries == {*ROOMS, "__init__.py"}
    assert len(entries) <= 13


def test_a_room_imports_only_from_rooms_above_it():
    for module, others in edges().items():
        if room(module) is None:
            continue
        for other in others:
            assert room(other) is not None, f"{module} imports the front door"
            assert ORDER[room(other)] <= ORDER[room(module)], (
                f"{module} imports {other}, a room below"
            )


def test_no_module_imports_itself_by_way_of_others():
    found, depth = edges(), {}

    def walk(module, path):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in depth:
            below = [walk(other, [*path, module]) for other in found[module]]
            depth[module] = 1 + max(below, default=0)
        return depth[module]

    for module in found:
        walk(module, [])
    assert (
        max(depth.values()) == depth["dualplan"]
        or max(depth.values()) == depth["dualplan.cli.__main__"]
    )


def table():
    """The list as docs/architecture.md shows it."""
    rows = [f"| `{name}` | {words} |" for name, words in ROOMS.items()]
    return "\n".join(["| room | what belongs into it |", "|---|---|", *rows])


def test_the_page_shows_the_list():
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert table() in page
    picture = page.split("```")[1]
    assert len(picture.strip().splitlines()) <= 40


def test_libraries_in_kernels():
    allowed = {
        "__future__",
        "collections",
        "contextlib",
        "dualplan",
        "functools",
        "llvmlite",
        "numba",
        "typing",
    }
    more = {"disk.py": {"pathlib"}}  # which keeps machine code in files
    for path in (SOURCE / "_kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.module.split(".")[0] in allowed | more.get(path.name, set())


if __name__ == "__main__":
    print(table())
