"""An opened database: its connections, and who writes on which.

Rules:

1. On an SQLite file one connection writes and some read beside it; a waiting writer joins the group that commits
   next.
2. In memory all share one connection. Nobody uses it while a transaction is open.
3. On PostgreSQL every connection writes. Atomic writes of tasks go through a write queue of their own, as groups.
4. With replicas, the reads of collections run on one of these: see `replicas`.
5. An operation that would wait for a transaction of its own caller, or for the operation that calls it, is refused at
   once.
6. A transaction that only reads waits for no writer: on an SQLite file it has a permit and a connection of the readers'.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

import sqlalchemy as sa

from ..errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidOption,
    TransactionConflict,
    shortened,
)
from ..operations.catalogue import Catalogue
from ..operations.operation import Operation
from ..options import Consistency, Options, read_url
from ..sql.dialects.protocols import Database
from ..sql.dialects.support import reconnects_for
from .database_file import DatabaseFile
from .executor import Executor
from .group_commit import GroupCommit, run_group
from .inherited import protect
from .jobs import Job
from .lifecycle import make_ready
from .permits import NESTED, OWN, TransactionPermits, running_here
from .pool import (
    ConnectionPool,
    EnginePool,
    Pool,
    file_of,
    open_driver_connection,
    open_engine,
    open_shared_connection,
)
from .replicas import ANSWER, ReadSession, Replicas
from .retry import Retries
from .transactions import TransactionManager
from .workers import pause_at_forks


def check_engine(engine: sa.Engine, options: Options, database: Database) -> None:
    """Raise `InvalidOption` for an engine that cannot be used, or not with these options."""
    options.check_for_engine()
    if database.urls.is_private(engine.url) and not isinstance(engine.pool, sa.StaticPool):
        raise InvalidOption(
            "engine", "each of its connections is a database of its own: use poolclass=StaticPool"
        )


def read_target(
    url: str | sa.URL | None, engine: sa.Engine | None
) -> tuple[sa.URL, sa.Engine | None]:
    """Return the URL that is meant, and the caller's engine if there is one; raises `InvalidOption` and
    `InvalidUrl`.
    """
    if (url is None) == (engine is None):
        raise InvalidOption("url", "give a store either a URL or an engine")
    if engine is not None:
        if not isinstance(engine, sa.Engine):
            raise InvalidOption(
                "engine", f"{shortened(engine)} is not a (synchronous) sqlalchemy.Engine"
            )
        return engine.url, engine
    assert url is not None
    return read_url(url), None


T = TypeVar("T")

ROW_LOCK_TIMEOUT: Final = 0.1
"""Seconds for which a group waits for a row that a transaction has locked, before each of its jobs runs alone."""
OPENING: Final = 1.0
"""Seconds for which the first use tries to reach a server."""


class Backend:
    """Runs operations. It makes the database ready for reads when it is created, and before the first write for writes.

    `hand_over` runs the jobs that PostgreSQL's write queue could not run as a group; without it, that runs them alone.
    """

    executor: Executor
    transactions: TransactionManager
    read_transactions: TransactionManager
    """Begins the transactions that only read."""
    write_queue: GroupCommit | None = None
    readers: Mapping[Consistency, Executor] = MappingProxyType({})
    """What runs reads on replicas."""
    _pools: list[Pool]

    def __init__(
        self,
        where: sa.URL | sa.Engine,
        catalogue: Catalogue,
        options: Options,
        permits: TransactionPermits,
        read_permits: TransactionPermits,
        *,
        hand_over: Callable[[Job], None] | None = None,
        write: bool,
    ) -> None:
        self._catalogue, self._options = catalogue, options
        self._permits, self._read_permits = permits, read_permits
        self.database: Database = catalogue.statements.database
        self._single_writer = self.database.single_writer
        url = where.url if isinstance(where, sa.Engine) else where
        self._is_private = self.database.urls.is_private(url)
        self._has_one_connection = connection_limit(url, options, self.database) == 1
        self._own: sa.Engine | None = None
        self._replicas: Replicas | None = None
        self._file: DatabaseFile | None = None
        self._is_paused = False
        self._hand_over = None if self._single_writer else hand_over
        if isinstance(where, sa.Engine):
            self._borrow(where)
        else:
            self._file = file_of(where, self.database)
            self._connect(where)
        self.read_transactions = TransactionManager(
            self.executor, None, read_permits, self.prepare, writes=False
        )
        if self._file is not None:
            pause_at_forks(self)
        self._is_writable, self._preparing = False, threading.Lock()
        try:
            self._make_ready(write=write)
        except BaseException:
            self._disconnect(options.busy_timeout)
            raise

    def _connect(self, url: sa.URL) -> None:
        options, database, busy_timeout = self._options, self.database, self._options.busy_timeout
        self._own = engine = open_engine(url, database, options)

        session = None if options.replicas is None else ReadSession()

        def pool(
            size: int,
            timeout: float,
            session: ReadSession | None = session,
            patience: float = busy_timeout,
        ) -> ConnectionPool:
            details = (engine, self._file, self._catalogue, options, timeout)
            opened = partial(open_driver_connection, *details)
            if session is not None:
                opened = partial(session.follow, opened)
            return ConnectionPool(opened, size, patience)

        size = connection_limit(url, options, database)
        main = pool(size, busy_timeout)
        if self._is_private:
            writing = main
        else:
            writing = pool(1, busy_timeout if self._single_writer else ROW_LOCK_TIMEOUT)
        self._pools = [main, writing]
        self.executor, writer = self._new_executor(main), self._new_executor(writing)
        run = partial(run_group, writer, self._hand_over)
        self.write_queue = GroupCommit(writer.run, run, busy_timeout)
        begins = writer if self._single_writer else self.executor
        self.transactions = TransactionManager(
            begins, self.write_queue, self._permits, self.prepare
        )
        if session is not None:
            self._pools.append(pool(1, busy_timeout, None, min(busy_timeout, ANSWER)))
            asking = self._new_executor(self._pools[-1])
            self._replicas = Replicas(options, size, session, self.executor, asking)
            self.readers = self._replicas.readers

    def _borrow(self, engine: sa.Engine) -> None:
        if not self._is_private:
            protect(engine)
        engine = engine.execution_options(**self.database.transactions.shared_options)
        opener = partial(open_shared_connection, engine, self._catalogue)
        pool = EnginePool(opener, self._options.busy_timeout, one_by_one=self._is_private)
        self._pools = [pool]
        self.executor = self._new_executor(pool)
        self.transactions = TransactionManager(self.executor, None, self._permits, self.prepare)

    def _new_executor(self, pool: Pool) -> Executor:
        return Executor(
            self.database,
            pool,
            self._catalogue,
            timeout=self._options.busy_timeout,
            retries=partial(Retries.of, self._options, self.database),
            lost=self._discard_idle,
        )

    def _discard_idle(self) -> None:
        """Close the idle connections: where one broke, the others did too."""
        for pool in self._pools:
            pool.discard_idle()

    def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Run an operation in this thread."""
        if operation.writes or self._has_one_connection:
            self._refuse_to_wait(operation, takes_the_only=self._has_one_connection)
        if not self._is_writable:
            self.prepare(write=operation.writes)
        try:
            if operation.writes and self._single_writer and self.write_queue is not None:
                result: T = self.write_queue.run(operation)
                return result
            if consistency == "strong":  # the usual one, sooner
                return self.executor.run(operation)
            return self.readers.get(consistency, self.executor).run(operation)
        except DatabaseBusy as error:
            self.note_own_transaction(error)
            raise

    def _refuse_to_wait(self, operation: Operation[object], *, takes_the_only: bool) -> None:
        """Raise `DatabaseBusy` by rule 5. `takes_the_only`: the operation needs the only connection of the pool."""
        if running_here.catalogue is self._catalogue:
            raise DatabaseBusy(NESTED, is_final=True)
        permits = self._permits if operation.writes else self._read_permits
        waits = takes_the_only or (self._single_writer and operation.writes)
        if waits and (permits.granted or permits.callers):
            permits.refuse_own_transaction()

    def note_own_transaction(self, error: DatabaseBusy) -> None:
        """Add to the error that the caller has a transaction open itself, if that is so."""
        if self._permits.has_own_transaction():
            error.args = (f"{error} ({OWN})",)

    def queue_of(self, operation: Operation[object]) -> GroupCommit | None:
        """Return the write queue if a task's operation goes through it. Raise `DatabaseBusy` if the operation would wait
        for a transaction of its own caller's.
        """
        is_queued = operation.writes and (self._single_writer or operation.atomic)
        takes_the_only = self._has_one_connection and not is_queued
        self._refuse_to_wait(operation, takes_the_only=takes_the_only)
        return self.write_queue if is_queued else None

    def run_job(self, job: Job) -> None:
        """Run a claimed job in this thread, and report the outcome."""
        if self.write_queue is not None and self._single_writer and job.operation.writes:
            job.unclaim()
            self.write_queue.waiting.append(job)
            while not job.done and self.write_queue.waiting:
                self.write_queue.advance()
        else:
            self.readers.get(job.consistency, self.executor).run_job(job)

    def is_ready(self, *, write: bool) -> bool:
        """Return whether the database is known to have what a read needs, or a `write`."""
        return self._is_writable or (self._catalogue.exists and not write)

    def prepare(self, *, write: bool) -> None:
        """Make the database ready for a read, or for a `write`, unless it is."""
        if not self.is_ready(write=write):
            with self._preparing:
                if not self.is_ready(write=write):
                    self._make_ready(write=write)

    def close(self, timeout: float) -> None:
        """Wait for the operations that run, and close the connections.

        An operation that runs for longer than `timeout` seconds closes its connection itself. So does a transaction, when
        its context ends; it cannot be used any more.
        """
        deadline = time.monotonic() + timeout
        self.close_transactions(timeout)
        self._disconnect(deadline - time.monotonic())

    def close_transactions(self, timeout: float) -> None:
        """Begin no more transactions; wait for those that are open, and then roll them back."""
        deadline = time.monotonic() + timeout
        for permits in (self._permits, self._read_permits):
            permits.close(deadline - time.monotonic())
        self.transactions.close()
        self.read_transactions.close()

    def _disconnect(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for pool in self._pools:
            pool.close(deadline - time.monotonic())
        if self._replicas is not None:
            self._replicas.close(deadline - time.monotonic())
        if self._own is not None:
            self._own.dispose()

    def pause(self, deadline: float) -> None:
        """Close the connections before a fork. A transaction of the forking thread cannot end meanwhile: wait for none."""
        if any(
            each.has_transaction_of_this_thread() for each in (self._permits, self._read_permits)
        ):
            deadline = 0.0
        paused = [pool.pause(deadline) for pool in self._pools]
        self._is_paused = all(paused)

    def resume(self) -> None:
        """Open connections again, when they are needed."""
        self._is_paused = False
        for pool in self._pools:
            pool.resume()

    @property
    def has_file_open(self) -> bool:
        """Whether connections to a file are open."""
        return self._file is not None and not self._is_paused

    def _make_ready(self, *, write: bool) -> None:
        """Make the database ready, also while other processes do so, or while a server starts. A server that does not
        answer is soon given up: the URL may be wrong.
        """
        reconnect_for = min(OPENING, reconnects_for(self._options, self.database))
        until = time.monotonic() + reconnect_for
        retries = Retries(self._options.busy_timeout, reconnect_for)
        while True:
            try:
                pooled = self._pools[0].acquire()
                lost = False
                try:
                    with nullcontext() if self._own is not None else pooled.sa.begin():
                        make_ready(pooled, self._options, write=write)
                    self._is_writable = self._is_writable or write
                    return
                except DatabaseUnavailable:
                    lost = True
                    raise
                finally:
                    self.executor.release(pooled, lost)
            except (DatabaseBusy, DatabaseUnavailable, TransactionConflict) as error:
                is_over = self._single_writer or time.monotonic() > until
                if isinstance(error, DatabaseUnavailable) and is_over:
                    raise  # a file that cannot be opened now cannot be opened later
                time.sleep(retries.pause(error))


def connection_limit(url: sa.URL, options: Options, database: Database) -> int:
    """Return how many operations run at a time, besides the write queue."""
    return 1 if database.urls.is_private(url) else options.pool_size or database.pool_size


def transaction_limit(
    url: sa.URL, options: Options, database: Database, *, write: bool = True
) -> int:
    """Return how many transactions may be open at a time, so that single operations find a connection; how many that do not
    `write`, where only one writes.
    """
    if write and database.single_writer:
        return 1
    return max(1, connection_limit(url, options, database) - 1)
