"""LlamaIndex's vector store on our stores, also below `VectorStoreIndex`.

`test_llama_index.py` runs these tests.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from backends import Backend
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from collections_store import (
    AsyncStore,
    IndexExists,
    InvalidBody,
    InvalidFilter,
    InvalidIndex,
    InvalidOption,
    Store,
)
from collections_store.integrations.llama_index import LlamaIndexVectorStore

MODE = VectorStoreQueryMode
TEXTS = {
    "tea": ("Green tea with milk.", [1.0, 0.0, 0.1]),
    "chai": ("Black tea, with spices!", [0.95, 0.05, 0.1]),
    "rain": ("Bring an umbrella.", [0.0, 1.0, 0.1]),
    "train": ("The train to Berlin.", [0.1, 0.1, 1.0]),
}
METADATA: dict[str, dict[str, Any]] = {
    "tea": {"kind": "drink", "n": 1, "tags": ["hot", "green"], "a.b": 1, "$or": "x"},
    "chai": {"kind": "drink", "n": 2.5, "tags": ["hot"], "note": ""},
    "rain": {"kind": "Weather", "n": -3, "tags": []},
    "train": {"n": 10, "note": None, "title": "50%_\\ off"},
}


class Calls:
    """Calls the sync methods of a vector store, or, in a new event loop each, the async ones."""

    def __init__(self, way: str, nodes: LlamaIndexVectorStore) -> None:
        self._way, self._nodes = way, nodes

    def __getattr__(self, name: str) -> Any:
        if self._way == "sync":
            return getattr(self._nodes, name)
        method = getattr(self._nodes, "async_add" if name == "add" else f"a{name}")
        return lambda *arguments, **options: asyncio.run(method(*arguments, **options))


@pytest.fixture(params=["sync", "async"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(backend: Backend) -> Iterator[AsyncStore]:
    store = AsyncStore(backend.url, **backend.options)
    yield store
    asyncio.run(store.aclose())


@pytest.fixture
def nodes(store: AsyncStore, way: str) -> Any:
    return Calls(way, LlamaIndexVectorStore(store))


def node(name: str, document: str | None = None, **options: Any) -> TextNode:
    text, embedding = TEXTS[name]
    made = TextNode(text=text, id_=name, embedding=embedding, metadata=METADATA[name], **options)
    if document is not None:
        made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    return made


def filled(nodes: Any) -> Any:
    added = nodes.add([node("tea", "drinks"), node("chai", "drinks"), node("rain"), node("train")])
    assert added == list(TEXTS)
    return nodes


def query(embedding: list[float] | None = None, k: int = 4, **options: Any) -> VectorStoreQuery:
    return VectorStoreQuery(query_embedding=embedding, similarity_top_k=k, **options)


def filters(*given: Any, condition: str = "and") -> MetadataFilters:
    parts = [
        each if isinstance(each, MetadataFilters) else MetadataFilter(key=each[0], operator=each[1], value=each[2])
        for each in given
    ]  # fmt: skip
    return MetadataFilters(filters=parts, condition=FilterCondition(condition))


# -- nodes -----------------------------------------------------------------------------------


def without_embedding(each: BaseNode) -> dict[str, Any]:
    return {**each.to_dict(mode="json"), "embedding": None}


def test_every_kind_of_node_is_restored(nodes: Any) -> None:
    vector = [1.0, 2.0]
    given: list[BaseNode] = [
        TextNode(text="plain", id_="1", embedding=vector, metadata={"a": {"b": [1, None]}, "c": True},
                 start_char_idx=3, excluded_llm_metadata_keys=["c"],
                 relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d", hash="h")}),
        TextNode(text="", id_="empty", embedding=vector),
        Document(text="a document", id_="2", embedding=vector, metadata={"x": 1}),
        Node(id_="3", embedding=vector),
        ImageNode(text="seen", id_="4", embedding=vector, image="aGk=", image_mimetype="image/png"),
        IndexNode(text="points", id_="5", embedding=vector, index_id="i", obj=TextNode(text="deep", id_="6")),
    ]  # fmt: skip
    nodes.add(given)
    found = nodes.get_nodes([each.node_id for each in given])
    assert list(map(type, found)) == list(map(type, given))
    assert list(map(without_embedding, found)) == list(map(without_embedding, given))
    assert found[5].obj.text == "deep"
    [best] = nodes.query(query(vector, k=1, node_ids=["2"])).nodes
    assert best.text == "a document"


def test_a_node_is_replaced(nodes: Any) -> None:
    filled(nodes).add([TextNode(text="Cold tea", id_="tea", embedding=[0.0, 0.0, 1.0])])
    assert [each.text for each in nodes.get_nodes(["tea"])] == ["Cold tea"]
    assert nodes.query(query([1.0, 0.0, 0.0], k=1)).ids == ["chai"]
    assert nodes.query(query(query_str="green", mode=MODE.TEXT_SEARCH)).ids == []


def test_what_cannot_be_stored_is_refused_with_all_of_its_call(nodes: Any) -> None:
    filled(nodes)
    good = TextNode(text="new", id_="new", embedding=[1.0, 0.0, 0.0])
    for bad, problem in (
        (TextNode(text="x"), (ValueError, "embedding not set")),
        (TextNode(text="x", embedding=[1.0, 2.0]), (InvalidOption, "dimensions, got 2 and 3")),
        (TextNode(text="x", embedding=[1.0, 1e39, 0.0]), (InvalidOption, "finite numbers")),
        (TextNode(text="a\0b", embedding=[1.0] * 3), (InvalidBody, "at 'text': holds a NUL")),
        (TextNode(text="x", embedding=[1.0] * 3, metadata={"n": float("nan")}), (InvalidBody, "metadata.n")),
    ):  # fmt: skip
        with pytest.raises(problem[0], match=problem[1]):
            nodes.add([good, bad])
    assert len(nodes.get_nodes()) == len(TEXTS)
    assert nodes.add([]) == []


def test_nodes_are_deleted_by_document_id_and_filter(nodes: Any) -> None:
    filled(nodes).delete("drinks")
    nodes.delete("none")
    assert [each.node_id for each in nodes.get_nodes()] == ["rain", "train"]
    nodes.delete_nodes(["rain", "train"], filters(("n", "<", 0)))
    assert [each.node_id for each in nodes.get_nodes()] == ["train"]
    empty = MetadataFilters(filters=[])
    group = MetadataFilters(
        filters=[*filters(("n", "<", 0)).filters, empty], condition=FilterCondition.OR
    )
    for nothing in (None, empty, MetadataFilters(filters=[empty]), group):
        with pytest.raises(InvalidOption, match="clear deletes all"):
            nodes.delete_nodes(filters=nothing)
    filled(nodes).delete_nodes(["tea"])
    assert [each.node_id for each in nodes.get_nodes()] == ["train", "chai", "rain"]
    nodes.clear()
    assert nodes.get_nodes() == []
    assert nodes.query(query([1.0, 0.0, 0.0])).ids == []


def test_no_deletion_of_a_document_scans_the_nodes(store: AsyncStore, nodes: Any) -> None:
    filled(nodes)
    collection = store.get_sync_collection("llama_index_nodes")
    assert not collection.explain({"ref_doc_id": {"$in": ["drinks"]}}).scans


# -- queries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [MODE.DEFAULT, MODE.MMR])
def test_similarities_are_those_of_simple_vector_store(nodes: Any, mode: Any) -> None:
    filled(nodes)
    simple = SimpleVectorStore()
    simple.add([node(name) for name in TEXTS])
    for vector in ([1.0, 0.2, 0.0], [0.0, 0.5, 2.0]):
        for k in (1, 3, 9):
            asked = query(vector, k=k, mode=mode)
            ours, theirs = (
                nodes.query(asked, mmr_threshold=0.3),
                simple.query(asked, mmr_threshold=0.3),
            )
            assert ours.ids == theirs.ids
            assert ours.similarities == pytest.approx(theirs.similarities, abs=1e-6)
            assert [each.node_id for each in ours.nodes] == ours.ids


def test_mmr_chooses_among_the_prefetched(nodes: Any) -> None:
    filled(nodes)
    asked = query([1.0, 0.0, 0.0], k=2, mode=MODE.MMR, mmr_threshold=0.4)
    assert nodes.query(asked).ids != ["tea", "chai"]
    assert nodes.query(asked, mmr_prefetch_k=2).ids == ["tea", "chai"]
    vectors = [each for _, each in TEXTS.values()]
    best = get_top_k_mmr_embeddings([1.0, 0.0, 0.0], vectors, similarity_top_k=2, embedding_ids=list(TEXTS), mmr_threshold=0.4)[1]  # fmt: skip
    assert nodes.query(asked).ids == best
    nodes.clear()
    assert nodes.query(asked).ids == []


@pytest.mark.parametrize("mode", [MODE.TEXT_SEARCH, MODE.SPARSE])
def test_words_of_a_question_find_nodes_with_any(nodes: Any, mode: Any) -> None:
    filled(nodes)

    def ask(text: str | None, **options: Any) -> list[str]:
        found = nodes.query(query(query_str=text, mode=mode, **options))
        assert sorted(found.similarities, reverse=True) == found.similarities
        return list(found.ids)

    assert ask("Is there GREEN tea -milk?") == ["tea", "chai"]
    assert ask("tea", k=1) == ask("tea", sparse_top_k=1)[:1]
    assert ask("tea", filters=filters(("n", ">", 2))) == ["chai"]
    assert ask('Berlin OR "') == ["train"]
    for nothing in ("coffee", "?!", "", None):
        assert ask(nothing) == []


@pytest.mark.parametrize("mode", [MODE.HYBRID, MODE.SEMANTIC_HYBRID])
def test_words_and_meaning_are_fused(nodes: Any, mode: Any) -> None:
    filled(nodes)

    def ask(text: str, **options: Any) -> list[str]:
        return list(nodes.query(query([1.0, 0.0, 0.0], query_str=text, mode=mode, **options)).ids)

    assert ask("umbrella", k=2)[:2] in (["rain", "tea"], ["tea", "rain"])
    assert ask("cold milk", k=4)[0] == "tea"
    assert ask("umbrella", hybrid_top_k=1, k=3) == ask("umbrella", k=1)
    assert ask("umbrella", alpha=0.0) == ["rain"]
    assert ask("umbrella", alpha=1.0) == ask("?!") == ["tea", "chai", "train", "rain"]
    assert ask("umbrella", filters=filters(("kind", "==", "drink"))) == ["tea", "chai"]
    with pytest.raises(InvalidOption, match=r"alpha: must be 0, 0\.5, 1 or None, got 0\.3"):
        ask("umbrella", alpha=0.3)


def test_documents_and_ids_limit_a_query(nodes: Any) -> None:
    filled(nodes)
    ask = query([0.0, 1.0, 0.0], k=9, doc_ids=["drinks"])
    assert nodes.query(ask).ids == ["chai", "tea"]
    ask = query([0.0, 1.0, 0.0], k=9, doc_ids=["drinks", "none"], node_ids=["tea", "rain"])
    assert nodes.query(ask).ids == ["tea"]
    assert nodes.query(query([0.0, 1.0, 0.0], doc_ids=[])).ids == []
    assert nodes.get_nodes([]) == []


def test_what_no_query_can_do_is_refused(nodes: Any) -> None:
    filled(nodes)
    for mode in (MODE.SVM, MODE.LOGISTIC_REGRESSION, MODE.LINEAR_REGRESSION):
        with pytest.raises(InvalidOption, match="mode: must be a search by words or by meaning"):
            nodes.query(query([1.0, 0.0, 0.0], mode=mode))
    for mode in (MODE.DEFAULT, MODE.MMR, MODE.HYBRID):
        with pytest.raises(InvalidOption, match="query_embedding: must be given"):
            nodes.query(query(query_str="tea", mode=mode))
    with pytest.raises(IndexExists):
        nodes.query(query([1.0, 0.0]))


def test_a_dropped_collection_is_searched_after_the_next_write(
    nodes: Any, store: AsyncStore
) -> None:
    filled(nodes).query(query([1.0, 0.0, 0.1], 1))
    assert asyncio.run(store.drop("llama_index_nodes"))
    assert filled(nodes).query(query([1.0, 0.0, 0.1], 1)).ids == ["tea"]


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_other_metrics(store: AsyncStore, way: str, metric: str) -> None:
    nodes = filled(Calls(way, LlamaIndexVectorStore(store, metric=metric)))
    found = nodes.query(query([2.0, 0.0, 0.0], k=1))
    expected = {"l2": ("tea", -(1.01**0.5)), "dot": ("tea", 2.0)}[metric]
    assert (found.ids[0], found.similarities[0]) == (expected[0], pytest.approx(expected[1]))
    with pytest.raises(IndexExists):
        Calls(way, LlamaIndexVectorStore(store)).query(query([2.0, 0.0, 0.0]))
    with pytest.raises(InvalidIndex, match="metric"):
        LlamaIndexVectorStore(store, metric="hamming")


# -- filters ---------------------------------------------------------------------------------

CASES: list[tuple[str, str, Any]] = [
    ("kind", "==", "drink"), ("n", "==", 1), ("n", "==", 2.5), ("a.b", "==", 1), ("$or", "==", "x"),
    ("kind", "!=", "drink"), ("none", "!=", 1), ("n", ">", 1), ("n", ">=", 1), ("n", "<", 2.5), ("n", "<=", 2.5),
    ("kind", ">", "Z"), ("kind", "in", ["drink", "x"]), ("n", "in", [1, 10]), ("n", "in", []),
    ("n", "nin", [1, 10]), ("kind", "nin", ["drink"]), ("tags", "any", ["green", "x"]), ("tags", "any", []),
    ("tags", "all", ["hot", "green"]), ("tags", "all", []), ("tags", "contains", "hot"), ("title", "text_match", "%_\\"),
    ("kind", "text_match", "eath"), ("kind", "text_match", "weath"), ("kind", "text_match_insensitive", "wEATH"),
    ("note", "is_empty", None), ("tags", "is_empty", None), ("kind", "is_empty", None), ("none", "is_empty", None),
]  # fmt: skip


@pytest.mark.each_backend
def test_every_operator_matches_as_in_llama_index(nodes: Any) -> None:
    filled(nodes)
    asked = [filters(case, condition=each) for case in CASES for each in ("and", "or", "not")]
    asked += [
        filters(one, other, condition=each)
        for one, other in zip(CASES, CASES[7:], strict=False)
        for each in ("and", "or", "not")
    ]
    for each in asked:
        matches = build_metadata_filter_fn(METADATA.__getitem__, each)
        expected = [name for name in TEXTS if matches(name)]
        assert [found.node_id for found in nodes.get_nodes(filters=each)] == expected, each
        found = nodes.query(query([1.0, 1.0, 1.0], k=9, filters=each)).ids
        assert sorted(found) == sorted(expected), each
    operators = {each.operator for given in asked for each in given.filters}  # type: ignore[union-attr]
    assert operators == set(FilterOperator)


def test_conditions_nest(nodes: Any) -> None:
    filled(nodes)
    drinks, many = filters(("kind", "==", "drink")), filters(("n", ">", 2))
    for given, expected in (
        (filters(drinks, many), ["chai"]),
        (filters(drinks, many, condition="or"), ["tea", "chai", "train"]),
        (filters(drinks, many, condition="not"), ["rain"]),
        (filters(("kind", "==", "drink"), filters(drinks, many, condition="not"), condition="or"),
         ["tea", "chai", "rain"]),
        (filters(MetadataFilters(filters=[])), list(TEXTS)),
        (filters(("ref_doc_id", "==", "drinks"), ("n", "==", 1)), ["tea"]),
        (filters(("doc_id", "!=", "drinks")), ["rain", "train"]),
    ):  # fmt: skip
        assert [each.node_id for each in nodes.get_nodes(filters=given)] == expected


def test_an_element_of_an_array_equals_as_in_mongodb(nodes: Any) -> None:
    filled(nodes)
    assert [each.node_id for each in nodes.get_nodes(filters=filters(("tags", "==", "hot")))] == ["tea", "chai"]  # fmt: skip
    with pytest.raises(InvalidFilter):
        nodes.get_nodes(filters=filters(("n", "in", "text")))


# -- LlamaIndex ------------------------------------------------------------------------------


class Counts(BaseEmbedding):
    """Embeds a text as how often it has each of three words."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return [0.1 + text.lower().count(word) for word in ("tea", "umbrella", "train")]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def test_an_index_is_loaded_again(shared_backend: Backend, way: str) -> None:
    url, options = shared_backend.url, shared_backend.options
    with LlamaIndexVectorStore(url, collection="index", **options) as vectors:
        storage = StorageContext.from_defaults(vector_store=vectors)
        documents = [Document(text=text, doc_id=name) for name, (text, _) in TEXTS.items()]
        VectorStoreIndex.from_documents(documents, storage_context=storage, embed_model=Counts())
        saved = json.loads(json.dumps(vectors.to_dict()))
    with LlamaIndexVectorStore.from_dict(saved) as vectors:
        index = VectorStoreIndex.from_vector_store(vectors, embed_model=Counts())
        for mode in ("default", "hybrid", "text_search", "mmr"):
            retriever = index.as_retriever(similarity_top_k=1, vector_store_query_mode=mode)
            if way == "sync":
                [found] = retriever.retrieve("An umbrella?")
            else:
                [found] = asyncio.run(retriever.aretrieve("An umbrella?"))
            assert found.text == "Bring an umbrella."
        index.delete_ref_doc("rain")
        assert len(vectors.get_nodes()) == 3
        assert vectors.client.get_sync_collection("index").count() == 3


