"""How many transactions are open at a time, and whose turn is next.

The rules:

1. As many transactions are open at most as leave connections for plain operations. Who comes first
   goes first.
2. Who waits keeps no thread from others: a synchronous caller sleeps in its own thread, a task in
   its event loop. Both look at the clock now and then, and give up with `DatabaseBusy`.
3. What a signal made somebody lose counts no longer: turns are known by weak references.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from .errors import DatabaseBusy, StoreClosed

LOOK_EVERY: Final = 0.25
"""Seconds after which whoever waits looks at the clock."""


class Turn:
    """The right to have a transaction open, once it is granted."""

    __slots__ = ("__weakref__", "asked", "granted", "owner", "since", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.asked = self.since = time.monotonic()
        self.granted = False
        self.owner = _who()


class Turns:
    """The turns of a store's transactions: `size` at a time."""

    def __init__(self, size: int, patience: float) -> None:
        self.size, self._patience = size, patience
        self._guard = threading.Lock()
        self._given_back = threading.Condition(self._guard)
        self._waiting: deque[Turn] = deque()
        self._granted: weakref.WeakSet[Turn] = weakref.WeakSet()
        self._closed = False

    def take(self) -> Turn:
        """Wait for a turn, in this thread; raises `DatabaseBusy` and `StoreClosed`."""
        woken = threading.Event()
        turn = self.ask(woken.set)
        try:
            while not self._comes_to_thread(turn):
                woken.wait(LOOK_EVERY)
        except BaseException:
            self.give_back(turn)
            raise
        return turn

    def _comes_to_thread(self, turn: Turn) -> bool:
        try:
            return self.has_come(turn)
        except DatabaseBusy:
            gc.collect()  # what a signal left behind may be part of a cycle
            return self.has_come(turn)

    def ask(self, wake: Callable[[], object]) -> Turn:
        """Queue for a turn; `wake` is called, by any thread, when there is something to look at."""
        turn = Turn(wake)
        with self._guard:
            self._waiting.append(turn)
            self._grant()
        return turn

    def has_come(self, turn: Turn) -> bool:
        """Tell whether a turn was granted; raises if it never will be."""
        if self._is_granted(turn):
            return True
        if self._closed:
            raise StoreClosed("the store is closed")
        if time.monotonic() - turn.asked > self._patience:
            raise self._busy()
        return False

    def _is_granted(self, turn: Turn) -> bool:
        with self._guard:
            self._grant()  # one may have been lost
            return turn.granted

    def give_back(self, turn: Turn) -> None:
        """End a turn, or the wait for it; the next one's comes. Again does nothing."""
        with self._guard:
            self._granted.discard(turn)
            with suppress(ValueError):
                self._waiting.remove(turn)
            self._grant()
            self._given_back.notify_all()

    def are_mine(self) -> bool:
        """Has the task or the thread that asks a transaction open?"""
        who = _who()
        with self._guard:
            return any(turn.owner == who for turn in list(self._granted))

    def close(self, patience: float) -> None:
        """Grant no more turns; wait up to `patience` seconds for those that were granted."""
        deadline = time.monotonic() + patience
        with self._guard:
            self._closed = True
            for turn in self._waiting:
                turn.wake()
            while list(self._granted) and (left := deadline - time.monotonic()) > 0:
                self._given_back.wait(min(left, LOOK_EVERY))

    def _grant(self) -> None:
        while self._waiting and not self._closed and len(list(self._granted)) < self.size:
            turn = self._waiting.popleft()
            turn.granted, turn.since = True, time.monotonic()
            self._granted.add(turn)
            with suppress(RuntimeError):  # its event loop is closed: nobody waits any more
                turn.wake()

    def _busy(self) -> DatabaseBusy:
        granted = list(self._granted)
        longest = max((time.monotonic() - turn.since for turn in granted), default=0.0)
        return DatabaseBusy(
            f"{len(granted)} of at most {self.size} transactions were open for "
            f"{self._patience:g} seconds, one of them for {longest:.1f}: end them sooner, "
            "or, on PostgreSQL, give the store a larger pool_size"
        )


def _who() -> object:
    """Return the task that runs here, or else the thread."""
    with suppress(RuntimeError):
        task = asyncio.current_task()
        if task is not None:
            return id(task)
    return threading.get_ident()
