"""The vector store: nodes with their embeddings, found by words and by meaning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import reduce
from operator import and_, methodcaller, or_
from typing import Any, Final

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.storage.docstore.utils import json_to_doc
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from ... import AsyncStore, F, Filter, InvalidOption, Path
from ..stores import PairedOwner
from ..vectors import VectorCollection, as_json, dimensions_of, has_words, packed, unpacked

PREFETCHED: Final = 4
"""How many times more nodes than wanted are candidates of "mmr", as in LlamaIndex's own integrations."""
MODE: Final = VectorStoreQueryMode
WORDS: Final = {MODE.TEXT_SEARCH, MODE.SPARSE}
FUSED: Final = {MODE.HYBRID, MODE.SEMANTIC_HYBRID}
OF_NODE: Final = {"doc_id", "document_id", "ref_doc_id"}
"""Keys of filters that LlamaIndex's stores have beside the metadata: the id of the node's document."""


class LlamaIndexVectorStore(PairedOwner, BasePydanticVectorStore):
    """A `BasePydanticVectorStore`: the nodes of a `VectorStoreIndex`, with their embeddings, a document each.

    `store` is an `AsyncStore`, or a URL with `options` of `AsyncStore`; `collection` has the nodes. `metric` is
    "cosine", "l2" or "dot": the similarity of a node is the cosine, the negative distance, or the dot product. All
    embeddings have the same number of dimensions. The database evaluates all filters. Requires numpy.

    >>> from llama_index.core.schema import TextNode
    >>> from llama_index.core.vector_stores.types import VectorStoreQuery
    >>> with LlamaIndexVectorStore("sqlite://") as nodes:
    ...     nodes.add([TextNode(text="Green tea", id_="1", embedding=[1.0, 0.5])])
    ...     nodes.query(VectorStoreQuery(query_embedding=[2.0, 1.0])).nodes[0].text
    ['1']
    'Green tea'
    """

    stores_text: bool = True
    _opened: VectorCollection = PrivateAttr()
    _definition: dict[str, Any] = PrivateAttr()

    def __init__(
        self,
        store: AsyncStore | str,
        *,
        collection: str = "llama_index_nodes",
        metric: str = "cosine",
        **options: Any,
    ) -> None:
        super().__init__(stores_text=True)
        keys = ("ref_doc_id",)
        self._opened = VectorCollection(
            store, collection, keys, options, text="text", metric=metric
        )
        self._definition = {"store": store, "collection": collection, "metric": metric, **options}

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the class."""
        return "LlamaIndexVectorStore"

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return the arguments of the constructor for `from_dict`, with the URL and its password. Raise `InvalidOption` if the
        store was given open.
        """
        store = self._definition["store"]
        if isinstance(store, AsyncStore):
            raise InvalidOption("store", "must be a URL: an open store cannot be written")
        return {**self._definition, "store": os.fspath(store), "class_name": self.class_name()}

    @property
    def client(self) -> AsyncStore:
        """The store."""
        return self._opened.store

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:  # noqa: ARG002
        """Write nodes with their embeddings, all or none; return the ids. A node of the same id is replaced. Raise `ValueError`
        for a node without an embedding, and `InvalidBody` for metadata without a JSON form.
        """
        bodies, dimensions = _bodies(nodes)
        if bodies:
            self._opened.ready(dimensions).put_many(bodies, atomic=True)
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:  # noqa: ARG002
        """Async counterpart of `add`."""
        bodies, dimensions = _bodies(nodes)
        if bodies:
            await (await self._opened.aready(dimensions)).put_many(bodies, atomic=True)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:  # noqa: ARG002
        """Delete the nodes of a document."""
        self._opened.sync.delete_many(_of_documents([ref_doc_id]))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:  # noqa: ARG002
        """Async counterpart of `delete`."""
        await self._opened.aio.delete_many(_of_documents([ref_doc_id]))

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes of ids that match filters, in the order of the first writes; without arguments, all nodes."""
        return [_node(each.body) for each in self._opened.sync.find(_filter(filters, node_ids))]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Async counterpart of `get_nodes`."""
        found = await self._opened.aio.find(_filter(filters, node_ids))
        return [_node(each.body) for each in found]

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Delete the nodes of ids that match filters. Raise `InvalidOption` without ids for no filters, or an empty group of
        filters: `clear` deletes all nodes.
        """
        self._opened.sync.delete_many(_deleted(filters, node_ids))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Async counterpart of `delete_nodes`."""
        await self._opened.aio.delete_many(_deleted(filters, node_ids))

    def clear(self) -> None:
        """Delete all nodes."""
        self._opened.sync.delete_many({})

    async def aclear(self) -> None:
        """Async counterpart of `clear`."""
        await self._opened.aio.delete_many({})

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the best nodes, best first, with their similarities.

        The mode "default" returns the nearest nodes. "text_search" and "sparse" return the nodes with any word of
        `query_str`: the similarity is a score of words. "hybrid" and "semantic_hybrid" fuse both rankings by their ranks. "mmr"
        returns near nodes that differ, of the `mmr_prefetch_k` nearest (by default 4 times as many as wanted), by
        `mmr_threshold` from 0 to 1.

        Raise `InvalidOption` for other modes, without an embedding, and for an `alpha` of a fusion that is not 0 (words
        alone), 0.5, 1 (meaning alone) or None.
        """
        search = _Search(query, kwargs)
        if search.call is None:
            return search.result(())
        found = self._opened.found(search.call, search.dimensions, words=search.words)
        return search.result(found)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Async counterpart of `query`."""
        search = _Search(query, kwargs)
        if search.call is None:
            return search.result(())
        found = await self._opened.afound(search.call, search.dimensions, words=search.words)
        return search.result(found)


