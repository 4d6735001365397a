"""`AsyncCollection`: the methods of a collection, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..aggregation.expressions.scope import MEMORY_LIMIT
from ..changes import ChangeNotifier, ChangeReader, check_notifier
from ..codec import Codec
from ..collection import Bodies, Documents, Indexes, Results, Values, put_of
from ..document import (
    BulkWriteResult,
    DeleteResult,
    Document,
    InsertManyResult,
    InsertOneResult,
    Page,
    PutManyResult,
    ReplaceOne,
    Request,
    UpdateMany,
    UpdateOne,
    UpdateResult,
    check_id,
    check_ids,
    new_id,
    read_ttl,
)
from ..errors import InvalidFilter, missing_method
from ..operations.bulk import Mode
from ..operations.by_id import (
    DocumentExists,
    Get,
    GetDocument,
    GetMany,
    Insert,
    RemoveById,
    RemoveMany,
    Touch,
)
from ..operations.find import (
    Count,
    Distinct,
    Explain,
    Find,
    FindPage,
    batches_of,
    check_page,
    check_window,
    parse_required,
    read_projection,
)
from ..operations.indexes import CreateIndex, DropIndex, ListIndexes
from ..operations.operation import Operation, Steps
from ..operations.procedures import (
    ATTEMPTS,
    CallFunction,
    Pause,
    Writing,
    bulk_write,
    change,
    check_mode,
    purge,
)
from ..operations.update import (
    DeleteFirst,
    DeleteMatching,
    Increment,
    ReturnDocument,
    find_and_delete,
    find_and_modify,
    read_increment,
    update_by_id,
    update_of,
)
from ..options import Ttl, check_attempts, check_flag, check_function, check_iterable, check_version
from ..query.change import ChangeFilter, ChangeKind
from ..query.conditions import read_target
from ..query.filter import Filter
from ..query.index import Explanation, Index
from ..query.index import read_index_name as read_index_name
from ..query.path import Path
from ..query.sort import NATURAL, Sort
from .bridge import follow
from .change_stream import AsyncChangeStream

T = TypeVar("T")


class AsyncRunner(Protocol):
    """What runs an operation: a store, or a transaction."""

    async def __call__(self, operation: Operation[T]) -> T:
        """Return the operation's result."""


