"""Goldens: what every command prints as JSON, what saved policies hold, and one report page, at
fixed seeds and steps.

    python tests/goldens.py            compare with tests/goldens/*.json, bit for bit; exit status 1
                                       if one differs
    python tests/goldens.py NAME ...   only these
    python tests/goldens.py --write    replace what is stored, after a change that was meant

Times, versions and temporary folders are left out. Floats are stored as Python prints them, so that
equal means equal in every bit; another processor or other versions of NumPy, SciPy, Numba or HiGHS
may round differently, and a difference there is no error by itself: compare two commits on one
machine.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import dualplan as dp

STORED = Path(__file__).parent / "goldens"
LEFT_OUT = {"seconds", "evaluation_seconds", "versions", "peak_mb"}
NETWORK = """
name = "two stations"
time = "continuous"
[[class]]
name = "parts"
server = "press"
arrival = 0.8
service = 1.0
buffer = 12
route = "paint"
[[class]]
name = "paint"
server = "booth"
service = 1.2
buffer = 10
"""
PLAN = """
model = "four-queue"
penalty = [1.0, 10.0]
samples = 4000
evaluation = "simulation"
steps = 200000
seed = 3
method = "adaptive"
sweeps = 300
[set]
buffers = 4
[[features]]
family = "boxes"
cuts = [[[0, 1], [2, 4]], [[0, 1], [2, 4]], [[0, 1], [2, 4]], [[0, 1], [2, 4]]]
"""
FIVE_EACH = ["--set", "buffers=4"]
COMMANDS: dict[str, list[str]] = {
    "models": ["models"],
    "check": ["check", "four-queue", *FIVE_EACH, "--seed", "1"],
    "check-event": ["check", "lost-sales", "--seed", "1"],
    "evaluate": [
        "evaluate",
        "four-queue",
        *FIVE_EACH,
        "-p",
        "longer",
        "--steps",
        "200000",
        "--seed",
        "1",
    ],
    "evaluate-two": [
        "evaluate",
        "six-class",
        "-p",
        "lbfs",
        "-p",
        "longer",
        "--steps",
        "300000",
        "--seed",
        "2",
    ],
    "evaluate-event": [
        "evaluate",
        "lost-sales",
        "-p",
        "myopic",
        "--steps",
        "100000",
        "--seed",
        "2",
    ],
    "evaluate-discounted": [
        "evaluate",
        "four-queue",
        *FIVE_EACH,
        "-p",
        "lbfs",
        "--criterion",
        "discounted",
        "--gamma",
        "0.95",
        "--steps",
        "200000",
        "--seed",
        "1",
    ],
    "evaluate-exact": [
        "evaluate",
        "four-queue",
        *FIVE_EACH,
        "-p",
        "longer",
        "--method",
        "exact",
        "--mixing",
    ],
    "evaluate-toml": ["evaluate", "{network}", "-p", "longer", "--steps", "100000"],
    "exact": ["exact", "four-queue", *FIVE_EACH],
    "exact-discounted": [
        "exact",
        "four-queue",
        *FIVE_EACH,
        "--criterion",
        "discounted",
        "--gamma",
        "0.9",
    ],
    "exact-forest": ["exact", "forest", "--criterion", "discounted", "--gamma", "0.95"],
    "exact-limit": ["exact", "four-queue", "--set", "buffers=3", "--limit", "lost fraction<=0.3"],
    "solve-standard": [
        "solve",
        "four-queue",
        *FIVE_EACH,
        "--features",
        "standard",
        "-H",
        "1",
        "-H",
        "10",
        "--sweeps",
        "300",
        "--out",
        "{out}/standard",
    ],
    "solve-sampled-lp": [
        "solve",
        "four-queue",
        "--set",
        "buffers=2",
        "--features",
        "standard",
        "-H",
        "10",
        "--method",
        "sampled-lp",
        "--samples",
        "2000",
        "--sweeps",
        "300",
    ],
    "solve-plan": ["solve", "{plan}", "--out", "{out}/plan"],
    "show-state": ["show", "{out}/standard", "--state", "1,2,0,3"],
    "show-rules": ["show", "{out}/standard", "--rules"],
    "compare": ["compare", "{out}/standard", "longer", "lbfs"],
    "compare-simulated": ["compare", "{out}/standard", "longer", "--simulate", "--steps", "200000"],
    "reproduce-dual-mixing": ["reproduce", "dual-mixing", "--out", "{out}/dual-mixing"],
}


def main(words: list[str]) -> int:
    """Compare or write; the number of goldens that differ."""
    write = "--write" in words
    names = [word for word in words if not word.startswith("-")]
    STORED.mkdir(exist_ok=True)
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, found in goldens(Path(folder)):
            if names and name not in names:
                continue
            differing += settle(name, found, write)
    sys.stdout.write(f"{differing} goldens differ\n" if not write else "goldens are written\n")
    return min(differing, 1)


def settle(name: str, found: Any, write: bool) -> bool:
    """Store a golden, or say where it differs from what is stored."""
    path = STORED / f"{name}.json"
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if write:
        path.write_text(text, encoding="utf-8")
        return False
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    places = list(differences(stored, json.loads(text), ""))
    for place in places[:6]:
        sys.stdout.write(f"{name}{place}\n")
    if len(places) > 6:
        sys.stdout.write(f"{name}: and {len(places) - 6} more\n")
    return bool(places)


def differences(one: Any, two: Any, where: str) -> Iterator[str]:
    """The places where two values differ, each with both of them."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted({*one, *two}):
            yield from differences(one.get(key), two.get(key), f"{where}.{key}")
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for k, (a, b) in enumerate(zip(one, two, strict=True)):
            yield from differences(a, b, f"{where}[{k}]")
    elif one != two:
        yield f"{where}: {str(one)[:120]} -> {str(two)[:120]}"


