"""`AsyncStore`: a database of collections, for asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast, get_args, overload

import sqlalchemy as sa

from ..aggregation.change_pipeline import ChangePipeline
from ..changes import StoreChangeReader
from ..collection import Collection
from ..document import Body, check_name, check_names
from ..engine.backup.backup import back_up, restore
from ..engine.backup.copying import check_report, copy_to
from ..engine.core import EXIT_TIMEOUT, Core
from ..engine.forks import at_fork
from ..engine.group_commit import GroupCommit
from ..engine.health import check_health
from ..engine.jobs import Job, Mailbox
from ..engine.lifecycle import AsyncComponent, Components, noting_failure, raise_all
from ..engine.permits import POLL_INTERVAL, TransactionPermit, TransactionPermits
from ..engine.transactions import TransactionResources
from ..engine.workers import Workers
from ..errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidOption,
    TransactionConflict,
    shortened,
)
from ..expressions.classes import lazy_type
from ..operations.collections import FindTable
from ..operations.operation import Operation
from ..options import (
    Consistency,
    Isolation,
    ModelSettings,
    ReadSettings,
    StoreOptions,
    VersionSettings,
    check_awaitable,
    check_choice,
    check_flag,
    check_function,
)
from ..results import CopiedCollection, CopyProgress, Health, Invalid, StoreStats
from ..sql.schema import mapped_class
from ..store import ATTEMPTS
from ..transaction import bound, sync_collection
from .bridge import (
    TransactionStep,
    abandon,
    is_cancelled,
    note_job,
    run_in_batches,
    run_step,
    run_uncancellably,
    wait_uncancellably,
)
from .collection import AsyncChangeDocumentStream
from .transaction import AsyncBound, AsyncCollections, AsyncOpenTransaction, AsyncTransaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection
else:
    AsyncConnection = lazy_type("sqlalchemy.ext.asyncio", "AsyncConnection")


T = TypeVar("T")


_closing: ContextVar[AsyncStore | None] = ContextVar("collections_store_closing", default=None)
"""The store whose `aclose` runs this task."""


class AsyncStore(AsyncCollections):
    """A database of collections, for asyncio. Async counterpart of `Store`, with the same options.

    Operations run on the store's own threads, one hop each, and large arguments are first encoded in a thread: the
    event loop is never blocked. Do not change an argument before the call returns. Any number of tasks and event loops
    may use a store.

    A cancelled call writes everything or nothing, and has ended before the cancellation goes on; `was_committed(error)`
    returns True or False. Calls that write in batches (`put_many`, `insert_many`, `bulk_write`, unless `atomic`) may
    have written a part: `was_committed` then returns None, and `partial_result(error)` the counts.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         await store["cities"].put("berlin", {"country": {"code": "de"}})
    ...         return [city.id for city in await store["cities"].find("country.code", "de")]
    >>> asyncio.run(main())
    ['berlin']
    """

    core: Core

    def __init__(
        self,
        url: str | sa.URL | None = None,
        *,
        engine: sa.Engine | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        self.core = core = Core(url, engine, options)
        """Runs the operations; internal, like `engine`."""
        self._codec, self._notifier, self._consistency = core.codec, core.notifier, core.consistency
        self._mailbox: Mailbox | None = None
        self._expiring: asyncio.AbstractEventLoop | None = None
        self._components: Components[AsyncComponent] = Components()
        self._closing = False
        self._finished = threading.Event()
        self._create_workers()
        _stores.add(self)

    def _create_workers(self) -> None:
        """Create the workers; their threads start when there are jobs."""
        core = self.core
        self._workers = Workers(core.limit)
        core.hand_over = self._workers.hand_over
        self._steppers = Workers(sum(each.size for each in {core.permits, core.read_permits}))
        """Threads for the steps of transactions; all other threads may wait for a lock of an open transaction."""
        workers = self._workers, self._steppers
        self._finalizer = weakref.finalize(self, _finish, workers, core, EXIT_TIMEOUT, True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.core.shown!r})"

    def attach(self, component: AsyncComponent) -> None:
        """Async counterpart of `Store.attach`. `setup` and `teardown` are coroutine functions."""
        self.core.refuse_if_closed()
        self._components.attach(component)

    async def __aenter__(self) -> Self:
        try:
            for component in self._components:
                await component.setup()
        except BaseException as error:
            with noting_failure(error):
                await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Async counterpart of `Store.close`. Waits in a thread, and finishes even if the task is cancelled."""
        if self._closing:
            if _closing.get() is not self:  # else a component that is torn down closes the store
                await asyncio.to_thread(self._finished.wait)
            return
        self._closing = True
        try:
            if self.core.closed is None:
                await run_uncancellably(self._tear_down())
        finally:
            if self._finalizer.detach() is not None:
                await asyncio.shield(asyncio.to_thread(self._finish))
            else:
                await asyncio.to_thread(self._finished.wait)

    async def _tear_down(self) -> None:
        """Tear down all components; then raise their errors."""
        _closing.set(self)
        errors: list[BaseException] = []
        for each in self._components.taken():
            try:
                await each.teardown()
            except BaseException as error:  # noqa: BLE001 - it is raised after the others are torn down
                errors.append(error)
        raise_all(errors)

    def _finish(self) -> None:
        try:
            timeout = self.core.options.busy_timeout
            _finish((self._workers, self._steppers), self.core, timeout, is_exit=False)
        finally:
            self._finished.set()

    async def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Async counterpart of `Store.run`. A cancelled call returns after the operation has ended: see
        `was_committed`.
        """
        core = self.core
        try:
            act, queue = core.way_of(operation)
        except Exception as error:
            core.observer.failed(operation, time.monotonic(), error, consistency)
            raise
        job = Job(operation, act, self._mailbox_here())
        job.consistency, job.observer = consistency, core.observer
        job.context = core.observer.context()
        try:
            if is_cancelled():
                await asyncio.sleep(0)
            self._submit(job, queue)
            result: T = await job.future
        except asyncio.CancelledError as cancelled:
            await abandon(job)
            note_job(cancelled, job)
            raise
        except DatabaseBusy as error:
            core.note_own_transaction(error)
            raise
        return result

    def _submit(self, job: Job, queue: GroupCommit | None) -> None:
        if queue is None:
            self._workers.submit(job)
            return
        self._workers.submit_to_group(job, queue)
        if self._expiring is not job.future.get_loop():
            self._expire_later(queue)

    def _expire_later(self, write_queue: GroupCommit) -> None:
        """Check the write queue for timeouts later, independently of the writer thread."""
        self._expiring = loop = asyncio.get_running_loop()
        loop.call_later(POLL_INTERVAL, self._expire, write_queue)

    def _expire(self, write_queue: GroupCommit) -> None:
        self._expiring = None
        write_queue.expire()
        if write_queue.waiting:
            self._expire_later(write_queue)

    def transaction(
        self, *, isolation: Isolation = "repeatable read", read_only: bool = False
    ) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Async counterpart of `Store.transaction`. Enter the context with `async with`. A cancelled operation rolls
        the transaction back.
        """
        checked = check_choice("isolation", isolation, get_args(Isolation))
        return self._transaction(checked, read_only=check_flag("read_only", read_only))

    @asynccontextmanager
    async def _transaction(
        self, isolation: Isolation, *, read_only: bool
    ) -> AsyncIterator[AsyncTransaction]:
        resources = await self._begin(isolation, read_only=read_only)
        transaction = AsyncOpenTransaction(resources, self._submit_step)
        try:
            yield AsyncTransaction(transaction, self._codec)
        except BaseException as error:
            await transaction.rollback(error)
            raise
        await transaction.commit()

    async def run_transaction(
        self,
        function: Callable[[AsyncTransaction], Awaitable[T]],
        *,
        attempts: int = ATTEMPTS,
        isolation: Isolation = "repeatable read",
        read_only: bool = False,
    ) -> T:
        """Async counterpart of `Store.run_transaction`. `function` is a coroutine function."""
        retries = self.core.retries(attempts)
        check_function("function", function)
        while True:
            begun = False
            try:
                async with self.transaction(
                    isolation=isolation, read_only=read_only
                ) as transaction:
                    begun = True
                    return await check_awaitable(function(transaction))
            except (TransactionConflict, DatabaseUnavailable) as error:
                if not begun:
                    raise
                pause = retries.pause(error)
            await asyncio.sleep(pause)

    async def _begin(self, isolation: Isolation, *, read_only: bool) -> TransactionResources:
        self.core.refuse_if_closed()
        core = self.core
        permits = core.read_permits if read_only else core.permits
        permits.refuse_self_deadlock()
        permit = await self._acquire_permit(permits)

        def begin(job: Job) -> TransactionResources:
            opened = core.opened or core.open(write=not read_only)
            manager = opened.read_transactions if read_only else opened.transactions
            return manager.begin(permit, isolation, job)

        job = self._submit_step("begin", begin)
        try:
            resources: TransactionResources = await job.future
            return resources
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                await abandon(job)
                if isinstance(begun := job.result, TransactionResources):
                    rollback = self._submit_step("rollback", lambda _: begun.transaction.rollback())
                    with suppress(asyncio.CancelledError):
                        await wait_uncancellably(rollback)
            permits.release(permit)
            raise

    async def _acquire_permit(self, permits: TransactionPermits) -> TransactionPermit:
        """Wait for the permit of a transaction, in the event loop."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        permit = permits.request(lambda: loop.call_soon_threadsafe(woken.set))
        try:
            while not permits.is_granted(permit):
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), POLL_INTERVAL)
        except BaseException:
            permits.release(permit)
            raise
        return permit

    def _submit_step(self, what: object, act: Callable[[Job], Any]) -> Job:
        step: Any = TransactionStep(what, act)
        job = Job(step, run_step, self._mailbox_here())
        job.context = self.core.observer.context()
        self._steppers.submit(job)
        return job

    def bind(self, connection: AsyncConnection) -> AsyncTransaction:
        """Async counterpart of `Store.bind`. `connection` is an `AsyncConnection`."""
        return AsyncTransaction(AsyncBound(connection, partial(bound, self.core)), self._codec)

    async def copy_to(
        self,
        other: AsyncStore,
        collections: Iterable[str] | None = None,
        *,
        vectors: bool = False,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> tuple[CopiedCollection, ...]:
        """Async counterpart of `Store.copy_to`. `other` is an `AsyncStore`; `progress` is called in the event loop.
        A cancelled call ends after the current batch, and can be continued.
        """
        if not isinstance(cast(object, other), AsyncStore):
            raise InvalidOption("other", f"must be another AsyncStore, got {shortened(other)}")
        if other.core is self.core:
            raise InvalidOption("other", f"must be another AsyncStore, got {shortened(other)}")
        names, report = check_names(collections), check_report(progress)
        act = partial(copy_to, self.core, other.core, names, vectors=vectors)
        return await run_in_batches(act, report)

    async def backup(
        self,
        path: str | os.PathLike[str],
        collections: Iterable[str] | None = None,
        *,
        vectors: bool = False,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> None:
        """Async counterpart of `Store.backup`. `progress` is called in the event loop. A cancelled call writes nothing."""
        names, report = check_names(collections), check_report(progress)
        await run_in_batches(partial(back_up, self.core, path, names, vectors=vectors), report)

    async def restore(
        self,
        path: str | os.PathLike[str],
        collections: Iterable[str] | None = None,
        *,
        replace: bool = False,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> tuple[CopiedCollection, ...]:
        """Async counterpart of `Store.restore`. `progress` is called in the event loop.
        A cancelled call ends after the current batch, and can be continued.
        """
        names, report = check_names(collections), check_report(progress)
        act = partial(restore, self.core, path, names, replace=replace)
        return await run_in_batches(act, report)

    def watch(
        self,
        *,
        pipeline: Sequence[Any] = (),
        after: str | None = None,
        timeout: float | None = None,
    ) -> AsyncChangeDocumentStream:
        """Async counterpart of `Store.watch`. Await the result to begin at once, as `AsyncCollection.watch` explains."""
        wanted = partial(ChangePipeline.parse, pipeline, self._codec)
        reader = StoreChangeReader(wanted, after=after, timeout=timeout, codec=self._codec)
        return AsyncChangeDocumentStream(self.run, self.core.notifier, reader, pipeline)

    def stats(self) -> StoreStats:
        """Async counterpart of `Store.stats`. Not a coroutine."""
        return self.core.stats()

    async def health(self, *, timeout: float = 5.0) -> Health:  # noqa: ASYNC109 - of the thread, which no task can end
        """Async counterpart of `Store.health`. Runs in a thread beside the store's own."""
        return await asyncio.to_thread(check_health, self.core, timeout)

    async def model(self, name: str) -> type[Any]:
        """Async counterpart of `Store.model`."""
        found = await self.run(FindTable(check_name(name)))
        return await asyncio.to_thread(mapped_class, found.table, name)  # may import the ORM

    @overload
    def get_sync_collection(self, name: str, **settings: Unpack[VersionSettings]) -> Collection: ...
    @overload
    def get_sync_collection(
        self, name: type[Body], *, invalid: Literal["return"], **settings: Unpack[ReadSettings]
    ) -> Collection[Body | Invalid]: ...
    @overload
    def get_sync_collection(
        self,
        name: str,
        *,
        model: type[Body],
        invalid: Literal["return"],
        **settings: Unpack[ReadSettings],
    ) -> Collection[Body | Invalid]: ...
    @overload
    def get_sync_collection(
        self, name: type[Body], **settings: Unpack[ModelSettings]
    ) -> Collection[Body]: ...
    @overload
    def get_sync_collection(
        self, name: str, *, model: type[Body], **settings: Unpack[ModelSettings]
    ) -> Collection[Body]: ...
    @overload
    def get_sync_collection(
        self, name: str, *, model: Any, **settings: Unpack[ModelSettings]
    ) -> Collection[Any]: ...
    def get_sync_collection(
        self, name: Any, *, model: Any = None, **settings: Unpack[ModelSettings]
    ) -> Collection[Any]:
        """Return a `Collection`, for a synchronous component of an asynchronous program.

        The methods run in the calling thread and need no event loop. With an option, this call does too.
        `Store.collection` explains the options.

        >>> AsyncStore("sqlite://").get_sync_collection("my_collection")
        Collection('my_collection')
        """
        parts = self._run_here, self._codec, self._notifier, self._consistency
        return sync_collection(*parts, name, model, settings)

    def _run_here(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        # A method of this store, not of the core: the collection keeps this store alive.
        return self.core.run(operation, consistency)

    def _forked(self) -> None:
        """Forget the parent's threads, which do not exist in the child."""
        if not self.core.is_forked and self._finalizer.alive:
            self._finalizer.detach()
            self._create_workers()

    def _mailbox_here(self) -> Mailbox:
        loop = asyncio.get_running_loop()
        mailbox = self._mailbox
        if mailbox is None or mailbox.loop is not loop:
            mailbox = self._mailbox = Mailbox(loop)
        return mailbox


def _finish(workers: tuple[Workers, ...], core: Core, timeout: float, is_exit: bool) -> None:
    deadline = time.monotonic() + timeout
    if not core.is_forked:
        core.notifier.close()  # first, so that change streams end at once
        core.close_transactions(timeout)
        for each in workers:
            each.stop(deadline - time.monotonic(), is_exit=is_exit)
    core.close(max(0.0, deadline - time.monotonic()))


_stores: weakref.WeakSet[AsyncStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store._forked()


at_fork("workers", in_child=_after_fork)
