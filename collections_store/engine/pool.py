"""The connections of a store.

SQLAlchemy's engine opens and closes connections. `ConnectionPool` keeps the connections of the store's own engine
between operations: a checkout from SQLAlchemy's pool costs as much as a `get` on SQLite (5 of 11 µs). `EnginePool`
takes each connection from the caller's engine, and returns the connection at once: the engine's pool is shared.

Rules of `ConnectionPool`:

1. A connection has one user at a time, and the user has one of `size` permits. The connection used last is used first.
2. A signal raised in the main thread loses neither a connection nor a permit. CPython looks for signals at the
   beginning of a function, at a jump backwards and after a call of a function written in C: an uninterruptible step
   consists of assignments only.
3. Permits are known by weak references, and counted again where a caller has to wait.
4. Before use, a connection's file is checked, at most once a millisecond. A connection without a file is tried after a
   long idle time, or after input from the server: most sessions end with such input. No write is lost by the trial.
5. Permits are granted in the order of the requests: a released permit goes to the caller that has waited longest, and
   further callers wait behind. A thread that works in a loop may take its permit back for up to `STREAK` seconds; the
   next release, or the first waiting caller, grants a permit that was not taken back. A permit granted to a caller whom a
   signal ended is lost, and counted again.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

import sqlalchemy as sa

from ..errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    InvalidOption,
    StoreClosed,
    shortened,
)
from ..operations.catalogue import Catalogue
from ..operations.connection import add_functions
from ..operations.echo import EchoingDriver
from ..operations.session import DriverSession, SharedSession
from ..options import Options
from ..sql.dialects.protocols import Database
from .database_file import DatabaseFile, OpenFile, leak, opening, refuse_at_times
from .jobs import Flag, snapshot
from .permits import STREAK, Permit, this_thread

PING_AFTER: Final = 30.0
"""Seconds without use after which a connection is tried before it is used."""
LOOK_AFTER: Final = 0.001
"""Seconds without use after which a connection is checked for input from the server."""


_COUNT_EVERY: Final = 0.05
"""Seconds after which a waiting caller counts the permits."""


class PooledConnection:
    """A connection of a pool, and the pool's notes on the connection."""

    __slots__ = (
        "__weakref__",
        "acquired_at",
        "connection",
        "file",
        "permits",
        "released_at",
        "sa",
        "tainted",
    )

    acquired_at: float
    connection: DriverSession | SharedSession
    released_at: float
    tainted: bool

    def __init__(
        self, sa_connection: sa.Connection, connection: DriverSession | SharedSession
    ) -> None:
        self.sa: sa.Connection = sa_connection
        self.connection = connection
        self.file: OpenFile | None = None
        self.acquired_at = self.released_at = 0.0
        self.permits: list[Permit] | None = None
        """The permit of the present user, in a list: only one caller can take the permit out of a list."""
        self.tainted = False
        """Whether a cancel request is on its way, which may meet the next statement."""

    def check_file(self, file: OpenFile) -> None:
        """Raise `DatabaseUnavailable` if the file was replaced."""
        if not file.is_intact():
            self._flush_log(file)
            raise file.error()

    def _flush_log(self, file: OpenFile) -> None:
        """Copy the log of a replaced file into the old file: a user of the new file would take the log for the new
        file's.
        """
        if file.is_replaced and isinstance(self.connection, DriverSession):
            database = self.connection.database
            for statement in database.connections.flush_log:
                with suppress(*database.errors.types()):
                    self.connection.command(statement)

    def may_be_lost(self, idle: float) -> bool:
        """Return whether the database may have ended the connection after `idle` seconds without use."""
        if idle < LOOK_AFTER or not isinstance(self.connection, DriverSession):
            return False
        return idle > PING_AFTER or self.connection.has_input()

    def close(self, *, is_broken: bool = False) -> None:
        """Close the connection, unless that would damage the file."""
        if self.file is not None:
            if not self.file.can_be_closed:
                leak(self)
                return
            self._flush_log(self.file)
        if is_broken:
            self.sa.invalidate()
        self.sa.close()


