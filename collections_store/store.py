"""Stores and transactions, synchronous. Begin with `Store`: what it runs goes to `engine.backend`, opened on first use."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import count
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Self,
    TypeVar,
    Unpack,
)

import sqlalchemy as sa

from .changes.notify import ChangeNotifier, notify_all
from .codec import Codec
from .collection import (
    Collection,
)
from .document import SKILL_MEMORY, CollectionInfo, check_name
from .engine.backend import (
    Backend,
    check_driver,
    check_engine,
    connection_limit,
    read_target,
    transaction_limit,
)
from .engine.database_file import leak
from .engine.executor import run_within, translated
from .engine.jobs import Job
from .engine.lifecycle import (
    Component,
    Components,
    check_synchronous,
    make_ready,
    noting_failure,
    tear_down,
)
from .engine.permits import TransactionPermit, TransactionPermits
from .engine.pool import PooledConnection
from .engine.transactions import OpenTransaction, TransactionResources
from .engine.workers import Sweeper, working
from .errors import (
    CollectionsStoreError,
    DatabaseError,
    DatabaseUnavailable,
    InvalidOption,
    StoreClosed,
    TransactionConflict,
    TransactionEnded,
    shortened,
)
from .operations.catalogue import (
    AS_IT_IS,
    Catalogue,
    Configure,
    DropCollection,
    FindTable,
    ListCollections,
    NewCollection,
    Rename,
)
from .operations.changes import LastChange
from .operations.connection import SharedConnection, is_in_transaction
from .operations.operation import Operation
from .options import (
    CollectionSettings,
    Isolation,
    Options,
    Settings,
    StoreOptions,
    Ttl,
    check_attempts,
    check_flag,
    check_function,
    check_isolation,
    safe_url,
)
from .query.change import ChangePosition
from .query.values import lazy_type
from .sql.catalogue import CatalogueStatements
from .sql.dialects import named
from .sql.dialects.protocols import Database, TableVanished
from .sql.schema import mapped_class

if TYPE_CHECKING:
    from .integrations.soul_machines import Policy, SkillMemory
    from .memory import Memory
else:
    Memory = lazy_type("collections_store.memory", "Memory")
    Policy = lazy_type("collections_store.integrations.soul_machines", "Policy")
    SkillMemory = lazy_type("collections_store.integrations.soul_machines", "SkillMemory")


T = TypeVar("T")

BOUND: Final = "bound to a connection"
SAVEPOINT_ENDED: Final = (
    "this block of the transaction is over: use what the block around it was given"
)
OUT_OF_ORDER: Final = (
    "a block within a transaction ended before one that began later: both were rolled back. "
    "Tasks and threads that share a transaction cannot have blocks of their own in it"
)


class Collections(ABC):
    """The methods that a store and a transaction have in common."""

    _codec: Codec
    _notifier: ChangeNotifier | None = None
    """A transaction has none."""

    @abstractmethod
    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return the context of a transaction, or of a savepoint in one."""

    def collection(self, name: str, **settings: Unpack[CollectionSettings]) -> Collection:
        """Return a collection. Do no I/O unless an option is given.

        A name has 1 to 200 of the characters A-Z, a-z, 0-9 and _, and is case-sensitive. Options of `CollectionSettings`
        are stored with the collection, which is created if necessary, and hold for every process. Raise `InvalidName`
        and `InvalidOption`.

        >>> with Store("sqlite://") as store:
        ...     store.collection("my_collection")
        Collection('my_collection')
        """
        wanted = Settings.parse(settings)
        collection = Collection(self.run, self._codec, check_name(name), self._notifier)
        if wanted != AS_IT_IS:
            self.run(Configure(name, wanted))
        return collection

    get_sync_collection = collection
    """The same as `collection`, by the name that AEA gives it."""

    def memory(self, namespace: str) -> Memory:
        """Return a memory: values under keys, in its own collection. The namespace is any non-empty string. Raise
        `InvalidOption`.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").put("name", "Ada")
        ...     store.memory("bot").get("name")
        'Ada'
        """
        from .memory import Memory
        from .memory.procedures import Procedures

        return Memory(self, Procedures.of(namespace, self._codec))

    def skill_memory(
        self,
        *,
        policy: Policy = "creator",
        model: Callable[..., Any] | None = None,
        ttl: Ttl = None,
        collection: str = SKILL_MEMORY,
    ) -> SkillMemory:
        """Return the skills' memories of sessions, by the rules of Soul Machines' platform.

        A memory is a dict, or the result of `model` with its fields; see `SkillMemory` for `policy` and `ttl`. Raise
        `InvalidName` and `InvalidOption`.

        >>> with Store("sqlite://") as store:
        ...     skills = store.skill_memory(policy="raise")
        ...     count = skills.save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...     [each["value"] for each in skills.load("session 1", "weather")]
        ['Bonn']
        """
        from .integrations.soul_machines import SkillMemory

        return SkillMemory(self, collection, policy=policy, model=model, ttl=ttl)

    def __getitem__(self, name: str) -> Collection:
        return Collection(self.run, self._codec, check_name(name), self._notifier)

    def create_collection(
        self,
        name: str,
        *,
        body_index: bool = True,
        jsonb: bool = False,
        **settings: Unpack[CollectionSettings],
    ) -> Collection:
        """Create a collection with options, and return it. Without options the first write creates it.

        `body_index`: PostgreSQL maintains an index over whole bodies, which serves equality at any depth and through
        arrays; without it writes are cheaper. SQLite has no such index. `jsonb`: SQLite (3.45 or newer) stores bodies as
        JSONB: scans are faster, `get` is slower. PostgreSQL always does. For the others see `collection`. Raise
        `InvalidName`, `InvalidOption` and `CollectionExists`.

        >>> with Store("sqlite://") as store:
        ...     store.create_collection("log", body_index=False, ttl=86_400)
        Collection('log')
        """
        wanted = Settings.parse(settings)
        bodies = check_flag("body_index", body_index), wanted, check_flag("jsonb", jsonb)
        self.run(NewCollection(check_name(name), *bodies))
        return self[name]

    def collections(self) -> list[CollectionInfo]:
        """List the collections by name, with their counts and sizes.

        >>> with Store("sqlite://") as store:
        ...     version = store.collection("cities").put("berlin", {})
        ...     [(each.name, each.count) for each in store.collections()]
        [('cities', 1)]
        """
        return self.run(ListCollections())

    def drop(self, name: str) -> bool:
        """Delete a collection with all its documents; return whether it existed.

        >>> with Store("sqlite://") as store:
        ...     store.drop("cities")
        False
        """
        return self.run(DropCollection(check_name(name)))

    def rename(self, old: str, new: str) -> None:
        """Rename a collection; raise `CollectionNotFound` and `CollectionExists`.

        >>> with Store("sqlite://") as store:
        ...     version = store.collection("towns").put("berlin", {})
        ...     store.rename("towns", "cities")
        ...     store.collection("cities").count()
        1
        """
        self.run(Rename(check_name(old), check_name(new)))


