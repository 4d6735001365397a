"""The dialogues in memory: those that go on, and some of those that have ended."""

from __future__ import annotations

from collections import OrderedDict

from .dialogue import Dialogue


class Memory:
    """Dialogues by their keys. Of those that have ended it holds so many, the last used, or all: None."""

    def __init__(self, cached: int | None) -> None:
        self.active: dict[str, Dialogue] = {}
        self.unsaved: set[str] = set()
        """The keys of those that hold messages which are not on the disk."""
        self._cached = cached
        self._terminal: OrderedDict[str, Dialogue] = OrderedDict()
        self._by_counterparty: dict[str, dict[str, None]] = {}

    def find(self, key: str) -> Dialogue | None:
        """Return the dialogue with a key."""
        if key in self._terminal:
            self._terminal.move_to_end(key)
            return self._terminal[key]
        return self.active.get(key)

    def add(self, dialogue: Dialogue) -> None:
        """Hold a dialogue."""
        key, address = _place(dialogue)
        if dialogue.is_terminal:
            self._terminal[key] = dialogue
            self._drop_some()
        else:
            self.active[key] = dialogue
            self._by_counterparty.setdefault(address, {})[key] = None

    def forget(self, dialogue: Dialogue) -> None:
        """Hold a dialogue no longer."""
        key, address = _place(dialogue)
        self.active.pop(key, None)
        self._terminal.pop(key, None)
        self.unsaved.discard(key)
        others = self._by_counterparty.get(address, {})
        others.pop(key, None)
        if not others:
            self._by_counterparty.pop(address, None)

    def forget_terminal(self) -> None:
        """Hold those that have ended no longer."""
        self._terminal.clear()

    def clear(self) -> None:
        """Hold none."""
        self.active.clear()
        self.unsaved.clear()
        self._terminal.clear()
        self._by_counterparty.clear()

    def with_counterparty(self, address: str) -> list[Dialogue]:
        """Return those with an address that go on."""
        return [self.active[key] for key in self._by_counterparty.get(address, ())]

    def changed(self) -> list[Dialogue]:
        """Return those that may not be on the disk as they are."""
        active, terminal = list(self.active.items()), list(self._terminal.values())
        changed = [each for key, each in active if each.touched or key in self.unsaved]
        return changed + [each for each in terminal if each.touched]

    def _drop_some(self) -> None:
        """Let go of those that have ended and were not used for long; not of what is to be saved."""
        spare = 0 if self._cached is None else len(self._terminal) - self._cached
        untouched = [key for key, each in self._terminal.items() if not each.touched]
        for key in untouched[: max(0, spare)]:
            del self._terminal[key]


def _place(dialogue: Dialogue) -> tuple[str, str]:
    label = dialogue.dialogue_label
    return label.key, label.dialogue_opponent_addr