def check_driver(option: str, dialect: sa.Dialect, database: Database) -> None:
    """Raise `InvalidOption` unless a caller's engine or connection has a supported driver."""
    if dialect.is_async and option == "engine":
        raise InvalidOption(option, "give a synchronous engine, or use bind(connection)")
    if dialect.name != database.name:
        raise InvalidOption(option, f"it leads to {dialect.name}, not {database.name}")
    if dialect.driver not in database.drivers:
        known = " or ".join(sorted(database.drivers))
        raise InvalidOption(option, f"its driver is {dialect.driver}: use {known}")


def open_engine(url: sa.URL, database: Database, options: Options) -> sa.Engine:
    """Return an engine of the store's own."""
    arguments = database.connections.engine_arguments(url, busy_timeout=options.busy_timeout)
    engine = sa.create_engine(database.urls.connect_url(url), **arguments)
    kind = database.connections.connection_class(options)
    if kind is not None:

        def connect(_: sa.Dialect, __: Any, arguments: Any, parameters: Any) -> Any:
            return kind.connect(*arguments, **kind.arranged(parameters))

        sa.event.listen(engine, "do_connect", connect)
    return engine


def file_of(url: sa.URL, database: Database) -> DatabaseFile | None:
    """Return the file of a URL if the file is locked while open and must be checked; else None."""
    path = database.urls.file_of(url)
    if path is None or not database.urls.is_locked(url):
        return None
    return DatabaseFile(path, is_created=database.urls.is_created(url))


def translate(
    error: Exception, engine: sa.Engine | None, database: Database
) -> CollectionsStoreError:
    """Return the library's error for a driver's error. An error about the file of `engine` names the file."""
    found = database.errors.translate(error)
    path = None if engine is None else database.urls.file_of(engine.url)
    if path is None or type(found) not in {DatabaseError, DatabaseUnavailable}:
        return found
    return type(found)(f"the SQLite file {shortened(path, 400)}: {found}")


def open_driver_connection(
    engine: sa.Engine,
    file: DatabaseFile | None,
    catalogue: Catalogue,
    options: Options,
    timeout: float,
) -> PooledConnection:
    """Connect with the store's own engine, and set the connection's settings."""
    if file is None:
        return _connect(engine, catalogue, options, timeout)
    with opening():
        file.prepare()
        pooled = _connect(engine, catalogue, options, timeout)
        pooled.file = file.opened()
    # weak: a connection that an interrupted caller lost must be closed at once, not when cycles are collected
    check = partial(_check_file, weakref.ref(pooled), pooled.file)
    assert isinstance(pooled.connection, DriverSession)
    pooled.connection.before_commit.append(check)
    return pooled


def _connect(
    engine: sa.Engine, catalogue: Catalogue, options: Options, timeout: float
) -> PooledConnection:
    database = catalogue.statements.database
    connection: sa.Connection | None = None
    try:
        connection = engine.connect()
        driver = connection.connection.driver_connection
        add_functions(driver, database)
        ours = _set_up(driver, engine.url, catalogue, options, timeout)
    except BaseException as error:
        if connection is not None:  # the error's traceback would keep it open
            connection.invalidate()
            connection.close()
        if isinstance(error, database.errors.types()):
            raise translate(error, engine, database) from error
        raise
    return PooledConnection(connection, ours)


def _set_up(
    driver: Any, url: sa.URL, catalogue: Catalogue, options: Options, timeout: float
) -> DriverSession:
    """Set the settings of a driver's connection; through a pooler, of each transaction."""
    ours = DriverSession(driver, catalogue)
    connections, is_pooled = ours.database.connections, options.pooler == "transaction"
    if options.pooler is None and connections.process_probe is not None:
        [(process,)] = ours.rows(connections.process_probe)
        is_pooled = connections.is_pooled(driver, process)
    connections.configure(driver, url, is_pooled=is_pooled)
    probe = connections.problem_probe(options)
    for [problem] in () if probe is None else ours.rows(probe):
        raise DatabaseUnavailable(problem)
    if not is_pooled:
        for statement in connections.settings(options, busy_timeout=timeout):
            ours.command(statement)
    local = connections.local_settings(options, busy_timeout=timeout, is_pooled=is_pooled)
    if options.echo:
        driver = EchoingDriver(driver, shows_parameters=options.echo == "debug")
    return DriverSession(driver, catalogue, local, is_pooled=is_pooled)