class _Search:
    """A query as a call of a method of a collection; None if nothing can match."""

    def __init__(self, query: VectorStoreQuery, options: dict[str, Any]) -> None:
        mode = _mode(query)
        self._query, self._is_mmr = query, mode is MODE.MMR
        self._threshold = options.get("mmr_threshold", query.mmr_threshold)
        self.words, self.dimensions = mode in WORDS | FUSED, None
        ids = query.node_ids or None  # an index of a store of texts passes an empty list
        filter = _filter(query.filters, ids, query.doc_ids)
        self.call: Any = None
        if mode in WORDS:
            limit = query.sparse_top_k or query.similarity_top_k
            if has_words(query.query_str):
                arguments = {"filter": filter, "limit": limit, "match": "any"}
                self.call = methodcaller("search", query.query_str, **arguments)
            return
        if query.query_embedding is None:
            raise InvalidOption("query_embedding", f"must be given in the mode {mode.value!r}")
        vector = self._vector = query.query_embedding
        self.dimensions = len(vector)
        if mode in FUSED:
            limit = query.hybrid_top_k or query.similarity_top_k
            arguments = {"filter": filter, "limit": limit, "match": "any", "meaning": vector}
            self.call = methodcaller("search", query.query_str, index="embedding", **arguments)
            return
        most = query.similarity_top_k
        if self._is_mmr:
            most = options.get("mmr_prefetch_k", PREFETCHED * most)
        self.call = methodcaller("nearest", vector, most, filter=filter, index="embedding")

    def result(self, found: Any) -> VectorStoreQueryResult:
        """Return LlamaIndex's form of what the call returned."""
        results = {each.id: each for each in found}
        scores, ids = [each.score for each in results.values()], list(results)
        if self._is_mmr and results:
            vectors = [unpacked(each.body["embedding"]) for each in results.values()]
            most = self._query.similarity_top_k
            scores, ids = get_top_k_mmr_embeddings(
                self._vector,
                vectors,
                similarity_top_k=most,
                embedding_ids=ids,
                mmr_threshold=self._threshold,
            )
        nodes = [_node(results[id].body) for id in ids]
        return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=ids)


def _mode(query: VectorStoreQuery) -> VectorStoreQueryMode:
    """Return the mode of a query: one that a fusion with one ranking amounts to, or its own."""
    mode = MODE(query.mode)
    if mode not in {*WORDS, *FUSED, MODE.DEFAULT, MODE.MMR}:
        raise InvalidOption("mode", f"must be a search by words or by meaning, got {mode.value!r}")
    if mode not in FUSED:
        return mode
    if query.alpha not in {None, 0, 0.5, 1}:
        problem = f"must be 0, 0.5, 1 or None, got {query.alpha!r}: both rankings count alike"
        raise InvalidOption("alpha", problem)
    if query.alpha == 0:
        return MODE.TEXT_SEARCH
    return MODE.DEFAULT if query.alpha == 1 or not has_words(query.query_str) else mode


# -- filters ---------------------------------------------------------------------------------