class Bound:
    """A transaction of the caller's, on the caller's connection."""

    state = BOUND

    def __init__(
        self, connection: SharedConnection, run: Callable[[Bound, Operation[Any]], Any]
    ) -> None:
        self.connection, self._run = connection, run
        self.is_ready = False
        self.savepoints: list[Any] = []

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""
        result: T = self._run(self, operation)
        return result

    def savepoint(self) -> Any:
        """Set a savepoint."""
        with translated(self.connection.database, self.connection.sa.engine):
            self.connection.prepare(write=True)
            return self.connection.begin_savepoint()

    def release(self, savepoint: Any) -> None:
        """Release a savepoint: keep the writes since then."""
        with translated(self.connection.database, self.connection.sa.engine):
            self.connection.release_savepoint(savepoint)

    def rollback_to(self, savepoint: Any) -> None:
        """Roll back to a savepoint."""
        with suppress(CollectionsStoreError), translated(self.connection.database):
            self.connection.rollback_to(savepoint)


class Transaction(Collections):
    """The collections of a store within a transaction, returned by `Store.transaction` and `Store.bind`.

    Its writes take effect at the commit, or not at all. A failed operation changes nothing, and the transaction
    continues. Threads can share it; their operations run one at a time.
    """

    def __init__(self, scope: Bound | OpenTransaction, codec: Codec) -> None:
        self._scope, self._codec = scope, codec
        self._is_over = False

    def __repr__(self) -> str:
        return f"<Transaction {'over' if self._is_over else self._scope.state}>"

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result; its writes take effect at the commit."""
        if self._is_over:
            raise TransactionEnded(SAVEPOINT_ENDED)
        return self._scope.run(operation)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return the context of a savepoint, which an exception rolls back. The transaction continues in either case.

        While it is open, every operation of the transaction is part of it. Raise `TransactionEnded`.

        >>> with Store("sqlite://") as store, store.transaction() as tx:
        ...     version = tx["cities"].put("berlin", {})
        ...     try:
        ...         with tx.transaction():
        ...             version = tx["cities"].put("atlantis", {})
        ...             raise LookupError("no such city")
        ...     except LookupError:
        ...         tx["cities"].count()
        1
        """
        self._check()
        return _SavepointContext(self._scope, self._codec)

    def _check(self) -> None:
        if self._is_over:
            raise TransactionEnded(SAVEPOINT_ENDED)


