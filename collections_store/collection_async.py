"""The verbs of a collection, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from .codec import Codec
from .collection import Documents, Results, encoded
from .document import Document, check_id, check_ids
from .filter import Filter
from .operations import (
    Aggregate,
    Count,
    Exists,
    Find,
    Get,
    GetDocument,
    GetMany,
    Operation,
    Put,
    PutMany,
    Reading,
    Remove,
    RemoveMany,
    check_memory,
    check_window,
)
from .pipeline import MEMORY_LIMIT, Pipeline

T = TypeVar("T")


class AsyncRunner(Protocol):
    """What runs an operation: a store, or a transaction."""

    async def __call__(self, operation: Operation[T]) -> T:
        """Return the operation's result."""


class AsyncCollection:
    """A named group of JSON objects, each under an id.

    Get one from a store: `await store.get_collection("name")`, or `store["name"]`. It comes into
    being when something is first put into it; before that, it is empty. A handle does no I/O of its
    own and may be used by many tasks.
    """

    __slots__ = ("_codec", "_run", "name")

    def __init__(self, run: AsyncRunner, codec: Codec, name: str) -> None:
        self._run, self._codec, self.name = run, codec, name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def put(self, id: str, body: Any) -> int:
        """Write a body under an id, in the place of what was there; returns its version.

        The version is 1 for a new object and grows by one with each write. An object keeps its
        place in natural order. Raises `InvalidId` and `InvalidBody`; then nothing is written.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store["cities"].put("berlin", {"population": 3_900_000})
        >>> asyncio.run(main())
        1
        """
        return await self._run(Put(self.name, check_id(id), self._codec.encode(body)))

    async def get(self, id: str, default: Any = None) -> Any:
        """Return the body under an id, or `default` where there is none.

        Every call returns a fresh object. null is a body: `exists` tells it from none.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store["cities"].get("atlantis", "no such city")
        >>> asyncio.run(main())
        'no such city'
        """
        return await self._run(Get(self.name, check_id(id), default))

    async def document(self, id: str) -> Document | None:
        """Return the object with its version and times, or None where there is none.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store["cities"].put("berlin", {"population": 3_900_000})
        ...         return (await store["cities"].document("berlin")).version
        >>> asyncio.run(main())
        1
        """
        return await self._run(GetDocument(self.name, check_id(id)))

    async def exists(self, id: str) -> bool:
        """Tell whether there is an object under an id.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store["cities"].exists("atlantis")
        >>> asyncio.run(main())
        False
        """
        return await self._run(Exists(self.name, check_id(id)))

    async def remove(self, id: str) -> bool:
        """Delete the object under an id; tells whether there was one.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store["cities"].remove("atlantis")
        >>> asyncio.run(main())
        False
        """
        return await self._run(Remove(self.name, check_id(id)))

    async def put_many(self, bodies: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> int:
        """Write bodies under their ids, all or none; returns how many.

        An id that comes twice is written once, with its last body. Raises `InvalidId` and
        `InvalidBody`; then nothing is written.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store["cities"].put_many({"berlin": {"country": "de"}, "paris": {"country": "fr"}})
        >>> asyncio.run(main())
        2
        """
        return await self._run(PutMany(self.name, encoded(self._codec, bodies)))

    async def get_many(self, ids: Iterable[str]) -> dict[str, Any]:
        """Return the bodies under those ids that are there, by id, in the order asked.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store["cities"].put("berlin", {"country": "de"})
        ...         return await store["cities"].get_many(["atlantis", "berlin"])
        >>> asyncio.run(main())
        {'berlin': {'country': 'de'}}
        """
        return await self._run(GetMany(self.name, check_ids(ids)))

    async def remove_many(self, ids: Iterable[str]) -> int:
        """Delete the objects under those ids, all at once; returns how many there were.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store["cities"].remove_many(["atlantis", "berlin"])
        >>> asyncio.run(main())
        0
        """
        return await self._run(RemoveMany(self.name, check_ids(ids)))

    async def list(self, *, skip: int = 0, limit: int | None = None) -> Documents:
        """Return all objects in natural order: the order in which they came into being.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         count = await store["cities"].put_many({"paris": {}, "berlin": {}})
        ...         return [id for id, body in await store["cities"].list()]
        >>> asyncio.run(main())
        ['paris', 'berlin']
        """
        return await self._run(Find(self.name, Filter(), *check_window(skip, limit)))

    async def find(
        self, filter: Any = None, equals: Any = ..., *, skip: int = 0, limit: int | None = None
    ) -> Documents:
        """Return the objects that match, in natural order.

        `find("address.city", "Berlin")` and `find({"address.city": "Berlin", "age": 30})` ask for
        fields, with MongoDB's meaning: types never mix (1 is not true, "1" is not 1), null matches
        null and missing, an array matches by each of its elements and as a whole. `$id`,
        `$version`, `$created_at`, `$updated_at`, `$expires_at` ask for what the store knows, `$body`
        for the whole body.

        MongoDB's operators ask for more: `find({"age": {"$gte": 30}, "likes": {"$all": ["tea"]}})`,
        and so does Python: `find((F("age") >= 30) & ~F("likes").exists())`. Raises `InvalidFilter`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store["cities"].put("berlin", {"rivers": ["Spree", "Havel"]})
        ...         return [city.id for city in await store["cities"].find("rivers", "Havel")]
        >>> asyncio.run(main())
        ['berlin']
        """
        asked = Filter.parse(filter, equals, self._codec)
        return await self._run(Find(self.name, asked, *check_window(skip, limit)))

    async def count(self, filter: Any = None, equals: Any = ...) -> int:
        """Tell how many objects match; without a filter, how many there are.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store["cities"].count({"country": "de"})
        >>> asyncio.run(main())
        0
        """
        return await self._run(Count(self.name, Filter.parse(filter, equals, self._codec)))

    async def aggregate(self, pipeline: Any, *, memory_limit: int = MEMORY_LIMIT) -> Results:
        """Run MongoDB's aggregation pipeline over the collection; returns what comes out of it.

        The stages are `$match`, `$project`, `$addFields` (`$set`), `$unset`, `$sort`, `$skip`, `$limit`,
        `$count`, `$group`, `$unwind`, `$sortByCount`, `$replaceRoot` (`$replaceWith`) and `$lookup`. All
        is read in one transaction. A stage that must hold rows, such as `$sort` or `$group`, holds up
        to about `memory_limit` bytes. Raises `InvalidPipeline`, `InvalidOperand` and
        `MemoryLimitExceeded`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         count = await store["cities"].put_many({"berlin": {"in": "de"}, "bonn": {"in": "de"}})
        ...         return await store["cities"].aggregate([{"$group": {"_id": "$in", "cities": {"$count": {}}}}])
        >>> asyncio.run(main())
        [{'_id': 'de', 'cities': 2}]
        """
        read = Pipeline.parse(pipeline, self._codec)
        return await self._run(Aggregate(self.name, read, check_memory(memory_limit)))

    async def stream(self, filter: Any = None, equals: Any = ...) -> AsyncIterator[Document]:
        """Yield the objects that match, in natural order, in constant memory.

        No connection is held and no transaction is open between objects: the collection may be
        written meanwhile. Each object is yielded at most once; one that is written while the
        stream runs may be seen as it was or as it is. One that is removed and put again meanwhile is
        a new object, and may come twice.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         count = await store["numbers"].put_many((str(n), n) for n in range(1000))
        ...         return sum([document.body async for document in store["numbers"].stream()])
        >>> asyncio.run(main())
        499500
        """
        reading = Reading(self.name, Filter.parse(filter, equals, self._codec))
        while (page := reading.next()) is not None:
            for document in reading.took(await self._run(page)):
                yield document
