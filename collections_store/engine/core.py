"""`Core`: the shared part of `Store` and `AsyncStore`. Both are fronts of a core, and call the core's public methods.

A core has the options, the URL or the caller's engine, the catalogue, the permits of transactions and the change
notifier. The first use opens the database (`open_database`); `close` closes the core, and so does a fork in the child.

Rules:

1. A core of an unused store does no I/O.
2. No operation waits for a transaction of the same caller, or for the calling operation: `DatabaseBusy` is raised at
   once.
3. An open database belongs to one process. In a child process the core is closed, and the parent's connections stay
   open.
4. Threads hold weak references to a core: a core without front and collections closes all connections.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from copy import copy as copy_error
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from ..codec import Codec
from ..errors import DatabaseBusy, DatabaseUnavailable, InvalidOption, StoreClosed, shortened
from ..expressions.budget import checked_by
from ..operations.catalogue import Catalogue
from ..operations.changes import LastChange
from ..operations.echo import set_up as set_up_echo
from ..operations.operation import Operation
from ..operations.store_changes import LastStoreChanges
from ..options import Consistency, Options, StoreOptions, check_integer, read_url, safe_url
from ..results import StoreStats
from ..sql.catalogue import catalogue_statements
from ..sql.dialects import named
from ..sql.dialects.protocols import Database
from ..sql.dialects.support import check_supported
from .database_file import leak
from .executor import raise_if_abandoned
from .forks import at_fork
from .group_commit import GroupCommit
from .jobs import Job
from .notifier import EVERY, ChangeNotifier, notify_all
from .observe import Observer
from .open_database import Figures, OpenDatabase, connection_limit
from .permits import NESTED, OWN, TransactionPermits, this_thread
from .pool import check_driver
from .retry import Retries
from .transactions import TransactionResources
from .workers import Sweeper, working

T = TypeVar("T")

FORKED: Final = "the store belongs to the process this one was forked from: open another"
EXIT_TIMEOUT: Final = 1.0
"""Seconds that a store that was not closed waits for running operations when the interpreter ends."""


class Core:
    """A database and its options. Raise `InvalidUrl`, `InvalidOption` and `MissingExtra` for bad arguments."""

    engine: sa.Engine | None
    closed: str | None = None
    """Why the core cannot be used; None while it can."""
    opened: OpenDatabase | None = None
    hand_over: Callable[[Job], None] | None = None
    """Runs the jobs that PostgreSQL's write queue could not run as a group; None: the queue runs them alone."""
    _sweeper: Sweeper | None = None
    _figures = Figures()
    """The figures of a closed database."""
    _finalizer: weakref.finalize[Any, Any] | None = None
    _failure: tuple[float, DatabaseUnavailable] | None = None
    """When opening the database failed last, and why."""

    def __init__(
        self, url: str | sa.URL | None, engine: sa.Engine | None, options: StoreOptions
    ) -> None:
        parsed = Options.parse(options)
        self.codec: Codec = parsed.codec()
        url, self.engine = _target(url, engine)
        self.options: Options = parsed.for_url(url)
        self.shown: str = safe_url(url)
        """The URL without its password."""
        with working():  # a fork during the import would leave its lock held in the child
            self.database: Database = named(url.get_backend_name(), self.options.sharding)
        check_supported(self.options, self.database)
        if self.engine is None:
            url = self.database.urls.normal_url(url)
        else:
            check_driver("engine", self.engine.dialect, self.database)
            _check_engine(self.engine, self.options, self.database)
        self.url: sa.URL = url
        self.is_private: bool = self.database.urls.is_private(url)
        self.limit: int = connection_limit(url, self.options, self.database)
        """How many operations run at a time, besides the write queue."""
        self.catalogue: Catalogue = Catalogue(
            catalogue_statements(self.options.names(), self.database)
        )
        self.catalogue.changed = notify_all
        self.consistency: Consistency = self.options.default_consistency()
        # A private database is not polled: only this store writes to it, and a poll on its one connection would
        # disturb a caller's transaction.
        last = None if self.is_private else weakref.WeakMethod(self._last_change)
        self.notifier: ChangeNotifier = ChangeNotifier(last)
        explain = weakref.WeakMethod(self._explain)
        self.observer: Observer = Observer(self.options, self.database.name, explain)
        set_up_echo(self.options.echo)
        self._opening = threading.Lock()
        self._create_permits()
        _cores.add(self)

    def _create_permits(self) -> None:
        """Create the permits of transactions: separate permits for reads where a reader waits for no writer."""
        others, timeout = max(1, self.limit - 1), self.options.busy_timeout
        self.permits: TransactionPermits = TransactionPermits(
            1 if self.database.single_writer else others, timeout
        )
        self.read_permits: TransactionPermits = self.permits
        if self.database.single_writer and not self.is_private:
            self.read_permits = TransactionPermits(others, timeout)

    def _last_change(self, collection: str) -> object:
        return self.run(LastStoreChanges() if collection == EVERY else LastChange(collection))

    def _explain(self, operation: Operation[T]) -> T:
        """Run the store's own explanation, which is not counted."""
        return self.open(write=False).executor.run(operation)

    def retries(self, attempts: int) -> Retries:
        """Return the attempts of a transaction that is repeated; raise `InvalidOption`."""
        return Retries.of(self.options, self.database, attempts=check_integer("attempts", attempts))

    def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Run an operation in this thread, and return the result."""
        started = since = time.monotonic()
        try:
            opened = self.opened
            if opened is None:
                opened, since = self.open(write=operation.writes), time.monotonic()
            if (operation.writes or self.limit == 1) and (
                this_thread.running.catalogue is self.catalogue
                or self.permits.granted
                or self.permits.callers
                or self.read_permits.granted
            ):
                self._refuse_to_wait(operation, takes_the_only=self.limit == 1)
            if not opened.is_writable and opened.prepare(write=operation.writes):
                since = time.monotonic()
            if operation.writes and opened.writer is not None:
                result: T = opened.writer.run(operation, since)
            elif consistency == "strong":  # the usual one, sooner
                result = opened.executor.run(operation, since)
            else:
                result = opened.readers.get(consistency, opened.executor).run(operation, since)
        except BaseException as error:
            if isinstance(error, DatabaseBusy):
                self.note_own_transaction(error)
            self.observer.failed(operation, started, error, consistency)
            raise
        record = self.observer.ended(operation, started, result, None, consistency)
        if record is not None:
            self.observer.report(record, operation)
        return result

    def _refuse_to_wait(self, operation: Operation[object], *, takes_the_only: bool) -> None:
        """Raise `DatabaseBusy` by rule 2. `takes_the_only`: the operation needs the only connection of the pool."""
        if this_thread.running.catalogue is self.catalogue:
            raise DatabaseBusy(NESTED, is_final=True)
        permits = self.permits if operation.writes else self.read_permits
        waits = takes_the_only or (operation.writes and self.database.single_writer)
        if waits and (permits.granted or permits.callers):
            permits.refuse_own_transaction()

    def note_own_transaction(self, error: DatabaseBusy) -> None:
        """Extend the error's message if the caller has a transaction open."""
        if self.permits.has_own_transaction():
            error.args = (f"{error} ({OWN})",)

    def way_of(
        self, operation: Operation[object]
    ) -> tuple[Callable[[Job], None], GroupCommit | None]:
        """Return the function by which a worker thread runs a task's operation, and the write queue if the operation
        goes through the queue. Raise `StoreClosed`, and `DatabaseBusy` if the operation would wait for a transaction of
        the same caller.
        """
        opened = self.opened
        if opened is None:
            self.refuse_if_closed()
            return self.open_and_run_job, None
        is_queued = operation.writes and (self.database.single_writer or operation.atomic)
        if operation.writes or self.limit == 1:
            self._refuse_to_wait(operation, takes_the_only=self.limit == 1 and not is_queued)
        if not opened.is_writable and not opened.is_ready(write=operation.writes):
            return self.open_and_run_job, None
        return self.run_job, opened.write_queue if is_queued else None

    def run_job(self, job: Job) -> None:
        """Run a claimed job in this thread, and report the outcome."""
        opened = self.opened
        if opened is None:
            job.finish(error=StoreClosed(self.closed or "the store is closed"))
        else:
            opened.run_job(job)

    def open_and_run_job(self, job: Job) -> None:
        try:
            with checked_by(partial(raise_if_abandoned, job)):
                opened = self.open(write=job.operation.writes)
                opened.prepare(write=job.operation.writes)
        except BaseException as error:  # noqa: BLE001 - it is raised where the job is waited for
            job.finish(error=error)
        else:
            job.created = time.monotonic()  # until here it waited for no other operation
            opened.run_job(job)

    def open(self, *, write: bool) -> OpenDatabase:
        """Return the open database. The first caller opens the database, for a read or a `write`; the rest wait."""
        asked_at = time.monotonic()
        with self._opening:
            self.refuse_if_closed()
            if self.opened is None:
                if self._failure is not None and self._failure[0] > asked_at:
                    # a caller that waited for this failure would wait as long again
                    raise copy_error(self._failure[1])
                opened = self._connect(write=write)
                self._finalizer = weakref.finalize(self, opened.close, EXIT_TIMEOUT)
                self.opened = opened
                if self.options.sweep_interval is not None and not self.options.read_only:
                    run = weakref.WeakMethod(self.run)
                    self._sweeper = Sweeper(run, self.options.sweep_interval)
            return self.opened

    def _connect(self, *, write: bool) -> OpenDatabase:
        try:
            with working():
                return OpenDatabase(
                    self.url if self.engine is None else self.engine,
                    self.catalogue,
                    self.options,
                    self.permits,
                    self.read_permits,
                    observer=self.observer,
                    hand_over=self.hand_over,
                    write=write,
                )
        except DatabaseUnavailable as error:
            self._failure = time.monotonic(), copy_error(error)
            raise

    def stats(self) -> StoreStats:
        """Return the figures since the store was created."""
        figures = self._figures if self.opened is None else self.opened.figures()
        hits, misses = self.catalogue.cache_figures()
        statements = {"hits": hits, "misses": misses}
        return StoreStats(
            operations=self.observer.operations(), statements=statements, **figures._asdict()
        )

    def refuse_if_closed(self) -> None:
        if self.closed is not None:
            raise StoreClosed(self.closed)

    def close(self, timeout: float | None = None) -> None:
        """Wait for running operations for up to `timeout` seconds (None: `busy_timeout`), and end the connections."""
        with self._opening:
            if self.closed is None:
                self.closed = "the store is closed"
            opened, self.opened = self.opened, None
            if opened is not None:
                self._figures = opened.figures()
            sweeper, self._sweeper = self._sweeper, None
        timeout = self.options.busy_timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        self.notifier.close()
        if sweeper is not None:
            sweeper.thread.stop()
        if opened is not None and self._finalizer is not None:
            self._finalizer.detach()
            opened.close(timeout)
        self.notifier.join(max(0.0, deadline - time.monotonic()))
        if sweeper is not None:
            sweeper.thread.join(max(0.0, deadline - time.monotonic()))

    def close_transactions(self, timeout: float) -> None:
        """Begin no more transactions, wait for open transactions, and roll back the rest."""
        deadline = time.monotonic() + timeout
        for permits in (self.permits, self.read_permits):
            permits.close(deadline - time.monotonic())
        if self.opened is not None:
            self.opened.close_transactions(timeout)

    @property
    def is_forked(self) -> bool:
        """Whether the database was open at a fork, in the parent of this process."""
        return self.closed == FORKED

    def after_fork(self) -> None:
        """Abandon the parent's open database in the child. Closing would end the parent's connections."""
        self._opening = threading.Lock()
        self._create_permits()
        self._sweeper = None
        self.notifier.forked()
        if self.opened is not None:
            opened, self.opened = self.opened, None
            left = opened, opened.transactions.fork() + opened.read_transactions.fork()
            _abandoned.append(left)
            if opened.has_file_open:
                leak(left)
            self.closed = FORKED
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None


