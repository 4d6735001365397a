"""Threads of a store that do something now and then.

They are daemons: a forgotten store never keeps the interpreter alive. While one of them is at work no
process is forked, or for `FORK_PATIENCE` seconds at least: what it holds just then, in the database's
library for one, nobody would release in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

FORK_PATIENCE: Final = 1.0
"""Seconds."""


class Gate:
    """Where work waits for a fork, and a fork for work."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = self._forking = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Return the context of some work."""
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Have no work begin; wait for what is being done."""
        with self._changed:
            self._forking += 1
            self._changed.wait_for(lambda: not self._working, FORK_PATIENCE)

    def open(self) -> None:
        """Have work begin again."""
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()


_gate = Gate()


class Background:
    """A thread that calls `work` every so many seconds, until that returns False or it is stopped."""

    def __init__(self, name: str, seconds: float, work: Callable[[], bool]) -> None:
        self._seconds, self._work = seconds, work
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"collections_store-{name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Have no work begin any more."""
        self._stopped.set()

    def join(self, patience: float) -> None:
        """Wait for the end of what is being done, for so many seconds at most."""
        if self._thread is not threading.current_thread():
            self._thread.join(patience)

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            with _gate.working():
                if self._stopped.is_set() or not self._work():
                    return


def _before_fork() -> None:
    _gate.close()


def _after_fork_in_parent() -> None:
    _gate.open()


def _after_fork_in_child() -> None:
    global _gate  # noqa: PLW0603 - the threads are the parent's, and one may hold the lock
    _gate = Gate()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