class _SavepointContext:
    """The context of a savepoint."""

    def __init__(self, scope: Bound | OpenTransaction, codec: Codec) -> None:
        self._scope, self._codec = scope, codec
        self._open: list[tuple[Any, Transaction]] = []

    def __enter__(self) -> Transaction:
        savepoint, savepoints = self._scope.savepoint(), self._scope.savepoints
        try:
            savepoints.append(savepoint)
            part = Transaction(self._scope, self._codec)
            self._open.append((savepoint, part))
            return part
        except BaseException:  # a signal may raise here
            remove_savepoint(savepoints, savepoint)
            self._scope.rollback_to(savepoint)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        savepoint, part = self._open.pop()
        part._is_over = True
        in_order = remove_savepoint(self._scope.savepoints, savepoint)
        if in_order and kind is None:
            self._scope.release(savepoint)
        elif in_order is not None:
            self._scope.rollback_to(savepoint)
        if kind is None and not in_order:
            raise TransactionEnded(OUT_OF_ORDER)


def remove_savepoint(savepoints: list[Any], savepoint: Any) -> bool | None:
    """Remove a savepoint, and those set later, from the open ones. Return whether it was the innermost; None if it is
    not open any more, since one around it has ended.
    """
    position = next((number for number, each in enumerate(savepoints) if each is savepoint), None)
    if position is None:
        return None
    in_order = savepoints[-1] is savepoint
    del savepoints[position:]
    return in_order


FORKED: Final = "the store belongs to the process this one was forked from: open another"
ATTEMPTS: Final = 20
"""The default number of calls of a function by `run_transaction`."""
EXIT_TIMEOUT: Final = 1.0
"""Seconds that a store that was not closed waits for running operations when the interpreter ends."""


