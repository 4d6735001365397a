"""Vector indexes over texts: when texts are embedded, chunks, failures and models; on both databases, sync and async."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from backends import Backend
from conftest import Clock

from collections_store import (
    AsyncStore,
    DatabaseError,
    IndexExists,
    InvalidBody,
    InvalidIndex,
    InvalidSearch,
    Store,
)
from collections_store.operations.embedding import DOCUMENTS

pytestmark = pytest.mark.each_backend
WORDS = ("tea", "ice", "sun")


class Counting:
    """Embed a text as the counts of three words, and one more number; note the texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls = 0
        self.refused = ""
        self.problem: Exception | None = None

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.calls += 1
        if self.problem is not None:
            raise self.problem
        if self.refused and any(self.refused in text for text in texts):
            raise RuntimeError(f"no {self.refused}")
        self.texts += texts
        return [[*map(float, map(text.count, WORDS)), 0.1] for text in texts]

    def taken(self) -> list[str]:
        """Return the texts since the last call."""
        texts, self.texts = self.texts, []
        return texts


@pytest.fixture
def embed() -> Counting:
    return Counting()


def create(notes: Any, embed: Any, **options: Any) -> Any:
    options = {"dimensions": 4, "embed": embed, "model": "counting", **options}
    notes.create_vector_index("text", **options)
    return notes


def found(notes: Any, query: Any, k: int = 10, **options: Any) -> list[str]:
    return [each.id for each in notes.nearest(query, k, **options)]


def test_texts_are_embedded_once_and_searched_by_texts(things: Any, embed: Counting) -> None:
    create(things, embed)
    things.put_many({"a": {"text": "tea tea"}, "b": {"text": "ice"}, "c": {"text": "sun tea"}})
    assert found(things, "tea") == ["a", "c", "b"]
    assert embed.taken() == ["tea", "tea tea", "ice", "sun tea"]
    assert found(things, "ice", 1) == ["b"]
    assert embed.taken() == ["ice"]
    assert found(things, [0, 0, 1, 0], 1) == ["c"]
    assert embed.taken() == []


def test_an_update_that_leaves_the_text_alone_embeds_nothing(things: Any, embed: Counting) -> None:
    create(things, embed)
    things.put_many({"a": {"text": "tea"}, "b": {"text": "ice", "n": 1}})
    things.store_vectors()
    assert len(embed.taken()) == 2
    things.update("b", {"$set": {"n": 2}})
    assert found(things, [0, 1, 0, 0], 1, filter={"n": 2}) == ["b"]
    assert embed.taken() == []
    things.update("b", {"$set": {"text": "sun"}})
    assert found(things, [0, 0, 1, 0], 1) == ["b"]
    assert embed.taken() == ["sun"]
    things.update("b", {"$set": {"text": 5}})
    assert found(things, [0, 0, 1, 0]) == ["a"]


def test_several_texts_of_a_document(things: Any, embed: Counting) -> None:
    create(things, embed)
    things.put("a", {"text": ["tea", 7, "ice", " "]})
    [best] = things.nearest("ice")
    assert (best.place, best.start, best.stop) == ("text.2", 0, 3)
    things.put("a", {"text": ["tea", "sun"]})
    embed.taken()
    [best] = things.nearest([0, 0, 1, 0])
    assert (best.place, embed.taken()) == ("text.1", ["sun"])


def test_long_texts_are_cut(things: Any, embed: Counting) -> None:
    create(things, embed, chunks=30)
    text = "Tea is hot, and tea is good.\n\nThe ice is cold. No sun."
    things.put("a", {"text": text})
    [best] = things.nearest("ice")
    assert text[best.start : best.stop] == "The ice is cold. No sun."
    things.update("a", {"$set": {"text": f"{text}\n\nMore sun, and all is sun."}})
    embed.taken()
    [best] = things.nearest([0, 0, 1, 0])
    assert embed.taken() == ["More sun, and all is sun."]
    assert best.start == len(text) + 2


def test_a_function_cuts_texts(things: Any, embed: Counting) -> None:
    create(things, embed, chunks=lambda text: [(0, 3), (3, len(text))])
    things.put("a", {"text": "teaice"})
    assert [(e.start, e.stop) for e in things.nearest("ice")] == [(3, 6)]


