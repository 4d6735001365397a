"""How many transactions are open at a time, and whose turn is next.

The rules:

1. As many transactions are open at most as leave connections for plain operations. Who comes first
   goes first.
2. Who waits keeps no thread from others: a synchronous caller sleeps in its own thread, a task in
   its event loop. Both look at the clock now and then, and give up with `DatabaseBusy`.
3. What a signal made somebody lose counts no longer: turns are known by weak references.
4. A task or thread that has a transaction open does not wait for its end: that would never come.
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
from typing import Any, Final

from ..errors import DatabaseBusy, StoreClosed
from .jobs import Flag

LOOK_EVERY: Final = 0.25
"""Seconds after which whoever waits looks at the clock."""


OWN: Final = (
    "this task or thread has a transaction open itself, which would wait for its own end: "
    "within it, use the collections that the transaction gives"
)


class Turn:
    """The right to have a transaction open, once it is granted."""

    __slots__ = ("__weakref__", "asked", "granted", "owner", "since", "thread", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.asked = self.since = time.monotonic()
        self.granted = False
        self.owner, self.thread = current_owner(), threading.get_ident()


class Turns:
    """The turns of a store's transactions: `size` at a time."""

    def __init__(self, size: int, patience: float) -> None:
        self.size, self._patience = size, patience
        self._guard = threading.Lock()
        self._given_back = Flag()
        self._waiting: deque[Turn] = deque()
        self._granted: weakref.WeakSet[Turn] = weakref.WeakSet()
        self._callers: weakref.WeakKeyDictionary[Any, tuple[object, Callable[[Any], bool]]] = (
            weakref.WeakKeyDictionary()
        )
        """The callers' connections that the store has written on: by whom, and what returns whether that is still open."""
        self._closed = False

    def take(self) -> Turn:
        """Wait for a turn, in this thread; raises `DatabaseBusy` and `StoreClosed`."""
        woken = Flag()
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
        try:
            with self._guard:
                self._waiting.append(turn)
                self._grant()
        except BaseException:
            self.give_back(turn)
            raise
        return turn

    def has_come(self, turn: Turn) -> bool:
        """Return whether a turn was granted; raises if it never will be."""
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
        self._given_back.set()

    def note(self, connection: Any, is_open: Callable[[Any], bool]) -> None:
        """Note that a caller's connection holds the one writer, for as long as `is_open(connection)`."""
        with self._guard:
            self._callers[connection] = current_owner(), is_open

    def are_mine(self) -> bool:
        """Return whether the current task or thread has a transaction open."""
        if not self._granted and not self._callers:
            return False
        return bool(self._mine()) or self._is_caller()

    def refuse_own(self) -> None:
        """Raise `DatabaseBusy` if the current task or thread would wait for a transaction of its own."""
        if self.are_mine():
            gc.collect()  # what a signal left behind may be part of a cycle
            if self.are_mine():
                raise DatabaseBusy(OWN)

    def refuse_if_all_mine(self) -> None:
        """Raise `DatabaseBusy` if the current task or thread itself has open what another must wait for."""
        if len(self._mine()) >= self.size or self._is_caller():
            self.refuse_own()

    def _mine(self) -> list[Turn]:
        owner = current_owner()
        with self._guard:
            return [turn for turn in list(self._granted) if turn.owner == owner]

    def _is_caller(self) -> bool:
        owner = current_owner()
        with self._guard:
            callers = list(self._callers.items())
        return any(who == owner and is_open(connection) for connection, (who, is_open) in callers)

    def are_of_this_thread(self) -> bool:
        """Return whether this thread, or a task that runs in it, has a transaction open."""
        thread = threading.get_ident()
        return any(turn.thread == thread for turn in list(self._granted))

    def close(self, patience: float) -> None:
        """Grant no more turns; wait up to `patience` seconds for those that were granted."""
        deadline = time.monotonic() + patience
        with self._guard:
            self._closed = True
            for turn in self._waiting:
                turn.wake()
        while list(self._granted) and (left := deadline - time.monotonic()) > 0:
            self._given_back.clear()
            if list(self._granted):  # still, for one may have been given back before `clear`
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


def current_owner() -> object:
    """Return a weak reference to the task that runs here, or else to the thread."""
    with suppress(RuntimeError):
        task = asyncio.current_task()
        if task is not None:
            return weakref.ref(task)
    return weakref.ref(threading.current_thread())
