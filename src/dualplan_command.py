"""The command `dualplan`, apart from the package: loading that takes a second or two, and Ctrl-C
may come in it.
"""

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        from dualplan.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before there was anything to show.\n")
        sys.exit(130)
    run()
