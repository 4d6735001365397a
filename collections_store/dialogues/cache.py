"""Dialogues in memory: the cache, and the locks for writes to a dialogue."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager, ExitStack
from itertools import cycle
from typing import Any, Final, Generic, TypeAlias, TypeVar

from .records import DialogueCodec

D = TypeVar("D")
STRIPES: Final = 64
"""The number of dialogues that can be written to at the same time."""
SEARCHES: Final = 16
"""The number of searches that can run at the same time."""
Lock: TypeAlias = AbstractContextManager[Any]
L = TypeVar("L", bound=Lock)


class StripedLocks(Generic[L]):
    """Locks for groups of dialogues, and for searches. Entering takes all locks, in the order of their list."""

    def __init__(self, make: Callable[[], L]) -> None:
        self._locks = [make() for _ in range(SEARCHES + STRIPES)]
        self._searches = cycle(range(SEARCHES))

    def of(self, group: Hashable) -> L:
        """Return the lock of a group of dialogues; None: of a search."""
        if group is None:
            return self._locks[next(self._searches)]
        return self._locks[SEARCHES + hash(group) % STRIPES]

    def __enter__(self) -> None:
        with ExitStack() as taken:
            for lock in self._locks:
                taken.enter_context(lock)
            taken.pop_all()

    def __exit__(self, *_: object) -> None:
        for lock in reversed(self._locks):
            lock.__exit__(None, None, None)


class DialogueCache(Generic[D]):
    """The active dialogues, and the `cached` terminal dialogues used last (None: all), by their keys.

    A dialogue has one object: an evicted object is found as long as a reference to the object exists. Any number of
    threads may use the cache.
    """

    def __init__(
        self, codec: DialogueCodec[D], cached: int | None, is_dirty: Callable[[D], bool]
    ) -> None:
        self.unsaved: set[str] = set()
        """The keys of dialogues with messages that are not stored."""
        self.new: set[str] = set()
        """The keys of dialogues of which nothing is stored."""
        self._codec, self._cached, self._is_dirty = codec, cached, is_dirty
        self._active: dict[str, D] = {}
        self._terminal: OrderedDict[str, D] = OrderedDict()
        self._evicted: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._by_counterparty: dict[str, dict[str, D]] = {}
        self._lock = threading.Lock()

    @property
    def active(self) -> tuple[D, ...]:
        """The active dialogues, in the order of `add`."""
        with self._lock:
            return tuple(self._active.values())

    def find(self, key: str) -> D | None:
        with self._lock:
            return self._find(key)

    def add(self, dialogue: D) -> D:
        """Add a dialogue, unless an object of the dialogue is in memory; return the object in memory."""
        label = self._codec.label(dialogue)
        with self._lock:
            known = self._find(label.key)
            if known is not None:
                return known
            if self._codec.is_terminal(dialogue):
                self._terminal[label.key] = dialogue
                self._evict()
            else:
                self._active[label.key] = dialogue
                same = self._by_counterparty.setdefault(label.dialogue_opponent_addr, {})
                same[label.key] = dialogue
        return dialogue

    def forget(self, *keys: str) -> None:
        with self._lock:
            for key in keys:
                self._forget(key)

    def clear(self) -> None:
        with self._lock:
            for each in (self._active, self._terminal, self._evicted, self._by_counterparty):
                each.clear()
            self.unsaved.clear()
            self.new.clear()

    def with_counterparty(self, address: str) -> list[D]:
        """Return the active dialogues with an address."""
        with self._lock:
            return list(self._by_counterparty.get(address, {}).values())

    def changed(self, is_changed: Callable[[D], bool]) -> list[D]:
        """Return the dialogues with unsaved messages or other changes."""
        with self._lock:
            parts: Iterable[Any] = (self._active, self._terminal, self._evicted)
            items = [item for part in parts for item in part.items()]
        return [each for key, each in items if key in self.unsaved or is_changed(each)]

    @property
    def has_excess(self) -> bool:
        return self._cached is not None and len(self._terminal) > self._cached

    def excess(self) -> list[D]:
        """Return the terminal dialogues beyond `cached`: dirty dialogues stay."""
        with self._lock:
            return [self._terminal[key] for key in self._excess()]

    def evict(self) -> None:
        """Evict terminal dialogues beyond `cached`."""
        with self._lock:
            self._evict()

    def _find(self, key: str) -> D | None:
        if key in self._active:
            return self._active[key]
        found: D | None = self._terminal.get(key)
        if found is not None:
            self._terminal.move_to_end(key)
        elif (found := self._evicted.pop(key, None)) is not None:
            self._terminal[key] = found
            self._evict()
        return found

    def _evict(self) -> None:
        for key in self._excess():
            if not self._is_dirty(self._terminal[key]):
                self._evicted[key] = self._terminal.pop(key)

    def _excess(self) -> list[str]:
        if self._cached is None:
            return []
        return list(self._terminal)[: max(0, len(self._terminal) - self._cached)]

    def _forget(self, key: str) -> None:
        for some in (self._terminal, self._evicted):
            some.pop(key, None)
        self.unsaved.discard(key)
        self.new.discard(key)
        dialogue = self._active.pop(key, None)
        if dialogue is not None:
            address = self._codec.label(dialogue).dialogue_opponent_addr
            del self._by_counterparty[address][key]
            if not self._by_counterparty[address]:
                del self._by_counterparty[address]
