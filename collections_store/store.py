"""A database of collections: its connections, its collections, and what runs operations on it."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import sqlalchemy as sa

from . import dialects
from .backend import Backend, connections
from .codec import Codec
from .collection import Collection, Ttl
from .collection_options import Changes, Settings
from .dialects import Database, Durability, TableVanished
from .document import CollectionInfo, check_name
from .errors import DatabaseError, InvalidOption, StoreClosed
from .execution import run_within
from .opening import make_ready
from .operations import (
    AS_IT_IS,
    Catalogue,
    Configure,
    Drop,
    FindTable,
    ListCollections,
    NewCollection,
    Operation,
    Rename,
    SharedConnection,
)
from .options import MAX_BODY, Nul, Options, Upgrade, check_flag, read_url, safe_url
from .pool import Lease
from .schema import mapped_class
from .statements import CatalogueStatements
from .threads import Job

T = TypeVar("T")

FORKED: Final = "the store belongs to the process this one was forked from: open another"
LAST_PATIENCE: Final = 1.0
"""Seconds that a forgotten store waits for what still runs when the interpreter ends."""


class Collections(ABC):
    """What a store and a transaction have in common: collections, and something that runs."""

    _codec: Codec

    @abstractmethod
    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""

    def get_sync_collection(
        self,
        name: str,
        *,
        ttl: Ttl = None,
        sliding: bool | None = None,
        changes: Changes = None,
        changes_kept: int | None = None,
        changes_ttl: Ttl = None,
    ) -> Collection:
        """Return a handle on a collection, without any I/O unless an option is given; raises
        `InvalidName` and `InvalidOption`.

        Names are 1 to 200 of the characters A-Z, a-z, 0-9 and _; upper and lower case differ. Options are
        the collection's, for every process; what is given is changed, and the collection comes into
        being:

        * `ttl`: seconds, or a timedelta, after which an object that is written is gone, unless its writer
          says otherwise; `math.inf`: never, which is the default.
        * `sliding`: has an object that has a time to live live anew with each update; False.
        * `changes`: records every change for `watch`: True tells ids and versions, "after" also bodies,
          "both" also those before; False, the default, forgets what was recorded.
        * `changes_kept`: how many changes are kept at least; 100,000.
        * `changes_ttl`: seconds, or a timedelta, for which they are kept at most; `math.inf`.

        >>> with Store("sqlite://") as store:
        ...     store.get_sync_collection("my_collection")
        Collection('my_collection')
        """
        options = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=ttl, sliding=sliding, changes=changes, **options)
        collection = Collection(self.run, self._codec, check_name(name))
        if settings != AS_IT_IS:
            self.run(Configure(name, settings))
        return collection

    def __getitem__(self, name: str) -> Collection:
        return Collection(self.run, self._codec, check_name(name))

    def create_collection(
        self,
        name: str,
        *,
        body_index: bool = True,
        ttl: Ttl = None,
        sliding: bool | None = None,
        changes: Changes = None,
        changes_kept: int | None = None,
        changes_ttl: Ttl = None,
    ) -> Collection:
        """Create a collection that is not there yet, and return its handle.

        There is no need to: a collection comes into being when something is put into it. This is for
        its options. `body_index`: PostgreSQL keeps an index over whole bodies, which serves equality
        at any depth, through arrays too; without it, writes are cheaper. SQLite has no such index. For
        the others see `get_sync_collection`. Raises `InvalidName`, `InvalidOption` and
        `CollectionExists`.

        >>> with Store("sqlite://") as store:
        ...     store.create_collection("log", body_index=False, ttl=86_400)
        Collection('log')
        """
        options = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=ttl, sliding=sliding, changes=changes, **options)
        self.run(NewCollection(check_name(name), check_flag("body_index", body_index), settings))
        return self[name]

    def collections(self) -> list[CollectionInfo]:
        """List the collections by name, with their counts and sizes.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {})
        ...     [(each.name, each.count) for each in store.collections()]
        [('cities', 1)]
        """
        return self.run(ListCollections())

    def drop(self, name: str) -> bool:
        """Delete a collection with all its objects; tells whether it was there.

        >>> with Store("sqlite://") as store:
        ...     store.drop("cities")
        False
        """
        return self.run(Drop(check_name(name)))

    def rename(self, old: str, new: str) -> None:
        """Give a collection another name; raises `CollectionNotFound` and `CollectionExists`.

        >>> with Store("sqlite://") as store:
        ...     version = store["towns"].put("berlin", {})
        ...     store.rename("towns", "cities")
        ...     store["cities"].count()
        1
        """
        self.run(Rename(check_name(old), check_name(new)))


class Transaction(Collections):
    """Collections within a transaction of the caller's: see `Store.bind`."""

    def __init__(self, connection: sa.Connection, store: Store) -> None:
        self._sa, self._store, self._codec = connection, store, store._codec
        self._connection = SharedConnection(connection, store._catalogue.without_memory())
        self._ready = False

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result; it becomes real when the caller commits."""
        return self._store._run_within(self, operation)


class Store(Collections):
    """A database of collections of JSON objects.

    `url` is `sqlite:///file.db` (a file), `sqlite://` (in memory) or
    `postgresql://user:password@host/database`. `engine` is a SQLAlchemy engine of the caller's to
    use instead; its pool and settings stay the caller's. Constructing does no I/O: the first use
    connects, and creates the store's tables in a fresh database.

    A store is used by any number of threads, and closed once: by `close()`, or as a context manager.

    Options:

    * `pool_size`: connections at most; 4 that read plus 1 that writes on an SQLite file, 10 on
      PostgreSQL. Not with `engine`.
    * `busy_timeout`: seconds to wait for a lock or a connection before `DatabaseBusy`; 30.
    * `durability`: "full": what was acknowledged survives a power cut. "normal": a power cut may
      take the last moments, a crash of the process nothing. Not with `engine`.
    * `max_body`: bytes of JSON a body may have; 16 MiB.
    * `nul`: "error" refuses NUL characters in bodies, "replace" stores U+FFFD in their place.
    * `default`: called with each value that is not JSON, returns one that is; as in `json.dumps`.
    * `prefix`: what the tables' names begin with; "cs_".
    * `schema`: the PostgreSQL schema the tables are in; the connection's own by default.
    * `upgrade`: "auto" upgrades an older database when it is opened, the default on SQLite;
      "manual" raises `SchemaOutdated`, the default on PostgreSQL.

    Raises `InvalidUrl`, `InvalidOption` and `MissingExtra` at once; `DatabaseUnavailable`,
    `SchemaOutdated` and `SchemaTooNew` on first use.

    >>> with Store("sqlite://") as store:
    ...     version = store["cities"].put("berlin", {"country": {"code": "de"}})
    ...     [city.id for city in store["cities"].find("country.code", "de")]
    ['berlin']
    """

    def __init__(
        self,
        url: str | sa.URL | None = None,
        *,
        engine: sa.Engine | None = None,
        pool_size: int | None = None,
        busy_timeout: float = 30.0,
        durability: Durability = "full",
        max_body: int = MAX_BODY,
        nul: Nul = "error",
        default: Callable[[Any], Any] | None = None,
        prefix: str = "cs_",
        schema: str | None = None,
        upgrade: Upgrade | None = None,
    ) -> None:
        self._options = Options(
            pool_size=pool_size,
            busy_timeout=busy_timeout,
            durability=durability,
            max_body=max_body,
            nul=nul,
            default=default,
            prefix=prefix,
            schema=schema,
            upgrade=upgrade,
        )
        self._codec: Codec = self._options.codec()
        self._url, self._given = _target(url, engine)
        self._database: Database = dialects.named(self._url.get_backend_name())
        self._options.check_for(self._database)
        if self._given is None:
            self._url = self._database.normal_url(self._url)
        else:
            _check_driver("engine", self._given.dialect, self._database)
        if self._given is not None:
            _check_engine(self._given, self._options, self._database)
        statements = CatalogueStatements(self._options.names(), self._database)
        self._catalogue = Catalogue(statements)
        self._opening = threading.Lock()
        self._backend: Backend | None = None
        self._closed: str | None = None
        self._hand_over: Callable[[Job], None] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        _stores.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({safe_url(self._url)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the operations that run, and end the connections; any further use raises
        `StoreClosed`. Closing again does nothing.
        """
        self._close(None)

    def _close(self, patience: float | None) -> None:
        with self._opening:
            if self._closed is None:
                self._closed = "the store is closed"
            backend, self._backend = self._backend, None
        if backend is not None and self._finalizer is not None:
            self._finalizer.detach()
            backend.close(patience)

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result; every verb comes through here."""
        return (self._backend or self._open()).run(operation)

    def bind(self, connection: sa.Connection) -> Transaction:
        """Return the store's collections within the caller's own SQLAlchemy transaction.

        What is written becomes real when the caller commits `connection`, together with whatever
        else the caller wrote, and never if it rolls back. The connection must lead to the store's
        database.

        >>> import sqlalchemy as sa
        >>> engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        >>> with Store(engine=engine) as store, engine.begin() as connection:
        ...     objects = store.bind(connection)
        ...     version = objects["orders"].put("1", {"total": 12})
        >>> engine.dispose()
        """
        given: Any = connection
        if not isinstance(given, sa.Connection) or given.closed:
            raise InvalidOption("connection", f"{connection!r} is no open sqlalchemy.Connection")
        _check_driver("connection", connection.dialect, self._database)
        return Transaction(connection, self)

    def model(self, name: str) -> type[Any]:
        """Return the class that SQLAlchemy's ORM maps to a collection, for the caller's own queries.

        Its attributes are `seq`, `id`, `body`, `version`, `created_at`, `updated_at` and
        `expires_at`. The collection comes into being. Each call returns a class of its own.

        >>> import sqlalchemy as sa
        >>> with Store("sqlite://") as store:
        ...     City = store.model("cities")
        ...     print(sa.select(City.id).where(City.body["country"].as_string() == "de").whereclause)
        cs_1_cities.body[:body_1] = :param_1
        """
        return mapped_class(self.run(FindTable(check_name(name))).table, name)

    def _width(self) -> int:
        """Tell how many operations run at a time."""
        return connections(self._url, self._options, self._database)

    def _run_job(self, job: Job) -> None:
        try:
            backend = self._backend or self._open()
        except Exception as error:  # noqa: BLE001 - it is raised where the job is waited for
            job.finish(error=error)
        else:
            backend.run_job(job)

    def _run_within(self, transaction: Transaction, operation: Operation[T]) -> T:
        if self._closed is not None:
            raise StoreClosed(self._closed)
        connection = transaction._connection
        if self._backend is not None or transaction._ready:
            try:
                return run_within(connection, operation)
            except TableVanished:
                pass  # perhaps it was made ready in what was rolled back since
        make_ready(Lease(transaction._sa, connection), self._options)
        transaction._ready = True
        try:
            return run_within(connection, operation)
        except TableVanished as error:
            raise DatabaseError(f"{error}: was it dropped by hand?") from error

    def _open(self) -> Backend:
        with self._opening:
            if self._closed is not None:
                raise StoreClosed(self._closed)
            if self._backend is None:
                where = self._url if self._given is None else self._given
                backend = Backend(where, self._catalogue, self._options, self._hand_over)
                self._finalizer = weakref.finalize(self, backend.close, LAST_PATIENCE)
                self._backend = backend
            return self._backend

    @property
    def _is_forked(self) -> bool:
        return self._closed == FORKED

    def _forked(self) -> None:
        """Give up what belongs to the parent process. Nothing is closed: that would end the
        parent's connections too.
        """
        self._opening = threading.Lock()
        if self._backend is not None:
            _abandoned.append(self._backend)
            self._backend = None
            self._closed = FORKED
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_abandoned: Final[list[Backend]] = []


def _after_fork() -> None:
    for store in list(_stores):
        store._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _check_driver(option: str, dialect: sa.Dialect, database: Database) -> None:
    if dialect.is_async and option == "engine":
        raise InvalidOption(option, "give a synchronous engine, or use bind(connection)")
    if dialect.name != database.NAME:
        raise InvalidOption(option, f"it leads to {dialect.name}, not {database.NAME}")
    if dialect.driver not in database.DRIVERS:
        known = " or ".join(sorted(database.DRIVERS))
        raise InvalidOption(option, f"its driver is {dialect.driver}: use {known}")


def _check_engine(engine: sa.Engine, options: Options, database: Database) -> None:
    if options.pool_size is not None:
        raise InvalidOption("pool_size", "the engine that was given has a pool of its own")
    if options.durability != "full":
        raise InvalidOption("durability", "the engine that was given has settings of its own")
    if database.is_private(engine.url) and not isinstance(engine.pool, sa.StaticPool):
        raise InvalidOption(
            "engine", "each of its connections is a database of its own: use poolclass=StaticPool"
        )


def _target(url: str | sa.URL | None, engine: sa.Engine | None) -> tuple[sa.URL, sa.Engine | None]:
    if (url is None) == (engine is None):
        raise InvalidOption("url", "give a store either a URL or an engine")
    if engine is not None:
        if not isinstance(engine, sa.Engine):
            raise InvalidOption("engine", f"{engine!r} is not a (synchronous) sqlalchemy.Engine")
        return engine.url, engine
    assert url is not None
    return read_url(url), None
