"""The verbs of a collection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from .codec import Codec
from .document import Document, check_id, check_ids
from .errors import InvalidId
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
Documents: TypeAlias = list[Document]
Results: TypeAlias = list[Any]


class Runner(Protocol):
    """What runs an operation: a store, or a transaction."""

    def __call__(self, operation: Operation[T]) -> T:
        """Return the operation's result."""


class Collection:
    """A named group of JSON objects, each under an id.

    Get one from a store: `store.get_sync_collection("name")`, or `store["name"]`. It comes into
    being when something is first put into it; before that, it is empty. A handle does no I/O of its
    own and may be used by many threads.
    """

    __slots__ = ("_codec", "_run", "name")

    def __init__(self, run: Runner, codec: Codec, name: str) -> None:
        self._run, self._codec, self.name = run, codec, name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def put(self, id: str, body: Any) -> int:
        """Write a body under an id, in the place of what was there; returns its version.

        The version is 1 for a new object and grows by one with each write. An object keeps its
        place in natural order. Raises `InvalidId` and `InvalidBody`; then nothing is written.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].put("berlin", {"population": 3_900_000})
        1
        """
        return self._run(Put(self.name, check_id(id), self._codec.encode(body)))

    def get(self, id: str, default: Any = None) -> Any:
        """Return the body under an id, or `default` where there is none.

        Every call returns a fresh object. null is a body: `exists` tells it from none.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].get("atlantis", "no such city")
        'no such city'
        """
        return self._run(Get(self.name, check_id(id), default))

    def document(self, id: str) -> Document | None:
        """Return the object with its version and times, or None where there is none.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {"population": 3_900_000})
        ...     store["cities"].document("berlin").version
        1
        """
        return self._run(GetDocument(self.name, check_id(id)))

    def exists(self, id: str) -> bool:
        """Tell whether there is an object under an id.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].exists("atlantis")
        False
        """
        return self._run(Exists(self.name, check_id(id)))

    def remove(self, id: str) -> bool:
        """Delete the object under an id; tells whether there was one.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].remove("atlantis")
        False
        """
        return self._run(Remove(self.name, check_id(id)))

    def put_many(self, bodies: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> int:
        """Write bodies under their ids, all or none; returns how many.

        An id that comes twice is written once, with its last body. Raises `InvalidId` and
        `InvalidBody`; then nothing is written.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].put_many({"berlin": {"country": "de"}, "paris": {"country": "fr"}})
        2
        """
        return self._run(PutMany(self.name, encoded(self._codec, bodies)))

    def get_many(self, ids: Iterable[str]) -> dict[str, Any]:
        """Return the bodies under those ids that are there, by id, in the order asked.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {"country": "de"})
        ...     store["cities"].get_many(["atlantis", "berlin"])
        {'berlin': {'country': 'de'}}
        """
        return self._run(GetMany(self.name, check_ids(ids)))

    def remove_many(self, ids: Iterable[str]) -> int:
        """Delete the objects under those ids, all at once; returns how many there were.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].remove_many(["atlantis", "berlin"])
        0
        """
        return self._run(RemoveMany(self.name, check_ids(ids)))

    def list(self, *, skip: int = 0, limit: int | None = None) -> Documents:
        """Return all objects in natural order: the order in which they came into being.

        >>> with Store("sqlite://") as store:
        ...     count = store["cities"].put_many({"paris": {}, "berlin": {}})
        ...     [id for id, body in store["cities"].list()]
        ['paris', 'berlin']
        """
        return self._run(Find(self.name, Filter(), *check_window(skip, limit)))

    def find(
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

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {"rivers": ["Spree", "Havel"]})
        ...     [city.id for city in store["cities"].find("rivers", "Havel")]
        ['berlin']
        """
        asked = Filter.parse(filter, equals, self._codec)
        return self._run(Find(self.name, asked, *check_window(skip, limit)))

    def count(self, filter: Any = None, equals: Any = ...) -> int:
        """Tell how many objects match; without a filter, how many there are.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].count({"country": "de"})
        0
        """
        return self._run(Count(self.name, Filter.parse(filter, equals, self._codec)))

    def aggregate(self, pipeline: Any, *, memory_limit: int = MEMORY_LIMIT) -> Results:
        """Run MongoDB's aggregation pipeline over the collection; returns what comes out of it.

        The stages are `$match`, `$project`, `$addFields` (`$set`), `$unset`, `$sort`, `$skip`, `$limit`,
        `$count`, `$group`, `$unwind`, `$sortByCount`, `$replaceRoot` (`$replaceWith`) and `$lookup`. All
        is read in one transaction. A stage that must hold rows, such as `$sort` or `$group`, holds up
        to about `memory_limit` bytes. Raises `InvalidPipeline`, `InvalidOperand` and
        `MemoryLimitExceeded`.

        >>> with Store("sqlite://") as store:
        ...     count = store["cities"].put_many({"berlin": {"in": "de"}, "bonn": {"in": "de"}})
        ...     store["cities"].aggregate([{"$group": {"_id": "$in", "cities": {"$count": {}}}}])
        [{'_id': 'de', 'cities': 2}]
        """
        read = Pipeline.parse(pipeline, self._codec)
        return self._run(Aggregate(self.name, read, check_memory(memory_limit)))

    def stream(self, filter: Any = None, equals: Any = ...) -> Iterator[Document]:
        """Yield the objects that match, in natural order, in constant memory.

        No connection is held and no transaction is open between objects: the collection may be
        written meanwhile. Each object is yielded at most once; one that is written while the
        stream runs may be seen as it was or as it is. One that is removed and put again meanwhile is
        a new object, and may come twice.

        >>> with Store("sqlite://") as store:
        ...     count = store["numbers"].put_many((str(n), n) for n in range(1000))
        ...     sum(document.body for document in store["numbers"].stream())
        499500
        """
        reading = Reading(self.name, Filter.parse(filter, equals, self._codec))
        while (page := reading.next()) is not None:
            yield from reading.took(self._run(page))


def encoded(codec: Codec, bodies: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return the texts of bodies by their ids; an id that comes twice has its last."""
    pairs = bodies.items() if isinstance(bodies, Mapping) else bodies
    return {check_id(id): codec.encode(body) for id, body in map(_pair, pairs)}


def _pair(pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, str) or len(pair) != 2:
        raise InvalidId(pair, "give pairs of an id and a body")
    id, body = pair
    return id, body