def test_failed_documents_are_listed_and_tried_again(
    things: Any, embed: Counting, clock: Clock
) -> None:
    create(things, embed)
    things.put_many({"a": {"text": "tea"}, "b": {"text": "bad"}, "c": {"text": "ice"}})
    embed.refused = "bad"
    assert found(things, [0, 1, 0, 0]) == ["c", "a"]
    [listed] = things.search_backlog()
    assert (listed.id, listed.index, listed.problem) == ("b", "text_vector", "RuntimeError: no bad")
    embed.refused = ""
    embed.taken()
    assert found(things, [0, 1, 0, 0]) == ["c", "a"]
    assert embed.taken() == []
    clock.advance(61)
    assert found(things, [0, 1, 0, 0]) == ["c", "a", "b"]
    assert things.search_backlog() == []


def test_a_service_that_is_down_is_not_called_for_each_document(
    things: Any, embed: Counting
) -> None:
    create(things, embed)
    things.put_many((str(n), {"text": f"tea {n}"}) for n in range(3 * DOCUMENTS))
    embed.problem = ConnectionError("down")
    assert found(things, [1, 0, 0, 0]) == []
    assert embed.calls == 3
    embed.problem = None
    assert things.store_vectors() == 0
    assert len(embed.taken()) == 3 * DOCUMENTS
    with pytest.raises(InvalidSearch, match="4 numbers"):
        things.nearest([1])
    embed.problem = ConnectionError("down")
    with pytest.raises(ConnectionError, match="down"):
        things.nearest("tea")


@pytest.mark.parametrize(
    ("vectors", "problem"),
    [
        ([[1, 2, 3]], "must have 4 numbers, got 3"),
        ([[0, 0, 0, 0]], "must not be zero"),
        ([[1, 2, 3, float("nan")]], "finite"),
        ([], "1 vector, got 0"),
        (None, "embed must return 1 vector, got None"),
    ],
)
def test_unusable_vectors_are_a_problem(things: Any, vectors: Any, problem: str) -> None:
    create(things, lambda _: vectors)
    things.put("a", {"text": "tea"})
    assert things.store_vectors() == 1
    assert problem in things.search_backlog()[0].problem


def test_another_model_is_refused_until_reindex(things: Any, embed: Counting) -> None:
    create(things, embed)
    things.put("a", {"text": "tea"})
    assert found(things, "tea") == ["a"]
    with pytest.raises(IndexExists, match="model counting"):
        create(things, embed, model="other")
    embed.taken()
    things.reindex("text", dimensions=4, embed=embed, model="other")
    assert things.store_vectors() == 0
    assert embed.taken() == ["tea"]


def test_another_store_needs_the_function(shared_backend: Any, embed: Counting) -> None:
    options = shared_backend.options
    with (
        Store(shared_backend.url, **options) as one,
        Store(shared_backend.url, **options) as other,
    ):
        create(one["notes"], embed).put("a", {"text": "tea"})
        assert found(one["notes"], "tea") == ["a"]
        notes = other["notes"]
        with pytest.raises(InvalidSearch, match="'counting'.*embed="):
            notes.nearest("tea")
        with pytest.raises(InvalidSearch, match="embed="):
            notes.store_vectors()
        assert found(notes, [1, 0, 0, 0]) == ["a"]
        notes.put("a", {"text": "ice"})
        assert found(notes, [1, 0, 0, 0]) == []
        assert found(one["notes"], [1, 0, 0, 0]) == ["a"]
        assert create(notes, embed).nearest("ice")[0].id == "a"


def test_a_document_that_changes_while_it_is_embedded_is_embedded_again(
    shared_backend: Any,
) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes, embed = store["notes"], Counting()

        def change(texts: list[str]) -> list[list[float]]:
            if texts == ["tea"]:
                notes.remove("a")
                notes.put("a", {"text": "ice"})  # the same version, and on SQLite the same position
            return embed(texts)

        create(notes, change)
        notes.put("a", {"text": "tea"})
        assert notes.nearest([1, 0, 0, 0]) == []
        [best] = notes.nearest([0, 1, 0, 0])
        assert best.score > 0.9


