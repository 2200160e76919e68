"""What can go wrong, each said in one sentence: what, where, what to do.

::

    DualplanError
     +-- InputError          an argument, a file or an option is wrong
     |    +-- ModelError     a model breaks its contract; names the function and the (x, a)
     |    +-- PolicyError    a policy breaks its contract; names the state
     |    +-- MissingError   a method needs what the model does not have (predecessors, a bounded
          box)
     +-- OutOfTimeError           the time was over before there was anything to hand over
     +-- RunError            a run's folder cannot be used

An `InputError` may say which key it is about (`at`, a path as in `models/positions.py`); whoever
has the file that the key came from puts the file and the line in front (`models/toml.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class DualplanError(Exception):
    """Root of everything this library raises on purpose."""


class InputError(DualplanError, ValueError):
    """An argument, a file or an option is wrong; `at` is the path of the key that it is about."""

    located = False  # whether the message names a file already

    def __init__(self, message: str = "", *, at: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.at = at

    def locate(self, where: str) -> None:
        """Put a place in front of the message."""
        self.args = (f"{where}: {self}",)
        self.located = True


class ModelError(InputError):
    """A model breaks its contract."""


class PolicyError(InputError):
    """A policy breaks its contract."""


class MissingError(InputError):
    """A method needs something that this model does not have."""


class OutOfTimeError(DualplanError):
    """The time was over before there was anything to hand over."""

    def __init__(self) -> None:
        super().__init__("the time was over before there was a result; allow more time.")


class RunError(DualplanError):
    """A run's folder cannot be used."""


@contextmanager
def within(*path: str | int) -> Iterator[None]:
    """Errors raised inside are about a key below `path`."""
    try:
        yield
    except InputError as error:
        error.at = (*path, *error.at)
        raise


def unknown(
    kind: str, name: str, known: Iterable[str], at: tuple[str | int, ...] = (), near: float = 0.5
) -> InputError:
    """The error for a name that is not there, with the nearest one that is, or all if none is
    `near` (0 to 1).
    """
    choices = list(known)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=near)
    if close:
        remedy = f"did you mean {close[0]!r}?"
    else:
        remedy = f"known: {', '.join(choices) or 'none'}."
    return InputError(f"unknown {kind} {name!r}; {remedy}", at=at)
