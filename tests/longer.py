"""Write tests/longer.txt, the tests that `make quick` leaves out, from what pytest says of durations.

python -m pytest --durations=0 | python tests/longer.py
"""

import re
import sys
from pathlib import Path

LIST = Path(__file__).with_name("longer.txt")
LIMIT = 0.3  # seconds of the longest case of a test, its fixtures included
LINE = re.compile(r"([\d.]+)s (?:call|setup) +tests/(\w+\.py::\w+)")


def longer(lines):
    """The names of tests that take longer than the limit, as `module.py::function`."""
    found = [LINE.match(line) for line in lines]
    return sorted({match[2] for match in found if match and float(match[1]) > LIMIT})


def listed():
    """The names in the file."""
    return set(LIST.read_text().split())


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in longer(sys.stdin)))
