"""The stored states of dialogues that the process knows. Any number of threads may use them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import TypeAlias

from .records import Persisted

Note: TypeAlias = Callable[[str, Persisted | None], None]
"""Notes the state of the dialogue with a key, as read from the database; None forgets the state."""


class StoredStates:
    """The stored states of dialogues, by their keys.

    Reads and writes of a dialogue may overlap. A read notes no dialogue that was written since the read began, because the
    read may have met the state before the write.
    """

    def __init__(self) -> None:
        self._states: dict[str, Persisted] = {}
        self._reads: dict[Note, set[str]] = {}
        """For each read in progress the keys of the dialogues written since it began."""
        self._lock = threading.Lock()

    def get(self, key: str) -> Persisted | None:
        return self._states.get(key)

    def unknown(self, keys: Set[str]) -> Set[str]:
        with self._lock:
            return keys - self._states.keys()

    def written(self, key: str, state: Persisted) -> None:
        """Note the state after a write."""
        with self._lock:
            self._outdate(key)
            self._states[key] = state

    def forget(self, key: str) -> None:
        with self._lock:
            self._outdate(key)
            self._states.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._states = {}  # the reads in progress note in the old one

    @contextmanager
    def reading(self) -> Iterator[Note]:
        """The context of a read, entered before its first statement."""
        states, written = self._states, set[str]()

        def note(key: str, state: Persisted | None) -> None:
            with self._lock:
                if key in written:
                    return
                if state is None:
                    states.pop(key, None)
                else:
                    states[key] = state

        with self._lock:
            self._reads[note] = written
        try:
            yield note
        finally:
            with self._lock:
                del self._reads[note]

    def _outdate(self, key: str) -> None:
        for written in self._reads.values():
            written.add(key)