def test_a_coroutine_function_embeds(store: Any, embed: Counting) -> None:
    async def slowly(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return embed(texts)

    notes = create(store["notes"], slowly)
    notes.put("a", {"text": "tea"})
    assert found(notes, "tea") == ["a"]


def test_a_sync_store_embeds_by_a_coroutine_in_an_event_loop() -> None:
    async def embed(texts: list[str]) -> list[list[float]]:
        if "bad" in texts:
            raise RuntimeError("no")
        return [[1.0] for _ in texts]

    async def main(store: Store) -> list[str]:
        with pytest.raises(RuntimeError, match="no"):
            store["notes"].nearest("bad")
        return found(store["notes"], "tea")

    with Store("sqlite://") as store:
        store["notes"].create_vector_index("text", dimensions=1, embed=embed, model="one")
        store["notes"].put("a", {"text": "tea"})
        assert asyncio.run(main(store)) == ["a"]


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ValueError("a\0b\ud800c"), "a?b?c"),
        (RuntimeError("\udc80\0"), "RuntimeError: ??"),
    ],
)
def test_a_failure_with_any_text_is_listed(
    things: Any, embed: Counting, error: Exception, problem: str
) -> None:
    create(things, embed)
    things.put("a", {"text": "tea"})
    embed.problem = error
    assert found(things, [1, 0, 0, 0]) == []
    assert [each.problem for each in things.search_backlog()] == [problem]


@pytest.mark.parametrize("search", [True, False])
def test_documents_that_changed_repeatedly_hide_no_other(
    things: Any, embed: Counting, *, search: bool
) -> None:
    create(things, embed)
    for n in range(3):
        things.put("0", {"text": f"ice {n}"})
    things.put_many((str(n), {"text": f"tea {n}"}) for n in range(3 * DOCUMENTS))
    if search:
        assert len(found(things, [1, 0, 0, 0], 1000)) == 3 * DOCUMENTS
    assert things.store_vectors() == 0
    assert len(embed.taken()) == 3 * DOCUMENTS


def test_an_index_may_be_replaced_while_texts_are_embedded(
    shared_backend: Backend, embed: Counting
) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = store["notes"]

        def replace(texts: list[str]) -> list[list[float]]:
            assert not embed.calls, "the texts are embedded again and again"
            notes.reindex("text", dimensions=1, embed=lambda some: [[1]] * len(some), model="one")
            return embed(texts)

        create(notes, replace)
        notes.put_many((str(n), {"text": f"tea {n}"}) for n in range(DOCUMENTS))
        with pytest.raises(InvalidSearch, match="must have 1 numbers"):
            notes.nearest([1, 0, 0, 0])
        assert {each.problem for each in notes.search_backlog()} == {None}
        assert len(notes.nearest([1], k=100)) == DOCUMENTS


@pytest.mark.parametrize(
    "span", [(-3, -1), (0, 2**40), (0, 0), (2, 1), (0.0, 1.0), (1, 2, 3), "ab"]
)
def test_chunks_are_parts_of_the_text(things: Any, embed: Counting, span: Any) -> None:
    create(things, embed, chunks=lambda _: [span])
    things.put("a", {"text": "green tea"})
    assert found(things, "tea") == []
    problem = things.search_backlog()[0].problem
    assert problem.startswith("chunks must return (start, stop) pairs of a text of 9 characters")


def test_chunks_may_be_of_numpy(things: Any, embed: Counting) -> None:
    create(things, embed, chunks=lambda _: np.array([[0, 5], [6, 9]]))
    things.put("a", {"text": "green tea"})
    best = things.nearest("tea")[0]
    assert (best.start, best.stop) == (6, 9)


def test_an_event_loop_goes_on_while_a_function_embeds() -> None:
    async def main() -> list[str]:
        entered, going = asyncio.Event(), asyncio.get_running_loop()

        def embed(texts: list[str]) -> list[list[float]]:
            asyncio.run_coroutine_threadsafe(set_event(), going).result(10)
            return [[1.0] for _ in texts]

        async def set_event() -> None:
            entered.set()

        async with AsyncStore("sqlite://") as store:
            notes = store["notes"]
            await notes.create_vector_index("text", dimensions=1, embed=embed, model="one")
            await notes.put("a", {"text": "tea"})
            search = asyncio.create_task(notes.nearest("tea"))
            await asyncio.wait_for(entered.wait(), 10)
            return [each.id for each in await search]

    assert asyncio.run(main()) == ["a"]


class LangChain:
    model = "langchain"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, float(len(text))] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [1.0, float(len(text))]


class LlamaIndex:
    model_name = "llama"

    def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
        return LangChain().embed_documents(texts)

    def get_query_embedding(self, text: str) -> list[float]:
        return LangChain().embed_query(text)


class Encoder:
    def encode(self, texts: Sequence[str]) -> Any:
        import numpy as np

        return np.array(LangChain().embed_documents(list(texts)), np.float32)


class OpenAI:
    def __init__(self) -> None:
        self.embeddings = self

    def create(self, *, model: str, input: list[str]) -> Any:
        assert model == "large"
        vectors = LangChain().embed_documents(input)
        rows = [SimpleNamespace(index=n, embedding=each) for n, each in enumerate(vectors)]
        return SimpleNamespace(data=rows[::-1])