def goldens(folder: Path) -> Iterator[tuple[str, Any]]:
    """All of them, in the order in which one needs the other's files."""
    files = {"network": folder / "network.toml", "plan": folder / "plan.toml", "out": folder}
    files["network"].write_text(NETWORK, encoding="utf-8")
    files["plan"].write_text(PLAN, encoding="utf-8")
    for name, words in COMMANDS.items():
        given = [word.format(**files) for word in words]
        yield name, cleaned(run([*given, "--json"]), folder)
    for name in ("standard", "plan"):
        yield f"policy-{name}", saved(folder / name / "policy.npz")
    yield "report", report(folder / "standard", folder)
    for name, make in PROPOSALS.items():
        yield name, cleaned(make(folder), folder)


def run(words: list[str]) -> Any:
    """What a command prints as JSON, and its exit status."""
    from dualplan.cli.app import app

    result = CliRunner().invoke(app, words)
    assert result.stdout, f"{words}: {result.output} {result.exception!r}"
    return {"exit": result.exit_code, "printed": json.loads(result.stdout)}


def report(run_folder: Path, folder: Path) -> Any:
    """The page of a run as a fingerprint, and its words, without times."""
    from dualplan.cli.app import app

    CliRunner().invoke(app, ["report", str(run_folder), "-q"])
    page = (run_folder / "report.html").read_text(encoding="utf-8").replace(str(folder), "FOLDER")
    body = re.sub(r"<svg.*?</svg>|<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)
    words = re.sub(r"<[^>]+>", " ", body)
    words = re.sub(r"[\d.]+ (s|seconds)\b", "TIME", words)
    return {"words": [line.strip() for line in words.splitlines() if line.strip()]}


def cleaned(value: Any, folder: Path) -> Any:
    """Without times, versions and names of temporary folders."""
    if isinstance(value, dict):
        return {k: cleaned(v, folder) for k, v in value.items() if k not in LEFT_OUT}
    if isinstance(value, list):
        return [cleaned(v, folder) for v in value]
    if isinstance(value, str):
        return value.replace(str(folder), "FOLDER")
    return value


def saved(path: Path) -> Any:
    """A saved policy: its header, and a fingerprint of each array."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(str(arrays.pop("header")))
    hashed = {
        name: hashlib.sha256(array.tobytes()).hexdigest()[:16] for name, array in arrays.items()
    }
    return {"header": header, "arrays": hashed}


def proposed(model: dp.Model, criterion: Any, step: str, folder: Path) -> Any:
    """What one step of a search proposes in its smallest size, beginning with the model's
    heuristics.
    """
    from dualplan.core.streams import Place
    from dualplan.policies.saved import save_policy
    from dualplan.search.contract import Candidate, Search
    from dualplan.search.duels import BEGINNING_RELATIVE_WIDTH, BEGINNING_STEPS, screen
    from dualplan.search.steps import STEPS_BY_NAME

    search = Search(model, criterion, (), 5)
    begin = [Candidate(model.policy(name), "heuristic") for name in model.policies]
    search.members = screen(
        search, begin, BEGINNING_STEPS, relative_tol=BEGINNING_RELATIVE_WIDTH, place=Place.BEGINNING
    )
    search.best = search.members[0]
    found = []
    for candidate in STEPS_BY_NAME[step].propose(search, 0):
        path = folder / "proposed.npz"
        save_policy(candidate.policy, path)
        found.append(
            {"source": candidate.source, "policy": candidate.policy.name, "saved": saved(path)}
        )
    return {"begin": [[m.policy.name, m.run.cost] for m in search.members], "found": found}


def _step(name: str, step: str, criterion: Any = None, **settings: Any) -> Callable[[Path], Any]:
    return lambda folder: proposed(
        dp.load(name, **settings), criterion or dp.Average(), step, folder
    )


PROPOSALS: dict[str, Callable[[Path], Any]] = {
    "step-lattice": _step("four-queue", "lattice", buffers=6),
    "step-search": _step("four-queue", "search", buffers=6),
    "step-search-event": _step("admission", "search"),
    "step-search-shared": _step("reentrant", "search", classes=12, stations=4),
    "step-factored": _step("sysadmin", "factored-alp", machines=12),
    "step-values": _step("four-queue", "values", buffers=3),
    "step-combine": _step("four-queue", "combine", buffers=6),
    "step-rollouts": _step("lost-sales", "rollouts"),
    "step-lattice-discounted": _step("four-queue", "lattice", dp.Discounted(0.95), buffers=4),
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
