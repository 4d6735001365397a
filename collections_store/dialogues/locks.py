"""Who may write to which dialogue: locks for groups of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack
from itertools import cycle
from typing import Any, Final, Generic, TypeAlias, TypeVar

STRIPES: Final = 64
"""Dialogues are locked by groups: that many may be written to at the same time."""
SEARCHES: Final = 16
"""So many may search at the same time."""

Lock: TypeAlias = AbstractContextManager[Any]
L = TypeVar("L", bound=Lock)


class Locks(Generic[L]):
    """Locks for groups of dialogues; who enters them all has every dialogue for himself.

    A search holds up no writer, but whoever enters them all: it takes to memory what it found on the disk,
    which nobody shall have purged in between. These come first, so that nobody holds writers up
    because he waits for a search.
    """

    def __init__(self, make: Callable[[], L]) -> None:
        self._locks = [make() for _ in range(SEARCHES + STRIPES)]
        self._searches = cycle(range(SEARCHES))

    def of(self, family: Hashable) -> L:
        """Return the lock of a group."""
        return self._locks[SEARCHES + hash(family) % STRIPES]

    def of_search(self) -> L:
        """Return the lock of a search."""
        return self._locks[next(self._searches)]

    def __enter__(self) -> None:
        with ExitStack() as taken:
            for lock in self._locks:
                taken.enter_context(lock)
            taken.pop_all()

    def __exit__(self, *_: object) -> None:
        for lock in reversed(self._locks):
            lock.__exit__(None, None, None)
