"""`AsyncCollection`, the methods of a collection for asyncio, and `AsyncChangeStream`."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Sequence,
    Sized,
)
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Concatenate, Final, Generic, Self, TypeVar, Unpack, get_args, overload
from warnings import warn

from ..changes import ChangeReader, Item, Wait, check_notifier
from ..codec import Codec
from ..collection import Collection, Default, Documents, Untyped
from ..document import (
    Body,
    Document,
    check_id,
    check_ids,
)
from ..engine.notifier import ChangeNotifier
from ..expressions.evaluation import MEMORY_LIMIT
from ..operations import by_id
from ..operations.editing import EDIT_ATTEMPTS, Editing
from ..operations.embedding import CallEmbedder
from ..operations.operation import Steps
from ..operations.procedures import ATTEMPTS, CallFunction, Pause
from ..operations.requests import OperationBuilder
from ..options import CallOptions, Consistency, Ttl, check_choice
from ..query.change import Change, ChangeKind
from ..query.filter import FilterLike
from ..query.sort import SortLike
from ..results import (
    FoundDocuments,
    InsertOneResult,
)
from .bridge import P, compute, counterpart, follow
from .runners import AsyncDeclaringRunner, AsyncRunner

T = TypeVar("T")


class _AsyncEditContext:
    """The context of an edit."""

    def __init__(self, follow: Callable[..., Awaitable[Any]], editing: Editing) -> None:
        self._follow, self._editing = follow, editing
        self._body: Any = None

    async def __aenter__(self) -> Any:
        self._body = await self._follow(self._editing.begin())
        return self._body

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self._follow(self._editing.end(), self._body)


def _counterpart(
    method: Callable[Concatenate[Collection[Body], P], T], *, prepares: bool = False
) -> Callable[Concatenate[AsyncCollection[Body], P], Coroutine[object, None, T]]:
    """Return the `counterpart`, for type checkers with the bodies of the async collection."""
    return counterpart(method, prepares=prepares)


class AsyncCollection(OperationBuilder, Generic[Body]):
    """A named group of documents, for asyncio. Async counterpart of `Collection`.

    `store.collection("name")` and `store["name"]` return a collection without I/O: the first write or `watch` stores
    declared options, schema versions and indexes, and raises their errors. Each method takes the arguments of the
    sync method and returns the same result, awaited. Any number of tasks may share a collection.

    A cancelled `put_many`, `insert_many` or `bulk_write` without `atomic` may have written batches:
    `partial_result(error)` returns the counts. A cancelled `purge_expired` may have purged batches. `progress` of
    `upgrade_documents` may be a coroutine function; the functions of the upgrades run in threads, too. `embed` of
    `create_vector_index` may be a coroutine function; any other runs in a thread.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         cities = store.collection("cities")
    ...         await cities.put("berlin", {"country": "de"})
    ...         return await cities.get("berlin")
    >>> asyncio.run(main())
    {'country': 'de'}
    """

    __slots__ = ("_notifier", "_read", "_run")

    name: str

    def __init__(
        self,
        run: AsyncRunner,
        codec: Codec,
        name: str,
        notifier: ChangeNotifier | None = None,
        consistency: Consistency = "strong",
    ) -> None:
        self._run, self._codec, self.name, self._notifier = run, codec, name, notifier
        self._read = run if consistency == "strong" else partial(run, consistency=consistency)

    def __await__(self) -> Generator[Any, None, Self]:
        """Store the declared options, and return the collection. Deprecated: only version 0.2 needed `await`."""
        problem = "AsyncStore.collection is not a coroutine: call it without await"
        warn(problem, DeprecationWarning, stacklevel=2)
        return self._declared().__await__()

    async def _declared(self) -> Self:
        if isinstance(self._run, AsyncDeclaringRunner):
            await self._run.store()
        return self

    def with_options(self, *, consistency: Consistency) -> AsyncCollection[Body]:
        """Async counterpart of `Collection.with_options`. Call without `await`."""
        checked = check_choice("consistency", consistency, get_args(Consistency))
        return AsyncCollection(self._run, self._codec, self.name, self._notifier, checked)

    put: Final = _counterpart(Collection[Body].put, prepares=True)
    exists: Final = _counterpart(Collection[Body].exists)
    remove: Final = _counterpart(Collection[Body].remove)
    put_many: Final = _counterpart(Collection[Body].put_many)
    insert_many: Final = _counterpart(Collection[Body].insert_many)
    update: Final = _counterpart(Collection[Body].update, prepares=True)
    update_one: Final = _counterpart(Collection[Body].update_one, prepares=True)
    update_many: Final = _counterpart(Collection[Body].update_many, prepares=True)
    replace_one: Final = _counterpart(Collection[Body].replace_one, prepares=True)
    find_one_and_update: Final = _counterpart(Collection[Body].find_one_and_update, prepares=True)
    find_one_and_replace: Final = _counterpart(Collection[Body].find_one_and_replace, prepares=True)
    find_one_and_delete: Final = _counterpart(Collection[Body].find_one_and_delete, prepares=True)
    bulk_write: Final = _counterpart(Collection[Body].bulk_write)
    increment: Final = _counterpart(Collection[Body].increment, prepares=True)
    touch: Final = _counterpart(Collection[Body].touch)
    purge_expired: Final = _counterpart(Collection[Body].purge_expired)
    id_prefixes: Final = _counterpart(Collection[Body].id_prefixes)
    page: Final = _counterpart(Collection[Body].page, prepares=True)
    search: Final = _counterpart(Collection[Body].search, prepares=True)
    count: Final = _counterpart(Collection[Body].count, prepares=True)
    distinct: Final = _counterpart(Collection[Body].distinct, prepares=True)
    delete_one: Final = _counterpart(Collection[Body].delete_one, prepares=True)
    delete_many: Final = _counterpart(Collection[Body].delete_many, prepares=True)
    create_index: Final = _counterpart(Collection[Body].create_index, prepares=True)
    create_text_index: Final = _counterpart(Collection[Body].create_text_index)
    create_vector_index: Final = _counterpart(Collection[Body].create_vector_index)
    reindex: Final = _counterpart(Collection[Body].reindex)
    nearest: Final = _counterpart(Collection[Body].nearest, prepares=True)
    store_vectors: Final = _counterpart(Collection[Body].store_vectors)
    search_backlog: Final = _counterpart(Collection[Body].search_backlog)
    drop_index: Final = _counterpart(Collection[Body].drop_index)
    hide_index: Final = _counterpart(Collection[Body].hide_index)
    unhide_index: Final = _counterpart(Collection[Body].unhide_index)
    indexes: Final = _counterpart(Collection[Body].indexes)
    explain: Final = _counterpart(Collection[Body].explain, prepares=True)
    aggregate: Final = _counterpart(Collection[Body].aggregate, prepares=True)
    explain_aggregate: Final = _counterpart(Collection[Body].explain_aggregate, prepares=True)
    upgrade_documents: Final = _counterpart(Collection[Body].upgrade_documents)

    @overload
    async def get(self: AsyncCollection[Untyped], id: str, default: Any = None) -> Any: ...
    @overload
    async def get(self, id: str) -> Body | None: ...
    @overload
    async def get(self, id: str, default: Default) -> Body | Default: ...
    async def get(self, id: str, default: Any = None) -> Any:
        """Async counterpart of `Collection.get`."""
        return await self._read(
            by_id.Get(self.name, check_id(id), default, self._codec.decode_body)
        )

    async def document(self, id: str) -> Document[Body] | None:
        """Async counterpart of `Collection.document`."""
        return await self._read(by_id.GetDocument(self.name, check_id(id), self._codec.decode_body))

    async def insert_one(
        self, body: Body, *, id: str | None = None, ttl: Ttl = None, beside: str | None = None
    ) -> InsertOneResult:
        """Async counterpart of `Collection.insert_one`."""
        operation = await compute(self._insert_one, body, id, ttl, beside)
        await self._run(operation)
        return InsertOneResult(operation.id)

    async def change(
        self,
        id: str,
        function: Callable[[Body], Any],
        *,
        default: Body | Any = ...,
        ttl: Ttl = None,
        attempts: int = ATTEMPTS,
    ) -> Body:
        """Async counterpart of `Collection.change`. `function` may be a coroutine function."""
        return await self._follow(self._change(id, function, default, ttl, attempts), default)

    def edit(self, id: str, *, attempts: int = EDIT_ATTEMPTS) -> AbstractAsyncContextManager[Body]:
        """Async counterpart of `Collection.edit`. Enter the context with `async with`."""
        return _AsyncEditContext(self._follow, self._edit(id, attempts))

    async def get_many(self, ids: Iterable[str]) -> dict[str, Body]:
        """Async counterpart of `Collection.get_many`."""
        checked = await compute(check_ids, read_here(ids))
        return await self._read(by_id.GetMany(self.name, checked, self._codec.decode_body))

    async def remove_many(self, ids: Iterable[str]) -> int:
        """Async counterpart of `Collection.remove_many`."""
        checked = await compute(check_ids, read_here(ids))
        return await self._run(by_id.RemoveMany(self.name, checked))

    async def list(self, *, skip: int = 0, limit: int | None = None) -> Documents[Body]:
        """Async counterpart of `Collection.list`. All documents are in memory at once: use `stream` for many."""
        operation = self._find(None, ..., None, skip, limit, None, method="list")
        return FoundDocuments(await self._read(operation))

    async def find(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        skip: int = 0,
        limit: int | None = None,
        projection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Documents[Body]:
        """Async counterpart of `Collection.find`. All documents are in memory at once: use `stream` for many."""
        arguments = filter, equals, sort, skip, limit, projection, options
        operation = await compute(self._find, *arguments)
        return FoundDocuments(await self._read(operation))

    async def find_one(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        skip: int = 0,
        projection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Document[Body] | None:
        """Async counterpart of `Collection.find_one`."""
        arguments = filter, equals, sort, skip, 1, projection, options, "find_one"
        operation = await compute(self._find, *arguments)
        found = await self._read(operation)
        return found[0] if found else None

    async def stream(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        projection: Any = None,
        **options: Unpack[CallOptions],
    ) -> AsyncIterator[Document[Body]]:
        """Async counterpart of `Collection.stream`. An async generator: `async for document in cities.stream()`."""
        batches = await compute(self._stream, filter, equals, sort, projection, options)
        while (page := batches.next()) is not None:
            for document in batches.advance(await self._read(page)):
                yield document

    async def stream_aggregate(
        self,
        pipeline: Any,
        *,
        memory_limit: int = MEMORY_LIMIT,
        allow_disk_use: bool = False,
        **options: Unpack[CallOptions],
    ) -> AsyncIterator[Any]:
        """Async counterpart of `Collection.stream_aggregate`. An async generator."""
        batches = await compute(
            self._stream_aggregate, pipeline, memory_limit, allow_disk_use, options
        )
        while (page := batches.next()) is not None:
            for result in batches.advance(await self._read(page)):
                yield result

    @overload
    def watch(
        self,
        filter: FilterLike | None = None,
        *,
        pipeline: None = None,
        after: str | None = None,
        kinds: Iterable[ChangeKind] | None = None,
        timeout: float | None = None,
    ) -> AsyncChangeStream[Body]: ...
    @overload
    def watch(
        self,
        *,
        pipeline: Sequence[Any],
        after: str | None = None,
        timeout: float | None = None,
    ) -> AsyncChangeDocumentStream: ...
    def watch(
        self,
        filter: FilterLike | None = None,
        *,
        pipeline: Sequence[Any] | None = None,
        after: str | None = None,
        kinds: Iterable[ChangeKind] | None = None,
        timeout: float | None = None,
    ) -> AsyncChangeStream[Body] | AsyncChangeDocumentStream:
        """Async counterpart of `Collection.watch`. Iterate over the result with `async for`. Await the result first
        to begin at once; the `await` raises errors of the arguments.
        """
        notifier = check_notifier(self._notifier)
        wanted = partial(self._watched, filter, kinds, pipeline)
        reader = ChangeReader(self.name, wanted, after=after, timeout=timeout, codec=self._codec)
        if pipeline is not None:
            return AsyncChangeDocumentStream(self._run, notifier, reader, pipeline)
        return AsyncChangeStream(self._run, notifier, reader, filter)

    async def _follow(self, steps: Steps[T], *arguments: Any) -> T:
        return await follow(self._step, steps, *arguments)

    async def _step(self, step: Any) -> Any:
        match step:
            case Pause(seconds):
                return await asyncio.sleep(seconds)
            case CallFunction(function, argument, in_loop):
                result = (in_loop or function)(argument)
                return await result if isawaitable(result) else result
            case CallEmbedder(function, texts):
                if iscoroutinefunction(function):
                    return await function(texts)
                result = await asyncio.to_thread(function, texts)
                return await result if isawaitable(result) else result
        return await self._run(step)


def read_here(ids: Any) -> Any:
    """Return the ids of an iterable other than a container, read in the event loop, since the iterable is the
    caller's.
    """
    is_read = isinstance(ids, Sized) or not isinstance(ids, Iterable)
    return ids if is_read else list(ids)


class _AsyncStream(Generic[Item]):
    """What the streams of changes and of change documents have in common."""

    def __init__(
        self,
        run: Callable[[Any], Coroutine[Any, Any, Any]],
        notifier: ChangeNotifier,
        reader: ChangeReader,
        wanted: Any = None,
    ) -> None:
        self._run, self._notifier, self._reader, self._wanted = run, notifier, reader, wanted
        self._woken = asyncio.Event()

    @property
    def token(self) -> str:
        """Async counterpart of `ChangeStream.token`. Empty until the stream starts."""
        return self._reader.token or ""

    def __await__(self) -> Generator[Any, None, Self]:
        return self._started().__await__()

    async def _started(self) -> Self:
        await follow(self._step, self._reader.start(), self._wanted)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        reader = self._reader
        change = reader.take()
        if change is None and not reader.closed:
            loop = asyncio.get_running_loop()

            def wake() -> None:
                with suppress(RuntimeError):  # the loop is closed: no task waits any more
                    loop.call_soon_threadsafe(self._woken.set)

            try:
                self._notifier.add(reader.collection, wake)
                change = await follow(self._step, reader.next(), self._wanted)
            finally:
                self._notifier.remove(reader.collection, wake)
        if change is None:
            raise StopAsyncIteration
        return await self._converted(change)

    async def __aenter__(self) -> Self:
        return await self._started()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def try_next(self) -> Item | None:
        """Async counterpart of `ChangeStream.try_next`."""
        change = await follow(self._step, self._reader.poll(), self._wanted)
        return None if change is None else await self._converted(change)

    async def _converted(self, change: Any) -> Item:
        convert = self._reader.convert
        item: Item = change if convert is None else await compute(convert, change)
        return item

    async def aclose(self) -> None:
        """Async counterpart of `ChangeStream.close`."""
        self._reader.closed = True
        self._woken.set()

    async def _step(self, step: Any) -> Any:
        match step:
            case Wait(seconds):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), seconds)
                return self._woken.clear()
        return await self._run(step)


class AsyncChangeStream(_AsyncStream[Change[Body]]):
    """The changes of a collection in the order of their commits. Async counterpart of `ChangeStream`.

    The stream is an async iterator, for a single task at a time, and an async context manager that closes the
    stream. The first `await`, `async with` or `async for` starts the stream: `stream = await cities.watch()` misses
    no later change. Between changes the stream holds no connection, no transaction and no thread.
    """


class AsyncChangeDocumentStream(_AsyncStream[dict[str, Any]]):
    """What a pipeline makes of the changes of a collection or a store. Async counterpart of `ChangeDocumentStream`,
    used as `AsyncChangeStream`.
    """
