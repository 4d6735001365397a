"""Transactions, and the methods that stores and transactions have in common. Begin with `Collections`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack, overload

import sqlalchemy as sa

from .codec import Codec
from .collection import Collection, Runner, VersionedRunner
from .document import SKILL_MEMORY, Body, check_name
from .engine.core import Core
from .engine.executor import run_within, translated
from .engine.inherited import protect
from .engine.lifecycle import make_ready
from .engine.notifier import ChangeNotifier
from .engine.observe import Observer
from .engine.pool import PooledConnection, check_driver
from .engine.transactions import OpenTransaction, TransactionResources
from .errors import (
    CollectionsStoreError,
    DatabaseError,
    InvalidOption,
    TransactionEnded,
    missing_collection,
    refuse_pickling,
    shortened,
)
from .expressions.classes import lazy_type
from .models.upgrades import Upgrades
from .models.versioned import VersionedCodec
from .operations.collections import (
    AS_IT_IS,
    CreateCollection,
    DropCollection,
    ListCollections,
    Rename,
)
from .operations.operation import Operation, Steps
from .operations.procedures import declare
from .operations.session import SharedSession
from .operations.shared import is_in_transaction
from .options import (
    CollectionSettings,
    Consistency,
    Isolation,
    ModelSettings,
    ReadSettings,
    Settings,
    Ttl,
    VersionSettings,
    check_flag,
)
from .query.index import Index
from .results import CollectionInfo, Invalid
from .sql.dialects.protocols import TableVanished

if TYPE_CHECKING:
    from .memory import Memory
    from .memory.skills import Policy, SkillMemory
else:
    Memory = lazy_type("collections_store.memory", "Memory")
    Policy = lazy_type("collections_store.memory.skills", "Policy")
    SkillMemory = lazy_type("collections_store.memory.skills", "SkillMemory")

T = TypeVar("T")

SAVEPOINT_ENDED: Final = "the savepoint was released or rolled back: use the transaction around it"
OUT_OF_ORDER: Final = (
    "a savepoint ended before one that was set later: both were rolled back. "
    "Tasks and threads that share a transaction cannot have savepoints of their own in it"
)


_READING: Final = ("invalid", "trusted", "extra")
"""The options of a model."""


class Collections(ABC):
    """The methods that a store and a transaction have in common."""

    _codec: Codec
    _notifier: ChangeNotifier | None = None
    """None in a transaction."""
    _consistency: Consistency = "strong"
    """The consistency of reads of the collections."""
    __reduce__ = refuse_pickling

    if not TYPE_CHECKING:  # a type checker that saw this would take any misspelt name

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_collection(type(self).__name__, name), name=name, obj=self)

    @abstractmethod
    def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Return the operation's result."""

    @property
    def _runner(self) -> Runner:
        """The runner of the collections' operations."""
        return self.run

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return the context of a transaction, or of a savepoint in one."""

    @overload
    def collection(self, name: str, **settings: Unpack[VersionSettings]) -> Collection: ...
    @overload
    def collection(
        self, name: type[Body], *, invalid: Literal["return"], **settings: Unpack[ReadSettings]
    ) -> Collection[Body | Invalid]: ...
    @overload
    def collection(
        self,
        name: str,
        *,
        model: type[Body],
        invalid: Literal["return"],
        **settings: Unpack[ReadSettings],
    ) -> Collection[Body | Invalid]: ...
    @overload
    def collection(
        self, name: type[Body], **settings: Unpack[ModelSettings]
    ) -> Collection[Body]: ...
    @overload
    def collection(
        self, name: str, *, model: type[Body], **settings: Unpack[ModelSettings]
    ) -> Collection[Body]: ...
    @overload
    def collection(
        self, name: str, *, model: Any, **settings: Unpack[ModelSettings]
    ) -> Collection[Any]: ...
    def collection(
        self, name: Any, *, model: Any = None, **settings: Unpack[ModelSettings]
    ) -> Collection[Any]:
        """Return a collection. Do no I/O unless an option is given, or the model declares indexes.

        A name has 1 to 200 of the characters A-Z, a-z, 0-9 and _, and is case-sensitive. Options of
        `CollectionSettings` are stored with the collection, which is created if necessary, and hold for every process.
        `VersionSettings` adds the schema version of the documents, and functions to upgrade older documents; the first
        declaration of a version builds an index of the documents with another version.

        The bodies are JSON, or instances of `model`: a pydantic model or dataclass (extra `pydantic`), a msgspec
        struct, a dataclass, a `TypedDict` or an attrs class (extra `msgspec`), or a union of these. A class in place of
        the name is the model; the name is then the class's `__collection__`, or the class name. Every write is
        validated. `ModelSettings` has the options of reads. Missing declared indexes are created; a declared index that
        differs from the existing index raises `IndexExists`.

        Raise `InvalidName`, `InvalidOption`, `InvalidIndex` and `MissingExtra`.

        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class City:
        ...     people: int
        >>> cities = store.collection("cities", model=City)
        >>> version = cities.put("ulm", City(126_000))
        >>> cities.get("ulm")
        City(people=126000)
        """
        if model is None and not settings and type(name) is str:  # the usual call, sooner
            return self[name]
        parts = self._runner, self._codec, self._notifier, self._consistency
        return sync_collection(*parts, name, model, settings)

    get_sync_collection = collection
    """AEA's name for `collection`."""

    def memory(self, namespace: str) -> Memory:
        """Return a memory: values under keys, in a separate collection. The namespace is any non-empty string.
        Raise `InvalidOption`.

        >>> version = store.memory("bot").put("name", "Ada")
        >>> store.memory("bot").get("name")
        'Ada'
        """
        from .memory import Memory
        from .memory.encoding import collection_of
        from .memory.procedures import Procedures

        return Memory(self, Procedures(collection_of(namespace), self._codec))

    def skill_memory(
        self,
        *,
        policy: Policy = "creator",
        model: Callable[..., Any] | None = None,
        ttl: Ttl = None,
        collection: str = SKILL_MEMORY,
    ) -> SkillMemory:
        """Return the skills' memories of sessions, by the rules of Soul Machines' platform.

        A memory is a dict, or the result of `model` called with the fields; see `SkillMemory` for `policy` and `ttl`.
        Raise `InvalidName` and `InvalidOption`.

        >>> skills = store.skill_memory(policy="raise")
        >>> count = skills.save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        >>> [each["value"] for each in skills.load("session 1", "weather")]
        ['Bonn']
        """
        from .memory.skills import SkillMemory

        return SkillMemory(self, collection, policy=policy, model=model, ttl=ttl)

    def __getitem__(self, name: str) -> Collection:
        checked = check_name(name)
        return Collection(self._runner, self._codec, checked, self._notifier, self._consistency)

    def create_collection(
        self,
        name: str,
        *,
        body_index: bool = True,
        jsonb: bool = False,
        distributed: bool = False,
        **settings: Unpack[CollectionSettings],
    ) -> Collection:
        """Create a collection with options, and return it. Without options the first write creates it.

        `body_index`: PostgreSQL maintains an index over whole bodies, for equality at any depth and through arrays;
        without the index writes are cheaper. SQLite has no such index. `jsonb`: SQLite (3.45 or newer) stores bodies as
        JSONB: scans are faster, `get` is slower. PostgreSQL always stores JSONB. `distributed`: the documents are
        spread over all workers of a Citus cluster by the hash of the id, in a store opened with
        `sharding="collections"`. Such a collection has no unique indexes. For further options see `collection`. Raise
        `InvalidName`, `InvalidOption` and `CollectionExists`.

        >>> store.create_collection("log", body_index=False, ttl=86_400)
        Collection('log')
        """
        wanted = Settings.parse(settings)
        bodies = check_flag("body_index", body_index), wanted, check_flag("jsonb", jsonb)
        is_distributed = check_flag("distributed", distributed)
        self.run(CreateCollection(check_name(name), *bodies, True, is_distributed))
        return self[name]

    def collections(self) -> list[CollectionInfo]:
        """List the collections by name, with their counts and sizes.

        >>> version = store.collection("cities").put("berlin", {})
        >>> [(each.name, each.count) for each in store.collections()]
        [('cities', 1)]
        """
        return self.run(ListCollections())

    def drop(self, name: str) -> bool:
        """Delete a collection with all documents; return whether the collection existed.

        >>> store.drop("cities")
        False
        """
        return self.run(DropCollection(check_name(name)))

    def rename(self, old: str, new: str) -> None:
        """Rename a collection; raise `CollectionNotFound` and `CollectionExists`.

        >>> version = store["towns"].put("berlin", {})
        >>> store.rename("towns", "cities")
        >>> store["cities"].count()
        1
        """
        self.run(Rename(check_name(old), check_name(new)))


