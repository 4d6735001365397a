"""Collections within a transaction, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import sqlalchemy as sa

from ..codec import Codec
from ..document import SKILL_MEMORY, Body, check_name
from ..engine.jobs import Job
from ..engine.notifier import ChangeNotifier
from ..engine.transactions import TransactionResources
from ..errors import (
    Outcome,
    TransactionEnded,
    missing_collection,
    note_outcome,
    refuse_pickling,
)
from ..expressions.classes import lazy_type
from ..models.versioned import VersionedCodec
from ..operations.collections import (
    CreateCollection,
    DropCollection,
    ListCollections,
    Rename,
)
from ..operations.operation import Operation
from ..options import (
    CollectionSettings,
    Consistency,
    ModelSettings,
    ReadSettings,
    Settings,
    Ttl,
    VersionSettings,
    check_flag,
)
from ..results import CollectionInfo, Invalid
from ..transaction import OUT_OF_ORDER, SAVEPOINT_ENDED, Bound, opened, remove_savepoint
from .bridge import abandon, is_cancelled, note_job, wait_uncancellably
from .collection import AsyncCollection
from .runners import AsyncDeclaringRunner, AsyncRunner, AsyncVersionedRunner

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from ..memory.aio import AsyncMemory, AsyncSkillMemory
    from ..memory.skills import Policy
else:
    AsyncMemory = lazy_type("collections_store.memory", "AsyncMemory")
    AsyncSkillMemory = lazy_type("collections_store.memory.aio", "AsyncSkillMemory")
    Policy = lazy_type("collections_store.memory.skills", "Policy")


T = TypeVar("T")


class AsyncCollections:
    """The methods that `AsyncStore` and `AsyncTransaction` have in common."""

    _codec: Codec
    _notifier: ChangeNotifier | None = None
    """None in a transaction."""
    _consistency: Consistency = "strong"
    """The consistency of reads of the collections."""
    _savepoints: Sequence[Any] = ()
    """The open savepoints of a transaction."""
    __reduce__ = refuse_pickling

    if not TYPE_CHECKING:  # a type checker that saw this would take any misspelt name

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_collection(type(self).__name__, name), name=name, obj=self)

    async def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Async counterpart of `Store.run`."""
        raise NotImplementedError

    def transaction(self) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Async counterpart of `Store.transaction`."""
        raise NotImplementedError

    @overload
    def collection(self, name: str, **settings: Unpack[VersionSettings]) -> AsyncCollection: ...
    @overload
    def collection(
        self, name: type[Body], *, invalid: Literal["return"], **settings: Unpack[ReadSettings]
    ) -> AsyncCollection[Body | Invalid]: ...
    @overload
    def collection(
        self,
        name: str,
        *,
        model: type[Body],
        invalid: Literal["return"],
        **settings: Unpack[ReadSettings],
    ) -> AsyncCollection[Body | Invalid]: ...
    @overload
    def collection(
        self, name: type[Body], **settings: Unpack[ModelSettings]
    ) -> AsyncCollection[Body]: ...
    @overload
    def collection(
        self, name: str, *, model: type[Body], **settings: Unpack[ModelSettings]
    ) -> AsyncCollection[Body]: ...
    @overload
    def collection(
        self, name: str, *, model: Any, **settings: Unpack[ModelSettings]
    ) -> AsyncCollection[Any]: ...
    def collection(
        self, name: Any, *, model: Any = None, **settings: Unpack[ModelSettings]
    ) -> AsyncCollection[Any]:
        """Async counterpart of `Store.collection`. Not a coroutine. Arguments are validated at once. The first write
        stores the declarations, once for all users of the collection, and raises errors of the database.
        """
        if model is None and not settings and type(name) is str:  # the usual call, sooner
            return self[name]
        name, codec, storing = opened(name, self._codec, model, settings)
        run: AsyncRunner = self.run
        if isinstance(codec, VersionedCodec):
            run = AsyncVersionedRunner(run, codec)
        if storing is not None:
            run = AsyncDeclaringRunner(run, storing, self._savepoints)
        return AsyncCollection(run, codec, name, self._notifier, self._consistency)

    get_collection = collection
    """AEA's name for `collection`."""

    def memory(self, namespace: str) -> AsyncMemory:
        """Async counterpart of `Store.memory`."""
        from ..memory import AsyncMemory
        from ..memory.encoding import collection_of
        from ..memory.procedures import Procedures

        return AsyncMemory(self, Procedures(collection_of(namespace), self._codec))

    def skill_memory(
        self,
        *,
        policy: Policy = "creator",
        model: Callable[..., Any] | None = None,
        ttl: Ttl = None,
        collection: str = SKILL_MEMORY,
    ) -> AsyncSkillMemory:
        """Async counterpart of `Store.skill_memory`."""
        from ..memory.aio import AsyncSkillMemory

        return AsyncSkillMemory(self, collection, policy=policy, model=model, ttl=ttl)

    def __getitem__(self, name: str) -> AsyncCollection:
        checked = check_name(name)
        return AsyncCollection(self.run, self._codec, checked, self._notifier, self._consistency)

    async def create_collection(
        self,
        name: str,
        *,
        body_index: bool = True,
        jsonb: bool = False,
        distributed: bool = False,
        **settings: Unpack[CollectionSettings],
    ) -> AsyncCollection:
        """Async counterpart of `Store.create_collection`."""
        wanted = Settings.parse(settings)
        bodies = check_flag("body_index", body_index), wanted, check_flag("jsonb", jsonb)
        is_distributed = check_flag("distributed", distributed)
        await self.run(CreateCollection(check_name(name), *bodies, True, is_distributed))
        return self[name]

    async def collections(self) -> list[CollectionInfo]:
        """Async counterpart of `Store.collections`."""
        return await self.run(ListCollections())

    async def drop(self, name: str) -> bool:
        """Async counterpart of `Store.drop`."""
        return await self.run(DropCollection(check_name(name)))

    async def rename(self, old: str, new: str) -> None:
        """Async counterpart of `Store.rename`."""
        await self.run(Rename(check_name(old), check_name(new)))