def test_an_open_store_is_not_written_to_a_dict(store: AsyncStore) -> None:
    with pytest.raises(InvalidOption, match="store: must be a URL"):
        LlamaIndexVectorStore(store).to_dict()
    with (
        pytest.raises(InvalidOption, match="must be an AsyncStore or a URL"),
        Store("sqlite://") as sync,
    ):
        LlamaIndexVectorStore(sync)  # type: ignore[arg-type]


PROGRAM = """
import sys, json
from llama_index.core.schema import TextNode
from collections_store.integrations.llama_index import LlamaIndexVectorStore
with LlamaIndexVectorStore(sys.argv[1], **json.loads(sys.argv[2])) as nodes:
    nodes.add([TextNode(text="Iced tea", id_="other", embedding=[1.0, 0.0, 0.0])])
"""


def test_nodes_of_another_process_are_found(shared_backend: Backend) -> None:
    url, options = shared_backend.url, shared_backend.options
    with LlamaIndexVectorStore(url, **options) as nodes:
        filled(nodes)
        assert nodes.query(query([1.0, 0.0, 0.0], k=1)).ids == ["tea"]
        subprocess.run([sys.executable, "-c", PROGRAM, url, json.dumps(options)], check=True, timeout=100)  # fmt: skip
        assert nodes.query(query([1.0, 0.0, 0.0], k=1)).ids == ["other"]
        assert nodes.query(query(query_str="iced", mode=MODE.TEXT_SEARCH)).ids == ["other"]