def _of_documents(ids: Sequence[str]) -> Filter:
    return F("ref_doc_id").is_in(ids)


def _filter(
    filters: MetadataFilters | None,
    node_ids: Sequence[str] | None = None,
    doc_ids: Sequence[str] | None = None,
) -> Filter:
    """Return the filter of the nodes of ids and of documents that match filters."""
    found = Filter.parse({}) if filters is None else _joined(filters)
    if node_ids is not None:
        found &= F("$id").is_in(node_ids)
    return found if doc_ids is None else found & _of_documents(doc_ids)


def _deleted(filters: MetadataFilters | None, node_ids: Sequence[str] | None) -> Filter:
    if node_ids is None and (filters is None or _has_empty(filters)):
        problem = "must be given, or filters without an empty group: clear deletes all nodes"
        raise InvalidOption("node_ids", problem)
    return _filter(filters, node_ids)


def _has_empty(filters: MetadataFilters) -> bool:
    """Return whether filters, or a group in them, are empty: every node matches these."""
    groups = (each for each in filters.filters if isinstance(each, MetadataFilters))
    return not filters.filters or any(map(_has_empty, groups))


def _joined(filters: MetadataFilters) -> Filter:
    parts = [
        _joined(each) if isinstance(each, MetadataFilters) else _condition(each)
        for each in filters.filters
    ]
    if not parts:
        return Filter.parse({})
    if filters.condition is FilterCondition.NOT:  # no part matches
        return ~reduce(or_, parts)
    return reduce(or_ if filters.condition is FilterCondition.OR else and_, parts)


def _condition(filter: MetadataFilter) -> Filter:
    key, value = filter.key, filter.value
    field = F("ref_doc_id") if key in OF_NODE else F(Path("metadata", key))
    if filter.operator is FilterOperator.IS_EMPTY:
        is_absent = field.is_in([None, ""]) & ~field.has_type("array")
        return is_absent | field.has_size(0)
    return _CONDITIONS[filter.operator](field, value)


def _has_each(field: Any, values: Any) -> Filter:
    return reduce(and_, [_has_element(field, [each]) for each in values], field.has_type("array"))


def _has_element(field: Any, values: Any) -> Filter:
    return Filter.parse({field: {"$elemMatch": {"$in": values}}})


_CONDITIONS: Final[dict[FilterOperator, Any]] = {
    FilterOperator.EQ: lambda field, value: field == value,
    FilterOperator.NE: lambda field, value: field != value,
    FilterOperator.GT: lambda field, value: field > value,
    FilterOperator.GTE: lambda field, value: field >= value,
    FilterOperator.LT: lambda field, value: field < value,
    FilterOperator.LTE: lambda field, value: field <= value,
    FilterOperator.IN: lambda field, value: field.is_in(value),
    FilterOperator.NIN: lambda field, value: field.not_in(value),
    FilterOperator.ANY: _has_element,
    FilterOperator.ALL: _has_each,
    FilterOperator.CONTAINS: lambda field, value: _has_element(field, [value]),
    FilterOperator.TEXT_MATCH: lambda field, value: field.has(value),
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda field, value: field.has(value, ignore_case=True),
}


# -- nodes -----------------------------------------------------------------------------------


def _bodies(nodes: Sequence[BaseNode]) -> tuple[dict[str, Any], int | None]:
    """Return the bodies of nodes by id, and the dimensions of their embeddings."""
    dimensions = dimensions_of(node.get_embedding() for node in nodes)
    return {node.node_id: _body(node) for node in nodes}, dimensions


def _body(node: BaseNode) -> dict[str, Any]:
    form = {"__type__": node.get_type(), "__data__": node.to_dict(mode="json")}  # as in a docstore
    record = as_json("node", form)
    data = record["__data__"]
    del data["embedding"], data["metadata"]  # where NaN is null
    return {
        "text": data.pop("text", None) or node.get_content(metadata_mode=MetadataMode.NONE),
        "metadata": as_json("metadata", node.metadata),
        "ref_doc_id": node.ref_doc_id,
        "embedding": packed(node.get_embedding()),
        "node": record,
    }


def _node(body: dict[str, Any]) -> BaseNode:
    data = {**body["node"]["__data__"], "metadata": body["metadata"]}
    if "text_resource" not in data:  # else the text is there, too
        data["text"] = body["text"]
    return json_to_doc({**body["node"], "__data__": data})
