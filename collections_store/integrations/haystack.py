"""Haystack: a document store, and retrievers by words and by meaning, in a collection of a store.

Methods come in pairs, sync and async, on the same object and the same store, from any thread and any event loop: the
name of an async method ends with `_async`. A sync method blocks the event loop of its caller.

Requires haystack-ai: `pip install 'collections-store[haystack]'`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from operator import and_, methodcaller, or_
from typing import Any, Final, Self, TypeAlias

from .. import AsyncStore, DuplicateKey, F, Filter, InvalidOption, MissingExtra, Path
from .stores import PairedOwner
from .vectors import VectorCollection, as_json, dimensions_of, has_words, packed

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
    from haystack.errors import FilterError
    from haystack.utils import Secret
except ImportError as error:
    raise MissingExtra("haystack-ai", "haystack") from error

MODES: Final[dict[Any, Any]] = {
    DuplicatePolicy.OVERWRITE: "replace",
    DuplicatePolicy.SKIP: "ignore",
}
"""The modes of `put_many`; for other policies, "insert"."""
Filters: TypeAlias = dict[str, Any] | None
FIELDS: Final = {"blob", "content", "embedding", "meta", "sparse_embedding"}
"""The fields of a document in the body."""


class CollectionsDocumentStore(PairedOwner):
    """A `DocumentStore`: Haystack's documents, a document each.

    `store` is an `AsyncStore`, or a URL or a `Secret` of a URL, with `options` of `AsyncStore`; `collection` has the
    documents. `metric` is "cosine", "l2" or "dot": the score of `embedding_retrieval` is the cosine, the negative
    distance, or the dot product. All embeddings have the same number of dimensions. The database evaluates all filters.

    Raise `FilterError` for filters that Haystack forbids, and `InvalidBody` for metadata without a JSON form.

    >>> from haystack import Document
    >>> with CollectionsDocumentStore("sqlite://") as documents:
    ...     documents.write_documents([Document(content="Green tea", meta={"year": 1990})])
    ...     old = {"field": "meta.year", "operator": "<", "value": 2000}
    ...     [each.content for each in documents.filter_documents(old)]
    1
    ['Green tea']
    """

    _opened: VectorCollection

    def __init__(
        self,
        store: AsyncStore | Secret | str,
        *,
        collection: str = "haystack_documents",
        metric: str = "cosine",
        **options: Any,
    ) -> None:
        given: Any = store.resolve_value() if isinstance(store, Secret) else store
        text = "content"
        self._opened = VectorCollection(given, collection, (), options, text=text, metric=metric)
        self._definition = {"store": store, "collection": collection, "metric": metric, **options}

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of the constructor for `from_dict`: a URL with its password, a `Secret` as the name of its
        variable. Raise `InvalidOption` if the store was given open.
        """
        store = self._definition["store"]
        if isinstance(store, AsyncStore):
            raise InvalidOption("store", "must be a URL or a Secret: an open store is not written")
        given = store if isinstance(store, Secret) else os.fspath(store)
        return default_to_dict(self, **{**self._definition, "store": given})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Open the store that `to_dict` describes."""
        return default_from_dict(cls, data)

    def count_documents(self) -> int:
        """Return the number of documents."""
        return self._opened.sync.count()

    async def count_documents_async(self) -> int:
        """Async counterpart of `count_documents`."""
        return await self._opened.aio.count()

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Return the number of documents that match filters."""
        return self._opened.sync.count(_filter(filters))

    async def count_documents_by_filter_async(self, filters: dict[str, Any]) -> int:
        """Async counterpart of `count_documents_by_filter`."""
        return await self._opened.aio.count(_filter(filters))

    def filter_documents(self, filters: Filters = None) -> list[Document]:
        """Return the documents that match filters, in the order of the first writes; without filters, all documents."""
        return [_document(each) for each in self._opened.sync.find(_filter(filters), sort=[])]

    async def filter_documents_async(self, filters: Filters = None) -> list[Document]:
        """Async counterpart of `filter_documents`."""
        return [_document(each) for each in await self._opened.aio.find(_filter(filters), sort=[])]

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Write documents, all or none; return the number of written documents. For an existing id raise
        `DuplicateDocumentError`, or replace (`OVERWRITE`) or keep (`SKIP`) the stored document. `NONE` is `FAIL`.
        """
        pairs, dimensions = _pairs(documents)
        collection, mode = self._opened.ready(dimensions), MODES.get(policy, "insert")
        try:
            written = collection.put_many(pairs, mode=mode, atomic=True)
        except DuplicateKey as error:
            raise DuplicateDocumentError(str(error)) from error
        return len(pairs) - written.unchanged_count

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Async counterpart of `write_documents`."""
        pairs, dimensions = _pairs(documents)
        collection, mode = await self._opened.aready(dimensions), MODES.get(policy, "insert")
        try:
            written = await collection.put_many(pairs, mode=mode, atomic=True)
        except DuplicateKey as error:
            raise DuplicateDocumentError(str(error)) from error
        return len(pairs) - written.unchanged_count

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete the documents of ids."""
        self._opened.sync.remove_many(document_ids)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """Async counterpart of `delete_documents`."""
        await self._opened.aio.remove_many(document_ids)

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self._opened.sync.delete_many({})

    async def delete_all_documents_async(self) -> None:
        """Async counterpart of `delete_all_documents`."""
        await self._opened.aio.delete_many({})

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that match filters; return the number of deleted documents."""
        return self._opened.sync.delete_many(_filter(filters)).deleted_count

    async def delete_by_filter_async(self, filters: dict[str, Any]) -> int:
        """Async counterpart of `delete_by_filter`."""
        return (await self._opened.aio.delete_many(_filter(filters))).deleted_count

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set fields of the metadata in the documents that match filters; return the number of these documents."""
        return self._opened.sync.update_many(_filter(filters), _update(meta)).matched_count

    async def update_by_filter_async(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Async counterpart of `update_by_filter`."""
        updated = await self._opened.aio.update_many(_filter(filters), _update(meta))
        return updated.matched_count

    def embedding_retrieval(
        self, query_embedding: list[float], filters: Filters = None, top_k: int = 10
    ) -> list[Document]:
        """Return the documents nearest to a vector, best first, with their scores."""
        search = _near(query_embedding, filters, top_k)
        found = self._opened.found(search, len(query_embedding))
        return [_document(each, each.score) for each in found]

    async def embedding_retrieval_async(
        self, query_embedding: list[float], filters: Filters = None, top_k: int = 10
    ) -> list[Document]:
        """Async counterpart of `embedding_retrieval`."""
        search = _near(query_embedding, filters, top_k)
        found = await self._opened.afound(search, len(query_embedding))
        return [_document(each, each.score) for each in found]

    def keyword_retrieval(
        self, query: str, filters: Filters = None, top_k: int = 10
    ) -> list[Document]:
        """Return the documents with any word of a text, best first, with their scores."""
        search = _with_words(query, filters, top_k)
        found = self._opened.found(search, words=True) if has_words(query) else ()
        return [_document(each, each.score) for each in found]

    async def keyword_retrieval_async(
        self, query: str, filters: Filters = None, top_k: int = 10
    ) -> list[Document]:
        """Async counterpart of `keyword_retrieval`."""
        search = _with_words(query, filters, top_k)
        found = await self._opened.afound(search, words=True) if has_words(query) else ()
        return [_document(each, each.score) for each in found]