def _check_engine(engine: sa.Engine, options: Options, database: Database) -> None:
    """Raise `InvalidOption` for an unusable engine, or for options that an engine does not allow."""
    options.check_for_engine()
    if database.urls.is_private(engine.url) and not isinstance(engine.pool, sa.StaticPool):
        raise InvalidOption(
            "engine", "each of its connections is a database of its own: use poolclass=StaticPool"
        )


def _target(url: str | sa.URL | None, engine: sa.Engine | None) -> tuple[sa.URL, sa.Engine | None]:
    """Return the URL, and the caller's engine or None; raise `InvalidOption` and `InvalidUrl`."""
    if (url is None) == (engine is None):
        raise InvalidOption("url", "give a store either a URL or an engine")
    if engine is None:
        assert url is not None
        return read_url(url), None
    if not isinstance(engine, sa.Engine):
        raise InvalidOption(
            "engine", f"{shortened(engine)} is not a (synchronous) sqlalchemy.Engine"
        )
    return engine.url, engine


_cores: Final[weakref.WeakSet[Core]] = weakref.WeakSet()
_abandoned: Final[list[tuple[OpenDatabase, list[TransactionResources | None]]]] = []


def _after_fork() -> None:
    for core in list(_cores):
        core.after_fork()


at_fork("stores", in_child=_after_fork)