class AsyncOpenAI(OpenAI):
    async def create(self, *, model: str, input: list[str]) -> Any:
        return OpenAI.create(self, model=model, input=input)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (LangChain(), None),
        (LlamaIndex(), None),
        (Encoder(), "encoder"),
        (OpenAI(), "large"),
        (AsyncOpenAI(), "large"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_embedding_models_of_libraries(things: Any, model: Any, name: str | None) -> None:
    things.create_vector_index("text", dimensions=2, metric="l2", embed=model, model=name)
    things.put_many({"long": {"text": "a long text"}, "short": {"text": "text"}})
    assert [(e.id, e.score) for e in things.nearest("tea")] == [("short", -1.0), ("long", -8.0)]
    [index] = things.indexes()
    assert index.model == name or index.model in {"langchain", "llama"}


def test_a_model_without_a_name_needs_one(things: Any) -> None:
    with pytest.raises(InvalidIndex, match="model"):
        things.create_vector_index("text", dimensions=2, embed=Encoder())


SEVERAL: list[Any] = [[], [[1, 2], [3, 4]]]
"""Of a document, these are no vector and two vectors."""
NO_VECTORS: list[tuple[Any, str]] = [
    ([math.nan, 1], "finite numbers of 32 bits"),
    ([1, -math.inf], "finite numbers of 32 bits"),
    (np.array([math.nan, 1]), "finite numbers of 32 bits"),
    (np.array([1e300, 1.0]), "finite numbers of 32 bits"),
    ([10**39, 1], "finite numbers of 32 bits"),
    ([10**400, 1], "finite numbers of 32 bits"),
    ([0, 0.0], "must not be zero"),
    ([1, 2, 3], "must have 2 numbers, got 3"),
    ([True, 1], "must be an array of 2 numbers"),
    (["1", "2"], "must be an array of 2 numbers"),
    *((each, "must") for each in SEVERAL),
    (b"ab", "must be an array of 2 numbers"),
]


def test_no_entry_takes_what_is_no_vector(things: Any) -> None:
    """Queries, what an embedder makes of queries and of texts, and fields of documents."""
    made: list[Any] = [None]
    options: Any = {"embed": lambda texts: made * len(texts), "model": "made"}
    things.create_vector_index("text", dimensions=2, name="text", **options)
    things.create_vector_index("at", dimensions=2, name="at")
    for made[0], problem in NO_VECTORS:
        for index in ("at", "text"):
            with pytest.raises(InvalidSearch, match=problem):
                things.nearest(made[0], index=index)
            with pytest.raises(InvalidSearch, match=problem):
                things.search(meaning=made[0], index=index)
        with pytest.raises(InvalidSearch, match=problem):
            things.nearest("text", index="text")
        things.put("a", {"text": str(problem)})
        assert things.store_vectors("text") == 1
        assert problem in {each.index: each.problem for each in things.search_backlog()}["text"]
        if any(made[0] is each for each in SEVERAL):
            continue
        with suppress(InvalidBody):  # JSON has no such number
            things.put("a", {"at": made[0]})
            assert things.store_vectors("at") == 1
            assert problem in {each.index: each.problem for each in things.search_backlog()}["at"]
    assert things.nearest([1, 1], index="at") == things.nearest([1, 1], index="text") == []


def test_a_store_that_only_reads_searches_and_says_what_it_cannot_do(
    shared_backend: Backend, embed: Counting
) -> None:
    url, options = shared_backend.url, dict(shared_backend.options)
    with Store(url, **options) as store:
        notes = create(store["notes"], embed)
        notes.create_text_index("text")
        notes.put("a", {"text": "tea"})
        assert notes.store_vectors() == 0
        notes.put("b", {"text": "ice tea"})
    if shared_backend.is_postgresql:
        options["read_only"] = True
    else:
        url = f"{url}?mode=ro"
    with Store(url, **options) as store:
        notes = store["notes"]
        with pytest.raises(InvalidSearch, match="the model 'counting', and this store no function"):
            notes.nearest("tea")
        create(notes, embed)
        assert found(notes, "tea") == ["a"]
        assert [each.id for each in notes.search("tea", meaning="tea")] == ["a", "b"]
        assert [each.id for each in notes.search_backlog()] == ["b"]
        for write in (notes.store_vectors, lambda: notes.create_vector_index("at", dimensions=2)):
            with pytest.raises(DatabaseError, match="read-only"):
                write()
