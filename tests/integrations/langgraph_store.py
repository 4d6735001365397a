"""The stores with LangGraph itself: test_langgraph.py runs this file in an environment that has LangGraph."""

import asyncio
import inspect
import math
import subprocess
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from integrations.langgraph_graphs import ENVIRONMENT
from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from collections_store import InvalidBody, InvalidOption, Store
from collections_store.integrations.langgraph import AsyncLangGraphStore, LangGraphStore


@pytest.fixture
def store(backend: Backend) -> Iterator[Any]:
    with LangGraphStore(backend.url, **backend.options) as store:
        yield store


def put(store: Any, **values: Any) -> None:
    for key, value in values.items():
        store.put(("a",), key, {"n": value})


def found(store: Any, **filter: Any) -> list[str]:
    return sorted(item.key for item in store.search((), filter=filter))


NUMBERS = {"nine": 9, "ten": 10, "text": "10", "yes": True, "none": None, "half": 9.5}


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        (10, ["ten"]),
        (10.0, ["ten"]),
        ("10", ["text"]),
        (True, ["yes"]),
        (1, []),
        (None, ["none", "without"]),
        ({"$eq": None}, ["none", "without"]),
        ({"$gt": 9}, ["half", "ten"]),
        ({"$gte": 9, "$lt": 10}, ["half", "nine"]),
        ({"$gt": "1"}, ["text"]),
        ({"$lte": float("inf")}, ["half", "nine", "ten"]),
        ({"$lt": 10**100}, ["half", "nine", "ten"]),
        ({"$eq": float("nan")}, []),
        ({"$gt": False}, []),
        ({"$ne": 10}, ["half", "nine", "none", "text", "yes"]),
        ("a\0b", []),
    ],
)
def test_values_are_compared_with_values_of_their_type(
    store: Any, condition: Any, keys: list[str]
) -> None:
    put(store, **NUMBERS)
    store.put(("a",), "without", {})
    assert found(store, n=condition) == keys


def test_integers_are_exact(store: Any) -> None:
    put(store, one=2**53, two=2**53 + 1)
    assert found(store, n=2**53 + 1) == ["two"]
    assert found(store, n={"$gt": 2**53}) == ["two"]


def test_arrays_and_objects(store: Any) -> None:
    put(store, list=["x", "y"], object={"in": {"deep": 1}, "beside": 2}, text="x")
    assert found(store, n="x") == ["text"]
    assert found(store, n=["x", "y"]) == found(store, n={"$eq": ["x", "y"]}) == ["list"]
    assert found(store, n={"in": {"deep": 1}}) == found(store, **{"n.in.deep": 1}) == ["object"]
    store.put(("a",), "dotted", {"n.in.deep": 1, "with space": 2})
    assert found(store, **{"n.in.deep": 1}) == ["dotted", "object"]
    assert found(store, **{"with space": 2}) == ["dotted"]


@pytest.mark.parametrize("filter", [{"a'b": 1}, {'a"': 1}, {"n": {"$in": [1]}}, {1: 1}])
def test_an_invalid_filter_is_refused(store: Any, filter: Any) -> None:
    with pytest.raises(ValueError, match="Invalid filter"):
        store.search((), filter=filter)


def test_a_value_that_is_no_dict_is_refused(store: Any) -> None:
    with pytest.raises(InvalidOption, match=r"value: must be a dict, got list"):
        store.put(("a",), "1", [1])
    assert store.get(("a",), "1") is None


def test_pages_are_complete_and_the_last_updated_is_first(store: Any) -> None:
    for n in range(250):
        store.put(("a",), str(n), {"n": n, "even": [n % 2 == 0]})
    store.put(("a",), "7", {"n": 7, "even": [False]})
    pages = [store.search((), filter={"even": [False]}, limit=50, offset=n) for n in (0, 50, 100)]
    assert [len(page) for page in pages] == [50, 50, 25]
    keys = [item.key for page in pages for item in page]
    assert keys == ["7", *(str(n) for n in range(249, 0, -2) if n != 7)]
    with pytest.raises(InvalidOption):
        store.search((), limit=-1)


def test_times(store: Any) -> None:
    put(store, key=1)
    before = store.get(("a",), "key")
    put(store, key=2)
    after = store.get(("a",), "key")
    assert before.created_at == after.created_at < after.updated_at
    assert after.created_at.tzinfo is not None


