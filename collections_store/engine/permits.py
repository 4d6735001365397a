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

POLL_INTERVAL: Final = 0.25
"""Seconds after which whoever waits looks at the clock."""


OWN: Final = (
    "this task or thread has a transaction open itself, which would wait for its own end: "
    "within it, use the collections that the transaction gives"
)


class Permit:
    """The right to use one of a limited number of resources.

    Its issuer keeps a weak reference only: a permit that an interrupted caller lost is issued again.
    """

    __slots__ = ("__weakref__",)


class TransactionPermit(Permit):
    """The right to have a transaction open, once it is granted."""

    __slots__ = ("granted", "owner", "requested_at", "since", "thread", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.requested_at = self.since = time.monotonic()
        self.granted = False
        self.owner, self.thread = current_owner(), threading.get_ident()


class TransactionPermits:
    """The turns of a store's transactions: `size` at a time."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self._timeout = size, timeout
        self._guard = threading.Lock()
        self._given_back = Flag()
        self._waiting: deque[TransactionPermit] = deque()
        self._granted: weakref.WeakSet[TransactionPermit] = weakref.WeakSet()
        self._callers: weakref.WeakKeyDictionary[Any, tuple[object, Callable[[Any], bool]]] = (
            weakref.WeakKeyDictionary()
        )
        """The callers' connections that the store has written on: by whom, and what returns whether that is still open."""
        self._closed = False

    def acquire(self) -> TransactionPermit:
        """Wait for a turn, in this thread; raises `DatabaseBusy` and `StoreClosed`."""
        woken = Flag()
        permit = self.request(woken.set)
        try:
            while not self._comes_to_thread(permit):
                woken.wait(POLL_INTERVAL)
        except BaseException:
            self.release(permit)
            raise
        return permit

    def _comes_to_thread(self, permit: TransactionPermit) -> bool:
        try:
            return self.is_granted(permit)
        except DatabaseBusy:
            gc.collect()  # what a signal left behind may be part of a cycle
            return self.is_granted(permit)

    def request(self, wake: Callable[[], object]) -> TransactionPermit:
        """Queue for a turn; `wake` is called, by any thread, when there is something to look at."""
        permit = TransactionPermit(wake)
        try:
            with self._guard:
                self._waiting.append(permit)
                self._grant()
        except BaseException:
            self.release(permit)
            raise
        return permit

    def is_granted(self, permit: TransactionPermit) -> bool:
        """Return whether a turn was granted; raises if it never will be."""
        if self._is_granted(permit):
            return True
        if self._closed:
            raise StoreClosed("the store is closed")
        if time.monotonic() - permit.requested_at > self._timeout:
            raise self._busy()
        return False

    def _is_granted(self, permit: TransactionPermit) -> bool:
        with self._guard:
            self._grant()  # one may have been lost
            return permit.granted

    def release(self, permit: TransactionPermit) -> None:
        """End a turn, or the wait for it; the next one's comes. Again does nothing."""
        with self._guard:
            self._granted.discard(permit)
            with suppress(ValueError):
                self._waiting.remove(permit)
            self._grant()
        self._given_back.set()

    def note(self, connection: Any, is_open: Callable[[Any], bool]) -> None:
        """Note that a caller's connection holds the one writer, for as long as `is_open(connection)`."""
        with self._guard:
            self._callers[connection] = current_owner(), is_open

    def has_own_transaction(self) -> bool:
        """Return whether the current task or thread has a transaction open."""
        if not self._granted and not self._callers:
            return False
        return bool(self._mine()) or self._is_caller()

    def refuse_own_transaction(self) -> None:
        """Raise `DatabaseBusy` if the current task or thread would wait for a transaction of its own."""
        if self.has_own_transaction():
            gc.collect()  # what a signal left behind may be part of a cycle
            if self.has_own_transaction():
                raise DatabaseBusy(OWN)

    def refuse_self_deadlock(self) -> None:
        """Raise `DatabaseBusy` if the current task or thread itself has open what another must wait for."""
        if len(self._mine()) >= self.size or self._is_caller():
            self.refuse_own_transaction()

    def _mine(self) -> list[TransactionPermit]:
        owner = current_owner()
        with self._guard:
            return [permit for permit in list(self._granted) if permit.owner == owner]

    def _is_caller(self) -> bool:
        owner = current_owner()
        with self._guard:
            callers = list(self._callers.items())
        return any(who == owner and is_open(connection) for connection, (who, is_open) in callers)

    def has_transaction_of_this_thread(self) -> bool:
        """Return whether this thread, or a task that runs in it, has a transaction open."""
        thread = threading.get_ident()
        return any(permit.thread == thread for permit in list(self._granted))

    def close(self, timeout: float) -> None:
        """Grant no more turns; wait up to `patience` seconds for those that were granted."""
        deadline = time.monotonic() + timeout
        with self._guard:
            self._closed = True
            for permit in self._waiting:
                permit.wake()
        while list(self._granted) and (left := deadline - time.monotonic()) > 0:
            self._given_back.clear()
            if list(self._granted):  # still, for one may have been given back before `clear`
                self._given_back.wait(min(left, POLL_INTERVAL))

    def _grant(self) -> None:
        while self._waiting and not self._closed and len(list(self._granted)) < self.size:
            permit = self._waiting.popleft()
            permit.granted, permit.since = True, time.monotonic()
            self._granted.add(permit)
            with suppress(RuntimeError):  # its event loop is closed: nobody waits any more
                permit.wake()

    def _busy(self) -> DatabaseBusy:
        granted = list(self._granted)
        longest = max((time.monotonic() - permit.since for permit in granted), default=0.0)
        return DatabaseBusy(
            f"{len(granted)} of at most {self.size} transactions were open for "
            f"{self._timeout:g} seconds, one of them for {longest:.1f}: end them sooner, "
            "or, on PostgreSQL, give the store a larger pool_size"
        )


def current_owner() -> object:
    """Return a weak reference to the task that runs here, or else to the thread."""
    with suppress(RuntimeError):
        task = asyncio.current_task()
        if task is not None:
            return weakref.ref(task)
    return weakref.ref(threading.current_thread())