def _check_file(known: weakref.ref[PooledConnection], file: OpenFile) -> None:
    """Raise `DatabaseUnavailable` if the file was replaced, unless the file was checked just now."""
    if time.monotonic() > file.valid_until and (pooled := known()) is not None:
        pooled.check_file(file)


def open_shared_connection(
    engine: sa.Engine, path: str | None, catalogue: Catalogue
) -> PooledConnection:
    """Borrow a connection to the file at a path, or without a file, from the caller's engine."""
    database = catalogue.statements.database
    if path is not None:
        refuse_at_times(path)
    options = database.transactions.shared_options
    try:
        connection = engine.connect()
        if (
            options
        ):  # as options of an engine, those of the engine that it derives from override them
            connection.execution_options(**options)
    except database.errors.types() as error:
        raise translate(error, engine, database) from error
    except sa.exc.TimeoutError as error:
        raise DatabaseBusy(f"the engine's pool has no connection free: {error}") from error
    return PooledConnection(connection, SharedSession(connection, catalogue))


class Pool:
    """A source of connections."""

    closed: bool
    waited: float = 0.0
    """Seconds for which callers have waited in all."""

    def __init__(self, open: Callable[[], PooledConnection], timeout: float) -> None:
        self._open, self._timeout = open, timeout
        self.closed = False

    def acquire(self) -> PooledConnection:
        """Return a connection for the caller alone; raises `DatabaseBusy` and `StoreClosed`."""
        raise NotImplementedError

    def release(self, pooled: PooledConnection) -> None:
        """Return a connection to the pool."""
        raise NotImplementedError

    def discard(self, pooled: PooledConnection) -> None:
        """Return a connection that must not be used again."""
        self.release(pooled)

    def discard_idle(self) -> None:
        """Close the idle connections."""

    def close(self, timeout: float) -> None:  # noqa: ARG002
        """Close all connections; wait up to `timeout` seconds for connections in use."""
        self.closed = True

    def pause(self, deadline: float) -> bool:  # noqa: ARG002
        """Let nobody acquire a connection, and close idle connections; wait until `deadline` for connections in use.
        Return whether all are closed: a caller's own connections never are.
        """
        return False

    def resume(self) -> None:
        """End a pause."""

    def _count_wait(self, started: float) -> None:
        seconds = time.monotonic() - started
        self.waited += seconds
        this_thread.running.note("wait", seconds)


