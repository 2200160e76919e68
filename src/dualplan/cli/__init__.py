"""The command line."""

from dualplan.cli.app import app, main
from dualplan.cli.inputs import parse_value

__all__ = ["app", "main", "parse_value"]