class Store(Collections):
    """A database of collections of JSON documents.

    `url` is `sqlite:///file.db` (a file), `sqlite://` (in memory) or `postgresql://user:password@host/database`.
    `engine` is your own SQLAlchemy engine instead, with its own pool and settings. `StoreOptions` lists the options. The
    constructor does no I/O: the first use connects, and creates the tables in an empty database.

    Any number of threads can use a store. Close it by `close()` or as a context manager.

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
        self._shown: str = safe_url(self._url if url is None else sa.make_url(url))
        with working():  # a fork during the import would leave its lock held in the child
            self._database: Database = named(self._url.get_backend_name())
        self._options.check_for(self._database)
        if self._given is None:
            self._url = self._database.urls.normal_url(self._url)
        else:
            check_driver("engine", self._given.dialect, self._database)
        if self._given is not None:
            check_engine(self._given, self._options, self._database)
        statements = CatalogueStatements(self._options.names(), self._database)
        self._catalogue = Catalogue(statements)
        self._catalogue.changed = notify_all
        self._notifier: ChangeNotifier = self._new_notifier()
        self._sweeper: Sweeper | None = None
        self._opening, self._closing = threading.Lock(), threading.RLock()
        self._permits = self._new_permits()
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
        if self._closed is not None:
            raise StoreClosed(self._closed)
        check_synchronous(component)
        self._components.attach(component)

    def __enter__(self) -> Self:
        try:
            for component in self._components:
                component.setup()
        except BaseException as error:
            with noting_failure(error):
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
        """Tear down attached components, wait for running operations, and end the connections.

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
        self._notifier.close()
        if sweeper is not None:
            sweeper.thread.stop()
        if backend is not None and self._finalizer is not None:
            self._finalizer.detach()
            backend.close(timeout)
        self._notifier.join(timeout)
        if sweeper is not None:
            sweeper.thread.join(timeout)

    def _close_transactions(self, timeout: float | None) -> None:
        """Begin no more transactions, wait for the open ones, and roll back those that remain."""
        timeout = self._options.busy_timeout if timeout is None else timeout
        self._permits.close(timeout)
        if self._backend is not None:
            self._backend.close_transactions(timeout)

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result; every method of a collection calls this."""
        return (self._backend or self._open()).run(operation)

    def transaction(
        self, *, isolation: Isolation = "repeatable read"
    ) -> AbstractContextManager[Transaction]:
        """Return the context of a transaction over any collections.

        Its value returns collections as the store does. They see one snapshot and the transaction's own writes. Others see
        the writes after the end of the block, which commits, or rolls back after an exception.

        On SQLite a transaction is the only writer from its start: keep it short. Others can read; in memory they wait. On
        PostgreSQL two transactions can conflict, and one gets `TransactionConflict`: `run_transaction` repeats it.

        `isolation`: "repeatable read", or "serializable", which on PostgreSQL also prevents write skew and causes more
        conflicts; SQLite is always serializable. Raise `InvalidOption`, `DatabaseBusy` if no transaction can begin within
        `busy_timeout`, and at the end `TransactionEnded` if it was rolled back before.

        >>> with Store("sqlite://") as store:
        ...     with store.transaction() as tx:
        ...         stock = tx["stock"].get("tea", 3)
        ...         version = tx["stock"].put("tea", stock - 1)
        ...         version = tx["orders"].put("7", {"tea": 1})
        ...     store["stock"].get("tea")
        2
        """
        return _TransactionContext(self, check_isolation(isolation))

    def run_transaction(
        self,
        function: Callable[[Transaction], T],
        *,
        attempts: int = ATTEMPTS,
        isolation: Isolation = "repeatable read",
    ) -> T:
        """Call a function with a transaction, commit it, and return the function's result.

        After a conflict, or if the connection is lost before the commit, roll back and call the function again, up to
        `attempts` times in all, then raise the last error: the function must have no other effects. Any other exception
        rolls back and propagates. `isolation` is as in `transaction`.

        >>> def sell(tx):
        ...     stock = tx["stock"].get("tea", 3)
        ...     tx["stock"].put("tea", stock - 1)
        ...     return stock - 1
        >>> with Store("sqlite://") as store:
        ...     store.run_transaction(sell)
        2
        """
        last = check_attempts(attempts)
        check_function("function", function)
        for attempt in count(1):
            begun = False
            try:
                with self.transaction(isolation=isolation) as transaction:
                    begun = True
                    return function(transaction)
            except (TransactionConflict, DatabaseUnavailable) as error:
                if not begun or attempt >= last or not may_retry_transaction(error):
                    raise
            time.sleep(pause_between_transactions(attempt))
        raise AssertionError("unreachable")

    def bind(self, connection: sa.Connection) -> Transaction:
        """Return the store's collections within your own SQLAlchemy transaction.

        Your commit of `connection` commits their writes, too, and your rollback discards them. The connection must lead to
        the store's database.

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
            is_session = hasattr(type(given), "connection") and not isinstance(given, sa.Connection)
            hint = ": give session.connection()" if is_session else ""
            raise InvalidOption(
                "connection",
                f"must be an open sqlalchemy.Connection, got {shortened(connection)}{hint}",
            )
        check_driver("connection", connection.dialect, self._database)
        shared = SharedConnection(connection, self._catalogue.uncached())
        return Bound(shared, self._run_within)

    def model(self, name: str) -> type[Any]:
        """Return a new ORM class of a collection, for your own queries; create the collection if necessary.

        Its attributes are `seq`, `id`, `body`, `version`, `created_at`, `updated_at` and `expires_at`.

        >>> import sqlalchemy as sa
        >>> with Store("sqlite://") as store:
        ...     City = store.model("cities")
        ...     print(sa.select(City.id).where(City.body["country"].as_string() == "de").whereclause)
        cs_1_cities.body[:body_1] = :param_1
        """
        return mapped_class(self.run(FindTable(check_name(name))).table, name)

    def _concurrency(self) -> int:
        """Return the number of operations that can run at the same time."""
        return connection_limit(self._url, self._options, self._database)

    def _new_notifier(self) -> ChangeNotifier:
        """Return the store's change notifier. It polls no private database: only this store writes to it, and a
        poll on its one connection would disturb a caller's transaction.
        """
        private = self._database.urls.is_private(self._url)
        return ChangeNotifier(None if private else weakref.WeakMethod(self._last_change))

    def _last_change(self, collection: str) -> ChangePosition | None:
        return self.run(LastChange(collection))

    def _new_permits(self) -> TransactionPermits:
        size = transaction_limit(self._url, self._options, self._database)
        return TransactionPermits(size, self._options.busy_timeout)

    def _begin_here(self, isolation: Isolation) -> TransactionResources:
        if self._closed is not None:
            raise StoreClosed(self._closed)
        self._permits.refuse_self_deadlock()
        permit = self._permits.acquire()
        try:
            return (self._backend or self._open()).transactions.begin(permit, isolation)
        except BaseException:
            self._permits.release(permit)
            raise

    def _begin(
        self, permit: TransactionPermit, isolation: Isolation, job: Job | None = None
    ) -> TransactionResources:
        """Begin a transaction with a permit; if this raises, the caller releases that."""
        return (self._backend or self._open()).transactions.begin(permit, isolation, job)

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
        if operation.writes and self._database.single_writer:
            self._note_writing(bound.connection.sa)
        pooled = PooledConnection(bound.connection.sa, bound.connection)
        if self._backend is not None or bound.is_ready:
            try:
                return run_within(pooled, operation)
            except TableVanished:
                pass  # the tables may have been created in a transaction that was rolled back
        make_ready(pooled, self._options)
        bound.is_ready = True
        try:
            return run_within(pooled, operation)
        except TableVanished as error:
            raise DatabaseError(f"{error}: was it dropped by hand?") from error

    def _note_writing(self, connection: sa.Connection) -> None:
        """Note that a caller's transaction is about to hold the one writer, if it is not the store's own."""
        is_open = partial(is_in_transaction, database=self._database)
        if not self._database.urls.is_private(self._url):
            if not is_open(connection):
                self._permits.refuse_own_transaction()
            self._permits.note_writing(connection, is_open)

    def _open(self) -> Backend:
        with self._opening:
            if self._closed is not None:
                raise StoreClosed(self._closed)
            if self._backend is None:
                where = self._url if self._given is None else self._given
                with working():
                    backend = Backend(
                        where, self._catalogue, self._options, self._permits, self._hand_over
                    )
                self._finalizer = weakref.finalize(self, backend.close, EXIT_TIMEOUT)
                self._backend = backend
                if self._options.sweep_interval is not None:
                    run = weakref.WeakMethod(self.run)
                    self._sweeper = Sweeper(run, self._options.sweep_interval)
            return self._backend

    @property
    def _is_forked(self) -> bool:
        return self._closed == FORKED

    def _forked(self) -> None:
        """Abandon what belongs to the parent process, without closing it: that would end the parent's connections."""
        self._opening, self._closing = threading.Lock(), threading.RLock()
        self._permits, self._sweeper = self._new_permits(), None
        self._notifier.forked()
        if self._backend is not None:
            left = self._backend, self._backend.transactions.fork()
            _abandoned.append(left)
            if self._backend.has_file_open:
                leak(left)
            self._backend = None
            self._closed = FORKED
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None


