"""mem0's memories in our stores."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from selection import missing

from collections_store import IndexExists, InvalidFilter, InvalidOption, Store

if _reason := missing("mem0"):
    pytest.skip(_reason, allow_module_level=True)

from integrations.mem0_memories import memory_of
from mem0 import AsyncMemory

from collections_store.integrations.mem0 import CollectionsVectorStore

PROGRAM = Path(__file__).with_name("mem0_memories.py")
ADA = {"user_id": "ada"}
SAID = ("I take my tea with milk.", "An umbrella is in my bag.", "The station is closed.")


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    with Store(backend.url, **backend.options) as store:
        yield store


def texts(found: dict[str, Any]) -> list[str]:
    return [each["memory"] for each in found["results"]]


def test_a_memory_adds_searches_updates_and_deletes(store: Store) -> None:
    memory = memory_of(store)
    messages = [{"role": "user", "content": text} for text in SAID]
    added = memory.add(messages, **ADA, metadata={"day": 3})
    assert texts(added) == list(SAID)
    memory.add("I drink coffee.", user_id="bob")
    assert texts(memory.add(SAID[0], **ADA)) == []  # it is known
    assert texts(memory.get_all(filters=ADA)) == list(SAID)
    [found] = memory.search("tea?", filters=ADA)["results"]
    assert (found["memory"], found["user_id"], found["metadata"]) == (SAID[0], "ada", {"day": 3})
    id = found["id"]
    memory.update(id, text="The bus goes to the station.", metadata={"day": 4})
    assert texts(memory.search("tea?", filters=ADA)) == []
    found = texts(memory.search("ticket", filters=ADA))
    assert sorted(found) == ["The bus goes to the station.", SAID[2]]
    memory.delete(id)
    assert memory.get(id) is None
    assert [each["event"] for each in memory.history(id)] == ["ADD", "UPDATE", "DELETE"]
    memory.delete_all(**ADA)
    assert texts(memory.get_all(filters=ADA)) == []
    assert texts(memory.get_all(filters={"user_id": "bob"})) == ["I drink coffee."]
    memory.reset()
    assert texts(memory.get_all(filters={"user_id": "bob"})) == []
    assert texts(memory.add(SAID[0], **ADA)) == [SAID[0]]


def test_an_async_memory(store: Store) -> None:
    async def main() -> None:
        memory = memory_of(store, AsyncMemory)
        await memory.add(SAID[0], **ADA)
        await memory.add(SAID[1], user_id="bob")
        assert texts(await memory.search("tea", filters=ADA)) == [SAID[0]]
        await memory.reset()
        assert texts(await memory.get_all(filters=ADA)) == []
        await memory.add(SAID[1], **ADA)
        assert texts(await memory.search("rain", filters=ADA)) == [SAID[1]]

    asyncio.run(main())


def run(backend: Backend, method: str, **arguments: Any) -> Any:
    """Return the result of a method of a memory in a new process."""
    options = json.dumps(backend.options)
    done = subprocess.run(
        [sys.executable, PROGRAM, backend.url, options, method, json.dumps(arguments)],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_processes_see_each_others_writes(shared_backend: Backend) -> None:
    [tea] = run(shared_backend, "add", messages=SAID[0], **ADA)["results"]
    with Store(shared_backend.url, **shared_backend.options) as store:
        memory = memory_of(store)
        assert texts(memory.search("tea", filters=ADA)) == [SAID[0]]
        [rain] = memory.add(SAID[1], **ADA)["results"]
        assert texts(run(shared_backend, "search", query="rain", filters=ADA)) == [SAID[1]]
        run(shared_backend, "update", memory_id=tea["id"], text="The sun is out.")
        found = texts(memory.search("sun", filters=ADA))
        assert sorted(found) == [SAID[1], "The sun is out."]
        run(shared_backend, "delete", memory_id=rain["id"])
        assert texts(memory.search("sun", filters=ADA)) == ["The sun is out."]
        run(shared_backend, "reset")
        assert texts(memory.search("sun", filters=ADA)) == []
        memory.add(SAID[2], **ADA)
    assert texts(run(shared_backend, "get_all", filters=ADA)) == [SAID[2]]


def test_entities_are_in_a_collection_of_their_own(store: Store) -> None:
    memory = memory_of(store, collection_name="facts")
    memory.add(SAID[0], **ADA)
    memory.entity_store.insert([[1, 0, 0]], [{"data": "tea", **ADA}])
    assert [each.name for each in store.collections()] == ["facts", "facts_entities"]
    [[entity]] = memory.entity_store.list(filters=ADA)
    assert entity.payload["data"] == "tea"
    assert texts(memory.get_all(filters=ADA)) == [SAID[0]]


PAYLOADS: dict[str, dict[str, Any]] = {
    "1": {"n": 1, "tags": ["x", "y"], "name": "Ada", "a.b": 1, **ADA},
    "2": {"n": 2.5, "tags": [], "name": "ada", "on": True, "user_id": "bob"},
    "3": {"n": "1", "name": "50% off", "at": "2026-11-24T10:00:00Z", "none": None},
}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (None, "123"),
        ({}, "123"),
        ({"n": 1}, "1"),
        ({"n": "1"}, "3"),
        ({"n": [1, "1"]}, "13"),
        ({"tags": "x"}, "1"),
        ({"tags": ["y", "z"]}, "1"),
        ({"tags": "*"}, "12"),
        ({"none": "*"}, "3"),
        ({"a.b": 1}, "1"),
        ({"$id": 1}, ""),
        ({"on": True}, "2"),
        ({"n": {"eq": 1}}, "1"),
        ({"n": {"ne": 1}}, "23"),
        ({"on": {"ne": False}}, "2"),
        ({"n": {"gt": 1}}, "2"),
        ({"n": {"gte": 1, "lt": 2}}, "1"),
        ({"n": {"lte": 2.5}}, "12"),
        ({"at": {"gte": "2026-11-24", "lt": "2026-11-25"}}, "3"),
        ({"n": {"in": [2.5, 7]}}, "2"),
        ({"on": {"nin": [False]}}, "2"),
        ({"name": {"contains": "a"}}, "12"),
        ({"name": {"contains": "0%"}}, "3"),
        ({"name": {"icontains": "ADA"}}, "12"),
        ({"OR": [{"n": 1}, {"name": "ada", "on": True}]}, "12"),
        ({"$or": [{"n": 1}, {"n": "1"}], "user_id": "ada"}, "1"),
        ({"NOT": [{"n": 1}, {"n": 2.5}]}, "3"),
        ({"$not": [{"OR": [{"n": 1}, {"on": True}]}]}, "3"),
        ({"AND": [{"tags": "x"}, {"tags": "y"}]}, "1"),
    ],
)
def test_filters(store: Store, filters: Any, found: str) -> None:
    memories = CollectionsVectorStore(store, 2)
    bodies = [{**each, "text_lemmatized": "tea"} for each in PAYLOADS.values()]
    memories.insert([[1, 0]] * 3, bodies, [*PAYLOADS])
    [listed] = memories.list(filters)
    assert "".join(each.id for each in listed) == found
    searches = (memories.search("", [1, 1], 9, filters), memories.keyword_search("tea", 9, filters))
    for each in searches:
        assert sorted(one.id for one in each) == sorted(found)


@pytest.mark.parametrize(
    "filters",
    [
        {"n": {"$gt": 1}},
        {"OR": []},
        {"NOT": "x"},
        {"n": {"in": 1}},
        {"user_id": {}},
        {"OR": [{"n": 1}, {}]},
        {"AND": [None]},
        {"AND": ["n"]},
        "n",
    ],
)
def test_a_wrong_filter_is_refused(filters: Any) -> None:
    with Store("sqlite://") as store, pytest.raises(InvalidFilter):
        CollectionsVectorStore(store, 2).list(filters)


def test_words_find_documents_with_any_word(store: Store) -> None:
    memories = CollectionsVectorStore(store, 2)
    known = ["green tea", "green apples with milk", "black coffee"]
    memories.insert([[1, 0]] * 3, [{"text_lemmatized": each} for each in known], "123")
    found = memories.keyword_search('Is there "milk: or -tea, OR green?')
    assert sorted(each.id for each in found) == ["1", "2"]
    assert all(each.score and each.score > 0 for each in found)
    assert [each.id for each in memories.keyword_search("green tea", 1)] == ["1"]
    assert memories.keyword_search("?! ") == []


def test_scores_are_from_0_to_1(store: Store) -> None:
    memories = CollectionsVectorStore(store, 2)
    memories.insert([[5, 0], [3, 4], [-5, 0], [0, 0]], None, ["far", "near", "back", "zero"])
    found = [(each.id, each.score) for each in memories.search("", [3, 4])]
    assert found == [("near", pytest.approx(1)), ("far", pytest.approx(0.6)), ("back", 0)]
    assert memories.search("", [0, 0]) == []


def test_the_parts_of_a_memory_are_replaced_by_themselves(store: Store) -> None:
    memories = CollectionsVectorStore(store, 2)
    memories.insert([[1, 0], [0, 1]], [{"data": "a", "old": 1}, {"data": "b"}], ["1", "2"])
    memories.update("1", payload={"data": "c"})
    assert memories.search("", [1, 0], 1)[0].payload == {"data": "c"}
    memories.update("1", [0, 1])
    assert {each.id: each.score for each in memories.search("", [0, 1])} == {"1": 1, "2": 1}
    memories.update("1")
    memories.update("none", [1, 0], {})
    assert memories.get("none") is None
    memories.insert([[1, 0]], [{"data": "d"}], ["1"])
    assert memories.col_info() == {"name": "mem0", "count": 2}
    memories.delete("1")
    memories.delete("none")
    assert [each.id for each in memories.list()[0]] == ["2"]
    assert memories.list_cols() == ["mem0"]
    memories.delete_col()
    assert memories.list_cols() == []


@pytest.mark.parametrize("vector", [[1], [1, 2, 3], [1, float("nan")], [1, 1e300], [1, "2"]])
def test_a_vector_that_no_search_could_find_is_refused(vector: Any) -> None:
    with Store("sqlite://") as store:
        memories = CollectionsVectorStore(store, 2)
        with pytest.raises(InvalidOption, match="each must have 2 finite numbers"):
            memories.insert([[1, 0], vector], None, ["1", "2"])
        assert memories.list() == [[]]


def test_wrong_stores_and_dimensions_are_refused(store: Store) -> None:
    memory_of(store)
    with pytest.raises(IndexExists):
        CollectionsVectorStore(store, 7)
    wrong: Any = "sqlite://"
    with pytest.raises(InvalidOption, match="must be a Store, got str"):
        CollectionsVectorStore(wrong, 2)
    with pytest.raises(InvalidOption, match="must be \"cosine\", got 'l2'"):
        CollectionsVectorStore(store, 3).create_col("other", 3, "l2")
