"""Waking those who wait for changes.

The rules:

1. Whoever waits listens first, looks then, and sleeps last: what is committed after the look wakes
   them, so nothing falls in between.
2. A commit of this process rings at once, whichever of its stores wrote. For those of other processes
   one thread per store looks every `POLL_EVERY` seconds at the last place of each collection that
   somebody waits for; it ends when nobody waits. However many wait for a collection, it is one look.
3. To be woken promises nothing: whoever is looks again.
4. A signal may raise in whoever waits or rings, at any moment, and its handler may call what is here: there is
   no lock but one that is re-entrant and written in C, and what is waited for is a `Flag`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from ..engine.workers import Background
from ..errors import StoreClosed

POLL_EVERY: Final = 0.25
"""Seconds."""
Wake: TypeAlias = Callable[[], object]
Look: TypeAlias = Callable[[str], object]

_guard = threading.RLock()
_heard: Final[set[Bell]] = set()
"""The bells that somebody listens to."""


class Listening:
    """The context of somebody who listens. No generator: a signal that raises as such a context is entered leaves
    that behind.
    """

    __slots__ = ("_bell", "_collection", "_wake")

    def __init__(self, bell: Bell, collection: str, wake: Wake) -> None:
        self._bell, self._collection, self._wake = bell, collection, wake

    def __enter__(self) -> None:
        try:
            self._bell._listen(self._collection, self._wake)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._bell._leave(self._collection, self._wake)


class Bell:
    """Wakes the streams of a store. `look` returns what tells, by being another than before, that a
    collection was changed; it is a weak reference, and None where no other process can write.
    """

    def __init__(self, look: Callable[[], Look | None] | None) -> None:
        self._look = look
        self._listening: dict[str, list[Wake]] = {}
        self._seen: dict[str, object] = {}
        self._thread: Background | None = None
        self._closed = False

    def listening(self, collection: str, wake: Wake) -> Listening:
        """Return the context in which `wake` is called, by any thread, when there may be changes."""
        return Listening(self, collection, wake)

    def _listen(self, collection: str, wake: Wake) -> None:
        with _guard:
            if self._closed:
                raise StoreClosed("the store is closed")
            self._listening.setdefault(collection, []).append(wake)
            _heard.add(self)
            if self._thread is None and self._look is not None:
                self._thread = Background("changes", POLL_EVERY, self._look_around)

    def _leave(self, collection: str, wake: Wake) -> None:
        with _guard:
            others = [each for each in self._listening.pop(collection, ()) if each != wake]
            if others:
                self._listening[collection] = others
            if not self._listening:
                _heard.discard(self)

    def wake(self, collection: str) -> None:
        """Wake those who listen for a collection."""
        with _guard:
            wakes = tuple(self._listening.get(collection, ()))
        for each in wakes:
            each()

    def forked(self) -> None:
        """Leave the parent's thread behind, which does not exist here, and who listened there."""
        self._listening, self._thread = {}, None

    def close(self) -> None:
        """Wake all, who shall find the store closed."""
        with _guard:
            self._closed, collections = True, tuple(self._listening)
        if self._thread is not None:
            self._thread.stop()
        for each in collections:
            self.wake(each)

    def join(self, patience: float) -> None:
        """Wait for the end of the thread."""
        thread = self._thread
        if thread is not None:
            thread.join(patience)

    def _look_around(self) -> bool:
        """Look for changes; False: nobody listens, and the next one who does has another thread look."""
        with _guard:
            collections = tuple(self._listening)
            if not collections:
                self._thread = None
                return False
        for each in collections:
            if self._is_changed(each):
                self.wake(each)
        return True

    def _is_changed(self, collection: str) -> bool:
        look = None if self._look is None else self._look()
        if look is None:
            return False
        try:
            found = look(collection)
        except Exception:  # noqa: BLE001 - those who wait shall look, and meet it themselves
            return True
        before: Any = self._seen.get(collection, self)
        self._seen[collection] = found
        return bool(before != found)


def ring(collections: Iterable[str]) -> None:
    """Wake those in this process who listen for collections of these names."""
    with _guard:
        bells = tuple(_heard)
    for bell in bells:
        for each in collections:
            bell.wake(each)


def _after_fork() -> None:
    """Begin anew: the threads are the parent's, and one of them may hold the lock."""
    global _guard  # noqa: PLW0603
    _guard = threading.RLock()
    _heard.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
