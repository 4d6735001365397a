"""A database of collections, for asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import sqlalchemy as sa

from .collection import Collection, Ttl
from .collection_async import AsyncCollection
from .collection_options import Changes, Settings
from .dialects import Durability
from .document import CollectionInfo, check_name
from .errors import StoreClosed
from .operations import (
    AS_IT_IS,
    Configure,
    Drop,
    FindTable,
    ListCollections,
    NewCollection,
    Operation,
    Rename,
)
from .options import MAX_BODY, Nul, Upgrade, check_flag
from .schema import mapped_class
from .store import LAST_PATIENCE, Store, Transaction
from .threads import AwaitedJob, Mailbox, Workers

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")


class AsyncCollections:
    """What a store and a transaction have in common: collections, and something that runs."""

    _store: Store

    async def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""
        raise NotImplementedError

    async def get_collection(
        self,
        name: str,
        *,
        ttl: Ttl = None,
        sliding: bool | None = None,
        changes: Changes = None,
        changes_kept: int | None = None,
        changes_ttl: Ttl = None,
    ) -> AsyncCollection:
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

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.get_collection("my_collection")
        >>> asyncio.run(main())
        AsyncCollection('my_collection')
        """
        options = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=ttl, sliding=sliding, changes=changes, **options)
        collection = AsyncCollection(self.run, self._store._codec, check_name(name))
        if settings != AS_IT_IS:
            await self.run(Configure(name, settings))
        return collection

    def __getitem__(self, name: str) -> AsyncCollection:
        return AsyncCollection(self.run, self._store._codec, check_name(name))

    async def create_collection(
        self,
        name: str,
        *,
        body_index: bool = True,
        ttl: Ttl = None,
        sliding: bool | None = None,
        changes: Changes = None,
        changes_kept: int | None = None,
        changes_ttl: Ttl = None,
    ) -> AsyncCollection:
        """Create a collection that is not there yet, and return its handle.

        There is no need to: a collection comes into being when something is put into it. This is for
        its options. `body_index`: PostgreSQL keeps an index over whole bodies, which serves equality
        at any depth, through arrays too; without it, writes are cheaper. SQLite has no such index. For
        the others see `get_collection`. Raises `InvalidName`, `InvalidOption` and
        `CollectionExists`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.create_collection("log", body_index=False, ttl=86_400)
        >>> asyncio.run(main())
        AsyncCollection('log')
        """
        options = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=ttl, sliding=sliding, changes=changes, **options)
        await self.run(
            NewCollection(check_name(name), check_flag("body_index", body_index), settings)
        )
        return self[name]

    async def collections(self) -> list[CollectionInfo]:
        """List the collections by name, with their counts and sizes.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         await store["cities"].put("berlin", {})
        ...         return [(each.name, each.count) for each in await store.collections()]
        >>> asyncio.run(main())
        [('cities', 1)]
        """
        return await self.run(ListCollections())

    async def drop(self, name: str) -> bool:
        """Delete a collection with all its objects; tells whether it was there.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.drop("cities")
        >>> asyncio.run(main())
        False
        """
        return await self.run(Drop(check_name(name)))

    async def rename(self, old: str, new: str) -> None:
        """Give a collection another name; raises `CollectionNotFound` and `CollectionExists`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         await store["towns"].put("berlin", {})
        ...         await store.rename("towns", "cities")
        ...         return await store["cities"].count()
        >>> asyncio.run(main())
        1
        """
        await self.run(Rename(check_name(old), check_name(new)))


class AsyncTransaction(AsyncCollections):
    """Collections within a transaction of the caller's: see `AsyncStore.bind`."""

    def __init__(self, connection: AsyncConnection, store: AsyncStore) -> None:
        self._connection, self._owner, self._store = connection, store, store._store
        self._transaction: Transaction | None = None

    async def run(self, operation: Operation[T]) -> T:
        """Return the operation's result; it becomes real when the caller commits."""

        def run(connection: sa.Connection) -> T:
            if self._transaction is None:
                self._transaction = self._store.bind(connection)
            return self._transaction.run(operation)

        return await self._connection.run_sync(run)