def _near(vector: list[float], filters: Filters, top_k: int) -> Callable[[Any], Any]:
    return methodcaller("nearest", vector, top_k, filter=_filter(filters), index="embedding")


def _with_words(query: str, filters: Filters, top_k: int) -> Callable[[Any], Any]:
    return methodcaller("search", query, filter=_filter(filters), limit=top_k, match="any")


class _Retriever:
    """Base class of the retrievers: their arguments, and how filters of a run combine with these."""

    def __init__(
        self,
        document_store: CollectionsDocumentStore,
        filters: Filters = None,
        top_k: int = 10,
        filter_policy: FilterPolicy | str = FilterPolicy.REPLACE,
    ) -> None:
        self.document_store, self.filters, self.top_k = document_store, filters, top_k
        self.filter_policy = FilterPolicy.from_str(str(filter_policy))

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of the constructor for `from_dict`."""
        policy = str(self.filter_policy)
        arguments = {"filters": self.filters, "top_k": self.top_k, "filter_policy": policy}
        return default_to_dict(self, document_store=self.document_store, **arguments)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the component that `to_dict` describes."""
        return default_from_dict(cls, data)

    def _limits(self, filters: Filters, top_k: int | None) -> dict[str, Any]:
        found = apply_filter_policy(self.filter_policy, self.filters, filters)
        return {"filters": found, "top_k": self.top_k if top_k is None else top_k}


