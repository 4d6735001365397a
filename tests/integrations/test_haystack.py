"""Haystack's document store and retrievers on our stores, also in pipelines."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from postgres_server import URL_VARIABLE
from selection import missing, only_all_of_hosts

from collections_store import AsyncStore, IndexExists, InvalidBody, InvalidIndex, InvalidOption

if _reason := missing("haystack"):
    pytest.skip(_reason, allow_module_level=True)

from haystack import Document, Pipeline
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.utils import Secret
from haystack.utils.filters import document_matches_filter

from collections_store.integrations.haystack import (
    CollectionsDocumentStore,
    CollectionsEmbeddingRetriever,
    CollectionsKeywordRetriever,
)

DOCUMENTS = [
    Document(id="tea", content="Green tea with milk.", embedding=[1.0, 0.0, 0.1], meta={"year": 1990, "deep": {"a.b": 1}, "on": "2020-01-01T00:00:00"}),
    Document(id="chai", content="Black tea, with spices!", embedding=[0.9, 0.2, 0.1], meta={"year": 2001.5, "tags": ["hot"]}),
    Document(id="rain", content="Bring an umbrella.", embedding=[0.0, 1.0, 0.1], meta={"year": 2010, "ok": True, "on": "2021-05-05T12:00:00"}),
    Document(id="none", content="No embedding, and no year."),
    Document(id="blob", blob=ByteStream(b"\x00\xff", mime_type="image/png", meta={"x": 1}), sparse_embedding=SparseEmbedding([1, 5], [0.1, 0.2])),
]  # fmt: skip


class Calls:
    """Calls the sync methods of an object, or, in a new event loop each, the async ones."""

    def __init__(self, way: str, object: Any) -> None:
        self._way, self._object = way, object

    def __getattr__(self, name: str) -> Any:
        if self._way == "sync":
            return getattr(self._object, name)
        method = getattr(self._object, f"{name}_async")
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
def documents(store: AsyncStore, way: str) -> Any:
    documents = Calls(way, CollectionsDocumentStore(store))
    assert documents.write_documents(DOCUMENTS) == len(DOCUMENTS)
    return documents


def ids(found: list[Document]) -> list[str]:
    return [each.id for each in found]


def on(field: Any, operator: Any, value: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


# -- documents -------------------------------------------------------------------------------


def test_documents_are_restored(documents: Any) -> None:
    assert documents.filter_documents() == DOCUMENTS
    assert documents.count_documents() == len(DOCUMENTS)
    assert documents.count_documents_by_filter(on("meta.year", ">", 2000)) == 2


def test_a_write_of_many_is_all_or_nothing(documents: Any) -> None:
    new, old = Document(id="new", content="new"), Document(id="tea", content="other")
    for policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
        with pytest.raises(DuplicateDocumentError, match="tea"):
            documents.write_documents([new, old], policy)
        with pytest.raises(DuplicateDocumentError, match="new"):
            documents.write_documents([new, new], policy)
    assert documents.filter_documents() == DOCUMENTS
    assert documents.write_documents([new, old], DuplicatePolicy.SKIP) == 1
    assert documents.filter_documents(on("id", "in", ["tea", "new"])) == [DOCUMENTS[0], new]
    assert documents.write_documents([new, old], DuplicatePolicy.OVERWRITE) == 2
    assert documents.filter_documents(on("id", "==", "tea")) == [old]
    assert documents.write_documents([]) == 0


def test_what_cannot_be_stored_is_refused(documents: Any, store: AsyncStore, way: str) -> None:
    for bad, problem in (
        (Document(meta={"at": datetime.now(UTC)}), (InvalidBody, "at 'meta': is not JSON: Object of type datetime")),
        (Document(content="a\0b"), (InvalidBody, "at 'content'")),
        (Document(embedding=[1.0, float("nan"), 0.0]), (InvalidOption, "finite numbers of 32 bits")),
        (Document(embedding=[1.0, 1e39, 0.0]), (InvalidOption, "finite numbers of 32 bits")),
        (Document.from_dict({"embedding": ["a", "b", "c"]}), (InvalidOption, "finite numbers of 32 bits")),
        (Document(embedding=[1.0, 2.0]), (InvalidOption, "dimensions, got 2 and 3")),
    ):  # fmt: skip
        with pytest.raises(problem[0], match=problem[1]):
            documents.write_documents([Document(content="new", embedding=[1.0] * 3), bad])
    with pytest.raises(IndexExists):
        documents.write_documents([Document(content="new", embedding=[1.0, 2.0])])
    with pytest.raises(InvalidIndex, match="metric"):
        CollectionsDocumentStore(store, metric="hamming")
    assert documents.count_documents() == len(DOCUMENTS)


# -- filters ---------------------------------------------------------------------------------

COMPARISONS = [
    on("meta.year", "==", 1990), on("meta.year", "==", None), on("meta.year", "!=", 1990), on("meta.year", "!=", None),
    on("meta.year", ">", 1990), on("meta.year", ">=", 2001.5), on("meta.year", "<", 2001.5), on("meta.year", "<=", 1990),
    on("meta.year", ">", None), on("meta.year", "in", [1990, 2010, 5]), on("meta.year", "not in", [1990]),
    on("meta.year", "in", []), on("meta.on", ">", "2020-06-01"), on("meta.on", "<=", datetime(2020, 1, 1)),
    on("meta.ok", "==", True), on("meta.tags", "==", ["hot"]), on("year", ">", 2000), on("id", "==", "tea"),
    on("id", "not in", ["tea"]), on("content", "==", "Bring an umbrella."), on("content", "==", None),
    on("meta.none.at.all", "==", None), on("nothing.of.it", "!=", 1), on("meta.deep", "==", {"a.b": 1}),
]  # fmt: skip


@pytest.mark.each_backend
def test_every_filter_matches_as_in_haystack(documents: Any) -> None:
    asked: list[dict[str, Any]] = list(COMPARISONS)
    for one, other in zip(COMPARISONS, COMPARISONS[5:], strict=False):
        for operator in ("AND", "OR", "NOT"):
            both = {"operator": operator, "conditions": [one, other]}
            nested = {"operator": "OR", "conditions": [both, on("id", "==", "blob")]}
            asked += [both, {"operator": "NOT", "conditions": [both]}, nested]
    for filters in asked:
        expected = [each.id for each in DOCUMENTS if document_matches_filter(filters, each)]
        assert ids(documents.filter_documents(filters)) == expected, filters
        assert documents.count_documents_by_filter(filters) == len(expected)
    for filters in asked[::9]:
        found = documents.embedding_retrieval([1.0, 1.0, 1.0], filters)
        expected = [each.id for each in DOCUMENTS[:3] if document_matches_filter(filters, each)]
        assert sorted(ids(found)) == sorted(expected)


def test_what_haystack_forbids_is_refused(documents: Any) -> None:
    for filters, problem in (
        (on("meta.year", ">", "1"), "ISO 8601, got '1'"),
        (on("meta.year", "<=", [1]), r"ISO 8601, got \[1\]"),
        (on("meta.year", "in", 1), "must be a list, got 1"),
        (on("meta.year", "like", 1), "operator must be one of '==', .* got 'like'"),
        ({"field": "a", "operator": "=="}, "'value' is missing in"),
        ({"operator": "AND"}, "'conditions' is missing in"),
        ({"conditions": []}, "'operator' is missing in"),
        ({"operator": "AND", "conditions": []}, "must be a list with a condition"),
        ({"operator": "OR", "conditions": [on("id", "==", "a"), {}]}, "'operator' is missing in {}"),
        ({"operator": "AND", "conditions": [None]}, "must be a dict, got None"),
        ("id", "must be a dict, got 'id'"),
        (on(5, "==", 1), "field must be a string, got 5"),
        (on("id", ["=="], 1), r"got \['=='\]"),
        ({"operator": {}, "conditions": [on("id", "==", "a")]}, "'AND', 'OR' or 'NOT', got {}"),
        ({"operator": "XOR", "conditions": [on("id", "==", "a")]}, "'AND', 'OR' or 'NOT', got 'XOR'"),
    ):  # fmt: skip
        for call in (documents.filter_documents, documents.delete_by_filter):
            with pytest.raises(FilterError, match=problem):
                call(filters)
    assert documents.count_documents() == len(DOCUMENTS)


def test_updates_and_deletions(documents: Any) -> None:
    assert documents.update_by_filter(on("meta.year", ">", 2000), {"a.b": [1], "year": 1}) == 2
    assert {
        each.id: each.meta for each in documents.filter_documents(on("meta.year", "==", 1))
    } == {
        "chai": {"year": 1, "tags": ["hot"], "a.b": [1]},
        "rain": {"year": 1, "ok": True, "on": "2021-05-05T12:00:00", "a.b": [1]},
    }
    assert documents.delete_by_filter(on("meta.year", "==", 1)) == 2
    documents.delete_documents(["tea", "unknown"])
    assert ids(documents.filter_documents()) == ["none", "blob"]
    documents.delete_all_documents()
    assert documents.filter_documents() == documents.embedding_retrieval([1.0, 0.0, 0.0]) == []
    assert documents.keyword_retrieval("tea") == []


# -- retrieval -------------------------------------------------------------------------------


def test_scores_are_those_of_in_memory_document_store(documents: Any) -> None:
    theirs = InMemoryDocumentStore(embedding_similarity_function="cosine", shared=False)
    theirs.write_documents(DOCUMENTS)
    for vector in ([1.0, 0.2, 0.0], [0.1, 0.9, 0.5]):
        for k in (1, 2, 9):
            found = documents.embedding_retrieval(vector, top_k=k)
            expected = theirs.embedding_retrieval(vector, top_k=k, return_embedding=True)
            assert ids(found) == ids(expected)
            assert [e.score for e in found] == pytest.approx([e.score for e in expected], abs=1e-6)
            assert [e.embedding for e in found] == [e.embedding for e in expected]


def test_words_of_a_question_find_documents_with_any(documents: Any) -> None:
    found = documents.keyword_retrieval("Is there GREEN tea -milk?")
    assert ids(found) == ["tea", "chai"]
    assert found[0].score > found[1].score
    assert ids(documents.keyword_retrieval("tea", on("meta.year", ">", 2000))) == ["chai"]
    assert ids(documents.keyword_retrieval("tea umbrella", top_k=1)) == ["rain"]
    for nothing in ("coffee", "?!", ""):
        assert documents.keyword_retrieval(nothing) == []


def test_retrievers_restrict_a_run(documents: Any, store: AsyncStore, way: str) -> None:
    held = CollectionsDocumentStore(store)
    old = on("meta.year", "<", 2005)
    for kind, query in (
        (CollectionsEmbeddingRetriever, {"query_embedding": [1.0, 0.5, 0.0]}),
        (CollectionsKeywordRetriever, {"query": "tea umbrella"}),
    ):
        replacing = Calls(way, kind(held, filters=old, top_k=2))
        merging = Calls(way, kind(held, filters=old, filter_policy="merge"))
        recent = on("meta.year", ">", 2000)
        assert set(ids(replacing.run(**query)["documents"])) == {"tea", "chai"}
        assert set(ids(replacing.run(**query, filters=recent)["documents"])) == {"chai", "rain"}
        assert len(replacing.run(**query, top_k=1)["documents"]) == 1
        assert ids(merging.run(**query, filters=on("meta.tags", "==", ["hot"]))["documents"]) == ["chai"]  # fmt: skip


# -- pipelines -------------------------------------------------------------------------------

MODULE = "collections_store.integrations.haystack"


def test_a_pipeline_is_dumped_and_loaded(
    shared_backend: Backend, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_URL", shared_backend.url)
    secret = Secret.from_env_var("TEST_URL")
    with CollectionsDocumentStore(secret, collection="docs", **shared_backend.options) as documents:
        documents.write_documents(DOCUMENTS)
        made = Pipeline()
        made.add_component("words", CollectionsKeywordRetriever(documents, top_k=1))
        made.add_component(
            "meaning", CollectionsEmbeddingRetriever(documents, on("meta.year", ">", 0))
        )
        text = made.dumps()
    assert shared_backend.url not in text
    loaded = Pipeline.loads(text, allowed_modules=[MODULE])
    asked = {
        "words": {"query": "umbrella"},
        "meaning": {"query_embedding": [1.0, 0.0, 0.0], "top_k": 2},
    }
    found = loaded.run(asked) if way == "sync" else asyncio.run(loaded.run_async(asked))
    assert ids(found["words"]["documents"]) == ["rain"]
    assert ids(found["meaning"]["documents"]) == ["tea", "chai"]
    for name in ("words", "meaning"):
        retriever: Any = loaded.get_component(name)
        retriever.document_store.close()


def test_a_url_is_dumped_and_an_open_store_is_not(store: AsyncStore) -> None:
    documents = CollectionsDocumentStore("sqlite://", metric="dot", read_only=False)
    saved = json.loads(json.dumps(documents.to_dict()))
    documents.close()
    with CollectionsDocumentStore.from_dict(saved) as again:
        assert again.to_dict() == saved
    with pytest.raises(InvalidOption, match="store: must be a URL or a Secret"):
        CollectionsDocumentStore(store).to_dict()


def test_the_first_calls_may_be_concurrent(store: AsyncStore) -> None:
    async def main() -> None:
        documents = CollectionsDocumentStore(store)
        made = [Document(content=f"tea {n}", embedding=[1.0, float(n)]) for n in range(20)]
        await asyncio.gather(*(documents.write_documents_async([each]) for each in made))
        words, near = await asyncio.gather(
            documents.keyword_retrieval_async("tea", top_k=99),
            documents.embedding_retrieval_async([1.0, 0.0], top_k=99),
        )
        assert sorted(ids(words)) == sorted(ids(near)) == sorted(ids(made))

    asyncio.run(main())


def test_a_dropped_collection_is_searched_after_the_next_write(
    documents: Any, store: AsyncStore
) -> None:
    documents.keyword_retrieval("tea")
    assert asyncio.run(store.drop("haystack_documents"))
    documents.write_documents(DOCUMENTS)
    assert ids(documents.embedding_retrieval([1.0, 0.0, 0.1], top_k=1)) == ["tea"]
    assert ids(documents.keyword_retrieval("umbrella")) == ["rain"]


PROGRAM = """
import sys, json
from haystack import Document
from collections_store.integrations.haystack import CollectionsDocumentStore
with CollectionsDocumentStore(sys.argv[1], **json.loads(sys.argv[2])) as documents:
    documents.write_documents([Document(id="other", content="Iced tea", embedding=[1.0, 0.0, 0.0])])