@pytest.mark.parametrize("label", ["a/b", "a%2Fb", "%", "*", "a\n", "A", "ä"])
def test_labels_and_keys_are_literal(store: Any, label: str) -> None:
    store.put((label, "x"), label, {"n": 1})
    store.put(("b",), "other", {"n": 2})
    assert store.get((label, "x"), label).value == {"n": 1}
    [item] = store.search((label,))
    assert (item.namespace, item.key) == ((label, "x"), label)
    assert store.search((label[:-1] or "z",)) == []
    assert sorted(store.list_namespaces()) == sorted([("b",), (label, "x")])
    store.delete((label, "x"), label)
    assert store.list_namespaces() == [("b",)]


def test_a_batch_reads_the_state_before_it(store: Any) -> None:
    put(store, old=1)
    results = store.batch(
        [
            PutOp(("a",), "new", {"n": 2}),
            PutOp(("a",), "new", {"n": 3}),
            PutOp(("a",), "old", None),
            GetOp(("a",), "new"),
            SearchOp(("a",)),
            ListNamespacesOp(),
        ]
    )
    assert results[3] is None
    assert [item.key for item in results[4]] == ["old"]
    assert results[5] == [("a",)]
    assert [(item.key, item.value) for item in store.search(())] == [("new", {"n": 3})]


def test_a_failed_batch_changes_nothing(store: Any) -> None:
    put(store, kept=1)
    with pytest.raises(InvalidBody):
        store.batch(
            [
                PutOp(("a",), "kept", None),
                PutOp(("a",), "good", {"n": 1}, ttl=5),
                PutOp(("a",), "bad", {"n": float("nan")}),
            ]
        )
    assert [item.key for item in store.search(())] == ["kept"]


def test_expired_items_are_invisible_and_reads_refresh(backend: Backend) -> None:
    with LangGraphStore(backend.url, ttl={"default_ttl": 60}, **backend.options) as store:
        put(store, default=1)
        store.put(("a",), "never", {}, ttl=None)
        store.put(("a",), "gone", {}, ttl=1e-7)
        documents: Any = store._runner.store["langgraph_items"]

        def expiry() -> Any:
            return documents.document("i/a//default").expires_at

        first = expiry()
        store.get(("a",), "default", refresh_ttl=False)
        store.search((), refresh_ttl=False)
        assert expiry() == first
        store.get(("a",), "default")
        second = expiry()
        store.search(())
        assert first < second < expiry()
        assert documents.document("i/a//never").expires_at is None
        assert found(store) == ["default", "never"]
        assert store.sweep_ttl() == 1


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "abc"] for text in texts]


INDEX = {"dims": 3, "embed": embed, "fields": ["text"]}


def test_a_search_by_meaning(backend: Backend) -> None:
    with LangGraphStore(backend.url, index=INDEX, **backend.options) as store:
        for n in range(10):
            store.put(("a",), str(n), {"text": "a" * (10 - n) + "b" * n})
        store.put(("a",), "not indexed", {"text": "aaa"}, index=False)
        results = store.search((), query="aaaa", limit=20)
        assert [item.key for item in results] == [*map(str, range(10)), "not indexed"]
        assert results[0].score == pytest.approx(1.0)
        assert results[-1].score is None
        pages = [store.search((), query="aaaa", limit=4, offset=n) for n in (0, 4, 8)]
        assert [item.key for page in pages for item in page] == [item.key for item in results]
        store.put(("a",), "0", {"text": "aaa"}, index=False)
        assert {item.key: item.score for item in store.search((), query="a")}["0"] is None


@pytest.mark.parametrize("index", [{}, {"dims": 3}, {"dims": "3", "embed": embed}])
def test_an_incomplete_index_is_refused(index: Any) -> None:
    with pytest.raises(InvalidOption, match="dims"):
        LangGraphStore("sqlite://", index=index)


@pytest.mark.parametrize(
    ("distance", "scores"),
    [
        ("cosine", [1.0, 0.707, 0.0]),
        ("l2", [0.0, -1.414, -2.236]),
        ("inner_product", [4.0, 2.0, 0.0]),
    ],
)
def test_the_distance_decides_the_scores(
    backend: Backend, distance: str, scores: list[float]
) -> None:
    index = INDEX | {"distance_type": distance}
    with LangGraphStore(backend.url, index=index, **backend.options) as store:
        for text in ("aa", "b", "ab"):
            store.put(("a",), text, {"text": text})
        results = store.search((), query="aa")
        assert [item.key for item in results] == ["aa", "ab", "b"]
        assert [item.score for item in results] == pytest.approx(scores, abs=1e-3)


def test_another_distance_is_refused() -> None:
    with pytest.raises(InvalidOption, match="distance_type.*'cosine', 'l2', 'inner_product'.*'l1'"):
        LangGraphStore("sqlite://", index=INDEX | {"distance_type": "l1"})