class ConnectionPool(Pool):
    """Up to `size` connections of the store's own."""

    def __init__(self, open: Callable[[], PooledConnection], size: int, timeout: float) -> None:
        super().__init__(open, timeout)
        self._size = size
        self._idle: dict[PooledConnection, list[Permit]] = {}
        """The idle connections, each with the last user's permit until the permit is free again."""
        self._free: SimpleQueue[Permit] = SimpleQueue()
        self._issued: weakref.WeakSet[Permit] = weakref.WeakSet()
        self._counting = threading.Lock()
        self._waiting: deque[SimpleQueue[Permit]] = deque()
        """The waiting callers, each with the queue that gets the caller's permit."""
        self._paused: list[Permit] = []
        self._resumed: Flag | None = None
        self._replace_lost_permits()

    def acquire(self) -> PooledConnection:
        """Return a connection for the caller alone; raises `DatabaseBusy` and `StoreClosed`."""
        if (resumed := self._resumed) is not None:
            resumed.wait(self._timeout)
        try:
            must_wait = self._waiting and not _goes_on()
            permits = [self._wait_for_permit() if must_wait else self._free.get_nowait()]
        except Empty:
            permits = [self._wait_for_permit()]
        pooled: PooledConnection | None = None
        try:
            if self.closed:
                raise StoreClosed("the store is closed")
            for pooled in reversed(snapshot(self._idle)):
                if pooled in self._idle:  # still; from here to `permits` is one step (rule 2)
                    before = self._idle[pooled]
                    del self._idle[pooled]
                    pooled.permits = permits
                    if before:  # a signal interrupted the release by its last user
                        self._free_permit(before)
                    file, time_now = pooled.file, time.monotonic()
                    pooled.acquired_at = time_now
                    if file is not None:
                        if time_now > file.valid_until:
                            pooled.check_file(file)
                    elif (
                        pooled.may_be_lost(time_now - pooled.released_at)
                        and not pooled.connection.is_alive()
                    ):
                        pooled.permits = None
                        pooled.close(is_broken=True)
                        continue
                    return pooled
            pooled = self._open()
            pooled.permits = permits
            return pooled
        except BaseException:
            if pooled is not None and pooled.permits is permits:
                self._set_idle(pooled)
            self._free_permit(permits)
            raise

    def _wait_for_permit(self) -> Permit:
        started = counted = time.monotonic()
        granted: SimpleQueue[Permit] = SimpleQueue()
        try:
            self._waiting.append(granted)
            self._grant()  # one may have been released before this waited
            while (left := started + self._timeout - time.monotonic()) > 0:
                is_first = self._first_waiting() is granted
                with suppress(Empty):
                    pause = 2 * STREAK if is_first else _COUNT_EVERY
                    permit = granted.get(timeout=min(left, pause))
                    self._begin_streak(started)
                    return permit
                self._grant()
                if time.monotonic() > counted + _COUNT_EVERY:
                    counted = time.monotonic()
                    self._replace_lost_permits()
            gc.collect()  # a permit that an interrupted caller lost may be part of a cycle
            self._replace_lost_permits()
            return granted.get_nowait()
        except BaseException as error:
            with suppress(ValueError):
                self._waiting.remove(granted)
            with suppress(Empty):
                self._free.put(granted.get_nowait())  # granted too late
            self._grant()
            if isinstance(error, Empty):
                raise DatabaseBusy(
                    f"all {self._size} connections were in use for {self._timeout:g} seconds: "
                    "end transactions sooner, or give the store a larger pool_size"
                ) from None
            raise

    def _begin_streak(self, started: float) -> None:
        """Count a wait, and let a thread in a loop go on while others wait."""
        self._count_wait(started)
        streak = this_thread.running.streak
        streak.until = time.monotonic() + STREAK if started < streak.next_by else 0.0

    def _pass_on(self, pooled: PooledConnection) -> None:
        """Grant the free permits after an operation; keep one for this thread's streak."""
        streak, now = this_thread.running.streak, time.monotonic()
        streak.next_by = now + 2 * (now - pooled.acquired_at)
        self._grant(int(now < streak.until))

    def _grant(self, kept: int = 0) -> None:
        """Grant the free permits except `kept` to waiting callers, in order."""
        while self._waiting and self._free.qsize() > kept:
            try:
                permit = self._free.get_nowait()
            except Empty:
                return
            try:
                self._waiting.popleft().put(permit)
            except IndexError:
                self._free.put(permit)

    def _first_waiting(self) -> SimpleQueue[Permit] | None:
        try:
            return self._waiting[0]
        except IndexError:
            return None

    def _replace_lost_permits(self) -> None:
        """Count the permits, and replace lost permits: a signal raised between two lines can lose a permit."""
        with self._counting:
            for permits in snapshot(self._idle.values()):
                self._free_permit(permits)
            # not its len(): a signal in the set's own callback leaves a dead one counted
            for _ in range(self._size - len(list(self._issued))):
                permit = Permit()
                self._issued.add(permit)
                self._free.put(permit)
        self._grant()

    def release(self, pooled: PooledConnection) -> None:
        """Return a connection to the pool, or close a broken connection."""
        if pooled.tainted or pooled.connection.is_lost:
            self.discard(pooled)
            return
        if pooled.file is None:  # else the file is checked, not the time
            pooled.released_at = time.monotonic()
        permits = pooled.permits or []
        self._idle[pooled] = permits  # one step with the next line (rule 2)
        pooled.permits = None
        try:  # noqa: SIM105 - `suppress` takes as long as all of this
            self._free.put(permits.pop())
        except IndexError:
            pass
        if self._waiting:
            self._pass_on(pooled)
        if self.closed:
            self.discard_idle()

    def _set_idle(self, pooled: PooledConnection) -> None:
        self._idle[pooled] = pooled.permits or []  # one step with the next line (rule 2)
        pooled.permits = None

    def _free_permit(self, permits: list[Permit]) -> None:
        try:  # noqa: SIM105 - `suppress` takes as long as all of this
            self._free.put(permits.pop())
        except IndexError:
            pass
        self._grant()

    def discard(self, pooled: PooledConnection) -> None:
        """Close a connection that must not be used again, and free its permit."""
        permits, pooled.permits = pooled.permits or [], None
        try:
            pooled.close(is_broken=True)
        finally:
            self._free_permit(permits)

    def discard_idle(self) -> None:
        """Close the idle connections."""
        for pooled in snapshot(self._idle):
            if pooled in self._idle:
                permits = self._idle[pooled]
                del self._idle[pooled]
                self._free_permit(permits)
                pooled.close()

    def close(self, timeout: float) -> None:
        """Close all connections; wait up to `timeout` seconds for connections in use."""
        with self._counting:
            if self.closed:
                return
            self.closed = True
        self._replace_lost_permits()
        taken: list[Permit] = []
        self._take_permits(taken, time.monotonic() + timeout)
        self.discard_idle()
        for permit in taken:  # waiting threads learn that the store is closed
            self._free.put(permit)
        self._grant()

    def pause(self, deadline: float) -> bool:
        """Let nobody acquire a connection, and close idle connections; wait until `deadline` for connections in use."""
        self._resumed = Flag()
        self._take_permits(self._paused, deadline)
        self.discard_idle()
        return len(self._paused) == self._size

    def _take_permits(self, taken: list[Permit], deadline: float) -> None:
        with suppress(Empty):
            while len(taken) < self._size:
                taken.append(self._free.get(timeout=max(0.0, deadline - time.monotonic())))

    def resume(self) -> None:
        """End a pause."""
        while self._paused:
            self._free.put(self._paused.pop())
        self._grant()
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None


