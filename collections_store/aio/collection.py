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
    Mapping,
    Sized,
)
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Generic, Self, TypeVar, get_args, overload
from warnings import warn

from ..changes import ChangeReader, Wait, check_notifier
from ..codec import Codec
from ..collection import (
    Backlog,
    Bodies,
    Default,
    Documents,
    Indexes,
    Prefixes,
    Results,
    SearchResults,
    Untyped,
    Values,
)
from ..document import (
    Body,
    Document,
    ReplaceOne,
    Request,
    UpdateMany,
    UpdateOne,
    check_id,
    check_ids,
    read_ttl,
)
from ..engine.notifier import ChangeNotifier
from ..expressions.evaluation import MEMORY_LIMIT
from ..expressions.path import FieldLike
from ..operations import by_id
from ..operations.bulk import Mode
from ..operations.editing import EDIT_ATTEMPTS, Editing
from ..operations.indexes import DropIndex, ListIndexes
from ..operations.operation import Steps
from ..operations.procedures import ATTEMPTS, CallFunction, Pause, purge
from ..operations.requests import OperationBuilder, ReturnDocument
from ..operations.upgrades import Progress, upgrade_documents
from ..operations.vectors import CallEmbedder, ListUnindexed, store_backlog
from ..options import Consistency, Ttl, check_choice, check_integer, check_version
from ..query.change import Change, ChangeKind
from ..query.filter import FilterLike
from ..query.index import Explanation, read_index_name
from ..query.sort import SortLike
from ..query.text_index import TextFields
from ..query.vector_index import VectorFields
from ..results import (
    BulkWriteResult,
    DeleteResult,
    FoundDocuments,
    InsertManyResult,
    InsertOneResult,
    Page,
    PutManyResult,
    SearchPage,
    UpdateResult,
    UpgradeResult,
)
from ..search.vectors import Metric
from ..update import UpdateLike
from .bridge import compute, follow
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


