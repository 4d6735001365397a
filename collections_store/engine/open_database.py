"""An open database: the connections for reads and for writes.

Rules:

1. On an SQLite file one connection writes, and further connections read; a waiting writer joins the group that commits
   next.
2. In memory all callers share a single connection. An open transaction has the connection alone.
3. On PostgreSQL every connection writes. Atomic writes of tasks go through a separate write queue, as groups.
4. With replicas, the reads of collections run on a replica: see `replicas`.
5. A read-only transaction waits for no writer: on an SQLite file the transaction has a permit and a connection of the
   readers'.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import sqlalchemy as sa

from ..errors import DatabaseBusy, DatabaseUnavailable, TransactionConflict
from ..operations.catalogue import Catalogue
from ..options import Consistency, Options
from ..sql.dialects.protocols import Database
from ..sql.dialects.support import reconnects_for
from .database_file import DatabaseFile
from .executor import Executor
from .group_commit import GroupCommit, run_group
from .inherited import protect
from .jobs import Job
from .lifecycle import make_ready
from .observe import Observer
from .permits import TransactionPermits
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
from .retry import Retries, Turns
from .transactions import TransactionManager
from .workers import pause_at_forks

ROW_LOCK_TIMEOUT: Final = 0.1
"""Seconds for which a group waits for a row that a transaction has locked, before each of its jobs runs alone."""
OPENING: Final = 1.0
"""Seconds for which the first use tries to reach a server."""


class Figures(NamedTuple):
    """The figures of `StoreStats` that connections have."""

    retries: int = 0
    conflicts: int = 0
    groups: Mapping[int, int] = MappingProxyType({})
    waited_for_writer: float = 0.0
    waited_for_pool: float = 0.0
    replica_lag: float | None = None


class OpenDatabase:
    """The connections and executors of a store. The database is ready for reads when an `OpenDatabase` is created, and
    for writes before the first write. `hand_over` is `Core.hand_over`.
    """

    executor: Executor
    transactions: TransactionManager
    read_transactions: TransactionManager
    """Begins the transactions that only read."""
    write_queue: GroupCommit | None = None
    """The queue of the store's own connections; a caller's engine has none."""
    writer: GroupCommit | None = None
    """The queue through which every write goes, where the database has one writer."""
    is_writable: bool = False
    """Whether the database has the tables that a write needs."""
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
        observer: Observer,
        hand_over: Callable[[Job], None] | None = None,
        write: bool,
    ) -> None:
        self._catalogue, self._options = catalogue, options
        self._permits, self._read_permits = permits, read_permits
        self._observer = observer
        self.database: Database = catalogue.statements.database
        self._single_writer = self.database.single_writer
        url = where.url if isinstance(where, sa.Engine) else where
        self._is_private = self.database.urls.is_private(url)
        self._own: sa.Engine | None = None
        self._executors: list[Executor] = []
        self._replicas: Replicas | None = None
        self.file: DatabaseFile | None = None
        self._is_paused = False
        self._hand_over = None if self._single_writer else hand_over
        if isinstance(where, sa.Engine):
            self._borrow(where)
        else:
            self.file = file_of(where, self.database)
            self._connect(where)
        self.read_transactions = TransactionManager(
            self.executor, None, read_permits, self.prepare, observer, writes=False
        )
        if self.file is not None:
            pause_at_forks(self)
        self._preparing = threading.Lock()
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
            details = (engine, self.file, self._catalogue, options, timeout)
            opened = partial(open_driver_connection, *details)
            if session is not None:
                opened = partial(session.follow, opened)
            return ConnectionPool(opened, size, patience)

        size = connection_limit(url, options, database)
        main = pool(size, busy_timeout)
        lock_timeout = 0.0 if self.file is not None else ROW_LOCK_TIMEOUT  # of a file: `turns`
        writing = main if self._is_private else pool(1, lock_timeout)
        self._pools = [main, writing]
        turns = Turns() if self.file is not None else None
        self.executor, writer = self._new_executor(main), self._new_executor(writing, turns)
        run = partial(run_group, writer, self._hand_over)
        has_streaks = self._is_private or options.durability != "full"
        self.write_queue = GroupCommit(
            writer.run, run, busy_timeout, turns, has_streaks=has_streaks
        )
        self.writer = self.write_queue if self._single_writer else None
        begins = writer if self._single_writer else self.executor
        self.transactions = TransactionManager(
            begins, self.write_queue, self._permits, self.prepare, self._observer
        )
        if session is not None:
            self._pools.append(pool(1, busy_timeout, None, min(busy_timeout, ANSWER)))
            asking = self._new_executor(self._pools[-1])
            self._replicas = Replicas(options, size, session, self.executor, asking)
            self.readers = self._replicas.readers

    def _borrow(self, engine: sa.Engine) -> None:
        if not self._is_private:
            protect(engine)
        path = self.database.urls.file_of(engine.url)
        opener = partial(open_shared_connection, engine, path, self._catalogue)
        pool = EnginePool(opener, self._options.busy_timeout, one_by_one=self._is_private)
        self._pools = [pool]
        self.executor = self._new_executor(pool)
        self.transactions = TransactionManager(
            self.executor, None, self._permits, self.prepare, self._observer
        )

    def figures(self) -> Figures:
        queue = self.write_queue
        return Figures(
            retries=sum(each.retried for each in self._executors),
            conflicts=sum(each.conflicts for each in self._executors),
            groups={} if queue is None else dict(sorted(queue.groups.copy().items())),
            waited_for_writer=0.0 if queue is None else queue.waited,
            waited_for_pool=sum(each.waited for each in self._pools),
            replica_lag=None if self._replicas is None else self._replicas.lag(),
        )

    def _new_executor(self, pool: Pool, turns: Turns | None = None) -> Executor:
        executor = Executor(
            self.database,
            pool,
            self._catalogue,
            timeout=self._options.busy_timeout,
            retries=partial(Retries.of, self._options, self.database),
            turns=turns,
            lost=self._discard_idle,
        )
        self._executors.append(executor)
        return executor

    def _discard_idle(self) -> None:
        """Close the idle connections: when a connection broke, the idle connections probably broke too."""
        for pool in self._pools:
            pool.discard_idle()

    def run_job(self, job: Job) -> None:
        """Run a claimed job in this thread, and report the outcome."""
        if self.writer is not None and job.operation.writes:
            job.unclaim()
            self.writer.waiting.append(job)
            while not job.done and self.writer.waiting:
                self.writer.advance()
        else:
            self.readers.get(job.consistency, self.executor).run_job(job)

    def is_ready(self, *, write: bool) -> bool:
        """Return whether the database is known to be ready for a read, or for a `write`."""
        return self.is_writable or (self._catalogue.exists and not write)

    def prepare(self, *, write: bool) -> bool:
        """Make the database ready for a read, or for a `write`; return False if the database was ready."""
        if self.is_ready(write=write):
            return False
        with self._preparing:
            if not self.is_ready(write=write):
                self._make_ready(write=write)
        return True

    def close(self, timeout: float) -> None:
        """Wait for running operations, and close the connections.

        An operation that runs for longer than `timeout` seconds closes the connection afterwards. A transaction closes
        the connection when the context ends, and cannot be used any more.
        """
        deadline = time.monotonic() + timeout
        self.close_transactions(timeout)
        self._disconnect(deadline - time.monotonic())

    def close_transactions(self, timeout: float) -> None:
        """Begin no more transactions, wait for open transactions, and roll back the rest."""
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
        """Close the connections before a fork. A transaction of the forking thread cannot end meanwhile: do not wait
        then.
        """
        if any(
            each.has_transaction_of_this_thread() for each in (self._permits, self._read_permits)
        ):
            deadline = 0.0
        paused = [pool.pause(deadline) for pool in self._pools]
        self._is_paused = all(paused)

    def resume(self) -> None:
        """Open connections again, when needed."""
        self._is_paused = False
        for pool in self._pools:
            pool.resume()

    @property
    def uses_replica(self) -> bool:
        """Whether reads run on a replica at present."""
        return self._replicas is not None and self._replicas.is_in_use

    @property
    def has_file_open(self) -> bool:
        """Whether connections to a file are open."""
        return self.file is not None and not self._is_paused

    def _make_ready(self, *, write: bool) -> None:
        """Make the database ready, also while another process does the same, or while a server starts. A server without
        an answer is soon given up: the URL may be wrong.
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
                    self.is_writable = self.is_writable or write
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