class _TransactionContext:
    """The context of a transaction. No generator: a signal that raises as a generator's context is entered leaves that
    behind, and the transaction open for as long as the traceback exists.
    """

    def __init__(self, store: Store, isolation: Isolation) -> None:
        self._store, self._isolation = store, isolation
        self._open: list[TransactionResources] = []

    def __enter__(self) -> Transaction:
        resources: TransactionResources | None = None
        try:
            resources = self._store._begin_here(self._isolation)
            self._open.append(resources)
            return Transaction(resources.transaction, self._store._codec)
        except BaseException:
            if resources is not None:
                resources.transaction.rollback()
                resources.release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        resources = self._open.pop()
        try:
            if error is None:
                resources.transaction.commit()
            else:
                resources.transaction.rollback(error)
        except BaseException:  # a signal may raise before these begin
            resources.transaction.rollback()
            resources.release()
            raise


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_abandoned: Final[list[tuple[Backend, list[TransactionResources | None]]]] = []


def _after_fork() -> None:
    for store in list(_stores):
        store._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def may_retry_transaction(error: CollectionsStoreError) -> bool:
    """Return whether the failed transaction is known to be uncommitted, and another attempt may succeed."""
    return not (getattr(error, "in_doubt", False) or getattr(error, "is_final", False))


def pause_between_transactions(attempt: int) -> float:
    """Return how many seconds to wait after a conflict; random, so that the same transactions do not conflict again."""
    return random.uniform(0, 0.001 * 2 ** min(attempt, 8))