class AsyncBound:
    """The scope of a caller's transaction: operations, and savepoints."""

    state: str = Bound.state

    def __init__(self, connection: AsyncConnection, bind: Callable[[sa.Connection], Bound]) -> None:
        self._connection, self._bind = connection, bind
        self._bound: Bound | None = None
        self.savepoints: list[Any] = []

    async def run(self, operation: Operation[T]) -> T:
        if is_cancelled():
            await asyncio.sleep(0)
        return await self._connection.run_sync(lambda here: self._run_on(here, operation))

    async def savepoint(self) -> Any:
        return await self._connection.run_sync(lambda here: self._on(here).savepoint())

    async def release(self, savepoint: Any) -> None:
        await self._connection.run_sync(lambda here: self._on(here).release(savepoint))

    async def rollback_to(self, savepoint: Any) -> None:
        await self._connection.run_sync(lambda here: self._on(here).rollback_to(savepoint))

    def _run_on(self, connection: sa.Connection, operation: Operation[T]) -> T:
        bound = self._on(connection)
        return bound.observer.in_transaction(bound.step, operation)

    def _on(self, connection: sa.Connection) -> Bound:
        if self._bound is None:
            self._bound = self._bind(connection)
        return self._bound


class AsyncOpenTransaction:
    """The scope of a store's own transaction: each step is one hop to a worker thread, one at a time.

    `submit` passes a step to a thread. A cancelled step ends the transaction: the effect of an interrupted step is
    unknown. Each method first checks for a fork: the child has no threads.
    """

    def __init__(
        self,
        resources: TransactionResources,
        submit: Callable[[object, Callable[[Job], Any]], Job],
    ) -> None:
        self._resources, self._transaction, self._submit = resources, resources.transaction, submit
        self._lock = asyncio.Lock()
        self.savepoints: list[Any] = []

    @property
    def state(self) -> str:
        return self._transaction.state

    async def run(self, operation: Operation[T]) -> T:
        transaction = self._transaction
        run = transaction.observer.in_transaction
        result: T = await self._step(operation, lambda job: run(transaction.step, operation, job))
        return result

    async def savepoint(self) -> Any:
        return await self._step("savepoint", self._transaction.savepoint)

    async def release(self, savepoint: Any) -> None:
        await self._step("release", lambda job: self._transaction.release(savepoint, job))

    async def rollback_to(self, savepoint: Any) -> None:
        if not self._transaction.forked:
            await wait_uncancellably(
                self._submit("back", lambda _: self._transaction.rollback_to(savepoint))
            )

    async def rollback(self, cause: BaseException | None = None) -> None:
        """Roll back, unless the transaction has ended."""
        if not self._transaction.forked:
            await wait_uncancellably(
                self._submit("rollback", lambda _: self._transaction.rollback(cause))
            )

    async def commit(self) -> None:
        """Commit; a cancellation has the outcome of the commit."""
        self._transaction.refuse_if_forked()
        job = self._submit("commit", self._transaction.commit)
        try:
            await job.future
        except asyncio.CancelledError as cancelled:
            await abandon(job)
            with suppress(asyncio.CancelledError):
                await self.rollback(cancelled)
            note_job(cancelled, job)
            raise

    async def _step(self, what: object, act: Callable[[Job], Any]) -> Any:
        self._transaction.refuse_if_forked()
        async with self._lock:
            job: Job | None = None
            try:
                if is_cancelled():
                    await asyncio.sleep(0)
                job = self._submit(what, act)
                return await job.future
            except asyncio.CancelledError as cancelled:
                if job is not None:
                    await abandon(job)
                with suppress(asyncio.CancelledError):
                    await self.rollback(cancelled)
                text = f"wrote nothing of the transaction: {what!r}"
                note_outcome(cancelled, Outcome(False, is_final=True), text)
                raise


