"""What can go wrong, each said in one sentence: what, where, what to do.

::

    DualplanError
     +-- InputError          an argument, a file or an option is wrong
     |    +-- ModelError     a model breaks its contract; names the function and the (x, a)
     |    +-- PolicyError    a policy breaks its contract; names the state
     |    +-- MissingError   a method needs what the model does not have (predecessors, a bounded box)
     +-- RunError            a run's folder cannot be used
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DualplanError(Exception):
    """Root of everything this library raises on purpose."""


class InputError(DualplanError, ValueError):
    """An argument, a file or an option is wrong."""


class ModelError(InputError):
    """A model breaks its contract."""


class PolicyError(InputError):
    """A policy breaks its contract."""


class MissingError(InputError):
    """A method needs something that this model does not have."""


class RunError(DualplanError):
    """A run's folder cannot be used."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not there, with the nearest one that is."""
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(choices)}."
    return InputError(f"unknown {kind} {name!r}; {remedy}")