def _goes_on() -> bool:
    """Return whether an operation of this thread continues the thread's streak."""
    streak = this_thread.running.streak
    return time.monotonic() < min(streak.until, streak.next_by)


class EnginePool(Pool):
    """The pool of the caller's engine; `one_by_one` for an engine with a single connection."""

    def __init__(
        self, open: Callable[[], PooledConnection], timeout: float, *, one_by_one: bool
    ) -> None:
        super().__init__(open, timeout)
        self._lock = threading.Lock() if one_by_one else None

    def acquire(self) -> PooledConnection:
        """Return a connection for the caller alone; raises `DatabaseBusy` and `StoreClosed`."""
        if self.closed:
            raise StoreClosed("the store is closed")
        if self._lock is not None and not self._acquire_lock(self._lock):
            raise DatabaseBusy(f"the one connection was in use for {self._timeout:g} seconds")
        try:
            return self._open()
        except BaseException:
            self._unlock()
            raise

    def release(self, pooled: PooledConnection) -> None:
        """Return a connection to the caller's engine."""
        try:
            pooled.close()
        finally:
            self._unlock()

    def discard(self, pooled: PooledConnection) -> None:
        """Close a connection; the single connection of a database in memory stays open."""
        try:
            pooled.close(is_broken=self._lock is None)
        finally:
            self._unlock()

    def _acquire_lock(self, lock: threading.Lock) -> bool:
        if lock.acquire(blocking=False):
            return True
        started = time.monotonic()
        is_acquired = lock.acquire(timeout=self._timeout)
        self._count_wait(started)
        return is_acquired

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