class AsyncTransaction(AsyncCollections):
    """The collections of a store within a transaction, for asyncio. Async counterpart of `Transaction`.

    Returned by `AsyncStore.transaction` and `AsyncStore.bind`. Several tasks may use a transaction, one at a time. A
    cancelled call rolls back a transaction of `AsyncStore.transaction`.
    """

    def __init__(self, scope: AsyncBound | AsyncOpenTransaction, codec: Codec) -> None:
        self._scope, self._codec = scope, codec
        self._savepoints = scope.savepoints
        self._is_over = False

    def __repr__(self) -> str:
        return f"<AsyncTransaction {'over' if self._is_over else self._scope.state}>"

    async def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:  # noqa: ARG002
        """Async counterpart of `Transaction.run`."""
        if self._is_over:
            raise TransactionEnded(SAVEPOINT_ENDED)
        return await self._scope.run(operation)

    def transaction(self) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Async counterpart of `Transaction.transaction`. Enter the context with `async with`."""
        if self._is_over:
            raise TransactionEnded(SAVEPOINT_ENDED)
        return self._savepoint()

    @asynccontextmanager
    async def _savepoint(self) -> AsyncIterator[AsyncTransaction]:
        scope = self._scope
        savepoint = await scope.savepoint()
        scope.savepoints.append(savepoint)
        part = AsyncTransaction(scope, self._codec)
        try:
            yield part
        except BaseException:
            part._is_over = True
            if remove_savepoint(scope.savepoints, savepoint) is not None:
                await scope.rollback_to(savepoint)
            raise
        part._is_over = True
        in_order = remove_savepoint(scope.savepoints, savepoint)
        if in_order:
            await scope.release(savepoint)
            return
        if in_order is not None:
            await scope.rollback_to(savepoint)
        raise TransactionEnded(OUT_OF_ORDER)
