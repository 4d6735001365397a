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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Protocol

import sqlalchemy as sa

from ..errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    StoreClosed,
    shortened,
)
from ..operations.catalogue import Catalogue
from ..operations.connection import DriverConnection, SharedConnection, add_functions
from ..options import Options
from ..sql.dialects.protocols import Database
from .database_file import DatabaseFile, OpenFile, leak, opening, refuse
from .jobs import Flag
from .permits import Permit

POLL_INTERVAL: Final = 0.25
"""Seconds after which whoever waits for a connection looks whether one was lost."""
PING_AFTER: Final = 30.0
"""Seconds of rest after which a connection is tried before it is used."""


class PooledConnection:
    """A connection in use."""

    __slots__ = ("__weakref__", "connection", "file", "permits", "rested_since", "sa", "tainted")

    def __init__(
        self, sa_connection: sa.Connection, connection: DriverConnection | SharedConnection
    ) -> None:
        self.sa, self.connection = sa_connection, connection
        self.file: OpenFile | None = None
        self.rested_since = 0.0
        self.permits: list[Permit] | None = None
        """The slot of the one who has it; a list of their own, which only one can take it out of."""
        self.tainted = False
        """A cancel request is on its way that may meet the next statement."""

    def check_file(self) -> None:
        """Raise `DatabaseUnavailable` if the file was replaced."""
        if self.file is None:
            return
        try:
            self.file.check()
        except DatabaseUnavailable:
            self._flush_log(self.file)
            raise

    def _flush_log(self, file: OpenFile) -> None:
        """Have the log of a file that was replaced end in that file: the new one's next user would take it for its own."""
        if file.is_replaced and isinstance(self.connection, DriverConnection):
            database = self.connection.database
            for words in database.connections.flush_log():
                with suppress(*database.errors.types()):
                    self.connection.command(words)

    def close(self, *, is_broken: bool = False) -> None:
        """End the connection, unless that would harm the file."""
        if self.file is not None:
            if not self.file.can_be_closed:
                leak(self)
                return
            self._flush_log(self.file)
        if is_broken:
            self.sa.invalidate()
        self.sa.close()


class Pool(Protocol):
    """Where leases come from."""

    def acquire(self) -> PooledConnection:
        """Return a connection that nobody else has; raises `DatabaseBusy`."""

    def release(self, pooled: PooledConnection) -> None:
        """Give a connection back."""

    def discard(self, pooled: PooledConnection) -> None:
        """Give a connection back that must not be used again."""

    def discard_idle(self) -> None:
        """End the connections that nobody has."""

    def close(self, timeout: float) -> None:
        """End all connections; wait up to `patience` seconds for each that is in use."""

    def pause(self, deadline: float) -> bool:
        """Hand out no connection, and end those that nobody has; wait until `deadline` for the others. Return
        whether all have ended.
        """

    def resume(self) -> None:
        """Hand out connections again."""


def open_engine(url: sa.URL, database: Database, busy_timeout: float) -> sa.Engine:
    """Return an engine of the store's own."""
    arguments = database.connections.engine_arguments(busy_timeout=busy_timeout)
    return sa.create_engine(database.urls.connect_url(url), **arguments)


def file_of(url: sa.URL, database: Database) -> DatabaseFile | None:
    """Return the file that a URL names, if it is locked while it is open: then it is to be watched."""
    path = database.urls.file_of(url)
    if path is None or not database.urls.is_locked(url):
        return None
    return DatabaseFile(path, is_created=database.urls.is_created(url))


def translate(error: Exception, engine: sa.Engine, database: Database) -> CollectionsStoreError:
    """Return a driver's error in our words; one that is about a file names it."""
    ours, path = database.errors.translate(error), database.urls.file_of(engine.url)
    if path is None or type(ours) not in {DatabaseError, DatabaseUnavailable}:
        return ours
    return type(ours)(f"the SQLite file {shortened(path, 400)}: {ours}")