class AsyncCollection:
    """A named group of documents, for asyncio. Async counterpart of `Collection`.

    `await store.collection("name")` and `store["name"]` return one. Each method takes the arguments of
    its counterpart and returns the same result, awaited. Any number of tasks may use a handle.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         cities = await store.collection("cities")
    ...         await cities.put("berlin", {"country": "de"})
    ...         return await cities.get("berlin")
    >>> asyncio.run(main())
    {'country': 'de'}
    """

    __slots__ = ("_codec", "_notifier", "_run", "name")

    def __init__(
        self, run: AsyncRunner, codec: Codec, name: str, notifier: ChangeNotifier | None = None
    ) -> None:
        self._run, self._codec, self.name, self._notifier = run, codec, name, notifier

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    if not TYPE_CHECKING:  # a type checker that saw this would take any misspelt name

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_method(type(self).__name__, name), name=name, obj=self)

    async def put(
        self,
        id: str,
        body: Any,
        *,
        ttl: Ttl = None,
        if_version: int | None = None,
        if_absent: bool = False,
    ) -> int:
        """Async counterpart of `Collection.put`."""
        options = {"ttl": ttl, "if_version": if_version, "if_absent": if_absent}
        return await self._run(put_of(self.name, check_id(id), self._codec.encode(body), **options))

    async def get(self, id: str, default: Any = None) -> Any:
        """Async counterpart of `Collection.get`."""
        return await self._run(Get(self.name, check_id(id), default))

    async def document(self, id: str) -> Document | None:
        """Async counterpart of `Collection.document`."""
        return await self._run(GetDocument(self.name, check_id(id)))

    async def exists(self, id: str) -> bool:
        """Async counterpart of `Collection.exists`."""
        return await self._run(DocumentExists(self.name, check_id(id)))

    async def remove(self, id: str, *, if_version: int | None = None) -> bool:
        """Async counterpart of `Collection.remove`."""
        return await self._run(RemoveById(self.name, check_id(id), check_version(if_version)))

    async def put_many(
        self, bodies: Bodies, *, mode: Mode = "replace", ttl: Ttl = None, atomic: bool = False
    ) -> PutManyResult:
        """Async counterpart of `Collection.put_many`. A cancelled call may have written
        some of its batches, unless it is `atomic`: `partial_result(error)` returns the counts.
        """
        writing = self._writing(check_mode(mode), read_ttl(ttl), check_flag("atomic", atomic))
        return await self._follow(writing.put(check_iterable("bodies", bodies)))

    async def insert_one(
        self, body: Any, *, id: str | None = None, ttl: Ttl = None
    ) -> InsertOneResult:
        """Async counterpart of `Collection.insert_one`."""
        chosen = new_id() if id is None else check_id(id)
        text = self._codec.encode(body)
        await self._run(Insert(self.name, chosen, text, read_ttl(ttl), unique=True))
        return InsertOneResult(chosen)

    async def insert_many(
        self, bodies: Iterable[Any] | Mapping[str, Any], *, ttl: Ttl = None, atomic: bool = False
    ) -> InsertManyResult:
        """Async counterpart of `Collection.insert_many`. A cancelled call may have written
        some of its batches, unless it is `atomic`: `partial_result(error)` returns the counts.
        """
        writing = self._writing("insert", read_ttl(ttl), check_flag("atomic", atomic))
        return await self._follow(writing.insert(check_iterable("bodies", bodies)))

    async def update(
        self,
        id: str,
        update: Any,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        if_version: int | None = None,
    ) -> UpdateResult:
        """Async counterpart of `Collection.update`."""
        request = UpdateOne(None, update, upsert=upsert, array_filters=array_filters)
        return await self._run(update_by_id(self.name, self._codec, id, request, if_version))

    async def update_one(
        self,
        filter: Any,
        update: Any,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        sort: Any = None,
    ) -> UpdateResult:
        """Async counterpart of `Collection.update_one`."""
        options = {"upsert": upsert, "array_filters": array_filters, "sort": sort}
        return await self._run(
            update_of(self.name, self._codec, UpdateOne(filter, update, **options))
        )

    async def update_many(
        self, filter: Any, update: Any, *, upsert: bool = False, array_filters: Any = None
    ) -> UpdateResult:
        """Async counterpart of `Collection.update_many`."""
        request = UpdateMany(filter, update, upsert=upsert, array_filters=array_filters)
        return await self._run(update_of(self.name, self._codec, request))

    async def replace_one(
        self, filter: Any, replacement: Any, *, upsert: bool = False, sort: Any = None
    ) -> UpdateResult:
        """Async counterpart of `Collection.replace_one`."""
        request = ReplaceOne(filter, replacement, upsert=upsert, sort=sort)
        return await self._run(update_of(self.name, self._codec, request))

    async def find_one_and_update(
        self,
        filter: Any,
        update: Any,
        *,
        projection: Any = None,
        sort: Any = None,
        upsert: bool = False,
        return_document: bool = ReturnDocument.BEFORE,
        array_filters: Any = None,
        if_version: int | None = None,
    ) -> Document | None:
        """Async counterpart of `Collection.find_one_and_update`."""
        options = {"upsert": upsert, "array_filters": array_filters, "sort": sort}
        request = UpdateOne(filter, update, **options)
        wanted = {
            "projection": projection,
            "return_document": return_document,
            "if_version": if_version,
        }
        return await self._run(find_and_modify(self.name, self._codec, request, **wanted))

    async def find_one_and_replace(
        self,
        filter: Any,
        replacement: Any,
        *,
        projection: Any = None,
        sort: Any = None,
        upsert: bool = False,
        return_document: bool = ReturnDocument.BEFORE,
    ) -> Document | None:
        """Async counterpart of `Collection.find_one_and_replace`."""
        request = ReplaceOne(filter, replacement, upsert=upsert, sort=sort)
        wanted = {"projection": projection, "return_document": return_document}
        return await self._run(find_and_modify(self.name, self._codec, request, **wanted))

    async def find_one_and_delete(
        self, filter: Any, *, projection: Any = None, sort: Any = None
    ) -> Document | None:
        """Async counterpart of `Collection.find_one_and_delete`."""
        wanted = {"sort": sort, "projection": projection}
        return await self._run(find_and_delete(self.name, self._codec, filter, **wanted))

    async def bulk_write(
        self, requests: Iterable[Request], *, ordered: bool = True, atomic: bool = False
    ) -> BulkWriteResult:
        """Async counterpart of `Collection.bulk_write`. A cancelled call may have written
        some of its batches, unless it is `atomic`: `partial_result(error)` returns the counts.
        """
        options = {
            "ordered": check_flag("ordered", ordered),
            "atomic": check_flag("atomic", atomic),
        }
        return await self._follow(
            bulk_write(self.name, self._codec, check_iterable("requests", requests), **options)
        )

    async def increment(
        self, id: str, path: str | Path, by: float = 1, *, initial: float = 0
    ) -> Any:
        """Async counterpart of `Collection.increment`."""
        read = read_increment(path, by, initial)
        return await self._run(Increment(self.name, check_id(id), read, by, initial, self._codec))

    async def change(
        self,
        id: str,
        function: Callable[[Any], Any],
        *,
        default: Any = ...,
        ttl: Ttl = None,
        attempts: int = ATTEMPTS,
    ) -> Any:
        """Async counterpart of `Collection.change`. `function` may be a coroutine function."""
        life, most = read_ttl(ttl), check_attempts(attempts)
        options = {"default": default, "ttl": life, "attempts": most}
        return await self._follow(
            change(
                self.name, self._codec, check_id(id), check_function("function", function), options
            )
        )

    async def touch(self, id: str, ttl: Ttl = None) -> bool:
        """Async counterpart of `Collection.touch`."""
        return await self._run(Touch(self.name, check_id(id), read_ttl(ttl)))

    async def purge_expired(self) -> int:
        """Async counterpart of `Collection.purge_expired`. A cancelled call may have purged
        some of its batches.
        """
        return await self._follow(purge(self.name))

    async def get_many(self, ids: Iterable[str]) -> dict[str, Any]:
        """Async counterpart of `Collection.get_many`."""
        return await self._run(GetMany(self.name, check_ids(ids)))

    async def remove_many(self, ids: Iterable[str]) -> int:
        """Async counterpart of `Collection.remove_many`."""
        return await self._run(RemoveMany(self.name, check_ids(ids)))

    async def list(self, *, skip: int = 0, limit: int | None = None) -> Documents:
        """Async counterpart of `Collection.list`."""
        return await self._run(Find(self.name, Filter(), Sort(), *check_window(skip, limit)))

    async def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        skip: int = 0,
        limit: int | None = None,
        projection: Any = None,
    ) -> Documents:
        """Async counterpart of `Collection.find`."""
        parsed = Filter.parse(filter, equals, self._codec)
        window = check_window(skip, limit)
        parts = read_projection(projection, parsed, self._codec)
        order = NATURAL if sort is None else Sort.parse(sort)
        return await self._run(Find(self.name, parsed, order, *window, parts))

    async def find_one(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        skip: int = 0,
        projection: Any = None,
    ) -> Document | None:
        """Async counterpart of `Collection.find_one`."""
        options = {"sort": sort, "skip": skip, "projection": projection}
        found = await self.find(filter, equals, limit=1, **options)
        return found[0] if found else None

    async def page(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        limit: int = 100,
        after: str | None = None,
        projection: Any = None,
    ) -> Page:
        """Async counterpart of `Collection.page`."""
        parsed = Filter.parse(filter, equals, self._codec)
        parts = read_projection(projection, parsed, self._codec)
        page = FindPage(self.name, parsed, Sort.parse(sort), check_page(limit), after, parts)
        return await self._run(page)

    async def count(self, filter: Any = None, equals: Any = ...) -> int:
        """Async counterpart of `Collection.count`."""
        return await self._run(Count(self.name, Filter.parse(filter, equals, self._codec)))

    async def distinct(self, field: str | Path, filter: Any = None) -> Values:
        """Async counterpart of `Collection.distinct`."""
        parsed = Filter.parse(filter, codec=self._codec)
        return await self._run(Distinct(self.name, read_target(field, InvalidFilter), parsed))

    async def delete_one(self, filter: Any, equals: Any = ...) -> DeleteResult:
        """Async counterpart of `Collection.delete_one`."""
        return await self._run(DeleteFirst(self.name, parse_required(filter, equals, self._codec)))

    async def delete_many(self, filter: Any, equals: Any = ...) -> DeleteResult:
        """Async counterpart of `Collection.delete_many`."""
        return await self._run(
            DeleteMatching(self.name, parse_required(filter, equals, self._codec))
        )

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
        made = Index.parse(keys, unique=unique, where=where, arrays=arrays, name=name)
        return await self._run(CreateIndex(self.name, made))

    async def drop_index(self, name: str) -> bool:
        """Async counterpart of `Collection.drop_index`."""
        return await self._run(DropIndex(self.name, read_index_name(name)))

    async def indexes(self) -> Indexes:
        """Async counterpart of `Collection.indexes`."""
        return await self._run(ListIndexes(self.name))

    async def explain(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        skip: int = 0,
        limit: int | None = None,
    ) -> Explanation:
        """Async counterpart of `Collection.explain`."""
        parsed = Filter.parse(filter, equals, self._codec)
        window = check_window(skip, limit)
        return await self._run(Explain(self.name, parsed, Sort.parse(sort), *window))

    async def aggregate(self, pipeline: Any, *, memory_limit: int = MEMORY_LIMIT) -> Results:
        """Async counterpart of `Collection.aggregate`."""
        from ..aggregation.pipeline import Pipeline
        from ..operations.aggregate import Aggregate, check_memory

        read = Pipeline.parse(pipeline, self._codec)
        return await self._run(Aggregate(self.name, read, check_memory(memory_limit)))

    async def stream(
        self, filter: Any = None, equals: Any = ..., *, sort: Any = None, projection: Any = None
    ) -> AsyncIterator[Document]:
        """Async counterpart of `Collection.stream`. It is an async generator:
        `async for document in cities.stream()`.
        """
        parsed = Filter.parse(filter, equals, self._codec)
        batches = batches_of(self.name, parsed, sort, projection, self._codec)
        while (page := batches.next()) is not None:
            for document in batches.advance(await self._run(page)):
                yield document

    def watch(
        self,
        filter: Any = None,
        *,
        after: str | None = None,
        kinds: Iterable[ChangeKind] | None = None,
        timeout: float | None = None,
    ) -> AsyncChangeStream:
        """Async counterpart of `Collection.watch`. It is no coroutine: iterate over the
        result with `async for`, or await it to begin at once.
        """
        notifier = check_notifier(self._notifier)
        wanted = ChangeFilter.parse(filter, kinds, self._codec)
        reader = ChangeReader(self.name, wanted, after=after, timeout=timeout)
        return AsyncChangeStream(self._run, notifier, reader)

    def _writing(self, mode: Mode, ttl: int | None, atomic: bool) -> Writing:
        return Writing(self.name, self._codec, mode, ttl, atomic)

    async def _follow(self, steps: Steps[T]) -> T:
        return await follow(self._step, steps)

    async def _step(self, step: Any) -> Any:
        match step:
            case Pause(seconds):
                return await asyncio.sleep(seconds)
            case CallFunction(function, argument):
                result = function(argument)
                return await result if isawaitable(result) else result
        return await self._run(step)
