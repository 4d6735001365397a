"""`Store`: a database of collections. What it runs goes to `engine.backend`, which is opened on first use."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing
from copy import copy as copy_error
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar, Unpack, cast, get_args

import sqlalchemy as sa

from .changes import ChangeNotifier, notify_all
from .codec import Codec
from .document import CopiedCollection, CopyProgress, check_name, check_names
from .engine.archive import ArchiveSource
from .engine.backend import (
    Backend,
    check_engine,
    connection_limit,
    read_target,
    transaction_limit,
)
from .engine.backup import (
    database_backup,
    is_text,
    own_file,
    read_path,
    write_database,
    write_text,
)
from .engine.copying import Report, StoreTarget, check_report, copy, copy_store
from .engine.database_file import leak
from .engine.executor import raise_if_abandoned
from .engine.inherited import protect
from .engine.jobs import Job
from .engine.lifecycle import Component, Components, noting_failure, tear_down
from .engine.permits import TransactionPermits, between_operations
from .engine.pool import check_driver
from .engine.retry import Retries
from .engine.transactions import TransactionManager, TransactionResources
from .engine.workers import Sweeper, working
from .errors import (
    DatabaseUnavailable,
    InvalidOption,
    StoreClosed,
    TransactionConflict,
    shortened,
)
from .expressions.budget import checked_by
from .operations.catalogue import Catalogue
from .operations.changes import LastChange
from .operations.collections import FindTable
from .operations.copying import Restoring
from .operations.operation import Operation
from .operations.session import SharedSession
from .options import (
    Consistency,
    Isolation,
    Options,
    StoreOptions,
    check_choice,
    check_flag,
    check_function,
    check_integer,
    safe_url,
)
from .query.change import ChangePosition
from .sql.catalogue import catalogue_statements
from .sql.dialects import named
from .sql.dialects.protocols import Database
from .sql.dialects.support import check_supported
from .sql.schema import mapped_class
from .transaction import Bound, Collections, StoreTransactionContext, Transaction

T = TypeVar("T")

FORKED: Final = "the store belongs to the process this one was forked from: open another"
ATTEMPTS: Final = 20
"""The default number of calls of a function by `run_transaction`."""
EXIT_TIMEOUT: Final = 1.0
"""Seconds that a store that was not closed waits for running operations when the interpreter ends."""


class Store(Collections):
    """A database of collections of JSON documents.

    `url` is `sqlite:///file.db` (a file), `sqlite://` (in memory) or `postgresql://user:password@host/database`.
    `engine` is your own SQLAlchemy engine instead, with its own pool and settings. `StoreOptions` lists the options. The
    constructor does no I/O: the first use connects, and the first write creates the tables in an empty database.

    Any number of threads can use a store. Close it by `close()` or as a context manager. The examples of the methods use
    a store, `store`.

    Raise `InvalidUrl`, `InvalidOption` and `MissingExtra` at once; `DatabaseUnavailable`, `SchemaOutdated` and
    `SchemaTooNew` on first use.

    >>> with Store("sqlite://") as store:
    ...     cities = store.collection("cities")
    ...     version = cities.put("berlin", {"country": {"code": "de"}})
    ...     [city.id for city in cities.find("country.code", "de")]
    ['berlin']
    """

    def __init__(
        self,
        url: str | sa.URL | None = None,
        *,
        engine: sa.Engine | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        self._options = Options.parse(options)
        self._codec: Codec = self._options.codec()
        self._url, self._given = read_target(url, engine)
        self._options = self._options.for_url(self._url)
        self._shown: str = safe_url(self._url)
        with working():  # a fork during the import would leave its lock held in the child
            self._database: Database = named(self._url.get_backend_name(), self._options.sharding)
        check_supported(self._options, self._database)
        if self._given is None:
            self._url = self._database.urls.normal_url(self._url)
        else:
            check_driver("engine", self._given.dialect, self._database)
            check_engine(self._given, self._options, self._database)
        self._catalogue = Catalogue(catalogue_statements(self._options.names(), self._database))
        self._catalogue.changed = notify_all
        self._consistency = self._options.default_consistency()
        # A private database is not polled: only this store writes to it, and a poll on its one connection would
        # disturb a caller's transaction.
        private = self._database.urls.is_private(self._url)
        last = None if private else weakref.WeakMethod(self._last_change)
        self._notifier: ChangeNotifier = ChangeNotifier(last)
        self._sweeper: Sweeper | None = None
        self._opening, self._closing = threading.Lock(), threading.RLock()
        self._failure: tuple[float, DatabaseUnavailable] | None = None
        """When opening the database failed last, and why."""
        self._permits, self._read_permits = self._new_permits()
        self._backend: Backend | None = None
        self._closed: str | None = None
        self._hand_over: Callable[[Job], None] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._components: Components[Component] = Components()
        self._is_tearing_down = False
        _stores.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown!r})"

    def attach(self, component: Component) -> None:
        """Set a component up and tear it down with the store.

        Entering the store (`with store:`) calls `component.setup()`; a component that is attached later sets itself up.
        `close()` calls `component.teardown()` before the connections end, in reverse order, also if a set-up failed. Their
        exceptions are raised after all components were torn down. Raise `InvalidOption` and `StoreClosed`.

        >>> class Component:
        ...     def setup(self): print("ready")
        ...     def teardown(self): print("done")
        >>> store = Store("sqlite://")
        >>> store.attach(Component())
        >>> with store:
        ...     pass
        ready
        done
        """
        self._refuse_if_closed()
        self._components.attach(component, is_synchronous=True)

    def __enter__(self) -> Self:
        try:
            for component in self._components:
                component.setup()
        except BaseException as error:
            with noting_failure(error):
                self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Tear down attached components, wait for running operations up to `busy_timeout`, and end the connections.

        Further use raises `StoreClosed`. Closing again has no effect.
        """
        with self._closing:  # a second caller waits for the first
            if self._is_tearing_down:
                return  # a component that is torn down closes the store
            self._is_tearing_down = True
            try:
                if self._closed is None:
                    tear_down(self._components.taken())
            finally:
                self._is_tearing_down = False
                self._close(None)

    def _close(self, timeout: float | None) -> None:
        with self._opening:
            if self._closed is None:
                self._closed = "the store is closed"
            backend, self._backend = self._backend, None
            sweeper, self._sweeper = self._sweeper, None
        timeout = self._options.busy_timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        self._notifier.close()
        if sweeper is not None:
            sweeper.thread.stop()
        if backend is not None and self._finalizer is not None:
            self._finalizer.detach()
            backend.close(timeout)
        self._notifier.join(max(0.0, deadline - time.monotonic()))
        if sweeper is not None:
            sweeper.thread.join(max(0.0, deadline - time.monotonic()))

    def _close_transactions(self, timeout: float) -> None:
        """Begin no more transactions, wait for the open ones, and roll back those that remain."""
        deadline = time.monotonic() + timeout
        for permits in (self._permits, self._read_permits):
            permits.close(deadline - time.monotonic())
        if self._backend is not None:
            self._backend.close_transactions(timeout)

    def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Return the operation's result; every method of a collection calls this."""
        backend = self._backend or self._open(write=operation.writes)
        return backend.run(operation, consistency)

    def transaction(
        self, *, isolation: Isolation = "repeatable read", read_only: bool = False
    ) -> AbstractContextManager[Transaction]:
        """Return the context of a transaction over any collections.

        Its value returns collections as the store does. They see one snapshot and the transaction's own writes. Others see
        the writes after the end of the block, which commits, or rolls back after an exception.

        On SQLite a transaction is the only writer from its start: keep it short. Others can read; in memory they wait. On
        PostgreSQL two transactions can conflict, and one gets `TransactionConflict`: `run_transaction` repeats it.

        `isolation`: "repeatable read", or "serializable", which on PostgreSQL also prevents write skew and causes more
        conflicts; SQLite is always serializable.

        `read_only`: the transaction only reads. It waits for no writer, on SQLite too, and needs no right to write. A write in
        it raises `DatabaseError`.

        Raise `InvalidOption`, `DatabaseBusy` if no transaction can begin within `busy_timeout`, and at the end
        `TransactionEnded` if it was rolled back before.

        >>> with store.transaction() as tx:
        ...     stock = tx["stock"].get("tea", 3)
        ...     version = tx["stock"].put("tea", stock - 1)
        ...     version = tx["orders"].put("7", {"tea": 1})
        >>> store["stock"].get("tea")
        2
        """
        return StoreTransactionContext(
            self,
            check_choice("isolation", isolation, get_args(Isolation)),
            read_only=check_flag("read_only", read_only),
        )

    def run_transaction(
        self,
        function: Callable[[Transaction], T],
        *,
        attempts: int = ATTEMPTS,
        isolation: Isolation = "repeatable read",
        read_only: bool = False,
    ) -> T:
        """Call a function with a transaction, commit it, and return the function's result.

        After a conflict roll back and call the function again, up to `attempts` times in all; for `reconnect_for` seconds
        if the connection is lost before the commit, or the server cannot write. Then raise the last error: the function must
        have no other effects. Any other exception rolls back and propagates. `isolation` and `read_only` are as
        in `transaction`.

        >>> def sell(tx):
        ...     stock = tx["stock"].get("tea", 3)
        ...     tx["stock"].put("tea", stock - 1)
        ...     return stock - 1
        >>> store.run_transaction(sell)
        2
        """
        retries = self._transaction_retries(attempts)
        check_function("function", function)
        while True:
            begun = False
            try:
                with self.transaction(isolation=isolation, read_only=read_only) as transaction:
                    begun = True
                    return function(transaction)
            except (TransactionConflict, DatabaseUnavailable) as error:
                if not begun:
                    raise
                pause = retries.pause(error)
            time.sleep(pause)

    def _transaction_retries(self, attempts: int) -> Retries:
        last = check_integer("attempts", attempts)
        return Retries.of(self._options, self._database, attempts=last)

    def bind(self, connection: sa.Connection) -> Transaction:
        """Return the store's collections within your own SQLAlchemy transaction.

        Your commit of `connection` commits their writes, too, and your rollback discards them. The connection must lead to
        the store's database.

        >>> import sqlalchemy as sa
        >>> engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        >>> with Store(engine=engine) as store, engine.begin() as connection:
        ...     collections = store.bind(connection)
        ...     version = collections["orders"].put("1", {"total": 12})
        >>> engine.dispose()
        """
        return Transaction(self._bound(connection), self._codec)

    def _bound(self, given: Any) -> Bound:
        if not isinstance(given, sa.Connection) or given.closed:
            is_session = hasattr(type(given), "connection") and not isinstance(given, sa.Connection)
            hint = ": give session.connection()" if is_session else ""
            raise InvalidOption(
                "connection",
                f"must be an open sqlalchemy.Connection, got {shortened(given)}{hint}",
            )
        check_driver("connection", given.dialect, self._database)
        if not self._database.urls.is_private(given.engine.url):
            protect(given.engine, given)
        return Bound(self, SharedSession(given, self._catalogue.uncached()))

    def copy_to(
        self,
        other: Store,
        collections: Iterable[str] | None = None,
        *,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> tuple[CopiedCollection, ...]:
        """Copy collections (None: all) to another store, on any database; return them with counts and checksums, by name.

        A copy has the documents with their ids, versions, times, times to live and natural order, and the options and
        indexes of the collections, all as of one moment of this store, to which others can write meanwhile. It has no
        recorded changes and no expired documents: tokens of this store raise `ChangesLost` there, cursors `InvalidCursor`.

        Each batch is a transaction, which compares what was written with this store. The same call goes on with a copy that
        ended early, to the then present state of this store; until it is complete, only the copy may write to its
        collections. `progress` is called after each batch; what it raises ends the copy.

        Raise `InvalidOption`, `InvalidName`, `CollectionNotFound`, `CollectionExists` if the other store has a collection of
        a name that is not the beginning of this copy, and `CopyFailed` if others wrote to it.

        >>> with Store("sqlite://") as other:
        ...     version = store["cities"].put("berlin", {"country": "de"})
        ...     [copied] = store.copy_to(other, ["cities"])
        ...     print(copied.name, copied.count, other["cities"].get("berlin"))
        cities 1 {'country': 'de'}
        """
        if other is self or not isinstance(cast(object, other), Store):
            raise InvalidOption("other", f"must be another Store, got {shortened(other)}")
        if self._has_tables_of(other):
            raise InvalidOption("other", f"must have other tables than this store, got {other!r}")
        target = StoreTarget(other.run, other._codec)
        return copy_store(self.run, check_names(collections), target, self._report_of(progress))

    def _report_of(self, progress: object) -> Report:
        report = check_report(progress)
        has_one = connection_limit(self._url, self._options, self._database) == 1
        return report if has_one else between_operations(report)

    def _has_tables_of(self, other: Store) -> bool:
        """Return whether both stores have the same tables, as far as their URLs show."""
        if self._options.names() != other._options.names():
            return False
        file = other._database.urls.file_of(other._url)
        if file is not None:
            return own_file(self._url, self._database, Path(file))
        return self._url == other._url and not self._database.urls.is_private(self._url)

    def backup(
        self,
        path: str | os.PathLike[str],
        collections: Iterable[str] | None = None,
        *,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> None:
        """Write a backup of one moment of the store to a file, while others write. It replaces `path` once it is complete.

        If the name ends in .jsonl or .jsonl.gz, the backup is text, which any database restores: it has what `copy_to`
        copies, of all collections or those of some names. With another name, which only SQLite accepts, it is a database
        file with the whole database; `progress` then counts its pages and documents.

        Raise `InvalidOption`, `InvalidName`, `CollectionNotFound`, and `OSError`.

        >>> version = store["cities"].put("berlin", {"country": "de"})
        >>> store.backup("store.jsonl.gz")
        >>> with Store("sqlite://") as other:
        ...     [restored] = other.restore("store.jsonl.gz")
        ...     print(restored.name, restored.count, other["cities"].get("berlin"))
        cities 1 {'country': 'de'}
        """
        file, names, report = read_path(path), check_names(collections), self._report_of(progress)
        if own_file(self._url, self._database, file):
            raise InvalidOption("path", "is the store's own file: name another")
        if is_text(file):
            write_text(self.run, names, file, report)
        elif names is not None:
            raise InvalidOption("collections", "a database file has all collections: name a .jsonl")
        else:
            write_database(self.run, self._url, self._catalogue.statements, file, report)

    def restore(
        self,
        path: str | os.PathLike[str],
        collections: Iterable[str] | None = None,
        *,
        replace: bool = False,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> tuple[CopiedCollection, ...]:
        """Restore a backup, of any database, into this store; return the collections as `copy_to` does.

        The store must be empty. With `collections` only these are restored, and must not exist. `replace`: collections
        that exist are replaced, and others stay. The collections appear all at once, at the end; until then, and after an
        error, the store has what it had. The same call goes on with a restore that was interrupted.

        Raise `InvalidBackup`, `InvalidOption`, `InvalidName`, `CollectionNotFound`, `CollectionExists`, `DuplicateKey`,
        `CopyFailed`, and `OSError`.

        >>> version = store["cities"].put("berlin", {"country": "de"})
        >>> store.backup("store.jsonl")
        >>> store.restore("store.jsonl", ["cities"], replace=True)[0].count
        1
        """
        file, names, report = read_path(path), check_names(collections), check_report(progress)
        restoring = Restoring(check_flag("replace", replace), names is None)
        if own_file(self._url, self._database, file):
            raise InvalidOption("path", "is the store's own file: name a backup")
        target = StoreTarget(self.run, self._codec, restoring)
        database = database_backup(file)
        if database is None:
            with closing(ArchiveSource(str(file), self._codec, names)) as source:
                return copy(source, target, report)
        prefix = self._options.prefix
        with Store(database.url, prefix=prefix, upgrade="manual") as backup:
            return database.restore(backup.run, prefix, names, target, report)

    def model(self, name: str) -> type[Any]:
        """Return a new ORM class of a collection, for your own queries; create the collection if necessary.

        Its attributes are `seq`, `id`, `body`, `version`, `created_at`, `updated_at` and `expires_at`.

        >>> import sqlalchemy as sa
        >>> City = store.model("cities")
        >>> print(sa.select(City.id).where(City.body["country"].as_string() == "de").whereclause)
        cs_1_cities.body[:body_1] = :param_1
        """
        return mapped_class(self.run(FindTable(check_name(name))).table, name)

    def _last_change(self, collection: str) -> ChangePosition | None:
        return self.run(LastChange(collection))

    def _new_permits(self) -> tuple[TransactionPermits, TransactionPermits]:
        """Return the permits of transactions, and of those that only read: others, where these wait for no writer."""
        url, options, database = self._url, self._options, self._database
        size, read_size = (
            transaction_limit(url, options, database, write=write) for write in (True, False)
        )
        permits = TransactionPermits(size, options.busy_timeout)
        if not database.single_writer or database.urls.is_private(url):
            return permits, permits
        return permits, TransactionPermits(read_size, options.busy_timeout)

    def _permits_of(self, *, read_only: bool) -> TransactionPermits:
        return self._read_permits if read_only else self._permits

    def _transactions(self, *, read_only: bool) -> TransactionManager:
        backend = self._backend or self._open(write=not read_only)
        return backend.read_transactions if read_only else backend.transactions

    def _run_job(self, job: Job) -> None:
        """Open the store, and run a job that was submitted before."""
        try:
            with checked_by(partial(raise_if_abandoned, job)):
                backend = self._backend or self._open(write=job.operation.writes)
                backend.prepare(write=job.operation.writes)
        except Exception as error:  # noqa: BLE001 - it is raised where the job is waited for
            job.finish(error=error)
        else:
            job.created = time.monotonic()  # until here it waited for no other operation
            backend.run_job(job)

    def _open(self, *, write: bool) -> Backend:
        asked_at = time.monotonic()
        with self._opening:
            self._refuse_if_closed()
            if self._backend is None:
                if self._failure is not None and self._failure[0] > asked_at:
                    raise copy_error(
                        self._failure[1]
                    )  # who waited for this would wait as long again
                backend = self._connect(write=write)
                self._finalizer = weakref.finalize(self, backend.close, EXIT_TIMEOUT)
                self._backend = backend
                if self._options.sweep_interval is not None and not self._options.read_only:
                    run = weakref.WeakMethod(self.run)
                    self._sweeper = Sweeper(run, self._options.sweep_interval)
            return self._backend

    def _connect(self, *, write: bool) -> Backend:
        where = self._url if self._given is None else self._given
        try:
            with working():
                permits = self._permits, self._read_permits
                details = where, self._catalogue, self._options, *permits
                return Backend(*details, hand_over=self._hand_over, write=write)
        except DatabaseUnavailable as error:
            self._failure = time.monotonic(), copy_error(error)
            raise

    def _refuse_if_closed(self) -> None:
        if self._closed is not None:
            raise StoreClosed(self._closed)

    @property
    def _is_forked(self) -> bool:
        return self._closed == FORKED

    def _forked(self) -> None:
        """Abandon what belongs to the parent process, without closing it: that would end the parent's connections."""
        self._opening, self._closing = threading.Lock(), threading.RLock()
        self._permits, self._read_permits = self._new_permits()
        self._sweeper = None
        self._notifier.forked()
        if self._backend is not None:
            backend = self._backend
            left = backend, backend.transactions.fork() + backend.read_transactions.fork()
            _abandoned.append(left)
            if self._backend.has_file_open:
                leak(left)
            self._backend = None
            self._closed = FORKED
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_abandoned: Final[list[tuple[Backend, list[TransactionResources | None]]]] = []


def _after_fork() -> None:
    for store in list(_stores):
        store._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