def open_driver_connection(
    engine: sa.Engine,
    file: DatabaseFile | None,
    catalogue: Catalogue,
    options: Options,
    timeout: float,
) -> PooledConnection:
    """Connect with the store's own engine, and say the connection's settings."""
    if file is None:
        return _connected(engine, catalogue, options, timeout)
    with opening():
        file.prepare()
        pooled = _connected(engine, catalogue, options, timeout)
        pooled.file = file.opened()
    return pooled


def _connected(
    engine: sa.Engine, catalogue: Catalogue, options: Options, timeout: float
) -> PooledConnection:
    database = catalogue.statements.database
    connection: sa.Connection | None = None
    try:
        connection = engine.connect()
        driver = connection.connection.driver_connection
        add_functions(driver, database)
        ours = DriverConnection(driver, catalogue)
        for words in database.connections.settings(options, busy_timeout=timeout):
            ours.command(words)
    except BaseException as error:
        if connection is not None:  # the error's traceback would keep it open
            connection.invalidate()
            connection.close()
        if isinstance(error, database.errors.types()):
            raise translate(error, engine, database) from error
        raise
    pooled = PooledConnection(connection, ours)
    # weak: a connection that a signal made somebody lose shall end at once, not when cycles are collected
    ours.before_commit.append(partial(_check_file, weakref.ref(pooled)))
    return pooled


def _check_file(known: weakref.ref[PooledConnection]) -> None:
    pooled = known()
    if pooled is not None:
        pooled.check_file()


def open_shared_connection(engine: sa.Engine, catalogue: Catalogue) -> PooledConnection:
    """Borrow a connection from the caller's engine."""
    database = catalogue.statements.database
    path = database.urls.file_of(engine.url)
    if path is not None:
        refuse(path)
    try:
        connection = engine.connect()
    except database.errors.types() as error:
        raise translate(error, engine, database) from error
    except sa.exc.TimeoutError as error:
        raise DatabaseBusy(f"the engine's pool has no connection free: {error}") from error
    return PooledConnection(connection, SharedConnection(connection, catalogue))