"""


def test_documents_of_another_process_are_found(shared_backend: Backend) -> None:
    url, options = shared_backend.url, shared_backend.options
    with CollectionsDocumentStore(url, **options) as documents:
        documents.write_documents(DOCUMENTS)
        assert ids(documents.embedding_retrieval([1.0, 0.0, 0.0], top_k=1)) == ["tea"]
        subprocess.run([sys.executable, "-c", PROGRAM, url, json.dumps(options)], check=True, timeout=100)  # fmt: skip
        assert ids(documents.embedding_retrieval([1.0, 0.0, 0.0], top_k=1)) == ["other"]
        assert ids(documents.keyword_retrieval("iced")) == ["other"]


@only_all_of_hosts
@pytest.mark.timeout(900)
def test_haystacks_own_tests(postgres_url: str, tmp_path: Path) -> None:
    """Run the tests of the wheel, with pytest-asyncio, which our own tests do without."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    done = subprocess.run([*pip, "pytest-asyncio"], check=False, capture_output=True, text=True)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"pip reaches no index that has it: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    program += ["-o", "filterwarnings=", "-o", "asyncio_mode=auto", "--whole-matrix"]
    done = subprocess.run(
        [*program, "tests/integrations/haystack_upstream.py"],
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ | {URL_VARIABLE: postgres_url, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]
