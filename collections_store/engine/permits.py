"""Permits of open transactions.

Rules:

1. At most `size` transactions are open at a time: single operations find a connection. Permits are granted in the order
   of the requests.
2. Waiting blocks no further caller: a thread waits alone, a task in the event loop. Both poll the clock, and give up
   with `DatabaseBusy`.
3. Permits are known by weak references only. A permit that a signal made the owner lose no longer counts.
4. A task or thread with an open transaction never waits for the end of a transaction: the transaction might be the
   waiter's own.
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
from typing import Any, Final, Literal, TypeAlias, TypeVar

from ..errors import DatabaseBusy, StoreClosed
from .jobs import Flag

T = TypeVar("T")
Note: TypeAlias = Literal["retry", "wait", "group"]

NESTED: Final = (
    "a function that the store calls within an operation, such as an upgrade function or a validator, uses the same store: "
    "it would wait for the end of that operation; call the store before or after it"
)
POLL_INTERVAL: Final = 0.25
"""Seconds between two polls of the clock by a waiting caller."""
STREAK: Final = 0.003
"""Seconds for which a thread may work in a loop while others wait: a switch of threads takes as long as an operation."""
OWN: Final = (
    "this task or thread has a transaction open itself, which would wait for its own end: "
    "within it, use the collections that the transaction gives"
)


class Streak:
    """A thread's run of operations in a loop, for up to `STREAK` seconds, while others wait."""

    __slots__ = ("next_by", "until")

    def __init__(self) -> None:
        self.until: float = 0.0
        self.next_by: float = 0.0
        """Until when the next operation begins if the thread works in a loop."""


class Running:
    """The state of the operation that a thread executes."""

    __slots__ = ("catalogue", "is_reporting", "next_by", "notes", "streak")

    def __init__(self) -> None:
        self.catalogue: object = None
        """The catalogue of the operation's store; None if the thread executes no operation."""
        self.is_reporting: bool = False
        """Whether a hook runs: its own operations are not reported."""
        self.next_by: float = 0.0
        """Until when the thread begins its next write if it writes in a loop; see `GroupCommit`."""
        self.streak: Streak = Streak()
        """The thread's use of a pool beside waiting threads; see `ConnectionPool`."""
        self.notes: deque[tuple[float, Note, float]] = deque(maxlen=1000)

    def note(self, what: Note, amount: float) -> None:
        """Note a retry, a wait or a group for the record of the operation; only slow paths call this."""
        self.notes.append((time.monotonic(), what, amount))

    def taken(self, since: float) -> tuple[int, float, int]:
        """Return the retries, the seconds waited and the size of the group noted since then; clear the notes."""
        notes = [(what, amount) for time, what, amount in self.notes if time >= since]
        self.notes.clear()
        waited = sum(amount for what, amount in notes if what == "wait")
        group = max((int(amount) for what, amount in notes if what == "group"), default=1)
        return sum(what == "retry" for what, _ in notes), waited, group


class ThisThread(threading.local):
    """What only the thread itself uses."""

    def __init__(self) -> None:
        self.running: Running = Running()


this_thread: Final = ThisThread()


def between_operations(function: Callable[[T], object]) -> Callable[[T], object]:
    """Return a function that may use the store within a read-only operation, where the pool has several connections."""

    def call(argument: T) -> object:
        running = this_thread.running
        outer, running.catalogue = running.catalogue, None
        try:
            return function(argument)
        finally:
            running.catalogue = outer

    return call


class Permit:
    """The right to use one of a limited number of resources.

    The issuer keeps a weak reference only: a permit that an interrupted caller lost is issued again.
    """

    __slots__ = ("__weakref__",)


class TransactionPermit(Permit):
    """The right to have a transaction open, once granted."""

    __slots__ = ("granted", "owner", "requested_at", "since", "thread", "wake")

    wake: Callable[[], object] | None
    requested_at: float
    since: float
    granted: bool
    owner: object
    thread: int

    def __init__(self, wake: Callable[[], object] | None) -> None:
        self.wake = wake
        self.requested_at = self.since = time.monotonic()
        self.granted = False
        self.owner, self.thread = current_owner(), threading.get_ident()


