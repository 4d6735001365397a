"""The connections of a store.

SQLAlchemy's engine makes and ends them. `HeldPool` keeps those of the store's own engine at hand
between operations, because a checkout from SQLAlchemy's pool costs as much as a get on SQLite (5 of
11 µs). `BorrowingPool` takes each from the engine of the caller, and gives it back at once: that
pool is the caller's to share.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, Protocol

import sqlalchemy as sa

from .errors import DatabaseBusy, StoreClosed
from .operations import Catalogue, DriverConnection, SharedConnection, add_functions
from .options import Options

COUNT_EVERY: Final = 0.25
"""Seconds after which whoever waits for a connection looks whether one was lost."""
PING_AFTER: Final = 30.0
"""Seconds of rest after which a connection is tried before it is used."""


class Slot:
    """The right to one connection."""

    __slots__ = ("__weakref__",)


class Lease:
    """A connection in use."""

    __slots__ = ("connection", "rested_since", "sa", "slots", "tainted")

    def __init__(
        self, sa_connection: sa.Connection, connection: DriverConnection | SharedConnection
    ) -> None:
        self.sa, self.connection = sa_connection, connection
        self.rested_since = 0.0
        self.slots: list[Slot] = []
        """Its slot, while it is in use; a list, for only one can take it out."""
        self.tainted = False
        """A cancel request is on its way that may meet the next statement."""

    def close(self) -> None:
        """End the connection."""
        self.sa.close()


class Pool(Protocol):
    """Where leases come from."""

    def acquire(self) -> Lease:
        """Return a connection that nobody else has; raises `DatabaseBusy`."""

    def release(self, lease: Lease) -> None:
        """Give a connection back."""

    def discard(self, lease: Lease) -> None:
        """Give a connection back that must not be used again."""

    def discard_idle(self) -> None:
        """End the connections that nobody has."""

    def close(self, patience: float) -> None:
        """End all connections; wait up to `patience` seconds for each that is in use."""


def open_driver_lease(
    engine: sa.Engine, catalogue: Catalogue, options: Options, patience: float
) -> Lease:
    """Connect with the store's own engine, and say the connection's settings."""
    database = catalogue.statements.database
    try:
        connection = engine.connect()
        driver = connection.connection.driver_connection
        add_functions(driver, database)
        ours = DriverConnection(driver, catalogue)
        for words in database.settings(
            busy_timeout=patience, durability=options.durability, page_cache=options.page_cache
        ):
            ours.say(words)
    except database.errors() as error:
        raise database.translate(error) from error
    return Lease(connection, ours)


def open_shared_lease(engine: sa.Engine, catalogue: Catalogue) -> Lease:
    """Borrow a connection from the caller's engine."""
    database = catalogue.statements.database
    try:
        connection = engine.connect()
    except database.errors() as error:
        raise database.translate(error) from error
    except sa.exc.TimeoutError as error:
        raise DatabaseBusy(f"the engine's pool has no connection free: {error}") from error
    return Lease(connection, SharedConnection(connection, catalogue))


class HeldPool:
    """Up to `size` connections, the last used first."""

    def __init__(self, open: Callable[[], Lease], size: int, timeout: float) -> None:
        self._open, self._size, self._timeout = open, size, timeout
        self._idle: deque[Lease] = deque()
        self._free: SimpleQueue[Slot] = SimpleQueue()
        self._slots: weakref.WeakSet[Slot] = weakref.WeakSet()
        self._counting = threading.Lock()
        self.closed = False
        self._replace_the_lost()

    def acquire(self) -> Lease:
        try:
            slot = self._wait_for_slot()
        except Empty:
            raise DatabaseBusy(
                f"all {self._size} connections were in use for {self._timeout:g} seconds: "
                "end transactions sooner, or give the store a larger pool_size"
            ) from None
        try:
            if self.closed:
                raise StoreClosed("the store is closed")
            lease = self._take()
            lease.slots.append(slot)
        except BaseException:
            self._free.put(slot)
            raise
        return lease

    def _wait_for_slot(self) -> Slot:
        try:
            return self._free.get_nowait()
        except Empty:
            pass
        deadline = time.monotonic() + self._timeout
        while (left := deadline - time.monotonic()) > 0:
            self._replace_the_lost()
            with suppress(Empty):
                return self._free.get(timeout=min(left, COUNT_EVERY))
        gc.collect()  # what a signal left behind may be part of a cycle
        self._replace_the_lost()
        return self._free.get_nowait()

    def _replace_the_lost(self) -> None:
        """Count the slots. A signal that raises between two lines can lose one for good."""
        with self._counting:
            for lease in list(self._idle):
                self._vacate(lease)
            # not its len(): a signal in the set's own callback leaves a dead one counted
            for _ in range(self._size - len(list(self._slots))):
                slot = Slot()
                self._slots.add(slot)
                self._free.put(slot)

    def _take(self) -> Lease:
        while self._idle:
            try:
                lease = self._idle.pop()
            except IndexError:
                break
            if time.monotonic() - lease.rested_since < PING_AFTER or lease.connection.is_alive():
                return lease
            lease.sa.invalidate()
            lease.close()
        return self._open()

    def release(self, lease: Lease) -> None:
        lease.rested_since = time.monotonic()
        self._idle.append(lease)
        self._vacate(lease)
        if self.closed:
            self.discard_idle()

    def discard(self, lease: Lease) -> None:
        lease.sa.invalidate()
        lease.close()
        self._vacate(lease)

    def _vacate(self, lease: Lease) -> None:
        try:  # noqa: SIM105 - `suppress` takes as long as all of this
            self._free.put(lease.slots.pop())
        except IndexError:
            pass

    def discard_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def close(self, patience: float) -> None:
        with self._counting:
            if self.closed:
                return
            self.closed = True
        self._replace_the_lost()
        deadline = time.monotonic() + patience
        taken: list[Slot] = []
        with suppress(Empty):
            while len(taken) < self._size:
                taken.append(self._free.get(timeout=max(0.0, deadline - time.monotonic())))
        self.discard_idle()
        for slot in taken:  # whoever waits shall hear that the store is closed
            self._free.put(slot)


class BorrowingPool:
    """The pool of the caller's engine; `one_by_one` where all of it is one connection."""

    def __init__(self, open: Callable[[], Lease], timeout: float, *, one_by_one: bool) -> None:
        self._open, self._timeout = open, timeout
        self._turn = threading.Lock() if one_by_one else None
        self.closed = False

    def acquire(self) -> Lease:
        if self.closed:
            raise StoreClosed("the store is closed")
        if self._turn is not None and not self._turn.acquire(timeout=self._timeout):
            raise DatabaseBusy(f"the one connection was in use for {self._timeout:g} seconds")
        try:
            return self._open()
        except BaseException:
            self._end_turn()
            raise

    def release(self, lease: Lease) -> None:
        lease.close()
        self._end_turn()

    def discard(self, lease: Lease) -> None:
        self.release(lease)

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.release()

    def discard_idle(self) -> None:
        """Nothing rests here."""

    def close(self, patience: float) -> None:  # noqa: ARG002
        self.closed = True