class AsyncStore(AsyncCollections):
    """A database of collections of JSON objects, for asyncio.

    It takes what `Store` takes, and gives the same answers; its docstring explains each option.
    Operations run on the store's own threads, one hop each: the event loop is never blocked. It may
    be used from any number of tasks and event loops.

    A call that is cancelled writes nothing or everything, and is over before the cancellation goes
    on; `was_committed(error)` tells which of the two it was.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         await store["cities"].put("berlin", {"country": {"code": "de"}})
    ...         return [city.id for city in await store["cities"].find("country.code", "de")]
    >>> asyncio.run(main())
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
        self._store = Store(
            url,
            engine=engine,
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
        self._mailbox: Mailbox | None = None
        self._finished = threading.Event()
        self._employ()
        _stores.add(self)

    def _employ(self) -> None:
        """Have workers; they start when there is work."""
        self._workers = Workers(self._store._run_job, self._store._width())
        self._store._hand_over = self._workers.hand_over
        parts = self._workers, self._store
        self._finalizer = weakref.finalize(self, _finish, *parts, LAST_PATIENCE)

    def __repr__(self) -> str:
        return repr(self._store).replace("Store", "AsyncStore", 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for the operations that run, and end the connections; any further use raises
        `StoreClosed`. Closing again does nothing.
        """
        if self._finalizer.detach() is not None:
            await asyncio.shield(asyncio.to_thread(self._finish))
        else:
            await asyncio.to_thread(self._finished.wait)

    def _finish(self) -> None:
        try:
            _finish(self._workers, self._store, None)
        finally:
            self._finished.set()

    async def run(self, operation: Operation[T]) -> T:
        """Return the operation's result; every verb comes through here."""
        if self._store._closed is not None:
            raise StoreClosed(self._store._closed)
        job = AwaitedJob(operation, self._mailbox_here())
        backend = self._store._backend
        if backend is not None and backend.lane is not None and backend.joins_lane(operation):
            self._workers.submit_to_group(job, backend.lane)
        else:
            self._workers.submit(job)
        try:
            result: T = await job.future
        except asyncio.CancelledError as cancelled:
            await _settle(job)
            _note(cancelled, job)
            raise
        return result

    def bind(self, connection: AsyncConnection) -> AsyncTransaction:
        """Return the store's collections within the caller's own SQLAlchemy transaction.

        What is written becomes real when the caller commits `connection`, together with whatever
        else the caller wrote, and never if it rolls back. The connection must lead to the store's
        database.
        """
        return AsyncTransaction(connection, self)

    async def model(self, name: str) -> type[Any]:
        """Return the class that SQLAlchemy's ORM maps to a collection, for the caller's own queries.

        Its attributes are `seq`, `id`, `body`, `version`, `created_at`, `updated_at` and
        `expires_at`. The collection comes into being. Each call returns a class of its own.
        """
        found = await self.run(FindTable(check_name(name)))
        return mapped_class(found.table, name)

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
        """Return a synchronous handle on a collection, for a synchronous component in this program.

        Its calls run in the thread that makes them, and never touch an event loop. For the options see
        `get_collection`; given one, this call does so too.

        >>> AsyncStore("sqlite://").get_sync_collection("my_collection")
        Collection('my_collection')
        """
        options = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=ttl, sliding=sliding, changes=changes, **options)
        collection = Collection(self._run_here, self._store._codec, check_name(name))
        if settings != AS_IT_IS:
            self._run_here(Configure(name, settings))
        return collection

    def _run_here(self, operation: Operation[T]) -> T:
        return self._store.run(operation)  # by way of this store, which must not end meanwhile

    def _forked(self) -> None:
        """Leave the parent's threads behind, which do not exist here."""
        if not self._store._is_forked and self._finalizer.alive:
            self._finalizer.detach()
            self._employ()

    def _mailbox_here(self) -> Mailbox:
        loop = asyncio.get_running_loop()
        mailbox = self._mailbox
        if mailbox is None or mailbox.loop is not loop:
            mailbox = self._mailbox = Mailbox(loop)
        return mailbox


async def _settle(job: AwaitedJob) -> None:
    """Give a job up; return when it does not run, or no longer."""
    if job.claim() or job.done:
        return
    job.settled = asyncio.get_running_loop().create_future()
    threading.Thread(target=job.abandon, daemon=True).start()  # the driver's cancel may block
    while not job.settled.done():
        try:
            await asyncio.shield(job.settled)
        except asyncio.CancelledError:
            continue


def _note(cancelled: asyncio.CancelledError, job: AwaitedJob) -> None:
    """Tell the caller whether the write took place: see `was_committed`."""
    if getattr(job.error, "in_doubt", False):
        cancelled.__cause__ = job.error
        cancelled.add_note(f"collections_store does not know whether it wrote: {job.operation!r}")
    elif job.operation.WRITES:
        cancelled.collections_store_committed = job.committed  # type: ignore[attr-defined]
        outcome = "everything" if job.committed else "nothing"
        cancelled.add_note(f"collections_store wrote {outcome}: {job.operation!r}")


def _finish(workers: Workers, store: Store, patience: float | None) -> None:
    if not store._is_forked:
        workers.stop(patience)
    store._close(patience)


_stores: weakref.WeakSet[AsyncStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