def opened(
    name: Any, codec: Codec, model: Any, settings: Mapping[str, Any]
) -> tuple[str, Codec, Callable[[], Steps[None]] | None]:
    """Return a collection's name and codec, and the procedure to store the declarations, None without declarations;
    raise `InvalidName`, `InvalidOption`, `InvalidIndex` and `MissingExtra`.
    """
    upgrades, others = Upgrades.taken(settings)
    reading = {option: others.pop(option) for option in _READING if option in others}
    wanted = Settings.parse(others, ModelSettings)
    indexes: Sequence[Index] = ()
    if model is not None or isinstance(name, type):
        from .models.codec import codec_of
        from .models.declared import collection_of
        from .models.indexes import declared_indexes

        name, model = (collection_of(name), name) if model is None else (name, model)
        codec, indexes = codec_of(model, codec, **reading), declared_indexes(model)
        for index in indexes:
            codec.check_fields(index, "index")
    elif reading:
        raise InvalidOption("model", f"must be given with {', '.join(reading)}")
    if upgrades is not None:
        codec = VersionedCodec.of(codec, upgrades)
    version = None if upgrades is None else upgrades.version
    is_declared = wanted != AS_IT_IS or version is not None or indexes
    storing = partial(declare, name, wanted, version, indexes) if is_declared else None
    return check_name(name), codec, storing


