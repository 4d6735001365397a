"""LangChain's vector store on our stores, also as a retriever."""

import asyncio
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from postgres_server import URL_VARIABLE
from selection import missing, only_all_of_hosts

from collections_store import (
    AsyncStore,
    F,
    IndexExists,
    InvalidBody,
    InvalidFilter,
    InvalidIndex,
    InvalidOption,
)

if _reason := missing("langchain_core"):
    pytest.skip(_reason, allow_module_level=True)

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore

from collections_store.integrations.langchain import LangChainVectorStore

WORDS = ("tea", "rain", "train")
TEXTS = {
    "tea": "tea, green tea",
    "chai": "tea with a little rain",
    "umbrella": "rain rain rain",
    "late": "The train waits, train by train, in the rain",
    "other": "nothing of all that",
}
METADATA: dict[str, dict[str, Any]] = {
    "tea": {"year": 1990, "tags": ["hot"], "a.b": 1},
    "chai": {"year": 2001, "of": {"who": "ada"}},
    "umbrella": {"year": 2010},
    "late": {"year": 2020},
    "other": {},
}


class Counts(Embeddings):
    """Embeds a text as how often it has each of three words; counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append("documents")
        return list(map(self._vector, texts))

    def embed_query(self, text: str) -> list[float]:
        self.calls.append("query")
        return self._vector(text)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append("adocuments")
        return list(map(self._vector, texts))

    async def aembed_query(self, text: str) -> list[float]:
        self.calls.append("aquery")
        return self._vector(text)

    def _vector(self, text: str) -> list[float]:
        return [0.1 + text.lower().count(word) for word in WORDS]


class Calls:
    """Calls the sync methods of an object, or, in a new event loop each, the async ones."""

    def __init__(self, way: str, object: Any) -> None:
        self._way, self._object = way, object

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._object, name if self._way == "sync" else f"a{name}")
        if self._way == "sync":
            return method
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
def texts(store: AsyncStore, way: str) -> Any:
    return filled(Calls(way, LangChainVectorStore(store, Counts())))


def filled(texts: Any) -> Any:
    given = [TEXTS[name] for name in TEXTS], [METADATA[name] for name in TEXTS]
    assert texts.add_texts(*given, ids=list(TEXTS)) == list(TEXTS)
    return texts


def ids(found: list[Document]) -> list[str | None]:
    return [each.id for each in found]


# -- documents -------------------------------------------------------------------------------


def test_documents_are_restored_and_have_ids(texts: Any) -> None:
    given = [Document("a", id="1", metadata={"pair": (1, 2), "deep": {"x": None}}), Document("b"), Document("c", id="3")]  # fmt: skip
    first, new, third = texts.add_documents(given, ids=[None, None, "2"])
    assert (len({first, new}), third) == (2, "2")
    assert texts.add_documents(given)[::2] == ["1", "3"]
    found = texts.get_by_ids(["3", "none", "1"])
    assert found == [
        given[2],
        Document("a", id="1", metadata={"pair": [1, 2], "deep": {"x": None}}),
    ]
    assert texts.add_texts([]) == []
    with pytest.raises(InvalidOption, match="ids: must have an id for each document, got 1 for 2"):
        texts.add_documents(given[:2], ids=["1"])


def test_documents_are_deleted(texts: Any) -> None:
    assert texts.delete(["tea", "none"]) is True
    assert texts.delete([]) is True
    assert ids(texts.get_by_ids(list(TEXTS))) == ["chai", "umbrella", "late", "other"]
    assert texts.delete() is True
    assert texts.get_by_ids(list(TEXTS)) == texts.similarity_search("tea") == []


def test_what_cannot_be_stored_is_refused_with_all_of_its_call(texts: Any) -> None:
    for bad, problem in (
        ({"n": float("nan")}, "at 'metadata.n'"),
        ({"n": {1}}, "at 'metadata': is not JSON: Object of type set"),
        ({"a\0": 1}, "at 'metadata"),
    ):
        with pytest.raises(InvalidBody, match=problem):
            texts.add_documents([Document("new", id="new"), Document("bad", metadata=bad)])
    assert texts.get_by_ids(["new"]) == []


# -- searches --------------------------------------------------------------------------------


def test_each_search_finds_what_in_memory_vector_store_finds(texts: Any) -> None:
    theirs = InMemoryVectorStore(Counts())
    filled(theirs)
    for query in ("tea", "rain train", "tea tea train"):
        vector = Counts().embed_query(query)
        for k in (1, 3, 9):
            scored = texts.similarity_search_with_score(query, k)
            expected = theirs.similarity_search_with_score(query, k)
            assert ids([each for each, _ in scored]) == ids([each for each, _ in expected])
            assert [s for _, s in scored] == pytest.approx([s for _, s in expected], abs=1e-6)
            assert [each.metadata for each, _ in scored] == [each.metadata for each, _ in expected]
            plain = ids(theirs.similarity_search(query, k))
            assert ids(texts.similarity_search(query, k)) == plain
            assert ids(texts.similarity_search_by_vector(vector, k)) == plain
            cases: list[dict[str, Any]] = [
                {},
                {"fetch_k": 3, "lambda_mult": 0.2},
                {"lambda_mult": 1.0},
            ]
            for options in cases:
                diverse = ids(theirs.max_marginal_relevance_search(query, k, **options))
                assert ids(texts.max_marginal_relevance_search(query, k, **options)) == diverse
                found = texts.max_marginal_relevance_search_by_vector(vector, k, **options)
                assert ids(found) == diverse
    assert len(texts.similarity_search("tea")) == 4


@pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
def test_relevances_are_from_0_to_1(store: AsyncStore, way: str, metric: str) -> None:
    class Signed(Counts):
        def _vector(self, text: str) -> list[float]:
            return [-1.0, 0.0] if "not" in text else [1.0, 0.1 * len(text)]

    texts = Calls(way, LangChainVectorStore(store, Signed(), metric=metric))
    texts.add_texts(["a", "not b", "c" * 40], ids=["a", "not", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = texts.similarity_search_with_relevance_scores("a", k=3)
    relevances = {each.id: relevance for each, relevance in found}
    assert all(0 <= each <= 1 for each in relevances.values())
    if metric == "l2":
        assert relevances["c"] == pytest.approx(1 / (1 + 3.9))
    else:
        assert relevances["not"] == 0
    assert [each.id for each, _ in texts.similarity_search_with_relevance_scores("a", k=3, score_threshold=0.9)][:1] == (["a"] if metric != "dot" else ["c"])  # fmt: skip
    with pytest.raises(IndexExists):
        LangChainVectorStore(store, Signed(), metric="dot" if metric == "l2" else "l2").add_texts(["x"])  # fmt: skip


def test_a_filter_is_on_the_metadata(texts: Any) -> None:
    for given, expected in (
        ({"year": 1990}, {"tea"}),
        ({"year": {"$gte": 2001, "$lt": 2020}}, {"chai", "umbrella"}),
        ({"$or": [{"year": {"$gt": 2010}}, {"$and": [{"tags": "hot"}, {"year": {"$ne": 1}}]}]}, {"tea", "late"}),
        ({"$nor": [{"year": {"$exists": True}}]}, {"other"}),
        ({"of.who": "ada"}, {"chai"}),
        ({"$id": {"$in": ["tea", "late"]}, "year": {"$gt": 2000}}, {"late"}),
        (F("metadata.year") > 2010, {"late"}),
        ({}, set(TEXTS)),
        (None, set(TEXTS)),
    ):  # fmt: skip
        assert set(ids(texts.similarity_search("tea", 9, filter=given))) == expected
        found = texts.similarity_search_with_score("tea", 9, filter=given)
        assert {each.id for each, _ in found} == expected
        assert set(ids(texts.max_marginal_relevance_search("tea", 9, filter=given))) == expected
    assert ids(texts.similarity_search("tea", 1, filter={"year": {"$gt": 2001}})) != ["tea"]
    for bad in (callable, "year", {"$or": ["year"]}):
        with pytest.raises(InvalidOption, match="filter: must be a dict of conditions"):
            texts.similarity_search("tea", filter=bad)
    for wrong in ({"year": {"$more": 1}}, {"$or": None}, {"$and": 1}):
        with pytest.raises(InvalidFilter):
            texts.similarity_search("tea", filter=wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'filters'"):
        texts.similarity_search("tea", filters={"year": 1990})


def test_searches_before_a_write_find_nothing(store: AsyncStore, way: str) -> None:
    texts = Calls(way, LangChainVectorStore(store, Counts()))
    assert texts.similarity_search("tea") == texts.max_marginal_relevance_search("tea") == []
    assert texts.get_by_ids(["1"]) == []
    assert texts.delete(["1"]) is True


def test_a_dropped_collection_is_searched_after_the_next_write(
    texts: Any, store: AsyncStore
) -> None:
    texts.similarity_search("tea")
    assert asyncio.run(store.drop("langchain_documents"))
    found = filled(texts).similarity_search("tea", 1)
    assert ids(found) == ["tea"]


def test_each_method_embeds_in_its_own_way(store: AsyncStore, way: str) -> None:
    model = Counts()
    texts = filled(Calls(way, LangChainVectorStore(store, model)))
    texts.similarity_search("tea")
    texts.max_marginal_relevance_search("tea")
    prefix = "" if way == "sync" else "a"
    assert model.calls == [f"{prefix}documents", f"{prefix}query", f"{prefix}query"]


def test_vectors_of_another_model_are_refused(texts: Any, store: AsyncStore, way: str) -> None:
    class Longer(Counts):
        def _vector(self, text: str) -> list[float]:
            return [1.0, 2.0, 3.0, 4.0]

    class Broken(Counts):
        def _vector(self, text: str) -> list[float]:
            return [math.inf, 2.0, 3.0]

    with pytest.raises(IndexExists):
        Calls(way, LangChainVectorStore(store, Longer())).add_texts(["new"])
    with pytest.raises(InvalidOption, match="finite numbers"):
        Calls(way, LangChainVectorStore(store, Broken())).add_texts(["new"])
    with pytest.raises(InvalidIndex, match="metric"):
        LangChainVectorStore(store, Counts(), metric="hamming")
    assert len(texts.similarity_search("tea", 9)) == len(TEXTS)


# -- LangChain -------------------------------------------------------------------------------


def test_every_kind_of_retriever(shared_backend: Backend, way: str) -> None:
    model = Counts()
    wanted = {"store": shared_backend.url, "collection": "texts", **shared_backend.options}
    make = Calls(way, LangChainVectorStore).from_documents
    with make(
        [Document("rain"), Document("tea", id="tea", metadata={"n": 1})], model, **wanted
    ) as texts:
        texts.add_texts(["train"], ids=["train"])
    with LangChainVectorStore(wanted.pop("store"), model, **wanted) as texts:
        for search_type, options in (
            ("similarity", {"k": 1}),
            ("similarity", {"filter": {"n": 1}}),
            ("similarity_score_threshold", {"score_threshold": 0.9}),
            ("mmr", {"k": 1, "fetch_k": 2}),
        ):
            retriever = texts.as_retriever(search_type=search_type, search_kwargs=options)
            found = Calls(way, retriever).invoke("some tea")
            assert [(each.id, each.page_content) for each in found] == [("tea", "tea")]


def test_langchains_index_deletes_what_is_gone(texts: Any, store: AsyncStore) -> None:
    manager = InMemoryRecordManager("texts")
    manager.create_schema()
    target = LangChainVectorStore(store, Counts(), collection="indexed")
    kept, gone = (Document(text, metadata={"source": text}) for text in ("tea", "rain"))
    options: dict[str, Any] = {
        "cleanup": "full",
        "source_id_key": "source",
        "key_encoder": "sha256",
    }
    assert index([kept, gone], manager, target, **options)["num_added"] == 2
    assert index([kept], manager, target, **options)["num_deleted"] == 1
    assert [each.page_content for each in target.similarity_search("rain")] == ["tea"]


def test_a_file_that_can_only_be_read_is_searched(tmp_path: Path, way: str) -> None:
    url = f"sqlite:///{tmp_path}/texts.db"
    with LangChainVectorStore(url, Counts()) as texts:
        filled(texts)
        expected = texts.similarity_search("tea")
    with LangChainVectorStore(f"{url}?mode=ro", Counts()) as texts:
        assert Calls(way, texts).similarity_search("tea") == expected


PROGRAM = """
import sys, json
from langchain_core.embeddings import DeterministicFakeEmbedding
from collections_store.integrations.langchain import LangChainVectorStore
with LangChainVectorStore(sys.argv[1], DeterministicFakeEmbedding(size=3), **json.loads(sys.argv[2])) as texts:
    texts.add_texts(["written by another process"], ids=["other process"])
"""


def test_documents_of_another_process_are_found(shared_backend: Backend) -> None:
    url, options = shared_backend.url, shared_backend.options
    with LangChainVectorStore(url, Counts(), **options) as texts:
        filled(texts)
        assert len(texts.similarity_search("tea", 9)) == len(TEXTS)
        subprocess.run([sys.executable, "-c", PROGRAM, url, json.dumps(options)], check=True, timeout=100)  # fmt: skip
        assert "other process" in ids(texts.similarity_search("tea", 9))


@only_all_of_hosts
@pytest.mark.timeout(900)
def test_langchains_own_tests(postgres_url: str, tmp_path: Path) -> None:
    """Run the standard tests of langchain-tests, whose plugins of pytest our own tests do without."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path)]
    done = subprocess.run(
        [*pip, "langchain-tests>=1.1"], check=False, capture_output=True, text=True
    )
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"pip reaches no index that has it: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    program += ["-o", "filterwarnings=", "-o", "asyncio_mode=auto", "--whole-matrix"]
    done = subprocess.run(
        [*program, "tests/integrations/langchain_upstream.py"],
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ | {URL_VARIABLE: postgres_url, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]
