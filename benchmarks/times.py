"""Whether `dualplan solve --time T` keeps its time: the wall time of the whole command, start of
Python and everything, for every instance, with and without a limit.

python benchmarks/times.py 5s 20s          # all instances; the second run of each has warm caches
python benchmarks/times.py 60s six-class   # one of them

What a model that is written as Python functions takes to compile is not part of the time, and is
shown in a column of its own. A row keeps its time if wall − compilation <= 1.15·T + 3 s.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

from dualplan.core.budgets import seconds

INSTANCES = {
    "forest": ([], "mean state <= 1.9"),
    "garnet": ([], "mean state <= 60"),
    "admission": ([], "rejected fraction <= 0.3"),
    "sysadmin": ([], "mean machine 1 <= 0.9"),
    "sysadmin, 30": (["machines=30"], "mean machine 1 <= 0.99"),
    "lost-sales": ([], "mean on hand <= 20"),
    "multi-item": ([], "mean item 1 <= 10"),
    "multi-item, 12": (["items=12"], "mean item 1 <= 10"),
    "parallel-servers": ([], "mean 1 <= 50"),
    "four-queue, 9": (["buffers=9"], "lost fraction <= 0.1"),
    "four-queue": ([], "lost fraction <= 0.1"),
    "criss-cross": ([], "length 1 <= 5"),
    "six-class": ([], "length 1 <= 5"),
    "six-class, 7": (["stations=7"], "length 1 <= 20"),
    "eight-queue": ([], "length 1 <= 5"),
    "reentrant": ([], "length 1 <= 5"),
    "tandem": ([], "length 1 <= 5"),
}
# seconds of compilation, told by the process itself when it ends
COMPILED = """
import atexit, sys
from dualplan._kernels.compiler import compiling
opened = compiling()
spent = opened.__enter__()
atexit.register(lambda: sys.stderr.write(f"\\ncompiled {spent():.2f}\\n"))
from dualplan.cli import main
main()
"""


def run(name: str, given: str, limited: bool) -> tuple[float, float, dict]:
    """Wall time, seconds of compilation, and what the command printed."""
    settings, limit = INSTANCES[name]
    words = ["solve", name.partition(",")[0], "--time", given, "--json"]
    words += [word for pair in settings for word in ("--set", pair)]
    if limited:
        words += ["--limit", limit]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-c", COMPILED, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "DUALPLAN_RUNS": folder},
        )
    wall = time.monotonic() - started
    compiled = float(ran.stderr.rpartition("compiled ")[2] or 0.0)
    if ran.returncode:
        return wall, compiled, {"status": ran.stderr.strip().splitlines()[0], "cost": None}
    return wall, compiled, json.loads(ran.stdout)


def main(words: list[str]) -> int:
    """Print a row for each run; how many did not keep their time."""
    times = [word for word in words if word[0].isdigit()] or ["5s"]
    names = [word for word in words if not word[0].isdigit()] or list(INSTANCES)
    late = 0
    print("| instance | limit | time | wall | compiled | kept | status | cost | bound |")
    print("|---|---|---|---|---|---|---|---|---|")
    for given in times:
        for name in names:
            for limited in (False, True):
                wall, compiled, found = run(name, given, limited)
                kept = wall - compiled <= 1.15 * seconds(given) + 3
                late += not kept
                cost, bound = (found.get(key) for key in ("cost", "lower_bound"))
                known = [f"{v:.5g}" if isinstance(v, float) else str(v) for v in (cost, bound)]
                cells = [name, "yes" if limited else "", given, f"{wall:.1f}", f"{compiled:.1f}"]
                cells += ["yes" if kept else "**no**", found["status"], *known]
                print(f"| {' | '.join(cells)} |", flush=True)
    return late


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