def sync_collection(  # noqa: PLR0917 - as the callers have them
    run: Runner,
    codec: Codec,
    notifier: ChangeNotifier | None,
    consistency: Consistency,
    name: Any,
    model: Any,
    settings: Mapping[str, Any],
) -> Collection[Any]:
    """Store the declarations of a collection; return the collection."""
    name, codec, storing = opened(name, codec, model, settings)
    run = VersionedRunner(run, codec) if isinstance(codec, VersionedCodec) else run
    collection: Collection[Any] = Collection(run, codec, name, notifier, consistency)
    if storing is not None:
        collection._follow(storing())
    return collection


class Bound:
    """The caller's transaction, on the caller's connection."""

    observer: Observer
    state = "bound to a connection"

    def __init__(self, core: Core, connection: SharedSession) -> None:
        self.observer, self._core, self._connection = core.observer, core, connection
        self.savepoints: list[Any] = []

    def step(self, operation: Operation[T], _: object = None) -> T:
        """Run an operation; before a write create the tables if necessary."""
        core, connection = self._core, self._connection.sa
        core.refuse_if_closed()
        if operation.writes and core.database.single_writer:
            self._note_writing()
        pooled = PooledConnection(connection, self._connection)
        if self._connection.catalogue.exists:
            try:
                return run_within(pooled, operation)
            except TableVanished:  # a transaction that created the tables may have been rolled back
                self._connection.catalogue.exists = False
        make_ready(pooled, core.options, write=operation.writes)
        try:
            return run_within(pooled, operation)
        except TableVanished as error:
            raise DatabaseError(f"{error}: was it dropped or changed by hand?") from error

    def _note_writing(self) -> None:
        """Note the caller's transaction as the only writer, unless the database is private to the store."""
        core, connection = self._core, self._connection.sa
        if not core.is_private:
            is_open = partial(is_in_transaction, database=core.database)
            if not is_open(connection):
                core.permits.refuse_own_transaction()
            core.permits.note_writing(connection, is_open)

    def savepoint(self) -> Any:
        """Set a savepoint."""
        with translated(self._connection.database, self._connection.sa.engine):
            self._connection.prepare(write=True)
            return self._connection.begin_savepoint()

    def release(self, savepoint: Any) -> None:
        """Release a savepoint: keep the writes since then."""
        with translated(self._connection.database, self._connection.sa.engine):
            self._connection.release_savepoint(savepoint)

    def rollback_to(self, savepoint: Any) -> None:
        """Roll back to a savepoint."""
        with suppress(CollectionsStoreError), translated(self._connection.database):
            self._connection.rollback_to(savepoint)


