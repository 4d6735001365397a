"""`Store`: a database of collections. `engine.core` runs the operations, and opens the database on first use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Self, TypeVar, Unpack, cast, get_args

import sqlalchemy as sa

from .aggregation.change_pipeline import ChangePipeline
from .changes import ChangeDocumentStream, StoreChangeReader
from .collection import Runner
from .document import check_name
from .engine.backup.backup import back_up, restore
from .engine.backup.copying import copy_to
from .engine.core import Core
from .engine.health import check_health
from .engine.lifecycle import Component, Components, noting_failure, tear_down
from .errors import DatabaseUnavailable, InvalidOption, TransactionConflict, shortened
from .operations.collections import FindTable
from .operations.operation import Operation
from .options import Consistency, Isolation, StoreOptions, check_choice, check_flag, check_function
from .results import CopiedCollection, CopyProgress, Health, StoreStats
from .sql.schema import mapped_class
from .transaction import Collections, StoreTransactionContext, Transaction, bound

T = TypeVar("T")

ATTEMPTS: Final = 20
"""The default number of calls of a function by `run_transaction`."""


class Store(Collections):
    """A database of collections of JSON documents.

    `url` is `sqlite:///file.db` (a file), `sqlite://` (in memory) or `postgresql://user:password@host/database`.
    `engine` is your own SQLAlchemy engine instead, with your own pool and settings. `StoreOptions` lists the options.
    The constructor does no I/O: the first use connects, and the first write creates the tables in an empty database.

    Any number of threads can use a store. Close it by `close()` or as a context manager. The examples of the methods
    use a store, `store`.

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
        self._share(Core(url, engine, options))

    def _share(self, core: Core) -> None:
        self.core = core
        """Runs the operations; internal, like `engine`."""
        self._codec, self._notifier, self._consistency = core.codec, core.notifier, core.consistency
        self._closing = threading.RLock()
        self._components: Components[Component] = Components()
        self._is_tearing_down = False

    @property
    def _runner(self) -> Runner:
        return self.core.run

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.core.shown!r})"

    def attach(self, component: Component) -> None:
        """Set a component up and tear it down with the store.

        Entering the store (`with store:`) calls `component.setup()`; a component attached later sets itself up.
        `close()` calls `component.teardown()` before the connections end, in reverse order, also if a set-up failed.
        Exceptions are raised after all components were torn down. Raise `InvalidOption` and `StoreClosed`.

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
        self.core.refuse_if_closed()
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
                if self.core.closed is None:
                    tear_down(self._components.taken())
            finally:
                self._is_tearing_down = False
                self.core.close()

    def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Return the operation's result."""
        return self.core.run(operation, consistency)

    def transaction(
        self, *, isolation: Isolation = "repeatable read", read_only: bool = False
    ) -> AbstractContextManager[Transaction]:
        """Return the context of a transaction over any collections.

        The `Transaction` returns collections as the store does. The collections see one snapshot, and the transaction's
        own writes. The end of the block commits, or rolls back after an exception; the writes are visible to other
        clients afterwards.

        On SQLite a transaction is the only writer from the start: keep transactions short. Other clients can read
        meanwhile; in memory they wait. On PostgreSQL two transactions can conflict, and one gets `TransactionConflict`:
        `run_transaction` repeats the function.

        `isolation`: "repeatable read", or "serializable", to prevent write skew on PostgreSQL, with more conflicts.
        SQLite is always serializable.

        `read_only`: the transaction only reads. A read-only transaction waits for no writer, on SQLite too, and needs
        no right to write. A write raises `DatabaseError`.

        Raise `InvalidOption`, `DatabaseBusy` if no transaction can begin within `busy_timeout`, and at the end
        `TransactionEnded` if the transaction was rolled back before.

        >>> with store.transaction() as tx:
        ...     stock = tx["stock"].get("tea", 3)
        ...     version = tx["stock"].put("tea", stock - 1)
        ...     version = tx["orders"].put("7", {"tea": 1})
        >>> store["stock"].get("tea")
        2
        """
        return StoreTransactionContext(
            self.core,
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

        After a conflict roll back and call the function again, up to `attempts` times in all; for `reconnect_for`
        seconds if the connection is lost before the commit, or the server cannot write. Then raise the last error. The
        function must have no effects outside the transaction. Any other exception rolls back and propagates.
        `isolation` and `read_only` are as in `transaction`.

        >>> def sell(tx):
        ...     stock = tx["stock"].get("tea", 3)
        ...     tx["stock"].put("tea", stock - 1)
        ...     return stock - 1
        >>> store.run_transaction(sell)
        2
        """
        retries = self.core.retries(attempts)
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

    def bind(self, connection: sa.Connection) -> Transaction:
        """Return the store's collections within your own SQLAlchemy transaction.

        Your commit of `connection` commits their writes, too, and your rollback discards them. The connection must lead
        to the store's database.

        >>> import sqlalchemy as sa
        >>> engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        >>> with Store(engine=engine) as store, engine.begin() as connection:
        ...     collections = store.bind(connection)
        ...     version = collections["orders"].put("1", {"total": 12})
        >>> engine.dispose()
        """
        return Transaction(bound(self.core, connection), self._codec)

    def copy_to(
        self,
        other: Store,
        collections: Iterable[str] | None = None,
        *,
        vectors: bool = False,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> tuple[CopiedCollection, ...]:
        """Copy collections (None: all) to another store, on any database; return their counts and checksums, by name.

        A copy has the documents with their ids, versions, times, times to live and natural order, and the options and
        indexes of the collections, all as of a single moment of this store. Clients can write to this store meanwhile.
        A copy has no recorded changes and no expired documents: in the copy, tokens of this store raise `ChangesLost`,
        cursors `InvalidCursor`.
        `vectors`: a copy also has the vectors that models made of texts; otherwise the first search makes them again.

        Each batch is a transaction, and compares the written documents with this store. The same call continues an
        interrupted copy, to the present state of this store. Until a copy is complete, only the copy may write to the
        copied collections. `progress` is called after each batch; an exception from `progress` ends the copy.

        Raise `InvalidOption`, `InvalidName`, `CollectionNotFound`, `CollectionExists` if the target has a collection of
        the same name that is not the beginning of this copy, and `CopyFailed` if another client wrote to the copy.

        >>> with Store("sqlite://") as other:
        ...     version = store["cities"].put("berlin", {"country": "de"})
        ...     [copied] = store.copy_to(other, ["cities"])
        ...     print(copied.name, copied.count, other["cities"].get("berlin"))
        cities 1 {'country': 'de'}
        """
        if not isinstance(cast(object, other), Store) or other.core is self.core:
            raise InvalidOption("other", f"must be another Store, got {shortened(other)}")
        return copy_to(self.core, other.core, collections, progress, vectors=vectors)

    def backup(
        self,
        path: str | os.PathLike[str],
        collections: Iterable[str] | None = None,
        *,
        vectors: bool = False,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> None:
        """Write a backup of a single moment of the store to a file. The complete backup replaces `path`. Clients can
        write meanwhile.

        If the name ends in .jsonl or .jsonl.gz, the backup is text for any database, with the same content as
        `copy_to`, of all collections or the given `collections`. With another name, on SQLite only, the backup is a
        database file with the whole database; `progress` then counts pages and documents. `vectors`: the text also has the
        vectors that models made of texts, as a database file always has; older versions of the library cannot
        restore it.

        Raise `InvalidOption`, `InvalidName`, `CollectionNotFound`, and `OSError`.

        >>> version = store["cities"].put("berlin", {"country": "de"})
        >>> store.backup("store.jsonl.gz")
        >>> with Store("sqlite://") as other:
        ...     [restored] = other.restore("store.jsonl.gz")
        ...     print(restored.name, restored.count, other["cities"].get("berlin"))
        cities 1 {'country': 'de'}
        """
        back_up(self.core, path, collections, progress, vectors=vectors)

    def restore(
        self,
        path: str | os.PathLike[str],
        collections: Iterable[str] | None = None,
        *,
        replace: bool = False,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> tuple[CopiedCollection, ...]:
        """Restore a backup, of any database, into this store; return the collections as `copy_to` does.

        The store must be empty. With `collections` only these are restored, and must not exist. `replace`: existing
        collections are replaced, and collections that are not in the backup stay. All restored collections appear at
        once, at the end; until then, and after an error, the store is unchanged. The same call continues an interrupted
        restore.

        Raise `InvalidBackup`, `InvalidOption`, `InvalidName`, `CollectionNotFound`, `CollectionExists`, `DuplicateKey`,
        `CopyFailed`, and `OSError`.

        >>> version = store["cities"].put("berlin", {"country": "de"})
        >>> store.backup("store.jsonl")
        >>> store.restore("store.jsonl", ["cities"], replace=True)[0].count
        1
        """
        return restore(self.core, path, collections, progress, replace=replace)

    def watch(
        self,
        *,
        pipeline: Sequence[Any] = (),
        after: str | None = None,
        timeout: float | None = None,
    ) -> ChangeDocumentStream:
        """Return a stream of the changes of all collections that record changes, as change documents.

        A document is a dict with pymongo's names: `_id` is the token, `ns` names the collection. `pipeline` and the
        other arguments are as in `Collection.watch`, and `after` takes the tokens of such streams. Collections that begin
        to record later are included. The stream also returns that a collection was renamed, or dropped, with the
        changes that were not yet read.

        Changes of a collection are in commit order. Changes of different collections are in the order of their times, as far
        as they are recorded when the stream reads: a write that began after another write's commit comes later, if the
        clocks of both writers agree.

        Raise `InvalidPipeline`, `InvalidToken`, `InvalidOption`, and `ChangesLost` if changes after the token were
        deleted, or a collection stopped recording; `after=error.oldest` continues with the others.

        >>> cities = store.collection("cities", changes=True)
        >>> with store.watch(timeout=0) as stream:
        ...     version = cities.put("berlin", {})
        ...     [(each["operationType"], each["ns"], each["documentKey"]) for each in stream]
        [('insert', {'coll': 'cities'}, {'_id': 'berlin'})]
        """
        wanted = partial(ChangePipeline.parse, pipeline, self._codec)
        reader = StoreChangeReader(wanted, after=after, timeout=timeout, codec=self._codec)
        return ChangeDocumentStream(self._runner, self.core.notifier, reader)

    def stats(self) -> StoreStats:
        """Return the figures of the store since the constructor: operations by kind, retries, waits.

        The figures are always counted, and reading the figures does no I/O.

        >>> with Store("sqlite://") as other:
        ...     version = other["cities"].put("berlin", {})
        ...     other.stats().operations["put"].count
        1
        """
        return self.core.stats()

    def health(self, *, timeout: float = 5.0) -> Health:
        """Return whether the database answers, and how: for the probes of an orchestrator.

        The check opens a new connection, waits neither for the writer nor for a pooled connection, creates no file and
        upgrades no schema. No state of the database raises an exception: the result has the error as `error`. The check
        waits up to `timeout` seconds for a connection to each address of a server (fewer if the URL has
        `connect_timeout`), and again for locks and for each answer.

        Raise `InvalidOption`, and `StoreClosed` after `close`.

        >>> version = store["cities"].put("berlin", {"country": "de"})
        >>> health = store.health()
        >>> health.is_healthy, health.is_current, health.error
        (True, True, None)
        """
        return check_health(self.core, timeout)

    def model(self, name: str) -> type[Any]:
        """Return a new ORM class of a collection, for your own queries; create the collection if necessary.

        The attributes are `seq`, `id`, `body`, `version`, `created_at`, `updated_at` and `expires_at`.

        >>> import sqlalchemy as sa
        >>> City = store.model("cities")
        >>> print(sa.select(City.id).where(City.body["country"].as_string() == "de").whereclause)
        cs_1_cities.body[:body_1] = :param_1
        """
        return mapped_class(self.run(FindTable(check_name(name))).table, name)