@component
class CollectionsEmbeddingRetriever(_Retriever):
    """A component that returns the documents nearest to a vector: `embedding_retrieval` of the store.

    `filters` of a run replace the filters of the component, or, with the `filter_policy` "merge", are merged with these.

    >>> from haystack import Document
    >>> with CollectionsDocumentStore("sqlite://") as documents:
    ...     count = documents.write_documents([Document(content="Green tea", embedding=[1.0, 0.5])])
    ...     found = CollectionsEmbeddingRetriever(documents).run(query_embedding=[1.0, 0.0])
    >>> [each.content for each in found["documents"]]
    ['Green tea']
    """

    @component.output_types(documents=list[Document])
    def run(
        self, query_embedding: list[float], filters: Filters = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """Return the documents under `documents`, best first."""
        limits = self._limits(filters, top_k)
        return {"documents": self.document_store.embedding_retrieval(query_embedding, **limits)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query_embedding: list[float], filters: Filters = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """Async counterpart of `run`."""
        find = self.document_store.embedding_retrieval_async
        return {"documents": await find(query_embedding, **self._limits(filters, top_k))}


@component
class CollectionsKeywordRetriever(_Retriever):
    """A component that returns the documents with any word of a text: `keyword_retrieval` of the store.

    The arguments are those of `CollectionsEmbeddingRetriever`.

    >>> from haystack import Document
    >>> with CollectionsDocumentStore("sqlite://") as documents:
    ...     count = documents.write_documents([Document(content="Green tea"), Document(content="Rain")])
    ...     found = CollectionsKeywordRetriever(documents).run(query="Is there tea?")
    >>> [each.content for each in found["documents"]]
    ['Green tea']
    """

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: Filters = None, top_k: int | None = None) -> dict[str, Any]:
        """Return the documents under `documents`, best first."""
        limits = self._limits(filters, top_k)
        return {"documents": self.document_store.keyword_retrieval(query, **limits)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: Filters = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """Async counterpart of `run`."""
        find = self.document_store.keyword_retrieval_async
        return {"documents": await find(query, **self._limits(filters, top_k))}


# -- documents -------------------------------------------------------------------------------


def _pairs(documents: Any) -> tuple[list[tuple[str, Any]], int | None]:
    """Return the ids and bodies of documents, and the dimensions of their embeddings."""
    is_listed = isinstance(documents, Iterable) and not isinstance(documents, str | Mapping)
    given = list(documents) if is_listed else [documents]
    for each in given:
        if not isinstance(each, Document) or not is_listed:
            raise InvalidOption("documents", f"must be a list of documents, got {each!r}")
    vectors = [each.embedding for each in given if each.embedding is not None]
    for each in vectors:
        packed(each)  # raises for a vector that no search could find
    return [(each.id, _body(each)) for each in given], dimensions_of(vectors)


def _body(document: Document) -> dict[str, Any]:
    record = document.to_dict(flatten=False)
    return {name: as_json(name, record[name]) for name in sorted(FIELDS)}


def _document(found: Any, score: float | None = None) -> Document:
    return Document.from_dict({**found.body, "id": found.id, "score": score})


def _update(meta: dict[str, Any]) -> dict[str, Any]:
    return {"$set": {Path("meta", key): as_json("meta", value) for key, value in meta.items()}}


# -- filters ---------------------------------------------------------------------------------

NOTHING: Final = ~Filter.parse({})


def _filter(filters: Filters) -> Filter:
    """Return a filter of Haystack as a filter; raise `FilterError`."""
    return _condition(filters) if filters else Filter.parse({})


def _condition(filters: Any) -> Filter:
    if not isinstance(filters, Mapping):
        raise FilterError(f"a filter must be a dict, got {filters!r}")
    if "field" in filters:
        return _comparison(filters)
    operator, conditions = _required(filters, "operator"), _required(filters, "conditions")
    if not conditions or not isinstance(conditions, list):
        raise FilterError(f"conditions must be a list with a condition, got {conditions!r}")
    parts = [_condition(each) for each in conditions]
    if operator == "OR":
        return reduce(or_, parts)
    if not isinstance(operator, str) or operator not in {"AND", "NOT"}:
        raise FilterError(f"operator must be 'AND', 'OR' or 'NOT', got {operator!r}")
    both = reduce(and_, parts)
    return both if operator == "AND" else ~both


def _required(filters: Mapping[str, Any], key: str) -> Any:
    if key not in filters:
        raise FilterError(f"{key!r} is missing in {filters}")
    return filters[key]


def _comparison(filters: Mapping[str, Any]) -> Filter:
    name, operator, value = (_required(filters, key) for key in ("field", "operator", "value"))
    if not isinstance(name, str):
        raise FilterError(f"field must be a string, got {name!r}")
    first, *rest = name.split(".")
    if not rest and name not in FIELDS | {"id"}:
        first, rest = "meta", [name]
    field = F("$id") if name == "id" else F(Path(first, *rest))
    if not isinstance(operator, str) or operator not in _COMPARISONS:
        known = ", ".join(map(repr, _COMPARISONS))
        raise FilterError(f"operator must be one of {known}, got {operator!r}")
    return _COMPARISONS[operator](field, value)


def _ordered(compare: Callable[[Any, Any], Filter]) -> Callable[[Any, Any], Filter]:
    def condition(field: Any, value: Any) -> Filter:
        if value is None:
            return NOTHING
        return compare(field, _orderable(value))

    return condition


def _orderable(value: Any) -> Any:
    """Return a number, or the text of a time; raise `FilterError` for other values."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        problem = f"must be a number, a datetime or a time in ISO 8601, got {value!r}"
        raise FilterError(f"the value of '>', '>=', '<' and '<=' {problem}") from None
    return value


def _listed(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise FilterError(f"the value of 'in' and 'not in' must be a list, got {value!r}")
    return value


_COMPARISONS: Final[dict[str, Callable[[Any, Any], Filter]]] = {
    "==": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    ">": _ordered(lambda field, value: field > value),
    ">=": _ordered(lambda field, value: field >= value),
    "<": _ordered(lambda field, value: field < value),
    "<=": _ordered(lambda field, value: field <= value),
    "in": lambda field, value: field.is_in(_listed(value)),
    "not in": lambda field, value: field.not_in(_listed(value)),
}
