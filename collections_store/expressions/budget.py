"""Interruption of long computations in Python.

Long computations call `spend`. The thread that runs an operation sets a function, called every `STEPS` steps, which
raises if the operation must end. Without such a function, nothing happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

STEPS: Final = 1024
"""Steps between two checks: a step takes about a microsecond."""


class _Local(threading.local):
    check: Callable[[], None] | None = None
    left: int = STEPS


_local = _Local()


def spend(steps: int = 1) -> None:
    """Count steps of a computation; raises the errors of the current check."""
    _local.left -= steps
    if _local.left < 0:
        _local.left = STEPS
        check_now()


def check_now() -> None:
    """Raise the errors of the current check."""
    if _local.check is not None:
        _local.check()


class checked_by:  # noqa: N801 - a class, since a generator takes twice as long
    """The context in which `check` is called every `STEPS` steps of this thread."""

    __slots__ = ("_before", "_check")

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def __enter__(self) -> None:
        self._before, _local.check = _local.check, self._check

    def __exit__(self, *_: object) -> None:
        _local.check = self._before
