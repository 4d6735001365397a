"""Before and after a fork of the process.

Rules:

1. Before a fork the connections to SQLite files are closed: the child inherits none, and has locks of its own on the
   files that it opens. Nobody opens or uses one until the fork is over.
2. A fork waits `FORK_TIMEOUT` seconds at most for operations that run, and not at all for a transaction of its own
   thread. A file that is still open then stays open, and `database_file` refuses it in the child.
3. Afterwards the parent opens connections again when they are needed.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Final, Protocol

from . import workers as background


class Pausable(Protocol):
    """Something that uses files."""

    def pause(self, deadline: float) -> None:
        """Begin nothing more; wait for what runs until `deadline`, and close what is not in use."""

    def resume(self) -> None:
        """Go on."""


_pausable: Final[weakref.WeakSet[Pausable]] = weakref.WeakSet()
_forking = threading.Lock()
_forker: int | None = None
"""The thread that has paused the others."""


def pause_at_forks(pausable: Pausable) -> None:
    """Pause something while this process is forked."""
    _pausable.add(pausable)


def _before() -> None:
    global _forker  # noqa: PLW0603
    background.close_gate()
    if not _forking.acquire(timeout=background.FORK_TIMEOUT):
        return
    _forker = threading.get_ident()
    deadline = time.monotonic() + background.FORK_TIMEOUT
    for each in list(_pausable):
        each.pause(deadline)


def _after_in_parent() -> None:
    global _forker  # noqa: PLW0603
    if _forker == threading.get_ident():
        for each in list(_pausable):
            each.resume()
        _forker = None
        _forking.release()
    background.open_gate()


def _after_in_child() -> None:
    global _forking, _forker
    _forking, _forker = threading.Lock(), None
    _pausable.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