def test_a_search_by_meaning_with_a_filter_that_python_decides(backend: Backend) -> None:
    with LangGraphStore(backend.url, index=INDEX, **backend.options) as store:
        for n in range(30):
            store.put(("a",), str(n), {"text": "a" * (31 - n) + "b" * n, "odd": [n % 10]})
        results = store.search((), query="aaaa", filter={"odd": {"$eq": [7]}}, limit=2)
        assert [item.key for item in results] == ["7", "17"]


def test_a_batch_searches_before_it_writes(backend: Backend) -> None:
    with LangGraphStore(backend.url, index=INDEX, **backend.options) as store:
        store.put(("a",), "1", {"text": "a"})
        put = PutOp(("a",), "2", {"text": "ab"})
        search = SearchOp(("a",), query="b")
        for expected in (["1"], ["2", "1"]):
            found, _ = store.batch([search, put])
            assert [item.key for item in found] == expected


def test_items_of_an_older_version_get_an_index(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store:
        vector = b64encode(array("f", [1, 0, 0]).tobytes()).decode()
        body = {"namespace": "a", "key": "k", "value": {"text": "a"}, "vectors": [vector]}
        store["langgraph_items"].put("i/a//k", body)
        [item] = LangGraphStore(store, index=INDEX).search(("a",), query="ab")
        assert (item.key, item.score) == ("k", pytest.approx(math.sqrt(0.5)))


def test_a_file_that_can_only_be_read_is_searched_by_meaning(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with LangGraphStore(url, index=INDEX) as store:
        store.put(("a",), "1", {"text": "a"})
    with LangGraphStore(f"{url}?mode=ro", index=INDEX) as store:
        assert [(e.key, e.score) for e in store.search((), query="a")] == [("1", 1.0)]


def test_a_query_without_direction_finds_the_latest(backend: Backend) -> None:
    with LangGraphStore(backend.url, index=INDEX, **backend.options) as store:
        store.put(("a",), "1", {"text": "a"})
        store.put(("a",), "2", {"text": "zero"})
        assert [(e.key, e.score) for e in store.search((), query="none")] == [
            ("2", None),
            ("1", None),
        ]
        assert [e.key for e in store.search((), query="a")] == ["1", "2"]


def test_vectors_of_other_dimensions_are_refused(backend: Backend) -> None:
    index = INDEX | {"dims": 4}
    with LangGraphStore(backend.url, index=index, **backend.options) as store:
        with pytest.raises(InvalidOption, match="dims is 4, and embed returned 3"):
            store.put(("a",), "key", {"text": "a"})
        assert store.search(()) == []


def test_the_sweeper_ends(store: Any) -> None:
    ended = store.start_ttl_sweeper(sweep_interval_minutes=1e-6)
    store.put(("a",), "gone", {}, ttl=1e-7)
    assert store.start_ttl_sweeper() is ended
    assert store.stop_ttl_sweeper()
    assert ended.result(timeout=30) is None
    assert store.stop_ttl_sweeper()


def test_async_calls_and_their_errors_are_each_their_own(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncLangGraphStore(backend.url, index=INDEX, **backend.options) as store:
            good = (store.aput(("a",), str(n), {"text": "a"}) for n in range(16))
            bad = store.aput(("a",), "bad", {"n": float("nan")})
            results = await asyncio.gather(bad, *good, return_exceptions=True)
            assert isinstance(results[0], InvalidBody)
            assert results[1:] == [None] * 16
            assert len(await store.asearch((), query="a", limit=20)) == 16
            with pytest.raises(asyncio.InvalidStateError):
                store.get(("a",), "1")
            assert (await asyncio.to_thread(store.get, ("a",), "1")).value == {"text": "a"}
            await store.start_ttl_sweeper(1)
            assert await store.stop_ttl_sweeper()
            await store.adelete(("a",), "1")
            assert await store.aget(("a",), "1") is None

    asyncio.run(main())


def test_a_given_store_stays_open(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as given:
        with LangGraphStore(given, collection="memories") as store:
            put(store, key=1)
        assert [each.name for each in given.collections()] == ["memories"]


WRITERS = """
import asyncio, os, sys
from langgraph.store.base import GetOp, PutOp
from collections_store.integrations.langgraph import AsyncLangGraphStore

async def main(number):
    async with AsyncLangGraphStore({url!r}, **{options!r}) as store:
        async def write(task):
            for n in range(10):
                name = f"{{number}}-{{task}}"
                await store.abatch([GetOp((name,), str(n)), PutOp((name,), str(n), {{"n": n}})])
        await asyncio.gather(*map(write, range(16)))

for number in range(4):
    if not os.fork():
        asyncio.run(main(number))
        os._exit(0)
sys.exit(sum(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)))
"""


def test_batches_of_16_tasks_in_4_processes_lose_nothing(shared_backend: Backend) -> None:
    options, url = shared_backend.options, shared_backend.url
    command = [sys.executable, "-c", WRITERS.format(url=url, options=options)]
    done = subprocess.run(command, check=False, capture_output=True, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, b"")
    with LangGraphStore(url, **options) as store:
        assert len(store.search((), limit=1000)) == 4 * 16 * 10
        assert len(store.list_namespaces()) == 64


def test_expiring_items_of_a_read_only_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their time to live cannot start again."""
    with LangGraphStore(f"sqlite:///{tmp_path / 'store.db'}") as store:
        for key in ("x", "y"):
            store.put(("a",), key, {"n": 1}, ttl=5)
    with LangGraphStore(f"sqlite:///{tmp_path / 'store.db'}?mode=ro") as store:
        assert store.get(("a",), "x").value == {"n": 1}
        assert len(store.search(("a",))) == 2
        assert len(store.batch([GetOp(("a",), "x"), GetOp(("a",), "y")])) == 2
    assert caplog.text.count("did not start again") == 3


# -- what users of LangGraph's stores type -----------------------------------------------------------


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


@pytest.mark.parametrize("theirs", [SqliteStore, AsyncSqliteStore])
def test_it_opens_as_langgraphs_stores_do(theirs: Any, tmp_path: Path) -> None:
    ours: Any = LangGraphStore if theirs is SqliteStore else AsyncLangGraphStore
    opened = parameters(theirs.from_conn_string) - {"conn_string"}
    assert opened <= parameters(ours)
    assert parameters(ours.from_conn_string) == {"conn_string", "options"}
    assert parameters(theirs.setup) == parameters(ours.setup) == set()
    path = str(tmp_path / "store.db")

    async def use_async() -> None:
        async with ours.from_conn_string(path, ttl={"default_ttl": 5}) as store:
            await store.setup()
            await store.setup()
            await store.aput(("a",), "b", {"n": 1})

    if ours is AsyncLangGraphStore:
        asyncio.run(use_async())
    else:
        with ours.from_conn_string(path, ttl={"default_ttl": 5}) as store:
            store.setup()
            store.setup()
            store.put(("a",), "b", {"n": 1})
    with LangGraphStore(path) as store:
        assert store.get(("a",), "b").value == {"n": 1}


def test_namespaces_come_in_the_order_of_their_ids(store: Any) -> None:
    names = [("a",), ("a", "b"), ("a", "b", "c"), ("a-b",), ("b", "é/%"), ("b2", "x"), ("c", "b")]
    for name in reversed(names):
        for key in ("1", "2"):
            store.put(name, key, {})
    ordered = sorted(names, key=lambda name: "/".join(name) + "//")
    assert store.list_namespaces() == ordered
    pages = [store.list_namespaces(limit=2, offset=2 * n) for n in range(4)]
    assert [each for page in pages for each in page] == ordered
    assert store.list_namespaces(max_depth=1) == [("a-b",), ("a",), ("b",), ("b2",), ("c",)]
    assert store.list_namespaces(max_depth=1, limit=2, offset=1) == [("a",), ("b",)]
    assert store.list_namespaces(prefix=("a",)) == [("a",), ("a", "b"), ("a", "b", "c")]
    assert store.list_namespaces(suffix=("b",), limit=1) == [("a", "b")]
    assert store.list_namespaces(prefix=("*", "b")) == [("a", "b"), ("a", "b", "c"), ("c", "b")]
    store.delete(("a-b",), "1")
    store.delete(("a-b",), "2")
    assert store.list_namespaces(limit=1) == [("a",)]
    with pytest.raises(InvalidOption, match="limit"):
        store.list_namespaces(limit=-1)


def test_items_of_a_batch_share_no_values(store: Any) -> None:
    store.put(("a",), "b", {"n": [1]})
    one, none, same = store.batch([GetOp(("a",), "b"), GetOp(("a",), "c"), GetOp(("a",), "b")])
    one.value["n"].append(2)
    assert none is None
    assert same.value == {"n": [1]}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300])
def test_vectors_that_are_not_finite_are_refused(backend: Backend, number: float) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0, 2.0 if text == "good" else number] for text in texts]

    index: Any = {"dims": 2, "embed": embed}
    with LangGraphStore(backend.url, index=index, **backend.options) as store:
        store.put(("a",), "1", {"text": "good"}, index=["text"])
        with pytest.raises(InvalidOption, match="embed must return finite numbers"):
            store.put(("a",), "2", {"text": "bad"}, index=["text"])
        with pytest.raises(InvalidOption, match="embed must return finite numbers"):
            store.search(("a",), query="bad")
        assert [item.key for item in store.search(("a",), query="good")] == ["1"]
