"""mem0: the vector store of a `Memory`, in collections of a store.

Begin at `memory_config`. mem0 makes a `CollectionsVectorStore` for memories, and another for entities in their texts.

Requires mem0: `pip install 'collections-store[mem0]'`.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from math import isfinite
from operator import and_, or_
from typing import Any, Final, TypeAlias
from uuid import uuid4

from .. import CollectionExists, F, Filter, InvalidFilter, InvalidOption, MissingExtra, Path, Store
from .words import any_word

try:
    from mem0.configs.base import MemoryConfig
    from mem0.utils.factory import VectorStoreFactory
    from mem0.vector_stores.base import VectorStoreBase
    from mem0.vector_stores.configs import VectorStoreConfig
except ImportError as error:
    raise MissingExtra("mem0ai", "mem0") from error

PROVIDER: Final = "collections_store"
Filters: TypeAlias = Mapping[str, Any] | None


@dataclass
class _Settings:
    """The arguments of `CollectionsVectorStore`, with what mem0 asks of the settings of a vector store."""

    store: Store
    dimensions: int
    collection_name: str

    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self))

    def __deepcopy__(self, memo: Any) -> _Settings:
        return replace(self)  # of the same store


def memory_config(
    store: Store, *, dimensions: int, collection_name: str = "mem0", **options: Any
) -> MemoryConfig:
    """Return the configuration of a mem0 `Memory` or `AsyncMemory` whose memories are in a store.

    `dimensions`: the length of the vectors of the embedder. `options` are those of mem0's `MemoryConfig` and
    `Memory.from_config`: `llm`, `embedder`, `history_db_path`, … The entities are in a second collection,
    `<collection_name>_entities`.

    >>> from collections_store import Store
    >>> with Store("sqlite://") as store:
    ...     memory_config(store, dimensions=1536, llm={"provider": "openai"}).vector_store.provider
    'collections_store'
    """
    config = MemoryConfig(**options)
    # set afterwards: mem0's check of the value, as of from_config, passes only the providers of its own list
    settings = _Settings(store, dimensions, collection_name)
    config.vector_store = VectorStoreConfig.model_construct(provider=PROVIDER, config=settings)
    return config


VectorStoreFactory.provider_to_class[PROVIDER] = f"{__name__}.CollectionsVectorStore"


@dataclass(slots=True)
class Found:
    """A memory: the id, the payload, and the score of a search."""

    id: str
    payload: dict[str, Any]
    score: float | None = None


Rows: TypeAlias = list[Found]


class CollectionsVectorStore(VectorStoreBase):
    """The memories of a mem0 `Memory`, a document for each memory: mem0's `VectorStoreBase`.

    `store` is a `Store`, which stays open. The constructor creates the collection `collection_name` with its indexes:
    over vectors of `dimensions` numbers, over words, and over the ids of users, agents and runs. All filters run in
    the database. Filters have the operators of mem0, on values of the same type: 1 does not equal "1". Raise
    `InvalidOption`, `InvalidFilter`, and `IndexExists` for a collection with vectors of other dimensions.

    >>> from collections_store import Store
    >>> with Store("sqlite://") as store:
    ...     memories = CollectionsVectorStore(store, 2)
    ...     memories.insert([[1, 0], [0, 1]], [{"data": "tea"}, {"data": "ice"}], ["1", "2"])
    ...     [found] = memories.search("a hot drink", [2, 1], top_k=1, filters={"data": {"ne": "ice"}})
    ...     found.payload, round(found.score, 3)
    ({'data': 'tea'}, 0.894)
    """

    def __init__(self, store: Store, dimensions: int, collection_name: str = "mem0") -> None:
        if not isinstance(store, Store):
            raise InvalidOption("store", f"must be a Store, got {type(store).__name__}")
        self._store = store
        self.create_col(collection_name, dimensions)

    def create_col(self, name: str, vector_size: int, distance: str = "cosine") -> None:
        """Create a collection with its indexes, unless the collection exists, and use it from now on."""
        if distance != "cosine":
            raise InvalidOption("distance", f'must be "cosine", got {distance!r}')
        with suppress(CollectionExists):
            self._store.create_collection(name, body_index=False)
        self.collection_name, self.dimensions = name, vector_size
        self._collection = self._store[name]
        self._collection.create_vector_index("vector", dimensions=vector_size)
        self._collection.create_text_index("payload.text_lemmatized")
        for scope in ("user_id", "agent_id", "run_id"):
            self._collection.create_index(f"payload.{scope}")

    def insert(
        self,
        vectors: Sequence[Sequence[float]],
        payloads: Sequence[Mapping[str, Any]] | None = None,
        ids: Iterable[Any] | None = None,
    ) -> None:
        """Insert memories, all or none; a memory replaces a memory of the same id. By default the ids are new UUIDs."""
        names = [str(uuid4()) for _ in vectors] if ids is None else map(str, ids)
        rows = zip(vectors, payloads or [{} for _ in vectors], strict=True)
        bodies = [{"vector": self._packed(row[0]), "payload": dict(row[1])} for row in rows]
        self._collection.put_many(dict(zip(names, bodies, strict=True)), atomic=True)

    def search(
        self,
        query: str,  # noqa: ARG002
        vectors: Sequence[float],
        top_k: int = 5,
        filters: Filters = None,
    ) -> Rows:
        """Return the `top_k` memories that pass the filters with the vectors nearest to `vectors`, the best first; none
        for a vector of zeros. The score is from 0 to 1: the cosine of the angle, or 0 for an angle above 90°.
        """
        if not any(vectors):
            return []
        found = self._collection.nearest(list(vectors), top_k, filter=_filter(filters))
        return [Found(each.id, each.body["payload"], max(0.0, each.score)) for each in found]

    def keyword_search(self, query: str, top_k: int = 5, filters: Filters = None) -> Rows:
        """Return the `top_k` memories that pass the filters with words of a text, the best first. The score is the
        score of `Collection.search`.
        """
        if not (words := any_word(query)):
            return []
        found = self._collection.search(words, filter=_filter(filters), limit=top_k)
        return [Found(each.id, each.body["payload"], each.score) for each in found]

    def delete(self, vector_id: Any) -> None:
        """Delete a memory, if it exists."""
        self._collection.remove(str(vector_id))

    def update(
        self,
        vector_id: Any,
        vector: Sequence[float] | None = None,
        payload: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the vector, the payload, or both, of a memory that exists."""
        changes: dict[str, Any] = {} if payload is None else {"payload": dict(payload)}
        if vector is not None:
            changes["vector"] = self._packed(vector)
        if changes:
            self._collection.update_one({"$id": str(vector_id)}, {"$set": changes})

    def get(self, vector_id: Any) -> Found | None:
        """Return a memory, or None."""
        body = self._collection.get(str(vector_id))
        return None if body is None else Found(str(vector_id), body["payload"])

    def list(self, filters: Filters = None, top_k: int | None = None) -> Sequence[Rows]:
        """Return the memories that pass the filters, in the order of insertion: up to `top_k` (None: all), in a list of
        one list, as mem0 reads it.
        """
        parts = ["payload"]
        found = self._collection.find(_filter(filters), sort=[], limit=top_k, projection=parts)
        return [[Found(each.id, each.body["payload"]) for each in found]]

    def list_cols(self) -> Sequence[str]:
        """Return the names of the collections of the store."""
        return [each.name for each in self._store.collections()]

    def delete_col(self) -> None:
        """Delete the collection with its memories."""
        self._store.drop(self.collection_name)

    def col_info(self) -> dict[str, Any]:
        """Return the name of the collection, and the count of its memories."""
        return {"name": self.collection_name, "count": self._collection.count()}

    def reset(self) -> None:
        """Delete all memories, and create the collection again."""
        self.delete_col()
        self.create_col(self.collection_name, self.dimensions)

    def _packed(self, vector: Sequence[float]) -> str:
        """Return a vector as 32-bit floats in base64, which take a third of the space of JSON's numbers."""
        with suppress(OverflowError, TypeError, struct.error):
            if len(vector) == self.dimensions and all(map(isfinite, vector)):
                return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
        problem = f"each must have {self.dimensions} finite numbers of 32 bits, got {len(vector)}"
        raise InvalidOption("vectors", problem)