class AsyncCollection(OperationBuilder, Generic[Body]):
    """A named group of documents, for asyncio. Async counterpart of `Collection`.

    `store.collection("name")` and `store["name"]` return a collection without I/O: the first operation stores
    declared options, schema versions and indexes, and raises their errors. Each method takes the arguments of the
    sync method and returns the same result, awaited. Any number of tasks may share a collection.

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

    async def put(
        self,
        id: str,
        body: Body,
        *,
        ttl: Ttl = None,
        if_version: int | None = None,
        if_absent: bool = False,
    ) -> int:
        """Async counterpart of `Collection.put`."""
        operation = await compute(self._put, id, body, ttl, if_version, if_absent)
        return await self._run(operation)

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

    async def exists(self, id: str) -> bool:
        """Async counterpart of `Collection.exists`."""
        return await self._read(by_id.DocumentExists(self.name, check_id(id)))

    async def remove(self, id: str, *, if_version: int | None = None) -> bool:
        """Async counterpart of `Collection.remove`."""
        return await self._run(by_id.RemoveById(self.name, check_id(id), check_version(if_version)))

    async def put_many(
        self, bodies: Bodies[Body], *, mode: Mode = "replace", ttl: Ttl = None, atomic: bool = False
    ) -> PutManyResult:
        """Async counterpart of `Collection.put_many`. A cancelled call without `atomic` may have written batches:
        `partial_result(error)` returns the counts.
        """
        return await self._follow(self._put_many(bodies, mode, ttl, atomic))

    async def insert_one(
        self, body: Body, *, id: str | None = None, ttl: Ttl = None, beside: str | None = None
    ) -> InsertOneResult:
        """Async counterpart of `Collection.insert_one`."""
        operation = await compute(self._insert_one, body, id, ttl, beside)
        await self._run(operation)
        return InsertOneResult(operation.id)

    async def insert_many(
        self, bodies: Iterable[Body] | Mapping[str, Body], *, ttl: Ttl = None, atomic: bool = False
    ) -> InsertManyResult:
        """Async counterpart of `Collection.insert_many`. A cancelled call without `atomic` may have written
        batches: `partial_result(error)` returns the counts.
        """
        return await self._follow(self._insert_many(bodies, ttl, atomic))

    async def update(
        self,
        id: str,
        update: UpdateLike,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        if_version: int | None = None,
    ) -> UpdateResult:
        """Async counterpart of `Collection.update`."""
        request = UpdateOne(None, update, upsert, array_filters=array_filters)
        return await self._run(await compute(self._update, id, request, if_version))

    async def update_one(
        self,
        filter: FilterLike,
        update: UpdateLike,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        sort: SortLike | None = None,
    ) -> UpdateResult:
        """Async counterpart of `Collection.update_one`."""
        request = UpdateOne(filter, update, upsert, array_filters=array_filters, sort=sort)
        return await self._run(await compute(self._modify, request))

    async def update_many(
        self,
        filter: FilterLike,
        update: UpdateLike,
        *,
        upsert: bool = False,
        array_filters: Any = None,
    ) -> UpdateResult:
        """Async counterpart of `Collection.update_many`."""
        request = UpdateMany(filter, update, upsert, array_filters=array_filters)
        return await self._run(await compute(self._modify, request))

    async def replace_one(
        self,
        filter: FilterLike,
        replacement: Body,
        *,
        upsert: bool = False,
        sort: SortLike | None = None,
    ) -> UpdateResult:
        """Async counterpart of `Collection.replace_one`."""
        request = ReplaceOne(filter, replacement, upsert, sort=sort)
        return await self._run(await compute(self._modify, request))

    async def find_one_and_update(
        self,
        filter: FilterLike,
        update: UpdateLike,
        *,
        projection: Any = None,
        sort: SortLike | None = None,
        upsert: bool = False,
        return_document: bool = ReturnDocument.BEFORE,
        array_filters: Any = None,
        if_version: int | None = None,
    ) -> Document[Body] | None:
        """Async counterpart of `Collection.find_one_and_update`."""
        request = UpdateOne(filter, update, upsert, array_filters=array_filters, sort=sort)
        wanted = projection, return_document, if_version
        return await self._run(await compute(self._find_and_modify, request, *wanted))

    async def find_one_and_replace(
        self,
        filter: FilterLike,
        replacement: Body,
        *,
        projection: Any = None,
        sort: SortLike | None = None,
        upsert: bool = False,
        return_document: bool = ReturnDocument.BEFORE,
    ) -> Document[Body] | None:
        """Async counterpart of `Collection.find_one_and_replace`."""
        request = ReplaceOne(filter, replacement, upsert, sort=sort)
        wanted = projection, return_document
        return await self._run(await compute(self._find_and_modify, request, *wanted))

    async def find_one_and_delete(
        self, filter: FilterLike, *, projection: Any = None, sort: SortLike | None = None
    ) -> Document[Body] | None:
        """Async counterpart of `Collection.find_one_and_delete`."""
        return await self._run(await compute(self._find_and_delete, filter, sort, projection))

    async def bulk_write(
        self, requests: Iterable[Request], *, ordered: bool = True, atomic: bool = False
    ) -> BulkWriteResult:
        """Async counterpart of `Collection.bulk_write`. A cancelled call without `atomic` may have written batches:
        `partial_result(error)` returns the counts.
        """
        return await self._follow(self._bulk_write(requests, ordered, atomic))

    async def increment(
        self, id: str, path: FieldLike, by: float = 1, *, initial: float = 0
    ) -> Any:
        """Async counterpart of `Collection.increment`."""
        return await self._run(await compute(self._increment, id, path, by, initial))

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

    async def touch(self, id: str, ttl: Ttl = None) -> bool:
        """Async counterpart of `Collection.touch`."""
        return await self._run(by_id.Touch(self.name, check_id(id), read_ttl(ttl)))

    async def purge_expired(self) -> int:
        """Async counterpart of `Collection.purge_expired`. A cancelled call may have purged batches."""
        return await self._follow(purge(self.name))

    async def get_many(self, ids: Iterable[str]) -> dict[str, Body]:
        """Async counterpart of `Collection.get_many`."""
        checked = await compute(check_ids, read_here(ids))
        return await self._read(by_id.GetMany(self.name, checked, self._codec.decode_body))

    async def id_prefixes(
        self,
        delimiter: str,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> Prefixes:
        """Async counterpart of `Collection.id_prefixes`."""
        return await self._read(self._id_prefixes(delimiter, prefix, after, limit))

    async def remove_many(self, ids: Iterable[str]) -> int:
        """Async counterpart of `Collection.remove_many`."""
        checked = await compute(check_ids, read_here(ids))
        return await self._run(by_id.RemoveMany(self.name, checked))

    async def list(self, *, skip: int = 0, limit: int | None = None) -> Documents[Body]:
        """Async counterpart of `Collection.list`. All documents are in memory at once: use `stream` for many."""
        operation = self._find(None, ..., None, skip, limit, None, "list")
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
    ) -> Documents[Body]:
        """Async counterpart of `Collection.find`. All documents are in memory at once: use `stream` for many."""
        operation = await compute(self._find, filter, equals, sort, skip, limit, projection)
        return FoundDocuments(await self._read(operation))

    async def find_one(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        skip: int = 0,
        projection: Any = None,
    ) -> Document[Body] | None:
        """Async counterpart of `Collection.find_one`."""
        arguments = filter, equals, sort, skip, 1, projection, "find_one"
        operation = await compute(self._find, *arguments)
        found = await self._read(operation)
        return found[0] if found else None

    async def page(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        limit: int = 100,
        after: str | None = None,
        projection: Any = None,
    ) -> Page[Body]:
        """Async counterpart of `Collection.page`."""
        return await self._read(
            await compute(self._page, filter, equals, sort, limit, after, projection)
        )

    async def search(
        self,
        query: str | None = None,
        *,
        filter: FilterLike | None = None,
        limit: int = 10,
        offset: int = 0,
        after: str | None = None,
        highlight: bool | tuple[str, str] = False,
        meaning: Any = None,
        index: str | None = None,
        diversity: float | None = None,
    ) -> SearchPage[Body]:
        """Async counterpart of `Collection.search`."""
        if meaning is None:
            asked = query, filter, limit, offset, after, highlight
            return await self._read(await compute(self._search, *asked))
        window = {"filter": filter, "limit": limit, "offset": offset, "after": after}
        options = {**window, "highlight": highlight}
        store = self._notifier is not None
        steps = self._hybrid(query, meaning, options, index, diversity, store=store)
        return await self._follow(steps)

    async def count(self, filter: FilterLike | None = None, equals: Any = ...) -> int:
        """Async counterpart of `Collection.count`."""
        return await self._read(await compute(self._count, filter, equals))

    async def distinct(self, field: FieldLike, filter: FilterLike | None = None) -> Values:
        """Async counterpart of `Collection.distinct`."""
        return await self._read(await compute(self._distinct, field, filter))

    async def delete_one(self, filter: FilterLike, equals: Any = ...) -> DeleteResult:
        """Async counterpart of `Collection.delete_one`."""
        return await self._run(await compute(self._delete_one, filter, equals))

    async def delete_many(self, filter: FilterLike, equals: Any = ...) -> DeleteResult:
        """Async counterpart of `Collection.delete_many`."""
        return await self._run(await compute(self._delete_many, filter, equals))

    async def create_index(
        self,
        keys: Any,
        *,
        unique: bool = False,
        where: Any = None,
        arrays: bool = False,
        name: str | None = None,
    ) -> str:
        """Async counterpart of `Collection.create_index`."""
        options = {"unique": unique, "where": where, "arrays": arrays, "name": name}
        return await self._run(await compute(self._create_index, keys, options))

    async def create_vector_index(
        self,
        fields: VectorFields,
        *,
        dimensions: int,
        metric: Metric = "cosine",
        embed: Any = None,
        model: str | None = None,
        chunks: Any = None,
        name: str | None = None,
    ) -> str:
        """Async counterpart of `Collection.create_vector_index`. `embed` may be a coroutine function; any other
        runs in a thread.
        """
        options = {"dimensions": dimensions, "metric": metric, "model": model, "name": name}
        return await self._follow(self._create_vector_index(fields, options, embed, chunks))

    async def reindex(
        self,
        fields: VectorFields,
        *,
        dimensions: int,
        metric: Metric = "cosine",
        embed: Any = None,
        model: str | None = None,
        chunks: Any = None,
        name: str | None = None,
    ) -> str:
        """Async counterpart of `Collection.reindex`."""
        options = {"dimensions": dimensions, "metric": metric, "model": model, "name": name}
        return await self._follow(
            self._create_vector_index(fields, options, embed, chunks, again=True)
        )

    async def nearest(
        self,
        query: Any,
        k: int = 10,
        *,
        filter: FilterLike | None = None,
        min_score: float | None = None,
        index: str | None = None,
    ) -> SearchResults[Body]:
        """Async counterpart of `Collection.nearest`."""
        store = self._notifier is not None
        return await self._follow(self._nearest(query, k, filter, min_score, index, store=store))

    async def store_vectors(self, index: str | None = None) -> int:
        """Async counterpart of `Collection.store_vectors`."""
        name = None if index is None else read_index_name(index)
        return await self._follow(store_backlog(self.name, name))

    async def search_backlog(self, limit: int = 100) -> Backlog:
        """Async counterpart of `Collection.search_backlog`."""
        return await self._run(ListUnindexed(self.name, check_integer("limit", limit)))

    async def create_text_index(
        self, fields: TextFields, *, language: str | None = None, name: str | None = None
    ) -> str:
        """Async counterpart of `Collection.create_text_index`."""
        return await self._run(self._create_text_index(fields, language, name))

    async def drop_index(self, name: str) -> bool:
        """Async counterpart of `Collection.drop_index`."""
        return await self._run(DropIndex(self.name, read_index_name(name)))

    async def indexes(self) -> Indexes:
        """Async counterpart of `Collection.indexes`."""
        return await self._run(ListIndexes(self.name))

    async def explain(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        skip: int = 0,
        limit: int | None = None,
    ) -> Explanation:
        """Async counterpart of `Collection.explain`."""
        return await self._run(await compute(self._explain, filter, equals, sort, skip, limit))

    async def aggregate(self, pipeline: Any, *, memory_limit: int = MEMORY_LIMIT) -> Results:
        """Async counterpart of `Collection.aggregate`."""
        return await self._read(await compute(self._aggregate, pipeline, memory_limit))

    async def stream(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        projection: Any = None,
    ) -> AsyncIterator[Document[Body]]:
        """Async counterpart of `Collection.stream`. An async generator: `async for document in cities.stream()`."""
        batches = await compute(self._stream, filter, equals, sort, projection)
        while (page := batches.next()) is not None:
            for document in batches.advance(await self._read(page)):
                yield document

    async def upgrade_documents(
        self,
        *,
        dry_run: bool = False,
        quarantine: str | None = None,
        progress: Progress | None = None,
    ) -> UpgradeResult:
        """Async counterpart of `Collection.upgrade_documents`. The functions run in threads, too;
        `progress` may be a coroutine function.
        """
        options = {"dry_run": dry_run, "quarantine": quarantine, "progress": progress}
        return await self._follow(upgrade_documents(self.name, self._codec, **options))

    def watch(
        self,
        filter: FilterLike | None = None,
        *,
        after: str | None = None,
        kinds: Iterable[ChangeKind] | None = None,
        timeout: float | None = None,
    ) -> AsyncChangeStream[Body]:
        """Async counterpart of `Collection.watch`. Iterate over the result with `async for`. Await the result first
        to begin at once; the `await` raises errors of the arguments.
        """
        notifier = check_notifier(self._notifier)
        wanted = partial(self._watched, filter, kinds)
        reader = ChangeReader(self.name, wanted, after=after, timeout=timeout, codec=self._codec)
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


class AsyncChangeStream(Generic[Body]):
    """The changes of a collection in the order of their commits. Async counterpart of `ChangeStream`.

    The stream is an async iterator, for a single task at a time, and an async context manager that closes the
    stream. The first `await`, `async with` or `async for` starts the stream: `stream = await cities.watch()` misses
    no later change. Between changes the stream holds no connection, no transaction and no thread.
    """

    def __init__(
        self,
        run: Callable[[Any], Coroutine[Any, Any, Any]],
        notifier: ChangeNotifier,
        reader: ChangeReader,
        filter: FilterLike | None = None,
    ) -> None:
        self._run, self._notifier, self._reader, self._filter = run, notifier, reader, filter
        self._woken = asyncio.Event()

    @property
    def token(self) -> str:
        """Async counterpart of `ChangeStream.token`. Empty until the stream starts."""
        return self._reader.token or ""

    def __await__(self) -> Generator[Any, None, Self]:
        return self._started().__await__()

    async def _started(self) -> Self:
        await follow(self._step, self._reader.start(), self._filter)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change[Body]:
        reader = self._reader
        change = reader.take()
        if change is None and not reader.closed:
            loop = asyncio.get_running_loop()

            def wake() -> None:
                with suppress(RuntimeError):  # the loop is closed: no task waits any more
                    loop.call_soon_threadsafe(self._woken.set)

            try:
                self._notifier.add(reader.collection, wake)
                change = await follow(self._step, reader.next(), self._filter)
            finally:
                self._notifier.remove(reader.collection, wake)
        if change is None:
            raise StopAsyncIteration
        return await self._converted(change)

    async def __aenter__(self) -> Self:
        return await self._started()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def try_next(self) -> Change[Body] | None:
        """Async counterpart of `ChangeStream.try_next`."""
        change = await follow(self._step, self._reader.poll(), self._filter)
        return None if change is None else await self._converted(change)

    async def _converted(self, change: Change[Any]) -> Change[Any]:
        convert = self._reader.convert
        return change if convert is None else await compute(convert, change)

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
