"""The open half of a store: its database, its connections, and who writes on which.

On an SQLite file one connection writes and some read beside it; whoever waits to write joins the
group that commits next. In memory all share one connection. On PostgreSQL every connection writes;
awaited writes of one statement each go through a write_queue of their own, as groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
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
from ..options import Options, read_url
from ..sql.dialects.protocols import Database
from .database_file import DatabaseFile
from .executor import Executor
from .forking import pause_at_forks
from .group_commit import GroupCommit
from .jobs import Job
from .lifecycle import RETRY_PAUSE, make_ready
from .permits import OWN, TransactionPermits
from .pool import (
    ConnectionPool,
    EnginePool,
    Pool,
    file_of,
    open_driver_connection,
    open_engine,
    open_shared_connection,
)
from .transactions import TransactionManager


def check_driver(option: str, dialect: sa.Dialect, database: Database) -> None:
    """Raise `InvalidOption` unless a caller's engine or connection has a driver that can be used."""
    if dialect.is_async and option == "engine":
        raise InvalidOption(option, "give a synchronous engine, or use bind(connection)")
    if dialect.name != database.name:
        raise InvalidOption(option, f"it leads to {dialect.name}, not {database.name}")
    if dialect.driver not in database.drivers:
        known = " or ".join(sorted(database.drivers))
        raise InvalidOption(option, f"its driver is {dialect.driver}: use {known}")


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
"""Seconds the write_queue waits for a row that some transaction holds, before its jobs go their own ways."""


