"""The change notifier wakes the change streams of a store when a collection may have changed.

Rules:

1. A commit of this process notifies every store of the process at once. For commits of other processes one thread
   per store polls, every `POLL_INTERVAL` seconds, the last position of each collection with a listener: one
   query, however many listeners. The thread ends when no listener is left.
2. A notification promises nothing: a woken stream reads again.
3. A signal handler may raise in a stream or in a writer at any moment, and may call this module: the only lock is
   re-entrant and written in C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from ..errors import StoreClosed
from .forks import at_fork
from .workers import Background

POLL_INTERVAL: Final = 0.25
"""Seconds."""
EVERY: Final = ""
"""In place of a collection's name: all collections."""
Wake: TypeAlias = Callable[[], object]
ReadPosition: TypeAlias = Callable[[str], object]

_guard = threading.RLock()
_notifiers: Final[set[ChangeNotifier]] = set()
"""The notifiers that have listeners."""


class ChangeNotifier:
    """The listeners of a store's change streams, and the polling thread.

    `reader` is a weak reference to the function for the last position of a collection, or of `EVERY`; None if no other
    process can write.
    """

    def __init__(self, reader: Callable[[], ReadPosition | None] | None) -> None:
        self._reader = reader
        self._listeners: dict[str, list[Wake]] = {}
        self._positions: dict[str, object] = {}
        self._thread: Background | None = None
        self._closed = False

    def add(self, collection: str, wake: Wake) -> None:
        """Add a listener: any thread may call `wake` when the collection, or one of `EVERY`, may have changed."""
        with _guard:
            if self._closed:
                raise StoreClosed("the store is closed")
            self._listeners.setdefault(collection, []).append(wake)
            _notifiers.add(self)
            if self._thread is None and self._reader is not None:
                self._thread = Background("changes", POLL_INTERVAL, self._poll)

    def remove(self, collection: str, wake: Wake) -> None:
        with _guard:
            others = [each for each in self._listeners.pop(collection, ()) if each != wake]
            if others:
                self._listeners[collection] = others
            if not self._listeners:
                _notifiers.discard(self)

    def notify(self, collection: str) -> None:
        """Call the listeners of a collection, and of all collections."""
        with _guard:
            listeners = [*self._listeners.get(collection, ()), *self._listeners.get(EVERY, ())]
        for wake in listeners:
            wake()

    def forked(self) -> None:
        """Forget the thread and the listeners of the parent process, in the child."""
        self._listeners, self._thread = {}, None

    def close(self) -> None:
        """Stop polling and wake all streams, which find the store closed."""
        with _guard:
            self._closed, collections = True, tuple(self._listeners)
        if self._thread is not None:
            self._thread.stop()
        for each in collections:
            self.notify(each)

    def join(self, timeout: float) -> None:
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _poll(self) -> bool:
        """Notify the listeners of changed collections; return False if no listener is left."""
        with _guard:
            collections = tuple(self._listeners)
            if not collections:
                self._thread = None  # the next listener starts another
                return False
        for each in collections:
            read = None if self._reader is None else self._reader()
            if read is None:
                continue
            try:
                position = read(each)
            except Exception:  # noqa: BLE001 - the streams read again, and raise it themselves
                self.notify(each)
                continue
            before: Any = self._positions.get(each, self)
            self._positions[each] = position
            if before != position:
                self.notify(each)
        return True


def notify_all(collections: Iterable[str]) -> None:
    """Notify every store of this process of changes to collections of these names."""
    with _guard:
        notifiers = tuple(_notifiers)
    for notifier in notifiers:
        for each in collections:
            notifier.notify(each)


def _after_fork() -> None:
    """Replace the lock, which a thread of the parent may hold."""
    global _guard  # noqa: PLW0603
    _guard = threading.RLock()
    _notifiers.clear()


at_fork("notifiers", in_child=_after_fork)