class TransactionPermits:
    """The permits of a store's transactions: `size` at a time."""

    size: int

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self._timeout = size, timeout
        self._guard = threading.Lock()
        self._released = Flag()
        self._waiting: deque[TransactionPermit] = deque()
        self.granted: list[weakref.ref[TransactionPermit]] = []
        """The permits that are granted; some may be lost."""
        self.callers: weakref.WeakKeyDictionary[Any, tuple[object, Callable[[Any], bool]]] = (
            weakref.WeakKeyDictionary()
        )
        """The callers' connections that the store has written on: the owner, and a function that returns whether the
        transaction is still open."""
        self._closed = False

    def acquire(self) -> TransactionPermit:
        """Wait for a permit, in this thread; raises `DatabaseBusy` and `StoreClosed`."""
        permit = self.request(None)
        if permit.granted:
            return permit
        try:
            woken = Flag()
            permit.wake = woken.set
            while not self._is_granted_to_thread(permit):
                woken.wait(POLL_INTERVAL)
        except BaseException:
            self.release(permit)
            raise
        return permit

    def _is_granted_to_thread(self, permit: TransactionPermit) -> bool:
        try:
            return self.is_granted(permit)
        except DatabaseBusy:
            gc.collect()  # a permit that a signal made its owner lose may be part of a cycle
            return self.is_granted(permit)

    def request(self, wake: Callable[[], object] | None) -> TransactionPermit:
        """Queue for a permit; any thread calls `wake` when the permit is granted, or never will be."""
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
        """Return whether a permit is granted; raise `StoreClosed` or `DatabaseBusy` if a grant can no longer come."""
        with self._guard:
            self._grant()  # another one may have been lost
            if permit.granted:
                return True
        if self._closed:
            raise StoreClosed("the store is closed")
        if time.monotonic() - permit.requested_at > self._timeout:
            raise self._busy()
        return False

    def release(self, permit: TransactionPermit) -> None:
        """Release a permit, or end the wait for a permit. A second call does nothing."""
        with self._guard:
            for known in self.granted:
                if known() is permit:
                    self.granted.remove(known)
                    break
            if self._waiting:
                with suppress(ValueError):
                    self._waiting.remove(permit)
                self._grant()
        if self._closed:  # after the removal: `close` sets this first, and then counts
            self._released.set()

    def note_writing(self, connection: Any, is_open: Callable[[Any], bool]) -> None:
        """Note that a caller's connection holds the single writer, for as long as `is_open(connection)`."""
        with self._guard:
            self.callers[connection] = current_owner(), is_open

    def has_own_transaction(self) -> bool:
        """Return whether the current task or thread has a transaction open."""
        if not self.granted and not self.callers:
            return False
        owner = current_owner()
        return any(permit.owner == owner for permit in self._open()) or self._is_writing(owner)

    def refuse_own_transaction(self) -> None:
        """Raise `DatabaseBusy` if the current task or thread has a transaction open."""
        if (self.granted or self.callers) and self.has_own_transaction():
            gc.collect()  # a permit that a signal made its owner lose may be part of a cycle
            if self.has_own_transaction():
                raise DatabaseBusy(OWN)

    def refuse_self_deadlock(self) -> None:
        """Raise `DatabaseBusy` if the current task or thread has all permits, or writes on a caller's connection."""
        if not self.granted and not self.callers:
            return
        owner = current_owner()
        own = sum(permit.owner == owner for permit in self._open())
        if own >= self.size or self._is_writing(owner):
            self.refuse_own_transaction()

    def _open(self) -> list[TransactionPermit]:
        """Return the granted permits, without the lost permits."""
        with self._guard:
            found = [known() for known in self.granted]
        return [permit for permit in found if permit is not None]

    def _is_writing(self, owner: object) -> bool:
        with self._guard:
            callers = list(self.callers.items())
        return any(who == owner and is_open(connection) for connection, (who, is_open) in callers)

    def has_transaction_of_this_thread(self) -> bool:
        """Return whether this thread, or a task that runs in it, has a transaction open."""
        thread = (
            threading.get_ident()
        )  # no lock: it is called before a fork, which any thread may be in
        found = [known() for known in tuple(self.granted)]
        return any(permit is not None and permit.thread == thread for permit in found)

    def close(self, timeout: float) -> None:
        """Grant no more permits; wait up to `timeout` seconds for the release of granted permits."""
        deadline = time.monotonic() + timeout
        with self._guard:
            self._closed = True
            for permit in self._waiting:
                if permit.wake is not None:
                    permit.wake()
        while self._open() and (left := deadline - time.monotonic()) > 0:
            self._released.clear()
            if self._open():  # again, since one may have been released before `clear`
                self._released.wait(min(left, POLL_INTERVAL))

    def _grant(self) -> None:
        """Grant the free permits in order; the caller holds the lock."""
        while self._waiting and not self._closed:
            if len(self.granted) >= self.size:
                self.granted = [known for known in self.granted if known() is not None]
                if len(self.granted) >= self.size:
                    return
            permit = self._waiting.popleft()
            permit.granted, permit.since = True, time.monotonic()
            self.granted.append(weakref.ref(permit))
            if permit.wake is not None:
                with suppress(RuntimeError):  # its event loop is closed: nobody waits any more
                    permit.wake()

    def _busy(self) -> DatabaseBusy:
        granted = self._open()
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