def bound(core: Core, given: Any) -> Bound:
    """Return the scope of a caller's connection; raise `InvalidOption`."""
    if not isinstance(given, sa.Connection) or given.closed:
        is_session = hasattr(type(given), "connection") and not isinstance(given, sa.Connection)
        hint = ": give session.connection()" if is_session else ""
        problem = f"must be an open sqlalchemy.Connection, got {shortened(given)}{hint}"
        raise InvalidOption("connection", problem)
    check_driver("connection", given.dialect, core.database)
    if not core.database.urls.is_private(given.engine.url):
        protect(given.engine, given)
    return Bound(core, SharedSession(given, core.catalogue.uncached()))


class Transaction(Collections):
    """The collections of a store within a transaction, returned by `Store.transaction` and `Store.bind`.

    The writes take effect at the commit, or not at all. A failed operation changes nothing, and the transaction
    continues. Threads can share a transaction; operations run one at a time.
    """

    def __init__(self, scope: Bound | OpenTransaction, codec: Codec) -> None:
        self._scope, self._codec = scope, codec
        self._is_over = False

    def __repr__(self) -> str:
        return f"<Transaction {'over' if self._is_over else self._scope.state}>"

    def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:  # noqa: ARG002
        """Return the operation's result; writes take effect at the commit. `consistency` has no effect."""
        if self._is_over:
            raise TransactionEnded(SAVEPOINT_ENDED)
        return self._scope.observer.in_transaction(self._scope.step, operation)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return the context of a savepoint. An exception rolls back to the savepoint. The transaction continues
        anyway.

        While the savepoint is open, every operation of the transaction is part of the savepoint. Raise
        `TransactionEnded`.

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
        if self._is_over:
            raise TransactionEnded(SAVEPOINT_ENDED)
        return _SavepointContext(self._scope, self._codec)


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
    """Remove a savepoint, and all later savepoints, from the open savepoints. Return whether the savepoint was the
    innermost; None if no longer open, after the end of an outer savepoint.
    """
    position = next((number for number, each in enumerate(savepoints) if each is savepoint), None)
    if position is None:
        return None
    in_order = savepoints[-1] is savepoint
    del savepoints[position:]
    return in_order


class StoreTransactionContext:
    """The context of a transaction. Not a generator: a signal handler that raises on entry would leave the generator
    behind, and the transaction open for as long as the traceback exists.
    """

    def __init__(self, core: Core, isolation: Isolation, *, read_only: bool) -> None:
        self._core, self._isolation, self._read_only = core, isolation, read_only
        self._open: list[TransactionResources] = []

    def __enter__(self) -> Transaction:
        core, read_only = self._core, self._read_only
        permits = core.read_permits if read_only else core.permits
        resources: TransactionResources | None = None
        try:
            if permits.granted or permits.callers:
                core.refuse_if_closed()
                permits.refuse_self_deadlock()
            opened = core.opened or core.open(write=not read_only)
            manager = opened.read_transactions if read_only else opened.transactions
            resources = manager.begin(permits.acquire(), self._isolation)
            self._open.append(resources)
            return Transaction(resources.transaction, core.codec)
        except BaseException:
            if resources is not None:
                resources.transaction.rollback()
                resources.release()
            raise

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
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
