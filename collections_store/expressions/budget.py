"""Interruption of long computations in Python.

Long computations call `spend`. The thread that runs an operation sets a function, called every `STEPS` steps, which
raises if the operation must end. Without such a function, nothing happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def checked_by(check: Callable[[], None]) -> Iterator[None]:
    """Return the context in which `check` is called every `STEPS` steps of this thread."""
    before, _local.check = _local.check, check
    try:
        yield
    finally:
        _local.check = before
