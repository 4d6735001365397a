"""The dialogues in memory: those that go on, and some of those that have ended."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable

from .dialogue import Dialogue


class Memory:
    """Dialogues by their keys. Of those that have ended it holds so many, the last used, or all: None.

    There is one object for a dialogue: one that was let go is found for as long as anybody has it. Any
    number of threads may use it.
    """

    def __init__(self, cached: int | None) -> None:
        self.unsaved: set[str] = set()
        """The keys of those that hold messages which are not on the disk."""
        self.new: set[str] = set()
        """The keys of those that are not on the disk at all."""
        self._cached = cached
        self._active: dict[str, Dialogue] = {}
        self._terminal: OrderedDict[str, Dialogue] = OrderedDict()
        self._let_go: weakref.WeakValueDictionary[str, Dialogue] = weakref.WeakValueDictionary()
        self._by_counterparty: dict[str, dict[str, Dialogue]] = {}
        self._lock = threading.Lock()

    @property
    def active(self) -> tuple[Dialogue, ...]:
        """Those that go on, in the order in which they came."""
        with self._lock:
            return tuple(self._active.values())

    def find(self, key: str) -> Dialogue | None:
        """Return the dialogue with a key."""
        with self._lock:
            if key in self._active:
                return self._active[key]
            return self._used(key)

    def add(self, dialogue: Dialogue) -> Dialogue:
        """Hold a dialogue; returns it, or the one that is there already."""
        key, address = _place(dialogue)
        with self._lock:
            known = self._active.get(key) or self._used(key)
            if known is not None:
                return known
            if dialogue.is_terminal:
                self._hold(key, dialogue)
            else:
                self._active[key] = dialogue
                self._by_counterparty.setdefault(address, {})[key] = dialogue
        return dialogue

    def forget(self, key: str) -> None:
        """Hold a dialogue no longer."""
        with self._lock:
            self._forget(key)

    def forget_all(self, keys: Iterable[str]) -> None:
        """Hold dialogues no longer."""
        with self._lock:
            for key in keys:
                self._forget(key)

    def clear(self) -> None:
        """Hold none."""
        with self._lock:
            for some in (self._active, self._terminal, self._let_go, self._by_counterparty):
                some.clear()
            self.unsaved.clear()
            self.new.clear()

    def with_counterparty(self, address: str) -> list[Dialogue]:
        """Return those with an address that go on."""
        with self._lock:
            return list(self._by_counterparty.get(address, {}).values())

    def changed(self) -> list[Dialogue]:
        """Return those that may not be on the disk as they are."""
        unsaved = self.unsaved
        return [each for key, each in self._items() if each.touched or key in unsaved]

    def lent(self) -> list[Dialogue]:
        """Return these, and those of which somebody may have changed the metadata by a reference to it."""
        unsaved = self.unsaved
        return [each for key, each in self._items() if each.lent or key in unsaved]

    def crowd(self) -> list[Dialogue]:
        """Return those that have ended and are too many, but may not be on the disk as they are."""
        with self._lock:
            return [self._terminal[key] for key in self._spare()]

    def _items(self) -> list[tuple[str, Dialogue]]:
        with self._lock:
            parts = self._active, self._terminal, self._let_go
            return [item for some in parts for item in some.items()]

    def let_go(self) -> None:
        """Hold no more than so many of those that have ended."""
        with self._lock:
            self._drop()

    def _used(self, key: str) -> Dialogue | None:
        found = self._terminal.get(key)
        if found is not None:
            self._terminal.move_to_end(key)
            return found
        found = self._let_go.pop(key, None)
        if found is not None:
            self._hold(key, found)
        return found

    def _hold(self, key: str, dialogue: Dialogue) -> None:
        self._terminal[key] = dialogue
        self._drop()

    def _drop(self) -> None:
        """Let go of those that were not used for long; not of what is to be saved."""
        for key in self._spare():
            if not self._terminal[key].touched:
                self._let_go[key] = self._terminal.pop(key)

    def _spare(self) -> list[str]:
        """Return the keys of those that are too many."""
        if self._cached is None or len(self._terminal) <= self._cached:
            return []
        return list(self._terminal)[: len(self._terminal) - self._cached]

    def _forget(self, key: str) -> None:
        self._terminal.pop(key, None)
        self._let_go.pop(key, None)
        self.unsaved.discard(key)
        self.new.discard(key)
        dialogue = self._active.pop(key, None)
        if dialogue is None:
            return
        _, address = _place(dialogue)
        others = self._by_counterparty[address]
        del others[key]
        if not others:
            del self._by_counterparty[address]


def _place(dialogue: Dialogue) -> tuple[str, str]:
    label = dialogue.dialogue_label
    return label.key, label.dialogue_opponent_addr