class ConnectionPool:
    """Up to `size` connections, the last used first.

    A signal that raises, in the main thread, loses neither a connection nor a slot. Python looks for signals after
    calls of what is written in C, and where functions begin: so what must be one step here is assignments only.
    """

    def __init__(self, open: Callable[[], PooledConnection], size: int, timeout: float) -> None:
        self._open, self._size, self._timeout = open, size, timeout
        self._idle: dict[PooledConnection, list[Permit]] = {}
        """The connections that nobody has, each with the slot of who had it last, until that is free."""
        self._free: SimpleQueue[Permit] = SimpleQueue()
        self._issued: weakref.WeakSet[Permit] = weakref.WeakSet()
        self._counting = threading.Lock()
        self._paused: list[Permit] = []
        self._resumed: Flag | None = None
        self.closed = False
        self._replace_the_lost()

    def acquire(self) -> PooledConnection:
        if (resumed := self._resumed) is not None:
            resumed.wait(self._timeout)
        try:
            permits = [self._free.get_nowait()]
        except Empty:
            permits = [self._wait_for_slot()]
        try:
            if self.closed:
                raise StoreClosed("the store is closed")
            return self._take(permits)
        except BaseException:
            self._vacate(permits)
            raise

    def _wait_for_slot(self) -> Permit:
        deadline = time.monotonic() + self._timeout
        while (left := deadline - time.monotonic()) > 0:
            self._replace_the_lost()
            with suppress(Empty):
                return self._free.get(timeout=min(left, POLL_INTERVAL))
        gc.collect()  # what a signal left behind may be part of a cycle
        self._replace_the_lost()
        try:
            return self._free.get_nowait()
        except Empty:
            raise DatabaseBusy(
                f"all {self._size} connections were in use for {self._timeout:g} seconds: "
                "end transactions sooner, or give the store a larger pool_size"
            ) from None

    def _replace_the_lost(self) -> None:
        """Count the slots. A signal that raises between two lines can lose one for good."""
        with self._counting:
            for permits in tuple(self._idle.values()):
                self._vacate(permits)
            # not its len(): a signal in the set's own callback leaves a dead one counted
            for _ in range(self._size - len(list(self._issued))):
                permit = Permit()
                self._issued.add(permit)
                self._free.put(permit)

    def _take(self, permits: list[Permit]) -> PooledConnection:
        while True:
            pooled = self._take_idle(permits)
            if pooled is None:
                pooled = self._open()
                pooled.permits = permits
                return pooled
            try:
                now = time.monotonic()
                if pooled.file is not None and now > pooled.file.good_until:
                    pooled.check_file()
                if now - pooled.rested_since < PING_AFTER or pooled.connection.is_alive():
                    return pooled
            except BaseException:
                self._rest(pooled)
                raise
            pooled.close(is_broken=True)

    def _take_idle(self, permits: list[Permit]) -> PooledConnection | None:
        for pooled in reversed(tuple(self._idle)):
            if pooled in self._idle:  # one step up to `slots`: see above
                before = self._idle[pooled]
                del self._idle[pooled]
                pooled.permits = permits
                if before:  # hardly ever
                    try:
                        self._vacate(before)
                    except BaseException:
                        self._rest(pooled)
                        raise
                return pooled
        return None

    def release(self, pooled: PooledConnection) -> None:
        pooled.rested_since = time.monotonic()
        permits = self._rest(pooled)
        self._vacate(permits)
        if self.closed:
            self.discard_idle()

    def _rest(self, pooled: PooledConnection) -> list[Permit]:
        permits = pooled.permits or []
        self._idle[pooled] = permits  # one step up to None: see above
        pooled.permits = None
        return permits

    def discard(self, pooled: PooledConnection) -> None:
        permits, pooled.permits = pooled.permits or [], None
        try:
            pooled.close(is_broken=True)
        finally:
            self._vacate(permits)

    def _vacate(self, permits: list[Permit]) -> None:
        try:  # noqa: SIM105 - `suppress` takes as long as all of this
            self._free.put(permits.pop())
        except IndexError:
            pass

    def discard_idle(self) -> None:
        for pooled in tuple(self._idle):
            if pooled in self._idle:
                permits = self._idle[pooled]
                del self._idle[pooled]
                self._vacate(permits)
                pooled.close()

    def close(self, timeout: float) -> None:
        with self._counting:
            if self.closed:
                return
            self.closed = True
        self._replace_the_lost()
        deadline = time.monotonic() + timeout
        taken: list[Permit] = []
        with suppress(Empty):
            while len(taken) < self._size:
                taken.append(self._free.get(timeout=max(0.0, deadline - time.monotonic())))
        self.discard_idle()
        for permit in taken:  # whoever waits shall hear that the store is closed
            self._free.put(permit)

    def pause(self, deadline: float) -> bool:
        self._resumed = Flag()
        with suppress(Empty):
            while len(self._paused) < self._size:
                self._paused.append(self._free.get(timeout=max(0.0, deadline - time.monotonic())))
        self.discard_idle()
        return len(self._paused) == self._size

    def resume(self) -> None:
        while self._paused:
            self._free.put(self._paused.pop())
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None


class EnginePool:
    """The pool of the caller's engine; `one_by_one` where all of it is one connection."""

    def __init__(
        self, open: Callable[[], PooledConnection], timeout: float, *, one_by_one: bool
    ) -> None:
        self._open, self._timeout = open, timeout
        self._lock = threading.Lock() if one_by_one else None
        self.closed = False

    def acquire(self) -> PooledConnection:
        if self.closed:
            raise StoreClosed("the store is closed")
        if self._lock is not None and not self._lock.acquire(timeout=self._timeout):
            raise DatabaseBusy(f"the one connection was in use for {self._timeout:g} seconds")
        try:
            return self._open()
        except BaseException:
            self._end_turn()
            raise

    def release(self, pooled: PooledConnection) -> None:
        try:
            pooled.close()
        finally:
            self._end_turn()

    def discard(self, pooled: PooledConnection) -> None:
        self.release(pooled)

    def _end_turn(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def discard_idle(self) -> None:
        """Nothing rests here."""

    def close(self, timeout: float) -> None:  # noqa: ARG002
        self.closed = True

    def pause(self, deadline: float) -> bool:  # noqa: ARG002
        """The caller's connections are the caller's."""
        return False

    def resume(self) -> None:
        """Nothing was paused."""