class Backend:
    """Runs operations; made ready when it is made. `turns` are those of its transactions; `hand_over`
    takes what the write_queue of PostgreSQL could not run with others; None: the write_queue runs it alone.
    """

    def __init__(
        self,
        where: sa.URL | sa.Engine,
        catalogue: Catalogue,
        options: Options,
        permits: TransactionPermits,
        hand_over: Callable[[Job], None] | None = None,
    ) -> None:
        self._catalogue, self._options, self._permits = catalogue, options, permits
        self.database: Database = catalogue.statements.database
        url = where.url if isinstance(where, sa.Engine) else where
        self._is_private = self.database.urls.is_private(url)
        self._own: sa.Engine | None = None
        self._file: DatabaseFile | None = None
        self._is_paused = False
        self.write_queue: GroupCommit | None = None
        self._hand_over = None if self.database.single_writer else hand_over
        if isinstance(where, sa.Engine):
            self._borrow(where)
        else:
            self._file = file_of(where, self.database)
            self._connect(where)
        if self._file is not None:
            pause_at_forks(self)
        try:
            self._make_ready()
        except BaseException:
            self._disconnect(options.busy_timeout)
            raise

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in this thread."""
        self.refuse_own_transaction(operation)
        try:
            return self._run(operation)
        except DatabaseBusy as error:
            self.blame(error)
            raise

    def _run(self, operation: Operation[T]) -> T:
        if self.write_queue is not None and self._goes_to_the_writer(operation):
            result: T = self.write_queue.run(operation)
            return result
        return self.executor.run(operation)

    def refuse_own_transaction(self, operation: Operation[object]) -> None:
        """Raise `DatabaseBusy` where the operation would wait for a transaction of its own caller's."""
        if self._is_private or (operation.writes and self.database.single_writer):
            self._permits.refuse_own_transaction()

    def blame(self, error: DatabaseBusy) -> None:
        """Add to the error that the one who waited in vain has a transaction open, if that is so."""
        if self._permits.has_own_transaction():
            error.args = (f"{error} ({OWN})",)

    def joins_write_queue(self, operation: Operation[object]) -> bool:
        """Shall an awaited operation go through the write_queue?"""
        if self.write_queue is None or not operation.writes:
            return False
        return self.database.single_writer or operation.atomic

    def run_job(self, job: Job) -> None:
        """Run a claimed job in this thread, and tell whoever waits."""
        if self.write_queue is not None and self._goes_to_the_writer(job.operation):
            job.unclaim()
            self.write_queue.append(job)
            while not job.done and self.write_queue.waits:
                self.write_queue.advance()
        else:
            self.executor.run_job(job)

    def _goes_to_the_writer(self, operation: Operation[object]) -> bool:
        return operation.writes and self.database.single_writer

    def close(self, timeout: float | None = None) -> None:
        """Wait for the operations that run, and end the connections.

        One that runs for longer than `patience` seconds (None: the busy timeout) ends its
        connection itself. So does a transaction, when its block ends; it cannot be used any more.
        """
        timeout = self._options.busy_timeout if timeout is None else timeout
        self.close_transactions(timeout)
        self._disconnect(timeout)

    def _disconnect(self, timeout: float) -> None:
        for pool in self._pools:
            pool.close(timeout)
        if self._own is not None:
            self._own.dispose()

    def pause(self, deadline: float) -> None:
        """Close the connections before a fork. A transaction of the thread that forks would not end meanwhile."""
        if self._permits.has_transaction_of_this_thread():
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
        """Return whether connections to a file are open."""
        return self._file is not None and not self._is_paused

    def close_transactions(self, timeout: float) -> None:
        """Begin no more transactions; wait for those that are open, and then roll them back."""
        self._permits.close(timeout)
        self.transactions.close()

    def _connect(self, url: sa.URL) -> None:
        options, database = self._options, self.database
        self._own = engine = open_engine(url, database, options.busy_timeout)
        file = self._file

        def pool(size: int, timeout: float) -> ConnectionPool:
            opener = partial(
                open_driver_connection, engine, file, self._catalogue, options, timeout
            )
            return ConnectionPool(opener, size, options.busy_timeout)

        main = pool(connection_limit(url, options, database), options.busy_timeout)
        timeout = options.busy_timeout if database.single_writer else ROW_LOCK_TIMEOUT
        write_queue = main if self._is_private else pool(1, timeout)
        self._pools: list[Pool] = [main, write_queue]
        self.executor, writer = self._executor(main), self._executor(write_queue)
        self.write_queue = self._group_commit(writer)
        begins = writer if database.single_writer else self.executor
        self.transactions = TransactionManager(begins, self.write_queue, self._permits)

    def _borrow(self, engine: sa.Engine) -> None:
        engine = engine.execution_options(**self.database.transactions.shared_options())
        opener = partial(open_shared_connection, engine, self._catalogue)
        pool = EnginePool(opener, self._options.busy_timeout, one_by_one=self._is_private)
        self._pools = [pool]
        self.executor = self._executor(pool)
        self.transactions = TransactionManager(self.executor, None, self._permits)

    def _executor(self, pool: Pool) -> Executor:
        timeout = self._options.busy_timeout
        lost = self._discard_idle
        return Executor(self.database, pool, self._catalogue, timeout=timeout, lost=lost)

    def _discard_idle(self) -> None:
        """End the resting connections: where one broke, the others did too."""
        for pool in self._pools:
            pool.discard_idle()

    def _group_commit(self, executor: Executor) -> GroupCommit:
        def run_group(group: list[Job]) -> None:
            for job in executor.run_group(group):
                if self._hand_over is None:
                    executor.run_job(job)
                else:
                    job.unclaim()
                    self._hand_over(job)

        return GroupCommit(executor.run, run_group, self._options.busy_timeout)

    def _make_ready(self) -> None:
        """Make the database ready, also while other processes do just that, or while a server comes up."""
        begun = time.monotonic()
        while True:
            try:
                return self._try_to_make_ready()
            except (DatabaseBusy, DatabaseUnavailable, TransactionConflict) as error:
                if isinstance(error, DatabaseUnavailable) and self.database.single_writer:
                    raise  # a file that cannot be opened does not come up by itself
                self.executor.consider(error, None, begun)
                time.sleep(RETRY_PAUSE)

    def _try_to_make_ready(self) -> None:
        pooled = self._pools[0].acquire()
        lost = at_rest = False
        try:
            if self._own is not None:
                make_ready(pooled, self._options)
            else:
                with pooled.sa.begin():
                    make_ready(pooled, self._options)
            at_rest = True
        except DatabaseUnavailable:
            lost = True
            raise
        finally:
            self.executor.release(pooled, lost, at_rest)


def connection_limit(url: sa.URL, options: Options, database: Database) -> int:
    """Tell how many operations run at a time, the write_queue aside."""
    return 1 if database.urls.is_private(url) else options.pool_size or database.pool_size


def transaction_limit(url: sa.URL, options: Options, database: Database) -> int:
    """Tell how many transactions may be open at a time: plain operations shall find a connection."""
    return 1 if database.single_writer else max(1, connection_limit(url, options, database) - 1)