_TESTS: Final[dict[str, Callable[[Any, Any], Filter]]] = {
    "eq": lambda field, value: field == value,
    "ne": lambda field, value: field.exists() & (field != value),
    "gt": lambda field, value: field > value,
    "gte": lambda field, value: field >= value,
    "lt": lambda field, value: field < value,
    "lte": lambda field, value: field <= value,
    "in": lambda field, value: field.is_in(value),
    "nin": lambda field, value: field.exists() & field.not_in(value),
    "contains": lambda field, value: field.has(value),
    "icontains": lambda field, value: field.has(value, ignore_case=True),
}


def _filter(filters: Filters) -> Filter:
    """Return the filter of the database for filters of mem0; raises `InvalidFilter`."""
    return _all_of("", filters) if filters else Filter.parse({})


def _all_of(place: str, filters: Any) -> Filter:
    if not isinstance(filters, Mapping) or not filters:
        raise InvalidFilter(place, f"must be a dict with a condition, got {filters!r}")
    return reduce(and_, (_test(key, value) for key, value in filters.items()))


def _test(key: str, value: Any) -> Filter:
    if key in {"AND", "OR", "NOT", "$and", "$or", "$not"}:
        if not isinstance(value, list) or not value:
            raise InvalidFilter(key, "must be a list of filters, with one at least")
        parts = (_all_of(key, each) for each in value)
        joined = reduce(and_ if key in {"AND", "$and"} else or_, parts)
        return ~joined if key in {"NOT", "$not"} else joined
    field = F(Path("payload", key))
    if isinstance(value, Mapping):
        if unknown := value.keys() - _TESTS.keys():
            problem = f"operators must be of {', '.join(_TESTS)}, got {unknown.pop()!r}"
            raise InvalidFilter(key, problem)
        if not value:
            raise InvalidFilter(key, "must be a value, or a dict with an operator, got {}")
        return reduce(and_, (_TESTS[operator](field, each) for operator, each in value.items()))
    if isinstance(value, list):
        return field.is_in(value)
    return field.exists() if value == "*" else field == value
