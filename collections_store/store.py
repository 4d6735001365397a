"""A database of collections: its connections, and what runs operations and transactions on it."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import sqlalchemy as sa

from . import dialects
from .backend import Backend, connections, transactions
from .bell import Bell, ring
from .blocks import Held
from .change import Place
from .codec import Codec
from .components import Component, Components, check_synchronous, noting, tear_down
from .dialects import Database, Durability, Isolation, TableVanished
from .document import check_name
from .errors import (
    CollectionsStoreError,
    DatabaseError,
    DatabaseUnavailable,
    InvalidOption,
    StoreClosed,
    TransactionConflict,
)
from .execution import run_within
from .jobs import Job
from .opening import make_ready
from .operations import Catalogue, FindTable, LastChange, Operation, SharedConnection
from .options import (
    MAX_BODY,
    Nul,
    Options,
    Upgrade,
    check_attempts,
    check_isolation,
    safe_url,
)
from .pool import Lease
from .schema import mapped_class
from .statements import CatalogueStatements
from .sweeper import Sweeper
from .targets import check_driver, check_engine, read_target
from .transaction import Bound, Collections, Transaction
from .turns import Turn, Turns

T = TypeVar("T")

FORKED: Final = "the store belongs to the process this one was forked from: open another"
ATTEMPTS: Final = 20
"""How often `run_transaction` calls a function, unless told otherwise."""
LAST_PATIENCE: Final = 1.0
"""Seconds that a forgotten store waits for what still runs when the interpreter ends."""


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
    * `sweep_interval`: seconds after which a thread of the store's purges, again and again, what has
      expired in any collection, and changes that are kept no longer; None: `purge_expired` does.
    * `page_cache`: bytes of an SQLite file that each connection keeps in memory at most; 16 MiB.
      PostgreSQL's server has its own. Not with `engine`.

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
        sweep_interval: float | None = None,
        page_cache: int | None = None,
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
            sweep_interval=sweep_interval,
            page_cache=page_cache,
        )
        self._codec: Codec = self._options.codec()
        self._url, self._given = read_target(url, engine)
        self._database: Database = dialects.named(self._url.get_backend_name())
        self._options.check_for(self._database)
        if self._given is None:
            self._url = self._database.normal_url(self._url)
        else:
            check_driver("engine", self._given.dialect, self._database)
        if self._given is not None:
            check_engine(self._given, self._options, self._database)
        statements = CatalogueStatements(self._options.names(), self._database)
        self._catalogue = Catalogue(statements)
        self._catalogue.changed = ring
        self._bell: Bell = self._new_bell()
        self._sweeper: Sweeper | None = None
        self._opening, self._closing = threading.Lock(), threading.RLock()
        self._turns = self._new_turns()
        self._backend: Backend | None = None
        self._closed: str | None = None
        self._hand_over: Callable[[Job], None] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._components: Components[Component] = Components()
        self._is_tearing_down = False
        _stores.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({safe_url(self._url)!r})"

    def attach(self, component: Component) -> None:
        """Have a component set up and torn down with the store.

        `component.setup()` is called when the store is entered (`with store:`); one that is attached
        later sets itself up. `component.teardown()` is called by `close()`, before the connections end:
        of the one attached last first, and also if one could not be set up. What they raise is raised,
        when the others had their turn. Raises `InvalidOption` and `StoreClosed`.

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
        if self._closed is not None:
            raise StoreClosed(self._closed)
        check_synchronous(component)
        self._components.attach(component)

    def __enter__(self) -> Self:
        try:
            for component in self._components:
                component.setup()
        except BaseException as error:
            with noting(error):
                self.close()
            raise
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
        `StoreClosed`. Closing again does nothing. What is attached is torn down first.
        """
        with self._closing:  # whoever comes second waits for the first
            if self._is_tearing_down:
                return  # it is what is torn down that closes it
            self._is_tearing_down = True
            try:
                if self._closed is None:
                    tear_down(self._components.taken())
            finally:
                self._is_tearing_down = False
                self._close(None)

    def _close(self, patience: float | None) -> None:
        with self._opening:
            if self._closed is None:
                self._closed = "the store is closed"
            backend, self._backend = self._backend, None
            sweeper, self._sweeper = self._sweeper, None
        patience = self._options.busy_timeout if patience is None else patience
        self._bell.close()
        if sweeper is not None:
            sweeper.thread.stop()
        if backend is not None and self._finalizer is not None:
            self._finalizer.detach()
            backend.close(patience)
        self._bell.join(patience)
        if sweeper is not None:
            sweeper.thread.join(patience)

    def _close_transactions(self, patience: float | None) -> None:
        """Begin no more transactions; wait for those that are open, and then roll them back."""
        patience = self._options.busy_timeout if patience is None else patience
        self._turns.close(patience)
        if self._backend is not None:
            self._backend.close_transactions(patience)

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result; every verb comes through here."""
        return (self._backend or self._open()).run(operation)

    def transaction(
        self, *, isolation: Isolation = "repeatable read"
    ) -> AbstractContextManager[Transaction]:
        """Return a context in which operations on any collections take place as one, or not at all.

        What it gives hands out collections like the store. They see one moment of the database and
        what was written in the transaction; nobody else sees that before the end of the block. That
        commits, or rolls back if the block ends with an exception.

        On SQLite a transaction is the only one that writes, from its beginning on: keep it short.
        Others may read. In memory nobody else gets at the database meanwhile. On PostgreSQL two may
        meet, which is a `TransactionConflict` for one of them: `run_transaction` begins again.

        `isolation`: "repeatable read", or "serializable", which on PostgreSQL costs more conflicts
        and also prevents write skew; SQLite is that always. Raises `InvalidOption`, `DatabaseBusy` if
        no transaction can begin within `busy_timeout`, and at the end `TransactionEnded` if it did
        not go on to the end.

        >>> with Store("sqlite://") as store:
        ...     with store.transaction() as tx:
        ...         stock = tx["stock"].get("tea", 3)
        ...         version = tx["stock"].put("tea", stock - 1)
        ...         version = tx["orders"].put("7", {"tea": 1})
        ...     store["stock"].get("tea")
        2
        """
        return _Whole(self, check_isolation(isolation))

    def run_transaction(
        self,
        function: Callable[[Transaction], T],
        *,
        attempts: int = ATTEMPTS,
        isolation: Isolation = "repeatable read",
    ) -> T:
        """Call a function with a transaction, commit that, and return what the function returned.

        If another transaction gets in the way, or the connection is lost before the commit, all is
        rolled back and the function called again, up to `attempts` times in all: it must not do what
        cannot be done twice. Another exception rolls back and is raised. What was last in the way is
        raised when no attempt is left. `isolation` is as in `transaction`.

        >>> def sell(tx):
        ...     stock = tx["stock"].get("tea", 3)
        ...     tx["stock"].put("tea", stock - 1)
        ...     return stock - 1
        >>> with Store("sqlite://") as store:
        ...     store.run_transaction(sell)
        2
        """
        last = check_attempts(attempts)
        for attempt in count(1):
            begun = False
            try:
                with self.transaction(isolation=isolation) as transaction:
                    begun = True
                    return function(transaction)
            except (TransactionConflict, DatabaseUnavailable) as error:
                if not begun or attempt >= last or not may_run_again(error):
                    raise
            time.sleep(pause_after(attempt))
        raise AssertionError("unreachable")

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
        return Transaction(self._bound(connection), self._codec)

    def _bound(self, connection: sa.Connection) -> Bound:
        given: Any = connection
        if not isinstance(given, sa.Connection) or given.closed:
            raise InvalidOption("connection", f"{connection!r} is no open sqlalchemy.Connection")
        check_driver("connection", connection.dialect, self._database)
        shared = SharedConnection(connection, self._catalogue.without_memory())
        return Bound(shared, self._run_within)

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

    def _new_bell(self) -> Bell:
        """Have a bell; nobody else writes what lives in this store's one connection, and to look there
        while a caller is in a transaction would disturb that.
        """
        private = self._database.is_private(self._url)
        return Bell(None if private else weakref.WeakMethod(self._last_change))

    def _last_change(self, collection: str) -> Place | None:
        return self.run(LastChange(collection))

    def _new_turns(self) -> Turns:
        size = transactions(self._url, self._options, self._database)
        return Turns(size, self._options.busy_timeout)

    def _begin_here(self, isolation: Isolation) -> Held:
        if self._closed is not None:
            raise StoreClosed(self._closed)
        return self._begin(self._turns.take(), isolation)

    def _begin(self, turn: Turn, isolation: Isolation, job: Job | None = None) -> Held:
        """Begin a transaction whose turn has come; the turn is given back in any case."""
        try:
            backend = self._backend or self._open()
        except BaseException:
            self._turns.give_back(turn)
            raise
        return backend.blocks.begin(turn, isolation, job)

    def _run_job(self, job: Job) -> None:
        try:
            backend = self._backend or self._open()
        except Exception as error:  # noqa: BLE001 - it is raised where the job is waited for
            job.finish(error=error)
        else:
            backend.run_job(job)

    def _run_within(self, bound: Bound, operation: Operation[T]) -> T:
        if self._closed is not None:
            raise StoreClosed(self._closed)
        connection = bound.connection
        if self._backend is not None or bound.is_ready:
            try:
                return run_within(connection, operation)
            except TableVanished:
                pass  # perhaps it was made ready in what was rolled back since
        make_ready(Lease(connection.sa, connection), self._options)
        bound.is_ready = True
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
                backend = Backend(
                    where, self._catalogue, self._options, self._turns, self._hand_over
                )
                self._finalizer = weakref.finalize(self, backend.close, LAST_PATIENCE)
                self._backend = backend
                if self._options.sweep_interval is not None:
                    run = weakref.WeakMethod(self.run)
                    self._sweeper = Sweeper(run, self._options.sweep_interval)
            return self._backend

    @property
    def _is_forked(self) -> bool:
        return self._closed == FORKED

    def _forked(self) -> None:
        """Give up what belongs to the parent process. Nothing is closed: that would end the
        parent's connections too.
        """
        self._opening, self._closing = threading.Lock(), threading.RLock()
        self._turns, self._sweeper = self._new_turns(), None
        self._bell.forked()
        if self._backend is not None:
            _abandoned.append((self._backend, self._backend.blocks.fork()))
            self._backend = None
            self._closed = FORKED
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None


class _Whole:
    """The context of a transaction. No generator: a signal that raises as such a context is entered
    leaves that behind, and the transaction open for as long as the traceback is kept.
    """

    def __init__(self, store: Store, isolation: Isolation) -> None:
        self._store, self._isolation = store, isolation
        self._open: list[Held] = []

    def __enter__(self) -> Transaction:
        held: Held | None = None
        try:
            held = self._store._begin_here(self._isolation)
            self._open.append(held)
            return Transaction(held.block, self._store._codec)
        except BaseException:
            if held is not None:
                held.block.rollback()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held = self._open.pop()
        if error is None:
            held.block.commit()
        else:
            held.block.rollback(error)


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_abandoned: Final[list[tuple[Backend, list[Held | None]]]] = []


def _after_fork() -> None:
    for store in list(_stores):
        store._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def may_run_again(error: CollectionsStoreError) -> bool:
    """Was what a transaction met no answer to its commit?"""
    return not getattr(error, "in_doubt", False)


def pause_after(attempt: int) -> float:
    """Return how many seconds to wait, so that those who met do not meet again."""
    return random.uniform(0, 0.001 * 2 ** min(attempt, 8))
